//! Pending: the blocks that the next write will put into the log.
//!
//! Records are gathered into one buffer, laid out as they will be on disk; fields that depend on the place (segment,
//! offset, chain) are filled in when the place is known. The buffer is kept and used again.
//! Knows nothing of: files, segments.

use crate::block::{BlockHeader, GroupRow, HEADER_BYTES, ROW_BYTES, next_block};
use kattu_raft::{EntryId, GroupId, LogIndex};
use std::ops::Range;

/// Bytes of the buffer that are kept between writes, even after a burst.
const BUFFER_BYTES_KEPT: usize = 4 << 20;

/// A change that a block makes to the index.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    /// Entries of one term.
    Entries {
        group: GroupId,
        first: EntryId,
        count: u64,
    },
    Truncate {
        group: GroupId,
        from: LogIndex,
    },
    Base {
        group: GroupId,
        base: EntryId,
    },
}

/// A block whose content is complete.
#[derive(Clone, Debug)]
pub(crate) struct Sealed {
    pub flags: u16,
    /// Where it is in the buffer, padding included.
    pub range: Range<usize>,
    len: usize,
    body: usize,
    records: u32,
    groups: u32,
    /// Checksum over the records' checksums and the group table.
    crc: u32,
    pub changes: Range<usize>,
}

impl Sealed {
    /// Where the group table is in the buffer.
    pub fn table(&self) -> Range<usize> {
        let start = self.range.start + HEADER_BYTES + self.body;
        start..start + self.groups as usize * ROW_BYTES
    }
}

/// Blocks that are complete, and the one that still grows.
#[derive(Debug)]
pub(crate) struct Pending {
    /// Blocks are padded to a multiple of this.
    sector: usize,
    pub buffer: Vec<u8>,
    pub sealed: Vec<Sealed>,
    /// Blocks of `sealed` that are written already: a full disk can stop a write in the middle.
    pub written: usize,
    pub changes: Vec<Change>,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    start: usize,
    records: u32,
    crc: u32,
    changes_start: usize,
}

impl Pending {
    /// No block yet; for a disk with sectors of `sector` bytes.
    pub fn new(sector: usize) -> Pending {
        let (buffer, sealed, changes) = (Vec::new(), Vec::new(), Vec::new());
        Pending { sector, buffer, sealed, written: 0, changes, open: None }
    }

    /// Bytes that wait to be written.
    pub fn bytes(&self) -> usize {
        let done = self.written.checked_sub(1).map_or(0, |last| self.sealed[last].range.end);
        self.buffer.len() - done
    }

    pub fn is_empty(&self) -> bool {
        self.bytes() == 0
    }

    /// Bytes of the block that still grows.
    pub(crate) fn open_bytes(&self) -> usize {
        self.open.as_ref().map_or(0, |open| self.buffer.len() - open.start)
    }

    fn opened(&mut self) -> &mut Open {
        let (start, changes_start) = (self.buffer.len(), self.changes.len());
        if self.open.is_none() {
            self.buffer.resize(start + HEADER_BYTES, 0);
        }
        self.open.get_or_insert(Open { start, records: 0, crc: 0, changes_start })
    }

    /// Adds a record that does not change the index; its header's checksum ends at byte 48.
    pub(crate) fn restate(&mut self, record: &[u8]) {
        let open = self.opened();
        open.records += 1;
        open.crc = crc32c::crc32c_append(open.crc, &record[44..48]);
        self.buffer.extend_from_slice(record);
    }

    /// Adds a record and what it changes.
    pub fn push(&mut self, record: &[u8], change: Change) {
        self.restate(record);
        let merged = match (self.changes_of_open().last_mut(), change) {
            (
                Some(Change::Entries { group: of, first: begun, count: so_far }),
                Change::Entries { group, first, count },
            ) if *of == group && begun.term == first.term => {
                *so_far += count;
                true
            }
            _ => false,
        };
        if !merged {
            self.changes.push(change);
        }
    }

    fn changes_of_open(&mut self) -> &mut [Change] {
        let start = self.open.as_ref().map_or(self.changes.len(), |open| open.changes_start);
        &mut self.changes[start..]
    }

    /// Completes the growing block with its group table; with `flags` also one without records.
    pub fn seal(&mut self, flags: u16, rows: &[GroupRow]) {
        self.opened();
        let open = self.open.take().expect("opened above");
        let body = self.buffer.len() - open.start - HEADER_BYTES;
        let table_start = self.buffer.len();
        rows.iter().for_each(|row| row.put(&mut self.buffer));
        let crc = crc32c::crc32c_append(open.crc, &self.buffer[table_start..]);
        let len = HEADER_BYTES + body + rows.len() * ROW_BYTES;
        let end = open.start + next_block(0, len, self.sector) as usize;
        self.buffer.resize(end, 0);
        self.sealed.push(Sealed {
            flags,
            range: open.start..end,
            len,
            body,
            records: open.records,
            groups: u32::try_from(rows.len()).expect("groups are few"),
            crc,
            changes: open.changes_start..self.changes.len(),
        });
    }

    /// Whether a block is growing.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Fills in the fields of a sealed block that depend on its place: `place` holds them, the lengths are the block's
    /// own. Returns the block's checksum.
    pub fn finish(&mut self, block: usize, place: BlockHeader) -> u32 {
        let sealed = &self.sealed[block];
        let header = BlockHeader {
            flags: sealed.flags,
            sector: self.sector,
            len: sealed.len,
            records: sealed.records,
            groups: sealed.groups,
            body: sealed.body,
            ..place
        };
        header.put(&mut self.buffer[sealed.range.start..], sealed.crc)
    }

    /// Forgets everything and keeps the memory.
    pub fn clear(&mut self) {
        assert!(self.open.is_none(), "a growing block is not written yet");
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER_BYTES_KEPT);
        self.sealed.clear();
        self.changes.clear();
        self.written = 0;
    }
}
