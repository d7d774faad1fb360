//! Requests for votes: the cost for a cluster if a member sends them that should not, or does not that should.
//!
//! Knows nothing of: stores, clients.

use kattu_peers::{World, config};
use kattu_raft::{Duration, LinkEnd, NodeId};
use std::collections::VecDeque;

const ET: Duration = Duration::from_millis(1000);
const ONE: NodeId = NodeId(1);
const TWO: NodeId = NodeId(2);
const THREE: NodeId = NodeId(3);

/// Three members of which the first leads; what it has proposed is committed.
fn three(seed: u64) -> World {
    let mut world = World::started((1..=3).map(|id| config(id, 3, 0)).collect(), seed);
    assert!(world.elect(ONE), "scene: nothing is in the way");
    world.propose(ONE, b"a").expect("it leads");
    world.settle();
    world
}

/// The third has lost its snapshots, and its leader dies while it stores what it is sent. It is whole again after its
/// wait for a leader has ended; the second, which is behind, cannot lead.
pub(super) fn a_member_that_is_whole_again(seed: u64) {
    let mut world = three(seed);
    world.partition(&[vec![ONE, THREE], vec![TWO]]);
    world.propose(ONE, b"b").expect("it leads");
    world.settle();
    world.begin_snapshot(THREE);
    world.end_snapshot(THREE, 0);
    world.settle();
    world.crash(THREE, 0);
    world.peer(THREE).disk.snapshots.clear();
    world.start(THREE);
    world.peer(THREE).held.chunks = true;
    world.pass(Duration::from_millis(100));
    world.crash(ONE, 0);
    world.pass(ET * 3);
    world.peer(THREE).held.chunks = false;
    world.settle();
    world.cut.clear();
    assert!(
        world.pass_until(ET * 3, |world| world.leader().is_some()),
        "a_majority_that_can_talk_has_a_leader: two of three are whole, and nobody asks who may lead"
    );
}

/// The third starts a pre-vote, and votes for the first before that is answered.
pub(super) fn a_vote_of_who_asks_itself(seed: u64) {
    let mut world = World::started((1..=3).map(|id| config(id, 3, 0)).collect(), seed);
    let (ask, vote) = (Duration::ZERO, ET * 3);
    // The first campaigns in term 1, and the second has voted for it; nothing has come to the third.
    asks(&mut world, ONE, ask);
    deliver(&mut world, ONE, TWO);
    deliver(&mut world, TWO, ONE);
    world.sync(ONE, usize::MAX);
    deliver(&mut world, ONE, TWO);
    world.sync(TWO, usize::MAX);
    let elects = taken(&mut world, TWO, ONE);
    let wants = taken(&mut world, ONE, THREE);
    // The election timeout of the second ends, and the third learns the term from it; then it starts a pre-vote itself.
    asks(&mut world, TWO, vote);
    deliver(&mut world, TWO, THREE);
    world.sync(THREE, usize::MAX);
    world.wire.clear();
    asks(&mut world, THREE, Duration::ZERO);
    let own_question = taken(&mut world, THREE, TWO);
    for envelope in wants {
        world.deliver(envelope);
    }
    world.sync(THREE, usize::MAX);
    for envelope in elects {
        world.deliver(envelope);
    }
    deliver(&mut world, THREE, ONE);
    assert!(world.raft(ONE).is_leader(), "scene: two of three have voted for n1");
    for envelope in own_question {
        world.deliver(envelope);
    }
    world.sync(TWO, usize::MAX);
    deliver(&mut world, TWO, THREE);
    world.settle();
    assert!(
        world.raft(ONE).is_leader(),
        "who_elects_a_leader_keeps_it: n3 has voted for n1 in term 1, and is {} in {:?}",
        world.raft(THREE).role_name(),
        world.raft(THREE).term()
    );
}

/// The third has just started, and the second loses its link to the leader, which is well.
pub(super) fn a_restart_and_a_lost_link(seed: u64) {
    let mut world = three(seed);
    world.pass(Duration::from_millis(110 + seed % 60)); // the next heartbeat comes too late for all
    world.crash(THREE, 0);
    world.start(THREE);
    world.act(TWO, |raft, now, effects| raft.link_closed(now, ONE, LinkEnd::ByPeer, effects));
    world.pass(ET);
    assert!(
        world.raft(ONE).is_leader(),
        "a_restart_and_a_lost_link_cost_no_election: n1 is {} in {:?}",
        world.raft(ONE).role_name(),
        world.raft(ONE).term()
    );
}

/// The second and the third lose their links to the leader; the third grants the pre-vote of the second, and receives a
/// heartbeat of the leader before that arrives. The world itself checks whether the second may campaign.
pub(super) fn a_yes_that_comes_late(seed: u64) {
    let mut world = three(seed);
    world.pass(Duration::from_millis(110 + seed % 60));
    world.cut.insert((ONE, TWO));
    for voter in [TWO, THREE] {
        world.act(voter, |raft, now, effects| raft.link_closed(now, ONE, LinkEnd::ByPeer, effects));
    }
    asks(&mut world, TWO, Duration::ZERO);
    deliver(&mut world, TWO, THREE);
    let late = taken(&mut world, THREE, TWO);
    asks(&mut world, ONE, Duration::ZERO);
    deliver(&mut world, ONE, THREE);
    asks(&mut world, TWO, Duration::ZERO);
    assert_eq!(world.raft(TWO).role_name(), "pre-candidate", "scene: it asks again");
    world.wire.clear();
    for envelope in late {
        world.deliver(envelope);
    }
    world.settle();
    assert_eq!(world.raft(TWO).role_name(), "pre-candidate", "scene: n3 hears the leader");
}

/// A member's timer fires, after at least this time.
fn asks(world: &mut World, id: NodeId, wait: Duration) {
    world.now = (world.now + wait).max(world.due(id));
    world.tick(id);
}

/// Takes what is on its way from one to the other off the wire.
fn taken(world: &mut World, from: NodeId, to: NodeId) -> VecDeque<kattu_raft::Envelope> {
    let (taken, kept) = world.wire.drain(..).partition(|envelope| (envelope.from, envelope.to) == (from, to));
    world.wire = kept;
    taken
}

/// What is on its way from one to the other arrives.
fn deliver(world: &mut World, from: NodeId, to: NodeId) {
    for envelope in taken(world, from, to) {
        world.deliver(envelope);
    }
}
