//! What a seed decides: the cluster, its file systems, its load, and when the power goes from whom.
//!
//! A seed repeats all of this and what clients ask; it does not repeat the instants at which real processes act.
//! Knows nothing of: how any of it is done.

use crate::disk::Layout;
use crate::fuse_disk::Trigger;
use kattu_chaos::changes::Change;
use kattu_chaos::flags::Flags;
use kattu_chaos::random::Random;
use kattu_chaos::target::Target;
use kattu_chaos::workload::Shape;
use std::fmt;

/// Room for all that a trial may write: a full disk is another fault. etcd allots its log in pieces of 64 MiB.
const DISK_BYTES: u64 = 384 << 20;
/// What ext4 may promise of data; its default twice.
const MODES: [&str; 4] = ["ordered", "ordered", "writeback", "journal"];

/// Whom the power leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// All members in one instant.
    All,
    /// Whoever leads.
    Leader,
    /// One that does not lead.
    Follower,
    /// As many as the cluster can do without, in one instant.
    Minority,
}

/// When.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// During the very first start, just before this request of one disk.
    Birth(Trigger),
    /// Under load, after so many more acknowledged writes, at this point.
    Load {
        /// Acknowledged writes.
        after: u64,
        /// What the disks are doing.
        point: Point,
    },
}

/// Where in the work of the disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// Just before this request of one disk.
    Before(Trigger),
    /// When every disk concerned has been told to flush and has not done so.
    HoldFlushes,
}

/// One loss of power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PowerCut {
    /// Whom it hits.
    pub who: Who,
    /// When it comes.
    pub when: When,
    /// And once more while those members start again, just before this request of one disk.
    pub again: Option<Trigger>,
    /// What is asked of the members just before; and whether its outcome is waited for, so that the power goes in the middle
    /// of what follows a change, or in the middle of the change.
    pub change: Option<(Change, bool)>,
}

/// A whole trial.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What decides.
    pub seed: u64,
    /// How many members.
    pub members: usize,
    /// Places, each with a disk of its own, for members that come later.
    pub spare: usize,
    /// Their file systems.
    pub layout: Layout,
    /// More flags of theirs.
    pub flags: Flags,
    /// What clients do.
    pub shape: Shape,
    /// The losses, in order.
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
        // Enough that there is always something to flush, and not so much that who was away never catches up.
        let shape = Shape {
            clients: random.within(4..13) as u32,
            pause_ms_max: *random.pick(&[1, 4, 10]),
            value_bytes: (*random.pick(&[32, 300, 1500, 5000]), *random.pick(&[16 << 10, 64 << 10])),
            ..Shape::of_storm(&mut random)
        };
        let mut power_cuts: Vec<PowerCut> =
            (0..random.within(1..4)).map(|_| PowerCut::draw(members, &mut random)).collect();
        // Every trial has a moment at which all lose power.
        let last = power_cuts.last_mut().expect("at least one");
        last.who = Who::All;
        if random.per_mille(250) {
            let when = When::Birth(trigger(&mut random, 45));
            power_cuts.insert(0, PowerCut { who: Who::All, when, again: None, change: None });
        }
        let spare = if target == Target::Kattu { change_some(seed, members, &mut power_cuts) } else { 0 };
        Plan { seed, members, spare, layout, flags, shape, power_cuts }
    }

    /// The plan of a seed for disks that lie: one loss for all, late enough that there is something to lose.
    pub fn of_control(seed: u64, target: Target) -> Plan {
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

/// In part of the trials of several members some come and go around the losses. Returns how many places are free at first.
fn change_some(seed: u64, members: usize, power_cuts: &mut [PowerCut]) -> usize {
    // Dice of their own: plans are what they were otherwise.
    let mut random = Random::of_part(seed, "changes");
    if members < 3 || !random.per_mille(500) {
        return 0;
    }
    let under_load = power_cuts.iter_mut().filter(|power_cut| matches!(power_cut.when, When::Load { .. }));
    for (number, power_cut) in under_load.enumerate() {
        // Nobody can go before somebody has come: three are needed.
        let change = match number {
            0 => *random.pick(&[Change::Add, Change::Add, Change::Replace]),
            _ => *random.pick(&[Change::Add, Change::Remove, Change::Remove, Change::Replace]),
        };
        // A replacement is two changes: one that is under way would be a removal.
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
