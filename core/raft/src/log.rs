//! The log as one peer remembers it: recent entries whole, older ones by their terms only.
//!
//! ```text
//!  base        recent_first              last
//!   │ term starts │ entries in memory      │
//!   └─────────────┴────────────────────────┘
//! ```
//!
//! The first position of every run of entries with one term is kept for the whole log, so that every question about a
//! term is answered without a read. Entries before the recent ones are fetched from the log on disk when needed.
//! Knows nothing of: commit, disks, peers.

use crate::contract::Recovered;
use crate::entry::Entry;
use crate::types::{EntryId, LogIndex, Stamp, Term};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// One peer's log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Log {
    /// Position right before the first entry.
    base: EntryId,
    /// First position of each run of one term, ascending in term and index.
    term_starts: Vec<EntryId>,
    /// Last position; `base` when there is none.
    last: EntryId,
    /// The newest entries, without gaps, ending at `last`.
    recent: VecDeque<Entry>,
    /// Their bytes.
    recent_bytes: usize,
    /// The stamp of the last entry; after a cut below those in memory at least that, until the next one is appended.
    stamp: Stamp,
}

impl Log {
    /// The log that `recovered` describes.
    ///
    /// # Panics
    /// If the description contradicts itself: the driver has checked it.
    #[must_use]
    pub fn recover(recovered: &Recovered) -> Log {
        let Recovered { base, term_starts, last, tail, .. } = recovered;
        assert!(base <= last, "the log ends at {last}, before its base {base}");
        match (term_starts.first(), term_starts.last()) {
            (Some(first), Some(newest)) => {
                assert_eq!(
                    first.index,
                    base.index.next(),
                    "terms are known from {first}, the log begins after {base}"
                );
                assert_eq!(
                    newest.term, last.term,
                    "the newest term starts at {newest}, the log ends at {last}"
                );
                assert!(newest.index <= last.index, "a term starts at {newest}, after the last entry {last}");
            }
            (None, _) => assert_eq!(base, last, "no term is known of entries up to {last}"),
            (Some(_), None) => unreachable!("a list with a first element has a last one"),
        }
        assert!(
            term_starts.windows(2).all(|pair| pair[0].term < pair[1].term && pair[0].index < pair[1].index),
            "term starts do not ascend: {term_starts:?}"
        );
        let mut log = Log {
            base: *base,
            term_starts: term_starts.clone(),
            last: *last,
            recent: VecDeque::new(),
            recent_bytes: 0,
            stamp: recovered.stamp,
        };
        if let Some(newest) = tail.last() {
            assert_eq!(newest.id(), *last, "the tail ends at {}, the log at {last}", newest.id());
        }
        let tail_first = LogIndex(last.index.0 + 1 - tail.len() as u64);
        for (entry, index) in tail.iter().zip(tail_first.0..) {
            let known = log.term_at(LogIndex(index));
            assert_eq!(entry.id().index, LogIndex(index), "the tail has a gap at {index}");
            assert_eq!(Some(entry.id().term), known, "entry {} contradicts the known terms", entry.id());
            log.recent_bytes += entry.len();
        }
        log.recent = tail.iter().cloned().collect();
        log
    }

    /// Position right before the first entry: the end of the part that left the log because a snapshot covers it.
    #[must_use]
    pub fn base(&self) -> EntryId {
        self.base
    }

    /// First position; one after `last` when the log is empty.
    #[must_use]
    pub fn first_index(&self) -> LogIndex {
        self.base.index.next()
    }

    /// Last position; the base when the log is empty.
    #[must_use]
    pub fn last(&self) -> EntryId {
        self.last
    }

    /// First position whose entry is in memory; one after `last` when none is.
    #[must_use]
    pub fn recent_first(&self) -> LogIndex {
        LogIndex(self.last.index.0 + 1 - self.recent.len() as u64)
    }

    /// Bytes of the entries in memory.
    #[must_use]
    pub fn recent_bytes(&self) -> usize {
        self.recent_bytes
    }

    /// At least the stamp of the last entry.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// The positions at which terms start, ascending.
    #[must_use]
    pub fn term_starts(&self) -> &[EntryId] {
        &self.term_starts
    }

    /// The term at `index`, also at the base; `None` before the base and after the last entry.
    #[must_use]
    pub fn term_at(&self, index: LogIndex) -> Option<Term> {
        if index < self.base.index || index > self.last.index {
            return None;
        }
        if index == self.last.index {
            return Some(self.last.term);
        }
        if let Some(entry) = self.entry(index) {
            return Some(entry.id().term);
        }
        let runs_begun = self.term_starts.partition_point(|start| start.index <= index);
        Some(if runs_begun == 0 { self.base.term } else { self.term_starts[runs_begun - 1].term })
    }

    /// Whether the entry at this index has this term; also of the base.
    #[must_use]
    pub fn holds(&self, id: EntryId) -> bool {
        self.term_at(id.index) == Some(id.term)
    }

    /// The id of the entry at `index`.
    ///
    /// # Panics
    /// If the log does not reach from its base to there.
    #[must_use]
    pub fn id_at(&self, index: LogIndex) -> EntryId {
        let term = self.term_at(index);
        let term = term.unwrap_or_else(|| panic!("{index:?} is outside {}..={}", self.base, self.last));
        EntryId { term, index }
    }

    /// The largest position ≤ `bound.index` whose term is ≤ `bound.term`; the base if there is none later.
    /// One binary search, whatever the length of the log. [replication-protocols L4]
    #[must_use]
    pub fn largest_at_most(&self, bound: EntryId) -> EntryId {
        let index = bound.index.clamp(self.base.index, self.last.index);
        let runs_allowed = self.term_starts.partition_point(|start| start.term <= bound.term);
        let runs_end = match self.term_starts.get(runs_allowed) {
            Some(start) => start.index.previous(),
            None => self.last.index,
        };
        self.id_at(index.min(runs_end))
    }

    /// The entry at `index`, if it is in memory.
    #[must_use]
    pub fn entry(&self, index: LogIndex) -> Option<&Entry> {
        let offset = index.0.checked_sub(self.recent_first().0)?;
        self.recent.get(usize::try_from(offset).ok()?)
    }

    /// The entries in memory after `index`, in order. To reach the first of them costs the same wherever it stands.
    pub fn entries_after(&self, index: LogIndex) -> impl Iterator<Item = &Entry> {
        self.recent.range(self.offset(index.next())..)
    }

    /// Bytes of the entries from `first` to `last`, as far as they are in memory.
    #[must_use]
    pub fn bytes(&self, first: LogIndex, last: LogIndex) -> usize {
        let (start, end) = (self.offset(first), self.offset(last.next()));
        self.recent.range(start.min(end)..end).map(Entry::len).sum()
    }

    /// The place in `recent` of the entry at `index`, or of the nearest one.
    fn offset(&self, index: LogIndex) -> usize {
        (index.0.saturating_sub(self.recent_first().0) as usize).min(self.recent.len())
    }

    /// Clones of the entries from `first` to at most `last`, as many as fit into `bytes_max` and `entries_max`, at
    /// least one. Empty when `first` is not in memory or lies after `last`.
    #[must_use]
    pub fn batch(&self, first: LogIndex, last: LogIndex, bytes_max: usize, entries_max: usize) -> Vec<Entry> {
        let Some(offset) = first.0.checked_sub(self.recent_first().0) else { return Vec::new() };
        let wanted = (last.0 + 1).saturating_sub(first.0).min(entries_max.max(1) as u64);
        let rest = self.recent.range(self.recent.len().min(offset as usize)..).take(wanted as usize);
        let mut bytes = 0;
        let fits = rest.clone().enumerate().take_while(|(n, entry)| {
            bytes += entry.len();
            *n == 0 || bytes <= bytes_max
        });
        // Counted first, so that the list is allocated once.
        let count = fits.count();
        rest.take(count).cloned().collect()
    }

    /// Adds the entry after the last one.
    ///
    /// # Panics
    /// If it leaves a gap or its term falls.
    pub fn append(&mut self, entry: Entry) {
        let id = entry.id();
        assert_eq!(id.index, self.last.index.next(), "entry {id} after {}", self.last);
        assert!(self.last.term <= id.term, "entry {id} after {}: terms never fall", self.last);
        if self.last.term < id.term || self.term_starts.is_empty() {
            self.term_starts.push(id);
        }
        self.last = id;
        self.stamp = entry.head.stamp; // not the highest ever: what was cut off here is in no log's time
        self.recent_bytes += entry.len();
        self.recent.push_back(entry);
    }

    /// Forgets every entry from `first` on.
    ///
    /// # Panics
    /// If `first` is not in the log.
    pub fn truncate(&mut self, first: LogIndex) {
        let outside = first <= self.base.index || self.last.index < first;
        assert!(!outside, "truncation from {first:?} outside {}..={}", self.base, self.last);
        let last = self.id_at(first.previous());
        while self.recent.back().is_some_and(|entry| first <= entry.id().index) {
            let entry = self.recent.pop_back();
            self.recent_bytes -= entry.map_or(0, |entry| entry.len());
        }
        while self.term_starts.last().is_some_and(|start| first <= start.index) {
            self.term_starts.pop();
        }
        self.last = last;
        // Outside memory the stamp before the cut is unknown; a higher one still never falls along the log.
        self.stamp = self.recent.back().map_or(self.stamp, |entry| entry.head.stamp);
    }

    /// Forgets the entries up to `upto`, which becomes the base: its term is still known.
    ///
    /// # Panics
    /// If the log does not reach from its base to there.
    pub fn compact_to(&mut self, upto: LogIndex) {
        let base = self.id_at(upto);
        let goes_on = (upto < self.last.index).then(|| self.id_at(upto.next()));
        while self.recent.front().is_some_and(|entry| entry.id().index <= upto) {
            let entry = self.recent.pop_front();
            self.recent_bytes -= entry.map_or(0, |entry| entry.len());
        }
        let begun = self.term_starts.partition_point(|start| start.index <= upto.next());
        self.term_starts.splice(..begun, goes_on);
        self.base = base;
    }

    /// Forgets every entry: the log goes on after `base`, which has this stamp.
    pub fn restart_after(&mut self, base: EntryId, stamp: Stamp) {
        *self = Log {
            base,
            term_starts: Vec::new(),
            last: base,
            recent: VecDeque::new(),
            recent_bytes: 0,
            stamp,
        };
    }

    /// Drops the oldest entries from memory while more than `bytes_max` are held, never one after `upto`.
    pub fn shrink(&mut self, upto: LogIndex, bytes_max: usize) {
        while self.recent_bytes > bytes_max
            && self.recent.front().is_some_and(|entry| entry.id().index <= upto)
        {
            let entry = self.recent.pop_front();
            self.recent_bytes -= entry.map_or(0, |entry| entry.len());
        }
    }
}
