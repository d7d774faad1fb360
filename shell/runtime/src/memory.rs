//! Memory: what is free goes back to the system on a thread of its own, not in the middle of the work.
//!
//! mimalloc gives free memory back on whatever thread next asks it for some, once the memory has been free for a while:
//! up to 4 MiB per call, 2.5 to 11 ms each on a small virtual machine, and after a snapshot or a compaction that thread
//! is the owner of the tables. So the delay is made too long for that ever to happen, and a thread of its own gives
//! free memory back every second, as mimalloc would have, and seldom while the process does hardly anything. No other thread is
//! held up meanwhile: the memory is first taken out of the allocator's hands.
//!
//! Memory comes in small pages: mimalloc asks for huge ones, and the first access to such a page waits until all of it
//! is cleared, while the host of a virtual machine may have to find each part of it: 5.4 ms here, again for all that
//! was given back. With small pages the tables themselves are about a sixth slower. (docs/performance.md, "What a
//! snapshot costs")
//! Knows nothing of: the code that allocates.

use libmimalloc_sys::{mi_collect, mi_option_get, mi_option_set_default, mi_option_t};
use rustix::thread::disable_transparent_huge_pages;
use rustix::time::{ClockId, clock_gettime};
use std::ffi::c_long;
use std::time::Duration;

/// `mi_option_purge_delay` of mimalloc's `mimalloc.h`, which its crate has no name for. In milliseconds.
const PURGE_DELAY: mi_option_t = 15;
/// Far beyond a second; far below where a sum with the clock could overflow.
const NEVER: c_long = 1_000_000_000;
/// mimalloc's own delay.
const EVERY: Duration = Duration::from_secs(1);
/// So many seconds go by without, while the process does hardly anything: nothing is freed then.
const SECONDS_AT_REST: u32 = 10;
/// Processor time in a second, of all threads, that is hardly anything.
const HARDLY_ANYTHING: Duration = Duration::from_millis(10);

/// Runs from now on, for as long as the process lives. To be called once, before there are other threads. Keeps what
/// the operator has set: `MIMALLOC_PURGE_DELAY`, `MIMALLOC_ALLOW_THP` (1 for huge pages, where access to one costs
/// little). Gives nothing back where the process has another allocator.
///
/// # Errors
/// No thread can be had.
pub fn give_back_beside() -> std::io::Result<()> {
    if std::env::var_os("MIMALLOC_ALLOW_THP").is_none() {
        let _ = disable_transparent_huge_pages(true); // a kernel that cannot has no huge pages
    }
    if !hold_on() {
        return Ok(());
    }
    let beside = || {
        let (mut used, mut at_rest) = (processor_time(), 0);
        loop {
            std::thread::sleep(EVERY);
            let now = processor_time();
            at_rest = if now.saturating_sub(used) < HARDLY_ANYTHING { at_rest + 1 } else { SECONDS_AT_REST };
            if SECONDS_AT_REST <= at_rest {
                give_back();
                at_rest = 0;
            }
            used = now;
        }
    };
    std::thread::Builder::new().name("memory".into()).spawn(beside).map(drop)
}

/// Processor time that this process has used, all of its threads.
fn processor_time() -> Duration {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(used.tv_sec.unsigned_abs(), u32::try_from(used.tv_nsec).expect("below a second"))
}

/// From now on no allocation gives memory back. Returns whether that is so: a delay that was set by hand stays.
pub fn hold_on() -> bool {
    // SAFETY: both take and return numbers; options may be read and set at any time.
    unsafe {
        mi_option_set_default(PURGE_DELAY, NEVER);
        mi_option_get(PURGE_DELAY) == NEVER
    }
}

/// Gives free memory back now, on this thread.
pub fn give_back() {
    // SAFETY: it takes no pointer, and may be called from every thread at any time.
    unsafe { mi_collect(true) }
}
