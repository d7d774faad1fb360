//! Log: the member's durable log under the hands of its simulated process. [shell/runtime `disk::Log`]
//!
//! The very `Wal` of production, called in production's order; only what that file does with threads and clocks is done
//! here with virtual time: a segment is made ahead on a passing thread, a full disk is tried again after a pause.
//! Knows nothing of: nodes, when it is called.

use crate::clock::{MS, US};
use kattu_raft::{Duration, Entry, Fetch, GroupId, LogBody, LogRecord, Lsn};
use kattu_wal::{Prepared, SegmentTask, SnapshotStore, Wal, WalError};

/// How often a full disk is tried again.
const FULL_RETRY: u64 = 200 * MS;
/// How long a passing thread takes to make a segment.
const SEGMENT_TIME: u64 = 300 * US;
/// Bytes read back at once, whatever was asked for.
const FETCH_BYTES_MAX: usize = 2 << 20;

/// The one group.
pub(crate) const GROUP: GroupId = GroupId(0);

/// Room in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogSpace {
    pub(crate) free: u64,
    pub(crate) full: bool,
}

/// What the log has done.
#[derive(Debug)]
pub(crate) enum Completion {
    /// With what it took, if it was more than commit marks: said when it is over.
    Persisted(Lsn, LogSpace, Option<Duration>),
    Fetched(Fetch, Vec<Entry>),
    Room(LogSpace),
}

pub(crate) struct Log {
    wal: Wal,
    no_spare: bool,
    blocked: Option<u64>,
    /// The records since the last sync are commit marks alone.
    idle: bool,
    task: Option<SegmentTask>,
    /// A segment that the disk has been told to make: nobody is told of it before it is there.
    made: Option<Result<Prepared, WalError>>,
    prepared: Option<Result<Prepared, WalError>>,
    /// When the segment that is being made will be ready; to be planned by the caller.
    pub(crate) ready_at: Option<u64>,
}

impl Log {
    pub(crate) fn new(wal: Wal) -> Log {
        Log {
            wal,
            no_spare: false,
            blocked: None,
            idle: true,
            task: None,
            made: None,
            prepared: None,
            ready_at: None,
        }
    }

    /// The snapshots beside the log.
    pub(crate) fn snapshots(&self) -> SnapshotStore {
        self.wal.snapshots()
    }

    pub(crate) fn room(&self) -> LogSpace {
        LogSpace { free: self.wal.space(), full: self.is_blocked() || self.no_spare }
    }

    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked.is_some()
    }

    pub(crate) fn is_due(&self, now: u64) -> bool {
        self.blocked.is_none_or(|tried| tried + FULL_RETRY <= now)
    }

    pub(crate) fn append(&mut self, records: &[LogRecord]) -> Result<(), WalError> {
        self.idle &= records.iter().all(|record| matches!(record.body, LogBody::Commit(_)));
        self.wal.append(GROUP, records)
    }

    /// Writes and syncs what was gathered.
    pub(crate) fn sync(&mut self, now: u64) -> Result<Completion, WalError> {
        self.take_prepared()?;
        let durable = match self.wal.sync() {
            Ok(durable) => durable,
            Err(WalError::NoSpace { .. }) => {
                self.blocked = Some(now);
                self.prepare_next(now);
                return Ok(Completion::Room(self.room()));
            }
            Err(error) => return Err(error),
        };
        self.blocked = None;
        let took = (!self.idle).then_some(Duration::ZERO);
        if std::mem::replace(&mut self.idle, true) {
            match self.wal.mark() {
                Ok(_) => {}
                Err(WalError::NoSpace { .. }) => self.blocked = Some(now), // the mark waits
                Err(error) => return Err(error),
            }
        }
        let lsn = durable.into_iter().find(|(group, _)| *group == GROUP).map_or(Lsn(0), |(_, lsn)| lsn);
        self.prepare_next(now);
        Ok(Completion::Persisted(lsn, self.room(), took))
    }

    pub(crate) fn fetch(&mut self, fetch: Fetch) -> Result<Completion, WalError> {
        let bytes_max = fetch.bytes_max.min(FETCH_BYTES_MAX);
        let entries = self.wal.read(GROUP, fetch.first, fetch.last, bytes_max)?;
        Ok(Completion::Fetched(fetch, entries))
    }

    pub(crate) fn close(self) -> Result<(), WalError> {
        self.wal.close()
    }

    pub(crate) fn prepare_next(&mut self, now: u64) {
        if self.task.is_some() || self.made.is_some() {
            return;
        }
        let Some(task) = self.wal.wants_segment() else { return };
        self.task = Some(task);
        self.ready_at = Some(now + if self.no_spare { FULL_RETRY } else { SEGMENT_TIME });
    }

    /// The passing thread makes its segment, if that is still to be done.
    pub(crate) fn make_segment(&mut self) -> bool {
        let Some(task) = self.task.take() else { return false };
        self.made = Some(task.run());
        true
    }

    /// Whether a segment is being made: until it is there nobody can go on in it.
    pub(crate) fn is_making(&self) -> bool {
        self.made.is_some()
    }

    /// The segment that was being made is there.
    pub(crate) fn tell_of_made(&mut self) {
        self.prepared = self.made.take();
    }

    /// Times that it went over to the next segment.
    pub(crate) fn rotations(&self) -> u64 {
        self.wal.stats().rotations
    }

    pub(crate) fn has_prepared(&self) -> bool {
        self.prepared.is_some()
    }

    fn take_prepared(&mut self) -> Result<(), WalError> {
        if let Some(made) = self.prepared.take() {
            self.no_spare = match self.wal.accept(made) {
                Ok(()) => false,
                Err(error) if error.ends_the_log() => return Err(error),
                Err(_) => true,
            };
        }
        Ok(())
    }

    /// Takes what was made ready beside the log.
    pub(crate) fn look(&mut self, now: u64) -> Result<Completion, WalError> {
        self.take_prepared()?;
        self.prepare_next(now);
        Ok(Completion::Room(self.room()))
    }
}
