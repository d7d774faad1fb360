//! Shrinking: of a part that no order explains, the least that no order explains.
//!
//! 1. Its beginning: what was invoked later goes, what ended later is open. A longer beginning never has an order when a
//!    shorter one has none, so halving finds the shortest.
//! 2. Its needed answers: an answered read that is left out, and an answered write that is taken for open, only allow
//!    more orders. Whatever can be weakened so, in pieces from large to small, is.
//!
//! What is left is enough by itself: were these the only answers, there would be no order.
//! Knows nothing of: keys, answers.

use super::model::Step;
use super::partition::{Part, PartOperation};
use super::search::{Found, search};
use crate::operations::Position;

/// Steps for one attempt; an attempt that takes more is taken for one that failed.
const ATTEMPT_STEPS_MAX: u64 = 20_000;

/// The same for a beginning.
const BEGINNING_STEPS_MAX: u64 = 1_000_000;

/// Steps for all attempts at making it smaller, per operation: a few seconds for the longest histories.
const STEPS_PER_OPERATION: u64 = 1000;

/// The least of a part without an order.
pub(super) fn shrink(part: &Part) -> Part {
    let mut ends: Vec<Position> = part.operations.iter().filter_map(|operation| operation.ended).collect();
    ends.sort_unstable();
    let has_none =
        |&end: &Position| search(&beginning(part, end), &mut BEGINNING_STEPS_MAX.clone()) == Found::None;
    let shortest = ends.partition_point(|end| !has_none(end));
    // Where a search was given up the halving may have gone astray.
    let found = ends.get(shortest).filter(|end| has_none(end));
    let mut least = found.map_or_else(|| part.clone(), |&end| beginning(part, end));
    let mut steps = least.operations.len() as u64 * STEPS_PER_OPERATION;
    let mut size = least.operations.len().div_ceil(2);
    while size > 0 {
        let mut from = 0;
        while from < least.operations.len() && steps > 0 {
            let weaker = weakened(&least, from, size);
            let changed = answered(&weaker) < answered(&least);
            let mut attempt = if changed { steps.min(ATTEMPT_STEPS_MAX) } else { 0 };
            steps -= attempt;
            let has_none = changed && search(&weaker, &mut attempt) == Found::None;
            steps += attempt;
            if has_none {
                // Reads have left, so the next piece may begin earlier; starting over there finds them all.
                from += size.min(weaker.operations.len().saturating_sub(from));
                from -= from.min(least.operations.len() - weaker.operations.len());
                least = weaker;
            } else {
                from += size;
            }
        }
        size /= 2;
    }
    least
}

fn answered(part: &Part) -> usize {
    part.operations.iter().filter(|operation| operation.ended.is_some()).count()
}

/// What is known at a place.
fn beginning(part: &Part, end: Position) -> Part {
    let begun = part.operations.iter().filter(|operation| operation.invoked < end);
    let operations = begun.filter_map(|operation| match operation.ended {
        Some(ended) if ended > end => opened(operation),
        _ => Some(operation.clone()),
    });
    Part { operations: operations.collect(), ..part.clone() }
}

/// A piece of the operations without their answers.
fn weakened(part: &Part, from: usize, size: usize) -> Part {
    let numbered = part.operations.iter().enumerate();
    let operations = numbered.filter_map(|(place, operation)| {
        let is_in = (from..from + size).contains(&place) && operation.ended.is_some();
        if is_in { opened(operation) } else { Some(operation.clone()) }
    });
    Part { operations: operations.collect(), ..part.clone() }
}

/// An operation without its answer; nothing if it would then say nothing.
fn opened(operation: &PartOperation) -> Option<PartOperation> {
    let step = untold(&operation.step)?;
    Some(PartOperation { ended: None, step, ..operation.clone() })
}

/// The same without what was answered; nothing if it only read.
fn untold(step: &Step) -> Option<Step> {
    match step {
        Step::Put(..) => Some(step.clone()),
        Step::Delete(keys, _) => Some(Step::Delete(keys.clone(), None)),
        Step::Read(_) | Step::Count(..) | Step::Nothing => None,
        Step::Txn(txn) => {
            let mut txn = txn.clone();
            txn.succeeded = None;
            let mut writes = false;
            for branch in [&mut txn.then, &mut txn.otherwise] {
                for step in branch.iter_mut() {
                    let open = untold(step);
                    writes |= open.is_some();
                    *step = open.unwrap_or(Step::Nothing);
                }
            }
            writes.then_some(Step::Txn(txn))
        }
    }
}
