//! Readers see what they saw: a reader's read, at any member, shows no older state than the reader has seen.
//! [fault-model P3]
//!
//! Rule:  a read of the level "at least" shows no revision below that of an answer which its reader had received
//!        when it asked: to its reads at any member, and to its writes.
//! Reads: only header revisions and readers' numbers. Linear. `revision_order` judges that the answer is the state of
//!        that revision, and what readers have seen of compactions.
//! Overlooks: answers without a revision (rejections).
//! Knows nothing of: keys and values, members, positions of the log.

use super::back::Shown;
use super::{Summary, Violation, shown, summary};
use crate::history::{Record, What};
use crate::operations::{End, Freshness, paired};
use std::collections::{BTreeMap, HashMap};

const NAME: &str = "readers_see_what_they_saw";

/// Judges that no reader reads an older state than it has seen.
///
/// # Errors
/// The first read that shows an older state than its reader has seen.
pub fn readers_see_what_they_saw(history: &[Record]) -> Result<Summary, Violation> {
    let operations = paired(history)?;
    let of_readers: HashMap<u64, usize> = operations
        .iter()
        .enumerate()
        .filter(|(_, operation)| operation.reader().is_some())
        .map(|(number, operation)| (operation.id, number))
        .collect();
    let mut told: BTreeMap<u64, Shown> = BTreeMap::new();
    let mut when_begun: HashMap<u64, Shown> = HashMap::new();
    let mut judged = 0;
    for record in history {
        let Some(operation) = of_readers.get(&record.id).map(|&number| &operations[number]) else { continue };
        let reader = operation.reader().expect("the map has those of readers only");
        match record.what {
            What::Invoke { .. } => {
                when_begun.insert(operation.id, told.get(&reader).copied().unwrap_or_default());
            }
            What::Done { .. } => {
                let End::Done(revision, _) = operation.end else { continue };
                let least = when_begun[&operation.id];
                if operation.freshness() == (Freshness::AtLeast { reader }) {
                    judged += 1;
                    if revision < least.revision {
                        return Err(went_back(operation, reader, revision, least));
                    }
                }
                told.entry(reader).or_default().raise(revision, operation.id);
            }
            What::Refused { .. } | What::Unknown { .. } | What::Crashed { .. } => {}
        }
    }
    Ok(Summary { judged, ..summary(&operations) })
}

fn went_back(
    operation: &crate::operations::Operation<'_>,
    reader: u64,
    revision: i64,
    least: Shown,
) -> Violation {
    let Shown { revision: higher, by } = least;
    Violation {
        property: NAME,
        story: format!(
            "operation {} ({}) of reader {reader} at n{} shows revision {revision}; before it began, the reader had \
             been told of {higher} (operation {by})",
            operation.id,
            shown(operation.asked),
            operation.member
        ),
        operations: vec![by, operation.id],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Level, Rejection};
    use crate::judges::testing::*;
    use crate::judges::{judge_all, revision_order, revisions_never_back};

    const MINE: Level = Level::AtLeast { reader: 7 };

    /// A reader writes at one member and reads at another one, which shows the state before.
    fn behind(level: Level) -> Vec<Record> {
        timed(&[
            invoke_at(1, 1, put("a", "1"), MINE),
            done(1, 2, wrote()),
            invoke_at(2, 2, get("a"), level),
            done(2, 1, read(&[])),
        ])
    }

    #[test]
    fn a_read_behind_a_write_of_its_reader_is_caught_by_this_judge_alone() {
        let violation = readers_see_what_they_saw(&behind(MINE)).expect_err("it went back");
        assert_eq!((violation.property, violation.operations), (NAME, vec![1, 2]));
        assert!(violation.story.contains("reader 7 at n2 shows revision 1"), "{}", violation.story);
        assert!(revisions_never_back(&behind(MINE)).is_ok() && revision_order(&behind(MINE)).is_ok());
        let last = crate::judges::FinalState { revision: 2, kvs: vec![] };
        assert_eq!(judge_all(&behind(MINE), &last).expect_err("all judges").property, NAME);
    }

    #[test]
    fn another_reader_may_lag_behind() {
        let summary =
            readers_see_what_they_saw(&behind(Level::AtLeast { reader: 8 })).expect("it saw nothing yet");
        assert_eq!(summary.judged, 1);
    }

    #[test]
    fn what_any_member_showed_a_reader_binds_all_others() {
        for (first, member) in [(get("a"), 1), (get("a"), 2), (stale_get("a"), 2)] {
            let shows = |revision| {
                let history = timed(&[
                    invoke_at(1, 1, first.clone(), MINE),
                    done(1, 3, read(&[])),
                    invoke_at(2, member, get("a"), MINE),
                    done(2, revision, read(&[])),
                ]);
                readers_see_what_they_saw(&history)
            };
            assert!(shows(2).is_err() && shows(3).is_ok() && shows(4).is_ok(), "n{member}");
        }
    }

    #[test]
    fn a_read_that_had_begun_before_its_reader_was_told_may_lag() {
        let history = timed(&[
            invoke_at(2, 2, get("a"), MINE),
            invoke_at(1, 1, put("a", "1"), MINE),
            done(1, 2, wrote()),
            done(2, 1, read(&[])),
        ]);
        assert!(readers_see_what_they_saw(&history).is_ok());
    }

    #[test]
    fn open_writes_and_serializable_requests_bind_no_reader() {
        let open = [invoke_at(1, 1, put("a", "1"), MINE), unknown(1), invoke_at(2, 2, get("a"), MINE)];
        let open = [&open[..], &[done(2, 1, read(&[]))]].concat();
        assert!(readers_see_what_they_saw(&timed(&open)).is_ok());
        let stale = timed(&[
            invoke_at(1, 1, put("a", "1"), MINE),
            done(1, 2, wrote()),
            invoke_at(2, 2, stale_get("a"), MINE),
            done(2, 1, read(&[])),
        ]);
        assert!(readers_see_what_they_saw(&stale).is_ok());
    }

    #[test]
    fn a_reader_that_was_told_of_a_revision_is_not_told_that_it_is_to_come() {
        let asked = |reader| {
            timed(&[
                invoke_at(1, 1, put("a", "1"), MINE),
                done(1, 2, wrote()),
                invoke_at(2, 2, range("a", "", 2, false), Level::AtLeast { reader }),
                rejected(2, Rejection::Future),
            ])
        };
        assert!(revision_order(&asked(7)).is_err());
        assert!(revision_order(&asked(8)).is_ok());
    }
}
