//! Snapshots: the work on snapshot files, one step at a time.
//!
//! ```text
//!   Take ─▶ go_on, chunk by chunk ─▶ Complete: verified and durable ─▶ tidy
//!   Read, Store ─▶ Told: a piece for a peer, or from the leader
//!   Thaw ─▶ Thawed: the tables that take the place of the keeper's ─▶ tidy
//! ```
//! Rules: 1. A step that fails is given up and noted, and leaves nothing behind; the member goes on with its log.
//!        2. A failed sync ends the process, because the contents of the disk are then unknown. [fault-model F11]
//!        3. An installed snapshot that cannot be read back ends the process, too, because the log begins after it. After the restart
//!           another member sends one.
//!        4. A peer's snapshot is decoded when its last piece comes. The tables are kept for the order to install it, which comes at
//!           once or never.
//! Knows nothing of: threads, when a snapshot is due, what its chunks mean, how far each peer lags.

use crate::log::Timed;
use kattu_node::Keeper;
use kattu_node::contract::Event;
use kattu_node::frozen::{self, Frozen, Thaw};
use kattu_raft::{
    ChunkRead, ChunkStored, Duration, EntryId, GroupId, LogIndex, ReadChunk, SharedBytes, SnapshotMeta,
    StoreChunk,
};
use kattu_wal::{Chunks, Snapshot, SnapshotStore, SnapshotWriter, WalError};

/// Pause before the leader hears of a piece that could not be stored, and sends it again.
pub const STORE_RETRY: Duration = Duration::from_millis(200);

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
    /// An event for the replica, after a pause of [`STORE_RETRY`].
    ToldLater(Event),
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
    /// One was taken, of so many bytes.
    Taken(EntryId, u64),
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

/// The tables that chunks hold; none if the member stops meanwhile.
fn thaw_chunks(
    chunks: impl Iterator<Item = Vec<u8>>,
    last: EntryId,
    stops: &dyn Fn() -> bool,
) -> Result<Option<Keeper>, String> {
    let mut thaw = Thaw::default();
    for chunk in chunks {
        if stops() {
            return Ok(None);
        }
        thaw.push(&chunk).map_err(|error| error.to_string())?;
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

/// A snapshot that is being taken.
struct Taking {
    meta: SnapshotMeta,
    chunks: frozen::Chunks,
    writer: SnapshotWriter,
}

/// A snapshot that has come from the leader.
struct Received {
    last: EntryId,
    /// Bytes of its file.
    bytes: u64,
    keeper: Box<Keeper>,
}

/// The work on the snapshots of one group.
pub struct Worker {
    store: SnapshotStore,
    group: GroupId,
    taking: Option<Taking>,
    received: Option<Received>,
    /// Old snapshots are to be removed: the tables hold at least what was applied up to here.
    untidy: Option<LogIndex>,
    notes: Vec<Note>,
}

impl Worker {
    /// A worker without an order.
    #[must_use]
    pub fn new(store: SnapshotStore, group: GroupId) -> Worker {
        Worker { store, group, taking: None, received: None, untidy: None, notes: Vec::new() }
    }

    /// The files.
    #[must_use]
    pub fn store(&self) -> &SnapshotStore {
        &self.store
    }

    /// Whether a snapshot is being taken: [`Worker::go_on`] has something to do.
    #[must_use]
    pub fn is_taking(&self) -> bool {
        self.taking.is_some()
    }

    /// Whether the tables of a peer's snapshot are kept for the order to install it. [Rule 4]
    #[must_use]
    pub fn has_received(&self) -> bool {
        self.received.is_some()
    }

    /// The order to install a received snapshot has not come: the file is read again if it comes after all. [Rule 4]
    pub fn forget_received(&mut self) {
        self.received = None;
    }

    /// Whether old snapshots are to be removed.
    #[must_use]
    pub fn is_untidy(&self) -> bool {
        self.untidy.is_some()
    }

    /// What the operator is to be told, oldest first.
    pub fn take_notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }

    /// Carries out one order, or begins to. `stops` says whether the member stops meanwhile: then what takes long is given up.
    ///
    /// # Errors
    /// The end of the process. [Rules 2, 3]
    ///
    /// # Panics
    /// If a snapshot is to be taken while another one is.
    pub fn carry_out(
        &mut self,
        order: Order,
        disk: &mut impl Timed,
        stops: &dyn Fn() -> bool,
    ) -> Result<Done, WalError> {
        match order {
            Order::Take(meta, frozen) => {
                assert!(self.taking.is_none(), "one snapshot at a time");
                let last = meta.last;
                match self.store.create(self.group, meta.clone()) {
                    Ok(writer) => self.taking = Some(Taking { meta, chunks: frozen.chunks(), writer }),
                    Err(error) => return self.failed(last, error),
                }
                Ok(Done::Nothing)
            }
            Order::Read(request) => {
                let read = self.read(&request, disk)?;
                Ok(Done::Told(Event::ChunkRead { request, read }))
            }
            Order::Store(piece) => self.store_piece(&piece, stops),
            Order::Thaw(meta) => self.thaw(meta, stops),
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

    fn store_piece(&mut self, piece: &StoreChunk, stops: &dyn Fn() -> bool) -> Result<Done, WalError> {
        let last = piece.meta.last;
        let thaw = |chunks: &mut Chunks<'_>| thaw_received(chunks, last, stops);
        match self.store.store_readable_chunk(self.group, piece, thaw) {
            Ok((stored, tables)) => {
                let received = |keeper| Received { last, bytes: piece.total, keeper: Box::new(keeper) };
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
                Ok(Done::ToldLater(Event::ChunkStored(ChunkStored { last, next: 0, complete: false })))
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

    /// Writes the next chunk of the snapshot that is being taken, or ends it. The bytes are those of the chunk.
    ///
    /// # Errors
    /// The end of the process. [Rule 2]
    pub fn go_on(&mut self, disk: &mut impl Timed) -> Result<(Done, usize), WalError> {
        let Some(mut taking) = self.taking.take() else { return Ok((Done::Nothing, 0)) };
        let last = taking.meta.last;
        if let Some(chunk) = taking.chunks.next() {
            return match disk.over(|| taking.writer.push(&chunk)).0 {
                Ok(()) => {
                    self.taking = Some(taking);
                    Ok((Done::Nothing, chunk.len()))
                }
                Err(error) => {
                    drop(taking); // removes the file
                    Ok((self.failed(last, error)?, chunk.len()))
                }
            };
        }
        match taking.writer.finish() {
            Ok(snapshot) => {
                self.untidy = self.untidy.max(Some(last.index));
                self.notes.push(Note::Taken(last, snapshot.bytes));
                let event = Event::SnapshotTaken { meta: taking.meta, bytes: snapshot.bytes };
                Ok((Done::Complete(last, event), 0))
            }
            Err(error) => Ok((self.failed(last, error)?, 0)),
        }
    }

    /// Removes old snapshots, if any are to be removed.
    ///
    /// # Errors
    /// The end of the process. [Rule 2]
    pub fn tidy(&mut self) -> Result<(), WalError> {
        let Some(held) = self.untidy.take() else { return Ok(()) };
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
