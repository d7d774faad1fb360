//! The vocabulary of one peer: names, positions, time.
//!
//! Every number that crosses a function border has a type of its own, so that a term is never compared with
//! an index and a duration is never mistaken for an instant.
//! Knows nothing of: messages, roles, disks.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};
pub use core::time::Duration;

/// A member of the cluster. Never reused, never 0 (0 on a wire means "no member").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

/// One replication group; group 0 holds the etcd keyspace and the cluster's own configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

/// One life of one member's data directory: drawn at random when the directory is created. [fault-model ST14]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

/// An election period; 0 means "before the first election". [Ongaro14 §3.3]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(pub u64);

impl Term {
    /// The term a candidate would campaign in.
    #[must_use]
    pub fn next(self) -> Term {
        Term(self.0 + 1)
    }
}

/// A position in the log. The first entry is 1; 0 means "before the log". [Ongaro14 §3.5]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogIndex(pub u64);

impl LogIndex {
    /// The position after this one.
    #[must_use]
    pub fn next(self) -> LogIndex {
        LogIndex(self.0 + 1)
    }

    /// The position before this one; stays at 0.
    #[must_use]
    pub fn previous(self) -> LogIndex {
        LogIndex(self.0.saturating_sub(1))
    }
}

/// The identity of one log entry: the term of the leader that created it, and its index.
///
/// The derived order (term first, then index) *is* Raft's "at least as up-to-date" rule. [Ongaro14 §3.6.1]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId {
    /// Term of the leader that created the entry.
    pub term: Term,
    /// Its position.
    pub index: LogIndex,
}

impl EntryId {
    /// Shorthand for tests and tables: `EntryId::new(2, 7)` is index 7 written in term 2.
    #[must_use]
    pub fn new(term: u64, index: u64) -> EntryId {
        EntryId { term: Term(term), index: LogIndex(index) }
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.term.0, self.index.0)
    }
}

/// Sequence number of one record of one node's persist stream. Counts from 1, is never used twice, not even for an
/// overwritten entry, so that a late completion cannot be mistaken for another. [replication-protocols §1.2]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

impl Lsn {
    /// The number after this one.
    #[must_use]
    pub fn next(self) -> Lsn {
        Lsn(self.0 + 1)
    }
}

/// Number of a heartbeat or read round of one leader in one term; counts from 1, 0 means "no round".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Round(pub u64);

impl Round {
    /// The round after this one.
    #[must_use]
    pub fn next(self) -> Round {
        Round(self.0 + 1)
    }
}

/// The log's own clock, in milliseconds: the leader stamps each entry with
/// `max(stamp of the entry before, its own clock)`, so stamps never fall along a log. [replication-protocols X5]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(pub u64);

/// A moment on the driver's monotonic clock, in nanoseconds since a start that only the driver knows.
/// Comparable within one process only. [fault-model TM1]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

impl Instant {
    /// A moment that never comes.
    pub const NEVER: Instant = Instant(u64::MAX);

    /// Time since `earlier`, zero when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, duration: Duration) -> Instant {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Instant(self.0.saturating_add(nanos))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;
    fn sub(self, duration: Duration) -> Instant {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Instant(self.0.saturating_sub(nanos))
    }
}
