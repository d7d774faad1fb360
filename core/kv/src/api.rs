//! API: the store's requests and answers, etcd's without their encoding.
//!
//! Field meanings are etcd's; see [etcd rpc.proto] and docs/compatibility.md.
//! Knows nothing of: protobuf, members, terms, leaders, clocks.

use alloc::sync::Arc;
use alloc::vec::Vec;

/// A key; never empty once `check.rs` has accepted the request.
pub type Key = Arc<[u8]>;

pub use crate::revision::Revision;
pub use crate::value::Value;

/// A range of keys: `start` alone when `end` is empty; all keys ≥ `start` when `end` is `[0]`; otherwise `start..end`
/// (empty when `end` ≤ `start`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct KeyRange {
    /// First key.
    pub start: Vec<u8>,
    /// End of the range, as etcd encodes it.
    pub end: Vec<u8>,
}

/// One version of one key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyValue {
    /// The key.
    pub key: Key,
    /// Revision of the put that began this life of the key.
    pub create_revision: Revision,
    /// Revision of the put that made this version.
    pub mod_revision: Revision,
    /// 1 on creation, +1 per put.
    pub version: i64,
    /// The value; empty for `keys_only`.
    pub value: Value,
    /// The lease it is attached to, 0 for none.
    pub lease: i64,
}

/// Sort field of a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SortTarget {
    /// The key's bytes.
    #[default]
    Key,
    /// Version.
    Version,
    /// Create revision.
    Create,
    /// Mod revision.
    Mod,
    /// The value's bytes.
    Value,
}

/// Sort direction of a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SortOrder {
    /// By key ascending; ascending by the target if the target is not the key.
    #[default]
    None,
    /// Ascending.
    Ascend,
    /// Descending.
    Descend,
}

/// Reads keys. [etcd RangeRequest]
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Range {
    /// Keys to read.
    pub keys: KeyRange,
    /// At most this many, 0 for all.
    pub limit: i64,
    /// As of this revision; ≤ 0 for now.
    pub revision: Revision,
    /// Direction.
    pub order: SortOrder,
    /// Sort field.
    pub target: SortTarget,
    /// Leave the values out of the answer.
    pub keys_only: bool,
    /// Return only `count`.
    pub count_only: bool,
    /// Inclusive, 0 is off.
    pub min_mod_revision: Revision,
    /// Inclusive, 0 is off.
    pub max_mod_revision: Revision,
    /// Inclusive, 0 is off.
    pub min_create_revision: Revision,
    /// Inclusive, 0 is off.
    pub max_create_revision: Revision,
}

/// Writes one key. [etcd PutRequest]
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Put {
    /// The key.
    pub key: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
    /// Lease to attach, 0 for none.
    pub lease: i64,
    /// Return the previous pair.
    pub prev_kv: bool,
    /// Keep the value, change the rest.
    pub ignore_value: bool,
    /// Keep the lease.
    pub ignore_lease: bool,
}

impl Put {
    /// The same put, with its bytes where they are.
    #[must_use]
    pub fn as_ref(&self) -> PutRef<'_> {
        let Put { ref key, ref value, lease, prev_kv, ignore_value, ignore_lease } = *self;
        PutRef { key, value, lease, prev_kv, ignore_value, ignore_lease }
    }
}

/// A [`Put`] whose key and value lie elsewhere: in an entry of the log, for example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutRef<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// Lease to attach, 0 for none.
    pub lease: i64,
    /// Return the previous pair.
    pub prev_kv: bool,
    /// Keep the value, change the rest.
    pub ignore_value: bool,
    /// Keep the lease.
    pub ignore_lease: bool,
}

impl PutRef<'_> {
    /// The same put, with a copy of its bytes.
    #[must_use]
    pub fn to_owned(self) -> Put {
        let PutRef { key, value, lease, prev_kv, ignore_value, ignore_lease } = self;
        Put { key: key.to_vec(), value: value.to_vec(), lease, prev_kv, ignore_value, ignore_lease }
    }
}

/// Deletes keys. [etcd DeleteRangeRequest]
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct DeleteRange {
    /// Keys to delete.
    pub keys: KeyRange,
    /// Return the deleted pairs.
    pub prev_kv: bool,
}

/// How a comparison compares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CompareResult {
    /// =
    #[default]
    Equal,
    /// >
    Greater,
    /// <
    Less,
    /// ≠
    NotEqual,
}

/// The field that a comparison tests, with the operand.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CompareTarget {
    /// Version.
    Version(i64),
    /// Create revision.
    Create(Revision),
    /// Mod revision.
    Mod(Revision),
    /// Value, bytewise; false on a missing key for every operator.
    Value(Vec<u8>),
    /// Lease.
    Lease(i64),
}

/// One condition of a transaction; it holds if it holds for every key of the range. [etcd Compare]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Compare {
    /// Keys to test.
    pub keys: KeyRange,
    /// Operator.
    pub result: CompareResult,
    /// Left side and operand.
    pub target: CompareTarget,
}

/// One operation of a transaction's branch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Read.
    Range(Range),
    /// Write.
    Put(Put),
    /// Delete.
    DeleteRange(DeleteRange),
    /// Nested transaction.
    Txn(Txn),
}

/// If all conditions hold then `success`, else `failure`, atomically. [etcd TxnRequest]
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Txn {
    /// Conditions, all evaluated against the state before the whole transaction.
    pub compare: Vec<Compare>,
    /// Taken when all hold.
    pub success: Vec<Operation>,
    /// Taken otherwise.
    pub failure: Vec<Operation>,
}

/// A request that is replicated through the log. `command.rs` encodes it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Write one key.
    Put(Put),
    /// Delete keys.
    DeleteRange(DeleteRange),
    /// A transaction.
    Txn(Txn),
    /// Forget history before this revision.
    Compact(Revision),
}

/// A read, served without a log entry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Query {
    /// A range read.
    Range(Range),
    /// A transaction of reads only (no put, delete or nested transaction in either branch).
    Txn(Txn),
}

/// Answer to a range read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeResult {
    /// The pairs, in the requested order.
    pub kvs: Vec<KeyValue>,
    /// More pairs matched than the limit allows.
    pub more: bool,
    /// Keys in the range before filters and limit.
    pub count: i64,
    /// The store's revision at the time of the read, whatever revision was requested. Inside a transaction it is the
    /// revision before it until the transaction has changed something, the new one after that.
    pub revision: Revision,
}

/// Answer to one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To a range read.
    Range(RangeResult),
    /// To a put.
    Put {
        /// The previous pair, if requested.
        prev_kv: Option<KeyValue>,
    },
    /// To a delete.
    DeleteRange {
        /// How many keys were deleted.
        deleted: i64,
        /// The deleted pairs, if requested.
        prev_kvs: Vec<KeyValue>,
        /// The store's revision after the delete; see [`RangeResult::revision`].
        revision: Revision,
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

/// An answer with the revision its header shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The store's revision after the command, or at the read. A put inside a transaction has this revision, too.
    pub revision: Revision,
    /// The answer itself.
    pub answer: Answer,
}

/// Why the store refuses a request. Each is one of etcd's errors unless it says otherwise; `kattu-server` has their
/// texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Error {
    /// "key is not provided"
    EmptyKey,
    /// "key not found": `ignore_value` or `ignore_lease` on an absent key, or an empty operation
    KeyNotFound,
    /// "value is provided"
    ValueProvided,
    /// "lease is provided"
    LeaseProvided,
    /// "too many operations in txn request"
    TooManyOps,
    /// "duplicate key given in txn request"
    DuplicateKey,
    /// "invalid sort option"
    InvalidSort,
    /// "requested lease not found"
    LeaseNotFound,
    /// "mvcc: required revision has been compacted"
    Compacted,
    /// "mvcc: required revision is a future revision"
    FutureRevision,
    /// The requested pairs have more bytes than one answer may have; not an error of etcd
    AnswerTooLarge,
    /// The ranges of the request visit more keys than one request may; not an error of etcd
    TooMuchWork,
}
