//! Planted bugs that some interleaving of a tiny cluster exposes: each must be found, by the scope named.
//!
//! The bugs exist only in builds with `RUSTFLAGS="--cfg kattu_planted"`; a build without it has nothing to test here.
#![cfg(kattu_planted)]

use kattu_explore::{explore, scope};

/// Bug, scope, words of the violation's story.
const FOUND: &[(&str, &str, &str)] = &[
    ("vote-by-last-term", "replicate-3", "Leader Completeness"),
    ("vote-told-before-sync", "election-3", "speaks of term 1 before its disk knows it"),
    ("vote-twice-in-one-term", "election-3", "term and vote go from"),
    ("newer-vote-stored-as-granted", "queues-3", "Leader Completeness"),
    ("duplicate-vote-counted-twice", "queues-3", "Leader Completeness"),
    ("acknowledge-before-sync", "election-3", "acknowledges 1 before its disk has it [O1]"),
    ("heartbeat-acknowledges-unsynced", "election-3", "acknowledges 1 before its disk has it [O1]"),
    ("acknowledge-own-last-index", "crash-3", "O1: leader"),
    ("own-match-before-sync", "replicate-3", "O2: member 1 commits 1.2 \"a\" with {2} of {1,2,3}"),
    ("single-member-answers-before-sync", "election-3", "marks_are_ordered"),
    ("apply-before-own-sync", "election-3", "marks_are_ordered"),
    ("completion-matched-by-index", "queues-3", "the_disk_owes_what_is_not_persisted"),
    ("truncate-on-every-append", "election-2", "O1: leader"),
    ("commit-any-term", "replicate-3", "O3: member"),
    ("commit-beyond-verified", "replicate-2", "a_follower_commits_only_what_is_verified"),
    ("commit-falls-with-a-new-leader", "queues-3", "marks_are_ordered"),
    ("match-falls-on-a-late-answer", "replicate-3", "the match of member"),
    ("new-leader-drops-older-tail", "replicate-2", "Leader Completeness"),
    ("previous-entry-checked-by-index", "terms-3", "Log Matching"),
    ("entries-known-by-index", "replicate-3", "O1: leader"),
    ("verified-survives-its-leader", "replicate-3", "contradicts what agreed"),
    ("majority-rounded-down", "election-3", "Election Safety"),
    ("stepping-down-rolls-back", "replicate-2", "O2: 1.1 is committed and on 1 disks of 2"),
    ("read-without-a-quorum-round", "read-3", "Linearizable reads"),
    ("read-before-own-term-commit", "replicate-2", "before its restart [ST17]"),
    ("read-index-from-another-mark", "read-3", "Linearizable reads"),
    ("older-round-confirms-reads", "rounds-3", "Linearizable reads"),
    ("reads-outlive-their-leader", "read-3", "Linearizable reads"),
    ("one-step-change-before-own-term", "leave-2", "M2: in the log of member 1 {1,2} becomes {2}"),
    ("truncated-membership-stays-in-force", "remove-3", "configurations_are_those_of_the_log"),
    ("elections-by-committed-membership", "grow-3", "Leader Completeness"),
    ("joint-commit-counted-in-one-set", "leave-2", "O2: member 1 commits 1.2 {2 from 1,2} with {2}"),
    ("joint-commit-counted-in-one-set", "replace-3", "O2: member 1 commits"),
    ("removed-leader-counts-itself", "leave-2", "O2: member 1 commits 1.3 {2} with {1}"),
    (
        "timeout-now-of-an-older-term-obeyed",
        "hand-over-3",
        "M9: campaigns at the word of the leader of term 1",
    ),
    ("snapshot-lacks-the-newest-membership", "join-2", "N1: takes a snapshot"),
    ("install-acknowledged-before-its-base", "install-crash-2", "before its disk has it [O1]"),
    ("conflicting-tail-kept-on-install", "snapshot-3", "State Machine Safety"),
    ("membership-of-a-dropped-log-in-force", "change-snapshot-3", "configurations_are_those_of_the_log"),
    ("suspicion-drops-the-quorum-question", "suspicion-3", "E2: campaigns, and no quorum said"),
    ("lease-kept-after-transfer", "lease-transfer-3", "L-6: has a lease after it began to hand over"),
    ("lease-counted-from-receipt", "lease-3", "L-2: somebody leads term 2 while the lease of member 1"),
    ("lease-of-two-timeouts", "lease-3", "L-2: somebody leads term 2 while the lease of member 1"),
    ("lease-without-own-term-commit", "lease-write-3", "Linearizable reads"),
    ("vote-within-lease-after-restart", "lease-restart-3", "L-3: helps to replace its leader"),
    ("window-kept-across-terms", "window-3", "terms never fall"),
    (
        "window-kept-across-terms-and-checked",
        "window-3",
        "acknowledges entry 3, which its leader does not have",
    ),
    ("entry-term-in-place-of-message-term", "window-3", "it leads term 2, which has another leader"),
    ("window-counts-as-acknowledged", "window-2", "acknowledges 3 before its disk has it [O1]"),
    ("window-counts-for-the-commit", "window-3", "O2: member 1 commits 1.2 \"a\" with {1} of {1,2,3}"),
    ("configuration-effective-from-a-window", "receipt-replace-3", "configurations_are_those_of_the_log"),
    ("window-without-places", "window-3", "the_window_is_within_its_bounds"),
    ("window-frees-no-bytes", "window-2", "the_window_is_within_its_bounds"),
    ("received-by-one-peer", "receipt-replace-3", "as received, which only {1,3} of"),
    ("received-by-the-fastest", "receipt-replace-3", "as received, which only {1,3} of"),
    ("earlier-terms-received", "gap-3", "as received, and leads term 2 [H7]"),
    ("received-a-second-time", "gap-3", "as received for the second time"),
    ("names-what-it-does-not-hold", "receipt-3", "which it does not hold"),
    ("lease-counted-in-one-set", "lease-leave-3", "L-2: somebody leads term 2 while the lease of member 1"),
];

/// Bugs of the core that no scope can expose, and why. Storms must.
const BEYOND: &[(&str, &str)] = &[
    ("older-entry-deposes-its-leader", "breaks no promise of safety: a leader goes that should stay"),
    ("window-follows-no-truncation", "in no scope is the last place taken when a log becomes shorter"),
    ("older-tail-counts-for-nothing", "no scope proposes as much as the limit of uncommitted bytes"),
    (
        "question-overtakes-entries",
        "breaks no promise of safety: in a scope everything may overtake everything",
    ),
    ("sent-again-because-time-passed", "breaks no promise of safety: entries are sent twice"),
    ("gaps-sent-again-without-a-budget", "breaks no promise of safety: entries are sent twice"),
    (
        "recent-entries-kept-without-a-bound",
        "breaks no promise of safety: what is kept in memory is not in any message",
    ),
    ("pieces-sent-without-an-answer", "breaks no promise of safety: pieces of a snapshot fill a slow link"),
    ("unanswered-piece-sent-again", "breaks no promise of safety: pieces of a snapshot are sent twice"),
    ("piece-sent-again-for-another-link", "breaks no promise of safety: pieces of a snapshot are sent twice"),
    (
        "written-off-entries-not-counted",
        "breaks no promise of safety: the way to a peer is longer than it should be",
    ),
    (
        "written-off-entries-leave-with-a-heartbeat",
        "breaks no promise of safety: a follower waits for a heartbeat",
    ),
    ("sent-without-room", "breaks no promise of safety: entries are sent and refused"),
    ("room-told-of-by-heartbeats-only", "breaks no promise of safety: a follower waits for a heartbeat"),
    (
        "clients-never-slowed",
        "breaks no promise of safety: nobody asks in a scope whether a proposal is admitted",
    ),
    ("one-read-of-the-log-a-heartbeat", "breaks no promise of safety: a follower waits for a heartbeat"),
    ("probe-answered-by-what-was-known", "breaks no promise of safety: entries are sent twice"),
    (
        "slowed-clients-wait-without-a-bound",
        "breaks no promise of safety: nobody asks in a scope whether a proposal is admitted",
    ),
    ("snapshot-on-its-way-is-no-gain", "breaks no promise of safety: clients wait where they need not"),
    ("recent-entries-kept-for-nobody", "breaks no promise of safety: the disk is read where memory would do"),
    ("link-that-ends-sends-again", "breaks no promise of safety: entries are sent twice"),
    ("small-appends-overtake-large-ones", "there are no jobs in a scope"),
    ("result-of-any-job-counts", "there are no jobs in a scope"),
    ("lost-job-waited-for-without-end", "there are no jobs in a scope"),
    (
        "entry-without-room-waits-for-a-heartbeat",
        "breaks no promise of safety: a peer waits for what it has room for",
    ),
    ("who-is-full-agrees-with-nothing", "breaks no promise of safety: what is held is acknowledged late"),
    ("loss-seen-by-where-a-log-ends", "no disk loses what it has synced in a scope"),
    ("who-is-behind-is-asked-every-round", "breaks no promise of safety: rounds take the way of entries"),
    ("watched-for-one-election-timeout", "breaks no promise of safety: clients wait where they need not"),
    ("nobody-told-where-nobody-is-slowed", "breaks no promise of safety: nobody is told"),
    ("commit-waits-for-everybody", "breaks no promise of safety: writes wait for the slowest member"),
    ("elections-wait-five-times-as-long", "no clock runs in a scope: a member campaigns at any time"),
    ("heartbeats-repeat-an-entry", "breaks no promise of safety: entries are sent twice"),
    ("check-quorum-asks-everybody", "breaks no promise of safety: a leader goes that should stay"),
    ("check-quorum-hears-one", "breaks no promise: a leader stays that should go"),
    ("stickiness-switched-off", "breaks no promise: a leader goes that should stay"),
    ("unfit-member-never-asks-again", "no member of a scope loses its snapshots"),
    ("pre-candidate-votes-and-asks-on", "breaks no promise: a leader goes that should stay"),
    ("restarted-voter-deposes-its-leader", "breaks no promise: a leader goes that should stay"),
    ("open-questions-all-repeated", "breaks no promise: it asks too often"),
    ("snapshot-overtakes-gathered-entries", "effects are carried out after every event there"),
    ("late-pre-vote-counts-again", "breaks no promise: a leader goes that should stay"),
    ("acknowledgement-of-an-older-term", "takes a crash and two more leaders"),
    ("probe-hint-taken-for-match", "takes entries of four terms"),
    ("log-pruned-by-what-is-applied", "a snapshot of a scope covers all that is applied"),
    ("vote-by-truncated-log", "no disk is damaged in a scope"),
    ("damaged-member-leads", "no disk is damaged in a scope"),
    ("damaged-answer-counted-as-evidence", "no disk is damaged in a scope"),
    ("lease-proven-by-terms", "a lease that has ended is forgotten in a scope"),
    ("lease-counts-who-promised-nothing", "all members of a scope agree about leases"),
    ("told-of-lost-entries-and-votes-on", "no disk of a scope loses what it had"),
    ("returns-without-asking", "nobody asks first in a scope"),
    ("reminded-of-a-term-and-votes-in-it", "nobody asks first in a scope"),
    ("reminded-of-acknowledgements-and-owes-none", "nobody asks first in a scope"),
    ("reminded-of-commits-and-votes-below", "nobody asks first in a scope"),
    ("reminded-of-commits-and-leads-below", "nobody asks first in a scope"),
    ("counts-votes-for-an-earlier-log", "no directory is rolled back in a scope"),
    ("begins-without-the-others", "nobody asks first in a scope"),
    ("answered-by-one-and-has-a-past", "nobody asks first in a scope"),
    ("unknown-critical-extension-ignored", "all members of a scope are of one version"),
    ("flags-instead-of-the-clusters-timing", "no configuration of a scope has a timing"),
    ("vote-hold-forgotten-with-the-switch", "no member of a scope is tuned while it runs"),
    ("rounds-before-the-switch-earn-a-lease", "no member of a scope is tuned while it runs"),
    ("suspicion-survives-the-switch", "no member of a scope is tuned while it runs"),
    ("read-entry-confirms-at-its-append", "no member of a scope is tuned while it runs"),
    ("lease-kept-though-clocks-differ", "clocks are not compared in a scope"),
    ("clocks-compared-without-round-trips", "clocks are not compared in a scope"),
    ("any-term-believed", "nobody lies in a scope"),
    ("any-count-believed", "nobody lies in a scope"),
    ("unreadable-entries-taken", "nobody lies in a scope"),
    ("unreadable-snapshot-taken", "nobody lies in a scope"),
    ("unasked-votes-counted", "nobody lies in a scope"),
    ("snapshot-of-a-term-to-come-taken", "nobody lies in a scope"),
    ("acknowledgement-beyond-the-log-believed", "nobody lies in a scope"),
    ("round-to-come-believed", "nobody lies in a scope"),
    ("lives-of-learners-without-end", "nobody lies in a scope"),
];

#[test]
fn exploration_finds_the_planted_bugs() {
    // One test for all: a bug is planted in the whole process.
    let mut missed = Vec::new();
    for (bug, name, words) in FOUND {
        let (number, _) = kattu_mutants::find(bug).unwrap_or_else(|| panic!("no bug is named {bug}"));
        kattu_plant::choose(number);
        let scope = scope::find(name).unwrap_or_else(|| panic!("no scope {name}"));
        match explore(scope) {
            Err(broken) if broken.story.contains(words) => {
                eprintln!("{bug}: {} states of {name}, {} events", broken.states, broken.timeline.len());
            }
            Err(broken) => missed.push(format!("{bug}: {}", broken.story)),
            Ok(report) => missed.push(format!("{bug}: not in {} states of {name}", report.states)),
        }
    }
    kattu_plant::choose(0);
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
fn every_bug_of_the_core_is_found_or_known_to_be_beyond_every_scope() {
    let known = |name: &str| {
        let found = FOUND.iter().any(|bug| bug.0 == name);
        usize::from(found) + BEYOND.iter().filter(|bug| bug.0 == name && !bug.1.is_empty()).count()
    };
    for bug in kattu_mutants::BUGS.iter().filter(|bug| bug.home == "kattu-raft") {
        assert_eq!(known(bug.name), 1, "{}: say here whether exploration finds it, or why not", bug.name);
    }
}
