//! Processors: the first is for members under test, the others are for clients; measures how long a process waited for one.
//!
//! Knows nothing of: members, clients.

pub use kattu_rig::processor_time::processor_time;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Sampling interval of [`Waiting`].
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// This thread and the processes that it starts share the first processor, until it calls [`on_other_cores`].
pub(crate) fn on_one_core() {
    let mut processors = rustix::thread::CpuSet::new();
    processors.set(0);
    rustix::thread::sched_setaffinity(None, &processors).expect("the first processor may be used");
}

/// This thread, and all that it starts from now on, leave the first processor, if there is another.
pub(crate) fn on_other_cores() {
    let mut processors = rustix::thread::CpuSet::new();
    for number in 1..cores() {
        processors.set(number);
    }
    if 0 < processors.count() {
        rustix::thread::sched_setaffinity(None, &processors).expect("the other processors may be used");
    }
}

/// Processors of this machine, also those that this thread may not use.
fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| {
        let online = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        online.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu ")).count().max(1)
    })
}

/// How long a process waits for a processor: every few milliseconds it samples whether one of its threads wants to run,
/// and subtracts the process's processor time. The kernel's own number is more exact, but not every kernel has it.
/// [proc_pid_stat(5): state]
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    process: u32,
    had: Duration,
}

impl Waiting {
    /// Starts now.
    pub fn of(process: u32) -> Waiting {
        Waiting { process, had: processor_time(&[process]) }
    }

    /// Sleeps for so long; returns how long the process has waited for a processor since the last call.
    pub fn during(&mut self, sleep: Duration) -> Duration {
        let begun = Instant::now();
        let (mut looks, mut wanted) = (0, 0);
        while begun.elapsed() < sleep {
            std::thread::sleep(LOOK_EVERY);
            looks += 1;
            wanted += u32::from(wants_to_run(self.process));
        }
        let has = processor_time(&[self.process]);
        let had = has.saturating_sub(std::mem::replace(&mut self.had, has));
        (begun.elapsed() * wanted / looks.max(1)).saturating_sub(had)
    }
}

/// Whether one of its threads runs or wants to run.
fn wants_to_run(process: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    threads.into_iter().any(|thread| {
        let text = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        text.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('R'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    struct Program(Child);

    impl Program {
        fn start(name: &str, words: &[&str]) -> Program {
            Program(Command::new(name).args(words).spawn().expect("it is on every machine"))
        }
    }

    impl Drop for Program {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_process_that_wants_to_run_beside_others_waits_and_one_that_sleeps_does_not() {
        // Four on one processor: each of them waits for three quarters of the time.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                on_one_core();
                let busy: Vec<Program> =
                    (0..4).map(|_| Program::start("sh", &["-c", "while :; do :; done"])).collect();
                let idle = Program::start("sleep", &["1000"]);
                let span = Duration::from_millis(500);
                let asked = busy[0].0.id();
                assert!(span / 4 < Waiting::of(asked).during(span));
                kattu_rig::until("it sleeps", || (!wants_to_run(idle.0.id())).then_some(()));
                assert!(Waiting::of(idle.0.id()).during(span) < span / 10);
            });
        });
    }
}
