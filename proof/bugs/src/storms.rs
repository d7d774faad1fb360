//! Storms: a simulated cluster under the weather of one seed, short enough to try many.
//!
//! A storm ends with the first promise that is broken. If that was seen in what clients were told, the other judges of
//! histories are asked too: each must be known to see, also those that come last.
//! Knows nothing of: how the world works, bugs.

use kattu_sim::{Options, StormReport, run_storm, shrink};
use kattu_verify::history::{Answer, Operation, Record, What};
use kattu_verify::judges::{
    FinalState, Summary, Violation, durable, linearizable, revision_order, revisions_never_back, txn_atomic,
};
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
    let mut properties = vec![broken.property.clone()];
    properties.extend(others(&report, &broken.property).into_iter().map(str::to_string));
    Some((properties.join(", "), broken.story))
}

type Judge = fn(&[Record]) -> Result<Summary, Violation>;

/// The judges of histories.
const JUDGES: [(&str, Judge); 5] = [
    ("revisions_never_back", revisions_never_back),
    ("txn_atomic", txn_atomic),
    ("revision_order", revision_order),
    ("durable", durable_at_the_end),
    ("linearizable", linearizable),
];

/// The judges of histories that reject it beside the one that was first; none if that was no judge of histories.
fn others(report: &StormReport, first: &str) -> Vec<&'static str> {
    if JUDGES.iter().all(|(name, _)| *name != first) {
        return Vec::new();
    }
    let rejects = |judge: Judge| judge(&report.history).is_err();
    JUDGES.iter().filter(|(name, judge)| *name != first && rejects(*judge)).map(|(name, _)| *name).collect()
}

fn durable_at_the_end(history: &[Record]) -> Result<Summary, Violation> {
    final_state(history).map_or(Ok(Summary::default()), |last| durable(history, &last))
}

/// What the last read of everything showed, if the storm came that far.
fn final_state(history: &[Record]) -> Option<FinalState> {
    let everything = Operation::Range {
        key: "\0".to_string(),
        end: "\0".to_string(),
        revision: 0,
        limit: 0,
        count_only: false,
        serializable: false,
    };
    let asks =
        |record: &&Record| matches!(&record.what, What::Invoke { operation, .. } if *operation == everything);
    let asked = history.iter().rfind(asks)?;
    let ends = |record: &&Record| record.id == asked.id && !asks(record);
    match &history.iter().rfind(ends)?.what {
        What::Done { revision: Some(revision), answer: Ok(Answer::Range { kvs, .. }) } => {
            Some(FinalState { revision: *revision, kvs: kvs.clone() })
        }
        _ => None,
    }
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
