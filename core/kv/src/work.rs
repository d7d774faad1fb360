//! Work: one command or one read in progress, executed in slices.
//!
//! In:    a request, and how much may be done now, in units (`cost.rs`).
//! Out:   the answer that it would have had in one go, however it was sliced.
//! Rules: 1. Between two slices no other request may change or read the store; the caller keeps that order. A copy
//!           taken meanwhile holds half a change.
//!        2. A request that is refused has changed nothing in the end; undoing goes in slices, too.
//!        3. If no client waits for a command, no pairs are gathered: its answer must not be used.
//!        4. The pairs of one answer are bounded together, and so are the keys that its ranges visit: at an older
//!           revision they may be many more than the index can count in advance. A read beyond a bound is refused. A
//!           command continues without pairs, for its effect must not depend on a waiting client:
//!           [`Work::lacks_pairs`].
//!
//! ```
//! # use kattu_kv::{api::{Command, DeleteRange, KeyRange, Put, Revision}, store::Store, work::Work};
//! # let mut store = Store::new();
//! # store.apply(&Command::Put(Put { key: b"a".to_vec(), ..Put::default() })).unwrap();
//! let all = KeyRange { start: vec![0], end: vec![0] };
//! let mut work = Work::on_command(Command::DeleteRange(DeleteRange { keys: all, prev_kv: false }), Some(1 << 20));
//! let done = loop {
//!     let mut allowance = 1; // and heartbeats in between
//!     if let Some(done) = store.go_on(&mut work, &mut allowance) { break done }
//! };
//! assert_eq!(done.unwrap().revision, Revision(3));
//! ```
//! Knows nothing of: clients, queues, time.

use crate::api::{Answer, Command, DeleteRange, Error, Key, KeyValue, Query, Response};
use crate::cost::PUT_UNITS;
use crate::range::{Reading, kib, pair_bytes, spend};
use crate::store::Store;
use crate::txn::{Deciding, Step};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// A request in progress.
#[derive(Clone, Debug)]
pub struct Work {
    /// A client waits for the answer.
    wants: bool,
    /// Bytes of pairs that may still be gathered. [`pair_bytes`]
    bytes_left: usize,
    /// Keys that its ranges may still visit.
    keys_left: u64,
    /// It is a command whose answer would have exceeded one of these two bounds.
    lacks_pairs: bool,
    phase: Phase,
    steps: Vec<Step>,
    /// Index of the current step.
    at: usize,
    current: Current,
    /// The answers so far, per open transaction; the outermost is the request itself.
    answers: Vec<Vec<Answer>>,
    /// The store before the request: the number of its next change, and its running digest.
    before: Option<(u64, u64)>,
}

#[derive(Clone, Debug)]
enum Phase {
    Decide(Box<Deciding>),
    Check,
    Execute,
    /// All changes are being undone.
    Undo(Error),
}

/// Progress of the current step.
#[derive(Clone, Debug, Default)]
enum Current {
    #[default]
    Begins,
    Reading(Box<Reading>),
    Deleting(Deleting),
}

/// A range delete in progress.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deleting {
    pub(crate) resume: Option<Key>,
    pub(crate) deleted: u64,
    pub(crate) prev_kvs: Vec<KeyValue>,
    /// Bytes of pairs that may still be kept.
    pub(crate) bytes_left: usize,
    /// The pairs had more bytes than that.
    pub(crate) is_too_large: bool,
}

impl Deleting {
    /// Keeps a deleted pair if there is room for it; if not, all pairs are dropped.
    pub(crate) fn keep(&mut self, kv: KeyValue) {
        match self.bytes_left.checked_sub(pair_bytes(&kv)) {
            Some(left) if !self.is_too_large => {
                self.bytes_left = left;
                self.prev_kvs.push(kv);
            }
            _ => (self.prev_kvs, self.is_too_large) = (Vec::new(), true),
        }
    }
}

fn drop_pairs(answer: &mut Answer) {
    match answer {
        Answer::Range(range) => range.kvs = Vec::new(),
        Answer::DeleteRange { prev_kvs, .. } => *prev_kvs = Vec::new(),
        Answer::Txn { answers, .. } => answers.iter_mut().for_each(drop_pairs),
        Answer::Put { .. } | Answer::Compact => {}
    }
}

impl Work {
    /// A command that has not begun. `wants`: bytes of memory that the pairs of its answer may take, if a client waits
    /// for it.
    #[must_use]
    pub fn on_command(command: Command, wants: Option<usize>) -> Work {
        let (is_wanted, bytes) = (wants.is_some(), wants.unwrap_or(0));
        match command {
            Command::Put(put) => Work::of(Phase::Execute, Vec::from([Step::Put(put)]), is_wanted, bytes),
            Command::DeleteRange(delete) => {
                Work::of(Phase::Execute, Vec::from([Step::DeleteRange(delete)]), is_wanted, bytes)
            }
            Command::Txn(txn) => {
                Work::of(Phase::Decide(Box::new(Deciding::of(txn))), Vec::new(), is_wanted, bytes)
            }
            Command::Compact(_) => unreachable!("a compaction is no work: it answers at once"),
        }
    }

    /// A read that has not begun; refused as soon as the pairs of its ranges together take more than `bytes_max` bytes
    /// of memory.
    #[must_use]
    pub fn on_query(query: &Query, bytes_max: usize) -> Work {
        match query.clone() {
            Query::Range(range) => Work::of(Phase::Execute, Vec::from([Step::Range(range)]), true, bytes_max),
            Query::Txn(txn) => {
                Work::of(Phase::Decide(Box::new(Deciding::of(txn))), Vec::new(), true, bytes_max)
            }
        }
    }

    fn of(phase: Phase, steps: Vec<Step>, wants: bool, bytes_left: usize) -> Work {
        Work {
            wants,
            bytes_left,
            keys_left: u64::MAX,
            lacks_pairs: false,
            phase,
            steps,
            at: 0,
            current: Current::Begins,
            answers: Vec::from([Vec::new()]),
            before: None,
        }
    }

    /// The same work with a bound on the keys that all its ranges together visit. Beyond it a read is refused, and a
    /// command continues without pairs.
    #[must_use]
    pub fn that_looks_at(mut self, keys_max: u64) -> Work {
        self.keys_left = keys_max;
        self
    }

    /// Whether it is a command that was executed, but whose answer lacks pairs because they were too many or would have
    /// taken too long to find.
    #[must_use]
    pub fn lacks_pairs(&self) -> bool {
        self.lacks_pairs
    }

    /// Gathers no more pairs for the client, and drops those gathered.
    fn forgo_pairs(&mut self) {
        (self.wants, self.lacks_pairs) = (false, true);
        self.answers.iter_mut().flatten().for_each(drop_pairs);
    }

    /// Evaluates the conditions, then checks each step; `None` when the allowance is used up.
    fn prepare(&mut self, store: &Store, allowance: &mut i64) -> Option<Result<(), Error>> {
        if let Phase::Decide(deciding) = &mut self.phase {
            if !deciding.step(store, allowance) {
                return None;
            }
            self.steps = core::mem::take(&mut deciding.steps);
            self.phase = Phase::Check;
        }
        if let Phase::Check = self.phase {
            while let Some(step) = self.steps.get(self.at) {
                if *allowance <= 0 {
                    return None;
                }
                if let Err(error) = store.check_step(step) {
                    return Some(Err(error));
                }
                spend(allowance, 1);
                self.at += 1;
            }
            (self.phase, self.at) = (Phase::Execute, 0);
        }
        Some(Ok(()))
    }

    /// Reads the range of the current step, or a part of it.
    fn read(&mut self, store: &Store, allowance: &mut i64) -> Option<Result<Answer, Error>> {
        if let Current::Begins = self.current {
            let Some(Step::Range(range)) = self.steps.get_mut(self.at) else {
                unreachable!("a range is under way")
            };
            let reading = Reading::new(core::mem::take(range), self.bytes_left);
            self.current = Current::Reading(Box::new(reading));
        }
        let Current::Reading(reading) = &mut self.current else { unreachable!("a range is under way") };
        let result = reading.step(store, allowance);
        let keys_left = self.keys_left.checked_sub(reading.looked_at());
        if keys_left.is_none() {
            return Some(Err(Error::TooMuchWork));
        }
        let result = result?;
        self.keys_left = keys_left.unwrap_or(0);
        self.bytes_left = self.bytes_left.saturating_sub(reading.bytes());
        Some(result.map(Answer::Range))
    }

    /// Ends the current step, with its answer if it has one.
    fn done(&mut self, answer: Option<Answer>) {
        self.current = Current::Begins;
        self.at += 1;
        let open = self.answers.last_mut().expect("the request itself is open until its end");
        open.extend(answer);
    }

    /// Begins or ends a transaction within the request.
    fn bracket(&mut self, allowance: &mut i64) {
        spend(allowance, 1);
        if let Step::End { succeeded } = self.steps[self.at] {
            let answers = self.answers.pop().unwrap_or_default();
            self.done(Some(Answer::Txn { succeeded, answers }));
        } else {
            self.answers.push(Vec::new());
            self.done(None);
        }
    }

    fn answer(&mut self) -> Answer {
        self.answers.pop().and_then(|mut answers| answers.pop()).expect("every request has an answer")
    }
}

impl Store {
    /// Continues a command or a read until it is done or the allowance is used up, and subtracts the units used. It may
    /// use a little more: a step that has begun is not interrupted.
    ///
    /// # Errors
    /// If the store refuses it; then nothing has changed.
    pub fn go_on(&mut self, work: &mut Work, allowance: &mut i64) -> Option<Result<Response, Error>> {
        let done = self.go_on_undone(work, allowance)?;
        self.end_command();
        Some(done.map(|answer| Response { revision: self.revision, answer }))
    }

    /// As [`Store::go_on`], for a read.
    ///
    /// # Errors
    /// If the store refuses it.
    ///
    /// # Panics
    /// If it is not a read.
    pub fn read_on(&self, work: &mut Work, allowance: &mut i64) -> Option<Result<Response, Error>> {
        if let Err(error) = work.prepare(self, allowance)? {
            return Some(Err(error));
        }
        while let Some(step) = work.steps.get(work.at) {
            if *allowance <= 0 {
                return None;
            }
            match step {
                Step::Range(_) => match work.read(self, allowance)? {
                    Ok(answer) => work.done(Some(answer)),
                    Err(error) => return Some(Err(error)),
                },
                Step::Begin | Step::End { .. } => work.bracket(allowance),
                Step::Put(_) | Step::DeleteRange(_) => {
                    panic!("a transaction that writes was sent as a query")
                }
            }
        }
        Some(Ok(Response { revision: self.revision, answer: work.answer() }))
    }

    fn go_on_undone(&mut self, work: &mut Work, allowance: &mut i64) -> Option<Result<Answer, Error>> {
        if let Phase::Undo(error) = work.phase {
            return self.take_back(work, error, allowance);
        }
        if let Err(error) = work.prepare(self, allowance)? {
            return Some(Err(error));
        }
        let before = (self.changes.end(), self.running_digest);
        work.before.get_or_insert(before);
        while work.at < work.steps.len() {
            if *allowance <= 0 {
                return None;
            }
            if let Err(error) = self.execute(work, allowance)? {
                work.phase = Phase::Undo(error);
                return self.take_back(work, error, allowance);
            }
        }
        Some(Ok(work.answer()))
    }

    /// Executes the current step, or a part of it.
    fn execute(&mut self, work: &mut Work, allowance: &mut i64) -> Option<Result<(), Error>> {
        match &work.steps[work.at] {
            Step::Begin | Step::End { .. } => work.bracket(allowance),
            Step::Range(_) if !work.wants => {
                spend(allowance, 1);
                work.done(Some(Answer::Range(Default::default())));
            }
            Step::Range(_) => match work.read(self, allowance)? {
                Ok(answer) => work.done(Some(answer)),
                Err(Error::AnswerTooLarge | Error::TooMuchWork) => {
                    work.forgo_pairs();
                    work.done(Some(Answer::Range(Default::default())));
                }
                Err(error) => return Some(Err(error)),
            },
            Step::Put(put) => {
                spend(allowance, PUT_UNITS + kib(self.kept_by(put.as_ref())));
                match self.put(put.as_ref()) {
                    Ok(answer) => work.done(Some(answer)),
                    Err(error) => return Some(Err(error)),
                }
            }
            Step::DeleteRange(DeleteRange { keys, prev_kv }) => {
                if let Current::Begins = work.current {
                    spend(allowance, 1); // whether there is anything to delete or not
                    let bytes_left = work.bytes_left;
                    work.current = Current::Deleting(Deleting { bytes_left, ..Deleting::default() });
                }
                let Current::Deleting(deleting) = &mut work.current else {
                    unreachable!("a delete is under way")
                };
                if !self.delete_some(keys, *prev_kv && work.wants, deleting, allowance) {
                    return None;
                }
                let Deleting { deleted, prev_kvs, bytes_left, is_too_large, .. } = core::mem::take(deleting);
                let (deleted, revision) = (deleted as i64, self.changing_revision());
                work.bytes_left = bytes_left;
                if is_too_large {
                    work.forgo_pairs();
                }
                work.done(Some(Answer::DeleteRange { deleted, prev_kvs, revision }));
            }
        }
        Some(Ok(()))
    }

    fn take_back(&mut self, work: &Work, error: Error, allowance: &mut i64) -> Option<Result<Answer, Error>> {
        let (number, digest) = work.before.expect("something was executed");
        self.undo(number, digest, allowance).then_some(Err(error))
    }
}
