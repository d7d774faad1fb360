//! Apply: delivers committed entries to the store, in order, each once.
//!
//! In:    marks that moved, credit that came back, entries read back from the log.
//! Out:   entries for the store; requests to read back entries that are no longer in memory (after a restart:
//!        everything up to the commit mark).
//! Rule:  nothing beyond min(committed, persisted) [replication-protocols B9], and whole entries only [R8]; at most
//!        `apply_bytes_max` delivered and not yet applied, though one entry of any size always passes. [B5]
//! Knows nothing of: commands, the store's contents.

use crate::canonical::Canonical;
use crate::contract::{Effects, Fetch, FetchFor};
use crate::entry::Entry;
use crate::raft::Raft;
use crate::role::Role;
use crate::types::{Instant, LogIndex};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Credit comes back in pieces of at least this many bytes (the newest may be smaller), not entry by entry.
const CREDIT_PIECE: usize = 64 << 10;

/// Room is made for so many entries before they are handed out; at a start all of a log is.
const RESERVED_MAX: usize = 1024;

/// Entries delivered and not yet applied.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Delivery {
    /// Pieces by their last index, oldest first, with their bytes.
    pieces: VecDeque<(LogIndex, usize)>,
    /// Their bytes together.
    bytes: usize,
    /// When to deliver even if nothing else happens: at once after a restart, or when a snapshot waits for the next
    /// batch of effects; a while after a failed read.
    retry_at: Instant,
}

impl Delivery {
    /// Nothing is delivered; entries that may be applied already are due at `start`.
    pub(crate) fn new(start: Instant) -> Delivery {
        Delivery { pieces: VecDeque::new(), bytes: 0, retry_at: start }
    }

    pub(crate) fn retry_at(&self) -> Instant {
        self.retry_at
    }

    /// Makes a delivery due at this moment, even if nothing else happens.
    pub(crate) fn deliver_at(&mut self, now: Instant) {
        self.retry_at = now;
    }

    /// See [`crate::canonical`].
    pub(crate) fn canonicalize(&mut self, canonical: &Canonical) {
        self.retry_at = canonical.deadline(self.retry_at, canonical.heartbeat_interval);
    }

    /// Bytes delivered and not yet applied.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn give(&mut self, index: LogIndex, bytes: usize) {
        self.bytes += bytes;
        match self.pieces.back_mut() {
            Some((last, piece)) if *piece < CREDIT_PIECE => {
                *last = index;
                *piece += bytes;
            }
            _ => self.pieces.push_back((index, bytes)),
        }
    }

    fn take_back(&mut self, applied: LogIndex) {
        while self.pieces.front().is_some_and(|(last, _)| *last <= applied) {
            let bytes = self.pieces.pop_front().map_or(0, |(_, bytes)| bytes);
            self.bytes -= bytes;
        }
    }
}

impl Raft {
    /// Delivers the entries that may be applied, as far as the credit goes.
    pub(crate) fn hand_out(&mut self, now: Instant, effects: &mut Effects) {
        if self.delivery.retry_at <= now {
            self.delivery.retry_at = Instant::NEVER;
        }
        if self.hand_out_snapshot(now, effects) {
            return;
        }
        let limit = self.marks.appliable();
        let count = usize::try_from(limit.0.saturating_sub(self.marks.delivered.0)).unwrap_or(usize::MAX);
        effects.apply.reserve(count.min(RESERVED_MAX));
        while self.marks.delivered < limit {
            let next = self.marks.delivered.next();
            let Some(entry) = self.log.entry(next) else {
                self.fetch_for_apply(next, limit, effects);
                return;
            };
            if !self.has_credit_for(entry.len()) {
                return;
            }
            let entry = entry.clone();
            self.give_to_apply(entry, effects);
        }
    }

    fn has_credit_for(&self, bytes: usize) -> bool {
        self.delivery.bytes == 0 || self.delivery.bytes + bytes <= self.config.limits.apply_bytes_max
    }

    fn give_to_apply(&mut self, entry: Entry, effects: &mut Effects) {
        let index = entry.id().index;
        assert_eq!(index, self.marks.delivered.next(), "applied out of order");
        assert!(index <= self.marks.appliable(), "{index:?} is handed out at {:?}", self.marks);
        // Members that skip what they hold in part would apply different commands. [R8]
        assert!(
            entry.payload().is_some(),
            "committed entry {} is here as {:?}",
            entry.id(),
            entry.body().form()
        );
        self.marks.delivered = index;
        self.delivery.give(index, entry.len());
        effects.apply.push(entry);
    }

    fn fetch_for_apply(&mut self, first: LogIndex, limit: LogIndex, effects: &mut Effects) {
        let bytes_max = self.config.limits.apply_bytes_max.saturating_sub(self.delivery.bytes);
        let under_way = self.fetches.iter().any(|fetch| fetch.purpose == FetchFor::Apply);
        let waits = self.delivery.retry_at != Instant::NEVER;
        if under_way || waits || bytes_max == 0 {
            return;
        }
        let last = limit.min(self.log.recent_first().previous());
        let fetch = Fetch { purpose: FetchFor::Apply, first, last, bytes_max };
        self.fetches.push(fetch.clone());
        effects.fetch.push(fetch);
    }

    /// Entries have been read back. `entries` are consecutive from the first one requested. They are empty if the read
    /// failed for a passing reason; it is then repeated after a while. Answers to requests that were never made, or
    /// that were answered already, are ignored.
    pub fn fetched(&mut self, now: Instant, fetch: Fetch, entries: Vec<Entry>, effects: &mut Effects) {
        let Some(position) = self.fetches.iter().position(|under_way| *under_way == fetch) else { return };
        self.fetches.swap_remove(position);
        match fetch.purpose {
            FetchFor::Peer(peer) => {
                if let Some(mut leading) = self.leading() {
                    leading.fetched_for_peer(now, peer, fetch.first, entries, effects);
                }
            }
            FetchFor::Apply => {
                let before = self.marks.delivered;
                for entry in entries {
                    let next = entry.id().index == self.marks.delivered.next();
                    let safe = entry.id().index <= self.marks.appliable() && self.log.holds(entry.id());
                    let first = self.marks.delivered == before; // it was read back, so it passes, whatever its size
                    if next && safe && (first || self.has_credit_for(entry.len())) {
                        self.give_to_apply(entry, effects);
                    }
                }
                if self.marks.delivered == before && fetch.first == before.next() {
                    self.delivery.retry_at = now + self.config.heartbeat_interval;
                }
                self.hand_out(now, effects);
            }
        }
    }

    /// The store has applied everything up to `index`: returns the credit of those entries.
    pub fn applied(&mut self, now: Instant, index: LogIndex, effects: &mut Effects) {
        let delivered = self.marks.delivered;
        assert!(index <= delivered, "applied {index:?}, but only {delivered:?} was handed out");
        self.marks.applied = self.marks.applied.max(index);
        self.delivery.take_back(self.marks.applied);
        self.hand_out(now, effects);
        self.shrink_recent();
    }

    /// Whether as many bytes as may be delivered at once are delivered and not yet applied: then no new writes are
    /// accepted. [replication-protocols B6]
    #[must_use]
    pub fn apply_is_behind(&self) -> bool {
        self.config.limits.apply_bytes_max <= self.delivery.bytes
    }

    /// Whether apply is out of credit while memory is full: then no entries are accepted. [B6]
    pub(crate) fn apply_is_backlogged(&self) -> bool {
        self.marks.delivered < self.marks.committed && self.log.recent_bytes() > self.backlog_bytes_max()
    }

    /// Bytes of entries that may still be accepted while apply is out of credit; `None` if it is not.
    pub(crate) fn room_before_backlog(&self) -> Option<usize> {
        let waits = self.marks.delivered < self.marks.committed;
        waits.then(|| self.backlog_bytes_max().saturating_sub(self.log.recent_bytes()))
    }

    fn backlog_bytes_max(&self) -> usize {
        let limits = &self.config.limits;
        let recent = match &self.role {
            Role::Leader(_) => limits.recent_in_sync_bytes(),
            Role::Follower(_) | Role::PreCandidate(_) | Role::Candidate(_) => limits.recent_bytes_max,
        };
        recent.saturating_add(limits.apply_bytes_max)
    }
}

#[cfg(test)]
mod tests {
    use super::{CREDIT_PIECE, Delivery};
    use crate::canonical::tests::config;
    use crate::{
        Effects, Entry, EntryHead, EntryId, EntryKind, Form, HardState, Instant, LogIndex, Lsn, Raft,
        Recovered, Stamp, Term,
    };
    use alloc::vec;

    #[test]
    fn credit_returns_when_the_last_entry_of_a_piece_is_applied() {
        let mut delivery = Delivery::new(Instant(0));
        // The first fills a piece, the next two another one together, the last has one of its own.
        for (index, bytes) in (1..).zip([CREDIT_PIECE, CREDIT_PIECE - 1, 1, 5]) {
            delivery.give(LogIndex(index), bytes);
        }
        let all = 2 * CREDIT_PIECE + 5;
        for (applied, left) in [(0, all), (1, all - CREDIT_PIECE), (2, all - CREDIT_PIECE), (3, 5), (4, 0)] {
            delivery.take_back(LogIndex(applied));
            assert_eq!(delivery.bytes(), left, "{applied} applied");
        }
    }

    /// What a member applies first that starts with one committed entry in this form.
    fn applied_at_start(form: Form) -> Effects {
        let id = EntryId::new(1, 1);
        let head = EntryHead { id, kind: EntryKind::Command, stamp: Stamp(0) };
        let recovered = Recovered {
            hard: HardState { term: Term(1), vote: None },
            term_starts: vec![id],
            last: id,
            tail: vec![Entry::in_form(form, head, vec![7].into(), 0)],
            committed: id.index,
            lsn: Lsn(1),
            ..Recovered::default()
        };
        let (now, mut effects) = (Instant(1000), Effects::default());
        Raft::recover(config(), 1, now, recovered).tick(now, &mut effects);
        effects
    }

    #[test]
    fn what_is_committed_and_whole_is_applied_at_start() {
        assert_eq!(applied_at_start(Form::Whole).apply.len(), 1);
    }

    #[test]
    #[should_panic(expected = "committed entry 1.1 is here as Shard { shard: 2, data: 3 }")]
    fn a_part_of_a_committed_entry_is_not_applied() {
        applied_at_start(Form::Shard { shard: 2, data: 3 });
    }

    #[test]
    #[should_panic(expected = "committed entry 1.1 is here as Missing")]
    fn a_committed_entry_without_its_payload_is_not_skipped() {
        applied_at_start(Form::Missing);
    }
}
