//! The API of a running replica, for faces and tools.
//!
//! Cloning is cheap. A call enters the replica's bounded inbox and returns its outcome; other arrivals before the
//! replica looks join the same batch.
//! Knows nothing of: etcd's messages, HTTP.

use crate::asked::{Asked, Reply};
use crate::clock;
use crate::mailbox::Mailbox;
use crate::metrics::Metrics;
use kattu_member::tuning::{Setting, Tuning};
use kattu_node::contract::{Consistency, Outcome, Refusal, Request};
use kattu_raft::{Duration, LogIndex, NodeId, Term};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{mpsc, oneshot};

/// Bytes of writes that may wait in front of a replica: faces on threads of their own may be far ahead of it.
const INBOX_BYTES_MAX: usize = 256 << 20;

/// Pause between two checks whether another member leads.
const TRANSFER_PAUSE: Duration = Duration::from_millis(1);

/// One call on its way in: a request and where its outcome goes, or a transfer and where to report whether it has begun.
pub(crate) type Call = kattu_member::host::Call<Reply, Asker>;

/// A caller that waits for something else than an outcome.
#[derive(Debug)]
pub(crate) enum Asker {
    /// Whether a transfer has begun.
    Transfer(oneshot::Sender<bool>),
    /// The tuning, or why it was not changed.
    Tune(oneshot::Sender<Result<Tuning, &'static str>>),
}

/// Facts that can be read without asking the replica. Each is one atomic; two may be of different moments.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) term: AtomicU64,
    /// 0 for none.
    pub(crate) leader: AtomicU64,
    /// At or behind everything that was answered; it never moves back.
    pub(crate) committed: AtomicU64,
    /// Whether another member may have this member's data.
    pub(crate) has_peers: AtomicBool,
    /// Bytes of writes that wait in front of the replica.
    pub(crate) inbox_bytes: AtomicUsize,
    /// Whether the next write, or read, is to be stamped.
    pub(crate) wants_write: AtomicBool,
    pub(crate) wants_read: AtomicBool,
    /// A client URL of each member that has published one. Read when a request is refused, not on the way of one.
    pub(crate) client_urls: Mutex<BTreeMap<NodeId, String>>,
}

impl Facts {
    /// The replica has taken a request in.
    pub(crate) fn taken_in(&self, request: &Request) {
        if let Some(command) = request.command() {
            self.inbox_bytes.fetch_sub(command.len(), Ordering::Relaxed);
        }
    }

    /// Whether the next request of this kind is to be followed.
    fn wants_stamp(&self, request: &Request) -> bool {
        let wants = match request {
            Request::Write(_) | Request::CommitOnly(_) | Request::Weak(_) => &self.wants_write,
            Request::Read(_, Consistency::Linearizable) | Request::LookUp(_, Consistency::Linearizable) => {
                &self.wants_read
            }
            _ => return false,
        };
        // The load costs nothing while nobody asks; a stamp too many is not followed.
        wants.load(Ordering::Relaxed) && wants.swap(false, Ordering::Relaxed)
    }

    /// A request is about to wait; returns whether there is room for it.
    fn enter(&self, request: &Request) -> bool {
        let Some(bytes) = request.command().map(<[u8]>::len) else { return true };
        let before = self.inbox_bytes.fetch_add(bytes, Ordering::Relaxed);
        // One always passes.
        if 0 < before && INBOX_BYTES_MAX < before + bytes {
            self.inbox_bytes.fetch_sub(bytes, Ordering::Relaxed);
            return false;
        }
        true
    }
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

    /// Sends a request to the replica; resolves to its outcome. Dropping it abandons the answer, and the request if the
    /// replica has not begun it.
    pub fn call(&self, request: Request) -> Asked {
        let is_write = matches!(
            request,
            Request::Write(_)
                | Request::CommitOnly(_)
                | Request::Weak(_)
                | Request::Weigh(..)
                | Request::Change(_)
                | Request::MoveLeader(_)
        );
        let (reply, asked) = Asked::new(is_write);
        match self.send(reply, request) {
            Ok(()) => asked,
            Err(refusal) => Asked::told(Outcome::Refused(refusal)),
        }
    }

    /// Sends a request to the replica; its outcome goes to this mailbox, under this key. If the request is refused at
    /// once, nothing goes there.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn post(&self, request: Request, mailbox: &Arc<Mailbox>, key: u64) -> Result<(), Refusal> {
        self.send(Reply::to(mailbox, key), request)
    }

    fn send(&self, mut reply: Reply, request: Request) -> Result<(), Refusal> {
        if self.facts.wants_stamp(&request) {
            reply.stamp(clock::now());
        }
        if !self.facts.enter(&request) {
            return Err(self.too_many(reply));
        }
        match self.inbox.try_send(Call::Ask(reply, request)) {
            Ok(()) => Ok(()),
            Err(mpsc::error::TrySendError::Full(Call::Ask(reply, request))) => {
                self.facts.taken_in(&request);
                Err(self.too_many(reply))
            }
            Err(mpsc::error::TrySendError::Closed(Call::Ask(reply, _))) => {
                reply.forget();
                Err(Refusal::Stopping)
            }
            Err(_) => unreachable!("what comes back is what was sent"),
        }
    }

    fn too_many(&self, reply: Reply) -> Refusal {
        reply.forget();
        self.metrics.failed.add(1);
        Refusal::TooManyRequests
    }

    /// If this replica leads, transfers leadership to the best target and returns the new leader; `None` after
    /// `patience`, and at once if it does not lead or is alone. For a member that is about to stop: the others then
    /// need not wait for an election timeout.
    pub async fn transfer(&self, patience: Duration) -> Option<NodeId> {
        let until = tokio::time::Instant::now() + patience;
        let (told, tell) = oneshot::channel();
        if self.inbox.try_send(Call::Transfer(Asker::Transfer(told))).is_err() {
            return None; // too busy, or gone: an election will do
        }
        let begun = tokio::time::timeout_at(until, tell).await;
        if !matches!(begun, Ok(Ok(true))) {
            return None;
        }
        while tokio::time::Instant::now() < until {
            if let Some(leader) = self.leader().filter(|&leader| leader != self.member_id) {
                return Some(leader);
            }
            tokio::time::sleep(TRANSFER_PAUSE).await;
        }
        None
    }

    /// Has this member go by these settings from now on, or by none of them, and returns its tuning then. Without settings, the
    /// tuning as it is.
    ///
    /// # Errors
    /// The rule that the settings break, or why the member does not take them.
    pub async fn tune(&self, settings: Vec<Setting>) -> Result<Tuning, &'static str> {
        let (told, tell) = oneshot::channel();
        let call = Call::Tune(settings, Asker::Tune(told));
        self.inbox.try_send(call).map_err(|_| "this member is too busy, or stopping: try again")?;
        tell.await.map_err(|_| "this member is stopping")?
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

    /// A URL at which this member answers clients, if it has published one.
    #[must_use]
    pub fn client_url(&self, member: NodeId) -> Option<String> {
        self.facts.client_urls.lock().unwrap_or_else(PoisonError::into_inner).get(&member).cloned()
    }

    /// This replica's current term.
    #[must_use]
    pub fn term(&self) -> Term {
        Term(self.facts.term.load(Ordering::Relaxed))
    }

    /// A committed position of the log, at or behind everything that this replica has answered so far.
    #[must_use]
    pub fn committed(&self) -> LogIndex {
        LogIndex(self.facts.committed.load(Ordering::Acquire))
    }

    /// Whether another member may have this member's data, so that damage to its log can be repaired. [fault-model ST7]
    #[must_use]
    pub fn has_peers(&self) -> bool {
        self.facts.has_peers.load(Ordering::Relaxed)
    }

    /// The metrics of this replica.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_wait_up_to_so_many_bytes_and_what_is_refused_is_not_counted() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let (sender, mut inbox) = mpsc::channel(8);
        let facts = Arc::new(Facts::default());
        let engine = Engine::new(sender, Arc::clone(&facts), Arc::default(), 1, NodeId(1));
        let waiting = |engine: &Engine, bytes: usize| {
            let engine = engine.clone();
            async move { engine.call(Request::Write(vec![0; bytes].into())).await }
        };
        runtime.block_on(async {
            let local = tokio::task::LocalSet::new();
            let too_many = Outcome::Refused(Refusal::TooManyRequests);
            let first = local.spawn_local(waiting(&engine, INBOX_BYTES_MAX - 10));
            let second = local.spawn_local(waiting(&engine, 10));
            let third = local.spawn_local(waiting(&engine, 1));
            local.run_until(async { assert_eq!(third.await.expect("it ends"), too_many) }).await;
            assert_eq!(engine.metrics().failed.get(), 1);
            assert_eq!(facts.inbox_bytes.load(Ordering::Relaxed), INBOX_BYTES_MAX);
            let Some(Call::Ask(_reply, request)) = inbox.recv().await else { panic!("the first one waits") };
            facts.taken_in(&request);
            assert_eq!(facts.inbox_bytes.load(Ordering::Relaxed), 10);
            assert!(!first.is_finished() && !second.is_finished());
            let others: Vec<_> = (0..8).map(|_| local.spawn_local(waiting(&engine, 1))).collect();
            local.run_until(tokio::task::yield_now()).await;
            assert_eq!(others.iter().filter(|other| other.is_finished()).count(), 1, "eight places");
            assert_eq!(engine.metrics().failed.get(), 2, "refusals are counted");
            assert_eq!(facts.inbox_bytes.load(Ordering::Relaxed), 17);
        });
    }
}
