//! Keys: a sorted run of keys that is searched without looking at most of them.
//!
//! A key lives behind a pointer, and following a pointer is a cache miss: searching 64 keys by their bytes would cost
//! six. So the run remembers how many leading bytes all its keys share, and of each key the eight bytes after those (its
//! *head*) as one big-endian number, side by side. A search compares heads, and bytes only where heads are equal.
//! Knows nothing of: what belongs to a key, trees.

use crate::api::Key;
use alloc::vec::Vec;

/// A sorted run of distinct keys.
///
/// Invariant: every key begins with the same `shared` bytes; `heads[i]` is the head of `keys[i]`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keys {
    shared: usize,
    heads: Vec<u64>,
    keys: Vec<Key>,
}

impl Keys {
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(crate) fn get(&self, i: usize) -> &Key {
        &self.keys[i]
    }

    /// Where the key is, or where it would be.
    pub(crate) fn search(&self, key: &[u8]) -> Result<usize, usize> {
        let Some(first) = self.keys.first() else { return Err(0) };
        let common = key.len().min(self.shared);
        match key[..common].cmp(&first[..common]) {
            core::cmp::Ordering::Less => return Err(0),
            core::cmp::Ordering::Greater => return Err(self.len()),
            core::cmp::Ordering::Equal if key.len() < self.shared => return Err(0),
            core::cmp::Ordering::Equal => {}
        }
        let head = head(key, self.shared);
        let low = self.heads.partition_point(|&other| other < head);
        let ties = self.heads[low..].iter().take_while(|&&other| other == head).count();
        // The order of heads is the order of keys, except that equal heads say nothing.
        match self.keys[low..low + ties]
            .binary_search_by(|other| other[self.shared..].cmp(&key[self.shared..]))
        {
            Ok(i) => Ok(low + i),
            Err(i) => Err(low + i),
        }
    }

    /// Puts a key at the place `search` gave.
    pub(crate) fn insert(&mut self, i: usize, key: Key) {
        let shared = match self.keys.first() {
            Some(first) => shared_bytes(first, &key).min(self.shared),
            None => key.len(),
        };
        self.heads.insert(i, 0);
        self.keys.insert(i, key);
        if shared == self.shared {
            self.heads[i] = head(&self.keys[i], shared);
        } else {
            self.take_heads(shared);
        }
    }

    pub(crate) fn remove(&mut self, i: usize) -> Key {
        self.heads.remove(i);
        self.keys.remove(i)
    }

    /// Keeps the first `at` keys and returns the others.
    pub(crate) fn split_off(&mut self, at: usize) -> Keys {
        self.heads.truncate(at);
        let mut right = Keys { shared: 0, heads: Vec::new(), keys: self.keys.split_off(at) };
        right.share_most();
        self.share_most();
        right
    }

    /// Takes over the keys of a run that is wholly above this one.
    pub(crate) fn append(&mut self, mut right: Keys) {
        self.keys.append(&mut right.keys);
        self.share_most();
    }

    /// Finds anew what all keys share; between the first and the last key, all share what these two do.
    fn share_most(&mut self) {
        let shared = match (self.keys.first(), self.keys.last()) {
            (Some(first), Some(last)) => shared_bytes(first, last),
            _ => 0,
        };
        self.take_heads(shared);
    }

    fn take_heads(&mut self, shared: usize) {
        self.shared = shared;
        self.heads.clear();
        self.heads.extend(self.keys.iter().map(|key| head(key, shared)));
    }
}

/// The eight bytes from `from` on, as a number that compares as they do; zeros where the key is over.
fn head(key: &[u8], from: usize) -> u64 {
    let rest = &key[from..];
    match rest.first_chunk::<8>() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 8];
            bytes[..rest.len()].copy_from_slice(rest);
            u64::from_be_bytes(bytes)
        }
    }
}

fn shared_bytes(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
