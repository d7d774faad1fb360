//! Goal: how much memory a key takes above its own bytes. `cargo xtask bench memory` runs it:
//!
//! ```text
//! cargo run --release -p kattu-runtime --example memory_per_key -- [keys]
//! ```
//!
//! Stores of so many keys of 16 bytes with values of 64 are filled by commands, one version each, in random and in
//! ascending order, with the allocator of the real binary. The kernel reports what the process holds (resident, without
//! the share of the program itself) after free memory has been given back: with all notes of changes, as history has
//! them; what more versions of each key add above their values, their notes with them; and compacted, with one version
//! of each key and nothing else. Beside it stands what the store counts, which quotas are compared with. The exit code
//! is 1 if a compacted key takes more than the goal, or if anything takes more than is counted for it.

mod common;

use common::mixed;
use kattu_kv::api::{Command, Put};
use kattu_kv::store::Store;
use kattu_runtime::allocator::Allocator;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

const KEY_BYTES: u64 = 16;
const VALUE_BYTES: u64 = 64;
/// Bytes above key and value that one compacted key may take.
const GOAL: f64 = 130.0;

fn main() -> ExitCode {
    let _ = kattu_runtime::memory::hold_on();
    let keys = std::env::args().nth(1).map_or(1_000_000, |word| word.parse().expect("a number of keys"));
    println!(
        "| {keys} keys of {KEY_BYTES} + {VALUE_BYTES} bytes, bytes of memory above those | with its change noted | counted | a second version | counted | … each of three more | counted | compacted | counted |"
    );
    println!("|---|{}", "---:|".repeat(8));
    // A multiple alone would fill all leaves at the same pace.
    let random = fill("keys in random order", keys, mixed);
    let ascending = fill("keys in ascending order", keys, |n| n);
    let most = random.compacted.max(ascending.compacted);
    let holds = most <= GOAL;
    println!("\ngoal: at most {GOAL} compacted: {most:.0} {}", verdict(holds));
    let is_counted = random.is_counted && ascending.is_counted;
    println!("goal: no more than is counted: {}", verdict(is_counted));
    ExitCode::from(u8::from(!(holds && is_counted)))
}

fn verdict(holds: bool) -> &'static str {
    if holds { "holds" } else { "DOES NOT HOLD" }
}

/// What was found of one order of keys.
struct Found {
    /// Bytes above a compacted key and its value.
    compacted: f64,
    /// At no time did the store take more than it counted.
    is_counted: bool,
}

/// Fills a store and prints its line.
fn fill(name: &str, keys: u64, number: impl Fn(u64) -> u64) -> Found {
    kattu_runtime::memory::give_back();
    let before = resident();
    let mut store = Store::new();
    let put_all = |store: &mut Store| {
        for n in 0..keys {
            let key = format!("{:016x}", number(n)).into_bytes();
            let value = vec![b'v'; VALUE_BYTES as usize];
            store.apply(&Command::Put(Put { key, value, ..Put::default() })).expect("a put is taken");
        }
    };
    // What a key takes, and what is counted for it.
    let look = |store: &Store| {
        kattu_runtime::memory::give_back();
        [resident().saturating_sub(before), store.stats().bytes].map(|bytes| bytes as f64 / keys as f64)
    };
    let mut looks = Vec::new();
    for versions in [1, 1, 3] {
        (0..versions).for_each(|_| put_all(&mut store));
        looks.push(look(&store));
    }
    store.apply(&Command::Compact(store.revision())).expect("history is there");
    while store.tidy(1 << 16) {}
    looks.push(look(&store));
    assert_eq!(store.stats().keys, keys);
    let (own, value) = ((KEY_BYTES + VALUE_BYTES) as f64, VALUE_BYTES as f64);
    let [first, second, fifth, compacted] = looks[..] else { unreachable!("four looks") };
    let cells = [0, 1].map(|it| {
        [
            first[it] - own,
            second[it] - first[it] - value,
            (fifth[it] - second[it]) / 3.0 - value,
            compacted[it] - own,
        ]
    });
    print!("| {name} |");
    cells[0].iter().zip(&cells[1]).for_each(|(taken, counted)| print!(" {taken:.0} | {counted:.0} |"));
    println!();
    Found { compacted: cells[0][3], is_counted: looks.iter().all(|[taken, counted]| taken <= counted) }
}

/// Anonymous memory of this process that is resident, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("the kernel tells");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("the kernel tells");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}
