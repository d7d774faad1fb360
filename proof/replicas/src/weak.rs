//! Weak: a cluster that gives weak answers, and a session whose entries come to a follower out of order.
//!
//! Knows nothing of: what must be true there.

use crate::{World, is_done};
use kattu_kv::api::{Command, Put};
use kattu_kv::sessions::{Order, SessionId};
use kattu_node::command::encode_kv;
use kattu_node::contract::{Event, MemberChange, Outcome, PeerMessage, Reply, ReplyBody, Request};
use kattu_node::level;
use kattu_node::session::{SessionCommand, SessionHeader};
use kattu_raft::policy::{Capacity, Weak};
use kattu_raft::{Message, NbRaft, NodeId, Protocol};

const SESSION_SECRET: u64 = 7;

/// A put: the command of this number in a session.
fn put(id: SessionId, number: u64) -> Vec<u8> {
    let put = Put { key: b"k".to_vec(), value: number.to_string().into_bytes(), ..Put::default() };
    let header = SessionHeader { id, number, first_unacked: number.saturating_sub(1).max(1) };
    header.around(&encode_kv(&Command::Put(put)))
}

/// A put that asks for a weak answer: the command of this number in a session.
pub fn weak_put(id: SessionId, number: u64) -> Request {
    Request::Weak(put(id, number).into())
}

/// The same, answered when it is done only.
pub fn strong_put(id: SessionId, number: u64) -> Request {
    Request::Write(put(id, number).into())
}

/// Three members that all know the newest features, and their leader.
pub fn leveled() -> (World, u64) {
    let mut world = World::new(3);
    let leader = world.elect();
    for to in 1..=3 {
        for of in (1..=3).filter(|&of| of != to) {
            world.give(to, Event::Knows(NodeId(of), level::KNOWN));
        }
    }
    world.deliver();
    (world, leader)
}

/// Changes the protocol to a window of 100 entries, with weak answers for entries in windows within this budget.
///
/// # Panics
/// If it is refused.
pub fn answer_weakly(world: &mut World, leader: u64, budget: Capacity) {
    let window = Capacity { entries: 100, bytes: 1 << 20 };
    let protocol = Protocol::NbRaft(NbRaft { window, weak: Weak::Gap, budget });
    let change = world.ask(leader, Request::Change(MemberChange::Protocol(protocol)));
    world.deliver();
    assert!(is_done(world.outcome(leader, change)), "{:?}", world.outcome(leader, change));
}

/// Opens a strict session.
///
/// # Panics
/// If it is refused.
pub fn open_session(world: &mut World, leader: u64) -> SessionId {
    let register = SessionCommand::Register { secret: SESSION_SECRET, order: Order::Strict };
    let asked = world.ask(leader, Request::Write(register.encode().into()));
    world.deliver();
    let Some(Outcome::Done(Reply { body: ReplyBody::Registered { id, .. }, .. })) =
        world.outcome(leader, asked)
    else {
        panic!("no session")
    };
    *id
}

/// Three members whose leader gives weak answers for entries in windows, within this budget; a strict session.
///
/// # Panics
/// If they do not come to be so.
pub fn weak_cluster(budget: Capacity) -> (World, u64, SessionId) {
    let (mut world, leader) = leveled();
    answer_weakly(&mut world, leader, budget);
    let id = open_session(&mut world, leader);
    (world, leader, id)
}

/// The last of the messages under way that bring this member entries arrives; all others are returned.
///
/// # Panics
/// If no entries are under way to it.
pub fn only_the_newest_append_arrives(world: &mut World, to: u64) -> Vec<PeerMessage> {
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
///
/// # Panics
/// If it has another.
pub fn bring_in_step(world: &mut World, leader: u64, id: SessionId) {
    let first = world.ask(leader, weak_put(id, 1));
    world.deliver();
    assert!(is_done(world.outcome(leader, first)), "{:?}", world.outcome(leader, first));
    assert_eq!(world.received(leader, first), None, "its session was not known to be in step");
}
