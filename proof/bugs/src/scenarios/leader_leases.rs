//! A leader lease in the middle of a change of members.
//!
//! Knows nothing of: stores, clients.

use crate::catch::caught;
use crate::protocol;
use kattu_peers::{World, config};
use kattu_raft::{Duration, Envelope, LeaderLease, Membership, NodeId};

/// The first of three is to stay alone, and no other member knows of it. Its heartbeats are lost; answers to an earlier
/// one come in late; then its process is held up. Meanwhile the others keep their vote holds to the end and elect
/// another leader.
pub(super) fn a_change_that_nobody_hears_of(seed: u64) {
    let play = || {
        let configs = (1..=3).map(|id| {
            let mut config = config(id, 3, 0);
            config.leadership.leader_lease =
                Some(LeaderLease { rho: 5_000, margin: Duration::ZERO, watch_clocks: true });
            config
        });
        let mut world = World::started(configs.collect(), seed);
        assert!(world.elect(NodeId(1)), "nothing is in the way");
        world.pass(Duration::from_millis(500));
        let late = answers_to_one_heartbeat(&mut world);
        world.partition(&[vec![NodeId(1)], vec![NodeId(2), NodeId(3)]]);
        let alone = Membership::new(vec![NodeId(1)], vec![]);
        world.change(NodeId(1), &alone).expect("it has heard of everybody just now");
        world.pass(Duration::from_millis(800));
        for answer in late {
            world.act(NodeId(1), |raft, now, effects| raft.step(now, answer, effects));
        }
        for _ in 0..100 {
            let first = [NodeId(2), NodeId(3)].into_iter().min_by_key(|&id| world.due(id)).expect("two");
            world.now = world.now.max(world.due(first));
            world.tick(first);
            world.settle();
            if world.leader().is_some_and(|leader| leader != NodeId(1)) {
                return;
            }
        }
        panic!("the others elect nobody");
    };
    if let Err(said) = caught(play) {
        panic!("{}: {said}", protocol::promise_of(&said));
    }
}

/// The first sends a heartbeat; the answers of the others are still under way.
fn answers_to_one_heartbeat(world: &mut World) -> Vec<Envelope> {
    world.now = world.due(NodeId(1));
    world.tick(NodeId(1));
    let mut answers = Vec::new();
    while let Some(envelope) = world.wire.pop_front() {
        match envelope.to {
            NodeId(1) => answers.push(envelope),
            other => {
                world.deliver(envelope);
                while world.attend(other) {}
            }
        }
    }
    assert_eq!(answers.len(), 2, "both answer");
    answers
}
