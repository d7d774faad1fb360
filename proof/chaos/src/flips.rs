//! One trial of `cargo xtask flips`: a loaded cluster of three whose members' files are damaged, one member at a time.
//!
//! | Harm | When |
//! |---|---|
//! | one bit flipped | while the member is down, or while it runs |
//! | a sector lost: zeros, or other bytes | the same |
//!
//! Any file of the directory may be hit: log, snapshots, term and vote, identity, vote floor, vote hold (`promise`).
//! Then the member restarts, and must do one of three things. It repairs or falls back, logs that, and holds the same
//! state as the others: *repaired*. It ends with a message that names the file: *reported*; then the rig does what the
//! message advises, removes the member and adds it as a new one with an empty directory, or restores the file. Or the
//! damaged bytes are not used any more: *harmless*. In all cases its state must be that of the others in the end. A
//! member is hit only while the others are whole.
//!
//! Where scrubs are on, part of the flips wait for a scrub: it may end the process with the same message. A member
//! whose file `promise` cannot be read logs that, and withholds its vote for the longest vote hold, 50 s: until then the
//! file, written anew, says 50 s. Some trials wait for the end of that; else the file is restored as soon as the member
//! serves, because the other two could not replace a leader meanwhile.
//!
//! At the end all replicas must agree, also after a restart of all, and the judges check the clients' history.
//! Knows nothing of: campaigns.

mod flip;
mod reaction;

use flip::Flip;
use kattu_proto::etcdserverpb::RangeRequest;
use kattu_random::Random;
use kattu_rig::clients::Clients;
use kattu_rig::cluster::{BACK_LIMIT, Cluster};
use kattu_rig::faces::{Faces, Spoken};
use kattu_rig::flags::Flags;
use kattu_rig::metrics_check::Seen;
use kattu_rig::place::Place;
use kattu_rig::process::tail;
use kattu_rig::record::{Ends, Recorder, ends};
use kattu_rig::target::Target;
use kattu_rig::timeline::Timeline;
use kattu_rig::verdict::{failure_of, folder, judge, keep_or_remove};
use kattu_rig::words;
use kattu_rig::workload::Shape;
use kattu_verify::history::Record;
use kattu_verify::judges::FinalState;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

const MEMBERS: usize = 3;
/// Writes between two flips, and while a member runs with one.
const WRITES_BETWEEN: u64 = 12;
/// Of 1000 members that report damage, so many are removed and added as new ones.
const REPLACED: u32 = 700;
/// The longest scrub period, in milliseconds, of trials with scrubs: they are waited for.
const SCRUB_MS_MAX: u64 = 400;
/// Of 1000 flips in a running member, and of 1000 restarts after a flip, so many wait for a scrub.
const SCRUBBED: (u32, u32) = (500, 300);
/// The file with the end of vote holds, and the message of a member that cannot read it.
const PROMISE: &str = "promise";
const PROMISED: &str = "file `promise` (vote hold of an earlier run) is unreadable";

/// The outcome of a trial.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Flips that were made.
    pub flips: u64,
    /// Of them: repaired, or replaced by another copy.
    pub repaired: u64,
    /// Of them: the member ended with a message.
    pub reported: u64,
    /// Of the reported ones: removed and added as a new member; the others got their file back.
    pub replaced: u64,
    /// Of them: without effect.
    pub harmless: u64,
    /// Flips in files `promise`, and how many of the waits after them were watched to the end.
    pub promises: (u64, u64),
    /// Members that a scrub ended.
    pub scrubbed: u64,
    /// Work of members that was seen at the end.
    pub seen: Seen,
    /// What native clients did.
    pub spoken: Spoken,
    /// Violations.
    pub violations: Vec<String>,
    /// How operations ended.
    pub ends: Ends,
    /// Acknowledged writes that are lost.
    pub lost: u64,
    /// Answers that the judges compared with something.
    pub judged: u64,
}

/// Runs one trial of so many flips, or of fewer when the time is over: always the first one.
pub fn run(seed: u64, flips: u64, until: Option<Instant>) -> Outcome {
    let folder = folder("flips", Target::Kattu, seed);
    let mut outcome = Outcome::default();
    let mut timeline = Timeline::default();
    let mut history = Vec::new();
    let failure =
        failure_of(|| one(seed, (flips, until), &folder, &mut outcome, &mut timeline, &mut history));
    outcome.violations.extend(failure);
    keep_or_remove(&folder, &outcome.violations, &timeline, &history);
    outcome
}

fn one(
    seed: u64,
    flips: (u64, Option<Instant>),
    folder: &Path,
    outcome: &mut Outcome,
    timeline: &mut Timeline,
    history: &mut Vec<Record>,
) -> Result<(), String> {
    let homes: Vec<PathBuf> = (0..MEMBERS).map(|i| folder.join(format!("n{i}"))).collect();
    for home in &homes {
        std::fs::create_dir_all(home).map_err(|error| error.to_string())?;
    }
    let place = Place::loopback(MEMBERS, false);
    let hosts: Vec<String> = place.endpoints.iter().map(|endpoint| endpoint.host.clone()).collect();
    let mut flags = Flags::draw(seed, Target::Kattu, None);
    flags.scrub_ms = flags.scrub_ms.min(SCRUB_MS_MAX);
    timeline.say(format!("members with {flags}"));
    let token = format!("flips-{seed}");
    let cluster = Cluster::new(Target::Kattu, place, &homes, folder, &token, homes.len(), flags)?;
    let recorder = Arc::new(Recorder::default());
    // Without compaction every revision can be compared. Segments and snapshots of 1 MiB come and go.
    let shape = Shape { clients: 4, hot_keys: 8, pause_ms_max: 4, value_bytes: (100, 8 << 10), compact: 0 };
    let faces = Faces::draw(seed, Target::Kattu, &shape);
    timeline.say(faces.to_string());
    let clients = Clients::start(&hosts, cluster.ca.as_deref(), &shape, &faces, seed, &recorder)?;
    let mut trial = Trial { cluster, clients, recorder, random: Random::of_part(seed, "flips") };
    let result = trial.go(flips, outcome, timeline);
    let result = result.and_then(|()| {
        outcome.seen = trial.cluster.prove(true)?;
        timeline.say(outcome.seen.line());
        Ok(())
    });
    trial.clients.end();
    outcome.spoken = trial.clients.spoken();
    let result = result.and_then(|()| trial.settle(timeline));
    *history = trial.recorder.take();
    outcome.ends = ends(history);
    outcome.violations.extend(trial.cluster.bad_words());
    drop(trial);
    let (broken, lost, judged) = judge(history, &result?);
    outcome.violations.extend(broken);
    (outcome.lost, outcome.judged) = (lost, judged);
    Ok(())
}

struct Trial {
    cluster: Cluster,
    clients: Clients,
    recorder: Arc<Recorder>,
    random: Random,
}

impl Trial {
    fn go(
        &mut self,
        (flips, until): (u64, Option<Instant>),
        outcome: &mut Outcome,
        timeline: &mut Timeline,
    ) -> Result<(), String> {
        self.cluster.spawn_all()?;
        self.cluster.until_served()?;
        while outcome.flips < flips {
            if 0 < outcome.flips && until.is_some_and(|until| until < Instant::now()) {
                break;
            }
            self.until_written(WRITES_BETWEEN)?;
            let victim = self.random.below(MEMBERS);
            self.flip(victim, outcome, timeline)?;
            outcome.flips += 1;
        }
        Ok(())
    }

    /// Waits for more acknowledged writes.
    fn until_written(&self, more: u64) -> Result<(), String> {
        let (before, begun) = (self.recorder.acknowledged(), Instant::now());
        while self.recorder.acknowledged() < before + more {
            if BACK_LIMIT < begun.elapsed() {
                return Err(format!("no {more} writes were acknowledged in {BACK_LIMIT:?}"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Damages one file of a member, and checks its reaction.
    fn flip(&mut self, victim: usize, outcome: &mut Outcome, timeline: &mut Timeline) -> Result<(), String> {
        let is_live = self.random.per_mille(300);
        if !is_live {
            self.kill(victim);
        }
        let data = self.cluster.members[victim].data.clone();
        let flip = Flip::strike(&mut self.random, &data)?;
        let place = format!("n{victim}: {} bytes of {} at {}", flip.after.len(), flip.name, flip.offset);
        timeline.say(format!("{place}, {}", if is_live { "while it runs" } else { "while it is down" }));
        let mut reported = false;
        if is_live {
            self.until_written(WRITES_BETWEEN)?;
            if self.random.per_mille(SCRUBBED.0) {
                // One scrub may have begun before the flip.
                self.until_scrubbed(victim, 2)?;
            }
            if let Some(status) = self.cluster.members[victim].ended() {
                reported = true;
                self.is_a_report(victim, &flip, status.success(), timeline)?;
            }
            self.kill(victim);
        }
        let started = Instant::now();
        self.cluster.members[victim].spawn()?;
        if flip.name == PROMISE {
            outcome.promises.0 += 1;
            reported = self.withholds_its_vote(victim, &flip, started, outcome, timeline)?;
        }
        if !self.until_up(victim)? {
            reported = true;
            self.is_a_report(victim, &flip, false, timeline)?;
            self.recorder.crashed(victim as u64);
            let goes = self.random.per_mille(REPLACED) || !flip.undo();
            if goes {
                outcome.replaced += 1;
                self.replace(victim, timeline).map_err(|why| format!("{place}: {why}"))?;
            } else {
                self.cluster.members[victim].spawn()?;
            }
            if !self.until_up(victim)? {
                let said = tail(&self.cluster.members[victim].log_text());
                let after = if goes { "it was replaced" } else { "the file was put back" };
                return Err(format!("{place}: it does not start after {after}: {said}"));
            }
        }
        self.until_whole(victim)?;
        if self.random.per_mille(SCRUBBED.1) {
            self.until_scrubbed(victim, 1)?;
            if let Some(status) = self.cluster.members[victim].ended() {
                // A scrub may find damage that a start does not read.
                reported = true;
                outcome.scrubbed += 1;
                self.is_a_report(victim, &flip, status.success(), timeline)?;
                self.kill(victim);
                self.cluster.members[victim].spawn()?;
                if !self.until_up(victim)? {
                    let said = tail(&self.cluster.members[victim].log_text());
                    return Err(format!("{place}: it does not start after a scrub ended it: {said}"));
                }
                self.until_whole(victim)?;
            }
        }
        let said = self.cluster.members[victim].log_text();
        let is_repaired =
            ["repaired", "damaged at byte", PROMISED].into_iter().any(|words| said.contains(words));
        timeline.say(match (reported, is_repaired) {
            (true, _) => "reported",
            (false, true) => "repaired",
            (false, false) => "harmless",
        });
        match (reported, is_repaired) {
            (true, _) => outcome.reported += 1,
            (false, true) => outcome.repaired += 1,
            (false, false) => outcome.harmless += 1,
        }
        self.compare(victim).map_err(|why| format!("{place}: {why}"))?;
        self.cluster.check_ended()
    }

    fn kill(&mut self, victim: usize) {
        self.cluster.members[victim].kill();
        self.recorder.crashed(victim as u64);
    }

    /// Checks that the member's state is the one that another member has at that revision.
    fn compare(&self, victim: usize) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            // The first call over a connection that died with the process may fail.
            let own = match self.cluster.state(victim, true) {
                Ok(own) => own,
                Err(error) if BACK_LIMIT < begun.elapsed() => return Err(error),
                Err(_) => {
                    std::thread::sleep(Duration::from_millis(20));
                    continue;
                }
            };
            let request = RangeRequest {
                key: b"\0".to_vec(),
                range_end: b"\0".to_vec(),
                revision: own.revision,
                ..RangeRequest::default()
            };
            match self.cluster.members[(victim + 1) % MEMBERS].reader.range(request) {
                Ok(answer) => {
                    let kvs: Vec<_> = answer.kvs.into_iter().map(words::pair).collect();
                    if kvs == own.kvs {
                        return Ok(());
                    }
                    let odd = own.kvs.iter().find(|pair| !kvs.contains(pair));
                    let missing = kvs.iter().find(|pair| !own.kvs.contains(pair));
                    return Err(format!(
                        "n{victim} serves another state at revision {}: has {odd:?}, lacks {missing:?}",
                        own.revision
                    ));
                }
                Err(error) if BACK_LIMIT < begun.elapsed() => return Err(error.to_string()),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    fn settle(&mut self, timeline: &mut Timeline) -> Result<FinalState, String> {
        let before = self.cluster.agreed_state()?;
        self.cluster.kill_all();
        (0..MEMBERS).for_each(|i| self.recorder.crashed(i as u64));
        self.cluster.spawn_all()?;
        self.cluster.until_served()?;
        let after = self.cluster.agreed_state()?;
        self.cluster.nothing_is_reported()?;
        timeline.say(format!("all hold revision {} after a restart of all", after.revision));
        match after.revision < before.revision {
            true => {
                Err(format!("revision {} before a restart of all, {} after", before.revision, after.revision))
            }
            false => Ok(after),
        }
    }
}
