//! Proofs: the simulator, the exploration, and the tests of both and of crash images, built optimized in the profile `proof`.
//!
//! Rule: cargo gives shared crates the features of all crates that are chosen together. So each part is built and run by the same
//!       choice, and shared crates are built once.
//! Knows nothing of: what is proven; planted bugs, whose copy of the tree is built apart.

use crate::shell::{self, Failure, cargo, run_logged};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const CRATES: [&str; 4] = ["kattu-wal", "kattu-sim", "kattu-simulator", "kattu-explore"];
const BUILD_LIMIT: Duration = Duration::from_secs(1800);

/// The situations of the simulator, a target of cargo.
pub const SITUATIONS: &str = "situations";
/// What the exploration sees, a target of cargo.
pub const SEES: &str = "sees";
/// The tests of crash images, among others.
pub const WAL: &str = "wal";
/// Targets whose tests are run in the profile `proof` only.
pub const TESTS: [&str; 2] = [SITUATIONS, SEES];
/// The simulator.
pub const SIMULATOR: &str = "kattu-sim";
/// The exploration.
pub const EXPLORE: &str = "kattu-explore";

fn select(verb: &str) -> Command {
    let mut command = cargo(&[verb, "--locked", "--profile", "proof"]);
    CRATES.iter().for_each(|name| {
        command.args(["-p", name]);
    });
    command
}

/// Builds all of it.
pub fn build(log: &Path) -> Result<(), Failure> {
    let mut build = select("build");
    for test in TESTS.into_iter().chain([WAL]) {
        build.args(["--test", test]);
    }
    for program in [SIMULATOR, EXPLORE] {
        build.args(["--bin", program]);
    }
    run_logged(&mut build, log, BUILD_LIMIT)
}

/// Cargo on one of the tests.
pub fn test(name: &str) -> Command {
    let mut test = select("test");
    test.args(["--test", name]);
    test
}

/// One of the programs, once it is built.
pub fn program(name: &str) -> Command {
    let mut program = Command::new(shell::target().join("proof").join(name));
    program.current_dir(shell::root());
    program
}
