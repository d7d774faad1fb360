//! Processors: the first is for whoever is judged, the others are for whoever asks; and how long a process had one.
//!
//! Knows nothing of: who they are.

use std::sync::OnceLock;
use std::time::Duration;

/// In which the kernel tells the time that a process had a processor: USER_HZ. [proc_pid_stat(5)]
const TICKS_PER_S: u32 = 100;

/// This thread and the processes that it starts share the first processor, until it says [`on_other_cores`].
pub fn on_one_core() {
    let mut processors = rustix::thread::CpuSet::new();
    processors.set(0);
    rustix::thread::sched_setaffinity(None, &processors).expect("the first processor may be used");
}

/// This thread, and all that it starts from now on, leave the first processor, if there is another.
pub fn on_other_cores() {
    let mut processors = rustix::thread::CpuSet::new();
    for number in 1..cores() {
        processors.set(number);
    }
    if 0 < processors.count() {
        rustix::thread::sched_setaffinity(None, &processors).expect("the other processors may be used");
    }
}

/// Processors of this machine, whichever of them this thread may use.
fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| {
        let online = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        online.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu ")).count().max(1)
    })
}

/// How long these processes have had a processor. [proc_pid_stat(5): utime, stime]
pub fn processor_time(processes: &[u32]) -> Duration {
    let ticks = |process: &u32| -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        let after_name = text.rsplit_once(')').map_or("", |(_, rest)| rest);
        after_name.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
    };
    Duration::from_secs(processes.iter().map(ticks).sum()) / TICKS_PER_S
}
