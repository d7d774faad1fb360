//! `cargo xtask bugs`: every planted bug must be caught by its judge, and the same seeds without it must be clean.
//!
//! The bugs are data (`proof/bugs/mutants/`). `kattu-mutants` writes a copy of the workspace with all of them in it,
//! `target/planted/tree`; what is built of the copy has a target folder of its own, so that it is never taken for the product.
//! Knows nothing of: the bugs, the judges.

use crate::check::cargo_test;
use crate::shell::{self, Failure, cargo, in_foreground, run_logged};
use crate::stage::Tally;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Building aside, the witnesses take two minutes at most.
const LIMIT: Duration = Duration::from_secs(1500);

fn bugs(words: &[&str]) -> Command {
    let mut bugs = cargo(&["run", "--quiet", "--profile", "proof", "-p", "kattu-bugs", "--"]);
    bugs.args(words);
    in_copy(&mut bugs);
    bugs
}

/// Writes the copy of the workspace that has all planted bugs in it, or brings it up to date.
///
/// # Errors
/// The mutants whose right code stands nowhere.
pub fn copy() -> Result<(), Failure> {
    in_foreground(&mut copier())
}

fn copier() -> Command {
    let mut copier = cargo(&["run", "--locked", "--quiet", "-p", "kattu-mutants", "--", "copy"]);
    copier.arg(folder());
    copier
}

/// The protocol's own storms.
fn peers() -> Command {
    cargo(&["test", "--profile", "proof", "-p", "kattu-bugs", "peers"])
}

fn folder() -> PathBuf {
    shell::target().join("planted/tree")
}

/// Runs a command of cargo in the copy.
pub fn in_copy(command: &mut Command) -> &mut Command {
    command
        .current_dir(folder())
        .env("RUSTFLAGS", "--cfg kattu_planted -A warnings")
        .env("CARGO_TARGET_DIR", shell::target().join("planted"))
        .env("KATTU_ROOT", shell::root())
}

/// `cargo xtask bugs …`: arguments go to the program of `proof/bugs`.
pub fn run(words: &[&str]) -> Result<(), Failure> {
    copy()?;
    in_foreground(&mut bugs(words))
}

/// What the slice runs.
pub fn build(log: &Path) -> Result<(), Failure> {
    run_logged(&mut copier(), log, LIMIT)?;
    let mut programs = cargo(&["build", "--profile", "proof", "-p", "kattu-bugs"]);
    run_logged(in_copy(&mut programs), log, LIMIT)?;
    let mut tests = peers();
    run_logged(in_copy(tests.arg("--no-run")), log, LIMIT)
}

/// The witness of every bug, with the bug and without it; and the protocol's own storms for its bugs.
pub fn slice(log: &Path) -> Result<Tally, Failure> {
    copy()?;
    let ended = run_logged(&mut bugs(&["--fast"]), log, LIMIT);
    let text = std::fs::read_to_string(log)?;
    ended?;
    let note = text.lines().rfind(|line| line.contains(" caught by witnesses")).unwrap_or_default();
    let tally = cargo_test(in_copy(&mut peers()), log, LIMIT)?;
    Ok(Tally { note: note.to_string(), passed: tally.passed + 1, ..tally })
}
