//! The contract between one raft peer and its driver: recovered state, requests, effects.
//!
//! Every effect may be carried out the moment it is emitted, in parallel with all others. What must wait for the disk
//! (a vote, an acknowledgement, the leader counting itself) waits inside until `Persisted`. [architecture §2]
//! Knows nothing of: the driver's disk, network and store.

use crate::compute::Job;
use crate::distrust::Falsehood;
use crate::entry::Entry;
use crate::membership::Membership;
use crate::message::{Envelope, Run};
use crate::snapshot::{ReadChunk, SnapshotMeta, StoreChunk};
use crate::trace::Trace;
use crate::types::{Duration, EntryId, LogIndex, Lsn, NodeId, Stamp, Term};
use alloc::vec::Vec;

/// One record of the persist stream. The stream is ordered; truncation is a record of its own, never implied.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LogRecord {
    /// Its number in this node's stream.
    pub lsn: Lsn,
    /// What to write.
    pub body: LogBody,
}

/// The body of a record of the persist stream.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LogBody {
    /// Term and vote; durable before any later record of the batch. [fault-model ST8]
    HardState(HardState),
    /// All entries from this index on are removed.
    Truncate(LogIndex),
    /// One more entry, always the one after the last.
    Entry(Entry),
    /// The commit index has reached this. A hint for recovery: its loss costs time only. [fault-model ST17]
    Commit(LogIndex),
    /// Everything up to here is covered by a durable, verified snapshot, and so committed. If the log holds this very
    /// entry, those after it stay, and those up to it may go when this record is durable; else the log is empty after
    /// it. [replication-protocols N3; fault-model ST9]
    Base(EntryId),
    /// A leader reports that the log once went up to here and this disk has lost that: the vote floor is at least this.
    /// Durable, like term and vote, before any later record of the batch, in a place of its own; it must come back as
    /// [`Recovered::vote_floor`]. [fault-model ST14]
    VoteFloor(EntryId),
}

/// What must survive a restart besides the log. [Ongaro14 §3.4]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HardState {
    /// Newest term seen.
    pub term: Term,
    /// The member that this member voted for in that term.
    pub vote: Option<NodeId>,
}

/// What the driver found in the log at start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Recovered {
    /// Newest term and vote.
    pub hard: HardState,
    /// Position right before the first entry of the log; 0.0 while the log is kept whole.
    pub base: EntryId,
    /// The newest good snapshot that the log holds the end of: `base ≤ snapshot.last ≤ last`. The store starts from it.
    /// `None` while there is none; with a `base` above 0 every snapshot is lost, and the member asks its leader for one
    /// before it does anything else.
    pub snapshot: Option<SnapshotMeta>,
    /// The configuration entries of the log, ascending; those that the snapshot covers may be left out.
    pub memberships: Vec<(LogIndex, Membership)>,
    /// First position of each run of entries with one term, ascending. Empty for an empty log.
    pub term_starts: Vec<EntryId>,
    /// Last position; equals `base` for an empty log.
    pub last: EntryId,
    /// The newest entries, a gap-free suffix ending at `last`; may be empty: older ones are fetched.
    pub tail: Vec<Entry>,
    /// Highest commit mark found. At most `last`.
    pub committed: LogIndex,
    /// Highest record number found.
    pub lsn: Lsn,
    /// Stamp of the last entry; the snapshot's for a log that is empty after it.
    pub stamp: Stamp,
    /// The end of the log that this disk once held and lost, or a position that is surely not before it: above `last`
    /// while the log is shorter than what this member has acknowledged. It must come back after every restart until the
    /// log has grown there again. [fault-model ST7]
    pub vote_floor: Option<EntryId>,
    /// How long vote holds may last that earlier runs granted, as the driver recorded it; zero if none was ever granted.
    /// [replication-protocols L-4]
    pub vote_hold: Duration,
}

/// Why log entries are read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FetchFor {
    /// A peer is behind the recent entries.
    Peer(NodeId),
    /// Apply is behind the recent entries (after a restart).
    Apply,
}

/// Requests entries from the log. At most one request per purpose is outstanding.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fetch {
    /// Why they are needed.
    pub purpose: FetchFor,
    /// First index wanted.
    pub first: LogIndex,
    /// Last index wanted.
    pub last: LogIndex,
    /// Stop after this many bytes; at least one entry always comes.
    pub bytes_max: usize,
}

/// Identifies a batch of waiting reads; meaningful to the caller only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadBatch(pub u64);

/// The outcome of batches of linearizable reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReadVerdict {
    /// The batch that is decided, and with it every batch before it that has no verdict yet.
    pub upto: ReadBatch,
    /// Serve once this index is applied here; `None`: leadership was lost or unknown, so no index is safe.
    pub index: Option<LogIndex>,
}

/// Everything a peer requests of its driver, in the order of the requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Records for the log, ordered.
    pub persist: Vec<LogRecord>,
    /// Messages; best effort, may be lost, repeated, reordered.
    pub send: Vec<Envelope>,
    /// Entries to read back.
    pub fetch: Vec<Fetch>,
    /// The store becomes what this snapshot holds: in the order of `apply`, before the entries there. Done when
    /// everything up to its last entry is reported applied.
    pub install: Option<SnapshotMeta>,
    /// Committed entries for the store, in log order, each delivered once.
    pub apply: Vec<Entry>,
    /// Pieces of snapshots to read.
    pub read_chunks: Vec<ReadChunk>,
    /// Pieces of a snapshot to store; ordered.
    pub store_chunks: Vec<StoreChunk>,
    /// Verdicts on reads.
    pub reads: Vec<ReadVerdict>,
    /// Work that may take long. Its results come back by [`Raft::computed`](crate::Raft::computed), in any order, or never.
    pub compute: Vec<Job>,
    /// Entries of this leader's term that a quorum has received, each named once, while [`Weak`](crate::policy::Weak) is
    /// on. Clients that ask for it may be told; nothing else may depend on it.
    pub received: Vec<Run>,
    /// Peers that sent what no honest peer sends, and what it was. The message has changed nothing; the peer's links
    /// must end.
    pub distrust: Vec<(NodeId, Falsehood)>,
    /// Events, as data.
    pub trace: Vec<Trace>,
}
