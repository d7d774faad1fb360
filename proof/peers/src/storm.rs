//! Storms: random faults in a small group. Messages are late, repeated, lost; disks are slow; members crash with part
//! of the unsynced records. One seed decides all of it. Then the faults end and the group must converge.

use crate::clock::Clock;
use crate::{Proof, Watch, World, config};
use kattu_raft::policy::{Capacity, Intake, Weak};
use kattu_raft::{
    Config, Duration, Instant, LeaderLease, LeadershipConfig, Limits, LinkEnd, Membership, NodeId, Policies,
    ReadPath, Timing, Tuning,
};

/// The error of the members' clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clocks {
    /// Clocks show any time, at rates within the bound of the leases.
    Within,
    /// Clocks run at any rate, and are not watched.
    Beyond,
}

/// Faults that only some storms have.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weather {
    /// Whether members come and go.
    pub members_change: bool,
    /// Whether the configuration sets and changes the election timeout.
    pub timings_change: bool,
    /// The member whose snapshots and log may be damaged.
    pub loser: Option<NodeId>,
    /// Whether entries take several streams, which overtake one another more often.
    pub streams: bool,
}

/// The storm's random numbers; peers have their own.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ (word >> 31)) % sides as u64) as usize
    }

    fn one_in(&mut self, sides: usize) -> bool {
        self.roll(sides) == 0
    }
}

/// A group drawn from the seed: 1 to 5 voters, perhaps a learner, sometimes members that may join, switches on or off,
/// limits wide or narrow.
fn draw_group(dice: &mut Dice) -> Vec<Config> {
    let voters = [3, 3, 3, 5, 5, 4, 2, 1][dice.roll(8)];
    let learners = dice.roll(4) as u64 / 3;
    let (guarded, parallel, pipelined, narrow) =
        (!dice.one_in(5), !dice.one_in(4), !dice.one_in(4), dice.one_in(2));
    let narrow_limits = Limits {
        batch_bytes_max: 40,
        batch_entries_max: 3,
        read_apart_bytes_min: usize::MAX,
        inflight_msgs_max: 2,
        inflight_bytes_max: 60,
        uncommitted_bytes_max: 100,
        apply_bytes_max: 50,
        recent_bytes_max: 60,
        recent_in_sync_bytes_max: 90,
        client_share_min: 80,
        snapshot_chunk_bytes_max: 100,
        snapshot_bytes_per_s: 10_000,
    };
    let joiners = [0, 1, 2][dice.roll(3)];
    let members = voters + learners;
    (1..=members + joiners)
        .map(|id| Config {
            pre_vote: guarded,
            check_quorum: guarded,
            parallel_append: parallel,
            pipelining: pipelined,
            limits: if narrow { narrow_limits } else { Limits::default() },
            voters: if id <= members { config(id, voters, learners).voters } else { Vec::new() },
            learners: if id <= members { config(id, voters, learners).learners } else { Vec::new() },
            ..config(id, voters, learners)
        })
        .collect()
}

/// Draws priorities and leases: leases in half of the groups that may have them, suspicion on or off.
fn draw_leadership(dice: &mut Dice, configs: &mut [Config], clocks: Clocks) {
    let rho = [5_000, 100_000][dice.roll(2)];
    // Beyond the bound the check of reads is to find the fault, so clocks are not watched.
    let watch = clocks == Clocks::Within;
    let lease =
        LeaderLease { rho, margin: Duration::from_millis(dice.roll(3) as u64 * 10), watch_clocks: watch };
    let (leased, suspicious) = (dice.one_in(2), !dice.one_in(4));
    for config in configs {
        let may = config.check_quorum && (leased || clocks == Clocks::Beyond);
        config.leadership = LeadershipConfig {
            priority: [100, 100, 100, 0, 255][dice.roll(5)],
            suspicion: Some(Duration::from_millis(1 + dice.roll(10) as u64)).filter(|_| suspicious),
            leader_lease: Some(lease).filter(|_| may),
            ..LeadershipConfig::default()
        };
    }
}

/// Different settings within a group: in some groups with leases, some members have none, or a shorter election
/// timeout, and grant shorter vote holds than others need. Drawn from separate dice, so that the rest of the storm
/// stays the same.
fn draw_disagreement(seed: u64, configs: &mut [Config], clocks: Clocks) {
    let mut dice = Dice(seed ^ 0x4c65_6173_6573);
    if !dice.one_in(3) || clocks == Clocks::Beyond {
        return;
    }
    for config in configs {
        match dice.roll(3) {
            0 => config.leadership.leader_lease = None,
            1 => config.election_timeout /= 2,
            _ => {}
        }
    }
}

/// In a third of the groups payloads of larger appends are read by jobs, in half of these never at once. Drawn from
/// separate dice, too.
fn draw_jobs(seed: u64, configs: &mut [Config]) -> Option<JobDice> {
    let mut dice = Dice(seed ^ 0x446f_6e65);
    if !dice.one_in(3) {
        return None;
    }
    let min = 1 + dice.roll(40);
    configs.iter_mut().for_each(|config| config.limits.read_apart_bytes_min = min);
    let slow = dice.one_in(2);
    Some(JobDice { dice, slow })
}

/// In half of the groups members have a window, narrow or wide. Drawn from separate dice, too.
fn draw_window(seed: u64, configs: &mut [Config]) -> bool {
    let mut dice = Dice(seed ^ 0x5769_6e64_6f77);
    if !dice.one_in(2) {
        return false;
    }
    let entries = [1, 2, 3, 5, 10, 1000][dice.roll(6)];
    let bytes = [100, 1000, 1 << 20][dice.roll(3)];
    let intake = Intake::Window(Capacity { entries, bytes });
    let weak = [Weak::Off, Weak::Gap, Weak::Receipt][dice.roll(3)];
    configs.iter_mut().for_each(|config| config.policies = Policies { intake, weak });
    true
}

/// In a third of the groups members are tuned while they run, each by itself. Drawn from separate dice, too.
fn draw_flips(seed: u64, configs: &[Config], clocks: Clocks) -> Option<Flips> {
    let mut dice = Dice(seed ^ 0x466c_6970);
    if !dice.one_in(3) || clocks == Clocks::Beyond {
        return None;
    }
    // The clocks of the storm are as wrong as this lease allows.
    let of_group = configs.iter().find_map(|config| config.leadership.leader_lease);
    let rho = of_group.map_or(5_000, |lease| lease.rho);
    let lease = LeaderLease { rho, margin: Duration::ZERO, watch_clocks: true };
    let lease = configs.iter().all(|config| config.check_quorum).then_some(of_group.unwrap_or(lease));
    Some(Flips { dice, lease })
}

/// Turns switches.
struct Flips {
    dice: Dice,
    /// Leases, in groups that may have them.
    lease: Option<LeaderLease>,
}

impl Flips {
    /// Tunes a member in one step of sixteen.
    fn roll(&mut self, world: &mut World) {
        let Flips { dice, lease } = self;
        let ids = world.ids();
        let id = ids[dice.roll(ids.len())];
        if !dice.one_in(16) || !world.runs(id) {
            return;
        }
        let reads = match (dice.roll(3), *lease) {
            (0, _) => ReadPath::Log,
            (1, Some(lease)) => ReadPath::Lease(lease),
            _ => ReadPath::Index,
        };
        let tuning = Tuning {
            batching: !dice.one_in(3),
            batch_entries_max: 1 + dice.roll(8),
            batch_bytes_max: 1 + dice.roll(80),
            pipelining: !dice.one_in(3),
            inflight_msgs_max: 1 + dice.roll(8),
            inflight_bytes_max: 1 + dice.roll(160),
            parallel_append: !dice.one_in(3),
            reads,
        };
        world.tune(id, &tuning);
    }
}

impl Flips {
    /// A member turns its leases off, which it may have turned on a moment before; a restart without leases may follow.
    fn end_leases(&mut self, world: &mut World, id: NodeId) {
        let Flips { dice, lease } = self;
        let Some(lease) = *lease else { return };
        if dice.one_in(2) {
            world.tune(id, &Tuning { reads: ReadPath::Index, ..world.raft(id).tuning() });
            world.pass(Duration::from_millis(dice.roll(300) as u64));
            world.tune(id, &Tuning { reads: ReadPath::Lease(lease), ..world.raft(id).tuning() });
            world.pass(Duration::from_millis(700 + dice.roll(500) as u64));
        }
        world.tune(id, &Tuning { reads: ReadPath::Index, ..world.raft(id).tuning() });
        if dice.one_in(2) {
            world.settle();
            world.peer(id).config.leadership.leader_lease = None;
            world.crash(id, usize::MAX);
            world.start(id);
        }
    }
}

/// Decides what becomes of jobs.
struct JobDice {
    dice: Dice,
    /// Whether jobs wait for their dice, whatever else a member does.
    slow: bool,
}

impl JobDice {
    /// Some jobs are done, in any order; a few are lost, and a few done again later, when their append may be forgotten.
    fn roll(&mut self, world: &mut World) {
        for id in world.ids() {
            let waiting = world.peers[&id].computing.len();
            if waiting == 0 || !self.dice.one_in(3) {
                continue;
            }
            let place = self.dice.roll(waiting);
            match self.dice.roll(12) {
                0 => world.lose_job(id, place),
                1 | 2 => world.compute(id, place, true),
                _ => world.compute(id, place, false),
            }
        }
    }
}

/// Any time, and a rate that is wrong by the permitted amount, or by far more.
fn draw_clock(dice: &mut Dice, config: &Config, now: Instant, clocks: Clocks) -> Clock {
    let rho = config.leadership.leader_lease.map_or(5_000, |lease| lease.rho) as usize;
    let wrong = match clocks {
        Clocks::Within => rho,
        Clocks::Beyond => 700_000,
    };
    let ppm = match dice.roll(3) {
        0 => wrong as i64,
        1 => -(wrong as i64),
        _ => dice.roll(2 * wrong + 1) as i64 - wrong as i64,
    };
    Clock::wrong(now, dice.roll(1 << 40) as u64, ppm)
}

/// A member's process ends. Connected members see its kernel close the connection, unless that is lost too.
fn kill(world: &mut World, dice: &mut Dice, id: NodeId) {
    let surviving = dice.roll(4);
    world.crash(id, surviving);
    lose_snapshots(world, dice, id);
    lose_entries(world, dice, id);
    for other in world.ids() {
        if world.runs(other) && !world.cut.contains(&(id, other)) && !dice.one_in(4) {
            world.act(other, |raft, now, effects| raft.link_closed(now, id, LinkEnd::ByPeer, effects));
        }
    }
}

/// The situation that leases and vote holds are for: a leader that the others cannot hear still gets reads, while the
/// others wait, or restart, or got a `TimeoutNow`, and elect another leader as soon as they may.
fn strand(world: &mut World, dice: &mut Dice, flips: Option<&mut Flips>, proposals: &mut u64) {
    for id in world.ids() {
        if !world.runs(id) {
            world.start(id);
        }
    }
    world.cut.clear();
    let calm = |world: &World| {
        world.leader().is_some_and(|leader| world.raft(leader).leader_lease_until().is_some())
    };
    let earned = world.pass_until(Duration::from_secs(3), calm);
    let Some(old) = world.leader().filter(|_| earned) else { return };
    world.pass(Duration::from_millis(dice.roll(150) as u64));
    if !world.runs(old) || !world.raft(old).is_leader() {
        return;
    }
    let others: Vec<NodeId> = world.ids().into_iter().filter(|&id| id != old).collect();
    let friend = others[dice.roll(others.len())];
    let mut late = Vec::new();
    let is_tuned = flips.is_some();
    if !is_tuned && dice.one_in(3) {
        // It starts a transfer and does not hear the outcome; or its `TimeoutNow` comes late, when another member
        // leads.
        let _ = world.act(old, |raft, now, effects| raft.transfer(now, friend, effects));
        if dice.one_in(2) {
            late.extend(world.wire.drain(..));
        }
        world.cut.extend(others.iter().map(|&other| (other, old)));
        world.settle();
    } else if is_tuned || dice.one_in(2) {
        // Only one voter hears it. That voter then restarts, and from then on hears only the others.
        for &other in others.iter().filter(|&&other| other != friend) {
            world.cut.extend([(other, old), (old, other)]);
        }
        world.pass(Duration::from_millis(700 + dice.roll(500) as u64));
        if let Some(flips) = flips {
            flips.end_leases(world, friend);
        } else {
            world.crash(friend, usize::MAX);
            world.start(friend);
        }
    } else if dice.one_in(2) {
        // Answers to its last round stay in flight for long.
        world.now = world.now.max(world.due(old));
        world.tick(old);
        for _ in 0..world.wire.len() {
            let Some(envelope) = world.wire.pop_front() else { break };
            world.deliver(envelope);
        }
        others.iter().for_each(|&other| world.drain(other));
        world.now += Duration::from_millis(dice.roll(900) as u64);
        for _ in 0..world.wire.len() {
            let Some(envelope) = world.wire.pop_front() else { break };
            if envelope.to == old {
                world.deliver(envelope);
            }
        }
    }
    for &other in &others {
        world.cut.extend([(other, old), (old, other)]);
    }
    for _ in 0..40 {
        world.pass(Duration::from_millis(dice.roll(100) as u64));
        if let Some(leader) = world.leader().filter(|&leader| leader != old) {
            *proposals += 1;
            let _ = world.propose(leader, proposals.to_string().as_bytes()); // a transfer may be under way
            world.settle();
        }
        if world.raft(old).is_leader() {
            world.read(old);
        }
    }
    world.cut.clear();
    for envelope in late {
        world.deliver(envelope);
    }
}

/// One random step.
fn blow(world: &mut World, dice: &mut Dice, proposals: &mut u64) {
    let ids = world.ids();
    let id = ids[dice.roll(ids.len())];
    let anybody = ids[dice.roll(ids.len())];
    match dice.roll(115) {
        // Time moves to the next deadline, or a little; members that are due are ticked, mostly.
        0..12 => {
            let due = ids.iter().filter(|id| world.runs(**id)).map(|id| world.due(*id)).min();
            let jump = due.filter(|due| *due < Instant::NEVER && dice.one_in(3)).unwrap_or(world.now);
            world.now = jump.max(world.now + Duration::from_millis(dice.roll(30) as u64));
            for id in ids {
                if world.runs(id) && world.due(id) <= world.now && !dice.one_in(5) {
                    world.tick(id);
                }
            }
        }
        12..45 => {
            let order = if world.weather.streams { 2 } else { 4 };
            for _ in 0..world.wire.len().min(1 + dice.roll(4)) {
                // Mostly in order, sometimes any message; sometimes a copy stays, or the message is lost.
                let position = if dice.one_in(order) { dice.roll(world.wire.len()) } else { 0 };
                if let Some(envelope) = world.wire.remove(position) {
                    if dice.one_in(12) {
                        world.wire.push_back(envelope.clone());
                    }
                    if !dice.one_in(15) {
                        world.deliver(envelope);
                    }
                }
            }
        }
        45..55 => {
            let target = if dice.one_in(4) { id } else { world.leader().unwrap_or(id) };
            for _ in 0..=dice.roll(3) {
                if world.runs(target) {
                    *proposals += 1;
                    let payload = format!("{:width$}", proposals, width = dice.roll(30));
                    let _ = world.propose(target, payload.as_bytes()); // refusals are normal in a storm
                }
            }
        }
        55..65 if world.runs(id) => world.drain(id),
        65..77 if world.runs(id) => {
            let records = if dice.one_in(2) { usize::MAX } else { 1 + dice.roll(3) };
            world.sync(id, records);
        }
        77..81 if world.runs(id) => world.apply(id, 1 + dice.roll(4)),
        81..84 if world.runs(id) => {
            let fails = dice.one_in(4);
            world.fetch(id, fails);
        }
        84..88 if world.runs(id) => {
            world.read(id);
        }
        88 => {
            let leader = world.leader().unwrap_or(id);
            if world.runs(leader) {
                // Refusals are normal in a storm.
                let _ = world.act(leader, |raft, now, effects| raft.transfer(now, anybody, effects));
            }
        }
        89 => kill(world, dice, id),
        90..92 => {
            if !world.runs(id) {
                world.start(id);
            }
        }
        92 => {
            world.cut.insert((id, anybody));
            if dice.one_in(2) {
                world.cut.insert((anybody, id));
            }
        }
        93 => world.cut.clear(),
        94 => {
            let half = 1 + dice.roll(ids.len());
            let (left, right) = ids.split_at(half.min(ids.len()));
            world.partition(&[left.to_vec(), right.to_vec()]);
        }
        95 if world.runs(id) => {
            let end = if dice.one_in(2) { LinkEnd::ByPeer } else { LinkEnd::Otherwise };
            world.act(id, |raft, now, effects| raft.link_closed(now, anybody, end, effects));
        }
        96 if world.runs(id) => world.act(id, |raft, _, _| raft.notify_commit(anybody)),
        97 if world.runs(id) => {
            let bytes = if dice.one_in(2) { u64::MAX } else { dice.roll(100) as u64 };
            world.act(id, |raft, _, _| raft.set_log_space(bytes));
        }
        98 if world.runs(id) => {
            // A completion that is not new.
            let lsn = world.peers[&id].disk.durable.lsn;
            world.complete(id, lsn);
        }
        100..103 if world.runs(id) => world.begin_snapshot(id),
        103..105 if world.runs(id) => {
            let keep = dice.roll(6) as u64;
            world.end_snapshot(id, keep);
        }
        105..107 if world.runs(id) => {
            let fails = dice.one_in(4);
            world.read_chunk(id, fails);
        }
        107..109 if world.runs(id) => world.store_chunk(id),
        109..113 => change_members(world, dice),
        113 if dice.one_in(4) => leave_behind(world, dice, proposals),
        _ => {
            for _ in 0..3 {
                if world.runs(id) {
                    world.attend(id);
                }
            }
        }
    }
}

/// A membership change: members join, leave, get or lose a vote, or several of these at once.
fn change_members(world: &mut World, dice: &mut Dice) {
    let Some(leader) = world.leader().filter(|_| world.weather.members_change) else { return };
    let now = world.raft(leader).membership();
    let (mut voters, mut learners) = (now.voters.clone(), now.learners.clone());
    let strangers: Vec<NodeId> = world.ids().into_iter().filter(|id| !now.contains(*id)).collect();
    for _ in 0..=dice.roll(3) / 2 {
        match dice.roll(6) {
            0 | 1 if !strangers.is_empty() => learners.push(strangers[dice.roll(strangers.len())]),
            2 | 3 if !learners.is_empty() => {
                let learner = learners.remove(dice.roll(learners.len()));
                voters.push(learner);
            }
            4 if !learners.is_empty() => drop(learners.remove(dice.roll(learners.len()))),
            5 if voters.len() > 1 => {
                let voter = voters.remove(dice.roll(voters.len()));
                if dice.one_in(3) {
                    learners.push(voter);
                }
            }
            _ => {}
        }
    }
    for list in [&mut voters, &mut learners] {
        list.sort_unstable();
        list.dedup();
    }
    let extensions = now.extensions.clone();
    let target = Membership { extensions, ..Membership::new(voters, learners) };
    let _ = world.change(leader, &target); // refusals are normal in a storm
}

/// Any member that believes to lead, a deposed one too, sets another election timeout.
fn change_timing(world: &mut World, dice: &mut Dice) {
    let leaders: Vec<NodeId> =
        world.ids().into_iter().filter(|&id| world.runs(id) && world.raft(id).is_leader()).collect();
    let Some(&leader) = leaders.get(dice.roll(leaders.len().max(1))) else { return };
    let election_timeout = Duration::from_millis([250, 500, 1000, 2000][dice.roll(4)]);
    let timing = Timing { election_timeout, heartbeat_interval: election_timeout / 10 };
    let mut target = world.raft(leader).membership().clone();
    target.extensions.timing = Some(timing);
    let _ = world.change(leader, &target); // refusals are normal in a storm
}

/// The newest snapshot of one member turns out damaged, or all of them.
fn lose_snapshots(world: &mut World, dice: &mut Dice, id: NodeId) {
    let Some(loser) = world.weather.loser else { return };
    if loser == id && dice.one_in(2) {
        let snapshots = &mut world.peer(id).disk.snapshots;
        if dice.one_in(2) {
            snapshots.clear();
        } else {
            snapshots.pop();
        }
    }
}

/// The log of one member turns out damaged from some entry on: the rest cannot be read any more.
fn lose_entries(world: &mut World, dice: &mut Dice, id: NodeId) {
    if world.weather.loser == Some(id) && dice.one_in(2) {
        let disk = &mut world.peer(id).disk;
        let kept = dice.roll(disk.durable.log.len() + 1);
        if kept < disk.durable.log.len() {
            disk.damage(kept, !dice.one_in(4));
        }
    }
}

/// The situation that truncation and installation are for: a leader that is not heard goes on to fill its log, while
/// the others elect another one, commit less than it has, and drop all of it that a snapshot covers.
fn leave_behind(world: &mut World, dice: &mut Dice, proposals: &mut u64) {
    let Some(old) = world.leader().filter(|&old| world.runs(old)) else { return };
    let others: Vec<NodeId> = world.ids().into_iter().filter(|&id| id != old).collect();
    world.partition(&[vec![old], others.clone()]);
    let propose = |world: &mut World, id: NodeId, proposals: &mut u64| {
        *proposals += 1;
        let _ = world.propose(id, proposals.to_string().as_bytes()); // refusals are normal in a storm
    };
    // Its disk may be so slow that it completes entries that were overwritten long before.
    let is_slow = dice.one_in(2);
    world.peer(old).held.disk = is_slow;
    if dice.one_in(2) {
        change_members(world, dice);
    }
    for _ in 0..3 + dice.roll(5) {
        propose(world, old, proposals);
    }
    let new = others.get(dice.roll(others.len().max(1))).filter(|&&new| world.runs(new));
    if let Some(&new) = new
        && world.elect(new)
    {
        for _ in 0..dice.roll(3) {
            propose(world, new, proposals);
        }
        world.settle();
        if !is_slow || dice.one_in(2) {
            world.begin_snapshot(new);
            world.end_snapshot(new, 0);
        }
    }
    if dice.one_in(2) {
        world.cut.clear();
    }
    if is_slow {
        world.pass(Duration::from_millis(dice.roll(300) as u64));
        for _ in 0..dice.roll(4) {
            if world.runs(old) {
                world.sync(old, 1 + dice.roll(3));
            }
        }
        world.peer(old).held.disk = false;
    }
}

/// The faults end: within a few election timeouts a leader commits, and all members apply the same.
fn clear_up(world: &mut World) {
    world.heal();
    for id in world.ids() {
        world.act(id, |raft, _, _| raft.set_log_space(u64::MAX));
    }
    let calm = world.pass_until(Duration::from_secs(30), |world| {
        let Some(leader) = world.leader() else { return false };
        let leader = world.raft(leader);
        let left = !leader.membership().is_joint() && leader.membership_at() <= leader.committed();
        let stays = leader.transferring().is_none();
        let settled = stays && leader.term_at(leader.committed()) == Some(leader.term());
        settled
            && left
            && leader.committed() == leader.last_id().index
            && leader.membership().members().all(|id| {
                let raft = world.raft(id);
                raft.last_id() == leader.last_id() && raft.applied_delivered() == leader.committed()
            })
    });
    let state = |id: &NodeId| {
        let raft = world.raft(*id);
        let members = crate::show::membership(raft.membership());
        format!(
            "{} base {}, {members} since {}",
            crate::show::status(raft),
            raft.base(),
            raft.membership_at().0
        )
    };
    let states: Vec<String> = world.ids().iter().map(state).collect();
    assert!(calm, "no convergence in 30 s after the storm: {states:#?}");
    let leader = world.leader().expect("a leader");
    let target = world.propose(leader, b"after the storm").expect("a healed leader takes proposals").index;
    let members: Vec<NodeId> = world.raft(leader).membership().members().collect();
    for id in &members {
        world.read(*id);
    }
    let served = world.pass_until(Duration::from_secs(5), |world| {
        let is_proven = |peer: &crate::Peer| !peer.has_past || matches!(peer.proof, Proof::Found(_));
        let proven = members.iter().all(|id| is_proven(&world.peers[id]));
        let all = |peer: &crate::Peer| peer.reading.is_empty() && peer.store.len() as u64 >= target.0;
        proven && members.iter().all(|id| all(&world.peers[id]))
    });
    assert!(served, "a healed group applies and reads, and no member waits for the proof of its start");
    transfer(world);
}

/// A leader of a healed group transfers leadership to its best successor.
fn transfer(world: &mut World) {
    let Some(leader) = world.leader() else { return };
    let Some(target) = world.raft(leader).best_successor(world.local(leader)) else {
        return assert_eq!(world.raft(leader).voters().len(), 1, "nobody can take over from {leader:?}");
    };
    if world.raft(target).is_damaged() {
        return; // a member below its vote floor cannot lead: the transfer would be in vain
    }
    let term = world.raft(leader).term();
    match world.act(leader, |raft, now, effects| raft.transfer(now, target, effects)) {
        Ok(()) | Err(kattu_raft::TransferError::UnderWay) => {}
        Err(error) => panic!("{leader:?} does not hand over to {target:?}: {error}"),
    }
    let calm = |world: &World| world.leader().is_some_and(|leader| world.raft(leader).term() > term);
    assert!(world.pass_until(Duration::from_secs(2), calm), "{leader:?} does not hand over to {target:?}");
}

/// One storm and the recovery after it. Panics if an invariant is violated.
pub fn storm(seed: u64, steps: usize) -> World {
    with_clocks(seed, steps, Clocks::Within)
}

/// The same, with these clocks.
pub fn with_clocks(seed: u64, steps: usize, clocks: Clocks) -> World {
    of(seed, steps, clocks, false, None)
}

/// A storm in which the configuration changes the election timeout, again and again.
pub fn with_timings(seed: u64, steps: usize) -> World {
    of(seed, steps, Clocks::Within, true, None)
}

/// A storm of plain Raft whose effects are all seen.
pub fn watched(seed: u64, steps: usize, watch: Watch) -> World {
    of(seed, steps, Clocks::Within, false, Some(watch))
}

fn of(seed: u64, steps: usize, clocks: Clocks, timings_change: bool, watch: Option<Watch>) -> World {
    let mut dice = Dice(seed);
    let mut configs = draw_group(&mut dice);
    draw_leadership(&mut dice, &mut configs, clocks);
    draw_disagreement(seed, &mut configs, clocks);
    let mut jobs = draw_jobs(seed, &mut configs);
    let mut flips = draw_flips(seed, &configs, clocks);
    let streams = watch.is_none() && draw_window(seed, &mut configs);
    // A removed member that does not learn of it asks for votes; only pre-vote and stickiness keep that harmless.
    let members_change = configs[0].pre_vote && !dice.one_in(3);
    let may_lose = configs[0].voters.len() >= 3 && !members_change;
    let loser = Some(configs[dice.roll(configs.len())].id).filter(|_| may_lose);
    let mut world = World::new(configs, seed);
    world.weather = Weather { members_change, timings_change, loser, streams };
    world.watch = watch;
    let mut timings = Dice(seed ^ 0x5469_6d69_6e67);
    world.leading.believes_leases = clocks == Clocks::Beyond;
    for id in world.ids() {
        let clock = draw_clock(&mut dice, &world.peers[&id].config, world.now, clocks);
        world.peer(id).clock = clock;
    }
    for id in world.ids() {
        world.start(id);
        world.peer(id).held.compute = jobs.as_ref().is_some_and(|jobs| jobs.slow);
    }
    let mut proposals = 0;
    let leased = world.peers.values().any(|peer| peer.config.leadership.leader_lease.is_some());
    for step in 0..steps {
        if leased && world.ids().len() > 1 && step % 500 == 250 {
            strand(&mut world, &mut dice, flips.as_mut(), &mut proposals);
        }
        if world.weather.timings_change && timings.one_in(25) {
            change_timing(&mut world, &mut timings);
        }
        blow(&mut world, &mut dice, &mut proposals);
        if let Some(flips) = &mut flips {
            flips.roll(&mut world);
        }
        if let Some(jobs) = &mut jobs {
            jobs.roll(&mut world);
        }
    }
    assert_eq!(
        world.clocks_apart, 0,
        "no_clock_is_accused_in_vain: all of them are within their bound [F42]"
    );
    if clocks == Clocks::Within {
        clear_up(&mut world); // with unbounded clocks a group may never agree
    }
    world
}
