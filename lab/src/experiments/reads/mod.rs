//! Reads: what proof of leadership costs, and what weaker reads save.
//!
//! Knows nothing of: how a point is run.

use crate::experiment::{ClusterPlan, Experiment, Face, Load, Members, Point, Size};
use crate::judge::{
    Claim, Findings, at_least, at_most, bars, cell, lines, number, published as theirs, shown, table,
};
use crate::measured::{At, Measure, Measured};
use crate::published::Published;
use crate::statistics::Interval;
use std::time::Duration;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "reads",
    title: "What does a fresh read cost?",
    question: include_str!("question.md"),
    published: include_str!("published.toml"),
    is_hidden: false,
    points,
    judge,
};

const KINDS: [&str; 5] = ["log", "index", "lease", "bounded", "local"];
const ASKED: [(&str, Members); 2] = [("leader", Members::Leader), ("follower", Members::OneFollower)];
const LINKS: [(&str, u64); 2] = [("0 ms", 0), ("10 ms", 10)];
/// A median this much larger still counts as no slower.
const ALIKE: f64 = 1.5;
/// From this ratio on, leases cost something while nothing happens.
const COSTS: f64 = 1.25;
/// On links of 10 ms a put that is forwarded takes at least this much longer: one more round trip beside one.
const FORWARDED: f64 = 1.5;
/// Reads by one client on far links, where each takes tens of milliseconds.
const FAR: u64 = 150;
/// A session for each put takes at least this much longer than one that is kept: three commands beside one.
const SESSIONS: f64 = 2.0;

fn points(size: Size) -> Vec<Point> {
    let mut points = Vec::new();
    for (link, delay) in LINKS {
        for (asked, members) in ASKED {
            for kind in KINDS {
                // A round trip of the leader to a majority, and with a follower one of it to the leader.
                let each = match (kind, asked) {
                    ("local" | "bounded", _) | ("lease", "leader") => 1,
                    ("lease", _) | (_, "leader") => 1 + 2 * delay,
                    _ => 1 + 4 * delay,
                };
                for (clients, full, quick) in [(1, 1000, 100), (64, 10_000, 4000)] {
                    if size == Size::Quick && clients == 64 && asked == "follower" {
                        continue;
                    }
                    let full = if 0 < delay && clients == 1 { FAR } else { full };
                    let total = if size == Size::Full { full } else { quick };
                    let load = Load { operation: "range", ..Load::puts(total, clients) };
                    let load = load.at(members).with("--key-space=1000");
                    let load = if kind == "local" { load.with("--serializable") } else { load };
                    let cluster = ClusterPlan::of(3).proxied();
                    let cluster = match kind {
                        "bounded" => cluster.flag("--read-consistency=bounded=100ms"),
                        _ => cluster,
                    };
                    let point = Point::of("read", cluster, load).at("kind", kind).at("asked", asked);
                    let point = point.at("clients", clients).at("link", link);
                    let path = if matches!(kind, "log" | "lease") { kind } else { "index" };
                    let millis = 500 + total * each / u64::from(clients);
                    points.push(
                        point.tuned(format!("reads={path}")).far(Duration::from_millis(delay)).takes(millis),
                    );
                }
            }
        }
        let full = if 0 < delay { 100 } else { 300 };
        let total = if size == Size::Full { full } else { 60 };
        let native = |load: Load| Load { face: Face::Native { connections: 1, pipeline: 1 }, ..load };
        let puts = || Load::puts(total, 1);
        for (way, load) in [
            ("leader, etcd", puts().at(Members::Leader)),
            ("follower, etcd", puts().at(Members::OneFollower)),
            ("leader, native", native(puts().at(Members::Leader))),
            ("follower, native", native(puts().at(Members::OneFollower))),
            ("leader, native, session kept", native(puts().at(Members::Leader)).with("--sessions=1")),
            (
                "leader, native, session for each put",
                native(puts().at(Members::Leader)).with("--session-each"),
            ),
        ] {
            let point = Point::of("put", ClusterPlan::of(3).proxied(), load).at("way", way).at("link", link);
            points.push(point.far(Duration::from_millis(delay)).takes(500 + total * (3 + 4 * delay)));
        }
    }
    for path in ["index", "lease"] {
        let seconds = if size == Size::Full { 5 } else { 2 };
        let load = Load::puts(seconds * 5, 1).at(Members::Leader).with("--rate=5");
        let point = Point::of("still", ClusterPlan::of(3).proxied(), load).at("reads", path);
        points.push(point.tuned(format!("reads={path}")).takes(500 + seconds * 1000));
    }
    points
}

/// That the proof takes most of a read's time inside the leader, as published.
fn proof_is_most(at: Option<At<'_>>, published: &Published) -> Option<Claim> {
    let at = at?;
    let share = published.table("inside").value(1.0, 1)?;
    let (confirmed, answered) = (at.median(Measure::ReadConfirmed)?, at.median(Measure::ReadAnswered)?);
    let routed = at.median(Measure::ReadRouted)?;
    let ours = Interval {
        median: (confirmed.median - routed.median) / answered.median * 100.0,
        low: (confirmed.low - routed.high) / answered.high * 100.0,
        high: (confirmed.high - routed.low) / answered.low * 100.0,
    };
    Some(Claim {
        says: "Most of a read's time inside the leader is its proof".into(),
        source: format!("the report, figure 5: the call for the last commit index is about {} % of the query", number(share)),
        rule: "held if the interval of the share between routed and confirmed, of the time until it is answered, lies at 50 % or above, \
               refuted if it lies below (`reads=index`, one client, links of 0 ms)"
            .into(),
        because: format!("the share is {} %", shown(ours)),
        verdict: at_least(ours, 50.0),
    })
}

fn judge(measured: &Measured, published: &Published) -> Findings {
    let mut findings = Findings::default();
    let table_of_theirs = published.table("read");
    let (before, after) =
        (table_of_theirs.value(1.0, 1).unwrap_or(0.0), table_of_theirs.value(2.0, 1).unwrap_or(0.0));
    let at = |kind: &str, asked: &str, clients: &str, link: &str| {
        measured.at(&[
            ("grid", "read"),
            ("kind", kind),
            ("asked", asked),
            ("clients", clients),
            ("link", link),
        ])
    };
    let put = |way: &str, link: &str| measured.at(&[("grid", "put"), ("way", way), ("link", link)]);
    // As people write it: 2.2 of 2.219.
    let gain = (before / after * 10.0).floor() / 10.0;
    for (link, _) in LINKS {
        let pair = (at("index", "leader", "1", link), at("lease", "leader", "1", link));
        let says = format!(
            "Without a round to a majority a read takes at most 1/{} of the time (links of {link})",
            number(gain)
        );
        let source = format!("the report, figure 8: {} µs became {} µs", number(before), number(after));
        findings.claims.extend(Claim::ratio_at_least(&says, &source, pair, Measure::P50, gain));
        let pair = (at("log", "leader", "1", link), at("index", "leader", "1", link));
        let says =
            format!("A read through the log takes longer than one that asks a majority (links of {link})");
        findings.claims.extend(Claim::ratio_at_least(&says, "ours", pair, Measure::P50, 1.0));
        let says = format!(
            "64 clients share their proof: index reads get at least half the throughput of local ones (links of {link})"
        );
        let pair = (at("index", "leader", "64", link), at("local", "leader", "64", link));
        findings.claims.extend(Claim::ratio_at_least(&says, "ours", pair, Measure::OpsPerS, 0.5));
    }
    if let Some(median) = at("index", "leader", "1", "0 ms").and_then(|it| it.median(Measure::P50)) {
        findings.claims.push(Claim {
            says: "A read that asks a majority takes less time here than the published one that asks none".into(),
            source: format!("the report, figure 8: {} µs on average; another machine", number(after)),
            rule: format!(
                "held if the interval of our median on links of 0 ms lies at {} ms or below, refuted if it lies above",
                number(after / 1e3)
            ),
            because: format!("the median is {} ms", shown(median)),
            verdict: at_most(median, after / 1e3),
        });
    }
    for kind in ["lease", "local"] {
        let asked = if kind == "lease" { "leader" } else { "follower" };
        let pair = at(kind, asked, "1", "10 ms").zip(at(kind, asked, "1", "0 ms"));
        let Some(ratio) = pair.and_then(|(far, near)| far.over(&near, Measure::P50)) else { continue };
        findings.claims.push(Claim {
            says: format!("Far links make {kind} reads no slower (at the {asked})"),
            source: "ours".into(),
            rule: format!(
                "held if the interval of the ratio of medians on links of 10 and 0 ms lies at {ALIKE} or below, refuted if it \
                 lies above"
            ),
            because: format!("the ratio is {}", shown(ratio)),
            verdict: at_most(ratio, ALIKE),
        });
    }
    for (link, _) in LINKS {
        let pair =
            (put("leader, native, session for each put", link), put("leader, native, session kept", link));
        let says = format!(
            "A session for each put takes at least {SESSIONS} times as long as one that is kept (links of {link})"
        );
        let source = "ours: to open, to use and to close a session are three commands in the log";
        findings.claims.extend(Claim::ratio_at_least(&says, source, pair, Measure::P50, SESSIONS));
    }
    findings.claims.extend(proof_is_most(at("index", "leader", "1", "0 ms"), published));
    let says = format!(
        "On links of 10 ms a forwarded put takes at least {FORWARDED} times as long as one that the leader receives"
    );
    let pair = (put("follower, etcd", "10 ms"), put("leader, etcd", "10 ms"));
    findings.claims.extend(Claim::ratio_at_least(&says, "ours", pair, Measure::P50, FORWARDED));
    let says = "On links of 10 ms a client that a follower redirects to the leader pays for it once: its puts take no longer \
                than those of a client that asked the leader first";
    let pair = (put("leader, native", "10 ms"), put("follower, native", "10 ms"));
    findings.claims.extend(Claim::ratio_at_least(says, "ours", pair, Measure::P50, 1.0 / ALIKE));
    let still = |path: &str| measured.at(&[("grid", "still"), ("reads", path)]);
    let says =
        format!("With leases a leader sends at least {COSTS} times as many messages while little happens");
    let pair = (still("lease"), still("index"));
    findings.claims.extend(Claim::ratio_at_least(&says, "ours", pair, Measure::Messages, COSTS));

    for (link, _) in LINKS {
        let one = |kind, asked| cell(at(kind, asked, "1", link), Measure::P50);
        let parts =
            KINDS.map(|kind| format!("{kind} {} ms ({} ms)", one(kind, "leader"), one(kind, "follower")));
        findings.paragraphs.push(format!(
            "Median latency of a read by one client at the leader (in brackets at a follower), links of {link}: {}.",
            parts.join(", ")
        ));
    }
    let each = |path| (cell(still(path), Measure::Messages), cell(still(path), Measure::MembersCpu));
    let (index, lease) = (each("index"), each("lease"));
    findings.paragraphs.push(format!(
        "With five puts per second the leader sent {} messages per put without leases and {} with them, for {} and {} µs of processor time \
         of all members per put.",
        index.0, lease.0, index.1, lease.1
    ));
    findings.paragraphs.extend(LINKS.iter().filter_map(|(link, _)| {
        let (index, lease) = (at("index", "leader", "1", link)?, at("lease", "leader", "1", link)?);
        let told = |at, measure| cell(Some(at), measure);
        Some(format!(
            "Inside the leader, links of {link}: a read that asks a majority was confirmed after {} µs and answered after {} µs, one by lease \
             after {} and {} µs (means).",
            told(index, Measure::ReadConfirmed),
            told(index, Measure::ReadAnswered),
            told(lease, Measure::ReadConfirmed),
            told(lease, Measure::ReadAnswered),
        ))
    }));
    for (link, _) in LINKS {
        for (clients, measure, id, title) in [
            ("1", Measure::P50, "latency", "Median latency of a read, one client"),
            ("64", Measure::OpsPerS, "throughput", "Reads per second, 64 clients"),
        ] {
            let series = ASKED.map(|(asked, _)| {
                let all =
                    measured.all(&[("grid", "read"), ("asked", asked), ("clients", clients), ("link", link)]);
                bars(&format!("asked: the {asked}"), &all, "kind", measure)
            });
            let id = format!("{id}-{}", link.replace(' ', "-"));
            let title = format!("{title}, links of {link}");
            let figure = lines(&id, &title, "", measure, series.to_vec()).as_bars();
            findings.figures.push(figure.with_caption("By the kind of read."));
        }
    }
    let mut beside = table(
        "Reads by one client, beside the published means",
        &measured.all(&[("grid", "read"), ("clients", "1")]),
        &["kind", "asked", "link"],
        &[Measure::P50, Measure::P99],
    );
    for (row, name) in [(1.0, "published, before"), (2.0, "published, after")] {
        let millis = table_of_theirs.value(row, 1).map_or_else(|| "–".into(), |micros| number(micros / 1e3));
        let inside = theirs(table_of_theirs, row, 2);
        let more = format!("{millis} (mean; {inside} µs of it in the query)");
        beside.rows.push(vec![
            name.into(),
            "leader".into(),
            "containers".into(),
            more,
            "–".into(),
            "–".into(),
        ]);
    }
    findings.tables.push(beside);
    let mut stages = table(
        "Reads by stage inside the member that is asked, one client, beside the published means",
        &measured.all(&[("grid", "read"), ("clients", "1")]),
        &["kind", "asked", "link"],
        &[Measure::ReadRouted, Measure::ReadConfirmed, Measure::ReadAnswered],
    );
    for (row, name) in [(1.0, "published, before"), (2.0, "published, after")] {
        let inside = format!("{} (the query with its proof)", theirs(table_of_theirs, row, 2));
        let place = ["leader", "containers", "–", "–"].map(str::to_string);
        stages.rows.push([name.to_string()].into_iter().chain(place).chain([inside]).collect());
    }
    findings.tables.push(stages);
    findings.tables.push(table(
        "Reads by 64 clients",
        &measured.all(&[("grid", "read"), ("clients", "64")]),
        &["kind", "asked", "link"],
        &[Measure::OpsPerS, Measure::P50, Measure::P99],
    ));
    findings.tables.push(table(
        "Puts by one client, by the member asked and the protocol",
        &measured.all(&[("grid", "put")]),
        &["way", "link"],
        &[Measure::P50, Measure::P99, Measure::MembersCpu],
    ));
    findings.tables.push(table(
        "Five puts per second",
        &measured.all(&[("grid", "still")]),
        &["reads"],
        &[Measure::Messages, Measure::MembersCpu],
    ));
    findings
}
