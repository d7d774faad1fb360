//! `cargo xtask check`: the stages that read and judge. No file of the tree is changed.
//!
//! Knows nothing of: the subjects of the tests.

use crate::arrows;
use crate::pages;
use crate::prebuild;
use crate::profiles;
use crate::proofs;
use crate::rigs;
use crate::shell::{self, Failure, cargo, run_logged};
use crate::stage::{self, Stage, Tally};
use crate::targets;
use crate::words;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// A cargo command that takes longer than this hangs.
const LIMIT: Duration = Duration::from_secs(1500);

/// Crates whose tests must build in seconds: no async runtime, no gRPC, no HTTP.
const PURE: &[&str] = &["kattu-raft", "kattu-kv", "kattu-node", "kattu-wire", "kattu-native", "kattu-wal"];

/// Crates that a pure crate must not depend on, not even in tests.
const HEAVY: &[&str] = &["tokio", "tonic", "hyper", "axum", "prost", "clap"];

/// The stages, in the order in which they are quickest to fail.
pub const STAGES: &[Stage] = &[
    Stage { name: "format", about: "cargo fmt --check", next: "cargo xtask fix", needs: &[], run: format },
    Stage {
        name: "arrows",
        about: "the dependency-direction table",
        next: "read the lines above; the table is in xtask/src/arrows.rs",
        needs: &[],
        run: arrows,
    },
    Stage {
        name: "profiles",
        about: "release builds check for arithmetic overflow",
        next: "read the lines above; the rule is in xtask/src/profiles.rs",
        needs: &[],
        run: profiles,
    },
    Stage {
        name: "pages",
        about: "links, paths, crates, commits and tables of commands in *.md",
        next: "cargo xtask fix for tables of commands; read the lines above for the rest",
        needs: &[],
        run: |_log| in_clone(pages::judge),
    },
    Stage {
        name: "words",
        about: "retired words in names and comments",
        next: "read the lines above; the words are in xtask/src/words.rs and xtask/src/words/phrases.rs",
        needs: &[],
        run: |_log| in_clone(words::judge),
    },
    Stage {
        name: "costs",
        about: "the form of docs/figures/costs.csv, and its trend",
        next: "read the lines above; the form is in xtask/src/bench/costs.rs",
        needs: &[],
        run: crate::bench::costs::stage,
    },
    Stage {
        name: "pure",
        about: "the core and the log build without async and gRPC",
        next: "cargo tree -p <crate> -i <the heavy crate>",
        needs: &[],
        run: pure_tree,
    },
    Stage {
        name: "pure-alone",
        about: "the core and the log compile without the other crates, with their tests",
        next: "cargo check --tests -p kattu-raft -p kattu-kv -p kattu-node -p kattu-wire -p kattu-native -p kattu-wal",
        needs: &[],
        run: pure_alone,
    },
    Stage {
        name: "clippy",
        about: "warnings are errors",
        next: "cargo xtask fix, then cargo clippy --workspace --all-targets",
        needs: &[],
        run: clippy,
    },
    Stage {
        name: "docs",
        about: "cargo doc, warnings are errors",
        next: "cargo doc --no-deps --workspace",
        needs: &[],
        run: docs,
    },
    Stage {
        name: "unit-tests",
        about: "unit tests; integration tests except those of rigs",
        next: "cargo test -p <the crate>",
        needs: &[],
        run: unit_tests,
    },
];

/// Runs them all.
pub fn run() -> Result<(), Failure> {
    stage::run_all(&STAGES.iter().collect::<Vec<_>>())
}

fn format(log: &Path) -> Result<Tally, Failure> {
    run_logged(&mut cargo(&["fmt", "--all", "--check"]), log, LIMIT)?;
    Ok(Tally::one())
}

fn arrows(_log: &Path) -> Result<Tally, Failure> {
    let count = arrows::judge()?;
    Ok(Tally { note: format!("{count} manifests"), ..Tally::one() })
}

fn profiles(_log: &Path) -> Result<Tally, Failure> {
    let count = profiles::judge()?;
    Ok(Tally { note: format!("{count} profiles"), ..Tally::one() })
}

/// Runs a check of what is in git.
fn in_clone(judge: fn() -> Result<Tally, Failure>) -> Result<Tally, Failure> {
    match shell::commit_of("HEAD") {
        Some(_) => judge(),
        None => Ok(Tally::skipped("this is no clone: git does not tell which files there are")),
    }
}

fn pure_tree(_log: &Path) -> Result<Tally, Failure> {
    for name in PURE {
        let mut tree = cargo(&[
            "tree",
            "--locked",
            "-p",
            name,
            "-e",
            "normal,build,dev",
            "--prefix",
            "none",
            "-f",
            "{p}",
        ]);
        let text = shell::output(&mut tree, LIMIT)?;
        let heavy = text.lines().filter_map(|line| line.split(' ').next()).find(|name| HEAVY.contains(name));
        if let Some(heavy) = heavy {
            return Err(Failure::new(format!(
                "`{name}` pulls in `{heavy}`; its tests must build without it"
            ))
            .then(format!("cargo tree -p {name} -i {heavy} -e all")));
        }
    }
    Ok(Tally { note: format!("{} crates without {}", PURE.len(), HEAVY.join(", ")), ..Tally::one() })
}

/// Runs a `cargo test` and counts its results.
pub fn cargo_test(command: &mut Command, log: &Path, limit: Duration) -> Result<Tally, Failure> {
    let ended = run_logged(command, log, limit);
    let text = std::fs::read(log).unwrap_or_default();
    let tally = Tally::of_cargo_test(&String::from_utf8_lossy(&text));
    ended?;
    if tally.passed + tally.skipped.len() == 0 {
        return Err(Failure::new("the command ran no test at all"));
    }
    Ok(tally)
}

/// Alone they have fewer features of other crates than with the whole workspace, where their tests run: built for both, they
/// and all below them would be built twice.
fn pure_alone(log: &Path) -> Result<Tally, Failure> {
    let mut check = cargo(&["check", "--locked", "--tests"]);
    for name in PURE {
        check.args(["-p", name]);
    }
    run_logged(&mut check, log, LIMIT)?;
    Ok(Tally::one())
}

fn clippy(log: &Path) -> Result<Tally, Failure> {
    let mut clippy = cargo(&["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"]);
    run_logged(&mut clippy, log, LIMIT)?;
    Ok(Tally::one())
}

fn docs(log: &Path) -> Result<Tally, Failure> {
    let mut doc = cargo(&["doc", "--locked", "--no-deps", "--workspace"]);
    doc.env("RUSTDOCFLAGS", "-D warnings");
    run_logged(&mut doc, log, LIMIT)?;
    Ok(Tally::one())
}

/// Unit tests, and the integration tests of crates that are no rigs.
fn unit_tests(log: &Path) -> Result<Tally, Failure> {
    let names = targets::names(|name| !rigs::CRATES.contains(&name))?.tests;
    let names: Vec<String> =
        names.into_iter().filter(|name| !proofs::TESTS.contains(&name.as_str())).collect();
    let test = || {
        let mut test = targets::select("test");
        test.args(["--no-fail-fast", "--lib", "--bins"]);
        for name in &names {
            test.args(["--test", name]);
        }
        test
    };
    run_logged(test().arg("--no-run"), log, LIMIT)?;
    prebuild::begin();
    let tests = run_logged(&mut test(), log, LIMIT);
    // Counts the results of both.
    let all = cargo_test(targets::select("test").args(["--no-fail-fast", "--doc"]), log, LIMIT);
    tests.and(all)
}
