//! Window: entries that a follower keeps although it lacks the ones before them.
//!
//! ```text
//!            log                          window
//!   ├──────────────────────┤   ·   ┌───┬───┐  ·  ┌───┐
//!                        last      │   │   │     │   │      at most `entries` places after `last`
//!                              ▲   └───┴───┘     └───┘
//!                              the next append may close the gap: then all up to the next gap joins the log
//! ```
//!
//! In:    appends that begin after the end of the log; the end of the log.
//! Out:   entries that follow that end; the runs of entries that are kept.
//! Rules: [replication-protocols W1–W4, H2, H5]
//!   1. It belongs to what a follower knows of its leader ([`crate::role::Following`]). So it holds entries of one
//!      leader in one term, and is gone with a newer term, a campaign or a restart. [O7, H5]
//!   2. An entry is kept if its place is among the first `entries` after the end of the log, and its bytes fit. The entry
//!      right after the end needs no place: it joins the log.
//!   3. Each entry is kept with the term of its predecessor in the leader's log, and joins the log when that ends with
//!      this predecessor: the check of the previous entry, made later. [L3]
//!   4. What it holds counts neither for votes nor for acknowledgements nor for commits.
//!
//! Knows nothing of: messages, disks, peers, answers to clients.

use crate::entry::Entry;
use crate::message::Run;
use crate::policy::Capacity;
use crate::types::{EntryId, LogIndex, Term};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// An entry that came before its predecessor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Early {
    /// The term of its predecessor.
    prev: Term,
    entry: Entry,
}

/// The entries that are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Window {
    early: BTreeMap<LogIndex, Early>,
    /// Their bytes.
    bytes: u64,
}

impl Window {
    /// Whether nothing is kept.
    pub(crate) fn is_empty(&self) -> bool {
        self.early.is_empty()
    }

    /// Bytes that are kept.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Keeps entries that begin after the end of the log, `last`; those for which there is no place any more are left
    /// out, with all after them. Returns how many of them it holds now.
    ///
    /// # Errors
    /// Another entry is kept at the index of this one: no correct leader sends both.
    pub(crate) fn keep(
        &mut self,
        mut prev: EntryId,
        entries: Vec<Entry>,
        last: LogIndex,
        size: Capacity,
    ) -> Result<usize, EntryId> {
        let end = LogIndex(last.0.saturating_add(size.entries.into()));
        let mut held = 0;
        for entry in entries {
            let id = entry.id();
            if let Some(known) = self.early.get(&id.index) {
                if known.entry.id() != id {
                    return Err(id);
                }
            } else {
                let bytes = self.bytes + entry.len() as u64;
                if end < id.index || size.bytes < bytes {
                    break;
                }
                self.bytes = bytes;
                self.early.insert(id.index, Early { prev: prev.term, entry });
            }
            prev = id;
            held += 1;
        }
        Ok(held)
    }

    /// The entry that follows the end of the log, if it is kept. [Rule 3]
    pub(crate) fn next(&self, last: EntryId) -> Option<&Entry> {
        let next = self.early.get(&last.index.next())?;
        (next.prev == last.term).then_some(&next.entry)
    }

    /// The same; it is kept no longer.
    pub(crate) fn take_next(&mut self, last: EntryId) -> Option<Entry> {
        self.next(last)?;
        self.remove(last.index.next())
    }

    /// The log ends at `last`: what it holds needs no place, and what is too far from its end now has none. [W3, W4]
    pub(crate) fn follow(&mut self, last: LogIndex, size: Capacity) {
        let end = LogIndex(last.0.saturating_add(size.entries.into()));
        while let Some((&index, _)) = self.early.first_key_value()
            && index <= last
        {
            self.remove(index);
        }
        while let Some((&index, _)) = self.early.last_key_value()
            && (end < index || size.bytes < self.bytes)
        {
            self.remove(index);
        }
    }

    fn remove(&mut self, index: LogIndex) -> Option<Entry> {
        let Early { entry, .. } = self.early.remove(&index)?;
        self.bytes -= entry.len() as u64;
        Some(entry)
    }

    /// The runs of consecutive entries that are kept, the lowest first, at most so many.
    pub(crate) fn runs(&self, most: usize) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for &index in self.early.keys() {
            let is_full = runs.len() == most;
            match runs.last_mut() {
                Some(run) if run.last.next() == index => run.last = index,
                _ if is_full => break,
                _ => runs.push(Run { first: index, last: index }),
            }
        }
        runs
    }

    /// The entry that is kept at this index.
    pub(crate) fn id_at(&self, index: LogIndex) -> Option<EntryId> {
        self.early.get(&index).map(|early| early.entry.id())
    }

    /// Whether the bytes are those of the entries, for [`crate::invariants`].
    pub(crate) fn counts_its_bytes(&self) -> bool {
        self.bytes == self.early.values().map(|early| early.entry.len() as u64).sum::<u64>()
    }

    /// The lowest and the highest index that are kept, for [`crate::invariants`].
    pub(crate) fn bounds(&self) -> Option<(LogIndex, LogIndex)> {
        let (&first, _) = self.early.first_key_value()?;
        let (&last, _) = self.early.last_key_value()?;
        Some((first, last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EntryHead, EntryKind, Stamp};
    use alloc::vec;

    const SIZE: Capacity = Capacity { entries: 6, bytes: 1000 };

    /// Entries of ten bytes, by term and index.
    fn entries(ids: &[(u64, u64)]) -> Vec<Entry> {
        let entry = |&(term, index)| {
            let head = EntryHead { id: EntryId::new(term, index), kind: EntryKind::Command, stamp: Stamp(0) };
            Entry::new(head, vec![7; 10].into(), 0)
        };
        ids.iter().map(entry).collect()
    }

    fn runs(window: &Window) -> Vec<(u64, u64)> {
        window.runs(9).iter().map(|run| (run.first.0, run.last.0)).collect()
    }

    /// Figure 6 of the paper: the log ends at 7, and places 8 to 13 can be used.
    #[test]
    fn there_are_as_many_places_as_the_window_has_entries() {
        let mut window = Window::default();
        let far = entries(&[(4, 12), (4, 13), (4, 14)]);
        assert_eq!(window.keep(EntryId::new(4, 11), far, LogIndex(7), SIZE), Ok(2));
        assert_eq!(window.keep(EntryId::new(4, 8), entries(&[(4, 9)]), LogIndex(7), SIZE), Ok(1));
        assert_eq!(runs(&window), [(9, 9), (12, 13)]);
        assert_eq!(window.runs(1), [Run { first: LogIndex(9), last: LogIndex(9) }]);
        window.follow(LogIndex(6), SIZE);
        assert_eq!(runs(&window), [(9, 9), (12, 12)], "13 is the seventh place after 6");
    }

    #[test]
    fn bytes_have_a_bound_and_are_free_again() {
        let one = entries(&[(1, 3)])[0].len() as u64;
        let size = Capacity { entries: 9, bytes: one * 2 };
        let mut window = Window::default();
        let three = entries(&[(1, 3), (1, 4), (1, 5)]);
        assert_eq!(window.keep(EntryId::new(1, 2), three, LogIndex(1), size), Ok(2));
        assert_eq!(window.keep(EntryId::new(1, 2), entries(&[(1, 3)]), LogIndex(1), size), Ok(1), "a repeat");
        assert_eq!(window.bytes(), one * 2);
        assert!(window.take_next(EntryId::new(1, 2)).is_some());
        assert_eq!((window.bytes(), runs(&window)), (one, vec![(4, 4)]));
        window.follow(LogIndex(1), Capacity { entries: 9, bytes: 0 });
        assert!(window.is_empty() && window.bytes() == 0);
    }

    #[test]
    fn an_entry_joins_only_the_log_that_ends_with_its_predecessor() {
        let mut window = Window::default();
        window.keep(EntryId::new(5, 5), entries(&[(5, 6), (6, 7)]), LogIndex(4), SIZE).unwrap();
        assert!(window.take_next(EntryId::new(4, 5)).is_none());
        assert!(window.take_next(EntryId::new(5, 4)).is_none());
        assert_eq!(window.take_next(EntryId::new(5, 5)).unwrap().id(), EntryId::new(5, 6));
        assert_eq!(window.take_next(EntryId::new(5, 6)).unwrap().id(), EntryId::new(6, 7));
        assert!(window.is_empty());
    }

    #[test]
    fn two_entries_at_one_index_are_a_lie() {
        let mut window = Window::default();
        window.keep(EntryId::new(5, 5), entries(&[(5, 6)]), LogIndex(4), SIZE).unwrap();
        let other = window.keep(EntryId::new(5, 5), entries(&[(6, 6)]), LogIndex(4), SIZE);
        assert_eq!(other, Err(EntryId::new(6, 6)));
    }
}
