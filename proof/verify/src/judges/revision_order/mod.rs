//! Revision order: every answer is the one that the specification gives when the writes are done in the order of their
//! revisions, and that order agrees with real time. [fault-model P1, P2, P3]
//!
//! 1. Each answered write carries the revision it made; each read, the revision it was made at. So the order is known,
//!    and one replay judges everything: a write on the state before its revision, everything else on the state at its
//!    header's revision.
//! 2. Real time is judged in `back.rs` for revisions, in `compaction.rs` for compactions.
//! 3. A revision that no answered write made is a *gap*: an open write made it. `gaps.rs` lists the candidates; the
//!    replay takes the first that fits. If a later answer does not fit, it goes back to the newest gap that may be the
//!    cause. So it decides exactly whether some choice explains all answers.
//!
//! Sound: rejects only what no correct store could have answered. Complete when nothing is open. With open writes it
//! tries choices up to a limit; beyond it the history counts as `undecided` and passes. It overlooks a fault that no
//! later answer shows (an acknowledged write is never dropped from the order, so a lost one always shows, in a shared
//! revision or in a read).
//! Cost: n log n without open writes.
//! Knows nothing of: members, except that reads of the weaker levels may lag.

mod compaction;
mod gaps;
mod outlook;
mod replay;

use super::{Summary, Violation, back, shown, summary};
use crate::history::Record;
use crate::operations::{End, Operation, has_written, paired};

const NAME: &str = "revision_order";

/// Judges a history in the order of revisions.
///
/// # Errors
/// The first answer that the order does not explain.
pub fn revision_order(history: &[Record]) -> Result<Summary, Violation> {
    let operations = paired(history)?;
    back::over(history, &operations)?;
    let order = Order::of(&operations)?;
    let compacted = compaction::judge(&operations)?;
    let gaps = gaps::Gaps::of(&operations, &order)?;
    let decided = replay::Replay::new(&operations, &order, &compacted, &gaps).run()?;
    let judged =
        operations.iter().filter(|operation| matches!(operation.end, End::Done(..) | End::Rejected(_)));
    Ok(Summary { judged: judged.count() as u64, undecided: u64::from(!decided), ..summary(&operations) })
}

/// Numbers of operations by the revision they belong to.
struct Order {
    /// The write that made each revision, from 2 on.
    writers: Vec<Option<u32>>,
    /// The other operations that show a revision, ascending by it: from `readers_from[r]` on.
    readers: Vec<u32>,
    readers_from: Vec<usize>,
}

impl Order {
    fn of(operations: &[Operation<'_>]) -> Result<Order, Violation> {
        let last = last_revision(operations)?;
        let mut writers: Vec<Option<u32>> = vec![None; (last - 1) as usize];
        let mut counts = vec![0; last as usize + 1];
        let answered = || {
            let numbered = operations.iter().enumerate();
            numbered.filter_map(|(number, operation)| match operation.end {
                End::Done(revision, answer) => Some((number, operation, revision, answer)),
                End::Rejected(_) | End::Refused | End::Unknown => None,
            })
        };
        for (number, operation, revision, answer) in answered() {
            if !has_written(answer) {
                counts[revision as usize] += 1;
                continue;
            }
            let place = writers.get_mut(usize::try_from(revision - 2).unwrap_or(usize::MAX));
            let Some(place) = place else {
                return Err(violation(&[operation], format!("{} wrote at revision 1", told(operation))));
            };
            if let Some(other) = place.replace(number as u32) {
                let other = &operations[other as usize];
                let story = format!("{} and {} both made revision {revision}", told(other), told(operation));
                return Err(violation(&[other, operation], story));
            }
        }
        let mut total = 0;
        for count in &mut counts {
            total += std::mem::replace(count, total);
        }
        let readers_from = counts.clone();
        let mut readers = vec![0; total];
        for (number, _, revision, answer) in answered() {
            if !has_written(answer) {
                let place = &mut counts[revision as usize];
                readers[*place] = number as u32;
                *place += 1;
            }
        }
        Ok(Order { writers, readers, readers_from })
    }

    /// The highest revision that was shown.
    fn last(&self) -> i64 {
        self.writers.len() as i64 + 1
    }

    fn writer(&self, revision: i64) -> Option<usize> {
        self.writers[(revision - 2) as usize].map(|number| number as usize)
    }

    fn readers(&self, revision: i64) -> impl Iterator<Item = usize> {
        let place = revision as usize;
        let end = self.readers_from.get(place + 1).copied().unwrap_or(self.readers.len());
        self.readers[self.readers_from[place]..end].iter().map(|&number| number as usize)
    }
}

/// The highest revision shown; an error if too few writes can have made it.
fn last_revision(operations: &[Operation<'_>]) -> Result<i64, Violation> {
    let possible = |operation: &&Operation<'_>| match operation.end {
        End::Done(_, answer) => has_written(answer),
        End::Unknown => gaps::may_make_a_revision(operation.asked),
        End::Rejected(_) | End::Refused => false,
    };
    let most = operations.iter().filter(possible).count() as i64 + 1;
    let mut last = 1;
    for operation in operations {
        let Some(revision) = operation.revision() else { continue };
        if revision < 1 || most < revision {
            let story = format!(
                "{} shows revision {revision}; no more than {most} can have been made",
                told(operation)
            );
            return Err(violation(&[operation], story));
        }
        last = last.max(revision);
    }
    Ok(last)
}

fn told(operation: &Operation<'_>) -> String {
    format!("operation {} {}", operation.id, shown(operation.asked))
}

fn violation(operations: &[&Operation<'_>], story: String) -> Violation {
    Violation { property: NAME, story, operations: operations.iter().map(|operation| operation.id).collect() }
}

#[cfg(test)]
mod tests;
