//! The task that makes segments beside the log, and the gate between the two.
//!
//! The task makes and names segments on any thread while the log goes on in the current one. The gate ensures that each
//! number is given once, and only after the segment before it is durable.
//! Knows nothing of: blocks, the end of the log.

use super::{RECYCLED, Segment, fill, has_reserve, header_bytes, make_reserve, name_of, publish};
use crate::error::WalError;
use crate::files::{Files, LogFile};
use crate::identity::Identity;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A segment that is no longer needed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Used {
    pub generation: u64,
    pub len: u64,
}

/// Removes the segments that are no longer needed and makes the next ones, on any thread, while the log goes on in the
/// current segment.
pub struct SegmentTask {
    pub(crate) files: Arc<dyn Files>,
    pub(crate) identity: Arc<Identity>,
    /// The length of a segment.
    pub(crate) len: u64,
    /// How many segments to make at least and at most. Above the minimum only used ones are taken.
    pub(crate) wanted: (usize, usize),
    /// Segments to remove or to recycle; oldest first.
    pub(crate) used: Vec<Used>,
    pub(crate) reserve: u64,
    pub(crate) gate: Gate,
}

/// The names of segments, which the log and the task beside it must not change at the same time.
#[derive(Debug)]
pub(crate) struct Names {
    /// The log was closed. A task that outlives it changes no names, because the directory may have another owner by
    /// then.
    is_closed: bool,
    /// The next segment to get its name; all before it are durable.
    pub next: u64,
    /// A sync of a name failed: the log must not go on in a segment whose name may not be durable. [fault-model F11]
    pub broken: Option<WalError>,
}

/// A lock for changes of names.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    names: Arc<Mutex<Names>>,
    /// The log will soon need the segment that is being made.
    is_urgent: Arc<AtomicBool>,
}

impl Gate {
    pub fn new(next: u64) -> Gate {
        let names = Names { is_closed: false, next, broken: None };
        Gate { names: Arc::new(Mutex::new(names)), is_urgent: Arc::default() }
    }

    /// Closes the gate; waits until the lock is free.
    pub fn close(&self) {
        self.own().is_closed = true;
    }

    /// Locks the names for the log itself.
    pub fn own(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the names for a task; an error once the log is closed.
    fn enter(&self, name: &str) -> Result<MutexGuard<'_, Names>, WalError> {
        let names = self.own();
        match names.is_closed {
            false => Ok(names),
            true => Err(WalError::io(name, "change", &std::io::Error::other("the log was closed"))),
        }
    }

    /// Sets whether the running task is to is_urgent.
    pub(crate) fn set_urgent(&self, is_urgent: bool) {
        self.is_urgent.store(is_urgent, Ordering::Relaxed);
    }
}

/// Names that one task changes at most: the log can use the segments only after the task has ended.
const TASK_NAMES_MAX: usize = 4;

impl SegmentTask {
    /// Runs the task; also makes the reserve, if it is gone.
    ///
    /// # Errors
    /// [`WalError::NoSpace`], [`WalError::Io`], if nothing was made before it. Pass it to [`crate::Wal::accept`] like a
    /// success.
    pub fn run(self) -> Result<Prepared, WalError> {
        self.run_paced(&mut || {})
    }

    /// As [`SegmentTask::run`]; `pause` is called between pieces of disk work, unless the log is in a is_urgent: the pauses
    /// leave the disk to the log.
    ///
    /// # Errors
    /// As [`SegmentTask::run`].
    pub fn run_paced(self, pause: &mut dyn FnMut()) -> Result<Prepared, WalError> {
        let is_urgent = self.gate.is_urgent.clone();
        let mut between = || {
            let has_time = !is_urgent.load(Ordering::Relaxed);
            if has_time {
                pause();
            }
            has_time
        };
        let mut prepared = Prepared { segments: Vec::new(), used_below: 0, has_reserve: false, error: None };
        prepared.error = self.run_into(&mut prepared, &mut between).err();
        prepared.has_reserve = has_reserve(&*self.files, self.reserve);
        match prepared.error.take_if(|_| prepared.segments.is_empty() && prepared.used_below == 0) {
            Some(error) => Err(error),
            None => Ok(prepared),
        }
    }

    /// Changes one name at a time, each durable before the next: a power cut leaves segments without a gap.
    /// [fault-model ST9]
    fn run_into(&self, prepared: &mut Prepared, between: &mut dyn FnMut() -> bool) -> Result<(), WalError> {
        let (min, max) = self.wanted;
        for used in self.used.iter().take(TASK_NAMES_MAX) {
            let is_fit = used.len == self.len && prepared.segments.len() < max;
            if !(is_fit && self.recycle(*used, prepared, between)?) {
                let name = name_of(used.generation);
                let _open = self.gate.enter(&name)?;
                self.files.remove(&name).map_err(|error| WalError::io(&name, "remove", &error))?;
                self.sync_names(used.generation)?;
            }
            prepared.used_below = used.generation + 1;
        }
        {
            let _open = self.gate.enter("reserve")?;
            make_reserve(&*self.files, self.reserve)?;
        }
        while prepared.segments.len() < min {
            let generation = self.gate.enter("log")?.next;
            let (name, aside) = (name_of(generation), aside_of(generation));
            let header = header_bytes(&self.identity, generation, self.len, 0);
            let created = {
                let _open = self.gate.enter(&name)?; // the directory's next owner uses this name, too
                self.files.create(&aside)
            };
            let filled = fill(&*self.files, created, &aside, &name, &header, self.len, between);
            let file = filled.inspect_err(|_| self.forget(&aside))?;
            between();
            self.give_name(file, &aside, generation, 0, prepared)?;
        }
        Ok(())
    }

    /// Makes a used segment the next one: takes away its name, writes its new header, then names it like a new one.
    /// Returns whether it was there: a task that failed half-way may have taken it.
    fn recycle(
        &self,
        used: Used,
        prepared: &mut Prepared,
        between: &mut dyn FnMut() -> bool,
    ) -> Result<bool, WalError> {
        let name = name_of(used.generation);
        let aside = aside_of(used.generation);
        {
            let _open = self.gate.enter(&name)?;
            match self.files.rename(&name, &aside) {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
                Err(error) => return Err(WalError::io(&name, "rename", &error)),
            }
            self.sync_names(used.generation)?;
        }
        let generation = self.gate.enter(&name)?.next;
        let header = header_bytes(&self.identity, generation, used.len, RECYCLED);
        let headed = self.files.open(&aside).map_err(|error| WalError::io(&aside, "open", &error));
        let headed = headed.and_then(|file| {
            file.write_at(0, &header).map_err(|error| WalError::io(&aside, "write", &error))?;
            file.sync().map_err(|error| WalError::syncing(&aside, &error))?;
            Ok(file)
        });
        let file = headed.inspect_err(|_| self.forget(&aside))?;
        between();
        self.give_name(file, &aside, generation, RECYCLED, prepared)?;
        Ok(true)
    }

    /// Names a segment whose content is durable. If the log has made one of the same number meanwhile, this one gets
    /// the next number.
    fn give_name(
        &self,
        file: Box<dyn LogFile>,
        aside: &str,
        mut generation: u64,
        flags: u32,
        prepared: &mut Prepared,
    ) -> Result<(), WalError> {
        loop {
            let name = name_of(generation);
            let next = {
                let mut names = self.gate.enter(&name)?;
                if names.next == generation {
                    publish(&*self.files, aside, &name, self.len).inspect_err(|error| {
                        names.broken = Some(error.clone()).filter(WalError::is_failed_sync);
                    })?;
                    names.next = generation + 1;
                    prepared.segments.push(Segment { generation, len: self.len, file });
                    return Ok(());
                }
                names.next
            };
            generation = next;
            let header = header_bytes(&self.identity, generation, self.len, flags);
            let headed = file.write_at(0, &header).map_err(|error| WalError::io(aside, "write", &error));
            headed
                .and_then(|()| file.sync().map_err(|error| WalError::syncing(aside, &error)))
                .inspect_err(|_| self.forget(aside))?;
        }
    }

    /// Removes an unfinished file, unless the log is closed: the directory's next owner removes such leftovers itself,
    /// and makes files of the same names.
    fn forget(&self, aside: &str) {
        if let Ok(_open) = self.gate.enter(aside) {
            let _ = self.files.remove(aside); // the error that led here is returned
        }
    }

    fn sync_names(&self, generation: u64) -> Result<(), WalError> {
        self.files.sync_names().map_err(|error| WalError::syncing(&name_of(generation), &error))
    }
}

/// The name of a segment while a task makes it. The log uses another one for a segment that it makes itself.
fn aside_of(generation: u64) -> String {
    format!("{}.ahead.tmp", name_of(generation))
}

impl fmt::Debug for SegmentTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SegmentTask({:?}, {} used)", self.wanted, self.used.len())
    }
}

/// Segments made ahead, under their names.
#[derive(Debug)]
pub struct Prepared {
    pub(crate) segments: Vec<Segment>,
    /// Used segments with smaller numbers are removed or recycled.
    pub(crate) used_below: u64,
    /// The reserve existed at the end.
    pub(crate) has_reserve: bool,
    /// The error that ended the task early.
    pub(crate) error: Option<WalError>,
}
