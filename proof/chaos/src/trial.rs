//! One trial: a cluster, clients, a storm, calm, the verdict.
//!
//! 1. Start, and wait until all members serve.
//! 2. Clients send without pause, in a third of the trials by the native protocol, too; the plan of the seed is carried out. With
//!    `--weak` there are weak clients beside them.
//! 3. All faults end; every member must serve, writes be acknowledged and clients of each face answered again; comparisons, scrubs and leader leases
//!    go on, and no member is reported.
//! 4. Clients stop; all replicas must hold the same.
//! 5. All members are killed and restarted: the state now is the final one.
//! 6. The judges decide; where links were limited, the member behind them catches up from far behind first.
//!
//! A trial that fails keeps its folder: history, timeline, members' logs. A *control* cheats between 4 and 5: all
//! members go back to their state after the storm, as if all disks had lied. The judges must notice it.
//! Knows nothing of: campaigns.

use crate::faults::{Fault, Plan, Skipped};
use crate::limited::{Limited, Use};
use crate::rules::Rules;
use crate::storm::Storm;
use crate::weak::{self, Weak};
use kattu_random::Random;
use kattu_rig::clients::Clients;
use kattu_rig::clocks::{self, Clock};
use kattu_rig::cluster::{BACK_LIMIT, Cluster};
use kattu_rig::disk::SmallDisk;
use kattu_rig::faces::{Faces, Spoken};
use kattu_rig::flags::Flags;
use kattu_rig::member::Standing;
use kattu_rig::metrics_check::Seen;
use kattu_rig::place::{Place, is_inside};
use kattu_rig::proxy::Proxy;
use kattu_rig::record::{Ends, Recorder, ends};
use kattu_rig::target::Target;
use kattu_rig::timeline::Timeline;
use kattu_rig::verdict::{failure_of, folder, judge, keep_or_remove};
use kattu_rig::weather::Counts;
use kattu_rig::workload::Shape;
use kattu_verify::history::Record;
use kattu_verify::judges::FinalState;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

const DISK_MIB: u64 = 200;
/// Writes that must be acknowledged after the faults to show that the service is back.
const WRITES_AFTER: u64 = 20;

/// Settings that all trials of a run share.
pub struct Setting {
    /// The system under test.
    pub target: Target,
    /// About how long a storm lasts.
    pub length: Duration,
    /// The kernel's rules, or the reason why there are none.
    pub rules: Result<Rules, String>,
    /// Faults that are not supported here.
    pub skipped: Skipped,
    /// Cheat, and check that the judges notice.
    pub is_control: bool,
    /// Weak clients, beside all others.
    pub is_weak: bool,
}

/// The outcome of a trial.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Violations, each of one or more lines.
    pub violations: Vec<String>,
    /// How operations ended.
    pub ends: Ends,
    /// Acknowledged writes that are lost.
    pub lost: u64,
    /// Answers that the judges compared with something.
    pub judged: u64,
    /// Faults that happened.
    pub faults: BTreeMap<Fault, u64>,
    /// Changes that the proxy made to pieces.
    pub pieces: Counts,
    /// Work of members that was seen after the faults.
    pub seen: Seen,
    /// From the end of the faults until all members served.
    pub back: Duration,
    /// Whether links were limited, and their use.
    pub limited: (bool, Option<Use>),
    /// What native clients did.
    pub spoken: Spoken,
    /// What weak clients did.
    pub weak: weak::Done,
    /// Breaches that the ledger of weak clients has found; they are among the violations, too.
    pub weak_broken: u64,
}

impl Outcome {
    /// Whether all judges that could see the cheating of a control have seen it.
    #[must_use]
    pub fn is_caught(&self, is_weak: bool) -> bool {
        0 < self.lost && (!is_weak || 0 < self.weak_broken)
    }
}

/// Runs one trial.
pub fn run(seed: u64, setting: &Setting) -> Outcome {
    let folder = folder("chaos", setting.target, seed);
    let mut trial = Trial { outcome: Outcome::default(), timeline: Timeline::default(), history: Vec::new() };
    let failure = failure_of(|| trial.run(seed, setting, &folder));
    trial.outcome.violations.extend(failure);
    // A control that was caught needs no report.
    let is_caught = setting.is_control && trial.outcome.is_caught(setting.is_weak);
    let worth_keeping = if is_caught { &[][..] } else { &trial.outcome.violations[..] };
    keep_or_remove(&folder, worth_keeping, &trial.timeline, &trial.history);
    trial.outcome
}

struct Trial {
    outcome: Outcome,
    timeline: Timeline,
    history: Vec<Record>,
}

/// The clients of a trial, and what they record.
#[derive(Clone, Copy)]
struct Load<'a> {
    recorder: &'a Arc<Recorder>,
    clients: &'a Clients,
    faces: &'a Faces,
    weak: Option<&'a Weak>,
}

impl Trial {
    fn run(&mut self, seed: u64, setting: &Setting, folder: &Path) -> Result<(), String> {
        let plan = Plan::new(seed, setting.length, &setting.skipped, setting.is_weak);
        let place = match is_inside() {
            true => Place::namespaces(plan.members + plan.spare)?,
            false => Place::loopback(plan.members + plan.spare, true),
        };
        let disks = small_disks(&plan, seed)?;
        let homes: Vec<PathBuf> = match disks.is_empty() {
            true => (0..plan.members + plan.spare).map(|i| folder.join(format!("n{i}"))).collect(),
            false => disks.iter().map(|disk| disk.path().to_path_buf()).collect(),
        };
        for home in &homes {
            std::fs::create_dir_all(home).map_err(|error| error.to_string())?;
        }
        let hosts: Vec<String> = place.endpoints.iter().map(|endpoint| endpoint.host.clone()).collect();
        let endpoints = place.endpoints.clone();
        let limited = Limited::draw(seed, plan.members);
        let mut flags = Flags::draw(seed, setting.target, plan.lie);
        let draw = setting.is_weak.then(|| weak::Draw::of(seed, plan.lie));
        if let Some(draw) = &draw {
            draw.add_to(&mut flags);
        }
        self.timeline.say(format!("members with {flags}"));
        let token = format!("chaos-{seed}");
        let mut cluster = Cluster::new(setting.target, place, &homes, folder, &token, plan.members, flags)?;
        if let Some(lie) = plan.lie {
            let (library, mut random) = (clocks::find()?, Random::of_part(seed, "clocks"));
            for (i, member) in cluster.members.iter_mut().enumerate() {
                let file = folder.join(format!("n{i}.clock"));
                member.clock = Some(Clock::new(&library, file, lie, &mut random)?);
            }
        }
        let knows_frames = setting.target == Target::Kattu;
        let proxy = Proxy::start(&endpoints, knows_frames, seed, cluster.processes.clone())?;
        if let Some(limited) = limited {
            limited.impose(&proxy.links, endpoints.len());
        }
        cluster.spawn_all()?;
        cluster.until_served()?;
        let what = if plan.small_disks { ", a small disk each" } else { "" };
        let spare = if 0 < plan.spare { ", members come and go" } else { "" };
        let lie = plan.lie.map_or(String::new(), |lie| format!(", clocks that lie: {lie:?}"));
        self.timeline.say(format!("{} members serve{what}{spare}{lie}", plan.members));
        if let Some(limited) = limited {
            self.timeline.say(format!("limited links: {limited:?}"));
        }

        let recorder = Arc::new(Recorder::default());
        let shape = Shape::of_storm(&mut Random::of_part(seed, "shape"));
        self.timeline.say(format!("{shape:?}"));
        let faces = Faces::draw(seed, setting.target, &shape);
        self.timeline.say(faces.to_string());
        let mut clients = Clients::start(&hosts, cluster.ca.as_deref(), &shape, &faces, seed, &recorder)?;
        let mut weak = match draw {
            Some(draw) => {
                self.timeline.say(format!("weak clients: {draw:?}"));
                Some(Weak::start(draw, seed, &mut cluster, &hosts, &recorder)?)
            }
            None => None,
        };
        let mut storm = Storm::new(
            &mut cluster,
            &proxy,
            setting.rules.as_ref().ok(),
            &disks,
            &recorder,
            &mut self.timeline,
        );
        storm.weak = weak.as_mut();
        let raged = storm.rage(&plan);
        self.outcome.faults = std::mem::take(&mut storm.counts);
        self.outcome.pieces = proxy.links.counts();
        let load = Load { recorder: &recorder, clients: &clients, faces: &faces, weak: weak.as_ref() };
        let mut ended = raged.and_then(|()| self.calm(&mut cluster, load));
        if setting.is_control && ended.is_ok() {
            ended = remember(&mut cluster).and_then(|()| self.calm(&mut cluster, load));
        }
        clients.end();
        self.outcome.spoken = clients.spoken();
        if let Some(weak) = weak.as_mut().filter(|_| ended.is_ok()) {
            weak.flush();
            self.timeline.say("weak clients have flushed");
        }
        let ended = ended.and_then(|()| self.settle(&mut cluster, &recorder, setting.is_control));
        if let (Some(weak), Ok(last)) = (&weak, &ended) {
            let (done, broken) = weak.judge(last);
            self.timeline.say(done.line());
            self.outcome.weak = done;
            self.outcome.weak_broken = broken.len() as u64;
            self.outcome.violations.extend(broken);
        }
        self.history = recorder.take();
        self.outcome.ends = ends(&self.history);
        let last = ended?;
        self.outcome.limited.0 = limited.is_some();
        if let Some(limited) = limited.filter(|_| !setting.is_control) {
            match limited.judge(&mut cluster, &proxy.links) {
                Ok(used) => self.outcome.limited.1 = used,
                Err(what) => self.outcome.violations.push(what),
            }
            self.timeline.say(format!("limited links: {:?}", self.outcome.limited.1));
        }
        if let Some(words) = cluster.bad_words() {
            self.outcome.violations.push(words);
        }
        drop(cluster);
        let (broken, lost, judged) = judge(&self.history, &last);
        self.outcome.violations.extend(broken);
        (self.outcome.lost, self.outcome.judged) = (lost, judged);
        Ok(())
    }

    /// After the faults the service must come back by itself.
    fn calm(&mut self, cluster: &mut Cluster, load: Load<'_>) -> Result<(), String> {
        let Load { recorder, clients, faces, weak } = load;
        cluster.part()?;
        let (before, answers) = (recorder.acknowledged(), clients.answers());
        self.outcome.back = cluster.until_served()?;
        self.timeline.say(format!("everybody serves after {:?}", self.outcome.back));
        if let Some(weak) = weak {
            weak.turn_on(cluster)?;
        }
        let accepted = weak.map(Weak::accepted).unwrap_or_default();
        let begun = Instant::now();
        loop {
            let unanswered = faces.unanswered(answers, clients.answers()).map(|face| format!("{face:?}"));
            let unanswered = unanswered.or_else(|| weak.and_then(|weak| weak.unanswered(&accepted)));
            let acknowledged = recorder.acknowledged() - before;
            if WRITES_AFTER <= acknowledged && unanswered.is_none() {
                break;
            }
            cluster.check_ended()?;
            if BACK_LIMIT < begun.elapsed() {
                return Err(format!(
                    "{BACK_LIMIT:?} after the faults {acknowledged} writes of {WRITES_AFTER} were acknowledged; no answer: \
                     {unanswered:?}"
                ));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.timeline.say("writes are acknowledged, and clients of each face answered");
        cluster.agree_on_members()?;
        self.outcome.seen = cluster.prove(false)?;
        self.timeline.say(self.outcome.seen.line());
        Ok(())
    }

    /// Replicas agree, and still do after all were killed at once.
    fn settle(
        &mut self,
        cluster: &mut Cluster,
        recorder: &Arc<Recorder>,
        is_control: bool,
    ) -> Result<FinalState, String> {
        let before = cluster.agreed_state()?;
        self.timeline.say(format!("all hold revision {} with {} keys", before.revision, before.kvs.len()));
        cluster.kill_all();
        for i in 0..cluster.members.len() {
            recorder.crashed(i as u64);
        }
        if is_control {
            forget(cluster)?;
            cluster.spawn_all()?;
            cluster.until_served()?;
            return cluster.agreed_state();
        }
        cluster.spawn_all()?;
        cluster.until_served()?;
        let after = cluster.agreed_state()?;
        cluster.nothing_is_reported()?;
        self.timeline.say("the same after a restart of all");
        // An open write may have been carried out meanwhile; otherwise nothing changes.
        if after.revision < before.revision {
            return Err(format!(
                "revision {} before a restart of all, {} after",
                before.revision, after.revision
            ));
        }
        Ok(after)
    }
}

/// Copies every member's directory while all are down.
fn remember(cluster: &mut Cluster) -> Result<(), String> {
    cluster.kill_all();
    for member in cluster.members.iter().filter(|member| member.standing == Standing::Member) {
        copy(&member.data, &member.data.with_extension("old"))?;
    }
    cluster.spawn_all()
}

/// Puts the copies back.
fn forget(cluster: &Cluster) -> Result<(), String> {
    for member in cluster.members.iter().filter(|member| member.standing == Standing::Member) {
        std::fs::remove_dir_all(&member.data).map_err(|error| error.to_string())?;
        copy(&member.data.with_extension("old"), &member.data)?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let copied = std::process::Command::new("cp").arg("-a").args([from, to]).status();
    match copied.map_err(|error| error.to_string())?.success() {
        true => Ok(()),
        false => Err(format!("cp -a {} {}", from.display(), to.display())),
    }
}

fn small_disks(plan: &Plan, seed: u64) -> Result<Vec<SmallDisk>, String> {
    let count = if plan.small_disks { plan.members + plan.spare } else { 0 };
    (0..count).map(|i| SmallDisk::make(&format!("chaos-{seed}-{i}"), DISK_MIB)).collect()
}
