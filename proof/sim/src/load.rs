//! Load: requests at a rate, each timed, whether those before them were answered or not.
//!
//! An open loop: a member that stops for a second makes a second's requests late, not one. They are in no history,
//! because only their timing is judged.
//! Knows nothing of: what is done with the times.

use crate::beside::{Beside, BesideWrites};
use crate::clock::SEC;
use crate::dice::Dice;
use crate::family::When;
use crate::report::Violation;
use crate::world::{Event, World};
use kattu_kv::api::{Command, KeyRange, Put, Query, Range};
use kattu_node::command::encode_kv;
use kattu_node::contract::{Consistency, Outcome, Request};
use kattu_raft::Raft;
use std::collections::BTreeMap;

/// Operations of load are numbered from here on, so that their numbers occur in no history.
pub(crate) const LOAD_FROM: u64 = 1 << 40;

/// The request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ask {
    /// A put of a value of so many bytes under one of so many keys.
    Put {
        /// Bytes of the value.
        bytes: usize,
        /// Keys.
        keys: u64,
    },
    /// A linearizable read of one of so many keys.
    Get {
        /// Keys.
        keys: u64,
    },
}

/// Requests of one kind that come at a rate.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// The request.
    pub ask: Ask,
    /// How often, each second.
    pub per_second: u64,
    /// Any member gets the requests, not only the leader.
    pub anywhere: bool,
}

/// One request that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timed {
    /// The number of its stream.
    pub stream: usize,
    /// When it began, in nanoseconds.
    pub asked: u64,
    /// When it was answered.
    pub answered: u64,
    /// Whether it was done; otherwise it was refused or is open.
    pub done: bool,
}

/// All streams of a world, and the requests that have ended.
#[derive(Debug)]
pub(crate) struct Load {
    dice: Dice,
    streams: Vec<Stream>,
    /// Whether each stream is still on.
    on: Vec<bool>,
    /// Open requests: the stream, when each began, and its situation.
    asked: BTreeMap<u64, (usize, u64, When)>,
    number: u64,
    /// When a leader was last seen to slow its clients.
    slowed_at: Option<u64>,
    pub(crate) timed: Vec<Timed>,
}

impl Load {
    pub(crate) fn new(seed: u64) -> Load {
        Load {
            dice: Dice::new(seed, "load of service"),
            streams: Vec::new(),
            on: Vec::new(),
            asked: BTreeMap::new(),
            number: LOAD_FROM,
            slowed_at: None,
            timed: Vec::new(),
        }
    }

    /// Whether any requests have ever come at a rate.
    pub(crate) fn has_begun(&self) -> bool {
        !self.streams.is_empty()
    }

    /// Whether a write that begins now may wait because clients are slowed, or were no longer than `after` ago: then it
    /// may be behind those that were held back.
    fn slowed(&mut self, slows: bool, now: u64, after: u64) -> bool {
        if slows {
            self.slowed_at = Some(now);
        }
        self.slowed_at.is_some_and(|at| now <= at + after)
    }

    fn request(&mut self, ask: Ask) -> Request {
        let key = |dice: &mut Dice, keys: u64| format!("load{:08}", dice.below(keys)).into_bytes();
        match ask {
            Ask::Put { bytes, keys } => {
                let put = Put { key: key(&mut self.dice, keys), value: vec![b'.'; bytes], ..Put::default() };
                Request::Write(encode_kv(&Command::Put(put)).into())
            }
            Ask::Get { keys } => {
                let start = key(&mut self.dice, keys);
                let range = Range { keys: KeyRange { start, end: Vec::new() }, ..Range::default() };
                Request::Read(Query::Range(range), Consistency::Linearizable)
            }
        }
    }
}

impl World {
    /// Starts a stream at `at`; its number.
    pub(crate) fn begin_load(&mut self, stream: Stream, at: u64) -> usize {
        let number = self.load.streams.len();
        self.load.streams.push(stream);
        self.load.on.push(true);
        self.sh.queue.plan(at, Event::Load { stream: number });
        number
    }

    /// Ends a stream.
    pub(crate) fn end_load(&mut self, stream: usize) {
        self.load.on[stream] = false;
    }

    /// Ends all streams; nothing is slow any more.
    pub(crate) fn end_service(&mut self) {
        self.load.on.fill(false);
        self.sh.service.rest();
    }

    /// Compacts all history: the leader gets a compaction at the newest revision.
    pub(crate) fn forget(&mut self) {
        let Some(member) = self.leader() else { return };
        let operation = self.load.number;
        self.load.number += 1;
        let Some(process) = &mut self.members[member].process else { return };
        let revision = process.keeper().store().revision();
        // It is not timed, and a refusal is as good as an answer.
        let _ = process.call(operation, Request::Write(encode_kv(&Command::Compact(revision)).into()));
        let run = self.members[member].run;
        self.sh.queue.plan(self.sh.now, Event::Wake { member, run });
    }

    /// Sends the next request of a stream to the leader, or to any member.
    pub(crate) fn on_load(&mut self, number: usize) -> Result<(), Violation> {
        if !self.load.on[number] {
            return Ok(());
        }
        let Stream { ask, per_second, anywhere } = self.load.streams[number];
        let gap = SEC / per_second.max(1);
        self.sh.queue.plan(self.sh.now + gap, Event::Load { stream: number });
        let operation = self.load.number;
        self.load.number += 1;
        let up = self.up();
        let leads = self.leader();
        let slows = leads.and_then(|leader| self.raft(leader)).is_some_and(Raft::slows_clients);
        let now = self.sh.now;
        let after = self.plan.settings.heartbeat_interval.as_nanos() as u64;
        let slows = self.load.slowed(slows, now, after);
        let asked = self.sh.service.asked(slows, self.first_beside(|beside| beside.now(now)));
        self.load.asked.insert(operation, (number, self.sh.now, asked));
        let leader = leads.filter(|_| !anywhere);
        let any = up.get(operation as usize % up.len().max(1));
        let Some(member) = leader.or(any.copied()) else {
            self.load_ended(operation, false);
            return Ok(());
        };
        let request = self.load.request(ask);
        let process = self.members[member].process.as_mut().expect("it is up");
        match process.call(operation, request) {
            Ok(()) => {
                let run = self.members[member].run;
                self.sh.queue.plan(self.sh.now, Event::Wake { member, run });
            }
            Err(_) => self.load_ended(operation, false),
        }
        Ok(())
    }

    /// The shortest work of the running members beside writes. Any of them may be in the quorum of the next write.
    fn first_beside(&self, of: impl Fn(&BesideWrites) -> Option<Beside>) -> Option<Beside> {
        let running = self.members.iter().filter_map(|member| member.process.as_ref());
        running.filter_map(|process| of(&process.hands.log.disk.beside)).min()
    }

    /// A request of a stream has been answered, or never will be.
    pub(crate) fn load_answered(&mut self, operation: u64, outcome: &Outcome) {
        self.load_ended(operation, matches!(outcome, Outcome::Done(_)));
    }

    pub(crate) fn load_ended(&mut self, operation: u64, done: bool) {
        let Some((stream, asked, when)) = self.load.asked.remove(&operation) else { return };
        if matches!(self.load.streams[stream].ask, Ask::Put { .. }) {
            let begun = self.first_beside(|beside| beside.since(asked));
            self.sh.service.answered(self.sh.now - asked, done, when.or(begun));
        }
        self.load.timed.push(Timed { stream, asked, answered: self.sh.now, done });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_behind_those_that_were_held_back_are_slowed_and_later_ones_are_not() {
        let mut load = Load::new(1);
        assert!(!load.slowed(false, 0, 100), "never");
        assert!(load.slowed(true, 50, 100));
        assert!(load.slowed(true, 200, 100));
        assert!(load.slowed(false, 300, 100));
        assert!(!load.slowed(false, 301, 100));
    }
}
