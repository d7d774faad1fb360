//! Storms without the rest of the command, for debug builds and builds with planted bugs.
//!
//! ```text
//!  sim hash SEED [SECONDS]          the trace hash
//!  sim storms FIRST COUNT [SECONDS] storms one after the other; exit code 1 if one fails
//!  sim pruned FIRST COUNT [SECONDS] the same, with snapshots in every storm
//!  sim slow-links FIRST COUNT [SECONDS], slow-members …, busy-disks …, liars …  the same, of another family
//!  sim shrink SEED                  the smallest storm that fails in the same way, with its timeline
//!  sim speed [SECONDS]              three members, ten requests a second, no faults
//! ```
//! `kattu sim` is the command for people.
//! Knows nothing of: what storms do.

use kattu_sim::campaign::run_storms;
use kattu_sim::faults::Fault;
use kattu_sim::{Family, Options, Plan, run_plan, run_storm, shrink};
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
    let began = Instant::now();
    match (words.first().map(String::as_str), number(1), number(2)) {
        (Some("hash"), Some(seed), seconds) => {
            let report = run_storm(seed, &Options { seconds, ..Options::default() });
            println!("{:016x}", report.hash);
            ExitCode::SUCCESS
        }
        (
            Some(word @ ("storms" | "pruned" | "slow-links" | "slow-members" | "busy-disks" | "liars")),
            Some(first),
            Some(count),
        ) => {
            let options = Options {
                family: Family::called(word).unwrap_or_default(),
                seconds: number(3),
                snapshots: (word == "pruned").then_some(true),
                ..Options::default()
            };
            let sum = run_storms(first..first + count, 1, usize::MAX, &options, |report| {
                let at = began.elapsed().as_secs_f64();
                println!("{at:>8.1} s  seed {}  {:016x}  {}", report.seed, report.hash, report.plan);
                if let Some(violation) = &report.violation {
                    println!("  violation at {:.3} s: {violation}", report.time as f64 / 1e9);
                }
            });
            for &fault in Fault::ALL {
                println!("{} {:>8}  {}", fault.id(), sum.faults.count(fault), fault.about());
            }
            println!("{}", sum.counts);
            match options.family {
                Family::Storms | Family::Liars => println!("{}", sum.service.said_of_steps()),
                _ => print!("{}", sum.service),
            }
            let lacks = sum.lacks(options.family);
            if !lacks.is_empty() {
                println!("too rare to be evidence: {}", lacks.join(", "));
            }
            let wasted = sum.service.wasted(options.family);
            wasted.iter().for_each(|said| println!("violation of all storms together: {said}"));
            println!(
                "{} storms, {} violations, {} cluster-seconds, {:.1} s",
                sum.storms,
                sum.violations.len(),
                sum.time / 1_000_000_000,
                began.elapsed().as_secs_f64()
            );
            let is_good = sum.violations.is_empty() && lacks.is_empty() && wasted.is_empty();
            ExitCode::from(u8::from(!is_good))
        }
        (Some("shrink"), Some(seed), seconds) => {
            let options = Options { seconds, ..Options::default() };
            let report = run_storm(seed, &options);
            if report.violation.is_none() {
                println!("seed {seed} has no violation");
                return ExitCode::SUCCESS;
            }
            let shrunk = shrink(&report, &options);
            shrunk.report.timeline.iter().for_each(|line| println!("{line}"));
            println!(
                "{} attempts, {} injections: {}",
                shrunk.attempts,
                shrunk.report.injected.len(),
                shrunk.report.plan
            );
            ExitCode::from(1)
        }
        (Some("speed"), seconds, _) => {
            let report = run_plan(Plan::calm(1, seconds.unwrap_or(10_000)), &Options::default());
            let took = began.elapsed().as_secs_f64();
            let (simulated, asked) =
                (report.time as f64 / 1e9, report.done + report.refused + report.unknown);
            println!(
                "{simulated:.0} cluster-seconds in {took:.2} s: {:.0} per second; {:.1} requests and {:.0} events per \
                 cluster-second",
                simulated / took,
                asked as f64 / simulated,
                report.events as f64 / simulated
            );
            ExitCode::from(u8::from(report.violation.is_some()))
        }
        _ => {
            eprintln!(
                "sim hash SEED [SECONDS] | storms FIRST COUNT [SECONDS] | shrink SEED [SECONDS] | speed [SECONDS]"
            );
            ExitCode::from(2)
        }
    }
}
