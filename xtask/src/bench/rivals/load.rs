//! A measured load, for tools that are told a number of operations: Kattu's own, etcd's benchmark tool, redis-benchmark.
//!
//! Rule: a warm-up comes first; its rate decides how many operations take the time that was asked for.
//! Knows nothing of: which tool it is.

use super::rows::{Calls, Shape};
use super::sample::{Report, Sample};
use crate::bench::cells::{Tool, ToolReport};
use crate::bench::cluster::Cluster;
use crate::bench::meter::{self, Meter};
use crate::shell::{self, Failure};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Different keys that puts write.
pub const PUT_KEYS: u64 = 100_000;
/// Longest time of one call of a tool.
const LIMIT: Duration = Duration::from_secs(300);

/// How a load is measured.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Of the measured load.
    pub seconds: u64,
    /// Least operations of the warm-up: with millions, the servers have a history and take snapshots.
    pub warm_up_min: u64,
    /// Longest wait for other processes before it.
    pub quiet_limit: Duration,
}

impl Timing {
    /// Warms up, waits until the machine is quiet, and measures.
    pub fn measure(
        self,
        pids: &[u32],
        shape: Shape,
        mut load: impl FnMut(u64) -> Result<Report, Failure>,
    ) -> Result<Sample, Failure> {
        let warm_up = load(shape.warm_up().max(self.warm_up_min))?;
        let total = operations(warm_up, shape, self.seconds);
        self.wait(pids);
        let meter = Meter::start(pids);
        let report = load(total)?;
        Ok(Sample::of_load(report, &meter.stop(), false))
    }

    /// Waits until all processes but these are quiet.
    pub fn wait(self, pids: &[u32]) {
        if !self.quiet_limit.is_zero() {
            meter::wait_for_quiet(pids, self.quiet_limit);
        }
    }
}

/// As many as take this time at the rate of the warm-up, and not fewer than it had.
fn operations(warm_up: Report, shape: Shape, seconds: u64) -> u64 {
    ((warm_up.ops_per_s * seconds as f64) as u64).max(shape.warm_up())
}

/// Kattu's own tool, through the native protocol.
pub fn native(
    kattu: &Path,
    endpoint: &str,
    shape: Shape,
    calls: Calls,
    keys: u64,
    total: u64,
) -> Result<Report, Failure> {
    let mut tool = Command::new(kattu);
    tool.arg("bench").args(native_words(shape, calls, keys)).args(["--endpoints", endpoint]);
    tool.args(["--total", &total.to_string(), "--timeout", "60s", "-o", "json"]);
    of_kattu(&shell::output(&mut tool, LIMIT)?, total)
}

/// Writes keys 0 to `keys` - 1 with Kattu's own tool.
pub fn fill_native(kattu: &Path, endpoint: &str, value_bytes: u32, keys: u64) -> Result<(), Failure> {
    let mut tool = Command::new(kattu);
    // It writes all keys before it reads, and here it reads one.
    tool.args(["bench", "range", "--native", "--conns", "8", "--pipeline", "16", "--total", "1"]);
    tool.args(["--val-size", &value_bytes.to_string(), "--key-space", &keys.to_string()]);
    tool.args(["--endpoints", endpoint, "--timeout", "60s", "-o", "json"]);
    shell::output(&mut tool, LIMIT).map(|_| ())
}

fn native_words(shape: Shape, calls: Calls, keys: u64) -> Vec<String> {
    let mut words: Vec<&str> = match calls {
        Calls::Put => vec!["put"],
        Calls::ReadIndex | Calls::ReadLease => vec!["range", "--filled"],
        Calls::ReadLocal => vec!["range", "--filled", "--serializable"],
    };
    let clients = shape.clients.to_string();
    if calls == Calls::Put {
        words.extend(["--sessions", &clients]);
    }
    let (conns, pipeline) = (shape.conns.to_string(), shape.pipeline.to_string());
    let (value_bytes, keys) = (shape.value_bytes.to_string(), keys.to_string());
    words.extend(["--native", "--clients", &clients, "--conns", &conns, "--pipeline", &pipeline]);
    words.extend(["--key-size", "8", "--val-size", &value_bytes, "--key-space", &keys]);
    words.into_iter().map(str::to_string).collect()
}

/// etcd's benchmark tool, at the leader; if there is one endpoint, at that one.
pub fn etcd(tool: &Path, endpoints: &str, shape: Shape, calls: Calls, total: u64) -> Result<Report, Failure> {
    let mut tool = Command::new(tool);
    tool.args(["--endpoints", endpoints, "--precise"]);
    if endpoints.contains(',') {
        tool.arg("--target-leader");
    }
    tool.args(["--conns", &shape.conns.to_string(), "--clients", &shape.clients.to_string()]);
    let (value_bytes, keys) = (shape.value_bytes.to_string(), PUT_KEYS.to_string());
    match calls {
        Calls::Put => {
            tool.args(["put", "--key-size", "8", "--val-size", &value_bytes]);
            tool.args(["--sequential-keys", "--key-space-size", &keys]);
        }
        Calls::ReadIndex | Calls::ReadLease => {
            tool.args(["range", crate::bench::cells::RANGE_KEY, "--consistency", "l"]);
        }
        Calls::ReadLocal => {
            tool.args(["range", crate::bench::cells::RANGE_KEY, "--consistency", "s"]);
        }
    }
    tool.args(["--total", &total.to_string()]);
    read(Tool::Etcd, &shell::output(&mut tool, LIMIT)?, total)
}

/// Writes so many keys with etcd's benchmark tool, in transactions: single puts would take minutes.
pub fn fill_etcd(tool: &Path, cluster: &Cluster, value_bytes: u32, keys: u64) -> Result<(), Failure> {
    const PUTS: u64 = 128; // the default limit of a transaction
    let mut tool = Command::new(tool);
    tool.args(["--endpoints", &cluster.endpoints(), "--target-leader", "--conns", "16", "--clients", "64"]);
    tool.args(["txn-put", "--txn-ops", &PUTS.to_string(), "--total", &keys.div_ceil(PUTS).to_string()]);
    tool.args(["--key-size", "8", "--val-size", &value_bytes.to_string()]);
    tool.args(["--key-space-size", &keys.to_string()]);
    shell::output(&mut tool, LIMIT).map(|_| ())
}

/// Puts with redis-benchmark.
pub fn redis(folder: &Path, host: &str, shape: Shape, total: u64) -> Result<Report, Failure> {
    let mut tool = Command::new(folder.join("redis-benchmark"));
    tool.args(["-h", host, "-p", super::redis::PORT, "-t", "set", "--csv"]);
    let (clients, pipeline) = super::redis::clients(shape);
    tool.args(["-c", &clients.to_string(), "-P", &pipeline.to_string()]);
    tool.args(["-d", &shape.value_bytes.to_string(), "-r", &PUT_KEYS.to_string()]);
    tool.args(["-n", &total.to_string()]);
    let text = shell::output(&mut tool, LIMIT)?;
    super::redis::read(&text, total)
        .ok_or_else(|| Failure::new(format!("redis-benchmark printed no figures:\n{text}")))
}

/// What Kattu's own tool has printed, or another in its form.
pub fn of_kattu(text: &str, total: u64) -> Result<Report, Failure> {
    read(Tool::Kattu, text, total)
}

fn read(tool: Tool, text: &str, total: u64) -> Result<Report, Failure> {
    let none = || Failure::new(format!("no summary in\n{text}"));
    let ToolReport { ops_per_s, p50_us, p99_us, has_errors, .. } = tool.read(text).ok_or_else(none)?;
    // Neither tool goes on after an error so that its figures would count.
    match has_errors {
        true => Err(Failure::new(format!("operations failed:\n{text}"))),
        false => Ok(Report { ops: total, ops_per_s, p50_us, p99_us, errors: 0 }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { clients: 8, conns: 4, pipeline: 16, value_bytes: 256 };

    fn report(ops_per_s: f64) -> Report {
        Report { ops: 5_120, ops_per_s, p50_us: 1.0, p99_us: 2.0, errors: 0 }
    }

    #[test]
    fn the_load_takes_the_time_asked_for_at_the_rate_of_the_warm_up() {
        assert_eq!(operations(report(100_000.0), SHAPE, 3), 300_000);
        assert_eq!(operations(report(10.0), SHAPE, 3), SHAPE.warm_up(), "a slow warm-up");
    }

    #[test]
    fn writes_have_sessions_and_reads_keys_that_are_there() {
        let words = |calls| native_words(SHAPE, calls, 1_000).join(" ");
        let rest =
            "--native --clients 8 --conns 4 --pipeline 16 --key-size 8 --val-size 256 --key-space 1000";
        assert_eq!(words(Calls::Put), format!("put --sessions 8 {rest}"));
        assert_eq!(words(Calls::ReadIndex), format!("range --filled {rest}"));
        assert_eq!(words(Calls::ReadLocal), format!("range --filled --serializable {rest}"));
    }

    #[test]
    fn a_load_with_errors_has_no_figures() {
        let text = |errors: u32| {
            format!(r#"{{"ops_per_s":1.0,"p50_us":1,"p99_us":2,"p999_us":3,"errors":{errors}}}"#)
        };
        assert_eq!(read(Tool::Kattu, &text(0), 5_120).ok(), Some(report(1.0)));
        assert!(read(Tool::Kattu, &text(1), 5_120).is_err());
        assert!(read(Tool::Etcd, "connection refused", 1).is_err());
    }
}
