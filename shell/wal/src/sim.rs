//! A disk that loses power on request, and does everything else that disks do wrong.
//!
//! Everything written stays doubtful until its file is synced, everything renamed until the names are: each sector may
//! arrive or not, in any order, and so may each change of a name or a length. [`SimDisk::power_fails`] draws one disk that
//! could be found afterwards, at a cost of what was doubtful; [`SimDisk::crash_images`] shows them: all of them while
//! few things are doubtful, a seeded choice of the telling ones when there are many.
//!
//! ```text
//!  what processes read      content    ── written at once
//!  what may be lost         doubtful   ── until a sync; then it is on the medium
//!  what the medium has      ghosts     ── where that differs although no one knows: a failed sync, a lost write
//!  what it ought to have    wronged    ── where that differs by the disk's fault: the judge's side
//! ```
//!
//! Faults are armed and fire at the next operation they can do something to; each that did something says so
//! ([`SimDisk::take_fired`]). Time is charged, not taken ([`SimDisk::begin`], [`SimDisk::spent`]); a process that dies in the
//! middle of a call is one whose later operations of that call never happened. Everything follows from seeds.
//! [fault-model F06, F10–F17]
//! Knows nothing of: what the files hold (`damage.rs` does).

mod content;
mod damage;
mod dice;
mod faults;
mod images;
mod inode;

pub use damage::{Damage, Place, Truth};
pub use dice::Dice;
pub use faults::{Fault, FaultId, Fired, Speed};
pub use images::{EXHAUSTIVE_MAX, Lost};

use self::content::SECTOR;
use self::faults::{Kind, Meter};
use self::inode::{Inode, SyncUndo, WriteUndo};
use crate::files::{Files, LockGuard, LogFile};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A disk in memory. Clones are the same disk, used by the same process.
#[derive(Clone, Default)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
    /// Which life of the disk's user this handle belongs to; see [`SimDisk::mount`].
    life: u64,
}

#[derive(Clone, Default)]
struct State {
    /// Goes up when the process dies: what it had open is closed.
    life: u64,
    inodes: Vec<Inode>,
    names: Names,
    locked: bool,
    holder: String,
    /// Operations so far that change something.
    clock: u64,
    limits: Limits,
    armed: Vec<Armed>,
    fired: Vec<Fired>,
    /// Decides about armed faults.
    dice: Option<Dice>,
    meter: Meter,
    /// What this call has done so far, to be undone if the process dies before that; `None` while nobody wants to know.
    journal: Option<Vec<Done>>,
    /// Files that were replaced while nobody had them open: [`SimDisk::heal`] puts them back.
    replaced: BTreeMap<String, damage::Replaced>,
}

/// Which file has which name.
#[derive(Clone, Default)]
struct Names {
    now: BTreeMap<String, usize>,
    durable: BTreeMap<String, usize>,
    /// From `durable` to `now`, with their times.
    changes: Vec<(u64, NameChange)>,
}

#[derive(Clone, Debug)]
enum NameChange {
    Set { name: String, inode: usize },
    Rename { source: String, target: String, inode: usize },
    Remove { name: String },
}

#[derive(Clone, Debug, Default)]
struct Limits {
    /// Operations that may still happen before power is lost.
    power: Option<u64>,
    /// Power was lost: nothing works any more.
    is_out: bool,
    /// Syncs that still succeed.
    syncs: Option<u64>,
    /// Writes that still succeed.
    writes: Option<u64>,
    /// Bytes that all files together may have.
    capacity: Option<u64>,
    /// How many files there may be.
    files: Option<usize>,
}

#[derive(Clone, Debug)]
struct Armed {
    fault: Fault,
    /// So many operations of its kind pass before it fires.
    after: u64,
}

/// An operation that can still be undone.
#[derive(Clone)]
struct Done {
    /// When it ended, in nanoseconds of the call.
    end: u64,
    undo: Undo,
}

#[derive(Clone)]
enum Undo {
    Write {
        inode: usize,
        undo: WriteUndo,
    },
    Sync {
        inode: usize,
        undo: SyncUndo,
    },
    /// What the names of the last change stood for.
    Name(Vec<(String, Option<usize>)>),
    /// The changes that became durable, and what their names durably stood for.
    NameSync {
        changes: Vec<(u64, NameChange)>,
        durable: Vec<(String, Option<usize>)>,
    },
}

/// What `names` says about the names that a change touches.
fn said(names: &BTreeMap<String, usize>, change: &NameChange) -> Vec<(String, Option<usize>)> {
    change.names().map(|name| (name.clone(), names.get(name).copied())).collect()
}

fn restore(names: &mut BTreeMap<String, usize>, said: Vec<(String, Option<usize>)>) {
    for (name, inode) in said.into_iter().rev() {
        match inode {
            Some(inode) => names.insert(name, inode),
            None => names.remove(&name),
        };
    }
}

fn power_is_out() -> io::Error {
    io::Error::other("the power is out")
}

fn failed_sync() -> io::Error {
    io::Error::other("the disk failed a sync")
}

impl Names {
    fn change(&mut self, now: u64, change: NameChange) {
        change.apply(&mut self.now);
        self.changes.push((now, change));
    }
}

impl NameChange {
    fn names(&self) -> impl Iterator<Item = &String> {
        match self {
            NameChange::Set { name, .. } | NameChange::Remove { name } => [Some(name), None],
            NameChange::Rename { source, target, .. } => [Some(source), Some(target)],
        }
        .into_iter()
        .flatten()
    }

    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            NameChange::Set { name, inode } => {
                names.insert(name.clone(), *inode);
            }
            NameChange::Rename { source, target, inode } => {
                if names.get(source) == Some(inode) {
                    names.remove(source);
                }
                names.insert(target.clone(), *inode);
            }
            NameChange::Remove { name } => {
                names.remove(name);
            }
        }
    }
}

impl State {
    /// Whether one more sync, of a file or of the names, succeeds.
    fn may_sync(&mut self) -> bool {
        let Some(left) = &mut self.limits.syncs else { return true };
        let may = *left > 0;
        *left = left.saturating_sub(1);
        may
    }

    /// Counts an operation that changes something.
    fn tick(&mut self) -> io::Result<u64> {
        if let Some(power) = &mut self.limits.power {
            let Some(left) = power.checked_sub(1) else {
                self.limits.is_out = true;
                return Err(power_is_out());
            };
            *power = left;
        }
        self.clock += 1;
        Ok(self.clock)
    }

    /// The fault that this operation meets, if one is armed for it.
    fn meets(&mut self, kind: Kind, accepts: impl Fn(Fault) -> bool) -> Option<Fault> {
        if self.armed.is_empty() {
            return None;
        }
        for at in 0..self.armed.len() {
            let Armed { fault, after } = &mut self.armed[at];
            if fault.kind() != kind {
                continue;
            }
            if *after > 0 {
                *after -= 1;
            } else if accepts(*fault) {
                return Some(self.armed.remove(at).fault);
            }
        }
        None
    }

    fn fire(&mut self, id: FaultId, what: impl Into<String>) {
        self.fired.push(Fired { id, what: what.into() });
    }

    fn charge(&mut self, base: u64, bytes: usize) {
        self.meter.charge(base, bytes, &mut self.fired);
    }

    fn note(&mut self, undo: Undo) {
        let end = self.meter.spent;
        if let Some(journal) = &mut self.journal {
            journal.push(Done { end, undo });
        }
    }

    /// Nothing that happened so far can be undone any more.
    fn settle(&mut self) {
        if let Some(journal) = &mut self.journal {
            journal.clear();
        }
    }

    fn change_name(&mut self, change: NameChange) -> io::Result<()> {
        let now = self.tick()?;
        self.charge(self.meter.speed.name, 0);
        if self.journal.is_some() {
            self.note(Undo::Name(said(&self.names.now, &change)));
        }
        self.names.change(now, change);
        Ok(())
    }

    fn held(&self) -> u64 {
        let mut inodes: Vec<usize> = self.names.now.values().copied().collect();
        inodes.sort_unstable();
        inodes.dedup();
        inodes.into_iter().map(|inode| self.inodes[inode].content.len() as u64).sum()
    }

    fn check_capacity(&mut self, inode: usize, len: usize) -> io::Result<()> {
        let Some(capacity) = self.limits.capacity else { return Ok(()) };
        let grows = len.saturating_sub(self.inodes[inode].content.len()) as u64;
        if grows != 0 && capacity < self.held() + grows {
            self.fire(FaultId::F12, format!("no room for {grows} bytes"));
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    fn sync_file(&mut self, number: usize) -> io::Result<()> {
        let dirty = self.inodes[number].doubtful.len() * SECTOR;
        if !self.may_sync() {
            let lost = self.inodes[number].fail_sync(false, &mut || false);
            self.fire(FaultId::F11, format!("a sync failed, {lost} sectors were dropped"));
            self.settle();
            return Err(failed_sync());
        }
        let has_doubts = dirty != 0;
        let fault = self.meets(Kind::Sync, |fault| has_doubts || matches!(fault, Fault::SyncFails { .. }));
        if let Some(Fault::SyncFails { survive_percent, forget }) = fault {
            let mut dice = self.dice.take().unwrap_or_else(|| Dice::new(0));
            let lost =
                self.inodes[number].fail_sync(forget, &mut || dice.below(100) < u64::from(survive_percent));
            self.dice = Some(dice);
            self.charge(self.meter.speed.sync, dirty);
            self.fire(FaultId::F11, format!("a sync failed, {lost} sectors were dropped"));
            self.settle();
            return Err(failed_sync());
        }
        self.tick()?;
        self.charge(self.meter.speed.sync, dirty);
        let undo = self.inodes[number].sync();
        match fault {
            Some(Fault::WriteLost) => {
                self.lose_write(number, &undo);
            }
            Some(Fault::WriteMisdirected) => self.misdirect(number, &undo),
            _ => {}
        }
        if self.journal.is_some() {
            self.note(Undo::Sync { inode: number, undo });
        }
        Ok(())
    }

    /// One of the sectors that a sync made firm never reached the medium.
    fn lose_write(&mut self, number: usize, synced: &SyncUndo) -> Option<usize> {
        let dice = self.dice.get_or_insert_with(|| Dice::new(0));
        let chosen = &synced.doubtful[dice.below(synced.doubtful.len() as u64) as usize];
        if self.inodes[number].content.sector(chosen.sector) == content::bytes_of(&chosen.medium) {
            return None;
        }
        self.inodes[number].lose_write(chosen.sector, chosen.medium.clone());
        self.fire(FaultId::F14, format!("sector {} was never written", chosen.sector));
        Some(chosen.sector)
    }

    /// One of the sectors that a sync made firm went elsewhere.
    fn misdirect(&mut self, number: usize, synced: &SyncUndo) {
        let Some(lost) = self.lose_write(number, synced) else { return };
        let bytes = content::image_of(self.inodes[number].content.sector(lost));
        let dice = self.dice.get_or_insert_with(|| Dice::new(0));
        let files: Vec<usize> = self.names.durable.values().copied().collect();
        let elsewhere = if files.is_empty() || dice.one_in(2) {
            number
        } else {
            files[dice.below(files.len() as u64) as usize]
        };
        let sectors = self.inodes[elsewhere].content.len() / SECTOR;
        if sectors == 0 {
            return;
        }
        // Near ones are likelier: a log's other blocks are there.
        let near = lost.saturating_sub(4) + dice.below(9) as usize;
        let sector = if dice.one_in(2) { near.min(sectors - 1) } else { dice.below(sectors as u64) as usize };
        if (elsewhere, sector) == (number, lost) {
            return;
        }
        self.inodes[elsewhere].wrong(sector, bytes, true);
        self.fire(FaultId::F14, format!("sector {lost} went to sector {sector} of file {elsewhere}"));
    }

    /// Takes back what the process had not done yet, `elapsed` nanoseconds after the call began.
    fn undo_after(&mut self, elapsed: u64) {
        let Some(journal) = &mut self.journal else { return };
        while let Some(done) = journal.pop_if(|done| elapsed < done.end) {
            match done.undo {
                Undo::Write { inode, undo } => self.inodes[inode].undo_write(undo),
                Undo::Sync { inode, undo } => self.inodes[inode].undo_sync(undo),
                Undo::Name(said) => {
                    restore(&mut self.names.now, said);
                    self.names.changes.pop();
                }
                Undo::NameSync { changes, durable } => {
                    restore(&mut self.names.durable, durable);
                    self.names.changes = changes;
                }
            }
        }
        journal.clear();
    }

    /// The process is gone: what it had open is closed, and files without a name are no more.
    fn end_life(&mut self) {
        self.life += 1;
        self.locked = false;
        self.limits.power = None;
        self.limits.is_out = false;
        self.meter.spent = 0;
        let mut named = vec![false; self.inodes.len()];
        let changes = self.names.changes.iter().filter_map(|(_, change)| match change {
            NameChange::Set { inode, .. } | NameChange::Rename { inode, .. } => Some(inode),
            NameChange::Remove { .. } => None,
        });
        let replaced = self.replaced.values().filter_map(damage::Replaced::before);
        let now = self.names.now.values().chain(self.names.durable.values()).chain(changes);
        for inode in now.copied().chain(replaced) {
            named[inode] = true;
        }
        for (inode, _) in self.inodes.iter_mut().zip(named).filter(|(_, named)| !named) {
            *inode = Inode::default();
        }
    }
}

impl SimDisk {
    /// An empty disk.
    #[must_use]
    pub fn new() -> SimDisk {
        SimDisk::default()
    }

    /// An empty disk whose armed faults and times follow from `seed`, and that can undo what a process that died had not
    /// done yet.
    #[must_use]
    pub fn seeded(seed: u64, speed: Speed) -> SimDisk {
        let mut dice = Dice::new(seed);
        let meter = Meter { speed, dice: Dice::new(dice.roll()), ..Meter::default() };
        SimDisk::from_state(State { dice: Some(dice), meter, journal: Some(Vec::new()), ..State::default() })
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

    /// A handle for the next process. Handles of processes that died do nothing any more.
    #[must_use]
    pub fn mount(&self) -> SimDisk {
        SimDisk { state: self.state.clone(), life: self.state().life }
    }

    /// A copy that shares nothing, doubts included.
    #[must_use]
    pub fn copy(&self) -> SimDisk {
        let mut state = self.state().clone();
        state.locked = false;
        SimDisk::from_state(state)
    }

    /// Power is lost after so many more operations that change something: from then on every operation fails.
    pub fn lose_power_after(&self, operations: u64) {
        self.state().limits.power = Some(operations);
    }

    /// Whether [`SimDisk::lose_power_after`] has come true.
    #[must_use]
    pub fn is_out(&self) -> bool {
        self.state().limits.is_out
    }

    /// How many operations changed something so far.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.state().clock
    }

    /// Every sync after so many more fails.
    pub fn fail_syncs_after(&self, syncs: u64) {
        self.state().limits.syncs = Some(syncs);
    }

    /// Every write after so many more fails.
    pub fn fail_writes_after(&self, writes: u64) {
        self.state().limits.writes = Some(writes);
    }

    /// All files together may have so many bytes; `None` for any number. [fault-model F12]
    pub fn limit_to(&self, bytes: Option<u64>) {
        self.state().limits.capacity = bytes;
    }

    /// There may be so many files; `None` for any number. [fault-model F12]
    pub fn limit_files_to(&self, files: Option<usize>) {
        self.state().limits.files = files;
    }

    /// Lets `fault` happen once, after so many more operations of its kind.
    pub fn arm(&self, fault: Fault, after: u64) {
        self.state().armed.push(Armed { fault, after });
    }

    /// Forgets what is armed and has not fired.
    pub fn disarm(&self) {
        self.state().armed.clear();
    }

    /// What faults have done since this was last asked.
    #[must_use]
    pub fn take_fired(&self) -> Vec<Fired> {
        core::mem::take(&mut self.state().fired)
    }

    /// How fast the disk is from now on.
    pub fn set_speed(&self, speed: Speed) {
        self.state().meter.speed = speed;
    }

    /// Everything takes so many times as long; 1 for as long as it should. [fault-model F17]
    pub fn slow_down(&self, times: u64) {
        let meter = &mut self.state().meter;
        meter.slowness = times.max(1);
        meter.noted = meter.slowness == 1;
    }

    /// The next operation takes so many nanoseconds longer. [fault-model F16]
    pub fn stall(&self, nanoseconds: u64) {
        self.state().meter.stall += nanoseconds;
    }

    /// A call begins: what was done before it is done, and time is counted from 0.
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

    /// The process dies, `elapsed` nanoseconds after the call began (`u64::MAX`: after it ended). What it wrote is still in
    /// the system's memory; what it had open is closed, its lock is free.
    pub fn process_dies(&self, elapsed: u64) {
        let mut state = self.state();
        state.undo_after(elapsed);
        state.end_life();
    }

    /// Pages that are believed clean are dropped from memory, as happens at any time. Returns how many turn out
    /// not to have been.
    pub fn drop_cache(&self) -> usize {
        let mut state = self.state();
        let dropped = state.inodes.iter_mut().map(Inode::drop_cache).sum();
        if dropped != 0 {
            state.settle(); // what was read before this cannot come back
        }
        dropped
    }

    /// Bytes of all files together.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let state = self.state();
        state.names.now.values().map(|&inode| state.inodes[inode].content.len() as u64).sum()
    }

    /// What a file holds.
    #[must_use]
    pub fn contents(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.state();
        Some(state.inodes[*state.names.now.get(name)?].content.to_vec())
    }

    /// Replaces what a file holds, durably, as damage at rest does; `None` removes it.
    pub fn set_contents(&self, name: &str, bytes: Option<Vec<u8>>) {
        self.state().set_contents(name, bytes.as_deref());
    }
}

impl State {
    fn set_contents(&mut self, name: &str, bytes: Option<&[u8]>) {
        // Whoever does this finds the names as they are: none of them is doubtful any more.
        self.settle();
        self.names.changes.clear();
        self.names.durable.clone_from(&self.names.now);
        let Some(bytes) = bytes else {
            self.names.now.remove(name);
            self.names.durable.remove(name);
            return;
        };
        self.inodes.push(Inode::of(bytes));
        let number = self.inodes.len() - 1;
        self.names.now.insert(name.to_owned(), number);
        self.names.durable.insert(name.to_owned(), number);
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        let files = state.names.now.iter().map(|(name, &inode)| (name, state.inodes[inode].content.len()));
        f.debug_map().entries(files).finish()
    }
}

impl Files for SimDisk {
    fn place(&self) -> String {
        "simulated disk".to_owned()
    }

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.live()?.names.now.keys().cloned().collect())
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn LogFile>> {
        let state = self.live()?;
        let inode = *state.names.now.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(SimFile { disk: self.clone(), inode }))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn LogFile>> {
        let mut state = self.live()?;
        let is_new = !state.names.now.contains_key(name);
        if is_new && state.limits.files.is_some_and(|max| max <= state.names.now.len()) {
            state.fire(FaultId::F12, format!("no room for the name {name}"));
            return Err(io::ErrorKind::StorageFull.into());
        }
        // An emptied file is a new one here: what the old one held stays with whoever has it open.
        state.inodes.push(Inode::default());
        let inode = state.inodes.len() - 1;
        state.change_name(NameChange::Set { name: name.to_owned(), inode })?;
        Ok(Box::new(SimFile { disk: self.clone(), inode }))
    }

    fn rename(&self, source: &str, target: &str) -> io::Result<()> {
        let mut state = self.live()?;
        let inode = *state.names.now.get(source).ok_or(io::ErrorKind::NotFound)?;
        state.change_name(NameChange::Rename { source: source.to_owned(), target: target.to_owned(), inode })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.live()?;
        if !state.names.now.contains_key(name) {
            return Ok(());
        }
        state.change_name(NameChange::Remove { name: name.to_owned() })
    }

    fn sync_names(&self) -> io::Result<()> {
        let mut state = self.live()?;
        let state = &mut *state;
        if !state.may_sync() || state.meets(Kind::NameSync, |_| true).is_some() {
            state.fire(FaultId::F11, "a sync of names failed");
            return Err(failed_sync()); // which names are durable stays in doubt
        }
        state.tick()?;
        state.charge(state.meter.speed.sync, 0);
        let changes = core::mem::take(&mut state.names.changes);
        let mut durable = Vec::new();
        for (_, change) in &changes {
            durable.extend(said(&state.names.durable, change));
            change.apply(&mut state.names.durable);
        }
        if state.journal.is_some() {
            state.note(Undo::NameSync { changes, durable });
        }
        Ok(())
    }

    fn lock(&self, _name: &str) -> io::Result<Result<Box<dyn LockGuard>, String>> {
        let mut state = self.live()?;
        if state.locked {
            return Ok(Err(state.holder.clone()));
        }
        state.locked = true;
        Ok(Ok(Box::new(SimLock(self.clone()))))
    }
}

struct SimLock(SimDisk);

impl fmt::Debug for SimLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimLock")
    }
}

impl LockGuard for SimLock {
    fn describe(&self, holder: &str) -> io::Result<()> {
        self.0.live()?.holder = holder.to_owned();
        Ok(())
    }
}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut state = self.0.state();
        if state.life == self.0.life {
            state.locked = false; // a later life's lock is not this one's to free
        }
    }
}

struct SimFile {
    disk: SimDisk,
    inode: usize,
}

impl fmt::Debug for SimFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimFile({})", self.inode)
    }
}

impl LogFile for SimFile {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.disk.live()?.inodes[self.inode].content.len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let mut state = self.disk.live()?;
        let state = &mut *state;
        state.charge(state.meter.speed.read, buffer.len());
        if state.meets(Kind::Read, |_| true).is_some() {
            state.fire(FaultId::F13, "a read failed");
            return Err(io::Error::other("the disk failed a read"));
        }
        let start = offset as usize;
        let sectors = start / SECTOR..(start + buffer.len()).div_ceil(SECTOR);
        let inode = &state.inodes[self.inode];
        if !inode.unreadable.is_empty() {
            let found = inode.unreadable.range(sectors).next().copied();
            if let Some(sector) = found {
                state.fire(FaultId::F13, format!("sector {sector} cannot be read"));
                return Err(io::Error::other(format!("the disk cannot read sector {sector}")));
            }
        }
        match state.inodes[self.inode].content.read(start, buffer) {
            true => Ok(()),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.disk.live()?;
        let state = &mut *state;
        let state = &mut *state;
        if let Some(writes) = &mut state.limits.writes {
            *writes = writes.checked_sub(1).ok_or_else(|| io::Error::other("the disk failed a write"))?;
        }
        let (start, stop) = (offset as usize, offset as usize + bytes.len());
        state.check_capacity(self.inode, stop)?;
        let fault = state.meets(Kind::Write, |_| true);
        if let Some(Fault::NoRoom) = fault {
            state.fire(FaultId::F12, "a write found no room");
            return Err(io::ErrorKind::StorageFull.into());
        }
        let now = state.tick()?;
        state.charge(state.meter.speed.write, bytes.len());
        let done = match fault {
            Some(Fault::WriteFails { done_percent }) => bytes.len() * usize::from(done_percent) / 100,
            _ => bytes.len(),
        };
        let inode = &mut state.inodes[self.inode];
        if state.journal.is_some() {
            let (len, length_changed) = (inode.content.len(), inode.length_changed);
            let mut undo = WriteUndo { sectors: Vec::new(), len, length_changed };
            inode.write(start, &bytes[..done], now, Some(&mut undo));
            state.note(Undo::Write { inode: self.inode, undo });
        } else {
            inode.write(start, &bytes[..done], now, None);
        }
        if fault.is_some() {
            state.fire(FaultId::F12, format!("a write failed after {done} of {} bytes", bytes.len()));
            return Err(io::Error::other("the disk failed a write"));
        }
        Ok(())
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let mut state = self.disk.live()?;
        let state = &mut *state;
        state.check_capacity(self.inode, len as usize)?;
        let now = state.tick()?;
        state.charge(state.meter.speed.name, 0);
        let inode = &mut state.inodes[self.inode];
        let undo =
            WriteUndo { sectors: Vec::new(), len: inode.content.len(), length_changed: inode.length_changed };
        inode.grow(len as usize, now);
        state.note(Undo::Write { inode: self.inode, undo });
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.live()?.sync_file(self.inode)
    }
}
