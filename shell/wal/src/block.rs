//! Blocks: the units in which the log is written into a segment. [fault-model ST5, ST6]
//!
//! ```text
//!  0       4      6       8      12      16    20        24       28     32        40      48       56
//!  ├ magic ┼ vers ┼ flags ┼ crc ─┼ chain ┼ len ┼ records ┼ groups ┼ body ┼ file id ┼ gen. ┼ offset ┼ number
//!  64               72              80          80+body          len      next multiple of 512
//!  ├ synced segment ┼ synced offset ┼ records … ┼ group table … ┼ 0 0 0 …┤
//! ```
//! A block of version 2 is padded to a multiple of a larger sector, that of its disk; its flags hold the size.
//! Little-endian. A row of the group table: group u32, records u32, lsn u64, commit u64, slots u64. The checksum covers
//! the records' header checksums in order, then the table, then the header without itself. `docs/formats/block.md`
//! Knows nothing of: files, repair.

use crate::scan::Position;
use kattu_raft::{GroupId, LogIndex, Lsn};
use kattu_wire::RecordError;
use kattu_wire::record::{RecordHeader, record_verify};
use std::fmt;
use std::ops::Range;

/// The smallest sector of a disk in bytes; blocks begin at multiples of it.
pub const SECTOR: usize = 512;

/// The largest sector that blocks can be padded to: a page, which is also what a segment reserves for its header.
pub const SECTOR_MAX: usize = 4096;

/// Bytes before the records.
pub const HEADER_BYTES: usize = 80;

/// Where the block's checksum is in the header.
pub(crate) const CRC_AT: Range<usize> = 8..12;

/// Bytes of a row of the group table.
pub const ROW_BYTES: usize = 32;

/// The version of a block that is padded to 512 bytes.
pub const VERSION: u16 = 1;

/// The version of a block that is padded to more. A program that knows only version 1 refuses it: the next block begins
/// later than version 1 would have it.
pub(crate) const VERSION_WIDE: u16 = 2;

/// From this bit on, the flags of a wide block on disk hold how often 512 was doubled.
const SECTOR_SHIFT: u16 = 8;

const MAGIC: u32 = u32::from_le_bytes(*b"KTBK");

/// Flags: the roles of a block besides carrying records.
pub mod flags {
    /// Written in an idle moment, for its synced mark.
    pub(crate) const MARK: u16 = 1;
    /// The last block of its segment; the log goes on in the next one.
    pub const ROTATE: u16 = 2;
    /// The log was closed in good order.
    pub(crate) const CLOSE: u16 = 4;
    /// The first block of a segment: it records what the log held of every group, so that the segments before it can be
    /// removed.
    pub(crate) const START: u16 = 8;
}

/// Where the next block begins after one of `len` bytes at `offset`, on a disk with sectors of `sector` bytes: writing
/// it then touches no sector of an earlier block.
#[must_use]
pub(crate) fn next_block(offset: u64, len: usize, sector: usize) -> u64 {
    (offset + len as u64).next_multiple_of(sector as u64)
}

/// A row of the group table: the state of one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupRow {
    /// The group.
    pub group: GroupId,
    /// How many of the block's records belong to the group.
    pub records: u32,
    /// Highest record number up to here, including records without bytes of their own.
    pub lsn: Lsn,
    /// Commit mark.
    pub commit: LogIndex,
    /// Generation of the group's term and vote that was durable before this block was written.
    pub slots: u64,
}

impl GroupRow {
    /// Appends the row's bytes to `out`.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.group.0.to_le_bytes());
        out.extend_from_slice(&self.records.to_le_bytes());
        out.extend_from_slice(&self.lsn.0.to_le_bytes());
        out.extend_from_slice(&self.commit.0.to_le_bytes());
        out.extend_from_slice(&self.slots.to_le_bytes());
    }

    /// Reads a row.
    pub(crate) fn take(bytes: &[u8]) -> GroupRow {
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        GroupRow {
            group: GroupId(u32_at(0)),
            records: u32_at(4),
            lsn: Lsn(u64_at(8)),
            commit: LogIndex(u64_at(16)),
            slots: u64_at(24),
        }
    }
}

/// A block's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// See [`flags`].
    pub flags: u16,
    /// The block is padded to a multiple of this: a power of two from [`SECTOR`] to [`SECTOR_MAX`].
    pub sector: usize,
    /// Checksum of the block before this one, 0 for the first of the log.
    pub chain: u32,
    /// Bytes up to the end of the group table.
    pub len: usize,
    /// How many records.
    pub records: u32,
    /// How many rows the group table has.
    pub groups: u32,
    /// Bytes of records.
    pub body: usize,
    /// The segment's file id.
    pub file_id: u64,
    /// The segment's number.
    pub generation: u64,
    /// Where in the segment the block begins.
    pub offset: u64,
    /// The block's number in the log, from 1.
    pub number: u64,
    /// Everything before this was synced when the block was written.
    pub synced: Position,
}

impl BlockHeader {
    /// Lays out the header; `crc` is the checksum over the records' checksums and the group table. Returns the block's
    /// checksum.
    pub fn put(&self, out: &mut [u8], crc: u32) -> u32 {
        let narrow = |len: usize| u32::try_from(len).expect("a block is far below 4 GiB").to_le_bytes();
        let out = &mut out[..HEADER_BYTES];
        out[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        let (version, flags) = match self.sector {
            SECTOR => (VERSION, self.flags),
            wide => (VERSION_WIDE, self.flags | doublings(wide) << SECTOR_SHIFT),
        };
        out[4..6].copy_from_slice(&version.to_le_bytes());
        out[6..8].copy_from_slice(&flags.to_le_bytes());
        out[12..16].copy_from_slice(&self.chain.to_le_bytes());
        out[16..20].copy_from_slice(&narrow(self.len));
        out[20..24].copy_from_slice(&self.records.to_le_bytes());
        out[24..28].copy_from_slice(&self.groups.to_le_bytes());
        out[28..32].copy_from_slice(&narrow(self.body));
        out[32..40].copy_from_slice(&self.file_id.to_le_bytes());
        out[40..48].copy_from_slice(&self.generation.to_le_bytes());
        out[48..56].copy_from_slice(&self.offset.to_le_bytes());
        out[56..64].copy_from_slice(&self.number.to_le_bytes());
        out[64..72].copy_from_slice(&self.synced.segment.to_le_bytes());
        out[72..80].copy_from_slice(&self.synced.offset.to_le_bytes());
        let crc = header_checksum(crc, out);
        out[CRC_AT].copy_from_slice(&crc.to_le_bytes());
        crc
    }

    /// Reads the header at the start of `bytes`. Checks only that it belongs to this place and that its lengths fit
    /// each other and the bytes.
    ///
    /// # Errors
    /// Why there is no block.
    pub fn take(bytes: &[u8], file_id: u64, at: Position) -> Result<BlockHeader, BlockError> {
        let Some(head) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(BlockError::Length(bytes.len()));
        };
        let u32_at = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
        match u32_at(0) {
            MAGIC => {}
            0 => return Err(BlockError::Zeros),
            other => return Err(BlockError::Magic(other)),
        }
        let flags = u16::from_le_bytes([head[6], head[7]]);
        let is_wide = u16::from_le_bytes([head[4], head[5]]) == VERSION_WIDE;
        let wide = SECTOR.checked_shl((flags >> SECTOR_SHIFT).into()).unwrap_or(0);
        let header = BlockHeader {
            flags: if is_wide { flags & ((1 << SECTOR_SHIFT) - 1) } else { flags },
            sector: if is_wide { wide } else { SECTOR },
            chain: u32_at(12),
            len: u32_at(16) as usize,
            records: u32_at(20),
            groups: u32_at(24),
            body: u32_at(28) as usize,
            file_id: u64_at(32),
            generation: u64_at(40),
            offset: u64_at(48),
            number: u64_at(56),
            synced: Position { segment: u64_at(64), offset: u64_at(72) },
        };
        if (header.file_id, header.generation, header.offset) != (file_id, at.segment, at.offset) {
            return Err(BlockError::Misplaced);
        }
        let table = (header.groups as usize).checked_mul(ROW_BYTES);
        let whole = table.and_then(|table| table.checked_add(HEADER_BYTES)?.checked_add(header.body));
        if whole != Some(header.len) || bytes.len() < header.len {
            return Err(BlockError::Length(header.len));
        }
        Ok(header)
    }
}

/// How often 512 was doubled to make a sector.
fn doublings(sector: usize) -> u16 {
    assert!(
        sector.is_power_of_two() && (SECTOR..=SECTOR_MAX).contains(&sector),
        "a sector of {sector} bytes"
    );
    (sector / SECTOR).trailing_zeros() as u16
}

fn header_checksum(crc: u32, header: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c_append(crc, &header[..8]), &header[12..HEADER_BYTES])
}

/// Why there is no block at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockError {
    /// Zeros: nothing was ever written here, or the write did not reach the disk.
    Zeros,
    /// The bytes do not begin with a block's magic number.
    Magic(u32),
    /// A block of another file or another place.
    Misplaced,
    /// The lengths do not fit the segment.
    Length(usize),
    /// The checksum does not match.
    Checksum {
        /// The checksum in the block.
        found: u32,
        /// The checksum of its bytes.
        computed: u32,
    },
    /// One of its records is bad.
    Record {
        /// Byte offset in the segment.
        offset: u64,
        /// The record's error.
        error: RecordError,
    },
    /// It does not follow the block before it.
    Chain {
        /// The checksum that it names for the block before it.
        found: u32,
        /// The checksum of the block before it.
        expected: u32,
    },
    /// It is whole, but has a version that this program does not read.
    Version(u16),
}

impl fmt::Display for BlockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BlockError::Zeros => f.write_str("zeros instead of a block"),
            BlockError::Magic(found) => write!(f, "starts with {found:#010x}, expected {MAGIC:#010x}"),
            BlockError::Misplaced => f.write_str("a block of another file or place"),
            BlockError::Length(len) => write!(f, "a block of {len} bytes does not fit here"),
            BlockError::Checksum { found, computed } => {
                write!(f, "block checksum {found:#010x}, its bytes give {computed:#010x}")
            }
            BlockError::Record { offset, error } => write!(f, "at byte {offset}: {error}"),
            BlockError::Chain { found, expected } => {
                write!(f, "block follows checksum {found:#010x}, the block before it has {expected:#010x}")
            }
            BlockError::Version(found) => {
                write!(f, "block version {found}, this program reads {VERSION} and {VERSION_WIDE}")
            }
        }
    }
}

/// A whole block, verified.
#[derive(Clone, Debug)]
pub struct Block {
    /// Its header.
    pub header: BlockHeader,
    /// Its checksum, which the next block has as its chain.
    pub crc: u32,
    /// The group table.
    pub groups: Vec<GroupRow>,
    /// Each record: where in the segment its bytes are, and its header.
    pub records: Vec<(Range<usize>, RecordHeader)>,
}

impl Block {
    /// Where the next one begins.
    #[must_use]
    pub fn stop(&self) -> u64 {
        next_block(self.header.offset, self.header.len, self.header.sector)
    }

    /// Reads and verifies the block at `at` of the segment whose bytes are `segment`, records and payloads included.
    /// The caller checks the chain.
    ///
    /// # Errors
    /// Why there is no block.
    pub fn parse(segment: &[u8], at: usize, file_id: u64, generation: u64) -> Result<Block, BlockError> {
        let bytes = segment.get(at..).unwrap_or_default();
        let header = BlockHeader::take(bytes, file_id, Position { segment: generation, offset: at as u64 })?;

        let mut crc = 0;
        let mut records = Vec::with_capacity((header.records as usize).min(header.body / 48));
        let (mut next, end) = (HEADER_BYTES, HEADER_BYTES + header.body);
        while next < end {
            let offset = (at + next) as u64;
            let record = record_verify(crc32c::crc32c_append, &bytes[..end], next, end - next)
                .map_err(|error| BlockError::Record { offset, error })?;
            crc = crc32c::crc32c_append(crc, &record.header_crc.to_le_bytes());
            records.push((at + next..at + next + record.len, record));
            next += record.len;
        }
        crc = crc32c::crc32c_append(crc, &bytes[end..header.len]);
        let found = u32::from_le_bytes(bytes[8..12].try_into().expect("four bytes"));
        let computed = header_checksum(crc, bytes);
        if found != computed {
            return Err(BlockError::Checksum { found, computed });
        }
        let version = u16::from_le_bytes([bytes[4], bytes[5]]);
        let is_known = match version {
            VERSION => true,
            VERSION_WIDE => (2 * SECTOR..=SECTOR_MAX).contains(&header.sector),
            _ => false,
        };
        if !is_known {
            return Err(BlockError::Version(version));
        }
        if records.len() != header.records as usize {
            return Err(BlockError::Length(header.len));
        }
        let groups = bytes[end..header.len].chunks_exact(ROW_BYTES).map(GroupRow::take).collect();
        Ok(Block { header, crc: computed, groups, records })
    }
}
