//! A disk under the control of the test: records wait until they are synced, and a crash loses those that were not.
//! Snapshot files stand beside the log.

use kattu_raft::{
    ChunkRead, ChunkStored, Duration, Entry, EntryId, EntryKind, Fetch, HardState, LogBody, LogIndex,
    LogRecord, Lsn, Membership, ReadChunk, Recovered, SharedBytes, SnapshotMeta, Stamp, StoreChunk, Term,
};

/// Snapshots kept; the oldest goes when there is one more.
const SNAPSHOTS_KEPT: usize = 2;

/// One member's log.
#[derive(Default)]
pub struct Disk {
    /// Records written, in order, and not durable.
    pending: Vec<LogRecord>,
    /// The state that a restart finds.
    pub durable: State,
    /// The state with everything written.
    written: State,
    /// Complete snapshots, oldest first. Durable.
    pub snapshots: Vec<(SnapshotMeta, Vec<u8>)>,
    /// The part of an incoming snapshot received so far.
    pub partial: Option<(SnapshotMeta, Vec<u8>)>,
    /// Where the log ended, or a position surely not before that: durable. [fault-model ST7]
    pub vote_floor: Option<EntryId>,
    /// How long vote holds of this member may last: durable. [replication-protocols L-4]
    pub vote_hold: Duration,
    /// Entries that it held and has lost.
    pub lost: Vec<EntryId>,
}

/// The state after a run of records.
#[derive(Clone, Default)]
pub struct State {
    /// Term and vote.
    pub hard: HardState,
    /// Position before the first entry.
    pub base: EntryId,
    /// The entries behind the base.
    pub log: Vec<Entry>,
    /// The newest commit mark.
    pub committed: LogIndex,
    /// The number of the newest record.
    pub lsn: Lsn,
}

impl State {
    /// Last position.
    pub fn last(&self) -> EntryId {
        self.log.last().map_or(self.base, Entry::id)
    }

    /// How many entries of the log are at or before `index`.
    fn count_to(&self, index: LogIndex) -> usize {
        index.0.saturating_sub(self.base.index.0) as usize
    }

    fn take(&mut self, record: &LogRecord) {
        assert_eq!(record.lsn, self.lsn.next(), "records are numbered without gaps");
        self.lsn = record.lsn;
        match &record.body {
            LogBody::HardState(hard) => {
                assert!(self.hard.term <= hard.term, "term fell from {:?} to {:?}", self.hard, hard);
                let kept =
                    self.hard.term < hard.term || self.hard.vote.is_none() || self.hard.vote == hard.vote;
                assert!(kept, "vote changed from {:?} to {:?}", self.hard, hard);
                self.hard = *hard;
            }
            LogBody::Truncate(first) => {
                assert!(
                    self.committed < *first,
                    "truncates {first:?}, {:?} is marked committed",
                    self.committed
                );
                assert!(*first <= self.last().index, "truncates nothing");
                self.log.truncate(self.count_to(first.previous()));
            }
            LogBody::Entry(entry) => {
                assert_eq!(entry.id().index, self.last().index.next(), "entry after a gap");
                assert!(entry.id().term <= self.hard.term, "entry of a term that is not on disk");
                let before = self.log.last().map_or(Stamp(0), |entry| entry.head.stamp);
                assert!(before <= entry.head.stamp, "stamps fall");
                self.log.push(entry.clone());
            }
            LogBody::Commit(index) => {
                assert!(*index <= self.last().index, "commit mark beyond the log");
                assert!(self.committed < *index, "a commit mark says nothing new");
                self.committed = *index;
            }
            LogBody::Base(base) => {
                assert!(self.base.index <= base.index, "the base goes back from {} to {base}", self.base);
                if self.term_at(base.index) == Some(base.term) {
                    self.log.drain(..self.count_to(base.index));
                } else {
                    self.log.clear();
                }
                self.base = *base;
                self.committed = self.committed.max(base.index);
            }
            LogBody::VoteFloor(_) => {} // in a place of its own
        }
    }

    /// The term at `index`, also at the base.
    pub fn term_at(&self, index: LogIndex) -> Option<Term> {
        match index.0.checked_sub(self.base.index.0)? {
            0 => Some(self.base.term),
            n => self.log.get(n as usize - 1).map(|entry| entry.id().term),
        }
    }

    /// Whether this entry is in the log, or in what a snapshot covers.
    pub fn holds(&self, id: EntryId) -> bool {
        id.index < self.base.index || self.term_at(id.index) == Some(id.term)
    }
}

impl Disk {
    /// Takes a record, not durable yet.
    pub fn write(&mut self, record: LogRecord) {
        self.written.take(&record);
        self.pending.push(record);
    }

    /// The state with everything written, durable or not.
    pub fn written(&self) -> &State {
        &self.written
    }

    /// How many records are not durable yet.
    pub fn unsynced(&self) -> usize {
        self.pending.len()
    }

    /// Number of the newest record written.
    pub fn last_lsn(&self) -> Lsn {
        self.written.lsn
    }

    /// Makes the oldest `records` records durable. Returns the number of the last one, if there was any.
    pub fn sync(&mut self, records: usize) -> Option<Lsn> {
        let records = records.min(self.pending.len());
        for record in self.pending.drain(..records) {
            self.durable.take(&record);
            if let LogBody::VoteFloor(vote_floor) = &record.body {
                self.vote_floor = self.vote_floor.max(Some(*vote_floor));
            }
        }
        (records > 0).then_some(self.durable.lsn)
    }

    /// Loses what was not synced, except the first `surviving` records, and half of an incomplete file.
    pub fn crash(&mut self, surviving: usize) {
        self.sync(surviving);
        self.pending.clear();
        self.written = self.durable.clone();
        if let Some((_, bytes)) = &mut self.partial {
            bytes.truncate(bytes.len() / 2);
        }
    }

    /// Damages everything after the first `kept` entries. If the part behind the damage is readable it shows where the
    /// log ended; otherwise only the term bounds it.
    pub fn damage(&mut self, kept: usize, readable: bool) {
        assert!(self.pending.is_empty(), "damage is found at start");
        let last = self.durable.last();
        let vote_floor = match readable {
            true => last,
            false => EntryId { term: self.durable.hard.term.next(), index: LogIndex(0) },
        };
        self.vote_floor = self.vote_floor.max(Some(vote_floor));
        self.lost.extend(self.durable.log.iter().skip(kept).map(Entry::id));
        self.durable.log.truncate(kept);
        self.durable.committed = self.durable.committed.min(self.durable.last().index);
        self.written = self.durable.clone();
    }

    /// Loses everything after the first `kept` entries without a trace: the disk lied about a sync, or is an older
    /// copy.
    pub fn forget(&mut self, kept: usize) {
        let vote_floor = self.vote_floor;
        self.damage(kept, true);
        self.vote_floor = vote_floor;
    }

    /// Whether this entry is durable here, or was until damage took it.
    pub fn held(&self, id: EntryId) -> bool {
        self.durable.holds(id) || self.lost.contains(&id)
    }

    /// The newest snapshot that the log holds the end of.
    pub fn newest_snapshot(&self) -> Option<&(SnapshotMeta, Vec<u8>)> {
        let log = &self.durable;
        self.snapshots.iter().rev().find(|(meta, _)| log.term_at(meta.last.index) == Some(meta.last.term))
    }

    /// A snapshot is complete and durable under its name.
    pub(crate) fn keep_snapshot(&mut self, meta: SnapshotMeta, bytes: Vec<u8>) {
        self.snapshots.retain(|(known, _)| known.last != meta.last);
        self.snapshots.push((meta, bytes));
        if self.snapshots.len() > SNAPSHOTS_KEPT {
            self.snapshots.remove(0);
        }
    }

    /// Answers a request for a piece of a snapshot.
    pub fn read_chunk(&self, request: &ReadChunk) -> ChunkRead {
        let Some((_, file)) = self.snapshots.iter().find(|(meta, _)| meta.last == request.last) else {
            return ChunkRead::Gone;
        };
        let start = (request.offset as usize).min(file.len());
        let end = (start + request.bytes_max).min(file.len());
        ChunkRead::Bytes { bytes: file[start..end].to_vec().into(), total: file.len() as u64 }
    }

    /// Stores a piece of an incoming snapshot, if it continues the file.
    pub fn store_chunk(&mut self, chunk: StoreChunk) -> ChunkStored {
        let StoreChunk { meta, offset, bytes, total } = chunk;
        let last = meta.last;
        if self.snapshots.iter().any(|(known, _)| known.last == last) {
            return ChunkStored { last, next: total, complete: true };
        }
        let known = self.partial.take().filter(|(known, _)| known.last == last);
        let (meta, mut file) = known.unwrap_or((meta, Vec::new()));
        if file.len() as u64 == offset {
            file.extend_from_slice(&bytes);
        }
        let next = file.len() as u64;
        assert!(next <= total, "a file of {total} bytes has {next}");
        if next == total {
            self.keep_snapshot(meta, file);
        } else {
            self.partial = Some((meta, file));
        }
        ChunkStored { last, next, complete: next == total }
    }

    /// The state that a restart finds; with or without some entries in the tail.
    pub fn recover(&self, with_tail: bool) -> Recovered {
        let State { hard, base, log, committed, lsn } = &self.durable;
        let mut term_starts: Vec<EntryId> = Vec::new();
        for entry in log {
            if term_starts.last().map(|start| start.term) != Some(entry.id().term) {
                term_starts.push(entry.id());
            }
        }
        let snapshot = self.newest_snapshot().map(|(meta, _)| meta.clone());
        let stamp = snapshot.as_ref().map_or(Stamp(0), |meta| meta.stamp);
        let configurations = log.iter().filter(|entry| entry.head.kind == EntryKind::Config);
        let read = |entry: &Entry| {
            Membership::decode(entry.payload().expect("all of it")).expect("written by a leader").0
        };
        let memberships = configurations.map(|entry| (entry.id().index, read(entry))).collect();
        let tail = if with_tail { log.len().min(3) } else { 0 };
        Recovered {
            hard: *hard,
            base: *base,
            snapshot,
            memberships,
            term_starts,
            last: self.durable.last(),
            tail: log[log.len() - tail..].to_vec(),
            committed: *committed,
            lsn: *lsn,
            stamp: log.last().map_or(stamp, |entry| entry.head.stamp),
            vote_floor: self.vote_floor,
            vote_hold: self.vote_hold,
        }
    }

    /// Reads entries back, as the log would: from what was written, synced or not.
    pub fn read(&self, fetch: &Fetch) -> Vec<Entry> {
        let written = &self.written;
        let first = fetch.first.0.checked_sub(written.base.index.0 + 1);
        let last = written.count_to(fetch.last).min(written.log.len());
        let range = first.and_then(|first| written.log.get(first as usize..last)).unwrap_or_default();
        let mut bytes = 0;
        let fits = |(n, entry): &(usize, &Entry)| {
            bytes += entry.len();
            *n == 0 || bytes <= fetch.bytes_max
        };
        range.iter().enumerate().take_while(fits).map(|(_, entry)| entry.clone()).collect()
    }
}

/// The contents of a store: every command applied, in order.
pub type Store = Vec<(EntryId, Vec<u8>)>;

/// The bytes of a store's snapshot.
pub fn freeze(store: &Store) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (id, payload) in store {
        for number in [id.term.0, id.index.0, payload.len() as u64] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(payload);
    }
    bytes
}

/// The store of a snapshot's bytes.
pub fn thaw(mut bytes: &[u8]) -> Store {
    let number = |bytes: &mut &[u8]| {
        let (number, rest) = bytes.split_at(8);
        *bytes = rest;
        u64::from_le_bytes(number.try_into().expect("eight bytes"))
    };
    let mut store = Vec::new();
    while !bytes.is_empty() {
        let id = EntryId::new(number(&mut bytes), number(&mut bytes));
        let len = number(&mut bytes) as usize;
        let (payload, rest) = bytes.split_at(len);
        bytes = rest;
        store.push((id, payload.to_vec()));
    }
    store
}

/// No bytes: the result of a read that fails for a passing reason.
pub(crate) fn nothing_read() -> ChunkRead {
    ChunkRead::Bytes { bytes: SharedBytes::default(), total: u64::MAX }
}
