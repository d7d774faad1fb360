//! Trace: what happened, as data. Log lines, counters, script output and coverage marks are all read from it.
//!
//! Knows nothing of: log lines, counters.

use crate::types::{Duration, EntryId, LogIndex, NodeId, Term};

/// One event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Trace {
    /// The term moved.
    Term(Term),
    /// This peer became leader of the term.
    BecameLeader(Term),
    /// This peer follows a (possibly unknown) leader.
    BecameFollower {
        /// The term.
        term: Term,
        /// The leader, if known.
        leader: Option<NodeId>,
    },
    /// This peer asks whether a campaign would succeed.
    BecamePreCandidate(Term),
    /// This peer campaigns.
    BecameCandidate(Term),
    /// The commit index moved.
    Committed(LogIndex),
    /// Own entries from this position on were overwritten by a leader.
    Truncated(EntryId),
    /// The entries up to this position left the log: a snapshot covers them.
    Pruned(EntryId),
    /// The log begins anew after this position: a leader's snapshot covers everything up to it.
    Installs(EntryId),
    /// Another configuration is in force: the one at this index.
    Configured(LogIndex),
    /// The leader's end of the link was closed: this voter starts a pre-vote soon.
    Suspects(NodeId),
    /// This leader begins a leadership transfer to this voter.
    TransferBegan(NodeId),
    /// The transfer to this voter failed; this leader goes on.
    TransferFailed(NodeId),
    /// This leader's disk has been slow for long, another voter's is not: leadership is transferred to it. The replica
    /// above this peer decides that. [fault-model F17]
    SlowDisk {
        /// Duration of this leader's last write.
        own: Duration,
        /// The voter with the fastest disk among the eligible ones.
        fastest: NodeId,
        /// Duration of that voter's last write.
        its: Duration,
    },
    /// This leader uses leader leases, and a peer does not grant the vote hold that they need: its answers do not count
    /// for the lease. Emitted when that is new. [replication-protocols L-3]
    LeaderLeaseDenied {
        /// The peer.
        peer: NodeId,
        /// The vote hold it grants: zero without leases, else its election timeout, which is shorter than the leader's.
        vote_hold: Duration,
    },
    /// A voter's clock and this leader's run apart by more than leader leases allow: one of the two is wrong. This
    /// leader has no lease for the rest of its term. Emitted once for each voter. [fault-model F42]
    ClocksApart {
        /// The voter.
        peer: NodeId,
        /// By how many millionths at least it gains on the leader's; loses, if negative.
        gains: i32,
    },
    /// A voter that came back is far behind and does not catch up with the clients' writes: clients are slowed.
    /// [fault-model F51]
    SlowsClients {
        /// The voter.
        peer: NodeId,
        /// Entries that it lacks.
        behind: u64,
    },
    /// The voter does not catch up although clients are slowed, or clients are never slowed. [fault-model F51]
    FallsBehind {
        /// The voter.
        peer: NodeId,
        /// Entries that it lacks.
        behind: u64,
    },
    /// A peer's log is shorter than what it had acknowledged to this leader: its disk has lost entries, which are sent
    /// again. [fault-model ST14]
    LostMatch {
        /// The peer.
        peer: NodeId,
        /// The highest index it had acknowledged.
        matched: LogIndex,
        /// The end of its log now, or the index before the one it lacks, if that is lower.
        last: LogIndex,
    },
    /// So many appends of the leader were dropped: they waited for payloads that were not read in time, or too much
    /// waited. [`crate::compute`]
    DroppedUnread(usize),
    /// Entries that this follower had kept after a gap joined its log. (`window`)
    GapClosed {
        /// Index of the first one.
        first: LogIndex,
        /// Index of the last one.
        last: LogIndex,
    },
    /// This leader sent a peer the entries of a gap again. (`flow`)
    GapSentAgain {
        /// The peer.
        peer: NodeId,
        /// Index of the first one.
        first: LogIndex,
        /// Index of the last one.
        last: LogIndex,
    },
    /// This member takes part from here on, after it has asked the other voters for its state before the start.
    TakesPart {
        /// How many voters did not answer in time.
        unasked: usize,
    },
    /// The leader reports that this member's own log is shorter than what it had acknowledged: its disk has lost
    /// entries and shows no trace of the loss. [fault-model F18, F19]
    ToldOfLoss {
        /// The position it had acknowledged: its vote floor now.
        vote_floor: EntryId,
        /// The end of its log.
        last: EntryId,
    },
}
