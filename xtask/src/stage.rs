//! A stage: one named piece of a run, with its log, its time, and what it counted.
//!
//! A stage that fails shows its whole log and names the next command; the stages after it still run, unless they need
//! its output. Skipped tests are named and counted. The last line of a run is `N passed, N failed, N skipped`.
//! Knows nothing of: the checks of stages.

use crate::shell::{self, Failure};
use std::path::Path;
use std::time::{Duration, Instant};

/// The counts of a stage.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Tests (or the stage itself, if it has none) that passed.
    pub passed: usize,
    /// Tests that failed.
    pub failed: usize,
    /// Names of tests that did not run, each with its reason.
    pub skipped: Vec<String>,
    /// One line for the final table.
    pub note: String,
}

impl Tally {
    /// The stage is one check, and it passed.
    pub fn one() -> Tally {
        Tally { passed: 1, ..Tally::default() }
    }

    /// The stage could not run here.
    pub fn skipped(what: impl Into<String>) -> Tally {
        Tally { skipped: vec![what.into()], ..Tally::default() }
    }

    /// Reads the output of `cargo test`: its result lines, its ignored tests, and the lines `SKIPPED <test>: <why>` of
    /// tests that found a program missing.
    pub fn of_cargo_test(log: &str) -> Tally {
        let mut tally = Tally::default();
        for line in log.lines() {
            if let Some(result) = line.trim_start().strip_prefix("test result: ") {
                let count = |word: &str| {
                    let before = result.split(word).next().unwrap_or("").trim_end();
                    let digits = before.rsplit([' ', '.', ';']).next().unwrap_or("");
                    digits.parse::<usize>().unwrap_or(0)
                };
                tally.passed += count(" passed");
                tally.failed += count(" failed");
            } else if let Some((name, "ignored")) = line.strip_prefix("test ").and_then(|rest| {
                let (name, verdict) = rest.split_once(" ... ")?;
                Some((name, verdict.split(',').next().unwrap_or("")))
            }) {
                tally.skipped.push(format!("{name}: ignored"));
            }
            // `test name ... SKIPPED …` on one line, when the harness prints the name before the test's own output.
            if let Some(at) = line.find("SKIPPED ") {
                tally.skipped.push(line[at + "SKIPPED ".len()..].to_string());
            }
        }
        // A test that prints SKIPPED returns, so the harness counts it as passed.
        let said_skipped = log.matches("SKIPPED ").count();
        tally.passed = tally.passed.saturating_sub(said_skipped);
        tally
    }
}

/// One piece of a run.
pub struct Stage {
    /// A word; also the name of its log.
    pub name: &'static str,
    /// Its checks, in a few words.
    pub about: &'static str,
    /// The command to run after a failure.
    pub next: &'static str,
    /// Stages whose output this one needs.
    pub needs: &'static [&'static str],
    /// Runs it; output goes to the log at this path.
    pub run: fn(&Path) -> Result<Tally, Failure>,
}

enum Verdict {
    Passed,
    Failed,
    Skipped,
}

struct Line {
    name: &'static str,
    verdict: Verdict,
    tally: Tally,
    took: Duration,
    /// Of all processors of the machine meanwhile, what was built ahead included.
    processors: Duration,
}

/// The kernel's unit of processor time: USER_HZ. [proc_stat(5)]
const TICKS_PER_S: u64 = 100;

/// What the machine's processors have worked since it started; nothing where the kernel does not tell.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    worked(stat.lines().next().unwrap_or_default())
}

/// The work in a line `cpu user nice system idle iowait irq softirq …`.
fn worked(line: &str) -> Duration {
    let numbers = line.split_whitespace().skip(1).map(|word| word.parse::<u64>().unwrap_or(0));
    let idle = 3..=4;
    let ticks: u64 =
        numbers.take(7).enumerate().filter(|(place, _)| !idle.contains(place)).map(|(_, ticks)| ticks).sum();
    Duration::from_millis(ticks * 1000 / TICKS_PER_S)
}

/// Runs stages in order and reports; an error if any failed, with the report already printed.
pub fn run_all(stages: &[&Stage]) -> Result<(), Failure> {
    let (begun, before) = (Instant::now(), processor_time());
    let mut lines: Vec<Line> = Vec::new();
    let mut next = None;
    for stage in stages {
        let missing = stage.needs.iter().find(|need| {
            lines.iter().any(|line| line.name == **need && matches!(line.verdict, Verdict::Failed))
        });
        let line = match missing {
            Some(need) => Line {
                name: stage.name,
                verdict: Verdict::Skipped,
                tally: Tally::skipped(format!("{}: stage `{need}` failed", stage.name)),
                took: Duration::ZERO,
                processors: Duration::ZERO,
            },
            None => run_one(stage),
        };
        if matches!(line.verdict, Verdict::Failed) && next.is_none() {
            next = Some(stage.next);
        }
        lines.push(line);
    }
    report(&lines, begun.elapsed(), processor_time().saturating_sub(before), next)
}

fn run_one(stage: &Stage) -> Line {
    println!("--- {} ({})", stage.name, stage.about);
    let log = shell::log_path(stage.name);
    // The log is of this run only.
    let _ = std::fs::remove_file(&log);
    let (begun, before) = (Instant::now(), processor_time());
    let ended = (stage.run)(&log);
    let (took, processors) = (begun.elapsed(), processor_time().saturating_sub(before));
    let (verdict, tally) = match ended {
        Ok(tally) if 0 < tally.failed => (Verdict::Failed, tally),
        Ok(tally) if tally.passed == 0 && !tally.skipped.is_empty() => (Verdict::Skipped, tally),
        Ok(tally) => (Verdict::Passed, tally),
        Err(failure) => {
            let text = std::fs::read(&log)
                .map(|text| String::from_utf8_lossy(&text).into_owned())
                .unwrap_or_default();
            println!("{text}");
            println!("{}: {failure}", stage.name);
            let mut tally = Tally::of_cargo_test(&text);
            tally.failed = tally.failed.max(1);
            (Verdict::Failed, tally)
        }
    };
    let word = match verdict {
        Verdict::Passed => "ok",
        Verdict::Failed => "FAILED",
        Verdict::Skipped => "skipped",
    };
    println!(
        "    {word} in {:.1} s{}{}",
        took.as_secs_f64(),
        if tally.note.is_empty() { "" } else { ": " },
        tally.note
    );
    Line { name: stage.name, verdict, tally, took, processors }
}

fn report(lines: &[Line], took: Duration, processors: Duration, next: Option<&str>) -> Result<(), Failure> {
    println!(
        "\n{:<14} {:<8} {:>7} {:>7} {:>8} {:>9} {:>10}",
        "stage", "", "passed", "failed", "skipped", "seconds", "processors"
    );
    for line in lines {
        let word = match line.verdict {
            Verdict::Passed => "ok",
            Verdict::Failed => "FAILED",
            Verdict::Skipped => "skipped",
        };
        println!(
            "{:<14} {:<8} {:>7} {:>7} {:>8} {:>9.1} {:>10.1}  {}",
            line.name,
            word,
            line.tally.passed,
            line.tally.failed,
            line.tally.skipped.len(),
            line.took.as_secs_f64(),
            line.processors.as_secs_f64(),
            line.tally.note
        );
    }
    for line in lines {
        for skipped in &line.tally.skipped {
            println!("skipped: {} / {skipped}", line.name);
        }
    }
    let sum = |pick: fn(&Tally) -> usize| lines.iter().map(|line| pick(&line.tally)).sum::<usize>();
    let (passed, failed, skipped) =
        (sum(|tally| tally.passed), sum(|tally| tally.failed), sum(|tally| tally.skipped.len()));
    println!("took {:.0} s, and {:.0} s of processors", took.as_secs_f64(), processors.as_secs_f64());
    if let Some(next) = next {
        println!("a stage failed; its log is above and in target/xtask/");
        println!("next: {next}");
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    // That line must be the last; failures were reported above.
    if failed == 0 { Ok(()) } else { Err(Failure::said()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_work_where_they_are_not_idle() {
        assert_eq!(worked("cpu  100 20 3 5000 600 7 80 900 0 0"), Duration::from_millis(2100));
        assert_eq!(worked(""), Duration::ZERO);
    }

    #[test]
    fn results_of_cargo_test_are_added_up() {
        let log = "running 3 tests\ntest a ... ok\ntest b ... ignored, slow\n\
            test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
            test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out\n";
        let tally = Tally::of_cargo_test(log);
        assert_eq!((tally.passed, tally.failed), (12, 2));
        assert_eq!(tally.skipped, ["b: ignored"]);
    }

    #[test]
    fn a_test_that_found_no_program_counts_as_skipped_not_as_passed() {
        let log = "SKIPPED etcdctl_reads: no etcdctl\n\
            test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n";
        let tally = Tally::of_cargo_test(log);
        assert_eq!(tally.passed, 2);
        assert_eq!(tally.skipped, ["etcdctl_reads: no etcdctl"]);
    }
}
