//! Goal: the table of sessions comes to the verdicts of a naive one, also behind a copy and behind its own bytes. Method:
//! random steps of a few clients that repeat, skip, acknowledge and fall silent, on both tables.

use kattu_kv::api::{Answer, Error, Key, KeyValue, Response, Revision, Value};
use kattu_kv::sessions::{
    ALL_BYTES_MAX, Loader, Once, Order, SESSION_BYTES_MAX, SHARE_BYTES, SessionError, SessionId, Sessions,
    Settings, Skipped, UNUSED, Verdict, WINDOW,
};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

type Result = std::result::Result<Response, Error>;

const SECOND: Duration = Duration::from_secs(1);

/// Clients of the random steps.
const CLIENTS: usize = 4;

fn put_at(revision: i64) -> Result {
    Ok(Response { revision: Revision(revision), answer: Answer::Put { prev_kv: None } })
}

/// An answer with a value of so many bytes.
fn large(bytes: usize) -> Result {
    let pair = KeyValue {
        key: Key::from(&b"k"[..]),
        create_revision: Revision(2),
        mod_revision: Revision(2),
        version: 1,
        value: Value::from(vec![b'v'; bytes]),
        lease: 0,
    };
    Ok(Response { revision: Revision(3), answer: Answer::Put { prev_kv: Some(pair) } })
}

#[derive(Clone, Debug)]
struct NaiveSession {
    secret: u64,
    order: Order,
    is_used: bool,
    seen: Duration,
    /// Ascending with each move.
    place: u64,
    first: u64,
    last: u64,
    answers: BTreeMap<u64, Result>,
}

#[derive(Clone, Debug)]
struct Naive {
    sessions: BTreeMap<u64, NaiveSession>,
    settings: Settings,
    clock: Duration,
    places: u64,
}

impl Naive {
    fn see(&mut self, id: SessionId, first_unacked: u64) -> Option<&mut NaiveSession> {
        self.places += 1;
        let (clock, place) = (self.clock, self.places);
        let session = self.sessions.get_mut(&id.number).filter(|session| session.secret == id.secret)?;
        if !session.is_used || SECOND <= clock - session.seen {
            (session.is_used, session.seen, session.place) = (true, clock, place);
        }
        session.first = session.first.max(first_unacked.min(session.last + 1));
        let first = session.first;
        session.answers.retain(|number, _| first <= *number);
        Some(session)
    }

    fn advance(&mut self, now: Duration) {
        self.clock = self.clock.max(now);
        let idle = self.settings.idle + SECOND;
        for (is_used, limit) in [(false, UNUSED.min(idle)), (true, idle)] {
            let mut due: Vec<(u64, u64)> = self
                .sessions
                .iter()
                .filter(|(_, session)| session.is_used == is_used && limit <= self.clock - session.seen)
                .map(|(number, session)| (session.place, *number))
                .collect();
            due.sort_unstable();
            for (_, number) in due.into_iter().take(16) {
                self.sessions.remove(&number);
            }
        }
    }

    fn register(&mut self, id: SessionId, order: Order) -> std::result::Result<(), SessionError> {
        if self.settings.sessions_max <= self.sessions.len() as u64 {
            return Err(SessionError::TooManySessions);
        }
        self.places += 1;
        let session = NaiveSession {
            secret: id.secret,
            order,
            is_used: false,
            seen: self.clock,
            place: self.places,
            first: 1,
            last: 0,
            answers: BTreeMap::new(),
        };
        self.sessions.insert(id.number, session);
        Ok(())
    }

    fn judge(&mut self, id: SessionId, number: u64, first_unacked: u64) -> Verdict {
        let Some(session) = self.see(id, first_unacked) else {
            return Verdict::Skip(Skipped::Refused(SessionError::Expired));
        };
        let expected = match session.order {
            Order::Strict => session.last + 1,
            Order::Any => session.first + WINDOW - 1,
        };
        let is_next = match session.order {
            Order::Strict => number == expected,
            Order::Any => number <= expected,
        };
        if number < session.first {
            Verdict::Skip(Skipped::Refused(SessionError::Stale))
        } else if let Some(answer) = session.answers.get(&number) {
            Verdict::Skip(Skipped::Answered(Some(answer.clone())))
        } else if !is_next {
            Verdict::Skip(Skipped::Refused(SessionError::OutOfOrder { expected }))
        } else {
            Verdict::Execute
        }
    }

    /// Returns the number up to which every command is executed.
    fn keep(&mut self, session: u64, number: u64, result: &Result) -> u64 {
        let session = self.sessions.get_mut(&session).expect("a session that was judged");
        session.last = session.last.max(number);
        session.answers.insert(number, result.clone());
        (session.first..)
            .take_while(|number| session.answers.contains_key(number))
            .last()
            .unwrap_or(session.first - 1)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Register {
        client: usize,
        order: Order,
    },
    /// Relative to the last number executed.
    Command {
        client: usize,
        ahead: i64,
        acknowledged: u64,
        result: Result,
    },
    WrongSecret(usize),
    KeepAlive(usize),
    Close(usize),
    /// Seconds.
    Wait(u32),
    Set(Settings),
    /// Copy the table, and use the copy from here on while the original is held.
    Copy,
    /// Put the table into bytes and back, in pieces of this size.
    Reload(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let client = || 0..CLIENTS;
    let order = prop_oneof![3 => Just(Order::Strict), 1 => Just(Order::Any)];
    let result = prop_oneof![
        6 => (2..99i64).prop_map(put_at),
        1 => Just(Err(Error::KeyNotFound)),
        1 => (0..300usize).prop_map(large),
    ];
    let ahead = prop_oneof![8 => Just(1i64), 3 => -3..=0i64, 2 => 2..5i64, 1 => Just(WINDOW as i64)];
    prop_oneof![
        3 => (client(), order).prop_map(|(client, order)| Step::Register { client, order }),
        20 => (client(), ahead, 0..6u64, result)
            .prop_map(|(client, ahead, acknowledged, result)| Step::Command { client, ahead, acknowledged, result }),
        1 => client().prop_map(Step::WrongSecret),
        2 => client().prop_map(Step::KeepAlive),
        1 => client().prop_map(Step::Close),
        4 => prop_oneof![1..8u32, 1..200u32].prop_map(Step::Wait),
        1 => (30..300u32, 2..20u64)
            .prop_map(|(idle, sessions_max)| Step::Set(Settings { idle: SECOND * idle, sessions_max })),
        1 => Just(Step::Copy),
        2 => prop_oneof![Just(1usize), 1..50usize, Just(1 << 20)].prop_map(Step::Reload),
    ]
}

fn bytes(sessions: &Sessions) -> Vec<u8> {
    sessions.clone().dump().flatten().collect()
}

fn reload(bytes: &[u8], piece: usize) -> std::result::Result<Sessions, kattu_kv::command::Malformed> {
    let mut loader = Loader::default();
    let mut chunks = bytes.chunks(piece);
    while let Some(chunk) = chunks.next() {
        if let Some(rest) = loader.push(chunk)? {
            assert!(rest.is_empty() && chunks.next().is_none(), "the table ends where its bytes end");
        }
    }
    loader.finish()
}

/// The two tables, and what the clients know.
struct Twins {
    sessions: Sessions,
    naive: Naive,
    clients: [(SessionId, u64); CLIENTS],
    index: u64,
    held: Vec<(Sessions, Vec<u8>)>,
}

impl Twins {
    fn after(steps: &[Step]) -> std::result::Result<Twins, TestCaseError> {
        let settings = Settings { idle: SECOND * 60, sessions_max: 20 };
        let naive = Naive { sessions: BTreeMap::new(), settings, clock: Duration::ZERO, places: 0 };
        let clients = [(SessionId { number: 99_999, secret: 1 }, 0); CLIENTS];
        let mut twins = Twins { sessions: Sessions::default(), naive, clients, index: 0, held: Vec::new() };
        twins.sessions.set(settings);
        steps.iter().try_for_each(|step| twins.take(step))?;
        Ok(twins)
    }

    fn take(&mut self, step: &Step) -> std::result::Result<(), TestCaseError> {
        self.index += 1;
        match step {
            Step::Register { client, order } => {
                let id = SessionId { number: self.index, secret: self.index * 7 };
                let registered = self.sessions.register(id, *order);
                prop_assert_eq!(registered, self.naive.register(id, *order));
                if registered.is_ok() {
                    self.clients[*client] = (id, 0);
                }
            }
            Step::Command { client, ahead, acknowledged, result } => {
                let (id, last) = &mut self.clients[*client];
                let number = last.saturating_add_signed(*ahead).max(1);
                let first_unacked = (*last + 1).saturating_sub(*acknowledged).clamp(1, number);
                let mut at_once = self.sessions.clone();
                let once = at_once.once(*id, number, first_unacked, || result.clone());
                let verdict = self.sessions.judge(*id, number, first_unacked);
                prop_assert_eq!(&verdict, &self.naive.judge(*id, number, first_unacked));
                if let Verdict::Skip(skipped) = verdict {
                    prop_assert_eq!(once, Once::Skipped(skipped));
                } else {
                    let strong = self.sessions.keep(id.number, number, result, false);
                    prop_assert_eq!(strong, self.naive.keep(id.number, number, result));
                    prop_assert_eq!(strong, self.sessions.strong(id.number));
                    *last = number.max(*last);
                    prop_assert_eq!(once, Once::Executed { result: result.clone(), strong });
                }
                prop_assert_eq!(at_once.digest(), self.sessions.digest());
                prop_assert_eq!(at_once.bytes(), self.sessions.bytes());
                prop_assert_eq!(bytes(&at_once), bytes(&self.sessions));
                self.sessions = at_once;
            }
            Step::WrongSecret(client) => {
                let (id, last) = self.clients[*client];
                let id = SessionId { secret: id.secret + 1, ..id };
                let expired = Verdict::Skip(Skipped::Refused(SessionError::Expired));
                prop_assert_eq!(self.sessions.judge(id, last + 1, last + 1), expired);
                prop_assert!(!self.sessions.close(id) && !self.sessions.keep_alive(id, last + 1));
            }
            Step::KeepAlive(client) => {
                let (id, last) = self.clients[*client];
                let lives = self.naive.see(id, last + 1).is_some();
                prop_assert_eq!(self.sessions.keep_alive(id, last + 1), lives);
            }
            Step::Close(client) => {
                let (id, _) = self.clients[*client];
                prop_assert_eq!(self.sessions.close(id), self.naive.sessions.remove(&id.number).is_some());
            }
            Step::Wait(seconds) => {
                let now = self.naive.clock + SECOND * *seconds;
                self.sessions.advance(now);
                self.naive.advance(now);
            }
            Step::Set(settings) => {
                self.sessions.set(*settings);
                self.naive.settings = *settings;
            }
            Step::Copy => self.held.push((self.sessions.clone(), bytes(&self.sessions))),
            Step::Reload(piece) => {
                let before = bytes(&self.sessions);
                let loaded = reload(&before, *piece).expect("a table");
                prop_assert_eq!(&bytes(&loaded), &before);
                prop_assert_eq!(loaded.digest(), self.sessions.digest());
                prop_assert_eq!(loaded.bytes(), self.sessions.bytes());
                self.sessions = loaded;
            }
        }
        prop_assert_eq!(self.sessions.count(), self.naive.sessions.len() as u64);
        let listed = self.sessions.list(0, usize::MAX);
        let clock = self.naive.clock;
        let of_naive = self.naive.sessions.iter().map(|(number, session)| (*number, clock - session.seen));
        prop_assert_eq!(listed, of_naive.collect::<Vec<_>>());
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn the_table_comes_to_the_verdicts_of_a_naive_one(steps in vec(step(), 1..120)) {
        let twins = Twins::after(&steps)?;
        for (held, before) in &twins.held {
            prop_assert_eq!(&bytes(held), before, "a copy stays as it was");
        }
    }

    #[test]
    fn damaged_bytes_are_refused_or_are_another_table(
        steps in vec(step(), 1..60),
        flips in vec((any::<prop::sample::Index>(), 0..8u8), 1..100),
        piece in 1..40usize,
    ) {
        let twins = Twins::after(&steps)?;
        let good = bytes(&twins.sessions);
        for length in 0..good.len() {
            let mut loader = Loader::default();
            prop_assert_eq!(loader.push(&good[..length]), Ok(None));
            prop_assert!(loader.finish().is_err(), "{} bytes", length);
        }
        let behind = [&good[..], b"store"].concat();
        prop_assert_eq!(Loader::default().push(&behind), Ok(Some(b"store".to_vec())));
        for (place, bit) in flips {
            let mut bad = good.clone();
            *place.get_mut(&mut bad) ^= 1 << bit;
            let mut loader = Loader::default();
            let mut rest = Ok(None);
            for chunk in bad.chunks(piece) {
                rest = match rest {
                    Ok(None) => loader.push(chunk),
                    Ok(Some(rest)) => Ok(Some([&rest[..], chunk].concat())),
                    Err(error) => Err(error),
                };
            }
            if let (Ok(Some(rest)), Ok(table)) = (rest, loader.finish()) {
                prop_assert_eq!([bytes(&table), rest].concat(), bad, "what can be read has one form");
            }
        }
    }
}

/// A number at the end of its range, where one more has no room: found by the fuzz target `stores`.
#[test]
fn numbers_at_the_end_of_their_range_are_refused() {
    let (sessions, _) = registered(Order::Strict);
    let mut bytes = bytes(&sessions);
    assert_eq!(bytes.pop(), Some(0), "the number of answers");
    assert_eq!(bytes.pop(), Some(0), "the last number executed");
    kattu_kv::command::write_number(u64::MAX, &mut bytes);
    bytes.push(0);
    assert!(reload(&bytes, 1 << 20).is_err());
}

fn registered(order: Order) -> (Sessions, SessionId) {
    let (mut sessions, id) = (Sessions::default(), SessionId { number: 5, secret: 17 });
    sessions.register(id, order).expect("there is room");
    (sessions, id)
}

/// Executes a command whose answer is given.
fn execute(sessions: &mut Sessions, id: SessionId, number: u64, first_unacked: u64, result: &Result) {
    assert_eq!(sessions.judge(id, number, first_unacked), Verdict::Execute, "number {number}");
    sessions.keep(id.number, number, result, false);
}

#[test]
fn the_answers_of_one_session_have_a_bound() {
    let (mut sessions, id) = registered(Order::Strict);
    let value = 100 << 10;
    for number in 1..=20 {
        match sessions.judge(id, number, 1) {
            Verdict::Execute => drop(sessions.keep(id.number, number, &large(value), false)),
            other => panic!("{number}: {other:?}"),
        }
    }
    assert!(sessions.bytes() <= SESSION_BYTES_MAX, "{}", sessions.bytes());
    assert_eq!(sessions.judge(id, 2, 1), Verdict::Skip(Skipped::Answered(Some(large(value)))));
    assert_eq!(
        sessions.judge(id, 20, 1),
        Verdict::Skip(Skipped::Answered(None)),
        "executed once, and its answer is gone"
    );
    assert_eq!(sessions.judge(id, 21, 21), Verdict::Execute, "all are acknowledged");
    assert_eq!(sessions.bytes(), 0);
}

#[test]
fn a_client_that_acknowledges_nothing_is_stopped_at_the_window_and_goes_on_afterwards() {
    for order in [Order::Strict, Order::Any] {
        let (mut sessions, id) = registered(order);
        for number in 1..=WINDOW {
            execute(&mut sessions, id, number, 1, &put_at(2));
        }
        let refused = match order {
            Order::Strict => SessionError::TooManyAnswers,
            Order::Any => SessionError::OutOfOrder { expected: WINDOW },
        };
        assert_eq!(sessions.judge(id, WINDOW + 1, 1), Verdict::Skip(Skipped::Refused(refused)));
        execute(&mut sessions, id, WINDOW + 1, 2, &put_at(3));
        assert_eq!(sessions.judge(id, 1, 1), Verdict::Skip(Skipped::Refused(SessionError::Stale)));
        assert_eq!(
            sessions.judge(id, 2, 1),
            Verdict::Skip(Skipped::Answered(Some(put_at(2)))),
            "acknowledged is only 1"
        );
    }
}

#[test]
fn what_others_keep_leaves_each_session_its_share() {
    let mut sessions = Sessions::default();
    let mut number = 0;
    while sessions.bytes() + SESSION_BYTES_MAX < ALL_BYTES_MAX {
        number += 1;
        let id = SessionId { number, secret: 0 };
        sessions.register(id, Order::Strict).expect("there is room");
        execute(&mut sessions, id, 1, 1, &large((SESSION_BYTES_MAX - 1000) as usize));
    }
    // The rest, in smaller pieces.
    number += 1;
    let id = SessionId { number, secret: 0 };
    sessions.register(id, Order::Strict).expect("there is room");
    let rest = ALL_BYTES_MAX - sessions.bytes() - 100;
    execute(&mut sessions, id, 1, 1, &large(rest as usize));
    number += 1;
    let id = SessionId { number, secret: 0 };
    sessions.register(id, Order::Strict).expect("there is room");
    let share = SHARE_BYTES / 32;
    for command in 1..=share {
        execute(&mut sessions, id, command, 1, &put_at(9));
    }
    let full = Verdict::Skip(Skipped::Refused(SessionError::TooManyAnswers));
    assert_eq!(sessions.judge(id, share + 1, 1), full);
    assert_eq!(sessions.judge(id, share + 1, share + 1), Verdict::Execute, "after it has acknowledged some");
}

#[test]
fn a_flood_of_registrations_ends_no_session_in_use_and_is_over_after_a_minute() {
    let mut sessions = Sessions::default();
    sessions.set(Settings { sessions_max: 1000, ..Settings::default() });
    let used = SessionId { number: 1, secret: 3 };
    sessions.register(used, Order::Strict).expect("there is room");
    execute(&mut sessions, used, 1, 1, &put_at(2));
    for number in 2..=1000 {
        sessions.register(SessionId { number, secret: 0 }, Order::Strict).expect("there is room");
    }
    let next = SessionId { number: 1001, secret: 0 };
    assert_eq!(sessions.register(next, Order::Strict), Err(SessionError::TooManySessions));
    sessions.advance(UNUSED - Duration::from_millis(1));
    assert_eq!(sessions.count(), 1000);
    let mut entries = 0;
    while sessions.count() > 1 {
        sessions.advance(UNUSED);
        entries += 1;
    }
    assert_eq!(entries, 999usize.div_ceil(16), "a few with each entry");
    assert_eq!(sessions.judge(used, 1, 1), Verdict::Skip(Skipped::Answered(Some(put_at(2)))));
    assert_eq!(sessions.register(next, Order::Strict), Ok(()));
}

#[test]
fn a_session_ends_after_the_idle_time_and_nothing_of_it_is_executed_again() {
    let (mut sessions, id) = registered(Order::Strict);
    let idle = sessions.settings().idle;
    execute(&mut sessions, id, 1, 1, &put_at(2));
    let tick = Duration::from_millis(1);
    sessions.advance(idle - tick);
    assert!(sessions.keep_alive(id, 1));
    sessions.advance(idle * 2 - tick);
    assert_eq!(sessions.judge(id, 1, 1), Verdict::Skip(Skipped::Answered(Some(put_at(2)))), "no sooner");
    sessions.advance(idle * 3 - tick + SECOND);
    let expired = Verdict::Skip(Skipped::Refused(SessionError::Expired));
    assert_eq!((sessions.judge(id, 1, 1), sessions.judge(id, 2, 2)), (expired.clone(), expired));
    assert_eq!((sessions.count(), sessions.bytes()), (0, 0));
}

#[test]
fn a_session_in_use_outlives_a_shorter_idle_time() {
    let (mut sessions, id) = registered(Order::Strict);
    let last_use = SECOND * 200;
    for seconds in 0..=200 {
        sessions.advance(SECOND * seconds);
        assert!(sessions.keep_alive(id, 1));
    }
    sessions.set(Settings { idle: SECOND * 2, ..sessions.settings() });
    sessions.advance(last_use + SECOND * 2 - Duration::from_millis(1));
    assert!(sessions.keep_alive(id, 1), "it was used within two seconds");
    sessions.advance(last_use + SECOND * 5);
    assert!(!sessions.keep_alive(id, 1));
}

/// Any change of these bytes is a new version of the format. [docs/formats/sessions.md]
#[test]
fn the_format_is_as_it_was() {
    let mut sessions = Sessions::default();
    sessions.set(Settings { idle: SECOND * 100, sessions_max: 9 });
    sessions.advance(Duration::from_millis(7));
    for (number, order) in [(3, Order::Strict), (4, Order::Any), (5, Order::Strict)] {
        sessions.register(SessionId { number, secret: number << 8 }, order).expect("there is room");
    }
    let any = SessionId { number: 4, secret: 4 << 8 };
    execute(&mut sessions, any, 2, 1, &put_at(2));
    execute(&mut sessions, any, 4, 2, &Err(Error::KeyNotFound));
    sessions.keep(4, 5, &put_at(0), true);
    let digest = sessions.digest().to_le_bytes();
    let mut idle = Vec::new();
    kattu_kv::command::write_number(100_000, &mut idle);
    let secret = |number: u8| [0, number, 0, 0, 0, 0, 0, 0];
    let expected = [
        &[7][..],
        &idle,
        &[9],
        &digest,
        &[3],
        &[0, 3],
        &secret(3),
        &[7, 1, 0, 0],
        &[0, 5],
        &secret(5),
        &[7, 1, 0, 0],
        &[3, 4],
        &secret(4),
        &[7, 2, 5, 3],
        &[0, 0, 4],
        &[2, 1, 1, 2],
        &[3, 2],
    ]
    .concat();
    assert_eq!(bytes(&sessions), expected);
}
