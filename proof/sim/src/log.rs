//! Log: a member's log under virtual time. [shell/member `log`]
//!
//! The log and its decisions are production's. What the runtime does with threads is done here by the clock of the world: a
//! segment is made on a passing thread, which takes some time.
//! Knows nothing of: replicas, when the log goes to the disk.

use crate::clock::US;
use kattu_member::log::{Completion, SegmentJob, Timed};
use kattu_raft::{Duration, Fetch, GroupId, Instant};
use kattu_wal::{Prepared, SegmentTask, SnapshotStore, Wal, WalError};
use std::ops::{Deref, DerefMut};

/// How long a passing thread takes to make a segment.
const SEGMENT_TIME: Duration = Duration::from_nanos(300 * US);

/// The one group.
pub(crate) const GROUP: GroupId = GroupId(0);

/// What a call takes is decided when it is over.
pub(crate) struct AtOnce;

impl Timed for AtOnce {
    fn over<T>(&mut self, call: impl FnOnce() -> T) -> (T, Duration) {
        (call(), Duration::ZERO)
    }
}

pub(crate) struct Log {
    log: kattu_member::log::Log,
    task: Option<SegmentTask>,
    /// A segment that the disk has been told to make: the log hears of it when it is there.
    being_made: Option<Result<Prepared, WalError>>,
    /// When the segment that is being made will be ready; to be planned by the caller.
    pub(crate) ready_at: Option<u64>,
}

impl Deref for Log {
    type Target = kattu_member::log::Log;

    fn deref(&self) -> &kattu_member::log::Log {
        &self.log
    }
}

impl DerefMut for Log {
    fn deref_mut(&mut self) -> &mut kattu_member::log::Log {
        &mut self.log
    }
}

impl Log {
    pub(crate) fn new(wal: Wal) -> Log {
        Log { log: kattu_member::log::Log::new(wal, GROUP), task: None, being_made: None, ready_at: None }
    }

    /// The snapshots beside the log.
    pub(crate) fn snapshots(&self) -> SnapshotStore {
        self.wal().snapshots()
    }

    pub(crate) fn sync(&mut self, now: u64) -> Result<Completion, WalError> {
        let completion = self.log.sync(Instant(now), &mut AtOnce);
        self.carry_out(now);
        completion
    }

    pub(crate) fn fetch(&mut self, fetch: Fetch) -> Result<Completion, WalError> {
        self.log.fetch(fetch, &mut AtOnce)
    }

    pub(crate) fn close(self) -> Result<(), WalError> {
        self.log.close()
    }

    pub(crate) fn prepare_next(&mut self, now: u64) {
        self.log.prepare_next();
        self.carry_out(now);
    }

    pub(crate) fn look(&mut self, now: u64) -> Result<Completion, WalError> {
        let completion = self.log.look();
        self.carry_out(now);
        completion
    }

    /// Notes are for operators, and segments for a passing thread.
    fn carry_out(&mut self, now: u64) {
        drop(self.log.take_notes());
        if let Some(SegmentJob { task, pause }) = self.log.take_job() {
            self.task = Some(task);
            let takes = if pause.is_zero() { SEGMENT_TIME } else { pause };
            self.ready_at = Some((Instant(now) + takes).0);
        }
    }

    /// The passing thread makes its segment, if that is still to be done.
    pub(crate) fn make_segment(&mut self) -> bool {
        let Some(task) = self.task.take() else { return false };
        self.being_made = Some(task.run());
        true
    }

    /// Whether a segment is being made: until it is there the log cannot go on in it.
    pub(crate) fn is_making(&self) -> bool {
        self.being_made.is_some()
    }

    /// The segment that was being made is there.
    pub(crate) fn tell_of_made(&mut self) {
        if let Some(made) = self.being_made.take() {
            self.log.made(made);
        }
    }

    /// How often the log went over to the next segment.
    pub(crate) fn rotations(&self) -> u64 {
        self.wal().stats().rotations
    }
}
