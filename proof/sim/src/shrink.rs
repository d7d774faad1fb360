//! Shrink: a failing storm, cut down to what matters.
//!
//! Fewer members and clients, whole kinds of faults left out, a shorter storm, and then single injections: each step is
//! kept if the same property still fails. What remains is a storm of its own that can be repeated from the seed and the
//! choices made.
//! Knows nothing of: how storms are run, how they are shown.

use crate::inject::Kind;
use crate::plan::{Options, Plan};
use crate::report::StormReport;
use crate::run::run_storm;

/// Storms tried at most.
const ATTEMPTS_MAX: usize = 250;

/// The smallest storm found.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// What to leave out.
    pub options: Options,
    /// Its report, with its timeline.
    pub report: StormReport,
    /// Storms tried.
    pub attempts: usize,
}

struct Shrinking {
    seed: u64,
    property: String,
    best: Options,
    report: StormReport,
    attempts: usize,
}

/// Cuts a failing storm down.
///
/// # Panics
/// If the storm does not fail.
#[must_use]
pub fn shrink(failing: &StormReport, options: &Options) -> Shrunk {
    let violation = failing.violation.as_ref().expect("only a failing storm can be shrunk");
    let mut shrinking = Shrinking {
        seed: failing.seed,
        property: violation.property.clone(),
        best: options.clone(),
        report: failing.clone(),
        attempts: 0,
    };
    shrinking.fewer_members();
    let plan = Plan::draw(failing.seed, &shrinking.best);
    for clients in [1, 2, 4].into_iter().filter(|&clients| clients < plan.load.clients) {
        if shrinking.still_fails(Options { clients: Some(clients), ..shrinking.best.clone() }) {
            break;
        }
    }
    shrinking.shorter();
    shrinking.fewer_kinds();
    shrinking.fewer_injections();
    shrinking.shorter();
    let Shrinking { best, attempts, .. } = shrinking;
    let options = Options { timeline: true, ..best };
    let report = run_storm(failing.seed, &options);
    Shrunk { options, report, attempts }
}

impl Shrinking {
    fn still_fails(&mut self, options: Options) -> bool {
        if self.attempts >= ATTEMPTS_MAX {
            return false;
        }
        self.attempts += 1;
        let report = run_storm(self.seed, &options);
        let fails = report.violation.as_ref().is_some_and(|violation| violation.property == self.property);
        if fails {
            self.best = options;
            self.report = report;
        }
        fails
    }

    fn fewer_members(&mut self) {
        for members in 1..self.report.members {
            if self.still_fails(Options { members: Some(members), ..self.best.clone() }) {
                return;
            }
        }
    }

    /// Ends the storm right after the violation, or half-way there if it only showed in the calm.
    fn shorter(&mut self) {
        for _ in 0..6 {
            let length = Plan::draw(self.seed, &self.best).length / crate::clock::SEC;
            let at = self.report.time / crate::clock::SEC + 1;
            let seconds = if at < length { at } else { length / 2 };
            if seconds == 0 || !self.still_fails(Options { seconds: Some(seconds), ..self.best.clone() }) {
                return;
            }
        }
    }

    fn fewer_kinds(&mut self) {
        let plan = Plan::draw(self.seed, &self.best);
        let mut kinds = plan.kinds.clone();
        for kind in plan.kinds.iter().collect::<Vec<Kind>>() {
            let fewer = kinds.without(kind);
            if self.still_fails(Options { kinds: Some(fewer.clone()), ..self.best.clone() }) {
                kinds = fewer;
            }
        }
    }

    fn fewer_injections(&mut self) {
        let mut keep = self.report.injected.clone();
        if !self.still_fails(Options { keep: Some(keep.clone()), ..self.best.clone() }) {
            let plan = Plan::draw(self.seed, &self.best);
            keep = plan.injections.iter().map(|(number, _)| *number).collect();
        }
        fewer(keep, |keep| self.still_fails(Options { keep: Some(keep.to_vec()), ..self.best.clone() }));
    }
}

/// Leaves out halves, quarters, …, and at last each single one, as long as what is left still fails.
fn fewer(mut keep: Vec<u32>, mut still_fails: impl FnMut(&[u32]) -> bool) -> Vec<u32> {
    let mut part = keep.len().div_ceil(2).max(1);
    loop {
        let mut at = 0;
        while at < keep.len() {
            let mut fewer = keep.clone();
            fewer.drain(at..(at + part).min(keep.len()));
            if still_fails(&fewer) {
                keep = fewer;
            } else {
                at += part;
            }
        }
        if part == 1 {
            return keep;
        }
        part = part.div_ceil(2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matters_is_kept_and_nothing_else() {
        let all: Vec<u32> = (0..100).collect();
        let mut attempts = 0;
        let kept = fewer(all, |keep| {
            attempts += 1;
            [3, 57, 58, 99].iter().all(|needed| keep.contains(needed))
        });
        assert_eq!(kept, [3, 57, 58, 99]);
        assert!(attempts < 80, "{attempts} attempts");
        assert!(fewer(vec![1, 2, 3], |_| true).is_empty(), "it fails without any");
    }
}
