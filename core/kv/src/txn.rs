//! Txn: several reads and writes as one, chosen by conditions.
//!
//! 1. *Decide.* Every condition, those of nested transactions included, is judged against the state before the whole
//!    transaction; so it is settled at the start which branch each level takes (its *path*).
//! 2. *Check.* Every operation on the path, in order: leases exist, kept values exist, revisions can be read. The first
//!    failure fails the whole transaction.
//! 3. *Execute*, in order, at one revision; reads see the writes before them. What a check of the state before could
//!    not foresee (a kept value that the transaction itself deletes) takes everything back.
//!
//! Knows nothing of: limits and duplicate keys (`check.rs`).

use crate::api::{Answer, Compare, CompareResult, CompareTarget, Error, Operation, Range, Txn};
use crate::history::Version;
use crate::store::Store;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::ops::ControlFlow;

/// Which branch each transaction takes, in the order in which they are met along the path.
type Path = Vec<bool>;

/// The decisions not yet followed.
type Steps<'a> = core::slice::Iter<'a, bool>;

impl Store {
    /// Carries out a transaction at the next revision.
    pub(crate) fn txn(&mut self, txn: &Txn) -> Result<Answer, Error> {
        let path = self.decided(txn)?;
        let (start, digest) = (self.changes.end(), self.running_digest);
        let answer = self.execute(txn, &mut path.iter());
        if answer.is_err() {
            self.undo(start, digest);
        }
        answer
    }

    /// Carries out a transaction of reads.
    pub(crate) fn read_txn(&self, txn: &Txn) -> Result<Answer, Error> {
        let path = self.decided(txn)?;
        let (succeeded, operations) = taken(txn, &mut path.iter());
        let answers = operations.iter().map(|operation| match operation {
            Operation::Range(range) => self.range(range).map(Answer::Range),
            _ => panic!("a transaction that writes was sent as a query"),
        });
        Ok(Answer::Txn { succeeded, answers: answers.collect::<Result<_, _>>()? })
    }

    /// The path, if every check along it holds.
    fn decided(&self, txn: &Txn) -> Result<Path, Error> {
        let mut path = Path::new();
        self.decide(txn, &mut path);
        self.check(txn, &mut path.iter())?;
        Ok(path)
    }

    fn decide(&self, txn: &Txn, path: &mut Path) {
        let succeeds = txn.compare.iter().all(|compare| self.holds(compare));
        path.push(succeeds);
        for operation in branch(txn, succeeds) {
            if let Operation::Txn(nested) = operation {
                self.decide(nested, path);
            }
        }
    }

    fn check(&self, txn: &Txn, steps: &mut Steps<'_>) -> Result<(), Error> {
        let (_, operations) = taken(txn, steps);
        operations.iter().try_for_each(|operation| match operation {
            Operation::Range(range) => self.check_revision(range),
            Operation::Put(put) => {
                let live = self.index.get(&put.key).is_some_and(|(_, history)| history.live().is_some());
                if (put.ignore_value || put.ignore_lease) && !live {
                    return Err(Error::KeyNotFound);
                }
                if put.lease != 0 { Err(Error::LeaseNotFound) } else { Ok(()) }
            }
            Operation::DeleteRange(_) => Ok(()),
            Operation::Txn(nested) => self.check(nested, steps),
        })
    }

    /// Other than outside a transaction, a negative revision below the compacted one is refused as compacted: etcd's
    /// rule, kept.
    fn check_revision(&self, range: &Range) -> Result<(), Error> {
        if range.revision == 0 {
            Ok(())
        } else if range.revision > self.revision {
            Err(Error::FutureRevision)
        } else if range.revision < self.compacted && !self.forgets_late() {
            Err(Error::Compacted)
        } else {
            Ok(())
        }
    }

    fn execute(&mut self, txn: &Txn, steps: &mut Steps<'_>) -> Result<Answer, Error> {
        let (succeeded, operations) = taken(txn, steps);
        let mut answers = Vec::with_capacity(operations.len());
        for operation in operations {
            answers.push(match operation {
                Operation::Range(range) => Answer::Range(self.range(range)?),
                Operation::Put(put) => self.put(put)?,
                Operation::DeleteRange(delete) => self.delete_range(delete),
                Operation::Txn(nested) => self.execute(nested, steps)?,
            });
            if planted!("txn-spread-over-revisions") {
                self.revision = self.changing_revision();
            }
        }
        if planted!("txn-judged-after-its-writes") {
            return Ok(Answer::Txn { succeeded: txn.compare.iter().all(|c| self.holds(c)), answers });
        }
        Ok(Answer::Txn { succeeded, answers })
    }

    /// Whether a condition holds for every key of its range. A range without keys is judged as one missing key, whose
    /// numbers are all 0 and whose value compares false with everything. [etcd rpc.proto, Compare]
    fn holds(&self, compare: &Compare) -> bool {
        let mut is_empty = true;
        let mut holds = true;
        self.each_live(compare.keys.span(), |_, version| {
            is_empty = false;
            holds = version_holds(compare, version);
            if holds { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        match (is_empty, &compare.target) {
            (false, _) => holds,
            (true, CompareTarget::Value(_)) => false,
            (true, _) => version_holds(compare, &Version::default()),
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

/// The branch that the next decision takes.
fn taken<'a>(txn: &'a Txn, steps: &mut Steps<'_>) -> (bool, &'a [Operation]) {
    let succeeded = *steps.next().expect("one decision per transaction on the path");
    (succeeded, branch(txn, succeeded))
}

fn branch(txn: &Txn, succeeds: bool) -> &[Operation] {
    if succeeds { &txn.success } else { &txn.failure }
}
