//! Memory of a virtual machine's host: all of it is used once before times are judged.
//!
//! A host may lend its memory page by page, and take it back as soon as it is free (free page reporting). A log touches new
//! pages all the time, so where one costs the host 15 µs, that is what the times show. A machine that has run for a day has
//! no such pages: what is free there has held files before. So the page cache is filled first, with the holes of a file that
//! takes no room, and whoever wants memory gets it from there.
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

/// All memory has been used, and the page cache is full until this is dropped.
#[derive(Debug)]
pub struct UsedMemory {
    folder: PathBuf,
    /// What a page cost on average.
    pub page: Duration,
}

impl UsedMemory {
    /// Fills the page cache; `tell` gets how much of it is full, in percent. None if the kernel does not say what is free.
    pub fn all(mut tell: impl FnMut(u64)) -> Option<UsedMemory> {
        let all = meminfo("MemTotal")?;
        let mut used = UsedMemory { folder: own_folder("host-memory"), page: Duration::ZERO };
        let holes = used.folder.join("holes");
        File::create(&holes).and_then(|file| file.set_len(all.min(BYTES_MAX))).ok()?;
        let mut file = File::open(&holes).ok()?;
        let mut piece = vec![0; PIECE_BYTES];
        let own_time = || processor_time(&[std::process::id()]);
        let had = own_time();
        let (kept, free_at_first) = (all / FREE_PART, meminfo("MemFree")?);
        let mut bytes = 0;
        loop {
            let free = meminfo("MemFree")?;
            if free <= kept {
                break;
            }
            tell((100 * free_at_first.saturating_sub(free) / (free_at_first - kept)).min(99));
            // Less than what stays free; at the file's end all memory has been used, whatever is free by then.
            let pieces = kept / 2 / PIECE_BYTES as u64;
            if (0..pieces).any(|_| file.read_exact(&mut piece).is_err()) {
                break;
            }
            bytes += pieces * PIECE_BYTES as u64;
        }
        tell(100);
        let pages = u32::try_from(bytes / PAGE_BYTES).expect("below 64 GiB").max(1);
        used.page = own_time().saturating_sub(had) / pages;
        Some(used)
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
