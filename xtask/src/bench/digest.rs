//! `cargo xtask bench digest`: the running digest's share of the processor time that members need for puts.
//!
//! Two runs of a cluster differ by more than the digest costs, so a single run is sampled: while three members take
//! puts, `perf` records thousands of times a second the function in which each of their threads is, the kernel's
//! functions included. The share of samples in the digest is its share of the processor time.
//! Knows nothing of: keys, tables.

use super::cluster::{Cluster, MEMBERS, NO_FLAGS, Program};
use super::counts::load;
use super::report::Header;
use crate::shell::{self, Failure};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// All changes of keys go through this function; if it is inlined in the binary, the run fails.
const DIGEST: &str = "kattu_kv::digest::change";
/// Largest share of a cluster's processor time: the digest is always on. [fault-model ST13]
const GOAL_PERCENT: f64 = 1.0;
/// An odd number per second, so that periodic work is not hit each time or never.
const SAMPLES_PER_S: &str = "9973";
/// … where each sample is larger.
const SAMPLES_WITH_CALLERS_PER_S: &str = "1999";

/// Samples of the threads of one member.
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

/// Builds, loads, prints the table; fails if the goal is missed.
pub fn run(words: &[&str]) -> Result<(), Failure> {
    let total = super::number_behind("--total", words, 600_000, "bench digest")?;
    has_perf()?;
    let kattu = shell::kattu()?;
    Header::now(1, false).print();
    let folder = shell::target().join("bench/digest");
    let program = Program::kattu(&kattu, NO_FLAGS);
    let cluster = Cluster::start(&program, &folder, 120, &shell::tools_dir().join("etcd36/etcdctl"))?;
    let leader = cluster.leader().ok_or_else(|| Failure::new("the leader went away"))?;
    load(&kattu, &cluster, leader, total / 20)?; // warm-up
    let file = |member: usize| folder.join(format!("n{member}.perf"));
    let watchers: Vec<Child> = (cluster.pids().into_iter().enumerate())
        .map(|(member, pid)| watch(pid, &file(member), false))
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
    println!("\ngoal: at most {GOAL_PERCENT} % of the members' processor time: {verdict}");
    if is_met { Ok(()) } else { Err(Failure::said()) }
}

/// An error where `perf` is missing.
pub(super) fn has_perf() -> Result<(), Failure> {
    if Command::new("perf").arg("--version").output().is_ok_and(|out| out.status.success()) {
        return Ok(());
    }
    Err(Failure::new("this bench samples with `perf`, which is not installed")
        .then("apt-get install linux-perf"))
}

/// Samples all threads of one process until it is interrupted; with the functions around each sample's, if wanted.
pub(super) fn watch(pid: u32, file: &Path, with_callers: bool) -> Result<Child, Failure> {
    let mut perf = Command::new("perf");
    perf.args(["record", "--quiet", "--event", "cpu-clock", "--freq"]);
    match with_callers {
        true => perf.args([SAMPLES_WITH_CALLERS_PER_S, "--call-graph", "fp"]),
        false => perf.arg(SAMPLES_PER_S),
    };
    perf.args(["--pid", &pid.to_string(), "--output"]).arg(file);
    Ok(perf.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?)
}

/// Counts perf's samples: its report has one line for each function.
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
