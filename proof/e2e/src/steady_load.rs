//! Puts by the native protocol at a steady share of what the members can do: `kattu bench put --native`, minute after minute.
//!
//! ```text
//!  ├ all keys ┼ full speed ┼ two minutes at 80 %, not counted ┼ full speed ┼ a minute at 80 % ┼ … nine more … ┼ full speed ┼ …
//! ```
//! The minutes are open loops: a latency counts from the time at which its put was due. Full speed is measured anew every ten
//! minutes, because the speed of a machine that others share drifts by half within an hour. The first minutes do not count:
//! members without a history take their first snapshots there, and whatever came later would look fast beside them.
//! Knows nothing of: members, metrics.

use kattu_rig::programs::kattu;
use serde_json::Value;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

/// Percent of full speed.
const SHARE: u64 = 80;
/// Minutes between two measurements of full speed.
const MINUTES: usize = 10;
/// Minutes before the first that counts.
const WARM_UP_MINUTES: u64 = 2;
/// Puts of such a measurement: about a minute, so that the snapshots of members are part of it.
const MOST_TOTAL: u64 = 6_000_000;

/// A minute of the load.
#[derive(Clone, Copy, Debug)]
pub struct Minute {
    /// Puts a second at full speed, measured at most ten minutes before.
    pub most: u64,
    /// Puts a second in this minute.
    pub rate: u64,
    /// Of their latencies, in milliseconds.
    pub p50_ms: f64,
    /// Of their latencies, in milliseconds.
    pub p99_ms: f64,
    /// Percent of the processors' time that the host of a virtual machine took for others.
    pub stolen: f64,
}

/// What is put.
#[derive(Clone, Debug)]
pub(crate) struct Puts {
    pub(crate) endpoints: String,
    pub(crate) keys: u64,
    pub(crate) value_bytes: u64,
}

#[derive(Debug, Default)]
struct State {
    child: Option<Child>,
    minutes: Vec<Minute>,
    failed: Option<String>,
    ends: bool,
}

/// The load; ends when dropped.
pub(crate) struct SteadyLoad {
    state: Arc<Mutex<State>>,
    thread: Option<JoinHandle<()>>,
}

impl SteadyLoad {
    pub(crate) fn start(puts: Puts) -> SteadyLoad {
        let state = Arc::<Mutex<State>>::default();
        let shared = state.clone();
        let thread = std::thread::spawn(move || {
            if let Err(why) = run(&puts, &shared) {
                lock(&shared).failed = Some(why);
            }
        });
        SteadyLoad { state, thread: Some(thread) }
    }

    /// All minutes so far.
    pub(crate) fn minutes(&self) -> Vec<Minute> {
        lock(&self.state).minutes.clone()
    }

    /// Why the load has ended by itself, if it has.
    pub(crate) fn failed(&self) -> Option<String> {
        lock(&self.state).failed.clone()
    }
}

impl Drop for SteadyLoad {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        state.ends = true;
        if let Some(child) = &mut state.child {
            let _ = child.kill();
        }
        drop(state);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().expect("nobody panics with it")
}

fn run(puts: &Puts, state: &Mutex<State>) -> Result<(), String> {
    bench(puts, state, puts.keys, None)?;
    let (_, rate) = full_speed(puts, state)?;
    bench(puts, state, rate * 60 * WARM_UP_MINUTES, Some(rate))?;
    loop {
        let (most, rate) = full_speed(puts, state)?;
        for _ in 0..MINUTES {
            let before = processor_times();
            let report = bench(puts, state, rate * 60, Some(rate))?;
            let minute = Minute {
                most,
                rate: number(&report, "ops_per_s")? as u64,
                p50_ms: number(&report, "p50_us")? / 1e3,
                p99_ms: number(&report, "p99_us")? / 1e3,
                stolen: stolen(before, processor_times()),
            };
            lock(state).minutes.push(minute);
        }
    }
}

/// Puts a second at full speed, and at the share of it.
fn full_speed(puts: &Puts, state: &Mutex<State>) -> Result<(u64, u64), String> {
    let most = number(&bench(puts, state, MOST_TOTAL, None)?, "ops_per_s")? as u64;
    Ok((most, most * SHARE / 100))
}

/// One run of the tool; its report. An error if a put failed, or if the load is to end.
fn bench(puts: &Puts, state: &Mutex<State>, total: u64, rate: Option<u64>) -> Result<Value, String> {
    let mut command = Command::new(kattu());
    command.args(["bench", "put", "--native", "--sessions", "8", "--clients", "8", "--conns", "8"]);
    command.args(["--pipeline", "256", "--key-size", "16", "--endpoints", &puts.endpoints]);
    command.args(["--val-size", &puts.value_bytes.to_string(), "--key-space", &puts.keys.to_string()]);
    command.args(["--total", &total.to_string(), "--timeout", "60s", "-o", "json"]);
    if let Some(rate) = rate {
        command.args(["--rate", &rate.to_string()]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut stdout = {
        let mut state = lock(state);
        if state.ends {
            return Err("it is to end".to_string());
        }
        let mut child = command.spawn().map_err(|error| format!("kattu bench cannot be run: {error}"))?;
        let stdout = child.stdout.take().expect("it is a pipe");
        state.child = Some(child);
        stdout
    };
    let text = std::io::read_to_string(&mut stdout).map_err(|error| error.to_string())?;
    if let Some(mut child) = lock(state).child.take() {
        child.wait().map_err(|error| error.to_string())?;
    }
    let report: Value =
        serde_json::from_str(&text).map_err(|error| format!("kattu bench printed {text}: {error}"))?;
    match report["errors"].as_u64() {
        Some(0) => Ok(report),
        _ => Err(format!("puts were refused or failed: {report}")),
    }
}

fn number(report: &Value, name: &str) -> Result<f64, String> {
    report[name].as_f64().ok_or_else(|| format!("no {name} in {report}"))
}

/// Time of all processors since the machine's start, and of it what its host took for others, in ticks; zeros if the kernel does not
/// tell. [proc_stat(5)]
fn processor_times() -> (u64, u64) {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    processor_times_of(&text).unwrap_or_default()
}

fn processor_times_of(text: &str) -> Option<(u64, u64)> {
    // user, nice, system, idle, iowait, irq, softirq, steal; what follows is part of the first two.
    let words = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace().take(8);
    let ticks: Vec<u64> = words.map(str::parse).collect::<Result<_, _>>().ok()?;
    Some((ticks.iter().sum(), *ticks.get(7)?))
}

/// Percent of the time between two readings.
fn stolen(before: (u64, u64), after: (u64, u64)) -> f64 {
    let (all, taken) = (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1));
    100.0 * taken as f64 / all.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_host_takes_is_a_part_of_all_time() {
        let text = |steal: u64| format!("cpu  50 1 20 900 7 0 2 {steal} 5 0\ncpu0 1 2 3");
        let times = |steal| processor_times_of(&text(steal)).expect("a line of the kernel");
        assert_eq!(times(20), (1000, 20), "time of guests is counted once");
        assert_eq!(stolen((900, 10), times(20)), 10.0);
        assert_eq!(stolen(times(20), times(20)), 0.0);
        assert_eq!(processor_times_of("cpu  1 2 3"), None);
    }
}
