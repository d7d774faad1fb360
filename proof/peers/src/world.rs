//! A small world of peers: disks that can be held and crashed, wires that can be cut, one clock. It has no randomness
//! of its own: scripts and storms choose the next step. Every step is checked by [`safety::Safety`].

use crate::clock::Clock;
use crate::disk::{Disk, Store, freeze, nothing_read, thaw};
use crate::leading::Leading;
use crate::receipts::Receipts;
use crate::safety::Safety;
use crate::{show, storm};
use kattu_raft::{
    ChangeError, Config, Duration, Effects, Entry, EntryId, EntryKind, Envelope, Fetch, Incarnation, Instant,
    Job, LogIndex, Lsn, Membership, NodeId, ProposeError, Raft, ReadBatch, ReadChunk, ReadVerdict,
    RecordEncoder, SnapshotMeta, Stamp, StoreChunk, Term, Trace, Tuning, timing_found,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Bytes in front of each payload, so that record size and payload size differ.
pub const HEADER: usize = 8;

/// A record is a header of zeros and the payload.
pub fn encoder() -> RecordEncoder {
    RecordEncoder(|_, _, payload, records| {
        records.extend_from_slice(&[0; HEADER]);
        records.extend_from_slice(payload);
        HEADER
    })
}

/// The configuration that tests start from: ET 1000 ms, HB 100 ms, everything on.
pub fn config(id: u64, voters: u64, learners: u64) -> Config {
    Config {
        incarnation: Incarnation(id * 100),
        learners: (voters + 1..=voters + learners).map(NodeId).collect(),
        ..Config::new(NodeId(id), (1..=voters).map(NodeId), encoder())
    }
}

/// The parts of a peer's surroundings that are held back.
#[derive(Clone, Copy, Debug, Default)]
pub struct Held {
    /// Records are written and not synced.
    pub disk: bool,
    /// Delivered entries are not applied.
    pub apply: bool,
    /// Reads of the log are not answered.
    pub fetch: bool,
    /// Pieces of snapshots are neither read nor stored.
    pub chunks: bool,
    /// Jobs are not done.
    pub compute: bool,
}

/// How far a member has come with the read that every run begins with, as its node does in production: the index of it
/// covers everything that earlier runs have served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Proof {
    /// Nothing is asked. It asks when it knows a leader, if an earlier run may have served.
    #[default]
    Missing,
    /// The read with this number, or a later one, waits for its verdict.
    Asked(u64),
    /// A read was answered with this index.
    Found(LogIndex),
}

/// A task of a store, in order.
pub enum Work {
    /// An entry is applied.
    Apply(Entry),
    /// The store becomes that of a snapshot.
    Install(SnapshotMeta),
}

/// One member: its process, if it runs, and the state that survives it.
pub struct Peer {
    /// What each of its runs is configured with.
    pub config: Config,
    /// The process; none while it is down.
    pub raft: Option<Raft>,
    /// Its disk, which outlives its runs.
    pub disk: Disk,
    /// Delivered to apply, not applied yet.
    pub applying: VecDeque<Work>,
    /// The contents of this run's store, in order.
    pub store: Store,
    /// The stamp of the newest entry there.
    pub stamp: Stamp,
    /// Reads of the log without an answer yet, oldest first.
    pub fetches: VecDeque<Fetch>,
    /// Requests for pieces of snapshots, oldest first.
    pub reading_chunks: VecDeque<ReadChunk>,
    /// Pieces of snapshots that are not stored yet, oldest first.
    pub storing_chunks: VecDeque<StoreChunk>,
    /// Jobs that were given out and are not done.
    pub computing: VecDeque<Job>,
    /// A snapshot that is being written: it covers the store as of its beginning.
    pub taking: Option<(SnapshotMeta, Vec<u8>)>,
    /// Reads without a verdict, by their batches, with the highest commit index of any member when they were requested.
    pub reading: BTreeMap<u64, (u64, LogIndex)>,
    /// How many reads it was asked for.
    pub reads: u64,
    /// How many batches of them there were; one that proves a start is a batch, too.
    pub batches: u64,
    /// The proof that this run serves nothing older than the runs before it. [fault-model ST17]
    pub proof: Proof,
    /// When it last asked for that, and the leader and the term that it knew: an answer without an index from a former
    /// leader is not asked for again in the same moment.
    pub proof_asked: Option<(Instant, NodeId, Term)>,
    /// Whether an earlier run may have served.
    pub has_past: bool,
    /// What of its surroundings is held back.
    pub held: Held,
    /// How often it was started.
    pub runs: u64,
    /// Its clock.
    pub clock: Clock,
    /// Whether it has taken a step since it was drained.
    pub dirty: bool,
}

impl Peer {
    /// Before a start: how long the vote holds of the coming run last, if that is more than is on record. [L-4]
    fn record_vote_hold_of_start(&mut self) {
        let found = self.disk.recover(false);
        let timing =
            timing_found(&found.memberships, found.snapshot.as_ref()).unwrap_or(self.config.timing());
        if self.config.leadership.leader_lease.is_some() {
            self.disk.vote_hold = self.disk.vote_hold.max(timing.election_timeout);
        }
    }
}

/// What became of jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Jobs {
    /// Given out.
    pub given: u64,
    /// Never done.
    pub lost: u64,
    /// Done, and kept to be done again.
    pub twice: u64,
    /// Appends that were dropped because a job was not done in time, or because too many waited.
    pub dropped: u64,
}

/// All members, and the wires between them.
pub struct World {
    /// The world's time, which no member reads.
    pub now: Instant,
    /// The seed that each run of a member is started with, together with its number.
    pub seed: u64,
    /// All members, running or not.
    pub peers: BTreeMap<NodeId, Peer>,
    /// Messages under way, oldest first.
    pub wire: VecDeque<Envelope>,
    /// Directed pairs whose messages are lost.
    pub cut: BTreeSet<(NodeId, NodeId)>,
    /// Checks every step for what Raft guarantees.
    pub safety: Safety,
    /// What leaders have reported as received.
    pub receipts: Receipts,
    /// Checks campaigns, transfers and leases.
    pub leading: Leading,
    /// The events since the last look, in words.
    pub journal: Vec<String>,
    /// Reads that a lease answered at once.
    pub lease_reads: u64,
    /// Proofs by leaders that clocks run apart.
    pub clocks_apart: u64,
    /// What became of jobs.
    pub jobs: Jobs,
    /// How often members were tuned while they ran.
    pub tuned: u64,
    /// Entries that joined a log from a window.
    pub early: u64,
    /// How often leaders sent the entries of a gap again.
    pub repairs: u64,
    /// The journal lists messages, too.
    pub show_messages: bool,
    /// The journal lists what disks are asked for, too.
    pub show_disk: bool,
    /// The state of a storm.
    pub weather: storm::Weather,
    /// Sees all effects of members, in their order.
    pub watch: Option<Watch>,
}

/// Sees what a member wants done.
pub type Watch = Box<dyn FnMut(NodeId, &Effects)>;

impl World {
    /// A world in which no member runs yet.
    pub fn new(configs: Vec<Config>, seed: u64) -> World {
        let peers = configs.into_iter().map(|config| (config.id, Peer::new(config))).collect();
        World {
            now: Instant(1_000_000_000),
            seed,
            peers,
            wire: VecDeque::new(),
            cut: BTreeSet::new(),
            safety: Safety::default(),
            receipts: Receipts::default(),
            leading: Leading::default(),
            journal: Vec::new(),
            lease_reads: 0,
            clocks_apart: 0,
            jobs: Jobs::default(),
            tuned: 0,
            early: 0,
            repairs: 0,
            show_messages: false,
            show_disk: false,
            weather: storm::Weather::default(),
            watch: None,
        }
    }

    /// A world whose peers all run.
    pub fn started(configs: Vec<Config>, seed: u64) -> World {
        let mut world = World::new(configs, seed);
        for id in world.ids() {
            world.start(id);
        }
        world
    }

    /// All members.
    pub fn ids(&self) -> Vec<NodeId> {
        self.peers.keys().copied().collect()
    }

    /// A member.
    ///
    /// # Panics
    /// If there is no such member.
    pub fn peer(&mut self, id: NodeId) -> &mut Peer {
        self.peers.get_mut(&id).unwrap_or_else(|| panic!("no member {}", id.0))
    }

    /// The peer that a member runs.
    ///
    /// # Panics
    /// If it does not run.
    pub fn raft(&self, id: NodeId) -> &Raft {
        self.peers[&id].raft.as_ref().unwrap_or_else(|| panic!("member {} does not run", id.0))
    }

    /// Whether a member runs.
    pub fn runs(&self, id: NodeId) -> bool {
        self.peers[&id].raft.is_some()
    }

    /// The leader of the newest term that has one.
    pub fn leader(&self) -> Option<NodeId> {
        let leaders = self.peers.iter().filter_map(|(id, peer)| Some((peer.raft.as_ref()?, *id)));
        leaders.filter(|(raft, _)| raft.is_leader()).max_by_key(|(raft, _)| raft.term()).map(|(_, id)| id)
    }

    /// Starts a member from what its disk holds.
    pub fn start(&mut self, id: NodeId) {
        let (now, seed) = (self.local(id), self.seed);
        let priorities: Vec<(NodeId, u8)> =
            self.peers.values().map(|peer| (peer.config.id, peer.config.leadership.priority)).collect();
        let peer = self.peer(id);
        assert!(peer.raft.is_none(), "member {} runs already", id.0);
        peer.runs += 1;
        peer.store.clear();
        if let Some((meta, bytes)) = peer.disk.newest_snapshot() {
            peer.store = thaw(bytes);
            peer.stamp = meta.stamp;
        }
        let run = seed ^ (peer.runs << 32);
        peer.record_vote_hold_of_start();
        let recovered = peer.disk.recover(peer.runs.is_multiple_of(2));
        peer.has_past = recovered.lsn > Lsn(0);
        peer.raft = Some(Raft::recover(peer.config.clone(), run, now, recovered));
        self.safety.started(id, &self.peers);
        for (member, priority) in priorities {
            self.act(id, |raft, _, _| raft.set_priority(member, priority));
        }
        self.peer(id).dirty = false;
    }

    /// The reading of this member's clock.
    pub fn local(&self, id: NodeId) -> Instant {
        self.peers[&id].clock.at(self.now)
    }

    /// The latest time of this member's next tick, by the world's clock.
    pub fn due(&self, id: NodeId) -> Instant {
        self.peers[&id].clock.when(self.raft(id).deadline())
    }

    /// Ends a member's process; the first `surviving` records that were not synced survive.
    pub fn crash(&mut self, id: NodeId, surviving: usize) {
        let peer = self.peer(id);
        peer.raft = None;
        peer.disk.crash(surviving);
        peer.applying.clear();
        peer.fetches.clear();
        peer.reading_chunks.clear();
        peer.storing_chunks.clear();
        peer.computing.clear();
        peer.taking = None;
        peer.reading.clear();
        (peer.proof, peer.proof_asked) = (Proof::Missing, None);
        peer.dirty = false;
    }

    /// Lets a member take a step, and carries out and checks its effects.
    pub fn act<T>(&mut self, id: NodeId, what: impl FnOnce(&mut Raft, Instant, &mut Effects) -> T) -> T {
        let now = self.local(id);
        let peer = self.peer(id);
        let raft = peer.raft.as_mut().unwrap_or_else(|| panic!("member {} does not run", id.0));
        let mut effects = Effects::default();
        let result = what(raft, now, &mut effects);
        peer.dirty = true;
        self.carry_out(id, effects);
        result
    }

    fn carry_out(&mut self, id: NodeId, effects: Effects) {
        if let Some(watch) = &mut self.watch {
            watch(id, &effects);
        }
        let Effects {
            persist,
            send,
            fetch,
            install,
            apply,
            read_chunks,
            store_chunks,
            reads,
            compute,
            received,
            distrust,
            trace,
        } = effects;
        if let Some((peer, falsehood)) = distrust.first() {
            panic!("nobody lies here, but {} says of {}: {falsehood}", id.0, peer.0);
        }
        for event in &trace {
            self.clocks_apart += u64::from(matches!(event, Trace::ClocksApart { .. }));
            match event {
                Trace::DroppedUnread(count) => self.jobs.dropped += *count as u64,
                Trace::GapClosed { first, last } => self.early += last.0 - first.0 + 1,
                Trace::GapSentAgain { .. } => self.repairs += 1,
                _ => {}
            }
            if !matches!(event, Trace::Term(_)) {
                self.journal.push(format!("{}: {}", id.0, show::trace(event)));
            }
        }
        let show_disk = self.show_disk;
        self.jobs.given += compute.len() as u64;
        let peer = self.peer(id);
        peer.computing.extend(compute);
        let mut lines = Vec::new();
        for record in persist {
            if show_disk {
                lines.push(format!("{}: write {}", id.0, show::record(&record)));
            }
            peer.disk.write(record);
        }
        for fetch in fetch {
            if show_disk {
                lines.push(format!("{}: fetch {}", id.0, show::fetch(&fetch)));
            }
            peer.fetches.push_back(fetch);
        }
        for request in &read_chunks {
            if show_disk {
                lines.push(format!("{}: read {}", id.0, show::read_chunk(request)));
            }
        }
        for chunk in &store_chunks {
            if show_disk {
                lines.push(format!("{}: store {}", id.0, show::store_chunk(chunk)));
            }
        }
        peer.reading_chunks.extend(read_chunks);
        peer.storing_chunks.extend(store_chunks);
        for run in &received {
            lines.push(format!("{}: a quorum has received {}..{}", id.0, run.first.0, run.last.0));
        }
        self.journal.append(&mut lines);
        self.safety.observe(id, &self.peers, &send, install.as_ref(), &apply);
        self.leading.observe(id, &self.peers, &send);
        self.receipts.observe(id, &self.peers, &send, &received, self.safety.highest_commit());
        self.leading.check_leases(self.now, &self.peers);
        for verdict in reads {
            let waiting = &mut self.peer(id).reading;
            let later = waiting.split_off(&(verdict.upto.0 + 1));
            let judged = std::mem::replace(waiting, later);
            let was_asked = self.judge_proof(id, verdict);
            assert!(was_asked || !judged.is_empty(), "{} answers read {} twice", id.0, verdict.upto.0);
            for (_, (read, vote_floor)) in judged {
                let index = verdict.index;
                self.journal.push(match index {
                    Some(index) => format!("{}: read {read} may be served at {}", id.0, index.0),
                    None => format!("{}: read {read} failed", id.0),
                });
                if let Some(index) = index {
                    assert!(
                        vote_floor <= index,
                        "stale read at {}: index {index:?}, {vote_floor:?} was committed before",
                        id.0
                    );
                }
            }
        }
        let work = install.into_iter().map(Work::Install).chain(apply.into_iter().map(Work::Apply));
        self.peer(id).applying.extend(work);
        for envelope in send {
            if self.show_messages {
                self.journal.push(show::envelope(&envelope));
            }
            self.wire.push_back(envelope);
        }
        self.ask_for_proof(id);
    }

    /// A member that may have served in an earlier run asks for its proof as soon as it knows a leader.
    fn ask_for_proof(&mut self, id: NodeId) {
        let now = self.now;
        let peer = self.peer(id);
        let known = peer.raft.as_ref().and_then(|raft| Some((now, raft.leader()?, raft.term())));
        let is_new = known.is_some() && known != peer.proof_asked;
        if peer.has_past && is_new && peer.proof == Proof::Missing {
            peer.batches += 1;
            let batch = peer.batches;
            (peer.proof, peer.proof_asked) = (Proof::Asked(batch), known);
            self.act(id, |raft, now, effects| raft.read(now, ReadBatch(batch), effects));
        }
    }

    /// Takes a verdict for the proof, if it is one; returns whether a proof was asked for. Any read of this run proves it.
    fn judge_proof(&mut self, id: NodeId, verdict: ReadVerdict) -> bool {
        let served = self.safety.served(id);
        let peer = self.peer(id);
        let Proof::Asked(newest) = peer.proof else { return false };
        match verdict.index {
            Some(index) => {
                assert!(served <= index, "{} goes back from {served:?} to {index:?} [ST17]", id.0);
                peer.proof = Proof::Found(index);
            }
            None if newest <= verdict.upto.0 => peer.proof = Proof::Missing,
            None => {}
        }
        true
    }

    /// Lets a member look at its clock.
    pub fn tick(&mut self, id: NodeId) {
        self.act(id, |raft, now, effects| raft.tick(now, effects));
    }

    /// Proposes a command to a member.
    ///
    /// # Errors
    /// The member's refusal.
    pub fn propose(&mut self, id: NodeId, payload: &[u8]) -> Result<EntryId, ProposeError> {
        self.act(id, |raft, now, effects| raft.propose(now, EntryKind::Command, payload, effects))
    }

    /// Asks a member for a read; returns its number. The verdict is checked for freshness when it comes.
    pub fn read(&mut self, id: NodeId) -> u64 {
        let vote_floor = self.safety.highest_commit();
        let peer = self.peer(id);
        peer.reads += 1;
        peer.batches += 1;
        let (read, batch) = (peer.reads, peer.batches);
        peer.reading.insert(batch, (read, vote_floor));
        if !matches!(peer.proof, Proof::Found(_)) {
            peer.proof = Proof::Asked(batch);
        }
        self.act(id, |raft, now, effects| raft.read(now, ReadBatch(batch), effects));
        let at_once = !self.peer(id).reading.contains_key(&batch);
        self.lease_reads += u64::from(at_once && self.raft(id).leader_lease_until().is_some());
        read
    }

    /// Tells a member that its inbox is empty.
    pub fn drain(&mut self, id: NodeId) {
        self.act(id, |raft, now, effects| raft.drained(now, effects));
        self.peer(id).dirty = false;
    }

    /// Syncs the first `records` records that are not durable yet, and reports it to the member.
    pub fn sync(&mut self, id: NodeId, records: usize) {
        if let Some(lsn) = self.peer(id).disk.sync(records) {
            self.complete(id, lsn);
        }
    }

    /// Reports to a member that its records up to `lsn` are durable.
    pub fn complete(&mut self, id: NodeId, lsn: Lsn) {
        self.act(id, |raft, now, effects| raft.persisted(now, lsn, effects));
    }

    /// Applies at most `count` of the delivered entries, and returns their credit.
    pub fn apply(&mut self, id: NodeId, count: usize) {
        let peer = self.peer(id);
        let count = count.min(peer.applying.len());
        let mut applied = None;
        for work in peer.applying.drain(..count) {
            match work {
                Work::Apply(entry) => {
                    let before = peer.store.last().map_or(LogIndex(0), |(id, _)| id.index);
                    assert_eq!(entry.id().index, before.next(), "the store of {} has a gap", id.0);
                    let payload = entry.payload().expect("apply gets whole entries");
                    peer.store.push((entry.id(), payload.to_vec()));
                    peer.stamp = entry.head.stamp;
                    applied = Some(entry.id().index);
                }
                Work::Install(meta) => {
                    let file = peer.disk.snapshots.iter().find(|(known, _)| known.last == meta.last);
                    let (_, bytes) = file.unwrap_or_else(|| panic!("{} installs no file", id.0));
                    peer.store = thaw(bytes);
                    peer.stamp = meta.stamp;
                    applied = Some(meta.last.index);
                }
            }
        }
        let Some(index) = applied else { return };
        self.act(id, |raft, now, effects| raft.applied(now, index, effects));
    }

    /// Answers the oldest read of the log; without entries if `fails`.
    pub fn fetch(&mut self, id: NodeId, fails: bool) {
        let peer = self.peer(id);
        let Some(fetch) = peer.fetches.pop_front() else { return };
        let entries = if fails { Vec::new() } else { peer.disk.read(&fetch) };
        self.act(id, |raft, now, effects| raft.fetched(now, fetch, entries, effects));
    }

    /// Begins a change of members.
    pub fn change(&mut self, id: NodeId, target: &Membership) -> Result<EntryId, ChangeError> {
        self.act(id, |raft, now, effects| {
            // A change to the same members without a context is refused: nothing would change.
            let context: &[u8] = if raft.membership() == target { b"" } else { b"context" };
            raft.propose_change(now, target, context, effects)
        })
    }

    /// Begins a snapshot of the applied state, if it is newer than the last one.
    pub fn begin_snapshot(&mut self, id: NodeId) {
        let peer = self.peer(id);
        let (Some(raft), Some(&(last, _))) = (&peer.raft, peer.store.last()) else { return };
        let newest = raft.snapshot().map_or(LogIndex(0), |meta| meta.last.index);
        let again = newest == last.index && raft.wants_snapshot();
        if newest < last.index || again {
            let meta = raft.snapshot_meta(last, peer.stamp);
            peer.taking = meta.map(|meta| (meta, freeze(&peer.store)));
        }
    }

    /// Completes a snapshot; the newest `keep` entries that it covers stay in the log.
    pub fn end_snapshot(&mut self, id: NodeId, keep: u64) {
        let peer = self.peer(id);
        let Some((meta, bytes)) = peer.taking.take() else { return };
        let overtaken =
            peer.disk.snapshots.last().is_some_and(|(newest, _)| meta.last.index <= newest.last.index);
        if overtaken {
            return;
        }
        self.safety.check_snapshot(&meta, &bytes);
        self.peer(id).disk.keep_snapshot(meta.clone(), bytes);
        let keep_from = LogIndex((meta.last.index.0 + 1).saturating_sub(keep));
        self.act(id, |raft, now, effects| raft.snapshot_taken(now, meta, keep_from, effects));
    }

    /// Answers the oldest request for a piece of a snapshot; without bytes if `fails`.
    pub fn read_chunk(&mut self, id: NodeId, fails: bool) {
        let peer = self.peer(id);
        let Some(request) = peer.reading_chunks.pop_front() else { return };
        let read = if fails { nothing_read() } else { peer.disk.read_chunk(&request) };
        self.act(id, |raft, now, effects| raft.chunk_read(now, request, read, effects));
    }

    /// Stores the oldest piece of a snapshot.
    pub fn store_chunk(&mut self, id: NodeId) {
        let peer = self.peer(id);
        let Some(chunk) = peer.storing_chunks.pop_front() else { return };
        let stored = peer.disk.store_chunk(chunk);
        self.act(id, |raft, now, effects| raft.chunk_stored(now, stored, effects));
    }

    /// Does the job at this place in the order in which they were given; `again`: and keeps it, to be done once more.
    pub fn compute(&mut self, id: NodeId, place: usize, again: bool) {
        let Some(job) = self.peer(id).computing.remove(place) else { return };
        if again {
            self.jobs.twice += 1;
            self.peer(id).computing.push_back(job.clone());
        }
        let done = job.run();
        self.act(id, |raft, now, effects| raft.computed(now, done, effects));
    }

    /// A job is never done.
    pub fn lose_job(&mut self, id: NodeId, place: usize) {
        let lost = self.peer(id).computing.remove(place);
        self.jobs.lost += u64::from(lost.is_some());
    }

    /// Whether messages from one member to the other arrive.
    pub fn connected(&self, from: NodeId, to: NodeId) -> bool {
        !self.cut.contains(&(from, to)) && self.peers.get(&to).is_some_and(|peer| peer.raft.is_some())
    }

    /// Delivers a message, unless the wire is cut or the receiver does not run.
    pub fn deliver(&mut self, envelope: Envelope) {
        if self.connected(envelope.from, envelope.to) {
            self.act(envelope.to, |raft, now, effects| raft.step(now, envelope, effects));
        } else if self.show_messages {
            self.journal.push(format!("lost {}", show::envelope(&envelope)));
        }
    }

    /// Delivers all messages and completes the work of disks and stores that are not held, again and again until
    /// nothing is left to do. Time stands still.
    pub fn settle(&mut self) {
        for _ in 0..10_000 {
            let mut busy = false;
            for _ in 0..self.wire.len() {
                busy = true;
                if let Some(envelope) = self.wire.pop_front() {
                    self.deliver(envelope);
                }
            }
            for id in self.ids() {
                busy |= self.attend(id);
            }
            if !busy {
                return;
            }
        }
        panic!("the world does not settle: {:?}", self.wire.front().map(show::envelope));
    }

    /// One round of a member's driver; true if it did anything.
    pub fn attend(&mut self, id: NodeId) -> bool {
        let mut busy = false;
        if !self.runs(id) {
            return false;
        }
        if self.peer(id).dirty {
            busy = true;
            self.drain(id);
        }
        busy |= self.record_vote_hold(id);
        let peer = self.peer(id);
        let held = peer.held;
        if !held.disk && peer.disk.unsynced() > 0 {
            busy = true;
            self.sync(id, usize::MAX);
        }
        if !held.fetch && !self.peer(id).fetches.is_empty() {
            busy = true;
            self.fetch(id, false);
        }
        if !held.chunks && !self.peer(id).reading_chunks.is_empty() {
            busy = true;
            self.read_chunk(id, false);
        }
        if !held.chunks && !self.peer(id).storing_chunks.is_empty() {
            busy = true;
            self.store_chunk(id);
        }
        if !held.compute && !self.peer(id).computing.is_empty() {
            busy = true;
            self.compute(id, 0, false);
        }
        if self.raft(id).wants_snapshot() {
            if self.peer(id).taking.is_none() {
                self.begin_snapshot(id);
            }
            busy |= self.peer(id).taking.is_some();
            self.end_snapshot(id, 3);
        }
        if !held.apply && !self.peer(id).applying.is_empty() {
            busy = true;
            self.apply(id, usize::MAX);
        }
        busy
    }

    /// Tunes a member that runs.
    ///
    /// # Panics
    /// If the tuning breaks a rule of its configuration.
    pub fn tune(&mut self, id: NodeId, tuning: &Tuning) {
        let tuned = self.act(id, |raft, now, _| raft.tune(now, tuning));
        tuned.unwrap_or_else(|rule| panic!("member {} is not tuned to {tuning:?}: {rule}", id.0));
        self.tuned += 1;
    }

    /// Records how long this member's vote holds last, if that has changed; true if it had.
    pub fn record_vote_hold(&mut self, id: NodeId) -> bool {
        let now = self.local(id);
        let Some(length) = self.raft(id).vote_hold_to_record(now) else { return false };
        self.peer(id).disk.vote_hold = length;
        self.act(id, |raft, _, _| raft.vote_hold_recorded(length));
        true
    }

    /// Time passes; members are ticked when they are due, and the world settles in between.
    pub fn pass(&mut self, duration: Duration) {
        self.pass_until(duration, |_| false);
    }

    /// Like [`World::pass`], but ends early when `done`; true if it did.
    pub fn pass_until(&mut self, duration: Duration, done: impl Fn(&World) -> bool) -> bool {
        let end = self.now + duration;
        self.settle();
        for _ in 0..1_000_000 {
            if done(self) {
                return true;
            }
            let running = self.peers.keys().filter(|id| self.runs(**id));
            let next = running.map(|id| self.due(*id)).min().unwrap_or(end).max(self.now);
            if next > end {
                self.now = end;
                return false;
            }
            self.now = next;
            for id in self.ids() {
                if self.runs(id) && self.due(id) <= self.now {
                    self.tick(id);
                }
            }
            self.settle();
        }
        panic!("time stands still: some deadline is never met");
    }

    /// Lets one member campaign without a tick of the others; true if it was elected.
    pub fn elect(&mut self, id: NodeId) -> bool {
        let et = self.peers[&id].config.election_timeout;
        self.settle();
        let due = Some(self.due(id)).filter(|due| *due != Instant::NEVER); // never, for a member without a vote
        self.now = (self.now + et * 2).max(due.unwrap_or(self.now));
        self.tick(id);
        self.settle();
        self.raft(id).is_leader()
    }

    /// Splits the members into groups that hear only themselves.
    pub fn partition(&mut self, groups: &[Vec<NodeId>]) {
        self.cut.clear();
        let group_of = |id: &NodeId| groups.iter().position(|group| group.contains(id));
        for from in self.ids() {
            for to in self.ids() {
                if group_of(&from) != group_of(&to) {
                    self.cut.insert((from, to));
                }
            }
        }
    }

    /// All wires, disks and stores work again and every member runs.
    pub fn heal(&mut self) {
        self.cut.clear();
        for id in self.ids() {
            self.peer(id).held = Held::default();
            if !self.runs(id) {
                self.start(id);
            }
        }
    }
}

impl Peer {
    fn new(config: Config) -> Peer {
        Peer {
            config,
            raft: None,
            disk: Disk::default(),
            applying: VecDeque::new(),
            store: Vec::new(),
            stamp: Stamp(0),
            fetches: VecDeque::new(),
            reading_chunks: VecDeque::new(),
            storing_chunks: VecDeque::new(),
            computing: VecDeque::new(),
            taking: None,
            reading: BTreeMap::new(),
            reads: 0,
            batches: 0,
            proof: Proof::Missing,
            proof_asked: None,
            has_past: false,
            held: Held::default(),
            runs: 0,
            clock: Clock::right(),
            dirty: false,
        }
    }
}
