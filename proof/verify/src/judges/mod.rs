//! Judges of client histories: each takes a whole history and reports the first guarantee violated.
//!
//! | Judge | Guarantee | Trusts |
//! |---|---|---|
//! | [`revision_order`] | every answer is the specification's, in revision order and real time | revisions |
//! | [`linearizable`] | some order of the operations explains every answer | nothing but the answers |
//! | [`revisions_never_back`] | no revision is shown after a higher one was | nothing |
//! | [`readers_see_what_they_saw`] | no reader reads an older state than it has seen, at any member | nothing |
//! | [`bounded_reads_are_recent`] | no bounded read misses a state answered longer ago than its bound | times |
//! | [`txn_atomic`] | a transaction is seen whole or not at all | mod revisions |
//! | [`durable`] | every acknowledged write is there at the end | revisions |
//!
//! All are sound: they reject only answers that no correct store could give. Each file says what its judge may
//! overlook.
//! Knows nothing of: the members' internal state.

mod atomic;
mod back;
mod bounded;
mod durable;
mod linearizable;
mod revision_order;
mod seen;
#[cfg(test)]
pub(crate) mod testing;

pub use atomic::txn_atomic;
pub use back::revisions_never_back;
pub use bounded::bounded_reads_are_recent;
pub use durable::{LostWrite, durable, lost_writes};
pub use linearizable::linearizable;
pub use revision_order::revision_order;
pub use seen::readers_see_what_they_saw;

use crate::history::{Answer, Operation, Pair, Record, What};
use crate::operations::{End, Malformed, Operation as Paired, may_write};
use std::fmt;

/// The store's content after the last operation, by a linearizable read when nothing was under way: every key, and the
/// revision of that read's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinalState {
    /// The revision of that header.
    pub revision: i64,
    /// All pairs, ascending by key.
    pub kvs: Vec<Pair>,
}

/// How much a judge checked. A verdict without counts is no evidence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Operations in the history.
    pub operations: u64,
    /// Of these: writes and compactions answered without an error.
    pub acknowledged: u64,
    /// Of these: refused.
    pub refused: u64,
    /// Of these: open.
    pub unknown: u64,
    /// Answers that were compared with something.
    pub judged: u64,
    /// Parts (partitions, the order of revisions) given up because too much was open: no verdict.
    pub undecided: u64,
}

/// A guarantee that was violated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which: the judge's name.
    pub property: &'static str,
    /// The observed and the expected behaviour, for a reader.
    pub story: String,
    /// The operations involved, by their numbers in the history.
    pub operations: Vec<u64>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.property, self.story)
    }
}

impl std::error::Error for Violation {}

impl From<Malformed> for Violation {
    fn from(malformed: Malformed) -> Violation {
        let Malformed { line, what } = malformed;
        Violation { property: "well_formed", story: format!("record {line}: {what}"), operations: Vec::new() }
    }
}

/// Runs every judge. The final state also counts as one more read, after everything else.
///
/// # Errors
/// The first violated guarantee.
pub fn judge_all(history: &[Record], last: &FinalState) -> Result<Summary, Violation> {
    let with_last = with_final_read(history, last);
    let history = &with_last;
    let mut judged = 0;
    let mut undecided = 0;
    let mut summary = Summary::default();
    for judge in [revisions_never_back, readers_see_what_they_saw, bounded_reads_are_recent, txn_atomic] {
        summary = judge(history)?;
        judged += summary.judged;
    }
    let later = [durable(history, last)?, revision_order(history)?, linearizable(history)?];
    for summary in later {
        judged += summary.judged;
        undecided += summary.undecided;
    }
    Ok(Summary { judged, undecided, operations: summary.operations - 1, ..summary })
}

/// The history with the final read, which has a number and a client of its own.
fn with_final_read(history: &[Record], last: &FinalState) -> Vec<Record> {
    let at = history.last().map_or(0, |record| record.at);
    let id = history.iter().map(|record| record.id).max().unwrap_or(0) + 1;
    let client = history.iter().map(|record| record.client).max().unwrap_or(0) + 1;
    let answer = Answer::Range { kvs: last.kvs.clone(), more: false, count: last.kvs.len() as i64 };
    let mut records = history.to_vec();
    let asked = What::Invoke { member: 0, operation: Operation::everything(), level: None };
    let told = What::Done { revision: Some(last.revision), answer: Ok(answer) };
    records.extend([asked, told].map(|what| Record { at, client, id, what }));
    records
}

/// The counts of a history.
fn summary(operations: &[Paired<'_>]) -> Summary {
    let mut summary = Summary { operations: operations.len() as u64, ..Summary::default() };
    for operation in operations {
        match operation.end {
            End::Done(..) => summary.acknowledged += u64::from(may_write(operation.asked)),
            End::Refused => summary.refused += 1,
            End::Unknown => summary.unknown += 1,
            End::Rejected(_) => {}
        }
    }
    summary
}

/// An operation as JSON, as in histories.
fn shown(operation: &Operation) -> String {
    serde_json::to_string(operation).unwrap_or_else(|_| format!("{operation:?}"))
}

/// An answer as JSON, as in histories.
fn shown_answer(answer: &Answer) -> String {
    serde_json::to_string(answer).unwrap_or_else(|_| format!("{answer:?}"))
}
