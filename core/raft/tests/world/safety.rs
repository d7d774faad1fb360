//! What must never happen, checked against a record of everything that did: Election Safety, Leader Completeness,
//! Log Matching of what is committed, State Machine Safety, honest acknowledgements and votes.
//! [Ongaro14 figure 3.2; replication-protocols O1–O8]

use super::Peer;
use kattu_raft::message::{AppendVerdict, Message};
use kattu_raft::{Entry, EntryId, Envelope, LogIndex, NodeId, Term, invariants};
use std::collections::BTreeMap;

type Peers = BTreeMap<NodeId, Peer>;

/// Everything that was ever committed, and who led.
#[derive(Default)]
pub struct Safety {
    leaders: BTreeMap<Term, NodeId>,
    /// By index − 1: what was committed there, and its payload once somebody applied it.
    committed: Vec<(EntryId, Option<Vec<u8>>)>,
    /// Each member's marks when it was last looked at.
    seen: BTreeMap<NodeId, Seen>,
}

#[derive(Clone, Copy, Default)]
struct Seen {
    committed: LogIndex,
    handed: LogIndex,
    term: Term,
    /// Highest index handed out in earlier runs: what this member's clients may have seen.
    served: LogIndex,
}

impl Safety {
    /// Highest index that any member ever committed.
    pub fn highest_commit(&self) -> LogIndex {
        LogIndex(self.committed.len() as u64)
    }

    /// A member starts anew: its marks begin at what its disk holds.
    pub fn started(&mut self, id: NodeId, peers: &Peers) {
        let Some(raft) = &peers[&id].raft else { return };
        let former = self.seen.get(&id).copied().unwrap_or_default();
        let served = former.served.max(former.handed);
        let handed = raft.applied_handed_out();
        let seen = Seen { committed: raft.committed(), handed, term: raft.term(), served };
        assert!(seen.committed <= self.highest_commit(), "{} recovers a commit nobody made", id.0);
        self.seen.insert(id, seen);
        self.observe(id, peers, &[], &[]);
    }

    /// A member did something.
    pub fn observe(&mut self, id: NodeId, peers: &Peers, sent: &[Envelope], handed: &[Entry]) {
        let Some(raft) = &peers[&id].raft else { return };
        if let Err(violation) = invariants::check(raft) {
            panic!("member {}: {violation}", id.0);
        }
        let seen = self.seen[&id];
        assert!(seen.committed <= raft.committed(), "commit of {} fell", id.0);
        assert!(seen.term <= raft.term(), "term of {} fell", id.0);
        self.check_leader(id, peers);
        self.check_commits(id, peers, seen.committed);
        self.check_handed(id, seen.handed, handed);
        for envelope in sent {
            check_honesty(id, peers, envelope);
        }
        if let Some(confirmed) = raft.confirmed() {
            let served = seen.served;
            assert!(served <= confirmed, "{} goes back from {served:?} to {confirmed:?} [ST17]", id.0);
        }
        let handed = raft.applied_handed_out();
        self.seen
            .insert(id, Seen { committed: raft.committed(), handed, term: raft.term(), served: seen.served });
    }

    /// One leader per term; it holds everything that was committed in earlier terms.
    fn check_leader(&mut self, id: NodeId, peers: &Peers) {
        let Some(raft) = &peers[&id].raft else { return };
        if !raft.is_leader() {
            return;
        }
        let first = *self.leaders.entry(raft.term()).or_insert(id);
        assert_eq!(first, id, "two leaders in {:?} [Election Safety]", raft.term());
        for (entry, _) in &self.committed {
            let holds = raft.term_at(entry.index) == Some(entry.term);
            assert!(
                holds || entry.term >= raft.term(),
                "leader {} lacks {entry} [Leader Completeness]",
                id.0
            );
        }
    }

    /// What is committed anywhere is committed everywhere alike; who commits first is a leader, of an entry of its
    /// own term, and a quorum of disks holds everything up to there.
    fn check_commits(&mut self, id: NodeId, peers: &Peers, before: LogIndex) {
        let Some(raft) = &peers[&id].raft else { return };
        let new_from = self.highest_commit();
        for index in (before.0 + 1..=raft.committed().0).map(LogIndex) {
            let term = raft.term_at(index).unwrap_or_else(|| panic!("{} commits nothing at {index:?}", id.0));
            let entry = EntryId { term, index };
            match self.committed.get(index.0 as usize - 1) {
                Some((known, _)) => {
                    assert_eq!(*known, entry, "{} commits otherwise [State Machine Safety]", id.0)
                }
                None => {
                    assert!(raft.is_leader(), "{} commits {entry} before any leader did", id.0);
                    let voters = raft.voters();
                    let holds = |voter: &&NodeId| peers[voter].disk.durable.term_at(index) == Some(term);
                    let held = voters.iter().filter(holds).count();
                    assert!(held > voters.len() / 2, "{} commits {entry}, durable on {held} only [O2]", id.0);
                    self.committed.push((entry, None));
                }
            }
        }
        if new_from < self.highest_commit() {
            let term = raft.term_at(self.highest_commit());
            assert_eq!(term, Some(raft.term()), "{} commits by an entry of an older term [O3]", id.0);
        }
    }

    /// Entries are handed out in order, each once, after they were committed, with one payload everywhere.
    fn check_handed(&mut self, id: NodeId, before: LogIndex, handed: &[Entry]) {
        for (entry, index) in handed.iter().zip(before.0 + 1..) {
            assert_eq!(entry.id().index.0, index, "{} applies out of order", id.0);
            let known = self.committed.get_mut(index as usize - 1);
            let (known, payload) =
                known.unwrap_or_else(|| panic!("{} applies {} uncommitted", id.0, entry.id()));
            assert_eq!(*known, entry.id(), "{} applies another entry [State Machine Safety]", id.0);
            let payload = payload.get_or_insert_with(|| entry.payload().to_vec());
            assert_eq!(payload, entry.payload(), "{} applies another payload at {known}", id.0);
        }
    }
}

/// A message says nothing that its sender's disk could forget.
fn check_honesty(id: NodeId, peers: &Peers, envelope: &Envelope) {
    let disk = &peers[&id].disk.durable;
    assert_eq!(envelope.from, id);
    assert!(envelope.term <= disk.hard.term, "{} speaks of a term its disk does not know", id.0);
    match &envelope.message {
        Message::AppendReply(reply) => {
            let AppendVerdict::Match { upto } = reply.verdict else { return };
            assert!(
                upto.0 <= disk.log.len() as u64,
                "{} acknowledges {upto:?} before its disk has it [O1]",
                id.0
            );
            let leader = peers[&envelope.to].raft.as_ref();
            let Some(leader) = leader.filter(|raft| raft.is_leader() && raft.term() == envelope.term) else {
                return;
            };
            for index in (1..=upto.0).map(LogIndex) {
                let (here, there) = (disk.term_at(index), leader.term_at(index));
                assert_eq!(here, there, "{} acknowledges {upto:?}, but {index:?} differs [O1]", id.0);
            }
        }
        Message::VoteReply(reply) if reply.granted => {
            assert_eq!(disk.hard.vote, Some(envelope.to), "{} gives a vote it could forget", id.0);
        }
        Message::Vote(_) => assert_eq!(disk.hard.vote, Some(id), "{} campaigns without its own vote", id.0),
        Message::Append(_)
        | Message::PreVote(_)
        | Message::PreVoteReply(_)
        | Message::VoteReply(_)
        | Message::ReadIndex(_)
        | Message::ReadIndexReply(_)
        | Message::SnapshotChunk(_)
        | Message::SnapshotReply(_)
        | Message::TimeoutNow(_) => {}
    }
}
