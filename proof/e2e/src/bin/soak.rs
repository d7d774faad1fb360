//! `cargo xtask bench soak`: puts for a long time, and the memory that members use meanwhile.
//!
//! Knows nothing of: members, clients; the library measures.

use kattu_e2e::soak::{Look, Settings, run};
use kattu_e2e::steady_load::Minute;
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "cargo xtask bench soak [--native] [--minutes N (60)] [--keys N (1000000)] [--value-bytes N (256)] \
                     [--quota-mb N]";

fn main() -> ExitCode {
    let mut settings = Settings {
        length: Duration::from_secs(3600),
        keys: 1_000_000,
        value_bytes: 256,
        quota: None,
        is_steady: false,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        if word == "--native" {
            settings.is_steady = true;
            continue;
        }
        let number = words.next().and_then(|text| text.parse::<u64>().ok()).filter(|number| 0 < *number);
        match (word.as_str(), number) {
            ("--minutes", Some(minutes)) => settings.length = Duration::from_secs(60 * minutes.min(10_000)),
            ("--keys", Some(keys)) => settings.keys = keys,
            ("--quota-mb", Some(mb)) => settings.quota = Some(mb.min(1 << 30) * 1_000_000),
            ("--value-bytes", Some(bytes)) => settings.value_bytes = bytes.min(1 << 20),
            _ => {
                eprintln!("{USAGE}");
                return ExitCode::from(2);
            }
        }
    }
    println!(
        "| minute | puts | memory of each member, MB | store / quota, MB | history, s | of full speed, puts/s | p50, p99, ms | taken by the host, % |\n\
         |---|---|---|---|---|---|---|---|"
    );
    let mut told = 0;
    let report = run(settings, |look| {
        let minute = look.at.as_secs() / 60;
        if told < minute || look.at < Duration::from_secs(15) {
            told = minute;
            println!("{}", line(look));
        }
    });
    let peak = report.looks.iter().map(|look| look.resident.iter().sum::<u64>()).max().unwrap_or(0);
    let skipped = if settings.is_steady { 6 } else { 33 };
    let history =
        report.looks.iter().skip(skipped).flat_map(|look| look.history_seconds.iter().copied()).min();
    println!(
        "at most {:.1} GB of {:.1} GB together, history of at least {} s, {} loads failed",
        peak as f64 / 1e9,
        report.machine as f64 / 1e9,
        history.map_or("?".into(), |seconds| seconds.to_string()),
        report.failed_loads
    );
    for line in &report.broken {
        println!("broken: {line}");
    }
    if report.broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn line(look: &Look) -> String {
    let mb = |bytes: u64| format!("{:.0}", bytes as f64 / 1e6);
    let joined = |texts: Vec<String>| texts.join(" · ");
    format!(
        "| {:.1} | {} | {} | {} | {} | {} |",
        look.at.as_secs_f64() / 60.0,
        look.revision,
        joined(look.resident.iter().map(|&bytes| mb(bytes)).collect()),
        joined(look.stores.iter().map(|&(held, quota)| format!("{} / {}", mb(held), mb(quota))).collect()),
        joined(look.history_seconds.iter().map(u64::to_string).collect()),
        look.minute.map_or("| | ".to_string(), |minute| {
            let Minute { most, rate, p50_ms, p99_ms, stolen } = minute;
            format!("{rate} of {most} | {p50_ms:.1}, {p99_ms:.1} | {stolen:.1}")
        }),
    )
}
