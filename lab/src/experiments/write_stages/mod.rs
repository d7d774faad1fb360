//! Write stages: the eleven times of a write, and the resource that limits each.
//!
//! Knows nothing of: how a point is run.

use crate::experiment::{ClusterPlan, Experiment, Load, Members, Point, Size};
use crate::figures::{Dot, Figure, Kind, Scale, Series};
use crate::judge::{Claim, Findings, Table, at_least, number, shown, table};
use crate::measured::{At, Measure, Measured};
use crate::published::Published;
use crate::statistics::{Interval, interval, ratio};
use crate::times::eleven;
use kattu_petri::{Setting, Stage, predict, profiles};
use std::time::Duration;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "write-stages",
    title: "Where does the time of a write go, and which resource limits each part?",
    question: include_str!("question.md"),
    published: include_str!("published.toml"),
    is_hidden: false,
    points,
    judge,
};

const CLIENTS: u32 = 64;
/// Clients that share a connection.
const TOGETHER: u32 = 16;
/// A time that grows less than this, with less of a resource, is not limited by it.
const GROWS: f64 = 1.2;
/// A time below this share of the latency limits nothing.
const SHARE: f64 = 0.01;

#[derive(Clone, Copy)]
struct Way {
    name: &'static str,
    flags: &'static [&'static str],
    protocol: &'static [&'static str],
    batching: &'static str,
}

const ONE: Way = Way { name: "one stream", flags: &[], protocol: &[], batching: "on" };
const ONE_EACH: Way = Way {
    name: "one stream, each entry by itself",
    flags: &["--unsafe-no-fsync"],
    protocol: &[],
    batching: "off",
};
const ORDERED: Way = Way {
    name: "many, ordered",
    flags: &["--unsafe-no-fsync", "--links-per-peer=16", "--dispatch=ordered"],
    protocol: &[],
    batching: "off",
};
const WINDOW: Way = Way {
    name: "many, window",
    flags: &["--unsafe-no-fsync", "--links-per-peer=16", "--dispatch=unordered"],
    protocol: &["nb-raft"],
    batching: "off",
};
const WAYS: [Way; 4] = [ONE, ONE_EACH, ORDERED, WINDOW];

/// What is changed, what it is compared with, and the resource of which there is less.
const CHANGES: [(&str, &str, &str); 7] = [
    ("one processor", "as it is", "processors"),
    ("syncs 2 ms longer", "as it is", "disk"),
    ("links 1 ms longer", "through the proxy", "network: delay"),
    ("20 MB/s out of each member", "through the proxy", "network: bandwidth"),
    ("256 clients", "as it is", "load: clients"),
    ("32 KiB", "as it is", "load: bytes"),
    ("4 links", "as it is", "senders"),
];

impl Way {
    fn point(self, change: &str) -> Point {
        let mut cluster = ClusterPlan::of(3);
        for flag in self.flags {
            let flag = if *flag == "--links-per-peer=16" && change == "4 links" {
                "--links-per-peer=4"
            } else {
                flag
            };
            cluster = cluster.flag(flag);
        }
        if change.contains("links 1 ms") || change.contains("MB/s") || change.contains("proxy") {
            cluster = cluster.proxied();
        }
        let clients = if change == "256 clients" { 4 * CLIENTS } else { CLIENTS };
        let (total, bytes) = if change == "32 KiB" { (1_500, 32 << 10) } else { (6_000, 4 << 10) };
        let load = Load::puts_in_sessions(total, clients, TOGETHER).of_bytes(bytes);
        let mut point = Point::of("write-stages", cluster, load).at("way", self.name).at("change", change);
        point = point.by(self.protocol).tuned(format!("batching={}", self.batching)).takes(2_500);
        match change {
            "one processor" => point.processors = Some(1),
            "syncs 2 ms longer" => point = point.tuned("sync-delay=2ms"),
            "links 1 ms longer" => point = point.far(Duration::from_millis(1)),
            "20 MB/s out of each member" => point.links.egress = vec![(Members::All, 20_000_000)],
            _ => {}
        }
        point
    }
}

fn points(size: Size) -> Vec<Point> {
    let mut points: Vec<Point> = WAYS.map(|way| way.point("as it is")).into();
    let of_one = ["one processor", "syncs 2 ms longer", "256 clients", "32 KiB"];
    points.extend(of_one.map(|change| ONE.point(change)));
    let of_window = ["256 clients", "32 KiB", "through the proxy", "links 1 ms longer"];
    let few = ["one processor", "4 links"];
    points.extend(few.map(|change| WINDOW.point(change)));
    if size == Size::Full {
        let links = ["through the proxy", "links 1 ms longer", "20 MB/s out of each member"];
        points.extend(links.map(|change| ONE.point(change)));
        points.extend(of_window.map(|change| WINDOW.point(change)));
    }
    points
}

/// One of the eleven times over all runs of a point.
fn time(at: &At<'_>, stage: Stage) -> Vec<f64> {
    at.runs.iter().filter_map(eleven).map(|times| times[stage as usize]).collect()
}

fn median(at: &At<'_>, stage: Stage) -> Option<Interval> {
    interval(&time(at, stage), at.seed())
}

/// Its part of the latency.
fn share(at: &At<'_>, stage: Stage) -> Option<Interval> {
    let part = |times: [f64; 11]| times[stage as usize] / times.iter().sum::<f64>();
    interval(&at.runs.iter().filter_map(eleven).map(part).collect::<Vec<f64>>(), at.seed())
}

fn judge(measured: &Measured, _: &Published) -> Findings {
    let mut findings = Findings::default();
    let at = |way: Way, change: &str| measured.at(&[("way", way.name), ("change", change)]);
    for way in [ORDERED, WINDOW] {
        findings.claims.extend(at(way, "as it is").and_then(|it| wait_is_second(&it)));
    }
    for way in WAYS {
        findings.claims.extend(at(way, "as it is").and_then(|it| append_is_small(&it)));
    }
    findings.claims.extend(at(ONE, "as it is").and_then(|it| no_wait(&it)));
    let bases: Vec<At<'_>> = WAYS.iter().filter_map(|way| at(*way, "as it is")).collect();
    findings.tables.push(shares(&bases));
    for way in [ONE, WINDOW] {
        findings.tables.push(limits(way, &at));
    }
    findings.figures.push(figure(&bases));
    findings.paragraphs.extend(ranks(&bases));
    let all = measured.all(&[]);
    let measures = [Measure::OpsPerS, Measure::P50, Measure::P99, Measure::MembersCpu, Measure::Early];
    findings.tables.push(table("All points", &all, &["way", "change"], &measures));
    findings
}

/// The times of a point, the longest first.
fn ranked(at: &At<'_>) -> Vec<(Stage, Interval)> {
    let mut all: Vec<(Stage, Interval)> =
        Stage::ALL.into_iter().filter_map(|stage| Some((stage, share(at, stage)?))).collect();
    all.sort_by(|one, other| other.1.median.total_cmp(&one.1.median));
    all
}

fn ranks(bases: &[At<'_>]) -> Vec<String> {
    let longest = |at: &At<'_>| {
        let names = ranked(at).into_iter().take(3);
        let names = names.map(|(stage, part)| format!("{} {:.0} %", stage.name(), part.median * 100.0));
        format!("{}: {}", at.coordinate("way"), names.collect::<Vec<_>>().join(", "))
    };
    let all: Vec<String> = bases.iter().map(longest).collect();
    if all.is_empty() {
        Vec::new()
    } else {
        vec![format!("The longest times of each way are: {}.", all.join("; "))]
    }
}

/// The published order: only one time is longer than the wait.
fn wait_is_second(at: &At<'_>) -> Option<Claim> {
    let ranked = ranked(at);
    let place = ranked.iter().position(|(stage, _)| *stage == Stage::Wait)? + 1;
    let wait = time(at, Stage::Wait);
    let (_, third) = ranked
        .iter()
        .filter(|(stage, _)| *stage != Stage::Wait)
        .nth(1)
        .map(|(stage, _)| (*stage, time(at, *stage)))?;
    let over = ratio(&wait, &third, at.seed())?;
    Some(Claim {
        says: format!("Waiting for predecessors is the longest time but one ({})", at.coordinate("way")),
        source: "section II-D, figure 4".into(),
        rule: "held if the interval of its ratio to the time that is second without it lies at 1 or above, refuted if it lies below".into(),
        because: format!(
            "it is number {place} with {} of the latency, and {} times that time",
            shown(share(at, Stage::Wait)?.map(|part| part)),
            shown(over)
        ),
        verdict: at_least(over, 1.0),
    })
}

fn append_is_small(at: &At<'_>) -> Option<Claim> {
    let part = share(at, Stage::Append)?;
    let says = format!("The append at a follower is less than 1 % of the time ({})", at.coordinate("way"));
    let because = format!("its share is {}", shown(part));
    Some(Claim::at_most(says, "section II-D, figure 4: 0.1 %", ("its share", part), 0.01, because))
}

fn no_wait(at: &At<'_>) -> Option<Claim> {
    let part = share(at, Stage::Wait)?;
    let says = "On one ordered stream the wait is at most 5 % of the time";
    let because =
        format!("its share is {}; it includes what an append waits for the node's thread", shown(part));
    Some(Claim::at_most(says, "ours: replication-protocols, P5", ("its share", part), 0.05, because))
}

/// The model's shares with the published parameters, by whether streams are ordered and there is a window.
fn model(is_ordered: bool, has_window: bool) -> Option<[f64; 11]> {
    let clients = CLIENTS as usize;
    let base = if has_window { Setting::nb_raft(clients) } else { Setting::raft(clients) };
    let setting = Setting { ordered_stream: is_ordered, weak: kattu_petri::Weak::Off, ..base };
    let report = predict(&profiles::iotdb(), &setting).ok()?.report;
    Some(Stage::ALL.map(|stage| report.time(stage).share))
}

fn shares(bases: &[At<'_>]) -> Table {
    let models = [
        ("model: one stream", model(true, false)),
        ("model: many, ordered", model(false, false)),
        ("model: many, window", model(false, true)),
    ];
    let mut head: Vec<String> = ["step", "time", "published: limited by"].map(str::to_string).into();
    head.extend(bases.iter().map(|at| format!("{}, %", at.coordinate("way"))));
    head.extend(models.iter().map(|(name, _)| format!("{name}, %")));
    let row = |stage: Stage| {
        let mut row = vec![stage.step().to_string(), stage.name().to_string(), stage.limit().to_string()];
        let percent = |part: f64| number(part * 100.0);
        row.extend(bases.iter().map(|at| {
            share(at, stage).map_or_else(|| "–".into(), |part| shown(part.map(|part| part * 100.0)))
        }));
        row.extend(
            models
                .iter()
                .map(|(_, shares)| shares.map_or_else(|| "–".into(), |it| percent(it[stage as usize]))),
        );
        row
    };
    Table {
        title: "Table I: the eleven times as parts of the latency, ours and the model's".into(),
        head,
        rows: Stage::ALL.into_iter().map(row).collect(),
    }
}

/// How many times as long each time is with less of each resource, and the resource that limits it.
fn limits<'a>(way: Way, at: &dyn Fn(Way, &str) -> Option<At<'a>>) -> Table {
    let changes: Vec<_> = CHANGES
        .into_iter()
        .filter_map(|(change, base, resource)| Some((resource, at(way, change)?, at(way, base)?)))
        .collect();
    let mut head: Vec<String> = vec!["time".into(), "as it is, µs".into()];
    head.extend(changes.iter().map(|(_, at, _)| format!("{}: times as long", at.coordinate("change"))));
    head.push("grows most with less of".into());
    let base = at(way, "as it is");
    let row = |stage: Stage| {
        let own = base.as_ref().and_then(|at| median(at, stage));
        let grown: Vec<Option<Interval>> = changes
            .iter()
            .map(|(_, less, base)| ratio(&time(less, stage), &time(base, stage), less.seed()))
            .collect();
        let is_long = base.as_ref().and_then(|at| share(at, stage)).is_some_and(|part| SHARE <= part.median);
        let most = grown
            .iter()
            .zip(&changes)
            .filter_map(|(ratio, (resource, ..))| {
                Some((ratio.filter(|ratio| GROWS <= ratio.low)?.median, *resource))
            })
            .max_by(|one, other| one.0.total_cmp(&other.0));
        let most = match most {
            Some((_, resource)) => resource,
            None if is_long => "none of these",
            None => "none: it is short",
        };
        let mut row = vec![stage.name().to_string(), own.map_or_else(|| "–".into(), shown)];
        row.extend(grown.iter().map(|ratio| ratio.map_or_else(|| "–".into(), shown)));
        row.push(most.into());
        row
    };
    Table {
        title: format!("What each time hangs on: {}", way.name),
        head,
        rows: Stage::ALL.into_iter().filter(|stage| *stage != Stage::Generate).map(row).collect(),
    }
}

fn figure(bases: &[At<'_>]) -> Figure {
    let series = |at: &At<'_>| {
        let dot = |(place, stage): (usize, Stage)| {
            Some(Dot { x: place as f64, label: stage.name().into(), y: share(at, stage)? })
        };
        let stages = Stage::ALL.into_iter().filter(|stage| *stage != Stage::Generate);
        Series::of(at.coordinate("way"), stages.enumerate().filter_map(dot).collect())
    };
    Figure {
        id: "shares".into(),
        title: "Figure 4: where the time of a write goes".into(),
        caption: "Parts of the mean latency of 64 clients.".into(),
        x: String::new(),
        y: "share of the latency".into(),
        x_scale: Scale::Linear,
        y_scale: Scale::Linear,
        kind: Kind::Bars,
        series: bases.iter().map(series).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_is_measured_beside_what_it_is_compared_with() {
        let points = points(Size::Full);
        let has = |way: Way, change: &str| {
            points.iter().any(|point| {
                point.at.contains(&("way", way.name.into())) && point.at.contains(&("change", change.into()))
            })
        };
        for way in [ONE, WINDOW] {
            for (change, base, _) in CHANGES.into_iter().filter(|(change, ..)| has(way, change)) {
                assert!(has(way, base), "{}: {change} has nothing beside it", way.name);
            }
        }
        assert!(CHANGES.iter().all(|(change, ..)| has(ONE, change) || has(WINDOW, change)));
    }

    #[test]
    fn the_model_waits_where_many_send_in_order_only() {
        let wait =
            |is_ordered, has_window| model(is_ordered, has_window).expect("a run")[Stage::Wait as usize];
        assert_eq!(wait(true, false), 0.0);
        assert!(0.1 < wait(false, false));
    }
}
