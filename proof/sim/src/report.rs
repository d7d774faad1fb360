//! Reports: what one storm came to.
//!
//! Knows nothing of: how storms are run, how reports are shown.

use crate::family::ServiceSum;
use crate::faults::Tally;
use crate::trace::Line;
use kattu_verify::history::Record;
use std::fmt;

/// A promise that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which: the name of the invariant or judge.
    pub property: String,
    /// What was seen.
    pub story: String,
    /// Operations of clients that it hangs on, by their numbers in the history.
    pub operations: Vec<u64>,
}

impl Violation {
    pub(crate) fn new(property: impl Into<String>, story: impl Into<String>) -> Violation {
        Violation { property: property.into(), story: story.into(), operations: Vec::new() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.property, self.story)
    }
}

macro_rules! counts {
    ($($name:ident $about:literal,)*) => {
        /// What members did that is no fault: what never happened was not tested.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counts {
            $(#[doc = $about] pub $name: u64,)*
        }

        impl Counts {
            /// Adds another storm's.
            pub fn add(&mut self, other: &Counts) {
                $(self.$name += other.$name;)*
            }
        }

        impl fmt::Display for Counts {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let all = [$((self.$name, $about),)*];
                let shown: Vec<String> = all.iter().map(|(count, about)| format!("{count} {about}")).collect();
                f.write_str(&shown.join(", "))
            }
        }
    };
}

counts! {
    elections "elections won",
    suspicions "leaders suspected",
    transfers "transfers begun",
    left "slow disks left by their leaders",
    leases "leases begun",
    denials "members without the promise that leases need",
    cut "tasks of a keeper left in the middle",
    apart "clocks proven to run apart",
    behind "reads of sessions at members that were behind them",
    aged "bounded reads of a state that was the newest no more",
    snapshots "snapshots complete",
    installs "snapshots installed",
    prunes "logs pruned",
    segments "changes to the next segment of a log",
    compactions "compactions begun",
    changes "changes of members",
    uncovered "starts without any snapshot that reaches the log",
    repaired "damaged logs mended",
    refilled "mended logs that are whole again",
    restored "backups that became clusters",
    recovered "members that became clusters of one",
    unfinished "of these made again after a power cut",
    lies "lies told",
    caught "of them noticed",
}

/// What one storm came to.
#[derive(Clone, Debug, Default)]
pub struct StormReport {
    /// The seed.
    pub seed: u64,
    /// The first promise that was broken, if any.
    pub violation: Option<Violation>,
    /// Hash of the whole course.
    pub hash: u64,
    /// Members of the cluster.
    pub members: u64,
    /// Time of the world, calm included, in nanoseconds.
    pub time: u64,
    /// Events handled by members.
    pub events: u64,
    /// Operations of clients that were answered for good.
    pub done: u64,
    /// … that were certainly without effect.
    pub refused: u64,
    /// … whose outcome stayed open.
    pub unknown: u64,
    /// Answers that the judges compared with something.
    pub judged: u64,
    /// Parts of the history that the judges gave up.
    pub undecided: u64,
    /// Whole-state looks at the cluster.
    pub looks: u64,
    /// Faults that happened.
    pub faults: Tally,
    /// What else members did.
    pub counts: Counts,
    /// Numbers of the injections that were carried out before the end.
    pub injected: Vec<u32>,
    /// Injections of the full plan.
    pub injections_planned: usize,
    /// How well it served, if that was judged.
    pub service: ServiceSum,
    /// The timeline, if asked for.
    pub timeline: Vec<Line>,
    /// The history, if asked for.
    pub history: Vec<Record>,
    /// The plan in a few words.
    pub plan: String,
}
