//! Slow disks: a leader whose disk is far slower than another voter's lets that one lead.
//!
//! A disk that fails slowly answers, so nobody misses its member; but whoever asks the leader waits for the leader's disk.
//!
//! In:    how long this member's disk takes, as its driver says; what other members say of theirs.
//! Out:   that time, in every answer to the leader; a hand-over.
//! Rules: [fault-model F17]
//!   1. Every member's driver times its own disk, from the call that writes and syncs a group of records until that comes
//!      back, and the member says so with every answer to its leader. A leader could not time others: one that syncs on
//!      the thread that reads its messages learns of their answers only when its own disk is done. And the network is no
//!      part of it, nor is how busy somebody is.
//!   2. Once a heartbeat interval the leader looks whether its disk has been timed anew. It is slow if it took more than
//!      four times as long as the fastest that could take over, and at least a tenth of a heartbeat interval: what takes
//!      less is not worth an election.
//!   3. Slow sixteen times in a row, and for an election timeout at least, is slow for good: one slow write, a burst of
//!      them, or a snapshot that is being written, is not.
//!   4. Who could take over: a voter that was heard, holds everything committed, and is as eager to lead as this one. A
//!      lower priority is somebody's word that counts more than a slow disk; 0 is never asked, because it also says that
//!      a member's store is not to be believed.
//!   5. A leader stays for ten election timeouts first, and as long between two attempts, so that an office that itself
//!      makes disks slow does not go round. It stays while members change or it hands over already.
//!
//! Where all disks are as slow nothing happens. Nothing that is safe rests on a time that somebody says: what comes of it
//! is a transfer. [`crate::transfer`]
//! Knows nothing of: disks, why one is slow.

use crate::contract::Effects;
use crate::raft::Raft;
use crate::role::Role;
use crate::trace::Trace;
use crate::types::{Duration, Instant, NodeId};

/// A disk is slow that takes more than so many times as long as the fastest.
const TIMES: u32 = 4;

/// So many times in a row.
const IN_A_ROW: u32 = 16;

/// Election timeouts before a leader leaves, and between two attempts.
const LEAVES_APART: u32 = 10;

/// How long this member's disk takes. [Rule 1]
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct DiskTime {
    /// What the last group took; zero before there was one.
    pub(crate) took: Duration,
    /// No leader has looked at that yet.
    is_news: bool,
}

/// What a leader makes of the times.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Verdict {
    /// How often in a row its own disk was slow.
    slow: u32,
    /// The first of these times.
    since: Instant,
    /// It does not look again before this.
    look_at: Instant,
    /// It does not leave before this.
    leave_at: Instant,
}

impl Verdict {
    /// A new leader's.
    pub(crate) fn new(now: Instant, election_timeout: Duration) -> Verdict {
        Verdict { slow: 0, since: now, look_at: now, leave_at: now + election_timeout * LEAVES_APART }
    }
}

impl Raft {
    /// This disk took so long to write and sync a group of records. Whoever drives a peer may say so of each group that was
    /// more than commit marks, or of none.
    pub fn disk_took(&mut self, took: Duration) {
        if self.config.leadership.leave_slow_disk {
            let took = took.max(Duration::from_nanos(1)); // zero says that nobody knows
            self.disk_time = DiskTime { took, is_news: true };
        }
    }

    /// Looks at the newest time of the own disk, and leaves if it has been slow for long. Off unless configured.
    pub(crate) fn tick_slow_disk(&mut self, now: Instant, effects: &mut Effects) {
        let heartbeat_interval = self.config.heartbeat_interval;
        let Role::Leader(leader) = &mut self.role else { return };
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
        let Role::Leader(leader) = &mut self.role else { return };
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
        let _ = self.transfer(now, successor, effects); // it can take over, and nobody else is about to
    }

    /// Whether something is under way that a change of leaders would disturb.
    fn is_unsettled(&self) -> bool {
        let Role::Leader(leader) = &self.role else { return true };
        let committed = self.marks.committed;
        let changes = self.membership().is_joint() || committed < self.membership_at();
        committed < leader.term_start || leader.transfer.is_some() || changes
    }

    /// Who could take over and has the fastest disk of those, and what that takes. [Rule 4]
    fn fastest_successor(&self, now: Instant) -> Option<(NodeId, Duration)> {
        let least = self.priority_of(self.config.id).max(1);
        let able = self.successors(now).filter(|(voter, progress)| {
            self.marks.committed <= progress.matched && least <= self.priority_of(*voter)
        });
        let timed = able.filter(|(_, progress)| !progress.disk.is_zero());
        let times = timed.map(|(voter, progress)| (progress.disk, voter));
        times.min().map(|(its, voter)| (voter, its))
    }
}
