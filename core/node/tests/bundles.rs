//! Bundles: puts in one entry are what they would be in entries of their own, and each client gets its own answer.

use kattu_kv::api::{Answer, Command, DeleteRange, KeyRange, Put, Response, Revision};
use kattu_kv::sessions::{Order, SessionId};
use kattu_node::command::encode_kv;
use kattu_node::contract::*;
use kattu_node::session::{SessionCommand, SessionHeader};
use kattu_node::{Keeper, bundle, level};
use kattu_raft::{Duration, Entry, EntryHead, EntryId, EntryKind, NodeId, Stamp, Term};
use kattu_replicas::{ET, World, get, is_done, value_of};

const TERM: Term = Term(1);

/// A put of the test, in a session or not.
#[derive(Clone, Debug)]
struct Given {
    key: u8,
    session: Option<(usize, u64)>,
    prev_kv: bool,
    lease: i64,
}

impl Given {
    fn bytes(&self, sessions: &[SessionId]) -> Vec<u8> {
        let (key, value) = (vec![b'a' + self.key], format!("{self:?}").into_bytes());
        let put = Put { key, value, prev_kv: self.prev_kv, lease: self.lease, ..Put::default() };
        let plain = encode_kv(&Command::Put(put));
        match self.session {
            Some((session, number)) => {
                SessionHeader { id: sessions[session], number, first_unacked: 1 }.around(&plain)
            }
            None => plain,
        }
    }
}

impl Given {
    /// The next one of these random numbers.
    fn draw(below: &mut impl FnMut(u64) -> u64) -> Given {
        let session = (below(3) != 0).then(|| (below(3) as usize, 1 + below(7)));
        let lease = if below(10) == 0 { 77 } else { 0 };
        Given { key: below(5) as u8, session, prev_kv: below(2) == 0, lease }
    }
}

/// Random numbers below a bound.
fn dice(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |bound| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % bound
    }
}

/// Tables with three sessions, one of them strict and one not there any more.
fn keeper() -> (Keeper, Vec<SessionId>) {
    let mut keeper = Keeper::new(vec![]).of_member(NodeId(1));
    let mut apply = |payload| hand_in(&mut keeper, payload, Tickets::One(Ticket(1)), i64::MAX).remove(0).1;
    (1..=level::BUNDLES).for_each(|level| drop(apply(level::encode(level))));
    let sessions: Vec<_> = [Order::Strict, Order::Any, Order::Any]
        .into_iter()
        .map(|order| match apply(SessionCommand::Register { secret: 7, order }.encode()) {
            Outcome::Done(Reply { body: ReplyBody::Registered { id, .. }, .. }) => id,
            other => panic!("{other:?}"),
        })
        .collect();
    apply(SessionCommand::Close(vec![sessions[2]]).encode());
    (keeper, sessions)
}

/// Applies the next entry in steps with this allowance; returns the answers.
fn hand_in(
    keeper: &mut Keeper,
    payload: Vec<u8>,
    tickets: Tickets,
    allowance: i64,
) -> Vec<(Ticket, Outcome)> {
    let id = EntryId { term: TERM, index: keeper.applied().next() };
    let head = EntryHead { id, kind: EntryKind::Command, stamp: Stamp(5) };
    let mut effects = KeeperEffects::default();
    let entry = Entry::new(head, payload.into(), 0);
    keeper.take_in(KeeperTask::Apply { entry, tickets, term: TERM }, &mut effects);
    while keeper.step(&mut allowance.clone(), &mut effects) {
        assert!(keeper.is_in_the_middle() && keeper.applied() < id.index, "it is not done");
        assert!(effects.reply.is_empty(), "an answer at an index at which it does not hold");
        assert!(!keeper.tidy(), "nothing is forgotten in the middle");
    }
    assert_eq!(effects.applied, Some(id.index));
    effects.reply
}

#[test]
fn a_bundle_is_what_its_commands_would_be_in_entries_of_their_own() {
    let (mut executed, mut refused) = (0, 0);
    for seed in 0..400 {
        let mut below = dice(seed);
        let (mut alone, sessions) = keeper();
        let mut together = alone.clone();
        let given: Vec<_> = (0..2 + below(60)).map(|_| Given::draw(&mut below)).collect();
        let commands: Vec<_> = given.iter().map(|given| given.bytes(&sessions)).collect();
        let (mut expected, mut each) = (Vec::new(), Vec::new());
        for (place, command) in (0..).zip(&commands) {
            let ticket = Some(Ticket(100 + u64::from(place))).filter(|_| below(4) != 0);
            each.extend(ticket.map(|ticket| (place, ticket)));
            expected.extend(hand_in(&mut alone, command.clone(), ticket.into(), i64::MAX));
        }
        let bytes = bundle::encode(commands.iter().map(Vec::as_slice));
        let allowance = if below(2) == 0 { i64::MAX } else { 1 + below(200) as i64 };
        let answers = hand_in(&mut together, bytes, Tickets::Each(each), allowance);
        assert_eq!(answers, expected, "seed {seed}: {given:?}");
        assert_eq!(together.store().digest(), alone.store().digest(), "seed {seed}");
        assert_eq!(together.sessions().digest(), alone.sessions().digest(), "seed {seed}");
        for (_, outcome) in answers {
            match outcome {
                Outcome::Done(Reply { body: ReplyBody::Kv(_), .. }) => executed += 1,
                _ => refused += 1,
            }
        }
    }
    assert!(1000 < executed && 1000 < refused, "{executed} executed, {refused} refused");
}

#[test]
fn a_long_bundle_is_applied_in_steps_and_a_read_sees_all_of_it() {
    let (mut keeper, _) = keeper();
    let puts: Vec<_> = (0..100)
        .map(|key| Given { key: key % 5, session: None, prev_kv: false, lease: 0 }.bytes(&[]))
        .collect();
    let before = keeper.store().revision();
    let mut effects = KeeperEffects::default();
    let id = EntryId { term: TERM, index: keeper.applied().next() };
    let head = EntryHead { id, kind: EntryKind::Command, stamp: Stamp(5) };
    let entry = Entry::new(head, bundle::encode(puts.iter().map(Vec::as_slice)).into(), 0);
    keeper.take_in(KeeperTask::Apply { entry, tickets: Tickets::None, term: TERM }, &mut effects);
    let members = KeeperTask::Members { ticket: Ticket(5), term: TERM, needs: kattu_raft::LogIndex(0) };
    keeper.take_in(members, &mut effects);
    let mut steps = 0;
    while effects.reply.is_empty() {
        assert!(keeper.step(&mut 1, &mut effects) || !effects.reply.is_empty());
        steps += 1;
        assert_eq!(keeper.applied() == id.index, keeper.store().revision() == Revision(before.0 + 100));
    }
    assert!(5 < steps, "{steps}");
}

/// Three members that know all levels, and their leader.
fn world() -> (World, u64) {
    let mut world = World::new(3);
    let leader = world.elect();
    know_all(&mut world);
    world.pass(ET * (3 * u32::from(level::KNOWN)));
    assert_eq!(world.member(leader).keeper.health().level, level::KNOWN);
    assert_eq!(world.leader(), Some(leader));
    (world, leader)
}

fn know_all(world: &mut World) {
    for to in 1..=3 {
        for of in (1..=3).filter(|&of| of != to) {
            world.give(to, Event::Knows(NodeId(of), level::KNOWN));
        }
    }
}

fn put(key: &str, value: &str) -> Request {
    let put = Put { key: key.into(), value: value.into(), prev_kv: true, ..Put::default() };
    Request::Write(encode_kv(&Command::Put(put)).into())
}

/// The value that a put has replaced.
fn replaced(world: &World, at: u64, ticket: Ticket) -> Option<String> {
    match world.outcome(at, ticket) {
        Some(Outcome::Done(Reply {
            body: ReplyBody::Kv(Response { answer: Answer::Put { prev_kv }, .. }),
            ..
        })) => {
            prev_kv.as_ref().map(|pair| String::from_utf8(pair.value.to_vec()).expect("a value of the test"))
        }
        other => panic!("{other:?}"),
    }
}

fn last(world: &World) -> u64 {
    world.member(world.leader().expect("one leads")).node.raft().last_id().index.0
}

#[test]
fn puts_that_come_together_share_an_entry_at_each_member_and_each_has_its_answer() {
    let (mut world, leader) = world();
    for at in [leader, world.follower()] {
        let before = last(&world);
        let values = ["1", "2", "3"].map(|value| format!("{value} at {at}"));
        let puts = values.iter().map(|value| put("a", value)).collect();
        let tickets = world.ask_together(at, puts);
        world.deliver();
        assert_eq!(last(&world), before + 1, "one entry");
        let all: Vec<_> = tickets.iter().map(|&ticket| replaced(&world, at, ticket)).collect();
        assert_eq!(all[1..], [Some(values[0].clone()), Some(values[1].clone())]);
        let read = world.ask(at, get("a", Consistency::Linearizable));
        world.deliver();
        assert_eq!(value_of(world.outcome(at, read)), Some(values[2].clone()));
        // A delete stands between them, and the puts around it share nothing with it.
        let keys = KeyRange { start: b"a".to_vec(), end: vec![] };
        let delete = encode_kv(&Command::DeleteRange(DeleteRange { keys, prev_kv: false }));
        let delete = Request::Write(delete.into());
        let before = last(&world);
        let all = vec![put("a", "x"), put("b", "x"), delete, put("a", "y"), put("b", "y")];
        let tickets = world.ask_together(at, all);
        world.deliver();
        assert_eq!(last(&world), before + 3);
        assert_eq!(replaced(&world, at, tickets[0]), Some(values[2].clone()));
        assert_eq!(
            (replaced(&world, at, tickets[3]), replaced(&world, at, tickets[4])),
            (None, Some("x".into()))
        );
    }
}

#[test]
fn before_every_member_knows_bundles_each_put_has_an_entry() {
    let mut world = World::new(3);
    let leader = world.elect();
    for at in [leader, world.follower()] {
        let before = last(&world);
        let tickets = world.ask_together(at, vec![put("a", "1"), put("a", "2")]);
        world.deliver();
        assert!(tickets.iter().all(|&ticket| is_done(world.outcome(at, ticket))));
        assert_eq!(last(&world), before + 2);
    }
}

#[test]
fn a_bundle_that_could_not_be_sent_waits_in_order_and_is_executed_once() {
    let (mut world, _) = world();
    let at = world.follower();
    world.keeps = Box::new(|_| true);
    let mut tickets = world.ask_together(at, vec![put("a", "1"), put("a", "2"), put("a", "3")]);
    world.deliver();
    tickets.extend(world.ask_together(at, vec![put("a", "4"), put("a", "5")]));
    world.pass(Duration::from_millis(300));
    assert!(tickets.iter().all(|&ticket| world.outcome(at, ticket).is_none()), "they wait");
    world.keeps = Box::new(|_| false);
    world.pass(Duration::from_millis(300));
    let all: Vec<_> = tickets.iter().map(|&ticket| replaced(&world, at, ticket)).collect();
    assert_eq!(all, [None, Some("1"), Some("2"), Some("3"), Some("4")].map(|it| it.map(String::from)));
}

#[test]
fn a_put_of_a_bundle_whose_result_is_not_wanted_is_answered_when_it_is_committed() {
    let (mut world, leader) = world();
    let Request::Write(quiet) = put("a", "2") else { panic!("a put is a write") };
    let before = last(&world);
    let tickets = world.ask_together(leader, vec![put("a", "1"), Request::CommitOnly(quiet), put("a", "3")]);
    world.deliver();
    assert_eq!(last(&world), before + 1);
    let told = world.outcome(leader, tickets[1]);
    assert!(matches!(told, Some(Outcome::Done(Reply { body: ReplyBody::Committed, .. }))), "{told:?}");
    assert_eq!(replaced(&world, leader, tickets[2]), Some("2".into()), "the answer of its own place");
}

#[test]
fn of_a_bundle_that_was_overwritten_each_client_is_told_so() {
    let (mut world, leader) = world();
    world.loses = Box::new(move |m| m.from() == NodeId(leader) || m.to() == NodeId(leader));
    let lost = world.ask_together(leader, vec![put("a", "1"), put("a", "2"), put("a", "3")]);
    let other = (1..=3).find(|&id| id != leader).expect("there are three");
    world.pass(Duration::from_secs(4));
    let kept = world.ask(other, put("a", "kept"));
    world.deliver();
    assert!(is_done(world.outcome(other, kept)));
    assert!(lost.iter().all(|&ticket| world.outcome(leader, ticket).is_none()), "they may still commit");
    world.loses = Box::new(|_| false);
    world.pass(Duration::from_millis(2500));
    for ticket in lost {
        let told = world.outcome(leader, ticket);
        assert!(matches!(told, Some(Outcome::Unknown(Doubt::LeaderChanged))), "{told:?}");
    }
}
