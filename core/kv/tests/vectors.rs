//! Answers recorded from a real etcd (3.4.23), request by request: this store must give the same.

use crate::common::{between, compare, delete, get, one, pairs, put, success};
use kattu_kv::api::{
    Answer, Command, CompareResult, CompareTarget, Error, Operation, Put, Query, Range, RangeResult,
    Response, Revision, SortOrder, SortTarget, Txn,
};
use kattu_kv::check::{CheckLimits, check_put, check_txn};
use kattu_kv::store::Store;

fn read(store: &Store, range: Range) -> Result<Response, Error> {
    store.query(&Query::Range(range))
}

fn range_result(response: Result<Response, Error>) -> RangeResult {
    match response.map(|response| response.answer) {
        Ok(Answer::Range(result)) => result,
        other => panic!("no range answer: {other:?}"),
    }
}

fn write(store: &mut Store, key: &str, value: &str) -> Revision {
    store.apply(&Command::Put(put(key, value))).expect("a plain put").revision
}

/// Checks it as before a proposal, then applies it.
fn txn(store: &mut Store, txn: Txn) -> Result<(Revision, bool, Vec<Answer>), Error> {
    check_txn(&txn, &CheckLimits::default())?;
    let response = store.apply(&Command::Txn(txn))?;
    let Answer::Txn { succeeded, answers } = response.answer else { panic!("no txn answer") };
    Ok((response.revision, succeeded, answers))
}

#[test]
fn an_empty_store_is_at_revision_1_and_has_nothing() {
    let response = read(&Store::new(), get(one("a"))).unwrap();
    assert_eq!(response.revision, Revision(1));
    let nothing = RangeResult { kvs: vec![], more: false, count: 0, revision: Revision(1) };
    assert_eq!(response.answer, Answer::Range(nothing));
}

#[test]
fn the_first_put_is_revision_2() {
    let mut store = Store::new();
    let response = store.apply(&Command::Put(put("a", "1"))).unwrap();
    assert_eq!(response, Response { revision: Revision(2), answer: Answer::Put { prev_kv: None } });
    let kv = &range_result(read(&store, get(one("a")))).kvs[0];
    assert_eq!((kv.create_revision, kv.mod_revision), (Revision(2), Revision(2)));
    assert_eq!((kv.version, kv.lease), (1, 0));
}

#[test]
fn a_put_needs_a_key_and_takes_no_second_opinion_on_what_it_keeps() {
    let cases = [
        (put("", "x"), Err(Error::EmptyKey)),
        (Put { ignore_value: true, ..put("", "x") }, Err(Error::EmptyKey)),
        (Put { ignore_value: true, ..put("a", "x") }, Err(Error::ValueProvided)),
        (Put { ignore_lease: true, lease: 7, ..put("a", "x") }, Err(Error::LeaseProvided)),
        (
            Put { ignore_value: true, ignore_lease: true, lease: 7, ..put("a", "x") },
            Err(Error::ValueProvided),
        ),
        (Put { ignore_value: true, ignore_lease: true, ..put("a", "") }, Ok(())),
        (put("a", ""), Ok(())),
    ];
    for (put, expected) in cases {
        assert_eq!(check_put(put.as_ref()), expected, "{put:?}");
    }
}

#[test]
fn a_value_compares_false_with_a_missing_key_even_by_not_equal() {
    let mut store = Store::new();
    for result in [CompareResult::NotEqual, CompareResult::Equal, CompareResult::Greater, CompareResult::Less]
    {
        let (revision, succeeded, answers) = txn(
            &mut store,
            Txn {
                compare: vec![compare(one("nokey"), result, CompareTarget::Value(b"x".to_vec()))],
                success: vec![],
                failure: vec![Operation::Range(get(one("nokey")))],
            },
        )
        .unwrap();
        assert!(!succeeded, "{result:?}");
        assert_eq!(revision, Revision(1));
        assert_eq!(answers, [Answer::Range(RangeResult { revision: Revision(1), ..RangeResult::default() })]);
    }
}

#[test]
fn nested_compares_see_the_state_before_and_nested_reads_the_state_within() {
    let mut store = Store::new();
    let nested = Txn {
        compare: vec![compare(one("k"), CompareResult::Equal, CompareTarget::Version(0))],
        success: vec![Operation::Range(get(one("k")))],
        failure: vec![],
    };
    let outer = success(vec![Operation::Put(put("k", "new")), Operation::Txn(nested)]);
    let (revision, succeeded, answers) = txn(&mut store, outer).unwrap();
    assert!(succeeded);
    assert_eq!(revision, Revision(2));
    let [Answer::Put { prev_kv: None }, Answer::Txn { succeeded: true, answers: inner }] = &answers[..]
    else {
        panic!("{answers:?}");
    };
    assert_eq!(pairs(&inner[0]), "k=new");
}

#[test]
fn inner_headers_show_the_new_revision_only_once_something_has_changed() {
    let mut store = Store::new();
    let read = || Operation::Range(get(one("k")));
    let no_delete = || Operation::DeleteRange(delete(one("absent")));
    let operations = vec![read(), no_delete(), Operation::Put(put("k", "v")), read(), no_delete()];
    let (revision, _, answers) = txn(&mut store, success(operations)).unwrap();
    let revisions = answers.iter().map(|answer| match answer {
        Answer::Range(RangeResult { revision, .. }) | Answer::DeleteRange { revision, .. } => *revision,
        _ => revision,
    });
    assert_eq!(revisions.collect::<Vec<_>>(), [1, 1, 2, 2, 2].map(Revision));
    assert_eq!(revision, Revision(2));
}

#[test]
fn a_key_is_not_put_and_deleted_in_one_transaction_but_may_be_deleted_twice() {
    let mut store = Store::new();
    write(&mut store, "k", "v");
    let delete_k = || Operation::DeleteRange(delete(one("k")));
    let both = success(vec![Operation::Put(put("k", "w")), delete_k()]);
    assert_eq!(txn(&mut store, both), Err(Error::DuplicateKey));

    let (revision, _, answers) = txn(&mut store, success(vec![delete_k(), delete_k()])).unwrap();
    let deleted = |deleted| Answer::DeleteRange { deleted, prev_kvs: vec![], revision: Revision(3) };
    assert_eq!((revision, answers), (Revision(3), vec![deleted(1), deleted(0)]));
}

#[test]
fn an_empty_transaction_succeeds_and_changes_nothing() {
    let mut store = Store::new();
    assert_eq!(txn(&mut store, Txn::default()), Ok((Revision(1), true, vec![])));
}

#[test]
fn deleting_what_is_not_there_changes_nothing() {
    let mut store = Store::new();
    let response = store.apply(&Command::DeleteRange(delete(one("a")))).unwrap();
    let answer = Answer::DeleteRange { deleted: 0, prev_kvs: vec![], revision: Revision(1) };
    assert_eq!(response, Response { revision: Revision(1), answer });
}

#[test]
fn a_deleted_key_begins_a_new_life() {
    let mut store = Store::new();
    write(&mut store, "k", "1");
    write(&mut store, "k", "2");
    store.apply(&Command::DeleteRange(delete(one("k")))).unwrap();
    write(&mut store, "k", "3");
    let kv = &range_result(read(&store, get(one("k")))).kvs[0];
    assert_eq!((kv.create_revision, kv.mod_revision, kv.version), (Revision(5), Revision(5), 1));
}

#[test]
fn the_future_cannot_be_read() {
    assert_eq!(
        read(&Store::new(), Range { revision: Revision(99), ..get(one("a")) }),
        Err(Error::FutureRevision)
    );
}

#[test]
fn compaction_forbids_what_lies_before_it() {
    let mut store = Store::new();
    write(&mut store, "a", "1");
    write(&mut store, "a", "2");
    let done = Response { revision: Revision(3), answer: Answer::Compact };
    assert_eq!(store.apply(&Command::Compact(Revision(2))), Ok(done));
    assert_eq!(store.apply(&Command::Compact(Revision(2))), Err(Error::Compacted));
    assert_eq!(store.apply(&Command::Compact(Revision(50))), Err(Error::FutureRevision));
    assert_eq!(read(&store, Range { revision: Revision(1), ..get(one("a")) }), Err(Error::Compacted));
    let at_2 = read(&store, Range { revision: Revision(2), ..get(one("a")) }).unwrap();
    assert_eq!((at_2.revision, &*pairs(&at_2.answer)), (Revision(3), "a=1"));
}

#[test]
fn revision_0_may_be_compacted_once() {
    let mut store = Store::new();
    assert_eq!(store.apply(&Command::Compact(Revision(-1))), Err(Error::Compacted));
    assert!(store.apply(&Command::Compact(Revision(0))).is_ok());
    assert_eq!(store.apply(&Command::Compact(Revision(0))), Err(Error::Compacted));
    assert!(store.apply(&Command::Compact(Revision(1))).is_ok());
}

#[test]
fn a_put_with_an_unknown_lease_or_without_anything_to_keep_is_refused() {
    let mut store = Store::new();
    let with_lease = Put { lease: 7, ..put("a", "1") };
    let keeping = Put { ignore_value: true, ..put("a", "") };
    assert_eq!(store.apply(&Command::Put(with_lease.clone())), Err(Error::LeaseNotFound));
    assert_eq!(store.apply(&Command::Put(keeping.clone())), Err(Error::KeyNotFound));
    // With both faults, a put is refused for the lease, a transaction for the key.
    let both = Put { lease: 7, ..keeping.clone() };
    assert_eq!(store.apply(&Command::Put(both.clone())), Err(Error::LeaseNotFound));
    assert_eq!(txn(&mut store, success(vec![Operation::Put(both)])), Err(Error::KeyNotFound));
    assert_eq!(txn(&mut store, success(vec![Operation::Put(with_lease)])), Err(Error::LeaseNotFound));
    assert_eq!(txn(&mut store, success(vec![Operation::Put(keeping)])), Err(Error::KeyNotFound));
    assert_eq!(store.revision(), Revision(1));
}

#[test]
fn a_put_may_keep_the_value_and_return_the_old_pair() {
    let mut store = Store::new();
    write(&mut store, "a", "1");
    let keeping = Put { ignore_value: true, prev_kv: true, ..put("a", "") };
    let response = store.apply(&Command::Put(keeping)).unwrap();
    let Answer::Put { prev_kv: Some(before) } = response.answer else { panic!("no previous pair") };
    assert_eq!((&*before.value, before.version, before.mod_revision), (&b"1"[..], 1, Revision(2)));
    let kv = &range_result(read(&store, get(one("a")))).kvs[0];
    assert_eq!((&*kv.value, kv.version, kv.mod_revision), (&b"1"[..], 2, Revision(3)));
}

fn store_with_four() -> Store {
    let mut store = Store::new();
    for (key, value) in [("p1", "d"), ("p2", "c"), ("p3", "b"), ("p4", "a"), ("q", "-")] {
        write(&mut store, key, value);
    }
    store
}

#[test]
fn ranges_of_every_kind_over_four_keys() {
    let four = || get(between("p", "q"));
    let by = |target, order| Range { target, order, ..four() };
    use SortOrder::{Ascend, Descend, None};
    use SortTarget::{Create, Key, Mod, Value, Version};
    let cases = [
        ("a limit cuts and says so", Range { limit: 2, ..four() }, "p1=d p2=c", true, 4),
        (
            "a limit that is enough says nothing",
            Range { limit: 4, ..four() },
            "p1=d p2=c p3=b p4=a",
            false,
            4,
        ),
        (
            "a filter does not lower the count",
            Range { max_create_revision: Revision(3), ..four() },
            "p1=d p2=c",
            false,
            4,
        ),
        (
            "bounds are inclusive",
            Range { min_mod_revision: Revision(4), max_mod_revision: Revision(4), ..four() },
            "p3=b",
            false,
            4,
        ),
        (
            "filters come before the limit",
            Range { min_create_revision: Revision(4), limit: 1, ..four() },
            "p3=b",
            true,
            4,
        ),
        ("the newest created", Range { limit: 1, ..by(Create, Descend) }, "p4=a", true, 4),
        ("the oldest changed", Range { limit: 1, ..by(Mod, Ascend) }, "p1=d", true, 4),
        ("by value", by(Value, Ascend), "p4=a p3=b p2=c p1=d", false, 4),
        ("by value, unsaid", by(Value, None), "p4=a p3=b p2=c p1=d", false, 4),
        ("by value, unsaid, cut", Range { limit: 2, ..by(Value, None) }, "p4=a p3=b", true, 4),
        ("ties stand by key", by(Version, Descend), "p1=d p2=c p3=b p4=a", false, 4),
        ("by key, backwards", Range { limit: 3, ..by(Key, Descend) }, "p4=a p3=b p2=c", true, 4),
        (
            "values sort even if not shown",
            Range { keys_only: true, ..by(Value, Ascend) },
            "p4= p3= p2= p1=",
            false,
            4,
        ),
        ("only the count", Range { count_only: true, limit: 1, ..four() }, "", false, 4),
        ("everything", Range { count_only: true, ..get(between("\0", "\0")) }, "", false, 5),
        ("from a key on", get(between("p4", "\0")), "p4=a q=-", false, 2),
        ("end below start", get(between("q", "p")), "", false, 0),
        ("end equal to start", get(between("p1", "p1")), "", false, 0),
        ("as it was", Range { revision: Revision(3), ..four() }, "p1=d p2=c", false, 2),
        ("as it was, cut", Range { revision: Revision(3), limit: 1, ..four() }, "p1=d", true, 2),
        (
            "negative means now",
            Range { revision: Revision(-5), limit: -5, ..four() },
            "p1=d p2=c p3=b p4=a",
            false,
            4,
        ),
        ("no bound above is below 0", Range { max_mod_revision: Revision(-1), ..four() }, "", false, 4),
    ];
    let store = store_with_four();
    for (name, range, expected, more, count) in cases {
        let response = read(&store, range).unwrap();
        assert_eq!(response.revision, Revision(6), "{name}");
        assert_eq!(pairs(&response.answer), expected, "{name}");
        let Answer::Range(result) = response.answer else { unreachable!() };
        assert_eq!((result.more, result.count), (more, count), "{name}");
    }
}

#[test]
fn a_range_compare_holds_for_all_keys_and_an_empty_range_is_one_missing_key() {
    use CompareResult::{Equal, Greater, Less, NotEqual};
    let cases = [
        (between("none/", "none0"), Equal, CompareTarget::Create(Revision(0)), true),
        (between("none/", "none0"), Equal, CompareTarget::Lease(0), true),
        (between("none/", "none0"), Equal, CompareTarget::Value(vec![]), false),
        (between("p", "q"), Greater, CompareTarget::Create(Revision(0)), true),
        (between("p", "q"), Less, CompareTarget::Mod(Revision(5)), false),
        (between("p", "q"), Equal, CompareTarget::Version(1), true),
        (between("p", "q"), NotEqual, CompareTarget::Value(b"e".to_vec()), true),
        (between("p", "q"), NotEqual, CompareTarget::Value(b"a".to_vec()), false),
        (between("p", "\0"), Less, CompareTarget::Value(b"e".to_vec()), true),
        (between("q", "p"), Equal, CompareTarget::Version(0), true),
    ];
    let mut store = store_with_four();
    for (keys, result, target, holds) in cases {
        let compares = vec![compare(keys, result, target)];
        let name = format!("{compares:?}");
        let (_, succeeded, _) = txn(&mut store, Txn { compare: compares, ..Txn::default() }).unwrap();
        assert_eq!(succeeded, holds, "{name}");
    }
}

#[test]
fn a_failed_check_anywhere_on_the_path_leaves_no_trace() {
    let mut store = store_with_four();
    let digest = store.digest();
    let future = || Operation::Range(Range { revision: Revision(7), ..get(one("p1")) });
    let after_a_put = success(vec![Operation::Put(put("p1", "lost")), future()]);
    assert_eq!(
        txn(&mut store, after_a_put),
        Err(Error::FutureRevision),
        "the txn's own revision is the future"
    );
    let nested = success(vec![Operation::Put(put("p1", "lost")), Operation::Txn(success(vec![future()]))]);
    assert_eq!(txn(&mut store, nested), Err(Error::FutureRevision));
    assert_eq!(store.digest(), digest);

    let not_taken = Txn { failure: vec![future()], ..Txn::default() };
    assert!(txn(&mut store, not_taken).is_ok(), "only the path is checked");
}

#[test]
fn what_a_transaction_deletes_it_cannot_keep() {
    let mut store = store_with_four();
    let digest = store.digest();
    let everything = Operation::DeleteRange(delete(between("p", "\0")));
    let keeping = Operation::Put(Put { ignore_value: true, ..put("p1", "") });
    let kept = success(vec![everything.clone(), keeping]);
    assert_eq!(txn(&mut store, kept), Err(Error::KeyNotFound));
    assert_eq!((store.digest(), store.revision()), (digest, Revision(6)));

    let anew = success(vec![everything, Operation::Put(put("p1", "new"))]);
    assert_eq!(txn(&mut store, anew).map(|(revision, ..)| revision), Ok(Revision(7)));
    assert_eq!(pairs(&read(&store, get(between("\0", "\0"))).unwrap().answer), "p1=new");
    let kv = &range_result(read(&store, get(one("p1")))).kvs[0];
    assert_eq!((kv.create_revision, kv.version), (Revision(7), 1), "the delete ended the life before");
    assert_eq!(
        pairs(&read(&store, Range { revision: Revision(6), ..get(one("p1")) }).unwrap().answer),
        "p1=d"
    );
}

#[test]
fn inside_a_transaction_a_compacted_revision_is_refused_even_if_it_is_negative() {
    let mut store = store_with_four();
    let reading =
        |revision| success(vec![Operation::Range(Range { revision: Revision(revision), ..get(one("p1")) })]);
    assert!(txn(&mut store, reading(-1)).is_ok());
    assert_eq!(txn(&mut store, reading(-2)), Err(Error::Compacted));
    store.apply(&Command::Compact(Revision(3))).unwrap();
    assert_eq!(txn(&mut store, reading(-1)), Err(Error::Compacted));
    assert_eq!(txn(&mut store, reading(2)), Err(Error::Compacted));
    assert!(txn(&mut store, reading(3)).is_ok());
    let query = Query::Txn(reading(2));
    assert_eq!(store.query(&query), Err(Error::Compacted), "with and without the log");
}
