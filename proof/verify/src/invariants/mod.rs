//! Invariants of the protocol: ghost state of a cluster, fed with everything that its members do.
//!
//! Whoever drives a cluster tells it, in this order: a member (re)started; after each handled event, what this very
//! event emitted; a disk completed records (before the member itself is told); a crash; an entry was applied; a digest
//! was taken. Costs per call are proportional to what is new, never to the length of a log.
//! Knows nothing of: time, networks, clients.

use kattu_node::contract::Effects;
use kattu_raft::{Entry, LogIndex, Lsn, NodeId, Raft, Recovered};

pub use crate::judges::Violation;

type Checked = Result<(), Violation>;

/// The ghost state.
#[derive(Clone, Debug)]
pub struct Invariants {
    voters: Vec<NodeId>,
}

impl Invariants {
    /// Of a cluster with these voters; learners need not be named. No member has started yet.
    #[must_use]
    pub fn new(voters: &[NodeId]) -> Invariants {
        Invariants { voters: voters.to_vec() }
    }

    /// A member starts from what its log gave back; also at its very first start (then with an empty `recovered`).
    ///
    /// # Errors
    /// The first invariant that does not hold; so with all that follow.
    pub fn restarted(&mut self, member: NodeId, recovered: &Recovered) -> Checked {
        let _ = (member, recovered, &self.voters);
        Ok(())
    }

    /// A member handled one event; `effects` holds what this event emitted and nothing older.
    pub fn stepped(&mut self, member: NodeId, raft: &Raft, effects: &Effects) -> Checked {
        let _ = (member, raft, effects);
        Ok(())
    }

    /// A member's disk holds all records up to this one for good. Told no later than the member is.
    pub fn durable(&mut self, member: NodeId, lsn: Lsn) -> Checked {
        let _ = (member, lsn);
        Ok(())
    }

    /// A member's process ended; what was not durable may or may not be there at its next start.
    pub fn crashed(&mut self, member: NodeId) -> Checked {
        let _ = member;
        Ok(())
    }

    /// A member lost its data directory: it counts as one that never was, and may break what rests on its memory.
    pub fn wiped(&mut self, member: NodeId) {
        let _ = member;
    }

    /// A member's store applied an entry.
    pub fn applied(&mut self, member: NodeId, entry: &Entry) -> Checked {
        let _ = (member, entry);
        Ok(())
    }

    /// A member's store, having applied everything up to here, has this digest.
    pub fn digest(&mut self, member: NodeId, index: LogIndex, digest: u64) -> Checked {
        let _ = (member, index, digest);
        Ok(())
    }

    /// Looks at everything of the members that run: dear, for now and then.
    pub fn whole(&self, members: &[(NodeId, &Raft)]) -> Checked {
        let _ = members;
        Ok(())
    }
}
