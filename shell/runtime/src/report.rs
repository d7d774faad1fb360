//! Lines for the operator, on standard error: one fact each, with its numbers.
//!
//! Knows nothing of: levels beyond two words, files, rotation.

use std::fmt::Arguments;

/// Something an operator may want to know.
pub fn info(line: Arguments<'_>) {
    eprintln!("kattu: {line}");
}

/// Something an operator should look at.
pub fn warn(line: Arguments<'_>) {
    eprintln!("kattu: warning: {line}");
}
