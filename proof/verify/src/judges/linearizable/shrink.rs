//! Shrinking: reduces a part that no order explains to a small core that no order explains.
//!
//! 1. To the shortest beginning: operations invoked later are dropped, those that ended later become open. If a
//!    beginning has no order, no longer one has, so halving finds the shortest.
//! 2. To the needed answers: dropping an answered read, or taking an answered write for open, only allows more orders.
//!    Every piece, from large to small, that can be weakened so, is.
//!
//! The rest is a proof by itself: these answers alone admit no order.
//! Knows nothing of: values, states.

use super::model::Step;
use super::partition::{Part, PartOperation};
use super::search::{Found, search};
use crate::operations::Position;

/// Steps for one attempt; an attempt that takes more counts as failed.
const ATTEMPT_STEPS_MAX: u64 = 20_000;

/// The same for a beginning.
const BEGINNING_STEPS_MAX: u64 = 1_000_000;

/// Steps for all shrinking attempts, per operation: a few seconds for the longest histories.
const STEPS_PER_OPERATION: u64 = 1000;

/// The core of a part without an order.
pub(super) fn shrink(part: &Part) -> Part {
    let mut ends: Vec<Position> = part.operations.iter().filter_map(|operation| operation.ended).collect();
    ends.sort_unstable();
    let has_none =
        |&end: &Position| search(&beginning(part, end), &mut BEGINNING_STEPS_MAX.clone()) == Found::None;
    let shortest = ends.partition_point(|end| !has_none(end));
    // If a search was given up, the halving may have gone astray.
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
                // Dropped reads shift the rest, so step back by their number: no operation is skipped.
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

/// The part as known at a place.
fn beginning(part: &Part, end: Position) -> Part {
    let begun = part.operations.iter().filter(|operation| operation.invoked < end);
    let operations = begun.filter_map(|operation| match operation.ended {
        Some(ended) if ended > end => opened(operation),
        _ => Some(operation.clone()),
    });
    Part { operations: operations.collect(), ..part.clone() }
}

/// The part without the answers of one piece.
fn weakened(part: &Part, from: usize, size: usize) -> Part {
    let numbered = part.operations.iter().enumerate();
    let operations = numbered.filter_map(|(place, operation)| {
        let is_in = (from..from + size).contains(&place) && operation.ended.is_some();
        if is_in { opened(operation) } else { Some(operation.clone()) }
    });
    Part { operations: operations.collect(), ..part.clone() }
}

/// An operation without its answer; `None` if it would then show nothing.
fn opened(operation: &PartOperation) -> Option<PartOperation> {
    let step = untold(&operation.step)?;
    Some(PartOperation { ended: None, step, ..operation.clone() })
}

/// The same for a step; `None` if it only read.
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
