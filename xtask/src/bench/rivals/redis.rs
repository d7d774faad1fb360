//! Redis: one server without replicas, whose replies come after a sync of its log (`appendfsync always`).
//!
//! Rule: puts that are under way in groups come as pipelines of 16, on as many connections as make the same number of puts.
//! Knows nothing of: how a load is measured.

use super::rows::Shape;
use super::sample::Report;
use crate::shell::Failure;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Where it listens, on a loopback address of its own.
pub const PORT: &str = "6379";
const PIPELINE: u32 = 16;
const START_LIMIT: Duration = Duration::from_secs(20);

/// A running server; dropped, it is killed and its data removed.
pub struct Server<'a> {
    child: Child,
    folder: &'a Path,
}

impl Server<'_> {
    /// Starts it on fresh data and waits until it listens.
    pub fn start<'a>(programs: &Path, folder: &'a Path, host: &str) -> Result<Server<'a>, Failure> {
        if folder.exists() {
            std::fs::remove_dir_all(folder)?;
        }
        std::fs::create_dir_all(folder)?;
        let log = File::create(folder.with_extension("log"))?;
        let child = Command::new(programs.join("redis-server"))
            .args(["--bind", host, "--port", PORT, "--daemonize", "no", "--save", "", "--dir"])
            .arg(folder)
            .args(["--appendonly", "yes", "--appendfsync", "always"])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let mut server = Server { child, folder };
        let end = Instant::now() + START_LIMIT;
        while std::net::TcpStream::connect(format!("{host}:{PORT}")).is_err() {
            if server.child.try_wait()?.is_some() || end < Instant::now() {
                let log = std::fs::read_to_string(folder.with_extension("log")).unwrap_or_default();
                return Err(Failure::new(format!("redis-server does not listen:\n{log}")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        // The measurement is over, and no data is kept.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(self.folder);
    }
}

/// Connections, and puts under way on each.
pub fn clients(shape: Shape) -> (u32, u32) {
    match shape.pipeline {
        1 => (shape.clients, 1),
        _ => (shape.under_way().div_ceil(PIPELINE), PIPELINE),
    }
}

/// Reads the table of `redis-benchmark --csv`.
pub fn read(text: &str, total: u64) -> Option<Report> {
    let mut lines = text.lines().map(str::trim).skip_while(|line| !line.contains("p50_latency_ms"));
    let cells =
        |line: &str| line.split(',').map(|cell| cell.trim_matches('"').to_string()).collect::<Vec<_>>();
    let (names, values) = (cells(lines.next()?), cells(lines.next()?));
    let figure = |name: &str| values.get(names.iter().position(|n| n == name)?)?.parse::<f64>().ok();
    Some(Report {
        ops: total,
        ops_per_s: figure("rps")?,
        p50_us: figure("p50_latency_ms")? * 1e3,
        p99_us: figure("p99_latency_ms")? * 1e3,
        errors: 0, // the tool ends at the first one
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_are_found_by_the_names_of_their_columns() {
        let text = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\
                    \"p99_latency_ms\",\"max_latency_ms\"\n\
                    \"SET\",\"327868.84\",\"2.987\",\"0.400\",\"2.500\",\"5.655\",\"7.750\",\"9.047\"\n";
        let report = Report { ops: 9, ops_per_s: 327_868.84, p50_us: 2_500.0, p99_us: 7_750.0, errors: 0 };
        assert_eq!(read(text, 9), Some(report));
        assert_eq!(read("Could not connect to Redis at 127.0.0.1:6379: Connection refused", 9), None);
        assert_eq!(read(text.lines().next().unwrap_or_default(), 9), None, "it was ended before its figures");
    }

    #[test]
    fn as_many_puts_are_under_way_as_on_the_other_sides() {
        let shape = |clients, pipeline| Shape { clients, conns: clients, pipeline, value_bytes: 16 };
        assert_eq!(clients(shape(8, 128)), (64, 16));
        assert_eq!(clients(shape(256, 1)), (256, 1));
    }
}
