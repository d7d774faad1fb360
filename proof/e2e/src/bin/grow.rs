//! `cargo xtask grow`: a cluster grows from one member to five and shrinks to three under load; prints the longest gap
//! between two acknowledged writes.
//!
//! Knows nothing of: members, clients; the library measures.

use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "cargo xtask grow [--election-timeout MS (1000)]";

fn main() -> ExitCode {
    let mut election_timeout_ms = 1_000_u64;
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let number = words.next().and_then(|text| text.parse::<u64>().ok()).filter(|number| 0 < *number);
        match (word.as_str(), number) {
            ("--election-timeout", Some(number)) => election_timeout_ms = number,
            _ => {
                eprintln!("{USAGE}");
                return ExitCode::from(2);
            }
        }
    }
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let report = kattu_e2e::grow::run(Duration::from_millis(election_timeout_ms), |step| {
        println!(
            "{:<34} took {:>7.0} ms, longest gap between two acknowledged writes {:>6.0} ms",
            step.what,
            ms(step.took),
            ms(step.gap)
        );
    });
    println!(
        "longest gap {:.0} ms; {} puts acknowledged, {} of them lost",
        ms(report.longest_gap()),
        report.acknowledged,
        report.lost.len()
    );
    for key in report.lost.iter().take(20) {
        println!("lost: {key}");
    }
    let is_good = report.lost.is_empty() && report.longest_gap() <= report.election_timeout;
    println!(
        "goal: at most one election timeout ({election_timeout_ms} ms), nothing lost: {}",
        if is_good { "holds" } else { "DOES NOT HOLD" }
    );
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
