//! bench: a closed loop of clients, with its throughput and latencies.
//!
//! Each client sends its next request as soon as it has a response, so that throughput and latency belong together.
//! Clients share connections in turn, and all run on one thread to leave the machine to the servers. Connections are
//! open before the first operation begins. Keys are numbers below `--key-space`, in decimal, padded with zeros to
//! `--key-size`.
//! Knows nothing of: the cluster's work.

use crate::connect::{Reach, block_on};
use crate::ended;
use crate::output::{self, Format};
use clap::{Args, ValueEnum};
use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};
use kattu_client::{Client, Failure};
use kattu_output::{Ended, Outcome};
use kattu_proto::etcdserverpb as pb;
use serde_json::json;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::{JoinSet, LocalSet};

/// How often the progress bar moves.
const BAR_PERIOD: Duration = Duration::from_millis(100);
/// Latencies above are counted as this.
const LATENCY_MAX_US: u64 = 600_000_000;

/// Arguments of bench.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
`range` first writes the keys it will read. Latencies are in microseconds. The exit code is 1 if any operation failed.

Examples:
  kattu bench put --clients 256 --conns 16 --total 100000 --val-size 256
  kattu bench range --clients 64 --conns 8 --total 100000 -o json")]
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
    /// Read from the member's own state, which may be old
    #[arg(long)]
    serializable: bool,
    #[command(flatten)]
    reach: Reach,
    /// Output format
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Operation {
    /// Write keys
    Put,
    /// Read keys, one at a time
    Range,
}

/// The result of all clients.
struct Score {
    begun: u64,
    latencies_us: Histogram<u64>,
    errors: u64,
    first_failure: Option<Failure>,
}

impl Score {
    fn new() -> Result<Rc<RefCell<Score>>, Ended> {
        let latencies_us = Histogram::new_with_bounds(1, LATENCY_MAX_US, 3).map_err(Ended::failed)?;
        Ok(Rc::new(RefCell::new(Score { begun: 0, latencies_us, errors: 0, first_failure: None })))
    }
}

/// Runs a load.
pub(crate) fn run(args: &BenchArgs) -> Outcome {
    if args.reach.endpoints.is_empty() {
        return Err(Ended::usage("no endpoint is given"));
    }
    let (score, took) = block_on(LocalSet::new().run_until(async {
        if args.operation == Operation::Range {
            let fill =
                BenchArgs { operation: Operation::Put, total: args.key_space, clients: 64, ..args.clone() };
            let (filled, _) = load(&fill, Order::Ascending, "writing keys").await?;
            if let Some(failure) = filled.borrow_mut().first_failure.take() {
                return Err(ended::of_call(failure));
            }
        }
        load(args, Order::Random, "").await
    }))?;
    let mut score = score.borrow_mut();
    report(args, &score, took.as_secs_f64())?;
    match score.first_failure.take() {
        None => Ok(()),
        Some(failure) if score.latencies_us.is_empty() => Err(ended::of_call(failure)),
        Some(failure) => {
            Err(Ended::failed(format!("{} operations failed; the first: {failure}", score.errors)))
        }
    }
}

/// The order in which keys are taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Ascending,
    Random,
}

/// Runs `total` operations and waits for all; how long they took.
async fn load(
    args: &BenchArgs,
    order: Order,
    what: &'static str,
) -> Result<(Rc<RefCell<Score>>, Duration), Ended> {
    let score = Score::new()?;
    let connections: Vec<Client> = (0..args.conns)
        .map(|number| {
            let client = args.reach.client()?;
            client.begin_at(number as usize);
            Ok(client)
        })
        .collect::<Result<_, Ended>>()?;
    open_all(&connections).await;
    let start = Instant::now();
    let style = ProgressStyle::with_template("{msg} {bar:40} {pos}/{len}, {per_sec}");
    let bar = ProgressBar::new(args.total).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message(what);
    let watching = tokio::task::spawn_local({
        let (bar, score) = (bar.clone(), score.clone());
        async move {
            loop {
                tokio::time::sleep(BAR_PERIOD).await;
                bar.set_position(score.borrow().begun);
            }
        }
    });
    let mut clients = JoinSet::new();
    let args = Rc::new(args.clone());
    for number in 0..args.clients as usize {
        let connection = connections[number % connections.len()].clone();
        clients.spawn_local(ask_again_and_again(connection, args.clone(), order, score.clone()));
    }
    while clients.join_next().await.is_some() {}
    let took = start.elapsed();
    watching.abort();
    bar.finish_and_clear();
    Ok((score, took))
}

/// Opens all connections, by reading an unused key on each. Where that fails, the first operation reports it.
async fn open_all(connections: &[Client]) {
    let mut asked = JoinSet::new();
    for connection in connections {
        let connection = connection.clone();
        asked.spawn_local(async move {
            let range = pb::RangeRequest { key: vec![0], serializable: true, ..Default::default() };
            let _ = connection.range(range).await;
        });
    }
    while asked.join_next().await.is_some() {}
}

async fn ask_again_and_again(client: Client, args: Rc<BenchArgs>, order: Order, score: Rc<RefCell<Score>>) {
    loop {
        let number = {
            let mut score = score.borrow_mut();
            if score.begun == args.total {
                return;
            }
            score.begun += 1;
            score.begun - 1
        };
        let place = match order {
            Order::Ascending => number,
            Order::Random => scramble(number),
        };
        let key = key_of(place % args.key_space, args.key_size as usize);
        let start = Instant::now();
        let outcome = match args.operation {
            Operation::Put => {
                let value = vec![b'x'; args.val_size as usize];
                client.put(pb::PutRequest { key, value, ..Default::default() }).await.map(|_| ())
            }
            Operation::Range => {
                let serializable = args.serializable;
                client.range(pb::RangeRequest { key, serializable, ..Default::default() }).await.map(|_| ())
            }
        };
        let micros = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
        let mut score = score.borrow_mut();
        match outcome {
            Ok(()) => score.latencies_us.saturating_record(micros.max(1)),
            Err(failure) => {
                score.errors += 1;
                score.first_failure.get_or_insert(failure);
            }
        }
    }
}

/// A number that looks random, different for every number. [Steele14: splitmix64]
fn scramble(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// A number as a key of exactly `size` bytes; its last digits if it has more.
fn key_of(number: u64, size: usize) -> Vec<u8> {
    let digits = format!("{number:0size$}");
    digits.as_bytes()[digits.len() - size..].to_vec()
}

fn report(args: &BenchArgs, score: &Score, seconds: f64) -> Outcome {
    let latencies = &score.latencies_us;
    let ops = latencies.len();
    let at = |quantile| latencies.value_at_quantile(quantile);
    let ops_per_s = if seconds > 0.0 { ops as f64 / seconds } else { 0.0 };
    match args.output {
        Format::Json => output::print_json(&json!({
            "ops": ops,
            "seconds": seconds,
            "ops_per_s": ops_per_s,
            "p50_us": at(0.5),
            "p99_us": at(0.99),
            "p999_us": at(0.999),
            "max_us": latencies.max(),
            "errors": score.errors,
        })),
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
            output::print_table(&head, vec![row])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_exactly_the_size_asked_for() {
        assert_eq!(key_of(42, 8), b"00000042");
        assert_eq!(key_of(123_456, 3), b"456");
        assert_eq!(key_of(0, 1), b"0");
    }

    #[test]
    fn scrambled_numbers_differ() {
        let mut seen: Vec<u64> = (0..1000).map(scramble).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 1000);
    }
}
