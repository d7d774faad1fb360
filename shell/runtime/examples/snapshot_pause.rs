//! Goal: what a snapshot costs the thread that owns the tables. `cargo xtask bench snapshot-pause` runs it:
//!
//! ```text
//! cargo run --release -p kattu-runtime --example snapshot_pause -- [keys] [seconds]
//! ```
//!
//! A keeper of so many keys applies random puts and deletes, compacts now and then, and tidies up between; one step is
//! one of these. This runs alone for a while; then the keeper is pinned, and another thread turns the pin into chunks,
//! which it drops, while the owner goes on. The processor time of the owner's thread is measured for each step. The
//! same for one key with so many versions. At the end: how long the dump and the way back take, and the digest's share
//! of a put.
//!
//! A step's processor time includes what the kernel does for the process (page faults), what the other thread does to
//! the caches, and what the host of a virtual machine takes away unnoticed. The first row says how long pure arithmetic
//! is held up here: smaller differences mean nothing.
//!
//! The owner is the keeper alone: the other work of a member's thread (sockets, the log) takes no part in a snapshot.
//! The exit code is 1 if a step of the first load takes more than 5 ms while its snapshot is made.

use kattu_kv::api::{Command, DeleteRange, KeyRange, Put, Revision};
use kattu_node::Keeper;
use kattu_node::command::encode_kv;
use kattu_node::contract::{KeeperEffects, KeeperTask, Tickets};
use kattu_raft::{Entry, EntryHead, EntryId, EntryKind, Stamp, Term};
use kattu_runtime::allocator::Allocator;
use rustix::time::{ClockId, clock_gettime};
use std::alloc::{GlobalAlloc, Layout};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// No step may hold up the owner longer than this while a snapshot of many keys is made.
const LONGEST_GOAL: Duration = Duration::from_millis(5);
/// Upper ends of the classes of steps, in microseconds; the last class has none.
const CLASSES: [u64; 11] = [5, 10, 20, 50, 100, 500, 1_000, 2_000, 3_000, 4_000, 5_000];

/// Pause between two chunks, which makes 50 MB/s of them: an unlimited snapshot would be over before much happens.
const CHUNK_EVERY: Duration = Duration::from_millis(20);

/// The allocator of the real binary, counting.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;
static ALLOCATED: AtomicU64 = AtomicU64::new(0);
static FREED: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is passed on unchanged to an allocator that keeps the contract; counting touches no
// memory but two atomics.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller's guarantees are passed on.
        unsafe { Allocator.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        FREED.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller's guarantees are passed on.
        unsafe { Allocator.dealloc(pointer, layout) }
    }
}

fn main() -> ExitCode {
    kattu_runtime::memory::give_back_beside().expect("a thread");
    let mut words = std::env::args().skip(1).map(|word| word.parse::<u64>().expect("a number"));
    let keys = words.next().unwrap_or(1_000_000);
    let seconds = words.next().unwrap_or(10);
    println!("| What | steps | median, µs | p99, µs | p99.9, µs | longest, ms | of which: |");
    println!("|---|---|---|---|---|---|---|");
    arithmetic(seconds);
    let many = Many { keys };
    let of_many = measure(&format!("{keys} keys"), keys, seconds, |random, n| many.payload(random, n));
    let of_one = measure(&format!("one key, {keys} versions"), keys, seconds, one_key);
    println!("\nSteps during a snapshot of {keys} keys, by how long they took:\n");
    histogram(&of_many.during);
    println!(
        "\n| What | keeper, MB | snapshot, MB | extra memory while it is made, MB | CPU to make it, s | CPU to read it back, s |"
    );
    println!("|---|---|---|---|---|---|");
    println!("{}\n{}", of_many.row, of_one.row);
    let longest = of_many.during.last().copied().unwrap_or_default();
    let verdict = if longest <= LONGEST_GOAL { "holds" } else { "DOES NOT HOLD" };
    println!(
        "\ngoal: no step during a snapshot of {keys} keys takes more than {LONGEST_GOAL:?}: {longest:.2?} {verdict}"
    );
    ExitCode::from(u8::from(longest > LONGEST_GOAL))
}

/// What one load showed.
struct Measured {
    /// Of each step during the snapshot, ascending.
    during: Vec<Duration>,
    /// Of the second table.
    row: String,
}

fn histogram(times: &[Duration]) {
    let mut low = 0;
    for high in CLASSES.into_iter().map(Some).chain([None]) {
        let inside = |time: &&Duration| {
            let micros = time.as_micros() as u64;
            low <= micros && high.is_none_or(|high| micros < high)
        };
        let count = times.iter().filter(inside).count();
        let range = match high {
            Some(high) => format!("{low} to {high} µs"),
            None => format!("{low} µs and more"),
        };
        println!("{range:>18} {count:>9} {}", "#".repeat((count as f64).log2().max(0.0).ceil() as usize));
        low = high.unwrap_or(low);
    }
    println!("{:>18} (each # doubles)", "");
}

/// Steps of a few microseconds without memory accesses or calls: what is long about them is the machine's.
fn arithmetic(seconds: u64) {
    let mut owner = Owner { keeper: Keeper::new(Vec::new()), random: Random(1), steps: 0, times: Vec::new() };
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        owner.timed(Kind::Arithmetic, |owner| {
            for _ in 0..1000 {
                std::hint::black_box(owner.random.below(7));
            }
        });
    }
    owner.report("the machine alone: arithmetic");
}

/// What the owner does in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Arithmetic,
    Put,
    Delete,
    Compact,
    Tidy,
    Pin,
}

/// Fills, measures without and with a snapshot, prints a row for each; returns what is shown later.
fn measure(
    name: &str,
    puts: u64,
    seconds: u64,
    payload: impl Fn(&mut Random, u64) -> (Kind, Vec<u8>),
) -> Measured {
    let mut owner = Owner { keeper: Keeper::new(Vec::new()), random: Random(1), steps: 0, times: Vec::new() };
    let before = held_bytes();
    for n in 0..puts {
        let filling = payload(&mut Random(n * 2 + 1), n * 1_000_000 + 999_999).1;
        owner.apply(&filling);
    }
    let full = held_bytes() - before;
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        owner.step(&payload);
    }
    owner.report(&format!("{name}: no snapshot"));

    let mut frozen = None;
    owner.timed(Kind::Pin, |owner| frozen = Some(owner.keeper.pin()));
    let frozen = frozen.expect("pinned");
    let done = AtomicBool::new(false);
    let (mut most, mut bytes, mut took) = (0, 0, Duration::ZERO);
    owner.times.reserve(10_000_000); // room for its own notes must not count
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut bytes = 0;
            for chunk in frozen.chunks() {
                bytes += chunk.len();
                std::thread::sleep(CHUNK_EVERY);
            }
            done.store(true, Ordering::SeqCst);
            (bytes, processor_time())
        });
        while !done.load(Ordering::SeqCst) {
            owner.step(&payload);
            if owner.steps.is_multiple_of(100) {
                most = most.max(held_bytes());
            }
        }
        (bytes, took) = writer.join().expect("the other thread ends by itself");
    });
    // What is still held is the owner's own.
    let extra = most.saturating_sub(held_bytes());
    let during = owner.report(&format!("{name}: during a snapshot"));

    let chunks: Vec<Vec<u8>> = owner.keeper.pin().chunks().collect();
    let began = processor_time();
    let thawed = Keeper::thaw(&chunks).expect("its own chunks");
    let back = processor_time() - began;
    assert_eq!(thawed.digest(), owner.keeper.digest());
    let row = format!(
        "| {name} | {:.0} | {:.0} | {:.1} | {:.2} | {:.2} |",
        megabytes(full),
        megabytes(bytes as u64),
        megabytes(extra),
        took.as_secs_f64(),
        back.as_secs_f64()
    );
    Measured { during, row }
}

struct Many {
    keys: u64,
}

impl Many {
    /// Most often a put of a random key, then a delete of one; every 20,000th step compacts up to a while ago.
    fn payload(&self, random: &mut Random, n: u64) -> (Kind, Vec<u8>) {
        // While filling, `n` says which key is next.
        let filling = (n % 1_000_000 == 999_999).then_some(n / 1_000_000);
        let key = name(filling.unwrap_or_else(|| random.below(self.keys)));
        if filling.is_none() && random.below(10) == 0 {
            let keys = KeyRange { start: key, end: Vec::new() };
            let delete = DeleteRange { keys, prev_kv: false };
            return (Kind::Delete, encode_kv(&Command::DeleteRange(delete)));
        }
        (Kind::Put, encode_kv(&Command::Put(Put { key, value: vec![n as u8; 256], ..Put::default() })))
    }
}

fn one_key(_: &mut Random, n: u64) -> (Kind, Vec<u8>) {
    let put = Put { key: name(1), value: vec![n as u8; 256], ..Put::default() };
    (Kind::Put, encode_kv(&Command::Put(put)))
}

fn name(n: u64) -> Vec<u8> {
    format!("/registry/pods/namespace-{}/pod-{n:08}", n % 100).into_bytes()
}

struct Owner {
    keeper: Keeper,
    random: Random,
    steps: u64,
    times: Vec<(Duration, Kind)>,
}

impl Owner {
    /// One command; a compaction every 20,000 steps; tidying after every 64th, as an idle moment would.
    fn step(&mut self, payload: &impl Fn(&mut Random, u64) -> (Kind, Vec<u8>)) {
        self.steps += 1;
        if self.steps.is_multiple_of(64) {
            self.timed(Kind::Tidy, |owner| {
                owner.keeper.tidy();
            });
        } else if self.steps % 20_000 == 1 {
            let (now, compacted) =
                (self.keeper.store().revision().0, self.keeper.store().compact_revision().0);
            let payload =
                encode_kv(&Command::Compact(Revision(compacted.max(1) + (now - compacted.max(1)) / 20)));
            self.timed(Kind::Compact, |owner| owner.apply(&payload));
        } else {
            let (kind, payload) = payload(&mut self.random, self.steps * 1_000_000);
            self.timed(kind, |owner| owner.apply(&payload));
        }
    }

    fn apply(&mut self, payload: &[u8]) {
        let id = EntryId { term: Term(1), index: self.keeper.applied().next() };
        let head = EntryHead { id, kind: EntryKind::Command, stamp: Stamp::default() };
        let entry = Entry::new(head, payload.to_vec().into(), 0);
        self.keeper.handle(
            KeeperTask::Apply { entry, tickets: Tickets::None, term: Term(1) },
            &mut KeeperEffects::default(),
        );
    }

    fn timed(&mut self, kind: Kind, act: impl FnOnce(&mut Owner)) {
        let start = processor_time();
        act(self);
        self.times.push((processor_time() - start, kind));
    }

    /// Prints a row; the times of all its steps, ascending.
    fn report(&mut self, name: &str) -> Vec<Duration> {
        self.times.sort_unstable();
        let micros = |share: f64| {
            let place = ((self.times.len() - 1) as f64 * share) as usize;
            self.times[place].0.as_secs_f64() * 1e6
        };
        let longest = |kind: Kind| {
            let last = self.times.iter().rev().find(|(_, other)| *other == kind);
            last.map(|(time, _)| format!("{kind:?} {:.2}", time.as_secs_f64() * 1e3).to_lowercase())
        };
        let kinds = [Kind::Arithmetic, Kind::Put, Kind::Delete, Kind::Compact, Kind::Tidy, Kind::Pin];
        println!(
            "| {name} | {} | {:.1} | {:.1} | {:.1} | **{:.2}** | {} |",
            self.times.len(),
            micros(0.5),
            micros(0.99),
            micros(0.999),
            self.times.last().expect("some steps").0.as_secs_f64() * 1e3,
            kinds.into_iter().filter_map(longest).collect::<Vec<_>>().join(", ")
        );
        self.times.drain(..).map(|(time, _)| time).collect()
    }
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn held_bytes() -> u64 {
    ALLOCATED.load(Ordering::Relaxed).saturating_sub(FREED.load(Ordering::Relaxed))
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
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
