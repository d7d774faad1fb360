//! bench: a load of clients, with its throughput and latencies.
//!
//! ```text
//!   closed loop   each client sends its next request as soon as it has an answer: throughput and latency belong together
//!   open loop     requests begin at the times that --rate says; a latency counts from there, also where the client was late
//! ```
//! In a closed loop a member that stalls is asked less meanwhile, so that few requests see the stall (*coordinated
//! omission*); in an open loop all that should have begun meanwhile count it.
//!
//! Clients share connections and sessions in turn, and all run on one thread to leave the machine to the servers.
//! Connections are open before the first operation begins. Keys are numbers below `--key-space`, in decimal, padded with
//! zeros to `--key-size`.
//! Knows nothing of: the cluster's work.

mod load;
mod plot;

use crate::connect::{Reach, block_on};
use crate::ended;
use crate::output::{self, Format};
use clap::{Args, ValueEnum};
use hdrhistogram::Histogram;
use kattu_client::Error;
use kattu_output::{Ended, Outcome};
use load::{Order, load};
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;
use tokio::task::LocalSet;

/// Latencies above are counted as this.
const LATENCY_MAX_US: u64 = 600_000_000;

/// Arguments of bench.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
`range` (or `get`) and `mixed` first write the keys they will read, unless with --filled. Latencies are in microseconds. The
exit code is 1 if any operation failed.

With --rate the load is an open loop: a latency counts from the time at which its operation should have begun, so that a
stall counts for all that it held up. Operations begin up to a millisecond late, and later if all clients are busy: both
counts, too, so give it many clients.

With --weak a client goes on when a quorum has received its write, in memory; `kattu protocol nb-raft --weak` turns that on. Two
rates are shown: of writes that clients went on after, and of writes that are done. *Lost* are writes that clients went on
after and that were never done, or whose end is unknown.

Examples:
  kattu bench put --clients 256 --conns 16 --total 100000 --val-size 256
  kattu bench range --clients 64 --conns 8 --total 100000 -o json
  kattu bench put --clients 64 --conns 8 -o json --histogram
  kattu bench put --native --clients 8 --conns 8 --sessions 8 --pipeline 256 --total 1000000
  kattu bench put --native --weak --clients 64 --conns 8 --total 100000
  kattu bench mixed --native --clients 64 --conns 4 --rate 20000 --total 200000 --plot latencies.svg")]
pub(crate) struct BenchArgs {
    /// The operation
    #[arg(value_enum)]
    operation: Operation,
    /// Clients, each with one operation under way
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    clients: u32,
    /// Connections, shared by the clients
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    conns: u32,
    /// Use the native protocol instead of etcd's
    #[arg(long)]
    native: bool,
    /// Operations that each client has under way
    #[arg(long, default_value_t = 1, requires = "native", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pipeline: u32,
    /// Sessions, shared by the clients: each write is executed once; 0 for none, or with --weak for one of each client
    #[arg(long, default_value_t = 0, requires = "native", value_parser = clap::value_parser!(u32).range(0..=100_000))]
    sessions: u32,
    /// Open a session for each write, and close it after that: what a session that is kept saves
    #[arg(long, requires = "native", conflicts_with = "sessions")]
    session_each: bool,
    /// Go on when a quorum has received a write, before it is committed, with as many writes of a session under way as the
    /// members' budget and its window of 4096 allow
    #[arg(long, requires = "native", conflicts_with = "session_each")]
    weak: bool,
    /// Operations that begin in a second, however fast answers come; else each client waits for its answers
    #[arg(long)]
    rate: Option<u32>,
    /// Number of operations
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    total: u64,
    /// Bytes of each key
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=65_536))]
    key_size: u64,
    /// Bytes of each value
    #[arg(long, default_value_t = 8)]
    val_size: u64,
    /// Number of different keys
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    key_space: u64,
    /// Do not write the keys before they are read: an earlier load with as many keys of this size did
    #[arg(long)]
    filled: bool,
    /// Read from the member's own state, which may be old
    #[arg(long)]
    serializable: bool,
    #[command(flatten)]
    reach: Reach,
    /// Output format
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
    /// With -o json: all latencies as well, as `latencies_us`: pairs of a latency and how many operations took that long
    #[arg(long)]
    histogram: bool,
    /// Draw the latencies into this file, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

impl BenchArgs {
    /// Sessions of the load. Weak answers are for writes in sessions.
    fn sessions(&self) -> u32 {
        if self.weak && self.sessions == 0 { self.clients } else { self.sessions }
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Operation {
    /// Write keys
    Put,
    /// Read keys, one at a time
    #[value(alias = "get")]
    Range,
    /// Write and read keys by turns
    Mixed,
}

/// The result of all clients.
#[derive(Debug)]
struct Score {
    begun: u64,
    latencies_us: Histogram<u64>,
    errors: u64,
    first_error: Option<Error>,
    weak: Accepted,
}

/// Weak writes.
#[derive(Debug)]
struct Accepted {
    /// How long until clients went on: because a quorum had received the write, or because it was done.
    latencies_us: Histogram<u64>,
    /// Of these, because a quorum had received it.
    received: u64,
    /// Of these, not done in the end, as far as is known.
    lost: u64,
    /// When the last client went on, since the begin.
    last: Duration,
}

impl Score {
    fn new() -> Result<Score, Ended> {
        let new = || Histogram::new_with_bounds(1, LATENCY_MAX_US, 3).map_err(Ended::failed);
        let weak = Accepted { latencies_us: new()?, received: 0, lost: 0, last: Duration::ZERO };
        Ok(Score { begun: 0, latencies_us: new()?, errors: 0, first_error: None, weak })
    }
}

/// Runs a load.
pub(crate) fn run(args: &BenchArgs) -> Outcome {
    if args.reach.endpoints.is_empty() {
        return Err(Ended::usage("no endpoint is given"));
    }
    if args.session_each && 1 < args.pipeline {
        return Err(Ended::usage(
            "--session-each and --pipeline exclude each other: one write at a time is in its session",
        ));
    }
    if args.weak && args.operation != Operation::Put {
        return Err(Ended::usage("--weak needs `put`: weak answers are for writes"));
    }
    if args.rate == Some(0) {
        return Err(Ended::usage("--rate 0: nothing would ever begin"));
    }
    let (mut score, took) = block_on(LocalSet::new().run_until(async {
        if args.operation != Operation::Put && !args.filled {
            let fill = BenchArgs {
                operation: Operation::Put,
                total: args.key_space,
                clients: 64,
                sessions: 0,
                session_each: false,
                rate: None,
                ..args.clone()
            };
            let (mut filled, _) = load(&fill, Order::Ascending, "writing keys").await?;
            if let Some(error) = filled.first_error.take() {
                return Err(ended::of_error(&error));
            }
        }
        load(args, Order::Random, "").await
    }))?;
    report(args, &score, took.as_secs_f64())?;
    if let Some(file) = &args.plot {
        let title = format!("kattu bench {}", words(args));
        let picture = plot::latencies(&title, &score.latencies_us);
        std::fs::write(file, picture)
            .map_err(|error| Ended::failed(format!("cannot write {}: {error}", file.display())))?;
    }
    match score.first_error.take() {
        None => Ok(()),
        Some(error) if score.latencies_us.is_empty() => Err(ended::of_error(&error)),
        Some(error) => Err(Ended::failed(format!("{} operations failed; the first: {error}", score.errors))),
    }
}

/// The load in words, for the picture.
fn words(args: &BenchArgs) -> String {
    let operation = match args.operation {
        Operation::Put => "put",
        Operation::Range => "range",
        Operation::Mixed => "mixed",
    };
    let mut words = format!("{operation}, {} clients, {} connections", args.clients, args.conns);
    if args.native {
        words += &match args.session_each {
            true => ", native, a session for each write".to_string(),
            false => format!(", native, pipeline {}, {} sessions", args.pipeline, args.sessions()),
        };
        words += if args.weak { ", weak" } else { "" };
    }
    if let Some(rate) = args.rate {
        words += &format!(", {rate} a second");
    }
    words
}

/// The latencies that occurred, in ascending order, each with its count. They are exact to three digits.
fn pairs(latencies: &Histogram<u64>) -> serde_json::Value {
    let pairs =
        latencies.iter_recorded().map(|step| json!([step.value_iterated_to(), step.count_at_value()]));
    pairs.collect()
}

fn report(args: &BenchArgs, score: &Score, seconds: f64) -> Outcome {
    let latencies = &score.latencies_us;
    let ops = latencies.len();
    let at = |quantile| latencies.value_at_quantile(quantile);
    let ops_per_s = if seconds > 0.0 { ops as f64 / seconds } else { 0.0 };
    match args.output {
        Format::Json => {
            let mut answer = json!({
                "ops": ops,
                "seconds": seconds,
                "ops_per_s": ops_per_s,
                "p50_us": at(0.5),
                "p99_us": at(0.99),
                "p999_us": at(0.999),
                "max_us": latencies.max(),
                "errors": score.errors,
            });
            if args.histogram {
                answer["latencies_us"] = pairs(latencies);
            }
            if args.weak {
                answer["weak"] = weak_json(args, &score.weak);
            }
            output::print_json(&answer)
        }
        Format::Table => {
            let head = ["ops", "seconds", "ops/s", "p50 µs", "p99 µs", "p99.9 µs", "max µs", "errors"];
            let row = vec![
                ops.to_string(),
                format!("{seconds:.3}"),
                format!("{ops_per_s:.0}"),
                at(0.5).to_string(),
                at(0.99).to_string(),
                at(0.999).to_string(),
                latencies.max().to_string(),
                score.errors.to_string(),
            ];
            output::print_table(&head, vec![row])?;
            match args.weak {
                true => report_weak(&score.weak),
                false => Ok(()),
            }
        }
    }
}

impl Accepted {
    fn per_second(&self) -> f64 {
        match self.last.as_secs_f64() {
            0.0 => 0.0,
            seconds => self.latencies_us.len() as f64 / seconds,
        }
    }
}

fn weak_json(args: &BenchArgs, weak: &Accepted) -> serde_json::Value {
    let at = |quantile| weak.latencies_us.value_at_quantile(quantile);
    let mut json = json!({
        "ops": weak.latencies_us.len(),
        "seconds": weak.last.as_secs_f64(),
        "ops_per_s": weak.per_second(),
        "p50_us": at(0.5),
        "p99_us": at(0.99),
        "p999_us": at(0.999),
        "max_us": weak.latencies_us.max(),
        "received": weak.received,
        "lost": weak.lost,
    });
    if args.histogram {
        json["latencies_us"] = pairs(&weak.latencies_us);
    }
    json
}

/// Beside the table of writes that are done, the one of writes that clients went on after.
fn report_weak(weak: &Accepted) -> Outcome {
    let at = |quantile| weak.latencies_us.value_at_quantile(quantile).to_string();
    let head = ["accepted", "seconds", "accepted/s", "p50 µs", "p99 µs", "max µs", "received", "lost"];
    let row = vec![
        weak.latencies_us.len().to_string(),
        format!("{:.3}", weak.last.as_secs_f64()),
        format!("{:.0}", weak.per_second()),
        at(0.5),
        at(0.99),
        weak.latencies_us.max().to_string(),
        weak.received.to_string(),
        weak.lost.to_string(),
    ];
    output::print(b"\n")?;
    output::print_table(&head, vec![row])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_is_told_as_pairs_that_count_every_latency() {
        let mut latencies = Score::new().expect("good bounds").latencies_us;
        for latency in [7, 7, 300, 1_000_000] {
            latencies.record(latency).expect("in bounds");
        }
        let pairs = pairs(&latencies);
        assert_eq!((&pairs[0], &pairs[1]), (&json!([7, 2]), &json!([300, 1])));
        let last = pairs[2][0].as_u64().expect("a latency");
        assert!((1_000_000..1_001_000).contains(&last) && pairs[2][1] == 1, "{pairs}");
        assert_eq!(pairs.as_array().map(Vec::len), Some(3));
    }
}
