//! The log of one member: append, write, sync, read back.
//!
//! 1. `append` gathers records; term and vote go to the slots instead.
//! 2. `write` stores term and vote durably, then writes everything gathered as one block.
//! 3. `sync` makes it durable and returns up to which record. Only then may anything be acknowledged. [fault-model ST2]
//!
//! After a failed write or sync the content of the disk is unknown, so every later call fails: the process must stop
//! and recover from what it reads. [fault-model ST3] A full disk is not such a failure: segments are made ahead, and
//! unwritten records wait.
//!
//! A base records that a snapshot covers the log up to there. Once it is durable, and the snapshot exists and is good,
//! the segments that hold nothing else are removed or recycled (`prune.rs`). At start the newest good snapshot must
//! reach the log's first entry (`overlap.rs`). [fault-model ST9, ST11]
//! Knows nothing of: threads, clocks, commands.

mod open;
mod overlap;
mod prune;
mod readback;
mod repair;
mod room;
mod settle;

pub use self::readback::{LogReader, ReadPlan};

use crate::block::{BlockHeader, GroupRow, ROW_BYTES, SECTOR, flags};
use crate::dir::DataDir;
use crate::error::WalError;
use crate::extent::Extent;
use crate::files::{Files, LockGuard};
use crate::identity::Identity;
use crate::index::Index;
use crate::pending::{Change, Pending};
use crate::scan::{Position, SegmentFound};
use crate::segment::{DATA_START, Gate, Segment, Used, name_of};
use crate::slots::Slots;
use crate::snapshot::SnapshotStore;
use kattu_raft::{EntryId, GroupId, HardState, LogBody, LogIndex, LogRecord, Lsn, Recovered};
use kattu_wire::record::{base_encode, truncate_encode};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The layout of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalOptions {
    /// Bytes of a segment. One that must hold a larger block is made larger.
    pub segment_bytes: u64,
    /// Bytes set aside so that a full disk does not stop term, vote and truncation; 0 for none. [fault-model ST15]
    pub reserve_bytes: u64,
    /// Bytes of newest entries returned at recovery, per group.
    pub window_bytes: usize,
    /// A block that reaches this size is closed and the next one begun: this bounds the memory of a reader.
    pub block_bytes: usize,
    /// Blocks are padded to a multiple of this, the sector of the disk: a power of two from 512 to 4096. A power cut
    /// may ruin a whole sector that was being written; it must not hold synced bytes. [fault-model ST5]
    pub sector_bytes: usize,
}

impl Default for WalOptions {
    fn default() -> WalOptions {
        WalOptions {
            segment_bytes: 16 << 20,
            reserve_bytes: 64 << 20,
            window_bytes: 8 << 20,
            block_bytes: 1 << 20,
            sector_bytes: SECTOR,
        }
    }
}

/// Counters and sizes of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalStats {
    /// Syncs of segments and slots since it was opened.
    pub syncs: u64,
    /// Writes of segments and slots since it was opened.
    pub writes: u64,
    /// Bytes written to segments since it was opened, padding included.
    pub bytes_written: u64,
    /// Blocks written since it was opened, marks included.
    pub blocks: u64,
    /// Records appended since it was opened, those without bytes of their own included.
    pub records: u64,
    /// Segments that exist, including spare ones and those to be removed.
    pub segments: u64,
    /// Segments removed or recycled since it was opened.
    pub pruned: u64,
    /// Rotations to the next segment since it was opened.
    pub rotations: u64,
    /// Bytes of blocks in the log, without those that are no longer needed.
    pub log_bytes: u64,
    /// Bytes of all segments.
    pub allocated_bytes: u64,
    /// Torn tails that were cut when it was opened: 0 or 1.
    pub torn_tails: u64,
    /// Bytes of the torn tail.
    pub torn_bytes: u64,
}

/// One group while the log is open.
#[derive(Debug)]
struct Group {
    slots: Slots,
    /// Term and vote that wait for the slots.
    hard: Option<(HardState, Lsn)>,
    index: Index,
    /// The extent of the log including appended entries that are not written yet.
    extent: Extent,
    /// The extent of the written log.
    written: Extent,
    /// The group's row in the newest written block that has one.
    told: GroupRow,
    commit: LogIndex,
    /// Highest record appended, and the highest that `sync` has reported.
    appended: Lsn,
    durable: Lsn,
    /// Records in the growing block.
    records: u32,
    /// The next block's group table must have a row for the group.
    touched: bool,
    /// The growing block holds entries: a truncation must begin a new block.
    has_entries: bool,
    /// Where the log ended before damage cut it, until it has grown there again.
    vote_floor: Option<EntryId>,
    /// A vote floor that other members reported, to be made durable before anything else.
    told_vote_floor: Option<EntryId>,
}

/// The open log.
#[derive(Debug)]
pub struct Wal {
    files: Arc<dyn Files>,
    identity: Arc<Identity>,
    options: WalOptions,
    groups: BTreeMap<GroupId, Group>,
    pending: Pending,
    rows: Vec<GroupRow>,
    current: Segment,
    /// Where the next block goes.
    offset: u64,
    /// Everything before this is durable.
    synced: Position,
    /// The last block's checksum and number.
    chain: u32,
    number: u64,
    /// The last block is a mark, and everything before it was durable when it was written.
    marked: bool,
    spare: VecDeque<Segment>,
    /// The segments before the current one, oldest first.
    full: VecDeque<SegmentFound>,
    /// The current segment begins with a start block.
    current_is_start: bool,
    /// Segments that are no longer needed, oldest first; they are before the full ones.
    used: VecDeque<Used>,
    /// A base was written since the last search for segments that are no longer needed.
    rebased: bool,
    /// A task is running.
    task: bool,
    gate: Gate,
    has_reserve: bool,
    /// The reserve was given back since the running task began.
    freed_reserve: bool,
    /// Segments that the log filled between the last two times that some were no longer needed, and the current segment
    /// at the last of these times.
    cycle: u64,
    cycle_began: u64,
    snapshots: SnapshotStore,
    complaints: Vec<WalError>,
    poisoned: Option<String>,
    stats: WalStats,
    reader: LogReader,
    _lock: Box<dyn LockGuard>,
}

impl Wal {
    /// Recovers the log of a directory that has an identity: cuts a torn tail, syncs what it read, and returns the
    /// state of each group. [fault-model ST3, ST6]
    ///
    /// # Errors
    /// [`WalError::Damaged`] with file and offset; [`WalError::OtherFormat`]; [`WalError::Io`]. A lost snapshot is no
    /// error: see [`Wal::complaints`].
    ///
    /// # Panics
    /// If the directory has no identity yet.
    pub fn open(dir: DataDir, options: WalOptions) -> Result<(Wal, BTreeMap<GroupId, Recovered>), WalError> {
        Wal::open_or_repair(dir, options, false)
    }

    /// As [`Wal::open`], but a damaged log of a member that has peers is cut before the damage.
    /// [`Recovered::vote_floor`] bounds where it ended; the leader sends the lost entries again. [fault-model ST7]
    /// [`Wal::complaints`] reports the repair.
    ///
    /// # Errors
    /// As [`Wal::open`]; damage if a lone member would lose entries, if a vote is lost, or if no snapshot covers a lost
    /// beginning of the log.
    ///
    /// # Panics
    /// If the directory has no identity yet.
    pub fn repair(
        dir: DataDir,
        options: WalOptions,
    ) -> Result<(Wal, BTreeMap<GroupId, Recovered>), WalError> {
        Wal::open_or_repair(dir, options, true)
    }

    /// The identity of the log's directory.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The snapshots beside the log. Any thread may use them.
    #[must_use]
    pub fn snapshots(&self) -> SnapshotStore {
        self.snapshots.clone()
    }

    /// Defects that were found at the opening and did not prevent it: [`WalError::Repaired`], damaged snapshots, and
    /// [`WalError::Uncovered`] if no snapshot is left that reaches the log.
    #[must_use]
    pub fn complaints(&self) -> &[WalError] {
        &self.complaints
    }

    /// Gathers records of one group, in order. Nothing is written yet.
    ///
    /// # Errors
    /// [`WalError::Poisoned`].
    ///
    /// # Panics
    /// If the records do not continue the group's log: such records must never reach a disk.
    pub fn append(&mut self, group: GroupId, records: &[LogRecord]) -> Result<(), WalError> {
        self.check()?;
        for record in records {
            self.append_one(group, record);
        }
        Ok(())
    }

    fn append_one(&mut self, id: GroupId, record: &LogRecord) {
        self.stats.records += 1;
        let group = self.groups.get_mut(&id).expect("the identity names all groups");
        assert!(group.appended < record.lsn, "record {} after {}", record.lsn.0, group.appended.0);
        group.appended = record.lsn;
        match &record.body {
            LogBody::HardState(hard) => group.hard = Some((*hard, record.lsn)),
            LogBody::VoteFloor(vote_floor) => {
                group.told_vote_floor = group.told_vote_floor.max(Some(*vote_floor));
                group.touched = true;
            }
            LogBody::Commit(index) => {
                let last = group.extent.last;
                assert!(*index <= last.index, "commit {} past the last entry {last}", index.0);
                assert!(group.commit <= *index, "commit {} after {}", index.0, group.commit.0);
                group.commit = *index;
                group.touched = true;
            }
            LogBody::Truncate(from) => {
                let (from, last, commit) = (*from, group.extent.last, group.commit);
                assert!(commit < from, "truncation from {} on, committed up to {}", from.0, commit.0);
                assert!(from <= last.index, "truncation from {} on, the last entry is {last}", from.0);
                if group.has_entries {
                    self.seal(0);
                }
                let record = truncate_encode(crc32c::crc32c_append, id, from);
                let group = self.groups.get_mut(&id).expect("looked up above");
                group.extent.truncate(from);
                group.touch();
                self.pending.push(&record, Change::Truncate { group: id, from });
            }
            LogBody::Entry(entry) => {
                let new = entry.id();
                assert!(group.extent.is_next(new), "entry {new} does not follow {}", group.extent.last);
                group.extent.extend(new, 1);
                group.has_entries = true;
                group.touch();
                self.pending.push(entry.record(), Change::Entries { group: id, first: new, count: 1 });
            }
            LogBody::Base(base) => {
                let base = *base;
                let (before, commit) = (group.extent.base, group.commit);
                assert!(before.index <= base.index, "base {base} after {before}");
                let is_held = group.extent.holds(base);
                assert!(
                    is_held || commit < base.index,
                    "base {base} contradicts a log committed up to {}",
                    commit.0
                );
                if group.has_entries {
                    self.seal(0);
                }
                let group = self.groups.get_mut(&id).expect("looked up above");
                group.extent.rebase(base);
                group.commit = commit.max(base.index);
                group.touch();
                let record = base_encode(crc32c::crc32c_append, id, base, &group.extent.payload());
                self.pending.push(&record, Change::Base { group: id, base });
            }
        }
        if self.options.block_bytes <= self.pending.open_bytes() {
            self.seal(0);
        }
    }

    /// Whether a sync would make anything durable. Commit marks alone do not count: they are written with the next
    /// block.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        !self.pending.is_empty()
            || self.groups.values().any(|group| group.hard.is_some() || group.told_vote_floor.is_some())
            || self.end() != self.synced
    }

    /// Stores term, vote and vote floor durably, then writes the gathered records.
    ///
    /// # Errors
    /// [`WalError::NoSpace`]: unwritten records wait for the next call. Any other error poisons the log.
    pub fn write(&mut self) -> Result<(), WalError> {
        self.check()?;
        for group in self.groups.values_mut() {
            let Some((hard, lsn)) = group.hard.take() else {
                continue;
            };
            group.touched = true;
            self.stats.writes += 2;
            self.stats.syncs += 1;
            if let Err(error) = group.slots.store(hard, lsn) {
                return Err(self.poison(error));
            }
        }
        self.keep_told_vote_floors()?;
        if self.pending.is_open() {
            self.seal(0);
        }
        self.write_sealed()
    }

    /// Writes, and makes everything written durable. Returns the highest durable record of each group for which it has
    /// changed.
    ///
    /// # Errors
    /// As [`Wal::write`]. After any error but [`WalError::NoSpace`] the process must stop.
    pub fn sync(&mut self) -> Result<Vec<(GroupId, Lsn)>, WalError> {
        self.write()?;
        self.sync_current()?;
        let mut durable = Vec::new();
        for (&id, group) in &mut self.groups {
            if group.durable < group.appended {
                group.durable = group.appended;
                durable.push((id, group.durable));
            }
        }
        Ok(durable)
    }

    /// Writes and syncs an empty block if the newest blocks are not under a synced mark yet, or a commit mark is not
    /// written. Call it after a short idle time. Returns whether it wrote a block. [fault-model ST6]
    ///
    /// # Errors
    /// As [`Wal::sync`].
    pub fn mark(&mut self) -> Result<bool, WalError> {
        self.write_mark(flags::MARK)
    }

    /// Syncs everything and marks the log as closed.
    ///
    /// # Errors
    /// As [`Wal::sync`].
    pub fn close(mut self) -> Result<(), WalError> {
        self.sync()?;
        self.write_mark(flags::CLOSE).map(|_| ())
    }

    fn write_mark(&mut self, flags: u16) -> Result<bool, WalError> {
        self.check()?;
        if self.is_dirty() {
            return Ok(false); // not an idle moment; the next block has the synced mark
        }
        for group in self.groups.values_mut() {
            match group.slots.settle() {
                Ok(false) => {}
                Ok(true) => self.stats.syncs += 1,
                Err(error) => return Err(self.poison(error)),
            }
        }
        let unsaid = self.groups.values().any(|group| group.touched);
        if self.marked && !unsaid {
            return Ok(false);
        }
        self.seal(flags);
        self.write_sealed()?;
        self.sync_current()?;
        self.marked = true;
        Ok(true)
    }

    /// Counters and sizes of the log.
    #[must_use]
    pub fn stats(&self) -> WalStats {
        let spare: u64 = self.spare.iter().map(|segment| segment.len).sum();
        let full: u64 = self.full.iter().map(|segment| segment.len).sum();
        let used: u64 = self.used.iter().map(|segment| segment.len).sum();
        let full_blocks: u64 = self.full.iter().map(|segment| segment.block_bytes).sum();
        WalStats {
            log_bytes: full_blocks + self.offset - DATA_START,
            segments: (self.used.len() + self.full.len() + 1 + self.spare.len()) as u64,
            allocated_bytes: used + full + self.current.len + spare,
            ..self.stats
        }
    }

    /// First index of a group's log; one after its last if it is empty.
    ///
    /// # Panics
    /// If there is no such group.
    #[must_use]
    pub fn first_index(&self, group: GroupId) -> LogIndex {
        self.groups[&group].extent.base.index.next()
    }

    fn next_generation(&self) -> u64 {
        self.spare.back().unwrap_or(&self.current).generation + 1
    }

    fn end(&self) -> Position {
        Position { segment: self.current.generation, offset: self.offset }
    }

    fn check(&self) -> Result<(), WalError> {
        match &self.poisoned {
            Some(first) => Err(WalError::Poisoned { first: first.clone() }),
            None => Ok(()),
        }
    }

    fn poison(&mut self, error: WalError) -> WalError {
        self.poisoned = Some(error.to_string());
        error
    }

    /// Completes the growing block; its table has a row for every group that changed.
    fn seal(&mut self, flags: u16) {
        self.rows.clear();
        for (&id, group) in &mut self.groups {
            if !group.touched {
                continue;
            }
            self.rows.push(GroupRow {
                group: id,
                records: group.records,
                lsn: group.appended,
                commit: group.commit,
                slots: group.slots.newest.generation,
            });
            (group.records, group.touched, group.has_entries) = (0, false, false);
        }
        self.pending.seal(flags, &self.rows);
    }

    /// Writes complete blocks, as many at once as fit into a segment.
    fn write_sealed(&mut self) -> Result<(), WalError> {
        let sector = self.options.sector_bytes;
        while self.pending.written < self.pending.sealed.len() {
            let first = self.pending.written;
            let need = self.pending.sealed[first].range.len() as u64;
            self.align()?;
            if self.current.data_end(sector) < self.offset + self.start_bytes() + need {
                self.rotate(need)?;
            }
            self.write_start()?;
            let (mut end, mut block) = (self.offset, first);
            while let Some(sealed) = self.pending.sealed.get(block) {
                let stop = end + sealed.range.len() as u64;
                if self.current.data_end(sector) < stop {
                    break;
                }
                let place = self.header_at(end);
                self.chain = self.pending.finish(block, place);
                self.number += 1;
                (end, block) = (stop, block + 1);
            }
            let range = self.pending.sealed[first].range.start..self.pending.sealed[block - 1].range.end;
            self.put(&self.pending.buffer[range.clone()]).map_err(|error| self.poison(error))?;
            let mut start = self.offset;
            for sealed in first..block {
                start = self.note(sealed, start);
            }
            self.offset = end;
            self.pending.written = block;
            self.marked = false;
            self.stats.blocks += (block - first) as u64;
            self.stats.writes += 1;
            self.stats.bytes_written += range.len() as u64;
        }
        self.pending.clear();
        Ok(())
    }

    fn put(&self, bytes: &[u8]) -> Result<(), WalError> {
        self.current
            .file
            .write_at(self.offset, bytes)
            .map_err(|error| WalError::io(&name_of(self.current.generation), "write", &error))
    }

    /// The header of a block that goes to `offset`, with only the fields that depend on its place.
    fn header_at(&self, offset: u64) -> BlockHeader {
        BlockHeader {
            flags: 0,
            sector: self.options.sector_bytes,
            chain: self.chain,
            len: 0,
            records: 0,
            groups: 0,
            body: 0,
            file_id: self.identity.file_id(self.current.generation),
            generation: self.current.generation,
            offset,
            number: self.number + 1,
            synced: self.synced,
        }
    }

    /// Adds the block that was written at `start` to the index. Returns where the next one starts.
    fn note(&mut self, block: usize, start: u64) -> u64 {
        let sealed = &self.pending.sealed[block];
        let stop = start + sealed.range.len() as u64;
        let at = Position { segment: self.current.generation, offset: start };
        for change in &self.pending.changes[sealed.changes.clone()] {
            match *change {
                Change::Entries { group, first, count } => {
                    let group = self.groups.get_mut(&group).expect("appended to");
                    group.index.add(first.index, count, at, stop);
                    group.written.extend(first, count);
                }
                Change::Truncate { group, from } => {
                    let group = self.groups.get_mut(&group).expect("appended to");
                    group.index.truncate(from);
                    group.written.truncate(from);
                }
                Change::Base { group, base } => {
                    let group = self.groups.get_mut(&group).expect("appended to");
                    if group.written.rebase(base) {
                        group.index.forget(base.index);
                    } else {
                        group.index.clear();
                    }
                    self.rebased = true;
                }
            }
        }
        for row in self.pending.buffer[sealed.table()].chunks_exact(ROW_BYTES).map(GroupRow::take) {
            self.groups.get_mut(&row.group).expect("the identity names all groups").told = row;
        }
        stop
    }

    fn sync_current(&mut self) -> Result<(), WalError> {
        if self.synced == self.end() {
            return Ok(());
        }
        self.stats.syncs += 1;
        if let Err(error) = self.current.file.sync() {
            let error = WalError::io(&name_of(self.current.generation), "sync", &error);
            return Err(self.poison(error));
        }
        self.synced = self.end();
        self.free_used();
        if self.groups.values().any(|group| group.vote_floor.is_some()) {
            self.forget_vote_floors()?;
        }
        Ok(())
    }
}

/// Frees the directory for its next owner: tasks that still run beside the log change nothing there any more.
impl Drop for Wal {
    fn drop(&mut self) {
        self.gate.close();
        self.snapshots.close();
    }
}

impl Group {
    fn touch(&mut self) {
        self.records += 1;
        self.touched = true;
    }
}
