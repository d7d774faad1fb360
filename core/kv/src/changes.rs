//! Changes: which keys each revision changed, in the order it changed them.
//!
//! Compaction reads it to find versions that it may forget without walking the store; counts at recent revisions read
//! it backwards from the newest. Changes are numbered from 0; those before `first` are forgotten. A copy shares nearly
//! all of its memory with the original (`queue.rs`).
//! Knows nothing of: values, versions, compaction's rules.

use crate::api::{Key, Revision};
use crate::queue::Queue;

/// The changes of all revisions from the first one still kept.
///
/// Invariant: `starts[r]` is the number of the first change of revision `r`; each revision has at least one. Some
/// changes of the first revision may be forgotten already.
#[derive(Clone, Debug)]
pub(crate) struct Changes {
    /// Indexed by revision.
    starts: Queue<u64>,
    keys: Queue<Key>,
}

impl Changes {
    /// No changes yet; the first will be at this revision (2 in a new store).
    pub(crate) fn starting_at(revision: Revision) -> Changes {
        let revision = u64::try_from(revision.0).expect("revisions of changes are positive");
        Changes { starts: Queue::starting_at(revision), keys: Queue::starting_at(0) }
    }

    /// The newest revision that changed anything.
    pub(crate) fn last_revision(&self) -> Revision {
        Revision(self.starts.end() as i64 - 1)
    }

    /// Frees some of all changes, for a copy that is not needed any more. Returns whether there are more.
    pub(crate) fn release(&mut self) -> bool {
        let holds_starts = self.starts.drop_branch();
        self.keys.drop_branch() || holds_starts
    }

    /// Number of the oldest change still kept.
    pub(crate) fn first(&self) -> u64 {
        self.keys.first()
    }

    /// Number that the next change will have.
    pub(crate) fn end(&self) -> u64 {
        self.keys.end()
    }

    /// Number of the first change at or after a revision that is still kept.
    pub(crate) fn start_of(&self, revision: Revision) -> u64 {
        match u64::try_from(revision.0) {
            Ok(revision) if revision >= self.starts.first() => {
                self.starts.get(revision).map_or_else(|| self.end(), |&start| start.max(self.first()))
            }
            _ => self.first(),
        }
    }

    /// The keys of all changes from this number on.
    pub(crate) fn keys_from(&self, number: u64) -> impl Iterator<Item = &Key> {
        self.keys.from(number)
    }

    pub(crate) fn key(&self, number: u64) -> &Key {
        self.keys.get(number).expect("a number of a change that is known")
    }

    /// Adds a change of the newest revision or of the next one.
    pub(crate) fn push(&mut self, revision: Revision, key: Key) {
        if revision > self.last_revision() {
            self.starts.push_back(self.end());
        }
        assert!(revision == self.last_revision(), "change at {revision} after {}", self.last_revision());
        self.keys.push_back(key);
    }

    /// Removes the last change.
    pub(crate) fn pop(&mut self) -> Option<Key> {
        let key = self.keys.pop_back()?;
        if self.starts.back() == Some(&self.end()) {
            self.starts.pop_back();
        }
        Some(key)
    }

    /// Forgets all changes below a number.
    pub(crate) fn forget_below(&mut self, number: u64) {
        self.keys.forget_below(number);
        while self.starts.get(self.starts.first() + 1).is_some_and(|&next| next <= number) {
            self.starts.pop_front();
        }
    }
}
#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use alloc::vec::Vec;

    fn changes(of: &[(i64, &str)]) -> Changes {
        let mut changes = Changes::starting_at(Revision::FIRST);
        of.iter().for_each(|&(revision, key)| changes.push(Revision(revision), Key::from(key.as_bytes())));
        changes
    }

    fn keys_of(changes: &Changes, revision: i64) -> String {
        let revision = Revision(revision);
        let (start, end) = (changes.start_of(revision), changes.start_of(revision.next()));
        let keys: Vec<u8> = (start..end).flat_map(|number| changes.key(number).to_vec()).collect();
        String::from_utf8(keys).expect("keys of these tests are letters")
    }

    #[test]
    fn each_revision_knows_its_keys_until_they_are_forgotten() {
        let mut changes = changes(&[(2, "a"), (3, "b"), (3, "c"), (4, "a"), (5, "d")]);
        let all = |changes: &Changes| (1..=6).map(|revision| keys_of(changes, revision)).collect::<Vec<_>>();
        assert_eq!(all(&changes), ["", "a", "bc", "a", "d", ""]);

        changes.forget_below(2);
        assert_eq!(
            (all(&changes), changes.starts.first()),
            (["", "", "c", "a", "d", ""].map(String::from).into(), 3)
        );
        changes.forget_below(3);
        assert_eq!(
            (all(&changes), changes.starts.first()),
            (["", "", "", "a", "d", ""].map(String::from).into(), 4)
        );
        assert_eq!((changes.first(), changes.end(), changes.last_revision()), (3, 5, Revision(5)));
    }

    #[test]
    fn the_last_changes_can_be_taken_back() {
        let mut changes = changes(&[(2, "a"), (3, "b"), (3, "c")]);
        assert_eq!(changes.pop().as_deref(), Some(&b"c"[..]));
        assert_eq!(changes.last_revision(), Revision(3));
        assert_eq!(changes.pop().as_deref(), Some(&b"b"[..]));
        assert_eq!(changes.last_revision(), Revision(2));
        changes.push(Revision(3), Key::from(&b"d"[..]));
        assert_eq!(keys_of(&changes, 3), "d");
    }
}
