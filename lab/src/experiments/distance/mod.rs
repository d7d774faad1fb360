//! Distance: five members in one city and in five.
//!
//! Knows nothing of: how a point is run.

use crate::experiment::{ClusterPlan, Distances, Experiment, Load, Members, Point, Size};
use crate::judge::{Claim, Findings, bars, lines, table};
use crate::measured::{Measure, Measured};
use crate::published::Published;
use std::time::Duration;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "distance",
    title: "What do a window and early answers gain over distance?",
    question: include_str!("question.md"),
    published: "",
    is_hidden: false,
    points,
    judge,
};

const MEMBERS: usize = 5;
const CLIENTS: u32 = 64;
/// Clients that share a connection.
const TOGETHER: u32 = 16;
/// From this ratio on, a gain is worth naming.
const GAIN: f64 = 1.1;

/// Beijing, Guangzhou, Shanghai, Hangzhou, Chengdu, in milliseconds one way. Great circles of 1,890, 1,070, 1,120, 1,520, 1,210, 1,050,
/// 1,240, 160, 1,660 and 1,540 km; 1.5 times that at 200 km a millisecond, and 1 ms.
const CITIES: Distances =
    [[0, 15, 9, 9, 12], [15, 0, 10, 9, 10], [9, 10, 0, 2, 13], [9, 9, 2, 0, 13], [12, 10, 13, 13, 0]];

struct Way {
    name: &'static str,
    flags: &'static [&'static str],
    protocol: &'static [&'static str],
    batching: &'static str,
    is_weak: bool,
}

const MANY_ORDERED: &[&str] = &["--unsafe-no-fsync", "--links-per-peer=4", "--dispatch=ordered"];
const MANY: &[&str] = &["--unsafe-no-fsync", "--links-per-peer=4", "--dispatch=unordered"];

const ONE: Way = Way { name: "one stream", flags: &[], protocol: &[], batching: "on", is_weak: false };
const RECEIPT: Way =
    Way { name: "one stream, receipt", protocol: &["nb-raft", "--weak=receipt"], is_weak: true, ..ONE };
const WAITS: Way =
    Way { name: "waits at the gap", flags: MANY_ORDERED, protocol: &[], batching: "off", is_weak: false };
const WINDOW: Way = Way { name: "window", flags: MANY, protocol: &["nb-raft"], ..WAITS };
const EARLY: Way =
    Way { name: "window, early", flags: MANY, protocol: &["nb-raft", "--weak=gap"], is_weak: true, ..WAITS };
const WAYS: [&Way; 5] = [&ONE, &RECEIPT, &WAITS, &WINDOW, &EARLY];
const PLACES: [&str; 2] = ["one city", "five cities"];

impl Way {
    fn point(&self, place: &str) -> Point {
        let mut cluster = ClusterPlan::of(MEMBERS).proxied();
        for flag in self.flags {
            cluster = cluster.flag(flag);
        }
        let total = if place == "one city" { 6_000 } else { 3_000 };
        let load = Load::puts_in_sessions(total, CLIENTS, TOGETHER).of_bytes(1 << 10).at(Members::Leader);
        let load = if self.is_weak { load.with("--weak") } else { load };
        let point = Point::of("distance", cluster, load).at("place", place).at("way", self.name);
        let mut point = point.by(self.protocol).tuned(format!("batching={}", self.batching)).takes(3_500);
        point.links.all.delay = match place {
            "one city" => (Duration::from_micros(500), Duration::from_micros(550)),
            _ => (Duration::ZERO, Duration::from_millis(1)),
        };
        point.links.between = (place != "one city").then_some(&CITIES);
        point.leader = Some(0);
        point
    }
}

fn points(size: Size) -> Vec<Point> {
    size.of(&PLACES, &PLACES[1..]).iter().flat_map(|place| WAYS.map(|way| way.point(place))).collect()
}

fn judge(measured: &Measured, _: &Published) -> Findings {
    let mut findings = Findings::default();
    for place in PLACES {
        let at = |way: &Way| measured.at(&[("place", place), ("way", way.name)]);
        let mut claim = |says: &str, source: &str, over: &Way, under: &Way, measure: Measure| {
            let says = format!("{place}: {says}");
            let claim = Claim::ratio_at_least(&says, source, (at(over), at(under)), measure, GAIN);
            findings.claims.extend(claim);
        };
        claim(
            "NB-Raft lets clients go on 1.1 times as often as Raft with the same dispatch",
            "figure 20",
            &EARLY,
            &WAITS,
            Measure::Accepted,
        );
        claim(
            "it also lets them go on 1.1 times as often as one ordered stream that batches, our default",
            "ours",
            &EARLY,
            &ONE,
            Measure::Accepted,
        );
        claim(
            "on one stream, early answers on receipt let clients go on 1.1 times as often",
            "ours",
            &RECEIPT,
            &ONE,
            Measure::Accepted,
        );
        claim(
            "the window alone makes puts done 1.1 times as often as waiting at the gap",
            "ours",
            &WINDOW,
            &WAITS,
            Measure::OpsPerS,
        );
    }
    for (id, measure) in [("go-on", Measure::Accepted), ("time", Measure::AcceptedP50)] {
        let series = PLACES.map(|place| bars(place, &measured.all(&[("place", place)]), "way", measure));
        let figure = lines(id, "Five members, 64 clients, 1 KiB", "", measure, series.into()).as_bars();
        findings.figures.push(figure);
    }
    let measures = [
        Measure::Accepted,
        Measure::OpsPerS,
        Measure::AcceptedP50,
        Measure::AcceptedP99,
        Measure::P50,
        Measure::P99,
        Measure::Early,
    ];
    findings.tables.push(table("All points", &measured.all(&[]), &["place", "way"], &measures));
    findings
}
