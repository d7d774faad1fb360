//! Process: the disk as a process sees it: files, names, a lock.
//!
//! Every operation fails once the process is dead or the power is out; each one takes its time and may hit a fault.
//! Knows nothing of: scenarios, judges.

use crate::SimDisk;
use crate::content::SECTOR;
use crate::faults::{Fault, FaultId, Kind};
use crate::inode::{Inode, WriteUndo};
use crate::names::{NameChange, said};
use crate::state::{Undo, failed_sync};
use kattu_wal::files::{Files, LockGuard, LogFile};
use std::fmt;
use std::io;

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
        // An emptied file is a new one here: a process that has the old one open keeps its content.
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
            state.locked = false; // a handle of an earlier life must not free a later lock
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
