//! Output: lines, tables, JSON on standard output; exit codes as those of `kattu`.
//!
//! Knows nothing of: storms.

use clap::ValueEnum;
use comfy_table::Table;
use serde_json::Value;
use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

/// How results are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Columns for people
    Table,
    /// JSON for programs
    Json,
}

/// The result of a run.
pub type Outcome = Result<(), Ended>;

/// A run that did not end with 0, or that ended early.
#[derive(Debug)]
pub struct Ended {
    code: u8,
    /// For the user, on standard error; may be empty.
    message: String,
}

impl Ended {
    /// A guarantee was violated, or nothing was proved.
    pub fn failed(message: impl fmt::Display) -> Ended {
        Ended { code: 1, message: message.to_string() }
    }

    /// Wrong usage.
    pub fn usage(message: impl fmt::Display) -> Ended {
        Ended { code: 2, message: message.to_string() }
    }

    /// Prints the message, and returns the exit code of the process.
    pub fn report(self) -> ExitCode {
        if !self.message.is_empty() {
            // Standard error may be closed; the exit code says it, too.
            let _ = writeln!(io::stderr(), "kattu: {}", self.message);
        }
        ExitCode::from(self.code)
    }
}

impl From<io::Error> for Ended {
    /// Output without a reader is no failure.
    fn from(error: io::Error) -> Ended {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Ended { code: 0, message: String::new() },
            _ => Ended::failed(error),
        }
    }
}

/// Writes to standard output, all of it.
pub fn print(bytes: &[u8]) -> Outcome {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()?;
    Ok(())
}

/// Writes JSON on one line.
pub fn print_json(value: &Value) -> Outcome {
    print(format!("{value}\n").as_bytes())
}

/// Writes columns.
pub fn print_table(head: &[&str], rows: Vec<Vec<String>>) -> Outcome {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::UTF8_FULL_CONDENSED);
    table.set_header(head.iter().copied());
    for row in rows {
        table.add_row(row);
    }
    print(format!("{table}\n").as_bytes())
}
