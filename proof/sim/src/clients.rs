//! Clients: their operations, the members that they call, and the answers.
//!
//! Each client has one operation under way; a flood has a client of its own for each request, because it does not wait.
//! Keys are few, so that operations conflict; values are all different, so that each read names the write it saw.
//!
//! Two clients are one reader: like clones of the real `Seen` (`shell/client`) they share the highest log position of
//! their answers, and ask other members with it. Which calls are the reader's is drawn call by call; so is which reads
//! have a bound.
//! Knows nothing of: members' internals, judges.

use crate::clock::{MS, SEC};
use crate::dice::Dice;
use crate::plan::{Leases, Load, Pace, Settings};
use kattu_kv::api as kv;
use kattu_kv::lookup::{KEYS_MAX, Keys};
use kattu_node::command::{encode_kv, request};
use kattu_node::contract::{Consistency, Outcome, ReplyBody, Request};
use kattu_raft::{Duration, LogIndex};
use kattu_verify::convert;
use kattu_verify::history::{Compare, How, Level, Operation, Record, Target, What};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Numbers of clients that flood.
const FLOOD_FROM: u32 = 1_000_000;
/// Numbers of clients that call a member the moment it is back.
const EARLY_FROM: u32 = 2_000_000;
/// Numbers of clients whose requests are as large as the API allows.
const HEAVY_FROM: u32 = 4_000_000;
/// The number of the operator.
const OPERATOR: u32 = 3_000_000;
/// Operations of a heavy transaction, nested ones included: as many as the API allows. And transactions within it.
const HEAVY_OPERATIONS: u64 = 128;
const HEAVY_BRANCHES: u64 = 8;
/// Numbers of clients that probe after the storm.
const PROBE_FROM: u32 = 500_000;

/// An operation of a client.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) client: u32,
    pub(crate) member: usize,
    pub(crate) request: Option<Request>,
    pub(crate) ended: bool,
    /// Its command is valid bytes that the API would refuse.
    pub(crate) divergent: bool,
    pub(crate) is_flood: bool,
    /// It is as large as the API allows.
    pub(crate) is_heavy: bool,
    /// It is the operator's, and in no history.
    pub(crate) is_change_request: bool,
    /// The reader whose call it is.
    reader: Option<u64>,
    /// For a read with a bound: the highest revision that any client had been shown when it began.
    bounded: Option<i64>,
}

/// Rounding of the times of a member, in nanoseconds: clocks show whole ones.
const TICKS: u64 = 4;

/// All clients and their history.
pub(crate) struct Clients {
    dice: Dice,
    load: Load,
    request_bytes_max: usize,
    /// For levels of reads: a stream of its own, so that operations do not depend on it.
    level_dice: Dice,
    /// Clocks run apart further than leader leases trust them: the history records reads as ones that may be old.
    reads_may_be_old: bool,
    /// Millionths that any member's clock may gain or lose.
    drift: u64,
    /// The highest log position in answers to each reader.
    seen: BTreeMap<u64, LogIndex>,
    /// Clients whose next operation follows at once, at this level.
    going_on: BTreeMap<u32, Level>,
    pub(crate) asked: Vec<Asked>,
    pub(crate) history: Vec<Record>,
    /// Highest revision that any client was shown.
    revision: i64,
    floods: u32,
    early: u32,
    heavy: u32,
    pub(crate) done: u64,
    pub(crate) refused: u64,
    pub(crate) unknown: u64,
    /// Bounded reads that showed less than another client had been shown when they began.
    pub(crate) aged: u64,
}

impl Clients {
    pub(crate) fn new(seed: u64, load: &Load, settings: &Settings, pace: &Pace) -> Clients {
        let rates = pace.rates.iter().chain([&pace.drift]);
        Clients {
            dice: Dice::new(seed, "clients"),
            load: load.clone(),
            request_bytes_max: settings.request_bytes_max,
            level_dice: Dice::new(seed, "levels of clients"),
            reads_may_be_old: settings.leases == Leases::Beyond,
            drift: rates.map(|rate| rate.unsigned_abs()).max().unwrap_or(0),
            seen: BTreeMap::new(),
            going_on: BTreeMap::new(),
            asked: Vec::new(),
            history: Vec::new(),
            revision: 1,
            floods: 0,
            early: 0,
            heavy: 0,
            done: 0,
            refused: 0,
            unknown: 0,
            aged: 0,
        }
    }

    /// How long a client rests before its next operation.
    pub(crate) fn rest(&mut self) -> u64 {
        self.dice.within(self.load.rest / 2, self.load.rest * 3 / 2)
    }

    /// The same for this client, which may go on at once.
    pub(crate) fn rest_of(&mut self, client: u32) -> u64 {
        match self.going_on.contains_key(&client) {
            true => self.level_dice.below(self.load.rest / 64 + 1),
            false => self.rest(),
        }
    }

    /// How long a client waits; none is for ever.
    pub(crate) fn patience(&self) -> Option<u64> {
        (self.load.patience > 0).then_some(self.load.patience)
    }

    /// The member that a client calls: mostly its own, if that is up; a reader that goes on at once, any.
    pub(crate) fn choose(&mut self, client: u32, up: &[usize], members: usize) -> Option<usize> {
        let moves = matches!(self.going_on.get(&client), Some(Level::AtLeast { .. }));
        if moves && !up.is_empty() {
            return Some(up[self.level_dice.below(up.len() as u64) as usize]);
        }
        let home = client as usize % members;
        if up.contains(&home) && !self.dice.one_in(4) {
            return Some(home);
        }
        (!up.is_empty()).then(|| up[self.dice.below(up.len() as u64) as usize])
    }

    /// Begins a client's next operation in the history; its number.
    pub(crate) fn ask(&mut self, now: u64, client: u32, member: usize) -> u64 {
        let (operation, divergent) = self.draw();
        match divergent {
            Some(command) => {
                // It changes nothing, so the history does not need it.
                let asked = self.asked(client, member, Some(Request::Write(encode_kv(&command).into())));
                self.asked[asked as usize].divergent = true;
                asked
            }
            None => {
                let level = self.draw_level(client);
                self.ask_at(now, client, member, operation, level)
            }
        }
    }

    /// The level of an operation, with the bound that the member gets. Every other time the client's next operation has
    /// the same level and follows at once: a member is behind for a moment only.
    fn draw_level(&mut self, client: u32) -> Option<Level> {
        let level = self.going_on.remove(&client).or_else(|| self.draw_new_level(client));
        if let Some(level) = level.filter(|_| self.level_dice.one_in(2)) {
            self.going_on.insert(client, level);
        }
        level
    }

    fn draw_new_level(&mut self, client: u32) -> Option<Level> {
        let drawn = self.level_dice.below(100);
        if drawn < self.load.at_least {
            return Some(Level::AtLeast { reader: u64::from(client / 2) });
        }
        if drawn < self.load.at_least + self.load.bounded {
            let longest = self.load.bound_max.max(1);
            return Some(Level::Bounded(match self.level_dice.below(8) {
                0 => 0,
                1..4 => self.level_dice.log_within(MS.min(longest), longest),
                _ => self.level_dice.within(0, longest),
            }));
        }
        None
    }

    /// How old an answer may be by the world's clock, if its member measures `bound` by its own.
    fn by_the_world(&self, bound: u64) -> u64 {
        let slowest = 1_000_000 - u128::from(self.drift.min(999_999));
        (u128::from(bound) * 1_000_000).div_ceil(slowest) as u64 + TICKS
    }

    /// Notes the log position of the answer to an operation: later requests of its reader carry it.
    /// [shell/client `Level::note`]
    pub(crate) fn note_position(&mut self, number: u64, what: &What, position: LogIndex) {
        let asked = &self.asked[number as usize];
        if let (Some(reader), false, What::Done { answer: Ok(_), .. }) = (asked.reader, asked.ended, what) {
            let seen = self.seen.entry(reader).or_default();
            *seen = (*seen).max(position);
        }
    }

    /// One request of a flood.
    pub(crate) fn flood(&mut self, now: u64, member: usize) -> u64 {
        self.floods += 1;
        let (key, value) = (self.key(), format!("f{}", self.asked.len()));
        let number = self.ask_for(now, FLOOD_FROM + self.floods, member, Operation::Put { key, value });
        self.asked[number as usize].is_flood = true;
        number
    }

    /// One request as large as the API allows: everything, a transaction of 128 operations in two levels, the largest
    /// value under the one key that all other clients write, too. [fault-model F53]
    pub(crate) fn heavy(&mut self, now: u64, member: usize) -> u64 {
        self.heavy += 1;
        let all = |count_only: bool| Operation::Range {
            key: "\0".into(),
            end: "\0".into(),
            revision: 0,
            limit: 0,
            count_only,
            serializable: false,
        };
        let operation = match self.dice.below(4) {
            0 => all(self.dice.one_in(3)),
            1 => {
                let mut value = format!("h{}.", self.asked.len());
                value.extend(std::iter::repeat_n('.', self.request_bytes_max.saturating_sub(value.len())));
                Operation::Put { key: "k0".into(), value }
            }
            _ => {
                // No key is written twice: the API would refuse it. And few are: each write of a transaction whose
                // outcome is unknown multiplies the states that judges have to look at.
                let mut keys = (0..self.load.keys.min(HEAVY_BRANCHES)).map(|key| format!("k{key}"));
                let number = self.asked.len();
                let mut operation = |place: u64| match (place % 4, keys.next()) {
                    (0, _) => all(place % 32 != 4),
                    (_, Some(key)) => Operation::Put { key, value: format!("h{number}.{place}") },
                    (which, None) => Operation::Range {
                        key: "k0".into(),
                        end: if which == 1 { "\0".into() } else { String::new() },
                        revision: 0,
                        limit: 0,
                        count_only: which == 1,
                        serializable: false,
                    },
                };
                let then = (0..HEAVY_BRANCHES)
                    .map(|branch| Operation::Txn {
                        compare: Vec::new(),
                        then: (1..HEAVY_OPERATIONS / HEAVY_BRANCHES)
                            .map(|place| operation(branch * HEAVY_OPERATIONS / HEAVY_BRANCHES + place))
                            .collect(),
                        otherwise: Vec::new(),
                    })
                    .collect();
                Operation::Txn { compare: Vec::new(), then, otherwise: Vec::new() }
            }
        };
        let number = self.ask_for(now, HEAVY_FROM + self.heavy, member, operation);
        self.asked[number as usize].is_heavy = true;
        number
    }

    /// Requests of floods so far.
    pub(crate) fn flooded(&self) -> u64 {
        u64::from(self.floods)
    }

    /// A reader that waited for a member and takes any state, if this workload has such readers. [ST17]
    pub(crate) fn early(&mut self, now: u64, member: usize) -> Option<u64> {
        if self.load.weights[3] == 0 || self.dice.one_in(2) {
            return None;
        }
        self.early += 1;
        let operation = self.read(0, true);
        Some(self.ask_for(now, EARLY_FROM + self.early, member, operation))
    }

    /// A write to show that a member serves.
    pub(crate) fn probe(&mut self, now: u64, member: usize) -> u64 {
        let value = format!("p{}", self.asked.len());
        let operation = Operation::Put { key: format!("probe{member}"), value };
        self.ask_for(now, PROBE_FROM + member as u32, member, operation)
    }

    /// A change that the operator requests.
    pub(crate) fn change_request(&mut self, member: usize, request: Request) -> u64 {
        let number = self.asked(OPERATOR, member, Some(request));
        let asked = &mut self.asked[number as usize];
        (asked.divergent, asked.is_change_request) = (true, true);
        number
    }

    /// Reads everything.
    pub(crate) fn read_all(&mut self, now: u64, member: usize) -> u64 {
        let operation = Operation::Range {
            key: "\0".into(),
            end: "\0".into(),
            revision: 0,
            limit: 0,
            count_only: false,
            serializable: false,
        };
        self.ask_for(now, PROBE_FROM + 1000, member, operation)
    }

    fn asked(&mut self, client: u32, member: usize, request: Option<Request>) -> u64 {
        let number = self.asked.len() as u64;
        self.asked.push(Asked {
            client,
            member,
            request,
            ended: false,
            divergent: false,
            is_flood: false,
            is_heavy: false,
            is_change_request: false,
            reader: None,
            bounded: None,
        });
        number
    }

    fn ask_for(&mut self, now: u64, client: u32, member: usize, operation: Operation) -> u64 {
        self.ask_at(now, client, member, operation, None)
    }

    fn ask_at(
        &mut self,
        now: u64,
        client: u32,
        member: usize,
        operation: Operation,
        level: Option<Level>,
    ) -> u64 {
        let consistency = match level {
            None => Consistency::Linearizable,
            Some(Level::AtLeast { reader }) => {
                Consistency::AtLeast(self.seen.get(&reader).copied().unwrap_or_default())
            }
            Some(Level::Bounded(bound)) => Consistency::Bounded(Duration::from_nanos(bound)),
        };
        // The API checks first: a request that is wrong in any state never reaches a replica.
        let rejected = convert::check(&operation).err();
        let asks = match convert::to_request(&operation) {
            convert::Request::Command(command) => {
                let bytes = encode_kv(&command);
                request(command, bytes)
            }
            convert::Request::Query(query, true) => Request::Read(query, Consistency::Serializable),
            convert::Request::Query(query, false) => Request::Read(query, consistency),
        };
        // As the native protocol asks for them. By number, so that no die is thrown for it.
        let asks = if self.asked.len().is_multiple_of(2) { asks } else { looked_up(asks) };
        let too_large = asks.command().is_some_and(|command| command.len() > self.request_bytes_max + 512);
        let has_bound = matches!(
            &asks,
            Request::Read(_, Consistency::Bounded(_)) | Request::LookUp(_, Consistency::Bounded(_))
        );
        let is_read = matches!(&asks, Request::Read(..) | Request::LookUp(..));
        let number = self.asked(client, member, Some(asks));
        let (reader, level) = match level {
            Some(Level::AtLeast { reader }) => (Some(reader), level),
            Some(Level::Bounded(bound)) if has_bound => {
                (None, Some(Level::Bounded(self.by_the_world(bound))))
            }
            Some(Level::Bounded(_)) | None => (None, None),
        };
        let asked = &mut self.asked[number as usize];
        (asked.reader, asked.bounded) = (reader, has_bound.then_some(self.revision));
        let mut operation = operation;
        // What a reader has seen does not depend on clocks.
        let may_be_old = self.reads_may_be_old && !matches!(consistency, Consistency::AtLeast(_));
        if may_be_old && is_read {
            make_serializable(&mut operation);
        }
        self.record(now, number, What::Invoke { member: member as u64 + 1, operation, level });
        if let Some(rejection) = rejected {
            self.end(now, number, What::Done { revision: None, answer: Err(rejection) });
        } else if too_large {
            self.end(now, number, What::Refused { reason: "request is too large".into() });
        }
        number
    }

    /// Records what became of a command in a session, which has a number and a client of its own.
    pub(crate) fn record_in_session(&mut self, at: u64, client: u32, id: u64, what: What) {
        match &what {
            What::Invoke { .. } | What::Crashed { .. } => {}
            What::Done { revision, .. } => {
                self.done += 1;
                self.revision = self.revision.max(revision.unwrap_or(0));
            }
            What::Refused { .. } => self.refused += 1,
            What::Unknown { .. } => self.unknown += 1,
        }
        self.history.push(Record { at, client, id, what });
    }

    fn record(&mut self, at: u64, number: u64, what: What) {
        let client = self.asked[number as usize].client;
        self.history.push(Record { at, client, id: number, what });
    }

    /// Answers the client; `false` if it has stopped waiting.
    pub(crate) fn end(&mut self, now: u64, number: u64, what: What) -> bool {
        let asked = &mut self.asked[number as usize];
        if asked.ended {
            return false;
        }
        asked.ended = true;
        asked.request = None;
        if asked.divergent {
            return true;
        }
        match &what {
            What::Invoke { .. } | What::Crashed { .. } => unreachable!("an end of an operation"),
            What::Done { revision, .. } => {
                self.done += 1;
                self.aged +=
                    u64::from(asked.bounded.zip(*revision).is_some_and(|(then, shown)| shown < then));
                self.revision = self.revision.max(revision.unwrap_or(0));
            }
            What::Refused { .. } => self.refused += 1,
            What::Unknown { .. } => self.unknown += 1,
        }
        self.record(now, number, what);
        true
    }

    fn key(&mut self) -> String {
        format!("k{}", self.dice.below(self.load.keys))
    }

    fn value(&mut self) -> String {
        let bytes = if self.dice.one_in(200) {
            self.request_bytes_max as u64 // the largest allowed
        } else {
            self.dice.log_within(1, self.load.value_bytes)
        };
        let mut value = format!("v{}", self.asked.len());
        value.extend(std::iter::repeat_n('.', (bytes as usize).saturating_sub(value.len())));
        value
    }

    fn keys(&mut self) -> (String, String) {
        match self.dice.below(4) {
            0 => ("\0".into(), "\0".into()),
            1 => (self.key(), "l".into()),
            2 => ("k".into(), self.key()),
            _ => (self.key(), self.key()),
        }
    }

    fn read(&mut self, revision: i64, serializable: bool) -> Operation {
        let (key, end) = if self.dice.one_in(2) { (self.key(), String::new()) } else { self.keys() };
        let limit = if self.dice.one_in(4) { self.dice.below(4) as i64 } else { 0 };
        Operation::Range { key, end, revision, limit, count_only: self.dice.one_in(8), serializable }
    }

    /// An operation, or a command that the API would refuse.
    fn draw(&mut self) -> (Operation, Option<kv::Command>) {
        let total: u64 = self.load.weights.iter().sum();
        let mut drawn = self.dice.below(total);
        let mut which = 0;
        while drawn >= self.load.weights[which] {
            drawn -= self.load.weights[which];
            which += 1;
        }
        let operation = match which {
            0 => Operation::Put { key: self.key(), value: self.value() },
            1 => Operation::Range {
                key: self.key(),
                end: String::new(),
                revision: 0,
                limit: 0,
                count_only: false,
                serializable: false,
            },
            2 => self.read(0, false),
            3 => self.read(0, true),
            4 => {
                let revision = 1 + self.dice.below(self.revision as u64 + 3) as i64;
                self.read(revision, self.dice.clone().one_in(2))
            }
            5 => Operation::Delete { key: self.key(), end: String::new() },
            6 => {
                let (key, end) = self.keys();
                Operation::Delete { key, end }
            }
            7 => self.txn(2),
            8 => {
                let back = self.dice.log_within(1, 1000) as i64;
                Operation::Compact { revision: (self.revision + 2 - back).max(1) }
            }
            9 => Operation::Put { key: self.key(), value: "x".repeat(self.request_bytes_max + 1024) },
            _ => return (Operation::Compact { revision: 0 }, Some(self.divergent())),
        };
        (operation, None)
    }

    fn txn(&mut self, depth: u64) -> Operation {
        let compares = self.dice.below(3);
        let compare = (0..compares).map(|_| self.compare()).collect();
        Operation::Txn { compare, then: self.branch(depth), otherwise: self.branch(depth) }
    }

    fn compare(&mut self) -> Compare {
        let key = self.key();
        let how = *self.dice.pick(&[How::Equal, How::Greater, How::Less, How::NotEqual]);
        let near = self.dice.below(self.revision as u64 + 2) as i64;
        let target = match self.dice.below(4) {
            0 => Target::Value(format!("v{}", self.dice.below(self.asked.len() as u64 + 1))),
            1 => Target::Version(self.dice.below(4) as i64),
            2 => Target::Create(near),
            _ => Target::Mod(near),
        };
        Compare { key, how, target }
    }

    fn branch(&mut self, depth: u64) -> Vec<Operation> {
        let count = self.dice.below(4);
        (0..count)
            .map(|number| match self.dice.below(if depth > 0 { 5 } else { 4 }) {
                0 => Operation::Delete { key: self.key(), end: String::new() },
                1 => self.read(0, false),
                2 | 3 => Operation::Put { key: self.key(), value: format!("t{}.{number}", self.asked.len()) },
                _ => self.txn(depth - 1),
            })
            .collect()
    }

    /// Valid bytes that the API would refuse, in several ways, without effect on any state. [fault-model F71]
    fn divergent(&mut self) -> kv::Command {
        let keys = kv::KeyRange { start: b"zz".to_vec(), end: b"a".to_vec() };
        match self.dice.below(6) {
            0 => kv::Command::Put(kv::Put {
                ignore_value: true,
                key: b"\xff\xfe".to_vec(),
                ..kv::Put::default()
            }),
            1 => kv::Command::Put(kv::Put { lease: i64::MIN, key: vec![0], ..kv::Put::default() }),
            2 => kv::Command::DeleteRange(kv::DeleteRange { keys, prev_kv: true }),
            3 => kv::Command::Compact(kv::Revision(*self.dice.pick(&[i64::MIN, -1, i64::MAX]))),
            4 => {
                let mut txn = kv::Txn::default();
                for _ in 1..kattu_kv::command::TXN_DEPTH_MAX {
                    txn = kv::Txn { success: vec![kv::Operation::Txn(txn)], ..kv::Txn::default() };
                }
                kv::Command::Txn(txn)
            }
            _ => {
                let range = kv::Range {
                    keys,
                    revision: kv::Revision(i64::MAX),
                    limit: i64::MIN,
                    ..kv::Range::default()
                };
                let put = kv::Put { key: b"never".to_vec(), ..kv::Put::default() };
                let success = vec![
                    kv::Operation::Put(put.clone()),
                    kv::Operation::Put(put),
                    kv::Operation::Range(range),
                ];
                kv::Command::Txn(kv::Txn { success, ..kv::Txn::default() })
            }
        }
    }
}

/// A read of a single key without options as a look-up of this key and of as many others as there may be.
fn looked_up(request: Request) -> Request {
    match request {
        Request::Read(kv::Query::Range(range), consistency) => {
            let kv::KeyRange { start, end } = &range.keys;
            let plain = kv::Range { keys: range.keys.clone(), ..kv::Range::default() };
            if plain != range || start.is_empty() || !end.is_empty() {
                return Request::Read(kv::Query::Range(range), consistency);
            }
            let mut keys = Keys::default();
            keys.push(start);
            (1..KEYS_MAX).for_each(|number| keys.push(format!("k{number}").as_bytes()));
            Request::LookUp(Arc::new(keys), consistency)
        }
        other => other,
    }
}

/// An outcome as a history records it.
pub(crate) fn told(outcome: Outcome) -> What {
    match outcome {
        Outcome::Received(_) => unreachable!("nobody asks for weak answers here"),
        Outcome::Done(reply) => match reply.body {
            ReplyBody::Kv(response) => What::Done {
                revision: Some(response.revision.0),
                answer: Ok(convert::from_answer(&response.answer)),
            },
            // The others were only company.
            ReplyBody::Found(found) => {
                let first = found.iter().next().expect("a look-up of some keys").response();
                What::Done {
                    revision: Some(first.revision.0),
                    answer: Ok(convert::from_answer(&first.answer)),
                }
            }
            ReplyBody::KvError(error) => {
                What::Done { revision: None, answer: Err(convert::to_rejection(error)) }
            }
            other => unreachable!("no client requests {other:?}"),
        },
        Outcome::Refused(refusal) => What::Refused { reason: format!("{refusal:?}") },
        Outcome::Unknown(doubt) => What::Unknown { reason: format!("{doubt:?}") },
    }
}

/// How long the calm waits between two tries.
pub(crate) const RETRY: u64 = SEC / 100;

/// Makes a read, or a transaction of reads only, accept any state that existed.
fn make_serializable(read: &mut Operation) {
    match read {
        Operation::Range { serializable, .. } => *serializable = true,
        Operation::Txn { then, otherwise, .. } => {
            then.iter_mut().chain(otherwise).for_each(make_serializable)
        }
        Operation::Put { .. } | Operation::Delete { .. } | Operation::Compact { .. } => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::plan::Plan;

    #[test]
    fn no_clock_within_its_drift_counts_a_bound_for_longer_than_the_history_says() {
        for drift in [0, 100, 20_000, 300_000_i64] {
            let mut plan = Plan::steady(1, 3, 1);
            plan.pace.drift = drift;
            let clients = Clients::new(1, &plan.load, &plan.settings, &plan.pace);
            for rate in [-drift, drift] {
                let clock = Clock::new(77 * SEC, rate);
                for bound in [0, 1, 999, MS, 250 * MS, 8 * SEC] {
                    for asked in [0, 1, 999_999, 123_456_789_123] {
                        let later = clock.at(asked + clients.by_the_world(bound) + 1);
                        let counted = later.since(clock.at(asked));
                        assert!(Duration::from_nanos(bound) < counted, "{drift} {rate} {bound}: {counted:?}");
                    }
                }
            }
            assert!(clients.by_the_world(SEC) - SEC <= SEC / 2, "and not by much");
        }
    }

    #[test]
    fn a_reader_asks_for_the_highest_position_that_one_of_its_answers_came_with() {
        let plan = Plan::steady(1, 3, 1);
        let mut clients = Clients::new(1, &plan.load, &plan.settings, &plan.pace);
        let read = || Operation::everything();
        let done = || What::Done { revision: Some(1), answer: Ok(kattu_verify::history::Answer::Put) };
        let mut answered = |client, level, what: What, position| {
            let number = clients.ask_at(0, client, 0, read(), level);
            let said = match &clients.asked[number as usize].request {
                Some(
                    Request::Read(_, Consistency::AtLeast(index))
                    | Request::LookUp(_, Consistency::AtLeast(index)),
                ) => Some(index.0),
                _ => None,
            };
            clients.note_position(number, &what, LogIndex(position));
            clients.end(0, number, what);
            clients.note_position(number, &done(), LogIndex(1000)); // a client that has stopped waiting gets none
            said
        };
        let level = Some(Level::AtLeast { reader: 3 });
        assert_eq!(answered(6, level, done(), 7), Some(0));
        assert_eq!(answered(7, level, done(), 5), Some(7), "the other client of the same reader");
        assert_eq!(answered(6, level, What::Refused { reason: String::new() }, 90), Some(7));
        assert_eq!(answered(6, None, done(), 91), None);
        assert_eq!(answered(6, Some(Level::Bounded(1)), done(), 92), None);
        assert_eq!(answered(8, Some(Level::AtLeast { reader: 4 }), done(), 93), Some(0));
        assert_eq!(answered(6, level, done(), 8), Some(7));
        assert_eq!(answered(6, level, done(), 8), Some(8));
    }
}
