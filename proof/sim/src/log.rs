//! Log: a member's log under virtual time. [shell/member `log`, `log_orders`]
//!
//! The log and its decisions are production's. What the runtime does with threads and files is done here by the clock of the
//! world: a sync takes its time, a segment is made on a passing thread, and a log on a thread of its own is one that is not
//! waited for.
//! Knows nothing of: replicas, when the log goes to the disk.

use crate::beside::{Beside, BesideWrites, Thread};
use crate::clock::US;
use crate::process::{End, Fuse, Process};
use crate::world::{Event as Planned, Shared};
use kattu_member::log::{Completion, FULL_RETRY, SegmentJob, Timed};
use kattu_member::log_orders::{Order, Orders, Turn, Underway};
use kattu_raft::{Duration, Fetch, GroupId, Instant, LogRecord};
use kattu_wal::sim::SimDisk;
use kattu_wal::{Prepared, SegmentTask, SnapshotStore, Wal, WalError};
use std::collections::VecDeque;

/// How long a passing thread takes to make a segment.
const SEGMENT_TIME: Duration = Duration::from_nanos(300 * US);

/// The one group.
pub(crate) const GROUP: GroupId = GroupId(0);

/// What a call takes is decided when it is over.
pub(crate) struct AtOnce;

impl Timed for AtOnce {
    fn over<T>(&mut self, call: impl FnOnce() -> T) -> (T, Duration) {
        (call(), Duration::ZERO)
    }
}

/// What an order to the log has come to.
pub(crate) enum Ordered {
    /// It is done.
    Done(Completion),
    /// The thread is at the disk.
    AtDisk,
    /// The log's own thread does it.
    Beside,
}

/// A log on a thread of its own.
#[derive(Default)]
struct LogThread {
    orders: Orders,
    underway: Underway,
}

pub(crate) struct Log {
    member: usize,
    run: u32,
    log: kattu_member::log::Log,
    thread: Option<LogThread>,
    disk: SimDisk,
    /// What goes on beside the log.
    pub(crate) beside: BesideWrites,
    /// Times that the log had gone over to another segment when this was last looked at.
    rotations: u64,
    /// A disk call is under way: when it began, and what it will come to.
    at_disk: Option<(u64, Completion)>,
    completions: VecDeque<Completion>,
    task: Option<SegmentTask>,
    /// A segment that the disk has been told to make: the log hears of it when it is there.
    being_made: Option<Result<Prepared, WalError>>,
}

impl Log {
    pub(crate) fn new(
        (member, run): (usize, u32),
        wal: Wal,
        disk: SimDisk,
        has_thread: bool,
        sh: &mut Shared,
    ) -> Log {
        let mut log = Log {
            member,
            run,
            log: kattu_member::log::Log::new(wal, GROUP),
            thread: has_thread.then(LogThread::default),
            disk,
            beside: BesideWrites::default(),
            rotations: 0,
            at_disk: None,
            completions: VecDeque::new(),
            task: None,
            being_made: None,
        };
        log.log.prepare_next();
        log.carry_out(sh);
        log
    }

    pub(crate) fn get(&self) -> &kattu_member::log::Log {
        &self.log
    }

    /// The snapshots beside the log.
    pub(crate) fn snapshots(&self) -> SnapshotStore {
        self.log.wal().snapshots()
    }

    /// Whether something waits to be heard.
    pub(crate) fn has_news(&self) -> bool {
        self.log.has_made() || !self.completions.is_empty()
    }

    /// How long the disk call under way has taken, if there is one.
    pub(crate) fn at_disk_for(&self, now: u64) -> Option<u64> {
        self.at_disk.as_ref().map(|(began, _)| now - began)
    }

    /// Whether the member's thread is at the disk.
    pub(crate) fn holds_thread(&self) -> bool {
        self.thread.is_none() && self.at_disk.is_some()
    }

    /// Whether records wait here that a full disk refused, and it may be tried again.
    pub(crate) fn retries(&self, now: u64) -> bool {
        self.thread.is_none() && self.log.is_blocked() && self.log.is_due(Instant(now))
    }

    /// The next completion that has not been heard.
    pub(crate) fn completion(&mut self, sh: &mut Shared) -> Result<Option<Completion>, WalError> {
        let mut completion = match self.log.has_made() {
            true => {
                let completion = self.log.look()?;
                self.carry_out(sh);
                completion
            }
            false => match self.completions.pop_front() {
                Some(completion) => completion,
                None => return Ok(None),
            },
        };
        if let Some(thread) = &mut self.thread {
            // What its thread tells when a call has ended is how the log is then: a segment may have been made during the call.
            if let Completion::Persisted(_, room, _) = &mut completion {
                *room = self.log.room();
            }
            completion = thread.underway.less(completion, 0);
        }
        Ok(Some(completion))
    }

    /// Makes records durable, and what a full disk refused.
    pub(crate) fn persist(
        &mut self,
        sh: &mut Shared,
        fuse: &mut Fuse,
        records: &mut Vec<LogRecord>,
    ) -> Result<Ordered, End> {
        if let Some(last) = records.last() {
            sh.trace.mix(last.lsn.0 ^ 1 << 63);
        }
        let Some(thread) = &mut self.thread else {
            self.log.append(records)?;
            records.clear();
            fuse.burn()?;
            return match self.log.is_due(Instant(sh.now)) {
                true => self.sync(sh),
                false => Ok(Ordered::Done(Completion::Room(self.log.room()))),
            };
        };
        thread.underway.ordered(records);
        thread.orders.push(Order::Persist(std::mem::take(records)));
        self.run_thread(sh, fuse)?;
        Ok(Ordered::Beside)
    }

    /// Reads entries back.
    pub(crate) fn fetch(&mut self, sh: &mut Shared, fuse: &mut Fuse, fetch: Fetch) -> Result<Ordered, End> {
        let Some(thread) = &mut self.thread else {
            return Ok(Ordered::Done(self.log.fetch(fetch, &mut AtOnce)?));
        };
        thread.orders.push(Order::Fetch(fetch));
        self.run_thread(sh, fuse)?;
        Ok(Ordered::Beside)
    }

    fn sync(&mut self, sh: &mut Shared) -> Result<Ordered, End> {
        self.disk.begin();
        let completion = self.log.sync(Instant(sh.now), &mut AtOnce)?;
        self.carry_out(sh);
        Ok(match completion {
            Completion::Room(_) => Ordered::Done(completion),
            completion => {
                self.call_disk(sh, completion);
                Ordered::AtDisk
            }
        })
    }

    /// What the disk has done takes its time; before that it does what another thread has asked for, and the next segment
    /// must be there.
    fn call_disk(&mut self, sh: &mut Shared, completion: Completion) {
        let rotations = self.log.wal().stats().rotations;
        let has_rotated = std::mem::replace(&mut self.rotations, rotations) < rotations;
        let waits = self.wait_for_disk(sh, has_rotated);
        let spent = self.disk.spent();
        let takes = spent + waits;
        self.beside.sync(sh.now, waits, spent);
        if has_rotated {
            sh.counts.segments += 1;
            self.beside.goes_on(Beside::Segment, sh.now, sh.now + takes);
        }
        self.at_disk = Some((sh.now, completion));
        let (member, run) = (self.member, self.run);
        let limit = sh.settings.disk_stall;
        if takes > limit {
            sh.queue.plan(sh.now + limit, Planned::Watchdog { member, run });
        } else {
            sh.queue.plan(sh.now + takes, Planned::Synced { member, run });
        }
    }

    /// How long a sync of the log waits for other threads: one that has gone over to the next segment for all of that.
    fn wait_for_disk(&self, sh: &Shared, has_rotated: bool) -> u64 {
        let made_at = self.beside.done_at(Thread::Segments);
        let is_making = self.being_made.is_some();
        let made = if has_rotated && is_making { made_at.saturating_sub(sh.now) } else { 0 };
        self.beside.wait(sh.now).max(made)
    }

    /// The log's thread does what it was ordered, until it is at the disk.
    fn run_thread(&mut self, sh: &mut Shared, fuse: &mut Fuse) -> Result<(), End> {
        let Some(thread) = &mut self.thread else { return Ok(()) };
        if self.at_disk.is_some() {
            return Ok(());
        }
        thread.orders.wake(&self.log);
        loop {
            let thread = self.thread.as_mut().expect("seen above");
            match thread.orders.next(&mut self.log)? {
                Turn::Idle => return Ok(()),
                Turn::Fetch(fetch) | Turn::FetchBeside(fetch) => {
                    let completion = self.log.fetch(fetch, &mut AtOnce)?;
                    self.completions.push_back(completion);
                }
                Turn::Sync if !self.log.is_due(Instant(sh.now)) => {
                    self.completions.push_back(Completion::Room(self.log.room()));
                }
                Turn::Sync => {
                    fuse.burn()?;
                    let synced = self.sync(sh)?;
                    if self.log.is_blocked() {
                        // A full disk had no room for the records, or for the mark behind them.
                        let retry = Planned::RetryLog { member: self.member, run: self.run };
                        sh.queue.plan((Instant(sh.now) + FULL_RETRY).0, retry);
                    }
                    match synced {
                        Ordered::Done(completion) => self.completions.push_back(completion),
                        Ordered::AtDisk | Ordered::Beside => return Ok(()),
                    }
                }
                Turn::Look | Turn::Return | Turn::Close => {
                    unreachable!("this thread stays, and looks by itself")
                }
            }
        }
    }

    /// The disk call has ended. What it has come to, if the member's thread was at the disk.
    pub(crate) fn synced(&mut self, sh: &mut Shared, fuse: &mut Fuse) -> Result<Option<Completion>, End> {
        let Some((began, mut completion)) = self.at_disk.take() else { return Ok(None) };
        if let Completion::Persisted(lsn, room, took) = &mut completion {
            sh.observer.durable(crate::net::id_of(self.member), *lsn)?;
            // A segment that was made ready meanwhile has been told of already: what is said last must count it.
            *room = self.log.room();
            *took = took.map(|_| Duration::from_nanos(sh.now - began));
        }
        fuse.burn()?;
        if self.thread.is_none() {
            return Ok(Some(completion));
        }
        self.completions.push_back(completion);
        self.run_thread(sh, fuse)?;
        Ok(None)
    }

    /// The log's thread tries a full disk again.
    pub(crate) fn retry(&mut self, sh: &mut Shared, fuse: &mut Fuse) -> Result<(), End> {
        if self.log.is_blocked() { self.run_thread(sh, fuse) } else { Ok(()) }
    }

    /// Notes are for operators, and segments for a passing thread.
    fn carry_out(&mut self, sh: &mut Shared) {
        drop(self.log.take_notes());
        if let Some(SegmentJob { task, pause }) = self.log.take_job() {
            self.task = Some(task);
            let takes = if pause.is_zero() { SEGMENT_TIME } else { pause };
            let made = Planned::SegmentMade { member: self.member, run: self.run };
            sh.queue.plan((Instant(sh.now) + takes).0, made);
        }
    }

    /// The passing thread makes its segment, or has made it.
    pub(crate) fn make_segment(&mut self, sh: &mut Shared) {
        if let Some(task) = self.task.take() {
            let begun = self.begin_beside();
            self.being_made = Some(task.run());
            self.end_beside(sh, Thread::Segments, begun);
        }
        if self.being_made.is_none() {
            return;
        }
        let at = self.beside.done_at(Thread::Segments).max(sh.now);
        self.beside.goes_on(Beside::Segment, sh.now, at);
        if sh.now < at {
            sh.queue.plan(at, Planned::SegmentMade { member: self.member, run: self.run });
        } else if let Some(made) = self.being_made.take() {
            self.log.made(made);
        }
    }

    /// Another thread than the log's goes to the disk: what that had done before.
    pub(crate) fn begin_beside(&mut self) -> u64 {
        if self.at_disk.is_none() {
            self.disk.begin();
        }
        let _ = self.disk.take_longest();
        self.disk.spent()
    }

    /// It has told the disk what to do.
    pub(crate) fn end_beside(&mut self, sh: &Shared, thread: Thread, begun: u64) {
        if sh.settings.one_disk {
            self.beside.at_disk(thread, sh.now, self.disk.spent() - begun, self.disk.take_longest());
        }
    }

    /// Whether the disk has lost its power.
    pub(crate) fn is_out(&self) -> bool {
        self.disk.is_out()
    }

    /// Writes what was ordered, and the mark of a clean end.
    pub(crate) fn close(mut self) -> Result<(), End> {
        if let Some(thread) = &mut self.thread {
            while !matches!(thread.orders.next(&mut self.log)?, Turn::Idle) {}
        }
        match self.log.close() {
            Ok(()) | Err(WalError::NoSpace { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Process {
    /// See [`Log::synced`].
    pub(crate) fn synced(&mut self, sh: &mut Shared) -> Result<(), End> {
        match self.hands.log.synced(sh, &mut self.hands.fuse)? {
            Some(completion) => self.completed(sh, completion),
            None => Ok(()),
        }
    }

    /// See [`Log::make_segment`].
    pub(crate) fn make_segment(&mut self, sh: &mut Shared) {
        self.hands.log.make_segment(sh);
    }

    /// See [`Log::retry`].
    pub(crate) fn retry_log(&mut self, sh: &mut Shared) -> Result<(), End> {
        self.hands.log.retry(sh, &mut self.hands.fuse)
    }
}
