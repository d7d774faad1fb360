//! Memory of a virtual machine's host: what a page costs that the machine has not used yet, and how to have used all of it.
//!
//! A host may lend its memory page by page, and take it back as soon as it is free (free page reporting). A log touches
//! new pages all the time, so a page that costs the host 15 µs is what the times show. A machine that has run for a day
//! has no such pages: what is free there has held files before. So the page cache is filled first, with the holes of a
//! file that takes no room, and whoever wants memory gets it from there.
//! Knows nothing of: what is measured afterwards.

use crate::process::own_folder;
use crate::processors::processor_time;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

/// A page that costs more than this comes from a host: zeros for it, and its place in the page cache, are less than 2 µs.
const PAGE_MAX: Duration = Duration::from_micros(4);
/// Read to find out: more than a machine keeps at hand of what has just become free.
const PROBE_BYTES: u64 = 512 << 20;
const PIECE_BYTES: usize = 1 << 20;
const PAGE_BYTES: u64 = 4096;
/// The part of all memory that stays free.
const FREE_PART: u64 = 32;

/// All memory has been used, and the page cache is full until this is dropped.
#[derive(Debug)]
pub struct UsedMemory {
    folder: PathBuf,
    /// What a page cost that had not been used.
    pub page: Duration,
}

impl UsedMemory {
    /// Fills the page cache where fresh memory is dear; None where it is not. `tell` gets what is filled, in percent.
    pub fn where_fresh_is_dear(mut tell: impl FnMut(u64)) -> Option<UsedMemory> {
        let all = meminfo("MemTotal")?;
        let mut used = UsedMemory { folder: own_folder("host-memory"), page: Duration::ZERO };
        let holes = used.folder.join("holes");
        File::create(&holes).and_then(|file| file.set_len(all)).ok()?;
        let mut file = File::open(&holes).ok()?;
        let mut piece = vec![0; PIECE_BYTES];
        let mut read = |pieces: u64| (0..pieces).all(|_| file.read_exact(&mut piece).is_ok());

        let had = processor_time(&[std::process::id()]);
        if !read(PROBE_BYTES / PIECE_BYTES as u64) {
            return None;
        }
        let took = processor_time(&[std::process::id()]).saturating_sub(had);
        used.page = took / u32::try_from(PROBE_BYTES / PAGE_BYTES).expect("a small file");
        if used.page <= PAGE_MAX {
            return None;
        }
        let kept = all / FREE_PART;
        let free_at_first = meminfo("MemFree")?.max(kept + 1);
        loop {
            let free = meminfo("MemFree")?;
            tell((100 * free_at_first.saturating_sub(free) / (free_at_first - kept)).min(99));
            // In pieces of less than what stays free; at the file's end all memory has been used, whatever is free.
            if free <= kept || !read(kept / 2 / PIECE_BYTES as u64) {
                tell(100);
                return Some(used);
            }
        }
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
