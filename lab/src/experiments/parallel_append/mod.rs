//! Parallel append: what it saves that entries leave before the leader's own disk has them.
//!
//! Knows nothing of: how a point is run.

use crate::experiment::{ClusterPlan, Experiment, Load, Members, Point, Size};
use crate::judge::{Claim, Findings, bars, cell, lines, number, table};
use crate::measured::{At, Measure, Measured};
use crate::published::Published;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "parallel-append",
    title: "What does a leader gain that sends before its own disk has the entries?",
    question: include_str!("question.md"),
    published: include_str!("published.toml"),
    is_hidden: false,
    points,
    judge,
};

/// From this ratio of latencies on, parallel append is worth something.
const GAIN: f64 = 1.3;
/// A leader's slow disk is passed by if a write takes so many times less than without.
const PASSED_BY: f64 = 3.0;

fn points(size: Size) -> Vec<Point> {
    let mut points = Vec::new();
    for (clients, requests) in [(1, 100), (64, 2000)] {
        for &(sync, millis) in size.of(
            &[("this disk", 0), ("+1 ms", 1), ("+5 ms", 5), ("+10 ms", 10)],
            &[("this disk", 0), ("+10 ms", 10)],
        ) {
            for slow in ["all", "leader"] {
                if millis == 0 && slow == "leader" {
                    continue; // no disk is slow
                }
                for log in size.of(&["inline", "thread"], &["inline", "thread"]) {
                    for append in ["on", "off"] {
                        let cluster = ClusterPlan::of(3).flag("--leave-slow-disk=false");
                        let mut point = Point::of("append", cluster, Load::puts(requests, clients))
                            .at("clients", clients)
                            .at("sync", sync)
                            .at("slow", slow)
                            .at("log", *log)
                            .at("append", append)
                            .tuned(format!("log-io={log}"))
                            .tuned(format!("parallel-append={append}"));
                        if 0 < millis {
                            let members = if slow == "all" { Members::All } else { Members::Leader };
                            point = point.tuned_at(members, format!("sync-delay={millis}ms"));
                        }
                        let syncs = if clients == 1 { 100 } else { 60 };
                        points.push(point.takes(700 + syncs * millis * if append == "on" { 1 } else { 2 }));
                    }
                }
            }
        }
    }
    points
}

fn judge(measured: &Measured, _: &Published) -> Findings {
    let mut findings = Findings::default();
    let at = |clients: &str, sync: &str, slow: &str, log: &str, append: &str| {
        measured.at(&[("clients", clients), ("sync", sync), ("slow", slow), ("log", log), ("append", append)])
    };
    let slowest = "+10 ms";
    for log in ["inline", "thread"] {
        let pair = |slow| (at("1", slowest, slow, log, "off"), at("1", slowest, slow, log, "on"));
        let says = format!(
            "Parallel append saves at least a quarter of a write's latency where all disks are slow (log I/O {log}, 1 client)"
        );
        findings.claims.extend(Claim::ratio_at_least(&says, "ours", pair("all"), Measure::P50, GAIN));
        let says =
            format!("It passes by the leader's disk where that alone is slow (log I/O {log}, 1 client)");
        findings.claims.extend(Claim::ratio_at_least(&says, "ours", pair("leader"), Measure::P50, PASSED_BY));
    }
    let here = (at("1", "this disk", "all", "inline", "off"), at("1", "this disk", "all", "inline", "on"));
    let says =
        "On this disk as it is, parallel append saves at least a quarter of a write's latency (1 client)";
    findings.claims.extend(Claim::ratio_at_least(says, "ours", here, Measure::P50, GAIN));

    let told = |what: &str, over: Option<At<'_>>, under: Option<At<'_>>| {
        let ratio = over?.over(&under?, Measure::P50)?;
        let (off, on) = (cell(over, Measure::P50), cell(under, Measure::P50));
        Some(format!("{what}: {off} ms without and {on} ms with it, a factor of {}", number(ratio.median)))
    };
    let parts: Vec<String> = [("inline", "inline"), ("thread", "on a thread")]
        .into_iter()
        .flat_map(|(log, words)| {
            [("all", "all disks"), ("leader", "the leader's disk")].into_iter().filter_map(
                move |(slow, disks)| {
                    let what = format!("{disks} 10 ms slower, log I/O {words}");
                    told(&what, at("1", slowest, slow, log, "off"), at("1", slowest, slow, log, "on"))
                },
            )
        })
        .collect();
    findings.paragraphs.push(format!(
        "The published table on parallelism compares ways to apply entries; parallel append itself was never measured there, so these \
         numbers stand alone. Median latency of one client: {}.",
        parts.join("; ")
    ));
    for (id, measure, clients) in [("latency", Measure::P50, "1"), ("throughput", Measure::OpsPerS, "64")] {
        for slow in ["all", "leader"] {
            // Nobody's disk is slow at "this disk", so it stands in both figures.
            let of = |log: &str, append: &str| {
                let mut all = measured.all(&[
                    ("clients", clients),
                    ("sync", "this disk"),
                    ("log", log),
                    ("append", append),
                ]);
                let slow_ones =
                    measured.all(&[("clients", clients), ("slow", slow), ("log", log), ("append", append)]);
                all.extend(slow_ones.into_iter().filter(|at| at.coordinate("sync") != "this disk"));
                bars(&format!("log {log}, append {append}"), &all, "sync", measure)
            };
            let series =
                vec![of("inline", "off"), of("inline", "on"), of("thread", "off"), of("thread", "on")];
            let disks = if slow == "all" { "all disks" } else { "the leader's disk" };
            let title = format!(
                "{} client{}, syncs longer at {disks}",
                clients,
                if clients == "1" { "" } else { "s" }
            );
            let figure = lines(&format!("{id}-{slow}"), &title, "sync", measure, series).as_bars();
            findings.figures.push(figure);
        }
    }
    let measures = [Measure::P50, Measure::P99, Measure::OpsPerS, Measure::MembersCpu];
    for clients in ["1", "64"] {
        let all = measured.all(&[("clients", clients)]);
        let title = format!("All points of {clients} client(s)");
        findings.tables.push(table(&title, &all, &["sync", "slow", "log", "append"], &measures));
    }
    findings
}
