//! elections: how long a cluster of five has no leader after its leader has died, in virtual time.
//!
//! Knows nothing of: the election protocol.

use kattu_output::{self as output, Ended, Format, Outcome};
use kattu_sim::elections::{Conditions, Death, Election, elections, percentile, share_below};
use serde_json::json;
use std::time::Duration;

const MS: u64 = 1_000_000;

/// Situations, each with its name: the default settings with both kinds of death, and times as short as those of
/// published measurements (5 members less than 4 ms apart).
fn situations() -> [(&'static str, Conditions); 3] {
    let of = |timeout, heartbeat, death| Conditions {
        members: 5,
        election_timeout: Duration::from_millis(timeout),
        heartbeat_interval: Duration::from_millis(heartbeat),
        death,
    };
    [
        ("process killed, timeout 1000 ms", of(1000, 100, Death::Process)),
        ("machine gone, timeout 30 ms", of(30, 6, Death::Machine)),
        ("machine gone, timeout 1000 ms", of(1000, 100, Death::Machine)),
    ]
}

/// Measures and prints.
pub fn run(seed: u64, count: usize, format: Format) -> Outcome {
    let mut rows = Vec::new();
    let mut all = Vec::new();
    for (name, conditions) in situations() {
        let trials = elections(seed, count, &conditions)
            .map_err(|violation| Ended::failed(format!("{name}: {violation}")))?;
        for (what, of) in [
            ("a leader", (|election: &Election| election.led) as fn(&Election) -> u64),
            ("its first commit", |election| election.served),
        ] {
            let mut times: Vec<u64> = trials.iter().map(of).collect();
            times.sort_unstable();
            let at = |per_mille| percentile(&times, per_mille) as f64 / MS as f64;
            let below = |ms| share_below(&times, ms * MS);
            let shown = [0, 500, 900, 990, 999, 1000].map(|per_mille| format!("{:.1}", at(per_mille)));
            let shares = [20, 80, 100].map(|ms| format!("{:.1} %", below(ms)));
            let words = [name.to_string(), what.to_string()];
            rows.push(words.into_iter().chain(shown).chain(shares).collect());
            all.push(json!({
                "situation": name, "until": what, "trials": times.len(), "seed": seed,
                "min_ms": at(0), "p50_ms": at(500), "p90_ms": at(900), "p99_ms": at(990), "p999_ms": at(999),
                "max_ms": at(1000), "below_20_ms": below(20), "below_80_ms": below(80), "below_100_ms": below(100),
            }));
        }
    }
    match format {
        Format::Json => output::print_json(&json!(all)),
        Format::Table => {
            let titles = [
                "leader", "until", "min ms", "p50", "p90", "p99", "p99.9", "max", "< 20 ms", "< 80 ms",
                "< 100 ms",
            ];
            output::print_table(&titles, rows)?;
            output::print(
                format!("{count} trials each, five members up to 3.9 ms apart, seed {seed}; virtual time\n")
                    .as_bytes(),
            )
        }
    }
}
