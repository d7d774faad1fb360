//! `cargo xtask explore`: every interleaving of tiny clusters, and the slice of it that every commit runs.
//!
//! Knows nothing of: the states explored.

use crate::bugs;
use crate::check::cargo_test;
use crate::proofs;
use crate::shell::{self, Failure, cargo, in_foreground, run_logged};
use crate::stage::Tally;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(1200);

/// `cargo xtask explore …`: arguments go to the program of `proof/explore`.
pub fn run(words: &[&str]) -> Result<(), Failure> {
    if words.contains(&"--plant") {
        bugs::copy()?;
        let mut explore = cargo(&["run", "--quiet", "--profile", "proof", "-p", "kattu-explore", "--"]);
        return in_foreground(bugs::in_copy(explore.args(words)));
    }
    proofs::build(&shell::log_path("explore"))?;
    in_foreground(proofs::program(proofs::EXPLORE).args(words))
}

/// The planted bugs that the slice must find.
pub fn build(log: &Path) -> Result<(), Failure> {
    bugs::copy()?;
    run_logged(bugs::in_copy(planted().arg("--no-run")), log, LIMIT)
}

fn planted() -> Command {
    cargo(&["test", "--profile", "proof", "-p", "kattu-explore", "--test", "planted"])
}

/// The scopes of every commit, each with its pinned number of states; the tests of the exploration; and the planted bugs that the
/// scopes must find, in a copy that has them. `before_copy`: until then, another process may write that copy.
pub fn slice(log: &Path, before_copy: impl FnOnce()) -> Result<Tally, Failure> {
    proofs::build(log)?;
    run_logged(&mut proofs::program(proofs::EXPLORE), log, LIMIT)?;
    let text = std::fs::read_to_string(log)?;
    let note = text.lines().last().unwrap_or_default().to_string();
    let sees = cargo_test(&mut proofs::test(proofs::SEES), log, LIMIT)?;
    before_copy();
    bugs::copy()?;
    let tally = cargo_test(bugs::in_copy(&mut planted()), log, LIMIT)?;
    Ok(Tally { note, passed: sees.passed + tally.passed + 1, ..tally })
}
