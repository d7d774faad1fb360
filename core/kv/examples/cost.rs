//! Goal: measures the cost of one command and one read in a large store. Run:
//!
//! ```text
//! cargo run --release -p kattu-kv --example cost -- [keys]
//! ```
//!
//! Prints nanoseconds per operation, the mean over many, on one thread (of processor time if the system reports it, so
//! that other work on the machine does not count); and bytes of the process per key. Keys look like those of Kubernetes
//! (a long shared prefix), values have 256 bytes.

use kattu_kv::api::{Command, DeleteRange, KeyRange, Put, Query, Range, Revision, SortOrder, SortTarget};
use kattu_kv::store::Store;
use std::hint::black_box;
use std::time::Instant;

fn main() {
    let keys: u64 = std::env::args().nth(1).map_or(1_000_000, |n| n.parse().expect("a number of keys"));
    let mut store = Store::new();
    let mut random = Random(1);

    println!("{keys} keys, 256-byte values");
    let before = resident_bytes();
    report("put, new keys in random order", keys, |i| put(&mut store, scattered(i, keys)));
    if let (Some(before), Some(after)) = (before, resident_bytes()) {
        println!("{:>10} bytes of the process per key, of which 256 are its value", (after - before) / keys);
    }
    if std::env::args().nth(2).is_some() {
        let mut map = std::collections::BTreeMap::new();
        (0..keys).for_each(|i| drop(map.insert(name(scattered(i, keys)), vec![0; 256])));
        report("for scale: get, random key, std's BTreeMap", keys, |_| {
            black_box(map.get(&name(random.below(keys))).cloned());
        });
        report("for scale: insert, random present key, std's BTreeMap", keys, |_| {
            drop(black_box(map.insert(name(random.below(keys)), vec![0; 256])))
        });
        report("for scale: name and values only", keys, |_| {
            black_box((name(random.below(keys)), vec![1; 256]));
        });
    }
    let compaction = Stopwatch::start();
    store.apply(&Command::Compact(store.revision())).expect("a new revision");
    while store.tidy(4096) {}
    println!("{:>10} ns per change to compact all of that", compaction.nanos() / keys);

    report("put, random present key", keys / 2, |_| put(&mut store, random.below(keys)));
    let copy = store.pin();
    report("put, random present key, while a copy is held", keys / 10, |_| {
        put(&mut store, random.below(keys))
    });
    let dropped = Stopwatch::start();
    drop(copy);
    println!("{:>10} ns per such put to drop the copy", dropped.nanos() / (keys / 10));
    report("put, the same ten keys", keys / 2, |i| put(&mut store, i % 10));
    let bytes = encoded(42);
    report("decode a put", keys, |_| drop(black_box(Command::decode(black_box(&bytes)))));
    report("decode and put, random present key", keys / 2, |_| {
        let command = Command::decode(&encoded(random.below(keys))).expect("what was encoded");
        store.apply(&command).expect("a plain put");
    });

    let bytes = vec![7; 300];
    report("digest of 300 bytes, as a put takes it", keys, |i| {
        black_box(kattu_kv::digest::with(i, black_box(&bytes)));
    });

    let one = |n| Range { keys: KeyRange { start: name(n), end: Vec::new() }, ..Range::default() };
    let tail = |n| Range { keys: KeyRange { start: name(n), end: vec![0] }, ..Range::default() };
    let now = store.revision();
    report("get, random key", keys, |_| read(&store, one(random.below(keys))));
    report("get, random key, as of a million changes ago", keys / 4, |_| {
        read(
            &store,
            Range {
                revision: Revision((now.0 - 1_000_000).max(store.compact_revision().0)),
                ..one(random.below(keys))
            },
        )
    });
    report("page of 100 from a random key on, with count", 20_000, |_| {
        read(&store, Range { limit: 100, ..tail(random.below(keys)) })
    });
    report("page of 100, as of 1000 changes ago", 2_000, |_| {
        read(&store, Range { limit: 100, revision: Revision(now.0 - 1000), ..tail(random.below(keys)) })
    });
    report("last 100 by key", 20_000, |_| {
        read(&store, Range { limit: 100, order: SortOrder::Descend, ..tail(random.below(keys)) })
    });
    report("count of a random half", 200_000, |_| {
        read(&store, Range { count_only: true, ..tail(random.below(keys)) })
    });
    report("newest 10 of all by create revision", 3, |_| {
        read(&store, Range { limit: 10, order: SortOrder::Descend, target: SortTarget::Create, ..tail(0) })
    });

    let stopwatch = Stopwatch::start();
    let chunks: Vec<Vec<u8>> = store.pin().dump().collect();
    let bytes: usize = chunks.iter().map(Vec::len).sum();
    println!("{:>10} ns per key to dump it, {} MB", stopwatch.nanos() / keys, bytes / 1_000_000);
    let stopwatch = Stopwatch::start();
    let loaded = kattu_kv::dump::load(&chunks).expect("a dump");
    println!("{:>10} ns per key to load it, with its history", stopwatch.nanos() / keys);
    drop((loaded, chunks));

    let compaction = Stopwatch::start();
    store.apply(&Command::Compact(store.revision())).expect("a new revision");
    println!("{:>10} ns for a compaction to answer", compaction.nanos());
    report("put while compaction forgets", keys / 20, |_| put(&mut store, random.below(keys)));
    report("delete, random key", keys / 10, |_| {
        let keys = KeyRange { start: name(random.below(keys)), end: Vec::new() };
        store.apply(&Command::DeleteRange(DeleteRange { keys, prev_kv: false })).expect("a plain delete");
    });
    println!("{:?}", store.stats());
}

fn report(name: &str, times: u64, mut act: impl FnMut(u64)) {
    let stopwatch = Stopwatch::start();
    (0..times).for_each(&mut act);
    println!("{:>10} ns  {name}", stopwatch.nanos() / times.max(1));
}

struct Stopwatch {
    wall: Instant,
    processor: Option<u64>,
}

impl Stopwatch {
    fn start() -> Stopwatch {
        Stopwatch { wall: Instant::now(), processor: processor_nanos() }
    }

    fn nanos(&self) -> u64 {
        match (self.processor, processor_nanos()) {
            (Some(start), Some(end)) => end - start,
            _ => self.wall.elapsed().as_nanos() as u64,
        }
    }
}

fn processor_nanos() -> Option<u64> {
    std::fs::read_to_string("/proc/thread-self/schedstat").ok()?.split(' ').next()?.parse().ok()
}

fn put(store: &mut Store, n: u64) {
    let command = Command::Put(Put { key: name(n), value: vec![n as u8; 256], ..Put::default() });
    black_box(store.apply(&command).expect("a plain put"));
}

fn encoded(n: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(300);
    Command::Put(Put { key: name(n), value: vec![n as u8; 256], ..Put::default() }).encode(&mut bytes);
    bytes
}

fn read(store: &Store, range: Range) {
    black_box(store.query(&Query::Range(range)).expect("a revision that can be read"));
}

fn name(n: u64) -> Vec<u8> {
    format!("/registry/pods/namespace-{}/pod-{n:08}", n % 100).into_bytes()
}

/// Each number below `keys` once, far from its neighbours.
fn scattered(i: u64, keys: u64) -> u64 {
    let step = (keys * 5 / 8) | 1;
    let coprime = (step..).step_by(2).find(|&step| gcd(step, keys) == 1).unwrap_or(1);
    (i as u128 * coprime as u128 % keys as u128) as u64
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Marsaglia's xorshift; good enough to miss the cache.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    statm.split(' ').nth(1)?.parse::<u64>().ok().map(|pages| pages * 4096)
}
