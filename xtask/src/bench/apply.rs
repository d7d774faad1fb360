//! `cargo xtask bench apply`: processor time and allocations of applying one put.
//!
//! `shell/runtime/examples/apply_put.rs` measures in a process of its own and prints a line for each case; this builds and
//! runs it. Another build of that example runs in turns with this one.
//! Knows nothing of: stores.

use super::alternate::{self, Figures};
use super::report::Header;
use crate::shell::{self, Failure};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(1800);

/// Builds, measures, prints.
pub fn run(words: &[&str]) -> Result<(), Failure> {
    let (against, words) = alternate::take(words, "bench apply")?;
    let keys = super::number_behind("--keys", &words, 1_000_000, "bench apply")?;
    let program = super::example("apply_put")?;
    match against {
        None => {
            Header::now(1, false).print();
            shell::in_foreground(Command::new(program).arg(keys.to_string()))
        }
        Some(against) => against.compare(&program, |path| measure(path, keys)),
    }
}

fn measure(program: &Path, keys: u64) -> Result<Figures, Failure> {
    let text = shell::output(Command::new(program).arg(keys.to_string()), LIMIT)?;
    match figures(&text) {
        figures if figures.is_empty() => {
            Err(Failure::new(format!("{} printed no figures: {text}", program.display())))
        }
        figures => Ok(figures),
    }
}

/// Of each line `| case | nanoseconds | allocations |`.
fn figures(text: &str) -> Figures {
    let mut figures = Figures::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split('|').map(str::trim).collect();
        if let ["", name, nanos, allocations, ""] = fields[..]
            && let (Ok(nanos), Ok(allocations)) = (nanos.parse(), allocations.parse())
        {
            figures.push((format!("{name}, ns"), nanos));
            figures.push((format!("{name}, allocations"), allocations));
        }
    }
    figures
}

#[cfg(test)]
mod tests {
    #[test]
    fn lines_of_cases_are_figures_and_the_head_is_none() {
        let text = "| 10 keys | ns a put | allocations |\n|---|---:|---:|\n| new keys | 812 | 2.05 |\n";
        let expected = [("new keys, ns".to_string(), 812.0), ("new keys, allocations".to_string(), 2.05)];
        assert_eq!(super::figures(text), expected);
    }
}
