//! `docs/planted-bugs.md`, made from the table.
//!
//! Knows nothing of: how bugs are tried.

use kattu_mutants::BUGS;
use std::collections::BTreeMap;
use std::path::PathBuf;

const HEAD: &str = "\
# Planted bugs

A checker that never catches anything is not a checker. The mistakes below, most of them made by others before us, are data
in `proof/bugs/mutants/`: for each the right code and what is wrong instead. `proof/mutants` writes a copy of the workspace, in
`target/planted/tree`, with all wrong code beside the right code; one bug at a time is chosen by name when a proof starts. The
source of the product says only what is right, and a mutant whose right code no longer stands in it fails `cargo xtask check`.

| Command | What it does |
|---|---|
| `cargo xtask bugs` | seeds from 0 on for each bug until its judge claims it, then the same seeds without a bug |
| `cargo xtask bugs --fast` | the witness on record for each (`proof/bugs/witnesses.txt`), with and without the bug; part of CI |
| `cargo xtask bugs --alone` | for each judge of service a bug that no other judge sees: with that judge silent, the storm of the witness breaks no promise; part of `--fast` |
| `cargo xtask bugs --only NAME`, `--seed S NAME` | one bug, one seed |
| `cargo xtask bugs --show NAME` | the timeline of a failing storm, shrunk |
| `cargo xtask bugs --write`, `--doc` | writes the witnesses, this page |

*Storms* are simulated clusters, *service* such clusters with one slow member or link, or much to do at the disk, and nothing else wrong, *protocol* the storms of `core/raft` over peers alone, *images* disks as a power cut could
leave them of one log, a *scenario* is a situation made for one bug. The judge is the one that the bug was planted for; others that
may claim it stand behind it. The run fails for a bug that none of them claims, for a judge that claims none of those planted
for it, and for a seed that finds anything without a bug.

Made by `cargo xtask bugs --doc` from `proof/bugs/mutants/`.
";

/// How many bugs each trial must find.
fn counts() -> String {
    let mut counts = BTreeMap::new();
    BUGS.iter().for_each(|bug| *counts.entry(bug.trial).or_insert(0) += 1);
    let of_trials: Vec<_> =
        counts.into_iter().map(|(trial, count)| format!("{count} {}", trial.name())).collect();
    format!("\nThere are {}, by trial: {}.\n", BUGS.len(), of_trials.join(", "))
}

/// The text of the page.
pub fn text() -> String {
    let mut text = HEAD.to_string();
    text += &counts();
    let mut home = "";
    for bug in BUGS.iter() {
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
    crate::root().join("docs/planted-bugs.md")
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
    use kattu_mutants::BUGS;
    use std::collections::BTreeSet;

    #[test]
    fn the_page_says_what_the_table_says() {
        let page = std::fs::read_to_string(super::path()).expect("docs/planted-bugs.md can be read");
        assert!(
            page == super::text(),
            "docs/planted-bugs.md is not of this table; next: cargo xtask bugs --doc"
        );
    }

    #[test]
    fn every_witness_is_of_a_bug_that_there_is() {
        let witnesses = crate::witness::read().expect("proof/bugs/witnesses.txt can be read");
        for name in witnesses.keys() {
            assert!(kattu_mutants::BUGS.iter().any(|bug| bug.name == name), "{name}");
        }
        for bug in BUGS.iter() {
            assert!(witnesses.contains_key(bug.name), "{} has no witness", bug.name);
        }
    }

    /// The judge of this row: the first name in its third cell. Files of judges are called after what they look at.
    fn judge_of(cell: &str) -> &str {
        let name = cell.split('`').nth(1).unwrap_or_default();
        match name.trim_end_matches('/').trim_end_matches(".rs") {
            "back" => "revisions_never_back",
            "atomic" => "txn_atomic",
            "leases" => "leases_exclude_leaders",
            name => name,
        }
    }

    fn names(cell: &str) -> Vec<&str> {
        let quoted = cell.split('`').skip(1).step_by(2);
        quoted.filter(|name| name.contains('-') && !name.contains('/')).collect()
    }

    #[test]
    fn the_page_of_invariants_names_for_each_judge_what_it_must_catch() {
        let path = crate::root().join("docs/invariants.md");
        let page = std::fs::read_to_string(path).expect("docs/invariants.md can be read");
        let mut named = BTreeSet::new();
        for row in page.lines().filter(|line| line.starts_with("| **")) {
            let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
            let (judge, last) = (judge_of(cells[2]), cells[cells.len() - 1]);
            let (planted, claimed) = last.split_once("claims").unwrap_or((last, ""));
            for (name, for_it) in names(planted)
                .into_iter()
                .zip([true].into_iter().cycle())
                .chain(names(claimed).into_iter().zip([false].into_iter().cycle()))
            {
                let bug = BUGS.iter().find(|bug| bug.name == name);
                let bug = bug.unwrap_or_else(|| panic!("no bug is called {name}: {row}"));
                assert_eq!(
                    bug.judges[0] == judge,
                    for_it,
                    "{name} is planted for {}, not in: {row}",
                    bug.judges[0]
                );
                assert!(!for_it || named.insert(name), "{name} stands twice");
            }
        }
        for bug in BUGS.iter() {
            assert!(named.contains(bug.name), "{} stands in no row of {}", bug.name, bug.judges[0]);
        }
    }
}
