//! Asynchronous apply: what a thread of its own for the state machine gains.
//!
//! Knows nothing of: how a point is run.

use crate::experiment::{ClusterPlan, Experiment, Load, Members, Point, Size};
use crate::figures::Series;
use crate::judge::{
    Claim, Findings, Table, Verdict, at_least, at_most, bars, cell, clients as words, line, lines, number,
    published as theirs, shown, table,
};
use crate::measured::{At, Measure, Measured};
use crate::published::Published;
use crate::statistics::Interval;

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
/// How committed entries are applied and puts answered: in words, and what the members are tuned to.
const WAYS: [(&str, &[&str]); 4] = [
    ("inline, all that is committed", &["apply=inline"]),
    ("inline, one entry an event", &["apply=inline", "apply-entries-max=1"]),
    (
        "inline, one entry an event, answered early",
        &["apply=inline", "apply-entries-max=1", "unsafe-early-answers=on"],
    ),
    ("thread, answered early", &["apply=thread", "unsafe-early-answers=on"]),
];
/// Too large to share an entry with another put, as entries of the published program are never shared.
const LONE_BYTES: u32 = 1100;

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
    for (way, settings) in WAYS {
        for &requests in size.of(&[100_u32, 200], &[100]) {
            let load = Load::puts(requests.into(), 256).of_bytes(LONE_BYTES).at(Members::Leader);
            let mut point = Point::of("artefact", ClusterPlan::of(3), load).at("way", way);
            point = point.at("requests", requests);
            // A leader at rest has a dozen events a second.
            let left = if way.contains("one entry") { u64::from(requests) * 80 } else { 0 };
            point = point.takes(900 + left);
            points.push(settings.iter().fold(point, |point, setting| point.tuned(*setting)));
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
    findings.claims.extend(artefacts(measured));
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
    findings.tables.push(table(
        "The published mistakes, made on purpose",
        &measured.all(&[("grid", "artefact")]),
        &["way", "requests"],
        &[Measure::Millis, Measure::Applied, Measure::Behind],
    ));
    findings.paragraphs.extend(told_of_artefacts(measured));
    let all = measured.all(&[("grid", "delay")]);
    let measures = [Measure::P50, Measure::P99, Measure::OpsPerS, Measure::MembersCpu, Measure::LeaderCpu];
    findings.tables.push(table("All points with a delay", &all, &["clients", "apply", "delay"], &measures));
    findings
}

/// Most requests at which all ways of applying were measured.
fn most(measured: &Measured, way: usize) -> Option<At<'_>> {
    measured.all(&[("grid", "artefact"), ("way", WAYS[way].0)]).last().copied()
}

/// That the published numbers come back with the published mistakes.
fn artefacts(measured: &Measured) -> Vec<Claim> {
    let all = [0, 1, 2, 3].map(|way| most(measured, way));
    let pair = |one: usize, other: usize| all[one].zip(all[other]);
    let artefact = |says: &str, source: &str, what: &str, ratio: Interval, least: f64| Claim {
        says: says.into(),
        source: source.into(),
        rule: format!(
            "artefact if the interval of {what} lies at {least} or above: then the mistake alone gives the published effect; refuted if it lies below"
        ),
        because: format!("the ratio is {}", shown(ratio)),
        verdict: match at_least(ratio, least) {
            Verdict::Held => Verdict::Artefact,
            other => other,
        },
    };
    let mut claims = Vec::new();
    if let Some(ratio) = pair(2, 0).and_then(|(slow, all)| slow.over(&all, Measure::Applied)) {
        claims.push(artefact(
            "On one thread, requests take many times as long until they are applied",
            "the study, table 4, and its routine that applies one entry per call",
            "the time until all is applied with one entry an event, over that with all that is committed,",
            ratio,
            PUBLISHED_GAIN,
        ));
    }
    if let Some(ratio) = pair(0, 3).and_then(|(all, early)| all.over(&early, Measure::Millis)) {
        claims.push(artefact(
            "A load is over sooner if the leader answers when it has a request in its own log",
            "the study, 5.1.5: the answer precedes the commit",
            "the time of the load with answers after apply, over that with early ones,",
            ratio,
            GAIN,
        ));
    }
    claims
}

fn told_of_artefacts(measured: &Measured) -> Option<String> {
    let [all, one, early, thread] = [0, 1, 2, 3].map(|way| most(measured, way));
    let requests = all?.coordinate("requests").to_string();
    let told = |at, measure| cell(at, measure);
    Some(format!(
        "The published mistakes, made on purpose, with {requests} puts of {LONE_BYTES} bytes: all that is committed was applied after {} ms; with one \
         entry an event after {} ms; and with early answers, too, the last answer came after {} ms, {} entries were not applied by then, and \
         all were after {} ms. With a thread and early answers {} entries were behind. A leader at rest has few events: only what its \
         heartbeats bring.",
        told(all, Measure::Applied),
        told(one, Measure::Applied),
        told(early, Measure::Millis),
        told(early, Measure::Behind),
        told(early, Measure::Applied),
        told(thread, Measure::Behind),
    ))
}
