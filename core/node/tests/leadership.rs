//! Replicas whose leader leaves or dies, and reads of weaker consistency.

use kattu_node::contract::*;
use kattu_raft::{Duration, LinkEnd, LogIndex, NodeId};
use kattu_replicas::*;
use std::cell::Cell;
use std::rc::Rc;

/// Cuts a member off in both directions until the cell is set to `false`.
fn deaf(world: &mut World, member: u64) -> Rc<Cell<bool>> {
    let cut = Rc::new(Cell::new(true));
    let is_cut = cut.clone();
    world.loses =
        Box::new(move |message| is_cut.get() && (message.to().0 == member || message.from().0 == member));
    cut
}

#[test]
fn writes_wait_during_a_transfer_and_none_is_in_doubt() {
    let mut world = World::new(3);
    let leader = world.elect();
    let follower = world.follower();
    let target = 6 - leader - follower;
    world.pass(ET);
    // The target is cut off for a moment, so that the transfer takes a moment, too.
    let cut = deaf(&mut world, target);
    let before = world.ask(leader, put("a", "before"));
    world.deliver();
    world.give(leader, Event::Transfer(Some(NodeId(target))));
    let here = world.ask(leader, put("b", "asked at the old leader"));
    let there = world.ask(follower, put("c", "asked at a follower"));
    world.pass(Duration::from_millis(20));
    assert!(is_done(world.outcome(leader, before)));
    assert_eq!((world.outcome(leader, here), world.outcome(follower, there)), (None, None), "they wait");
    cut.set(false);
    world.pass(Duration::from_millis(500));
    assert_eq!(world.leader(), Some(target));
    assert!(is_done(world.outcome(leader, here)), "{:?}", world.outcome(leader, here));
    assert!(is_done(world.outcome(follower, there)), "{:?}", world.outcome(follower, there));
}

#[test]
fn writes_go_on_when_a_transfer_fails() {
    let mut world = World::new(3);
    let leader = world.elect();
    let follower = world.follower();
    let target = 6 - leader - follower;
    world.pass(ET);
    world.kill(target);
    world.give(leader, Event::Transfer(Some(NodeId(target))));
    let here = world.ask(leader, put("a", "at the leader"));
    let there = world.ask(follower, put("b", "at a follower"));
    world.pass(ET / 2);
    assert_eq!((world.outcome(leader, here), world.outcome(follower, there)), (None, None), "they wait");
    world.pass(ET);
    assert_eq!(world.leader(), Some(leader), "the target never answered");
    assert!(is_done(world.outcome(leader, here)) && is_done(world.outcome(follower, there)));
}

#[test]
fn a_leader_that_stops_transfers_leadership_and_a_follower_transfers_nothing() {
    let mut world = World::new(3);
    let leader = world.elect();
    world.pass(ET);
    let follower = world.follower();
    world.give(follower, Event::Transfer(None));
    world.pass(ET / 10);
    assert_eq!(world.leader(), Some(leader));
    world.give(leader, Event::Transfer(None));
    world.pass(ET / 10);
    assert!(world.leader().is_some_and(|new| new != leader), "{:?}", world.leader());
}

#[test]
fn clients_of_a_killed_leader_find_another_one_within_milliseconds() {
    let mut world = World::new(3);
    let leader = world.elect();
    world.pass(ET);
    world.kill(leader);
    for other in (1..=3).filter(|&id| id != leader) {
        world.give(other, Event::LinkClosed(NodeId(leader), LinkEnd::ByPeer));
    }
    let survivor = 1 + leader % 3;
    let ticket = world.ask(survivor, put("a", "after"));
    world.pass(Duration::from_millis(30));
    assert!(world.leader().is_some());
    assert!(is_done(world.outcome(survivor, ticket)), "{:?}", world.outcome(survivor, ticket));
}

#[test]
fn a_read_at_least_as_new_as_an_index_waits_for_it_at_any_member() {
    let mut world = World::new(3);
    let leader = world.elect();
    let follower = world.follower();
    world.pass(ET);
    let cut = deaf(&mut world, follower);
    let write = world.ask(leader, put("a", "new"));
    world.deliver();
    assert!(is_done(world.outcome(leader, write)));
    let seen = world.member(leader).node.raft().committed();
    let read = world.ask(follower, get("a", Consistency::AtLeast(seen)));
    let at_once = world.ask(follower, get("a", Consistency::AtLeast(LogIndex(0))));
    assert_eq!(world.outcome(follower, read), None, "it has not heard of the write");
    assert_eq!(
        value_of(world.outcome(follower, at_once)),
        None,
        "a client that has seen nothing need not wait"
    );
    cut.set(false);
    world.pass(ET / 2);
    assert_eq!(value_of(world.outcome(follower, read)).as_deref(), Some("new"));
    let asked = world.network.len();
    let again = world.ask(follower, get("a", Consistency::AtLeast(seen)));
    assert_eq!(value_of(world.outcome(follower, again)).as_deref(), Some("new"));
    assert_eq!(world.network.len(), asked, "nobody was asked");
}

#[test]
fn a_read_at_least_as_new_as_an_index_far_ahead_is_refused_in_time() {
    let mut world = World::new(3);
    world.elect();
    let follower = world.follower();
    world.pass(ET);
    let read = world.ask(follower, get("a", Consistency::AtLeast(LogIndex(1 << 40))));
    world.pass(Duration::from_secs(8));
    let refused = Outcome::Refused(Refusal::ReadTimedOut);
    assert_eq!(world.outcome(follower, read), Some(&refused));
    assert_eq!(world.member(follower).node.pending(), 0);
    let waiting = world.ask(follower, get("a", Consistency::AtLeast(LogIndex(1 << 40))));
    world.give(follower, Event::Stop);
    assert_eq!(world.outcome(follower, waiting), Some(&Outcome::Refused(Refusal::Stopping)));
}

#[test]
fn a_bounded_read_is_as_fresh_as_requested_and_asks_each_member_once() {
    let mut world = World::new(3);
    let leader = world.elect();
    let follower = world.follower();
    world.pass(ET);
    let bounded = || get("a", Consistency::Bounded(ET));
    let old = world.ask(leader, put("a", "old"));
    world.pass(ET / 10);
    assert!(is_done(world.outcome(leader, old)));
    let first = world.ask(follower, bounded());
    assert!(!world.network.is_empty(), "nothing was confirmed lately: the leader is asked");
    world.pass(ET / 10);
    assert_eq!(value_of(world.outcome(follower, first)).as_deref(), Some("old"));
    let cut = deaf(&mut world, follower);
    let new = world.ask(leader, put("a", "new"));
    world.deliver();
    assert!(is_done(world.outcome(leader, new)));
    // Within the bound since the last round the old value may be served, without a round.
    let within = world.ask(follower, bounded());
    assert_eq!(value_of(world.outcome(follower, within)).as_deref(), Some("old"));
    assert!(world.network.is_empty());
    // Beyond it, not: a member that cannot reach the leader does not answer.
    world.pass(ET);
    let beyond = world.ask(follower, bounded());
    world.pass(ET / 2);
    assert_eq!(world.outcome(follower, beyond), None);
    cut.set(false);
    world.pass(ET * 3);
    assert_eq!(value_of(world.outcome(follower, beyond)).as_deref(), Some("new"));
    // A tighter bound needs another round.
    let tight = world.ask(follower, get("a", Consistency::Bounded(Duration::ZERO)));
    assert_eq!(world.outcome(follower, tight), None);
    world.pass(ET / 10);
    assert_eq!(value_of(world.outcome(follower, tight)).as_deref(), Some("new"));
}
