//! A disk as the log promises it: records become durable in order, and a crash keeps some first ones of the rest.
//!
//! In:    the records a peer emits; how far the disk has come; crashes.
//! Out:   what a restart finds.
//! Rule:  what a record may say after those before it is checked here: a term never falls, a vote is never changed, a
//!        commit mark is never overwritten.
//! Knows nothing of: files, sectors, damage; crash images of the real log are `shell/wal`'s tests.

use kattu_raft::{Entry, EntryId, HardState, LogBody, LogIndex, LogRecord, Lsn, Recovered};

/// What a run of records amounts to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    /// Newest term and vote.
    pub hard: HardState,
    /// All entries; the first one has index 1.
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
}

/// A record that must not follow those before it.
pub type Broken = String;

impl State {
    fn take(&mut self, record: &LogRecord) -> Result<(), Broken> {
        let broken = |what: String| Err(format!("record {}: {what}", record.lsn.0));
        if record.lsn != self.lsn.next() {
            return broken(format!("follows {}", self.lsn.0));
        }
        self.lsn = record.lsn;
        let last = LogIndex(self.log.len() as u64);
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
                self.log.truncate(first.0 as usize - 1);
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
            LogBody::Base(base) => return broken(format!("prunes up to {base}; no cluster here does")),
        }
        Ok(())
    }
}

impl Disk {
    /// Takes records that a peer emitted.
    pub fn write(&mut self, records: Vec<LogRecord>) {
        self.unsynced.extend(records);
    }

    /// Makes the oldest `records` durable and names the newest of them.
    ///
    /// # Errors
    /// The record that must not be there.
    pub fn sync(&mut self, records: usize) -> Result<Lsn, Broken> {
        for record in self.unsynced.drain(..records) {
            self.durable.take(&record)?;
        }
        Ok(self.durable.lsn)
    }

    /// Loses what was not synced but for the first `surviving` records.
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
    /// The record that must not be there.
    pub fn written(&self) -> Result<State, Broken> {
        let mut state = self.durable.clone();
        self.unsynced.iter().try_for_each(|record| state.take(record))?;
        Ok(state)
    }

    /// Record numbers become smaller by `shift`, as their peer has said.
    pub fn renumber(&mut self, shift: u64) {
        self.durable.lsn.0 -= shift;
        for record in &mut self.unsynced {
            record.lsn.0 -= shift;
        }
    }

    /// What a restart finds: everything durable, with all entries at hand.
    #[must_use]
    pub fn recover(&self) -> Recovered {
        let State { hard, log, committed, lsn } = &self.durable;
        let mut term_starts: Vec<EntryId> = Vec::new();
        for entry in log {
            if term_starts.last().map(|start| start.term) != Some(entry.id().term) {
                term_starts.push(entry.id());
            }
        }
        Recovered {
            hard: *hard,
            base: EntryId::default(),
            snapshot: None,
            memberships: Vec::new(),
            term_starts,
            last: log.last().map(Entry::id).unwrap_or_default(),
            tail: log.clone(),
            committed: *committed,
            lsn: *lsn,
            floor: None,
            stamp: log.last().map(|entry| entry.head.stamp).unwrap_or_default(),
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
