//! Requests of clients, and their outcomes. [architecture §5]
//!
//! Knows nothing of: etcd's messages, the way of a request through the cluster.

use super::{MemberInfo, Members, Status};
use crate::alarms::Alarm;
use crate::command_bytes::CommandBytes;
use crate::frozen::Frozen;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use kattu_kv::api as kv;
use kattu_kv::lookup::{Found, Keys};
use kattu_kv::sessions::{SessionError, SessionId};
use kattu_raft::{Duration, EntryId, LogIndex, NodeId, Protocol, Term, Timing};

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
    AtLeast(LogIndex),
    /// Sees every write that was answered longer ago than this. A member that was confirmed so recently answers at
    /// once.
    Bounded(Duration),
}

/// A request of a client to a replica.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// A command for the log, for the store, about sessions or an alarm: the bytes of [`crate::command::Command`],
    /// encoded where the request entered.
    Write(CommandBytes),
    /// The same, outside of sessions; the client does not want the result, only to know that the command is in the log for
    /// good: it is answered before it is applied. [replication-protocols B10]
    CommitOnly(CommandBytes),
    /// A put or a delete in a session; besides the outcome its client wants to know when a quorum has received it
    /// ([`Outcome::Received`]), if the cluster gives weak answers and this replica leads. Otherwise as [`Request::Write`].
    Weak(CommandBytes),
    /// A command of the store that may take long, with its bytes: its cost is checked before it is proposed.
    /// [`crate::command::request`] makes it.
    Weigh(Box<kv::Command>, Vec<u8>),
    /// A read of the store.
    Read(kv::Query, Consistency),
    /// Reads of single keys that came together, as one request: each sees the state that a [`Request::Read`] of this key in its
    /// place would have seen, and all of them see the same.
    LookUp(Arc<Keys>, Consistency),
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

impl Request {
    /// The bytes of the command that it brings, if it is a write.
    #[must_use]
    pub fn command(&self) -> Option<&[u8]> {
        match self {
            Request::Write(command) | Request::CommitOnly(command) | Request::Weak(command) => Some(command),
            Request::Weigh(_, command) => Some(command),
            _ => None,
        }
    }
}

/// A change of the members, or of what they share. One at a time. [replication-protocols M3]
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
    /// Sets the timing of the whole cluster; every member goes by it as soon as the configuration is in its log. Since
    /// feature level [`EXTENSIONS`](crate::level::EXTENSIONS).
    Timing(Timing),
    /// Sets the protocol of the whole cluster; every member goes by it as soon as the configuration is in its log. Since
    /// feature level [`NB_RAFT`](crate::level::NB_RAFT).
    Protocol(Protocol),
}

/// The outcome of a request. [architecture §5]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Final.
    Done(Reply),
    /// A quorum has received the command as this entry, in memory. It is not final: another outcome follows. Nothing of it
    /// is promised: the command may still be lost. [fault-model WK2]
    Received(EntryId),
    /// Certainly without effect, now and later.
    Refused(Refusal),
    /// It may have had an effect, or may still have one.
    Unknown(Doubt),
}

impl Outcome {
    /// Whether no other outcome of the request follows.
    #[must_use]
    pub fn is_final(&self) -> bool {
        match self {
            Outcome::Done(_) | Outcome::Refused(_) | Outcome::Unknown(_) => true,
            Outcome::Received(_) => false,
        }
    }
}

/// A final answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// This replica's term when it answered.
    pub term: Term,
    /// Of a command in a session: all commands of the session up to this number are executed. Otherwise 0.
    pub strong: u64,
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
    /// What a [`Request::LookUp`] has found.
    Found(Found),
    /// The table of members.
    Members(Members),
    /// The status of this replica.
    Status(Box<Status>),
    /// The change of members is complete: all members after it, ascending by id.
    Changed(Vec<MemberInfo>),
    /// The requested member leads.
    Moved,
    /// All tables as of one moment.
    Pinned(Box<Frozen>),
    /// The alarm that was raised or cleared; none if there was nothing to clear.
    Alarmed(Option<Alarm>),
    /// Published.
    Published,
    /// The command is committed; its result was not wanted.
    Committed,
    /// The session is registered.
    Registered {
        /// Its name.
        id: SessionId,
        /// How long it lasts without a command or a sign of life.
        idle: Duration,
    },
    /// A command about a session has had no effect; final all the same.
    SessionError(SessionError),
    /// Sessions were kept alive or closed.
    Named {
        /// Those that are not there.
        gone: Vec<SessionId>,
        /// How long a session lasts without a command or a sign of life.
        idle: Duration,
    },
    /// All sessions have these settings.
    SessionsSet,
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
    /// The cluster has not reached the feature level of this request: a member's version may be older.
    LevelTooLow,
    /// A weak answer was asked for, and the cluster gives none.
    NotWeak,
    /// A later leader has overwritten the entry.
    Overwritten,
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
    /// The cluster's feature level is below that of the change: a member's version may be older.
    LevelTooLow,
    /// The timing breaks a rule of the protocol.
    BadTiming,
    /// A parameter of the protocol is out of its range.
    BadProtocol,
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
            MemberRefusal::LevelTooLow => {
                "the cluster has not reached the feature level of this change yet: run this version on all members"
            }
            MemberRefusal::BadTiming => {
                "the election timeout must be at least three heartbeat intervals, and at most 50 s"
            }
            MemberRefusal::BadProtocol => "a window and a budget have at most 1,000,000 entries and 1 GiB, and both entries and bytes or none",
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
