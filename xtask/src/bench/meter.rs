//! Meter: CPU, memory and context switches of processes, from `/proc`, and the CPU time of all others.
//!
//! CPU time comes in clock ticks of 10 ms; the cells run long enough for that.
//! Knows nothing of: servers, load tools.

use std::path::PathBuf;
use std::time::{Duration, Instant};

/// `_SC_CLK_TCK` of every Linux this runs on.
const TICKS_PER_S: f64 = 100.0;

/// CPU seconds of a process with all its threads: (user, system).
fn cpu_s(pid: u32) -> (f64, f64) {
    let fields = stat_fields(&format!("/proc/{pid}/stat"));
    (tick(&fields, 11), tick(&fields, 12))
}

fn stat_fields(path: &str) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    // The second field is the program's name in parentheses and may hold anything.
    let rest = text.rsplit_once(')').map(|(_, rest)| rest).unwrap_or("");
    rest.split_whitespace().map(str::to_string).collect()
}

fn tick(fields: &[String], at: usize) -> f64 {
    fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0) / TICKS_PER_S
}

/// CPU seconds of ended children of this process.
fn children_cpu_s() -> f64 {
    let fields = stat_fields("/proc/self/stat");
    tick(&fields, 13) + tick(&fields, 14)
}

/// (busy, stolen) CPU seconds of the machine since it started.
fn machine_cpu_s() -> (f64, f64) {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields: Vec<f64> = text
        .lines()
        .next()
        .unwrap_or("")
        .split_whitespace()
        .skip(1)
        .filter_map(|field| field.parse().ok())
        .collect();
    let at = |i: usize| fields.get(i).copied().unwrap_or(0.0) / TICKS_PER_S;
    (at(0) + at(1) + at(2) + at(5) + at(6), at(7))
}

/// Context switches of all living threads of a process, voluntary and involuntary.
fn switches(pid: u32) -> u64 {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return 0 };
    let mut sum = 0;
    for thread in threads.flatten() {
        let status = std::fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        for line in status.lines().filter(|line| line.contains("ctxt_switches")) {
            sum += line.split_whitespace().last().and_then(|count| count.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    sum
}

/// CPU time of each living thread of a process, in nanoseconds, with its name: finer than clock ticks, for processes that do little.
pub fn threads_ns(pid: u32) -> Vec<(String, u64)> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let of_thread = |folder: PathBuf| {
        let name = std::fs::read_to_string(folder.join("comm")).ok()?;
        let times = std::fs::read_to_string(folder.join("schedstat")).ok()?;
        Some((name.trim().to_string(), times.split_whitespace().next()?.parse().ok()?))
    };
    threads.flatten().filter_map(|thread| of_thread(thread.path())).collect()
}

/// CPU time of all living threads of a process, in nanoseconds.
pub fn cpu_ns(pid: u32) -> u64 {
    threads_ns(pid).into_iter().map(|(_, ns)| ns).sum()
}

/// Resident memory of a process, bytes.
pub fn rss_bytes(pid: u32) -> u64 {
    status_bytes(pid, "VmRSS:")
}

/// Resident memory that belongs to the process alone, bytes: no file holds it.
pub fn anonymous_bytes(pid: u32) -> u64 {
    status_bytes(pid, "RssAnon:")
}

fn status_bytes(pid: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap_or("");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// Resources that one process used during a section.
#[derive(Clone, Copy, Debug, Default)]
pub struct Used {
    /// User CPU seconds.
    pub user_s: f64,
    /// System CPU seconds.
    pub system_s: f64,
    /// Context switches.
    pub switches: u64,
}

/// A section being measured.
pub struct Meter {
    pids: Vec<u32>,
    begun: Instant,
    cpu: Vec<(f64, f64)>,
    switches: Vec<u64>,
    children: f64,
    machine: (f64, f64),
}

/// Resources used in a section.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// Wall clock, seconds.
    pub wall_s: f64,
    /// Per process, in the order given.
    pub used: Vec<Used>,
    /// CPU seconds of the load tool.
    pub client_s: f64,
    /// Cores used by other processes and kernel threads.
    pub other_cores: f64,
    /// Cores that the host of this virtual machine took away.
    pub stolen_cores: f64,
}

impl Meter {
    /// Begins now.
    pub fn start(pids: &[u32]) -> Meter {
        Meter {
            pids: pids.to_vec(),
            switches: pids.iter().map(|pid| switches(*pid)).collect(),
            children: children_cpu_s(),
            machine: machine_cpu_s(),
            cpu: pids.iter().map(|pid| cpu_s(*pid)).collect(),
            begun: Instant::now(),
        }
    }

    /// Ends now.
    pub fn stop(self) -> Reading {
        let wall_s = self.begun.elapsed().as_secs_f64();
        let used: Vec<Used> = self
            .pids
            .iter()
            .zip(self.cpu.iter().zip(&self.switches))
            .map(|(pid, (before, switches_before))| {
                let after = cpu_s(*pid);
                Used {
                    user_s: after.0 - before.0,
                    system_s: after.1 - before.1,
                    switches: switches(*pid).saturating_sub(*switches_before),
                }
            })
            .collect();
        let client_s = children_cpu_s() - self.children;
        let machine = machine_cpu_s();
        let servers_s: f64 = used.iter().map(|used| used.user_s + used.system_s).sum();
        let other_s = machine.0 - self.machine.0 - servers_s - client_s;
        Reading {
            wall_s,
            used,
            client_s,
            other_cores: (other_s / wall_s).max(0.0),
            stolen_cores: (machine.1 - self.machine.1) / wall_s,
        }
    }
}

/// Waits until all processes but `pids` use little of the machine; not longer than `limit`.
pub fn wait_for_quiet(pids: &[u32], limit: Duration) {
    const LITTLE_CORES: f64 = 0.15;
    let end = Instant::now() + limit;
    loop {
        let meter = Meter::start(pids);
        std::thread::sleep(Duration::from_millis(700));
        if meter.stop().other_cores < LITTLE_CORES || end < Instant::now() {
            return;
        }
    }
}
