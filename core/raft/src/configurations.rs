//! Configurations: the membership in force, now and at earlier log indexes.
//!
//! In:    configuration entries that are appended, truncated, covered by a snapshot.
//! Out:   the membership in force now, and the one in force at an index.
//! Rule:  the newest one in the log counts from the moment it is appended, committed or not; when it is truncated, the
//!        one before it counts again. [replication-protocols M1; Ongaro14 §4.1]
//! Knows nothing of: the causes of a change, the commit index.

use crate::membership::Membership;
use crate::snapshot::SnapshotMeta;
use crate::types::LogIndex;
use alloc::vec::Vec;

/// A membership and where it stands in the log.
type At = (LogIndex, Membership);

/// Every configuration that may still be needed, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Configurations {
    /// The oldest: the group's first one, or a snapshot's.
    base: At,
    /// The later ones, from the log, ascending.
    later: Vec<At>,
}

/// The newest configuration found at a start, given those of the log, ascending, and the snapshot. `None` if both
/// contain no other than the group's first one.
#[must_use]
pub fn newest_found<'a>(
    in_log: &'a [(LogIndex, Membership)],
    snapshot: Option<&'a SnapshotMeta>,
) -> Option<&'a Membership> {
    match (in_log.last(), snapshot) {
        (Some((at, newest)), Some(meta)) if meta.membership_at < *at => Some(newest),
        (_, Some(meta)) => Some(&meta.membership),
        (newest, None) => newest.map(|(_, newest)| newest),
    }
}

impl Configurations {
    /// The configurations at a peer's start. `first` counts unless there is a snapshot.
    pub(crate) fn recover(
        first: Membership,
        snapshot: Option<&SnapshotMeta>,
        found: Vec<At>,
    ) -> Configurations {
        let base = match snapshot {
            Some(meta) => (meta.membership_at, meta.membership.clone()),
            None => (LogIndex(0), first),
        };
        assert!(found.is_sorted_by(|a, b| a.0 < b.0), "configurations do not ascend: {found:?}");
        let later = found.into_iter().filter(|(at, _)| base.0 < *at).collect();
        Configurations { base, later }
    }

    fn newest_one(&self) -> &At {
        self.later.last().unwrap_or(&self.base)
    }

    /// The membership in force.
    pub(crate) fn newest(&self) -> &Membership {
        &self.newest_one().1
    }

    /// The index of its entry; 0 for the group's first one.
    pub(crate) fn newest_at(&self) -> LogIndex {
        self.newest_one().0
    }

    /// The membership in force after the entry at `index`, and its own index. For an index before all known ones, the
    /// oldest one.
    pub(crate) fn at(&self, index: LogIndex) -> &At {
        let known = self.later.partition_point(|(at, _)| *at <= index);
        known.checked_sub(1).map_or(&self.base, |newest| &self.later[newest])
    }

    /// All of them, oldest first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &At> {
        core::iter::once(&self.base).chain(&self.later)
    }

    /// The entry at `at` was appended and contains this membership.
    pub(crate) fn append(&mut self, at: LogIndex, membership: Membership) {
        assert!(self.newest_at() < at, "a configuration at {at:?} after {:?}", self.newest_at());
        self.later.push((at, membership));
    }

    /// Entries from `first` on are removed: the configurations before them count again.
    pub(crate) fn truncate(&mut self, first: LogIndex) {
        while self.later.last().is_some_and(|(at, _)| first <= *at) {
            self.later.pop();
        }
    }

    /// Drops the configurations that no index from `index` on needs.
    pub(crate) fn forget_before(&mut self, index: LogIndex) {
        let known = self.later.partition_point(|(at, _)| *at <= index);
        if let Some(base) = self.later.drain(..known).next_back() {
            self.base = base;
        }
    }

    /// A snapshot was installed: its configuration is the oldest one that counts. Other configurations up to its end
    /// were never agreed on by the group, and are dropped.
    pub(crate) fn rebase(&mut self, meta: &SnapshotMeta) {
        self.base = (meta.membership_at, meta.membership.clone());
        self.later.retain(|(at, _)| meta.last.index < *at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{EntryId, NodeId, Stamp};
    use alloc::vec;

    fn of(voters: &[u64]) -> Membership {
        Membership::new(voters.iter().copied().map(NodeId).collect(), Vec::new())
    }

    #[test]
    fn the_newest_counts_until_it_is_truncated() {
        let mut all = Configurations::recover(of(&[1]), None, vec![]);
        assert_eq!((all.newest_at(), all.newest()), (LogIndex(0), &of(&[1])));
        all.append(LogIndex(3), of(&[1, 2]));
        all.append(LogIndex(5), of(&[1, 2, 3]));
        assert_eq!(all.newest(), &of(&[1, 2, 3]));
        assert_eq!(all.at(LogIndex(4)), &(LogIndex(3), of(&[1, 2])));
        all.truncate(LogIndex(6));
        assert_eq!(all.newest_at(), LogIndex(5), "nothing of it was cut");
        all.truncate(LogIndex(4));
        assert_eq!((all.newest_at(), all.newest()), (LogIndex(3), &of(&[1, 2])));
        all.truncate(LogIndex(1));
        assert_eq!(all.newest(), &of(&[1]), "back to the group's first one");
    }

    #[test]
    fn a_snapshot_brings_its_own_and_hides_those_before() {
        let meta = SnapshotMeta {
            last: EntryId::new(2, 6),
            stamp: Stamp(0),
            membership: of(&[1, 2]),
            membership_at: LogIndex(3),
        };
        let found = vec![(LogIndex(3), of(&[1, 2])), (LogIndex(7), of(&[1]))];
        let mut all = Configurations::recover(of(&[9]), Some(&meta), found);
        assert_eq!(all.all().count(), 2);
        assert_eq!(all.at(LogIndex(6)), &(LogIndex(3), of(&[1, 2])));
        assert_eq!(all.newest(), &of(&[1]));
        all.forget_before(LogIndex(6));
        assert_eq!(all.at(LogIndex(6)).0, LogIndex(3));
        all.forget_before(LogIndex(8));
        assert_eq!((all.all().count(), all.newest_at()), (1, LogIndex(7)));
        let newer = SnapshotMeta {
            last: EntryId::new(3, 9),
            membership_at: LogIndex(9),
            membership: of(&[5]),
            ..meta
        };
        all.rebase(&newer);
        assert_eq!((all.all().count(), all.newest_at(), all.newest()), (1, LogIndex(9), &of(&[5])));
    }

    #[test]
    fn what_a_snapshot_contradicts_does_not_count_any_more() {
        // The entry at 5 was another leader's, which a quorum never held; the group agreed on 3 and nothing newer.
        let mut all = Configurations::recover(of(&[1, 2, 3]), None, vec![(LogIndex(3), of(&[1, 2]))]);
        all.append(LogIndex(5), of(&[1]));
        let meta = SnapshotMeta {
            last: EntryId::new(4, 10),
            stamp: Stamp(0),
            membership: of(&[1, 2]),
            membership_at: LogIndex(3),
        };
        all.rebase(&meta);
        assert_eq!((all.all().count(), all.newest_at(), all.newest()), (1, LogIndex(3), &of(&[1, 2])));
    }
}
