//! Slow disks: a leader on one transfers leadership, and not again and again.
//!
//! Knows nothing of: stores, clients.

use kattu_peers::{World, config};
use kattu_raft::{Duration, NodeId};

const FAST: Duration = Duration::from_millis(2);
const SLOW: Duration = Duration::from_millis(40);

/// Three members that watch their disks; the first leads.
fn begin(seed: u64) -> World {
    let configs = (1..=3).map(|id| {
        let mut config = config(id, 3, 0);
        config.leadership.leave_slow_disk = true;
        config
    });
    let mut world = World::started(configs.collect(), seed);
    assert!(world.elect(NodeId(1)), "nothing is in the way");
    world
}

/// Of three disks two are slow, the leader's among them.
pub(super) fn a_leader_on_one_of_two(seed: u64) {
    let mut world = begin(seed);
    let fast = NodeId(2 + seed % 2);
    world.write_for(Duration::from_secs(20), |_, id| if id == fast { FAST } else { SLOW });
    let leader = world.leader();
    assert!(
        leader == Some(fast),
        "a_slow_disk_does_not_lead: after 20 s {leader:?} leads, and {fast:?} has the only fast disk"
    );
}

/// Leading is what makes a disk slow, on any member.
pub(super) fn an_office_that_slows(seed: u64) {
    let mut world = begin(seed);
    let before = world.raft(NodeId(1)).term();
    world
        .write_for(Duration::from_secs(60), |world, id| if world.leader() == Some(id) { SLOW } else { FAST });
    let after = world.leader().map_or(before, |leader| world.raft(leader).term());
    let changes = after.0 - before.0;
    assert!(changes <= 6, "an_office_rests: {changes} leaders in 60 election timeouts");
}
