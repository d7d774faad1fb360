//! Parallel append: what it saves that entries leave before the leader's own disk has them.
//!
//! Knows nothing of: how a point is run.

use crate::experiment::{ClusterPlan, Experiment, Load, Members, Point, Size};
use crate::judge::{Claim, Findings, Table, bars, cell, lines, number, shown, table};
use crate::measured::{Measure, Measured};
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
    let syncs = size.of(&[0, 1, 5, 10], &[0, 10]);
    let mut points = Vec::new();
    for (clients, requests, asked) in [(1, 100, "leader"), (1, 100, "follower"), (64, 2000, "all")] {
        for &millis in syncs {
            // Without a delay no disk is slow.
            let slow: &[&str] = if millis == 0 { &["none"] } else { &["all", "leader"] };
            for slow in slow {
                for (log, append) in
                    [("inline", "off"), ("inline", "on"), ("thread", "off"), ("thread", "on")]
                {
                    let load = Load::puts(requests, clients).at(match asked {
                        "leader" => Members::Leader,
                        "follower" => Members::OneFollower,
                        _ => Members::All,
                    });
                    let mut point =
                        Point::of("append", ClusterPlan::of(3).flag("--leave-slow-disk=false"), load)
                            .at("clients", clients)
                            .at("asked", asked)
                            .at(
                                "sync",
                                if millis == 0 { "this disk".to_string() } else { format!("+{millis} ms") },
                            )
                            .at("slow", slow)
                            .at("log", log)
                            .at("append", append)
                            .tuned(format!("log-io={log}"))
                            .tuned(format!("parallel-append={append}"));
                    if 0 < millis {
                        let members = if *slow == "all" { Members::All } else { Members::Leader };
                        point = point.tuned_at(members, format!("sync-delay={millis}ms"));
                    }
                    let syncs = if clients == 1 { 100 } else { 40 };
                    points.push(point.takes(700 + syncs * millis * if append == "on" { 1 } else { 2 }));
                }
            }
        }
    }
    points
}

fn judge(measured: &Measured, _: &Published) -> Findings {
    let mut findings = Findings::default();
    let at = |asked: &str, sync: &str, slow: &str, log: &str, append: &str| {
        measured.at(&[("asked", asked), ("sync", sync), ("slow", slow), ("log", log), ("append", append)])
    };
    let slowest = "+10 ms";
    for (log, asked) in
        [("inline", "leader"), ("thread", "leader"), ("inline", "follower"), ("thread", "follower")]
    {
        let pair = |slow| (at(asked, slowest, slow, log, "off"), at(asked, slowest, slow, log, "on"));
        let says = format!(
            "Parallel append saves at least a quarter of a write's latency where all disks are slow (log I/O {log}, the {asked} is asked)"
        );
        findings.claims.extend(Claim::ratio_at_least(&says, "ours", pair("all"), Measure::P50, GAIN));
        let says = format!(
            "It passes by the leader's disk where that alone is slow (log I/O {log}, the {asked} is asked)"
        );
        findings.claims.extend(Claim::ratio_at_least(&says, "ours", pair("leader"), Measure::P50, PASSED_BY));
    }
    let here = |append| at("leader", "this disk", "none", "inline", append);
    let says = "On this disk as it is, parallel append saves at least a quarter of a write's latency (the leader is asked)";
    findings.claims.extend(Claim::ratio_at_least(
        says,
        "ours",
        (here("off"), here("on")),
        Measure::P50,
        GAIN,
    ));

    let mut rows = Vec::new();
    for (slow, disks) in [("all", "all disks"), ("leader", "the leader's disk")] {
        let mut told: Vec<(f64, String)> = Vec::new();
        for log in ["inline", "thread"] {
            for asked in ["leader", "follower"] {
                let (off, on) = (at(asked, slowest, slow, log, "off"), at(asked, slowest, slow, log, "on"));
                let Some(ratio) = off.zip(on).and_then(|(off, on)| off.over(&on, Measure::P50)) else {
                    continue;
                };
                let times = [cell(off, Measure::P50), cell(on, Measure::P50), shown(ratio)];
                rows.push([disks, log, asked].map(str::to_string).into_iter().chain(times).collect());
                let factor = number(ratio.median);
                told.push((ratio.median, format!("{factor} (log I/O {log}, the {asked} is asked)")));
            }
        }
        told.sort_by(|left, right| left.0.total_cmp(&right.0));
        if let [(_, least), .., (_, most)] = told.as_slice() {
            findings.paragraphs.push(format!(
                "Where syncs of {disks} take 10 ms longer, parallel append shortens a write of one client by a factor of at least \
                 {least} and at most {most}."
            ));
        }
    }
    findings.paragraphs.push(
        "The published table on parallelism compares ways to apply entries; parallel append itself was never measured there, so \
         these numbers stand alone."
            .into(),
    );
    let head = ["slow", "log I/O", "asked", "without, ms", "with it, ms", "factor"];
    findings.tables.push(Table {
        title: "Median latency of one client where syncs take 10 ms longer".into(),
        head: head.map(str::to_string).to_vec(),
        rows,
    });
    for (id, measure, asked, title) in [
        ("latency-leader", Measure::P50, "leader", "One client that asks the leader"),
        ("latency-follower", Measure::P50, "follower", "One client that asks a follower"),
        ("throughput", Measure::OpsPerS, "all", "64 clients"),
    ] {
        for slow in ["all", "leader"] {
            // At "this disk" no disk is slow: that point stands in both figures.
            let of = |log: &str, append: &str| {
                let wanted = |slow| {
                    measured.all(&[("asked", asked), ("slow", slow), ("log", log), ("append", append)])
                };
                let all = [wanted("none"), wanted(slow)].concat();
                bars(&format!("log {log}, append {append}"), &all, "sync", measure)
            };
            let series =
                vec![of("inline", "off"), of("inline", "on"), of("thread", "off"), of("thread", "on")];
            let disks = if slow == "all" { "all disks" } else { "the leader's disk" };
            let title = format!("{title}; syncs take longer at {disks}");
            findings.figures.push(lines(&format!("{id}-{slow}"), &title, "sync", measure, series).as_bars());
        }
    }
    let measures = [Measure::P50, Measure::P99, Measure::OpsPerS, Measure::MembersCpu];
    for (clients, title) in [("1", "All points of one client"), ("64", "All points of 64 clients")] {
        let all = measured.all(&[("clients", clients)]);
        findings.tables.push(table(title, &all, &["asked", "sync", "slow", "log", "append"], &measures));
    }
    findings
}
