//! The conductor: carries out a plan against a cluster, each step at its time, and undoes all of it at the end.
//!
//! All its actions go into the timeline. A member that ends by itself is a violation. Mortal clients may be gone with a fault.
//! Knows nothing of: clients' answers, judges.

use crate::faults::{Fault, Plan, Step};
use crate::rules::Rules;
use crate::weak::Weak;
use kattu_random::Random;
use kattu_rig::Cluster;
use kattu_rig::clocks::Clock;
use kattu_rig::disk::{Ballast, SmallDisk};
use kattu_rig::member::Standing;
use kattu_rig::process::shown;
use kattu_rig::process::tail;
use kattu_rig::proxy::Proxy;
use kattu_rig::record::Recorder;
use kattu_rig::target::Target;
use kattu_rig::timeline::Timeline;
use kattu_rig::weather::Weather;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a member without its directory may take to refuse.
const REFUSAL_LIMIT: Duration = Duration::from_secs(20);

/// A fault for the leader waits so long for one: longer than an election.
const LEADER_LIMIT: Duration = Duration::from_millis(1_500);

/// A cluster in a storm.
pub struct Storm<'a> {
    /// The members.
    pub cluster: &'a mut Cluster,
    /// The links between them.
    pub proxy: &'a Proxy,
    /// The kernel's rules, if there are any.
    pub rules: Option<&'a Rules>,
    /// A small disk per member, or none.
    pub disks: &'a [SmallDisk],
    /// Records members' ends.
    pub recorder: &'a Arc<Recorder>,
    /// Records the events.
    pub timeline: &'a mut Timeline,
    /// Weak clients, if there are any.
    pub weak: Option<&'a mut Weak>,
    /// Faults that were carried out.
    pub counts: BTreeMap<Fault, u64>,
    /// Members that a fault of the first lane has hit.
    hit: Vec<usize>,
    ballast: Option<(usize, Ballast)>,
}

impl<'a> Storm<'a> {
    /// Before the first step.
    pub fn new(
        cluster: &'a mut Cluster,
        proxy: &'a Proxy,
        rules: Option<&'a Rules>,
        disks: &'a [SmallDisk],
        recorder: &'a Arc<Recorder>,
        timeline: &'a mut Timeline,
    ) -> Storm<'a> {
        Storm {
            cluster,
            proxy,
            rules,
            disks,
            recorder,
            timeline,
            weak: None,
            counts: BTreeMap::new(),
            hit: Vec::new(),
            ballast: None,
        }
    }

    /// Carries out a plan, then heals.
    ///
    /// # Errors
    /// A member did what no fault excuses, or the rig failed.
    pub(crate) fn rage(&mut self, plan: &Plan) -> Result<(), String> {
        let begun = Instant::now();
        let mut result = Ok(());
        for step in &plan.steps {
            std::thread::sleep((begun + step.at).saturating_duration_since(Instant::now()));
            result = self.cluster.check_ended().and_then(|()| match step.begins {
                true => self.begin(step),
                false => self.end(step),
            });
            if result.is_err() {
                break;
            }
        }
        result.and(self.heal())
    }

    /// Ends all faults and starts all members that are down.
    fn heal(&mut self) -> Result<(), String> {
        if let Some(weak) = &mut self.weak {
            weak.end_mortal();
        }
        self.proxy.links.calm();
        if let Some(rules) = self.rules {
            rules.heal()?;
        }
        if let Some((member, ballast)) = self.ballast.take() {
            drop(ballast);
            self.disks[member].relieve();
        }
        for member in &mut self.cluster.members {
            member.resume();
        }
        self.revive()?;
        self.timeline.say("healed");
        Ok(())
    }

    fn begin(&mut self, step: &Step) -> Result<(), String> {
        let mut random = Random::new(step.dice);
        let done = match step.fault {
            fault if Fault::OF_PROCESSES.contains(&fault) => self.hit_process(fault, &mut random)?,
            fault => self.hit_network(fault, &mut random)?,
        };
        let name = step.fault.name();
        match done {
            Some(whom) => {
                *self.counts.entry(step.fault).or_default() += 1;
                let are_gone =
                    self.weak.as_mut().is_some_and(|it| it.fault_has_begun(step.fault, &mut random));
                let with = if are_gone { ", and the mortal clients are gone" } else { "" };
                self.timeline.say(format!("{name}: {whom}{with}"));
            }
            None => self.timeline.say(format!("{name}: nobody to hit")),
        }
        Ok(())
    }

    fn end(&mut self, step: &Step) -> Result<(), String> {
        if Fault::OF_PROCESSES.contains(&step.fault) {
            for member in std::mem::take(&mut self.hit) {
                self.cluster.members[member].resume();
            }
            if let Some((member, ballast)) = self.ballast.take() {
                drop(ballast);
                self.disks[member].relieve();
            }
            self.revive()?;
        } else {
            self.proxy.links.calm();
            if let Some(rules) = self.rules {
                rules.heal()?;
            }
        }
        self.timeline.say(format!("{} is over", step.fault.name()));
        Ok(())
    }

    /// Starts all members that are down; does not wait.
    fn revive(&mut self) -> Result<(), String> {
        for (i, member) in self.cluster.members.iter_mut().enumerate() {
            let is_missed = match member.standing {
                Standing::Member => true,
                // Removed while it was down: it must find out and end.
                Standing::Leaving => member.last_end().is_none(),
                Standing::Spare => false,
            };
            if is_missed && !member.is_started() {
                // Once more: an answer of its last run may have been recorded after the first note.
                self.recorder.crashed(i as u64);
                member.spawn()?;
            }
        }
        self.cluster.note_processes();
        Ok(())
    }

    fn kill(&mut self, members: &[usize]) {
        for member in members {
            self.cluster.members[*member].strike();
        }
        for member in members {
            self.cluster.members[*member].kill();
            self.recorder.crashed(*member as u64);
        }
        self.cluster.note_processes();
    }

    /// The leader, also if it is elected within a moment.
    fn leader(&self) -> Option<usize> {
        let end = Instant::now() + LEADER_LIMIT;
        loop {
            let leader = self.cluster.leader_now();
            if leader.is_some() || end < Instant::now() {
                return leader;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn names(&self, members: &[usize]) -> String {
        members.iter().map(|i| self.cluster.members[*i].name.as_str()).collect::<Vec<_>>().join(" ")
    }

    /// Returns the victim.
    fn hit_process(&mut self, fault: Fault, random: &mut Random) -> Result<Option<String>, String> {
        let belonging = self.cluster.belonging();
        let any = *random.pick(&belonging);
        let leader = |storm: &Storm<'_>| storm.leader();
        match fault {
            Fault::KillOne => self.kill(&[any]),
            Fault::KillAll => {
                self.kill(&belonging);
                return Ok(Some(self.names(&belonging)));
            }
            Fault::KillLeader => {
                let Some(leader) = leader(self) else { return Ok(None) };
                self.kill(&[leader]);
                return Ok(Some(self.names(&[leader])));
            }
            Fault::KillWhileStarting => {
                for _ in 0..random.within(2..6) {
                    self.kill(&[any]);
                    self.cluster.members[any].spawn()?;
                    self.cluster.note_processes();
                    std::thread::sleep(Duration::from_millis(random.within(0..120)));
                    self.cluster.check_ended()?;
                }
                self.kill(&[any]);
            }
            Fault::PauseOne => {
                self.cluster.members[any].pause();
                self.hit.push(any);
            }
            Fault::PauseLeader | Fault::FreezeLeader => {
                let Some(leader) = leader(self) else { return Ok(None) };
                match fault {
                    Fault::FreezeLeader => self.cluster.members[leader].freeze(Duration::from_secs(5))?,
                    _ => self.cluster.members[leader].pause(),
                }
                self.hit.push(leader);
                return Ok(Some(self.names(&[leader])));
            }
            Fault::WallClock | Fault::Clocks => {
                let member = &mut self.cluster.members[any];
                let process = member.id();
                let obeys = |clock: &&mut Clock| process.is_some_and(|process| clock.is_over(process));
                let Some(clock) = member.clock.as_mut().filter(obeys) else { return Ok(None) };
                return Ok(Some(format!("{} {}", member.name, clock.jump(random)?)));
            }
            Fault::Grow => {
                let Some(i) = self.cluster.grow()? else { return Ok(None) };
                self.recorder.crashed(i as u64);
                return Ok(Some(self.names(&[i])));
            }
            Fault::Shrink => {
                if !self.cluster.shrink(any) {
                    return Ok(None);
                }
            }
            Fault::Replace => {
                self.kill(&[any]);
                if !self.cluster.replace(any)? {
                    return Ok(None);
                }
                self.recorder.crashed(any as u64);
            }
            Fault::Transfer => {
                if !self.cluster.transfer(any) {
                    return Ok(None);
                }
            }
            Fault::Protocol => {
                return Ok(self.weak.as_mut().and_then(|weak| weak.change(self.cluster, random)));
            }
            Fault::Wiped => {
                // A member killed while it joins has not voted or acknowledged yet: it joins once more.
                if !self.cluster.members[any].has_served() {
                    return Ok(None);
                }
                self.wipe(any)?;
            }
            Fault::FullDisk => {
                // A joining member without space for its first files ends with a message: it has not voted or
                // acknowledged yet.
                if !self.cluster.members[any].has_served() {
                    return Ok(None);
                }
                let Some(disk) = self.disks.get(any) else { return Ok(None) };
                self.ballast = Some((any, disk.fill_and_hold()));
            }
            other => return Err(format!("{other:?} is no fault of processes")),
        }
        Ok(Some(self.names(&[any])))
    }

    /// Checks that a member that has lost its directory does not go on without it.
    fn wipe(&mut self, i: usize) -> Result<(), String> {
        self.kill(&[i]);
        let member = &mut self.cluster.members[i];
        let aside = member.data.with_extension("aside");
        let moved = |error: std::io::Error| format!("{}: {error}", aside.display());
        std::fs::rename(&member.data, &aside).map_err(moved)?;
        member.spawn_with(&[], &["--initial-cluster-state=existing"])?;
        let status = member.end_within(REFUSAL_LIMIT);
        let said = member.log_text();
        // Cut off from all others it goes on asking for its identity, and has nothing to go on with meanwhile.
        let is_nobody = status.is_none() && !member.data.join("identity").exists() && !member.serves();
        let is_refused = is_nobody || status.is_some_and(|status| !status.success());
        member.kill();
        // Files that it may have made must be gone before the old directory comes back.
        let _ = std::fs::remove_dir_all(&member.data);
        std::fs::rename(&aside, &member.data).map_err(moved)?;
        if is_refused {
            return Ok(());
        }
        let how = status.map_or("goes on".to_string(), |status| format!("ended with {}", shown(status)));
        Err(format!("{} has lost its directory and {how} instead of refusing: {}", member.name, tail(&said)))
    }

    /// Returns the victims.
    fn hit_network(&mut self, fault: Fault, random: &mut Random) -> Result<Option<String>, String> {
        let members = self.cluster.belonging();
        let count = members.len();
        let mut order = members.clone();
        random.shuffle(&mut order);
        let (a, b) = (order[0], order[1]);
        let (left, right) = order.split_at(random.within(1..count as u64) as usize);
        let both_ways = |left: &[usize], right: &[usize]| -> Vec<(usize, usize)> {
            left.iter().flat_map(|a| right.iter().flat_map(move |b| [(*a, *b), (*b, *a)])).collect()
        };
        let others =
            |one: usize| -> Vec<usize> { members.iter().copied().filter(|other| *other != one).collect() };
        let all: Vec<(usize, usize)> =
            members.iter().flat_map(|&from| others(from).into_iter().map(move |to| (from, to))).collect();
        let cut = Weather { is_cut: true, ..Weather::default() };
        let calm = Weather::default();
        let ms = Duration::from_millis;
        let (pairs, weather) = match fault {
            Fault::Split | Fault::HardSplit => (both_ways(left, right), cut),
            Fault::IsolateLeader | Fault::HardIsolateLeader => {
                let Some(leader) = self.leader() else { return Ok(None) };
                (both_ways(&[leader], &others(leader)), cut)
            }
            Fault::Partial => (vec![(a, b), (b, a)], cut),
            Fault::OneWay | Fault::HardOneWay => (vec![(a, b)], cut),
            Fault::DeafOrDumb => {
                let is_deaf = random.per_mille(500);
                let pairs = others(a).into_iter().map(|other| if is_deaf { (other, a) } else { (a, other) });
                (pairs.collect(), cut)
            }
            Fault::Flap => {
                for _ in 0..random.within(2..5) {
                    for (from, to) in both_ways(left, right) {
                        self.proxy.links.set(from, to, cut);
                    }
                    // About half an election timeout: the worst interval.
                    std::thread::sleep(ms(random.within(150..400)));
                    self.proxy.links.calm();
                    std::thread::sleep(ms(random.within(50..300)));
                }
                (both_ways(left, right), cut)
            }
            Fault::PacketLoss => {
                let share = random.within(10..300) as u32;
                let rules = self.rules.ok_or("no rules")?;
                self.cluster.members.iter().try_for_each(|member| rules.lose(&member.endpoint, share))?;
                return Ok(Some(format!("{} of 100", share / 10)));
            }
            Fault::MuteLeader => {
                let Some(leader) = self.leader() else { return Ok(None) };
                self.rules.ok_or("no rules")?.mute(&self.cluster.members[leader].endpoint)?;
                return Ok(Some(self.names(&[leader])));
            }
            Fault::Delay => {
                let most = random.within(2..400);
                (some(&all, random), Weather { delay: (ms(random.within(0..most)), ms(most)), ..calm })
            }
            Fault::Jumble => {
                let (duplicate, reorder) = (random.within(20..300) as u32, random.within(20..300) as u32);
                (some(&all, random), Weather { duplicate, reorder, delay: (ms(0), ms(20)), ..calm })
            }
            Fault::Resets => (some(&all, random), Weather { reset: random.within(5..60) as u32, ..calm }),
            Fault::Corrupt => (some(&all, random), Weather { corrupt: random.within(2..40) as u32, ..calm }),
            Fault::Narrow => {
                (some(&all, random), Weather { bandwidth: random.within(4_000..200_000) as u32, ..calm })
            }
            Fault::Stalls => (some(&all, random), Weather { stall: random.within(5..50) as u32, ..calm }),
            other => return Err(format!("{other:?} is no fault of networks")),
        };
        let is_hard = matches!(fault, Fault::HardSplit | Fault::HardOneWay | Fault::HardIsolateLeader);
        for (from, to) in &pairs {
            match is_hard {
                true => {
                    let members = &self.cluster.members;
                    self.rules.ok_or("no rules")?.cut(&members[*from].endpoint, &members[*to].endpoint)?;
                }
                false => self.proxy.links.set(*from, *to, weather),
            }
        }
        let shown: Vec<String> = pairs.iter().map(|(from, to)| format!("{from}>{to}")).collect();
        let how = if weather.is_cut { String::new() } else { format!(" {weather:?}") };
        Ok(Some(format!("{}{how}", shown.join(" "))))
    }
}

/// All links, or some of them.
fn some(all: &[(usize, usize)], random: &mut Random) -> Vec<(usize, usize)> {
    let mut links = all.to_vec();
    if random.per_mille(500) {
        random.shuffle(&mut links);
        links.truncate(random.within(1..links.len() as u64) as usize);
    }
    links
}

/// Faults that this machine or this target does not support, each with the reason.
pub fn skipped(target: Target, rules: &Result<Rules, String>) -> Vec<(Vec<Fault>, String)> {
    let mut skipped = Vec::new();
    if let Err(why) = rules {
        let hard = vec![
            Fault::HardSplit,
            Fault::HardOneWay,
            Fault::HardIsolateLeader,
            Fault::PacketLoss,
            Fault::MuteLeader,
        ];
        skipped.push((hard, why.clone()));
    }
    if let Err(why) = kattu_rig::freezer::can_freeze() {
        skipped.push((vec![Fault::FreezeLeader], why));
    }
    if let Some(why) = kattu_rig::disk::missing(kattu_rig::disk::Rig::Loop) {
        skipped.push((vec![Fault::FullDisk], why));
    }
    if target == Target::Etcd {
        let why = "its new members vote before they have caught up".to_string();
        skipped.push((vec![Fault::Grow, Fault::Shrink, Fault::Replace], why));
    }
    let clocks = vec![Fault::WallClock, Fault::Clocks];
    if let Err(why) = kattu_rig::clocks::find() {
        skipped.push((clocks, why));
    } else if target == Target::Etcd {
        skipped.push((clocks, "a Go program asks the kernel for the time, not libc".to_string()));
    }
    if target == Target::Etcd {
        let why = "its peer streams carry no checksums: a flipped bit may be believed".to_string();
        skipped.push((vec![Fault::Corrupt], why));
        let why = "frames of its peer streams are not known to the proxy".to_string();
        skipped.push((vec![Fault::Jumble], why));
        let why = "it asks its peers for its past instead of refusing".to_string();
        skipped.push((vec![Fault::Wiped], why));
        let why = "it raises an alarm that an operator must disarm".to_string();
        skipped.push((vec![Fault::FullDisk], why));
    }
    skipped
}
