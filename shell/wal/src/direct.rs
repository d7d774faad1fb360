//! Direct: a file that is written, and read in large pieces, past the page cache.
//!
//! What a log writes is read again only by a member that lags or starts. In the page cache it takes a page of memory for
//! every 4 KiB, a copy, and a walk over dirty pages at every sync; and on a virtual machine, whose host has to find every page
//! that was free for a while, several microseconds more.
//!
//! Rules: 1. Offset and length of such a write are multiples of [`SECTOR`], those of such a read of [`PAGE`], and a read has at
//!           least [`READ_MIN`]. All others go through the page cache, which the system keeps coherent.
//!        2. What a file system refuses goes through the page cache, and so does all that follows in this file.
//!        3. It is as durable as any other write: not before a sync.
//! Knows nothing of: what is written, and why.

use crate::block::SECTOR;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// What memory is aligned to: as much as any disk asks for.
pub(crate) const PAGE: usize = 4096;

/// Most bytes that go to the disk, or come from it, at once.
const PIECE: usize = 256 << 10;

/// A shorter read may be one of many of the same place.
pub(crate) const READ_MIN: usize = PIECE;

thread_local! {
    /// Memory of this thread in which the bytes are aligned.
    static MEMORY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A file that is open past the page cache.
#[derive(Debug)]
pub(crate) struct Direct {
    file: File,
    /// The file system has refused a read or a write. [Rule 2]
    is_refused: AtomicBool,
}

impl Direct {
    /// Opens a file; `None` if the file system has no such way, or the file may not be written.
    pub(crate) fn open(path: &Path) -> Option<Direct> {
        let flags = OFlags::DIRECT.bits().cast_signed();
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path).ok()?;
        Some(Direct { file, is_refused: AtomicBool::new(false) })
    }

    /// Writes these bytes, or the first of them. Returns how many. [Rules 1, 2]
    ///
    /// # Errors
    /// The system's; any part may then have been written.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        if !self.takes(offset, bytes.len(), SECTOR) {
            return Ok(0);
        }
        let mut pieces = bytes.chunks(PIECE);
        self.go(offset, bytes.len(), |at, memory| {
            let piece = pieces.next().unwrap_or_default();
            memory.copy_from_slice(piece);
            self.file.write_at(memory, at)
        })
    }

    /// Fills this buffer, or the beginning of it. Returns how much. [Rules 1, 2]
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let whole = buffer.len() / PAGE * PAGE;
        if whole < READ_MIN || !self.takes(offset, whole, PAGE) {
            return Ok(0);
        }
        let mut pieces = buffer[..whole].chunks_mut(PIECE);
        self.go(offset, whole, |at, memory| {
            let read = self.file.read_at(memory, at)?;
            pieces.next().unwrap_or_default()[..read].copy_from_slice(&memory[..read]);
            Ok(read)
        })
    }

    fn takes(&self, offset: u64, len: usize, unit: usize) -> bool {
        offset.is_multiple_of(unit as u64)
            && len.is_multiple_of(unit)
            && !self.is_refused.load(Ordering::Relaxed)
    }

    /// Goes through `len` bytes from `offset` on, as long as whole pieces are done.
    fn go(
        &self,
        offset: u64,
        len: usize,
        mut one: impl FnMut(u64, &mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        MEMORY.with_borrow_mut(|memory| {
            let mut done = 0;
            while done < len {
                let piece = PIECE.min(len - done);
                match self.after(one(offset + done as u64, on_a_page(memory, piece)))? {
                    ControlFlow::Continue(went) if went == piece => done += went,
                    ControlFlow::Continue(part) | ControlFlow::Break(part) => return Ok(done + part),
                }
            }
            Ok(done)
        })
    }

    /// Whether to go on after this result; if not, the rest goes through the page cache.
    fn after(&self, went: io::Result<usize>) -> io::Result<ControlFlow<usize, usize>> {
        match went {
            Ok(went) => Ok(ControlFlow::Continue(went)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(ControlFlow::Break(0)),
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                self.is_refused.store(true, Ordering::Relaxed);
                Ok(ControlFlow::Break(0))
            }
            Err(error) => Err(error),
        }
    }
}

/// So many bytes that begin on a page.
fn on_a_page(memory: &mut Vec<u8>, len: usize) -> &mut [u8] {
    if memory.len() < len + PAGE {
        memory.resize(len + PAGE, 0);
    }
    let start = memory.as_ptr().align_offset(PAGE);
    &mut memory[start..start + len]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Files;
    use crate::real::RealFiles;
    use std::path::PathBuf;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("kattu-wal-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    /// Bytes that differ from place to place.
    fn bytes(from: usize, len: usize) -> Vec<u8> {
        (from..from + len).map(|place| (place * 31 + place / 251) as u8).collect()
    }

    #[test]
    fn what_was_written_in_either_way_reads_back_in_either_way() {
        let top = folder("direct");
        let files = RealFiles::existing(&top).expect("our folder");
        let file = files.create("log").expect("created");
        let cached = File::open(top.join("log")).expect("it is there");
        // Whole sectors take the direct way, unless the file system has refused.
        if let Some(direct) = Direct::open(&top.join("log")) {
            let went = direct.write(0, &[1; PIECE + SECTOR]).expect("written");
            assert!(went == PIECE + SECTOR || direct.is_refused.load(Ordering::Relaxed), "{went} bytes");
        }
        const LEN: usize = 3 * PIECE + 5 * SECTOR;
        file.allocate(LEN as u64).expect("space");
        let mut expected = vec![0; LEN];
        // Whole sectors and others, in turn over each other, also with memory that lies on no page.
        let source = bytes(0, LEN + 1);
        let places = [
            (0, LEN),
            (SECTOR, SECTOR),
            (PAGE - 3, 7),
            (PIECE - SECTOR, 2 * SECTOR),
            (5, 2 * PIECE),
            (PAGE, 2 * PIECE + SECTOR),
            (LEN - 1, 1),
        ];
        for (round, (at, len)) in places.into_iter().enumerate() {
            let from = round % 2;
            file.write_at(at as u64, &source[from..from + len]).expect("written");
            expected[at..at + len].copy_from_slice(&source[from..from + len]);
            let mut found = vec![0; LEN];
            cached.read_exact_at(&mut found, 0).expect("read through the cache");
            assert!(found == expected, "through the cache after {len} bytes at {at}");
            for (at, len) in [(0, LEN), (PAGE, PIECE), (PAGE, LEN - PAGE), (1, LEN - 1), (LEN - 9, 9)] {
                let mut found = vec![0; len];
                file.read_at(at as u64, &mut found).expect("read");
                assert!(found == expected[at..at + len], "{len} bytes at {at}");
            }
        }
        file.sync().expect("synced");
        let mut beyond = vec![0; LEN];
        let error = file.read_at(PAGE as u64, &mut beyond).expect_err("it ends before");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        std::fs::remove_dir_all(&top).expect("our folder");
    }

    #[test]
    fn what_cannot_go_past_the_cache_goes_through_it() {
        let top = folder("direct-refused");
        let path = top.join("log");
        File::create(&path).expect("created").set_len(2 * PIECE as u64).expect("space");
        // Its descriptor only reads: a write fails, and that is no refusal.
        let direct =
            Direct { file: File::open(&path).expect("read only"), is_refused: AtomicBool::new(false) };
        assert_eq!(direct.write(1, &[7; SECTOR]).ok(), Some(0), "no whole sector");
        assert_eq!(direct.write(0, &[7; SECTOR - 1]).ok(), Some(0), "no whole sector");
        assert!(direct.write(0, &[7; SECTOR]).is_err(), "the system's error stays one");
        assert_eq!(direct.read(0, &mut vec![0; READ_MIN - 1]).ok(), Some(0), "a short read");
        let refuse = || Err(io::Error::from(Errno::INVAL));
        assert!(matches!(direct.after(refuse()), Ok(ControlFlow::Break(0))));
        assert_eq!(direct.read(0, &mut vec![0; READ_MIN]).ok(), Some(0), "it has refused before");
        assert_eq!(direct.write(0, &[7; SECTOR]).ok(), Some(0), "it has refused before");
        std::fs::remove_dir_all(&top).expect("our folder");
    }
}
