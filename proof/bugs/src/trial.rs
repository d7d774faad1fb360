//! Trials: one bug, one seed, and the result.
//!
//! A catch counts when a judge that may claim the bug made it: the bug's row names these. Any other violation is a
//! finding too, about the judges or about the bug, and is shown as such.
//! Knows nothing of: how storms, images and scenes are run inside.

use crate::catch::caught;
use crate::{images, protocol, scenarios, service, storms};
use kattu_mutants::{Bug, Trial};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// A violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Seed that shows it.
    pub seed: u64,
    /// The guarantees that did not hold, with commas between.
    pub property: String,
    /// What was seen.
    pub story: String,
}

impl Finding {
    /// Whether one of the bug's judges made it.
    pub fn is_claimed_by(&self, bug: &Bug) -> bool {
        bug.judges.iter().any(|judge| self.names(judge))
    }

    /// Whether this judge made it.
    pub fn names(&self, judge: &str) -> bool {
        self.property.split(", ").any(|promise| promise == judge)
    }
}

/// The setting of the trials of this bug: its scene, or the name of its storms; trials of one kind and one setting are
/// the same.
pub fn setting(bug: &Bug) -> &'static str {
    match bug.trial {
        Trial::Scenario => bug.name,
        Trial::Storms => storms::called_for(bug.name),
        Trial::Service => service::called_for(bug.name),
        Trial::Protocol | Trial::Images => "",
    }
}

/// One seed of this kind of trial; with the planted bug, or without any.
pub fn run(trial: Trial, name: &str, seed: u64) -> Option<Finding> {
    let broken = match trial {
        Trial::Storms => storms::trial(name, seed),
        Trial::Service => service::trial(name, seed, None),
        Trial::Images => caught(|| images::trial(seed)).err().map(|said| (images::promise_of(&said), said)),
        Trial::Protocol => {
            caught(|| protocol::trial(seed)).err().map(|said| (protocol::promise_of(&said), said))
        }
        Trial::Scenario => caught(|| scenarios::trial(name, seed)).err().map(scenarios::promise_of),
    };
    broken.map(|(property, story)| Finding { seed, property, story })
}

/// The first seed at or after `first` whose finding satisfies `wanted`, of `count` seeds; all threads search, and the
/// answer does not depend on them. Findings that do not satisfy it are kept beside.
pub fn search(
    trial: Trial,
    name: &str,
    first: u64,
    count: u64,
    wanted: impl Fn(&Finding) -> bool + Sync,
) -> (Option<Finding>, Vec<Finding>) {
    let next = AtomicU64::new(first);
    let best = AtomicU64::new(u64::MAX);
    let findings = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::SeqCst);
                    if seed >= first + count || seed > best.load(Ordering::SeqCst) {
                        return;
                    }
                    let Some(finding) = run(trial, name, seed) else { continue };
                    if wanted(&finding) {
                        best.fetch_min(seed, Ordering::SeqCst);
                    }
                    findings.lock().expect("no thread panics with it").push(finding);
                }
            });
        }
    });
    let mut findings = findings.into_inner().expect("no thread panicked with it");
    findings.sort_by_key(|finding| finding.seed);
    let best = best.into_inner();
    let caught = findings.iter().find(|finding| finding.seed == best && wanted(finding)).cloned();
    findings.retain(|finding| !wanted(finding) && finding.seed < best);
    (caught, findings)
}
