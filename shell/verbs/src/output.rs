//! Answers as output: lines as etcdctl writes them, text for tables, JSON as etcdctl writes it.
//!
//! JSON follows Go's encoding of etcd's messages: byte strings in base64, numbers as numbers, nothing that is zero.
//! Knows nothing of: the calls behind the output.

pub(crate) use kattu_output::{Format, print, print_json, print_table};
use kattu_proto::etcdserverpb as pb;
use kattu_proto::mvccpb::KeyValue;
use pb::response_op::Response;
use serde_json::{Map, Value, json};

/// Bytes as text for a table: UTF-8 as it is, anything else escaped.
pub(crate) fn readable(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(|c| c.is_control() && c != '\n' && c != '\t') => text.to_string(),
        _ => bytes.escape_ascii().to_string(),
    }
}

/// A pair as etcdctl writes it: a line with the key, a line with the value.
pub(crate) fn push_pair(out: &mut Vec<u8>, pair: &KeyValue) {
    out.extend_from_slice(&pair.key);
    out.push(b'\n');
    out.extend_from_slice(&pair.value);
    out.push(b'\n');
}

/// The lines of one operation's response, as etcdctl writes them.
pub(crate) fn push_answer(out: &mut Vec<u8>, answer: &Response) {
    match answer {
        Response::ResponseRange(range) => range.kvs.iter().for_each(|pair| push_pair(out, pair)),
        Response::ResponsePut(put) => push_put(out, put),
        Response::ResponseDeleteRange(delete) => push_delete(out, delete),
        Response::ResponseTxn(txn) => push_txn(out, txn),
    }
}

/// The lines of a put's answer.
pub(crate) fn push_put(out: &mut Vec<u8>, put: &pb::PutResponse) {
    out.extend_from_slice(b"OK\n");
    put.prev_kv.iter().for_each(|pair| push_pair(out, pair));
}

/// The lines of a delete's answer.
pub(crate) fn push_delete(out: &mut Vec<u8>, delete: &pb::DeleteRangeResponse) {
    out.extend_from_slice(format!("{}\n", delete.deleted).as_bytes());
    delete.prev_kvs.iter().for_each(|pair| push_pair(out, pair));
}

/// The lines of a transaction's answer.
pub(crate) fn push_txn(out: &mut Vec<u8>, txn: &pb::TxnResponse) {
    out.extend_from_slice(if txn.succeeded { b"SUCCESS\n" } else { b"FAILURE\n" });
    for answer in txn.responses.iter().filter_map(|op| op.response.as_ref()) {
        out.push(b'\n');
        push_answer(out, answer);
    }
}

/// An object of which zeros and empty texts were left out.
struct Object(Map<String, Value>);

impl Object {
    fn new() -> Object {
        Object(Map::new())
    }

    fn field(mut self, name: &str, value: Value) -> Object {
        let is_zero = match &value {
            Value::Null => true,
            Value::Bool(value) => !value,
            Value::Number(number) => number.as_i64() == Some(0),
            Value::String(text) => text.is_empty(),
            Value::Array(values) => values.is_empty(),
            Value::Object(_) => false,
        };
        if !is_zero {
            self.0.insert(name.to_string(), value);
        }
        self
    }

    fn done(self) -> Value {
        Value::Object(self.0)
    }
}

fn header_json(header: Option<&pb::ResponseHeader>) -> Value {
    header.map_or(Value::Null, |header| {
        Object::new()
            .field("cluster_id", json!(header.cluster_id))
            .field("member_id", json!(header.member_id))
            .field("revision", json!(header.revision))
            .field("raft_term", json!(header.raft_term))
            .done()
    })
}

fn pair_json(pair: &KeyValue) -> Value {
    Object::new()
        .field("key", json!(base64(&pair.key)))
        .field("create_revision", json!(pair.create_revision))
        .field("mod_revision", json!(pair.mod_revision))
        .field("version", json!(pair.version))
        .field("value", json!(base64(&pair.value)))
        .field("lease", json!(pair.lease))
        .done()
}

/// A put's answer.
pub(crate) fn put_json(put: &pb::PutResponse) -> Value {
    Object::new()
        .field("header", header_json(put.header.as_ref()))
        .field("prev_kv", put.prev_kv.as_ref().map_or(Value::Null, pair_json))
        .done()
}

/// A range's answer.
pub(crate) fn range_json(range: &pb::RangeResponse) -> Value {
    Object::new()
        .field("header", header_json(range.header.as_ref()))
        .field("kvs", range.kvs.iter().map(pair_json).collect())
        .field("more", json!(range.more))
        .field("count", json!(range.count))
        .done()
}

/// A delete's answer.
pub(crate) fn delete_json(delete: &pb::DeleteRangeResponse) -> Value {
    Object::new()
        .field("header", header_json(delete.header.as_ref()))
        .field("deleted", json!(delete.deleted))
        .field("prev_kvs", delete.prev_kvs.iter().map(pair_json).collect())
        .done()
}

/// A compaction's answer.
pub(crate) fn compact_json(compaction: &pb::CompactionResponse) -> Value {
    Object::new().field("header", header_json(compaction.header.as_ref())).done()
}

/// A transaction's answer. Each operation's stands under its kind's name, as Go writes a choice.
pub(crate) fn txn_json(txn: &pb::TxnResponse) -> Value {
    let answers = txn.responses.iter().map(|op| match &op.response {
        Some(Response::ResponseRange(range)) => json!({"Response": {"ResponseRange": range_json(range)}}),
        Some(Response::ResponsePut(put)) => json!({"Response": {"ResponsePut": put_json(put)}}),
        Some(Response::ResponseDeleteRange(delete)) => {
            json!({"Response": {"ResponseDeleteRange": delete_json(delete)}})
        }
        Some(Response::ResponseTxn(txn)) => json!({"Response": {"ResponseTxn": txn_json(txn)}}),
        None => json!({"Response": null}),
    });
    Object::new()
        .field("header", header_json(txn.header.as_ref()))
        .field("succeeded", json!(txn.succeeded))
        .field("responses", answers.collect())
        .done()
}

/// Base64 with padding. [RFC 4648 §4]
pub(crate) fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let at = |i: usize| u32::from(*chunk.get(i).unwrap_or(&0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for i in 0..4 {
            let is_padding = chunk.len() < i;
            let digit = ALPHABET[(bits >> (18 - 6 * i) & 0x3f) as usize];
            text.push(if is_padding { '=' } else { char::from(digit) });
        }
    }
    text
}

/// The JSON of a member's page, or what is wrong with it, as text.
pub(crate) fn parse_page(path: &str, text: &str) -> Value {
    serde_json::from_str(text)
        .unwrap_or_else(|error| Value::String(format!("{path} was answered with what is not JSON: {error}")))
}

/// What an endpoint answered, as one entry of a list: the fields of its page, or the error.
pub(crate) fn entry<E: ToString>((endpoint, answer): &(String, Result<Value, E>)) -> Value {
    let mut entry = Map::new();
    entry.insert("endpoint".to_string(), Value::String(endpoint.clone()));
    match answer {
        Ok(Value::Object(fields)) => entry.extend(fields.clone()),
        Ok(other) => drop(entry.insert("error".to_string(), other.clone())),
        Err(error) => drop(entry.insert("error".to_string(), Value::String(error.to_string()))),
    }
    Value::Object(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> KeyValue {
        KeyValue {
            key: b"k".to_vec(),
            value: b"v".to_vec(),
            version: 1,
            mod_revision: 2,
            create_revision: 2,
            lease: 0,
        }
    }

    #[test]
    fn base64_is_padded() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xff, 0xfe, 0xfd]), "//79");
    }

    #[test]
    fn json_is_what_etcdctl_writes() {
        let header = pb::ResponseHeader { cluster_id: u64::MAX, member_id: 1, revision: 2, raft_term: 3 };
        let range = pb::RangeResponse { header: Some(header), kvs: vec![pair()], more: false, count: 1 };
        let expected = json!({
            "header": {"cluster_id": u64::MAX, "member_id": 1, "revision": 2, "raft_term": 3},
            "kvs": [{"key": "aw==", "create_revision": 2, "mod_revision": 2, "version": 1, "value": "dg=="}],
            "count": 1,
        });
        assert_eq!(range_json(&range), expected);
        let txn = pb::TxnResponse {
            header: None,
            succeeded: false,
            responses: vec![pb::ResponseOp {
                response: Some(Response::ResponsePut(pb::PutResponse::default())),
            }],
        };
        assert_eq!(txn_json(&txn), json!({"responses": [{"Response": {"ResponsePut": {}}}]}));
    }

    #[test]
    fn lines_are_what_etcdctl_writes() {
        let delete = pb::DeleteRangeResponse { deleted: 1, prev_kvs: vec![pair()], ..Default::default() };
        let put = pb::PutResponse { prev_kv: Some(pair()), ..Default::default() };
        let op = |response| pb::ResponseOp { response: Some(response) };
        let txn = pb::TxnResponse {
            header: None,
            succeeded: true,
            responses: vec![op(Response::ResponseDeleteRange(delete)), op(Response::ResponsePut(put))],
        };
        let mut out = Vec::new();
        push_txn(&mut out, &txn);
        assert_eq!(out, b"SUCCESS\n\n1\nk\nv\n\nOK\nk\nv\n");
    }

    #[test]
    fn what_is_not_text_is_escaped_in_tables() {
        assert_eq!(readable("kätt".as_bytes()), "kätt");
        assert_eq!(readable(b"a\x00\xff"), "a\\x00\\xff");
    }
}
