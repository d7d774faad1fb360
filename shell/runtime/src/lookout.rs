//! Lookout: looks at the machine for [`kattu_member::capacity`].
//!
//! A file system that hangs does not answer, and a system short of memory answers late: a lookout on a thread of its
//! own asks, and the owner of the node reads what it saw last. [fault-model F16]
//! Knows nothing of: what is refused for it.

use crate::groups;
use kattu_member::capacity::Sight;
use kattu_raft::{Duration, LogIndex};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};

/// How often the lookout looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Looks of which it takes one while nothing is committed: they are a part of what an idle member costs.
const LOOKS_AT_REST: u32 = 10;
/// Free bytes below which growth is refused, unless 5 % of the disk is less.
const DISK_FREE_MIN: u64 = 1 << 30;

/// Bytes of memory that the system keeps free, unless 5 % of it is less: below, growth is refused.
const MEMORY_FREE_MIN: u64 = 512 << 20;

/// What the lookout saw last; all false until its first look.
#[derive(Debug, Default)]
struct Seen {
    /// A copy of the tables is held: the lookout has to count what the process holds.
    pinned: AtomicBool,
    /// Index up to which entries are committed.
    committed: AtomicU64,
    disk_short: AtomicBool,
    memory_short: AtomicBool,
    process_bytes: AtomicU64,
}

/// A thread that looks at the machine now and then. Dropped, it ends with its next look; the drop does not wait for
/// that, since a look may never end.
pub(crate) struct Lookout {
    seen: Arc<Seen>,
    _end: mpsc::Sender<()>,
}

impl Lookout {
    /// Looks at the machine, and at the disk of this directory.
    ///
    /// # Errors
    /// No thread can be had.
    pub(crate) fn of(data_dir: PathBuf) -> std::io::Result<Lookout> {
        Lookout::start(LOOK_EVERY, move |pinned| Sight {
            disk_short: disk_is_short(&data_dir),
            memory_short: memory_is_short(),
            process_bytes: if pinned { process_bytes() } else { 0 },
        })
    }

    /// `look` is told whether a copy of the tables is held.
    fn start(
        every: Duration,
        mut look: impl FnMut(bool) -> Sight + Send + 'static,
    ) -> std::io::Result<Lookout> {
        let seen = Arc::new(Seen::default());
        let (end, ended) = mpsc::channel::<()>();
        let shared = seen.clone();
        let work = move || {
            let mut rest = Rest::new();
            loop {
                let pinned = shared.pinned.load(Ordering::Relaxed);
                if !rest.skips(pinned, shared.committed.load(Ordering::Relaxed)) {
                    let sight = look(pinned);
                    rest.saw(sight);
                    shared.disk_short.store(sight.disk_short, Ordering::Relaxed);
                    shared.memory_short.store(sight.memory_short, Ordering::Relaxed);
                    shared.process_bytes.store(sight.process_bytes, Ordering::Relaxed);
                }
                if ended.recv_timeout(every) != Err(mpsc::RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("kattu-lookout".into()).spawn(work)?;
        Ok(Lookout { seen, _end: end })
    }

    /// Tells whether the bytes of the process count, because a copy of the tables is held, and how much is committed.
    pub(crate) fn tell(&self, counts_process: bool, committed: LogIndex) {
        self.seen.pinned.store(counts_process, Ordering::Relaxed);
        self.seen.committed.store(committed.0, Ordering::Relaxed);
    }

    /// What was seen last. It asks no other thread, and so never waits.
    pub(crate) fn last(&self) -> Sight {
        Sight {
            disk_short: self.seen.disk_short.load(Ordering::Relaxed),
            memory_short: self.seen.memory_short.load(Ordering::Relaxed),
            process_bytes: self.seen.process_bytes.load(Ordering::Relaxed),
        }
    }
}

/// Which looks are left out: a member at rest does not grow, and what other processes do can wait a little, unless the
/// last look gave a reason to refuse growth.
#[derive(Debug)]
struct Rest {
    committed: u64,
    skipped: u32,
    sees_need: bool,
}

impl Rest {
    /// Before the first look, which is not left out.
    fn new() -> Rest {
        Rest { committed: u64::MAX, skipped: 0, sees_need: false }
    }

    fn skips(&mut self, pinned: bool, committed: u64) -> bool {
        let is_at_rest = std::mem::replace(&mut self.committed, committed) == committed;
        let skips = is_at_rest && !pinned && !self.sees_need && self.skipped < LOOKS_AT_REST - 1;
        self.skipped = if skips { self.skipped + 1 } else { 0 };
        skips
    }

    fn saw(&mut self, sight: Sight) {
        self.sees_need = sight != Sight::default();
    }
}

fn disk_is_short(data_dir: &Path) -> bool {
    match rustix::fs::statvfs(data_dir) {
        Ok(disk) => {
            let free = disk.f_bavail * disk.f_frsize;
            let watermark = (disk.f_blocks * disk.f_frsize / 20).min(DISK_FREE_MIN);
            free < watermark
        }
        Err(_) => false, // the log will notice such a disk
    }
}

/// The quota of a member without a configured one: half of [`memory_limit`]. The other half is for what is held twice
/// while a snapshot is made, for clients, and for other processes on the machine.
#[must_use]
pub fn default_quota() -> u64 {
    memory_limit() / 2
}

/// Bytes of memory of this machine, or of what the control groups of this process leave to it if that is less.
#[must_use]
pub fn memory_limit() -> u64 {
    machine_memory().min(groups::of_this_process().limit)
}

fn machine_memory() -> u64 {
    total_in(&table(MEMORY))
}

/// The kernel's table of the machine's memory.
const MEMORY: &str = "/proc/meminfo";

fn total_in(memory: &str) -> u64 {
    kib_in(memory, "MemTotal:").unwrap_or(u64::MAX / 4)
}

/// Whether the system has so little memory left that a process that grows may be killed.
fn memory_is_short() -> bool {
    let (allowance, memory) = (groups::of_this_process(), table(MEMORY));
    let watermark = (total_in(&memory).min(allowance.limit) / 20).min(MEMORY_FREE_MIN);
    let available = kib_in(&memory, "MemAvailable:").unwrap_or(u64::MAX);
    available.min(allowance.left) < watermark
}

/// The anonymous memory of the process, without pages of files.
fn process_bytes() -> u64 {
    kib_in(&table("/proc/self/status"), "RssAnon:").unwrap_or(0)
}

/// One of the kernel's tables; empty if it cannot be read.
fn table(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// A number of kibibytes from such a table, in bytes.
fn kib_in(table: &str, name: &str) -> Option<u64> {
    let line = table.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits until a look gives something.
    fn until(what: &str, look: impl Fn() -> bool) {
        let end = std::time::Instant::now() + Duration::from_secs(20);
        while !look() {
            assert!(std::time::Instant::now() < end, "still not: {what}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn while_a_copy_is_held_the_process_is_counted() {
        let sight =
            |pinned| Sight { process_bytes: if pinned { process_bytes() } else { 0 }, ..Sight::default() };
        let lookout = Lookout::start(Duration::from_millis(1), sight).expect("a thread");
        assert_eq!(lookout.last(), Sight::default());
        lookout.tell(true, LogIndex(1));
        until("the process is counted", || lookout.last().process_bytes > 1 << 12); // no process holds so little
        lookout.tell(false, LogIndex(1));
        until("the process is not counted", || lookout.last().process_bytes == 0);
    }

    #[test]
    fn a_member_at_rest_is_looked_at_now_and_then() {
        let mut rest = Rest::new();
        let mut looks = |pinned, committed, sight| {
            let looks = (0..20).filter(|_| {
                let looks = !rest.skips(pinned, committed);
                if looks {
                    rest.saw(sight);
                }
                looks
            });
            looks.count()
        };
        assert_eq!(looks(false, 7, Sight::default()), 2, "once at the commit, once at rest");
        assert_eq!(looks(true, 7, Sight::default()), 20, "a copy of the tables is held");
        assert_eq!(
            looks(false, 7, Sight { disk_short: true, ..Sight::default() }),
            11,
            "from the first short one on"
        );
        assert_eq!(looks(false, 7, Sight::default()), 2);
    }

    /// Goal: a file system that hangs holds up only the lookout, and its late answer counts.
    #[test]
    fn a_file_system_that_hangs_holds_up_only_the_lookout() {
        let (answer, answers) = mpsc::channel();
        let (asked, questions) = mpsc::channel();
        let hung = move |_| {
            let _ = asked.send(std::thread::current().id());
            // An owner that asks by itself never gets to the line below that answers.
            answers.recv_timeout(Duration::from_secs(20)).unwrap_or_default()
        };
        let lookout = Lookout::start(Duration::from_millis(1), hung).expect("a thread");
        let asker = questions.recv_timeout(Duration::from_secs(20)).expect("the lookout looks");
        assert_ne!(asker, std::thread::current().id(), "the owner itself waits for the disk");
        assert_eq!(lookout.last(), Sight::default(), "nothing has been seen yet");
        for sight in [
            Sight { disk_short: true, ..Sight::default() },
            Sight { memory_short: true, ..Sight::default() },
            Sight { process_bytes: 1000, ..Sight::default() },
        ] {
            answer.send(sight).expect("the question is open");
            until("the answer counts", || lookout.last() == sight);
            answer.send(Sight::default()).expect("it asks again");
            until("the next one counts", || lookout.last() == Sight::default());
        }
    }

    #[test]
    fn a_member_without_a_quota_takes_half_of_the_machine() {
        let machine = kib_in(&table(MEMORY), "MemTotal:").expect("a kernel that tells");
        assert!(0 < default_quota() && default_quota() <= machine / 2);
    }
}
