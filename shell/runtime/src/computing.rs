//! Computing: jobs of the node, on a thread of their own, so that none of them delays a heartbeat.
//!
//! In:  jobs from the driver, which gives out few at once. [shell/member `computing`]
//! Out: their results, into the driver's inbox.
//! Rules: one thread does all jobs of a member, in their order: they come from one leader's lane, where the later ones wait
//!        for the earlier. A job that hangs ends the process, as an event that hangs would. [fault-model F16]
//! Knows nothing of: what jobs do, which of them still count.

use crate::inbox::Inbox;
use crate::watchdog::{Watchdog, Work};
use kattu_node::contract::Event;
use kattu_raft::Job;
use std::rc::Rc;
use std::sync::mpsc as sync_mpsc;
use tokio::sync::mpsc;

/// The way to the thread, which ends with it.
pub(crate) struct Computing(sync_mpsc::Sender<Job>);

impl Computing {
    /// Starts the thread; must be called inside a `LocalSet`.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn start(inbox: Rc<Inbox>, watchdog: Watchdog) -> std::io::Result<Computing> {
        let (jobs, given) = sync_mpsc::channel::<Job>();
        let (report, mut results) = mpsc::unbounded_channel();
        std::thread::Builder::new().name("kattu-computing".into()).spawn(move || {
            let _abort = crate::AbortOnPanic;
            while let Ok(job) = given.recv() {
                let done = watchdog.over(Work::Job, || job.run());
                if report.send(done).is_err() {
                    return; // the driver is gone
                }
            }
        })?;
        tokio::task::spawn_local(async move {
            while let Some(done) = results.recv().await {
                inbox.push(Event::Computed(done), 0); // its bytes were counted when they arrived
            }
        });
        Ok(Computing(jobs))
    }

    /// Has a job done.
    pub(crate) fn give(&self, job: Job) {
        self.0.send(job).expect("a panic on its thread aborts");
    }
}
