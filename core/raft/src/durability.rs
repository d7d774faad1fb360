//! Durability: which records are on this disk, and which messages wait for one.
//!
//! In:    records that leave for the log, and `Persisted(lsn)`.
//! Out:   the persisted index; messages that were held back, once the term and vote they speak for are on disk.
//! Rule:  a completion names records, never indexes. Numbers are not reused, and the numbers of entries that were
//!        truncated are forgotten, so a late completion of an overwritten entry persists nothing.
//!        [replication-protocols §1.2, L6; fault-model ST1, ST2]
//! Knows nothing of: the contents of messages, roles.

use crate::canonical::Canonical;
use crate::contract::{Effects, HardState, LogBody, LogRecord};
use crate::message::Envelope;
use crate::raft::Raft;
use crate::types::{Duration, EntryId, Instant, LogIndex, Lsn};
use alloc::collections::VecDeque;

/// A commit mark that leaves with no other record is written alone after this much silence, so that a restart of an
/// idle group starts from the newest state. [fault-model ST17]
const COMMIT_MARK_IDLE: Duration = Duration::from_millis(500);

/// Messages held back at once. More would only pile up behind a disk that hangs, and any message may be lost anyway.
const HELD_MAX: usize = 1024;

/// Entries with consecutive record numbers at consecutive indexes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Run {
    lsn: Lsn,
    index: LogIndex,
    count: u64,
}

/// The state of the persist stream that this peer emits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Durability {
    /// Number of the last record emitted.
    last_lsn: Lsn,
    /// Every record up to this one is durable.
    persisted_lsn: Lsn,
    /// Record of the newest term and vote, or of a vote floor after it.
    hard_lsn: Lsn,
    /// Entries emitted and not yet durable, truncated ones excluded; ascending in number and index.
    writes: VecDeque<Run>,
    /// Messages that wait for a record of term and vote.
    held: VecDeque<(Lsn, Envelope)>,
    /// Highest commit mark emitted.
    marked: LogIndex,
    /// When a commit mark is emitted alone; never when everything is marked.
    mark_at: Instant,
}

impl Durability {
    /// Everything recovered is durable.
    pub(crate) fn recover(lsn: Lsn, marked: LogIndex) -> Durability {
        Durability {
            last_lsn: lsn,
            persisted_lsn: lsn,
            hard_lsn: lsn,
            writes: VecDeque::new(),
            held: VecDeque::new(),
            marked,
            mark_at: Instant::NEVER,
        }
    }

    /// Whether the newest term and vote are on disk.
    pub(crate) fn hard_state_is_durable(&self) -> bool {
        self.hard_lsn <= self.persisted_lsn
    }

    /// When the commit mark is due alone.
    pub(crate) fn mark_at(&self) -> Instant {
        self.mark_at
    }

    /// First index that is emitted and not durable; `None` when all are durable.
    pub(crate) fn first_unpersisted(&self) -> Option<LogIndex> {
        self.writes.front().map(|run| run.index)
    }

    /// Notes that the entry at `index` was emitted as record `lsn`.
    fn wrote(&mut self, lsn: Lsn, index: LogIndex) {
        match self.writes.back_mut() {
            Some(run) if run.lsn.0 + run.count == lsn.0 && run.index.0 + run.count == index.0 => {
                run.count += 1
            }
            _ => self.writes.push_back(Run { lsn, index, count: 1 }),
        }
    }

    /// Forgets the writes from `first` on: their completions must not count for later entries at these indexes.
    fn forget(&mut self, first: LogIndex) {
        while let Some(run) = self.writes.back_mut() {
            if run.index.0 + run.count <= first.0 {
                return;
            }
            run.count = first.0.saturating_sub(run.index.0);
            if run.count > 0 {
                return;
            }
            self.writes.pop_back();
        }
    }

    /// Forgets all writes under way: their entries are gone.
    pub(crate) fn forget_all(&mut self) {
        self.writes.clear();
    }

    /// Whether the record of this number is on disk.
    pub(crate) fn is_durable(&self, lsn: Lsn) -> bool {
        lsn <= self.persisted_lsn
    }

    /// See [`crate::canonical`]. Returns by how much record numbers became smaller.
    pub(crate) fn canonicalize(&mut self, canonical: &Canonical) -> u64 {
        let shift = self.persisted_lsn.0.saturating_sub(1);
        let shifted = |lsn: Lsn| Lsn(lsn.0 - shift);
        // Any durable record of term and vote is as good as the newest durable record.
        self.hard_lsn = shifted(self.hard_lsn.max(self.persisted_lsn));
        self.last_lsn = shifted(self.last_lsn);
        self.persisted_lsn = shifted(self.persisted_lsn);
        for run in &mut self.writes {
            run.lsn = shifted(run.lsn);
        }
        for (needs, _) in &mut self.held {
            *needs = shifted(*needs);
        }
        self.mark_at = canonical.distant(self.mark_at, canonical.mark());
        shift
    }

    /// Takes a completion. Returns the highest index that became durable by it, if any.
    fn completed(&mut self, lsn: Lsn) -> Option<LogIndex> {
        assert!(lsn <= self.last_lsn, "{lsn:?} is durable, but only {:?} was emitted", self.last_lsn);
        self.persisted_lsn = self.persisted_lsn.max(lsn);
        let mut durable = None;
        while let Some(run) = self.writes.front_mut() {
            let count = (lsn.0 + 1).saturating_sub(run.lsn.0).min(run.count);
            if count == 0 {
                break;
            }
            durable = Some(LogIndex(run.index.0 + count - 1));
            run.lsn.0 += count;
            run.index.0 += count;
            run.count -= count;
            if run.count == 0 {
                self.writes.pop_front();
            }
        }
        durable
    }
}

impl Raft {
    /// Emits one record, and with it the commit mark if the commit index has moved since the last one.
    pub(crate) fn record(&mut self, body: LogBody, effects: &mut Effects) {
        let lsn = self.durability.last_lsn.next();
        self.durability.last_lsn = lsn;
        match &body {
            // Messages sent after either record depend on it.
            LogBody::HardState(_) | LogBody::VoteFloor(_) => self.durability.hard_lsn = lsn,
            LogBody::Truncate(first) => self.durability.forget(*first),
            LogBody::Entry(entry) => self.durability.wrote(lsn, entry.id().index),
            LogBody::Base(base) => {
                self.durability.marked = self.durability.marked.max(base.index); // a base is committed
                if self.marks.committed <= self.durability.marked {
                    self.durability.mark_at = Instant::NEVER;
                }
            }
            LogBody::Commit(index) => {
                self.durability.marked = *index;
                self.durability.mark_at = Instant::NEVER;
            }
        }
        effects.persist.push(LogRecord { lsn, body });
        if self.durability.marked < self.marks.committed {
            self.record(LogBody::Commit(self.marks.committed), effects);
        }
    }

    /// Emits the log's new base, and returns the record's number. If the log ends there, it is not persisted up to
    /// there before this record is.
    pub(crate) fn record_base(&mut self, base: EntryId, is_end: bool, effects: &mut Effects) -> Lsn {
        let lsn = self.durability.last_lsn.next();
        if is_end {
            self.durability.wrote(lsn, base.index);
        }
        self.record(LogBody::Base(base), effects);
        lsn
    }

    /// Emits the term and the vote. Messages held for an older term are void.
    pub(crate) fn record_hard_state(&mut self, effects: &mut Effects) {
        let hard = HardState { term: self.term, vote: self.vote };
        self.record(LogBody::HardState(hard), effects);
    }

    /// Drops the messages held back: their term is over. [replication-protocols O7]
    pub(crate) fn drop_held(&mut self) {
        self.durability.held.clear();
    }

    /// The commit index moved: marks it with the next record, or alone after a while.
    pub(crate) fn commit_mark_wanted(&mut self, now: Instant) {
        self.durability.mark_at = now + COMMIT_MARK_IDLE;
    }

    /// Emits the commit mark alone if it is due.
    pub(crate) fn tick_commit_mark(&mut self, now: Instant, effects: &mut Effects) {
        if self.durability.mark_at <= now {
            self.record(LogBody::Commit(self.marks.committed), effects);
        }
    }

    /// Sends a message; holds it back until the term and vote it speaks for are on disk. [replication-protocols L6]
    pub(crate) fn send_when_durable(&mut self, envelope: Envelope, effects: &mut Effects) {
        assert_eq!(envelope.term, self.term, "a message carries its sender's current term");
        if self.durability.hard_state_is_durable() {
            effects.send.push(envelope);
        } else if self.durability.held.len() < HELD_MAX {
            self.durability.held.push_back((self.durability.hard_lsn, envelope));
        }
    }

    /// All records up to `lsn` are on this disk.
    pub fn persisted(&mut self, now: Instant, lsn: Lsn, effects: &mut Effects) {
        if let Some(index) = self.durability.completed(lsn) {
            assert!(
                self.marks.persisted < index,
                "persisted went from {:?} to {index:?}",
                self.marks.persisted
            );
            assert!(index <= self.log.last().index, "persisted {index:?} of a log up to {}", self.log.last());
            self.marks.persisted = index;
        }
        while self.durability.held.front().is_some_and(|(needs, _)| *needs <= lsn) {
            effects.send.extend(self.durability.held.pop_front().map(|(_, envelope)| envelope));
        }
        self.count_own_vote(now, effects);
        self.advance_commit_as_leader(now, effects);
        self.hand_out(now, effects);
        self.shrink_recent();
    }
}
