//! `cargo xtask upgrade`: a cluster of an older version becomes one of this, member by member, under load and kills.
//!
//! Knows nothing of: members, clients; the library upgrades.

use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "upgrade OLDER-BINARY [ROUNDS]";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (older, rounds) = match words.as_slice() {
        [older] => (PathBuf::from(older), Some(1)),
        [older, rounds] => (PathBuf::from(older), rounds.parse::<u32>().ok()),
        _ => (PathBuf::new(), None),
    };
    let Some(rounds) = rounds.filter(|rounds| 0 < *rounds && older.exists()) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let mut is_good = true;
    for round in 1..=rounds {
        let report = kattu_e2e::upgrade::roll(&older, |line| println!("round {round}: {line}"));
        println!(
            "round {round}: {} puts acknowledged, {} lost; feature level {}; the older version on a newer directory: {}",
            report.acknowledged,
            report.lost.len(),
            report.level,
            report.older_on_newer
        );
        for fault in report.faults.iter().chain(report.lost.iter().take(20)) {
            println!("DOES NOT HOLD: {fault}");
        }
        is_good &= report.is_good();
    }
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
