//! Reports: what one storm came to.
//!
//! Knows nothing of: how storms are run, how reports are shown.

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
    /// Numbers of the injections that were carried out before the end.
    pub injected: Vec<u32>,
    /// Injections of the full plan.
    pub injections_planned: usize,
    /// The timeline, if asked for.
    pub timeline: Vec<Line>,
    /// The history, if asked for.
    pub history: Vec<Record>,
    /// The plan in a few words.
    pub plan: String,
}
