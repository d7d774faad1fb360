//! Turn time: how long the turns of a member's thread take, and when it looks for work by itself.
//!
//! Judge: what is due is done. A turn after which something is still due is followed by the next one at once: a member
//!        that cannot do what is due would turn in vain until it can, with its whole processor. What becomes due during
//!        a turn, which a slow disk can make longer than any interval, is for the next one.
//! Knows nothing of: what a turn does.

use crate::clock::MS;
use crate::end::End;
use crate::faults::Fault;
use crate::report::Violation;
use crate::world::{Event as Planned, Shared};
use kattu_verify::service::Work;

/// A step of a member with little CPU that takes longer is one that its peers can notice.
const LONG_STEP: u64 = MS;

/// Turns in a row after which something was still due, at most.
const TURNS_DUE_MAX: u32 = 100;

/// A member's thread, for one run of its process.
pub(crate) struct TurnTime {
    member: usize,
    run: u32,
    /// The thread is busy until then.
    free_at: u64,
    wake_at: u64,
    timer_at: u64,
    /// When its present turn began.
    began: u64,
    /// Turns in a row after which something was still due that had been due when they began.
    turns_due: u32,
}

impl TurnTime {
    pub(crate) fn new(member: usize, run: u32) -> TurnTime {
        TurnTime { member, run, free_at: 0, wake_at: 0, timer_at: 0, began: 0, turns_due: 0 }
    }

    fn plan(&self, sh: &mut Shared, at: u64) {
        sh.queue.plan(at, Planned::Wake { member: self.member, run: self.run });
    }

    /// Whether the thread is still at its last turn; it is planned to look when that is over. Otherwise a turn begins.
    pub(crate) fn is_busy(&mut self, sh: &mut Shared) -> bool {
        let is_busy = sh.now < self.free_at;
        if is_busy && self.wake_at != self.free_at {
            self.wake_at = self.free_at;
            self.plan(sh, self.free_at);
        }
        if !is_busy {
            self.began = sh.now;
        }
        is_busy
    }

    /// Plans a look at this moment, if that is one. A deadline that moved away is left alone: one early look costs less than
    /// planning always.
    pub(crate) fn look_at(&mut self, sh: &mut Shared, at: u64) {
        if at != u64::MAX && (at < self.timer_at || self.timer_at <= sh.now) {
            self.timer_at = at;
            self.plan(sh, at);
        }
    }

    /// When the present turn began, or the last one.
    pub(crate) fn began(&self) -> u64 {
        self.began
    }

    /// A turn is over that handled so many events and did this work: it takes its time from now on.
    pub(crate) fn spend(&mut self, sh: &mut Shared, events: u64, work: Work) -> Result<(), End> {
        let slowness = sh.service.slowness(self.member);
        let takes = sh.pace.turn + sh.pace.event * events + sh.service.stepped(self.member, work)?;
        if slowness > 1 && takes * slowness > LONG_STEP {
            sh.tally.add(Fault::F55);
        }
        self.free_at = sh.now + takes * slowness;
        Ok(())
    }

    /// A turn is over, and after it something is due that was due when it began, or nothing is.
    pub(crate) fn judge(&mut self, is_due: bool) -> Result<(), End> {
        self.turns_due = if is_due { self.turns_due + 1 } else { 0 };
        if self.turns_due <= TURNS_DUE_MAX {
            return Ok(());
        }
        let story = format!("n{}: something is due after each of {} turns", self.member + 1, self.turns_due);
        Err(Violation::new("what_is_due_is_done", story).into())
    }

    /// The member has its CPU back, so many times what it had: what is left of its step takes so much less.
    pub(crate) fn speed_up(&mut self, now: u64, slowness: u64) {
        self.free_at = self.free_at.min(now + self.free_at.saturating_sub(now) / slowness.max(1));
    }
}
