//! Snapshots: how a peer that is behind the log is brought to where the log begins.
//!
//! In:    chunks read from the leader's file, chunks stored in the follower's, what the other side said.
//! Out:   requests to read and to store chunks, chunks on the wire, and at the end the order to install.
//!
//! Knows nothing of: what a snapshot contains, files, the store.

use crate::bytes::SharedBytes;
use crate::contract::Effects;
use crate::membership::Membership;
use crate::message::{SnapshotChunk, SnapshotReply};
use crate::raft::Raft;
use crate::types::{EntryId, Incarnation, Instant, LogIndex, NodeId, Stamp};

/// What a snapshot covers: everything up to `last`, and what raft itself needs to go on from there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SnapshotMeta {
    /// The last entry it covers. Committed.
    pub last: EntryId,
    /// The stamp of that entry: the log's clock goes on from it.
    pub stamp: Stamp,
    /// The configuration in force at `last`. [replication-protocols N1]
    pub membership: Membership,
    /// Where that configuration stands in the log; 0 for the group's first one.
    pub membership_at: LogIndex,
}

/// Please read a piece of a snapshot's file, for a peer. Answered by `Raft::chunk_read`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReadChunk {
    /// Who needs it.
    pub peer: NodeId,
    /// Which snapshot: the one that covers exactly this.
    pub last: EntryId,
    /// First byte wanted.
    pub offset: u64,
    /// At most so many bytes.
    pub bytes_max: usize,
}

/// What came of a [`ReadChunk`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ChunkRead {
    /// These bytes, of a file of `total`. None at all (before the end): reading failed for a passing reason.
    Bytes {
        /// The bytes.
        bytes: SharedBytes,
        /// Size of the file.
        total: u64,
    },
    /// There is no such snapshot any more, or it is damaged.
    Gone,
}

/// Please store a piece of a snapshot that a leader sends. Answered by `Raft::chunk_stored`.
///
/// Whoever stores knows how far the file is: a piece that does not continue it is not stored, and the answer says which
/// byte is next. So a file that survived a restart is continued.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StoreChunk {
    /// Which snapshot. A piece of another one than the last replaces what was gathered of that.
    pub meta: SnapshotMeta,
    /// Where the piece belongs.
    pub offset: u64,
    /// The piece.
    pub bytes: SharedBytes,
    /// Size of the whole file.
    pub total: u64,
}

/// What came of a [`StoreChunk`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChunkStored {
    /// Which snapshot.
    pub last: EntryId,
    /// The first byte that is still missing; 0 to begin anew (what was gathered turned out damaged).
    pub next: u64,
    /// The whole file is verified and durable under its final name.
    pub complete: bool,
}

impl Raft {
    pub(crate) fn on_snapshot_chunk(&mut self, _: Instant, _: NodeId, _: SnapshotChunk, _: &mut Effects) {}

    pub(crate) fn on_snapshot_reply(
        &mut self,
        _: Instant,
        _: NodeId,
        _: Incarnation,
        _: SnapshotReply,
        _: &mut Effects,
    ) {
    }

    /// What came of a [`ReadChunk`].
    pub fn chunk_read(
        &mut self,
        _now: Instant,
        _request: ReadChunk,
        _read: ChunkRead,
        _effects: &mut Effects,
    ) {
    }

    /// What came of a [`StoreChunk`].
    pub fn chunk_stored(&mut self, _now: Instant, _stored: ChunkStored, _effects: &mut Effects) {}

    /// A snapshot was taken and is durable and verified. Entries below `keep_from` that it covers may leave the log.
    pub fn snapshot_taken(
        &mut self,
        _now: Instant,
        _meta: SnapshotMeta,
        _keep_from: LogIndex,
        _effects: &mut Effects,
    ) {
    }
}
