//! Goal: measures the cost of digests: the running one within a put, and a comparison of three members. Run:
//!
//! ```text
//! cargo run --release -p kattu-node --example compare -- [keys]
//! ```
//!
//! Prints nanoseconds, the best of nine rounds, on one thread. Values have 256 bytes.

use kattu_kv::api::{Command, Put};
use kattu_node::Keeper;
use kattu_node::command::encode_kv;
use kattu_node::contract::{KeeperEffects, KeeperTask, MemberInfo, Tickets};
use kattu_node::digests::{Report, mark};
use kattu_raft::{Entry, EntryHead, EntryId, EntryKind, NodeId, Stamp, Term};
use std::hint::black_box;
use std::time::Instant;

const ROUNDS: u32 = 9;
const PER_ROUND: u64 = 20_000;

fn main() {
    let keys: u64 = std::env::args().nth(1).map_or(100_000, |n| n.parse().expect("a number of keys"));
    let members = (1..=3).map(|id| MemberInfo {
        id: NodeId(id),
        name: format!("n{id}"),
        peer_urls: vec![format!("http://10.0.0.{id}:2380")],
        client_urls: vec![format!("http://10.0.0.{id}:2379")],
        ..MemberInfo::default()
    });
    let mut keeper = Keeper::new(members.collect()).of_member(NodeId(1));
    (0..keys).for_each(|key| apply(&mut keeper, put(key)));

    let put_ns = best(|i| apply(&mut keeper, put(i.wrapping_mul(0x9E37_79B9) % keys)));
    println!("{put_ns:>10} ns to apply a put, of which the running digest is");
    let bytes = vec![7; 300];
    let digest_ns = best(|i| {
        black_box(kattu_kv::digest::with(i, black_box(&bytes)));
    });
    println!("{digest_ns:>10} ns at most: a digest of 300 bytes");
    let compare_ns = best(|_| {
        let at = keeper.applied().next();
        apply(&mut keeper, mark());
        let digest = keeper.health().owed.expect("a mark was just made").digest;
        for member in (1..=3).map(NodeId) {
            apply(&mut keeper, Report { member, at, digest }.encode());
        }
    });
    println!("{compare_ns:>10} ns to apply a mark and three reports");
    assert!(keeper.health().alarms.is_empty(), "all have said the same");
}

fn put(key: u64) -> Vec<u8> {
    let key = format!("/registry/pods/default/{key:016x}").into_bytes();
    encode_kv(&Command::Put(Put { key, value: vec![1; 256], ..Put::default() }))
}

fn apply(keeper: &mut Keeper, payload: Vec<u8>) {
    let id = EntryId { term: Term(1), index: keeper.applied().next() };
    let head = EntryHead { id, kind: EntryKind::Command, stamp: Stamp::default() };
    let entry = Entry::new(head, payload.into(), 0);
    keeper.handle(
        KeeperTask::Apply { entry, tickets: Tickets::None, term: Term(1) },
        &mut KeeperEffects::default(),
    );
}

/// Nanoseconds for one, in the round that was disturbed least.
fn best(mut what: impl FnMut(u64)) -> u128 {
    let mut best = u128::MAX;
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        (0..PER_ROUND).for_each(&mut what);
        best = best.min(begun.elapsed().as_nanos() / u128::from(PER_ROUND));
    }
    best
}
