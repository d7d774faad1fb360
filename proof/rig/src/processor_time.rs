//! Processor time of processes, as exactly as the kernel tells it.
//!
//! The scheduler counts nanoseconds, but only for threads that still run; `/proc/PID/stat` counts hundredths of a second, and ended
//! threads, too. So what a process used between two moments is exact if no thread of it ended between them.
//! Knows nothing of: what the processes do.

use std::collections::BTreeMap;
use std::time::Duration;

/// The kernel's unit of processor time in `/proc/PID/stat`: USER_HZ. [proc_pid_stat(5)]
const TICKS_PER_S: u32 = 100;

/// Processor time of these processes together, in hundredths of a second. [proc_pid_stat(5): utime, stime]
pub fn processor_time(processes: &[u32]) -> Duration {
    processes.iter().map(|&process| in_ticks(process)).sum()
}

/// The processor time of one process up to a moment.
#[derive(Clone, Debug)]
pub struct Spent {
    ticks: Duration,
    /// The time of each thread that runs.
    threads: BTreeMap<u64, Duration>,
}

impl Spent {
    /// Up to now. A process that has ended and was not waited for still tells it.
    pub fn by(process: u32) -> Spent {
        Spent { ticks: in_ticks(process), threads: of_threads(process) }
    }

    /// All of it; in hundredths of a second if threads have ended or if the kernel does not count more exactly.
    pub fn total(&self) -> Duration {
        self.ticks.max(self.threads.values().sum())
    }

    /// What was used since an earlier moment. If a thread ended between, its time is known only in hundredths of a second:
    /// then this is the larger one of those and of what the other threads used.
    pub fn since(&self, earlier: &Spent) -> Duration {
        let of_thread = |(thread, now): (&u64, &Duration)| {
            now.saturating_sub(earlier.threads.get(thread).copied().unwrap_or_default())
        };
        let exact = self.threads.iter().map(of_thread).sum();
        match earlier.threads.keys().all(|thread| self.threads.contains_key(thread))
            && !self.threads.is_empty()
        {
            true => exact,
            false => exact.max(self.ticks.saturating_sub(earlier.ticks)),
        }
    }
}

fn in_ticks(process: u32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let after_name = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = after_name.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok());
    Duration::from_secs(ticks.sum()) / TICKS_PER_S
}

/// The first number of each thread's `schedstat`. [kernel sched-stats.rst]
fn of_threads(process: u32) -> BTreeMap<u64, Duration> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let time = |thread: std::fs::DirEntry| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        let nanos = text.split_whitespace().next()?.parse().ok()?;
        Some((thread.file_name().to_str()?.parse().ok()?, Duration::from_nanos(nanos)))
    };
    threads.filter_map(time).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_process_that_works_has_used_time() {
        let own = std::process::id();
        let before = Spent::by(own);
        let begun = Instant::now();
        let mut turns = 0_u64;
        while Spent::by(own).since(&before) < Duration::from_millis(30) {
            assert!(begun.elapsed() < Duration::from_secs(20), "{turns} turns and no processor time");
            turns = std::hint::black_box(turns + 1);
        }
        assert!(Duration::ZERO < Spent::by(own).total());
        assert_eq!(processor_time(&[]), Duration::ZERO);
    }

    #[test]
    fn time_is_exact_unless_a_thread_has_ended() {
        let (ms, us) = (Duration::from_millis, Duration::from_micros);
        let spent = |ticks, threads: &[(u64, u64)]| Spent {
            ticks: ms(ticks),
            threads: threads.iter().map(|(thread, micros)| (*thread, us(*micros))).collect(),
        };
        let before = spent(50, &[(1, 20_400), (2, 700)]);
        assert_eq!(spent(60, &[(1, 25_500), (2, 700), (3, 40)]).since(&before), us(5140));
        assert_eq!(
            spent(70, &[(1, 25_500)]).since(&before),
            ms(20),
            "thread 2 ended, and its time is unknown"
        );
        assert_eq!(spent(50, &[(1, 25_500)]).since(&before), us(5100), "thread 2 used next to nothing");
        assert_eq!(spent(70, &[]).since(&before), ms(20), "the kernel counts no nanoseconds");
        assert_eq!((before.total(), spent(10, &[(1, 20_400)]).total()), (ms(50), us(20_400)));
    }
}
