//! Goal: the processor time and the allocations that it takes a member to apply one put. `cargo xtask bench apply` runs it:
//!
//! ```text
//! cargo run --release -p kattu-runtime --example apply_put -- [keys]
//! ```
//!
//! A keeper takes entries as a member's driver gives them, so many at a time, and applies them in one go, with the
//! allocator of the real binary. Entries are made beforehand, a batch of them as slices of one block, as a follower reads
//! them from a peer; no client waits, or one does for each. Keys have 16 bytes, values 16. Prints a line for each case:
//! nanoseconds of processor time (the best of some rounds, for other work on the machine only adds to it) and allocations.

mod common;

use common::mixed;
use kattu_kv::api::{Command, Put};
use kattu_node::Keeper;
use kattu_node::command::encode_kv;
use kattu_node::contract::{KeeperEffects, KeeperTask, Ticket};
use kattu_raft::{Entry, EntryHead, EntryId, EntryKind, LogIndex, SharedBytes, Stamp, Term};
use kattu_runtime::allocator::Counting;
use kattu_runtime::metrics::ALLOCATIONS;
use std::hint::black_box;

/// Puts that the keeper gets at a time: a round under load.
const BATCH: u64 = 512;
/// Puts of a round; the best one counts.
const ROUND: u64 = 64 * BATCH;
const ROUNDS: u64 = 9;
const VALUE: [u8; 16] = [7; 16];

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What happens to the store while puts are applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    Nothing,
    /// A client waits for each put.
    Clients,
    /// A compaction before each round: every put also forgets.
    Compactions,
    /// A copy is held, as while a snapshot is made.
    Pin,
}

fn main() {
    let keys: u64 = std::env::args().nth(1).map_or(1_000_000, |word| word.parse().expect("a number of keys"));
    println!(
        "| {keys} keys of 16 bytes, values of {} | ns a put | allocations |\n|---|---:|---:|",
        VALUE.len()
    );
    let fresh = |name: &str, key: &dyn Fn(u64) -> u64| {
        let mut desk = Desk::new();
        let rounds = (keys / ROUND).max(1);
        report(name, &mut desk, Beside::Nothing, rounds, key);
        desk
    };
    drop(fresh("new keys, ascending", &|n| n));
    let mut desk = fresh("new keys, in random order", &|n| mixed(n % keys));
    let spread = |n: u64| mixed(mixed(n) % keys);
    report("one of all keys", &mut desk, Beside::Nothing, ROUNDS, &spread);
    report("the same, a client waits", &mut desk, Beside::Clients, ROUNDS, &spread);
    report("the same, a copy is held", &mut desk, Beside::Pin, ROUNDS, &spread);
    report("the same, history is compacted", &mut desk, Beside::Compactions, ROUNDS, &spread);
    for (name, keys) in [("one of 10,000 keys, compacted", 10_000), ("one of ten keys, compacted", 10)] {
        let few = |n: u64| mixed(mixed(n) % keys);
        let mut desk = Desk::new();
        let _first = measure(&mut desk, Beside::Nothing, 1, &few);
        report(name, &mut desk, Beside::Compactions, ROUNDS, &few);
    }
}

fn report(name: &str, desk: &mut Desk, beside: Beside, rounds: u64, key: &dyn Fn(u64) -> u64) {
    let (nanos, allocations) = measure(desk, beside, rounds, key);
    println!("| {name} | {nanos:.0} | {allocations:.2} |");
}

/// Applies rounds of puts of the keys that `key` names. Returns nanoseconds and allocations of one put in the best.
fn measure(desk: &mut Desk, beside: Beside, rounds: u64, key: &dyn Fn(u64) -> u64) -> (f64, f64) {
    let (mut best, mut allocations) = (f64::MAX, f64::MAX);
    for round in 0..rounds {
        if beside == Beside::Compactions {
            desk.compact();
        }
        let pin = (beside == Beside::Pin).then(|| desk.keeper.store().pin());
        let batches: Vec<Vec<KeeperTask>> =
            (0..ROUND / BATCH).map(|batch| desk.batch(round * ROUND + batch * BATCH, beside, key)).collect();
        let (begun, counted) = (processor_nanos(), ALLOCATIONS.get());
        for batch in batches {
            desk.apply(batch);
        }
        let (took, made) = (processor_nanos() - begun, ALLOCATIONS.get() - counted);
        best = best.min(took as f64 / ROUND as f64);
        allocations = allocations.min(made as f64 / ROUND as f64);
        drop(pin);
    }
    (best, allocations)
}

struct Desk {
    keeper: Keeper,
    effects: KeeperEffects,
    next: LogIndex,
}

impl Desk {
    fn new() -> Desk {
        let keeper = Keeper::new(Vec::new());
        let next = keeper.applied().next();
        Desk { keeper, effects: KeeperEffects::default(), next }
    }

    /// Tasks for puts of the keys of `BATCH` numbers from `from` on.
    fn batch(&mut self, from: u64, beside: Beside, key: &dyn Fn(u64) -> u64) -> Vec<KeeperTask> {
        let mut block = Vec::new();
        let ends: Vec<usize> = (from..from + BATCH)
            .map(|number| {
                let key = format!("{:016x}", key(number)).into_bytes();
                block.extend(encode_kv(&Command::Put(Put { key, value: VALUE.to_vec(), ..Put::default() })));
                block.len()
            })
            .collect();
        let block = SharedBytes::from(block);
        let mut start = 0;
        let slices = ends.into_iter().map(|end| block.slice(std::mem::replace(&mut start, end)..end));
        let slices: Vec<SharedBytes> = slices.collect();
        slices.into_iter().map(|payload| self.task(payload, beside == Beside::Clients)).collect()
    }

    fn task(&mut self, payload: SharedBytes, waits: bool) -> KeeperTask {
        let id = EntryId { term: Term(1), index: self.next };
        self.next = self.next.next();
        let head = EntryHead { id, kind: EntryKind::Command, stamp: Stamp::default() };
        let ticket = waits.then_some(Ticket(id.index.0));
        KeeperTask::Apply { entry: Entry::new(head, payload, 0), tickets: ticket.into(), term: Term(1) }
    }

    /// As the driver's desk does: all are taken in, then one after the other is applied.
    fn apply(&mut self, batch: Vec<KeeperTask>) {
        for task in batch {
            self.keeper.take_in(task, &mut self.effects);
        }
        self.keeper.finish(&mut self.effects);
        black_box(&self.effects);
        self.effects.reply.clear();
    }

    fn compact(&mut self) {
        let revision = self.keeper.store().revision();
        let payload = encode_kv(&Command::Compact(revision)).into();
        let task = self.task(payload, false);
        self.apply(vec![task]);
    }
}

fn processor_nanos() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
