//! Scan: reads the log from its first block to its end, and distinguishes a torn tail from damage. [fault-model ST6]
//!
//! Blocks are accepted one after the other, each by its checksums and by its link to the one before it. At the first
//! place without such a block the log ends or is damaged:
//!
//! 1. Every block records up to where the log was synced when it was written.
//! 2. If any whole block behind that place, in this segment or a later one, records that the place had been synced, the
//!    block there is lost: damage.
//! 3. Otherwise nothing there was ever acknowledged: a torn tail, even if whole blocks follow, since unsynced writes
//!    may survive in any order.
//!
//! The log begins with its first segment, or with any that begins with a start block: the ones before it were no longer
//! needed. That block was durable before they were removed, so a log that does not begin with it is damaged, not torn.
//!
//! In a recycled segment old bytes are everywhere. Only whole headers of this very segment are signs of a torn write
//! there. [fault-model ST5]
//!
//! Where the log is damaged, readable blocks behind the damage still bound where it ended (`tail_bound.rs`).
//!
//! Nothing is changed here; `wal/settle.rs` cuts a torn tail, `inspect.rs` shows it.
//! Knows nothing of: entries, snapshots.

use crate::block::{Block, BlockError, BlockHeader, SECTOR, VERSION, flags};
use crate::error::WalError;
use crate::files::Files;
use crate::identity::Identity;
use crate::segment::{DATA_START, check_header, generation_of, is_bad_header, name_of};
use crate::tail_bound::{Damage, TailBound};
use kattu_raft::{GroupId, Lsn, SharedBytes};
use kattu_wire::RecordError;
use std::collections::BTreeMap;
use std::fmt;

/// A place in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Number of the segment, from 1.
    pub segment: u64,
    /// Byte in it.
    pub offset: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}:{}", self.segment, self.offset))
    }
}

/// A block that the scan has accepted.
pub(crate) struct Met<'a> {
    pub at: Position,
    pub block: &'a Block,
    /// The whole segment; the block's ranges are of these bytes.
    pub segment: &'a SharedBytes,
}

/// Bytes behind the last block that were never acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Torn {
    /// Why the log ends here.
    pub what: String,
    /// Ranges to clear: start and stop, ascending.
    pub ranges: Vec<(Position, u64)>,
    /// Whole blocks among them.
    pub blocks: u64,
}

/// The result of a scan.
#[derive(Debug)]
pub(crate) struct Scanned {
    /// All segments; the ones behind the end are spare.
    pub segments: Vec<SegmentFound>,
    /// Right behind the last block.
    pub end: Position,
    /// The last block's checksum and number.
    pub chain: u32,
    pub number: u64,
    /// Highest synced mark.
    pub synced: Position,
    /// The last block's flags.
    pub flags: u16,
    /// The last record number of each group.
    pub lsns: BTreeMap<GroupId, Lsn>,
    pub torn: Option<Torn>,
    /// Synced blocks are gone: the log is damaged from its end on.
    pub damage: Option<Damage>,
    /// Segments whose own headers are bad, while their blocks are good.
    pub headless: Vec<(u64, WalError)>,
}

impl Scanned {
    /// The damage of the log, as an error; a torn tail is none.
    pub fn judge(&self) -> Result<(), WalError> {
        match (&self.damage, self.headless.first()) {
            (Some(damage), _) => Err(damage.error.clone()),
            (None, Some((_, error))) => Err(error.clone()),
            (None, None) => Ok(()),
        }
    }
}

/// A segment that was scanned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentFound {
    pub generation: u64,
    pub len: u64,
    /// Its first block is a start block: the segments before it can be removed.
    pub is_start: bool,
    /// Bytes of its blocks.
    pub block_bytes: u64,
}

/// Numbers of the segments in the directory, ascending without a gap.
fn list(files: &dyn Files) -> Result<Vec<u64>, WalError> {
    let names = files.names().map_err(|error| WalError::io(&files.place(), "list", &error))?;
    let mut generations: Vec<u64> = names.iter().filter_map(|name| generation_of(name)).collect();
    generations.sort_unstable();
    let Some(&first) = generations.first() else {
        return Err(WalError::damaged(&name_of(1), 0, "the file is missing"));
    };
    for (expected, found) in (first..).zip(&generations) {
        if expected != *found {
            return Err(WalError::damaged(&name_of(expected), 0, "the file is missing"));
        }
    }
    Ok(generations)
}

/// Reads a segment into the memory of `buffer`.
fn read_segment(files: &dyn Files, generation: u64, mut buffer: Vec<u8>) -> Result<SharedBytes, WalError> {
    let name = name_of(generation);
    let read = |error: std::io::Error| WalError::io(&name, "read", &error);
    let file = files.open(&name).map_err(read)?;
    buffer.resize(file.bytes().map_err(read)? as usize, 0);
    file.read_at(0, &mut buffer).map_err(read)?;
    Ok(SharedBytes::from(buffer))
}

/// Scans the whole log up to its end or to the first damage, and passes every block to `visit`.
pub(crate) fn scan(
    files: &dyn Files,
    identity: &Identity,
    visit: &mut dyn FnMut(Met<'_>) -> Result<(), WalError>,
) -> Result<Scanned, WalError> {
    let generations = list(files)?;
    let first = Position { segment: generations[0], offset: DATA_START };
    let mut scanned = Scanned {
        segments: Vec::new(),
        end: first,
        chain: 0,
        number: 0,
        synced: Position::default(),
        flags: 0,
        lsns: BTreeMap::new(),
        torn: None,
        damage: None,
        headless: Vec::new(),
    };
    // Why the log ends at `scanned.end`, once it does.
    let mut ended: Option<String> = None;
    let mut torn_ranges = Vec::new();
    let mut torn_blocks = 0;
    let mut tail_bound = TailBound::default();

    // The segments before this one. Entries of the last one may be held; the memory of the one before takes the next.
    let mut before = [SharedBytes::default(), SharedBytes::default()];

    for &generation in &generations {
        let buffer = core::mem::take(&mut before[0]).into_buffer().unwrap_or_default();
        let bytes = read_segment(files, generation, buffer)?;
        before = [core::mem::take(&mut before[1]), bytes.clone()];
        let file_id = identity.file_id(generation);
        let is_recycled = match check_header(identity, generation, &bytes) {
            Ok(is_recycled) => is_recycled,
            Err(error) => {
                // A spare segment without blocks may be made again; a segment of the log may not.
                let blocks = whole_blocks(&bytes, DATA_START as usize, file_id, generation).count();
                if matches!(error, WalError::OtherFormat { .. }) {
                    return Err(error);
                }
                let first = Block::parse(&bytes, DATA_START as usize, file_id, generation);
                let goes_on = first.is_ok_and(|block| ended.is_some() || follow(&scanned, block).is_ok());
                match (ended.is_some(), blocks) {
                    (true, 0) => {
                        let start = Position { segment: generation, offset: 0 };
                        torn_ranges.push((start, bytes.len() as u64));
                        continue;
                    }
                    // The header holds nothing that the name, the identity and the blocks do not hold, too.
                    _ if goes_on && is_bad_header(&bytes) => {
                        scanned.headless.push((generation, error));
                        true
                    }
                    _ => return Err(error),
                }
            }
        };
        let mut found = SegmentFound { generation, len: bytes.len() as u64, is_start: false, block_bytes: 0 };

        let mut at = DATA_START as usize;
        let mut rotated = false;
        while ended.is_none() && !rotated {
            scanned.end = Position { segment: generation, offset: at as u64 };
            let parsed = Block::parse(&bytes, at, file_id, generation);
            if scanned.end == first && first.segment != 1 {
                begin(&mut scanned, &parsed)?;
            }
            match parsed.and_then(|block| follow(&scanned, block)) {
                Ok(block) => {
                    found.is_start |=
                        scanned.end.offset == DATA_START && block.header.flags & flags::START != 0;
                    scanned.chain = block.crc;
                    scanned.number = block.header.number;
                    scanned.synced = scanned.synced.max(block.header.synced);
                    scanned.flags = block.header.flags;
                    scanned.lsns.extend(block.groups.iter().map(|row| (row.group, row.lsn)));
                    rotated = block.header.flags & flags::ROTATE != 0;
                    found.block_bytes += block.stop() - block.header.offset;
                    at = block.stop() as usize;
                    visit(Met { at: scanned.end, block: &block, segment: &bytes })?;
                }
                Err(BlockError::Version(found)) => return Err(other_format(generation, found.into())),
                Err(BlockError::Record { error: RecordError::Version { found }, .. }) => {
                    return Err(other_format(generation, found.into()));
                }
                Err(error) => ended = Some(error.to_string()),
            }
        }
        scanned.segments.push(found);
        if rotated {
            scanned.end = Position { segment: generation + 1, offset: DATA_START };
            continue;
        }

        // The log ended in this segment or before it: from here on nothing may have been acknowledged.
        if scanned.end.segment == generation && Block::parse(&bytes, at, file_id, generation).is_err() {
            tail_bound.take_ruin(&bytes, at, file_id, generation, scanned.number + 1);
        }
        for block in whole_blocks(&bytes, at, file_id, generation) {
            if scanned.damage.is_none() && scanned.end < block.header.synced {
                let Position { segment, offset } = scanned.end;
                let what = ended.as_deref().unwrap_or_default();
                let what = format!(
                    "{what}; it was synced before the block at {generation}:{} was written",
                    block.header.offset
                );
                let error = WalError::damaged(&name_of(segment), offset, what);
                scanned.damage = Some(Damage { error, tail_bound: TailBound::default() });
            }
            tail_bound.take(&block, &bytes, &scanned.lsns);
            torn_blocks += 1;
        }
        let start = Position { segment: generation, offset: at as u64 };
        if is_recycled {
            torn_ranges.extend(own_headers(&bytes, start, file_id));
        } else if let Some(last) = bytes[at.min(bytes.len())..].iter().rposition(|&byte| byte != 0) {
            torn_ranges.push((start, (at + last + 1) as u64));
        }
    }
    let Some(what) = ended else {
        // The rotation mark is written only when the next segment is durable.
        return Err(WalError::damaged(&name_of(scanned.end.segment), 0, "the file is missing"));
    };
    if let Some(damage) = &mut scanned.damage {
        damage.tail_bound = tail_bound;
    }
    if !torn_ranges.is_empty() {
        scanned.torn = Some(Torn { what, ranges: torn_ranges, blocks: torn_blocks });
    }
    Ok(scanned)
}

fn other_format(generation: u64, found: u32) -> WalError {
    WalError::OtherFormat { file: name_of(generation), found, supported: VERSION.into() }
}

/// The log begins in the middle: its first block must be a start block.
fn begin(scanned: &mut Scanned, first: &Result<Block, BlockError>) -> Result<(), WalError> {
    let Position { segment, offset } = scanned.end;
    match first {
        Ok(block) if block.header.flags & flags::START != 0 => {
            (scanned.chain, scanned.number) = (block.header.chain, block.header.number.wrapping_sub(1));
            Ok(())
        }
        Ok(_) => Err(WalError::damaged(&name_of(segment - 1), 0, "the file is missing")),
        Err(BlockError::Version(found)) => Err(other_format(segment, (*found).into())),
        Err(BlockError::Record { error: RecordError::Version { found }, .. }) => {
            Err(other_format(segment, (*found).into()))
        }
        Err(error) => {
            let what = format!("{error}; the log's first block is needed, and was synced");
            Err(WalError::damaged(&name_of(segment), offset, what))
        }
    }
}

/// Checks that `block` is the one after the last.
fn follow(scanned: &Scanned, block: Block) -> Result<Block, BlockError> {
    if block.header.chain != scanned.chain {
        return Err(BlockError::Chain { found: block.header.chain, expected: scanned.chain });
    }
    if block.header.number != scanned.number + 1 {
        return Err(BlockError::Misplaced);
    }
    Ok(block)
}

/// Sectors from `start` on that hold the header of a block of this very segment, whole or not.
fn own_headers(bytes: &[u8], start: Position, file_id: u64) -> impl Iterator<Item = (Position, u64)> {
    let sectors = (start.offset as usize..bytes.len()).step_by(SECTOR);
    sectors.filter_map(move |at| {
        let place = Position { offset: at as u64, ..start };
        let found = BlockHeader::take(&bytes[at..], file_id, place);
        let is_own = matches!(found, Ok(_) | Err(BlockError::Length(_)));
        is_own.then_some((place, (at + SECTOR).min(bytes.len()) as u64))
    })
}

/// The whole blocks from `from` on, wherever they begin.
fn whole_blocks(bytes: &[u8], from: usize, file_id: u64, generation: u64) -> impl Iterator<Item = Block> {
    let sectors = (from..bytes.len()).step_by(SECTOR);
    sectors.filter_map(move |at| Block::parse(bytes, at, file_id, generation).ok())
}
