//! Command: its encoding, in logs and between members.
//!
//! The first byte is format version (high half) and kind (low half). Numbers are varints, signed ones zigzag; byte
//! strings carry their length. Every command has exactly one encoding: a decoded command encodes to the same bytes.
//! Decoding is total: any bytes give a command, or an error and its offset. Lengths are checked before memory is
//! allocated, and nesting is bounded. Byte boxes: docs/formats/command.md.
//! Knows nothing of: the effects of commands, logs.

mod read;
mod write;

pub(crate) use read::Reader;
pub use read::take_number;
pub use write::write_number;
pub(crate) use write::{write_bytes, write_signed};

use crate::api::{Command, PutRef, Query, Revision};
use crate::check::is_read_only;
use alloc::vec::Vec;
use core::fmt;
use write::{write_delete_range, write_put, write_range, write_txn};

/// The format version written; the only one read.
pub const VERSION: u8 = 1;

/// Most levels of nested transactions, the outermost counted. Deeper ones are neither proposed nor decoded.
pub const TXN_DEPTH_MAX: usize = 32;

const PUT: u8 = 1;
const DELETE_RANGE: u8 = 2;
const TXN: u8 = 3;
const COMPACT: u8 = 4;
/// Only inside a transaction.
const RANGE: u8 = 5;

/// Why bytes are not a command, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Offset of the first invalid byte.
    pub offset: usize,
    /// The kind of error.
    pub flaw: Flaw,
}

/// Ways in which bytes can fail to be a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// The bytes end too early.
    Truncated,
    /// Bytes follow the command.
    TrailingBytes,
    /// A format version other than [`VERSION`].
    Version(u8),
    /// An undefined kind, flag, operator or target.
    Unknown(u8),
    /// A number that is not in its shortest form, above 64 bits, or zero where zero is left out.
    Number,
    /// A length or count that exceeds the remaining bytes.
    Length(u64),
    /// Nested deeper than [`TXN_DEPTH_MAX`].
    Depth,
    /// The kept answer of a session that is none, or not in its shortest form.
    Kept,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed command at byte {}: ", self.offset)?;
        match self.flaw {
            Flaw::Truncated => f.write_str("unexpected end"),
            Flaw::TrailingBytes => f.write_str("trailing bytes"),
            Flaw::Version(version) => write!(f, "format version {version}, expected {VERSION}"),
            Flaw::Unknown(byte) => write!(f, "undefined value 0x{byte:02x}"),
            Flaw::Number => f.write_str("number not in its shortest form"),
            Flaw::Length(length) => write!(f, "length {length} exceeds the remaining bytes"),
            Flaw::Kept => f.write_str("a kept answer that is none"),
            Flaw::Depth => write!(f, "transactions nested deeper than {TXN_DEPTH_MAX}"),
        }
    }
}

impl core::error::Error for Malformed {}

impl Command {
    /// Appends the bytes of the command.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let kind = |kind| VERSION << 4 | kind;
        match self {
            Command::Put(put) => Command::encode_put(put.as_ref(), out),
            Command::DeleteRange(delete) => {
                out.push(kind(DELETE_RANGE));
                write_delete_range(delete, out);
            }
            Command::Txn(txn) => {
                out.push(kind(TXN));
                write_txn(txn, out);
            }
            Command::Compact(revision) => {
                out.push(kind(COMPACT));
                write_signed(revision.0, out);
            }
        }
    }

    /// Appends the bytes of a command that is a put, whose key and value are copied from where they lie.
    pub fn encode_put(put: PutRef<'_>, out: &mut Vec<u8>) {
        out.push(VERSION << 4 | PUT);
        write_put(put, out);
    }

    /// Decodes a command that takes up all of the bytes.
    ///
    /// # Errors
    /// If they are not exactly one command of this format version.
    pub fn decode(bytes: &[u8]) -> Result<Command, Malformed> {
        let (mut reader, kind) = Reader::of_kind(bytes)?;
        let command = match kind {
            PUT => Command::Put(reader.put()?.to_owned()),
            DELETE_RANGE => Command::DeleteRange(reader.delete_range()?),
            TXN => Command::Txn(reader.txn(1)?),
            COMPACT => Command::Compact(Revision(reader.signed()?)),
            _ => return Err(Malformed { offset: 0, flaw: Flaw::Unknown(bytes[0]) }),
        };
        reader.end()?;
        Ok(command)
    }

    /// The put that the bytes are, if they are exactly one command and that command is a put. It copies nothing: puts
    /// are most of what a log holds.
    #[must_use]
    pub fn put_in(bytes: &[u8]) -> Option<PutRef<'_>> {
        let is_put = bytes.first() == Some(&(VERSION << 4 | PUT));
        let mut reader = Reader { bytes, at: 1 };
        let put = if is_put { reader.put().ok()? } else { return None };
        (reader.at == bytes.len()).then_some(put)
    }

    /// Whether the bytes are exactly one command of this format version.
    #[must_use]
    pub fn is_readable(bytes: &[u8]) -> bool {
        Command::put_in(bytes).is_some() || Command::decode(bytes).is_ok()
    }
}

impl Query {
    /// Appends the bytes of the query: those of the operation, with the format version in front as in a command.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Query::Range(range) => {
                out.push(VERSION << 4 | RANGE);
                write_range(range, out);
            }
            Query::Txn(txn) => {
                out.push(VERSION << 4 | TXN);
                write_txn(txn, out);
            }
        }
    }

    /// The key of the query that the bytes are, if they are exactly one, a read of a single key without options. It copies
    /// nothing: these are most of what clients read.
    #[must_use]
    pub fn key_in(bytes: &[u8]) -> Option<&[u8]> {
        const OF_KEY: [u8; 3] = [VERSION << 4 | RANGE, 0, 0]; // no flags, in no order
        bytes.strip_prefix(&OF_KEY)?;
        let mut reader = Reader { bytes, at: OF_KEY.len() };
        let (key, end) = (reader.bytes_here().ok()?, reader.bytes_here().ok()?);
        (end.is_empty() && reader.at == bytes.len()).then_some(key)
    }

    /// Decodes a query that takes up all of the bytes.
    ///
    /// # Errors
    /// If they are not exactly one query of this format version; a transaction that writes is none.
    pub fn decode(bytes: &[u8]) -> Result<Query, Malformed> {
        let (mut reader, kind) = Reader::of_kind(bytes)?;
        let unknown = Malformed { offset: 0, flaw: Flaw::Unknown(bytes[0]) };
        let query = match kind {
            RANGE => Query::Range(reader.range()?),
            TXN => Query::Txn(reader.txn(1)?),
            _ => return Err(unknown),
        };
        reader.end()?;
        match &query {
            Query::Txn(txn) if !is_read_only(txn) => Err(unknown),
            _ => Ok(query),
        }
    }
}

// Flags of a put.
const PUT_PREV_KV: u8 = 1;
const PUT_IGNORE_VALUE: u8 = 2;
const PUT_IGNORE_LEASE: u8 = 4;
const PUT_HAS_LEASE: u8 = 8;

// Flags of a delete.
const DELETE_PREV_KV: u8 = 1;

// Flags of a range.
const RANGE_KEYS_ONLY: u8 = 1;
const RANGE_COUNT_ONLY: u8 = 2;
const RANGE_HAS_LIMIT: u8 = 4;
const RANGE_HAS_REVISION: u8 = 8;
const RANGE_HAS_MIN_MOD: u8 = 16;
const RANGE_HAS_MAX_MOD: u8 = 32;
const RANGE_HAS_MIN_CREATE: u8 = 64;
const RANGE_HAS_MAX_CREATE: u8 = 128;
