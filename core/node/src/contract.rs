//! The contract of one replica: all events that it handles, and all effects that it emits. [architecture §2]
//!
//! A replica has two halves with one queue between them. The [`Node`](crate::Node) is raft, waiting clients and read
//! rounds; the [`Keeper`](crate::Keeper) owns the store, runs `apply`, and answers clients itself. A driver may run
//! both on one thread or on two.
//! Knows nothing of: bytes on wires and disks, threads, etcd's messages.

use crate::alarms::{Alarm, Alarms};
use crate::compare::Health;
use crate::digests::Compared;
use crate::frozen::Frozen;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use kattu_kv::api as kv;
use kattu_raft::Trace;
use kattu_raft::{
    ChunkRead, ChunkStored, Done, Duration, Entry, EntryId, Falsehood, Fetch, Incarnation, Job, LinkEnd,
    LogIndex, LogRecord, Lsn, Message, NodeId, ReadChunk, SnapshotMeta, StoreChunk, Term,
};

/// Identifies one waiting client. Assigned by the driver: ascending, never used twice in one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// How fresh a read must be. [replication-protocols §9.1]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Consistency {
    /// Sees every write that was answered before the read began.
    #[default]
    Linearizable,
    /// Sees some state that existed, never going back on one member.
    Serializable,
    /// Sees everything up to this log index. A client that passes the highest index it was given sees the effects of
    /// all its own earlier requests, whichever members served them.
    Session(LogIndex),
    /// Sees every write that was answered longer ago than this. A member that was confirmed so recently answers at
    /// once.
    Bounded(Duration),
}

/// A request of a client to a replica.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// A command for the log, for the store or about an alarm: the bytes of [`crate::command::Command`], encoded where
    /// the request entered.
    Write(Vec<u8>),
    /// A command of the store that may take long, with its bytes: its cost is checked before it is proposed.
    /// [`crate::command::request`] makes it.
    Weigh(alloc::boxed::Box<kv::Command>, Vec<u8>),
    /// A read of the store.
    Read(kv::Query, Consistency),
    /// The members of the cluster.
    Members(Consistency),
    /// A change of the members. Any replica accepts it; the leader checks it. Answered when the change is complete.
    Change(MemberChange),
    /// Transfers leadership to this voter. Only the leader accepts it; answered when the target leads.
    MoveLeader(NodeId),
    /// All tables as of one moment, to be hashed or written elsewhere in small steps: other requests need not wait.
    /// Answered in any state, also by a replica that refuses reads because its state is divergent.
    Pin(Consistency),
    /// The status of this replica; answered at once, never through the log.
    Status,
}

/// A change of the members. One at a time. [replication-protocols M3]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum MemberChange {
    /// Adds a member. It begins as a learner, so that one that never answers does no harm.
    Add {
        /// Its id: never that of a current or former member.
        id: NodeId,
        /// Its peer URLs: none that another member has.
        peer_urls: Vec<String>,
        /// Whether it gets a vote by itself once it has caught up; otherwise it waits for a [`MemberChange::Promote`].
        votes: bool,
    },
    /// Removes this member; its id is never used again.
    Remove(NodeId),
    /// Gives this learner a vote; refused unless it has caught up.
    Promote(NodeId),
    /// Changes the peer URLs of this member.
    Update {
        /// The member.
        id: NodeId,
        /// Its new peer URLs.
        peer_urls: Vec<String>,
    },
}

/// The outcome of a request. [architecture §5]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Final.
    Done(Reply),
    /// Certainly without effect, now and later.
    Refused(Refusal),
    /// It may have had an effect, or may still have one.
    Unknown(Doubt),
}

/// A final answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// This replica's term when it answered.
    pub term: Term,
    /// The content.
    pub body: ReplyBody,
}

/// The content of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplyBody {
    /// The store's response.
    Kv(kv::Response),
    /// The store refused the request without effect; final all the same.
    KvError(kv::Error),
    /// The table of members.
    Members(Members),
    /// The status of this replica.
    Status(alloc::boxed::Box<Status>),
    /// The change of members is complete: all members after it, ascending by id.
    Changed(Vec<MemberInfo>),
    /// The requested member leads.
    Moved,
    /// All tables as of one moment.
    Pinned(alloc::boxed::Box<Frozen>),
    /// The alarm that was raised or cleared; none if there was nothing to clear.
    Alarmed(Option<Alarm>),
    /// Published.
    Published,
}

/// Why a request certainly had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// There was no leader while the request waited.
    NoLeader,
    /// A limit on waiting requests or bytes is reached.
    TooManyRequests,
    /// No space for growth (disk or quota).
    NoSpace,
    /// Leadership moves, and nothing was done: a read was not confirmed, a write not accepted. A retry is safe.
    LeaderChanged,
    /// A read waited too long for the leader's confirmation or for apply.
    ReadTimedOut,
    /// This replica is still replaying its log and may not serve from it yet. [fault-model ST17]
    Replaying,
    /// The replica is stopping.
    Stopping,
    /// The change of members or the leadership transfer was refused.
    Member(MemberRefusal),
    /// This replica's state is divergent, as an alarm reports.
    Corrupt,
    /// It would cost more than one request may. [`kattu_kv::cost`]
    TooMuchWork,
    /// It asks for more bytes than one answer may have.
    AnswerTooLarge,
}

/// Why a change of members or of the leader was refused. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemberRefusal {
    /// Another change of members is under way and did not end while this one waited.
    UnderWay,
    /// There is no such member.
    NotFound,
    /// A current or former member has this id.
    IdUsed,
    /// Another member has one of these peer URLs.
    UrlsUsed,
    /// Only a learner can be promoted.
    NotLearner,
    /// The learner has not caught up, or has not published itself.
    NotCaughtUp,
    /// Too few of the voters after the change answer.
    WouldLoseQuorum,
    /// The last voter cannot be removed.
    LastVoter,
    /// The number of learners is at its limit.
    TooManyLearners,
    /// The number of members is at its limit.
    TooManyMembers,
    /// Only the leader can transfer leadership.
    NotLeader,
    /// The transfer target is not a voter of this cluster.
    BadTransferee,
    /// The transfer target did not become leader in time or needs a snapshot first, or another transfer is under way.
    TransferFailed,
}

impl fmt::Display for MemberRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MemberRefusal::UnderWay => "another change of members is under way",
            MemberRefusal::NotFound => "there is no such member",
            MemberRefusal::IdUsed => "a current or former member has this id: ids are never reused",
            MemberRefusal::UrlsUsed => "another member has one of these peer URLs",
            MemberRefusal::NotLearner => "only a learner can be promoted",
            MemberRefusal::NotCaughtUp => {
                "the learner has not caught up with the leader, or has not published its name yet"
            }
            MemberRefusal::WouldLoseQuorum => {
                "too few of the voters after this change answer: it would cost the quorum"
            }
            MemberRefusal::LastVoter => "the last voter cannot be removed",
            MemberRefusal::TooManyLearners => "there are too many learners",
            MemberRefusal::TooManyMembers => "there are too many members",
            MemberRefusal::NotLeader => "only the leader can transfer leadership",
            MemberRefusal::BadTransferee => "transfer target is not a voter of this cluster",
            MemberRefusal::TransferFailed => "transfer target did not become leader in time",
        })
    }
}

/// Why the outcome is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Doubt {
    /// Leadership moved while the request was in flight.
    LeaderChanged,
    /// It took too long.
    TimedOut,
    /// The replica is stopping.
    Stopping,
    /// It is done, but its answer would be larger than one answer may be.
    AnswerTooLarge,
}

/// One member as clients see it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct MemberInfo {
    /// Its id.
    pub id: NodeId,
    /// Its name; empty until it has published itself.
    pub name: String,
    /// Its peer URLs.
    pub peer_urls: Vec<String>,
    /// Its client URLs; empty until it has published itself.
    pub client_urls: Vec<String>,
    /// Whether it has no vote.
    pub learner: bool,
    /// Whether this learner gets a vote by itself as soon as it has caught up.
    pub votes_when_ready: bool,
}

impl MemberInfo {
    /// Whether the log holds a publication of this member: then it had a data directory before that entry.
    #[must_use]
    pub fn is_published(&self) -> bool {
        !self.name.is_empty() || !self.client_urls.is_empty()
    }
}

/// The replicated table of members, as of one configuration of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Members {
    /// Log index of the configuration that this table follows; 0 for the initial one.
    pub at: LogIndex,
    /// All members, ascending by id. A member that leaves or gets a vote is listed as before until the change is
    /// complete.
    pub list: Vec<MemberInfo>,
    /// Former members, ascending. Their ids are never used again.
    pub removed: Vec<NodeId>,
}

/// The status of one replica.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// This replica.
    pub id: NodeId,
    /// Its current term.
    pub term: Term,
    /// The leader that it follows (itself if it leads), if any.
    pub leader: Option<NodeId>,
    /// `follower`, `pre-candidate`, `candidate` or `leader`.
    pub role: &'static str,
    /// Whether it has no vote.
    pub learner: bool,
    /// Whether it holds a leader lease now and may serve reads by its clock. [replication-protocols §9.4]
    pub has_leader_lease: bool,
    /// Whether it is a leader with leases configured that has none for the rest of its term, because a leadership
    /// transfer failed. [replication-protocols L-6]
    pub leader_lease_is_over: bool,
    /// If it is a leader with leases configured: the voters that do not grant the vote holds these need.
    /// [replication-protocols L-3]
    pub leader_lease_without: Vec<NodeId>,
    /// If it is a leader without a lease because clocks are proven to drift more than leases allow: the voters whose
    /// clocks drift from its own, and by how many millionths at least each gains on it. [fault-model F42]
    pub clocks_apart: Vec<(NodeId, i32)>,
    /// Peers that sent falsehoods since this replica started, how often, and the last one.
    pub distrusted: Vec<(NodeId, u64, Falsehood)>,
    /// Highest index on this disk.
    pub persisted: LogIndex,
    /// Highest index known committed.
    pub committed: LogIndex,
    /// Highest index visible in the store.
    pub applied: LogIndex,
    /// First index of the log.
    pub first: LogIndex,
    /// Last index of the newest snapshot; 0 if there is none.
    pub snapshot: LogIndex,
    /// Last index of the log.
    pub last: LogIndex,
    /// The store's revision.
    pub revision: kv::Revision,
    /// The store's compacted revision.
    pub compact_revision: kv::Revision,
    /// Live keys.
    pub keys: u64,
    /// Bytes of keys and values held, history included.
    pub store_bytes: u64,
    /// Bytes of keys and values of the newest versions.
    pub store_bytes_in_use: u64,
    /// Whether compacted versions are still being freed.
    pub store_forgets: bool,
    /// Whether writes that grow the store are refused.
    pub no_space: bool,
    /// Whether the replica serves before a leader has confirmed its state. [fault-model ST17]
    pub serving_unconfirmed: bool,
    /// Terms in which this replica saw a leader, since it started.
    pub leader_changes: u64,
    /// Client requests waiting.
    pub pending: u64,
    /// The feature level that the cluster has reached. [`crate::level`]
    pub level: u16,
    /// The alarms that are raised.
    pub alarms: Alarms,
    /// The state of the comparison of members' digests.
    pub compared: alloc::boxed::Box<Compared>,
}

/// A message between replicas.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PeerMessage {
    /// A message of the protocol.
    Raft(kattu_raft::Envelope),
    /// Writes on their way to the leader.
    Forward(Forward),
    /// The verdicts on them.
    ForwardReply(ForwardReply),
}

/// Follower → leader: client writes, batched. A copy that is repeated or late is never proposed. [B13, fault-model NT7]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Forward {
    /// The follower.
    pub from: NodeId,
    /// The leader that it is meant for.
    pub to: NodeId,
    /// The follower's run: drawn anew at every start, so that sequence numbers never repeat within it.
    pub incarnation: Incarnation,
    /// The term in which `to` leads; in any other the batch is void.
    pub term: Term,
    /// Sequence number of the first request; the others follow without gaps.
    pub first_seq: u64,
    /// The requests' commands.
    pub commands: Vec<kattu_raft::SharedBytes>,
}

/// Leader → follower: the verdict on each forwarded request. The follower answers its client when it applies the entry
/// itself, so results are never sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ForwardReply {
    /// The leader.
    pub from: NodeId,
    /// The follower.
    pub to: NodeId,
    /// The follower's incarnation, as it was in the request.
    pub incarnation: Incarnation,
    /// The term the batch was taken in.
    pub term: Term,
    /// Sequence number of the first verdict.
    pub first_seq: u64,
    /// One per request: its place in the log, or why it was refused.
    pub verdicts: Vec<Result<EntryId, Refusal>>,
}

impl PeerMessage {
    /// The addressee.
    #[must_use]
    pub fn to(&self) -> NodeId {
        match self {
            PeerMessage::Raft(envelope) => envelope.to,
            PeerMessage::Forward(forward) => forward.to,
            PeerMessage::ForwardReply(reply) => reply.to,
        }
    }

    /// The sender.
    #[must_use]
    pub fn from(&self) -> NodeId {
        match self {
            PeerMessage::Raft(envelope) => envelope.from,
            PeerMessage::Forward(forward) => forward.from,
            PeerMessage::ForwardReply(reply) => reply.from,
        }
    }

    /// Whether it is a piece of a snapshot: no other message may wait behind it.
    #[must_use]
    pub fn is_chunk(&self) -> bool {
        matches!(self, PeerMessage::Raft(envelope) if matches!(envelope.message, Message::SnapshotChunk(_)))
    }

    /// Whether it must not wait behind entries.
    #[must_use]
    pub fn is_control(&self) -> bool {
        match self {
            PeerMessage::Raft(envelope) => match &envelope.message {
                Message::Append(append) => !append.is_bulk(),
                Message::AppendReply(_)
                | Message::StaleTerm(_)
                | Message::PreVote(_)
                | Message::PreVoteReply(_)
                | Message::Vote(_)
                | Message::VoteReply(_)
                | Message::ReadIndex(_)
                | Message::ReadIndexReply(_)
                | Message::SnapshotReply(_)
                | Message::TimeoutNow(_)
                | Message::Lost(_)
                | Message::Remind(_)
                | Message::Reminder(_) => true,
                Message::SnapshotChunk(_) => false,
            },
            PeerMessage::Forward(_) | PeerMessage::ForwardReply(_) => false,
        }
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
    /// That snapshot failed and left no file; it is tried again when the log has grown.
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
    /// A member announced the highest feature level that it knows. When the link closes on which it did so, the first
    /// level is reported for it: it may come back with an older version. [`crate::level`]
    Knows(NodeId, u16),
    /// A member announced its priority for leadership: 100 is the default, 0 the last, 255 the first.
    Priority(NodeId, u8),
    /// If this replica leads, it transfers leadership to this voter, or to the best successor. The result shows as any
    /// change of leadership does; after an election timeout without one it goes on leading. Writes wait meanwhile. A
    /// driver sends this before it stops.
    Transfer(Option<NodeId>),
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
    /// Apply the next committed entry; answer the client that waits for it here, if any.
    Apply {
        /// The entry.
        entry: Entry,
        /// The client that waits.
        ticket: Option<Ticket>,
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
        command: alloc::boxed::Box<kv::Command>,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// Complete a status whose replica half is given. Done at once.
    Status {
        /// The client that waits.
        ticket: Ticket,
        /// The replica half.
        status: alloc::boxed::Box<Status>,
    },
    /// Pin all tables as they are now: right after the last entry that this covers. The pin goes out as
    /// [`KeeperEffects::snapshot`].
    Snapshot(SnapshotMeta),
    /// Request the tables of this snapshot ([`KeeperEffects::install`]), whose file is complete and durable here. Later
    /// tasks wait until [`Keeper::replace`](crate::Keeper::replace) brings them, except reads for which the present
    /// state suffices. State and applied index move together. [fault-model ST4]
    Install(SnapshotMeta),
}

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
    /// The work done, in units. [`kattu_kv::cost`]
    pub units: u64,
    /// Requests refused because they cost more than one may.
    pub refused_for_work: u64,
}
