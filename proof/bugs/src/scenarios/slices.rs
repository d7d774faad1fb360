//! Work in slices: the result is that of work in one go, no read sees the middle, and no step is long.
//!
//! Knows nothing of: how members get their work.

use kattu_kv::api::{
    Answer, Command, Compare, CompareResult, CompareTarget, DeleteRange, Error, KeyRange, Operation, Put,
    Query, Range, Response, Txn,
};
use kattu_kv::store::{Store, VERSION_OVERHEAD_BYTES};
use kattu_kv::work::Work;
use kattu_node::Keeper;
use kattu_node::command::encode_kv;
use kattu_node::contract::{KeeperEffects, KeeperTask, Outcome, Reply, ReplyBody, Ticket, Tickets};
use kattu_raft::{Entry, EntryHead, EntryId, EntryKind, LogIndex, Membership, SnapshotMeta, Stamp, Term};

/// Units that a small task may take beyond a slice.
const SMALL_UNITS: u64 = 64;

fn all() -> KeyRange {
    KeyRange { start: vec![0], end: vec![0] }
}

fn put(number: u64) -> Command {
    Command::Put(Put { key: format!("k{number:06}").into_bytes(), ..Put::default() })
}

fn delete() -> DeleteRange {
    DeleteRange { keys: all(), prev_kv: false }
}

/// Different numbers of keys and of units for different seeds.
fn sizes(seed: u64) -> (u64, i64) {
    (500 + seed % 7 * 100, 20 + (seed % 11) as i64 * 30)
}

fn store(keys: u64) -> Store {
    let mut store = Store::new();
    (0..keys).for_each(|number| drop(store.apply(&put(number)).expect("a put")));
    store
}

fn in_slices(store: &mut Store, command: Command, slice: i64) -> Result<Response, Error> {
    let mut work = Work::on_command(command, Some(1 << 20));
    loop {
        if let Some(done) = store.go_on(&mut work, &mut slice.clone()) {
            return done;
        }
    }
}

pub(super) fn a_transaction_that_fails_late(seed: u64) {
    let (keys, slice) = sizes(seed);
    let mut store = store(keys);
    let before = (store.digest(), store.running_digest(), store.stats());
    // A kept value that the transaction itself deletes.
    let keep = Put { key: b"k000001".to_vec(), ignore_value: true, ..Put::default() };
    let success = vec![Operation::DeleteRange(delete()), Operation::Put(keep)];
    let came = in_slices(&mut store, Command::Txn(Txn { success, ..Txn::default() }), slice);
    assert!(came.is_err(), "scene: it was not refused");
    let after = (store.digest(), store.running_digest(), store.stats());
    assert!(before == after, "what_is_refused_leaves_nothing: {before:?} before, {after:?} after");
}

pub(super) fn a_delete_that_is_counted(seed: u64) {
    let (keys, slice) = sizes(seed);
    let whole = store(keys).apply(&Command::DeleteRange(delete()));
    let came = in_slices(&mut store(keys), Command::DeleteRange(delete()), slice);
    assert!(came == whole, "slices_change_no_answer: {whole:?} in one go, {came:?} in slices of {slice}");
}

fn apply(index: u64, command: &Command) -> KeeperTask {
    let head = EntryHead {
        id: EntryId { term: Term(1), index: LogIndex(index) },
        kind: EntryKind::Command,
        stamp: Stamp(0),
    };
    let entry = Entry::new(head, encode_kv(command).into(), 0);
    KeeperTask::Apply { entry, tickets: Tickets::None, term: Term(1) }
}

fn keeper(keys: u64) -> Keeper {
    let mut keeper = Keeper::new(Vec::new());
    (1..=keys).for_each(|number| keeper.handle(apply(number, &put(number)), &mut KeeperEffects::default()));
    keeper
}

fn count() -> KeeperTask {
    read(Range { keys: all(), count_only: true, ..Range::default() })
}

fn read(range: Range) -> KeeperTask {
    KeeperTask::Read { ticket: Ticket(7), query: Query::Range(range), term: Term(1), needs: LogIndex(0) }
}

/// How many keys the answers count, and how many they show.
fn told(effects: &KeeperEffects) -> Option<(i64, usize)> {
    effects.reply.iter().find_map(|(_, outcome)| match outcome {
        Outcome::Done(Reply { body: ReplyBody::Kv(response), .. }) => match &response.answer {
            Answer::Range(range) => Some((range.count, range.kvs.len())),
            _ => None,
        },
        _ => None,
    })
}

pub(super) fn a_delete_of_everything(seed: u64) {
    let (keys, slice) = sizes(seed);
    let mut keeper = keeper(keys);
    keeper.take_in(apply(keys + 1, &Command::DeleteRange(delete())), &mut KeeperEffects::default());
    while keeper.is_busy() {
        let mut effects = KeeperEffects::default();
        keeper.step(&mut slice.clone(), &mut effects);
        assert!(
            effects.units <= slice.unsigned_abs() + SMALL_UNITS,
            "steps_are_as_long_as_allowed: {} units, {slice} were allowed",
            effects.units
        );
    }
}

/// By the number of steps, not by the units that each reports.
pub(super) fn conditions_on_missing_keys(seed: u64) {
    let (keys, slice) = sizes(seed);
    let missing = |number: u64| Compare {
        keys: KeyRange { start: format!("missing{number}").into_bytes(), end: Vec::new() },
        result: CompareResult::Equal,
        target: CompareTarget::Version(0),
    };
    let judging = Txn { compare: (0..100).map(missing).collect(), ..Txn::default() };
    let success = vec![Operation::Txn(judging); 60];
    let mut keeper = keeper(keys);
    let command = Command::Txn(Txn { success, ..Txn::default() });
    keeper.take_in(apply(keys + 1, &command), &mut KeeperEffects::default());
    let mut steps = 0;
    while keeper.is_busy() {
        keeper.step(&mut slice.clone(), &mut KeeperEffects::default());
        steps += 1;
    }
    let most = slice.unsigned_abs() + SMALL_UNITS;
    assert!(
        60 * 100 <= steps * most,
        "steps_are_as_long_as_allowed: 6000 conditions in {steps} steps, {slice} units were allowed"
    );
}

pub(super) fn a_count_beside_a_delete(seed: u64) {
    let (keys, slice) = sizes(seed);
    let mut keeper = keeper(keys);
    let mut effects = KeeperEffects::default();
    keeper.take_in(apply(keys + 1, &Command::DeleteRange(delete())), &mut effects);
    keeper.step(&mut slice.clone(), &mut effects);
    assert!(keeper.is_in_the_middle(), "scene: the delete is over");
    keeper.take_in(count(), &mut effects);
    keeper.finish(&mut effects);
    let seen = told(&effects).expect("scene: the count is answered").0;
    assert!(seen == 0 || seen == keys as i64, "changes_are_seen_whole: a count of {seen} of {keys} keys");
}

pub(super) fn a_read_and_a_snapshot(seed: u64) {
    let (keys, slice) = sizes(seed);
    let mut other = keeper(keys);
    other.handle(apply(keys + 1, &Command::DeleteRange(delete())), &mut KeeperEffects::default());
    let last = EntryId { term: Term(1), index: other.applied() };
    let meta = SnapshotMeta { last, membership: Membership::default(), ..SnapshotMeta::default() };
    let mut keeper = keeper(keys);
    let mut effects = KeeperEffects::default();
    keeper.take_in(KeeperTask::Install(Box::new(meta)), &mut effects);
    keeper.finish(&mut effects);
    keeper.take_in(read(Range { keys: all(), ..Range::default() }), &mut effects);
    keeper.step(&mut slice.clone(), &mut effects);
    assert!(keeper.is_in_the_middle(), "scene: the read is over");
    let _old = keeper.replace(other, &mut effects);
    keeper.finish(&mut effects);
    let (said, shown) = told(&effects).expect("scene: the read is answered");
    assert!(said == shown as i64, "reads_see_one_state: {said} keys are said to be there, {shown} are shown");
}

/// Transactions change many keys each, and all but the newest versions are compacted again and again.
pub(super) fn transactions_that_change_many_keys(seed: u64) {
    let (keys, _) = sizes(seed);
    let per_transaction = 100;
    let mut store = Store::new();
    let mut number = 0;
    for round in 0..20 {
        for _ in 0..50 {
            let puts = (number..number + per_transaction).map(|number| match put(number % keys) {
                Command::Put(put) => Operation::Put(put),
                other => unreachable!("{other:?}"),
            });
            let success = puts.collect();
            store.apply(&Command::Txn(Txn { success, ..Txn::default() })).expect("a transaction");
            number += per_transaction;
        }
        if round > 0 {
            let left = store.stats().bytes - store.stats().bytes_in_use;
            let most = 3 * 50 * per_transaction * VERSION_OVERHEAD_BYTES;
            assert!(
                left <= most,
                "forgetting_keeps_up: after {round} compactions {left} bytes of old versions are left, {most} were made since \
                 the one before the last"
            );
        }
        store.apply(&Command::Compact(store.revision())).expect("a new revision");
    }
}
