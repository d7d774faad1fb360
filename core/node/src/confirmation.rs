//! Confirmation: from when on a member serves its tables after a start, without going back to what it showed before.
//!
//! ```text
//!  NotYet ──a read's index is delivered──▶ Confirmed
//!     └─no leader for long, the log is replayed──▶ Unconfirmed ──▶ Confirmed
//! ```
//!
//! In:    the commit index found at the start; verdicts on reads; what was delivered.
//! Out:   whether reads that need no round may be served, and from which index on; a read of this member's own.
//! Rules: [fault-model ST7, ST17]
//!   1. The index of a linearizable read covers all that any member had answered before the read was asked, and so all
//!      that an earlier run of this member has served. An append proves nothing: it may be older than the restart.
//!   2. A member asks for one read of its own, as soon as it knows a leader. A client's read proves as much, so the
//!      member asks only while no other read is under way.
//!   3. Until that index is delivered, reads wait. Without a leader a member gives up after three election timeouts and
//!      serves from the commit index found at its start. A member whose disk is empty, or has lost something, never
//!      gives up: it may have served more than it holds.
//!
//! Knows nothing of: clients, the course of a read.

use crate::node::Node;
use kattu_raft::{Duration, Instant, LogIndex, Lsn, MET_ALL, Recovered};

/// How far this member's start has come.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Confirmation {
    serving: Serving,
    /// The commit index found at the start.
    recovered: LogIndex,
    /// The index of the first read that was answered in this run. [Rule 1]
    proof: Option<LogIndex>,
    /// Lowest index whose state may be served at all.
    serves_from: LogIndex,
}

/// Whether reads that need no round may be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Serving {
    /// Not until the proof is delivered, or this moment has come.
    NotYet { give_up: Instant },
    /// From the commit index found at the start.
    Unconfirmed,
    /// From the proof on.
    Confirmed,
}

impl Confirmation {
    /// At the start of a member that has found this in its log.
    pub(crate) fn begin(recovered: &Recovered, now: Instant, election_timeout: Duration) -> Confirmation {
        // An empty disk is no evidence of an empty cluster.
        let is_new = recovered.lsn == Lsn(0) || recovered.hard == MET_ALL;
        let may_lack = is_new || recovered.vote_floor.is_some();
        let give_up = if may_lack { Instant::NEVER } else { now + election_timeout * 3 };
        Confirmation {
            serving: Serving::NotYet { give_up },
            recovered: recovered.committed,
            proof: None,
            serves_from: LogIndex(0),
        }
    }

    /// When this member gives up waiting.
    pub(crate) fn deadline(&self) -> Instant {
        match self.serving {
            Serving::NotYet { give_up } => give_up,
            Serving::Unconfirmed | Serving::Confirmed => Instant::NEVER,
        }
    }

    /// Whether no read of this run has been answered.
    pub(crate) fn lacks_proof(&self) -> bool {
        self.proof.is_none()
    }

    /// A read of this run was answered with this index.
    pub(crate) fn prove(&mut self, index: LogIndex) {
        self.proof.get_or_insert(index);
    }

    /// The keeper has got everything up to here.
    pub(crate) fn delivered(&mut self, delivered: LogIndex) {
        if self.serving != Serving::Confirmed
            && let Some(proof) = self.proof.filter(|&proof| proof <= delivered)
        {
            self.serving = Serving::Confirmed;
            self.serves_from = self.serves_from.max(proof);
        }
    }

    /// Gives up waiting if it is time and the log is replayed. [Rule 3]
    pub(crate) fn tick(&mut self, now: Instant, delivered: LogIndex, again_after: Duration) {
        let Serving::NotYet { give_up } = self.serving else { return };
        if now < give_up {
            return;
        }
        if self.recovered <= delivered {
            (self.serving, self.serves_from) = (Serving::Unconfirmed, self.recovered);
        } else {
            self.serving = Serving::NotYet { give_up: now + again_after };
        }
    }

    /// Whether this member serves, and no read has confirmed its state.
    pub(crate) fn is_unconfirmed(&self) -> bool {
        self.serving == Serving::Unconfirmed
    }
}

impl Node {
    /// Whether reads that need no round may be answered.
    pub(crate) fn serves(&self) -> bool {
        !matches!(self.confirmation.serving, Serving::NotYet { .. })
    }

    /// Lowest index whose state may be served at all.
    pub(crate) fn serves_from(&self) -> LogIndex {
        self.confirmation.serves_from
    }

    /// Whether a read has confirmed this member's state, and everything up to its index is delivered.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.confirmation.serving == Serving::Confirmed
    }

    /// The index of the first read that was answered in this run: no answer that any member gave before the start of
    /// this run is above it. `None` before there was one. [fault-model ST17]
    #[must_use]
    pub fn confirmed(&self) -> Option<LogIndex> {
        self.confirmation.proof
    }
}
