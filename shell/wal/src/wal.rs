//! The log of one member: append, write, sync, read back.
//!
//! 1. `append` gathers records; term and vote go to the slots instead.
//! 2. `write` stores term and vote durably, then writes everything gathered as one block.
//! 3. `sync` makes it durable and says up to which record. Only then may anything be promised. [fault-model ST2]
//!
//! After a failed write or sync nothing is known about the disk, so every later call fails: the process must stop and
//! recover from what it reads. [fault-model ST3] A full disk is not such a failure: segments are made ahead, and what
//! could not be written waits.
//! Knows nothing of: threads, clocks, what entries mean.

use crate::block::{BlockHeader, GroupRow, SECTOR, flags, padded};
use crate::dir::DataDir;
use crate::error::WalError;
use crate::files::{Files, LockGuard};
use crate::identity::Identity;
use crate::index::Index;
use crate::pending::{Change, Pending};
use crate::replay::Replay;
use crate::segment::{self, DATA_START, Prepared, Segment, SegmentTask, TAIL_BYTES, name_of};
use crate::slots::Slots;
use crate::walk::{Position, Walked, walk};
use kattu_raft::{
    Entry, EntryId, GroupId, HardState, LogBody, LogIndex, LogRecord, Lsn, Recovered, SharedBytes,
};
use kattu_wire::record::{HEADER_BYTES as RECORD_HEADER_BYTES, record_decode, truncate_encode};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// How a log is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalOptions {
    /// Bytes of a segment. One that must hold a larger block is made larger.
    pub segment_bytes: u64,
    /// Bytes set aside so that a full disk does not stop term, vote and truncation; 0 for none. [fault-model ST15]
    pub reserve_bytes: u64,
    /// Bytes of newest entries handed out at recovery, per group.
    pub window_bytes: usize,
    /// A block that reaches this is closed and the next one begun, so that a reader never needs much memory.
    pub block_bytes: usize,
}

impl Default for WalOptions {
    fn default() -> WalOptions {
        WalOptions {
            segment_bytes: 16 << 20,
            reserve_bytes: 64 << 20,
            window_bytes: 8 << 20,
            block_bytes: 1 << 20,
        }
    }
}

/// What the log has done and holds.
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
    /// Segments there are, spare ones included.
    pub segments: u64,
    /// Bytes of blocks in the log.
    pub log_bytes: u64,
    /// Bytes of all segments.
    pub allocated_bytes: u64,
    /// Torn tails that were cut when it was opened: 0 or 1.
    pub torn_tails: u64,
    /// Bytes that were cut.
    pub torn_bytes: u64,
}

/// One group while the log is open.
#[derive(Debug)]
struct Group {
    slots: Slots,
    /// Term and vote that wait for the slots.
    hard: Option<(HardState, Lsn)>,
    index: Index,
    /// Last entry appended.
    last: EntryId,
    /// Last entry written.
    written: LogIndex,
    commit: LogIndex,
    /// Highest record appended, and the highest that `sync` has reported.
    appended: Lsn,
    durable: Lsn,
    /// Records in the growing block.
    records: u32,
    /// Something the next block's group table must say.
    touched: bool,
    /// The growing block holds entries: a truncation must begin another.
    has_entries: bool,
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
    /// Number of the segment a task is making.
    task: Option<u64>,
    has_reserve: bool,
    /// Bytes of the segments before the current one.
    full_bytes: u64,
    poisoned: Option<String>,
    stats: WalStats,
    /// The segment that was read last.
    reading: Option<Segment>,
    _lock: Box<dyn LockGuard>,
}

impl Wal {
    /// Recovers the log of a directory that has an identity: cuts what is torn, syncs what it read, and says what
    /// each group is to know. [fault-model ST3, ST6]
    ///
    /// # Errors
    /// [`WalError::Damaged`] with file and offset; [`WalError::OtherFormat`]; [`WalError::Io`].
    ///
    /// # Panics
    /// If the directory has no identity yet.
    pub fn open(dir: DataDir, options: WalOptions) -> Result<(Wal, BTreeMap<GroupId, Recovered>), WalError> {
        let identity = dir.identity().expect("a directory is created before its log is opened").clone();
        let DataDir { files, lock, .. } = dir;
        let mut replay = Replay::new(&identity.groups, options.window_bytes);
        let walked = walk(&*files, &identity, &mut |met| replay.take(&met))?;

        let mut slots = BTreeMap::new();
        for (&group, replayed) in &replay.groups {
            slots.insert(group, Slots::open(&*files, &identity, group, replayed.slots)?);
        }
        let mut stats = WalStats { log_bytes: walked.block_bytes, ..WalStats::default() };
        if let Some(torn) = &walked.torn {
            stats.torn_tails = 1;
            stats.torn_bytes = torn.ranges.iter().map(|(start, stop)| stop - start.offset).sum();
        }
        let mut spare = settle(&*files, &walked)?;
        let current = spare.pop_front().expect("the log ends in a segment that is there");
        assert_eq!(
            current.generation, walked.end.segment,
            "the first segment that is not full is the current one"
        );

        let has_reserve = match segment::make_reserve(&*files, options.reserve_bytes) {
            Ok(()) => true,
            Err(WalError::NoSpace { .. }) => false,
            Err(error) => return Err(error),
        };
        let end = walked.end.segment;
        let mut wal = Wal {
            files,
            identity: Arc::new(identity),
            options,
            groups: BTreeMap::new(),
            pending: Pending::default(),
            rows: Vec::new(),
            current,
            offset: walked.end.offset,
            synced: walked.end,
            chain: walked.chain,
            number: walked.number,
            marked: walked.number == 0 || walked.flags & (flags::MARK | flags::CLOSE) != 0,
            spare,
            task: None,
            has_reserve,
            full_bytes: walked
                .segments
                .iter()
                .filter(|(generation, _)| *generation < end)
                .map(|(_, len)| len)
                .sum(),
            poisoned: None,
            stats,
            reading: None,
            _lock: lock,
        };
        let mut recovered = BTreeMap::new();
        for (id, mut replayed) in replay.groups {
            let slots = slots.remove(&id).expect("opened above");
            let newest = slots.newest;
            let lsn = replayed.lsn.max(newest.lsn);
            wal.groups.insert(
                id,
                Group {
                    slots,
                    hard: None,
                    index: core::mem::take(&mut replayed.index),
                    last: replayed.last,
                    written: replayed.last.index,
                    commit: replayed.committed,
                    appended: lsn,
                    durable: lsn,
                    records: 0,
                    touched: false,
                    has_entries: false,
                },
            );
            let last = replayed.last.index;
            let told = replayed.recovered(|| Ok(wal.read(id, last, last, 0)?.pop()))?;
            recovered.insert(id, Recovered { hard: newest.hard, lsn, ..told });
        }
        Ok((wal, recovered))
    }

    /// Whose log this is.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Gathers records of one group, in order. Nothing is written yet.
    ///
    /// # Errors
    /// [`WalError::Poisoned`].
    ///
    /// # Panics
    /// If the records do not continue the group's log: that must never reach a disk.
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
            LogBody::Commit(index) => {
                assert!(*index <= group.last.index, "commit {} past the last entry {}", index.0, group.last);
                assert!(group.commit <= *index, "commit {} after {}", index.0, group.commit.0);
                group.commit = *index;
                group.touched = true;
            }
            LogBody::Truncate(from) => {
                let (from, last, commit) = (*from, group.last, group.commit);
                assert!(commit < from, "truncation from {} on, committed up to {}", from.0, commit.0);
                assert!(from <= last.index, "truncation from {} on, the last entry is {last}", from.0);
                if group.has_entries {
                    self.seal(0);
                }
                let record = truncate_encode(crc32c::crc32c_append, id, from);
                let group = self.groups.get_mut(&id).expect("looked up above");
                group.last.index = from.previous();
                group.touch();
                self.pending.push(&record, Change::Truncate { group: id, from });
            }
            LogBody::Entry(entry) => {
                let (last, new) = (group.last, entry.id());
                assert_eq!(new.index, last.index.next(), "entry {new} does not follow {last}");
                group.last = new;
                group.has_entries = true;
                group.touch();
                self.pending.push(entry.record(), Change::Entries { group: id, first: new.index, count: 1 });
            }
        }
        if self.options.block_bytes <= self.pending.open_bytes() {
            self.seal(0);
        }
    }

    /// Whether there is anything that a sync would make durable. Commit marks alone are not: they travel with the
    /// next block.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        !self.pending.is_empty()
            || self.groups.values().any(|group| group.hard.is_some())
            || self.end() != self.synced
    }

    /// Stores term and vote durably, then writes what was gathered.
    ///
    /// # Errors
    /// [`WalError::NoSpace`]: what could not be written waits for the next call. Any other error poisons the log.
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
        if self.pending.is_open() {
            self.seal(0);
        }
        self.write_sealed()
    }

    /// Writes, and makes everything written durable. Returns the highest durable record of each group that got
    /// further.
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

    /// Writes and syncs one more, empty block if the newest ones are not under a synced mark yet, or a commit mark is
    /// not written: call it after a short idle moment. Returns whether there was anything to do. [fault-model ST6]
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
            return Ok(false); // not an idle moment; the next block says what is synced
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

    /// Reads entries back: consecutive ones from `first` on, at most to `last`, stopping once they exceed `bytes_max`
    /// bytes; at least one if it is there. Entries that are not written yet are not there.
    ///
    /// # Errors
    /// [`WalError::Damaged`] with file and offset; [`WalError::Io`].
    pub fn read(
        &mut self,
        group: GroupId,
        first: LogIndex,
        last: LogIndex,
        bytes_max: usize,
    ) -> Result<Vec<Entry>, WalError> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut bytes = 0;
        let mut next = first;
        while next <= last {
            let known = self.groups.get(&group).filter(|known| next <= known.written);
            let Some(run) = known.and_then(|known| known.index.find(next)) else {
                break;
            };
            let segment = self.read_run(run.start, run.stop)?;
            let run_bytes = Run { bytes: segment, start: run.start, identity: &self.identity };
            for entry in run_bytes.entries(group)? {
                let index = entry.id().index;
                if index < next || run.end <= index {
                    continue;
                }
                bytes += entry.len();
                if last < index || (bytes_max < bytes && !entries.is_empty()) {
                    return Ok(entries);
                }
                entries.push(entry);
                next = index.next();
            }
            if next < run.end {
                let what = format!("entry {} of group {} is not where it was written", next.0, group.0);
                return Err(WalError::damaged(&name_of(run.start.segment), run.start.offset, what));
            }
        }
        Ok(entries)
    }

    fn read_run(&mut self, start: Position, stop: u64) -> Result<SharedBytes, WalError> {
        let name = name_of(start.segment);
        let read = |error: std::io::Error| WalError::io(&name, "read", &error);
        let mut bytes = vec![0; (stop - start.offset) as usize];
        if start.segment == self.current.generation {
            self.current.file.read_at(start.offset, &mut bytes).map_err(read)?;
            return Ok(SharedBytes::from(bytes));
        }
        let is_open = self.reading.as_ref().is_some_and(|open| open.generation == start.segment);
        if !is_open {
            let file = self.files.open(&name).map_err(read)?;
            let len = file.bytes().map_err(read)?;
            self.reading = Some(Segment { generation: start.segment, len, file });
        }
        let open = self.reading.as_ref().expect("opened above");
        open.file.read_at(start.offset, &mut bytes).map_err(read)?;
        Ok(SharedBytes::from(bytes))
    }

    /// Bytes that can be appended without asking the disk for more; 0 while the reserve is gone. A write of few small
    /// records takes up to 1 KiB more than they do. [fault-model ST15]
    #[must_use]
    pub fn space(&self) -> u64 {
        if !self.has_reserve {
            return 0;
        }
        let spare: u64 = self.spare.iter().map(|segment| segment.data_end() - DATA_START).sum();
        let free = self.current.data_end().saturating_sub(self.offset) + spare;
        free.saturating_sub(self.pending.bytes() as u64)
    }

    /// The making of the next segment, if one is due and nobody is at it. Run it anywhere, then call
    /// [`Wal::accept`]. Without it the log makes its segments itself, when it needs them.
    pub fn wants_segment(&mut self) -> Option<SegmentTask> {
        if self.task.is_some() || (!self.spare.is_empty() && self.has_reserve) {
            return None;
        }
        let generation = self.next_generation();
        self.task = Some(generation);
        Some(SegmentTask {
            files: self.files.clone(),
            identity: self.identity.clone(),
            generation,
            len: segment::length_for(self.options.segment_bytes, 0),
            reserve: self.options.reserve_bytes,
        })
    }

    /// Takes what became of a [`SegmentTask`].
    ///
    /// # Errors
    /// The task's own; or [`WalError::Io`] when the segment could not get its name. Neither poisons the log: the
    /// task is wanted again.
    pub fn accept(&mut self, made: Result<Prepared, WalError>) -> Result<(), WalError> {
        self.task = None;
        let Prepared { segment, aside } = made?;
        self.has_reserve = segment::has_reserve(&*self.files, self.options.reserve_bytes);
        if segment.generation != self.next_generation() {
            // The log could not wait and made that one itself.
            return self.files.remove(&aside).map_err(|error| WalError::io(&aside, "remove", &error));
        }
        segment::publish(&*self.files, &aside, &name_of(segment.generation))?;
        self.spare.push_back(segment);
        Ok(())
    }

    /// What the log has done and holds.
    #[must_use]
    pub fn stats(&self) -> WalStats {
        let spare: u64 = self.spare.iter().map(|segment| segment.len).sum();
        WalStats {
            segments: self.next_generation() - 1,
            allocated_bytes: self.full_bytes + self.current.len + spare,
            ..self.stats
        }
    }

    /// First index of a group's log: the log is kept whole.
    #[must_use]
    pub fn first_index(&self) -> LogIndex {
        LogIndex(1)
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

    /// Completes the growing block; its table names every group with news.
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
        while self.pending.written < self.pending.sealed.len() {
            let first = self.pending.written;
            let need = self.pending.sealed[first].range.len() as u64;
            if self.current.data_end() < self.offset + need {
                self.rotate(need)?;
            }
            let (mut end, mut block) = (self.offset, first);
            while let Some(sealed) = self.pending.sealed.get(block) {
                let stop = end + sealed.range.len() as u64;
                if self.current.data_end() < stop {
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
            self.stats.log_bytes += range.len() as u64;
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

    /// What a block's header says about its place when it goes to `offset`.
    fn header_at(&self, offset: u64) -> BlockHeader {
        BlockHeader {
            flags: 0,
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

    /// Tells the index what the block that was written at `start` holds. Returns where the next one starts.
    fn note(&mut self, block: usize, start: u64) -> u64 {
        let sealed = &self.pending.sealed[block];
        let stop = start + sealed.range.len() as u64;
        let at = Position { segment: self.current.generation, offset: start };
        for change in &self.pending.changes[sealed.changes.clone()] {
            match *change {
                Change::Entries { group, first, count } => {
                    let group = self.groups.get_mut(&group).expect("appended to");
                    group.index.add(first, count, at, stop);
                    group.written = LogIndex(first.0 + count - 1);
                }
                Change::Truncate { group, from } => {
                    let group = self.groups.get_mut(&group).expect("appended to");
                    group.index.truncate(from);
                    group.written = group.written.min(from.previous());
                }
            }
        }
        stop
    }

    /// Goes on in the next segment, which takes a block of at least `need` bytes.
    ///
    /// 1. The next segment is there for good. If there is no room for it, nothing has changed.
    /// 2. A rotation mark ends this one, and all of it is synced.
    /// 3. The first block of the next one can say so: whatever is bad in this one from now on is damage.
    fn rotate(&mut self, need: u64) -> Result<(), WalError> {
        let fits = |segment: &Segment| DATA_START + need <= segment.data_end();
        if !self.spare.front().is_some_and(fits) {
            let generation = self.current.generation + 1;
            let len = segment::length_for(self.options.segment_bytes, need);
            let made = match self.make_segment(generation, len) {
                Err(error @ WalError::NoSpace { .. }) => return Err(error),
                other => other.map_err(|error| self.poison(error))?,
            };
            self.spare.pop_front(); // too small, and just replaced under its name
            self.spare.push_front(made);
        }

        let mut mark = vec![0; SECTOR];
        let header = BlockHeader {
            flags: flags::ROTATE,
            len: crate::block::HEADER_BYTES,
            ..self.header_at(self.offset)
        };
        let chain = header.put(&mut mark, 0);
        assert!(self.offset + TAIL_BYTES <= self.current.len, "room is kept for the rotation mark");
        self.put(&mark).map_err(|error| self.poison(error))?;
        (self.chain, self.number) = (chain, self.number + 1);
        self.offset += SECTOR as u64;
        self.stats.blocks += 1;
        self.stats.writes += 1;
        self.stats.bytes_written += SECTOR as u64;
        self.stats.log_bytes += SECTOR as u64;
        self.sync_current()?;

        let next = self.spare.pop_front().expect("made above");
        self.full_bytes += self.current.len;
        self.current = next;
        self.offset = DATA_START;
        self.synced = self.end();
        Ok(())
    }

    /// Makes a segment at once; a full disk gives back the reserve for it.
    fn make_segment(&mut self, generation: u64, len: u64) -> Result<Segment, WalError> {
        match segment::create(&*self.files, &self.identity, generation, len) {
            Err(WalError::NoSpace { .. }) if self.has_reserve && self.options.reserve_bytes != 0 => {
                self.has_reserve = false;
                segment::free_reserve(&*self.files)?;
                segment::create(&*self.files, &self.identity, generation, len)
            }
            other => other,
        }
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
        Ok(())
    }
}

impl Group {
    fn touch(&mut self) {
        self.records += 1;
        self.touched = true;
    }
}

/// Bytes of whole blocks, read back.
struct Run<'a> {
    bytes: SharedBytes,
    start: Position,
    identity: &'a Identity,
}

impl Run<'_> {
    /// The entries of one group, verified.
    fn entries(&self, wanted: GroupId) -> Result<Vec<Entry>, WalError> {
        let file = name_of(self.start.segment);
        let mut entries = Vec::new();
        let mut at = 0;
        while at < self.bytes.len() {
            let offset = self.start.offset + at as u64;
            let file_id = self.identity.file_id(self.start.segment);
            let header = BlockHeader::take(&self.bytes[at..], file_id, Position { offset, ..self.start })
                .map_err(|error| WalError::damaged(&file, offset, error.to_string()))?;
            let mut record = at + crate::block::HEADER_BYTES;
            let body_end = record + header.body;
            while record < body_end {
                let damaged =
                    |what: String| WalError::damaged(&file, self.start.offset + record as u64, what);
                let head = &self.bytes[record..body_end];
                if head.get(4) == Some(&16) {
                    record += RECORD_HEADER_BYTES; // a truncation; the index knows of it
                    continue;
                }
                let (group, entry, after) =
                    record_decode(crc32c::crc32c_append, &self.bytes, record, body_end - record)
                        .map_err(|error| damaged(error.to_string()))?;
                if group == wanted {
                    entries.push(entry);
                }
                record = after;
            }
            at += padded(header.len);
        }
        Ok(entries)
    }
}

/// Brings the directory into the state the log goes on from: what was read is written again where no mark vouches for
/// it, what is torn becomes zeros, everything is synced, leftovers are gone. Returns the segments from the current one
/// on. Doing it twice, or half and again, is doing it once.
fn settle(files: &dyn Files, walked: &Walked) -> Result<VecDeque<Segment>, WalError> {
    let mut open = VecDeque::new();
    for &(generation, len) in &walked.segments {
        let name = name_of(generation);
        let io = |doing: &'static str| {
            move |error: std::io::Error| WalError::io(&name_of(generation), doing, &error)
        };
        let file = files.open(&name).map_err(io("open"))?;
        // A page that a failed sync left clean in memory is not on the disk: only a write makes it dirty again.
        let doubtful = walked.synced.max(Position { segment: generation, offset: 0 });
        let stop = if walked.end.segment == generation { walked.end.offset } else { len };
        if doubtful.segment == generation && generation <= walked.end.segment {
            rewrite(&*file, doubtful.offset, stop).map_err(io("write"))?;
            file.sync().map_err(io("sync"))?;
        }
        if walked.end.segment <= generation {
            open.push_back(Segment { generation, len, file });
        }
    }
    let Some(torn) = &walked.torn else {
        return tidy(files).map(|()| open);
    };
    // Spare segments from the first without a header on go, newest first, so that no picture of this shows a gap.
    let headless = torn.ranges.iter().filter(|(start, _)| start.offset == 0).map(|(start, _)| start.segment);
    if let Some(first) = headless.min() {
        open.retain(|segment| segment.generation < first);
        let mut generations: Vec<u64> = walked.segments.iter().map(|(generation, _)| *generation).collect();
        generations.extend(torn.ranges.iter().map(|(start, _)| start.segment));
        generations.sort_unstable();
        generations.dedup();
        for generation in generations.into_iter().rev().filter(|generation| first <= *generation) {
            let name = name_of(generation);
            files.remove(&name).map_err(|error| WalError::io(&name, "remove", &error))?;
        }
    }
    for &(start, stop) in &torn.ranges {
        let Some(segment) = open.iter().find(|segment| segment.generation == start.segment) else {
            continue;
        };
        let io =
            |error: std::io::Error| WalError::io(&name_of(start.segment), "clear the torn tail of", &error);
        let zeros = vec![0; padded((stop - start.offset) as usize)];
        segment.file.write_at(start.offset, &zeros).map_err(io)?;
        segment.file.sync().map_err(io)?;
    }
    tidy(files).map(|()| open)
}

/// Reads a range and writes it where it was.
fn rewrite(file: &dyn crate::files::LogFile, start: u64, stop: u64) -> std::io::Result<()> {
    let mut bytes = vec![0; stop.saturating_sub(start) as usize];
    file.read_at(start, &mut bytes)?;
    file.write_at(start, &bytes)
}

/// Removes leftovers of files that were being made, and makes the names durable.
fn tidy(files: &dyn Files) -> Result<(), WalError> {
    let io = |error: std::io::Error| WalError::io(&files.place(), "tidy", &error);
    for name in files.names().map_err(io)? {
        if name.ends_with(".tmp") {
            files.remove(&name).map_err(io)?;
        }
    }
    files.sync_names().map_err(io)
}
