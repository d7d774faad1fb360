//! Who asks for votes, and when: what it costs a cluster if a member asks that should not, or does not ask that should.
//!
//! Knows nothing of: stores, clients.

use crate::protocol::world;
use kattu_raft::{Duration, NodeId};
use world::{World, config};

const ET: Duration = Duration::from_millis(1000);
const ONE: NodeId = NodeId(1);
const TWO: NodeId = NodeId(2);
const THREE: NodeId = NodeId(3);

/// Three of which the first leads; what it has proposed is committed.
fn three(seed: u64) -> World {
    let mut world = World::started((1..=3).map(|id| config(id, 3, 0)).collect(), seed);
    assert!(world.elect(ONE), "scene: nothing is in the way");
    world.propose(ONE, b"a").expect("it leads");
    world.settle();
    world
}

/// The third has lost its snapshots, and its leader dies while it stores what it is sent. It is whole again after its wait
/// for a leader has ended; the second, which is behind, cannot lead.
pub(super) fn a_member_that_is_whole_again(seed: u64) {
    let mut world = three(seed);
    world.partition(&[vec![ONE, THREE], vec![TWO]]);
    world.propose(ONE, b"b").expect("it leads");
    world.settle();
    world.begin_snapshot(THREE);
    world.end_snapshot(THREE, 0);
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
