//! Compaction: what was compacted when, and whether rejections by revision were right.
//!
//! A compaction makes no revision, so it has no place of its own in the order. It certainly came before every operation
//! that shows a higher revision, and before every linearizable operation that began after its end. It also came before
//! reads of other levels that must see it: reads of a reader that saw its answer, and bounded reads invoked longer
//! after its end than the bound. Successful compactions ascend, and no two are of the same revision.
//! Knows nothing of: keys.

use super::{Violation, told, violation};
use crate::history::{Answer, Operation as Asked, Rejection};
use crate::operations::{End, Freshness, Operation};
use std::collections::BTreeMap;

/// Nothing is compacted.
const NEVER: i64 = -1;

/// Compactions that certainly took place.
pub(super) struct Compacted {
    /// For each operation: the revision certainly compacted when it began.
    when_begun: Vec<i64>,
    /// Successful compactions: revision shown → highest compacted by then.
    by_revision: BTreeMap<i64, i64>,
}

impl Compacted {
    /// The revision certainly compacted before this operation took place at this revision.
    pub(super) fn before(&self, number: usize, revision: i64) -> i64 {
        let shown = self.by_revision.range(..revision).next_back().map_or(NEVER, |(_, &compacted)| compacted);
        shown.max(self.when_begun[number])
    }
}

/// Judges rejections by revision, and collects the successful compactions.
pub(super) fn judge(operations: &[Operation<'_>]) -> Result<Compacted, Violation> {
    let mut by_revision: BTreeMap<i64, i64> = BTreeMap::new();
    let mut by_target: BTreeMap<i64, &Operation<'_>> = BTreeMap::new();
    for operation in operations {
        if let (Asked::Compact { revision: target }, End::Done(shown, Answer::Compact)) =
            (operation.asked, operation.end)
        {
            let highest = by_revision.entry(shown).or_insert(*target);
            *highest = (*highest).max(*target);
            if let Some(other) = by_target.insert(*target, operation) {
                let story = format!("{} and {} both succeeded", told(other), told(operation));
                return Err(violation(&[other, operation], story));
            }
        }
    }
    let mut highest = NEVER;
    for compacted in by_revision.values_mut() {
        highest = highest.max(*compacted);
        *compacted = highest;
    }
    let when_begun = sweep(operations)?;
    Ok(Compacted { when_begun, by_revision })
}

/// Lower bounds that are certain at some moment, for some reads.
#[derive(Clone, Copy)]
struct Known {
    compacted: i64,
    reached: i64,
}

impl Known {
    const NOTHING: Known = Known { compacted: NEVER, reached: 1 };

    fn add(&mut self, operation: &Operation<'_>) {
        let End::Done(revision, _) = operation.end else { return };
        self.reached = self.reached.max(revision);
        if let Asked::Compact { revision } = operation.asked {
            self.compacted = self.compacted.max(*revision);
        }
    }
}

/// What the answers so far prove: for linearizable reads, for each reader, and in the past.
struct Answers {
    all: Known,
    readers: BTreeMap<u64, Known>,
    /// After the answers until this time; ascending.
    past: Vec<(u64, Known)>,
}

impl Answers {
    fn add(&mut self, operation: &Operation<'_>) {
        self.all.add(operation);
        self.past.push((operation.ended_at, self.all));
        if let Some(reader) = operation.reader() {
            self.readers.entry(reader).or_insert(Known::NOTHING).add(operation);
        }
    }

    /// What this operation must see.
    fn known_to(&self, operation: &Operation<'_>) -> Known {
        match operation.freshness() {
            Freshness::Linearizable => self.all,
            Freshness::AtLeast { reader } => self.readers.get(&reader).copied().unwrap_or(Known::NOTHING),
            Freshness::Bounded(age) => {
                let older =
                    self.past.partition_point(|&(at, _)| at.saturating_add(age) < operation.invoked_at);
                older.checked_sub(1).map_or(Known::NOTHING, |newest| self.past[newest].1)
            }
            Freshness::Serializable => Known::NOTHING,
        }
    }
}

/// Goes through the history in time, with the revisions certainly compacted, possibly compacted and certainly reached.
fn sweep(operations: &[Operation<'_>]) -> Result<Vec<i64>, Violation> {
    let mut ends: Vec<usize> = (0..operations.len())
        .filter(|&number| operations[number].ended != crate::operations::NEVER)
        .collect();
    ends.sort_by_key(|&number| operations[number].ended);
    let mut ends = ends.into_iter().peekable();
    let mut possible = NEVER;
    let mut answers = Answers { all: Known::NOTHING, readers: BTreeMap::new(), past: Vec::new() };
    let mut when_begun = vec![Known::NOTHING; operations.len()];
    let end = |number: usize, answers: &mut Answers, possible: i64, begun: &[Known]| {
        let operation = &operations[number];
        match operation.end {
            End::Done(..) => {
                answers.add(operation);
                Ok(())
            }
            End::Rejected(rejection) => {
                judge_rejection(operation, rejection, possible, begun[number].reached)
            }
            End::Refused | End::Unknown => Ok(()),
        }
    };
    for (number, operation) in operations.iter().enumerate() {
        while let Some(ended) = ends.next_if(|&other| operations[other].ended < operation.invoked) {
            end(ended, &mut answers, possible, &when_begun)?;
        }
        when_begun[number] = answers.known_to(operation);
        if let (Asked::Compact { revision }, End::Done(..) | End::Unknown) = (operation.asked, operation.end)
        {
            possible = possible.max(*revision);
        }
    }
    for ended in ends {
        end(ended, &mut answers, possible, &when_begun)?;
    }
    Ok(when_begun.into_iter().map(|known| known.compacted).collect())
}

/// A rejection needs a reason: an invalid request, a possible compaction, a revision possibly not reached.
fn judge_rejection(
    operation: &Operation<'_>,
    rejection: Rejection,
    possible: i64,
    reached: i64,
) -> Result<(), Violation> {
    let is_right = match rejection {
        Rejection::Invalid => crate::spec::check(operation.asked).is_err(),
        Rejection::Compacted => asks_for(operation.asked, false, &|revision, kind| match kind {
            Kind::Read => 0 < revision && revision < possible,
            Kind::ReadInTxn => revision != 0 && revision < possible,
            Kind::Compaction => revision <= possible,
        }),
        Rejection::Future => asks_for(operation.asked, false, &|revision, _| reached < revision),
    };
    if is_right {
        return Ok(());
    }
    let story = format!(
        "{} was rejected as {rejection:?}; at that time nothing above {possible} can have been compacted, and \
         revision {reached} had been reached",
        told(operation)
    );
    Err(violation(&[operation], story))
}

/// Where a request names a revision.
#[derive(Clone, Copy)]
enum Kind {
    Read,
    ReadInTxn,
    Compaction,
}

/// Whether `such` holds of any revision that the operation may ask for.
fn asks_for(asked: &Asked, in_txn: bool, such: &impl Fn(i64, Kind) -> bool) -> bool {
    match asked {
        Asked::Range { revision, .. } => such(*revision, if in_txn { Kind::ReadInTxn } else { Kind::Read }),
        Asked::Compact { revision } => such(*revision, Kind::Compaction),
        Asked::Txn { then, otherwise, .. } => {
            then.iter().chain(otherwise).any(|asked| asks_for(asked, true, such))
        }
        Asked::Put { .. } | Asked::Delete { .. } => false,
    }
}
