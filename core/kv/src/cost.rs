//! Cost: what a request will take, known before anything is done, from counts that the index keeps.
//!
//! The *unit* is one key looked at by a walk over the index: a few loads from memory, so that a million of them are a part
//! of a second on one core. Everything else is counted in it, roughly by what it takes next to a walk.
//!
//! | What | Units |
//! |---|---|
//! | a key of a compare | 1 |
//! | a key of a range, looked at | 1 |
//! | a pair of an answer | 1, in another order than the keys' `SORT_UNITS` more |
//! | a count | 1, however many; at an older revision as many as the range had keys at the most |
//! | a key deleted | [`DELETE_UNITS`] |
//! | a put | [`PUT_UNITS`], and 1 for each KiB of its value |
//! | a compaction | [`PUT_UNITS`]: what it makes forgettable is forgotten later, a little at a time |
//!
//! Entries are judged by this on members of all versions, so it stays as it is; what a slice spends (`work.rs`) is counted
//! more closely: a step of a transaction takes a little even where there is nothing to do.
//!
//! What a put writes of a value that it keeps is no part of its cost, which is older: [`Store::kept_bytes`] says it.
//!
//! Of a transaction the dearer branch counts, with all compares. What a command costs does not depend on how much of what is
//! compacted a member has already forgotten: the same log makes the same costs on every member. [replication-protocols DT1]
//! Knows nothing of: what a request may cost, what is done to one that costs too much.

use crate::api::{Command, KeyRange, Operation, Put, Query, Range, SortTarget, Txn};
use crate::range::{SORT_UNITS, is_plain};
use crate::span::Span;
use crate::store::Store;

/// Units of a put.
pub const PUT_UNITS: u64 = 8;

/// Units of each key that a delete deletes.
pub const DELETE_UNITS: u64 = 3;

/// Whether a command costs little whatever the store holds, for it names each key that it is about and has all that it
/// writes: then there is nothing to be judged but its size.
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
    /// What a command would cost if it were carried out now. Takes O(log n) for each range that it names.
    #[must_use]
    pub fn cost_of(&self, command: &Command) -> u64 {
        match command {
            Command::Put(put) => put_cost(put),
            Command::Compact(_) => PUT_UNITS,
            Command::DeleteRange(delete) => self.delete_cost(&delete.keys),
            Command::Txn(txn) => self.txn_cost(txn, u64::MAX),
        }
    }

    /// Bytes of values that a command would write although it does not have them, because it keeps those that are there:
    /// of all branches together, whichever is taken.
    #[must_use]
    pub fn kept_bytes(&self, command: &Command) -> u64 {
        match command {
            Command::Put(put) => self.kept_by(put) as u64,
            Command::Txn(txn) => self.kept_by_txn(txn),
            Command::DeleteRange(_) | Command::Compact(_) => 0,
        }
    }

    fn kept_by_txn(&self, txn: &Txn) -> u64 {
        let operations = txn.success.iter().chain(&txn.failure);
        sum(operations.map(|operation| match operation {
            Operation::Put(put) => self.kept_by(put) as u64,
            Operation::Txn(nested) => self.kept_by_txn(nested),
            Operation::Range(_) | Operation::DeleteRange(_) => 0,
        }))
    }

    /// Bytes of the value that a put keeps, if it keeps one.
    pub(crate) fn kept_by(&self, put: &Put) -> usize {
        let live = || self.index.get(&put.key).and_then(|(_, history)| history.live());
        if put.ignore_value { live().map_or(0, |version| version.value_len()) } else { 0 }
    }

    /// What a read would cost if it were served now.
    #[must_use]
    pub fn cost_of_query(&self, query: &Query) -> u64 {
        match query {
            Query::Range(range) => self.range_cost(range, self.gone()),
            Query::Txn(txn) => self.txn_cost(txn, self.gone()),
        }
    }

    /// Keys that have no version now and are remembered for their older ones. How many these are differs from member to member,
    /// so it says what a read costs that this member serves, and nothing of a command. [DT1]
    fn gone(&self) -> u64 {
        self.index.entries() - self.index.weight()
    }

    /// `gone`: keys that may have lived at an older revision and do not now, at the most.
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
        if range.revision > 0 && range.revision < self.compacted {
            return 1; // it will be refused, and what is known of it differs from member to member
        }
        let now = self.count_now(range.keys.span());
        let is_old = range.revision > 0 && range.revision < self.revision;
        // Whatever lived then lives now, or was changed since, and is gone.
        let since = self.changes.end() - self.changes.start_of(range.revision.saturating_add(1));
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
