//! Processor time of processes, as exactly as the kernel tells it.
//!
//! Knows nothing of: what the processes do.

use std::time::Duration;

/// The kernel's unit of processor time in `/proc/PID/stat`: USER_HZ. [proc_pid_stat(5)]
const TICKS_PER_S: u32 = 100;

/// Processor time of these processes together.
///
/// The scheduler counts nanoseconds, but only for threads that still run; `/proc/PID/stat` counts hundredths of a second, and
/// ended threads, too. The larger number of the two is the better one: the second is never above the truth. A kernel without the
/// first gives hundredths.
pub fn processor_time(processes: &[u32]) -> Duration {
    processes.iter().map(|&process| of_threads(process).max(in_ticks(process))).sum()
}

/// [proc_pid_stat(5): utime, stime]
fn in_ticks(process: u32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let after_name = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = after_name.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok());
    Duration::from_secs(ticks.sum()) / TICKS_PER_S
}

/// The first number of each thread's `schedstat`. [kernel sched-stats.rst]
fn of_threads(process: u32) -> Duration {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let nanos = threads.filter_map(|thread| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanos.sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_process_that_works_has_used_at_most_its_threads_time() {
        let own = [std::process::id()];
        let before = processor_time(&own);
        let begun = Instant::now();
        let mut turns = 0_u64;
        while processor_time(&own) < before + Duration::from_millis(30) {
            assert!(begun.elapsed() < Duration::from_secs(20), "{turns} turns and no processor time");
            turns = std::hint::black_box(turns + 1);
        }
        assert_eq!(processor_time(&[]), Duration::ZERO);
    }
}
