//! Marks: how far this peer has come along its log.
//!
//! applied ≤ handed ≤ min(committed, persisted), and both of those ≤ last. Committed may run ahead of persisted: a
//! quorum of others may be faster than this disk. What is handed to apply never does. [replication-protocols B9]
//! Knows nothing of: why a mark moves.

use crate::types::LogIndex;

/// Positions along the log; the first three never fall, `persisted` falls only when a tail is truncated.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Marks {
    /// The store has applied everything up to here.
    pub(crate) applied: LogIndex,
    /// Everything up to here was handed to apply.
    pub(crate) delivered: LogIndex,
    /// Everything up to here is safe forever.
    pub(crate) committed: LogIndex,
    /// Everything up to here is on this disk.
    pub(crate) persisted: LogIndex,
}

impl Marks {
    /// Highest index that may be handed to apply. [replication-protocols B9]
    pub(crate) fn appliable(&self) -> LogIndex {
        self.committed.min(self.persisted)
    }
}
