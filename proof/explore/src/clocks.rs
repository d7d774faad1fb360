//! Clocks: time that all members share, how far each member's clock deviates from it, and the judge of what one member
//! does by its clock.
//!
//! ```text
//!   shared time     ┃────┃────┃────┃      a step is a choice, like the arrival of a message
//!   slowest clock   0    4    8    12     wrong by a fifth, the most that is trusted
//!   exact clock     0    5    10   15
//!   fastest clock   0    6    12   18
//! ```
//!
//! In:    steps of time; a member's events and their effects.
//! Out:   the violated rule; the changes of its lease.
//! Rules: 1. Time passes for all members at once, whether they run or not. Between two steps anything may happen, in
//!           any order: messages have no speed, disks take no time.
//!        2. The rate of each clock is chosen with the first step and stays; the scope lists the possible ways.
//!        3. A deadline that is due fires when it is chosen, or never. That covers a process that sleeps, and every
//!           election timeout that is longer than the shortest.
//!        4. The lengths are such that the worst clocks meet: the lease of the slowest leader, 8 ns, and the vote hold
//!           of a voter with the fastest clock, 12 ns, end with the same step. Anything one step too long shows.
//!        5. Vote holds are recorded here, apart from the core, and outlive a restart: [replication-protocols §9.4]
//!           for an election timeout after it accepted a leader's message, a member neither helps to replace that
//!           leader nor campaigns, except at that leader's own request (L-3, L-4); no lease after a leadership transfer
//!           began (L-6); no read by a clock that shows a heartbeat late by half an election timeout (L-8).
//!
//! That no member leads while another's lease holds (L-2), and that no read is old (L-5), is judged of all members
//! together.
//! Knows nothing of: other members, messages under way, disks.

use crate::member::Event;
use kattu_raft::canonical::{CANONICAL_NOW, Moment};
use kattu_raft::message::Message;
use kattu_raft::{Duration, Effects, Envelope, LeaderLease, Raft, Trace};

/// The shortest time without a leader before a campaign, and the length of a vote hold.
pub const ELECTION_TIMEOUT: Duration = Duration::from_nanos(12);
/// Time between heartbeats.
pub(crate) const HEARTBEAT_INTERVAL: Duration = Duration::from_nanos(4);
/// How far clocks are trusted. A lease lasts for 8 ns by that. Clocks are not watched: their readings would tell apart
/// states that are one.
pub const LEASE: LeaderLease = LeaderLease { rho: 200_000, margin: Duration::ZERO, watch_clocks: false };

/// The shared clock of lease scopes.
#[derive(Clone, Copy, Debug)]
pub struct Clocks {
    /// How often time passes.
    pub steps: u8,
    /// The ways in which clocks may run: a rate for each member.
    pub ways: &'static [[Rate; 3]],
}

/// How a clock runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rate {
    /// As slow as is trusted.
    Slowest = 1,
    /// Shows the time that passes.
    Exact,
    /// As fast as is trusted.
    Fastest,
    /// Stands still: worse than clocks are trusted to be. In tests of the judges only.
    Stuck,
}

impl Rate {
    /// How far it advances in a step.
    #[must_use]
    pub fn shows(self) -> Duration {
        Duration::from_nanos(match self {
            Rate::Slowest => 4,
            Rate::Exact => 5,
            Rate::Fastest => 6,
            Rate::Stuck => 0,
        })
    }
}

/// All ways in which three clocks may run within their bounds.
pub(crate) const ALL_WAYS: &[[Rate; 3]] = &ways::<3, 27>([Rate::Slowest, Rate::Exact, Rate::Fastest]);

/// All ways in which three clocks may run at the edge of their bounds.
pub(crate) const EXTREME_WAYS: &[[Rate; 3]] = &ways::<2, 8>([Rate::Slowest, Rate::Fastest]);

/// Every choice of one of `R` rates for each of three clocks; there are `N`.
const fn ways<const R: usize, const N: usize>(rates: [Rate; R]) -> [[Rate; 3]; N] {
    assert!(N == R * R * R);
    let mut ways = [[Rate::Exact; 3]; N];
    let mut n = 0;
    while n < N {
        ways[n] = [rates[n / (R * R)], rates[n / R % R], rates[n % R]];
        n += 1;
    }
    ways
}

/// The worst way for member 1: its clock is the slowest, the others' are the fastest.
pub(crate) const WORST_WAY: &[[Rate; 3]] = &[[Rate::Slowest, Rate::Fastest, Rate::Fastest]];

/// After this silence a leader needs a new quorum round before it trusts its clock.
const PAUSED: Duration = Duration::from_nanos(10);

/// Changes of a lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    /// A read was answered by it.
    pub read: bool,
    /// It came to its end.
    pub ended: bool,
    /// It was given up for a leadership transfer.
    pub given_up: bool,
    /// It was dropped because its leader had slept.
    pub slept: bool,
}

/// The record of one member's past, on its own clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Observer {
    /// Time left of its vote hold.
    bound: Duration,
    /// Time since, as a leader, it sent heartbeats or was elected; no more than it takes to count as asleep.
    quiet: Duration,
    /// It began a leadership transfer in its present term as leader.
    transferred: bool,
}

/// Whether a lease holds.
#[must_use]
pub(crate) fn holds_lease(raft: &Raft) -> bool {
    raft.leader_lease_until().is_some_and(|until| CANONICAL_NOW < until)
}

impl Observer {
    /// Its clock advances; whether it leads.
    pub fn passes(&mut self, shown: Duration, leads: bool) {
        self.bound = self.bound.saturating_sub(shown);
        if leads {
            self.quiet = (self.quiet + shown).min(PAUSED);
        }
    }

    /// Its process ended; its vote hold goes on.
    pub fn crashed(&mut self) {
        (self.quiet, self.transferred) = (Duration::ZERO, false);
    }

    /// Judges the effects of one event, and records its vote hold.
    ///
    /// # Errors
    /// The violated rule.
    pub fn judge(
        &mut self,
        event: &Event,
        before: Option<&Raft>,
        after: &Raft,
        effects: &Effects,
    ) -> Result<Turns, String> {
        self.judge_vote_hold(event, effects)?;
        let turns = self.judge_lease(event, before, after, effects)?;
        if let Event::Deliver(Envelope { from, term, message, .. }) = event {
            let of_a_leader = matches!(message, Message::Append(_) | Message::SnapshotChunk(_));
            if of_a_leader && after.leader() == Some(*from) && after.term() == *term {
                self.bound = ELECTION_TIMEOUT;
            }
        }
        Ok(turns)
    }

    fn judge_vote_hold(&self, event: &Event, effects: &Effects) -> Result<(), String> {
        let open = || format!("{} ns before its promise is over", self.bound.as_nanos());
        let asked = match event {
            Event::Deliver(envelope) => match &envelope.message {
                Message::PreVote(_) => true,
                Message::Vote(vote) => !vote.transfer,
                _ => false,
            },
            _ => false,
        };
        let says_yes = |sent: &Envelope| match &sent.message {
            Message::PreVoteReply(reply) => reply.granted,
            Message::VoteReply(reply) => reply.granted,
            _ => false,
        };
        if self.bound.is_zero() {
            return Ok(());
        }
        if asked && effects.send.iter().any(says_yes) {
            return Err(format!("L-3: helps to replace its leader {}", open()));
        }
        let wanted = matches!(event, Event::Deliver(Envelope { message: Message::TimeoutNow(_), .. }));
        let campaigns =
            |event: &Trace| matches!(event, Trace::BecamePreCandidate(_) | Trace::BecameCandidate(_));
        if !wanted && effects.trace.iter().any(campaigns) {
            return Err(format!("L-3: campaigns {}", open()));
        }
        Ok(())
    }

    fn judge_lease(
        &mut self,
        event: &Event,
        before: Option<&Raft>,
        after: &Raft,
        effects: &Effects,
    ) -> Result<Turns, String> {
        let happened = |is: fn(&Trace) -> bool| effects.trace.iter().any(is);
        let elected = happened(|event| matches!(event, Trace::BecameLeader(_)));
        let given_up = happened(|event| matches!(event, Trace::TransferBegan(_)));
        let slept = self.quiet == PAUSED;
        let told_an_index = |sent: &Envelope| match &sent.message {
            Message::ReadIndexReply(reply) => reply.index.is_some(),
            _ => false,
        };
        // A quorum round needs another member's answer: an immediate answer is one by the clock.
        let read = match event {
            Event::Read(_) => effects.reads.iter().any(|verdict| verdict.index.is_some()),
            Event::Deliver(Envelope { message: Message::ReadIndex(_), .. }) => {
                effects.send.iter().any(told_an_index)
            }
            _ => false,
        };
        if read && slept {
            return Err("L-8: answers a read by its clock, though it has slept for all it knows".into());
        }
        if !after.is_leader() || elected {
            self.transferred = false;
        }
        self.transferred |= given_up;
        let holds = holds_lease(after);
        if self.transferred && holds {
            return Err("L-6: has a lease after it began to hand over".into());
        }
        let is_heartbeat_due = |raft: &Raft| raft.due(CANONICAL_NOW).contains(&Moment::Heartbeat);
        let beat = matches!(event, Event::Fire(_)) && before.is_some_and(is_heartbeat_due);
        if beat || elected || !after.is_leader() {
            self.quiet = Duration::ZERO;
        }
        let held = before.is_some_and(holds_lease);
        let lost = held && !holds && after.is_leader();
        Ok(Turns { read, ended: false, given_up: lost && given_up, slept: lost && slept && !given_up })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_clocks_within_their_bounds_meet() {
        let lease = LEASE.length(ELECTION_TIMEOUT);
        let steps = |length: Duration, rate: Rate| length.as_nanos().div_ceil(rate.shows().as_nanos());
        assert_eq!(lease, Duration::from_nanos(8));
        assert_eq!(steps(lease, Rate::Slowest), 2);
        assert_eq!(steps(ELECTION_TIMEOUT, Rate::Fastest), 2);
        assert_eq!(PAUSED, HEARTBEAT_INTERVAL + ELECTION_TIMEOUT / 2);
        let wrong_by = |rate: Rate| rate.shows().abs_diff(Rate::Exact.shows()) * 1_000_000;
        let trusted = Rate::Exact.shows() * LEASE.rho;
        assert!(wrong_by(Rate::Slowest) == trusted && wrong_by(Rate::Fastest) == trusted);
    }

    #[test]
    fn every_way_is_listed_once() {
        for (ways, count) in [(ALL_WAYS, 27), (EXTREME_WAYS, 8)] {
            assert_eq!(ways.len(), count);
            assert!((0..count).all(|n| !ways[..n].contains(&ways[n])));
        }
    }
}
