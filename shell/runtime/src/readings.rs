//! Readings of the log, on threads of their own: a disk that is slow to read delays only a peer that lags, and while a member
//! that starts applies what was read, the next is read.
//!
//! In:  plans from the thread that has the log (the driver's, or the log's own).
//! Out: entries, in the order of the plans for one purpose.
//! Rules: a failed reading is no verdict: the log may have dropped the planned part meanwhile. So the log itself reads
//!        again, and its result counts. A reading that hangs ends the process, as any disk call does. [fault-model F16]
//! Knows nothing of: what entries mean, what they are for.

use crate::watchdog::{Watchdog, Work};
use kattu_raft::{Entry, Fetch, FetchFor};
use kattu_wal::{LogReader, ReadPlan, WalError};
use std::sync::mpsc as sync_mpsc;
use tokio::sync::mpsc;

/// A reading that has come back.
pub(crate) type Reading = (Fetch, Result<Vec<Entry>, WalError>);

/// The way to the two threads, one that reads for peers and one for the apply executor, so that neither waits for the other. They
/// end when the last of these is gone.
#[derive(Clone, Debug)]
pub(crate) struct Readings {
    for_peers: sync_mpsc::Sender<(Fetch, ReadPlan)>,
    for_apply: sync_mpsc::Sender<(Fetch, ReadPlan)>,
}

impl Readings {
    /// Starts the threads.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn start(
        readers: [LogReader; 2],
        watchdog: &Watchdog,
    ) -> std::io::Result<(Readings, mpsc::UnboundedReceiver<Reading>)> {
        let (report, readings) = mpsc::unbounded_channel();
        let [for_peers, for_apply] = readers;
        let for_peers = start("kattu-reading", Work::Reading, for_peers, watchdog.clone(), report.clone())?;
        let for_apply = start("kattu-replay", Work::Replay, for_apply, watchdog.clone(), report)?;
        Ok((Readings { for_peers, for_apply }, readings))
    }

    /// Has `plan` carried out.
    pub(crate) fn order(&self, fetch: Fetch, plan: ReadPlan) {
        let thread = match fetch.purpose {
            FetchFor::Peer(_) => &self.for_peers,
            FetchFor::Apply => &self.for_apply,
        };
        thread.send((fetch, plan)).expect("a panic on its thread aborts");
    }
}

/// Starts a thread that carries out plans.
fn start(
    name: &str,
    work: Work,
    mut reader: LogReader,
    watchdog: Watchdog,
    report: mpsc::UnboundedSender<Reading>,
) -> std::io::Result<sync_mpsc::Sender<(Fetch, ReadPlan)>> {
    let (plans, inbox) = sync_mpsc::channel::<(Fetch, ReadPlan)>();
    std::thread::Builder::new().name(name.into()).spawn(move || {
        let _abort = crate::AbortOnPanic;
        while let Ok(first) = inbox.recv() {
            for (fetch, plan) in std::iter::once(first).chain(inbox.try_iter()) {
                let read = watchdog.over(work, || reader.read(&plan));
                if report.send((fetch, read)).is_err() {
                    return; // the driver is gone
                }
            }
            reader.close(); // else the space of a segment that is removed would not come back
        }
    })?;
    Ok(plans)
}
