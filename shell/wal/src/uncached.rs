//! Uncached files: a directory as it is on its disk, not as it is in the page cache.
//!
//! The system reads from memory what was written and read before: damage on the disk below would show up only after the
//! next start of the machine. So the system is asked to drop a file from memory when it is opened here, and again when
//! it is closed. Pages that were not written back yet stay in memory: they are not on the disk. Reads are slow on
//! purpose. If the system does not drop a file (a file system in memory cannot), it is read as usual.
//! Knows nothing of: the content of files. [fault-model ST12]

use crate::error::WalError;
use crate::files::{Files, LockGuard, LogFile};
use crate::real::{RealFile, RealFiles};
use rustix::fs::{Advice, fadvise};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Bytes after which a reader pauses, and for how long: some 60 MiB in a second at most.
const BYTES_AT_ONCE: usize = 256 << 10;
const REST: Duration = Duration::from_millis(4);

/// A directory, to be read slowly from its disk. Nothing can be written through it.
#[derive(Debug)]
pub struct UncachedFiles(RealFiles);

impl UncachedFiles {
    /// The directory at `dir`, which must be there.
    ///
    /// # Errors
    /// [`WalError::NotADirectory`].
    pub fn existing(dir: &Path) -> Result<UncachedFiles, WalError> {
        RealFiles::existing(dir).map(UncachedFiles)
    }
}

fn only_read<T>() -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "the directory was opened to read only"))
}

impl Files for UncachedFiles {
    fn place(&self) -> String {
        self.0.place()
    }

    fn names(&self) -> io::Result<Vec<String>> {
        self.0.names()
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn LogFile>> {
        let file = UncachedFile { file: self.0.open_to_read(name)?, read: AtomicUsize::new(0) };
        file.forget();
        Ok(Box::new(file))
    }

    fn create(&self, _: &str) -> io::Result<Box<dyn LogFile>> {
        only_read()
    }

    fn rename(&self, _: &str, _: &str) -> io::Result<()> {
        only_read()
    }

    fn remove(&self, _: &str) -> io::Result<()> {
        only_read()
    }

    fn sync_names(&self) -> io::Result<()> {
        only_read()
    }

    fn lock(&self, _: &str) -> io::Result<Result<Box<dyn LockGuard>, String>> {
        only_read()
    }
}

#[derive(Debug)]
struct UncachedFile {
    file: RealFile,
    /// Bytes read since the last pause.
    read: AtomicUsize,
}

impl UncachedFile {
    /// Asks the system to drop the file from memory, as far as it is on the disk.
    fn forget(&self) {
        // Ignored advice only means that the read may not reach the disk.
        let _ = fadvise(&self.file.file, 0, None, Advice::DontNeed);
    }
}

impl Drop for UncachedFile {
    fn drop(&mut self) {
        self.forget();
    }
}

impl LogFile for UncachedFile {
    fn bytes(&self) -> io::Result<u64> {
        self.file.bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let mut at = offset;
        for piece in buffer.chunks_mut(BYTES_AT_ONCE) {
            self.file.read_at(at, piece)?;
            at += piece.len() as u64;
            if BYTES_AT_ONCE <= self.read.fetch_add(piece.len(), Ordering::Relaxed) + piece.len() {
                self.read.store(0, Ordering::Relaxed);
                std::thread::sleep(REST);
            }
        }
        Ok(())
    }

    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        only_read()
    }

    fn allocate(&self, _: u64) -> io::Result<()> {
        only_read()
    }

    fn sync(&self) -> io::Result<()> {
        only_read()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    const BYTES: usize = 3 << 20;

    /// Bytes that this thread has had read from disks.
    fn read_from_disks() -> u64 {
        let told = std::fs::read_to_string("/proc/thread-self/io").expect("the system counts");
        let line = told.lines().find_map(|line| line.strip_prefix("read_bytes: ")).expect("it says how much");
        line.parse().expect("a number")
    }

    #[test]
    fn what_the_system_has_in_memory_is_read_from_the_disk_nevertheless_and_not_left_in_memory() {
        let dir = std::env::temp_dir().join(format!("kattu-cold-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let path = dir.join("log");
        let content: Vec<u8> = (0..BYTES).map(|at| (at % 251) as u8).collect();
        std::fs::write(&path, &content).expect("written");
        File::open(&path).and_then(|file| file.sync_all()).expect("on the disk");

        // Parts of this program are read from the disk, too, on first use.
        let noise = BYTES as u64 / 2;
        let before = read_from_disks();
        assert_eq!(std::fs::read(&path).expect("read"), content);
        assert!(read_from_disks() - before < noise, "what was just written is read from memory");
        let files = UncachedFiles::existing(&dir).expect("it is there");
        let on_a_disk = rustix::fs::statfs(&dir).expect("a file system").f_type != 0x0102_1994; // tmpfs
        for _ in 0..2 {
            let before = read_from_disks();
            let mut found = vec![0; BYTES];
            files.open("log").expect("open").read_at(0, &mut found).expect("read");
            assert_eq!(found, content);
            let read = read_from_disks() - before;
            assert!(!on_a_disk || noise <= read, "{read} bytes came from the disk");
        }
        std::fs::remove_dir_all(&dir).expect("removed");
    }

    #[test]
    fn nothing_is_written_through_it() {
        let dir = std::env::temp_dir().join(format!("kattu-cold-w-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        std::fs::write(dir.join("log"), b"as it was").expect("written");
        let files = UncachedFiles::existing(&dir).expect("it is there");
        let file = files.open("log").expect("open");
        assert!(file.write_at(0, b"x").is_err() && file.allocate(100).is_err() && file.sync().is_err());
        assert!(
            files.create("log").is_err() && files.remove("log").is_err() && files.rename("log", "b").is_err()
        );
        assert_eq!(std::fs::read(dir.join("log")).expect("read"), b"as it was");
        std::fs::remove_dir_all(&dir).expect("removed");
    }
}
