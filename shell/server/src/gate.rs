//! The gate: every check that needs no store, in etcd's order, before anything is proposed.
//!
//! The first fault found is the one that is reported, so the order matters: etcd walks a transaction top-down (limits,
//! compared keys, then each operation of each branch) and looks for duplicate keys only if all that is valid.
//! [etcd server/etcdserver/api/v3rpc/key.go]
//! Knows nothing of: the store's state, transports.

use crate::errors::{self, EtcdError};
use crate::skim::{TXN_DEPTH_READ, fields};
use kattu_kv::api;
use kattu_kv::check::CheckLimits;
use kattu_kv::command::TXN_DEPTH_MAX;
use kattu_proto::etcdserverpb as pb;
use pb::range_request::{SortOrder, SortTarget};

/// Most operations and compares of a transaction, nested ones included. Its cost is computed before it is carried out,
/// which takes an index lookup for each of them. As many as one slice of work has units.
const TXN_IN_ALL_MAX: usize = 8192;

/// Checks a range read.
///
/// # Errors
/// An empty key, or a sort option without a name.
pub fn check_range(request: &pb::RangeRequest) -> Result<(), EtcdError> {
    if request.key.is_empty() {
        return Err(errors::EMPTY_KEY);
    }
    let order_known = SortOrder::try_from(request.sort_order).is_ok();
    let target_known = SortTarget::try_from(request.sort_target).is_ok();
    if !order_known || !target_known {
        return Err(errors::INVALID_SORT_OPTION);
    }
    Ok(())
}

/// Checks a put.
///
/// # Errors
/// An empty key; a value or a lease together with its ignore flag.
pub fn check_put(request: &pb::PutRequest) -> Result<(), EtcdError> {
    if request.key.is_empty() {
        return Err(errors::EMPTY_KEY);
    }
    if request.ignore_value && !request.value.is_empty() {
        return Err(errors::VALUE_PROVIDED);
    }
    if request.ignore_lease && request.lease != 0 {
        return Err(errors::LEASE_PROVIDED);
    }
    Ok(())
}

/// Checks a delete.
///
/// # Errors
/// An empty key.
pub fn check_delete_range(request: &pb::DeleteRangeRequest) -> Result<(), EtcdError> {
    if request.key.is_empty() { Err(errors::EMPTY_KEY) } else { Ok(()) }
}

/// Checks the number of a transaction's operations and compares before it is unpacked: [`check_txn`] refuses the same
/// numbers, but by then each takes many times its bytes. Too many is the first error reported, whatever else is wrong.
///
/// # Errors
/// Too many operations.
pub(crate) fn check_txn_bytes(message: &[u8], ops_max: usize) -> Result<(), EtcdError> {
    for list in 1..=3 {
        if ops_max < fields(message).filter(|(tag, _)| *tag == list).take(ops_max + 1).count() {
            return Err(errors::TOO_MANY_OPS);
        }
    }
    let mut in_all = in_all_max(ops_max);
    count_txn(message, TXN_DEPTH_READ, &mut in_all).ok_or(errors::TOO_MANY_OPS)
}

/// Subtracts a transaction's operations and compares from `in_all`; none if it has more.
fn count_txn(message: &[u8], depth: usize, in_all: &mut usize) -> Option<()> {
    for (tag, field) in fields(message) {
        if (1..=3).contains(&tag) {
            *in_all = in_all.checked_sub(1)?;
        }
        if (2..=3).contains(&tag) && 1 < depth {
            for (_, inner) in fields(field).filter(|(tag, _)| *tag == 4) {
                count_txn(inner, depth - 1, in_all)?;
            }
        }
    }
    Some(())
}

/// Operations and compares of one transaction with all that are nested in it: one level has three lists of so many.
pub(crate) fn in_all_max(ops_max: usize) -> usize {
    TXN_IN_ALL_MAX.max(ops_max.saturating_mul(3))
}

/// Checks a transaction, except for duplicate keys.
///
/// # Errors
/// Too many operations, an empty key, an operation without a request, or an error of an operation's own check.
pub fn check_txn(request: &pb::TxnRequest, ops_max: usize) -> Result<(), EtcdError> {
    check_txn_at(request, ops_max, 1, &mut in_all_max(ops_max))
}

/// Checks that a transaction changes no key twice; the last check of all.
///
/// # Errors
/// Duplicate keys.
pub(crate) fn check_duplicates(txn: &api::Txn, ops_max: usize) -> Result<(), EtcdError> {
    let limits = CheckLimits { txn_ops_max: ops_max, ..CheckLimits::default() };
    kattu_kv::check::check_txn(txn, &limits).map_err(errors::of_store)
}

/// `in_all`: operations and compares that may still follow.
fn check_txn_at(
    request: &pb::TxnRequest,
    ops_max: usize,
    depth: usize,
    in_all: &mut usize,
) -> Result<(), EtcdError> {
    let ops = request.compare.len().max(request.success.len()).max(request.failure.len());
    if ops > ops_max || depth > TXN_DEPTH_MAX {
        return Err(errors::TOO_MANY_OPS);
    }
    let here = request.compare.len() + request.success.len() + request.failure.len();
    *in_all = in_all.checked_sub(here).ok_or(errors::TOO_MANY_OPS)?;
    if request.compare.iter().any(|compare| compare.key.is_empty()) {
        return Err(errors::EMPTY_KEY);
    }
    let branches = request.success.iter().chain(&request.failure);
    for op in branches {
        check_op(op, ops_max - ops, depth, in_all)?;
    }
    Ok(())
}

fn check_op(op: &pb::RequestOp, ops_max: usize, depth: usize, in_all: &mut usize) -> Result<(), EtcdError> {
    use pb::request_op::Request;
    match &op.request {
        Some(Request::RequestRange(range)) => check_range(range),
        Some(Request::RequestPut(put)) => check_put(put),
        Some(Request::RequestDeleteRange(delete)) => check_delete_range(delete),
        Some(Request::RequestTxn(txn)) => check_txn_at(txn, ops_max, depth + 1, in_all),
        None => Err(errors::KEY_NOT_FOUND),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pb::request_op::Request;
    use prost::Message;

    fn op(request: Request) -> pb::RequestOp {
        pb::RequestOp { request: Some(request) }
    }

    fn put(key: &str) -> pb::RequestOp {
        op(Request::RequestPut(pb::PutRequest { key: key.into(), ..Default::default() }))
    }

    fn txn(success: Vec<pb::RequestOp>) -> pb::TxnRequest {
        pb::TxnRequest { success, ..Default::default() }
    }

    #[test]
    fn a_range_needs_a_key_before_it_needs_a_sort_option() {
        let range = |key: &str, order, target| pb::RangeRequest {
            key: key.into(),
            sort_order: order,
            sort_target: target,
            ..Default::default()
        };
        assert_eq!(check_range(&range("", 9, 9)), Err(errors::EMPTY_KEY));
        assert_eq!(check_range(&range("a", 3, 0)), Err(errors::INVALID_SORT_OPTION));
        assert_eq!(check_range(&range("a", 0, 5)), Err(errors::INVALID_SORT_OPTION));
        assert_eq!(check_range(&range("a", -1, 0)), Err(errors::INVALID_SORT_OPTION));
        assert_eq!(check_range(&range("a", 2, 4)), Ok(()));
    }

    #[test]
    fn what_is_ignored_must_not_be_provided() {
        let base = pb::PutRequest { key: b"k".to_vec(), ..Default::default() };
        let value = pb::PutRequest { value: b"v".to_vec(), ignore_value: true, ..base.clone() };
        let lease = pb::PutRequest { lease: 1, ignore_lease: true, ..base.clone() };
        assert_eq!(check_put(&value), Err(errors::VALUE_PROVIDED));
        assert_eq!(check_put(&lease), Err(errors::LEASE_PROVIDED));
        assert_eq!(check_put(&pb::PutRequest { ignore_value: true, ignore_lease: true, ..base }), Ok(()));
        assert_eq!(
            check_put(&pb::PutRequest { ignore_value: true, ..Default::default() }),
            Err(errors::EMPTY_KEY)
        );
    }

    #[test]
    fn a_txn_is_told_its_size_first_then_its_keys_then_its_operations() {
        let empty_op = pb::RequestOp { request: None };
        let too_many = txn(vec![empty_op.clone(); 4]);
        assert_eq!(check_txn(&too_many, 3), Err(errors::TOO_MANY_OPS));
        assert_eq!(check_txn(&too_many, 4), Err(errors::KEY_NOT_FOUND));
        let compared = pb::TxnRequest { compare: vec![pb::Compare::default()], ..too_many };
        assert_eq!(check_txn(&compared, 4), Err(errors::EMPTY_KEY));
        assert_eq!(check_txn(&txn(vec![put(""), empty_op]), 4), Err(errors::EMPTY_KEY));
        assert_eq!(check_txn(&txn(vec![]), 0), Ok(()));
    }

    #[test]
    fn nested_txns_share_what_their_parents_leave() {
        let inner = txn(vec![put("a"), put("b")]);
        let outer = txn(vec![op(Request::RequestTxn(inner))]);
        assert_eq!(check_txn(&outer, 3), Ok(()));
        assert_eq!(check_txn(&outer, 2), Err(errors::TOO_MANY_OPS));
    }

    /// Sixty transactions beside each other may each have what their parent leaves, in both branches.
    #[test]
    fn all_that_is_nested_has_a_limit_together() {
        let get = op(Request::RequestRange(pb::RangeRequest { key: b"k".to_vec(), ..Default::default() }));
        let sixty_of = |failure: usize| {
            let failure = vec![get.clone(); failure];
            let inner = pb::TxnRequest { failure, ..txn(vec![get.clone(); 68]) };
            txn(vec![op(Request::RequestTxn(inner)); 60])
        };
        assert_eq!(check_txn(&sixty_of(67), 128), Ok(()), "8,160 in all");
        assert_eq!(check_txn(&sixty_of(68), 128), Err(errors::TOO_MANY_OPS), "8,220 in all");
        assert_eq!(check_txn(&sixty_of(68), 2_740), Ok(()), "a third of it in one list, all of it in three");
        let compare = vec![pb::Compare { key: b"k".to_vec(), ..Default::default() }; 10_000];
        let flat = pb::TxnRequest { compare, failure: vec![get.clone(); 10_000], ..txn(vec![get; 10_000]) };
        assert_eq!(check_txn(&flat, 10_000), Ok(()), "three full lists, as ever");
    }

    /// Before it is unpacked a transaction is refused for the same numbers and with the same text.
    #[test]
    fn a_txn_in_bytes_has_the_limits_of_one_that_is_unpacked() {
        let get = op(Request::RequestRange(pb::RangeRequest { key: b"k".to_vec(), ..Default::default() }));
        let compare = pb::Compare { key: b"k".to_vec(), ..Default::default() };
        let flat = |compares: usize, success: usize, failure: usize| pb::TxnRequest {
            compare: vec![compare.clone(); compares],
            success: vec![get.clone(); success],
            failure: vec![get.clone(); failure],
        };
        let sixty_of = |failure: usize| txn(vec![op(Request::RequestTxn(flat(0, 68, failure))); 60]);
        let table = [
            (flat(128, 128, 128), 128, Ok(())),
            (flat(129, 0, 0), 128, Err(errors::TOO_MANY_OPS)),
            (flat(0, 129, 0), 128, Err(errors::TOO_MANY_OPS)),
            (flat(0, 0, 129), 128, Err(errors::TOO_MANY_OPS)),
            (sixty_of(67), 128, Ok(())),
            (sixty_of(68), 128, Err(errors::TOO_MANY_OPS)),
            (sixty_of(68), 2_740, Ok(())),
            (flat(10_000, 10_000, 10_000), 10_000, Ok(())),
            (flat(0, 0, 0), 0, Ok(())),
        ];
        for (request, ops_max, judged) in table {
            assert_eq!(check_txn(&request, ops_max), judged);
            assert_eq!(check_txn_bytes(&request.encode_to_vec(), ops_max), judged);
        }
    }

    #[test]
    fn nesting_has_a_limit_of_its_own() {
        let nest = |levels: usize| {
            (0..levels).fold(txn(vec![]), |inner, _| txn(vec![op(Request::RequestTxn(inner))]))
        };
        assert_eq!(check_txn(&nest(TXN_DEPTH_MAX - 1), 1000), Ok(()));
        assert_eq!(check_txn(&nest(TXN_DEPTH_MAX), 1000), Err(errors::TOO_MANY_OPS));
    }
}
