//! Situations of whole replicas: the paths of writes and reads, and the answers to clients.

use kattu_kv::api as kv;
use kattu_node::command::{encode_kv, request};
use kattu_node::contract::*;
use kattu_raft::{Duration, LinkEnd, LogIndex, Message, NodeId};
use kattu_replicas::*;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

#[test]
fn a_write_at_the_leader_is_done_and_seen_everywhere() {
    let mut world = World::new(3);
    let leader = world.elect();
    let ticket = world.ask(leader, put("a", "1"));
    assert_eq!(world.outcome(leader, ticket), None, "not before a quorum has it");
    world.deliver();
    assert!(is_done(world.outcome(leader, ticket)));
    for id in 1..=3 {
        let read = world.ask(id, get("a", Consistency::Linearizable));
        world.deliver();
        assert_eq!(value_of(world.outcome(id, read)), Some("1".into()), "member {id}");
    }
}

#[test]
fn a_write_at_a_follower_is_answered_there_without_waiting_for_a_heartbeat() {
    let mut world = World::new(3);
    world.elect();
    let follower = world.follower();
    let ticket = world.ask(follower, put("a", "1"));
    world.deliver();
    assert!(is_done(world.outcome(follower, ticket)), "{:?}", world.outcome(follower, ticket));
}

/// A put whose result is not wanted.
fn commit_only(key: &str, value: &str) -> Request {
    let Request::Write(command) = put(key, value) else { panic!("a put is a write") };
    Request::CommitOnly(command)
}

#[test]
fn a_write_whose_result_is_not_wanted_is_answered_when_a_quorum_has_it_and_its_keeper_tells_nothing() {
    let mut world = World::new(3);
    let leader = world.elect();
    let asked = [leader, world.follower()].map(|at| {
        let ticket = world.ask(at, commit_only("a", &at.to_string()));
        assert_eq!(world.outcome(at, ticket), None, "not before a quorum has it");
        world.deliver();
        (at, ticket)
    });
    for (at, ticket) in asked {
        let told = world.outcome(at, ticket);
        assert!(
            matches!(told, Some(Outcome::Done(Reply { body: ReplyBody::Committed, strong: 0, .. }))),
            "{told:?}"
        );
        let read = world.ask(at, get("a", Consistency::Linearizable));
        world.deliver();
        assert_eq!(value_of(world.outcome(at, read)), Some(asked[1].0.to_string()));
    }
    // One that is not committed has the fate of any write.
    world.loses = Box::new(move |m| m.from() == NodeId(leader) || m.to() == NodeId(leader));
    let lost = world.ask(leader, commit_only("a", "lost"));
    world.pass(Duration::from_secs(4));
    assert_eq!(world.outcome(leader, lost), None, "it may still commit");
    world.loses = Box::new(|_| false);
    let other = (1..=3).find(|&id| id != leader).expect("there are three");
    let kept = world.ask(other, put("a", "kept"));
    world.pass(Duration::from_millis(2500));
    assert!(is_done(world.outcome(other, kept)));
    assert!(
        matches!(world.outcome(leader, lost), Some(Outcome::Unknown(Doubt::LeaderChanged))),
        "overwritten"
    );
}

#[test]
fn a_duplicated_forward_is_executed_once() {
    let mut world = World::new(3);
    let leader = world.elect();
    let follower = world.follower();
    let first = world.ask(follower, put("a", "old"));
    let copies: Vec<PeerMessage> =
        world.network.iter().filter(|m| matches!(m, PeerMessage::Forward(_))).cloned().collect();
    assert_eq!(copies.len(), 1);
    world.deliver();
    assert!(is_done(world.outcome(follower, first)));
    let second = world.ask(leader, put("a", "new"));
    world.deliver();
    assert!(is_done(world.outcome(leader, second)));

    for copy in copies {
        world.deliver_one(copy);
    }
    world.deliver();
    let read = world.ask(leader, get("a", Consistency::Linearizable));
    world.deliver();
    assert_eq!(value_of(world.outcome(leader, read)), Some("new".into()), "the late copy took effect");
}

#[test]
fn a_forward_meant_for_another_term_is_never_proposed_nor_answered() {
    let mut world = World::new(3);
    let leader = world.elect();
    let follower = world.follower();
    world.ask(follower, put("a", "1"));
    let Some(PeerMessage::Forward(mut forward)) =
        world.network.iter().find(|m| matches!(m, PeerMessage::Forward(_))).cloned()
    else {
        panic!("nothing was forwarded")
    };
    world.network.clear();
    forward.term = kattu_raft::Term(forward.term.0 + 1);
    let last = world.member(leader).node.raft().last_id();
    world.deliver_one(PeerMessage::Forward(forward));
    assert_eq!(world.member(leader).node.raft().last_id(), last);
    assert!(world.network.iter().all(|m| !matches!(m, PeerMessage::ForwardReply(_))));
}

#[test]
fn a_forwarded_write_is_in_doubt_when_the_leader_dies() {
    let mut world = World::new(3);
    let leader = world.elect();
    let follower = world.follower();
    world.loses = Box::new(|m| matches!(m, PeerMessage::Forward(_)));
    let ticket = world.ask(follower, put("a", "1"));
    world.kill(leader);
    world.elect();
    assert!(matches!(world.outcome(follower, ticket), Some(Outcome::Unknown(Doubt::LeaderChanged))));
}

#[test]
fn a_forward_whose_leader_hangs_up_is_in_doubt_at_once() {
    let mut world = World::new(3);
    let leader = world.elect();
    let follower = world.follower();
    world.loses = Box::new(|m| matches!(m, PeerMessage::Forward(_)));
    let ticket = world.ask(follower, put("a", "1"));
    world.give(follower, Event::LinkClosed(NodeId(leader), LinkEnd::Otherwise));
    assert!(matches!(world.outcome(follower, ticket), Some(Outcome::Unknown(Doubt::LeaderChanged))));
}

#[test]
fn a_write_without_a_leader_waits_and_is_done_when_there_is_one() {
    let mut world = World::new(3);
    let leader = world.elect();
    let follower = world.follower();
    world.kill(leader);
    world.pass(Duration::from_millis(900));
    let before = world.member(follower).node.raft().leader();
    let ticket = world.ask(follower, put("a", "1"));
    if before.is_none() {
        assert_eq!(world.outcome(follower, ticket), None);
    }
    world.elect();
    world.pass(Duration::from_millis(100));
    match world.outcome(follower, ticket) {
        Some(Outcome::Done(_)) => {}
        Some(Outcome::Unknown(_)) => assert!(before.is_some(), "it was never sent to anybody"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_write_that_never_finds_a_leader_is_refused_in_time() {
    let mut world = World::new(3);
    world.kill(2);
    world.kill(3);
    let ticket = world.ask(1, put("a", "1"));
    world.pass(Duration::from_secs(8));
    assert!(matches!(world.outcome(1, ticket), Some(Outcome::Refused(Refusal::NoLeader))));
}

#[test]
fn a_write_in_the_log_of_a_cut_off_leader_stays_open_and_is_answered_by_its_fate() {
    let mut world = World::new(3);
    let old = world.elect();
    world.loses = Box::new(move |m| m.from() == NodeId(old) || m.to() == NodeId(old));
    let lost = world.ask(old, put("a", "lost"));
    world.pass(Duration::from_secs(4));
    assert_eq!(world.outcome(old, lost), None, "it may still commit");
    let others: Vec<u64> = (1..=3).filter(|&id| id != old).collect();
    let kept = world.ask(others[0], put("a", "kept"));
    world.pass(Duration::from_millis(100));
    assert!(is_done(world.outcome(others[0], kept)));
    world.loses = Box::new(|_| false);
    world.pass(Duration::from_millis(2500));
    assert!(matches!(world.outcome(old, lost), Some(Outcome::Unknown(Doubt::LeaderChanged))), "overwritten");
    let read = world.ask(old, get("a", Consistency::Linearizable));
    world.pass(Duration::from_millis(100));
    assert_eq!(value_of(world.outcome(old, read)), Some("kept".into()));
}

#[test]
fn reads_of_one_batch_are_one_question() {
    let mut world = World::new(3);
    world.elect();
    let follower = world.follower();
    let reads = vec![get("a", Consistency::Linearizable); 20];
    let tickets = world.ask_together(follower, reads);
    let is_question =
        |m: &PeerMessage| matches!(m, PeerMessage::Raft(e) if matches!(e.message, Message::ReadIndex(_)));
    assert_eq!(world.network.iter().filter(|m| is_question(m)).count(), 1);
    world.deliver();
    assert!(tickets.iter().all(|&t| is_done(world.outcome(follower, t))));
}

#[test]
fn reads_that_came_together_are_answered_together_as_fresh_as_each_alone() {
    let mut world = World::new(3);
    let leader = world.elect();
    let follower = world.follower();
    world.ask(leader, put("a", "1"));
    let written = world.ask(leader, put("b", "2"));
    world.deliver();
    assert!(is_done(world.outcome(leader, written)));
    let index = world.member(leader).node.raft().committed();
    for (member, consistency) in [
        (leader, Consistency::Linearizable),
        (leader, Consistency::Serializable),
        (follower, Consistency::Linearizable),
        (follower, Consistency::AtLeast(index)),
        (follower, Consistency::Bounded(Duration::ZERO)),
    ] {
        let read = world.ask(member, look_up(&["b", "a", "none", "a"], consistency));
        world.deliver();
        let values = values_of(world.outcome(member, read));
        let [one, two] = ["1", "2"].map(|value| Some(value.to_string()));
        assert_eq!(values, [two, one.clone(), None, one], "{consistency:?} at {member}");
    }
}

#[test]
fn each_of_the_reads_that_came_together_counts_among_those_that_wait() {
    let mut world = World::new(3);
    world.elect();
    let follower = world.follower();
    let keys: Vec<String> = (0..30).map(|n| format!("k{n}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    world.loses = Box::new(|_| true);
    let together = look_up(&keys, Consistency::Linearizable);
    let ahead = look_up(&keys, Consistency::AtLeast(LogIndex(1000)));
    let reads = [together.clone(), ahead, together].map(|request| world.ask(follower, request));
    assert_eq!(world.member(follower).node.pending(), 90);
    world.ask(follower, look_up(&keys, Consistency::Linearizable));
    assert_eq!(world.member(follower).node.pending(), 120, "those that were there before left room");
    let refused = world.ask(follower, get("a", Consistency::Linearizable));
    assert!(matches!(world.outcome(follower, refused), Some(Outcome::Refused(Refusal::TooManyRequests))));
    world.pass(Duration::from_secs(8));
    for read in reads {
        assert!(matches!(world.outcome(follower, read), Some(Outcome::Refused(_))));
    }
    assert_eq!(world.member(follower).node.pending(), 0);
}

#[test]
fn writes_of_one_batch_are_one_append_to_each_peer() {
    let mut world = World::new(3);
    let leader = world.elect();
    world.network.clear();
    let writes = (0..50).map(|i| put(&format!("k{i}"), "v")).collect();
    let tickets = world.ask_together(leader, writes);
    let is_append = |m: &PeerMessage| matches!(m, PeerMessage::Raft(e) if matches!(&e.message, Message::Append(a) if a.entries.len() == 50));
    assert_eq!(world.network.iter().filter(|m| is_append(m)).count(), 2);
    world.deliver();
    assert!(tickets.iter().all(|&t| is_done(world.outcome(leader, t))));
}

#[test]
fn a_lost_question_is_asked_again() {
    let mut world = World::new(3);
    world.elect();
    let follower = world.follower();
    world.loses =
        Box::new(|m| matches!(m, PeerMessage::Raft(e) if matches!(e.message, Message::ReadIndex(_))));
    let ticket = world.ask(follower, get("a", Consistency::Linearizable));
    world.deliver();
    assert_eq!(world.outcome(follower, ticket), None);
    world.loses = Box::new(|_| false);
    world.pass(ET);
    assert!(is_done(world.outcome(follower, ticket)));
}

#[test]
fn questions_that_a_leader_cannot_answer_do_not_pile_up() {
    // Heartbeats arrive and entries do not: there is a leader that commits nothing, not even its own first entry.
    let mut world = World::new(3);
    let asked = Rc::new(RefCell::new(BTreeMap::<u64, u32>::new()));
    let through = Rc::new(Cell::new(false));
    let (counted, goes_through) = (asked.clone(), through.clone());
    world.loses = Box::new(move |message| {
        let PeerMessage::Raft(envelope) = message else { return false };
        if matches!(envelope.message, Message::ReadIndex(_)) {
            *counted.borrow_mut().entry(envelope.from.0).or_default() += 1;
        }
        let is_bulk = matches!(&envelope.message, Message::Append(append) if !append.entries.is_empty());
        is_bulk && !goes_through.get()
    });
    world.elect();
    let follower = world.follower();
    let steps = 100;
    let reads: Vec<Ticket> = (0..steps)
        .map(|_| {
            let read = world.ask(follower, get("a", Consistency::Linearizable));
            world.pass(ET / 20);
            read
        })
        .collect();
    let heartbeats = steps / 2;
    let asked = asked.borrow()[&follower];
    assert!(asked <= 16 + heartbeats + 1, "{asked} questions in {heartbeats} heartbeats");
    assert!(reads.iter().all(|&read| world.outcome(follower, read).is_none()), "nobody could answer");
    through.set(true);
    world.pass(ET);
    assert!(reads.iter().all(|&read| is_done(world.outcome(follower, read))), "everybody is answered");
}

#[test]
fn unanswered_reads_are_refused_in_time() {
    let mut world = World::new(3);
    let leader = world.elect();
    let follower = world.follower();
    let is_answer = |m: &PeerMessage| matches!(m, PeerMessage::Raft(e) if matches!(e.message, Message::ReadIndexReply(_)));
    world.loses = Box::new(is_answer);
    let read = world.ask(follower, get("a", Consistency::Linearizable));
    world.pass(Duration::from_millis(6900));
    assert_eq!(world.outcome(follower, read), None);
    assert_eq!(world.leader(), Some(leader));
    world.pass(Duration::from_millis(200));
    assert!(matches!(world.outcome(follower, read), Some(Outcome::Refused(Refusal::ReadTimedOut))));
}

#[test]
fn a_leader_without_a_quorum_serves_no_linearizable_read() {
    let mut world = World::new(3);
    let leader = world.elect();
    world.loses = Box::new(move |m| m.from() == NodeId(leader) || m.to() == NodeId(leader));
    let ticket = world.ask(leader, get("a", Consistency::Linearizable));
    world.pass(Duration::from_secs(8));
    assert!(matches!(world.outcome(leader, ticket), Some(Outcome::Refused(_))));
}

#[test]
fn a_restarted_member_answers_no_serializable_read_from_a_half_replayed_store() {
    let mut world = World::new(3);
    let leader = world.elect();
    for i in 0..50 {
        world.ask(leader, put(&format!("k{i}"), "v"));
        world.deliver();
    }
    world.pass(Duration::from_secs(1));
    for id in 1..=3 {
        world.kill(id);
    }
    world.restart(1);
    let ticket = world.ask(1, get("k49", Consistency::Serializable));
    assert_eq!(world.outcome(1, ticket), None, "nobody has confirmed anything yet");
    world.pass(ET * 4);
    assert_eq!(
        value_of(world.outcome(1, ticket)),
        Some("v".into()),
        "from the commit mark, after three timeouts"
    );
    let status = world.ask(1, Request::Status);
    let Some(Outcome::Done(Reply { body: ReplyBody::Status(status), .. })) = world.outcome(1, status) else {
        panic!("no status")
    };
    assert!(status.serving_unconfirmed);
    assert!(status.applied >= LogIndex(50));
}

#[test]
fn everything_acknowledged_survives_the_restart_of_all() {
    let mut world = World::new(3);
    let leader = world.elect();
    let ticket = world.ask(leader, put("a", "1"));
    world.deliver();
    assert!(is_done(world.outcome(leader, ticket)));
    for id in 1..=3 {
        world.kill(id);
    }
    for id in 1..=3 {
        world.restart(id);
    }
    world.network.clear();
    world.elect();
    for id in 1..=3 {
        let read = world.ask(id, get("a", Consistency::Linearizable));
        world.pass(Duration::from_millis(50));
        assert_eq!(value_of(world.outcome(id, read)), Some("1".into()));
    }
}

#[test]
fn members_publish_their_names_and_addresses() {
    let mut world = World::new(3);
    let leader = world.elect();
    world.pass(Duration::from_millis(500));
    let ticket = world.ask(leader, Request::Members(Consistency::Linearizable));
    world.deliver();
    let Some(Outcome::Done(Reply { body: ReplyBody::Members(members), .. })) = world.outcome(leader, ticket)
    else {
        panic!("no members")
    };
    let names: Vec<&str> = members.list.iter().map(|m| m.name.as_str()).collect();
    assert_eq!(names, ["n1", "n2", "n3"]);
    assert_eq!(members.list[1].client_urls, ["http://n2"]);
}

#[test]
fn without_room_growth_is_refused_and_deletes_are_not() {
    let mut world = World::new(3);
    let leader = world.elect();
    let short = Space { log_bytes: u64::MAX, short: true };
    world.give(leader, Event::Space(short));
    let put = world.ask(leader, put("a", "1"));
    let delete = kattu_kv::api::DeleteRange {
        keys: kattu_kv::api::KeyRange { start: b"a".to_vec(), end: vec![] },
        prev_kv: false,
    };
    let delete =
        Request::Write(kattu_node::command::encode_kv(&kattu_kv::api::Command::DeleteRange(delete)).into());
    let delete = world.ask(leader, delete);
    world.deliver();
    assert!(matches!(world.outcome(leader, put), Some(Outcome::Refused(Refusal::NoSpace))));
    assert!(is_done(world.outcome(leader, delete)));
    let enough = Space { log_bytes: u64::MAX, short: false };
    world.give(leader, Event::Space(enough));
    let again = world.ask(leader, kattu_replicas::put("a", "1"));
    world.deliver();
    assert!(is_done(world.outcome(leader, again)));
}

#[test]
fn a_leader_takes_no_entry_that_its_log_has_no_allocated_room_for() {
    let mut world = World::new(3);
    let leader = world.elect();
    let last = world.member(leader).node.raft().last_id();
    world.give(leader, Event::Space(Space { log_bytes: 3, short: false }));
    let waits = world.ask(leader, put("a", "1"));
    assert_eq!(world.outcome(leader, waits), None, "room is being made");
    assert_eq!(world.member(leader).node.raft().last_id(), last);

    world.give(leader, Event::Space(Space { log_bytes: 1000, short: false }));
    world.deliver();
    assert!(is_done(world.outcome(leader, waits)), "as soon as there is room");

    world.give(leader, Event::Space(Space { log_bytes: 3, short: true }));
    let refused = world.ask(leader, put("a", "2"));
    assert!(
        matches!(world.outcome(leader, refused), Some(Outcome::Refused(Refusal::NoSpace))),
        "the disk is full"
    );
}

/// So much log space is allocated, and there is space for more.
fn ready(log_bytes: u64) -> Event {
    Event::Space(Space { log_bytes, short: false })
}

#[test]
fn a_forwarded_write_waits_for_room_as_one_at_the_leader_does() {
    let mut world = World::new(3);
    let leader = world.elect();
    let follower = world.follower();
    let last = world.member(leader).node.raft().last_id();
    world.give(leader, ready(3));
    let first = world.ask(follower, put("a", "1"));
    let copies: Vec<PeerMessage> = world.network.iter().cloned().collect();
    world.deliver();
    let second = world.ask(follower, put("a", "2"));
    world.deliver();
    let third = world.ask(leader, put("a", "3"));
    world.deliver();
    for waits in [first, second] {
        assert_eq!(world.outcome(follower, waits), None, "room is being made");
    }
    for copy in copies {
        world.deliver_one(copy); // it is accepted already, though it is in no log yet [B13]
    }
    assert_eq!(world.member(leader).node.raft().last_id(), last);

    world.give(leader, ready(1000));
    world.deliver();
    let [first, second] = [first, second].map(|write| world.outcome(follower, write).cloned());
    assert!(is_done(first.as_ref()) && is_done(second.as_ref()), "{first:?}, {second:?}");
    assert!(is_done(world.outcome(leader, third)));
    assert_eq!(world.member(leader).node.raft().last_id().index, LogIndex(last.index.0 + 3), "each once");
    let read = world.ask(leader, get("a", Consistency::Linearizable));
    world.deliver();
    assert_eq!(value_of(world.outcome(leader, read)), Some("3".into()), "in the order in which they came");

    world.give(leader, Event::Space(Space { log_bytes: 3, short: true }));
    let refused = world.ask(follower, put("a", "4"));
    world.deliver();
    let outcome = world.outcome(follower, refused);
    assert!(matches!(outcome, Some(Outcome::Refused(Refusal::NoSpace))), "the disk is full: {outcome:?}");
}

#[test]
fn a_forwarded_write_that_waits_for_room_in_vain_is_refused_in_time() {
    waits_for_room_in_vain(true);
}

#[test]
fn a_forwarded_write_that_waits_behind_the_leaders_own_is_refused_in_time() {
    waits_for_room_in_vain(false);
}

fn waits_for_room_in_vain(is_first: bool) {
    let mut world = World::new(3);
    let leader = world.elect();
    let follower = world.follower();
    world.give(leader, ready(3));
    let own = (!is_first).then(|| world.ask(leader, put("a", "2")));
    let waits = world.ask(follower, put("a", "1"));
    world.deliver();
    let own = own.unwrap_or_else(|| world.ask(leader, put("a", "2")));
    world.pass(Duration::from_millis(5900));
    assert_eq!(world.outcome(follower, waits), None);
    world.pass(Duration::from_millis(1200));
    for (id, write) in [(follower, waits), (leader, own)] {
        let outcome = world.outcome(id, write);
        let refused = matches!(outcome, Some(Outcome::Refused(Refusal::TooManyRequests)));
        assert!(refused, "{id}: there is room, only not yet: {outcome:?}");
    }
    world.give(leader, ready(1000));
    world.pass(ET);
    let read = world.ask(leader, get("a", Consistency::Linearizable));
    world.deliver();
    assert_eq!(value_of(world.outcome(leader, read)), None, "refused is refused");
}

#[test]
fn forwarded_writes_that_wait_for_room_are_bounded() {
    let mut world = World::new(3);
    let leader = world.elect();
    let followers: Vec<u64> = (1..=3).filter(|&id| id != leader).collect();
    world.give(leader, ready(3));
    let mut outcomes = Vec::new();
    for &follower in &followers {
        let writes = (0..60).map(|i| put(&format!("{i}"), "v")).collect();
        let tickets = world.ask_together(follower, writes);
        world.deliver();
        outcomes.extend(tickets.iter().map(|&ticket| world.outcome(follower, ticket).cloned()));
    }
    let waiting = outcomes.iter().filter(|outcome| outcome.is_none()).count();
    assert_eq!(waiting, 100, "as many as may wait at one replica");
    let refused =
        |outcome: &Option<Outcome>| matches!(outcome, Some(Outcome::Refused(Refusal::TooManyRequests)));
    assert_eq!(outcomes.iter().filter(|outcome| refused(outcome)).count(), 20);
}

#[test]
fn a_forwarded_write_that_waits_for_room_goes_to_the_next_leader_after_a_transfer() {
    let mut world = World::new(3);
    let leader = world.elect();
    let follower = world.follower();
    world.give(leader, ready(3));
    let waits = world.ask(follower, put("a", "1"));
    world.deliver();
    assert_eq!(world.outcome(follower, waits), None);
    world.give(leader, Event::Transfer(Some(NodeId(follower))));
    world.pass(ET);
    assert_eq!(world.leader(), Some(follower));
    assert!(is_done(world.outcome(follower, waits)), "{:?}", world.outcome(follower, waits));
}

#[test]
fn a_forwarded_write_that_waited_for_room_in_a_former_term_is_never_proposed() {
    let mut world = World::new(3);
    let leader = world.elect();
    let follower = world.follower();
    world.give(leader, ready(3));
    let waits = world.ask(follower, put("a", "1"));
    world.deliver();
    world.loses = Box::new(move |m| m.from() == NodeId(leader) || m.to() == NodeId(leader));
    world.pass(ET * 4);
    assert!(matches!(world.outcome(follower, waits), Some(Outcome::Unknown(Doubt::LeaderChanged))));
    world.loses = Box::new(|_| false);
    world.pass(ET);
    world.give(leader, ready(1000));
    for id in (1..=3).filter(|&id| id != leader) {
        world.give(id, Event::Transfer(Some(NodeId(leader))));
    }
    world.pass(ET);
    assert_eq!(world.leader(), Some(leader), "it leads again, in another term");
    let read = world.ask(leader, get("a", Consistency::Linearizable));
    world.deliver();
    assert_eq!(value_of(world.outcome(leader, read)), None);
}

#[test]
fn a_write_waits_while_too_much_of_an_earlier_term_is_not_committed() {
    let mut world = World::new(3);
    let leader = world.elect();
    let needed = world.follower();
    (1..=3).filter(|&id| id != leader && id != needed).for_each(|id| world.kill(id));
    let is_entries = |m: &PeerMessage| {
        let PeerMessage::Raft(envelope) = m else { return false };
        matches!(&envelope.message, Message::Append(append) if !append.entries.is_empty())
    };
    world.loses = Box::new(is_entries);
    for n in 0..4 {
        world.ask(leader, put("a", &n.to_string()));
    }
    world.deliver();
    world.kill(leader);
    world.restart(leader); // from here on only the newest two of the four are in memory
    for _ in 0..20 {
        world.pass(ET);
        if world.leader() == Some(leader) {
            break;
        }
    }
    assert_eq!(world.leader(), Some(leader), "no other log is as long");
    let before = world.member(leader).node.raft().last_id();
    let waits = world.ask(leader, put("b", "1"));
    world.deliver();
    assert_eq!(world.outcome(leader, waits), None, "it is not refused");
    assert_eq!(world.member(leader).node.raft().last_id(), before, "nor in the log");
    world.loses = Box::new(|_| false);
    world.pass(ET);
    assert!(is_done(world.outcome(leader, waits)), "{:?}", world.outcome(leader, waits));
}

#[test]
fn waiting_requests_are_bounded() {
    let mut world = World::new(3);
    let tickets: Vec<Ticket> = (0..101).map(|i| world.ask(1, put(&format!("{i}"), "v"))).collect();
    assert_eq!(world.outcome(1, tickets[99]), None);
    assert!(matches!(world.outcome(1, tickets[100]), Some(Outcome::Refused(Refusal::TooManyRequests))));
}

#[test]
fn a_stopping_replica_leaves_no_client_waiting() {
    let mut world = World::new(3);
    let leader = world.elect();
    let placed = world.ask(leader, put("a", "1"));
    let read = world.ask(leader, get("a", Consistency::Linearizable));
    world.give(leader, Event::Stop);
    assert!(matches!(world.outcome(leader, placed), Some(Outcome::Unknown(Doubt::Stopping))));
    assert!(matches!(world.outcome(leader, read), Some(Outcome::Refused(Refusal::Stopping))));
}

#[test]
#[should_panic(expected = "a client's write is for the store, of a session or an alarm")]
fn a_write_that_no_face_makes_never_reaches_the_log() {
    let mut world = World::new(1);
    let leader = world.elect();
    world.ask(leader, Request::Write(MemberChange::Remove(NodeId(9)).encode().into()));
}

#[test]
fn a_malformed_command_from_a_peer_never_reaches_the_log() {
    let mut world = World::new(3);
    let leader = world.elect();
    let follower = world.follower();
    let last = world.member(leader).node.raft().last_id();
    world.deliver_one(PeerMessage::Forward(Forward {
        from: NodeId(follower),
        to: NodeId(leader),
        incarnation: kattu_raft::Incarnation(77),
        term: world.member(leader).node.raft().term(),
        first_seq: 1,
        commands: vec![kattu_raft::SharedBytes::from(vec![250, 1, 2])],
    }));
    assert_eq!(world.member(leader).node.raft().last_id(), last);
}

#[test]
fn values_that_are_kept_count_as_what_waits_for_a_place() {
    let mut world = World::new(3);
    let leader = world.elect();
    let big = |key: &str| kv::Put { key: key.into(), value: vec![7; 600 << 10], ..kv::Put::default() };
    let keep = |key: &str| {
        let put = kv::Put { key: key.into(), ignore_value: true, ..kv::Put::default() };
        let command = kv::Command::Put(put);
        let bytes = encode_kv(&command);
        request(command, bytes)
    };
    for key in ["a", "b"] {
        let command = kv::Command::Put(big(key));
        let ticket = world.ask(leader, Request::Write(encode_kv(&command).into()));
        world.deliver();
        assert!(is_done(world.outcome(leader, ticket)));
    }
    let first = world.ask(leader, keep("a"));
    let second = world.ask(leader, keep("b"));
    assert_eq!(world.outcome(leader, first), None);
    assert_eq!(
        world.outcome(leader, second),
        Some(&Outcome::Refused(Refusal::TooManyRequests)),
        "a megabyte may wait, and the first has 600 KiB"
    );
    world.deliver();
    assert!(is_done(world.outcome(leader, first)));
    let third = world.ask(leader, keep("b"));
    world.deliver();
    assert!(is_done(world.outcome(leader, third)), "the first is applied and counts no more");
}
