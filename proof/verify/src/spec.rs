//! The specification: what etcd's store answers, in the simplest form that can be run.
//!
//! The history of every key is a list of versions that is never shortened; a read looks at it as of a revision; a
//! transaction is its operations one after the other at one revision; compaction is a number. Nothing is shared with
//! the store's own code, so the same error in both takes two mistakes.
//! Source: [etcd rpc.proto], and what etcd does where that is silent; docs/compatibility.md.
//! Knows nothing of: members, logs, performance.

use crate::history::{Answer, Compare, How, Operation, Pair, Rejection, Target};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Limits: operations along one path of a transaction, and nesting depth. [etcd `--max-txn-ops`; fault-model §10]
const TXN_OPS_MAX: usize = 128;
const TXN_DEPTH_MAX: usize = 32;

/// One version of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Version {
    /// The revision that wrote it.
    at: i64,
    /// The content; `None` for a delete.
    live: Option<Live>,
}

/// The content of an existing key.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Live {
    value: String,
    create: i64,
    version: i64,
}

/// The store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Versions of each key, oldest first.
    keys: BTreeMap<String, Vec<Version>>,
    /// Keys written by each revision from 2 on, in order.
    changes: Vec<Vec<String>>,
    compacted: i64,
}

impl Default for Spec {
    fn default() -> Spec {
        Spec::new()
    }
}

impl Spec {
    /// The empty store: revision 1, nothing compacted.
    #[must_use]
    pub fn new() -> Spec {
        Spec { keys: BTreeMap::new(), changes: Vec::new(), compacted: -1 }
    }

    /// The revision of the newest change.
    #[must_use]
    pub fn revision(&self) -> i64 {
        self.changes.len() as i64 + 1
    }

    /// Sets the compacted revision without dropping anything; for a caller that knows it from elsewhere.
    pub fn set_compacted(&mut self, revision: i64) {
        self.compacted = revision;
    }

    /// Executes one operation: its answer, and the revision in the answer's header.
    ///
    /// # Errors
    /// If the store rejects it; then nothing has changed.
    pub fn apply(&mut self, operation: &Operation) -> Result<(i64, Answer), Rejection> {
        check(operation)?;
        self.may_do(operation, false)?;
        let before = self.revision();
        let mut written = Vec::new();
        let answer = self.execute(operation, before, &mut written);
        if !written.is_empty() {
            self.changes.push(written);
        }
        Ok((self.revision(), answer))
    }

    /// Undoes the newest revision.
    ///
    /// # Panics
    /// If the store is empty.
    pub fn undo(&mut self) {
        for key in self.changes.pop().expect("there is a revision to take back") {
            let versions = self.keys.get_mut(&key).expect("what was written is there");
            versions.pop();
            if versions.is_empty() {
                self.keys.remove(&key);
            }
        }
    }

    /// The create revision and the version of a key, if it exists.
    #[must_use]
    pub fn life(&self, key: &str) -> Option<(i64, i64)> {
        self.live(key, self.revision()).map(|live| (live.create, live.version))
    }

    /// Whether the revisions asked for can be read, along the branches that will be taken.
    fn may_do(&self, operation: &Operation, in_txn: bool) -> Result<(), Rejection> {
        match operation {
            Operation::Range { revision, .. } => {
                // Outside transactions, a negative revision means now.
                let asks = if in_txn { *revision != 0 } else { *revision > 0 };
                if asks && *revision > self.revision() {
                    return Err(Rejection::Future);
                }
                if asks && *revision < self.compacted { Err(Rejection::Compacted) } else { Ok(()) }
            }
            Operation::Txn { compare, then, otherwise } => {
                let branch = if self.all_hold(compare, self.revision()) { then } else { otherwise };
                branch.iter().try_for_each(|operation| self.may_do(operation, true))
            }
            Operation::Compact { revision } if *revision <= self.compacted => Err(Rejection::Compacted),
            Operation::Compact { revision } if *revision > self.revision() => Err(Rejection::Future),
            Operation::Put { .. } | Operation::Delete { .. } | Operation::Compact { .. } => Ok(()),
        }
    }

    /// Executes it at revision `before + 1`; conditions look at `before`, reads see what was written so far.
    fn execute(&mut self, operation: &Operation, before: i64, written: &mut Vec<String>) -> Answer {
        let now = before + 1;
        match operation {
            Operation::Put { key, value } => {
                let (create, version) = match self.live(key, now) {
                    Some(live) => (live.create, live.version + 1),
                    None => (now, 1),
                };
                let live = Live { value: value.clone(), create, version };
                self.write(key, Version { at: now, live: Some(live) }, written);
                Answer::Put
            }
            Operation::Delete { key, end } => {
                let keys: Vec<String> = self.live_keys(key, end, now).map(|(key, ..)| key.clone()).collect();
                for key in &keys {
                    self.write(key, Version { at: now, live: None }, written);
                }
                Answer::Delete { deleted: keys.len() as i64 }
            }
            Operation::Range { key, end, revision, limit, count_only, .. } => {
                let as_of = if *revision > 0 { *revision } else { now };
                let kvs = self.live_keys(key, end, as_of);
                if *count_only {
                    return Answer::Range { kvs: Vec::new(), more: false, count: kvs.count() as i64 };
                }
                let mut kvs: Vec<Pair> = kvs.map(|(key, at, live)| pair(key, at, live)).collect();
                let count = kvs.len() as i64;
                let more = *limit > 0 && *limit < count;
                if more {
                    kvs.truncate(*limit as usize);
                }
                Answer::Range { kvs, more, count }
            }
            Operation::Txn { compare, then, otherwise } => {
                let succeeded = self.all_hold(compare, before);
                let branch = if succeeded { then } else { otherwise };
                let answers = branch.iter().map(|operation| self.execute(operation, before, written));
                Answer::Txn { succeeded, answers: answers.collect() }
            }
            Operation::Compact { revision } => {
                self.compacted = *revision;
                Answer::Compact
            }
        }
    }

    fn write(&mut self, key: &str, version: Version, written: &mut Vec<String>) {
        match self.keys.get_mut(key) {
            Some(versions) => versions.push(version),
            None => {
                self.keys.insert(key.to_string(), vec![version]);
            }
        }
        written.push(key.to_string());
    }

    /// The content of a key as of a revision, if it exists.
    fn live(&self, key: &str, as_of: i64) -> Option<&Live> {
        self.keys.get(key).and_then(|versions| newest(versions, as_of)?.live.as_ref())
    }

    /// The keys of a range that exist as of a revision, with the revision that last wrote each.
    fn live_keys(&self, key: &str, end: &str, as_of: i64) -> impl Iterator<Item = (&String, i64, &Live)> {
        let one = end.is_empty();
        let found = self.keys.range::<str, _>((Bound::Included(key), Bound::Unbounded));
        found
            .take_while(
                move |(found, _)| if one { *found == key } else { end == "\0" || found.as_str() < end },
            )
            .filter_map(move |(found, versions)| {
                let version = newest(versions, as_of)?;
                version.live.as_ref().map(|live| (found, version.at, live))
            })
    }

    fn all_hold(&self, compare: &[Compare], as_of: i64) -> bool {
        compare.iter().all(|compare| self.holds(compare, as_of))
    }

    fn holds(&self, compare: &Compare, as_of: i64) -> bool {
        let versions = self.keys.get(&compare.key).map_or(&[][..], Vec::as_slice);
        let version = newest(versions, as_of);
        let live = version.and_then(|version| version.live.as_ref());
        let order = match (&compare.target, live) {
            (Target::Value(_), None) => return false,
            (Target::Value(operand), Some(live)) => live.value.cmp(operand),
            (Target::Version(operand), live) => live.map_or(0, |live| live.version).cmp(operand),
            (Target::Create(operand), live) => live.map_or(0, |live| live.create).cmp(operand),
            (Target::Mod(operand), live) => live.and(version).map_or(0, |version| version.at).cmp(operand),
        };
        fits(compare.how, order)
    }
}

/// The newest version not after a revision.
fn newest(versions: &[Version], as_of: i64) -> Option<&Version> {
    // Most reads want the present.
    match versions.last() {
        Some(last) if last.at <= as_of => Some(last),
        _ => versions[..versions.partition_point(|version| version.at <= as_of)].last(),
    }
}

fn pair(key: &str, at: i64, live: &Live) -> Pair {
    let Live { value, create, version } = live;
    Pair { key: key.to_string(), value: value.clone(), create: *create, modified: at, version: *version }
}

/// Whether two sides in this order satisfy a condition.
#[must_use]
pub fn fits(how: How, order: Ordering) -> bool {
    match how {
        How::Equal => order == Ordering::Equal,
        How::Greater => order == Ordering::Greater,
        How::Less => order == Ordering::Less,
        How::NotEqual => order != Ordering::Equal,
    }
}

/// Whether a range covers a key. The end is encoded as in etcd.
#[must_use]
pub fn covers(start: &str, end: &str, key: &str) -> bool {
    match end {
        "" => key == start,
        "\0" => start <= key,
        end => start <= key && key < end,
    }
}

/// Whether the request is valid by itself, whatever the state.
///
/// # Errors
/// [`Rejection::Invalid`].
pub fn check(operation: &Operation) -> Result<(), Rejection> {
    if let Operation::Txn { then, otherwise, .. } = operation {
        check_size(operation, TXN_OPS_MAX, TXN_DEPTH_MAX)?;
        touched(then)?;
        touched(otherwise)?;
    }
    check_keys(operation)
}

fn check_keys(operation: &Operation) -> Result<(), Rejection> {
    let keys_are_given = match operation {
        Operation::Put { key, .. } | Operation::Range { key, .. } | Operation::Delete { key, .. } => {
            !key.is_empty()
        }
        Operation::Txn { compare, then, otherwise } => {
            then.iter().chain(otherwise).try_for_each(check_keys)?;
            compare.iter().all(|compare| !compare.key.is_empty())
        }
        Operation::Compact { .. } => true,
    };
    if keys_are_given { Ok(()) } else { Err(Rejection::Invalid) }
}

/// A nested transaction may use the operations that its parent leaves; it may not contain compactions.
fn check_size(operation: &Operation, ops_max: usize, depth_max: usize) -> Result<(), Rejection> {
    let Operation::Txn { compare, then, otherwise } = operation else { return Ok(()) };
    let ops = compare.len().max(then.len()).max(otherwise.len());
    if ops > ops_max || depth_max == 0 {
        return Err(Rejection::Invalid);
    }
    then.iter().chain(otherwise).try_for_each(|operation| match operation {
        Operation::Compact { .. } => Err(Rejection::Invalid),
        operation => check_size(operation, ops_max - ops, depth_max - 1),
    })
}

/// Keys that a list of operations may put, and ranges it may delete; an error if one key is put twice, or put and
/// deleted. As in etcd, an end of `"\0"` is taken literally here, and a put in one nested transaction does not conflict
/// with a delete in a later one.
fn touched(operations: &[Operation]) -> Result<Touched<'_>, Rejection> {
    let mut all = Touched::default();
    for operation in operations {
        if let Operation::Delete { key, end } = operation {
            all.deletes.push((key, end));
        }
    }
    for operation in operations {
        if let Operation::Txn { then, otherwise, .. } = operation {
            let (then, otherwise) = (touched(then)?, touched(otherwise)?);
            // Only one of them will run.
            let either: BTreeSet<&str> = then.puts.union(&otherwise.puts).copied().collect();
            either.into_iter().try_for_each(|key| all.put(key))?;
            all.deletes.extend(then.deletes.into_iter().chain(otherwise.deletes));
        }
    }
    for operation in operations {
        if let Operation::Put { key, .. } = operation {
            all.put(key)?;
        }
    }
    Ok(all)
}

#[derive(Default)]
struct Touched<'a> {
    puts: BTreeSet<&'a str>,
    deletes: Vec<(&'a str, &'a str)>,
}

impl<'a> Touched<'a> {
    fn put(&mut self, key: &'a str) -> Result<(), Rejection> {
        let deleted = self.deletes.iter().any(|(start, end)| match *end {
            "" => key == *start,
            end => *start <= key && key < end,
        });
        if deleted || !self.puts.insert(key) { Err(Rejection::Invalid) } else { Ok(()) }
    }
}
