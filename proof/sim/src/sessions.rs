//! Sessions: clients whose commands are executed once, however often they are sent.
//!
//! ```text
//!   caller ─ register ─▶ id ─ commands 1, 2, 3, … ──▶ members, one or several at once, again and again
//!             ▲                  │ answer: final, in the history        └── those that are over, too
//!             └──── expired ◀────┘
//! ```
//! A caller has some commands under way, each of a client of its own in the history: invoked when it is first sent,
//! ended by its answer, open if its session expires first. So a command that was executed twice is a change that nobody
//! asked for, and the judges of histories see it. Here is judged what no history shows:
//!
//! 1. A command that is repeated has the answer that it had.
//! 2. An answer that the caller does not have is not taken for acknowledged, and no session falls back behind it.
//! 3. No session expires that was used within the idle time; none obeys a caller that does not know its secret.
//!
//! Some ask for weak answers ([`crate::ledger`]): mostly the leader, which alone gives them.
//!
//! Knows nothing of: the table of sessions, members' internals.

use crate::clients::told;
use crate::clock::{MS, SEC};
use crate::dice::Dice;
use crate::ledger::Ledger;
use crate::plan::Plan;
use crate::report::Violation;
use crate::world::{Event, World};
use kattu_kv::sessions::{Order, SessionError, SessionId, Settings};
use kattu_node::command::{encode_kv, request};
use kattu_node::contract::{Doubt, Outcome, Refusal, Reply, ReplyBody, Request};
use kattu_node::session::{SessionCommand, SessionHeader};
use kattu_raft::Duration;
use kattu_verify::convert;
use kattu_verify::history::{Compare, How, Operation, Target, What};
use std::collections::{BTreeMap, VecDeque};

/// Requests of sessions are numbered from here on, and so are their operations in the history.
pub(crate) const SESSIONS_FROM: u64 = 1 << 41;
/// Numbers of their clients in the history.
const CLIENTS_FROM: u32 = 6_000_000;
/// Commands that are over and may be sent again.
const PAST_MAX: usize = 64;
/// The idle times that callers set, and the times for which they are silent.
const IDLE: (u64, u64) = (2 * SEC, 60 * SEC);
/// No idle time was set so far: it is far longer than a storm.
const UNSET: u64 = u64::MAX;
/// A command that is refused so often is given up with its session.
const TRIES_MAX: u32 = 60;

/// A command without an answer so far.
#[derive(Clone, Debug)]
struct Open {
    client: u32,
    operation: Operation,
    /// Its number in the history.
    id: u64,
    tries: u32,
}

/// A command that is over.
#[derive(Clone, Debug)]
struct Past {
    id: SessionId,
    number: u64,
    first_unacked: u64,
    operation: Operation,
    what: What,
    /// When its answer came.
    ended: u64,
}

#[derive(Debug)]
struct Caller {
    session: Option<SessionId>,
    order: Order,
    /// The number of its next command.
    next: u64,
    open: BTreeMap<u64, Open>,
    past: VecDeque<Past>,
    /// When the newest request was sent that the session has answered.
    used: u64,
    /// It has asked for the session's end.
    is_closing: bool,
    /// It is silent until then.
    silent_until: u64,
}

/// What was sent, for its answer.
#[derive(Debug)]
struct Sent {
    caller: usize,
    at: u64,
    what: Message,
}

#[derive(Debug)]
enum Message {
    Register(Order),
    /// A command, with the first number that had no answer when it was sent.
    Command {
        id: SessionId,
        number: u64,
        first_open: u64,
    },
    /// A sign of life, or the end of a session.
    About(SessionId),
    /// Of a caller that does not know the secret.
    Stranger,
    Set,
}

/// All callers.
pub(crate) struct Sessions {
    dice: Dice,
    clients: u32,
    keys: u64,
    rest: u64,
    callers: Vec<Caller>,
    sent: BTreeMap<u64, Sent>,
    /// Chance for weak writes; `None` without them.
    weak: Option<Dice>,
    pub(crate) ledger: Ledger,
    number: u64,
    /// The shortest idle time that was ever set.
    idle: u64,
}

impl Sessions {
    pub(crate) fn new(plan: &Plan) -> Sessions {
        let mut dice = Dice::new(plan.seed, "sessions");
        let count = if plan.load.callers { dice.within(1, 3) } else { 0 };
        let caller = |_| Caller {
            session: None,
            order: Order::Strict,
            next: 1,
            open: BTreeMap::new(),
            past: VecDeque::new(),
            used: 0,
            is_closing: false,
            silent_until: 0,
        };
        let (mut clients, mut rest) = (dice.within(1, 4), dice.log_within(20 * MS, SEC));
        let mut weak = plan.load.weak.then(|| Dice::new(plan.seed, "weak writes"));
        if let Some(dice) = &mut weak {
            // Enough of them that leaders end with some under way.
            (clients, rest) = (dice.within(4, 16), dice.log_within(MS, 100 * MS));
        }
        Sessions {
            clients: clients as u32,
            keys: plan.load.keys,
            rest,
            callers: (0..count).map(caller).collect(),
            sent: BTreeMap::new(),
            weak,
            ledger: Ledger::default(),
            number: SESSIONS_FROM,
            idle: UNSET,
            dice,
        }
    }

    /// How many callers there are.
    pub(crate) fn callers(&self) -> usize {
        self.callers.len()
    }

    fn rest(&mut self) -> u64 {
        self.dice.within(self.rest / 4, self.rest)
    }

    fn key(&mut self) -> String {
        format!("k{}", self.dice.below(self.keys))
    }

    /// A command that writes. Each has a value of its own.
    fn operation(&mut self) -> Operation {
        let value = format!("s{}", self.number - SESSIONS_FROM);
        match self.dice.below(8) {
            0 => Operation::Delete { key: self.key(), end: String::new() },
            1 | 2 => {
                let (key, other) = (self.key(), self.key());
                let compare = Compare {
                    key: key.clone(),
                    how: How::Greater,
                    target: Target::Version(self.dice.below(3) as i64),
                };
                let read = Operation::Range {
                    key: key.clone(),
                    end: String::new(),
                    revision: 0,
                    limit: 0,
                    count_only: self.dice.one_in(2),
                    serializable: false,
                };
                Operation::Txn {
                    compare: vec![compare],
                    then: vec![read, Operation::Put { key: other, value: value.clone() }],
                    otherwise: vec![Operation::Put { key, value }],
                }
            }
            _ => Operation::Put { key: self.key(), value },
        }
    }
}

impl Caller {
    fn first_open(&self) -> u64 {
        self.open.keys().next().copied().unwrap_or(self.next)
    }
}

/// The request for a command in a session.
fn ask(operation: &Operation, header: SessionHeader) -> Request {
    let convert::Request::Command(command) = convert::to_request(operation) else {
        unreachable!("a command that only reads: {operation:?}")
    };
    let bytes = header.around(&encode_kv(&command));
    request(command, bytes)
}

fn wrong(story: String) -> Result<(), Violation> {
    Err(Violation::new("exactly_once", story))
}

impl World {
    /// Plans the first turn of each caller.
    pub(crate) fn begin_sessions(&mut self) {
        for caller in 0..self.sessions.callers() {
            let at = self.sessions.rest();
            self.sh.queue.plan(at, Event::Session { caller });
        }
    }

    /// A caller does one thing.
    pub(crate) fn on_session(&mut self, caller: usize) -> Result<(), Violation> {
        if self.calm && self.sessions.ledger.open().is_empty() {
            return Ok(());
        }
        let rest = self.sessions.rest();
        self.sh.queue.plan(self.sh.now + rest, Event::Session { caller });
        if self.calm {
            // What was weakly answered is brought to an end.
            let Some(id) = self.sessions.callers[caller].session else { return Ok(()) };
            let first = self.sessions.callers[caller].first_open();
            return self.send_open(caller, id, first);
        }
        if self.sh.now < self.sessions.callers[caller].silent_until {
            return Ok(());
        }
        let Some(id) = self.sessions.callers[caller].session else {
            let order = if self.sessions.dice.one_in(4) { Order::Any } else { Order::Strict };
            let secret = self.sessions.dice.roll();
            let command = SessionCommand::Register { secret, order };
            return self.say(caller, Message::Register(order), Request::Write(command.encode().into()));
        };
        if self.sessions.weak.as_mut().is_some_and(|dice| !dice.one_in(3)) {
            return self.command(caller, id);
        }
        match self.sessions.dice.below(32) {
            0..2 => {
                let first_unacked = self.sessions.callers[caller].first_open();
                let command = SessionCommand::KeepAlive(vec![(id, first_unacked)]);
                self.say(caller, Message::About(id), Request::Write(command.encode().into()))
            }
            2..6 => self.repeat_past(caller),
            6 => self.call_as_a_stranger(caller, id),
            7 if self.sessions.dice.one_in(8) => {
                self.sessions.callers[caller].is_closing = true;
                let command = SessionCommand::Close(vec![id]);
                self.say(caller, Message::About(id), Request::Write(command.encode().into()))
            }
            // Without it sessions would outlive the storm.
            drawn if drawn == 8 || self.sessions.idle == UNSET => {
                let idle = self.sessions.dice.log_within(IDLE.0, IDLE.1);
                self.sessions.idle = self.sessions.idle.min(idle);
                let few = self.sessions.dice.within(1, 4);
                let sessions_max = if self.sessions.dice.one_in(2) { few } else { 1000 };
                let settings = Settings { idle: Duration::from_millis(idle / MS), sessions_max };
                let command = SessionCommand::Set(settings);
                self.say(caller, Message::Set, Request::Write(command.encode().into()))
            }
            9 if self.sessions.dice.one_in(3) => {
                let silence = self.sessions.dice.log_within(IDLE.0 / 2, IDLE.1 * 2);
                self.sessions.callers[caller].silent_until = self.sh.now + silence;
                Ok(())
            }
            10..18 => self.repeat(caller, id),
            _ => self.command(caller, id),
        }
    }

    /// Sends the next command, if not too many are under way.
    fn command(&mut self, caller: usize, id: SessionId) -> Result<(), Violation> {
        let clients = self.sessions.clients;
        let first_client = CLIENTS_FROM + caller as u32 * clients;
        let of = &self.sessions.callers[caller];
        let is_free = |client: &u32| of.open.values().all(|open| open.client != *client);
        let Some(client) = (first_client..first_client + clients).find(is_free) else {
            return self.repeat(caller, id);
        };
        let skipped = match of.order {
            Order::Strict => 0,
            Order::Any => self.sessions.dice.below(3),
        };
        let operation = self.sessions.operation();
        self.sessions.number += 1;
        let history_id = self.sessions.number;
        let of = &mut self.sessions.callers[caller];
        let number = of.next + skipped;
        of.next = number + 1;
        of.open.insert(number, Open { client, operation: operation.clone(), id: history_id, tries: 0 });
        let what = What::Invoke { member: 0, operation, level: None };
        self.clients.record_in_session(self.sh.now, client, history_id, what);
        self.send_open(caller, id, number)
    }

    /// Sends a command again that has no answer so far, now and then to several members at once.
    fn repeat(&mut self, caller: usize, id: SessionId) -> Result<(), Violation> {
        let numbers: Vec<u64> = self.sessions.callers[caller].open.keys().copied().collect();
        if numbers.is_empty() {
            return Ok(());
        }
        // Mostly the first: a strict session waits for it.
        let place =
            if self.sessions.dice.one_in(3) { self.sessions.dice.below(numbers.len() as u64) } else { 0 };
        for _ in 0..self.sessions.dice.within(1, 2) {
            self.send_open(caller, id, numbers[place as usize])?;
        }
        Ok(())
    }

    fn send_open(&mut self, caller: usize, id: SessionId, number: u64) -> Result<(), Violation> {
        let of = &mut self.sessions.callers[caller];
        let first_open = of.first_open();
        let Some(open) = of.open.get_mut(&number) else { return Ok(()) };
        open.tries += 1;
        if TRIES_MAX < open.tries {
            return self.give_up(caller);
        }
        let header = SessionHeader { id, number, first_unacked: first_open };
        let is_strict = of.order == Order::Strict;
        let asks = ask(&open.operation, header);
        let may_be_weak = is_strict && !matches!(open.operation, Operation::Txn { .. });
        let is_weak = may_be_weak && self.sessions.weak.as_mut().is_some_and(|dice| !dice.one_in(4));
        let asks = match asks {
            Request::Write(bytes) if is_weak => Request::Weak(bytes),
            asks => asks,
        };
        self.say(caller, Message::Command { id, number, first_open }, asks)
    }

    /// Sends a command again that is over, maybe in a session that is over.
    fn repeat_past(&mut self, caller: usize) -> Result<(), Violation> {
        let count = self.sessions.callers[caller].past.len() as u64;
        if count == 0 {
            return Ok(());
        }
        let place = self.sessions.dice.below(count) as usize;
        let Past { id, number, first_unacked, operation, .. } =
            self.sessions.callers[caller].past[place].clone();
        let header = SessionHeader { id, number, first_unacked };
        self.say(caller, Message::Command { id, number, first_open: first_unacked }, ask(&operation, header))
    }

    fn call_as_a_stranger(&mut self, caller: usize, id: SessionId) -> Result<(), Violation> {
        let id = SessionId { secret: id.secret ^ 1, ..id };
        let number = self.sessions.callers[caller].next;
        let operation = Operation::Put { key: "stranger".into(), value: "never".into() };
        let asks = match self.sessions.dice.below(3) {
            0 => Request::Write(SessionCommand::Close(vec![id]).encode().into()),
            _ => ask(&operation, SessionHeader { id, number, first_unacked: number }),
        };
        self.say(caller, Message::Stranger, asks)
    }

    /// Sends a request to any member that is up.
    fn say(&mut self, caller: usize, what: Message, asks: Request) -> Result<(), Violation> {
        let up = self.up();
        if up.is_empty() {
            return Ok(());
        }
        let mut member = up[self.sessions.dice.below(up.len() as u64) as usize];
        if let Some(dice) = &mut self.sessions.weak
            && !dice.one_in(32)
        {
            let leads = |&member: &usize| {
                self.members[member].process.as_ref().is_some_and(|p| p.node().raft().is_leader())
            };
            member = up.iter().copied().find(leads).unwrap_or(member);
        }
        self.sessions.number += 1;
        let number = self.sessions.number;
        let is_weak = matches!(asks, Request::Weak(_));
        let process = self.members[member].process.as_mut().expect("it is up");
        if process.call(number, asks).is_ok() {
            let run = self.members[member].run;
            self.sessions.sent.insert(number, Sent { caller, at: self.sh.now, what });
            if is_weak {
                self.sessions.ledger.asks(number);
                self.sh.counts.weak_asked += 1;
            }
            self.sh.queue.plan(self.sh.now, Event::Wake { member, run });
        }
        Ok(())
    }

    /// A request of a caller was answered, or never will be.
    pub(crate) fn session_answered(&mut self, number: u64, outcome: Outcome) -> Result<(), Violation> {
        if let Outcome::Received(entry) = outcome {
            // Its connection may have ended meanwhile.
            let Some(Sent { caller, what: Message::Command { id, number: of, .. }, .. }) =
                self.sessions.sent.get(&number)
            else {
                return Ok(());
            };
            self.sh.trace.mix(number << 8 ^ 78);
            let is_open = self.sessions.callers[*caller].is_open(*id, *of);
            let name = (id.number, *of);
            return match is_open {
                true => self.sessions.ledger.received(number, name, entry, &mut self.sh.counts),
                false => Ok(()), // another sending was faster
            };
        }
        let Some(Sent { caller, at, what }) = self.sessions.sent.remove(&number) else { return Ok(()) };
        self.sh.trace.mix(number << 8 ^ 77);
        if let Message::Command { id, number: of, .. } = &what {
            self.sessions.ledger.ended(number, (id.number, *of), &outcome, &mut self.sh.counts)?;
        }
        match what {
            Message::Register(order) => self.registered(caller, order, &outcome),
            Message::Command { id, number, first_open } => {
                self.command_answered(caller, at, (id, number, first_open), outcome)
            }
            Message::About(id) => {
                let Outcome::Done(Reply { body: ReplyBody::Named { gone, .. }, .. }) = outcome else {
                    return Ok(());
                };
                match gone.is_empty() {
                    true => self.sessions.callers[caller].used_at(id, at),
                    false => self.expired(caller, id)?,
                }
                Ok(())
            }
            Message::Stranger => match outcome {
                Outcome::Done(Reply { body: ReplyBody::Kv(_), .. }) => {
                    wrong(format!("caller {caller}: a command without the session's secret was executed"))
                }
                Outcome::Done(Reply { body: ReplyBody::Named { gone, .. }, .. }) if gone.is_empty() => {
                    wrong(format!("caller {caller}: a session was closed without its secret"))
                }
                _ => Ok(()),
            },
            Message::Set => Ok(()),
        }
    }

    fn registered(&mut self, caller: usize, order: Order, outcome: &Outcome) -> Result<(), Violation> {
        let Outcome::Done(Reply { body: ReplyBody::Registered { id, .. }, .. }) = outcome else {
            return Ok(());
        };
        let of = &mut self.sessions.callers[caller];
        if of.session.is_none() {
            self.sh.counts.sessions += 1;
            (of.session, of.order, of.next) = (Some(*id), order, 1);
            (of.used, of.is_closing) = (0, false);
        }
        Ok(())
    }

    fn command_answered(
        &mut self,
        caller: usize,
        at: u64,
        (id, number, first_open): (SessionId, u64, u64),
        outcome: Outcome,
    ) -> Result<(), Violation> {
        let of = &mut self.sessions.callers[caller];
        let is_open = of.is_open(id, number);
        let past = of.past.iter().find(|past| (past.id, past.number) == (id, number));
        let was_executed = past.is_some_and(|past| past.ended < at);
        let about = format!("caller {caller}, session {}, command {number}", id.number);
        let what = match outcome {
            Outcome::Received(_) => unreachable!("it is no end"),
            Outcome::Done(Reply { body: ReplyBody::SessionError(error), .. }) => {
                return match error {
                    SessionError::Expired => self.expired(caller, id),
                    SessionError::Stale if is_open => {
                        wrong(format!("{about}: taken for acknowledged, but its answer never came"))
                    }
                    SessionError::OutOfOrder { expected } if was_executed => {
                        wrong(format!("{about}: expected is {expected}, but this one was executed"))
                    }
                    SessionError::OutOfOrder { expected } if number <= expected => {
                        wrong(format!("{about}: expected is {expected}, but this one was never executed"))
                    }
                    SessionError::OutOfOrder { expected } if expected < first_open => wrong(format!(
                        "{about}: expected is {expected}, but all below {first_open} had their answers"
                    )),
                    _ => Ok(()),
                };
            }
            Outcome::Done(Reply { body: ReplyBody::KvError(kattu_kv::api::Error::TooMuchWork), .. }) => {
                What::Refused { reason: "TooMuchWork".into() }
            }
            Outcome::Unknown(Doubt::AnswerTooLarge) => {
                What::Unknown { reason: "its answer is too large".into() }
            }
            Outcome::Done(reply) => told(Outcome::Done(reply)),
            Outcome::Refused(Refusal::TooMuchWork) if is_open => {
                // A number that is never used would stop a strict session.
                return self.give_up(caller);
            }
            Outcome::Refused(_) | Outcome::Unknown(_) => return Ok(()),
        };
        if let Some(past) = past {
            if past.what != what {
                return wrong(format!("{about}: answered {what:?}, and before {:?}", past.what));
            }
            self.sh.counts.repeated += 1;
        }
        self.sessions.callers[caller].used_at(id, at);
        if is_open {
            self.sessions.ledger.strong((id.number, number));
            self.end(caller, id, number, what);
        }
        Ok(())
    }

    /// A command has its answer.
    fn end(&mut self, caller: usize, id: SessionId, number: u64, what: What) {
        let of = &mut self.sessions.callers[caller];
        let (first_unacked, ended) = (of.first_open(), self.sh.now);
        let Some(Open { client, operation, id: history_id, .. }) = of.open.remove(&number) else { return };
        of.past.push_back(Past { id, number, first_unacked, operation, what: what.clone(), ended });
        if PAST_MAX < of.past.len() {
            of.past.pop_front();
        }
        self.clients.record_in_session(self.sh.now, client, history_id, what);
    }

    /// A session is not there.
    fn expired(&mut self, caller: usize, id: SessionId) -> Result<(), Violation> {
        let of = &mut self.sessions.callers[caller];
        if of.session != Some(id) {
            return Ok(());
        }
        // Clocks gain a third at most; and a session that was never used ends sooner.
        let unused = self.sh.now - of.used;
        if of.used != 0 && unused < self.sessions.idle / 2 && !of.is_closing {
            let (unused, idle) = (unused / MS, self.sessions.idle / MS);
            return wrong(format!(
                "caller {caller}: session {} expired after {unused} ms without use, the idle time is {idle} ms",
                id.number
            ));
        }
        self.sh.counts.expired += 1;
        self.give_up(caller)
    }

    /// The session of a caller is over: what becomes of its open commands cannot be learnt any more.
    fn give_up(&mut self, caller: usize) -> Result<(), Violation> {
        if let Some(id) = self.sessions.callers[caller].session.take() {
            self.sessions.ledger.gone(id.number, &mut self.sh.counts);
        }
        for (_, Open { client, id, .. }) in std::mem::take(&mut self.sessions.callers[caller].open) {
            let what = What::Unknown { reason: "the session is over".into() };
            self.clients.record_in_session(self.sh.now, client, id, what);
        }
        Ok(())
    }
}

impl Caller {
    fn is_open(&self, id: SessionId, number: u64) -> bool {
        self.session == Some(id) && self.open.contains_key(&number)
    }

    /// The session has answered a request that was sent then.
    fn used_at(&mut self, id: SessionId, at: u64) {
        if self.session == Some(id) {
            self.used = self.used.max(at.max(1));
        }
    }
}
