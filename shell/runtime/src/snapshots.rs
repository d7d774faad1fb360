//! The snapshot worker: one low-priority thread that takes, reads, stores and thaws snapshots, so that no other thread
//! waits. What it does next is decided in `shell/member` (`snapshots`).
//!
//! A step that fails is given up and reported, and leaves nothing behind; the member goes on with its log. Two failures
//! end the process: a failed sync, because the contents of the disk are then unknown [fault-model F11]; and an
//! installed snapshot that cannot be read back, because the log begins after it: after the restart a peer sends another
//! one.
//! Knows nothing of: when a snapshot is due, what its chunks mean, how far each peer lags.

use crate::clock;
use crate::disk::{Watched, sync_failed};
use crate::metrics::Metrics;
use crate::report::{self, Cause};
use crate::watchdog::{Watchdog, Work};
use kattu_member::host::Brought;
use kattu_member::snapshots::{self as steps, Done, End, Note};
use kattu_node::Keeper;
use kattu_raft::{EntryId, GroupId, Instant};
use kattu_wal::{Snapshot, SnapshotStore};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc as sync_mpsc;
use std::thread::JoinHandle;
use tokio::sync::mpsc;

/// The niceness of this thread relative to the others.
const NICENESS: i32 = 10;

/// Orders to the worker's thread.
pub(crate) enum Order {
    Work(Box<steps::Order>),
    /// Drop tables that are no longer needed: it takes a while.
    Drop(Box<Keeper>),
    Stop,
}

/// A handle for giving orders.
#[derive(Clone)]
pub(crate) struct Orders(sync_mpsc::Sender<Order>);

impl Orders {
    /// Sends an order. It is dropped if the worker has stopped: then the member has stopped, too.
    pub(crate) fn give(&self, order: Order) {
        let _ = self.0.send(order);
    }

    /// Sends an order that is a step's.
    pub(crate) fn work(&self, order: steps::Order) {
        self.give(Order::Work(Box::new(order)));
    }

    /// A handle without a worker.
    #[cfg(test)]
    pub(crate) fn nowhere() -> Orders {
        Orders(sync_mpsc::channel().0)
    }
}

/// The worker. Dropping it abandons its current work.
pub(crate) struct Snapshots {
    orders: Orders,
    done: mpsc::UnboundedReceiver<Brought>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Snapshots {
    pub(crate) fn start(
        store: SnapshotStore,
        group: GroupId,
        bytes_per_s: u64,
        metrics: Arc<Metrics>,
        watchdog: Watchdog,
    ) -> std::io::Result<Snapshots> {
        let (orders, inbox) = sync_mpsc::channel();
        let (report, done) = mpsc::unbounded_channel();
        let stop = Arc::new(AtomicBool::new(false));
        let steps = steps::Worker::new(store, group, bytes_per_s);
        let mut worker = Worker { steps, metrics, watchdog, report, stop: stop.clone() };
        let thread = std::thread::Builder::new().name("kattu-snapshots".into()).spawn(move || {
            let _abort = crate::AbortOnPanic;
            let _ = rustix::process::nice(NICENESS); // if that fails, the other threads notice it more
            worker.run(&inbox);
        })?;
        Ok(Snapshots { orders: Orders(orders), done, stop, thread: Some(thread) })
    }

    /// A handle for giving orders.
    pub(crate) fn orders(&self) -> Orders {
        self.orders.clone()
    }

    /// Returns the next result.
    pub(crate) async fn done(&mut self) -> Brought {
        self.done.recv().await.expect("a panic on the snapshot thread aborts")
    }

    /// The next result, if there is one already.
    pub(crate) fn try_done(&mut self) -> Option<Brought> {
        self.done.try_recv().ok()
    }
}

impl Drop for Snapshots {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.orders.give(Order::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic there has ended the process
        }
    }
}

/// The tables of the snapshot that ends at `last`, and its file; the error is for the operator.
pub(crate) fn thaw(
    store: &SnapshotStore,
    group: GroupId,
    last: EntryId,
    stop: &AtomicBool,
) -> Result<Option<(Keeper, Snapshot)>, String> {
    match steps::thaw(store, group, last, &|| stop.load(Ordering::Relaxed)) {
        Ok(thawed) => thawed,
        Err(error) => Err(error.to_string()),
    }
}

struct Worker {
    steps: steps::Worker,
    metrics: Arc<Metrics>,
    watchdog: Watchdog,
    report: mpsc::UnboundedSender<Brought>,
    stop: Arc<AtomicBool>,
}

impl Worker {
    fn run(&mut self, inbox: &sync_mpsc::Receiver<Order>) {
        while !self.stop.load(Ordering::Relaxed) {
            let now = clock::now();
            match inbox.recv_timeout(self.steps.due(now).since(now)) {
                Ok(Order::Work(order)) => self.steps.push(*order),
                Ok(Order::Drop(tables)) => drop(tables),
                Ok(Order::Stop) | Err(sync_mpsc::RecvTimeoutError::Disconnected) => return,
                Err(sync_mpsc::RecvTimeoutError::Timeout) => self.step(),
            }
        }
    }

    fn step(&mut self) {
        let began = clock::now();
        let stops = || self.stop.load(Ordering::Relaxed);
        let done = self.steps.step(began, &mut Watched(&self.watchdog, Work::Snapshots), &stops);
        for note in self.steps.take_notes() {
            self.note(note, began);
        }
        match done {
            Ok(Done::Nothing) => {}
            Ok(Done::Told(event) | Done::Complete(_, event)) => self.tell(Brought::Event(event)),
            Ok(Done::Thawed(meta, keeper)) => self.tell(Brought::Tables(meta, keeper)),
            Ok(Done::NoTables(_, why)) => self.cannot_thaw(&why),
            Err(End::Thaw(error)) => self.cannot_thaw(&error.to_string()),
            Err(End::Sync(error)) => sync_failed(&error),
        }
    }

    fn tell(&self, brought: Brought) {
        let _ = self.report.send(brought); // the driver may be gone
    }

    /// Tells the operator of a step that began at `began`, and counts.
    fn note(&self, note: Note, began: Instant) {
        match note {
            Note::Taken(last, bytes, since) => {
                let took = clock::now().since(since);
                self.metrics.snapshots_taken.add(1);
                self.metrics.snapshot_bytes.set(bytes);
                self.metrics.snapshot_ms.set(u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
                report::info(format_args!("took a snapshot up to {last}: {bytes} bytes in {took:?}"));
            }
            Note::NotTaken(error) => {
                self.metrics.snapshots_failed.add(1);
                report::warn(format_args!(
                    "cannot take a snapshot, retrying when the log has grown: {error}"
                ));
            }
            Note::Installing(last, bytes) => {
                let took = clock::now().since(began);
                self.metrics.snapshots_installed.add(1);
                report::info(format_args!("installing the snapshot up to {last}: {bytes} bytes in {took:?}"));
            }
            Note::NotRead(error) => report::warn(format_args!("cannot read a snapshot for a peer: {error}")),
            Note::NotRemoved(error) => {
                report::warn(format_args!("cannot remove an old snapshot yet: {error}"));
            }
            Note::NotStored(error) => {
                report::warn(format_args!("cannot store a snapshot from the leader, retrying: {error}"));
            }
            Note::ArrivedDamaged(error) => report::warn_of(
                Cause::of("snapshot from the leader damaged"),
                format_args!(
                    "a snapshot from the leader arrived damaged, requesting it again: {}",
                    error.finding()
                ),
            ),
            Note::Unreadable(error) => {
                report::warn_of(Cause::of("snapshot from the leader unreadable"), format_args!("{error}"));
            }
            Note::Damaged(error) => report::warn_of(
                Cause::of("damaged snapshot"),
                format_args!(
                    "a snapshot is damaged, peers are sent another one; check this disk: {}",
                    error.finding()
                ),
            ),
        }
    }

    /// The log begins after a snapshot that cannot be read: the end, unless it comes anyway.
    fn cannot_thaw(&self, why: &str) {
        if self.stop.load(Ordering::Relaxed) {
            return;
        }
        report::last_words(format_args!(
            "cannot read the snapshot that the log begins after, stopping: {why}; after a restart another member sends one"
        ));
        std::process::abort();
    }
}
