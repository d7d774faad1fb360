//! Asynchronous apply: what a thread of its own for the state machine gains.
//!
//! Knows nothing of: how a point is run.

use crate::experiment::{ClusterPlan, Experiment, Load, Point, Size};
use crate::figures::Series;
use crate::judge::{
    Claim, Findings, Table, Verdict, at_least, at_most, bars, cell, clients as words, line, lines, number,
    published as theirs, shown, table,
};
use crate::measured::{Measure, Measured};
use crate::published::Published;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "asynchronous-apply",
    title: "What does a thread of its own for the state machine gain?",
    question: include_str!("question.md"),
    published: include_str!("published.toml"),
    is_hidden: false,
    points,
    judge,
};

/// The published ratio at 5,000 requests.
const PUBLISHED_GAIN: f64 = 306.2 / 13.9;
/// The least that would count as a gain of the published kind.
const LARGE: f64 = 2.0;
/// The least that counts as a gain at all.
const GAIN: f64 = 1.1;

fn points(size: Size) -> Vec<Point> {
    let mut points = Vec::new();
    for apply in ["inline", "thread"] {
        for &requests in size.of(&[1000_u32, 2000, 3000, 4000, 5000], &[1000, 5000]) {
            let point = Point::of("requests", ClusterPlan::of(3), Load::puts(requests.into(), 256));
            points.push(point.at("apply", apply).at("requests", requests).tuned(format!("apply={apply}")));
        }
        for (clients, requests) in [(1, 500), (256, 5000)] {
            for &(delay, value, micros) in size.of(
                &[("0 µs", "0", 0), ("10 µs", "10us", 10), ("100 µs", "100us", 100)],
                &[("0 µs", "0", 0), ("100 µs", "100us", 100)],
            ) {
                let point = Point::of("delay", ClusterPlan::of(3), Load::puts(requests, clients));
                let point = point.at("clients", clients).at("apply", apply).at("delay", delay);
                let point = point.tuned(format!("apply={apply}")).tuned(format!("apply-delay={value}"));
                points.push(point.takes(900 + requests * micros * 3 / 1000));
            }
        }
    }
    points
}

fn judge(measured: &Measured, published: &Published) -> Findings {
    let mut findings = Findings::default();
    let theirs_are = published.table("apply-thread");
    let requests = |apply: &str| measured.all(&[("grid", "requests"), ("apply", apply)]);
    let delays = |clients: &str, apply: &str| {
        measured.all(&[("grid", "delay"), ("clients", clients), ("apply", apply)])
    };
    let at = |clients: &str, apply: &str, delay: &str| {
        measured.at(&[("grid", "delay"), ("clients", clients), ("apply", apply), ("delay", delay)])
    };
    let last = |apply: &str| measured.at(&[("grid", "requests"), ("apply", apply), ("requests", "5000")]);
    if let (Some(inline), Some(thread)) = (last("inline"), last("thread"))
        && let Some(ratio) = inline.over(&thread, Measure::Millis)
    {
        let verdict = match (at_least(ratio, LARGE), at_most(ratio, LARGE)) {
            (Verdict::Held, _) => Verdict::Held,
            (_, Verdict::Held) => Verdict::Artefact,
            _ => Verdict::NotDecided,
        };
        findings.claims.push(Claim {
            says: format!("An apply thread makes 5,000 requests {} times as fast", number(PUBLISHED_GAIN)),
            source: "the study, table 4: 306.2 s against 13.9 s".into(),
            rule: format!(
                "held if the interval of our ratio lies at {LARGE} or above; artefact if it lies below, because then the published ratio comes \
                 from the routine that applies one entry per call; otherwise not decided"
            ),
            because: format!("inline over thread is {}", shown(ratio)),
            verdict,
        });
    }
    for (clients, measure) in [("1", Measure::P50), ("256", Measure::Millis)] {
        let pair = (at(clients, "inline", "100 µs"), at(clients, "thread", "100 µs"));
        let says = format!(
            "Where a command takes 100 µs to apply, a thread gains at least a tenth ({})",
            words(clients)
        );
        findings.claims.extend(Claim::ratio_at_least(&says, "ours", pair, measure, GAIN));
    }
    let told = |delay: &str| {
        let (inline, thread) = (at("256", "inline", delay), at("256", "thread", delay));
        let (slow, fast) = (cell(inline, Measure::OpsPerS), cell(thread, Measure::OpsPerS));
        let both = inline.zip(thread)?;
        let used = |at| cell(Some(at), Measure::MembersCpu);
        Some(format!(
            "{delay}: {slow} puts/s inline and {fast} on a thread, for {} and {} µs of the members' processor time per put",
            used(both.0),
            used(both.1)
        ))
    };
    let parts: Vec<String> = ["0 µs", "10 µs", "100 µs"].into_iter().filter_map(told).collect();
    findings.paragraphs.push(format!(
        "By the time that a command takes to apply, with 256 clients: {}. The table of the machine says how many \
         processors three members and the load share.",
        parts.join("; ")
    ));
    for (id, measure, clients) in [("latency", Measure::P50, "1"), ("throughput", Measure::OpsPerS, "256")] {
        let series = ["inline", "thread"].map(|apply| bars(apply, &delays(clients, apply), "delay", measure));
        let title = format!("By the time that a command takes to apply, {}", words(clients));
        findings.figures.push(lines(id, &title, "apply-delay", measure, series.to_vec()).as_bars());
    }
    let in_ms = |column| theirs_are.pairs(column).iter().map(|(x, y)| (*x, y * 1e3)).collect::<Vec<_>>();
    let series = vec![
        line("inline", &requests("inline"), "requests", Measure::Millis),
        line("thread", &requests("thread"), "requests", Measure::Millis),
        Series::published("published, one thread", &in_ms(1)),
        Series::published("published, apply thread", &in_ms(2)),
    ];
    let title = "Time for all requests, without a delay";
    findings.figures.push(
        lines("requests", title, "requests", Measure::Millis, series)
            .with_caption("Both axes are logarithmic. The published machine is another one."),
    );
    let rows = requests("inline").into_iter().map(|inline| {
        let first = inline.number("requests").unwrap_or(0.0);
        let name = inline.coordinate("requests").to_string();
        let thread = measured.at(&[("grid", "requests"), ("apply", "thread"), ("requests", &name)]);
        vec![
            name,
            cell(Some(inline), Measure::Millis),
            cell(thread, Measure::Millis),
            theirs(theirs_are, first, 1),
            theirs(theirs_are, first, 2),
        ]
    });
    findings.tables.push(Table {
        title: "Time for all requests: ours in ms, the published one in s".into(),
        head: [
            "requests",
            "inline, ms",
            "thread, ms",
            "published, one thread, s",
            "published, apply thread, s",
        ]
        .map(str::to_string)
        .to_vec(),
        rows: rows.collect(),
    });
    let all = measured.all(&[("grid", "delay")]);
    let measures = [Measure::P50, Measure::P99, Measure::OpsPerS, Measure::MembersCpu, Measure::LeaderCpu];
    findings.tables.push(table("All points with a delay", &all, &["clients", "apply", "delay"], &measures));
    findings
}
