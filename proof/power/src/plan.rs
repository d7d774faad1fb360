//! The plan of a seed: the cluster, its file systems, its load, and the victims and times of power cuts.
//!
//! A seed repeats all of this and the clients' operations; it does not repeat the instants at which real processes act.
//! Knows nothing of: processes, mounts.

use crate::disk::Layout;
use crate::fuse_disk::Trigger;
use kattu_random::Random;
use kattu_rig::changes::Change;
use kattu_rig::flags::Flags;
use kattu_rig::target::Target;
use kattu_rig::workload::Shape;
use std::fmt;

/// Enough for all that a trial may write: a full disk is another fault. etcd allocates its log in pieces of 64 MiB.
const DISK_BYTES: u64 = 384 << 20;
/// ext4's journal modes; its default twice.
const MODES: [&str; 4] = ["ordered", "ordered", "writeback", "journal"];

/// The victims of a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// All members in one instant.
    All,
    /// The leader.
    Leader,
    /// A member that does not lead.
    Follower,
    /// As many as the cluster can do without, in one instant.
    Minority,
}

/// The time of a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// During the very first start, just before this request of one disk.
    Birth(Trigger),
    /// Under load, after so many more acknowledged writes, at this point.
    Load {
        /// Acknowledged writes.
        after: u64,
        /// The state of the disks.
        point: Point,
    },
}

/// A moment in the work of the disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// Just before this request of one disk.
    Before(Trigger),
    /// When every victim's disk has a flush to do and has not done it.
    HoldFlushes,
}

/// One power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PowerCut {
    /// Its victims.
    pub who: Who,
    /// Its time.
    pub when: When,
    /// A second power cut while those members restart, just before this request of one disk.
    pub again: Option<Trigger>,
    /// A membership change just before, and whether it is waited for: then the power cut falls into the time after it,
    /// else into the change itself.
    pub change: Option<(Change, bool)>,
}

/// A whole trial.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed of everything.
    pub seed: u64,
    /// How many members.
    pub members: usize,
    /// Places, each with a disk of its own, for members that join later.
    pub spare: usize,
    /// The members' file systems.
    pub layout: Layout,
    /// The members' flags.
    pub flags: Flags,
    /// The clients' load.
    pub shape: Shape,
    /// The power cuts, in order.
    pub power_cuts: Vec<PowerCut>,
}

impl Plan {
    /// The plan of a seed.
    pub fn new(seed: u64, target: Target) -> Plan {
        let mut random = Random::of_part(seed, "power");
        let members = *random.pick(&[3, 3, 3, 3, 3, 1, 1, 5]);
        let layout = Layout {
            disk_bytes: DISK_BYTES,
            block_bytes: *random.pick(&[4096, 4096, 4096, 1024]),
            data: MODES[random.below(MODES.len())],
            commit_secs: *random.pick(&[1, 5, 300]),
        };
        let flags = Flags::draw(seed, target, None);
        // Enough that there is always something to flush, and so little that a member that was away can catch up.
        let shape = Shape {
            clients: random.within(4..13) as u32,
            pause_ms_max: *random.pick(&[1, 4, 10]),
            value_bytes: (*random.pick(&[32, 300, 1500, 5000]), *random.pick(&[16 << 10, 64 << 10])),
            ..Shape::of_storm(&mut random)
        };
        let mut power_cuts: Vec<PowerCut> =
            (0..random.within(1..4)).map(|_| PowerCut::draw(members, &mut random)).collect();
        // In every trial all members lose power once.
        let last = power_cuts.last_mut().expect("at least one");
        last.who = Who::All;
        if random.per_mille(250) {
            let when = When::Birth(trigger(&mut random, 45));
            power_cuts.insert(0, PowerCut { who: Who::All, when, again: None, change: None });
        }
        let spare = if target == Target::Kattu { change_some(seed, members, &mut power_cuts) } else { 0 };
        Plan { seed, members, spare, layout, flags, shape, power_cuts }
    }

    /// The plan of a seed for lying disks: one power cut for all, late enough that there is something to lose.
    pub(crate) fn of_control(seed: u64, target: Target) -> Plan {
        let mut plan = Plan::new(seed, target);
        let when = When::Load { after: 150, point: Point::Before(Trigger::Flush(1)) };
        plan.power_cuts = vec![PowerCut { who: Who::All, when, again: None, change: None }];
        plan.spare = 0;
        plan
    }
}

impl PowerCut {
    fn draw(members: usize, random: &mut Random) -> PowerCut {
        let who = match random.within(0..10) {
            _ if members == 1 => Who::All,
            0..5 => Who::All,
            5..7 => Who::Leader,
            7 => Who::Follower,
            _ => Who::Minority,
        };
        let point =
            if random.per_mille(600) { Point::HoldFlushes } else { Point::Before(trigger(random, 60)) };
        let when = When::Load { after: random.within(20..800), point };
        let again = random.per_mille(350).then(|| trigger(random, 40));
        PowerCut { who, when, again, change: None }
    }
}

/// Adds membership changes around the power cuts of some trials. Returns the number of places that are free at first.
fn change_some(seed: u64, members: usize, power_cuts: &mut [PowerCut]) -> usize {
    // A stream of its own: the rest of the plan stays as it was without changes.
    let mut random = Random::of_part(seed, "changes");
    if members < 3 || !random.per_mille(500) {
        return 0;
    }
    let under_load = power_cuts.iter_mut().filter(|power_cut| matches!(power_cut.when, When::Load { .. }));
    for (number, power_cut) in under_load.enumerate() {
        // The first change cannot be a removal: three members are needed.
        let change = match number {
            0 => *random.pick(&[Change::Add, Change::Add, Change::Replace]),
            _ => *random.pick(&[Change::Add, Change::Remove, Change::Remove, Change::Replace]),
        };
        // A replacement is two changes: one that is only requested would be a removal.
        let is_waited_for = number == 0 || change == Change::Replace || random.per_mille(500);
        power_cut.change = Some((change, is_waited_for));
    }
    2
}

/// One of the next `most` requests; flushes are half of all requests.
fn trigger(random: &mut Random, most: u64) -> Trigger {
    match random.per_mille(650) {
        true => Trigger::Flush(random.within(1..most / 2)),
        false => Trigger::Any(random.within(1..most)),
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Layout { block_bytes, data, commit_secs, .. } = &self.layout;
        write!(
            f,
            "seed {}: {} members and {} free places with {}, ext4 of {block_bytes}-byte blocks, data={data}, commit={commit_secs}, {} clients",
            self.seed, self.members, self.spare, self.flags, self.shape.clients
        )?;
        self.power_cuts.iter().try_for_each(|power_cut| write!(f, "\n  {power_cut:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_plan_and_every_plan_takes_the_power_from_all() {
        for seed in 0..200 {
            let plan = Plan::new(seed, Target::Kattu);
            assert_eq!(plan.to_string(), Plan::new(seed, Target::Kattu).to_string());
            assert!(plan.power_cuts.iter().any(|power_cut| power_cut.who == Who::All));
        }
    }

    #[test]
    fn seeds_draw_every_kind_of_loss() {
        let power_cuts: Vec<PowerCut> =
            (0..300).flat_map(|seed| Plan::new(seed, Target::Kattu).power_cuts).collect();
        for who in [Who::All, Who::Leader, Who::Follower, Who::Minority] {
            assert!(10 < power_cuts.iter().filter(|power_cut| power_cut.who == who).count(), "{who:?}");
        }
        assert!(20 < power_cuts.iter().filter(|power_cut| power_cut.again.is_some()).count());
        assert!(20 < power_cuts.iter().filter(|power_cut| matches!(power_cut.when, When::Birth(_))).count());
        for change in [Change::Add, Change::Remove, Change::Replace] {
            let drawn = |is_waited_for| {
                power_cuts
                    .iter()
                    .filter(|power_cut| power_cut.change == Some((change, is_waited_for)))
                    .count()
            };
            assert!(5 < drawn(true), "{change:?}");
            assert!((5 < drawn(false)) == (change != Change::Replace), "{change:?}");
        }
    }
}
