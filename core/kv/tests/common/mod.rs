//! Shared by the tests of the store: short ways to write requests, and generators of random ones.

pub mod naive;

use kattu_kv::api::{
    Answer, Command, Compare, CompareResult, CompareTarget, DeleteRange, KeyRange, Operation, Put, Query,
    Range, Revision, SortOrder, SortTarget, Txn,
};
use kattu_kv::check::is_read_only;
use proptest::collection::vec;
use proptest::prelude::*;

pub fn one(key: &str) -> KeyRange {
    KeyRange { start: key.into(), end: Vec::new() }
}

pub fn between(start: &str, end: &str) -> KeyRange {
    KeyRange { start: start.into(), end: end.into() }
}

pub fn get(keys: KeyRange) -> Range {
    Range { keys, ..Range::default() }
}

pub fn put(key: &str, value: &str) -> Put {
    Put { key: key.into(), value: value.into(), ..Put::default() }
}

pub fn delete(keys: KeyRange) -> DeleteRange {
    DeleteRange { keys, prev_kv: false }
}

pub fn compare(keys: KeyRange, result: CompareResult, target: CompareTarget) -> Compare {
    Compare { keys, result, target }
}

pub fn success(success: Vec<Operation>) -> Txn {
    Txn { success, ..Txn::default() }
}

/// One thing done to a store.
#[derive(Clone, Debug)]
pub enum Step {
    Apply(Command),
    Query(Query),
    /// Forget what compaction has left, up to so many changes.
    Tidy(usize),
}

/// Few keys, so that random requests meet; their bytes include those with a special meaning.
pub fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => (b'a'..b'h').prop_map(|letter| vec![letter]),
        2 => (0..300u32).prop_map(|n| format!("many/{n:03}").into_bytes()),
        1 => prop::sample::select(vec![&b"\0"[..], b"\0\0", b"a\0", b"a\xff", b"ab", b"abc", b"\xff", b"\xff\xff", b""])
            .prop_map(<[u8]>::to_vec),
    ]
}

fn key_range() -> impl Strategy<Value = KeyRange> {
    let end = prop_oneof![
        4 => Just(Vec::new()),
        2 => key(),
        1 => Just(b"\0".to_vec()),
        1 => Just(b"many0".to_vec()),
    ];
    (key(), end).prop_map(|(start, end)| KeyRange { start, end })
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop::sample::select(vec![&b""[..], b"1", b"2", b"22", b"x"]).prop_map(<[u8]>::to_vec)
}

/// A revision, still relative: see [`rebase`].
fn revision() -> impl Strategy<Value = Revision> {
    prop_oneof![6 => Just(0), 5 => 1..40i64, 1 => -3..0i64].prop_map(Revision)
}

fn rarely() -> impl Strategy<Value = bool> {
    prop::bool::weighted(0.25)
}

pub fn range() -> impl Strategy<Value = Range> {
    let order = prop::sample::select(vec![SortOrder::None, SortOrder::Ascend, SortOrder::Descend]);
    let target = prop_oneof![
        3 => Just(SortTarget::Key),
        4 => prop::sample::select(vec![SortTarget::Version, SortTarget::Create, SortTarget::Mod, SortTarget::Value]),
    ];
    let limit =
        prop_oneof![3 => Just(0), 3 => 1..6i64, 1 => prop::sample::select(vec![-1, i64::MIN, i64::MAX])];
    let bound = || prop_oneof![5 => Just(Revision(0)), 1 => revision()];
    (
        (key_range(), limit, revision(), order, target, rarely(), rarely()),
        (bound(), bound(), bound(), bound()),
    )
        .prop_map(|((keys, limit, revision, order, target, keys_only, count_only), bounds)| Range {
            keys,
            limit,
            revision,
            order,
            target,
            keys_only,
            count_only,
            min_mod_revision: bounds.0,
            max_mod_revision: bounds.1,
            min_create_revision: bounds.2,
            max_create_revision: bounds.3,
        })
}

pub fn any_put() -> impl Strategy<Value = Put> {
    let lease = prop_oneof![20 => Just(0), 1 => Just(7)];
    (key(), value(), lease, any::<bool>(), rarely(), rarely()).prop_map(
        |(key, value, lease, prev_kv, ignore_value, ignore_lease)| Put {
            key,
            value,
            lease,
            prev_kv,
            ignore_value,
            ignore_lease,
        },
    )
}

pub fn delete_range() -> impl Strategy<Value = DeleteRange> {
    (key_range(), any::<bool>()).prop_map(|(keys, prev_kv)| DeleteRange { keys, prev_kv })
}

fn any_compare() -> impl Strategy<Value = Compare> {
    let result = prop::sample::select(vec![
        CompareResult::Equal,
        CompareResult::Greater,
        CompareResult::Less,
        CompareResult::NotEqual,
    ]);
    let target = prop_oneof![
        (0..4i64).prop_map(CompareTarget::Version),
        revision().prop_map(CompareTarget::Create),
        revision().prop_map(CompareTarget::Mod),
        value().prop_map(CompareTarget::Value),
        (0..2i64).prop_map(CompareTarget::Lease),
    ];
    (key_range(), result, target).prop_map(|(keys, result, target)| Compare { keys, result, target })
}

fn txn_of(operation: impl Strategy<Value = Operation> + Clone) -> impl Strategy<Value = Txn> {
    (vec(any_compare(), 0..3), vec(operation.clone(), 0..4), vec(operation, 0..3))
        .prop_map(|(compare, success, failure)| Txn { compare, success, failure })
}

fn operation() -> impl Strategy<Value = Operation> + Clone {
    let leaf = prop_oneof![
        range().prop_map(Operation::Range),
        any_put().prop_map(Operation::Put),
        delete_range().prop_map(Operation::DeleteRange),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| txn_of(inner).prop_map(Operation::Txn))
}

pub fn txn() -> impl Strategy<Value = Txn> {
    txn_of(operation())
}

pub fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        6 => any_put().prop_map(Command::Put),
        2 => delete_range().prop_map(Command::DeleteRange),
        5 => txn().prop_map(Command::Txn),
        1 => revision().prop_map(Command::Compact),
    ]
}

pub fn query() -> impl Strategy<Value = Query> {
    let reads = txn_of(range().prop_map(Operation::Range).boxed());
    prop_oneof![4 => range().prop_map(Query::Range), 1 => reads.prop_map(Query::Txn)]
}

pub fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => command().prop_map(Step::Apply),
        4 => query().prop_map(Step::Query),
        1 => (0..20usize).prop_map(Step::Tidy),
    ]
}

/// Random revisions would mostly miss. Positive ones in a generated step are therefore counted back from just ahead of
/// the current revision, and this function makes them absolute.
pub fn rebase(step: &mut Step, now: Revision) {
    match step {
        Step::Apply(Command::Compact(revision)) => rebase_revision(revision, now),
        Step::Apply(Command::Txn(txn)) | Step::Query(Query::Txn(txn)) => rebase_txn(txn, now),
        Step::Query(Query::Range(range)) => rebase_range(range, now),
        Step::Apply(Command::Put(_) | Command::DeleteRange(_)) | Step::Tidy(_) => {}
    }
}

fn rebase_revision(revision: &mut Revision, now: Revision) {
    if revision.0 > 0 {
        revision.0 = (now.0 + 3 - revision.0).max(1);
    }
}

fn rebase_range(range: &mut Range, now: Revision) {
    let revisions = [
        &mut range.revision,
        &mut range.min_mod_revision,
        &mut range.max_mod_revision,
        &mut range.min_create_revision,
        &mut range.max_create_revision,
    ];
    revisions.into_iter().for_each(|revision| rebase_revision(revision, now));
}

fn rebase_txn(txn: &mut Txn, now: Revision) {
    for compare in &mut txn.compare {
        if let CompareTarget::Create(revision) | CompareTarget::Mod(revision) = &mut compare.target {
            rebase_revision(revision, now);
        }
    }
    for operation in txn.success.iter_mut().chain(&mut txn.failure) {
        match operation {
            Operation::Range(range) => rebase_range(range, now),
            Operation::Txn(nested) => rebase_txn(nested, now),
            Operation::Put(_) | Operation::DeleteRange(_) => {}
        }
    }
}

/// The pairs as text, for tables: `a=1 b=2`.
pub fn pairs(answer: &Answer) -> String {
    let Answer::Range(range) = answer else { panic!("no range answer: {answer:?}") };
    let pair = |kv: &kattu_kv::api::KeyValue| {
        format!("{}={}", String::from_utf8_lossy(&kv.key), String::from_utf8_lossy(&kv.value))
    };
    range.kvs.iter().map(pair).collect::<Vec<_>>().join(" ")
}

/// Whether the step is valid for any store: a query must not write.
pub fn is_askable(step: &Step) -> bool {
    !matches!(step, Step::Query(Query::Txn(txn)) if !is_read_only(txn))
}
