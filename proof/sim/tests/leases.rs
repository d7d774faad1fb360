//! Leases, as situations: within the bound on clocks nobody is told anything old; beyond it somebody is, and the judges
//! see it. [fault-model F41, F42; replication-protocols L-1 – L-8]
//!
//! A leader is cut off from the others again and again while clients read and write everywhere.

use kattu_raft::{Duration, Lease};
use kattu_sim::inject::{Inject, Injection};
use kattu_sim::{Leases, Options, Plan, StormReport, run_plan};

const SEC: u64 = 1_000_000_000;
const SEEDS: u64 = 12;

/// Three members whose clocks gain or lose `rate` millionths in turn, so that every second seed has a slow leader among
/// fast followers now and then.
fn storm(seed: u64, leases: Leases, rho: u32, rate: i64) -> StormReport {
    let mut plan = Plan::steady(seed, 3, 60);
    plan.settings.leases = leases;
    plan.settings.leadership.lease = Some(Lease { rho, margin: Duration::ZERO });
    plan.pace.drift = rate;
    plan.pace.rates = vec![-rate, rate, if seed.is_multiple_of(2) { rate } else { -rate }];
    plan.load.rest = SEC / 20;
    plan.load.keys = 3;
    for cut in 0..12 {
        let sides = 1 << (cut % 3);
        let what = Inject::Split { sides, time: 3 * SEC };
        plan.injections.push((cut, Injection { at: (4 + 4 * u64::from(cut)) * SEC, what }));
    }
    run_plan(plan, &Options::default())
}

#[test]
fn within_the_bound_nobody_is_told_anything_old() {
    for seed in 0..SEEDS {
        let report = storm(seed, Leases::Within, 20_000, 20_000);
        assert_eq!(report.violation, None, "seed {seed}");
        assert!(report.deeds.leases > 5 && report.deeds.elections > 2, "seed {seed}: {}", report.deeds);
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
    assert!(broken > 0, "no lease was ever outlived by its leader's office");
}
