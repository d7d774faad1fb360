//! Changes: puts and deletes at the next revision, and how they are undone.
//!
//! Knows nothing of: compaction, reads, the order of steps in a transaction.

use super::{DELETE_BYTES, Store, key_bytes, version_bytes};
use crate::api::{Answer, Error, Key, KeyRange, PutRef};
use crate::cost::{DELETE_UNITS, PUT_UNITS};
use crate::digest;
use crate::history::{History, Version};
use crate::index::Index;
use crate::range::spend;
use crate::span::Span;
use crate::value::Generation;
use crate::work::Deleting;
use core::ops::ControlFlow;

impl Store {
    /// A put as a command of its own.
    pub(super) fn lone_put(&mut self, put: PutRef<'_>) -> Result<Answer, Error> {
        // etcd looks for the lease first here, but last in a transaction.
        if put.lease != 0 {
            return Err(Error::LeaseNotFound);
        }
        self.put(put)
    }

    /// Writes one key at the next revision.
    pub(crate) fn put(&mut self, put: PutRef<'_>) -> Result<Answer, Error> {
        let live =
            |store: &Store| store.index.get(put.key).is_some_and(|(_, history)| history.live().is_some());
        if (put.ignore_value || put.ignore_lease) && !live(self) {
            return Err(Error::KeyNotFound);
        }
        let at = self.revision.next();
        let (empty, scratch, mut prev_kv) = (&self.empty, &mut self.scratch, None);
        let superseded = &mut self.superseded;
        let (mut bytes, mut used_bytes, mut freed_bytes) = (0, 0, 0);
        let mut digest = 0;
        let key = self.index.upsert(put.key, |key, history| {
            let key_bytes = key_bytes(key);
            bytes = if history.is_empty() { key_bytes } else { 0 };
            let mut life = Generation { create_revision: at, version: 1, lease: put.lease };
            let mut value = put.value;
            if let Some(before) = history.live() {
                let of_before = before.life();
                life.create_revision = of_before.create_revision;
                life.version = of_before.version + 1;
                if put.ignore_lease {
                    life.lease = of_before.lease;
                }
                if put.ignore_value {
                    value = before.value().unwrap_or_default();
                }
                prev_kv = put.prev_kv.then(|| before.to_key_value(key, empty));
                freed_bytes = version_bytes(before) + key_bytes;
            }
            let version = Version::put(at, life, value, scratch);
            digest = digest::change(key, history.live(), &version);
            bytes += version_bytes(&version);
            used_bytes = version_bytes(&version) + key_bytes;
            history.push(version, superseded);
            key.clone()
        });
        self.bytes += bytes;
        self.bytes_in_use = self.bytes_in_use + used_bytes - freed_bytes;
        self.running_digest = digest::then(self.running_digest, digest);
        self.changes.push(at, key);
        Ok(Answer::Put { prev_kv })
    }

    /// Deletes live keys of a range at the next revision, from where the last slice ended, until the allowance is used
    /// up. Returns whether all are deleted. `prev_kv`: the deleted pairs are kept.
    pub(crate) fn delete_some(
        &mut self,
        keys: &KeyRange,
        prev_kv: bool,
        deleting: &mut Deleting,
        allowance: &mut i64,
    ) -> bool {
        let (start, end) = match keys.span() {
            Span::One(key) => {
                spend(allowance, DELETE_UNITS);
                if self.index.get(key).is_some_and(|(_, history)| history.live().is_some()) {
                    let change = |index: &mut Index<History>, delete: &mut dyn FnMut(&Key, &mut History)| {
                        index.update(key, delete);
                    };
                    self.delete_live(change, prev_kv, deleting);
                }
                return true;
            }
            Span::Many { end: Some(end), start } if end <= start => return true,
            Span::Many { start, end } => (start, end),
        };
        let from = deleting.resume.take();
        let mut resume = None;
        let change = |index: &mut Index<History>, delete: &mut dyn FnMut(&Key, &mut History)| {
            index.change_from(from.as_deref().unwrap_or(start), end, |key, history| {
                if *allowance <= 0 {
                    resume = Some(key.clone());
                    return ControlFlow::Break(());
                }
                let lives = history.live().is_some();
                spend(allowance, if lives { DELETE_UNITS } else { 1 });
                if lives {
                    delete(key, history);
                }
                ControlFlow::Continue(())
            });
        };
        self.delete_live(change, prev_kv, deleting);
        deleting.resume = resume;
        deleting.resume.is_none()
    }

    /// Deletes each live key that `each` passes to its closure.
    fn delete_live(
        &mut self,
        each: impl FnOnce(&mut Index<History>, &mut dyn FnMut(&Key, &mut History)),
        prev_kv: bool,
        deleting: &mut Deleting,
    ) {
        let at = self.revision.next();
        let Store { index, superseded, changes, deletes, bytes, bytes_in_use, running_digest, empty, .. } =
            self;
        each(index, &mut |key, history| {
            let Some(before) = history.live() else { return };
            let tombstone = Version::tombstone(at);
            *running_digest = digest::then(*running_digest, digest::change(key, Some(before), &tombstone));
            *bytes += DELETE_BYTES;
            *bytes_in_use -= version_bytes(before) + key_bytes(key);
            if prev_kv {
                deleting.keep(before.to_key_value(key, empty));
            }
            deleting.deleted += 1;
            changes.push(at, key.clone());
            deletes.push_back((at, key.clone()));
            history.push(tombstone, superseded);
        });
    }

    /// Undoes the changes from a number on, the newest first, because their command fails after all; `digest` is the
    /// running digest before them. Returns whether all are undone before the allowance is used up.
    pub(crate) fn undo(&mut self, number: u64, digest: u64, allowance: &mut i64) -> bool {
        self.running_digest = digest;
        while number < self.changes.end() {
            if *allowance <= 0 {
                return false;
            }
            spend(allowance, PUT_UNITS);
            let Some(key) = self.changes.pop() else { break };
            let key_bytes = key_bytes(&key);
            let superseded = &mut self.superseded;
            let pop = |_: &Key, history: &mut History| {
                (history.pop(superseded), history.is_empty(), history.live().cloned())
            };
            let (taken, is_empty, before) = self.index.update(&key, pop).unwrap_or_default();
            self.bytes -= version_bytes(&taken);
            match taken.lives() {
                true => self.bytes_in_use -= version_bytes(&taken) + key_bytes,
                false => drop(self.deletes.pop_back()),
            }
            if let Some(before) = before {
                self.bytes_in_use += version_bytes(&before) + key_bytes;
            }
            if is_empty {
                self.index.remove(&key);
                self.bytes -= key_bytes;
            }
        }
        true
    }
}
