//! A disk that loses power on request.
//!
//! Everything written stays doubtful until its file is synced, everything renamed until the names are: each sector may
//! arrive or not, in any order, and so may each change of a name or a length. [`SimDisk::crash_images`] shows the disks
//! that could be found afterwards: all of them while few things are doubtful, a seeded choice of the telling ones when
//! there are many. Faults (a failing sync, a full disk, a flipped bit) are set by the test. [fault-model F10–F15]
//! Knows nothing of: what the files hold.

use crate::files::{Files, LockGuard, LogFile};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const SECTOR: usize = crate::block::SECTOR;

/// While at most this many things are doubtful, every subset of them is an image.
pub const EXHAUSTIVE_MAX: usize = 12;

/// A disk in memory. Clones are the same disk.
#[derive(Clone, Default)]
pub struct SimDisk(Arc<Mutex<State>>);

#[derive(Clone, Default)]
struct State {
    inodes: Vec<Inode>,
    names: BTreeMap<String, usize>,
    names_durable: BTreeMap<String, usize>,
    name_changes: Vec<(u64, NameChange)>,
    locked: bool,
    holder: String,
    /// Operations so far that change something.
    clock: u64,
    faults: Faults,
}

#[derive(Clone, Default)]
struct Inode {
    bytes: Vec<u8>,
    durable: Vec<u8>,
    /// Sector → its versions since the last sync, with their times.
    doubtful: BTreeMap<usize, Vec<(u64, Vec<u8>)>>,
    /// When the length last changed, if not synced since.
    length_changed: Option<u64>,
}

#[derive(Clone, Debug)]
enum NameChange {
    Set { name: String, inode: usize },
    Rename { source: String, target: String, inode: usize },
    Remove { name: String },
}

#[derive(Clone, Debug, Default)]
struct Faults {
    /// Operations that may still happen before power is lost.
    power: Option<u64>,
    /// Syncs that still succeed.
    syncs: Option<u64>,
    /// Writes that still succeed.
    writes: Option<u64>,
    /// Bytes that all files together may have.
    capacity: Option<u64>,
}

/// One thing that may or may not have reached the disk.
#[derive(Clone, Debug)]
enum Doubt {
    Sector { inode: usize, sector: usize, versions: usize },
    Length { inode: usize },
    Name(NameChange),
}

fn power_is_out() -> io::Error {
    io::Error::other("the power is out")
}

fn failed_sync() -> io::Error {
    io::Error::other("the disk failed a sync")
}

impl State {
    /// Whether one more sync, of a file or of the names, succeeds.
    fn may_sync(&mut self) -> bool {
        let Some(left) = &mut self.faults.syncs else { return true };
        let may = *left > 0;
        *left = left.saturating_sub(1);
        may
    }

    /// Counts an operation that changes something.
    fn tick(&mut self) -> io::Result<u64> {
        if let Some(power) = &mut self.faults.power {
            *power = power.checked_sub(1).ok_or_else(power_is_out)?;
        }
        self.clock += 1;
        Ok(self.clock)
    }

    fn change_name(&mut self, change: NameChange) -> io::Result<()> {
        let now = self.tick()?;
        change.apply(&mut self.names);
        self.name_changes.push((now, change));
        Ok(())
    }

    fn check_capacity(&self, inode: usize, len: usize) -> io::Result<()> {
        let held: usize = self
            .names
            .values()
            .collect::<BTreeSet<_>>()
            .into_iter()
            .map(|&at| self.inodes[at].bytes.len())
            .sum();
        let grows = len.saturating_sub(self.inodes[inode].bytes.len());
        match self.faults.capacity {
            Some(capacity) if grows != 0 && capacity < (held + grows) as u64 => {
                Err(io::ErrorKind::StorageFull.into())
            }
            _ => Ok(()),
        }
    }

    fn grow(&mut self, inode: usize, len: usize, now: u64) {
        let inode = &mut self.inodes[inode];
        if inode.bytes.len() < len {
            inode.bytes.resize(len, 0);
            inode.length_changed = Some(now);
        }
    }

    /// Everything doubtful, oldest first.
    fn doubts(&self) -> Vec<Doubt> {
        let mut doubts = Vec::new();
        for (number, inode) in self.inodes.iter().enumerate() {
            for (&sector, versions) in &inode.doubtful {
                let newest = versions.last().expect("a doubtful sector has a version").0;
                doubts.push((newest, Doubt::Sector { inode: number, sector, versions: versions.len() }));
            }
            if let Some(at) = inode.length_changed {
                doubts.push((at, Doubt::Length { inode: number }));
            }
        }
        doubts.extend(self.name_changes.iter().map(|(at, change)| (*at, Doubt::Name(change.clone()))));
        doubts.sort_by_key(|(at, _)| *at);
        doubts.into_iter().map(|(_, doubt)| doubt).collect()
    }

    /// The disk on which exactly the doubts that `arrived` names arrived; of a sector that was written repeatedly,
    /// the version that `pick` chooses.
    fn image(&self, doubts: &[Doubt], arrived: &[bool], pick: &mut dyn FnMut(usize) -> usize) -> SimDisk {
        let mut names = self.names_durable.clone();
        let mut contents: Vec<Vec<u8>> = self.inodes.iter().map(|inode| inode.durable.clone()).collect();
        for (doubt, _) in doubts.iter().zip(arrived).filter(|(_, arrived)| **arrived) {
            match doubt {
                Doubt::Length { inode } => contents[*inode].resize(self.inodes[*inode].bytes.len(), 0),
                Doubt::Name(change) => change.apply(&mut names),
                Doubt::Sector { .. } => {}
            }
        }
        for (doubt, _) in doubts.iter().zip(arrived).filter(|(_, arrived)| **arrived) {
            let Doubt::Sector { inode, sector, versions } = doubt else {
                continue;
            };
            let (_, version) = &self.inodes[*inode].doubtful[sector][pick(*versions)];
            let start = sector * SECTOR;
            let content = &mut contents[*inode];
            if start < content.len() {
                let stop = content.len().min(start + version.len());
                content[start..stop].copy_from_slice(&version[..stop - start]);
            }
        }
        let inodes =
            contents.into_iter().map(|bytes| Inode { durable: bytes.clone(), bytes, ..Inode::default() });
        let state =
            State { inodes: inodes.collect(), names_durable: names.clone(), names, ..State::default() };
        SimDisk(Arc::new(Mutex::new(state)))
    }
}

impl NameChange {
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

/// Numbers that look random and follow from a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

impl SimDisk {
    /// An empty disk.
    #[must_use]
    pub fn new() -> SimDisk {
        SimDisk::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A copy that shares nothing, doubts included.
    #[must_use]
    pub fn copy(&self) -> SimDisk {
        let mut state = self.state().clone();
        state.locked = false;
        SimDisk(Arc::new(Mutex::new(state)))
    }

    /// Power is lost after so many more operations that change something: from then on every operation fails.
    pub fn lose_power_after(&self, operations: u64) {
        self.state().faults.power = Some(operations);
    }

    /// How many operations changed something so far.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.state().clock
    }

    /// Every sync after so many more fails.
    pub fn fail_syncs_after(&self, syncs: u64) {
        self.state().faults.syncs = Some(syncs);
    }

    /// Every write after so many more fails.
    pub fn fail_writes_after(&self, writes: u64) {
        self.state().faults.writes = Some(writes);
    }

    /// All files together may have so many bytes; `None` for any number.
    pub fn limit_to(&self, bytes: Option<u64>) {
        self.state().faults.capacity = bytes;
    }

    /// Bytes of all files together.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let state = self.state();
        state.names.values().map(|&inode| state.inodes[inode].bytes.len() as u64).sum()
    }

    /// What a file holds.
    #[must_use]
    pub fn contents(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.state();
        Some(state.inodes[*state.names.get(name)?].bytes.clone())
    }

    /// Replaces what a file holds, durably, as damage at rest does; `None` removes it.
    pub fn set_contents(&self, name: &str, bytes: Option<Vec<u8>>) {
        let mut state = self.state();
        let Some(bytes) = bytes else {
            state.names.remove(name);
            state.names_durable.remove(name);
            return;
        };
        let inode = Inode { durable: bytes.clone(), bytes, ..Inode::default() };
        state.inodes.push(inode);
        let number = state.inodes.len() - 1;
        state.names.insert(name.to_owned(), number);
        state.names_durable.insert(name.to_owned(), number);
    }

    /// How many things are doubtful now.
    #[must_use]
    pub fn doubts(&self) -> usize {
        self.state().doubts().len()
    }

    /// The disks that could be found if power were lost now. Up to [`EXHAUSTIVE_MAX`] doubtful things: every subset of
    /// them, and each older version of a sector that was written repeatedly. Above: none, all, beginnings, ends, every
    /// other one, and `seeded` random subsets.
    pub fn crash_images(&self, seed: u64, seeded: usize) -> Vec<SimDisk> {
        let state = self.state();
        let doubts = state.doubts();
        let count = doubts.len();
        let newest = &mut |versions: usize| versions - 1;
        let mut images = Vec::new();
        if count <= EXHAUSTIVE_MAX {
            for subset in 0..1_u32 << count {
                let arrived: Vec<bool> = (0..count).map(|doubt| subset >> doubt & 1 == 1).collect();
                images.push(state.image(&doubts, &arrived, newest));
            }
            let rewritten = doubts.iter().filter_map(|doubt| match doubt {
                Doubt::Sector { versions, .. } => Some(*versions),
                _ => None,
            });
            for version in 0..rewritten.max().unwrap_or(1) - 1 {
                let older = &mut |versions: usize| version.min(versions - 1);
                images.push(state.image(&doubts, &vec![true; count], older));
            }
            return images;
        }
        let mut choose = |arrives: &dyn Fn(usize) -> bool| {
            let arrived: Vec<bool> = (0..count).map(arrives).collect();
            images.push(state.image(&doubts, &arrived, newest));
        };
        let step = count.div_ceil(16);
        for edge in (0..=count).step_by(step).chain([1, count - 1, count]) {
            choose(&|doubt| doubt < edge);
            choose(&|doubt| edge <= doubt);
        }
        choose(&|doubt| doubt % 2 == 0);
        choose(&|doubt| doubt % 2 == 1);
        let mut dice = Dice(seed.wrapping_mul(2).wrapping_add(1));
        for _ in 0..seeded {
            let arrived: Vec<bool> = (0..count).map(|_| dice.roll() & 1 == 0).collect();
            images.push(
                state.image(&doubts, &arrived, &mut |versions| (dice.roll() % versions as u64) as usize),
            );
        }
        images
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        let files = state.names.iter().map(|(name, &inode)| (name, state.inodes[inode].bytes.len()));
        f.debug_map().entries(files).finish()
    }
}

impl Files for SimDisk {
    fn place(&self) -> String {
        "simulated disk".to_owned()
    }

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.state().names.keys().cloned().collect())
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn LogFile>> {
        let state = self.state();
        let inode = *state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(SimFile { disk: self.clone(), inode }))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn LogFile>> {
        let mut state = self.state();
        // An emptied file is a new one here: what the old one held stays with whoever has it open.
        state.inodes.push(Inode::default());
        let inode = state.inodes.len() - 1;
        state.change_name(NameChange::Set { name: name.to_owned(), inode })?;
        Ok(Box::new(SimFile { disk: self.clone(), inode }))
    }

    fn rename(&self, source: &str, target: &str) -> io::Result<()> {
        let mut state = self.state();
        let inode = *state.names.get(source).ok_or(io::ErrorKind::NotFound)?;
        state.change_name(NameChange::Rename { source: source.to_owned(), target: target.to_owned(), inode })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state();
        if !state.names.contains_key(name) {
            return Ok(());
        }
        state.change_name(NameChange::Remove { name: name.to_owned() })
    }

    fn sync_names(&self) -> io::Result<()> {
        let mut state = self.state();
        if !state.may_sync() {
            return Err(failed_sync()); // which names are durable stays in doubt
        }
        state.tick()?;
        state.names_durable = state.names.clone();
        state.name_changes.clear();
        Ok(())
    }

    fn lock(&self, _name: &str) -> io::Result<Result<Box<dyn LockGuard>, String>> {
        let mut state = self.state();
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
        self.0.state().holder = holder.to_owned();
        Ok(())
    }
}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.0.state().locked = false;
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
        Ok(self.disk.state().inodes[self.inode].bytes.len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let state = self.disk.state();
        let bytes = &state.inodes[self.inode].bytes;
        let start = offset as usize;
        let source = bytes.get(start..start + buffer.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(source);
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.disk.state();
        if let Some(writes) = &mut state.faults.writes {
            *writes = writes.checked_sub(1).ok_or_else(|| io::Error::other("the disk failed a write"))?;
        }
        let (start, stop) = (offset as usize, offset as usize + bytes.len());
        state.check_capacity(self.inode, stop)?;
        let now = state.tick()?;
        state.grow(self.inode, stop, now);
        let inode = &mut state.inodes[self.inode];
        inode.bytes[start..stop].copy_from_slice(bytes);
        for sector in start / SECTOR..stop.div_ceil(SECTOR) {
            let end = inode.bytes.len().min((sector + 1) * SECTOR);
            let version = inode.bytes[sector * SECTOR..end].to_vec();
            // A write that changes nothing leaves nothing in doubt.
            if inode.doubtful.contains_key(&sector)
                || inode.durable.get(sector * SECTOR..end) != Some(&version)
            {
                inode.doubtful.entry(sector).or_default().push((now, version));
            }
        }
        Ok(())
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        state.check_capacity(self.inode, len as usize)?;
        let now = state.tick()?;
        state.grow(self.inode, len as usize, now);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        if !state.may_sync() {
            // As real ones do, the system forgets that the pages were dirty: they can be read, and no later sync writes
            // them.
            state.inodes[self.inode].doubtful.clear();
            return Err(failed_sync());
        }
        state.tick()?;
        let inode = &mut state.inodes[self.inode];
        let Inode { bytes, durable, doubtful, length_changed } = inode;
        durable.resize(bytes.len(), 0);
        for sector in core::mem::take(doubtful).into_keys() {
            let end = bytes.len().min((sector + 1) * SECTOR);
            durable[sector * SECTOR..end].copy_from_slice(&bytes[sector * SECTOR..end]);
        }
        *length_changed = None;
        Ok(())
    }
}
