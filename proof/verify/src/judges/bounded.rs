//! Bounded reads are recent: a bounded read shows every state answered longer ago than its bound.
//! [replication-protocols §9.1]
//!
//! Rule:  a bounded read shows no revision below that of an answer which was older than the bound when the read was
//!        invoked. Equal times, and a bound exactly reached, prove nothing.
//! Reads: header revisions and the times of the history. The recorder has added to each bound the error of the members'
//!        clocks. A member counts from the arrival of the read, which is later than its invocation; the judge cannot
//!        know that time, so it accepts more. Linear, except for one search per read.
//! Overlooks: contents and compactions; `revision_order` judges both.
//! Knows nothing of: keys and values, members.

use super::back::Shown;
use super::{Summary, Violation, shown, summary};
use crate::history::Record;
use crate::operations::{End, Freshness, Operation, paired};

const NAME: &str = "bounded_reads_are_recent";

/// Judges that no bounded read is older than its bound allows.
///
/// # Errors
/// The first bounded read that misses a revision answered longer ago than its bound.
pub fn bounded_reads_are_recent(history: &[Record]) -> Result<Summary, Violation> {
    let operations = paired(history)?;
    let mut answered: Vec<(u64, &Operation<'_>)> = operations
        .iter()
        .filter(|operation| matches!(operation.end, End::Done(..)))
        .map(|operation| (operation.ended_at, operation))
        .collect();
    answered.sort_by_key(|&(at, _)| at);
    // The highest revision shown until each answer.
    let mut highest = Shown::default();
    let shown_by_then: Vec<(u64, Shown)> = answered
        .iter()
        .map(|&(at, operation)| {
            highest.raise(operation.revision().unwrap_or_default(), operation.id);
            (at, highest)
        })
        .collect();
    let mut judged = 0;
    for operation in &operations {
        let (Freshness::Bounded(age), End::Done(revision, _)) = (operation.freshness(), operation.end) else {
            continue;
        };
        judged += 1;
        let older = shown_by_then.partition_point(|&(at, _)| at.saturating_add(age) < operation.invoked_at);
        let least = older.checked_sub(1).map(|newest| shown_by_then[newest]).unwrap_or_default();
        if revision < least.1.revision {
            return Err(too_old(operation, revision, age, least));
        }
    }
    Ok(Summary { judged, ..summary(&operations) })
}

fn too_old(operation: &Operation<'_>, revision: i64, age: u64, least: (u64, Shown)) -> Violation {
    let (at, Shown { revision: higher, by }) = least;
    Violation {
        property: NAME,
        story: format!(
            "operation {} ({}) at n{} shows revision {revision} and may be {:.3} ms old; somebody had been shown {higher} \
             (operation {by}) until {:.3} ms before it began",
            operation.id,
            shown(operation.asked),
            operation.member,
            age as f64 / 1e6,
            (operation.invoked_at - at) as f64 / 1e6
        ),
        operations: vec![by, operation.id],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Level, Rejection, What};
    use crate::judges::testing::*;
    use crate::judges::{judge_all, linearizable, revision_order, revisions_never_back};

    /// A write is answered at 1 µs; a read is asked at 5 µs and shows the state before the write.
    fn old_by(level: Option<Level>) -> Vec<Record> {
        let (_, asked) = invoke_at(3, 2, get("a"), Level::Bounded(0));
        let What::Invoke { member, operation, .. } = asked else { unreachable!("it was just made") };
        let mut history = timed(&[
            invoke(1, put("a", "1")),
            done(1, 2, wrote()),
            invoke(2, put("b", "1")),
            unknown(2),
            (3, What::Invoke { member, operation, level }),
            done(3, 1, read(&[])),
        ]);
        history[4].at = 5_000;
        history[5].at = 6_000;
        history
    }

    #[test]
    fn a_read_that_lacks_what_was_answered_longer_ago_than_its_bound_is_caught() {
        for (age, is_good) in [(0, false), (3_999, false), (4_000, true), (4_001, true), (u64::MAX, true)] {
            let judged = bounded_reads_are_recent(&old_by(Some(Level::Bounded(age))));
            assert_eq!(judged.is_ok(), is_good, "{age}");
            match judged {
                Ok(summary) => assert_eq!(summary.judged, 1),
                Err(violation) => assert_eq!((violation.property, violation.operations), (NAME, vec![1, 3])),
            }
        }
    }

    #[test]
    fn only_its_judge_sees_it_and_of_all_judges_it_is_one() {
        let history = old_by(Some(Level::Bounded(1)));
        for judge in [revisions_never_back, revision_order, linearizable] {
            judge(&history).expect("that is none of its matters");
        }
        let last = crate::judges::FinalState { revision: 2, kvs: vec![] };
        assert_eq!(judge_all(&history, &last).expect_err("all judges").property, NAME);
    }

    #[test]
    fn reads_of_other_levels_are_none_of_its_matters() {
        for level in [None, Some(Level::AtLeast { reader: 1 })] {
            assert_eq!(bounded_reads_are_recent(&old_by(level)).expect("not judged").judged, 0);
        }
        assert!(revisions_never_back(&old_by(None)).is_err(), "that judge sees the linearizable one");
    }

    #[test]
    fn an_old_answer_counts_however_many_new_ones_there_are() {
        let history = |shows| {
            timed(&[
                invoke(1, put("a", "1")),
                done(1, 2, wrote()), // at 1 µs
                invoke(2, put("a", "2")),
                done(2, 3, wrote()), // at 3 µs
                invoke_at(3, 2, get("a"), Level::Bounded(1_500)),
                done(3, shows, if shows == 2 { read(&[("a", "1", 2, 2, 1)]) } else { read(&[]) }),
            ])
        };
        assert!(bounded_reads_are_recent(&history(1)).is_err());
        assert!(bounded_reads_are_recent(&history(2)).is_ok(), "the second write is younger than the bound");
        revision_order(&history(2)).expect("a state that was");
    }

    #[test]
    fn what_is_answered_must_have_been_true_all_the_same() {
        let mut history = old_by(Some(Level::Bounded(u64::MAX)));
        revision_order(&history).expect("nothing was there at revision 1");
        history[5].what = What::Done { revision: Some(1), answer: Ok(read(&[("a", "1", 2, 2, 1)])) };
        assert!(revision_order(&history).is_err());
    }

    #[test]
    fn a_member_never_goes_back_for_bounded_readers_either() {
        let bounded = |id, revision| {
            [invoke_at(id, 1, get("a"), Level::Bounded(u64::MAX)), done(id, revision, read(&[]))]
        };
        assert!(revisions_never_back(&timed(&[bounded(1, 5), bounded(2, 4)].concat())).is_err());
        let crash = [bounded(1, 5).to_vec(), vec![crashed(1)], bounded(2, 4).to_vec()].concat();
        assert!(revisions_never_back(&timed(&crash)).is_ok());
    }

    #[test]
    fn a_bounded_read_is_not_told_that_an_old_revision_is_to_come() {
        let asked = |age| {
            timed(&[
                invoke(1, put("a", "1")),
                done(1, 2, wrote()), // at 1 µs
                invoke_at(2, 2, range("a", "", 2, false), Level::Bounded(age)),
                rejected(2, Rejection::Future),
            ])
        };
        assert!(revision_order(&asked(900)).is_err());
        assert!(revision_order(&asked(1_000)).is_ok());
    }
}
