//! Leader leases: while no other member can have been elected, the leader serves linearizable reads without a quorum
//! round.
//!
//! ```text
//!  leader    s ── round r ──▶                 ◀── answers ── quorum: lease until s + ET·(1−ρ)/(1+ρ) − ε
//!  follower         └ takes it at f ≥ s: withholds votes until f + ET on its own clock
//! ```
//!
//! In:    rounds that leave and rounds that a quorum has answered; this peer's own clock, and its maximal error.
//! Out:   an index at which a read may be served now; withheld votes while a vote hold lasts.
//! Rules: [replication-protocols §9.4, L-1 – L-8; Ongaro14 §6.4.1]
//!   1. Clocks may show any time, but run at a rate that is wrong by at most ρ, also while a machine sleeps. (L-1)
//!   2. A round is stamped before it leaves. When a quorum has answered it, the lease holds, on the leader's clock,
//!      until that stamp plus ET·(1−ρ)/(1+ρ) − ε: a follower's vote hold lasts ET on its clock, which takes at least
//!      ET/(1+ρ); and what the leader's clock shows as x takes at most x/(1−ρ). (L-2)
//!   3. A follower that takes a round, or any other message of its leader, grants a vote hold: no vote, no pre-vote and
//!      no campaign of its own for ET. The hold outlives role and term, because the leader that relies on it learns of
//!      neither. It yields only to the leader's own request: a transfer. (L-3)
//!   4. After a restart a member no longer knows which vote holds it granted, so it withholds votes for ET again, and
//!      for as long as the driver has recorded of earlier runs, if that is more. (L-4)
//!   5. A read takes the clock, checks the lease, then takes the commit index, and only in a term that has committed an
//!      entry. One check is enough: the read is linearized at that moment. (L-5)
//!   6. A transfer ends the lease for the rest of the term. (L-6)
//!   7. A new configuration ends the lease; only rounds that start later count, for its quorums. (L-7)
//!   8. A wake-up that comes half an election timeout late ends it too: a process that was stopped needs a new round
//!      before it trusts its clock. Without a lease reads are confirmed by a round, as always. (L-8; fault-model TM3)
//!   9. Proof that clocks are worse than rule 1 assumes ends it for the rest of the term, as rule 6 does. (F42,
//!      [`crate::clocks`])
//!
//! Members may be configured differently: one without leases grants no vote hold, one with a shorter election timeout a
//! shorter hold than the leader relies on. So every answer to a round carries the hold it grants, and only answers with
//! at least the leader's ET count: with a quorum of them there is a lease, else reads are confirmed by rounds.
//!
//! A hold belongs to one answer, so nothing is remembered of a peer that a restart with other settings could make
//! wrong. The driver records how long the holds of a run last, so that a restart with other settings breaks none. A
//! change of the election timeout that the configuration brings is safe for the reasons in [`crate::settings`]. The
//! driver also reads the clock *after* it has taken an event from its queue: a hold must not begin before the round
//! that it answers was sent, nor a read be checked at a moment before it was requested.
//! Knows nothing of: clock sources, waiting reads.

use crate::canonical::{CANONICAL_NOW, Canonical};
use crate::config::Config;
use crate::leading::Leading;
use crate::message::{Envelope, Message};
use crate::progress::Progress;
use crate::raft::Raft;
use crate::types::{Duration, Instant, LogIndex, NodeId, Round};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Stamps kept of rounds that no quorum has answered. Later rounds are not stamped, which costs time only.
const STAMPS_MAX: usize = 64;

/// How far clocks are trusted. Off unless configured: no other rule of this protocol needs a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeaderLease {
    /// ρ: how much too fast or too slow any member's clock may run, in parts per million. 5000 is ten times the rate at
    /// which a disciplined clock is slewed.
    pub rho: u32,
    /// ε: subtracted from every lease, for errors that the rates do not cover.
    pub margin: Duration,
    /// Whether clocks are watched: members report their readings, and a leader with proof that one clock is worse than
    /// assumed has no lease any more. Off in explored states, which readings would tell apart, and in tests of the
    /// effects of wrong clocks. (`clocks.rs`)
    pub watch_clocks: bool,
}

impl LeaderLease {
    /// The length of a lease after the stamp of the round that earned it.
    #[must_use]
    pub fn length(&self, election_timeout: Duration) -> Duration {
        const ONE: u128 = 1_000_000;
        let rho = u128::from(self.rho).min(ONE);
        let nanos = election_timeout.as_nanos() * (ONE - rho) / (ONE + rho);
        let length = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        length.saturating_sub(self.margin)
    }
}

/// A leader's lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LeaderLeaseState {
    /// When rounds began that no quorum has answered yet, ascending.
    stamps: VecDeque<(Round, Instant)>,
    /// The end of the lease; the beginning of time for none.
    until: Instant,
    /// Leases are on here.
    on: bool,
    /// No lease for the rest of the term.
    over: bool,
}

impl LeaderLeaseState {
    /// A new leader's state: no lease yet.
    pub(crate) fn new(config: &Config) -> LeaderLeaseState {
        let on = config.leadership.leader_lease.is_some();
        LeaderLeaseState { stamps: VecDeque::new(), until: Instant(0), on, over: false }
    }

    /// Leases were turned on or off, or are trusted otherwise: only rounds that begin from now on count, if any do.
    /// [tuning, rules 3, 4]
    pub(crate) fn configure(&mut self, config: &Config) {
        self.drop_it();
        self.on = config.leadership.leader_lease.is_some();
    }

    /// Ends the lease for the rest of the term. (L-6)
    pub(crate) fn end(&mut self) {
        self.drop_it();
        self.over = true;
    }

    /// Ends the lease, and voids the rounds under way: only rounds that begin from now on count. (L-7, L-8)
    pub(crate) fn drop_it(&mut self) {
        self.until = Instant(0);
        self.stamps.clear();
    }

    /// A round begins, and leaves after this.
    pub(crate) fn stamp(&mut self, round: Round, now: Instant) {
        if self.on && !self.over && self.stamps.len() < STAMPS_MAX {
            self.stamps.push_back((round, now));
        }
    }

    /// A quorum has answered every round up to this one: the start of the newest of them that is stamped.
    fn answered(&mut self, upto: Round) -> Option<Instant> {
        let mut began = None;
        while let Some(&(_, at)) = self.stamps.front().filter(|(round, _)| *round <= upto) {
            began = Some(at);
            self.stamps.pop_front();
        }
        began
    }

    /// Whether there is no lease for the rest of the term.
    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    /// The end of the lease, if there is one.
    pub(crate) fn until(&self) -> Option<Instant> {
        Some(self.until).filter(|&until| until != Instant(0))
    }

    /// Its stamps, oldest first.
    pub(crate) fn stamps(&self) -> impl Iterator<Item = (Round, Instant)> {
        self.stamps.iter().copied()
    }

    /// See [`crate::canonical`]. Rounds under way all began now: their age makes a difference only where lengths of
    /// time are kept.
    pub(crate) fn canonicalize(&mut self, canonical: &Canonical) {
        for (_, at) in &mut self.stamps {
            *at = canonical.stamp(*at);
        }
        self.until = match canonical.deadline(self.until, canonical.lease()) {
            CANONICAL_NOW => Instant(0),
            later => later,
        };
    }
}

impl Leading<'_> {
    /// After an answer: the lease lasts as long as the newest round earns that a quorum has answered. (L-2)
    pub(crate) fn extend_lease(&mut self) {
        let Some(lease) = self.view.config.leadership.leader_lease else { return };
        let Some(confirmed) = self.held_round() else { return };
        let length = lease.length(self.view.config.election_timeout);
        let state = &mut self.leader.lease;
        if let Some(began) = state.answered(confirmed) {
            state.until = state.until.max(began + length);
        }
    }

    /// The newest round that a quorum has answered with vote holds that are long enough; this leader's own counts.
    /// (L-3)
    fn held_round(&self) -> Option<Round> {
        let held = |progress: &Progress| progress.liveness.held_round();
        self.reached(self.leader.round, held)
    }
}

impl Raft {
    /// The end, on this peer's clock, of the time in which no other member can lead; `None` without a lease, and for a
    /// peer that does not lead.
    #[must_use]
    pub fn leader_lease_until(&self) -> Option<Instant> {
        self.role.leader().and_then(|leader| leader.lease.until())
    }

    /// Whether leases are configured and this leader has none until the end of its term, because it asked another voter
    /// to take over and still leads. (L-6)
    #[must_use]
    pub fn leader_lease_is_over(&self) -> bool {
        let Some(leader) = self.role.leader() else { return false };
        let transferred = leader.lease.is_over() && leader.transfer.is_none();
        self.config.leadership.leader_lease.is_some() && transferred && self.clocks_apart().is_empty()
    }

    /// Before this moment this peer helps no member to replace the leader it has heard. (L-3, L-4)
    #[must_use]
    pub fn vote_hold_until(&self) -> Instant {
        self.vote_hold
    }

    /// With leases here: the voters that have answered this leader and grant shorter vote holds than leases need,
    /// ascending. If they are enough to deny a quorum there is no lease.
    #[must_use]
    pub fn leader_lease_without(&self) -> Vec<NodeId> {
        let Some(leader) = self.role.leader() else { return Vec::new() };
        let denies = |(&peer, progress): (&NodeId, &Progress)| {
            (self.membership().is_voter(peer) && progress.liveness.denies_lease(&self.config)).then_some(peer)
        };
        leader.peers.iter().filter_map(denies).collect()
    }

    /// Voids the lease if the process slept. (L-8)
    pub(crate) fn notice_pause(&mut self, now: Instant) {
        let late = self.config.election_timeout / 2;
        if let Some(leader) = self.role.leader_mut()
            && leader.heartbeat_at != Instant::NEVER
            && leader.heartbeat_at + late <= now
        {
            leader.lease.drop_it();
        }
    }

    /// The index at which a read that was requested before `now` may be served without a round. (L-5)
    pub(crate) fn index_by_lease(&mut self, now: Instant) -> Option<LogIndex> {
        self.notice_pause(now);
        let leader = self.role.leader()?;
        let holds = leader.lease.until().is_some_and(|until| now < until);
        let own_term = leader.term_start <= self.marks.committed;
        (holds && own_term).then_some(self.marks.committed)
    }

    /// A message of this term's leader was taken: extends the vote hold. (L-3)
    pub(crate) fn vote_hold_for_leader(&mut self, now: Instant) {
        if self.config.leadership.leader_lease.is_some() {
            self.vote_hold = self.vote_hold.max(now + self.config.election_timeout);
        }
    }

    /// The vote hold that a restarted peer may have granted in an earlier run, which lasted for `recorded` at most. (L-4)
    pub(crate) fn vote_hold_of_earlier_runs(&mut self, now: Instant, recorded: Duration) {
        if self.has_past {
            self.vote_hold_for_leader(now);
        }
        self.note_longer_hold(now, recorded);
    }

    /// Whether a leader may rely on a vote hold of this peer.
    pub(crate) fn is_bound(&self, now: Instant) -> bool {
        now < self.vote_hold
    }

    /// The reply to a follower's read request, if the lease holds.
    pub(crate) fn answer_by_lease(&mut self, now: Instant, peer: NodeId, batch: u64) -> Option<Envelope> {
        let index = self.index_by_lease(now)?;
        if let Some(leader) = self.role.leader_mut()
            && let Some(progress) = leader.peers.get_mut(&peer)
        {
            progress.commit_sent = progress.commit_sent.max(index);
        }
        let reply = crate::message::ReadIndexReply { batch, index: Some(index) };
        Some(self.envelope(peer, Message::ReadIndexReply(reply)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_shorter_than_a_vote_hold_on_any_pair_of_clocks_within_the_bound() {
        let et = Duration::from_millis(1000);
        for rho in [0_u32, 1, 500, 5_000, 100_000, 500_000, 999_999] {
            let lease = LeaderLease { rho, margin: Duration::ZERO, watch_clocks: false };
            let rho = f64::from(rho) / 1e6;
            // The leader's clock is as slow, the follower's as fast as allowed.
            let lease_lasts = lease.length(et).as_secs_f64() / (1.0 - rho);
            let hold_lasts = et.as_secs_f64() / (1.0 + rho);
            assert!(lease_lasts <= hold_lasts + 1e-9, "{rho}: {lease_lasts} against {hold_lasts}");
        }
        let nothing = LeaderLease { rho: 1_000_000, margin: Duration::ZERO, watch_clocks: false };
        assert_eq!(nothing.length(et), Duration::ZERO);
        let less = LeaderLease { margin: Duration::from_millis(1500), rho: 0, ..nothing };
        assert_eq!(less.length(et), Duration::ZERO, "a margin longer than the promise leaves nothing");
    }

    #[test]
    fn only_stamped_rounds_earn_a_lease() {
        let mut state =
            LeaderLeaseState { stamps: VecDeque::new(), until: Instant(0), on: true, over: false };
        state.stamp(Round(3), Instant(30));
        state.stamp(Round(5), Instant(50));
        assert_eq!(state.answered(Round(2)), None);
        assert_eq!(state.answered(Round(4)), Some(Instant(30)), "the newest at or before it");
        state.drop_it();
        assert_eq!(state.answered(Round(9)), None, "it was under way when the lease was dropped");
        state.stamp(Round(10), Instant(100));
        state.end();
        state.stamp(Round(11), Instant(110));
        assert_eq!(state.answered(Round(20)), None);
        for round in 0..1000 {
            state.over = false;
            state.stamp(Round(100 + round), Instant(round));
        }
        assert_eq!(state.stamps.len(), STAMPS_MAX);
    }
}
