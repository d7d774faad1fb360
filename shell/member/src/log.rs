//! Log: when a member's log goes to the disk, what it does when the disk is full, and when the next segment is made.
//!
//! ```text
//!   append(records) ─▶ sync(now) ─▶ Persisted(lsn)         the disk has taken everything
//!                          │  └───▶ Room(full)             the disk is full: tried again after FULL_RETRY
//!                          └──────▶ SegmentJob             made beside the log; its result comes back by `made`
//! ```
//! Rules: 1. A full disk is not asked all the time, because each attempt fills what is left of it. [fault-model F12]
//!        2. A sync of commit marks alone is followed by a mark that everything is synced: nothing else will come for a while,
//!           and damage behind it must not be taken for a torn tail. [fault-model ST6]
//!        3. Every other error ends the log: what is on the disk is unknown until a start reads it back. [fault-model ST3, F11]
//!        4. A segment that could not be made counts as a full disk for growth; the next attempt waits for FULL_RETRY.
//! Knows nothing of: clocks, threads, what records mean, when they are due.

use kattu_raft::{Duration, Entry, Fetch, GroupId, Instant, LogBody, LogRecord, Lsn};
use kattu_wal::{Prepared, ReadPlan, SegmentTask, Wal, WalError};

/// How often a full disk is tried again.
pub const FULL_RETRY: Duration = Duration::from_millis(200);

/// Bytes read back at once, however much was asked for. The replica asks for the rest again, and memory stays flat during a replay.
pub(crate) const FETCH_BYTES_MAX: usize = 2 << 20;

/// What the log has done.
#[derive(Debug)]
pub enum Completion {
    /// Everything up to this record is durable. The time is what the sync took, if it wrote more than commit marks.
    Persisted(Lsn, LogSpace, Option<Duration>),
    /// Entries were read back.
    Fetched(Fetch, Vec<Entry>),
    /// Only the space in the log has changed.
    Room(LogSpace),
}

/// Space in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSpace {
    /// Bytes allocated and free. [fault-model ST15]
    pub free: u64,
    /// The disk has no room for another segment, or not even for the records that wait. None of those is acknowledged; they are
    /// tried again. [fault-model F12]
    pub full: bool,
}

/// A segment that is to be made beside the log, after a pause.
#[derive(Debug)]
pub struct SegmentJob {
    /// Makes it; what comes of it goes to [`Log::made`].
    pub task: SegmentTask,
    /// How long to wait before: a full disk is not asked all the time.
    pub pause: Duration,
}

/// What the operator is told of the log.
#[derive(Debug)]
pub enum Note {
    /// The disk has no room for the records that wait.
    Full(WalError),
    /// The records that waited for room are written.
    WrittenAfterAll,
    /// The next segment could not be made.
    NoSegment(WalError),
    /// There is room for the log again.
    RoomAgain,
}

/// How an executor goes to the disk: it may time the call and watch over it.
pub trait Timed {
    /// Makes the call; the time is what it took.
    fn over<T>(&mut self, call: impl FnOnce() -> T) -> (T, Duration);
}

/// A member's log.
#[derive(Debug)]
pub struct Log {
    wal: Wal,
    group: GroupId,
    /// A segment that was made, or could not be, and is not taken yet.
    made: Option<Result<Prepared, WalError>>,
    /// A segment that is to be made.
    job: Option<SegmentJob>,
    /// The disk had no room for the next segment.
    no_spare: bool,
    /// When the disk had no room for the records that wait, at the last attempt.
    blocked: Option<Instant>,
    /// The records since the last sync are commit marks alone.
    idle: bool,
    notes: Vec<Note>,
}

impl Log {
    /// The log of one group.
    #[must_use]
    pub fn new(wal: Wal, group: GroupId) -> Log {
        Log {
            wal,
            group,
            made: None,
            job: None,
            no_spare: false,
            blocked: None,
            idle: true,
            notes: Vec::new(),
        }
    }

    /// The files, for statistics, snapshots and readers beside the log.
    #[must_use]
    pub fn wal(&self) -> &Wal {
        &self.wal
    }

    /// Space in the log as it is now.
    #[must_use]
    pub fn room(&self) -> LogSpace {
        LogSpace { free: self.wal.space(), full: self.is_blocked() || self.no_spare }
    }

    /// Whether records wait for room on the disk.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.blocked.is_some()
    }

    /// Whether to go to the disk now. [Rule 1]
    #[must_use]
    pub fn is_due(&self, now: Instant) -> bool {
        self.blocked.is_none_or(|tried| tried + FULL_RETRY <= now)
    }

    /// Adds records behind what waits for the next sync.
    ///
    /// # Errors
    /// The log has failed. [Rule 3]
    pub fn append(&mut self, records: &[LogRecord]) -> Result<(), WalError> {
        self.idle &= records.iter().all(|record| matches!(record.body, LogBody::Commit(_)));
        self.wal.append(self.group, records)
    }

    /// Writes and syncs the records that wait.
    ///
    /// # Errors
    /// The log has failed. [Rule 3]
    pub fn sync(&mut self, now: Instant, disk: &mut impl Timed) -> Result<Completion, WalError> {
        self.take_made()?;
        let (synced, took) = disk.over(|| self.wal.sync());
        let durable = match synced {
            Ok(durable) => durable,
            Err(error @ WalError::NoSpace { .. }) => {
                self.block(now, error);
                self.prepare_next(); // its end is the next occasion to try
                return Ok(Completion::Room(self.room()));
            }
            Err(error) => return Err(error),
        };
        let took = (!self.idle).then_some(took);
        if self.blocked.take().is_some() {
            self.notes.push(Note::WrittenAfterAll);
        }
        if std::mem::replace(&mut self.idle, true) {
            match disk.over(|| self.wal.mark()).0 {
                Ok(_) => {}
                // The records are durable all the same; the mark waits for room, as anything would.
                Err(error @ WalError::NoSpace { .. }) => self.block(now, error),
                Err(error) => return Err(error),
            }
        }
        let lsn = durable.into_iter().find(|(group, _)| *group == self.group).map_or(Lsn(0), |(_, lsn)| lsn);
        self.prepare_next();
        Ok(Completion::Persisted(lsn, self.room(), took))
    }

    fn block(&mut self, now: Instant, error: WalError) {
        if self.blocked.replace(now).is_none() {
            self.notes.push(Note::Full(error));
        }
    }

    /// Reads entries back.
    ///
    /// # Errors
    /// Damage, which the next start repairs from the other members; or the log has failed.
    pub fn fetch(&mut self, fetch: Fetch, disk: &mut impl Timed) -> Result<Completion, WalError> {
        let bytes_max = fetch.bytes_max.min(FETCH_BYTES_MAX);
        let (read, _) = disk.over(|| self.wal.read(self.group, fetch.first, fetch.last, bytes_max));
        Ok(Completion::Fetched(fetch, read?))
    }

    /// How to read entries beside the log.
    #[must_use]
    pub fn plan(&mut self, fetch: &Fetch) -> ReadPlan {
        self.wal.plan(self.group, fetch.first, fetch.last, fetch.bytes_max.min(FETCH_BYTES_MAX))
    }

    /// A segment was made beside the log, or could not be; it is taken at the next [`Log::sync`] or [`Log::look`].
    pub fn made(&mut self, made: Result<Prepared, WalError>) {
        self.made = Some(made);
    }

    /// Whether a segment that was made waits to be taken.
    #[must_use]
    pub fn has_made(&self) -> bool {
        self.made.is_some()
    }

    /// Takes a segment that was made, and orders the next if there is none.
    ///
    /// # Errors
    /// The log has failed. [Rule 3]
    pub fn look(&mut self) -> Result<Completion, WalError> {
        self.take_made()?;
        self.prepare_next();
        Ok(Completion::Room(self.room()))
    }

    /// Orders the next segment if the log needs one and none is being made.
    pub fn prepare_next(&mut self) {
        if let Some(task) = self.wal.wants_segment() {
            let pause = if self.no_spare { FULL_RETRY } else { Duration::ZERO };
            self.job = Some(SegmentJob { task, pause });
        }
    }

    /// The segment that is to be made, once.
    pub fn take_job(&mut self) -> Option<SegmentJob> {
        self.job.take()
    }

    /// What the operator is to be told, oldest first; mostly nothing.
    pub fn take_notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }

    fn take_made(&mut self) -> Result<(), WalError> {
        let Some(made) = self.made.take() else { return Ok(()) };
        match self.wal.accept(made) {
            Ok(()) => {
                if std::mem::replace(&mut self.no_spare, false) {
                    self.notes.push(Note::RoomAgain);
                }
            }
            // A leader without a log would refuse every write as if its disk were full, and lead on.
            Err(error) if error.ends_the_log() => return Err(error),
            Err(error) => {
                if !std::mem::replace(&mut self.no_spare, true) {
                    self.notes.push(Note::NoSegment(error));
                }
            }
        }
        Ok(())
    }

    /// Writes the mark of a clean end.
    ///
    /// # Errors
    /// The mark is missing; a restart reads the log all the same.
    pub fn close(self) -> Result<(), WalError> {
        self.wal.close()
    }
}
