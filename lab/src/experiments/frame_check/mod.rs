//! A tiny experiment that uses all of the frame: for tests.
//!
//! Knows nothing of: how a point is run.

use crate::experiment::{Blow, ClusterPlan, Experiment, Fault, Load, Members, Point, Size};
use crate::judge::{Claim, Findings, bars, lines, table};
use crate::measured::{Measure, Measured};
use crate::published::Published;
use std::time::Duration;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "frame-check",
    title: "Does the frame work?",
    question: include_str!("question.md"),
    published: "",
    is_hidden: true,
    points,
    judge,
};

fn points(_: Size) -> Vec<Point> {
    let three = |what: &str| {
        Point::of("three", ClusterPlan::of(3).proxied(), Load::puts(300, 8).at(Members::Leader))
            .at("what", what)
            .takes(500)
    };
    let fault = |what| Fault { after: Duration::from_millis(20), of: Members::OneFollower, what };
    // The client asks the leader, which goes on without the follower.
    let faulty = |name: &str, what| Point { faults: vec![fault(what)], ..three(name) };
    let alone = Point::of("alone", ClusterPlan::of(1), Load::native_puts(300, 8)).at("what", "native");
    vec![
        three("calm"),
        three("far").far(Duration::from_millis(2)).tuned_at(Members::Leader, "sync-delay=100us"),
        faulty("pause", Blow::Pause(Duration::from_millis(100))),
        faulty("kill", Blow::Kill),
        alone.takes(500),
    ]
}

fn judge(measured: &Measured, _: &Published) -> Findings {
    let at = |what: &str| measured.at(&[("grid", "three"), ("what", what)]);
    let all = measured.all(&[]);
    let bars = bars("puts", &all, "what", Measure::P50);
    let figure = lines("latency", "Median latency", "point", Measure::P50, vec![bars]).as_bars();
    let far = "A put over a far link takes longer";
    Findings {
        drawings: Vec::new(),
        claims: Claim::ratio_at_least(far, "ours", (at("far"), at("calm")), Measure::P50, 1.0)
            .into_iter()
            .collect(),
        paragraphs: vec![format!("{} points were measured.", all.len())],
        figures: vec![figure],
        tables: vec![table("All points", &all, &["what"], &[Measure::P50, Measure::MembersCpu])],
    }
}
