//! `cargo xtask bench rotation`: whether moving to the log's next segment shows in the tail latency of puts.
//!
//! Three members, 256 clients, values of 1 KiB, in rounds of three clusters: with segments that are never filled, of
//! the default size, and of the smallest size. No snapshot is due meanwhile, so that only the rotation differs. The
//! members count their segments, so a round without a rotation is noticed.
//! Knows nothing of: how a segment is made.

use super::cluster::{Cluster, Program};
use super::counts::{CLIENTS, CONNECTIONS, Face, Load, fact};
use super::report::{Header, median_of};
use crate::commands::misused;
use crate::shell::{self, Failure};
use std::path::Path;

const VALUE_BYTES: &str = "1024";

/// Name, and the members' flags.
const CELLS: [(&str, &[&str]); 3] = [
    ("64 MiB, never filled", &["--snapshot-log-bytes=1099511627776", "--segment-bytes=67108864"]),
    ("16 MiB, default", &["--snapshot-log-bytes=1099511627776"]),
    ("6 MiB, the smallest", &["--snapshot-log-bytes=1099511627776", "--segment-bytes=6291456"]),
];

/// One cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Run {
    /// Segments that the leader began.
    rotations: f64,
    ops_per_s: f64,
    p50_ms: f64,
    p99_ms: f64,
    p999_ms: f64,
    max_ms: f64,
}

/// Runs the rounds, prints the table and the verdict.
pub fn run(words: &[&str]) -> Result<(), Failure> {
    let (mut rounds, mut total) = (5, 50_000);
    for pair in words.chunks(2) {
        let number = |text: &str| text.parse().ok().filter(|number: &u64| 0 < *number);
        match *pair {
            ["--rounds", text] => rounds = number(text).ok_or_else(|| misused("bench rotation"))?,
            ["--total", text] => total = number(text).ok_or_else(|| misused("bench rotation"))?,
            _ => return Err(misused("bench rotation")),
        }
    }
    let kattu = shell::kattu()?;
    Header::now(rounds as usize, false).print();
    println!("\n| segments | rotations | puts/s | p50, ms | p99, ms | p99.9, ms | longest, ms |");
    println!("|---|---|---|---|---|---|---|");
    let mut runs = vec![Vec::new(); CELLS.len()];
    for round in 0..rounds {
        for (place, (name, flags)) in CELLS.into_iter().enumerate() {
            let run = measure(&kattu, flags, 3 * round as usize + place, total)?;
            println!("{}", row(name, run));
            runs[place].push(run);
        }
    }
    println!("\nmedians of {rounds}:\n");
    for ((name, _), runs) in CELLS.into_iter().zip(&runs) {
        println!("{}", row(name, medians(runs)));
    }
    println!("\n{}", verdict(&runs[0], &runs[2])?);
    Ok(())
}

fn measure(kattu: &Path, flags: &[&str], number: usize, total: u64) -> Result<Run, Failure> {
    let program = Program::kattu(kattu, flags);
    let folder = shell::target().join("bench/rotation");
    let etcdctl = shell::tools_dir().join("etcd36/etcdctl");
    let cluster = Cluster::start(&program, &folder, 180 + number, &etcdctl)?;
    let leader = cluster.leader().ok_or_else(|| Failure::new("the leader went away"))?;
    let load =
        Load { total, value_bytes: VALUE_BYTES, clients: CLIENTS, conns: CONNECTIONS, face: Face::Etcd };
    Load { total: total / 10, ..load }.run(kattu, &cluster, leader)?; // warm-up, and the first segments are made
    let segments = |cluster: &Cluster| fact(cluster.endpoint(leader), "kattu_log_segments");
    let before = segments(&cluster)?;
    let report = load.run(kattu, &cluster, leader)?;
    let after = segments(&cluster)?;
    if cluster.leader() != Some(leader) {
        return Err(Failure::new("the leader changed during the run: the figures would be mixed"));
    }
    let of = |name: &str| report[name].as_f64().ok_or_else(|| Failure::new(format!("no {name} in {report}")));
    Ok(Run {
        rotations: after - before,
        ops_per_s: of("ops_per_s")?,
        p50_ms: of("p50_us")? / 1e3,
        p99_ms: of("p99_us")? / 1e3,
        p999_ms: of("p999_us")? / 1e3,
        max_ms: of("max_us")? / 1e3,
    })
}

fn row(name: &str, run: Run) -> String {
    let Run { rotations, ops_per_s, p50_ms, p99_ms, p999_ms, max_ms } = run;
    format!(
        "| {name} | {rotations:.0} | {ops_per_s:.0} | {p50_ms:.1} | {p99_ms:.1} | {p999_ms:.1} | {max_ms:.1} |"
    )
}

fn medians(runs: &[Run]) -> Run {
    Run {
        rotations: median_of(runs, |run| run.rotations),
        ops_per_s: median_of(runs, |run| run.ops_per_s),
        p50_ms: median_of(runs, |run| run.p50_ms),
        p99_ms: median_of(runs, |run| run.p99_ms),
        p999_ms: median_of(runs, |run| run.p999_ms),
        max_ms: median_of(runs, |run| run.max_ms),
    }
}

/// Rotation shows in the tail if the median p99 with it is beyond every p99 without.
fn verdict(without: &[Run], with: &[Run]) -> Result<String, Failure> {
    if without.iter().any(|run| 0.0 < run.rotations) || with.iter().any(|run| run.rotations < 1.0) {
        return Err(Failure::new("the cells do not differ in rotations: more, or fewer, puts are needed"));
    }
    let most = without.iter().map(|run| run.p99_ms).fold(0.0, f64::max);
    let middle = medians(with).p99_ms;
    match middle <= most {
        true => Ok(format!(
            "rotation does not show in the tail: p99 {middle:.1} ms with it, up to {most:.1} ms without"
        )),
        false => Err(Failure::new(format!(
            "rotation shows in the tail: p99 {middle:.1} ms with it, at most {most:.1} ms without"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotation_stands_in_the_tail_when_its_p99_is_beyond_all_without() {
        let run = |rotations, p99_ms| Run {
            rotations,
            ops_per_s: 1.0,
            p50_ms: 1.0,
            p99_ms,
            p999_ms: 9.0,
            max_ms: 9.0,
        };
        let without = [run(0.0, 10.0), run(0.0, 14.0), run(0.0, 11.0)];
        assert!(verdict(&without, &[run(8.0, 13.0), run(8.0, 30.0), run(8.0, 9.0)]).is_ok());
        assert!(verdict(&without, &[run(8.0, 15.0), run(8.0, 30.0), run(8.0, 9.0)]).is_err());
        assert!(verdict(&without, &[run(0.0, 1.0); 3]).is_err(), "nothing was compared");
        assert!(verdict(&[run(1.0, 1.0)], &[run(8.0, 1.0)]).is_err(), "nothing was compared");
    }
}
