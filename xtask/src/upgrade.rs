//! `cargo xtask upgrade`: upgrades a cluster of an older version to this, under load and kills. [fault-model P13, F62]
//!
//! The older version is a commit of this repository, built in a worktree of its own under `target/upgrade`.
//! Knows nothing of: the steps of the upgrade.

use crate::commands;
use crate::rigs;
use crate::shell::{self, Failure, cargo, in_foreground, root};
use std::path::PathBuf;
use std::process::Command;

/// `cargo xtask upgrade …`
pub fn run(words: &[&str]) -> Result<(), Failure> {
    let (mut from, mut rounds) = (None, 3_u32);
    for pair in words.chunks(2) {
        match pair {
            ["--from", commit] if !commit.starts_with('-') => from = Some(*commit),
            ["--rounds", number] => {
                rounds = number.parse().ok().filter(|rounds| 0 < *rounds).ok_or_else(usage)?;
            }
            _ => return Err(usage()),
        }
    }
    let from = from.ok_or_else(usage)?;
    // Here and not in the worktree, which has another `HEAD`.
    let commit = shell::commit_of(from)
        .ok_or_else(|| Failure::new(format!("there is no commit `{from}` here")).then("git log --oneline"))?;
    let older = build(&commit)?;
    shell::kattu()?;
    rigs::in_foreground("upgrade", &[&older.to_string_lossy(), &rounds.to_string()])
}

fn usage() -> Failure {
    commands::misused("upgrade")
}

/// Builds the binary of a commit, given by its id.
fn build(commit: &str) -> Result<PathBuf, Failure> {
    let folder = shell::target().join("upgrade");
    let source = folder.join("source");
    if source.exists() {
        in_foreground(
            Command::new("git").current_dir(&source).args(["checkout", "--quiet", "--detach", commit]),
        )?;
    } else {
        std::fs::create_dir_all(&folder)?;
        let mut worktree = Command::new("git");
        worktree.current_dir(root()).args(["worktree", "prune"]);
        in_foreground(&mut worktree)?;
        let mut worktree = Command::new("git");
        worktree
            .current_dir(root())
            .args(["worktree", "add", "--quiet", "--detach"])
            .arg(&source)
            .arg(commit);
        in_foreground(&mut worktree)?;
    }
    let built = folder.join("build");
    let mut build = cargo(&["build", "--locked", "--release", "--bin", "kattu"]);
    in_foreground(build.current_dir(&source).env("CARGO_TARGET_DIR", &built))?;
    Ok(built.join("release/kattu"))
}
