//! etcd's messages ↔ the store's types: requests inwards, responses outwards.
//!
//! Inwards only requests that passed the gate; outwards with the headers etcd gives to responses inside a transaction.
//! Knows nothing of: bytes on the wire, members, terms.

use kattu_kv::api;
use kattu_proto::{etcdserverpb as pb, mvccpb};
use pb::compare::{CompareResult, CompareTarget, TargetUnion};
use pb::range_request::{SortOrder, SortTarget};
use pb::{request_op, response_op};

/// A range read.
#[must_use]
pub fn range(request: pb::RangeRequest) -> api::Range {
    api::Range {
        order: match request.sort_order() {
            SortOrder::None => api::SortOrder::None,
            SortOrder::Ascend => api::SortOrder::Ascend,
            SortOrder::Descend => api::SortOrder::Descend,
        },
        target: match request.sort_target() {
            SortTarget::Key => api::SortTarget::Key,
            SortTarget::Version => api::SortTarget::Version,
            SortTarget::Create => api::SortTarget::Create,
            SortTarget::Mod => api::SortTarget::Mod,
            SortTarget::Value => api::SortTarget::Value,
        },
        keys: api::KeyRange { start: request.key, end: request.range_end },
        limit: request.limit,
        revision: api::Revision(request.revision),
        keys_only: request.keys_only,
        count_only: request.count_only,
        min_mod_revision: api::Revision(request.min_mod_revision),
        max_mod_revision: api::Revision(request.max_mod_revision),
        min_create_revision: api::Revision(request.min_create_revision),
        max_create_revision: api::Revision(request.max_create_revision),
    }
}

/// A put.
#[must_use]
pub fn put(request: pb::PutRequest) -> api::Put {
    api::Put {
        key: request.key,
        value: request.value,
        lease: request.lease,
        prev_kv: request.prev_kv,
        ignore_value: request.ignore_value,
        ignore_lease: request.ignore_lease,
    }
}

/// A delete.
#[must_use]
pub fn delete_range(request: pb::DeleteRangeRequest) -> api::DeleteRange {
    api::DeleteRange {
        keys: api::KeyRange { start: request.key, end: request.range_end },
        prev_kv: request.prev_kv,
    }
}

/// A transaction.
///
/// # Panics
/// If an operation has no request, or transactions nest without bound: the gate refuses both.
#[must_use]
pub fn txn(request: pb::TxnRequest) -> api::Txn {
    api::Txn {
        compare: request.compare.into_iter().map(compare).collect(),
        success: request.success.into_iter().map(operation).collect(),
        failure: request.failure.into_iter().map(operation).collect(),
    }
}

fn operation(op: pb::RequestOp) -> api::Operation {
    match op.request.expect("the gate refuses an operation without a request") {
        request_op::Request::RequestRange(request) => api::Operation::Range(range(request)),
        request_op::Request::RequestPut(request) => api::Operation::Put(put(request)),
        request_op::Request::RequestDeleteRange(request) => {
            api::Operation::DeleteRange(delete_range(request))
        }
        request_op::Request::RequestTxn(request) => api::Operation::Txn(txn(request)),
    }
}

/// One condition. etcd reads an operand of another kind than the target as zero, an unknown operator as true, and an
/// unknown target as equal to its operand. The latter two become compares of the version, which is never below 0.
fn compare(compare: pb::Compare) -> api::Compare {
    let number = match &compare.target_union {
        Some(TargetUnion::Version(n)) if compare.target == CompareTarget::Version as i32 => *n,
        Some(TargetUnion::CreateRevision(n)) if compare.target == CompareTarget::Create as i32 => *n,
        Some(TargetUnion::ModRevision(n)) if compare.target == CompareTarget::Mod as i32 => *n,
        Some(TargetUnion::Lease(n)) if compare.target == CompareTarget::Lease as i32 => *n,
        _ => 0,
    };
    let result = CompareResult::try_from(compare.result).ok().map(|result| match result {
        CompareResult::Equal => api::CompareResult::Equal,
        CompareResult::Greater => api::CompareResult::Greater,
        CompareResult::Less => api::CompareResult::Less,
        CompareResult::NotEqual => api::CompareResult::NotEqual,
    });
    let always = (api::CompareResult::Greater, api::CompareTarget::Version(-1));
    let never = (api::CompareResult::Less, api::CompareTarget::Version(0));
    let exists = (api::CompareResult::Greater, api::CompareTarget::Version(0));
    let (result, target) = match (CompareTarget::try_from(compare.target).ok(), result) {
        (Some(CompareTarget::Value), None) => exists,
        (_, None) | (None, Some(api::CompareResult::Equal)) => always,
        (None, Some(_)) => never,
        (Some(target), Some(result)) => {
            let target = match target {
                CompareTarget::Version => api::CompareTarget::Version(number),
                CompareTarget::Create => api::CompareTarget::Create(api::Revision(number)),
                CompareTarget::Mod => api::CompareTarget::Mod(api::Revision(number)),
                CompareTarget::Lease => api::CompareTarget::Lease(number),
                CompareTarget::Value => api::CompareTarget::Value(match compare.target_union {
                    Some(TargetUnion::Value(value)) => value,
                    _ => Vec::new(),
                }),
            };
            (result, target)
        }
    };
    api::Compare { keys: api::KeyRange { start: compare.key, end: compare.range_end }, result, target }
}

/// One pair.
#[must_use]
pub(crate) fn key_value(kv: &api::KeyValue) -> mvccpb::KeyValue {
    mvccpb::KeyValue {
        key: kv.key.to_vec(),
        create_revision: kv.create_revision.0,
        mod_revision: kv.mod_revision.0,
        version: kv.version,
        value: kv.value.to_vec(),
        lease: kv.lease,
    }
}

/// The response to a range read.
#[must_use]
pub fn range_response(header: pb::ResponseHeader, result: &api::RangeResult) -> pb::RangeResponse {
    pb::RangeResponse {
        header: Some(header),
        kvs: result.kvs.iter().map(key_value).collect(),
        more: result.more,
        count: result.count,
    }
}

/// The response to a transaction that left the store at `revision`. Responses inside it have a header with a revision
/// and nothing else; the header of a transaction inside it is there, but empty.
#[must_use]
pub(crate) fn txn_response(
    header: pb::ResponseHeader,
    revision: api::Revision,
    succeeded: bool,
    answers: &[api::Answer],
) -> pb::TxnResponse {
    let responses = answers.iter().map(|answer| response_op(answer, revision)).collect();
    pb::TxnResponse { header: Some(header), succeeded, responses }
}

fn response_op(answer: &api::Answer, revision: api::Revision) -> pb::ResponseOp {
    use response_op::Response;
    let response = match answer {
        api::Answer::Range(result) => {
            Some(Response::ResponseRange(range_response(inner_header(result.revision), result)))
        }
        api::Answer::Put { prev_kv } => Some(Response::ResponsePut(pb::PutResponse {
            header: Some(inner_header(revision)),
            prev_kv: prev_kv.as_ref().map(key_value),
        })),
        api::Answer::DeleteRange { deleted, prev_kvs, revision } => {
            Some(Response::ResponseDeleteRange(pb::DeleteRangeResponse {
                header: Some(inner_header(*revision)),
                deleted: *deleted,
                prev_kvs: prev_kvs.iter().map(key_value).collect(),
            }))
        }
        api::Answer::Txn { succeeded, answers } => Some(Response::ResponseTxn(txn_response(
            pb::ResponseHeader::default(),
            revision,
            *succeeded,
            answers,
        ))),
        api::Answer::Compact => None,
    };
    pb::ResponseOp { response }
}

/// The header of an operation's response within the response to a transaction at this revision.
#[must_use]
pub(crate) fn operation_header(revision: api::Revision, answer: &api::Answer) -> pb::ResponseHeader {
    match answer {
        api::Answer::Range(result) => inner_header(result.revision),
        api::Answer::DeleteRange { revision, .. } => inner_header(*revision),
        api::Answer::Put { .. } => inner_header(revision),
        api::Answer::Txn { .. } | api::Answer::Compact => pb::ResponseHeader::default(),
    }
}

fn inner_header(revision: api::Revision) -> pb::ResponseHeader {
    pb::ResponseHeader { revision: revision.0, ..Default::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::Answer;

    fn revisions(response: &pb::TxnResponse) -> Vec<i64> {
        let mut found = Vec::new();
        for op in &response.responses {
            match op.response.as_ref().expect("every operation has an answer") {
                response_op::Response::ResponseRange(r) => found.push(r.header.as_ref().unwrap().revision),
                response_op::Response::ResponsePut(r) => found.push(r.header.as_ref().unwrap().revision),
                response_op::Response::ResponseDeleteRange(r) => {
                    found.push(r.header.as_ref().unwrap().revision)
                }
                response_op::Response::ResponseTxn(r) => {
                    assert_eq!(r.header, Some(pb::ResponseHeader::default()), "present but empty");
                    found.extend(revisions(r));
                }
            }
        }
        found
    }

    #[test]
    fn inner_answers_show_their_own_revision_and_inner_txns_an_empty_header() {
        let get = |revision| {
            Answer::Range(api::RangeResult { revision: api::Revision(revision), ..Default::default() })
        };
        let delete = |deleted, revision| Answer::DeleteRange {
            deleted,
            prev_kvs: vec![],
            revision: api::Revision(revision),
        };
        let nested =
            Answer::Txn { succeeded: true, answers: vec![get(7), Answer::Put { prev_kv: None }, get(8)] };
        let answers = [get(7), delete(0, 7), nested, get(8), delete(1, 8)];
        let response = txn_response(pb::ResponseHeader::default(), api::Revision(8), true, &answers);
        assert_eq!(revisions(&response), [7, 7, 7, 8, 8, 8, 8]);
    }

    #[test]
    fn an_operand_of_another_kind_counts_as_zero() {
        let request = pb::Compare {
            target: CompareTarget::Mod as i32,
            target_union: Some(TargetUnion::Version(7)),
            ..Default::default()
        };
        assert_eq!(compare(request).target, api::CompareTarget::Mod(api::Revision::NONE));
        let request = pb::Compare {
            target: CompareTarget::Value as i32,
            target_union: Some(TargetUnion::Lease(7)),
            ..Default::default()
        };
        assert_eq!(compare(request).target, api::CompareTarget::Value(Vec::new()));
    }

    #[test]
    fn unknown_operators_hold_and_unknown_targets_are_equal_as_in_etcd() {
        let ask = |target, result| {
            let compared = compare(pb::Compare { target, result, ..Default::default() });
            (compared.result, compared.target)
        };
        let always = (api::CompareResult::Greater, api::CompareTarget::Version(-1));
        let never = (api::CompareResult::Less, api::CompareTarget::Version(0));
        assert_eq!(ask(CompareTarget::Mod as i32, 9), always);
        assert_eq!(ask(9, CompareResult::Equal as i32), always);
        assert_eq!(ask(9, CompareResult::Less as i32), never);
        assert_eq!(ask(9, CompareResult::NotEqual as i32), never);
        // A value is never anything on a missing key, whatever the operator.
        let exists = (api::CompareResult::Greater, api::CompareTarget::Version(0));
        assert_eq!(ask(CompareTarget::Value as i32, 9), exists);
    }
}
