//! Snapshots: how a peer that is behind the log is brought to where the log begins, and how a log loses its beginning.
//!
//! ```text
//!  leader   ReadChunk ─▶ file ─▶ SnapshotChunk ──────────▶ StoreChunk ─▶ file ─▶ … complete: Base on disk ─▶ install
//!                                follower     ◀── SnapshotReply: next byte              then: match
//! ```
//!
//! In:    snapshots taken here; chunks read from the leader's file, sent, and stored in the follower's.
//! Out:   chunks to read, to send, to store; the `Base` record; the order to install.
//! Rules: [replication-protocols N1–N4; fault-model ST9–ST11; Ongaro14 §5]
//!   1. A snapshot covers what is applied, so it is committed for ever, whoever sends it, in whichever term.
//!   2. One chunk per peer is under way. The follower's file says which byte is next, so lost, repeated and late chunks,
//!      a new leader and a restart on either side are one case: go on from there. No more than so many bytes a second go
//!      to one peer. What is not answered for an election timeout may be on its way still, over a link that is slow: it is
//!      asked about by an empty chunk, which travels behind it, and is sent again if the answer says that it never came.
//!   3. Who holds the last entry a snapshot covers, or has committed as much, needs none of it: its log says the same.
//!      Else the whole log is dropped, for none of it lies beyond the snapshot and agrees with it. (hashicorp/raft#697)
//!   4. Nothing of it is told to anybody, or handed to the store, before the log's new base is on disk.
//!   5. A peer that gets a snapshot answers heartbeats like any other, and so counts for rounds and for the quorum.
//!   6. A member whose own snapshots are all lost keeps its vote, does not campaign, acknowledges nothing, and asks its
//!      leader for one.
//!
//! Knows nothing of: what a snapshot contains, files, the store.

use crate::bytes::SharedBytes;
use crate::canonical::Canonical;
use crate::config::Config;
use crate::contract::{Effects, LogBody};
use crate::distrust::Falsehood;
use crate::flow::Mode;
use crate::membership::Membership;
use crate::message::{Message, SnapshotChunk, SnapshotReply};
use crate::progress::Progress;
use crate::raft::Raft;
use crate::replication::View;
use crate::role::{Leader, Role};
use crate::trace::Trace;
use crate::types::{Duration, EntryId, Incarnation, Instant, LogIndex, Lsn, NodeId, Stamp, Term};

/// What a snapshot covers: everything up to `last`, and what raft itself needs to go on from there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SnapshotMeta {
    /// The last entry it covers. Committed.
    pub last: EntryId,
    /// The stamp of that entry: the log's clock goes on from it.
    pub stamp: Stamp,
    /// The configuration in force at `last`. [replication-protocols N1]
    pub membership: Membership,
    /// Where that configuration stands in the log; 0 for the group's first one.
    pub membership_at: LogIndex,
}

/// Please read a piece of a snapshot's file, for a peer. Answered by `Raft::chunk_read`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReadChunk {
    /// Who needs it.
    pub peer: NodeId,
    /// Which snapshot: the one that covers exactly this.
    pub last: EntryId,
    /// First byte wanted; at the end of the file, none are there to be had, and the answer says so.
    pub offset: u64,
    /// At most so many bytes.
    pub bytes_max: usize,
}

/// What came of a [`ReadChunk`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ChunkRead {
    /// These bytes, of a file of `total`. None at all (before the end): reading failed for a passing reason.
    Bytes {
        /// The bytes.
        bytes: SharedBytes,
        /// Size of the file.
        total: u64,
    },
    /// There is no such snapshot any more, or it is damaged.
    Gone,
}

/// Please store a piece of a snapshot that a leader sends. Answered by `Raft::chunk_stored`.
///
/// Whoever stores knows how far the file is: a piece that does not continue it is not stored, and the answer says which
/// byte is next. So a file that survived a restart is continued.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StoreChunk {
    /// Which snapshot. A piece of another one than the last replaces what was gathered of that.
    pub meta: SnapshotMeta,
    /// Where the piece belongs.
    pub offset: u64,
    /// The piece.
    pub bytes: SharedBytes,
    /// Size of the whole file.
    pub total: u64,
}

/// What came of a [`StoreChunk`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChunkStored {
    /// Which snapshot.
    pub last: EntryId,
    /// The first byte that is still missing; 0 to begin anew (what was gathered turned out damaged).
    pub next: u64,
    /// The whole file is verified and durable under its final name.
    pub complete: bool,
}

/// A snapshot on its way to one peer, as its leader sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stream {
    /// Which one; `None` while there is none that can be read.
    meta: Option<SnapshotMeta>,
    /// The first byte that the peer lacks, as far as is known.
    next: u64,
    /// What is under way.
    step: Step,
    /// The newest one ends before the peer's log begins, so only a newer one helps.
    too_old: bool,
}

/// So much of a snapshot has come in at a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Taken {
    /// Which one; 0.0 while there is none.
    pub(crate) last: EntryId,
    /// From its beginning.
    pub(crate) bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Step {
    /// Nothing; the next chunk is read at this moment.
    Idle { at: Instant },
    /// A chunk is being read; when it may be sent is settled already.
    Reading,
    /// A chunk of a file of `total` bytes is on its way, and behind it the question what became of it, if that was `asked`.
    /// The next chunk is not read before `paced`; the question is asked at `ask_at`, and asked again after `again_in`, which
    /// doubles up to an election timeout.
    Sent { paced: Instant, ask_at: Instant, again_in: Duration, total: u64, asked: bool },
}

impl Stream {
    /// The newest snapshot, from its beginning.
    pub(crate) fn new(newest: Option<&SnapshotMeta>, now: Instant) -> Stream {
        Stream { meta: newest.cloned(), next: 0, step: Step::Idle { at: now }, too_old: false }
    }

    /// Which one; 0.0 while there is none.
    fn last(&self) -> EntryId {
        self.meta.as_ref().map_or(EntryId::default(), |meta| meta.last)
    }

    /// How much of it the peer has.
    pub(crate) fn taken(&self) -> Taken {
        Taken { last: self.last(), bytes: self.next }
    }

    /// When time alone moves it.
    fn deadline(&self) -> Instant {
        match self.step {
            _ if self.meta.is_none() => Instant::NEVER,
            Step::Idle { at } => at,
            Step::Reading => Instant::NEVER,
            Step::Sent { ask_at, .. } => ask_at,
        }
    }

    /// Whether a peer that holds everything up to `upto` gains nothing by it.
    pub(crate) fn covers_no_more_than(&self, upto: LogIndex) -> bool {
        self.meta.as_ref().map_or(LogIndex(0) < upto, |meta| meta.last.index <= upto)
    }

    /// A link of the peer has ended. Chunks have a connection of their own, so the chunk on its way may go on; if the peer
    /// itself has ended, it is lost. So the peer is asked a heartbeat interval later, when its links may be there again, and then
    /// ever more rarely.
    pub(crate) fn link_closed(&mut self, now: Instant, config: &Config) {
        if let Step::Sent { paced, ask_at, again_in, .. } = &mut self.step {
            *ask_at = (now + config.heartbeat_interval).max(*paced).min(*ask_at);
            *again_in = config.heartbeat_interval;
        }
    }

    /// An empty chunk that asks which byte is next, if it is time to ask.
    fn question(&mut self, now: Instant, config: &Config) -> Option<SnapshotChunk> {
        let Step::Sent { paced, ask_at, again_in, total, .. } = self.step else { return None };
        let meta = self.meta.as_ref().filter(|_| ask_at <= now)?;
        let (ask_at, again_in) = (now + again_in, (again_in * 2).min(config.election_timeout));
        self.step = Step::Sent { paced, ask_at, again_in, total, asked: true };
        Some(SnapshotChunk { meta: meta.clone(), offset: self.next, bytes: SharedBytes::default(), total })
    }

    /// See [`crate::canonical`].
    pub(crate) fn canonicalize(&mut self, canonical: &Canonical) {
        let deadline = |at: &mut Instant| *at = canonical.deadline(*at, canonical.election_timeout);
        match &mut self.step {
            Step::Idle { at } => deadline(at),
            Step::Reading => {}
            Step::Sent { paced, ask_at, again_in, .. } => {
                deadline(paced);
                deadline(ask_at);
                *again_in = canonical.election_timeout; // how often it is asked changes nothing
            }
        }
    }

    /// The chunk that is due, if one is.
    fn due(&mut self, now: Instant, peer: NodeId, config: &Config) -> Option<ReadChunk> {
        let Step::Idle { at } = self.step else { return None };
        if self.meta.is_none() || now < at {
            return None;
        }
        self.step = Step::Reading;
        let bytes_max = config.limits.snapshot_chunk_bytes_max.max(1);
        Some(ReadChunk { peer, last: self.last(), offset: self.next, bytes_max })
    }
}

/// A snapshot that comes in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Incoming {
    meta: SnapshotMeta,
    /// The term of the leader that sent the newest chunk.
    term: Term,
    /// The first byte that is missing; `None` until whoever stores has said so.
    next: Option<u64>,
    /// A chunk is being stored.
    storing: bool,
}

/// A snapshot that is complete and waits for the log's base to be on disk.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Installing {
    pub(crate) meta: SnapshotMeta,
    pub(crate) base_lsn: Lsn,
}

impl Leader {
    /// When time alone moves a snapshot on its way.
    pub(crate) fn streams_at(&self) -> Instant {
        let streams = self.peers.values().filter_map(|progress| match &progress.flow.mode {
            Mode::Snapshot(stream) => Some(stream.deadline()),
            Mode::Probe { .. } | Mode::Replicate => None,
        });
        streams.min().unwrap_or(Instant::NEVER)
    }
}

/// Lets the stream to one peer go on if it is due.
pub(crate) fn pump(
    peer: NodeId,
    progress: &mut Progress,
    view: &View<'_>,
    now: Instant,
    effects: &mut Effects,
) {
    if let Mode::Snapshot(stream) = &mut progress.flow.mode {
        effects.read_chunks.extend(stream.due(now, peer, view.config));
    }
}

impl Raft {
    /// What a snapshot taken now must say of itself, if it covers everything up to `last`, which has this stamp. `None`
    /// of what was not handed to apply, and of what the log does not hold: while a leader's snapshot is being installed
    /// there is nothing to take. `None`, too, as long as a member that joined has not come to the entry that says who
    /// belongs to the group: nobody could begin with such a snapshot.
    #[must_use]
    pub fn snapshot_meta(&self, last: EntryId, stamp: Stamp) -> Option<SnapshotMeta> {
        if self.marks.delivered < last.index || !self.log.holds(last) || self.needs_snapshot() {
            return None;
        }
        let (at, membership) = self.configurations.at(last.index).clone();
        (!membership.is_empty()).then_some(SnapshotMeta { last, stamp, membership, membership_at: at })
    }

    /// A snapshot was taken here and is durable and verified. What it covers below `keep_from` leaves the log. Of one
    /// that is older than the newest known nothing is heard; one of the same end replaces a file that was damaged.
    pub fn snapshot_taken(
        &mut self,
        now: Instant,
        meta: SnapshotMeta,
        keep_from: LogIndex,
        effects: &mut Effects,
    ) {
        let newest = self.snapshot.as_ref().map_or(LogIndex(0), |newest| newest.last.index);
        if meta.last.index < newest || !self.log.holds(meta.last) {
            return; // an installed one has overtaken it
        }
        let covered = meta.last.index;
        assert!(
            covered <= self.marks.delivered,
            "a snapshot of {covered:?}, handed out {:?}",
            self.marks.delivered
        );
        self.configurations.forget_before(covered);
        self.snapshot = Some(meta);
        let upto = covered.min(keep_from.previous());
        if self.log.base().index < upto {
            let base = self.log.id_at(upto);
            self.log.compact_to(upto);
            effects.trace.push(Trace::Pruned(base));
            self.record(LogBody::Base(base), effects);
        }
        let Some((leader, view, _)) = self.leading() else { return };
        for (&peer, progress) in &mut leader.peers {
            match &mut progress.flow.mode {
                Mode::Snapshot(stream) if stream.meta.is_none() => *stream = Stream::new(view.snapshot, now),
                Mode::Snapshot(_) => {}
                Mode::Probe { .. } | Mode::Replicate => view.begin_snapshot_if_behind(now, progress),
            }
            pump(peer, progress, &view, now, effects);
        }
    }

    /// Leader: whether a member that is heard is brought on from somewhere between `from` and `below`: it gets the snapshot that
    /// ends there, or entries behind it; a member to which everything was sent keeps up.
    #[must_use]
    pub fn feeds_between(&self, now: Instant, from: LogIndex, below: LogIndex) -> bool {
        let Role::Leader(leader) = &self.role else { return false };
        let (election_timeout, last) = (self.config.election_timeout, self.log.last().index);
        leader.peers.values().any(|progress| {
            let next = progress.flow.next;
            let is_fed = match &progress.flow.mode {
                Mode::Snapshot(stream) => (from..below).contains(&stream.last().index),
                Mode::Probe { .. } | Mode::Replicate => {
                    LogIndex(0) < progress.matched && progress.matched < below && from < next && next <= last
                }
            };
            is_fed && now.since(progress.last_contact) < election_timeout
        })
    }

    /// The newest complete snapshot known here.
    #[must_use]
    pub fn snapshot(&self) -> Option<&SnapshotMeta> {
        self.snapshot.as_ref()
    }

    /// Whether a peer waits for a snapshot and there is none that can be read: take one soon, however short the log.
    #[must_use]
    pub fn wants_snapshot(&self) -> bool {
        let Role::Leader(leader) = &self.role else { return false };
        let newest = self.snapshot.as_ref().map_or(LogIndex(0), |newest| newest.last.index);
        leader.peers.values().any(|progress| match &progress.flow.mode {
            Mode::Snapshot(stream) => {
                stream.meta.is_none() && (!stream.too_old || newest < self.marks.delivered)
            }
            Mode::Probe { .. } | Mode::Replicate => false,
        })
    }

    /// Whether every snapshot of this member is lost, and with it the beginning of its state.
    #[must_use]
    pub fn needs_snapshot(&self) -> bool {
        self.marks.delivered < self.log.base().index && self.installing.is_none()
    }

    /// Time moves the streams.
    pub(crate) fn tick_streams(&mut self, now: Instant, effects: &mut Effects) {
        let Some((leader, view, _)) = self.leading() else { return };
        if now < leader.streams_at() {
            return;
        }
        for (&peer, progress) in &mut leader.peers {
            if let Mode::Snapshot(stream) = &mut progress.flow.mode
                && let Some(question) = stream.question(now, view.config)
            {
                effects.send.push(view.envelope(peer, Message::SnapshotChunk(question)));
            }
            pump(peer, progress, &view, now, effects);
        }
    }

    /// What came of a [`ReadChunk`]. Answers to what is not asked any more are ignored.
    pub fn chunk_read(&mut self, now: Instant, request: ReadChunk, read: ChunkRead, effects: &mut Effects) {
        let Some((leader, view, _)) = self.leading() else { return };
        let Some(progress) = leader.peers.get_mut(&request.peer) else { return };
        let Mode::Snapshot(stream) = &mut progress.flow.mode else { return };
        let asked =
            stream.step == Step::Reading && (stream.last(), stream.next) == (request.last, request.offset);
        if !asked {
            return;
        }
        let election_timeout = view.config.election_timeout;
        match (read, &stream.meta) {
            (ChunkRead::Bytes { bytes, total }, Some(meta))
                if !bytes.is_empty() || total <= request.offset =>
            {
                let paced = now + view.pace(bytes.len());
                let chunk = SnapshotChunk { meta: meta.clone(), offset: request.offset, bytes, total };
                let ask_at = paced.max(now + election_timeout);
                let again_in = election_timeout;
                stream.step = Step::Sent { paced, ask_at, again_in, total, asked: false };
                effects.send.push(view.envelope(request.peer, Message::SnapshotChunk(chunk)));
            }
            (ChunkRead::Bytes { .. }, Some(_)) => stream.step = Step::Idle { at: now + election_timeout },
            (ChunkRead::Gone, _) | (_, None) => {
                let newest = view.snapshot.filter(|newest| newest.last != request.last);
                *stream = Stream::new(newest, now);
                pump(request.peer, progress, &view, now, effects);
            }
        }
    }

    /// How far a peer has come with a snapshot; or a peer asks for one.
    pub(crate) fn on_snapshot_reply(
        &mut self,
        now: Instant,
        from: NodeId,
        incarnation: Incarnation,
        reply: SnapshotReply,
        effects: &mut Effects,
    ) {
        let Some((leader, view, _)) = self.leading() else { return };
        let Some(progress) = leader.peers.get_mut(&from) else { return };
        if !view.is_of_its_life(now, from, progress, incarnation) {
            return;
        }
        progress.last_contact = progress.last_contact.max(now);
        match &mut progress.flow.mode {
            Mode::Probe { .. } | Mode::Replicate if reply.last == EntryId::default() => {
                progress.begin_snapshot(Stream::new(view.snapshot, now));
            }
            Mode::Snapshot(stream) if reply.last == stream.last() => {
                if let Step::Sent { paced, asked, total, .. } = stream.step {
                    if reply.refused {
                        // It ends before that peer's log begins, or a newer one comes in there.
                        let newer = view.snapshot.filter(|newest| newest.last != reply.last);
                        *stream = Stream::new(newer, now + view.config.election_timeout);
                        stream.too_old = newer.is_none();
                    } else if reply.next != stream.next || asked {
                        // It came; or the question came and the chunk before it did not. Whoever has more than there is has
                        // it of another file.
                        stream.next = if total < reply.next { 0 } else { reply.next };
                        stream.step = Step::Idle { at: paced };
                    }
                }
            }
            // A late answer; or the last chunk was taken and nothing is heard of it: what is lost is sent again.
            Mode::Probe { .. } | Mode::Replicate | Mode::Snapshot(_) => {}
        }
        pump(from, progress, &view, now, effects);
    }

    /// A chunk of this term's leader.
    pub(crate) fn on_snapshot_chunk(
        &mut self,
        now: Instant,
        from: NodeId,
        chunk: SnapshotChunk,
        effects: &mut Effects,
    ) {
        if !self.follow(now, from, effects) {
            return;
        }
        let is_question = chunk.is_question();
        let SnapshotChunk { meta, offset, bytes, total } = chunk;
        let last = meta.last;
        if meta.membership.is_empty() || meta.membership.check().is_err() || self.term < last.term {
            return Raft::distrust(from, Falsehood::Snapshot(last), effects);
        }
        if self.contradicts_what_agreed(last) {
            return Raft::distrust(from, Falsehood::Contradiction(last), effects);
        }
        if self.covers(last) {
            self.note_agreement(last.index);
            self.owe(last.index, true);
            self.advance_commit_as_follower(now, effects);
            return;
        }
        let useless = last.index < self.log.base().index;
        let late = self
            .incoming
            .as_ref()
            .is_some_and(|incoming| incoming.term == self.term && last.index < incoming.meta.last.index);
        if useless || late {
            return self.reply_to_chunk(SnapshotReply { last, next: 0, refused: true }, effects);
        }
        let known = self.incoming.take().filter(|incoming| incoming.meta.last == last);
        let fresh = Incoming { meta, term: self.term, next: None, storing: false };
        let mut incoming = known.unwrap_or(fresh);
        incoming.term = self.term;
        match incoming.next {
            _ if incoming.storing => {} // its answer says where the file stands
            // What is more than this file has was gathered of another one: whoever stores begins anew.
            Some(next) if is_question || next != offset && next <= total => {
                self.reply_to_chunk(SnapshotReply { last, next, refused: false }, effects);
            }
            Some(_) | None => {
                incoming.storing = true;
                effects.store_chunks.push(StoreChunk { meta: incoming.meta.clone(), offset, bytes, total });
            }
        }
        self.incoming = Some(incoming);
    }

    /// What came of a [`StoreChunk`]. Answers for another snapshot than the one that comes in are ignored.
    pub fn chunk_stored(&mut self, now: Instant, stored: ChunkStored, effects: &mut Effects) {
        let ChunkStored { last, next, complete } = stored;
        let Some(incoming) = self.incoming.as_mut().filter(|incoming| incoming.meta.last == last) else {
            return;
        };
        incoming.storing = false;
        incoming.next = Some(next);
        self.reply_to_chunk(SnapshotReply { last, next, refused: false }, effects);
        if complete && let Some(Incoming { meta, .. }) = self.incoming.take() {
            self.take_over(now, meta, effects);
        }
    }

    /// A snapshot has come in, every byte is as its sender has it, and they mean nothing: nothing is left of it, and the
    /// leader that sent it is not believed.
    pub fn snapshot_unreadable(&mut self, last: EntryId, effects: &mut Effects) {
        let incoming = self.incoming.take_if(|incoming| incoming.meta.last == last);
        if incoming.is_some_and(|incoming| incoming.term == self.term)
            && let Some(leader) = self.followed()
        {
            Raft::distrust(leader, Falsehood::Snapshot(last), effects);
        }
    }

    /// The leader that is followed, if there is one.
    fn followed(&self) -> Option<NodeId> {
        match &self.role {
            Role::Follower(follower) => follower.following.as_ref().map(|following| following.leader),
            Role::PreCandidate(_) | Role::Candidate(_) | Role::Leader(_) => None,
        }
    }

    fn reply_to_chunk(&mut self, reply: SnapshotReply, effects: &mut Effects) {
        if let Some(leader) = self.followed() {
            self.send_when_durable(self.envelope(leader, Message::SnapshotReply(reply)), effects);
        }
    }

    /// A member without a state tells its leader so, with every heartbeat.
    pub(crate) fn ask_for_snapshot(&mut self, effects: &mut Effects) {
        if self.needs_snapshot() {
            let reply = SnapshotReply { last: EntryId::default(), next: 0, refused: false };
            self.reply_to_chunk(reply, effects);
        }
    }

    /// Whether this log says everything that a snapshot up to `last` does.
    fn covers(&self, last: EntryId) -> bool {
        !self.needs_snapshot() && (last.index <= self.marks.committed || self.log.holds(last))
    }

    /// Whether this term's leader has shown another entry at this place before: no leader has both.
    fn contradicts_what_agreed(&self, last: EntryId) -> bool {
        self.log.base().index <= last.index && last.index <= self.verified() && !self.log.holds(last)
    }

    /// What a snapshot of `last` covers is committed, and this log agrees with it.
    fn note_agreement(&mut self, last: LogIndex) {
        if let Role::Follower(follower) = &mut self.role
            && let Some(following) = &mut follower.following
        {
            following.verified = following.verified.max(last);
            following.told = following.told.max(last);
        }
    }

    /// A snapshot is complete, durable and verified: the log begins anew after it. [N3]
    fn take_over(&mut self, now: Instant, meta: SnapshotMeta, effects: &mut Effects) {
        let last = meta.last;
        let follower = matches!(self.role, Role::Follower(_));
        let is_of_no_use = self.covers(last) || last.index < self.log.base().index;
        if !follower || is_of_no_use || self.contradicts_what_agreed(last) {
            return; // the log came by itself meanwhile, or asks others for their votes: the next leader sends it again
        }
        let tail_agrees = self.log.holds(last);
        let before = self.marks.committed;
        self.marks.committed = before.max(last.index);
        self.configurations.rebase(&meta);
        if tail_agrees {
            self.log.compact_to(last.index);
        } else {
            self.marks.persisted = self.marks.persisted.min(before);
            self.log.restart_after(last, meta.stamp);
            self.configurations.truncate(last.index.next());
            self.durability.forget_all();
        }
        effects.trace.push(Trace::Installs(last));
        let base_lsn = self.record_base(last, !tail_agrees, effects);
        if before < self.marks.committed {
            effects.trace.push(Trace::Committed(self.marks.committed));
        }
        self.installing = Some(Installing { meta: meta.clone(), base_lsn });
        self.snapshot = Some(meta);
        self.note_agreement(last.index);
        self.owe(last.index, false);
        self.note_own_membership();
        self.note_confirmed();
        self.hand_out(now, effects);
    }

    /// Hands a snapshot whose base is on disk to the store. True while there is nothing else to hand out.
    ///
    /// In one batch of effects the snapshot comes before the entries. Where entries of an earlier call stand in it, for a
    /// driver may gather the effects of several, it waits for the next.
    pub(crate) fn hand_out_snapshot(&mut self, now: Instant, effects: &mut Effects) -> bool {
        let Some(installing) = &self.installing else { return self.needs_snapshot() };
        if !self.durability.is_durable(installing.base_lsn) {
            return true;
        }
        if !effects.apply.is_empty() {
            self.delivery.deliver_at(now);
            return true;
        }
        let installing = self.installing.take();
        if let Some(Installing { meta, .. }) = installing {
            self.marks.delivered = self.marks.delivered.max(meta.last.index);
            effects.install = Some(meta);
        }
        false
    }
}

impl View<'_> {
    /// A peer whose next entry has left the log gets a snapshot.
    pub(crate) fn begin_snapshot_if_behind(&self, now: Instant, progress: &mut Progress) {
        let streams = matches!(progress.flow.mode, Mode::Snapshot(_));
        if !streams && progress.flow.next <= self.log.base().index {
            progress.begin_snapshot(Stream::new(self.snapshot, now));
        }
    }

    /// How long after so many bytes of a snapshot the next ones may follow.
    fn pace(&self, bytes: usize) -> Duration {
        match self.config.limits.snapshot_bytes_per_s {
            0 => Duration::ZERO,
            rate => Duration::from_nanos((bytes as u64).saturating_mul(1_000_000_000) / rate),
        }
    }
}
