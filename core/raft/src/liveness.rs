//! Liveness: what a peer's answers show of the peer itself: that it is there, that it follows, how its clock and its
//! disk do.
//!
//! In:    answers: when they came, the round that each one answers, what it grants and reports.
//! Out:   whether the peer is heard; the newest round that it has answered, with and without a vote hold that a lease
//!        can count; which read rounds it is sent.
//! Rules: [replication-protocols E4, L-3, Q3; fault-model F17, F42]
//!   1. Any answer of the term shows that the peer follows. Answers may be late and repeated: neither the moment nor a
//!      round ever moves back.
//!   2. A vote hold counts for the round of its own answer, and only if it is as long as leases need it. The newest
//!      answer says whether the peer denies a lease.
//!   3. A peer that is behind has one read round to answer at a time: under many reads the rounds would take the
//!      bandwidth of the entries that it lacks, and the peers that keep up are a quorum mostly.
//!
//! Knows nothing of: entries, how they are sent, the peer's directory.

use crate::canonical::Canonical;
use crate::clocks::Gauge;
use crate::config::Config;
use crate::types::{Duration, Instant, Round};

/// What a leader knows of one peer from its answers, whatever its log holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Liveness {
    /// When it last answered in this term; the start of the leadership before that.
    last_contact: Instant,
    /// Newest round it answered.
    contact_round: Round,
    /// The newest round that it answered with a vote hold as long as leases need it.
    held_round: Round,
    /// The vote hold in its newest answer, if it has answered at all.
    vote_hold: Option<Duration>,
    /// The newest read round that it was sent while it was behind.
    round_asked: Round,
    /// Measurements of its clock.
    pub(crate) gauge: Gauge,
    /// How long its disk takes, as last reported; zero if it was not. [`Raft::disk_took`](crate::Raft::disk_took)
    pub(crate) disk: Duration,
}

impl Liveness {
    /// A peer that has not answered yet, and has time for it from `now` on.
    pub(crate) fn new(now: Instant) -> Liveness {
        Liveness {
            last_contact: now,
            contact_round: Round(0),
            held_round: Round(0),
            vote_hold: None,
            round_asked: Round(0),
            gauge: Gauge::default(),
            disk: Duration::ZERO,
        }
    }

    /// An answer has come. [Rule 1]
    pub(crate) fn hear(&mut self, now: Instant) {
        self.last_contact = self.last_contact.max(now);
    }

    /// It has answered this round. [Rule 1]
    pub(crate) fn answer(&mut self, round: Round) {
        self.contact_round = self.contact_round.max(round);
    }

    /// Notes the vote hold that the answer to a round grants. Returns whether it is too short, and that is new. Comes
    /// before [`Liveness::answer`]. [Rule 2]
    pub(crate) fn note_vote_hold(&mut self, round: Round, vote_hold: Duration, config: &Config) -> bool {
        if config.leadership.leader_lease.is_none() {
            return false; // vote holds are not used here
        }
        if is_long_enough(vote_hold, config) {
            self.held_round = self.held_round.max(round);
        }
        let is_late = round < self.contact_round; // a newer answer is known already
        if is_late || self.vote_hold == Some(vote_hold) {
            return false;
        }
        self.vote_hold = Some(vote_hold);
        self.denies_lease(config)
    }

    /// Whether its newest answer granted a shorter vote hold than leases need, where leases are on.
    pub(crate) fn denies_lease(&self, config: &Config) -> bool {
        let denies = |vote_hold| !is_long_enough(vote_hold, config);
        config.leadership.leader_lease.is_some() && self.vote_hold.is_some_and(denies)
    }

    /// When it was last heard.
    pub(crate) fn last_contact(&self) -> Instant {
        self.last_contact
    }

    /// Whether it was heard within this time.
    pub(crate) fn is_heard(&self, now: Instant, within: Duration) -> bool {
        now.since(self.last_contact) < within
    }

    /// The newest round that it has answered.
    pub(crate) fn contact_round(&self) -> Round {
        self.contact_round
    }

    /// The newest round that it has answered and that a lease may count. At most [`Liveness::contact_round`].
    pub(crate) fn held_round(&self) -> Round {
        self.held_round
    }

    /// Whether it is sent this read round. [Rule 3]
    pub(crate) fn takes_round(&mut self, round: Round, is_behind: bool) -> bool {
        if !is_behind {
            return true;
        }
        let takes = self.round_asked <= self.contact_round;
        if takes {
            self.is_asked_round(round, is_behind);
        }
        takes
    }

    /// It is sent this round, perhaps with a heartbeat.
    pub(crate) fn is_asked_round(&mut self, round: Round, is_behind: bool) {
        if is_behind {
            self.round_asked = round;
        }
    }

    /// See [`crate::canonical`]. The moment is compared with an election timeout only, which is over when the check of
    /// the quorum is due.
    pub(crate) fn canonicalize(&mut self, canonical: &Canonical) {
        self.last_contact = canonical.past(self.last_contact, canonical.election_timeout);
        self.disk = Duration::ZERO; // disks are not timed where states are canonical
    }
}

/// Whether such a vote hold is long enough for a lease.
fn is_long_enough(vote_hold: Duration, config: &Config) -> bool {
    config.election_timeout <= vote_hold
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leader_lease::LeaderLease;

    #[test]
    fn late_and_repeated_answers_move_nothing_back() {
        let mut peer = Liveness::new(Instant(100));
        peer.hear(Instant(300));
        peer.answer(Round(7));
        let newest = peer.clone();
        peer.hear(Instant(200));
        peer.answer(Round(6));
        peer.answer(Round(7));
        assert_eq!(peer, newest);
        let within = Duration::from_nanos(50);
        assert!(peer.is_heard(Instant(349), within));
        assert!(!peer.is_heard(Instant(350), within), "as long ago as that is silence");
    }

    #[test]
    fn a_peer_that_keeps_up_is_sent_every_round_and_one_that_is_behind_one_at_a_time() {
        let mut peer = Liveness::new(Instant(0));
        assert!((1..5).all(|round| peer.takes_round(Round(round), false)));
        assert!(peer.takes_round(Round(5), true));
        assert!(!peer.takes_round(Round(6), true), "round 5 is not answered");
        assert!(peer.takes_round(Round(7), false), "it has caught up meanwhile");
        peer.answer(Round(4));
        assert!(!peer.takes_round(Round(8), true), "that was an earlier one");
        peer.answer(Round(5));
        assert!(peer.takes_round(Round(9), true));
        peer.answer(Round(9));
        peer.is_asked_round(Round(10), true);
        assert!(!peer.takes_round(Round(11), true), "a heartbeat carried round 10");
    }

    #[test]
    fn a_vote_hold_counts_for_as_long_as_the_lease_needs_and_for_its_own_round_only() {
        let et = Duration::from_millis(1000);
        let lease = Some(LeaderLease { rho: 0, margin: Duration::ZERO, watch_clocks: false });
        let leadership = crate::config::LeadershipConfig { leader_lease: lease, ..Default::default() };
        let config = Config { election_timeout: et, leadership, ..crate::canonical::tests::config() };
        let mut peer = Liveness::new(Instant(0));
        assert!(!peer.denies_lease(&config), "it has not answered yet");
        assert!(peer.note_vote_hold(Round(1), Duration::ZERO, &config), "it has no leases");
        assert!(!peer.note_vote_hold(Round(2), Duration::ZERO, &config), "that is known");
        let short = et - Duration::from_nanos(1);
        assert!(peer.note_vote_hold(Round(3), short, &config), "its timeout is shorter");
        assert_eq!(peer.held_round(), Round(0));
        assert!(!peer.note_vote_hold(Round(4), et, &config));
        assert!(!peer.note_vote_hold(Round(5), et * 2, &config));
        assert_eq!((peer.held_round(), peer.denies_lease(&config)), (Round(5), false));
        peer.answer(Round(5));
        let is_late = peer.note_vote_hold(Round(4), Duration::ZERO, &config);
        assert!(!is_late, "said earlier, by another run perhaps");
        assert!(!peer.denies_lease(&config));
        assert!(peer.note_vote_hold(Round(6), Duration::ZERO, &config), "it was started anew without leases");
        assert_eq!(peer.held_round(), Round(5), "the round of before stays answered as it was");
        let none = Config { leadership: Default::default(), ..config };
        assert!(!peer.denies_lease(&none), "no leader misses a vote hold where leases are off");
    }
}
