//! Peers: the storms of `core/raft` over bare peers find every planted bug of that crate that can show there.
//!
//! `KATTU_BUGS=part,part` tries only those whose names have such a part.
//! Knows nothing of: whole clusters, whose checkers are `cargo xtask bugs`.

use kattu_mutants::{BUGS, Bug, Trial};
use kattu_peers::storm::storm;

/// Bugs that only judges of whole clusters find: by what clients were told, by each truncation and the match of each peer
/// at every step, by each step of a change of members, by how long things take, by what crosses a link, where a disk forgets,
/// where clocks are beyond their bound, where somebody lies, where versions differ, where the configuration has settings.
/// Nor can these storms see how well a cluster serves.
const ELSEWHERE: &[&str] = &[
    "check-quorum-hears-one",
    "stickiness-switched-off",
    "late-pre-vote-counts-again",
    "snapshot-overtakes-gathered-entries",
    "open-questions-all-repeated",
    "restarted-voter-deposes-its-leader",
    "pre-candidate-votes-and-asks-on",
    "unfit-member-never-asks-again",
    "acknowledgement-of-an-older-term",
    "match-falls-on-a-late-answer",
    "stepping-down-rolls-back",
    "read-without-a-quorum-round",
    "older-round-confirms-reads",
    "reads-outlive-their-leader",
    "one-step-change-before-own-term",
    "told-of-lost-entries-and-votes-on",
    "returns-without-asking",
    "reminded-of-a-term-and-votes-in-it",
    "reminded-of-acknowledgements-and-owes-none",
    "reminded-of-commits-and-votes-below",
    "reminded-of-commits-and-leads-below",
    "counts-votes-for-an-earlier-log",
    "begins-without-the-others",
    "answered-by-one-and-has-a-past",
    "lease-counted-in-one-set",
    "lease-kept-though-clocks-differ",
    "question-overtakes-entries",
    "sent-again-because-time-passed",
    "gaps-sent-again-without-a-budget",
    "unanswered-piece-sent-again",
    "written-off-entries-not-counted",
    "written-off-entries-leave-with-a-heartbeat",
    "room-told-of-by-heartbeats-only",
    "clients-never-slowed",
    "probe-answered-by-what-was-known",
    "slowed-clients-wait-without-a-bound",
    "snapshot-on-its-way-is-no-gain",
    "recent-entries-kept-for-nobody",
    "piece-sent-again-for-another-link",
    "link-that-ends-sends-again",
    "small-appends-overtake-large-ones",
    "entry-without-room-waits-for-a-heartbeat",
    "who-is-full-agrees-with-nothing",
    "loss-seen-by-where-a-log-ends",
    "who-is-behind-is-asked-every-round",
    "watched-for-one-election-timeout",
    "nobody-told-where-nobody-is-slowed",
    "any-term-believed",
    "any-count-believed",
    "unreadable-entries-taken",
    "unreadable-snapshot-taken",
    "unasked-votes-counted",
    "snapshot-of-a-term-to-come-taken",
    "acknowledgement-beyond-the-log-believed",
    "round-to-come-believed",
    "lives-of-learners-without-end",
    "unknown-critical-extension-ignored",
    "flags-instead-of-the-clusters-timing",
];

#[test]
fn storms_find_every_planted_bug() {
    std::panic::set_hook(Box::new(|_| {})); // hundreds of expected panics
    let wanted = std::env::var("KATTU_BUGS").unwrap_or_default();
    let is_wanted = |name: &str| wanted.split(',').any(|part| name.contains(part));
    let mut missed = Vec::new();
    let is_ours = |bug: &&Bug| bug.home == "kattu-raft" && bug.trial != Trial::Service;
    for bug in BUGS.iter().filter(is_ours).filter(|bug| !ELSEWHERE.contains(&bug.name)) {
        if !is_wanted(bug.name) {
            continue;
        }
        let finds = || (1..=2000).find(|&seed| std::panic::catch_unwind(|| storm(seed, 1000)).is_err());
        let found = crate::with(bug, finds);
        match found {
            Some(seed) => eprintln!("{}: found by seed {seed}", bug.name),
            None => missed.push(bug.name),
        }
    }
    let _ = std::panic::take_hook();
    assert!(missed.is_empty(), "no storm noticed {missed:?}");
}
