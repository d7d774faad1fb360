//! Tuning: the optimisations of one replica, which its driver may turn off and on while it runs.
//!
//! In:    a [`Tuning`], at any moment.
//! Out:   the same replica, which goes by it from its next step on.
//! Rules: 1. As in [`kattu_raft::tuning`]: every tuning and every change is safe, whatever the other members are tuned to.
//!        2. Batching covers what a client's write shares with others: an entry, a message to the leader, an append, a sync.
//!        3. A write that lingers waits for others to share a batch with. It waits at most for so long, and not once a batch is
//!           full. It has a deadline like everything that waits, so a lone write needs no other to wake it.
//!        4. With the apply gate, a leader puts a write into its log when everything before has been applied here, as a server
//!           does that handles one request after the other. Only this leader's apply counts, so the gate opens again whatever
//!           becomes of the others.
//!        5. Without batching, reads that go through the log have an entry each.
//!
//! Knows nothing of: flags, threads, disks.

use crate::node::Node;
use kattu_raft::{Duration, Instant, ReadPath};

/// The optimisations of one replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tuning {
    /// Those of the protocol.
    pub raft: kattu_raft::Tuning,
    /// With batching: how long a write may wait for others. Zero: batches form of what has come while the one before was under
    /// way. [replication-protocols B1]
    pub batch_linger: Duration,
    /// A leader accepts no further write before the last one is applied. [rule 4]
    pub apply_gate: bool,
}

impl Node {
    /// The tuning that this replica goes by.
    #[must_use]
    pub fn tuning(&self) -> Tuning {
        Tuning {
            raft: self.raft.tuning(),
            batch_linger: self.config.batch_linger,
            apply_gate: self.config.apply_gate,
        }
    }

    /// Whether this replica may go by a tuning.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn check_tuning(&self, tuning: &Tuning) -> Result<(), &'static str> {
        self.raft.check_tuning(&tuning.raft)
    }

    pub(crate) fn on_tune(&mut self, now: Instant, tuning: &Tuning) {
        if self.raft.tune(now, &tuning.raft).is_ok() {
            (self.config.batch_linger, self.config.apply_gate) = (tuning.batch_linger, tuning.apply_gate);
        }
    }

    /// Whether the writes of others share entries and messages with a client's.
    pub(crate) fn batches(&self) -> bool {
        self.raft.tuning().batching
    }

    /// Whether the oldest of these writes waits for others to share a batch with; until when. [Rule 3]
    pub(crate) fn lingers(&self, now: Instant, oldest: Instant, count: usize) -> Option<Instant> {
        let is_short = self.batches() && count < self.raft.tuning().batch_entries_max;
        Some(oldest + self.config.batch_linger).filter(|&until| is_short && now < until)
    }

    /// Whether this leader must apply what is in its log before it accepts more. [Rule 4]
    pub(crate) fn is_gated(&self) -> bool {
        self.config.apply_gate && self.raft.applied_index() < self.raft.last_id().index
    }

    /// Whether each read has a batch of its own. [Rule 5]
    pub(crate) fn reads_one_by_one(&self) -> bool {
        let tuning = self.raft.tuning();
        !tuning.batching && tuning.reads == ReadPath::Log
    }
}
