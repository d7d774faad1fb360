//! Histories: the clients' requests and answers, the evidence that all judges of client-visible behaviour share.
//!
//! A history is a file of JSON lines, one [`Record`] each, in the order of events: that order is what the judges call
//! "before"; the times are for readers. Every operation has one `invoke` and at most one end: `done` (final), `refused`
//! (certainly no effect, now or later) or `unknown` (may or may not take effect, at any time after its invocation). An
//! operation without an end counts as unknown. Keys and values are text. A history holds every request to the cluster
//! since its store was empty. The format: docs/formats/histories.md.
//!
//! Only the age of answers to bounded reads is judged by the times.
//! Knows nothing of: members' internal state, the system under test.

use serde::{Deserialize, Serialize};

/// One line of a history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// When, in nanoseconds since the start; one clock for all clients. Never falls along a history.
    pub at: u64,
    /// The client; it has at most one operation under way. 0 in a `crashed` line, without meaning.
    pub client: u32,
    /// Number of the operation: the same in its invocation and its end, used once. 0 in a `crashed` line.
    pub id: u64,
    /// What happened.
    #[serde(flatten)]
    pub what: What,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "lowercase")]
pub enum What {
    /// A client sends a request.
    Invoke {
        /// The member asked.
        member: u64,
        /// The request.
        operation: Operation,
        /// How fresh its reads must be, if the call sets a level; linearizable otherwise.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        level: Option<Level>,
    },
    /// A final answer.
    Done {
        /// The revision in the answer's header; absent where the answer is an error, which shows none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        revision: Option<i64>,
        /// The answer, or why the store rejected the request without any effect.
        answer: Result<Answer, Rejection>,
    },
    /// Certainly no effect.
    Refused {
        /// The system's error text.
        reason: String,
    },
    /// The outcome is open.
    Unknown {
        /// The system's error text.
        reason: String,
    },
    /// A member's process ended: its next one may show an older state (fault-model ST17). Written by the program that
    /// ended the process; needed only where serializable reads are recorded.
    Crashed {
        /// The member whose process ended.
        member: u64,
    },
}

/// How fresh the reads of a call must be. The request's own `serializable` takes precedence; writes are not affected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// At least as new as every answer to calls of a reader, at any member.
    AtLeast {
        /// The reader's number. All calls with it are this reader's, writes included: its later reads must show their
        /// answers.
        reader: u64,
    },
    /// At least as new as every answer older than this when the read was invoked, in nanoseconds by the clock of the
    /// history. The recorder adds to the requested bound the error that a member's clock may have in that time.
    Bounded(u64),
}

/// A request; the fields mean the same as in etcd.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum Operation {
    /// Writes one key.
    Put {
        /// The key.
        key: String,
        /// The value.
        value: String,
    },
    /// Reads keys.
    Range {
        /// First key.
        key: String,
        /// End of the range as etcd encodes it: empty for `key` alone, `"\0"` for everything from `key` on.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        end: String,
        /// As of this revision; 0 for now.
        #[serde(default)]
        revision: i64,
        /// At most this many pairs; 0 for all.
        #[serde(default)]
        limit: i64,
        /// Only the count is wanted.
        #[serde(default)]
        count_only: bool,
        /// Any state that existed will do.
        #[serde(default)]
        serializable: bool,
    },
    /// Deletes keys.
    Delete {
        /// First key.
        key: String,
        /// End of the range, as for a range read.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        end: String,
    },
    /// If all conditions hold then one list, else the other, atomically.
    Txn {
        /// Conditions, against the state before.
        compare: Vec<Compare>,
        /// Taken when all hold: puts, ranges, deletes, transactions.
        then: Vec<Operation>,
        /// Taken otherwise.
        #[serde(rename = "else")]
        otherwise: Vec<Operation>,
    },
    /// Compacts the history before a revision.
    Compact {
        /// Revisions below this one are dropped.
        revision: i64,
    },
}

impl Operation {
    /// A linearizable read of everything there is now.
    #[must_use]
    pub fn everything() -> Operation {
        Operation::Range {
            key: "\0".to_string(),
            end: "\0".to_string(),
            revision: 0,
            limit: 0,
            count_only: false,
            serializable: false,
        }
    }
}

/// A condition of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compare {
    /// The key.
    pub key: String,
    /// The operator.
    pub how: How,
    /// The compared attribute, and the operand.
    #[serde(flatten)]
    pub target: Target,
}

/// The operator of a condition: the key's side stands left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum How {
    /// Equal.
    #[serde(rename = "=")]
    Equal,
    /// Greater.
    #[serde(rename = ">")]
    Greater,
    /// Less.
    #[serde(rename = "<")]
    Less,
    /// Not equal.
    #[serde(rename = "!=")]
    NotEqual,
}

/// What a condition compares, with the operand. A missing key has version, create and mod revision 0 and no value:
/// comparisons of its value never hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "target", content = "operand", rename_all = "lowercase")]
pub enum Target {
    /// Its value.
    Value(String),
    /// Its version.
    Version(i64),
    /// Its create revision.
    Create(i64),
    /// Its mod revision.
    Mod(i64),
}

/// An answer to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "to", rename_all = "lowercase")]
pub enum Answer {
    /// To a put.
    Put,
    /// To a range read.
    Range {
        /// The pairs, ascending by key.
        kvs: Vec<Pair>,
        /// More matched than the limit let through.
        more: bool,
        /// Keys in the range before the limit.
        count: i64,
    },
    /// To a delete.
    Delete {
        /// Keys deleted.
        deleted: i64,
    },
    /// To a transaction.
    Txn {
        /// Whether all conditions held.
        succeeded: bool,
        /// One per operation of the branch taken.
        answers: Vec<Answer>,
    },
    /// To a compaction.
    Compact,
}

/// One version of one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    /// The key.
    pub key: String,
    /// The value.
    pub value: String,
    /// Revision that created the key.
    pub create: i64,
    /// Revision that wrote this version.
    #[serde(rename = "mod")]
    pub modified: i64,
    /// 1 on creation, +1 per put.
    pub version: i64,
}

/// Why the store rejected a request and did nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rejection {
    /// The revision is compacted.
    Compacted,
    /// The revision has not been reached.
    Future,
    /// Invalid in any state: two puts of one key in a transaction, or a breach of another rule.
    Invalid,
}
