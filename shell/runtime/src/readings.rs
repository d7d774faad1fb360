//! Readings of the log for peers, on a thread of their own: a disk that is slow to read delays only a peer that lags.
//!
//! In:  plans from the thread that has the log (the driver's, or the log's own).
//! Out: entries, in the order of the plans.
//! Rules: a failed reading is no verdict: the log may have dropped the planned part meanwhile. So the log itself reads
//!        again, and its result counts. A reading that hangs ends the process, as any disk call does. [fault-model F16]
//! Knows nothing of: what entries mean, which peers lag.

use crate::watchdog::{Watchdog, Work};
use kattu_raft::{Entry, Fetch};
use kattu_wal::{LogReader, ReadPlan, WalError};
use std::sync::mpsc as sync_mpsc;
use tokio::sync::mpsc;

/// A reading that has come back.
pub(crate) type Reading = (Fetch, Result<Vec<Entry>, WalError>);

/// The way to the thread: it ends when the last of these is gone.
#[derive(Clone, Debug)]
pub(crate) struct Readings(sync_mpsc::Sender<(Fetch, ReadPlan)>);

impl Readings {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn start(
        mut reader: LogReader,
        watchdog: Watchdog,
    ) -> std::io::Result<(Readings, mpsc::UnboundedReceiver<Reading>)> {
        let (plans, inbox) = sync_mpsc::channel::<(Fetch, ReadPlan)>();
        let (report, readings) = mpsc::unbounded_channel();
        std::thread::Builder::new().name("kattu-reading".into()).spawn(move || {
            let _abort = crate::AbortOnPanic;
            while let Ok(first) = inbox.recv() {
                for (fetch, plan) in std::iter::once(first).chain(inbox.try_iter()) {
                    let read = watchdog.over(Work::Reading, || reader.read(&plan));
                    if report.send((fetch, read)).is_err() {
                        return; // the driver is gone
                    }
                }
                reader.close(); // else the space of a segment that is removed would not come back
            }
        })?;
        Ok((Readings(plans), readings))
    }

    /// Has `plan` carried out.
    pub(crate) fn order(&self, fetch: Fetch, plan: ReadPlan) {
        self.0.send((fetch, plan)).expect("a panic on its thread aborts");
    }
}
