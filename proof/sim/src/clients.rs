//! Clients: what they ask, of whom, and what they were told.
//!
//! Each client has one operation under way; a flood has a client of its own for each request, because it does not wait.
//! Keys are few, so that operations meet; values are all different, so that each read names the write it saw.
//! Knows nothing of: members' insides, what is right.

use crate::clock::SEC;
use crate::dice::Dice;
use crate::plan::{Leases, Load, Settings};
use kattu_kv::api as kv;
use kattu_node::command::encode_kv;
use kattu_node::contract::{Consistency, Outcome, ReplyBody, Request};
use kattu_verify::convert;
use kattu_verify::history::{Compare, How, Operation, Record, Target, What};

/// Numbers of clients that flood.
const FLOOD_FROM: u32 = 1_000_000;
/// Numbers of clients that ask a member the moment it is back.
const EARLY_FROM: u32 = 2_000_000;
/// The number of the operator.
const OPERATOR: u32 = 3_000_000;
/// Numbers of clients that probe after the storm.
const PROBE_FROM: u32 = 500_000;

/// What a client has under way.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) client: u32,
    pub(crate) member: usize,
    pub(crate) request: Option<Request>,
    pub(crate) ended: bool,
    /// Its command is odd: valid bytes that no face would let through.
    pub(crate) odd: bool,
    pub(crate) is_flood: bool,
    /// It is the operator's: no history tells of it.
    pub(crate) is_wish: bool,
}

/// All clients and their history.
pub(crate) struct Clients {
    dice: Dice,
    load: Load,
    request_bytes_max: usize,
    /// Leases are believed whose clocks deserve no trust: reads are told to the history as ones that may be old.
    reads_may_be_old: bool,
    pub(crate) asked: Vec<Asked>,
    pub(crate) history: Vec<Record>,
    /// Highest revision anybody was shown.
    revision: i64,
    floods: u32,
    early: u32,
    pub(crate) done: u64,
    pub(crate) refused: u64,
    pub(crate) unknown: u64,
}

impl Clients {
    pub(crate) fn new(seed: u64, load: &Load, settings: &Settings) -> Clients {
        Clients {
            dice: Dice::new(seed, "clients"),
            load: load.clone(),
            request_bytes_max: settings.request_bytes_max,
            reads_may_be_old: settings.leases == Leases::Beyond,
            asked: Vec::new(),
            history: Vec::new(),
            revision: 1,
            floods: 0,
            early: 0,
            done: 0,
            refused: 0,
            unknown: 0,
        }
    }

    /// How long a client rests before its next operation.
    pub(crate) fn rest(&mut self) -> u64 {
        self.dice.within(self.load.rest / 2, self.load.rest * 3 / 2)
    }

    /// How long a client waits, if not for ever.
    pub(crate) fn patience(&self) -> Option<u64> {
        (self.load.patience > 0).then_some(self.load.patience)
    }

    /// Whom a client asks: mostly its own member, if that is up.
    pub(crate) fn choose(&mut self, client: u32, up: &[usize], members: usize) -> Option<usize> {
        let home = client as usize % members;
        if up.contains(&home) && !self.dice.one_in(4) {
            return Some(home);
        }
        (!up.is_empty()).then(|| up[self.dice.below(up.len() as u64) as usize])
    }

    /// A client's next operation, told to the history; its number.
    pub(crate) fn ask(&mut self, now: u64, client: u32, member: usize) -> u64 {
        let (operation, odd) = self.draw();
        match odd {
            Some(command) => {
                // It changes nothing, so a history need not know of it.
                let asked = self.asked(client, member, Some(Request::Write(encode_kv(&command))));
                self.asked[asked as usize].odd = true;
                asked
            }
            None => self.ask_for(now, client, member, operation),
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

    /// Requests of floods so far.
    pub(crate) fn flooded(&self) -> u64 {
        u64::from(self.floods)
    }

    /// A reader that has waited for a member and takes whatever it has, if this workload has such readers. [ST17]
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

    /// What the operator wants.
    pub(crate) fn wish(&mut self, member: usize, request: Request) -> u64 {
        let number = self.asked(OPERATOR, member, Some(request));
        let asked = &mut self.asked[number as usize];
        (asked.odd, asked.is_wish) = (true, true);
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
        let asked =
            Asked { client, member, request, ended: false, odd: false, is_flood: false, is_wish: false };
        self.asked.push(asked);
        number
    }

    fn ask_for(&mut self, now: u64, client: u32, member: usize, operation: Operation) -> u64 {
        // The face judges first: what is wrong whatever the state never reaches a replica.
        let rejected = convert::check(&operation).err();
        let request = match convert::to_request(&operation) {
            convert::Request::Command(command) => Request::Write(encode_kv(&command)),
            convert::Request::Query(query, true) => Request::Read(query, Consistency::Serializable),
            convert::Request::Query(query, false) => Request::Read(query, Consistency::Linearizable),
        };
        let too_large =
            matches!(&request, Request::Write(bytes) if bytes.len() > self.request_bytes_max + 512);
        let number = self.asked(client, member, Some(request));
        let mut operation = operation;
        if let (true, Operation::Range { serializable, .. }) = (self.reads_may_be_old, &mut operation) {
            *serializable = true;
        }
        self.record(now, number, What::Invoke { member: member as u64 + 1, operation });
        if let Some(rejection) = rejected {
            self.end(now, number, What::Done { revision: None, answer: Err(rejection) });
        } else if too_large {
            self.end(now, number, What::Refused { reason: "request is too large".into() });
        }
        number
    }

    fn record(&mut self, at: u64, number: u64, what: What) {
        let client = self.asked[number as usize].client;
        self.history.push(Record { at, client, id: number, what });
    }

    /// The client is told; `false` if it has stopped waiting.
    pub(crate) fn end(&mut self, now: u64, number: u64, what: What) -> bool {
        let asked = &mut self.asked[number as usize];
        if asked.ended {
            return false;
        }
        asked.ended = true;
        asked.request = None;
        if asked.odd {
            return true;
        }
        match &what {
            What::Invoke { .. } | What::Crashed { .. } => unreachable!("an end of an operation"),
            What::Done { revision, .. } => {
                self.done += 1;
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
            self.request_bytes_max as u64 // as large as any may be
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

    /// An operation, or a command that no face would let through.
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
            _ => return (Operation::Compact { revision: 0 }, Some(self.odd())),
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

    /// Valid bytes, odd in every way that a face would stop, and without effect on any state. [fault-model F71]
    fn odd(&mut self) -> kv::Command {
        let keys = kv::KeyRange { start: b"zz".to_vec(), end: b"a".to_vec() };
        match self.dice.below(6) {
            0 => kv::Command::Put(kv::Put {
                ignore_value: true,
                key: b"\xff\xfe".to_vec(),
                ..kv::Put::default()
            }),
            1 => kv::Command::Put(kv::Put { lease: i64::MIN, key: vec![0], ..kv::Put::default() }),
            2 => kv::Command::DeleteRange(kv::DeleteRange { keys, prev_kv: true }),
            3 => kv::Command::Compact(*self.dice.pick(&[i64::MIN, -1, i64::MAX])),
            4 => {
                let mut txn = kv::Txn::default();
                for _ in 1..kattu_kv::command::TXN_DEPTH_MAX {
                    txn = kv::Txn { success: vec![kv::Operation::Txn(txn)], ..kv::Txn::default() };
                }
                kv::Command::Txn(txn)
            }
            _ => {
                let range = kv::Range { keys, revision: i64::MAX, limit: i64::MIN, ..kv::Range::default() };
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

/// What an outcome says in a history.
pub(crate) fn told(outcome: Outcome) -> What {
    match outcome {
        Outcome::Done(reply) => match reply.body {
            ReplyBody::Kv(response) => What::Done {
                revision: Some(response.revision),
                answer: Ok(convert::from_answer(&response.answer)),
            },
            ReplyBody::KvError(error) => {
                What::Done { revision: None, answer: Err(convert::to_rejection(error)) }
            }
            other => unreachable!("nobody asked for {other:?}"),
        },
        Outcome::Refused(refusal) => What::Refused { reason: format!("{refusal:?}") },
        Outcome::Unknown(doubt) => What::Unknown { reason: format!("{doubt:?}") },
    }
}

/// The longest a client of the calm waits between two tries.
pub(crate) const RETRY: u64 = SEC / 100;
