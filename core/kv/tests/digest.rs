//! Goal: digests that members may compare. They are equal if members agree, however much each has forgotten and however
//! its digest was computed; they differ if one byte differs.

use crate::common::{Step, delete, get, one, put, rebase, step, success};
use kattu_kv::api::{Answer, Command, Error, Operation, Put, Query, RangeResult, Revision};
use kattu_kv::digest::HashKv;
use kattu_kv::dump::load;
use kattu_kv::store::{Pace, Store};
use proptest::collection::vec;
use proptest::prelude::*;

fn hash_kv(store: &Store, revision: Revision, versions: usize) -> Result<(Revision, Revision, u64), Error> {
    let mut hash = HashKv::new(store.pin(), revision)?;
    while !hash.step(versions) {}
    Ok((hash.revision(), hash.compact_revision(), hash.hash()))
}

fn with(commands: impl IntoIterator<Item = Command>) -> Store {
    let mut store = Store::new();
    commands.into_iter().for_each(|command| drop(store.apply(&command)));
    store
}

proptest! {
    #[test]
    fn hash_kv_is_equal_at_equal_revisions_whatever_came_after_and_whatever_is_forgotten(
        steps in vec(step(), 1..60),
        more in vec(step(), 1..20),
        piece in 1..10usize,
    ) {
        let slow = Pace { versions_per_change: 0, versions_per_compaction: 0 };
        let (mut behind, mut ahead) = (Store::new(), Store::with_pace(slow));
        for mut step in steps {
            rebase(&mut step, behind.revision());
            if let Step::Apply(command) = &step {
                prop_assert_eq!(behind.apply(command), ahead.apply(command));
            }
        }
        for mut step in more {
            rebase(&mut step, ahead.revision());
            if let Step::Apply(command) = &step && !matches!(command, Command::Compact(_)) {
                let _ = ahead.apply(command);
            }
        }
        let loaded = load(behind.pin().dump()).expect("a dump");
        for revision in (behind.compact_revision().0.max(1)..=behind.revision().0).map(Revision) {
            let expected = hash_kv(&behind, revision, 1000);
            prop_assert_eq!(hash_kv(&ahead, revision, piece), expected, "as of {}", revision);
            prop_assert_eq!(hash_kv(&loaded, revision, piece), expected, "as of {}", revision);
        }
        prop_assert_eq!(hash_kv(&behind, Revision::NONE, 3), hash_kv(&behind, behind.revision(), 1000));
    }

    #[test]
    fn a_command_that_changes_nothing_leaves_the_running_digest(steps in vec(step(), 1..60)) {
        let mut store = Store::new();
        for mut step in steps {
            rebase(&mut step, store.revision());
            let Step::Apply(command) = &step else { continue };
            let before = (store.revision(), store.compact_revision(), store.running_digest());
            let _ = store.apply(command);
            let same_place = (store.revision(), store.compact_revision()) == (before.0, before.1);
            prop_assert_eq!(same_place, store.running_digest() == before.2, "{:?}", command);
        }
    }
}

#[test]
fn hash_kv_refuses_what_cannot_be_read() {
    let store =
        with([Command::Put(put("a", "1")), Command::Put(put("a", "2")), Command::Compact(Revision(3))]);
    assert_eq!(hash_kv(&store, Revision(2), 1), Err(Error::Compacted));
    assert_eq!(hash_kv(&store, Revision(4), 1), Err(Error::FutureRevision));
    assert!(hash_kv(&store, Revision(3), 1).is_ok());
}

#[test]
fn digests_differ_where_one_thing_differs() {
    let put_of = |key, value| Command::Put(put(key, value));
    let base = || vec![put_of("a", "1"), put_of("b", "2"), put_of("a", "3")];
    let plus = |command| [base(), vec![command]].concat();
    let delete_of = |key| Command::DeleteRange(delete(one(key)));
    let both = |first: &str, second: &str| {
        Command::Txn(success(vec![Operation::Put(put(first, "x")), Operation::Put(put(second, "x"))]))
    };
    let stores = [
        with(base()),
        with(vec![put_of("a", "1"), put_of("b", "2"), put_of("a", "4")]),
        with(vec![put_of("b", "2"), put_of("a", "1"), put_of("a", "3")]),
        with(vec![put_of("a", "0"), put_of("b", "2"), put_of("a", "3")]),
        with(plus(put_of("c", ""))),
        with(plus(put_of("b", ""))),
        with(plus(delete_of("b"))),
        with(plus(delete_of("a"))),
        with(plus(Command::Compact(Revision(2)))),
        with(plus(Command::Compact(Revision(3)))),
        with(plus(both("c", "d"))),
        with(plus(both("d", "c"))),
    ];
    for (i, one) in stores.iter().enumerate() {
        for (j, other) in stores.iter().enumerate().skip(i + 1) {
            assert_ne!(one.running_digest(), other.running_digest(), "{i} and {j}");
            if (i, j) != (10, 11) {
                assert_ne!(hash_kv(one, Revision(0), 9), hash_kv(other, Revision(0), 9), "{i} and {j}");
            }
        }
    }
}

#[test]
fn a_difference_shows_for_ever_and_a_loaded_state_agrees_again() {
    let put_of = |n: u32| Command::Put(Put { key: n.to_le_bytes().to_vec(), ..Put::default() });
    let (mut one, mut other) = (with([put_of(0)]), with([put_of(1)]));
    for n in 0..1000 {
        // From here on both apply the same commands.
        let command = put_of(n % 50);
        let _ = (one.apply(&command), other.apply(&command));
        assert_ne!(one.running_digest(), other.running_digest(), "after {n}");
    }
    let mut healed = load(one.pin().dump()).expect("a dump");
    let command = put_of(7);
    let _ = (one.apply(&command), healed.apply(&command));
    assert_eq!(one.running_digest(), healed.running_digest());
}

#[test]
fn a_wrong_generation_or_length_shows_at_the_next_change_of_its_key() {
    let puts = ["1", "22", "333"].map(|value| Command::Put(put("a", value)));
    let start = with(puts.into_iter().chain([Command::Compact(Revision(4))]));
    // All but the bytes of the value, which it does not find.
    let newest = |store: &Store| {
        let Ok(read) = store.query(&Query::Range(get(one("a")))) else { return None };
        let Answer::Range(RangeResult { kvs, .. }) = read.answer else { return None };
        let kv = kvs.first()?;
        Some((kv.create_revision, kv.mod_revision, kv.version, kv.lease, kv.value.len()))
    };
    let bytes: Vec<u8> = start.pin().dump().flatten().collect();
    let mut found = 0;
    for (at, flip) in (0..bytes.len()).flat_map(|at| [1, 2, 4].map(|flip| (at, flip))) {
        let mut damaged = bytes.clone();
        damaged[at] ^= flip;
        let Ok(wrong) = load([&damaged]) else { continue };
        let agrees = wrong.running_digest() == start.running_digest() && wrong.revision() == start.revision();
        if !agrees || newest(&wrong).is_none() || newest(&wrong) == newest(&start) {
            continue;
        }
        found += 1;
        for command in [Command::Put(put("a", "4")), Command::DeleteRange(delete(one("a")))] {
            let (mut right, mut wrong) = (start.clone(), wrong.clone());
            let _ = (right.apply(&command), wrong.apply(&command));
            assert_ne!(right.running_digest(), wrong.running_digest(), "byte {at}: {command:?}");
        }
    }
    assert!(2 < found, "{found} states are wrong so that only the next change shows it");
}

/// A history that is hashed from its middle on counts only what is hashed of it.
#[test]
fn a_step_of_hash_kv_takes_as_many_versions_as_it_was_allowed() {
    let mut store = Store::new();
    let puts = (0..20).map(|n| format!("k{n:02}")).chain(std::iter::repeat_n("a".to_string(), 40));
    puts.for_each(|key| drop(store.apply(&Command::Put(put(&key, "x"))).expect("a put")));
    store.apply(&Command::Compact(Revision(51))).expect("a compaction");
    let mut hash = HashKv::new(store.pin(), Revision(55)).expect("it can be read");
    // Of `a` the versions from 51 to 55, and one of each other key.
    assert!(!hash.step(25) && hash.step(1), "25 versions are all, and the next step sees that");
    let mut hash = HashKv::new(store.pin(), Revision(55)).expect("it can be read");
    assert!(hash.step(26));
    let mut hash = HashKv::new(store.pin(), Revision(55)).expect("it can be read");
    assert!(!hash.step(3) && hash.step(23), "two of `a` are left after three");
}
