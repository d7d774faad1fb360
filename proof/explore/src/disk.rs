//! A disk with the log's guarantees: records become durable in order, and a crash keeps a prefix of the rest. Whole
//! snapshots beside the log are durable as soon as they are kept.
//!
//! In:    the records a peer emits; how far the disk has come; crashes.
//! Out:   what a restart finds.
//! Rule:  each record is checked against those before it: a term never falls, a vote never changes, no entry up to the
//!        commit mark is truncated.
//! Knows nothing of: files, sectors, damage; crash images of the real log are tested in `shell/wal`.

use crate::position::Position;
use kattu_raft::{
    ChunkRead, Duration, Entry, EntryId, EntryKind, HardState, LogBody, LogIndex, LogRecord, Lsn, Membership,
    ReadChunk, Recovered, SnapshotMeta,
};

/// The state after a sequence of records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    /// Newest term and vote.
    pub hard: HardState,
    /// Position before the first entry.
    pub base: EntryId,
    /// All entries after it.
    pub log: Vec<Entry>,
    /// Newest commit mark.
    pub committed: LogIndex,
    /// Number of the newest record.
    pub lsn: Lsn,
}

/// One member's disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Disk {
    /// What survives every crash.
    pub durable: State,
    /// Written after that, in order.
    pub unsynced: Vec<LogRecord>,
    /// Whole snapshots, oldest first: durable as soon as they are here.
    pub snapshots: Vec<Snapshot>,
}

/// A snapshot, and the content of every position that it covers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Snapshot {
    /// What it covers.
    pub meta: SnapshotMeta,
    /// Its content.
    pub places: Vec<Position>,
}

/// Snapshots that are kept: one that a leader sent may not be in use yet while the one before still is.
const SNAPSHOTS_KEPT: usize = 2;

/// A record that must not follow those before it.
pub type Broken = String;

impl State {
    /// Last position.
    #[must_use]
    pub fn last(&self) -> EntryId {
        self.log.last().map_or(self.base, Entry::id)
    }

    /// Whether this position is part of the log, or its base.
    fn holds(&self, id: EntryId) -> bool {
        id == self.base || self.log.iter().any(|entry| entry.id() == id)
    }

    fn take(&mut self, record: &LogRecord) -> Result<(), Broken> {
        let broken = |what: String| Err(format!("record {}: {what}", record.lsn.0));
        if record.lsn != self.lsn.next() {
            return broken(format!("follows {}", self.lsn.0));
        }
        self.lsn = record.lsn;
        let last = self.last().index;
        match &record.body {
            LogBody::HardState(hard) => {
                let known = self.hard;
                let kept = known.vote.is_none() || known.vote == hard.vote;
                if hard.term < known.term || hard.term == known.term && !kept {
                    return broken(format!("term and vote go from {known:?} to {hard:?}"));
                }
                self.hard = *hard;
            }
            LogBody::Truncate(first) => {
                if *first <= self.committed || last < *first {
                    return broken(format!(
                        "truncates {first:?} of {last:?}, committed {:?}",
                        self.committed
                    ));
                }
                self.log.truncate((first.0 - self.base.index.0) as usize - 1);
            }
            LogBody::Entry(entry) => {
                if entry.id().index != last.next() || self.hard.term < entry.id().term {
                    return broken(format!("entry {} after {last:?} in {:?}", entry.id(), self.hard.term));
                }
                self.log.push(entry.clone());
            }
            LogBody::Commit(index) => {
                if last < *index || *index <= self.committed {
                    return broken(format!("marks {index:?}, log to {last:?}, marked {:?}", self.committed));
                }
                self.committed = *index;
            }
            LogBody::Base(base) => {
                if base.index < self.base.index {
                    return broken(format!("prunes up to {base} what begins after {}", self.base));
                }
                match self.holds(*base) {
                    true => self.log.retain(|entry| base.index < entry.id().index),
                    false => self.log.clear(),
                }
                self.base = *base;
                self.committed = self.committed.max(base.index);
            }
            LogBody::VoteFloor(vote_floor) => {
                return broken(format!("floor {vote_floor}: no disk loses anything here"));
            }
        }
        Ok(())
    }
}

impl Disk {
    /// Takes records that the core emitted.
    pub fn write(&mut self, records: Vec<LogRecord>) {
        self.unsynced.extend(records);
    }

    /// Makes the oldest `records` durable and returns the number of the newest of them.
    ///
    /// # Errors
    /// The first record that must not be there.
    pub fn sync(&mut self, records: usize) -> Result<Lsn, Broken> {
        for record in self.unsynced.drain(..records) {
            self.durable.take(&record)?;
        }
        Ok(self.durable.lsn)
    }

    /// Loses all unsynced records except the first `surviving`.
    ///
    /// # Errors
    /// A surviving record that must not be there.
    pub fn crash(&mut self, surviving: usize) -> Result<(), Broken> {
        self.sync(surviving)?;
        self.unsynced.clear();
        Ok(())
    }

    /// With everything written, durable or not.
    ///
    /// # Errors
    /// The first record that must not be there.
    pub fn written(&self) -> Result<State, Broken> {
        let mut state = self.durable.clone();
        self.unsynced.iter().try_for_each(|record| state.take(record))?;
        Ok(state)
    }

    /// Lowers all record numbers by `shift`, as the core did.
    pub(crate) fn renumber(&mut self, shift: u64) {
        self.durable.lsn.0 -= shift;
        for record in &mut self.unsynced {
            record.lsn.0 -= shift;
        }
    }

    /// Keeps a whole snapshot.
    pub fn keep(&mut self, snapshot: Snapshot) {
        self.snapshots.retain(|known| known.meta.last != snapshot.meta.last);
        self.snapshots.push(snapshot);
        if self.snapshots.len() > SNAPSHOTS_KEPT {
            self.snapshots.remove(0);
        }
    }

    /// Answers a request for a piece of a snapshot: each snapshot is one piece.
    #[must_use]
    pub fn read<const N: usize>(
        &self,
        request: &ReadChunk,
        bytes: impl Fn(Position) -> [u8; N],
    ) -> ChunkRead {
        let Some(snapshot) = self.snapshots.iter().find(|snapshot| snapshot.meta.last == request.last) else {
            return ChunkRead::Gone;
        };
        let file: Vec<u8> = snapshot.places.iter().flat_map(|place| bytes(*place)).collect();
        let total = file.len() as u64;
        let from = file.len().min(request.offset as usize);
        ChunkRead::Bytes { bytes: file[from..].to_vec().into(), total }
    }

    /// Every position of a log, whether its entries or a snapshot hold it.
    ///
    /// # Errors
    /// No snapshot covers what the log has lost. [fault-model ST9]
    pub fn history(&self, state: &State) -> Result<Vec<Position>, Broken> {
        let base = state.base.index.0 as usize;
        let mut places = Vec::new();
        if base > 0 {
            let covers = |snapshot: &&Snapshot| {
                base <= snapshot.places.len() && snapshot.places[base - 1].id == state.base
            };
            let snapshot = self.snapshots.iter().rev().find(covers);
            let snapshot =
                snapshot.ok_or_else(|| format!("no snapshot covers the log up to {} [ST9]", state.base))?;
            places.extend_from_slice(&snapshot.places[..base]);
        }
        places.extend(state.log.iter().map(Position::of));
        Ok(places)
    }

    /// What a restart finds: everything durable, with all entries at hand.
    #[must_use]
    pub fn recover(&self) -> Recovered {
        let State { hard, base, log, committed, lsn } = &self.durable;
        let newest = self.snapshots.iter().rev().find(|snapshot| self.durable.holds(snapshot.meta.last));
        let configuration = |entry: &Entry| match entry.head.kind {
            EntryKind::Config => {
                let (found, _) = Membership::decode(entry.payload()?).ok()?;
                Some((entry.id().index, found))
            }
            EntryKind::Command | EntryKind::Noop => None,
        };
        let mut term_starts: Vec<EntryId> = Vec::new();
        for entry in log {
            if term_starts.last().map(|start| start.term) != Some(entry.id().term) {
                term_starts.push(entry.id());
            }
        }
        Recovered {
            hard: *hard,
            base: *base,
            snapshot: newest.map(|snapshot| snapshot.meta.clone()),
            memberships: log.iter().filter_map(configuration).collect(),
            term_starts,
            last: self.durable.last(),
            tail: log.clone(),
            committed: newest.map_or(*committed, |newest| newest.meta.last.index.max(*committed)),
            lsn: *lsn,
            vote_floor: None,
            vote_hold: Duration::ZERO,
            stamp: match log.last() {
                Some(entry) => entry.head.stamp,
                None => newest.map_or_else(Default::default, |newest| newest.meta.stamp),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kattu_raft::{NodeId, Term};

    fn hard(lsn: u64, term: u64, vote: Option<u64>) -> LogRecord {
        let hard = HardState { term: Term(term), vote: vote.map(NodeId) };
        LogRecord { lsn: Lsn(lsn), body: LogBody::HardState(hard) }
    }

    #[test]
    fn a_crash_keeps_some_first_records_of_what_was_not_synced() {
        let mut disk = Disk::default();
        disk.write(vec![hard(1, 1, None), hard(2, 1, Some(2)), hard(3, 2, None)]);
        assert_eq!(disk.sync(1), Ok(Lsn(1)));
        disk.crash(1).expect("a lawful record survives");
        assert_eq!(disk.recover().hard, HardState { term: Term(1), vote: Some(NodeId(2)) });
        assert_eq!(disk.recover().lsn, Lsn(2));
    }

    #[test]
    fn a_vote_that_changes_is_refused() {
        let mut disk = Disk::default();
        disk.write(vec![hard(1, 1, Some(1)), hard(2, 1, Some(2))]);
        assert!(disk.written().is_err());
    }
}
