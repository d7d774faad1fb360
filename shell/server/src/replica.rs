//! Replica: the trait through which a face uses a replica, requests in, outcomes out, without a transport.
//!
//! The engine of `kattu-runtime` is one; a store behind a lock is another, good enough for tests of every face.
//! Knows nothing of: etcd's messages, HTTP, threads.

use kattu_node::contract::{Outcome, Request};
use kattu_raft::{LogIndex, NodeId, Term};
use kattu_runtime::metrics::Metrics;
use kattu_runtime::tuning::{Setting, Tuning};
use kattu_runtime::{Behind, Engine, Mailbox};
use std::future::Future;
use std::sync::Arc;

/// One replica, as a face sees it. Cloning is cheap.
pub trait Replica: Clone + Send + Sync + 'static {
    /// Sends a request to the replica; resolves to its outcome.
    fn ask(&self, request: Request) -> impl Asked;

    /// Sends a request to the replica; its outcome goes to this mailbox, under this key, unless it is there at once: then it
    /// is returned.
    fn post(&self, request: Request, mailbox: &Arc<Mailbox>, key: u64) -> Option<Outcome> {
        let (replica, mailbox) = (self.clone(), Arc::clone(mailbox));
        tokio::task::spawn_local(async move {
            let outcome = replica.ask(request).await;
            mailbox.deliver(key, Some(outcome));
        });
        None
    }

    /// A URL at which this member answers clients, if it is known.
    fn client_url(&self, member: NodeId) -> Option<String> {
        let _ = member;
        None
    }

    /// Identity of the cluster; shown in every response.
    fn cluster_id(&self) -> u64;

    /// This member.
    fn member_id(&self) -> NodeId;

    /// The leader this replica follows right now, if any (itself when it leads).
    fn leader(&self) -> Option<NodeId>;

    /// This replica's current term.
    fn term(&self) -> Term;

    /// A committed log index, at or after everything that has been answered so far.
    fn committed(&self) -> LogIndex;

    /// The least quota of all members, in bytes, as far as it is known.
    fn ruling_quota(&self) -> Option<u64> {
        self.metrics().map(|metrics| metrics.quota_bytes.get()).filter(|&quota| quota != 0)
    }

    /// Has the member go by these settings, or by none of them; its tuning then.
    fn tune(&self, settings: Vec<Setting>) -> impl Future<Output = Result<Tuning, &'static str>> + Send {
        drop(settings);
        std::future::ready(Err("this replica cannot be tuned"))
    }

    /// The replica's metrics, if it has any.
    fn metrics(&self) -> Option<&Metrics> {
        None
    }
}

/// A request under way: resolves to its outcome. Dropping it abandons the outcome, and perhaps the request.
pub trait Asked: Future<Output = Outcome> + Send + Unpin {
    /// The caller goes. `behind` is dropped when the replica is done with the request.
    fn leave(self, behind: Behind);
}

impl Asked for kattu_runtime::Asked {
    fn leave(self, behind: Behind) {
        self.leave(behind);
    }
}

/// A replica that answers at once has no request to keep `behind` for.
impl Asked for std::future::Ready<Outcome> {
    fn leave(self, _behind: Behind) {}
}

impl Replica for Engine {
    fn ask(&self, request: Request) -> impl Asked {
        self.call(request)
    }

    fn post(&self, request: Request, mailbox: &Arc<Mailbox>, key: u64) -> Option<Outcome> {
        Engine::post(self, request, mailbox, key).err().map(Outcome::Refused)
    }

    fn client_url(&self, member: NodeId) -> Option<String> {
        Engine::client_url(self, member)
    }

    fn cluster_id(&self) -> u64 {
        Engine::cluster_id(self)
    }

    fn member_id(&self) -> NodeId {
        Engine::member_id(self)
    }

    fn leader(&self) -> Option<NodeId> {
        Engine::leader(self)
    }

    fn term(&self) -> Term {
        Engine::term(self)
    }

    fn committed(&self) -> LogIndex {
        Engine::committed(self)
    }

    async fn tune(&self, settings: Vec<Setting>) -> Result<Tuning, &'static str> {
        Engine::tune(self, settings).await
    }

    fn metrics(&self) -> Option<&Metrics> {
        Some(Engine::metrics(self))
    }
}
