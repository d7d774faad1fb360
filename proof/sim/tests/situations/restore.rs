//! New clusters beside a storm: they are made, and the storm is not affected. [fault-model F63]

use kattu_sim::faults::Fault;
use kattu_sim::inject::{Inject, Injection, Kind, Kinds, Who};
use kattu_sim::{Options, Plan, run_plan, run_storm};

const SEC: u64 = 1_000_000_000;

#[test]
fn backups_and_survivors_become_clusters_and_the_storm_goes_on_untouched() {
    let options = Options { history: true, ..Options::default() };
    let (mut restored, mut recovered) = (0, 0);
    for seed in 0..4 {
        let plan = Plan::steady(seed, 3, 20);
        let without = run_plan(plan.clone(), &options);
        let mut plan = plan;
        for number in 0..8 {
            let (who, pick) = (Who::Member(number as usize % 3), seed * 100 + u64::from(number));
            let what = match number % 2 {
                0 => Inject::Restore { who, pick },
                _ => Inject::Recover { who, pick },
            };
            plan.injections.push((number, Injection { at: (3 + 2 * u64::from(number)) * SEC, what }));
        }
        let with = run_plan(plan, &options);
        assert_eq!(with.violation, None, "seed {seed}");
        assert_eq!(with.history, without.history, "seed {seed}: clients were told something else");
        assert_eq!(with.events, without.events, "seed {seed}: members had something else to do");
        assert_eq!(with.faults.count(Fault::F63), with.counts.restored + with.counts.recovered);
        restored += with.counts.restored;
        recovered += with.counts.recovered;
    }
    assert!(restored == 16 && recovered > 10, "{restored} restored, {recovered} recovered");
}

#[test]
fn a_storm_of_many_faults_takes_the_same_course_beside_them() {
    let mut made = 0;
    for seed in 20..28 {
        let all = Options { seconds: Some(30), history: true, ..Options::default() };
        let kinds = Kinds::of(Kind::ALL).without(Kind::Restore).without(Kind::Recover);
        let (with, without) =
            (run_storm(seed, &all), run_storm(seed, &Options { kinds: Some(kinds), ..all }));
        assert_eq!(with.violation, None, "seed {seed}");
        assert_eq!(with.history, without.history, "seed {seed}");
        assert_eq!(with.events, without.events, "seed {seed}");
        made += with.faults.count(Fault::F63);
    }
    assert!(made > 0, "nothing was ever made beside a storm");
}
