//! Snapshots: the work on snapshot files, one step at a time, and which step is next.
//!
//! ```text
//!   Take ─▶ chunk by chunk, no faster than allowed ─▶ Complete: verified and durable ─▶ old ones go
//!   Read, Store ─▶ Told: a piece for a peer, or from the leader; between two chunks of one that is being taken
//!   Thaw ─▶ Thawed: the tables that take the place of the keeper's ─▶ old ones go
//! ```
//! Rules: 1. A step that fails is given up and noted, and leaves nothing behind; the member goes on with its log.
//!        2. A failed sync ends the process, because the contents of the disk are then unknown. [fault-model F11]
//!        3. An installed snapshot that cannot be read back ends the process, too, because the log begins after it. After the restart
//!           another member sends one.
//!        4. A peer's snapshot is decoded when its last piece comes. The tables are kept for the order to install it, which comes at
//!           once or never.
//!        5. The next step is, of those that are due: to go on after a pause, to remove old snapshots, the oldest order, to give
//!           back some of the space of removed ones, the next chunk, to forget what no order has come for. In a pause the
//!           worker does nothing else.
//! Knows nothing of: threads, when a snapshot is due, what its chunks mean, how far each peer lags.

use crate::log::Timed;
use kattu_node::Keeper;
use kattu_node::contract::Event;
use kattu_node::frozen::{self, Frozen, Thaw};
use kattu_raft::{
    ChunkRead, ChunkStored, Duration, EntryId, GroupId, Instant, LogIndex, ReadChunk, SharedBytes,
    SnapshotMeta, StoreChunk,
};
use kattu_wal::{Chunks, Snapshot, SnapshotStore, SnapshotWriter, WalError};
use std::collections::VecDeque;

/// Pause before the leader hears of a piece that could not be stored, and sends it again.
pub const STORE_RETRY: Duration = Duration::from_millis(200);

/// How long the tables of a received snapshot stay in memory. [Rule 4]
pub const RECEIVED_FOR: Duration = Duration::from_secs(1);

/// Pause between two parts of the space of removed snapshots: the disk is the log's meanwhile.
const SHRINK_PAUSE: Duration = Duration::from_millis(20);

/// An order to the worker.
pub enum Order {
    /// Write a snapshot of these tables.
    Take(SnapshotMeta, Box<Frozen>),
    /// Read a piece for a peer.
    Read(ReadChunk),
    /// Store a piece of the leader's.
    Store(StoreChunk),
    /// Read the tables of this snapshot.
    Thaw(SnapshotMeta),
}

/// What a step came to.
pub enum Done {
    /// Nothing to tell.
    Nothing,
    /// An event for the replica.
    Told(Event),
    /// The snapshot up to this entry is complete on the disk.
    Complete(EntryId, Event),
    /// The tables that the keeper waits for.
    Thawed(SnapshotMeta, Box<Keeper>),
    /// A file in which every checksum is right holds no tables, for this reason. [Rule 3]
    NoTables(EntryId, String),
}

/// What the operator is told of snapshots.
#[derive(Debug)]
pub enum Note {
    /// One was taken, of so many bytes, since it was begun.
    Taken(EntryId, u64, Instant),
    /// One could not be taken.
    NotTaken(WalError),
    /// A piece could not be read for a peer; the peer asks again.
    NotRead(WalError),
    /// One has become damaged; peers are sent another one.
    Damaged(WalError),
    /// One of the leader's arrived damaged.
    ArrivedDamaged(WalError),
    /// One of the leader's arrived intact and cannot be decoded.
    Unreadable(WalError),
    /// A piece of the leader's could not be stored.
    NotStored(WalError),
    /// One of so many bytes is being installed.
    Installing(EntryId, u64),
    /// An old one could not be removed.
    NotRemoved(WalError),
}

impl Note {
    /// The error that it tells of.
    #[must_use]
    pub fn error(&self) -> Option<&WalError> {
        match self {
            Note::NotTaken(error)
            | Note::NotRead(error)
            | Note::Damaged(error)
            | Note::ArrivedDamaged(error)
            | Note::Unreadable(error)
            | Note::NotStored(error)
            | Note::NotRemoved(error) => Some(error),
            Note::Taken(..) | Note::Installing(..) => None,
        }
    }
}

/// Why the process ends.
#[derive(Debug)]
pub enum End {
    /// A sync failed. [Rule 2]
    Sync(WalError),
    /// The snapshot that is to be installed cannot be read. [Rule 3]
    Thaw(WalError),
}

impl End {
    /// The error of the disk.
    #[must_use]
    pub fn error(self) -> WalError {
        match self {
            End::Sync(error) | End::Thaw(error) => error,
        }
    }
}

/// The tables of the snapshot that ends at `last`, and its file; none if the member stops meanwhile. The inner error
/// says in words why an intact file holds no tables.
///
/// # Errors
/// The file is gone or damaged, or cannot be read.
pub fn thaw(
    store: &SnapshotStore,
    group: GroupId,
    last: EntryId,
    stops: &dyn Fn() -> bool,
) -> Result<Result<Option<(Keeper, Snapshot)>, String>, WalError> {
    let gone =
        || WalError::Damaged { file: format!("snapshot up to {last}"), offset: 0, what: "gone".into() };
    let reader = store.open(group, last)?.ok_or_else(gone)?;
    let mut failed = None;
    let chunks = reader.chunks()?.map_while(|chunk| chunk.map_err(|error| failed = Some(error)).ok());
    let tables = thaw_chunks(chunks, last, stops);
    if let Some(error) = failed {
        return Err(error);
    }
    let snapshot = reader.snapshot();
    let named = |error| format!("{}: {error}", snapshot.name);
    Ok(tables.map(|keeper| keeper.map(|keeper| (keeper, snapshot.clone()))).map_err(named))
}

/// The tables that the chunks of a snapshot which ends at `last` hold; none if the member stops meanwhile.
///
/// # Errors
/// Why they hold no tables, in words.
pub fn thaw_chunks(
    chunks: impl Iterator<Item: AsRef<[u8]>>,
    last: EntryId,
    stops: &dyn Fn() -> bool,
) -> Result<Option<Keeper>, String> {
    let mut thaw = Thaw::default();
    for chunk in chunks {
        if stops() {
            return Ok(None);
        }
        thaw.push(chunk.as_ref()).map_err(|error| error.to_string())?;
    }
    let keeper = thaw.finish().map_err(|error| error.to_string())?;
    match keeper.applied() == last.index {
        true => Ok(Some(keeper)),
        false => Err(format!("it holds the state at index {}", keeper.applied().0)),
    }
}

/// The tables of a peer's snapshot that has just come in.
fn thaw_received(chunks: &mut Chunks<'_>, last: EntryId, stops: &dyn Fn() -> bool) -> Result<Keeper, String> {
    let mut failed = None;
    let chunks = chunks.map_while(|chunk| chunk.map_err(|error| failed = Some(error.finding())).ok());
    let tables = thaw_chunks(chunks, last, stops);
    match failed {
        Some(finding) => Err(finding),
        None => tables?.ok_or_else(|| "the member stops".to_string()),
    }
}

/// How long so many bytes take at this pace; 0: there is none.
fn time_for(bytes: usize, bytes_per_s: u64) -> Duration {
    match bytes_per_s {
        0 => Duration::ZERO,
        rate => Duration::from_nanos((bytes as u64).saturating_mul(1_000_000_000) / rate),
    }
}

/// A snapshot that is being taken.
struct Taking {
    meta: SnapshotMeta,
    chunks: frozen::Chunks,
    writer: SnapshotWriter,
    since: Instant,
    /// The next chunk is not written before this.
    next_at: Instant,
}

/// A snapshot that has come from the leader.
struct Received {
    last: EntryId,
    /// Bytes of its file.
    bytes: u64,
    keeper: Box<Keeper>,
    /// It is forgotten then; counted from when nothing else is to be done.
    until: Option<Instant>,
}

/// The work on the snapshots of one group.
pub struct Worker {
    store: SnapshotStore,
    group: GroupId,
    /// Bytes of a snapshot that are written in a second, so that it does not crowd out the log; 0: no limit.
    bytes_per_s: u64,
    orders: VecDeque<Order>,
    taking: Option<Taking>,
    received: Option<Received>,
    /// Old snapshots are to be removed: the tables hold at least what was applied up to here.
    untidy: Option<LogIndex>,
    /// When more of the space of removed snapshots goes back, if there is any.
    shrinks_at: Option<Instant>,
    /// An event for the replica at the end of a pause.
    later: Option<(Instant, Event)>,
    notes: Vec<Note>,
}

impl Worker {
    /// A worker without an order, which writes so many bytes of a snapshot in a second; 0: no limit.
    #[must_use]
    pub fn new(store: SnapshotStore, group: GroupId, bytes_per_s: u64) -> Worker {
        Worker {
            store,
            group,
            bytes_per_s,
            orders: VecDeque::new(),
            taking: None,
            received: None,
            untidy: None,
            shrinks_at: None,
            later: None,
            notes: Vec::new(),
        }
    }

    /// The files.
    #[must_use]
    pub fn store(&self) -> &SnapshotStore {
        &self.store
    }

    /// Adds an order behind the others.
    pub fn push(&mut self, order: Order) {
        self.orders.push_back(order);
    }

    /// Whether a snapshot is being taken, or will be without another order.
    #[must_use]
    pub fn is_taking(&self) -> bool {
        self.taking.is_some() || self.orders.iter().any(|order| matches!(order, Order::Take(..)))
    }

    /// When the next step is due, if no order comes before; never, if there is nothing to do. [Rule 5]
    #[must_use]
    pub fn due(&self, now: Instant) -> Instant {
        if let Some((at, _)) = &self.later {
            return *at;
        }
        if self.untidy.is_some() || !self.orders.is_empty() {
            return now;
        }
        let chunk = self.taking.as_ref().map_or(Instant::NEVER, |taking| taking.next_at);
        let forgotten =
            self.received.as_ref().map_or(Instant::NEVER, |received| received.until.unwrap_or(now));
        chunk.min(forgotten).min(self.shrinks_at.unwrap_or(Instant::NEVER))
    }

    /// What the operator is to be told, oldest first.
    pub fn take_notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }

    /// Does the next step, if one is due. `stops` says whether the member stops meanwhile: then what takes long is given up. [Rule 5]
    ///
    /// # Errors
    /// The end of the process.
    ///
    /// # Panics
    /// If a snapshot is to be taken while another one is.
    pub fn step(
        &mut self,
        now: Instant,
        disk: &mut impl Timed,
        stops: &dyn Fn() -> bool,
    ) -> Result<Done, End> {
        if let Some((at, event)) = self.later.take() {
            if at <= now {
                return Ok(Done::Told(event));
            }
            self.later = Some((at, event));
            return Ok(Done::Nothing);
        }
        if let Some(held) = self.untidy.take() {
            self.tidy(held).map_err(End::Sync)?;
            self.shrinks_at = self.store.has_removed().then_some(now);
            return Ok(Done::Nothing);
        }
        if let Some(order) = self.orders.pop_front() {
            return self.carry_out(now, order, disk, stops);
        }
        if self.shrinks_at.is_some_and(|at| at <= now) {
            self.shrinks_at = self.store.shrink_removed().then_some(now + SHRINK_PAUSE);
            return Ok(Done::Nothing);
        }
        if let Some(taking) = self.taking.take_if(|taking| taking.next_at <= now) {
            return self.go_on(now, taking, disk).map_err(End::Sync);
        }
        // The file is read again if the order to install it comes after all.
        self.received.take_if(|received| *received.until.get_or_insert(now + RECEIVED_FOR) <= now);
        Ok(Done::Nothing)
    }

    /// Carries out one order, or begins to.
    fn carry_out(
        &mut self,
        now: Instant,
        order: Order,
        disk: &mut impl Timed,
        stops: &dyn Fn() -> bool,
    ) -> Result<Done, End> {
        match order {
            Order::Take(meta, frozen) => {
                assert!(self.taking.is_none(), "one snapshot at a time");
                let last = meta.last;
                match self.store.create(self.group, meta.clone()) {
                    Ok(writer) => {
                        let chunks = frozen.chunks();
                        self.taking = Some(Taking { meta, chunks, writer, since: now, next_at: now });
                        Ok(Done::Nothing)
                    }
                    Err(error) => self.failed(last, error).map_err(End::Sync),
                }
            }
            Order::Read(request) => {
                let read = self.read(&request, disk).map_err(End::Sync)?;
                Ok(Done::Told(Event::ChunkRead { request, read }))
            }
            Order::Store(piece) => self.store_piece(now, &piece, stops).map_err(End::Sync),
            Order::Thaw(meta) => self.thaw(meta, stops).map_err(End::Thaw),
        }
    }

    fn read(&mut self, request: &ReadChunk, disk: &mut impl Timed) -> Result<ChunkRead, WalError> {
        self.notes.extend(self.store.recheck_if_doubted(self.group, request).map(Note::Damaged));
        let error = match disk.over(|| self.store.read_chunk(self.group, request)).0 {
            Ok(read) => return Ok(read),
            Err(error) => error,
        };
        if let Some(bad) = self.store.recheck(self.group, request.last) {
            self.notes.push(Note::Damaged(bad));
            return Ok(ChunkRead::Gone);
        }
        self.passes(error, Note::NotRead)?;
        // A passing failure: the peer asks again.
        Ok(ChunkRead::Bytes { bytes: SharedBytes::from(Vec::new()), total: u64::MAX })
    }

    fn store_piece(
        &mut self,
        now: Instant,
        piece: &StoreChunk,
        stops: &dyn Fn() -> bool,
    ) -> Result<Done, WalError> {
        let last = piece.meta.last;
        let thaw = |chunks: &mut Chunks<'_>| thaw_received(chunks, last, stops);
        match self.store.store_readable_chunk(self.group, piece, thaw) {
            Ok((stored, tables)) => {
                let bytes = piece.total;
                let received = |keeper| Received { last, bytes, keeper: Box::new(keeper), until: None };
                self.received = tables.map(received).or(self.received.take());
                let event = Event::ChunkStored(stored);
                Ok(if stored.complete { Done::Complete(last, event) } else { Done::Told(event) })
            }
            Err(WalError::Unreadable { .. }) if stops() => Ok(Done::Nothing),
            Err(error @ WalError::Unreadable { .. }) => {
                self.notes.push(Note::Unreadable(error));
                Ok(Done::Told(Event::SnapshotUnreadable { last }))
            }
            Err(error) => {
                match &error {
                    // The leader checks its own file when it is asked for the beginning again.
                    WalError::Damaged { .. } | WalError::OtherFormat { .. } => {
                        self.notes.push(Note::ArrivedDamaged(error));
                    }
                    _ => self.passes(error, Note::NotStored)?,
                }
                let again = ChunkStored { last, next: 0, complete: false };
                self.later = Some((now + STORE_RETRY, Event::ChunkStored(again)));
                Ok(Done::Nothing)
            }
        }
    }

    fn thaw(&mut self, meta: SnapshotMeta, stops: &dyn Fn() -> bool) -> Result<Done, WalError> {
        self.untidy = self.untidy.max(Some(meta.last.index));
        let received = self.received.take().filter(|received| received.last == meta.last);
        let tables = match received {
            Some(Received { keeper, bytes, .. }) => Ok(Some((keeper, bytes))),
            None => thaw(&self.store, self.group, meta.last, stops)?
                .map(|thawed| thawed.map(|(keeper, snapshot)| (Box::new(keeper), snapshot.bytes))),
        };
        Ok(match tables {
            Ok(Some((keeper, bytes))) => {
                self.notes.push(Note::Installing(meta.last, bytes));
                Done::Thawed(meta, keeper)
            }
            Ok(None) => Done::Nothing,
            Err(why) => Done::NoTables(meta.last, why),
        })
    }

    /// Writes the next chunk of the snapshot that is being taken, or ends it.
    fn go_on(&mut self, now: Instant, mut taking: Taking, disk: &mut impl Timed) -> Result<Done, WalError> {
        let last = taking.meta.last;
        if let Some(chunk) = taking.chunks.next() {
            return match disk.over(|| taking.writer.push(&chunk)).0 {
                Ok(()) => {
                    taking.next_at = now + time_for(chunk.len(), self.bytes_per_s);
                    self.taking = Some(taking);
                    Ok(Done::Nothing)
                }
                Err(error) => {
                    drop(taking); // removes the file
                    self.failed(last, error)
                }
            };
        }
        // In steps, between which peers get their pieces; and before the end, which reads the whole file.
        if taking.chunks.release() {
            self.taking = Some(taking);
            return Ok(Done::Nothing);
        }
        drop(taking.chunks);
        match taking.writer.finish() {
            Ok(snapshot) => {
                self.untidy = self.untidy.max(Some(last.index));
                self.notes.push(Note::Taken(last, snapshot.bytes, taking.since));
                let event = Event::SnapshotTaken { meta: taking.meta, bytes: snapshot.bytes };
                Ok(Done::Complete(last, event))
            }
            Err(error) => self.failed(last, error),
        }
    }

    /// Removes old snapshots.
    fn tidy(&mut self, held: LogIndex) -> Result<(), WalError> {
        match self.store.tidy(self.group, held) {
            Ok(_) => Ok(()),
            Err(error) => self.passes(error, Note::NotRemoved),
        }
    }

    fn failed(&mut self, last: EntryId, error: WalError) -> Result<Done, WalError> {
        self.passes(error, Note::NotTaken)?;
        Ok(Done::Told(Event::SnapshotFailed { last }))
    }

    /// A failed sync ends the process; anything else is noted. [Rules 1, 2]
    fn passes(&mut self, error: WalError, note: impl FnOnce(WalError) -> Note) -> Result<(), WalError> {
        if error.is_failed_sync() {
            return Err(error);
        }
        self.notes.push(note(error));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_for_a_chunk_follows_from_the_pace_and_no_pace_is_no_wait() {
        let nanos = Duration::from_nanos;
        let second = Duration::from_secs(1);
        let expected = [
            (0, 0, Duration::ZERO),
            (1 << 30, 0, Duration::ZERO),
            (usize::MAX, 0, Duration::ZERO),
            (0, 1, Duration::ZERO),
            (1, 1, second),
            (1 << 20, 1 << 20, second),
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
}
