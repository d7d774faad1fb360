//! `cargo xtask power`: power loss below a real file system, and the slice of it that every commit runs.
//!
//! Knows nothing of: how the power goes.

use crate::shell::{Failure, cargo, run_logged};
use crate::stage::Tally;
use crate::test::{build_rig, in_foreground, seed_of_commit, with_programs};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(600);
/// Trials of every commit, and trials on disks that lie.
const TRIALS: &str = "3";
const CONTROLS: &str = "1";
/// Seconds after which no further trial begins.
const SECONDS: &str = "20";

fn power(words: &[&str]) -> Command {
    // A profile that unwinds: a rig that panics has mounts to take down.
    let mut power = cargo(&["run", "--locked", "--quiet", "--profile", "proof", "-p", "kattu-power", "--"]);
    power.args(words);
    with_programs(&mut power);
    power
}

/// `cargo xtask power …`: arguments go to the program of `proof/power`.
pub fn run(words: &[&str]) -> Result<(), Failure> {
    in_foreground(&mut power(words))
}

/// A few trials with a seed of the commit's, and the proof that a lost write would have been seen.
pub fn slice(log: &Path) -> Result<Tally, Failure> {
    let seed = seed_of_commit().to_string();
    build_rig("kattu-power", log)?;
    run_logged(&mut power(&["--control", "--trials", CONTROLS, "--seed", &seed]), log, LIMIT)?;
    run_logged(&mut power(&["--trials", TRIALS, "--most", SECONDS, "--seed", &seed]), log, LIMIT)?;
    let text = String::from_utf8_lossy(&std::fs::read(log)?).into_owned();
    if let Some(why) = text.lines().find_map(|line| line.strip_prefix("SKIPPED ")) {
        return Ok(Tally::skipped(why));
    }
    let note = text.lines().last().unwrap_or_default();
    Ok(Tally { note: format!("{note}; seed {seed}"), ..Tally::one() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell;

    #[test]
    fn words_reach_the_program_behind_its_own() {
        let shown = shell::shown(&power(&["--trials", "1", "--seed", "7"]));
        assert!(shown.ends_with("-p kattu-power -- --trials 1 --seed 7"), "{shown}");
    }
}
