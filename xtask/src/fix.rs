//! `cargo xtask fix` and `cargo xtask scripts --update`: the commands that rewrite.
//!
//! Knows nothing of: the rewritten code.

use crate::commands;
use crate::pages;
use crate::shell::{Failure, cargo, log_path, run_logged};
use crate::words;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(1500);

/// Writes the tables of pages, lowers ceilings, applies clippy's suggestions, formats, updates Cargo.lock.
pub fn run() -> Result<(), Failure> {
    for table in pages::rewrite()? {
        println!("{table}");
    }
    if words::lower()? {
        println!("ceilings of retired phrases");
    }
    let log = log_path("fix");
    let suggestions = ["clippy", "--fix", "--allow-dirty", "--allow-staged", "--workspace", "--all-targets"];
    for arguments in
        [&["metadata", "--format-version", "1", "--no-deps"][..], &suggestions, &["fmt", "--all"]]
    {
        println!("cargo {}", arguments.join(" "));
        run_logged(&mut cargo(arguments), &log, LIMIT)
            .map_err(|failure| failure.then("read target/xtask/fix.log"))?;
    }
    println!("next: git diff, then cargo xtask check");
    Ok(())
}

/// `cargo xtask scripts --update`: rewrites the expected output of the core's golden scripts.
pub fn scripts(words: &[&str]) -> Result<(), Failure> {
    if words != ["--update"] {
        return Err(commands::misused("scripts"));
    }
    let mut test = cargo(&["test", "-p", "kattu-raft", "-p", "kattu-node"]);
    test.env("UPDATE_GOLDENFILES", "1");
    run_logged(&mut test, &log_path("scripts"), LIMIT)
        .map_err(|failure| failure.then("read target/xtask/scripts.log"))?;
    println!("next: git diff core/*/tests, then commit the intended changes");
    Ok(())
}
