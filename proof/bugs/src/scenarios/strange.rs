//! Strange: requests that no API makes, and their outcome.
//!
//! Knows nothing of: peers that send them; tests of `core/node` have those.

use crate::catch::caught;
use kattu_node::contract::{MemberChange, Request};
use kattu_raft::NodeId;

/// A member gets a change of the members as if it were a client's write.
pub(super) fn a_change_that_comes_as_a_write(seed: u64) {
    let mut world = super::begin(1, seed);
    let leader = world.elect();
    let last = world.member(leader).node.raft().last_id();
    let change = MemberChange::Remove(NodeId(2 + seed % 7)).encode();
    let stopped = caught(|| world.ask(leader, Request::Write(change.into()))).err();
    let now = world.member(leader).node.raft().last_id();
    assert!(
        now == last,
        "only_what_clients_may_write_is_logged: a change of members stands at {now}; {}",
        stopped.unwrap_or_default()
    );
    assert!(stopped.is_some(), "scene: who hands it in is not told");
}
