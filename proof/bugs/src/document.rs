//! `docs/planted-bugs.md`, made from the table.
//!
//! Knows nothing of: how bugs are tried.

use kattu_plant::BUGS;
use std::path::PathBuf;

const HEAD: &str = "\
# Planted bugs

A judge that never catches anything is not a judge. So a build with `--cfg kattu_planted` contains the mistakes below, most
of them made by others before us; one at a time is chosen by name when a proof starts. `planted!(\"name\")` marks the place of
each in the code; in every other build it is the constant `false`, and a test looks for the names in the release binary.

| Command | What it does |
|---|---|
| `cargo xtask bugs` | seeds from 0 on for each bug until its judge claims it, then the same seeds without a bug |
| `cargo xtask bugs --fast` | the witness on record for each (`proof/bugs/witnesses.txt`), with and without the bug; part of CI |
| `cargo xtask bugs --only NAME`, `--seed S NAME` | one bug, one seed |
| `cargo xtask bugs --show NAME` | the timeline of a failing storm, shrunk |
| `cargo xtask bugs --write`, `--doc` | writes the witnesses, this page |

*Storms* are simulated clusters, *protocol* the storms of `core/raft` over peers alone, *images* every disk that a power cut could leave of one log, a *scene* is a situation made
for one bug. The judge is the one that must claim the bug; what else it may be claimed by stands behind it. A bug that no
judge claims fails the run, and so does a seed that finds anything without a bug.

Made by `cargo xtask bugs --doc` from `core/plant/src/table.rs`.
";

/// The text of the page.
pub fn text() -> String {
    let mut text = HEAD.to_string();
    let mut home = "";
    for bug in &BUGS {
        if bug.home != home {
            home = bug.home;
            text += &format!(
                "\n## {home}\n\n| Bug | What is wrong | Incident | By | Judge |\n|---|---|---|---|---|\n"
            );
        }
        let judges = bug.judges.join(", ");
        text += &format!(
            "| `{}` | {} | {} | {} | {judges} |\n",
            bug.name,
            bug.story,
            bug.incident,
            bug.trial.name()
        );
    }
    text
}

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/planted-bugs.md")
}

/// Writes the page.
///
/// # Errors
/// The system's.
pub fn write() -> std::io::Result<()> {
    std::fs::write(path(), text())
}

#[cfg(test)]
mod tests {
    #[test]
    #[ignore = "the table and its witnesses are still being taken; run with the stage `bugs`"]
    fn the_page_says_what_the_table_says() {
        let page = std::fs::read_to_string(super::path()).expect("docs/planted-bugs.md can be read");
        assert!(
            page == super::text(),
            "docs/planted-bugs.md is not of this table; next: cargo xtask bugs --doc"
        );
    }

    #[test]
    #[ignore = "the table and its witnesses are still being taken; run with the stage `bugs`"]
    fn every_witness_is_of_a_bug_that_there_is() {
        let witnesses = crate::witness::read().expect("proof/bugs/witnesses.txt can be read");
        for name in witnesses.keys() {
            assert!(kattu_plant::BUGS.iter().any(|bug| bug.name == name), "{name}");
        }
        for bug in &kattu_plant::BUGS {
            assert!(witnesses.contains_key(bug.name), "{} has no witness", bug.name);
        }
    }
}
