//! `cargo xtask bench rivals`: Kattu beside dragonboat, Redis, hashicorp/raft and etcd, on this machine, in one table.
//!
//! ```text
//! rows      each load, its rivals, Kattu's goals             programs  what can be had here
//! measure   one run of one side, with load, redis,           table     medians, spread, goals, JSON
//!           embedded (libraries) and rest (idle, start)
//! ```
//! Rule: sides alternate within a row, and odd runs begin with the last rival, because the machine drifts. Three server
//!       processes (Redis: one) on loopback, on one disk, every acknowledged write synced.
//! Knows nothing of: how servers work.

mod bare;
mod embedded;
pub(super) mod load;
mod measure;
mod programs;
mod redis;
mod rest;
pub(super) mod rows;
pub(super) mod sample;
mod table;

use super::report::Header;
use crate::commands::misused;
use crate::shell::{self, Failure};
use load::Timing;
use measure::Bench;
use programs::Programs;
use rows::{ROWS, Row, Side};
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;
use table::{Run, Skipped};

const QUIET_LIMIT: Duration = Duration::from_secs(30);

struct Options {
    runs: usize,
    rows: Vec<&'static Row>,
    seconds: u64,
    keys: u64,
    warm_up_min: u64,
    quiet_limit: Duration,
    /// No rivals.
    is_alone: bool,
    /// Instead of the build of this tree.
    kattu: Option<PathBuf>,
}

fn options(words: &[&str]) -> Result<Options, Failure> {
    let mut options = Options {
        runs: 5,
        rows: Vec::new(),
        seconds: 5,
        keys: 1_000_000,
        warm_up_min: 0,
        quiet_limit: QUIET_LIMIT,
        is_alone: false,
        kattu: None,
    };
    let mut words = words.iter().copied();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| Failure::usage(format!("{word} needs a value")));
        let number = |text: &str| {
            let number = text.parse::<u64>().ok().filter(|number| 0 < *number);
            number.ok_or_else(|| Failure::usage(format!("{word} {text}: not a number of at least 1")))
        };
        match word {
            "--runs" => options.runs = number(value()?)? as usize,
            "--seconds" => options.seconds = number(value()?)?,
            "--keys" => options.keys = number(value()?)?,
            "--warm-up" => options.warm_up_min = number(value()?)?,
            "--alone" => options.is_alone = true,
            "--kattu" => options.kattu = Some(value()?.into()),
            "--no-wait" => options.quiet_limit = Duration::ZERO,
            "--only" => {
                let name = value()?;
                let names: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
                let row = ROWS.iter().find(|row| row.name == name);
                options.rows.push(row.ok_or_else(|| {
                    Failure::usage(format!("no row `{name}`; there are {}", names.join(", ")))
                })?);
            }
            _ => return Err(misused("bench rivals")),
        }
    }
    if options.rows.is_empty() {
        options.rows = ROWS.iter().collect();
    }
    Ok(options)
}

/// Measures, prints the table, writes JSON to `target/bench/`. An error names what failed and the goals that are missed.
pub fn run(words: &[&str]) -> Result<(), Failure> {
    let Options { runs: count, rows, seconds, keys, warm_up_min, quiet_limit, is_alone, kattu } =
        options(words)?;
    let programs = Programs::fetch(&rows, kattu.as_deref())?;
    let header = Header::now(count, false);
    header.print();
    if let Some(kattu) = &kattu {
        println!("Kattu is {}, whatever the commit above", kattu.display());
    }
    println!("each load {seconds} s after a warm-up; {keys} keys for reads and starts");
    if 0 < warm_up_min {
        println!("each warm-up has at least {warm_up_min} operations");
    }
    let sides = |row, run| match is_alone {
        true => vec![Side::Kattu],
        false => sides(row, run),
    };
    for row in &rows {
        println!("{:<13} {}", row.name, row.about);
    }
    let mut skipped = Vec::new();
    for row in &rows {
        for side in sides(row, 0) {
            if let Some(why) = programs.missing(row, side) {
                println!("skipped: {} {}: {why}", row.name, side.name());
                skipped.push(Skipped { row: row.name, side, why });
            }
        }
    }
    let bench = Bench { programs, timing: Timing { seconds, warm_up_min, quiet_limit }, keys };
    let (mut runs, mut failed, mut number) = (Vec::new(), Vec::new(), 0);
    for run in 0..count {
        for row in &rows {
            for side in sides(row, run) {
                if skipped.iter().any(|gap| gap.row == row.name && gap.side == side) {
                    continue;
                }
                number += 1;
                let name = format!("run {} {} {}", run + 1, row.name, side.name());
                match bench.run(row, side, number) {
                    Ok(sample) => {
                        println!("{name}: {}", sample.line());
                        runs.push(Run { row: row.name, side, run, sample });
                    }
                    Err(failure) => {
                        println!("{name}: FAILED: {failure}");
                        failed.push(format!("{name}: {failure}"));
                    }
                }
            }
        }
    }
    println!("\n{}\n", table::lines(&runs, &skipped).join("\n"));
    let (lines, missed) = table::goals(&runs, &rows);
    println!("{}", lines.join("\n"));
    let settings = json!({"seconds": seconds, "keys": keys, "warm_up_min": warm_up_min, "failed": failed});
    let path = table::save(&header, settings, &runs, &skipped)?;
    println!("\nall runs: {}", path.strip_prefix(shell::root()).unwrap_or(&path).display());
    match (&failed[..], missed.len()) {
        ([], 0) => Ok(()),
        ([], missed) => Err(Failure::new(format!("goals above that do not hold: {missed}"))),
        (failed, _) => Err(Failure::new(failed.join("\n"))),
    }
}

/// The sides of a row, in the order of this run.
fn sides(row: &Row, run: usize) -> Vec<Side> {
    let mut sides: Vec<Side> = [Side::Kattu].iter().chain(row.rivals).copied().collect();
    if run % 2 == 1 {
        sides.reverse();
    }
    sides
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_words_all_rows_are_measured_five_times() {
        let options = options(&[]).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!((options.runs, options.rows.len(), options.keys), (5, ROWS.len(), 1_000_000));
    }

    #[test]
    fn rows_are_chosen_by_name_and_wrong_words_are_refused() {
        let words = [
            &["--only", "idle", "--only", "start", "--runs", "1", "--seconds", "3", "--no-wait"][..],
            &["--warm-up", "7", "--alone"],
        ]
        .concat();
        let chosen = options(&words).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(chosen.rows.iter().map(|row| row.name).collect::<Vec<_>>(), ["idle", "start"]);
        assert_eq!((chosen.runs, chosen.seconds, chosen.quiet_limit), (1, 3, Duration::ZERO));
        assert_eq!((chosen.warm_up_min, chosen.is_alone), (7, true));
        for wrong in [&["--only", "nothing"][..], &["--runs", "0"], &["--runs"], &["--pairs", "3"]] {
            assert!(options(wrong).is_err_and(|failure| failure.code == 2), "{wrong:?}");
        }
    }

    #[test]
    fn sides_alternate_and_odd_runs_begin_with_the_last_rival() {
        let row = &ROWS[0];
        assert_eq!(sides(row, 0), [Side::Kattu, Side::Dragonboat, Side::Redis, Side::Machine]);
        assert_eq!(sides(row, 1), [Side::Machine, Side::Redis, Side::Dragonboat, Side::Kattu]);
    }
}
