//! Vote floor: the bar for votes and campaigns of a member whose disk has lost the end of its log.
//!
//! ```text
//!   log on disk   ├───────────────┤ last   ✗ damage    ┤ floor
//!                                 └─ sent again by the leader ──┘
//! ```
//!
//! In:    the former end of the log, or a position surely not before it, as found with the damage at start; or, if the
//!        disk shows no trace of the loss (it lied before a power cut, the directory is an older copy), a leader's
//!        `Lost`.
//! Out:   a higher bar for votes; no campaign.
//! Rules: [fault-model ST7]
//!   1. Acknowledged entries were counted for commits. So a member votes by the log it has acknowledged, not by what is
//!      left of it: only for a candidate whose log is at least as complete as the floor. So no quorum of votes can
//!      leave out an entry that a quorum once held, whatever one of its members has lost since.
//!   2. Below its floor a member never campaigns and accepts no leadership transfer: it could not lead without the
//!      entries that it lacks.
//!   3. It takes its leader's entries like any other follower, from the damage on, and acknowledges what it holds
//!      again. Its acknowledgements say nothing of entries that it lacks: the lack is no evidence that there were none.
//!   4. The floor ends when the log is at least as complete: log matching then guarantees that the member holds
//!      everything that was committed up to there. Until then every restart begins with the same floor.
//!   5. A leader that learns that a peer has lost entries acknowledged in this term sends `Lost` with every heartbeat
//!      until the peer has them again. That raises the peer's floor at once, and durably before the peer sends anything
//!      that could count as a vote. [fault-model F18, F19, ST14]
//!
//! Entries acknowledged to earlier leaders only are not covered, and need not be: the leader of this term counts for
//! commits what was acknowledged to itself.
//! Knows nothing of: the storage that finds damage and keeps the floor.

use crate::contact::Origin;
use crate::contract::{Effects, LogBody};
use crate::message::Lost;
use crate::raft::Raft;
use crate::trace::Trace;
use crate::types::{EntryId, Instant};

impl Raft {
    /// Whether the log ends below the vote floor.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.vote_floor.is_some_and(|vote_floor| self.log.last() < vote_floor)
    }

    /// The vote floor, while the log is below it.
    #[must_use]
    pub fn vote_floor(&self) -> Option<EntryId> {
        self.vote_floor.filter(|vote_floor| self.log.last() < *vote_floor)
    }

    /// The end of the most complete log that this member has ever acknowledged: the bar for its votes.
    pub(crate) fn acknowledged_last(&self) -> EntryId {
        let here = self.log.last().max(self.bar);
        self.vote_floor.map_or(here, |vote_floor| vote_floor.max(here))
    }

    /// This term's leader reports that this log once went further than it does now.
    pub(crate) fn on_lost(&mut self, now: Instant, origin: Origin, lost: &Lost, effects: &mut Effects) {
        if !self.follow(now, origin, effects) {
            return;
        }
        let last = self.log.last();
        let is_known = self.vote_floor.max(Some(last)) >= Some(lost.upto);
        if is_known || self.term < lost.upto.term {
            return; // restored, or a repeat; a correct leader names no entry of a later term
        }
        self.vote_floor = Some(lost.upto);
        self.record(LogBody::VoteFloor(lost.upto), effects);
        effects.trace.push(Trace::ToldOfLoss { vote_floor: lost.upto, last });
    }
}
