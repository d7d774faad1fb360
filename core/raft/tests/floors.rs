//! Vote floors: a member whose disk has lost the end of its log votes by what it had acknowledged, does not lead, and
//! gets back what it lost. [fault-model ST7, ST14]

use kattu_peers::{World, config};
use kattu_raft::{Duration, NodeId};

const A: NodeId = NodeId(1);
const B: NodeId = NodeId(2);
const C: NodeId = NodeId(3);

/// Three members, the first of which leads and has committed some entries everywhere.
fn three() -> World {
    let mut world = World::started((1..=3).map(|id| config(id, 3, 0)).collect(), 7);
    assert!(world.elect(A));
    for number in 0..5 {
        world.propose(A, format!("{number}").as_bytes()).expect("it leads");
    }
    world.settle();
    world
}

/// The member restarts, and of its log only the first entry can be read.
fn damage(world: &mut World, id: NodeId, readable: bool) {
    world.crash(id, usize::MAX);
    world.peer(id).disk.damage(1, readable);
    world.start(id);
}

#[test]
fn a_leader_sends_again_what_a_peers_disk_has_lost() {
    let mut world = three();
    let end = world.raft(A).last_id();
    damage(&mut world, B, true);
    assert_eq!(world.raft(B).vote_floor(), Some(end));
    let whole =
        |world: &World| !world.raft(B).is_damaged() && world.raft(B).last_id() == world.raft(A).last_id();
    assert!(world.pass_until(Duration::from_secs(2), whole), "it gets everything again");
    assert!(world.raft(A).is_leader(), "and nobody was deposed for it");
    let noticed = world.journal.iter().filter(|line| line.contains("2 has lost its log from 2 to")).count();
    assert_eq!(noticed, 1, "{:#?}", world.journal);
}

#[test]
fn a_damaged_member_votes_for_no_candidate_below_its_vote_floor() {
    let mut world = three();
    world.partition(&[vec![A, B], vec![C]]);
    let last = world.propose(A, b"only two have it").expect("it leads");
    world.settle();
    assert!(last.index <= world.raft(A).committed(), "two of three have it");
    world.crash(A, usize::MAX);
    damage(&mut world, B, true);
    world.cut.clear();
    let elected = world.pass_until(Duration::from_secs(20), |world| world.leader().is_some());
    assert!(!elected, "{:?} leads without a committed entry", world.leader());

    world.start(A);
    assert!(world.pass_until(Duration::from_secs(10), |world| world.leader() == Some(A)), "it alone has all");
    let everywhere =
        |world: &World| [A, B, C].iter().all(|id| last.index <= world.raft(*id).applied_delivered());
    assert!(world.pass_until(Duration::from_secs(5), everywhere));
    assert_eq!(world.raft(B).term_at(last.index), Some(last.term));
}

#[test]
fn a_floor_that_only_the_term_bounds_is_reached_with_the_next_leader() {
    let mut world = three();
    damage(&mut world, B, false);
    let filled = |world: &World| world.raft(B).last_id() == world.raft(A).last_id();
    assert!(world.pass_until(Duration::from_secs(2), filled));
    assert!(world.raft(B).is_damaged(), "there may have been more, for all that its disk says");
    assert!(!world.elect(B), "it does not campaign");
    world.crash(A, usize::MAX);
    world.start(A);
    let whole = |world: &World| world.leader().is_some() && !world.raft(B).is_damaged();
    assert!(world.pass_until(Duration::from_secs(20), whole), "another term bounds it");
}

/// The member restarts with only the first entry, and nothing on its disk shows that there were more.
fn forget(world: &mut World, id: NodeId) {
    world.crash(id, usize::MAX);
    world.peer(id).disk.forget(1);
    world.start(id);
}

#[test]
fn a_member_that_has_lost_what_it_cannot_know_of_is_told_and_owes_it() {
    let mut world = three();
    let end = world.raft(A).last_id();
    forget(&mut world, B);
    assert_eq!(world.raft(B).vote_floor(), None, "its disk says nothing");
    let told = |world: &World| world.journal.iter().any(|line| line.contains("is told that its log"));
    assert!(world.pass_until(Duration::from_secs(1), told));
    assert_eq!(world.peer(B).disk.vote_floor, Some(end), "durable");
    let whole =
        |world: &World| !world.raft(B).is_damaged() && world.raft(B).last_id() == world.raft(A).last_id();
    assert!(world.pass_until(Duration::from_secs(2), whole), "it gets everything again");
    assert!(world.raft(A).is_leader(), "and nobody was deposed for it");
}

#[test]
fn a_member_told_of_a_loss_votes_for_no_candidate_below_it_after_a_restart_either() {
    let mut world = three();
    world.partition(&[vec![A, B], vec![C]]);
    let last = world.propose(A, b"only two have it").expect("it leads");
    world.settle();
    assert!(last.index <= world.raft(A).committed(), "two of three have it");
    forget(&mut world, B);
    let owes = |world: &World| world.peers[&B].disk.vote_floor == Some(last);
    let refilled = |world: &World| world.raft(B).last_id() >= last;
    assert!(world.pass_until(Duration::from_secs(1), |world| owes(world) || refilled(world)));
    assert!(owes(&world), "it is told before it is fed");
    world.crash(A, usize::MAX);
    forget(&mut world, B); // once more; its vote floor is kept
    world.cut.clear();
    assert_eq!(world.raft(B).vote_floor(), Some(last));
    let elected = world.pass_until(Duration::from_secs(20), |world| world.leader().is_some());
    assert!(!elected, "{:?} leads without a committed entry", world.leader());
    world.start(A);
    assert!(world.pass_until(Duration::from_secs(10), |world| world.leader() == Some(A)), "it alone has all");
    assert!(world.pass_until(Duration::from_secs(5), |world| !world.raft(B).is_damaged()));
}
