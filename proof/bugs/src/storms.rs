//! Storms: a simulated cluster under the faults of one seed, short enough to try many.
//!
//! A storm ends with the first violation. If a judge of histories found it, the others run too: each must be known to
//! see, also those that come last.
//!
//! Clients read linearizably, which most judges need, unless the bug is one of weaker reads.
//! Knows nothing of: how the world works, bugs.

use crate::histories;
use kattu_sim::inject::{Kind, Kinds};
use kattu_sim::trace::Line;
use kattu_sim::{Options, run_storm, shrink};
use std::fmt::Write;

/// Length of a storm, in seconds of the world.
const SECONDS: u64 = 25;
/// Clients: few, so that a storm takes little time; their operations are the seed's choice.
const CLIENTS: u32 = 6;

/// Bugs of reads at least as new as an index, and of bounded ones.
const OF_LEVELS: [&str; 2] = ["bounded-read-asks-nobody", "answers-before-their-position"];

/// Bugs of settings that members share.
const OF_SETTINGS: [&str; 3] =
    ["extensions-before-their-level", "shared-timing-never-begun", "flags-instead-of-the-clusters-timing"];

/// The name of the storms of clients that have sessions.
const OF_SESSIONS: &str = "sessions";

/// Bugs of sessions.
const SESSION_BUGS: [&str; 16] = [
    "repeated-command-executed-again",
    "sessions-missing-from-the-snapshot",
    "sessions-end-only-where-a-client-waits",
    "answer-dropped-before-it-is-acknowledged",
    "retry-after-expiry-executed",
    "sequence-judged-only-where-a-client-waits",
    "a-gap-in-a-strict-session",
    "session-secret-unchecked",
    "kept-answer-of-no-waiting-client",
    "sessions-before-their-level",
    "registration-ends-a-session-in-use",
    "use-does-not-keep-a-session",
    "shorter-idle-time-ends-sessions-in-use",
    "bundles-before-their-level",
    "commands-of-a-bundle-outside-their-sessions",
    "a-bundle-ends-where-its-slice-does",
];

/// The name of the storms whose members are tuned while they run.
const OF_TUNED: &str = "tuned";

/// Bugs of switches.
const TUNED_BUGS: [&str; 3] = [
    "tasks-dropped-on-the-keepers-way-back",
    "clients-dropped-on-the-keepers-way-back",
    "orders-lost-on-the-logs-way-home",
];

/// The name of the storms whose clients ask for weak answers.
const OF_WEAK: &str = "weak";

/// Bugs of weak answers.
const WEAK_BUGS: [&str; 1] = ["weak-answers-out-of-step"];

/// The name of the storms for this bug: storms of one name are the same for all its bugs.
pub fn called_for(bug: &str) -> &'static str {
    if SESSION_BUGS.contains(&bug) {
        return OF_SESSIONS;
    }
    if TUNED_BUGS.contains(&bug) {
        return OF_TUNED;
    }
    if WEAK_BUGS.contains(&bug) {
        return OF_WEAK;
    }
    OF_LEVELS.iter().chain(&OF_SETTINGS).find(|name| **name == bug).copied().unwrap_or_default()
}

fn options(name: &str) -> Options {
    // What is made beside a storm has scenes of its own; slow and heavy kinds make timelines long.
    let kinds = Kinds::of(Kind::ALL).without(Kind::Restore).without(Kind::Recover);
    let kinds = kinds.without(Kind::Narrow).without(Kind::Tired).without(Kind::Heavy);
    let levels = Some(OF_LEVELS.contains(&name));
    Options {
        seconds: Some(SECONDS),
        clients: Some(CLIENTS),
        kinds: Some(kinds),
        levels,
        shared_settings: OF_SETTINGS.contains(&name),
        sessions: name == OF_SESSIONS || SESSION_BUGS.contains(&name),
        tuned: name == OF_TUNED || TUNED_BUGS.contains(&name),
        weak: name == OF_WEAK || WEAK_BUGS.contains(&name),
        ..Options::default()
    }
}

/// One storm: the guarantee that was broken, all judges that report it if clients saw it, and what was seen.
pub fn trial(name: &str, seed: u64) -> Option<(String, String)> {
    let report = run_storm(seed, &Options { history: true, ..options(name) });
    let broken = report.violation.clone()?;
    let mut properties = vec![broken.property.as_str()];
    if histories::is_judge(&broken.property) {
        let others = histories::rejecting(&report.history).into_iter();
        properties.extend(others.filter(|other| *other != broken.property));
    }
    Some((properties.join(", "), broken.story.clone()))
}

/// The storm of a failing seed, cut down to what matters, line by line; nothing if it does not fail.
pub fn timeline(name: &str, seed: u64) -> Option<String> {
    let report = run_storm(seed, &options(name));
    let violation = report.violation.clone()?;
    let shrunk = shrink(&report, &options(name));
    let plan = shrunk.report.plan.split("; faults").next().unwrap_or_default();
    let mut text = format!("seed {seed}, {plan}\n");
    for line in readable(&shrunk.report.timeline) {
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

/// Leaves out what other lines say: "follows nobody" before the member follows a leader, and the operation in a
/// violation.
fn readable(lines: &[Line]) -> Vec<Line> {
    let is_passing = |at: usize, line: &Line| {
        let next = lines[at + 1..].iter().find(|next| next.kind == "role" && next.member == line.member);
        line.what.starts_with("follows nobody") && next.is_some_and(|next| next.what.starts_with("follows n"))
    };
    let kept = lines.iter().enumerate().filter(|(at, line)| !is_passing(*at, line));
    kept.map(|(_, line)| match (line.kind, line.what.split_once(" ({\"op\"")) {
        ("violation", Some((before, json))) => {
            let behind = json.find("}) ").map_or("", |end| &json[end + 2..]);
            Line { what: format!("{before}{behind}"), ..line.clone() }
        }
        _ => line.clone(),
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeline_says_nothing_twice() {
        let line = |member, kind, what: &str| Line { at: 0, member, kind, what: what.to_string() };
        let lines = [
            line(Some(1), "role", "follows nobody in term 2"),
            line(Some(2), "role", "follows nobody in term 2"),
            line(Some(1), "role", "follows n3 in term 2"),
            line(Some(2), "role", "campaigns in term 3"),
            line(None, "violation", "back: operation 7 ({\"op\":\"put\"}) shows 5; 6 was shown"),
        ];
        let said: Vec<_> = readable(&lines).into_iter().map(|line| line.what).collect();
        let expected = [
            "follows nobody in term 2",
            "follows n3 in term 2",
            "campaigns in term 3",
            "back: operation 7 shows 5; 6 was shown",
        ];
        assert_eq!(said, expected);
    }
}
