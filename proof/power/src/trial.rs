//! One trial.
//!
//! 1. Every member gets a disk of its own and is started.
//! 2. Clients send without pause.
//! 3. At each moment of the plan the power is cut: all victims' disks stop answering, their members are killed, the
//!    disks are cut, so that no member ever sees an error of its disk.
//! 4. The remaining images are mounted again, `kattu wal inspect` checks the logs on them, the members start.
//! 5. At the end all members must serve, all replicas must hold the same, the judges decide; the members stop cleanly
//!    and the file systems are checked.
//!
//! A trial that fails keeps its folder: history, timeline, members' logs, the images after the last power cuts and at
//! the end.
//! Knows nothing of: campaigns.

mod verdict;
mod waits;

use crate::disk::{Disk, format};
use crate::fuse_disk::{Counts, Held, Trigger};
use crate::mount_namespace::{self, MountNamespace};
use crate::plan::{Plan, PowerCut, When, Who};
use crate::volatile_disk::{Fate, Image, Loss};
use kattu_random::Random;
use kattu_rig::changes::Change;
use kattu_rig::clients::Clients;
use kattu_rig::cluster::{BACK_LIMIT, Cluster};
use kattu_rig::faces::{Faces, Spoken};
use kattu_rig::member::Standing;
use kattu_rig::metrics_check::Seen;
use kattu_rig::place::Place;
use kattu_rig::record::{Ends, Recorder};
use kattu_rig::target::Target;
use kattu_rig::timeline::Timeline;
use kattu_verify::history::Record;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Writes that must be acknowledged after each power cut to show that the service is back.
const WRITES_AFTER: u64 = 30;
/// Writes acknowledged while the disks lie, before the power is cut.
const WRITES_LIED_ABOUT: u64 = 100;

/// The reason why a trial ended early.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// A guarantee was broken.
    Broken(String),
    /// The rig itself did not work; this says nothing about Kattu.
    Rig(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Broken(what) => f.write_str(what),
            Trouble::Rig(what) => write!(f, "THE RIG FAILED: {what}"),
        }
    }
}

/// The outcome of a trial.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Violations.
    pub violations: Vec<String>,
    /// The rig's error; then the trial proves nothing.
    pub rig: Option<String>,
    /// How operations ended.
    pub ends: Ends,
    /// Acknowledged writes that are lost.
    pub lost: u64,
    /// Answers that the judges compared with something.
    pub judged: u64,
    /// Power cuts, by kind of victims.
    pub power_cuts: BTreeMap<String, u64>,
    /// Disks cut, by the fate of unflushed writes.
    pub fates: BTreeMap<&'static str, u64>,
    /// Unflushed writes of all disks cut.
    pub loss: Loss,
    /// Logs that ended in a torn tail, of those found.
    pub torn_tails: u64,
    /// Logs found on images after a power cut.
    pub logs: u64,
    /// Snapshots taken by members, and starts from one.
    pub snapshots: (u64, u64),
    /// Membership changes requested, by kind and whether they were waited for.
    pub changes: BTreeMap<String, u64>,
    /// Work of members that was seen after the last power cut.
    pub seen: Seen,
    /// What native clients did.
    pub spoken: Spoken,
    /// Counts of the disks' requests.
    pub counts: Counts,
    /// The folder, if it is kept.
    pub kept: Option<PathBuf>,
}

/// Runs the trial of a plan. With `lying` disks the power is cut only after they have dropped acknowledged writes.
pub fn trial(plan: &Plan, target: Target, lying: bool) -> Outcome {
    let folder = mount_namespace::own().join(format!("seed-{}", plan.seed));
    let mount_namespace = match MountNamespace::open() {
        Ok(mount_namespace) => mount_namespace,
        Err(what) => return Outcome { rig: Some(what), ..Outcome::default() },
    };
    let mut trial = Trial {
        plan: plan.clone(),
        target,
        random: Random::of_part(plan.seed, "fates"),
        folder: folder.clone(),
        mount_namespace,
        disks: Vec::new(),
        remains: Vec::new(),
        recorder: Arc::new(Recorder::default()),
        timeline: Timeline::default(),
        history: Vec::new(),
        outcome: Outcome::default(),
    };
    trial.timeline.say(plan.to_string());
    let _ = std::fs::remove_dir_all(&folder);
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| trial.run(lying)));
    match caught {
        Ok(Ok(())) => {}
        Ok(Err(Trouble::Broken(what))) => trial.outcome.violations.push(what),
        Ok(Err(Trouble::Rig(what))) => trial.outcome.rig = Some(what),
        Err(_) => trial.outcome.rig = Some("it panicked; its words are above".into()),
    }
    trial.close(lying)
}

struct Trial {
    plan: Plan,
    target: Target,
    random: Random,
    folder: PathBuf,
    /// The namespace of the disks' mounts and the members.
    mount_namespace: MountNamespace,
    /// One per member; `None` while its power is off.
    disks: Vec<Option<Disk>>,
    /// Each disk's image after the last power cut.
    remains: Vec<Option<Image>>,
    recorder: Arc<Recorder>,
    timeline: Timeline,
    history: Vec<Record>,
    outcome: Outcome,
}

type Done = Result<(), Trouble>;

impl Trial {
    fn run(&mut self, lying: bool) -> Done {
        let rig = |error: std::io::Error| Trouble::Rig(error.to_string());
        std::fs::create_dir_all(&self.folder).map_err(rig)?;
        let fresh = format(&self.folder, &self.plan.layout).map_err(Trouble::Rig)?;
        let places = self.plan.members + self.plan.spare;
        self.disks = (0..places).map(|_| None).collect();
        self.remains = vec![None; places];
        for i in 0..places {
            self.mount(i, fresh.clone())?;
        }
        let homes: Vec<PathBuf> = self.disks.iter().flatten().map(|disk| disk.path().to_path_buf()).collect();
        let mut place = Place::loopback(places, false);
        place.endpoints.iter_mut().for_each(|endpoint| endpoint.prefix.extend(self.mount_namespace.prefix()));
        let hosts: Vec<String> = place.endpoints.iter().map(|endpoint| endpoint.host.clone()).collect();
        let token = format!("power-{}", self.plan.seed);
        let flags = self.plan.flags.clone();
        let mut cluster =
            Cluster::new(self.target, place, &homes, &self.folder, &token, self.plan.members, flags)
                .map_err(Trouble::Rig)?;
        let recorder = self.recorder.clone();
        let ended = self.conduct(&mut cluster, &hosts, &recorder, lying);
        cluster.kill_all();
        ended
    }

    fn conduct(
        &mut self,
        cluster: &mut Cluster,
        hosts: &[String],
        recorder: &Arc<Recorder>,
        lying: bool,
    ) -> Done {
        let mut power_cuts = self.plan.power_cuts.clone();
        if let Some(PowerCut { when: When::Birth(trigger), .. }) = power_cuts.first().copied() {
            let power_cut = power_cuts.remove(0);
            let armed = self.arm(&(0..self.plan.members).collect::<Vec<_>>(), trigger);
            self.start(cluster, None)?;
            self.await_trigger_or_service(cluster, armed)?;
            self.strike(cluster, power_cut)?;
        } else {
            self.start(cluster, None)?;
        }
        self.await_service(cluster)?;
        let (shape, seed) = (&self.plan.shape, self.plan.seed);
        let faces = Faces::draw(seed, self.target, shape);
        self.timeline.say(faces.to_string());
        let clients = Clients::start(hosts, cluster.ca.as_deref(), shape, &faces, seed, recorder);
        let clients = clients.map_err(Trouble::Rig)?;
        for power_cut in power_cuts {
            let When::Load { after, point } = power_cut.when else { continue };
            self.await_writes(cluster, after)?;
            if lying {
                let held: Vec<Held<'_>> =
                    self.disks.iter().flatten().map(|disk| disk.fuse_disk.hold()).collect();
                held.into_iter().for_each(Held::lie);
                self.timeline.say("the disks begin to lie");
                self.await_writes(cluster, WRITES_LIED_ABOUT)?;
            }
            let asked = match power_cut.change {
                Some(change) => self.change(cluster, change)?,
                None => None,
            };
            let victims = self.victims(cluster, power_cut.who);
            self.await_point(cluster, &victims, point)?;
            self.strike_at(cluster, power_cut, victims)?;
            self.await_service(cluster)?;
            if let Some(asked) = asked {
                let _ = asked.join();
            }
            if power_cut.change.is_some() {
                cluster.part().map_err(Trouble::Broken)?;
                self.await_service(cluster)?;
                cluster.agree_on_members().map_err(Trouble::Broken)?;
                let belonging = cluster.belonging();
                self.timeline.say(format!("they agree on who they are: {belonging:?}"));
            }
            self.await_writes(cluster, WRITES_AFTER)?;
        }
        if !lying {
            self.outcome.seen = cluster.prove(false).map_err(Trouble::Broken)?;
            self.timeline.say(self.outcome.seen.line());
        }
        self.outcome.spoken = clients.stop();
        self.timeline.say("clients stop");
        self.judge(cluster)?;
        self.end_in_order(cluster)
    }

    /// Makes a membership change. One that is not waited for goes on during the power cut.
    fn change(
        &mut self,
        cluster: &mut Cluster,
        (change, is_waited_for): (Change, bool),
    ) -> Result<Option<std::thread::JoinHandle<()>>, Trouble> {
        let whom = *self.random.pick(&cluster.belonging());
        let mut asked = None;
        let done = match (change, is_waited_for) {
            (_, false) => {
                asked = cluster.ask_and_go(change, whom);
                asked.is_some()
            }
            (Change::Add, true) => cluster.grow().map_err(Trouble::Rig)?.is_some(),
            (Change::Remove, true) => cluster.shrink(whom),
            (Change::Replace, true) => {
                cluster.members[whom].kill();
                self.recorder.crashed(whom as u64);
                match cluster.replace(whom).map_err(Trouble::Rig)? {
                    true => true,
                    false => {
                        // It was not removed in time: it goes on, or finds out that it was removed after all.
                        if cluster.members[whom].standing != Standing::Spare {
                            cluster.members[whom].spawn().map_err(Trouble::Rig)?;
                        }
                        false
                    }
                }
            }
        };
        let how = if is_waited_for { "made" } else { "under way" };
        self.timeline
            .say(format!("{change:?} n{whom}, {how}: {}", if done { "asked" } else { "nothing to do" }));
        *self.outcome.changes.entry(format!("{change:?}, {how}")).or_default() += u64::from(done);
        Ok(asked)
    }

    /// The victims of this kind; waits for a leader.
    fn victims(&mut self, cluster: &Cluster, who: Who) -> Vec<usize> {
        // A member that was removed and does not know it yet has a disk as well.
        let running = |cluster: &Cluster| -> Vec<usize> {
            (0..cluster.members.len()).filter(|&i| cluster.members[i].is_started()).collect()
        };
        let begun = Instant::now();
        let leader = loop {
            match cluster.leader_now() {
                Some(leader) => break leader,
                // Any member will do: the plan demands a power cut now.
                None if BACK_LIMIT < begun.elapsed() => break running(cluster)[0],
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        let count = cluster.belonging().len();
        let mut others = running(cluster);
        others.retain(|i| *i != leader);
        self.random.shuffle(&mut others);
        match who {
            Who::All => running(cluster),
            Who::Leader => vec![leader],
            Who::Follower => others.into_iter().take(1).collect(),
            Who::Minority => {
                let mut all = running(cluster);
                self.random.shuffle(&mut all);
                all.truncate(((count - 1) / 2).max(1));
                all
            }
        }
    }

    /// Arms one of these disks; returns its place.
    fn arm(&mut self, victims: &[usize], trigger: Trigger) -> usize {
        let armed = *self.random.pick(victims);
        if let Some(disk) = &self.disks[armed] {
            disk.fuse_disk.arm(trigger);
        }
        armed
    }

    fn has_tripped(&self, armed: usize) -> bool {
        self.disks[armed].as_ref().is_some_and(|disk| disk.fuse_disk.has_tripped())
    }

    /// Cuts the power of all first members, as at birth.
    fn strike(&mut self, cluster: &mut Cluster, power_cut: PowerCut) -> Done {
        self.strike_at(cluster, power_cut, (0..self.plan.members).collect())
    }

    /// One power cut, the restart, and the second power cut during it if there is one.
    fn strike_at(&mut self, cluster: &mut Cluster, power_cut: PowerCut, victims: Vec<usize>) -> Done {
        let birth = if matches!(power_cut.when, When::Birth(_)) { " at birth" } else { "" };
        self.cut(cluster, &victims, &format!("{:?}{birth}", power_cut.who))?;
        let armed = match power_cut.again {
            None => {
                self.restore(cluster, &victims, None)?;
                return Ok(());
            }
            Some(trigger) => self.restore(cluster, &victims, Some(trigger))?,
        };
        if let Some(armed) = armed {
            self.await_trigger_or_service(cluster, armed)?;
        }
        self.cut(cluster, &victims, &format!("{:?} in recovery", power_cut.who))?;
        self.restore(cluster, &victims, None).map(|_| ())
    }

    /// Cuts the power of some members in one instant.
    fn cut(&mut self, cluster: &mut Cluster, victims: &[usize], what: &str) -> Done {
        cluster.check_ended().map_err(Trouble::Broken)?;
        let held: Vec<Held<'_>> = victims
            .iter()
            .filter_map(|i| self.disks[*i].as_ref())
            .map(|disk| disk.fuse_disk.hold())
            .collect();
        // Killed while their disks answer nothing: none of them lives to see an error.
        victims.iter().for_each(|i| cluster.members[*i].strike());
        held.into_iter().for_each(Held::cut);
        *self.outcome.power_cuts.entry(what.to_string()).or_default() += 1;
        self.timeline
            .say(format!("{what}: power off for {victims:?}, {} writes done", self.recorder.acknowledged()));
        for &i in victims {
            cluster.members[i].kill();
            self.recorder.crashed(i as u64);
        }
        for &i in victims {
            let Some(disk) = self.disks[i].take() else { continue };
            let fuse_disk = disk.fuse_disk.clone();
            disk.down();
            let fate = Fate::draw(&mut self.random);
            let (image, loss) = fuse_disk.remains(fate, &mut self.random);
            self.timeline.say(format!("n{i}: {fate:?}, {loss:?}"));
            self.outcome.count(fate, loss, fuse_disk.counts());
            self.remains[i] = Some(image);
        }
        Ok(())
    }

    /// Mounts the images, checks the logs, starts the members; arms one of the disks in between if asked.
    fn restore(
        &mut self,
        cluster: &mut Cluster,
        victims: &[usize],
        again: Option<Trigger>,
    ) -> Result<Option<usize>, Trouble> {
        for &i in victims {
            let image = self.remains[i].clone().expect("what was cut left something");
            self.mount(i, image)?;
            self.inspect(cluster, i)?;
        }
        let armed = again.map(|trigger| self.arm(victims, trigger));
        self.start(cluster, Some(victims))?;
        Ok(armed)
    }

    fn mount(&mut self, i: usize, image: Image) -> Done {
        let folder = self.folder.join(format!("n{i}"));
        let disk = Disk::up(&self.mount_namespace, &folder, image, &self.plan.layout)
            .map_err(|error| Trouble::Rig(format!("n{i}: what the loss left cannot be mounted: {error}")))?;
        self.disks[i] = Some(disk);
        Ok(())
    }

    fn start(&mut self, cluster: &mut Cluster, which: Option<&[usize]>) -> Done {
        for (i, member) in cluster.members.iter_mut().enumerate() {
            let is_meant = which.is_none_or(|which| which.contains(&i));
            // A removed member that has ended stays away.
            if is_meant && member.standing != Standing::Spare && member.last_end().is_none() {
                member.spawn().map_err(Trouble::Rig)?;
            }
        }
        Ok(())
    }
}

impl Outcome {
    fn count(&mut self, fate: Fate, loss: Loss, counts: Counts) {
        *self.fates.entry(fate.name()).or_default() += 1;
        self.loss.add(loss);
        self.counts.add(counts);
    }
}
