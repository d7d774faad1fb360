//! Replay: the specification, driven through all revisions in order.
//!
//! Where a revision is a gap, an open write is chosen for it; a choice that a later answer contradicts is undone. The
//! replay goes back only to gaps whose candidates write keys that the contradiction depends on; all others would lead
//! to the same contradiction again. (A gap whose candidates are exhausted adds the keys on which they depend.)
//! Candidates that the next reads need are tried first, those that contradict them are not tried: `outlook.rs`.
//! Knows nothing of: real time.

use super::compaction::Compacted;
use super::gaps::{Gaps, Keys, add_footprint, meet};
use super::outlook::Prospect;
use super::{Order, Violation, told, violation};
use crate::history::{Answer, Rejection};
use crate::judges::shown_answer;
use crate::operations::{End, Operation};
use crate::spec::Spec;
use std::collections::{BTreeSet, HashSet};

/// Limit of operations replayed before a history with open writes is given up: per operation, and at least.
const STEPS_PER_OPERATION: u64 = 20;
const STEPS_MIN: u64 = 50_000;

/// One gap, filled for now.
struct Choice<'a> {
    revision: i64,
    /// The candidate in place.
    filler: usize,
    /// The candidates that are left, the next one last.
    left: Vec<usize>,
    /// Keys on which the failure of all candidates so far depends.
    blame: BTreeSet<Keys<'a>>,
}

/// A failure of the replay, and the keys on which it depends.
struct Contradiction<'a> {
    blame: BTreeSet<Keys<'a>>,
    violation: Violation,
}

pub(super) struct Replay<'a, 'o> {
    operations: &'o [Operation<'a>],
    order: &'o Order,
    compacted: &'o Compacted,
    gaps: &'o Gaps<'a>,
    spec: Spec,
    choices: Vec<Choice<'a>>,
    chosen: HashSet<usize>,
    /// Operations replayed so far, including those undone.
    steps: u64,
    /// The highest revision with a contradiction so far: only a later one gets a story.
    furthest: i64,
}

impl<'a, 'o> Replay<'a, 'o> {
    pub(super) fn new(
        operations: &'o [Operation<'a>],
        order: &'o Order,
        compacted: &'o Compacted,
        gaps: &'o Gaps<'a>,
    ) -> Replay<'a, 'o> {
        let spec = Spec::new();
        Replay {
            operations,
            order,
            compacted,
            gaps,
            spec,
            choices: Vec::new(),
            chosen: HashSet::new(),
            steps: 0,
            furthest: 0,
        }
    }

    /// Whether it reached the end; false if too much was open.
    pub(super) fn run(mut self) -> Result<bool, Violation> {
        let steps_max = STEPS_MIN.max(self.operations.len() as u64 * STEPS_PER_OPERATION);
        // The contradiction at the highest revision is reported in the end.
        let mut furthest: Option<Violation> = None;
        let mut going = self.others_at(1).map(|()| 2);
        loop {
            match going {
                Ok(revision) if revision > self.order.last() => return Ok(true),
                Ok(revision) => {
                    if self.steps > steps_max && !self.choices.is_empty() {
                        return Ok(false);
                    }
                    going = match self.order.writer(revision) {
                        Some(writer) => self.answered(writer, revision),
                        None => self.open(revision),
                    };
                    going = going.and_then(|next| self.others_at(revision).map(|()| next));
                }
                Err(contradiction) => {
                    let here = self.spec.revision();
                    if self.furthest < here {
                        self.furthest = here;
                        furthest = Some(contradiction.violation);
                    }
                    let Some(choice) = self.back_to_blame(&contradiction.blame) else {
                        return Err(furthest.expect("the first contradiction set it: revisions begin at 1"));
                    };
                    let Choice { revision, filler, left, mut blame } = choice;
                    blame.extend(contradiction.blame);
                    // Other choices would leave this filler for later gaps.
                    add_footprint(self.operations[filler].asked, &mut blame);
                    going = self.fill(revision, left, blame);
                    going = going.and_then(|next| self.others_at(revision).map(|()| next));
                }
            }
        }
    }

    /// An answered write, at its revision.
    fn answered(&mut self, writer: usize, revision: i64) -> Result<i64, Contradiction<'a>> {
        self.expect(writer, revision)?;
        Ok(revision + 1)
    }

    /// All other operations that show this revision.
    fn others_at(&mut self, revision: i64) -> Result<(), Contradiction<'a>> {
        let order = self.order;
        order.readers(revision).try_for_each(|number| self.expect(number, revision))
    }

    /// Applies one operation and compares its answer with the given one.
    fn expect(&mut self, number: usize, revision: i64) -> Result<(), Contradiction<'a>> {
        self.steps += 1;
        let operation = &self.operations[number];
        self.spec.set_compacted(self.compacted.before(number, revision));
        let expected = self.spec.apply(operation.asked);
        let End::Done(_, given) = operation.end else {
            unreachable!("only answered operations have a revision")
        };
        if matches!(&expected, Ok((at, answer)) if *at == revision && answer == given) {
            return Ok(());
        }
        let mut blame = BTreeSet::new();
        add_footprint(operation.asked, &mut blame);
        let tell = || {
            let expected = told_expected(&expected);
            format!(
                "{} was answered {} at revision {revision}; {expected}",
                told(operation),
                shown_answer(given)
            )
        };
        let story = if self.furthest < self.spec.revision() { tell() } else { String::new() };
        Err(Contradiction { blame, violation: violation(&[operation], story) })
    }

    /// Fills a gap: first with writes that the next reads need.
    fn open(&mut self, revision: i64) -> Result<i64, Contradiction<'a>> {
        let gaps = self.gaps;
        let mut blame = BTreeSet::new();
        let mut left: Vec<(Prospect, usize)> = Vec::new();
        for &filler in gaps.fillers[&revision].iter().rev() {
            let asked = self.operations[filler].asked;
            let prospect = gaps.outlook.prospect(&self.spec, asked, revision);
            if self.chosen.contains(&filler) || prospect == Prospect::Wrong {
                add_footprint(asked, &mut blame);
            } else {
                left.push((prospect, filler));
            }
        }
        left.sort_by_key(|(prospect, _)| std::cmp::Reverse(*prospect));
        self.fill(revision, left.into_iter().map(|(_, filler)| filler).collect(), blame)
    }

    /// Fills a gap with the next candidate that has an effect.
    fn fill(
        &mut self,
        revision: i64,
        mut left: Vec<usize>,
        mut blame: BTreeSet<Keys<'a>>,
    ) -> Result<i64, Contradiction<'a>> {
        while let Some(filler) = left.pop() {
            let operation = &self.operations[filler];
            self.steps += 1;
            // Compaction cannot affect a write in the log, unless it reads the past: then the outcome is not known, and
            // it is taken to be served.
            self.spec.set_compacted(-1);
            let _ = self.spec.apply(operation.asked);
            if self.spec.revision() == revision {
                self.chosen.insert(filler);
                self.choices.push(Choice { revision, filler, left, blame });
                return Ok(revision + 1);
            }
            add_footprint(operation.asked, &mut blame);
        }
        let fillers = &self.gaps.fillers[&revision];
        let tried: Vec<u64> = fillers.iter().take(8).map(|&filler| self.operations[filler].id).collect();
        let story = format!(
            "revision {revision} was made by no answered write, and none of the open ones fits: {tried:?}"
        );
        Err(Contradiction { blame, violation: violation(&[], story) })
    }

    /// Undoes everything since the newest gap that a contradiction may depend on; that gap is open again.
    fn back_to_blame(&mut self, blame: &BTreeSet<Keys<'a>>) -> Option<Choice<'a>> {
        loop {
            let choice = self.choices.pop()?;
            self.chosen.remove(&choice.filler);
            let mut fillers = self.gaps.fillers[&choice.revision].iter();
            let matters = fillers.any(|filler| {
                let writes = &self.gaps.writes[filler];
                writes.iter().any(|&keys| blame.iter().any(|&blamed| meet(keys, blamed)))
            });
            if matters {
                while self.spec.revision() >= choice.revision {
                    self.spec.undo();
                }
                return Some(choice);
            }
        }
    }
}

fn told_expected(expected: &Result<(i64, Answer), Rejection>) -> String {
    match expected {
        Ok((revision, answer)) => {
            format!("in the order of revisions it is {} at revision {revision}", shown_answer(answer))
        }
        Err(rejection) => format!("in the order of revisions it is rejected: {rejection:?}"),
    }
}
