//! Tuning: the optimisations of one peer, which its driver may turn off and on while it runs.
//!
//! In:    a [`Tuning`], at any moment.
//! Out:   the same peer, which goes by it from its next step on.
//! Rules: 1. Every tuning is safe, and so is every change, whatever the other members are tuned to: a switch decides when
//!           something is sent or served, never whether it may be. None of it is recorded, so a restart forgets it.
//!        2. What was begun under another tuning ends as it began: appends in flight beyond a limit that was lowered are
//!           waited for, a read round that was sent is answered, a read that waits for an entry waits for it.
//!        3. Leases that are turned on count rounds that begin from then on. A follower first lengthens its vote hold to
//!           what its answers will state, and states none before that is on record. [settings, rules 3, 4]
//!        4. Leases that are turned off end the lease at once. Vote holds that were granted are kept, and stay on record
//!           until they are over: the leader that relies on them does not know of the change. [L-3, L-4]
//!        5. Reads through the log: an entry of the leader's own term that is committed shows, as a round does, that no
//!           other member led when the entry was appended, after the reads had arrived. They are served at its index.
//!
//! Knows nothing of: flags, what is tuned beside the protocol, why.

use crate::config::{Config, Limits};
use crate::leader_lease::LeaderLease;
use crate::raft::Raft;
use crate::role::{Follower, Role};
use crate::types::Instant;

/// The optimisations of one peer. Those that are off are as in Raft's plainest form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tuning {
    /// More than one entry in an append, and in a sync. [replication-protocols B1, B3]
    pub batching: bool,
    /// With batching: entries in one append, and in one sync; at least 1.
    pub batch_entries_max: usize,
    /// With batching: bytes of entries in one append. One entry always passes.
    pub batch_bytes_max: usize,
    /// More than one append in flight per peer. [replication-protocols B4]
    pub pipelining: bool,
    /// With pipelining: unanswered appends per peer; at least 1.
    pub inflight_msgs_max: usize,
    /// With pipelining: unanswered bytes per peer. One append always passes.
    pub inflight_bytes_max: usize,
    /// Entries leave before they are on the leader's own disk. [replication-protocols B7]
    pub parallel_append: bool,
    /// How a leader shows that it still leads before a read is served.
    pub reads: ReadPath,
}

/// How a leader shows, before a linearizable read is served, that no other member has led meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReadPath {
    /// It commits an entry. Reads that wait together share one. [rule 5]
    Log,
    /// A quorum answers a round, which is not written anywhere. [replication-protocols §9.2]
    Index,
    /// By its clock, while a quorum's vote holds last; otherwise by a round. [replication-protocols §9.4]
    Lease(LeaderLease),
}

impl Default for Tuning {
    /// Everything on that is safe whatever clocks do.
    fn default() -> Tuning {
        let limits = Limits::default();
        Tuning {
            batching: true,
            batch_entries_max: limits.batch_entries_max,
            batch_bytes_max: limits.batch_bytes_max,
            pipelining: true,
            inflight_msgs_max: limits.inflight_msgs_max,
            inflight_bytes_max: limits.inflight_bytes_max,
            parallel_append: true,
            reads: ReadPath::Index,
        }
    }
}

impl Tuning {
    /// Entries in one append, and in one sync.
    #[must_use]
    pub fn batch_entries(&self) -> usize {
        if self.batching { self.batch_entries_max.max(1) } else { 1 }
    }
}

impl Config {
    /// The tuning of this configuration.
    #[must_use]
    pub fn tuning(&self) -> Tuning {
        let reads = match self.leadership.leader_lease {
            Some(lease) => ReadPath::Lease(lease),
            None if self.reads_through_log => ReadPath::Log,
            None => ReadPath::Index,
        };
        Tuning {
            batching: self.batching,
            batch_entries_max: self.limits.batch_entries_max,
            batch_bytes_max: self.limits.batch_bytes_max,
            pipelining: self.pipelining,
            inflight_msgs_max: self.limits.inflight_msgs_max,
            inflight_bytes_max: self.limits.inflight_bytes_max,
            parallel_append: self.parallel_append,
            reads,
        }
    }

    /// Takes over a tuning.
    pub fn tune(&mut self, tuning: &Tuning) {
        self.batching = tuning.batching;
        self.limits.batch_entries_max = tuning.batch_entries_max;
        self.limits.batch_bytes_max = tuning.batch_bytes_max;
        self.pipelining = tuning.pipelining;
        self.limits.inflight_msgs_max = tuning.inflight_msgs_max;
        self.limits.inflight_bytes_max = tuning.inflight_bytes_max;
        self.parallel_append = tuning.parallel_append;
        self.reads_through_log = tuning.reads == ReadPath::Log;
        self.leadership.leader_lease = match tuning.reads {
            ReadPath::Lease(lease) => Some(lease),
            ReadPath::Log | ReadPath::Index => None,
        };
    }

    /// Entries in one append.
    pub(crate) fn batch_entries(&self) -> usize {
        self.tuning().batch_entries()
    }

    /// Unanswered appends per peer.
    pub(crate) fn inflight_msgs(&self) -> usize {
        if self.pipelining { self.limits.inflight_msgs_max.max(1) } else { 1 }
    }
}

impl Raft {
    /// The tuning that this peer goes by.
    #[must_use]
    pub fn tuning(&self) -> Tuning {
        self.config.tuning()
    }

    /// Whether this peer may go by a tuning.
    ///
    /// # Errors
    /// The rule of [`Config::check`] that it breaks.
    pub fn check_tuning(&self, tuning: &Tuning) -> Result<(), &'static str> {
        let mut config = self.config.clone();
        config.tune(tuning);
        config.check()
    }

    /// Goes by this tuning from now on.
    ///
    /// # Errors
    /// The rule of [`Config::check`] that it breaks; then nothing has changed.
    pub fn tune(&mut self, now: Instant, tuning: &Tuning) -> Result<(), &'static str> {
        self.check_tuning(tuning)?;
        let before = self.config.leadership.leader_lease;
        self.config.tune(tuning);
        if let Role::Leader(leader) = &mut self.role {
            leader.peers.values_mut().for_each(|progress| progress.flow.note_lowered());
            if before != self.config.leadership.leader_lease {
                leader.lease.configure(&self.config);
                leader.stir(now, &self.config);
            }
        }
        match (before.is_some(), self.config.leadership.leader_lease.is_some()) {
            (false, true) => self.begin_vote_holds(),
            (true, false) => self.longer_holds_until = self.longer_holds_until.max(self.vote_hold),
            (false, false) | (true, true) => {}
        }
        Ok(())
    }

    /// Leases are on from now on: what the next answer will state holds since the leader was last heard, and a suspicion
    /// ends no vote hold. [Rule 3]
    fn begin_vote_holds(&mut self) {
        self.lengthen_vote_hold();
        if let Role::Follower(Follower { following: Some(following), .. }) = &mut self.role {
            following.ask_at = None;
        }
        self.draw_election_timer_again();
    }
}
