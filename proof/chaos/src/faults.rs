//! Faults of a storm and their times: a plan decided by the seed.
//!
//! Two lanes run side by side: one for processes and disks, the other for the network; in each lane one fault ends
//! before the next begins. "The leader" is looked up when the fault begins.
//! Knows nothing of: how a fault is brought about.

use kattu_random::Random;
use kattu_rig::clocks::Lie;
use std::time::Duration;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// kill -9 of one member, restarted at the end.
    KillOne,
    /// kill -9 of the leader.
    KillLeader,
    /// kill -9 of all together.
    KillAll,
    /// kill -9 of one member again and again while it starts.
    KillWhileStarting,
    /// SIGSTOP of one member.
    PauseOne,
    /// SIGSTOP of the leader.
    PauseLeader,
    /// The leader is frozen by its cgroup.
    FreezeLeader,
    /// One member is killed, loses its directory, and must refuse to go on without it; then gets it back.
    Wiped,
    /// Another process takes all the space on one member's disk.
    FullDisk,
    /// The wall clock of one member jumps by years.
    WallClock,
    /// All clocks of one member, which run at a rate of their own, jump ahead.
    Clocks,
    /// A new member is added and started.
    Grow,
    /// A member is removed, and must end by itself.
    Shrink,
    /// A member loses its directory, is removed, and comes back as a new one.
    Replace,
    /// Leadership is transferred.
    Transfer,
    /// The cluster changes between raft and nb-raft with weak answers.
    Protocol,
    /// The members fall into two groups.
    Split,
    /// The leader is cut off from all other members.
    IsolateLeader,
    /// Two members are cut off from each other, but not from the others.
    Partial,
    /// One direction between two members is cut.
    OneWay,
    /// All outgoing or all incoming links of one member are cut.
    DeafOrDumb,
    /// A split that comes and goes.
    Flap,
    /// Packets between two groups are dropped.
    HardSplit,
    /// Packets from one member to another are dropped.
    HardOneWay,
    /// All packets from and to the leader are dropped.
    HardIsolateLeader,
    /// Some packets of all members are dropped.
    PacketLoss,
    /// The leader's packets to clients are dropped, but not theirs to it.
    MuteLeader,
    /// Every piece is delayed.
    Delay,
    /// Messages come twice, and after their successors.
    Jumble,
    /// Connections are reset in the middle of a piece.
    Resets,
    /// Bits are flipped.
    Corrupt,
    /// Bandwidth is small.
    Narrow,
    /// Connections hang now and then.
    Stalls,
}

/// Faults that this machine or target does not support, with reasons.
#[derive(Clone, Debug, Default)]
pub struct Skipped(pub Vec<(Vec<Fault>, String)>);

impl Skipped {
    /// Whether a fault is skipped.
    pub fn has(&self, fault: Fault) -> bool {
        self.0.iter().any(|(faults, _)| faults.contains(&fault))
    }
}

impl Fault {
    /// The faults of the first lane.
    pub(crate) const OF_PROCESSES: &'static [Fault] = &[
        Fault::KillOne,
        Fault::KillLeader,
        Fault::KillAll,
        Fault::KillWhileStarting,
        Fault::PauseOne,
        Fault::PauseLeader,
        Fault::FreezeLeader,
        Fault::Wiped,
        Fault::FullDisk,
        Fault::WallClock,
        Fault::Clocks,
        Fault::Grow,
        Fault::Shrink,
        Fault::Replace,
        Fault::Transfer,
        Fault::Protocol,
    ];

    /// The faults of the second lane.
    pub(crate) const OF_NETWORKS: &'static [Fault] = &[
        Fault::Split,
        Fault::IsolateLeader,
        Fault::Partial,
        Fault::OneWay,
        Fault::DeafOrDumb,
        Fault::Flap,
        Fault::HardSplit,
        Fault::HardOneWay,
        Fault::HardIsolateLeader,
        Fault::PacketLoss,
        Fault::MuteLeader,
        Fault::Delay,
        Fault::Jumble,
        Fault::Resets,
        Fault::Corrupt,
        Fault::Narrow,
        Fault::Stalls,
    ];

    /// Faults that a trial must be prepared for.
    const PREPARED: &'static [Fault] = &[
        Fault::FullDisk,
        Fault::WallClock,
        Fault::Clocks,
        Fault::Grow,
        Fault::Shrink,
        Fault::Replace,
        Fault::Protocol,
    ];
    /// Faults of trials that begin with free places.
    const OF_CHANGES: [Fault; 3] = [Fault::Grow, Fault::Shrink, Fault::Replace];

    /// Faults of every trial with weak clients: without the kills hardly a weak answer is lost, as what a quorum has received
    /// survives in the memory of those that live.
    const OF_WEAK: [Fault; 4] = [Fault::Protocol, Fault::KillLeader, Fault::KillAll, Fault::KillAll];

    /// The fault for this kind of lie.
    fn of_clocks(lie: Lie) -> Fault {
        match lie {
            Lie::Wall => Fault::WallClock,
            Lie::All => Fault::Clocks,
        }
    }

    /// Whether the leader, or its links, are among what it hits for sure.
    pub(crate) fn strikes_the_leader(self) -> bool {
        match self {
            Fault::KillLeader
            | Fault::KillAll
            | Fault::PauseLeader
            | Fault::FreezeLeader
            | Fault::Transfer
            | Fault::IsolateLeader
            | Fault::HardIsolateLeader
            | Fault::MuteLeader => true,
            Fault::KillOne
            | Fault::KillWhileStarting
            | Fault::PauseOne
            | Fault::Wiped
            | Fault::FullDisk
            | Fault::WallClock
            | Fault::Clocks
            | Fault::Grow
            | Fault::Shrink
            | Fault::Replace
            | Fault::Protocol
            | Fault::Split
            | Fault::Partial
            | Fault::OneWay
            | Fault::DeafOrDumb
            | Fault::Flap
            | Fault::HardSplit
            | Fault::HardOneWay
            | Fault::PacketLoss
            | Fault::Delay
            | Fault::Jumble
            | Fault::Resets
            | Fault::Corrupt
            | Fault::Narrow
            | Fault::Stalls => false,
        }
    }

    /// Its row in the fault model.
    pub fn id(self) -> &'static str {
        match self {
            Fault::KillOne | Fault::KillLeader => "F01",
            Fault::KillAll | Fault::KillWhileStarting => "F02",
            Fault::PauseOne | Fault::PauseLeader | Fault::FreezeLeader => "F03",
            Fault::FullDisk => "F12",
            Fault::Wiped => "F15",
            Fault::Split | Fault::IsolateLeader | Fault::HardSplit | Fault::HardIsolateLeader => "F30",
            Fault::Partial => "F31",
            Fault::OneWay | Fault::DeafOrDumb | Fault::HardOneWay | Fault::MuteLeader => "F32",
            Fault::Flap | Fault::PacketLoss | Fault::Delay | Fault::Jumble => "F33",
            Fault::Resets => "F34",
            Fault::Corrupt => "F35",
            Fault::Narrow | Fault::Stalls => "F37",
            Fault::WallClock => "F40",
            Fault::Clocks => "F41",
            Fault::Grow | Fault::Shrink | Fault::Transfer | Fault::Protocol => "F60",
            Fault::Replace => "F61",
        }
    }

    /// A description.
    pub fn name(self) -> &'static str {
        match self {
            Fault::KillOne => "kill -9 of one",
            Fault::KillLeader => "kill -9 of the leader",
            Fault::KillAll => "kill -9 of all",
            Fault::KillWhileStarting => "kill -9 while it starts",
            Fault::PauseOne => "SIGSTOP of one",
            Fault::PauseLeader => "SIGSTOP of the leader",
            Fault::FreezeLeader => "freezer over the leader",
            Fault::Wiped => "directory gone",
            Fault::FullDisk => "full disk",
            Fault::WallClock => "wall clock jumps by years",
            Fault::Clocks => "other rate, leaps ahead",
            Fault::Grow => "one member more",
            Fault::Shrink => "one member removed",
            Fault::Replace => "disk lost, back as a new member",
            Fault::Transfer => "leadership handed over",
            Fault::Protocol => "another protocol (--weak)",
            Fault::Split => "split",
            Fault::IsolateLeader => "leader alone",
            Fault::Partial => "two do not hear each other",
            Fault::OneWay => "one-way cut",
            Fault::DeafOrDumb => "one is deaf, or dumb",
            Fault::Flap => "split that comes and goes",
            Fault::HardSplit => "split by dropped packets",
            Fault::HardOneWay => "one-way cut by dropped packets",
            Fault::HardIsolateLeader => "leader alone by dropped packets",
            Fault::PacketLoss => "random loss of packets",
            Fault::MuteLeader => "leader's answers to clients dropped",
            Fault::Delay => "delay",
            Fault::Jumble => "messages twice and out of order",
            Fault::Resets => "resets in mid-frame",
            Fault::Corrupt => "flipped bits",
            Fault::Narrow => "narrow links",
            Fault::Stalls => "hanging connections",
        }
    }

    /// How long it lasts, in milliseconds.
    fn hold(self) -> std::ops::Range<u64> {
        match self {
            Fault::KillWhileStarting | Fault::Wiped | Fault::WallClock | Fault::Clocks => 0..1,
            Fault::Grow | Fault::Shrink | Fault::Replace | Fault::Transfer | Fault::Protocol => 0..1,
            Fault::PauseOne | Fault::PauseLeader | Fault::FreezeLeader => 1..2_500,
            Fault::FullDisk => 1_000..3_000,
            Fault::Delay | Fault::Jumble | Fault::Resets | Fault::Corrupt | Fault::Narrow | Fault::Stalls => {
                1_000..4_000
            }
            _ => 50..2_500,
        }
    }
}

/// One step of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Time since the beginning of the storm.
    pub at: Duration,
    /// The fault.
    pub fault: Fault,
    /// Whether it begins or ends.
    pub begins: bool,
    /// Decides its victim and strength.
    pub dice: u64,
}

/// The plan of one trial.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Three or five.
    pub members: usize,
    /// Every member has a small disk of its own.
    pub small_disks: bool,
    /// Places that are free at first.
    pub spare: usize,
    /// The clocks that lie, if any do.
    pub lie: Option<Lie>,
    /// In order of time.
    pub steps: Vec<Step>,
}

impl Plan {
    /// The plan of a seed; a storm of about `length`. With `is_weak` there are weak clients, and the protocol changes.
    pub fn new(seed: u64, length: Duration, skipped: &Skipped, is_weak: bool) -> Plan {
        let mut random = Random::of_part(seed, "plan");
        let members = if random.per_mille(700) { 3 } else { 5 };
        let small_disks = random.per_mille(200) && !skipped.has(Fault::FullDisk);
        let lie = match random.below(6) {
            0 => Some(Lie::Wall),
            1 => Some(Lie::All),
            _ => None,
        };
        let of_clocks = lie.map(Fault::of_clocks).filter(|fault| !skipped.has(*fault));
        let lie = lie.filter(|_| of_clocks.is_some());
        // If all clocks lie, a thread in a timed wait never wakes: the kernel gets the end of the wait by the library's
        // clock, years ahead of its own. A thread that looks at the disk once a second would look only once.
        let small_disks = small_disks && lie != Some(Lie::All);
        let spare = if random.per_mille(400) && !skipped.has(Fault::Grow) { 2 } else { 0 };
        // Faults that this trial is prepared for.
        let special = [small_disks.then_some(Fault::FullDisk), of_clocks];
        let mut steps = Vec::new();
        for lane in [Fault::OF_PROCESSES, Fault::OF_NETWORKS] {
            let possible: Vec<Fault> = lane
                .iter()
                .copied()
                .filter(|fault| !skipped.has(*fault) && !Fault::PREPARED.contains(fault))
                .collect();
            // Swarm: a trial uses only some faults, so that their mix differs from that of the next trial.
            let mut known = possible.clone();
            random.shuffle(&mut known);
            known.truncate(random.within(2..6) as usize);
            if lane == Fault::OF_PROCESSES {
                known.extend(special.into_iter().flatten());
                if 0 < spare {
                    known.extend(Fault::OF_CHANGES);
                }
                if is_weak {
                    known.extend(Fault::OF_WEAK);
                }
            }
            lay_out(&mut steps, &known, length, &mut random);
        }
        steps.sort_by_key(|step| step.at);
        Plan { members, small_disks, spare, lie, steps }
    }
}

fn lay_out(steps: &mut Vec<Step>, known: &[Fault], length: Duration, random: &mut Random) {
    let end = length.as_millis() as u64;
    let mut now = random.within(100..800);
    while now < end && !known.is_empty() {
        let fault = *random.pick(known);
        // Short ones are likelier: many bugs show at the edges.
        let hold = fault.hold();
        let most = random.within(hold.start..hold.end) + 1;
        let hold = random.within(hold.start..most);
        let dice = random.number();
        let at = Duration::from_millis(now);
        steps.push(Step { at, fault, begins: true, dice });
        steps.push(Step { at: at + Duration::from_millis(hold), fault, begins: false, dice });
        now += hold + random.within(50..1_200);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn plan(seed: u64) -> Plan {
        Plan::new(seed, Duration::from_secs(8), &Skipped::default(), false)
    }

    fn weak_plan(seed: u64) -> Plan {
        Plan::new(seed, Duration::from_secs(8), &Skipped::default(), true)
    }

    #[test]
    fn a_plan_is_decided_by_its_seed() {
        assert_eq!(plan(3).steps, plan(3).steps);
        assert_ne!(plan(3).steps, plan(4).steps);
    }

    #[test]
    fn every_fault_is_in_one_lane_and_comes_up_in_a_campaign() {
        let drawn: BTreeSet<Fault> =
            (0..100).flat_map(|seed| weak_plan(seed).steps).map(|step| step.fault).collect();
        let all: BTreeSet<Fault> = Fault::OF_PROCESSES.iter().chain(Fault::OF_NETWORKS).copied().collect();
        assert_eq!(all.len(), Fault::OF_PROCESSES.len() + Fault::OF_NETWORKS.len());
        assert_eq!(drawn, all);
        let changes = |step: &Step| step.fault == Fault::Protocol;
        assert!(!(0..100).any(|seed| plan(seed).steps.iter().any(changes)), "without weak clients it stays");
    }

    #[test]
    fn in_one_lane_a_fault_ends_before_the_next_begins() {
        for seed in 0..50 {
            for lane in [Fault::OF_PROCESSES, Fault::OF_NETWORKS] {
                let steps: Vec<Step> =
                    plan(seed).steps.into_iter().filter(|step| lane.contains(&step.fault)).collect();
                assert!(steps.len().is_multiple_of(2));
                for pair in steps.chunks(2) {
                    assert!(pair[0].begins && !pair[1].begins && pair[0].dice == pair[1].dice, "{pair:?}");
                }
            }
        }
    }

    #[test]
    fn no_disk_fills_up_where_the_return_of_room_could_not_be_seen() {
        let plans = || (0..500).map(plan);
        assert!(plans().all(|plan| !plan.small_disks || plan.lie != Some(Lie::All)));
        assert!(plans().any(|plan| plan.small_disks && plan.lie == Some(Lie::Wall)));
    }

    #[test]
    fn what_is_skipped_is_never_planned() {
        let skipped = Skipped(vec![(
            vec![Fault::FullDisk, Fault::HardSplit, Fault::WallClock, Fault::Clocks],
            "no root".into(),
        )]);
        for seed in 0..50 {
            let plan = Plan::new(seed, Duration::from_secs(8), &skipped, false);
            assert!(!plan.small_disks && plan.lie.is_none());
            assert!(plan.steps.iter().all(|step| !skipped.has(step.fault)));
        }
    }
}
