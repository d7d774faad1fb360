//! Model: a few keys, each with a value and a version, changed one operation at a time, with undo.
//!
//! Keys and values are numbers. A condition on a create or mod revision may be undecided here; then an answer decides
//! it, and for an open operation both branches are tried.
//! It also looks ahead. A state that an unplaced read shows must not be lost for good: a value that only one write puts
//! is not overwritten before its reads are placed, and the version of a key that no operation deletes does not pass one
//! that is still to be read. Orders that do so could only fail later.
//! Knows nothing of: time.

use super::partition::Part;
use crate::history::How;
use crate::spec::fits;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The number of a key in its part.
pub(super) type Key = u32;

/// The number of a value.
pub(super) type Value = u32;

/// At most this many transactions of one operation have their branch guessed.
pub(super) const GUESSES_MAX: u32 = 4;

/// The first revision that a write can make.
const FIRST_WRITE: i64 = 2;

/// What an operation does, and the part of its answer that is judged.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Step {
    Put(Key, Value),
    /// These keys; the number deleted, if known.
    Delete(Vec<Key>, Option<i64>),
    /// Keys with what was read of each: nothing, or value and version.
    Read(Vec<(Key, Option<(Value, i64)>)>),
    /// How many of these keys exist.
    Count(Vec<Key>, i64),
    Txn(Box<Txn>),
    /// Judged elsewhere.
    Nothing,
}

/// A transaction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Txn {
    pub(super) compare: Vec<Condition>,
    pub(super) then: Vec<Step>,
    pub(super) otherwise: Vec<Step>,
    /// Which branch was taken, by the answer.
    pub(super) succeeded: Option<bool>,
}

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Condition {
    pub(super) key: Key,
    pub(super) how: How,
    pub(super) target: Target,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Target {
    Value(Value),
    Version(i64),
    /// A create or mod revision.
    Revision(i64),
}

/// What a key holds; version 0 while it holds nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cell {
    value: Value,
    version: i64,
}

/// The keys of a part.
pub(super) struct State<'a> {
    cells: Vec<Cell>,
    /// Overwritten cells, for undo.
    past: Vec<(Key, Cell)>,
    hash: u128,
    /// Values as text, for conditions that order them.
    texts: &'a [String],
    path: Vec<bool>,
    ahead: Ahead,
}

/// What reads that are not placed yet show.
struct Ahead {
    /// How many reads show a value; by value.
    values: Vec<u32>,
    /// Whether one write puts this value, once.
    unique: Vec<bool>,
    /// How many reads show a version; by key. `None` for keys that may be deleted.
    versions: Vec<Option<BTreeMap<i64, u32>>>,
}

impl Ahead {
    fn of(part: &Part) -> Ahead {
        let mut authors: HashMap<Value, u32> = HashMap::new();
        let mut deleted = BTreeSet::new();
        for operation in &part.operations {
            add_writes(&operation.step, &mut authors, &mut deleted);
        }
        let unique = |value: usize| authors.get(&(value as Value)) == Some(&1);
        let versions = |key: usize| (!deleted.contains(&(key as Key))).then(BTreeMap::new);
        let mut ahead = Ahead {
            values: vec![0; part.texts.len()],
            unique: (0..part.texts.len()).map(unique).collect(),
            versions: (0..part.keys.len()).map(versions).collect(),
        };
        part.operations.iter().for_each(|operation| ahead.note(&operation.step, false));
        ahead
    }

    /// A read was placed, or is unplaced (again). Reads inside transactions are not counted.
    fn note(&mut self, step: &Step, placed: bool) {
        let Step::Read(told) = step else { return };
        for &(key, told) in told {
            let Some((value, version)) = told else { continue };
            let values = &mut self.values[value as usize];
            *values = if placed { *values - 1 } else { *values + 1 };
            if let Some(versions) = &mut self.versions[key as usize] {
                let count = versions.entry(version).or_default();
                *count = if placed { *count - 1 } else { *count + 1 };
                if *count == 0 {
                    versions.remove(&version);
                }
            }
        }
    }

    /// Whether this change keeps what unplaced reads show.
    fn allows(&self, key: Key, from: Cell, to: Cell) -> bool {
        let value = from.value as usize;
        let still_read = self.unique[value] && self.values[value] > 0;
        let versions = self.versions[key as usize].as_ref();
        let least = versions.and_then(|versions| versions.first_key_value());
        !still_read && least.is_none_or(|(&least, _)| to.version <= least)
    }
}

fn add_writes(step: &Step, authors: &mut HashMap<Value, u32>, deleted: &mut BTreeSet<Key>) {
    match step {
        Step::Put(_, value) => *authors.entry(*value).or_default() += 1,
        Step::Delete(keys, _) => deleted.extend(keys),
        Step::Txn(txn) => {
            let steps = txn.then.iter().chain(&txn.otherwise);
            steps.for_each(|step| add_writes(step, authors, deleted));
        }
        Step::Read(_) | Step::Count(..) | Step::Nothing => {}
    }
}

impl<'a> State<'a> {
    pub(super) fn new(part: &'a Part) -> State<'a> {
        State {
            cells: vec![Cell::default(); part.keys.len()],
            past: Vec::new(),
            hash: 0,
            texts: &part.texts,
            path: Vec::new(),
            ahead: Ahead::of(part),
        }
    }

    /// An operation was placed, or taken out again.
    pub(super) fn placed(&mut self, step: &Step, placed: bool) {
        self.ahead.note(step, placed);
    }

    /// Equal states have equal hashes; different states practically never.
    pub(super) fn hash(&self) -> u128 {
        self.hash
    }

    /// The present length of the undo log.
    pub(super) fn mark(&self) -> usize {
        self.past.len()
    }

    /// Does a step if its answer allows it; else nothing. The bits of `guess` decide undecided conditions in turn.
    pub(super) fn step(&mut self, step: &Step, guess: u32) -> bool {
        let mark = self.mark();
        self.path.clear();
        let mut path = std::mem::take(&mut self.path);
        let mut guess = guess;
        let decided = self.decide(step, &mut path, &mut guess);
        let done = decided && self.execute(step, &mut path.iter());
        self.path = path;
        if !done {
            self.back(mark);
        }
        done
    }

    /// Undoes everything since a mark.
    pub(super) fn back(&mut self, mark: usize) {
        while self.past.len() > mark {
            if let Some((key, cell)) = self.past.pop() {
                self.set(key, cell);
            }
        }
    }

    /// Which branch each transaction takes, from the state before all of them.
    fn decide(&self, step: &Step, path: &mut Vec<bool>, guess: &mut u32) -> bool {
        let Step::Txn(txn) = step else { return true };
        let holds = self.all_hold(&txn.compare);
        let succeeds = match (holds, txn.succeeded) {
            (Some(holds), Some(told)) if holds != told => return false,
            (Some(holds), _) => holds,
            (None, Some(told)) => told,
            (None, None) => {
                let first = *guess & 1 == 0;
                *guess >>= 1;
                first
            }
        };
        path.push(succeeds);
        let branch = if succeeds { &txn.then } else { &txn.otherwise };
        branch.iter().all(|step| self.decide(step, path, guess))
    }

    fn all_hold(&self, conditions: &[Condition]) -> Option<bool> {
        let mut all = Some(true);
        for condition in conditions {
            match self.holds(condition) {
                Some(true) => {}
                Some(false) => return Some(false),
                None => all = None,
            }
        }
        all
    }

    fn holds(&self, condition: &Condition) -> Option<bool> {
        let Cell { value, version } = self.cells[condition.key as usize];
        let how = condition.how;
        match condition.target {
            Target::Value(_) if version == 0 => Some(false),
            Target::Value(operand) => {
                let order = self.texts[value as usize].cmp(&self.texts[operand as usize]);
                Some(fits(how, order))
            }
            Target::Version(operand) => Some(fits(how, version.cmp(&operand))),
            Target::Revision(operand) if version == 0 => Some(fits(how, 0.cmp(&operand))),
            // It is at least the first revision.
            Target::Revision(operand) if operand < FIRST_WRITE => Some(fits(how, Ordering::Greater)),
            Target::Revision(FIRST_WRITE) if how == How::Less => Some(false),
            Target::Revision(_) => None,
        }
    }

    fn execute(&mut self, step: &Step, path: &mut std::slice::Iter<'_, bool>) -> bool {
        match step {
            Step::Put(key, value) => {
                let version = self.cells[*key as usize].version + 1;
                self.write(*key, Cell { value: *value, version })
            }
            Step::Delete(keys, told) => {
                let mut deleted = 0;
                for &key in keys {
                    if self.cells[key as usize].version > 0 {
                        if !self.write(key, Cell::default()) {
                            return false;
                        }
                        deleted += 1;
                    }
                }
                told.is_none_or(|told| told == deleted)
            }
            Step::Read(told) => told.iter().all(|&(key, told)| {
                let Cell { value, version } = self.cells[key as usize];
                told.unwrap_or_default() == (value, version)
            }),
            Step::Count(keys, told) => {
                let live = keys.iter().filter(|&&key| self.cells[key as usize].version > 0);
                live.count() as i64 == *told
            }
            Step::Txn(txn) => {
                let Some(succeeds) = path.next() else { unreachable!("each transaction was decided") };
                let branch = if *succeeds { &txn.then } else { &txn.otherwise };
                branch.iter().all(|step| self.execute(step, path))
            }
            Step::Nothing => true,
        }
    }

    fn write(&mut self, key: Key, cell: Cell) -> bool {
        let before = self.cells[key as usize];
        if !self.ahead.allows(key, before, cell) {
            return false;
        }
        self.past.push((key, before));
        self.set(key, cell);
        true
    }

    fn set(&mut self, key: Key, cell: Cell) {
        let old = std::mem::replace(&mut self.cells[key as usize], cell);
        self.hash ^= hash_of(key, old) ^ hash_of(key, cell);
    }
}

fn hash_of(key: Key, cell: Cell) -> u128 {
    if cell == Cell::default() {
        return 0;
    }
    let content = u64::from(key) << 32 | u64::from(cell.value);
    scatter(content, cell.version as u64)
}

/// 128 well-mixed bits of two numbers.
pub(super) fn scatter(a: u64, b: u64) -> u128 {
    let mut low = (a ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ b;
    low = (low ^ (low >> 32)).wrapping_mul(0x94d0_49bb_1331_11eb);
    low = (low ^ (low >> 29)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let mut high = (b ^ 0x2545_f491_4f6c_dd1d).wrapping_mul(0x9fb2_1c65_1e98_df25) ^ a;
    high = (high ^ (high >> 32)).wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
    high = (high ^ (high >> 31)).wrapping_mul(0x1656_67b1_9e37_79f9);
    u128::from(high ^ (high >> 32)) << 64 | u128::from(low ^ (low >> 32))
}
