//! A few replicas in one test: a disk that is a vector, a network that is a queue, a clock that the test advances.

use kattu_kv::api::{self as kv, Answer};
use kattu_kv::lookup::Keys;
use kattu_node::command::encode_kv;
use kattu_node::contract::Effects;
use kattu_node::contract::*;
use kattu_node::frozen::Frozen;
use kattu_node::{Keeper, Node, NodeConfig, SnapshotLimits, TransferConfig};
use kattu_raft::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// The election timeout of all members.
pub const ET: Duration = Duration::from_millis(1000);

/// The time between two writes of [`World::write_for`].
const WRITES_APART: Duration = Duration::from_millis(25);

/// One replica, and what its host keeps for it.
pub struct Member {
    /// The half that speaks with peers.
    pub node: Node,
    /// The half that owns the tables.
    pub keeper: Keeper,
    /// Everything durable, in order.
    pub disk: Vec<LogRecord>,
    /// Whether it runs.
    pub alive: bool,
    /// The answers to clients so far.
    pub outcomes: BTreeMap<Ticket, Outcome>,
    /// Weak answers to clients so far.
    pub received: BTreeMap<Ticket, EntryId>,
    /// The entries that were delivered to its keeper in this run, in order.
    pub applied: Vec<EntryId>,
    /// Whole files, oldest first.
    pub snapshots: Vec<(SnapshotMeta, Vec<u8>)>,
    receiving: Option<(SnapshotMeta, Vec<u8>)>,
    /// A snapshot that is to be read for the keeper, while `World::reads_late`.
    pub wanted: Option<SnapshotMeta>,
}

/// All replicas, and the network between them.
pub struct World {
    /// The one clock.
    pub now: Instant,
    /// All members, running or not.
    pub members: BTreeMap<NodeId, Member>,
    /// Messages under way, oldest first.
    pub network: VecDeque<PeerMessage>,
    /// Messages for which this returns true are lost.
    pub loses: Box<dyn Fn(&PeerMessage) -> bool>,
    /// Forwards for which this returns true cannot be sent, and their sender gets [`Event::Unsent`].
    pub keeps: Box<dyn Fn(&Forward) -> bool>,
    /// When members take snapshots.
    pub limits: SnapshotLimits,
    /// Time between two comparisons; zero for none.
    pub digest_interval: Duration,
    /// When leaders transfer leadership by themselves.
    pub transfers: TransferConfig,
    /// Snapshots cannot be written.
    pub full: bool,
    /// Snapshots are damaged as soon as they are written.
    pub ruins: bool,
    /// Snapshots tried so far.
    pub tried: usize,
    /// Keepers wait for snapshots until [`World::bring`].
    pub reads_late: bool,
    /// Members that came later than the first ones, and began without a list of voters.
    pub joined: BTreeSet<NodeId>,
    /// How often each member that joined began with an empty disk.
    lives: BTreeMap<NodeId, u64>,
    tickets: u64,
    starts: u64,
    size: u64,
}

/// The configuration of the peer of member `id` in a cluster of `size`.
pub fn raft_config(id: NodeId, size: u64) -> Config {
    Config {
        election_timeout: ET,
        heartbeat_interval: ET / 10,
        limits: Limits { read_apart_bytes_min: 16, ..Limits::default() }, // some appends have jobs
        ..Config::new(id, (1..=size).map(NodeId), RecordEncoder::BARE)
    }
}

/// The peer URLs of this member.
pub fn urls(id: u64) -> Vec<String> {
    vec![format!("http://10.0.0.{id}:2380")]
}

/// A request that sets a key.
pub fn put(key: &str, value: &str) -> Request {
    let put = kv::Put { key: key.into(), value: value.into(), ..kv::Put::default() };
    Request::Write(encode_kv(&kv::Command::Put(put)).into())
}

/// A request that reads a key.
pub fn get(key: &str, consistency: Consistency) -> Request {
    let keys = kv::KeyRange { start: key.into(), end: vec![] };
    Request::Read(kv::Query::Range(kv::Range { keys, ..kv::Range::default() }), consistency)
}

/// Reads of single keys that came together.
pub fn look_up(keys: &[&str], consistency: Consistency) -> Request {
    let mut wanted = Keys::default();
    keys.iter().for_each(|key| wanted.push(key.as_bytes()));
    Request::LookUp(Arc::new(wanted), consistency)
}

impl World {
    /// A cluster of `size` voters.
    pub fn new(size: u64) -> World {
        World::with_snapshots(size, SnapshotLimits::default())
    }

    /// The same with other limits for snapshots.
    pub fn with_snapshots(size: u64, limits: SnapshotLimits) -> World {
        World::with(size, limits, Duration::ZERO)
    }

    /// Members that compare digests at this interval.
    pub fn comparing(size: u64, digest_interval: Duration) -> World {
        World::with(size, SnapshotLimits::default(), digest_interval)
    }

    /// The same with both. A leader transfers leadership to a voter of higher priority.
    pub fn with(size: u64, limits: SnapshotLimits, digest_interval: Duration) -> World {
        let transfers = TransferConfig { to_priority: true, from_slow_disk: false };
        World::of(size, limits, digest_interval, transfers)
    }

    /// A cluster of `size` voters whose leaders transfer leadership by themselves in these cases.
    pub fn transferring(size: u64, transfers: TransferConfig) -> World {
        World::of(size, SnapshotLimits::default(), Duration::ZERO, transfers)
    }

    fn of(size: u64, limits: SnapshotLimits, digest_interval: Duration, transfers: TransferConfig) -> World {
        let mut world = World {
            limits,
            digest_interval,
            transfers,
            full: false,
            ruins: false,
            tried: 0,
            reads_late: false,
            now: Instant(1_000_000_000),
            members: BTreeMap::new(),
            network: VecDeque::new(),
            loses: Box::new(|_| false),
            keeps: Box::new(|_| false),
            joined: BTreeSet::new(),
            lives: BTreeMap::new(),
            tickets: 0,
            starts: 0,
            size,
        };
        for id in (1..=size).map(NodeId) {
            let member = world.boot(id, vec![], vec![]);
            world.members.insert(id, member);
        }
        world
    }

    fn boot(&mut self, id: NodeId, disk: Vec<LogRecord>, snapshots: Vec<(SnapshotMeta, Vec<u8>)>) -> Member {
        self.starts += 1;
        let mut raft = raft_config(id, self.size);
        if self.joined.contains(&id) {
            raft.voters.clear();
            raft.incarnation = Incarnation(1000 * self.lives[&id] + id.0);
        }
        let config = NodeConfig {
            pending_max: 100,
            pending_bytes_max: 1 << 20,
            snapshots: self.limits,
            transfers: self.transfers,
            digest_interval: self.digest_interval,
            name: format!("n{}", id.0),
            client_urls: vec![format!("http://n{}", id.0)],
            ..NodeConfig::new(raft)
        };
        let infos = (1..=self.size).map(|id| MemberInfo {
            id: NodeId(id),
            peer_urls: urls(id),
            ..MemberInfo::default()
        });
        let infos = infos.collect();
        let mut found = recovered(&disk);
        let mut keeper = Keeper::new(infos).of_member(id);
        let newest = snapshots.last();
        if let Some((meta, bytes)) = newest {
            assert!(found.base.index <= meta.last.index && meta.last.index <= found.last.index);
            keeper = Keeper::thaw([bytes]).expect("a good snapshot").of_member(id);
            found.snapshot = Some(meta.clone());
            found.committed = found.committed.max(meta.last.index);
        }
        let bytes = newest.map_or(0, |(_, bytes)| bytes.len() as u64);
        let seed = id.0 * 1000 + self.starts;
        let mut node = Node::recover(config, seed, self.now, found).with_snapshot_of(bytes);
        for event in [Event::Members(keeper.members()), Event::Health(keeper.health())] {
            node.handle(self.now, event, &mut Effects::default());
        }
        Member {
            node,
            keeper,
            snapshots,
            receiving: None,
            wanted: None,
            disk,
            alive: true,
            outcomes: BTreeMap::new(),
            received: BTreeMap::new(),
            applied: vec![],
        }
    }

    /// A member.
    pub fn member(&self, id: u64) -> &Member {
        &self.members[&NodeId(id)]
    }

    /// Adds a member with an empty disk and no list of voters.
    pub fn join(&mut self, id: u64) {
        let id = NodeId(id);
        self.joined.insert(id);
        *self.lives.entry(id).or_default() += 1;
        let member = self.boot(id, vec![], vec![]);
        assert!(self.members.insert(id, member).is_none_or(|old| !old.alive));
    }

    /// Ends a member; its disk stays.
    pub fn kill(&mut self, id: u64) {
        self.members.get_mut(&NodeId(id)).unwrap().alive = false;
    }

    /// Starts a member with what its disk holds.
    pub fn restart(&mut self, id: u64) {
        let id = NodeId(id);
        let member = self.members.get_mut(&id).unwrap();
        let disk = std::mem::take(&mut member.disk);
        let snapshots = std::mem::take(&mut member.snapshots);
        let member = self.boot(id, disk, snapshots);
        self.members.insert(id, member);
    }

    /// Changes a member's tables so that they read as before: only a digest can tell.
    pub fn tamper(&mut self, id: u64) {
        let member = self.members.get_mut(&NodeId(id)).unwrap();
        let mut bytes: Vec<u8> = member.keeper.pin().chunks().flatten().collect();
        let store = bytes.windows(4).position(|four| four == b"KtSt").expect("a store");
        bytes[store + 7] ^= 1; // behind magic, version and two small numbers: its running digest
        member.keeper = Keeper::thaw([bytes]).expect("the same, but for that").of_member(NodeId(id));
    }

    /// Announces a member's priority for leadership to all others.
    pub fn prefer(&mut self, id: u64, priority: u8) {
        for other in self.members.keys().copied().filter(|other| other.0 != id).collect::<Vec<_>>() {
            self.give(other.0, Event::Priority(NodeId(id), priority));
        }
    }

    /// The status that a member reports.
    pub fn status(&mut self, id: u64) -> Status {
        let ticket = self.ask(id, Request::Status);
        match self.outcome(id, ticket) {
            Some(Outcome::Done(Reply { body: ReplyBody::Status(status), .. })) => (**status).clone(),
            other => panic!("{other:?}"),
        }
    }

    /// Gives one event to one member and carries out the effects.
    pub fn give(&mut self, id: u64, event: Event) {
        self.give_batch(NodeId(id), vec![event]);
    }

    fn give_batch(&mut self, id: NodeId, events: Vec<Event>) {
        let now = self.now;
        let Some(member) = self.members.get_mut(&id).filter(|member| member.alive) else { return };
        let mut queue: VecDeque<Event> = events.into();
        queue.push_back(Event::Drained);
        while let Some(event) = queue.pop_front() {
            let mut effects = Effects::default();
            member.node.handle(now, event, &mut effects);
            for message in effects.send {
                match message {
                    PeerMessage::Forward(forward) if (self.keeps)(&forward) => {
                        queue.push_back(Event::Unsent(forward));
                    }
                    message => self.network.push_back(message),
                }
            }
            let follows = !effects.persist.is_empty()
                || !effects.fetch.is_empty()
                || !effects.apply.is_empty()
                || !effects.read_chunks.is_empty()
                || !effects.store_chunks.is_empty()
                || !effects.compute.is_empty();
            if let Some(last) = effects.persist.last() {
                let lsn = last.lsn;
                member.disk.extend(effects.persist);
                queue.push_back(Event::Persisted(lsn));
            }
            for fetch in effects.fetch {
                let entries = entries(&member.disk)
                    .into_iter()
                    .filter(|e| fetch.first <= e.id().index && e.id().index <= fetch.last)
                    .collect();
                queue.push_back(Event::Fetched { fetch, entries });
            }
            queue.extend(effects.compute.into_iter().map(|job| Event::Computed(job.run())));
            for request in effects.read_chunks {
                let read = member.read_chunk(&request);
                queue.push_back(Event::ChunkRead { request, read });
            }
            for piece in effects.store_chunks {
                queue.push_back(Event::ChunkStored(member.store_chunk(piece)));
            }
            let mut kept = KeeperEffects::default();
            for task in effects.apply {
                if let KeeperTask::Apply { entry, .. } = &task {
                    member.applied.push(entry.id());
                }
                member.keeper.handle(task, &mut kept);
                if let Some((meta, frozen)) = kept.snapshot.take() {
                    self.tried += 1;
                    assert!(self.tried < 10_000, "one snapshot after the other");
                    queue.push_back(match self.full {
                        true => Event::SnapshotFailed { last: meta.last },
                        false => member.take_snapshot(meta, frozen),
                    });
                    if self.ruins {
                        member.snapshots.clear();
                    }
                }
                match kept.install.take() {
                    Some(meta) if self.reads_late => member.wanted = Some(meta),
                    Some(meta) => member.bring(&meta, &mut kept),
                    None => {}
                }
            }
            for (ticket, outcome) in effects.reply.into_iter().chain(kept.reply) {
                if let Outcome::Received(id) = outcome {
                    assert!(!member.outcomes.contains_key(&ticket), "{ticket:?} had its final answer");
                    assert!(member.received.insert(ticket, id).is_none(), "{ticket:?} was told twice");
                    continue;
                }
                assert!(member.outcomes.insert(ticket, outcome).is_none(), "{ticket:?} was answered twice");
            }
            if let Some(index) = kept.applied {
                queue.push_back(Event::Applied { index });
            }
            queue.extend(kept.members.map(Event::Members));
            queue.extend(kept.health.map(Event::Health));
            queue.extend(kept.admitted.into_iter().map(Event::Admitted));
            queue.extend(kept.standings.into_iter().map(Event::Standing));
            if follows && queue.back() != Some(&Event::Drained) {
                queue.push_back(Event::Drained);
            }
        }
    }

    /// Reads the snapshot that a keeper waits for.
    pub fn bring(&mut self, id: u64) {
        let member = self.members.get_mut(&NodeId(id)).unwrap();
        let meta = member.wanted.take().expect("its keeper waits");
        let mut kept = KeeperEffects::default();
        member.bring(&meta, &mut kept);
        member.wanted = kept.install; // another one stood in the queue behind it
        for (ticket, outcome) in kept.reply {
            assert!(member.outcomes.insert(ticket, outcome).is_none(), "{ticket:?} was answered twice");
        }
        let index = kept.applied.expect("its tables are of some index");
        let health = kept.health.map(Event::Health);
        let events =
            [Event::Applied { index }].into_iter().chain(kept.members.map(Event::Members)).chain(health);
        self.give_batch(NodeId(id), events.collect());
    }

    /// Sends a request to member `id`; the ticket identifies the answer.
    pub fn ask(&mut self, id: u64, request: Request) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.give(id, Event::Client { ticket, request });
        ticket
    }

    /// Sends several requests to member `id` as one batch.
    pub fn ask_together(&mut self, id: u64, requests: Vec<Request>) -> Vec<Ticket> {
        let first = self.tickets + 1;
        self.tickets += requests.len() as u64;
        let tickets: Vec<Ticket> = (first..=self.tickets).map(Ticket).collect();
        let events = tickets.iter().zip(requests);
        let events = events.map(|(&ticket, request)| Event::Client { ticket, request }).collect();
        self.give_batch(NodeId(id), events);
        tickets
    }

    /// A member's answer to this ticket.
    pub fn outcome(&self, id: u64, ticket: Ticket) -> Option<&Outcome> {
        self.member(id).outcomes.get(&ticket)
    }

    /// The entry as which a member has told this client weakly that its command was received.
    pub fn received(&self, id: u64, ticket: Ticket) -> Option<EntryId> {
        self.member(id).received.get(&ticket).copied()
    }

    /// Delivers messages until none is left.
    pub fn deliver(&mut self) {
        for _ in 0..100_000 {
            let Some(message) = self.network.pop_front() else { return };
            self.deliver_one(message);
        }
        panic!("messages never end");
    }

    /// Delivers a message, unless it is lost.
    pub fn deliver_one(&mut self, message: PeerMessage) {
        if !(self.loses)(&message) {
            let to = message.to().0;
            self.give(to, Event::Peer(message));
        }
    }

    /// Lets time pass in steps of a millisecond, delivering everything at once.
    pub fn pass(&mut self, duration: Duration) {
        let end = self.now + duration;
        while self.now < end {
            self.now += Duration::from_millis(1);
            for id in self.members.keys().copied().collect::<Vec<_>>() {
                let member = &self.members[&id];
                if member.alive && member.node.deadline() <= self.now {
                    self.give(id.0, Event::Tick);
                }
            }
            self.deliver();
        }
    }

    /// Time passes while a client writes to the leader, one write after the other. With each write the driver of each
    /// member reports that its disk took as long as `took` returns; the disks hold nothing up.
    pub fn write_for(&mut self, duration: Duration, took: impl Fn(&World, u64) -> Duration) {
        let end = self.now + duration;
        while self.now < end {
            if let Some(leader) = self.leader() {
                self.ask(leader, put("written", "again"));
            }
            for id in self.members.keys().map(|id| id.0).collect::<Vec<_>>() {
                let time = took(self, id);
                self.give(id, Event::DiskTook(time));
            }
            self.pass(WRITES_APART.min(end.since(self.now)));
        }
    }

    /// Waits for a running leader that all running members agree on.
    pub fn elect(&mut self) -> u64 {
        for _ in 0..200 {
            self.pass(Duration::from_millis(100));
            if let Some(leader) = self.leader() {
                return leader;
            }
        }
        panic!("nobody was elected in 20 s");
    }

    /// The running leader that all running members agree on.
    pub fn leader(&self) -> Option<u64> {
        let living: Vec<&Member> = self.members.values().filter(|m| m.alive).collect();
        let leader = living.first()?.node.raft().leader()?;
        let agreed = living.iter().all(|m| m.node.raft().leader() == Some(leader));
        (agreed && self.members[&leader].alive && self.members[&leader].node.raft().is_leader())
            .then_some(leader.0)
    }

    /// The first running member that does not lead.
    pub fn follower(&self) -> u64 {
        let leader = self.leader().expect("somebody leads");
        (1..=self.size).find(|&id| id != leader && self.member(id).alive).expect("a follower lives")
    }
}

impl Member {
    fn take_snapshot(&mut self, meta: SnapshotMeta, frozen: Frozen) -> Event {
        let bytes: Vec<u8> = frozen.chunks().flatten().collect();
        let taken = Event::SnapshotTaken { meta: meta.clone(), bytes: bytes.len() as u64 };
        self.snapshots.push((meta, bytes));
        taken
    }

    fn read_chunk(&self, request: &ReadChunk) -> ChunkRead {
        let Some((_, bytes)) = self.snapshots.iter().find(|(meta, _)| meta.last == request.last) else {
            return ChunkRead::Gone;
        };
        let from = bytes.len().min(request.offset as usize);
        let upto = bytes.len().min(from + request.bytes_max);
        ChunkRead::Bytes { bytes: SharedBytes::from(bytes[from..upto].to_vec()), total: bytes.len() as u64 }
    }

    fn store_chunk(&mut self, piece: StoreChunk) -> ChunkStored {
        let known = self.receiving.take().filter(|(meta, _)| *meta == piece.meta);
        let (meta, mut bytes) = known.unwrap_or((piece.meta, Vec::new()));
        if piece.offset == bytes.len() as u64 {
            bytes.extend_from_slice(&piece.bytes);
        }
        let (last, next) = (meta.last, bytes.len() as u64);
        let complete = next == piece.total;
        match complete {
            true => self.snapshots.push((meta, bytes)),
            false => self.receiving = Some((meta, bytes)),
        }
        ChunkStored { last, next, complete }
    }

    fn bring(&mut self, meta: &SnapshotMeta, kept: &mut KeeperEffects) {
        let (_, bytes) = self.snapshots.iter().find(|(have, _)| have == meta).expect("its file is complete");
        let old = self.keeper.replace(Keeper::thaw([bytes]).expect("a good snapshot"), kept);
        assert!(old.applied() < self.keeper.applied());
        self.keeper.finish(kept);
    }
}

/// The base of the log, and the entries that the records leave.
fn log(disk: &[LogRecord]) -> (EntryId, Vec<Entry>) {
    let (mut base, mut entries) = (EntryId::default(), Vec::<Entry>::new());
    for record in disk {
        match &record.body {
            LogBody::Entry(entry) => entries.push(entry.clone()),
            LogBody::Truncate(from) => entries.retain(|e| e.id().index < *from),
            LogBody::HardState(_) | LogBody::Commit(_) | LogBody::VoteFloor(_) => {}
            LogBody::Base(new) => {
                let holds = base == *new || entries.iter().any(|e| e.id() == *new);
                base = *new;
                entries.retain(|e| holds && base.index < e.id().index);
            }
        }
    }
    (base, entries)
}

/// The entries that the records leave.
pub fn entries(disk: &[LogRecord]) -> Vec<Entry> {
    log(disk).1
}

/// The state that a restart recovers from such a disk.
pub fn recovered(disk: &[LogRecord]) -> Recovered {
    let (base, entries) = log(disk);
    let mut found = Recovered { base, last: base, committed: base.index, ..Recovered::default() };
    for record in disk {
        found.lsn = record.lsn;
        match record.body {
            LogBody::HardState(hard) => found.hard = hard,
            LogBody::Commit(index) => found.committed = found.committed.max(index),
            _ => {}
        }
    }
    for entry in &entries {
        let id = entry.id();
        if entry.head.kind == EntryKind::Config {
            let (membership, _) =
                Membership::decode(entry.payload().expect("all of it")).expect("a configuration");
            found.memberships.push((id.index, membership));
        }
        if found.term_starts.last().is_none_or(|start| start.term != id.term) {
            found.term_starts.push(id);
        }
        found.last = id;
        found.stamp = entry.head.stamp;
    }
    found.committed = found.committed.min(found.last.index);
    found.tail = entries.iter().rev().take(2).rev().cloned().collect();
    found
}

/// The value in the answer to a read of one key.
///
/// # Panics
/// If it is another answer.
pub fn value_of(outcome: Option<&Outcome>) -> Option<String> {
    match outcome {
        Some(Outcome::Done(Reply { body: ReplyBody::Kv(response), .. })) => match &response.answer {
            Answer::Range(range) => range.kvs.first().map(|kv| String::from_utf8(kv.value.to_vec()).unwrap()),
            other => panic!("not a range: {other:?}"),
        },
        other => panic!("not done: {other:?}"),
    }
}

/// The values in the answer to reads of single keys.
///
/// # Panics
/// If it is another answer.
pub fn values_of(outcome: Option<&Outcome>) -> Vec<Option<String>> {
    let Some(Outcome::Done(Reply { term, strong, body: ReplyBody::Found(found) })) = outcome else {
        panic!("not found: {outcome:?}")
    };
    let alone =
        |response| Outcome::Done(Reply { term: *term, strong: *strong, body: ReplyBody::Kv(response) });
    found.iter().map(|key| value_of(Some(&alone(key.response())))).collect()
}

/// Whether the answer is `Done`.
pub fn is_done(outcome: Option<&Outcome>) -> bool {
    matches!(outcome, Some(Outcome::Done(_)))
}
