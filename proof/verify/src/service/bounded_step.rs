//! Bounded step: no step of an owner is above a stated amount of work.
//!
//! In:    what each step of an owner did, counted: entries handled, keys visited, bytes read, written or copied.
//! Out:   the first step above the bound; the largest of all.
//! Rule:  the work of a step is entries + keys + bytes / 1024. An owner (a replica with its keeper) does nothing else
//!        during a step: no message is handled, no heartbeat sent, no client answered. [fault-model F53]
//! Why counts and no times: a count is the same on every machine, so a step that is long only where memory is slow
//!        shows everywhere.
//! Knows nothing of: clocks, the division of work into steps.

use super::Violation;
use kattu_raft::NodeId;

/// Bytes that are as much work as one entry or one key.
pub const BYTES_PER_UNIT: u64 = 1024;

/// What a step did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Entries and messages handled.
    pub entries: u64,
    /// Keys and versions of keys visited in the store.
    pub keys: u64,
    /// Bytes of entries and results that were processed.
    pub bytes: u64,
}

impl Work {
    /// All of it as one number.
    #[must_use]
    pub fn units(&self) -> u64 {
        self.entries + self.keys + self.bytes / BYTES_PER_UNIT
    }

    /// Adds more work.
    pub fn add(&mut self, more: Work) {
        self.entries += more.entries;
        self.keys += more.keys;
        self.bytes += more.bytes;
    }
}

/// All steps of all owners.
#[derive(Clone, Copy, Debug)]
pub struct BoundedStep {
    units_max: u64,
    steps: u64,
    largest: Work,
}

impl BoundedStep {
    /// A judge that allows this many units per step.
    #[must_use]
    pub fn new(units_max: u64) -> BoundedStep {
        BoundedStep { units_max, steps: 0, largest: Work::default() }
    }

    /// Judges a member's step.
    ///
    /// # Errors
    /// If it was above the bound.
    pub fn stepped(&mut self, member: NodeId, work: Work) -> Result<(), Violation> {
        self.steps += 1;
        if self.largest.units() < work.units() {
            self.largest = work;
        }
        if work.units() <= self.units_max {
            return Ok(());
        }
        let story = format!(
            "a step of n{} did {} units of work, {} are allowed: {} entries, {} keys, {} bytes",
            member.0,
            work.units(),
            self.units_max,
            work.entries,
            work.keys,
            work.bytes
        );
        Err(Violation { property: "bounded_step", story, operations: Vec::new() })
    }

    /// Steps so far, and the largest of them.
    #[must_use]
    pub fn seen(&self) -> (u64, Work) {
        (self.steps, self.largest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NodeId = NodeId(1);

    #[test]
    fn entries_keys_and_kibibytes_are_one_unit_each() {
        let mut work = Work { entries: 3, keys: 40, bytes: 2047 };
        assert_eq!(work.units(), 44);
        work.add(Work { entries: 1, keys: 0, bytes: 1 });
        assert_eq!(work, Work { entries: 4, keys: 40, bytes: 2048 });
        assert_eq!(work.units(), 46);
    }

    #[test]
    fn a_step_at_the_bound_holds_and_one_above_it_is_told() {
        let mut judge = BoundedStep::new(100);
        assert_eq!(judge.stepped(A, Work { entries: 10, keys: 90, bytes: 0 }), Ok(()));
        assert_eq!(judge.stepped(A, Work { entries: 1, keys: 1, bytes: 0 }), Ok(()));
        let violation = judge.stepped(A, Work { entries: 1, keys: 99, bytes: 1024 }).expect_err("101");
        assert_eq!(violation.property, "bounded_step");
        assert!(
            violation.story.contains("n1 did 101 units") && violation.story.contains("99 keys"),
            "{violation}"
        );
        let (steps, largest) = judge.seen();
        assert_eq!((steps, largest.units()), (3, 101));
    }
}
