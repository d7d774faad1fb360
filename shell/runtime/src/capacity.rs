//! Capacity: log space, the disk's watermark, the store's quota. [fault-model §10, F12, ST15]
//!
//! The store is in memory, so its size has a limit of its own: the quota. It counts what is held, history included;
//! while a copy of the tables is held (a snapshot, a backup), what the whole process holds, because no counter knows
//! what is held twice. All members hold the same, and a follower cannot refuse what its leader has admitted: so the
//! least quota of all members applies. And the machine has others to serve, other members perhaps: growth is refused
//! while the system itself is short of memory. All of it is decided before a proposal exists anywhere.
//!
//! A file system that hangs does not answer, and a system short of memory answers late: a lookout on a thread of its
//! own asks, and the owner of the node reads what it saw last. [fault-model F16]
//! Knows nothing of: requests, clients.

use crate::groups;
use kattu_member::log::LogSpace;
use kattu_node::contract::Space;
use kattu_raft::Duration;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};

/// How often the lookout looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Free bytes below which growth is refused, unless 5 % of the disk is less.
const DISK_FREE_MIN: u64 = 1 << 30;

/// Bytes of memory that the system keeps free, unless 5 % of it is less: below, growth is refused.
const MEMORY_FREE_MIN: u64 = 512 << 20;

/// What limits growth, and whether it does.
pub(crate) struct Capacity {
    lookout: Lookout,
    /// Bytes the store may hold.
    store_max: u64,
    /// The least quota of the other members, in bytes, if one is known.
    others_max: Option<u64>,
    space: Space,
    store_bytes: u64,
    log_full: bool,
}

impl Capacity {
    /// `quota` 0 means the default of this machine.
    ///
    /// # Errors
    /// No thread can be had for the lookout.
    pub(crate) fn start(data_dir: PathBuf, quota: u64) -> std::io::Result<Capacity> {
        let store_max = if quota > 0 { quota } else { default_quota() };
        let lookout = Lookout::start(LOOK_EVERY, move |pinned| Sight {
            disk_short: disk_is_short(&data_dir),
            memory_short: memory_is_short(),
            process_bytes: if pinned { process_bytes() } else { 0 },
        })?;
        Ok(Capacity::seen_by(lookout, store_max))
    }

    fn seen_by(lookout: Lookout, store_max: u64) -> Capacity {
        let space = Space { log_bytes: 0, short: false };
        Capacity { lookout, store_max, others_max: None, space, store_bytes: 0, log_full: false }
    }

    /// Bytes that the store may hold.
    pub(crate) fn quota(&self) -> u64 {
        self.store_max
    }

    /// Bytes that the stores of all members may hold: the least quota.
    pub(crate) fn ruling_quota(&self) -> u64 {
        self.others_max.map_or(self.store_max, |most| most.min(self.store_max))
    }

    /// The log's space has changed.
    pub(crate) fn log_is_now(&mut self, room: LogSpace) -> Space {
        self.space.log_bytes = room.free;
        self.log_full = room.full;
        self.space.short = self.is_short();
        self.space
    }

    fn is_short(&self) -> bool {
        let seen = self.lookout.last();
        let held = self.store_bytes.max(seen.process_bytes);
        let others_full = self.others_max.is_some_and(|most| most <= self.store_bytes);
        self.log_full || seen.disk_short || seen.memory_short || self.store_max <= held || others_full
    }

    /// The store's size has changed. `pinned`: a copy of it is held.
    pub(crate) fn store_is_now(&mut self, store_bytes: u64, pinned: bool) {
        self.store_bytes = store_bytes;
        self.lookout.seen.pinned.store(pinned, Ordering::Relaxed);
    }

    /// The space if it has changed. It asks no other thread, and so never waits. `others_max`: the least quota of the
    /// others.
    pub(crate) fn look(&mut self, others_max: Option<u64>) -> Option<Space> {
        self.others_max = others_max;
        let short = self.is_short();
        let changed = short != self.space.short;
        self.space.short = short;
        changed.then_some(self.space)
    }
}

/// The state of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sight {
    disk_short: bool,
    memory_short: bool,
    /// Bytes the process holds, while a copy of the tables is held; 0 otherwise.
    process_bytes: u64,
}

/// What the lookout saw last; all false until its first look.
#[derive(Debug, Default)]
struct Seen {
    /// A copy of the tables is held: the lookout has to count what the process holds.
    pinned: AtomicBool,
    disk_short: AtomicBool,
    memory_short: AtomicBool,
    process_bytes: AtomicU64,
}

/// A thread that looks at the machine now and then. Dropped, it ends with its next look; the drop does not wait for
/// that, since a look may never end.
struct Lookout {
    seen: Arc<Seen>,
    _end: mpsc::Sender<()>,
}

impl Lookout {
    /// `look` is told whether a copy of the tables is held.
    fn start(
        every: Duration,
        mut look: impl FnMut(bool) -> Sight + Send + 'static,
    ) -> std::io::Result<Lookout> {
        let seen = Arc::new(Seen::default());
        let (end, ended) = mpsc::channel::<()>();
        let shared = seen.clone();
        let work = move || {
            loop {
                let sight = look(shared.pinned.load(Ordering::Relaxed));
                shared.disk_short.store(sight.disk_short, Ordering::Relaxed);
                shared.memory_short.store(sight.memory_short, Ordering::Relaxed);
                shared.process_bytes.store(sight.process_bytes, Ordering::Relaxed);
                if ended.recv_timeout(every) != Err(mpsc::RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("kattu-lookout".into()).spawn(work)?;
        Ok(Lookout { seen, _end: end })
    }

    fn last(&self) -> Sight {
        Sight {
            disk_short: self.seen.disk_short.load(Ordering::Relaxed),
            memory_short: self.seen.memory_short.load(Ordering::Relaxed),
            process_bytes: self.seen.process_bytes.load(Ordering::Relaxed),
        }
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
    kib_of("/proc/meminfo", "MemTotal:").unwrap_or(u64::MAX / 4)
}

/// Whether the system has so little memory left that a process that grows may be killed.
fn memory_is_short() -> bool {
    let allowance = groups::of_this_process();
    let watermark = (machine_memory().min(allowance.limit) / 20).min(MEMORY_FREE_MIN);
    let available = kib_of("/proc/meminfo", "MemAvailable:").unwrap_or(u64::MAX);
    available.min(allowance.left) < watermark
}

/// The anonymous memory of the process, without pages of files.
fn process_bytes() -> u64 {
    kib_of("/proc/self/status", "RssAnon:").unwrap_or(0)
}

/// A number of kibibytes from one of the kernel's tables, in bytes.
fn kib_of(table: &str, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(table).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(quota: u64) -> Capacity {
        Capacity::start(std::env::temp_dir(), quota).expect("a thread")
    }

    /// Waits until a look at the room gives something.
    fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let end = std::time::Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(std::time::Instant::now() < end, "still not: {what}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn growth_ends_at_the_quota_and_not_before() {
        let mut room = room(1000);
        room.store_is_now(999, false);
        assert!(!room.is_short());
        room.store_is_now(1000, false);
        assert!(room.is_short());
        room.store_is_now(999, false);
        assert!(!room.is_short(), "by itself, when there is room again");
        for (others, short) in [(Some(999), true), (Some(1000), false), (None, false)] {
            room.look(others);
            assert_eq!(room.is_short(), short, "the others hold {others:?} at most");
        }
    }

    #[test]
    fn while_a_copy_is_held_the_quota_counts_what_the_process_holds() {
        let mut room = room(1 << 12); // no process holds so little
        room.store_is_now(1, true);
        assert!(until("the process is counted", || room.look(None)).short);
        room.store_is_now(1, false);
        assert!(!until("the process is not counted", || room.look(None)).short);
        assert_eq!(room.lookout.last().process_bytes, 0);
    }

    /// Goal: a file system that hangs holds up only the lookout, and its late answer counts.
    #[test]
    fn a_file_system_that_hangs_holds_up_nobody() {
        let (answer, answers) = mpsc::channel();
        let (asked, questions) = mpsc::channel();
        let hung = move |_| {
            let _ = asked.send(std::thread::current().id());
            // An owner that asks by itself never gets to the line below that answers.
            answers.recv_timeout(Duration::from_secs(20)).unwrap_or_default()
        };
        let lookout = Lookout::start(Duration::from_millis(1), hung).expect("a thread");
        let mut room = Capacity::seen_by(lookout, 1000);
        let who = questions.recv_timeout(Duration::from_secs(20)).expect("the lookout looks");
        assert_ne!(who, std::thread::current().id(), "the owner itself waits for the disk");
        assert_eq!(room.look(None), None, "nothing has been seen yet");
        assert!(!room.log_is_now(LogSpace { free: 7, full: false }).short);
        for sight in [
            Sight { disk_short: true, ..Sight::default() },
            Sight { memory_short: true, ..Sight::default() },
            Sight { process_bytes: 1000, ..Sight::default() },
        ] {
            answer.send(sight).expect("the question is open");
            assert!(until("the answer counts", || room.look(None)).short, "{sight:?}");
            answer.send(Sight::default()).expect("it asks again");
            assert!(!until("the next one counts", || room.look(None)).short, "{sight:?}");
        }
    }

    #[test]
    fn a_member_without_a_quota_takes_half_of_the_machine() {
        let machine = kib_of("/proc/meminfo", "MemTotal:").expect("a kernel that tells");
        assert!(0 < default_quota() && default_quota() <= machine / 2);
        assert_eq!(room(0).store_max, default_quota());
    }
}
