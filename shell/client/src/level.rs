//! Level: how fresh reads must be, call by call.
//!
//! ```text
//!  Linearizable   sees every write that was answered before the read began
//!  Bounded(age)   sees every write that was answered longer ago than that
//!  AtLeast(seen)  sees everything that its client has seen or done, on whichever member
//!  Serializable   sees some state that existed, never going back on one member
//! ```
//! The level travels as metadata (`kattu-consistency`). A server that does not know it, such as etcd, serves `Bounded`
//! and `AtLeast` linearizably, so that every guarantee holds there, too; `Serializable` is in etcd's own request.
//!
//! What a client has seen is one number: the highest position of the log that any of its answers came with
//! (`kattu-index`). It belongs to one cluster; a cluster that was restored from a backup is another one.
//! Knows nothing of: endpoints, retries.

use kattu_proto::etcdserverpb as pb;
use pb::request_op::Request as Operation;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tonic::Request;
use tonic::metadata::{MetadataMap, MetadataValue};

/// The metadata key of a call's level.
const CONSISTENCY: &str = "kattu-consistency";
/// The metadata key of an answer's position.
const INDEX: &str = "kattu-index";

/// The freshness that a client requires of its reads.
#[derive(Clone, Debug, Default)]
pub enum Level {
    /// As the cluster is configured: linearizable unless it was set otherwise.
    #[default]
    Configured,
    /// Sees every write that was answered before the read began.
    Linearizable,
    /// Sees some state that existed, never going back on one member. The cheapest one, and the only one that a member
    /// without a leader serves.
    Serializable,
    /// Sees every write that was answered longer ago than this.
    Bounded(Duration),
    /// Sees everything up to the highest position that was seen: what its client has seen or done.
    AtLeast(Seen),
}

/// What a client has seen of the log. Clones share it, so that several clients see what any of them has seen.
#[derive(Clone, Debug, Default)]
pub struct Seen(Arc<AtomicU64>);

impl Seen {
    /// Nothing has been seen yet.
    #[must_use]
    pub fn new() -> Seen {
        Seen::default()
    }

    /// What another process has seen: its [`Seen::position`].
    #[must_use]
    pub fn at(position: u64) -> Seen {
        Seen(Arc::new(AtomicU64::new(position)))
    }

    /// The highest position of the log that any answer came with.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

impl Level {
    /// Makes a call with this level.
    pub(crate) fn request<M>(&self, message: M) -> Request<M> {
        let mut request = Request::new(message);
        let text = match self {
            Level::Configured => return request,
            Level::Linearizable => "linearizable".to_string(),
            Level::Serializable => "serializable".to_string(),
            Level::Bounded(age) => format!("bounded={}ns", age.as_nanos()),
            Level::AtLeast(seen) => format!("at-least={}", seen.position()),
        };
        let value = MetadataValue::try_from(text).expect("it is ASCII");
        request.metadata_mut().insert(CONSISTENCY, value);
        request
    }

    /// Takes note of the position in an answer's metadata.
    pub(crate) fn note(&self, answer: &MetadataMap) {
        if let Level::AtLeast(seen) = self
            && let Some(position) = answer.get(INDEX).and_then(|text| text.to_str().ok()?.parse().ok())
        {
            seen.0.fetch_max(position, Ordering::AcqRel);
        }
    }

    /// Takes note of the position that an answer came with.
    pub(crate) fn note_position(&self, position: u64) {
        if let Level::AtLeast(seen) = self {
            seen.0.fetch_max(position, Ordering::AcqRel);
        }
    }

    /// Sets etcd's own flag for the level, where it has one.
    pub(crate) fn mark_range(&self, range: &mut pb::RangeRequest) {
        range.serializable |= matches!(self, Level::Serializable);
    }

    /// The same for everything that a transaction reads.
    pub(crate) fn mark_txn(&self, txn: &mut pb::TxnRequest) {
        if !matches!(self, Level::Serializable) {
            return;
        }
        for op in txn.success.iter_mut().chain(&mut txn.failure) {
            match &mut op.request {
                Some(Operation::RequestRange(range)) => self.mark_range(range),
                Some(Operation::RequestTxn(txn)) => self.mark_txn(txn),
                Some(Operation::RequestPut(_) | Operation::RequestDeleteRange(_)) | None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(level: &Level) -> Option<String> {
        let request = level.request(());
        request.metadata().get(CONSISTENCY).map(|value| value.to_str().unwrap().to_string())
    }

    #[test]
    fn each_level_says_its_words_and_the_configured_one_says_nothing() {
        assert_eq!(said(&Level::Configured), None);
        assert_eq!(said(&Level::Linearizable).as_deref(), Some("linearizable"));
        assert_eq!(said(&Level::Serializable).as_deref(), Some("serializable"));
        assert_eq!(said(&Level::Bounded(Duration::from_millis(5))).as_deref(), Some("bounded=5000000ns"));
        assert_eq!(said(&Level::AtLeast(Seen::at(7))).as_deref(), Some("at-least=7"));
    }

    #[test]
    fn the_highest_position_that_an_answer_came_with_is_remembered() {
        let seen = Seen::new();
        let level = Level::AtLeast(seen.clone());
        for (told, position) in [("5", 5), ("3", 5), ("none", 5), ("18446744073709551615", u64::MAX)] {
            let mut answer = MetadataMap::new();
            answer.insert(INDEX, told.parse().unwrap());
            level.note(&answer);
            assert_eq!(seen.position(), position, "{told}");
        }
        let mut answer = MetadataMap::new();
        answer.insert(INDEX, "9".parse().unwrap());
        Level::Linearizable.note(&answer);
    }

    #[test]
    fn serializable_is_said_in_etcds_own_words_too() {
        let range = || pb::RequestOp { request: Some(Operation::RequestRange(pb::RangeRequest::default())) };
        let inner = pb::TxnRequest { failure: vec![range()], ..Default::default() };
        let inner = pb::RequestOp { request: Some(Operation::RequestTxn(inner)) };
        let txn = pb::TxnRequest { success: vec![range(), inner], ..Default::default() };
        let mut marked = txn.clone();
        Level::Serializable.mark_txn(&mut marked);
        assert_eq!(format!("{marked:?}").matches("serializable: true").count(), 2);
        let mut unmarked = txn.clone();
        Level::Bounded(Duration::from_secs(1)).mark_txn(&mut unmarked);
        assert_eq!(unmarked, txn);
    }
}
