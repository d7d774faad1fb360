//! Weak answers: who gets one, how many, and how each ends.
//!
//! Three members, a leader that gives weak answers for entries in windows, a session that is in step.
//! Knows nothing of: how a quorum is counted.

use kattu_kv::sessions::SessionId;
use kattu_node::contract::{Outcome, PeerMessage, Refusal, Reply, ReplyBody, Request, Ticket};
use kattu_raft::policy::Capacity;
use kattu_raft::{Duration, NodeId};
use kattu_replicas::weak::{bring_in_step, only_the_newest_append_arrives, weak_cluster, weak_put};
use kattu_replicas::{ET, World, is_done, put};

const PLENTY: Capacity = Capacity { entries: 100, bytes: 1 << 20 };

/// A cluster whose session has had its first command.
fn in_step(seed: u64, budget: Capacity) -> (World, u64, SessionId) {
    let (mut world, leader, id) = weak_cluster(budget);
    world.pass(Duration::from_millis(seed * 37 % 200));
    bring_in_step(&mut world, leader, id);
    (world, leader, id)
}

fn ask(world: &mut World, leader: u64, id: SessionId, numbers: impl IntoIterator<Item = u64>) -> Vec<Ticket> {
    numbers.into_iter().map(|number| world.ask(leader, weak_put(id, number))).collect()
}

/// All appends to a follower arrive but the first: what it names is beyond a gap.
fn beyond_a_gap(world: &mut World, follower: u64) -> Vec<PeerMessage> {
    let is_one = |message: &PeerMessage| super::is_append_to(message, follower);
    let mut all: Vec<PeerMessage> = world.network.drain(..).collect();
    let first = all.iter().position(is_one).expect("an append is under way");
    let first = all.remove(first);
    let (here, others): (Vec<_>, Vec<_>) = all.into_iter().partition(is_one);
    here.into_iter().for_each(|message| world.deliver_one(message));
    world.deliver();
    [vec![first], others].concat()
}

fn was_executed(outcome: Option<&Outcome>) -> bool {
    matches!(outcome, Some(Outcome::Done(Reply { body: ReplyBody::Kv(_), .. })))
}

/// A session has more commands under way than the budget allows.
pub(super) fn more_than_the_budget(seed: u64) {
    let allowed = 1 + seed % 3;
    more_than(seed, Capacity { entries: allowed as u32, ..PLENTY }, allowed);
}

/// A session has more bytes under way than the budget allows.
pub(super) fn more_bytes_than_the_budget(seed: u64) {
    let (_, _, id) = in_step(seed, PLENTY);
    let Request::Weak(command) = weak_put(id, 2) else { panic!("scene: a weak put") };
    let allowed = 1 + seed % 3;
    more_than(seed, Capacity { bytes: allowed * command.len() as u64, ..PLENTY }, allowed);
}

fn more_than(seed: u64, budget: Capacity, allowed: u64) {
    let (mut world, leader, id) = in_step(seed, budget);
    let tickets = ask(&mut world, leader, id, 2..8);
    let follower = world.follower();
    let kept = beyond_a_gap(&mut world, follower);
    let given = tickets.iter().filter(|&&ticket| world.received(leader, ticket).is_some()).count() as u64;
    assert!(
        given <= allowed,
        "weak_answers_are_within_the_budget: {given} commands were answered weakly, the budget is {allowed}"
    );
    world.network.extend(kept);
    world.deliver();
    assert!(tickets.iter().all(|&ticket| is_done(world.outcome(leader, ticket))), "scene: all are done");
}

/// Commands of a session come in another order than that of their numbers, all before the leader knows how far the session is.
pub(super) fn numbers_out_of_order(seed: u64) {
    let (mut world, leader, id) = weak_cluster(PLENTY);
    world.pass(Duration::from_millis(seed * 37 % 200));
    ask(&mut world, leader, id, [1, 3, 2, 4]);
    world.network.clear();
    world.pass(Duration::from_secs(1)); // they are sent again, and committed at once
    what_is_received_is_executed(&mut world, leader, id, [3, 5]);
}

/// A leader is in step with a session, loses the leadership to another, under which the session goes on, and leads again.
pub(super) fn a_leader_that_comes_back(seed: u64) {
    let (mut world, leader, id) = in_step(seed, PLENTY);
    let former = ask(&mut world, leader, id, [2, 3]);
    world.deliver();
    assert!(former.iter().all(|&ticket| is_done(world.outcome(leader, ticket))), "scene: it is in step");
    // What it has in its log by now is lost with its leadership.
    world.loses = Box::new(move |m| m.from() == NodeId(leader) || m.to() == NodeId(leader));
    ask(&mut world, leader, id, [4, 5, 6]);
    world.pass(ET * 4);
    let other = (1..=3).find(|&one| one != leader && world.member(one).node.raft().is_leader());
    let other = other.expect("scene: another one leads");
    world.loses = Box::new(|_| false);
    world.pass(ET);
    let moves = world.ask(other, Request::MoveLeader(NodeId(leader)));
    world.pass(ET * 2);
    assert!(
        world.member(leader).node.raft().is_leader(),
        "scene: it leads again: {:?}",
        world.outcome(other, moves)
    );
    what_is_received_is_executed(&mut world, leader, id, [7, 8]);
}

/// Of two commands, the one beyond the gap is told to be received only if it is executed then.
fn what_is_received_is_executed(world: &mut World, leader: u64, id: SessionId, numbers: [u64; 2]) {
    let tickets = ask(world, leader, id, numbers);
    let follower = world.follower();
    let kept = only_the_newest_append_arrives(world, follower);
    let received = world.received(leader, tickets[1]);
    world.network.extend(kept);
    world.pass(ET);
    let outcome = world.outcome(leader, tickets[1]);
    assert!(
        received.is_none() || was_executed(outcome),
        "what_is_received_is_executed: {received:?} was told to be received, and ends with {outcome:?}"
    );
}

/// A leader that has answered weakly is cut off, and the others elect another without what was received: the client is told.
pub(super) fn a_loss(seed: u64) {
    let (mut world, leader, id) = in_step(seed, PLENTY);
    let tickets = ask(&mut world, leader, id, [2, 3]);
    let follower = world.follower();
    only_the_newest_append_arrives(&mut world, follower);
    assert!(world.received(leader, tickets[1]).is_some(), "scene: a quorum has it");
    world.loses = Box::new(move |m| m.from() == NodeId(leader) || m.to() == NodeId(leader));
    world.network.clear();
    world.pass(ET * 4);
    world.loses = Box::new(|_| false);
    let other = (1..=3).find(|&one| one != leader && world.member(one).node.raft().is_leader());
    let other = other.expect("scene: another one leads");
    for _ in 0..2 {
        world.ask(other, put("a", "in the place of what is lost"));
        world.pass(ET * 2);
    }
    let outcome = world.outcome(leader, tickets[1]);
    assert!(
        matches!(outcome, Some(Outcome::Refused(Refusal::Overwritten) | Outcome::Unknown(_))),
        "every_weak_answer_has_an_end: what was received and lost ends with {outcome:?}"
    );
}
