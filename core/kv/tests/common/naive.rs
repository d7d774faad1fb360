//! The naive twin: the simplest possible model of the store.
//!
//! It keeps a full copy of all pairs for every revision and answers each request by scanning one of them. Nothing is
//! indexed, nothing is forgotten (compaction only forbids), a failing transaction throws its copy away. It shares the
//! types of `api.rs` with the store and nothing else.

use kattu_kv::api::{
    Answer, Command, Compare, CompareResult, CompareTarget, DeleteRange, Error, KeyRange, KeyValue,
    Operation, Put, Query, Range, RangeResult, Response, Revision, SortOrder, SortTarget, Txn,
};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// All pairs as of one revision.
pub type Pairs = BTreeMap<Vec<u8>, KeyValue>;

pub struct Naive {
    /// revision → pairs; the last is the newest.
    pub states: BTreeMap<Revision, Pairs>,
    pub compacted: Revision,
}

/// A state being changed by one command.
struct Draft<'a> {
    naive: &'a Naive,
    pairs: Pairs,
    changed: bool,
}

impl Naive {
    pub fn new() -> Naive {
        Naive { states: BTreeMap::from([(Revision(1), Pairs::new())]), compacted: Revision(-1) }
    }

    pub fn revision(&self) -> Revision {
        *self.states.keys().last().unwrap()
    }

    pub fn pairs(&self) -> &Pairs {
        self.states.values().last().unwrap()
    }

    fn draft(&self) -> Draft<'_> {
        Draft { naive: self, pairs: self.pairs().clone(), changed: false }
    }

    pub fn apply(&mut self, command: &Command) -> Result<Response, Error> {
        let mut draft = self.draft();
        let answer = match command {
            Command::Put(put) if put.lease != 0 => return Err(Error::LeaseNotFound),
            Command::Put(put) => draft.put(put)?,
            Command::DeleteRange(delete) => draft.delete(delete),
            Command::Txn(txn) => draft.txn(txn)?,
            Command::Compact(revision) if *revision <= self.compacted => return Err(Error::Compacted),
            Command::Compact(revision) if *revision > self.revision() => return Err(Error::FutureRevision),
            Command::Compact(revision) => {
                self.compacted = *revision;
                return Ok(Response { revision: self.revision(), answer: Answer::Compact });
            }
        };
        let revision = draft.revision();
        if draft.changed {
            let pairs = draft.pairs;
            self.states.insert(revision, pairs);
        }
        Ok(Response { revision, answer })
    }

    pub fn query(&self, query: &Query) -> Result<Response, Error> {
        let mut draft = self.draft();
        let answer = match query {
            Query::Range(range) => Answer::Range(draft.range(range)?),
            Query::Txn(txn) => draft.txn(txn)?,
        };
        Ok(Response { revision: self.revision(), answer })
    }
}

impl Draft<'_> {
    fn revision(&self) -> Revision {
        Revision(self.naive.revision().0 + i64::from(self.changed))
    }

    fn put(&mut self, put: &Put) -> Result<Answer, Error> {
        let before = self.pairs.get(&put.key).cloned();
        if (put.ignore_value || put.ignore_lease) && before.is_none() {
            return Err(Error::KeyNotFound);
        }
        self.changed = true;
        let revision = self.revision();
        let after = match before.clone() {
            None => KeyValue {
                key: put.key[..].into(),
                create_revision: revision,
                mod_revision: revision,
                version: 1,
                value: put.value[..].into(),
                lease: put.lease,
            },
            Some(before) => KeyValue {
                mod_revision: revision,
                version: before.version + 1,
                value: if put.ignore_value { before.value } else { put.value[..].into() },
                lease: if put.ignore_lease { before.lease } else { put.lease },
                ..before
            },
        };
        self.pairs.insert(put.key.clone(), after);
        Ok(Answer::Put { prev_kv: before.filter(|_| put.prev_kv) })
    }

    fn delete(&mut self, delete: &DeleteRange) -> Answer {
        let gone = select(&self.pairs, &delete.keys);
        self.changed |= !gone.is_empty();
        gone.iter().for_each(|kv| drop(self.pairs.remove(&*kv.key)));
        let deleted = gone.len() as i64;
        let prev_kvs = if delete.prev_kv { gone } else { Vec::new() };
        Answer::DeleteRange { deleted, prev_kvs, revision: self.revision() }
    }

    fn range(&self, range: &Range) -> Result<RangeResult, Error> {
        if range.revision > self.revision() {
            return Err(Error::FutureRevision);
        }
        if range.revision > Revision(0) && range.revision < self.naive.compacted {
            return Err(Error::Compacted);
        }
        let is_now = range.revision <= Revision(0) || range.revision == self.revision();
        let pairs = if is_now { &self.pairs } else { &self.naive.states[&range.revision] };
        let mut kvs = select(pairs, &range.keys);
        let count = kvs.len() as i64;
        if range.count_only {
            return Ok(RangeResult { kvs: Vec::new(), more: false, count, revision: self.revision() });
        }
        kvs.retain(|kv| range.min_mod_revision == Revision(0) || kv.mod_revision >= range.min_mod_revision);
        kvs.retain(|kv| range.max_mod_revision == Revision(0) || kv.mod_revision <= range.max_mod_revision);
        kvs.retain(|kv| {
            range.min_create_revision == Revision(0) || kv.create_revision >= range.min_create_revision
        });
        kvs.retain(|kv| {
            range.max_create_revision == Revision(0) || kv.create_revision <= range.max_create_revision
        });
        kvs.sort_by(|a, b| {
            let order = match range.target {
                SortTarget::Key => a.key.cmp(&b.key),
                SortTarget::Version => a.version.cmp(&b.version),
                SortTarget::Create => a.create_revision.cmp(&b.create_revision),
                SortTarget::Mod => a.mod_revision.cmp(&b.mod_revision),
                SortTarget::Value => a.value.cmp(&b.value),
            };
            if range.order == SortOrder::Descend { order.reverse() } else { order }
        });
        let more = range.limit > 0 && kvs.len() as i64 > range.limit;
        if more {
            kvs.truncate(range.limit as usize);
        }
        if range.keys_only {
            kvs.iter_mut().for_each(|kv| kv.value = [].into());
        }
        Ok(RangeResult { kvs, more, count, revision: self.revision() })
    }

    fn txn(&mut self, txn: &Txn) -> Result<Answer, Error> {
        let before = self.pairs.clone();
        self.check(txn, &before)?;
        self.execute(txn, &before)
    }

    fn check(&self, txn: &Txn, before: &Pairs) -> Result<(), Error> {
        for operation in taken(txn, before) {
            match operation {
                Operation::Range(range) if range.revision > self.naive.revision() => {
                    return Err(Error::FutureRevision);
                }
                Operation::Range(range)
                    if range.revision != Revision(0) && range.revision < self.naive.compacted =>
                {
                    return Err(Error::Compacted);
                }
                Operation::Put(put)
                    if (put.ignore_value || put.ignore_lease) && !before.contains_key(&put.key) =>
                {
                    return Err(Error::KeyNotFound);
                }
                Operation::Put(put) if put.lease != 0 => return Err(Error::LeaseNotFound),
                Operation::Txn(nested) => self.check(nested, before)?,
                Operation::Range(_) | Operation::Put(_) | Operation::DeleteRange(_) => {}
            }
        }
        Ok(())
    }

    fn execute(&mut self, txn: &Txn, before: &Pairs) -> Result<Answer, Error> {
        let mut answers = Vec::new();
        for operation in taken(txn, before) {
            answers.push(match operation {
                Operation::Range(range) => Answer::Range(self.range(range)?),
                Operation::Put(put) => self.put(put)?,
                Operation::DeleteRange(delete) => self.delete(delete),
                Operation::Txn(nested) => self.execute(nested, before)?,
            });
        }
        Ok(Answer::Txn { succeeded: succeeds(txn, before), answers })
    }
}

fn taken<'a>(txn: &'a Txn, before: &Pairs) -> &'a [Operation] {
    if succeeds(txn, before) { &txn.success } else { &txn.failure }
}

fn succeeds(txn: &Txn, before: &Pairs) -> bool {
    txn.compare.iter().all(|compare| {
        let kvs = select(before, &compare.keys);
        let missing = KeyValue {
            key: [].into(),
            create_revision: Revision(0),
            mod_revision: Revision(0),
            version: 0,
            value: [].into(),
            lease: 0,
        };
        match (kvs.is_empty(), &compare.target) {
            (true, CompareTarget::Value(_)) => false,
            (true, _) => holds(compare, &missing),
            (false, _) => kvs.iter().all(|kv| holds(compare, kv)),
        }
    })
}

fn holds(compare: &Compare, kv: &KeyValue) -> bool {
    let order = match &compare.target {
        CompareTarget::Version(operand) => kv.version.cmp(operand),
        CompareTarget::Create(operand) => kv.create_revision.cmp(operand),
        CompareTarget::Mod(operand) => kv.mod_revision.cmp(operand),
        CompareTarget::Lease(operand) => kv.lease.cmp(operand),
        CompareTarget::Value(operand) => (*kv.value).cmp(operand),
    };
    match compare.result {
        CompareResult::Equal => order == Ordering::Equal,
        CompareResult::Greater => order == Ordering::Greater,
        CompareResult::Less => order == Ordering::Less,
        CompareResult::NotEqual => order != Ordering::Equal,
    }
}

fn select(pairs: &Pairs, keys: &KeyRange) -> Vec<KeyValue> {
    let is_in = |key: &[u8]| match &keys.end[..] {
        [] => key == keys.start,
        [0] => key >= &keys.start[..],
        end => key >= &keys.start[..] && key < end,
    };
    pairs.values().filter(|kv| is_in(&kv.key)).cloned().collect()
}
