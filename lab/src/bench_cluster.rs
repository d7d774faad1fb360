//! A cluster of real processes under a load: started, tuned, loaded, measured.
//!
//! ```text
//!   start ─▶ ( prepare: settings, timing, links ─▶ load: kattu bench, faults ─▶ sample )* ─▶ drop: all are killed
//! ```
//! Every setting that a point does not name is what the members were started with, so no point leaves anything to the next one.
//! Knows nothing of: experiments, the order of runs, results on disk.

mod elections;
mod followers;
mod losses;
mod processors;

use crate::experiment::{Blow, ClusterPlan, Fault, LinkPlan, Load, Point, Task};
use crate::machine::Busy;
use crate::measured::{
    ACCEPTED_P50_US, ACCEPTED_P99_US, ACCEPTED_PER_S, APPLIED_US, BEHIND, COUNTERS, LOST, PROCESSORS, TERMS,
};
use kattu_rig::Cluster;
use kattu_rig::Page;
use kattu_rig::place::Place;
use kattu_rig::processor_time::{Spent, processor_time};
use kattu_rig::proxy::Proxy;
use kattu_rig::weather::Weather;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A load that has not ended by then never will.
const LOAD_LIMIT: Duration = Duration::from_secs(300);
/// A setting is in force at all members, and a leader is there, within this.
const SETTLE_LIMIT: Duration = Duration::from_secs(20);
/// Puts by which a new cluster is warmed up: its first log file, its connections, its memory.
const WARM_UP: u64 = 2000;
/// What a load has left is applied within this.
const APPLY_LIMIT: Duration = Duration::from_secs(120);
/// Between two looks at what is left. A look is a request, too, and lets a member go on that waits for something to happen.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Pause before a load, in which the members finish what the last one left.
const REST: Duration = Duration::from_millis(150);

/// Members of one plan.
pub struct BenchCluster {
    // Dropped in this order: members before the proxy that they use.
    cluster: Cluster,
    proxy: Option<Proxy>,
    program: PathBuf,
    folder: PathBuf,
    /// The settings that each member was started with, and those that it has now.
    base: Vec<Settings>,
    now: Vec<Settings>,
    /// Election timeout and heartbeat interval of the plan, and those in force.
    timing_base: (u64, u64),
    timing_now: (u64, u64),
    /// Arguments of `kattu protocol` in force; none for raft.
    protocol_now: Vec<&'static str>,
    /// The members share so many processors now, if not all.
    processors_now: Option<usize>,
}

type Settings = BTreeMap<String, String>;

/// One load, measured.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// The answer of `kattu bench`.
    pub answer: Value,
    /// Its error output.
    pub told: String,
    /// Processor time of each member, in microseconds.
    pub members_cpu_us: Vec<f64>,
    /// Processor time of the client's process.
    pub client_cpu_us: f64,
    /// Place of the leader when the load began.
    pub leader: usize,
    /// Whether the same member led in the same term all the time, if no fault was planned.
    pub is_steady: bool,
    /// Share of the processors that other programs had.
    pub others: Option<f64>,
    /// How far the leader's counters went.
    pub counters: BTreeMap<String, f64>,
}

impl BenchCluster {
    /// Starts the members, and waits until all serve. Their directories are in `folder`, which is emptied.
    ///
    /// # Errors
    /// A member that cannot be started, or does not serve.
    pub fn start(
        program: &Path,
        plan: &ClusterPlan,
        folder: &Path,
        spaces: bool,
    ) -> Result<BenchCluster, String> {
        let _ = std::fs::remove_dir_all(folder);
        std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        kattu_rig::cluster::need_real_disk(folder)?;
        let place = match spaces {
            true => Place::namespaces(plan.members)?,
            false => Place::loopback(plan.members, plan.has_proxy),
        };
        let endpoints = place.endpoints.clone();
        let mut flags = plan.flags.clone();
        flags.push("--lab".into());
        let token = format!("lab-{}", std::process::id());
        let mut cluster = Cluster::plain_of(program.to_path_buf(), place, folder, &token, flags);
        // In a namespace of its own a member reaches the others by their faces only.
        let proxy = match plan.has_proxy || spaces {
            true => Some(Proxy::start(&endpoints, plan.has_messages, 1, cluster.processes.clone())?),
            false => None,
        };
        cluster.spawn_all()?;
        cluster.until_served()?;
        let mut started = BenchCluster {
            cluster,
            proxy,
            program: program.to_path_buf(),
            folder: folder.to_path_buf(),
            base: Vec::new(),
            now: Vec::new(),
            timing_base: (0, 0),
            timing_now: (0, 0),
            protocol_now: Vec::new(),
            processors_now: None,
        };
        started.base = started.settings()?;
        started.now = started.base.clone();
        started.timing_base = started.timing()?;
        started.timing_now = started.timing_base;
        started.warm_up()?;
        Ok(started)
    }

    /// Puts all settings in force that the point has; returns the leader's place.
    ///
    /// # Errors
    /// A member that refuses a setting; no leader.
    fn prepare(&mut self, point: &Point) -> Result<usize, String> {
        if let Some(proxy) = &self.proxy {
            proxy.links.calm();
        }
        let timing = point.timing.unwrap_or(self.timing_base);
        if timing != self.timing_now {
            let (election, heartbeat) = timing;
            let (election, heartbeat) =
                (format!("--election-timeout={election}"), format!("--heartbeat-interval={heartbeat}"));
            self.ask(&["timing", &election, &heartbeat])?;
            self.until("the timing in force", |cluster| Ok(cluster.timing()? == timing))?;
            self.timing_now = timing;
        }
        if point.protocol != self.protocol_now {
            let name: &[&str] = if point.protocol.is_empty() { &["raft"] } else { &point.protocol };
            // A cluster that has just started may not know the level yet.
            let words = [&["protocol"], name].concat();
            self.until("the protocol is set", |it| Ok(it.ask(&words).is_ok()))?;
            self.protocol_now = point.protocol.clone();
        }
        if let Some(wanted) = point.leader {
            self.lead(wanted)?;
        }
        let leader = self.leader()?;
        self.tune(point, leader)?;
        if let Some(proxy) = &self.proxy {
            let places = 0..self.cluster.members.len();
            for from in places.clone() {
                places
                    .clone()
                    .filter(|to| *to != from)
                    .for_each(|to| proxy.links.set(from, to, weather(point, from, to)));
                let limits = point.links.egress.iter().filter(|(members, _)| members.have(from, leader));
                proxy.links.set_egress(from, limits.map(|(_, rate)| *rate).min().unwrap_or(0));
            }
        } else if point.links != LinkPlan::default() {
            return Err(format!("{}: links need a cluster with a proxy", point.key()));
        }
        self.confine(point.processors)?;
        std::thread::sleep(REST);
        // A leader that leaves its slow disk, or a link that is too slow for the timing, shows before the load begins.
        let still = self.leader()?;
        match still == leader {
            true => Ok(leader),
            false => Err(format!("n{leader} led when it was tuned, n{still} when the load was to begin")),
        }
    }

    /// Lets this member lead.
    fn lead(&self, wanted: usize) -> Result<(), String> {
        let answer = run(&self.program, &["status", "-o", "json"], &self.cluster.members[wanted].address())?;
        let answer: Value =
            serde_json::from_str(&answer).map_err(|error| format!("kattu status: {error}"))?;
        let id = answer[0]["member_id"].as_str().ok_or("kattu status names no member")?;
        self.until("the wanted leader", |it| {
            let leads = it.leader()? == wanted;
            // Right after an election a transfer may be refused.
            Ok(leads || (it.ask(&["move-leader", id]).is_ok() && it.leader()? == wanted))
        })
    }

    fn tune(&mut self, point: &Point, leader: usize) -> Result<(), String> {
        let mut wanted = self.base.clone();
        for (members, setting) in &point.tuned {
            let (name, value) =
                setting.split_once('=').ok_or_else(|| format!("{setting} is not NAME=VALUE"))?;
            for (place, settings) in wanted.iter_mut().enumerate() {
                if members.have(place, leader) {
                    settings.insert(name.into(), value.into());
                }
            }
        }
        // Members that need the same changes are asked together.
        let mut changes: BTreeMap<Vec<String>, Vec<String>> = BTreeMap::new();
        for (place, (now, then)) in self.now.iter().zip(&wanted).enumerate() {
            let new = then.iter().filter(|(name, value)| now.get(*name) != Some(value));
            let new: Vec<String> = new.map(|(name, value)| format!("{name}={value}")).collect();
            if !new.is_empty() {
                changes.entry(new).or_default().push(self.cluster.members[place].address());
            }
        }
        for (settings, addresses) in changes {
            let mut words = vec!["tune", "-o", "json"];
            words.extend(settings.iter().map(String::as_str));
            run(&self.program, &words, &addresses.join(","))?;
        }
        self.now = wanted;
        Ok(())
    }

    /// Prepares the point, runs its load and measures it; then everything serves again.
    ///
    /// # Errors
    /// What does not work: the run is no measurement.
    pub fn measure(&mut self, point: &Point) -> Result<Measurement, String> {
        let busy = Busy::now();
        let all_before = processor_time(&self.processes());
        let leader = self.prepare(point)?;
        let processes = self.processes();
        let term = self.term(leader);
        let load = match &point.load {
            Task::Bench(load) => load,
            Task::Elections(count) => return self.elections(*count, leader, &busy, all_before),
            Task::Losses(losses) => return self.losses(point, losses, leader, &busy, all_before),
            Task::Watch(time) => return self.watch(*time, leader, &busy, all_before),
            Task::Codec(_) | Task::Trace(_) => return Err("a task without a cluster".into()),
        };
        let asked = self.asked(load, leader).first().copied().unwrap_or(leader);
        let counters = self.counters(leader, asked);
        let highest = self.highest_term();
        let before: Vec<Spent> = processes.iter().map(|&process| Spent::by(process)).collect();
        let begun = Instant::now();
        let (answer, client, told) = self.load(point, load, leader)?;
        let may_change = point.may_elect || !point.faults.is_empty();
        let behind = self.behind(leader).filter(|_| !may_change);
        let used = processes.iter().zip(&before).map(|(&process, before)| Spent::by(process).since(before));
        let members_cpu_us = used.map(|time| time.as_secs_f64() * 1e6).collect();
        let is_same = !point.faults.is_empty() || (self.leader()? == leader && self.term(leader) == term);
        let is_steady = point.may_elect || is_same;
        let others = busy.share_of_others(processor_time(&self.processes()).saturating_sub(all_before));
        if behind.is_some_and(|entries| 0.0 < entries) {
            let is_done = |it: &Self| Ok(it.behind(leader) == Some(0.0));
            self.until_within(APPLY_LIMIT, LOOK_EVERY, "all applied", is_done)?;
        }
        let applied = begun.elapsed().as_secs_f64() * 1e6;
        let went = self.counters(leader, asked).into_iter().filter_map(|(name, after)| {
            let before = counters.get(&name)?;
            Some((name, after - before))
        });
        let mut counters: BTreeMap<String, f64> = if is_same { went.collect() } else { BTreeMap::new() };
        if point.may_elect {
            counters.insert(TERMS.into(), self.highest_term().saturating_sub(highest) as f64);
        }
        counters.extend(behind.map(|entries| (BEHIND.into(), entries)));
        counters.extend(behind.map(|_| (APPLIED_US.into(), applied)));
        counters.insert(PROCESSORS.into(), processors());
        if load.has_sessions() {
            counters.extend(accepted_counters(&answer));
        }
        self.repair()?;
        let client_cpu_us = client.as_secs_f64() * 1e6;
        Ok(Measurement { answer, told, members_cpu_us, client_cpu_us, leader, is_steady, others, counters })
    }

    /// Runs `kattu bench` beside the faults; its answer, the processor time of its process, and its error output.
    fn load(
        &mut self,
        point: &Point,
        load: &Load,
        leader: usize,
    ) -> Result<(Value, Duration, String), String> {
        let mut words = load.arguments();
        words.extend(["-o", "json", "--histogram", "--timeout", "30s"].map(str::to_string));
        let asked = self.asked(load, leader).into_iter();
        let asked: Vec<String> = asked.map(|it| self.cluster.members[it].address()).collect();
        let mut child = spawn(&self.program, &words, &asked.join(","))?;
        let begun = Instant::now();
        let mut faults = point.faults.clone();
        faults.sort_by_key(|fault| fault.after);
        let mut resumes: Vec<(Duration, usize)> = Vec::new();
        // A pipe holds 64 KiB, and a histogram may be longer: it is read while the load runs.
        let out = reader(child.stdout.take());
        let err = reader(child.stderr.take());
        while !has_ended(&child)? {
            let at = begun.elapsed();
            if LOAD_LIMIT < at {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("the load has not ended after {LOAD_LIMIT:?}"));
            }
            if faults.first().is_some_and(|fault| fault.after <= at) {
                let Fault { of, what, .. } = faults.remove(0);
                for place in (0..self.cluster.members.len()).filter(|&place| of.have(place, leader)) {
                    match what {
                        Blow::Kill => self.cluster.members[place].kill(),
                        Blow::Pause(time) => {
                            self.cluster.members[place].pause();
                            resumes.push((at + time, place));
                        }
                    }
                }
            }
            resumes.retain(|(end, place)| {
                let is_over = *end <= at;
                if is_over {
                    self.cluster.members[*place].resume();
                }
                !is_over
            });
            // Looking costs processor time that the members want; a fault comes a few milliseconds late at most.
            std::thread::sleep(Duration::from_millis(if point.faults.is_empty() { 10 } else { 2 }));
        }
        let used = Spent::by(child.id()).total();
        let status = child.wait().map_err(|error| error.to_string())?;
        let (out, err) = (joined(out), joined(err).trim().to_string());
        // With errors the answer is there all the same, and says how many.
        let answer =
            serde_json::from_str(&out).map_err(|_| format!("kattu bench ended with {status}: {}", err))?;
        Ok((answer, used, err))
    }

    /// Starts and resumes all that a fault stopped, and waits until it serves.
    fn repair(&mut self) -> Result<(), String> {
        let mut has_changed = false;
        for member in &mut self.cluster.members {
            member.resume();
            has_changed |= !member.is_started();
        }
        if has_changed {
            self.cluster.spawn_all()?;
            self.cluster.until_served()?;
            self.now = self.settings()?; // a restart forgets them
        }
        self.cluster.check_ended()
    }

    fn warm_up(&mut self) -> Result<(), String> {
        let words = crate::experiment::Load::native_puts(WARM_UP, 64).arguments();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.ask(&words).map(drop)
    }

    /// The settings of each member.
    fn settings(&self) -> Result<Vec<Settings>, String> {
        let answer = self.ask(&["tune", "-o", "json"])?;
        let answers: Vec<Value> =
            serde_json::from_str(&answer).map_err(|error| format!("kattu tune: {error}"))?;
        let of_member = |member: &kattu_rig::Member| {
            let address = member.address();
            let its =
                answers.iter().find(|it| it["endpoint"].as_str().is_some_and(|it| it.ends_with(&address)));
            let settings = its.and_then(|it| it["settings"].as_object());
            let settings =
                settings.ok_or_else(|| format!("kattu tune says nothing of {address}: {answer}"))?;
            let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
            Ok(settings.iter().map(|(name, value)| (name.clone(), text(value))).collect())
        };
        self.cluster.members.iter().map(of_member).collect()
    }

    /// Election timeout and heartbeat interval, if all members have the same.
    fn timing(&self) -> Result<(u64, u64), String> {
        let answer = self.ask(&["status", "-o", "json"])?;
        let answers: Vec<Value> =
            serde_json::from_str(&answer).map_err(|error| format!("kattu status: {error}"))?;
        let of_member =
            |it: &Value| Some((it["election_timeout_ms"].as_u64()?, it["heartbeat_interval_ms"].as_u64()?));
        let mut timings: Vec<_> = answers.iter().map(of_member).collect();
        timings.dedup();
        match timings[..] {
            [Some(timing)] => Ok(timing),
            [None, ..] | [] => Err(format!("kattu status says nothing of timing: {answer}")),
            _ => Ok((0, 0)),
        }
    }

    fn leader(&self) -> Result<usize, String> {
        let mut found = None;
        self.until("a leader", |it| {
            found = it.cluster.leader_now();
            Ok(found.is_some())
        })?;
        found.ok_or_else(|| "no leader".into())
    }

    fn term(&self, member: usize) -> Option<u64> {
        self.cluster.members[member].metric("kattu_term")
    }

    /// The counters of the leader, each summed over its labels, and the times of stages at the member that is asked.
    fn counters(&self, leader: usize, asked: usize) -> BTreeMap<String, f64> {
        let page = |member: usize| Page::of(&self.cluster.members[member].address()).unwrap_or_default();
        let of_leader = page(leader);
        let sum =
            |name: &str| of_leader.numbers(name).fold(None, |sum, number| Some(sum.unwrap_or(0) + number));
        let mut counters: BTreeMap<String, f64> =
            COUNTERS.iter().filter_map(|name| Some(((*name).to_string(), sum(name)? as f64))).collect();
        let stages = stage_counters(&if asked == leader { of_leader } else { page(asked) });
        counters.extend(stages.into_iter().filter(|(name, _)| !name.starts_with("append ")));
        counters.extend(self.follower_counters(leader));
        counters
    }

    /// Entries that the leader has in its log and has not applied.
    fn behind(&self, leader: usize) -> Option<f64> {
        let page = Page::of(&self.cluster.members[leader].address())?;
        let (last, applied) = (page.number("kattu_log_last_index")?, page.number("kattu_log_applied_index")?);
        Some(last.saturating_sub(applied) as f64)
    }

    /// The members that a load asks, the leader first.
    fn asked(&self, load: &Load, leader: usize) -> Vec<usize> {
        let mut asked: Vec<usize> =
            (0..self.cluster.members.len()).filter(|&it| load.asked.have(it, leader)).collect();
        asked.sort_by_key(|&it| it != leader);
        asked
    }

    fn until(&self, what: &str, holds: impl FnMut(&Self) -> Result<bool, String>) -> Result<(), String> {
        self.until_within(SETTLE_LIMIT, Duration::from_millis(10), what, holds)
    }

    fn until_within(
        &self,
        limit: Duration,
        every: Duration,
        what: &str,
        mut holds: impl FnMut(&Self) -> Result<bool, String>,
    ) -> Result<(), String> {
        let end = Instant::now() + limit;
        while !holds(self)? {
            if end < Instant::now() {
                return Err(format!("after {limit:?} still not: {what}"));
            }
            std::thread::sleep(every);
        }
        Ok(())
    }

    fn processes(&self) -> Vec<u32> {
        self.cluster.members.iter().filter_map(|member| member.id()).collect()
    }

    fn endpoints(&self) -> String {
        self.cluster.addresses().join(",")
    }

    /// Runs a verb of `kattu` against all members; its standard output.
    fn ask(&self, words: &[&str]) -> Result<String, String> {
        run(&self.program, words, &self.endpoints())
    }
}

impl Drop for BenchCluster {
    fn drop(&mut self) {
        self.cluster.kill_all();
        self.proxy = None;
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

/// The times of all stages of reads, writes and appends together, in microseconds, and how many there were: `read confirmed`,
/// `read samples`.
fn stage_counters(page: &Page) -> BTreeMap<String, f64> {
    let numbers = |name: &'static str| {
        page.lines(name).filter_map(|line| {
            let (labels, number) = line.rsplit_once(' ')?;
            let mut words = labels.split('"');
            let (path, stage) = (words.nth(1)?, words.nth(1)?);
            let is_measured = matches!(path, "read" | "write" | "append");
            is_measured.then_some(())?;
            Some((path.to_string(), stage.to_string(), number.parse::<f64>().ok()?))
        })
    };
    let times = numbers("kattu_stage_seconds_sum")
        .map(|(path, stage, seconds)| (format!("{path} {stage}"), seconds * 1e6));
    let is_end = |stage: &str| matches!(stage, "answered" | "acknowledged");
    let counts = numbers("kattu_stage_seconds_count").filter(|(_, stage, _)| is_end(stage));
    times.chain(counts.map(|(path, _, count)| (format!("{path} samples"), count))).collect()
}

/// Processors that members and clients share.
fn processors() -> f64 {
    std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64)
}

/// What clients in sessions had: how many requests they went on after in a second, how long that took, how many of these were lost.
/// Without weak answers they go on when a request is done.
fn accepted_counters(answer: &Value) -> BTreeMap<String, f64> {
    let weak = if answer["weak"].is_null() { answer } else { &answer["weak"] };
    let of = [
        (ACCEPTED_PER_S, "ops_per_s"),
        (ACCEPTED_P50_US, "p50_us"),
        (ACCEPTED_P99_US, "p99_us"),
        (LOST, "lost"),
    ];
    of.iter().filter_map(|(name, field)| Some(((*name).to_string(), weak[*field].as_f64()?))).collect()
}

/// The link between two places.
fn weather(point: &Point, from: usize, to: usize) -> Weather {
    let more = point.links.between.map_or(0, |between| between[from][to]);
    let more = Duration::from_millis(more);
    let (least, most) = point.links.all.delay;
    Weather { delay: (least + more, most + more), ..point.links.all }
}

fn spawn(program: &Path, words: &[String], endpoints: &str) -> Result<Child, String> {
    let mut command = Command::new(program);
    // What the caller set for `kattu` is not meant for these calls.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("KATTU_")) {
        command.env_remove(name);
    }
    command.args(words).args(["--endpoints", endpoints]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().map_err(|error| format!("{}: {error}", program.display()))
}

fn run(program: &Path, words: &[&str], endpoints: &str) -> Result<String, String> {
    let words: Vec<String> = words.iter().map(ToString::to_string).collect();
    let child = spawn(program, &words, endpoints)?;
    let ended = child.wait_with_output().map_err(|error| error.to_string())?;
    match ended.status.success() {
        true => Ok(String::from_utf8_lossy(&ended.stdout).into_owned()),
        false => Err(format!("kattu {}: {}", words.join(" "), String::from_utf8_lossy(&ended.stderr).trim())),
    }
}

/// Whether a child has ended. Its status is left to be waited for, and with it its processor time.
fn has_ended(child: &Child) -> Result<bool, String> {
    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
    let process = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or("a process id")?;
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let ended = waitid(WaitId::Pid(process), options).map_err(|error| format!("kattu bench: {error}"))?;
    Ok(ended.is_some())
}

type Reader = std::thread::JoinHandle<String>;

fn reader(pipe: Option<impl std::io::Read + Send + 'static>) -> Option<Reader> {
    let mut pipe = pipe?;
    Some(std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }))
}

fn joined(reader: Option<Reader>) -> String {
    reader.and_then(|reader| reader.join().ok()).unwrap_or_default()
}
