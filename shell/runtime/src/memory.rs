//! Memory: what is free goes back to the system on a thread of its own, not in the middle of the work.
//!
//! mimalloc gives free memory back on whatever thread next asks it for some, once the memory has been free for a while:
//! up to 4 MiB per call, 2.5 to 11 ms each on a small virtual machine, and after a snapshot or a compaction that thread
//! is the owner of the tables. So the delay is made too long for that ever to happen, and a thread of its own gives
//! free memory back every second, as mimalloc would have; every tenth second once the process has hardly done anything
//! for ten. No other thread is held up meanwhile: the memory is first taken out of the allocator's hands.
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
/// A process that has hardly done anything for so many seconds is at rest, and gives back only when as many have gone by:
/// so what connections held goes back within a second of their end, although closing them is little work.
const SECONDS_AT_REST: u32 = 10;
/// Processor time in a second, of all threads, that is hardly anything. A member of an idle cluster uses 1 ms.
const HARDLY_ANYTHING: Duration = Duration::from_millis(4);

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
        let (mut used, mut quiet) = (processor_time(), 0);
        loop {
            std::thread::sleep(EVERY);
            let now = processor_time();
            quiet = seconds_quiet(quiet, now.saturating_sub(used));
            if is_time(quiet) {
                give_back();
            }
            used = now;
        }
    };
    std::thread::Builder::new().name("memory".into()).spawn(beside).map(drop)
}

/// How many seconds in a row the process has hardly done anything, after another one of which it used so much.
fn seconds_quiet(before: u32, used: Duration) -> u32 {
    if used < HARDLY_ANYTHING { before.saturating_add(1) } else { 0 }
}

/// Whether free memory goes back after so many quiet seconds.
fn is_time(quiet: u32) -> bool {
    quiet < SECONDS_AT_REST || quiet.is_multiple_of(SECONDS_AT_REST)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_back_every_second_until_ten_were_quiet_and_then_every_tenth() {
        let busy = std::iter::once(HARDLY_ANYTHING);
        let seconds = busy.chain(std::iter::repeat_n(Duration::from_millis(1), 30)).chain([HARDLY_ANYTHING]);
        let quiet = seconds.scan(7, |quiet, used| {
            *quiet = seconds_quiet(*quiet, used);
            Some(*quiet)
        });
        let times: Vec<usize> =
            quiet.enumerate().filter(|&(_, quiet)| is_time(quiet)).map(|(second, _)| second).collect();
        assert_eq!(times, [(0..=10).collect(), vec![20, 30, 31]].concat());
    }
}
