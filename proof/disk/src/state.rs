//! State: a disk at one moment: its files, its names, the armed faults, and the operations of the current call so far.
//!
//! Knows nothing of: processes, the content of files.

use crate::Dice;
use crate::content::{self, SECTOR};
use crate::damage::Replaced;
use crate::faults::{Fault, FaultId, Fired, Kind, Meter};
use crate::inode::{Inode, SyncUndo, WriteUndo};
use crate::names::{NameChange, Names, Said, restore, said};
use std::collections::BTreeMap;
use std::io;

#[derive(Clone, Default)]
pub(crate) struct State {
    /// Rises when the process dies: its open files are closed.
    pub life: u64,
    pub inodes: Vec<Inode>,
    pub names: Names,
    pub locked: bool,
    pub holder: String,
    /// Operations so far that change something.
    pub clock: u64,
    pub limits: Limits,
    pub armed: Vec<Armed>,
    pub fired: Vec<Fired>,
    /// The sector size of the disk, if it is more than 512: the whole sector is in doubt while some of its bytes are
    /// written.
    pub physical: Option<usize>,
    /// Decides about armed faults.
    pub dice: Option<Dice>,
    pub meter: Meter,
    /// The operations of this call so far, to be undone if the process dies before them; `None` if none is ever undone.
    pub journal: Option<Vec<Done>>,
    /// Files that were replaced while no process had them open: [`SimDisk::heal`] puts them back.
    pub replaced: BTreeMap<String, Replaced>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Limits {
    /// Operations that may still happen before power is lost.
    pub power: Option<u64>,
    /// Power was lost: nothing works any more.
    pub is_out: bool,
    /// Syncs that still succeed.
    pub syncs: Option<u64>,
    /// Writes that still succeed.
    pub writes: Option<u64>,
    /// Bytes that all files together may have.
    pub capacity: Option<u64>,
    /// How many files there may be.
    pub files: Option<usize>,
}

#[derive(Clone, Debug)]
pub(crate) struct Armed {
    pub fault: Fault,
    /// So many operations of its kind pass before it fires.
    pub after: u64,
}

/// An operation that can still be undone.
#[derive(Clone)]
pub(crate) struct Done {
    /// When it ended, in nanoseconds of the call.
    pub end: u64,
    pub undo: Undo,
}

#[derive(Clone)]
pub(crate) enum Undo {
    Write {
        inode: usize,
        undo: WriteUndo,
    },
    Sync {
        inode: usize,
        undo: SyncUndo,
    },
    /// The files that the names of the last change had before.
    Name(Said),
    /// The changes that became durable, and the files that their names durably had before.
    NameSync {
        changes: Vec<(u64, NameChange)>,
        durable: Said,
    },
}

pub(crate) fn power_is_out() -> io::Error {
    io::Error::other("the power is out")
}

pub(crate) fn failed_sync() -> io::Error {
    io::Error::other("the disk failed a sync")
}

impl State {
    /// Whether one more sync, of a file or of the names, succeeds.
    pub(crate) fn may_sync(&mut self) -> bool {
        let Some(left) = &mut self.limits.syncs else { return true };
        let may = *left > 0;
        *left = left.saturating_sub(1);
        may
    }

    /// Counts an operation that changes something.
    pub fn tick(&mut self) -> io::Result<u64> {
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

    /// The fault that hits this operation, if one is armed for it.
    pub fn meets(&mut self, kind: Kind, accepts: impl Fn(Fault) -> bool) -> Option<Fault> {
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

    pub fn fire(&mut self, id: FaultId, what: impl Into<String>) {
        self.fired.push(Fired { id, what: what.into() });
    }

    pub fn charge(&mut self, base: u64, bytes: usize) {
        self.meter.charge(base, bytes, &mut self.fired);
    }

    pub fn note(&mut self, undo: Undo) {
        let end = self.meter.spent;
        if let Some(journal) = &mut self.journal {
            journal.push(Done { end, undo });
        }
    }

    /// Nothing that happened so far can be undone any more.
    pub fn settle(&mut self) {
        if let Some(journal) = &mut self.journal {
            journal.clear();
        }
    }

    pub(crate) fn change_name(&mut self, change: NameChange) -> io::Result<()> {
        let now = self.tick()?;
        self.charge(self.meter.speed.name, 0);
        if self.journal.is_some() {
            self.note(Undo::Name(said(&self.names.now, &change)));
        }
        self.names.change(now, change);
        Ok(())
    }

    pub fn held(&self) -> u64 {
        let mut inodes: Vec<usize> = self.names.now.values().copied().collect();
        inodes.sort_unstable();
        inodes.dedup();
        inodes.into_iter().map(|inode| self.inodes[inode].content.len() as u64).sum()
    }

    pub(crate) fn check_capacity(&mut self, inode: usize, len: usize) -> io::Result<()> {
        let Some(capacity) = self.limits.capacity else { return Ok(()) };
        let grows = len.saturating_sub(self.inodes[inode].content.len()) as u64;
        if grows != 0 && capacity < self.held() + grows {
            self.fire(FaultId::F12, format!("no room for {grows} bytes"));
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    pub(crate) fn sync_file(&mut self, number: usize) -> io::Result<()> {
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
    pub(crate) fn lose_write(&mut self, number: usize, synced: &SyncUndo) -> Option<usize> {
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
    pub(crate) fn misdirect(&mut self, number: usize, synced: &SyncUndo) {
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

    /// Undoes what the process had not done yet, `elapsed` nanoseconds after the call began.
    pub(crate) fn undo_after(&mut self, elapsed: u64) {
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

    /// The process is gone: its open files are closed, and files without a name disappear.
    pub(crate) fn end_life(&mut self) {
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
        let replaced = self.replaced.values().filter_map(|replaced| replaced.before);
        let now = self.names.now.values().chain(self.names.durable.values()).chain(changes);
        for inode in now.copied().chain(replaced) {
            named[inode] = true;
        }
        for (inode, _) in self.inodes.iter_mut().zip(named).filter(|(_, named)| !named) {
            *inode = Inode::default();
        }
    }

    pub fn set_contents(&mut self, name: &str, bytes: Option<&[u8]>) {
        // Damage at rest happens to the present names: they are not doubtful any more.
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
