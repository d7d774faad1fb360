//! Members that compare their stores over the log: a divergent one is reported, and no other; none if all are equal.
//!
//! The judge of the first scene is the comparison of the members themselves: nothing that a client can read differs.
//! Knows nothing of: how digests come about.

use kattu_node::alarms::Alarm;
use kattu_raft::{Duration, NodeId};
use kattu_replicas::{ET, World, is_done, put};

const INTERVAL: Duration = Duration::from_secs(2);

/// Three members, at a moment of the seed.
fn begin(seed: u64) -> (World, u64) {
    let mut world = World::comparing(3, INTERVAL);
    world.pass(Duration::from_millis(seed * 37 % 2000));
    let leader = world.elect();
    (world, leader)
}

fn write(world: &mut World, leader: u64, number: u64) {
    let written = world.ask(leader, put(&format!("k{number}"), "v"));
    world.pass(ET / 4);
    assert!(is_done(world.outcome(leader, written)));
}

/// The alarms at each member.
fn alarms(world: &mut World) -> Vec<Vec<Alarm>> {
    (1..=3).map(|id| world.status(id).alarms.iter().collect()).collect()
}

pub(super) fn members_that_are_compared(seed: u64) {
    let (mut world, leader) = begin(seed);
    (0..=seed % 5).for_each(|number| write(&mut world, leader, number));
    world.pass(INTERVAL * 2);
    let alarms = alarms(&mut world);
    assert!(
        alarms.iter().all(Vec::is_empty),
        "members_made_the_same_of_the_log: {:?} after a comparison at {:?}",
        alarms[0],
        world.status(leader).compared.marked
    );
    assert!(world.status(leader).compared.marked.0 > 0, "scene: nothing was compared");
}

pub(super) fn one_that_differs(seed: u64) {
    let (mut world, leader) = begin(seed);
    write(&mut world, leader, 0);
    let divergent = 1 + (leader + seed) % 3;
    world.tamper(divergent);
    write(&mut world, leader, 1);
    world.pass(INTERVAL * 2);
    let alarms = alarms(&mut world);
    let expected = [Alarm::corrupt(NodeId(divergent))];
    assert!(
        alarms.iter().all(|of_one| *of_one == expected),
        "the_odd_one_is_named: n{divergent} differs, told is {alarms:?}"
    );
}
