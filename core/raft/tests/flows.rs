//! What a leader counts of the flow to each peer: every byte sent, the bytes sent again, and the bytes that have arrived.

use kattu_peers::{World, config};
use kattu_raft::{Duration, NodeId, PeerFlow};

const LEADER: NodeId = NodeId(1);
const CUT_OFF: NodeId = NodeId(3);

fn flow(world: &World, peer: NodeId) -> PeerFlow {
    world.raft(LEADER).peer_flows().find(|(id, _)| *id == peer).expect("it leads").1
}

#[test]
fn a_leader_lets_a_voter_lead_that_has_all_of_its_log_however_short_that_is() {
    let mut world = World::started((1..=3).map(|id| config(id, 3, 0)).collect(), 7);
    assert!(world.elect(LEADER));
    world.propose(LEADER, b"x").expect("it leads");
    world.settle();
    world.begin_snapshot(LEADER);
    world.end_snapshot(LEADER, 0);
    let leader = world.raft(LEADER);
    assert_eq!(leader.first_index(), leader.last_id().index.next(), "nothing is left of it");
    let began = world.act(LEADER, |raft, now, effects| raft.transfer(now, NodeId(2), effects));
    assert_eq!(began, Ok(()));
}

#[test]
fn bytes_are_counted_as_sent_again_only_when_they_are() {
    let mut world = World::started((1..=3).map(|id| config(id, 3, 1)).collect(), 7);
    assert!(world.elect(LEADER));
    world.settle();
    let before = flow(&world, CUT_OFF).counts;
    let propose = |world: &mut World| {
        for number in 0..5 {
            world.propose(LEADER, &[number; 100]).expect("it leads");
        }
    };
    propose(&mut world);
    world.settle();
    for peer in [NodeId(2), CUT_OFF] {
        let PeerFlow { counts, behind, .. } = flow(&world, peer);
        assert!(before.sent + 500 <= counts.sent, "{counts:?}");
        assert_eq!((counts.taken, counts.again, behind), (counts.sent, 0, 0), "{peer:?}");
    }
    // What is lost on its way is sent again, to the peer that lacks it and to no other.
    world.partition(&[vec![LEADER, NodeId(2)], vec![CUT_OFF]]);
    propose(&mut world);
    world.settle();
    assert_eq!(flow(&world, CUT_OFF).behind, 5);
    world.heal();
    world.pass(Duration::from_millis(2000));
    world.settle();
    let lost = flow(&world, CUT_OFF);
    assert_eq!((lost.behind, flow(&world, NodeId(2)).counts.again), (0, 0));
    assert!(500 <= lost.counts.again, "{lost:?}");
    assert_eq!(lost.counts.taken, flow(&world, NodeId(2)).counts.taken, "each byte arrives once");
    assert_eq!(lost.counts.sent - lost.counts.again, lost.counts.taken, "{lost:?}");
}
