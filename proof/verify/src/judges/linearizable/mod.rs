//! In the making.
use super::{Summary, Violation};
use crate::history::Record;

/// In the making.
///
/// # Errors
/// The first violation.
pub fn linearizable(history: &[Record]) -> Result<Summary, Violation> {
    let operations = crate::operations::paired(history)?;
    Ok(Summary { operations: operations.len() as u64, ..Summary::default() })
}
