//! `cargo xtask bench sectors`: the cost of padding the log's blocks to the disk's atomic unit of writing.
//!
//! Three members whose blocks are padded to 512 bytes, and three with 4,096, in turns; one client, and 256 over 100
//! connections. Counted are the bytes that the leader writes to its log, timed is a client's put. The disk gets whole
//! pages either way.
//! Knows nothing of: the layout of the log.

use super::cluster::{Cluster, Program};
use super::counts::{Face, Load, fact};
use super::report::{Header, median_of};
use crate::commands::misused;
use crate::shell::{self, Failure};
use std::path::Path;

/// Bytes of a sector, and the members' flags.
const SECTORS: [(&str, &[&str]); 2] =
    [("512", &["--log-sector-bytes=512"]), ("4096", &["--log-sector-bytes=4096"])];
/// Clients, connections, and the divisor of their number of puts.
const CLIENTS: [(&str, &str, u64); 2] = [("1", "1", 20), ("256", "100", 1)];

/// One cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Run {
    /// Bytes to the leader's log, per put.
    bytes: f64,
    syncs: f64,
    ops_per_s: f64,
    p50_ms: f64,
    p99_ms: f64,
}

/// Runs the rounds, prints every one and the medians.
pub fn run(words: &[&str]) -> Result<(), Failure> {
    let (mut rounds, mut total) = (3_usize, 60_000);
    for pair in words.chunks(2) {
        let number = |text: &str| text.parse().ok().filter(|number: &u64| 0 < *number);
        match *pair {
            ["--rounds", text] => rounds = number(text).ok_or_else(|| misused("bench sectors"))? as usize,
            ["--total", text] => total = number(text).ok_or_else(|| misused("bench sectors"))?,
            _ => return Err(misused("bench sectors")),
        }
    }
    let kattu = shell::kattu()?;
    Header::now(rounds, false).print();
    println!("\n| sector, clients | bytes to the log per put | syncs per put | puts/s | p50, ms | p99, ms |");
    println!("|---|---|---|---|---|---|");
    let mut cells: Vec<(String, Vec<Run>)> = Vec::new();
    for round in 0..rounds {
        for (place, (sector, flags)) in SECTORS.into_iter().enumerate() {
            for (other, (clients, conns, part)) in CLIENTS.into_iter().enumerate() {
                let cell = place * CLIENTS.len() + other;
                let load = Load { total: total / part, value_bytes: "256", clients, conns, face: Face::Etcd };
                let run = measure(&kattu, flags, 4 * round + cell, load)?;
                let name = format!("{sector}, {clients}");
                println!("{}", row(&name, run));
                if round == 0 {
                    cells.push((name, Vec::new()));
                }
                cells[cell].1.push(run);
            }
        }
    }
    println!("\nmedians of {rounds}:\n");
    for (name, runs) in &cells {
        println!("{}", row(name, medians(runs)));
    }
    Ok(())
}

fn measure(kattu: &Path, flags: &[&str], number: usize, load: Load<'_>) -> Result<Run, Failure> {
    let program = Program::kattu(kattu, flags);
    let folder = shell::target().join("bench/sectors");
    let etcdctl = shell::tools_dir().join("etcd36/etcdctl");
    let cluster = Cluster::start(&program, &folder, 210 + number, &etcdctl)?;
    let leader = cluster.leader().ok_or_else(|| Failure::new("the leader went away"))?;
    Load { total: (load.total / 10).max(1), ..load }.run(kattu, &cluster, leader)?; // warm-up
    let fact = |name: &str| fact(cluster.endpoint(leader), name);
    let (bytes, syncs) = ("etcd_disk_wal_write_bytes_total", "etcd_disk_wal_fsync_duration_seconds_count");
    let before = (fact(bytes)?, fact(syncs)?);
    let report = load.run(kattu, &cluster, leader)?;
    let after = (fact(bytes)?, fact(syncs)?);
    if cluster.leader() != Some(leader) {
        return Err(Failure::new("the leader changed during the run: the figures would be mixed"));
    }
    let of = |name: &str| report[name].as_f64().ok_or_else(|| Failure::new(format!("no {name} in {report}")));
    let puts = load.total as f64;
    Ok(Run {
        bytes: (after.0 - before.0) / puts,
        syncs: (after.1 - before.1) / puts,
        ops_per_s: of("ops_per_s")?,
        p50_ms: of("p50_us")? / 1e3,
        p99_ms: of("p99_us")? / 1e3,
    })
}

fn row(name: &str, run: Run) -> String {
    let Run { bytes, syncs, ops_per_s, p50_ms, p99_ms } = run;
    format!("| {name} | {bytes:.0} | {syncs:.4} | {ops_per_s:.0} | {p50_ms:.2} | {p99_ms:.2} |")
}

fn medians(runs: &[Run]) -> Run {
    Run {
        bytes: median_of(runs, |run| run.bytes),
        syncs: median_of(runs, |run| run.syncs),
        ops_per_s: median_of(runs, |run| run.ops_per_s),
        p50_ms: median_of(runs, |run| run.p50_ms),
        p99_ms: median_of(runs, |run| run.p99_ms),
    }
}
