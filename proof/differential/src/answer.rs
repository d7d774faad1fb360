//! Answers as trees of fields, so that any difference has a path.
//!
//! Cluster id, member id and raft term are reduced to whether they are present: they differ between any two clusters.
//! Knows nothing of: rules, servers.

use crate::call::text;
use kattu_proto::etcdserverpb::response_op::Response as OpResponse;
use kattu_proto::etcdserverpb::{
    CompactionResponse, DeleteRangeResponse, PutResponse, RangeResponse, ResponseHeader, ResponseOp,
    TxnResponse,
};
use kattu_proto::mvccpb::KeyValue;
use serde_json::{Value, json};
use tonic::Response;

/// A server's answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// `{"ok": …}` or `{"error": {"code", "message"}}`.
    pub tree: Value,
    /// The store's revision in the header, if it was no error.
    pub revision: Option<i64>,
}

impl Answer {
    /// An error status.
    pub fn refused(code: i32, message: &str) -> Answer {
        Answer { tree: json!({ "error": { "code": code, "message": message } }), revision: None }
    }

    fn done(header: &Option<ResponseHeader>, fields: Value) -> Answer {
        Answer { tree: json!({ "ok": fields }), revision: header.as_ref().map(|header| header.revision) }
    }

    /// Whether it is an answer and no error.
    pub fn is_done(&self) -> bool {
        self.tree.get("ok").is_some()
    }
}

/// Headers outside transactions: whether ids are present, and the revision.
fn header(header: &Option<ResponseHeader>) -> Value {
    match header {
        None => Value::Null,
        Some(header) => json!({
            "has_cluster_id": header.cluster_id != 0,
            "has_member_id": header.member_id != 0,
            "has_raft_term": header.raft_term != 0,
            "revision": header.revision,
        }),
    }
}

fn pair(kv: &KeyValue) -> Value {
    json!({
        "key": text(&kv.key), "create_revision": kv.create_revision, "mod_revision": kv.mod_revision,
        "version": kv.version, "value": whole(&kv.value), "lease": kv.lease,
    })
}

/// Long values keep their length and a sum, so that two of them can still be compared.
fn whole(value: &[u8]) -> String {
    let sum = value.iter().fold(0u64, |sum, byte| sum.wrapping_mul(1_099_511_628_211) ^ u64::from(*byte));
    if value.len() <= 24 { text(value) } else { format!("{} sum {sum:016x}", text(value)) }
}

fn range(response: &RangeResponse) -> Value {
    json!({
        "header": header(&response.header), "kvs": response.kvs.iter().map(pair).collect::<Vec<_>>(),
        "more": response.more, "count": response.count,
    })
}

fn put(response: &PutResponse) -> Value {
    json!({ "header": header(&response.header), "prev_kv": response.prev_kv.as_ref().map(pair) })
}

fn delete_range(response: &DeleteRangeResponse) -> Value {
    json!({
        "header": header(&response.header), "deleted": response.deleted,
        "prev_kvs": response.prev_kvs.iter().map(pair).collect::<Vec<_>>(),
    })
}

fn txn(response: &TxnResponse) -> Value {
    json!({
        "header": header(&response.header), "succeeded": response.succeeded,
        "responses": response.responses.iter().map(op).collect::<Vec<_>>(),
    })
}

fn op(response: &ResponseOp) -> Value {
    match &response.response {
        Some(OpResponse::ResponseRange(response)) => json!({ "range": range(response) }),
        Some(OpResponse::ResponsePut(response)) => json!({ "put": put(response) }),
        Some(OpResponse::ResponseDeleteRange(response)) => json!({ "delete": delete_range(response) }),
        Some(OpResponse::ResponseTxn(response)) => json!({ "txn": txn(response) }),
        None => Value::Null,
    }
}

/// An answer to Range.
pub(crate) fn of_range(response: Response<RangeResponse>) -> Answer {
    let response = response.get_ref();
    Answer::done(&response.header, range(response))
}

/// An answer to Put.
pub(crate) fn of_put(response: Response<PutResponse>) -> Answer {
    let response = response.get_ref();
    Answer::done(&response.header, put(response))
}

/// An answer to DeleteRange.
pub(crate) fn of_delete_range(response: Response<DeleteRangeResponse>) -> Answer {
    let response = response.get_ref();
    Answer::done(&response.header, delete_range(response))
}

/// An answer to Txn.
pub(crate) fn of_txn(response: Response<TxnResponse>) -> Answer {
    let response = response.get_ref();
    Answer::done(&response.header, txn(response))
}

/// An answer to Compact.
pub(crate) fn of_compact(response: Response<CompactionResponse>) -> Answer {
    let response = response.get_ref();
    Answer::done(&response.header, json!({ "header": header(&response.header) }))
}
