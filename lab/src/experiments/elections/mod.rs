//! Elections: how long the service is away after the death of a leader.
//!
//! Knows nothing of: how a point is run.

use crate::experiment::{ClusterPlan, Distances, Experiment, Point, Size, Task};
use crate::figures::{Figure, Series};
use crate::judge::{Claim, Findings, Table, at_least, bars, cell, line, lines, number, shown, within};
use crate::measured::{At, Measure, Measured};
use crate::published::Published;
use crate::statistics::{Interval, quantile};
use std::time::Duration;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "elections",
    title: "How long is a cluster without a leader?",
    question: include_str!("question.md"),
    published: include_str!("published.toml"),
    is_hidden: false,
    points,
    judge,
};

const MEMBERS: usize = 5;
/// The first member is the hub.
const STAR: Distances =
    [[0, 5, 5, 5, 5], [5, 0, 10, 10, 10], [5, 10, 0, 10, 10], [5, 10, 10, 0, 10], [5, 10, 10, 10, 0]];
const TWO_SITES: Distances =
    [[0, 1, 1, 20, 20], [1, 0, 1, 20, 20], [1, 1, 0, 20, 20], [20, 20, 20, 0, 1], [20, 20, 20, 1, 0]];
/// Frankfurt, London, New York, San Francisco, Tokyo.
const FIVE_CITIES: Distances = [
    [0, 8, 44, 74, 118],
    [8, 0, 36, 68, 115],
    [44, 36, 0, 33, 82],
    [74, 68, 33, 0, 52],
    [118, 115, 82, 52, 0],
];
const TOPOLOGIES: [(&str, &Distances); 3] =
    [("star", &STAR), ("two sites", &TWO_SITES), ("five cities", &FIVE_CITIES)];
/// How followers notice the death: the flag of that, and the words.
const NOTICED: [(&str, Option<&str>); 2] =
    [("a closed connection", None), ("silence", Some("--suspicion-delay=0"))];
const PROTOCOLS: [&str; 7] =
    ["raft", "basic-raft", "jraft", "raftexample", "zatt", "logcabin", "raft with leases"];
/// Milliseconds of `--suspicion-delay` unless it is given.
const DEFAULT_SUSPICION: u64 = 2;
/// The milliseconds of which the published shares are told.
const LIMITS: [f64; 2] = [80.0, 100.0];
/// Two medians this far apart count as equal.
const ALIKE: f64 = 1.5;
/// So much sooner is service back where a closed connection is noticed, with a timeout of 1,000 ms.
const SOONER: f64 = 10.0;

fn points(size: Size) -> Vec<Point> {
    let mut points = Vec::new();
    // A start of a member, and calm between two elections.
    let point = |grid: &str, cluster: ClusterPlan, (full, quick): (u32, u32), each: u64| {
        let count = if size == Size::Full { full } else { quick };
        Point::of(grid, cluster, Task::Elections(count)).takes(u64::from(count) * (700 + each))
    };
    let noticed_by = |flag: Option<&str>| match flag {
        None => ClusterPlan::of(MEMBERS),
        Some(flag) => ClusterPlan::of(MEMBERS).flag(flag),
    };
    let waits = |flag: Option<&str>, timeout: u64| if flag.is_some() { timeout * 3 / 2 } else { 30 };
    for (noticed, flag) in NOTICED {
        for &timeout in size.of(&[50, 100, 200, 300, 500, 1000], &[100, 1000]) {
            let point = point("timeout", noticed_by(flag), (4, 4), waits(flag, timeout));
            points.push(point.at("noticed by", noticed).at("timeout", timeout).timed(timeout, timeout / 10));
        }
    }
    for &suspicion in size.of(&[0, 2, 10, 20, 50], &[0, 2, 50]) {
        let (noticed, flag) =
            (NOTICED[usize::from(suspicion == 0)].0, format!("--suspicion-delay={suspicion}"));
        // A timeout below the published limits for silence; one of the published range for closed connections.
        let timeout = if suspicion == 0 { 50 } else { 300 };
        let cluster = ClusterPlan::of(MEMBERS).flag(&flag).proxied();
        let count = if suspicion <= DEFAULT_SUSPICION { 20 } else { 5 };
        let point = point("published", cluster, (count, 5), 300 + timeout).at("noticed by", noticed);
        let point = point.at("suspicion", format!("{suspicion} ms")).at("timeout", timeout);
        points.push(point.timed(timeout, timeout / 10).far(Duration::from_millis(4)));
    }
    for &protocol in size.of(&PROTOCOLS, &["raft", "zatt", "raft with leases"]) {
        let cluster = match protocol {
            "raft" => ClusterPlan::of(MEMBERS),
            "raft with leases" => ClusterPlan::of(MEMBERS).flag("--lease-reads"),
            other => ClusterPlan::of(MEMBERS).flag(&format!("--protocol={other}")),
        };
        points.push(point("protocol", cluster, (3, 4), 300).at("protocol", protocol).timed(300, 30));
    }
    let proxied = || ClusterPlan::of(MEMBERS).proxied();
    for &loss in size.of(&[0, 5, 10, 20, 30], &[0, 30]) {
        let mut point =
            point("loss", proxied(), (3, 2), 1800).at("loss", format!("{loss} %")).timed(1000, 100);
        point.links.all.loss = loss * 10;
        points.push(point);
    }
    for (name, distances) in TOPOLOGIES {
        if size == Size::Full || name == "five cities" {
            let mut point = point("topology", proxied(), (3, 2), 1500).at("topology", name).timed(1000, 100);
            point.links.between = Some(distances);
            points.push(point);
        }
    }
    let time = Duration::from_secs(if size == Size::Full { 2 } else { 4 });
    for &timeout in size.of(&[150, 300, 1000], &[300]) {
        let point = |network: &str| {
            let point = Point::of("watch", proxied(), Task::Watch(time)).at("network", network);
            point.at("timeout", timeout).timed(timeout, timeout / 10).takes(time.as_millis() as u64 + 300)
        };
        for &loss in size.of(&[0, 10, 30], &[0, 30]) {
            let mut point = point(&format!("{loss} % loss"));
            point.links.all.loss = loss * 10;
            points.push(point);
        }
        for (name, distances) in TOPOLOGIES {
            if size == Size::Full {
                let mut point = point(name);
                point.links.between = Some(distances);
                points.push(point);
            }
        }
    }
    points
}

/// The share of all elections at a point that took at most so many milliseconds, in per cent. [Wilson 1927]
fn share(at: &At<'_>, millis: f64) -> Interval {
    let latencies = at.latencies();
    let count =
        |pairs: &mut dyn Iterator<Item = &(u64, u64)>| pairs.fold(0.0, |sum, (_, count)| sum + *count as f64);
    let all = count(&mut latencies.iter());
    let part = count(&mut latencies.iter().filter(|(micros, _)| *micros as f64 <= millis * 1e3)) / all;
    let z = 1.96_f64;
    let spread = z * (part * (1.0 - part) / all + z * z / (4.0 * all * all)).sqrt();
    let middle = part + z * z / (2.0 * all);
    let scale = 100.0 / (1.0 + z * z / all);
    Interval {
        median: part * 100.0,
        low: ((middle - spread) * scale).max(0.0),
        high: ((middle + spread) * scale).min(100.0),
    }
}

/// How the death of the leader is noticed at a point, and after how long at most.
fn noticed(at: &At<'_>) -> String {
    match (at.coordinate("noticed by"), at.coordinate("suspicion")) {
        ("silence", _) => format!("silence, timeout {} ms", at.coordinate("timeout")),
        (_, "") => format!("closed connection, timeout {} ms", at.coordinate("timeout")),
        (_, suspicion) => format!("closed connection, suspicion {suspicion}"),
    }
}

fn elections(at: &At<'_>) -> u64 {
    at.latencies().iter().map(|(_, count)| count).sum()
}

fn judge(measured: &Measured, published: &Published) -> Findings {
    let mut findings = Findings::default();
    let at_timeout = |noticed: &str, timeout: &str| {
        measured.at(&[("grid", "timeout"), ("noticed by", noticed), ("timeout", timeout)])
    };
    for at in measured.all(&[("grid", "published")]) {
        findings.claims.extend(LIMITS.into_iter().filter_map(|limit| published_share(&at, limit, published)));
    }
    let pair = (at_timeout("silence", "1000"), at_timeout("a closed connection", "1000"));
    let says = format!(
        "With a timeout of 1,000 ms, service is back {SOONER} times as soon where a closed connection is noticed"
    );
    findings.claims.extend(Claim::ratio_at_least(&says, "ours", pair, Measure::P50, SOONER));
    findings.claims.extend(by_timeout(
        "The time of an election is proportional to the timeout, if followers wait for it",
        "a Raft key-value service in Python over gRPC, section III-A, figure 2: linear",
        10.0,
        at_timeout("silence", "1000"),
        at_timeout("silence", "100"),
    ));
    let closed = |timeout| at_timeout("a closed connection", timeout);
    findings.claims.extend(by_timeout(
        "The timeout does not matter where a closed connection is noticed",
        "ours",
        1.0,
        closed("1000"),
        closed("100"),
    ));
    findings.claims.extend(leases(measured.at(&[("protocol", "raft with leases")])));
    findings.claims.extend(measured.all(&[("grid", "watch")]).iter().filter_map(stays));

    findings.paragraphs = paragraphs(measured);
    figures(measured, &mut findings);
    findings.tables.push(shares(measured, published));
    findings.tables.push(changes(measured));
    findings
}

/// The published share of elections within a limit, here.
fn published_share(at: &At<'_>, limit: f64, published: &Published) -> Option<Claim> {
    let theirs = published.table("election").value(limit, 1)?;
    let ours = share(at, limit);
    Some(Claim {
        says: format!("{theirs} % of elections are over within {limit} ms on links of 4 ms, {}", noticed(at)),
        source: format!("Zatt, section 3.2: {theirs} %; it does not say from which moment it counts"),
        rule: format!(
            "held if the interval of the share, from the kill to an acknowledged put, lies at {theirs} % or above, refuted if it lies below"
        ),
        because: format!("{} % of {} elections", shown(ours), elections(at)),
        verdict: at_least(ours, theirs),
    })
}

/// That medians at timeouts of 1,000 and of 100 ms are as this factor to 1.
fn by_timeout(
    says: &str,
    source: &str,
    factor: f64,
    long: Option<At<'_>>,
    short: Option<At<'_>>,
) -> Option<Claim> {
    let ratio = long?.over(&short?, Measure::P50)?;
    Some(Claim {
        says: says.into(),
        source: source.into(),
        rule: format!(
            "held if the interval of the ratio of medians at 1,000 and 100 ms lies within a factor of {ALIKE} around {factor}, refuted if \
             it lies outside"
        ),
        because: format!("the ratio is {}", shown(ratio)),
        verdict: within(ratio.map(|it| it / factor), ALIKE),
    })
}

/// That leases make an election wait for their end.
fn leases(at: Option<At<'_>>) -> Option<Claim> {
    let median = at?.median(Measure::P50)?;
    Some(Claim {
        says: "With leases a dead leader is replaced only after the election timeout (300 ms), closed connection or not".into(),
        source: "ours: `--lease-reads` says so".into(),
        rule: "held if the interval of the median lies at 300 ms or above, refuted if it lies below".into(),
        because: format!("the median is {} ms", shown(median)),
        verdict: at_least(median, 300.0),
    })
}

/// That nothing changes where nothing happens.
fn stays(at: &At<'_>) -> Option<Claim> {
    let terms = at.median(Measure::Terms)?;
    let says = format!(
        "The leader stays without load and faults: {}, timeout {} ms",
        at.coordinate("network"),
        at.coordinate("timeout")
    );
    let because = format!("{} new terms per minute", shown(terms));
    Some(Claim::at_most(says, "ours", ("new terms per minute", terms), 0.0, because))
}

fn paragraphs(measured: &Measured) -> Vec<String> {
    let mut paragraphs = Vec::new();
    let longest = |noticed| measured.all(&[("grid", "timeout"), ("noticed by", noticed)]).last().copied();
    let [closed, silent] = NOTICED.map(|(noticed, _)| longest(noticed));
    if let Some(at) = closed {
        paragraphs.push(format!(
            "Without delays on links and with an election timeout of {} ms, half of the elections were over within {} ms where a \
             closed connection was noticed, and within {} ms where followers waited for the timeout.",
            at.coordinate("timeout"),
            cell(closed, Measure::P50),
            cell(silent, Measure::P50)
        ));
    }
    for at in measured.all(&[("grid", "published")]) {
        let latencies = at.latencies();
        let millis =
            |part| quantile(&latencies, part).map_or_else(|| "–".into(), |micros| number(micros / 1e3));
        paragraphs.push(format!(
            "On links of 4 ms, {}, half of {} elections were over within {} ms, \
             90 % within {} ms, all within {} ms; a survivor knew the new leader after {} ms on average, and an election took {} new terms.",
            noticed(&at),
            elections(&at),
            millis(0.5),
            millis(0.9),
            millis(1.0),
            cell(Some(at), Measure::LeaderKnown),
            cell(Some(at), Measure::Terms)
        ));
    }
    let loss = measured.all(&[("grid", "loss")]);
    if let (Some(least), Some(most)) = (loss.first(), loss.last()) {
        paragraphs.push(format!(
            "With {} of pieces lost and a timeout of 1,000 ms the median was {} ms, with {} lost it was {} ms; an election took {} and {} new terms.",
            least.coordinate("loss"),
            cell(Some(*least), Measure::P50),
            most.coordinate("loss"),
            cell(Some(*most), Measure::P50),
            cell(Some(*least), Measure::Terms),
            cell(Some(*most), Measure::Terms)
        ));
    }
    paragraphs
}

fn figures(measured: &Measured, findings: &mut Findings) {
    let caption = "From the kill to the first acknowledged put, over all repetitions together.";
    let distribution = |id: &str, title: &str, series: Vec<Series>| Figure {
        x: "time, ms".into(),
        y: "share of elections".into(),
        ..Figure::distributions(id, title, series).with_caption(caption)
    };
    let named = |at: &At<'_>| Series::distribution(&noticed(at), &at.latencies());
    let there = |grid: &str| measured.all(&[("grid", grid)]);
    findings.figures.push(distribution(
        "published",
        "Elections of five members on links of 4 ms",
        there("published").iter().map(named).collect(),
    ));
    let of_timeout = |noticed: &str| measured.all(&[("grid", "timeout"), ("noticed by", noticed)]);
    let silence = of_timeout("silence");
    findings.figures.push(distribution(
        "silence",
        "Elections after silence, by timeout",
        silence.iter().map(named).collect(),
    ));
    let series = NOTICED.map(|(noticed, _)| line(noticed, &of_timeout(noticed), "timeout", Measure::P50));
    findings.figures.push(
        lines(
            "timeout",
            "Median time of an election, by timeout",
            "election timeout, ms",
            Measure::P50,
            series.to_vec(),
        )
        .with_caption("Both axes are logarithmic. From the kill to the first acknowledged put."),
    );
    let protocols = bars("median", &there("protocol"), "protocol", Measure::P50);
    findings.figures.push(
        lines("protocol", "Median time of an election, by protocol", "", Measure::P50, vec![protocols])
            .as_bars()
            .with_caption("Timeout 300 ms, connections closed."),
    );
    let by_loss = |measure| bars("median", &there("loss"), "loss", measure);
    findings.figures.push(
        lines("loss", "Median time of an election, by loss", "", Measure::P50, vec![by_loss(Measure::P50)])
            .as_bars()
            .with_caption("Timeout 1,000 ms, connections closed."),
    );
}

/// Every point at which leaders were killed.
fn shares(measured: &Measured, published: &Published) -> Table {
    let head =
        ["point", "elections", "median, ms", "99 %, ms", "leader known, mean ms", "terms per election"];
    let mut head: Vec<String> = head.map(str::to_string).to_vec();
    head.extend(LIMITS.map(|limit| format!("within {limit} ms, %")));
    let mut rows = Vec::new();
    for at in measured.all(&[]).into_iter().filter(|at| at.coordinate("grid") != "watch") {
        let point = at.point.point.trim_start_matches("grid=").to_string();
        let mut row = vec![point, elections(&at).to_string()];
        row.extend(
            [Measure::P50, Measure::P99, Measure::LeaderKnown, Measure::Terms].map(|it| cell(Some(at), it)),
        );
        row.extend(LIMITS.map(|limit| shown(share(&at, limit))));
        rows.push(row);
    }
    let mut theirs = vec!["published, links below 4 ms".to_string(), "1,000".into()];
    theirs.extend(vec!["–".to_string(); 4]);
    theirs.extend(LIMITS.map(|limit| crate::judge::published(published.table("election"), limit, 1)));
    rows.push(theirs);
    Table { title: "Elections, beside the published shares".into(), head, rows }
}

/// Leader changes of clusters that stand.
fn changes(measured: &Measured) -> Table {
    crate::judge::table(
        "New terms without load and faults",
        &measured.all(&[("grid", "watch")]),
        &["network", "timeout"],
        &[Measure::Terms],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::PointInfo;
    use crate::results::tests::{run_info, sample};
    use std::collections::BTreeMap;

    #[test]
    fn a_share_has_an_interval_that_never_leaves_its_bounds() {
        let point =
            PointInfo { point: "a".into(), at: BTreeMap::new(), load: String::new(), setting: String::new() };
        let mut run = sample("a", 0, 1.0);
        run.latencies_us = vec![(10_000, 8), (90_000, 2)];
        let runs = [run];
        let at = Measured::of(&run_info("elections", vec![point]), &runs);
        let at = at.at(&[]).expect("a run");
        let (some, all) = (share(&at, 80.0), share(&at, 100.0));
        assert_eq!((some.median, all.median), (80.0, 100.0));
        assert!(99.999 < all.high && all.high <= 100.0, "{all:?}");
        assert!(49.0 < some.low && some.low < 49.1 && 94.3 < some.high && some.high < 94.4, "{some:?}");
        assert!(72.0 < all.low && all.low < 72.5, "{all:?}");
    }
}
