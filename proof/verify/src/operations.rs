//! Operations: each invocation with its end, and when one came before another.
//!
//! In:    the records of a history.
//! Out:   one [`Operation`] per invocation; or the error that makes the records no history.
//! Rule:  places in the history are time. `a` came before `b` if `a`'s end stands before `b`'s invocation; an operation
//!        without a final end never came before anything.
//! Knows nothing of: the store's state.

use crate::history::{Answer, Level, Operation as Asked, Record, Rejection, What};
use std::collections::{BTreeMap, HashMap};

/// A place in the history: the number of a record, from 0.
pub type Position = usize;

/// Later than everything.
pub const NEVER: Position = usize::MAX;

/// One operation, from its invocation to its end.
#[derive(Clone, Copy, Debug)]
pub struct Operation<'a> {
    /// Its number in the history.
    pub id: u64,
    /// Its client.
    pub client: u32,
    /// The member asked.
    pub member: u64,
    /// What was asked.
    pub asked: &'a Asked,
    /// The level of its reads, if the call set one.
    pub level: Option<Level>,
    /// When it was invoked, in nanoseconds.
    pub invoked_at: u64,
    /// Where it was invoked.
    pub invoked: Position,
    /// Where it ended; [`NEVER`] while its outcome is open.
    pub ended: Position,
    /// When it ended, in nanoseconds; the end of time while its outcome is open.
    pub ended_at: u64,
    /// How it ended.
    pub end: End<'a>,
}

/// How fresh an answer must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// At least as new as every answer before it was asked.
    Linearizable,
    /// At least as new as every answer to a reader before it was asked.
    AtLeast {
        /// The reader's number.
        reader: u64,
    },
    /// At least as new as every answer given more than this many nanoseconds before.
    Bounded(u64),
    /// Some state that existed.
    Serializable,
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End<'a> {
    /// With a final answer, at this revision.
    Done(i64, &'a Answer),
    /// The store rejected the request, without any effect.
    Rejected(Rejection),
    /// With certainly no effect.
    Refused,
    /// Open: an effect at any time after the invocation, or never.
    Unknown,
}

/// Records that form no history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The record at fault, counted from 1: in a file, its line.
    pub line: usize,
    /// What is wrong with it.
    pub what: String,
}

/// Pairs invocations with ends, ordered by invocation.
///
/// # Errors
/// The first record that does not fit.
pub fn paired(history: &[Record]) -> Result<Vec<Operation<'_>>, Malformed> {
    let mut operations: Vec<Operation<'_>> = Vec::with_capacity(history.len() / 2 + 1);
    let mut numbers: HashMap<u64, usize> = HashMap::with_capacity(history.len() / 2 + 1);
    let mut under_way: BTreeMap<u32, u64> = BTreeMap::new();
    let mut now = 0;
    for (place, record) in history.iter().enumerate() {
        let malformed = |what: String| Malformed { line: place + 1, what };
        if record.at < now {
            return Err(malformed(format!("time goes back from {now} to {}", record.at)));
        }
        now = record.at;
        let end = match &record.what {
            What::Crashed { .. } => continue,
            What::Invoke { member, operation, level } => {
                if let Some(other) = under_way.insert(record.client, record.id) {
                    let client = record.client;
                    return Err(malformed(format!("client {client} has operation {other} under way")));
                }
                if numbers.insert(record.id, operations.len()).is_some() {
                    return Err(malformed(format!("operation {} is invoked twice", record.id)));
                }
                operations.push(Operation {
                    id: record.id,
                    client: record.client,
                    member: *member,
                    asked: operation,
                    level: *level,
                    invoked_at: record.at,
                    invoked: place,
                    ended: NEVER,
                    ended_at: u64::MAX,
                    end: End::Unknown,
                });
                continue;
            }
            What::Done { revision: Some(revision), answer: Ok(answer) } => End::Done(*revision, answer),
            What::Done { revision: None, answer: Ok(_) } => {
                return Err(malformed("an answer without a revision".to_string()));
            }
            What::Done { answer: Err(rejection), .. } => End::Rejected(*rejection),
            What::Refused { .. } => End::Refused,
            What::Unknown { .. } => End::Unknown,
        };
        if under_way.remove(&record.client) != Some(record.id) {
            let (id, client) = (record.id, record.client);
            return Err(malformed(format!(
                "client {client} ends operation {id}, which it has not under way"
            )));
        }
        let operation = &mut operations[numbers[&record.id]];
        if let End::Done(_, answer) = end
            && !fits(operation.asked, answer)
        {
            return Err(malformed(format!("operation {} is answered by {answer:?}", record.id)));
        }
        operation.end = end;
        if end != End::Unknown {
            (operation.ended, operation.ended_at) = (place, record.at);
        }
    }
    Ok(operations)
}

/// Whether the answer has the shape of the question.
fn fits(asked: &Asked, answer: &Answer) -> bool {
    match (asked, answer) {
        (Asked::Put { .. }, Answer::Put)
        | (Asked::Range { .. }, Answer::Range { .. })
        | (Asked::Delete { .. }, Answer::Delete { .. })
        | (Asked::Compact { .. }, Answer::Compact) => true,
        (Asked::Txn { then, otherwise, .. }, Answer::Txn { succeeded, answers }) => {
            let branch = if *succeeded { then } else { otherwise };
            branch.len() == answers.len()
                && branch.iter().zip(answers).all(|(asked, answer)| fits(asked, answer))
        }
        _ => false,
    }
}

impl Operation<'_> {
    /// The header's revision of a final answer.
    #[must_use]
    pub fn revision(&self) -> Option<i64> {
        match self.end {
            End::Done(revision, _) => Some(revision),
            End::Rejected(_) | End::Refused | End::Unknown => None,
        }
    }

    /// How fresh its answer must be.
    #[must_use]
    pub fn freshness(&self) -> Freshness {
        match self.level {
            _ if is_serializable(self.asked) => Freshness::Serializable,
            _ if may_write(self.asked) => Freshness::Linearizable,
            None => Freshness::Linearizable,
            Some(Level::AtLeast { reader }) => Freshness::AtLeast { reader },
            Some(Level::Bounded(age)) => Freshness::Bounded(age),
        }
    }

    /// The reader that receives its answer.
    #[must_use]
    pub fn reader(&self) -> Option<u64> {
        match self.level {
            Some(Level::AtLeast { reader }) => Some(reader),
            Some(Level::Bounded(_)) | None => None,
        }
    }

    /// Whether its answer shows that it changed keys, so that the header's revision is its own.
    #[must_use]
    pub fn has_written(&self) -> bool {
        matches!(self.end, End::Done(_, answer) if has_written(answer))
    }
}

/// Whether any past state may be served: a serializable read, or a transaction of nothing else, as in etcd.
#[must_use]
pub fn is_serializable(asked: &Asked) -> bool {
    match asked {
        Asked::Range { serializable, .. } => *serializable,
        Asked::Txn { then, otherwise, .. } => {
            let mut operations = then.iter().chain(otherwise);
            operations.all(|operation| matches!(operation, Asked::Range { serializable: true, .. }))
        }
        Asked::Put { .. } | Asked::Delete { .. } | Asked::Compact { .. } => false,
    }
}

/// Whether an answer shows a change of keys.
#[must_use]
pub fn has_written(answer: &Answer) -> bool {
    match answer {
        Answer::Put => true,
        Answer::Delete { deleted } => *deleted > 0,
        Answer::Txn { answers, .. } => answers.iter().any(has_written),
        Answer::Range { .. } | Answer::Compact => false,
    }
}

/// Whether an operation may change keys or compact history.
#[must_use]
pub(crate) fn may_write(asked: &Asked) -> bool {
    match asked {
        Asked::Put { .. } | Asked::Delete { .. } | Asked::Compact { .. } => true,
        Asked::Txn { then, otherwise, .. } => then.iter().chain(otherwise).any(may_write),
        Asked::Range { .. } => false,
    }
}
