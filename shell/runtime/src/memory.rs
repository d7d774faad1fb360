//! Memory that nobody needs goes back to the system beside the work, not in the middle of it.
//!
//! mimalloc gives free memory back on whatever thread next asks it for some, once the memory has been free for a while:
//! a call of up to 4 MiB at a time, 2.5 to 11 ms each on a small virtual machine, and after a snapshot or a compaction
//! that thread is the owner of the tables. So the delay is made too long for that ever to happen, and a thread of its own
//! gives back what is free, every second, as mimalloc would have. The system holds no other thread up meanwhile: memory
//! is taken out of the allocator's hands before it is given back.
//!
//! Memory comes in small pages: mimalloc asks for huge ones, and whoever touches such a page first waits until all of it is
//! cleared, where a virtual machine's host may have to find each part of it: 5.4 ms here, again for all that was given
//! back. With small ones the tables are about a sixth slower by themselves. (docs/performance.md, "What a snapshot costs")
//! Knows nothing of: who allocates.

use libmimalloc_sys::{mi_collect, mi_option_get, mi_option_set_default, mi_option_t};
use rustix::thread::disable_transparent_huge_pages;
use std::ffi::c_long;

/// `mi_option_purge_delay` of mimalloc's `mimalloc.h`, which its crate has no name for. In milliseconds.
const PURGE_DELAY: mi_option_t = 15;
/// Far beyond a second; far below where a sum with the clock could overflow.
const NEVER: c_long = 1_000_000_000;
/// mimalloc's own delay.
const EVERY: std::time::Duration = std::time::Duration::from_secs(1);

/// From now on, for as long as the process lives. To be called once, before other threads are there. Leaves what the
/// operator has set: `MIMALLOC_PURGE_DELAY`, `MIMALLOC_ALLOW_THP` (1 for huge pages, where touching one costs little).
/// Gives nothing back where the process has another allocator.
///
/// # Errors
/// No thread can be had.
pub fn give_back_beside() -> std::io::Result<()> {
    if std::env::var_os("MIMALLOC_ALLOW_THP").is_none() {
        let _ = disable_transparent_huge_pages(true); // a kernel that cannot has none
    }
    if !hold_on() {
        return Ok(());
    }
    let beside = || {
        loop {
            std::thread::sleep(EVERY);
            give_back();
        }
    };
    std::thread::Builder::new().name("memory".into()).spawn(beside).map(drop)
}

/// Nobody gives memory back by the way from now on. Whether that is so: a delay that was set by hand stays.
pub fn hold_on() -> bool {
    // SAFETY: both take and return numbers; options may be read and set at any time.
    unsafe {
        mi_option_set_default(PURGE_DELAY, NEVER);
        mi_option_get(PURGE_DELAY) == NEVER
    }
}

/// Gives back now, on this thread, what is free.
pub fn give_back() {
    // SAFETY: it takes no pointer, and may be called from every thread at any time.
    unsafe { mi_collect(true) }
}
