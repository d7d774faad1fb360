//! Run: one storm from its seed to its report.
//!
//! A panic inside is a violation: it is reported, not passed on. Where panics abort the process (release builds of the
//! command), the storm has a thread of its own, which is put to sleep in the middle of its panic.
//! Knows nothing of: what is done with reports.

use crate::plan::{Options, Plan};
use crate::report::{StormReport, Violation};
use crate::trace::Told;
use crate::words;
use crate::world::World;
use std::cell::RefCell;
use std::panic;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};

/// Runs the storm of a seed: never panics, whatever panics inside.
#[must_use]
pub fn run_storm(seed: u64, options: &Options) -> StormReport {
    run_plan(Plan::draw(seed, options), options)
}

/// Runs a storm that was planned already.
#[must_use]
pub fn run_plan(plan: Plan, options: &Options) -> StormReport {
    listen_to_panics();
    let told = Told { lines: options.timeline.then(Vec::new), ..Told::default() };
    let told = Arc::new(Mutex::new(told));
    let (tell, hear) = mpsc::channel();
    let mut report = StormReport {
        seed: plan.seed,
        members: plan.members,
        injections_planned: plan.injections_planned,
        plan: plan.to_string(),
        ..StormReport::default()
    };
    let (inside, options) = (told.clone(), options.clone());
    let storm = move || {
        TELL.set(Some(tell.clone()));
        let report = run(plan, inside, &options);
        TELL.set(None);
        let _ = tell.send(Ok(Box::new(report))); // the receiver may be gone
    };
    if cfg!(panic = "abort") {
        let spawned = std::thread::Builder::new().name("storm".into()).spawn(storm);
        spawned.expect("the system gives a thread");
    } else {
        let _ = panic::catch_unwind(panic::AssertUnwindSafe(storm)); // the hook has sent it
    }
    match hear.recv() {
        Ok(Ok(whole)) => report = *whole,
        Ok(Err(said)) => report.violation = Some(Violation::new("assertion", said)),
        Err(_) => report.violation = Some(Violation::new("assertion", "the storm ended without a report")),
    }
    let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
    report.time = report.time.max(told.at);
    report.injected = std::mem::take(&mut told.injected);
    report.timeline = told.lines.take().unwrap_or_default();
    report.timeline.sort_by_key(|line| line.at); // clients' lines are added at the end
    report
}

fn run(plan: Plan, told: Arc<Mutex<Told>>, options: &Options) -> StormReport {
    let mut world = World::new(plan, told);
    let length = world.plan.length;
    world.begin_service();
    world.sh.service.silent = options.silent;
    let stormed = world.run_until(length).and_then(|()| world.judge_service());
    let outcome = stormed.and_then(|()| match world.plan.liar {
        Some(_) => world.end_among_liars(),
        None => world.heal_and_judge(),
    });
    let service = world.service_sum();
    let mut report = StormReport {
        seed: world.plan.seed,
        members: world.plan.members,
        hash: world.sh.trace.hash(),
        time: world.sh.now,
        events: world.sh.events,
        done: world.clients.done,
        refused: world.clients.refused,
        unknown: world.clients.unknown,
        looks: world.sh.observer.looks,
        faults: world.sh.tally.clone(),
        counts: world.sh.counts,
        injections_planned: world.plan.injections_planned,
        service,
        plan: world.plan.to_string(),
        ..StormReport::default()
    };
    match outcome {
        Ok(summary) => {
            report.judged = summary.judged;
            report.undecided = summary.undecided;
        }
        Err(violation) => {
            words::tell(&mut world.sh.trace, &world.clients.history, &violation.operations);
            world.sh.line(None, "violation", || violation.to_string());
            report.violation = Some(violation);
        }
    }
    if options.history {
        report.history = std::mem::take(&mut world.clients.history);
    }
    report
}

type Outcome = Result<Box<StormReport>, String>;

thread_local! {
    /// The channel for a panic on this thread.
    static TELL: RefCell<Option<Sender<Outcome>>> = const { RefCell::new(None) };
}

/// Panics of storms go to reports, not to standard error; others are not affected.
fn listen_to_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| match TELL.take() {
            None => before(info),
            Some(tell) => {
                let _ = tell.send(Err(info.to_string().replace('\n', " ")));
                while cfg!(panic = "abort") {
                    std::thread::park(); // going on would end the process
                }
            }
        }));
    });
}
