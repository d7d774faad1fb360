//! Command: its encoding, in logs and between members.
//!
//! The first byte is format version (high half) and kind (low half). Numbers are varints, signed ones zigzag; byte
//! strings carry their length. Every command has exactly one encoding: a decoded command encodes to the same bytes.
//! Decoding is total: any bytes give a command, or an error and its offset. Lengths are checked before memory is
//! allocated, and nesting is bounded. Byte boxes: docs/formats/command.md.
//! Knows nothing of: the effects of commands, logs.

use crate::api::{
    Command, Compare, CompareResult, CompareTarget, DeleteRange, KeyRange, Operation, Put, Range, Revision,
    SortOrder, SortTarget, Txn,
};
use alloc::vec::Vec;
use core::fmt;

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
            Command::Put(put) => {
                out.push(kind(PUT));
                write_put(put, out);
            }
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

    /// Decodes a command that takes up all of the bytes.
    ///
    /// # Errors
    /// If they are not exactly one command of this format version.
    pub fn decode(bytes: &[u8]) -> Result<Command, Malformed> {
        let mut reader = Reader { bytes, at: 0 };
        let first = reader.byte()?;
        if first >> 4 != VERSION {
            return Err(Malformed { offset: 0, flaw: Flaw::Version(first >> 4) });
        }
        let command = match first & 0x0f {
            PUT => Command::Put(reader.put()?),
            DELETE_RANGE => Command::DeleteRange(reader.delete_range()?),
            TXN => Command::Txn(reader.txn(1)?),
            COMPACT => Command::Compact(Revision(reader.signed()?)),
            _ => return Err(Malformed { offset: 0, flaw: Flaw::Unknown(first) }),
        };
        if reader.at < bytes.len() {
            return Err(reader.flawed(Flaw::TrailingBytes));
        }
        Ok(command)
    }

    /// Whether the bytes are exactly one command of this format version. Copies nothing of a put, the most common
    /// command.
    #[must_use]
    pub fn is_readable(bytes: &[u8]) -> bool {
        match bytes.first() {
            Some(&first) if first == VERSION << 4 | PUT => {
                let mut reader = Reader { bytes, at: 1 };
                reader.skim_put().is_ok() && reader.at == bytes.len()
            }
            _ => Command::decode(bytes).is_ok(),
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

fn flag(set: bool, bit: u8) -> u8 {
    if set { bit } else { 0 }
}

fn write_put(put: &Put, out: &mut Vec<u8>) {
    out.push(
        flag(put.prev_kv, PUT_PREV_KV)
            | flag(put.ignore_value, PUT_IGNORE_VALUE)
            | flag(put.ignore_lease, PUT_IGNORE_LEASE)
            | flag(put.lease != 0, PUT_HAS_LEASE),
    );
    write_bytes(&put.key, out);
    write_bytes(&put.value, out);
    write_present(put.lease, out);
}

fn write_delete_range(delete: &DeleteRange, out: &mut Vec<u8>) {
    out.push(flag(delete.prev_kv, DELETE_PREV_KV));
    write_keys(&delete.keys, out);
}

fn write_range(range: &Range, out: &mut Vec<u8>) {
    out.push(
        flag(range.keys_only, RANGE_KEYS_ONLY)
            | flag(range.count_only, RANGE_COUNT_ONLY)
            | flag(range.limit != 0, RANGE_HAS_LIMIT)
            | flag(range.revision != Revision::NONE, RANGE_HAS_REVISION)
            | flag(range.min_mod_revision != Revision::NONE, RANGE_HAS_MIN_MOD)
            | flag(range.max_mod_revision != Revision::NONE, RANGE_HAS_MAX_MOD)
            | flag(range.min_create_revision != Revision::NONE, RANGE_HAS_MIN_CREATE)
            | flag(range.max_create_revision != Revision::NONE, RANGE_HAS_MAX_CREATE),
    );
    let order = match range.order {
        SortOrder::None => 0,
        SortOrder::Ascend => 1,
        SortOrder::Descend => 2,
    };
    let target = match range.target {
        SortTarget::Key => 0,
        SortTarget::Version => 1,
        SortTarget::Create => 2,
        SortTarget::Mod => 3,
        SortTarget::Value => 4,
    };
    out.push(target << 4 | order);
    write_keys(&range.keys, out);
    write_present(range.limit, out);
    write_present(range.revision.0, out);
    write_present(range.min_mod_revision.0, out);
    write_present(range.max_mod_revision.0, out);
    write_present(range.min_create_revision.0, out);
    write_present(range.max_create_revision.0, out);
}

fn write_compare(compare: &Compare, out: &mut Vec<u8>) {
    let result = match compare.result {
        CompareResult::Equal => 0,
        CompareResult::Greater => 1,
        CompareResult::Less => 2,
        CompareResult::NotEqual => 3,
    };
    let target = match compare.target {
        CompareTarget::Version(_) => 0,
        CompareTarget::Create(_) => 1,
        CompareTarget::Mod(_) => 2,
        CompareTarget::Value(_) => 3,
        CompareTarget::Lease(_) => 4,
    };
    out.push(target << 4 | result);
    write_keys(&compare.keys, out);
    match &compare.target {
        CompareTarget::Value(value) => write_bytes(value, out),
        CompareTarget::Create(revision) | CompareTarget::Mod(revision) => write_signed(revision.0, out),
        CompareTarget::Version(n) | CompareTarget::Lease(n) => write_signed(*n, out),
    }
}

fn write_operation(operation: &Operation, out: &mut Vec<u8>) {
    match operation {
        Operation::Range(range) => {
            out.push(RANGE);
            write_range(range, out);
        }
        Operation::Put(put) => {
            out.push(PUT);
            write_put(put, out);
        }
        Operation::DeleteRange(delete) => {
            out.push(DELETE_RANGE);
            write_delete_range(delete, out);
        }
        Operation::Txn(txn) => {
            out.push(TXN);
            write_txn(txn, out);
        }
    }
}

fn write_txn(txn: &Txn, out: &mut Vec<u8>) {
    write_number(txn.compare.len() as u64, out);
    write_number(txn.success.len() as u64, out);
    write_number(txn.failure.len() as u64, out);
    txn.compare.iter().for_each(|compare| write_compare(compare, out));
    txn.success.iter().chain(&txn.failure).for_each(|operation| write_operation(operation, out));
}

fn write_keys(keys: &KeyRange, out: &mut Vec<u8>) {
    write_bytes(&keys.start, out);
    write_bytes(&keys.end, out);
}

pub(crate) fn write_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    write_number(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Writes a number unless it is zero; a flag shows its presence.
fn write_present(n: i64, out: &mut Vec<u8>) {
    if n != 0 {
        write_signed(n, out);
    }
}

pub(crate) fn write_signed(n: i64, out: &mut Vec<u8>) {
    write_number((n << 1 ^ n >> 63) as u64, out);
}

/// Writes seven bits a byte, lowest first; the high bit is set if more bytes follow.
pub fn write_number(mut n: u64, out: &mut Vec<u8>) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Takes a number off the front of bytes, if one is there in its shortest form.
pub fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut reader = Reader { bytes, at: 0 };
    let number = reader.number().ok()?;
    *bytes = &bytes[reader.at..];
    Some(number)
}

/// Reads bytes from the front.
pub(crate) struct Reader<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) at: usize,
}

impl Reader<'_> {
    fn put(&mut self) -> Result<Put, Malformed> {
        let flags = self.flags(PUT_PREV_KV | PUT_IGNORE_VALUE | PUT_IGNORE_LEASE | PUT_HAS_LEASE)?;
        Ok(Put {
            key: self.byte_string()?,
            value: self.byte_string()?,
            lease: self.present(flags & PUT_HAS_LEASE)?,
            prev_kv: flags & PUT_PREV_KV != 0,
            ignore_value: flags & PUT_IGNORE_VALUE != 0,
            ignore_lease: flags & PUT_IGNORE_LEASE != 0,
        })
    }

    /// Skips a put.
    fn skim_put(&mut self) -> Result<(), Malformed> {
        let flags = self.flags(PUT_PREV_KV | PUT_IGNORE_VALUE | PUT_IGNORE_LEASE | PUT_HAS_LEASE)?;
        for _key_then_value in 0..2 {
            let length = self.count(1)?;
            self.at += length;
        }
        self.present(flags & PUT_HAS_LEASE).map(|_| ())
    }

    fn delete_range(&mut self) -> Result<DeleteRange, Malformed> {
        let flags = self.flags(DELETE_PREV_KV)?;
        Ok(DeleteRange { keys: self.keys()?, prev_kv: flags & DELETE_PREV_KV != 0 })
    }

    fn range(&mut self) -> Result<Range, Malformed> {
        let flags = self.flags(u8::MAX)?;
        let sort = self.byte()?;
        let order = match sort & 0x0f {
            0 => SortOrder::None,
            1 => SortOrder::Ascend,
            2 => SortOrder::Descend,
            _ => return Err(self.unknown(sort)),
        };
        let target = match sort >> 4 {
            0 => SortTarget::Key,
            1 => SortTarget::Version,
            2 => SortTarget::Create,
            3 => SortTarget::Mod,
            4 => SortTarget::Value,
            _ => return Err(self.unknown(sort)),
        };
        Ok(Range {
            keys: self.keys()?,
            limit: self.present(flags & RANGE_HAS_LIMIT)?,
            revision: Revision(self.present(flags & RANGE_HAS_REVISION)?),
            order,
            target,
            keys_only: flags & RANGE_KEYS_ONLY != 0,
            count_only: flags & RANGE_COUNT_ONLY != 0,
            min_mod_revision: Revision(self.present(flags & RANGE_HAS_MIN_MOD)?),
            max_mod_revision: Revision(self.present(flags & RANGE_HAS_MAX_MOD)?),
            min_create_revision: Revision(self.present(flags & RANGE_HAS_MIN_CREATE)?),
            max_create_revision: Revision(self.present(flags & RANGE_HAS_MAX_CREATE)?),
        })
    }

    fn compare(&mut self) -> Result<Compare, Malformed> {
        let byte = self.byte()?;
        let result = match byte & 0x0f {
            0 => CompareResult::Equal,
            1 => CompareResult::Greater,
            2 => CompareResult::Less,
            3 => CompareResult::NotEqual,
            _ => return Err(self.unknown(byte)),
        };
        if byte >> 4 > 4 {
            return Err(self.unknown(byte));
        }
        let keys = self.keys()?;
        let target = match byte >> 4 {
            0 => CompareTarget::Version(self.signed()?),
            1 => CompareTarget::Create(Revision(self.signed()?)),
            2 => CompareTarget::Mod(Revision(self.signed()?)),
            3 => CompareTarget::Value(self.byte_string()?),
            _ => CompareTarget::Lease(self.signed()?),
        };
        Ok(Compare { keys, result, target })
    }

    /// `depth` of the outermost transaction is 1.
    fn txn(&mut self, depth: usize) -> Result<Txn, Malformed> {
        if depth > TXN_DEPTH_MAX {
            return Err(self.flawed(Flaw::Depth));
        }
        // A comparison takes at least 4 bytes, an operation too (an empty delete).
        let compares = self.count(4)?;
        let successes = self.count(4)?;
        let failures = self.count(4)?;
        let mut txn = Txn::default();
        txn.compare.reserve_exact(compares.min(RESERVED_MAX));
        for _ in 0..compares {
            txn.compare.push(self.compare()?);
        }
        for (branch, count) in [(&mut txn.success, successes), (&mut txn.failure, failures)] {
            branch.reserve_exact(count.min(RESERVED_MAX));
            for _ in 0..count {
                branch.push(self.operation(depth)?);
            }
        }
        Ok(txn)
    }

    fn operation(&mut self, depth: usize) -> Result<Operation, Malformed> {
        match self.byte()? {
            PUT => self.put().map(Operation::Put),
            DELETE_RANGE => self.delete_range().map(Operation::DeleteRange),
            TXN => self.txn(depth + 1).map(Operation::Txn),
            RANGE => self.range().map(Operation::Range),
            kind => Err(self.unknown(kind)),
        }
    }

    fn keys(&mut self) -> Result<KeyRange, Malformed> {
        Ok(KeyRange { start: self.byte_string()?, end: self.byte_string()? })
    }

    fn byte_string(&mut self) -> Result<Vec<u8>, Malformed> {
        let length = self.count(1)?;
        let bytes = self.bytes[self.at..][..length].to_vec();
        self.at += length;
        Ok(bytes)
    }

    /// A count of items that take at least `least` bytes each.
    fn count(&mut self, least: usize) -> Result<usize, Malformed> {
        let offset = self.at;
        let count = self.number()?;
        let most = (self.bytes.len() - self.at) / least;
        usize::try_from(count)
            .ok()
            .filter(|&count| count <= most)
            .ok_or(Malformed { offset, flaw: Flaw::Length(count) })
    }

    fn flags(&mut self, known: u8) -> Result<u8, Malformed> {
        let flags = self.byte()?;
        if flags & !known != 0 {
            return Err(self.unknown(flags));
        }
        Ok(flags)
    }

    /// A number that is present if its flag is set. Zero is refused, or the same command would have two encodings.
    fn present(&mut self, flag: u8) -> Result<i64, Malformed> {
        if flag == 0 {
            return Ok(0);
        }
        let offset = self.at;
        match self.signed()? {
            0 => Err(Malformed { offset, flaw: Flaw::Number }),
            n => Ok(n),
        }
    }

    pub(crate) fn signed(&mut self) -> Result<i64, Malformed> {
        let n = self.number()?;
        Ok((n >> 1) as i64 ^ -((n & 1) as i64))
    }

    pub(crate) fn number(&mut self) -> Result<u64, Malformed> {
        let offset = self.at;
        let too_long = Malformed { offset, flaw: Flaw::Number };
        let mut n = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            // The tenth byte has room for one bit only.
            if shift == 63 && byte > 1 {
                return Err(too_long);
            }
            n |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                let shortest = byte != 0 || shift == 0;
                return if shortest { Ok(n) } else { Err(too_long) };
            }
        }
        Err(too_long)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Malformed> {
        let byte = *self.bytes.get(self.at).ok_or(self.flawed(Flaw::Truncated))?;
        self.at += 1;
        Ok(byte)
    }

    fn flawed(&self, flaw: Flaw) -> Malformed {
        Malformed { offset: self.at, flaw }
    }

    /// The byte just read is undefined.
    fn unknown(&self, byte: u8) -> Malformed {
        Malformed { offset: self.at - 1, flaw: Flaw::Unknown(byte) }
    }
}

/// Items for which a list reserves memory at once; a longer list grows as it is read. Operations are larger in memory
/// than encoded, so a count that the bytes could just hold must not decide how much is allocated.
const RESERVED_MAX: usize = 128;
