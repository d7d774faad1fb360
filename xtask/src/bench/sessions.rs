//! `cargo xtask bench sessions`: what sessions of clients cost.
//!
//! `shell/runtime/examples/idle_sessions.rs` measures in a process of its own and prints the tables; this builds and
//! runs it. Its exit code is the verdict.
//! Knows nothing of: sessions.

use super::report::Header;
use crate::shell::{self, Failure};

/// Builds, measures, prints.
pub fn run(words: &[&str]) -> Result<(), Failure> {
    let sessions = super::number_behind("--sessions", words, 1_000_000, "bench sessions")?;
    let program = super::example("idle_sessions")?;
    Header::now(1, false).print();
    shell::in_foreground(std::process::Command::new(program).arg(sessions.to_string()))
}
