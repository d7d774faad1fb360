//! `cargo xtask power`: power loss below a real file system, and the slice of it that every commit runs.
//!
//! Knows nothing of: disks, mounts.

use crate::rigs;
use crate::shell::Failure;
use crate::stage::Tally;
use crate::test::seed_of_commit;
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(600);
/// Trials of every commit, and trials on lying disks.
const TRIALS: &str = "3";
const CONTROLS: &str = "1";
/// Seconds after which no further trial begins.
const SECONDS: &str = "20";

/// `cargo xtask power …`: arguments go to the program of `proof/power`.
pub fn run(words: &[&str]) -> Result<(), Failure> {
    rigs::in_foreground("kattu-power", words)
}

/// A few trials with a seed from the commit, and the proof that a lost write would be noticed.
pub fn slice(log: &Path) -> Result<Tally, Failure> {
    let seed = seed_of_commit().to_string();
    rigs::run("kattu-power", &["--control", "--trials", CONTROLS, "--seed", &seed], log, LIMIT)?;
    rigs::run("kattu-power", &["--trials", TRIALS, "--most", SECONDS, "--seed", &seed], log, LIMIT)?;
    let text = String::from_utf8_lossy(&std::fs::read(log)?).into_owned();
    if let Some(why) = text.lines().find_map(|line| line.strip_prefix("SKIPPED ")) {
        return Ok(Tally::skipped(why));
    }
    let note = text.lines().last().unwrap_or_default();
    Ok(Tally { note: format!("{note}; seed {seed}"), ..Tally::one() })
}
