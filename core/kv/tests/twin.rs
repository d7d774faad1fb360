//! Goal: the store answers every sequence of requests as its naive twin does, whatever is compacted and forgotten in
//! between. Method: random sequences with every option, on few keys so that requests meet, on top of many keys so that
//! the index has some height; after each sequence every readable revision is compared in full.

use crate::common::naive::Naive;
use crate::common::{Step, between, get, is_askable, put, rebase, step, success};
use kattu_kv::api::{Answer, Command, Error, Operation, Query, Range, Response, Revision};
use kattu_kv::store::{KEY_OVERHEAD_BYTES, Pace, Store, VERSION_OVERHEAD_BYTES};
use kattu_kv::work::Work;
use proptest::collection::vec;
use proptest::prelude::*;

/// Both with the same keys, as many as several leaves of the index hold.
fn twins(preloaded: u32, pace: Pace) -> (Store, Naive) {
    let (mut store, mut naive) = (Store::with_pace(pace), Naive::new());
    for n in 0..preloaded {
        // Neither ascending nor descending: 7 and 300 have no common divisor.
        let command = Command::Put(put(&format!("many/{:03}", n * 7 % 300), "v"));
        assert_eq!(store.apply(&command), naive.apply(&command));
    }
    (store, naive)
}

fn all(revision: Revision) -> Query {
    Query::Range(Range { revision, ..get(between("", "\0")) })
}

fn take(store: &mut Store, naive: &mut Naive, step: &Step) -> Result<(), TestCaseError> {
    match step {
        Step::Apply(command) => prop_assert_eq!(store.apply(command), naive.apply(command), "{:?}", command),
        Step::Query(query) => prop_assert_eq!(store.query(query), naive.query(query), "{:?}", query),
        Step::Tidy(changes) => drop(store.tidy(*changes)),
    }
    Ok(())
}

/// Calls `go_on` with the same allowance until it is done.
fn until_done<T>(slice: i64, mut go_on: impl FnMut(&mut i64) -> Option<T>) -> T {
    loop {
        if let Some(done) = go_on(&mut slice.clone()) {
            return done;
        }
    }
}

fn in_slices(store: &mut Store, command: &Command, wants: bool, slice: i64) -> Result<Response, Error> {
    if let Some(done) = store.apply_small(command) {
        return done;
    }
    let mut work = Work::on_command(command.clone(), wants.then_some(usize::MAX));
    until_done(slice, |allowance| store.go_on(&mut work, allowance))
}

fn compare_all(store: &Store, naive: &Naive) -> Result<(), TestCaseError> {
    prop_assert_eq!(store.revision(), naive.revision());
    prop_assert_eq!(store.compact_revision(), naive.compacted);
    for revision in (naive.compacted.0.max(1) - 1..=naive.revision().0 + 1).map(Revision) {
        prop_assert_eq!(store.query(&all(revision)), naive.query(&all(revision)), "as of {}", revision);
    }
    let stats = store.stats();
    let in_use = naive
        .pairs()
        .values()
        .map(|kv| (kv.key.len() + kv.value.len()) as u64 + KEY_OVERHEAD_BYTES + VERSION_OVERHEAD_BYTES);
    prop_assert_eq!(stats.keys, naive.pairs().len() as u64);
    prop_assert_eq!(stats.bytes_in_use, in_use.sum::<u64>());
    prop_assert!(stats.bytes >= stats.bytes_in_use);
    Ok(())
}

/// Compacts twice (the second time forgets deletes at the revision of the first) and forgets everything that may be.
fn forget_all(store: &mut Store, naive: &mut Naive) {
    for value in ["one", "two"] {
        let command = Command::Put(put("last", value));
        assert_eq!(store.apply(&command), naive.apply(&command));
        let command = Command::Compact(store.revision());
        assert_eq!(store.apply(&command), naive.apply(&command));
        while store.tidy(3) {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn the_store_answers_as_its_naive_twin(
        preloaded in prop_oneof![3 => Just(0u32), 1 => 0..250u32],
        versions_per_change in 0..4usize,
        versions_per_compaction in 0..4usize,
        steps in vec(step(), 1..60),
    ) {
        let pace = Pace { versions_per_change, versions_per_compaction };
        let (mut store, mut naive) = twins(preloaded, pace);
        for mut step in steps {
            rebase(&mut step, naive.revision());
            if is_askable(&step) {
                take(&mut store, &mut naive, &step)?;
            }
        }
        compare_all(&store, &naive)?;

        forget_all(&mut store, &mut naive);
        compare_all(&store, &naive)?;
        prop_assert_eq!(store.stats().bytes, store.stats().bytes_in_use, "all history is forgotten");
    }

    #[test]
    fn a_store_that_works_in_slices_answers_as_its_naive_twin(
        preloaded in prop_oneof![1 => Just(0u32), 1 => 0..250u32],
        slice in prop_oneof![2 => Just(1i64), 2 => 2..10i64, 1 => 10..400i64],
        steps in vec(step(), 1..60),
    ) {
        let (mut store, mut naive) = twins(preloaded, Pace::default());
        let mut whole = store.clone();
        for mut step in steps {
            rebase(&mut step, naive.revision());
            if !is_askable(&step) {
                continue;
            }
            match &step {
                Step::Apply(command) => {
                    let sliced = in_slices(&mut store, command, true, slice);
                    let expected = naive.apply(command);
                    prop_assert_eq!(&sliced, &expected, "{:?}", command);
                    // A waiting client changes nothing but the answer.
                    let unwatched = in_slices(&mut whole, command, false, i64::MAX);
                    prop_assert_eq!(unwatched.map(|r| r.revision), expected.map(|r| r.revision), "{:?}", command);
                    prop_assert_eq!(store.running_digest(), whole.running_digest());
                    prop_assert_eq!(store.stats().keys, whole.stats().keys);
                }
                Step::Query(query) => {
                    let mut work = Work::on_query(query, usize::MAX);
                    let read = until_done(slice, |allowance| store.read_on(&mut work, allowance));
                    prop_assert_eq!(read, naive.query(query), "{:?}", query);
                }
                Step::Tidy(changes) => drop(store.tidy(*changes)),
            }
        }
        compare_all(&store, &naive)?;
        prop_assert_eq!(store.digest(), whole.digest());
    }

    #[test]
    fn two_members_agree_however_often_each_tidies_up_and_whatever_it_is_asked(steps in vec(step(), 1..60)) {
        let slow = Pace { versions_per_change: 0, versions_per_compaction: 1 };
        let (mut here, mut there) = (Store::new(), Store::with_pace(slow));
        for mut step in steps {
            rebase(&mut step, here.revision());
            if !is_askable(&step) { continue }
            match &step {
                Step::Apply(command) => {
                    let mut bytes = Vec::new();
                    command.encode(&mut bytes);
                    let decoded = Command::decode(&bytes).expect("what was encoded");
                    prop_assert_eq!(here.apply(command), there.apply(&decoded));
                    prop_assert_eq!(here.digest(), there.digest());
                    prop_assert_eq!(here.running_digest(), there.running_digest());
                }
                Step::Query(query) => drop(there.query(query)),
                Step::Tidy(changes) => drop(there.tidy(changes * 100)),
            }
        }
    }

    #[test]
    fn a_clone_stays_as_it_was(before in vec(step(), 1..30), after in vec(step(), 1..30)) {
        let (mut store, mut naive) = twins(100, Pace::default());
        let mut clone = None;
        for (i, mut step) in before.iter().chain(&after).cloned().enumerate() {
            if i == before.len() {
                clone = Some((store.clone(), store.digest()));
            }
            rebase(&mut step, naive.revision());
            if is_askable(&step) {
                take(&mut store, &mut naive, &step)?;
            }
        }
        let (clone, digest) = clone.expect("taken between the two");
        prop_assert_eq!(clone.digest(), digest);
    }
}

#[test]
fn stores_that_differ_in_one_byte_have_different_digests() {
    let store_with = |value| {
        let mut store = Store::new();
        store.apply(&Command::Put(put("a", value))).unwrap();
        store.digest()
    };
    assert_eq!(store_with("1"), store_with("1"));
    assert_ne!(store_with("1"), store_with("2"));
    assert_ne!(store_with("1"), Store::new().digest());
}

#[test]
fn compaction_forgets_in_small_steps_and_forgets_all() {
    let mut store = Store::new();
    for n in 0..20_000 {
        store.apply(&Command::Put(put(&format!("k{}", n % 100), "v"))).unwrap();
    }
    let before = store.stats();
    store.apply(&Command::Compact(store.revision())).unwrap();
    assert!(store.stats().bytes > before.bytes / 2, "one command must not walk all of a long history");
    while store.tidy(1000) {}
    assert_eq!(store.stats().bytes, store.stats().bytes_in_use);
    assert_eq!(store.stats().keys, 100);
}

#[test]
fn later_commands_finish_what_compaction_left() {
    let mut store = Store::new();
    for n in 0..20_000 {
        store.apply(&Command::Put(put(&format!("k{}", n % 100), "v"))).unwrap();
    }
    store.apply(&Command::Compact(store.revision())).unwrap();
    let mut commands = 0;
    while store.stats().bytes > store.stats().bytes_in_use {
        // Changes nothing, so only the tidying happens.
        let Answer::Txn { .. } = store.apply(&Command::Txn(Default::default())).unwrap().answer else {
            panic!()
        };
        commands += 1;
        assert!(commands < 20_000, "forgetting does not catch up");
    }
}

#[test]
fn forgetting_keeps_up_with_transactions_of_many_changes() {
    const ROUND: usize = 100;
    let mut store = Store::new();
    let mut round = || {
        for txn in 0..ROUND {
            let put = |n: usize| Operation::Put(put(&format!("k{}", (txn * 128 + n) % 1000), "v"));
            store.apply(&Command::Txn(success((0..128).map(put).collect()))).unwrap();
        }
        let held = store.stats().bytes - store.stats().bytes_in_use;
        store.apply(&Command::Compact(store.revision())).unwrap();
        held
    };
    let first = round();
    for n in 2..20 {
        let held = round();
        assert!(
            held < 2 * first,
            "{:.1} rounds of history are held after round {n}",
            held as f64 / first as f64
        );
    }
}
