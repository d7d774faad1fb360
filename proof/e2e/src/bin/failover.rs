//! `cargo xtask failover`: kills leaders under load and prints how long the service was unavailable.
//!
//! Knows nothing of: members, clients; the library measures.

use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "cargo xtask failover [--kills N (30)] [--election-timeout MS (1000)]";
/// The goals, in election timeouts.
const MEDIAN_MAX: f64 = 2.0;
const MAX_MAX: f64 = 4.0;

fn main() -> ExitCode {
    let (mut kills, mut election_timeout_ms) = (30_usize, 1_000_u64);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let number = words.next().and_then(|text| text.parse::<u64>().ok()).filter(|number| 0 < *number);
        match (word.as_str(), number) {
            ("--kills", Some(number)) => kills = number as usize,
            ("--election-timeout", Some(number)) => election_timeout_ms = number,
            _ => {
                eprintln!("{USAGE}");
                return ExitCode::from(2);
            }
        }
    }
    let timeout = Duration::from_millis(election_timeout_ms);
    let report = kattu_e2e::kills::run(kills, timeout, |kill, outage, stall| {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        println!(
            "kill {:>3}: away {:>7.0} ms, longest sync of the disk meanwhile {:>6.0} ms",
            kill + 1,
            ms(outage),
            ms(stall)
        );
    });
    let mut sorted = report.outages.clone();
    sorted.sort();
    println!("\n{:>8} {:>9} {:>18}", "", "ms", "election timeouts");
    for (name, outage) in [
        ("min", sorted[0]),
        ("25 %", sorted[sorted.len() / 4]),
        ("median", report.median()),
        ("75 %", sorted[sorted.len() * 3 / 4]),
        ("max", report.max()),
    ] {
        println!("{name:>8} {:>9.0} {:>18.2}", outage.as_secs_f64() * 1e3, report.in_timeouts(outage));
    }
    println!("{} puts acknowledged, {} of them lost", report.acknowledged, report.lost.len());
    for key in report.lost.iter().take(20) {
        println!("lost: {key}");
    }
    let is_good = report.lost.is_empty()
        && report.in_timeouts(report.median()) <= MEDIAN_MAX
        && report.in_timeouts(report.max()) <= MAX_MAX;
    println!(
        "goal: median <= {MEDIAN_MAX}, max <= {MAX_MAX} election timeouts, nothing lost: {}",
        if is_good { "holds" } else { "DOES NOT HOLD" }
    );
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
