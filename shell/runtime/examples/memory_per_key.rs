//! Goal: how much memory a key takes above its own bytes. `cargo xtask bench memory` runs it:
//!
//! ```text
//! cargo run --release -p kattu-runtime --example memory_per_key -- [keys]
//! ```
//!
//! Stores of so many keys of 16 bytes with values of 64 are filled by commands, one version each, in random and in ascending
//! order, with the allocator of the real binary. What the process holds is asked of the kernel (resident, without what the
//! program itself takes) after free memory has been given back: with all notes of changes, as history has them; what a second
//! version of each key adds above its value, its note with it; and compacted, with one version of each key and nothing else.
//! The exit code is 1 if a compacted key takes more than the goal.

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
        "| {keys} keys of {KEY_BYTES} + {VALUE_BYTES} bytes, bytes of memory above those | with its change noted | one more version | compacted |"
    );
    println!("|---|---:|---:|---:|");
    let random = fill("keys in random order", keys, mixed);
    let ascending = fill("keys in ascending order", keys, |n| n);
    let most = random.max(ascending);
    println!(
        "\ngoal: at most {GOAL} compacted: {most:.0} {}",
        if most <= GOAL { "holds" } else { "DOES NOT HOLD" }
    );
    ExitCode::from(u8::from(GOAL < most))
}

/// Another number for each number, as good as drawn: a multiple alone would fill all leaves at the same pace. [SplitMix64]
fn mixed(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Fills a store and prints its line; the bytes of a compacted key.
fn fill(name: &str, keys: u64, number: impl Fn(u64) -> u64) -> f64 {
    kattu_runtime::memory::give_back();
    let before = resident();
    let mut store = Store::new();
    let put_all = |store: &mut Store| {
        for n in 0..keys {
            let key = format!("{:016x}", number(n)).into_bytes();
            let value = vec![b'v'; VALUE_BYTES as usize];
            store.apply(&Command::Put(Put { key, value, ..Put::default() })).expect("a put is taken");
        }
        kattu_runtime::memory::give_back();
        resident()
    };
    let each = |more: u64, less: u64, own: u64| more.saturating_sub(less) as f64 / keys as f64 - own as f64;
    let first = put_all(&mut store);
    let noted = each(first, before, KEY_BYTES + VALUE_BYTES);
    let version = each(put_all(&mut store), first, VALUE_BYTES);
    store.apply(&Command::Compact(store.revision())).expect("history is there");
    while store.tidy(1 << 16) {}
    kattu_runtime::memory::give_back();
    let compacted = each(resident(), before, KEY_BYTES + VALUE_BYTES);
    println!("| {name} | {noted:.0} | {version:.0} | {compacted:.0} |");
    assert_eq!(store.stats().keys, keys);
    compacted
}

/// Bytes of this process in memory that are its own, not a file's.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("the kernel tells");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("the kernel tells");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}
