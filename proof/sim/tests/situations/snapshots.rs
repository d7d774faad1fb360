//! Snapshots, as situations: power is lost at every operation of the disk around one that is taken, and around one that
//! is received; and every way in which their files are damaged at rest. [fault-model ST9, ST10, F10, F13–F15]

use kattu_disk::{Damage, Place};
use kattu_node::SnapshotLimits;
use kattu_sim::inject::{Inject, Injection, Who};
use kattu_sim::{Options, Plan, StormReport, run_plan};

const SEC: u64 = 1_000_000_000;
/// One of so many operations of the disk, and so many seeds; `KATTU_EVERY=1` tries every operation, and five times the seeds.
fn slice() -> (usize, u64) {
    if std::env::var_os("KATTU_EVERY").is_some() { (1, 10) } else { (10, 2) }
}

/// Three members that take a snapshot every few kilobytes of log, and keep no more of it than they must.
fn plan(seed: u64, seconds: u64) -> Plan {
    let mut plan = Plan::steady(seed, 3, seconds);
    plan.settings.snapshots = SnapshotLimits { log_bytes_min: 4 << 10, log_bytes_max: 0, keep_bytes: 0 };
    plan.settings.limits.snapshot_chunk_bytes_max = 4 << 10;
    plan.settings.snapshot_step = 1_000_000;
    plan.settings.segment_bytes = 32 << 10;
    plan.load.rest = SEC / 2;
    plan
}

fn run(mut plan: Plan, injections: &[(u64, Inject)]) -> StormReport {
    let numbered = injections.iter().enumerate();
    plan.injections =
        numbered.map(|(at, (when, what))| (at as u32, Injection { at: *when, what: what.clone() })).collect();
    plan.injections.sort_by_key(|(_, injection)| injection.at);
    run_plan(plan, &Options::default())
}

#[test]
fn power_is_lost_at_every_operation_around_a_snapshot_that_is_taken() {
    let ((step, _), mut cut, mut taken) = (slice(), 0, 0);
    for operations in (1..=120).step_by(step) {
        let what = Inject::KillAtDisk { who: Who::Member(1), operations, down: SEC / 10 };
        let report = run(plan(operations, 12), &[(5 * SEC, what)]);
        assert_eq!(report.violation, None, "operation {operations}");
        cut += report.faults.count(kattu_sim::faults::Fault::F01);
        taken += report.counts.snapshots;
    }
    assert!(cut > 100 / step as u64 && taken > 500 / step as u64, "{cut} cuts, {taken} snapshots");
}

#[test]
fn power_is_lost_at_every_operation_around_a_snapshot_that_is_received() {
    let ((step, _), mut cut, mut installed) = (slice(), 0, 0);
    for operations in (1..=80).step_by(step) {
        // It receives nothing for a while, and all others prune their logs meanwhile.
        let lag = Inject::Lag { who: Who::Member(2), rate: 200, time: 4 * SEC };
        let what = Inject::KillAtDisk { who: Who::Member(2), operations, down: SEC / 10 };
        let report = run(plan(operations, 15), &[(4 * SEC, lag), (8 * SEC - SEC / 1000, what)]);
        assert_eq!(report.violation, None, "operation {operations}");
        cut += report.faults.count(kattu_sim::faults::Fault::F01);
        installed += report.counts.installs;
    }
    assert!(cut > 60 / step as u64 && installed >= 60 / step as u64, "{cut} cuts, {installed} installs");
}

#[test]
fn a_member_that_was_away_for_long_gets_a_snapshot() {
    let away = Inject::Kill { who: Who::Member(0), down: 20 * SEC };
    let report = run(plan(3, 40), &[(10 * SEC, away)]);
    assert_eq!(report.violation, None);
    assert!(report.counts.installs >= 1 && report.counts.prunes >= 10, "{}", report.counts);
}

#[test]
fn damaged_snapshots_are_done_without_or_fetched_anew() {
    let ((_, seeds), mut uncovered) = (slice(), 0);
    for (seed, place) in (0..seeds).flat_map(|seed| [(seed, Place::Snapshot), (seed, Place::SnapshotBefore)])
    {
        for how in [
            Damage::Flip(place),
            Damage::Unreadable(place),
            Damage::Stale(place),
            Damage::Missing(place),
            Damage::Truncated(place),
            Damage::Foreign(place),
            Damage::Leftover,
        ] {
            let what = Inject::Damage { who: Who::Member(2), how, down: SEC / 10, pick: seed };
            let report = run(plan(seed, 15), &[(8 * SEC, what)]);
            assert_eq!(report.violation, None, "seed {seed}: {how:?}");
            uncovered += report.counts.uncovered;
        }
    }
    assert!(uncovered > 0, "nobody ever had to ask for a snapshot");
}
