//! Processors: members that share fewer than the machine has.
//!
//! Knows nothing of: why.

use super::BenchCluster;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

impl BenchCluster {
    /// Lets all threads of all members run on so many processors, the first ones that this process may use; on all of these without a
    /// number. A thread that begins later has those of the thread that began it.
    pub(super) fn confine(&mut self, count: Option<usize>) -> Result<(), String> {
        // A member that was started again has all of them, whatever the others have.
        if count.is_none() && self.processors_now.is_none() {
            return Ok(());
        }
        let ours = sched_getaffinity(None).map_err(|error| format!("processors: {error}"))?;
        let mut set = CpuSet::new();
        let all = (0..CpuSet::MAX_CPU).filter(|&processor| ours.is_set(processor));
        all.take(count.unwrap_or(usize::MAX)).for_each(|processor| set.set(processor));
        for process in self.processes() {
            let folder = format!("/proc/{process}/task");
            let threads = std::fs::read_dir(&folder).map_err(|error| format!("{folder}: {error}"))?;
            for thread in threads.flatten() {
                let id = thread.file_name().to_string_lossy().parse().ok().and_then(Pid::from_raw);
                let Some(id) = id else { continue };
                match sched_setaffinity(Some(id), &set) {
                    // It has ended meanwhile.
                    Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                    Err(error) => return Err(format!("processors of thread {id:?}: {error}")),
                }
            }
        }
        self.processors_now = count;
        Ok(())
    }
}
