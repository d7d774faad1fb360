//! Capacity: log space, the disk's watermark, the store's quota, and whether growth is refused for them. [fault-model §10, F12,
//! ST15]
//!
//! The store is in memory, so its size has a limit of its own: the quota. It counts what is held, history included; while a copy
//! of the tables is held (a snapshot, a backup), what the whole process holds, because no counter knows what is held twice. All
//! members hold the same, and a follower cannot refuse what its leader has admitted: so the least quota of all members applies.
//! And the machine has others to serve, other members perhaps: growth is refused while the system itself is short of memory. All
//! of it is decided before a proposal exists anywhere.
//! Knows nothing of: requests, clients, how the machine is looked at.

use crate::log::LogSpace;
use kattu_node::contract::Space;

/// The state of the machine, as it was last seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sight {
    /// The disk has less free space than its watermark.
    pub disk_short: bool,
    /// The system has so little memory left that a process that grows may be killed.
    pub memory_short: bool,
    /// Bytes the process holds, while a copy of the tables is held; 0 otherwise.
    pub process_bytes: u64,
}

/// What limits growth, and whether it does.
#[derive(Clone, Debug)]
pub struct Capacity {
    /// Bytes the store may hold.
    store_max: u64,
    /// The least quota of the other members, in bytes, if one is known.
    others_max: Option<u64>,
    sight: Sight,
    space: Space,
    store_bytes: u64,
    /// A copy of the store is held.
    is_pinned: bool,
    log_full: bool,
}

impl Capacity {
    /// `quota`: bytes that the store may hold.
    #[must_use]
    pub fn new(quota: u64) -> Capacity {
        Capacity {
            store_max: quota,
            others_max: None,
            sight: Sight::default(),
            space: Space { log_bytes: 0, short: false },
            store_bytes: 0,
            is_pinned: false,
            log_full: false,
        }
    }

    /// Another quota from now on.
    pub(crate) fn limit(&mut self, quota: u64) {
        self.store_max = quota;
    }

    /// Bytes that this member's store may hold.
    #[must_use]
    pub fn quota(&self) -> u64 {
        self.store_max
    }

    /// Bytes that the stores of all members may hold: the least quota.
    #[must_use]
    pub fn ruling_quota(&self) -> u64 {
        self.others_max.map_or(self.store_max, |most| most.min(self.store_max))
    }

    /// The space as the replica was last told.
    #[must_use]
    pub fn space(&self) -> Space {
        self.space
    }

    /// The log's space has changed.
    pub(crate) fn log_is_now(&mut self, room: LogSpace) -> Space {
        self.log_full = room.full;
        self.space = Space { log_bytes: room.free, short: self.is_short() };
        self.space
    }

    /// The store's size has changed. `pinned`: a copy of it is held.
    pub(crate) fn store_is_now(&mut self, store_bytes: u64, pinned: bool) {
        (self.store_bytes, self.is_pinned) = (store_bytes, pinned);
    }

    /// Whether a copy of the store is held: then the bytes of the process have to be looked at.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        self.is_pinned
    }

    /// The space, if growth is refused now and was not before, or the other way round. `others_max`: the least quota of the
    /// others.
    pub fn look(&mut self, sight: Sight, others_max: Option<u64>) -> Option<Space> {
        (self.sight, self.others_max) = (sight, others_max);
        let short = self.is_short();
        let was_short = std::mem::replace(&mut self.space.short, short);
        (short != was_short).then_some(self.space)
    }

    fn is_short(&self) -> bool {
        let Sight { disk_short, memory_short, process_bytes } = self.sight;
        let held = self.store_bytes.max(process_bytes);
        let others_full = self.others_max.is_some_and(|most| most <= self.store_bytes);
        self.log_full || disk_short || memory_short || self.store_max <= held || others_full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: LogSpace = LogSpace { free: 7, full: false };

    #[test]
    fn growth_ends_at_the_quota_and_not_before() {
        let mut capacity = Capacity::new(1000);
        for (held, is_short) in [(999, false), (1000, true), (999, false)] {
            capacity.store_is_now(held, false);
            assert_eq!(capacity.log_is_now(FREE), Space { log_bytes: 7, short: is_short }, "{held} bytes");
        }
        for (others, is_short) in [(Some(999), Some(true)), (Some(1000), Some(false)), (None, None)] {
            let looked = capacity.look(Sight::default(), others).map(|space| space.short);
            assert_eq!(looked, is_short, "the others hold {others:?} at most");
        }
    }

    #[test]
    fn the_least_quota_of_all_members_rules() {
        let mut capacity = Capacity::new(1000);
        assert_eq!(capacity.ruling_quota(), 1000);
        for (others, rules) in [(Some(999), 999), (Some(1001), 1000), (None, 1000)] {
            capacity.look(Sight::default(), others);
            assert_eq!((capacity.ruling_quota(), capacity.quota()), (rules, 1000), "{others:?}");
        }
    }

    #[test]
    fn a_machine_that_is_short_refuses_growth_until_it_is_not() {
        let mut capacity = Capacity::new(1000);
        capacity.log_is_now(FREE);
        for sight in [
            Sight { disk_short: true, ..Sight::default() },
            Sight { memory_short: true, ..Sight::default() },
            Sight { process_bytes: 1000, ..Sight::default() },
        ] {
            assert_eq!(capacity.look(sight, None), Some(Space { log_bytes: 7, short: true }), "{sight:?}");
            assert_eq!(capacity.look(sight, None), None, "no news");
            assert_eq!(capacity.look(Sight::default(), None), Some(Space { log_bytes: 7, short: false }));
        }
        assert!(capacity.log_is_now(LogSpace { free: 0, full: true }).short);
        assert_eq!(capacity.look(Sight::default(), None), None, "a full log is short whatever is seen");
        assert!(capacity.space().short);
    }
}
