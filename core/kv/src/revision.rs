//! Revision: the clock of a store.
//!
//! Knows nothing of: keys, requests, logs.

use alloc::vec::Vec;
use core::fmt;

/// The store's clock: the empty store is at 1, each command that changes a key raises it by exactly 1.
///
/// A position in the history of the store, which is not one in the log: a change of members has an index and no
/// revision. Requests hold what their clients wrote, negative numbers included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub i64);

impl Revision {
    /// No revision: the newest state, no bound, a key that is not there.
    pub const NONE: Revision = Revision(0);
    /// That of an empty store.
    pub const EMPTY: Revision = Revision(1);
    /// That of the first change of a store.
    pub const FIRST: Revision = Revision(2);

    /// The revision of the next change.
    #[must_use]
    pub const fn next(self) -> Revision {
        Revision(self.0 + 1)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How many revisions there may be for each item, so that items are put in order by counting.
const SPARSE_MAX: u64 = 16;

/// The place of each of these revisions among all of them in order, equal ones in the order in which they are here. `None` if
/// there are few of them between `first` and `last`, or others: then sorting is the better way.
pub(crate) fn places(
    revisions: impl Iterator<Item = Revision> + Clone,
    first: Revision,
    last: Revision,
) -> Option<Vec<u32>> {
    let from_first = |revision: Revision| u64::try_from(revision.0.checked_sub(first.0)?).ok();
    let span = from_first(last)?.checked_add(1)?;
    let count = u32::try_from(revisions.clone().count()).ok()?;
    if u64::from(count).checked_mul(SPARSE_MAX)? < span {
        return None;
    }
    let mut next = alloc::vec![0u32; usize::try_from(span).ok()?];
    for revision in revisions.clone() {
        *next.get_mut(usize::try_from(from_first(revision)?).ok()?)? += 1;
    }
    let mut before = 0;
    for place in &mut next {
        (*place, before) = (before, before + *place);
    }
    let place = |revision| {
        let next = next.get_mut(usize::try_from(from_first(revision)?).ok()?)?;
        *next += 1;
        Some(*next - 1)
    };
    revisions.map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn places_are_those_of_a_stable_sort() {
        let order = |revisions: &[i64], first: i64, last: i64| {
            places(revisions.iter().map(|&number| Revision(number)), Revision(first), Revision(last))
        };
        assert_eq!(order(&[5, 3, 9, 3, 4], 3, 9), Some(vec![3, 0, 4, 1, 2]));
        assert_eq!(order(&[5, 3], 4, 9), None, "one before the first");
        assert_eq!(order(&[5, 10], 4, 9), None, "one after the last");
        assert_eq!(order(&[5], 2, i64::MAX), None, "far fewer than revisions");
        assert_eq!(order(&[5, -3], i64::MIN, 9), None, "a span that is no number");
        assert_eq!(order(&[5], 9, 4), None, "no span");
    }
}
