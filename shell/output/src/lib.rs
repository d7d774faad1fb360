//! What Kattu's programs write to standard output, and how they end.
//!
//! Knows nothing of: verbs, the calls behind the output.
#![forbid(unsafe_code)]

mod ended;

pub use ended::{Ended, Outcome};

use clap::ValueEnum;
use comfy_table::Table;
use serde_json::Value;
use std::io::{self, Write};

/// The format of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Columns for people
    Table,
    /// JSON for programs
    Json,
}

/// Writes to standard output, all of it.
///
/// # Errors
/// Standard output cannot be written.
pub fn print(bytes: &[u8]) -> Outcome {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()?;
    Ok(())
}

/// Writes JSON on one line.
///
/// # Errors
/// As [`print()`].
pub fn print_json(value: &Value) -> Outcome {
    print(format!("{value}\n").as_bytes())
}

/// Writes columns.
///
/// # Errors
/// As [`print()`].
pub fn print_table(head: &[&str], rows: Vec<Vec<String>>) -> Outcome {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::UTF8_FULL_CONDENSED);
    table.set_header(head.iter().copied());
    for row in rows {
        table.add_row(row);
    }
    print(format!("{table}\n").as_bytes())
}
