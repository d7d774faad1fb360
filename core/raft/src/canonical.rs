//! The canonical form of a state: what it can still do, without the numbers that only say how it came about.
//!
//! Whoever explores all interleavings meets the same situation again and again, at other moments, after other draws,
//! with other record numbers. For him time is a choice ("this deadline fires now"), and two states that differ in
//! nothing else are one.
//!
//! In:    a state, and the moment it was last told.
//! Out:   the same state at [`CANONICAL_NOW`]; the moments at which time alone changes what it does.
//! Rules:
//!   1. A deadline that has come is due now; one that lies ahead gets its whole length again. The lengths are in the
//!      order in which deadlines of one role fall due, so firing a later one fires the earlier ones too.
//!   2. An age is kept as far as something compares with it: an election timeout without a word of the leader, a
//!      heartbeat without an answer to an append. Leadership has no age: the log's clock stands still.
//!   3. Chance starts anew, and every election timeout is the longest one.
//!   4. Record numbers count on from 1, the newest durable record; 0 stays "nothing was ever written".
//!
//! Nobody calls this while a cluster serves.
//! Knows nothing of: who explores, clusters, messages under way.

use crate::entry::Entry;
use crate::raft::Raft;
use crate::rng::Rng;
use crate::role::{Role, Timer};
use crate::types::{Duration, Instant, LogIndex, NodeId};
use alloc::vec::Vec;

/// The moment at which every canonical state stands.
pub const CANONICAL_NOW: Instant = Instant(1 << 60);

/// Why time alone changes what a peer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Moment {
    /// A leader tells its peers of a commit that nothing else told them.
    CommitNotice,
    /// A leader's heartbeats are due.
    Heartbeat,
    /// A follower asks its leader again about reads.
    AskAgain,
    /// A commit mark that no other record took along is written alone.
    CommitMark,
    /// A follower has not heard its leader for an election timeout: it would help another one.
    LeaderSilent,
    /// A leader looks whether a quorum has answered for an election timeout.
    QuorumCheck,
    /// What is committed and was not handed out yet (after a restart, or when reading back failed).
    HandOut,
    /// A follower or candidate has waited for long enough.
    Election,
}

impl Moment {
    /// All of them, in the order of their numbers.
    pub const ALL: [Moment; 8] = [
        Moment::CommitNotice,
        Moment::Heartbeat,
        Moment::AskAgain,
        Moment::CommitMark,
        Moment::LeaderSilent,
        Moment::QuorumCheck,
        Moment::HandOut,
        Moment::Election,
    ];
}

/// Moves moments from one clock to the canonical one.
pub(crate) struct Canonical {
    now: Instant,
    pub(crate) election_timeout: Duration,
    pub(crate) heartbeat_interval: Duration,
}

impl Canonical {
    /// A deadline: never, due, or `length` ahead.
    pub(crate) fn deadline(&self, at: Instant, length: Duration) -> Instant {
        match at {
            Instant::NEVER => Instant::NEVER,
            at if at <= self.now => CANONICAL_NOW,
            _ => CANONICAL_NOW + length,
        }
    }

    /// A moment in the past: `age` ago if it is that old, or now.
    pub(crate) fn past(&self, at: Instant, age: Duration) -> Instant {
        if self.now.since(at) < age { CANONICAL_NOW } else { CANONICAL_NOW - age }
    }

    fn timer(&self, timer: &Timer) -> Timer {
        match timer.deadline() {
            Instant::NEVER => Timer::OFF,
            at if at <= self.now => Timer { started: CANONICAL_NOW, timeout: Duration::ZERO },
            _ => Timer { started: CANONICAL_NOW, timeout: self.election_timeout * 2 },
        }
    }

    /// When a commit is told that nothing else told.
    pub(crate) fn notice(&self) -> Duration {
        self.heartbeat_interval / 10
    }

    /// When a commit mark is written alone: between a heartbeat and an election timeout.
    pub(crate) fn mark(&self) -> Duration {
        self.heartbeat_interval * 3 / 2
    }
}

impl Raft {
    /// Brings this state, last told `now`, into canonical form. Record numbers become smaller by the number returned:
    /// whoever holds records of this peer renumbers them alike.
    ///
    /// The configured durations must be at least ten nanoseconds and small against a millisecond, so that the log's
    /// clock stands still.
    pub fn canonicalize(&mut self, now: Instant) -> u64 {
        let canonical = Canonical {
            now,
            election_timeout: self.config.election_timeout,
            heartbeat_interval: self.config.heartbeat_interval,
        };
        match &mut self.role {
            Role::Follower(follower) => {
                follower.timer = canonical.timer(&follower.timer);
                if let Some(following) = &mut follower.following {
                    following.heard_at = canonical.past(following.heard_at, canonical.election_timeout);
                    following.asked.canonicalize(&canonical);
                }
            }
            Role::PreCandidate(campaign) | Role::Candidate(campaign) => {
                campaign.timer = canonical.timer(&campaign.timer);
            }
            Role::Leader(leader) => {
                leader.since = CANONICAL_NOW;
                leader.heartbeat_at = canonical.deadline(leader.heartbeat_at, canonical.heartbeat_interval);
                leader.check_at = canonical.deadline(leader.check_at, canonical.election_timeout);
                leader.notice_at = canonical.deadline(leader.notice_at, canonical.notice());
                for progress in leader.peers.values_mut() {
                    progress.canonicalize(&canonical);
                }
            }
        }
        self.handover.canonicalize(&canonical);
        self.rng = Rng::new(0, 0);
        self.durability.canonicalize(&canonical)
    }

    /// The moments after `now` at which time alone changes what this peer does or answers, with their reasons.
    #[must_use]
    pub fn moments(&self, now: Instant) -> Vec<(Moment, Instant)> {
        let mut moments = Vec::new();
        match &self.role {
            Role::Follower(follower) => {
                moments.push((Moment::Election, follower.timer.deadline()));
                if let Some(following) = &follower.following {
                    moments.push((Moment::AskAgain, following.asked.retry_at()));
                    if self.config.check_quorum {
                        moments.push((
                            Moment::LeaderSilent,
                            following.heard_at + self.config.election_timeout,
                        ));
                    }
                }
            }
            Role::PreCandidate(campaign) | Role::Candidate(campaign) => {
                moments.push((Moment::Election, campaign.timer.deadline()));
            }
            Role::Leader(leader) => {
                moments.push((Moment::CommitNotice, leader.notice_at));
                moments.push((Moment::Heartbeat, leader.heartbeat_at));
                moments.push((Moment::QuorumCheck, leader.check_at));
            }
        }
        moments.push((Moment::CommitMark, self.durability.mark_at()));
        moments.push((Moment::HandOut, self.handover.retry_at()));
        moments.retain(|(_, at)| now < *at && *at != Instant::NEVER);
        moments
    }

    /// The highest index that `peer` acknowledged to this leader; `None` in other roles and of strangers.
    #[must_use]
    pub fn matched(&self, peer: NodeId) -> Option<LogIndex> {
        match &self.role {
            Role::Leader(leader) => leader.peers.get(&peer).map(|progress| progress.matched),
            Role::Follower(_) | Role::PreCandidate(_) | Role::Candidate(_) => None,
        }
    }

    /// The entry at `index`, if it is in memory.
    #[must_use]
    pub fn entry(&self, index: LogIndex) -> Option<&Entry> {
        self.log.entry(index)
    }
}
