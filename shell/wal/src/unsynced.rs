//! Unsynced files: a directory that says that everything is durable, and waits for no disk. For experiments only: it is how much
//! of a member's time the disk takes, shown by leaving it out.
//!
//! What the process has written survives the process, because the system has it; a power cut loses any part of it.
//! Knows nothing of: who asks for it, what the files hold. [fault-model ST16]

use crate::files::{Files, LockGuard, LogFile, Remains};
use std::io;
use std::sync::Arc;

/// A directory whose syncs do nothing.
#[derive(Debug)]
pub struct UnsyncedFiles(Arc<dyn Files>);

impl UnsyncedFiles {
    /// The same directory without syncs.
    #[must_use]
    pub fn over(files: Arc<dyn Files>) -> UnsyncedFiles {
        UnsyncedFiles(files)
    }
}

fn unsynced(file: Box<dyn LogFile>) -> Box<dyn LogFile> {
    Box::new(UnsyncedFile(file))
}

impl Files for UnsyncedFiles {
    fn place(&self) -> String {
        self.0.place()
    }

    fn names(&self) -> io::Result<Vec<String>> {
        self.0.names()
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn LogFile>> {
        self.0.open(name).map(unsynced)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn LogFile>> {
        self.0.create(name).map(unsynced)
    }

    fn rename(&self, source: &str, target: &str) -> io::Result<()> {
        self.0.rename(source, target)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }

    fn remove_large(&self, name: &str) -> io::Result<Option<Box<dyn Remains>>> {
        self.0.remove_large(name)
    }

    fn sync_names(&self) -> io::Result<()> {
        Ok(())
    }

    fn lock(&self, name: &str) -> io::Result<Result<Box<dyn LockGuard>, String>> {
        self.0.lock(name)
    }
}

#[derive(Debug)]
struct UnsyncedFile(Box<dyn LogFile>);

impl LogFile for UnsyncedFile {
    fn bytes(&self) -> io::Result<u64> {
        self.0.bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, bytes)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.0.allocate(len)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}
