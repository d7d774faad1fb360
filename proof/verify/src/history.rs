//! What clients asked and what they were told: the evidence that all judges of client-visible behaviour share.
//!
//! A history is a file of JSON lines, one [`Record`] each, in the order in which things happened: that order is what the
//! judges call "before"; the times are for readers. Every operation has one `invoke` and at most one end: `done` (final),
//! `refused` (certainly no effect, now or later) or `unknown` (may or may not take effect, at any time after its
//! invocation). An operation without an end counts as unknown. Keys and values are text. A history tells everything
//! that was asked of the cluster since its store was empty. The format for others: docs/formats/histories.md.
//!
//! One thing hangs on the times, too: how old the answer to a bounded read may be.
//! Knows nothing of: members' insides, where the operations were carried out.

use serde::{Deserialize, Serialize};

/// One line of a history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// When, in nanoseconds since the start; one clock for all clients. Never falls along a history.
    pub at: u64,
    /// Which client; it has at most one operation under way. 0 in a `crashed` line, where it says nothing.
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
    /// A client asks.
    Invoke {
        /// The member asked.
        member: u64,
        /// What is asked.
        operation: Operation,
        /// How fresh its reads shall be, if the call says so; linearizable otherwise.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        level: Option<Level>,
    },
    /// A final answer.
    Done {
        /// The revision in the answer's header; absent where the answer is an error, which shows none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        revision: Option<i64>,
        /// The answer, or why the store judged the request and left everything as it was.
        answer: Result<Answer, Rejection>,
    },
    /// Certainly no effect.
    Refused {
        /// In the system's words.
        reason: String,
    },
    /// The outcome is open.
    Unknown {
        /// In the system's words.
        reason: String,
    },
    /// The process of a member ended: what its next one shows may be older (fault-model ST17). Written by whoever
    /// ended it; needed only where serializable reads are recorded.
    Crashed {
        /// The member.
        member: u64,
    },
}

/// How fresh the reads of a call shall be. What a request says itself (`serializable`) goes before; writes are what they
/// always are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// At least as new as everything that calls of this session have been told, at whichever member. Whatever is asked
    /// with a session's number belongs to it, writes included: their answers are what its later reads must show.
    Session(u64),
    /// As new as everything that was answered longer ago than this, in nanoseconds by the clock of the history, when the
    /// read was asked. Whoever records adds to the bound that was asked for what a member's clock may have been wrong by
    /// in that time.
    Bounded(u64),
}

/// What may be asked; the fields mean what etcd's do.
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
    /// Forgets history before a revision.
    Compact {
        /// The revision.
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

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compare {
    /// The key.
    pub key: String,
    /// How.
    pub how: How,
    /// What of it, and with what.
    #[serde(flatten)]
    pub target: Target,
}

/// How a condition compares: the key's side stands left.
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

/// What a condition looks at, with its operand. A missing key has version, create and mod revision 0 and no value, with
/// which no comparison holds.
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

/// What is answered.
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
    /// Revision that began this life of the key.
    pub create: i64,
    /// Revision that wrote this version.
    #[serde(rename = "mod")]
    pub modified: i64,
    /// 1 on creation, +1 per put.
    pub version: i64,
}

/// Why the store left everything as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rejection {
    /// The revision is compacted.
    Compacted,
    /// The revision has not been reached.
    Future,
    /// Two puts of one key in a transaction, or another rule on requests: the same whatever the state.
    Invalid,
}
