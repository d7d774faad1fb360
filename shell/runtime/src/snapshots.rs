//! The snapshot worker: one low-priority thread that takes, reads, stores and thaws snapshots, so that no other thread
//! waits.
//!
//! ```text
//!   keeper ── pin ──▶ take: chunk by chunk, no faster than allowed ─▶ verified, durable ─▶ "taken"
//!   node ── read, store ─▶ pieces of files, between two chunks of one that is being taken
//!   keeper ── install ─▶ thaw: file ─▶ tables ─▶ they take the place of the keeper's
//! ```
//! A step that fails is given up and reported, and leaves nothing behind; the member goes on with its log. Two failures
//! end the process: a failed sync, because the contents of the disk are then unknown [fault-model F11]; and an
//! installed snapshot that cannot be read back, because the log begins after it: after the restart a peer sends another
//! one.
//! Knows nothing of: when a snapshot is due, what its chunks mean, how far each peer lags.

use crate::disk::Watched;
use crate::metrics::Metrics;
use crate::report::{self, Cause};
use crate::watchdog::{Watchdog, Work};
use kattu_member::host::Brought;
use kattu_member::snapshots::{self as steps, Note, STORE_RETRY};
use kattu_node::Keeper;
use kattu_node::contract::Event;
use kattu_raft::{Duration, EntryId, GroupId};
use kattu_wal::{Snapshot, SnapshotStore, WalError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc as sync_mpsc;
use std::thread::JoinHandle;
use std::time::Instant;
use tokio::sync::mpsc;

/// How long a received snapshot stays in memory: the order to thaw it comes at once, or never, if the log caught up.
const RECEIVED_FOR: Duration = Duration::from_secs(1);
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
        let mut worker = Worker::new(store, group, bytes_per_s, (metrics, watchdog), report, stop.clone());
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

/// How long so many bytes take at this pace.
fn time_for(bytes: usize, bytes_per_s: u64) -> Duration {
    match bytes_per_s {
        0 => Duration::ZERO,
        rate => Duration::from_nanos((bytes as u64).saturating_mul(1_000_000_000) / rate),
    }
}

struct Worker {
    steps: steps::Worker,
    bytes_per_s: u64,
    metrics: Arc<Metrics>,
    watchdog: Watchdog,
    report: mpsc::UnboundedSender<Brought>,
    stop: Arc<AtomicBool>,
    /// When the snapshot that is being taken was begun.
    taking_since: Instant,
    /// The next chunk is not written before this.
    next_at: Instant,
}

impl Worker {
    fn new(
        store: SnapshotStore,
        group: GroupId,
        bytes_per_s: u64,
        (metrics, watchdog): (Arc<Metrics>, Watchdog),
        report: mpsc::UnboundedSender<Brought>,
        stop: Arc<AtomicBool>,
    ) -> Worker {
        let (steps, now) = (steps::Worker::new(store, group), Instant::now());
        Worker { steps, bytes_per_s, metrics, watchdog, report, stop, taking_since: now, next_at: now }
    }

    fn run(&mut self, inbox: &sync_mpsc::Receiver<Order>) {
        while !self.stop.load(Ordering::Relaxed) {
            match inbox.recv_timeout(self.patience(Instant::now())) {
                Ok(Order::Work(order)) => self.carry_out(*order),
                Ok(Order::Drop(tables)) => drop(tables),
                Ok(Order::Stop) | Err(sync_mpsc::RecvTimeoutError::Disconnected) => return,
                Err(sync_mpsc::RecvTimeoutError::Timeout) => self.idle(Instant::now()),
            }
        }
    }

    /// How long to wait for orders before the next chunk is due.
    fn patience(&self, now: Instant) -> Duration {
        match (self.steps.is_taking(), self.steps.has_received()) {
            (true, _) => self.next_at.saturating_duration_since(now),
            (false, true) => RECEIVED_FOR,
            (false, false) => Duration::MAX,
        }
    }

    /// No order came in the time that [`Worker::patience`] gives.
    fn idle(&mut self, now: Instant) {
        match self.steps.is_taking() {
            true => self.go_on(now),
            false => self.steps.forget_received(),
        }
    }

    fn carry_out(&mut self, order: steps::Order) {
        let began = Instant::now();
        let is_thaw = matches!(order, steps::Order::Thaw(_));
        if matches!(order, steps::Order::Take(..)) {
            (self.taking_since, self.next_at) = (began, began);
        }
        let stop = self.stop.clone();
        let stops = move || stop.load(Ordering::Relaxed);
        let mut disk = Watched(&self.watchdog, Work::Snapshots);
        match self.steps.carry_out(order, &mut disk, &stops) {
            Ok(done) => self.done(done, began),
            Err(error) if is_thaw => self.cannot_thaw(&error.to_string()),
            Err(error) => fatal(&error),
        }
    }

    /// Writes the next chunk, or comes to the end.
    fn go_on(&mut self, now: Instant) {
        let mut disk = Watched(&self.watchdog, Work::Snapshots);
        match self.steps.go_on(&mut disk) {
            Ok((done, bytes)) => {
                self.next_at = now + time_for(bytes, self.bytes_per_s);
                self.done(done, self.taking_since);
            }
            Err(error) => fatal(&error),
        }
    }

    /// A step has ended that began at `began`.
    fn done(&mut self, done: steps::Done, began: Instant) {
        for note in self.steps.take_notes() {
            self.note(note, began.elapsed());
        }
        match done {
            steps::Done::Nothing => {}
            steps::Done::Told(event) | steps::Done::Complete(_, event) => self.tell(event),
            steps::Done::ToldLater(event) => {
                std::thread::sleep(STORE_RETRY);
                self.tell(event);
            }
            steps::Done::Thawed(meta, keeper) => {
                let _ = self.report.send(Brought::Tables(meta, keeper)); // the driver may be gone
            }
            steps::Done::NoTables(_, why) => self.cannot_thaw(&why),
        }
        if self.steps.is_untidy() && !self.stop.load(Ordering::Relaxed) {
            self.steps.tidy().unwrap_or_else(|error| fatal(&error));
            for note in self.steps.take_notes() {
                self.note(note, Duration::ZERO);
            }
        }
    }

    fn tell(&self, event: Event) {
        let _ = self.report.send(Brought::Event(event)); // the driver may be gone
    }

    /// Tells the operator, and counts.
    fn note(&self, note: Note, took: Duration) {
        match note {
            Note::Taken(last, bytes) => {
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

/// The contents of the disk are unknown.
fn fatal(error: &WalError) -> ! {
    report::last_words(format_args!("a sync of a file beside the log failed, stopping: {error}"));
    std::process::abort();
}

#[cfg(test)]
mod tests {
    use super::*;
    use kattu_disk::{Fault, SimDisk};
    use kattu_kv::api::{Command, Put};
    use kattu_node::command::encode_kv;
    use kattu_node::contract::{KeeperEffects, KeeperTask};
    use kattu_node::frozen::Frozen;
    use kattu_raft::{
        ChunkRead, ChunkStored, Entry, EntryHead, EntryKind, LogIndex, ReadChunk, SharedBytes, SnapshotMeta,
        Stamp, StoreChunk, Term,
    };
    use kattu_wal::Files;

    const GROUP: GroupId = GroupId(0);
    const SECOND: Duration = Duration::from_secs(1);

    /// Tables of some values of 100 KiB.
    fn tables(values: usize) -> (SnapshotMeta, Frozen) {
        let mut keeper = Keeper::new(Vec::new());
        for number in 0..values {
            let id = EntryId { term: Term(1), index: keeper.applied().next() };
            let (key, value) = (format!("k{number}").into_bytes(), vec![b'x'; 100 << 10]);
            let payload = encode_kv(&Command::Put(Put { key, value, ..Put::default() }));
            let head = EntryHead { id, kind: EntryKind::Command, stamp: Stamp(1) };
            let entry = Entry::new(head, payload.into(), 0);
            let task = KeeperTask::Apply { entry, ticket: None, term: Term(1) };
            keeper.handle(task, &mut KeeperEffects::default());
        }
        let last = EntryId { term: Term(1), index: keeper.applied() };
        (SnapshotMeta { last, ..SnapshotMeta::default() }, keeper.pin())
    }

    fn worker(bytes_per_s: u64) -> (Worker, mpsc::UnboundedReceiver<Brought>) {
        worker_on(&SimDisk::new(), bytes_per_s)
    }

    fn worker_on(disk: &SimDisk, bytes_per_s: u64) -> (Worker, mpsc::UnboundedReceiver<Brought>) {
        let (report, done) = mpsc::unbounded_channel();
        let store = SnapshotStore::of(Arc::new(disk.clone()), 0xC1).expect("a disk without faults");
        let beside = (Arc::default(), Watchdog::default());
        let worker = Worker::new(store, GROUP, bytes_per_s, beside, report, Arc::default());
        (worker, done)
    }

    /// Takes a snapshot on a clock that jumps to the moment the worker waits for. Returns the waits after each chunk,
    /// and the size that was reported.
    fn waits(bytes_per_s: u64, values: usize) -> (Vec<Duration>, u64) {
        let (mut worker, mut done) = worker(bytes_per_s);
        assert_eq!(worker.patience(Instant::now()), Duration::MAX, "there is nothing to write");
        let (meta, frozen) = tables(values);
        worker.carry_out(steps::Order::Take(meta.clone(), Box::new(frozen)));
        let mut now = worker.next_at;
        assert_eq!(worker.patience(now), Duration::ZERO, "the first chunk waits for nothing");
        let mut waits = Vec::new();
        loop {
            worker.go_on(now);
            if !worker.steps.is_taking() {
                break;
            }
            let wait = worker.patience(now);
            if let Some(short) = wait.checked_sub(Duration::from_nanos(1)) {
                assert_eq!(worker.patience(now + short), Duration::from_nanos(1), "not a moment before");
            }
            assert_eq!(worker.patience(now + wait), Duration::ZERO);
            assert_eq!(worker.patience(now + wait * 2), Duration::ZERO, "a late worker does not wait longer");
            waits.push(wait);
            now += wait;
        }
        match done.try_recv() {
            Ok(Brought::Event(Event::SnapshotTaken { meta: taken, bytes })) if taken == meta => {
                (waits, bytes)
            }
            _ => panic!("it is not reported"),
        }
    }

    #[test]
    fn the_time_for_a_chunk_follows_from_the_pace_and_no_pace_is_no_wait() {
        let nanos = Duration::from_nanos;
        let expected = [
            (0, 0, Duration::ZERO),
            (1 << 30, 0, Duration::ZERO),
            (usize::MAX, 0, Duration::ZERO),
            (0, 1, Duration::ZERO),
            (1, 1, SECOND),
            (1 << 20, 1 << 20, SECOND),
            ((1 << 20) - 1, 1 << 20, nanos(999_999_046)),
            ((1 << 20) + 1, 1 << 20, nanos(1_000_000_953)),
            (1 << 20, (1 << 20) - 1, nanos(1_000_000_953)),
            (1 << 20, 64 << 20, nanos(15_625_000)),
            (1 << 20, 1 << 40, nanos(953)),
            (1, 2_000_000_000, Duration::ZERO),
            (usize::MAX, u64::MAX, nanos(1)), // no overflow
        ];
        for (bytes, pace, time) in expected {
            assert_eq!(time_for(bytes, pace), time, "{bytes} bytes at {pace} bytes a second");
        }
    }

    #[test]
    fn a_snapshot_takes_as_long_as_its_pace_wants_it_to_and_waits_after_every_chunk() {
        for pace in [1 << 20, 8 << 20] {
            let (waits, bytes) = waits(pace, 40);
            assert!(4 <= waits.len() && waits.iter().all(|wait| !wait.is_zero()), "{waits:?}");
            assert!(40 * (100 << 10) < bytes, "{bytes}");
            let sum: Duration = waits.iter().sum();
            // The file holds a little more than the chunks.
            let whole = time_for(bytes as usize, pace);
            assert!(sum <= whole && whole <= sum + sum / 100, "{sum:?} of {whole:?}");
        }
    }

    #[test]
    fn snapshots_that_wait_to_become_the_tables_stay() {
        let (mut worker, mut done) = worker(0);
        // They arrive one after the other, while the keeper is busy.
        let metas: Vec<SnapshotMeta> = (1..=5)
            .map(|values| {
                let (meta, frozen) = tables(values);
                let mut writer = worker.steps.store().create(GROUP, meta.clone()).expect("room");
                frozen.chunks().for_each(|chunk| writer.push(&chunk).expect("room"));
                writer.finish().expect("a good disk");
                meta
            })
            .collect();
        for meta in &metas {
            let waits = worker.steps.store().open(GROUP, meta.last).expect("a good disk");
            assert!(waits.is_some(), "the snapshot up to {} is gone", meta.last);
            worker.carry_out(steps::Order::Thaw(meta.clone()));
            match done.try_recv() {
                Ok(Brought::Tables(_, keeper)) => assert_eq!(keeper.applied(), meta.last.index),
                _ => panic!("the tables up to {} do not come", meta.last),
            }
        }
        assert!(
            worker.steps.store().open(GROUP, metas[2].last).expect("a good disk").is_none(),
            "old ones go"
        );
    }

    /// Takes a snapshot of a few values; returns what it covers.
    fn taken(worker: &mut Worker, done: &mut mpsc::UnboundedReceiver<Brought>) -> SnapshotMeta {
        let (meta, frozen) = tables(3);
        worker.carry_out(steps::Order::Take(meta.clone(), Box::new(frozen)));
        while worker.steps.is_taking() {
            worker.go_on(Instant::now());
        }
        assert!(matches!(done.try_recv(), Ok(Brought::Event(Event::SnapshotTaken { .. }))));
        meta
    }

    /// The workers of a leader and a follower, and the stream between them, as raft drives it.
    struct Stream {
        leader: (Worker, mpsc::UnboundedReceiver<Brought>),
        follower: (Worker, mpsc::UnboundedReceiver<Brought>),
        meta: SnapshotMeta,
    }

    impl Stream {
        fn read(&mut self, offset: u64) -> ChunkRead {
            let peer = kattu_raft::NodeId(2);
            let request = ReadChunk { peer, last: self.meta.last, offset, bytes_max: 64 << 10 };
            self.leader.0.carry_out(steps::Order::Read(request));
            match self.leader.1.try_recv() {
                Ok(Brought::Event(Event::ChunkRead { read, .. })) => read,
                _ => panic!("a reading has an answer"),
            }
        }

        fn store(&mut self, offset: u64, bytes: SharedBytes, total: u64) -> ChunkStored {
            let piece = StoreChunk { meta: self.meta.clone(), offset, bytes, total };
            self.follower.0.carry_out(steps::Order::Store(piece));
            match self.follower.1.try_recv() {
                Ok(Brought::Event(Event::ChunkStored(stored))) => stored,
                _ => panic!("a piece has an answer"),
            }
        }

        /// Sends pieces until the follower has all of them, or none is left. Returns how often it began anew.
        fn run(&mut self) -> (bool, usize) {
            let (mut offset, mut begun) = (0, 0);
            loop {
                begun += usize::from(offset == 0);
                assert!(begun < 10, "it is sent again and again");
                match self.read(offset) {
                    ChunkRead::Gone => return (false, begun),
                    ChunkRead::Bytes { bytes, total } => {
                        let stored = self.store(offset, bytes, total);
                        if stored.complete {
                            return (true, begun);
                        }
                        offset = stored.next;
                    }
                }
            }
        }
    }

    fn streaming(disk: &SimDisk) -> Stream {
        let (mut worker, mut done) = worker_on(disk, 0);
        let meta = taken(&mut worker, &mut done);
        Stream { leader: (worker, done), follower: self::worker(0), meta }
    }

    #[test]
    fn a_damaged_snapshot_is_sent_once_and_then_another_one_is() {
        let disk = SimDisk::new();
        let mut stream = streaming(&disk);
        let name = disk.names().expect("a good disk").remove(0);
        let mut bytes = disk.contents(&name).expect("it is there");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x40;
        disk.set_contents(&name, Some(bytes));
        assert_eq!(stream.run(), (false, 2), "it begins anew once, and is gone");
        // The same snapshot is taken again: there was no write since.
        let (worker, done) = &mut stream.leader;
        assert_eq!(taken(worker, done), stream.meta);
        assert_eq!(stream.run(), (true, 1));
    }

    #[test]
    fn a_snapshot_that_the_disk_does_not_give_back_any_more_is_gone_and_not_asked_for_for_ever() {
        let disk = SimDisk::new();
        let mut stream = streaming(&disk);
        disk.arm(Fault::ReadFails, 0);
        let passing = stream.read(0);
        assert!(matches!(&passing, ChunkRead::Bytes { bytes, .. } if bytes.is_empty()), "{passing:?}");
        assert!(matches!(stream.read(0), ChunkRead::Bytes { bytes, .. } if !bytes.is_empty()), "it passed");
        (0..2).for_each(|_| disk.arm(Fault::ReadFails, 0));
        assert_eq!(stream.read(0), ChunkRead::Gone);
        assert_eq!(stream.read(0), ChunkRead::Gone);
    }

    #[test]
    fn a_snapshot_that_says_nothing_readable_leaves_nothing_behind_and_ends_nobody() {
        let (mut stream, meta) = (streaming(&SimDisk::new()), SnapshotMeta::default());
        for chunks in [vec![b"no tables".to_vec()], vec![]] {
            let last = EntryId { term: Term(2), index: LogIndex(7) };
            stream.meta = SnapshotMeta { last, ..meta.clone() };
            let leader = stream.leader.0.steps.store();
            let mut writer = leader.create(GROUP, stream.meta.clone()).expect("room");
            chunks.iter().for_each(|chunk| writer.push(chunk).expect("room"));
            writer.finish().expect("every byte of it is as its sender wants it");
            let ChunkRead::Bytes { bytes, total } = stream.read(0) else { panic!("it is there") };
            let piece = StoreChunk { meta: stream.meta.clone(), offset: 0, bytes, total };
            stream.follower.0.carry_out(steps::Order::Store(piece));
            assert!(matches!(
                stream.follower.1.try_recv(),
                Ok(Brought::Event(Event::SnapshotUnreadable { last: told })) if told == last
            ));
            let follower = stream.follower.0.steps.store();
            assert!(follower.open(GROUP, last).expect("a good disk").is_none(), "nothing of it is left");
            stream.leader = self::worker(0);
        }
    }

    #[test]
    fn what_was_read_when_it_came_is_not_read_again_and_not_kept_for_ever() {
        let mut stream = streaming(&SimDisk::new());
        for is_wanted in [true, false] {
            assert_eq!(stream.run(), (true, 1));
            let (worker, done) = &mut stream.follower;
            assert!(worker.steps.has_received(), "it is kept for the order to install it");
            assert_eq!(worker.patience(Instant::now()), RECEIVED_FOR);
            if is_wanted {
                worker.carry_out(steps::Order::Thaw(stream.meta.clone()));
                assert!(
                    matches!(done.try_recv(), Ok(Brought::Tables(_, keeper)) if keeper.applied() == stream.meta.last.index)
                );
                assert!(!worker.steps.has_received());
                stream.follower = self::worker(0);
            } else {
                worker.idle(Instant::now() + RECEIVED_FOR);
                assert!(!worker.steps.has_received());
                worker.carry_out(steps::Order::Thaw(stream.meta.clone()));
                assert!(matches!(done.try_recv(), Ok(Brought::Tables(..))), "the file is still there");
            }
        }
    }

    #[test]
    fn without_a_pace_no_chunk_waits() {
        let (waits, bytes) = waits(0, 40);
        assert!(4 <= waits.len() && waits.iter().all(Duration::is_zero), "{waits:?}");
        assert!(40 * (100 << 10) < bytes, "{bytes}");
    }
}
