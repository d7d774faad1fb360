//! One trial of `cargo xtask kills`: a loaded cluster of three, one member of which is struck at its n-th system call.
//!
//! | Harm | What the member must do |
//! |---|---|
//! | SIGKILL | die; everything acknowledged is there when it starts again |
//! | EIO of a sync | end by itself: the disk's contents are unknown (ST3) |
//! | EIO of another call | end by itself, or go on; never lose anything |
//! | ENOSPC of `fallocate` or `rename` while it serves | go on, serve reads, take writes again when there is space |
//! | ENOSPC of another call, or while it starts | end with an error, or go on |
//!
//! A member struck while it joins is the fourth. Afterwards it starts without strace, all replicas must agree, all are
//! killed and restarted, and the judges check the history.
//! Knows nothing of: campaigns.

use crate::calls::{self, Harm, KINDS, Phase, Ranges, Strike};
use kattu_random::Random;
use kattu_rig::READY;
use kattu_rig::clients::Clients;
use kattu_rig::cluster::{BACK_LIMIT, Cluster};
use kattu_rig::faces::{Faces, Spoken};
use kattu_rig::flags::Flags;
use kattu_rig::metrics_check::Seen;
use kattu_rig::place::Place;
use kattu_rig::process::shown;
use kattu_rig::process::tail;
use kattu_rig::record::{Ends, Recorder, ends};
use kattu_rig::target::Target;
use kattu_rig::timeline::Timeline;
use kattu_rig::verdict::{failure_of, folder, judge, keep_or_remove};
use kattu_rig::workload::Shape;
use kattu_verify::history::Record;
use kattu_verify::judges::FinalState;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

const MEMBERS: usize = 3;
/// Acknowledged writes of a measured run, and of the first half of a recovery.
const WRITES_MEASURED: u64 = 400;
const WRITES_BEFORE_RECOVERY: u64 = 120;
/// A strike that has not happened after so many writes will not happen.
const WRITES_MAX: u64 = 700;
const STRIKE_LIMIT: Duration = Duration::from_secs(10);
/// Writes that must be acknowledged while a member has no disk space, and after it is back.
const WRITES_MEANWHILE: u64 = 15;
/// A member whose sync failed must end within this.
const END_LIMIT: Duration = BACK_LIMIT;

/// The outcome of a trial.
#[derive(Debug)]
pub struct Outcome {
    /// The plan.
    pub strike: Strike,
    /// Whether the member met it.
    pub was_met: bool,
    /// Violations.
    pub violations: Vec<String>,
    /// How operations ended.
    pub ends: Ends,
    /// Acknowledged writes that are lost.
    pub lost: u64,
    /// Answers that the judges compared with something.
    pub judged: u64,
    /// Work of members that was seen after the strike.
    pub seen: Seen,
    /// What native clients did.
    pub spoken: Spoken,
}

/// Measures how many calls of each kind a member makes in each phase.
///
/// # Errors
/// A run without any harm failed.
pub fn measure(target: Target) -> Result<Ranges, String> {
    let mut ranges = Ranges::new();
    // All flags that may be drawn and add calls, so that the ranges include them.
    let flags = match target {
        Target::Kattu => Flags { leases: true, digest_ms: 500, scrub_ms: 500, ..Flags::default() },
        Target::Etcd => Flags::default(),
    };
    let phases = [(Phase::Load, 1), (Phase::Rotation, 2), (Phase::Recovery, 3), (Phase::Joining, 4)];
    // etcd gives the new member a vote before it has started: another protocol.
    let phases = phases.into_iter().filter(|(phase, _)| *phase != Phase::Joining || target == Target::Kattu);
    for (phase, seed) in phases {
        let folder = folder("measure", target, seed);
        let trace = folder.join("trace");
        let mut trial = Trial::begin(target, seed, phase, &folder, flags.clone())?;
        trial.victim = if phase == Phase::Joining { MEMBERS } else { 0 };
        trial.is_switched = true;
        trial.live_once(phase)?;
        trial.cluster.members[trial.victim].spawn_with(&calls::counting(&trace), &[])?;
        trial.cluster.spawn_all()?;
        trial.cluster.until_served()?;
        let ready =
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |it| it.as_secs_f64());
        trial.until_written(WRITES_MEASURED, STRIKE_LIMIT);
        trial.cluster.members[trial.victim].kill();
        drop(trial);
        let text = std::fs::read_to_string(&trace).map_err(|error| error.to_string())?;
        for (kind, (before, all)) in calls::count(&text, ready) {
            match phase {
                Phase::Recovery | Phase::Joining => {
                    ranges.insert((phase, kind), (1, (before * 3 / 2).clamp(1, all)));
                }
                _ => {
                    if phase == Phase::Load && 0 < before {
                        ranges.insert((Phase::FirstStart, kind), (1, before));
                    }
                    if before < all {
                        ranges.insert((phase, kind), (before + 1, all));
                    }
                }
            }
        }
        let _ = std::fs::remove_dir_all(&folder);
    }
    Ok(ranges)
}

/// Runs one trial.
pub fn run(seed: u64, target: Target, ranges: &Ranges) -> Outcome {
    let mut random = Random::of_part(seed, "strike");
    let strike = Strike::draw(&mut random, ranges).unwrap_or(Strike {
        phase: Phase::Load,
        kind: KINDS[0],
        harm: Harm::Kill,
        n: 1,
    });
    let folder = folder("kills", target, seed);
    let mut outcome = Outcome {
        strike,
        was_met: false,
        violations: Vec::new(),
        ends: Ends::default(),
        lost: 0,
        judged: 0,
        seen: Seen::default(),
        spoken: Spoken::default(),
    };
    let mut timeline = Timeline::default();
    let mut history = Vec::new();
    let failure =
        failure_of(|| one(seed, target, &folder, &mut outcome, &mut timeline, &mut history, &mut random));
    outcome.violations.extend(failure);
    keep_or_remove(&folder, &outcome.violations, &timeline, &history);
    outcome
}

fn one(
    seed: u64,
    target: Target,
    folder: &Path,
    outcome: &mut Outcome,
    timeline: &mut Timeline,
    history: &mut Vec<Record>,
    random: &mut Random,
) -> Result<(), String> {
    let strike = outcome.strike;
    let flags = Flags::draw(seed, target, None);
    timeline.say(format!("members with {flags}"));
    let mut trial = Trial::begin(target, seed, strike.phase, folder, flags)?;
    trial.is_switched = Random::of_part(seed, "switch").per_mille(500);
    trial.trace = folder.join("trace");
    trial.victim = if strike.phase == Phase::Joining { MEMBERS } else { random.below(MEMBERS) };
    timeline.say(format!("{strike:?} on n{}", trial.victim));
    let result = trial.go(strike, random, timeline, &mut outcome.was_met);
    let result = result.and_then(|()| {
        outcome.seen = trial.cluster.prove(false)?;
        timeline.say(outcome.seen.line());
        Ok(())
    });
    if let Some(clients) = trial.clients.take() {
        outcome.spoken = clients.stop();
    }
    let result = result.and_then(|()| trial.settle(timeline));
    *history = trial.recorder.take();
    outcome.ends = ends(history);
    if let Some(words) = trial.cluster.bad_words().filter(|_| target == Target::Kattu) {
        outcome.violations.push(words);
    }
    drop(trial);
    let last = result?;
    let (broken, lost, judged) = judge(history, &last);
    outcome.violations.extend(broken);
    (outcome.lost, outcome.judged) = (lost, judged);
    Ok(())
}

struct Trial {
    cluster: Cluster,
    clients: Option<Clients>,
    recorder: Arc<Recorder>,
    victim: usize,
    /// The victim ran without leader leases before the strike, and may have them now: it begins to grant vote holds.
    is_switched: bool,
    trace: PathBuf,
}

impl Trial {
    /// Members that are not started, and clients that already send.
    fn begin(target: Target, seed: u64, phase: Phase, folder: &Path, flags: Flags) -> Result<Trial, String> {
        let places = MEMBERS + usize::from(phase == Phase::Joining);
        let homes: Vec<PathBuf> = (0..places).map(|i| folder.join(format!("n{i}"))).collect();
        for home in &homes {
            std::fs::create_dir_all(home).map_err(|error| error.to_string())?;
        }
        let place = Place::loopback(places, false);
        let hosts: Vec<String> =
            place.endpoints.iter().take(MEMBERS).map(|endpoint| endpoint.host.clone()).collect();
        let cluster = Cluster::new(target, place, &homes, folder, &format!("kills-{seed}"), MEMBERS, flags)?;
        let recorder = Arc::new(Recorder::default());
        // Segments of 1 MiB are full after some sixty large values; a joining member finds a log without its beginning.
        let is_large = matches!(phase, Phase::Rotation | Phase::Joining);
        let value_bytes = if is_large { (16 << 10, 64 << 10) } else { (100, 4 << 10) };
        // A member that catches up shares the machine with the load: large values without pauses would take all of it.
        let pause_ms_max = if is_large { 10 } else { 1 };
        let shape = Shape { clients: 4, hot_keys: 8, pause_ms_max, value_bytes, compact: 2 };
        let faces = Faces::draw(seed, target, &shape);
        let clients = Clients::start(&hosts, cluster.ca.as_deref(), &shape, &faces, seed, &recorder)?;
        Ok(Trial {
            cluster,
            clients: Some(clients),
            recorder,
            victim: 0,
            is_switched: false,
            trace: PathBuf::new(),
        })
    }

    /// Waits for more acknowledged writes; `false` if they do not come in time.
    fn until_written(&self, more: u64, limit: Duration) -> bool {
        let (before, begun) = (self.recorder.acknowledged(), Instant::now());
        while self.recorder.acknowledged() < before + more {
            if limit < begun.elapsed() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        true
    }

    fn go(
        &mut self,
        strike: Strike,
        random: &mut Random,
        timeline: &mut Timeline,
        was_met: &mut bool,
    ) -> Result<(), String> {
        self.live_once(strike.phase)?;
        if strike.phase == Phase::Recovery && random.per_mille(300) {
            self.cluster.kill_all();
            (0..MEMBERS).for_each(|i| self.recorder.crashed(i as u64));
            timeline.say("all were killed");
        }
        self.cluster.members[self.victim].spawn_with(&strike.wrapper(&self.trace), &[])?;
        self.cluster.spawn_all()?;

        let ended = self.until_struck(strike, was_met)?;
        timeline.say(match &ended {
            Some(status) => format!("it ended with {}", shown(*status)),
            None if *was_met => "it was struck and lives".into(),
            None => "it was not struck".into(),
        });
        let ended = match *was_met {
            true => self.judge_behaviour(strike, ended, timeline)?,
            false => ended,
        };
        if let Some(process) = self.cluster.members[self.victim].id()
            && !calls::let_go(process)
        {
            return Err("strace does not let go".into());
        }
        if ended.is_some() {
            self.start_again()?;
        }
        let mut well = self.until_well();
        if well.is_err() && ended.is_none() && self.ended_late(strike) {
            // It was struck, or ended, only after the rig had stopped looking.
            timeline
                .say(format!("it ended after all: {}", tail(&self.cluster.members[self.victim].log_text())));
            *was_met = true;
            self.start_again()?;
            well = self.until_well();
        }
        timeline.say("everybody serves");
        well
    }

    /// The time before the start with the strike: nothing, a first life of the member that ends with a kill, or a
    /// running cluster that adds it.
    fn live_once(&mut self, phase: Phase) -> Result<(), String> {
        match phase {
            Phase::FirstStart | Phase::Load => return Ok(()),
            Phase::Recovery | Phase::Rotation | Phase::Joining => {}
        }
        if self.is_switched && self.cluster.flags.leases && phase != Phase::Joining {
            self.cluster.members[self.victim].spawn_with(&[], &["--lease-reads=false"])?;
        }
        self.cluster.spawn_all()?;
        self.cluster.until_served()?;
        if phase != Phase::Rotation {
            self.until_written(WRITES_BEFORE_RECOVERY, STRIKE_LIMIT);
        }
        if phase == Phase::Joining {
            return match self.cluster.invite(self.victim, BACK_LIMIT)? {
                true => Ok(()),
                false => Err(format!("nobody lets n{} in within {BACK_LIMIT:?}", self.victim)),
            };
        }
        self.cluster.members[self.victim].kill();
        self.recorder.crashed(self.victim as u64);
        Ok(())
    }

    fn start_again(&mut self) -> Result<(), String> {
        self.recorder.crashed(self.victim as u64);
        self.cluster.members[self.victim].spawn()
    }

    /// Waits until all members serve, and writes are acknowledged.
    fn until_well(&mut self) -> Result<(), String> {
        self.cluster.until_served()?;
        if !self.until_written(WRITES_MEANWHILE, BACK_LIMIT) {
            return Err(format!(
                "no {WRITES_MEANWHILE} writes were acknowledged {BACK_LIMIT:?} after the strike"
            ));
        }
        self.cluster.check_ended()
    }

    /// Whether the member has ended unnoticed, because of the strike.
    fn ended_late(&self, strike: Strike) -> bool {
        let last = self.cluster.members[self.victim].last_end();
        match strike.harm {
            Harm::Kill => last.is_some_and(|status| status.signal() == Some(9)),
            _ => last.is_some_and(|status| !status.success()) && calls::was_injected(&self.trace),
        }
    }

    /// Waits until the member has met its harm, or so much was written that it never will.
    fn until_struck(&mut self, strike: Strike, was_met: &mut bool) -> Result<Option<ExitStatus>, String> {
        let begun = Instant::now();
        let enough = self.recorder.acknowledged() + WRITES_MAX;
        loop {
            let ended = self.cluster.members[self.victim].ended();
            let killed = ended.is_some_and(|status| strike.harm == Harm::Kill && status.signal() == Some(9));
            *was_met = killed || (strike.harm != Harm::Kill && calls::was_injected(&self.trace));
            let is_over = enough <= self.recorder.acknowledged() || STRIKE_LIMIT < begun.elapsed();
            if ended.is_some() && !*was_met && self.cluster.members[self.victim].has_asked_in_vain() {
                self.cluster.members[self.victim].spawn_with(&strike.wrapper(&self.trace), &[])?;
                continue;
            }
            if ended.is_some() && !*was_met {
                return Err(format!(
                    "n{} ended with {} although nothing was done to it: {}",
                    self.victim,
                    ended.map_or(String::new(), shown),
                    tail(&self.cluster.members[self.victim].log_text())
                ));
            }
            if *was_met || is_over {
                return Ok(ended);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Checks the table above. Returns how the member ended, if it did.
    fn judge_behaviour(
        &mut self,
        strike: Strike,
        ended: Option<ExitStatus>,
        timeline: &mut Timeline,
    ) -> Result<Option<ExitStatus>, String> {
        let is_sync = matches!(strike.kind, "fdatasync" | "fsync");
        if strike.harm == Harm::Kill {
            return Ok(ended);
        }
        let ended = match (ended, is_sync) {
            (Some(status), _) => Some(status),
            (None, true) => {
                let status = self.cluster.members[self.victim].end_within(END_LIMIT);
                Some(status.ok_or_else(|| {
                    let said = tail(&self.cluster.members[self.victim].log_text());
                    format!("n{} goes on {END_LIMIT:?} after a failed sync: {said}", self.victim)
                })?)
            }
            (None, false) => {
                // It may go on, with the others, or end.
                self.until_written(WRITES_MEANWHILE, Duration::from_secs(2));
                self.cluster.members[self.victim].ended()
            }
        };
        let member = &self.cluster.members[self.victim];
        let said = member.log_text();
        let serves = said.contains(READY);
        if let Some(status) = ended {
            timeline.say(format!("it ended with {}: {}", shown(status), tail(&said)));
            if status.success() {
                return Err(format!("n{} ended as if all were well: {}", self.victim, tail(&said)));
            }
            let is_no_room = matches!(strike.harm, Harm::NoSpace | Harm::NoSpaceOn)
                && matches!(strike.kind, "fallocate" | "rename,renameat,renameat2");
            if is_no_room && serves && self.cluster.target == Target::Kattu {
                return Err(format!("n{} ended for want of room: {}", self.victim, tail(&said)));
            }
        } else if strike.harm == Harm::NoSpaceOn && serves {
            let begun = Instant::now();
            while let Err(error) = self.cluster.state(self.victim, true) {
                if BACK_LIMIT < begun.elapsed() {
                    return Err(format!("n{} has no room and serves no reads: {error}", self.victim));
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            timeline.say("it has no room and serves reads");
        }
        Ok(ended)
    }

    fn settle(&mut self, timeline: &mut Timeline) -> Result<FinalState, String> {
        self.cluster.part()?;
        let before = self.cluster.agreed_state()?;
        self.cluster.kill_all();
        (0..self.cluster.members.len()).for_each(|i| self.recorder.crashed(i as u64));
        self.cluster.spawn_all()?;
        self.cluster.until_served()?;
        let after = self.cluster.agreed_state()?;
        self.cluster.nothing_is_reported()?;
        timeline.say(format!("all hold revision {} after a restart of all", after.revision));
        if after.revision < before.revision {
            return Err(format!(
                "revision {} before a restart of all, {} after",
                before.revision, after.revision
            ));
        }
        Ok(after)
    }
}
