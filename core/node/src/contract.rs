//! The contract of one replica: all events that it handles, and all effects that it emits. [architecture §2]
//!
//! A replica has two halves with one queue between them. The [`Node`](crate::Node) is raft, waiting clients and read
//! rounds; the [`Keeper`](crate::Keeper) owns the store, runs `apply`, and answers clients itself. A driver may run
//! both on one thread or on two.
//! Knows nothing of: bytes on wires and disks, threads, etcd's messages.

mod member;
mod peer;
mod request;
mod status;

pub use crate::command_bytes::CommandBytes;
pub use member::{MemberInfo, Members};
pub use peer::{Forward, ForwardReply, PeerMessage};
pub use request::{
    Consistency, Doubt, MemberChange, MemberRefusal, Outcome, Refusal, Reply, ReplyBody, Request,
};
pub use status::Status;

use crate::compare::Health;
use crate::frozen::Frozen;
use crate::tuning::Tuning;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use kattu_kv::api as kv;
use kattu_kv::lookup::Keys;
use kattu_kv::sessions::SessionId;
use kattu_raft::{
    ChunkRead, ChunkStored, Done, Duration, Entry, EntryId, Falsehood, Fetch, Job, LinkEnd, LogIndex,
    LogRecord, Lsn, NodeId, ReadChunk, SnapshotMeta, StoreChunk, Term, Trace,
};

/// Identifies one waiting client. Assigned by the driver: ascending, never used twice in one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// The clients that wait here for an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Tickets {
    /// Nobody waits for it here.
    #[default]
    None,
    /// The client that gave its command.
    One(Ticket),
    /// Of a bundle: the places of commands in it, ascending from 0, and the clients that gave them. [`crate::bundle`]
    Each(Vec<(u32, Ticket)>),
}

impl Tickets {
    /// All of them, in the order of their commands.
    pub fn iter(&self) -> impl Iterator<Item = Ticket> + '_ {
        let (one, each) = match self {
            Tickets::None => (None, &[][..]),
            Tickets::One(ticket) => (Some(*ticket), &[][..]),
            Tickets::Each(each) => (None, &each[..]),
        };
        one.into_iter().chain(each.iter().map(|&(_, ticket)| ticket))
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }
}

impl From<Option<Ticket>> for Tickets {
    fn from(ticket: Option<Ticket>) -> Tickets {
        ticket.map_or(Tickets::None, Tickets::One)
    }
}

/// Space for growth, as the driver measures it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Space {
    /// Bytes of log that are already allocated and free. Proposals are admitted only into these. [fault-model ST15]
    pub log_bytes: u64,
    /// The disk is below its watermark, or the store above its quota: growth is refused.
    pub short: bool,
}

/// An event that a replica handles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Time has passed; due at [`crate::Node::deadline`] at the latest.
    Tick,
    /// The inbox is empty: requests held back to form batches go out now. The driver sends it after the last event of a
    /// batch and before it sleeps.
    Drained,
    /// A request of a client.
    Client {
        /// Its handle.
        ticket: Ticket,
        /// Its request.
        request: Request,
    },
    /// A message of a peer.
    Peer(PeerMessage),
    /// These writes could not be sent: there is no link to their leader, or its queue is full. Writes that may have
    /// been sent in part are never among them.
    Unsent(Forward),
    /// All records up to this one are durable.
    Persisted(Lsn),
    /// How long the disk took to write and sync a group of records that was more than commit marks. Just before
    /// [`Event::Persisted`]; a driver may leave it out. [fault-model F17]
    DiskTook(Duration),
    /// It is durable that this member's vote holds last this long: asked for by
    /// [`Raft::vote_hold_to_record`](kattu_raft::Raft::vote_hold_to_record).
    VoteHoldRecorded(Duration),
    /// Entries read back, for the [`Fetch`] with the same purpose; consecutive from its `first`. Empty if reading
    /// failed temporarily: the fetch is repeated.
    Fetched {
        /// The request answered.
        fetch: Fetch,
        /// The entries that were read.
        entries: Vec<Entry>,
    },
    /// The keeper has applied all entries up to this one.
    Applied {
        /// Highest index applied.
        index: LogIndex,
    },
    /// A piece of a snapshot was read for a peer, or could not be.
    ChunkRead {
        /// The request answered.
        request: ReadChunk,
        /// The result.
        read: ChunkRead,
    },
    /// A piece of a leader's snapshot was stored, or not: the answer has the offset of the next byte.
    ChunkStored(ChunkStored),
    /// All pieces of a leader's snapshot have arrived, but its content is unreadable; the file is gone.
    SnapshotUnreadable {
        /// The last entry that it was to cover.
        last: EntryId,
    },
    /// The snapshot ordered by [`KeeperTask::Snapshot`] is durable under its name, and every byte of it was checked.
    SnapshotTaken {
        /// Its metadata.
        meta: SnapshotMeta,
        /// Bytes of its file.
        bytes: u64,
    },
    /// That snapshot failed and left no file; it is tried again when the log has grown, or for a peer that waits.
    SnapshotFailed {
        /// The last entry that it would have covered.
        last: EntryId,
    },
    /// A job is done; in any order, late, again or never, as it comes. [`Effects::compute`]
    Computed(Done),
    /// The space for growth has changed.
    Space(Space),
    /// The link to a peer has closed, in this way; messages in flight on it may be lost.
    LinkClosed(NodeId, LinkEnd),
    /// The keeper's table of members, at start and whenever it has changed.
    Members(Members),
    /// The keeper's alarms, owed report and level, at start and whenever they have changed.
    Health(Health),
    /// The cost of a command that may take long was checked, and it may be proposed: these are its bytes.
    Admitted(Admitted),
    /// How far a session is, as the keeper reports.
    Standing(Standing),
    /// A member announced the highest feature level that it knows. When the link closes on which it did so, the first
    /// level is reported for it: it may come back with an older version. [`crate::level`]
    Knows(NodeId, u16),
    /// A member announced its priority for leadership: 100 is the default, 0 the last, 255 the first.
    Priority(NodeId, u8),
    /// If this replica leads, it transfers leadership to this voter, or to the best successor. The result shows as any
    /// change of leadership does; after an election timeout without one it goes on leading. Writes wait meanwhile. A
    /// driver sends this before it stops.
    Transfer(Option<NodeId>),
    /// Go by this tuning from now on. One that [`Node::check_tuning`](crate::Node::check_tuning) refuses changes nothing.
    Tune(Box<Tuning>),
    /// The process is about to stop: answer all clients.
    Stop,
}

/// All effects that a replica can emit. Each may be carried out the moment it is emitted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Records for the log, ordered.
    pub persist: Vec<LogRecord>,
    /// Messages; best effort.
    pub send: Vec<PeerMessage>,
    /// Entries to read back.
    pub fetch: Vec<Fetch>,
    /// Work for the keeper, in order.
    pub apply: Vec<KeeperTask>,
    /// Pieces of snapshots to read, answered by [`Event::ChunkRead`].
    pub read_chunks: Vec<ReadChunk>,
    /// Pieces of a snapshot to store, in order, answered by [`Event::ChunkStored`].
    pub store_chunks: Vec<StoreChunk>,
    /// Answers.
    pub reply: Vec<(Ticket, Outcome)>,
    /// Work that may take long, for any thread, answered by [`Event::Computed`].
    pub compute: Vec<Job>,
    /// Peers that sent falsehoods. These messages have changed nothing; the links of such a peer must end.
    pub distrust: Vec<(NodeId, Falsehood)>,
    /// Trace events, as data.
    pub trace: Vec<Trace>,
}

/// A task for the keeper; tasks are ordered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeeperTask {
    /// Apply the next committed entry; answer the clients that wait for it here, if any.
    Apply {
        /// The entry.
        entry: Entry,
        /// The clients that wait.
        tickets: Tickets,
        /// The replica's term, for the answer.
        term: Term,
    },
    /// Serve a read that may be served now.
    Read {
        /// The client that waits.
        ticket: Ticket,
        /// The query.
        query: kv::Query,
        /// The replica's term, for the answer.
        term: Term,
        /// Any state from this index on will do.
        needs: LogIndex,
    },
    /// Serve reads of single keys that may be served now.
    LookUp {
        /// The client that waits.
        ticket: Ticket,
        /// The keys.
        keys: Arc<Keys>,
        /// The replica's term, for the answer.
        term: Term,
        /// Any state from this index on will do.
        needs: LogIndex,
    },
    /// Answer with the members.
    Members {
        /// The client that waits.
        ticket: Ticket,
        /// The replica's term, for the answer.
        term: Term,
        /// Any state from this index on will do.
        needs: LogIndex,
    },
    /// Pin all tables for the caller.
    Pin {
        /// The client that waits.
        ticket: Ticket,
        /// The replica's term, for the answer.
        term: Term,
        /// Any state from this index on will do.
        needs: LogIndex,
    },
    /// Check the cost that a command would have now: refuse it, or return it in [`KeeperEffects::admitted`]. Done at
    /// once.
    Weigh {
        /// The client that waits.
        ticket: Ticket,
        /// The command.
        command: Box<kv::Command>,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// Report how far a session is as of the entries before: [`KeeperEffects::standings`].
    Standing {
        /// The session.
        session: SessionId,
        /// The replica's term, for the report.
        term: Term,
    },
    /// Complete a status whose replica half is given. Done at once.
    Status {
        /// The client that waits.
        ticket: Ticket,
        /// The replica half.
        status: Box<Status>,
    },
    /// Pin all tables as they are now: right after the last entry that this covers. The pin goes out as
    /// [`KeeperEffects::snapshot`].
    Snapshot(Box<SnapshotMeta>),
    /// Request the tables of this snapshot ([`KeeperEffects::install`]), whose file is complete and durable here. Later
    /// tasks wait until [`Keeper::replace`](crate::Keeper::replace) brings them, except reads for which the present
    /// state suffices. State and applied index move together. [fault-model ST4]
    Install(Box<SnapshotMeta>),
}

/// At a start each entry of the log waits in a task: what only rare tasks carry is boxed.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<KeeperTask>() <= 128, "a task has outgrown two cache lines");

/// An empty list of tasks keeps room for so many. At a start it may have held the whole log: that room is memory that the kernel
/// frees before it closes a killed process's connections, and failover waits for it.
pub const TASKS_KEPT: usize = 4096;

/// A command whose cost was checked and that may be proposed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// The client that waits.
    pub ticket: Ticket,
    /// The command to propose.
    pub command: Vec<u8>,
    /// Bytes of existing values that it writes again. [`kattu_kv::store::Store::kept_bytes`]
    pub kept_bytes: u64,
}

/// How far a session is: for a leader that gives weak answers. [`crate::weak`]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Standing {
    /// The session.
    pub session: SessionId,
    /// The term in which the leader asked.
    pub term: Term,
    /// The highest number executed; `None` if the session is not there, or its commands need no order.
    pub last: Option<u64>,
}

/// The keeper's effects, for its driver.
#[derive(Clone, Debug, Default)]
pub struct KeeperEffects {
    /// Answers.
    pub reply: Vec<(Ticket, Outcome)>,
    /// Set when an entry was applied: pass it to the node.
    pub applied: Option<LogIndex>,
    /// These tables are to be written as a snapshot: in the background, in small steps. [`Event::SnapshotTaken`] or
    /// [`Event::SnapshotFailed`] reports the result.
    pub snapshot: Option<(SnapshotMeta, Frozen)>,
    /// The tables of this snapshot are needed: read them in the background, then call
    /// [`Keeper::replace`](crate::Keeper::replace).
    pub install: Option<SnapshotMeta>,
    /// The table of members has changed: pass it to the node, and to the code that links and admits members.
    pub members: Option<Members>,
    /// Alarms, the owed report or the level have changed: pass them to the node.
    pub health: Option<Health>,
    /// Commands that may be proposed: pass them to the node. [`Event::Admitted`]
    pub admitted: Vec<Admitted>,
    /// How far sessions are: pass them to the node. [`Event::Standing`]
    pub standings: Vec<Standing>,
    /// The work done, in units. [`kattu_kv::cost`]
    pub units: u64,
    /// Requests refused because they cost more than one may.
    pub refused_for_work: u64,
}
