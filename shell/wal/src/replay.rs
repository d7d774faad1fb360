//! Replay: turns the blocks of the log, in order, into the state of each group after a restart.
//!
//! A log that begins in the middle begins with the extent of each group there. Those entries are not here; by the end
//! all of them must lie at or below the group's base, or something is missing. [fault-model ST11]
//! Knows nothing of: files, slots, snapshots.

use crate::block::{Block, flags};
use crate::error::WalError;
use crate::extent::Extent;
use crate::index::Index;
use crate::scan::{Met, Position};
use crate::segment::name_of;
use kattu_raft::{
    Entry, EntryHead, EntryId, EntryKind, GroupId, LogIndex, Lsn, Membership, SharedBytes, Stamp,
};
use kattu_wire::record::{HEADER_BYTES, RecordHeader, RecordKind};
use std::collections::{BTreeMap, VecDeque};

/// One group while its log is replayed.
#[derive(Debug, Default)]
pub(crate) struct GroupReplay {
    pub index: Index,
    pub extent: Extent,
    pub committed: LogIndex,
    pub lsn: Lsn,
    pub slots: u64,
    pub memberships: Vec<(LogIndex, Membership)>,
    tail: VecDeque<Entry>,
    tail_bytes: usize,
}

/// All groups while the log is replayed.
#[derive(Debug)]
pub(crate) struct Replay {
    pub groups: BTreeMap<GroupId, GroupReplay>,
    /// Bytes of newest entries to keep per group.
    window_bytes: usize,
    /// The segment with the first block.
    first: Option<u64>,
    pub blocks: u64,
    pub records: u64,
}

impl Replay {
    pub fn new(groups: &[GroupId], window_bytes: usize) -> Replay {
        let groups = groups.iter().map(|&group| (group, GroupReplay::default())).collect();
        Replay { groups, window_bytes, first: None, blocks: 0, records: 0 }
    }

    /// Takes the next block. This program never writes a record that does not fit the ones before it.
    pub fn take(&mut self, met: &Met<'_>) -> Result<(), WalError> {
        let Met { at, block, segment } = met;
        let damaged = |offset: u64, what: String| WalError::damaged(&name_of(at.segment), offset, what);
        let begins = self.first.is_none() && at.segment != 1;
        self.first.get_or_insert(at.segment);
        let marks = flags::MARK | flags::ROTATE | flags::CLOSE | flags::START;
        self.blocks += u64::from(block.header.flags & marks == 0);
        self.records += block.records.len() as u64;

        for (range, record) in &block.records {
            let Some(group) = self.groups.get_mut(&record.group) else {
                let what = format!("a record of group {}, which is not kept here", record.group.0);
                return Err(damaged(range.start as u64, what));
            };
            let bytes = segment.slice(range.clone());
            refuse_newer(record, &bytes, at)?;
            let taken = match record.kind {
                RecordKind::Entry(_) => group.take_entry(record, bytes, *at, block),
                RecordKind::Truncate => group.take_truncation(record.index, *at, block),
                RecordKind::Base => group.take_base(record, &bytes[HEADER_BYTES..], begins, *at, block),
            };
            taken.map_err(|what| damaged(range.start as u64, what))?;
            group.shrink_tail(self.window_bytes);
        }
        for row in &block.groups {
            let Some(group) = self.groups.get_mut(&row.group) else {
                let what = format!("names group {}, which is not kept here", row.group.0);
                return Err(damaged(at.offset, what));
            };
            if group.extent.last.index < row.commit || row.commit < group.committed {
                let what = format!(
                    "commit mark {}, the log ends at {} and was committed up to {}",
                    row.commit.0, group.extent.last, group.committed.0
                );
                return Err(damaged(at.offset, what)); // ST11: something was lost
            }
            group.committed = row.commit;
            group.lsn = group.lsn.max(row.lsn);
            group.slots = group.slots.max(row.slots);
        }
        Ok(())
    }

    /// Checks that no entry is missing that was in a removed segment.
    pub fn check(&self) -> Result<(), WalError> {
        let Some(first) = self.first.filter(|first| *first != 1) else { return Ok(()) };
        let missing = |what: String| Err(WalError::damaged(&name_of(first - 1), 0, what));
        if self.groups.values().all(|group| group.extent.base == EntryId::default()) {
            return missing("the file is missing".to_owned());
        }
        for (id, GroupReplay { extent, index, .. }) in &self.groups {
            if !extent.is_empty() && index.first() != Some(extent.base.index.next()) {
                let found = index.first().map_or("none".to_owned(), |found| found.0.to_string());
                return missing(format!(
                    "the file is missing: the first entry of group {} after {} is {found}",
                    id.0, extent.base
                ));
            }
        }
        Ok(())
    }
}

/// A configuration that this version cannot follow is no damage: nothing must be cut, and the member stops.
fn refuse_newer(record: &RecordHeader, bytes: &SharedBytes, at: &Position) -> Result<(), WalError> {
    let configures = record.entry_head().is_some_and(|head| head.kind == EntryKind::Config);
    match configures.then(|| Membership::decode(&bytes[HEADER_BYTES..])) {
        Some(Err(error)) if error.is_of_newer_version() => {
            Err(WalError::Newer { file: name_of(at.segment), what: error.to_string() })
        }
        _ => Ok(()),
    }
}

impl GroupReplay {
    fn take_entry(
        &mut self,
        record: &RecordHeader,
        bytes: SharedBytes,
        at: Position,
        block: &Block,
    ) -> Result<(), String> {
        let head: EntryHead = record.entry_head().expect("of this kind");
        if !self.extent.is_next(head.id) {
            return Err(format!("entry {} does not follow {}", head.id, self.extent.last));
        }
        self.extent.extend(head.id, 1);
        self.index.add(head.id.index, 1, at, block.stop());
        let entry = Entry::in_form(record.form, head, bytes, HEADER_BYTES);
        if head.kind == EntryKind::Config {
            let Some(payload) = entry.payload() else {
                return Err(format!("configuration {} is here as {:?}", head.id, record.form));
            };
            let (membership, _) =
                Membership::decode(payload).map_err(|error| format!("configuration {}: {error}", head.id))?;
            self.memberships.push((head.id.index, membership));
        }
        self.tail_bytes += entry.len();
        self.tail.push_back(entry);
        Ok(())
    }

    fn take_truncation(&mut self, from: LogIndex, at: Position, block: &Block) -> Result<(), String> {
        if self.extent.last.index < from || from <= self.committed {
            return Err(format!(
                "truncation from {} on, the log ends at {} and is committed up to {}",
                from.0, self.extent.last, self.committed.0
            ));
        }
        if self.index.ends_in(at, block.stop()) {
            return Err("truncation behind entries of its own block".into());
        }
        self.index.truncate(from);
        self.extent.truncate(from);
        self.memberships.retain(|(index, _)| *index < from);
        while self.tail.back().is_some_and(|entry| from <= entry.id().index) {
            let newest = self.tail.pop_back().expect("there is one");
            self.tail_bytes -= newest.len();
        }
        Ok(())
    }

    /// A base that moves, one that is repeated, or, where the log `begins` in the middle, the extent there.
    fn take_base(
        &mut self,
        record: &RecordHeader,
        payload: &[u8],
        begins: bool,
        at: Position,
        block: &Block,
    ) -> Result<(), String> {
        let base = EntryId { term: record.term, index: record.index };
        let Some(said) = Extent::parse(base, payload) else {
            return Err(format!("base {base} with a payload that contradicts itself"));
        };
        if begins {
            self.committed = base.index;
            self.extent = said;
            return Ok(());
        }
        if base.index < self.extent.base.index {
            return Err(format!("base {base} after base {}", self.extent.base));
        }
        if !self.extent.holds(base) && base.index <= self.committed {
            let committed = self.committed.0;
            return Err(format!("base {base} contradicts the log, which is committed up to {committed}"));
        }
        if base != self.extent.base && self.index.ends_in(at, block.stop()) {
            return Err("a base behind entries of its own block".into());
        }
        if self.extent.rebase(base) {
            self.index.forget(base.index);
        } else {
            self.index.clear();
        }
        if self.extent != said {
            return Err(format!(
                "base {base} says that the log ends at {}, it ends at {}",
                said.last, self.extent.last
            ));
        }
        self.committed = self.committed.max(base.index);
        let kept = base.index.next()..=self.extent.last.index;
        self.memberships.retain(|(index, _)| kept.contains(index));
        self.tail.retain(|entry| kept.contains(&entry.id().index));
        self.tail_bytes = self.tail.iter().map(Entry::len).sum();
        Ok(())
    }

    fn shrink_tail(&mut self, window_bytes: usize) {
        while window_bytes < self.tail_bytes && 1 < self.tail.len() {
            let oldest = self.tail.pop_front().expect("more than one");
            self.tail_bytes -= oldest.len();
        }
    }

    /// The newest entries, each with a buffer of its own: a window must not pin whole segments. If a truncation took
    /// all entries of the window, the newest one is read back.
    pub(crate) fn take_tail(
        &mut self,
        newest_read_back: impl FnOnce() -> Result<Option<Entry>, WalError>,
    ) -> Result<(Vec<Entry>, Option<Stamp>), WalError> {
        let mut tail: Vec<Entry> = self.tail.drain(..).map(|entry| entry.unshared()).collect();
        if tail.is_empty() && !self.extent.is_empty() {
            tail.extend(newest_read_back()?);
        }
        let stamp = tail.last().map(|entry| entry.head.stamp);
        Ok((tail, stamp))
    }
}
