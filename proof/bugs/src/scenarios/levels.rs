//! Levels: each member announces on its own links what it knows; that another's links break takes nothing of it back.
//!
//! Knows nothing of: handshakes, stores.

use kattu_node::contract::{Event, MemberChange, Request};
use kattu_node::level::KNOWN;
use kattu_raft::policy::{Capacity, Weak};
use kattu_raft::{LinkEnd, NbRaft, NodeId, Protocol};
use kattu_replicas::{ET, World};

/// Members that have announced what they know lose a link towards one of them, and then elect.
pub(super) fn after_a_link_towards_a_member_has_closed(seed: u64) {
    let mut world = World::new(3);
    let lost = 1 + seed % 3;
    for to in 1..=3 {
        for of in (1..=3).filter(|&of| of != to) {
            world.give(to, Event::Knows(NodeId(of), KNOWN));
        }
        if to != lost {
            world.give(to, Event::LinkClosed(NodeId(lost), LinkEnd::Otherwise));
        }
    }
    world.elect();
    world.pass(ET * (3 * u32::from(KNOWN)));
    let levels: Vec<u16> = (1..=3).map(|id| world.member(id).keeper.health().level).collect();
    assert!(
        levels == [KNOWN; 3],
        "levels_rise: all members have announced that they know level {KNOWN}, and they are at {levels:?}"
    );
}

/// The leader is asked for a window while one member has not said what it knows.
pub(super) fn while_a_member_may_not_know_windows(seed: u64) {
    let mut world = World::new(3);
    let silent = 1 + seed % 3;
    for to in 1..=3 {
        for of in (1..=3).filter(|&of| of != to && of != silent) {
            world.give(to, Event::Knows(NodeId(of), KNOWN));
        }
    }
    let leader = world.elect();
    world.pass(ET * 3);
    let (window, budget) = (Capacity { entries: 10, bytes: 1000 }, Capacity { entries: 0, bytes: 0 });
    let protocol = Protocol::NbRaft(NbRaft { window, weak: Weak::Off, budget });
    world.ask(leader, Request::Change(MemberChange::Protocol(protocol)));
    world.pass(ET);
    let in_force = world.member(leader).node.raft().membership().extensions.protocol;
    assert!(
        !matches!(in_force, Some(Protocol::NbRaft(_))),
        "older_versions_can_follow: a window is in the configuration, and member {silent} has not said that it knows windows"
    );
}
