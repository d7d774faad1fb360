//! Txn: several reads and writes as one, chosen by conditions.
//!
//! 1. *Decide.* Every condition, those of nested transactions included, is evaluated against the state before the whole
//!    transaction; so the branch that each level takes is known at the start. The result is a list of [`Step`]s.
//! 2. *Check.* Every operation on the list, in order: leases exist, kept values exist, revisions can be read. The first
//!    failure fails the whole transaction.
//! 3. *Execute*, in order, at one revision; reads see the writes before them (`work.rs`). A failure that the check
//!    could not foresee (a kept value that the transaction itself deletes) undoes everything.
//!
//! Knows nothing of: limits and duplicate keys (`check.rs`), slices of the execution.

use crate::api::{
    Compare, CompareResult, CompareTarget, DeleteRange, Error, Key, Operation, Put, Range, Revision, Txn,
};
use crate::history::Version;
use crate::range::{kib, spend};
use crate::store::Store;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::ops::ControlFlow;

/// One step of a transaction whose conditions are evaluated.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// A transaction begins; the answers up to its end belong to it.
    Begin,
    /// A transaction ends; whether its conditions hold.
    End {
        succeeded: bool,
    },
    Range(Range),
    Put(Put),
    DeleteRange(DeleteRange),
}

/// A transaction whose conditions are being evaluated.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deciding {
    /// Items still to be processed, the next one last.
    todo: Vec<Todo>,
    /// Progress of the current condition.
    judging: Judging,
    pub(crate) steps: Vec<Step>,
}

#[derive(Clone, Debug)]
enum Todo {
    /// The conditions from this one on are not evaluated yet.
    Txn(Txn, usize),
    Do(Step),
}

/// Progress of the walk over the keys of one condition.
#[derive(Clone, Debug, Default)]
struct Judging {
    resume: Option<Key>,
    /// The range has a key.
    met: bool,
}

impl Deciding {
    pub(crate) fn of(txn: Txn) -> Deciding {
        Deciding { todo: Vec::from([Todo::Txn(txn, 0)]), ..Deciding::default() }
    }

    /// Continues until all conditions are evaluated, which is `true`, or the allowance is used up. Takes 1 unit for
    /// each step of the list, besides the units of the conditions.
    pub(crate) fn step(&mut self, store: &Store, allowance: &mut i64) -> bool {
        while let Some(todo) = self.todo.pop() {
            if *allowance <= 0 {
                self.todo.push(todo);
                return false;
            }
            let (txn, mut next) = match todo {
                Todo::Txn(txn, next) => (txn, next),
                Todo::Do(step) => {
                    spend(allowance, 1);
                    self.steps.push(step);
                    continue;
                }
            };
            let mut succeeded = true;
            while succeeded && let Some(compare) = txn.compare.get(next) {
                let judged = match *allowance {
                    1.. => store.judge(compare, &mut self.judging, allowance),
                    _ => None,
                };
                let Some(holds) = judged else {
                    self.todo.push(Todo::Txn(txn, next));
                    return false;
                };
                succeeded = holds;
                self.judging = Judging::default();
                next += 1;
            }
            spend(allowance, 1);
            self.steps.push(Step::Begin);
            self.todo.push(Todo::Do(Step::End { succeeded }));
            let operations = if succeeded { txn.success } else { txn.failure };
            self.todo.extend(operations.into_iter().rev().map(|operation| match operation {
                Operation::Range(range) => Todo::Do(Step::Range(range)),
                Operation::Put(put) => Todo::Do(Step::Put(put)),
                Operation::DeleteRange(delete) => Todo::Do(Step::DeleteRange(delete)),
                Operation::Txn(nested) => Todo::Txn(nested, 0),
            }));
        }
        true
    }
}

impl Store {
    /// Checks that a step of a transaction may be executed, as far as the state before it shows.
    pub(crate) fn check_step(&self, step: &Step) -> Result<(), Error> {
        match step {
            Step::Range(range) => self.check_revision(range),
            Step::Put(put) => {
                let live = || self.index.get(&put.key).is_some_and(|(_, history)| history.live().is_some());
                if (put.ignore_value || put.ignore_lease) && !live() {
                    return Err(Error::KeyNotFound);
                }
                if put.lease != 0 { Err(Error::LeaseNotFound) } else { Ok(()) }
            }
            Step::DeleteRange(_) | Step::Begin | Step::End { .. } => Ok(()),
        }
    }

    /// Unlike outside a transaction, a negative revision below the compacted one is refused as compacted: etcd's rule,
    /// kept.
    fn check_revision(&self, range: &Range) -> Result<(), Error> {
        if range.revision == Revision::NONE {
            Ok(())
        } else if range.revision > self.revision {
            Err(Error::FutureRevision)
        } else if range.revision < self.compacted {
            Err(Error::Compacted)
        } else {
            Ok(())
        }
    }

    /// Whether a condition holds for every key of its range; `None` if the allowance is used up first. A range without
    /// keys is evaluated as one missing key, whose numbers are all 0 and whose value compares false with everything.
    /// [etcd rpc.proto, Compare] A lookup of a missing key takes as long as one of an existing key, and counts the
    /// same.
    fn judge(&self, compare: &Compare, judging: &mut Judging, allowance: &mut i64) -> Option<bool> {
        let Judging { resume, met } = judging;
        let mut holds = true;
        let is_over = self.walk_some(&compare.keys, resume, false, true, allowance, |_, history, left| {
            let Some(version) = history.live() else { return ControlFlow::Continue(()) };
            if let CompareTarget::Value(operand) = &compare.target {
                spend(left, kib(operand.len().min(version.value_len())));
            }
            *met = true;
            holds = version_holds(compare, version);
            if holds { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        if is_over && !*met {
            spend(allowance, 1);
        }
        match (is_over, *met, &compare.target) {
            (false, ..) => None,
            (true, true, _) => Some(holds),
            (true, false, CompareTarget::Value(_)) => Some(false),
            (true, false, _) => Some(version_holds(compare, &Version::default())),
        }
    }
}

fn version_holds(compare: &Compare, version: &Version) -> bool {
    let order = match &compare.target {
        CompareTarget::Version(operand) => version.life().version.cmp(operand),
        CompareTarget::Create(operand) => version.life().create_revision.cmp(operand),
        CompareTarget::Mod(operand) => version.mod_revision.cmp(operand),
        CompareTarget::Lease(operand) => version.life().lease.cmp(operand),
        CompareTarget::Value(operand) => version.value().unwrap_or_default().cmp(operand),
    };
    match compare.result {
        CompareResult::Equal => order == Ordering::Equal,
        CompareResult::Greater => order == Ordering::Greater,
        CompareResult::Less => order == Ordering::Less,
        CompareResult::NotEqual => order != Ordering::Equal,
    }
}
