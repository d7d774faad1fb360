//! Host memory: all memory of a virtual machine has been used once before times are judged.
//!
//! A host may lend its memory page by page, and take it back as soon as it is free (free page reporting). A log touches
//! new pages all the time, so where one costs the host 15 µs, that is what the times show. A machine that has run for a
//! day has no such pages: its free memory has held files before. So the page cache is filled first, with the holes of a
//! sparse file; memory that processes then allocate is taken from it. A kernel may empty it again in minutes [Linux,
//! DAMON-based Reclamation], so it is filled anew before each timed run.
//! Knows nothing of: members, the timed runs.

use crate::processors::processor_time;
use kattu_rig::programs::{OwnFolder, memory_of_machine};
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

/// At most so many bytes are used; the rest of a larger machine may be fresh.
const BYTES_MAX: u64 = 64 << 30;
const PIECE_BYTES: usize = 1 << 20;
const PAGE_BYTES: u64 = 4096;
/// Divisor: this part of all memory stays free.
const FREE_PART: u64 = 32;

/// A sparse file that fills the page cache; dropped, it is removed.
#[derive(Debug)]
pub(crate) struct UsedMemory {
    _folder: OwnFolder,
    holes: PathBuf,
    all: u64,
}

impl UsedMemory {
    /// Creates the file; fills nothing yet. `None` if the kernel does not report its memory.
    pub fn new() -> Option<UsedMemory> {
        let all = memory_of_machine("MemTotal")?;
        let folder = OwnFolder::new("host-memory");
        let holes = folder.path().join("holes");
        File::create(&holes).and_then(|file| file.set_len(all.min(BYTES_MAX))).ok()?;
        Some(UsedMemory { _folder: folder, holes, all })
    }

    /// Fills the part of the page cache that has become empty; returns the average cost of a page.
    pub fn fill(&self) -> Duration {
        let own_time = || processor_time(&[std::process::id()]);
        let had = own_time();
        let bytes = self.read().unwrap_or_default();
        let pages = u32::try_from(bytes / PAGE_BYTES).expect("below 64 GiB").max(1);
        own_time().saturating_sub(had) / pages
    }

    /// Reads until little memory is free, or to the end of the file: then all memory has been used once.
    fn read(&self) -> Option<u64> {
        let mut file = File::open(&self.holes).ok()?;
        let mut piece = vec![0; PIECE_BYTES];
        let kept = self.all / FREE_PART;
        let mut bytes = 0;
        while kept < memory_of_machine("MemFree")? {
            // Less than the part that stays free.
            for _ in 0..kept / 2 / PIECE_BYTES as u64 {
                if file.read_exact(&mut piece).is_err() {
                    return Some(bytes);
                }
                bytes += PIECE_BYTES as u64;
            }
        }
        Some(bytes)
    }
}
