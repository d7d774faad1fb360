//! Kept: the older versions of the keys of a leaf that a dump writes, found for all of these keys in step.
//!
//! A version leads to the one before it, which is anywhere in memory. A walk through one key waits for each of them; a step of
//! all keys at once waits for all together. The values are read, too: whoever writes the versions finds them near.
//! Knows nothing of: the form of a dump.

use crate::api::Revision;
use crate::history::History;
use crate::run::{RUN_MAX, Run};
use crate::superseded::Superseded;
use alloc::vec::Vec;

/// Older versions of a key that are looked for in step. What lies beyond is found by a walk of its own: the versions of a key
/// that was put so often are close to each other.
const STEPS_MAX: usize = 64;

const _: () = assert!(RUN_MAX <= u64::BITS as usize, "a bit for each key of a leaf");

/// The older versions of the keys of a leaf.
#[derive(Debug)]
pub(crate) struct Kept {
    /// Index of the key, and the number of a version: key by key, of each the newest first.
    found: Vec<(u8, u64)>,
    /// A bit for each key of which there may be more.
    more: u64,
}

impl Kept {
    /// Finds the older versions that a read at or after `compacted` sees, or a watch from there on.
    pub(crate) fn of(leaf: &Run<History>, superseded: &Superseded, compacted: Revision) -> Kept {
        let histories = (0u8..).zip(leaf.entries());
        let mut next: Vec<(u8, u64)> = histories.map(|(i, (_, history))| (i, history.older())).collect();
        let mut kept = Kept { found: Vec::new(), more: 0 };
        let mut read = 0u8;
        for _ in 0..STEPS_MAX {
            next.retain_mut(|(i, number)| {
                let Some(older) = superseded.get(*number).filter(|older| !older.is_unread(compacted)) else {
                    return false;
                };
                kept.found.push((*i, *number));
                read ^= older.version.value().map_or(0, |value| value.len() as u8);
                *number = older.before;
                true
            });
            if next.is_empty() {
                break;
            }
        }
        core::hint::black_box(read);
        kept.more = next.iter().fold(0, |more, (i, _)| more | 1 << i);
        kept.found.sort_by_key(|(i, _)| *i); // stable: of each key the newest first
        kept
    }

    /// The numbers of the older versions of this key of the leaf, the newest first; `None` if there may be more.
    pub(crate) fn older(&self, i: usize) -> Option<Vec<u64>> {
        if self.more & 1 << i != 0 {
            return None;
        }
        let first = self.found.partition_point(|(other, _)| usize::from(*other) < i);
        let of_key = self.found[first..].iter().take_while(|(other, _)| usize::from(*other) == i);
        Some(of_key.map(|(_, number)| *number).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Key;
    use crate::history::{Place, Version, Versions};
    use crate::value::Generation;

    #[test]
    fn what_is_found_in_step_is_what_a_walk_through_each_key_finds() {
        let counts = [0, 1, 2, STEPS_MAX - 1, STEPS_MAX, STEPS_MAX + 1, 3 * STEPS_MAX];
        let mut histories: Vec<_> = counts.iter().map(|_| History::default()).collect();
        let (mut superseded, mut revision) = (Superseded::default(), Revision::FIRST);
        for round in 0..=3 * STEPS_MAX {
            for (history, _) in histories.iter_mut().zip(counts).filter(|(_, count)| round <= *count) {
                let version = match round % 5 {
                    4 => Version::tombstone(revision),
                    _ => Version::put(revision, Generation::default(), b"v", &mut Vec::new()),
                };
                history.push(version, &mut superseded);
                revision = revision.next();
            }
        }
        let mut run = Run::default();
        for (i, history) in histories.into_iter().enumerate() {
            run.insert(i, Key::from([i as u8]), history);
        }
        let mut unknown = 0;
        for compacted in (-1..revision.0).step_by(7).map(Revision) {
            let kept = Kept::of(&run, &superseded, compacted);
            for (i, (_, history)) in run.entries().iter().enumerate() {
                let Some(older) = kept.older(i) else {
                    unknown += 1;
                    continue;
                };
                let versions = Versions { history, superseded: &superseded };
                let found = older.iter().rev().map(|&number| versions.version(Place::Older(number)));
                let walked: Vec<_> = versions.kept(compacted).collect();
                if versions.keeps_newest(compacted) {
                    let found: Vec<_> = found.chain(history.newest()).collect();
                    assert_eq!(found, walked, "key {i}, compacted at {compacted}");
                } else {
                    assert!(walked.is_empty(), "key {i}, compacted at {compacted}");
                }
            }
        }
        assert!(0 < unknown, "keys with more versions than steps are left to a walk");
    }
}
