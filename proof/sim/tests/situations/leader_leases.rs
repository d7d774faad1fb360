//! Leader leases, as situations: within the bound on clocks no client reads an old value; beyond it one does, and the
//! judges see it. [fault-model F41, F42; replication-protocols L-1 – L-8]
//!
//! A leader is cut off from the others again and again while clients read and write everywhere.

use kattu_raft::{Duration, LeaderLease};
use kattu_sim::inject::{Inject, Injection, Who};
use kattu_sim::{Disagrees, Leases, Options, Plan, StormReport, run_plan};

const SEC: u64 = 1_000_000_000;
const SEEDS: u64 = 12;

/// Three members whose clocks gain or lose `rate` millionths in turn, so that every second seed has a slow leader among
/// fast followers now and then.
fn storm(seed: u64, leases: Leases, rho: u32, rate: i64) -> StormReport {
    disagreement(seed, leases, rho, rate, &[])
}

/// The same among members whose settings for leader leases differ.
fn disagreement(seed: u64, leases: Leases, rho: u32, rate: i64, members: &[Disagrees]) -> StormReport {
    let mut plan = leased(seed, leases, rho, rate);
    plan.settings.disagree = members.to_vec();
    plan.load.rest = SEC / 20;
    plan.load.keys = 3;
    for cut in 0..12 {
        let sides = 1 << (cut % 3);
        let what = Inject::Split { sides, time: 3 * SEC };
        plan.injections.push((cut, Injection { at: (4 + 4 * u64::from(cut)) * SEC, what }));
    }
    run_plan(plan, &Options::default())
}

/// Three members with leader leases on such clocks, and nothing that disturbs them.
fn leased(seed: u64, leases: Leases, rho: u32, rate: i64) -> Plan {
    let mut plan = Plan::steady(seed, 3, 60);
    plan.settings.leases = leases;
    plan.settings.leadership.leader_lease =
        Some(LeaderLease { rho, margin: Duration::ZERO, watch_clocks: leases != Leases::Believed });
    plan.pace.drift = rate;
    plan.pace.rates = vec![-rate, rate, if seed.is_multiple_of(2) { rate } else { -rate }];
    plan
}

#[test]
fn within_the_bound_no_read_is_stale() {
    for seed in 0..SEEDS {
        let report = storm(seed, Leases::Within, 20_000, 20_000);
        assert_eq!(report.violation, None, "seed {seed}");
        assert!(report.counts.leases > 5 && report.counts.elections > 2, "seed {seed}: {}", report.counts);
    }
}

#[test]
fn members_that_disagree_about_leases_answer_no_stale_read() {
    let (same, none, half) = (Disagrees::Not, Disagrees::WithoutLeases, Disagrees::WithHalfTheTimeout);
    for (members, leased) in [
        ([same, none, none], false), // no leader has a quorum of vote holds
        ([same, same, none], true),
        ([none, same, half], true), // one with the shorter timeout relies on the longer vote hold, but not the reverse
        ([same, half, half], true),
    ] {
        for seed in 0..SEEDS / 6 {
            let report = disagreement(seed, Leases::Within, 20_000, 20_000, &members);
            assert_eq!(report.violation, None, "seed {seed}: {members:?}");
            assert!(report.counts.denials > 0, "seed {seed}: {members:?}: {}", report.counts);
            assert_eq!(report.counts.leases > 0, leased, "seed {seed}: {members:?}: {}", report.counts);
        }
    }
}

#[test]
fn beyond_the_bound_the_judges_see_old_reads() {
    let mut seen = Vec::new();
    for seed in 0..SEEDS {
        if let Some(violation) = storm(seed, Leases::Believed, 500, 400_000).violation {
            seen.push((seed, violation.property));
        }
    }
    println!("{} of {SEEDS} seeds: {seen:?}", seen.len());
    assert!(!seen.is_empty(), "nobody was told anything old, or nobody saw it");
    let judges = ["linearizable", "revisions_never_back", "revision_order"];
    for (seed, property) in seen {
        assert!(judges.contains(&property.as_str()), "seed {seed}: {property}");
    }
}

#[test]
fn beyond_the_bound_nothing_but_reads_by_lease_is_wrong() {
    let mut broken = 0;
    for seed in 0..SEEDS {
        let report = storm(seed, Leases::Beyond, 500, 400_000);
        assert_eq!(report.violation, None, "seed {seed}");
        broken += report.faults.count(kattu_sim::faults::Fault::F42);
    }
    assert!(broken > 0, "no clock was ever found out");
}

/// A leader among clocks that run apart has proof of that, and no leader lease, an election timeout after its first
/// heartbeat is answered. The judges check at every step that it has none from then on, and that no clock within the
/// bound is reported. [fault-model F42]
#[test]
fn beyond_the_bound_every_leader_finds_out_and_has_no_lease() {
    let election_timeout = Plan::steady(0, 3, 1).settings.election_timeout.as_nanos() as u64;
    let (mut offices, mut shortest) = (0, 0);
    for seed in 0..SEEDS {
        let rate = if seed.is_multiple_of(3) { 10_000 } else { 400_000 };
        let mut plan = leased(seed, Leases::Beyond, 500, rate);
        plan.pace.rates = vec![-rate, 0, rate]; // no two agree
        plan.injections = (0..6)
            .map(|kill| {
                let what = Inject::Kill { who: Who::Leader, down: 4 * SEC };
                (kill, Injection { at: (8 + 8 * u64::from(kill)) * SEC, what })
            })
            .collect();
        let report = run_plan(plan, &Options { timeline: true, ..Options::default() });
        assert_eq!(report.violation, None, "seed {seed}");
        assert!(report.counts.apart > 0, "seed {seed}: {}", report.counts);
        let of = |what: &'static str| {
            let lines =
                report.timeline.iter().filter(move |line| line.kind == "role" && line.what.starts_with(what));
            lines.map(|line| (line.member, line.at))
        };
        for (leader, since) in of("leads term") {
            let proof = of("has proof").find(|&(member, at)| member == leader && since <= at);
            let until = since + 2 * election_timeout;
            let goes_on = of("follows").all(|(member, at)| member != leader || !(since..until).contains(&at));
            let lives = report.timeline.iter().all(|line| {
                line.kind != "process" || line.member != leader || !(since..until).contains(&line.at)
            });
            if goes_on && lives && until < report.time {
                offices += 1;
                assert!(
                    proof.is_some_and(|(_, at)| at < until),
                    "seed {seed}: {leader:?} since {since}: {proof:?}"
                );
            } else {
                shortest += 1;
            }
        }
    }
    println!("{offices} offices found out, {shortest} were over before");
    assert!(offices > SEEDS, "{offices} offices of two election timeouts");
}
