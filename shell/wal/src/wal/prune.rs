//! Pruning: which segments are no longer needed, and the start block that lets a log begin anywhere.
//!
//! A segment can be removed when all of this holds:
//!
//! 1. No entry above the bases is in it, or before it.
//! 2. The records of these bases are durable.
//! 3. A later segment begins with a durable start block: it records what the log held there, so that replay needs
//!    nothing older.
//! 4. A good snapshot covers each base. [fault-model ST9]
//!
//! They are removed oldest first, one at a time, each durably before the next (`segment.rs`).
//! Knows nothing of: the schedule of snapshots.

use super::Wal;
use crate::block::{GroupRow, HEADER_BYTES, ROW_BYTES, flags, next_block};
use crate::error::WalError;
use crate::pending::Pending;
use crate::scan::SegmentFound;
use crate::segment::{DATA_START, Used};
use kattu_raft::LogIndex;
use kattu_wire::record::{HEADER_BYTES as RECORD_HEADER_BYTES, base_encode};

impl Wal {
    /// Finds the segments that are no longer needed. Everything written is durable.
    pub(super) fn free_used(&mut self) {
        // Without a base no segment is removed, not even one with truncated entries only: then a log without its first
        // segment is known to be damaged.
        let is_based = |group: &super::Group| group.written.base.index != LogIndex(0);
        if !core::mem::take(&mut self.rebased) || !self.groups.values().any(is_based) {
            return;
        }
        let current = self.current.generation;
        let each_needs = self.groups.values().filter_map(|group| group.index.first_segment());
        let needed = each_needs.min().unwrap_or(current);
        let starts = self.full.iter().filter(|found| found.is_start).map(|found| found.generation);
        let starts = starts.chain(self.current_is_start.then_some(current));
        let Some(first) = starts.filter(|generation| *generation <= needed).max() else { return };
        let before = self.used.len();
        while let Some(SegmentFound { generation, len, .. }) =
            self.full.pop_front_if(|found| found.generation < first)
        {
            self.used.push_back(Used { generation, len });
        }
        if before < self.used.len() {
            (self.cycle, self.cycle_began) = (current - self.cycle_began, current);
        }
        self.reader.let_go(first);
    }

    /// The used segments, if a good snapshot covers what they held.
    pub(super) fn may_go(&self) -> Vec<Used> {
        if self.used.is_empty() {
            return Vec::new();
        }
        let is_covered = self.groups.iter().all(|(id, group)| {
            let base = group.written.base.index;
            base == LogIndex(0) || self.snapshots.covers(*id, base)
        });
        if is_covered { self.used.iter().copied().collect() } else { Vec::new() }
    }

    /// Bytes of a start block.
    pub(super) fn start_block_bytes(&self) -> u64 {
        let of_group = |starts: usize| RECORD_HEADER_BYTES + 8 + starts * 16 + ROW_BYTES;
        let groups: usize =
            self.groups.values().map(|group| of_group(group.written.term_starts().len())).sum();
        next_block(0, HEADER_BYTES + groups, self.options.sector_bytes)
    }

    /// Bytes of the start block that is still to be written into the current segment.
    pub(super) fn start_bytes(&self) -> u64 {
        let is_due = self.offset == DATA_START && self.current.generation != 1;
        if is_due { self.start_block_bytes() } else { 0 }
    }

    /// Writes the start block, if it is due.
    pub(super) fn write_start(&mut self) -> Result<(), WalError> {
        if self.start_bytes() == 0 {
            return Ok(());
        }
        let mut pending = Pending::new(self.options.sector_bytes);
        let mut rows = Vec::with_capacity(self.groups.len());
        for (&id, group) in &self.groups {
            let held = &group.written;
            pending.restate(&base_encode(crc32c::crc32c_append, id, held.base, &held.payload()));
            rows.push(GroupRow { records: 1, ..group.told });
        }
        pending.seal(flags::START, &rows);
        let chain = pending.finish(0, self.header_at(self.offset));
        self.put(&pending.buffer).map_err(|error| self.poison(error))?;
        (self.chain, self.number) = (chain, self.number + 1);
        self.offset += pending.buffer.len() as u64;
        self.current_is_start = true;
        self.marked = false;
        self.stats.blocks += 1;
        self.stats.writes += 1;
        self.stats.bytes_written += pending.buffer.len() as u64;
        Ok(())
    }
}
