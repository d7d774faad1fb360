//! The door to a running replica: what faces and tools call.
//!
//! Cloning is cheap. A call enters the replica's bounded inbox and comes back with its outcome.
//! Knows nothing of: etcd's messages, HTTP.

use kattu_node::contract::{Outcome, Request};
use kattu_raft::{NodeId, Term};

/// A running replica.
#[derive(Clone)]
pub struct Engine {}

impl Engine {
    /// Asks the replica; comes back when it has answered. Dropping the future abandons the answer, not the request.
    pub async fn call(&self, request: Request) -> Outcome {
        let _ = request;
        todo!()
    }

    /// Identity of the cluster; shown in every answer.
    #[must_use]
    pub fn cluster_id(&self) -> u64 {
        todo!()
    }

    /// This member.
    #[must_use]
    pub fn member_id(&self) -> NodeId {
        todo!()
    }

    /// The leader this replica follows right now, if any (itself when it leads).
    #[must_use]
    pub fn leader(&self) -> Option<NodeId> {
        todo!()
    }

    /// This replica's current term.
    #[must_use]
    pub fn term(&self) -> Term {
        todo!()
    }
}
