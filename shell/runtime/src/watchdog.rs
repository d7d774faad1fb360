//! Ends the process when a part of it hangs: its disk, its node, its keeper.
//!
//! When a sync does not return, a log on the driver's thread holds up everything else: the cluster elects another
//! leader after an election timeout, but this member's clients would hang on open connections. The same goes for a node
//! or a keeper that does not finish a batch. So a thread that does nothing else checks again and again what is under
//! way. [fault-model F04, F16]
//!
//! It judges progress, not time: a thread that works on many items one after the other reports each
//! ([`Watchdog::pet`]), and may take as long as it likes for all of them. Only a single item that does not end is a
//! hang.
//!
//! It counts its own looks, not time: a process that was stopped, or a machine that was suspended, in the middle of a
//! call has missed time and is healthy. [fault-model F03]
//! Knows nothing of: what the work does.

use crate::report;
use kattu_raft::Duration;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Looks within the limit.
const LOOKS: u32 = 4;

/// What may hang, and how that is logged.
const WORK: [(Work, &str); 7] = [
    (Work::Disk, "a disk call has not returned"),
    (Work::Node, "the node has not finished one event"),
    (Work::Keeper, "the store has not finished one slice of committed entries"),
    (Work::Snapshots, "a piece of a snapshot has been neither written nor read"),
    (Work::Reading, "entries for a lagging peer have not been read"),
    (Work::Replay, "entries to apply have not been read back"),
    (Work::Job, "a job of the node has not been done"),
];

/// What may hang. One piece of each is under way at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// A call to the disk.
    Disk,
    /// One event of a batch of the driver, or one step of a keeper on its thread.
    Node,
    /// One step of a keeper on its own thread.
    Keeper,
    /// One piece of a snapshot: a whole one may take as long as it likes.
    Snapshots,
    /// A reading of the log for a peer.
    Reading,
    /// A reading of the log for the apply executor.
    Replay,
    /// A job beside the node.
    Job,
}

/// Shared by the working threads and the watchdog: counts beginnings and ends, so that a count is odd while work is
/// under way. Each count has one writer at a time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watchdog(Arc<[AtomicU64; WORK.len()]>);

/// Work that is under way until this is dropped.
pub(crate) struct UnderWay {
    watchdog: Watchdog,
    work: Work,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.watchdog.count(self.work);
    }
}

impl Watchdog {
    fn count(&self, work: Work) {
        self.0[work as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Work begins that may hang.
    pub(crate) fn begin(&self, work: Work) -> UnderWay {
        self.count(work);
        UnderWay { watchdog: self.clone(), work }
    }

    /// One item of many is done; the next begins.
    pub(crate) fn pet(&self, work: Work) {
        let count = &self.0[work as usize];
        count.store(count.load(Ordering::Relaxed).wrapping_add(2), Ordering::Relaxed);
    }

    /// Runs a call that may hang.
    pub(crate) fn over<T>(&self, work: Work, call: impl FnOnce() -> T) -> T {
        let _under_way = self.begin(work);
        call()
    }

    /// Starts the watchdog; it lives as long as the process or the last other holder of this watch.
    pub(crate) fn start(&self, limit: Duration) -> std::io::Result<()> {
        let watchdog = Arc::downgrade(&self.0);
        std::thread::Builder::new().name("kattu-watchdog".into()).spawn(move || {
            let mut looks: [Looks; WORK.len()] = Default::default();
            while let Some(counts) = watchdog.upgrade() {
                for (work, what) in WORK {
                    if looks[work as usize].look(counts[work as usize].load(Ordering::Relaxed)) {
                        report::last_words(format_args!(
                            "{what} for {limit:?}: stopping, so that clients move on to other members; restart this \
                             one when its machine is healthy"
                        ));
                        std::process::abort();
                    }
                }
                drop(counts);
                std::thread::sleep(limit / LOOKS);
            }
        })?;
        Ok(())
    }
}

/// What the watchdog has seen.
#[derive(Default)]
struct Looks {
    calls: u64,
    /// How often it saw the same piece under way after it had first seen it.
    again: u32,
}

impl Looks {
    /// Takes in one look; returns whether the work hangs.
    fn look(&mut self, calls: u64) -> bool {
        let same_call_runs = calls % 2 == 1 && calls == self.calls;
        self.again = if same_call_runs { self.again + 1 } else { 0 };
        self.calls = calls;
        self.again >= LOOKS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(watchdog: &Watchdog) -> u64 {
        watchdog.0[Work::Disk as usize].load(Ordering::Relaxed)
    }

    #[test]
    fn a_call_hangs_when_it_is_seen_running_look_after_look() {
        let (watchdog, mut looks) = (Watchdog::default(), Looks::default());
        assert!(!looks.look(calls(&watchdog)));
        watchdog.over(Work::Disk, || {
            assert!(
                (0..LOOKS).all(|_| !looks.look(calls(&watchdog))),
                "the first look says when, the others how long"
            );
            assert!(looks.look(calls(&watchdog)));
        });
        assert!(!looks.look(calls(&watchdog)), "it came back");
    }

    #[test]
    fn many_short_calls_and_idle_time_are_no_hang() {
        let (watchdog, mut looks) = (Watchdog::default(), Looks::default());
        for _ in 0..10 * LOOKS {
            assert!(!watchdog.over(Work::Disk, || looks.look(calls(&watchdog))));
        }
        for _ in 0..10 * LOOKS {
            assert!(!looks.look(calls(&watchdog)));
        }
    }

    #[test]
    fn work_that_goes_on_and_on_is_no_hang_as_long_as_it_gets_somewhere() {
        let (watchdog, mut looks) = (Watchdog::default(), Looks::default());
        let count = |watchdog: &Watchdog| watchdog.0[Work::Node as usize].load(Ordering::Relaxed);
        let _batch = watchdog.begin(Work::Node);
        for _ in 0..10 * LOOKS {
            assert!(!looks.look(count(&watchdog)));
            watchdog.pet(Work::Node);
        }
        assert!((0..LOOKS).all(|_| !looks.look(count(&watchdog))), "one more thing has begun");
        assert!(looks.look(count(&watchdog)), "and does not end");
    }

    #[test]
    fn a_suspend_in_the_middle_of_a_call_is_one_look_however_long_it_was() {
        let (watchdog, mut looks) = (Watchdog::default(), Looks::default());
        watchdog.over(Work::Disk, || {
            assert!(!looks.look(calls(&watchdog)));
            // An hour passes for the clocks, but not for the thread that looks.
            assert!(!looks.look(calls(&watchdog)));
        });
        assert!(!looks.look(calls(&watchdog)));
    }

    #[test]
    fn a_disk_call_within_a_batch_is_seen_by_itself() {
        let watchdog = Watchdog::default();
        let count = |work: Work| watchdog.0[work as usize].load(Ordering::Relaxed);
        let batch = watchdog.begin(Work::Node);
        watchdog.over(Work::Disk, || assert_eq!((count(Work::Disk), count(Work::Node)), (1, 1)));
        assert_eq!((count(Work::Disk), count(Work::Node)), (2, 1));
        drop(batch);
        assert_eq!((count(Work::Node), count(Work::Keeper)), (2, 0));
    }
}
