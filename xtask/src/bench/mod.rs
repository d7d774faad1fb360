//! `cargo xtask bench`: Kattu's costs, next to etcd's on the same machine.
//!
//! Knows nothing of: how servers work; it starts real ones and reads `/proc`.

mod alternate;
pub mod apply;
pub mod baseline;
mod cells;
pub mod cluster;
pub mod costs;
pub mod counts;
pub mod digest;
pub mod instructions;
pub mod memory;
mod meter;
pub mod pairs;
pub mod pause;
pub mod record;
pub mod replay;
mod report;
pub mod rivals;
pub mod rotation;
pub mod sectors;
pub mod sessions;
pub mod stages;
pub mod threads;
pub mod tls;
pub mod trend;

use crate::commands;
use crate::rigs;
use crate::shell::{self, Failure};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// The number behind the only flag of a bench, or this one if no word is left.
fn number_behind(flag: &str, words: &[&str], otherwise: u64, command: &str) -> Result<u64, Failure> {
    match words {
        [] => Ok(otherwise),
        [word, text] if *word == flag => {
            text.parse().map_err(|_| Failure::usage(format!("{flag} {text}: not a number")))
        }
        _ => Err(commands::misused(command)),
    }
}

/// Builds an example of `kattu-runtime`, for benches that measure in a process of their own, and returns its path.
fn example(name: &str) -> Result<PathBuf, Failure> {
    let mut build =
        shell::cargo(&["build", "--locked", "--release", "-p", "kattu-runtime", "--example", name]);
    shell::run_logged(&mut build, &shell::log_path(name), Duration::from_secs(1800))?;
    Ok(shell::target().join("release/examples").join(name))
}

/// `cargo xtask bench failover …`: how long no put is acknowledged when a leader dies.
pub fn gaps(words: &[&str]) -> Result<(), Failure> {
    let (against, words) = alternate::take(words, "bench failover")?;
    let (target, rest) = match words.iter().position(|word| *word == "--target") {
        Some(at) => {
            let target = words.get(at + 1).copied().unwrap_or_default();
            (target, [&words[..at], words.get(at + 2..).unwrap_or(&[])].concat())
        }
        None => ("kattu", words),
    };
    let of = |path: &Path| {
        let mut gaps = rigs::program("gaps", &rest, rigs::Purpose::Measure);
        gaps.env("KATTU_BIN", path);
        gaps
    };
    match (target, against) {
        ("kattu", None) => rigs::in_foreground("gaps", &rest),
        ("kattu", Some(against)) => {
            rigs::build_in_foreground()?;
            let kattu = shell::kattu()?;
            // Its exit code judges the goals: here both sides are compared, and no write may be lost.
            against.compare(&kattu, |path| {
                let output = of(path).stdin(Stdio::null()).output()?;
                let text = String::from_utf8_lossy(&output.stdout);
                match text.contains(" 0 lost") {
                    true => Ok(of_gaps(&text)),
                    false => Err(Failure::new(format!("{}: {text}", path.display()))),
                }
            })
        }
        ("etcd", None) => {
            let etcd = shell::tools_dir().join("etcd36/etcd");
            if !etcd.exists() {
                return Err(Failure::new(format!("no {}", etcd.display())).then("cargo xtask tools"));
            }
            rigs::build_in_foreground()?;
            shell::in_foreground(&mut of(&etcd))
        }
        ("etcd", Some(_)) => Err(Failure::usage("--against compares two Kattu binaries")),
        _ => Err(commands::misused("bench failover")),
    }
}

/// The lines `median 12.3 ms` and the like of what `gaps` prints.
fn of_gaps(text: &str) -> alternate::Figures {
    let figure = |line: &str| {
        let (name, value) = line.trim().strip_suffix(" ms")?.rsplit_once(' ')?;
        let is_figure = ["median", "90 %", "99 %"].contains(&name.trim());
        is_figure.then_some((format!("{}, ms", name.trim()), value.parse().ok()?))
    };
    text.lines().filter_map(figure).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_bench_takes_its_flag_with_a_number_or_nothing() {
        let keys = |words: &[&str]| super::number_behind("--keys", words, 7, "bench apply");
        assert_eq!((keys(&[]).ok(), keys(&["--keys", "3"]).ok()), (Some(7), Some(3)));
        for wrong in [&["--keys"][..], &["--keys", "many"], &["--total", "3"], &["--keys", "3", "4"]] {
            assert!(keys(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn shares_of_the_gaps_are_read_and_the_histogram_is_not() {
        let text = "  20 of 20: this one 9.9 ms\n  10-20 ms     9 ####\n     min       8.0 ms\n  median      12.3 ms\n    99 %      45.0 ms\n";
        assert_eq!(super::of_gaps(text), [("median, ms".to_string(), 12.3), ("99 %, ms".to_string(), 45.0)]);
    }
}
