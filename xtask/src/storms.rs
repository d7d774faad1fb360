//! The simulator's slices of `cargo xtask test`: old failing seeds, the same trace in every build, fresh storms.
//!
//! Knows nothing of: the events of a storm.

use crate::shell::{self, Failure, run_logged};
use crate::stage::Tally;
use crate::targets;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const BUILD_LIMIT: Duration = Duration::from_secs(1800);
const STORM_LIMIT: Duration = Duration::from_secs(600);
/// Fresh storms for every commit.
const STORMS: u64 = 200;
/// Those in which members share settings, and the election timeout changes.
const OF_SETTINGS: u64 = 100;
/// Fresh storms of each family that judges service, for every commit: they take one to four seconds each.
const OF_SERVICE: usize = 12;
/// Storms with lying members, for every commit: ten a second.
const OF_LIARS: usize = 100;
/// Seeds whose trace is compared between builds, and the simulated minutes.
const COMPARED: u64 = 4;
const MINUTES: u64 = 1;
/// The word of a regression with shared settings.
const SHARED: &str = "shared-settings";

fn kattu(words: &[&str]) -> Command {
    let mut command = Command::new(shell::target().join("release/kattu"));
    command.arg("sim").args(words).current_dir(shell::root());
    command
}

/// Seeds that failed once, and the trace hash of fresh ones in debug and release.
pub fn regressions(seed: u64, log: &Path) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    let file = shell::root().join("proof/sim/regressions.txt");
    let text = std::fs::read_to_string(&file)?;
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        run_logged(&mut kattu(&words_of(line)), log, STORM_LIMIT)?;
        tally.passed += 1;
    }
    let replayed = tally.passed;
    // With the whole set of tests: built alone, it would have other features.
    run_logged(targets::select("build").args(["--quiet", "--tests", "--bin", "sim"]), log, BUILD_LIMIT)?;
    let debug = shell::target().join("debug/sim");
    let mut hashes: Vec<String> = Vec::new();
    for seed in seed..seed + COMPARED {
        let shown = seed.to_string();
        let minutes = MINUTES.to_string();
        let released =
            shell::output(&mut kattu(&["--seed", &shown, "--minutes", &minutes, "--hash"]), STORM_LIMIT)?;
        let seconds = (MINUTES * 60).to_string();
        let debugged = shell::output(Command::new(&debug).args(["hash", &shown, &seconds]), STORM_LIMIT)?;
        let (released, debugged) = (released.trim().to_string(), debugged.trim().to_string());
        if released != debugged || released.is_empty() {
            return Err(Failure::new(format!(
                "seed {seed} has another trace in release ({released}) than in debug ({debugged})"
            ))
            .then(format!("kattu sim --seed {seed} --minutes {MINUTES} --hash, in both builds")));
        }
        if hashes.contains(&released) {
            return Err(Failure::new(format!("seed {seed} has the hash of another seed: {released}")));
        }
        hashes.push(released);
        tally.passed += 1;
    }
    tally.note = format!("{replayed} regressions, {COMPARED} seeds the same in debug and release");
    Ok(tally)
}

/// The storm of a line of regressions, in words of the command line.
fn words_of(line: &str) -> Vec<&str> {
    let mut known = line.split('|').next().unwrap_or("").split_whitespace().peekable();
    let mut words = Vec::new();
    if let Some(family) = known.next_if(|word| *word != SHARED && word.parse::<u64>().is_err()) {
        words.extend(["--family", family]);
    }
    if known.next_if_eq(&SHARED).is_some() {
        words.push("--shared-settings");
    }
    for (option, value) in ["--seed", "--minutes"].into_iter().zip(known) {
        words.extend([option, value]);
    }
    words
}

/// Fresh storms: their seeds follow from the commit.
pub fn fresh(seed: u64, log: &Path) -> Result<Tally, Failure> {
    let first = seed.to_string();
    for (storms, more) in [(STORMS, &[][..]), (OF_SETTINGS, &["--shared-settings"])] {
        let storms = storms.to_string();
        let words = [&["--seed", &first, "--storms", &storms], more].concat();
        run_logged(&mut kattu(&words), log, STORM_LIMIT)?;
    }
    let text = std::fs::read_to_string(log)?;
    let lines: Vec<&str> = text.lines().filter(|line| line.contains(" storms, ")).collect();
    Ok(Tally { passed: (STORMS + OF_SETTINGS) as usize, note: lines.join("; "), ..Tally::default() })
}

/// Fresh storms of the families that judge service, and of liars: their seeds follow from the commit.
pub fn service(seed: u64, log: &Path) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    for (family, storms) in [
        ("slow-links", OF_SERVICE),
        ("slow-members", OF_SERVICE),
        ("busy-disks", OF_SERVICE),
        ("liars", OF_LIARS),
    ] {
        let (count, first) = (storms.to_string(), seed.to_string());
        run_logged(
            &mut kattu(&["--family", family, "--seed", &first, "--storms", &count]),
            log,
            STORM_LIMIT,
        )?;
        tally.passed += storms;
    }
    tally.note = format!("{OF_SERVICE} storms of each family, {OF_LIARS} with liars");
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_regression_is_a_command_line() {
        let cases: [(&str, &[&str]); 4] = [
            ("7 | a | b", &["--seed", "7"]),
            ("7 2 | a | b", &["--seed", "7", "--minutes", "2"]),
            ("shared-settings 7 2 | a | b", &["--shared-settings", "--seed", "7", "--minutes", "2"]),
            (
                "slow-links shared-settings 7 | a | b",
                &["--family", "slow-links", "--shared-settings", "--seed", "7"],
            ),
        ];
        for (line, words) in cases {
            assert_eq!(words_of(line), words, "{line}");
        }
    }
}
