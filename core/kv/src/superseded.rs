//! Superseded: the versions that newer versions of their keys have replaced, in the order in which they were replaced.
//!
//! ```text
//!   number   first                                                 end
//!            ├ a@2 ┼ b@3 ┼ a@5 ┼ c@4 ┼ a@7 ┤
//!               ▲           │ ▲           │ ▲
//!               └───────────┘ └───────────┘ └──── the history of a: newest a@9, before it number 4
//! ```
//!
//! A compaction forgets from the front, so it looks for no key and changes none. Each version has the number of its
//! key's version before it, and a second number that skips more of them. Every sixteenth of a key is a *mark*: the skips of
//! marks find any mark in O(log n) steps, however many there are (Myers 1983, "An applicative random-access stack"), and
//! the others skip to the mark before them. Where the last mark is, the key's [`Chain`] knows: so a version that is
//! replaced looks at no other one, which would be anywhere in memory, but for one in sixteen.
//!
//! Rule:  a version before `first` is forgotten, and whoever has its number has none.
//!
//! A version that was replaced in its own revision stays as long as that is the compacted one, because watches may start
//! there. Those behind it are emptied meanwhile; their places go later.
//! Knows nothing of: keys, the newest versions.

use crate::api::Revision;
use crate::history::Version;
use crate::queue::Queue;
use crate::revision::places;
use alloc::vec::Vec;

/// The number of no version.
const NONE: u64 = u64::MAX;

/// Of the versions of a key, one in so many is a mark.
const MARK_EVERY: u64 = 16;

/// Versions of a key that a walk finds at once lie within so many numbers.
const FOUND_AT_ONCE: u64 = 1 << 16;

/// Where the replaced versions of a key are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chain {
    /// Number of the newest of them; it may be forgotten.
    newest: u64,
    /// Number of the newest mark among them, times [`MARK_EVERY`], and how many are newer than that mark.
    mark: u64,
}

impl Default for Chain {
    fn default() -> Chain {
        Chain { newest: NONE, mark: 0 }
    }
}

impl Chain {
    /// Number of the newest replaced version, which may be forgotten.
    pub(crate) fn newest(self) -> u64 {
        self.newest
    }

    /// Whether no version of the key was ever replaced.
    pub(crate) fn is_empty(self) -> bool {
        self.newest == NONE
    }

    /// Number of the newest mark.
    fn mark(self) -> u64 {
        self.mark / MARK_EVERY
    }

    /// How many versions are newer than that mark.
    fn beyond(self) -> u64 {
        self.mark % MARK_EVERY
    }
}

/// Whether the last two skips on the way from the first mark of a key to the mark with so many before it are of the same
/// length. The lengths of the skips are those of the number's skew binary form: of each the largest of 1, 3, 7, 15, … that
/// is not above the rest. [Myers 1983]
fn ends_in_two_equal_skips(place: u64) -> bool {
    let (mut rest, mut last) = (place, 0);
    while 0 < rest {
        let longest = (u64::MAX >> 1) >> (rest + 1).leading_zeros();
        if rest == longest {
            return longest == last;
        }
        (rest, last) = (rest - longest, longest);
    }
    false
}

/// A version that was replaced.
#[derive(Clone, Debug)]
pub(crate) struct Replaced {
    pub(crate) version: Version,
    /// The revision of the version that replaced it.
    until: Revision,
    /// Number of the version before it.
    pub(crate) before: u64,
    /// Of a mark: number of some mark before it, with O(log n) such steps to any. Of another version: the mark before it.
    skip: u64,
    /// Of a mark: how many versions of its key were there before it, at most, times [`MARK_EVERY`]. Of another version:
    /// how many lie between it and the mark before it, that mark counted: 1 to 15.
    depth: u64,
}

impl Replaced {
    fn is_mark(&self) -> bool {
        self.depth.is_multiple_of(MARK_EVERY)
    }

    /// Whether no read at or after `compacted` sees it. A change *at* that revision stays: watches may start there.
    pub(crate) fn is_unread(&self, compacted: Revision) -> bool {
        self.version.mod_revision < compacted && (self.until <= compacted || !self.version.lives())
    }
}

/// All versions that were replaced and are not forgotten.
#[derive(Clone, Debug)]
pub(crate) struct Superseded {
    versions: Queue<Replaced>,
    /// Versions before this number are forgotten, empty, or must stay.
    passed: u64,
}

impl Default for Superseded {
    fn default() -> Superseded {
        Superseded { versions: Queue::starting_at(0), passed: 0 }
    }
}

impl Superseded {
    /// Adds a version that one at revision `until` replaces, where no version was replaced later; `chain` are those of its
    /// key before it. Returns the chain with it.
    pub(crate) fn push(&mut self, version: Version, until: Revision, chain: Chain) -> Chain {
        let number = self.versions.end();
        let depth = chain.beyond() + 1;
        let (skip, depth, mark) = if chain.is_empty() {
            (NONE, 0, number * MARK_EVERY)
        } else if depth < MARK_EVERY {
            (chain.mark(), depth, chain.mark + 1)
        } else {
            let (skip, depth) = match self.get(chain.mark()) {
                None => (NONE, 0),
                Some(last) => {
                    (self.skip_over(last).unwrap_or(chain.mark()), last.depth + MARK_EVERY * MARK_EVERY)
                }
            };
            (skip, depth, number * MARK_EVERY)
        };
        self.versions.push_back(Replaced { version, until, before: chain.newest, skip, depth });
        Chain { newest: number, mark }
    }

    /// The chain whose newest version has this number.
    fn chain(&self, newest: u64) -> Chain {
        match self.get(newest) {
            None => Chain::default(),
            Some(found) if found.is_mark() => Chain { newest, mark: newest * MARK_EVERY },
            Some(found) => Chain { newest, mark: found.skip * MARK_EVERY + found.depth },
        }
    }

    /// Where the mark after `last` skips to, if that is farther than to `last` itself: two skips of the same length
    /// become one. Whether they are of the same length follows from `last`'s place, so that no other mark is read for it.
    fn skip_over(&self, last: &Replaced) -> Option<u64> {
        let place = last.depth / (MARK_EVERY * MARK_EVERY);
        let farther = if ends_in_two_equal_skips(place) { self.get(last.skip)?.skip } else { NONE };
        (farther != NONE && self.versions.first() <= farther).then_some(farther)
    }

    /// The same versions in the order in which they were replaced, the last of them at `last` at the latest: those of each key
    /// were pushed one after the other, key by key. `renumber` gets, for each chain that there was, the one that it is now.
    pub(crate) fn in_order(
        self,
        last: Revision,
        renumber: impl FnOnce(&dyn Fn(Chain) -> Chain),
    ) -> Superseded {
        let by_time = self.by_time(last);
        if by_time.is_empty() {
            return self;
        }
        let mut numbers = alloc::vec![NONE; by_time.len()];
        let now = |numbers: &[u64], before: u64| match before {
            NONE => NONE,
            _ => numbers[before as usize],
        };
        let mut ordered = Superseded::default();
        for number in by_time {
            let Some(Replaced { version, until, before, .. }) = self.get(number) else { continue };
            let chain = ordered.chain(now(&numbers, *before));
            numbers[number as usize] = ordered.push(version.clone(), *until, chain).newest;
        }
        renumber(&|chain| ordered.chain(now(&numbers, chain.newest)));
        ordered
    }

    /// The numbers of all versions in the order in which they were replaced: within a key by age.
    fn by_time(&self, last: Revision) -> Vec<u64> {
        let (start, end) = (self.versions.first(), self.versions.end());
        let replaced = || self.versions.from(start).map(|found| found.until);
        let first = replaced().min().unwrap_or(Revision::NONE);
        match places(replaced(), first, last) {
            Some(places) => {
                let mut by_time = alloc::vec![NONE; places.len()];
                (start..end).zip(places).for_each(|(number, place)| by_time[place as usize] = number);
                by_time
            }
            None => {
                let mut by_time: Vec<u64> = (start..end).collect();
                by_time.sort_by_key(|&number| self.get(number).map(|found| found.until)); // stable
                by_time
            }
        }
    }

    /// Takes the last version back, with the chain of its key's versions before it.
    pub(crate) fn pop(&mut self) -> Option<(Version, Chain)> {
        let last = self.versions.pop_back()?;
        Some((last.version, self.chain(last.before)))
    }

    /// The version of this number; `None` if it is forgotten.
    pub(crate) fn get(&self, number: u64) -> Option<&Replaced> {
        self.versions.get(number)
    }

    /// Number of the oldest version for which `holds`, among the version `from` and those of its key before it. It must
    /// hold for all from `from` to that one, and for none before.
    pub(crate) fn oldest(&self, from: u64, holds: impl Fn(u64, &Replaced) -> bool) -> Option<u64> {
        let checked = |number: u64| self.get(number).filter(|found| holds(number, found));
        let mut oldest = (from, checked(from)?);
        loop {
            let (skip, before) = (oldest.1.skip, oldest.1.before);
            let step = |number: u64| checked(number).map(|found| (number, found));
            match step(skip).or_else(|| step(before)) {
                Some(older) => oldest = older,
                None => return Some(oldest.0),
            }
        }
    }

    /// Number of the newest version at or before a revision, among the version `from` and those of its key before it.
    pub(crate) fn at(&self, from: u64, revision: Revision) -> Option<&Version> {
        match self.oldest(from, |_, found| found.version.mod_revision > revision) {
            Some(later) => self.get(self.get(later)?.before),
            None => self.get(from),
        }
        .map(|found| &found.version)
    }

    /// How many versions lie from the version `oldest` to the version `newest`, both counted, of one key.
    pub(crate) fn count(&self, oldest: u64, newest: u64) -> u64 {
        let (mut number, mut count) = (newest, 1);
        while let Some(found) = self.get(number)
            && oldest < number
        {
            let skipped = self.get(found.skip).filter(|_| oldest <= found.skip);
            (number, count) = match skipped {
                Some(mark) if found.is_mark() => {
                    (found.skip, count + (found.depth - mark.depth) / MARK_EVERY)
                }
                Some(_) => (found.skip, count + found.depth),
                None => (found.before, count + 1),
            };
        }
        if number == oldest { count } else { 0 }
    }

    /// Numbers of versions of one key, the newest of them first: those from `oldest` on, as far as they are found at once;
    /// `newest` is the last of all.
    pub(crate) fn some_from(&self, oldest: u64, newest: u64) -> Vec<u64> {
        let end = oldest.saturating_add(FOUND_AT_ONCE);
        let later = (end < newest).then(|| self.oldest(newest, |number, _| end < number)).flatten();
        let last = later.map_or(newest, |later| self.before(later));
        let found = core::iter::successors(Some(last), |&number| Some(self.before(number)));
        found.take_while(|&number| number != NONE && oldest <= number).collect()
    }

    /// Number of the version after this one, of the key whose last one is `newest`.
    pub(crate) fn after(&self, number: u64, newest: u64) -> Option<u64> {
        self.oldest(newest, |other, _| number < other)
    }

    /// Number of the version of its key before this one.
    pub(crate) fn before(&self, number: u64) -> u64 {
        self.get(number).map_or(NONE, |found| found.before)
    }

    /// Frees some of all versions, for a copy that is not needed any more. Returns whether there are more.
    pub(crate) fn release(&mut self) -> bool {
        self.versions.drop_branch()
    }

    /// Passes the versions that must stay although they were replaced by the compacted revision, where no other is to be
    /// forgotten: of a store that was just loaded.
    pub(crate) fn pass(&mut self, compacted: Revision) {
        while self.get(self.passed).is_some_and(|next| next.until <= compacted) {
            self.passed += 1;
        }
    }

    /// Whether [`Superseded::forget`] would go on.
    pub(crate) fn may_forget(&self, compacted: Revision) -> bool {
        let is_unread = |found: &Replaced| found.is_unread(compacted);
        let first = self.get(self.versions.first());
        first.is_some_and(|first| first.until <= compacted)
            && (first.is_some_and(is_unread)
                || self.get(self.passed).is_some_and(|next| next.until <= compacted))
    }

    /// Forgets one version that no read sees, the oldest first, or passes one. `None` if there is nothing more to do; the
    /// default if no version was forgotten.
    pub(crate) fn forget(&mut self, compacted: Revision) -> Option<Version> {
        // A version that was replaced after the compacted revision may be needed again: its command may be taken back.
        let goes = |oldest: &Replaced| oldest.until <= compacted && oldest.is_unread(compacted);
        if let Some(oldest) = self.versions.pop_front_if(goes) {
            self.passed = self.passed.max(self.versions.first());
            return Some(oldest.version);
        }
        let next = self.get(self.passed).filter(|next| next.until <= compacted)?;
        let is_unread = next.is_unread(compacted);
        self.passed += 1;
        let next = self.versions.get_mut(self.passed - 1).filter(|_| is_unread);
        Some(next.map_or_else(Version::default, |next| core::mem::take(&mut next.version)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Generation;
    use proptest::prelude::*;

    fn put(at: i64) -> Version {
        Version::put(Revision(at), Generation::default(), b"", &mut Vec::new())
    }

    #[test]
    fn skips_are_as_long_as_those_of_a_list_that_compares_them() {
        let mut superseded = Superseded::default();
        let mut chain = Chain::default();
        let mut marks: Vec<(u64, u64)> = Vec::new(); // the number of each, and of the one that it skips to
        for at in 0..MARK_EVERY * 5_000 {
            chain = superseded.push(put(at as i64), Revision(at as i64 + 1), chain);
            let found = superseded.get(chain.newest).expect("just pushed");
            if found.is_mark() {
                marks.push((chain.newest, found.skip));
            }
        }
        let skip = |place: usize| marks[..place].iter().position(|&(number, _)| number == marks[place].1);
        assert_eq!(marks[0].1, NONE);
        for last in 0..marks.len() - 1 {
            let once = skip(last);
            let twice = once.and_then(skip);
            let is_longer = once.zip(twice).is_some_and(|(once, twice)| last - once == once - twice);
            assert_eq!(skip(last + 1), if is_longer { twice } else { Some(last) }, "after mark {last}");
        }
    }

    proptest! {
        /// Goal: what is found by skips is what a walk over all versions finds. Method: versions of three keys by turns,
        /// some forgotten, in all searches from all of them.
        #[test]
        fn a_search_finds_what_a_walk_finds(steps in proptest::collection::vec((0..3usize, 0..40u8), 1..600)) {
            let mut superseded = Superseded::default();
            let (mut last, mut compacted) = ([Chain::default(); 3], 0);
            let mut all: Vec<(usize, u64, i64)> = Vec::new(); // key, number, revision
            for (at, (key, forget)) in steps.into_iter().enumerate() {
                let at = at as i64 + 1;
                last[key] = superseded.push(put(at), Revision(at + 1), last[key]);
                all.push((key, last[key].newest, at));
                prop_assert_eq!(superseded.chain(last[key].newest), last[key]);
                if forget == 0 {
                    compacted += 2;
                    while superseded.forget(Revision(compacted)).is_some() {}
                    all.retain(|&(_, number, _)| superseded.get(number).is_some());
                }
            }
            for (key, newest) in last.iter().map(|chain| chain.newest).enumerate() {
                let of_key: Vec<_> = all.iter().filter(|of| of.0 == key).collect();
                for &&(_, number, at) in &of_key {
                    let found = superseded.at(newest, Revision(at)).map(|found| found.mod_revision);
                    prop_assert_eq!(found, Some(Revision(at)));
                    prop_assert_eq!(superseded.oldest(newest, |other, _| other >= number), Some(number));
                    let newer = of_key.iter().filter(|of| of.1 >= number).count();
                    prop_assert_eq!(superseded.count(number, newest), newer as u64);
                }
                if let Some(&&(_, oldest, _)) = of_key.first() {
                    let mut found = superseded.some_from(oldest, newest);
                    found.reverse();
                    prop_assert_eq!(found, of_key.iter().map(|of| of.1).collect::<Vec<_>>());
                }
                if let Some((_, _, oldest)) = of_key.first() {
                    prop_assert!(superseded.at(newest, Revision(oldest - 1)).is_none());
                }
            }
        }
    }

    #[test]
    fn a_delete_that_a_later_command_replaced_can_be_taken_back() {
        let mut superseded = Superseded::default();
        superseded.push(Version::tombstone(Revision(2)), Revision(9), Chain::default());
        assert!(!superseded.may_forget(Revision(5)) && superseded.forget(Revision(5)).is_none());
        assert!(superseded.pop().is_some_and(|(version, before)| !version.lives() && before.is_empty()));
    }

    #[test]
    fn a_version_among_a_million_of_its_key_is_found_in_few_steps() {
        let mut superseded = Superseded::default();
        let mut last = Chain::default();
        for at in 1..=1_000_000 {
            last = superseded.push(put(at), Revision(at + 1), last);
        }
        for wanted in [0, 1, 500_000, 777_777, 999_999] {
            let steps = core::cell::Cell::new(0);
            let found = superseded.oldest(last.newest, |number, _| {
                steps.set(steps.get() + 1);
                number >= wanted
            });
            assert!(found == Some(wanted) && steps.get() < 120, "{found:?} in {} steps", steps.get());
        }
        assert_eq!(superseded.count(0, last.newest), 1_000_000);
        // A walk finds all of them, in order, some at a time.
        let (mut next, mut walked) = (Some(0), 0);
        while let Some(oldest) = next {
            let found = superseded.some_from(oldest, last.newest);
            assert!(
                found.len() as u64 <= FOUND_AT_ONCE + 1 && found.iter().rev().copied().eq(walked..=found[0])
            );
            walked = found[0] + 1;
            next = superseded.after(found[0], last.newest);
        }
        assert_eq!(walked, 1_000_000);
    }
}
