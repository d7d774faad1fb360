//! A disk that does what it is told when it is told: records wait until they are synced, and a crash loses what was
//! not.

use kattu_raft::{
    Entry, EntryId, Fetch, HardState, LogBody, LogIndex, LogRecord, Lsn, Recovered, Stamp, Term,
};

/// One member's log.
#[derive(Default)]
pub struct Disk {
    /// Written, in order, and not durable.
    pending: Vec<LogRecord>,
    /// What a restart would find.
    pub durable: State,
    /// With everything written.
    written: State,
}

/// The outcome of a run of records.
#[derive(Clone, Default)]
pub struct State {
    pub hard: HardState,
    pub log: Vec<Entry>,
    pub committed: LogIndex,
    pub lsn: Lsn,
}

impl State {
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
                assert!(first.0 <= self.log.len() as u64, "truncates nothing");
                self.log.truncate(first.0 as usize - 1);
            }
            LogBody::Entry(entry) => {
                assert_eq!(entry.id().index.0, self.log.len() as u64 + 1, "entry after a gap");
                assert!(entry.id().term <= self.hard.term, "entry of a term that is not on disk");
                let before = self.log.last().map_or(Stamp(0), |entry| entry.head.stamp);
                assert!(before <= entry.head.stamp, "stamps fall");
                self.log.push(entry.clone());
            }
            LogBody::Commit(index) => {
                assert!(index.0 <= self.log.len() as u64, "commit mark beyond the log");
                assert!(self.committed < *index, "a commit mark says nothing new");
                self.committed = *index;
            }
            LogBody::Base(base) => unreachable!("nothing is pruned up to {base} here"),
        }
    }

    pub fn term_at(&self, index: LogIndex) -> Option<Term> {
        match index.0 {
            0 => Some(Term(0)),
            index => self.log.get(index as usize - 1).map(|entry| entry.id().term),
        }
    }
}

impl Disk {
    pub fn write(&mut self, record: LogRecord) {
        self.written.take(&record);
        self.pending.push(record);
    }

    /// With everything written, durable or not.
    pub fn written(&self) -> &State {
        &self.written
    }

    pub fn unsynced(&self) -> usize {
        self.pending.len()
    }

    /// Number of the newest record written.
    pub fn last_lsn(&self) -> Lsn {
        self.written.lsn
    }

    /// Makes the oldest `records` durable; the number of the last one, if there was any.
    pub fn sync(&mut self, records: usize) -> Option<Lsn> {
        let records = records.min(self.pending.len());
        for record in self.pending.drain(..records) {
            self.durable.take(&record);
        }
        (records > 0).then_some(self.durable.lsn)
    }

    /// Loses what was not synced but for the first `surviving` records.
    pub fn crash(&mut self, surviving: usize) {
        self.sync(surviving);
        self.pending.clear();
        self.written = self.durable.clone();
    }

    /// What a restart finds; with or without some entries at the end of the log at hand.
    pub fn recover(&self, with_tail: bool) -> Recovered {
        let State { hard, log, committed, lsn } = &self.durable;
        let mut term_starts: Vec<EntryId> = Vec::new();
        for entry in log {
            if term_starts.last().map(|start| start.term) != Some(entry.id().term) {
                term_starts.push(entry.id());
            }
        }
        let tail = if with_tail { log.len().min(3) } else { 0 };
        Recovered {
            hard: *hard,
            base: EntryId::default(),
            snapshot: None,
            memberships: Vec::new(),
            term_starts,
            last: log.last().map(Entry::id).unwrap_or_default(),
            tail: log[log.len() - tail..].to_vec(),
            committed: *committed,
            lsn: *lsn,
            stamp: log.last().map(|entry| entry.head.stamp).unwrap_or_default(),
        }
    }

    /// Reads entries back, as the log would: from what was written, synced or not.
    pub fn read(&self, fetch: &Fetch) -> Vec<Entry> {
        let log = &self.written.log;
        let (first, last) = (fetch.first.0 as usize - 1, (fetch.last.0 as usize).min(log.len()));
        let mut bytes = 0;
        let range = log.get(first..last).unwrap_or_default();
        let fits = |(n, entry): &(usize, &Entry)| {
            bytes += entry.len();
            *n == 0 || bytes <= fetch.bytes_max
        };
        range.iter().enumerate().take_while(fits).map(|(_, entry)| entry.clone()).collect()
    }
}
