//! Tail bound: blocks that can still be read behind damage bound where the log ended. [fault-model ST7]
//!
//! ```text
//!   … ├ block 7 ┤ ✗✗✗✗✗✗✗ ├ block 9: entries up to 4.31 ┤ ├ block 10: a mark ┤
//!               end of the accepted log
//! ```
//!
//! These blocks are not accepted as log, only as a bound: the last entry that this disk has acknowledged is not behind
//! the newest that they name, if no unreadable block can have named a newer one. A block whose payload alone is bad
//! still names its entries, since each record's header has a checksum of its own. Without a better bound the term is
//! the bound: no entry has a newer term than the newest that the member has seen.
//!
//! A disk may also return an older content of a sector: a whole block of this very place, from before the log was cut
//! there once. Only its neighbours show that: if of two blocks the later does not follow the earlier, or has a lower
//! number, one is not the last that was written, and bounds nothing. Nor does a block whose record numbers are below
//! those of the accepted log: after a cut, numbers go on above all that were seen.
//! Knows nothing of: files, repair.

use crate::block::{Block, BlockHeader, CRC_AT, HEADER_BYTES};
use crate::error::WalError;
use crate::extent::Extent;
use crate::scan::Position;
use kattu_raft::{EntryId, EntryKind, GroupId, LogIndex, Lsn, Membership, Term};
use kattu_wire::record::{HEADER_BYTES as RECORD_HEADER_BYTES, RecordHeader, RecordKind};
use std::collections::{BTreeMap, BTreeSet};

/// Damage to a log: synced blocks are gone.
#[derive(Debug)]
pub(crate) struct Damage {
    /// The error for the operator, with the place.
    pub error: WalError,
    /// The bound from the blocks behind it.
    pub tail_bound: TailBound,
}

/// The readable blocks behind the damage.
#[derive(Debug, Default)]
pub(crate) struct TailBound {
    groups: BTreeMap<GroupId, GroupTailBound>,
    /// Blocks that could be read, or whose record headers could, by their numbers.
    readable: BTreeMap<u64, Links>,
    /// The highest number so far.
    highest: u64,
    /// Numbers that do not ascend from place to place.
    disordered: BTreeSet<u64>,
}

/// The links of a block to its neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Links {
    /// Checksum of the block before it, as this block has it.
    pub chain: u32,
    /// Its own checksum.
    pub crc: u32,
}

/// The last block of the accepted log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Believed {
    pub number: u64,
    pub crc: u32,
}

/// The bound of one group.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GroupTailBound {
    /// The newest entry that a block names.
    pub newest: EntryId,
    /// The last block that names an entry.
    named_in: u64,
    pub commit: LogIndex,
    pub lsn: Lsn,
    pub slots: u64,
    /// The number of members of the largest configuration.
    pub members: usize,
}

impl TailBound {
    pub fn group(&self, group: GroupId) -> GroupTailBound {
        self.groups.get(&group).copied().unwrap_or_default()
    }

    /// Adds a whole block; `believed` holds the last record number of each group in the accepted log.
    pub fn take(&mut self, block: &Block, segment: &[u8], believed: &BTreeMap<GroupId, Lsn>) {
        if block.groups.iter().any(|row| Some(&row.lsn) < believed.get(&row.group)) {
            return; // from before a cut
        }
        let number = block.header.number;
        self.reads(number, Links { chain: block.header.chain, crc: block.crc });
        for (range, record) in &block.records {
            let payload = &segment[range.start + RECORD_HEADER_BYTES..range.end];
            self.take_record(record, number, payload);
        }
        for row in &block.groups {
            let group = self.groups.entry(row.group).or_default();
            group.commit = group.commit.max(row.commit);
            group.lsn = group.lsn.max(row.lsn);
            group.slots = group.slots.max(row.slots);
        }
    }

    fn take_record(&mut self, record: &RecordHeader, number: u64, payload: &[u8]) {
        let named = match record.kind {
            RecordKind::Entry(_) => record.entry_head().map(|head| head.id),
            RecordKind::Base => {
                let base = EntryId { term: record.term, index: record.index };
                Some(Extent::parse(base, payload).map_or(base, |extent| extent.last))
            }
            RecordKind::Truncate => None,
        };
        let group = self.groups.entry(record.group).or_default();
        if let Some(named) = named {
            group.newest = group.newest.max(named);
            group.named_in = group.named_in.max(number);
        }
        let configures = record.entry_head().is_some_and(|head| head.kind == EntryKind::Config);
        if configures && let Ok((membership, _)) = Membership::decode(payload) {
            group.members = group.members.max(membership.members().count());
        }
    }

    /// Adds the damaged block of this number at the place where the accepted log ends. It counts only if every record
    /// in it can be identified.
    pub(crate) fn take_ruin(
        &mut self,
        segment: &[u8],
        at: usize,
        file_id: u64,
        generation: u64,
        number: u64,
    ) {
        let bytes = segment.get(at..).unwrap_or_default();
        let place = Position { segment: generation, offset: at as u64 };
        let Ok(header) = BlockHeader::take(bytes, file_id, place) else { return };
        let end = HEADER_BYTES + header.body;
        let (mut next, mut records) = (HEADER_BYTES, Vec::new());
        while next < end {
            let Ok(record) = RecordHeader::parse(crc32c::crc32c_append, &bytes[next..end], end - next) else {
                return;
            };
            // A base names its last entry in its payload, which may be the damaged part.
            if matches!(record.kind, RecordKind::Base) {
                return;
            }
            next += record.len;
            records.push(record);
        }
        if header.number != number || next != end || records.len() != header.records as usize {
            return;
        }
        let crc = u32::from_le_bytes(bytes[CRC_AT].try_into().expect("four bytes"));
        self.reads(number, Links { chain: header.chain, crc });
        for record in records {
            self.take_record(&record, number, &[]);
        }
    }

    fn reads(&mut self, number: u64, links: Links) {
        self.readable.insert(number, links);
        if number <= self.highest {
            self.disordered.extend([number, self.highest]);
        }
        self.highest = self.highest.max(number);
    }

    /// A position that is surely not before the last entry of a group that this disk has acknowledged. `believed` is
    /// the last block of the accepted log, `last` its last entry, `term` the newest term that the member has seen.
    pub fn vote_floor(&self, id: GroupId, believed: Believed, last: EntryId, term: Term) -> EntryId {
        let group = self.group(id);
        let newest = self.readable.last_key_value().map_or(0, |(&number, _)| number);
        // The last accepted block may itself be an older content of its place.
        let first = believed.number + u64::from(!self.is_doubtful(believed, believed.number));
        let unreadable = (first..=newest)
            .rev()
            .find(|&number| !self.readable.contains_key(&number) || self.is_doubtful(believed, number));
        let is_bounded = unreadable.is_none_or(|number| number < group.named_in);
        if is_bounded { group.newest.max(last) } else { EntryId { term: term.next(), index: LogIndex(0) } }
    }

    /// Whether the block of this number may not be the one that was written last.
    fn is_doubtful(&self, believed: Believed, number: u64) -> bool {
        let crc_of = |number: u64| match number == believed.number {
            true => Some(believed.crc),
            false => self.readable.get(&number).map(|links| links.crc),
        };
        // Whether a block follows the one before it, if both are there.
        let follows =
            |number: u64| Some(crc_of(number.checked_sub(1)?)? == self.readable.get(&number)?.chain);
        let breaks_before = follows(number) == Some(false) && follows(number + 1) != Some(true);
        self.disordered.contains(&number) || breaks_before || follows(number + 1) == Some(false)
    }
}
