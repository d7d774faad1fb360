//! `cargo xtask bench snapshot-pause`: how long a snapshot blocks the thread that owns the tables.
//!
//! `shell/runtime/examples/snapshot_pause.rs` measures in a process of its own and prints the tables; this builds it
//! and runs it twice: as the real binary, which returns memory to the system on a thread of its own
//! (`shell/runtime/src/memory.rs`), and with the allocator's default, which does it on any allocating thread.
//! Knows nothing of: stores, snapshots.

use super::alternate::{self, Figures};
use super::report::Header;
use crate::shell::{self, Failure};
use std::process::{Command, Stdio};

/// mimalloc's default delay. If it is set explicitly it stays, and that thread is not started.
const MIMALLOCS_OWN_MS: &str = "1000";

/// With `--against`: seconds of load with and without a snapshot, in each run.
const SECONDS_OF_PAIR: &str = "3";

/// Builds, measures, prints.
pub fn run(words: &[&str]) -> Result<(), Failure> {
    let (against, words) = alternate::take(words, "bench snapshot-pause")?;
    let keys = super::number_behind("--keys", &words, 1_000_000, "bench snapshot-pause")?;
    let program = super::example("snapshot_pause")?;
    let keys = keys.to_string();
    if let Some(against) = against {
        return against.compare(&program, |program| {
            // Its exit code judges the longest step of one run: here both sides are compared.
            let output =
                Command::new(program).args([&keys, SECONDS_OF_PAIR]).stdin(Stdio::null()).output()?;
            Ok(figures(&String::from_utf8_lossy(&output.stdout)))
        });
    }
    Header::now(1, false).print();
    let as_it_is = shell::in_foreground(Command::new(&program).arg(&keys));
    println!("\nThe same, with memory returned by the allocator itself:\n");
    let mut by_itself = Command::new(program);
    let _compared = shell::in_foreground(by_itself.arg(keys).env("MIMALLOC_PURGE_DELAY", MIMALLOCS_OWN_MS));
    as_it_is // the goal is for the binary as it is
}

/// The times of steps, and the processor time to make a snapshot and to read it back, from the tables that are printed.
fn figures(text: &str) -> Figures {
    let mut figures = Figures::new();
    for line in text.lines() {
        let columns: Vec<&str> = line.split('|').map(|column| column.trim().trim_matches('*')).collect();
        let names: &[(usize, &str)] = match columns[..] {
            ["", _, _, _, _, _, _, _, ""]
                if columns[1].contains("a snapshot") || columns[1].contains("no snapshot") =>
            {
                &[(3, "median, us"), (4, "p99, us"), (6, "longest, ms")]
            }
            ["", _, _, _, _, _, _, ""] => &[(5, "CPU to make it, s"), (6, "CPU to read it back, s")],
            _ => &[],
        };
        for (column, name) in names {
            if let Ok(value) = columns[*column].parse() {
                figures.push((format!("{}: {name}", columns[1]), value));
            }
        }
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_of_both_tables_are_read() {
        let text = "| What | steps | median, µs | p99, µs | p99.9, µs | longest, ms | of which: |\n\
            | the machine alone: arithmetic | 9 | 1.0 | 1.1 | 2.0 | **0.10** | arithmetic 0.10 |\n\
            | 5 keys: during a snapshot | 9 | 3.9 | 20.5 | 60.0 | **1.25** | put 1.25, delete 0.2 |\n\
            | What | keeper, MB | snapshot, MB | extra | CPU to make it, s | CPU to read it back, s |\n\
            | 5 keys | 10 | 9 | 1.5 | 0.25 | 0.75 |\n";
        let expected = [
            ("5 keys: during a snapshot: median, us", 3.9),
            ("5 keys: during a snapshot: p99, us", 20.5),
            ("5 keys: during a snapshot: longest, ms", 1.25),
            ("5 keys: CPU to make it, s", 0.25),
            ("5 keys: CPU to read it back, s", 0.75),
        ];
        let expected: Figures = expected.iter().map(|(name, value)| (name.to_string(), *value)).collect();
        assert_eq!(figures(text), expected);
    }
}
