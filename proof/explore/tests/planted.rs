//! Planted bugs that some interleaving of a tiny cluster brings out: each must be found, by the scope named.
//!
//! The bugs exist only in builds with `RUSTFLAGS="--cfg kattu_planted"`; a build without it has nothing to test here.
#![cfg(kattu_planted)]

use kattu_explore::{explore, scope};

/// Bug, scope, how the story of what it breaks begins.
const FOUND: &[(&str, &str, &str)] = &[
    ("vote-by-last-term", "replicate-3", "Leader Completeness"),
    ("acknowledge-before-sync", "election-3", "member 2: acknowledges 1 before its disk has it"),
    ("commit-beyond-verified", "replicate-2", "member 1: a_follower_commits_only_what_is_verified"),
    ("own-match-before-sync", "replicate-3", "O2"),
    ("commit-any-term", "replicate-3", "O3"),
];

#[test]
fn exploration_finds_the_planted_bugs() {
    // One test for all: what is planted is planted in the whole process.
    let mut missed = Vec::new();
    for (bug, name, begins) in FOUND {
        kattu_plant::plant(bug).expect("the table of bugs has it");
        let scope = scope::find(name).expect("the table of scopes has it");
        match explore(scope) {
            Err(broken) if broken.story.starts_with(begins) => {}
            Err(broken) => missed.push(format!("{bug}: {}", broken.story)),
            Ok(report) => missed.push(format!("{bug}: not in {} states of {name}", report.states)),
        }
    }
    kattu_plant::clear();
    assert!(missed.is_empty(), "{missed:#?}");
}
