//! `cargo xtask bench heavy`: requests about millions of keys, and their effect on all other clients.
//!
//! Knows nothing of: members, keys; the library measures.

use kattu_e2e::heavy::{Act, Plan, run};
use std::process::ExitCode;

const USAGE: &str = "cargo xtask bench heavy [--scale PERCENT (100)] [--only REQUEST] [--times-not-judged]
requests: transaction, full-range, transaction-within, compares, compares-within, compaction, delete-all, range-all, \
                     delete-million";

fn main() -> ExitCode {
    let Some(plan) = plan() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let report = run(&plan, |seen| {
        println!("{} over {} keys: {}", seen.act.name(), seen.keys, seen.what);
        println!(
            "    took {:.1} ms; {} puts beside it, {} failed, p99 {:.1} ms, longest {:.1} ms",
            seen.took.as_secs_f64() * 1e3,
            seen.puts,
            seen.failed,
            seen.p99.as_secs_f64() * 1e3,
            seen.longest.as_secs_f64() * 1e3
        );
        if seen.asked > 1 {
            let ms = seen.took_max.as_secs_f64() * 1e3;
            println!("    asked {} times: that was the median, the longest took {ms:.1} ms", seen.asked);
        }
        match seen.late {
            Some(late) => println!("    a timer was due for {:.1} ms at the most", late.as_secs_f64() * 1e3),
            None => println!("    no timer was due for longer than before"),
        }
        for fault in &seen.faults {
            println!("    DOES NOT HOLD: {fault}");
        }
    });
    println!(
        "a restart: {:.2} s before, {:.2} s after; longest step of a member: {} units; due for {:.1} ms at the most",
        report.restarts[0].as_secs_f64(),
        report.restarts[1].as_secs_f64(),
        report.step_max,
        report.late_max.as_secs_f64() * 1e3
    );
    for fault in &report.faults {
        println!("DOES NOT HOLD: {fault}");
    }
    if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn plan() -> Option<Plan> {
    let mut plan = Plan { acts: Act::ALL.to_vec(), scale: 100, judges_times: true };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--times-not-judged" => plan.judges_times = false,
            "--scale" => plan.scale = words.next()?.parse().ok().filter(|it| (1..=100).contains(it))?,
            "--only" => {
                let name = words.next()?;
                plan.acts = Act::ALL.into_iter().filter(|act| act.name() == name).collect();
                if plan.acts.is_empty() {
                    return None;
                }
            }
            _ => return None,
        }
    }
    Some(plan)
}
