//! The seam between the log and the disk: one flat directory of files.
//!
//! The log needs little of a disk: reads and writes of whole ranges, a sync that makes them durable, rename as the only
//! atomic step, and a sync of names.
//! Knows nothing of: the content of files.

use std::fmt::Debug;
use std::io;

/// One directory.
pub trait Files: Send + Sync + Debug {
    /// Its place, for messages.
    fn place(&self) -> String;

    /// The names in it, in any order.
    ///
    /// # Errors
    /// The system's.
    fn names(&self) -> io::Result<Vec<String>>;

    /// Opens a file for reading and writing.
    ///
    /// # Errors
    /// `NotFound` if there is none; otherwise the system's.
    fn open(&self, name: &str) -> io::Result<Box<dyn LogFile>>;

    /// Creates a file, emptying one of that name.
    ///
    /// # Errors
    /// The system's.
    fn create(&self, name: &str) -> io::Result<Box<dyn LogFile>>;

    /// Renames a file in one step, replacing an existing target.
    ///
    /// # Errors
    /// The system's.
    fn rename(&self, source: &str, target: &str) -> io::Result<()>;

    /// Removes a file; succeeds if there is none.
    ///
    /// # Errors
    /// The system's.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Removes a file like [`Files::remove`], and keeps the space of a large one, which is to be given back in steps. Without
    /// steps of its own a directory keeps none.
    ///
    /// # Errors
    /// The system's.
    fn remove_large(&self, name: &str) -> io::Result<Option<Box<dyn Remains>>> {
        self.remove(name).map(|()| None)
    }

    /// Makes all names durable: creations, renames and removals before this call survive a power cut.
    ///
    /// # Errors
    /// The system's.
    fn sync_names(&self) -> io::Result<()>;

    /// Takes the one lock of the directory, in the file `name`, until the guard is dropped. If another process holds
    /// it, returns the text that this process wrote into the file.
    ///
    /// # Errors
    /// The system's.
    fn lock(&self, name: &str) -> io::Result<Result<Box<dyn LockGuard>, String>>;
}

/// One open file.
pub trait LogFile: Send + Sync + Debug {
    /// Its length in bytes.
    ///
    /// # Errors
    /// The system's.
    fn bytes(&self) -> io::Result<u64>;

    /// Fills `buffer` from `offset` on.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file ends first; otherwise the system's.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Writes all of `bytes` at `offset`, extending the file if needed.
    ///
    /// # Errors
    /// The system's; any part may then have been written.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Sets space for `len` bytes aside and makes the file that long, with zeros.
    ///
    /// # Errors
    /// The system's; `StorageFull` when there is no room.
    fn allocate(&self, len: u64) -> io::Result<()>;

    /// Makes everything written to this file durable. After an error nothing is known about any of it.
    ///
    /// # Errors
    /// The system's.
    fn sync(&self) -> io::Result<()>;
}

/// The space of a file that has no name any more. All of it at once holds up every sync on the disk: 46 to 75 ms for a
/// gigabyte, where the file system tells the disk of each block (mount option `discard`; `examples/removal.rs`). Dropped,
/// the rest goes back at once.
pub trait Remains: Send + Debug {
    /// Gives a part back. Returns whether there is more.
    ///
    /// # Errors
    /// The system's; the rest goes back when this is dropped.
    fn shrink(&mut self) -> io::Result<bool>;
}

/// A lock that is held.
pub trait LockGuard: Send + Sync + Debug {
    /// Writes a description of the holder, for a process that finds the lock taken.
    ///
    /// # Errors
    /// The system's.
    fn describe(&self, holder: &str) -> io::Result<()>;
}
