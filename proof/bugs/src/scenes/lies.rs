//! One member among liars.
//!
//! Knows nothing of: what the lies are about.

use kattu_raft::message::{AppendReply, Room};
use kattu_raft::{Duration, Effects, Envelope, GroupId, Incarnation, LogIndex, Message, NodeId, Round};
use kattu_wal::sim::Dice;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::protocol::world::{World, config};

#[path = "../../../../core/raft/tests/liars/mod.rs"]
mod liars;

/// Bytes of a story.
const BYTES: u64 = 1_500;

/// Others say whatever is well-formed: the member goes on, and does not contradict itself.
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

/// A learner answers from ever new directories: what is remembered of them is bounded.
pub(super) fn a_learner_of_many_lives(seed: u64) {
    let (leader, learner) = (NodeId(1), NodeId(4));
    let mut world = World::started((1..=3).map(|id| config(id, 3, 1)).collect(), seed);
    assert!(world.elect(leader), "scene: it is elected");
    let mut raft = world.raft(leader).clone();
    let reply = AppendReply {
        round: Round(0),
        promise: Duration::ZERO,
        clock: None,
        disk: Duration::ZERO,
        bulk: Round(0),
        upto: LogIndex(0),
        gap: None,
        room: Room::PLENTY,
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
