//! Revisions never go back: a later operation shows no older state. [fault-model P2, P3]
//!
//! Rule:  an operation that began after another had ended shows no lower revision, and a higher one if it wrote. A read
//!        of another level may show an older revision, but none below what the same member has shown to such reads
//!        since its last crash [ST17], and none whose write had not begun. Other guarantees of these levels: `seen.rs`,
//!        `bounded.rs`.
//! Reads: only the header's revisions, so a wrong specification cannot blind it. Linear.
//! Knows nothing of: keys and values.

use super::{Summary, Violation, summary};
use crate::history::{Record, What};
use crate::operations::{End, Freshness, Operation, paired};
use std::collections::BTreeMap;

const NAME: &str = "revisions_never_back";

/// A revision that an answer has shown.
#[derive(Clone, Copy, Default)]
pub(super) struct Shown {
    pub(super) revision: i64,
    pub(super) by: u64,
}

impl Shown {
    pub(super) fn raise(&mut self, revision: i64, by: u64) {
        if self.revision < revision {
            *self = Shown { revision, by };
        }
    }
}

/// What one member has shown to non-linearizable reads since its last crash.
#[derive(Clone, Copy, Default)]
struct Member {
    life: u64,
    shown: Shown,
}

/// What had been shown when an operation began.
#[derive(Clone, Copy, Default)]
struct Begun {
    /// The highest revision that any answer had shown.
    highest: Shown,
    /// What its member had shown.
    member: Member,
}

/// Judges that no revision is shown after a higher one was.
///
/// # Errors
/// The first operation that shows an older state than it may.
pub fn revisions_never_back(history: &[Record]) -> Result<Summary, Violation> {
    over(history, &paired(history)?)
}

/// The same, for operations already paired.
pub(super) fn over(history: &[Record], operations: &[Operation<'_>]) -> Result<Summary, Violation> {
    let numbers: std::collections::HashMap<u64, usize> =
        operations.iter().enumerate().map(|(number, operation)| (operation.id, number)).collect();
    let mut begun = vec![Begun::default(); operations.len()];
    let mut highest = Shown::default();
    let mut members: BTreeMap<u64, Member> = BTreeMap::new();
    let mut judged = 0;
    for record in history {
        match &record.what {
            What::Crashed { member } => {
                let member = members.entry(*member).or_default();
                *member = Member { life: member.life + 1, shown: Shown::default() };
            }
            What::Invoke { member, .. } => {
                let member = members.get(member).copied().unwrap_or_default();
                begun[numbers[&record.id]] = Begun { highest, member };
            }
            What::Done { .. } => {
                let number = numbers[&record.id];
                let operation = &operations[number];
                let End::Done(revision, _) = operation.end else { continue };
                judged += 1;
                if operation.freshness() != Freshness::Linearizable {
                    let member = members.entry(operation.member).or_default();
                    let before = begun[number].member;
                    if member.life == before.life {
                        not_below(operation, revision, before.shown, "the same member had shown")?;
                        member.shown.raise(revision, operation.id);
                    }
                } else {
                    let least = begun[number].highest;
                    not_below(operation, revision, least, "somebody had been shown")?;
                    if operation.has_written() && revision == least.revision {
                        return Err(not_its_own(operation, least));
                    }
                }
                highest.raise(revision, operation.id);
            }
            What::Refused { .. } | What::Unknown { .. } => {}
        }
    }
    Ok(Summary { judged, ..summary(operations) })
}

fn not_below(operation: &Operation<'_>, revision: i64, least: Shown, who: &str) -> Result<(), Violation> {
    if least.revision <= revision {
        return Ok(());
    }
    let Shown { revision: higher, by } = least;
    Err(Violation {
        property: NAME,
        story: format!(
            "operation {} ({}) shows revision {revision}; before it began, {who} {higher} (operation {by})",
            operation.id,
            super::shown(operation.asked)
        ),
        operations: vec![by, operation.id],
    })
}

fn not_its_own(operation: &Operation<'_>, least: Shown) -> Violation {
    Violation {
        property: NAME,
        story: format!(
            "operation {} wrote at revision {}, which was there before it began (operation {})",
            operation.id, least.revision, least.by
        ),
        operations: vec![least.by, operation.id],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judges::testing::*;

    #[test]
    fn a_read_that_shows_less_than_an_ended_write_is_caught() {
        let history =
            [invoke(1, put("a", "1")), done(1, 2, wrote()), invoke(2, get("a")), done(2, 1, read(&[]))];
        let violation = revisions_never_back(&timed(&history)).expect_err("it went back");
        assert_eq!(violation.operations, [1, 2]);
    }

    #[test]
    fn a_read_that_overlaps_the_write_may_show_either() {
        let history =
            [invoke(2, get("a")), invoke(1, put("a", "1")), done(1, 2, wrote()), done(2, 1, read(&[]))];
        assert!(revisions_never_back(&timed(&history)).is_ok());
    }

    #[test]
    fn two_writes_one_after_the_other_do_not_share_a_revision() {
        let history =
            [invoke(1, put("a", "1")), done(1, 2, wrote()), invoke(2, put("b", "1")), done(2, 2, wrote())];
        assert!(revisions_never_back(&timed(&history)).is_err());
    }

    #[test]
    fn a_member_shows_serializable_readers_nothing_older_until_it_has_died() {
        let reads = |crash: bool| {
            let mut history = vec![invoke(1, stale_get("a")), done(1, 5, read(&[]))];
            if crash {
                history.push(crashed(1));
            }
            history.extend([invoke(2, stale_get("a")), done(2, 4, read(&[]))]);
            timed(&history)
        };
        assert!(revisions_never_back(&reads(false)).is_err());
        assert!(revisions_never_back(&reads(true)).is_ok());
    }

    #[test]
    fn a_serializable_read_may_lag_behind_other_members_but_linearizable_ones_may_not() {
        let lagging = |question| {
            let mut history = vec![invoke(1, put("a", "1")), done(1, 2, wrote())];
            history.extend([invoke(2, question), done(2, 1, read(&[]))]);
            revisions_never_back(&timed(&history))
        };
        assert!(lagging(stale_get("a")).is_ok());
        assert!(lagging(get("a")).is_err());
    }

    #[test]
    fn what_a_serializable_reader_was_shown_binds_later_linearizable_readers() {
        let history =
            [invoke(1, stale_get("a")), done(1, 3, read(&[])), invoke(2, get("a")), done(2, 2, read(&[]))];
        assert!(revisions_never_back(&timed(&history)).is_err());
    }
}
