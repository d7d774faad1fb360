//! History: the versions of one key that can still be read, oldest to newest.
//!
//! Most keys have one version most of the time, so the newest is stored in the index itself and only older ones cost a
//! heap block, which copies of the history share. A delete is a version without a value.
//! Knows nothing of: the key, other keys.

use crate::api::{Key, KeyValue, Revision, Value};
use crate::index::Weigh;
use crate::queue::Queue;
use crate::value::Generation;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// One version of a key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Version {
    pub(crate) mod_revision: Revision,
    /// The value that was put, with its generation; `None` is a delete.
    value: Option<Value>,
}

impl Version {
    /// The delete of a key.
    pub(crate) fn tombstone(mod_revision: Revision) -> Version {
        Version { mod_revision, value: None }
    }

    /// A put; `scratch` is a buffer for laying out the value.
    pub(crate) fn put(
        mod_revision: Revision,
        life: Generation,
        value: &[u8],
        scratch: &mut Vec<u8>,
    ) -> Version {
        Version { mod_revision, value: Some(Value::with_generation(value, mod_revision, life, scratch)) }
    }

    /// Whether the version is a put.
    pub(crate) fn lives(&self) -> bool {
        self.value.is_some()
    }

    /// The generation that the put recorded; zeros for a delete.
    pub(crate) fn life(&self) -> Generation {
        self.value.as_ref().map_or_else(Generation::default, |value| value.life(self.mod_revision))
    }

    /// The value; `None` for a delete.
    pub(crate) fn value(&self) -> Option<&[u8]> {
        self.value.as_deref()
    }

    /// As clients see it, without the value.
    pub(crate) fn to_bare(&self, key: &Key, empty: &Value) -> KeyValue {
        self.with_value(key, empty.clone())
    }

    /// As clients see it; a tombstone has an empty value.
    pub(crate) fn to_key_value(&self, key: &Key, empty: &Value) -> KeyValue {
        self.with_value(key, self.value.as_ref().unwrap_or(empty).clone())
    }

    fn with_value(&self, key: &Key, value: Value) -> KeyValue {
        let Generation { create_revision, version, lease } = self.life();
        KeyValue { key: key.clone(), create_revision, mod_revision: self.mod_revision, version, value, lease }
    }

    pub(crate) fn value_len(&self) -> usize {
        self.value.as_ref().map_or(0, |value| value.len())
    }
}

/// The versions of one key.
///
/// Invariant: mod revisions never fall from oldest to newest (one transaction may change a key more than once). The
/// default has no version and exists only during an insertion.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    newest: Version,
    /// Never empty. Behind a pointer, because most keys have no older version and the index holds very many histories.
    older: Option<Arc<Queue<Version>>>,
}

impl Weigh for History {
    /// 1 for a live key, otherwise 0.
    fn weight(&self) -> u64 {
        u64::from(self.newest.lives())
    }
}

impl History {
    /// The newest version if the key lives.
    pub(crate) fn live(&self) -> Option<&Version> {
        Some(&self.newest).filter(|version| version.lives())
    }

    /// The version visible at a revision, if the key was live then.
    pub(crate) fn at(&self, revision: Revision) -> Option<&Version> {
        let seen = if self.newest.mod_revision <= revision {
            &self.newest
        } else {
            let older = self.older.as_ref()?;
            let later = older.partition_point(|version| version.mod_revision <= revision);
            older.get(later.checked_sub(1)?)?
        };
        Some(seen).filter(|version| version.lives())
    }

    pub(crate) fn push(&mut self, version: Version) {
        let before = core::mem::replace(&mut self.newest, version);
        // A default history has no version to keep.
        if before.mod_revision > Revision::NONE {
            match &mut self.older {
                Some(older) => Arc::make_mut(older).push_back(before),
                None => self.older = Some(Arc::new(Queue::of(before))),
            }
        }
    }

    /// Removes the newest version; the history may be empty afterwards.
    pub(crate) fn pop(&mut self) -> Version {
        let before =
            self.older.as_mut().and_then(|older| Arc::make_mut(older).pop_back()).unwrap_or_default();
        self.drop_empty_block();
        core::mem::replace(&mut self.newest, before)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.newest.mod_revision == Revision::NONE
    }

    /// Forgets versions that no read at or after `compacted` sees, except changes *at* that revision, from which
    /// watches may still start. Removes at most `most` versions, the oldest first, and passes each to `forget`.
    pub(crate) fn trim(&mut self, compacted: Revision, most: usize, mut forget: impl FnMut(&Version)) {
        for _ in 0..self.forgotten(compacted, most) {
            let oldest = self.older.as_mut().and_then(|older| Arc::make_mut(older).pop_front());
            forget(&oldest.unwrap_or_else(|| core::mem::take(&mut self.newest)));
        }
        self.drop_empty_block();
    }

    /// The versions that [`History::trim`] would leave in the end.
    pub(crate) fn kept(&self, compacted: Revision) -> impl Iterator<Item = &Version> {
        (self.kept_from(compacted)..self.len()).map(|n| self.version(n))
    }

    /// Index of the first version that [`History::trim`] would leave in the end; [`History::len`] if there is none.
    /// Same rule as `forgotten`, without visiting every version.
    pub(crate) fn kept_from(&self, compacted: Revision) -> usize {
        let is_before = |version: &Version| version.mod_revision < compacted;
        let before = match &self.older {
            _ if self.is_empty() => 0,
            _ if is_before(&self.newest) => self.len(),
            Some(older) => (older.partition_point(is_before) - older.first()) as usize,
            None => 0,
        };
        let Some(last) = before.checked_sub(1) else { return 0 };
        let superseded = before < self.len() && self.version(before).mod_revision <= compacted;
        if superseded || !self.version(last).lives() { before } else { last }
    }

    /// The number of versions.
    pub(crate) fn len(&self) -> usize {
        self.older.as_ref().map_or(0, |older| older.len()) + usize::from(!self.is_empty())
    }

    /// The `n`th version, the oldest first; beyond the last one, the newest.
    pub(crate) fn version(&self, n: usize) -> &Version {
        self.older.as_ref().and_then(|older| older.get(older.first() + n as u64)).unwrap_or(&self.newest)
    }

    /// How many of the oldest versions may be forgotten, at most `most`.
    fn forgotten(&self, compacted: Revision, most: usize) -> usize {
        let len = self.len();
        let goes = |n: &usize| {
            let version = self.version(*n);
            let superseded = n + 1 < len && self.version(n + 1).mod_revision <= compacted;
            version.mod_revision < compacted && (superseded || !version.lives())
        };
        (0..len.min(most)).take_while(goes).count()
    }

    fn drop_empty_block(&mut self) {
        if self.older.as_ref().is_some_and(|older| older.is_empty()) {
            self.older = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(versions: &[(i64, bool)]) -> History {
        let mut history = History::default();
        for &(mod_revision, lives) in versions {
            let mod_revision = Revision(mod_revision);
            history.push(match lives {
                true => Version::put(mod_revision, Generation::default(), b"", &mut Vec::new()),
                false => Version::tombstone(mod_revision),
            });
        }
        history
    }

    fn revisions<'a>(versions: impl Iterator<Item = &'a Version>) -> Vec<i64> {
        versions.map(|version| version.mod_revision.0).collect()
    }

    #[test]
    fn compaction_keeps_what_reads_and_watches_at_its_revision_may_see() {
        let (put, delete) = (true, false);
        type Case<'a> = (&'a str, &'a [(i64, bool)], i64, &'a [i64]);
        let cases: [Case<'_>; 9] = [
            ("the newest at or before it", &[(2, put), (3, put), (5, put)], 4, &[3, 5]),
            ("a put at it", &[(2, put), (4, put), (5, put)], 4, &[4, 5]),
            ("a delete at it, for watches", &[(2, put), (4, delete)], 4, &[4]),
            ("no delete before it", &[(2, put), (3, delete)], 4, &[]),
            ("no delete before it, life after it", &[(2, put), (3, delete), (5, put)], 4, &[5]),
            ("every change at it", &[(2, put), (4, delete), (4, put)], 4, &[4, 4]),
            ("all after it", &[(5, put), (6, delete), (7, put)], 4, &[5, 6, 7]),
            ("the only version, however old", &[(2, put)], 4, &[2]),
            ("nothing is left of a life before", &[(2, put), (3, delete), (4, put), (6, put)], 5, &[4, 6]),
        ];
        for (name, versions, compacted, expected) in cases {
            let (mut history, compacted) = (history(versions), Revision(compacted));
            assert_eq!(revisions(history.kept(compacted)), expected, "{name}");
            // In steps, as the store does it.
            for _ in versions {
                history.trim(compacted, 1, |_| {});
            }
            let left = revisions((0..history.len()).map(|n| history.version(n)));
            assert_eq!(left, expected, "{name}, step by step");
            assert_eq!(history.is_empty(), expected.is_empty(), "{name}");
        }
    }
}
