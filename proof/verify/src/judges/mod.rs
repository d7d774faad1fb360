//! Judges of what clients saw: each takes a whole history and names the first promise that it breaks.
//!
//! | Judge | Promise | Trusts |
//! |---|---|---|
//! | [`revision_order`] | every answer is the specification's, in revision order and real time | revisions |
//! | [`linearizable`] | some order of the operations explains every answer | nothing but the answers |
//! | [`revisions_never_back`] | no revision is shown after a higher one was | nothing |
//! | [`sessions_read_what_they_saw`] | no session is shown less than it was told before, at whichever member | nothing |
//! | [`bounded_reads_are_recent`] | no bounded read misses what was answered longer ago than its bound | times |
//! | [`txn_atomic`] | a transaction is seen whole or not at all | mod revisions |
//! | [`durable`] | every acknowledged write is there at the end | revisions |
//!
//! All are sound: what they reject no correct store could have answered. What each of them may overlook is said in its
//! file.
//! Knows nothing of: members' insides.

mod atomic;
mod back;
mod bounded;
mod durable;
mod linearizable;
mod revision_order;
mod session;
#[cfg(test)]
pub(crate) mod testing;

pub use atomic::txn_atomic;
pub use back::revisions_never_back;
pub use bounded::bounded_reads_are_recent;
pub use durable::{LostWrite, durable, lost_writes};
pub use linearizable::linearizable;
pub use revision_order::revision_order;
pub use session::sessions_read_what_they_saw;

use crate::history::{Answer, Operation, Pair, Record, What};
use crate::operations::{End, Malformed, Operation as Paired, may_write};
use std::fmt;

/// What the store held after the last operation, read linearizably when all was quiet: every key, and the revision in
/// the header of that read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinalState {
    /// The revision.
    pub revision: i64,
    /// All pairs, ascending by key.
    pub kvs: Vec<Pair>,
}

/// What a judge looked at. A judgement without counts is no evidence.
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
    /// Parts (partitions, stretches of revisions) given up because too much was open: neither good nor bad.
    pub undecided: u64,
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which: the judge's name.
    pub property: &'static str,
    /// What was seen and what should have been, for a reader.
    pub story: String,
    /// The operations it hangs on, by their numbers in the history.
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

/// Asks every judge. The final state also counts as one more read, after everything else.
///
/// # Errors
/// The first broken promise.
pub fn judge_all(history: &[Record], last: &FinalState) -> Result<Summary, Violation> {
    let with_last = with_final_read(history, last);
    let history = &with_last;
    let mut judged = 0;
    let mut undecided = 0;
    let mut summary = Summary::default();
    for judge in [revisions_never_back, sessions_read_what_they_saw, bounded_reads_are_recent, txn_atomic] {
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

/// Room for one more operation's number and client: those of the final read.
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

/// An operation as the histories write it.
fn shown(operation: &Operation) -> String {
    serde_json::to_string(operation).unwrap_or_else(|_| format!("{operation:?}"))
}

/// An answer as the histories write it.
fn shown_answer(answer: &Answer) -> String {
    serde_json::to_string(answer).unwrap_or_else(|_| format!("{answer:?}"))
}
