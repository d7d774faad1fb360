//! Entries: the elements of the log.
//!
//! An entry is an identity and a body. Votes, hints and the log's rules ask for the identity only, which every member
//! has; a caller that wants the payload gets an [`Option`], and its code says what happens on a member that holds only a
//! part of it. Both are in the entry's record: the bytes that are the same on every wire and on every disk. The core
//! never reads those bytes; it asks the [`RecordEncoder`] for them once, on the leader, when the entry gets its index.
//! [architecture §4]
//! Knows nothing of: the layout of a record.

use crate::bytes::SharedBytes;
use crate::types::{EntryId, GroupId, Stamp};
use alloc::vec::Vec;

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

/// The form in which a record holds its entry's payload. The identity never depends on it. [replication-protocols §1.3]
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

/// The part of an entry's payload that is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Body<'a> {
    /// All of it.
    Whole(&'a [u8]),
    /// One erasure-coded fragment: number `shard` of a split into `data` fragments.
    Shard {
        /// The fragment's number.
        shard: u8,
        /// How many fragments rebuild the payload.
        data: u8,
        /// The fragment.
        bytes: &'a [u8],
    },
    /// Nothing.
    Missing,
}

impl<'a> Body<'a> {
    /// The form that this body has.
    #[must_use]
    pub fn form(self) -> Form {
        match self {
            Body::Whole(_) => Form::Whole,
            Body::Shard { shard, data, .. } => Form::Shard { shard, data },
            Body::Missing => Form::Missing,
        }
    }

    /// The bytes that a record of this body carries.
    #[must_use]
    pub fn bytes(self) -> &'a [u8] {
        match self {
            Body::Whole(bytes) | Body::Shard { bytes, .. } => bytes,
            Body::Missing => &[],
        }
    }
}

/// The identity of an entry: the same on every member, whatever each holds of the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EntryHead {
    /// The term of its leader, and its index.
    pub id: EntryId,
    /// Its purpose.
    pub kind: EntryKind,
    /// The log's clock when it was created.
    pub stamp: Stamp,
}

/// One entry of the log: its identity, and a record with what is here of its payload. Cloning shares the bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Everything but the payload.
    pub head: EntryHead,
    record: SharedBytes,
    payload_start: u32,
    form: Form,
}

/// A put moves its entry by value through log, record, batch and apply, so an entry fits one cache line.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Entry>() <= 64, "an entry has outgrown its cache line");

impl Entry {
    /// An entry whose `record` holds its whole payload, from `payload_start` to the end.
    ///
    /// # Panics
    /// If `payload_start` lies beyond the record.
    #[must_use]
    pub fn new(head: EntryHead, record: SharedBytes, payload_start: usize) -> Entry {
        Entry::in_form(Form::Whole, head, record, payload_start)
    }

    /// An entry whose `record` holds its payload in this form, from `payload_start` to the end.
    ///
    /// # Panics
    /// If `payload_start` lies beyond the record, or 4 GiB into it.
    #[must_use]
    pub fn in_form(form: Form, head: EntryHead, record: SharedBytes, payload_start: usize) -> Entry {
        assert!(payload_start <= record.len(), "payload at {payload_start} of {} bytes", record.len());
        let payload_start = u32::try_from(payload_start).expect("a record's header is short");
        Entry { head, record, payload_start, form }
    }

    /// The same entry, its record in a buffer of its own: an entry that stays long must not pin the buffer that it
    /// came in.
    #[must_use]
    pub fn unshared(&self) -> Entry {
        Entry { record: SharedBytes::from(self.record.to_vec()), ..*self }
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

    /// What is here of the payload.
    #[must_use]
    pub fn body(&self) -> Body<'_> {
        let bytes = &self.record[self.payload_start as usize..];
        match self.form {
            Form::Whole => Body::Whole(bytes),
            Form::Shard { shard, data } => Body::Shard { shard, data, bytes },
            Form::Missing => Body::Missing,
        }
    }

    /// The command itself, if all of it is here.
    #[must_use]
    pub fn payload(&self) -> Option<&[u8]> {
        match self.body() {
            Body::Whole(payload) => Some(payload),
            Body::Shard { .. } | Body::Missing => None,
        }
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

/// Appends a new entry's record, whole and with its checksum, to others. Returns how many bytes of it stand before the
/// payload, which is its rest. Passed in by the shell; called once per entry in the whole cluster, on the leader that gives
/// the entry its index.
#[derive(Clone, Copy)]
pub struct RecordEncoder(
    pub fn(group: GroupId, head: EntryHead, payload: &[u8], records: &mut Vec<u8>) -> usize,
);

impl RecordEncoder {
    /// The record is the payload and nothing else: for worlds that keep entries in memory.
    pub const BARE: RecordEncoder = RecordEncoder(|_, _, payload, records| {
        records.extend_from_slice(payload);
        0
    });

    /// One entry in a buffer of its own.
    #[must_use]
    pub fn entry(self, group: GroupId, head: EntryHead, payload: &[u8]) -> Entry {
        let mut record = Vec::with_capacity(payload.len() + RECORD_ROOM);
        let payload_start = (self.0)(group, head, payload, &mut record);
        Entry::new(head, record.into(), payload_start)
    }
}

/// Room for what stands before a payload in its record.
pub(crate) const RECORD_ROOM: usize = 48;

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
    pub(crate) const CREDULOUS: PayloadReader = PayloadReader(|_, _| true);

    /// Whether all of these entries are whole, and their payloads can be read.
    pub(crate) fn reads_all(self, entries: &[Entry]) -> bool {
        entries.iter().all(|entry| entry.payload().is_some_and(|payload| (self.0)(entry.head.kind, payload)))
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_an_entry_is_that_of_its_record() {
        let head = EntryHead { id: EntryId::new(1, 1), kind: EntryKind::Command, stamp: Stamp(0) };
        for (record, payload_at) in [(&b""[..], 0), (b"command", 0), (b"header and command", 11)] {
            let entry = Entry::new(head, record.to_vec().into(), payload_at);
            assert_eq!((entry.len(), entry.is_empty()), (record.len(), record.is_empty()));
            assert_eq!(entry.payload(), Some(&record[payload_at..]));
        }
    }
}
