//! How long the judges take: `cargo run --release -p kattu-verify --example measure -- [operations] [clients] [keys]`
//!
//! A random correct execution, 1 % of whose writes are open, before each judge; one line each.

#[path = "../tests/common/execution.rs"]
mod execution;

use execution::{Shape, execute};
use kattu_verify::history::Record;
use kattu_verify::judges::{self, Summary, Violation};
use std::time::Instant;

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
    let judges: [(&str, Judge); 4] = [
        ("revisions_never_back", judges::revisions_never_back),
        ("txn_atomic", judges::txn_atomic),
        ("revision_order", judges::revision_order),
        ("linearizable", judges::linearizable),
    ];
    for (name, judge) in judges {
        let start = Instant::now();
        let told = judge(&history);
        println!("{name:22} {:8.3} s  {}", start.elapsed().as_secs_f64(), shown(told));
    }
    let start = Instant::now();
    let told = judges::durable(&history, &last);
    println!("{:22} {:8.3} s  {}", "durable", start.elapsed().as_secs_f64(), shown(told));
}

fn shown(told: Result<Summary, Violation>) -> String {
    match told {
        Ok(Summary { judged, undecided, .. }) => format!("{judged} judged, {undecided} undecided"),
        Err(violation) => format!("VIOLATION {violation}"),
    }
}
