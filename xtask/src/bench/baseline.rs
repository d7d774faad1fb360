//! `cargo xtask bench baseline`: the least latency that a put by a single client can have on this machine.
//!
//! ```text
//! face          the etcd face in front of a store without consensus or disk, etcd's tool with one client: p50
//! one sync      512 bytes overwritten and synced in a file that is allocated: median
//! two of three  the same by three threads at once, as a leader and its followers do; until the second is done: median
//! floor         face + two of three: the lower bound on this machine, without the network between members
//! ```
//! Members that share a disk wait for each other's flushes: one is under way at a time, and the second to be done needs
//! two. So the floor here is higher than with a disk for each.
//! Knows nothing of: Kattu's log, etcd's.

use super::report::Header;
use crate::commands::misused;
use crate::shell::{self, Failure};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::time::{Duration, Instant};

const SECTOR: usize = 512;
const ROUNDS: usize = 1_000;
const FILE_BYTES: usize = 4 << 20;
const MEMBERS: usize = 3;
const PUTS: u64 = 5_000;

/// Measures and prints.
pub fn run(words: &[&str]) -> Result<(), Failure> {
    if !words.is_empty() {
        return Err(misused("bench baseline"));
    }
    Header::now(1, false).print();
    let Syncs { one, two } = syncs()?;
    let face = face()?;
    println!("\n| of a put by one client, ms | median |\n|---|---:|");
    for (name, time) in
        [("face", face), ("one sync", one), ("two of three syncs", two), ("baseline", face + two)]
    {
        println!("| {name} | {:.3} |", time.as_secs_f64() * 1e3);
    }
    Ok(())
}

/// Median times of syncs, without any server.
pub(super) struct Syncs {
    /// Of one.
    pub one: Duration,
    /// Until two of three are done.
    pub two: Duration,
}

/// Measures them.
pub(super) fn syncs() -> Result<Syncs, Failure> {
    let folder = shell::target().join("bench/floor");
    std::fs::create_dir_all(&folder)?;
    let one = median(rounds(&folder, 1)?.into_iter().map(|mut ends| ends.remove(0)).collect());
    let second = |mut ends: Vec<Duration>| {
        ends.sort_unstable();
        ends[1]
    };
    let two = median(rounds(&folder, MEMBERS)?.into_iter().map(second).collect());
    std::fs::remove_dir_all(&folder)?;
    Ok(Syncs { one, two })
}

/// For each round, the time of each of `writers` to write and sync a sector, all starting together.
fn rounds(folder: &Path, writers: usize) -> Result<Vec<Vec<Duration>>, Failure> {
    let files = (0..writers)
        .map(|number| {
            let file = File::create(folder.join(format!("f{number}")))?;
            file.write_all_at(&vec![0; FILE_BYTES], 0)?;
            file.sync_all()?;
            Ok(file)
        })
        .collect::<std::io::Result<Vec<File>>>()?;
    let start = Barrier::new(writers);
    let ends: Vec<std::io::Result<Vec<Duration>>> = std::thread::scope(|scope| {
        let writers: Vec<_> = files
            .iter()
            .map(|file| {
                let start = &start;
                scope.spawn(move || {
                    (0..ROUNDS)
                        .map(|round| {
                            start.wait();
                            let began = Instant::now();
                            let offset = (round * SECTOR) % FILE_BYTES;
                            file.write_all_at(&[round as u8; SECTOR], offset as u64)?;
                            file.sync_data()?;
                            Ok(began.elapsed())
                        })
                        .collect()
                })
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().expect("it does not panic")).collect()
    });
    let ends = ends.into_iter().collect::<std::io::Result<Vec<_>>>()?;
    Ok((0..ROUNDS).map(|round| ends.iter().map(|ends| ends[round]).collect()).collect())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Median of etcd's tool against the face alone.
pub(super) fn face() -> Result<Duration, Failure> {
    let tool = shell::tools_dir().join("etcd36/benchmark");
    if !tool.exists() {
        return Err(Failure::new(format!("{} is not there", tool.display())).then("cargo xtask tools"));
    }
    let build = ["build", "--release", "-p", "kattu-server", "--example", "baseline"];
    shell::output(shell::cargo(&build).stderr(Stdio::null()), Duration::from_secs(900))?;
    let process = std::process::id();
    let address = format!("127.{}.{}.8:2379", 64 + ((process >> 8) & 0x3f), process & 0xff);
    let binary = shell::target().join("release/examples/baseline");
    let mut serving = Command::new(binary).arg(&address).stdout(Stdio::null()).spawn()?;
    while std::net::TcpStream::connect(&address).is_err() {
        if serving.try_wait()?.is_some() {
            return Err(Failure::new("the face ended before it served"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut load = Command::new(tool);
    load.args(["--endpoints", &address, "--precise", "--conns", "1", "--clients", "1"])
        .args(["put", "--key-size", "8", "--val-size", "256", "--total", &PUTS.to_string()])
        .stderr(Stdio::null());
    let report = shell::output(&mut load, Duration::from_secs(120));
    serving.kill()?;
    serving.wait()?;
    let report = report?;
    let p50 = report.lines().find_map(|line| line.trim().strip_prefix("50% in ")?.split(' ').next());
    let seconds: f64 = p50
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| Failure::new(format!("the tool's report has no median:\n{report}")))?;
    Ok(Duration::from_secs_f64(seconds))
}
