//! A number of a message that is used in sums is believed below `COUNT_MAX` and nowhere else, whichever message and field it
//! stands in. [fault-model P11]

use kattu_peers::{World, config};
use kattu_raft::distrust::COUNT_MAX;
use kattu_raft::message::{
    Append, AppendReply, Gap, Lost, PreVote, ReadIndexReply, Reminder, Room, SnapshotChunk, SnapshotReply,
    Standing, Vote,
};
use kattu_raft::{
    Duration, Effects, Entry, EntryHead, EntryId, EntryKind, Envelope, Falsehood, GroupId, HardState,
    Incarnation, LogIndex, Lsn, Message, NodeId, Raft, Recovered, Round, SharedBytes, SnapshotMeta, Stamp,
    Term,
};

const ZERO: EntryId = EntryId { term: Term(0), index: LogIndex(0) };

fn entries(last: u64) -> Vec<Entry> {
    let entry = |index| {
        let head = EntryHead { id: EntryId::new(1, index), kind: EntryKind::Noop, stamp: Stamp(0) };
        Entry::new(head, SharedBytes::default(), 0)
    };
    [last - 1, last].map(entry).to_vec()
}

fn append(prev: EntryId, entries: Vec<Entry>, commit: u64, round: u64) -> Message {
    Message::Append(Append { prev, entries, commit: LogIndex(commit), round: Round(round), tail: false })
}

fn reply(round: u64, bulk: u64, upto: u64, gap: Option<Gap>) -> Message {
    let (vote_hold, clock, disk) = (Duration::ZERO, None, Duration::ZERO);
    let (round, bulk, upto, room) = (Round(round), Round(bulk), LogIndex(upto), Room::PLENTY);
    let (received, early) = (upto, vec![]);
    Message::AppendReply(AppendReply {
        round,
        vote_hold,
        clock,
        disk,
        bulk,
        upto,
        gap,
        room,
        received,
        early,
    })
}

fn gap(prev: u64, hint: EntryId, last: u64) -> Message {
    reply(0, 0, 0, Some(Gap { prev: LogIndex(prev), hint, last: LogIndex(last) }))
}

fn chunk(last: EntryId, offset: u64, total: u64) -> Message {
    let meta = Box::new(SnapshotMeta { last, ..SnapshotMeta::default() });
    Message::SnapshotChunk(SnapshotChunk { meta, offset, bytes: SharedBytes::default(), total })
}

/// Messages that hold this number once, each with the place of the number.
fn holding(number: u64) -> Vec<(&'static str, Message)> {
    let index = EntryId { index: LogIndex(number), ..ZERO };
    let term = EntryId { term: Term(number), ..ZERO };
    let pre_vote = |campaign_term, last, round| {
        Message::PreVote(PreVote { campaign_term: Term(campaign_term), last, round: Round(round) })
    };
    let snapshot_reply = |last, next| Message::SnapshotReply(SnapshotReply { last, next, refused: false });
    let reminder = |committed, acknowledged| {
        Message::Reminder(Reminder { nonce: 0, standing: Standing::TakesPart, committed, acknowledged })
    };
    vec![
        ("append: index before", append(index, vec![], 0, 0)),
        ("append: term before", append(term, vec![], 0, 0)),
        ("append: last entry", append(ZERO, entries(number), 0, 0)),
        ("append: commit", append(ZERO, vec![], number, 0)),
        ("append: round", append(ZERO, vec![], 0, number)),
        ("reply: round", reply(number, 0, 0, None)),
        ("reply: round of entries", reply(0, number, 0, None)),
        ("reply: upto", reply(0, 0, number, None)),
        ("gap: before", gap(number, ZERO, 0)),
        ("gap: index of the hint", gap(0, index, 0)),
        ("gap: term of the hint", gap(0, term, 0)),
        ("gap: last", gap(0, ZERO, number)),
        ("pre-vote: term", pre_vote(number, ZERO, 0)),
        ("pre-vote: last", pre_vote(0, index, 0)),
        ("pre-vote: round", pre_vote(0, ZERO, number)),
        ("vote: last", Message::Vote(Vote { last: index, transfer: false })),
        ("read", Message::ReadIndexReply(ReadIndexReply { batch: 0, index: Some(LogIndex(number)) })),
        ("chunk: last", chunk(index, 0, 0)),
        ("chunk: offset", chunk(ZERO, number, 0)),
        ("chunk: total", chunk(ZERO, 0, number)),
        ("chunk's reply: last", snapshot_reply(index, 0)),
        ("chunk's reply: next", snapshot_reply(ZERO, number)),
        ("lost", Message::Lost(Lost { upto: index })),
        ("reminder: committed", reminder(index, ZERO)),
        ("reminder: acknowledged", reminder(ZERO, term)),
    ]
}

#[test]
fn no_number_that_is_too_high_is_believed() {
    let mut world = World::started((1..=3).map(|id| config(id, 3, 1)).collect(), 7);
    assert!(world.elect(NodeId(1)));
    world.settle();
    let distrusted = |message: Message| {
        let mut raft = world.raft(NodeId(2)).clone();
        let (from, term, incarnation) = (NodeId(3), raft.term(), Incarnation(300));
        let envelope = Envelope { group: GroupId(0), from, incarnation, to: NodeId(2), term, message };
        let mut effects = Effects::default();
        raft.step(world.now, envelope, &mut effects);
        let is_unchanged = &raft == world.raft(NodeId(2)) && effects.persist.is_empty();
        let is_count =
            |(peer, falsehood): &(NodeId, Falsehood)| *peer == from && *falsehood == Falsehood::Count;
        (effects.distrust.iter().any(is_count), is_unchanged)
    };
    for term in [COUNT_MAX - 1, COUNT_MAX] {
        let recovered = Recovered {
            hard: HardState { term: Term(COUNT_MAX - 1), vote: None },
            lsn: Lsn(1),
            ..Recovered::default()
        };
        let mut raft = Raft::recover(config(2, 3, 1), 7, world.now, recovered);
        let (from, incarnation, term) = (NodeId(3), Incarnation(300), Term(term));
        let message = Message::Append(Append {
            prev: EntryId::default(),
            entries: vec![],
            commit: LogIndex(0),
            round: Round(1),
            tail: false,
        });
        let mut effects = Effects::default();
        let envelope = Envelope { group: GroupId(0), from, incarnation, to: NodeId(2), term, message };
        raft.step(world.now, envelope, &mut effects);
        let is_believed = term < Term(COUNT_MAX);
        assert_eq!(raft.leader() == Some(from), is_believed, "{term:?}");
        assert_eq!(effects.distrust.is_empty(), is_believed, "{term:?}");
    }
    for (place, message) in holding(COUNT_MAX) {
        assert_eq!(distrusted(message), (true, true), "{place}");
    }
    for (place, message) in holding(COUNT_MAX - 1) {
        assert!(!distrusted(message).0, "{place}: it is high, and may be");
    }
}
