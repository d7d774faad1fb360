//! `cargo xtask bench digest`: which part of what members do for puts is the running digest.
//!
//! Two runs of a cluster differ by more than the digest costs, so one is looked at instead: while three members take
//! puts, `perf` notes thousands of times a second where each of their threads is, the kernel's part for them included.
//! Samples inside of the digest, of all samples, are its part of the processor time.
//! Knows nothing of: what is digested.

use super::cluster::{Cluster, MEMBERS, NO_FLAGS, Program};
use super::counts::load;
use super::report::Header;
use crate::shell::{self, Failure};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// All changes of keys go through this; a function of its own in the binary, or the run fails.
const DIGEST: &str = "kattu_kv::digest::change";
/// Of what a cluster does, at most: the digest is always on. [fault-model ST13]
const GOAL_PERCENT: f64 = 1.0;
/// An odd number a second, so that nothing periodic is hit each time or never.
const SAMPLES_PER_S: &str = "9973";

/// Where the threads of one member were.
#[derive(Clone, Copy, Default)]
struct Samples {
    all: u64,
    digest: u64,
}

impl Samples {
    fn percent(self) -> f64 {
        self.digest as f64 * 100.0 / self.all as f64
    }
}

/// Builds, loads, prints the table; fails where the goal is missed.
pub fn run(words: &[&str]) -> Result<(), Failure> {
    let total: u64 = match words {
        [] => 600_000,
        ["--total", text] => {
            text.parse().map_err(|_| Failure::usage(format!("--total {text}: not a number")))?
        }
        _ => return Err(Failure::usage("cargo xtask bench digest [--total PUTS]")),
    };
    if !Command::new("perf").arg("--version").output().is_ok_and(|out| out.status.success()) {
        return Err(Failure::new("this takes samples by perf, which is not on this machine")
            .then("apt-get install linux-perf"));
    }
    let mut build = shell::cargo(&["build", "--locked", "--release", "-p", "kattu"]);
    shell::run_logged(&mut build, &shell::log_path("digest"), Duration::from_secs(1800))?;
    Header::now(1, false).print();
    let kattu = shell::target().join("release/kattu");
    let folder = shell::target().join("bench/digest");
    let program = Program::kattu(&kattu, NO_FLAGS);
    let cluster = Cluster::start(&program, &folder, 120, &shell::tools_dir().join("etcd36/etcdctl"))?;
    let leader = cluster.leader().ok_or_else(|| Failure::new("the leader went away"))?;
    load(&kattu, &cluster, leader, total / 20)?; // warm-up
    let file = |member: usize| folder.join(format!("n{member}.perf"));
    let watchers: Vec<Child> = (cluster.pids().into_iter().enumerate())
        .map(|(member, pid)| watch(pid, &file(member)))
        .collect::<Result<_, _>>()?;
    let loaded = load(&kattu, &cluster, leader, total);
    for mut watcher in watchers {
        shell::signal(&watcher.id().to_string(), "INT");
        watcher.wait()?;
    }
    let puts_per_s = loaded?["ops_per_s"].as_f64().unwrap_or_default();
    if cluster.leader() != Some(leader) {
        return Err(Failure::new("the leader changed during the run: the figures would be mixed")
            .then("cargo xtask bench digest   (on a quieter machine)"));
    }
    let samples = (0..MEMBERS).map(|member| read(&file(member))).collect::<Result<Vec<_>, _>>()?;
    println!("\n{total} puts of 8 + 256 bytes by 256 clients, {puts_per_s:.0} a second\n");
    println!("| | samples of processor time | in the running digest | part |\n|---|---|---|---|");
    let row =
        |name: &str, it: Samples| println!("| {name} | {} | {} | {:.2} % |", it.all, it.digest, it.percent());
    row("leader", samples[leader]);
    (0..MEMBERS).filter(|member| *member != leader).for_each(|member| row("follower", samples[member]));
    let sum = samples.iter().fold(Samples::default(), |sum, it| Samples {
        all: sum.all + it.all,
        digest: sum.digest + it.digest,
    });
    row("all three", sum);
    let is_met = sum.percent() <= GOAL_PERCENT;
    let verdict = if is_met { "met" } else { "MISSED" };
    println!("\ngoal: at most {GOAL_PERCENT} % of what all members do: {verdict}");
    if is_met { Ok(()) } else { Err(Failure::said()) }
}

/// Takes samples of one process, all of its threads, until it is interrupted.
fn watch(pid: u32, file: &Path) -> Result<Child, Failure> {
    let mut perf = Command::new("perf");
    perf.args(["record", "--quiet", "--event", "cpu-clock", "--freq", SAMPLES_PER_S]);
    perf.args(["--pid", &pid.to_string(), "--output"]).arg(file);
    Ok(perf.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?)
}

/// Counts what perf has noted: one line of its report for each function, with its samples.
fn read(file: &Path) -> Result<Samples, Failure> {
    let mut report = Command::new("perf");
    report.args(["report", "--stdio", "--quiet", "--no-children", "--sort", "symbol"]);
    report.args(["--fields", "sample,symbol", "--input"]).arg(file);
    let text = shell::output(&mut report, Duration::from_secs(300))?;
    let mut samples = Samples::default();
    for line in text.lines() {
        let Some((count, function)) = line.trim().split_once(char::is_whitespace) else { continue };
        let Ok(count) = count.parse::<u64>() else { continue };
        samples.all += count;
        if function.contains(DIGEST) {
            samples.digest += count;
        }
    }
    if samples.digest == 0 {
        return Err(Failure::new(format!(
            "perf saw {} samples, none of them in {DIGEST}: {}",
            samples.all,
            file.display()
        )));
    }
    Ok(samples)
}
