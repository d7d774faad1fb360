//! `cargo xtask bench weak`: sessions put weakly while leaders are killed, some together with their clients.
//!
//! Knows nothing of: members, clients; the library judges.

use kattu_e2e::verdict;
use kattu_e2e::weak::{Settings, run};
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "cargo xtask bench weak [--living N (8)] [--mortal N (16)] [--kills N (200)] [--budget N (500)] [--control]";

fn main() -> ExitCode {
    let mut settings = Settings { living: 8, mortal: 16, kills: 200, budget: 500, is_control: false };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        if word == "--control" {
            settings.is_control = true;
            continue;
        }
        let number = words.next().and_then(|text| text.parse::<u32>().ok());
        match (word.as_str(), number) {
            ("--living", Some(number)) if (1..=1000).contains(&number) => settings.living = number as usize,
            ("--mortal", Some(number)) if (1..=1000).contains(&number) => settings.mortal = number as usize,
            ("--kills", Some(number)) => settings.kills = number as usize,
            ("--budget", Some(number)) if 0 < number => settings.budget = number,
            _ => {
                eprintln!("{USAGE}");
                return ExitCode::from(2);
            }
        }
    }
    let report = run(settings, |kill, it| {
        println!(
            "kill {:>4} of {}: {:>6} puts accepted, {:>4} told to be lost or unknown, {:>4} lost, {:>7.1} ms",
            kill + 1,
            settings.kills,
            it.accepted,
            it.told,
            it.lost,
            ms(it.outage)
        );
    });
    let sum = |of: fn(&kattu_e2e::weak::Kill) -> u64| report.kills.iter().map(of).sum::<u64>();
    let mut outages: Vec<Duration> = report.kills.iter().map(|kill| kill.outage).collect();
    outages.sort();
    println!(
        "\n| kills | puts of living sessions | received first | sent again | lost | puts of mortal sessions | told | lost | most in one kill | outage p50, ms |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    println!(
        "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {:.1} |",
        report.kills.len(),
        report.living,
        report.received,
        report.repeated,
        if report.broken.is_empty() { "0" } else { "?" },
        sum(|kill| kill.accepted),
        sum(|kill| kill.told),
        sum(|kill| kill.lost),
        report.kills.iter().map(|kill| kill.lost).max().unwrap_or(0),
        ms(outages.get(outages.len() / 2).copied().unwrap_or_default())
    );
    let says = "nothing of a living session is lost, each other loss is told, and within the budget";
    verdict::tell(says, &report.broken, report.kept.as_deref(), settings.is_control)
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
