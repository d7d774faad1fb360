//! Combinations: which optimisations need each other.
//!
//! Knows nothing of: how a point is run.

use crate::experiment::{ClusterPlan, Experiment, Load, Point, Size};
use crate::judge::{Claim, Findings, Table, bars, cell, clients as words, lines, shown, table};
use crate::measured::{At, Measure, Measured};
use crate::published::Published;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "combinations",
    title: "Which optimisations need each other?",
    question: include_str!("question.md"),
    published: "",
    is_hidden: false,
    points,
    judge,
};

/// The four settings, with their coordinate, their name for readers, and their values off and on.
const SETTINGS: [(&str, &str, [&str; 2]); 4] = [
    ("batching", "batching", ["off", "on"]),
    ("pipelining", "pipelining", ["off", "on"]),
    ("parallel-append", "parallel append", ["off", "on"]),
    ("apply", "apply thread", ["inline", "thread"]),
];
/// Clients with their puts.
const LOADS: [(u32, u64); 3] = [(1, 200), (16, 1000), (256, 4000)];

fn points(size: Size) -> Vec<Point> {
    let mut points = Vec::new();
    for &(clients, requests) in size.of(&LOADS, &[(1, 200), (256, 4000)]) {
        for combination in 0..16_usize {
            let point =
                Point::of("all", ClusterPlan::of(3), Load::puts(requests, clients)).at("clients", clients);
            let chosen = SETTINGS.iter().enumerate().map(|(place, (name, _, values))| {
                let value = values[combination >> place & 1];
                (*name, value)
            });
            let point = chosen
                .fold(point, |point, (name, value)| point.at(name, value).tuned(format!("{name}={value}")));
            // Without batching each put has its own sync.
            points.push(point.takes(if combination & 1 == 1 { 500 } else { 400 + requests * 2 / 5 }));
        }
    }
    points
}

/// The combination's settings that are on, for readers.
fn name(at: &At<'_>) -> String {
    let on = SETTINGS.iter().filter(|(name, _, values)| at.coordinate(name) == values[1]);
    let names: Vec<&str> = on.map(|(_, words, _)| *words).collect();
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

/// The point that differs in this setting alone, without it.
fn without<'m>(measured: &'m Measured, at: &At<'_>, setting: usize) -> Option<At<'m>> {
    let others = SETTINGS.iter().enumerate().map(|(place, (name, _, values))| {
        (*name, if place == setting { values[0] } else { at.coordinate(name) })
    });
    let mut wanted: Vec<(&str, &str)> = others.collect();
    wanted.push(("clients", at.coordinate("clients")));
    measured.at(&wanted)
}

fn judge(measured: &Measured, _: &Published) -> Findings {
    let mut findings = Findings::default();
    for (clients, _) in LOADS {
        let clients = clients.to_string();
        let all = measured.all(&[("clients", &clients)]);
        let (Some(none), Some(every)) = (all.first().copied(), all.last().copied()) else { continue };
        let mut rows = Vec::new();
        let mut told = Vec::new();
        for (setting, (coordinate, title, values)) in SETTINGS.iter().enumerate() {
            // Alone: from nothing to this one. Last: from all others to all.
            let mut alone_at: Vec<(&str, &str)> =
                SETTINGS.iter().map(|(name, _, values)| (*name, values[0])).collect();
            alone_at[setting] = (*coordinate, values[1]);
            alone_at.push(("clients", &clients));
            let alone = measured.at(&alone_at).and_then(|at| at.over(&none, Measure::OpsPerS));
            let last = without(measured, &every, setting).and_then(|at| every.over(&at, Measure::OpsPerS));
            let text = |ratio: Option<_>| ratio.map_or_else(|| "–".into(), shown);
            told.push(format!("{title} {} alone and {} beside all others", text(alone), text(last)));
            rows.push(vec![(*title).to_string(), text(alone), text(last)]);
        }
        findings.paragraphs.push(format!(
            "With {}, throughput grows by these factors: {}. All four together give {} requests/s, none of them {}.",
            words(&clients),
            told.join("; "),
            cell(Some(every), Measure::OpsPerS),
            cell(Some(none), Measure::OpsPerS)
        ));
        findings.tables.push(Table {
            title: format!("{}: the factor by which throughput grows with a setting", words(&clients)),
            head: ["setting", "alone", "beside all others"].map(str::to_string).to_vec(),
            rows,
        });
        let says = format!("All four together are at least as fast as none ({})", words(&clients));
        findings.claims.extend(Claim::ratio_at_least(
            &says,
            "ours",
            (Some(every), Some(none)),
            Measure::OpsPerS,
            1.0,
        ));
        for (id, measure) in [("throughput", Measure::OpsPerS), ("latency", Measure::P50)] {
            let mut series = bars("combinations", &all, "clients", measure);
            for (dot, at) in series.dots.iter_mut().zip(&all) {
                dot.label = letters(at);
            }
            let title = format!("All sixteen combinations, {}", words(&clients));
            let figure =
                lines(&format!("{id}-{clients}"), &title, "settings that are on", measure, vec![series]);
            findings.figures.push(figure.as_bars().with_caption(
                "B batching, P pipelining, A parallel append, T apply thread; – none of them.",
            ));
        }
        let mut by_name = table(
            &words(&clients),
            &all,
            &["clients"],
            &[Measure::OpsPerS, Measure::P50, Measure::P99, Measure::MembersCpu, Measure::Syncs],
        );
        by_name.head[0] = "on".into();
        for (row, at) in by_name.rows.iter_mut().zip(&all) {
            row[0] = name(at);
        }
        findings.tables.push(by_name);
    }
    findings
}

/// The combination in a few letters, for an axis.
fn letters(at: &At<'_>) -> String {
    let on = SETTINGS
        .iter()
        .zip(["B", "P", "A", "T"])
        .filter(|((name, _, values), _)| at.coordinate(name) == values[1]);
    let letters: String = on.map(|(_, letter)| letter).collect();
    if letters.is_empty() { "–".into() } else { letters }
}
