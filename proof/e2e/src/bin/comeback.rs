//! `cargo xtask bench comeback`: a large member is killed and restarted, and learners start with empty directories.
//!
//! Knows nothing of: members, files; the library measures.

use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "cargo xtask bench comeback [--keys N (1000000; at least 300000: fewer make no snapshot)] [--only-load] [--times-not-judged]";
const KEYS_MIN: u64 = 300_000;

fn main() -> ExitCode {
    let (mut keys, mut only_load, mut judges_times) = (1_000_000_u64, false, true);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || words.next()?.parse::<u64>().ok().filter(|number| KEYS_MIN <= *number);
        match word.as_str() {
            "--only-load" => only_load = true,
            "--times-not-judged" => judges_times = false,
            "--keys" => match number() {
                Some(number) => keys = number,
                None => return usage(),
            },
            _ => return usage(),
        }
    }
    if !only_load && !large_and_new(keys) {
        return ExitCode::FAILURE;
    }
    under_load(judges_times)
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}

/// A large member restarts and learners join; true if every key reached the first learner.
fn large_and_new(keys: u64) -> bool {
    let report = kattu_e2e::comeback::run(keys, |what| eprintln!("{what}"));
    let median = |times: &[Duration]| {
        let mut sorted = times.to_vec();
        sorted.sort();
        sorted.get(sorted.len() / 2).copied().unwrap_or_default().as_secs_f64()
    };
    let mb = |bytes: u64| bytes as f64 / 1e6;
    println!("| {keys} keys of 40 + 256 bytes, three members | |\n|---|---|");
    println!(
        "| snapshot / log of the member that is restarted, MB | {:.0} / {:.0} |",
        mb(report.snapshot_bytes),
        mb(report.log_bytes)
    );
    println!(
        "| killed, started: until it serves / until its first linearizable read, s (medians of {}) | {:.2} / {:.2} |",
        report.serving.len(),
        median(&report.serving),
        median(&report.first_read)
    );
    println!(
        "| a learner with nothing: until it has what the leader had, s | {:.1} |",
        report.learner_calm.as_secs_f64()
    );
    println!(
        "| … while eight clients put {:.0} a second, s | {:.1} |",
        report.load_rate,
        report.learner_load.as_secs_f64()
    );
    let [leader, back, learner] = report.peaks.map(mb);
    println!(
        "| peak memory of leader / restarted member / learner, MB | {leader:.0} / {back:.0} / {learner:.0} |"
    );
    if !report.is_whole() {
        println!("the learner has {} keys, the leader {}", report.keys.0, report.keys.1);
    }
    report.is_whole()
}

/// A follower restarts in the midst of puts at full speed.
fn under_load(judges_times: bool) -> ExitCode {
    let loaded = kattu_e2e::comeback::under_full_load(judges_times);
    for (lacked, took) in &loaded.times {
        println!(
            "| a follower that lacks {lacked} entries, under 256 clients at full speed: until it lacks less than is put in a second, s | {:.1} |",
            took.as_secs_f64()
        );
    }
    println!(
        "| … puts per second before it was killed / while it came back / of 100 | {:.0} / {:.0} / {:.0} |",
        loaded.before,
        loaded.meanwhile,
        loaded.share()
    );
    println!("| … of 100 of that time, it waited for a processor | {:.0} |", loaded.waited * 100.0);
    if let Some(tails) = loaded.tails {
        let ms = |time: u64| time as f64 / 1e6;
        println!(
            "| … p50 and p99 of the puts before / while it came back, ms | {:.1}, {:.1} / {:.1}, {:.1} |",
            ms(tails.without.0),
            ms(tails.without.1),
            ms(tails.with.0),
            ms(tails.with.1)
        );
    }
    println!(
        "| … puts that failed / times that clients were slowed | {} / {} |",
        loaded.failed, loaded.slowed
    );
    for fault in &loaded.faults {
        println!("DOES NOT HOLD: {fault}");
    }
    if loaded.faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
