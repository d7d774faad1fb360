//! What happened, as data: log lines, counters, script output and coverage marks are all read from here.
//!
//! Knows nothing of: how it is shown.

use crate::types::{Duration, EntryId, LogIndex, NodeId, Term};

/// One thing worth telling.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Trace {
    /// The term moved.
    Term(Term),
    /// This peer became leader of the term.
    BecameLeader(Term),
    /// This peer follows a (possibly unknown) leader.
    BecameFollower {
        /// In this term.
        term: Term,
        /// Whom, if known.
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
    /// The leader's end of the link was closed: this voter asks others soon.
    Suspects(NodeId),
    /// This leader hands over.
    TransferBegan(NodeId),
    /// It came to nothing; this leader goes on.
    TransferFailed(NodeId),
    /// This leader's disk has been slow for long, another voter's is not: it hands over to that. [fault-model F17]
    SlowDisk {
        /// What this one's last write took.
        own: Duration,
        /// Who has the fastest disk of those that could take over.
        fastest: NodeId,
        /// What that says of its last write.
        its: Duration,
    },
    /// This leader has leases, and a peer does not promise what they need: its answers count for none. Told when that is
    /// news. [replication-protocols L-3]
    LeaderLeaseDenied {
        /// Whose.
        peer: NodeId,
        /// What it promises: zero without leases, else its election timeout, which is shorter than the leader's.
        vote_hold: Duration,
    },
    /// A voter's clock and this leader's run apart by more than leases trust: one of the two is wrong. This leader has no
    /// lease for the rest of its term. Told once for each voter. [fault-model F42]
    ClocksApart {
        /// Whose.
        peer: NodeId,
        /// By how many millionths at least it gains on the leader's; loses, if negative.
        gains: i32,
    },
    /// A voter that came back is far behind and does not gain on what clients propose: they are slowed. [fault-model F51]
    SlowsClients {
        /// Who.
        peer: NodeId,
        /// Entries that it lacks.
        behind: u64,
    },
    /// It does not gain although clients are slowed, or they never are. [fault-model F51]
    FallsBehind {
        /// Who.
        peer: NodeId,
        /// Entries that it lacks.
        behind: u64,
    },
    /// A peer's log is shorter than what it had acknowledged to this leader: its disk has lost something. It gets that
    /// again. [fault-model ST14]
    LostMatch {
        /// Whose.
        peer: NodeId,
        /// What it had acknowledged.
        matched: LogIndex,
        /// Where its log ends now, or what it lacks begins.
        last: LogIndex,
    },
    /// It has asked the other voters what it has promised, and takes part from here on.
    TakesPart {
        /// Those that did not answer in time.
        unasked: usize,
    },
    /// This member's own log is shorter than what it had acknowledged to its leader, who says so: its disk has lost
    /// something that nothing on it tells of. [fault-model F18, F19]
    ToldOfLoss {
        /// What it had acknowledged: its floor now.
        vote_floor: EntryId,
        /// Where its log ends.
        last: EntryId,
    },
}
