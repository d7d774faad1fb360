//! Mutants: known mistakes, as data; a checker must detect each of them.
//!
//! ```text
//!  proof/bugs/mutants/*.toml ──▶ BUGS: name, story, checkers        the product's source has only right code
//!            │
//!            └──▶ copy: target/planted/tree, the whole workspace with every mutant's wrong code beside the right code
//! ```
//! In the copy each place checks at run time whether its mutant is chosen (`kattu_plant::is(17)`), so one build tries
//! all of them. A mutant whose text is no longer exactly once in its file fails the check and is named.
//! Knows nothing of: the course of trials, the checkers.
#![forbid(unsafe_code)]

mod place;
mod text;
pub mod tree;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// One mistake that can be made on purpose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bug {
    /// Its name: the failure, in words that no program contains by chance.
    pub name: &'static str,
    /// The crate that makes the mistake.
    pub home: &'static str,
    /// The system that had it, or the rule that it breaks.
    pub incident: &'static str,
    /// The mistake, in one sentence.
    pub story: &'static str,
    /// The kind of trial that tries to expose it.
    pub trial: Trial,
    /// The checkers that may detect it; the first is the one it was planted for.
    pub judges: Vec<&'static str>,
    /// The places of its wrong code.
    pub edits: Vec<Edit>,
}

/// Wrong code for one piece of right code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The path of the file, from the root of the workspace.
    pub file: String,
    /// The beginning of the item in which the text occurs once, such as `fn on_vote`; without one it is the whole file.
    pub within: Option<String>,
    /// The right code. White space, comments and commas before a closing bracket do not matter. Empty: the wrong code
    /// is added to the end of the file.
    pub text: String,
    /// The wrong code.
    pub instead: String,
}

/// The kind of trial that tries to expose a bug; a seed decides everything in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trial {
    /// Storms over a simulated cluster, checked by invariants and by the history of its clients.
    Storms,
    /// Storms in which one member or one link is slow, or disks are busy, without other faults, checked by how well the
    /// cluster serves; and those in which a member lies, and no process may end.
    Service,
    /// Storms over peers of the protocol alone, driven by single messages and records: clocks, disks and roles change
    /// faster than in a cluster.
    Protocol,
    /// Every crash image of random stories of one log.
    Images,
    /// A situation made for one bug that breaks no guarantee a storm could observe.
    Scenario,
}

impl Trial {
    /// All, with their names.
    const ALL: [(Trial, &'static str); 5] = [
        (Trial::Storms, "storms"),
        (Trial::Service, "service"),
        (Trial::Protocol, "protocol"),
        (Trial::Images, "images"),
        (Trial::Scenario, "scenario"),
    ];

    /// Its name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        Trial::ALL.iter().find(|(trial, _)| *trial == self).map_or("", |(_, name)| name)
    }
}

/// All bugs that can be planted, in the order of their numbers: the first is number 1.
///
/// # Panics
/// If a file of mutants cannot be read or is malformed; `cargo xtask check` finds that out before.
pub static BUGS: LazyLock<Vec<Bug>> =
    LazyLock::new(|| read(&folder()).unwrap_or_else(|why| panic!("the mutants cannot be read: {why}")));

/// The folder of the mutants.
#[must_use]
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../bugs/mutants")
}

/// The number of a bug, and the bug.
#[must_use]
pub fn find(name: &str) -> Option<(usize, &'static Bug)> {
    let place = BUGS.iter().position(|bug| bug.name == name)?;
    Some((place + 1, &BUGS[place]))
}

/// Reads all mutants of a folder, file by file in the order of their names.
///
/// # Errors
/// The file that cannot be read, or the mutant that lacks a field.
pub fn read(folder: &Path) -> Result<Vec<Bug>, String> {
    let of_system = |error: std::io::Error| format!("{}: {error}", folder.display());
    let entries = std::fs::read_dir(folder).map_err(of_system)?;
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>().map_err(of_system)?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    paths.sort();
    let mut bugs = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        parse(&text, &mut bugs).map_err(|why| format!("{}: {why}", path.display()))?;
    }
    Ok(bugs)
}

fn parse(text: &str, bugs: &mut Vec<Bug>) -> Result<(), String> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| error.to_string())?;
    let mutants = table.get("mutant").and_then(toml::Value::as_array).ok_or("no [[mutant]]")?;
    for mutant in mutants {
        let of = |key: &str| mutant.get(key).and_then(toml::Value::as_str);
        let name = keep(of("name").ok_or("a mutant without a name")?);
        let has = |key: &str| of(key).map(keep).ok_or(format!("{name}: no {key}"));
        let list =
            |key: &str| mutant.get(key).and_then(toml::Value::as_array).ok_or(format!("{name}: no {key}"));
        let word = has("trial")?;
        let trial = Trial::ALL.iter().find(|(_, known)| *known == word);
        let (trial, _) = trial.ok_or(format!("{name}: unknown trial `{word}`"))?;
        let edits = list("edit")?.iter().map(|edit| {
            let of = |key: &str| edit.get(key).and_then(toml::Value::as_str).map(str::to_string);
            let has = |key: &str| of(key).ok_or(format!("{name}: an edit without {key}"));
            Ok(Edit {
                file: has("file")?,
                within: of("within"),
                text: has("text")?,
                instead: has("instead")?,
            })
        });
        let edits = edits.collect::<Result<Vec<_>, String>>()?;
        let first = edits.first().ok_or(format!("{name}: no edit"))?;
        bugs.push(Bug {
            name,
            home: keep(&home_of(&first.file).ok_or(format!("{name}: {} is in no crate", first.file))?),
            incident: has("incident")?,
            story: has("story")?,
            trial: *trial,
            judges: list("judges")?.iter().filter_map(toml::Value::as_str).map(keep).collect(),
            edits,
        });
    }
    Ok(())
}

/// The crate of a file: `core/raft/src/commit.rs` is in `kattu-raft`.
fn home_of(file: &str) -> Option<String> {
    let mut parts = file.split('/');
    let _floor = parts.next()?;
    parts.next().map(|room| format!("kattu-{room}"))
}

/// Leaks the text: the table lives as long as the process.
fn keep(text: &str) -> &'static str {
    Box::leak(text.to_string().into_boxed_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_bug_has_a_name_of_its_own_that_no_program_contains_by_chance() {
        let names: BTreeSet<&str> = BUGS.iter().map(|bug| bug.name).collect();
        assert_eq!(names.len(), BUGS.len());
        for name in names {
            let lower = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
            assert!(lower && name.len() >= 15 && name.matches('-').count() >= 2, "{name}");
        }
    }

    #[test]
    fn every_bug_tells_its_story_and_names_a_judge() {
        for bug in BUGS.iter() {
            assert!(bug.story.ends_with('.') && bug.story.len() > 30, "{}", bug.name);
            assert!(!bug.incident.is_empty() && !bug.judges.is_empty(), "{}", bug.name);
            assert!(
                bug.edits.iter().all(|edit| home_of(&edit.file).as_deref() == Some(bug.home)),
                "{}",
                bug.name
            );
        }
    }

    #[test]
    fn every_text_stands_once_where_it_is_said_to_stand() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        assert_eq!(tree::check(&root, &BUGS), Ok(()));
    }

    #[test]
    fn a_mutant_that_lacks_something_is_named() {
        let wrong = |text: &str| parse(text, &mut Vec::new()).expect_err("something is missing");
        assert!(wrong("").contains("no [[mutant]]"));
        assert!(wrong("[[mutant]]\nname = \"x-y-z\"\n").contains("x-y-z: no trial"));
        let trial = "[[mutant]]\nname = \"x-y-z\"\ntrial = \"prayer\"\n";
        assert!(wrong(trial).contains("unknown trial `prayer`"));
    }
}
