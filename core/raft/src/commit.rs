//! Commit: decides which entries are committed, and so never lost.
//!
//! In:    each voter's match index, this peer's persisted index (if it votes); on a follower, the commit index of its
//!        leader.
//! Out:   the commit index; it never moves back.
//! Rule:  an entry of the *current* term held by a quorum commits itself and everything before it; older terms commit
//!        only this way [Ongaro14 §3.6.2; script `conflicts/commit_old_term`]. Nothing commits from the first entry on
//!        that a later leader might be unable to rebuild [`crate::forms`]. A follower adopts its leader's commit index
//!        as far as its own log is known to agree with the leader's. [replication-protocols O2, O3, L5]
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
        let index = leader.forms.recoverable_to(index, self.configurations.newest(), held);
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
        }
    }

    /// Moves the commit index, and continues everything that waits for it.
    fn commit_to(&mut self, now: Instant, index: LogIndex, effects: &mut Effects) {
        let before = self.marks.committed;
        assert!(before < index, "commit went from {before:?} to {index:?}");
        assert!(index <= self.log.last().index, "commit {index:?} beyond the log's end {}", self.log.last());
        self.marks.committed = index;
        if let Role::Leader(leader) = &mut self.role {
            leader.forms.committed(index);
            if leader.term_start <= index {
                leader.inherited_bytes = 0;
            }
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
        self.hand_out(now, effects);
        self.settle_read_entry(effects);
        self.shrink_recent();
        self.follow_up_change(now, effects);
    }
}

#[cfg(test)]
mod tests {
    use crate::canonical::tests::{config, sender};
    use crate::message::{AppendReply, PreVoteReply, Room, VoteReply};
    use crate::role::Role;
    use crate::{
        Config, Duration, Effects, EntryId, EntryKind, Envelope, Form, GroupId, Incarnation, Instant,
        LogIndex, Message, NodeId, Raft, Recovered, Round, Term,
    };
    use alloc::vec;

    const NOW: Instant = Instant(100_000);

    fn from(peer: u64, term: u64, message: Message) -> Envelope {
        let (from, incarnation) = (NodeId(peer), Incarnation(peer));
        Envelope { group: GroupId(0), from, incarnation, to: NodeId(1), term: Term(term), message }
    }

    /// Leads members 2 and 3, and holds its no-op and two commands whole and durably. Of the first command, entry 2,
    /// members 2 and 3 get one shard each, and either two or both rebuild it.
    fn coding_leader() -> Raft {
        let voters = vec![NodeId(1), NodeId(2), NodeId(3)];
        let mut raft = Raft::recover(Config { voters, ..config() }, 1, Instant(0), Recovered::default());
        let mut effects = Effects::default();
        raft.tick(NOW, &mut effects);
        let yes = PreVoteReply { campaign_term: Term(1), granted: true, round: Round(1) };
        raft.step(NOW, from(2, 0, Message::PreVoteReply(yes)), &mut effects);
        raft.persisted(NOW, effects.persist[0].lsn, &mut effects);
        raft.step(
            NOW,
            from(2, 1, Message::VoteReply(VoteReply { granted: true, last: EntryId::default() })),
            &mut effects,
        );
        for command in [b"coded", b"whole"] {
            raft.propose(NOW, EntryKind::Command, command, &mut effects).expect("it leads");
        }
        let Role::Leader(leader) = &mut raft.role else { panic!("it leads") };
        for (peer, shard) in [(2, 0), (3, 1)] {
            let form = Form::Shard { shard, data: 2 };
            leader.forms.note(LogIndex(2), NodeId(peer), form, LogIndex(0));
        }
        raft.drained(NOW, &mut effects);
        raft.persisted(NOW, effects.persist.last().expect("its entries").lsn, &mut effects);
        assert_eq!((raft.log.last().index, raft.marks.committed), (LogIndex(3), LogIndex(0)));
        raft
    }

    /// Returns the commit index after `peer` has acknowledged the log up to `upto`.
    fn acknowledged(raft: &mut Raft, peer: u64, upto: u64) -> LogIndex {
        let reply = AppendReply {
            round: Round(0),
            vote_hold: Duration::ZERO,
            clock: None,
            disk: Duration::ZERO,
            bulk: Round(0),
            upto: LogIndex(upto),
            gap: None,
            room: Room::PLENTY,
            received: LogIndex(upto),
            early: vec![],
        };
        raft.step(NOW, from(peer, 1, Message::AppendReply(reply)), &mut Effects::default());
        raft.marks.committed
    }

    #[test]
    fn an_entry_held_in_shards_commits_when_every_quorum_can_rebuild_it() {
        let mut raft = coding_leader();
        assert_eq!(
            acknowledged(&mut raft, 2, 3),
            LogIndex(1),
            "members 2 and 3 could elect a leader without it"
        );
        assert_eq!(acknowledged(&mut raft, 3, 1), LogIndex(1), "the whole entry after it does not help");
        assert_eq!(acknowledged(&mut raft, 3, 2), LogIndex(3), "with both shards they rebuild it");
    }

    #[test]
    fn an_entry_held_in_shards_commits_once_a_quorum_holds_it_whole() {
        let mut raft = coding_leader();
        assert_eq!(acknowledged(&mut raft, 2, 3), LogIndex(1));
        let Role::Leader(leader) = &mut raft.role else { panic!("it leads") };
        leader.forms.note(LogIndex(2), NodeId(2), Form::Whole, LogIndex(0));
        raft.advance_commit_as_leader(NOW, &mut Effects::default());
        assert_eq!(raft.marks.committed, LogIndex(3), "member 3 has acknowledged nothing");
    }

    #[test]
    fn a_leader_that_holds_a_part_does_not_count_as_a_whole_copy() {
        let mut raft = coding_leader();
        let Role::Leader(leader) = &mut raft.role else { panic!("it leads") };
        leader.forms.note(LogIndex(2), NodeId(2), Form::Whole, LogIndex(0));
        leader.forms.note(LogIndex(2), NodeId(1), Form::Missing, LogIndex(0));
        assert_eq!(
            acknowledged(&mut raft, 2, 3),
            LogIndex(1),
            "members 1 and 3 could elect a leader without it"
        );
    }

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
