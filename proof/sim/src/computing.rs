//! Computing: a simulated member's jobs, beside its thread, in virtual time. [shell/runtime `computing`]
//!
//! Each job takes a time of its own, so that results come in any order. Where `Settings::loses_jobs` says so, some never
//! come and some come twice, the second time perhaps when nothing waits for them any more. The end of a process is the
//! end of its jobs.
//! Knows nothing of: what jobs do.

use crate::process::{End, Hands, Process};
use crate::world::{Event as Planned, Shared};
use kattu_node::contract::Event;
use kattu_raft::Job;
use std::collections::BTreeMap;

/// Of this many jobs that may be lost, one is, and two are done twice.
const ONE_IN: u64 = 40;

/// The jobs of one process that are not done, by number.
#[derive(Default)]
pub(crate) struct Computing {
    begun: u64,
    under_way: BTreeMap<u64, Job>,
}

impl Computing {
    /// Whether no job is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }
}

impl Hands {
    pub(crate) fn compute(&mut self, sh: &mut Shared, jobs: &mut Vec<Job>) {
        for job in jobs.drain(..) {
            sh.counts.jobs += 1;
            let times = match sh.job_dice.below(ONE_IN) {
                0 if sh.settings.loses_jobs => 0,
                1 | 2 if sh.settings.loses_jobs => 2,
                _ => 1,
            };
            sh.counts.jobs_lost += u64::from(times == 0);
            sh.counts.jobs_repeated += u64::from(times == 2);
            for _ in 0..times {
                self.computing.begun += 1;
                let number = self.computing.begun;
                self.computing.under_way.insert(number, job.clone());
                let at = sh.now + sh.job_dice.below(sh.settings.job_takes + 1);
                sh.queue.plan(at, Planned::Computed { member: self.member, run: self.run, number });
            }
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
