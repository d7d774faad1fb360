//! Look-up: the newest versions of many keys at once, which is what most reads want.
//!
//! The keys lie side by side in one block, and values are shared with the store: a key costs no block of memory of its own, and
//! the memory of a whole group of keys is waited for at once.
//! Rule:  each key is answered as a range read of this key alone, without options, at the same moment.
//! Knows nothing of: clients, how fresh a read must be.

use crate::api::{Answer, Key, KeyValue, RangeResult, Response, Revision, Value};
use crate::history::{History, Version};
use crate::index::Seen;
use crate::run::GROUP_MAX;
use crate::store::Store;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Bytes of a value between two that are read to bring it near: those of a line of a processor's cache.
const LINE_BYTES: usize = 64;

/// Bytes of a value that are brought near, so that the values of a group have room in a cache.
const NEAR_BYTES: usize = 1024;

/// Most keys of a look-up: it is not interrupted, and a step of the apply executor has a bound.
pub const KEYS_MAX: usize = 32;

/// Keys of a look-up, in the order in which they were added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Keys {
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<usize>,
}

impl Keys {
    /// Adds a key at the end.
    ///
    /// # Panics
    /// If there are [`KEYS_MAX`] already.
    pub fn push(&mut self, key: &[u8]) {
        assert!(self.len() < KEYS_MAX, "a look-up has {KEYS_MAX} keys at most");
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    /// How many keys there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The keys.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |&end| &self.bytes[core::mem::replace(&mut start, end)..end])
    }
}

/// What a look-up has found: of each key its newest version, unless the key does not live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The store's revision.
    revision: Revision,
    keys: Arc<Keys>,
    /// One for each key, in their order; values are shared with the store.
    versions: Vec<Version>,
}

impl Found {
    /// What was found of each key, in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = FoundKey<'_>> {
        let of_key = |(key, version)| FoundKey { revision: self.revision, key, version };
        self.keys.iter().zip(&self.versions).map(of_key)
    }
}

/// What was found of one key.
#[derive(Clone, Copy, Debug)]
pub struct FoundKey<'a> {
    pub(crate) revision: Revision,
    pub(crate) key: &'a [u8],
    /// A delete where there is none.
    pub(crate) version: &'a Version,
}

impl FoundKey<'_> {
    /// Bytes of the key and its value; 0 if the key does not live.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.version.value().map_or(0, |value| self.key.len() + value.len())
    }

    /// Whether the key lives.
    #[must_use]
    pub fn lives(&self) -> bool {
        self.version.lives()
    }

    /// What a read of this key alone would have been answered.
    #[must_use]
    pub fn response(&self) -> Response {
        let FoundKey { revision, key, version } = *self;
        let pair = || version.to_key_value(&Key::from(key), &Value::default());
        let kvs: Vec<KeyValue> = version.lives().then(pair).into_iter().collect();
        let count = kvs.len() as i64;
        Response { revision, answer: Answer::Range(RangeResult { kvs, more: false, count, revision }) }
    }
}

impl Store {
    /// Looks keys up, as of now.
    #[must_use]
    pub fn look_up(&self, keys: Arc<Keys>) -> Found {
        Found { revision: self.revision(), versions: self.newest_of(&keys), keys }
    }

    fn newest_of(&self, keys: &Keys) -> Vec<Version> {
        let mut versions = Vec::with_capacity(keys.len());
        let mut left = keys.iter();
        while 0 < left.len() {
            let mut group = [&[][..]; GROUP_MAX];
            let taken = left.len().min(GROUP_MAX);
            group.iter_mut().zip(&mut left).for_each(|(place, key)| *place = key);
            let seen = self.index.glance_group(&group[..taken]);
            bring_near(&seen);
            let found = self.index.get_group(&group[..taken], seen);
            let live = |history: &Option<&History>| history.and_then(History::live).cloned();
            versions.extend(found[..taken].iter().map(|history| live(history).unwrap_or_default()));
        }
        versions
    }
}

/// Reads of each entry what others will wait for: nothing else is done meanwhile, so the memory of all is waited for at once.
fn bring_near(seen: &Seen<'_, History>) {
    let mut read = 0;
    for (key, history) in seen.iter().flatten() {
        read ^= key.first().copied().unwrap_or_default();
        if let Some(value) = history.live().and_then(Version::value) {
            let near = &value[..value.len().min(NEAR_BYTES)];
            read = near.iter().step_by(LINE_BYTES).fold(read, |read, byte| read ^ byte);
        }
    }
    core::hint::black_box(read);
}
