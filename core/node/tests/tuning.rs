//! Tuning: each switch changes what it is named after, while the replica runs, and nothing that a client can see.

use kattu_node::contract::*;
use kattu_node::{Tuning, level};
use kattu_raft::{Duration, Envelope, Message, NodeId, ReadPath};
use kattu_replicas::{ET, World, get, is_done, put, value_of};

/// A cluster of three in which puts may share entries, and its leader.
fn cluster() -> (World, u64) {
    let mut world = World::new(3);
    let leader = world.elect();
    for to in 1..=3 {
        for of in (1..=3).filter(|&of| of != to) {
            world.give(to, Event::Knows(NodeId(of), level::KNOWN));
        }
    }
    world.pass(ET * (3 * u32::from(level::KNOWN)));
    assert_eq!(world.member(leader).keeper.health().level, level::KNOWN);
    (world, leader)
}

fn tune(world: &mut World, id: u64, change: impl FnOnce(&mut Tuning)) {
    let mut tuning = world.member(id).node.tuning();
    change(&mut tuning);
    assert_eq!(world.member(id).node.check_tuning(&tuning), Ok(()));
    world.give(id, Event::Tune(Box::new(tuning)));
    assert_eq!(world.member(id).node.tuning(), tuning);
}

fn last(world: &World, id: u64) -> u64 {
    world.member(id).node.raft().last_id().index.0
}

fn puts() -> Vec<Request> {
    ["1", "2", "3"].map(|value| put("a", value)).to_vec()
}

#[test]
fn without_batching_nothing_is_shared_and_with_it_everything_is_again() {
    let (mut world, leader) = cluster();
    let follower = world.follower();
    for batching in [false, true] {
        for id in 1..=3 {
            tune(&mut world, id, |tuning| tuning.raft.batching = batching);
        }
        let shared = if batching { 1 } else { 3 };
        let before = last(&world, leader);
        let tickets = world.ask_together(leader, puts());
        assert_eq!(last(&world, leader), before + shared, "entries");
        let appends = |message: &PeerMessage| match message {
            PeerMessage::Raft(Envelope { message: Message::Append(append), .. }) => append.entries.len(),
            _ => 0,
        };
        let longest = world.network.iter().map(appends).max();
        assert_eq!(longest, Some(1), "entries in an append");
        world.deliver();
        assert!(tickets.iter().all(|&ticket| is_done(world.outcome(leader, ticket))));

        let tickets = world.ask_together(follower, puts());
        let forwards = world.network.iter().filter(|message| matches!(message, PeerMessage::Forward(_)));
        assert_eq!(forwards.count() as u64, shared, "messages to the leader");
        world.deliver();
        assert!(tickets.iter().all(|&ticket| is_done(world.outcome(follower, ticket))));
        assert_eq!(last(&world, leader), before + 2 * shared);
    }
}

#[test]
fn a_write_lingers_until_its_batch_is_full_or_its_time_is_over() {
    let (mut world, leader) = cluster();
    let ms = Duration::from_millis;
    tune(&mut world, leader, |tuning| {
        tuning.batch_linger = ms(20);
        tuning.raft.batch_entries_max = 3;
    });
    let before = last(&world, leader);
    let first = world.ask(leader, put("a", "1"));
    world.pass(ms(19));
    assert_eq!(last(&world, leader), before, "it waits for others");
    world.pass(ms(1));
    assert_eq!(last(&world, leader), before + 1, "none came");
    assert!(is_done(world.outcome(leader, first)));

    let tickets = world.ask_together(leader, puts());
    assert_eq!(last(&world, leader), before + 2, "a full batch waits for nothing");
    world.deliver();
    assert!(tickets.iter().all(|&ticket| is_done(world.outcome(leader, ticket))));

    // One that a follower has sent lingers, too, and one that waits is not kept longer by one that comes.
    let follower = world.follower();
    let theirs = world.ask(follower, put("a", "2"));
    world.deliver();
    assert_eq!(last(&world, leader), before + 2);
    world.pass(ms(10));
    let ours = world.ask(leader, put("a", "3"));
    world.pass(ms(10));
    assert_eq!(last(&world, leader), before + 4, "one of a follower shares no entry");
    assert!(is_done(world.outcome(leader, ours)) && is_done(world.outcome(follower, theirs)));

    // Without batching nothing waits for company.
    tune(&mut world, leader, |tuning| tuning.raft.batching = false);
    world.ask(leader, put("a", "4"));
    assert_eq!(last(&world, leader), before + 5);
}

#[test]
fn behind_the_apply_gate_one_write_is_under_way_at_a_time() {
    let (mut world, leader) = cluster();
    let follower = world.follower();
    tune(&mut world, leader, |tuning| tuning.apply_gate = true);
    let before = last(&world, leader);
    let tickets = world.ask_together(leader, puts());
    let theirs = world.ask(follower, put("a", "theirs"));
    assert_eq!(last(&world, leader), before + 1, "the others wait until it is applied");
    for _ in 0..100 {
        let Some(message) = world.network.pop_front() else { break };
        world.deliver_one(message);
        let raft = world.member(leader).node.raft();
        assert!(raft.last_id().index.0 <= raft.applied_index().0 + 1, "{:?}", raft.last_id());
    }
    world.deliver();
    assert!(tickets.iter().all(|&ticket| is_done(world.outcome(leader, ticket))));
    assert!(is_done(world.outcome(follower, theirs)));
    assert_eq!(last(&world, leader), before + 4);

    // The gate opens under writes that wait at it.
    let tickets = world.ask_together(leader, puts());
    tune(&mut world, leader, |tuning| tuning.apply_gate = false);
    assert_eq!(last(&world, leader), before + 6, "the others share an entry");
    world.deliver();
    assert!(tickets.iter().all(|&ticket| is_done(world.outcome(leader, ticket))));
}

#[test]
fn reads_go_through_the_log_together_or_without_batching_one_by_one() {
    let (mut world, leader) = cluster();
    let write = world.ask(leader, put("a", "1"));
    world.deliver();
    assert!(is_done(world.outcome(leader, write)));
    let gets = || vec![get("a", Consistency::Linearizable); 3];
    for (reads, batching, entries) in
        [(ReadPath::Index, true, 0), (ReadPath::Log, true, 1), (ReadPath::Log, false, 3)]
    {
        tune(&mut world, leader, |tuning| (tuning.raft.reads, tuning.raft.batching) = (reads, batching));
        let before = last(&world, leader);
        let tickets = world.ask_together(leader, gets());
        world.deliver();
        for ticket in tickets {
            assert_eq!(value_of(world.outcome(leader, ticket)).as_deref(), Some("1"));
        }
        assert_eq!(last(&world, leader), before + entries, "{reads:?}, batching: {batching}");
    }
}

#[test]
fn a_tuning_that_breaks_a_rule_changes_nothing() {
    let (mut world, leader) = cluster();
    let before = world.member(leader).node.tuning();
    let mut tuning = before;
    tuning.apply_gate = true;
    tuning.raft.inflight_msgs_max = 0;
    let rule = world.member(leader).node.check_tuning(&tuning).expect_err("none in flight");
    assert!(rule.contains("one append in flight"), "{rule}");
    world.give(leader, Event::Tune(Box::new(tuning)));
    assert_eq!(world.member(leader).node.tuning(), before);
}
