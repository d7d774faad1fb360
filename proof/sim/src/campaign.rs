//! Campaign: many storms on all cores, and the sum of their results.
//!
//! One storm per thread at a time; the sum does not depend on the order in which they end.
//! Knows nothing of: how progress is shown.

use crate::family::{Family, ServiceSum};
use crate::faults::Tally;
use crate::plan::Options;
use crate::report::{Counts, StormReport, Violation};
use crate::run::run_storm;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

/// From this many storms on, every fault must have happened.
pub const CAMPAIGN_STORMS: u64 = 300;

/// How often each fault must have happened in so many storms at least: the rarest happens about 50 times in 1,000.
#[must_use]
pub fn least(storms: u64) -> u64 {
    match storms {
        0..CAMPAIGN_STORMS => 0,
        CAMPAIGN_STORMS..1_000 => 1,
        1_000.. => 20,
    }
}

/// From this many storms on, each kind of work of busy disks must have been done once a storm on average.
const BUSY_FROM: u64 = 5;
/// From this many storms on, lies, detected lies and elections must each number one a storm on average.
const LIARS_FROM: u64 = 5;

/// The results of many storms.
#[derive(Clone, Debug, Default)]
pub struct Sum {
    /// Storms that were run.
    pub storms: u64,
    /// Seeds whose storm had a violation, with the violation.
    pub violations: Vec<(u64, Violation)>,
    /// Time of all worlds together, in nanoseconds.
    pub time: u64,
    /// Events handled by members.
    pub events: u64,
    /// Operations answered for good, refused, and open.
    pub operations: (u64, u64, u64),
    /// Answers compared.
    pub judged: u64,
    /// Parts of histories left undecided.
    pub undecided: u64,
    /// Checks of the whole state.
    pub looks: u64,
    /// Faults.
    pub faults: Tally,
    /// Other counts.
    pub counts: Counts,
    /// The results of the judges of service, if any.
    pub service: ServiceSum,
}

impl Sum {
    /// What happened too rarely in the storms of a family for their verdict to be evidence, as text: faults, the work
    /// of its members beside writes, cases for its judges.
    #[must_use]
    pub fn lacks(&self, family: Family) -> Vec<String> {
        let least = least(self.storms);
        let mut lacks: Vec<String> = Vec::new();
        for fault in self.faults.too_rare(least, family) {
            lacks.push(format!("{} ({})", fault.id(), self.faults.count(fault)));
        }
        if family == Family::BusyDisks && self.storms >= BUSY_FROM {
            let Counts { segments, compactions, snapshots, .. } = self.counts;
            for (what, count) in
                [("segments", segments), ("compactions", compactions), ("snapshots", snapshots)]
            {
                if count < self.storms {
                    lacks.push(format!("{what} ({count})"));
                }
            }
        }
        if family == Family::Liars && self.storms >= LIARS_FROM {
            let Counts { lies, caught, elections, .. } = self.counts;
            for (what, count) in [("lies", lies), ("lies detected", caught), ("elections", elections)] {
                if count < self.storms {
                    lacks.push(format!("{what} ({count})"));
                }
            }
        }
        lacks.extend(self.service.judged_too_few(family, self.storms));
        lacks
    }

    /// Adds one storm.
    pub fn add(&mut self, report: &StormReport) {
        self.storms += 1;
        self.time += report.time;
        self.events += report.events;
        self.operations.0 += report.done;
        self.operations.1 += report.refused;
        self.operations.2 += report.unknown;
        self.judged += report.judged;
        self.undecided += report.undecided;
        self.looks += report.looks;
        self.faults.add_storm(&report.faults);
        self.counts.add(&report.counts);
        self.service.add(&report.service);
        if let Some(violation) = &report.violation {
            self.violations.push((report.seed, violation.clone()));
            self.violations.sort_by_key(|(seed, _)| *seed);
        }
    }
}

/// Runs the storms of `seeds` on `threads` threads; `ended` gets each report. Stops early once it has `violations_max`
/// violations.
pub fn run_storms(
    seeds: Range<u64>,
    threads: usize,
    violations_max: usize,
    options: &Options,
    mut ended: impl FnMut(&StormReport),
) -> Sum {
    let next = AtomicU64::new(seeds.start);
    let mut sum = Sum::default();
    std::thread::scope(|scope| {
        let (tell, hear) = mpsc::channel();
        for _ in 0..threads.max(1) {
            let (tell, next, end) = (tell.clone(), &next, seeds.end);
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if end <= seed || tell.send(run_storm(seed, options)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(tell);
        for report in hear {
            ended(&report);
            sum.add(&report);
            if sum.violations.len() >= violations_max {
                next.store(seeds.end, Ordering::Relaxed);
            }
        }
    });
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_campaign_of_busy_disks_in_which_nothing_was_busy_is_none() {
        let mut sum = Sum { storms: BUSY_FROM, ..Sum::default() };
        assert_eq!(sum.lacks(Family::BusyDisks), ["segments (0)", "compactions (0)", "snapshots (0)"]);
        assert_eq!(sum.lacks(Family::SlowLinks), Vec::<String>::new(), "they need not be");
        (sum.counts.segments, sum.counts.compactions, sum.counts.snapshots) =
            (BUSY_FROM, BUSY_FROM, BUSY_FROM);
        assert_eq!(sum.lacks(Family::BusyDisks), Vec::<String>::new());
    }

    #[test]
    fn a_campaign_says_which_faults_were_too_rare() {
        let sum = Sum { storms: CAMPAIGN_STORMS, ..Sum::default() };
        let lacks = sum.lacks(Family::Storms);
        assert!(
            lacks.contains(&"F54 (0)".to_string()) && lacks.contains(&"F62 (0)".to_string()),
            "{lacks:?}"
        );
    }
}
