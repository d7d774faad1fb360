use super::*;
use crate::history::{Compare, How, Rejection, Target, What};
use crate::judges::testing::*;

fn judge(events: &[(u64, What)]) -> Result<Summary, Violation> {
    revision_order(&timed(events))
}

#[test]
fn reads_are_judged_at_their_revision() {
    let history = |value: &str| {
        vec![
            invoke(1, put("a", "1")),
            invoke(2, put("a", "2")),
            invoke(3, get("a")),
            done(2, 3, wrote()),
            done(1, 2, wrote()),
            done(3, 2, read(&[("a", value, 2, 2, 1)])),
        ]
    };
    assert_eq!(judge(&history("1")).map(|summary| summary.judged), Ok(3));
    let violation = judge(&history("2")).expect_err("revision 2 wrote 1");
    assert_eq!(violation.operations, [3]);
}

#[test]
fn two_writes_cannot_make_one_revision() {
    let history =
        [invoke(1, put("a", "1")), invoke(2, put("b", "1")), done(1, 2, wrote()), done(2, 2, wrote())];
    assert!(judge(&history).is_err());
    let history =
        [invoke(1, put("a", "1")), invoke(2, put("b", "1")), done(1, 3, wrote()), done(2, 2, wrote())];
    assert!(judge(&history).is_ok());
}

#[test]
fn a_gap_is_filled_by_the_open_write_that_was_read() {
    let history = |seen: &str| {
        vec![
            invoke(1, put("a", "x")),
            unknown(1),
            invoke(2, put("a", "y")),
            unknown(2),
            invoke(3, get("a")),
            done(3, 2, read(&[("a", seen, 2, 2, 1)])),
        ]
    };
    assert!(judge(&history("x")).is_ok());
    assert!(judge(&history("y")).is_ok());
    assert!(judge(&history("z")).is_err());
}

#[test]
fn a_gap_before_its_only_candidate_was_asked_for_is_caught() {
    let early = [invoke(3, get("b")), done(3, 2, read(&[])), invoke(1, put("a", "x")), unknown(1)];
    assert!(judge(&early).is_err());
    let late = [invoke(1, put("a", "x")), unknown(1), invoke(3, get("b")), done(3, 2, read(&[]))];
    assert!(judge(&late).is_ok());
}

#[test]
fn a_refused_write_that_took_effect_is_caught_and_named() {
    let history =
        [invoke(1, put("a", "x")), refused(1), invoke(3, get("a")), done(3, 2, read(&[("a", "x", 2, 2, 1)]))];
    let violation = judge(&history).expect_err("it was refused");
    // "Too few writes for that revision" is an equally good reason; only the reader must be named.
    assert!(!violation.operations.is_empty(), "{violation}");
}

#[test]
fn one_open_write_fills_one_gap() {
    let history = [
        invoke(1, put("a", "x")),
        unknown(1),
        invoke(2, put("b", "x")),
        unknown(2),
        invoke(3, get("a")),
        done(3, 3, read(&[("a", "x", 2, 3, 2)])),
    ];
    assert!(judge(&history).is_err(), "a was written once at most");
}

#[test]
fn a_choice_that_fails_later_is_taken_back() {
    // Revision 2 may be the put of a or of b. The read at 4 shows that b was written at some time before its second
    // version, and the delete at 3 that a was not there.
    let history = [
        invoke(1, put("b", "x")),
        unknown(1),
        invoke(2, put("a", "x")),
        unknown(2),
        invoke(3, put("c", "1")),
        done(3, 3, wrote()),
        invoke(4, delete("a")),
        done(4, 3, crate::history::Answer::Delete { deleted: 0 }),
        invoke(5, put("b", "y")),
        done(5, 4, wrote()),
        invoke(6, get("b")),
        done(6, 4, read(&[("b", "y", 2, 4, 2)])),
    ];
    assert_eq!(judge(&history).map(|summary| summary.undecided), Ok(0));
}

#[test]
fn a_lost_write_shows_in_the_next_read() {
    let history = [invoke(1, put("a", "1")), done(1, 2, wrote()), invoke(2, get("a")), done(2, 2, read(&[]))];
    assert!(judge(&history).is_err());
}

#[test]
fn conditions_look_at_the_state_before_the_whole_transaction() {
    let absent = Compare { key: "a".to_string(), how: How::Equal, target: Target::Version(0) };
    let nested = txn(vec![absent], vec![put("b", "1")], vec![put("b", "2")]);
    let whole = txn(vec![], vec![put("a", "1"), nested], vec![]);
    let answer = |succeeded| crate::history::Answer::Txn {
        succeeded: true,
        answers: vec![wrote(), crate::history::Answer::Txn { succeeded, answers: vec![wrote()] }],
    };
    assert!(judge(&[invoke(1, whole.clone()), done(1, 2, answer(true))]).is_ok());
    assert!(judge(&[invoke(1, whole), done(1, 2, answer(false))]).is_err());
}

#[test]
fn what_is_compacted_is_not_served_again() {
    let compact = crate::history::Operation::Compact { revision: 3 };
    let history = |revision| {
        vec![
            invoke(1, put("a", "1")),
            done(1, 2, wrote()),
            invoke(2, put("a", "2")),
            done(2, 3, wrote()),
            invoke(3, compact.clone()),
            done(3, 3, crate::history::Answer::Compact),
            invoke(4, range("a", "", revision, false)),
        ]
    };
    let with = |revision, end| judge(&[history(revision), vec![end]].concat());
    assert!(with(3, done(4, 3, read(&[("a", "2", 2, 3, 2)]))).is_ok());
    assert!(with(2, rejected(4, Rejection::Compacted)).is_ok());
    assert!(with(2, done(4, 3, read(&[("a", "1", 2, 2, 1)]))).is_err());
    assert!(with(3, rejected(4, Rejection::Compacted)).is_err());
    assert!(with(4, rejected(4, Rejection::Future)).is_ok());
    assert!(with(3, rejected(4, Rejection::Future)).is_err());
    assert!(with(3, rejected(4, Rejection::Invalid)).is_err());
}

#[test]
fn compactions_ascend() {
    let compact = |revision| crate::history::Operation::Compact { revision };
    let answer = || crate::history::Answer::Compact;
    let history = |first, second| {
        [
            invoke(1, put("a", "1")),
            done(1, 2, wrote()),
            invoke(2, compact(first)),
            done(2, 2, answer()),
            invoke(3, compact(second)),
            done(3, 2, answer()),
        ]
    };
    assert!(judge(&history(1, 2)).is_ok());
    assert!(judge(&history(2, 1)).is_err());
    assert!(judge(&history(2, 2)).is_err());
}

#[test]
fn a_revision_that_no_write_can_have_made_is_caught_whatever_its_size() {
    let history = [invoke(1, get("a")), done(1, i64::MAX, read(&[]))];
    assert!(judge(&history).is_err());
    assert!(judge(&[invoke(1, get("a")), done(1, 0, read(&[]))]).is_err());
}
