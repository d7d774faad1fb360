//! Floor: what a member still owes the group when its disk has lost the end of its log.
//!
//! ```text
//!   log on disk   ├───────────────┤ last   ✗ damage    ┤ floor
//!                                 └─ comes again from the leader ─┘
//! ```
//!
//! In:    where the log once ended, or a position surely not before that, found by whoever found the damage; or, where the
//!        disk itself says nothing (it lied before a power cut, the directory is an older copy), told by the leader.
//! Out:   a higher bar for votes; no campaign.
//! Rules: [fault-model ST7]
//!   1. What was acknowledged was counted. A vote is therefore given by the log that was promised, not by what is left of
//!      it: to a candidate whose log is at least as complete as the floor says. So no quorum of votes can leave out an
//!      entry that a quorum once held, whatever one of them has lost since.
//!   2. Below its floor a member never campaigns and takes no office: it could not lead with what it lacks.
//!   3. It takes its leader's entries as any other follower, from the damage on, and acknowledges what it holds again. It
//!      says nothing of what it does not hold: that it lacks an entry is no evidence that there was none.
//!   4. The floor is behind it when its log is at least as complete: then log matching says that it holds everything that
//!      was committed up to there. Until then every restart begins with the same floor.
//!
//!   5. A leader that learns that a peer has lost what it acknowledged in this term says so with every heartbeat until that
//!      is there again. What is told is a floor from that moment on, and durable before anything is said that could count
//!      as a vote. [fault-model F18, F19, ST14]
//!
//! What was acknowledged to earlier leaders only, nobody can tell, and nobody needs to: the leader of this term counts
//! for commits what was acknowledged to itself.
//! Knows nothing of: how damage is found, where the floor is kept.

use crate::contract::{Effects, LogBody};
use crate::message::Lost;
use crate::raft::Raft;
use crate::trace::Trace;
use crate::types::{EntryId, Instant, NodeId};

impl Raft {
    /// Whether the log is shorter than what this member has promised to keep.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.vote_floor.is_some_and(|vote_floor| self.log.last() < vote_floor)
    }

    /// The floor, while the log is below it.
    #[must_use]
    pub fn vote_floor(&self) -> Option<EntryId> {
        self.vote_floor.filter(|vote_floor| self.log.last() < *vote_floor)
    }

    /// The end of the most complete log that this member has ever promised to keep: by this it votes.
    pub(crate) fn acknowledged_last(&self) -> EntryId {
        let here = self.log.last().max(self.bar);
        self.vote_floor.map_or(here, |vote_floor| vote_floor.max(here))
    }

    /// This term's leader says that this log went further than it does.
    pub(crate) fn on_lost(&mut self, now: Instant, from: NodeId, lost: &Lost, effects: &mut Effects) {
        if !self.follow(now, from, effects) {
            return;
        }
        let last = self.log.last();
        let is_known = self.vote_floor.max(Some(last)) >= Some(lost.upto);
        if is_known || self.term < lost.upto.term {
            return; // it is there again, or was told before; no peer of ours names an entry of a term to come
        }
        self.vote_floor = Some(lost.upto);
        self.record(LogBody::VoteFloor(lost.upto), effects);
        effects.trace.push(Trace::ToldOfLoss { vote_floor: lost.upto, last });
    }
}
