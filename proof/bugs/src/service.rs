//! Service: storms in which nothing but one member or one link is slow, with the judges of service.
//!
//! A bug is tried in the family of storms that brings out its kind: slow links unless it is listed below.
//! Knows nothing of: how the world works, bugs.

use kattu_sim::service::{forget, pour, rush};
use kattu_sim::{Family, Options, run_storm};

/// The judges of service: each has a bug that no other judge sees, neither of these nor of safety.
pub const JUDGES: [&str; 6] =
    ["goodput", "progress", "bounded_step", "bounded_memory", "tail", "no_metastable_state"];

/// Length of a storm, in seconds of the world.
const SECONDS: u64 = 20;

/// Bugs that show where a member has little CPU, or where history is compacted.
const OF_SLOW_MEMBERS: [&str; 2] = ["commit-waits-for-everybody", "elections-wait-five-times-as-long"];
/// Bugs that show where segments and snapshots are made on the one disk of the log.
const OF_BUSY_DISKS: [&str; 3] =
    ["next-segment-made-while-writes-wait", "snapshot-synced-in-one-go", "compacted-versions-kept"];
/// Bugs that show where much history is compacted.
const OF_FORGET: [&str; 1] = ["compaction-forgets-all-at-once"];
/// Bugs that show where a member lies.
const OF_LIARS: [&str; 1] = ["any-sequence-believed"];
/// Bugs that show under ten times the load that can be served.
const OF_RUSH: [&str; 1] = ["unanswered-forwards-go-with-every-batch"];

/// Bugs that show where clients write more than links carry.
const OF_POUR: [&str; 1] = ["waiting-writes-without-a-bound"];

/// The name of the storms for this bug: storms of one name are the same for all its bugs.
pub fn called_for(bug: &str) -> &'static str {
    match bug {
        "rush" => "rush",
        "pour" => "pour",
        "forget" => "forget",
        _ if OF_FORGET.contains(&bug) => "forget",
        _ if OF_POUR.contains(&bug) => "pour",
        _ if OF_RUSH.contains(&bug) => "rush",
        _ if OF_SLOW_MEMBERS.contains(&bug) || bug == Family::SlowMembers.name() => {
            Family::SlowMembers.name()
        }
        _ if OF_BUSY_DISKS.contains(&bug) || bug == Family::BusyDisks.name() => Family::BusyDisks.name(),
        _ if OF_LIARS.contains(&bug) || bug == Family::Liars.name() => Family::Liars.name(),
        _ => Family::SlowLinks.name(),
    }
}

/// One storm: the guarantee that was broken, and what was seen. The silent judge is ignored.
pub fn trial(name: &str, seed: u64, silent: Option<&'static str>) -> Option<(String, String)> {
    let broken = match called_for(name) {
        "rush" => rush(seed, silent).err(),
        "pour" => pour(seed, silent).err(),
        "forget" => forget(seed, silent).err(),
        family => {
            let family = Family::called(family).unwrap_or_default();
            let options = Options { family, seconds: Some(SECONDS), silent, ..Options::default() };
            run_storm(seed, &options).violation
        }
    };
    broken.map(|broken| (broken.property, broken.story))
}
