//! Goal: a loaded store cannot be told from the store that was dumped, whatever is read, compacted and written
//! afterwards; any other bytes are refused or are the dump of another store. Method: random sequences of commands on
//! stores that forget at different paces; one of them is dumped and loaded in the middle.

use crate::common::naive::Naive;
use crate::common::{Step, between, delete, get, is_askable, one, put, rebase, step, success};
use kattu_kv::api::{Answer, Command, Operation, Query, Range, Revision};
use kattu_kv::dump::{CHUNK_BYTES_MAX, Flaw, Loader, Malformed, load};
use kattu_kv::store::{Pace, Store};
use proptest::collection::vec;
use proptest::prelude::*;

fn bytes(store: &Store) -> Vec<u8> {
    store.pin().dump().flatten().collect()
}

fn reloaded(store: &Store) -> Store {
    load(store.pin().dump()).expect("a dump")
}

/// Loads pieces of this size.
fn load_in_pieces(bytes: &[u8], size: usize) -> Result<Store, Malformed> {
    load(bytes.chunks(size))
}

fn slow() -> Pace {
    Pace { versions_per_change: 0, versions_per_compaction: 0 }
}

fn apply(store: &mut Store, commands: impl IntoIterator<Item = Command>) {
    commands.into_iter().for_each(|command| drop(store.apply(&command)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn what_is_loaded_cannot_be_told_from_what_was_dumped(
        preloaded in prop_oneof![3 => Just(0u32), 1 => 0..300u32],
        before in vec(step(), 1..60),
        after in vec(step(), 1..30),
        piece in prop_oneof![Just(1usize), 1..50usize, Just(CHUNK_BYTES_MAX)],
    ) {
        let (mut store, mut idle, mut naive) = (Store::new(), Store::with_pace(slow()), Naive::new());
        for n in 0..preloaded {
            let command = Command::Put(put(&format!("many/{:03}", n * 7 % 300), "v"));
            let _ = (store.apply(&command), idle.apply(&command), naive.apply(&command));
        }
        let mut loaded = None;
        for (i, mut step) in before.iter().chain(&after).cloned().enumerate() {
            if i == before.len() {
                let dumped = bytes(&store);
                prop_assert_eq!(&dumped, &bytes(&idle), "pace is no part of it");
                let copy = load_in_pieces(&dumped, piece).expect("a dump");
                prop_assert_eq!(&bytes(&copy), &dumped);
                prop_assert_eq!(copy.digest(), store.digest());
                prop_assert_eq!(copy.running_digest(), store.running_digest());
                prop_assert_eq!((copy.stats().keys, copy.stats().bytes_in_use), (store.stats().keys, store.stats().bytes_in_use));
                while idle.tidy(100) {}
                prop_assert_eq!(copy.stats(), idle.stats(), "as large as one that has forgotten all it may");
                loaded = Some(copy);
            }
            rebase(&mut step, naive.revision());
            if !is_askable(&step) { continue }
            match &step {
                Step::Apply(command) => {
                    let answer = naive.apply(command);
                    prop_assert_eq!(&store.apply(command), &answer);
                    prop_assert_eq!(&idle.apply(command), &answer);
                    if let Some(loaded) = &mut loaded {
                        prop_assert_eq!(&loaded.apply(command), &answer, "{:?}", command);
                    }
                }
                Step::Query(query) => if let Some(loaded) = &loaded {
                    prop_assert_eq!(loaded.query(query), naive.query(query), "{:?}", query);
                },
                Step::Tidy(changes) => drop(store.tidy(*changes)),
            }
        }
        let mut loaded = loaded.expect("loaded between the two");
        prop_assert_eq!(bytes(&loaded), bytes(&store));
        for revision in (naive.compacted.0.max(1) - 1..=naive.revision().0 + 1).map(Revision) {
            let all = Query::Range(Range { revision, ..get(between("", "\0")) });
            prop_assert_eq!(loaded.query(&all), naive.query(&all), "as of {}", revision);
        }
        // It forgets as much as a store that was never dumped.
        let end = Command::Compact(store.revision());
        let _ = (loaded.apply(&end), store.apply(&end));
        while loaded.tidy(7) || store.tidy(100) {}
        prop_assert_eq!(loaded.stats(), store.stats());
        prop_assert_eq!(bytes(&loaded), bytes(&store));
    }

    #[test]
    fn damaged_bytes_are_refused_or_are_the_dump_of_another_store(
        steps in vec(step(), 1..40),
        flips in vec((any::<prop::sample::Index>(), 0..8u8), 1..200),
        cut in any::<prop::sample::Index>(),
        piece in 1..40usize,
    ) {
        let mut store = Store::new();
        for mut step in steps {
            rebase(&mut step, store.revision());
            if let Step::Apply(command) = &step { let _ = store.apply(command); }
        }
        let good = bytes(&store);
        for (place, bit) in flips {
            let mut bad = good.clone();
            *place.get_mut(&mut bad) ^= 1 << bit;
            let whole = load([&bad]).map(|store| bytes(&store));
            if let Ok(again) = &whole {
                prop_assert_eq!(again, &bad, "what can be read has one form");
            }
            prop_assert_eq!(load_in_pieces(&bad, piece).map(|store| bytes(&store)), whole, "pieces do not matter");
        }
        let cut = cut.index(good.len());
        let flaw = load([&good[..cut]]).expect_err("cut short").flaw;
        prop_assert_eq!(flaw, Flaw::Truncated);
        let longer = [&good[..], &[0]].concat();
        prop_assert_eq!(load([&longer]).expect_err("too long").flaw, Flaw::TrailingBytes);
    }

    #[test]
    fn any_bytes_behind_a_header_are_a_store_or_a_flaw(noise in vec(any::<u8>(), 0..200), revision in 1..9u8, compacted in -1..9i8) {
        let mut bytes = b"KtSt\x01".to_vec();
        bytes.extend([revision, (compacted << 1 ^ compacted >> 7) as u8, 0, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend(noise);
        if let Ok(store) = load([&bytes]) {
            prop_assert_eq!(self::bytes(&store), bytes);
        }
    }
}

/// Each store of a table of situations, by name.
fn situations() -> Vec<(&'static str, Store)> {
    let with = |commands: Vec<Command>| {
        let mut store = Store::new();
        apply(&mut store, commands);
        store
    };
    let txn = |operations| Command::Txn(success(operations));
    let (put_of, delete_of) =
        (|key, value| Command::Put(put(key, value)), |key| Command::DeleteRange(delete(one(key))));
    vec![
        ("empty", Store::new()),
        ("one key", with(vec![put_of("a", "1")])),
        ("an empty value is no delete", with(vec![put_of("a", ""), put_of("b", "1"), delete_of("b")])),
        ("compacted at 0", with(vec![Command::Compact(Revision(0))])),
        ("compacted at 1", with(vec![put_of("a", "1"), Command::Compact(Revision(1))])),
        (
            "a delete at the compacted revision",
            with(vec![put_of("a", "1"), delete_of("a"), Command::Compact(Revision(3))]),
        ),
        (
            "a delete at the compacted revision, life after it",
            with(vec![put_of("a", "1"), delete_of("a"), put_of("a", "2"), Command::Compact(Revision(3))]),
        ),
        (
            "several changes at the compacted revision",
            with(vec![
                put_of("b", "1"),
                txn(vec![
                    Operation::Put(put("c", "1")),
                    Operation::DeleteRange(delete(one("b"))),
                    Operation::Put(put("a", "1")),
                ]),
                Command::Compact(Revision(3)),
            ]),
        ),
        (
            "two changes of one key in one revision",
            with(vec![
                put_of("b", "1"),
                txn(vec![
                    Operation::DeleteRange(delete(one("b"))),
                    Operation::Put(put("a", "1")),
                    Operation::Txn(success(vec![Operation::Put(put("b", "2"))])),
                ]),
            ]),
        ),
    ]
}

/// A version that was replaced in its own revision stays while that is the compacted one: a watch may start there.
#[test]
fn a_loaded_store_has_nothing_to_forget_beside_what_must_stay() {
    let mut store = Store::new();
    let in_one = vec![Operation::Txn(success(vec![
        Operation::Put(put("d", "")),
        Operation::DeleteRange(delete(between("a", "\0"))),
    ]))];
    apply(&mut store, [Command::Txn(success(in_one)), Command::Compact(Revision(2))]);
    while store.tidy(100) {}
    assert!(!store.stats().forgets);
    assert_eq!(reloaded(&store).stats(), store.stats());
}

#[test]
fn every_situation_survives_its_bytes() {
    for (name, store) in situations() {
        let loaded = reloaded(&store);
        assert_eq!(bytes(&loaded), bytes(&store), "{name}");
        assert_eq!(loaded.digest(), store.digest(), "{name}");
        assert_eq!(loaded.compact_revision(), store.compact_revision(), "{name}");
        for length in 0..bytes(&store).len() {
            let flaw = load([&bytes(&store)[..length]]).expect_err(name);
            assert_eq!(flaw.flaw, Flaw::Truncated, "{name}, {length} bytes");
        }
    }
}

#[test]
fn the_order_of_changes_in_a_revision_is_part_of_the_bytes() {
    let ordered = |keys: &[&str]| {
        let mut store = Store::new();
        let puts = keys.iter().map(|key| Operation::Put(put(key, "v"))).collect();
        apply(&mut store, [Command::Txn(success(puts))]);
        store
    };
    let (up, down, mixed) = (ordered(&["a", "b", "c"]), ordered(&["c", "b", "a"]), ordered(&["b", "c", "a"]));
    assert_eq!(up.digest(), down.digest(), "every read answers the same");
    assert_ne!(bytes(&up), bytes(&down));
    assert_ne!(bytes(&mixed), bytes(&down));
    for store in [up, down, mixed] {
        assert_eq!(bytes(&reloaded(&store)), bytes(&store));
    }
}

#[test]
fn a_dump_stays_as_it_was_when_it_was_begun_and_keeps_to_its_chunks() {
    let mut store = Store::new();
    let large = "L".repeat(CHUNK_BYTES_MAX * 5 / 2);
    apply(&mut store, (0..5000).map(|n| Command::Put(put(&format!("{n:05}"), &"v".repeat(1000)))));
    apply(&mut store, [Command::Put(put("02500/large", &large))]);
    let expected = bytes(&store);
    let mut dump = store.pin().dump();
    let mut chunks: Vec<Vec<u8>> = Vec::new();
    for n in 0.. {
        let Some(chunk) = dump.next() else { break };
        chunks.push(chunk);
        let key = |n: usize| format!("{:05}", n * 977 % 5000);
        apply(&mut store, (n * 1000..(n + 1) * 1000).map(|n| Command::Put(put(&key(n), "changed"))));
        let now = store.revision();
        apply(&mut store, [Command::DeleteRange(delete(one(&key(n * 31)))), Command::Compact(now)]);
        store.tidy(1000);
    }
    assert_eq!(chunks.concat(), expected);
    let lengths: Vec<usize> = chunks.iter().map(Vec::len).collect();
    assert!(lengths.iter().all(|&length| (1..=CHUNK_BYTES_MAX).contains(&length)), "{lengths:?}");
    let full = lengths.iter().filter(|&&length| length == CHUNK_BYTES_MAX).count();
    assert_eq!(full, 2, "only the large value is split: {lengths:?}");
    let small = lengths.iter().filter(|&&length| length < CHUNK_BYTES_MAX - 1100).count();
    assert!(
        small <= 3,
        "chunks are filled but before and after the large value, and at the end: {lengths:?}"
    );
}

#[test]
fn what_a_dump_still_holds_at_its_end_is_freed_in_steps() {
    let mut store = Store::new();
    apply(&mut store, (0..100_000).map(|n| Command::Put(put(&format!("{:03}", n % 1000), "v"))));
    let mut early = store.pin().dump();
    let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| early.release()));
    assert!(refused.is_err(), "its chunks need what would be freed");
    let mut dump = store.pin().dump();
    assert!(0 < dump.by_ref().count());
    let steps = core::iter::from_fn(|| dump.release().then_some(())).count();
    assert!((5..=8).contains(&steps), "{steps} steps with more behind them: 16,384 versions each");
    assert!(!dump.release(), "and it stays so");
    let mut small = Store::new();
    apply(&mut small, (0..100).map(|n| Command::Put(put(&format!("{n}"), "v"))));
    let mut dump = small.pin().dump();
    assert!(0 < dump.by_ref().count() && !dump.release(), "little is one step");
}

#[test]
fn a_key_of_many_versions_survives_its_bytes() {
    let mut store = Store::with_pace(slow());
    apply(&mut store, (0..40_000).map(|n| Command::Put(put("one", &format!("{n}")))));
    apply(&mut store, [Command::Compact(Revision(20_000))]);
    let pin = store.pin();
    apply(&mut store, [Command::Put(put("one", "later")), Command::Compact(Revision(40_001))]);
    let loaded = reloaded(&pin);
    for revision in [20_000, 20_001, 31_234, 40_001].map(Revision) {
        let query = Query::Range(Range { revision, ..get(one("one")) });
        assert_eq!(loaded.query(&query), pin.query(&query), "as of {revision}");
    }
    assert_eq!(bytes(&loaded), bytes(&pin));
    assert_ne!(bytes(&loaded), bytes(&store));
}

/// Any change of these bytes is a new version of the format. [docs/formats/store.md]
#[test]
fn the_format_is_as_it_was() {
    let mut store = Store::new();
    apply(
        &mut store,
        [
            Command::Put(put("a", "1")),
            Command::Put(put("a", "2")),
            Command::Txn(success(vec![
                Operation::Put(put("c", "")),
                Operation::DeleteRange(delete(one("a"))),
            ])),
            Command::Put(put("b", "3")),
            Command::Compact(Revision(3)),
        ],
    );
    let digest = store.running_digest().to_le_bytes();
    let expected = [
        &b"KtSt\x01"[..],
        &[5, 6],
        &digest,
        &[2, 1, b'a'],
        &[1, 3, 1, 1, 1, b'2'],
        &[0, 1],
        &[1, 1, b'b'],
        &[1, 5, 0, 0, 1, b'3'],
        &[1, 1, b'c'],
        &[1, 4, 0, 0, 0],
        &[0],
        &[4, 1, 0],
        &[0],
    ]
    .concat();
    assert_eq!(bytes(&store), expected);
}

#[test]
fn a_lease_survives() {
    let bytes =
        [&b"KtSt\x01"[..], &[2, 1], &[0; 8], &[1, 1, b'a'], &[3, 2, 0, 0, 14, 1, b'1'], &[0], &[0]].concat();
    let store = load([&bytes]).expect("a dump");
    assert_eq!(self::bytes(&store), bytes);
    let Answer::Range(range) = store.query(&Query::Range(get(one("a")))).unwrap().answer else { panic!() };
    assert_eq!(range.kvs[0].lease, 7);
}

#[test]
fn each_flaw_is_named() {
    let header = |revision: u8, compacted: u8| [&b"KtSt\x01"[..], &[revision, compacted], &[0; 8]].concat();
    let last = [&[0xff; 8][..], &[0x7f]].concat();
    let last_signed = [&[0xfe], &[0xff; 8][..], &[0x01]].concat();
    let a_at = |revision: u8| vec![1, 1, b'a', 1, revision, 0, 0, 0];
    let cases: Vec<(&str, Vec<u8>, Flaw)> = vec![
        ("nothing at all", vec![], Flaw::Truncated),
        ("another file", b"PK\x03\x04".to_vec(), Flaw::NoDump),
        ("another version", b"KtSt\x02".to_vec(), Flaw::Version(2)),
        ("revision 0", header(0, 1), Flaw::Revision),
        ("compacted after the last revision", header(1, 4), Flaw::Revision),
        ("compacted before all", header(1, 3), Flaw::Revision),
        ("no revision after it", [&b"KtSt\x01"[..], &last, &last_signed, &[0; 9]].concat(), Flaw::Revision),
        ("a long number", [header(2, 1), vec![0x81, 0x00]].concat(), Flaw::Number),
        (
            "an endless key",
            [header(2, 1), vec![1, 0xff, 0xff, 0xff, 0xff, 0x7f]].concat(),
            Flaw::Length(0x7_ffff_ffff),
        ),
        ("a flag of no meaning", [header(2, 1), vec![1, 1, b'a', 4]].concat(), Flaw::Unknown(4)),
        ("a delete with a lease", [header(2, 1), vec![1, 1, b'a', 2]].concat(), Flaw::Unknown(2)),
        ("a change at revision 1", [header(2, 1), a_at(1)].concat(), Flaw::Revision),
        ("a change after the last revision", [header(2, 1), a_at(3)].concat(), Flaw::Revision),
        ("a key twice", [header(2, 1), a_at(2), a_at(2)].concat(), Flaw::KeyOrder),
        ("a key that begins with a delete", [header(2, 1), vec![1, 1, b'a', 0, 2]].concat(), Flaw::Beginning),
        ("a key that begins old", [header(3, 1), vec![1, 1, b'a', 1, 3, 1, 0, 0]].concat(), Flaw::Beginning),
        (
            "two deletes",
            [header(4, 1), vec![3, 1, b'a', 1, 2, 0, 0, 0], vec![0, 1, 0, 1]].concat(),
            Flaw::DoubleDelete,
        ),
        ("a delete that is forgotten", [header(3, 6), vec![1, 1, b'a', 0, 2]].concat(), Flaw::Forgotten),
        ("a revision without a change", [header(3, 1), a_at(3), vec![0]].concat(), Flaw::Gap(Revision(2))),
        (
            "a last revision without a change",
            [header(3, 1), a_at(2), vec![0]].concat(),
            Flaw::Gap(Revision(3)),
        ),
        ("an order of one change", [header(2, 1), a_at(2), vec![0, 2]].concat(), Flaw::Order(Revision(2))),
        ("an order of a revision that is not", [header(2, 1), a_at(2), vec![0, 3]].concat(), Flaw::Revision),
        (
            "the order they have anyway",
            [header(2, 1), a_at(2), vec![1, 1, b'b', 1, 2, 0, 0, 0], vec![0, 2, 0, 1]].concat(),
            Flaw::Order(Revision(2)),
        ),
        (
            "one change twice",
            [header(2, 1), a_at(2), vec![1, 1, b'b', 1, 2, 0, 0, 0], vec![0, 2, 1, 1]].concat(),
            Flaw::Order(Revision(2)),
        ),
        ("more after the end", [header(1, 1), vec![0, 0, 0]].concat(), Flaw::TrailingBytes),
    ];
    for (name, bytes, flaw) in cases {
        let malformed = load([&bytes]).expect_err(name);
        assert_eq!(malformed.flaw, flaw, "{name}: {malformed}");
        assert!(
            malformed.to_string().starts_with(&format!("malformed store at byte {}: ", malformed.offset))
        );
    }
    let mut unfinished = Loader::new();
    unfinished.push(b"KtSt").expect("a beginning");
    assert_eq!(unfinished.finish().expect_err("an end is missing").flaw, Flaw::Truncated);
}
