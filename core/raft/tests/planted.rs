//! Planted bugs: mistakes that others have made, each of which the storms must find. A harness that has never caught
//! a bug is not yet a harness.
//!
//! The bugs exist only in builds with `RUSTFLAGS="--cfg kattu_planted"`; a build without it has nothing to test here.
#![cfg(kattu_planted)]

mod world;

use world::storm::storm;

/// Every name that `planted!` knows in this crate, with the rule it breaks.
const BUGS: [(&str, &str); 5] = [
    ("vote-by-last-term", "E6: the vote compares the whole position of the last entry"),
    ("acknowledge-before-sync", "L6: an acknowledgement leaves when the disk has answered"),
    ("commit-beyond-verified", "L5: a follower commits only what is known to agree with its leader"),
    ("own-match-before-sync", "B7: a leader counts itself when its own disk has answered"),
    ("commit-any-term", "O3: only an entry of the current term commits by counting"),
];

#[test]
fn storms_find_every_planted_bug() {
    std::panic::set_hook(Box::new(|_| {})); // hundreds of expected panics
    let mut missed = Vec::new();
    for (bug, rule) in BUGS {
        let found =
            (1..=2000).find(|&seed| std::panic::catch_unwind(|| storm(seed, 1000, Some(bug))).is_err());
        match found {
            Some(seed) => eprintln!("{bug}: found by seed {seed}"),
            None => missed.push((bug, rule)),
        }
    }
    let _ = std::panic::take_hook();
    assert!(missed.is_empty(), "no storm noticed {missed:?}");
}
