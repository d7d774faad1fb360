//! Raft's invariants, checked against a record of all commits: Election Safety, Leader Completeness, Log Matching of
//! committed entries, State Machine Safety, honest acknowledgements and votes. [Ongaro14 figure 3.2;
//! replication-protocols O1–O8]

use crate::Peer;
use crate::disk::thaw;
use kattu_raft::message::Message;
use kattu_raft::{
    Entry, EntryId, EntryKind, Envelope, LogIndex, Membership, NodeId, SnapshotMeta, Term, invariants,
};
use std::collections::BTreeMap;

type Peers = BTreeMap<NodeId, Peer>;

/// All commits and all leaders so far.
#[derive(Default)]
pub struct Safety {
    leaders: BTreeMap<Term, NodeId>,
    /// By index − 1: the entry committed there, and its payload once a member has applied it.
    committed: Vec<(EntryId, Option<Vec<u8>>)>,
    /// By index − 1: the term in which it was committed, which may be later than the entry's own.
    committed_in: Vec<Term>,
    /// The members, by the index of their committed configuration entry, once a member has applied it.
    members: BTreeMap<LogIndex, Membership>,
    /// Each member's marks at its last check.
    seen: BTreeMap<NodeId, Seen>,
}

#[derive(Clone, Copy, Default)]
struct Seen {
    committed: LogIndex,
    delivered: LogIndex,
    term: Term,
    /// Highest index delivered in earlier runs: what this member's clients may have seen.
    served: LogIndex,
}

impl Safety {
    /// Highest index that any member ever committed.
    pub fn highest_commit(&self) -> LogIndex {
        LogIndex(self.committed.len() as u64)
    }

    /// Highest index that earlier runs of this member have delivered: what its clients may have seen.
    pub fn served(&self, id: NodeId) -> LogIndex {
        self.seen.get(&id).map_or(LogIndex(0), |seen| seen.served)
    }

    /// A member starts: its marks begin at the state of its disk.
    pub fn started(&mut self, id: NodeId, peers: &Peers) {
        let Some(raft) = &peers[&id].raft else { return };
        let former = self.seen.get(&id).copied().unwrap_or_default();
        let served = former.served.max(former.delivered);
        let delivered = raft.applied_delivered();
        let seen = Seen { committed: raft.committed(), delivered, term: raft.term(), served };
        assert!(seen.committed <= self.highest_commit(), "{} recovers a commit nobody made", id.0);
        self.seen.insert(id, seen);
        self.observe(id, peers, &[], None, &[]);
    }

    /// Checks a member after a step.
    pub fn observe(
        &mut self,
        id: NodeId,
        peers: &Peers,
        sent: &[Envelope],
        install: Option<&SnapshotMeta>,
        delivered: &[Entry],
    ) {
        let Some(raft) = &peers[&id].raft else { return };
        if let Err(violation) = invariants::check(raft) {
            panic!("member {}: {violation}", id.0);
        }
        let seen = self.seen[&id];
        assert!(seen.committed <= raft.committed(), "commit of {} fell", id.0);
        assert!(seen.term <= raft.term(), "term of {} fell", id.0);
        self.check_leader(id, peers);
        self.check_commits(id, peers, seen.committed);
        let before = self.check_install(id, peers, install).unwrap_or(seen.delivered);
        self.check_delivered(id, before, delivered);
        for envelope in sent {
            check_honesty(id, peers, envelope);
        }
        let delivered = raft.applied_delivered();
        self.seen.insert(
            id,
            Seen { committed: raft.committed(), delivered, term: raft.term(), served: seen.served },
        );
    }

    /// One leader per term; it holds everything that was committed in earlier terms.
    fn check_leader(&mut self, id: NodeId, peers: &Peers) {
        let Some(raft) = &peers[&id].raft else { return };
        if !raft.is_leader() {
            return;
        }
        let first = *self.leaders.entry(raft.term()).or_insert(id);
        assert_eq!(first, id, "two leaders in {:?} [Election Safety]", raft.term());
        for ((entry, _), &term) in self.committed.iter().zip(&self.committed_in) {
            let covered = entry.index < raft.base().index;
            let holds = covered || raft.term_at(entry.index) == Some(entry.term);
            assert!(holds || term >= raft.term(), "leader {} lacks {entry} [Leader Completeness]", id.0);
        }
    }

    /// An entry committed anywhere is the same everywhere. The first member to commit is a leader, by an entry of its
    /// own term, and a quorum of disks holds everything up to there.
    fn check_commits(&mut self, id: NodeId, peers: &Peers, before: LogIndex) {
        let Some(raft) = &peers[&id].raft else { return };
        let new_from = self.highest_commit();
        for index in (before.0 + 1..=raft.committed().0).map(LogIndex) {
            if index < raft.base().index {
                assert!(index <= new_from, "{} installs {index:?}, which nobody committed", id.0);
                continue;
            }
            let term = raft.term_at(index).unwrap_or_else(|| panic!("{} commits nothing at {index:?}", id.0));
            let entry = EntryId { term, index };
            match self.committed.get(index.0 as usize - 1) {
                Some((known, _)) => {
                    assert_eq!(*known, entry, "{} commits otherwise [State Machine Safety]", id.0)
                }
                None => {
                    // A leader that is no voter any more resigns with the commit of that, so it may follow already.
                    let led = self.leaders.get(&raft.term()) == Some(&id);
                    assert!(led, "{} commits {entry} before any leader did", id.0);
                    let holds = |voter: NodeId| peers[&voter].disk.held(entry);
                    let held: Vec<u64> =
                        peers.keys().filter(|&&peer| holds(peer)).map(|peer| peer.0).collect();
                    let membership = raft.membership();
                    assert!(
                        membership.has_quorum(holds),
                        "{} commits {entry}, durable on {held:?} only, of {membership:?} [O2]",
                        id.0
                    );
                    self.committed.push((entry, None));
                    self.committed_in.push(raft.term());
                }
            }
        }
        if new_from < self.highest_commit() {
            let term = raft.term_at(self.highest_commit());
            assert_eq!(term, Some(raft.term()), "{} commits by an entry of an older term [O3]", id.0);
        }
    }

    /// A snapshot is delivered to a store only when the log's new base is durable.
    fn check_install(&self, id: NodeId, peers: &Peers, install: Option<&SnapshotMeta>) -> Option<LogIndex> {
        let meta = install?;
        let disk = &peers[&id].disk;
        assert!(disk.durable.holds(meta.last), "{} installs {} before its base is durable", id.0, meta.last);
        let file = disk.snapshots.iter().find(|(known, _)| known.last == meta.last);
        let (_, bytes) = file.unwrap_or_else(|| panic!("{} installs {} without a file", id.0, meta.last));
        self.check_snapshot(meta, bytes);
        Some(meta.last.index)
    }

    /// A snapshot holds all committed entries up to its end and nothing else, and the members as of then.
    pub fn check_snapshot(&self, meta: &SnapshotMeta, bytes: &[u8]) {
        let store = thaw(bytes);
        assert_eq!(store.len() as u64, meta.last.index.0, "a snapshot with gaps");
        for ((entry, payload), (known, said)) in store.iter().zip(&self.committed) {
            assert_eq!(entry, known, "a snapshot holds another entry [State Machine Safety]");
            assert!(said.as_ref().is_none_or(|said| said == payload), "another payload at {entry}");
        }
        let known = self.members.range(..=meta.last.index).next_back();
        let said = (&meta.membership_at, &meta.membership);
        if let Some(known) = known {
            assert_eq!(known, said, "a snapshot of {} with other members than committed [N1]", meta.last);
        } else {
            assert_eq!(
                meta.membership_at,
                LogIndex(0),
                "a snapshot of {} with members nobody committed",
                meta.last
            );
        }
    }

    /// Entries are delivered in order, each once, after they were committed, with one payload everywhere.
    fn check_delivered(&mut self, id: NodeId, before: LogIndex, delivered: &[Entry]) {
        for (entry, index) in delivered.iter().zip(before.0 + 1..) {
            assert_eq!(entry.id().index.0, index, "{} applies out of order", id.0);
            let known = self.committed.get_mut(index as usize - 1);
            let (known, payload) =
                known.unwrap_or_else(|| panic!("{} applies {} uncommitted", id.0, entry.id()));
            assert_eq!(*known, entry.id(), "{} applies another entry [State Machine Safety]", id.0);
            let applied = entry.payload().expect("apply gets whole entries");
            let payload = payload.get_or_insert_with(|| applied.to_vec());
            assert_eq!(payload, applied, "{} applies another payload at {known}", id.0);
            if entry.head.kind == EntryKind::Config {
                let (membership, context) = Membership::decode(applied).expect("a membership");
                assert!(context.is_empty() || context == b"context", "the context is the caller's");
                self.members.insert(entry.id().index, membership);
            }
        }
    }
}

/// A message states nothing that its sender's disk could forget.
fn check_honesty(id: NodeId, peers: &Peers, envelope: &Envelope) {
    let disk = &peers[&id].disk.durable;
    assert_eq!(envelope.from, id);
    assert!(envelope.term <= disk.hard.term, "{} speaks of a term its disk does not know", id.0);
    match &envelope.message {
        Message::AppendReply(reply) => {
            let upto = reply.upto;
            assert!(upto <= disk.last().index, "{} acknowledges {upto:?} before its disk has it [O1]", id.0);
            let leader = peers[&envelope.to].raft.as_ref();
            let Some(leader) = leader.filter(|raft| raft.is_leader() && raft.term() == envelope.term) else {
                return;
            };
            let first = disk.base.index.max(leader.base().index);
            for index in (first.0..=upto.0).map(LogIndex) {
                let (here, there) = (disk.term_at(index), leader.term_at(index));
                assert_eq!(here, there, "{} acknowledges {upto:?}, but {index:?} differs [O1]", id.0);
            }
        }
        Message::VoteReply(reply) if reply.granted => {
            assert_eq!(disk.hard.vote, Some(envelope.to), "{} gives a vote it could forget", id.0);
            let vote_floor = peers[&id].disk.vote_floor;
            let below = peers[&id].raft.as_ref().is_some_and(|raft| Some(raft.last_id()) < vote_floor);
            let candidate = peers[&envelope.to].raft.as_ref().filter(|raft| raft.term() == envelope.term);
            if let Some(candidate) = candidate.filter(|_| below) {
                let last = Some(candidate.last_id());
                assert!(
                    vote_floor <= last,
                    "{} votes for {last:?} below its floor {vote_floor:?} [ST7]",
                    id.0
                );
            }
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
        | Message::TimeoutNow(_)
        | Message::StaleTerm(_)
        | Message::Lost(_)
        | Message::Remind(_)
        | Message::Reminder(_) => {}
    }
}
