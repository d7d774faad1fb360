//! Simulated disk: loses power on request, and does everything else that disks do wrong.
//!
//! Everything written stays doubtful until its file is synced, everything renamed until the names are: each sector may
//! arrive or not, in any order, and so may each change of a name or a length. [`SimDisk::power_fails`] draws one disk
//! that could be found afterwards, at a cost that grows with the doubtful things only; [`SimDisk::crash_images`]
//! returns such disks: all of them while few things are doubtful, a seeded choice when there are many.
//!
//! ```text
//!  what processes read      content    ── written at once
//!  what may be lost         doubtful   ── until a sync; then it is on the medium
//!  what the medium has      ghosts     ── where that differs unnoticed: a failed sync, a lost write
//!  what it should have      wronged    ── where that differs by the disk's fault: for judges
//! ```
//!
//! Faults are armed and fire at the next operation that they can affect; [`SimDisk::take_fired`] returns those that
//! did. Time is charged, not taken ([`SimDisk::begin`], [`SimDisk::spent`]); a process that dies in the middle of a
//! call is one whose later operations of that call never happened. Everything follows from seeds.
//! [fault-model F06, F10–F17]
//! Knows nothing of: the log's formats (`damage.rs` and `truth.rs` know them).

mod content;
mod damage;
mod dice;
mod faults;
mod images;
mod inode;
mod names;
mod process;
mod state;
mod truth;
pub mod twin;

pub use damage::{Damage, Place};
pub use dice::Dice;
pub use faults::{Fault, FaultId, Fired, Speed};
pub use images::{EXHAUSTIVE_MAX, Lost};
pub use truth::Truth;

use self::faults::Meter;
use self::inode::Inode;
use self::state::{Armed, State, power_is_out};
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A disk in memory. Clones are the same disk, used by the same process.
#[derive(Clone, Default)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
    /// The process that this handle belongs to; see [`SimDisk::mount`].
    life: u64,
}

impl SimDisk {
    /// An empty disk.
    #[must_use]
    pub fn new() -> SimDisk {
        SimDisk::default()
    }

    /// An empty disk whose armed faults and times follow from `seed`, and that can undo operations that a dead process
    /// had not done yet.
    #[must_use]
    pub fn seeded(seed: u64, speed: Speed) -> SimDisk {
        let mut dice = Dice::new(seed);
        let meter = Meter { speed, dice: Dice::new(dice.roll()), ..Meter::default() };
        SimDisk::from_state(State { dice: Some(dice), meter, journal: Some(Vec::new()), ..State::default() })
    }

    /// The same disk with sectors of `bytes`: a power cut may ruin a whole sector that was being written, including
    /// bytes in it that were synced long before. [fault-model ST5]
    ///
    /// # Panics
    /// If that is no multiple of 512.
    #[must_use]
    pub fn with_physical_sectors(self, bytes: usize) -> SimDisk {
        assert!(bytes.is_multiple_of(content::SECTOR), "{bytes} bytes");
        self.state().physical = Some(bytes).filter(|bytes| content::SECTOR < *bytes);
        self
    }

    fn from_state(state: State) -> SimDisk {
        let life = state.life;
        SimDisk { state: Arc::new(Mutex::new(state)), life }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, for an operation of the process this handle belongs to.
    fn live(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.state();
        if state.life != self.life || state.limits.is_out {
            return Err(power_is_out());
        }
        Ok(state)
    }

    /// A handle for the next process. Operations through handles of dead processes fail.
    #[must_use]
    pub fn mount(&self) -> SimDisk {
        SimDisk { state: self.state.clone(), life: self.state().life }
    }

    /// A copy that shares nothing, including what is doubtful.
    #[must_use]
    pub fn copy(&self) -> SimDisk {
        let mut state = self.state().clone();
        state.locked = false;
        SimDisk::from_state(state)
    }

    /// Power is lost after `operations` more operations that change something: from then on every operation fails.
    pub fn lose_power_after(&self, operations: u64) {
        self.state().limits.power = Some(operations);
    }

    /// Whether the power is out, by [`SimDisk::lose_power_after`].
    #[must_use]
    pub fn is_out(&self) -> bool {
        self.state().limits.is_out
    }

    /// How many operations changed something so far.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.state().clock
    }

    /// Every sync after `syncs` more fails.
    pub fn fail_syncs_after(&self, syncs: u64) {
        self.state().limits.syncs = Some(syncs);
    }

    /// Every write after `writes` more fails.
    pub fn fail_writes_after(&self, writes: u64) {
        self.state().limits.writes = Some(writes);
    }

    /// All files together may have at most `bytes`; `None` for any number. [fault-model F12]
    pub fn limit_to(&self, bytes: Option<u64>) {
        self.state().limits.capacity = bytes;
    }

    /// The bytes that all files together may have, if there is a limit.
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        self.state().limits.capacity
    }

    /// There may be at most this number of files; `None` for any number. [fault-model F12]
    pub fn limit_files_to(&self, files: Option<usize>) {
        self.state().limits.files = files;
    }

    /// Lets `fault` happen once, `after` so many more operations of its kind.
    pub fn arm(&self, fault: Fault, after: u64) {
        self.state().armed.push(Armed { fault, after });
    }

    /// Disarms all faults that have not fired.
    pub fn disarm(&self) {
        self.state().armed.clear();
    }

    /// The faults that fired since the last call.
    #[must_use]
    pub fn take_fired(&self) -> Vec<Fired> {
        core::mem::take(&mut self.state().fired)
    }

    /// Everything takes `times` times as long; 1 is the normal speed. [fault-model F17]
    pub fn slow_down(&self, times: u64) {
        let meter = &mut self.state().meter;
        meter.slowness = times.max(1);
        meter.noted = meter.slowness == 1;
    }

    /// The next operation takes so many `nanoseconds` longer. [fault-model F16]
    pub fn stall(&self, nanoseconds: u64) {
        self.state().meter.stall += nanoseconds;
    }

    /// A call begins: earlier operations cannot be undone any more, and time is counted from 0.
    pub fn begin(&self) {
        let mut state = self.state();
        state.settle();
        state.meter.spent = 0;
    }

    /// Nanoseconds that operations took since the call began.
    #[must_use]
    pub fn spent(&self) -> u64 {
        self.state().meter.spent
    }

    /// Nanoseconds that the longest operation took since the last call.
    #[must_use]
    pub fn take_longest(&self) -> u64 {
        core::mem::take(&mut self.state().meter.longest)
    }

    /// The process dies, `elapsed` nanoseconds after the call began (`u64::MAX`: after it ended). Its written bytes are
    /// still in the system's memory; its open files are closed, its lock is free.
    pub fn process_dies(&self, elapsed: u64) {
        let mut state = self.state();
        state.undo_after(elapsed);
        state.end_life();
    }

    /// Clean pages are dropped from memory, as happens at any time. Returns how many of them were not on the medium.
    pub fn drop_cache(&self) -> usize {
        let mut state = self.state();
        let dropped = state.inodes.iter_mut().map(Inode::drop_cache).sum();
        if dropped != 0 {
            state.settle(); // the dropped content cannot be restored
        }
        dropped
    }

    /// Bytes of all files together.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let state = self.state();
        state.names.now.values().map(|&inode| state.inodes[inode].content.len() as u64).sum()
    }

    /// The content of a file.
    #[must_use]
    pub fn contents(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.state();
        Some(state.inodes[*state.names.now.get(name)?].content.to_vec())
    }

    /// Replaces the content of a file, durably, as damage at rest does; `None` removes it.
    pub fn set_contents(&self, name: &str, bytes: Option<Vec<u8>>) {
        self.state().set_contents(name, bytes.as_deref());
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        let files = state.names.now.iter().map(|(name, &inode)| (name, state.inodes[inode].content.len()));
        f.debug_map().entries(files).finish()
    }
}
