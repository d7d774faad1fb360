//! Snapshots: the worker beside a simulated process. [shell/runtime `snapshots`]
//!
//! The very files of production, one step at a time in virtual time: a piece read or stored for a peer, one more chunk of
//! the snapshot that is being taken, a whole file thawed. Between any two steps the process may be killed; the disk may
//! fail in any.
//! Knows nothing of: nodes, when a snapshot is due.

use crate::log::GROUP;
use kattu_node::Keeper;
use kattu_node::contract::Event;
use kattu_node::frozen::{self, Frozen, Thaw};
use kattu_raft::{
    ChunkRead, ChunkStored, EntryId, LogIndex, ReadChunk, SharedBytes, SnapshotMeta, StoreChunk,
};
use kattu_wal::{Chunks, SnapshotStore, SnapshotWriter, WalError};
use std::collections::VecDeque;

/// What the worker is asked to do.
pub(crate) enum Order {
    Take(SnapshotMeta, Box<Frozen>),
    Read(ReadChunk),
    Store(StoreChunk),
    Thaw(SnapshotMeta),
}

/// What a step came to.
pub(crate) enum Done {
    /// Nothing to tell yet.
    Nothing,
    Told(Event),
    /// A snapshot is complete on the disk.
    Complete(EntryId, Event),
    Thawed(SnapshotMeta, Box<Keeper>),
    /// A file whose every byte was checked holds no tables.
    NoTables(EntryId, String),
}

struct Taking {
    meta: SnapshotMeta,
    chunks: frozen::Chunks,
    writer: SnapshotWriter,
}

pub(crate) struct Worker {
    store: SnapshotStore,
    orders: VecDeque<Order>,
    taking: Option<Taking>,
    /// What a peer's snapshot was found to hold when all of it had come.
    received: Option<(EntryId, Keeper)>,
    /// Old snapshots are to be removed: the tables hold this much, at least.
    untidy: Option<LogIndex>,
    /// Its next step is planned.
    pub(crate) planned: bool,
    /// What failed in passing, told to nobody but stories.
    pub(crate) complaints: Vec<WalError>,
}

/// The tables of the snapshot that ends at `last`; in words why it has none.
pub(crate) fn thaw(store: &SnapshotStore, last: EntryId) -> Result<Result<Keeper, String>, WalError> {
    let gone =
        || WalError::Damaged { file: format!("snapshot up to {last}"), offset: 0, what: "gone".into() };
    let reader = store.open(GROUP, last)?.ok_or_else(gone)?;
    let mut failed = None;
    let chunks = reader.chunks()?.map_while(|chunk| chunk.map_err(|error| failed = Some(error)).ok());
    let tables = thaw_chunks(chunks, last);
    failed.map_or(Ok(tables), Err)
}

fn thaw_chunks(chunks: impl Iterator<Item = Vec<u8>>, last: EntryId) -> Result<Keeper, String> {
    let mut thaw = Thaw::default();
    for chunk in chunks {
        thaw.push(&chunk).map_err(|error| error.to_string())?;
    }
    let keeper = thaw.finish().map_err(|error| error.to_string())?;
    match keeper.applied() == last.index {
        true => Ok(keeper),
        false => Err(format!("it holds the state of index {}", keeper.applied().0)),
    }
}

/// The same of a peer's snapshot that has just come in.
fn thaw_received(chunks: &mut Chunks<'_>, last: EntryId) -> Result<Keeper, String> {
    let chunks: Result<Vec<Vec<u8>>, WalError> = chunks.collect();
    thaw_chunks(chunks.map_err(|error| error.finding())?.into_iter(), last)
}

impl Worker {
    pub(crate) fn new(store: SnapshotStore) -> Worker {
        Worker {
            store,
            orders: VecDeque::new(),
            taking: None,
            received: None,
            untidy: None,
            planned: false,
            complaints: Vec::new(),
        }
    }

    pub(crate) fn order(&mut self, order: Order) {
        self.orders.push_back(order);
    }

    /// Whether a snapshot is being taken, or will be at once.
    pub(crate) fn is_taking(&self) -> bool {
        self.taking.is_some() || self.orders.iter().any(|order| matches!(order, Order::Take(..)))
    }

    pub(crate) fn has_work(&self) -> bool {
        !self.orders.is_empty() || self.taking.is_some() || self.untidy.is_some()
    }

    /// Does the next thing. An error is the end of the process.
    pub(crate) fn step(&mut self) -> Result<Done, WalError> {
        match self.orders.pop_front() {
            Some(Order::Take(meta, frozen)) => {
                assert!(self.taking.is_none(), "one snapshot at a time");
                let last = meta.last;
                match self.store.create(GROUP, meta.clone()) {
                    Ok(writer) => self.taking = Some(Taking { meta, chunks: frozen.chunks(), writer }),
                    Err(error) => return self.failed(last, error),
                }
                Ok(Done::Nothing)
            }
            Some(Order::Read(request)) => {
                self.complaints.extend(self.store.recheck_if_doubted(GROUP, &request));
                let read = match self.store.read_chunk(GROUP, &request) {
                    Ok(read) => read,
                    Err(error) => {
                        self.passes(error)?;
                        let bad = self.store.recheck(GROUP, request.last);
                        let bytes = SharedBytes::from(Vec::new());
                        let passing = ChunkRead::Bytes { bytes, total: u64::MAX };
                        let read = if bad.is_some() { ChunkRead::Gone } else { passing };
                        self.complaints.extend(bad);
                        read
                    }
                };
                Ok(Done::Told(Event::ChunkRead { request, read }))
            }
            Some(Order::Store(piece)) => {
                let last = piece.meta.last;
                let thaw = |chunks: &mut Chunks<'_>| thaw_received(chunks, last);
                let stored = match self.store.store_readable_chunk(GROUP, &piece, thaw) {
                    Ok((stored, tables)) => {
                        self.received = tables.map(|tables| (last, tables)).or(self.received.take());
                        stored
                    }
                    Err(error @ WalError::Unreadable { .. }) => {
                        self.complaints.push(error);
                        return Ok(Done::Told(Event::SnapshotUnreadable { last }));
                    }
                    Err(error) => {
                        self.passes(error)?;
                        ChunkStored { last, next: 0, complete: false }
                    }
                };
                let event = Event::ChunkStored(stored);
                Ok(if stored.complete { Done::Complete(last, event) } else { Done::Told(event) })
            }
            Some(Order::Thaw(meta)) => {
                self.untidy = self.untidy.max(Some(meta.last.index));
                let received = self.received.take().filter(|(last, _)| *last == meta.last);
                let tables = match received {
                    Some((_, tables)) => Ok(tables),
                    None => thaw(&self.store, meta.last)?,
                };
                Ok(match tables {
                    Ok(tables) => Done::Thawed(meta, Box::new(tables)),
                    Err(error) => Done::NoTables(meta.last, error),
                })
            }
            None if self.taking.is_some() => self.go_on(),
            None => {
                if let Some(held) = self.untidy.take()
                    && let Err(error) = self.store.tidy(GROUP, held)
                {
                    self.passes(error)?;
                }
                Ok(Done::Nothing)
            }
        }
    }

    fn go_on(&mut self) -> Result<Done, WalError> {
        let Some(mut taking) = self.taking.take() else { return Ok(Done::Nothing) };
        let last = taking.meta.last;
        if let Some(chunk) = taking.chunks.next() {
            return match taking.writer.push(&chunk) {
                Ok(()) => {
                    self.taking = Some(taking);
                    Ok(Done::Nothing)
                }
                Err(error) => {
                    drop(taking); // removes the file
                    self.failed(last, error)
                }
            };
        }
        match taking.writer.finish() {
            Ok(snapshot) => {
                self.untidy = self.untidy.max(Some(last.index));
                let event = Event::SnapshotTaken { meta: taking.meta, bytes: snapshot.bytes };
                Ok(Done::Complete(last, event))
            }
            Err(error) => self.failed(last, error),
        }
    }

    fn failed(&mut self, last: EntryId, error: WalError) -> Result<Done, WalError> {
        self.passes(error)?;
        Ok(Done::Told(Event::SnapshotFailed { last }))
    }

    /// A failed sync is the end; anything else passes.
    fn passes(&mut self, error: WalError) -> Result<(), WalError> {
        if error.is_failed_sync() {
            return Err(error);
        }
        self.complaints.push(error);
        Ok(())
    }
}
