//! Non-blocking: what a window and early answers gain, and where the gain vanishes.
//!
//! Knows nothing of: how a point is run.

use crate::experiment::{ClusterPlan, Experiment, Load, Point, Size};
use crate::figures::{Dot, Figure, Series};
use crate::judge::{Claim, Findings, Table, line, lines, number, shown, table};
use crate::measured::{At, Measure, Measured};
use crate::published::Published;
use crate::statistics::Interval;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "non-blocking",
    title: "What do a window and early answers gain, and where does the gain vanish?",
    question: include_str!("question.md"),
    published: include_str!("published.toml"),
    is_hidden: false,
    points,
    judge,
};

/// The published gain at 1,024 clients.
const PUBLISHED_GAIN: f64 = 1.3;
/// From this ratio on, a gain is worth naming.
const GAIN: f64 = 1.1;
/// Clients that share a connection.
const TOGETHER: u32 = 16;
/// Seconds of an open loop.
const OPEN_SECONDS: u64 = 2;
/// Links to each peer, where there are several.
const LINKS: u32 = 16;

/// How entries reach followers, and when a client goes on.
struct Way {
    name: &'static str,
    /// Whether there are several links, and whether their order is kept.
    links: Option<bool>,
    protocol: &'static [&'static str],
    is_weak: bool,
}

const WINDOW: &[&str] = &["nb-raft"];
const WEAK_GAP: &[&str] = &["nb-raft", "--weak=gap"];
const WEAK_RECEIPT: &[&str] = &["nb-raft", "--weak=receipt"];

const ONE_LINK: Way = Way { name: "one link", links: None, protocol: &[], is_weak: false };
const WAITS: Way = Way { name: "waits at the gap", links: Some(true), protocol: &[], is_weak: false };
const REFUSES: Way = Way { name: "refuses at the gap", links: Some(false), protocol: &[], is_weak: false };
const KEEPS: Way = Way { name: "window", links: Some(false), protocol: WINDOW, is_weak: false };
const KEEPS_GAP: Way =
    Way { name: "window, weak gap", links: Some(false), protocol: WEAK_GAP, is_weak: true };
const KEEPS_RECEIPT: Way =
    Way { name: "window, weak receipt", links: Some(false), protocol: WEAK_RECEIPT, is_weak: true };
const ONE_LINK_RECEIPT: Way =
    Way { name: "one link, weak receipt", links: None, protocol: WEAK_RECEIPT, is_weak: true };

const WAYS: [&Way; 7] = [&ONE_LINK, &WAITS, &REFUSES, &KEEPS, &KEEPS_GAP, &KEEPS_RECEIPT, &ONE_LINK_RECEIPT];

/// Those of one figure: what is refused at a gap is in the table.
const DRAWN: [&Way; 6] = [&ONE_LINK, &WAITS, &KEEPS, &KEEPS_GAP, &KEEPS_RECEIPT, &ONE_LINK_RECEIPT];

impl Way {
    fn cluster(&self, members: usize, links: u32) -> ClusterPlan {
        let plan = ClusterPlan::of(members);
        match self.links.filter(|_| 1 < links) {
            None => plan, // one connection keeps the order by itself
            Some(is_ordered) => plan.flag(&format!("--links-per-peer={links}")).flag(if is_ordered {
                "--dispatch=ordered"
            } else {
                "--dispatch=unordered"
            }),
        }
    }

    /// Whether a claim is about it with batching on or off.
    fn is_claimed(&self, batching: &str) -> bool {
        match self.name {
            name if name == ONE_LINK.name || name == ONE_LINK_RECEIPT.name => batching == "on",
            name => batching == "off" && name != REFUSES.name && name != KEEPS_RECEIPT.name,
        }
    }

    /// Puts that begin at this rate, however fast answers come.
    fn open_loop(&self, rate: u64) -> Point {
        let load = Load::puts_in_sessions(rate * OPEN_SECONDS, 256, TOGETHER).of_bytes(4 << 10);
        let load = load.with(format!("--rate={rate}"));
        let point = self.point("rate", self.cluster(3, LINKS), 256, 4, "off");
        let load = if self.is_weak { load.with("--weak") } else { load };
        Point { load: load.into(), ..point }
    }

    /// Puts of so many bytes in all, by so many clients.
    fn point(&self, grid: &str, cluster: ClusterPlan, clients: u32, kib: u32, batching: &str) -> Point {
        let most = 6_000 + 10 * u64::from(clients);
        let least = if kib < 128 { 4 } else { 2 } * u64::from(clients);
        let total = (most / u64::from(kib).div_ceil(4)).max(least).max(500);
        let total = if clients == 1 { 1_000.min(total) } else { total };
        let load = Load::puts_in_sessions(total, clients, TOGETHER).of_bytes(kib * 1024);
        let load = if self.is_weak { load.with("--weak") } else { load };
        // The published leader sends each entry by itself, and its disks sync many together: a sync for each entry would hide
        // everything else.
        let cluster = if batching == "off" { cluster.flag("--unsafe-no-fsync") } else { cluster };
        Point::of(grid, cluster, load)
            .at("way", self.name)
            .at("batching", batching)
            .by(self.protocol)
            .tuned(format!("batching={batching}"))
            .takes(2000)
    }
}

fn points(size: Size) -> Vec<Point> {
    let mut points = Vec::new();
    for &clients in size.of(&[1, 4, 16, 64, 256, 512, 1024], &[16, 256]) {
        for way in WAYS {
            let is_wanted = |it: &&str| match size {
                Size::Full => *it == "off" || way.name != REFUSES.name,
                Size::Quick => way.is_claimed(it),
            };
            for batching in ["on", "off"].into_iter().filter(is_wanted) {
                let cluster = way.cluster(3, LINKS);
                points.push(way.point("clients", cluster, clients, 4, batching).at("clients", clients));
            }
        }
    }
    for &clients in size.of(&[1, 16, 64, 256, 1024], &[]) {
        for way in [&ONE_LINK, &WAITS, &KEEPS, &KEEPS_GAP] {
            let cluster = way.cluster(3, LINKS);
            points
                .push(way.point("128 KiB", cluster, clients, 128, "off").at("clients", clients).takes(3000));
        }
    }
    for &processors in size.of(&[1, 2], &[1, 2]) {
        for way in [&ONE_LINK, &WAITS, &KEEPS, &KEEPS_GAP] {
            let point = way.point("processors", way.cluster(3, LINKS), 64, 4, "off");
            points.push(Point { processors: Some(processors), ..point.at("processors", processors) });
        }
    }
    for &rate in size.of(&[500, 1_000, 2_000, 4_000, 8_000], &[1_000]) {
        for way in [&ONE_LINK, &WAITS, &KEEPS, &KEEPS_GAP] {
            points.push(way.open_loop(rate).at("rate", rate));
        }
    }
    for &members in size.of(&[2, 3, 4, 5, 7, 9], &[2]) {
        for way in [&ONE_LINK, &WAITS, &KEEPS_GAP] {
            let cluster = way.cluster(members, LINKS);
            points.push(way.point("replicas", cluster, 64, 4, "off").at("replicas", members));
        }
    }
    for &kib in size.of(&[1, 4, 16, 64, 128], &[1, 128]) {
        for way in [&WAITS, &KEEPS, &KEEPS_GAP] {
            let cluster = way.cluster(3, LINKS);
            points.push(way.point("payload", cluster, 64, kib, "off").at("KiB", kib));
        }
    }
    for &links in size.of(&[1, 4, 16, 64], &[64]) {
        for way in [&WAITS, &KEEPS, &KEEPS_GAP] {
            let cluster = way.cluster(3, links);
            points.push(way.point("links", cluster, 256, 4, "off").at("links", links));
        }
    }
    for &millis in size.of(&[0, 1, 2, 5, 10], &[0, 10]) {
        for way in [&ONE_LINK, &ONE_LINK_RECEIPT, &KEEPS_RECEIPT] {
            for &log in size.of(&["inline", "thread"], &["thread"]) {
                let cluster = way.cluster(3, LINKS);
                let point = way.point("syncs", cluster, 64, 4, "on").at("ms", millis).at("log", log);
                let point = point.tuned(format!("log-io={log}"));
                points.push(point.tuned(format!("sync-delay={millis}ms")).takes(2000 + 50 * millis));
            }
        }
    }
    points
}

fn judge(measured: &Measured, _: &Published) -> Findings {
    let mut findings = Findings::default();
    let at = |grid: &str, way: &Way, batching: &str, more: (&str, &str)| {
        measured.at(&[("grid", grid), ("way", way.name), ("batching", batching), more])
    };
    let slow = |way: &Way, log: &str| {
        measured.at(&[("grid", "syncs"), ("way", way.name), ("ms", "10"), ("log", log)])
    };
    claims(&mut findings, &at, &slow);
    let rows = gains(&at);
    findings.paragraphs.push(
        "Read the two rates apart. How often clients go on is what the published throughput counts; with weak answers it is higher than \
         the throughput for as long as what is received and not done may grow, and in the long run no client goes on faster than puts are \
         done. A client that waits for a weak answer only gains what lies between that and the end."
            .into(),
    );
    findings.tables.push(Table {
        title: "Gain in requests after which clients go on, 4 KiB: the published protocol beside two others"
            .into(),
        head: [
            "clients",
            "batching",
            "over waiting at the gap",
            "over one link",
            "entries from windows per request",
        ]
        .map(str::to_string)
        .to_vec(),
        rows,
    });
    findings.figures.push(vanishes(&at, &slow));
    figures(&mut findings, measured);
    let measures = [
        Measure::Accepted,
        Measure::OpsPerS,
        Measure::AcceptedP50,
        Measure::AcceptedP99,
        Measure::P50,
        Measure::Early,
        Measure::MembersCpu,
    ];
    for (grid, title, coordinates) in [
        ("clients", "All points of 4 KiB", ["clients", "batching", "way"]),
        ("128 KiB", "All points of 128 KiB", ["clients", "batching", "way"]),
        ("replicas", "All points of several replicas", ["replicas", "batching", "way"]),
        ("payload", "All points of several sizes", ["KiB", "batching", "way"]),
        ("links", "All points of several links", ["links", "batching", "way"]),
        ("syncs", "All points of slow syncs", ["ms", "log", "way"]),
        ("processors", "All points of fewer processors", ["processors", "batching", "way"]),
        ("rate", "All points of an open loop", ["rate", "batching", "way"]),
    ] {
        let all = measured.all(&[("grid", grid)]);
        findings.tables.push(table(title, &all, &coordinates, &measures));
    }
    findings
}

type Find<'a> = dyn Fn(&str, &Way, &str, (&str, &str)) -> Option<At<'a>> + 'a;

fn claims<'a>(findings: &mut Findings, at: &Find<'a>, slow: &dyn Fn(&Way, &str) -> Option<At<'a>>) {
    let of = |way: &Way, batching: &str, clients: &str| at("clients", way, batching, ("clients", clients));
    for (clients, source) in [("1024", "figure 14"), ("256", "ours"), ("16", "ours")] {
        let pair = (of(&KEEPS_GAP, "off", clients), of(&WAITS, "off", clients));
        let says = format!(
            "With {clients} clients NB-Raft lets clients go on 1.3 times as often as Raft that waits at the gap, with the same dispatch"
        );
        let claim = Claim::ratio_at_least(&says, source, pair, Measure::Accepted, PUBLISHED_GAIN);
        findings.claims.extend(claim);
        let pair = (of(&KEEPS_GAP, "off", clients), of(&ONE_LINK, "on", clients));
        let says = format!(
            "With {clients} clients it also lets them go on 1.1 times as often as Raft on one link that batches, our default"
        );
        findings.claims.extend(Claim::ratio_at_least(&says, "ours", pair, Measure::Accepted, GAIN));
        let pair = (of(&KEEPS, "off", clients), of(&WAITS, "off", clients));
        let says = format!(
            "With {clients} clients the window alone makes puts done 1.1 times as often as waiting at the gap"
        );
        findings.claims.extend(Claim::ratio_at_least(&says, "ours", pair, Measure::OpsPerS, GAIN));
        let pair = (of(&ONE_LINK_RECEIPT, "on", clients), of(&ONE_LINK, "on", clients));
        let says = format!(
            "On this disk, with {clients} clients on one link, weak answers on receipt let clients go on 1.1 times as often"
        );
        findings.claims.extend(Claim::ratio_at_least(&says, "ours", pair, Measure::Accepted, GAIN));
    }
    for log in ["inline", "thread"] {
        let of = |way: &Way| slow(way, log);
        let says = format!(
            "Where syncs take 10 ms longer, a client on one link goes on in at most half the time with weak answers on receipt (log I/O {log})"
        );
        let pair = (of(&ONE_LINK), of(&ONE_LINK_RECEIPT));
        findings.claims.extend(Claim::ratio_at_least(&says, "ours", pair, Measure::AcceptedP50, 2.0));
        let says = format!(
            "… and 16 links with a window let clients go on 1.1 times as often as that (log I/O {log})"
        );
        let pair = (of(&KEEPS_RECEIPT), of(&ONE_LINK_RECEIPT));
        findings.claims.extend(Claim::ratio_at_least(&says, "ours", pair, Measure::Accepted, GAIN));
    }
    for way in [&WAITS, &KEEPS_GAP, &ONE_LINK] {
        let of = |count: &str| at("processors", way, "off", ("processors", count));
        let says = format!("With two processors for the members, {} has 1.1 times the rate of one", way.name);
        let pair = (of("2"), of("1"));
        findings.claims.extend(Claim::ratio_at_least(&says, "figure 23", pair, Measure::Accepted, GAIN));
    }
    for rate in ["1000", "4000"] {
        let of = |way: &Way| at("rate", way, "off", ("rate", rate));
        let says = format!(
            "At {rate} requests a second clients of NB-Raft go on in at most 1/1.1 of the time of Raft with the same dispatch"
        );
        let pair = (of(&WAITS), of(&KEEPS_GAP));
        findings.claims.extend(Claim::ratio_at_least(&says, "section V-F", pair, Measure::AcceptedP50, GAIN));
    }
    let of = |kib: &str| at("payload", &KEEPS, "off", ("KiB", kib));
    let says =
        "Larger payloads make more disorder: with 128 KiB at least as many entries come early as with 1 KiB";
    let claim = Claim::ratio_at_least(says, "section V-D", (of("128"), of("1")), Measure::Early, 1.0);
    findings.claims.extend(claim);
}

/// The published protocol beside Raft that waits at the gap, and beside our default.
fn gains(at: &Find<'_>) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for clients in ["1", "4", "16", "64", "256", "512", "1024"] {
        for batching in ["off", "on"] {
            let of = |way: &Way, batching: &str| at("clients", way, batching, ("clients", clients));
            let Some(nb) = of(&KEEPS_GAP, batching) else { continue };
            let over = |other: Option<At<'_>>| {
                let ratio = other.and_then(|other| nb.over(&other, Measure::Accepted));
                ratio.map_or(String::new(), shown)
            };
            let early = nb.median(Measure::Early).map_or(String::new(), |early| number(early.median));
            rows.push(vec![
                clients.to_string(),
                batching.to_string(),
                over(of(&WAITS, batching)),
                over(of(&ONE_LINK, "on")),
                early,
            ]);
        }
    }
    rows
}

/// The gain where the published protocol has it, and step by step where it is gone: both rates of each pair.
fn vanishes<'a>(at: &Find<'a>, slow: &dyn Fn(&Way, &str) -> Option<At<'a>>) -> Figure {
    let of = |way: &Way, batching: &str, clients: &str| at("clients", way, batching, ("clients", clients));
    let pairs = [
        ("16, alone", of(&KEEPS_GAP, "off", "16"), of(&WAITS, "off", "16")),
        ("256, alone", of(&KEEPS_GAP, "off", "256"), of(&WAITS, "off", "256")),
        ("1024, alone", of(&KEEPS_GAP, "off", "1024"), of(&WAITS, "off", "1024")),
        ("1024, batches", of(&KEEPS_GAP, "on", "1024"), of(&WAITS, "on", "1024")),
        ("beside 1 link", of(&KEEPS_GAP, "off", "1024"), of(&ONE_LINK, "on", "1024")),
        ("1 link, receipt", of(&ONE_LINK_RECEIPT, "on", "1024"), of(&ONE_LINK, "on", "1024")),
        ("syncs +10 ms", slow(&ONE_LINK_RECEIPT, "thread"), slow(&ONE_LINK, "thread")),
    ];
    let series = |name: &str, measure: Measure| {
        let dot = |(place, (label, over, under)): (usize, &(&str, Option<At<'_>>, Option<At<'_>>))| {
            let y = over.as_ref()?.over(under.as_ref()?, measure)?;
            Some(Dot { x: place as f64, label: (*label).into(), y })
        };
        Series::of(name, pairs.iter().enumerate().filter_map(dot).collect())
    };
    let of_both = [series("clients go on", Measure::Accepted), series("puts are done", Measure::OpsPerS)];
    let published: Vec<Dot> = of_both[0]
        .dots
        .iter()
        .filter(|dot| dot.label == "1024, alone")
        .map(|dot| Dot { y: Interval::exact(PUBLISHED_GAIN), ..dot.clone() })
        .collect();
    let published = Series { name: "published: +30 %".into(), is_published: true, dots: published };
    let title = "Where the gain is, and where it vanishes";
    let mut figure =
        lines("vanishes", title, "", Measure::Accepted, of_both.into_iter().chain([published]).collect());
    figure.y = "times the rate without it".into();
    figure.as_bars().with_caption(
        "Alone: NB-Raft over Raft that waits at the gap, with so many clients, 16 links and each entry by itself, as published: a client that waits \
         for its turn loses its time, and the window gives it back, until processors are the limit. Batches: the same where entries \
         share messages; few messages have little disorder. Beside 1 link: the published NB-Raft over our default, which has no disorder to \
         mend. 1 link, receipt: what an early answer is worth without a window. Syncs +10 ms: the same with 64 clients on slow disks, \
         with the log on a thread: there the answer comes a sync earlier, and that is a gain of another kind, for a weaker promise.",
    )
}

fn figures(findings: &mut Findings, measured: &Measured) {
    let series = |grid: &str, batching: &str, ways: &[&Way], coordinate: &str, measure: Measure| {
        let of = |way: &&Way| {
            let points = measured.all(&[("grid", grid), ("way", way.name), ("batching", batching)]);
            line(way.name, &points, coordinate, measure)
        };
        ways.iter().map(of).collect()
    };
    for (batching, title) in [("off", "each entry by itself"), ("on", "batching")] {
        for (id, measure) in
            [("go-on", Measure::Accepted), ("done", Measure::OpsPerS), ("time", Measure::AcceptedP50)]
        {
            let title = format!("1 to 1,024 clients, 4 KiB, {title}");
            let series = series("clients", batching, &DRAWN, "clients", measure);
            findings.figures.push(lines(&format!("{id}-{batching}"), &title, "clients", measure, series));
        }
    }
    let few: &[&Way] = &[&ONE_LINK, &WAITS, &KEEPS, &KEEPS_GAP];
    for (grid, coordinate, ways, batching, title) in [
        ("128 KiB", "clients", few, "off", "128 KiB, each entry by itself"),
        ("replicas", "replicas", few, "off", "2 to 9 replicas, 64 clients, 4 KiB, each entry by itself"),
        ("payload", "KiB", few, "off", "1 to 128 KiB, 64 clients, each entry by itself"),
        ("links", "links", few, "off", "1 to 64 links, 256 clients, 4 KiB, each entry by itself"),
    ] {
        let series = series(grid, batching, ways, coordinate, Measure::Accepted);
        let id = grid.replace(' ', "-").to_lowercase();
        findings.figures.push(lines(&id, title, coordinate, Measure::Accepted, series));
    }
    let series_of_links = series("links", "off", few, "links", Measure::P50);
    let title = "1 to 64 links, 256 clients, 4 KiB, each entry by itself";
    findings.figures.push(lines("links-time", title, "links", Measure::P50, series_of_links));
    for (log, title) in [("inline", "on the node's thread"), ("thread", "on a thread of its own")] {
        let of = |way: &Way| {
            let points = measured.all(&[("grid", "syncs"), ("way", way.name), ("log", log)]);
            line(way.name, &points, "ms", Measure::Accepted)
        };
        let series = [&ONE_LINK, &ONE_LINK_RECEIPT, &KEEPS_RECEIPT].map(of).into();
        let title =
            format!("Syncs that take longer, 64 clients, 4 KiB, batching; the log is written {title}");
        findings.figures.push(lines(&format!("syncs-{log}"), &title, "ms", Measure::Accepted, series));
    }
    for (id, measure) in [("rate", Measure::AcceptedP50), ("rate-p99", Measure::AcceptedP99)] {
        let series = series("rate", "off", few, "rate", measure);
        let title = "An open loop, 4 KiB, each entry by itself";
        findings.figures.push(lines(id, title, "requests that begin in a second", measure, series));
    }
    let early = series("payload", "off", &[&KEEPS], "KiB", Measure::Early);
    let title = "Disorder: entries that came early, 64 clients, each entry by itself";
    findings.figures.push(lines("disorder", title, "KiB", Measure::Early, early));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_that_share_links_and_order_share_a_cluster() {
        let plans: std::collections::BTreeSet<String> = points(Size::Full)
            .iter()
            .filter(|point| point.at[0].1 == "clients")
            .map(|point| point.cluster.flags.join(" "))
            .collect();
        assert_eq!(plans.len(), 6, "three, each with syncs and without: {plans:?}");
    }
}
