//! Members as clients see them, and the replicated table of them.
//!
//! Knows nothing of: votes, changes under way.

use alloc::string::String;
use alloc::vec::Vec;
use kattu_raft::{LogIndex, NodeId};

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
