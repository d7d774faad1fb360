//! Names: places and transitions of the net, as section 13 of `docs/replication-protocols.md` calls them.
//!
//! Knows nothing of: arcs.

/// A place. `[c]` is one for each client, `[f]` one for each follower.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Place {
    /// Client c may issue a request.
    Ack,
    /// Generated, not sent.
    ClientReq,
    /// Requests on the way to the leader.
    NetCl,
    /// Replies on the way to clients.
    NetLc,
    /// Requests of client c that were answered weakly and are not committed.
    OpList,
    /// The leader's term as client c knows it.
    LTerm,
    /// Requests that the leader has received.
    ReqPool,
    /// Requests that wait for the index lock.
    Parsed,
    /// The index lock; its token holds the next index.
    IdxLock,
    /// Entries in the leader's log.
    LeaderLog,
    /// Entries for follower f, first in, first out.
    Queue,
    /// Idle dispatchers of follower f.
    Disp,
    /// Vote list: entries that are not committed, with those that have received and appended them.
    Vl,
    /// Entries that are committed and not applied, in order.
    Committed,
    /// Entries that are applied and not answered.
    Applied,
    /// Idle apply threads.
    Applier,
    /// Entries on the way to follower f.
    NetLf,
    /// Entries that an appender of follower f holds.
    Pending,
    /// The log of follower f; its token holds the last index.
    FLog,
    /// The sliding window of follower f.
    Win,
    /// Answers of follower f on the way.
    NetAck,
    /// Idle cores of the leader.
    CpuL,
    /// Idle cores of follower f.
    CpuF,
    /// Entries that are not in the leader's own log on disk, where that log is modelled apart from `Index`.
    Unsynced,
    /// The leader's own log; its token holds the last index on disk.
    LLog,
}

/// How many instances a place has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One.
    One,
    /// One for each client.
    Client,
    /// One for each follower.
    Follower,
}

/// Colour of a part of the net.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Raft's: black.
    Raft,
    /// Only in NB-Raft: red.
    NonBlocking,
    /// The waiting loop: blue.
    Waiting,
}

impl Place {
    /// Every place, in the order that decides ties.
    pub const ALL: [Place; 25] = [
        Place::Ack,
        Place::ClientReq,
        Place::NetCl,
        Place::NetLc,
        Place::OpList,
        Place::LTerm,
        Place::ReqPool,
        Place::Parsed,
        Place::IdxLock,
        Place::LeaderLog,
        Place::Queue,
        Place::Disp,
        Place::Vl,
        Place::Committed,
        Place::Applied,
        Place::Applier,
        Place::NetLf,
        Place::Pending,
        Place::FLog,
        Place::Win,
        Place::NetAck,
        Place::CpuL,
        Place::CpuF,
        Place::Unsynced,
        Place::LLog,
    ];

    /// Its name in section 13.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Place::Ack => "ACK[c]",
            Place::ClientReq => "ClientReq",
            Place::NetCl => "NetCL",
            Place::NetLc => "NetLC",
            Place::OpList => "OpList[c]",
            Place::LTerm => "LTerm[c]",
            Place::ReqPool => "ReqPool",
            Place::Parsed => "Parsed",
            Place::IdxLock => "IdxLock",
            Place::LeaderLog => "LeaderLog",
            Place::Queue => "Queue[f]",
            Place::Disp => "Disp[f]",
            Place::Vl => "VL[idx]",
            Place::Committed => "Committed",
            Place::Applied => "Applied",
            Place::Applier => "Applier",
            Place::NetLf => "NetLF[f]",
            Place::Pending => "Pending[f]",
            Place::FLog => "FLog[f]",
            Place::Win => "Win[f]",
            Place::NetAck => "NetAck[f]",
            Place::CpuL => "CPU_L",
            Place::CpuF => "CPU_F[f]",
            Place::Unsynced => "Unsynced",
            Place::LLog => "LLog",
        }
    }

    /// How many instances it has. `VL[idx]` is one place, whose tokens have indexes.
    #[must_use]
    pub fn scope(self) -> Scope {
        match self {
            Place::Ack | Place::OpList | Place::LTerm => Scope::Client,
            Place::Queue
            | Place::Disp
            | Place::NetLf
            | Place::Pending
            | Place::FLog
            | Place::Win
            | Place::NetAck
            | Place::CpuF => Scope::Follower,
            _ => Scope::One,
        }
    }

    /// Its colour.
    #[must_use]
    pub fn class(self) -> Class {
        match self {
            Place::OpList | Place::LTerm | Place::Win => Class::NonBlocking,
            _ => Class::Raft,
        }
    }

    /// Whether tokens never leave it, so that it has no time of stay.
    #[must_use]
    pub fn is_sink(self) -> bool {
        self == Place::LeaderLog
    }

    pub(crate) const fn bit(self) -> u32 {
        1 << self as u8
    }
}

/// A transition.
///
/// A row `A → B → C` of section 13 is two transitions here: one puts the token on the way, one takes it from there
/// (`ArriveReq`, `ArriveReply`, `ArriveWeak`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Transition {
    /// A client makes a request.
    Generate,
    /// The request is put on the way.
    SendReq,
    /// The request reaches the leader.
    ArriveReq,
    /// The leader parses the request.
    Parse,
    /// The request gets an index, and is in the leader's log.
    Index,
    /// A dispatcher takes an entry.
    Dequeue,
    /// The entry reaches a follower.
    SendLog,
    /// The entry follows the follower's log and is appended.
    Append,
    /// The entry is too early, and its appender waits.
    NotYet,
    /// The entry is too early, and is kept in the window.
    EnterWin,
    /// The entry in the window follows the log and is appended.
    Flush,
    /// The answer reaches the leader.
    Collect,
    /// A quorum has the entry, and its predecessor is committed.
    Commit,
    /// The entry is applied.
    Apply,
    /// The strong reply is put on the way, unless the client has a weak one.
    Reply,
    /// The strong reply reaches the client.
    ArriveReply,
    /// The weak reply is put on the way.
    EarlyReturn,
    /// The weak reply reaches the client.
    ArriveWeak,
    /// The client learns that a request answered weakly is committed.
    StrongNote,
    /// The leader ends, and what only it had is gone.
    Fail,
    /// A follower is elected.
    Elect,
    /// A client sends a request again that was answered weakly.
    Retry,
    /// The leader's own log takes entries, and the leader counts itself for them.
    Persist,
}

impl Transition {
    /// Every transition.
    pub const ALL: [Transition; 23] = [
        Transition::Generate,
        Transition::SendReq,
        Transition::ArriveReq,
        Transition::Parse,
        Transition::Index,
        Transition::Dequeue,
        Transition::SendLog,
        Transition::Append,
        Transition::NotYet,
        Transition::EnterWin,
        Transition::Flush,
        Transition::Collect,
        Transition::Commit,
        Transition::Apply,
        Transition::Reply,
        Transition::ArriveReply,
        Transition::EarlyReturn,
        Transition::ArriveWeak,
        Transition::StrongNote,
        Transition::Fail,
        Transition::Elect,
        Transition::Retry,
        Transition::Persist,
    ];
}
