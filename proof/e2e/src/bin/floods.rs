//! `cargo xtask bench floods`: greedy clients and strangers, and their effect on one good client.
//!
//! Knows nothing of: members, connections; the library measures.

use kattu_e2e::floods::{Flood, Plan, Report, run};
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "cargo xtask bench floods [--seconds N (60)] [--strength PERCENT (100)] [--only FLOOD] \
                     [--client-memory-bytes N] [--all-cores] [--times-not-judged]
floods: idle, trickle, non-readers, streams, peers, large-writers, registrations";

fn main() -> ExitCode {
    let Some(plan) = plan() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let report: Report = run(&plan, |seen| {
        println!("{}: {}", seen.flood.name(), seen.what);
        println!(
            "    good client: {} puts, {} failed, p99 {:.1} ms, longest {:.1} ms; a member grew by {} MB (bound {}), {} \
             lines a minute; {} syncs above 256 ms; processor: members {:.2}, clients {:.2}",
            seen.puts,
            seen.failed,
            seen.p99.as_secs_f64() * 1e3,
            seen.longest.as_secs_f64() * 1e3,
            seen.grown_bytes >> 20,
            seen.grown_bytes_max >> 20,
            seen.lines_per_minute,
            seen.slow_syncs,
            seen.members_cpu,
            seen.clients_cpu
        );
        for fault in &seen.faults {
            println!("    broken: {fault}");
        }
    });
    if let Some(page) = report.page {
        println!(
            "a page of memory cost {:.1} us; the page cache was full before each flood",
            page.as_secs_f64() * 1e6
        );
    }
    for fault in &report.faults {
        println!("    broken: {fault}");
    }
    println!(
        "all killed, started again: {} after {:.1} s, {} puts acknowledged, {} lost",
        if report.faults.is_empty() { "all served" } else { "not all served" },
        report.restart.as_secs_f64(),
        report.acknowledged,
        report.lost.len()
    );
    for key in report.lost.iter().take(20) {
        println!("lost: {key}");
    }
    if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn plan() -> Option<Plan> {
    let mut plan = Plan {
        floods: Flood::ALL.to_vec(),
        lasts: Duration::from_secs(60),
        strength: 100,
        client_bytes: None,
        one_core: true,
        judges_times: true,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--all-cores" => plan.one_core = false,
            "--times-not-judged" => plan.judges_times = false,
            "--seconds" => plan.lasts = Duration::from_secs(words.next()?.parse().ok()?),
            "--strength" => plan.strength = words.next()?.parse().ok().filter(|it| (1..=100).contains(it))?,
            "--client-memory-bytes" => plan.client_bytes = Some(words.next()?.parse().ok()?),
            "--only" => {
                let name = words.next()?;
                plan.floods = Flood::ALL.into_iter().filter(|flood| flood.name() == name).collect();
                if plan.floods.is_empty() {
                    return None;
                }
            }
            _ => return None,
        }
    }
    Some(plan)
}
