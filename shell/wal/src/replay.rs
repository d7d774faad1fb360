//! Replay: the blocks of the log, in order, become what each group knows after a restart.
//!
//! Knows nothing of: where blocks come from, slots.

use crate::block::{flags, padded};
use crate::error::WalError;
use crate::index::Index;
use crate::segment::name_of;
use crate::walk::{Met, Position};
use kattu_raft::{Entry, EntryHead, EntryId, GroupId, LogIndex, Lsn, Recovered, SharedBytes, Stamp};
use kattu_wire::record::HEADER_BYTES;
use std::collections::{BTreeMap, VecDeque};

/// One group while its log is replayed.
#[derive(Debug, Default)]
pub(crate) struct GroupReplay {
    pub index: Index,
    pub last: EntryId,
    pub committed: LogIndex,
    pub lsn: Lsn,
    pub slots: u64,
    term_starts: Vec<EntryId>,
    tail: VecDeque<Entry>,
    tail_bytes: usize,
}

/// All groups while the log is replayed.
#[derive(Debug)]
pub(crate) struct Replay {
    pub groups: BTreeMap<GroupId, GroupReplay>,
    /// Bytes of newest entries to keep per group.
    window_bytes: usize,
    pub blocks: u64,
    pub records: u64,
}

impl Replay {
    pub fn new(groups: &[GroupId], window_bytes: usize) -> Replay {
        let groups = groups.iter().map(|&group| (group, GroupReplay::default())).collect();
        Replay { groups, window_bytes, blocks: 0, records: 0 }
    }

    /// Takes the next block. What does not fit what came before was never written by this program.
    pub fn take(&mut self, met: &Met<'_>) -> Result<(), WalError> {
        let Met { at, block, segment } = met;
        let damaged = |offset: u64, what: String| WalError::damaged(&name_of(at.segment), offset, what);
        let stop = at.offset + padded(block.header.len) as u64;
        let marks = flags::MARK | flags::ROTATE | flags::CLOSE;
        self.blocks += u64::from(block.header.flags & marks == 0);
        self.records += block.records.len() as u64;

        for (range, record) in &block.records {
            let offset = range.start as u64;
            let Some(group) = self.groups.get_mut(&record.group) else {
                return Err(damaged(
                    offset,
                    format!("a record of group {}, which is not kept here", record.group.0),
                ));
            };
            match record.entry_head() {
                Some(head) => {
                    let id = head.id;
                    if id.index != group.last.index.next() || id.term < group.last.term {
                        return Err(damaged(offset, format!("entry {id} does not follow {}", group.last)));
                    }
                    group.push(head, segment.slice(range.clone()), *at, stop);
                    group.shrink_tail(self.window_bytes);
                }
                None => {
                    let from = record.index;
                    if group.last.index < from || from <= group.committed {
                        let what = format!(
                            "truncation from {} on, the log ends at {} and is committed up to {}",
                            from.0, group.last, group.committed.0
                        );
                        return Err(damaged(offset, what));
                    }
                    if group.index.ends_in(*at, stop) {
                        return Err(damaged(offset, "truncation behind entries of its own block".into()));
                    }
                    group.truncate(from);
                }
            }
        }
        for row in &block.groups {
            let Some(group) = self.groups.get_mut(&row.group) else {
                return Err(damaged(
                    at.offset,
                    format!("names group {}, which is not kept here", row.group.0),
                ));
            };
            if group.last.index < row.commit || row.commit < group.committed {
                let what = format!(
                    "commit mark {}, the log ends at {} and was committed up to {}",
                    row.commit.0, group.last, group.committed.0
                );
                return Err(damaged(at.offset, what)); // ST11: something was lost
            }
            group.committed = row.commit;
            group.lsn = group.lsn.max(row.lsn);
            group.slots = group.slots.max(row.slots);
        }
        Ok(())
    }
}

impl GroupReplay {
    fn push(&mut self, head: EntryHead, record: SharedBytes, block: Position, stop: u64) {
        let id = head.id;
        if self.term_starts.last().is_none_or(|start| start.term != id.term) {
            self.term_starts.push(id);
        }
        self.last = id;
        self.index.add(id.index, 1, block, stop);
        self.tail_bytes += record.len();
        self.tail.push_back(Entry::new(head, record, HEADER_BYTES));
    }

    fn shrink_tail(&mut self, window_bytes: usize) {
        while window_bytes < self.tail_bytes && 1 < self.tail.len() {
            let oldest = self.tail.pop_front().expect("more than one");
            self.tail_bytes -= oldest.len();
        }
    }

    fn truncate(&mut self, from: LogIndex) {
        self.index.truncate(from);
        self.term_starts.retain(|start| start.index < from);
        while self.tail.back().is_some_and(|entry| from <= entry.id().index) {
            let newest = self.tail.pop_back().expect("there is one");
            self.tail_bytes -= newest.len();
        }
        let term = self.term_starts.last().map(|start| start.term).unwrap_or_default();
        self.last = EntryId { term, index: from.previous() };
    }

    /// What raft is told. The tail's entries get buffers of their own: a window must not pin whole segments.
    pub fn recovered(
        &mut self,
        newest_read_back: impl FnOnce() -> Result<Option<Entry>, WalError>,
    ) -> Result<Recovered, WalError> {
        let own = |entry: Entry| {
            let record = SharedBytes::from(entry.record().to_vec());
            Entry::new(entry.head, record, HEADER_BYTES)
        };
        let mut tail: Vec<Entry> = self.tail.drain(..).map(own).collect();
        if tail.is_empty() && self.last.index != LogIndex(0) {
            tail.extend(newest_read_back()?); // a truncation took all that was in the window
        }
        let stamp = tail.last().map_or(Stamp(0), |entry| entry.head.stamp);
        Ok(Recovered {
            hard: kattu_raft::HardState::default(),
            base: EntryId::default(),
            snapshot: None,
            memberships: Vec::new(),
            term_starts: core::mem::take(&mut self.term_starts),
            last: self.last,
            tail,
            committed: self.committed,
            lsn: self.lsn,
            stamp,
        })
    }
}
