//! Snapshots: when one is taken, how much of the log is kept behind it, and which writes an installed one overtakes.
//!
//! ```text
//!   log     ├───────── keep ─────────┤ last snapshot ├──── since ────┤ delivered to the keeper
//!                                                      more than max(floor, size of the last one): the next, after a rest
//!                                                      more than max(bound, twice that size): the next, at once
//! ```
//! So never more bytes are written for snapshots than for the log, under load half as many, and beyond a bound the log is never
//! much longer than two snapshots. The rest is [`REST`] times as long as the last snapshot took: a member under load makes fewer
//! of them, each of which takes time from its clients, and makes the next when the load is over. A member that starts with
//! a log rests first, too: it has that log to replay. Members take turns: after its start each of *n* voters takes its first snapshot
//! at a part of those bytes of its own, *n*/*n* to 1/*n*, and goes on from there, so that seldom two of them have that work at once.
//! While a member catches up to which the
//! snapshot before this one was sent, the log behind that one is kept, too: at most twice as long. Bytes count, not
//! time: an idle replica takes no snapshot. A failed one is tried again when the log has grown by a part of that once
//! more, or, if a peer waits for it, after a rest: on a full disk that has space again, nobody may write before that
//! peer is there. A peer that waits for a snapshot gets one however short the log is, and also if the newest one covers the whole
//! log: then its file is damaged or gone, and it is taken anew, once.
//!
//! In:    entries delivered to the keeper; the results of snapshots.
//! Out:   the order to take one, in the keeper's queue.
//! Knows nothing of: the content of a snapshot, files, readers.

use crate::contract::{Effects, KeeperTask};
use crate::node::Node;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use kattu_raft::{Duration, Entry, EntryId, Instant, LogIndex, Membership, NodeId, SnapshotMeta, Stamp};

/// When a snapshot is taken, and how much of the log is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SnapshotLimits {
    /// Least bytes of log since the last snapshot before the next is taken.
    pub log_bytes_min: u64,
    /// With so many bytes, if that is more, the next is taken although the last one was a short time ago.
    pub log_bytes_max: u64,
    /// Bytes of log kept behind a snapshot, so that a peer that lags a little needs none, and so that the snapshot
    /// before still fits the log if this one turns out damaged.
    pub keep_bytes: u64,
}

impl Default for SnapshotLimits {
    fn default() -> SnapshotLimits {
        SnapshotLimits { log_bytes_min: 64 << 20, log_bytes_max: 512 << 20, keep_bytes: 64 << 20 }
    }
}

/// After a failure the log must grow by this part of what makes a snapshot due before the next attempt.
const RETRY_PART: u64 = 8;

/// The rest after a snapshot, as a multiple of the time that it took: snapshots take a twentieth of the time.
const REST: u32 = 19;

/// The rest of a member that starts with a log.
pub(crate) const START_REST: Duration = Duration::from_secs(10);

/// At the bound the log has grown by this many times the size of the last snapshot.
const BOUND_SIZES: u64 = 2;

/// Pieces in which the kept part of the log is recorded.
const PIECES: u64 = 16;

/// A snapshot in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct UnderWay {
    last: EntryId,
    /// Bytes of log that it covers.
    bytes: u64,
    since: Instant,
}

/// The state of a replica's snapshots.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Snapshots {
    limits: SnapshotLimits,
    /// The newest entry that the keeper will have applied when it comes to the next task; none right after a start.
    newest: Option<(EntryId, Stamp)>,
    /// Bytes delivered to the keeper since the last snapshot.
    since: u64,
    /// No further snapshot before `since` has reached this: the last one failed.
    not_before: u64,
    /// Or, if a peer waits for one, before this moment.
    again_at: Instant,
    /// Bytes of the last snapshot.
    size: u64,
    /// Until the first one since the start: it is due at so many parts, of so many, of what makes the others due.
    first: Option<(u64, u64)>,
    under_way: Option<UnderWay>,
    /// The end of the rest after the last one, or after the start.
    rests_until: Instant,
    /// The last one that was taken anew because its file was damaged or gone.
    anew: Option<EntryId>,
    /// Bytes of the snapshot that a leader sends.
    incoming: u64,
    /// The log by pieces: the first index, the bytes. Oldest first.
    pieces: VecDeque<(LogIndex, u64)>,
}

impl Snapshots {
    /// The state of a replica that may take its first snapshot after `rests_until`, unless the log grows to the bound.
    pub(crate) fn new(rests_until: Instant, limits: SnapshotLimits) -> Snapshots {
        Snapshots {
            limits,
            newest: None,
            since: 0,
            not_before: 0,
            again_at: Instant(0),
            size: 0,
            first: Some((1, 1)),
            under_way: None,
            rests_until,
            anew: None,
            incoming: 0,
            pieces: VecDeque::new(),
        }
    }

    /// An entry is delivered to the keeper.
    pub(crate) fn delivered(&mut self, entry: &Entry) {
        let (id, bytes) = (entry.id(), entry.len() as u64);
        self.newest = Some((id, entry.head.stamp));
        self.since += bytes;
        match self.pieces.back_mut() {
            Some((_, piece)) if *piece < self.limits.keep_bytes / PIECES => *piece += bytes,
            _ => self.pieces.push_back((id.index, bytes)),
        }
    }

    /// First index of the log kept behind a snapshot that ends at `last`.
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
        self.in_turn(self.limits.log_bytes_min.max(self.size))
    }

    /// The part of these bytes of log after which it is this member's turn.
    fn in_turn(&self, bytes: u64) -> u64 {
        self.first.map_or(bytes, |(part, of)| bytes / of * part)
    }

    /// A snapshot of so many bytes was taken.
    fn taken(&mut self, now: Instant, done: UnderWay, bytes: u64) {
        self.since = self.since.saturating_sub(done.bytes);
        self.not_before = 0;
        self.size = bytes;
        self.first = None;
        self.rests_until = now + now.since(done.since) * REST;
    }

    /// Whether the log has grown so much that no rest counts.
    fn is_at_bound(&self) -> bool {
        let sizes = self.size.saturating_mul(BOUND_SIZES);
        self.limits.log_bytes_min.max(self.limits.log_bytes_max).max(sizes) < self.since
    }

    /// Whether the last one failed, and the log has not grown enough since.
    fn has_failed(&self) -> bool {
        self.under_way.is_none() && self.since < self.not_before
    }

    /// When a snapshot becomes due without another entry.
    fn deadline(&self) -> Instant {
        let waits = self.under_way.is_none() && self.due_at() < self.since && !self.has_failed();
        if waits && !self.is_at_bound() { self.rests_until } else { Instant::NEVER }
    }
}

/// The turn of a member: voters take theirs from the last part down to the first, in the order of the membership.
fn turn_of(own: NodeId, membership: &Membership) -> (u64, u64) {
    let (mut of, mut before) = (0, 0);
    for (place, voter) in membership.all_voters().enumerate() {
        of += 1;
        if voter == own {
            before = place as u64;
        }
    }
    match of {
        0 => (1, 1),
        of => (of - before, of),
    }
}

impl Node {
    /// The same replica, started from a snapshot of so many bytes: the next one is taken when the log has grown by as
    /// many.
    #[must_use]
    pub fn with_snapshot_of(mut self, bytes: u64) -> Node {
        self.snapshots.size = bytes;
        self
    }

    /// When a snapshot becomes due without another event. Never while none can be taken: a replica that waits for the
    /// leader's, or that joined and does not know the group yet, would wake at a moment that is past, again and again.
    pub(crate) fn snapshot_deadline(&self) -> Instant {
        let at = match self.snapshots.has_failed() {
            true if self.raft.wants_snapshot() => self.snapshots.again_at,
            true => Instant::NEVER,
            false => self.snapshots.deadline(),
        };
        let may_be_taken =
            || self.snapshots.newest.is_some_and(|(last, _)| self.raft.may_take_snapshot(last));
        if at != Instant::NEVER && may_be_taken() { at } else { Instant::NEVER }
    }

    /// Orders a snapshot if one is due and none is under way.
    pub(crate) fn take_snapshot_if_due(&mut self, now: Instant, effects: &mut Effects) {
        let snapshots = &mut self.snapshots;
        let Some((last, stamp)) = snapshots.newest else { return };
        if let Some(first) = &mut snapshots.first {
            *first = turn_of(self.config.raft.id, self.raft.membership());
        }
        if snapshots.under_way.is_some() || snapshots.has_failed() && now < snapshots.again_at {
            return;
        }
        // No entry came after the newest one, and a peer waits: that one is damaged or gone. If the disk ruins it once
        // more it is not taken again and again: the next one is taken when the log has grown.
        let is_anew = snapshots.since == 0;
        let has_rested = snapshots.rests_until <= now || snapshots.is_at_bound();
        let is_due = snapshots.due_at() < snapshots.since && has_rested && !snapshots.has_failed();
        let is_wanted = self.raft.wants_snapshot() && !(is_anew && snapshots.anew == Some(last));
        if !is_due && !is_wanted {
            return;
        }
        // None while a leader's snapshot is being installed: after that there will be less log to cover.
        let Some(meta) = self.raft.snapshot_meta(last, stamp) else { return };
        if is_anew {
            snapshots.anew = Some(last);
        }
        snapshots.under_way = Some(UnderWay { last, bytes: snapshots.since, since: now });
        effects.apply.push(KeeperTask::Snapshot(Box::new(meta)));
    }

    /// A snapshot is durable and verified: the log that it covers may be dropped, except for the part that is kept.
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
        snapshots.taken(now, done, bytes);
        let mut keep_from = snapshots.keep_from(meta.last.index);
        // The log behind the snapshot before is kept in two cases. A single member has no other copy of what a damaged
        // file loses. And a member that is being sent that snapshot, or entries behind it, needs the log from there on:
        // otherwise it would get one snapshot after the other while clients write.
        let is_fed = self.raft.feeds_between(now, newest, keep_from.previous());
        if is_fed || self.raft.membership().is_alone(self.config.raft.id) {
            keep_from = keep_from.min(newest.next());
        }
        if meta.last.index == newest {
            keep_from = self.raft.base().index.next(); // it replaced its own damaged file: the log stays as it is
        }
        self.raft.snapshot_taken(now, meta, keep_from, out);
    }

    /// A snapshot failed and left no file.
    pub(crate) fn on_snapshot_failed(&mut self, now: Instant, last: EntryId) {
        let rest_min = self.raft.timing().election_timeout;
        let snapshots = &mut self.snapshots;
        if let Some(failed) = snapshots.under_way.take_if(|under_way| under_way.last == last) {
            snapshots.not_before = snapshots.since + (snapshots.due_at() / RETRY_PART).max(1);
            snapshots.again_at = now + (now.since(failed.since) * REST).max(rest_min);
            snapshots.anew = None; // there is no file that the disk could have ruined
        }
    }

    /// Records the size of the snapshot that a leader sends.
    pub(crate) fn note_incoming(&mut self, total: u64) {
        self.snapshots.incoming = total;
    }

    /// Replaces the store by this snapshot. A client that waits here for an entry that it covers will not see it
    /// applied: the outcome is unknown here.
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
        effects.apply.push(KeeperTask::Install(Box::new(meta)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::NodeConfig;
    use kattu_raft::{
        Config, EntryHead, EntryKind, HardState, NodeId, RecordEncoder, Recovered, SharedBytes,
    };

    fn entry(index: u64, bytes: usize) -> Entry {
        let id = EntryId::new(1, index);
        let head = EntryHead { id, kind: EntryKind::Noop, stamp: Stamp(0) };
        Entry::new(head, SharedBytes::from(alloc::vec![0; bytes]), 0)
    }

    fn after(count: u64, keep_bytes: u64) -> Snapshots {
        let mut snapshots =
            Snapshots::new(Instant(0), SnapshotLimits { log_bytes_min: 0, log_bytes_max: 0, keep_bytes });
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
    fn after_a_snapshot_a_replica_rests_unless_its_log_grows_to_the_bound() {
        let limits = SnapshotLimits { log_bytes_min: 1000, log_bytes_max: 5000, keep_bytes: 0 };
        let mut snapshots = Snapshots::new(Instant(2), limits);
        snapshots.since = 3000;
        assert_eq!((snapshots.deadline(), snapshots.is_at_bound()), (Instant(2), false), "it has started");
        let done = UnderWay { last: EntryId::new(1, 9), bytes: 2000, since: Instant(10) };
        snapshots.taken(Instant(12), done, 700);
        assert_eq!(
            (snapshots.since, snapshots.rests_until),
            (1000, Instant(50)),
            "19 times as long as it took"
        );
        assert_eq!((snapshots.deadline(), snapshots.is_at_bound()), (Instant::NEVER, false), "too little");
        for since in [1001, 5000] {
            snapshots.since = since;
            assert_eq!((snapshots.deadline(), snapshots.is_at_bound()), (Instant(50), false), "{since}");
        }
        snapshots.since = 5001;
        assert!(snapshots.is_at_bound());
        snapshots.size = 6000;
        assert_eq!((snapshots.deadline(), snapshots.is_at_bound()), (Instant::NEVER, false), "it was larger");
        for (since, is_at_bound) in [(6001, false), (12_000, false), (12_001, true)] {
            snapshots.since = since;
            assert_eq!(snapshots.is_at_bound(), is_at_bound, "{since}, twice the size");
        }
        (snapshots.since, snapshots.not_before) = (6001, 6100);
        assert_eq!(snapshots.deadline(), Instant::NEVER, "the last one failed");
    }

    #[test]
    fn what_cannot_be_taken_is_not_due() {
        let raft = Config::new(NodeId(1), [NodeId(1)], RecordEncoder::BARE);
        let limits = SnapshotLimits { log_bytes_min: 0, ..SnapshotLimits::default() };
        let config = NodeConfig { snapshots: limits, ..NodeConfig::new(raft) };
        let mut node = Node::recover(config, 1, Instant(0), Recovered::default());
        node.snapshots.delivered(&entry(1, 100));
        assert_eq!(node.snapshots.deadline(), Instant(0), "it is due");
        assert_eq!(node.snapshot_deadline(), Instant::NEVER, "the log does not hold what it would cover");
    }

    #[test]
    fn a_replica_that_starts_with_a_log_rests_first() {
        let raft = Config::new(NodeId(1), [NodeId(1)], RecordEncoder::BARE);
        let id = EntryId::new(1, 1);
        let log = Recovered {
            hard: HardState { term: id.term, vote: None },
            last: id,
            term_starts: alloc::vec![id],
            tail: alloc::vec![entry(1, 100)],
            ..Recovered::default()
        };
        for (recovered, rest) in [(Recovered::default(), Duration::ZERO), (log, START_REST)] {
            let node = Node::recover(NodeConfig::new(raft.clone()), 1, Instant(7), recovered);
            assert_eq!(node.snapshots.rests_until, Instant(7) + rest);
        }
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
