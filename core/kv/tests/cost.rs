//! Goal: the cost of a request is known before it runs, and no slice is longer than allowed. Method: requests of every
//! kind on a store of many keys; the allowance that they used up shows what they took.

use crate::common::{between, compare, delete, get, one, put, success};
use kattu_kv::api::{
    Answer, Command, CompareResult, CompareTarget, DeleteRange, Error, KeyValue, Operation, Put, Query,
    Range, Revision, SortTarget, Txn,
};
use kattu_kv::cost::{PUT_UNITS, is_small};
use kattu_kv::store::{Pace, Store};
use kattu_kv::work::Work;

const KEYS: u64 = 5000;

/// Least bytes of a pair besides its key and value, in memory and encoded.
const PAIR_BYTES: usize = size_of::<KeyValue>() + 10;

fn many() -> Store {
    let mut store = Store::new();
    for n in 0..KEYS {
        store.apply(&Command::Put(put(&format!("k{n:05}"), "value"))).expect("a put");
    }
    store
}

fn all() -> kattu_kv::api::KeyRange {
    between("k", "l")
}

/// The units that work takes, and those of its longest slice. `go_on` works for an allowance, and tells whether it is done.
fn in_slices(slice: i64, mut go_on: impl FnMut(&mut i64) -> bool) -> (u64, u64) {
    let (mut total, mut longest) = (0, 0);
    loop {
        // Asked to stop after a slice: the units taken beyond it show.
        let mut allowance = slice;
        let is_done = go_on(&mut allowance);
        total += (slice - allowance) as u64;
        longest = longest.max((slice - allowance) as u64);
        if is_done {
            return (total, longest);
        }
        assert!(allowance <= 0, "it stopped before its allowance was used up");
    }
}

/// Those of a command.
fn taken(store: &mut Store, command: &Command, slice: i64) -> (u64, u64) {
    let mut work = Work::on_command(command.clone(), Some(usize::MAX));
    in_slices(slice, |allowance| store.go_on(&mut work, allowance).is_some())
}

/// Those of a read.
fn read(store: &Store, query: &Query, slice: i64) -> (u64, u64) {
    let mut work = Work::on_query(query, usize::MAX);
    in_slices(slice, |allowance| store.read_on(&mut work, allowance).is_some())
}

#[test]
fn what_a_command_takes_is_what_it_was_said_to_cost() {
    let range = |range: Range| success(vec![Operation::Range(range), Operation::Put(put("new", ""))]);
    let unequal = |n| compare(all(), CompareResult::NotEqual, CompareTarget::Version(n));
    let commands = [
        Command::DeleteRange(delete(all())),
        Command::DeleteRange(DeleteRange { keys: all(), prev_kv: true }),
        Command::Txn(range(get(all()))),
        Command::Txn(range(Range { limit: 10, ..get(all()) })),
        Command::Txn(range(Range { count_only: true, ..get(all()) })),
        Command::Txn(range(Range { revision: Revision(2000), ..get(all()) })),
        Command::Txn(range(Range { target: SortTarget::Mod, ..get(all()) })),
        Command::Txn(range(Range { min_mod_revision: Revision(4000), ..get(all()) })),
        Command::Txn(Txn { compare: vec![unequal(7), unequal(8), unequal(9)], ..success(vec![]) }),
        Command::Txn(success(vec![Operation::Txn(range(get(all()))), Operation::DeleteRange(delete(all()))])),
    ];
    for command in commands {
        let store = many();
        let cost = store.cost_of(&command);
        assert!(!is_small(&command), "{command:?}");
        for slice in [1, 7, 100, i64::MAX >> 1] {
            let (total, longest) = taken(&mut store.clone(), &command, slice);
            assert!(total <= 2 * cost + 32, "{total} units taken, {cost} were said: {command:?}");
            // The cost assumes that the older revision may also have had all keys that changed since.
            assert!(cost <= 3 * total + 64, "{total} units taken, {cost} were said: {command:?}");
            assert!(longest <= slice.unsigned_abs() + 8, "a slice of {longest} units, {slice} were allowed");
        }
    }
}

#[test]
fn a_sorted_read_is_cut_where_it_gathers_what_it_has_sorted_too() {
    let store = many();
    for target in [SortTarget::Mod, SortTarget::Value] {
        let query = Query::Range(Range { target, ..get(all()) });
        for slice in [1, 7, 100] {
            let (total, longest) = read(&store, &query, slice);
            assert_eq!(
                total,
                store.cost_of_query(&query) + KEYS,
                "{target:?}: gathered, each counts once more"
            );
            assert!(
                longest <= slice.unsigned_abs() + 32,
                "{target:?}: {longest} units, {slice} were allowed"
            );
        }
    }
}

#[test]
fn values_are_compared_for_as_long_as_the_shorter_one_is() {
    let mut store = Store::new();
    let long = "x".repeat(1 << 20);
    store.apply(&Command::Put(put("long", &long))).expect("a put");
    store.apply(&Command::Put(put("short", "x"))).expect("a put");
    for (key, operand) in [("long", "x"), ("short", &*long)] {
        let compares = vec![compare(one(key), CompareResult::Equal, CompareTarget::Value(operand.into()))];
        let (total, _) = taken(&mut store, &Command::Txn(Txn { compare: compares, ..success(vec![]) }), 100);
        assert!(total < 16, "{key}: {total} units");
    }
    let equal = vec![compare(one("long"), CompareResult::Equal, CompareTarget::Value(long.into()))];
    let (total, _) = taken(&mut store, &Command::Txn(Txn { compare: equal, ..success(vec![]) }), 100);
    assert!(1024 <= total, "{total} units");
}

#[test]
fn a_read_that_will_be_refused_costs_one_unit_and_one_at_the_compacted_revision_what_it_takes() {
    let mut store = many();
    store.apply(&Command::Compact(Revision(3000))).expect("a compaction");
    let cost =
        |revision| store.cost_of_query(&Query::Range(Range { revision: Revision(revision), ..get(all()) }));
    assert_eq!(cost(2999), 1);
    assert!(2000 < cost(3000), "{}", cost(3000));
}

/// Transactions within `txn`, itself included, and the conditions of all.
fn parts(txn: &Txn) -> (u64, u64) {
    let nested = txn.success.iter().chain(&txn.failure).filter_map(|operation| match operation {
        Operation::Txn(nested) => Some(parts(nested)),
        _ => None,
    });
    nested.fold((1, txn.compare.len() as u64), |sum, more| (sum.0 + more.0, sum.1 + more.1))
}

#[test]
fn conditions_on_missing_keys_and_transactions_of_nothing_are_counted_and_cut() {
    let missing = |n| compare(one(&format!("m{n}")), CompareResult::Equal, CompareTarget::Version(0));
    let conditions = || (0..60).map(missing).collect::<Vec<_>>();
    let judging = Txn { compare: conditions(), ..success(vec![Operation::Put(put("new", ""))]) };
    let nowhere = compare(between("m", "n"), CompareResult::Less, CompareTarget::Mod(Revision(1)));
    let upside_down = compare(between("n", "m"), CompareResult::Less, CompareTarget::Mod(Revision(1)));
    let nested = |txn: &Txn, times| success(vec![Operation::Txn(txn.clone()); times]);
    let deep = (0..28).fold(judging.clone(), |txn, _| Txn { compare: conditions(), ..nested(&txn, 1) });
    let idle = [
        Operation::Range(get(all())),
        Operation::DeleteRange(delete(between("m", "n"))),
        Operation::DeleteRange(delete(between("n", "m"))),
    ];
    let txns = [
        nested(&Txn { success: vec![], ..judging.clone() }, 60),
        nested(&nested(&Txn::default(), 60), 60),
        nested(&Txn { compare: vec![nowhere; 60], ..Txn::default() }, 60),
        nested(&Txn { compare: vec![upside_down; 60], ..Txn::default() }, 60),
        deep,
        success([&idle[1..]; 60].concat()),
    ];
    for txn in txns {
        let command = Command::Txn(txn.clone());
        let (mut whole, (transactions, conditions)) = (many(), parts(&txn));
        let answer = whole.apply(&command);
        let looks = conditions + 2 * transactions + txn.success.len() as u64;
        for slice in [1, 7, 100, i64::MAX >> 1] {
            let (mut store, mut work) = (many(), Work::on_command(command.clone(), Some(usize::MAX)));
            let mut slices = 0;
            let done = loop {
                slices += 1;
                if let Some(done) = store.go_on(&mut work, &mut slice.clone()) {
                    break done;
                }
            };
            assert_eq!(done, answer, "in slices of {slice}");
            assert_eq!((store.digest(), store.running_digest()), (whole.digest(), whole.running_digest()));
            let (total, longest) = taken(&mut many(), &command, slice);
            assert!(looks <= total, "{total} units taken for {looks} looks: {transactions} transactions");
            assert!(
                looks / (slice.unsigned_abs() + 8) <= slices,
                "{looks} looks in {slices} slices of {slice}"
            );
            assert!(longest <= slice.unsigned_abs() + 8, "a slice of {longest} units, {slice} were allowed");
        }
    }
    // No client waits for the answer: ranges that are not read are passed in slices, too.
    let unread = Command::Txn(success(vec![idle[0].clone(); 100]));
    let (mut store, mut work, mut slices) = (many(), Work::on_command(unread, None), 0);
    while store.go_on(&mut work, &mut 10).is_none() {
        slices += 1;
    }
    assert!(slices >= 3 * 100 / 10, "{slices} slices: listed, judged, gone by");
}

#[test]
fn a_command_that_names_each_key_is_small() {
    let small = [
        Command::Put(put("a", "b")),
        Command::Compact(Revision(7)),
        Command::DeleteRange(delete(one("a"))),
        Command::Txn(Txn {
            compare: vec![compare(one("a"), CompareResult::Equal, CompareTarget::Version(1))],
            ..success(vec![Operation::Range(get(one("a"))), Operation::DeleteRange(delete(one("b")))])
        }),
    ];
    let store = many();
    for command in small {
        assert!(is_small(&command), "{command:?}");
        assert!(store.cost_of(&command) < 32, "{command:?}");
    }
    let nested = success(vec![Operation::Txn(success(vec![Operation::Range(get(all()))]))]);
    assert!(!is_small(&Command::Txn(nested)));
}

#[test]
fn the_transaction_that_ended_clusters_costs_what_all_its_ranges_do() {
    let store = many();
    let mut operations = vec![Operation::Range(get(between("\0", "\0"))); 126];
    operations.push(Operation::Put(put("x", "y")));
    assert!(store.cost_of(&Command::Txn(success(operations))) >= 126 * KEYS);
    let unequal = compare(all(), CompareResult::NotEqual, CompareTarget::Version(7));
    let compares = Txn { compare: vec![unequal; 128], ..success(vec![Operation::Put(put("x", "y"))]) };
    assert!(store.cost_of(&Command::Txn(compares)) >= 128 * KEYS);
}

#[test]
fn a_read_that_gathers_too_much_is_refused_and_a_count_of_everything_costs_nothing() {
    let store = many();
    let read = |range: Range, bytes_max| {
        let mut allowance = i64::MAX;
        let mut work = Work::on_query(&Query::Range(range), bytes_max);
        let read = store.read_on(&mut work, &mut allowance).expect("in one go");
        (read.map(|response| response.answer), (i64::MAX - allowance) as u64)
    };
    // Known from the count alone: no key is walked.
    let (refused, units) = read(get(all()), PAIR_BYTES * KEYS as usize - 1);
    assert_eq!((refused, units < 4), (Err(Error::AnswerTooLarge), true));
    // Known during the walk: it stops there.
    let (refused, units) = read(get(all()), PAIR_BYTES * KEYS as usize + 1);
    assert_eq!(refused, Err(Error::AnswerTooLarge));
    assert!(units < 2 * KEYS - KEYS / 8, "{units} units");
    let sorted = Range { target: SortTarget::Create, ..get(all()) };
    assert_eq!(read(sorted.clone(), 2000).0, Err(Error::AnswerTooLarge));
    assert!(read(Range { limit: 10, ..sorted }, 2000).0.is_ok(), "only what is wanted counts");
    let (count, units) = read(Range { count_only: true, ..get(all()) }, 0);
    let Ok(Answer::Range(count)) = count else { panic!("a count") };
    assert_eq!((count.count, units < 4), (KEYS as i64, true));
}

#[test]
fn pairs_count_with_what_they_take_in_memory_in_whatever_order_they_are_gathered() {
    let store = many();
    let read = |range: Range, bytes_max| {
        let mut work = Work::on_query(&Query::Range(range), bytes_max);
        store.read_on(&mut work, &mut i64::MAX.clone()).expect("in one go").map(|response| response.answer)
    };
    let pair = PAIR_BYTES + "k00000".len() + "value".len();
    let filtered = Range { min_mod_revision: Revision(1), ..get(all()) };
    let of_before = Range { revision: Revision(KEYS as i64 / 2 + 1), ..get(all()) };
    let cases = [(get(all()), KEYS), (filtered, KEYS), (of_before, KEYS / 2)];
    for (range, pairs) in cases {
        let enough = pair * pairs as usize;
        assert_eq!(read(range.clone(), enough - 1).err(), Some(Error::AnswerTooLarge), "{range:?}");
        let Ok(Answer::Range(answer)) = read(range.clone(), enough) else { panic!("it may: {range:?}") };
        assert_eq!(answer.kvs.len() as u64, pairs, "{range:?}");
    }
    // While pairs are sorted they exist twice.
    let sorted = Range { target: SortTarget::Mod, ..get(all()) };
    let twice = (pair + size_of::<KeyValue>()) * KEYS as usize;
    assert_eq!(read(sorted.clone(), twice).err(), Some(Error::AnswerTooLarge));
    assert!(read(sorted, 2 * twice).is_ok());
    // The bytes that the first read needs only while it sorts are available to the second.
    let few = Range { keys: between("k00000", "k01000"), target: SortTarget::Mod, ..get(all()) };
    let both = Query::Txn(success(vec![Operation::Range(few), Operation::Range(get(all()))]));
    let enough = pair * (KEYS as usize + 1000);
    for (bytes_max, is_enough) in [(enough, true), (enough - 1, false)] {
        let mut work = Work::on_query(&both, bytes_max);
        let done = store.read_on(&mut work, &mut i64::MAX.clone()).expect("in one go");
        assert_eq!(done.is_ok(), is_enough, "{bytes_max} bytes");
    }
}

#[test]
fn a_command_that_fails_late_takes_everything_back_in_slices() {
    let mut store = many();
    let before = (store.digest(), store.running_digest(), store.stats());
    // A kept value that the transaction itself deletes: the check of the state before cannot see it.
    let keep = Put { ignore_value: true, ..put("k00001", "") };
    let txn = Command::Txn(success(vec![Operation::DeleteRange(delete(all())), Operation::Put(keep)]));
    let mut work = Work::on_command(txn, Some(usize::MAX));
    let (mut slices, slice) = (0, 6 * PUT_UNITS as i64);
    let refused = loop {
        slices += 1;
        let mut allowance = slice;
        let done = store.go_on(&mut work, &mut allowance);
        // No step takes more than a put, and none begins when nothing is left.
        assert!(-(PUT_UNITS as i64) < allowance, "{allowance} units are left of {slice}");
        if let Some(done) = done {
            break done;
        }
    };
    assert_eq!(refused, Err(Error::KeyNotFound));
    assert!(slices > KEYS * 2 / slice as u64, "{slices} slices");
    assert_eq!((store.digest(), store.running_digest(), store.stats()), before);
}

#[test]
fn a_command_is_carried_out_though_its_answer_would_be_too_large() {
    let store = many();
    let delete = DeleteRange { keys: all(), prev_kv: true };
    let read = Operation::Range(get(all()));
    let commands = [
        Command::DeleteRange(delete.clone()),
        Command::Txn(success(vec![read.clone(), read, Operation::Put(put("new", ""))])),
        Command::Txn(success(vec![Operation::Txn(success(vec![Operation::DeleteRange(delete)]))])),
    ];
    for command in commands {
        let mut whole = store.clone();
        whole.apply(&command).expect("in one go");
        // Some of the pairs would fit, but not all.
        for bytes_max in [0, 10 * KEYS as usize, usize::MAX] {
            let mut other = store.clone();
            let mut work = Work::on_command(command.clone(), Some(bytes_max));
            let done = loop {
                if let Some(done) = other.go_on(&mut work, &mut 70) {
                    break done.expect("it is carried out");
                }
            };
            assert_eq!(work.lacks_pairs(), bytes_max != usize::MAX, "{command:?}");
            assert_eq!((other.digest(), other.running_digest()), (whole.digest(), whole.running_digest()));
            let shown = format!("{:?}", done.answer).matches("KeyValue").count();
            assert_eq!(shown == 0, work.lacks_pairs(), "all pairs or none: {shown}");
        }
    }
}

#[test]
fn pairs_that_were_gathered_are_dropped_when_more_do_not_fit() {
    let (store, read) = (many(), Operation::Range(get(all())));
    let txn = Command::Txn(success(vec![read.clone(), read, Operation::Put(put("new", ""))]));
    let pair = PAIR_BYTES + "k00000".len() + "value".len();
    // All of the first read fits, and a half of the second.
    let mut work = Work::on_command(txn, Some(pair * KEYS as usize * 3 / 2));
    let done =
        store.clone().go_on(&mut work, &mut i64::MAX.clone()).expect("in one go").expect("carried out");
    assert!(work.lacks_pairs());
    let Answer::Txn { answers, .. } = done.answer else { panic!("a transaction") };
    assert!(!format!("{answers:?}").contains("KeyValue"));
}

#[test]
fn a_read_costs_a_look_at_each_key_and_as_much_for_each_pair() {
    let store = many();
    let (now, keys) = (store.revision(), KEYS);
    let ten = Range { limit: 10, ..get(all()) };
    let count = Range { count_only: true, ..get(all()) };
    let sorted = Range { target: SortTarget::Mod, ..get(all()) };
    let filtered = Range { min_mod_revision: Revision(1), ..ten.clone() };
    for (range, cost) in [
        (get(one("k00001")), 2),
        (get(one("missing")), 2),
        (get(all()), 1 + 2 * keys),
        (ten.clone(), 1 + 2 * 10),
        (count.clone(), 1),
        // The newest revision by its number is the newest.
        (Range { revision: now, ..ten.clone() }, 1 + 2 * 10),
        (Range { revision: now, ..count.clone() }, 1),
        // Nothing but the newest has counts.
        (Range { revision: Revision(now.0 - 1), ..ten }, 1 + keys + 10),
        (Range { revision: Revision(now.0 - 1), ..count }, 1 + keys),
        (filtered, 1 + 2 * keys),
    ] {
        assert_eq!(store.cost_of_query(&Query::Range(range.clone())), cost, "{range:?}");
    }
    assert!(3 * keys < store.cost_of_query(&Query::Range(sorted)), "sorting costs more");
}

#[test]
fn the_read_of_one_key_is_answered_at_once_and_no_other_is() {
    let store = many();
    for key in ["k00001", "missing"] {
        let query = Query::Range(get(one(key)));
        assert_eq!(store.query_small(&query).expect("at once"), store.query(&query), "{key}");
    }
    let future = Query::Range(Range { revision: Revision(1 << 40), ..get(one("k00001")) });
    assert_eq!(store.query_small(&future), Some(Err(Error::FutureRevision)));
    assert_eq!(store.query_small(&Query::Range(get(all()))), None);
    assert_eq!(store.query_small(&Query::Txn(success(vec![Operation::Range(get(one("k00001")))]))), None);
}

#[test]
fn a_store_forgets_in_short_steps_while_a_copy_of_it_is_held() {
    let slow = Pace { versions_per_change: 0, versions_per_compaction: 0 };
    let forgetting = || {
        let mut store = Store::with_pace(slow);
        for _ in 0..KEYS {
            store.apply(&Command::Put(put("key", "value"))).expect("a put");
        }
        assert!(!store.stats().forgets, "nothing is compacted");
        let compact = Command::Compact(store.revision());
        store.apply(&compact).expect("it is compacted");
        assert!(store.stats().forgets);
        store
    };
    let steps = |store: &mut Store| {
        let mut steps = 1;
        while store.tidy(1000) {
            steps += 1;
        }
        assert!(!store.stats().forgets, "all is forgotten");
        steps
    };
    let mut store = forgetting();
    assert!(!store.stats().pinned);
    let alone = steps(&mut store);
    assert!(alone <= KEYS / 1000 + 1, "{alone} steps");
    let (mut store, mut released) = (forgetting(), forgetting());
    let copy = store.pin();
    assert!(store.stats().pinned);
    let beside = steps(&mut store);
    assert!(4 * alone < beside, "{beside} steps beside a copy, {alone} without");
    drop(copy);
    assert!(!store.stats().pinned);
    drop(released.pin());
    assert_eq!(steps(&mut released), alone);
}

/// Goal: history that is kept can be read, however much was written since. Method: each key is put again many times; a
/// count of the keys at an old revision costs the keys that it visits.
#[test]
fn what_an_old_read_costs_does_not_grow_with_what_was_written_since() {
    let mut store = many();
    let old = store.revision();
    for n in 0..10 * KEYS {
        store.apply(&Command::Put(put(&format!("k{:05}", n % KEYS), "newer"))).expect("a put");
    }
    let gone = KEYS / 10;
    for n in 0..gone {
        let one = Command::DeleteRange(delete(one(&format!("k{n:05}"))));
        store.apply(&one).expect("a delete");
    }
    for (range, most) in [
        (Range { revision: old, count_only: true, ..get(all()) }, KEYS + 1),
        (Range { revision: old, limit: 10, ..get(all()) }, KEYS + 11),
        (Range { revision: old, ..get(all()) }, 2 * KEYS + 1),
    ] {
        let query = Query::Range(range);
        assert_eq!(store.cost_of_query(&query), most, "{query:?}");
        let (mut work, mut allowance) = (Work::on_query(&query, usize::MAX), i64::MAX >> 1);
        let answer =
            store.read_on(&mut work, &mut allowance).expect("all of it at once").expect("it is kept");
        let Answer::Range(answer) = answer.answer else { panic!("{answer:?}") };
        assert_eq!(answer.count, KEYS as i64, "{query:?}");
        let took = ((i64::MAX >> 1) - allowance) as u64;
        assert!(took <= most + 32, "{took} units taken, {most} were said: {query:?}");
    }
}

/// Keys whose values have a MiB each.
fn heavy(keys: usize) -> Store {
    let mut store = Store::new();
    for n in 0..keys {
        let value = vec![b'v'; 1 << 20];
        store.apply(&Command::Put(Put { value, ..put(&format!("k{n:05}"), "") })).expect("a put");
    }
    store
}

#[test]
fn a_value_that_is_kept_is_written_and_counts_in_the_slice() {
    const KEYS: usize = 20;
    let keep = |n| Operation::Put(Put { ignore_value: true, ..put(&format!("k{n:05}"), "") });
    let keep_all = Command::Txn(success((0..KEYS).map(keep).collect()));
    assert!(!is_small(&keep_all), "what it writes is not in it");
    let mut store = heavy(KEYS);
    let before = store.stats().bytes;
    let (units, longest) = taken(&mut store, &keep_all, 2048);
    assert!(store.stats().bytes - before > (KEYS as u64) << 20, "each key has a version more");
    assert!(units >= (KEYS as u64) << 10, "{units} units for {KEYS} MiB");
    assert!(longest <= 2048 + 1024 + 32, "{longest} units in a slice of 2048");
}

#[test]
fn values_that_are_compared_and_ranked_count_in_the_slice() {
    const KEYS: usize = 20;
    let value = vec![b'v'; 1 << 20];
    let store = heavy(KEYS);
    let ranked = Query::Range(Range { target: SortTarget::Value, keys_only: true, ..get(all()) });
    let compared = Query::Txn(Txn {
        compare: vec![compare(all(), CompareResult::Equal, CompareTarget::Value(value))],
        ..Txn::default()
    });
    for query in [ranked, compared] {
        let mut work = Work::on_query(&query, usize::MAX);
        let (mut units, mut longest) = (0, 0);
        loop {
            let mut allowance = 8192;
            let done = store.read_on(&mut work, &mut allowance);
            units += 8192 - allowance;
            longest = longest.max(8192 - allowance);
            if done.is_some() {
                break;
            }
        }
        assert!(units >= (KEYS << 10) as i64, "{units} units for {KEYS} MiB: {query:?}");
        assert!(longest <= 8192 + (8 << 10), "{longest} units in a slice of 8192: {query:?}");
    }
}
