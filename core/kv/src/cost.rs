//! Cost: the work that a request takes, known before it runs, from counts that the index keeps.
//!
//! The *unit* is one key visited by a walk over the index: a few loads from memory, so a million units take a fraction
//! of a second on one core. All other work is expressed in units, roughly by its time relative to a walk.
//!
//! | What | Units |
//! |---|---|
//! | a key of a compare | 1 |
//! | a key of a range, visited | 1 |
//! | a pair of an answer | 1; if not sorted by key, `SORT_UNITS` more |
//! | a count | 1, however many keys; at an older revision, at most as many as the range had keys |
//! | a key deleted | `DELETE_UNITS` |
//! | a put | [`PUT_UNITS`], and 1 for each KiB of its value |
//! | a compaction | [`PUT_UNITS`]: the versions it frees are forgotten later, a few at a time |
//!
//! Members of all versions must compute the same cost of an entry, so these numbers stay as they are. A slice
//! (`work.rs`) counts its work more closely: each step of a transaction takes a little, even an empty one.
//!
//! The cost of a put does not include the value that it keeps (`ignore_value`): [`Store::kept_bytes`], which is newer,
//! counts that.
//!
//! A transaction costs all its compares and its dearer branch. The cost of a command does not depend on how many of the
//! compacted versions a member has already forgotten: the same log gives the same costs on every member.
//! [replication-protocols DT1]
//! Knows nothing of: limits, refusals.

use crate::api::{Command, KeyRange, Operation, Put, PutRef, Query, Range, Revision, SortTarget, Txn};
use crate::range::{SORT_UNITS, is_plain};
use crate::span::Span;
use crate::store::Store;

/// Units of a put.
pub const PUT_UNITS: u64 = 8;

/// Units of each key that a delete deletes.
pub(crate) const DELETE_UNITS: u64 = 3;

/// Whether a command is cheap whatever the store holds: it names each of its keys and carries every value it writes.
/// Then only its size needs a check.
#[must_use]
pub fn is_small(command: &Command) -> bool {
    match command {
        Command::Put(put) => !put.ignore_value,
        Command::Compact(_) => true,
        Command::DeleteRange(delete) => is_one(&delete.keys),
        Command::Txn(txn) => names_each_key(txn),
    }
}

fn names_each_key(txn: &Txn) -> bool {
    let mut operations = txn.success.iter().chain(&txn.failure);
    txn.compare.iter().all(|compare| is_one(&compare.keys))
        && operations.all(|operation| match operation {
            Operation::Range(range) => is_one(&range.keys),
            Operation::Put(put) => !put.ignore_value,
            Operation::DeleteRange(delete) => is_one(&delete.keys),
            Operation::Txn(nested) => names_each_key(nested),
        })
}

fn is_one(keys: &KeyRange) -> bool {
    matches!(keys.span(), Span::One(_))
}

impl Store {
    /// The cost of a command if it ran now. Takes O(log n) for each range that it names.
    #[must_use]
    pub fn cost_of(&self, command: &Command) -> u64 {
        match command {
            Command::Put(put) => put_cost(put),
            Command::Compact(_) => PUT_UNITS,
            Command::DeleteRange(delete) => self.delete_cost(&delete.keys),
            Command::Txn(txn) => self.txn_cost(txn, u64::MAX),
        }
    }

    /// Bytes of existing values that a command would write again without carrying them (`ignore_value`): those of all
    /// branches together, whichever is taken.
    #[must_use]
    pub fn kept_bytes(&self, command: &Command) -> u64 {
        match command {
            Command::Put(put) => self.kept_by(put.as_ref()) as u64,
            Command::Txn(txn) => self.kept_by_txn(txn),
            Command::DeleteRange(_) | Command::Compact(_) => 0,
        }
    }

    fn kept_by_txn(&self, txn: &Txn) -> u64 {
        let operations = txn.success.iter().chain(&txn.failure);
        sum(operations.map(|operation| match operation {
            Operation::Put(put) => self.kept_by(put.as_ref()) as u64,
            Operation::Txn(nested) => self.kept_by_txn(nested),
            Operation::Range(_) | Operation::DeleteRange(_) => 0,
        }))
    }

    /// Bytes of the value that a put keeps (`ignore_value`); 0 if it carries one.
    #[must_use]
    pub fn kept_by(&self, put: PutRef<'_>) -> usize {
        let live = || self.index.get(put.key).and_then(|(_, history)| history.live());
        if put.ignore_value { live().map_or(0, |version| version.value_len()) } else { 0 }
    }

    /// The cost of a read if it were served now.
    #[must_use]
    pub fn cost_of_query(&self, query: &Query) -> u64 {
        match query {
            Query::Range(range) => self.range_cost(range, self.gone()),
            Query::Txn(txn) => self.txn_cost(txn, self.gone()),
        }
    }

    /// Deleted keys that are kept for their older versions. Their number differs from member to member, so it may count
    /// in a read that this member serves, but not in a command. [DT1]
    fn gone(&self) -> u64 {
        self.index.entries() - self.index.weight()
    }

    /// `gone`: most keys that may have been live at an older revision and are not live now.
    fn txn_cost(&self, txn: &Txn, gone: u64) -> u64 {
        let compares = txn.compare.iter().map(|compare| self.count_now(compare.keys.span()).max(1));
        let branch = |operations: &[Operation]| {
            let costs = operations.iter().map(|operation| match operation {
                Operation::Range(range) => self.range_cost(range, gone),
                Operation::Put(put) => put_cost(put),
                Operation::DeleteRange(delete) => self.delete_cost(&delete.keys),
                Operation::Txn(nested) => self.txn_cost(nested, gone),
            });
            sum(costs)
        };
        sum(compares).saturating_add(branch(&txn.success).max(branch(&txn.failure)))
    }

    fn delete_cost(&self, keys: &KeyRange) -> u64 {
        1 + self.count_now(keys.span()).saturating_mul(DELETE_UNITS)
    }

    fn range_cost(&self, range: &Range, gone: u64) -> u64 {
        if is_one(&range.keys) {
            return 2;
        }
        if range.revision > Revision::NONE && range.revision < self.compacted {
            return 1; // it will be refused, and the changes still known of it differ from member to member
        }
        let now = self.count_now(range.keys.span());
        let is_old = range.revision > Revision::NONE && range.revision < self.revision;
        // A key that was live then is live now, or was changed since and is gone.
        let since = self.changes.end() - self.changes.start_of(Revision(range.revision.0.saturating_add(1)));
        let since = since.min(gone);
        let keys = if is_old { now.saturating_add(since) } else { now };
        let wanted =
            u64::try_from(range.limit).ok().filter(|&limit| limit > 0).map_or(keys, |limit| limit.min(keys));
        let each = match (range.count_only, is_plain(range)) {
            (true, _) if !is_old => return 1,
            (true, _) => return 1 + keys,
            (false, true) if !is_old => return 1 + wanted.saturating_mul(2),
            (false, true) => return 1 + keys.saturating_add(wanted),
            (false, false) if range.target == SortTarget::Key => 2,
            (false, false) => 2 + SORT_UNITS,
        };
        1 + keys.saturating_mul(each)
    }
}

fn put_cost(put: &Put) -> u64 {
    PUT_UNITS + (put.value.len() / 1024) as u64
}

fn sum(costs: impl Iterator<Item = u64>) -> u64 {
    costs.fold(0, u64::saturating_add)
}
