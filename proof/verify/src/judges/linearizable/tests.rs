use super::*;
use crate::history::{Answer, Compare, How, Target, What};
use crate::judges::testing::*;

fn judge(events: &[(u64, What)]) -> Result<Summary, Violation> {
    linearizable(&timed(events))
}

#[test]
fn a_stale_read_is_caught_with_the_operations_that_prove_it() {
    let mut history = Vec::new();
    for id in 10..30 {
        history.extend([invoke(id, put("b", &id.to_string())), done(id, id as i64, wrote())]);
    }
    history.extend([
        invoke(1, put("a", "1")),
        done(1, 40, wrote()),
        invoke(2, put("a", "2")),
        done(2, 41, wrote()),
    ]);
    history.extend([invoke(3, get("a")), done(3, 41, read(&[("a", "1", 40, 40, 1)]))]);
    for id in 50..60 {
        history.extend([invoke(id, get("a")), done(id, 41, read(&[("a", "2", 40, 41, 2)]))]);
    }
    let violation = judge(&history).expect_err("2 had been written before the read began");
    // The first put's answer proves nothing; the second's does.
    assert_eq!(violation.operations, [2, 3], "{violation}");
}

#[test]
fn what_overlaps_may_stand_in_either_order() {
    let history = |first: &str, second: &str| {
        vec![
            invoke(1, put("a", "1")),
            invoke(3, get("a")),
            done(3, 1, if first.is_empty() { read(&[]) } else { read(&[("a", first, 2, 2, 1)]) }),
            invoke(4, get("a")),
            done(4, 1, if second.is_empty() { read(&[]) } else { read(&[("a", second, 2, 2, 1)]) }),
            done(1, 2, wrote()),
        ]
    };
    assert!(judge(&history("", "")).is_ok());
    assert!(judge(&history("", "1")).is_ok());
    assert!(judge(&history("1", "1")).is_ok());
    assert!(judge(&history("1", "")).is_err());
}

#[test]
fn an_open_write_takes_effect_late_or_never_but_once() {
    let history = |reads: &[Option<i64>]| {
        let mut history = vec![invoke(1, put("a", "1")), unknown(1)];
        for (id, version) in (2..).zip(reads) {
            let pairs = version.map(|version| ("a", "1", 2, 2, version));
            history.extend([invoke(id, get("a")), done(id, 2, read(pairs.as_slice()))]);
        }
        judge(&history)
    };
    assert!(history(&[None, None]).is_ok());
    assert!(history(&[None, Some(1), Some(1)]).is_ok());
    assert!(history(&[Some(1), None]).is_err());
    assert!(history(&[Some(2)]).is_err());
}

#[test]
fn a_refused_write_never_takes_effect() {
    let history =
        [invoke(1, put("a", "1")), refused(1), invoke(2, get("a")), done(2, 2, read(&[("a", "1", 2, 2, 1)]))];
    assert!(judge(&history).is_err());
}

#[test]
fn many_open_writes_that_no_read_saw_do_not_explode() {
    let mut history = Vec::new();
    for id in 0..200 {
        history.extend([invoke(id, put("a", &format!("lost {id}"))), unknown(id)]);
    }
    history.extend([invoke(900, put("a", "x")), done(900, 2, wrote())]);
    history.extend([invoke(901, get("a")), done(901, 2, read(&[("a", "x", 2, 2, 77)]))]);
    assert_eq!(judge(&history).map(|summary| summary.undecided), Ok(0));
    history.extend([invoke(902, get("a")), done(902, 2, read(&[("a", "y", 2, 2, 78)]))]);
    assert!(judge(&history).is_err());
}

#[test]
fn a_transaction_acts_on_all_its_keys_at_once() {
    let absent = Compare { key: "a".to_string(), how: How::Equal, target: Target::Create(0) };
    let both = txn(vec![absent], vec![put("a", "1"), put("b", "1")], vec![get("a")]);
    let took = Answer::Txn { succeeded: true, answers: vec![wrote(), wrote()] };
    let missed = Answer::Txn { succeeded: false, answers: vec![read(&[("a", "1", 2, 2, 1)])] };
    let history = |first: Answer, second: Answer, b: bool| {
        let pairs: &[(&str, &str, i64, i64, i64)] = if b { &[("b", "1", 2, 2, 1)] } else { &[] };
        judge(&[
            invoke(1, both.clone()),
            invoke(2, both.clone()),
            done(2, 2, second),
            done(1, 2, first),
            invoke(3, get("b")),
            done(3, 2, read(pairs)),
        ])
    };
    assert!(history(took.clone(), missed.clone(), true).is_ok());
    assert!(history(missed.clone(), took.clone(), true).is_ok());
    assert!(history(took.clone(), took.clone(), true).is_err(), "both cannot be first");
    assert!(history(missed.clone(), missed.clone(), true).is_err(), "somebody must be first");
    assert!(history(took, missed, false).is_err());
}

#[test]
fn a_count_of_keys_that_were_never_written_is_caught() {
    let count = |told: i64| {
        let asked = crate::history::Operation::Range {
            key: "x".to_string(),
            end: "y".to_string(),
            revision: 0,
            limit: 0,
            count_only: true,
            serializable: false,
        };
        judge(&[invoke(1, asked), done(1, 1, Answer::Range { kvs: vec![], more: false, count: told })])
    };
    assert!(count(0).is_ok());
    assert!(count(1).is_err());
}

#[test]
fn a_cut_answer_says_nothing_of_what_was_cut_off() {
    let asked = crate::history::Operation::Range {
        key: "a".to_string(),
        end: "z".to_string(),
        revision: 0,
        limit: 1,
        count_only: false,
        serializable: false,
    };
    let answer = |key: &str, count: i64| {
        let Answer::Range { kvs, .. } = read(&[(key, "1", 2, 2, 1)]) else { unreachable!("a read") };
        Answer::Range { kvs, more: true, count }
    };
    let history = |first: &str| {
        judge(&[
            invoke(1, put("a", "1")),
            done(1, 2, wrote()),
            invoke(2, put("b", "1")),
            done(2, 3, wrote()),
            invoke(3, asked.clone()),
            done(3, 3, answer(first, 2)),
        ])
    };
    assert!(history("a").is_ok());
    assert!(history("b").is_err(), "a comes before b");
}
