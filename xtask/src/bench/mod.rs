//! `cargo xtask bench`: Kattu's costs, next to etcd's on the same machine.
//!
//! Knows nothing of: how servers work; it starts real ones and reads `/proc`.

mod alternate;
pub mod apply;
pub mod baseline;
mod cells;
mod cluster;
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
pub mod rotation;
pub mod sectors;
pub mod tls;
pub mod trend;

use crate::commands;
use crate::rigs;
use crate::shell::{self, Failure};
use std::path::Path;
use std::process::Stdio;

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
    fn shares_of_the_gaps_are_read_and_the_histogram_is_not() {
        let text = "  20 of 20: this one 9.9 ms\n  10-20 ms     9 ####\n     min       8.0 ms\n  median      12.3 ms\n    99 %      45.0 ms\n";
        assert_eq!(super::of_gaps(text), [("median, ms".to_string(), 12.3), ("99 %, ms".to_string(), 45.0)]);
    }
}
