//! Rigs: the programs that drive real clusters and real disks, and their tests.
//!
//! Rule: all of them are built together, so that what they share is built once. For the stages of a test that is the profile of
//!       all tests, in which most of it is built already; what measures is optimized. Both profiles unwind: a rig that panics has
//!       members to end and mounts to take down.
//! Knows nothing of: what the rigs do.

use crate::check;
use crate::shell::{self, Failure, cargo, run_logged};
use crate::stage::Tally;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The crates.
pub const CRATES: [&str; 4] = ["kattu-e2e", "kattu-differential", "kattu-chaos", "kattu-power"];

const BUILD_LIMIT: Duration = Duration::from_secs(1800);
const SYNC_LIMIT: Duration = Duration::from_secs(120);
const TESTS_LIMIT: Duration = Duration::from_secs(2400);

/// What a rig is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A stage of `cargo xtask test`.
    Test,
    /// Figures, or a campaign.
    Measure,
}

impl Purpose {
    /// How cargo is told the profile.
    fn profile(self) -> &'static [&'static str] {
        match self {
            Purpose::Test => &[],
            Purpose::Measure => &["--profile", "proof"],
        }
    }

    /// The folder that cargo builds into, below its target.
    fn folder(self) -> &'static str {
        match self {
            Purpose::Test => "debug",
            Purpose::Measure => "proof",
        }
    }
}

/// Cargo on all of them: what is shared has the same features whichever of them is wanted.
fn on_all(verb: &str, purpose: Purpose) -> Command {
    let mut command = cargo(&[verb, "--locked"]);
    command.args(purpose.profile());
    for name in CRATES {
        command.args(["-p", name]);
    }
    command
}

/// Builds them with their tests, and lets what the build has written reach the disk: the first syncs of the members would
/// have to wait for it.
fn build(log: &Path) -> Result<(), Failure> {
    run_logged(on_all("build", Purpose::Test).args(["--quiet", "--bins", "--tests"]), log, BUILD_LIMIT)?;
    // Where that takes too long, they wait.
    let _ = run_logged(&mut Command::new("sync"), log, SYNC_LIMIT);
    Ok(())
}

/// Tells a rig where the programs under test are.
fn with_programs(command: &mut Command) -> &mut Command {
    command.env("KATTU_BIN", shell::target().join("release/kattu")).env("KATTU_TOOLS", shell::tools_dir())
}

/// A rig that is built.
pub fn program(name: &str, words: &[&str], purpose: Purpose) -> Command {
    let mut program = Command::new(shell::target().join(purpose.folder()).join(name));
    with_programs(program.args(words)).current_dir(shell::root());
    program
}

/// Builds a rig and runs it with our own output; the exit code is its verdict.
pub fn in_foreground(name: &str, words: &[&str]) -> Result<(), Failure> {
    build_in_foreground()?;
    shell::in_foreground(&mut program(name, words, Purpose::Measure))
}

/// Builds the programs, and shows what the compiler says.
pub fn build_in_foreground() -> Result<(), Failure> {
    shell::in_foreground(on_all("build", Purpose::Measure).args(["--quiet", "--bins"]))
}

/// Builds a rig and runs it, with all that it prints in the log.
pub fn run(name: &str, words: &[&str], log: &Path, limit: Duration) -> Result<(), Failure> {
    build(log)?;
    run_logged(&mut program(name, words, Purpose::Test), log, limit)
}

/// Their tests.
pub fn tests(log: &Path) -> Result<Tally, Failure> {
    build(log)?;
    // Two tests at a time: they start clusters and mostly wait. Those that judge times see to it that they are alone.
    let mut test = on_all("test", Purpose::Test);
    test.args(["--no-fail-fast", "--bins", "--tests", "--", "--nocapture", "--test-threads=2"]);
    check::cargo_test(with_programs(&mut test), log, TESTS_LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_reach_the_rig_with_the_programs_under_test() {
        let shown = shell::shown(&program(
            "kattu-chaos",
            &["chaos", "--trials", "1", "--seed", "7"],
            Purpose::Measure,
        ));
        assert!(shown.contains("KATTU_BIN=") && shown.contains("release/kattu"), "{shown}");
        assert!(shown.ends_with("kattu-chaos chaos --trials 1 --seed 7"), "{shown}");
    }
}
