//! Correct executions pass every judge; executions with one thing changed do not.
//!
//! A change may by chance make another correct history (two reads that overlapped exchange their answers, say), so the
//! second test demands only a percentage.

mod common;

use common::execution::{Shape, execute};
use kattu_random::Random;
use kattu_verify::history::{Answer, Level, Operation, Record, What};
use kattu_verify::judges::{self, FinalState, Summary, Violation, judge_all};
use std::collections::BTreeMap;

fn shape(seed: u64) -> Shape {
    Shape {
        operations: 30 + seed % 7 * 40,
        clients: 1 + (seed % 9) as u32,
        keys: 1 + seed % 5 * 3,
        unknown: [0, 0, 3, 10, 20][(seed % 5) as usize],
        refused: 3,
        many: [0, 30, 60][(seed % 3) as usize],
    }
}

#[test]
fn correct_executions_pass_before_every_judge() {
    let mut sum = Summary::default();
    let mut few_undecided = 0;
    for seed in 0..100 {
        let (history, last) = execute(seed, shape(seed));
        let summary = judge_all(&history, &last);
        let summary = summary.unwrap_or_else(|violation| {
            let lines: Vec<String> =
                history.iter().map(|record| serde_json::to_string(record).expect("JSON")).collect();
            panic!("seed {seed}: {violation}\n{}", lines.join("\n"))
        });
        assert_eq!(judges::lost_writes(&history, &last).expect("a history"), []);
        let few_open = shape(seed).unknown <= 3;
        few_undecided += u64::from(few_open && summary.undecided > 0);
        sum.operations += summary.operations;
        sum.unknown += summary.unknown;
        sum.judged += summary.judged;
        sum.undecided += summary.undecided;
    }
    println!("{sum:?}");
    assert!(sum.unknown > 600, "{sum:?}");
    assert!(sum.undecided <= 15, "{sum:?}");
    assert!(few_undecided <= 1, "{few_undecided} histories of which little was open were given up");
}

/// Changes one thing; false if the history has nothing to change.
type Change = fn(&mut Random, &mut [Record], &mut FinalState) -> bool;

fn reads(history: &[Record]) -> Vec<usize> {
    let is_read = |record: &Record| matches!(&record.what, What::Done { answer: Ok(Answer::Range { kvs, .. }), .. } if !kvs.is_empty());
    (0..history.len()).filter(|&place| is_read(&history[place])).collect()
}

fn writes(history: &[Record]) -> Vec<usize> {
    let is_write = |record: &Record| matches!(&record.what, What::Done { answer: Ok(Answer::Put), .. });
    (0..history.len()).filter(|&place| is_write(&history[place])).collect()
}

fn one<T: Copy>(random: &mut Random, of: &[T]) -> Option<T> {
    (!of.is_empty()).then(|| of[random.within(0..of.len() as u64) as usize])
}

fn change_a_value(random: &mut Random, history: &mut [Record], _: &mut FinalState) -> bool {
    let Some(place) = one(random, &reads(history)) else { return false };
    if let What::Done { answer: Ok(Answer::Range { kvs, .. }), .. } = &mut history[place].what {
        kvs[0].value.push('!');
    }
    true
}

fn change_a_version(random: &mut Random, history: &mut [Record], _: &mut FinalState) -> bool {
    let Some(place) = one(random, &reads(history)) else { return false };
    if let What::Done { answer: Ok(Answer::Range { kvs, .. }), .. } = &mut history[place].what {
        kvs[0].version += 1;
    }
    true
}

fn drop_a_pair(random: &mut Random, history: &mut [Record], _: &mut FinalState) -> bool {
    let Some(place) = one(random, &reads(history)) else { return false };
    if let What::Done { answer: Ok(Answer::Range { kvs, count, .. }), .. } = &mut history[place].what {
        kvs.pop();
        *count -= 1;
    }
    true
}

fn exchange_two_answers(random: &mut Random, history: &mut [Record], _: &mut FinalState) -> bool {
    let reads = reads(history);
    let (Some(a), Some(b)) = (one(random, &reads), one(random, &reads)) else { return false };
    if history[a].what == history[b].what {
        return false;
    }
    let what = history[a].what.clone();
    history[a].what = std::mem::replace(&mut history[b].what, what);
    true
}

/// A read shows what an earlier read of the same key showed, with or without that one's revision.
fn show_an_old_answer(random: &mut Random, history: &mut [Record], _: &mut FinalState) -> bool {
    let Some(late) = one(random, &reads(history)) else { return false };
    let key = |record: &Record| match &record.what {
        What::Done { answer: Ok(Answer::Range { kvs, .. }), .. } if kvs.len() == 1 => {
            Some(kvs[0].key.clone())
        }
        _ => None,
    };
    let same = |&place: &usize| {
        place < late && key(&history[place]).is_some() && key(&history[place]) == key(&history[late])
    };
    let Some(early) = reads(history).into_iter().find(same) else { return false };
    let (old, new) = (history[early].what.clone(), history[late].what.clone());
    let (What::Done { revision: was, answer: old }, What::Done { revision: is, answer: new }) = (old, new)
    else {
        return false;
    };
    if old == new {
        return false;
    }
    let revision = if random.per_cent(50) { was } else { is };
    history[late].what = What::Done { revision, answer: old };
    true
}

fn raise_a_revision(random: &mut Random, history: &mut [Record], _: &mut FinalState) -> bool {
    let Some(place) = one(random, &writes(history)) else { return false };
    if let What::Done { revision: Some(revision), .. } = &mut history[place].what {
        *revision += 1;
    }
    true
}

/// A write that took effect is reported as having none.
fn refuse_a_write(random: &mut Random, history: &mut [Record], _: &mut FinalState) -> bool {
    let Some(place) = one(random, &writes(history)) else { return false };
    history[place].what = What::Refused { reason: "no leader".to_string() };
    true
}

/// Power is lost, and with it the last writes of the final state.
fn lose_the_end(random: &mut Random, _: &mut [Record], last: &mut FinalState) -> bool {
    let Some(newest) = last.kvs.iter().map(|pair| pair.modified).max() else { return false };
    last.kvs.retain(|pair| pair.modified < newest);
    if random.per_cent(50) {
        last.revision = newest - 1;
    }
    true
}

/// A write is acknowledged as if it were lost: its answer has the revision of the write before it.
fn lose_a_write(random: &mut Random, history: &mut [Record], _: &mut FinalState) -> bool {
    let writes = writes(history);
    if writes.len() < 2 {
        return false;
    }
    let place = writes[random.within(0..writes.len() as u64 - 1) as usize + 1];
    if let What::Done { revision: Some(revision), .. } = &mut history[place].what {
        *revision -= 1;
    }
    true
}

/// Reads at a level that may not show the empty store, because of an earlier answer for which `binds` holds.
fn bound_reads(history: &[Record], binds: impl Fn(Level, &Record, &Record) -> bool) -> Vec<usize> {
    let asked = |done: &Record| {
        history.iter().find(|record| record.id == done.id && matches!(record.what, What::Invoke { .. }))
    };
    let is_bound = |&place: &usize| {
        let Some(invoke) = asked(&history[place]) else { return false };
        let What::Invoke { operation, level: Some(level), .. } = &invoke.what else { return false };
        let earlier = history[..place].iter().take_while(|record| record.id != invoke.id);
        let is_read = matches!(operation, Operation::Range { revision: 0, serializable: false, .. });
        is_read && earlier.into_iter().any(|done| is_above_one(done) && binds(*level, invoke, done))
    };
    reads(history).into_iter().filter(is_bound).collect()
}

fn is_above_one(record: &Record) -> bool {
    matches!(record.what, What::Done { revision: Some(2..), .. })
}

/// The answer of an empty store.
fn nothing_yet() -> What {
    let answer = Answer::Range { kvs: vec![], more: false, count: 0 };
    What::Done { revision: Some(1), answer: Ok(answer) }
}

/// A reader is shown the empty store after it saw a write.
fn take_a_reader_back(random: &mut Random, history: &mut [Record], _: &mut FinalState) -> bool {
    let of: BTreeMap<u64, Level> = history
        .iter()
        .filter_map(|record| match record.what {
            What::Invoke { level: Some(level), .. } => Some((record.id, level)),
            _ => None,
        })
        .collect();
    let binds = |level: Level, _: &Record, done: &Record| {
        matches!(level, Level::AtLeast { .. }) && of.get(&done.id) == Some(&level)
    };
    let Some(place) = one(random, &bound_reads(history, binds)) else { return false };
    history[place].what = nothing_yet();
    true
}

/// A bounded read is shown the empty store long after a write was answered.
fn answer_a_bounded_read_too_late(random: &mut Random, history: &mut [Record], _: &mut FinalState) -> bool {
    let binds = |level: Level, invoke: &Record, done: &Record| match level {
        Level::Bounded(age) => done.at + age < invoke.at,
        Level::AtLeast { .. } => false,
    };
    let Some(place) = one(random, &bound_reads(history, binds)) else { return false };
    history[place].what = nothing_yet();
    true
}

#[test]
fn changed_executions_are_caught() {
    let changes: [(&str, Change, u64); 11] = [
        ("change a value", change_a_value, 99),
        ("change a version", change_a_version, 95),
        ("drop a pair", drop_a_pair, 85),
        ("exchange two answers", exchange_two_answers, 85),
        ("show an old answer", show_an_old_answer, 85),
        ("raise a revision", raise_a_revision, 85),
        ("refuse a write", refuse_a_write, 85),
        ("lose the end", lose_the_end, 90),
        ("lose a write", lose_a_write, 85),
        ("take a reader back", take_a_reader_back, 100),
        ("answer a bounded read too late", answer_a_bounded_read_too_late, 100),
    ];
    type Judge = fn(&[Record]) -> Result<Summary, Violation>;
    let alone: [(&str, Judge); 6] = [
        ("revisions_never_back", judges::revisions_never_back),
        ("readers_see_what_they_saw", judges::readers_see_what_they_saw),
        ("bounded_reads_are_recent", judges::bounded_reads_are_recent),
        ("txn_atomic", judges::txn_atomic),
        ("revision_order", judges::revision_order),
        ("linearizable", judges::linearizable),
    ];
    for (name, change, least) in changes {
        let (mut made, mut caught) = (0, 0);
        let mut by: BTreeMap<&str, u32> = BTreeMap::new();
        for seed in 0..30 {
            let mut random = Random::new(seed * 77 + 5);
            let (mut history, mut last) = execute(seed + 10_000, shape(seed));
            if !change(&mut random, &mut history, &mut last) {
                continue;
            }
            made += 1;
            caught += u64::from(judge_all(&history, &last).is_err());
            for (judge, function) in alone {
                *by.entry(judge).or_default() += u32::from(function(&history).is_err());
            }
            *by.entry("durable").or_default() += u32::from(judges::durable(&history, &last).is_err());
        }
        println!("{name}: {caught} of {made}; alone: {by:?}");
        assert!(made > 15, "{name}: {made}");
        assert!(caught * 100 >= made * least, "{name}: {caught} of {made}");
    }
}
