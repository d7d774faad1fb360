//! Beside: what a member does beside its clients' writes, when, and what that costs them at the disk.
//!
//! ```text
//!   segment     the log goes over to the next segment, and the one after that is made
//!   compaction  versions are there to be forgotten
//!   snapshot    one is being taken
//! ```
//!
//! A disk does one thing at a time, so what is done for one thread is done later for the others. A sync of the log waits for the
//! operation of another thread that is under way, and goes before the rest of that thread's. Two other threads take turns: each
//! has half of the disk until one of them has what it wants. Where the plan does not say so (`Settings::one_disk`), work beside
//! the log costs the log nothing.
//! Knows nothing of: who judges, what the work is for.

use crate::clock::MS;

/// A write that was asked for so soon afterwards may have waited behind what was going on, or behind others that had.
const JUST_AFTER: u64 = 20 * MS;

/// What goes on beside writes. The order is that of their lengths: of several at once the shortest counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Beside {
    /// A log goes over to its next segment, or makes one.
    Segment,
    /// A store forgets what a compaction lets it forget.
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

/// The last time that something went on, in nanoseconds of the world; nothing has yet if `until` is 0.
#[derive(Clone, Copy, Debug, Default)]
struct Spell {
    began: u64,
    until: u64,
}

/// Who else than the log is at its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Thread {
    /// The worker that takes snapshots, and has those of a leader stored.
    Snapshots,
    /// Whoever makes a segment, in passing.
    Segments,
}

/// What a thread has told the disk to do.
#[derive(Clone, Copy, Debug, Default)]
struct AtDisk {
    /// When it will be done, for all that the disk has been told. While nobody else is there, what is left until then is work
    /// of this thread's alone.
    until: u64,
    /// The longest of its operations.
    longest: u64,
}

impl AtDisk {
    fn is_left(self, now: u64) -> u64 {
        self.until.saturating_sub(now)
    }
}

/// What one process does beside writes.
#[derive(Debug, Default)]
pub(crate) struct BesideWrites {
    spells: [Spell; Beside::ALL.len()],
    /// By thread.
    at_disk: [AtDisk; 2],
    /// When the newest sync of the log will be done.
    synced: u64,
}

impl BesideWrites {
    /// Something goes on from `now` on, and until then for all that is known. Whether it begins now.
    pub(crate) fn goes_on(&mut self, what: Beside, now: u64, until: u64) -> bool {
        let spell = &mut self.spells[what as usize];
        let begins = spell.until < now;
        if begins {
            spell.began = now;
        }
        spell.until = spell.until.max(until + JUST_AFTER);
        begins
    }

    /// What goes on now: the shortest of it.
    pub(crate) fn now(&self, now: u64) -> Option<Beside> {
        Beside::ALL.into_iter().find(|&what| now < self.spells[what as usize].until)
    }

    /// What has begun since then: the shortest of it.
    pub(crate) fn since(&self, since: u64) -> Option<Beside> {
        let began = |what: &Beside| {
            let spell = self.spells[*what as usize];
            0 < spell.until && since <= spell.began
        };
        Beside::ALL.into_iter().find(began)
    }

    /// A thread that was not at the disk tells it at `now` to do what takes so long, its longest operation `longest`. It begins
    /// when the sync that is under way is done. As long as the shorter of the two has something to do, the disk does as much
    /// for the other thread: each of them is that much later.
    pub(crate) fn at_disk(&mut self, thread: Thread, now: u64, takes: u64, longest: u64) {
        assert!(self.done_at(thread) <= now, "{thread:?} is at the disk until {}", self.done_at(thread));
        let begins = now.max(self.synced);
        let other = &mut self.at_disk[1 - thread as usize];
        let shared = takes.min(other.is_left(begins));
        other.until += shared;
        self.at_disk[thread as usize] = AtDisk { until: begins + takes + shared, longest };
    }

    /// When what a thread has told the disk to do will be done, for all that is known. The past if it is.
    pub(crate) fn done_at(&self, thread: Thread) -> u64 {
        self.at_disk[thread as usize].until
    }

    /// The log's thread waits for so long and then goes to the disk, for what takes so long: the rest of the others' is done later.
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
