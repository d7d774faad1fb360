//! One sample of every format, small enough to read in a hex dump.
#![allow(dead_code)]

use kattu_node::contract::{Forward, ForwardReply, MemberInfo, MemberRefusal, Members, PeerMessage, Refusal};
use kattu_raft::message::{
    Append, AppendReply, Gap, Lost, PreVote, PreVoteReply, ReadIndex, ReadIndexReply, Remind, Reminder, Room,
    Run, SnapshotChunk, SnapshotReply, StaleTerm, Standing, TimeoutNow, Vote, VoteReply,
};
use kattu_raft::{
    Body, ClockReading, Duration, Entry, EntryHead, EntryId, EntryKind, Envelope, Extensions, GroupId,
    Incarnation, Instant, LogIndex, Membership, Message, NodeId, Protocol, Round, SharedBytes, SnapshotMeta,
    Stamp, Term, Timing,
};
use kattu_wire::{
    Challenge, Codec, Frame, FrameWriter, Goodbye, Hello, Lane, Refused, Welcome, record_encode,
};
use kattu_wire::{Conflict, Introduction, Join, MemberList, Order, PROTOCOL_MAX, Removed, STREAMS_MAX};

/// The codec as the shell makes it.
pub const CODEC: Codec = Codec::new(crc32c::crc32c_append);

/// An entry of group 7.
pub fn entry(term: u64, index: u64, kind: EntryKind, payload: &[u8]) -> Entry {
    let head = EntryHead { id: EntryId::new(term, index), kind, stamp: Stamp(1000 + index) };
    record_encode(CODEC.crc, GroupId(7), head, Body::Whole(payload))
}

/// `message` from member 1 to member 2 in term 5.
pub fn envelope(message: Message) -> Frame {
    Frame::Message(PeerMessage::Raft(Envelope {
        group: GroupId(7),
        from: NodeId(1),
        incarnation: Incarnation(0x1122_3344_5566_7788),
        to: NodeId(2),
        term: Term(5),
        message,
    }))
}

fn roll() -> MemberList {
    let first = MemberInfo {
        id: NodeId(1),
        name: "n1".into(),
        peer_urls: vec!["http://10.0.0.1:2380".into()],
        ..MemberInfo::default()
    };
    let learner = MemberInfo {
        id: NodeId(4),
        peer_urls: vec!["http://10.0.0.4:2380".into()],
        learner: true,
        votes_when_ready: true,
        ..MemberInfo::default()
    };
    let now = MemberInfo { client_urls: vec!["http://10.0.0.1:2379".into()], ..first.clone() };
    let members = Members { at: LogIndex(15), list: vec![now, learner], removed: vec![NodeId(2), NodeId(3)] };
    MemberList { cluster: 0xABCD, began_with: vec![first], members, heard: vec![NodeId(1)] }
}

fn heartbeat() -> Append {
    let (prev, commit, round) = (EntryId::new(4, 12), LogIndex(12), Round(9));
    Append { prev, entries: Vec::new(), commit, round, tail: false }
}

fn reply(reply: AppendReply) -> Frame {
    envelope(Message::AppendReply(reply))
}

/// An answer without optional statements.
fn little() -> AppendReply {
    AppendReply {
        round: Round(9),
        vote_hold: Duration::ZERO,
        clock: None,
        disk: Duration::ZERO,
        bulk: Round(9),
        upto: LogIndex(15),
        gap: None,
        room: Room::PLENTY,
        received: LogIndex(15),
        early: vec![],
    }
}

/// An answer with all optional statements.
fn everything() -> AppendReply {
    AppendReply {
        vote_hold: Duration::from_millis(1000),
        clock: Some(ClockReading { run: 0x0102_0304_0506_0708, at: Instant(86_400_000_000_000) }),
        disk: Duration::from_micros(250),
        bulk: Round(7),
        gap: Some(Gap { prev: LogIndex(12), hint: EntryId::new(3, 10), last: LogIndex(10) }),
        room: Room(4096),
        received: LogIndex(16),
        early: [(18, 18), (20, 20)]
            .map(|(first, last)| Run { first: LogIndex(first), last: LogIndex(last) })
            .to_vec(),
        ..little()
    }
}

/// Frames that protocol version 1 encodes differently, limited to what it can express; the names are those of the
/// golden files.
pub fn one_of_each_v1() -> Vec<(&'static str, Frame)> {
    let timed = |upto| AppendReply {
        upto: LogIndex(upto),
        bulk: Round(9),
        gap: None,
        room: Room::PLENTY,
        received: LogIndex(upto),
        early: vec![],
        ..everything()
    };
    let untold = |upto| AppendReply { clock: None, ..timed(upto) };
    let of_now = one_of_each().into_iter();
    let appends = of_now.filter(|(name, _)| matches!(*name, "append" | "heartbeat"));
    let replies = [
        ("append-reply-match", reply(timed(15))),
        ("append-reply-mismatch", reply(AppendReply { gap: everything().gap, ..untold(0) })),
        ("append-reply-busy", reply(AppendReply { room: Room(0), ..untold(0) })),
        ("append-reply-stale-term", envelope(Message::StaleTerm(StaleTerm))),
    ];
    let (campaign_term, last, round) = (Term(6), EntryId::new(4, 12), Round(0));
    let pre_votes = [
        ("pre-vote", envelope(Message::PreVote(PreVote { campaign_term, last, round }))),
        (
            "pre-vote-reply",
            envelope(Message::PreVoteReply(PreVoteReply { campaign_term, granted: true, round })),
        ),
    ];
    let vote =
        ("vote-reply", envelope(Message::VoteReply(VoteReply { granted: true, last: EntryId::default() })));
    appends.chain(replies).chain(pre_votes).chain([vote]).collect()
}

/// Every kind of frame, by name; the names are those of the golden files.
pub fn one_of_each() -> Vec<(&'static str, Frame)> {
    let last = EntryId::new(4, 12);
    vec![
        (
            "hello",
            Frame::Hello(Hello {
                protocol_min: 1,
                protocol_max: 3,
                cluster: 0xABCD,
                from: NodeId(1),
                incarnation: Incarnation(77),
                to: NodeId(2),
                lane: Lane::Bulk,
                learner: true,
            }),
        ),
        (
            "hello-stream",
            Frame::Hello(Hello {
                protocol_min: 1,
                protocol_max: 5,
                cluster: 0xABCD,
                from: NodeId(1),
                incarnation: Incarnation(77),
                to: NodeId(2),
                lane: Lane::Stream(STREAMS_MAX - 1),
                learner: false,
            }),
        ),
        (
            "welcome",
            Frame::Welcome(Welcome { protocol: 1, from: NodeId(2), incarnation: Incarnation(78), proof: 0 }),
        ),
        (
            "welcome-asks",
            Frame::Welcome(Welcome { protocol: 3, from: NodeId(2), incarnation: Incarnation(78), proof: 79 }),
        ),
        ("challenge", Frame::Challenge(Challenge { number: 79, secret: 0x0102_0304_0506_0708 })),
        ("proof", Frame::Proof(0x0102_0304_0506_0708)),
        ("refused", Frame::Refused(Refused { reason: "cluster abcd, this is 1234".into() })),
        ("goodbye", Frame::Goodbye(Goodbye { reason: "stopping".into() })),
        (
            "introduction",
            Frame::Introduction(Introduction {
                peer_urls: vec!["http://10.0.0.4:2380".into()],
                priority: 150,
            }),
        ),
        ("level", Frame::Level(1)),
        (
            "join",
            Frame::Join(Join {
                protocol_min: 1,
                protocol_max: 2,
                peer_urls: vec!["http://10.0.0.4:2380".into(), "http://n4:2380".into()],
            }),
        ),
        ("roll", Frame::MemberList(roll())),
        ("removed", Frame::Removed(Removed { cluster: 0xABCD, member: NodeId(4) })),
        ("known", Frame::Conflict(Conflict { cluster: 0xABCD, member: NodeId(4) })),
        ("quota", Frame::Quota(12 << 30)),
        ("order", Frame::Order(Order { set: 2, number: 3, waits: true })),
        (
            "append",
            envelope(Message::Append(Append {
                prev: last,
                entries: vec![
                    entry(4, 13, EntryKind::Command, b"put a 1"),
                    entry(5, 14, EntryKind::Noop, b""),
                    entry(5, 15, EntryKind::Config, b"members"),
                ],
                commit: LogIndex(11),
                round: Round(8),
                tail: false,
            })),
        ),
        ("heartbeat", envelope(Message::Append(heartbeat()))),
        ("question", envelope(Message::Append(Append { prev: last, tail: true, ..heartbeat() }))),
        ("append-reply", reply(AppendReply { round: Round(9), bulk: Round(9), ..little() })),
        ("append-reply-all", reply(everything())),
        ("append-reply-next", {
            let next = Run { first: LogIndex(16), last: LogIndex(16) };
            reply(AppendReply { early: vec![next], ..little() })
        }),
        ("stale-term", envelope(Message::StaleTerm(StaleTerm))),
        ("pre-vote", envelope(Message::PreVote(PreVote { campaign_term: Term(6), last, round: Round(3) }))),
        (
            "pre-vote-reply",
            envelope(Message::PreVoteReply(PreVoteReply {
                campaign_term: Term(6),
                granted: true,
                round: Round(3),
            })),
        ),
        ("vote", envelope(Message::Vote(Vote { last, transfer: false }))),
        ("vote-reply", envelope(Message::VoteReply(VoteReply { granted: true, last }))),
        ("read-index", envelope(Message::ReadIndex(ReadIndex { batch: 3 }))),
        (
            "read-index-reply",
            envelope(Message::ReadIndexReply(ReadIndexReply { batch: 3, index: Some(LogIndex(15)) })),
        ),
        (
            "snapshot-chunk",
            envelope(Message::SnapshotChunk(SnapshotChunk {
                meta: Box::new(SnapshotMeta {
                    last,
                    stamp: Stamp(1012),
                    membership: Membership {
                        voters: vec![NodeId(1), NodeId(2), NodeId(3)],
                        outgoing: vec![NodeId(1), NodeId(4)],
                        learners: vec![NodeId(5)],
                        learners_next: vec![NodeId(4)],
                        extensions: Extensions::default(),
                    },
                    membership_at: LogIndex(9),
                }),
                offset: 4096,
                bytes: SharedBytes::from(b"piece of a file".to_vec()),
                total: 1 << 20,
            })),
        ),
        (
            "snapshot-chunk-extended",
            envelope(Message::SnapshotChunk(SnapshotChunk {
                meta: Box::new(SnapshotMeta {
                    last,
                    stamp: Stamp(1012),
                    membership: Membership {
                        extensions: Extensions {
                            timing: Some(Timing {
                                election_timeout: Duration::from_millis(1000),
                                heartbeat_interval: Duration::from_millis(100),
                            }),
                            protocol: Some(Protocol::Raft),
                            unknown: vec![(0x8001, b"of tomorrow".to_vec())],
                        },
                        ..Membership::new(vec![NodeId(1), NodeId(2), NodeId(3)], vec![NodeId(5)])
                    },
                    membership_at: LogIndex(9),
                }),
                offset: 0,
                bytes: SharedBytes::from(b"piece of a file".to_vec()),
                total: 1 << 20,
            })),
        ),
        (
            "snapshot-reply",
            envelope(Message::SnapshotReply(SnapshotReply { last, next: 8192, refused: false })),
        ),
        ("timeout-now", envelope(Message::TimeoutNow(TimeoutNow))),
        ("lost", envelope(Message::Lost(Lost { upto: last }))),
        ("remind", envelope(Message::Remind(Remind { nonce: 77 }))),
        (
            "reminder",
            envelope(Message::Reminder(Reminder {
                nonce: 77,
                standing: Standing::HasMetAll,
                committed: last,
                acknowledged: last,
            })),
        ),
        ("read-index-later", envelope(Message::ReadIndexReply(ReadIndexReply { batch: 3, index: None }))),
        (
            "forward",
            Frame::Message(PeerMessage::Forward(Forward {
                from: NodeId(2),
                to: NodeId(1),
                incarnation: Incarnation(78),
                term: Term(5),
                first_seq: 100,
                commands: vec![
                    SharedBytes::from(b"put b 2".to_vec()),
                    SharedBytes::default(),
                    SharedBytes::from(b"del c".to_vec()),
                ],
            })),
        ),
        (
            "forward-reply-members",
            Frame::Message(PeerMessage::ForwardReply(ForwardReply {
                from: NodeId(1),
                to: NodeId(2),
                incarnation: Incarnation(78),
                term: Term(5),
                first_seq: 104,
                verdicts: [
                    MemberRefusal::UnderWay,
                    MemberRefusal::NotFound,
                    MemberRefusal::IdUsed,
                    MemberRefusal::UrlsUsed,
                    MemberRefusal::NotLearner,
                    MemberRefusal::NotCaughtUp,
                    MemberRefusal::WouldLoseQuorum,
                    MemberRefusal::LastVoter,
                    MemberRefusal::TooManyLearners,
                    MemberRefusal::TooManyMembers,
                    MemberRefusal::NotLeader,
                    MemberRefusal::BadTransferee,
                    MemberRefusal::TransferFailed,
                ]
                .map(|refusal| Err(Refusal::Member(refusal)))
                .into(),
            })),
        ),
        (
            "forward-reply-timing",
            Frame::Message(PeerMessage::ForwardReply(ForwardReply {
                from: NodeId(1),
                to: NodeId(2),
                incarnation: Incarnation(78),
                term: Term(5),
                first_seq: 117,
                verdicts: [MemberRefusal::LevelTooLow, MemberRefusal::BadTiming]
                    .map(|refusal| Err(Refusal::Member(refusal)))
                    .into(),
            })),
        ),
        (
            "forward-reply",
            Frame::Message(PeerMessage::ForwardReply(ForwardReply {
                from: NodeId(1),
                to: NodeId(2),
                incarnation: Incarnation(78),
                term: Term(5),
                first_seq: 100,
                verdicts: vec![
                    Ok(EntryId::new(5, 16)),
                    Err(Refusal::NoSpace),
                    Err(Refusal::TooManyRequests),
                    Ok(EntryId::new(5, 17)),
                ],
            })),
        ),
    ]
}

/// The bytes of one frame.
pub fn bytes(frame: &Frame) -> Vec<u8> {
    bytes_in(frame, PROTOCOL_MAX)
}

/// The bytes of one frame in a protocol version.
pub fn bytes_in(frame: &Frame, protocol: u16) -> Vec<u8> {
    let mut writer = FrameWriter::default();
    CODEC.speaking(protocol).encode(frame, &mut writer);
    let bytes: Vec<u8> = writer.pieces().flatten().copied().collect();
    assert_eq!(writer.len(), bytes.len());
    bytes
}

/// Bytes as text: 16 to a line.
pub fn hex(bytes: &[u8]) -> String {
    let line = |chunk: &[u8]| chunk.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ");
    bytes.chunks(16).map(line).collect::<Vec<_>>().join("\n") + "\n"
}
