//! New clusters made beside a calm storm, of backups and of survivors. [fault-model F63]
//!
//! Knows nothing of: which bug is looked for.

use kattu_sim::inject::{Inject, Injection, Who};
use kattu_sim::{Options, Plan, run_plan};

const SEC: u64 = 1_000_000_000;

pub(super) fn beside_a_storm(seed: u64) {
    let mut plan = Plan::steady(seed, 3, 12);
    for number in 0..6 {
        let (who, pick) = (Who::Member(number as usize % 3), 6 * seed + u64::from(number));
        let what = match number % 2 {
            0 => Inject::Restore { who, pick },
            _ => Inject::Recover { who, pick },
        };
        plan.injections.push((number, Injection { at: (5 + u64::from(number)) * SEC, what }));
    }
    if let Some(violation) = run_plan(plan, &Options::default()).violation {
        panic!("{violation}");
    }
}
