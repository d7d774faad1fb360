//! `cargo xtask bench tail`: put latency while snapshots are taken and compactions run, next to put latency without.
//!
//! Knows nothing of: members, clients; the library measures.

use std::process::ExitCode;

const USAGE: &str =
    "cargo xtask bench tail [--seconds N (20; beside each thing)] [--rounds N (4)] [--times-not-judged]";

fn main() -> ExitCode {
    let (mut seconds, mut rounds, mut judges_times) = (20_u64, 4_u64, true);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || words.next()?.parse::<u64>().ok().filter(|number| 0 < *number);
        let place = match word.as_str() {
            "--times-not-judged" => {
                judges_times = false;
                continue;
            }
            "--seconds" => &mut seconds,
            "--rounds" => &mut rounds,
            _ => return usage(),
        };
        match number() {
            Some(number) => *place = number,
            None => return usage(),
        }
    }
    if seconds < rounds {
        return usage();
    }
    let report = kattu_e2e::tail::run(seconds, rounds, judges_times, |what| eprintln!("{what}"));
    let ms = |time: u64| time as f64 / 1e6;
    println!("| while | puts | snapshots | compactions | p50, ms | p99, ms | longest, ms |");
    println!("|---|---|---|---|---|---|---|");
    for cell in &report.cells {
        let [p50, p99, longest] = cell.percentiles().map(ms);
        println!(
            "| {} | {} | {} | {} | {p50:.1} | {p99:.1} | {longest:.1} |",
            cell.beside.name(),
            cell.times.len(),
            cell.snapshots,
            cell.compactions
        );
    }
    for fault in &report.faults {
        println!("DOES NOT HOLD: {fault}");
    }
    if report.faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}
