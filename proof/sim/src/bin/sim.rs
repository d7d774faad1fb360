//! Storms without the rest of the command: `sim SEED [COUNT] [SECONDS] [timeline]`.
use kattu_sim::{Options, run_storm};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| args.get(at).and_then(|arg| arg.parse().ok()).unwrap_or(default);
    let (first, count, seconds) = (number(0, 1), number(1, 1), number(2, 0));
    let options = Options {
        seconds: (seconds > 0).then_some(seconds),
        timeline: args.iter().any(|arg| arg == "timeline"),
        ..Options::default()
    };
    let mut sum = kattu_sim::faults::Tally::default();
    let (mut violations, mut time) = (0, 0);
    let began = std::time::Instant::now();
    for seed in first..first + count {
        let report = run_storm(seed, &options);
        report.timeline.iter().for_each(|line| println!("{line}"));
        time += report.time;
        sum.add_storm(&report.faults);
        println!(
            "{seed}: {:016x} {} done, {} refused, {} unknown, {} events, {} judged, {} undecided, {}/{} injected: {}",
            report.hash,
            report.done,
            report.refused,
            report.unknown,
            report.events,
            report.judged,
            report.undecided,
            report.injected.len(),
            report.injections_planned,
            report.plan
        );
        if let Some(violation) = report.violation {
            violations += 1;
            println!("  VIOLATION at {:.3} s: {violation}", report.time as f64 / 1e9);
        }
    }
    for &fault in kattu_sim::faults::Fault::ALL {
        println!("{} {:>8}  {}", fault.id(), sum.count(fault), fault.about());
    }
    let seconds = time / 1_000_000_000;
    println!(
        "{count} storms, {violations} violations, {seconds} cluster-seconds, {:.1} s",
        began.elapsed().as_secs_f64()
    );
}
