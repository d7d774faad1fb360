//! Transfer: a leader transfers leadership to a voter of its choice.
//!
//! In:    a request for a transfer; answers of the target; `TimeoutNow` at the target; how long this member's disk takes.
//! Out:   `TimeoutNow`; a campaign that voters must not ignore; the voters that could take over, and the best of them.
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
//! Knows nothing of: the reasons for a transfer, operators, processes that stop.

use crate::contract::Effects;
use crate::flow::Mode;
use crate::leading::Leading;
use crate::message::{Message, TimeoutNow};
use crate::raft::Raft;
use crate::role::{Follower, Leader, Role};
use crate::trace::Trace;
use crate::types::{Duration, Instant, LogIndex, NodeId};
use core::cmp::Reverse;

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

/// A voter that could take over, as its leader knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Successor {
    /// The voter.
    pub voter: NodeId,
    /// Whether its disk holds everything that is committed.
    pub holds_committed: bool,
    /// Highest index known to be on its disk and equal to the leader's.
    pub matched: LogIndex,
    /// Its priority, as far as it is known. [`Raft::priority_of`]
    pub priority: u8,
    /// When it was last heard.
    pub last_contact: Instant,
    /// How long its disk takes, as it last reported; zero if it has not.
    pub disk: Duration,
}

impl Successor {
    /// The order in which voters should take over; the last is the best. Those that hold everything committed come
    /// after the others; of those, the one of higher priority; then the one whose log is nearer to the leader's.
    #[must_use]
    pub fn rank(&self) -> impl Ord + use<> {
        (self.holds_committed, self.priority, self.matched, Reverse(self.voter))
    }
}

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
        leader.stir(now, &self.config);
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

    /// Whether this leader has committed an entry of its term, and no transfer is under way. `false` unless this peer
    /// leads.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.role
            .leader()
            .is_some_and(|leader| leader.term_start <= self.marks.committed && leader.transfer.is_none())
    }

    /// The best successor: the last by [`Successor::rank`]. `None` unless this peer leads.
    #[must_use]
    pub fn best_successor(&self, now: Instant) -> Option<NodeId> {
        self.successors(now).max_by_key(Successor::rank).map(|successor| successor.voter)
    }

    /// The voters that were heard within an election timeout and follow this leader's log. Empty unless this peer
    /// leads.
    pub fn successors(&self, now: Instant) -> impl Iterator<Item = Successor> + Clone {
        let peers = self.role.leader().into_iter().flat_map(|leader| {
            self.voters().iter().filter_map(|&voter| Some((voter, leader.peers.get(&voter)?)))
        });
        let within = self.config.election_timeout;
        let able = peers.filter(move |(_, progress)| {
            progress.liveness.is_heard(now, within) && matches!(progress.flow.mode, Mode::Replicate)
        });
        able.map(|(voter, progress)| Successor {
            voter,
            holds_committed: self.marks.committed <= progress.matched,
            matched: progress.matched,
            priority: self.priority_of(voter),
            last_contact: progress.liveness.last_contact(),
            disk: progress.liveness.disk,
        })
    }

    /// This disk took so long to write and sync a group of records; every answer to the leader reports it from now on.
    /// The driver may report each group that contained more than commit marks, or none.
    pub fn disk_took(&mut self, took: Duration) {
        self.disk_time = took.max(Duration::from_nanos(1)); // zero means unknown
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

    /// A member's priority, as far as it is known: 100 by default. [`Config`](crate::Config) sets it for this peer,
    /// [`Raft::set_priority`] for others.
    #[must_use]
    pub fn priority_of(&self, member: NodeId) -> u8 {
        if member == self.config.id {
            return self.config.leadership.priority;
        }
        let told = self.priorities.iter().find(|(known, _)| *known == member);
        told.map_or(crate::config::PRIORITY, |(_, priority)| *priority)
    }

    /// Sets another member's priority. It decides which voter is the best successor, and which one starts a pre-vote
    /// first when the leader seems dead; safety does not depend on it.
    pub fn set_priority(&mut self, member: NodeId, priority: u8) {
        self.priorities.retain(|(known, _)| *known != member);
        if priority != crate::config::PRIORITY && member != self.config.id {
            self.priorities.push((member, priority));
            self.priorities.sort_unstable();
        }
    }
}
