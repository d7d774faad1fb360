//! One peer: the state that all roles share, its entry points, and which role handles which message.
//!
//! In:    time, messages, proposals, reads, completions.
//! Out:   effects, each of which may be carried out the moment it is emitted.
//! Rule:  a message's term is judged before anything else in it [replication-protocols O6]; then the pair of role
//!        and message decides, written out in full below.
//! Knows nothing of: clients, stores, bytes, disks, sockets.

use crate::apply::Delivery;
use crate::bytes::SharedBytes;
use crate::compute::JobId;
use crate::config::Config;
use crate::configurations::Configurations;
use crate::contact::Origin;
use crate::contract::{Effects, Fetch, LogBody, Recovered};
use crate::distrust::Falsehood;
use crate::durability::Durability;
use crate::entry::{Entry, EntryHead, EntryKind, PayloadReader, RECORD_ROOM};
use crate::flow::PeerFlow;
use crate::log::Log;
use crate::marks::Marks;
use crate::membership::Membership;
use crate::message::{Envelope, Message};
use crate::reminder::Returning;
use crate::rng::Rng;
use crate::role::{Follower, Role, Timer};
use crate::settings::OwnSettings;
use crate::snapshot::{Incoming, Installing, SnapshotMeta};
use crate::trace::Trace;
use crate::types::{Duration, EntryId, Instant, LogIndex, Lsn, NodeId, Round, Stamp, Term};
use alloc::vec::Vec;

/// Bytes of records that share a buffer: the buffer is freed when the last of them is. A longer record has its own.
const RUN_BYTES: usize = 64 << 10;

/// One peer of one group. Its whole state: cloning it forks the peer, equal states behave equally forever.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Raft {
    /// Identity, limits, and the settings in force, which a configuration may change. [`crate::settings`]
    pub(crate) config: Config,
    /// The settings of this peer's own start.
    pub(crate) own_settings: OwnSettings,
    /// Decides which entries of other members this peer can read.
    pub(crate) reader: PayloadReader,
    pub(crate) rng: Rng,
    /// Newest term seen.
    pub(crate) term: Term,
    /// The member that this peer voted for in that term.
    pub(crate) vote: Option<NodeId>,
    pub(crate) role: Role,
    pub(crate) log: Log,
    /// The group's members, now and as far back as a log index may ask for them.
    pub(crate) configurations: Configurations,
    /// Whether a committed configuration has ever included this member.
    pub(crate) belonged: bool,
    /// The newest complete snapshot.
    pub(crate) snapshot: Option<SnapshotMeta>,
    /// A snapshot that is being received; it outlives the role that receives it.
    pub(crate) incoming: Option<Incoming>,
    /// A snapshot that was received completely and is not in the store yet.
    pub(crate) installing: Option<Installing>,
    pub(crate) marks: Marks,
    pub(crate) durability: Durability,
    /// How long this disk took for the last group of records, as answers report it; zero before the first report.
    pub(crate) disk_time: Duration,
    pub(crate) delivery: Delivery,
    /// Reads of the log under way; they outlive the role that requested them.
    pub(crate) fetches: Vec<Fetch>,
    /// The newest job of this run.
    pub(crate) jobs: JobId,
    /// Bytes that the log has left for entries. [fault-model ST15]
    pub(crate) log_space: u64,
    /// Whether an earlier run of this member may have served requests.
    pub(crate) has_past: bool,
    /// Pre-vote rounds that this peer has started in this term.
    pub(crate) pre_vote_round: Round,
    /// After a restart: no pre-vote is granted before this. [`crate::election`]
    pub(crate) grace_until: Instant,
    /// No vote, no pre-vote and no own campaign before this. [`crate::leader_lease`]
    pub(crate) vote_hold: Instant,
    /// How long vote holds of this member may last, as the driver has made it durable. [`crate::settings`]
    pub(crate) hold_recorded: Duration,
    /// Until then vote holds may be open that last longer than the election timeout in force. [`crate::settings`]
    pub(crate) longer_holds_until: Instant,
    /// Other members' priorities that differ from the default, ascending by member.
    pub(crate) priorities: Vec<(NodeId, u8)>,
    /// Added to batch numbers on the wire, so that an answer to an earlier run of this member matches no batch of this
    /// one.
    pub(crate) read_nonce: u64,
    /// The end of the log part that this disk lost, as reported by the disk or by a leader. [`crate::vote_floor`]
    pub(crate) vote_floor: Option<EntryId>,
    /// The group's commit index when this member started, as reported by other voters. [`crate::reminder`]
    pub(crate) bar: EntryId,
    /// Set until this member takes part after its start. [`crate::reminder`]
    pub(crate) returning: Option<Returning>,
}

/// Why a proposal was certainly not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProposeError {
    /// This peer does not lead.
    NotLeader,
    /// Too many bytes are proposed and not committed, or committed and not applied.
    TooMuch,
    /// The log has no room for it.
    NoSpace,
    /// A leadership transfer is under way: soon there is a new leader, or this one goes on.
    Transferring,
}

impl Raft {
    /// A peer recovered from its log; with an empty `recovered`, a new one.
    ///
    /// `seed` must differ from run to run of one member. A group of one voter campaigns at its first tick, which is
    /// due at once. Where leader leases are on, the driver has made durable that this run grants vote holds as long as
    /// the election timeout in force, which [`timing_found`](crate::timing_found) tells, or `config`.
    ///
    /// # Panics
    /// If [`Config::check`] refuses the configuration, or `recovered` contradicts itself.
    #[must_use]
    pub fn recover(mut config: Config, seed: u64, now: Instant, recovered: Recovered) -> Raft {
        if let Err(broken) = config.check() {
            panic!("configuration of {:?}: {broken}", config.id);
        }
        let Recovered { hard, base, last, committed, lsn, vote_floor, .. } = recovered;
        let log = Log::recover(&recovered);
        let recovered_hold = recovered.vote_hold;
        let Recovered { snapshot, memberships, .. } = recovered;
        let covered = snapshot.as_ref().map_or(LogIndex(0), |meta| meta.last.index);
        if let Some(meta) = &snapshot {
            assert!(log.holds(meta.last), "a snapshot up to {}, the log is {base} to {last}", meta.last);
        }
        assert!(last.term <= hard.term, "the log ends at {last}, but the term is only {:?}", hard.term);
        assert!(committed <= last.index, "commit mark {committed:?} after the last entry {last}");
        let committed = committed.max(base.index).max(covered);
        let mut rng = Rng::new(seed, config.id.0);
        let read_nonce = rng.next() ^ Rng::new(lsn.0, hard.term.0).next();
        let configurations = Configurations::recover(config.membership(), snapshot.as_ref(), memberships);
        let own_settings = OwnSettings::of(&config);
        config.follow(&own_settings, &configurations.newest().extensions);
        let alone = configurations.newest().is_alone(config.id);
        let belongs =
            |at: &LogIndex, membership: &Membership| *at <= committed && membership.contains(config.id);
        let belonged = configurations.all().any(|(at, membership)| belongs(at, membership));
        // Includes voters of uncommitted configurations: the leader that counted this peer may have had a later one.
        let (last_committed, _) = configurations.at(committed);
        let undecided = configurations.all().filter(|(at, _)| last_committed <= at);
        let voters = undecided.flat_map(|(_, membership)| membership.all_voters());
        let others = voters.filter(|voter| *voter != config.id);
        let returning =
            Returning::begin(now, others, (lsn > Lsn(0), hard, read_nonce), config.election_timeout)
                .filter(|_| config.leadership.asks_first);
        let timer = Timer { started: now, timeout: Duration::ZERO }; // placeholder until the state exists
        let mut raft = Raft {
            log,
            configurations,
            belonged,
            snapshot,
            incoming: None,
            installing: None,
            marks: Marks { applied: covered, delivered: covered, committed, persisted: last.index },
            durability: Durability::recover(lsn, committed),
            disk_time: Duration::ZERO,
            delivery: Delivery::new(if covered < committed { now } else { Instant::NEVER }),
            fetches: Vec::new(),
            jobs: JobId(0),
            log_space: u64::MAX,
            has_past: lsn > Lsn(0),
            pre_vote_round: Round(0),
            grace_until: if lsn > Lsn(0) { now + config.timing().grace() } else { Instant(0) },
            vote_hold: Instant(0),
            hold_recorded: Duration::ZERO,
            longer_holds_until: Instant(0),
            priorities: Vec::new(),
            read_nonce,
            vote_floor: vote_floor.filter(|vote_floor| last < *vote_floor),
            bar: EntryId::default(),
            returning,
            term: hard.term,
            vote: hard.vote,
            role: Role::Follower(Follower { timer, following: None }),
            rng,
            reader: PayloadReader::CREDULOUS,
            own_settings,
            config,
        };
        raft.vote_hold_of_earlier_runs(now, recovered_hold);
        let mut timer = raft.election_timer(now);
        if alone {
            timer.timeout = raft.vote_hold.since(now); // granted, perhaps, to a leader that is no voter any more
        }
        raft.role = Role::Follower(Follower { timer, following: None });
        raft
    }

    /// From now on accepts entries of other members only if `reader` can read them; without a reader all are accepted.
    #[must_use]
    pub fn with_reader(self, reader: PayloadReader) -> Raft {
        Raft { reader, ..self }
    }

    /// Call [`Raft::tick`] no later than this.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        if let Some(returning) = &self.returning {
            return returning.deadline().min(self.durability.mark_at()).min(self.delivery.retry_at());
        }
        self.role.deadline(&self.config).min(self.durability.mark_at()).min(self.delivery.retry_at())
    }

    /// Advances the time.
    pub fn tick(&mut self, now: Instant, effects: &mut Effects) {
        self.tick_returning(now, effects);
        match &self.role {
            _ if self.is_returning() => {}
            Role::Follower(_) | Role::PreCandidate(_) | Role::Candidate(_) => {
                self.tick_election(now, effects);
                self.tick_asked_reads(now, effects);
                self.tick_unread(now, effects);
            }
            Role::Leader(_) => self.tick_leader(now, effects),
        }
        self.tick_commit_mark(now, effects);
        self.hand_out(now, effects);
    }

    fn tick_leader(&mut self, now: Instant, effects: &mut Effects) {
        self.notice_pause(now);
        self.tick_check_quorum(now, effects);
        let Some(mut leading) = self.leading() else { return };
        leading.tick_transfer(now, effects);
        leading.tick_heartbeat(now, effects);
        leading.tick_questions(now, effects);
        leading.tick_yielding(now, effects);
        leading.tick_commit_notices(now, effects);
        leading.tick_streams(now, effects);
        self.follow_up_change(now, effects); // retried here if the log had no room for it before
    }

    /// Takes one message. Messages of other groups or for other members are ignored. From a sender that is not a known
    /// member only requests of leaders, candidates and starting members count: a configuration that this member has not
    /// seen yet may include the sender. [Ongaro14 §4.1]
    pub fn step(&mut self, now: Instant, envelope: Envelope, effects: &mut Effects) {
        let from = envelope.from;
        if envelope.group != self.config.group || envelope.to != self.config.id || from == self.config.id {
            return;
        }
        if !self.listens_to(&envelope) {
            return;
        }
        if let Some(falsehood) = self.falsehood_of(&envelope) {
            return Raft::distrust(from, falsehood, effects);
        }
        match &envelope.message {
            Message::Remind(remind) => return self.on_remind(&envelope, remind, effects),
            Message::Reminder(reminder) => {
                return self.on_reminder(now, from, envelope.term, reminder, effects);
            }
            _ if self.is_returning() => return,
            _ => {}
        }
        if self.is_sticky_against(now, &envelope) {
            return;
        }
        self.notice_pause(now);
        let origin = Origin::of(&envelope);
        if envelope.term < self.term {
            self.answer_stale(origin, envelope.message, effects);
            return;
        }
        if envelope.term > self.term {
            self.adopt_term(now, envelope.term, effects);
        }
        let incarnation = envelope.incarnation;
        match (&self.role, envelope.message) {
            (Role::Follower(_), Message::Append(append)) => self.on_append(now, origin, append, effects),
            (Role::PreCandidate(_) | Role::Candidate(_), Message::Append(append)) => {
                self.become_follower(now, effects);
                self.on_append(now, origin, append, effects);
            }
            (Role::Leader(_), Message::Append(_)) => {
                Raft::distrust(from, Falsehood::SecondLeader(self.term), effects);
            }

            (Role::Leader(_), Message::AppendReply(reply)) => {
                self.on_append_reply(now, from, incarnation, &reply, effects);
            }
            (Role::Follower(_) | Role::PreCandidate(_) | Role::Candidate(_), Message::AppendReply(_)) => {}

            (
                Role::Follower(_) | Role::PreCandidate(_) | Role::Candidate(_) | Role::Leader(_),
                Message::PreVote(request),
            ) => {
                self.on_pre_vote(now, from, &request, effects);
            }

            (Role::PreCandidate(_), Message::PreVoteReply(reply)) => {
                self.on_pre_vote_reply(now, from, &reply, effects);
            }
            (Role::Follower(_) | Role::Candidate(_) | Role::Leader(_), Message::PreVoteReply(_)) => {}

            (
                Role::Follower(_) | Role::PreCandidate(_) | Role::Candidate(_) | Role::Leader(_),
                Message::Vote(request),
            ) => {
                self.on_vote(now, from, &request, effects);
            }

            (Role::Candidate(_), Message::VoteReply(reply)) => self.on_vote_reply(now, from, &reply, effects),
            (Role::Follower(_) | Role::PreCandidate(_) | Role::Leader(_), Message::VoteReply(_)) => {}

            (Role::Leader(_), Message::ReadIndex(request)) => {
                self.on_read_index(now, from, &request, effects)
            }
            (Role::Follower(_) | Role::PreCandidate(_) | Role::Candidate(_), Message::ReadIndex(request)) => {
                self.refuse_read_index(from, &request, effects);
            }

            (Role::Follower(_), Message::ReadIndexReply(reply)) => {
                self.on_read_index_reply(now, from, &reply, effects);
            }
            (Role::PreCandidate(_) | Role::Candidate(_) | Role::Leader(_), Message::ReadIndexReply(_)) => {}

            (Role::Follower(_), Message::SnapshotChunk(chunk)) => {
                self.on_snapshot_chunk(now, origin, chunk, effects);
            }
            (Role::PreCandidate(_) | Role::Candidate(_), Message::SnapshotChunk(chunk)) => {
                self.become_follower(now, effects);
                self.on_snapshot_chunk(now, origin, chunk, effects);
            }
            (Role::Leader(_), Message::SnapshotChunk(_)) => {
                Raft::distrust(from, Falsehood::SecondLeader(self.term), effects);
            }

            (Role::Leader(_), Message::SnapshotReply(reply)) => {
                self.on_snapshot_reply(now, from, incarnation, reply, effects);
            }
            (Role::Follower(_) | Role::PreCandidate(_) | Role::Candidate(_), Message::SnapshotReply(_)) => {}

            (Role::Follower(_), Message::TimeoutNow(_)) => self.on_timeout_now(now, from, effects),
            (Role::PreCandidate(_) | Role::Candidate(_) | Role::Leader(_), Message::TimeoutNow(_)) => {}

            (Role::Follower(_), Message::Lost(lost)) => self.on_lost(now, origin, &lost, effects),
            (Role::PreCandidate(_) | Role::Candidate(_), Message::Lost(lost)) => {
                self.become_follower(now, effects);
                self.on_lost(now, origin, &lost, effects);
            }
            (Role::Leader(_), Message::Lost(_)) => {
                Raft::distrust(from, Falsehood::SecondLeader(self.term), effects);
            }

            // `StaleTerm` carries nothing but its term; the other two were handled above.
            (
                Role::Follower(_) | Role::PreCandidate(_) | Role::Candidate(_) | Role::Leader(_),
                Message::StaleTerm(_) | Message::Remind(_) | Message::Reminder(_),
            ) => {}
        }
    }

    /// Accepts a proposal: gives it a place in the log and sends it to this disk at once, to the peers with the next
    /// [`Raft::drained`].
    ///
    /// # Errors
    /// The proposal was not accepted and never will be.
    pub fn propose(
        &mut self,
        now: Instant,
        kind: EntryKind,
        payload: &[u8],
        effects: &mut Effects,
    ) -> Result<EntryId, ProposeError> {
        assert!(kind != EntryKind::Config, "members change through Raft::propose_change");
        let waiting = self.may_propose()?;
        if self.is_too_much(waiting, payload) {
            return Err(ProposeError::TooMuch);
        }
        let entry = self.new_entry(now, kind, payload);
        if entry.len() as u64 > self.log_space {
            return Err(ProposeError::NoSpace);
        }
        let id = entry.id();
        self.stir(now);
        self.accept(entry, effects);
        Ok(id)
    }

    /// Whether proposals are accepted at all; the bytes that are not committed.
    fn may_propose(&self) -> Result<usize, ProposeError> {
        let Some(leader) = self.role.leader() else { return Err(ProposeError::NotLeader) };
        if leader.transfer.is_some() {
            return Err(ProposeError::Transferring);
        }
        if self.apply_is_backlogged() {
            return Err(ProposeError::TooMuch);
        }
        Ok(leader.inherited_bytes + leader.uncommitted_bytes)
    }

    /// Whether this is a leader, and what earlier leaders left is not all committed yet. A proposal that is too much now
    /// may soon be welcome.
    #[must_use]
    pub fn inherits(&self) -> bool {
        self.role.leader().is_some_and(|leader| leader.inherited_bytes > 0)
    }

    /// Whether a payload has to wait while so many bytes are not committed. One always passes.
    fn is_too_much(&self, waiting: usize, payload: &[u8]) -> bool {
        waiting > 0 && waiting + payload.len() > self.config.limits.uncommitted_bytes_max
    }

    /// The next heartbeat is due after an interval at most, if this member leads. [E9]
    pub(crate) fn stir(&mut self, now: Instant) {
        if let Some(leader) = self.role.leader_mut() {
            leader.stir(now, &self.config);
        }
    }

    /// A new entry of this leader's goes into its log.
    fn accept(&mut self, entry: Entry, effects: &mut Effects) {
        if let Some(leader) = self.role.leader_mut() {
            leader.uncommitted_bytes += entry.len();
            leader.yielding.note(entry.len(), &self.config);
        }
        self.append(entry, effects);
    }

    /// Accepts commands one after the other, as [`Raft::propose`] does each; their records share buffers. Returns how many
    /// are in the log, from the index after the last one on, and why the next one is not, if it was not accepted.
    pub fn propose_run(
        &mut self,
        now: Instant,
        payloads: &[&[u8]],
        effects: &mut Effects,
    ) -> (usize, Option<ProposeError>) {
        let mut done = 0;
        while done < payloads.len() {
            match self.propose_some(now, &payloads[done..], effects) {
                Ok(count) => done += count,
                Err(refused) => return (done, Some(refused)),
            }
        }
        (done, None)
    }

    /// As many of these commands as share a buffer: one at least, or the first is not accepted.
    fn propose_some(
        &mut self,
        now: Instant,
        payloads: &[&[u8]],
        effects: &mut Effects,
    ) -> Result<usize, ProposeError> {
        let (mut waiting, mut space) = (self.may_propose()?, self.log_space);
        let head = self.new_head(now, EntryKind::Command);
        let most = payloads.iter().scan(0, |bytes, payload| {
            let before = *bytes;
            *bytes += payload.len() + RECORD_ROOM;
            (before == 0 || *bytes <= RUN_BYTES).then_some(*bytes)
        });
        let (count, bytes) = most.fold((0, 0), |(count, _), bytes| (count + 1, bytes));
        let mut records = Vec::with_capacity(bytes);
        let mut places = Vec::with_capacity(count);
        let mut refused = ProposeError::TooMuch;
        for payload in &payloads[..count] {
            if self.is_too_much(waiting, payload) {
                break;
            }
            let index = LogIndex(head.id.index.0 + places.len() as u64);
            let head = EntryHead { id: EntryId { index, ..head.id }, ..head };
            let start = records.len();
            let payload_start = (self.config.encoder.0)(self.config.group, head, payload, &mut records);
            let length = records.len() - start;
            if length as u64 > space {
                records.truncate(start);
                refused = ProposeError::NoSpace;
                break;
            }
            waiting += length;
            space -= length as u64;
            places.push((head, start..records.len(), payload_start));
        }
        if places.is_empty() {
            return Err(refused);
        }
        let (count, records) = (places.len(), SharedBytes::from(records));
        effects.persist.reserve(count);
        self.stir(now);
        for (head, place, payload_start) in places {
            self.accept(Entry::new(head, records.slice(place), payload_start), effects);
        }
        Ok(count)
    }

    /// The driver's inbox is empty: sends what was held back to form batches.
    pub fn drained(&mut self, now: Instant, effects: &mut Effects) {
        self.start_read_entry(now, effects);
        if let Some(mut leading) = self.leading() {
            leading.start_read_round(now, effects);
            leading.replicate(now, effects);
            leading.tell_waiting_peers(now, effects);
            leading.report_received(effects); // a leader without other voters has received all
        } else {
            self.acknowledge(now, effects);
        }
    }

    /// Sets how many bytes of entries the log has room for. Before the first call the room is unlimited.
    pub fn set_log_space(&mut self, bytes: u64) {
        self.log_space = bytes;
    }

    /// Whether a message is handled: from unknown senders only requests of leaders, candidates and starting members.
    fn listens_to(&self, envelope: &Envelope) -> bool {
        match &envelope.message {
            Message::Append(_)
            | Message::SnapshotChunk(_)
            | Message::TimeoutNow(_)
            | Message::Lost(_)
            | Message::PreVote(_)
            | Message::Vote(_)
            | Message::Remind(_) => true,
            Message::AppendReply(_)
            | Message::StaleTerm(_)
            | Message::SnapshotReply(_)
            | Message::PreVoteReply(_)
            | Message::VoteReply(_)
            | Message::ReadIndex(_)
            | Message::ReadIndexReply(_)
            | Message::Reminder(_) => {
                let from = envelope.from;
                let member = self.configurations.all().any(|(_, membership)| membership.contains(from));
                member || self.role.leader().is_some_and(|leader| leader.peers.contains_key(&from))
            }
        }
    }

    /// An entry of this term for the next position. The stamp follows this clock from the leadership's start and
    /// never falls along the log. [replication-protocols X5]
    pub(crate) fn new_entry(&self, now: Instant, kind: EntryKind, payload: &[u8]) -> Entry {
        self.config.encoder.entry(self.config.group, self.new_head(now, kind), payload)
    }

    fn new_head(&self, now: Instant, kind: EntryKind) -> EntryHead {
        let Some(leader) = self.role.leader() else { unreachable!("only a leader creates entries") };
        let elapsed = u64::try_from(now.since(leader.since).as_millis()).unwrap_or(u64::MAX);
        let clock = Stamp(leader.stamp_since.0.saturating_add(elapsed));
        EntryHead {
            id: EntryId { term: self.term, index: self.log.last().index.next() },
            kind,
            stamp: clock.max(self.log.stamp()),
        }
    }

    /// Adds an entry to the log and sends it to this disk.
    pub(crate) fn append(&mut self, entry: Entry, effects: &mut Effects) {
        assert!(entry.id().term <= self.term, "entry {} in {:?}", entry.id(), self.term);
        self.log_space = self.log_space.saturating_sub(entry.len() as u64);
        if entry.head.kind == EntryKind::Config
            && let Some(leader) = self.role.leader_mut()
        {
            leader.lease.drop_it(); // only rounds that start under the new configuration count [L-7]
        }
        self.log.append(entry.clone());
        if entry.head.kind == EntryKind::Config {
            // Of a configuration that arrives, `is_well_formed` has read the payload; a leader makes its own ones whole.
            let payload = entry.payload().unwrap_or_else(|| panic!("entry {} came in part", entry.id()));
            let membership = Membership::decode(payload);
            let (membership, _) = membership.unwrap_or_else(|error| panic!("entry {}: {error}", entry.id()));
            self.configure(entry.id().index, membership, effects);
        }
        self.record(LogBody::Entry(entry), effects);
    }

    /// Removes the entries from `first` on, which the leader's log contradicts.
    pub(crate) fn truncate(&mut self, first: LogIndex, effects: &mut Effects) {
        let committed = self.marks.committed;
        assert!(committed < first, "truncation from {first:?} at or below commit {committed:?} [O8]");
        effects.trace.push(Trace::Truncated(self.log.id_at(first)));
        self.log.truncate(first);
        let was = self.configurations.newest_at();
        self.configurations.truncate(first);
        if self.configurations.newest_at() < was {
            effects.trace.push(Trace::Configured(self.configurations.newest_at()));
            self.take_settings();
        }
        self.marks.persisted = self.marks.persisted.min(first.previous());
        self.record(LogBody::Truncate(first), effects);
    }

    /// Drops old entries from memory: those that are on disk and were delivered to apply. Entries that an in-sync peer
    /// lacks stay longer, so that a peer that is a little late is not fed from the disk.
    pub(crate) fn shrink_recent(&mut self) {
        let upto = self.marks.delivered.min(self.marks.persisted);
        let recent_first = self.log.recent_first();
        let taken = self.role.leader().and_then(|leader| {
            let in_sync = leader.peers.values().filter(|progress| progress.is_in_sync(recent_first));
            in_sync.map(|progress| progress.matched).min()
        });
        self.log.shrink(taken.map_or(upto, |taken| taken.min(upto)), self.config.limits.recent_bytes_max);
        self.log.shrink(upto, self.config.limits.recent_in_sync_bytes());
    }

    /// A message from this peer in its current term.
    pub(crate) fn envelope(&self, to: NodeId, message: Message) -> Envelope {
        let Config { group, id, incarnation, .. } = self.config;
        Envelope { group, from: id, incarnation, to, term: self.term, message }
    }

    /// Bytes of recent entries that are kept in memory.
    #[must_use]
    pub fn recent_bytes(&self) -> usize {
        self.log.recent_bytes()
    }

    /// This peer.
    #[must_use]
    pub fn id(&self) -> NodeId {
        self.config.id
    }

    /// Newest term seen.
    #[must_use]
    pub fn term(&self) -> Term {
        self.term
    }

    /// The leader of this term, if known; this peer itself while it leads.
    #[must_use]
    pub fn leader(&self) -> Option<NodeId> {
        match &self.role {
            Role::Follower(follower) => follower.following.as_ref().map(|following| following.leader),
            Role::PreCandidate(_) | Role::Candidate(_) => None,
            Role::Leader(_) => Some(self.config.id),
        }
    }

    /// Whether this peer leads its term.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        matches!(self.role, Role::Leader(_))
    }

    /// `follower`, `pre-candidate`, `candidate` or `leader`.
    #[must_use]
    pub fn role_name(&self) -> &'static str {
        self.role.name()
    }

    /// Highest index known committed.
    #[must_use]
    pub fn committed(&self) -> LogIndex {
        self.marks.committed
    }

    /// Highest index delivered to apply.
    #[must_use]
    pub fn applied_delivered(&self) -> LogIndex {
        self.marks.delivered
    }

    /// Highest index that the store has reported applied.
    #[must_use]
    pub fn applied_index(&self) -> LogIndex {
        self.marks.applied
    }

    /// Highest index on this disk.
    #[must_use]
    pub fn persisted_index(&self) -> LogIndex {
        self.marks.persisted
    }

    /// Position right before the first entry of the log: everything up to there is in a snapshot only.
    #[must_use]
    pub fn base(&self) -> EntryId {
        self.log.base()
    }

    /// First index of the log; one after the last for an empty log.
    #[must_use]
    pub fn first_index(&self) -> LogIndex {
        self.log.first_index()
    }

    /// Last position of the log.
    #[must_use]
    pub fn last_id(&self) -> EntryId {
        self.log.last()
    }

    /// Whether this peer has no vote in the newest configuration.
    #[must_use]
    pub fn is_learner(&self) -> bool {
        !self.membership().is_voter(self.config.id)
    }

    /// The voters of the newest configuration, ascending; while it is joint, the new ones.
    #[must_use]
    pub fn voters(&self) -> &[NodeId] {
        &self.membership().voters
    }

    /// The term of the entry at `index`; `None` outside the log.
    #[must_use]
    pub fn term_at(&self, index: LogIndex) -> Option<Term> {
        self.log.term_at(index)
    }

    /// The highest index at which each peer is known to agree with the leader. Empty unless this peer leads.
    pub fn peer_matches(&self) -> impl Iterator<Item = (NodeId, LogIndex)> {
        let peers = self.role.leader().map(|leader| &leader.peers);
        peers.into_iter().flatten().map(|(&peer, progress)| (peer, progress.matched))
    }

    /// How many entries each peer keeps in its window, as it last reported. Empty unless this peer leads.
    pub fn peer_windows(&self) -> impl Iterator<Item = (NodeId, u64)> {
        let peers = self.role.leader().map(|leader| &leader.peers);
        peers.into_iter().flatten().map(|(&peer, progress)| (peer, progress.flow.early()))
    }

    /// Appends with entries that a peer has not answered; 0 unless this peer leads.
    #[must_use]
    pub fn inflight_msgs(&self, peer: NodeId) -> usize {
        let progress = self.role.leader().and_then(|leader| leader.peers.get(&peer));
        progress.map_or(0, |progress| progress.flow.inflight().0)
    }

    /// What was sent to each peer in this term, and how it is acknowledged. Empty unless this peer leads.
    pub fn peer_flows(&self) -> impl Iterator<Item = (NodeId, PeerFlow)> {
        let peers = self.role.leader().map(|leader| &leader.peers);
        let last = self.log.last().index;
        peers.into_iter().flatten().map(move |(&peer, progress)| {
            let behind = last.0.saturating_sub(progress.matched.0);
            let (counts, srtt) = (progress.flow.counts(), progress.flow.srtt());
            (peer, PeerFlow { counts, srtt, behind })
        })
    }
}
