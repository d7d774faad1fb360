//! Beside: a member's work beside its clients' writes, when it runs, and what it costs them at the disk.
//!
//! ```text
//!   segment     the log changes to the next segment, and the one after that is made
//!   compaction  old versions are being removed
//!   snapshot    one is being taken
//! ```
//!
//! A disk does one operation at a time, so work for one thread delays the others. A sync of the log waits for the
//! operation of another thread that is under way, and goes before the rest of that thread's. Two other threads take
//! turns: each has half of the disk until one of them is done. Without `Settings::one_disk`, work beside the log costs
//! the log nothing.
//! Knows nothing of: judges, the purpose of the work.

use crate::clock::MS;

/// A write that began this soon after work may have waited behind it, or behind other writes that had.
const JUST_AFTER: u64 = 20 * MS;

/// Work beside writes, ordered by its length: of several at once the shortest counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Beside {
    /// A log changes to its next segment, or makes one.
    Segment,
    /// A store removes compacted versions.
    Compaction,
    /// A snapshot is taken.
    Snapshot,
}

impl Beside {
    /// All, in their order.
    pub const ALL: [Beside; 3] = [Beside::Segment, Beside::Compaction, Beside::Snapshot];

    /// For people.
    #[must_use]
    pub fn about(self) -> &'static str {
        match self {
            Beside::Segment => "a log goes over to its next segment",
            Beside::Compaction => "a compaction runs",
            Beside::Snapshot => "a snapshot is taken",
        }
    }
}

/// The last period of some work, in nanoseconds of the world; there was none if `until` is 0.
#[derive(Clone, Copy, Debug, Default)]
struct Spell {
    began: u64,
    until: u64,
}

/// A thread other than the log's at its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Thread {
    /// The worker that takes snapshots, and stores those from a leader.
    Snapshots,
    /// The thread that makes a segment.
    Segments,
}

/// A thread's work at the disk.
#[derive(Clone, Copy, Debug, Default)]
struct AtDisk {
    /// When it will be done, as far as known. While no other thread is there, the time until then is all its own work.
    until: u64,
    /// The longest of its operations.
    longest: u64,
}

impl AtDisk {
    fn is_left(self, now: u64) -> u64 {
        self.until.saturating_sub(now)
    }
}

/// The work of one process beside writes.
#[derive(Debug, Default)]
pub(crate) struct BesideWrites {
    spells: [Spell; Beside::ALL.len()],
    /// By thread.
    at_disk: [AtDisk; 2],
    /// When the newest sync of the log will be done.
    synced: u64,
}

impl BesideWrites {
    /// Work goes on from `now` until `until`, as far as known. Whether it begins now.
    pub(crate) fn goes_on(&mut self, what: Beside, now: u64, until: u64) -> bool {
        let spell = &mut self.spells[what as usize];
        let begins = spell.until < now;
        if begins {
            spell.began = now;
        }
        spell.until = spell.until.max(until + JUST_AFTER);
        begins
    }

    /// The work under way now: the shortest.
    pub(crate) fn now(&self, now: u64) -> Option<Beside> {
        Beside::ALL.into_iter().find(|&what| now < self.spells[what as usize].until)
    }

    /// The work begun since then: the shortest.
    pub(crate) fn since(&self, since: u64) -> Option<Beside> {
        let began = |what: &Beside| {
            let spell = self.spells[*what as usize];
            0 < spell.until && since <= spell.began
        };
        Beside::ALL.into_iter().find(began)
    }

    /// A thread that was not at the disk brings work at `now` that takes `takes`, its longest operation `longest`. It
    /// begins when the sync that is under way is done. While both threads have work they share the disk: each is
    /// delayed by the shorter work of the two.
    pub(crate) fn at_disk(&mut self, thread: Thread, now: u64, takes: u64, longest: u64) {
        assert!(self.done_at(thread) <= now, "{thread:?} is at the disk until {}", self.done_at(thread));
        let begins = now.max(self.synced);
        let other = &mut self.at_disk[1 - thread as usize];
        let shared = takes.min(other.is_left(begins));
        other.until += shared;
        self.at_disk[thread as usize] = AtDisk { until: begins + takes + shared, longest };
    }

    /// When a thread's work at the disk will be done, as far as known. The past if it is.
    pub(crate) fn done_at(&self, thread: Thread) -> u64 {
        self.at_disk[thread as usize].until
    }

    /// The log's thread waits for `waits`, then uses the disk for `takes`: the rest of the other threads' work is
    /// delayed.
    pub(crate) fn sync(&mut self, now: u64, waits: u64, takes: u64) {
        let begins = now + waits;
        self.synced = begins + takes;
        for thread in self.at_disk.iter_mut().filter(|thread| 0 < thread.is_left(begins)) {
            thread.until += takes;
        }
    }

    /// How long a sync of the log that begins now waits for the operation that is under way.
    pub(crate) fn wait(&self, now: u64) -> u64 {
        self.at_disk.iter().map(|thread| thread.is_left(now).min(thread.longest)).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_counts_and_a_spell_that_goes_on_has_begun_once() {
        let mut beside = BesideWrites::default();
        assert_eq!((beside.now(0), beside.since(0)), (None, None));
        assert!(beside.goes_on(Beside::Snapshot, 10, 10 + MS));
        assert!(!beside.goes_on(Beside::Snapshot, 10 + MS, 10 + 100 * MS), "it goes on");
        beside.goes_on(Beside::Segment, 10 + 2 * MS, 10 + 3 * MS);
        assert_eq!(beside.now(10 + 4 * MS), Some(Beside::Segment));
        assert_eq!(beside.now(10 + 3 * MS + JUST_AFTER), Some(Beside::Snapshot));
        assert_eq!(beside.now(10 + 100 * MS + JUST_AFTER), None);
        assert_eq!(beside.since(10), Some(Beside::Segment));
        assert_eq!(beside.since(10 + 2 * MS + 1), None, "the snapshot has gone on since before");
        beside.goes_on(Beside::Snapshot, 500 * MS, 501 * MS);
        assert_eq!(beside.since(400 * MS), Some(Beside::Snapshot));
    }

    #[test]
    fn a_sync_waits_for_one_operation_of_another_thread_and_not_for_all() {
        let mut beside = BesideWrites::default();
        assert_eq!(beside.wait(0), 0);
        beside.at_disk(Thread::Snapshots, 100, 50, 20);
        assert_eq!([100, 130, 140, 150, 160].map(|now| beside.wait(now)), [20, 20, 10, 0, 0]);
    }

    #[test]
    fn what_a_disk_does_for_one_it_does_later_for_the_others() {
        let [snapshots, segments] = [Thread::Snapshots, Thread::Segments];
        let done_at = |beside: &BesideWrites| [snapshots, segments].map(|thread| beside.done_at(thread));
        let mut beside = BesideWrites::default();
        beside.at_disk(snapshots, 100, 50, 20);
        beside.at_disk(segments, 120, 10, 25);
        assert_eq!(done_at(&beside), [160, 140], "60 of work are done at 160; for 20 of them each had half");
        assert_eq!([120, 130, 145].map(|now| beside.wait(now)), [20, 20, 15], "one operation is under way");
        beside.at_disk(segments, 150, 100, 30);
        assert_eq!(done_at(&beside), [170, 260]);
        assert_eq!(beside.wait(150), 30);

        beside.sync(150, 30, 7);
        assert_eq!(done_at(&beside), [170, 267], "what was done before the sync began is not held up");
        beside.at_disk(snapshots, 180, 5, 5);
        assert_eq!(done_at(&beside), [197, 272], "it begins when the sync is done, at 187");
        beside.sync(400, 0, 9);
        assert_eq!(done_at(&beside), [197, 272], "nobody else was there");
    }
}
