//! Situations in which the link to the leader fails: closed, refused, silent, or used by a broken member.

use kattu_node::contract::*;
use kattu_raft::message::ReadIndexReply;
use kattu_raft::{Duration, EntryId, Envelope, Incarnation, LogIndex, Message, NodeId, SharedBytes};
use kattu_replicas::*;

/// Takes the forwards out of the network.
fn forwards(world: &mut World) -> Vec<Forward> {
    let (taken, left) = std::mem::take(&mut world.network)
        .into_iter()
        .partition::<Vec<_>, _>(|message| matches!(message, PeerMessage::Forward(_)));
    world.network = left.into();
    let forward = |message| match message {
        PeerMessage::Forward(forward) => forward,
        other => panic!("{other:?}"),
    };
    taken.into_iter().map(forward).collect()
}

/// Takes the read requests to the leader out of the network.
fn questions(world: &mut World) -> Vec<Envelope> {
    let is_question = |message: &PeerMessage| {
        matches!(message, PeerMessage::Raft(Envelope { message: Message::ReadIndex(_), .. }))
    };
    let (taken, left) = std::mem::take(&mut world.network).into_iter().partition::<Vec<_>, _>(is_question);
    world.network = left.into();
    let envelope = |message| match message {
        PeerMessage::Raft(envelope) => envelope,
        other => panic!("{other:?}"),
    };
    taken.into_iter().map(envelope).collect()
}

#[test]
fn writes_that_could_not_leave_for_a_dead_leader_are_done_by_the_next() {
    let mut world = World::new(3);
    let leader = world.elect();
    let follower = world.follower();
    world.kill(leader);
    world.keeps = Box::new(move |forward| forward.to == NodeId(leader));
    let tickets = world.ask_together(follower, vec![put("a", "1"), put("a", "2")]);
    world.elect();
    world.pass(Duration::from_millis(50));
    assert!(tickets.iter().all(|&ticket| is_done(world.outcome(follower, ticket))));
    let read = world.ask(follower, get("a", Consistency::Linearizable));
    world.deliver();
    assert_eq!(value_of(world.outcome(follower, read)), Some("2".into()), "in the order they came");
}

#[test]
fn a_write_that_could_not_leave_is_forwarded_again_after_a_while() {
    let mut world = World::new(3);
    world.elect();
    let follower = world.follower();
    world.keeps = Box::new(|_| true);
    let ticket = world.ask(follower, put("a", "1"));
    world.keeps = Box::new(|_| false);
    world.give(follower, Event::Drained);
    assert_eq!(forwards(&mut world), [], "not at once");
    world.pass(ET / 10 + Duration::from_millis(5));
    assert!(is_done(world.outcome(follower, ticket)));
}

#[test]
fn a_write_that_could_never_leave_is_refused_in_time() {
    let mut world = World::new(3);
    world.elect();
    let follower = world.follower();
    world.keeps = Box::new(|_| true);
    let ticket = world.ask(follower, put("a", "1"));
    world.pass(Duration::from_secs(8));
    assert!(matches!(world.outcome(follower, ticket), Some(Outcome::Refused(Refusal::NoLeader))));
}

#[test]
fn a_refused_question_is_not_repeated_at_once() {
    let mut world = World::new(3);
    let leader = world.elect();
    let follower = world.follower();
    let ticket = world.ask(follower, get("a", Consistency::Linearizable));
    let question = questions(&mut world).remove(0);
    let Message::ReadIndex(asked) = question.message else { panic!("a question") };
    let refusal = ReadIndexReply { batch: asked.batch, index: None };
    world.deliver_one(PeerMessage::Raft(Envelope {
        from: NodeId(leader),
        to: NodeId(follower),
        message: Message::ReadIndexReply(refusal),
        ..question
    }));
    assert_eq!(questions(&mut world), [], "a leader that cannot answer now is left alone for a while");
    world.pass(ET / 10 + Duration::from_millis(5));
    assert!(is_done(world.outcome(follower, ticket)));
}

#[test]
fn questions_without_answers_do_not_pile_up() {
    let mut world = World::new(3);
    world.elect();
    let follower = world.follower();
    let tickets: Vec<Ticket> =
        (0..90).map(|_| world.ask(follower, get("a", Consistency::Linearizable))).collect();
    let asked = questions(&mut world).len();
    assert!(asked <= 16, "{asked} questions are open");
    world.pass(ET);
    assert!(tickets.iter().all(|&ticket| is_done(world.outcome(follower, ticket))));
}

#[test]
fn numbers_at_the_end_of_their_range_are_ignored() {
    let mut world = World::new(3);
    let leader = world.elect();
    let follower = world.follower();
    let term = world.member(leader).node.raft().term();
    let last = world.member(leader).node.raft().last_id();
    let Request::Write(command) = put("a", "1") else { panic!("a write") };
    let command = SharedBytes::from(command.to_vec());
    for first_seq in [0, u64::MAX, u64::MAX - 1, u64::MAX - 2, u64::MAX - 3] {
        world.deliver_one(PeerMessage::Forward(Forward {
            from: NodeId(follower),
            to: NodeId(leader),
            incarnation: Incarnation(77),
            term,
            first_seq,
            commands: vec![command.clone(); 2],
        }));
    }
    assert_eq!(world.member(leader).node.raft().last_id(), last);
    world.ask(follower, put("b", "1"));
    let forward = forwards(&mut world).remove(0);
    let incarnation = forward.incarnation;
    world.deliver_one(PeerMessage::Forward(forward));
    for before_end in 1..5 {
        world.deliver_one(PeerMessage::ForwardReply(ForwardReply {
            from: NodeId(leader),
            to: NodeId(follower),
            incarnation,
            term,
            first_seq: u64::MAX - before_end,
            verdicts: vec![Ok(EntryId { term, index: LogIndex(u64::MAX) }); 3],
        }));
    }
    let ticket = world.ask(follower, put("a", "2"));
    world.deliver();
    assert!(is_done(world.outcome(follower, ticket)));
}
