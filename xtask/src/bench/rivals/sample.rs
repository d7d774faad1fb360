//! The figures of one run of one side.
//!
//! Knows nothing of: rows, goals.

use crate::bench::meter::Reading;
use std::collections::BTreeMap;

/// A figure, in the unit in which it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Figure {
    /// Operations per second.
    Rate,
    /// Median latency, milliseconds.
    P50,
    /// 99th percentile, milliseconds.
    P99,
    /// CPU of all servers per operation, microseconds.
    ServerCpu,
    /// CPU of the load's program per operation, microseconds.
    ClientCpu,
    /// CPU of all servers without clients, percent of one core.
    Busy,
    /// Until a member serves, seconds.
    Start,
    /// Cores used by other processes meanwhile.
    Others,
}

impl Figure {
    /// All of them, in the order of the columns.
    pub const ALL: [Figure; 8] = [
        Figure::Rate,
        Figure::P50,
        Figure::P99,
        Figure::ServerCpu,
        Figure::ClientCpu,
        Figure::Busy,
        Figure::Start,
        Figure::Others,
    ];

    /// Its name, with its unit.
    pub fn name(self) -> &'static str {
        match self {
            Figure::Rate => "ops/s",
            Figure::P50 => "p50, ms",
            Figure::P99 => "p99, ms",
            Figure::ServerCpu => "CPU of the servers, µs/op",
            Figure::ClientCpu => "CPU of the clients, µs/op",
            Figure::Busy => "CPU, % of a core",
            Figure::Start => "start, s",
            Figure::Others => "others' cores",
        }
    }
}

/// The figures of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// Those that the side has; all are finite.
    pub figures: BTreeMap<Figure, f64>,
    /// Operations that failed.
    pub errors: u64,
}

/// What the clients of a load report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
    /// Operations done.
    pub ops: u64,
    /// Per second.
    pub ops_per_s: f64,
    /// Median latency, microseconds.
    pub p50_us: f64,
    /// 99th percentile, microseconds.
    pub p99_us: f64,
    /// Operations that failed.
    pub errors: u64,
}

impl Sample {
    /// Of a load: with `is_inside` the clients are in a server's process.
    pub fn of_load(report: Report, reading: &Reading, is_inside: bool) -> Sample {
        let ops = report.ops as f64;
        let servers_s: f64 = reading.used.iter().map(|used| used.user_s + used.system_s).sum();
        let mut sample = Sample { errors: report.errors, ..Sample::default() };
        sample.add(Figure::Rate, report.ops_per_s);
        sample.add(Figure::P50, report.p50_us / 1e3);
        sample.add(Figure::P99, report.p99_us / 1e3);
        sample.add(Figure::ServerCpu, servers_s / ops * 1e6);
        if !is_inside {
            sample.add(Figure::ClientCpu, reading.client_s / ops * 1e6);
        }
        sample.add(Figure::Others, reading.other_cores);
        sample
    }

    /// Of one figure alone.
    pub fn of(figure: Figure, value: f64) -> Sample {
        let mut sample = Sample::default();
        sample.add(figure, value);
        sample
    }

    /// A percentile that a tool had too few operations for is left out.
    pub fn add(&mut self, figure: Figure, value: f64) {
        if value.is_finite() {
            self.figures.insert(figure, value);
        }
    }

    /// One line while the bench goes on.
    pub fn line(&self) -> String {
        let figures: Vec<String> = self
            .figures
            .iter()
            .map(|(figure, value)| format!("{} {}", number(*value), figure.name()))
            .collect();
        let errors = if self.errors == 0 { String::new() } else { format!(" · {} ERRORS", self.errors) };
        figures.join(" · ") + &errors
    }
}

/// With as many digits as a reader needs.
pub fn number(value: f64) -> String {
    match value.abs() {
        size if 1000.0 <= size => format!("{value:.0}"),
        size if 10.0 <= size => format!("{value:.1}"),
        size if 1.0 <= size => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::meter::Used;

    #[test]
    fn cpu_is_per_operation_and_of_all_servers() {
        let used = |user_s, system_s| Used { user_s, system_s, switches: 0 };
        let reading = Reading {
            used: vec![used(1.0, 0.5), used(0.25, 0.25)],
            client_s: 3.0,
            other_cores: 0.1,
            ..Reading::default()
        };
        let report = Report { ops: 1_000_000, ops_per_s: 5e5, p50_us: 1500.0, p99_us: f64::NAN, errors: 2 };
        let sample = Sample::of_load(report, &reading, false);
        let figure = |figure| sample.figures.get(&figure).copied();
        assert_eq!(figure(Figure::ServerCpu), Some(2.0));
        assert_eq!(figure(Figure::ClientCpu), Some(3.0));
        assert_eq!((figure(Figure::P50), figure(Figure::P99)), (Some(1.5), None));
        assert!(sample.line().contains("2 ERRORS"), "{}", sample.line());
        let inside = Sample::of_load(report, &reading, true);
        assert_eq!(inside.figures.get(&Figure::ClientCpu), None, "their CPU is within that of the servers");
    }

    #[test]
    fn a_number_has_three_digits_or_all_before_the_point() {
        let shown = [512_345.6, 81.26, 4.125, 0.4812, 0.0].map(number);
        assert_eq!(shown, ["512346", "81.3", "4.12", "0.481", "0.000"]);
    }
}
