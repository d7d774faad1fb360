//! Log orders: what a log on a thread of its own does with what it is told, and what the node's thread makes of its answers.
//!
//! ```text
//!   node's thread ── Persist, Fetch, Look … ──▶ Orders ── Turn::Sync, Turn::Fetch … ──▶ the thread does it
//!        ▲                                                                                │
//!        └──────────────── Underway: less space, as long as records are on their way ◀────┘
//! ```
//! Rules: 1. The records that came during the last sync are the next group, up to so many entries. [replication-protocols B3]
//!        2. Entries to be read may still be in the block that is not written yet: records before a reading are synced first.
//!        3. The thread does not know which records are on their way to it, so its free space is corrected by them.
//! Knows nothing of: threads, channels, when a log gets one.

use crate::log::{Completion, Log, LogSpace};
use kattu_raft::{Fetch, LogBody, LogRecord, Lsn};
use kattu_wal::WalError;
use std::collections::VecDeque;

/// An order to a log.
#[derive(Debug)]
pub enum Order {
    /// Write and sync these records.
    Persist(Vec<LogRecord>),
    /// At most so many entries in one sync from now on; one order always passes.
    Batch(usize),
    /// Read entries back.
    Fetch(Fetch),
    /// Have entries read beside the log.
    FetchBeside(Fetch),
    /// A segment has been made ready beside the log, or could not be.
    Look,
    /// The thread ends and gives the log back.
    Return,
    /// The log is closed, and the thread ends.
    Close,
}

impl Order {
    /// The log space that it takes, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            Order::Persist(records) => bytes_of(records),
            Order::Batch(_)
            | Order::Fetch(_)
            | Order::FetchBeside(_)
            | Order::Look
            | Order::Return
            | Order::Close => 0,
        }
    }
}

/// The log space that these records take, in bytes.
#[must_use]
pub fn bytes_of(records: &[LogRecord]) -> u64 {
    let bytes = |record: &LogRecord| match &record.body {
        LogBody::Entry(entry) => entry.len() as u64,
        LogBody::HardState(_)
        | LogBody::Truncate(_)
        | LogBody::Commit(_)
        | LogBody::Base(_)
        | LogBody::VoteFloor(_) => 0,
    };
    records.iter().map(bytes).sum()
}

/// What the thread is to do next.
#[derive(Debug)]
pub enum Turn {
    /// [`Log::sync`], if it is due; the space otherwise.
    Sync,
    /// See [`Order::Fetch`].
    Fetch(Fetch),
    /// See [`Order::FetchBeside`].
    FetchBeside(Fetch),
    /// See [`Order::Look`].
    Look,
    /// See [`Order::Return`].
    Return,
    /// See [`Order::Close`].
    Close,
    /// To wait for orders.
    Idle,
}

/// The orders of a log.
#[derive(Debug)]
pub struct Orders {
    queue: VecDeque<Order>,
    /// Records wait for a sync.
    is_dirty: bool,
    /// Entries that wait for a sync.
    entries: usize,
    /// Most entries in one sync.
    entries_max: usize,
}

impl Default for Orders {
    fn default() -> Orders {
        Orders { queue: VecDeque::new(), is_dirty: false, entries: 0, entries_max: usize::MAX }
    }
}

/// How many of these records are entries.
#[must_use]
pub fn entries_in(records: &[LogRecord]) -> usize {
    records.iter().filter(|record| matches!(record.body, LogBody::Entry(_))).count()
}

impl Orders {
    /// Adds an order behind the others.
    pub fn push(&mut self, order: Order) {
        self.queue.push_back(order);
    }

    /// Time has passed, or orders have come: what a full disk has refused is tried again.
    pub fn wake(&mut self, log: &Log) {
        self.is_dirty |= log.is_blocked();
    }

    /// What to do next. Records are appended on the way.
    ///
    /// # Errors
    /// The log has failed.
    pub fn next(&mut self, log: &mut Log) -> Result<Turn, WalError> {
        loop {
            let needs_sync = match self.queue.front() {
                Some(Order::Persist(records)) => self.entries_max < self.entries + entries_in(records),
                Some(Order::Fetch(_) | Order::FetchBeside(_)) | None => true,
                Some(Order::Batch(_) | Order::Look | Order::Return | Order::Close) => false,
            };
            if self.is_dirty && needs_sync {
                (self.is_dirty, self.entries) = (false, 0);
                return Ok(Turn::Sync);
            }
            return Ok(match self.queue.pop_front() {
                Some(Order::Persist(records)) => {
                    log.append(&records)?;
                    self.is_dirty = true;
                    self.entries += entries_in(&records);
                    continue;
                }
                Some(Order::Batch(entries_max)) => {
                    self.entries_max = entries_max;
                    continue;
                }
                Some(Order::Fetch(fetch)) => Turn::Fetch(fetch),
                Some(Order::FetchBeside(fetch)) => Turn::FetchBeside(fetch),
                Some(Order::Look) => Turn::Look,
                Some(Order::Return) => Turn::Return,
                Some(Order::Close) => Turn::Close,
                None => Turn::Idle,
            });
        }
    }
}

/// Records that were ordered and are not durable yet: their space is not free any more. [Rule 3]
#[derive(Debug, Default)]
pub struct Underway {
    /// Of each order its last record, and bytes.
    orders: VecDeque<(Lsn, u64)>,
}

impl Underway {
    /// These records were ordered.
    pub fn ordered(&mut self, records: &[LogRecord]) {
        self.orders.extend(records.last().map(|record| (record.lsn, bytes_of(records))));
    }

    /// Whether everything that was ordered is durable.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.orders.is_empty()
    }

    /// What the thread has told, with its space corrected. `waiting`: bytes that wait for the log elsewhere.
    pub fn less(&mut self, completion: Completion, waiting: u64) -> Completion {
        match completion {
            Completion::Persisted(lsn, room, took) => {
                while self.orders.front().is_some_and(|&(last, _)| last <= lsn) {
                    self.orders.pop_front();
                }
                Completion::Persisted(lsn, self.space(room, waiting), took)
            }
            Completion::Room(room) => Completion::Room(self.space(room, waiting)),
            fetched @ Completion::Fetched(..) => fetched,
        }
    }

    fn space(&self, room: LogSpace, waiting: u64) -> LogSpace {
        let underway: u64 = self.orders.iter().map(|&(_, bytes)| bytes).sum();
        LogSpace { free: room.free.saturating_sub(underway + waiting), ..room }
    }
}
