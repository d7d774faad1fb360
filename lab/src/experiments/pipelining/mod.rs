//! Pipelining: how many messages should be under way to a member.
//!
//! Knows nothing of: how a point is run.

use crate::experiment::{ClusterPlan, Experiment, Load, Point, Size};
use crate::figures::Series;
use crate::judge::{Claim, Findings, Table, cell, line, lines, number, published as theirs};
use crate::measured::{At, Measure, Measured};
use crate::published::Published;
use std::time::Duration;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "pipelining",
    title: "How many messages should be under way to a member?",
    question: include_str!("question.md"),
    published: include_str!("published.toml"),
    is_hidden: false,
    points,
    judge,
};

/// Puts under way: so many fill 32 messages of 128 entries.
const UNDER_WAY: u32 = 4096;
/// Bytes of a put that never shares an entry with others.
const ALONE_BYTES: u32 = 1100;
/// The published ratio of depth 1 to depth 32: the smaller one of both batches.
const PUBLISHED_GAIN: f64 = 5.7;
/// From this ratio on, too much depth costs something.
const COSTS: f64 = 1.15;
/// Links: their name, and how long they take each way; nothing for no proxy.
const LINKS: [(&str, Option<u64>); 5] =
    [("loopback", None), ("0 ms", Some(0)), ("1 ms", Some(1)), ("10 ms", Some(10)), ("50 ms", Some(50))];

fn points(size: Size) -> Vec<Point> {
    let links = size.of(&LINKS, &[("loopback", None), ("50 ms", Some(50))]);
    let mut points = Vec::new();
    for &(link, delay) in links {
        for batch in [128, 1024] {
            for &depth in size.of(&[1_u32, 2, 4, 8, 16, 32, 64], &[1, 32, 64]) {
                // 4,096 puts wait for a long time in messages one by one: a member keeps a request for two election timeouts and 5 s.
                let patient = ClusterPlan::of(3).flag("--election-timeout=5000");
                let cluster = match delay {
                    None => patient,
                    Some(_) => patient.proxied(),
                };
                let load = Load::native_puts(5000, UNDER_WAY).of_bytes(ALONE_BYTES);
                let point =
                    Point::of("depth", cluster, load).at("link", link).at("batch", batch).at("depth", depth);
                // A round trip for so many messages.
                let rounds = 5000_u64.div_ceil(u64::from(batch * depth)).max(2);
                let settings = [
                    format!("batch-entries-max={batch}"),
                    format!("inflight-msgs-max={depth}"),
                    "batch-bytes-max=8388608".to_string(),
                    "inflight-bytes-max=33554432".to_string(),
                ];
                let point = settings.into_iter().fold(point, Point::tuned);
                let delay = Duration::from_millis(delay.unwrap_or(0));
                points.push(point.far(delay).takes(900 + 2 * rounds * delay.as_millis() as u64));
            }
        }
    }
    points
}

fn judge(measured: &Measured, published: &Published) -> Findings {
    let mut findings = Findings::default();
    let table = published.table("depth");
    let of = |link: &str, batch: &str| measured.all(&[("link", link), ("batch", batch)]);
    let at = |link: &str, batch: &str, depth: &str| {
        measured.at(&[("link", link), ("batch", batch), ("depth", depth)])
    };
    for (link, _) in LINKS {
        for (column, batch) in [(1, "128"), (2, "1024")] {
            if of(link, batch).is_empty() {
                continue;
            }
            let says = format!(
                "One message under way takes at least {PUBLISHED_GAIN} times as long as 32 (batches of {batch}, {link})"
            );
            let source = "the study, table 2: 5.7 times for batches of 128, 9.2 times for 1,024";
            let pair = (at(link, batch, "1"), at(link, batch, "32"));
            findings.claims.extend(Claim::ratio_at_least(
                &says,
                source,
                pair,
                Measure::Millis,
                PUBLISHED_GAIN,
            ));
            let says = format!("64 messages under way take longer than 32 (batches of {batch}, {link})");
            let theirs_is =
                table.value(64.0, column).zip(table.value(32.0, column)).map(|(deep, less)| deep / less);
            let source =
                format!("the study, table 2: {} times", theirs_is.map_or_else(|| "–".into(), number));
            let pair = (at(link, batch, "64"), at(link, batch, "32"));
            findings.claims.extend(Claim::ratio_at_least(&says, &source, pair, Measure::Millis, COSTS));
        }
        if let Some(text) = paragraph(link, &of(link, "128"), &of(link, "1024")) {
            findings.paragraphs.push(text);
        }
    }
    for (column, batch, title) in [(1, "128", "batches of 128"), (2, "1024", "batches of 1,024")] {
        let ours = LINKS.iter().map(|(link, _)| line(link, &of(link, batch), "depth", Measure::Millis));
        let series = ours.chain([Series::published("published", &table.pairs(column))]);
        let title = format!("Time for 5,000 puts, {title} entries");
        let figure = lines(
            &format!("depth-{batch}"),
            &title,
            "messages under way at most",
            Measure::Millis,
            series.collect(),
        );
        findings.figures.push(figure.with_caption("Both axes are logarithmic."));
    }
    findings.tables.push(beside(measured, published));
    findings
}

/// What the two batches say of one kind of link.
fn paragraph(link: &str, small: &[At<'_>], large: &[At<'_>]) -> Option<String> {
    let gain = |all: &[At<'_>]| {
        let best = all.iter().filter_map(|at| Some((at.median(Measure::Millis)?.median, *at)));
        let (best_is, best) = best.min_by(|one, other| one.0.total_cmp(&other.0))?;
        let first = all.first()?.median(Measure::Millis)?.median;
        Some((number(first / best_is), best.coordinate("depth").to_string(), number(best_is)))
    };
    let (of_small, of_large) = (gain(small)?, gain(large)?);
    let links = if link == "loopback" { link.to_string() } else { format!("links of {link}") };
    Some(format!(
        "On {links} the best depth for batches of 128 was {} ({} ms, {} times as fast as one message under way), for batches of \
         1,024 it was {} ({} ms, {} times as fast).",
        of_small.1, of_small.2, of_small.0, of_large.1, of_large.2, of_large.0
    ))
}

/// Our times beside the published ones.
fn beside(measured: &Measured, published: &Published) -> Table {
    let table = published.table("depth");
    let links: Vec<&str> =
        LINKS.iter().map(|(link, _)| *link).filter(|link| measured.at(&[("link", link)]).is_some()).collect();
    let mut head = vec!["messages under way".to_string()];
    for batch in ["128", "1,024"] {
        head.extend(links.iter().map(|link| format!("{batch}: {link}")));
        head.push(format!("{batch}: published"));
    }
    let row = |first: &At<'_>| {
        let depth = first.coordinate("depth").to_string();
        let mut row = vec![depth.clone()];
        for (column, batch) in [(1, "128"), (2, "1024")] {
            let ours = links.iter().map(|link| {
                cell(measured.at(&[("link", link), ("batch", batch), ("depth", &depth)]), Measure::Millis)
            });
            row.extend(ours);
            row.push(theirs(table, first.number("depth").unwrap_or(0.0), column));
        }
        row
    };
    let first =
        links.first().map(|link| measured.all(&[("link", link), ("batch", "128")])).unwrap_or_default();
    Table {
        title: "Time for 5,000 puts in ms, by the entries of a batch and by link, beside the published one"
            .into(),
        head,
        rows: first.iter().map(row).collect(),
    }
}
