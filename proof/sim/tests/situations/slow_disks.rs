//! Slow disks, as situations: a leader with one transfers leadership, followers with one hold up no other member, and
//! where all disks are slow nothing happens. [fault-model F17]
//!
//! Three or five members with etcd's times serve writes. After a while one disk, or as many as a cluster may lose,
//! takes twenty times as long. Times are those of the world.

use kattu_sim::inject::{Inject, Injection, Who};
use kattu_sim::{Options, Plan, StormReport, run_plan};
use kattu_verify::history::{Operation, What};
use std::collections::BTreeMap;

const MS: u64 = 1_000_000;
const SEC: u64 = 1000 * MS;
/// By then the leader has led for ten election timeouts.
const SLOW_AT: u64 = 20 * SEC;
const SLOW_FOR: u64 = 40 * SEC;
/// Sixteen heartbeats, an election timeout, and some time to spare.
const LEFT_BY: u64 = SLOW_AT + 6 * SEC;

/// Members that write all the time, on disks of which one sync takes two milliseconds, or a little more.
fn plan(seed: u64, members: u64) -> Plan {
    let mut plan = Plan::steady(seed, members, 65);
    plan.pace.disk.sync = 2 * MS;
    plan.load.clients = 2 * members as u32;
    plan.load.rest = 100 * MS;
    plan.load.weights = [90, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    plan
}

fn with_slow(mut plan: Plan, whose: &[Who]) -> StormReport {
    for (number, &who) in (0..).zip(whose) {
        let what = Inject::Slow { who, times: 20, time: SLOW_FOR };
        plan.injections.push((number, Injection { at: SLOW_AT, what }));
    }
    let seed = plan.seed;
    let report = run_plan(plan, &Options { history: true, ..Options::default() });
    assert_eq!(report.violation, None, "seed {seed}");
    report
}

/// The median time of the writes that began in that time.
fn median(report: &StormReport, from: u64, until: u64) -> u64 {
    let mut asked = BTreeMap::new();
    let mut took = Vec::new();
    for record in &report.history {
        match &record.what {
            What::Invoke { operation: Operation::Put { .. }, .. } if (from..until).contains(&record.at) => {
                asked.insert(record.id, record.at);
            }
            What::Done { answer: Ok(_), .. } => {
                took.extend(asked.remove(&record.id).map(|at| record.at - at))
            }
            _ => {}
        }
    }
    took.sort_unstable();
    assert!(took.len() > 20, "{} writes are no median", took.len());
    took[took.len() / 2]
}

#[test]
fn a_leader_whose_disk_becomes_slow_lets_another_one_lead_and_writes_are_fast_again() {
    for seed in 0..6 {
        for members in [3, 5] {
            let report = with_slow(plan(seed, members), &[Who::Leader]);
            let counts = report.counts;
            let said = (counts.left, counts.transfers, counts.elections);
            assert_eq!(said, (1, 1, 2), "seed {seed}, {members} members: {counts}");
            let fast = median(&report, 2 * SEC, SLOW_AT);
            let slow = median(&report, SLOW_AT, SLOW_AT + SEC);
            let after = median(&report, LEFT_BY, SLOW_AT + SLOW_FOR);
            assert!(4 * fast < slow, "seed {seed}: {fast} ns before, {slow} ns on a slow disk");
            assert!(
                after < 2 * fast,
                "seed {seed}: {fast} ns before, {slow} ns on a slow disk, {after} ns after it"
            );
        }
    }
}

#[test]
fn the_log_on_a_thread_of_its_own_changes_nothing_about_that() {
    for seed in 0..4 {
        let mut plan = plan(seed, 3);
        plan.settings.log_io = kattu_sim::Threading::Thread;
        plan.settings.parallel_append = seed % 2 == 0;
        let counts = with_slow(plan, &[Who::Leader]).counts;
        assert_eq!((counts.left, counts.elections), (1, 2), "seed {seed}: {counts}");
    }
}

#[test]
fn as_many_slow_disks_of_followers_as_a_cluster_may_lose_delay_no_other_member() {
    for seed in 0..6 {
        for (members, slow) in [(3, &[Who::Member(2)][..]), (5, &[Who::Member(3), Who::Member(4)])] {
            let mut plan = plan(seed, members);
            plan.settings.priorities =
                (0..members).map(|member| if member == 0 { 255 } else { 100 }).collect();
            plan.settings.transfers.to_priority = true; // so that the first one leads by the time
            let report = with_slow(plan, slow);
            assert_eq!(report.counts.left, 0, "seed {seed}, {members} members: {}", report.counts);
            let fast = median(&report, 10 * SEC, SLOW_AT);
            let after = median(&report, SLOW_AT, SLOW_AT + SLOW_FOR);
            assert!(after < 2 * fast, "seed {seed}, {members} members: {fast} ns before, {after} ns after");
        }
    }
}

#[test]
fn where_all_disks_are_slow_the_first_leader_stays() {
    for seed in 0..3 {
        let plan = Plan::slow_disk(seed, 300);
        assert!(plan.settings.transfers.from_slow_disk);
        let report = run_plan(plan, &Options::default());
        assert_eq!(report.violation, None, "seed {seed}");
        let counts = report.counts;
        assert_eq!((counts.left, counts.elections), (0, 1), "seed {seed}: {counts}");
    }
}
