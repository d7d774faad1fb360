//! Slow disks: a leader whose disk is far slower than another voter's transfers leadership to that voter.
//!
//! A disk that fails slowly still answers, so its member does not look dead; but every client of the leader waits for
//! the leader's disk.
//!
//! In:    how long this member's disk takes, as its driver reports; the reports of other members on theirs.
//! Out:   that time, in every answer to the leader; a leadership transfer.
//! Rules: [fault-model F17]
//!   1. Every member's driver times its own disk, from the call that writes and syncs a group of records until that
//!      returns, and the member reports it with every answer to its leader. A leader could not time others: one that
//!      syncs on the thread that reads its messages sees their answers only when its own disk is done. And neither the
//!      network nor a member's load is part of the time.
//!   2. Once a heartbeat interval the leader checks whether its disk has been timed anew. It is slow if it took more
//!      than four times as long as the fastest disk of an eligible voter, and at least a tenth of a heartbeat interval:
//!      a shorter time is not worth an election.
//!   3. Slow sixteen times in a row, and for an election timeout at least, is slow for good. One slow write, a burst of
//!      them, or a snapshot that is being written, is not.
//!   4. Eligible is a voter that was heard, holds everything committed, and has at least the leader's priority. A lower
//!      priority is an operator's decision that counts more than a slow disk; 0 is never asked, because it also marks a
//!      member whose store is not trustworthy.
//!   5. A leader stays for ten election timeouts first, and as long between two attempts, so that leadership, which
//!      itself may make disks slow, does not go round. It stays during a membership change or a transfer.
//!
//! If all disks are equally slow nothing happens. Safety does not depend on reported times: the outcome is a transfer.
//! [`crate::transfer`]
//! Knows nothing of: disks, the causes of slowness.

use crate::contract::Effects;
use crate::raft::Raft;
use crate::trace::Trace;
use crate::types::{Duration, Instant, NodeId};

/// A disk is slow that takes more than this many times as long as the fastest.
const TIMES: u32 = 4;

/// A disk is slow for good after this many slow times in a row.
const IN_A_ROW: u32 = 16;

/// Election timeouts before a leader leaves, and between two attempts.
const LEAVES_APART: u32 = 10;

/// How long this member's disk takes. [Rule 1]
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct DiskTime {
    /// Duration of the last group; zero before there was one.
    pub(crate) took: Duration,
    /// The leader has not evaluated it yet.
    is_news: bool,
}

/// A leader's evaluation of the times.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Verdict {
    /// How often in a row its own disk was slow.
    slow: u32,
    /// The first of these times.
    since: Instant,
    /// The next evaluation is not before this.
    look_at: Instant,
    /// Leadership is not transferred before this.
    leave_at: Instant,
}

impl Verdict {
    /// The state of a new leader.
    pub(crate) fn new(now: Instant, election_timeout: Duration) -> Verdict {
        Verdict { slow: 0, since: now, look_at: now, leave_at: now + election_timeout * LEAVES_APART }
    }
}

impl Raft {
    /// This disk took so long to write and sync a group of records. The driver may report each group that contained
    /// more than commit marks, or none.
    pub fn disk_took(&mut self, took: Duration) {
        if self.config.leadership.leave_slow_disk {
            let took = took.max(Duration::from_nanos(1)); // zero means unknown
            self.disk_time = DiskTime { took, is_news: true };
        }
    }

    /// Evaluates the newest time of the leader's disk, and transfers leadership if it is slow for good. Off unless
    /// configured.
    pub(crate) fn tick_slow_disk(&mut self, now: Instant, effects: &mut Effects) {
        let heartbeat_interval = self.config.heartbeat_interval;
        let Some(leader) = self.role.leader_mut() else { return };
        if !self.config.leadership.leave_slow_disk || now < leader.own_disk.look_at {
            return;
        }
        if !core::mem::take(&mut self.disk_time.is_news) {
            return;
        }
        leader.own_disk.look_at = now + heartbeat_interval;
        let (own, least) = (self.disk_time.took, heartbeat_interval / 10);
        let fastest = self.fastest_successor(now).filter(|(_, its)| least <= own && *its * TIMES < own);
        let patience = self.config.election_timeout;
        let stays = self.is_unsettled();
        let Some(leader) = self.role.leader_mut() else { return };
        let verdict = &mut leader.own_disk;
        let Some((successor, its)) = fastest else {
            verdict.slow = 0;
            return;
        };
        if verdict.slow == 0 {
            verdict.since = now;
        }
        verdict.slow = verdict.slow.saturating_add(1);
        let is_for_good = IN_A_ROW <= verdict.slow && patience <= now.since(verdict.since);
        if stays || !is_for_good || now < verdict.leave_at {
            return;
        }
        *verdict = Verdict::new(now, patience);
        effects.trace.push(Trace::SlowDisk { own, fastest: successor, its });
        let _ = self.transfer(now, successor, effects); // eligible, and no transfer is under way
    }

    /// Whether an operation is under way that a change of leaders would disturb.
    fn is_unsettled(&self) -> bool {
        let Some(leader) = self.role.leader() else { return true };
        let committed = self.marks.committed;
        let changes = self.membership().is_joint() || committed < self.membership_at();
        committed < leader.term_start || leader.transfer.is_some() || changes
    }

    /// The eligible voter with the fastest disk, and its time. [Rule 4]
    fn fastest_successor(&self, now: Instant) -> Option<(NodeId, Duration)> {
        let least = self.priority_of(self.config.id).max(1);
        let able = self.successors(now).filter(|(voter, progress)| {
            self.marks.committed <= progress.matched && least <= self.priority_of(*voter)
        });
        let timed = able.filter(|(_, progress)| !progress.liveness.disk.is_zero());
        let times = timed.map(|(voter, progress)| (progress.liveness.disk, voter));
        times.min().map(|(its, voter)| (voter, its))
    }
}
