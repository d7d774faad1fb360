//! The snapshot worker: one thread of low priority that takes, reads, stores and thaws snapshots, so that no other waits.
//!
//! ```text
//!   keeper ── pin ──▶ take: chunk by chunk, no faster than allowed ─▶ verified, durable ─▶ "taken"
//!   node ── read, store ─▶ pieces of files, between two chunks of one that is being taken
//!   keeper ── install ─▶ thaw: file ─▶ tables ─▶ they take the place of the keeper's
//! ```
//! What fails is given up and told, and leaves nothing behind; the member goes on with its log. Two things end the
//! process: a sync that failed, because nothing is known about the disk any more [fault-model F11]; and an installed
//! snapshot that cannot be read back, because the log begins after it: the restart asks a peer for another.
//! Knows nothing of: when a snapshot is due, what its chunks mean, which peer is how far behind.

use crate::metrics::Metrics;
use crate::report;
use crate::watchdog::{Watch, Work};
use kattu_node::Keeper;
use kattu_node::contract::Event;
use kattu_node::frozen::{Chunks, Frozen, Thaw};
use kattu_raft::{
    ChunkRead, ChunkStored, Duration, EntryId, GroupId, ReadChunk, SharedBytes, SnapshotMeta, StoreChunk,
};
use kattu_wal::{Snapshot, SnapshotStore, SnapshotWriter, WalError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc as sync_mpsc;
use std::thread::JoinHandle;
use std::time::Instant;
use tokio::sync::mpsc;

/// What could not be stored is not asked for again at once.
const STORE_RETRY: Duration = Duration::from_millis(200);
/// How much nicer than the other threads it is.
const NICENESS: i32 = 10;

/// What the worker is asked to do.
pub(crate) enum Order {
    /// Make a snapshot of these tables.
    Take(SnapshotMeta, Box<Frozen>),
    Read(ReadChunk),
    Store(StoreChunk),
    /// Read the tables of this snapshot.
    Thaw(SnapshotMeta),
    /// Let go of tables that nobody needs: it takes a while.
    Drop(Box<Keeper>),
    Stop,
}

/// What it has done.
pub(crate) enum Done {
    /// Something for the node.
    Told(Event),
    /// The tables that the keeper waits for.
    Thawed(Box<Keeper>),
}

/// Whoever gives orders holds one of these.
#[derive(Clone)]
pub(crate) struct Orders(sync_mpsc::Sender<Order>);

impl Orders {
    /// Asks for something; nothing comes of it when the worker has stopped, for then the member has, too.
    pub(crate) fn give(&self, order: Order) {
        let _ = self.0.send(order);
    }

    /// Orders that nobody carries out.
    #[cfg(test)]
    pub(crate) fn nowhere() -> Orders {
        Orders(sync_mpsc::channel().0)
    }
}

/// The worker. Dropping it gives up what it is doing.
pub(crate) struct Snapshots {
    orders: Orders,
    done: mpsc::UnboundedReceiver<Done>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Snapshots {
    pub(crate) fn start(
        store: SnapshotStore,
        group: GroupId,
        bytes_per_s: u64,
        metrics: Arc<Metrics>,
        watch: Watch,
    ) -> std::io::Result<Snapshots> {
        let (orders, inbox) = sync_mpsc::channel();
        let (report, done) = mpsc::unbounded_channel();
        let stop = Arc::new(AtomicBool::new(false));
        let mut worker = Worker {
            store,
            group,
            bytes_per_s,
            metrics,
            watch,
            report,
            stop: stop.clone(),
            taking: None,
            next_at: Instant::now(),
        };
        let thread = std::thread::Builder::new().name("kattu-snapshots".into()).spawn(move || {
            let _abort = crate::AbortOnPanic;
            let _ = rustix::process::nice(NICENESS); // as it is, it only matters more to the others
            worker.run(&inbox);
        })?;
        Ok(Snapshots { orders: Orders(orders), done, stop, thread: Some(thread) })
    }

    /// For whoever gives orders.
    pub(crate) fn orders(&self) -> Orders {
        self.orders.clone()
    }

    /// Comes back with something that it has done.
    pub(crate) async fn done(&mut self) -> Done {
        self.done.recv().await.expect("a panic on the snapshot thread aborts")
    }

    /// What it has done already.
    pub(crate) fn try_done(&mut self) -> Option<Done> {
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

/// The tables of the snapshot that ends at `last`; the error says what is wrong with it, in words for the operator.
pub(crate) fn thaw(
    store: &SnapshotStore,
    group: GroupId,
    last: EntryId,
    stop: &AtomicBool,
) -> Result<Option<(Keeper, Snapshot)>, String> {
    let reader = store.open(group, last).map_err(|error| error.to_string())?;
    let reader = reader.ok_or_else(|| format!("the snapshot up to {last} is gone or damaged"))?;
    let name = &reader.snapshot().name;
    let mut thaw = Thaw::default();
    for chunk in reader.chunks().map_err(|error| error.to_string())? {
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let chunk = chunk.map_err(|error| error.to_string())?;
        thaw.push(&chunk).map_err(|error| format!("{name}: {error}"))?;
    }
    let keeper = thaw.finish().map_err(|error| format!("{name}: {error}"))?;
    match keeper.applied() == last.index {
        true => Ok(Some((keeper, reader.snapshot().clone()))),
        false => Err(format!("{name}: it holds the state of index {}", keeper.applied().0)),
    }
}

/// How long so many bytes take at this pace.
fn time_for(bytes: usize, bytes_per_s: u64) -> Duration {
    match bytes_per_s {
        0 => Duration::ZERO,
        rate => Duration::from_nanos((bytes as u64).saturating_mul(1_000_000_000) / rate),
    }
}

/// A snapshot that is being taken.
struct Taking {
    meta: SnapshotMeta,
    chunks: Chunks,
    writer: SnapshotWriter,
    began: Instant,
}

struct Worker {
    store: SnapshotStore,
    group: GroupId,
    bytes_per_s: u64,
    metrics: Arc<Metrics>,
    watch: Watch,
    report: mpsc::UnboundedSender<Done>,
    stop: Arc<AtomicBool>,
    taking: Option<Taking>,
    /// The next chunk is not written before this.
    next_at: Instant,
}

impl Worker {
    fn run(&mut self, inbox: &sync_mpsc::Receiver<Order>) {
        while !self.stop.load(Ordering::Relaxed) {
            let patience = match &self.taking {
                Some(_) => self.next_at.saturating_duration_since(Instant::now()),
                None => Duration::MAX,
            };
            match inbox.recv_timeout(patience) {
                Ok(Order::Take(meta, frozen)) => self.begin(meta, *frozen),
                Ok(Order::Read(request)) => self.read(request),
                Ok(Order::Store(piece)) => self.store(&piece),
                Ok(Order::Thaw(meta)) => self.thaw(&meta),
                Ok(Order::Drop(tables)) => drop(tables),
                Ok(Order::Stop) | Err(sync_mpsc::RecvTimeoutError::Disconnected) => return,
                Err(sync_mpsc::RecvTimeoutError::Timeout) => self.go_on(),
            }
        }
    }

    fn tell(&self, event: Event) {
        let _ = self.report.send(Done::Told(event)); // the driver may be gone
    }

    // ── Taking ──

    fn begin(&mut self, meta: SnapshotMeta, frozen: Frozen) {
        assert!(self.taking.is_none(), "one snapshot at a time");
        match self.store.create(self.group, meta.clone()) {
            Ok(writer) => {
                self.next_at = Instant::now();
                self.taking = Some(Taking { meta, chunks: frozen.chunks(), writer, began: self.next_at });
            }
            Err(error) => self.failed(meta.last, &error),
        }
    }

    /// Writes the next chunk, or comes to the end.
    fn go_on(&mut self) {
        let Some(taking) = &mut self.taking else { return };
        let last = taking.meta.last;
        if let Some(chunk) = taking.chunks.next() {
            self.next_at = Instant::now() + time_for(chunk.len(), self.bytes_per_s);
            if let Err(error) = self.watch.over(Work::Snapshots, || taking.writer.push(&chunk)) {
                self.taking = None; // removes the file
                self.failed(last, &error);
            }
            return;
        }
        let Some(Taking { meta, writer, began, .. }) = self.taking.take() else { return };
        match writer.finish() {
            Ok(snapshot) => self.taken(meta, &snapshot, began),
            Err(error) => self.failed(last, &error),
        }
    }

    fn taken(&self, meta: SnapshotMeta, snapshot: &Snapshot, began: Instant) {
        let metrics = &self.metrics;
        metrics.snapshots_taken.add(1);
        metrics.snapshot_bytes.set(snapshot.bytes);
        metrics.snapshot_ms.set(u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX));
        report::info(format_args!(
            "snapshot up to {}: {} bytes in {:?}",
            meta.last,
            snapshot.bytes,
            began.elapsed()
        ));
        self.tell(Event::SnapshotTaken { meta, bytes: snapshot.bytes });
        if let Err(error) = self.store.tidy(self.group) {
            self.complain("an old snapshot stays for now", &error);
        }
    }

    fn failed(&self, last: EntryId, error: &WalError) {
        self.metrics.snapshots_failed.add(1);
        self.complain("a snapshot could not be taken, and is tried again when the log has grown", error);
        self.tell(Event::SnapshotFailed { last });
    }

    fn complain(&self, what: &str, error: &WalError) {
        if error.is_failed_sync() {
            report::warn(format_args!("a sync beside the log failed, stopping: {error}"));
            std::process::abort();
        }
        report::warn(format_args!("{what}: {error}"));
    }

    // ── For peers ──

    fn read(&self, request: ReadChunk) {
        let read = self.watch.over(Work::Snapshots, || self.store.read_chunk(self.group, &request));
        let read = read.unwrap_or_else(|error| {
            self.complain("a snapshot cannot be read for a peer", &error);
            let bytes = SharedBytes::from(Vec::new());
            ChunkRead::Bytes { bytes, total: u64::MAX } // a passing reason: it is asked again
        });
        self.tell(Event::ChunkRead { request, read });
    }

    fn store(&self, piece: &StoreChunk) {
        let last = piece.meta.last;
        let stored = self.store.store_chunk(self.group, piece).unwrap_or_else(|error| {
            self.complain("a snapshot of the leader's cannot be stored, and is tried again", &error);
            std::thread::sleep(STORE_RETRY);
            ChunkStored { last, next: 0, complete: false }
        });
        self.tell(Event::ChunkStored(stored));
    }

    fn thaw(&self, meta: &SnapshotMeta) {
        let began = Instant::now();
        match thaw(&self.store, self.group, meta.last, &self.stop) {
            Ok(Some((keeper, snapshot))) => {
                self.metrics.snapshots_installed.add(1);
                let took = began.elapsed();
                report::info(format_args!(
                    "installs the snapshot up to {}: {} bytes in {took:?}",
                    meta.last, snapshot.bytes
                ));
                let _ = self.report.send(Done::Thawed(Box::new(keeper))); // the driver may be gone
                if let Err(error) = self.store.tidy(self.group) {
                    self.complain("an old snapshot stays for now", &error);
                }
            }
            Ok(None) => {} // the member stops
            Err(_) if self.stop.load(Ordering::Relaxed) => {}
            Err(reason) => {
                report::warn(format_args!(
                    "the snapshot that the log begins after cannot be read, stopping: {reason}; a restart asks another member for one"
                ));
                std::process::abort();
            }
        }
    }
}
