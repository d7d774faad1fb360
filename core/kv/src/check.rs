//! Check: refuses a request that is invalid whatever the store holds, before it is proposed.
//!
//! The checks and their order are etcd's, so that a request with two faults gets the same answer from both.
//! Knows nothing of: the store, configuration.

use crate::api::{DeleteRange, Error, Operation, PutRef, Range, Txn};
use crate::command::TXN_DEPTH_MAX;
use alloc::collections::{BTreeMap, BTreeSet};
use core::mem::swap;

/// Limits on the size of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckLimits {
    /// Comparisons, or operations of one branch, along a path of nested transactions.
    pub txn_ops_max: usize,
    /// Levels of transactions, the outermost counted; at most [`TXN_DEPTH_MAX`], since deeper commands have no
    /// encoding.
    pub txn_depth_max: usize,
}

impl Default for CheckLimits {
    /// etcd's `--max-txn-ops`, and the greatest depth.
    fn default() -> CheckLimits {
        CheckLimits { txn_ops_max: 128, txn_depth_max: TXN_DEPTH_MAX }
    }
}

/// Checks a range read.
///
/// # Errors
/// [`Error::EmptyKey`].
pub fn check_range(range: &Range) -> Result<(), Error> {
    require_key(&range.keys.start)
}

/// Checks a put.
///
/// # Errors
/// [`Error::EmptyKey`], [`Error::ValueProvided`], [`Error::LeaseProvided`], in this order.
pub fn check_put(put: PutRef<'_>) -> Result<(), Error> {
    require_key(put.key)?;
    if put.ignore_value && !put.value.is_empty() {
        return Err(Error::ValueProvided);
    }
    if put.ignore_lease && put.lease != 0 {
        return Err(Error::LeaseProvided);
    }
    Ok(())
}

/// Checks a delete.
///
/// # Errors
/// [`Error::EmptyKey`].
pub fn check_delete_range(delete: &DeleteRange) -> Result<(), Error> {
    require_key(&delete.keys.start)
}

/// Checks a transaction: its size, then each of its parts, then that it changes no key twice.
///
/// # Errors
/// The first fault in etcd's order: [`Error::TooManyOps`] of the level, its comparisons, its operations with those of
/// nested transactions in place; [`Error::DuplicateKey`] last.
pub fn check_txn(txn: &Txn, limits: &CheckLimits) -> Result<(), Error> {
    check_parts(txn, limits.txn_ops_max, limits.txn_depth_max.min(TXN_DEPTH_MAX))?;
    clashes(txn).0
}

/// Whether the transaction only reads, so that it needs no log entry.
#[must_use]
pub fn is_read_only(txn: &Txn) -> bool {
    txn.success.iter().chain(&txn.failure).all(|operation| matches!(operation, Operation::Range(_)))
}

fn require_key(key: &[u8]) -> Result<(), Error> {
    if key.is_empty() { Err(Error::EmptyKey) } else { Ok(()) }
}

/// Whether the transaction may change a key twice, and how many keys and ranges this check visited.
fn clashes(txn: &Txn) -> (Result<(), Error>, u64) {
    let mut looks = 0;
    let mut judge = |operations| Touched::by(operations, &mut looks).map(drop);
    let verdict = judge(&txn.success).and_then(|()| judge(&txn.failure));
    (verdict, looks)
}

/// A nested transaction may have as many operations as the level above leaves of its limit.
fn check_parts(txn: &Txn, ops_max: usize, depth_max: usize) -> Result<(), Error> {
    let ops = txn.compare.len().max(txn.success.len()).max(txn.failure.len());
    if depth_max == 0 || ops > ops_max {
        return Err(Error::TooManyOps);
    }
    txn.compare.iter().try_for_each(|compare| require_key(&compare.keys.start))?;
    txn.success.iter().chain(&txn.failure).try_for_each(|operation| match operation {
        Operation::Range(range) => check_range(range),
        Operation::Put(put) => check_put(put.as_ref()),
        Operation::DeleteRange(delete) => check_delete_range(delete),
        Operation::Txn(nested) => check_parts(nested, ops_max - ops, depth_max - 1),
    })
}

/// The keys that a list of operations may put and delete, nested ones included.
///
/// Two quirks are etcd's and kept, since clients may depend on them. A range end of `\0` is compared as a plain byte,
/// so a delete "from a key on" clashes with no put. A put in one nested transaction does not clash with a delete in a
/// later one.
///
/// Merging two sets walks the smaller one, so each key is visited O(log n) times, however deep it is nested.
#[derive(Default)]
struct Touched<'a> {
    puts: BTreeSet<&'a [u8]>,
    deletes: Deletes<'a>,
}

impl<'a> Touched<'a> {
    /// Fails if a key may be put twice, or put and deleted. Counts the keys and ranges visited in `looks`.
    fn by(operations: &'a [Operation], looks: &mut u64) -> Result<Touched<'a>, Error> {
        let mut touched = Touched::default();
        for operation in operations {
            if let Operation::DeleteRange(delete) = operation {
                *looks += 1;
                touched.deletes.add(&delete.keys.start, &delete.keys.end);
            }
        }
        for operation in operations {
            if let Operation::Txn(nested) = operation {
                let success = Touched::by(&nested.success, looks)?;
                let failure = Touched::by(&nested.failure, looks)?;
                touched.add(success.or(failure, looks), looks)?;
            }
        }
        for operation in operations {
            if let Operation::Put(put) = operation {
                *looks += 1;
                touched.put(&put.key)?;
            }
        }
        Ok(touched)
    }

    fn put(&mut self, key: &'a [u8]) -> Result<(), Error> {
        if self.deletes.contains(key) || !self.puts.insert(key) {
            return Err(Error::DuplicateKey);
        }
        Ok(())
    }

    /// The keys that either of two branches touches. Only one branch will run, so they do not clash with each other.
    fn or(mut self, mut other: Touched<'a>, looks: &mut u64) -> Touched<'a> {
        if self.puts.len() < other.puts.len() {
            swap(&mut self.puts, &mut other.puts);
        }
        *looks += other.puts.len() as u64;
        self.puts.extend(other.puts);
        self.deletes.add_all(other.deletes, looks);
        self
    }

    /// Adds the keys that a nested transaction touches. Its puts clash with every key already here, its deletes with
    /// none.
    fn add(&mut self, mut nested: Touched<'a>, looks: &mut u64) -> Result<(), Error> {
        if self.deletes.clash_with(&nested.puts, looks) {
            return Err(Error::DuplicateKey);
        }
        if self.puts.len() < nested.puts.len() {
            swap(&mut self.puts, &mut nested.puts);
        }
        *looks += nested.puts.len() as u64;
        for key in nested.puts {
            if !self.puts.insert(key) {
                return Err(Error::DuplicateKey);
            }
        }
        self.deletes.add_all(nested.deletes, looks);
        Ok(())
    }
}

/// A set of keys: single keys, and ranges that neither overlap nor touch.
#[derive(Default)]
struct Deletes<'a> {
    single: BTreeSet<&'a [u8]>,
    /// start → end, both in range order.
    ranges: BTreeMap<&'a [u8], &'a [u8]>,
}

impl<'a> Deletes<'a> {
    fn add(&mut self, start: &'a [u8], end: &'a [u8]) {
        if end.is_empty() {
            self.single.insert(start);
        } else if start < end {
            self.add_range(start, end);
        }
    }

    /// Adds a range, merged with every range that it overlaps or touches.
    fn add_range(&mut self, mut start: &'a [u8], mut end: &'a [u8]) {
        while let Some((&other_start, &other_end)) = self.ranges.range(..=end).next_back() {
            if other_end < start {
                break;
            }
            self.ranges.remove(other_start);
            start = start.min(other_start);
            end = end.max(other_end);
        }
        self.ranges.insert(start, end);
    }

    fn add_all(&mut self, mut other: Deletes<'a>, looks: &mut u64) {
        if self.single.len() < other.single.len() {
            swap(&mut self.single, &mut other.single);
        }
        if self.ranges.len() < other.ranges.len() {
            swap(&mut self.ranges, &mut other.ranges);
        }
        *looks += other.len() as u64;
        self.single.extend(other.single);
        other.ranges.into_iter().for_each(|(start, end)| self.add_range(start, end));
    }

    fn len(&self) -> usize {
        self.single.len() + self.ranges.len()
    }

    /// Whether the set contains one of the keys.
    fn clash_with(&self, keys: &BTreeSet<&'a [u8]>, looks: &mut u64) -> bool {
        *looks += self.len().min(keys.len()) as u64;
        if keys.len() < self.len() {
            return keys.iter().any(|key| self.contains(key));
        }
        let is_put = |(&start, &end): (&&'a [u8], &&'a [u8])| keys.range(start..end).next().is_some();
        self.single.iter().any(|key| keys.contains(key)) || self.ranges.iter().any(is_put)
    }

    fn contains(&self, key: &[u8]) -> bool {
        let range = self.ranges.range(..=key).next_back();
        self.single.contains(key) || range.is_some_and(|(_, &end)| key < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::KeyRange;
    use crate::api::Put;
    use alloc::vec::Vec;

    const KEYS: u64 = 8192;

    /// The operations at the deepest level allowed, below one operation `beside` them on each level above.
    fn deep(mut operations: Vec<Operation>, beside: impl Fn(u64) -> Operation) -> Txn {
        for level in 1..TXN_DEPTH_MAX as u64 {
            let nested = Txn { success: operations, ..Txn::default() };
            operations = Vec::from([beside(level), Operation::Txn(nested)]);
        }
        Txn { success: operations, ..Txn::default() }
    }

    fn key(number: u64) -> Vec<u8> {
        number.to_be_bytes().to_vec()
    }

    fn put(number: u64) -> Operation {
        Operation::Put(Put { key: key(number), ..Put::default() })
    }

    fn delete(number: u64, end: Vec<u8>) -> Operation {
        let keys = KeyRange { start: key(number), end };
        Operation::DeleteRange(DeleteRange { keys, prev_kv: false })
    }

    #[test]
    fn keys_at_the_bottom_of_a_deep_transaction_are_not_looked_at_on_every_level() {
        let puts = (0..KEYS).map(put).collect();
        let single = (0..KEYS).map(|number| delete(number, Vec::new())).collect();
        let ranges = (0..KEYS).map(|number| delete(2 * number, key(2 * number + 1))).collect();
        let cases = [
            ("puts below puts", deep(puts, |level| put(3 * KEYS + level))),
            (
                "puts below deletes",
                deep((0..KEYS).map(put).collect(), |level| delete(3 * KEYS + level, Vec::new())),
            ),
            ("deletes below deletes", deep(single, |level| delete(3 * KEYS + level, Vec::new()))),
            ("ranges below puts", deep(ranges, |level| put(3 * KEYS + level))),
        ];
        for (name, txn) in cases {
            let (verdict, looks) = clashes(&txn);
            assert_eq!(verdict, Ok(()), "{name}");
            assert!((KEYS..=2 * KEYS).contains(&looks), "{name}: {looks} looks at {KEYS} keys");
        }
    }
}
