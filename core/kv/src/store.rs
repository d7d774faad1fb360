//! Store: the state, and the writes that change it.
//!
//! In:    commands in log order, each exactly once.
//! Out:   the answer etcd would give.
//! Rule:  a command that is refused has changed nothing; one that changes at least one key raises the revision by 1.
//!
//! A compaction answers at once, because it only moves the compacted revision. Versions that can no longer be read are
//! freed in small steps with every later command, and faster by [`Store::tidy`]. No single command stalls the store.
//!
//! A copy of a store ([`Store::pin`]) shares all memory with it and costs next to nothing. A change of either one first
//! copies the part that changes, a few hundred entries at most in one step.
//!
//! A store copies the bytes that it keeps; nothing in it points into the bytes of a request.
//! Knows nothing of: reads (`range.rs`), transactions (`txn.rs`), slices (`work.rs`), dumps (`dump.rs`), logs, members.

mod change;

use crate::api::{Answer, Command, Error, Key, PutRef, Query, Response, Revision, Value};
use crate::changes::Changes;
use crate::digest;
use crate::hash::Hasher;
use crate::history::{History, Version, Versions};
use crate::index::Index;
use crate::queue::Queue;
use crate::span::Span;
use crate::superseded::Superseded;
use crate::work::Work;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::ControlFlow;

/// Counted for each key besides its bytes: pointers, counters and its share of the index.
pub const KEY_OVERHEAD_BYTES: u64 = 64;

/// Counted for each version besides the bytes of its value: revisions, pointers, the record of the change, the
/// allocator's rounding. As much as is used with values of 64 bytes (docs/performance.md, "What a key takes").
pub const VERSION_OVERHEAD_BYTES: u64 = 128;

/// Counted for a delete that is still kept, which has no value. It is less, so that a store full of keys is not still
/// full after they are deleted: forgetting deletes takes a later revision, and a full store accepts no write.
const DELETE_BYTES: u64 = 64;

/// How fast a store forgets compacted versions. No answer depends on it, so members may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Versions that a command forgets at most, for each change that it has made.
    pub versions_per_change: usize,
    /// Versions that a compaction itself forgets at most.
    pub versions_per_compaction: usize,
}

impl Default for Pace {
    /// Each command forgets twice as many versions as it replaces, so forgetting catches up however many keys a command
    /// puts, and costs it a fixed share of its own work. A compaction takes a fraction of a millisecond, which is enough
    /// for a small store.
    fn default() -> Pace {
        Pace { versions_per_change: 2, versions_per_compaction: 512 }
    }
}

/// Versions forgotten in one go while a copy of the store is held: each deleted key may copy a path through the index,
/// which costs five to twenty microseconds.
const VERSIONS_WHILE_PINNED: usize = 128;

/// Changes of one command that count for [`Pace::versions_per_change`]: as many as a transaction has requests by
/// default. After a delete of a million keys, forgetting goes in steps.
const CHANGES_PER_COMMAND_MAX: usize = 128;

/// Versions forgotten in one go by a store that serves no requests.
const RAISE_VERSIONS: usize = 1 << 16;

/// Keys of a store that is near anyway: all of it fits into a processor's cache.
const NEAR_KEYS: u64 = 4096;

pub use crate::index::GROUP_MAX;

/// The compacted revision before the first compaction.
pub(crate) const NEVER_COMPACTED: Revision = Revision(-1);

/// All keys, and as much of their history as is not compacted.
///
/// Invariant between commands: `revision` = the newest revision in `changes`, or the one before their first revision
/// while there are none; every version newer than `compacted` has its change there.
#[derive(Clone, Debug)]
pub struct Store {
    pub(crate) index: Index<History>,
    /// The older versions of all keys.
    pub(crate) superseded: Superseded,
    pub(crate) changes: Changes,
    /// The deletes that are not forgotten, each with its revision, in the order of changes.
    deletes: Queue<(Revision, Key)>,
    pub(crate) revision: Revision,
    pub(crate) compacted: Revision,
    pace: Pace,
    bytes: u64,
    bytes_in_use: u64,
    /// Versions of keys forgotten since this store was made.
    forgotten: u64,
    pub(crate) running_digest: u64,
    /// Buffer for laying out the next value; its content does not matter between commands.
    scratch: Vec<u8>,
    /// The empty value that all answers share.
    pub(crate) empty: Value,
    /// Shared by all copies: its count shows whether there are others.
    pub(crate) copies: Arc<()>,
}

/// The size of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Live keys.
    pub keys: u64,
    /// Keys and values with all history still held, with [`KEY_OVERHEAD_BYTES`] and [`VERSION_OVERHEAD_BYTES`]; a
    /// delete that is still kept counts half as much as an empty value.
    pub bytes: u64,
    /// The same of live keys and their newest versions alone: the size after compaction.
    pub bytes_in_use: u64,
    /// Compacted versions are still being freed.
    pub forgets: bool,
    /// A copy is held ([`Store::pin`]), so that parts that change exist twice.
    pub pinned: bool,
}

impl Default for Store {
    fn default() -> Store {
        Store::new()
    }
}

impl Store {
    /// The empty store, at revision 1.
    #[must_use]
    pub fn new() -> Store {
        Store::with_pace(Pace::default())
    }

    /// The empty store, at revision 1, that forgets at this pace.
    #[must_use]
    pub fn with_pace(pace: Pace) -> Store {
        Store {
            pace,
            index: Index::new(),
            superseded: Superseded::default(),
            changes: Changes::starting_at(Revision::FIRST),
            deletes: Queue::starting_at(0),
            revision: Revision::EMPTY,
            compacted: NEVER_COMPACTED,
            bytes: 0,
            bytes_in_use: 0,
            forgotten: 0,
            running_digest: 0,
            scratch: Vec::new(),
            empty: Value::default(),
            copies: Arc::default(),
        }
    }

    /// The store as of now, to be read or dumped elsewhere while this one changes. Costs a few microseconds, however
    /// large the store is. While it is held, parts that change are copied first, and forgetting goes in smaller steps.
    #[must_use]
    pub fn pin(&self) -> Store {
        self.clone()
    }

    /// Takes over the content of a dump: the keys, their older versions, the changes that can be watched, the deletes
    /// among them that are the newest version of their key, and `bytes` and `bytes_in_use`.
    pub(crate) fn restore(
        &mut self,
        (index, superseded): (Index<History>, Superseded),
        (changes, deletes): (Changes, Queue<(Revision, Key)>),
        bytes: (u64, u64),
    ) {
        (self.index, self.superseded) = (index, superseded);
        (self.changes, self.deletes) = (changes, deletes);
        (self.bytes, self.bytes_in_use) = bytes;
    }

    /// The versions of a key of this store.
    pub(crate) fn versions<'a>(&'a self, history: &'a History) -> Versions<'a> {
        Versions { history, superseded: &self.superseded }
    }

    /// The revision of the newest change.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The oldest revision that can be read; -1 before the first compaction, as in etcd.
    #[must_use]
    pub fn compact_revision(&self) -> Revision {
        self.compacted
    }

    /// Applies one command. Total: every command that can be encoded gets an answer, even one that was never checked.
    ///
    /// # Errors
    /// If the store refuses it; then nothing has changed.
    pub fn apply(&mut self, command: &Command) -> Result<Response, Error> {
        match self.apply_small(command) {
            Some(done) => done,
            None => self.in_one_go(Work::on_command(command.clone(), Some(usize::MAX))),
        }
    }

    /// Applies a command that is small whatever the store holds: a put or a compaction. Does nothing and returns `None`
    /// for others, which may take long and need [`Work`].
    pub fn apply_small(&mut self, command: &Command) -> Option<Result<Response, Error>> {
        let answer = match command {
            Command::Put(put) => return Some(self.apply_put(put.as_ref())),
            Command::Compact(revision) => self.compact(*revision),
            Command::DeleteRange(_) | Command::Txn(_) => return None,
        };
        Some(self.ended(answer))
    }

    /// Applies a put whose bytes lie elsewhere: the store makes its own copy of the value, and of the key if it is new.
    ///
    /// # Errors
    /// The put's, as etcd's: a key or a lease that is not there.
    pub fn apply_put(&mut self, put: PutRef<'_>) -> Result<Response, Error> {
        let answer = self.lone_put(put);
        self.ended(answer)
    }

    /// Reads what puts of these keys will read, for all of them at once. No answer depends on it: it brings the memory near, which
    /// takes most of the time of a put into a large store, and notes where the keys are, for the puts that come next. More than
    /// [`GROUP_MAX`] keys are not looked at.
    pub fn bring_near(&mut self, keys: &[&[u8]]) {
        if self.index.entries() < NEAR_KEYS {
            return;
        }
        let mut read = 0u8;
        let (seen, paths) = self.index.glance_on_paths(keys);
        for (key, history) in seen.into_iter().flatten() {
            read ^= key.first().copied().unwrap_or_default();
            read ^= history.newest().and_then(|newest| newest.value()).map_or(0, |value| value.len() as u8);
        }
        core::hint::black_box(read);
        self.index.go_next(paths);
    }

    /// Ends a command, and makes its answer a response.
    fn ended(&mut self, answer: Result<Answer, Error>) -> Result<Response, Error> {
        self.end_command();
        answer.map(|answer| Response { revision: self.revision, answer })
    }

    fn in_one_go(&mut self, mut work: Work) -> Result<Response, Error> {
        let mut allowance = i64::MAX;
        self.go_on(&mut work, &mut allowance).expect("no store holds as much as this allows for")
    }

    /// Ends a command: its changes become the newest revision. Then forgets compacted versions, in proportion to its
    /// changes.
    pub(crate) fn end_command(&mut self) {
        let made = (self.changes.end() - self.changes.start_of(self.revision.next())) as usize;
        self.revision = self.changing_revision();
        self.tidy(self.pace.versions_per_change * made.clamp(1, CHANGES_PER_COMMAND_MAX));
    }

    /// Answers a read from the present state.
    ///
    /// # Errors
    /// If a requested revision is compacted or in the future.
    ///
    /// # Panics
    /// If the transaction is not [`is_read_only`](crate::check::is_read_only): a transaction that writes goes through
    /// the log.
    pub fn query(&self, query: &Query) -> Result<Response, Error> {
        if let Some(read) = self.query_small(query) {
            return read;
        }
        let (mut work, mut allowance) = (Work::on_query(query, usize::MAX), i64::MAX);
        self.read_on(&mut work, &mut allowance).expect("no store holds as much as this allows for")
    }

    /// Answers the read of a single key. `None` for other reads, which may take long and need [`Work`].
    #[must_use]
    pub fn query_small(&self, query: &Query) -> Option<Result<Response, Error>> {
        let Query::Range(range) = query else { return None };
        let judged = self.judge_revision(range);
        if let (Err(error), Span::One(_)) = (judged, range.keys.span()) {
            return Some(Err(error));
        }
        let answer = Answer::Range(self.read_one(range)?);
        Some(Ok(Response { revision: self.revision, answer }))
    }

    /// The size of the store.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            keys: self.index.weight(),
            bytes: self.bytes,
            bytes_in_use: self.bytes_in_use,
            forgets: self.has_unread(),
            pinned: self.is_pinned(),
        }
    }

    /// Versions that this store has forgotten since it was made: work that no unit counts; for tests and checkers.
    #[must_use]
    pub fn versions_forgotten(&self) -> u64 {
        self.forgotten
    }

    fn is_pinned(&self) -> bool {
        Arc::strong_count(&self.copies) > 1
    }

    /// A digest of everything that can be read: equal stores have equal ones. Costs a walk through the whole store.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let mut hasher = Hasher::new();
        hasher.number(self.revision.0);
        hasher.number(self.compacted.0);
        self.index.walk(&[], None, false, |key, history| {
            for version in self.versions(history).kept(self.compacted) {
                digest::version(&mut hasher, key, version);
            }
            ControlFlow::Continue(())
        });
        hasher.finish()
    }

    /// A digest of every change ever made to this store, updated by each change: equal on all members that applied the
    /// same log with the same effect. `digest.rs` lists the errors that it finds and those that it does not find.
    #[must_use]
    pub fn running_digest(&self) -> u64 {
        self.running_digest
    }

    /// Raises the revision by `by`, as if everything before it were compacted: the present state stays readable, its
    /// history is forgotten. For a store that replaces one that clients may have seen at a later revision: no revision
    /// is ever used for two states, and a client that continues from an old one gets an error and starts anew. Takes as
    /// long as forgetting the history; never part of a log.
    ///
    /// # Panics
    /// If there is no revision that high.
    pub fn raise_revision(&mut self, by: u64) {
        let by = i64::try_from(by).expect("a revision");
        let revision = Revision(self.revision.0.checked_add(by).expect("revisions reach that far"));
        self.compacted = revision;
        while self.tidy(RAISE_VERSIONS) {}
        // This revision has no change; the next change is at the one after it.
        self.changes = Changes::starting_at(revision.next());
        self.revision = revision;
        self.running_digest = digest::then(self.running_digest, digest::compaction(revision));
    }

    /// Frees some compacted versions, `versions_max` at most. Returns whether more work remains. No answer depends on it,
    /// so a member may call it whenever it has time.
    pub fn tidy(&mut self, versions_max: usize) -> bool {
        let goal = self.changes.start_of(self.compacted);
        if !self.has_unread() && goal <= self.changes.first() {
            return false; // the most common case
        }
        let versions_max =
            if self.is_pinned() { versions_max.min(VERSIONS_WHILE_PINNED) } else { versions_max };
        for _ in 0..versions_max {
            let Some(version) = self.superseded.forget(self.compacted) else { break };
            if version.lives() {
                self.bytes -= version_bytes(&version); // deletes are counted below
            }
            self.forgotten += 1;
        }
        for _ in 0..versions_max {
            let compacted = self.compacted;
            let Some((at, key)) = self.deletes.pop_front_if(|(at, _)| *at < compacted) else { break };
            self.forget_delete(at, &key);
        }
        // Changes at the compacted revision itself are kept: watches may still start there. One revision may have
        // changed very many keys, so its changes are also forgotten in steps, twice as fast as they are made.
        self.changes.forget_below(goal.min(self.changes.first() + 2 * versions_max as u64));
        self.has_unread() || self.changes.first() < goal
    }

    /// Whether versions are kept that no read sees any more.
    fn has_unread(&self) -> bool {
        self.superseded.may_forget(self.compacted)
            || self.deletes.get(self.deletes.first()).is_some_and(|(at, _)| *at < self.compacted)
    }

    /// Forgets a delete, and with it the key, if it is still the newest version. Those before it are forgotten before
    /// it or after it, but no read sees them.
    fn forget_delete(&mut self, at: Revision, key: &Key) {
        let newest = self.index.get(key).and_then(|(_, history)| history.newest());
        if newest.is_some_and(|newest| !newest.lives() && newest.mod_revision == at) {
            self.index.remove(key);
            self.bytes -= key_bytes(key);
        }
        self.bytes -= DELETE_BYTES;
        self.forgotten += 1;
    }

    /// The newest revision, the command in progress included: the next one from its first change on.
    pub(crate) fn changing_revision(&self) -> Revision {
        self.changes.last_revision()
    }

    fn compact(&mut self, revision: Revision) -> Result<Answer, Error> {
        if revision <= self.compacted {
            return Err(Error::Compacted);
        }
        if revision > self.revision {
            return Err(Error::FutureRevision);
        }
        self.compacted = revision;
        self.running_digest = digest::then(self.running_digest, digest::compaction(revision));
        self.tidy(self.pace.versions_per_compaction);
        Ok(Answer::Compact)
    }
}

pub(crate) fn key_bytes(key: &[u8]) -> u64 {
    key.len() as u64 + KEY_OVERHEAD_BYTES
}

pub(crate) fn version_bytes(version: &Version) -> u64 {
    version.value().map_or(DELETE_BYTES, |value| value.len() as u64 + VERSION_OVERHEAD_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{DeleteRange, KeyRange, Put};

    #[test]
    fn a_store_that_was_full_of_keys_is_not_full_of_their_deletes() {
        let mut store = Store::new();
        let put = |n: u32| Command::Put(Put { key: n.to_be_bytes().to_vec(), ..Put::default() });
        (0..1000).for_each(|n| drop(store.apply(&put(n))));
        let full = store.stats().bytes;
        let all = KeyRange { start: Vec::from([0]), end: Vec::from([0]) };
        let all = Command::DeleteRange(DeleteRange { keys: all, prev_kv: false });
        let deleted = store.apply(&all).expect("a delete").revision;
        store.apply(&Command::Compact(deleted)).expect("a new revision");
        while store.tidy(100) {}
        let left = store.stats();
        assert!(left.keys == 0 && left.bytes < full, "{} bytes, {full} before", left.bytes);
        store.apply(&put(1)).expect("a put");
        store.apply(&Command::Compact(deleted.next())).expect("a new revision");
        while store.tidy(100) {}
        assert_eq!(store.stats().bytes, store.stats().bytes_in_use);
    }

    #[test]
    fn notes_of_a_revision_that_changed_very_many_keys_are_forgotten_step_by_step() {
        let mut store = Store::with_pace(Pace { versions_per_change: 0, versions_per_compaction: 0 });
        let put = |n: u32| Command::Put(Put { key: n.to_be_bytes().to_vec(), ..Put::default() });
        (0..10_000).for_each(|n| drop(store.apply(&put(n))));
        let all = KeyRange { start: Vec::from([0]), end: Vec::from([0]) };
        let all = Command::DeleteRange(DeleteRange { keys: all, prev_kv: false });
        let deleted = store.apply(&all).expect("a delete").revision;
        store.apply(&Command::Compact(deleted)).expect("a new revision");
        while store.tidy(100) {}
        let first = store.changes.first();
        assert_eq!(store.changes.end() - first, 10_000, "a watch may start at the compacted revision");

        store.apply(&put(1)).expect("a put");
        store.apply(&Command::Compact(deleted.next())).expect("a new revision");
        let mut steps = 0;
        while store.tidy(10) {
            steps += 1;
            assert!(store.changes.first() <= first + steps * 20, "too many at once");
        }
        assert_eq!(store.changes.end() - store.changes.first(), 1);
    }
}
