//! Disk time: how long the calls of a member's log to its disk take, and the work of other threads at the same disk.
//!
//! Knows nothing of: logs, what is written.

use crate::beside::{Beside, BesideWrites, Thread};
use crate::end::End;
use crate::process::Process;
use crate::world::{Event as Planned, Shared};
use kattu_disk::SimDisk;
use kattu_member::log::{Completion, Timed};
use kattu_raft::Duration;

/// What a call takes is decided when it is over.
pub(crate) struct AtOnce;

impl Timed for AtOnce {
    fn over<T>(&mut self, call: impl FnOnce() -> T) -> (T, Duration) {
        (call(), Duration::ZERO)
    }
}

/// A member's disk, for one run of its process.
pub(crate) struct DiskTime {
    member: usize,
    run: u32,
    disk: SimDisk,
    /// What goes on beside the log.
    pub(crate) beside: BesideWrites,
    /// Times that the log had gone over to another segment at its last call.
    rotations: u64,
    /// A call is under way: when it began, and what it will come to.
    at_disk: Option<(u64, Completion)>,
}

impl DiskTime {
    pub(crate) fn new((member, run): (usize, u32), disk: SimDisk) -> DiskTime {
        DiskTime { member, run, disk, beside: BesideWrites::default(), rotations: 0, at_disk: None }
    }

    /// The log is about to call the disk.
    pub(crate) fn begin(&mut self) {
        self.disk.begin();
    }

    /// Whether a call is under way.
    pub(crate) fn is_at_it(&self) -> bool {
        self.at_disk.is_some()
    }

    /// How long the call under way has taken, if there is one.
    pub(crate) fn at_it_for(&self, now: u64) -> Option<u64> {
        self.at_disk.as_ref().map(|(began, _)| now - began)
    }

    /// The call is over: when it began, and what it has come to.
    pub(crate) fn done(&mut self) -> Option<(u64, Completion)> {
        self.at_disk.take()
    }

    /// What the disk has done takes its time; before that it does what another thread has asked for, and the next segment
    /// must be there.
    pub(crate) fn call(&mut self, sh: &mut Shared, completion: Completion, rotations: u64, is_making: bool) {
        let has_rotated = std::mem::replace(&mut self.rotations, rotations) < rotations;
        let waits = self.waits(sh, has_rotated && is_making);
        let spent = self.disk.spent();
        let takes = spent + waits;
        self.beside.sync(sh.now, waits, spent);
        if has_rotated {
            sh.counts.segments += 1;
            self.beside.goes_on(Beside::Segment, sh.now, sh.now + takes);
        }
        self.at_disk = Some((sh.now, completion));
        let (member, run) = (self.member, self.run);
        let limit = sh.settings.disk_stall;
        if takes > limit {
            sh.queue.plan(sh.now + limit, Planned::Watchdog { member, run });
        } else {
            sh.queue.plan(sh.now + takes, Planned::Synced { member, run });
        }
    }

    /// How long a sync of the log waits for other threads: one that has gone over to the next segment for all of that.
    fn waits(&self, sh: &Shared, for_segment: bool) -> u64 {
        let made_at = self.beside.done_at(Thread::Segments);
        let made = if for_segment { made_at.saturating_sub(sh.now) } else { 0 };
        self.beside.wait(sh.now).max(made)
    }

    /// Another thread than the log's goes to the disk: what that had done before.
    pub(crate) fn begin_beside(&mut self) -> u64 {
        if self.at_disk.is_none() {
            self.disk.begin();
        }
        let _ = self.disk.take_longest();
        self.disk.spent()
    }

    /// It has told the disk what to do.
    pub(crate) fn end_beside(&mut self, sh: &Shared, thread: Thread, begun: u64) {
        if sh.settings.one_disk {
            self.beside.at_disk(thread, sh.now, self.disk.spent() - begun, self.disk.take_longest());
        }
    }

    /// Whether the disk has lost its power.
    pub(crate) fn is_out(&self) -> bool {
        self.disk.is_out()
    }
}

impl Process {
    /// See [`crate::log::Log::synced`].
    pub(crate) fn synced(&mut self, sh: &mut Shared) -> Result<(), End> {
        match self.hands.log.synced(sh, &mut self.hands.fuse)? {
            Some(completion) => self.completed(sh, completion),
            None => Ok(()),
        }
    }

    /// See [`crate::log::Log::make_segment`].
    pub(crate) fn make_segment(&mut self, sh: &mut Shared) {
        self.hands.log.make_segment(sh);
    }

    /// See [`crate::log::Log::retry`].
    pub(crate) fn retry_log(&mut self, sh: &mut Shared) -> Result<(), End> {
        self.hands.log.retry(sh, &mut self.hands.fuse)
    }
}
