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
//! whose file `promise` cannot be read waits for the longest vote hold, 50 s, before it votes or serves, and logs that.
//! Some trials wait, too, and it must not serve sooner; else the file is restored as soon as the message is there.
//!
//! At the end all replicas must agree, also after a restart of all, and the judges check the clients' history.
//! Knows nothing of: campaigns.

use kattu_proto::etcdserverpb::RangeRequest;
use kattu_random::Random;
use kattu_rig::clients::Clients;
use kattu_rig::cluster::{BACK_LIMIT, Cluster};
use kattu_rig::flags::Flags;
use kattu_rig::metrics_check::Seen;
use kattu_rig::place::Place;
use kattu_rig::process::shown;
use kattu_rig::process::tail;
use kattu_rig::record::{Ends, Recorder, ends};
use kattu_rig::target::Target;
use kattu_rig::timeline::Timeline;
use kattu_rig::verdict::{failure_of, folder, judge, keep_or_remove};
use kattu_rig::words;
use kattu_rig::workload::Shape;
use kattu_verify::history::Record;
use kattu_verify::judges::FinalState;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

const MEMBERS: usize = 3;
const SECTOR: u64 = 512;
/// Writes between two flips, and while a member runs with one.
const WRITES_BETWEEN: u64 = 12;
/// How long a member may stay below its vote floor before the term is moved: only a newer term bounds some floors.
const TERM_AFTER: Duration = Duration::from_secs(2);
/// Of 1000 members that report damage, so many are removed and added as new ones.
const REPLACED: u32 = 700;
/// Log messages of a member whose log was cut, and of one whose log is complete again.
const CUT: &str = "is cut after";
const WHOLE: &str = "the log is whole again";
/// The longest scrub period, in milliseconds, of trials with scrubs: they are waited for.
const SCRUB_MS_MAX: u64 = 400;
/// Of 1000 flips in a running member, and of 1000 restarts after a flip, so many wait for a scrub.
const SCRUBBED: (u32, u32) = (500, 300);
/// The file with the end of vote holds, the message of a member that cannot read it, and how long such a member waits.
const PROMISE: &str = "promise";
const PROMISED: &str = "file `promise` (vote hold of an earlier run) is unreadable";
const SILENCE: Duration = Duration::from_secs(50);
/// Of 1000 waiting members, so many are waited for.
const WAITED_FOR: u32 = 60;

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
    let clients = Clients::start(&hosts, cluster.ca.as_deref(), &shape, seed, &recorder)?;
    let mut trial = Trial { cluster, clients, recorder, random: Random::of_part(seed, "flips") };
    let result = trial.go(flips, outcome, timeline);
    let result = result.and_then(|()| {
        outcome.seen = trial.cluster.prove(true)?;
        timeline.say(outcome.seen.line());
        Ok(())
    });
    trial.clients.end();
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

/// A change in a file.
struct Flip {
    file: PathBuf,
    name: String,
    offset: u64,
    before: Vec<u8>,
    after: Vec<u8>,
}

impl Flip {
    /// Draws a place in any file of a directory, and changes it.
    fn strike(random: &mut Random, data: &Path) -> Result<Flip, String> {
        let mut names: Vec<String> = std::fs::read_dir(data)
            .map_err(|error| error.to_string())?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| !name.ends_with(".tmp") && !name.ends_with(".part"))
            .filter(|name| name != "lock" && name != "reserve")
            .collect();
        names.sort_unstable();
        for _ in 0..100 {
            let name = random.pick(&names).clone();
            let file = data.join(&name);
            let Ok(bytes) = std::fs::read(&file) else { continue }; // pruned just now
            let used = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
            // Mostly within the used part of the file.
            let span = if random.per_mille(950) { used } else { bytes.len() };
            if span == 0 {
                continue;
            }
            let at = random.below(span) as u64;
            let (offset, len) = match random.per_mille(200) {
                true => (at - at % SECTOR, SECTOR.min(bytes.len() as u64 - (at - at % SECTOR))),
                false => (at, 1),
            };
            let before = bytes[offset as usize..(offset + len) as usize].to_vec();
            let mut after = before.clone();
            match (len, random.per_mille(500)) {
                (1, _) => after[0] ^= 1 << random.below(8),
                (_, true) => after.fill(0),
                (_, false) => after.iter_mut().for_each(|byte| *byte = random.number() as u8),
            }
            if after == before {
                continue;
            }
            let flip = Flip { file, name, offset, before, after };
            if flip.put(&flip.after).is_ok() {
                return Ok(flip);
            }
        }
        Err(format!("nothing in {} can be hit", data.display()))
    }

    fn put(&self, bytes: &[u8]) -> std::io::Result<()> {
        std::fs::OpenOptions::new().write(true).open(&self.file)?.write_all_at(bytes, self.offset)
    }

    /// Restores the old bytes, if the damaged ones are still there.
    fn undo(&self) -> bool {
        let mut now = vec![0; self.after.len()];
        let read = std::fs::File::open(&self.file).and_then(|file| file.read_exact_at(&mut now, self.offset));
        read.is_ok() && now == self.after && self.put(&self.before).is_ok()
    }
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
            reported = self.keeps_silent(victim, &flip, started, outcome, timeline)?;
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

    /// It logs that its file `promise` cannot be read, and does not serve for as long as a vote hold can last. Returns
    /// whether the file was restored instead of waiting.
    fn keeps_silent(
        &mut self,
        victim: usize,
        flip: &Flip,
        started: Instant,
        outcome: &mut Outcome,
        timeline: &mut Timeline,
    ) -> Result<bool, String> {
        let begun = Instant::now();
        // The message was not there at this time: the wait began later.
        let mut unsaid = started;
        loop {
            let looked = Instant::now();
            let member = &mut self.cluster.members[victim];
            if member.log_text().contains(PROMISED) {
                break;
            }
            unsaid = looked;
            if let Some(status) = member.ended() {
                let said = tail(&member.log_text());
                return Err(format!("n{victim} ended with {} for its promise: {said}", shown(status)));
            }
            if BACK_LIMIT < begun.elapsed() || member.serves() {
                let said = tail(&member.log_text());
                return Err(format!("n{victim} says nothing of its promise, which is damaged: {said}"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        timeline.say("it cannot read what it has promised, and keeps silent");
        if !self.random.per_mille(WAITED_FOR) {
            self.kill(victim);
            if !flip.undo() {
                return Err(format!("n{victim} has written its promise before its silence was over"));
            }
            self.cluster.members[victim].spawn()?;
            return Ok(true);
        }
        outcome.promises.1 += 1;
        self.clients.rest(true);
        let said = Instant::now();
        let ended = loop {
            let member = &mut self.cluster.members[victim];
            if member.ended().is_some() {
                break Err(format!("n{victim} ended in its silence: {}", tail(&member.log_text())));
            }
            if member.serves() {
                break Ok(unsaid.elapsed());
            }
            if SILENCE + BACK_LIMIT < said.elapsed() {
                break Err(format!("n{victim} keeps silent for ever: {}", tail(&member.log_text())));
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        self.clients.rest(false);
        let took = ended?;
        timeline.say(format!("it serves again {took:.1?} later"));
        match took < SILENCE {
            true => Err(format!("n{victim} serves {took:?} after it could not read what it has promised")),
            false => Ok(false),
        }
    }

    /// Waits until so many more scrubs of a member have ended, or the member has; returns at once if scrubs are off.
    fn until_scrubbed(&mut self, victim: usize, more: u64) -> Result<(), String> {
        if self.cluster.flags.scrub_ms == 0 {
            return Ok(());
        }
        let (begun, mut before) = (Instant::now(), None);
        loop {
            let member = &mut self.cluster.members[victim];
            if let Some(now) = member.scrubs() {
                // After a start all of them count.
                let before = *before.get_or_insert(if more == 1 { 0 } else { now });
                if before + more <= now {
                    return Ok(());
                }
            }
            if member.has_ended() {
                return Ok(());
            }
            if BACK_LIMIT < begun.elapsed() {
                return Err(format!("n{victim} ends no scrub: {}", tail(&member.log_text())));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Follows the report's advice: removes the member and adds it as a new one, with an empty directory and a vote.
    fn replace(&mut self, victim: usize, timeline: &mut Timeline) -> Result<(), String> {
        timeline.say(format!("n{victim} is removed and added as a new one"));
        if !self.cluster.replace_within(victim, BACK_LIMIT)? {
            return Err(format!(
                "n{victim} was to be replaced, and the members do not change in {BACK_LIMIT:?}"
            ));
        }
        let begun = Instant::now();
        while !self.cluster.votes(victim) {
            self.cluster.check_ended()?;
            if BACK_LIMIT < begun.elapsed() {
                let said = tail(&self.cluster.members[victim].log_text());
                return Err(format!("n{victim} is new and has no vote after {BACK_LIMIT:?}: {said}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn kill(&mut self, victim: usize) {
        self.cluster.members[victim].kill();
        self.recorder.crashed(victim as u64);
    }

    /// Waits until it serves; `false` if it ends instead.
    fn until_up(&mut self, victim: usize) -> Result<bool, String> {
        let begun = Instant::now();
        let member = &mut self.cluster.members[victim];
        while !member.serves() {
            if member.ended().is_some() {
                return Ok(false);
            }
            if BACK_LIMIT < begun.elapsed() {
                return Err(format!("n{victim} does not serve: {}", tail(&member.log_text())));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(true)
    }

    /// Checks that a member that ended by itself has named the bad file.
    fn is_a_report(
        &self,
        victim: usize,
        flip: &Flip,
        success: bool,
        timeline: &mut Timeline,
    ) -> Result<(), String> {
        let member = &self.cluster.members[victim];
        let said = member.log_text();
        timeline.say(format!("it says: {}", tail(&said)));
        let names_it = said.lines().any(|line| line.contains(&flip.name) || line.contains("identity"));
        if success || !names_it {
            let end = member.last_end().map_or("nothing".into(), shown);
            return Err(format!(
                "n{victim} ended with {end} and does not name {}: {}",
                flip.name,
                tail(&said)
            ));
        }
        Ok(())
    }

    /// Waits until a log that was cut is complete again.
    fn until_whole(&mut self, victim: usize) -> Result<(), String> {
        let begun = Instant::now();
        let mut moved = false;
        loop {
            let said = self.cluster.members[victim].log_text();
            if !said.contains(CUT) && !said.contains("below the vote floor") || said.contains(WHOLE) {
                return Ok(());
            }
            if BACK_LIMIT < begun.elapsed() {
                return Err(format!("the log of n{victim} does not grow back: {}", tail(&said)));
            }
            if !moved && TERM_AFTER < begun.elapsed() {
                moved = self.move_term(victim);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Makes another whole member the leader, which begins a new term.
    fn move_term(&self, victim: usize) -> bool {
        let others = (0..MEMBERS).filter(|&i| i != victim);
        let (leads, follows): (Vec<usize>, Vec<usize>) =
            others.partition(|&i| self.cluster.members[i].leads());
        let (Some(&leader), Some(&target)) = (leads.first(), follows.first()) else { return false };
        let status = self.cluster.members[target].probe.status();
        let id = status.ok().and_then(|status| status.header).map(|header| header.member_id);
        id.is_some_and(|id| self.cluster.members[leader].probe.move_leader(id).is_ok())
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
