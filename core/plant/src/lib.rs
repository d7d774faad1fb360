//! Planted bugs: mistakes that others have made, each of which our judges must notice. A judge that has never caught
//! anything is not a judge.
//!
//! In a build with `--cfg kattu_planted` the crates of the core and the log ask `planted!("name")` at the places where
//! the mistakes were made; one bug at a time is chosen at run time, by name. In every other build the question is the
//! constant `false`, this crate is not linked, and none of the names is in the binary (a test of `proof/e2e` looks).
//! `cargo xtask bugs` plants one after the other and says which judge caught it, and after how many seeds.
//!
//! The choice belongs to the process and is no part of any state: clones and hashes do not see it.
//! Knows nothing of: what the bugs do, who judges.
#![no_std]
#![forbid(unsafe_code)]

mod table;

use core::sync::atomic::{AtomicUsize, Ordering};
pub use table::BUGS;

/// One mistake that can be made on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bug {
    /// Its name: what goes wrong, in words that no program contains by chance.
    pub name: &'static str,
    /// The crate that makes the mistake.
    pub home: &'static str,
    /// Who made it, or which rule it breaks.
    pub incident: &'static str,
    /// What is wrong, in one sentence.
    pub story: &'static str,
    /// What tries to bring it out.
    pub trial: Trial,
    /// The judges that may claim it; the first is the one it was planted for.
    pub judges: &'static [&'static str],
}

/// What tries to bring a bug out; a seed decides everything in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trial {
    /// Storms over a simulated cluster, judged by invariants and by the history of its clients.
    Storms,
    /// Storms in which one member or one link is slow, or disks have much to do, and nothing else goes wrong, judged by how
    /// well the cluster serves; and those in which a member lies, and nobody may end.
    Service,
    /// Storms over peers of the protocol alone, moved in single messages and records: clocks, disks and roles change faster
    /// than in a cluster.
    Protocol,
    /// Every crash image of random stories of one log.
    Images,
    /// A situation made for it: what it breaks is no promise that a storm could watch.
    Scenario,
}

impl Trial {
    /// Its name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Trial::Storms => "storms",
            Trial::Service => "service",
            Trial::Protocol => "protocol",
            Trial::Images => "images",
            Trial::Scenario => "scene",
        }
    }
}

/// Nobody has such a bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSuchBug;

impl core::fmt::Display for NoSuchBug {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("no planted bug has this name; `cargo xtask bugs --list` shows those there are")
    }
}

impl core::error::Error for NoSuchBug {}

/// One more than the place in [`BUGS`] of the bug that is planted; 0 for none.
static PLANTED: AtomicUsize = AtomicUsize::new(0);

/// Plants this bug, and no other, in the whole process.
///
/// # Errors
/// If there is none of this name; what was planted stays.
pub fn plant(name: &str) -> Result<&'static Bug, NoSuchBug> {
    let place = BUGS.iter().position(|bug| bug.name == name).ok_or(NoSuchBug)?;
    PLANTED.store(place + 1, Ordering::SeqCst);
    Ok(&BUGS[place])
}

/// Pulls out whatever is planted.
pub fn clear() {
    PLANTED.store(0, Ordering::SeqCst);
}

/// The bug that is planted.
#[must_use]
pub fn planted() -> Option<&'static Bug> {
    BUGS.get(PLANTED.load(Ordering::SeqCst).checked_sub(1)?)
}

/// What `planted!` compares with: one more than the place of a bug in the table.
///
/// # Panics
/// If there is none of this name; `planted!` asks at compile time.
#[must_use]
pub const fn number_of(name: &str) -> usize {
    let mut place = 0;
    while place < BUGS.len() {
        if is_same(BUGS[place].name, name) {
            return place + 1;
        }
        place += 1;
    }
    panic!("a bug is asked for that is not in the table of kattu-plant")
}

/// Whether the bug of this number is planted.
#[must_use]
pub fn is_planted(number: usize) -> bool {
    PLANTED.load(Ordering::Relaxed) == number
}

const fn is_same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// Whether the named bug, or one of several, is planted in this process. Crates that make mistakes use it in builds with
/// `--cfg kattu_planted` and define it as `false` in all others.
#[macro_export]
macro_rules! planted {
    ($($name:literal),+) => {
        $({
            const NUMBER: usize = $crate::number_of($name);
            $crate::is_planted(NUMBER)
        })||+
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::collections::BTreeSet;
    use std::string::ToString;

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
        for bug in &BUGS {
            assert!(bug.story.ends_with('.') && bug.story.len() > 30, "{}", bug.name);
            assert!(!bug.incident.is_empty() && !bug.judges.is_empty(), "{}", bug.name);
            assert!(bug.home.starts_with("kattu-"), "{}", bug.name);
        }
    }

    #[test]
    fn one_bug_is_planted_at_a_time() {
        assert_eq!(planted(), None);
        assert!(!planted!("commit-any-term"));
        assert_eq!(plant("commit-any-term").map(|bug| bug.name), Ok("commit-any-term"));
        assert!(planted!("commit-any-term") && !planted!("vote-by-last-term"));
        assert_eq!(plant("commit-no-term"), Err(NoSuchBug));
        assert_eq!(planted().map(|bug| bug.name), Some("commit-any-term"));
        clear();
        assert!(!planted!("commit-any-term") && planted().is_none());
        assert!(NoSuchBug.to_string().contains("bugs --list"));
    }
}
