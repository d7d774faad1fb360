//! Log: a member's log under virtual time. [shell/member `log`, `log_orders`]
//!
//! The log and its decisions are production's. What the runtime does with threads and files is done here by the clock of the
//! world: a sync takes its time, a segment is made on a passing thread, and a log on a thread of its own is one that is not
//! waited for.
//! Knows nothing of: replicas, when the log goes to the disk.

use crate::beside::{Beside, Thread};
use crate::clock::US;
use crate::disk_time::DiskTime;
use crate::process::{End, Fuse, Process};
use crate::world::{Event as Planned, Shared};
use kattu_disk::SimDisk;
use kattu_member::log::{Completion, FULL_RETRY, SegmentJob, Timed};
use kattu_member::log_orders::{Order, Orders, Turn, Underway};
use kattu_raft::{Duration, Fetch, GroupId, Instant, LogRecord};
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
    pub(crate) disk: DiskTime,
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
            disk: DiskTime::new((member, run), disk),
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

    /// Whether the member's thread is at the disk.
    pub(crate) fn holds_thread(&self) -> bool {
        self.thread.is_none() && self.disk.is_at_it()
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
                let rotations = self.log.wal().stats().rotations;
                self.disk.call(sh, completion, rotations, self.being_made.is_some());
                Ordered::AtDisk
            }
        })
    }

    /// The log's thread does what it was ordered, until it is at the disk.
    fn run_thread(&mut self, sh: &mut Shared, fuse: &mut Fuse) -> Result<(), End> {
        let Some(thread) = &mut self.thread else { return Ok(()) };
        if self.disk.is_at_it() {
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
        let Some((began, mut completion)) = self.disk.done() else { return Ok(None) };
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
            let begun = self.disk.begin_beside();
            self.being_made = Some(task.run());
            self.disk.end_beside(sh, Thread::Segments, begun);
        }
        if self.being_made.is_none() {
            return;
        }
        let at = self.disk.beside.done_at(Thread::Segments).max(sh.now);
        self.disk.beside.goes_on(Beside::Segment, sh.now, at);
        if sh.now < at {
            sh.queue.plan(at, Planned::SegmentMade { member: self.member, run: self.run });
        } else if let Some(made) = self.being_made.take() {
            self.log.made(made);
        }
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
