//! `cargo xtask bench threads`: which threads of a member take the machine's time at full speed, and what of it snapshots take.
//!
//! ```text
//!   three members ─ puts in sessions until they have a history ─ the same puts, measured: CPU of each thread, by its name
//! ```
//! Nothing is compacted, so each snapshot holds all puts. The goal is for a member that has the machine for itself: its thread of
//! snapshots takes at most a twentieth of the machine's time. Three members share this one, so each has a third of the load's rate.
//! Knows nothing of: what the threads do.

use super::cluster::{Cluster, MEMBERS, NO_FLAGS, Program};
use super::report::Header;
use crate::commands::misused;
use crate::shell::{self, Failure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const LOAD_LIMIT: Duration = Duration::from_secs(1200);
/// Threads that take less of the machine are not shown.
const SHOWN_MIN: f64 = 0.1;
const SNAPSHOTS: &str = "kattu-snapshots";
/// Percent of the machine that a member's snapshots take at most.
const SNAPSHOTS_MAX: f64 = 5.0;
const KEYS: &str = "1000000";

struct Options {
    warm_up: u64,
    total: u64,
    value_bytes: u64,
}

fn options(words: &[&str]) -> Result<Options, Failure> {
    let mut options = Options { warm_up: 2_000_000, total: 3_000_000, value_bytes: 256 };
    for pair in words.chunks(2) {
        let number = |text: &str| {
            text.parse().ok().filter(|number: &u64| 0 < *number).ok_or_else(|| misused("bench threads"))
        };
        match *pair {
            ["--warm-up", text] => options.warm_up = number(text)?,
            ["--total", text] => options.total = number(text)?,
            ["--value-bytes", text] => options.value_bytes = number(text)?,
            _ => return Err(misused("bench threads")),
        }
    }
    Ok(options)
}

/// Runs the load, prints the table and the verdict.
pub fn run(words: &[&str]) -> Result<(), Failure> {
    let options = options(words)?;
    let kattu = shell::kattu()?;
    let header = Header::now(1, false);
    header.print();
    let folder = shell::target().join("bench/threads");
    let etcdctl = shell::tools_dir().join("etcd36/etcdctl");
    let cluster = Cluster::start(&Program::kattu(&kattu, NO_FLAGS), &folder, 210, &etcdctl)?;
    let leader = cluster.leader().ok_or_else(|| Failure::new("the leader went away"))?;
    println!("{} puts of {} bytes first …", options.warm_up, options.value_bytes);
    load(&kattu, cluster.endpoint(leader), options.warm_up, options.value_bytes)?;
    println!("{} puts …", options.total);
    let (before, begun) = (by_name(&cluster.pids()), Instant::now());
    let report = load(&kattu, cluster.endpoint(leader), options.total, options.value_bytes)?;
    let machine_s = begun.elapsed().as_secs_f64() * header.cores() as f64;
    let after = by_name(&cluster.pids());
    if cluster.leader() != Some(leader) {
        return Err(Failure::new("the leader changed during the run: the figures would be mixed"));
    }
    let used = after.into_iter().map(|(name, ns)| {
        let ns = ns.saturating_sub(before.get(&name).copied().unwrap_or(0));
        (name, ns as f64 / 1e9)
    });
    let used: BTreeMap<String, f64> = used.collect();
    print(&used, machine_s, options.total, &report);
    judge(&used, machine_s)
}

/// CPU of all living threads of these processes, in nanoseconds, by name.
fn by_name(pids: &[u32]) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    for pid in pids {
        let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { continue };
        for thread in threads.flatten() {
            let of = |file: &str| std::fs::read_to_string(thread.path().join(file)).unwrap_or_default();
            let name = of("comm").trim().to_string();
            let ns: u64 =
                of("schedstat").split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0);
            *all.entry(name).or_default() += ns;
        }
    }
    all
}

fn load(kattu: &Path, endpoint: &str, total: u64, value_bytes: u64) -> Result<Value, Failure> {
    let mut bench = Command::new(kattu);
    bench.args(["bench", "put", "--native", "--sessions", "8", "--clients", "8", "--conns", "8"]);
    bench.args(["--pipeline", "256", "--key-space", KEYS, "--val-size", &value_bytes.to_string()]);
    bench.args(["--total", &total.to_string(), "--endpoints", endpoint, "--timeout", "60s", "-o", "json"]);
    let text = shell::output(&mut bench, LOAD_LIMIT)?;
    let report: Value = serde_json::from_str(&text)
        .map_err(|error| Failure::new(format!("kattu bench printed {text}: {error}")))?;
    match report["errors"].as_u64() {
        Some(0) => Ok(report),
        _ => Err(Failure::new(format!("puts failed: {report}"))),
    }
}

fn print(used: &BTreeMap<String, f64>, machine_s: f64, total: u64, report: &Value) {
    println!("\n| thread of three members | CPU, µs a put | percent of the machine |");
    println!("|---|---:|---:|");
    let mut rows: Vec<_> = used.iter().map(|(name, &s)| (s / machine_s * 100.0, s, name)).collect();
    rows.sort_by(|one, other| other.0.total_cmp(&one.0));
    for (percent, s, name) in rows.iter().filter(|(percent, ..)| SHOWN_MIN <= *percent) {
        println!("| {name} | {:.3} | {percent:.1} |", s / total as f64 * 1e6);
    }
    let all: f64 = used.values().sum();
    println!("| all | {:.3} | {:.1} |", all / total as f64 * 1e6, all / machine_s * 100.0);
    let of = |name: &str| report[name].as_f64().unwrap_or(f64::NAN);
    println!(
        "\n{:.0} puts/s, p50 {:.1} ms, p99 {:.1} ms",
        of("ops_per_s"),
        of("p50_us") / 1e3,
        of("p99_us") / 1e3
    );
}

/// Whether the snapshots of a member take as little as they may.
fn judge(used: &BTreeMap<String, f64>, machine_s: f64) -> Result<(), Failure> {
    let s = used.get(SNAPSHOTS).copied().unwrap_or(0.0);
    if s == 0.0 {
        return Err(Failure::new("no snapshot was taken: more puts are needed"));
    }
    let percent = s / machine_s * 100.0 / MEMBERS as f64;
    let line =
        format!("snapshots of a member: {percent:.1} % of the machine, at most {SNAPSHOTS_MAX} are allowed");
    match percent <= SNAPSHOTS_MAX {
        true => {
            println!("{line}");
            Ok(())
        }
        false => Err(Failure::new(line)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_are_judged_for_each_member_and_not_without_one() {
        let used = |s| BTreeMap::from([(SNAPSHOTS.to_string(), s), ("kattu".to_string(), 15.0)]);
        assert!(judge(&used(3.0), 20.0).is_ok(), "exactly 5 % each");
        assert!(judge(&used(3.1), 20.0).is_err());
        assert!(judge(&used(0.0), 20.0).is_err(), "nothing was measured");
        assert!(judge(&BTreeMap::new(), 20.0).is_err());
    }

    #[test]
    fn the_words_give_the_load() {
        let options =
            options(&["--total", "5", "--warm-up", "7", "--value-bytes", "16"]).expect("understood");
        assert_eq!((options.total, options.warm_up, options.value_bytes), (5, 7, 16));
        assert!(super::options(&["--total", "0"]).is_err() && super::options(&["--total"]).is_err());
    }
}
