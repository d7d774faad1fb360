//! The contract between one raft peer and whoever drives it: what is recovered, what may be asked, what comes out.
//!
//! Every effect may be carried out the moment it is emitted, in parallel with all others. What must wait for the disk
//! (a vote, an acknowledgement, the leader counting itself) waits inside until `Persisted`. [architecture §2]
//! Knows nothing of: how effects are carried out.

use crate::distrust::Falsehood;
use crate::entry::Entry;
use crate::membership::Membership;
use crate::message::Envelope;
use crate::snapshot::{ReadChunk, SnapshotMeta, StoreChunk};
use crate::trace::Trace;
use crate::types::{EntryId, LogIndex, Lsn, NodeId, Stamp, Term};
use alloc::vec::Vec;

/// One record of the persist stream. The stream is ordered; truncation is a record of its own, never implied.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LogRecord {
    /// Its number in this node's stream.
    pub lsn: Lsn,
    /// What to write.
    pub body: LogBody,
}

/// What a record of the persist stream says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LogBody {
    /// Term and vote; durable before any later record of the batch. [fault-model ST8]
    HardState(HardState),
    /// All entries from this index on are gone.
    Truncate(LogIndex),
    /// One more entry, always the one after the last.
    Entry(Entry),
    /// The commit index has reached this; a hint for recovery, losing it costs time only. [fault-model ST17]
    Commit(LogIndex),
    /// Everything up to here is covered by a durable, verified snapshot, and so committed. If the log holds this very
    /// entry, those after it stay, and those up to it may go when this record is durable; else the log is empty after
    /// it. [replication-protocols N3; fault-model ST9]
    Base(EntryId),
    /// The log once went up to here, says a leader, and this disk has lost that: the floor is at least this. Durable, like
    /// term and vote, before any later record of the batch, in a place of its own; it must come back as
    /// [`Recovered::vote_floor`]. [fault-model ST14]
    VoteFloor(EntryId),
}

/// What must survive besides the log. [Ongaro14 §3.4]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HardState {
    /// Newest term seen.
    pub term: Term,
    /// Whom this member voted for in that term.
    pub vote: Option<NodeId>,
}

/// What a driver found in the log at start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Recovered {
    /// Newest term and vote.
    pub hard: HardState,
    /// Position right before the first entry of the log; 0.0 while the log is kept whole.
    pub base: EntryId,
    /// The newest good snapshot that the log holds the end of: `base ≤ snapshot.last ≤ last`. The store starts from
    /// it. `None` while there is none; with a `base` above 0 this says that every snapshot is lost, and the member
    /// asks its leader for one before it does anything else.
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
    /// while the log is shorter than what this member has promised to keep. It must come back after every restart until
    /// the log has grown there again. [fault-model ST7]
    pub vote_floor: Option<EntryId>,
}

/// Why log entries are read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FetchFor {
    /// A peer is behind the recent entries.
    Peer(NodeId),
    /// Apply is behind the recent entries (after a restart).
    Apply,
}

/// Please read entries back from the log. At most one per purpose is outstanding.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fetch {
    /// Who needs them.
    pub purpose: FetchFor,
    /// First index wanted.
    pub first: LogIndex,
    /// Last index wanted.
    pub last: LogIndex,
    /// Stop after this many bytes; at least one entry always comes.
    pub bytes_max: usize,
}

/// Names a batch of waiting reads; meaningful to the caller only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadBatch(pub u64);

/// What became of batches of linearizable reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReadVerdict {
    /// The batch that is judged, and with it every batch before it that has no verdict yet.
    pub upto: ReadBatch,
    /// Serve once this index is applied here; `None`: leadership was lost or unknown, nothing was promised.
    pub index: Option<LogIndex>,
}

/// A pure, heavy piece of work (parity, rebuild, sign, verify) for the shell to run where it likes.
/// No policy that needs one exists yet, so the type has no value; its users match on it in full.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Job {}

/// Everything a peer may ask of its driver, in the order it was asked.
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
    /// Committed entries for the store, in log order, each handed out once.
    pub apply: Vec<Entry>,
    /// Pieces of snapshots to read.
    pub read_chunks: Vec<ReadChunk>,
    /// Pieces of a snapshot to store; ordered.
    pub store_chunks: Vec<StoreChunk>,
    /// Verdicts on reads.
    pub reads: Vec<ReadVerdict>,
    /// Heavy work.
    pub compute: Vec<Job>,
    /// Whose words were no honest peer's, and what they were. They have changed nothing; its links must end.
    pub distrust: Vec<(NodeId, Falsehood)>,
    /// What happened, as data.
    pub trace: Vec<Trace>,
}
