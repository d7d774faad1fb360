//! Snapshots: how a peer that is behind the start of the log catches up, and how a log loses its beginning.
//!
//! ```text
//!  leader   ReadChunk ─▶ file ─▶ SnapshotChunk ──────────▶ StoreChunk ─▶ file ─▶ … complete: Base on disk ─▶ install
//!                                follower     ◀── SnapshotReply: next byte              then: match
//! ```
//!
//! In:    snapshots taken here; chunks read from the leader's file, sent, and stored in the follower's.
//! Out:   chunks to read, to send, to store; the `Base` record; the snapshot to install.
//! Rules: [replication-protocols N1–N4; fault-model ST9–ST11; Ongaro14 §5]
//!   1. A snapshot covers only applied entries, so it is committed for ever, whichever leader sends it, in whichever
//!      term.
//!   2. One chunk per peer is in flight. The follower's file determines which byte is next, so lost, repeated and late
//!      chunks, a new leader and a restart on either side are one case: go on from there. The bytes per second to one
//!      peer are limited. A chunk that is not answered for an election timeout may still be in flight, over a slow
//!      link: an empty chunk, which travels behind it, asks for the outcome, and the chunk is sent again if the answer
//!      shows that it never came.
//!   3. A peer that holds the last entry a snapshot covers, or has committed as much, needs none of it: its log says
//!      the same. (A member of rule 6 does, and keeps the log beyond it.) Otherwise the whole log is dropped, for no
//!      part of it lies beyond the snapshot and agrees with it. (hashicorp/raft#697)
//!   4. Nothing of it is acknowledged, or delivered to the store, before the log's new base is on disk.
//!   5. A peer that gets a snapshot answers heartbeats like any other, and so counts for rounds and for the quorum.
//!   6. A member whose own snapshots are all lost keeps its vote, does not campaign, acknowledges nothing, and asks its
//!      leader for one.
//!
//! Knows nothing of: commands, files, the store.

use crate::bytes::SharedBytes;
use crate::canonical::Canonical;
use crate::config::Config;
use crate::contact::Origin;
use crate::contract::{Effects, LogBody};
use crate::distrust::Falsehood;
use crate::flow::Mode;
use crate::leading::{Leading, View};
use crate::membership::Membership;
use crate::message::{Message, SnapshotChunk, SnapshotReply};
use crate::progress::Progress;
use crate::raft::Raft;
use crate::role::{Leader, Role};
use crate::trace::Trace;
use crate::types::{Duration, EntryId, Incarnation, Instant, LogIndex, Lsn, NodeId, Stamp, Term};
use alloc::boxed::Box;

/// The end of a snapshot, and the state that raft needs to go on from there. It covers everything up to `last`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SnapshotMeta {
    /// The last entry it covers. Committed.
    pub last: EntryId,
    /// The stamp of that entry: the log's clock goes on from it.
    pub stamp: Stamp,
    /// The configuration in force at `last`. [replication-protocols N1]
    pub membership: Membership,
    /// The index of that configuration's entry; 0 for the group's first one.
    pub membership_at: LogIndex,
}

/// Requests a piece of a snapshot's file, for a peer. Answered by `Raft::chunk_read`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReadChunk {
    /// The peer that needs it.
    pub peer: NodeId,
    /// Which snapshot: the one that covers exactly this.
    pub last: EntryId,
    /// First byte wanted. At the end of the file there are none, and the answer shows that.
    pub offset: u64,
    /// Maximal number of bytes.
    pub bytes_max: usize,
}

/// The outcome of a [`ReadChunk`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ChunkRead {
    /// These bytes, of a file of `total`. None before the end: the read failed for a passing reason.
    Bytes {
        /// The bytes.
        bytes: SharedBytes,
        /// Size of the file.
        total: u64,
    },
    /// There is no such snapshot any more, or it is damaged.
    Gone,
}

/// Requests that a piece of a leader's snapshot be stored. Answered by `Raft::chunk_stored`.
///
/// The driver knows how much of the file it has. It does not store a piece that does not continue the file, and answers
/// which byte is next. So a file that survived a restart is continued.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StoreChunk {
    /// Which snapshot. A piece of another one than the last replaces what was received of that one.
    pub meta: SnapshotMeta,
    /// The piece's offset in the file.
    pub offset: u64,
    /// The piece.
    pub bytes: SharedBytes,
    /// Size of the whole file.
    pub total: u64,
}

/// The outcome of a [`StoreChunk`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChunkStored {
    /// Which snapshot.
    pub last: EntryId,
    /// The first byte that is still missing; 0 to begin anew (the file turned out damaged).
    pub next: u64,
    /// The whole file is verified and durable under its final name.
    pub complete: bool,
}

/// A snapshot that is being sent to one peer, as its leader sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stream {
    /// Which one; `None` while there is none that can be read.
    meta: Option<SnapshotMeta>,
    /// The first byte that the peer lacks, as far as is known.
    next: u64,
    /// The chunk under way.
    step: Step,
    /// The newest snapshot ends before the peer's log begins, so only a newer one helps.
    too_old: bool,
}

/// How much of a snapshot a peer has received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Taken {
    /// Which one; 0.0 while there is none.
    pub(crate) last: EntryId,
    /// Bytes, from its beginning.
    pub(crate) bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Step {
    /// No chunk; the next one is read at this moment.
    Idle { at: Instant },
    /// A chunk is being read; the time to send it is settled already.
    Reading,
    /// A chunk of a file of `total` bytes is in flight, and behind it a question about it, if that was `asked`. The
    /// next chunk is not read before `paced`. The question is sent at `ask_at`, and again after `again_in`, which
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

    /// When the passage of time alone moves it.
    fn deadline(&self) -> Instant {
        match self.step {
            _ if self.meta.is_none() => Instant::NEVER,
            Step::Idle { at } => at,
            Step::Reading => Instant::NEVER,
            Step::Sent { ask_at, .. } => ask_at,
        }
    }

    /// Whether it does not help a peer that holds everything up to `upto`.
    pub(crate) fn covers_no_more_than(&self, upto: LogIndex) -> bool {
        self.meta.as_ref().map_or(LogIndex(0) < upto, |meta| meta.last.index <= upto)
    }

    /// A link of the peer has ended. Chunks have a connection of their own, so the chunk in flight may still arrive; if
    /// the peer's process has ended, it is lost. So the peer is asked a heartbeat interval later, when its links may be
    /// back, and then ever more rarely.
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
        Some(SnapshotChunk {
            meta: Box::new(meta.clone()),
            offset: self.next,
            bytes: SharedBytes::default(),
            total,
        })
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
                *again_in = canonical.election_timeout; // the interval between questions changes nothing
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

/// A snapshot that is being received.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Incoming {
    meta: SnapshotMeta,
    /// The term of the leader that sent the newest chunk.
    term: Term,
    /// The first byte that is missing; `None` until the driver has reported it.
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
    /// When the passage of time alone moves a snapshot on its way.
    pub(crate) fn streams_at(&self) -> Instant {
        let streams = self.peers.values().filter_map(|progress| match &progress.flow.mode {
            Mode::Snapshot(stream) => Some(stream.deadline()),
            Mode::Probe { .. } | Mode::Replicate => None,
        });
        streams.min().unwrap_or(Instant::NEVER)
    }
}

/// Continues the stream to one peer if its next chunk is due.
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
    /// The metadata of a snapshot taken now that covers everything up to `last`, which has this stamp. `None` if `last`
    /// was not delivered to apply, or is not in the log: while a leader's snapshot is being installed none can be
    /// taken. `None`, too, as long as a member that joined has not reached the entry with the group's members: no
    /// member could start from such a snapshot.
    #[must_use]
    pub fn snapshot_meta(&self, last: EntryId, stamp: Stamp) -> Option<SnapshotMeta> {
        if !self.may_take_snapshot(last) {
            return None;
        }
        let (membership_at, membership) = self.configurations.at(last.index).clone();
        Some(SnapshotMeta { last, stamp, membership, membership_at })
    }

    /// Whether [`Raft::snapshot_meta`] has an answer for this entry.
    #[must_use]
    pub fn may_take_snapshot(&self, last: EntryId) -> bool {
        last.index <= self.marks.delivered
            && self.log.holds(last)
            && !self.needs_snapshot()
            && !self.configurations.at(last.index).1.is_empty()
    }

    /// A snapshot was taken here and is durable and verified. Entries that it covers below `keep_from` leave the log.
    /// One that is older than the newest known is ignored; one with the same end replaces a file that was damaged.
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
        let Some(Leading { leader, view, .. }) = self.leading() else { return };
        for (&peer, progress) in &mut leader.peers {
            match &mut progress.flow.mode {
                Mode::Snapshot(stream) if stream.meta.is_none() => **stream = Stream::new(view.snapshot, now),
                Mode::Snapshot(_) => {}
                Mode::Probe { .. } | Mode::Replicate => view.begin_snapshot_if_behind(now, progress),
            }
            pump(peer, progress, &view, now, effects);
        }
    }

    /// Leader: whether a member that is heard is being fed from somewhere between `from` and `below`: with the snapshot
    /// that ends there, or with entries behind it. A member to which everything was sent keeps up and does not count.
    #[must_use]
    pub fn feeds_between(&self, now: Instant, from: LogIndex, below: LogIndex) -> bool {
        let Some(leader) = self.role.leader() else { return false };
        let (election_timeout, last) = (self.config.election_timeout, self.log.last().index);
        leader.peers.values().any(|progress| {
            let next = progress.flow.next;
            let is_fed = match &progress.flow.mode {
                Mode::Snapshot(stream) => (from..below).contains(&stream.last().index),
                Mode::Probe { .. } | Mode::Replicate => {
                    LogIndex(0) < progress.matched && progress.matched < below && from < next && next <= last
                }
            };
            is_fed && progress.liveness.is_heard(now, election_timeout)
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
        let Some(leader) = self.role.leader() else { return false };
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
    pub(crate) fn needs_snapshot(&self) -> bool {
        self.marks.delivered < self.log.base().index && self.installing.is_none()
    }

    /// The outcome of a [`ReadChunk`]. Answers to outdated requests are ignored.
    pub fn chunk_read(&mut self, now: Instant, request: ReadChunk, read: ChunkRead, effects: &mut Effects) {
        let Some(Leading { leader, view, .. }) = self.leading() else { return };
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
                let chunk =
                    SnapshotChunk { meta: Box::new(meta.clone()), offset: request.offset, bytes, total };
                let ask_at = paced.max(now + election_timeout);
                let again_in = election_timeout;
                stream.step = Step::Sent { paced, ask_at, again_in, total, asked: false };
                effects.send.push(view.envelope(request.peer, Message::SnapshotChunk(chunk)));
            }
            (ChunkRead::Bytes { .. }, Some(_)) => stream.step = Step::Idle { at: now + election_timeout },
            (ChunkRead::Gone, _) | (_, None) => {
                let newest = view.snapshot.filter(|newest| newest.last != request.last);
                **stream = Stream::new(newest, now);
                pump(request.peer, progress, &view, now, effects);
            }
        }
    }

    /// A peer's progress with a snapshot, or its request for one.
    pub(crate) fn on_snapshot_reply(
        &mut self,
        now: Instant,
        from: NodeId,
        incarnation: Incarnation,
        reply: SnapshotReply,
        effects: &mut Effects,
    ) {
        let Some(Leading { leader, view, .. }) = self.leading() else { return };
        let Some(progress) = leader.peers.get_mut(&from) else { return };
        if !view.is_of_its_life(now, from, progress, incarnation) {
            return;
        }
        progress.liveness.hear(now);
        match &mut progress.flow.mode {
            Mode::Probe { .. } | Mode::Replicate if reply.last == EntryId::default() => {
                progress.begin_snapshot(Stream::new(view.snapshot, now));
            }
            Mode::Snapshot(stream) if reply.last == stream.last() => {
                if let Step::Sent { paced, asked, total, .. } = stream.step {
                    if reply.refused {
                        // It ends before the peer's log begins, or the peer is receiving a newer one.
                        let newer = view.snapshot.filter(|newest| newest.last != reply.last);
                        **stream = Stream::new(newer, now + view.config.election_timeout);
                        stream.too_old = newer.is_none();
                    } else if reply.next != stream.next || asked {
                        // The chunk came; or the question came and the chunk before it did not. A peer that has more
                        // than `total` has it of another file.
                        stream.next = if total < reply.next { 0 } else { reply.next };
                        stream.step = Step::Idle { at: paced };
                    }
                }
            }
            // A late answer; or the last chunk was stored and its acknowledgement is outstanding: what is lost is sent
            // again.
            Mode::Probe { .. } | Mode::Replicate | Mode::Snapshot(_) => {}
        }
        pump(from, progress, &view, now, effects);
    }

    /// A chunk from this term's leader.
    pub(crate) fn on_snapshot_chunk(
        &mut self,
        now: Instant,
        origin: Origin,
        chunk: SnapshotChunk,
        effects: &mut Effects,
    ) {
        if !self.follow(now, origin, effects) {
            return;
        }
        let is_question = chunk.is_question();
        let SnapshotChunk { meta, offset, bytes, total } = chunk;
        let last = meta.last;
        if meta.membership.is_empty() || meta.membership.check().is_err() || self.term < last.term {
            return Raft::distrust(origin.sender, Falsehood::Snapshot(last), effects);
        }
        if self.contradicts_what_agreed(last) {
            return Raft::distrust(origin.sender, Falsehood::Contradiction(last), effects);
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
        let fresh = Incoming { meta: *meta, term: self.term, next: None, storing: false };
        let mut incoming = known.unwrap_or(fresh);
        incoming.term = self.term;
        match incoming.next {
            _ if incoming.storing => {} // its answer says which byte is next
            // More bytes than `total` were received of another file: the driver begins anew.
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

    /// The outcome of a [`StoreChunk`]. Outcomes for another snapshot than the one being received are ignored.
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

    /// A received snapshot is intact, as its sender has it, but cannot be decoded: it is dropped, and the leader that
    /// sent it is distrusted.
    pub fn snapshot_unreadable(&mut self, last: EntryId, effects: &mut Effects) {
        let incoming = self.incoming.take_if(|incoming| incoming.meta.last == last);
        if incoming.is_some_and(|incoming| incoming.term == self.term)
            && let Some(leader) = self.followed()
        {
            Raft::distrust(leader, Falsehood::Snapshot(last), effects);
        }
    }

    /// The leader that this peer follows, if there is one.
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

    /// A member without a state asks its leader for a snapshot, with every heartbeat.
    pub(crate) fn ask_for_snapshot(&mut self, effects: &mut Effects) {
        if self.needs_snapshot() {
            let reply = SnapshotReply { last: EntryId::default(), next: 0, refused: false };
            self.reply_to_chunk(reply, effects);
        }
    }

    /// Whether this log contains everything that a snapshot up to `last` does.
    fn covers(&self, last: EntryId) -> bool {
        !self.needs_snapshot() && (last.index <= self.marks.committed || self.log.holds(last))
    }

    /// Whether this term's leader has shown another entry at this index before: no leader has both.
    fn contradicts_what_agreed(&self, last: EntryId) -> bool {
        self.log.base().index <= last.index && last.index <= self.verified() && !self.log.holds(last)
    }

    /// A snapshot that ends at `last` is committed, and this log agrees with it.
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
            return; // the log has caught up meanwhile, or this peer campaigns: the next leader sends it again
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
        self.take_settings();
        effects.trace.push(Trace::Installs(last));
        let base_lsn = self.record_base(last, !tail_agrees, effects);
        if before < self.marks.committed {
            effects.trace.push(Trace::Committed(self.marks.committed));
        }
        self.installing = Some(Installing { meta: meta.clone(), base_lsn });
        self.snapshot = Some(meta);
        self.note_agreement(last.index);
        let end = self.take_early(effects); // [W4]
        self.owe(end.unwrap_or(last.index), false);
        self.note_own_membership();
        self.hand_out(now, effects);
    }

    /// Delivers a snapshot whose base is on disk to the store. True while nothing else can be delivered.
    ///
    /// In one batch of effects the snapshot comes before the entries. If the batch contains entries of an earlier call
    /// (a driver may gather the effects of several calls), the snapshot waits for the next batch.
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

impl Leading<'_> {
    /// Continues the streams that are due.
    pub(crate) fn tick_streams(&mut self, now: Instant, effects: &mut Effects) {
        let Leading { leader, view, .. } = self;
        if now < leader.streams_at() {
            return;
        }
        for (&peer, progress) in &mut leader.peers {
            if let Mode::Snapshot(stream) = &mut progress.flow.mode
                && let Some(question) = stream.question(now, view.config)
            {
                effects.send.push(view.envelope(peer, Message::SnapshotChunk(question)));
            }
            pump(peer, progress, view, now, effects);
        }
    }
}

impl View<'_> {
    /// Starts a snapshot for a peer whose next entry has left the log.
    pub(crate) fn begin_snapshot_if_behind(&self, now: Instant, progress: &mut Progress) {
        let streams = matches!(progress.flow.mode, Mode::Snapshot(_));
        if !streams && progress.flow.next <= self.log.base().index {
            progress.begin_snapshot(Stream::new(self.snapshot, now));
        }
    }

    /// How long to wait after this many bytes of a snapshot before the next ones.
    fn pace(&self, bytes: usize) -> Duration {
        match self.config.limits.snapshot_bytes_per_s {
            0 => Duration::ZERO,
            rate => Duration::from_nanos((bytes as u64).saturating_mul(1_000_000_000) / rate),
        }
    }
}
