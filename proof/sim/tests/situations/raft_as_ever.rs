//! Goal: a switch that is off changes nothing. Method: 10,000 storms over peers, whose members had no switch of non-blocking
//! replication when `testdata/raft-traces.txt` was recorded: each message as bytes, each record, each delivered entry
//! and each verdict, in their order. What the members do today must be the same.
//!
//! After a change of Raft itself, `UPDATE_GOLDENFILES=1 cargo test --release -p kattu-sim --test situations raft_as_ever` records
//! them anew, which is right only while all such switches are off.

use kattu_node::contract::PeerMessage;
use kattu_peers::storm;
use kattu_raft::{Effects, LogBody, NodeId};
use kattu_wire::{Codec, FrameWriter};
use std::cell::Cell;
use std::path::PathBuf;
use std::rc::Rc;

const STORMS: u64 = 10_000;
const STEPS: usize = 200;
/// Storms whose traces share one number.
const TOGETHER: u64 = 100;

/// The protocol version of the recorded messages.
const PROTOCOL: u16 = 4;

/// Everything that members did, as one number: FNV-1a, 64 bits.
struct Trace {
    sum: u64,
    codec: Codec,
    frames: FrameWriter,
}

impl Trace {
    fn new() -> Trace {
        let codec = Codec::new(crc32c::crc32c_append).speaking(PROTOCOL);
        Trace { sum: 0xcbf2_9ce4_8422_2325, codec, frames: FrameWriter::default() }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.sum = (self.sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn numbers<const N: usize>(&mut self, numbers: [u64; N]) {
        numbers.iter().for_each(|number| self.bytes(&number.to_le_bytes()));
    }

    fn add(&mut self, member: NodeId, effects: &Effects) {
        self.numbers([member.0]);
        for record in &effects.persist {
            match &record.body {
                LogBody::HardState(hard) => {
                    self.numbers([1, record.lsn.0, hard.term.0, hard.vote.map_or(0, |vote| vote.0)]);
                }
                LogBody::Truncate(from) => self.numbers([2, record.lsn.0, from.0]),
                LogBody::Entry(entry) => {
                    self.numbers([3, record.lsn.0, entry.id().term.0, entry.id().index.0]);
                    self.bytes(entry.record());
                }
                LogBody::Commit(upto) => self.numbers([4, record.lsn.0, upto.0]),
                LogBody::Base(last) => self.numbers([5, record.lsn.0, last.term.0, last.index.0]),
                LogBody::VoteFloor(upto) => self.numbers([6, record.lsn.0, upto.term.0, upto.index.0]),
            }
        }
        for envelope in &effects.send {
            let mut frames = std::mem::take(&mut self.frames);
            frames.clear();
            self.codec.encode_message(&PeerMessage::Raft(envelope.clone()), &mut frames);
            frames.pieces().for_each(|piece| self.bytes(piece));
            self.frames = frames;
        }
        for entry in &effects.apply {
            self.numbers([7, entry.id().term.0, entry.id().index.0]);
        }
        if let Some(snapshot) = &effects.install {
            self.numbers([8, snapshot.last.term.0, snapshot.last.index.0]);
        }
        for verdict in &effects.reads {
            self.numbers([9, verdict.upto.0, verdict.index.map_or(u64::MAX, |index| index.0)]);
        }
    }
}

/// What the members did in the storms from this seed on.
fn trace_of(first: u64) -> u64 {
    let sum = Rc::new(Cell::new(0));
    for seed in first..first + TOGETHER {
        let (told, mut trace) = (Rc::clone(&sum), Trace::new());
        trace.sum ^= sum.get();
        storm::watched(
            seed,
            STEPS,
            Box::new(move |member, effects| {
                trace.add(member, effects);
                told.set(trace.sum);
            }),
        );
    }
    sum.get()
}

#[test]
fn without_a_window_raft_is_what_it_was() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/raft-traces.txt");
    let firsts: Vec<u64> = (0..STORMS).step_by(TOGETHER as usize).collect();
    let halves: Vec<_> = firsts.chunks(firsts.len() / 2).map(<[u64]>::to_vec).collect();
    let threads: Vec<_> = halves
        .into_iter()
        .map(|firsts| {
            std::thread::spawn(move || {
                firsts.into_iter().map(|first| (first, trace_of(first))).collect::<Vec<_>>()
            })
        })
        .collect();
    let lines: Vec<String> = threads
        .into_iter()
        .flat_map(|thread| thread.join().expect("a storm found something; its seed is above"))
        .map(|(first, sum)| format!("{first} {sum:016x}"))
        .collect();
    let today = lines.join("\n") + "\n";
    if std::env::var_os("UPDATE_GOLDENFILES").is_some() {
        std::fs::write(&path, today).expect("testdata can be written");
        return;
    }
    let recorded =
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let differ: Vec<_> = recorded.lines().zip(today.lines()).filter(|(then, now)| then != now).collect();
    assert!(
        recorded == today,
        "members do something else than when {} was recorded, in {} of {} groups of {TOGETHER} storms, first {:?}",
        path.display(),
        differ.len(),
        firsts.len(),
        differ.first()
    );
}
