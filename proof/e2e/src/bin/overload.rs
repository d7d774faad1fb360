//! `cargo xtask bench overload`: ten times the load that can be served, and how much of it is still served.
//!
//! Knows nothing of: members, clients; the library measures.

use kattu_e2e::overload::{PATIENCE, Plan, run};
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "cargo xtask bench overload [--seconds N (60)] [--connections N (64)]";

fn main() -> ExitCode {
    let mut plan = Plan { connections: 64, lasts: Duration::from_secs(60) };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let number = words.next().and_then(|text| text.parse::<u32>().ok()).filter(|number| 0 < *number);
        match (word.as_str(), number) {
            ("--seconds", Some(seconds)) => plan.lasts = Duration::from_secs(seconds.into()),
            ("--connections", Some(connections)) => plan.connections = connections as usize,
            _ => {
                eprintln!("{USAGE}");
                return ExitCode::from(2);
            }
        }
    }
    let report = run(plan);
    println!(
        "peak: {:.0} puts/s; {:.0}/s due for {} s: {:.0}/s served within {PATIENCE:?} ({:.2} of the peak); of what was due {:.1} % \
         were refused, {:.1} % given up, {:.1} % never sent; a member grew by {} MB",
        report.peak,
        report.due,
        plan.lasts.as_secs(),
        report.during,
        report.during / report.peak,
        report.refused * 100.0,
        report.given_up * 100.0,
        report.unsent * 100.0,
        report.grown_bytes >> 20
    );
    println!(
        "meanwhile the members had {:.2} of their processor, the clients {:.2} of theirs",
        report.members_cpu, report.clients_cpu
    );
    let of_peak = |seconds: &[f64]| -> String {
        let parts: Vec<String> =
            seconds.iter().map(|served| format!("{:.2}", served / report.peak)).collect();
        parts.join(" ")
    };
    println!("of the peak, in each second: {}", of_peak(&report.each));
    println!("of the peak, in each second after: {}", of_peak(&report.after));
    for fault in &report.faults {
        println!("DOES NOT HOLD: {fault}");
    }
    if report.faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
