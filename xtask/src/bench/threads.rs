//! `cargo xtask bench threads`: which threads of a member take the machine's time at full speed, and what of it snapshots take.
//!
//! ```text
//!   three members ─ puts in sessions until they have a history ─ the same puts, measured: CPU of each thread, by its name
//! ```
//! Nothing is compacted, so each snapshot holds all puts. The goal is for a member that has the machine for itself: its thread of
//! snapshots takes at most a twentieth of the machine's time. Three members share this one, so each has a third of the load's rate.
//! Knows nothing of: what the threads do.

use super::cluster::{Cluster, MEMBERS, NO_FLAGS, Program};
use super::meter;
use super::report::Header;
use super::rivals::load;
use super::rivals::rows::{Calls, Shape};
use super::rivals::sample::Report;
use crate::commands::misused;
use crate::shell::{self, Failure};
use std::collections::BTreeMap;
use std::time::Instant;

/// Threads that take less of the machine are not shown.
const SHOWN_MIN: f64 = 0.1;
const SNAPSHOTS: &str = "kattu-snapshots";
/// Percent of the machine that a member's snapshots take at most.
const SNAPSHOTS_MAX: f64 = 5.0;
/// Different keys that the puts write.
const KEYS: u64 = 1_000_000;

struct Options {
    warm_up: u64,
    total: u64,
    value_bytes: u32,
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
            ["--value-bytes", text] => {
                options.value_bytes = u32::try_from(number(text)?).map_err(|_| misused("bench threads"))?;
            }
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
    let shape = Shape { clients: 8, conns: 8, pipeline: 256, value_bytes: options.value_bytes };
    let load = |total| load::native(&kattu, cluster.endpoint(leader), shape, Calls::Put, KEYS, total);
    println!("{} puts of {} bytes first …", options.warm_up, options.value_bytes);
    load(options.warm_up)?;
    println!("{} puts …", options.total);
    let (before, begun) = (by_name(&cluster.pids()), Instant::now());
    let report = load(options.total)?;
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
    print(&used, machine_s, report);
    judge(&used, machine_s)
}

/// CPU of all living threads of these processes, in nanoseconds, by name.
fn by_name(pids: &[u32]) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    for (name, ns) in pids.iter().flat_map(|&pid| meter::threads_ns(pid)) {
        *all.entry(name).or_default() += ns;
    }
    all
}

fn print(used: &BTreeMap<String, f64>, machine_s: f64, report: Report) {
    let per_put = |s: f64| s / report.ops as f64 * 1e6;
    println!("\n| thread of three members | CPU, µs a put | percent of the machine |");
    println!("|---|---:|---:|");
    let mut rows: Vec<_> = used.iter().map(|(name, &s)| (s / machine_s * 100.0, s, name)).collect();
    rows.sort_by(|one, other| other.0.total_cmp(&one.0));
    for (percent, s, name) in rows.iter().filter(|(percent, ..)| SHOWN_MIN <= *percent) {
        println!("| {name} | {:.3} | {percent:.1} |", per_put(*s));
    }
    let all: f64 = used.values().sum();
    println!("| all | {:.3} | {:.1} |", per_put(all), all / machine_s * 100.0);
    let Report { ops_per_s, p50_us, p99_us, .. } = report;
    println!("\n{ops_per_s:.0} puts/s, p50 {:.1} ms, p99 {:.1} ms", p50_us / 1e3, p99_us / 1e3);
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
