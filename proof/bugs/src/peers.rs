//! Storms over the bare peers of one group, as `core/raft` runs them in its own tests.
//!
//! Knows nothing of: bugs, clusters, what a shell does.

#[path = "../../../core/raft/tests/world/mod.rs"]
mod world;

/// Steps of one storm.
const STEPS: usize = 1000;

/// One storm and the calm after it.
///
/// # Panics
/// If anything happens that must not.
pub fn trial(seed: u64) {
    let _ = world::storm::storm(seed, STEPS);
}
