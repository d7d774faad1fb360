//! The contract of one replica: all that can happen to it, and all that it can ask for. [architecture §2]
//!
//! A replica has two halves with one queue between them. The [`Node`](crate::Node) is raft, waiting clients and read
//! rounds; the [`Keeper`](crate::Keeper) owns the store, takes `apply`, and answers clients itself. A driver may run
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
    ChunkRead, ChunkStored, Duration, Entry, EntryId, Falsehood, Fetch, Incarnation, Job, LinkEnd, LogIndex,
    LogRecord, Lsn, Message, NodeId, ReadChunk, SnapshotMeta, StoreChunk, Term,
};

/// Names one waiting client. Drawn by the driver: ascending, never used twice in one run.
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
    /// Sees everything up to this position of the log: what a client's own earlier requests saw or did, wherever they
    /// were served, if it says the highest position that it was told.
    Session(LogIndex),
    /// Sees every write that was answered longer ago than this. Members that were confirmed so recently answer at once.
    Bounded(Duration),
}

/// What a client may ask of a replica.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// A command for the log, for the store or of an alarm: the bytes of [`crate::command::Command`], encoded where the
    /// request entered.
    Write(Vec<u8>),
    /// A command of the store that may take long, with its bytes: weighed before it is proposed.
    /// [`crate::command::request`] makes it.
    Weigh(alloc::boxed::Box<kv::Command>, Vec<u8>),
    /// A read of the store.
    Read(kv::Query, Consistency),
    /// The members of the cluster.
    Members(Consistency),
    /// A change of the members. Any replica may be asked; the leader judges it. Answered when the change is complete.
    Change(MemberChange),
    /// The leader hands over to this voter. Only the leader can be asked; answered when the other one leads.
    MoveLeader(NodeId),
    /// All tables as of one moment, to be hashed or written elsewhere, a little at a time: nothing waits meanwhile.
    /// Answered by a replica in whatever state, also by one that refuses reads because its state is wrong.
    Pin(Consistency),
    /// How this replica is doing; answered at once, never through the log.
    Status,
}

/// A change of the members. One at a time. [replication-protocols M3]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum MemberChange {
    /// One more member. It begins as a learner, so that one that never answers harms nobody.
    Add {
        /// Its id: never one that a member has or had.
        id: NodeId,
        /// Where its peers reach it: places that no other member names.
        peer_urls: Vec<String>,
        /// Whether it gets a vote as soon as it has caught up, by itself; else it waits for a [`MemberChange::Promote`].
        votes: bool,
    },
    /// This member goes, and its id never comes back.
    Remove(NodeId),
    /// This learner gets a vote; refused unless it has caught up.
    Promote(NodeId),
    /// Peers reach this member elsewhere.
    Update {
        /// The member.
        id: NodeId,
        /// Where its peers reach it from now on.
        peer_urls: Vec<String>,
    },
}

/// What became of a request. [architecture §5]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Final.
    Done(Reply),
    /// Certainly without effect, now and later.
    Refused(Refusal),
    /// It may have happened, or still may.
    Unknown(Doubt),
}

/// A final answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// This replica's term when it answered.
    pub term: Term,
    /// What was answered.
    pub body: ReplyBody,
}

/// What was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplyBody {
    /// The store did it, at `revision`.
    Kv(kv::Response),
    /// The store judged the request and refused it without effect; final all the same.
    KvError(kv::Error),
    /// The table of members.
    Members(Members),
    /// This replica.
    Status(alloc::boxed::Box<Status>),
    /// The change of members is complete: everybody after it, ascending by id.
    Changed(Vec<MemberInfo>),
    /// The member that was asked for leads.
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
    /// No leader turned up while the request waited.
    NoLeader,
    /// A limit on waiting requests or bytes is reached.
    TooManyRequests,
    /// No room for growth (disk or quota).
    NoSpace,
    /// Leadership moves, and nothing was done: a read was not confirmed, a write not taken. Asking again is safe.
    LeaderChanged,
    /// A read waited too long for the leader's confirmation or for apply.
    ReadTimedOut,
    /// This replica is still replaying its log and may not serve from it yet. [fault-model ST17]
    Replaying,
    /// The replica is stopping.
    Stopping,
    /// The members stay as they are, or the leader does.
    Member(MemberRefusal),
    /// This replica's state is not what the log makes of it: it is named in an alarm.
    Corrupt,
    /// It would cost more than one request may. [`kattu_kv::cost`]
    TooMuchWork,
    /// It asks for more bytes than one answer may have.
    AnswerTooLarge,
}

/// Why a change of members or of the leader was refused. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemberRefusal {
    /// Another change of members is under way, and did not end while this one waited.
    UnderWay,
    /// There is no such member.
    NotFound,
    /// A member has this id, or had it.
    IdUsed,
    /// Another member is reached at one of these URLs.
    UrlsUsed,
    /// Only a learner can be promoted.
    NotLearner,
    /// The learner does not keep up yet, or has not published itself.
    NotCaughtUp,
    /// Too few of those who would vote answer.
    WouldLoseQuorum,
    /// The last voter cannot be removed.
    LastVoter,
    /// There are as many learners as there may be.
    TooManyLearners,
    /// There are as many members as there may be.
    TooManyMembers,
    /// Only the leader can hand over.
    NotLeader,
    /// Who shall lead is no voter of this cluster.
    BadTransferee,
    /// Who shall lead does not: it did not catch up or did not answer within an election timeout.
    TransferFailed,
}

impl fmt::Display for MemberRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MemberRefusal::UnderWay => "another change of members is under way",
            MemberRefusal::NotFound => "there is no such member",
            MemberRefusal::IdUsed => "a member has this id, or had it: ids are never used again",
            MemberRefusal::UrlsUsed => "another member is reached at one of these URLs",
            MemberRefusal::NotLearner => "only a learner can be promoted",
            MemberRefusal::NotCaughtUp => {
                "the learner has not caught up with the leader, or has not told its name yet"
            }
            MemberRefusal::WouldLoseQuorum => {
                "too few of those who would vote answer: it would cost the quorum"
            }
            MemberRefusal::LastVoter => "the last voter cannot be removed",
            MemberRefusal::TooManyLearners => "there are too many learners",
            MemberRefusal::TooManyMembers => "there are too many members",
            MemberRefusal::NotLeader => "only the leader can hand over its leadership",
            MemberRefusal::BadTransferee => "who shall lead is no voter of this cluster",
            MemberRefusal::TransferFailed => "who shall lead did not take over in time",
        })
    }
}

/// Why the outcome is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Doubt {
    /// Leadership moved while it was in flight.
    LeaderChanged,
    /// It took too long.
    TimedOut,
    /// The replica is stopping.
    Stopping,
    /// It is done, and what it came to cannot be told: the answer would be larger than one answer may be.
    AnswerTooLarge,
}

/// One member as clients see it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct MemberInfo {
    /// Its id.
    pub id: NodeId,
    /// Its name; empty until it has published itself.
    pub name: String,
    /// Where its peers reach it.
    pub peer_urls: Vec<String>,
    /// Where its clients reach it; empty until it has published itself.
    pub client_urls: Vec<String>,
    /// Whether it has no vote.
    pub learner: bool,
    /// Whether this learner gets a vote by itself as soon as it has caught up.
    pub votes_when_ready: bool,
}

impl MemberInfo {
    /// Whether the log holds a publication of its own: then it had a directory before that entry.
    #[must_use]
    pub fn is_published(&self) -> bool {
        !self.name.is_empty() || !self.client_urls.is_empty()
    }
}

/// The replicated table of members, as of one configuration of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Members {
    /// Where the configuration stands in the log that this table follows; 0 for the one the cluster began with.
    pub at: LogIndex,
    /// Everybody, ascending by id. Who leaves or gets a vote is here as before until the change is complete.
    pub list: Vec<MemberInfo>,
    /// Whoever was a member and is none any more, ascending. Their ids are never used again.
    pub removed: Vec<NodeId>,
}

/// What one replica tells about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// This replica.
    pub id: NodeId,
    /// Its current term.
    pub term: Term,
    /// Whom it follows (itself as leader), if anybody.
    pub leader: Option<NodeId>,
    /// `follower`, `pre-candidate`, `candidate` or `leader`.
    pub role: &'static str,
    /// Whether it has no vote.
    pub learner: bool,
    /// Whether it may answer reads by its clock right now, as a leader with a lease. [replication-protocols §9.4]
    pub has_leader_lease: bool,
    /// Whether, as a leader that has leases, it has none in this term any more, for a hand-over that came to nothing.
    /// [replication-protocols L-6]
    pub leader_lease_is_over: bool,
    /// As a leader that has leases: the voters that do not promise what those need. [replication-protocols L-3]
    pub leader_lease_without: Vec<NodeId>,
    /// As a leader that has proof that clocks are worse than leases trust, and no lease any more: the voters whose clocks run
    /// apart from its own, and by how many millionths at least each gains on it. [fault-model F42]
    pub clocks_apart: Vec<(NodeId, i32)>,
    /// Whose words were no honest member's since this one started, how often, and what it said last.
    pub distrusted: Vec<(NodeId, u64, Falsehood)>,
    /// Highest index on this disk.
    pub persisted: LogIndex,
    /// Highest index known committed.
    pub committed: LogIndex,
    /// Highest index visible in the store.
    pub applied: LogIndex,
    /// First index of the log.
    pub first: LogIndex,
    /// Up to where the newest snapshot reaches; 0 while there is none.
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
    /// Whether what was compacted is still being given back.
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
    /// How the comparison of members' digests stands.
    pub compared: alloc::boxed::Box<Compared>,
}

/// A message between replicas.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PeerMessage {
    /// One of the protocol's own.
    Raft(kattu_raft::Envelope),
    /// Writes on their way to the leader.
    Forward(Forward),
    /// Where they went.
    ForwardReply(ForwardReply),
}

/// Follower → leader: client writes, batched. A copy that is repeated or late is never proposed. [B13, fault-model NT7]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Forward {
    /// The follower.
    pub from: NodeId,
    /// The leader it means.
    pub to: NodeId,
    /// The follower's life and run: drawn anew at every start, so that sequences never repeat within one.
    pub incarnation: Incarnation,
    /// The term in which `to` leads; in any other the batch is void.
    pub term: Term,
    /// Sequence number of the first request; the others follow without gaps.
    pub first_seq: u64,
    /// The requests' commands.
    pub commands: Vec<kattu_raft::SharedBytes>,
}

/// Leader → follower: what became of each forwarded request. The follower answers its client when it applies the
/// entry itself, so that results never travel.
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
    /// One per request: where in the log it stands, or why it was refused.
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

    /// A piece of a snapshot: nothing else must wait behind it.
    #[must_use]
    pub fn is_chunk(&self) -> bool {
        matches!(self, PeerMessage::Raft(envelope) if matches!(envelope.message, Message::SnapshotChunk(_)))
    }

    /// What must not wait behind entries.
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

/// Room for growth, as the driver sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Space {
    /// Bytes of log that are already allocated and free. Proposals are admitted only into these. [fault-model ST15]
    pub log_bytes: u64,
    /// The disk is below its watermark, or the store above its quota: growth is refused.
    pub short: bool,
}

/// All that can happen to a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Time has passed; owed no later than [`crate::Node::deadline`].
    Tick,
    /// The inbox is empty: what was held back to form batches goes out now. The driver sends it after the last event
    /// of a batch and before it sleeps.
    Drained,
    /// A client asks.
    Client {
        /// Its handle.
        ticket: Ticket,
        /// Its request.
        request: Request,
    },
    /// A peer says.
    Peer(PeerMessage),
    /// These writes could not leave: there is no link to their leader, or its queue is full. What may have left in
    /// part is never among them.
    Unsent(Forward),
    /// All records up to this one are durable.
    Persisted(Lsn),
    /// The disk took so long to write and sync a group of records that was more than commit marks. Just before
    /// [`Event::Persisted`]; a driver may leave it out. [fault-model F17]
    DiskTook(Duration),
    /// Entries read back, for the [`Fetch`] with the same purpose; consecutive from its `first`. Empty if reading
    /// failed for a passing reason: it is asked again.
    Fetched {
        /// The request answered.
        fetch: Fetch,
        /// What was read.
        entries: Vec<Entry>,
    },
    /// The keeper has applied up to here; so many bytes of the store are in use now.
    Applied {
        /// Highest index applied.
        index: LogIndex,
    },
    /// A piece of a snapshot was read for a peer, or could not be.
    ChunkRead {
        /// The request answered.
        request: ReadChunk,
        /// What came of it.
        read: ChunkRead,
    },
    /// A piece of a leader's snapshot was stored, or not: the answer says which byte is next.
    ChunkStored(ChunkStored),
    /// All pieces of a leader's snapshot have come, and nobody can read what they say; nothing is left of it.
    SnapshotUnreadable {
        /// What it was to cover.
        last: EntryId,
    },
    /// The snapshot ordered by [`KeeperTask::Snapshot`] is durable under its name, and every byte of it was checked.
    SnapshotTaken {
        /// What it covers.
        meta: SnapshotMeta,
        /// Bytes of its file.
        bytes: u64,
    },
    /// That snapshot came to nothing and left nothing behind; it is tried again when the log has grown.
    SnapshotFailed {
        /// What it would have covered.
        last: EntryId,
    },
    /// Room for growth has changed.
    Space(Space),
    /// The link to a peer is gone, in this way; what was in flight on it may be lost.
    LinkClosed(NodeId, LinkEnd),
    /// The keeper's table of members, at start and whenever it has changed.
    Members(Members),
    /// What the keeper's tables say of alarms and digests, at start and whenever it has changed.
    Health(Health),
    /// The keeper has weighed a command that may take long, and it may be proposed: these are its bytes.
    Admitted(Admitted),
    /// A member said up to which feature level it knows. When the link breaks on which it said so it is the first level: what
    /// comes back may be an older version. [`crate::level`]
    Knows(NodeId, u16),
    /// A member said how eager it is to lead: 100 like anybody, 0 the last, 255 the first.
    Priority(NodeId, u8),
    /// If this replica leads, it shall no longer: it hands over to this voter, or to the one that can take over best.
    /// What comes of it shows as any change of leadership does; after an election timeout without one it goes on. Writes
    /// wait meanwhile. A driver says it before it stops.
    Transfer(Option<NodeId>),
    /// The process is about to stop: answer everybody.
    Stop,
}

/// All that a replica can ask for. Each effect may be carried out the moment it is emitted.
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
    /// Heavy work.
    pub compute: Vec<Job>,
    /// Whose words were no honest member's, and what they were. They have changed nothing; its links must end.
    pub distrust: Vec<(NodeId, Falsehood)>,
    /// What happened, as data.
    pub trace: Vec<Trace>,
}

/// What the keeper is asked to do, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeeperTask {
    /// Apply the next committed entry; answer the client that waits for it here, if any.
    Apply {
        /// The entry.
        entry: Entry,
        /// Who waits.
        ticket: Option<Ticket>,
        /// The replica's term, for the answer.
        term: Term,
    },
    /// Serve a read that may be served now.
    Read {
        /// Who waits.
        ticket: Ticket,
        /// What is asked.
        query: kv::Query,
        /// The replica's term, for the answer.
        term: Term,
        /// Any state from this index on will do.
        needs: LogIndex,
    },
    /// Answer with the members.
    Members {
        /// Who waits.
        ticket: Ticket,
        /// The replica's term, for the answer.
        term: Term,
        /// Any state from this index on will do.
        needs: LogIndex,
    },
    /// Pin all tables, for whoever asked.
    Pin {
        /// Who waits.
        ticket: Ticket,
        /// The replica's term, for the answer.
        term: Term,
        /// Any state from this index on will do.
        needs: LogIndex,
    },
    /// Judge a command by what it would cost now: refuse it, or give it back as [`KeeperEffects::admitted`]. Done at once.
    Weigh {
        /// Who waits.
        ticket: Ticket,
        /// What is to be done.
        command: alloc::boxed::Box<kv::Command>,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// Complete a status whose replica half is given. Done at once.
    Status {
        /// Who waits.
        ticket: Ticket,
        /// The replica half.
        status: alloc::boxed::Box<Status>,
    },
    /// Pin all tables as they are now: right after the last entry that this covers. The pin goes out as
    /// [`KeeperEffects::snapshot`].
    Snapshot(SnapshotMeta),
    /// Ask for the tables of this snapshot ([`KeeperEffects::install`]), whose file is complete and durable here. What
    /// follows waits until [`Keeper::replace`](crate::Keeper::replace) brings them; reads that the present state is good
    /// enough for do not. State and applied index move together. [fault-model ST4]
    Install(SnapshotMeta),
}

/// A command that was weighed and may be proposed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// Who waits.
    pub ticket: Ticket,
    /// What to propose.
    pub command: Vec<u8>,
    /// Bytes that it writes although it does not have them. [`kattu_kv::store::Store::kept_bytes`]
    pub kept_bytes: u64,
}

/// What the keeper tells its driver.
#[derive(Clone, Debug, Default)]
pub struct KeeperEffects {
    /// Answers.
    pub reply: Vec<(Ticket, Outcome)>,
    /// Set when something was applied: tell the node.
    pub applied: Option<LogIndex>,
    /// These tables are to become a snapshot: in the background, a little at a time. [`Event::SnapshotTaken`] or
    /// [`Event::SnapshotFailed`] says what came of it.
    pub snapshot: Option<(SnapshotMeta, Frozen)>,
    /// The tables of this snapshot are wanted: read them in the background, then call
    /// [`Keeper::replace`](crate::Keeper::replace).
    pub install: Option<SnapshotMeta>,
    /// The table of members has changed: tell the node, and whoever links members or lets them in.
    pub members: Option<Members>,
    /// What the tables say of alarms and digests has changed: tell the node.
    pub health: Option<Health>,
    /// Commands that may be proposed: tell the node. [`Event::Admitted`]
    pub admitted: Vec<Admitted>,
    /// What was done, in units. [`kattu_kv::cost`]
    pub units: u64,
    /// Requests refused because they cost more than one may.
    pub refused_for_work: u64,
}
