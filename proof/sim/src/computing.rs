//! Computing: a simulated member's jobs, on one thread beside its own, in virtual time. [shell/member `computing`]
//!
//! The thread does its jobs in their order, and each takes its time. Where `Settings::jobs_hang` says so, some take longer than
//! the follower waits for them, and the results of some come twice, the second time perhaps when nothing waits for them any
//! more. The end of a process is the end of its jobs.
//! Knows nothing of: what jobs do, which of them the thread gets.

use crate::end::End;
use crate::process::{Hands, Process};
use crate::world::{Event as Planned, Shared};
use kattu_node::contract::Event;
use kattu_raft::Job;
use std::collections::BTreeMap;

/// Of this many jobs that may hang, one does, and the results of two come twice.
const ONE_IN: u64 = 40;
/// The most election timeouts for which a job hangs.
const HANGS_FOR: u64 = 4;

/// The jobs of one process that its thread has, by number.
#[derive(Default)]
pub(crate) struct Computing {
    begun: u64,
    under_way: BTreeMap<u64, Job>,
    /// The thread is busy until then.
    free_at: u64,
}

impl Hands {
    pub(crate) fn compute(&mut self, sh: &mut Shared, job: Job) {
        sh.counts.jobs += 1;
        let election_timeout = sh.settings.election_timeout.as_nanos() as u64;
        let (times, takes) = match sh.job_dice.below(ONE_IN) {
            0 if sh.settings.jobs_hang => {
                (1, sh.job_dice.within(election_timeout, HANGS_FOR * election_timeout))
            }
            1 | 2 if sh.settings.jobs_hang => (2, sh.job_dice.below(sh.settings.job_takes + 1)),
            _ => (1, sh.job_dice.below(sh.settings.job_takes + 1)),
        };
        sh.counts.jobs_hung += u64::from(election_timeout <= takes);
        sh.counts.jobs_repeated += u64::from(times == 2);
        let computing = &mut self.computing;
        computing.free_at = computing.free_at.max(sh.now) + takes;
        for time in 0..times {
            computing.begun += 1;
            computing.under_way.insert(computing.begun, job.clone());
            let at = computing.free_at + time * sh.job_dice.below(sh.settings.job_takes + 1);
            let planned = Planned::Computed { member: self.member, run: self.run, number: computing.begun };
            sh.queue.plan(at, planned);
        }
    }
}

impl Process {
    /// A job is done.
    pub(crate) fn computed(&mut self, sh: &mut Shared, number: u64) -> Result<(), End> {
        let Some(job) = self.hands.computing.under_way.remove(&number) else { return Ok(()) };
        sh.counts.jobs_late += u64::from(!self.node().raft().awaits(job.id()));
        self.hear(Event::Computed(job.run()));
        Ok(())
    }
}
