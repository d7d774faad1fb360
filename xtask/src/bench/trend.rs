//! `cargo xtask bench trend`: how the recorded costs of a put have moved.
//!
//! In:    the lines of `docs/figures/costs.csv`.
//! Out:   a note of one line: the last line against the line before and against the best; a table of the last lines, each
//!        figure with a plot.
//! Rules: lower is better in every column, and the best is the lowest value before the last line. Changes of up to one
//!        per cent are not shown: the rounds of one measurement differ by as much.
//! Knows nothing of: what is counted.

use super::costs::{self, Column, Line};
use crate::shell::Failure;

/// Lines in the table.
const SHOWN: usize = 10;
/// A figure has moved if it differs by more than this share.
const MOVED: f64 = 0.01;
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Prints the table and the note.
pub fn run(words: &[&str]) -> Result<(), Failure> {
    if !words.is_empty() {
        return Err(Failure::usage("cargo xtask bench trend"));
    }
    let lines = costs::parse(&costs::text()?)?;
    print!("{}", table(&lines));
    println!("{}", note(&lines));
    Ok(())
}

/// The figures that moved, on one line.
pub(super) fn note(lines: &[Line]) -> String {
    let [earlier @ .., last] = lines else {
        return "no line yet (cargo xtask bench record)".into();
    };
    let Some(before) = earlier.last() else { return "1 line".into() };
    let moved: Vec<String> = costs::columns()
        .iter()
        .enumerate()
        .filter_map(|(at, column)| moved(column, at, earlier, last))
        .collect();
    let machine = if before.machine == last.machine { "" } else { ", on another machine" };
    let count = lines.len();
    match moved.is_empty() {
        true => format!("{count} lines; no figure moved by more than 1 % since {}{machine}", before.commit),
        false => format!(
            "{count} lines; {} against {}{machine} (and against the best): {}",
            last.commit,
            before.commit,
            moved.join(", ")
        ),
    }
}

/// The changes of one figure, if it moved.
fn moved(column: &Column, at: usize, earlier: &[Line], last: &Line) -> Option<String> {
    let now = last.figures[at]?;
    let best = earlier.iter().filter_map(|line| line.figures[at]).min_by(f64::total_cmp)?;
    let before = earlier.last().and_then(|line| line.figures[at]);
    let has_moved = |from: f64| MOVED < change(from, now).abs();
    if !has_moved(best) && !before.is_some_and(has_moved) {
        return None;
    }
    let before = before.map_or("not measured before".into(), |before| per_cent(before, now));
    Some(format!("{} {before} ({})", column.name(), per_cent(best, now)))
}

/// The change as a share; infinite if there was nothing before.
fn change(from: f64, to: f64) -> f64 {
    if from == to { 0.0 } else { (to - from) / from }
}

fn per_cent(from: f64, to: f64) -> String {
    let change = change(from, to);
    if change.is_infinite() { "up from 0".into() } else { format!("{:+.1} %", 100.0 * change) }
}

/// The last lines: their commits, then a row for each figure.
fn table(lines: &[Line]) -> String {
    let lines = &lines[lines.len().saturating_sub(SHOWN)..];
    if lines.is_empty() {
        return String::new();
    }
    let mut text = String::new();
    for line in lines {
        text += &format!("{}  {}  {}\n", line.date, line.commit, line.machine);
    }
    let short = |line: &Line| line.commit.chars().take(7).collect::<String>();
    let mut rows = vec![row("figure".into(), lines.iter().map(short), "plot".into())];
    for (at, column) in costs::columns().iter().enumerate() {
        let values: Vec<Option<f64>> = lines.iter().map(|line| line.figures[at]).collect();
        rows.push(row(column.head(), values.iter().map(|value| column.cell(*value)), plot(&values)));
    }
    text + "\n"
        + &aligned(&rows)
        + "\nplot: from the lowest value shown; a step is 1 % of it, or a seventh of the spread if that is more\n"
}

fn row(name: String, cells: impl Iterator<Item = String>, plot: String) -> Vec<String> {
    std::iter::once(name).chain(cells).chain(std::iter::once(plot)).collect()
}

/// A table in Markdown, its columns equally wide in every row: the first and the last to the left, others to the right.
fn aligned(rows: &[Vec<String>]) -> String {
    let last = rows[0].len() - 1;
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..=last).map(width).collect();
    let is_left = |at: usize| at == 0 || at == last;
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
            text += &if is_left(at) { format!("| {cell:<width$} ") } else { format!("| {cell:>width$} ") };
        }
        text += "|\n";
        if number == 0 {
            for (at, width) in widths.iter().enumerate() {
                text += &format!("|{}{}", "-".repeat(width + 1), if is_left(at) { "-" } else { ":" });
            }
            text += "|\n";
        }
    }
    text
}

/// One block for each value, a space for none. One step is at least 1 % of the lowest, so that noise stays flat.
fn plot(values: &[Option<f64>]) -> String {
    let known = || values.iter().copied().flatten();
    let (low, high) =
        known().fold((f64::MAX, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
    let steps = BLOCKS.len() - 1;
    let step = (MOVED * low).max((high - low) / steps as f64);
    let level = |value: f64| if step <= 0.0 { 0 } else { ((value - low) / step).round() as usize };
    values.iter().map(|value| value.map_or(' ', |value| BLOCKS[level(value).min(steps)])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::costs::sample;

    /// Lines with these values of the first figure; the others stay.
    fn lines(values: &[Option<f64>]) -> Vec<Line> {
        let line = |(day, value): (u32, &Option<f64>)| {
            let mut line = sample(day, Some(1.0));
            line.figures[0] = *value;
            line
        };
        (1..).zip(values).map(line).collect()
    }

    fn note_of(values: &[f64]) -> String {
        note(&lines(&values.iter().copied().map(Some).collect::<Vec<_>>()))
    }

    #[test]
    fn a_trend_needs_two_lines() {
        assert_eq!(note(&[]), "no line yet (cargo xtask bench record)");
        assert_eq!(note_of(&[100.0]), "1 line");
    }

    #[test]
    fn a_figure_is_shown_if_it_moved_by_more_than_one_per_cent() {
        let head = "000000000002 against 000000000001 (and against the best): instructions leader";
        assert_eq!(note_of(&[100.0, 103.0]), format!("2 lines; {head} +3.0 % (+3.0 %)"));
        assert_eq!(note_of(&[100.0, 98.0]), format!("2 lines; {head} -2.0 % (-2.0 %)"));
        let still = "2 lines; no figure moved by more than 1 % since 000000000001";
        assert_eq!(note_of(&[100.0, 101.0]), still);
        assert_eq!(note_of(&[100.0, 99.0]), still);
        assert_eq!(note_of(&[0.0, 0.0]), still);
        assert_eq!(note_of(&[0.0, 1.0]), format!("2 lines; {head} up from 0 (up from 0)"));
    }

    #[test]
    fn small_steps_up_are_seen_against_the_best() {
        let note = note_of(&[105.0, 100.0, 100.9, 101.8]);
        assert!(note.ends_with("(and against the best): instructions leader +0.9 % (+1.8 %)"), "{note}");
        // A new best is compared with the best before it.
        let note = note_of(&[100.0, 120.0, 90.0]);
        assert!(note.ends_with("instructions leader -25.0 % (-10.0 %)"), "{note}");
    }

    #[test]
    fn a_figure_that_was_not_measured_is_compared_with_the_lines_that_have_it() {
        let note = |values: &[Option<f64>]| note(&lines(values));
        let moved = note(&[Some(100.0), None, Some(110.0)]);
        assert!(moved.ends_with("instructions leader not measured before (+10.0 %)"), "{moved}");
        assert!(note(&[Some(100.0), None]).contains("no figure moved"));
        assert!(note(&[None, Some(100.0)]).contains("no figure moved"));
    }

    #[test]
    fn another_machine_is_named() {
        let mut lines = lines(&[Some(100.0), Some(103.0)]);
        lines[0].machine = "96 cores".into();
        assert!(note(&lines).contains("against 000000000001, on another machine (and"), "{}", note(&lines));
    }

    #[test]
    fn a_plot_has_a_block_for_each_value() {
        let plot_of = |values: &[f64]| plot(&values.iter().copied().map(Some).collect::<Vec<_>>());
        assert_eq!(plot(&[]), "");
        assert_eq!(plot(&[None, None]), "  ");
        assert_eq!(plot(&[Some(1.0), None, Some(2.0)]), "▁ █");
        assert_eq!(plot_of(&[0.0, 0.0]), "▁▁");
        assert_eq!(plot_of(&[0.0, 7.0, 1.0]), "▁█▂");
        assert_eq!(plot_of(&[100.0, 170.0, 110.0, 140.0]), "▁█▂▅");
        // Less than half of one per cent is flat; one per cent is one step.
        assert_eq!(plot_of(&[100.0, 100.4, 101.0, 103.0]), "▁▁▂▄");
    }

    #[test]
    fn a_table_shows_the_last_ten_lines() {
        let values: Vec<Option<f64>> = (0..12).map(|n| Some(1000.0 + 10.0 * f64::from(n))).collect();
        let table = table(&lines(&values));
        assert!(!table.contains("2026-11-02T") && table.contains("2026-11-03T"));
        let rows: Vec<&str> = table.lines().filter(|line| line.starts_with('|')).collect();
        assert_eq!(rows.len(), 2 + costs::columns().len());
        assert!(rows[2].starts_with("| instructions leader (1/put) "), "{}", rows[2]);
        assert!(rows[2].contains("|    1020 |") && rows[2].contains("|    1110 |"), "{}", rows[2]);
        assert!(rows[2].ends_with("| ▁▂▃▃▄▅▆▆▇█ |"), "{}", rows[2]);
        let widths: Vec<usize> = rows.iter().map(|row| row.chars().count()).collect();
        assert!(widths.iter().all(|width| *width == widths[0]), "{table}");
        assert_eq!(super::table(&[]), "");
    }
}
