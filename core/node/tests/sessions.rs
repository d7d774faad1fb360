//! Exactly once: whatever a client repeats, each command of its session is executed once, on every member alike.

use kattu_kv::api::{
    Answer, Command, DeleteRange, KeyRange, Operation, Put, Query, Range, Response, Revision, Txn,
};
use kattu_kv::cost::PUT_UNITS;
use kattu_kv::sessions::{NAMED_MAX, Order, SessionError, SessionId, Settings, UNUSED};
use kattu_node::command::{encode_kv, request};
use kattu_node::contract::*;
use kattu_node::session::{SessionCommand, SessionHeader};
use kattu_node::{Keeper, RequestLimits, level};
use kattu_raft::{Duration, Entry, EntryHead, EntryId, EntryKind, NodeId, Stamp, Term};
use kattu_replicas::World;

const TERM: Term = Term(1);

/// Applies the next entry, as of this time of the log's clock; a client waits for it.
fn apply_at(keeper: &mut Keeper, stamp: Duration, payload: Vec<u8>) -> Outcome {
    let mut effects = KeeperEffects::default();
    keeper.handle(task(keeper, stamp, payload, Some(Ticket(1))), &mut effects);
    assert_eq!(effects.reply.len(), 1, "one answer");
    effects.reply.remove(0).1
}

fn task(keeper: &Keeper, stamp: Duration, payload: Vec<u8>, ticket: Option<Ticket>) -> KeeperTask {
    let id = EntryId { term: TERM, index: keeper.applied().next() };
    let head = EntryHead { id, kind: EntryKind::Command, stamp: Stamp(stamp.as_millis() as u64) };
    KeeperTask::Apply { entry: Entry::new(head, payload.into(), 0), tickets: ticket.into(), term: TERM }
}

fn apply(keeper: &mut Keeper, payload: Vec<u8>) -> ReplyBody {
    match apply_at(keeper, Duration::ZERO, payload) {
        Outcome::Done(reply) => reply.body,
        other => panic!("{other:?}"),
    }
}

/// A keeper of a cluster that has sessions.
fn keeper() -> Keeper {
    let mut keeper = Keeper::new(vec![]).of_member(NodeId(1));
    (1..=level::SESSIONS).for_each(|level| drop(apply(&mut keeper, level::encode(level))));
    keeper
}

fn register(keeper: &mut Keeper) -> SessionId {
    match apply(keeper, SessionCommand::Register { secret: 7, order: Order::Strict }.encode()) {
        ReplyBody::Registered { id, .. } => id,
        other => panic!("{other:?}"),
    }
}

/// The answer to a command that names sessions, of which these are not there.
fn named(gone: Vec<SessionId>) -> ReplyBody {
    ReplyBody::Named { gone, idle: Settings::default().idle }
}

fn put(key: &str) -> Command {
    Command::Put(Put { key: key.into(), value: b"v".to_vec(), ..Put::default() })
}

fn in_session(id: SessionId, number: u64, command: &Command) -> Vec<u8> {
    SessionHeader { id, number, first_unacked: 1 }.around(&encode_kv(command))
}

fn version_of(keeper: &Keeper, key: &str) -> i64 {
    let keys = KeyRange { start: key.into(), end: vec![] };
    let read = keeper.store().query(&Query::Range(Range { keys, ..Range::default() })).expect("a read");
    let Answer::Range(range) = read.answer else { panic!("a range") };
    range.kvs.first().map_or(0, |pair| pair.version)
}

fn revision_of(body: &ReplyBody) -> Revision {
    let ReplyBody::Kv(Response { revision, .. }) = body else { panic!("{body:?}") };
    *revision
}

#[test]
fn a_command_that_is_repeated_is_executed_once_and_has_the_answer_that_it_had() {
    let mut keeper = keeper();
    let id = register(&mut keeper);
    let first = apply(&mut keeper, in_session(id, 1, &put("a")));
    let second = apply(&mut keeper, in_session(id, 2, &put("a")));
    assert_eq!((revision_of(&first), revision_of(&second)), (Revision(2), Revision(3)));
    assert_eq!(apply(&mut keeper, in_session(id, 1, &put("a"))), first);
    assert_eq!(apply(&mut keeper, in_session(id, 2, &put("a"))), second);
    assert_eq!(version_of(&keeper, "a"), 2);
    let early = apply(&mut keeper, in_session(id, 4, &put("a")));
    assert_eq!(early, ReplyBody::SessionError(SessionError::OutOfOrder { expected: 3 }));
    let other = SessionId { secret: 8, ..id };
    let stranger = apply(&mut keeper, in_session(other, 3, &put("a")));
    assert_eq!(stranger, ReplyBody::SessionError(SessionError::Expired));
    assert_eq!(version_of(&keeper, "a"), 2);
    // A refusal of the store is an answer like any other, even when the store would allow it now.
    let lease = Command::Put(Put { key: b"b".to_vec(), ignore_value: true, ..Put::default() });
    let refused = apply(&mut keeper, in_session(id, 3, &lease));
    assert!(matches!(refused, ReplyBody::KvError(_)), "{refused:?}");
    apply(&mut keeper, encode_kv(&put("b")));
    assert_eq!(apply(&mut keeper, in_session(id, 3, &lease)), refused);
}

#[test]
fn an_answer_tells_up_to_which_number_all_commands_are_executed() {
    let mut keeper = keeper();
    let any = SessionCommand::Register { secret: 7, order: Order::Any }.encode();
    let ReplyBody::Registered { id, idle } = apply(&mut keeper, any) else { panic!("a session") };
    assert_eq!(idle, Settings::default().idle);
    let mut strong = |number| match apply_at(&mut keeper, Duration::ZERO, in_session(id, number, &put("a"))) {
        Outcome::Done(reply) => reply.strong,
        other => panic!("{other:?}"),
    };
    assert_eq!([1, 3, 5, 4, 3, 2].map(&mut strong), [1, 1, 1, 1, 1, 5]);
    let Outcome::Done(plain) = apply_at(&mut keeper, Duration::ZERO, encode_kv(&put("a"))) else { panic!() };
    assert_eq!(plain.strong, 0, "of no session");
}

#[test]
fn a_session_ends_by_the_logs_clock_and_a_repetition_after_it_is_not_executed() {
    let mut keeper = keeper();
    let id = register(&mut keeper);
    apply(&mut keeper, in_session(id, 1, &put("a")));
    let idle = keeper.sessions().settings().idle;
    let late = apply_at(&mut keeper, idle * 2, in_session(id, 1, &put("a")));
    let expired = ReplyBody::SessionError(SessionError::Expired);
    assert_eq!(late, Outcome::Done(Reply { term: TERM, strong: 0, body: expired }));
    assert_eq!(version_of(&keeper, "a"), 1);
    // Entries that are not about sessions end them, too.
    let id = register(&mut keeper);
    assert_eq!(keeper.sessions().count(), 1);
    apply_at(&mut keeper, idle * 2 + UNUSED, encode_kv(&put("b")));
    assert_eq!(keeper.sessions().count(), 0, "{id:?} was never used");
}

#[test]
fn signs_of_life_and_ends_name_the_sessions_that_are_not_there() {
    let mut keeper = keeper();
    let id = register(&mut keeper);
    let gone = SessionId { number: 99, secret: 1 };
    let alive = SessionCommand::KeepAlive(vec![(gone, 1), (id, 1)]).encode();
    assert_eq!(apply(&mut keeper, alive), named(vec![gone]));
    let stranger = SessionId { secret: 0, ..id };
    let close = |ids| SessionCommand::Close(ids).encode();
    assert_eq!(apply(&mut keeper, close(vec![stranger])), named(vec![stranger]));
    assert_eq!(apply(&mut keeper, close(vec![id])), named(vec![]));
    assert_eq!(apply(&mut keeper, close(vec![id])), named(vec![id]));
    let id = register(&mut keeper);
    assert_eq!(
        apply(&mut keeper, SessionCommand::Expel(id.number).encode()),
        named(vec![]),
        "an operator needs no secret"
    );
    assert_eq!(keeper.sessions().count(), 0);
    let settings = Settings { idle: Settings::IDLE_MIN, sessions_max: 0 };
    assert_eq!(apply(&mut keeper, SessionCommand::Set(settings).encode()), ReplyBody::SessionsSet);
    let full = apply(&mut keeper, SessionCommand::Register { secret: 1, order: Order::Any }.encode());
    assert_eq!(full, ReplyBody::SessionError(SessionError::TooManySessions));
}

#[test]
fn a_step_pays_for_each_session_that_its_entry_names() {
    let mut keeper = keeper();
    let id = register(&mut keeper);
    for (named, entry) in [
        (1, SessionCommand::KeepAlive(vec![(id, 1)])),
        (NAMED_MAX, SessionCommand::KeepAlive(vec![(id, 1); NAMED_MAX])),
        (NAMED_MAX, SessionCommand::Close(vec![id; NAMED_MAX])),
    ] {
        let mut effects = KeeperEffects::default();
        keeper.handle(task(&keeper, Duration::ZERO, entry.encode(), None), &mut effects);
        let least = PUT_UNITS * named as u64;
        assert!((least..=least + PUT_UNITS).contains(&effects.units), "{named}: {}", effects.units);
    }
    let one_more = std::panic::catch_unwind(|| SessionCommand::Close(vec![id; NAMED_MAX + 1]).encode());
    assert!(one_more.is_err(), "no entry names more");
}

fn all() -> KeyRange {
    KeyRange { start: vec![0], end: vec![0] }
}

/// Counts all keys, and deletes them with their values.
fn large() -> Command {
    let count = Operation::Range(Range { keys: all(), count_only: true, ..Range::default() });
    let delete = Operation::DeleteRange(DeleteRange { keys: all(), prev_kv: true });
    Command::Txn(Txn { success: vec![count, delete], ..Txn::default() })
}

/// Two members, of which only one has clients and limits of its own.
#[test]
fn answers_that_are_kept_depend_on_no_waiting_client_and_on_no_members_limits() {
    let mut members = [keeper(), keeper()];
    members[1].limit(RequestLimits { work_max: 1, answer_bytes_max: 1 });
    let mut sessions = vec![];
    for member in &mut members {
        sessions.push(register(member));
        (0..100).for_each(|n| drop(apply(member, encode_kv(&put(&format!("k{n}"))))));
    }
    let id = sessions[0];
    for (number, slice) in [(1, 1), (2, i64::MAX)] {
        let [first, second] = &mut members;
        let mut effects = KeeperEffects::default();
        let bytes = in_session(id, number, &large());
        first.take_in(task(first, Duration::ZERO, bytes.clone(), Some(Ticket(1))), &mut effects);
        while first.step(&mut slice.clone(), &mut effects) {}
        second.handle(task(second, Duration::ZERO, bytes.clone(), None), &mut KeeperEffects::default());
        let Some((_, Outcome::Done(Reply { body, .. }))) = effects.reply.pop() else { panic!("{effects:?}") };
        assert_eq!(apply(first, bytes.clone()), body, "the same answer again");
        assert_eq!(apply(second, bytes), body, "also where no client had waited");
    }
    let bytes = |member: &Keeper| member.pin().chunks().flatten().collect::<Vec<_>>();
    assert!(bytes(&members[0]) == bytes(&members[1]));
    assert_eq!(members[0].digest(), members[1].digest());
}

#[test]
fn a_command_beyond_its_budget_is_not_executed_whenever_it_is_repeated() {
    let mut keeper = keeper();
    let id = register(&mut keeper);
    (0..100).for_each(|n| drop(apply(&mut keeper, encode_kv(&put(&format!("k{n}"))))));
    keeper.limit(RequestLimits { work_max: 400, ..RequestLimits::default() });
    // Admitted while it costs little; by the time it is applied there are more keys.
    let header = SessionHeader { id, number: 1, first_unacked: 1 };
    let delete = Command::DeleteRange(DeleteRange { keys: all(), prev_kv: false });
    let Request::Weigh(command, _) = request(delete.clone(), encode_kv(&delete)) else {
        panic!("it is long")
    };
    let bytes = header.around(&encode_kv(&delete));
    let mut effects = KeeperEffects::default();
    keeper.take_in(KeeperTask::Weigh { ticket: Ticket(1), command, bytes }, &mut effects);
    let admitted = effects.admitted.pop().expect("it is cheap so far").command;
    (100..500).for_each(|n| drop(apply(&mut keeper, encode_kv(&put(&format!("k{n}"))))));
    let refused = apply(&mut keeper, admitted.clone());
    assert_eq!(refused, ReplyBody::KvError(kattu_kv::api::Error::TooMuchWork));
    (0..500).for_each(|n| {
        let keys = KeyRange { start: format!("k{n}").into_bytes(), end: vec![] };
        apply(&mut keeper, encode_kv(&Command::DeleteRange(DeleteRange { keys, prev_kv: false })));
    });
    apply(&mut keeper, encode_kv(&put("last")));
    assert_eq!(apply(&mut keeper, admitted), refused, "it would be cheap again");
    assert_eq!(keeper.store().stats().keys, 1);
}

#[test]
fn a_kept_answer_that_is_too_large_is_executed_once_and_its_client_is_told_so() {
    let mut keeper = keeper();
    let id = register(&mut keeper);
    for n in 0..3 {
        let value = vec![b'v'; 500 << 10];
        let put = Put { key: format!("k{n}").into_bytes(), value, ..Put::default() };
        apply(&mut keeper, encode_kv(&Command::Put(put)));
    }
    for _ in 0..2 {
        let outcome = apply_at(&mut keeper, Duration::ZERO, in_session(id, 1, &large()));
        assert_eq!(outcome, Outcome::Unknown(Doubt::AnswerTooLarge));
        assert_eq!(keeper.store().stats().keys, 0);
        assert_eq!(keeper.store().revision(), Revision(5), "once");
    }
    let next = apply(&mut keeper, in_session(id, 2, &put("a")));
    assert_eq!(revision_of(&next), Revision(6));
}

#[test]
fn sessions_go_on_in_a_cluster_that_goes_on_where_this_one_was_and_in_no_other() {
    let mut keeper = keeper();
    let id = register(&mut keeper);
    let done = apply(&mut keeper, in_session(id, 1, &put("a")));
    let mut same = keeper.clone().reborn(vec![], 0);
    assert_eq!(apply(&mut same, in_session(id, 1, &put("a"))), done);
    let mut raised = keeper.reborn(vec![], 1000);
    let expired = ReplyBody::SessionError(SessionError::Expired);
    assert_eq!(apply(&mut raised, in_session(id, 1, &put("a"))), expired);
}

fn body(world: &World, at: u64, ticket: Ticket) -> Option<ReplyBody> {
    match world.outcome(at, ticket) {
        Some(Outcome::Done(reply)) => Some(reply.body.clone()),
        _ => None,
    }
}

#[test]
fn no_log_holds_a_session_before_every_member_knows_them() {
    let mut world = World::new(3);
    let leader = world.elect();
    let register =
        || Request::Write(SessionCommand::Register { secret: 3, order: Order::Strict }.encode().into());
    for at in [leader, world.follower()] {
        let ticket = world.ask(at, register());
        world.deliver();
        let refused = Outcome::Refused(Refusal::LevelTooLow);
        assert_eq!(world.outcome(at, ticket), Some(&refused), "n{at}");
    }
    for to in 1..=3 {
        for of in (1..=3).filter(|&of| of != to) {
            world.give(to, Event::Knows(NodeId(of), level::KNOWN));
        }
    }
    world.deliver();
    let follower = world.follower();
    let ticket = world.ask(follower, register());
    world.deliver();
    let Some(ReplyBody::Registered { id, .. }) = body(&world, follower, ticket) else {
        panic!("{:?}", world.outcome(follower, ticket))
    };
    let write = Request::Write(in_session(id, 1, &put("a")).into());
    let answers: Vec<_> = [leader, follower]
        .into_iter()
        .map(|at| {
            let ticket = world.ask(at, write.clone());
            world.deliver();
            body(&world, at, ticket).expect("an answer")
        })
        .collect();
    assert_eq!(answers[0], answers[1], "asked at two members");
    assert_eq!(revision_of(&answers[0]), Revision(2));
}
