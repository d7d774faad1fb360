//! Goal: bytes that differ from those sent give an error that says so, never another message.

mod common;

use common::{CODEC, bytes, entry, envelope, one_of_each};
use kattu_raft::message::Append;
use kattu_raft::{EntryId, EntryKind, GroupId, LogIndex, Message, Round, SharedBytes};
use kattu_wire::{Frame, FrameError, RecordError, record_decode};

const LIMIT: usize = 1 << 20;

fn sample(name: &str) -> Frame {
    one_of_each().into_iter().find(|(known, _)| *known == name).expect("a sample").1
}

/// Recomputes a frame's checksums after its header or fields were changed.
fn seal_frame(bytes: &mut [u8]) {
    let fields = u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
    let fields_crc = crc32c::crc32c(&bytes[24..24 + fields]);
    bytes[16..20].copy_from_slice(&fields_crc.to_le_bytes());
    let header_crc = crc32c::crc32c(&bytes[..20]);
    bytes[20..24].copy_from_slice(&header_crc.to_le_bytes());
}

fn seal_record(bytes: &mut [u8]) {
    let header_crc = crc32c::crc32c(&bytes[..44]);
    bytes[44..48].copy_from_slice(&header_crc.to_le_bytes());
}

#[test]
fn every_truncation_of_a_frame_is_an_error() {
    for (name, frame) in one_of_each() {
        let whole = bytes(&frame);
        for len in 0..whole.len() {
            let cut = &whole[..len];
            let peeked = CODEC.peek_len(cut, LIMIT).unwrap();
            assert_eq!(peeked, (24 <= len).then_some(whole.len()), "{name} cut at {len}");
            assert!(CODEC.decode(&cut.to_vec().into()).is_err(), "{name} cut at {len}");
        }
        assert_eq!(CODEC.decode(&whole.into()).unwrap(), frame, "{name}");
    }
}

#[test]
fn every_flipped_bit_of_a_frame_is_an_error() {
    for (name, frame) in one_of_each() {
        let whole = bytes(&frame);
        for bit in 0..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let decoded = CODEC.decode(&flipped.clone().into());
            assert!(decoded.is_err(), "{name} with bit {bit} flipped: {decoded:?}");
            if bit < 24 * 8 {
                assert!(CODEC.peek_len(&flipped, LIMIT).is_err(), "{name} with bit {bit} flipped");
            }
        }
    }
}

#[test]
fn bytes_after_a_frame_are_an_error() {
    for (name, frame) in one_of_each() {
        let mut long = bytes(&frame);
        long.push(0);
        assert!(matches!(CODEC.decode(&long.into()), Err(FrameError::Length { .. })), "{name}");
    }
}

#[test]
fn a_layout_of_tomorrow_is_refused_by_name() {
    let mut frame = bytes(&sample("hello"));
    frame[4] = 2;
    seal_frame(&mut frame);
    let error = CODEC.decode(&frame.into()).unwrap_err();
    assert_eq!(error.to_string(), "frame layout 2, this program reads layout 1");
}

#[test]
fn a_kind_of_tomorrow_is_skipped_by_its_length() {
    for kind in [0, 15, 31, 47, 50, 255] {
        let mut frame = bytes(&sample("append"));
        frame[5] = kind;
        seal_frame(&mut frame);
        assert_eq!(CODEC.peek_len(&frame, LIMIT), Ok(Some(frame.len())));
        assert_eq!(CODEC.decode(&frame.into()), Ok(Frame::Unknown { kind }));
    }
}

#[test]
fn a_kind_of_protocol_version_2_is_skipped_in_version_1() {
    let frame = bytes(&sample("stale-term"));
    assert_eq!(CODEC.speaking(1).decode(&frame.into()), Ok(Frame::Unknown { kind: 28 }));
}

#[test]
fn what_an_answer_says_tomorrow_is_refused() {
    // The byte behind the envelope, the round and the agreement.
    let says = 24 + 36 + 16;
    let mut frame = bytes(&sample("append-reply"));
    for (flags, refused) in [(128, "says"), (128 | 4, "says"), (1, "vote_hold"), (64, "runs")] {
        frame[says] = flags;
        seal_frame(&mut frame);
        let error = CODEC.speaking(5).decode(&frame.clone().into()).unwrap_err().to_string();
        assert!(error.contains(refused), "{flags}: {error}");
    }
}

#[test]
fn an_answer_says_what_is_usual_in_one_way_only() {
    let says = 24 + 36 + 16;
    for (flag, usual) in [(1, 0), (4, 0), (8, 9), (32, u64::MAX)] {
        let mut frame = bytes(&sample("append-reply"));
        frame[says] = flag;
        frame.extend_from_slice(&u64::to_le_bytes(usual));
        let (len, fields) = (frame.len() as u32, frame.len() as u32 - 24);
        frame[8..12].copy_from_slice(&len.to_le_bytes());
        frame[12..16].copy_from_slice(&fields.to_le_bytes());
        seal_frame(&mut frame);
        assert!(matches!(CODEC.decode(&frame.into()), Err(FrameError::Field(_))), "{flag}");
    }
}

#[test]
fn a_question_has_no_entries() {
    let mut frame = bytes(&sample("append"));
    let fields = u32::from_le_bytes(frame[12..16].try_into().unwrap()) as usize;
    frame[24 + fields - 1] = 1;
    seal_frame(&mut frame);
    assert!(matches!(CODEC.decode(&frame.into()), Err(FrameError::Field(_))));
}

#[test]
fn a_flag_of_tomorrow_is_refused() {
    let mut frame = bytes(&sample("hello"));
    frame[6] = 4;
    seal_frame(&mut frame);
    assert_eq!(CODEC.decode(&frame.into()), Err(FrameError::Flags { found: 4 }));
}

#[test]
fn a_frame_above_the_limit_is_refused_before_it_is_read() {
    let frame = bytes(&sample("append"));
    let len = frame.len();
    assert_eq!(CODEC.peek_len(&frame[..24], len), Ok(Some(len)));
    assert_eq!(CODEC.peek_len(&frame[..24], len - 1), Err(FrameError::TooLong { len, limit: len - 1 }));
}

#[test]
fn http_on_the_peer_port_is_named_as_a_stranger() {
    let error = CODEC.peek_len(b"GET /health HTTP/1.1\r\nHost: a\r\n", LIMIT).unwrap_err();
    assert!(error.to_string().starts_with("not a Kattu peer frame"), "{error}");
}

#[test]
fn counts_beyond_the_bytes_are_refused_before_anything_is_allocated() {
    for (name, frame) in one_of_each() {
        let count_at = match name {
            "append" => 24 + 36 + 32,
            "forward" | "forward-reply" | "forward-reply-members" => 24 + 40,
            "introduction" => 24,
            "join" => 24 + 4,
            "roll" => 24 + 8,
            _ => continue,
        };
        let mut bytes = bytes(&frame);
        bytes[count_at..count_at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        seal_frame(&mut bytes);
        assert!(matches!(CODEC.decode(&bytes.into()), Err(FrameError::Field(_))), "{name}");
    }
}

#[test]
fn a_piece_of_a_snapshot_must_be_what_was_sent_and_lie_within_its_file() {
    let at = one_of_each().iter().position(|(name, _)| *name == "snapshot-chunk").unwrap();
    let whole = bytes(&one_of_each()[at].1);
    let fields_at = 24 + 36;
    let changed = |at: usize, value: u64| {
        let mut frame = whole.clone();
        frame[at..at + 8].copy_from_slice(&value.to_le_bytes());
        seal_frame(&mut frame);
        CODEC.decode(&frame.into()).unwrap_err().to_string()
    };
    let (offset_at, total_at) = (fields_at + 32, fields_at + 40);
    assert_eq!(changed(offset_at, (1 << 20) - 3), "frame field `offset` has the invalid value 1048573");
    assert_eq!(
        changed(offset_at, u64::MAX),
        format!("frame field `offset` has the invalid value {}", u64::MAX)
    );
    assert_eq!(changed(total_at, 4096), "frame field `offset` has the invalid value 4096");
    assert_eq!(changed(fields_at + 24, 13), "frame field `membership_at` has the invalid value 13");
    assert!(changed(fields_at + 52, 0x0003).contains("frame's snapshot: configuration of layout 3"));
    assert!(changed(fields_at + 53, 0xFFFF).contains("frame's snapshot: the membership is cut off"));

    let mut frame = whole.clone();
    *frame.last_mut().unwrap() ^= 1;
    assert!(matches!(CODEC.decode(&frame.into()), Err(FrameError::ChunkChecksum { .. })));
    let Frame::Message(kattu_node::contract::PeerMessage::Raft(mut bad)) = one_of_each().swap_remove(at).1
    else {
        panic!("a message")
    };
    if let Message::SnapshotChunk(chunk) = &mut bad.message {
        chunk.meta.membership.learners = chunk.meta.membership.voters.clone();
    }
    let frame = Frame::Message(kattu_node::contract::PeerMessage::Raft(bad));
    let error = CODEC.decode(&bytes(&frame).into()).unwrap_err();
    assert_eq!(error.to_string(), "frame's snapshot: a member cannot be voter and learner at once");
}

#[test]
fn entries_must_continue_the_log() {
    let append = |entries| {
        let prev = EntryId::new(4, 12);
        envelope(Message::Append(Append { prev, entries, commit: LogIndex(0), round: Round(0), tail: false }))
    };
    let command = |term, index| entry(term, index, EntryKind::Command, b"x");
    let cases = [
        ("a gap after prev", vec![command(4, 14)]),
        ("an entry twice", vec![command(4, 13), command(4, 13)]),
        ("a gap between entries", vec![command(4, 13), command(4, 15)]),
        ("a term below prev's", vec![command(3, 13)]),
        ("a term that falls", vec![command(5, 13), command(4, 14)]),
        ("a term above the sender's", vec![command(6, 13)]),
    ];
    for (what, entries) in cases {
        let decoded = CODEC.decode(&bytes(&append(entries)).into());
        assert!(matches!(decoded, Err(FrameError::NotConsecutive { .. })), "{what}: {decoded:?}");
    }
    assert!(CODEC.decode(&bytes(&append(vec![command(4, 13), command(5, 14)])).into()).is_ok());
}

#[test]
fn entries_must_be_of_the_messages_group() {
    let mut frame = bytes(&sample("append"));
    frame[24] = 8; // the envelope's group
    seal_frame(&mut frame);
    let error = CODEC.decode(&frame.into()).unwrap_err();
    assert_eq!(error, FrameError::ForeignGroup { expected: GroupId(8), found: GroupId(7) });
}

#[test]
fn every_truncation_and_every_flipped_bit_of_a_record_is_an_error() {
    let whole = entry(4, 13, EntryKind::Command, b"put a 1").record().to_vec();
    for len in 0..whole.len() {
        let cut = SharedBytes::from(whole[..len].to_vec());
        let decoded = record_decode(CODEC.crc, &cut, 0, LIMIT);
        assert!(matches!(decoded, Err(RecordError::Cut { .. })), "cut at {len}: {decoded:?}");
    }
    for bit in 0..whole.len() * 8 {
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(record_decode(CODEC.crc, &flipped.into(), 0, LIMIT).is_err(), "bit {bit}");
    }
}

#[test]
fn record_headers_without_meaning_are_refused_by_field() {
    let cases: [(&str, usize, u8); 7] = [
        ("kind", 4, 0),
        ("kind", 4, 16), // a truncation is no entry
        ("kind", 4, 99),
        ("form", 6, 3),
        ("form", 7, 1), // a whole entry has no shard
        ("reserved", 13, 1),
        ("index", 16, 0),
    ];
    for (field, at, value) in cases {
        let mut record = entry(4, 13, EntryKind::Command, b"").record().to_vec();
        record[at] = value;
        seal_record(&mut record);
        match record_decode(CODEC.crc, &record.into(), 0, LIMIT) {
            Err(RecordError::Field { field: named, .. }) => assert_eq!(named, field, "byte {at} = {value}"),
            other => panic!("byte {at} = {value}: {other:?}"),
        }
    }
}

#[test]
fn a_record_of_tomorrow_is_refused_by_name() {
    let mut record = entry(4, 13, EntryKind::Command, b"put a 1").record().to_vec();
    record[5] = 2;
    seal_record(&mut record);
    let error = record_decode(CODEC.crc, &record.into(), 0, LIMIT).unwrap_err();
    assert_eq!(error.to_string(), "record version 2, this program reads version 1");
}

#[test]
fn a_record_above_the_limit_is_refused() {
    let record = entry(4, 13, EntryKind::Command, b"put a 1");
    let (bytes, len) = (record.record(), record.len());
    assert!(record_decode(CODEC.crc, bytes, 0, len).is_ok());
    let error = record_decode(CODEC.crc, bytes, 0, len - 1).unwrap_err();
    assert_eq!(error, RecordError::Length { len, limit: len - 1 });
}

#[test]
fn the_form_of_an_entry_survives() {
    use kattu_raft::{Body, EntryHead, Stamp};
    let shard = |shard, data| Body::Shard { shard, data, bytes: b"part" };
    for body in [Body::Whole(b"all"), Body::Whole(b""), shard(0, 3), shard(7, 1), Body::Missing] {
        let head = EntryHead { id: EntryId::new(2, 3), kind: EntryKind::Command, stamp: Stamp(4) };
        let made = kattu_wire::record_encode(CODEC.crc, GroupId(1), head, body);
        let (group, read, next) = record_decode(CODEC.crc, made.record(), 0, LIMIT).unwrap();
        assert_eq!((group, &read, next), (GroupId(1), &made, made.len()));
        assert_eq!(read.body(), body);
        let whole = if let Body::Whole(payload) = body { Some(payload) } else { None };
        assert_eq!(read.payload(), whole, "a part is never taken for the payload");
    }
}
