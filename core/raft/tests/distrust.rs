//! Distrust: messages that no honest peer could send change nothing and end no process. [fault-model P11, §4]
//!
//! First lie by lie, then well-formed nonsense by the thousand.

use kattu_peers::{World, config, liars};
use kattu_raft::distrust::{COUNT_MAX, TERMS_AHEAD_MAX};
use kattu_raft::message::{Append, AppendReply, Gap, Lost, Room, SnapshotChunk, StaleTerm, TimeoutNow, Vote};
use kattu_raft::{
    Duration, Effects, Entry, EntryHead, EntryId, EntryKind, Envelope, Extensions, Falsehood, Form, GroupId,
    Incarnation, LogIndex, Membership, MembershipError, Message, NodeId, Raft, Round, SnapshotMeta, Stamp,
    Term,
};
use proptest::prelude::*;

const A: NodeId = NodeId(1);
const B: NodeId = NodeId(2);
const C: NodeId = NodeId(3);

/// Three members, the first of which leads and has committed some entries everywhere.
fn three() -> World {
    let mut world = World::started((1..=3).map(|id| config(id, 3, 1)).collect(), 7);
    assert!(world.elect(A));
    for number in 0..5 {
        world.propose(A, format!("{number}").as_bytes()).expect("it leads");
    }
    world.settle();
    world
}

/// A message from `from` to `to` in this term.
fn says(from: NodeId, to: NodeId, term: u64, message: Message) -> Envelope {
    let incarnation = Incarnation(from.0 * 100);
    Envelope { group: GroupId(0), from, incarnation, to, term: Term(term), message }
}

/// The receiver's state and effects after this message.
fn told(world: &World, envelope: Envelope) -> (Raft, Effects) {
    let mut raft = world.raft(envelope.to).clone();
    let mut effects = Effects::default();
    raft.step(world.now, envelope, &mut effects);
    (raft, effects)
}

/// The message is reported as a falsehood, and nothing else happens.
#[track_caller]
fn is_not_believed(world: &World, envelope: Envelope, falsehood: Falsehood) {
    let (from, to) = (envelope.from, envelope.to);
    let (raft, effects) = told(world, envelope);
    assert_eq!(effects, Effects { distrust: vec![(from, falsehood)], ..Effects::default() });
    assert_eq!(&raft, world.raft(to), "nothing has changed");
}

fn entry(term: u64, index: u64, kind: EntryKind, payload: &[u8]) -> Entry {
    let head = EntryHead { id: EntryId::new(term, index), kind, stamp: Stamp(0) };
    Entry::new(head, payload.to_vec().into(), 0)
}

fn append(prev: EntryId, entries: Vec<Entry>) -> Append {
    Append { prev, entries, commit: LogIndex(0), round: Round(9), tail: false }
}

fn reply(upto: u64, round: u64) -> AppendReply {
    AppendReply {
        round: Round(round),
        vote_hold: Duration::ZERO,
        clock: None,
        disk: Duration::ZERO,
        bulk: Round(0),
        upto: LogIndex(upto),
        gap: None,
        room: Room::PLENTY,
        received: LogIndex(upto),
        early: vec![],
    }
}

#[test]
fn a_term_has_one_leader_whichever_member_claims_to_lead_it_too() {
    let world = three();
    let (term, last) = (world.raft(A).term().0, world.raft(A).last_id());
    let claims = || {
        let meta = SnapshotMeta { last, membership: Membership::new(vec![A], vec![]), ..Default::default() };
        [
            Message::Append(append(last, vec![])),
            Message::SnapshotChunk(SnapshotChunk {
                meta: Box::new(meta),
                offset: 0,
                bytes: vec![1].into(),
                total: 1,
            }),
            Message::Lost(Lost { upto: EntryId::new(term, last.index.0 + 1) }),
        ]
    };
    for claim in claims() {
        let second = Falsehood::SecondLeader(Term(term));
        is_not_believed(&world, says(B, A, term, claim.clone()), second); // to the leader
        is_not_believed(&world, says(NodeId(77), A, term, claim.clone()), second); // from an unknown sender
        is_not_believed(&world, says(C, B, term, claim), second); // to a follower
    }
}

#[test]
fn no_term_is_believed_that_no_member_can_have_reached() {
    let world = three();
    let term = world.raft(A).term().0;
    let last = world.raft(A).last_id();
    let ahead = |by: u64| says(B, A, term + by, Message::Vote(Vote { last, transfer: true }));
    let (raft, effects) = told(&world, ahead(TERMS_AHEAD_MAX));
    assert_eq!(
        (raft.term(), effects.distrust.len()),
        (Term(term + TERMS_AHEAD_MAX), 0),
        "in 13 years perhaps"
    );
    is_not_believed(
        &world,
        ahead(TERMS_AHEAD_MAX + 1),
        Falsehood::TermAhead(Term(term + TERMS_AHEAD_MAX + 1)),
    );
    for (from, message) in [
        (NodeId(77), Message::Append(append(last, vec![]))),
        (NodeId(77), Message::TimeoutNow(TimeoutNow)),
        (B, Message::StaleTerm(StaleTerm)),
    ] {
        is_not_believed(&world, says(from, A, u64::MAX, message), Falsehood::TermAhead(Term(u64::MAX)));
    }
}

#[test]
fn no_member_acknowledges_what_the_leader_lacks_or_answers_what_was_not_asked() {
    let world = three();
    let (term, last) = (world.raft(A).term().0, world.raft(A).last_id().index.0);
    let acknowledges = |reply| says(B, A, term, Message::AppendReply(reply));
    is_not_believed(&world, acknowledges(reply(last + 1, 0)), Falsehood::BeyondLog(LogIndex(last + 1)));
    is_not_believed(&world, acknowledges(reply(1 << 60, 0)), Falsehood::BeyondLog(LogIndex(1 << 60)));
    let (_, effects) = told(&world, acknowledges(reply(last, 0)));
    assert_eq!(effects.distrust, [], "that much it has");
    let to_come = 1 << 40;
    is_not_believed(&world, acknowledges(reply(last, to_come)), Falsehood::RoundAhead(Round(to_come)));
    let read = AppendReply { bulk: Round(to_come), ..reply(last, 0) };
    is_not_believed(&world, acknowledges(read), Falsehood::RoundAhead(Round(to_come)));
    let gap = Gap { prev: LogIndex(3), hint: EntryId::new(1, 2), last: LogIndex(COUNT_MAX) };
    is_not_believed(&world, acknowledges(AppendReply { gap: Some(gap), ..reply(1, 0) }), Falsehood::Count);
}

/// Goal: a member stops taking entries at a configuration that it must not misread, and says which version it lacks.
#[test]
fn a_configuration_of_a_newer_version_is_refused_by_what_it_lacks() {
    let world = three();
    let (term, last) = (world.raft(B).term().0, world.raft(B).last_id());
    let extended = |number: u16, value: &[u8]| {
        let mut bytes = Vec::new();
        let extensions = Extensions { unknown: vec![(0x8000, value.to_vec())], ..Extensions::default() };
        Membership { extensions, ..Membership::new(vec![A, B, C], vec![]) }.encode(&mut bytes);
        let at = bytes.len() - value.len() - 4;
        bytes[at..at + 2].copy_from_slice(&number.to_le_bytes());
        bytes
    };
    let sent = |payload: &[u8]| {
        let entry = entry(term, last.index.0 + 1, EntryKind::Config, payload);
        says(A, B, term, Message::Append(append(last, vec![entry])))
    };
    let newer = |error| Falsehood::Newer(error);
    is_not_believed(&world, sent(&extended(3, b"x")), newer(MembershipError::Extension(3)));
    is_not_believed(&world, sent(&extended(2, &[9, 0])), newer(MembershipError::Protocol(9)));
    let mut layout = extended(0x8000, b"x");
    layout[0] = 3;
    is_not_believed(&world, sent(&layout), newer(MembershipError::Version(3)));
    let (raft, effects) = told(&world, sent(&extended(0x8000, b"x")));
    assert_eq!(
        (effects.distrust, raft.last_id().index),
        (vec![], last.index.next()),
        "what may be ignored is taken"
    );
}

#[test]
fn entries_follow_each_other_and_can_be_read_or_are_not_taken() {
    let mut world = three();
    let (term, last) = (world.raft(B).term().0, world.raft(B).last_id());
    let (next, command) = (last.index.0 + 1, EntryKind::Command);
    let mut broken = Vec::new();
    Membership::new(vec![A, B], vec![]).encode(&mut broken);
    broken.truncate(9);
    for entries in [
        vec![entry(term, next + 1, command, b"a gap")],
        vec![entry(term, next, command, b"x"), entry(term, next, command, b"twice the same")],
        vec![entry(term + 1, next, command, b"of a term to come")],
        vec![entry(term, next, EntryKind::Config, b"\0no members")],
        vec![entry(term, next, EntryKind::Config, &broken)],
    ] {
        let sent = says(A, B, term, Message::Append(append(last, entries)));
        is_not_believed(&world, sent, Falsehood::Entries(last));
    }
    let at_the_end = EntryId::new(term, u64::MAX);
    let sent = says(A, B, term, Message::Append(append(at_the_end, vec![])));
    is_not_believed(&world, sent, Falsehood::Count);

    let (held, other) =
        (EntryId::new(term, last.index.0 - 1), entry(term - 1, last.index.0, command, b"other"));
    let sent = says(A, B, term, Message::Append(append(EntryId { term: Term(0), ..held }, vec![other])));
    let (_, effects) = told(&world, sent);
    assert_eq!(effects.persist, [], "what is committed stays");

    // The other peers of this world accept every payload; this one accepts none.
    let reads_nothing = kattu_raft::entry::PayloadReader(|kind, _| kind == EntryKind::Noop);
    let raft = world.raft(B).clone().with_reader(reads_nothing);
    world.peer(B).raft = Some(raft);
    let sent = says(A, B, term, Message::Append(append(last, vec![entry(term, next, command, b"what?")])));
    is_not_believed(&world, sent, Falsehood::Entries(last));
}

#[test]
fn entries_that_come_in_part_are_not_taken() {
    let world = three();
    let (term, last) = (world.raft(B).term().0, world.raft(B).last_id());
    let mut group = Vec::new();
    Membership::new(vec![A, B, C], vec![]).encode(&mut group);
    for (kind, payload) in [(EntryKind::Command, b"x".to_vec()), (EntryKind::Config, group)] {
        let sent = |form| {
            let whole = entry(term, last.index.0 + 1, kind, &payload);
            let entry = Entry::in_form(form, whole.head, payload.clone().into(), 0);
            says(A, B, term, Message::Append(append(last, vec![entry])))
        };
        let (_, effects) = told(&world, sent(Form::Whole));
        assert!(effects.distrust.is_empty() && !effects.persist.is_empty(), "it differs in its form only");
        for form in [Form::Shard { shard: 0, data: 1 }, Form::Shard { shard: 2, data: 3 }, Form::Missing] {
            is_not_believed(&world, sent(form), Falsehood::Entries(last));
        }
    }
}

#[test]
fn what_agreed_in_this_term_is_not_contradicted_in_it() {
    let mut world = three();
    let (term, last) = (world.raft(B).term().0 + 1, world.raft(B).last_id());
    let next = last.index.0 + 1;
    let sent = |term_of_entry, payload: &[u8]| {
        let entry = entry(term_of_entry, next, EntryKind::Command, payload);
        says(C, B, term, Message::Append(append(last, vec![entry])))
    };
    let (raft, effects) = told(&world, sent(term, b"agreed"));
    assert_eq!((effects.distrust.len(), raft.verified()), (0, LogIndex(next)));
    world.peer(B).raft = Some(raft);
    let (_, effects) = told(&world, sent(term, b"agreed"));
    assert_eq!(effects.distrust, [], "a copy");
    let older = EntryId::new(term - 1, next);
    let (raft, effects) = told(&world, sent(term - 1, b"contradicts it"));
    assert_eq!(effects.distrust, [(C, Falsehood::Contradiction(older))]);
    assert_eq!((raft.last_id(), effects.persist), (EntryId::new(term, next), vec![]));
    let membership = Membership::new(vec![A, B, C], vec![]);
    let meta = Box::new(SnapshotMeta { last: older, membership, ..Default::default() });
    let chunk = SnapshotChunk { meta, offset: 0, bytes: vec![1].into(), total: 1 };
    is_not_believed(&world, says(C, B, term, Message::SnapshotChunk(chunk)), Falsehood::Contradiction(older));
}

#[test]
fn a_snapshot_is_of_a_term_that_existed_and_of_a_group_with_members() {
    let world = three();
    let (term, last) = (world.raft(B).term().0, world.raft(B).last_id());
    let somebody = Membership::new(vec![A, B, C], vec![]);
    let chunk = |last: EntryId, membership: Membership| {
        let meta = SnapshotMeta { last, membership, ..Default::default() };
        let chunk = SnapshotChunk { meta: Box::new(meta), offset: 0, bytes: vec![1].into(), total: 1 };
        says(A, B, term, Message::SnapshotChunk(chunk))
    };
    let later = EntryId::new(term + 1, last.index.0 + 5);
    let (raft, effects) = told(&world, chunk(later, somebody.clone()));
    assert_eq!((effects.distrust, raft.last_id()), (vec![(A, Falsehood::Snapshot(later))], last));
    let this = EntryId::new(term, last.index.0 + 5);
    let (_, effects) = told(&world, chunk(this, Membership::default()));
    assert_eq!(effects.distrust, [(A, Falsehood::Snapshot(this))]);
    let (_, effects) = told(&world, chunk(this, somebody));
    assert_eq!((effects.distrust.len(), effects.store_chunks.len()), (0, 1));
}

#[test]
fn a_learner_that_comes_from_ever_new_directories_is_not_remembered_without_end() {
    let world = three();
    let mut leader = world.raft(A).clone();
    let (term, learner) = (leader.term().0, NodeId(4));
    let mut effects = Effects::default();
    for life in 1..10_000 {
        let envelope = says(learner, A, term, Message::AppendReply(reply(0, 0)));
        let envelope = Envelope { incarnation: Incarnation(life), ..envelope };
        leader.step(world.now, envelope, &mut effects);
    }
    assert!(format!("{leader:?}").len() < 100_000, "of each life something was kept");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    /// Goal: whatever well-formed messages others send, this member runs on, and its own state does not contradict
    /// itself.
    #[test]
    fn well_formed_lies_end_no_member(bytes in proptest::collection::vec(any::<u8>(), 0..1_500)) {
        let told = liars::story(&bytes);
        prop_assert!(told.is_ok(), "{:?}", told);
    }
}

/// Found by the fuzz target `lies`: two pieces that each end a snapshot of one entry, the first readable, the second not.
#[test]
fn a_snapshot_that_is_readable_and_one_that_is_not_may_end_at_one_entry() {
    let bytes = b"QQQQQQ\x1a\x1a\x1a\x1a\x1a\x1a\x1a\x1a\x1a\x9a\x1a\x1a:QQQQQ\xffQQQQQq\x01\x00\x00\x00\x00\x00\x00\x00QQQQQQQQQqQQQQPQQQQPQQQQQQQQQQQQQQQQQQQ\x0a,QQQSSQSSQQQQQQQQqQQQ\xe6QQ~\x08\xe8q??*;-QQQQQQQQQQAQQQQ";
    let told = liars::story(bytes);
    assert!(told.is_ok(), "{told:?}");
}

/// `KATTU_LIES` messages (50,000 by default), in stories drawn from `KATTU_SEED`.
#[test]
fn many_lies_end_no_member() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (wanted, seed) = (number("KATTU_LIES").unwrap_or(50_000), number("KATTU_SEED").unwrap_or(1));
    let (mut told, mut stories) = (0, 0_u64);
    while told < wanted {
        stories += 1;
        // SplitMix64 [Steele et al. 2014], restarted for each story, so that each can be repeated alone.
        let mut state = seed.wrapping_add(stories << 20);
        let bytes: Vec<u8> = (0..1_500)
            .map(|_| {
                state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
                let mixed = (state ^ state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
                let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
                (mixed ^ mixed >> 31) as u8
            })
            .collect();
        let heard = liars::story(&bytes);
        told += heard.unwrap_or_else(|violation| panic!("seed {seed}, story {stories}: {violation:?}"));
    }
    println!("{told} messages in {stories} stories of seed {seed}");
}
