//! Real files: a directory of the machine behind the [`Files`] seam.
//!
//! Knows nothing of: the content of files.

use crate::block::{SECTOR, SECTOR_MAX};
use crate::direct::Direct;
use crate::error::WalError;
use crate::files::{Files, LockGuard, LogFile, Remains};
use rustix::fs::{FallocateFlags, FlockOperation, fallocate, fdatasync, flock};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A directory.
#[derive(Debug)]
pub struct RealFiles {
    dir: PathBuf,
}

impl RealFiles {
    /// The directory at `dir`, which is made if it is not there and must be writable.
    ///
    /// # Errors
    /// [`WalError::NotADirectory`], [`WalError::Unwritable`].
    pub fn create(dir: &Path) -> Result<RealFiles, WalError> {
        let unwritable = |error: io::Error| WalError::Unwritable {
            dir: dir.display().to_string(),
            error: error.to_string(),
        };
        match std::fs::metadata(dir) {
            Ok(found) if found.is_dir() => {}
            Ok(_) => return Err(WalError::NotADirectory { dir: dir.display().to_string() }),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                return Err(WalError::NotADirectory { dir: dir.display().to_string() });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make_durably(dir, &mut |made| File::open(made)?.sync_all()).map_err(unwritable)?;
            }
            Err(error) => return Err(unwritable(error)),
        }
        let probe = dir.join("probe.tmp");
        match File::create(&probe).and_then(|_| std::fs::remove_file(&probe)) {
            // A full disk must not keep a member from its log.
            Err(error)
                if !matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) =>
            {
                Err(unwritable(error))
            }
            _ => Ok(RealFiles { dir: dir.to_owned() }),
        }
    }

    /// The directory at `dir`, which must exist. Writes nothing.
    ///
    /// # Errors
    /// [`WalError::NotADirectory`].
    pub fn existing(dir: &Path) -> Result<RealFiles, WalError> {
        if !dir.is_dir() {
            return Err(WalError::NotADirectory { dir: dir.display().to_string() });
        }
        Ok(RealFiles { dir: dir.to_owned() })
    }

    pub(crate) fn open_to_read(&self, name: &str) -> io::Result<RealFile> {
        File::open(self.path(name)).map(|file| RealFile { file, direct: None })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

/// The sector size of the disk below a directory, in bytes: 512 to 4096, and 512 if the kernel does not report it (a
/// file system in memory, over a network, or made of others). A directory that does not exist yet is on the disk of the
/// one above it.
#[must_use]
pub fn sector_of(dir: &Path) -> usize {
    let there = dir.ancestors().find(|place| place.exists());
    let Ok(found) = rustix::fs::stat(there.unwrap_or(Path::new("."))) else { return SECTOR };
    let (major, minor) = (rustix::fs::major(found.st_dev), rustix::fs::minor(found.st_dev));
    told_of(Path::new(&format!("/sys/dev/block/{major}:{minor}")))
}

/// The sector size that the kernel reports of a disk, or of the disk of a partition.
fn told_of(device: &Path) -> usize {
    let sizes = ["queue", "../queue"].map(|queue| device.join(queue).join("physical_block_size"));
    let told = sizes.iter().find_map(|path| std::fs::read_to_string(path).ok()?.trim().parse::<usize>().ok());
    let sector = told.filter(|bytes| bytes.is_power_of_two()).unwrap_or(SECTOR);
    sector.clamp(SECTOR, SECTOR_MAX)
}

/// Makes a directory and those above it that are missing, each durable in its own parent: a power cut that took one of
/// their names would take the log with it. `sync` makes the names in a directory durable.
fn make_durably(dir: &Path, sync: &mut dyn FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    let above = match dir.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Err(io::Error::from(io::ErrorKind::NotFound)),
    };
    if !above.is_dir() {
        make_durably(above, sync)?;
    }
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => {} // another process was quicker
        made => made?,
    }
    sync(above)
}

impl Files for RealFiles {
    fn place(&self) -> String {
        self.dir.display().to_string()
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for found in std::fs::read_dir(&self.dir)? {
            names.push(found?.file_name().to_string_lossy().into_owned());
        }
        Ok(names)
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn LogFile>> {
        let path = self.path(name);
        let file = match OpenOptions::new().read(true).write(true).open(&path) {
            // With read permission only, the file can still be inspected; a write will report the missing permission.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => File::open(&path)?,
            other => other?,
        };
        Ok(Box::new(RealFile::of(file, &path)))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn LogFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).mode(0o600);
        let path = self.path(name);
        Ok(Box::new(RealFile::of(options.open(&path)?, &path)))
    }

    fn rename(&self, source: &str, target: &str) -> io::Result<()> {
        std::fs::rename(self.path(source), self.path(target))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match std::fs::remove_file(self.path(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn remove_large(&self, name: &str) -> io::Result<Option<Box<dyn Remains>>> {
        let file = OpenOptions::new().write(true).open(self.path(name));
        self.remove(name)?;
        let Ok(file) = file else { return Ok(None) }; // then it is removed like a small one
        let bytes = file.metadata().map_or(0, |found| found.len());
        Ok((SHRINK_BYTES < bytes).then(|| Box::new(RealRemains { file, bytes }) as Box<dyn Remains>))
    }

    fn sync_names(&self) -> io::Result<()> {
        File::open(&self.dir)?.sync_all()
    }

    fn lock(&self, name: &str) -> io::Result<Result<Box<dyn LockGuard>, String>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(self.path(name))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Ok(Box::new(RealLock(file)))),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut holder = String::new();
                file.read_to_string(&mut holder)?;
                Ok(Err(holder.trim_end().to_owned()))
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Given back in one step. With 16 MiB other syncs took 14 ms at most beside it (`examples/removal.rs`).
const SHRINK_BYTES: u64 = 16 << 20;

/// An open file without a name, and its length.
#[derive(Debug)]
struct RealRemains {
    file: File,
    bytes: u64,
}

impl Remains for RealRemains {
    fn shrink(&mut self) -> io::Result<bool> {
        self.bytes = self.bytes.saturating_sub(SHRINK_BYTES);
        self.file.set_len(self.bytes)?;
        self.file.sync_all()?; // now, not with what other steps give back
        Ok(0 < self.bytes)
    }
}

/// The lock lasts as long as the file is open: a process that dies releases it.
#[derive(Debug)]
struct RealLock(File);

impl LockGuard for RealLock {
    fn describe(&self, holder: &str) -> io::Result<()> {
        let mut file = &self.0;
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{holder}")
    }
}

/// A file, and the same file past the page cache.
#[derive(Debug)]
pub(crate) struct RealFile {
    pub(crate) file: File,
    direct: Option<Direct>,
}

impl RealFile {
    fn of(file: File, path: &Path) -> RealFile {
        RealFile { direct: Direct::open(path), file }
    }
}

impl LogFile for RealFile {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let read = match &self.direct {
            Some(direct) => direct.read(offset, buffer)?,
            None => 0,
        };
        self.file.read_exact_at(&mut buffer[read..], offset + read as u64)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let written = match &self.direct {
            Some(direct) => direct.write(offset, bytes)?,
            None => 0,
        };
        self.file.write_all_at(&bytes[written..], offset + written as u64)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        match fallocate(&self.file, FallocateFlags::empty(), 0, len) {
            Ok(()) => Ok(()),
            // A file system that cannot allocate space gets the length; the zeros written next take the space.
            Err(rustix::io::Errno::OPNOTSUPP) => self.file.set_len(len),
            Err(error) => Err(error.into()),
        }
    }

    fn sync(&self) -> io::Result<()> {
        Ok(fdatasync(&self.file)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_file_leaves_its_space_behind_for_steps_and_a_small_one_does_not() {
        let top = std::env::temp_dir().join(format!("kattu-wal-remains-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&top);
        let files = RealFiles::create(&top).expect("a folder");
        for (name, bytes) in [("small", SHRINK_BYTES), ("large", 2 * SHRINK_BYTES + 1)] {
            files.create(name).and_then(|file| file.allocate(bytes)).expect("room");
        }
        assert!(files.remove_large("none").expect("nothing to do").is_none());
        assert!(files.remove_large("small").expect("a good disk").is_none());
        let mut large = files.remove_large("large").expect("a good disk").expect("its space");
        assert_eq!(files.names().expect("names"), Vec::<String>::new(), "the names are gone at once");
        let steps: Vec<bool> = (0..3).map(|_| large.shrink().expect("a good disk")).collect();
        assert_eq!(steps, [true, true, false]);
        std::fs::remove_dir_all(&top).expect("our folder");
    }

    #[test]
    fn every_level_of_a_new_directory_is_made_durable() {
        let top = std::env::temp_dir().join(format!("kattu-wal-levels-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&top);
        std::fs::create_dir(&top).expect("a folder");
        let mut synced = Vec::new();
        let made = make_durably(&top.join("a/b/c"), &mut |dir| {
            synced.push(dir.strip_prefix(&top).expect("below").to_path_buf());
            Ok(())
        });
        assert!(made.is_ok() && top.join("a/b/c").is_dir());
        assert_eq!(synced, ["", "a", "a/b"].map(PathBuf::from), "the uppermost name first");
        RealFiles::create(&top.join("d/e")).expect("two more levels");
        assert!(top.join("d/e").is_dir());
        std::fs::remove_dir_all(&top).expect("our folder");
    }

    #[test]
    fn a_disk_tells_what_it_writes_as_one_and_a_partition_asks_its_disk() {
        let top = std::env::temp_dir().join(format!("kattu-wal-sectors-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&top);
        std::fs::create_dir_all(top.join("queue")).expect("a folder");
        std::fs::create_dir_all(top.join("partition")).expect("a folder");
        let says =
            |size: &str| std::fs::write(top.join("queue/physical_block_size"), size).expect("our folder");
        for (size, sector) in
            [("512\n", 512), ("4096\n", 4096), ("16384\n", 4096), ("0\n", 512), ("none", 512)]
        {
            says(size);
            assert_eq!((told_of(&top), told_of(&top.join("partition"))), (sector, sector), "{size}");
        }
        std::fs::remove_dir_all(&top).expect("our folder");
        assert_eq!(told_of(&top), SECTOR, "nobody can tell");
        let sector = sector_of(&std::env::temp_dir().join("kattu-wal-not-there/yet"));
        assert!(sector.is_power_of_two() && (SECTOR..=SECTOR_MAX).contains(&sector));
    }
}
