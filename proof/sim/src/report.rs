//! Reports: the results of one storm.
//!
//! Knows nothing of: how storms are run, how reports are shown.

use crate::family::ServiceSum;
use crate::faults::Tally;
use crate::trace::Line;
use kattu_verify::history::Record;
use std::fmt;

/// A guarantee that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The name of the invariant or judge.
    pub property: String,
    /// What was seen.
    pub story: String,
    /// Operations of clients that show it, by their numbers in the history.
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
        /// What members did besides faults: a count of 0 means that it was not tested.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counts {
            $(#[doc = $about] pub $name: u64,)*
        }

        impl Counts {
            /// Adds another storm's counts.
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
    left "leaders that left because of a slow disk",
    leases "leader leases begun",
    denials "members without the vote hold that leader leases need",
    cut "tasks of a keeper interrupted in the middle",
    apart "clocks proven to run apart",
    behind "reads at least as new as an index that the member lacked",
    aged "bounded reads of a state that was no longer the newest",
    snapshots "snapshots complete",
    installs "snapshots installed",
    prunes "logs pruned",
    segments "changes to the next segment of a log",
    logs_away "logs sent to a thread of their own by a slow sync",
    tuned "settings changed on a member that runs",
    keepers_moved "keepers moved to a thread of their own, or back",
    logs_home "of these come home",
    compactions "compactions begun",
    changes "changes of members",
    uncovered "starts without a snapshot that reaches the log",
    repaired "damaged logs repaired",
    refilled "repaired logs that are whole again",
    restored "backups that became clusters",
    recovered "members that became clusters of one",
    unfinished "of these repeated after a power cut",
    jobs "appends read by jobs",
    jobs_hung "of these jobs that hung",
    jobs_repeated "results of these jobs that came twice",
    jobs_late "results of jobs that no member waited for",
    early "entries taken from windows",
    repairs "gaps sent again",
    dropped_unread "appends dropped unread",
    sessions "sessions of clients",
    expired "of these ended before their clients were done",
    repeated "answers to commands of sessions that were sent again",
    weak_asked "weak writes sent to members",
    weak "commands whose clients went on when a quorum had received them",
    weak_lost "sendings of these whose entries were lost, or whose end nobody knows",
    weak_gone "of these commands whose sessions ended first",
    bundles "entries with several puts applied",
    lies "lies sent",
    caught "of them detected",
}

/// The results of one storm.
#[derive(Clone, Debug, Default)]
pub struct StormReport {
    /// The seed.
    pub seed: u64,
    /// The first violation, if any.
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
    /// Parts of the history left undecided.
    pub undecided: u64,
    /// Checks of the whole state.
    pub looks: u64,
    /// Faults that happened.
    pub faults: Tally,
    /// Other counts.
    pub counts: Counts,
    /// Numbers of the injections that were carried out before the end.
    pub injected: Vec<u32>,
    /// Injections of the full plan.
    pub injections_planned: usize,
    /// The results of the judges of service, if any.
    pub service: ServiceSum,
    /// The timeline, if asked for.
    pub timeline: Vec<Line>,
    /// The history, if asked for.
    pub history: Vec<Record>,
    /// The plan in a few words.
    pub plan: String,
}
