//! `cargo xtask bench snapshot-pause`: how long a snapshot blocks the thread that owns the tables.
//!
//! `shell/runtime/examples/snapshot_pause.rs` measures in a process of its own and prints the tables; this builds it
//! and runs it twice: as the real binary, which returns memory to the system on a thread of its own
//! (`shell/runtime/src/memory.rs`), and with the allocator's default, which does it on any allocating thread.
//! Knows nothing of: stores, snapshots.

use super::report::Header;
use crate::commands::misused;
use crate::shell::{self, Failure};
use std::time::Duration;

/// mimalloc's default delay. If it is set explicitly it stays, and that thread is not started.
const MIMALLOCS_OWN_MS: &str = "1000";

/// Builds, measures, prints.
pub fn run(words: &[&str]) -> Result<(), Failure> {
    let keys: u64 = match words {
        [] => 1_000_000,
        ["--keys", text] => {
            text.parse().map_err(|_| Failure::usage(format!("--keys {text}: not a number")))?
        }
        _ => return Err(misused("bench snapshot-pause")),
    };
    let log = shell::log_path("snapshot-pause");
    let mut build = shell::cargo(&[
        "build",
        "--locked",
        "--release",
        "-p",
        "kattu-runtime",
        "--example",
        "snapshot_pause",
    ]);
    shell::run_logged(&mut build, &log, Duration::from_secs(1800))?;
    Header::now(1, false).print();
    let program = shell::target().join("release/examples/snapshot_pause");
    let keys = keys.to_string();
    let as_it_is = shell::in_foreground(std::process::Command::new(&program).arg(&keys));
    println!("\nThe same, with memory returned by the allocator itself:\n");
    let mut by_itself = std::process::Command::new(program);
    let _compared = shell::in_foreground(by_itself.arg(keys).env("MIMALLOC_PURGE_DELAY", MIMALLOCS_OWN_MS));
    as_it_is // the goal is for the binary as it is
}
