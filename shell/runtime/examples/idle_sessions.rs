//! Goal: what sessions cost: memory of an idle one, a snapshot of them and a start from it, and a put in one. `cargo xtask
//! bench sessions` runs it:
//!
//! ```text
//! cargo run --release -p kattu-runtime --example idle_sessions -- [sessions]
//! ```
//!
//! A keeper applies entries as a member's driver gives them, with the allocator of the real binary: so many sessions are
//! registered, each puts a key once, and then all are kept alive, by entries that name many. What the kernel reports as
//! resident is compared with what it was before. The exit code is 1 if an idle session takes more than the goal, or if one
//! more than the most is registered.

mod common;

use common::mixed;
use kattu_kv::api::{Command, Put};
use kattu_kv::sessions::{NAMED_MAX, Order, SessionError, SessionId, Settings};
use kattu_node::command::encode_kv;
use kattu_node::contract::{KeeperEffects, KeeperTask, Outcome, Reply, ReplyBody, Ticket};
use kattu_node::session::{SessionCommand, SessionHeader};
use kattu_node::{Keeper, level};
use kattu_raft::{Entry, EntryHead, EntryId, EntryKind, Stamp, Term};
use kattu_runtime::allocator::Counting;
use kattu_runtime::metrics::ALLOCATIONS;
use std::process::ExitCode;
use std::time::Instant;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes that one idle session may take.
const GOAL: f64 = 200.0;
/// Sessions that put while many others are idle, and how many commands each acknowledges late.
const BUSY: u64 = 64;
const LATE: u64 = 16;
/// Puts of a round; the best one counts.
const ROUND: u64 = 1 << 15;
const ROUNDS: u64 = 9;

fn main() -> ExitCode {
    let _ = kattu_runtime::memory::hold_on();
    let sessions = std::env::args().nth(1).map_or(1_000_000, |word| word.parse().expect("a number"));
    let mut desk = Desk::new();
    desk.apply(SessionCommand::Set(Settings { sessions_max: sessions, ..Settings::default() }).encode());
    // The keys are there before: what they take is not a session's.
    (0..BUSY).for_each(|n| drop(desk.apply(put(n))));
    kattu_runtime::memory::give_back();
    let before = resident();
    let taken = || {
        kattu_runtime::memory::give_back();
        resident().saturating_sub(before) as f64 / sessions as f64
    };

    let ids: Vec<SessionId> =
        (0..sessions).map(|n| desk.register(mixed(n)).expect("there is room")).collect();
    let of_ids = size_of::<SessionId>() as f64;
    let registered = taken() - of_ids;
    let is_full = desk.register(1) == Err(SessionError::TooManySessions);
    let in_session =
        |id: SessionId, number: u64, first_unacked: u64| SessionHeader { id, number, first_unacked };
    let applied = desk.keeper.store().stats().bytes;
    for &id in &ids {
        desk.apply(in_session(id, 1, 1).around(&encode_kv(&Command::Compact(Default::default()))));
    }
    assert_eq!(
        desk.keeper.store().stats().bytes,
        applied,
        "refused: it takes no memory but that of its answer"
    );
    let used = taken() - of_ids;
    for some in ids.chunks(NAMED_MAX) {
        desk.apply(SessionCommand::KeepAlive(some.iter().map(|&id| (id, 2)).collect()).encode());
    }
    let idle = taken() - of_ids;
    println!(
        "| {sessions} sessions, bytes of memory each | registered | used once, the answer kept | idle |\n|---|---:|---:|---:|"
    );
    println!("| | {registered:.0} | {used:.0} | {idle:.0} |\n");

    let begun = Instant::now();
    let pin = desk.keeper.pin();
    let pinned = begun.elapsed();
    let begun = Instant::now();
    let chunks: Vec<Vec<u8>> = pin.chunks().collect();
    let dumped = begun.elapsed();
    let bytes: usize = chunks.iter().map(Vec::len).sum();
    let begun = Instant::now();
    let loaded = Keeper::thaw(&chunks).expect("what was written");
    let read = begun.elapsed();
    assert_eq!((loaded.sessions().count(), loaded.digest()), (sessions, desk.keeper.digest()));
    drop((loaded, chunks));
    println!("| a copy, us | a snapshot's bytes, ms | MB | a start from them, ms |\n|---:|---:|---:|---:|");
    let ms = |time: std::time::Duration| time.as_secs_f64() * 1e3;
    println!(
        "| {:.1} | {:.0} | {:.1} | {:.0} |\n",
        ms(pinned) * 1e3,
        ms(dumped),
        bytes as f64 / 1e6,
        ms(read)
    );

    let mut next = vec![2; BUSY as usize];
    let busy = desk.cost_of(&mut |n| {
        // Far apart, as sessions are that were registered at different times.
        let which = n % BUSY;
        let id = ids[(which * (sessions / BUSY)) as usize];
        let number = next[which as usize];
        next[which as usize] += 1;
        in_session(id, number, number.saturating_sub(LATE).max(1)).around(&put(which))
    });
    let plain = desk.cost_of(&mut |n| put(n % BUSY));
    println!("| a put of 16 + 16 bytes | ns | allocations |\n|---|---:|---:|");
    println!("| in no session | {:.0} | {:.2} |", plain.0, plain.1);
    println!(
        "| in one of {BUSY} sessions among {sessions}, {LATE} answers kept | {:.0} | {:.2} |",
        busy.0, busy.1
    );

    let holds = idle <= GOAL;
    println!("\ngoal: at most {GOAL} bytes for an idle session: {idle:.0} {}", verdict(holds));
    println!("goal: one more than there may be is refused: {}", verdict(is_full));
    ExitCode::from(u8::from(!(holds && is_full)))
}

fn verdict(holds: bool) -> &'static str {
    if holds { "holds" } else { "DOES NOT HOLD" }
}

fn put(n: u64) -> Vec<u8> {
    let key = format!("{n:016x}").into_bytes();
    encode_kv(&Command::Put(Put { key, value: vec![7; 16], ..Put::default() }))
}

struct Desk {
    keeper: Keeper,
    effects: KeeperEffects,
}

impl Desk {
    /// The keeper of a cluster that has sessions.
    fn new() -> Desk {
        let mut desk = Desk { keeper: Keeper::new(Vec::new()), effects: KeeperEffects::default() };
        (1..=level::SESSIONS).for_each(|level| drop(desk.apply(level::encode(level))));
        desk
    }

    fn task(&self, ahead: u64, payload: Vec<u8>, ticket: Option<Ticket>) -> KeeperTask {
        let mut id = EntryId { term: Term(1), index: self.keeper.applied().next() };
        id.index.0 += ahead;
        let head = EntryHead { id, kind: EntryKind::Command, stamp: Stamp::default() };
        KeeperTask::Apply {
            entry: Entry::new(head, payload.into(), 0),
            tickets: ticket.into(),
            term: Term(1),
        }
    }

    /// Applies the next entry, for a client that waits.
    fn apply(&mut self, payload: Vec<u8>) -> Option<Outcome> {
        let task = self.task(0, payload, Some(Ticket(1)));
        self.keeper.handle(task, &mut self.effects);
        self.effects.reply.pop().map(|(_, outcome)| outcome)
    }

    fn register(&mut self, secret: u64) -> Result<SessionId, SessionError> {
        match self.apply(SessionCommand::Register { secret, order: Order::Strict }.encode()) {
            Some(Outcome::Done(Reply { body: ReplyBody::Registered { id, .. }, .. })) => Ok(id),
            Some(Outcome::Done(Reply { body: ReplyBody::SessionError(error), .. })) => Err(error),
            other => panic!("{other:?}"),
        }
    }

    /// Nanoseconds of processor time and allocations of one of these commands, for which no client waits.
    fn cost_of(&mut self, command: &mut dyn FnMut(u64) -> Vec<u8>) -> (f64, f64) {
        let (mut best, mut allocations) = (f64::MAX, f64::MAX);
        for round in 0..ROUNDS {
            let tasks: Vec<KeeperTask> =
                (0..ROUND).map(|n| self.task(n, command(round * ROUND + n), None)).collect();
            let (begun, counted) = (processor_nanos(), ALLOCATIONS.get());
            for task in tasks {
                self.keeper.take_in(task, &mut self.effects);
            }
            self.keeper.finish(&mut self.effects);
            let (took, made) = (processor_nanos() - begun, ALLOCATIONS.get() - counted);
            best = best.min(took as f64 / ROUND as f64);
            allocations = allocations.min(made as f64 / ROUND as f64);
        }
        (best, allocations)
    }
}

/// Anonymous memory of this process that is resident, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("the kernel tells");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("the kernel tells");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

fn processor_nanos() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
