//! The invariants hold of the real protocol: random clusters with late, lost, repeated and reordered messages, slow
//! disks and crashes raise no alarm; a disk that forgets, and stores that differ, do.
//!
//! Knows nothing of: real time (a deadline fires at random).

use kattu_node::contract::{Effects, Event, KeeperEffects, KeeperTask, PeerMessage, Request, Ticket};
use kattu_node::{Keeper, Node, NodeConfig, SnapshotLimits};
use kattu_raft::{
    Config, Duration, Entry, EntryHead, EntryId, FetchFor, GroupId, Instant, Limits, LogBody, LogIndex,
    LogRecord, Lsn, NodeId, RecordEncoder, Recovered, Stamp,
};
use kattu_random::Random;
use kattu_verify::invariants::{Invariants, Violation};

fn encode(_: GroupId, head: EntryHead, payload: &[u8], records: &mut Vec<u8>) -> usize {
    records.extend_from_slice(&head.id.term.0.to_le_bytes());
    records.extend_from_slice(&head.id.index.0.to_le_bytes());
    records.extend_from_slice(payload);
    16
}

struct Member {
    id: NodeId,
    running: Option<(Node, Keeper)>,
    /// Records on the disk; those from `durable` on may be lost.
    disk: Vec<LogRecord>,
    durable: usize,
    starts: u64,
}

struct World {
    random: Random,
    now: Instant,
    members: Vec<Member>,
    wire: Vec<PeerMessage>,
    invariants: Invariants,
    tickets: u64,
}

fn recovered(disk: &[LogRecord]) -> Recovered {
    let mut recovered = Recovered::default();
    let mut entries: Vec<Entry> = Vec::new();
    for record in disk {
        recovered.lsn = record.lsn;
        match &record.body {
            LogBody::HardState(hard) => recovered.hard = *hard,
            LogBody::Truncate(first) => entries.truncate(first.0 as usize - 1),
            LogBody::Entry(entry) => entries.push(entry.clone()),
            LogBody::Commit(index) => recovered.committed = *index,
            LogBody::Base(base) => unreachable!("nothing is pruned up to {base} here"),
            LogBody::VoteFloor(vote_floor) => unreachable!("nothing is lost up to {vote_floor} here"),
        }
    }
    let mut before = EntryId::default();
    for entry in &entries {
        if entry.id().term > before.term {
            recovered.term_starts.push(entry.id());
        }
        before = entry.id();
    }
    recovered.last = before;
    recovered.stamp = entries.last().map_or(Stamp(0), |entry| entry.head.stamp);
    recovered.committed = recovered.committed.min(before.index);
    let kept = entries.len().saturating_sub(5);
    recovered.tail = entries.split_off(kept);
    recovered
}

impl World {
    fn new(seed: u64, size: u64) -> Result<World, Violation> {
        let voters: Vec<NodeId> = (1..=size).map(NodeId).collect();
        let member = |&id: &NodeId| Member { id, running: None, disk: Vec::new(), durable: 0, starts: 0 };
        let mut world = World {
            random: Random::new(seed),
            now: Instant(0),
            members: voters.iter().map(member).collect(),
            wire: Vec::new(),
            invariants: Invariants::new(&voters),
            tickets: 0,
        };
        for place in 0..world.members.len() {
            world.start(place)?;
        }
        Ok(world)
    }

    fn config(&self, id: NodeId) -> NodeConfig {
        let limits = Limits {
            recent_bytes_max: 200,
            recent_in_sync_bytes_max: 300,
            batch_entries_max: 3,
            ..Limits::default()
        };
        let voters = self.members.iter().map(|member| member.id);
        let raft = Config { limits, ..Config::new(id, voters, RecordEncoder(encode)) };
        NodeConfig {
            snapshots: SnapshotLimits { log_bytes_min: u64::MAX, log_bytes_max: 0, keep_bytes: 0 },
            request_timeout_base: Duration::from_secs(5),
            pending_max: 100,
            pending_bytes_max: 1 << 20,
            name: format!("n{}", id.0),
            ..NodeConfig::new(raft)
        }
    }

    fn start(&mut self, place: usize) -> Result<(), Violation> {
        let config = self.config(self.members[place].id);
        let member = &mut self.members[place];
        member.starts += 1;
        let found = recovered(&member.disk);
        self.invariants.restarted(member.id, &found)?;
        let seed = member.id.0 * 1000 + member.starts;
        member.running = Some((Node::recover(config, seed, self.now, found), Keeper::new(Vec::new())));
        Ok(())
    }

    fn handle(&mut self, place: usize, event: Event) -> Result<(), Violation> {
        let member = &mut self.members[place];
        let Some((node, keeper)) = &mut member.running else { return Ok(()) };
        let mut effects = Effects::default();
        node.handle(self.now, event, &mut effects);
        self.invariants.stepped(member.id, node, &effects)?;
        member.disk.extend(effects.persist);
        self.wire.extend(effects.send);
        let mut told = KeeperEffects::default();
        for task in effects.apply {
            if let KeeperTask::Apply { entry, .. } = &task {
                self.invariants.applied(member.id, entry)?;
            }
            keeper.handle(task, &mut told);
            self.invariants.digest(member.id, keeper.applied(), keeper.store().digest())?;
        }
        let fetched: Vec<Event> = effects
            .fetch
            .into_iter()
            .map(|fetch| {
                let mut entries: Vec<Entry> = Vec::new();
                for record in &member.disk {
                    match &record.body {
                        LogBody::Truncate(first) => entries.truncate(first.0 as usize - 1),
                        LogBody::Entry(entry) => entries.push(entry.clone()),
                        LogBody::HardState(_)
                        | LogBody::Commit(_)
                        | LogBody::Base(_)
                        | LogBody::VoteFloor(_) => {}
                    }
                }
                let wanted = (fetch.first.0 as usize - 1)..(fetch.last.0 as usize).min(entries.len());
                let entries = entries.get(wanted).map_or(Vec::new(), <[Entry]>::to_vec);
                assert!(fetch.purpose != FetchFor::Apply || !entries.is_empty(), "{fetch:?}");
                Event::Fetched { fetch, entries }
            })
            .collect();
        if let Some(index) = told.applied {
            self.handle(place, Event::Applied { index })?;
        }
        fetched.into_iter().try_for_each(|event| self.handle(place, event))
    }

    /// One message arrives: mostly one of the oldest, mostly once.
    fn deliver(&mut self) -> Result<(), Violation> {
        if self.wire.is_empty() {
            return Ok(());
        }
        let near = if self.random.within(0..4) > 0 { 3 } else { self.wire.len() };
        let at = self.random.within(0..near.min(self.wire.len()) as u64) as usize;
        let message = self.wire[at].clone();
        if self.random.within(0..20) > 0 {
            self.wire.remove(at);
        }
        if self.random.within(0..20) == 0 {
            return Ok(());
        }
        let to = self.members.iter().position(|member| member.id == message.to());
        let to = to.expect("a member");
        self.handle(to, Event::Peer(message))?;
        self.handle(to, Event::Drained)
    }

    fn step(&mut self) -> Result<(), Violation> {
        let place = self.random.within(0..self.members.len() as u64) as usize;
        match self.random.within(0..1000) {
            0..550 => {
                for _ in 0..4 {
                    self.deliver()?;
                }
                self.wire.drain(..self.wire.len().saturating_sub(60));
            }
            550..750 => {
                let member = &mut self.members[place];
                let pending = member.disk.len() - member.durable;
                if member.running.is_some() && pending > 0 {
                    member.durable += 1 + self.random.within(0..pending as u64) as usize;
                    let lsn = member.disk[member.durable - 1].lsn;
                    self.invariants.durable(member.id, lsn)?;
                    self.handle(place, Event::Persisted(lsn))?;
                }
            }
            750..850 => {
                self.now += Duration::from_millis(self.random.within(0..300));
                self.handle(place, Event::Tick)?;
            }
            850..995 => {
                self.tickets += 1;
                let (ticket, key) = (Ticket(self.tickets), vec![b'a' + self.random.within(0..3) as u8]);
                let put = kattu_kv::api::Put {
                    key,
                    value: self.tickets.to_le_bytes().to_vec(),
                    ..Default::default()
                };
                let command = kattu_node::command::encode_kv(&kattu_kv::api::Command::Put(put));
                self.handle(place, Event::Client { ticket, request: Request::Write(command.into()) })?;
                self.handle(place, Event::Drained)?;
            }
            _ => {
                if self.members[place].running.take().is_some() {
                    self.invariants.crashed(self.members[place].id)?;
                    let member = &mut self.members[place];
                    let kept =
                        self.random.within(0..(member.disk.len() - member.durable) as u64 + 1) as usize;
                    member.disk.truncate(member.durable + kept);
                    member.durable = member.disk.len();
                } else {
                    self.start(place)?;
                }
                return Ok(());
            }
        }
        if self.members[place].running.is_none() && self.random.within(0..5) == 0 {
            self.start(place)?;
        }
        self.handle(place, Event::Drained)
    }

    fn look(&self) -> Result<(), Violation> {
        let running =
            self.members.iter().filter_map(|member| Some((member.id, member.running.as_ref()?.0.raft())));
        self.invariants.whole(&running.collect::<Vec<_>>())
    }
}

#[test]
fn random_clusters_raise_no_alarm() {
    let mut committed = 0;
    for seed in 0..25 {
        let mut world = World::new(seed, 1 + seed % 5).expect("it starts");
        for step in 0..3000 {
            let looked = world.step().and_then(|()| if step % 50 == 0 { world.look() } else { Ok(()) });
            looked.unwrap_or_else(|violation| panic!("seed {seed}, step {step}: {violation}"));
        }
        committed += world.invariants.committed().0;
    }
    assert!(committed > 2500, "only {committed} entries were committed in all clusters");
}

#[test]
fn a_disk_that_forgets_a_sync_is_caught() {
    let mut caught = 0;
    for seed in 0..20 {
        let mut world = World::new(seed, 3).expect("it starts");
        for _ in 0..2000 {
            world.step().expect("nothing is wrong yet");
        }
        let place = 0;
        if world.members[place].running.take().is_none() {
            world.start(place).expect("nothing is wrong yet");
            world.members[place].running = None;
        }
        let member = &mut world.members[place];
        world.invariants.crashed(member.id).expect("it ran");
        assert!(member.durable > 10, "little was written");
        member.disk.truncate(member.durable - 3);
        caught += u32::from(world.start(place).is_err());
    }
    assert_eq!(caught, 20);
}

#[test]
fn stores_that_differ_are_caught() {
    let mut invariants = Invariants::new(&[NodeId(1), NodeId(2)]);
    assert!(invariants.digest(NodeId(1), LogIndex(7), 1).is_ok());
    assert!(invariants.digest(NodeId(2), LogIndex(8), 2).is_ok());
    assert!(invariants.digest(NodeId(2), LogIndex(7), 1).is_ok());
    assert!(invariants.digest(NodeId(2), LogIndex(7), 3).is_err());
    assert!(invariants.durable(NodeId(1), Lsn(1)).is_err(), "nothing was written");
}
