//! Comparison of two answers to one request: the fields that differ.
//!
//! Knows nothing of: rules, explanations.

use crate::answer::Answer;
use crate::call::{Call, shown_op};
use kattu_proto::etcdserverpb::request_op::Request;
use kattu_proto::etcdserverpb::{RangeRequest, RequestOp, TxnRequest};
use serde_json::Value;
use std::fmt;

/// One field that differs.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The path, indexes left out: `ok.kvs[].lease`. `answer` if only one side refused, `error` if both did.
    pub field: String,
    /// etcd's value, as JSON text; `ok`, or `code message` of an error, for `answer` and `error`.
    pub left: String,
    /// Kattu's value.
    pub right: String,
    /// The innermost request that the field answers: an operation of a transaction, or the whole call.
    pub request: String,
    /// Both lists of pairs have the same sequence of sort fields; only keys with equal sort fields changed places.
    pub is_among_ties: bool,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: etcd {} / kattu {}", self.field, self.left, self.right)
    }
}

/// Every field that differs.
pub fn differences(call: &Call, left: &Answer, right: &Answer) -> Vec<Difference> {
    if left.tree == right.tree {
        return Vec::new();
    }
    if !left.is_done() || !right.is_done() {
        let field = if left.is_done() == right.is_done() { "error" } else { "answer" };
        return vec![Difference {
            field: field.to_string(),
            left: in_short(left),
            right: in_short(right),
            request: call.to_string(),
            is_among_ties: false,
        }];
    }
    let mut walk = Walk { request: call.to_string(), found: Vec::new() };
    walk.fields("ok", &Shape::of_call(call), &left.tree["ok"], &right.tree["ok"]);
    walk.found
}

fn in_short(answer: &Answer) -> String {
    match answer.tree.get("error") {
        None => "ok".to_string(),
        Some(error) => format!("{} {}", error["code"], error["message"].as_str().unwrap_or("")),
    }
}

/// The part of the request that the comparison of its answer needs: the sort order of its ranges.
enum Shape<'a> {
    Plain,
    Range(&'a RangeRequest),
    Txn { success: Vec<(Shape<'a>, &'a RequestOp)>, failure: Vec<(Shape<'a>, &'a RequestOp)> },
}

impl<'a> Shape<'a> {
    fn of_call(call: &'a Call) -> Shape<'a> {
        match call {
            Call::Range(request) => Shape::Range(request),
            Call::Txn(request) => Shape::of_txn(request),
            Call::Put(_) | Call::DeleteRange(_) | Call::Compact(_) => Shape::Plain,
        }
    }

    fn of_txn(request: &'a TxnRequest) -> Shape<'a> {
        let shapes = |ops: &'a [RequestOp]| {
            ops.iter()
                .map(|op| match &op.request {
                    Some(Request::RequestRange(request)) => (Shape::Range(request), op),
                    Some(Request::RequestTxn(request)) => (Shape::of_txn(request), op),
                    _ => (Shape::Plain, op),
                })
                .collect()
        };
        Shape::Txn { success: shapes(&request.success), failure: shapes(&request.failure) }
    }
}

/// A walk through two trees at once.
struct Walk {
    request: String,
    found: Vec<Difference>,
}

impl Walk {
    fn fields(&mut self, path: &str, shape: &Shape<'_>, left: &Value, right: &Value) {
        if left == right {
            return;
        }
        match (left, right) {
            (Value::Object(left), Value::Object(right)) => {
                for key in left.keys().chain(right.keys().filter(|key| !left.contains_key(*key))) {
                    let inner = format!("{path}.{key}");
                    let (one, other) =
                        (left.get(key).unwrap_or(&Value::Null), right.get(key).unwrap_or(&Value::Null));
                    match (shape, key.as_str()) {
                        (Shape::Range(request), "kvs")
                            if is_among_ties(request, one, other) && one != other =>
                        {
                            self.note(&inner, one, other, true);
                        }
                        (Shape::Txn { success, failure }, "responses") => {
                            let is_success = left.get("succeeded") == Some(&Value::Bool(true));
                            self.responses(&inner, if is_success { success } else { failure }, one, other);
                        }
                        (Shape::Range(_), "range") | (Shape::Txn { .. }, "txn") => {
                            self.fields(&inner, shape, one, other);
                        }
                        _ => self.fields(&inner, &Shape::Plain, one, other),
                    }
                }
            }
            (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
                for (one, other) in one.iter().zip(other) {
                    self.fields(&format!("{path}[]"), &Shape::Plain, one, other);
                }
            }
            _ => self.note(path, left, right, false),
        }
    }

    fn responses(&mut self, path: &str, ops: &[(Shape<'_>, &RequestOp)], left: &Value, right: &Value) {
        let (Some(one), Some(other)) = (left.as_array(), right.as_array()) else {
            return self.note(path, left, right, false);
        };
        if one.len() != other.len() || one.len() != ops.len() {
            return self.note(path, left, right, false);
        }
        for ((shape, op), (one, other)) in ops.iter().zip(one.iter().zip(other)) {
            let outer = std::mem::replace(&mut self.request, shown_op(op));
            self.fields(&format!("{path}[]"), shape, one, other);
            self.request = outer;
        }
    }

    fn note(&mut self, path: &str, left: &Value, right: &Value, is_among_ties: bool) {
        self.found.push(Difference {
            field: path.to_string(),
            left: left.to_string(),
            right: right.to_string(),
            request: self.request.clone(),
            is_among_ties,
        });
    }
}

/// Whether both lists are sorted the same way, and have equal sort fields where they differ.
fn is_among_ties(request: &RangeRequest, left: &Value, right: &Value) -> bool {
    let field = match request.sort_target {
        1 => "version",
        2 => "create_revision",
        3 => "mod_revision",
        4 => "value",
        _ => return false,
    };
    let fields = |value: &Value| -> Option<Vec<Value>> {
        Some(value.as_array()?.iter().map(|pair| pair[field].clone()).collect())
    };
    // With keys_only there are no values; then ties by value cannot be seen.
    if request.keys_only && field == "value" {
        return fields(left).map(|list| list.len()) == fields(right).map(|list| list.len());
    }
    fields(left) == fields(right)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn answer(tree: Value) -> Answer {
        Answer { tree, revision: None }
    }

    #[test]
    fn equal_answers_have_no_difference() {
        let call = Call::Range(RangeRequest::default());
        let one = answer(json!({"ok": {"count": 1}}));
        assert!(differences(&call, &one, &one.clone()).is_empty());
    }

    #[test]
    fn a_difference_has_a_path() {
        let call = Call::Range(RangeRequest::default());
        let one = answer(json!({"ok": {"count": 1, "kvs": [{"lease": 0}, {"lease": 7}]}}));
        let other = answer(json!({"ok": {"count": 1, "kvs": [{"lease": 0}, {"lease": 0}]}}));
        let found = differences(&call, &one, &other);
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].field.as_str(), found[0].left.as_str(), found[0].right.as_str()),
            ("ok.kvs[].lease", "7", "0")
        );
    }

    #[test]
    fn a_refusal_against_an_answer_is_one_difference() {
        let call = Call::Range(RangeRequest::default());
        let found = differences(&call, &answer(json!({"ok": {}})), &Answer::refused(3, "no"));
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].field.as_str(), found[0].left.as_str(), found[0].right.as_str()),
            ("answer", "ok", "3 no")
        );
    }

    #[test]
    fn keys_that_tie_may_change_places_and_others_may_not() {
        let sorted = Call::Range(RangeRequest { sort_target: 1, ..RangeRequest::default() });
        let list = |pairs: [(&str, i64); 3]| {
            answer(
                json!({"ok": {"kvs": pairs.map(|(key, version)| json!({"key": key, "version": version}))}}),
            )
        };
        let one = list([("a", 1), ("b", 1), ("c", 2)]);
        let ties = differences(&sorted, &one, &list([("b", 1), ("a", 1), ("c", 2)]));
        assert_eq!(ties.len(), 1);
        assert!(ties[0].is_among_ties);
        let disorder = differences(&sorted, &one, &list([("a", 1), ("c", 2), ("b", 1)]));
        assert!(!disorder.is_empty());
        assert!(disorder.iter().all(|difference| !difference.is_among_ties));
    }
}
