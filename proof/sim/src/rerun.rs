//! Rerun: a few members that start from their directories and then run without faults, one event after the other.
//!
//! For checks beside a storm: the disks, nodes and keepers are those of production, time is a number, and messages
//! arrive at once, in order.
//! Knows nothing of: storms, where the directories come from.

use crate::disk_time::AtOnce;
use crate::log::GROUP;
use crate::snapshots::thaw;
use crate::world::Opened;
use kattu_disk::SimDisk;
use kattu_kv::api::{Command, KeyRange, Put};
use kattu_member::log::{Completion, Log};
use kattu_node::command::encode_kv;
use kattu_node::contract::{Effects, Event, KeeperEffects, Outcome, PeerMessage, Request, Space, Ticket};
use kattu_node::{Keeper, Node, NodeConfig, SnapshotLimits};
use kattu_raft::{Config, Duration, Instant};
use kattu_wal::{DataDir, Identity, Wal, WalError, WalOptions};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Nothing here takes longer than a few elections.
const PATIENCE: Duration = Duration::from_secs(60);
const ELECTION_TIMEOUT: Duration = Duration::from_millis(1000);

/// A member and what it has answered.
pub(crate) struct One {
    pub(crate) identity: Identity,
    pub(crate) node: Node,
    pub(crate) keeper: Keeper,
    log: Log,
    outcomes: BTreeMap<Ticket, Outcome>,
}

/// The members.
pub(crate) struct Rerun {
    pub(crate) members: Vec<One>,
    now: Instant,
    network: VecDeque<PeerMessage>,
    tickets: u64,
}

fn options_of(config: &Identity, seed: u64) -> NodeConfig {
    let voters = config.members.iter().map(|member| member.id);
    let raft = Config {
        incarnation: config.incarnation,
        election_timeout: ELECTION_TIMEOUT,
        heartbeat_interval: ELECTION_TIMEOUT / 10,
        parallel_append: seed.is_multiple_of(2),
        ..Config::new(config.node, voters, kattu_wal::encoder())
    };
    NodeConfig {
        pending_max: 16,
        pending_bytes_max: 1 << 20,
        snapshots: SnapshotLimits { log_bytes_min: u64::MAX, log_bytes_max: 0, keep_bytes: 0 },
        name: config.name.clone(),
        client_urls: vec![format!("http://{}", config.name)],
        ..NodeConfig::new(raft)
    }
}

/// Opens a directory as a starting member does. [shell/runtime `start`]
pub(crate) fn open(disk: &SimDisk, options: WalOptions) -> Result<Opened, WalError> {
    let dir = DataDir::open(Arc::new(disk.mount()))?;
    if dir.identity().is_none() {
        let what = "a member would begin here with nothing".to_string();
        return Err(WalError::Foreign { dir: "simulated disk".to_string(), what });
    }
    let (wal, mut recovered) = Wal::open(dir, options)?;
    let recovered = recovered.remove(&GROUP).unwrap_or_default();
    let tables = match &recovered.snapshot {
        Some(meta) => {
            let tables = thaw(&wal.snapshots(), meta.last)?.map_err(|error| {
                let what = error.to_string();
                WalError::Damaged { file: format!("snapshot up to {}", meta.last), offset: 0, what }
            })?;
            let bytes = wal.snapshots().get(GROUP, meta.last)?.map_or(0, |snapshot| snapshot.bytes);
            Some((tables, bytes))
        }
        None => None,
    };
    Ok((wal, recovered, tables))
}

impl Rerun {
    /// Starts the members that have these directories.
    pub(crate) fn start(disks: &[SimDisk], options: WalOptions, seed: u64) -> Result<Rerun, WalError> {
        let now = Instant(1_000_000_000 + seed % 1_000_000_000);
        let mut members = Vec::new();
        for (number, disk) in disks.iter().enumerate() {
            let (wal, recovered, tables) = open(disk, options)?;
            let identity = wal.identity().clone();
            let (keeper, bytes) = tables.unwrap_or_else(|| (Keeper::new(Vec::new()), 0));
            let keeper = keeper.of_member(identity.node);
            let config = options_of(&identity, seed);
            let node = Node::recover(config, seed ^ number as u64, now, recovered).with_snapshot_of(bytes);
            let log = Log::new(wal, GROUP);
            members.push(One { identity, node, keeper, log, outcomes: BTreeMap::new() });
        }
        let mut rerun = Rerun { members, now, network: VecDeque::new(), tickets: 0 };
        for member in 0..rerun.members.len() {
            let one = &rerun.members[member];
            let room = one.log.room();
            let events = [
                Event::Space(Space { log_bytes: room.free, short: room.full }),
                Event::Members(one.keeper.members()),
                Event::Health(one.keeper.health()),
            ];
            rerun.give(member, events.into())?;
        }
        Ok(rerun)
    }

    /// Gives events to a member and carries out what follows, until nothing does.
    fn give(&mut self, member: usize, mut queue: VecDeque<Event>) -> Result<(), WalError> {
        let now = self.now;
        let one = &mut self.members[member];
        queue.push_back(Event::Drained);
        while let Some(event) = queue.pop_front() {
            let mut effects = Effects::default();
            one.node.handle(now, event, &mut effects);
            let follows =
                !effects.persist.is_empty() || !effects.fetch.is_empty() || !effects.apply.is_empty();
            self.network.extend(effects.send);
            if !effects.persist.is_empty() {
                one.log.append(&effects.persist)?;
                if let Completion::Persisted(lsn, room, ..) = one.log.sync(now, &mut AtOnce)? {
                    queue.push_back(Event::Space(Space { log_bytes: room.free, short: room.full }));
                    queue.push_back(Event::Persisted(lsn));
                }
                if let Some(job) = one.log.take_job() {
                    one.log.made(job.task.run());
                    one.log.look()?;
                }
            }
            queue.extend(effects.compute.into_iter().map(|job| Event::Computed(job.run())));
            for fetch in effects.fetch {
                if let Completion::Fetched(fetch, entries) = one.log.fetch(fetch, &mut AtOnce)? {
                    queue.push_back(Event::Fetched { fetch, entries });
                }
            }
            let mut kept = KeeperEffects::default();
            for task in effects.apply {
                one.keeper.handle(task, &mut kept);
            }
            one.outcomes.extend(effects.reply.into_iter().chain(kept.reply));
            queue.extend(kept.applied.map(|index| Event::Applied { index }));
            queue.extend(kept.members.map(Event::Members));
            queue.extend(kept.health.map(Event::Health));
            if follows && queue.back() != Some(&Event::Drained) {
                queue.push_back(Event::Drained);
            }
        }
        Ok(())
    }

    /// Lets time pass until `done` holds; whether it did.
    fn run(&mut self, mut done: impl FnMut(&Rerun) -> bool) -> Result<bool, WalError> {
        let end = self.now + PATIENCE;
        loop {
            while let Some(message) = self.network.pop_front() {
                let to = message.to();
                if let Some(member) = self.members.iter().position(|one| one.identity.node == to) {
                    self.give(member, [Event::Peer(message)].into())?;
                }
            }
            if done(self) {
                return Ok(true);
            }
            let Some(next) = self.members.iter().map(|one| one.node.deadline()).min() else {
                return Ok(false);
            };
            if end < next {
                return Ok(false);
            }
            self.now = self.now.max(next);
            for member in 0..self.members.len() {
                if self.members[member].node.deadline() <= self.now {
                    self.give(member, [Event::Tick].into())?;
                }
            }
        }
    }

    fn leader(&self) -> Option<usize> {
        self.members.iter().position(|one| one.node.raft().is_leader())
    }

    /// Lets them elect a leader; whether they did.
    pub(crate) fn elect(&mut self) -> Result<bool, WalError> {
        self.run(|rerun| rerun.leader().is_some())
    }

    /// Writes a key through the leader; its outcome, if there is one.
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) -> Result<Option<Outcome>, WalError> {
        let put = Put { key: key.to_vec(), value: value.to_vec(), ..Put::default() };
        let Some(member) = self.leader() else { return Ok(None) };
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let request = Request::Write(encode_kv(&Command::Put(put)).into());
        self.give(member, [Event::Client { ticket, request }].into())?;
        self.run(|rerun| rerun.members[member].outcomes.contains_key(&ticket))?;
        Ok(self.members[member].outcomes.remove(&ticket))
    }

    /// Lets all members apply the longest log; whether they did.
    pub(crate) fn level(&mut self) -> Result<bool, WalError> {
        self.run(|rerun| {
            let last = |one: &One| one.node.raft().last_id().index;
            let furthest = rerun.members.iter().map(last).max();
            rerun.members.iter().all(|one| Some(one.keeper.applied()) == furthest)
        })
    }
}

/// All keys.
pub(crate) fn everything() -> KeyRange {
    KeyRange { start: vec![0], end: vec![0] }
}
