//! `cargo xtask bench memory`: the memory of a key above its own bytes.
//!
//! `shell/runtime/examples/memory_per_key.rs` measures in a process of its own and prints the table; this builds and
//! runs it. Its exit code is the verdict.
//! Knows nothing of: stores.

use super::report::Header;
use crate::shell::{self, Failure};

/// Builds, measures, prints.
pub fn run(words: &[&str]) -> Result<(), Failure> {
    let keys = super::number_behind("--keys", words, 1_000_000, "bench memory")?;
    let program = super::example("memory_per_key")?;
    Header::now(1, false).print();
    shell::in_foreground(std::process::Command::new(program).arg(keys.to_string()))
}
