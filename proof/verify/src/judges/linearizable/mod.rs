//! Linearizability: some order of the operations, each between its invocation and its end, explains every answer.
//! [fault-model P2; Wing and Gong 1993, Lowe 2017]
//!
//! This judge does not trust revisions: it compares keys, values and versions only, so it catches a store whose
//! revisions are consistent but wrong.
//!
//! | File | Its idea |
//! |---|---|
//! | `partition.rs` | keys that share no transaction are judged apart |
//! | `model.rs` | a few keys with their values and versions, as a machine with undo |
//! | `search.rs` | the order that explains all answers, or proof that there is none |
//! | `shrink.rs` | reduces a part without an order to a small core without one |
//!
//! Sound. It overlooks: reads of the past, create and mod revisions, reads that need not be linearizable, compaction;
//! and that a range read or range delete over several parts is one operation. `revision_order` judges all of these. A
//! part with too many open operations for the search to end is `undecided`.
//! Cost: about linear while few operations overlap.
//! Knows nothing of: revisions, members.

mod model;
mod partition;
mod search;
mod shrink;

use super::{Summary, Violation, summary};
use crate::history::Record;
use crate::operations::{End, Operation, paired};
use partition::Part;
use search::Found;

const NAME: &str = "linearizable";

/// Limit of search steps for a part: per operation, and at least.
const STEPS_PER_OPERATION: u64 = 50;
const STEPS_MIN: u64 = 100_000;

/// Judges that some order explains every answer.
///
/// # Errors
/// The smallest part found that no order explains.
pub fn linearizable(history: &[Record]) -> Result<Summary, Violation> {
    let operations = paired(history)?;
    let mut summary = summary(&operations);
    for part in partition::parts(&operations) {
        let mut steps = STEPS_MIN.max(part.operations.len() as u64 * STEPS_PER_OPERATION);
        match search::search(&part, &mut steps) {
            Found::Order => {}
            Found::GivenUp => summary.undecided += 1,
            Found::None => return Err(violation(&operations, &shrink::shrink(&part))),
        }
        summary.judged += part.operations.iter().filter(|operation| operation.ended.is_some()).count() as u64;
    }
    Ok(summary)
}

/// Reports the operations whose answers cannot all be true.
fn violation(operations: &[Operation<'_>], part: &Part) -> Violation {
    let core = part.operations.iter().filter(|operation| operation.ended.is_some());
    let core: Vec<&Operation<'_>> = core.map(|operation| &operations[operation.number]).collect();
    let open = part.operations.len() - core.len();
    let mut story = format!(
        "no order of the operations on {:?} explains these answers; every other write ({open} of them) may be anywhere \
         after its invocation, or nowhere:",
        part.keys
    );
    for operation in &core {
        let told = match operation.end {
            End::Done(_, answer) => super::shown_answer(answer),
            End::Rejected(_) | End::Refused | End::Unknown => String::new(),
        };
        story += &format!(
            "\n  records {}..{}: operation {} of client {}: {} -> {told}",
            operation.invoked + 1,
            operation.ended + 1,
            operation.id,
            operation.client,
            super::shown(operation.asked),
        );
    }
    Violation { property: NAME, story, operations: core.iter().map(|operation| operation.id).collect() }
}

#[cfg(test)]
mod tests;
