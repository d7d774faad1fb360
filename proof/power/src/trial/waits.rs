//! What a trial waits for: a moment of the plan, the service, acknowledged writes.
//!
//! Knows nothing of: what happens then.

use super::{Done, Trial, Trouble};
use crate::fuse_disk::FuseDisk;
use crate::plan::Point;
use kattu_rig::cluster::BACK_LIMIT;
use kattu_rig::process::tail;
use kattu_rig::{Cluster, Member};
use std::time::{Duration, Instant};

/// An armed request is waited for no longer: the power is cut anyway.
const TRIGGER_LIMIT: Duration = Duration::from_secs(4);
/// Not every disk gets a flush while the others hang: a follower may get no entries. Well below the time after which a
/// member takes its disk for hung.
const HOLD_LIMIT: Duration = Duration::from_millis(150);

impl Trial {
    /// Waits until the victims' disks are where the plan wants them, or a limit is over.
    pub(super) fn await_point(&mut self, cluster: &mut Cluster, victims: &[usize], point: Point) -> Done {
        let (armed, limit) = match point {
            Point::Before(trigger) => (vec![self.arm(victims, trigger)], TRIGGER_LIMIT),
            Point::HoldFlushes => {
                self.fuse_disks(victims).for_each(FuseDisk::hold_flushes);
                (victims.to_vec(), HOLD_LIMIT)
            }
        };
        let end = Instant::now() + limit;
        while !self.fuse_disks(&armed).all(|fuse_disk| fuse_disk.has_tripped() || fuse_disk.has_piled_up())
            && Instant::now() < end
        {
            cluster.check_ended().map_err(Trouble::Broken)?;
            std::thread::sleep(Duration::from_micros(500));
        }
        Ok(())
    }

    fn fuse_disks(&self, which: &[usize]) -> impl Iterator<Item = &FuseDisk> {
        which.iter().filter_map(|i| self.disks[*i].as_ref()).map(|disk| &disk.fuse_disk)
    }

    /// Waits until the armed request has come, or all members serve before it does.
    pub(super) fn await_trigger_or_service(&mut self, cluster: &mut Cluster, armed: usize) -> Done {
        let begun = Instant::now();
        while !self.has_tripped(armed) {
            cluster.check_ended().map_err(Trouble::Broken)?;
            // Asked only now and then: a read waits for an answer while the trigger may trip.
            if Duration::from_secs(2) < begun.elapsed()
                && cluster.belonging().into_iter().all(|i| cluster.members[i].serves())
            {
                return Ok(());
            }
            if BACK_LIMIT < begun.elapsed() {
                return Err(Trouble::Broken(format!("no service {BACK_LIMIT:?} after a loss of power")));
            }
            std::thread::sleep(Duration::from_micros(500));
        }
        Ok(())
    }

    /// Waits until all members serve. Meanwhile the timeline shows once a second how far each is.
    pub(super) fn await_service(&mut self, cluster: &mut Cluster) -> Done {
        let begun = Instant::now();
        let mut said = begun;
        // A removed member is no longer waited for once it has ended for that reason.
        while let Some(i) = cluster.belonging().into_iter().find(|&i| !cluster.members[i].serves()) {
            cluster.check_ended().map_err(Trouble::Broken)?;
            if Duration::from_secs(1) < said.elapsed() {
                self.timeline.say(format!("n{i} does not serve yet: {}", progress(cluster)));
                said = Instant::now();
            }
            if BACK_LIMIT < begun.elapsed() {
                let says = tail(&cluster.members[i].log_text());
                return Err(Trouble::Broken(format!(
                    "n{i} does not serve {BACK_LIMIT:?} after a loss: {says}"
                )));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.timeline.say(format!("everybody serves after {:.2?}", begun.elapsed()));
        Ok(())
    }

    /// Waits for so many more acknowledged writes.
    pub(super) fn await_writes(&mut self, cluster: &mut Cluster, more: u64) -> Done {
        let wanted = self.recorder.acknowledged() + more;
        let begun = Instant::now();
        while self.recorder.acknowledged() < wanted {
            cluster.check_ended().map_err(Trouble::Broken)?;
            if BACK_LIMIT < begun.elapsed() {
                return Err(Trouble::Broken(format!(
                    "fewer than {more} writes acknowledged in {BACK_LIMIT:?}"
                )));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

/// Each member's position, by its own status.
fn progress(cluster: &Cluster) -> String {
    let of = |member: &Member| match member.probe.status() {
        Ok(it) => {
            let revision = it.header.map_or(0, |header| header.revision);
            format!(
                "{} revision {revision}, index {}, applied {}, term {}",
                member.name, it.raft_index, it.raft_applied_index, it.raft_term
            )
        }
        Err(status) => format!("{} {}", member.name, status.message()),
    };
    cluster.members.iter().map(of).collect::<Vec<_>>().join("; ")
}
