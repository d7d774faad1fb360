//! `cargo xtask bench memory`: the memory of a key above its own bytes.
//!
//! `shell/runtime/examples/memory_per_key.rs` measures in a process of its own and prints the table; this builds and
//! runs it. Its exit code is the verdict.
//! Knows nothing of: stores.

use super::report::Header;
use crate::commands::misused;
use crate::shell::{self, Failure};
use std::time::Duration;

/// Builds, measures, prints.
pub fn run(words: &[&str]) -> Result<(), Failure> {
    let keys: u64 = match words {
        [] => 1_000_000,
        ["--keys", text] => {
            text.parse().map_err(|_| Failure::usage(format!("--keys {text}: not a number")))?
        }
        _ => return Err(misused("bench memory")),
    };
    let log = shell::log_path("memory");
    let example = ["--release", "-p", "kattu-runtime", "--example", "memory_per_key"];
    let mut build = shell::cargo(&[&["build", "--locked"][..], &example].concat());
    shell::run_logged(&mut build, &log, Duration::from_secs(1800))?;
    Header::now(1, false).print();
    let program = shell::target().join("release/examples/memory_per_key");
    shell::in_foreground(std::process::Command::new(program).arg(keys.to_string()))
}
