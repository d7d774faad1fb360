//! Entries: the elements of the log.
//!
//! An entry is its identity, a few facts about it, and its record: the bytes that are the same on every wire and on
//! every disk. The core never reads those bytes; it asks the [`RecordEncoder`] for them once, on the leader, when the
//! entry gets its index. [architecture §4]
//! Knows nothing of: the layout of a record.

use crate::bytes::SharedBytes;
use crate::types::{EntryId, GroupId, Stamp};

/// The purpose of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// The first entry of a leader's term; empty. [Ongaro14 §6.4]
    Noop,
    /// A command for the replica's state.
    Command,
    /// A configuration of the group.
    Config,
}

/// The form in which this member holds an entry's payload. The identity never depends on it. [replication-protocols
/// §1.3]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// All of it.
    Whole,
    /// One erasure-coded fragment: number `shard` of a split into `data` fragments.
    Shard {
        /// The fragment's number.
        shard: u8,
        /// How many fragments rebuild the payload.
        data: u8,
    },
    /// Only the identity is here: the payload is damaged, or was never received.
    Missing,
}

/// Everything about an entry but its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EntryHead {
    /// The term of its leader, and its index.
    pub id: EntryId,
    /// Its purpose.
    pub kind: EntryKind,
    /// How its payload is held here.
    pub form: Form,
    /// The log's clock when it was created.
    pub stamp: Stamp,
}

/// One entry of the log. Cloning shares the bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Everything but the payload.
    pub head: EntryHead,
    record: SharedBytes,
    payload_start: usize,
}

impl Entry {
    /// An entry whose `record` holds its payload from `payload_start` to the end.
    ///
    /// # Panics
    /// If `payload_start` lies beyond the record.
    #[must_use]
    pub fn new(head: EntryHead, record: SharedBytes, payload_start: usize) -> Entry {
        assert!(payload_start <= record.len(), "payload at {payload_start} of {} bytes", record.len());
        Entry { head, record, payload_start }
    }

    /// The term of its leader, and its index.
    #[must_use]
    pub fn id(&self) -> EntryId {
        self.head.id
    }

    /// The bytes that go to disks and peers.
    #[must_use]
    pub fn record(&self) -> &SharedBytes {
        &self.record
    }

    /// The command itself.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.record[self.payload_start..]
    }

    /// Size on disk and wire, in bytes; what every byte limit counts.
    #[must_use]
    pub fn len(&self) -> usize {
        self.record.len()
    }

    /// Whether the record is empty, which only test encoders produce.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.record.is_empty()
    }
}

/// Lays out a new entry's record and checksums it. Passed in by the shell; called once per entry in the whole cluster,
/// on the leader that gives the entry its index.
#[derive(Clone, Copy)]
pub struct RecordEncoder(pub fn(group: GroupId, head: EntryHead, payload: &[u8]) -> Entry);

impl core::fmt::Debug for RecordEncoder {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("RecordEncoder")
    }
}

impl PartialEq for RecordEncoder {
    fn eq(&self, _: &RecordEncoder) -> bool {
        true // one process has one encoder; a function's address says nothing about state
    }
}

impl Eq for RecordEncoder {}

impl core::hash::Hash for RecordEncoder {
    fn hash<H: core::hash::Hasher>(&self, _: &mut H) {}
}

/// Decides whether this member can apply the payload of an entry that a leader sends. Passed in by the shell, as the
/// core does not know what commands mean. An unreadable entry must not get into the log: it would end this member, and
/// again at every start.
#[derive(Clone, Copy)]
pub struct PayloadReader(pub fn(kind: EntryKind, payload: &[u8]) -> bool);

impl PayloadReader {
    /// Accepts every payload.
    pub const CREDULOUS: PayloadReader = PayloadReader(|_, _| true);
}

impl core::fmt::Debug for PayloadReader {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("PayloadReader")
    }
}

impl PartialEq for PayloadReader {
    fn eq(&self, _: &PayloadReader) -> bool {
        true // as with encoders: one process has one reader
    }
}

impl Eq for PayloadReader {}

impl core::hash::Hash for PayloadReader {
    fn hash<H: core::hash::Hasher>(&self, _: &mut H) {}
}
