//! Index: the place of each entry; for each group, runs of the log that hold consecutive entries.
//!
//! A run grows with every block until it reaches [`RUN_BYTES_MAX`], so the index takes some 40 bytes of memory per 128
//! KiB of log. A block that is larger is a run of its own. No run holds a truncation: the live entries of a run are its
//! first ones.
//! Knows nothing of: files, payloads.

use crate::scan::Position;
use kattu_raft::LogIndex;

/// A reader reads a run in one piece; it may have to read this many bytes for one entry.
const RUN_BYTES_MAX: u64 = 128 << 10;

/// Whole blocks in one segment, holding the entries `first..end` of one group (and entries of others).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub first: LogIndex,
    pub end: LogIndex,
    pub start: Position,
    pub stop: u64,
}

/// The runs of one group, ascending.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    runs: Vec<Run>,
    /// A truncation came after the last run: it must not grow.
    sealed: bool,
}

impl Index {
    /// Notes that the block from `start` to `stop` holds `count` entries from `first` on.
    pub fn add(&mut self, first: LogIndex, count: u64, start: Position, stop: u64) {
        let end = LogIndex(first.0 + count);
        if let Some(last) = self.runs.last_mut().filter(|_| !self.sealed) {
            assert!(last.end == first, "run from {} after {}", first.0, last.end.0);
            let follows = last.start.segment == start.segment && last.start.offset <= start.offset;
            // A block is read in one piece, however large: its entries stay in one run.
            let same_block = last.stop == stop;
            if follows && (same_block || stop - last.start.offset <= RUN_BYTES_MAX) {
                last.end = end;
                last.stop = stop;
                return;
            }
        }
        self.sealed = false;
        self.runs.push(Run { first, end, start, stop });
    }

    /// Notes that all entries from `from` on are gone.
    pub fn truncate(&mut self, from: LogIndex) {
        self.runs.retain(|run| run.first < from);
        if let Some(last) = self.runs.last_mut() {
            last.end = last.end.min(from);
        }
        self.sealed = true;
    }

    /// Notes that all entries up to `last` are gone.
    pub fn forget(&mut self, last: LogIndex) {
        let first = last.next();
        self.runs.retain(|run| first < run.end);
        if let Some(oldest) = self.runs.first_mut() {
            oldest.first = oldest.first.max(first);
        }
    }

    /// Notes that all entries are gone.
    pub fn clear(&mut self) {
        self.runs.clear();
        self.sealed = true;
    }

    /// The index of the first entry.
    pub fn first(&self) -> Option<LogIndex> {
        self.runs.first().map(|run| run.first)
    }

    /// The segment that holds the first entry.
    pub(crate) fn first_segment(&self) -> Option<u64> {
        self.runs.first().map(|run| run.start.segment)
    }

    /// Whether the newest entries are in the block from `start` to `stop`.
    pub(crate) fn ends_in(&self, start: Position, stop: u64) -> bool {
        self.runs.last().is_some_and(|run| run.start.segment == start.segment && run.stop == stop)
    }

    /// The run that holds `index`.
    pub fn find(&self, index: LogIndex) -> Option<Run> {
        let after = self.runs.partition_point(|run| run.first <= index);
        let run = *self.runs.get(after.checked_sub(1)?)?;
        (index < run.end).then_some(run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(offset: u64) -> Position {
        Position { segment: 1, offset }
    }

    #[test]
    fn neighbouring_blocks_become_one_run_until_it_is_long() {
        let mut index = Index::default();
        for block in 0..400 {
            index.add(LogIndex(1 + block * 2), 2, at(block * 512), block * 512 + 512);
        }
        assert_eq!(index.runs.len(), 2);
        for entry in 1..=800 {
            let run = index.find(LogIndex(entry)).unwrap();
            assert!(run.first.0 <= entry && entry < run.end.0);
        }
        assert_eq!(index.find(LogIndex(0)), None);
        assert_eq!(index.find(LogIndex(801)), None);
    }

    #[test]
    fn the_entries_of_one_block_are_one_run_however_large_it_is() {
        let mut index = Index::default();
        index.add(LogIndex(1), 1, at(0), 512);
        let stop = 512 + 8 * RUN_BYTES_MAX;
        for entry in 2..=1000 {
            index.add(LogIndex(entry), 1, at(512), stop);
        }
        index.add(LogIndex(1001), 1, at(stop), stop + 512);
        assert_eq!(index.runs.len(), 3);
        assert_eq!(index.find(LogIndex(2)).unwrap(), index.find(LogIndex(1000)).unwrap());
    }

    #[test]
    fn what_is_forgotten_is_not_found_and_what_comes_after_is() {
        let mut index = Index::default();
        for block in 0..4 {
            let start = Position { segment: 1 + block, offset: 0 };
            index.add(LogIndex(1 + block * 5), 5, start, 512);
        }
        index.forget(LogIndex(7));
        assert_eq!((index.first(), index.first_segment()), (Some(LogIndex(8)), Some(2)));
        assert_eq!((index.find(LogIndex(7)), index.find(LogIndex(3))), (None, None));
        assert_eq!(index.find(LogIndex(8)).unwrap().start.segment, 2);
        index.forget(LogIndex(10));
        assert_eq!(index.first_segment(), Some(3));
        index.forget(LogIndex(20));
        assert_eq!(index.first(), None);
        index.add(LogIndex(21), 1, at(512), 1024);
        index.clear();
        index.add(LogIndex(7), 1, at(1024), 1536);
        assert_eq!((index.first(), index.find(LogIndex(21))), (Some(LogIndex(7)), None));
    }

    #[test]
    fn entries_after_a_truncation_are_found_in_their_new_place() {
        let mut index = Index::default();
        index.add(LogIndex(1), 5, at(0), 512);
        index.truncate(LogIndex(3));
        assert_eq!(index.find(LogIndex(3)), None);
        index.add(LogIndex(3), 2, at(512), 1024);
        assert_eq!(index.find(LogIndex(2)).unwrap().start, at(0));
        assert_eq!(index.find(LogIndex(3)).unwrap().start, at(512));
        index.truncate(LogIndex(1));
        assert_eq!(index.find(LogIndex(1)), None);
        index.add(LogIndex(1), 1, at(1024), 1536);
        assert_eq!(index.find(LogIndex(1)).unwrap().start, at(1024));
    }
}
