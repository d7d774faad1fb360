//! JSON lines: a history as a file.
//!
//! Knows nothing of: what the records mean.

use crate::history::Record;
use std::io::{self, BufRead, Write};

/// Writes records, one a line.
///
/// # Errors
/// Those of the writer.
pub fn write(out: &mut impl Write, records: &[Record]) -> io::Result<()> {
    for record in records {
        serde_json::to_writer(&mut *out, record)?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// Why a history could not be read.
#[derive(Debug)]
pub enum ReadError {
    /// The reader failed.
    Io(io::Error),
    /// A line is no record.
    Line {
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
}

impl std::fmt::Display for ReadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ReadError::Io(error) => write!(f, "{error}"),
            ReadError::Line { line, what } => write!(f, "line {line}: {what}"),
        }
    }
}

impl std::error::Error for ReadError {}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> ReadError {
        ReadError::Io(error)
    }
}

/// Reads a history. Empty lines are skipped.
///
/// # Errors
/// The first line that is no record, by its number.
pub fn read(input: impl BufRead) -> Result<Vec<Record>, ReadError> {
    let mut records = Vec::new();
    for (number, line) in input.lines().enumerate() {
        let line = line?;
        if line.trim().is_empty() {
            continue;
        }
        let record = serde_json::from_str(&line);
        records.push(record.map_err(|error| ReadError::Line { line: number + 1, what: error.to_string() })?);
    }
    Ok(records)
}
