//! Storms: whole replicas under loss, repetition, reordering, broken links, kills and restarts, checked by the answers
//! to clients. [fault-model P1, P2, §1]
//!
//! All writes go to one key and differ in their values, so that the log gives every operation its place:
//!   1. a member that lives to the end has answered every client, once;
//!   2. `Done` is in the log exactly once, `Refused` never, `Unknown` at most once;
//!   3. an operation that ended before another began is before it.

use kattu_kv::api as kv;
use kattu_node::command::Command;
use kattu_node::contract::*;
use kattu_raft::{Duration, EntryKind, LinkEnd, LogIndex, NodeId};
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

/// One client's call.
struct Call {
    member: u64,
    /// The value written, or none for a read.
    value: Option<u64>,
    began: u64,
    ended: Option<(u64, Outcome)>,
    /// Its member was killed before it answered.
    orphaned: bool,
}

struct Storm {
    world: World,
    dice: Dice,
    calls: BTreeMap<Ticket, Call>,
    moment: u64,
}

impl Storm {
    fn new(seed: u64) -> Storm {
        let dice = Dice(Rc::new(Cell::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)));
        let mut world = World::new(3);
        world.pass(Duration::from_millis(dice.below(3000)));
        let (loses, keeps) = (dice.clone(), dice.clone());
        world.loses = Box::new(move |_| loses.one_in(20));
        world.keeps = Box::new(move |_| keeps.one_in(8));
        Storm { world, dice, calls: BTreeMap::new(), moment: 0 }
    }

    fn ask(&mut self, member: u64, value: Option<u64>) {
        let request = match value {
            Some(value) => put("a", &value.to_string()),
            None => get("a", Consistency::Linearizable),
        };
        self.moment += 1;
        let began = self.moment;
        let ticket = self.world.ask(member, request);
        self.calls.insert(ticket, Call { member, value, began, ended: None, orphaned: false });
        self.look();
    }

    /// Records the answers so far.
    fn look(&mut self) {
        self.moment += 1;
        for (&ticket, call) in
            self.calls.iter_mut().filter(|(_, call)| call.ended.is_none() && !call.orphaned)
        {
            if let Some(outcome) = self.world.outcome(call.member, ticket) {
                call.ended = Some((self.moment, outcome.clone()));
            }
        }
    }

    fn kill(&mut self, member: u64) {
        self.look();
        self.world.kill(member);
        for call in self.calls.values_mut().filter(|call| call.member == member && call.ended.is_none()) {
            call.orphaned = true;
        }
    }

    fn step(&mut self, number: u64) {
        let member = 1 + self.dice.below(3);
        let lives = self.world.member(member).alive;
        match self.dice.below(100) {
            0 if lives => self.kill(member),
            0..=3 if !lives => self.world.restart(member),
            4..=5 => {
                let end = if self.dice.below(2) == 0 { LinkEnd::ByPeer } else { LinkEnd::Otherwise };
                self.world.give(member, Event::LinkClosed(NodeId(1 + self.dice.below(3)), end));
            }
            6..=25 if lives => self.ask(member, Some(number)),
            26..=40 if lives => self.ask(member, None),
            41..=60 => {
                self.world.now += Duration::from_millis(self.dice.below(60));
                for id in 1..=3 {
                    if self.world.member(id).node.deadline() <= self.world.now {
                        self.world.give(id, Event::Tick);
                    }
                }
            }
            _ => {
                for _ in 0..self.dice.below(8) {
                    let waiting = self.world.network.len() as u64;
                    // Mostly the oldest, sometimes any: links keep their order, reconnects do not.
                    let at = if self.dice.one_in(6) { self.dice.below(waiting.max(1)) } else { 0 };
                    let Some(message) = self.world.network.remove(at as usize) else { break };
                    if self.dice.one_in(15) {
                        self.world.network.push_back(message.clone());
                    }
                    self.world.deliver_one(message);
                    self.look();
                }
            }
        }
        self.look();
    }

    /// Everything works again; every waiting client is answered.
    fn calm(&mut self) {
        self.world.loses = Box::new(|_| false);
        self.world.keeps = Box::new(|_| false);
        for id in 1..=3 {
            if !self.world.member(id).alive {
                self.world.restart(id);
            }
        }
        self.world.pass(Duration::from_secs(8));
        self.look();
        let leader = self.world.elect();
        self.ask(leader, None);
        self.world.pass(Duration::from_millis(300));
        self.look();
    }

    /// The place of each value in the committed log; panics if a value is there twice.
    fn places(&mut self) -> BTreeMap<u64, LogIndex> {
        let leader = self.world.elect();
        let member = self.world.member(leader);
        let committed = member.node.raft().committed();
        let mut places = BTreeMap::new();
        for entry in entries(&member.disk).iter().filter(|entry| entry.id().index <= committed) {
            if entry.head.kind != EntryKind::Command {
                continue;
            }
            if let Some(Ok(Command::Kv(kv::Command::Put(put)))) = entry.payload().map(Command::decode) {
                let value: u64 = std::str::from_utf8(&put.value).unwrap().parse().unwrap();
                let before = places.insert(value, entry.id().index);
                assert_eq!(before, None, "value {value} stands in the log twice");
            }
        }
        places
    }

    /// Checks every call; returns how many were done.
    fn judge(&mut self) -> usize {
        let places = self.places();
        let mut done: Vec<(u64, u64, LogIndex, bool)> = Vec::new();
        for (ticket, call) in &self.calls {
            let Some((ended, outcome)) = &call.ended else {
                assert!(call.orphaned, "{ticket:?} at member {} was never answered", call.member);
                continue;
            };
            match (outcome, call.value) {
                (Outcome::Done(_), Some(value)) => {
                    let place = places.get(&value).unwrap_or_else(|| panic!("{value} was done and is gone"));
                    done.push((call.began, *ended, *place, true));
                }
                (Outcome::Done(_), None) => {
                    let place =
                        value_of(Some(outcome)).map_or(LogIndex(0), |value| places[&value.parse().unwrap()]);
                    done.push((call.began, *ended, place, false));
                }
                (Outcome::Refused(why), Some(value)) => {
                    assert!(!places.contains_key(&value), "{value} was refused ({why:?}) and is in the log");
                }
                (Outcome::Received(_), _) => unreachable!("nobody asks for weak answers here"),
                (Outcome::Refused(_) | Outcome::Unknown(_), _) => {}
            }
        }
        for &(_, ended, place, _) in &done {
            for &(began, _, later, is_write) in done.iter().filter(|(began, ..)| ended < *began) {
                let in_order = if is_write { place < later } else { place <= later };
                assert!(in_order, "ended at {ended} with {place:?}, another began at {began} with {later:?}");
            }
        }
        done.len()
    }
}

#[test]
fn clients_are_told_the_truth_in_every_storm() {
    let mut done = 0;
    for seed in 1..=60 {
        let mut storm = Storm::new(seed);
        for number in 1..=700 {
            storm.step(number);
        }
        storm.calm();
        done += storm.judge();
    }
    assert!(done > 60 * 20, "only {done} calls were done: the storms are too strong to say much");
}
