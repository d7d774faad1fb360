//! The clients' operations: a seeded mix over few keys, for conflicts, and over keys written once, for losses.
//!
//! Knows nothing of: members, answers beyond the revision last seen.

use kattu_random::Random;
use kattu_verify::history::{Compare, How, Operation, Target};

/// Parameters of a trial's load.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Clients, each with one operation at a time.
    pub clients: u32,
    /// Keys that all clients write.
    pub hot_keys: u64,
    /// Longest pause of a client between an answer and its next operation.
    pub pause_ms_max: u64,
    /// Bytes of a usual value, and of one in fifty.
    pub value_bytes: (usize, usize),
    /// Compactions per thousand operations.
    pub compact: u32,
}

impl Shape {
    /// The load of a chaos trial.
    pub fn of_storm(random: &mut Random) -> Shape {
        Shape {
            clients: random.within(4..10) as u32,
            hot_keys: random.within(3..24),
            pause_ms_max: random.within(2..14),
            value_bytes: (random.within(16..200) as usize, 16 << 10),
            compact: *random.pick(&[0, 1, 3]),
        }
    }
}

/// One client's operations.
#[derive(Debug)]
pub struct Questions {
    client: u32,
    asked: u64,
    random: Random,
    shape: Shape,
}

impl Questions {
    /// Those of one client, decided by the seed.
    pub fn new(seed: u64, client: u32, shape: &Shape) -> Questions {
        let random = Random::of_part(seed, &format!("client {client}"));
        Questions { client, asked: 0, random, shape: shape.clone() }
    }

    /// How long to wait before the next one, in milliseconds.
    pub(crate) fn pause_ms(&mut self) -> u64 {
        self.random.within(0..self.shape.pause_ms_max + 1)
    }

    /// The next operation of a client that has seen `revision`.
    pub fn next(&mut self, revision: i64) -> Operation {
        self.asked += 1;
        if self.random.per_mille(self.shape.compact) {
            // Mostly a revision that can be compacted; now and then one that is compacted already, or in the future.
            let back = self.random.within(0..40) as i64;
            return Operation::Compact { revision: (revision - back + 2).max(1) };
        }
        match self.random.within(0..100) {
            0..25 => self.put_once(),
            25..48 => Operation::Put { key: self.hot_key(), value: self.value() },
            48..64 => self.get(false, 0),
            64..70 => self.get(true, 0),
            70..73 => {
                let back = self.random.within(0..60) as i64;
                self.get(false, (revision - back + 1).max(1))
            }
            73..78 => self.range(),
            78..85 => Operation::Delete { key: self.hot_key(), end: String::new() },
            85..86 => Operation::Delete { key: "hot/0".into(), end: "hot/1".into() },
            86..94 => self.compare_and_set(revision),
            _ => self.several_keys(),
        }
    }

    fn hot_key(&mut self) -> String {
        format!("hot/{:02}", self.random.within(0..self.shape.hot_keys))
    }

    /// A value; all values of a trial differ.
    fn value(&mut self) -> String {
        let (usual, large) = self.shape.value_bytes;
        let bytes = if self.random.per_mille(20) { large } else { usual };
        let mut value = format!("{}-{}-{}-", self.client, self.asked, self.random.within(0..1000));
        value.extend(std::iter::repeat_n('x', bytes.saturating_sub(value.len())));
        value
    }

    fn put_once(&mut self) -> Operation {
        Operation::Put { key: format!("once/{:02}/{:07}", self.client, self.asked), value: self.value() }
    }

    fn get(&mut self, serializable: bool, revision: i64) -> Operation {
        range(self.hot_key(), String::new(), revision, 0, serializable)
    }

    fn range(&mut self) -> Operation {
        let limit = *self.random.pick(&[0, 0, 1, 5]);
        let serializable = self.random.per_mille(300);
        let mut range = range("hot/".into(), "hot0".into(), 0, limit, serializable);
        if let Operation::Range { count_only, .. } = &mut range {
            *count_only = self.random.per_mille(100);
        }
        range
    }

    /// Changes a key if it is as it was some revisions ago; else reads it.
    fn compare_and_set(&mut self, revision: i64) -> Operation {
        let key = self.hot_key();
        let (how, target) = match self.random.within(0..5) {
            0 => (How::Equal, Target::Version(0)),
            1 => (How::Less, Target::Mod(revision)),
            2 => (How::Greater, Target::Version(self.random.within(0..4) as i64)),
            3 => (How::NotEqual, Target::Value("nothing".into())),
            _ => (How::Equal, Target::Create(self.random.within(0..revision.max(1) as u64 + 1) as i64)),
        };
        Operation::Txn {
            compare: vec![Compare { key: key.clone(), how, target }],
            then: vec![Operation::Put { key: key.clone(), value: self.value() }],
            otherwise: vec![range(key, String::new(), 0, 0, false)],
        }
    }

    /// Changes several keys at once, and reads around that.
    fn several_keys(&mut self) -> Operation {
        let mut keys: Vec<u64> = (0..self.shape.hot_keys).collect();
        self.random.shuffle(&mut keys);
        keys.truncate(3);
        let value = self.value();
        let mut then = vec![range("hot/".into(), "hot0".into(), 0, 0, false)];
        then.extend(keys.iter().enumerate().map(|(place, key)| {
            let key = format!("hot/{key:02}");
            match place {
                2 => Operation::Delete { key, end: String::new() },
                _ => Operation::Put { key, value: format!("{value}{place}") },
            }
        }));
        then.push(range("hot/".into(), "hot0".into(), 0, 0, false));
        Operation::Txn { compare: Vec::new(), then, otherwise: Vec::new() }
    }
}

fn range(key: String, end: String, revision: i64, limit: i64, serializable: bool) -> Operation {
    Operation::Range { key, end, revision, limit, count_only: false, serializable }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_same_seed_asks_the_same_and_every_kind_is_asked() {
        let shape = Shape { compact: 3, ..Shape::of_storm(&mut Random::new(1)) };
        let ask = |seed| {
            let mut questions = Questions::new(seed, 3, &shape);
            (0..2000).map(|revision| questions.next(revision)).collect::<Vec<_>>()
        };
        assert_eq!(ask(5), ask(5));
        assert_ne!(ask(5), ask(6));
        let kinds: BTreeSet<&str> = ask(5)
            .iter()
            .map(|operation| match operation {
                Operation::Put { .. } => "put",
                Operation::Range { serializable: true, .. } => "serializable",
                Operation::Range { revision: 0, .. } => "range",
                Operation::Range { .. } => "history",
                Operation::Delete { .. } => "delete",
                Operation::Txn { .. } => "txn",
                Operation::Compact { .. } => "compact",
            })
            .collect();
        assert_eq!(kinds.len(), 7, "{kinds:?}");
    }

    #[test]
    fn no_two_values_are_alike() {
        let shape = Shape::of_storm(&mut Random::new(2));
        let mut values = BTreeSet::new();
        for client in 0..3 {
            let mut questions = Questions::new(9, client, &shape);
            for _ in 0..2000 {
                if let Operation::Put { value, .. } = questions.next(10) {
                    assert!(values.insert(value));
                }
            }
        }
    }
}
