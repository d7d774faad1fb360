//! Records: the bytes of one log entry, the same on every wire and every disk.
//!
//! ```text
//!  0     4      5      6      7       8       12     13        16      24     32      40       44       48
//!  ├ len ┼ kind ┼ vers ┼ form ┼ shard ┼ group ┼ data ┼ 0 0 0  ┼ index ┼ term ┼ stamp ┼ p.crc ┼ h.crc ┼ payload
//! ```
//! Little-endian. `len` counts the whole record; the header's checksum covers bytes 0..44, which hold the payload's
//! checksum: the header's checksum therefore stands for the whole record. `docs/formats/record.md`
//! Knows nothing of: files, frames, the meaning of a payload.

use crate::Crc;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use kattu_raft::{
    Body, Entry, EntryHead, EntryId, EntryKind, Form, GroupId, LogIndex, SharedBytes, Stamp, Term,
};

/// Bytes before the payload.
pub const HEADER_BYTES: usize = 48;

/// The version this code writes, and the only one it reads.
pub const VERSION: u8 = 1;

/// Records that this process has encoded. An entry must be encoded only once in the whole cluster, and this count makes
/// that testable.
static ENCODED: AtomicU64 = AtomicU64::new(0);

/// Records that this process has encoded since it started.
#[must_use]
pub fn records_encoded() -> u64 {
    ENCODED.load(Ordering::Relaxed)
}

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// A log entry.
    Entry(EntryKind),
    /// All entries of the group from this index on are removed; occurs only in logs, never in frames.
    Truncate,
    /// A snapshot covers the group's log up to here; the payload, in the log's own format, describes what the log holds
    /// after it. Occurs only in logs, never in frames.
    Base,
}

impl RecordKind {
    fn to_byte(self) -> u8 {
        match self {
            RecordKind::Entry(EntryKind::Noop) => 1,
            RecordKind::Entry(EntryKind::Command) => 2,
            RecordKind::Entry(EntryKind::Config) => 3,
            RecordKind::Truncate => 16,
            RecordKind::Base => 17,
        }
    }

    fn of(byte: u8) -> Option<RecordKind> {
        Some(match byte {
            1 => RecordKind::Entry(EntryKind::Noop),
            2 => RecordKind::Entry(EntryKind::Command),
            3 => RecordKind::Entry(EntryKind::Config),
            16 => RecordKind::Truncate,
            17 => RecordKind::Base,
            _ => return None,
        })
    }
}

/// A record's header, verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// Bytes of the whole record, at least [`HEADER_BYTES`].
    pub len: usize,
    /// Its kind.
    pub kind: RecordKind,
    /// The form in which the payload is held.
    pub form: Form,
    /// Its group.
    pub group: GroupId,
    /// Its position; for a truncation the first index removed, for a base the last that a snapshot covers.
    pub index: LogIndex,
    /// The term it was written in; for a base, that of the entry there.
    pub term: Term,
    /// The log's clock.
    pub stamp: Stamp,
    /// CRC32C of the payload.
    pub payload_crc: u32,
    /// CRC32C of the header before it; stands for the whole record.
    pub header_crc: u32,
}

/// Why bytes are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// The bytes end inside the record.
    Cut {
        /// Bytes of the record, or of its header at least.
        needed: usize,
        /// Bytes present.
        have: usize,
    },
    /// The length is below a header's or above the limit.
    Length {
        /// The length in the record.
        len: usize,
        /// The largest allowed.
        limit: usize,
    },
    /// The header does not match its checksum.
    HeaderChecksum {
        /// The checksum in the record.
        found: u32,
        /// The checksum of its bytes.
        computed: u32,
    },
    /// The payload does not match its checksum.
    PayloadChecksum {
        /// The checksum in the record.
        found: u32,
        /// The checksum of its bytes.
        computed: u32,
    },
    /// Written by a version this code does not read.
    Version {
        /// Its number.
        found: u8,
    },
    /// A header field has an invalid value.
    Field {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordError::Cut { needed, have } => write!(f, "record is cut off: {have} of {needed} bytes"),
            RecordError::Length { len, limit } => {
                write!(f, "record length {len} is outside {HEADER_BYTES}..={limit}")
            }
            RecordError::HeaderChecksum { found, computed } => {
                write!(f, "record header checksum {found:#010x}, its bytes give {computed:#010x}")
            }
            RecordError::PayloadChecksum { found, computed } => {
                write!(f, "record payload checksum {found:#010x}, its bytes give {computed:#010x}")
            }
            RecordError::Version { found } => {
                write!(f, "record version {found}, this program reads version {VERSION}")
            }
            RecordError::Field { field, value } => {
                write!(f, "record field `{field}` has the invalid value {value}")
            }
        }
    }
}

impl core::error::Error for RecordError {}

impl RecordHeader {
    fn to_bytes(self, crc: Crc) -> [u8; HEADER_BYTES] {
        let kind = self.kind.to_byte();
        let (form, shard, data) = match self.form {
            Form::Whole => (0, 0, 0),
            Form::Shard { shard, data } => (1, shard, data),
            Form::Missing => (2, 0, 0),
        };
        let len = u32::try_from(self.len).expect("admission keeps requests far below 4 GiB");
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..4].copy_from_slice(&len.to_le_bytes());
        bytes[4..8].copy_from_slice(&[kind, VERSION, form, shard]);
        bytes[8..12].copy_from_slice(&self.group.0.to_le_bytes());
        bytes[12] = data;
        bytes[16..24].copy_from_slice(&self.index.0.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.term.0.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.stamp.0.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.payload_crc.to_le_bytes());
        let header_crc = crc(0, &bytes[..44]);
        bytes[44..48].copy_from_slice(&header_crc.to_le_bytes());
        bytes
    }

    /// Reads and verifies the header at the start of `bytes`, but not the payload.
    ///
    /// # Errors
    /// Why it is invalid; the checksum is verified before any field.
    pub fn parse(crc: Crc, bytes: &[u8], limit: usize) -> Result<RecordHeader, RecordError> {
        let have = bytes.len();
        let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(RecordError::Cut { needed: HEADER_BYTES, have });
        };
        let u32_at = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));

        let (found, computed) = (u32_at(44), crc(0, &header[..44]));
        if found != computed {
            return Err(RecordError::HeaderChecksum { found, computed });
        }
        if header[5] != VERSION {
            return Err(RecordError::Version { found: header[5] });
        }
        let len = u32_at(0) as usize;
        if len < HEADER_BYTES || limit < len {
            return Err(RecordError::Length { len, limit });
        }
        let field = |field, value: u64| RecordError::Field { field, value };
        let kind = RecordKind::of(header[4]).ok_or_else(|| field("kind", header[4].into()))?;
        let form = match (header[6], header[7], header[12]) {
            (0, 0, 0) => Form::Whole,
            (1, shard, data) if data != 0 => Form::Shard { shard, data },
            (2, 0, 0) => Form::Missing,
            (other, ..) => return Err(field("form", other.into())),
        };
        if header[13..16] != [0; 3] {
            return Err(field("reserved", u64::from(header[13])));
        }
        let index = u64_at(16);
        let is_before_all = index == 0 && kind != RecordKind::Base;
        if is_before_all || index == u64::MAX {
            return Err(field("index", index));
        }
        Ok(RecordHeader {
            len,
            kind,
            form,
            group: GroupId(u32_at(8)),
            index: LogIndex(index),
            term: Term(u64_at(24)),
            stamp: Stamp(u64_at(32)),
            payload_crc: u32_at(40),
            header_crc: found,
        })
    }

    /// The entry's head, if this is an entry.
    #[must_use]
    pub fn entry_head(&self) -> Option<EntryHead> {
        match self.kind {
            RecordKind::Entry(kind) => Some(EntryHead {
                id: EntryId { term: self.term, index: self.index },
                kind,
                stamp: self.stamp,
            }),
            RecordKind::Truncate | RecordKind::Base => None,
        }
    }
}

/// Encodes what is here of a new entry and checksums it. Called once per entry in the whole cluster; see
/// [`records_encoded`].
///
/// # Panics
/// If the record would reach 4 GiB.
#[must_use]
pub fn record_encode(crc: Crc, group: GroupId, head: EntryHead, body: Body<'_>) -> Entry {
    let mut record = Vec::with_capacity(HEADER_BYTES + body.bytes().len());
    let payload_start = record_append(crc, group, head, body, &mut record);
    Entry::in_form(body.form(), head, SharedBytes::from(record), payload_start)
}

/// The same, appended to other records; returns how many bytes of it stand before the payload.
///
/// # Panics
/// As [`record_encode`].
pub fn record_append(
    crc: Crc,
    group: GroupId,
    head: EntryHead,
    body: Body<'_>,
    records: &mut Vec<u8>,
) -> usize {
    let (form, payload) = (body.form(), body.bytes());
    ENCODED.fetch_add(1, Ordering::Relaxed);
    let header = RecordHeader {
        len: HEADER_BYTES + payload.len(),
        kind: RecordKind::Entry(head.kind),
        form,
        group,
        index: head.id.index,
        term: head.id.term,
        stamp: head.stamp,
        payload_crc: crc(0, payload),
        header_crc: 0,
    };
    records.extend_from_slice(&header.to_bytes(crc));
    records.extend_from_slice(payload);
    HEADER_BYTES
}

/// Encodes the removal of all entries of `group` from `first` on.
#[must_use]
pub fn truncate_encode(crc: Crc, group: GroupId, first: LogIndex) -> [u8; HEADER_BYTES] {
    RecordHeader {
        len: HEADER_BYTES,
        kind: RecordKind::Truncate,
        form: Form::Whole,
        group,
        index: first,
        term: Term(0),
        stamp: Stamp(0),
        payload_crc: 0,
        header_crc: 0,
    }
    .to_bytes(crc)
}

/// Encodes that a snapshot covers the log of `group` up to `base`; `payload` describes what the log holds after it.
///
/// # Panics
/// If the record would reach 4 GiB.
#[must_use]
pub fn base_encode(crc: Crc, group: GroupId, base: EntryId, payload: &[u8]) -> Vec<u8> {
    let header = RecordHeader {
        len: HEADER_BYTES + payload.len(),
        kind: RecordKind::Base,
        form: Form::Whole,
        group,
        index: base.index,
        term: base.term,
        stamp: Stamp(0),
        payload_crc: crc(0, payload),
        header_crc: 0,
    };
    let mut record = Vec::with_capacity(header.len);
    record.extend_from_slice(&header.to_bytes(crc));
    record.extend_from_slice(payload);
    record
}

/// Reads the header at `at` and verifies header and payload.
///
/// # Errors
/// Why the record is invalid.
pub fn record_verify(crc: Crc, bytes: &[u8], at: usize, limit: usize) -> Result<RecordHeader, RecordError> {
    let bytes = bytes.get(at..).unwrap_or_default();
    let header = RecordHeader::parse(crc, bytes, limit)?;
    let Some(payload) = bytes.get(HEADER_BYTES..header.len) else {
        return Err(RecordError::Cut { needed: header.len, have: bytes.len() });
    };
    let computed = crc(0, payload);
    if header.payload_crc != computed {
        return Err(RecordError::PayloadChecksum { found: header.payload_crc, computed });
    }
    if header.kind == RecordKind::Truncate && !payload.is_empty() {
        return Err(RecordError::Field { field: "payload", value: payload.len() as u64 });
    }
    Ok(header)
}

/// Reads the entry whose record starts at `at`, verifies it, and shares its bytes. Returns its group, the entry, and
/// the start of the next record.
///
/// # Errors
/// Why it is invalid, or no entry: a truncation is none, nor is a base.
pub fn record_decode(
    crc: Crc,
    bytes: &SharedBytes,
    at: usize,
    limit: usize,
) -> Result<(GroupId, Entry, usize), RecordError> {
    let header = record_verify(crc, bytes, at, limit)?;
    let Some(head) = header.entry_head() else {
        return Err(RecordError::Field { field: "kind", value: header.kind.to_byte().into() });
    };
    let end = at + header.len;
    Ok((header.group, Entry::in_form(header.form, head, bytes.slice(at..end), HEADER_BYTES), end))
}
