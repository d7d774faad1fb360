//! Memory of a virtual machine's host: all of it has been used before times are judged.
//!
//! A host may lend its memory page by page, and take it back as soon as it is free (free page reporting). A log touches new
//! pages all the time, so where one costs the host 15 µs, that is what the times show. A machine that has run for a day has
//! no such pages: what is free there has held files before. So the page cache is filled first, with the holes of a file that
//! takes no room, and whoever wants memory gets it from there. A kernel may empty it again in minutes [Linux, DAMON-based Reclamation], so it
//! is filled anew before each thing that is timed.
//! Knows nothing of: what is measured afterwards.

use crate::process::own_folder;
use crate::processors::processor_time;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

/// So much is used at most; the rest of a larger machine may be fresh.
const BYTES_MAX: u64 = 64 << 30;
const PIECE_BYTES: usize = 1 << 20;
const PAGE_BYTES: u64 = 4096;
/// The part of all memory that stays free.
const FREE_PART: u64 = 32;

/// A file of holes that fills the page cache, until this is dropped.
#[derive(Debug)]
pub struct UsedMemory {
    folder: PathBuf,
    holes: PathBuf,
    all: u64,
}

impl UsedMemory {
    /// Nothing has been filled yet. None if the kernel does not say what memory there is.
    pub fn new() -> Option<UsedMemory> {
        let all = meminfo("MemTotal")?;
        let folder = own_folder("host-memory");
        let holes = folder.join("holes");
        File::create(&holes).and_then(|file| file.set_len(all.min(BYTES_MAX))).ok()?;
        Some(UsedMemory { folder, holes, all })
    }

    /// Fills the page cache, as far as it has become empty since; what a page cost on average.
    pub fn fill(&self) -> Duration {
        let own_time = || processor_time(&[std::process::id()]);
        let had = own_time();
        let bytes = self.read().unwrap_or_default();
        let pages = u32::try_from(bytes / PAGE_BYTES).expect("below 64 GiB").max(1);
        own_time().saturating_sub(had) / pages
    }

    /// Reads until little is free, or to the end: then all memory has been used, whatever is free by then.
    fn read(&self) -> Option<u64> {
        let mut file = File::open(&self.holes).ok()?;
        let mut piece = vec![0; PIECE_BYTES];
        let kept = self.all / FREE_PART;
        let mut bytes = 0;
        while kept < meminfo("MemFree")? {
            // Less than what stays free.
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

impl Drop for UsedMemory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// One of the kernel's figures of memory, in bytes. [proc_meminfo(5)]
fn meminfo(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}
