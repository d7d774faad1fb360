//! Model: how far the Petri net is off where it was not calibrated.
//!
//! ```text
//!   setting.rs: what a point varies ─┬─▶ the load that measures it
//!                                    └─▶ the net's setting
//!   calibration.rs: calibration points ─▶ the net's times ─▶ prediction of held-out points ─▶ error
//! ```
//! Knows nothing of: how a point is run, how the net is simulated.

mod calibration;
mod setting;

use crate::experiment::{Experiment, Point, Size};
use crate::figures::{Dot, Figure, Kind, Scale, Series};
use crate::judge::{Claim, Findings, Table, Verdict, number, shown, within};
use crate::measured::{At, Measure, Measured, RUNS_MIN};
use crate::published::Published;
use crate::statistics::Interval;
use calibration::{Calibration, Waits, Work, latency, stage};
use kattu_petri::{Report, Stage, predict};
use setting::{ONE, Plan};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "model",
    title: "Does the Petri net predict what this cluster does?",
    question: include_str!("question.md"),
    published: include_str!("published.toml"),
    is_hidden: false,
    points,
    judge,
};

/// A prediction is good if it is at most this factor away.
const FACTOR: f64 = 1.2;
/// So many held-out settings have to be predicted well.
const WELL_MIN: usize = 6;

/// Settings that were looked at while the net was built for this: no number follows from them, but the mechanisms that it has.
const EXPLORED: [Plan; 14] = [
    Plan { clients: 4, sync_ms: 2, ..ONE },
    Plan { clients: 16, sync_ms: 8, ..ONE },
    Plan { clients: 64, sync_ms: 1, ..ONE },
    Plan { clients: 64, sync_ms: 10, ..ONE },
    Plan { clients: 16, sync_ms: 2, is_on_thread: true, ..ONE },
    Plan { clients: 64, sync_ms: 10, is_on_thread: true, ..ONE },
    Plan { clients: 4, link_ms: Some(2), ..ONE },
    Plan { clients: 16, link_ms: Some(20), ..ONE },
    Plan { clients: 64, link_ms: Some(10), sync_ms: 5, is_on_thread: true, ..ONE },
    Plan { clients: 16, sync_ms: 5, replicas: 5, ..ONE },
    Plan { clients: 16, sync_ms: 3, kib: 8, ..ONE },
    Plan { clients: 16, ..ONE },
    Plan { clients: 256, ..ONE },
    Plan { clients: 16, link_ms: Some(5), sync_ms: 10, is_on_thread: true, is_weak: true, ..ONE },
];

/// Settings of which neither a number nor a mechanism follows.
const HELD_OUT: [Plan; 12] = [
    Plan { clients: 8, sync_ms: 6, ..ONE },
    Plan { clients: 32, sync_ms: 3, ..ONE },
    Plan { clients: 96, sync_ms: 5, ..ONE },
    Plan { clients: 48, sync_ms: 2, is_on_thread: true, ..ONE },
    Plan { clients: 128, sync_ms: 1, is_on_thread: true, ..ONE },
    Plan { clients: 8, sync_ms: 2, link_ms: Some(8), ..ONE },
    Plan { clients: 32, link_ms: Some(15), is_on_thread: true, ..ONE },
    Plan { clients: 24, sync_ms: 6, replicas: 5, is_on_thread: true, ..ONE },
    Plan { clients: 16, sync_ms: 7, kib: 4, ..ONE },
    Plan { clients: 2, is_on_thread: true, ..ONE },
    Plan { clients: 32, ..ONE },
    Plan { clients: 32, sync_ms: 6, link_ms: Some(3), is_on_thread: true, is_weak: true, ..ONE },
];

/// The grids, by what they are for.
const CALIBRATION: &str = "calibration";
const SEEN: &str = "explored";
const BLIND: &str = "held-out";

fn points(size: Size) -> Vec<Point> {
    let grids: [(&str, &[Plan]); 3] =
        [(CALIBRATION, &calibration::PLANS), (BLIND, &HELD_OUT), (SEEN, size.of(&EXPLORED, &[]))];
    grids.iter().flat_map(|(grid, plans)| plans.iter().map(|plan| plan.point(grid))).collect()
}

/// One point, measured and predicted.
struct Laid<'a> {
    at: At<'a>,
    plan: Plan,
    measured: Interval,
    predicted: f64,
    report: Report,
}

impl Laid<'_> {
    /// Predicted over measured.
    fn ratio(&self) -> Interval {
        let over = |measured: f64| self.predicted / measured;
        Interval {
            median: over(self.measured.median),
            low: over(self.measured.high),
            high: over(self.measured.low),
        }
    }

    fn is_near(&self) -> bool {
        let ratio = self.ratio().median;
        (1.0 / FACTOR..=FACTOR).contains(&ratio)
    }
}

/// The rate that a point is judged by.
fn rate(plan: &Plan) -> Measure {
    if plan.is_weak { Measure::Accepted } else { Measure::OpsPerS }
}

fn lay<'a>(calibration: &Calibration, at: At<'a>) -> Option<Laid<'a>> {
    let plan = Plan::of(&at)?;
    let measured = at.median(rate(&plan))?;
    let report = predict(&calibration.parameters(&plan), &plan.of_net()).ok()?.report;
    Some(Laid { at, plan, measured, predicted: report.accepted_per_s, report })
}

fn judge(measured: &Measured, _: &Published) -> Findings {
    let mut findings = Findings::default();
    let Some(calibration) = Calibration::of(measured) else { return findings };
    let laid = |grid: &'static str| -> Vec<Laid<'_>> {
        measured.all(&[("grid", grid)]).into_iter().filter_map(|at| lay(&calibration, at)).collect()
    };
    let held_out = laid(BLIND);
    findings.claims = held_out.iter().filter_map(claim).collect();
    findings.claims.extend(well_enough(&held_out));
    findings.paragraphs.push(told(&held_out));
    findings.figures.push(figure(&held_out));
    findings.tables.push(rates("Held-out settings", &held_out));
    let seen = laid(SEEN);
    if !seen.is_empty() {
        findings.tables.push(rates("Settings that were explored before, which no claim counts", &seen));
    }
    findings.tables.push(rates("Calibration points, which no claim counts", &laid(CALIBRATION)));
    findings.tables.push(times(&calibration));
    findings.tables.extend(held_out.iter().filter(|it| !it.plan.is_weak).filter_map(eleven));
    findings
}

/// The claim about one held-out setting.
fn claim(laid: &Laid<'_>) -> Option<Claim> {
    let ratio = laid.ratio();
    (RUNS_MIN <= laid.at.runs.len()).then(|| Claim {
        says: format!("The model predicts the throughput within 20 %: {}", laid.plan.words()),
        source: "ours".into(),
        rule: format!(
            "held if the interval of predicted over measured ({}) lies within a factor of {FACTOR}, refuted if it lies outside",
            rate(&laid.plan).title()
        ),
        because: format!(
            "measured {}, predicted {}: the ratio is {}",
            shown(laid.measured),
            number(laid.predicted),
            shown(ratio)
        ),
        verdict: within(ratio, FACTOR),
    })
}

/// The claim about all of them.
fn well_enough(held_out: &[Laid<'_>]) -> Option<Claim> {
    let near = held_out.iter().filter(|it| it.is_near()).count();
    let are_all = held_out.len() == HELD_OUT.len() && held_out.iter().all(|it| RUNS_MIN <= it.at.runs.len());
    are_all.then(|| Claim {
        says: format!(
            "The model predicts the throughput of at least {WELL_MIN} held-out settings within 20 %"
        ),
        source: "replication-protocols §13.6, P6".into(),
        rule: format!(
            "held if the medians of at least {WELL_MIN} held-out settings lie within a factor of {FACTOR} of the prediction, refuted otherwise"
        ),
        because: format!("{near} of {} do", held_out.len()),
        verdict: if WELL_MIN <= near { Verdict::Held } else { Verdict::Refuted },
    })
}

fn told(held_out: &[Laid<'_>]) -> String {
    let mut errors: Vec<f64> = held_out.iter().map(|it| (it.ratio().median - 1.0).abs() * 100.0).collect();
    errors.sort_by(f64::total_cmp);
    let near = held_out.iter().filter(|it| it.is_near()).count();
    let middle = errors.get(errors.len() / 2).copied().unwrap_or(0.0);
    format!(
        "Of {} held-out settings, {near} are predicted within a factor of {FACTOR}; half of the errors are {} % or less, the largest is {} %.",
        held_out.len(),
        number(middle),
        number(errors.last().copied().unwrap_or(0.0)),
    )
}

fn figure(held_out: &[Laid<'_>]) -> Figure {
    let dot = |it: &Laid<'_>| Dot { x: it.measured.median, label: number(it.measured.median), y: it.ratio() };
    let of = |name: &str, has: &dyn Fn(&Plan) -> bool| {
        let mut dots: Vec<Dot> = held_out.iter().filter(|it| has(&it.plan)).map(dot).collect();
        dots.sort_by(|one, other| one.x.total_cmp(&other.x));
        Series::of(name, dots)
    };
    let is_delayed = |plan: &Plan| 0 < plan.sync_ms || plan.link_ms.is_some();
    let series = vec![
        of("added delays", &|plan| is_delayed(plan) && !plan.is_weak),
        of("this disk, direct links", &|plan| !is_delayed(plan)),
        of("weak answers", &|plan| plan.is_weak),
    ];
    Figure {
        id: "predicted".into(),
        title: "Predicted over measured throughput of held-out settings".into(),
        caption: "1 is right; the intervals are those of the measurement.".into(),
        x: "measured, requests/s".into(),
        y: "predicted over measured".into(),
        x_scale: Scale::Logarithmic,
        y_scale: Scale::Linear,
        kind: Kind::Curve,
        series: series.into_iter().filter(|it| !it.dots.is_empty()).collect(),
    }
}

fn rates(title: &str, laid: &[Laid<'_>]) -> Table {
    let row = |it: &Laid<'_>| {
        let error = (it.ratio().median - 1.0) * 100.0;
        let mean = latency(&it.at).filter(|_| !it.plan.is_weak);
        vec![
            it.plan.words(),
            shown(it.measured),
            number(it.predicted),
            format!("{error:+.1}"),
            mean.map_or("–".into(), |micros| number(micros / 1e3)),
            number(it.report.accepted.mean_us / 1e3),
        ]
    };
    Table {
        title: title.into(),
        head: [
            "setting",
            "measured, requests/s",
            "predicted",
            "error, %",
            "mean latency measured, ms",
            "predicted, ms",
        ]
        .map(str::to_string)
        .to_vec(),
        rows: laid.iter().map(row).collect(),
    }
}

/// What was calibrated.
fn times(calibration: &Calibration) -> Table {
    let work = |name: &str, work: &Work| {
        let cell = |micros: f64| number(micros);
        vec![
            vec![format!("{name}, for each round"), cell(work.round)],
            vec![format!("{name}, for each request"), cell(work.each)],
            vec![format!("{name}, for each further KiB of a request"), cell(work.kib)],
        ]
    };
    let waits = |name: &str, waits: &Waits| {
        [
            ("receipt to first message", waits.sent),
            ("from there to the leader's disk", waits.sync),
            ("arrival at a follower to its answer", waits.follower),
            ("both ways between members", waits.peers),
            ("both ways to a client, its own time included", waits.client),
        ]
        .map(|(what, micros)| vec![format!("{name}: {what}"), number(micros)])
    };
    let mut rows = Vec::new();
    for (name, of) in [
        ("leader", &calibration.leader),
        ("follower", &calibration.follower),
        ("clients", &calibration.client),
    ] {
        rows.extend(work(name, of));
    }
    for (name, of) in [
        ("this disk, direct links", &calibration.calm),
        ("slow syncs, without what was added", &calibration.slow),
        ("far links, without what was added", &calibration.far),
    ] {
        rows.extend(waits(name, of));
    }
    Table {
        title: "What the calibration gives: processor time, and times at one client".into(),
        head: ["what", "µs"].map(str::to_string).to_vec(),
        rows,
    }
}

/// The eleven times of one setting, ours beside the model's.
fn eleven(laid: &Laid<'_>) -> Option<Table> {
    let at = &laid.at;
    let write = |name: &str| stage(at, "write", name);
    let append = |name: &str| stage(at, "append", name);
    let between = |from: Option<f64>, to: Option<f64>| Some(to? - from?);
    let total = latency(at)?;
    let acknowledged = append("acknowledged");
    let away = between(write("sent"), write("replicated"));
    let model = |stage: Stage| laid.report.time(stage).mean_us;
    let inside: f64 = Stage::ALL.into_iter().skip(3).map(model).sum();
    let to_leader = laid.report.accepted.mean_us - inside;
    let ways = between(acknowledged, away);
    let first = acknowledged.zip(away).map(|(there, away)| (away - there).max(0.0) / 2.0 + there);
    let rows = [
        ("t_trans(CL) + t_prs, both ways", write("answered").map(|answered| total - answered), to_leader),
        ("t_idx(L), the wait for the thread included", write("proposed"), model(Stage::Index)),
        ("t_queue(L)", between(write("proposed"), write("sent")), model(Stage::Queue)),
        ("t_trans(LF), both ways", ways, 2.0 * model(Stage::TransferToFollower)),
        ("t_wait(F)", append("appendable"), model(Stage::Wait)),
        ("t_append(F)", between(append("appendable"), append("stored")), model(Stage::Append)),
        ("t_ack(L)", first.zip(away).map(|(first, away)| away - first), model(Stage::Acknowledge)),
        ("t_commit(L)", between(write("replicated"), write("committed")), model(Stage::Commit)),
        ("t_apply(L)", between(write("committed"), write("applied")), model(Stage::Apply)),
    ];
    Some(Table {
        title: format!("Where the time goes: {}", laid.plan.words()),
        head: ["time", "ours, µs", "model, µs"].map(str::to_string).to_vec(),
        rows: rows
            .map(|(name, ours, model)| {
                vec![name.to_string(), ours.map_or("–".into(), number), number(model.max(0.0))]
            })
            .to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_held_out_setting_was_seen_before() {
        let keys =
            |plans: &[Plan]| -> BTreeSet<String> { plans.iter().map(|plan| plan.point("").key()).collect() };
        let held_out = keys(&HELD_OUT);
        assert!(keys(&calibration::PLANS).is_disjoint(&held_out) && keys(&EXPLORED).is_disjoint(&held_out));
        assert_eq!(held_out.len(), HELD_OUT.len());
        assert!(WELL_MIN <= held_out.len());
    }
}
