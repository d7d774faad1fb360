//! Storms: a simulated cluster under the weather of one seed, short enough to try many.
//!
//! A storm ends with the first promise that is broken. If that was seen in what clients were told, the other judges of
//! histories are asked too: each must be known to see, also those that come last.
//! Knows nothing of: how the world works, bugs.

use crate::histories;
use kattu_sim::{Options, run_storm, shrink};
use std::fmt::Write;

/// Length of a storm, in seconds of the world.
const SECONDS: u64 = 25;
/// Clients: few, so that a storm takes little time; what they do is the seed's choice.
const CLIENTS: u32 = 6;

fn options() -> Options {
    Options { seconds: Some(SECONDS), clients: Some(CLIENTS), ..Options::default() }
}

/// One storm: the promise that was broken, all judges that say so if clients saw it, and what was seen.
pub fn trial(seed: u64) -> Option<(String, String)> {
    let report = run_storm(seed, &Options { history: true, ..options() });
    let broken = report.violation.clone()?;
    let mut properties = vec![broken.property.as_str()];
    if histories::is_judge(&broken.property) {
        let others = histories::rejecting(&report.history).into_iter();
        properties.extend(others.filter(|other| *other != broken.property));
    }
    Some((properties.join(", "), broken.story.clone()))
}

/// The storm of a failing seed, cut down to what matters, line by line; nothing if it does not fail.
pub fn timeline(seed: u64) -> Option<String> {
    let report = run_storm(seed, &options());
    let violation = report.violation.clone()?;
    let shrunk = shrink(&report, &options());
    let mut text = format!("seed {seed}, {}\n", shrunk.report.plan);
    for line in &shrunk.report.timeline {
        let _ = writeln!(text, "{line}");
    }
    let _ = writeln!(
        text,
        "{} faults of {} are enough ({} storms tried) to break {}",
        shrunk.report.injected.len(),
        report.injections_planned,
        shrunk.attempts,
        violation.property
    );
    Some(text)
}
