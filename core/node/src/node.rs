//! The replica: raft, waiting clients, read rounds, and effects for the driver.
//!
//! In:    every [`Event`]; time and the seed are arguments.
//! Out:   [`Effects`], each of which may be carried out the moment it is emitted.
//! Here:  the dispatch, and the delivery of committed entries to the keeper. Writes are in `writes.rs`, reads in
//!        `reads.rs`, changes of members in `members.rs`, snapshots in `snapshots.rs`.
//! Knows nothing of: bytes on wires and disks, threads, etcd's messages.

use crate::command::Publish;
use crate::compare::Compare;
use crate::confirmation::Confirmation;
use crate::contract::{
    Effects, Event, KeeperTask, Outcome, PeerMessage, Refusal, Request, Space, Status, Ticket,
};
use crate::leadership::{TransferConfig, TransferPolicy};
use crate::level::Levels;
use crate::members::Changes;
use crate::reads::Reads;
use crate::snapshots::{START_REST, SnapshotLimits, Snapshots};
use crate::writes::Writes;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use kattu_raft::{
    Config, Duration, Entry, Falsehood, Incarnation, Instant, LogIndex, NodeId, PayloadReader, Recovered,
    Term, timing_found,
};
use kattu_raft::{Protocol, Raft};

/// The configuration of one replica at its start.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeConfig {
    /// The configuration of the protocol.
    pub raft: Config,
    /// How long a client waits at most, besides two election timeouts: those in force, which may change. etcd: 5 s.
    /// [etcd-api §3]
    pub request_timeout_base: Duration,
    /// How long a write may wait for others to share a batch with. [`crate::tuning`]
    pub batch_linger: Duration,
    /// A leader accepts no further write before the last one is applied. [`crate::tuning`]
    pub apply_gate: bool,
    /// Most client requests waiting at once; further ones are refused. Reads that came together are taken or refused together.
    pub pending_max: usize,
    /// Most bytes of writes waiting for a place in the log; further ones are refused.
    pub pending_bytes_max: usize,
    /// When snapshots are taken.
    pub snapshots: SnapshotLimits,
    /// When this member, as leader, transfers leadership by itself.
    pub transfers: TransferConfig,
    /// Time between two comparisons of members' digests; zero for none.
    pub digest_interval: Duration,
    /// The newest feature level that this member may announce: [`crate::level::KNOWN`], or less to act as an older
    /// version.
    pub level_known: u16,
    /// This member's name, published to the others.
    pub name: String,
    /// This member's client URLs, published to the others.
    pub client_urls: Vec<String>,
}

impl NodeConfig {
    /// A replica of this protocol configuration as a cluster is usually run: clients wait as long as etcd's do, writes
    /// that wait for a place in the log take at most as many bytes as the log may have uncommitted, no leader transfers
    /// leadership by itself, nothing is published and digests are not compared.
    #[must_use]
    pub fn new(raft: Config) -> NodeConfig {
        NodeConfig {
            request_timeout_base: Duration::from_secs(5),
            batch_linger: Duration::ZERO,
            apply_gate: false,
            pending_max: 1 << 18,
            pending_bytes_max: raft.limits.uncommitted_bytes_max,
            snapshots: SnapshotLimits::default(),
            transfers: TransferConfig::default(),
            digest_interval: Duration::ZERO,
            level_known: crate::level::KNOWN,
            name: String::new(),
            client_urls: Vec::new(),
            raft,
        }
    }
}

/// One replica without its store. [architecture §2]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    pub(crate) config: NodeConfig,
    pub(crate) raft: Raft,
    /// Identifies this run in forwards, so that sequence numbers of an earlier run are never mistaken for those of this
    /// one.
    pub(crate) run: Incarnation,
    pub(crate) writes: Writes,
    pub(crate) reads: Reads,
    pub(crate) changes: Changes,
    pub(crate) space: Space,
    /// Highest index delivered to the keeper; its queue is ordered, so later tasks see that entry applied.
    pub(crate) delivered: LogIndex,
    pub(crate) confirmation: Confirmation,
    pub(crate) snapshots: Snapshots,
    pub(crate) compare: Compare,
    pub(crate) levels: Levels,
    pub(crate) transfers: TransferPolicy,
    seen: LeaderView,
    leader_changes: u64,
    /// Peers that sent a falsehood, how often, and the last one.
    distrusted: BTreeMap<NodeId, (u64, Falsehood)>,
}

/// Term and leader as last seen; a change settles what depended on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct LeaderView {
    term: Term,
    leader: Option<NodeId>,
}

/// Peers whose falsehoods are recorded: an unknown sender may use any id.
const DISTRUSTED_MAX: usize = 64;

/// Ticket of this replica's own publication; drivers count theirs from 1.
pub(crate) const PUBLISH: Ticket = Ticket(0);

/// Ticket of this replica's own writes, for which no client waits.
pub(crate) const OWN: Ticket = Ticket(u64::MAX);

impl Node {
    /// A replica in the state that its log holds. `seed` feeds election timeouts and identifies this run; draw a new
    /// one for every start.
    ///
    /// # Panics
    /// If the configuration breaks a rule of [`Config::check`].
    #[must_use]
    pub fn recover(config: NodeConfig, seed: u64, now: Instant, recovered: Recovered) -> Node {
        let found = timing_found(&recovered.memberships, recovered.snapshot.as_ref());
        let timing = found.unwrap_or(config.raft.timing());
        let confirmation = Confirmation::begin(&recovered, now, timing.election_timeout);
        let covered = recovered.snapshot.as_ref().map_or(LogIndex(0), |snapshot| snapshot.last.index);
        let rest = if recovered.last.index == LogIndex(0) { Duration::ZERO } else { START_REST };
        let raft = Raft::recover(config.raft.clone(), seed, now, recovered)
            .with_reader(PayloadReader(crate::command::is_readable));
        let seen = LeaderView { term: raft.term(), leader: raft.leader() };
        let publish = Publish {
            id: config.raft.id,
            name: config.name.clone(),
            client_urls: config.client_urls.clone(),
        };
        Node {
            writes: Writes::new(publish.encode()),
            reads: Reads::default(),
            changes: Changes::default(),
            space: Space { log_bytes: u64::MAX, short: false },
            delivered: covered,
            confirmation,
            snapshots: Snapshots::new(now + rest, config.snapshots),
            compare: Compare::new(config.digest_interval),
            levels: Levels::default(),
            transfers: TransferPolicy::new(config.transfers),
            seen,
            leader_changes: 0,
            distrusted: BTreeMap::new(),
            run: Incarnation(seed),
            raft,
            config,
        }
    }

    /// How long a client waits at most, under the election timeout in force. Queues expire from the front: when the timeout
    /// was lowered, a request may wait as long as one before it.
    pub(crate) fn request_timeout(&self) -> Duration {
        self.config.request_timeout_base + self.raft.timing().election_timeout * 2
    }

    /// The latest time for the next [`Event::Tick`].
    #[must_use]
    pub fn deadline(&self) -> Instant {
        let waiting = self.writes.deadline().min(self.reads.deadline()).min(self.changes.deadline());
        let own = self.confirmation.deadline().min(self.compare_deadline()).min(self.snapshot_deadline());
        self.raft.deadline().min(waiting).min(own)
    }

    /// Handles one event: changes the state and appends the effects.
    pub fn handle(&mut self, now: Instant, event: Event, effects: &mut Effects) {
        // Raft appends its records to those of the events before: a batch has one list, which grows once.
        let persist = core::mem::take(&mut effects.persist);
        let mut raft_effects = kattu_raft::Effects { persist, ..kattu_raft::Effects::default() };
        let out = &mut raft_effects;
        match event {
            Event::Tick => {
                self.raft.tick(now, out);
                self.transfer_by_policy(now, out);
                self.transfer_if_divergent(now, out);
                self.expire_writes(now, effects);
                self.expire_reads(now, effects);
                self.confirmation.tick(now, self.delivered, self.raft.timing().heartbeat_interval);
            }
            Event::Drained => {
                self.place_writes(now, out, effects);
                self.place_changes(now, out, effects);
                self.ask_for_reads(now, out);
                self.raft.drained(now, out);
            }
            Event::Client { ticket, request } => self.on_request(now, ticket, request, out, effects),
            Event::Peer(PeerMessage::Raft(envelope)) => self.raft.step(now, envelope, out),
            Event::Peer(PeerMessage::Forward(forward)) => self.on_forward(now, forward, out, effects),
            Event::Peer(PeerMessage::ForwardReply(reply)) => self.on_forward_reply(now, reply, effects),
            Event::Unsent(forward) => self.on_unsent(now, forward),
            Event::Persisted(lsn) => self.raft.persisted(now, lsn, out),
            Event::DiskTook(took) => self.on_disk_took(took),
            Event::VoteHoldRecorded(length) => self.raft.vote_hold_recorded(length),
            Event::Computed(done) => self.raft.computed(now, done, out),
            Event::Fetched { fetch, entries } => self.raft.fetched(now, fetch, entries, out),
            Event::Applied { index } => self.raft.applied(now, index, out),
            Event::ChunkRead { request, read } => self.raft.chunk_read(now, request, read, out),
            Event::ChunkStored(stored) => self.raft.chunk_stored(now, stored, out),
            Event::SnapshotUnreadable { last } => self.raft.snapshot_unreadable(last, out),
            Event::SnapshotTaken { meta, bytes } => self.on_snapshot_taken(now, meta, bytes, out),
            Event::SnapshotFailed { last } => self.on_snapshot_failed(now, last),
            Event::Space(space) => {
                self.space = space;
                self.raft.set_log_space(space.log_bytes);
            }
            Event::LinkClosed(peer, end) => {
                self.raft.link_closed(now, peer, end, out);
                self.on_link_closed(peer, effects);
            }
            Event::Members(members) => self.on_members(members),
            Event::Health(health) => self.on_health(now, health, out),
            Event::Standing(standing) => self.on_standing(standing),
            Event::Admitted(admitted) => self.on_admitted(now, admitted, effects),
            Event::Knows(member, level) => self.on_level(member, level),
            Event::Priority(member, priority) => self.on_priority(member, priority),
            Event::Transfer(to) => {
                if let Some(target) = to.or_else(|| self.raft.best_successor(now)) {
                    let _ = self.raft.transfer(now, target, out); // an ineligible target is ignored
                }
            }
            Event::Tune(tuning) => self.on_tune(now, &tuning),
            Event::Stop => self.on_stop(effects),
        }
        if self.raft.transferring().is_some() {
            // Before leadership moves: afterwards these verdicts would be of an old term.
            self.return_forwarded(effects);
        }
        self.absorb(now, raft_effects, effects);
        self.settle(now, effects);
    }

    /// Client requests waiting for an answer.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.writes.pending() + self.reads.pending() + self.changes.pending()
    }

    /// Bytes of client writes that have no place in the log yet, those on their way to a leader included.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.writes.pending_bytes()
    }

    /// The entry with a client's write that was put into this member's log by the latest events. `None` for one that has none yet,
    /// and for one with an older ticket than a write that was.
    #[must_use]
    pub fn entry_of(&self, ticket: Ticket) -> Option<kattu_raft::EntryId> {
        self.writes.entry_of(ticket)
    }

    /// The protocol's state, for checkers and status.
    #[must_use]
    pub fn raft(&self) -> &Raft {
        &self.raft
    }

    fn on_request(
        &mut self,
        now: Instant,
        ticket: Ticket,
        request: Request,
        out: &mut kattu_raft::Effects,
        effects: &mut Effects,
    ) {
        assert!(ticket != PUBLISH && ticket != OWN, "this ticket is the replica's own");
        if self.refuses_as_corrupt(ticket, &request, effects) {
            return;
        }
        match request {
            Request::Write(command) => self.on_write(now, ticket, command, effects),
            Request::CommitOnly(command) => {
                self.writes.wants_no_result(ticket);
                self.on_write(now, ticket, command, effects);
            }
            Request::Weak(_) if !self.has_weak_answers() => {
                answer(effects, ticket, Outcome::Refused(Refusal::NotWeak));
            }
            Request::Weak(command) => {
                self.writes.weak.wanted.insert(ticket);
                self.on_write(now, ticket, command, effects);
            }
            Request::Weigh(command, bytes) => {
                effects.apply.push(KeeperTask::Weigh { ticket, command, bytes })
            }
            Request::Read(query, consistency) => {
                self.on_read(now, ticket, crate::reads::Wanted::Query(query), consistency, effects);
            }
            Request::LookUp(keys, consistency) => {
                self.on_read(now, ticket, crate::reads::Wanted::Keys(keys), consistency, effects);
            }
            Request::Members(consistency) => {
                self.on_read(now, ticket, crate::reads::Wanted::Members, consistency, effects);
            }
            Request::Change(change) => self.on_change(now, ticket, &change, effects),
            Request::MoveLeader(target) => self.on_move(now, ticket, target, out, effects),
            Request::Pin(consistency) => {
                self.on_read(now, ticket, crate::reads::Wanted::Pin, consistency, effects);
            }
            Request::Status => {
                effects.apply.push(KeeperTask::Status { ticket, status: Box::new(self.status(now)) })
            }
        }
    }

    /// Passes on raft's effects, and delivers committed entries to the keeper with the tickets that wait for them.
    fn absorb(&mut self, now: Instant, raft_effects: kattu_raft::Effects, effects: &mut Effects) {
        effects.persist = raft_effects.persist;
        effects.send.extend(raft_effects.send.into_iter().map(PeerMessage::Raft));
        effects.fetch.extend(raft_effects.fetch);
        effects.compute.extend(raft_effects.compute);
        effects.trace.extend(raft_effects.trace);
        for (peer, falsehood) in raft_effects.distrust {
            self.distrust(peer, falsehood, effects);
        }
        effects.read_chunks.extend(raft_effects.read_chunks);
        if let Some(piece) = raft_effects.store_chunks.last() {
            self.note_incoming(piece.total);
        }
        effects.store_chunks.extend(raft_effects.store_chunks);
        if let Some(meta) = raft_effects.install {
            self.install(meta, effects);
        }
        if !raft_effects.apply.is_empty() {
            self.hand_out(raft_effects.apply, effects);
            self.ask_about_sessions(effects);
        }
        self.answer_weakly(&raft_effects.received, effects);
        for verdict in raft_effects.reads {
            self.on_read_verdict(now, verdict, effects);
        }
    }

    /// Records a falsehood that a peer has sent.
    pub(crate) fn distrust(&mut self, peer: NodeId, falsehood: Falsehood, effects: &mut Effects) {
        effects.distrust.push((peer, falsehood));
        if self.distrusted.len() < DISTRUSTED_MAX || self.distrusted.contains_key(&peer) {
            let (times, last) = self.distrusted.entry(peer).or_insert((0, falsehood));
            (*times, *last) = (*times + 1, falsehood);
        }
    }

    fn hand_out(&mut self, entries: Vec<Entry>, effects: &mut Effects) {
        let term = self.raft.term();
        effects.apply.reserve(entries.len());
        for entry in entries {
            let id = entry.id();
            assert!(
                id.index == self.delivered.next(),
                "entry {id} follows index {} to the keeper",
                self.delivered.0
            );
            self.delivered = id.index;
            self.snapshots.delivered(&entry);
            self.compare.delivered(&entry);
            let tickets = self.writes.answered_by(&entry, effects);
            effects.apply.push(KeeperTask::Apply { entry, tickets, term });
        }
    }

    /// Acts on the state after an event.
    fn settle(&mut self, now: Instant, effects: &mut Effects) {
        let seen = LeaderView { term: self.raft.term(), leader: self.raft.leader() };
        if seen != self.seen {
            if seen.leader.is_some() {
                self.leader_changes += 1;
            }
            let term_moved = seen.term != self.seen.term;
            self.seen = seen;
            let leads = self.raft.is_leader();
            self.transfers.leader_changed(now, self.raft.timing().election_timeout, leads);
            self.on_leadership_change(term_moved, effects);
            self.reads.ask_at_once();
        }
        self.confirmation.delivered(self.delivered);
        self.release_reads(effects);
        self.settle_moves(now, effects);
        self.publish_when_led(now);
        self.compare_if_due(now);
        self.raise_level_if_all_know(now);
        self.take_snapshot_if_due(now, effects);
    }

    fn on_stop(&mut self, effects: &mut Effects) {
        self.return_forwarded(effects);
        self.writes.stop(effects);
        self.reads.stop(effects);
        self.changes.stop(effects);
    }

    /// What peers keep in their windows, if the cluster has any.
    fn windows(&self) -> Vec<(NodeId, u64)> {
        match self.raft.membership().extensions.protocol {
            Some(Protocol::NbRaft(_)) => self.raft.peer_windows().collect(),
            Some(Protocol::Raft) | None => Vec::new(),
        }
    }

    /// The replica's half of a status; the keeper completes it.
    fn status(&self, now: Instant) -> Status {
        Status {
            id: self.raft.id(),
            term: self.raft.term(),
            leader: self.raft.leader(),
            role: self.raft.role_name(),
            learner: self.raft.is_learner(),
            has_leader_lease: self.raft.leader_lease_until().is_some_and(|until| now < until),
            leader_lease_is_over: self.raft.leader_lease_is_over(),
            leader_lease_without: self.raft.leader_lease_without(),
            clocks_apart: self.raft.clocks_apart(),
            distrusted: self.distrusted.iter().map(|(&peer, &(times, last))| (peer, times, last)).collect(),
            persisted: self.raft.persisted_index(),
            committed: self.raft.committed(),
            applied: self.raft.applied_index(),
            first: self.raft.first_index(),
            snapshot: self.raft.snapshot().map_or(LogIndex(0), |snapshot| snapshot.last.index),
            last: self.raft.last_id().index,
            no_space: self.space.short,
            serving_unconfirmed: self.confirmation.is_unconfirmed(),
            leader_changes: self.leader_changes,
            pending: self.pending() as u64,
            timing: self.raft.timing(),
            protocol: self.raft.membership().extensions.protocol,
            windows: self.windows(),
            weak: self.weak_counts(),
            ..Status::default()
        }
    }
}

/// Answers a client, unless the "client" is this replica's own publication.
pub(crate) fn answer(effects: &mut Effects, ticket: Ticket, outcome: Outcome) {
    assert!(ticket != PUBLISH, "publications are retried, not answered");
    if ticket != OWN {
        effects.reply.push((ticket, outcome));
    }
}
