//! Snapshots: when one is taken, how much of the log stays behind it, and what an installed one overtakes.
//!
//! ```text
//!   log     ├───────── keep ─────────┤ last snapshot ├──── since ────┤ handed to the keeper
//!                                                      more than max(floor, size of the last one): the next
//! ```
//! So beyond a floor the log is never much longer than a snapshot, and what is written for snapshots never more than what
//! is written for the log. While a member comes back that the snapshot before this one was sent to, the log stays behind that
//! one, too: twice as long at the most. Bytes count, not time: a replica that is idle takes none. One that failed is tried again when
//! the log has grown by a part of that once more. A peer that waits for a snapshot gets one however short the log is, and also
//! if the newest one covers all that there is: then its file is damaged or gone, and it is taken anew, once.
//!
//! In:    entries on their way to the keeper; what became of snapshots.
//! Out:   the order to take one, in the keeper's queue.
//! Knows nothing of: what a snapshot contains, files, who reads them.

use crate::contract::{Effects, KeeperTask};
use crate::node::Node;
use alloc::collections::VecDeque;
use kattu_raft::{Entry, EntryId, Instant, LogIndex, SnapshotMeta, Stamp};

/// When a snapshot is taken, and what stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SnapshotLimits {
    /// Bytes of log since the last snapshot, at the least, before the next is taken.
    pub log_bytes_min: u64,
    /// Bytes of log that stay behind a snapshot, so that a peer that is a little behind needs none, and so that the
    /// snapshot before still fits the log if this one turns out damaged.
    pub keep_bytes: u64,
}

impl Default for SnapshotLimits {
    fn default() -> SnapshotLimits {
        SnapshotLimits { log_bytes_min: 64 << 20, keep_bytes: 64 << 20 }
    }
}

/// After a failure the log grows by this part of what makes a snapshot due.
const RETRY_PART: u64 = 8;

/// The log behind is remembered in so many pieces of what is kept.
const PIECES: u64 = 16;

/// One that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct UnderWay {
    last: EntryId,
    /// Bytes of log that it takes care of.
    bytes: u64,
}

/// What a replica knows of its snapshots.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Snapshots {
    limits: SnapshotLimits,
    /// The newest entry that the keeper will have applied when it comes to the next task; nothing right after a start.
    newest: Option<(EntryId, Stamp)>,
    /// Bytes handed to the keeper since the last snapshot.
    since: u64,
    /// No other one before so many of them: the last one failed.
    not_before: u64,
    /// Bytes of the last snapshot.
    size: u64,
    under_way: Option<UnderWay>,
    /// The last one that was taken anew because its file was damaged or gone.
    anew: Option<EntryId>,
    /// Bytes of the snapshot that a leader sends.
    incoming: u64,
    /// The log by pieces: the first index, the bytes. Oldest first.
    pieces: VecDeque<(LogIndex, u64)>,
}

impl Snapshots {
    pub(crate) fn new(limits: SnapshotLimits) -> Snapshots {
        Snapshots {
            limits,
            newest: None,
            since: 0,
            not_before: 0,
            size: 0,
            under_way: None,
            anew: None,
            incoming: 0,
            pieces: VecDeque::new(),
        }
    }

    /// This entry goes to the keeper.
    pub(crate) fn delivered(&mut self, entry: &Entry) {
        let (id, bytes) = (entry.id(), entry.len() as u64);
        self.newest = Some((id, entry.head.stamp));
        self.since += bytes;
        match self.pieces.back_mut() {
            Some((_, piece)) if *piece < self.limits.keep_bytes / PIECES => *piece += bytes,
            _ => self.pieces.push_back((id.index, bytes)),
        }
    }

    /// From where on the log stays behind a snapshot that ends at `last`.
    fn keep_from(&mut self, last: LogIndex) -> LogIndex {
        let (mut from, mut kept) = (last.next(), 0);
        for &(first, bytes) in self.pieces.iter().rev().skip_while(|&&(first, _)| last < first) {
            kept += bytes;
            if self.limits.keep_bytes < kept {
                break;
            }
            from = first;
        }
        while self.pieces.front().is_some_and(|&(first, _)| first < from) {
            self.pieces.pop_front();
        }
        from
    }

    fn due_at(&self) -> u64 {
        self.limits.log_bytes_min.max(self.size)
    }
}

impl Node {
    /// The same replica, told that the snapshot it started from has so many bytes: the next one is taken when the log has
    /// grown by as many.
    #[must_use]
    pub fn with_snapshot_of(mut self, bytes: u64) -> Node {
        self.snapshots.size = bytes;
        self
    }

    /// Orders a snapshot if one is due and none is under way.
    pub(crate) fn take_snapshot_if_due(&mut self, effects: &mut Effects) {
        let snapshots = &mut self.snapshots;
        let Some((last, stamp)) = snapshots.newest else { return };
        if snapshots.under_way.is_some() || snapshots.since < snapshots.not_before {
            return;
        }
        // Nothing came after the newest one, and a peer waits: that one is damaged or gone. A disk that ruins it once more is not
        // asked for it again and again: the next one is taken when the log has grown.
        let is_anew = snapshots.since == 0;
        let is_due = snapshots.due_at() < snapshots.since;
        let is_wanted = self.raft.wants_snapshot() && !(is_anew && snapshots.anew == Some(last));
        if !is_due && !is_wanted {
            return;
        }
        // None while a leader's snapshot is on its way into the store: there will be less to take care of then.
        let Some(meta) = self.raft.snapshot_meta(last, stamp) else { return };
        if is_anew {
            snapshots.anew = Some(last);
        }
        snapshots.under_way = Some(UnderWay { last, bytes: snapshots.since });
        effects.apply.push(KeeperTask::Snapshot(meta));
    }

    /// A snapshot is durable and verified: what it covers may leave the log, but for what is kept.
    pub(crate) fn on_snapshot_taken(
        &mut self,
        now: Instant,
        meta: SnapshotMeta,
        bytes: u64,
        out: &mut kattu_raft::Effects,
    ) {
        let snapshots = &mut self.snapshots;
        let Some(done) = snapshots.under_way.take_if(|under_way| under_way.last == meta.last) else { return };
        let newest = self.raft.snapshot().map_or(LogIndex(0), |newest| newest.last.index);
        if meta.last.index < newest {
            return; // an installed one has overtaken it
        }
        snapshots.since = snapshots.since.saturating_sub(done.bytes);
        snapshots.not_before = 0;
        snapshots.size = bytes;
        let mut keep_from = snapshots.keep_from(meta.last.index);
        // Nobody else has what a damaged file loses; or what follows the snapshot before is on its way to a member, or will be
        // when it has that: else it would get one snapshot after the other while clients write. The log stays with that one.
        let is_fed = self.raft.feeds_between(now, newest, keep_from.previous());
        if is_fed || self.raft.membership().is_alone(self.config.raft.id) {
            keep_from = keep_from.min(newest.next());
        }
        if meta.last.index == newest {
            keep_from = self.raft.base().index.next(); // it took the place of its own damaged file: the log stays as it is
        }
        self.raft.snapshot_taken(now, meta, keep_from, out);
    }

    /// A snapshot came to nothing, and left nothing behind.
    pub(crate) fn on_snapshot_failed(&mut self, last: EntryId) {
        let snapshots = &mut self.snapshots;
        if snapshots.under_way.take_if(|under_way| under_way.last == last).is_some() {
            snapshots.not_before = snapshots.since + (snapshots.due_at() / RETRY_PART).max(1);
        }
    }

    /// Raft asks for pieces to be stored; what a whole snapshot of the leader's weighs is worth knowing.
    pub(crate) fn note_incoming(&mut self, total: u64) {
        self.snapshots.incoming = total;
    }

    /// The store becomes what this snapshot holds. Whoever waits here for an entry that it covers will not see it applied:
    /// whether it had an effect is not known here.
    pub(crate) fn install(&mut self, meta: SnapshotMeta, effects: &mut Effects) {
        let last = meta.last;
        assert!(self.delivered < last.index, "a snapshot of {last} after index {}", self.delivered.0);
        self.writes.overtaken(last.index, effects);
        self.delivered = last.index;
        let snapshots = &mut self.snapshots;
        snapshots.newest = Some((last, meta.stamp));
        (snapshots.since, snapshots.not_before) = (0, 0);
        snapshots.size = snapshots.incoming;
        snapshots.pieces.clear();
        effects.apply.push(KeeperTask::Install(meta));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kattu_raft::{EntryHead, EntryKind, Form, SharedBytes};

    fn entry(index: u64, bytes: usize) -> Entry {
        let id = EntryId::new(1, index);
        let head = EntryHead { id, kind: EntryKind::Noop, form: Form::Whole, stamp: Stamp(0) };
        Entry::new(head, SharedBytes::from(alloc::vec![0; bytes]), 0)
    }

    fn after(count: u64, keep_bytes: u64) -> Snapshots {
        let mut snapshots = Snapshots::new(SnapshotLimits { log_bytes_min: 0, keep_bytes });
        (1..=count).for_each(|index| snapshots.delivered(&entry(index, 100)));
        snapshots
    }

    #[test]
    fn what_is_kept_behind_a_snapshot_is_what_fits() {
        assert_eq!(after(100, 0).keep_from(LogIndex(100)), LogIndex(101), "nothing");
        assert_eq!(after(100, 1000).keep_from(LogIndex(100)), LogIndex(91), "ten entries");
        assert_eq!(after(100, 1000).keep_from(LogIndex(50)), LogIndex(41), "the log has gone on meanwhile");
        assert_eq!(after(100, 1 << 20).keep_from(LogIndex(100)), LogIndex(1), "all that there is");
    }

    #[test]
    fn the_pieces_that_are_remembered_are_few() {
        let mut snapshots = after(100_000, 160_000);
        assert!(snapshots.pieces.len() <= 1000, "{}", snapshots.pieces.len());
        let from = snapshots.keep_from(LogIndex(100_000));
        assert!(LogIndex(98_400) < from && from < LogIndex(98_600), "{from:?}");
        assert!(snapshots.pieces.len() <= PIECES as usize, "{}", snapshots.pieces.len());
    }
}
