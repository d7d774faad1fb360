//! Protocol: peers alone, without stores, clients or real logs, under faults in single messages and records.
//!
//! These are the storms of `core/raft` itself: they cover in a millisecond what takes a whole cluster minutes, and
//! check nothing but the protocol.
//! Knows nothing of: what is replicated.

use crate::catch::promise_in;

/// Steps of one storm.
const STEPS: usize = 1000;

/// The guarantee that each message of theirs is about.
const PROMISES: &[(&str, &str)] = &[
    ("Election Safety", "election_safety"),
    ("two leaders", "election_safety"),
    ("which has another leader", "election_safety"),
    ("Leader Completeness", "leader_completeness"),
    ("State Machine Safety", "state_machine_safety"),
    ("[O2]", "commits"),
    ("[O3]", "commits"),
    ("[N1]", "snapshots_tell_the_members"),
    ("[ST7]", "votes_respect_floors"),
    ("[ST17]", "served"),
    ("[E2]", "campaigns_are_asked_for"),
    ("[M9]", "transfers_are_wanted"),
    ("[L-2]", "leases_exclude_leaders"),
    ("[L-6]", "no_lease_after_transfer"),
    ("no_clock_is_accused_in_vain", "no_clock_is_accused_in_vain"),
    ("acknowledge", "acknowledgements"),
    ("[WK2]", "received"),
    ("stale read", "stale_read"),
    ("no convergence", "converges"),
    ("contradicts what agreed", "verified"),
    ("what_waits_unread_is_in_order", "what_waits_unread_is_in_order"),
    ("the_disk_owes_what_is_not_persisted", "the_disk_owes_what_is_not_persisted"),
    ("configurations_are_those_of_the_log", "configurations_are_those_of_the_log"),
    ("settings_are_those_in_force", "settings_are_those_in_force"),
    ("a_member_below_its_vote_floor_follows", "a_member_below_its_vote_floor_follows"),
    ("a_lease_is_earned", "a_lease_is_earned"),
    ("a_vote_hold_outlasts_no_campaign", "a_vote_hold_outlasts_no_campaign"),
    ("a_suspicion_needs_the_quorum_question", "a_suspicion_needs_the_quorum_question"),
    ("the_base_is_covered", "the_base_is_covered"),
    ("the_window_is_within_its_bounds", "the_window_is_within_its_bounds"),
];

/// The guarantee that was broken, by the message of the panic.
pub fn promise_of(message: &str) -> String {
    promise_in(message, PROMISES).unwrap_or("protocol_asserts").to_string()
}

/// One storm. Panics on a violation.
pub fn trial(seed: u64) {
    kattu_peers::storm::storm(seed, STEPS);
}
