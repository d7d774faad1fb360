//! Room for growth: log space, the disk's watermark, the store's quota. [fault-model §10, F12, ST15]
//!
//! The store is in memory, so its size is a limit of its own: the quota. It counts what is held, history included; while a
//! copy of the tables is held (a snapshot, a backup), what the whole process holds, because nobody counts what is held twice.
//! And the machine has others to serve, other members perhaps: growth is refused while the system itself is short of memory.
//! All of it is decided before a proposal exists anywhere.
//! Knows nothing of: who is refused.

use crate::disk::LogRoom;
use kattu_node::contract::Space;
use kattu_raft::{Duration, Instant};
use std::path::PathBuf;

/// How often the disk is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Free bytes below which growth is refused, unless 5 % of the disk is less.
const DISK_FREE_MIN: u64 = 1 << 30;

/// Bytes of memory that the system keeps free, unless 5 % of it is less: below, growth is refused.
const MEMORY_FREE_MIN: u64 = 512 << 20;

/// What limits growth, and whether it does.
pub(crate) struct Room {
    data_dir: PathBuf,
    /// Bytes the store may hold.
    store_max: u64,
    space: Space,
    store_bytes: u64,
    /// A copy of the tables is held.
    pinned: bool,
    /// Bytes the process holds, while a copy is held; 0 otherwise.
    process_bytes: u64,
    memory_short: bool,
    disk_short: bool,
    log_full: bool,
    looked_at: Option<Instant>,
}

impl Room {
    /// `quota` 0 means the one that fits this machine.
    pub(crate) fn new(data_dir: PathBuf, quota: u64) -> Room {
        let store_max = if quota > 0 { quota } else { default_quota() };
        let space = Space { log_bytes: 0, short: false };
        Room {
            data_dir,
            store_max,
            space,
            store_bytes: 0,
            pinned: false,
            process_bytes: 0,
            memory_short: false,
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
        let held = self.store_bytes.max(self.process_bytes);
        self.log_full || self.disk_short || self.memory_short || self.store_max <= held
    }

    /// The store's size has changed. `pinned`: a copy of it is held.
    pub(crate) fn store_is_now(&mut self, store_bytes: u64, pinned: bool) {
        (self.store_bytes, self.pinned) = (store_bytes, pinned);
    }

    /// Looks again, once in a while; the space if it has changed.
    pub(crate) fn look(&mut self, now: Instant) -> Option<Space> {
        let due = self.looked_at.is_none_or(|at| now.since(at) >= LOOK_EVERY);
        if due {
            self.looked_at = Some(now);
            self.disk_short = disk_is_short(&self.data_dir);
            self.memory_short = memory_is_short();
            self.process_bytes = if self.pinned { process_bytes() } else { 0 };
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

/// The quota of a member that is given none: half of the machine's memory, or of its control group's. The other half is for
/// what is held twice while a snapshot is made, for clients, and for whoever else is on the machine.
#[must_use]
pub fn default_quota() -> u64 {
    memory_limit() / 2
}

/// Bytes of memory of this machine, or of the control group if that is less.
#[must_use]
pub fn memory_limit() -> u64 {
    let machine = kib_of("/proc/meminfo", "MemTotal:").unwrap_or(u64::MAX / 4);
    machine.min(group_limit().unwrap_or(u64::MAX))
}

/// Whether the system has so little memory left that whoever grows may be killed.
fn memory_is_short() -> bool {
    let watermark = memory_limit() / 20;
    let available = kib_of("/proc/meminfo", "MemAvailable:").unwrap_or(u64::MAX);
    let left_in_group = group_limit().zip(group_held()).map(|(limit, held)| limit.saturating_sub(held));
    available.min(left_in_group.unwrap_or(u64::MAX)) < watermark.min(MEMORY_FREE_MIN)
}

/// What the process holds for itself, not of files.
fn process_bytes() -> u64 {
    kib_of("/proc/self/status", "RssAnon:").unwrap_or(0)
}

/// A number of kibibytes from one of the kernel's tables, in bytes.
fn kib_of(table: &str, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(table).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

/// The limit of the control group, if it has one that can be read.
fn group_limit() -> Option<u64> {
    let limits = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    limits.iter().filter_map(|path| number_in(path)).min()
}

/// What the control group holds that cannot be dropped: without the pages of files that nobody uses.
fn group_held() -> Option<u64> {
    let held = ["/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory/memory.usage_in_bytes"];
    let held = held.iter().find_map(|path| number_in(path))?;
    let tables = ["/sys/fs/cgroup/memory.stat", "/sys/fs/cgroup/memory/memory.stat"];
    let text = tables.iter().find_map(|path| std::fs::read_to_string(path).ok())?;
    let idle = text.lines().find_map(|line| line.strip_prefix("inactive_file "))?.trim().parse().ok()?;
    Some(held.saturating_sub(idle))
}

fn number_in(path: &str) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(quota: u64) -> Room {
        Room::new(std::env::temp_dir(), quota)
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
    }

    #[test]
    fn while_a_copy_is_held_the_quota_counts_what_the_process_holds() {
        let mut room = room(1 << 12); // no process holds so little
        room.store_is_now(1, true);
        let _ = room.look(Instant(1));
        assert!(room.is_short(), "the process holds {} bytes", room.process_bytes);
        room.store_is_now(1, false);
        let _ = room.look(Instant(1) + LOOK_EVERY);
        assert_eq!(room.process_bytes, 0);
    }

    #[test]
    fn a_member_without_a_quota_takes_half_of_the_machine() {
        let machine = kib_of("/proc/meminfo", "MemTotal:").expect("a kernel that tells");
        assert!(0 < default_quota() && default_quota() <= machine / 2);
        assert_eq!(room(0).store_max, default_quota());
    }
}
