//! Log: a member's log under virtual time. [shell/member `log`, `log_moves`, `log_orders`]
//!
//! The log and its decisions are production's. What the runtime does with threads and files is done here by the clock of the
//! world: a sync takes its time, a segment is made on a passing thread, and a log on a thread of its own is one that is not
//! waited for. A log goes there and comes home as in production, after fewer quick syncs.
//! Knows nothing of: replicas, when the log goes to the disk.

use crate::disk_time::{AtOnce, DiskTime};
use crate::end::{End, Fuse};
use crate::segments::SegmentThread;
use crate::world::{Event as Planned, Shared};
use kattu_disk::SimDisk;
use kattu_member::log::{Completion, FULL_RETRY};
use kattu_member::log_moves::{Absence, Patience, WELL_SYNCS};
use kattu_member::log_orders::{Order, Orders, Turn};
use kattu_raft::{Duration, Fetch, GroupId, Instant, LogRecord};
use kattu_wal::{SnapshotStore, Wal, WalError};
use std::collections::VecDeque;

/// Quick syncs that bring a log home.
pub(crate) const WELL_SYNCS_HERE: u32 = WELL_SYNCS / 16;

/// The one group.
pub(crate) const GROUP: GroupId = GroupId(0);

/// What an order to the log has come to.
pub(crate) enum Ordered {
    /// It is done.
    Done(Completion),
    /// The thread is at the disk.
    AtDisk,
    /// The log's own thread does it.
    Beside,
}

pub(crate) struct Log {
    member: usize,
    run: u32,
    log: kattu_member::log::Log,
    pub(crate) patience: Option<Patience>,
    /// While it has a thread of its own.
    pub(crate) away: Option<Absence>,
    /// Orders for that thread, or those that wait for the log's way home.
    pub(crate) orders: Orders,
    /// What was ordered on the way home is being done.
    comes_home: bool,
    pub(crate) disk: DiskTime,
    completions: VecDeque<Completion>,
    /// How many of these, the first ones, are from before it got its thread.
    from_home: usize,
    segments: SegmentThread,
}

impl Log {
    /// A log on the member's thread, which a longer sync sends away, or one that has a thread of its own.
    pub(crate) fn new(
        (member, run): (usize, u32),
        wal: Wal,
        disk: SimDisk,
        sent_away_after: Option<Duration>,
        sh: &mut Shared,
    ) -> Log {
        let mut log = Log {
            member,
            run,
            log: kattu_member::log::Log::new(wal, GROUP),
            patience: sent_away_after.map(|sync_max| Patience { sync_max, well_syncs: WELL_SYNCS_HERE }),
            away: sent_away_after.is_none().then(Absence::default),
            orders: Orders::default(),
            comes_home: false,
            disk: DiskTime::new((member, run), disk),
            completions: VecDeque::new(),
            from_home: 0,
            segments: SegmentThread::new((member, run)),
        };
        log.log.prepare_next();
        log.carry_out(sh);
        log
    }

    pub(crate) fn get(&self) -> &kattu_member::log::Log {
        &self.log
    }

    /// Another heartbeat interval is in force.
    pub(crate) fn follow(&mut self, heartbeat_interval: Duration) {
        if let Some(patience) = &mut self.patience {
            patience.follow(heartbeat_interval);
        }
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
        self.away.is_none() && self.disk.is_at_it()
    }

    /// Whether records wait here that a full disk refused, and it may be tried again.
    pub(crate) fn retries(&self, now: u64) -> bool {
        self.away.is_none() && self.log.is_blocked() && self.log.is_due(Instant(now))
    }

    /// The next completion that has not been heard.
    pub(crate) fn completion(&mut self, sh: &mut Shared, fuse: &mut Fuse) -> Result<Option<Completion>, End> {
        let is_from_home = !self.log.has_made() && 0 < self.from_home;
        self.from_home -= usize::from(is_from_home);
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
        if self.away.is_some() {
            // What its thread tells when a call has ended is how the log is then: a segment may have been made during the call.
            if let Completion::Persisted(_, room, _) = &mut completion {
                *room = self.log.room();
            }
            let away = self.away.as_mut().expect("just seen");
            completion = match is_from_home {
                true => away.told_before(completion),
                false => away.completed(completion, self.patience),
            };
            self.come_home_if_called(sh, fuse)?;
        }
        Ok(Some(completion))
    }

    /// A log that is well, or was called, comes home when all that was ordered before is done.
    pub(crate) fn come_home_if_called(&mut self, sh: &mut Shared, fuse: &mut Fuse) -> Result<(), End> {
        let Some(away) = &mut self.away else { return Ok(()) };
        if !away.comes_home(self.patience) || self.disk.is_at_it() {
            return Ok(());
        }
        sh.counts.logs_home += 1;
        let waiting = self.away.take().expect("just seen").into_waiting();
        waiting.for_each(|order| self.orders.push(order));
        self.comes_home = true;
        self.carry_out_orders(sh, fuse)
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
        if self.away.is_some() {
            return self.order(sh, fuse, Order::Persist(std::mem::take(records)));
        }
        self.log.append(records)?;
        records.clear();
        fuse.burn()?;
        let ordered = match self.log.is_due(Instant(sh.now)) {
            true => self.sync(sh)?,
            false => Ordered::Done(Completion::Room(self.log.room())),
        };
        Ok(self.in_turn(ordered))
    }

    /// It gets a thread of its own.
    pub(crate) fn leave(&mut self) {
        (self.away, self.from_home) = (Some(Absence::default()), self.completions.len());
    }

    /// Results of the way home come before those of inline work.
    fn in_turn(&mut self, ordered: Ordered) -> Ordered {
        match (ordered, self.completions.pop_front()) {
            (Ordered::Done(completion), Some(first)) => {
                self.completions.push_back(completion);
                Ordered::Done(first)
            }
            (ordered, first) => {
                first.into_iter().for_each(|first| self.completions.push_front(first));
                ordered
            }
        }
    }

    /// An order for the log's thread.
    fn order(&mut self, sh: &mut Shared, fuse: &mut Fuse, order: Order) -> Result<Ordered, End> {
        let away = self.away.as_mut().expect("it has a thread");
        if let Some(order) = away.order(order) {
            self.orders.push(order);
            self.carry_out_orders(sh, fuse)?;
        }
        Ok(Ordered::Beside)
    }

    /// Reads entries back.
    pub(crate) fn fetch(&mut self, sh: &mut Shared, fuse: &mut Fuse, fetch: Fetch) -> Result<Ordered, End> {
        if self.away.is_some() {
            return self.order(sh, fuse, Order::Fetch(fetch));
        }
        let fetched = self.log.fetch(fetch, &mut AtOnce)?;
        Ok(self.in_turn(Ordered::Done(fetched)))
    }

    fn sync(&mut self, sh: &mut Shared) -> Result<Ordered, End> {
        self.disk.begin();
        let completion = self.log.sync(Instant(sh.now), &mut AtOnce)?;
        self.carry_out(sh);
        Ok(match completion {
            Completion::Room(_) => Ordered::Done(completion),
            completion => {
                let rotations = self.log.wal().stats().rotations;
                self.disk.call(sh, completion, rotations, self.segments.is_making());
                Ordered::AtDisk
            }
        })
    }

    /// Its thread tries again a full disk that had no room for the records, or for the mark behind them.
    pub(crate) fn retry_if_blocked(&self, sh: &mut Shared) {
        if self.log.is_blocked() && self.away.is_some() {
            let retry = Planned::RetryLog { member: self.member, run: self.run };
            sh.queue.plan((Instant(sh.now) + FULL_RETRY).0, retry);
        }
    }

    /// What was ordered is done until the log is at the disk.
    fn carry_out_orders(&mut self, sh: &mut Shared, fuse: &mut Fuse) -> Result<(), End> {
        if self.disk.is_at_it() {
            return Ok(());
        }
        if self.away.is_some() {
            self.orders.wake(&self.log);
        }
        loop {
            match self.orders.next(&mut self.log)? {
                Turn::Idle if std::mem::take(&mut self.comes_home) => {
                    let looked = self.log.look()?;
                    self.carry_out(sh);
                    self.completions.push_back(looked);
                    if self.patience.is_none() {
                        self.leave(); // it was wanted on a thread again meanwhile
                    }
                }
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
                    self.retry_if_blocked(sh);
                    match synced {
                        Ordered::Done(completion) => self.completions.push_back(completion),
                        Ordered::AtDisk | Ordered::Beside => return Ok(()),
                    }
                }
                Turn::Look | Turn::Return | Turn::Close => {
                    unreachable!("the log looks by itself, and moves without an order")
                }
            }
        }
    }

    /// The disk call has ended. What it has come to, if the member's thread was at the disk.
    pub(crate) fn synced(&mut self, sh: &mut Shared, fuse: &mut Fuse) -> Result<Option<Completion>, End> {
        let Some((began, mut completion)) = self.disk.done() else { return Ok(None) };
        let spent = Duration::from_nanos(sh.now - began);
        if let Completion::Persisted(lsn, room, took) = &mut completion {
            sh.observer.durable(crate::net::id_of(self.member), *lsn)?;
            // A segment that was made ready meanwhile has been told of already: what is said last must count it.
            *room = self.log.room();
            *took = took.map(|_| spent);
        }
        fuse.burn()?;
        if self.away.is_some() || self.comes_home {
            self.completions.push_back(completion);
            self.carry_out_orders(sh, fuse)?;
            return Ok(None);
        }
        let Ordered::Done(completion) = self.in_turn(Ordered::Done(completion)) else { return Ok(None) };
        if self.patience.is_some_and(|patience| patience.sends_away(&self.log, spent)) {
            sh.counts.logs_away += 1;
            self.leave();
        }
        Ok(Some(completion))
    }

    /// The log's thread tries a full disk again.
    pub(crate) fn retry(&mut self, sh: &mut Shared, fuse: &mut Fuse) -> Result<(), End> {
        if self.away.is_some() && self.log.is_blocked() { self.carry_out_orders(sh, fuse) } else { Ok(()) }
    }

    /// Notes are for operators, and segments for a passing thread.
    fn carry_out(&mut self, sh: &mut Shared) {
        drop(self.log.take_notes());
        if let Some(job) = self.log.take_job() {
            self.segments.start(sh, job);
        }
    }

    /// The passing thread makes its segment, or has made it.
    pub(crate) fn make_segment(&mut self, sh: &mut Shared) {
        if let Some(made) = self.segments.work(sh, &mut self.disk) {
            self.log.made(made);
        }
    }

    /// Writes what was ordered, and the mark of a clean end.
    pub(crate) fn close(mut self) -> Result<(), End> {
        self.away.into_iter().flat_map(Absence::into_waiting).for_each(|order| self.orders.push(order));
        while !matches!(self.orders.next(&mut self.log)?, Turn::Idle) {}
        match self.log.close() {
            Ok(()) | Err(WalError::NoSpace { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
