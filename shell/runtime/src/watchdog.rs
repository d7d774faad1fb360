//! Ends the process when its disk hangs.
//!
//! A log on the driver's thread takes everything else with it when a sync does not return: the cluster elects another
//! leader after an election timeout, but this member's clients would hang on open connections. So a thread that does
//! nothing else looks at the running disk call again and again. [fault-model F16]
//!
//! It counts its own looks, not time: a process that was stopped, or a machine that was suspended, in the middle of a
//! call has missed time and the disk is well. [fault-model F03]
//! Knows nothing of: what the call does.

use crate::report;
use kattu_raft::Duration;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Looks within the limit.
const LOOKS: u32 = 4;

/// Shared by whoever goes to the disk and the watchdog: counts beginnings and ends of calls, so that it is odd while one
/// runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch(Arc<AtomicU64>);

impl Watch {
    /// Runs a call that may hang. One at a time.
    pub(crate) fn over<T>(&self, call: impl FnOnce() -> T) -> T {
        self.0.fetch_add(1, Ordering::Relaxed);
        let result = call();
        self.0.fetch_add(1, Ordering::Relaxed);
        result
    }

    /// Starts the watchdog; it lives as long as the process or the last other holder of this watch.
    pub(crate) fn start(&self, limit: Duration) -> std::io::Result<()> {
        let watch = Arc::downgrade(&self.0);
        std::thread::Builder::new().name("kattu-watchdog".into()).spawn(move || {
            let mut looks = Looks::default();
            while let Some(calls) = watch.upgrade() {
                if looks.look(calls.load(Ordering::Relaxed)) {
                    report::warn(format_args!(
                        "a disk call has not returned for {limit:?}: stopping, so that clients move on to other \
                         members; restart this one when the disk is well"
                    ));
                    std::process::abort();
                }
                drop(calls);
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
    /// How often it saw the same call running after it had first seen it.
    again: u32,
}

impl Looks {
    /// Takes in one look; whether the running call hangs.
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

    fn calls(watch: &Watch) -> u64 {
        watch.0.load(Ordering::Relaxed)
    }

    #[test]
    fn a_call_hangs_when_it_is_seen_running_look_after_look() {
        let (watch, mut looks) = (Watch::default(), Looks::default());
        assert!(!looks.look(calls(&watch)));
        watch.over(|| {
            assert!(
                (0..LOOKS).all(|_| !looks.look(calls(&watch))),
                "the first look says when, the others how long"
            );
            assert!(looks.look(calls(&watch)));
        });
        assert!(!looks.look(calls(&watch)), "it came back");
    }

    #[test]
    fn many_short_calls_and_idle_time_are_no_hang() {
        let (watch, mut looks) = (Watch::default(), Looks::default());
        for _ in 0..10 * LOOKS {
            assert!(!watch.over(|| looks.look(calls(&watch))));
        }
        for _ in 0..10 * LOOKS {
            assert!(!looks.look(calls(&watch)));
        }
    }

    #[test]
    fn a_suspend_in_the_middle_of_a_call_is_one_look_however_long_it_was() {
        let (watch, mut looks) = (Watch::default(), Looks::default());
        watch.over(|| {
            assert!(!looks.look(calls(&watch)));
            // An hour passes for the clocks, but not for the thread that looks.
            assert!(!looks.look(calls(&watch)));
        });
        assert!(!looks.look(calls(&watch)));
    }
}
