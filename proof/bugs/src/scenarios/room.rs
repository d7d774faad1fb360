//! Room: how writes are answered while the next segment of the log is made.
//!
//! Knows nothing of: disks.

use kattu_node::contract::{Event, Outcome, Refusal, Space};
use kattu_replicas::{is_done, put};

/// A follower forwards a write to a leader whose log has room, only not ready yet.
pub(super) fn a_write_that_comes_early(seed: u64) {
    let mut world = super::begin(3, seed);
    let leader = world.elect();
    let follower = 1 + (leader + seed % 2) % 3;
    world.give(leader, Event::Space(Space { log_bytes: seed % 4, short: false }));
    let write = world.ask(follower, put("a", "1"));
    world.deliver();
    let outcome = world.outcome(follower, write);
    assert!(
        !matches!(outcome, Some(Outcome::Refused(Refusal::NoSpace))),
        "no_space_is_said_only_when_there_is_none: {outcome:?} from n{leader}, whose disk is not full"
    );
    world.give(leader, Event::Space(Space { log_bytes: u64::MAX, short: false }));
    world.deliver();
    let outcome = world.outcome(follower, write);
    assert!(is_done(outcome), "scene: there is room, and the client is told {outcome:?}");
}
