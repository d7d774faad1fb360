//! Clocks that run apart: a leader that has proof of it no longer answers reads by its own clock.
//!
//! Knows nothing of: stores, clients.

use crate::catch::caught;
use crate::protocol;
use kattu_peers::{World, config};
use kattu_raft::{Duration, LeaderLease, NodeId};

/// Three members that trust clocks with half a percent; the first leads, and its clock and the others' run apart by far
/// more.
pub(super) fn a_leader_with_proof(seed: u64) {
    let rates = [[-30_000, 0, 0], [0, 30_000, 0], [0, 0, -30_000], [400_000, 0, -400_000]];
    let play = || {
        let configs = (1..=3).map(|id| {
            let mut config = config(id, 3, 0);
            config.leadership.leader_lease =
                Some(LeaderLease { rho: 5_000, margin: Duration::ZERO, watch_clocks: true });
            config
        });
        let mut world = World::started(configs.collect(), seed);
        for (id, ppm) in (1..).map(NodeId).zip(rates[seed as usize % rates.len()]) {
            let now = world.now;
            world.peer(id).clock.set_rate(now, ppm);
        }
        assert!(world.elect(NodeId(1)), "nothing is in the way");
        world.pass(Duration::from_secs(2));
        assert!(!world.raft(NodeId(1)).clocks_apart().is_empty(), "clocks_apart_are_found: {rates:?}");
        let lease = world.raft(NodeId(1)).leader_lease_until();
        assert!(lease.is_none(), "no_lease_among_clocks_apart: until {lease:?}");
    };
    if let Err(said) = caught(play) {
        panic!("{}: {said}", protocol::promise_of(&said));
    }
}
