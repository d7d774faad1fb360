//! Handwritten histories for the judges' own tests.

use crate::history::{Answer, Compare, Level, Operation, Pair, Record, Rejection, What};

pub fn put(key: &str, value: &str) -> Operation {
    Operation::Put { key: key.to_string(), value: value.to_string() }
}

pub fn delete(key: &str) -> Operation {
    Operation::Delete { key: key.to_string(), end: String::new() }
}

pub fn range(key: &str, end: &str, revision: i64, serializable: bool) -> Operation {
    let (key, end) = (key.to_string(), end.to_string());
    Operation::Range { key, end, revision, limit: 0, count_only: false, serializable }
}

pub fn get(key: &str) -> Operation {
    range(key, "", 0, false)
}

pub(crate) fn stale_get(key: &str) -> Operation {
    range(key, "", 0, true)
}

pub fn txn(compare: Vec<Compare>, then: Vec<Operation>, otherwise: Vec<Operation>) -> Operation {
    Operation::Txn { compare, then, otherwise }
}

pub fn wrote() -> Answer {
    Answer::Put
}

/// Pairs as (key, value, create, mod, version).
pub fn read(pairs: &[(&str, &str, i64, i64, i64)]) -> Answer {
    let kvs: Vec<Pair> = pairs
        .iter()
        .map(|&(key, value, create, modified, version)| Pair {
            key: key.to_string(),
            value: value.to_string(),
            create,
            modified,
            version,
        })
        .collect();
    Answer::Range { count: kvs.len() as i64, kvs, more: false }
}

pub fn invoke(id: u64, operation: Operation) -> (u64, What) {
    (id, What::Invoke { member: 1, operation, level: None })
}

/// The same with a level, at any member.
pub(crate) fn invoke_at(id: u64, member: u64, operation: Operation, level: Level) -> (u64, What) {
    (id, What::Invoke { member, operation, level: Some(level) })
}

pub fn done(id: u64, revision: i64, answer: Answer) -> (u64, What) {
    (id, What::Done { revision: Some(revision), answer: Ok(answer) })
}

pub fn rejected(id: u64, why: Rejection) -> (u64, What) {
    (id, What::Done { revision: None, answer: Err(why) })
}

pub fn unknown(id: u64) -> (u64, What) {
    (id, What::Unknown { reason: "timed out".to_string() })
}

pub fn refused(id: u64) -> (u64, What) {
    (id, What::Refused { reason: "no leader".to_string() })
}

pub fn crashed(member: u64) -> (u64, What) {
    (0, What::Crashed { member })
}

/// One record per microsecond; every operation has a client of its own.
pub fn timed(events: &[(u64, What)]) -> Vec<Record> {
    let record = |(place, (id, what)): (usize, &(u64, What))| Record {
        at: place as u64 * 1000,
        client: *id as u32,
        id: *id,
        what: what.clone(),
    };
    events.iter().enumerate().map(record).collect()
}
