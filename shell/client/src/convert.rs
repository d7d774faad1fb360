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
