//! Linearizable reads: determines the index from which on a read may be served.
//!
//! In:    batches of reads, here or at followers; answers to rounds; commits.
//! Out:   verdicts: an index to wait for in the store, or none.
//! Rule:  1. A leader that has not committed an entry of its term lets reads wait: it may not know what its predecessor
//!           answered. [Q1]
//!        2. The index is the commit index when the round begins, after the reads arrived. [Q2]
//!        3. The round is a message to every voter. A quorum of answers to *that* round, or a later one, shows that no
//!           other member led when it began. One round is under way at a time, and reads that arrive meanwhile share
//!           the next; lost messages are repeated by heartbeats. [Q3, Q5]
//!        4. A follower asks its leader, which does 1–3; it serves when it has applied that far itself. [Q6]
//!        5. An answer to one request answers all earlier ones: it is about a later moment than they need. So a
//!           follower repeats its newest request only, and nothing grows while a leader cannot answer.
//!        6. Where reads go through the log, an entry takes the place of the round. [`crate::tuning`]
//!        7. A change of leader, or the loss of leadership, fails pending reads: they are safe to repeat. [Q8]
//! Knows nothing of: keys, clients.

use crate::canonical::Canonical;
use crate::contract::{Effects, ReadBatch, ReadVerdict};
use crate::entry::EntryKind;
use crate::leading::Leading;
use crate::message::{Message, ReadIndex, ReadIndexReply};
use crate::raft::Raft;
use crate::role::{Follower, Role};
use crate::types::{Instant, LogIndex, NodeId, Round};
use alloc::vec::Vec;

/// Requests of one peer that wait for the next round. Beyond this the oldest is dropped, as a later answer covers it. A
/// peer needs one. A peer of version 0.1 matches each answer to its own request only, and has as many open.
const QUESTIONS_MAX: usize = 16;

/// The origin of a read at a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reader {
    /// A batch of this peer.
    Own(ReadBatch),
    /// A follower's batch, under the number it has on the wire.
    Peer(NodeId, u64),
}

/// A round under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ReadRound {
    proof: Proof,
    index: LogIndex,
    readers: Vec<Reader>,
}

/// What shows that the leader still led when its round began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Proof {
    /// A quorum's answers to this round, or a later one.
    Answers(Round),
    /// The commit of the entry at the round's index, which was made for it. [tuning, rule 5]
    Entry,
}

/// A leader's pending reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct ReadQueue {
    /// Reads that share the next round: of this peer's batches the newest only, of each other peer's at most
    /// [`QUESTIONS_MAX`].
    pub(crate) waiting: Vec<Reader>,
    /// The round that is under way.
    pub(crate) under_way: Option<ReadRound>,
}

impl ReadQueue {
    /// Whether no read waits, for a round or for the answers to one.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.under_way.is_none()
    }

    /// Adds a read to the next round. A repeated request replaces its earlier copy if that still waits.
    fn join(&mut self, reader: Reader) {
        let is_same = |waiting: &Reader| match (waiting, &reader) {
            (Reader::Own(_), Reader::Own(_)) => true,
            (waiting, reader) => waiting == reader,
        };
        self.waiting.retain(|waiting| !is_same(waiting));
        if let Reader::Peer(peer, _) = reader {
            let of_peer = |waiting: &Reader| matches!(waiting, Reader::Peer(from, _) if *from == peer);
            let is_full = self.waiting.iter().filter(|&waiting| of_peer(waiting)).count() >= QUESTIONS_MAX;
            if is_full && let Some(oldest) = self.waiting.iter().position(of_peer) {
                self.waiting.remove(oldest);
            }
        }
        self.waiting.push(reader);
    }

    /// Drops this peer's own batches: all of them are answered.
    fn forget_own(&mut self) {
        let under_way = self.under_way.iter_mut().map(|round| &mut round.readers);
        for readers in under_way.chain([&mut self.waiting]) {
            readers.retain(|reader| !matches!(reader, Reader::Own(_)));
        }
    }
}

/// Unanswered requests of a follower to its leader, and when to repeat them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PendingReads {
    /// The first and the last batch that waits.
    open: Option<(ReadBatch, ReadBatch)>,
    retry_at: Instant,
}

impl Default for PendingReads {
    fn default() -> PendingReads {
        PendingReads { open: None, retry_at: Instant::NEVER }
    }
}

impl PendingReads {
    pub(crate) fn retry_at(&self) -> Instant {
        self.retry_at
    }

    /// Adds `batch` as the newest one that waits.
    fn add(&mut self, batch: ReadBatch) {
        let first = self.open.map_or(batch, |(first, _)| first);
        self.open = Some((first, batch));
    }

    /// Answers `batch`, and with it all earlier ones; `false` if it did not wait.
    fn settle(&mut self, batch: ReadBatch) -> bool {
        let Some((first, last)) = self.open else { return false };
        if batch < first || last < batch {
            return false;
        }
        self.open = (batch < last).then_some((ReadBatch(batch.0 + 1), last));
        true
    }

    /// See [`crate::canonical`].
    pub(crate) fn canonicalize(&mut self, canonical: &Canonical) {
        self.retry_at = canonical.deadline(self.retry_at, canonical.heartbeat_interval);
    }
}

impl Leading<'_> {
    /// Begins the next round at once if there are no other voters to ask. [Q7]
    fn start_round_alone(&mut self, now: Instant, effects: &mut Effects) {
        if !self.view.config.reads_through_log && self.view.membership.is_alone(self.view.config.id) {
            self.start_read_round(now, effects);
        }
    }

    /// Begins the next round if reads wait, none is under way, and the term has committed an entry. [Q1–Q3]
    pub(crate) fn start_read_round(&mut self, now: Instant, effects: &mut Effects) {
        let Leading { leader, view, .. } = self;
        let ready = leader.term_start <= view.marks.committed;
        if leader.reads.waiting.is_empty() || leader.reads.under_way.is_some() || !ready {
            return;
        }
        leader.round = leader.round.next();
        leader.lease.stamp(leader.round, now);
        leader.stir(now, view.config);
        let readers = core::mem::take(&mut leader.reads.waiting);
        let index = view.marks.committed;
        leader.reads.under_way = Some(ReadRound { proof: Proof::Answers(leader.round), index, readers });
        for (&peer, progress) in &mut leader.peers {
            let is_behind = progress.is_behind(view.log.recent_first());
            if view.membership.is_voter(peer) && progress.liveness.takes_round(leader.round, is_behind) {
                effects.send.push(view.send_empty(peer, progress, leader.round));
            }
        }
        self.settle_read_round(effects);
    }

    /// A voter that is behind has answered. If a round has begun meanwhile that was not sent to it, it is sent now.
    pub(crate) fn ask_round_left_out(&mut self, peer: NodeId, effects: &mut Effects) {
        let Leading { leader, view, .. } = self;
        let Some(ReadRound { proof: Proof::Answers(round), .. }) = leader.reads.under_way else { return };
        let Some(progress) = leader.peers.get_mut(&peer) else { return };
        let is_behind = progress.is_behind(view.log.recent_first());
        let is_left_out = progress.liveness.contact_round() < round && is_behind;
        let takes = is_left_out && view.membership.is_voter(peer);
        if takes && progress.liveness.takes_round(leader.round, is_behind) {
            effects.send.push(view.send_empty(peer, progress, leader.round));
        }
    }

    /// The newest round that a quorum has answered; this leader counts as having answered all.
    fn confirmed_round(&self) -> Option<Round> {
        self.reached(self.leader.round, |progress| progress.liveness.contact_round())
    }

    /// Ends the round under way if a quorum has answered it, or its entry is committed.
    pub(crate) fn settle_read_round(&mut self, effects: &mut Effects) {
        let confirmed_round = self.confirmed_round();
        let Leading { leader, view, .. } = self;
        let Some(under_way) = &leader.reads.under_way else { return };
        let confirmed = match under_way.proof {
            Proof::Answers(round) => Some(round) <= confirmed_round,
            Proof::Entry => under_way.index <= view.marks.committed,
        };
        if !confirmed {
            return;
        }
        let Some(ReadRound { index, readers, .. }) = leader.reads.under_way.take() else { return };
        for reader in readers {
            match reader {
                Reader::Own(batch) => effects.reads.push(ReadVerdict { upto: batch, index: Some(index) }),
                Reader::Peer(peer, batch) => {
                    if let Some(progress) = leader.peers.get_mut(&peer) {
                        progress.commit_sent = progress.commit_sent.max(index);
                    }
                    let reply = Message::ReadIndexReply(ReadIndexReply { batch, index: Some(index) });
                    effects.send.push(view.envelope(peer, reply));
                }
            }
        }
    }
}

impl Raft {
    /// The inbox is empty: where reads go through the log, those that wait get an entry, unless one is under way. While the
    /// log takes no entry, a round shows the same. [tuning, rule 5]
    pub(crate) fn start_read_entry(&mut self, now: Instant, effects: &mut Effects) {
        let Some(leader) = self.role.leader().filter(|_| self.config.reads_through_log) else { return };
        let ready = leader.term_start <= self.marks.committed;
        if leader.reads.waiting.is_empty() || leader.reads.under_way.is_some() || !ready {
            return;
        }
        let Ok(id) = self.propose(now, EntryKind::Noop, &[], effects) else { return };
        if let Some(leader) = self.role.leader_mut() {
            let readers = core::mem::take(&mut leader.reads.waiting);
            leader.reads.under_way = Some(ReadRound { proof: Proof::Entry, index: id.index, readers });
        }
    }

    /// The commit index has moved: the entry of a read round may be committed.
    pub(crate) fn settle_read_entry(&mut self, effects: &mut Effects) {
        if let Some(mut leading) = self.leading()
            && let Some(ReadRound { proof: Proof::Entry, .. }) = leading.leader.reads.under_way
        {
            leading.settle_read_round(effects);
        }
    }

    /// Requests the index from which on the reads of `batch` may be served. The verdict comes with the effects, now or
    /// later; the verdict on a later batch covers it too. Batch numbers ascend and are never used twice in one run.
    pub fn read(&mut self, now: Instant, batch: ReadBatch, effects: &mut Effects) {
        if let Some(index) = self.index_by_lease(now) {
            if let Some(leader) = self.role.leader_mut() {
                leader.reads.forget_own();
            }
            return effects.reads.push(ReadVerdict { upto: batch, index: Some(index) });
        }
        let retry_after = self.config.heartbeat_interval;
        match &mut self.role {
            Role::Leader(leader) => {
                leader.reads.join(Reader::Own(batch));
                if let Some(mut leading) = self.leading() {
                    leading.start_round_alone(now, effects);
                }
            }
            Role::Follower(Follower { following: Some(following), .. }) => {
                let leader = following.leader;
                following.pending_reads.add(batch);
                following.pending_reads.retry_at = following.pending_reads.retry_at.min(now + retry_after);
                self.ask_leader(leader, batch, effects);
            }
            Role::Follower(Follower { following: None, .. }) => {
                effects.reads.push(ReadVerdict { upto: batch, index: None });
            }
            Role::PreCandidate(_) | Role::Candidate(_) => {
                effects.reads.push(ReadVerdict { upto: batch, index: None })
            }
        }
    }

    fn ask_leader(&mut self, leader: NodeId, batch: ReadBatch, effects: &mut Effects) {
        let request = ReadIndex { batch: batch.0.wrapping_add(self.read_nonce) };
        self.send_when_durable(self.envelope(leader, Message::ReadIndex(request)), effects);
    }

    /// Requests or answers may have been lost: repeats the newest request, which covers all.
    pub(crate) fn tick_asked_reads(&mut self, now: Instant, effects: &mut Effects) {
        let retry_at = now + self.config.heartbeat_interval;
        let Role::Follower(follower) = &mut self.role else { return };
        let Some(following) = &mut follower.following else { return };
        if now < following.pending_reads.retry_at {
            return;
        }
        let (leader, open) = (following.leader, following.pending_reads.open);
        let newest = open.map(|(_, last)| last);
        following.pending_reads.retry_at = newest.map_or(Instant::NEVER, |_| retry_at);
        if let Some(newest) = newest {
            self.ask_leader(leader, newest, effects);
        }
    }

    /// A follower's request.
    pub(crate) fn on_read_index(
        &mut self,
        now: Instant,
        from: NodeId,
        request: &ReadIndex,
        effects: &mut Effects,
    ) {
        if let Some(reply) = self.answer_by_lease(now, from, request.batch) {
            return effects.send.push(reply);
        }
        let Some(mut leading) = self.leading() else { return };
        leading.leader.reads.join(Reader::Peer(from, request.batch));
        leading.start_round_alone(now, effects);
    }

    /// A follower's request to a peer that does not lead.
    pub(crate) fn refuse_read_index(&mut self, from: NodeId, request: &ReadIndex, effects: &mut Effects) {
        let reply = ReadIndexReply { batch: request.batch, index: None };
        self.send_when_durable(self.envelope(from, Message::ReadIndexReply(reply)), effects);
    }

    /// The leader's answer. The commit index in it is as good as one in an append. [Q6]
    pub(crate) fn on_read_index_reply(
        &mut self,
        now: Instant,
        from: NodeId,
        reply: &ReadIndexReply,
        effects: &mut Effects,
    ) {
        let nonce = self.read_nonce;
        let Role::Follower(follower) = &mut self.role else { return };
        let Some(following) = &mut follower.following else { return };
        if following.leader != from {
            return; // only the leader of this term can know
        }
        following.told = following.told.max(reply.index.unwrap_or_default());
        let batch = ReadBatch(reply.batch.wrapping_sub(nonce));
        if following.pending_reads.settle(batch) {
            effects.reads.push(ReadVerdict { upto: batch, index: reply.index });
        }
        if following.pending_reads.open.is_none() {
            following.pending_reads.retry_at = Instant::NEVER;
        }
        self.advance_commit_as_follower(now, effects);
    }

    /// The role `former` is over: its pending reads get no index. [Q8]
    pub(crate) fn fail_reads(former: Role, effects: &mut Effects) {
        match former {
            Role::Follower(follower) => {
                let open = follower.following.and_then(|following| following.pending_reads.open);
                effects.reads.extend(open.map(|(_, last)| ReadVerdict { upto: last, index: None }));
            }
            Role::Leader(leader) => {
                let under_way = leader.reads.under_way.into_iter().flat_map(|round| round.readers);
                for reader in under_way.chain(leader.reads.waiting) {
                    match reader {
                        Reader::Own(batch) => effects.reads.push(ReadVerdict { upto: batch, index: None }),
                        Reader::Peer(..) => {} // the new term fails it there, or the peer asks again
                    }
                }
            }
            Role::PreCandidate(_) | Role::Candidate(_) => {}
        }
    }
}
