//! Weak answers: a client is told that a quorum has received its command, and always how that ended.

use kattu_kv::sessions::SessionId;
use kattu_node::contract::*;
use kattu_raft::policy::Capacity;
use kattu_raft::{Duration, NodeId};
use kattu_replicas::weak::{bring_in_step, only_the_newest_append_arrives, weak_cluster, weak_put};
use kattu_replicas::{World, is_done};

#[test]
fn a_command_beyond_a_gap_is_answered_weakly_when_a_quorum_holds_it_and_finally_when_the_gap_closes() {
    let (mut world, leader, id) = weak_cluster(Capacity { entries: 10, bytes: 1 << 20 });
    bring_in_step(&mut world, leader, id);
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
fn numbers_that_came_too_early_before_the_keeper_was_asked_do_not_count_as_executed() {
    let (mut world, leader, id) = weak_cluster(Capacity { entries: 10, bytes: 1 << 20 });
    // All enter the log before the keeper is asked, which judges them there: 3 and 4 come before their turn, or behind one that did.
    let tickets = [1, 3, 2, 4].map(|number| world.ask(leader, weak_put(id, number)));
    world.network.clear();
    world.pass(Duration::from_secs(1)); // they are sent again, and committed at once
    let answers = tickets.map(|ticket| {
        matches!(world.outcome(leader, ticket), Some(Outcome::Done(Reply { body: ReplyBody::Kv(_), .. })))
    });
    assert_eq!(answers, [true, false, true, false]);
    let again = [3, 5].map(|number| world.ask(leader, weak_put(id, number)));
    let follower = world.follower();
    let mut kept = only_the_newest_append_arrives(&mut world, follower);
    assert_eq!(world.received(leader, again[1]), None, "4 was never executed");
    world.network.append(&mut kept.into());
    world.deliver();
    let fourth = [4, 5].map(|number| world.ask(leader, weak_put(id, number)));
    kept = only_the_newest_append_arrives(&mut world, follower);
    assert!(world.received(leader, fourth[1]).is_some(), "now it is in step");
    world.network.append(&mut kept.into());
    world.deliver();
}

#[test]
fn beyond_the_budget_a_command_has_its_final_answer_alone() {
    let (_, _, id) = weak_cluster(Capacity { entries: 1, bytes: 1 << 20 });
    let Request::Weak(command) = weak_put(id, 2) else { panic!("a weak put") };
    beyond_a_budget_of_one(Capacity { entries: 1, bytes: 1 << 20 });
    beyond_a_budget_of_one(Capacity { entries: 100, bytes: command.len() as u64 });
}

fn beyond_a_budget_of_one(budget: Capacity) {
    let (mut world, leader, id) = weak_cluster(budget);
    bring_in_step(&mut world, leader, id);
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
    let (mut world, leader, id) = weak_cluster(Capacity { entries: 10, bytes: 1 << 20 });
    bring_in_step(&mut world, leader, id);
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
    assert_eq!(fate, Some(&Outcome::Refused(Refusal::Overwritten)));
}

#[test]
fn without_weak_answers_one_that_is_asked_for_is_refused() {
    let mut world = World::new(3);
    let leader = world.elect();
    let asked = world.ask(leader, weak_put(SessionId::default(), 1));
    assert_eq!(world.outcome(leader, asked), Some(&Outcome::Refused(Refusal::NotWeak)));
}
