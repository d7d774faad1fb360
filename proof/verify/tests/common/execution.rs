//! Random correct executions: clients of an atomic store, with lost answers, refusals, lagging members and crashes.

use kattu_random::Random;
use kattu_verify::history::{Answer, Compare, How, Level, Operation, Record, Target, What};
use kattu_verify::judges::FinalState;
use kattu_verify::spec::Spec;
use std::collections::BTreeMap;

/// The parameters of an execution.
#[derive(Clone, Copy)]
pub struct Shape {
    pub operations: u64,
    pub clients: u32,
    pub keys: u64,
    /// Percent of the operations.
    pub unknown: u64,
    pub refused: u64,
    /// Percent of the operations that are more than one put or get of one key.
    pub many: u64,
}

enum Client {
    Idle,
    Asked { id: u64, member: u64, operation: Operation, fate: Fate, level: Option<Level>, lags: Option<i64> },
    Answered { id: u64, what: What, level: Option<Level> },
}

#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Answer,
    Unknown,
    Refusal,
}

struct Execution {
    random: Random,
    /// For the levels of reads: a stream of its own, so that the operations do not depend on them.
    levels: Random,
    /// The highest revision that each reader has seen.
    seen: BTreeMap<u64, i64>,
    /// The highest revision answered, by time; ascending.
    past: Vec<(u64, i64)>,
    shape: Shape,
    spec: Spec,
    compacted: i64,
    /// What each member has applied.
    members: [i64; 3],
    /// Open operations that may still take effect.
    adrift: Vec<Operation>,
    records: Vec<Record>,
    values: u64,
}

/// A history, and the state it ends in.
pub fn execute(seed: u64, shape: Shape) -> (Vec<Record>, FinalState) {
    let mut execution = Execution {
        random: Random::new(seed),
        levels: Random::new(seed ^ 0x1e7e15),
        seen: BTreeMap::new(),
        past: Vec::new(),
        shape,
        spec: Spec::new(),
        compacted: -1,
        members: [1; 3],
        adrift: Vec::new(),
        records: Vec::new(),
        values: 0,
    };
    execution.run();
    let everything = Operation::everything();
    let Ok((revision, Answer::Range { kvs, .. })) = execution.spec.apply(&everything) else {
        unreachable!("reads of the present succeed")
    };
    (execution.records, FinalState { revision, kvs })
}

impl Execution {
    fn run(&mut self) {
        let mut clients: Vec<Client> = (0..self.shape.clients).map(|_| Client::Idle).collect();
        let mut next = 1;
        let mut idle = clients.len();
        while next <= self.shape.operations || idle < clients.len() {
            let number = self.random.within(0..clients.len() as u64) as usize;
            let client = number as u32;
            clients[number] = match std::mem::replace(&mut clients[number], Client::Idle) {
                Client::Idle if next > self.shape.operations => Client::Idle,
                Client::Idle => {
                    let (id, member) = (next, self.random.within(0..3));
                    next += 1;
                    idle -= 1;
                    let operation = self.operation();
                    let lot = self.random.within(0..100);
                    let fate = if lot < self.shape.unknown {
                        Fate::Unknown
                    } else if lot < self.shape.unknown + self.shape.refused {
                        Fate::Refusal
                    } else {
                        Fate::Answer
                    };
                    let level = self.level(client);
                    let lags = self.least(level, &operation);
                    let asked = What::Invoke { member: member + 1, operation: operation.clone(), level };
                    self.record(client, id, asked);
                    Client::Asked { id, member, operation, fate, level, lags }
                }
                Client::Asked { id, member, operation, fate, level, lags } => {
                    let what = match fate {
                        Fate::Answer => self.answer(member, &operation, level, lags),
                        Fate::Refusal => What::Refused { reason: "busy".to_string() },
                        Fate::Unknown => {
                            self.adrift.push(operation);
                            What::Unknown { reason: "timed out".to_string() }
                        }
                    };
                    Client::Answered { id, what, level }
                }
                Client::Answered { id, what, level } => {
                    idle += 1;
                    if let What::Done { revision: Some(revision), .. } = what {
                        let highest = self.past.last().map_or(revision, |&(_, last)| last.max(revision));
                        self.past.push((self.now(), highest));
                        if let Some(Level::AtLeast { reader }) = level {
                            let told = self.seen.entry(reader).or_insert(revision);
                            *told = (*told).max(revision);
                        }
                    }
                    self.record(client, id, what);
                    Client::Idle
                }
            };
            if self.random.per_cent(30) && !self.adrift.is_empty() {
                let place = self.random.within(0..self.adrift.len() as u64) as usize;
                let operation = self.adrift.swap_remove(place);
                if self.random.per_cent(70) {
                    let _ = self.apply(&operation);
                }
            }
            if self.random.within(0..1000) == 0 {
                let member = self.random.within(0..3);
                self.members[member as usize] = 1;
                self.record(0, 0, What::Crashed { member: member + 1 });
            }
        }
    }

    fn record(&mut self, client: u32, id: u64, what: What) {
        let at = self.now();
        self.records.push(Record { at, client, id, what });
    }

    fn now(&self) -> u64 {
        self.records.len() as u64 * 10
    }

    /// Two clients are one reader; some of their calls are the reader's.
    fn level(&mut self, client: u32) -> Option<Level> {
        match self.levels.within(0..100) {
            _ if self.shape.many == 0 => None,
            0..25 => Some(Level::AtLeast { reader: u64::from(client / 2) }),
            25..50 => Some(Level::Bounded(self.levels.within(0..20) * self.levels.within(0..20))),
            _ => None,
        }
    }

    /// The oldest revision that may be shown, if the level allows old ones.
    fn least(&self, level: Option<Level>, operation: &Operation) -> Option<i64> {
        match (operation, level?) {
            (Operation::Range { revision: 0, serializable: false, .. }, Level::AtLeast { reader }) => {
                Some(self.seen.get(&reader).copied().unwrap_or(1))
            }
            (Operation::Range { revision: 0, serializable: false, .. }, Level::Bounded(age)) => {
                let older = self.past.partition_point(|&(at, _)| at + age < self.now());
                Some(older.checked_sub(1).map_or(1, |newest| self.past[newest].1))
            }
            _ => None,
        }
    }

    fn apply(&mut self, operation: &Operation) -> Result<(i64, Answer), kattu_verify::history::Rejection> {
        let told = self.spec.apply(operation);
        if let (Operation::Compact { revision }, Ok(_)) = (operation, &told) {
            self.compacted = *revision;
        }
        told
    }

    fn answer(
        &mut self,
        member: u64,
        operation: &Operation,
        level: Option<Level>,
        lags: Option<i64>,
    ) -> What {
        let is_serializable = matches!(operation, Operation::Range { serializable: true, .. });
        if let Some(least) = lags.or(is_serializable.then_some(1)) {
            let applied = &mut self.members[member as usize];
            *applied = (*applied).max(least);
            let behind = (self.spec.revision() - *applied) as u64;
            *applied += self.random.within(0..behind + 1) as i64;
            let applied = *applied;
            let mut as_of = operation.clone();
            if let Operation::Range { revision, .. } = &mut as_of {
                *revision = applied;
            }
            self.spec.set_compacted(-1);
            let told = self.spec.apply(&as_of).map(|(_, answer)| answer);
            self.spec.set_compacted(self.compacted);
            return What::Done { revision: Some(applied), answer: told };
        }
        let told = self.apply(operation);
        if level.is_some() {
            self.members[member as usize] = self.spec.revision(); // it has applied what it shows to such reads
        }
        match told {
            Ok((revision, answer)) => What::Done { revision: Some(revision), answer: Ok(answer) },
            Err(rejection) => What::Done { revision: None, answer: Err(rejection) },
        }
    }

    fn key(&mut self) -> String {
        format!("k{:03}", self.random.within(0..self.shape.keys))
    }

    fn put(&mut self) -> Operation {
        self.values += 1;
        let value = if self.random.per_cent(90) { format!("v{}", self.values) } else { "same".to_string() };
        Operation::Put { key: self.key(), value }
    }

    fn range(&mut self, end: String, revision: i64, serializable: bool) -> Operation {
        let limit = if self.random.per_cent(20) { self.random.within(0..3) as i64 } else { 0 };
        let count_only = self.random.per_cent(10);
        Operation::Range { key: self.key(), end, revision, limit, count_only, serializable }
    }

    fn operation(&mut self) -> Operation {
        if !self.random.per_cent(self.shape.many) {
            return match self.random.within(0..10) {
                0..5 => self.put(),
                _ => Operation::Range {
                    key: self.key(),
                    end: String::new(),
                    revision: 0,
                    limit: 0,
                    count_only: false,
                    serializable: false,
                },
            };
        }
        match self.random.within(0..20) {
            0..4 => Operation::Delete { key: self.key(), end: String::new() },
            4 => Operation::Delete { key: self.key(), end: self.key() },
            5..8 => {
                let end = if self.random.per_cent(50) { "\0".to_string() } else { self.key() };
                self.range(end, 0, false)
            }
            8..10 => self.range(String::new(), 0, true),
            10..12 => {
                let revision = self.spec.revision() + 1 - self.random.within(0..12) as i64;
                self.range(String::new(), revision, false)
            }
            12 => Operation::Compact { revision: self.spec.revision() - self.random.within(0..10) as i64 },
            _ => self.txn(),
        }
    }

    fn txn(&mut self) -> Operation {
        let (a, b) = (self.key(), self.key());
        let target = match self.random.within(0..4) {
            0 => Target::Version(self.random.within(0..3) as i64),
            1 => Target::Create(0),
            2 => Target::Mod(self.spec.revision() - self.random.within(0..10) as i64),
            _ => Target::Value("same".to_string()),
        };
        let how = [How::Equal, How::Greater, How::Less, How::NotEqual][self.random.within(0..4) as usize];
        let compare = vec![Compare { key: a.clone(), how, target }];
        let mut put = |key: &String| match self.put() {
            Operation::Put { value, .. } => Operation::Put { key: key.clone(), value },
            other => other,
        };
        let mut then = vec![put(&a)];
        if a != b {
            then.push(put(&b));
        }
        let nested = Operation::Txn { compare: compare.clone(), then: vec![], otherwise: vec![put(&b)] };
        then.push(self.range("\0".to_string(), 0, false));
        let otherwise = vec![Operation::Delete { key: a, end: String::new() }, nested];
        Operation::Txn { compare, then, otherwise }
    }
}
