//! Pipeline of one session: numbers, answers, and what is to be sent again.
//!
//! ```text
//!     answered, in order      under way                not sent
//!    ├ … dropped … ┼ command ┼ command ┼ command ┼ command ┤ next
//!                  first                         cursor
//! ```
//! In:    commands of the caller; answers in any order; losses.
//! Out:   commands to send, each under its number; answers for those that wait; whether to begin again.
//! Rules: 1. A number belongs to one command for ever: the members execute it once, however often it is sent.
//!        2. A final answer counts, whichever sending it answers. Any other answer counts only if it answers the last
//!           sending of its command: then everything without an answer is sent again, in order, from the first on.
//!        3. A strict session that hears "out of order" sends again from the expected number on. Those below it were
//!           executed: their answers are on their way, or are asked for again when these are lost.
//!        4. A command that a member refuses for good leaves a hole, and no number behind it would be executed. The hole is
//!           filled with a transaction that does nothing. Its answer tells the fate of the command: if it is that of the
//!           filler, the command never had an effect; if it is another one, an earlier sending of the command was executed.
//!        5. When the session is gone, the outcome of each command without an answer is unknown.
//!        6. A weak command asks for a weak answer until it has one. It is kept until it is done, as every other; if it never
//!           is, that is told as its loss.
//!
//! Knows nothing of: connections, members, clocks (times come in).

use crate::error::Error;
use crate::failure::{Failure, Kind};
use crate::native::answer::{self, Answer, Outcome, Outcomes};
use crate::native::caller::{Caller, Teller};
use crate::native::weak::LostWrite;
use kattu_kv::api::{self, Command, Response, Txn};
use kattu_kv::sessions::{Order, SessionError, SessionId};
use kattu_native::reply::Doubt;
use kattu_node::command::{self, encode_kv};
use kattu_node::session::SessionHeader;
use kattu_raft::{EntryId, LogIndex, Term};
use std::collections::VecDeque;
use std::ops::AddAssign;
use std::time::Duration;
use tokio::time::Instant;
use tonic::Code;

/// A command without room of its own any more: so much room in the window is free again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Freed {
    pub(crate) numbers: usize,
    /// KiB.
    pub(crate) kib: usize,
}

impl AddAssign for Freed {
    fn add_assign(&mut self, more: Freed) {
        self.numbers += more.numbers;
        self.kib += more.kib;
    }
}

/// What follows from an answer.
#[derive(Debug)]
pub(crate) enum Step {
    /// Nothing to do.
    On(Freed),
    /// Send from the cursor on; after a pause, if the members could not serve it.
    Again { pauses: bool },
    /// The session is over.
    Over(Error),
}

/// Whether the caller of a command goes on before it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weakly {
    No,
    /// As soon as a quorum has received it.
    Asks,
    /// A quorum has.
    Received,
}

/// What a member has refused for good.
#[derive(Debug)]
struct Refused {
    failure: Failure,
    /// The command, if it was weakly accepted before.
    command: Vec<u8>,
}

/// A command to be sent.
pub(crate) struct Next<'a> {
    pub(crate) header: SessionHeader,
    pub(crate) command: &'a [u8],
    pub(crate) sending: u64,
    /// Its caller wants a weak answer.
    pub(crate) is_weak: bool,
}

#[derive(Debug)]
struct Entry {
    command: Vec<u8>,
    /// Of its room in the window.
    kib: usize,
    caller: Option<Caller>,
    asked_at: Instant,
    /// The sending in which it went out last; 0 before the first.
    sending: u64,
    is_answered: bool,
    weakly: Weakly,
    /// Why a member has refused it for good: since then the command is the filler.
    refused: Option<Box<Refused>>,
}

/// Commands of one session without an answer.
#[derive(Debug)]
pub(crate) struct Pipeline {
    id: SessionId,
    order: Order,
    /// The number of the first entry.
    first: u64,
    entries: VecDeque<Entry>,
    /// The next number to be sent.
    cursor: u64,
    /// Counts up with each new beginning.
    sending: u64,
    /// Callers of all numbers below were told a result, or that it is unknown.
    told: u64,
    /// Sendings of commands that had been sent before.
    repeated: u64,
    /// Writes that were weakly accepted and are lost, to be told.
    lost: Vec<LostWrite>,
    teller: Teller,
}

impl Pipeline {
    pub(crate) fn new(id: SessionId, order: Order) -> Pipeline {
        Pipeline {
            id,
            order,
            first: 1,
            entries: VecDeque::new(),
            cursor: 1,
            sending: 1,
            told: 1,
            repeated: 0,
            lost: Vec::new(),
            teller: Teller::default(),
        }
    }

    /// Whether its commands are executed in the order of their numbers.
    pub(crate) fn is_strict(&self) -> bool {
        self.order == Order::Strict
    }

    /// The first number without an answer.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// The number of the next command.
    pub(crate) fn next(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    /// Callers of all numbers below know what there is to know.
    pub(crate) fn told(&self) -> u64 {
        self.told.max(self.first)
    }

    /// How often a command was sent that had been sent before.
    pub(crate) fn repeated(&self) -> u64 {
        self.repeated
    }

    /// Adds a command behind all others; `is_weak`: its caller wants a weak answer.
    pub(crate) fn add(
        &mut self,
        command: Vec<u8>,
        kib: usize,
        asked_at: Instant,
        caller: Caller,
        is_weak: bool,
    ) {
        self.entries.push_back(Entry {
            command,
            kib,
            caller: Some(caller),
            asked_at,
            sending: 0,
            is_answered: false,
            weakly: if is_weak { Weakly::Asks } else { Weakly::No },
            refused: None,
        });
    }

    /// The next command to send, if there is one.
    pub(crate) fn next_to_send(&mut self) -> Option<Next<'_>> {
        let from = (self.cursor - self.first) as usize;
        let skipped = self.entries.range(from..).take_while(|entry| entry.is_answered).count();
        self.cursor += skipped as u64;
        let entry = self.entries.get_mut(from + skipped)?;
        self.repeated += u64::from(entry.sending != 0);
        entry.sending = self.sending;
        let header = SessionHeader { id: self.id, number: self.cursor, first_unacked: self.first };
        self.cursor += 1;
        let is_weak = entry.weakly == Weakly::Asks && entry.refused.is_none();
        Some(Next { header, command: &entry.command, sending: self.sending, is_weak })
    }

    /// Whether something is to be sent.
    pub(crate) fn has_unsent(&self) -> bool {
        self.cursor < self.next()
    }

    /// Everything without an answer is to be sent again.
    pub(crate) fn begin_again(&mut self) {
        self.begin_from(self.first);
    }

    fn begin_from(&mut self, number: u64) {
        self.sending += 1;
        self.cursor = number.max(self.first);
    }

    /// Callers have been told whatever was found out; nothing is kept back.
    pub(crate) fn tell(&mut self) {
        self.teller.end();
    }

    /// Writes that were weakly accepted and then lost, since it was asked last.
    pub(crate) fn take_lost(&mut self) -> Vec<LostWrite> {
        std::mem::take(&mut self.lost)
    }

    /// A quorum has received a weak command. A caller that was told already that its outcome is unknown hears nothing more.
    fn received(&mut self, number: u64, id: EntryId) {
        let Some(entry) = self.entry(number).filter(|entry| entry.weakly == Weakly::Asks) else { return };
        let Some(caller) = entry.caller.take() else { return };
        entry.weakly = Weakly::Received;
        let waits_on = self.teller.tell_received(caller, id);
        if let Some(entry) = self.entry(number) {
            entry.caller = waits_on;
        }
    }

    /// Takes the answer to a sending of a command. Its caller is told with [`Pipeline::tell`] at the latest.
    pub(crate) fn answered(&mut self, number: u64, sending: u64, answer: Answer, endpoint: &str) -> Step {
        let Answer { index, outcome } = answer;
        if self.entry(number).is_none() {
            return Step::On(Freed::default());
        }
        let is_last = self.is_last(number, sending);
        match outcome {
            Outcome::Done(result) => {
                self.settle(number, result.map_err(Error::Store));
                Step::On(self.advance())
            }
            Outcome::Doubtful(Doubt::AnswerTooLarge, _) => {
                self.settle(number, Err(answer::doubtful(Doubt::AnswerTooLarge, endpoint).into()));
                Step::On(self.advance())
            }
            // The session is not there: it never comes back.
            Outcome::SessionError(error @ SessionError::Expired) => {
                Step::Over(Error::Session { error, kind: Kind::Unknown })
            }
            // True of whichever sending it is, as the command is the same.
            Outcome::Received { term } => {
                self.received(number, EntryId { term: Term(term), index: LogIndex(index) });
                Step::On(Freed::default())
            }
            _ if !is_last => Step::On(Freed::default()),
            Outcome::SessionError(SessionError::OutOfOrder { expected }) => self.expects(expected),
            // An answer is acknowledged only after it was heard here.
            Outcome::SessionError(error @ SessionError::Stale) => {
                Step::Over(Error::Session { error, kind: Kind::Unknown })
            }
            Outcome::SessionError(SessionError::TooManyAnswers | SessionError::TooManySessions) => {
                self.begin_again();
                Step::Again { pauses: true }
            }
            Outcome::Doubtful(..) => {
                self.begin_again();
                Step::Again { pauses: true }
            }
            Outcome::Refused(refusal, _) if answer::is_passing(refusal) => {
                self.begin_again();
                Step::Again { pauses: true }
            }
            Outcome::Refused(refusal, _) => self.refused(number, answer::refused(refusal, endpoint)),
            Outcome::Malformed => self.refused(number, answer::malformed(endpoint)),
            Outcome::Pong | Outcome::Opened { .. } | Outcome::Named { .. } | Outcome::Sessions { .. } => {
                Step::Over(answer::unfitting(endpoint).into())
            }
        }
    }

    /// The connection of a sending was lost.
    pub(crate) fn lost(&mut self, number: u64, sending: u64) -> Step {
        match self.is_last(number, sending) {
            true => {
                self.begin_again();
                Step::Again { pauses: false }
            }
            false => Step::On(Freed::default()),
        }
    }

    /// A command cannot be sent, or is refused, for good.
    pub(crate) fn refused(&mut self, number: u64, failure: Failure) -> Step {
        let Some(entry) = self.entry(number) else { return Step::On(Freed::default()) };
        if entry.refused.is_some() {
            return Step::Over(failure.into()); // not even the filler passes
        }
        let command = std::mem::replace(&mut entry.command, filler());
        entry.refused = Some(Box::new(Refused { failure, command }));
        self.begin_again();
        Step::Again { pauses: false }
    }

    /// Tells the callers of commands that were asked longer ago that their outcome is unknown. The commands go on: without
    /// them nothing behind them could be executed. Returns when the next one is due.
    pub(crate) fn give_up_waiting(&mut self, now: Instant, timeout: Duration) -> Option<Instant> {
        let due = loop {
            let told = self.told();
            let Some(entry) = self.entries.get_mut((told - self.first) as usize) else { break None };
            let due = entry.asked_at + timeout;
            if now < due && !entry.is_answered {
                break Some(due);
            }
            if let Some(caller) = entry.caller.take() {
                let why = "no answer in time; the session goes on repeating it";
                let failure = answer::failure(Kind::Unknown, Code::DeadlineExceeded, why, "");
                self.teller.tell(caller, Err(failure.into()));
            }
            self.told = told + 1;
        };
        self.tell();
        due
    }

    /// Ends all commands.
    pub(crate) fn end(&mut self, error: &Error) {
        let first = self.first;
        self.first = self.next();
        self.cursor = self.first;
        for (place, mut entry) in self.entries.drain(..).enumerate() {
            self.lost.extend(entry.loss(first + place as u64, error));
            if let Some(caller) = entry.caller {
                self.teller.tell(caller, Err(error.clone()));
            }
        }
        self.tell();
    }

    /// The entry of a number, unless that has its answer.
    fn entry(&mut self, number: u64) -> Option<&mut Entry> {
        let place = number.checked_sub(self.first)?;
        self.entries.get_mut(usize::try_from(place).ok()?).filter(|entry| !entry.is_answered)
    }

    /// Whether a number without an answer went out last in this sending, and is not to be sent again already.
    fn is_last(&mut self, number: u64, sending: u64) -> bool {
        number < self.cursor && self.entry(number).is_some_and(|entry| entry.sending == sending)
    }

    fn expects(&mut self, expected: u64) -> Step {
        let error = SessionError::OutOfOrder { expected };
        match self.order {
            Order::Strict if !(self.first..=self.next()).contains(&expected) => {
                // Two clients share the session, or the members have lost what they had answered.
                Step::Over(Error::Session { error, kind: Kind::Unknown })
            }
            Order::Strict => {
                self.begin_from(expected);
                Step::Again { pauses: false }
            }
            Order::Any => {
                self.begin_again();
                Step::Again { pauses: true }
            }
        }
    }

    fn settle(&mut self, number: u64, result: Outcomes) {
        let Some(entry) = self.entry(number) else { return };
        let refused = entry.refused.as_ref().filter(|_| is_of_filler(&result));
        let result = match refused {
            Some(refused) => Err(refused.failure.clone().into()),
            None => result,
        };
        let lost = result.as_ref().err().and_then(|error| entry.loss(number, error));
        entry.is_answered = true;
        entry.command = Vec::new();
        entry.refused = None;
        if let Some(caller) = entry.caller.take() {
            self.teller.tell(caller, result);
        }
        self.lost.extend(lost);
    }

    /// Drops what is answered at the front.
    fn advance(&mut self) -> Freed {
        let mut freed = Freed::default();
        while self.entries.front().is_some_and(|entry| entry.is_answered) {
            let entry = self.entries.pop_front().expect("there is one");
            self.first += 1;
            freed.numbers += 1;
            freed.kib += entry.kib;
        }
        self.cursor = self.cursor.max(self.first);
        freed
    }
}

impl Entry {
    /// The loss of the command, if it was weakly accepted and is not done.
    fn loss(&mut self, number: u64, error: &Error) -> Option<LostWrite> {
        if self.weakly != Weakly::Received || self.is_answered {
            return None;
        }
        let bytes = self.refused.as_ref().map_or(&self.command, |refused| &refused.command);
        match command::Command::decode(bytes) {
            Ok(command::Command::Kv(command)) => Some(LostWrite { number, command, error: error.clone() }),
            other => unreachable!("a weak command is one of the store: {other:?}"),
        }
    }
}

fn filler() -> Vec<u8> {
    encode_kv(&Command::Txn(Txn::default()))
}

fn is_of_filler(result: &Outcomes) -> bool {
    match result {
        Ok(Response { answer: api::Answer::Txn { succeeded: true, answers }, .. }) => answers.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::weak::Accepted;
    use kattu_kv::api::Revision;
    use kattu_native::handshake::Leader;
    use kattu_native::reply::Refusal;
    use tokio::sync::oneshot;

    const ID: SessionId = SessionId { number: 7, secret: 1 };

    type Waiting = Vec<oneshot::Receiver<Outcomes>>;

    fn pipeline(order: Order, count: u64) -> (Pipeline, Waiting) {
        let mut pipeline = Pipeline::new(ID, order);
        let add = |_| {
            let (caller, waits) = oneshot::channel();
            pipeline.add(b"command".to_vec(), 1, Instant::now(), Caller::One(caller), false);
            waits
        };
        let waiting = (0..count).map(add).collect();
        (pipeline, waiting)
    }

    /// Sends all that is to be sent: numbers, and the first unacknowledged of the last.
    fn sent(pipeline: &mut Pipeline) -> (Vec<u64>, u64) {
        let mut first = 0;
        let mut numbers = Vec::new();
        while let Some(Next { header, .. }) = pipeline.next_to_send() {
            first = header.first_unacked;
            numbers.push(header.number);
        }
        (numbers, first)
    }

    fn of(outcome: Outcome) -> Answer {
        Answer { index: 0, outcome }
    }

    fn done(revision: i64) -> Answer {
        let answer = api::Answer::Put { prev_kv: None };
        of(Outcome::Done(Ok(Response { revision: Revision(revision), answer })))
    }

    fn refused(refusal: Refusal) -> Answer {
        of(Outcome::Refused(refusal, Leader::default()))
    }

    fn out_of_order(expected: u64) -> Answer {
        of(Outcome::SessionError(SessionError::OutOfOrder { expected }))
    }

    fn is_on(step: Step, numbers: usize) -> bool {
        matches!(step, Step::On(freed) if freed == Freed { numbers, kib: numbers })
    }

    fn revision(waits: &mut oneshot::Receiver<Outcomes>) -> i64 {
        waits.try_recv().expect("a result").expect("it is done").revision.0
    }

    #[test]
    fn answers_in_any_order_reach_their_callers_and_the_window_moves_with_the_first() {
        let (mut pipeline, mut waiting) = pipeline(Order::Strict, 3);
        assert_eq!(sent(&mut pipeline), (vec![1, 2, 3], 1));
        assert!(is_on(pipeline.answered(3, 1, done(30), ""), 0));
        assert!(is_on(pipeline.answered(1, 1, done(10), ""), 1));
        assert_eq!((pipeline.first(), pipeline.told()), (2, 2));
        assert!(is_on(pipeline.answered(2, 1, done(20), ""), 2));
        assert_eq!(waiting.iter_mut().map(revision).collect::<Vec<_>>(), [10, 20, 30]);
        assert!(is_on(pipeline.answered(2, 1, done(20), ""), 0), "an answer that comes twice");
        assert_eq!((pipeline.first(), pipeline.next()), (4, 4));
    }

    #[test]
    fn what_has_no_answer_goes_out_again_in_order_and_late_news_of_the_first_sending_is_no_news() {
        let (mut pipeline, mut waiting) = pipeline(Order::Strict, 4);
        sent(&mut pipeline);
        pipeline.answered(2, 1, done(20), "");
        assert!(matches!(pipeline.lost(3, 1), Step::Again { pauses: false }));
        assert_eq!(sent(&mut pipeline), (vec![1, 3, 4], 1), "without the one that is answered");
        assert!(is_on(pipeline.lost(4, 1), 0));
        assert!(is_on(pipeline.answered(1, 1, refused(Refusal::NoLeader), ""), 0));
        assert!(is_on(pipeline.answered(1, 1, out_of_order(9), ""), 0));
        // What is done is done, whichever sending was.
        assert!(is_on(pipeline.answered(1, 1, done(10), ""), 2));
        assert!(matches!(
            pipeline.answered(4, 2, refused(Refusal::LeaderChanged), ""),
            Step::Again { pauses: true }
        ));
        assert_eq!(sent(&mut pipeline), (vec![3, 4], 3), "and acknowledges what has come meanwhile");
        pipeline.answered(3, 3, done(30), "");
        pipeline.answered(4, 3, done(40), "");
        assert_eq!(waiting.iter_mut().map(revision).collect::<Vec<_>>(), [10, 20, 30, 40]);
        assert_eq!(pipeline.repeated(), 5, "three of the first sending, two of the second");
    }

    #[test]
    fn a_gap_is_closed_from_the_number_that_is_expected() {
        let (mut pipeline, _waiting) = pipeline(Order::Strict, 5);
        sent(&mut pipeline);
        assert!(matches!(pipeline.answered(4, 1, out_of_order(3), ""), Step::Again { pauses: false }));
        assert!(is_on(pipeline.answered(5, 1, out_of_order(3), ""), 0), "once");
        assert_eq!(sent(&mut pipeline), (vec![3, 4, 5], 1));
        // 1 and 2 were executed: if their answers are lost, they are asked for again.
        assert!(matches!(pipeline.lost(1, 1), Step::Again { .. }));
        assert_eq!(sent(&mut pipeline), (vec![1, 2, 3, 4, 5], 1));
    }

    #[test]
    fn a_number_that_cannot_be_expected_ends_the_session() {
        for expected in [1, 9] {
            let (mut pipeline, _waiting) = pipeline(Order::Strict, 3);
            sent(&mut pipeline);
            pipeline.answered(1, 1, done(10), "");
            let step = pipeline.answered(2, 1, out_of_order(expected), "");
            assert!(matches!(step, Step::Over(Error::Session { kind: Kind::Unknown, .. })), "{step:?}");
        }
    }

    #[test]
    fn a_command_that_is_refused_for_good_gives_its_number_to_one_that_does_nothing() {
        let nothing = || {
            let answer = api::Answer::Txn { succeeded: true, answers: vec![] };
            of(Outcome::Done(Ok(Response { revision: Revision(5), answer })))
        };
        // It was executed when it was sent first, or it was not.
        for (answer, was_executed) in [(nothing(), false), (done(10), true)] {
            let (mut pipeline, mut waiting) = pipeline(Order::Strict, 2);
            sent(&mut pipeline);
            let step = pipeline.answered(1, 1, refused(Refusal::NoSpace), "here");
            assert!(matches!(step, Step::Again { pauses: false }));
            let Next { header, command, sending, .. } = pipeline.next_to_send().expect("the filler");
            assert_eq!((header.number, command), (1, &filler()[..]));
            pipeline.answered(1, sending, answer, "");
            match waiting[0].try_recv().expect("a result") {
                Ok(response) => assert!(was_executed && response.revision == Revision(10)),
                Err(error) => assert!(!was_executed && error.kind() == Kind::Refused, "{error}"),
            }
            assert_eq!(sent(&mut pipeline), (vec![2], 2));
        }
        let (mut pipeline, _waiting) = pipeline(Order::Strict, 1);
        sent(&mut pipeline);
        pipeline.answered(1, 1, refused(Refusal::NoSpace), "");
        sent(&mut pipeline);
        let step = pipeline.answered(1, 2, refused(Refusal::LevelTooLow), "");
        assert!(matches!(step, Step::Over(_)), "not even the filler passes");
    }

    #[test]
    fn a_session_that_is_gone_ends_everything_and_a_caller_that_waited_too_long_is_told_so_once() {
        let (mut pipeline, mut waiting) = pipeline(Order::Any, 3);
        sent(&mut pipeline);
        let timeout = Duration::from_secs(5);
        let now = Instant::now();
        pipeline.answered(2, 1, done(20), "");
        assert!(pipeline.give_up_waiting(now, timeout).is_some_and(|due| now < due));
        assert_eq!(pipeline.told(), 1);
        assert_eq!(pipeline.give_up_waiting(now + timeout, timeout), None);
        assert_eq!((pipeline.told(), pipeline.first()), (4, 1), "all are told, none is dropped");
        let error = waiting[0].try_recv().expect("a result").expect_err("no answer");
        assert_eq!(error.kind(), Kind::Unknown);
        let expired = of(Outcome::SessionError(SessionError::Expired));
        let Step::Over(error) = pipeline.answered(1, 1, expired, "") else { panic!("it is over") };
        assert_eq!(error.kind(), Kind::Unknown);
        let (caller, mut last) = oneshot::channel();
        pipeline.add(Vec::new(), 1, now, Caller::One(caller), false);
        pipeline.end(&error);
        assert!(last.try_recv().expect("a result").is_err());
        assert_eq!((pipeline.first(), pipeline.has_unsent()), (5, false));
    }

    fn received(term: u64, index: u64) -> Answer {
        Answer { index, outcome: Outcome::Received { term } }
    }

    #[test]
    fn a_weak_write_asks_until_it_is_received_and_goes_on_until_it_is_done_or_its_loss_is_told() {
        let mut pipeline = Pipeline::new(ID, Order::Strict);
        let put = |key: &str| encode_kv(&Command::Put(api::Put { key: key.into(), ..api::Put::default() }));
        let mut waiting = Vec::new();
        for key in ["a", "b", "c"] {
            let (caller, waits) = oneshot::channel();
            pipeline.add(put(key), 1, Instant::now(), Caller::Weak(caller), true);
            waiting.push(waits);
        }
        let sent = |pipeline: &mut Pipeline| {
            let mut sent = Vec::new();
            while let Some(Next { header, is_weak, .. }) = pipeline.next_to_send() {
                sent.push((header.number, is_weak));
            }
            sent
        };
        assert_eq!(sent(&mut pipeline), [(1, true), (2, true), (3, true)]);
        for number in [2, 1] {
            assert!(is_on(pipeline.answered(number, 1, received(4, 10 + number), ""), 0));
        }
        let id = |index| EntryId { term: Term(4), index: LogIndex(index) };
        assert_eq!(waiting[0].try_recv().expect("news").expect("accepted"), Accepted::Received(id(11)));
        assert_eq!(waiting[1].try_recv().expect("news").expect("accepted"), Accepted::Received(id(12)));
        // A later leader has overwritten one of them: all go out again, and those that are accepted ask no more.
        assert!(matches!(
            pipeline.answered(2, 1, refused(Refusal::Overwritten), ""),
            Step::Again { pauses: true }
        ));
        assert_eq!(sent(&mut pipeline), [(1, false), (2, false), (3, true)]);
        assert!(is_on(pipeline.answered(1, 1, received(9, 30), ""), 0), "a second time is no news");
        assert!(is_on(pipeline.answered(1, 2, done(10), ""), 1));
        assert!(pipeline.take_lost().is_empty());
        // The cluster has no space for the second, and gives no weak answers any more.
        pipeline.answered(2, 2, refused(Refusal::NoSpace), "");
        assert_eq!(sent(&mut pipeline), [(2, false), (3, true)]);
        let nothing = api::Answer::Txn { succeeded: true, answers: vec![] };
        let nothing = Outcome::Done(Ok(Response { revision: Revision(5), answer: nothing }));
        pipeline.answered(2, 3, of(nothing.clone()), "");
        pipeline.answered(3, 3, refused(Refusal::NotWeak), "");
        let lost = pipeline.take_lost();
        assert!(
            matches!(&lost[..], [LostWrite { number: 2, command: Command::Put(put), error }]
            if put.key == b"b" && error.kind() == Kind::Refused),
            "{lost:?}"
        );
        assert_eq!(sent(&mut pipeline), [(3, false)], "the filler");
        pipeline.answered(3, 4, of(nothing), "");
        let error = waiting[2].try_recv().expect("news").expect_err("never accepted");
        assert_eq!(error.kind(), Kind::Refused);
        assert!(pipeline.take_lost().is_empty(), "it was never accepted");
    }

    #[test]
    fn the_end_of_a_session_tells_the_loss_of_what_was_received_and_not_done() {
        let mut pipeline = Pipeline::new(ID, Order::Strict);
        let command = || encode_kv(&Command::Put(api::Put::default()));
        let (caller, mut waits) = oneshot::channel();
        pipeline.add(command(), 1, Instant::now(), Caller::Weak(caller), true);
        let (other, mut never) = oneshot::channel();
        pipeline.add(command(), 1, Instant::now(), Caller::Weak(other), true);
        while pipeline.next_to_send().is_some() {}
        pipeline.answered(1, 1, received(1, 7), "");
        assert!(waits.try_recv().expect("news").is_ok());
        let Step::Over(error) = pipeline.answered(2, 1, of(Outcome::SessionError(SessionError::Expired)), "")
        else {
            panic!("it is over")
        };
        pipeline.end(&error);
        assert_eq!(never.try_recv().expect("news").expect_err("unknown").kind(), Kind::Unknown);
        let lost = pipeline.take_lost();
        assert_eq!(
            lost.iter().map(|lost| (lost.number, lost.error.kind())).collect::<Vec<_>>(),
            [(1, Kind::Unknown)]
        );
    }
}
