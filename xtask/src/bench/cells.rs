//! The cells of the table: one load each, the same for both sides.
//!
//! Keys of 8 bytes, values of 256, as in the published figures; the driver is etcd's own benchmark tool, or Kattu's.
//! Knows nothing of: servers.

/// A required ratio between the figures of Kattu and of etcd.
#[derive(Clone, Copy, Debug)]
pub enum Goal {
    /// Kattu's operations per second, as a multiple of etcd's.
    RateAtLeast(f64),
    /// Kattu's server CPU per operation, as a multiple of etcd's.
    CpuAtMost(f64),
    /// Kattu's median latency, as a multiple of etcd's.
    MedianAtMost(f64),
    /// Kattu's 99th percentile, as a multiple of etcd's.
    TailAtMost(f64),
}

/// The load tool. The same for both sides of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// etcd's benchmark tool: in Go, on all cores. Its latencies include the pauses of its garbage collector.
    Etcd,
    /// `kattu bench`: one thread, without a garbage collector.
    Kattu,
}

/// The clients' requests.
#[derive(Clone, Copy, Debug)]
pub enum Calls {
    /// Values of 256 bytes are put to 100,000 keys.
    Put,
    /// One key is read, linearizably.
    RangeLinearizable,
    /// One key is read from the member's own state.
    RangeSerializable,
}

/// One load.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// Its name in tables and for `--only`.
    pub name: &'static str,
    /// TCP connections of the tool.
    pub conns: u32,
    /// Closed-loop clients spread over them.
    pub clients: u32,
    /// Operations per repetition.
    pub total: u64,
    /// The requests of its clients.
    pub calls: Calls,
    /// The release's goals for this cell.
    pub goals: &'static [Goal],
}

/// The key that range cells of etcd's tool read; its value has 256 bytes.
pub const RANGE_KEY: &str = "bench-key-0001";

impl Calls {
    /// The words for this tool's command line.
    pub fn words(self, tool: Tool) -> &'static [&'static str] {
        match (tool, self) {
            (Tool::Etcd, Calls::Put) => &[
                "put",
                "--key-size",
                "8",
                "--val-size",
                "256",
                "--sequential-keys",
                "--key-space-size",
                "100000",
            ],
            (Tool::Etcd, Calls::RangeLinearizable) => &["range", RANGE_KEY, "--consistency", "l"],
            (Tool::Etcd, Calls::RangeSerializable) => &["range", RANGE_KEY, "--consistency", "s"],
            (Tool::Kattu, Calls::Put) => &["put", "--val-size", "256", "--key-space", "100000"],
            (Tool::Kattu, Calls::RangeLinearizable) => &["range", "--val-size", "256", "--key-space", "1"],
            (Tool::Kattu, Calls::RangeSerializable) => {
                &["range", "--val-size", "256", "--key-space", "1", "--serializable"]
            }
        }
    }
}

/// Runs before the cells of each side and is not reported.
pub const WARM_UP: Cell =
    Cell { name: "warm-up", conns: 16, clients: 64, total: 10_000, calls: Calls::Put, goals: &[] };

/// In the order in which they run.
pub const CELLS: &[Cell] = &[
    Cell {
        name: "put-1",
        conns: 1,
        clients: 1,
        total: 3_000,
        calls: Calls::Put,
        goals: &[Goal::MedianAtMost(1.0 / 2.0)],
    },
    Cell {
        name: "put-256",
        conns: 100,
        clients: 256,
        total: 60_000,
        calls: Calls::Put,
        goals: &[Goal::RateAtLeast(2.0), Goal::CpuAtMost(1.0 / 3.0), Goal::TailAtMost(0.25)],
    },
    Cell { name: "put-1000", conns: 100, clients: 1_000, total: 80_000, calls: Calls::Put, goals: &[] },
    Cell {
        name: "range-l-256",
        conns: 100,
        clients: 256,
        total: 80_000,
        calls: Calls::RangeLinearizable,
        goals: &[Goal::CpuAtMost(1.0 / 2.0)],
    },
    Cell {
        name: "range-s-256",
        conns: 100,
        clients: 256,
        total: 80_000,
        calls: Calls::RangeSerializable,
        goals: &[],
    },
];

/// The tool's report of one run. A percentile is NaN if the tool had too few operations to print it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ToolReport {
    /// Operations per second.
    pub ops_per_s: f64,
    /// Median latency, microseconds.
    pub p50_us: f64,
    /// 99th percentile, microseconds.
    pub p99_us: f64,
    /// 99.9th percentile, microseconds.
    pub p999_us: f64,
    /// Whether the tool listed errors.
    pub has_errors: bool,
}

impl Tool {
    /// Reads the tool's summary; `None` if it is not there.
    pub fn read(self, text: &str) -> Option<ToolReport> {
        match self {
            Tool::Etcd => read_etcd(text),
            Tool::Kattu => read_kattu(text),
        }
    }
}

fn read_kattu(text: &str) -> Option<ToolReport> {
    let summary: serde_json::Value = serde_json::from_str(text).ok()?;
    let figure = |name: &str| summary[name].as_f64();
    Some(ToolReport {
        ops_per_s: figure("ops_per_s")?,
        p50_us: figure("p50_us")?,
        p99_us: figure("p99_us")?,
        p999_us: figure("p999_us")?,
        has_errors: figure("errors")? != 0.0,
    })
}

fn read_etcd(text: &str) -> Option<ToolReport> {
    let mut report = ToolReport {
        ops_per_s: 0.0,
        p50_us: f64::NAN,
        p99_us: f64::NAN,
        p999_us: f64::NAN,
        has_errors: text.contains("Error distribution"),
    };
    for line in text.lines() {
        let line = line.trim();
        if let Some(rate) = line.strip_prefix("Requests/sec:") {
            report.ops_per_s += rate.trim().parse::<f64>().ok()?;
        } else if let Some((percent, rest)) = line.split_once("% in ") {
            let seconds = rest.split(' ').next()?.parse::<f64>().ok()?;
            let percent = percent.parse::<f64>().ok()?;
            match (percent * 10.0).round() as u32 {
                500 => report.p50_us = seconds * 1e6,
                990 => report.p99_us = seconds * 1e6,
                999 => report.p999_us = seconds * 1e6,
                _ => {}
            }
        }
    }
    (0.0 < report.ops_per_s).then_some(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_of_each_tool_is_read() {
        let text = "\nSummary:\n  Total:\t0.5 secs.\n  Requests/sec:\t6381.2500\n\nLatency distribution:\n  \
            10% in 0.010000 secs.\n  50% in 0.035100 secs.\n  99% in 0.082200 secs.\n  99.9% in 0.103700 secs.\n";
        let report = Tool::Etcd.read(text).expect("a summary");
        assert_eq!(report.ops_per_s, 6381.25);
        assert!((report.p50_us - 35_100.0).abs() < 0.01, "{report:?}");
        assert!((report.p99_us - 82_200.0).abs() < 0.01, "{report:?}");
        assert!((report.p999_us - 103_700.0).abs() < 0.01, "{report:?}");
        assert!(!report.has_errors);
        assert_eq!(Tool::Etcd.read("connection refused"), None);

        let text = r#"{"ops":60000,"seconds":2.0,"ops_per_s":30000.0,"p50_us":8001,"p99_us":12003,"p999_us":20031,
            "max_us":30000,"errors":3}"#;
        let report = Tool::Kattu.read(text).expect("a summary");
        let (ops_per_s, has_errors) = (30_000.0, true);
        let read = ToolReport { ops_per_s, p50_us: 8_001.0, p99_us: 12_003.0, p999_us: 20_031.0, has_errors };
        assert_eq!(report, read);
        assert_eq!(Tool::Kattu.read("connection refused"), None);
    }
}
