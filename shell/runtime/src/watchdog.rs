//! Ends the process when its disk hangs.
//!
//! A log on the driver's thread takes everything else with it when a sync does not return: the cluster elects another
//! leader after an election timeout, but this member's clients would hang on open connections. So a thread that does
//! nothing else looks at when the running disk call began. [fault-model F16]
//! Knows nothing of: what the call does.

use crate::{clock, report};
use kattu_raft::{Duration, Instant};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Shared by whoever goes to the disk and the watchdog: when the running call began, 0 for none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch(Arc<AtomicU64>);

impl Watch {
    /// Runs a call that may hang.
    pub(crate) fn over<T>(&self, call: impl FnOnce() -> T) -> T {
        self.0.store(clock::now().0, Ordering::Relaxed);
        let result = call();
        self.0.store(0, Ordering::Relaxed);
        result
    }

    fn running_for(&self) -> Duration {
        match self.0.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            began => clock::now().since(Instant(began)),
        }
    }

    /// Starts the watchdog; it lives as long as the process or the last other holder of this watch.
    pub(crate) fn start(&self, limit: Duration) -> std::io::Result<()> {
        let watch = Arc::downgrade(&self.0);
        std::thread::Builder::new().name("kattu-watchdog".into()).spawn(move || {
            while let Some(began) = watch.upgrade() {
                let hung = Watch(began).running_for();
                if hung > limit {
                    report::warn(format_args!(
                        "a disk call has not returned for {hung:?} (limit {limit:?}): stopping, so that clients \
                         move on to other members; restart this one when the disk is well"
                    ));
                    std::process::abort();
                }
                std::thread::sleep(limit / 4);
            }
        })?;
        Ok(())
    }
}
