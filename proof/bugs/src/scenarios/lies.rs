//! One member among liars.
//!
//! Knows nothing of: what the lies are about.

use kattu_disk::Dice;
use kattu_raft::extensions::IGNORABLE;
use kattu_raft::message::{Append, AppendReply, PreVoteReply, Room, VoteReply};
use kattu_raft::{
    Duration, Effects, Entry, EntryHead, EntryId, EntryKind, Envelope, Extensions, Falsehood, GroupId,
    Incarnation, LogIndex, Membership, MembershipError, Message, NodeId, Round, Stamp,
};
use std::panic::{AssertUnwindSafe, catch_unwind};

use kattu_peers::{World, config, liars};

/// Bytes of a story.
const BYTES: u64 = 1_500;

/// The others send any well-formed message: the member goes on, and does not contradict itself.
pub(super) fn whatever_others_say(seed: u64) {
    let mut dice = Dice::new(seed);
    for _ in 0..20 {
        let bytes: Vec<u8> = (0..BYTES).map(|_| dice.below(256) as u8).collect();
        match catch_unwind(AssertUnwindSafe(|| liars::story(&bytes))) {
            Ok(Ok(_)) => {}
            Ok(Err(violation)) => panic!("lies_end_nobody: {violation:?}"),
            Err(panic) => {
                let said = panic.downcast_ref::<String>().map(String::as_str);
                let said = said.or(panic.downcast_ref::<&str>().copied()).unwrap_or("it ended");
                panic!("lies_end_nobody: {said}");
            }
        }
    }
}

/// Two of three vote for a candidate whose own vote is not on disk yet, so that it has sent no requests.
pub(super) fn votes_of_nobody_asked(seed: u64) {
    let (me, others) = (NodeId(1), [NodeId(2), NodeId(3)]);
    let world = World::started((1..=3).map(|id| config(id, 3, 1)).collect(), seed);
    let (mut raft, mut effects) = (world.raft(me).clone(), Effects::default());
    let now = world.now + Duration::from_secs(60);
    raft.tick(now, &mut effects);
    let campaign_term = raft.term().next();
    let says = |from: NodeId, term, message| {
        let (group, incarnation) = (GroupId(0), Incarnation(from.0));
        Envelope { group, from, incarnation, to: me, term, message }
    };
    for from in others {
        let granted = PreVoteReply { campaign_term, granted: true, round: Round(0) };
        raft.step(now, says(from, raft.term(), Message::PreVoteReply(granted)), &mut effects);
    }
    assert_eq!(raft.term(), campaign_term, "scene: it campaigns");
    let heard = catch_unwind(AssertUnwindSafe(|| {
        for from in others {
            let granted = Message::VoteReply(VoteReply { granted: true, last: EntryId::default() });
            raft.step(now, says(from, campaign_term, granted), &mut effects);
        }
        !raft.is_leader() && !effects.distrust.is_empty()
    }));
    assert!(
        heard.unwrap_or(false),
        "lies_end_nobody: it leads, or has ended, by votes that it has not asked for"
    );
}

/// A leader of a newer version sends a configuration with a critical extension that this version does not know.
pub(super) fn a_configuration_of_a_newer_version(seed: u64) {
    let (leader, follower) = (NodeId(1), NodeId(2));
    let mut world = World::started((1..=3).map(|id| config(id, 3, 0)).collect(), seed);
    assert!(world.elect(leader), "scene: it is elected");
    world.settle();
    let number = 3 + (seed % u64::from(IGNORABLE - 3)) as u16;
    let mut payload = Vec::new();
    let extensions = Extensions { unknown: vec![(number, b"of tomorrow".to_vec())], ..Extensions::default() };
    Membership { extensions, ..world.raft(leader).membership().clone() }.encode(&mut payload);
    let mut raft = world.raft(follower).clone();
    let (prev, mut effects) = (raft.last_id(), Effects::default());
    let id = EntryId { term: raft.term(), index: prev.index.next() };
    let head = EntryHead { id, kind: EntryKind::Config, stamp: Stamp(0) };
    let entries = vec![Entry::new(head, payload.into(), 0)];
    let append = Append { prev, entries, commit: LogIndex(0), round: Round(1 << 20), tail: false };
    let (group, incarnation, term) = (GroupId(0), Incarnation(100), raft.term());
    let message = Message::Append(append);
    let envelope = Envelope { group, from: leader, incarnation, to: follower, term, message };
    raft.step(world.now, envelope, &mut effects);
    let refused = [(leader, Falsehood::Newer(MembershipError::Extension(number)))];
    assert!(
        raft.last_id() == prev && effects.distrust == refused,
        "newer_configurations_are_refused: extension {number} is taken, or refused as {:?}",
        effects.distrust
    );
}

/// A learner answers from ever new directories: what the leader remembers of them is bounded.
pub(super) fn a_learner_of_many_lives(seed: u64) {
    let (leader, learner) = (NodeId(1), NodeId(4));
    let mut world = World::started((1..=3).map(|id| config(id, 3, 1)).collect(), seed);
    assert!(world.elect(leader), "scene: it is elected");
    let mut raft = world.raft(leader).clone();
    let reply = AppendReply {
        round: Round(0),
        vote_hold: Duration::ZERO,
        clock: None,
        disk: Duration::ZERO,
        bulk: Round(0),
        upto: LogIndex(0),
        gap: None,
        room: Room::PLENTY,
        received: LogIndex(0),
        early: vec![],
    };
    for life in 1..5_000 {
        let (group, incarnation, term) = (GroupId(0), Incarnation(life), raft.term());
        let message = Message::AppendReply(reply.clone());
        let envelope = Envelope { group, from: learner, incarnation, to: leader, term, message };
        raft.step(world.now, envelope, &mut Effects::default());
    }
    let remembered = format!("{raft:?}").len();
    assert!(remembered < 20_000, "lies_cost_bounded_memory: a leader of {remembered} characters");
}
