//! Conversions: histories' types ↔ the store's types.
//!
//! For callers that run a history's operations on the store itself. Text becomes its bytes; leases, filters, sort
//! orders and previous values do not occur in histories.
//! Knows nothing of: members, the meaning of revisions.

use crate::history::{Answer, Compare, How, Operation, Pair, Rejection, Target};
use kattu_kv::api;

/// A request to a replica: through the log, or as a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// For the log.
    Command(api::Command),
    /// A read; whether a serializable one is enough.
    Query(api::Query, bool),
}

/// The store's request for this operation.
#[must_use]
pub fn to_request(operation: &Operation) -> Request {
    match operation {
        Operation::Put { key, value } => Request::Command(api::Command::Put(to_put(key, value))),
        Operation::Range { serializable, .. } => {
            Request::Query(api::Query::Range(to_range(operation)), *serializable)
        }
        Operation::Delete { key, end } => Request::Command(api::Command::DeleteRange(to_delete(key, end))),
        Operation::Txn { compare, then, otherwise } => {
            let txn = to_txn(compare, then, otherwise);
            if kattu_kv::check::is_read_only(&txn) {
                Request::Query(api::Query::Txn(txn), crate::operations::is_serializable(operation))
            } else {
                Request::Command(api::Command::Txn(txn))
            }
        }
        Operation::Compact { revision } => Request::Command(api::Command::Compact(api::Revision(*revision))),
    }
}

/// Whether the request is valid by itself: the gate's check, before anything is proposed.
///
/// # Errors
/// [`Rejection::Invalid`].
pub fn check(operation: &Operation) -> Result<(), Rejection> {
    let limits = kattu_kv::check::CheckLimits::default();
    let checked = match to_request(operation) {
        Request::Command(api::Command::Put(put)) => kattu_kv::check::check_put(put.as_ref()),
        Request::Command(api::Command::DeleteRange(delete)) => kattu_kv::check::check_delete_range(&delete),
        Request::Command(api::Command::Txn(txn)) | Request::Query(api::Query::Txn(txn), _) => {
            kattu_kv::check::check_txn(&txn, &limits)
        }
        Request::Query(api::Query::Range(range), _) => kattu_kv::check::check_range(&range),
        Request::Command(api::Command::Compact(_)) => Ok(()),
    };
    checked.map_err(to_rejection)
}

fn to_keys(key: &str, end: &str) -> api::KeyRange {
    api::KeyRange { start: key.as_bytes().to_vec(), end: end.as_bytes().to_vec() }
}

fn to_put(key: &str, value: &str) -> api::Put {
    api::Put { key: key.as_bytes().to_vec(), value: value.as_bytes().to_vec(), ..api::Put::default() }
}

fn to_delete(key: &str, end: &str) -> api::DeleteRange {
    api::DeleteRange { keys: to_keys(key, end), prev_kv: false }
}

fn to_range(operation: &Operation) -> api::Range {
    let Operation::Range { key, end, revision, limit, count_only, .. } = operation else {
        unreachable!("asked for ranges only")
    };
    api::Range {
        keys: to_keys(key, end),
        limit: *limit,
        revision: api::Revision(*revision),
        count_only: *count_only,
        ..api::Range::default()
    }
}

fn to_txn(compare: &[Compare], then: &[Operation], otherwise: &[Operation]) -> api::Txn {
    api::Txn {
        compare: compare.iter().map(to_compare).collect(),
        success: then.iter().map(to_operation).collect(),
        failure: otherwise.iter().map(to_operation).collect(),
    }
}

/// # Panics
/// At a compaction: the store has none inside transactions.
fn to_operation(operation: &Operation) -> api::Operation {
    match operation {
        Operation::Put { key, value } => api::Operation::Put(to_put(key, value)),
        Operation::Range { .. } => api::Operation::Range(to_range(operation)),
        Operation::Delete { key, end } => api::Operation::DeleteRange(to_delete(key, end)),
        Operation::Txn { compare, then, otherwise } => api::Operation::Txn(to_txn(compare, then, otherwise)),
        Operation::Compact { .. } => panic!("a compaction inside a transaction"),
    }
}

fn to_compare(compare: &Compare) -> api::Compare {
    let result = match compare.how {
        How::Equal => api::CompareResult::Equal,
        How::Greater => api::CompareResult::Greater,
        How::Less => api::CompareResult::Less,
        How::NotEqual => api::CompareResult::NotEqual,
    };
    let target = match &compare.target {
        Target::Value(value) => api::CompareTarget::Value(value.as_bytes().to_vec()),
        Target::Version(version) => api::CompareTarget::Version(*version),
        Target::Create(revision) => api::CompareTarget::Create(api::Revision(*revision)),
        Target::Mod(revision) => api::CompareTarget::Mod(api::Revision(*revision)),
    };
    api::Compare { keys: to_keys(&compare.key, ""), result, target }
}

/// A store's answer in a history's type.
///
/// # Panics
/// If a key or a value is no text: histories contain none such.
#[must_use]
pub fn from_answer(answer: &api::Answer) -> Answer {
    match answer {
        api::Answer::Put { .. } => Answer::Put,
        api::Answer::Range(result) => Answer::Range {
            kvs: result.kvs.iter().map(from_key_value).collect(),
            more: result.more,
            count: result.count,
        },
        api::Answer::DeleteRange { deleted, .. } => Answer::Delete { deleted: *deleted },
        api::Answer::Txn { succeeded, answers } => {
            Answer::Txn { succeeded: *succeeded, answers: answers.iter().map(from_answer).collect() }
        }
        api::Answer::Compact => Answer::Compact,
    }
}

fn from_key_value(pair: &api::KeyValue) -> Pair {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("histories hold text only");
    Pair {
        key: text(&pair.key),
        value: text(&pair.value),
        create: pair.create_revision.0,
        modified: pair.mod_revision.0,
        version: pair.version,
    }
}

/// A store's error in a history's type.
#[must_use]
pub fn to_rejection(error: api::Error) -> Rejection {
    match error {
        api::Error::Compacted => Rejection::Compacted,
        api::Error::FutureRevision => Rejection::Future,
        api::Error::EmptyKey
        | api::Error::KeyNotFound
        | api::Error::ValueProvided
        | api::Error::LeaseProvided
        | api::Error::TooManyOps
        | api::Error::DuplicateKey
        | api::Error::InvalidSort
        | api::Error::LeaseNotFound
        // Only where a limit is set, and there recorded as a refusal.
        | api::Error::AnswerTooLarge
        | api::Error::TooMuchWork => Rejection::Invalid,
    }
}
