//! Goal: every frame arrives as it was sent, with any number of frames in one write and records shared, not copied.

mod common;

use common::{CODEC, one_of_each};
use kattu_node::contract::{Forward, PeerMessage};
use kattu_raft::message::{Append, SnapshotChunk};
use kattu_raft::{
    Body, Entry, EntryHead, EntryId, EntryKind, Envelope, GroupId, Incarnation, LogIndex, Membership,
    Message, NodeId, Round, SharedBytes, SnapshotMeta, Stamp, Term,
};
use kattu_wire::{Frame, FrameWriter, record_decode, record_encode};
use proptest::collection::vec;
use proptest::prelude::*;

fn payload() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![vec(any::<u8>(), 0..40), vec(any::<u8>(), 450..530), vec(any::<u8>(), 4000..6000)]
}

fn entries(prev: u64) -> impl Strategy<Value = Vec<Entry>> {
    vec((payload(), 0..3u64, any::<u64>()), 0..8).prop_map(move |rows| {
        let mut term = 1;
        let rows = rows.into_iter().enumerate();
        rows.map(|(at, (payload, step, stamp))| {
            term += step;
            let id = EntryId::new(term, prev + 1 + at as u64);
            let head = EntryHead { id, kind: EntryKind::Command, stamp: Stamp(stamp) };
            record_encode(CODEC.crc, GroupId(3), head, Body::Whole(&payload))
        })
        .collect()
    })
}

fn frame() -> impl Strategy<Value = Frame> {
    let sample = (0..one_of_each().len()).prop_map(|at| one_of_each().swap_remove(at).1);
    let append = (entries(40), any::<[u64; 5]>()).prop_map(|(entries, n)| {
        let append = Append {
            prev: EntryId::new(1, 40),
            entries,
            commit: LogIndex(n[0]),
            round: Round(n[1]),
            tail: false,
        };
        Frame::Message(PeerMessage::Raft(Envelope {
            group: GroupId(3),
            from: NodeId(n[2]),
            incarnation: Incarnation(n[3]),
            to: NodeId(n[4]),
            term: Term(100),
            message: Message::Append(append),
        }))
    });
    let chunk = (payload(), any::<[u64; 6]>(), 0..1000u64).prop_map(|(piece, n, rest)| {
        let voters = [n[0] >> 1, n[0] >> 1 | 1 << 63].map(|id| NodeId(id.max(1))).to_vec();
        let meta = SnapshotMeta {
            last: EntryId::new(n[1], n[2]),
            stamp: Stamp(n[3]),
            membership: Membership::new(voters, Vec::new()),
            membership_at: LogIndex(n[2] / 2),
        };
        let offset = n[4] / 2;
        let chunk = SnapshotChunk {
            meta: Box::new(meta),
            offset,
            total: offset + piece.len() as u64 + rest,
            bytes: piece.into(),
        };
        Frame::Message(PeerMessage::Raft(Envelope {
            group: GroupId(3),
            from: NodeId(n[5]),
            incarnation: Incarnation(1),
            to: NodeId(2),
            term: Term(100),
            message: Message::SnapshotChunk(chunk),
        }))
    });
    let forward = (vec(payload(), 0..6), any::<[u64; 5]>()).prop_map(|(commands, n)| {
        Frame::Message(PeerMessage::Forward(Forward {
            from: NodeId(n[0]),
            to: NodeId(n[1]),
            incarnation: Incarnation(n[2]),
            term: Term(n[3]),
            first_seq: n[4],
            commands: commands.into_iter().map(SharedBytes::from).collect(),
        }))
    });
    prop_oneof![sample, append, chunk, forward]
}

/// Reads frames off a stream as a peer link does.
fn read_all(stream: &[u8]) -> Vec<Frame> {
    let stream = SharedBytes::from(stream.to_vec());
    let (mut at, mut frames) = (0, Vec::new());
    while let Some(len) = CODEC.peek_len(&stream[at..], 1 << 20).unwrap() {
        frames.push(CODEC.decode(&stream.slice(at..at + len)).unwrap());
        at += len;
    }
    assert_eq!(at, stream.len());
    frames
}

proptest! {
    #[test]
    fn frames_arrive_as_they_were_sent(frames in vec(frame(), 1..5), cut in any::<prop::sample::Index>()) {
        let mut writer = FrameWriter::default();
        for frame in &frames {
            CODEC.encode(frame, &mut writer);
        }
        let stream: Vec<u8> = writer.pieces().flatten().copied().collect();
        prop_assert_eq!(stream.len(), writer.len());

        let written = cut.index(stream.len() + 1);
        let rest: Vec<u8> = writer.pieces_from(written).flatten().copied().collect();
        prop_assert_eq!(&stream[written..], rest);

        let arrived = read_all(&stream);
        prop_assert_eq!(&frames, &arrived);

        // Frames are forwarded from the ranges in which they arrived, and are still the same bytes.
        writer.clear();
        for frame in &arrived {
            CODEC.encode(frame, &mut writer);
        }
        prop_assert_eq!(stream, writer.pieces().flatten().copied().collect::<Vec<_>>());
    }

    #[test]
    fn records_are_read_back_one_after_the_other(entries in entries(0), offset in 0..9usize) {
        let mut bytes = vec![0xEE; offset];
        entries.iter().for_each(|entry| bytes.extend_from_slice(entry.record()));
        let bytes = SharedBytes::from(bytes);
        let mut at = offset;
        for entry in &entries {
            let (group, read, next) = record_decode(CODEC.crc, &bytes, at, 1 << 20).unwrap();
            prop_assert_eq!(group, GroupId(3));
            prop_assert_eq!(&read, entry);
            prop_assert_eq!(read.payload(), entry.payload());
            at = next;
        }
        prop_assert_eq!(at, bytes.len());
    }

    #[test]
    fn noise_is_never_a_frame(noise in vec(any::<u8>(), 0..200)) {
        prop_assert!(CODEC.decode(&noise.into()).is_err());
    }
}

#[test]
fn long_records_are_referred_to_and_neighbours_become_one_piece() {
    let head = |index| EntryHead { id: EntryId::new(1, index), kind: EntryKind::Command, stamp: Stamp(0) };
    let made = [1, 2].map(|index| record_encode(CODEC.crc, GroupId(0), head(index), Body::Whole(&[7; 5000])));
    let arrived = SharedBytes::from([made[0].record().to_vec(), made[1].record().to_vec()].concat());
    let (_, first, next) = record_decode(CODEC.crc, &arrived, 0, 1 << 20).unwrap();
    let (_, second, _) = record_decode(CODEC.crc, &arrived, next, 1 << 20).unwrap();
    let pieces = |entries: Vec<Entry>| {
        let append =
            Append { prev: EntryId::new(0, 0), entries, commit: LogIndex(0), round: Round(0), tail: false };
        let envelope = Envelope {
            group: GroupId(0),
            from: NodeId(1),
            incarnation: Incarnation(1),
            to: NodeId(2),
            term: Term(1),
            message: Message::Append(append),
        };
        let mut writer = FrameWriter::default();
        CODEC.encode_message(&PeerMessage::Raft(envelope), &mut writer);
        writer.pieces().map(|piece| (piece.as_ptr(), piece.len())).collect::<Vec<_>>()
    };
    let apart = pieces(made.to_vec());
    assert_eq!(apart.len(), 3, "header and fields, then each record where it is");
    assert_eq!(apart[1], (made[0].record().as_ptr(), made[0].len()));
    let together = pieces(vec![first, second]);
    assert_eq!(together.len(), 2, "header and fields, then both records at once");
    assert_eq!(together[1], (arrived.as_ptr(), arrived.len()));
}
