//! Requests that `check.rs` refuses, one case per line. For keys changed twice: comparison with a naive twin that walks
//! every level.

use crate::common::{between, compare, delete, get, one, put, success};
use kattu_kv::api::{CompareResult, CompareTarget, Error, KeyRange, Operation, Put, Txn};
use kattu_kv::check::{CheckLimits, check_delete_range, check_range, check_txn, is_read_only};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn p(key: &str) -> Operation {
    Operation::Put(put(key, "v"))
}

fn d(key: &str) -> Operation {
    Operation::DeleteRange(delete(one(key)))
}

fn dr(start: &str, end: &str) -> Operation {
    Operation::DeleteRange(delete(between(start, end)))
}

fn r(key: &str) -> Operation {
    Operation::Range(get(one(key)))
}

fn t(then: Vec<Operation>, otherwise: Vec<Operation>) -> Operation {
    Operation::Txn(Txn { compare: vec![], success: then, failure: otherwise })
}

#[test]
fn keys_changed_twice() {
    const BAD: Result<(), Error> = Err(Error::DuplicateKey);
    const GOOD: Result<(), Error> = Ok(());
    let cases = [
        ("two puts", vec![p("k"), p("k")], BAD),
        ("put, delete", vec![p("k"), d("k")], BAD),
        ("delete, put", vec![d("k"), p("k")], BAD),
        ("put within a deleted range", vec![p("k"), dr("a", "z")], BAD),
        ("put at the start of it", vec![p("a"), dr("a", "z")], BAD),
        ("put at the end of it", vec![p("z"), dr("a", "z")], GOOD),
        ("put between two ranges", vec![p("m"), dr("a", "c"), dr("x", "z")], GOOD),
        ("put in the overlap of two ranges", vec![p("m"), dr("a", "n"), dr("l", "z")], BAD),
        ("put in a wide range before a narrow one", vec![p("x"), dr("a", "z"), dr("b", "c")], BAD),
        ("deletes that overlap", vec![d("k"), d("k"), dr("a", "z"), dr("a", "k")], GOOD),
        ("a range upside down deletes nothing", vec![p("k"), dr("z", "a")], GOOD),
        ("etcd: from a key on forbids nothing", vec![p("k"), dr("a", "\0")], GOOD),
        ("reads", vec![r("k"), p("k"), r("k")], GOOD),
        ("nested put", vec![p("k"), t(vec![p("k")], vec![])], BAD),
        ("nested put in the other branch", vec![p("k"), t(vec![], vec![p("k")])], BAD),
        ("nested delete", vec![p("k"), t(vec![d("k")], vec![])], BAD),
        ("delete, nested put", vec![d("k"), t(vec![], vec![p("k")])], BAD),
        ("put in both branches of one nested", vec![t(vec![p("k")], vec![p("k")])], GOOD),
        ("put and delete in different branches of it", vec![t(vec![p("k")], vec![d("k")])], GOOD),
        ("puts in two nested", vec![t(vec![p("k")], vec![]), t(vec![], vec![p("k")])], BAD),
        (
            "delete in one nested, put in the next",
            vec![t(vec![d("k")], vec![]), t(vec![p("k")], vec![])],
            BAD,
        ),
        (
            "etcd: put in one nested, delete in the next",
            vec![t(vec![p("k")], vec![]), t(vec![d("k")], vec![])],
            GOOD,
        ),
        ("twice within nested", vec![t(vec![p("k"), p("k")], vec![])], BAD),
        ("deep", vec![p("k"), t(vec![t(vec![t(vec![p("k")], vec![])], vec![])], vec![])], BAD),
    ];
    for (name, operations, expected) in cases {
        let limits = CheckLimits::default();
        assert_eq!(check_txn(&success(operations.clone()), &limits), expected, "{name}, in success");
        let failure = Txn { failure: operations, ..Txn::default() };
        assert_eq!(check_txn(&failure, &limits), expected, "{name}, in failure");
    }
    let apart = Txn { success: vec![p("k")], failure: vec![p("k"), d("j")], ..Txn::default() };
    assert_eq!(check_txn(&apart, &CheckLimits::default()), Ok(()), "branches do not clash");
}

#[test]
fn sizes() {
    let limits = CheckLimits { txn_ops_max: 4, txn_depth_max: 3 };
    let reads = |n: usize| (0..n).map(|_| r("k")).collect::<Vec<_>>();
    let compares = |n: usize| {
        (0..n).map(|_| compare(one("k"), CompareResult::Equal, CompareTarget::Version(0))).collect::<Vec<_>>()
    };
    let cases = [
        (
            "as many as allowed, everywhere",
            Txn { compare: compares(4), success: reads(4), failure: reads(4) },
            true,
        ),
        ("too many compares", Txn { compare: compares(5), ..Txn::default() }, false),
        ("too many in success", success(reads(5)), false),
        ("too many in failure", Txn { failure: reads(5), ..Txn::default() }, false),
        ("nested shares what is left", success(vec![t(reads(3), vec![])]), true),
        ("nested has more than is left", success(vec![t(reads(4), vec![])]), false),
        (
            "compares count against nested",
            Txn { compare: compares(2), ..success(vec![t(reads(3), vec![])]) },
            false,
        ),
        ("three levels", success(vec![t(vec![t(vec![], vec![])], vec![])]), true),
        ("four levels", success(vec![t(vec![t(vec![t(vec![], vec![])], vec![])], vec![])]), false),
    ];
    for (name, txn, good) in cases {
        let expected = if good { Ok(()) } else { Err(Error::TooManyOps) };
        assert_eq!(check_txn(&txn, &limits), expected, "{name}");
    }
}

#[test]
fn the_first_fault_in_order_is_the_one_reported() {
    let limits = CheckLimits { txn_ops_max: 4, txn_depth_max: 32 };
    let bad_compare = || compare(one(""), CompareResult::Equal, CompareTarget::Version(0));
    let keeping = || Operation::Put(Put { ignore_value: true, ..put("k", "v") });
    let leased = || Operation::Put(Put { ignore_lease: true, lease: 1, ..put("k", "v") });
    let wide = || t((0..4).map(|_| r("k")).collect(), vec![]);
    let cases = [
        (Txn { compare: vec![bad_compare()], success: vec![keeping()], failure: vec![] }, Error::EmptyKey),
        (success(vec![keeping(), p("")]), Error::ValueProvided),
        (success(vec![leased(), p("")]), Error::LeaseProvided),
        (success(vec![p(""), keeping()]), Error::EmptyKey),
        (success(vec![r("")]), Error::EmptyKey),
        (success(vec![d("")]), Error::EmptyKey),
        (success(vec![wide(), p("")]), Error::TooManyOps),
        (success(vec![p(""), wide()]), Error::EmptyKey),
        (success(vec![p("k"), p("k"), t(vec![p("")], vec![])]), Error::EmptyKey),
        (Txn { success: vec![p("k"), p("k")], failure: vec![p("")], ..Txn::default() }, Error::EmptyKey),
    ];
    for (txn, expected) in cases {
        assert_eq!(check_txn(&txn, &limits), Err(expected), "{txn:?}");
    }
    assert_eq!(check_range(&get(one(""))), Err(Error::EmptyKey));
    assert_eq!(check_delete_range(&delete(one(""))), Err(Error::EmptyKey));
}

#[test]
fn only_reads_are_read_only() {
    let cases = [
        (Txn::default(), true),
        (success(vec![r("a"), r("b")]), true),
        (Txn { failure: vec![r("a")], ..Txn::default() }, true),
        (success(vec![r("a"), p("b")]), false),
        (Txn { failure: vec![d("a")], ..Txn::default() }, false),
        (success(vec![t(vec![r("a")], vec![])]), false),
    ];
    for (txn, expected) in cases {
        assert_eq!(is_read_only(&txn), expected, "{txn:?}");
    }
}

proptest! {
    /// However ranges overlap, touch and nest, a put is refused exactly if some delete covers it.
    #[test]
    fn a_put_clashes_with_any_delete_that_covers_it(
        deletes in vec((0..30u8, prop::option::of(0..30u8)), 0..12),
        key in 0..30u8,
        at in 0..12usize,
    ) {
        let name = |n: u8| format!("{n:02}");
        let covers = |&(start, end): &(u8, Option<u8>)| match end {
            None => start == key,
            Some(end) => start <= key && key < end,
        };
        let expected = if deletes.iter().any(covers) { Err(Error::DuplicateKey) } else { Ok(()) };
        let mut operations: Vec<Operation> = deletes
            .iter()
            .map(|&(start, end)| match end {
                None => d(&name(start)),
                Some(end) => dr(&name(start), &name(end)),
            })
            .collect();
        operations.insert(at.min(operations.len()), p(&name(key)));
        prop_assert_eq!(check_txn(&success(operations), &CheckLimits::default()), expected);
    }

    #[test]
    fn nested_transactions_clash_as_their_naive_twin_says(operations in vec(nested(), 0..5)) {
        let limits = CheckLimits { txn_ops_max: usize::MAX, ..CheckLimits::default() };
        let expected = naive(&operations).map(drop).ok_or(Error::DuplicateKey);
        prop_assert_eq!(check_txn(&success(operations), &limits), expected);
    }
}

/// Changes of two-byte keys, so many of them that a quarter of all transactions change one twice.
fn nested() -> impl Strategy<Value = Operation> {
    let key = || prop_oneof![2 => 0..2000u16, 1 => 0..40u16].prop_map(|n| n.to_be_bytes().to_vec());
    let put = key().prop_map(|key| Operation::Put(Put { key, ..Put::default() }));
    let delete = (key(), prop_oneof![2 => Just(0u16), 1 => 1..4u16]).prop_map(|(start, width)| {
        let number = u16::from_be_bytes([start[0], start[1]]);
        let end = if width == 0 { vec![] } else { (number + width).to_be_bytes().to_vec() };
        Operation::DeleteRange(delete(KeyRange { start, end }))
    });
    let single = prop_oneof![3 => put, 1 => delete];
    single.prop_recursive(6, 96, 6, |inner| {
        (vec(inner.clone(), 0..6), vec(inner, 0..3)).prop_map(|(a, b)| t(a, b))
    })
}

type Keys = BTreeSet<Vec<u8>>;
type Ranges = Vec<(Vec<u8>, Vec<u8>)>;

/// The keys put and deleted, by the rules of [etcd checkTxn]; `None` if they clash.
fn naive(operations: &[Operation]) -> Option<(Keys, Ranges)> {
    let (mut puts, mut deletes) = (Keys::new(), Ranges::new());
    let put = |key: Vec<u8>, puts: &mut Keys, deletes: &Ranges| {
        let covers = |(start, end): &(Vec<u8>, Vec<u8>)| match &end[..] {
            [] => *start == key,
            end => *start <= key && &key[..] < end,
        };
        (!deletes.iter().any(covers) && puts.insert(key)).then_some(())
    };
    for operation in operations {
        if let Operation::DeleteRange(delete) = operation {
            deletes.push((delete.keys.start.clone(), delete.keys.end.clone()));
        }
    }
    for operation in operations {
        if let Operation::Txn(nested) = operation {
            let (success, failure) = (naive(&nested.success)?, naive(&nested.failure)?);
            for key in &success.0 | &failure.0 {
                put(key, &mut puts, &deletes)?;
            }
            deletes.extend(success.1.into_iter().chain(failure.1));
        }
    }
    for operation in operations {
        if let Operation::Put(of) = operation {
            put(of.key.clone(), &mut puts, &deletes)?;
        }
    }
    Some((puts, deletes))
}
