//! Run: one storm from its seed to its report.
//!
//! Knows nothing of: threads, what is done with reports.

use crate::plan::{Options, Plan};
use crate::report::{StormReport, Violation};
use crate::trace::Trace;
use crate::world::World;
use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};

/// Runs the storm of a seed: never panics, whatever panics inside.
#[must_use]
pub fn run_storm(seed: u64, options: &Options) -> StormReport {
    run_plan(Plan::draw(seed, options), options)
}

/// Runs a storm that was planned already.
#[must_use]
pub fn run_plan(plan: Plan, options: &Options) -> StormReport {
    let mut world = World::new(plan, options);
    let length = world.plan.length;
    let outcome = caught(|| {
        world.run_until(length)?;
        world.heal_and_judge()
    });
    let mut report = StormReport {
        seed: world.plan.seed,
        members: world.plan.members,
        hash: world.sh.trace.hash(),
        time: world.sh.now,
        events: world.sh.events,
        done: world.clients.done,
        refused: world.clients.refused,
        unknown: world.clients.unknown,
        looks: world.sh.watch.looks,
        faults: world.sh.tally.clone(),
        injected: std::mem::take(&mut world.injected),
        injections_planned: world.plan.injections_planned,
        plan: world.describe(),
        ..StormReport::default()
    };
    match outcome {
        Ok(summary) => {
            report.judged = summary.judged;
            report.undecided = summary.undecided;
        }
        Err(violation) => {
            world.sh.line(None, "violation", || violation.to_string());
            report.violation = Some(violation);
        }
    }
    report.timeline = std::mem::replace(&mut world.sh.trace, Trace::new(false)).into_lines();
    if options.history {
        report.history = std::mem::take(&mut world.clients.history);
    }
    report
}

thread_local! {
    /// What the panic under way said.
    static SAID: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// A panic inside is a promise of the code that did not hold.
fn caught<T>(work: impl FnOnce() -> Result<T, Violation>) -> Result<T, Violation> {
    quiet_panics();
    SAID.set(Some(String::new()));
    let outcome = panic::catch_unwind(AssertUnwindSafe(work));
    let said = SAID.take().unwrap_or_default();
    outcome.unwrap_or_else(|_| Err(Violation::new("assertion", said)))
}

/// Panics of storms are told in reports, not on standard error; others as ever.
fn quiet_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let told = SAID.with(|said| {
                let mut said = said.borrow_mut();
                said.as_mut().map(|said| *said = info.to_string().replace('\n', " ")).is_some()
            });
            if !told {
                before(info);
            }
        }));
    });
}
