//! `cargo xtask bench once`: sessions put while leaders are killed; each put must be executed once.
//!
//! Knows nothing of: members, clients; the library judges.

use kattu_e2e::once::{Settings, run};
use kattu_e2e::verdict;
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str =
    "cargo xtask bench once [--sessions N (64)] [--puts N (1000000)] [--kills N (100)] [--control]";

fn main() -> ExitCode {
    let mut settings = Settings { sessions: 64, puts: 1_000_000, kills: 100, is_control: false };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        if word == "--control" {
            settings.is_control = true;
            continue;
        }
        let number = words.next().and_then(|text| text.parse::<u32>().ok());
        match (word.as_str(), number) {
            ("--sessions", Some(number)) if (1..=10_000).contains(&number) => {
                settings.sessions = number as usize
            }
            ("--puts", Some(number)) if 0 < number => settings.puts = number.into(),
            ("--kills", Some(number)) => settings.kills = number as usize,
            _ => return usage(),
        }
    }
    // Each part has puts before, at and after its kill.
    if settings.puts / (settings.kills as u64 + 1) < 3 * settings.sessions as u64 {
        eprintln!("--puts: at least three of each session for each kill");
        return usage();
    }
    let report = run(settings, |kill, it| {
        println!(
            "kill {:>4} of {}: {:>8} puts answered, {:>5} under way, no answer for {:>7.1} ms",
            kill + 1,
            settings.kills,
            it.answered,
            it.under_way,
            ms(it.outage)
        );
    });
    // A kill that came too late hit no put: it shows nothing.
    let hits = report.kills.iter().filter(|kill| 0 < kill.under_way);
    let mut outages: Vec<Duration> = hits.map(|kill| kill.outage).collect();
    outages.sort();
    let median = outages.get(outages.len() / 2).copied().unwrap_or_default();
    let longest = outages.last().copied().unwrap_or_default();
    println!(
        "\n| sessions | puts answered | kills | of puts under way | puts under way | sent again | seconds | puts/s | outage p50, ms | longest, ms |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    println!(
        "| {} | {} | {} | {} | {} | {} | {:.1} | {:.0} | {:.1} | {:.1} |",
        settings.sessions,
        report.answered,
        report.kills.len(),
        outages.len(),
        report.kills.iter().map(|kill| kill.under_way).sum::<u64>(),
        report.repeated,
        report.took.as_secs_f64(),
        report.answered as f64 / report.took.as_secs_f64(),
        ms(median),
        ms(longest)
    );
    let says = "each put executed once, each answer of its put, all members the same";
    verdict::tell(says, &report.broken, report.kept.as_deref(), settings.is_control)
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}
