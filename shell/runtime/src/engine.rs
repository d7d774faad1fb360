//! The door to a running replica: what faces and tools call.
//!
//! Cloning is cheap. A call enters the replica's bounded inbox and comes back with its outcome; whatever else arrives
//! before the replica looks joins the same batch.
//! Knows nothing of: etcd's messages, HTTP.

use crate::metrics::Metrics;
use kattu_node::contract::{Doubt, Outcome, Refusal, Request};
use kattu_raft::{NodeId, Term};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{mpsc, oneshot};

/// Requests that may wait in front of a replica. Beyond it callers are told to slow down at once.
pub(crate) const INBOX_MAX: usize = 1 << 16;

/// One call on its way in.
pub(crate) struct Call {
    pub(crate) request: Request,
    pub(crate) reply: oneshot::Sender<Outcome>,
}

/// What everybody may look at without asking the replica. Each fact is one atomic; two may be of different moments.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) term: AtomicU64,
    /// 0 for nobody.
    pub(crate) leader: AtomicU64,
}

/// A running replica.
#[derive(Clone)]
pub struct Engine {
    inbox: mpsc::Sender<Call>,
    facts: Arc<Facts>,
    metrics: Arc<Metrics>,
    cluster_id: u64,
    member_id: NodeId,
}

impl Engine {
    pub(crate) fn new(
        inbox: mpsc::Sender<Call>,
        facts: Arc<Facts>,
        metrics: Arc<Metrics>,
        cluster_id: u64,
        member_id: NodeId,
    ) -> Engine {
        Engine { inbox, facts, metrics, cluster_id, member_id }
    }

    /// Asks the replica; comes back when it has answered. Dropping the future abandons the answer, not the request.
    pub async fn call(&self, request: Request) -> Outcome {
        let is_write = matches!(request, Request::Write(_));
        let (reply, answer) = oneshot::channel();
        match self.inbox.try_send(Call { request, reply }) {
            Err(mpsc::error::TrySendError::Full(_)) => Outcome::Refused(Refusal::TooManyRequests),
            Err(mpsc::error::TrySendError::Closed(_)) => Outcome::Refused(Refusal::Stopping),
            Ok(()) => answer.await.unwrap_or(if is_write {
                Outcome::Unknown(Doubt::Stopping)
            } else {
                Outcome::Refused(Refusal::Stopping)
            }),
        }
    }

    /// Identity of the cluster; shown in every answer.
    #[must_use]
    pub fn cluster_id(&self) -> u64 {
        self.cluster_id
    }

    /// This member.
    #[must_use]
    pub fn member_id(&self) -> NodeId {
        self.member_id
    }

    /// The leader this replica follows right now, if any (itself when it leads).
    #[must_use]
    pub fn leader(&self) -> Option<NodeId> {
        match self.facts.leader.load(Ordering::Relaxed) {
            0 => None,
            id => Some(NodeId(id)),
        }
    }

    /// This replica's current term.
    #[must_use]
    pub fn term(&self) -> Term {
        Term(self.facts.term.load(Ordering::Relaxed))
    }

    /// What this replica counts.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }
}
