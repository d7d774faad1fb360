//! What happened, as data: log lines, counters, script output and coverage marks are all read from here.
//!
//! Knows nothing of: how it is shown.

use crate::types::{EntryId, LogIndex, NodeId, Term};

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
    /// A peer's log is shorter than what it had acknowledged to this leader: its disk has lost something. It gets that
    /// again. [fault-model ST14]
    LostMatch {
        /// Whose.
        peer: NodeId,
        /// What it had acknowledged.
        matched: LogIndex,
        /// Where its log ends now.
        last: LogIndex,
    },
}
