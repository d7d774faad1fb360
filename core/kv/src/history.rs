//! History: the versions of one key that can still be read, oldest to newest.
//!
//! Most keys have one version most of the time, so the newest is stored in the index itself. The older ones of all keys are
//! in one queue (`superseded.rs`), of which a history has a number. A delete is a version without a value.
//! Knows nothing of: the key, other keys.

use crate::api::{Key, KeyValue, Revision, Value};
use crate::index::Weigh;
use crate::superseded::{Chain, Superseded};
use crate::value::Generation;
use alloc::vec::Vec;

/// One version of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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

/// The newest version of a key, and where the one before it is.
///
/// Invariant: mod revisions never fall from oldest to newest (one transaction may change a key more than once). The
/// default has no version and exists only during an insertion.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    newest: Version,
    /// The versions before.
    older: Chain,
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

    /// The newest version, which may be a delete.
    pub(crate) fn newest(&self) -> Option<&Version> {
        (!self.is_empty()).then_some(&self.newest)
    }

    pub(crate) fn push(&mut self, version: Version, superseded: &mut Superseded) {
        let until = version.mod_revision;
        let before = core::mem::replace(&mut self.newest, version);
        // A default history has no version to keep.
        if before.mod_revision > Revision::NONE {
            self.older = superseded.push(before, until, self.older);
        }
    }

    /// Removes the newest version, if it is the last that replaced one; the history may be empty afterwards.
    pub(crate) fn pop(&mut self, superseded: &mut Superseded) -> Version {
        let (before, older) = match self.older.is_empty() {
            true => Default::default(),
            false => superseded.pop().unwrap_or_default(),
        };
        self.older = older;
        core::mem::replace(&mut self.newest, before)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.newest.mod_revision == Revision::NONE
    }

    /// Number of the version before the newest; it may be forgotten, or none.
    pub(crate) fn older(&self) -> u64 {
        self.older.newest()
    }

    /// Names the versions before anew: a load numbers them when it knows all.
    pub(crate) fn renumber(&mut self, renumber: impl FnOnce(Chain) -> Chain) {
        if !self.older.is_empty() {
            self.older = renumber(self.older);
        }
    }
}

/// One of the versions of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The number of one that was replaced.
    Older(u64),
    Newest,
}

/// The versions of one key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Versions<'a> {
    pub(crate) history: &'a History,
    pub(crate) superseded: &'a Superseded,
}

impl<'a> Versions<'a> {
    /// The version visible at a revision, if the key was live then.
    pub(crate) fn at(self, revision: Revision) -> Option<&'a Version> {
        let seen = match &self.history.newest {
            newest if newest.mod_revision <= revision => Some(newest),
            _ => self.superseded.at(self.history.older.newest(), revision),
        };
        seen.filter(|version| version.lives())
    }

    /// The oldest version that a read at or after `compacted` sees, or that is a change *at* that revision, from which
    /// watches may still start; `None` if there is none.
    pub(crate) fn first_kept(self, compacted: Revision) -> Option<Place> {
        if !self.keeps_newest(compacted) {
            return None;
        }
        let kept =
            self.superseded.oldest(self.history.older.newest(), |_, found| !found.is_unread(compacted));
        Some(kept.map_or(Place::Newest, Place::Older))
    }

    /// Whether the newest version is kept; if it is not, no other is.
    pub(crate) fn keeps_newest(self, compacted: Revision) -> bool {
        let newest = self.history.newest();
        newest.is_some_and(|newest| compacted <= newest.mod_revision || newest.lives())
    }

    /// The versions from the first one kept on, oldest to newest.
    pub(crate) fn kept(self, compacted: Revision) -> impl Iterator<Item = &'a Version> {
        let mut walk = self.first_kept(compacted).map(|first| Walk::from(first, self));
        core::iter::from_fn(move || walk.as_mut()?.next(self).map(|place| self.version(place)))
    }

    /// The version before one.
    pub(crate) fn before(self, place: Place) -> Option<&'a Version> {
        let number = match place {
            Place::Newest => self.history.older.newest(),
            Place::Older(number) => self.superseded.before(number),
        };
        self.superseded.get(number).map(|found| &found.version)
    }

    /// The version at a place, which must not be forgotten.
    pub(crate) fn version(self, place: Place) -> &'a Version {
        match place {
            Place::Newest => &self.history.newest,
            Place::Older(number) => &self.superseded.get(number).expect("a place that was found").version,
        }
    }

    /// How many versions there are from a place on.
    pub(crate) fn count_from(self, place: Place) -> u64 {
        match place {
            Place::Newest => 1,
            Place::Older(number) => self.superseded.count(number, self.history.older.newest()) + 1,
        }
    }
}

/// A walk through the versions of a key, from oldest to newest. Each leads only to the one before it, so some are found at
/// once, backwards.
#[derive(Debug)]
pub(crate) struct Walk {
    /// Numbers of those that are next, the newest first.
    found: Vec<u64>,
    /// The newest of the versions that were found so far; none if only the newest of all is left.
    last: Option<u64>,
    is_over: bool,
}

impl Walk {
    /// From this version on.
    pub(crate) fn from(first: Place, versions: Versions<'_>) -> Walk {
        let found = match first {
            Place::Newest => Vec::new(),
            Place::Older(oldest) => versions.superseded.some_from(oldest, versions.history.older.newest()),
        };
        Walk { last: found.first().copied(), found, is_over: false }
    }

    /// Through older versions of which all numbers are known, the newest first, and the newest version.
    pub(crate) fn through(older: Vec<u64>) -> Walk {
        Walk { found: older, last: None, is_over: false }
    }

    /// Whether the newest version was the last one found.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// The next version.
    pub(crate) fn next(&mut self, versions: Versions<'_>) -> Option<Place> {
        let newest = versions.history.older.newest();
        if self.found.is_empty()
            && let Some(last) = self.last.take()
            && let Some(after) = versions.superseded.after(last, newest)
        {
            self.found = versions.superseded.some_from(after, newest);
            self.last = self.found.first().copied();
        }
        match self.found.pop() {
            Some(number) => Some(Place::Older(number)),
            None if core::mem::replace(&mut self.is_over, true) => None,
            None => Some(Place::Newest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let (mut history, mut superseded) = (History::default(), Superseded::default());
            let compacted = Revision(compacted);
            for &(mod_revision, lives) in versions {
                let mod_revision = Revision(mod_revision);
                let version = match lives {
                    true => Version::put(mod_revision, Generation::default(), b"", &mut Vec::new()),
                    false => Version::tombstone(mod_revision),
                };
                history.push(version, &mut superseded);
            }
            let kept = |superseded: &Superseded| {
                let versions = Versions { history: &history, superseded };
                let kept: Vec<i64> = versions.kept(compacted).map(|version| version.mod_revision.0).collect();
                let counted = versions.first_kept(compacted).map_or(0, |first| versions.count_from(first));
                assert_eq!(counted, kept.len() as u64, "{name}");
                kept
            };
            assert_eq!(kept(&superseded), expected, "{name}");
            // Step by step, as the store forgets.
            while superseded.forget(compacted).is_some() {
                assert_eq!(kept(&superseded), expected, "{name}, step by step");
            }
        }
    }
}
