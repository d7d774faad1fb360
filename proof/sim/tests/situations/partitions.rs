//! Partial partitions, as situations: a member with two-way links to a majority leads soon. [fault-model P8, F31]
//!
//! A cluster of five or three runs undisturbed; then pairs are cut, for long. Some write must be done within three
//! rounds of elections of the cut, while the cut lasts. Each shape is tried with several seeds, so that every member is
//! the leader once when it comes.

use kattu_sim::inject::{Inject, Injection};
use kattu_sim::{Options, Plan, StormReport, run_plan};
use kattu_verify::history::{Operation, What};
use std::collections::BTreeMap;

const SEC: u64 = 1_000_000_000;
const CUT_AT: u64 = 10 * SEC;
const CUT_FOR: u64 = 30 * SEC;
/// Three elections, each at most twice the election timeout of one second; and a second for what surrounds them.
const BOUND: u64 = 7 * SEC;

fn cut(seed: u64, members: u64, pairs: u64) -> StormReport {
    let mut plan = Plan::steady(seed, members, 45);
    let what = Inject::Partial { pairs, time: CUT_FOR };
    plan.injections.push((0, Injection { at: CUT_AT, what }));
    run_plan(plan, &Options { history: true, ..Options::default() })
}

/// When the first write that began after the cut was done.
fn first_write(report: &StormReport) -> Option<u64> {
    let mut asked = BTreeMap::new();
    for record in &report.history {
        match &record.what {
            What::Invoke { operation: Operation::Put { .. }, .. } if record.at > CUT_AT + SEC / 10 => {
                asked.insert(record.id, record.at);
            }
            What::Done { answer: Ok(_), .. } if asked.contains_key(&record.id) => return Some(record.at),
            _ => {}
        }
    }
    None
}

fn is_available(members: u64, pairs: u64) {
    for seed in 0..6 {
        let report = cut(seed, members, pairs);
        assert_eq!(report.violation, None, "seed {seed}, cut {pairs:#b}");
        let first = first_write(&report).expect("the calm writes at the latest");
        let after = (first - CUT_AT) as f64 / SEC as f64;
        assert!(
            first <= CUT_AT + BOUND,
            "seed {seed}, cut {pairs:#b}: the first write is done {after:.1} s after the cut"
        );
    }
}

/// Numbers of the unordered pairs, as injections count them.
fn pairs(members: u64, is_cut: impl Fn(u64, u64) -> bool) -> u64 {
    let all = (0..members).flat_map(|a| (a + 1..members).map(move |b| (a, b)));
    all.enumerate().filter(|(_, (a, b))| is_cut(*a, *b)).fold(0, |bits, (number, _)| bits | 1 << number)
}

#[test]
fn one_pair_of_three_cannot_talk_and_both_reach_the_third() {
    // The outage of November 2020: a leader and a follower that cannot reach each other.
    for pair in 0..3 {
        is_available(3, 1 << pair);
    }
}

#[test]
fn only_one_member_of_five_reaches_the_others() {
    for centre in [0, 3] {
        is_available(5, pairs(5, |a, b| a != centre && b != centre));
    }
}

#[test]
fn five_members_hear_only_their_neighbours_in_a_ring() {
    is_available(5, pairs(5, |a, b| b - a != 1 && (a, b) != (0, 4)));
}

#[test]
fn each_member_in_turn_reaches_only_one_other() {
    for alone in 0..5 {
        let other = (alone + 1) % 5;
        is_available(5, pairs(5, |a, b| (a == alone || b == alone) && a != other && b != other));
    }
}
