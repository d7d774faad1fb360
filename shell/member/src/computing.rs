//! Computing: the jobs of a member that are not done, and which of them its executor has.
//!
//! ```text
//!   core ── jobs ──▶ they wait, oldest first ──▶ the executor has two ──▶ results
//!                      └──▶ dropped, once nothing waits for the result
//! ```
//! Rules: 1. The executor has at most [`GIVEN_MAX`] jobs.
//!        2. A job that waits is dropped as soon as its result would not count any more. So the jobs that wait hold no more bytes than
//!           the appends that wait for them, and these have a limit (`Limits::inflight_bytes_max`). When a follower gives up its
//!           queue because the thread is slow, the thread goes on with the next queue, and does not work off the old one first.
//!           [replication-protocols §3.4; core/raft `compute`, rules 5 and 6]
//!        3. Each job that the executor has is done, or the process ends: a thread that hangs is the watchdog's. [fault-model F16]
//! Knows nothing of: threads, what jobs do.

use kattu_raft::{Job, JobId};
use std::collections::VecDeque;

/// Jobs that the executor has at once: one that is being done, and the next one, so that the thread does not wait for the member
/// between two.
pub const GIVEN_MAX: usize = 2;

/// Jobs that are not done.
#[derive(Debug, Default)]
pub struct Computing {
    /// Not given out yet, oldest first.
    waiting: VecDeque<Job>,
    /// At most [`GIVEN_MAX`].
    given: Vec<JobId>,
}

impl Computing {
    /// Takes these jobs in. Returns the next one for the executor, if it is to have another. `awaits` says whether the result of a job
    /// would count now.
    pub(crate) fn next(&mut self, jobs: &mut Vec<Job>, awaits: impl Fn(JobId) -> bool) -> Option<Job> {
        self.waiting.extend(jobs.drain(..));
        self.waiting.retain(|job| awaits(job.id()));
        if GIVEN_MAX <= self.given.len() {
            return None;
        }
        let job = self.waiting.pop_front()?;
        self.given.push(job.id());
        Some(job)
    }

    /// The executor has done this job.
    pub(crate) fn done(&mut self, job: JobId) {
        self.given.retain(|given| *given != job);
    }

    /// Whether no job is left.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.given.is_empty()
    }

    /// The jobs that are not given out yet, oldest first.
    #[must_use]
    pub fn waiting(&self) -> &VecDeque<Job> {
        &self.waiting
    }
}
