//! Rigs: the programs that drive real clusters and real disks, and their tests.
//!
//! Rule: all of them are built together, so that shared crates are built once. For the stages of a test that is the
//!       profile of all tests, in which most of them are built already; for measurements they are optimized. Both
//!       profiles unwind: a rig that panics has members to end and mounts to take down.
//! Knows nothing of: members, disks.

use crate::check;
use crate::shell::{self, Failure, cargo, run_logged};
use crate::stage::Tally;
use crate::targets::{self, Names};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The crates.
pub const CRATES: [&str; 5] = ["kattu-e2e", "kattu-differential", "kattu-chaos", "kattu-power", "kattu-lab"];

const BUILD_LIMIT: Duration = Duration::from_secs(1800);
const SYNC_LIMIT: Duration = Duration::from_secs(120);
const TESTS_LIMIT: Duration = Duration::from_secs(2400);

/// The purpose of a rig's build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A stage of `cargo xtask test`.
    Test,
    /// Figures, or a campaign.
    Measure,
}

impl Purpose {
    /// The folder that cargo builds into, below its target.
    fn folder(self) -> &'static str {
        match self {
            Purpose::Test => "debug",
            Purpose::Measure => "proof",
        }
    }
}

fn names() -> Result<Names, Failure> {
    targets::names(|name| CRATES.contains(&name))
}

/// Cargo on the tests of all rigs.
fn on_tests(verb: &str, names: &Names) -> Command {
    let mut command = targets::select(verb);
    for name in &names.tests {
        command.args(["--test", name]);
    }
    command
}

/// Builds them with their tests, and syncs the output of the build: else the first syncs of the members would have to
/// wait for it.
pub fn build(log: &Path) -> Result<(), Failure> {
    let names = names()?;
    let mut build = on_tests("build", &names);
    for name in &names.programs {
        build.args(["--bin", name]);
    }
    run_logged(build.arg("--quiet"), log, BUILD_LIMIT)?;
    // If that takes too long, they wait.
    let _ = run_logged(&mut Command::new("sync"), log, SYNC_LIMIT);
    Ok(())
}

/// Passes the paths of the programs under test to a rig.
fn with_programs(command: &mut Command) -> &mut Command {
    command.env("KATTU_BIN", shell::target().join("release/kattu")).env("KATTU_TOOLS", shell::tools_dir())
}

/// The command of a built rig.
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

/// Builds the programs and the binary that they drive, and shows the compiler's messages.
pub fn build_in_foreground() -> Result<(), Failure> {
    shell::kattu()?;
    let mut build = cargo(&["build", "--locked", "--profile", "proof", "--quiet", "--bins"]);
    for name in CRATES {
        build.args(["-p", name]);
    }
    shell::in_foreground(&mut build)
}

/// Builds a rig and runs it, with its output in the log.
pub fn run(name: &str, words: &[&str], log: &Path, limit: Duration) -> Result<(), Failure> {
    build(log)?;
    run_logged(&mut program(name, words, Purpose::Test), log, limit)
}

/// The rigs' integration tests; their unit tests run with those of other crates.
pub fn tests(log: &Path) -> Result<Tally, Failure> {
    build(log)?;
    // Six tests at a time: they start clusters and mostly wait. Those that judge times make sure that they run alone.
    let mut test = on_tests("test", &names()?);
    test.args(["--no-fail-fast", "--", "--nocapture", "--test-threads=6"]);
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
