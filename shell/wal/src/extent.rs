//! Extent: which entries one group's log holds, by their ids alone.
//!
//! ```text
//!   base          term starts                last
//!    │ 3.21 …………… 4.30 …………………… 7.44 …………… 7.50
//!    └ covered by a snapshot up to here
//! ```
//!
//! Three kinds of record change it: an entry extends its end, a truncation shortens its end, a base shortens its start.
//! If the log holds the base, the entries after it stay; if not (the log ends before it, or has another entry there),
//! none stays. A record of kind `Base` carries the resulting extent, so that a log can be read from any segment on that
//! begins with one. [replication-protocols N3; fault-model ST9, ST10]
//! Knows nothing of: segments, payloads.

use kattu_raft::{EntryId, LogIndex, Term};

/// Which entries a log holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Position right before the first entry.
    pub base: EntryId,
    /// Last position; the base when there is no entry.
    pub last: EntryId,
    /// First position of each run of entries of one term, ascending.
    term_starts: Vec<EntryId>,
}

impl Extent {
    pub fn term_starts(&self) -> &[EntryId] {
        &self.term_starts
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.last.index == self.base.index
    }

    /// Whether `id` may be the next entry.
    pub(crate) fn is_next(&self, id: EntryId) -> bool {
        id.index == self.last.index.next() && self.last.term <= id.term
    }

    /// Adds `count` entries of one term, from `first` on.
    pub fn extend(&mut self, first: EntryId, count: u64) {
        if self.term_starts.last().is_none_or(|start| start.term != first.term) {
            self.term_starts.push(first);
        }
        self.last = EntryId { term: first.term, index: LogIndex(first.index.0 + count - 1) };
    }

    /// The term of the entry at `index`, or of the base.
    fn term_at(&self, index: LogIndex) -> Option<Term> {
        if index == self.base.index {
            return Some(self.base.term);
        }
        if index < self.base.index || self.last.index < index {
            return None;
        }
        let after = self.term_starts.partition_point(|start| start.index <= index);
        Some(self.term_starts[after.checked_sub(1)?].term)
    }

    /// Whether `id` is the base or an entry of this log.
    pub fn holds(&self, id: EntryId) -> bool {
        self.term_at(id.index) == Some(id.term)
    }

    /// Removes all entries from `from` on.
    pub fn truncate(&mut self, from: LogIndex) {
        assert!(self.base.index < from, "truncation from {} on, the log begins after {}", from.0, self.base);
        self.term_starts.retain(|start| start.index < from);
        let term = self.term_starts.last().map_or(self.base.term, |start| start.term);
        self.last = EntryId { term, index: from.previous() };
    }

    /// Moves the base: a snapshot covers everything up to `base`. Returns whether the log held it: then the entries
    /// after it stay.
    pub fn rebase(&mut self, base: EntryId) -> bool {
        assert!(self.base.index <= base.index, "base {base} after {}", self.base);
        if !self.holds(base) {
            *self = Extent { base, last: base, term_starts: Vec::new() };
            return false;
        }
        let first = base.index.next();
        let term = self.term_at(first);
        self.term_starts.retain(|start| first < start.index);
        if let Some(term) = term {
            self.term_starts.insert(0, EntryId { term, index: first });
        }
        self.base = base;
        true
    }

    /// The payload of a base record: the last index, then where terms start.
    pub fn payload(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(8 + self.term_starts.len() * 16);
        out.extend_from_slice(&self.last.index.0.to_le_bytes());
        for start in &self.term_starts {
            out.extend_from_slice(&start.term.0.to_le_bytes());
            out.extend_from_slice(&start.index.0.to_le_bytes());
        }
        out
    }

    /// Reads a payload; `None` if it is invalid.
    pub fn parse(base: EntryId, payload: &[u8]) -> Option<Extent> {
        let (last, rest) = payload.split_first_chunk::<8>()?;
        let last = LogIndex(u64::from_le_bytes(*last));
        let (starts, rest) = rest.as_chunks::<16>();
        if !rest.is_empty() {
            return None;
        }
        let mut extent = Extent { base, last: base, term_starts: Vec::with_capacity(starts.len()) };
        for start in starts {
            let u64_at = |at: usize| u64::from_le_bytes(start[at..at + 8].try_into().expect("eight bytes"));
            let start = EntryId { term: Term(u64_at(0)), index: LogIndex(u64_at(8)) };
            let follows = match extent.term_starts.last() {
                Some(before) => before.term < start.term && before.index < start.index,
                None => base.term <= start.term && start.index == base.index.next(),
            };
            if !follows || last < start.index {
                return None;
            }
            extent.term_starts.push(start);
        }
        match extent.term_starts.last() {
            Some(newest) => extent.last = EntryId { term: newest.term, index: last },
            None if last == base.index => {}
            None => return None,
        }
        Some(extent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A change to an extent and to the plain list that it is compared with.
    #[derive(Clone, Debug)]
    enum Change {
        Push(u64),
        Truncate(u64),
        Rebase(u64, bool),
    }

    fn change() -> impl Strategy<Value = Change> {
        prop_oneof![
            4 => (0..2_u64).prop_map(Change::Push),
            1 => (0..6_u64).prop_map(Change::Truncate),
            1 => (0..9_u64, any::<bool>()).prop_map(|(ahead, same)| Change::Rebase(ahead, same)),
        ]
    }

    proptest! {
        #[test]
        fn an_extent_says_what_a_plain_list_of_entries_does(changes in proptest::collection::vec(change(), 0..60)) {
            let mut extent = Extent::default();
            let (mut base, mut list) = (EntryId::default(), Vec::<EntryId>::new());
            for change in changes {
                let last = list.last().copied().unwrap_or(base);
                match change {
                    Change::Push(more) => {
                        let id = EntryId::new(last.term.0.max(1) + more, last.index.0 + 1);
                        prop_assert!(extent.is_next(id));
                        extent.extend(id, 1);
                        list.push(id);
                    }
                    Change::Truncate(count) => {
                        let from = LogIndex((last.index.0 + 1).saturating_sub(count).max(base.index.0 + 1));
                        extent.truncate(from);
                        list.retain(|id| id.index < from);
                    }
                    Change::Rebase(ahead, same) => {
                        let index = LogIndex(base.index.0 + ahead);
                        let there = list.iter().copied().chain([base]).find(|id| id.index == index);
                        let mut new = there.unwrap_or(EntryId { term: last.term.next(), index });
                        if !same && new != base {
                            new.term = last.term.next();
                        }
                        let held = there == Some(new);
                        prop_assert_eq!(extent.holds(new), held);
                        prop_assert_eq!(extent.rebase(new), held);
                        list.retain(|id| held && new.index < id.index);
                        base = new;
                    }
                }
                prop_assert_eq!((extent.base, extent.last), (base, list.last().copied().unwrap_or(base)));
                prop_assert_eq!(extent.is_empty(), list.is_empty());
                let mut starts: Vec<EntryId> = Vec::new();
                for id in &list {
                    if starts.last().is_none_or(|start| start.term != id.term) {
                        starts.push(*id);
                    }
                }
                prop_assert_eq!(extent.term_starts(), &starts[..]);
                prop_assert_eq!(Extent::parse(base, &extent.payload()), Some(extent.clone()));
            }
        }

        #[test]
        fn no_bytes_are_taken_for_an_extent_that_contradicts_itself(payload in proptest::collection::vec(0..4_u8, 0..60)) {
            if let Some(extent) = Extent::parse(EntryId::new(1, 1), &payload) {
                prop_assert_eq!(extent.payload(), payload);
                prop_assert!(extent.base <= extent.last);
            }
        }
    }
}
