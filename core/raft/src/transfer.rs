//! Transfer: a leader transfers leadership to a voter of its choice.
//!
//! In:    a request for a transfer; answers of the target; `TimeoutNow` at the target.
//! Out:   `TimeoutNow`; a campaign that voters must not ignore; the choice of a good successor.
//! Rules: [Ongaro14 §3.10; replication-protocols M9, L-6]
//!   1. From the request on no proposal is accepted, so the target can catch up with a log that stands still. The
//!      driver holds writes back meanwhile: they are refused for a moment, never lost.
//!   2. The lease ends with the request and does not come back in this term, because `TimeoutNow` may arrive at any
//!      time later, and the campaign it starts ignores vote holds.
//!   3. The target campaigns when its log is known equal to the leader's, without a pre-vote. Its requests carry the
//!      leader's consent: voters that hear the leader answer them all the same.
//!   4. After an election timeout without success the leader goes on as before.
//!   5. `TimeoutNow` binds only a follower of its sender in its term: a late or repeated one starts nothing in another
//!      term. An ineligible target ignores it: one without a vote, below its vote floor or bar, or without a snapshot
//!      of what came before its log. (`vote_floor.rs`, `reminder.rs`)
//!
//! A failed transfer costs an election at worst. Safety never depends on it: its campaign is a campaign like any other.
//! Knows nothing of: operators, processes that stop.

use crate::contract::Effects;
use crate::flow::Mode;
use crate::leading::Leading;
use crate::message::{Message, TimeoutNow};
use crate::progress::Progress;
use crate::raft::Raft;
use crate::role::{Follower, Leader, Role};
use crate::trace::Trace;
use crate::types::{Instant, NodeId};

/// Election timeouts between a failed offer to a voter of higher priority and the next offer.
const OFFERS_APART: u32 = 10;

/// Why a leader does not begin a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransferError {
    /// This peer does not lead.
    NotLeader,
    /// The target is no member of the group.
    Unknown,
    /// The target has no vote.
    Learner,
    /// The target leads already.
    Itself,
    /// A transfer, to this or another target, is under way.
    UnderWay,
    /// The target needs a snapshot first.
    NeedsSnapshot,
}

impl core::fmt::Display for TransferError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            TransferError::NotLeader => "only a leader can hand over its leadership",
            TransferError::Unknown => "the target is no member of this group",
            TransferError::Learner => "a learner cannot lead: promote it first",
            TransferError::Itself => "the target is the leader already",
            TransferError::UnderWay => "a transfer is under way already",
            TransferError::NeedsSnapshot => "the target is so far behind that it needs a snapshot first",
        })
    }
}

impl core::error::Error for TransferError {}

/// A transfer under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Transfer {
    /// The voter that is to lead.
    pub(crate) target: NodeId,
    /// When the leader gives up and goes on.
    pub(crate) abort_at: Instant,
    /// `TimeoutNow` was sent to the target.
    pub(crate) told: bool,
}

impl Leading<'_> {
    /// Sends `TimeoutNow` as soon as the target's log is known equal to the leader's.
    pub(crate) fn advance_transfer(&mut self, effects: &mut Effects) {
        let Leading { leader, view, .. } = self;
        let Some(transfer) = &mut leader.transfer else { return };
        let Some(progress) = leader.peers.get(&transfer.target) else { return };
        if transfer.told || progress.matched < view.log.last().index {
            return;
        }
        transfer.told = true;
        effects.send.push(view.envelope(transfer.target, Message::TimeoutNow(TimeoutNow {})));
    }

    /// Gives up a transfer that takes too long; repeats messages that may have been lost.
    pub(crate) fn tick_transfer(&mut self, now: Instant, effects: &mut Effects) {
        let Leader { transfer, heartbeat_at, peers, .. } = &mut *self.leader;
        let Some(under_way) = transfer else { return };
        let target = under_way.target;
        if under_way.abort_at <= now || !peers.contains_key(&target) {
            *transfer = None;
            effects.trace.push(Trace::TransferFailed(target));
        } else if *heartbeat_at <= now {
            under_way.told = false;
            self.advance_transfer(effects);
        }
    }
}

impl Raft {
    /// Begins to transfer leadership to `target`: proposals are refused with
    /// [`ProposeError::Transferring`](crate::ProposeError::Transferring) until the target leads or an election timeout
    /// has passed.
    ///
    /// # Errors
    /// Nothing has changed.
    pub fn transfer(
        &mut self,
        now: Instant,
        target: NodeId,
        effects: &mut Effects,
    ) -> Result<(), TransferError> {
        let abort_at = now + self.config.election_timeout;
        let is_learner = self.membership().learners.contains(&target);
        let is_voter = self.voters().contains(&target);
        let first_index = self.first_index();
        let Some(leader) = self.role.leader_mut() else { return Err(TransferError::NotLeader) };
        if target == self.config.id {
            return Err(TransferError::Itself);
        }
        if is_learner {
            return Err(TransferError::Learner);
        }
        let Some(progress) = leader.peers.get(&target).filter(|_| is_voter) else {
            return Err(TransferError::Unknown);
        };
        if leader.transfer.is_some() {
            return Err(TransferError::UnderWay);
        }
        let needs_snapshot = match progress.flow.mode {
            Mode::Probe { .. } | Mode::Replicate => progress.flow.next < first_index,
            Mode::Snapshot(_) => true,
        };
        if needs_snapshot {
            return Err(TransferError::NeedsSnapshot);
        }
        leader.transfer = Some(Transfer { target, abort_at, told: false });
        leader.lease.end();
        effects.trace.push(Trace::TransferBegan(target));
        if let Some(mut leading) = self.leading() {
            leading.advance_transfer(effects);
        }
        Ok(())
    }

    /// The target of the transfer under way, if there is one.
    #[must_use]
    pub fn transferring(&self) -> Option<NodeId> {
        self.role.leader()?.transfer.as_ref().map(|transfer| transfer.target)
    }

    /// The best successor. Of the voters heard within an election timeout, those that hold everything committed come
    /// first; of those, the one of highest priority; then the one whose log is nearest to the leader's. `None` unless
    /// this peer leads.
    #[must_use]
    pub fn best_successor(&self, now: Instant) -> Option<NodeId> {
        self.successors(now)
            .max_by_key(|&(voter, progress)| {
                let holds_committed = self.marks.committed <= progress.matched;
                (holds_committed, self.priority_of(voter), progress.matched, core::cmp::Reverse(voter))
            })
            .map(|(voter, _)| voter)
    }

    /// The voters that were heard within an election timeout and follow this leader's log. Empty unless this peer
    /// leads.
    pub(crate) fn successors(&self, now: Instant) -> impl Iterator<Item = (NodeId, &Progress)> {
        let peers = self.role.leader().into_iter().flat_map(|leader| {
            self.voters().iter().filter_map(|&voter| Some((voter, leader.peers.get(&voter)?)))
        });
        let within = self.config.election_timeout;
        peers.filter(move |(_, progress)| {
            progress.liveness.is_heard(now, within) && matches!(progress.flow.mode, Mode::Replicate)
        })
    }

    /// The leader asks this peer to campaign.
    pub(crate) fn on_timeout_now(&mut self, now: Instant, from: NodeId, effects: &mut Effects) {
        let Role::Follower(Follower { following: Some(following), .. }) = &self.role else { return };
        let obeyed = following.leader == from;
        let whole = !self.is_damaged();
        // Without the snapshot before its log it could not apply what it would commit, and no member sends snapshots to
        // a leader.
        if obeyed && self.is_voter() && whole && !self.lacks_what_is_committed() && !self.needs_snapshot() {
            self.campaign(now, None, true, effects);
        }
    }

    /// Transfers leadership to a voter of higher priority that is well and has caught up. Off unless configured.
    pub(crate) fn tick_offer(&mut self, now: Instant, effects: &mut Effects) {
        let heartbeat_interval = self.config.heartbeat_interval;
        let Some(leader) = self.role.leader() else { return };
        let settled = leader.term_start <= self.marks.committed && leader.transfer.is_none();
        if !self.config.leadership.transfer_to_priority || !settled || now < leader.offer_at {
            return;
        }
        let Some(better) = self.best_successor(now) else { return };
        let Some(progress) = leader.peers.get(&better) else { return };
        let caught_up = self.marks.committed <= progress.matched;
        let well = now.since(progress.liveness.last_contact()) <= heartbeat_interval * 2;
        if caught_up && well && self.priority_of(self.config.id) < self.priority_of(better) {
            let _ = self.transfer(now, better, effects); // cannot fail: it is a voter, and none is under way
            let next = now + self.config.election_timeout * OFFERS_APART;
            if let Some(leader) = self.role.leader_mut() {
                leader.offer_at = next;
            }
        }
    }

    /// A member's priority, as far as it is known: 100 by default. [`Config`](crate::Config) sets it for this peer,
    /// [`Raft::set_priority`] for others.
    pub(crate) fn priority_of(&self, member: NodeId) -> u8 {
        if member == self.config.id {
            return self.config.leadership.priority;
        }
        let told = self.priorities.iter().find(|(known, _)| *known == member);
        told.map_or(crate::config::PRIORITY, |(_, priority)| *priority)
    }

    /// Sets another member's priority. It decides which voter is offered leadership, and which one starts a pre-vote
    /// first when the leader seems dead; safety does not depend on it.
    pub fn set_priority(&mut self, member: NodeId, priority: u8) {
        self.priorities.retain(|(known, _)| *known != member);
        if priority != crate::config::PRIORITY && member != self.config.id {
            self.priorities.push((member, priority));
            self.priorities.sort_unstable();
        }
    }
}
