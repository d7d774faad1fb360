//! The table: medians with their spread, and whether each goal holds. Slow runs are included.
//!
//! Knows nothing of: how the figures were taken.

use super::rows::{Bound, Goal, ROWS, Row, Side};
use super::sample::{Figure, Sample, number};
use crate::bench::report::{Header, median_of};
use crate::shell::{self, Failure};
use serde_json::{Map, Value, json};
use std::path::PathBuf;

/// One run of one side.
#[derive(Clone, Debug)]
pub struct Run {
    /// Its row.
    pub row: &'static str,
    /// The side.
    pub side: Side,
    /// From 0.
    pub run: usize,
    /// The figures.
    pub sample: Sample,
}

/// A side of a row that was not measured.
#[derive(Clone, Debug)]
pub struct Skipped {
    /// The row.
    pub row: &'static str,
    /// The side.
    pub side: Side,
    /// Why.
    pub why: String,
}

/// The middle of several runs, and their ends.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Spread {
    median: f64,
    min: f64,
    max: f64,
    runs: usize,
}

fn spread(runs: &[Run], row: &str, side: Side, figure: Figure) -> Option<Spread> {
    let values: Vec<f64> = runs
        .iter()
        .filter(|run| run.row == row && run.side == side)
        .filter_map(|run| run.sample.figures.get(&figure).copied())
        .collect();
    let min = values.iter().copied().reduce(f64::min)?;
    let max = values.iter().copied().reduce(f64::max)?;
    Some(Spread { median: median_of(&values, |value| *value), min, max, runs: values.len() })
}

fn cell(spread: Option<Spread>) -> String {
    match spread {
        None => String::new(),
        Some(Spread { median, runs: 1, .. }) => number(median),
        Some(Spread { median, min, max, .. }) => {
            format!("{} ({}..{})", number(median), number(min), number(max))
        }
    }
}

/// The lines of the table, in Markdown: one for each side of each row.
pub fn lines(runs: &[Run], skipped: &[Skipped]) -> Vec<String> {
    let shown = |figure: &Figure| runs.iter().any(|run| run.sample.figures.contains_key(figure));
    let figures: Vec<Figure> = Figure::ALL.into_iter().filter(shown).collect();
    let names: Vec<&str> = figures.iter().map(|figure| figure.name()).collect();
    let mut lines = vec![
        format!("| row | side | {} |", names.join(" | ")),
        format!("|---|---|{}", "---:|".repeat(figures.len())),
    ];
    for row in ROWS {
        for side in [Side::Kattu].iter().chain(row.rivals) {
            let cells: Vec<String> = figures
                .iter()
                .map(|figure| match figure {
                    Figure::ClientCpu if side.has_clients_inside() => "in the servers'".to_string(),
                    figure => cell(spread(runs, row.name, *side, *figure)),
                })
                .collect();
            if runs.iter().any(|run| run.row == row.name && run.side == *side) {
                lines.push(format!("| {} | {} | {} |", row.name, side.name(), cells.join(" | ")));
            } else if let Some(gap) = skipped.iter().find(|gap| gap.row == row.name && gap.side == *side) {
                lines.push(format!("| {} | {} | SKIPPED: {} |", row.name, side.name(), gap.why));
            }
        }
    }
    lines
}

/// Where the machine alone does not reach a goal, Kattu's figure is at most so many times the machine's.
const NEAR: f64 = 1.5;

/// What became of a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Holds,
    /// The machine alone misses it, too, and Kattu is as near to the machine as it must be.
    AtLimit,
    Missed,
    /// A side that it is about has no figure.
    Unknown,
}

fn judge(runs: &[Run], row: &Row, goal: &Goal) -> (Option<f64>, Verdict) {
    let median = |side| spread(runs, row.name, side, goal.figure).map(|spread| spread.median);
    let measured = |of: Side| match goal.times {
        None => median(of),
        Some(side) => Some(median(of)? / median(side).filter(|other| *other != 0.0)?),
    };
    let value = measured(Side::Kattu);
    let reaches = |value: f64| match goal.bound {
        Bound::AtLeast => goal.limit <= value,
        Bound::AtMost => value <= goal.limit,
    };
    let is_near = |times: f64| match goal.bound {
        Bound::AtLeast => 1.0 / NEAR <= times,
        Bound::AtMost => times <= NEAR,
    };
    let machine = measured(Side::Machine);
    let verdict = match value {
        None => Verdict::Unknown,
        Some(value) if reaches(value) => Verdict::Holds,
        Some(value) if machine.is_some_and(|machine| !reaches(machine) && is_near(value / machine)) => {
            Verdict::AtLimit
        }
        Some(_) => Verdict::Missed,
    };
    (value, verdict)
}

/// Kattu's figure by the machine's alone, if the row has both.
fn beside_machine(runs: &[Run], row: &Row, goal: &Goal) -> Option<f64> {
    let median = |side| Some(spread(runs, row.name, side, goal.figure)?.median);
    Some(median(Side::Kattu)? / median(Side::Machine).filter(|machine| *machine != 0.0)?)
}

/// A line for each goal of these rows, and those that are missed.
pub fn goals(runs: &[Run], rows: &[&Row]) -> (Vec<String>, Vec<String>) {
    let (mut lines, mut missed) = (Vec::new(), Vec::new());
    for row in rows {
        for goal in row.goals {
            let (value, verdict) = judge(runs, row, goal);
            let sign = if goal.bound == Bound::AtLeast { "≥" } else { "≤" };
            let of = goal.times.map(|side| format!(" times {}'s", side.name())).unwrap_or_default();
            let (measured, said) = match verdict {
                Verdict::Holds => (value.map(number), "holds"),
                Verdict::AtLimit => (value.map(number), "the machine alone does not reach it"),
                Verdict::Missed => (value.map(number), "DOES NOT HOLD"),
                Verdict::Unknown => (None, "not measured"),
            };
            let of_machine = beside_machine(runs, row, goal).map(number);
            let of_machine = of_machine.map(|times| format!(", {times} times the machine alone"));
            let line = format!(
                "goal {}: {} {sign} {}{of}: {} {said}{}",
                row.name,
                goal.figure.name(),
                number(goal.limit),
                measured.unwrap_or_else(|| "-".to_string()),
                of_machine.unwrap_or_default()
            );
            missed.extend((verdict == Verdict::Missed).then(|| line.clone()));
            lines.push(line);
        }
    }
    (lines, missed)
}

/// Writes every run to a file, from which the table can be made again.
pub fn save(header: &Header, settings: Value, runs: &[Run], skipped: &[Skipped]) -> Result<PathBuf, Failure> {
    let folder = shell::root().join("target/bench");
    std::fs::create_dir_all(&folder)?;
    let path = folder.join(format!("rivals-{}.json", header.date().replace(':', "")));
    let of_run = |run: &Run| {
        let figures: Map<String, Value> = run
            .sample
            .figures
            .iter()
            .map(|(figure, value)| (figure.name().to_string(), json!(value)))
            .collect();
        json!({
            "row": run.row, "side": run.side.name(), "run": run.run + 1, "errors": run.sample.errors,
            "figures": figures,
        })
    };
    let of_gap = |gap: &Skipped| json!({"row": gap.row, "side": gap.side.name(), "why": gap.why});
    let all = json!({
        "header": header.json(),
        "settings": settings,
        "runs": runs.iter().map(of_run).collect::<Vec<_>>(),
        "skipped": skipped.iter().map(of_gap).collect::<Vec<_>>(),
    });
    std::fs::write(&path, format!("{all:#}\n"))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(row: &'static str, side: Side, run: usize, figures: &[(Figure, f64)]) -> Run {
        let mut sample = Sample::default();
        figures.iter().for_each(|(figure, value)| sample.add(*figure, *value));
        Run { row, side, run, sample }
    }

    fn row(name: &str) -> &'static Row {
        ROWS.iter().find(|row| row.name == name).expect("a row of this name")
    }

    #[test]
    fn a_cell_has_the_median_and_both_ends_of_all_runs() {
        let runs: Vec<Run> = [300.0, 100.0, 200.0, 9_000.0]
            .iter()
            .enumerate()
            .map(|(i, rate)| run("put-16", Side::Kattu, i, &[(Figure::Rate, *rate)]))
            .collect();
        let of = |row| cell(spread(&runs, row, Side::Kattu, Figure::Rate));
        assert_eq!(of("put-16"), "250.0 (100.0..9000)");
        assert_eq!(of("put-256"), "", "another row's runs are not its own");
        assert_eq!(cell(spread(&runs[..1], "put-16", Side::Kattu, Figure::Rate)), "300.0");
    }

    #[test]
    fn the_table_has_a_line_for_each_side_and_names_what_was_skipped() {
        let runs = [
            run("put-16", Side::Kattu, 0, &[(Figure::Rate, 5e5), (Figure::ClientCpu, 1.5)]),
            run("put-16", Side::Dragonboat, 0, &[(Figure::Rate, 1e5)]),
        ];
        let gap = Skipped { row: "put-16", side: Side::Redis, why: "no apt-get".into() };
        assert_eq!(
            lines(&runs, &[gap]),
            [
                "| row | side | ops/s | CPU of the clients, µs/op |",
                "|---|---|---:|---:|",
                "| put-16 | Kattu | 500000 | 1.50 |",
                "| put-16 | dragonboat | 100000 | in the servers' |",
                "| put-16 | Redis, one node | SKIPPED: no apt-get |",
            ]
        );
    }

    #[test]
    fn a_goal_holds_at_its_limit_and_is_missed_beyond() {
        let of = |rate: f64, cpu: f64| {
            let figures = [(Figure::Rate, rate), (Figure::ServerCpu, cpu)];
            let (lines, missed) = goals(&[run("put-16", Side::Kattu, 0, &figures)], &[row("put-16")]);
            assert_eq!(lines.len(), 2);
            missed.len()
        };
        assert_eq!((of(500_000.0, 4.0), of(499_999.0, 4.0), of(500_000.0, 4.01)), (0, 1, 1));
    }

    #[test]
    fn a_goal_that_the_machine_misses_too_is_met_near_the_machine() {
        let said = |kattu, machine| {
            let of = |side, p50| run("put-one", side, 0, &[(Figure::P50, p50)]);
            goals(&[of(Side::Kattu, kattu), of(Side::Machine, machine)], &[row("put-one")])
        };
        let (lines, missed) = said(0.73, 0.5);
        assert!(missed.is_empty() && lines[0].contains("the machine alone does not reach it, 1.46 times"));
        assert_eq!(said(0.77, 0.5).1.len(), 1, "too far from it");
        assert_eq!(said(0.6, 0.45).1.len(), 1, "the machine reaches it");
        assert!(said(0.4, 0.5).1.is_empty());
    }

    #[test]
    fn a_goal_beside_etcd_is_a_ratio_of_medians_and_unknown_without_etcd() {
        let kattu = |p50| run("etcd-put-one", Side::Kattu, 0, &[(Figure::P50, p50)]);
        let etcd = run("etcd-put-one", Side::Etcd, 0, &[(Figure::P50, 1.2)]);
        let of = |runs: &[Run]| goals(runs, &[row("etcd-put-one")]);
        assert!(of(&[kattu(0.6), etcd.clone()]).1.is_empty());
        let (_, missed) = of(&[kattu(0.9), etcd.clone()]);
        assert_eq!(missed, ["goal etcd-put-one: p50, ms ≤ 0.500 times etcd's: 0.750 DOES NOT HOLD"]);
        let machine = |p50| run("etcd-put-one", Side::Machine, 0, &[(Figure::P50, p50)]);
        assert!(
            of(&[kattu(0.9), etcd.clone(), machine(0.61)]).1.is_empty(),
            "the machine misses half of etcd's, too"
        );
        assert_eq!(of(&[kattu(0.9), etcd, machine(0.6)]).1.len(), 1, "the machine reaches it");
        let (lines, missed) = of(&[kattu(0.9)]);
        assert!(missed.is_empty() && lines[0].ends_with("- not measured"), "{lines:?}");
    }
}
