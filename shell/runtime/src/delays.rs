//! Delays: what experiments add to the work of a member, to see what it would cost. [`kattu_member::tuning::Delays`]
//!
//! Knows nothing of: who asks for them, when.

use kattu_member::tuning;
use kattu_node::Keeper;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The delays in force, for all threads of a member, in nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct Delays {
    apply: AtomicU64,
    sync: AtomicU64,
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Delays {
    pub(crate) fn set(&self, delays: tuning::Delays) {
        self.apply.store(nanos(delays.apply), Ordering::Relaxed);
        self.sync.store(nanos(delays.sync), Ordering::Relaxed);
    }

    /// Has the keeper do a step; each command that it applies costs so much processor time more.
    pub(crate) fn over_step(&self, keeper: &mut Keeper, step: impl FnOnce(&mut Keeper)) {
        let delay = self.apply.load(Ordering::Relaxed);
        if delay == 0 {
            return step(keeper);
        }
        let began = Instant::now();
        let before = keeper.store().revision().0;
        step(keeper);
        let commands = u64::try_from(keeper.store().revision().0 - before).unwrap_or(0);
        let until = began.elapsed() + Duration::from_nanos(delay.saturating_mul(commands));
        while began.elapsed() < until {
            std::hint::spin_loop();
        }
    }

    /// How much longer a sync takes.
    pub(crate) fn of_sync(&self) -> Duration {
        Duration::from_nanos(self.sync.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kattu_kv::api::{Command, Put};
    use kattu_node::command::encode_kv;
    use kattu_node::contract::{KeeperEffects, KeeperTask, Tickets};
    use kattu_raft::{EntryHead, EntryId, EntryKind, GroupId, Stamp, Term};

    /// Goal: an experiment's cost is the one that it names. Method: the delay is a lower bound, which no machine undercuts.
    #[test]
    fn each_applied_command_costs_its_delay_and_nothing_else_does() {
        let delays = Delays::default();
        let mut keeper = Keeper::new(vec![]);
        let mut apply = |index: u64| {
            let put = Command::Put(Put { key: b"k".to_vec(), value: b"v".to_vec(), ..Put::default() });
            let head = EntryHead { id: EntryId::new(1, index), kind: EntryKind::Command, stamp: Stamp(0) };
            let entry = kattu_wal::encoder().entry(GroupId(0), head, &encode_kv(&put));
            let task = KeeperTask::Apply { entry, tickets: Tickets::None, term: Term(1) };
            let began = Instant::now();
            let mut effects = KeeperEffects::default();
            keeper.take_in(task, &mut effects);
            delays.over_step(&mut keeper, |keeper| {
                keeper.step(&mut 100, &mut effects);
            });
            began.elapsed()
        };
        apply(1);
        let delay = Duration::from_millis(20);
        delays.set(tuning::Delays { apply: delay, sync: Duration::from_millis(3) });
        assert!(delay <= apply(2));
        assert_eq!(delays.of_sync(), Duration::from_millis(3));
    }
}
