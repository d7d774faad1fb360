//! Storms: a simulated cluster under the weather of one seed, short enough to try many.
//!
//! Knows nothing of: how the world works, bugs.

use kattu_sim::{Options, run_storm};

/// Length of a storm, in seconds of the world.
const SECONDS: u64 = 25;
/// Clients: few, so that a storm takes little time; what they do is the seed's choice.
const CLIENTS: u32 = 6;

fn options() -> Options {
    Options { seconds: Some(SECONDS), clients: Some(CLIENTS), ..Options::default() }
}

/// One storm: the promise that was broken, and what was seen.
pub fn trial(seed: u64) -> Option<(String, String)> {
    run_storm(seed, &options()).violation.map(|broken| (broken.property, broken.story))
}

/// The timeline of the storm of a seed.
pub fn timeline(seed: u64) -> String {
    let report = run_storm(seed, &Options { timeline: true, ..options() });
    report.timeline.iter().map(|line| format!("{line}\n")).collect()
}
