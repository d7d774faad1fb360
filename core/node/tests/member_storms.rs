//! Storms with changes of members: whole replicas are added, removed, promoted, killed and restarted, while messages
//! are lost and reordered and clients write. [fault-model F60]
//!
//! When the storm is over:
//!   1. there is a leader, and all its members have applied the same entries and have equal digests;
//!   2. whatever was answered `Done` is in effect: every value, and every change that completed;
//!   3. a removed member is in no table, and its id is in every list of former members;
//!   4. every table follows the configuration that the protocol has committed there.

use kattu_node::SnapshotLimits;
use kattu_node::contract::*;
use kattu_raft::{Duration, LinkEnd, NodeId};
use kattu_replicas::*;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// A small generator; its whole state is the seed.
#[derive(Clone)]
struct Dice(Rc<Cell<u64>>);

impl Dice {
    fn below(&self, n: u64) -> u64 {
        let mut x = self.0.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.0.set(x);
        (x >> 16) % n
    }

    fn one_in(&self, n: u64) -> bool {
        self.below(n) == 0
    }
}

struct Storm {
    seed: u64,
    world: World,
    dice: Dice,
    /// Ids that were requested, whether or not they became members.
    ids: Vec<u64>,
    writes: BTreeMap<Ticket, (u64, String)>,
    changes: BTreeMap<Ticket, (u64, MemberChange)>,
}

impl Storm {
    fn new(seed: u64) -> Storm {
        let dice = Dice(Rc::new(Cell::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)));
        let limits = match dice.below(3) {
            0 => SnapshotLimits::default(),
            1 => SnapshotLimits { log_bytes_min: 1_000, log_bytes_max: 0, keep_bytes: 0 },
            _ => SnapshotLimits { log_bytes_min: 0, log_bytes_max: 0, keep_bytes: 200 },
        };
        let size = 1 + dice.below(4);
        let mut world = World::with_snapshots(size, limits);
        world.pass(Duration::from_millis(dice.below(3000)));
        let loses = dice.clone();
        world.loses = Box::new(move |_| loses.one_in(25));
        let keeps = dice.clone();
        world.keeps = Box::new(move |_| keeps.one_in(8));
        let ids = (1..=size).collect();
        Storm { seed, world, dice, ids, writes: BTreeMap::new(), changes: BTreeMap::new() }
    }

    fn any(&self) -> u64 {
        self.ids[self.dice.below(self.ids.len() as u64) as usize]
    }

    fn lives(&self, id: u64) -> bool {
        self.world.members.get(&NodeId(id)).is_some_and(|member| member.alive)
    }

    fn change(&mut self) -> MemberChange {
        match self.dice.below(10) {
            0..=4 if self.ids.len() < 9 => {
                let id = self.ids.len() as u64 + 1;
                self.ids.push(id);
                MemberChange::Add { id: NodeId(id), peer_urls: urls(id), votes: !self.dice.one_in(3) }
            }
            0..=6 => MemberChange::Remove(NodeId(self.any())),
            7 => MemberChange::Update { id: NodeId(self.any()), peer_urls: urls(100 + self.dice.below(20)) },
            8 => MemberChange::Add { id: NodeId(self.any()), peer_urls: urls(200), votes: true },
            _ => MemberChange::Promote(NodeId(self.any())),
        }
    }

    /// Starts every member that is in some table and not running yet.
    fn join(&mut self) {
        let listed = |id: u64| {
            let mut tables = self.world.members.values().map(|member| member.keeper.members());
            tables.any(|table| table.list.iter().any(|member| member.id.0 == id))
        };
        let new =
            self.ids.iter().copied().find(|&id| !self.world.members.contains_key(&NodeId(id)) && listed(id));
        if let Some(new) = new {
            self.world.join(new);
        }
    }

    fn step(&mut self, number: u64) {
        let id = self.any();
        match self.dice.below(100) {
            0 if self.lives(id) => self.world.kill(id),
            0..=4 if self.world.members.contains_key(&NodeId(id)) && !self.lives(id) => {
                self.world.restart(id)
            }
            5 => self.join(),
            6 => {
                let end = if self.dice.one_in(2) { LinkEnd::ByPeer } else { LinkEnd::Otherwise };
                self.world.give(id, Event::LinkClosed(NodeId(self.any()), end));
            }
            7..=9 if self.lives(id) => {
                let change = self.change();
                let ticket = self.world.ask(id, Request::Change(change.clone()));
                self.changes.insert(ticket, (id, change));
            }
            10 if self.lives(id) => {
                self.world.ask(id, Request::MoveLeader(NodeId(self.any())));
            }
            11..=25 if self.lives(id) => {
                let key = format!("k{number}");
                let ticket = self.world.ask(id, put(&key, &key));
                self.writes.insert(ticket, (id, key));
            }
            26..=45 => {
                self.world.now += Duration::from_millis(self.dice.below(80));
                for id in self.world.members.keys().copied().collect::<Vec<_>>() {
                    if self.world.members[&id].node.deadline() <= self.world.now {
                        self.world.give(id.0, Event::Tick);
                    }
                }
            }
            _ => {
                for _ in 0..self.dice.below(12) {
                    let waiting = self.world.network.len() as u64;
                    if waiting == 0 {
                        break;
                    }
                    // Mostly in order.
                    let at = if self.dice.one_in(10) { self.dice.below(waiting) } else { 0 };
                    let message = self.world.network.remove(at as usize).expect("it was counted");
                    self.world.deliver_one(message);
                }
            }
        }
    }

    /// All members run again, and time passes; returns the leader.
    fn calm(&mut self) -> u64 {
        self.world.loses = Box::new(|_| false);
        self.world.keeps = Box::new(|_| false);
        for id in self.ids.clone() {
            if self.world.members.contains_key(&NodeId(id)) && !self.lives(id) {
                self.world.restart(id);
            }
        }
        for _ in 0..4 {
            self.join();
            self.world.pass(Duration::from_secs(6));
        }
        let leads = self.world.members.values().filter(|member| member.node.raft().is_leader());
        let newest = leads.max_by_key(|member| member.node.raft().term());
        newest
            .unwrap_or_else(|| panic!("seed {}: nobody leads in fine weather", self.seed))
            .node
            .raft()
            .id()
            .0
    }

    fn judge(&mut self) {
        let seed = self.seed;
        let leader = self.calm();
        let table = self.world.member(leader).keeper.members();
        let at = self.world.member(leader).keeper.applied();
        let digest = self.world.member(leader).keeper.digest();
        let listed: Vec<u64> = table.list.iter().map(|member| member.id.0).collect();
        for member in self.world.members.values() {
            let (raft, own) = (member.node.raft(), member.keeper.members());
            if !listed.contains(&raft.id().0) {
                assert!(!raft.is_leader(), "seed {seed}: {:?} leads, and is in nobody's table", raft.id());
                continue;
            }
            let made = (member.keeper.applied(), member.keeper.digest());
            assert_eq!(made, (at, digest), "seed {seed}: member {} and leader {leader}", raft.id().0);
            assert_eq!(own, table, "seed {seed}: member {}", raft.id().0);
            assert_eq!(own.at, raft.membership_at(), "seed {seed}: member {}", raft.id().0);
            let voters: Vec<NodeId> =
                own.list.iter().filter(|info| !info.learner).map(|info| info.id).collect();
            assert_eq!(voters, raft.committed_membership().voters, "seed {seed}: member {}", raft.id().0);
        }
        assert!(table.removed.iter().all(|id| !listed.contains(&id.0)), "seed {seed}: {table:?}");
        for (ticket, (id, change)) in &self.changes {
            let done = is_done(self.world.members.get(&NodeId(*id)).and_then(|m| m.outcomes.get(ticket)));
            match change {
                MemberChange::Remove(gone) if done => {
                    assert!(table.removed.contains(gone), "seed {seed}: {gone:?} was removed: {table:?}");
                }
                MemberChange::Add { id, .. } if done => {
                    let is_known = listed.contains(&id.0) || table.removed.contains(id);
                    assert!(is_known, "seed {seed}: {id:?} was added: {table:?}");
                }
                _ => {}
            }
        }
        let writes = std::mem::take(&mut self.writes);
        for (ticket, (id, key)) in writes {
            if is_done(self.world.members.get(&NodeId(id)).and_then(|member| member.outcomes.get(&ticket))) {
                let read = self.world.ask(leader, get(&key, Consistency::Linearizable));
                self.world.deliver();
                let value = value_of(self.world.outcome(leader, read));
                assert_eq!(value.as_deref(), Some(key.as_str()), "seed {seed}");
            }
        }
    }
}

/// The number of changes of each kind, so that a storm that changes nothing is noticed.
#[derive(Debug, Default)]
struct Made {
    added: u64,
    removed: u64,
    promoted: u64,
    writes: u64,
}

fn storm(seed: u64, steps: u64, made: &mut Made) {
    let mut storm = Storm::new(seed);
    (0..steps).for_each(|number| storm.step(number));
    made.writes += storm.writes.len() as u64;
    storm.judge();
    let leader = storm.world.members.values().find(|member| member.node.raft().is_leader());
    let table = leader.expect("it was just judged").keeper.members();
    let joined = |member: &&MemberInfo| storm.world.joined.contains(&member.id);
    made.added += table.list.iter().filter(joined).count() as u64;
    made.promoted += table.list.iter().filter(joined).filter(|member| !member.learner).count() as u64;
    made.removed += table.removed.len() as u64;
}

#[test]
fn members_come_and_go_in_any_weather() {
    let seeds = match std::env::var("KATTU_SEED") {
        Ok(seed) => {
            let seed: u64 = seed.parse().expect("KATTU_SEED is a number");
            seed..seed + 1
        }
        Err(_) => 0..15,
    };
    let only_one = seeds.end - seeds.start == 1;
    let mut made = Made::default();
    for seed in seeds {
        println!("seed {seed}");
        storm(seed, 2500, &mut made);
    }
    println!("{made:?}");
    let all_happened = made.added > 8 && made.promoted > 8 && made.removed > 20 && made.writes > 1000;
    assert!(only_one || all_happened, "{made:?}");
}
