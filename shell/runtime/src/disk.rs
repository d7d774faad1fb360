//! Log I/O: on the driver's thread, or on one of its own.
//!
//! Inline, a sync blocks the driver; whatever arrives meanwhile is the next group, and no thread is woken for it. On its
//! own thread the driver goes on handling messages during a sync, at the price of a hand-off there and back for every
//! group. A failed write or sync ends the process: what is on disk is unknown, and only a restart reads it back.
//! [fault-model ST3, F11]
//! Knows nothing of: what records mean, when they are due.

use crate::metrics::Metrics;
use crate::report;
use crate::watchdog::{Watch, Work};
use kattu_raft::{Duration, Entry, Fetch, GroupId, LogBody, LogRecord, Lsn};
use kattu_wal::{Prepared, Wal, WalError};
use std::collections::VecDeque;
use std::sync::mpsc as sync_mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;
use tokio::sync::{Notify, mpsc};

/// How often a full disk is tried again.
const FULL_RETRY: Duration = Duration::from_millis(200);

/// Bytes read back at once, whatever was asked for: the rest is asked for again, and memory stays flat during a replay.
const FETCH_BYTES_MAX: usize = 2 << 20;

/// What the log has done.
#[derive(Debug)]
pub(crate) enum Completion {
    /// Everything up to this record is durable; it took so long, if it was more than commit marks.
    Persisted(Lsn, LogRoom, Option<Duration>),
    /// Entries were read back.
    Fetched(Fetch, Vec<Entry>),
    /// Room has changed; nothing else has.
    Room(LogRoom),
}

/// Room in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogRoom {
    /// Bytes allocated and free. [fault-model ST15]
    pub(crate) free: u64,
    /// The disk has no room for another segment, or not even for what is to be written: that waits, nothing of it is
    /// acknowledged, and it is tried again. [fault-model F12]
    pub(crate) full: bool,
}

pub(crate) enum Order {
    Persist(Vec<LogRecord>),
    Fetch(Fetch),
    /// A segment has been made ready beside the log, or could not be.
    Look,
    Close,
}

/// The log, with a thread of its own or without.
pub(crate) enum Disk {
    Inline {
        log: Box<Log>,
        /// A segment has been made ready beside the log, or could not be.
        ready: Arc<Notify>,
    },
    Thread {
        thread: LogThread,
        completions: mpsc::UnboundedReceiver<Completion>,
        /// What was ordered and is not durable yet: (last record, bytes). It is not free any more.
        underway: VecDeque<(Lsn, u64)>,
    },
}

/// The log's thread. Dropping it waits for its end, so that the directory is free for whoever comes next.
pub(crate) struct LogThread {
    /// The thread ends with the last of these.
    orders: Option<Arc<sync_mpsc::Sender<Order>>>,
    thread: Option<JoinHandle<()>>,
}

impl LogThread {
    fn order(&self, order: Order) {
        let orders = self.orders.as_ref().expect("only its drop takes it");
        orders.send(order).expect("a panic on the log thread aborts");
    }
}

impl Drop for LogThread {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic there has ended the process
        }
    }
}

impl Disk {
    pub(crate) fn inline(mut log: Log) -> Disk {
        let ready = Arc::new(Notify::new());
        let notify = ready.clone();
        log.on_ready = Arc::new(move || notify.notify_one());
        log.prepare_next();
        Disk::Inline { log: Box::new(log), ready }
    }

    pub(crate) fn thread(mut log: Log) -> std::io::Result<Disk> {
        let (orders, inbox) = sync_mpsc::channel();
        let (report, completions) = mpsc::unbounded_channel();
        let orders = Arc::new(orders);
        let look = Arc::downgrade(&orders);
        log.on_ready = Arc::new(move || {
            // A log that has closed needs no segments.
            let _ = look.upgrade().map(|orders| orders.send(Order::Look));
        });
        log.prepare_next();
        let thread =
            std::thread::Builder::new().name("kattu-log".into()).spawn(move || run(log, &inbox, &report))?;
        let thread = LogThread { orders: Some(orders), thread: Some(thread) };
        Ok(Disk::Thread { thread, completions, underway: VecDeque::new() })
    }

    /// Makes records durable. Inline, the completion is given back.
    pub(crate) fn persist(&mut self, records: Vec<LogRecord>) -> Option<Completion> {
        match self {
            Disk::Inline { log, .. } => {
                log.append(&records);
                Some(log.sync_if_due())
            }
            Disk::Thread { thread, underway, .. } => {
                let bytes = records.iter().map(record_bytes).sum();
                underway.extend(records.last().map(|record| (record.lsn, bytes)));
                thread.order(Order::Persist(records));
                None
            }
        }
    }

    /// Reads entries back. Inline, the completion is given back.
    pub(crate) fn fetch(&mut self, fetch: Fetch) -> Option<Completion> {
        match self {
            Disk::Inline { log, .. } => Some(log.fetch(fetch)),
            Disk::Thread { thread, .. } => {
                thread.order(Order::Fetch(fetch));
                None
            }
        }
    }

    /// Comes back with what the log has done besides what it was just asked.
    pub(crate) async fn completed(&mut self) -> Completion {
        match self {
            Disk::Inline { log, ready } => {
                ready.notified().await;
                log.look()
            }
            Disk::Thread { completions, underway, .. } => {
                let completion = completions.recv().await.expect("a panic on the log thread aborts");
                less_underway(completion, underway)
            }
        }
    }

    /// What else has been done already; what a full disk refused is tried again on the way.
    pub(crate) fn try_completed(&mut self) -> Option<Completion> {
        match self {
            Disk::Inline { log, .. } if log.is_blocked() => {
                log.is_due().then(|| log.sync()).filter(|_| !log.is_blocked())
            }
            Disk::Inline { log, .. } => log.look_if_ready(),
            Disk::Thread { completions, underway, .. } => {
                completions.try_recv().ok().map(|completion| less_underway(completion, underway))
            }
        }
    }

    /// Writes the mark of a clean end; everything ordered before it is on disk on return.
    pub(crate) fn close(self) {
        match self {
            Disk::Inline { log, .. } => log.close(),
            Disk::Thread { thread, .. } => {
                thread.order(Order::Close);
                drop(thread); // comes back when it is done
            }
        }
    }
}

fn record_bytes(record: &LogRecord) -> u64 {
    match &record.body {
        LogBody::Entry(entry) => entry.len() as u64,
        LogBody::HardState(_)
        | LogBody::Truncate(_)
        | LogBody::Commit(_)
        | LogBody::Base(_)
        | LogBody::Floor(_) => 0,
    }
}

/// The log's thread cannot know what is on its way to it.
fn less_underway(completion: Completion, underway: &mut VecDeque<(Lsn, u64)>) -> Completion {
    let mut less = |lsn: Lsn, room: LogRoom| {
        while underway.front().is_some_and(|&(last, _)| last <= lsn) {
            underway.pop_front();
        }
        let bytes: u64 = underway.iter().map(|&(_, bytes)| bytes).sum();
        LogRoom { free: room.free.saturating_sub(bytes), ..room }
    };
    match completion {
        Completion::Persisted(lsn, room, took) => Completion::Persisted(lsn, less(lsn, room), took),
        Completion::Room(room) => Completion::Room(less(Lsn(0), room)),
        fetched @ Completion::Fetched(..) => fetched,
    }
}

/// The thread: whatever was ordered during the last sync is the next group. [replication-protocols B3]
fn run(mut log: Log, inbox: &sync_mpsc::Receiver<Order>, report: &mpsc::UnboundedSender<Completion>) {
    let _abort = crate::AbortOnPanic;
    loop {
        let first = match inbox.recv_timeout(if log.is_blocked() { FULL_RETRY } else { Duration::MAX }) {
            Ok(order) => Some(order),
            Err(sync_mpsc::RecvTimeoutError::Timeout) => None,
            Err(sync_mpsc::RecvTimeoutError::Disconnected) => return,
        };
        let mut dirty = log.is_blocked();
        for order in first.into_iter().chain(inbox.try_iter()) {
            match order {
                Order::Persist(records) => {
                    log.append(&records);
                    dirty = true;
                }
                Order::Fetch(fetch) => {
                    // Entries that are being fetched may still be in the block that is not written yet.
                    if std::mem::take(&mut dirty) && report.send(log.sync_if_due()).is_err() {
                        return;
                    }
                    if report.send(log.fetch(fetch)).is_err() {
                        return;
                    }
                }
                Order::Look => {
                    if report.send(log.look()).is_err() {
                        return;
                    }
                }
                Order::Close => return log.close(),
            }
        }
        if dirty && report.send(log.sync_if_due()).is_err() {
            return; // the driver is gone
        }
    }
}

/// The log and what it counts.
pub(crate) struct Log {
    wal: Wal,
    group: GroupId,
    metrics: Arc<Metrics>,
    watch: Watch,
    /// Segments made ready beside the log.
    ready: sync_mpsc::Sender<Result<Prepared, WalError>>,
    prepared: sync_mpsc::Receiver<Result<Prepared, WalError>>,
    /// Tells whoever waits that a segment has been made ready, or could not be.
    on_ready: Arc<dyn Fn() + Send + Sync>,
    /// The disk had no room for the next segment.
    no_spare: bool,
    /// The disk had no room for what is to be written, when it was last tried.
    blocked: Option<Instant>,
    /// The records since the last sync are commit marks alone: the log is idle.
    idle: bool,
}

impl Log {
    pub(crate) fn new(wal: Wal, group: GroupId, metrics: Arc<Metrics>, watch: Watch) -> Log {
        let (ready, prepared) = sync_mpsc::channel();
        let on_ready = Arc::new(|| {});
        let log = Log {
            wal,
            group,
            metrics,
            watch,
            ready,
            prepared,
            on_ready,
            no_spare: false,
            blocked: None,
            idle: true,
        };
        log.count();
        log
    }

    /// Room in the log as it is now.
    pub(crate) fn room(&self) -> LogRoom {
        LogRoom { free: self.wal.space(), full: self.is_blocked() || self.no_spare }
    }

    fn is_blocked(&self) -> bool {
        self.blocked.is_some()
    }

    /// Whether to go to the disk: a full one is not asked all the time, because asking means filling what is left of it.
    fn is_due(&self) -> bool {
        self.blocked.is_none_or(|tried| tried.elapsed() >= FULL_RETRY)
    }

    fn append(&mut self, records: &[LogRecord]) {
        self.idle &= records.iter().all(|record| matches!(record.body, LogBody::Commit(_)));
        self.wal.append(self.group, records).unwrap_or_else(|error| fatal(&error));
    }

    fn sync_if_due(&mut self) -> Completion {
        if self.is_due() { self.sync() } else { Completion::Room(self.room()) }
    }

    fn sync(&mut self) -> Completion {
        self.take_prepared();
        let began = Instant::now();
        let durable = match self.watch.over(Work::Disk, || self.wal.sync()) {
            Ok(durable) => durable,
            Err(error @ WalError::NoSpace { .. }) => return self.on_full(&error),
            Err(error) => fatal(&error),
        };
        let took = began.elapsed();
        self.metrics.sync.observe(took);
        let took = (!self.idle).then_some(took);
        if self.blocked.take().is_some() {
            report::info(format_args!("what waited for room in the log is written"));
        }
        if std::mem::replace(&mut self.idle, true) {
            // Nothing else will come for a while: say that everything is synced, so that damage to it is told from a
            // torn tail later. [fault-model ST6]
            self.watch.over(Work::Disk, || self.wal.mark()).unwrap_or_else(|error| fatal(&error));
        }
        let lsn = durable.into_iter().find(|(group, _)| *group == self.group).map_or(Lsn(0), |(_, lsn)| lsn);
        self.prepare_next();
        self.count();
        Completion::Persisted(lsn, self.room(), took)
    }

    fn on_full(&mut self, error: &WalError) -> Completion {
        if self.blocked.replace(Instant::now()).is_none() {
            report::warn(format_args!("{error}; what is to be written waits, nothing acknowledged is lost"));
        }
        self.prepare_next(); // its end is the next occasion to try
        Completion::Room(self.room())
    }

    fn fetch(&mut self, fetch: Fetch) -> Completion {
        let bytes_max = fetch.bytes_max.min(FETCH_BYTES_MAX);
        let read =
            self.watch.over(Work::Disk, || self.wal.read(self.group, fetch.first, fetch.last, bytes_max));
        let entries = match read {
            Ok(entries) => entries,
            Err(error @ WalError::Damaged { .. }) => {
                // Nothing of it has left this member, and nothing will.
                report::warn(format_args!(
                    "an entry read back from the log is not what was written: {error}"
                ));
                report::last_words(format_args!(
                    "stopping, so that the next start mends the log from the other members"
                ));
                std::process::exit(1);
            }
            Err(error) => fatal(&error),
        };
        Completion::Fetched(fetch, entries)
    }

    fn close(self) {
        if let Err(error) = self.wal.close() {
            report::warn(format_args!(
                "the log was not closed cleanly (a restart reads it all the same): {error}"
            ));
        }
    }

    /// Zero-fills the next segment on a passing thread, so that no write waits for it; on this one if the system gives
    /// no thread, because without it no write would be let in.
    fn prepare_next(&mut self) {
        let Some(task) = self.wal.wants_segment() else { return };
        let (ready, on_ready) = (self.ready.clone(), self.on_ready.clone());
        let pause = if self.no_spare { FULL_RETRY } else { Duration::ZERO };
        let task = Mutex::new(Some(task));
        let make = Arc::new(move || {
            let Some(task) = task.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
            std::thread::sleep(pause); // a full disk is not asked all the time
            let _ = ready.send(task.run()); // the log may have closed meanwhile
            on_ready();
        });
        let beside = make.clone();
        if let Err(error) = std::thread::Builder::new().name("kattu-segment".into()).spawn(move || beside()) {
            report::warn(format_args!("no thread to prepare the next log segment ({error}): doing it here"));
            make();
        }
    }

    /// Whether there was anything to take.
    fn take_prepared(&mut self) -> bool {
        let Ok(made) = self.prepared.try_recv() else { return false };
        match self.wal.accept(made) {
            Ok(()) => {
                if std::mem::replace(&mut self.no_spare, false) {
                    report::info(format_args!("there is room for the log again"));
                }
            }
            // A leader without a log would refuse every write as if its disk were full, and lead on.
            Err(error) if error.ends_the_log() => fatal(&error),
            Err(error) => {
                if !std::mem::replace(&mut self.no_spare, true) {
                    report::warn(format_args!("the next log segment could not be prepared: {error}"));
                }
            }
        }
        true
    }

    /// Takes what was made ready, without waiting to be told: a busy driver may not come round to listening.
    fn look_if_ready(&mut self) -> Option<Completion> {
        self.take_prepared().then(|| self.look())
    }

    /// Takes what was made ready beside the log.
    fn look(&mut self) -> Completion {
        self.take_prepared();
        self.prepare_next();
        self.count();
        Completion::Room(self.room())
    }

    fn count(&self) {
        let stats = self.wal.stats();
        self.metrics.log_written_bytes.set(stats.bytes_written);
        self.metrics.log_bytes.set(stats.log_bytes);
        self.metrics.log_segments.set(stats.segments);
        self.metrics.log_free_bytes.set(self.wal.space());
    }
}

/// The log failed: what it holds is unknown until it is read back.
fn fatal(error: &WalError) -> ! {
    report::last_words(format_args!("the log failed, stopping: {error}"));
    std::process::abort();
}

#[cfg(test)]
mod tests {
    use super::*;
    use kattu_raft::{EntryHead, EntryId, EntryKind, Form, Incarnation, LogIndex, NodeId, Stamp};
    use kattu_wal::sim::SimDisk;
    use kattu_wal::{DataDir, Identity, WalOptions};

    fn log_on(disk: &SimDisk) -> Log {
        let options = WalOptions { segment_bytes: 1 << 16, reserve_bytes: 0, ..WalOptions::default() };
        let mut dir = DataDir::open(Arc::new(disk.clone())).expect("nobody holds it");
        dir.create(Identity::single(0xC1, NodeId(1), Incarnation(1), "n1"), &options).expect("room");
        let (wal, _) = Wal::open(dir, options).expect("an empty log");
        Log::new(wal, GroupId(0), Arc::default(), Watch::default())
    }

    /// Entries of 10 KiB from `first` on.
    fn entries(first: u64, count: u64) -> Vec<LogRecord> {
        (first..first + count)
            .map(|at| {
                let id = EntryId::new(1, at);
                let head = EntryHead { id, kind: EntryKind::Command, form: Form::Whole, stamp: Stamp(0) };
                let entry = (crate::encoder().0)(GroupId(0), head, &[7; 10 << 10]);
                LogRecord { lsn: Lsn(at), body: LogBody::Entry(entry) }
            })
            .collect()
    }

    /// An inline log with a segment ready beside it, and how much room that makes.
    fn ready(disk: &SimDisk) -> (Disk, LogRoom) {
        let mut inline = Disk::inline(log_on(disk));
        loop {
            match inline.try_completed() {
                Some(Completion::Room(room)) => return (inline, room),
                Some(other) => panic!("{other:?}"),
                None => std::thread::yield_now(),
            }
        }
    }

    fn log_of(disk: &mut Disk) -> &mut Log {
        let Disk::Inline { log, .. } = disk else { panic!("it is inline") };
        log
    }

    #[test]
    fn a_segment_made_ready_is_taken_without_being_waited_for() {
        let disk = SimDisk::new();
        let before = log_on(&disk.copy()).room();
        let (_, after) = ready(&disk);
        assert!(before.free + (1 << 15) < after.free, "{before:?}, then {after:?}");
    }

    #[test]
    fn only_groups_that_are_more_than_commit_marks_say_what_the_disk_took() {
        let (mut disk, _) = ready(&SimDisk::new());
        let entries = disk.persist(entries(1, 3));
        assert!(matches!(entries, Some(Completion::Persisted(Lsn(3), _, Some(_)))), "{entries:?}");
        let mark = disk.persist(vec![LogRecord { lsn: Lsn(4), body: LogBody::Commit(LogIndex(3)) }]);
        assert!(matches!(mark, Some(Completion::Persisted(_, _, None))), "{mark:?}");
    }

    #[test]
    fn a_full_disk_is_tried_again_after_a_while_and_not_with_every_batch() {
        let sim = SimDisk::new();
        let (mut disk, _) = ready(&sim);
        sim.limit_to(Some(sim.bytes()));
        let refused = disk.persist(entries(1, 30));
        assert!(matches!(refused, Some(Completion::Room(LogRoom { full: true, .. }))), "{refused:?}");

        sim.limit_to(None);
        let in_an_hour = Instant::now() + Duration::from_secs(3600);
        log_of(&mut disk).blocked = Some(in_an_hour);
        assert!(disk.try_completed().is_none(), "it is not time");
        let waits = disk.persist(entries(31, 1));
        assert!(matches!(waits, Some(Completion::Room(LogRoom { full: true, .. }))), "{waits:?}");

        log_of(&mut disk).blocked = Some(Instant::now() - FULL_RETRY);
        let written = disk.try_completed();
        assert!(matches!(written, Some(Completion::Persisted(Lsn(31), _, Some(_)))), "{written:?}");
        assert!(!log_of(&mut disk).is_blocked());
    }

    #[test]
    fn a_full_disk_is_tried_again_by_a_log_on_its_own_thread() {
        let sim = SimDisk::new();
        let log = log_on(&sim);
        sim.limit_to(Some(sim.bytes()));
        let mut disk = Disk::thread(log).expect("a thread");
        assert!(disk.persist(entries(1, 30)).is_none());
        let mut was_full = false;
        loop {
            match disk.try_completed() {
                Some(Completion::Room(room)) => {
                    was_full |= room.full;
                    sim.limit_to(None);
                }
                Some(Completion::Persisted(lsn, ..)) => {
                    assert_eq!(lsn, Lsn(30));
                    break;
                }
                Some(other) => panic!("{other:?}"),
                None => std::thread::yield_now(),
            }
        }
        assert!(was_full);
        disk.close();
    }

    #[test]
    fn a_log_on_its_own_thread_lets_go_of_its_directory_when_it_is_dropped() {
        for round in 0..20 {
            let sim = SimDisk::new();
            let mut disk = Disk::thread(log_on(&sim)).expect("a thread");
            assert!(disk.persist(entries(1, 6)).is_none());
            if round % 2 == 0 {
                drop(disk);
            } else {
                disk.close();
            }
            DataDir::open(Arc::new(sim.clone())).expect("nobody holds it any more");
        }
    }
}
