//! `cargo xtask bugs`: every planted bug must be claimed by its judge, and the same seeds without it must be clean.
//!
//! The builds that know bugs have a folder of their own, `target/planted`, so that none of them is ever taken for a real
//! one.
//! Knows nothing of: the bugs, the judges.

use crate::check::cargo_test;
use crate::shell::{self, Failure, cargo, in_foreground, run_logged};
use crate::stage::Tally;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Building aside, the witnesses take two minutes at most.
const LIMIT: Duration = Duration::from_secs(1500);

fn bugs(words: &[&str]) -> Command {
    let mut bugs = cargo(&["run", "--locked", "--quiet", "--profile", "proof", "-p", "kattu-bugs", "--"]);
    bugs.args(words);
    planted(&mut bugs);
    bugs
}

/// A build that knows bugs.
fn planted(command: &mut Command) -> &mut Command {
    command.env("RUSTFLAGS", "--cfg kattu_planted").env("CARGO_TARGET_DIR", shell::target().join("planted"))
}

/// `cargo xtask bugs …`: arguments go to the program of `proof/bugs`.
pub fn run(words: &[&str]) -> Result<(), Failure> {
    in_foreground(&mut bugs(words))
}

/// The witness of every bug, with the bug and without it; and the protocol's own storms over the protocol's bugs.
pub fn slice(log: &Path) -> Result<Tally, Failure> {
    let ended = run_logged(&mut bugs(&["--fast"]), log, LIMIT);
    let text = std::fs::read_to_string(log)?;
    ended?;
    let note = text.lines().rfind(|line| line.contains(" caught by witnesses")).unwrap_or_default();
    let mut storms =
        cargo(&["test", "--locked", "--profile", "proof", "-p", "kattu-raft", "--test", "planted"]);
    let tally = cargo_test(planted(&mut storms), log, LIMIT)?;
    Ok(Tally { note: note.to_string(), passed: tally.passed + 1, ..tally })
}
