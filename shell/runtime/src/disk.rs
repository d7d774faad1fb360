//! Log I/O: on the driver's thread, or on one of its own.
//!
//! Inline, a sync blocks the driver; whatever arrives meanwhile is the next group, and no thread is woken for it. On its
//! own thread the driver goes on handling messages during a sync, at the price of a hand-off there and back for every
//! group. A failed write or sync ends the process: what is on disk is unknown, and only a restart reads it back.
//! [fault-model ST3, F11]
//! Knows nothing of: what records mean, when they are due.

use crate::metrics::Metrics;
use crate::report;
use crate::watchdog::Watch;
use kattu_raft::{Duration, Entry, Fetch, GroupId, LogBody, LogRecord, Lsn};
use kattu_wal::{Prepared, Wal, WalError};
use std::sync::Arc;
use std::sync::mpsc as sync_mpsc;
use std::time::Instant;
use tokio::sync::mpsc;

/// How often a full disk is tried again.
const FULL_RETRY: Duration = Duration::from_millis(200);

/// What the log has done.
#[derive(Debug)]
pub(crate) enum Completion {
    /// Everything up to this record is durable; so many bytes of log are allocated and free.
    Persisted(Lsn, u64),
    /// Entries were read back.
    Fetched(Fetch, Vec<Entry>),
    /// The disk is full: nothing was written, nothing is acknowledged, it is tried again. [fault-model F12]
    Full,
}

pub(crate) enum Order {
    Persist(Vec<LogRecord>),
    Fetch(Fetch),
    Close(sync_mpsc::Sender<()>),
}

/// The log, with a thread of its own or without.
pub(crate) enum Disk {
    Inline(Box<Log>),
    Thread { orders: sync_mpsc::Sender<Order>, completions: mpsc::UnboundedReceiver<Completion> },
}

impl Disk {
    pub(crate) fn inline(log: Log) -> Disk {
        Disk::Inline(Box::new(log))
    }

    pub(crate) fn thread(log: Log) -> std::io::Result<Disk> {
        let (orders, inbox) = sync_mpsc::channel();
        let (report, completions) = mpsc::unbounded_channel();
        std::thread::Builder::new().name("kattu-log".into()).spawn(move || run(log, &inbox, &report))?;
        Ok(Disk::Thread { orders, completions })
    }

    /// Makes records durable. Inline, the completion is given back.
    pub(crate) fn persist(&mut self, records: Vec<LogRecord>) -> Option<Completion> {
        match self {
            Disk::Inline(log) => {
                log.append(&records);
                Some(log.sync())
            }
            Disk::Thread { orders, .. } => {
                order(orders, Order::Persist(records));
                None
            }
        }
    }

    /// Tries again what a full disk refused. A log on its own thread does so by itself.
    pub(crate) fn retry(&mut self) -> Option<Completion> {
        match self {
            Disk::Inline(log) if log.full => Some(log.sync()),
            Disk::Inline(_) | Disk::Thread { .. } => None,
        }
    }

    /// Reads entries back. Inline, the completion is given back.
    pub(crate) fn fetch(&mut self, fetch: Fetch) -> Option<Completion> {
        match self {
            Disk::Inline(log) => Some(log.fetch(fetch)),
            Disk::Thread { orders, .. } => {
                order(orders, Order::Fetch(fetch));
                None
            }
        }
    }

    /// Comes back with what a log on its own thread has done; never, inline.
    pub(crate) async fn completed(&mut self) -> Completion {
        match self {
            Disk::Inline(_) => std::future::pending().await,
            Disk::Thread { completions, .. } => {
                completions.recv().await.expect("a panic on the log thread aborts")
            }
        }
    }

    /// What else a log on its own thread has done already.
    pub(crate) fn try_completed(&mut self) -> Option<Completion> {
        match self {
            Disk::Inline(_) => None,
            Disk::Thread { completions, .. } => completions.try_recv().ok(),
        }
    }

    /// Writes the mark of a clean end; everything ordered before it is on disk on return.
    pub(crate) fn close(self) {
        match self {
            Disk::Inline(log) => log.close(),
            Disk::Thread { orders, .. } => {
                let (closed, wait) = sync_mpsc::channel();
                order(&orders, Order::Close(closed));
                let _ = wait.recv();
            }
        }
    }
}

fn order(orders: &sync_mpsc::Sender<Order>, order: Order) {
    orders.send(order).expect("a panic on the log thread aborts");
}

/// The thread: whatever was ordered during the last sync is the next group. [replication-protocols B3]
fn run(mut log: Log, inbox: &sync_mpsc::Receiver<Order>, report: &mpsc::UnboundedSender<Completion>) {
    let _abort = crate::AbortOnPanic;
    loop {
        let first = match inbox.recv_timeout(if log.full { FULL_RETRY } else { Duration::MAX }) {
            Ok(order) => Some(order),
            Err(sync_mpsc::RecvTimeoutError::Timeout) => None,
            Err(sync_mpsc::RecvTimeoutError::Disconnected) => return,
        };
        let mut dirty = log.full;
        for order in first.into_iter().chain(inbox.try_iter()) {
            match order {
                Order::Persist(records) => {
                    log.append(&records);
                    dirty = true;
                }
                Order::Fetch(fetch) => {
                    // Entries that are being fetched may still be in the block that is not written yet.
                    if std::mem::take(&mut dirty) && report.send(log.sync()).is_err() {
                        return;
                    }
                    if report.send(log.fetch(fetch)).is_err() {
                        return;
                    }
                }
                Order::Close(closed) => {
                    log.close();
                    let _ = closed.send(());
                    return;
                }
            }
        }
        if dirty && report.send(log.sync()).is_err() {
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
    /// The last attempt to write found the disk full.
    full: bool,
    /// The records since the last sync are commit marks alone: the log is idle.
    idle: bool,
}

impl Log {
    pub(crate) fn new(wal: Wal, group: GroupId, metrics: Arc<Metrics>, watch: Watch) -> Log {
        let (ready, prepared) = sync_mpsc::channel();
        let log = Log { wal, group, metrics, watch, ready, prepared, full: false, idle: true };
        log.count();
        log
    }

    /// Bytes of log allocated and free. [fault-model ST15]
    pub(crate) fn space(&self) -> u64 {
        self.wal.space()
    }

    fn append(&mut self, records: &[LogRecord]) {
        self.idle &= records.iter().all(|record| matches!(record.body, LogBody::Commit(_)));
        self.wal.append(self.group, records).unwrap_or_else(|error| fatal(&error));
    }

    fn sync(&mut self) -> Completion {
        self.take_prepared();
        let began = Instant::now();
        let durable = match self.watch.over(|| self.wal.sync()) {
            Ok(durable) => durable,
            Err(error @ WalError::NoSpace { .. }) => return self.on_full(&error),
            Err(error) => fatal(&error),
        };
        self.metrics.sync.observe(began.elapsed());
        if std::mem::replace(&mut self.full, false) {
            report::info(format_args!("the log has room again"));
        }
        if std::mem::replace(&mut self.idle, true) {
            // Nothing else will come for a while: say that everything is synced, so that damage to it is told from a
            // torn tail later. [fault-model ST6]
            self.watch.over(|| self.wal.mark()).unwrap_or_else(|error| fatal(&error));
        }
        let lsn = durable.into_iter().find(|(group, _)| *group == self.group).map_or(Lsn(0), |(_, lsn)| lsn);
        self.prepare_next();
        self.count();
        Completion::Persisted(lsn, self.wal.space())
    }

    fn on_full(&mut self, error: &WalError) -> Completion {
        if !std::mem::replace(&mut self.full, true) {
            report::warn(format_args!("{error}; writes wait, nothing acknowledged is lost"));
        }
        Completion::Full
    }

    fn fetch(&mut self, fetch: Fetch) -> Completion {
        let entries = self
            .wal
            .read(self.group, fetch.first, fetch.last, fetch.bytes_max)
            .unwrap_or_else(|error| fatal(&error));
        Completion::Fetched(fetch, entries)
    }

    fn close(self) {
        if let Err(error) = self.wal.close() {
            report::warn(format_args!(
                "the log was not closed cleanly (a restart reads it all the same): {error}"
            ));
        }
    }

    /// Zero-fills the next segment on a passing thread, so that no write waits for it.
    fn prepare_next(&mut self) {
        let Some(task) = self.wal.wants_segment() else { return };
        let ready = self.ready.clone();
        let spawned = std::thread::Builder::new().name("kattu-segment".into()).spawn(move || {
            let _ = ready.send(task.run());
        });
        if let Err(error) = spawned {
            report::warn(format_args!("no thread to prepare the next log segment: {error}"));
        }
    }

    fn take_prepared(&mut self) {
        let Ok(made) = self.prepared.try_recv() else { return };
        if let Err(error) = self.wal.accept(made) {
            report::warn(format_args!("the next log segment could not be prepared: {error}"));
        }
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
    report::warn(format_args!("the log failed, stopping: {error}"));
    std::process::abort();
}
