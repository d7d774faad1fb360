//! In the making.
use super::{FinalState, Summary, Violation};
use crate::history::Record;

/// An acknowledged write that is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostWrite {
    /// The operation's number.
    pub id: u64,
    /// The key.
    pub key: String,
    /// The revision it was acknowledged at.
    pub revision: i64,
}

/// In the making.
///
/// # Errors
/// The first violation.
pub fn durable(history: &[Record], last: &FinalState) -> Result<Summary, Violation> {
    let operations = crate::operations::paired(history)?;
    let _ = last;
    Ok(Summary { operations: operations.len() as u64, ..Summary::default() })
}

/// Every acknowledged write that the final state lacks.
///
/// # Errors
/// If the records are no history.
pub fn lost_writes(history: &[Record], last: &FinalState) -> Result<Vec<LostWrite>, Violation> {
    let _ = (history, last);
    Ok(Vec::new())
}
