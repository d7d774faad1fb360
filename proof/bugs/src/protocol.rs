//! Protocol: peers alone, without stores, clients or real logs, under weather that moves in single messages and records.
//!
//! These are the storms of `core/raft` itself: they meet in a millisecond what a whole cluster meets in minutes, and see
//! nothing but the protocol.
//! Knows nothing of: what is replicated.

use crate::catch::promise_in;

#[path = "../../../core/raft/tests/world/mod.rs"]
mod world;

/// Steps of one storm.
const STEPS: usize = 1000;

/// Which promise a message of theirs is about.
const PROMISES: &[(&str, &str)] = &[
    ("Election Safety", "election_safety"),
    ("two leaders", "election_safety"),
    ("Leader Completeness", "leader_completeness"),
    ("State Machine Safety", "state_machine_safety"),
    ("acknowledge", "acknowledgements"),
    ("stale read", "stale_read"),
    ("no convergence", "converges"),
    ("the_disk_owes_what_is_not_persisted", "the_disk_owes_what_is_not_persisted"),
];

/// The promise that was broken, given what the panic said.
pub fn promise_of(message: &str) -> String {
    promise_in(message, PROMISES).unwrap_or("protocol_asserts").to_string()
}

/// One storm. Panics if a promise is broken.
pub fn trial(seed: u64) {
    world::storm::storm(seed, STEPS);
}
