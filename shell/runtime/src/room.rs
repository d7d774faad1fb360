//! Room for growth: log space, the disk's watermark, the store's quota. [fault-model §10, F12, ST15]
//!
//! The store is in memory, so its size is a limit of its own: the quota if one is given, else three quarters of the
//! machine's memory. All of it is decided before a proposal exists anywhere.
//! Knows nothing of: who is refused.

use crate::disk::LogRoom;
use kattu_node::contract::Space;
use kattu_raft::{Duration, Instant};
use std::path::PathBuf;

/// How often the disk is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Free bytes below which growth is refused, unless 5 % of the disk is less.
const DISK_FREE_MIN: u64 = 1 << 30;

/// What limits growth, and whether it does.
pub(crate) struct Room {
    data_dir: PathBuf,
    /// Bytes the store may hold.
    store_max: u64,
    space: Space,
    store_bytes: u64,
    disk_short: bool,
    log_full: bool,
    looked_at: Option<Instant>,
}

impl Room {
    /// `quota` 0 means no quota beyond the machine's memory.
    pub(crate) fn new(data_dir: PathBuf, quota: u64) -> Room {
        let store_max = if quota > 0 { quota } else { memory_limit() / 4 * 3 };
        let space = Space { log_bytes: 0, short: false };
        Room {
            data_dir,
            store_max,
            space,
            store_bytes: 0,
            disk_short: false,
            log_full: false,
            looked_at: None,
        }
    }

    /// The log's room has changed.
    pub(crate) fn log_is_now(&mut self, room: LogRoom) -> Space {
        self.space.log_bytes = room.free;
        self.log_full = room.full;
        self.space.short = self.is_short();
        self.space
    }

    fn is_short(&self) -> bool {
        self.log_full || self.disk_short || self.store_bytes >= self.store_max
    }

    /// The store's size has changed.
    pub(crate) fn store_is_now(&mut self, store_bytes: u64) {
        self.store_bytes = store_bytes;
    }

    /// Looks again, once in a while; the space if it has changed.
    pub(crate) fn look(&mut self, now: Instant) -> Option<Space> {
        let due = self.looked_at.is_none_or(|at| now.since(at) >= LOOK_EVERY);
        if due {
            self.looked_at = Some(now);
            self.disk_short = disk_is_short(&self.data_dir);
        }
        let short = self.is_short();
        let changed = short != self.space.short;
        self.space.short = short;
        changed.then_some(self.space)
    }
}

fn disk_is_short(data_dir: &PathBuf) -> bool {
    match rustix::fs::statvfs(data_dir) {
        Ok(disk) => {
            let free = disk.f_bavail * disk.f_frsize;
            let watermark = (disk.f_blocks * disk.f_frsize / 20).min(DISK_FREE_MIN);
            free < watermark
        }
        Err(_) => false, // a disk that cannot be asked will be noticed by the log
    }
}

/// Bytes of memory of this machine, or of the control group if that is less.
fn memory_limit() -> u64 {
    let machine = std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("MemTotal:"))?.to_string();
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        })
        .map_or(u64::MAX / 4, |kib| kib * 1024);
    let group = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        .iter()
        .filter_map(|path| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok())
        .min();
    machine.min(group.unwrap_or(u64::MAX))
}
