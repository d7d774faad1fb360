//! Run: a short sorted list of keys, each with an item, that is searched without reading most of the keys.
//!
//! A key is behind a pointer, and following a pointer is a cache miss: searching 64 keys by their bytes would cost six.
//! So a run stores how many leading bytes all its keys share, and of each key the eight bytes after those (its *head*)
//! as one big-endian number, side by side and next to the run itself. A search compares heads, and then reads the bytes
//! of an existing key only once.
//! Knows nothing of: trees, the meaning of an item.

use crate::api::Key;
use alloc::vec::Vec;
use core::cmp::Ordering;

/// Most keys of a group: as many as a processor can wait for at once.
pub const GROUP_MAX: usize = 16;

/// Most entries of a run between two changes; there is room for one more during a change.
pub(crate) const RUN_MAX: usize = 64;

/// Entries by which a full run grows. It trades memory for copies: with 8, a growing run is copied once per eight keys,
/// and has capacity for four keys that do not exist.
const ROOM_STEP: usize = 4;

/// Insertions in a row after which keys seem to come in ascending order; random ones rarely do.
const IN_ORDER_MIN: i8 = 3;
/// The same for descending order, or more of them.
const DESCENDING: i8 = -IN_ORDER_MIN;

/// In the place of a head where no key is: no head is above it.
const NO_HEAD: u64 = u64::MAX;

/// How to search for a key in a run, and in a tree of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Assumes that the key begins as all keys of every run on the path do, which saves a cache miss in each. A hit is
    /// exact; a miss proves nothing.
    Boldly,
    /// Assumes nothing.
    Carefully,
}

/// Up to [`RUN_MAX`] distinct keys in ascending order, each with an item.
///
/// Invariant: every key begins with the same `shared` bytes; `heads[i]` is the head of the `i`th key. Behind those there is
/// [`NO_HEAD`], so that a search takes the same steps in every run.
#[derive(Clone, Debug)]
pub(crate) struct Run<T> {
    shared: usize,
    /// Index of the entry that was inserted last.
    newest: u8,
    /// How many insertions in a row came right behind the one before (above 0) or right in front of it (below 0).
    in_order: i8,
    entries: Vec<(Key, T)>,
    heads: [u64; RUN_MAX + 1],
}

impl<T> Default for Run<T> {
    fn default() -> Run<T> {
        Run { shared: 0, newest: 0, in_order: 0, entries: Vec::new(), heads: [NO_HEAD; RUN_MAX + 1] }
    }
}

impl<T> Run<T> {
    /// A run of these entries, at most [`RUN_MAX`] and in ascending order.
    pub(crate) fn of(entries: Vec<(Key, T)>) -> Run<T> {
        let mut run = Run { entries, ..Run::default() };
        run.share_most();
        run
    }

    pub(crate) fn into_entries(self) -> Vec<(Key, T)> {
        self.entries
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn entries(&self) -> &[(Key, T)] {
        &self.entries
    }

    pub(crate) fn key(&self, i: usize) -> &Key {
        &self.entries[i].0
    }

    pub(crate) fn get(&self, i: usize) -> &T {
        &self.entries[i].1
    }

    pub(crate) fn get_mut(&mut self, i: usize) -> &mut T {
        &mut self.entries[i].1
    }

    /// A key with its item, to be changed.
    pub(crate) fn entry_mut(&mut self, i: usize) -> (&Key, &mut T) {
        let (key, it) = &mut self.entries[i];
        (key, it)
    }

    /// Index of the key, if it exists.
    pub(crate) fn find(&self, key: &[u8], look: Look) -> Option<usize> {
        match look {
            Look::Boldly => {
                let (low, head) = self.low(key)?;
                match self.heads.get(low + 1) {
                    Some(next) if *next == head => self.guess(key).ok(), // equal heads decide nothing
                    _ => Some(low),
                }
                .filter(|&i| self.is_at(i, key))
            }
            Look::Carefully => self.search(key).ok(),
        }
    }

    /// Index of the last key that is not above this one, or of the first if all are.
    pub(crate) fn find_floor(&self, key: &[u8], look: Look) -> usize {
        let place = match look {
            Look::Boldly => self.guess(key),
            Look::Carefully => self.search(key),
        };
        place.unwrap_or_else(|i| i.saturating_sub(1))
    }

    /// Index of the key, or the index at which it would be inserted.
    pub(crate) fn search(&self, key: &[u8]) -> Result<usize, usize> {
        let Some((first, _)) = self.entries.first() else { return Err(0) };
        let common = key.len().min(self.shared);
        match key[..common].cmp(&first[..common]) {
            Ordering::Less => Err(0),
            Ordering::Greater => Err(self.len()),
            // A proper prefix of the shared bytes: below all keys.
            Ordering::Equal if common < self.shared => Err(0),
            Ordering::Equal => self.guess(key),
        }
    }

    /// Whether the key is the one at this index.
    pub(crate) fn is_at(&self, i: usize, key: &[u8]) -> bool {
        self.entries.get(i).is_some_and(|(other, _)| **other == *key)
    }

    /// Whether [`Run::find_floor`], boldly, returns this index; only heads are read, and if they do not suffice, it is not said.
    pub(crate) fn is_floor(&self, i: usize, key: &[u8]) -> bool {
        let (Some(head), Some([this, next])) =
            (head_from(key, self.shared), self.heads.get(i..i.saturating_add(2)))
        else {
            return false;
        };
        i < self.len() && *this < head && head < *next
    }

    /// How many heads are below that of a key, and that head; `None` if the key is too short for one.
    fn low(&self, key: &[u8]) -> Option<(usize, u64)> {
        let head = head_from(key, self.shared)?;
        let mut glance = Glance { head, below: 0 };
        STEPS.iter().for_each(|&step| glance.step(self, step));
        Some((glance.ended(self), head))
    }

    /// As `search` for a key that begins with the shared bytes, without checking that; meaningless for any other key.
    fn guess(&self, key: &[u8]) -> Result<usize, usize> {
        let Some((low, head)) = self.low(key) else { return Err(0) };
        let rest = &key[self.shared..];
        // The order of heads is the order of keys, but equal heads decide nothing.
        let ties = self.heads[low..self.len()].iter().take_while(|&&other| other == head).count();
        match self.entries[low..low + ties].binary_search_by(|(other, _)| other[self.shared..].cmp(rest)) {
            Ok(i) => Ok(low + i),
            Err(i) => Err(low + i),
        }
    }

    /// Inserts a key at the index that `search` returned.
    pub(crate) fn insert(&mut self, i: usize, key: Key, it: T) {
        let shared = match self.entries.first() {
            Some((first, _)) => shared_bytes(first, &key).min(self.shared),
            None => key.len(),
        };
        self.heads.copy_within(i..self.entries.len(), i + 1);
        self.heads[i] = head(&key, shared);
        self.in_order = match i.checked_sub(usize::from(self.newest)) {
            Some(1) => self.in_order.max(0).saturating_add(1),
            Some(0) => self.in_order.min(0).saturating_sub(1),
            _ => 0,
        };
        self.newest = i as u8;
        // A vector would double its capacity by default: most runs would be half empty.
        if self.entries.len() == self.entries.capacity() {
            self.entries.reserve_exact(ROOM_STEP.min(RUN_MAX + 1 - self.entries.len()));
        }
        self.entries.insert(i, (key, it));
        if shared != self.shared {
            self.take_heads(shared);
        }
    }

    pub(crate) fn remove(&mut self, i: usize) -> (Key, T) {
        self.heads.copy_within(i + 1..self.entries.len(), i);
        self.heads[self.entries.len() - 1] = NO_HEAD;
        self.in_order = 0;
        self.entries.remove(i)
    }

    /// Replaces the key of the first entry; it must still be below the second.
    pub(crate) fn replace_first(&mut self, key: Key) {
        self.entries[0].0 = key;
        self.share_most();
    }

    /// Splits a run in the middle; or right behind the newest key where keys ascend, and in front of all others where they
    /// descend to the first place, so that such keys leave full runs. Returns the right part.
    pub(crate) fn split(&mut self) -> Run<T> {
        let newest = usize::from(self.newest);
        let at = match self.in_order {
            IN_ORDER_MIN.. => (newest + 1).min(self.len() - 1),
            ..=DESCENDING if newest == 0 => 1,
            _ => self.len() / 2,
        };
        let mut right = Run::of(self.entries.split_off(at));
        if let Some(at_right) = newest.checked_sub(at) {
            right.newest = at_right as u8; // the next key in order comes beside it
            right.in_order = core::mem::take(&mut self.in_order);
        }
        if at + ROOM_STEP < self.entries.capacity() {
            self.entries.shrink_to(at + ROOM_STEP);
        }
        self.share_most();
        right
    }

    /// Appends the entries of a run whose keys are all above these; if `first` is given, it replaces that run's first
    /// key. Together they must have at most [`RUN_MAX`].
    pub(crate) fn append(&mut self, first: Option<Key>, mut right: Run<T>) {
        if let (Some(first), Some(entry)) = (first, right.entries.first_mut()) {
            entry.0 = first;
        }
        self.entries.append(&mut right.entries);
        self.share_most();
    }

    /// Recomputes the shared bytes: all keys between the first and the last share what these two share.
    fn share_most(&mut self) {
        let shared = match (self.entries.first(), self.entries.last()) {
            (Some((first, _)), Some((last, _))) => shared_bytes(first, last),
            _ => 0,
        };
        self.take_heads(shared);
    }

    fn take_heads(&mut self, shared: usize) {
        self.shared = shared;
        for (place, (key, _)) in self.heads.iter_mut().zip(&self.entries) {
            *place = head(key, shared);
        }
        self.heads[self.entries.len()..].fill(NO_HEAD);
    }
}

/// Powers of two whose sum is a place in a run: how far a search goes on at a time, as exponents.
const STEPS: [u32; 6] = [5, 4, 3, 2, 1, 0];
const _: () = assert!(RUN_MAX == 64, "the steps find as many heads");

/// What the heads of a run say of a key; no key has been read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Glance {
    head: u64,
    /// How many heads are below that of the key.
    below: usize,
}

impl Glance {
    /// Goes on by 2 to the power of `step` if so many more heads are below. All larger steps came before.
    fn step<T>(&mut self, run: &Run<T>, step: u32) {
        // Larger steps are multiples of this one: the bits are the sum. Without branches, which no processor foretells.
        let last = self.below | ((1 << step) - 1);
        self.below |= usize::from(run.heads[last % RUN_MAX] < self.head) << step;
    }

    /// How many heads are below, after all steps, which do not reach the last place.
    fn ended<T>(self, run: &Run<T>) -> usize {
        self.below + usize::from(run.heads[self.below % RUN_MAX] < self.head)
    }

    /// Index of the first key of the run that may be the key.
    pub(crate) fn place<T>(self, run: &Run<T>) -> Option<usize> {
        (self.below < run.len() && run.heads[self.below] == self.head).then_some(self.below)
    }

    /// As [`Run::find_floor`], boldly.
    pub(crate) fn floor<T>(self, run: &Run<T>, key: &[u8]) -> usize {
        match self.place(run) {
            Some(_) => run.find_floor(key, Look::Boldly), // equal heads decide nothing
            None => self.below.saturating_sub(1),
        }
    }
}

/// Looks for each key among the heads of its run, assuming that it begins as all keys of the run do. All searches go in step, so
/// that the processor waits for the memory of all of them at once, where it would wait for one after the other.
pub(crate) fn glance_in_step<T>(runs: &[&Run<T>], keys: &[&[u8]]) -> [Glance; GROUP_MAX] {
    let mut glances = [Glance::default(); GROUP_MAX];
    let group = &mut glances[..keys.len().min(GROUP_MAX)];
    for ((glance, run), key) in group.iter_mut().zip(runs).zip(keys) {
        glance.head = head_from(key, run.shared).unwrap_or(0); // a key that is too short is in none
    }
    for step in STEPS {
        group.iter_mut().zip(runs).for_each(|(glance, run)| glance.step(run, step));
    }
    group.iter_mut().zip(runs).for_each(|(glance, run)| glance.below = glance.ended(run));
    glances
}

/// The eight bytes from `from` on, as a number that compares as they do; zeros beyond the end of the key.
fn head(key: &[u8], from: usize) -> u64 {
    let rest = &key[from..];
    match (rest.first_chunk(), key.last_chunk()) {
        (Some(bytes), _) => u64::from_be_bytes(*bytes),
        // The key's last eight bytes without those before `from`: faster than copying a few.
        (None, Some(bytes)) => {
            let before = 8 - rest.len() as u32;
            u64::from_be_bytes(*bytes).checked_shl(8 * before).unwrap_or(0)
        }
        (None, None) => {
            let mut bytes = [0; 8];
            bytes[..rest.len()].copy_from_slice(rest);
            u64::from_be_bytes(bytes)
        }
    }
}

/// The head of a key that begins with the shared bytes; `None` if it is too short for that.
fn head_from(key: &[u8], shared: usize) -> Option<u64> {
    (shared <= key.len()).then(|| head(key, shared))
}

fn shared_bytes(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_compare_as_what_follows_the_shared_bytes() {
        let bytes = *b"\x80attu\xff\0ties logs\x01";
        for length in 0..=bytes.len() {
            for from in 0..=length {
                let key = &bytes[..length];
                let padded = key[from..].iter().copied().chain([0; 8]);
                let expected = padded.take(8).fold(0, |head, byte| head << 8 | u64::from(byte));
                assert_eq!(head(key, from), expected, "{length} bytes from {from} on");
            }
        }
    }
}
