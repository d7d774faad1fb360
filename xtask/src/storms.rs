//! The simulator's slices of `cargo xtask test`: the same course in every build, fresh storms.
//!
//! Knows nothing of: the events of a storm.

use crate::check;
use crate::proofs;
use crate::shell::{self, Failure, run_logged};
use crate::stage::Tally;
use crate::targets;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const BUILD_LIMIT: Duration = Duration::from_secs(1800);
const STORM_LIMIT: Duration = Duration::from_secs(600);
/// Fresh storms for every commit.
const STORMS: u64 = 50;
/// Those in which members share settings, and the election timeout changes.
const OF_SETTINGS: u64 = 16;
/// Those in which, besides, some clients have sessions.
const OF_SESSIONS: u64 = 20;
/// Those in which, besides, members are tuned while they run.
const OF_TUNED: u64 = 20;
/// Those in which the cluster changes between raft and nb-raft, over one to four links.
const OF_NON_BLOCKING: u64 = 12;
/// Those in which, besides, clients ask for weak answers.
const OF_WEAK: u64 = 8;
/// Those in which members have no optimisation, of the same seeds as the first ones, in which they have all.
const OF_BASIC_RAFT: u64 = 10;
/// Fresh storms of each family that judges service, for every commit: they take one to four seconds each.
const OF_SERVICE: usize = 12;
/// Storms with lying members, for every commit: ten a second.
const OF_LIARS: usize = 100;
/// Seeds whose course is compared between builds, and the simulated minutes.
const COMPARED: u64 = 4;
const MINUTES: u64 = 1;

/// The tests of the simulator.
pub fn situations(log: &Path) -> Result<Tally, Failure> {
    check::cargo_test(&mut proofs::test(proofs::SITUATIONS), log, STORM_LIMIT)
}

fn simulator(words: &[&str]) -> Command {
    let mut command = proofs::program(proofs::SIMULATOR);
    command.args(words);
    command
}

/// The hash of the course of fresh seeds, in debug and optimized.
pub fn courses(seed: u64, log: &Path) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    proofs::build(log)?;
    // With the whole set of tests: built alone, it would have other features.
    run_logged(targets::select("build").args(["--quiet", "--tests", "--bin", "sim"]), log, BUILD_LIMIT)?;
    let debug = shell::target().join("debug/sim");
    let mut hashes: Vec<String> = Vec::new();
    for seed in seed..seed + COMPARED {
        let shown = seed.to_string();
        let minutes = MINUTES.to_string();
        let optimized =
            shell::output(&mut simulator(&["--seed", &shown, "--minutes", &minutes, "--hash"]), STORM_LIMIT)?;
        let seconds = (MINUTES * 60).to_string();
        let debugged = shell::output(Command::new(&debug).args(["hash", &shown, &seconds]), STORM_LIMIT)?;
        let (optimized, debugged) = (optimized.trim().to_string(), debugged.trim().to_string());
        if optimized != debugged || optimized.is_empty() {
            return Err(Failure::new(format!(
                "seed {seed} takes another course when it is optimized ({optimized}) than in debug ({debugged})"
            ))
            .then(format!("kattu sim --seed {seed} --minutes {MINUTES} --hash, in both builds")));
        }
        if hashes.contains(&optimized) {
            return Err(Failure::new(format!("seed {seed} has the hash of another seed: {optimized}")));
        }
        hashes.push(optimized);
        tally.passed += 1;
    }
    tally.note = format!("{COMPARED} seeds the same in debug and optimized");
    Ok(tally)
}

/// The storms that once broke a promise, and fresh ones, whose seeds follow from the commit.
pub fn fresh(seed: u64, log: &Path) -> Result<Tally, Failure> {
    proofs::build(log)?;
    run_logged(&mut simulator(&["--regressions"]), log, STORM_LIMIT)?;
    let first = seed.to_string();
    let slices: [(u64, &[&str]); 7] = [
        (STORMS, &[]),
        (OF_SETTINGS, &["--shared-settings"]),
        (OF_SESSIONS, &["--sessions"]),
        (OF_TUNED, &["--tuned"]),
        (OF_NON_BLOCKING, &["--non-blocking"]),
        (OF_WEAK, &["--weak"]),
        (OF_BASIC_RAFT, &["--basic-raft"]),
    ];
    for (storms, more) in slices {
        let storms = storms.to_string();
        let words = [&["--seed", &first, "--storms", &storms], more].concat();
        run_logged(&mut simulator(&words), log, STORM_LIMIT)?;
    }
    let text = std::fs::read_to_string(log)?;
    let is_sum = |line: &&str| line.contains(" storms, ") || line.contains(" regressions, ");
    let lines: Vec<&str> = text.lines().filter(is_sum).collect();
    Ok(Tally {
        passed: slices.iter().map(|(storms, _)| *storms as usize).sum(),
        note: lines.join("; "),
        ..Tally::default()
    })
}

/// Fresh storms of the families that judge service, and of liars: their seeds follow from the commit.
pub fn service(seed: u64, log: &Path) -> Result<Tally, Failure> {
    proofs::build(log)?;
    let mut tally = Tally::default();
    for (family, storms) in [
        ("slow-links", OF_SERVICE),
        ("slow-members", OF_SERVICE),
        ("busy-disks", OF_SERVICE),
        ("liars", OF_LIARS),
    ] {
        let (count, first) = (storms.to_string(), seed.to_string());
        run_logged(
            &mut simulator(&["--family", family, "--seed", &first, "--storms", &count]),
            log,
            STORM_LIMIT,
        )?;
        tally.passed += storms;
    }
    tally.note = format!("{OF_SERVICE} storms of each family, {OF_LIARS} with liars");
    Ok(tally)
}
