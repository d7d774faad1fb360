//! Suspicion: a leader whose process died is replaced in milliseconds, not after an election timeout.
//!
//! When a process dies, however violently, its kernel closes its connections at once. For a voter the end of its
//! connection to its leader is a hint, not a proof: a connection may end while the process lives. So the hint decides
//! nothing. It only lets the voter start a pre-vote earlier, and a quorum must agree, for reasons of its own.
//!
//! In:    links that ended, and how.
//! Out:   pre-votes, started soon; grants of pre-votes.
//! Rules: [replication-protocols E3a]
//!   1. A voter whose link to its leader was closed by the other end no longer counts the leader as heard: it grants
//!      pre-votes.
//!   2. It waits for a random part of a small step and as many steps as voters come before it, by priority, then id,
//!      and starts a pre-vote. Other voters grant it if their own links were closed too, or if they have not heard the
//!      leader for an election timeout; otherwise they ignore it. One lost link alone deposes no leader.
//!   3. Any append of the leader, late or new, ends the suspicion.
//!   4. Rounds that fail are repeated after about twice the time of the one before, at most [`ROUNDS`] of them, so that
//!      one dead link does not cause campaigns for ever. After that the ordinary election timeout holds. A yes to an
//!      earlier round does not count, but shows that answers take longer than rounds so far: the round under way then
//!      lasts twice as long as a round trip can take.
//!   5. A voter that grants a pre-vote gives its sender time, and starts none itself meanwhile. If it has started one
//!      already, one of the two gives way and counts no more answers: the one with the shorter log; of logs that end
//!      alike, the one that comes later by priority, then id. Voters that are farther from each other than a step would
//!      otherwise all win their pre-votes, and split the votes.
//!   6. Off while leader leases are on: a vote hold may not be revoked for a hint. [L-3]
//!
//! The time between `kill -9` of a leader and the next one's first commit, with the default step of 2 ms, three voters,
//! and disks and networks that answer within a millisecond or two:
//!
//! ```text
//!   closed connections are seen                  < 1 ms   the kernel, one wake-up
//!   the first voter starts a pre-vote          0 – 2 ms   the second one 2 – 4 ms
//!   pre-votes there and back                   0.2 – 1 ms
//!   the candidate's term and vote on disk      0.1 – 5 ms one sync
//!   requests there, the voter's sync, back     0.3 – 6 ms one sync
//!   the no-op to disks and back                0.3 – 6 ms one sync, in parallel
//! ```
//!
//! About 2–20 ms together. One more round costs the 2–4 ms of its wait (another voter saw its link close only after the
//! pre-vote came).
//! Knows nothing of: sockets, processes.

use crate::contract::Effects;
use crate::raft::Raft;
use crate::role::{Campaign, Follower, Following, Role, Timer};
use crate::trace::Trace;
use crate::types::{Duration, EntryId, Instant, NodeId};
use core::cmp::Reverse;

/// Fast rounds of one suspicion. Their waits double: 2, 4, … 64 steps, a quarter of a second with the default step.
pub(crate) const ROUNDS: u8 = 6;

/// How a link ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LinkEnd {
    /// The other end's kernel closed it: end of stream, or a reset. The death of a process looks like this.
    ByPeer,
    /// Any other way: closed here, replaced by a newer link, silent for too long, unreachable. Not a hint of anything.
    Otherwise,
}

/// A campaign that began with a suspicion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FastElection {
    /// Fast rounds before this one.
    pub(crate) round: u8,
    /// The leader that seems dead: its vote is not waited for.
    pub(crate) suspect: NodeId,
    /// When the first round began, or the first one after a campaign.
    pub(crate) began: Instant,
}

impl Raft {
    /// A link to `peer` or from it has ended. Messages in flight may be lost, so a leader asks the peer for the
    /// outcome. If `peer` leads, the way in which the link ended may be a hint.
    pub fn link_closed(&mut self, now: Instant, peer: NodeId, end: LinkEnd, effects: &mut Effects) {
        self.ask_soon(now, peer);
        match end {
            LinkEnd::ByPeer => self.suspect(now, peer, effects),
            LinkEnd::Otherwise => {}
        }
    }

    /// The unit of the waits; `None` if suspicion is off: by configuration, with leader leases, without pre-vote, for a
    /// peer without a vote or without other voters.
    fn suspicion_step(&self) -> Option<Duration> {
        let leadership = &self.config.leadership;
        let asks = self.config.pre_vote && self.is_voter() && !self.membership().is_alone(self.config.id);
        let step = leadership.suspicion.filter(|_| asks && leadership.leader_lease.is_none())?;
        Some(step.min(self.config.election_timeout / 10))
    }

    /// The leader's end of the link was closed: the leader counts as not heard, and this voter starts a pre-vote soon.
    fn suspect(&mut self, now: Instant, peer: NodeId, effects: &mut Effects) {
        if self.is_bound(now) {
            return; // an earlier run, which had leases, may have granted a vote hold
        }
        let Some(step) = self.suspicion_step() else { return };
        let wait = step * self.rank_without(peer);
        let Role::Follower(Follower { following: Some(following), .. }) = &mut self.role else { return };
        if following.leader == peer && following.ask_at.is_none() {
            following.ask_at = Some(now + wait + self.rng.duration(Duration::ZERO, step));
            effects.trace.push(Trace::Suspects(peer));
        }
    }

    /// Whether the leader that this peer follows seems dead: messages to it would probably be lost.
    #[must_use]
    pub fn suspects_leader(&self) -> bool {
        match &self.role {
            Role::Follower(Follower { following: Some(following), .. }) => following.ask_at.is_some(),
            Role::Follower(_) | Role::PreCandidate(_) | Role::Candidate(_) | Role::Leader(_) => false,
        }
    }

    /// How many voters start a pre-vote before this one when `leader` is gone: those of higher priority, then those of
    /// lower id.
    fn rank_without(&self, leader: NodeId) -> u32 {
        let before = self.voters().iter().filter(|&&voter| voter != leader && self.comes_before(voter));
        u32::try_from(before.count()).unwrap_or(u32::MAX)
    }

    /// Whether this voter starts a pre-vote before this peer does: it has a higher priority, or the same and a lower id.
    fn comes_before(&self, voter: NodeId) -> bool {
        let key = |member: NodeId| (Reverse(self.priority_of(member)), member);
        key(voter) < key(self.config.id)
    }

    /// The fast round that this peer, whose wait is over, starts next; `None`: an ordinary one.
    pub(crate) fn fast_election(&self, now: Instant) -> Option<FastElection> {
        let fast_election = match &self.role {
            Role::Follower(Follower { following: Some(following), .. }) => {
                let asks = following.ask_at.is_some_and(|at| at <= now);
                asks.then_some(FastElection { round: 0, suspect: following.leader, began: now })
            }
            Role::PreCandidate(Campaign { fast_election, .. }) => {
                fast_election.map(|fast| FastElection { round: fast.round + 1, ..fast })
            }
            Role::Candidate(Campaign { fast_election, .. }) => {
                fast_election.map(|fast| FastElection { round: fast.round + 1, began: now, ..fast })
            }
            Role::Follower(_) | Role::Leader(_) => None,
        };
        fast_election.filter(|fast_election| fast_election.round < ROUNDS && self.suspicion_step().is_some())
    }

    /// The fast election of the campaign under way.
    pub(crate) fn fast_campaign(&self) -> Option<FastElection> {
        match &self.role {
            Role::PreCandidate(campaign) | Role::Candidate(campaign) => campaign.fast_election,
            Role::Follower(_) | Role::Leader(_) => None,
        }
    }

    /// How long a round of pre-votes may take: ordinary ones an election timeout, fast ones two to four steps, and
    /// twice as long each time.
    pub(crate) fn pre_vote_timer(&mut self, now: Instant, fast_election: Option<FastElection>) -> Timer {
        match (fast_election, self.suspicion_step()) {
            (Some(fast_election), Some(step)) => {
                let shortest = step * 2 * (1 << fast_election.round);
                Timer { started: now, timeout: self.rng.duration(shortest, shortest * 2) }
            }
            _ => self.election_timer(now),
        }
    }

    /// A yes to an earlier round has come: the answers to the round under way need as long. [Rule 4]
    pub(crate) fn wait_for_answers(&mut self, now: Instant) {
        let longest = self.config.election_timeout;
        if let Role::PreCandidate(Campaign { fast_election: Some(fast), timer, votes, .. }) = &mut self.role
            && !votes.is_empty()
        {
            let twice = now.since(fast.began) * 2;
            timer.timeout = timer.timeout.max(twice.min(longest));
        }
    }

    /// This voter granted a pre-vote to a log that ends at `last`: it gives the sender time before it starts one itself,
    /// or gives way with the one that it has started. An answer to that one counts no more.
    pub(crate) fn let_asker_go_first(&mut self, now: Instant, asker: NodeId, last: EntryId) {
        let Some(step) = self.suspicion_step() else { return };
        let gives_way = self.log.last() < last || self.comes_before(asker);
        match &mut self.role {
            Role::Follower(Follower { following: Some(Following { ask_at: Some(at), .. }), .. }) => {
                *at = (*at).max(now + self.rng.duration(step * 8, step * 16));
            }
            Role::PreCandidate(Campaign { fast_election: Some(_), timer, votes, .. }) if gives_way => {
                if !votes.is_empty() {
                    votes.clear(); // its own, too, so that a request that comes twice changes nothing
                    self.pre_vote_round = self.pre_vote_round.next();
                }
                let timeout = self.rng.duration(step * 8, step * 16);
                if timer.deadline() < now + timeout {
                    *timer = Timer { started: now, timeout };
                }
            }
            Role::Follower(_) | Role::PreCandidate(_) | Role::Candidate(_) | Role::Leader(_) => {}
        }
    }

    /// A voter refused. A candidate of a fast election that cannot win any more does not wait for the end of its
    /// timeout.
    pub(crate) fn note_refusal(&mut self, now: Instant, from: NodeId) {
        let Some(step) = self.suspicion_step() else { return };
        let Role::Candidate(Campaign { fast_election: Some(fast_election), refused, .. }) = &mut self.role
        else {
            return;
        };
        refused.insert(from);
        let shortest = step * 2 * (1 << fast_election.round);
        let suspect = fast_election.suspect;
        let open = self.without_refusals(suspect);
        if !open {
            let timeout = self.rng.duration(shortest, shortest * 2);
            if let Role::Candidate(campaign) = &mut self.role
                && now + timeout < campaign.timer.deadline()
            {
                campaign.timer = Timer { started: now, timeout };
            }
        }
    }

    /// Whether the voters that have not refused, without `suspect`, still make a quorum.
    fn without_refusals(&self, suspect: NodeId) -> bool {
        let Role::Candidate(campaign) = &self.role else { return false };
        let open = |voter: NodeId| {
            campaign.votes.contains(&voter) || voter != suspect && !campaign.refused.contains(&voter)
        };
        self.membership().has_quorum(open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, RecordEncoder, Recovered};

    #[test]
    fn the_voters_that_are_left_start_one_after_the_other() {
        let rank = |id: u64, leader: u64| {
            let config = Config::new(NodeId(id), [1, 2, 3].map(NodeId), RecordEncoder::BARE);
            Raft::recover(config, 7, Instant(0), Recovered::default()).rank_without(NodeId(leader))
        };
        assert_eq!([rank(1, 2), rank(3, 2)], [0, 1]);
        assert_eq!([rank(2, 1), rank(3, 1)], [0, 1]);
        assert_eq!([rank(1, 3), rank(2, 3)], [0, 1]);
    }
}
