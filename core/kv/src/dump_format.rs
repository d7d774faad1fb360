//! Dump format: the constants of a store as bytes, and why bytes are none. [docs/formats/store.md]
//!
//! Knows nothing of: how a dump is written or read.

use crate::revision::Revision;
use core::fmt;

/// The format version written; the only one read.
pub const VERSION: u8 = 1;

/// The first bytes of every dump.
pub(crate) const MAGIC: [u8; 4] = *b"KtSt";

// Flags of a version.
/// It has a value; otherwise it is a delete.
pub(crate) const IS_PUT: u8 = 1;
/// A lease follows.
pub(crate) const HAS_LEASE: u8 = 2;

/// Why bytes are not a dump, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Offset of the invalid record, counted over all chunks.
    pub offset: u64,
    /// The kind of error.
    pub flaw: Flaw,
}

/// Ways in which bytes can fail to be a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// The bytes end too early.
    Truncated,
    /// Bytes follow the end of the dump.
    TrailingBytes,
    /// The bytes do not begin with the magic bytes.
    NoDump,
    /// A format version other than [`VERSION`].
    Version(u8),
    /// An undefined flag, or one that is not allowed here.
    Unknown(u8),
    /// A number that is not in its shortest form, or is out of range.
    Number,
    /// A length above that of any key or value.
    Length(u64),
    /// A revision before the first, after the last, or before the one it follows.
    Revision,
    /// A key that is not above the one before.
    KeyOrder,
    /// A delete of a deleted key.
    DoubleDelete,
    /// A key that does not begin with its creation, although compaction has removed nothing from it.
    Beginning,
    /// A version that compaction has hidden from every read and watch.
    Forgotten,
    /// A revision without a change.
    Gap(Revision),
    /// The order of this revision's changes is no permutation, or is the default one.
    Order(Revision),
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed store at byte {}: ", self.offset)?;
        match self.flaw {
            Flaw::Truncated => f.write_str("unexpected end"),
            Flaw::TrailingBytes => f.write_str("trailing bytes"),
            Flaw::NoDump => f.write_str("no magic bytes at the beginning"),
            Flaw::Version(version) => write!(f, "format version {version}, expected {VERSION}"),
            Flaw::Unknown(byte) => write!(f, "undefined flags 0x{byte:02x}"),
            Flaw::Number => f.write_str("number out of range or not in its shortest form"),
            Flaw::Length(length) => write!(f, "length {length} exceeds that of any key or value"),
            Flaw::Revision => f.write_str("revision out of order or out of range"),
            Flaw::KeyOrder => f.write_str("key not above the one before"),
            Flaw::DoubleDelete => f.write_str("deleted key is deleted again"),
            Flaw::Beginning => f.write_str("key does not begin with its creation"),
            Flaw::Forgotten => f.write_str("version that compaction removes"),
            Flaw::Gap(revision) => write!(f, "no change at revision {revision}"),
            Flaw::Order(revision) => write!(f, "invalid order of the changes of revision {revision}"),
        }
    }
}

impl core::error::Error for Malformed {}
