//! Marks: how far this peer has come along its log.
//!
//! applied ≤ delivered ≤ min(committed, persisted), and both of those ≤ last. Committed may run ahead of persisted: a
//! quorum of others may be faster than this disk. Delivered never does. [replication-protocols B9]
//! Knows nothing of: disks, stores, quorums.

use crate::types::LogIndex;

/// Positions along the log; the first three never fall, `persisted` falls only when a tail is truncated.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Marks {
    /// The store has applied everything up to here.
    pub(crate) applied: LogIndex,
    /// Everything up to here was delivered to the apply executor.
    pub(crate) delivered: LogIndex,
    /// Everything up to here is committed, and so never changes.
    pub(crate) committed: LogIndex,
    /// Everything up to here is on this disk.
    pub(crate) persisted: LogIndex,
}

impl Marks {
    /// Highest index that may be delivered to apply. [replication-protocols B9]
    pub(crate) fn appliable(&self) -> LogIndex {
        self.committed.min(self.persisted)
    }
}
