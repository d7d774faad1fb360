//! Outlook: the later reads of a key, and so what an open write may or must do to it.
//!
//! The next read of a key shows its version and create revision. If the create revision is the present one, the open
//! puts until then are counted: the versions that no answered put makes are missing. If it is later, or the key is
//! gone, a delete is missing.
//! Knows nothing of: the order of attempts, conditions.

use crate::history::{Answer, Operation as Asked};
use crate::operations::{End, Operation};
use crate::spec::{Spec, covers};
use std::collections::HashMap;

/// What a read of one key shows: nothing, or (create, mod, version).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Seen {
    as_of: i64,
    pair: Option<(i64, i64, i64)>,
}

/// How an open write agrees with the next read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Prospect {
    /// The next read needs one like it.
    Missing,
    /// The next read neither needs nor excludes it.
    Open,
    /// It contradicts the next read.
    Wrong,
}

/// The reads of keys, and the answered writes to them.
pub(super) struct Outlook<'a> {
    seen: HashMap<&'a str, Vec<Seen>>,
    /// Revisions of answered puts; ascending.
    puts: HashMap<&'a str, Vec<i64>>,
    /// Revisions and ranges of answered deletes; ascending.
    deletes: Vec<(i64, &'a str, &'a str)>,
}

impl<'a> Outlook<'a> {
    pub(super) fn of(operations: &[Operation<'a>]) -> Outlook<'a> {
        let mut outlook = Outlook { seen: HashMap::new(), puts: HashMap::new(), deletes: Vec::new() };
        for operation in operations {
            if let End::Done(revision, answer) = operation.end {
                outlook.note(operation.asked, answer, revision, false);
            }
        }
        outlook.deletes.sort_unstable();
        outlook.puts.values_mut().for_each(|puts| puts.sort_unstable());
        for seen in outlook.seen.values_mut() {
            seen.sort_unstable();
            seen.dedup();
        }
        outlook
    }

    fn note(&mut self, asked: &'a Asked, answer: &'a Answer, revision: i64, in_txn: bool) {
        match (asked, answer) {
            (Asked::Put { key, .. }, _) => self.puts.entry(key).or_default().push(revision),
            (Asked::Delete { key, end }, Answer::Delete { deleted }) if *deleted > 0 => {
                self.deletes.push((revision, key, end));
            }
            // A read inside a transaction may show the state before or after it.
            (Asked::Range { revision: wanted, key, end, .. }, Answer::Range { kvs, count, .. })
                if !in_txn =>
            {
                let as_of = if *wanted > 0 { *wanted } else { revision };
                for pair in kvs {
                    let pair_seen = Some((pair.create, pair.modified, pair.version));
                    self.seen.entry(&pair.key).or_default().push(Seen { as_of, pair: pair_seen });
                }
                if end.is_empty() && *count == 0 {
                    self.seen.entry(key).or_default().push(Seen { as_of, pair: None });
                }
            }
            (Asked::Txn { then, otherwise, .. }, Answer::Txn { succeeded, answers }) => {
                let branch = if *succeeded { then } else { otherwise };
                for (asked, answer) in branch.iter().zip(answers) {
                    self.note(asked, answer, revision, true);
                }
            }
            _ => {}
        }
    }

    /// How this write fits at this revision, given the present store.
    pub(super) fn prospect(&self, spec: &Spec, asked: &Asked, revision: i64) -> Prospect {
        let (key, is_put) = match asked {
            Asked::Put { key, .. } => (key.as_str(), true),
            Asked::Delete { key, end } if end.is_empty() => (key.as_str(), false),
            _ => return Prospect::Open,
        };
        let Some(seen) = self.seen.get(key) else { return Prospect::Open };
        let Some(next) = seen.get(seen.partition_point(|seen| seen.as_of < revision)) else {
            return Prospect::Open;
        };
        let now = spec.life(key);
        match (next.pair, now) {
            // The key is not deleted before the read.
            (Some((create, modified, version)), now) if create < revision => {
                let Some((_, present)) = now.filter(|(begun, _)| *begun == create) else {
                    return Prospect::Wrong;
                };
                let missing = version - present - self.puts_between(key, revision, modified);
                if is_put && missing > 0 { Prospect::Missing } else { Prospect::Wrong }
            }
            // The key is created here.
            (Some((create, ..)), _) if create == revision => {
                if is_put {
                    Prospect::Open
                } else {
                    Prospect::Wrong
                }
            }
            // The key exists and must be deleted first.
            (pair, Some(_)) if !is_put => {
                let until = pair.map_or(next.as_of, |(create, ..)| create);
                if self.is_deleted_between(key, revision, until) { Prospect::Open } else { Prospect::Missing }
            }
            _ => Prospect::Open,
        }
    }

    fn puts_between(&self, key: &str, first: i64, last: i64) -> i64 {
        let Some(puts) = self.puts.get(key) else { return 0 };
        let until = |revision: i64| puts.partition_point(|put| *put < revision) as i64;
        until(last + 1) - until(first)
    }

    fn is_deleted_between(&self, key: &str, first: i64, last: i64) -> bool {
        let from = self.deletes.partition_point(|(revision, ..)| *revision < first);
        let deletes = self.deletes[from..].iter().take_while(|(revision, ..)| *revision <= last);
        deletes.into_iter().any(|(_, start, end)| covers(start, end, key))
    }
}
