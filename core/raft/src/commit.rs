//! Commit: decides which entries are committed, and so never lost.
//!
//! In:    each voter's match index, this peer's persisted index (if it votes); on a follower, the commit index of its
//!        leader.
//! Out:   the commit index; it never moves back.
//! Rule:  an entry of the *current* term held by a quorum commits itself and everything before it; older terms commit
//!        only this way [Ongaro14 §3.6.2; script `conflicts/commit_old_term`]. A follower adopts its leader's commit
//!        index as far as its own log is known to agree with the leader's. [replication-protocols O2, O3, L5]
//! Knows nothing of: clients, disks, transports.

use crate::contract::Effects;
use crate::raft::Raft;
use crate::role::Role;
use crate::trace::Trace;
use crate::types::{Instant, LogIndex, NodeId};

impl Raft {
    /// Commits the entries that a quorum of voters holds durably; this leader counts as far as its own disk has come.
    pub(crate) fn advance_commit_as_leader(&mut self, now: Instant, effects: &mut Effects) {
        let Role::Leader(leader) = &self.role else { return };
        let (me, own) = (self.config.id, self.marks.persisted);
        let held = |voter: NodeId| leader.of_voter(me, voter, own, |progress| progress.matched);
        let Some(index) = self.configurations.newest().reached(held) else { return };
        if self.marks.committed < index && self.log.term_at(index) == Some(self.term) {
            self.commit_to(now, index, effects);
        }
    }

    /// Adopts the leader's commit index, as far as this log is known to agree with the leader's. [L5]
    pub(crate) fn advance_commit_as_follower(&mut self, now: Instant, effects: &mut Effects) {
        let Role::Follower(follower) = &self.role else { return };
        let Some(following) = &follower.following else { return };
        let index = following.told.min(following.verified);
        if self.marks.committed < index {
            self.commit_to(now, index, effects);
        } else {
            self.note_confirmed();
        }
    }

    /// Moves the commit index, and continues everything that waits for it.
    fn commit_to(&mut self, now: Instant, index: LogIndex, effects: &mut Effects) {
        let before = self.marks.committed;
        assert!(before < index, "commit went from {before:?} to {index:?}");
        assert!(index <= self.log.last().index, "commit {index:?} beyond the log's end {}", self.log.last());
        self.marks.committed = index;
        if let Role::Leader(leader) = &mut self.role {
            let first_proposal = leader.term_start.next().max(before.next());
            let bytes = self.log.bytes(first_proposal, index);
            assert!(
                bytes <= leader.uncommitted_bytes,
                "{bytes} bytes committed of {}",
                leader.uncommitted_bytes
            );
            leader.uncommitted_bytes -= bytes;
        }
        effects.trace.push(Trace::Committed(index));
        self.commit_mark_wanted(now);
        self.note_own_membership();
        self.note_confirmed();
        self.hand_out(now, effects);
        self.shrink_recent();
        self.follow_up_change(now, effects);
    }

    /// Notes the first commit index learnt from a leader that has committed an entry of its own term: it covers every
    /// answer given before. The index that the leader sent counts, not how far it is committed here. A member with an
    /// earlier run does not take it from an append, which may be older than its restart: it asks. [fault-model ST17]
    pub(crate) fn note_confirmed(&mut self) {
        if self.confirmed.is_some() || self.log.term_at(self.marks.committed) != Some(self.term) {
            return;
        }
        self.confirmed = match &self.role {
            Role::Leader(_) => Some(self.marks.committed),
            Role::Follower(follower) => {
                let told = follower.following.as_ref().map(|following| following.told);
                told.filter(|&told| !self.has_past && self.marks.committed <= told)
            }
            Role::PreCandidate(_) | Role::Candidate(_) => None,
        };
    }
}

#[cfg(test)]
mod tests {
    use crate::canonical::tests::sender;
    use crate::role::Role;
    use crate::{Duration, Effects, EntryKind, Instant, NodeId};

    #[test]
    #[should_panic(expected = "NodeId(2) votes, and its leader NodeId(1) has not met it")]
    fn a_voter_that_its_leader_has_not_met_lends_it_no_disk() {
        let now = Instant(1000);
        let mut raft = sender(now, Duration::ZERO);
        let mut effects = Effects::default();
        raft.propose(now, EntryKind::Command, b"", &mut effects).expect("it leads");
        let written = effects.persist.last().expect("its log takes it").lsn;
        let Role::Leader(leader) = &mut raft.role else { panic!("it leads") };
        leader.peers.remove(&NodeId(2));
        raft.persisted(now, written, &mut effects);
    }
}
