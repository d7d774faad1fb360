//! Slow disks: a leader on one transfers leadership, and not again and again.
//!
//! Knows nothing of: stores, clients.

use kattu_node::TransferConfig;
use kattu_raft::Duration;
use kattu_replicas::World;

const FAST: Duration = Duration::from_millis(2);
const SLOW: Duration = Duration::from_millis(40);

/// Three members that watch their disks, and the one that leads.
fn begin() -> (World, u64) {
    let mut world = World::transferring(3, TransferConfig { to_priority: false, from_slow_disk: true });
    let leader = world.elect();
    (world, leader)
}

/// Of three disks two are slow, the leader's among them.
pub(super) fn a_leader_on_one_of_two(seed: u64) {
    let (mut world, leader) = begin();
    let others: Vec<u64> = (1..=3).filter(|&id| id != leader).collect();
    let fast = others[seed as usize % 2];
    world.write_for(Duration::from_secs(20), |_, id| if id == fast { FAST } else { SLOW });
    let leader = world.leader();
    assert!(
        leader == Some(fast),
        "a_slow_disk_does_not_lead: after 20 s {leader:?} leads, and {fast} has the only fast disk"
    );
}

/// Leading is what makes a disk slow, on any member.
pub(super) fn an_office_that_slows() {
    let (mut world, leader) = begin();
    let before = world.member(leader).node.raft().term();
    world.write_for(
        Duration::from_secs(60),
        |world, id| {
            if world.leader() == Some(id) { SLOW } else { FAST }
        },
    );
    let after = world.member(leader).node.raft().term();
    let changes = after.0 - before.0;
    assert!(changes <= 6, "an_office_rests: {changes} leaders in 60 election timeouts");
}
