//! Weak answers: a client is told that a quorum has received its command, and always how that ended.

use kattu_kv::api::{Command, Put};
use kattu_kv::sessions::{Order, SessionId};
use kattu_node::command::encode_kv;
use kattu_node::contract::*;
use kattu_node::level;
use kattu_node::session::{SessionCommand, SessionHeader};
use kattu_raft::policy::{Capacity, Weak};
use kattu_raft::{Duration, LogIndex, Message, NbRaft, NodeId, Protocol};
use kattu_replicas::{World, is_done};

const SESSION_SECRET: u64 = 7;

fn weak_put(id: SessionId, number: u64) -> Request {
    let put = Put { key: b"k".to_vec(), value: number.to_string().into_bytes(), ..Put::default() };
    let header = SessionHeader { id, number, first_unacked: number.saturating_sub(1).max(1) };
    Request::Weak(header.around(&encode_kv(&Command::Put(put))).into())
}

/// Three members whose leader gives weak answers for entries in windows, within this budget.
fn cluster(budget: Capacity) -> (World, u64, SessionId) {
    let mut world = World::new(3);
    let leader = world.elect();
    for to in 1..=3 {
        for of in (1..=3).filter(|&of| of != to) {
            world.give(to, Event::Knows(NodeId(of), level::KNOWN));
        }
    }
    world.deliver();
    let window = Capacity { entries: 100, bytes: 1 << 20 };
    let protocol = Protocol::NbRaft(NbRaft { window, weak: Weak::Gap, budget });
    let change = world.ask(leader, Request::Change(MemberChange::Protocol(protocol)));
    world.deliver();
    assert!(is_done(world.outcome(leader, change)), "{:?}", world.outcome(leader, change));
    let register = SessionCommand::Register { secret: SESSION_SECRET, order: Order::Strict };
    let asked = world.ask(leader, Request::Write(register.encode().into()));
    world.deliver();
    let Some(Outcome::Done(Reply { body: ReplyBody::Registered { id, .. }, .. })) =
        world.outcome(leader, asked)
    else {
        panic!("no session")
    };
    let id = *id;
    (world, leader, id)
}

/// The last of the messages under way that bring this member entries arrives; all others are kept.
fn only_the_newest_append_arrives(world: &mut World, to: u64) -> Vec<PeerMessage> {
    let is_append = |message: &PeerMessage| {
        message.to() == NodeId(to)
            && matches!(message, PeerMessage::Raft(envelope)
                if matches!(&envelope.message, Message::Append(append) if !append.entries.is_empty()))
    };
    let mut kept: Vec<PeerMessage> = world.network.drain(..).collect();
    let newest = kept.iter().rposition(is_append).expect("an append is under way");
    let newest = kept.remove(newest);
    world.deliver_one(newest);
    world.deliver();
    kept
}

/// Brings a session in step: its first command has its final answer alone.
fn in_step(world: &mut World, leader: u64, id: SessionId) {
    let first = world.ask(leader, weak_put(id, 1));
    world.deliver();
    assert!(is_done(world.outcome(leader, first)), "{:?}", world.outcome(leader, first));
    assert_eq!(world.received(leader, first), None, "its session was not known to be in step");
}

#[test]
fn a_command_beyond_a_gap_is_answered_weakly_when_a_quorum_holds_it_and_finally_when_the_gap_closes() {
    let (mut world, leader, id) = cluster(Capacity { entries: 10, bytes: 1 << 20 });
    in_step(&mut world, leader, id);
    let tickets = [2, 3].map(|number| world.ask(leader, weak_put(id, number)));
    let follower = world.follower();
    let kept = only_the_newest_append_arrives(&mut world, follower);
    assert_eq!(world.received(leader, tickets[0]), None);
    assert!(world.received(leader, tickets[1]).is_some(), "it and one follower are a quorum of three");
    assert_eq!(tickets.map(|ticket| world.outcome(leader, ticket).cloned()), [None, None]);
    world.network.extend(kept);
    world.deliver();
    assert!(tickets.iter().all(|&ticket| is_done(world.outcome(leader, ticket))));
}

#[test]
fn beyond_the_budget_a_command_has_its_final_answer_alone() {
    let (mut world, leader, id) = cluster(Capacity { entries: 1, bytes: 1 << 20 });
    in_step(&mut world, leader, id);
    let tickets = [2, 3, 4].map(|number| world.ask(leader, weak_put(id, number)));
    let follower = world.follower();
    let mut kept = only_the_newest_append_arrives(&mut world, follower);
    world.network.extend(std::mem::take(&mut kept));
    let kept = only_the_newest_append_arrives(&mut world, follower);
    assert!(world.received(leader, tickets[2]).is_some());
    assert_eq!(world.received(leader, tickets[1]), None, "the budget is one command");
    world.network.extend(kept);
    world.deliver();
    assert!(tickets.iter().all(|&ticket| is_done(world.outcome(leader, ticket))));
    let again = [5, 6].map(|number| world.ask(leader, weak_put(id, number)));
    let kept = only_the_newest_append_arrives(&mut world, follower);
    assert!(world.received(leader, again[1]).is_some(), "the budget has room again");
    world.network.extend(kept);
    world.deliver();
}

#[test]
fn what_is_overwritten_after_a_weak_answer_is_told_to_be_lost() {
    let (mut world, leader, id) = cluster(Capacity { entries: 10, bytes: 1 << 20 });
    in_step(&mut world, leader, id);
    let tickets = [2, 3].map(|number| world.ask(leader, weak_put(id, number)));
    let follower = world.follower();
    only_the_newest_append_arrives(&mut world, follower); // the others are lost, and no more arrives
    assert!(world.received(leader, tickets[1]).is_some());
    world.loses = Box::new(move |m| m.from() == NodeId(leader) || m.to() == NodeId(leader));
    world.network.clear();
    world.pass(Duration::from_secs(4));
    let other = (1..=3).find(|&one| one != leader).expect("there are three");
    world.loses = Box::new(|_| false);
    let kept = world.ask(other, weak_put(id, 2));
    world.pass(Duration::from_millis(2500));
    assert!(is_done(world.outcome(other, kept)), "{:?}", world.outcome(other, kept));
    let fate = world.outcome(leader, tickets[1]);
    assert_eq!(fate, Some(&Outcome::Refused(Refusal::Overwritten)), "{:?}", LogIndex(0));
}

#[test]
fn without_weak_answers_one_that_is_asked_for_is_refused() {
    let mut world = World::new(3);
    let leader = world.elect();
    let asked = world.ask(leader, weak_put(SessionId::default(), 1));
    assert_eq!(world.outcome(leader, asked), Some(&Outcome::Refused(Refusal::NotWeak)));
}
