//! `cargo xtask fix` and `cargo xtask scripts --update`: the commands that rewrite.
//!
//! Knows nothing of: what is being rewritten.

use crate::shell::{Failure, cargo, log_path, run_logged};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(1500);

/// Formats, takes clippy's suggestions, brings Cargo.lock up to date.
pub fn run() -> Result<(), Failure> {
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

/// Rewrites what the golden scripts of the core expect.
pub fn update_scripts() -> Result<(), Failure> {
    let mut test = cargo(&["test", "-p", "kattu-raft", "-p", "kattu-node"]);
    test.env("UPDATE_GOLDENFILES", "1");
    run_logged(&mut test, &log_path("scripts"), LIMIT)
        .map_err(|failure| failure.then("read target/xtask/scripts.log"))?;
    println!("next: git diff core/*/tests, then commit what you meant");
    Ok(())
}
