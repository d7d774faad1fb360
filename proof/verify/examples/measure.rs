//! Times the judges: `cargo run --release -p kattu-verify --example measure -- [operations] [clients] [keys]`
//!
//! More numbers: percent of operations that are not plain puts and gets, seed, percent that are open. Each judge judges
//! one random correct execution; one line each, with the CPU time (on Linux; elsewhere the elapsed time).

#[path = "../tests/common/execution.rs"]
mod execution;

use execution::{Shape, execute};
use kattu_verify::history::Record;
use kattu_verify::judges::{self, Summary, Violation};
use std::time::{Duration, Instant};

fn main() {
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let number = |place: usize, default| numbers.get(place).copied().unwrap_or(default);
    let clients = u32::try_from(number(1, 20)).expect("fewer clients");
    let (operations, keys) = (number(0, 100_000), number(2, 100));
    let shape = Shape { operations, clients, keys, unknown: number(5, 1), refused: 1, many: number(3, 10) };
    let (history, last) = execute(number(4, 1), shape);
    println!(
        "{operations} operations of {clients} clients on {keys} keys, {} of a hundred not plain",
        shape.many
    );
    type Judge = fn(&[Record]) -> Result<Summary, Violation>;
    let judges: [(&str, Judge); 6] = [
        ("revisions_never_back", judges::revisions_never_back),
        ("readers_see_what_they_saw", judges::readers_see_what_they_saw),
        ("bounded_reads_are_recent", judges::bounded_reads_are_recent),
        ("txn_atomic", judges::txn_atomic),
        ("revision_order", judges::revision_order),
        ("linearizable", judges::linearizable),
    ];
    for (name, judge) in judges {
        let start = Stopwatch::start();
        let told = judge(&history);
        println!("{name:27} {:8.3} s  {}", start.seconds(), shown(told));
    }
    let start = Stopwatch::start();
    let told = judges::durable(&history, &last);
    println!("{:27} {:8.3} s  {}", "durable", start.seconds(), shown(told));
}

fn shown(told: Result<Summary, Violation>) -> String {
    match told {
        Ok(Summary { judged, undecided, .. }) => format!("{judged} judged, {undecided} undecided"),
        Err(violation) => format!("VIOLATION {violation}"),
    }
}

struct Stopwatch(Instant, Option<Duration>);

impl Stopwatch {
    fn start() -> Stopwatch {
        Stopwatch(Instant::now(), on_cpu())
    }

    fn seconds(&self) -> f64 {
        let Stopwatch(began, on_cpu_then) = self;
        let on_cpu = on_cpu().zip(*on_cpu_then).map(|(now, then)| now - then);
        on_cpu.unwrap_or_else(|| began.elapsed()).as_secs_f64()
    }
}

/// Time that this thread has spent on a CPU.
fn on_cpu() -> Option<Duration> {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    told.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}
