//! Sessions: which commands of each client were executed, and with which answers.
//!
//! ```text
//!    acknowledged          kept                       not yet
//!   ├ … dropped … ┼ answer ┼ answer ┼ answer ┤ expected ─ ─ ─ ▶
//!                 first                  last
//! ```
//!
//! A client numbers the commands of its session from 1 and repeats each until it has the answer; the table lets each number
//! be executed once. With each command the client says which answers it has: those are dropped.
//!
//! In:    commands about sessions in log order, and with every entry the log's clock.
//! Out:   a verdict for each: execute it, or the answer that it has had, or why it is not executed.
//! Rules: 1. Nothing here depends on more than the log: each member comes to the same verdicts. [replication-protocols
//!           X3, X5]
//!        2. A session that is gone executes nothing more: a repetition after it must not become a second execution.
//!        3. No session ends to make room for another. [replication-protocols X7]
//!        4. A session ends when no entry has named it for as long as [`Settings::idle`], by the log's clock; up to a
//!           second later. One that has never been used ends after [`UNUSED`].
//!
//! ```
//! use kattu_kv::api::{Answer, Response, Revision};
//! use kattu_kv::sessions::{Order, SessionError, SessionId, Sessions, Skipped, Verdict};
//!
//! let mut sessions = Sessions::default();
//! let id = SessionId { number: 7, secret: 42 };
//! sessions.register(id, Order::Strict).unwrap();
//! assert_eq!(sessions.judge(id, 1, 1), Verdict::Execute);
//! let answer = Ok(Response { revision: Revision(2), answer: Answer::Put { prev_kv: None } });
//! sessions.keep(id.number, 1, &answer, false);
//! assert_eq!(sessions.judge(id, 1, 1), Verdict::Skip(Skipped::Answered(Some(answer))), "the same command again");
//! assert_eq!(sessions.judge(id, 9, 2), Verdict::Skip(Skipped::Refused(SessionError::OutOfOrder { expected: 2 })));
//! ```
//! Knows nothing of: logs, members, connections, the commands themselves.

mod dump;

pub use dump::{Dump, Loader};

use crate::answer;
use crate::api::{Answer, Error, Key, Response, Revision};
use crate::digest::then;
use crate::hash::Hasher;
use crate::index::{Index, Weigh};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::ControlFlow;
use core::time::Duration;

/// Commands of one session that may be without an acknowledged answer.
pub const WINDOW: u64 = 4096;

/// Counted for each kept answer besides its bytes.
const KEPT_BYTES: u64 = 32;

/// Most bytes of kept answers of one session.
pub const SESSION_BYTES_MAX: u64 = 1 << 20;

/// Most bytes of kept answers of all sessions together, beyond [`SHARE_BYTES`] for each.
pub const ALL_BYTES_MAX: u64 = 256 << 20;

/// Bytes of kept answers that each session may have, however many all others have.
pub const SHARE_BYTES: u64 = 8 * KEPT_BYTES;

/// Most sessions that one command names: each is work, and a step of the apply executor has a bound.
pub const NAMED_MAX: usize = 32;

/// How long a session may be unused after it was registered, by the log's clock: a client that registers has a command.
/// So a flood of registrations is over soon.
pub const UNUSED: Duration = Duration::from_secs(60);

/// Sessions that may end with one entry, of those that are idle and of those that were never used: no single entry stalls.
const ENDS_PER_ENTRY: usize = 16;

/// A session moves to the back of its list when it is used after so many milliseconds, not with each command. No part of
/// the idle time, which may become shorter: a session in use would be over.
const MOVES_EVERY: u64 = 1000;

/// The name of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SessionId {
    /// The log index at which it was registered.
    pub number: u64,
    /// Random: a caller without it can neither use nor end the session.
    pub secret: u64,
}

/// How the commands of a session are ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Order {
    /// By their numbers, without a gap.
    #[default]
    Strict,
    /// In any order, up to [`WINDOW`] numbers beyond the first that is not acknowledged.
    Any,
}

/// What is true of all sessions of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// How long a session lasts without a command or a sign of life, by the log's clock; whole milliseconds.
    pub idle: Duration,
    /// Most sessions.
    pub sessions_max: u64,
}

impl Settings {
    /// The shortest idle time.
    pub const IDLE_MIN: Duration = Duration::from_secs(1);
    /// The longest: a year.
    pub const IDLE_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

    /// Whether these settings are within their bounds.
    #[must_use]
    pub fn are_valid(&self) -> bool {
        let is_whole = self.idle == Duration::from_millis(self.idle_millis());
        is_whole && (Settings::IDLE_MIN..=Settings::IDLE_MAX).contains(&self.idle)
    }

    /// The idle time in milliseconds, the unit of the log's clock.
    #[must_use]
    pub fn idle_millis(&self) -> u64 {
        millis(self.idle)
    }
}

impl Default for Settings {
    /// An hour, a million sessions.
    fn default() -> Settings {
        Settings { idle: Duration::from_secs(3600), sessions_max: 1_000_000 }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Why a command about a session has had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SessionError {
    /// There is no such session, or no longer: the fate of its unanswered commands cannot be learnt.
    Expired,
    /// The number is not the next, or not within the window.
    OutOfOrder {
        /// The next number; where any order will do, the highest that is accepted now.
        expected: u64,
    },
    /// The client has said that it has this answer: it is gone.
    Stale,
    /// Too many answers are kept: acknowledge some first.
    TooManyAnswers,
    /// There are as many sessions as there may be.
    TooManySessions,
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SessionError::Expired => f.write_str("session expired: register a new one"),
            SessionError::OutOfOrder { expected } => {
                write!(f, "sequence number out of order, expected {expected}")
            }
            SessionError::Stale => f.write_str("the answer of this sequence number was acknowledged before"),
            SessionError::TooManyAnswers => {
                f.write_str("too many answers of this session are kept: acknowledge some first")
            }
            SessionError::TooManySessions => f.write_str("too many sessions: try again later"),
        }
    }
}

impl core::error::Error for SessionError {}

/// What is to be done with a command of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Execute it, then [`Sessions::keep`] its answer, before anything else.
    Execute,
    /// Do not execute it.
    Skip(Skipped),
}

/// Why a command is not executed now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Skipped {
    /// It was executed before, with this answer; `None` if that was too large to be kept.
    Answered(Option<Result<Response, Error>>),
    /// It may not be executed.
    Refused(SessionError),
}

/// What has become of a command. [`Sessions::once`]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Once {
    /// It was executed now, with this result.
    Executed {
        /// Its result; it is kept, unless it is too large.
        result: Result<Response, Error>,
        /// The number up to which every command of the session is executed.
        strong: u64,
    },
    /// It was not executed now.
    Skipped(Skipped),
}

/// An answer that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kept {
    /// Of a put without a previous pair: most are.
    Put(Revision),
    /// In bytes. [`answer`]
    Whole(Arc<[u8]>),
    TooLarge,
}

impl Kept {
    fn of(result: &Result<Response, Error>) -> Kept {
        match result {
            Ok(Response { revision, answer: Answer::Put { prev_kv: None } }) => Kept::Put(*revision),
            _ => {
                let mut bytes = Vec::new();
                answer::encode(result, &mut bytes);
                Kept::Whole(Arc::from(bytes))
            }
        }
    }

    fn result(&self) -> Option<Result<Response, Error>> {
        match self {
            Kept::Put(revision) => {
                Some(Ok(Response { revision: *revision, answer: Answer::Put { prev_kv: None } }))
            }
            Kept::Whole(bytes) => Some(answer::decode(bytes).expect("the loader and `keep` have checked it")),
            Kept::TooLarge => None,
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Kept::Whole(bytes) => KEPT_BYTES + bytes.len() as u64,
            Kept::Put(_) | Kept::TooLarge => KEPT_BYTES,
        }
    }
}

type Answers = VecDeque<(u64, Kept)>;

/// One session.
///
/// Invariant: an answer is kept for each number from `first` on that was executed, and for no other; of a strict session
/// these are `first..=last`.
#[derive(Clone, Debug, Default)]
struct Session {
    secret: u64,
    order: Order,
    /// It has had a command or a sign of life.
    is_used: bool,
    /// The log's clock when it was put at the back of its list, in milliseconds.
    seen: u64,
    /// The sessions around it in its list; 0 for none.
    older: u64,
    newer: u64,
    /// The first number whose answer is not acknowledged.
    first: u64,
    /// The highest number executed.
    last: u64,
    /// Of its kept answers.
    bytes: u64,
    /// By ascending number; shared with copies of the table.
    answers: Option<Arc<Answers>>,
}

impl Weigh for Session {
    fn weight(&self) -> u64 {
        1
    }
}

impl Session {
    fn answer(&self, number: u64) -> Option<&Kept> {
        let answers = self.answers.as_ref().filter(|_| number <= self.last)?; // mostly it is new
        let place = answers.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        answers.get(place).map(|(_, kept)| kept)
    }

    /// The number up to which every command is executed, or was given up by the client.
    fn strong(&self) -> u64 {
        let Some(answers) = &self.answers else { return self.first - 1 };
        let is_gapless = |count: usize| match count.checked_sub(1).map(|place| answers[place].0) {
            None => true,
            Some(number) => number - self.first == count as u64 - 1,
        };
        let (mut gapless, mut beyond) = (0, answers.len() + 1);
        if is_gapless(answers.len()) {
            gapless = answers.len(); // always so in a strict session
        }
        while gapless + 1 < beyond {
            let between = gapless + (beyond - gapless) / 2;
            if is_gapless(between) { gapless = between } else { beyond = between }
        }
        self.first - 1 + gapless as u64
    }

    /// Whether a command is to be executed, if all sessions keep answers of so many bytes.
    fn verdict(&self, number: u64, all: u64) -> Verdict {
        if number < self.first {
            return Verdict::Skip(Skipped::Refused(SessionError::Stale));
        }
        if let Some(kept) = self.answer(number) {
            return Verdict::Skip(Skipped::Answered(kept.result()));
        }
        let (expected, is_next) = match self.order {
            Order::Strict => (self.last + 1, number == self.last + 1),
            Order::Any => {
                let highest = self.first.saturating_add(WINDOW - 1);
                (highest, number <= highest)
            }
        };
        if !is_next {
            return Verdict::Skip(Skipped::Refused(SessionError::OutOfOrder { expected }));
        }
        let bytes = self.bytes + KEPT_BYTES;
        let is_crowded = ALL_BYTES_MAX < all + KEPT_BYTES && SHARE_BYTES < bytes;
        let has_window = number - self.first < WINDOW;
        if SESSION_BYTES_MAX < bytes || is_crowded || !has_window {
            return Verdict::Skip(Skipped::Refused(SessionError::TooManyAnswers));
        }
        Verdict::Execute
    }

    /// Keeps an answer, unless it is too large beside those of all sessions, which have so many bytes. Returns it as it is
    /// kept.
    fn keep(&mut self, number: u64, answer: Kept, all: u64) -> Kept {
        let is_too_large = matches!(answer, Kept::Whole(_))
            && (SESSION_BYTES_MAX < self.bytes + answer.bytes() || ALL_BYTES_MAX < all + answer.bytes());
        let kept = if is_too_large { Kept::TooLarge } else { answer };
        self.last = self.last.max(number);
        self.bytes += kept.bytes();
        let answers = Arc::make_mut(self.answers.get_or_insert_default());
        let place = match answers.back() {
            Some((last, _)) if number < *last => answers.partition_point(|(other, _)| *other < number),
            _ => answers.len(),
        };
        answers.insert(place, (number, kept.clone()));
        kept
    }

    /// Drops the answers below a number that the client has acknowledged; returns their bytes.
    fn acknowledge(&mut self, first: u64) -> u64 {
        let first = first.min(self.last + 1);
        if first <= self.first {
            return 0;
        }
        self.first = first;
        let Some(answers) = &mut self.answers else { return 0 };
        let count = answers.partition_point(|(number, _)| *number < first);
        let dropped = match count == answers.len() {
            true => {
                self.answers = None; // an idle session keeps no room for answers
                self.bytes
            }
            false => Arc::make_mut(answers).drain(..count).map(|(_, kept)| kept.bytes()).sum(),
        };
        self.bytes -= dropped;
        dropped
    }
}

/// Sessions in the order in which they were seen last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct List {
    /// 0 for none.
    oldest: u64,
    newest: u64,
}

/// All sessions of a cluster. A copy shares its memory with the original and costs next to nothing.
#[derive(Clone, Debug)]
pub struct Sessions {
    index: Index<Session>,
    unused: List,
    used: List,
    settings: Settings,
    /// The newest stamp of an entry, in milliseconds of the log's clock.
    clock: u64,
    /// No session ends before the clock shows this. Not part of the state: 0 is always right.
    ends_after: u64,
    /// Bytes of the kept answers of all sessions.
    bytes: u64,
    digest: u64,
}

impl Default for Sessions {
    fn default() -> Sessions {
        Sessions {
            index: Index::new(),
            unused: List::default(),
            used: List::default(),
            settings: Settings::default(),
            clock: 0,
            ends_after: 0,
            bytes: 0,
            digest: 0,
        }
    }
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

fn number_of(key: &Key) -> u64 {
    key[..].try_into().map_or(0, u64::from_be_bytes)
}

impl Sessions {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.index.entries()
    }

    /// Bytes of all kept answers.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The settings in force.
    #[must_use]
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// A digest of all that was ever done here, updated by each step: equal on all members that applied the same log.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Replaces the settings. A shorter idle time ends sessions with the next entries; a lower maximum ends none.
    ///
    /// # Panics
    /// If they are out of bounds.
    pub fn set(&mut self, settings: Settings) {
        assert!(settings.are_valid(), "settings out of bounds: {settings:?}");
        (self.settings, self.ends_after) = (settings, 0);
        self.mix([-1, settings.idle_millis() as i64, settings.sessions_max as i64]);
    }

    /// An entry is about to be applied that was made at this time of the log's clock: ends sessions that have been idle too
    /// long, a few at a time.
    pub fn advance(&mut self, clock: Duration) {
        self.clock = self.clock.max(millis(clock));
        if self.clock < self.ends_after {
            return;
        }
        let idle = self.settings.idle_millis() + MOVES_EVERY;
        let mut ends_after = u64::MAX;
        for (list, limit) in [(self.unused, millis(UNUSED).min(idle)), (self.used, idle)] {
            let (mut oldest, mut ends) = (list.oldest, 0);
            while let Some((_, session)) = self.index.get(&key(oldest)) {
                let due = session.seen.saturating_add(limit);
                if self.clock < due || ends == ENDS_PER_ENTRY {
                    ends_after = ends_after.min(due);
                    break;
                }
                let next = session.newer;
                self.end(oldest);
                (oldest, ends) = (next, ends + 1);
            }
        }
        self.ends_after = ends_after;
    }

    /// Registers a session under the index of the entry that asks for it.
    ///
    /// # Errors
    /// If there are too many.
    pub fn register(&mut self, id: SessionId, order: Order) -> Result<(), SessionError> {
        if self.settings.sessions_max <= self.count() {
            return Err(SessionError::TooManySessions);
        }
        let SessionId { number, secret } = id;
        self.index.upsert(&key(number), |_, session| {
            *session = Session { secret, order, first: 1, ..Session::default() };
        });
        self.put_last(number);
        self.mix([number as i64, secret as i64, order as i64]);
        Ok(())
    }

    /// Judges a command: `first_unacked` is the first number whose answer the client does not have, and at most `number`.
    pub fn judge(&mut self, id: SessionId, number: u64, first_unacked: u64) -> Verdict {
        let all = self.bytes;
        self.see(id, first_unacked, |session, dropped| session.verdict(number, all - dropped))
            .unwrap_or(Verdict::Skip(Skipped::Refused(SessionError::Expired)))
    }

    /// The highest number executed in a strict session; `None` if there is no such session, or another order.
    #[must_use]
    pub fn last_of(&self, id: SessionId) -> Option<u64> {
        let (_, session) = self.index.get(&key(id.number))?;
        (session.secret == id.secret && session.order == Order::Strict).then_some(session.last)
    }

    /// Keeps the answer of a command that was just executed; `lacks_pairs`: it was too large to be gathered whole. Returns
    /// the number up to which every command of the session is executed.
    ///
    /// # Panics
    /// If there is no such session: it was there when the command was judged, and nothing comes between.
    pub fn keep(
        &mut self,
        session: u64,
        number: u64,
        result: &Result<Response, Error>,
        lacks_pairs: bool,
    ) -> u64 {
        let answer = if lacks_pairs { Kept::TooLarge } else { Kept::of(result) };
        let all = self.bytes;
        let change = |_: &_, session: &mut Session| (session.keep(number, answer, all), session.strong());
        let (kept, strong) = self.index.update(&key(session), change).expect("a session that was judged");
        self.note_kept(session, number, &kept);
        strong
    }

    /// Counts an answer that is kept now.
    fn note_kept(&mut self, session: u64, number: u64, kept: &Kept) {
        self.bytes += kept.bytes();
        let mut hasher = Hasher::new();
        match kept {
            Kept::Put(revision) => hasher.number(revision.0),
            Kept::Whole(bytes) => hasher.bytes(bytes),
            Kept::TooLarge => hasher.number(-1),
        }
        self.mix([session as i64, number as i64, hasher.finish() as i64]);
    }

    /// Judges a command and, if it is to be executed, executes it and keeps its answer: [`Sessions::judge`] and
    /// [`Sessions::keep`] with one look for the session.
    pub fn once(
        &mut self,
        id: SessionId,
        number: u64,
        first_unacked: u64,
        execute: impl FnOnce() -> Result<Response, Error>,
    ) -> Once {
        let all = self.bytes;
        let done = self.see(id, first_unacked, |session, dropped| {
            match session.verdict(number, all - dropped) {
                Verdict::Execute => {}
                Verdict::Skip(skipped) => return (Once::Skipped(skipped), None),
            }
            let result = execute();
            let kept = session.keep(number, Kept::of(&result), all - dropped);
            (Once::Executed { result, strong: session.strong() }, Some(kept))
        });
        let Some((once, kept)) = done else {
            return Once::Skipped(Skipped::Refused(SessionError::Expired));
        };
        if let Some(kept) = kept {
            self.note_kept(id.number, number, &kept);
        }
        once
    }

    /// The number up to which every command of a session is executed; 0 if there is no such session.
    #[must_use]
    pub fn strong(&self, session: u64) -> u64 {
        self.index.get(&key(session)).map_or(0, |(_, session)| session.strong())
    }

    /// A sign of life, with the first number whose answer the client does not have. Returns whether the session is there.
    pub fn keep_alive(&mut self, id: SessionId, first_unacked: u64) -> bool {
        self.see(id, first_unacked, |_, _| ()).is_some()
    }

    /// A session of this id is seen, if there is one: its client has acknowledged all below a number. `look` gets it, with the
    /// bytes of the answers that were dropped.
    fn see<T>(
        &mut self,
        id: SessionId,
        first_unacked: u64,
        look: impl FnOnce(&mut Session, u64) -> T,
    ) -> Option<T> {
        let clock = self.clock;
        let seen = self.index.update(&key(id.number), |_, session| {
            if session.secret != id.secret {
                return None;
            }
            let is_behind = MOVES_EVERY <= clock.saturating_sub(session.seen);
            let moves = !session.is_used || is_behind;
            let acknowledged = session.first < first_unacked;
            let dropped = session.acknowledge(first_unacked);
            Some((look(session, dropped), dropped, moves, acknowledged))
        });
        let (looked, dropped, moves, acknowledged) = seen??;
        self.bytes -= dropped;
        if acknowledged {
            self.mix([id.number as i64, -2, first_unacked as i64]);
        }
        if moves {
            self.take_out(id.number);
            self.index.update(&key(id.number), |_, session| session.is_used = true);
            self.put_last(id.number);
        }
        Some(looked)
    }

    /// Ends a session. Returns whether it was there.
    pub fn close(&mut self, id: SessionId) -> bool {
        let is_there =
            self.index.get(&key(id.number)).is_some_and(|(_, session)| session.secret == id.secret);
        if is_there {
            self.end(id.number);
        }
        is_there
    }

    /// Ends a session without its secret: for operators. Returns whether it was there.
    pub fn expel(&mut self, number: u64) -> bool {
        let is_there = self.index.get(&key(number)).is_some();
        if is_there {
            self.end(number);
        }
        is_there
    }

    /// The numbers of some sessions from one on, ascending, each with the log's time since it was seen last, at most a
    /// second too long.
    #[must_use]
    pub fn list(&self, from: u64, count: usize) -> Vec<(u64, Duration)> {
        let mut found = Vec::new();
        self.index.walk(&key(from), None, false, |key, session| {
            found.push((number_of(key), Duration::from_millis(self.clock.saturating_sub(session.seen))));
            if found.len() < count { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        found
    }

    fn end(&mut self, number: u64) {
        self.take_out(number);
        let ended = self.index.remove(&key(number));
        self.bytes -= ended.map_or(0, |session| session.bytes);
        self.mix([number as i64, -1, self.clock as i64]);
    }

    fn list_of(&mut self, is_used: bool) -> &mut List {
        if is_used { &mut self.used } else { &mut self.unused }
    }

    /// Takes a session out of its list.
    fn take_out(&mut self, number: u64) {
        let Some((_, session)) = self.index.get(&key(number)) else { return };
        let (older, newer, is_used) = (session.older, session.newer, session.is_used);
        self.index.update(&key(older), |_, session| session.newer = newer);
        self.index.update(&key(newer), |_, session| session.older = older);
        let list = self.list_of(is_used);
        if list.oldest == number {
            list.oldest = newer;
        }
        if list.newest == number {
            list.newest = older;
        }
    }

    /// Puts a session that is in no list at the back of its own: it was seen now.
    fn put_last(&mut self, number: u64) {
        let is_used = self.index.get(&key(number)).is_some_and(|(_, session)| session.is_used);
        let (seen, list) = (self.clock, self.list_of(is_used));
        let older = core::mem::replace(&mut list.newest, number);
        if list.oldest == 0 {
            list.oldest = number;
            self.ends_after = 0; // of an empty list it says nothing
        }
        self.index.update(&key(older), |_, session| session.newer = number);
        self.index.update(&key(number), |_, session| {
            (session.older, session.newer, session.seen) = (older, 0, seen);
        });
    }

    fn mix(&mut self, numbers: [i64; 3]) {
        let mut hasher = Hasher::new();
        numbers.into_iter().for_each(|number| hasher.number(number));
        self.digest = then(self.digest, hasher.finish());
    }
}
