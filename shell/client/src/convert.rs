//! The store's types ↔ etcd's messages: requests outwards, responses inwards.
//!
//! Rule: a response without the part that its request asks for is no answer: a server other than etcd and Kattu made it.
//! Knows nothing of: calls, errors of the store.

use kattu_kv::api::{
    Answer, Compare, CompareResult, CompareTarget, DeleteRange, Key, KeyValue, Operation, Put, Range,
    RangeResult, Response, Revision, SortOrder, SortTarget, Txn, Value,
};
use kattu_proto::{etcdserverpb as pb, mvccpb};
use pb::compare::{CompareResult as PbResult, CompareTarget as PbTarget, TargetUnion};
use pb::range_request::{SortOrder as PbOrder, SortTarget as PbSort};
use pb::request_op::Request;
use pb::response_op::Response as OpResponse;

pub(crate) fn put(put: Put) -> pb::PutRequest {
    let Put { key, value, lease, prev_kv, ignore_value, ignore_lease } = put;
    pb::PutRequest { key, value, lease, prev_kv, ignore_value, ignore_lease }
}

pub(crate) fn range(range: Range) -> pb::RangeRequest {
    pb::RangeRequest {
        key: range.keys.start,
        range_end: range.keys.end,
        limit: range.limit,
        revision: range.revision.0,
        sort_order: match range.order {
            SortOrder::None => PbOrder::None,
            SortOrder::Ascend => PbOrder::Ascend,
            SortOrder::Descend => PbOrder::Descend,
        } as i32,
        sort_target: match range.target {
            SortTarget::Key => PbSort::Key,
            SortTarget::Version => PbSort::Version,
            SortTarget::Create => PbSort::Create,
            SortTarget::Mod => PbSort::Mod,
            SortTarget::Value => PbSort::Value,
        } as i32,
        serializable: false, // the client's level sets it
        keys_only: range.keys_only,
        count_only: range.count_only,
        min_mod_revision: range.min_mod_revision.0,
        max_mod_revision: range.max_mod_revision.0,
        min_create_revision: range.min_create_revision.0,
        max_create_revision: range.max_create_revision.0,
    }
}

pub(crate) fn delete_range(delete: DeleteRange) -> pb::DeleteRangeRequest {
    let DeleteRange { keys, prev_kv } = delete;
    pb::DeleteRangeRequest { key: keys.start, range_end: keys.end, prev_kv }
}

pub(crate) fn txn(txn: Txn) -> pb::TxnRequest {
    pb::TxnRequest {
        compare: txn.compare.into_iter().map(compare).collect(),
        success: txn.success.into_iter().map(operation).collect(),
        failure: txn.failure.into_iter().map(operation).collect(),
    }
}

fn operation(operation: Operation) -> pb::RequestOp {
    let request = match operation {
        Operation::Range(it) => Request::RequestRange(range(it)),
        Operation::Put(it) => Request::RequestPut(put(it)),
        Operation::DeleteRange(it) => Request::RequestDeleteRange(delete_range(it)),
        Operation::Txn(it) => Request::RequestTxn(txn(it)),
    };
    pb::RequestOp { request: Some(request) }
}

fn compare(compare: Compare) -> pb::Compare {
    let (target, union) = match compare.target {
        CompareTarget::Version(version) => (PbTarget::Version, TargetUnion::Version(version)),
        CompareTarget::Create(revision) => (PbTarget::Create, TargetUnion::CreateRevision(revision.0)),
        CompareTarget::Mod(revision) => (PbTarget::Mod, TargetUnion::ModRevision(revision.0)),
        CompareTarget::Value(value) => (PbTarget::Value, TargetUnion::Value(value)),
        CompareTarget::Lease(lease) => (PbTarget::Lease, TargetUnion::Lease(lease)),
    };
    let result = match compare.result {
        CompareResult::Equal => PbResult::Equal,
        CompareResult::Greater => PbResult::Greater,
        CompareResult::Less => PbResult::Less,
        CompareResult::NotEqual => PbResult::NotEqual,
    };
    pb::Compare {
        result: result as i32,
        target: target as i32,
        key: compare.keys.start,
        range_end: compare.keys.end,
        target_union: Some(union),
    }
}

pub(crate) fn of_put(response: pb::PutResponse) -> Response {
    let answer = Answer::Put { prev_kv: response.prev_kv.map(of_pair) };
    Response { revision: of_header(response.header.as_ref()), answer }
}

pub(crate) fn of_range(response: pb::RangeResponse) -> RangeResult {
    RangeResult {
        revision: of_header(response.header.as_ref()),
        kvs: response.kvs.into_iter().map(of_pair).collect(),
        more: response.more,
        count: response.count,
    }
}

pub(crate) fn of_delete_range(response: pb::DeleteRangeResponse) -> Response {
    let revision = of_header(response.header.as_ref());
    let prev_kvs = response.prev_kvs.into_iter().map(of_pair).collect();
    Response { revision, answer: Answer::DeleteRange { deleted: response.deleted, prev_kvs, revision } }
}

/// `None` if an operation has no response.
pub(crate) fn of_txn(response: pb::TxnResponse) -> Option<Response> {
    let revision = of_header(response.header.as_ref());
    let answers = response.responses.into_iter().map(of_operation).collect::<Option<_>>()?;
    Some(Response { revision, answer: Answer::Txn { succeeded: response.succeeded, answers } })
}

pub(crate) fn of_compact(response: pb::CompactionResponse) -> Response {
    Response { revision: of_header(response.header.as_ref()), answer: Answer::Compact }
}

fn of_operation(response: pb::ResponseOp) -> Option<Answer> {
    Some(match response.response? {
        OpResponse::ResponseRange(it) => Answer::Range(of_range(it)),
        OpResponse::ResponsePut(it) => of_put(it).answer,
        OpResponse::ResponseDeleteRange(it) => of_delete_range(it).answer,
        OpResponse::ResponseTxn(it) => of_txn(it)?.answer,
    })
}

fn of_header(header: Option<&pb::ResponseHeader>) -> Revision {
    Revision(header.map_or(0, |header| header.revision))
}

fn of_pair(pair: mvccpb::KeyValue) -> KeyValue {
    KeyValue {
        key: Key::from(pair.key),
        create_revision: Revision(pair.create_revision),
        mod_revision: Revision(pair.mod_revision),
        version: pair.version,
        value: Value::from(&pair.value[..]),
        lease: pair.lease,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kattu_kv::api::KeyRange;

    fn keys() -> KeyRange {
        KeyRange { start: b"a".to_vec(), end: b"b".to_vec() }
    }

    #[test]
    fn each_field_of_a_request_arrives_in_its_own_place() {
        let asked = Range {
            keys: keys(),
            limit: 1,
            revision: Revision(2),
            order: SortOrder::Descend,
            target: SortTarget::Mod,
            keys_only: true,
            count_only: false,
            min_mod_revision: Revision(3),
            max_mod_revision: Revision(4),
            min_create_revision: Revision(5),
            max_create_revision: Revision(6),
        };
        let expected = pb::RangeRequest {
            key: b"a".to_vec(),
            range_end: b"b".to_vec(),
            limit: 1,
            revision: 2,
            sort_order: PbOrder::Descend as i32,
            sort_target: PbSort::Mod as i32,
            serializable: false,
            keys_only: true,
            count_only: false,
            min_mod_revision: 3,
            max_mod_revision: 4,
            min_create_revision: 5,
            max_create_revision: 6,
        };
        assert_eq!(range(asked.clone()), expected);
        let write = Put {
            key: b"k".to_vec(),
            value: b"v".to_vec(),
            lease: 7,
            prev_kv: true,
            ignore_value: false,
            ignore_lease: true,
        };
        let pb_write = pb::PutRequest {
            key: b"k".to_vec(),
            value: b"v".to_vec(),
            lease: 7,
            prev_kv: true,
            ignore_value: false,
            ignore_lease: true,
        };
        assert_eq!(put(write.clone()), pb_write);
        let delete = DeleteRange { keys: keys(), prev_kv: true };
        let pb_delete =
            pb::DeleteRangeRequest { key: b"a".to_vec(), range_end: b"b".to_vec(), prev_kv: true };
        assert_eq!(delete_range(delete.clone()), pb_delete);
        let inner = Txn { success: vec![Operation::Put(write)], ..Txn::default() };
        let whole = Txn {
            compare: vec![],
            success: vec![Operation::Range(asked), Operation::Txn(inner)],
            failure: vec![Operation::DeleteRange(delete)],
        };
        let op = |request| pb::RequestOp { request: Some(request) };
        let pb_inner =
            pb::TxnRequest { success: vec![op(Request::RequestPut(pb_write))], ..Default::default() };
        let expected = pb::TxnRequest {
            compare: vec![],
            success: vec![op(Request::RequestRange(expected)), op(Request::RequestTxn(pb_inner))],
            failure: vec![op(Request::RequestDeleteRange(pb_delete))],
        };
        assert_eq!(txn(whole), expected);
    }

    #[test]
    fn each_comparison_has_its_target_its_operand_and_its_operator() {
        let targets = [
            (CompareTarget::Version(1), PbTarget::Version, TargetUnion::Version(1)),
            (CompareTarget::Create(Revision(2)), PbTarget::Create, TargetUnion::CreateRevision(2)),
            (CompareTarget::Mod(Revision(3)), PbTarget::Mod, TargetUnion::ModRevision(3)),
            (CompareTarget::Value(b"v".to_vec()), PbTarget::Value, TargetUnion::Value(b"v".to_vec())),
            (CompareTarget::Lease(5), PbTarget::Lease, TargetUnion::Lease(5)),
        ];
        let results = [
            (CompareResult::Equal, PbResult::Equal),
            (CompareResult::Greater, PbResult::Greater),
            (CompareResult::Less, PbResult::Less),
            (CompareResult::NotEqual, PbResult::NotEqual),
        ];
        for (target, pb_target, union) in targets {
            for (result, pb_result) in results {
                let expected = pb::Compare {
                    result: pb_result as i32,
                    target: pb_target as i32,
                    key: b"a".to_vec(),
                    range_end: b"b".to_vec(),
                    target_union: Some(union.clone()),
                };
                assert_eq!(compare(Compare { keys: keys(), result, target: target.clone() }), expected);
            }
        }
    }

    #[test]
    fn answers_of_a_transaction_keep_their_own_revisions_and_one_that_is_missing_is_none() {
        let header = |revision| Some(pb::ResponseHeader { revision, ..Default::default() });
        let pair = mvccpb::KeyValue {
            key: b"k".to_vec(),
            create_revision: 2,
            mod_revision: 3,
            version: 4,
            value: b"v".to_vec(),
            lease: 5,
        };
        let op = |response| pb::ResponseOp { response: Some(response) };
        let read = pb::RangeResponse { header: header(6), kvs: vec![pair.clone()], more: true, count: 9 };
        let deleted = pb::DeleteRangeResponse { header: header(7), deleted: 1, prev_kvs: vec![pair.clone()] };
        let written = pb::PutResponse { header: header(7), prev_kv: Some(pair) };
        let inner = pb::TxnResponse {
            succeeded: false,
            responses: vec![op(OpResponse::ResponsePut(written))],
            ..Default::default()
        };
        let whole = pb::TxnResponse {
            header: header(7),
            succeeded: true,
            responses: vec![
                op(OpResponse::ResponseRange(read)),
                op(OpResponse::ResponseDeleteRange(deleted)),
                op(OpResponse::ResponseTxn(inner)),
            ],
        };
        let pair = KeyValue {
            key: Key::from(&b"k"[..]),
            create_revision: Revision(2),
            mod_revision: Revision(3),
            version: 4,
            value: Value::from(&b"v"[..]),
            lease: 5,
        };
        let kvs = vec![pair.clone()];
        let answers = vec![
            Answer::Range(RangeResult { kvs: kvs.clone(), more: true, count: 9, revision: Revision(6) }),
            Answer::DeleteRange { deleted: 1, prev_kvs: kvs, revision: Revision(7) },
            Answer::Txn { succeeded: false, answers: vec![Answer::Put { prev_kv: Some(pair) }] },
        ];
        let expected = Response { revision: Revision(7), answer: Answer::Txn { succeeded: true, answers } };
        assert_eq!(of_txn(whole.clone()), Some(expected));
        let holed = pb::TxnResponse { responses: vec![pb::ResponseOp { response: None }], ..whole };
        assert_eq!(of_txn(holed), None);
    }
}
