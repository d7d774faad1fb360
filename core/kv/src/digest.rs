//! Digest: hashes of a store, to check that members still agree.
//!
//! Three digests, from the cheapest to the most thorough:
//!
//! | Digest | Costs | Compares |
//! |---|---|---|
//! | [`Store::running_digest`] | some tens of nanoseconds with each change | all changes ever applied |
//! | [`HashKv`] | a walk over a pin, in steps, on any thread | every version at or below a revision |
//! | [`Store::digest`] | a walk in one go | everything; for tests and checkers |
//!
//! **The running digest** takes in each change in log order: key, revisions, version, lease and value of the new
//! version, and of the version it replaces all but the bytes of the value. A compaction goes in as its revision alone,
//! so it does not matter when a member forgets. Two digests that differ never agree again by themselves (each step is a
//! bijection of the digest before), except with a chance of 1 in 2^64 for two differences that cancel. A copy or a dump
//! carries the digest along, so a member that takes over another's state agrees with it from then on.
//!
//! - It finds: any command that two members decoded differently or applied to different states, if that shows in the
//!   data written; a revision, version, lease or length corrupted in memory, at the next change of that key; a state
//!   loaded wrongly, at the next change of a key that is wrong.
//! - It does not find: bytes of a value corrupted in memory after they were written, the loss of a key that is never
//!   changed again, a wrong answer to a read. [`HashKv`] is there for those: it reads the stored versions.
//!
//! Knows nothing of: members, schedules of comparisons.

use crate::api::{Error, Key, Revision};
use crate::hash::Hasher;
use crate::history::{History, Version, Versions, Walk};
use crate::index::Leaves;
use crate::store::Store;
use crate::superseded::Superseded;
use crate::value::Generation;
use alloc::sync::Arc;

/// The digest after one more change.
pub(crate) fn then(before: u64, change: u64) -> u64 {
    // A bijection of `before`: digests that differ stay different.
    before.rotate_left(29).wrapping_mul(0xbb67_ae85_84ca_a73b).wrapping_add(change)
}

/// A digest extended by some bytes: for tables beside the store, which are small enough to be hashed whole.
#[must_use]
pub fn with(digest: u64, bytes: &[u8]) -> u64 {
    let mut hasher = Hasher::new();
    hasher.bytes(bytes);
    then(digest, hasher.finish())
}

/// The hash of one change of a key: the version before and the version after. A key that is not live has no version
/// before, because some members still keep its delete and others do not.
pub(crate) fn change(key: &[u8], before: Option<&Version>, after: &Version) -> u64 {
    let mut hasher = Hasher::new();
    before.inspect(|before| numbers(&mut hasher, before));
    hasher.number(i64::from(before.is_some()));
    version(&mut hasher, key, after);
    hasher.finish()
}

/// The hash of a compaction.
pub(crate) fn compaction(revision: Revision) -> u64 {
    let mut hasher = Hasher::new();
    hasher.number(revision.0);
    hasher.finish()
}

/// Mixes in one version of a key.
pub(crate) fn version(hasher: &mut Hasher, key: &[u8], version: &Version) {
    numbers(hasher, version);
    hasher.bytes(key);
    hasher.bytes(version.value().unwrap_or_default());
}

fn numbers(hasher: &mut Hasher, version: &Version) {
    let Generation { create_revision, version: number, lease } = version.life();
    hasher.number(version.mod_revision.0);
    hasher.number(create_revision.0);
    hasher.number(number);
    hasher.number(lease);
    // A delete must not hash like an empty value.
    hasher.number(version.value().map_or(-1, |value| value.len() as i64));
}

/// Computes in steps the hash of all versions at or below a revision that are not compacted.
///
/// Equal on all members for equal `(revision, compact revision)`, however much each has applied since and however much
/// each has forgotten. It owns a pin and releases the leaves that it has passed, so it may run on another thread or
/// between other work.
///
/// ```
/// # use kattu_kv::{api::{Command, Put, Revision}, digest::HashKv, store::Store};
/// # let mut store = Store::new();
/// # store.apply(&Command::Put(Put { key: b"a".to_vec(), ..Put::default() })).unwrap();
/// let mut hash = HashKv::new(store.pin(), Revision::NONE).unwrap();
/// while !hash.step(1000) {}
/// assert_eq!((hash.revision(), hash.compact_revision()), (Revision(2), Revision(-1)));
/// # let _ = hash.hash();
/// ```
#[derive(Debug)]
pub struct HashKv {
    leaves: Leaves<History>,
    superseded: Superseded,
    /// The current leaf, the index of its next key, and that key's next version if some were hashed.
    leaf: Option<(Arc<crate::run::Run<History>>, usize, Option<Walk>)>,
    revision: Revision,
    compacted: Revision,
    hasher: Hasher,
    /// While a copy is held, the store forgets in small steps.
    _copies: Arc<()>,
}

impl HashKv {
    /// Of a pinned store, at a revision; ≤ 0 for the newest.
    ///
    /// # Errors
    /// If the revision is compacted or in the future.
    pub fn new(pin: Store, revision: Revision) -> Result<HashKv, Error> {
        if revision > pin.revision {
            return Err(Error::FutureRevision);
        }
        if revision > Revision::NONE && revision < pin.compacted {
            return Err(Error::Compacted);
        }
        let revision = if revision > Revision::NONE { revision } else { pin.revision };
        let mut hasher = Hasher::new();
        hasher.number(revision.0);
        hasher.number(pin.compacted.0);
        let copies = pin.copies;
        let (leaves, superseded, compacted) = (pin.index.into_leaves(), pin.superseded, pin.compacted);
        Ok(HashKv { leaves, superseded, leaf: None, revision, compacted, hasher, _copies: copies })
    }

    /// The revision up to which versions count.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The compacted revision of the store when it was pinned.
    #[must_use]
    pub fn compact_revision(&self) -> Revision {
        self.compacted
    }

    /// Hashes about so many more versions. Returns whether all are hashed.
    pub fn step(&mut self, versions: usize) -> bool {
        let mut left = versions.max(1);
        while left > 0 {
            let Some((leaf, i, walk)) = &mut self.leaf else {
                match self.leaves.next() {
                    Some(leaf) => self.leaf = Some((leaf, 0, None)),
                    None => return true,
                }
                continue;
            };
            match leaf.entries().get(*i) {
                Some((key, history)) => {
                    let versions = Versions { history, superseded: &self.superseded };
                    if walk.is_none() {
                        *walk = versions.first_kept(self.compacted).map(|first| Walk::from(first, versions));
                    }
                    let (is_over, taken) = match walk {
                        Some(walk) => hash_some(&mut self.hasher, key, versions, walk, left, self.revision),
                        None => (true, 0),
                    };
                    left = left.saturating_sub(taken.max(1));
                    if is_over {
                        (*i, *walk) = (*i + 1, None);
                    }
                }
                None => self.leaf = None,
            }
        }
        false
    }

    /// The hash, once [`HashKv::step`] has returned `true`.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hasher.finish()
    }
}

/// Hashes up to `most` versions of one key, none above `revision`. Returns whether those were all, and how many.
fn hash_some(
    hasher: &mut Hasher,
    key: &Key,
    versions: Versions<'_>,
    walk: &mut Walk,
    most: usize,
    revision: Revision,
) -> (bool, usize) {
    for taken in 0..most {
        let seen = walk.next(versions).map(|place| versions.version(place));
        match seen.filter(|seen| seen.mod_revision <= revision) {
            Some(seen) => version(hasher, key, seen),
            None => return (true, taken),
        }
    }
    (walk.is_over(), most)
}
