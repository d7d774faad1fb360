//! Goal: a store raised to a later revision reads as before, has forgotten its history, and works like any other, also
//! after a dump and load. Method: random commands, a raise in the middle, and the naive store for comparison of the
//! reads.

use crate::common::naive::Naive;
use crate::common::{Step, between, get, is_askable, put, rebase, step};
use kattu_kv::api::{Answer, Command, Error, Query, Range, RangeResult, Revision};
use kattu_kv::digest::HashKv;
use kattu_kv::dump::load;
use kattu_kv::store::Store;
use proptest::collection::vec;
use proptest::prelude::*;

const BY: u64 = 1000;

fn bytes(store: &Store) -> Vec<u8> {
    store.pin().dump().flatten().collect()
}

fn all_at(revision: Revision) -> Query {
    Query::Range(Range { revision, ..get(between("", "\0")) })
}

fn ranged(answer: Answer) -> RangeResult {
    let Answer::Range(range) = answer else { panic!("no range answer: {answer:?}") };
    range
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_raised_store_reads_as_before_and_goes_on(
        before in vec(step(), 1..60),
        after in vec(step(), 1..30),
    ) {
        let (mut store, mut naive) = (Store::new(), Naive::new());
        for mut step in before {
            rebase(&mut step, naive.revision());
            if let Step::Apply(command) = &step {
                prop_assert_eq!(store.apply(command), naive.apply(command));
            }
        }
        let old = store.revision();
        let read = |store: &Store, revision| store.query(&all_at(revision)).map(|read| ranged(read.answer).kvs);
        let reads = read(&store, Revision::NONE).expect("the present can be read");
        store.raise_revision(BY);
        let now = Revision(old.0 + BY as i64);
        prop_assert_eq!((store.revision(), store.compact_revision()), (now, now));
        prop_assert_eq!(read(&store, Revision::NONE), Ok(reads.clone()));
        prop_assert_eq!(read(&store, now), Ok(reads.clone()), "the compacted revision");
        for gone in [Revision(1), old, Revision(now.0 - 1)] {
            prop_assert_eq!(store.query(&all_at(gone)), Err(Error::Compacted));
        }
        prop_assert_eq!(store.query(&all_at(now.next())), Err(Error::FutureRevision));
        prop_assert_eq!(store.stats().bytes, store.stats().bytes_in_use, "no history is left");
        prop_assert_eq!(reads.len() as u64, store.stats().keys);

        let mut loaded = load(store.pin().dump()).expect("a dump");
        prop_assert_eq!(bytes(&loaded), bytes(&store));
        for mut step in after {
            rebase(&mut step, store.revision());
            if !is_askable(&step) { continue }
            match &step {
                Step::Apply(command) => prop_assert_eq!(loaded.apply(command), store.apply(command)),
                Step::Query(query) => prop_assert_eq!(loaded.query(query), store.query(query)),
                Step::Tidy(changes) => drop(store.tidy(*changes)),
            }
            prop_assert_eq!(loaded.running_digest(), store.running_digest());
        }
        prop_assert_eq!(bytes(&loaded), bytes(&store));
        let hash = |store: &Store| {
            let mut hash = HashKv::new(store.pin(), Revision::NONE).expect("the present");
            while !hash.step(3) {}
            hash.hash()
        };
        prop_assert_eq!(hash(&loaded), hash(&store));
    }
}

#[test]
fn the_next_write_comes_right_after_and_can_be_compacted() {
    let mut store = Store::new();
    for value in ["1", "2"] {
        store.apply(&Command::Put(put("a", value))).expect("a put");
    }
    store.raise_revision(10);
    assert_eq!(store.apply(&Command::Put(put("a", "3"))).expect("a put").revision, Revision(14));
    assert_eq!(store.apply(&Command::Compact(Revision(13))), Err(Error::Compacted));
    store.apply(&Command::Compact(Revision(14))).expect("a new revision");
    while store.tidy(10) {}
    assert_eq!(store.stats().bytes, store.stats().bytes_in_use);

    let mut empty = Store::new();
    empty.raise_revision(0);
    assert_eq!((empty.revision(), empty.compact_revision()), (Revision(1), Revision(1)));
    assert_eq!(load(empty.pin().dump()).expect("a dump").revision(), Revision(1));
    empty.raise_revision(BY);
    assert_eq!(load(empty.pin().dump()).expect("a dump").revision(), Revision(1001));
    assert_eq!(empty.apply(&Command::Put(put("a", ""))).expect("a put").revision, Revision(1002));
}
