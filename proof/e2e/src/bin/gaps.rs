//! `cargo xtask bench failover`: how long nothing is acknowledged when a leader dies, as a distribution.
//!
//! Knows nothing of: members, clients; the library measures.

use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "cargo xtask bench failover [--trials N (200)] [--target kattu|etcd] [--flag FLAG ...] [--against PATH [--pairs N (10)]]";
/// The goals, with default settings.
const MEDIAN_MAX: Duration = Duration::from_millis(50);
const P99_MAX: Duration = Duration::from_millis(150);
/// Buckets of the histogram: upper bounds in milliseconds.
const BUCKETS: [u64; 12] = [5, 10, 20, 35, 50, 75, 100, 150, 300, 1_000, 2_000, u64::MAX];
const BAR: usize = 50;
const SHARES: [(&str, f64); 7] = [
    ("min", 0.0),
    ("25 %", 0.25),
    ("median", 0.5),
    ("75 %", 0.75),
    ("90 %", 0.9),
    ("99 %", 0.99),
    ("max", 1.0),
];

fn main() -> ExitCode {
    let (mut trials, mut flags) = (200_usize, Vec::new());
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match (word.as_str(), words.next()) {
            ("--trials", Some(text)) if text.parse::<usize>().is_ok_and(|number| 0 < number) => {
                trials = text.parse().unwrap_or(trials);
            }
            ("--flag", Some(flag)) => flags.push(flag),
            _ => {
                eprintln!("{USAGE}");
                return ExitCode::from(2);
            }
        }
    }
    let is_ours = kattu_rig::kattu().file_name().is_none_or(|name| name != "etcd");
    let is_judged = is_ours && flags.is_empty(); // the goals are for default settings
    let report = kattu_e2e::gaps::run(trials, flags, |trial, gap| {
        if (trial + 1).is_multiple_of(20) {
            println!("{:>4} of {trials}: this one {:.1} ms", trial + 1, gap.as_secs_f64() * 1e3);
        }
    });
    let mut sorted = report.gaps.clone();
    sorted.sort();
    let at = |share: f64| sorted[(sorted.len() as f64 * share).ceil().max(1.0) as usize - 1];
    picture(&sorted);
    for (name, share) in SHARES {
        println!("{name:>8} {:>9.1} ms", at(share).as_secs_f64() * 1e3);
    }
    for key in report.lost.iter().take(20) {
        println!("lost: {key}");
    }
    let is_fast = at(0.5) <= MEDIAN_MAX && at(0.99) <= P99_MAX;
    if is_judged {
        let verdict = if is_fast { "holds" } else { "DOES NOT HOLD" };
        println!("goal with default settings: median <= 50 ms, 99 % <= 150 ms: {verdict}");
    }
    println!(
        "{} trials, {} acknowledged writes, {} lost",
        report.gaps.len(),
        report.acknowledged,
        report.lost.len()
    );
    let is_good = report.lost.is_empty() && (is_fast || !is_judged);
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn picture(sorted: &[Duration]) {
    let mut low = 0;
    for high in BUCKETS {
        let inside = |gap: &&Duration| (low..high).contains(&(gap.as_millis() as u64));
        let count = sorted.iter().filter(inside).count();
        let bar = "#".repeat((count * BAR).div_ceil(sorted.len()));
        let name = if high == u64::MAX { format!(">= {low}") } else { format!("{low}-{high}") };
        println!("{name:>12} ms {count:>5} {bar}");
        low = high;
    }
}
