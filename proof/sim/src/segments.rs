//! Segments: the passing thread that makes a log's next segment, in virtual time. [shell/member `log`]
//!
//! The disk is told to make it after a while, and the log hears of it when the disk has come to it.
//! Knows nothing of: logs, when a segment is wanted.

use crate::beside::{Beside, Thread};
use crate::clock::US;
use crate::disk_time::DiskTime;
use crate::world::{Event as Planned, Shared};
use kattu_member::log::SegmentJob;
use kattu_raft::{Duration, Instant};
use kattu_wal::{Prepared, SegmentTask, WalError};

/// How long the thread takes without a disk.
const SEGMENT_TIME: Duration = Duration::from_nanos(300 * US);

pub(crate) struct SegmentThread {
    member: usize,
    run: u32,
    task: Option<SegmentTask>,
    /// A segment that the disk has been told to make.
    being_made: Option<Result<Prepared, WalError>>,
}

impl SegmentThread {
    pub(crate) fn new((member, run): (usize, u32)) -> SegmentThread {
        SegmentThread { member, run, task: None, being_made: None }
    }

    /// Whether the disk has been told to make one.
    pub(crate) fn is_making(&self) -> bool {
        self.being_made.is_some()
    }

    pub(crate) fn start(&mut self, sh: &mut Shared, SegmentJob { task, pause }: SegmentJob) {
        self.task = Some(task);
        let takes = if pause.is_zero() { SEGMENT_TIME } else { pause };
        self.plan(sh, (Instant(sh.now) + takes).0);
    }

    fn plan(&self, sh: &mut Shared, at: u64) {
        sh.queue.plan(at, Planned::SegmentMade { member: self.member, run: self.run });
    }

    /// The thread makes its segment, or has made it.
    pub(crate) fn work(
        &mut self,
        sh: &mut Shared,
        disk: &mut DiskTime,
    ) -> Option<Result<Prepared, WalError>> {
        if let Some(task) = self.task.take() {
            let begun = disk.begin_beside();
            self.being_made = Some(task.run());
            disk.end_beside(sh, Thread::Segments, begun);
        }
        self.being_made.as_ref()?;
        let at = disk.beside.done_at(Thread::Segments).max(sh.now);
        disk.beside.goes_on(Beside::Segment, sh.now, at);
        if sh.now < at {
            self.plan(sh, at);
            return None;
        }
        self.being_made.take()
    }
}
