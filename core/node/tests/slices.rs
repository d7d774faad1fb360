//! Work in slices: a task in progress is visible in whole or not at all, only tasks that read no key overtake it, and
//! the budget of an entry is the one in the entry.

use kattu_kv::api::{Answer, Command, DeleteRange, KeyRange, Operation, Put, Query, Range, Revision, Txn};
use kattu_node::alarms::{Alarm, AlarmChange};
use kattu_node::command::{encode_kv, request};
use kattu_node::contract::*;
use kattu_node::{Keeper, RequestLimits, level};
use kattu_raft::{Entry, EntryHead, EntryId, EntryKind, LogIndex, NodeId, Stamp, Term};

const KEYS: u64 = 1000;
const TERM: Term = Term(1);

fn all() -> KeyRange {
    KeyRange { start: vec![0], end: vec![0] }
}

fn delete_all() -> Command {
    Command::DeleteRange(DeleteRange { keys: all(), prev_kv: false })
}

fn put(n: u64) -> Command {
    Command::Put(Put { key: format!("k{n:04}").into_bytes(), value: b"v".to_vec(), ..Put::default() })
}

fn apply(index: u64, payload: Vec<u8>, ticket: Option<u64>) -> KeeperTask {
    let id = EntryId::new(1, index);
    let head = EntryHead { id, kind: EntryKind::Command, stamp: Stamp(0) };
    KeeperTask::Apply {
        entry: Entry::new(head, payload.into(), 0),
        tickets: ticket.map(Ticket).into(),
        term: TERM,
    }
}

fn count(ticket: u64) -> KeeperTask {
    let query = Query::Range(Range { keys: all(), count_only: true, ..Range::default() });
    KeeperTask::Read { ticket: Ticket(ticket), query, term: TERM, needs: LogIndex(0) }
}

/// A keeper of many keys, the newest of them at index [`KEYS`].
fn keeper() -> Keeper {
    let mut keeper = Keeper::new(vec![]).of_member(NodeId(1));
    for n in 1..=KEYS {
        keeper.handle(apply(n, encode_kv(&put(n)), None), &mut KeeperEffects::default());
    }
    keeper
}

fn counted(outcome: &Outcome) -> Option<i64> {
    match outcome {
        Outcome::Done(Reply { body: ReplyBody::Kv(response), .. }) => match &response.answer {
            Answer::Range(range) => Some(range.count),
            Answer::DeleteRange { deleted, .. } => Some(*deleted),
            _ => None,
        },
        _ => None,
    }
}

#[test]
fn a_delete_in_slices_is_seen_whole_or_not_at_all() {
    for slice in [1, 100, 1000] {
        let (mut keeper, mut effects) = (keeper(), KeeperEffects::default());
        let pin = KeeperTask::Pin { ticket: Ticket(4), term: TERM, needs: LogIndex(0) };
        let tasks = [count(1), apply(KEYS + 1, encode_kv(&delete_all()), Some(2)), count(3), pin];
        tasks.into_iter().for_each(|task| keeper.take_in(task, &mut effects));
        let mut middles = 0;
        while keeper.step(&mut slice.clone(), &mut effects) {
            if !keeper.is_in_the_middle() || effects.reply.len() != 1 {
                continue; // a read before it or after it is in progress
            }
            middles += 1;
            assert_eq!(keeper.applied(), LogIndex(KEYS), "state and applied index move together");
            let status = KeeperTask::Status { ticket: Ticket(100 + middles), status: Box::default() };
            let mut told = KeeperEffects::default();
            keeper.take_in(status, &mut told);
            let [(_, Outcome::Done(Reply { body: ReplyBody::Status(status), .. }))] = &told.reply[..] else {
                panic!("a status is answered at once: {told:?}")
            };
            assert_eq!((status.keys, status.revision), (KEYS, Revision(1 + KEYS as i64)), "as before it");
        }
        assert!(middles >= KEYS / slice.unsigned_abs(), "{middles} slices of {slice}");
        let counts: Vec<_> =
            effects.reply.iter().map(|(ticket, outcome)| (ticket.0, counted(outcome))).collect();
        let whole = Some(KEYS as i64);
        assert_eq!(counts, [(1, whole), (2, whole), (3, Some(0)), (4, None)]);
        let Outcome::Done(Reply { body: ReplyBody::Pinned(pin), .. }) = &effects.reply[3].1 else {
            panic!("a pin")
        };
        assert_eq!((pin.applied(), pin.store().stats().keys), (LogIndex(KEYS + 1), 0));
    }
}

#[test]
fn what_a_slice_takes_is_told_and_is_about_what_it_may() {
    let mut keeper = keeper();
    keeper.take_in(apply(KEYS + 1, encode_kv(&delete_all()), None), &mut KeeperEffects::default());
    let mut total = 0;
    loop {
        let mut effects = KeeperEffects::default();
        let more = keeper.step(&mut 100, &mut effects);
        assert!(effects.units <= 100 + 16, "{} units in a slice of 100", effects.units);
        total += effects.units;
        if !more {
            break;
        }
    }
    assert!((3 * KEYS..4 * KEYS).contains(&total), "{total} units for {KEYS} keys");
}

/// Checks the cost of a command and returns the bytes to propose.
fn weigh(keeper: &mut Keeper, command: Command) -> Result<Vec<u8>, Outcome> {
    let bytes = encode_kv(&command);
    let Request::Weigh(command, bytes) = request(command, bytes) else { panic!("it may take long") };
    let mut effects = KeeperEffects::default();
    keeper.take_in(KeeperTask::Weigh { ticket: Ticket(7), command, bytes }, &mut effects);
    assert_eq!(effects.reply.len() + effects.admitted.len(), 1);
    match effects.admitted.pop() {
        Some(Admitted { command, .. }) => Ok(command),
        None => Err(effects.reply.remove(0).1),
    }
}

#[test]
fn what_costs_too_much_is_refused_at_once_even_while_something_is_under_way() {
    let limits = RequestLimits { work_max: 2 * KEYS, ..RequestLimits::default() };
    let mut keeper = keeper().with_limits(limits);
    assert_eq!(weigh(&mut keeper, delete_all()), Err(Outcome::Refused(Refusal::TooMuchWork)));
    let few = KeyRange { start: b"k0001".to_vec(), end: b"k0009".to_vec() };
    let few = Command::DeleteRange(DeleteRange { keys: few, prev_kv: false });
    assert_eq!(
        weigh(&mut keeper, few.clone()),
        Ok(encode_kv(&few)),
        "no budget before the level that brings it"
    );

    keeper.take_in(apply(KEYS + 1, encode_kv(&delete_all()), None), &mut KeeperEffects::default());
    assert!(keeper.step(&mut 10, &mut KeeperEffects::default()) && keeper.is_in_the_middle());
    assert_eq!(weigh(&mut keeper, delete_all()), Err(Outcome::Refused(Refusal::TooMuchWork)));

    let mut effects = KeeperEffects::default();
    let query = Query::Range(Range { keys: all(), ..Range::default() });
    let mut tight = self::keeper().with_limits(RequestLimits { work_max: KEYS, ..limits });
    tight.handle(KeeperTask::Read { ticket: Ticket(1), query, term: TERM, needs: LogIndex(0) }, &mut effects);
    assert_eq!(effects.reply, [(Ticket(1), Outcome::Refused(Refusal::TooMuchWork))]);
    assert_eq!(effects.refused_for_work, 1);
}

#[test]
fn an_entry_is_judged_by_its_own_budget_on_every_member() {
    let raise = |keeper: &mut Keeper| {
        let raise = apply(KEYS + 1, level::encode(level::WORK_BUDGETS), None);
        let mut effects = KeeperEffects::default();
        keeper.handle(raise, &mut effects);
        assert_eq!(effects.health.map(|health| health.level), Some(1));
    };
    let enough = RequestLimits { work_max: 3 * KEYS + 1, ..RequestLimits::default() };
    let mut leader = keeper().with_limits(enough);
    raise(&mut leader);
    let command = weigh(&mut leader, delete_all()).expect("just what it costs");
    assert_ne!(command, encode_kv(&delete_all()), "it says by how much it was let in");

    // One more key was added before it is applied; the members' own limits do not count.
    for work_max in [1, 3 * KEYS + 1, u64::MAX] {
        for late in [false, true] {
            let mut keeper = keeper().with_limits(RequestLimits { work_max, ..enough });
            raise(&mut keeper);
            let (mut effects, mut index) = (KeeperEffects::default(), KEYS + 2);
            if late {
                keeper.handle(apply(index, encode_kv(&put(KEYS + 1)), None), &mut effects);
                index += 1;
            }
            let before = keeper.digest();
            let revision = keeper.store().revision();
            keeper.handle(apply(index, command.clone(), Some(9)), &mut effects);
            assert_eq!(keeper.applied(), LogIndex(index));
            let (_, outcome) = effects.reply.pop().expect("its client is answered");
            if late {
                assert_eq!(outcome, Outcome::Refused(Refusal::TooMuchWork));
                assert_eq!((keeper.store().stats().keys, keeper.store().revision()), (KEYS + 1, revision));
                assert_ne!(keeper.digest(), before, "the index has moved, and nothing else");
            } else {
                assert_eq!(counted(&outcome), Some(KEYS as i64));
            }
        }
    }
}

#[test]
fn tables_have_the_bytes_of_the_version_before_until_the_cluster_has_a_level() {
    let mut keeper = Keeper::new(vec![]);
    let version = |keeper: &Keeper| keeper.pin().chunks().next().expect("small tables")[4];
    assert_eq!(version(&keeper), 2);
    for (index, level, expected) in [(1, 1, 3), (2, level::SESSIONS - 1, 3), (3, level::SESSIONS, 4)] {
        keeper.handle(apply(index, level::encode(level), None), &mut KeeperEffects::default());
        assert_eq!(version(&keeper), expected, "level {level}");
    }
    let thawed = Keeper::thaw(keeper.pin().chunks()).expect("what was written");
    assert_eq!(thawed.health().level, level::SESSIONS);
    assert_eq!(thawed.digest(), keeper.digest());
    // A level of a later version is reported by its number.
    let mut bytes: Vec<u8> = keeper.pin().chunks().flatten().collect();
    let length = u32::from_le_bytes([bytes[5], bytes[6], bytes[7], bytes[8]]) as usize;
    bytes[9 + length - 2] = 9;
    let error = Keeper::thaw([bytes]).expect_err("nobody knows it").to_string();
    assert!(error.contains("feature level 9") && error.contains("run the version"), "{error}");
}

#[test]
#[should_panic(
    expected = "entry 1.1 holds no command that this version knows: if other members run a newer version, run that one"
)]
fn a_level_that_this_version_does_not_know_stops_a_member_at_its_entry() {
    let raise = apply(1, level::encode(level::KNOWN + 1), None);
    Keeper::new(vec![]).handle(raise, &mut KeeperEffects::default());
}

#[test]
fn a_write_whose_answer_is_too_large_is_done_and_its_client_is_told_what_is_known() {
    let limits = RequestLimits { answer_bytes_max: 100, ..RequestLimits::default() };
    let mut keeper = keeper().with_limits(limits);
    let delete = Command::DeleteRange(DeleteRange { keys: all(), prev_kv: true });
    let mut effects = KeeperEffects::default();
    keeper.handle(apply(KEYS + 1, encode_kv(&delete), Some(3)), &mut effects);
    assert_eq!(effects.reply, [(Ticket(3), Outcome::Unknown(Doubt::AnswerTooLarge))]);
    assert_eq!((keeper.applied(), keeper.store().stats().keys), (LogIndex(KEYS + 1), 0));
}

/// A txn that keeps the values of so many keys.
fn keep(keys: u64) -> Command {
    let keep = |n| {
        Operation::Put(Put { key: format!("k{n:04}").into_bytes(), ignore_value: true, ..Put::default() })
    };
    Command::Txn(Txn { success: (1..=keys).map(keep).collect(), ..Txn::default() })
}

#[test]
fn a_command_that_keeps_more_than_may_be_written_at_once_is_refused() {
    let (mut keeper, mut effects) = (Keeper::new(vec![]).of_member(NodeId(1)), KeeperEffects::default());
    for n in 1..=65 {
        let put = Command::Put(Put {
            key: format!("k{n:04}").into_bytes(),
            value: vec![7; 1 << 20],
            ..Put::default()
        });
        keeper.handle(apply(n, encode_kv(&put), None), &mut effects);
    }
    assert_eq!(weigh(&mut keeper, keep(65)), Err(Outcome::Refused(Refusal::TooMuchWork)));
    assert_eq!(weigh(&mut keeper, keep(64)), Ok(encode_kv(&keep(64))));
}

#[test]
fn a_read_that_looks_at_more_than_it_was_said_to_cost_ends_there() {
    let limits = RequestLimits { work_max: KEYS / 2, ..RequestLimits::default() };
    let (mut keeper, mut effects) = (keeper().with_limits(limits), KeeperEffects::default());
    keeper.handle(apply(KEYS + 1, encode_kv(&delete_all()), None), &mut effects);
    keeper.handle(apply(KEYS + 2, encode_kv(&put(0)), None), &mut effects);
    let old = Range { keys: all(), revision: Revision(KEYS as i64 + 2), ..Range::default() };
    for range in [old.clone(), Range { count_only: true, ..old.clone() }, Range { limit: 1, ..old.clone() }] {
        let query = Query::Range(range);
        assert!(keeper.store().cost_of_query(&query) < 10, "there was nothing, and little is different now");
        let mut effects = KeeperEffects::default();
        keeper.handle(
            KeeperTask::Read { ticket: Ticket(1), query, term: TERM, needs: LogIndex(0) },
            &mut effects,
        );
        assert_eq!(effects.reply, [(Ticket(1), Outcome::Refused(Refusal::TooMuchWork))]);
    }

    // A command that writes has its effect on every member, and only its client's answer is missing.
    let write = Command::Txn(Txn {
        success: vec![Operation::Range(old.clone()), Operation::Range(old), put_op("new")],
        ..Txn::default()
    });
    let mut effects = KeeperEffects::default();
    keeper.take_in(apply(KEYS + 3, encode_kv(&write), Some(2)), &mut effects);
    while keeper.step(&mut 100, &mut effects) {}
    assert_eq!(effects.reply, [(Ticket(2), Outcome::Unknown(Doubt::AnswerTooLarge))]);
    assert!(effects.units < KEYS, "{} units: the second range was not looked at", effects.units);
    assert_eq!(keeper.store().stats().keys, 2);
}

fn put_op(key: &str) -> Operation {
    Operation::Put(Put { key: key.as_bytes().to_vec(), ..Put::default() })
}

#[test]
fn a_corrupt_member_does_not_say_that_what_it_refused_has_had_no_effect() {
    let mut keeper = keeper();
    let mut effects = KeeperEffects::default();
    keeper.handle(apply(KEYS + 1, level::encode(level::WORK_BUDGETS), None), &mut effects);
    let command = weigh(
        &mut keeper.clone().with_limits(RequestLimits { work_max: 3 * KEYS + 1, ..RequestLimits::default() }),
        delete_all(),
    );
    let command = command.expect("just what it costs");
    keeper.handle(apply(KEYS + 2, encode_kv(&put(KEYS + 1)), None), &mut effects);
    let alarm = AlarmChange::Raise(Alarm::corrupt(NodeId(1))).encode();
    keeper.handle(apply(KEYS + 3, alarm, None), &mut effects);
    let mut effects = KeeperEffects::default();
    keeper.handle(apply(KEYS + 4, command, Some(9)), &mut effects);
    assert_eq!(effects.reply, [(Ticket(9), Outcome::Unknown(Doubt::LeaderChanged))]);
}
