//! Tests of the exploration: lying disks are caught, counts agree with a naive search, timelines are shortest.

use kattu_explore::clocks::{Clocks, Rate};
use kattu_explore::scope::{Lie, Mark, Scope, Start, Sync, TINY, Target};
use kattu_explore::search::Sight;
use kattu_explore::tables::Tables;
use kattu_explore::world::{Ends, World};
use kattu_explore::{Counterexample, explore, scope};
use kattu_raft::canonical::Moment;
use std::collections::HashSet;

/// Two members, a write, a crash.
const WRITE: Scope = Scope {
    name: "write",
    members: 2,
    start: Start::Elected,
    proposals: 1,
    crashes: 1,
    sync: Sync::Each,
    ..TINY
};

/// Three members, two campaigns in one term, a crash.
const RIVALS: Scope = Scope {
    name: "rivals",
    guarded: false,
    term_max: 1,
    fires: &[(Moment::Election, 2)],
    crashes: 1,
    ..TINY
};

fn broken(scope: &Scope) -> Counterexample {
    match explore(scope) {
        Err(broken) => *broken,
        Ok(report) => panic!("{} states of {} and nothing is broken", report.states, scope.name),
    }
}

#[test]
fn a_disk_that_loses_what_it_synced_is_noticed() {
    assert!(explore(&WRITE).is_ok(), "an honest disk breaks nothing");
    let broken = broken(&Scope { lie: Some(Lie::LosesTheLastEntry), ..WRITE });
    assert!(broken.story.starts_with("O2: 1.1 is committed"), "{broken}");
    assert_eq!(broken.timeline.len(), 1, "the crash alone is enough, and nothing shorter is: {broken}");
}

#[test]
fn a_disk_that_forgets_a_vote_leads_to_two_leaders_in_one_term() {
    let broken = broken(&Scope { lie: Some(Lie::ForgetsTheVote), ..RIVALS });
    assert!(broken.story.starts_with("Election Safety: members"), "{broken}");
    let crashes = broken.timeline.iter().filter(|line| line.event.starts_with("crashes")).count();
    assert_eq!(crashes, 1, "without the crash nothing was forgotten: {broken}");
}

#[test]
fn a_timeline_has_a_line_for_every_event_with_its_columns_aligned() {
    let broken = broken(&Scope { lie: Some(Lie::ForgetsTheVote), ..RIVALS });
    let text = broken.to_string();
    let lines: Vec<&str> = text.lines().skip(1).collect();
    assert_eq!(lines.len(), broken.timeline.len());
    let last = lines.last().expect("a way has a last event");
    assert!(last.contains("leads term 1"), "{text}");
    let column = |line: &&str| line.find("member ").expect("all of it happened to members");
    assert!(lines.iter().all(|line| column(line) == column(&lines[0])), "{text}");
}

/// Visits the worlds in another order, and stores them whole.
fn naive(scope: &Scope) -> usize {
    let mut tables = Tables::new(scope);
    let first = World::first(scope, &mut tables).expect("the first world is sound");
    let encoded = |world: &World| {
        let mut words = Vec::new();
        world.encode(&mut words);
        words
    };
    let mut seen = HashSet::from([encoded(&first)]);
    let mut open = vec![first];
    let mut choices = Vec::new();
    while let Some(world) = open.pop() {
        world.choices(scope, &tables, &mut choices);
        for choice in &choices {
            let mut after = world.clone();
            match after.go(*choice, scope, &mut tables) {
                Ok(_) if seen.insert(encoded(&after)) => open.push(after),
                Ok(_) | Err(Ends::Outside) => {}
                Err(Ends::Broken(story)) => panic!("{story}"),
            }
        }
    }
    seen.len()
}

#[test]
fn a_naive_search_in_another_order_finds_as_many_worlds() {
    for scope in [WRITE, Scope { term_max: 2, fires: &[(Moment::Heartbeat, 1)], reads: 1, ..WRITE }] {
        let report = explore(&scope).unwrap_or_else(|broken| panic!("{broken}"));
        assert_eq!(report.states, naive(&scope) as u64);
        assert!(report.seen.contains(&Mark::CommandCommitted) && report.seen.contains(&Mark::Restarted));
    }
}

/// One voter, and a member that joins by a snapshot. A heartbeat asks how far it is; upon the answer a piece may be
/// under way.
const JOIN: Scope = Scope {
    name: "join",
    members: 2,
    voters: 1,
    guarded: false,
    start: Start::Elected,
    fires: &[(Moment::Stream, 1), (Moment::Heartbeat, 1)],
    changes: &[Target { voters: &[1], learners: &[2] }],
    snapshots: 1,
    in_flight_max: 2,
    ..TINY
};

/// The leader of two leaves.
const LEAVE: Scope = Scope {
    name: "leave",
    members: 2,
    guarded: false,
    start: Start::Elected,
    fires: &[(Moment::Election, 1)],
    changes: &[Target { voters: &[2], learners: &[] }],
    ..TINY
};

#[test]
fn a_naive_search_finds_as_many_worlds_with_changes_of_members_and_snapshots() {
    for (scope, shown) in [(JOIN, Sight::Installed), (LEAVE, Sight::JointCommitted)] {
        let report = explore(&scope).unwrap_or_else(|broken| panic!("{broken}"));
        assert_eq!(report.states, naive(&scope) as u64, "{}", scope.name);
        let worlds = report.sights.iter().find(|(sight, _)| *sight == shown).map_or(0, |(_, worlds)| *worlds);
        assert!(0 < worlds && worlds < report.states, "{}: {worlds} of {}", scope.name, report.states);
    }
}

#[test]
fn a_bound_on_the_depth_leaves_out_what_is_further_and_nothing_else() {
    let whole = explore(&LEAVE).unwrap_or_else(|broken| panic!("{broken}"));
    let bounded =
        |depth_max| explore(&Scope { depth_max, ..LEAVE }).unwrap_or_else(|broken| panic!("{broken}"));
    assert_eq!(bounded(whole.depth).states, whole.states);
    let half = bounded(whole.depth / 2);
    assert!(half.depth == whole.depth / 2 && half.states < whole.states);
}

#[test]
fn a_disk_that_loses_what_it_synced_is_noticed_by_the_quorum_that_votes_by_then() {
    let broken = broken(&Scope { lie: Some(Lie::LosesTheLastEntry), crashes: 1, ..LEAVE });
    assert!(broken.story.starts_with("O2: 1.1 is committed"), "{broken}");
}

/// A lease, a new leader, a read.
const LEASE: Scope = Scope {
    name: "lease",
    start: Start::Leased,
    clocks: Some(Clocks {
        steps: 2,
        ways: &[[Rate::Slowest, Rate::Fastest, Rate::Fastest], [Rate::Exact; 3]],
    }),
    fires: &[(Moment::Election, 1)],
    reads: 1,
    in_flight_max: 1,
    sync: Sync::AtOnce,
    ..TINY
};

#[test]
fn a_clock_beyond_the_bound_lets_another_member_lead_within_a_lease() {
    assert!(explore(&LEASE).is_ok(), "clocks within their bounds break nothing");
    let ways: &[[Rate; 3]] = &[[Rate::Stuck, Rate::Fastest, Rate::Fastest]];
    let broken = broken(&Scope { clocks: Some(Clocks { steps: 2, ways }), ..LEASE });
    assert!(broken.story.starts_with("L-2: somebody leads term 2 while the lease of member 1"), "{broken}");
    let steps = broken.timeline.iter().filter(|line| line.whom == "clocks").count();
    assert_eq!(steps, 2, "a promise lasts for two steps of the fastest clock: {broken}");
}

#[test]
fn a_naive_search_finds_as_many_worlds_with_leases() {
    let report = explore(&LEASE).unwrap_or_else(|broken| panic!("{broken}"));
    assert_eq!(report.states, naive(&LEASE) as u64);
    for mark in [Mark::ReadByLease, Mark::LeaseEnded, Mark::Reelected] {
        assert!(report.seen.contains(&mark), "{mark:?} in {:?}", report.seen);
    }
    for sight in [Sight::LeaseHolds, Sight::LeaseOver, Sight::ElectedAfter, Sight::TwoLead] {
        assert!(report.sights.iter().any(|(seen, worlds)| *seen == sight && 0 < *worlds), "{sight:?}");
    }
}

#[test]
fn a_scope_with_less_in_it_has_fewer_worlds() {
    let states = |scope: &Scope| explore(scope).unwrap_or_else(|broken| panic!("{broken}")).states;
    let whole = states(&WRITE);
    assert!(states(&Scope { crashes: 0, ..WRITE }) < whole);
    assert!(states(&Scope { proposals: 0, ..WRITE }) < whole);
    assert!(states(&Scope { sync: Sync::All, ..WRITE }) < whole);
    assert_eq!(
        states(&Scope { proposals: 0, crashes: 0, ..WRITE }),
        1,
        "nothing may happen, so nothing does"
    );
}

/// With both voters' links closed some world has a new leader; with one closed, none has. [replication-protocols E3a]
#[test]
fn one_lost_link_deposes_no_leader_and_two_do() {
    let lost = |closes| {
        let scope = Scope { closes, ..*scope::find("suspicion-3").expect("it is there") };
        let scope = Scope { crashes: 0, fires: &[(Moment::Suspicion, 7)], ..scope };
        let report = explore(&scope).unwrap_or_else(|broken| panic!("{}", broken.story));
        report.seen.contains(&Mark::Reelected)
    };
    assert!(!lost(1));
    assert!(lost(2));
}
