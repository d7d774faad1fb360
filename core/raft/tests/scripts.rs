//! Golden scripts: protocol situations that read like a figure in a paper.
//!
//! `UPDATE_GOLDENFILES=1 cargo test -p kattu-raft scripts::` rewrites the output; review the diff. The commands
//! are listed in `scripts/README.md`.

use goldenscript::{Command, Context, Runner};
use kattu_peers::{HEADER, Held, Proof, World, config, show};
use kattu_raft::message::Append;
use kattu_raft::policy::{Capacity, Intake, Weak};
use kattu_raft::{
    Config, Duration, Entry, EntryHead, EntryId, EntryKind, HardState, Instant, LeaderLease, LinkEnd,
    LogBody, LogRecord, Lsn, ReadPath,
};
use kattu_raft::{Envelope, GroupId, Incarnation, LogIndex, Membership, Message, NodeId, Round, Stamp, Term};
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;

type Outcome = Result<String, Box<dyn Error>>;

fn is_on(value: &str) -> Result<bool, Box<dyn Error>> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        other => Err(format!("a switch is on or off, not {other}").into()),
    }
}

/// One script's world, and whether it settles after every command.
struct Stage {
    world: World,
    by_hand: bool,
}

impl Stage {
    fn new() -> Stage {
        Stage { world: World::new(Vec::new(), 1), by_hand: false }
    }

    fn members(&self, words: &[&str]) -> Result<Vec<NodeId>, Box<dyn Error>> {
        match words {
            [] | ["all"] => Ok(self.world.ids()),
            words => words.iter().map(|word| Ok(NodeId(word.parse()?))).collect(),
        }
    }

    fn configure(id: u64, voters: u64, keys: &BTreeMap<&str, &str>) -> Result<Config, Box<dyn Error>> {
        let mut config = config(id, voters, keys.get("learners").unwrap_or(&"0").parse()?);
        for (&key, &value) in keys {
            match (key, value) {
                ("learners" | "joiners" | "start", _) => {}
                ("chunk_bytes", bytes) => config.limits.snapshot_chunk_bytes_max = bytes.parse()?,
                ("snapshot_bytes_per_s", bytes) => config.limits.snapshot_bytes_per_s = bytes.parse()?,
                ("guards", "off") => {
                    config.pre_vote = false;
                    config.check_quorum = false;
                }
                ("window", entries) => {
                    let bytes = keys.get("window_bytes").unwrap_or(&"1000000").parse()?;
                    let intake = Intake::Window(Capacity { entries: entries.parse()?, bytes });
                    config.policies.intake = intake;
                }
                ("window_bytes", _) => {}
                ("weak", "gap") => config.policies.weak = Weak::Gap,
                ("weak", "receipt") => config.policies.weak = Weak::Receipt,
                ("parallel_append", "off") => config.parallel_append = false,
                ("pipelining", "off") => config.pipelining = false,
                ("batch_bytes", bytes) => config.limits.batch_bytes_max = bytes.parse()?,
                ("batch_entries", entries) => config.limits.batch_entries_max = entries.parse()?,
                ("read_apart_bytes", bytes) => config.limits.read_apart_bytes_min = bytes.parse()?,
                ("inflight_msgs", messages) => config.limits.inflight_msgs_max = messages.parse()?,
                ("inflight_bytes", bytes) => config.limits.inflight_bytes_max = bytes.parse()?,
                ("uncommitted_bytes", bytes) => config.limits.uncommitted_bytes_max = bytes.parse()?,
                ("apply_bytes", bytes) => config.limits.apply_bytes_max = bytes.parse()?,
                ("recent_bytes", bytes) => {
                    config.limits.recent_bytes_max = bytes.parse()?;
                    config.limits.recent_in_sync_bytes_max =
                        keys.get("in_sync_bytes").unwrap_or(&bytes).parse()?;
                }
                ("in_sync_bytes", _) => {}
                ("suspicion", "off") => config.leadership.suspicion = None,
                ("suspicion", step) => {
                    config.leadership.suspicion = Some(Duration::from_millis(step.parse()?));
                }
                ("lease", rho) => {
                    let margin = keys.get("margin").map_or(Ok(0), |margin| margin.parse())?;
                    let margin = Duration::from_millis(margin);
                    config.leadership.leader_lease =
                        Some(LeaderLease { rho: rho.parse()?, margin, watch_clocks: true });
                }
                ("margin", _) => {}
                ("priorities", priorities) => {
                    if let Some(priority) = priorities.split(' ').nth(id as usize - 1) {
                        config.leadership.priority = priority.parse()?;
                    }
                }
                (key, value) => return Err(format!("unknown setting {key}={value}").into()),
            }
        }
        Ok(config)
    }

    /// Writes the disk of a member that has not started: term and log.
    fn given(&mut self, id: NodeId, ids: &str, keys: &BTreeMap<&str, &str>) -> Result<(), Box<dyn Error>> {
        let ids: Vec<EntryId> = ids
            .split_whitespace()
            .map(|id| -> Result<EntryId, Box<dyn Error>> {
                let (term, index) = id.split_once('.').ok_or("write entries as term.index")?;
                Ok(EntryId::new(term.parse()?, index.parse()?))
            })
            .collect::<Result<_, _>>()?;
        let last_term = ids.last().map_or(0, |id| id.term.0);
        let term = keys.get("term").map_or(Ok(last_term), |term| term.parse())?;
        let mut bodies = vec![LogBody::HardState(HardState { term: Term(term), vote: None })];
        for id in ids {
            let head = EntryHead { id, kind: EntryKind::Command, stamp: Stamp(0) };
            let mut record = vec![0; HEADER];
            write!(Text(&mut record), "old")?;
            bodies.push(LogBody::Entry(Entry::new(head, record.into(), HEADER)));
        }
        let disk = &mut self.world.peer(id).disk;
        for body in bodies {
            let lsn = Lsn(disk.last_lsn().0 + 1);
            disk.write(LogRecord { lsn, body });
        }
        disk.sync(usize::MAX);
        Ok(())
    }

    /// An append that a leader could have sent: entries as term.index, behind `prev`.
    fn append(
        &self,
        from: NodeId,
        to: NodeId,
        keys: &BTreeMap<&str, &str>,
    ) -> Result<Envelope, Box<dyn Error>> {
        let id = |text: &str| -> Result<EntryId, Box<dyn Error>> {
            let (term, index) = text.split_once('.').ok_or("write entries as term.index")?;
            Ok(EntryId::new(term.parse()?, index.parse()?))
        };
        let entry = |text: &str| -> Result<Entry, Box<dyn Error>> {
            let head = EntryHead { id: id(text)?, kind: EntryKind::Command, stamp: Stamp(0) };
            let mut record = vec![0; HEADER];
            write!(Text(&mut record), "new")?;
            Ok(Entry::new(head, record.into(), HEADER))
        };
        let term = Term(keys.get("term").ok_or("in which term?")?.parse()?);
        let entries = keys.get("entries").unwrap_or(&"").split_whitespace().map(entry);
        let append = Append {
            prev: id(keys.get("prev").ok_or("behind which entry?")?)?,
            entries: entries.collect::<Result<_, _>>()?,
            commit: LogIndex(keys.get("commit").map_or(Ok(0), |commit| commit.parse())?),
            round: Round(0),
            tail: false,
        };
        let incarnation = Incarnation(1);
        Ok(Envelope { group: GroupId(0), from, incarnation, to, term, message: Message::Append(append) })
    }

    /// Takes the messages that match off the wire.
    fn take(&mut self, keys: &BTreeMap<&str, &str>) -> Result<Vec<kattu_raft::Envelope>, Box<dyn Error>> {
        let number = |key: &str| keys.get(key).map(|value| value.parse::<u64>()).transpose();
        let (from, to, count) = (number("from")?, number("to")?, number("count")?.unwrap_or(u64::MAX));
        let skip = number("skip")?.unwrap_or(0);
        let (mut seen, mut taken) = (0, Vec::new());
        let mut kept = std::collections::VecDeque::new();
        for envelope in self.world.wire.drain(..) {
            let fits = from.is_none_or(|id| envelope.from.0 == id) && to.is_none_or(|id| envelope.to.0 == id);
            seen += u64::from(fits);
            if fits && seen > skip && (taken.len() as u64) < count {
                taken.push(envelope);
            } else {
                kept.push_back(envelope);
            }
        }
        self.world.wire = kept;
        Ok(taken)
    }

    /// Members with equal logs share a line.
    fn logs(&self, members: &[NodeId]) -> String {
        let mut by_log: Vec<(String, Vec<String>)> = Vec::new();
        for id in members {
            let peer = &self.world.peers[id];
            let committed = peer.raft.as_ref().map_or(LogIndex(0), |raft| raft.committed());
            let written = peer.disk.written();
            let base = Some(written.base).filter(|base| *base != EntryId::default()).map(|base| {
                let mark = if base.index == committed { " |" } else { "" };
                format!("({base}){mark}")
            });
            let entries = written.log.iter().map(|entry| {
                let mark = if entry.id().index == committed { " |" } else { "" };
                format!("{}{mark}", show::entry(entry))
            });
            let entries = base.into_iter().chain(entries);
            let line = entries.collect::<Vec<_>>().join("  ");
            match by_log.iter_mut().find(|(known, _)| *known == line) {
                Some((_, members)) => members.push(id.0.to_string()),
                None => by_log.push((line, vec![id.0.to_string()])),
            }
        }
        by_log.iter().map(|(line, members)| format!("{}:  {line}\n", members.join(" "))).collect()
    }

    fn run_command(&mut self, command: &Command) -> Outcome {
        let mut args = command.consume_args();
        let mut keys = BTreeMap::new();
        while let Some((key, value)) = args.next_key() {
            keys.insert(key, value);
        }
        let mut words = Vec::new();
        while let Some(word) = args.next_pos() {
            words.push(word);
        }
        let member = || -> Result<NodeId, Box<dyn Error>> {
            Ok(NodeId(words.first().ok_or("which member?")?.parse()?))
        };
        let number =
            |n: usize| -> Result<u64, Box<dyn Error>> { Ok(words.get(n).ok_or("a number?")?.parse()?) };
        let mut output = String::new();
        match command.name.as_str() {
            "cluster" => {
                let voters = number(0)?;
                let learners: u64 = keys.get("learners").unwrap_or(&"0").parse()?;
                let mut configs = (1..=voters + learners)
                    .map(|id| Stage::configure(id, voters, &keys))
                    .collect::<Result<Vec<_>, _>>()?;
                let joiners: u64 = keys.get("joiners").unwrap_or(&"0").parse()?;
                for id in voters + learners + 1..=voters + learners + joiners {
                    let config = Stage::configure(id, voters, &keys)?;
                    configs.push(Config { voters: Vec::new(), learners: Vec::new(), ..config });
                }
                self.world = World::new(configs, 1);
                if keys.get("start") != Some(&"off") {
                    self.world.ids().into_iter().for_each(|id| self.world.start(id));
                }
            }
            "given" => self.given(member()?, words.get(1).unwrap_or(&""), &keys)?,
            "flags" => {
                for (&key, &value) in &keys {
                    let config = &mut self.world.peer(member()?).config;
                    match (key, value) {
                        ("lease", "off") => config.leadership.leader_lease = None,
                        ("lease", rho) => {
                            let margin = Duration::ZERO;
                            config.leadership.leader_lease =
                                Some(LeaderLease { rho: rho.parse()?, margin, watch_clocks: true });
                        }
                        ("timeout", ms) => config.election_timeout = Duration::from_millis(ms.parse()?),
                        (key, value) => return Err(format!("unknown flag {key}={value}").into()),
                    }
                }
            }
            "tune" => {
                let id = member()?;
                let mut tuning = self.world.raft(id).tuning();
                for (&key, &value) in &keys {
                    match (key, value) {
                        ("batching", value) => tuning.batching = is_on(value)?,
                        ("batch_entries", entries) => tuning.batch_entries_max = entries.parse()?,
                        ("batch_bytes", bytes) => tuning.batch_bytes_max = bytes.parse()?,
                        ("pipelining", value) => tuning.pipelining = is_on(value)?,
                        ("inflight_msgs", messages) => tuning.inflight_msgs_max = messages.parse()?,
                        ("inflight_bytes", bytes) => tuning.inflight_bytes_max = bytes.parse()?,
                        ("parallel_append", value) => tuning.parallel_append = is_on(value)?,
                        ("reads", "log") => tuning.reads = ReadPath::Log,
                        ("reads", "index") => tuning.reads = ReadPath::Index,
                        ("reads", rho) => {
                            let (rho, margin) = (rho.parse()?, Duration::ZERO);
                            tuning.reads = ReadPath::Lease(LeaderLease { rho, margin, watch_clocks: true });
                        }
                        (key, value) => return Err(format!("unknown switch {key}={value}").into()),
                    }
                }
                if let Err(rule) = self.world.act(id, |raft, now, _| raft.tune(now, &tuning)) {
                    self.world.journal.push(format!("{}: is not tuned: {rule}", id.0));
                }
            }
            "start" => {
                for id in self.members(&words)? {
                    self.world.start(id);
                }
            }
            "by_hand" => self.by_hand = true,
            "settle" => {
                self.by_hand = false;
                self.world.settle();
            }
            "elect" => {
                let id = member()?;
                if !self.world.elect(id) {
                    let status = show::status(self.world.raft(id));
                    self.world.journal.push(format!("{} is not elected: {status}", id.0));
                }
            }
            "tick" => {
                let id = member()?;
                self.world.now = self.world.now.max(self.world.due(id));
                self.world.tick(id);
            }
            "pass" => self.world.pass(Duration::from_millis(number(0)?)),
            "wait" => self.world.now += Duration::from_millis(number(0)?),
            "propose" => {
                let id = member()?;
                for payload in &words[1..] {
                    let verdict = self.world.propose(id, payload.as_bytes());
                    if let Err(refusal) = verdict {
                        self.world.journal.push(format!("{}: refuses {payload}: {refusal:?}", id.0));
                    }
                }
            }
            "read" => {
                let id = member()?;
                self.world.read(id);
            }
            "drain" => self.members(&words)?.into_iter().for_each(|id| self.world.drain(id)),
            "sync" => self.world.sync(member()?, words.get(1).map_or(Ok(usize::MAX), |word| word.parse())?),
            "complete" => self.world.complete(member()?, Lsn(number(1)?)),
            "snapshot" => {
                let id = member()?;
                if words.get(1) != Some(&"ends") {
                    self.world.begin_snapshot(id);
                }
                if words.get(1) != Some(&"begins") {
                    self.world.end_snapshot(id, keys.get("keep").map_or(Ok(0), |keep| keep.parse())?);
                }
            }
            "lose" => {
                let disk = &mut self.world.peer(member()?).disk;
                match words.get(1) {
                    Some(&"newest") => drop(disk.snapshots.pop()),
                    Some(&"all") => disk.snapshots.clear(),
                    other => return Err(format!("lose which snapshots, not {other:?}").into()),
                }
            }
            "read_chunk" => self.world.read_chunk(member()?, words.get(1) == Some(&"fails")),
            "store_chunk" => self.world.store_chunk(member()?),
            "compute" => {
                let id = member()?;
                let place = keys.get("place").map_or(Ok(1), |place| place.parse::<usize>())? - 1;
                match words.get(1) {
                    None => self.world.compute(id, place, false),
                    Some(&"again") => self.world.compute(id, place, true),
                    Some(&"lost") => self.world.lose_job(id, place),
                    Some(other) => return Err(format!("a job is not done {other}").into()),
                }
            }
            "change" => {
                let id = member()?;
                let list = |key: &str, now: &[NodeId]| -> Result<Vec<NodeId>, Box<dyn Error>> {
                    let Some(text) = keys.get(key) else { return Ok(now.to_vec()) };
                    text.split_whitespace().map(|word| Ok(NodeId(word.parse()?))).collect()
                };
                let now = self.world.raft(id).membership();
                let target = Membership::new(list("voters", &now.voters)?, list("learners", &now.learners)?);
                if let Err(refusal) = self.world.change(id, &target) {
                    self.world.journal.push(format!("{}: refuses: {refusal}", id.0));
                }
            }
            "members" => {
                for id in self.members(&words)? {
                    let Some(raft) = &self.world.peers[&id].raft else { continue };
                    let at = raft.membership_at().0;
                    let removed = if raft.is_removed() { ", removed" } else { "" };
                    writeln!(
                        output,
                        "{}: {} since {at}{removed}",
                        id.0,
                        show::membership(raft.membership())
                    )?;
                }
            }
            "apply" => self.world.apply(member()?, words.get(1).map_or(Ok(usize::MAX), |word| word.parse())?),
            "fetch" => self.world.fetch(member()?, words.get(1) == Some(&"fails")),
            "deliver" => {
                for envelope in self.take(&keys)? {
                    self.world.deliver(envelope);
                }
            }
            "append" => {
                let (from, to) = (NodeId(number(0)?), NodeId(number(1)?));
                let envelope = self.append(from, to, &keys)?;
                self.world.deliver(envelope);
            }
            "copy" => {
                let copies = self.take(&keys)?;
                self.world.wire.extend(copies.iter().cloned());
                self.world.wire.extend(copies);
            }
            "delay" => {
                let late = self.take(&keys)?;
                self.world.wire.extend(late);
            }
            "drop" => {
                for envelope in self.take(&keys)? {
                    writeln!(output, "dropped {}", show::envelope(&envelope))?;
                }
            }
            "wire" => {
                for envelope in &self.world.wire {
                    writeln!(output, "{}", show::envelope(envelope))?;
                }
            }
            "partition" => {
                let groups = words.iter().map(|group| self.members(&group.split(' ').collect::<Vec<_>>()));
                let groups = groups.collect::<Result<Vec<_>, _>>()?;
                self.world.partition(&groups);
            }
            "cut" => {
                let (from, to) = (NodeId(number(0)?), NodeId(number(1)?));
                self.world.cut.insert((from, to));
                if keys.get("ways") == Some(&"2") {
                    self.world.cut.insert((to, from));
                }
            }
            "mend" => self.world.cut.clear(),
            "heal" => self.world.heal(),
            "unlink" => {
                let peer = NodeId(number(1)?);
                let end = match keys.get("end") {
                    None => LinkEnd::Otherwise,
                    Some(&"peer") => LinkEnd::ByPeer,
                    Some(other) => return Err(format!("a link does not end by {other}").into()),
                };
                self.world.act(member()?, |raft, now, effects| raft.link_closed(now, peer, end, effects));
            }
            "kill" => {
                // Like the end of a process: the kernel closes all its links at once, and the others notice.
                let dead = member()?;
                self.world.crash(dead, 0);
                for id in self.world.ids() {
                    if self.world.runs(id) && !self.world.cut.contains(&(dead, id)) {
                        let end = LinkEnd::ByPeer;
                        self.world.act(id, |raft, now, effects| raft.link_closed(now, dead, end, effects));
                    }
                }
            }
            "transfer" => {
                let (id, target) = (member()?, NodeId(number(1)?));
                let verdict = self.world.act(id, |raft, now, effects| raft.transfer(now, target, effects));
                if let Err(error) = verdict {
                    writeln!(output, "{}: {error}", id.0)?;
                }
            }
            "successor" => {
                let id = member()?;
                let best = self.world.raft(id).best_successor(self.world.local(id));
                writeln!(output, "{}: {}", id.0, best.map_or("nobody".into(), |best| best.0.to_string()))?;
            }
            "clock" => {
                let now = self.world.now;
                let ppm = words.get(1).ok_or("how wrong?")?.parse()?;
                self.world.peer(member()?).clock.set_rate(now, ppm);
                if let Some(ms) = keys.get("shows") {
                    let shown = Duration::from_millis(ms.parse()?);
                    self.world.peer(member()?).clock.show(now, Instant(0) + shown);
                }
            }
            "lease" => {
                for id in self.members(&words)? {
                    let (raft, now) = (self.world.raft(id), self.world.local(id));
                    let left = |until: Instant| match until.since(now).as_micros() {
                        0 => "no".into(),
                        micros => format!("{:.1} ms", micros as f64 / 1000.0),
                    };
                    let (lease, vote_hold) =
                        (raft.leader_lease_until().unwrap_or_default(), raft.vote_hold_until());
                    writeln!(output, "{}: lease {} vote hold {}", id.0, left(lease), left(vote_hold))?;
                }
            }
            "notify" => {
                let peer = NodeId(number(1)?);
                self.world.act(member()?, |raft, _, _| raft.notify_commit(peer));
            }
            "space" => {
                let bytes = number(1)?;
                self.world.act(member()?, |raft, _, _| raft.set_log_space(bytes));
            }
            "crash" => {
                let surviving = keys.get("surviving").map_or(Ok(0), |records| records.parse())?;
                for id in self.members(&words)? {
                    self.world.crash(id, surviving);
                }
            }
            "forget" => {
                let (id, kept) = (member()?, number(1)? as usize);
                self.world.crash(id, usize::MAX);
                self.world.peer(id).disk.forget(kept);
            }
            "hold" | "release" => {
                let held = command.name == "hold";
                let id = member()?;
                let what = &mut self.world.peer(id).held;
                match words.get(1) {
                    Some(&"disk") => what.disk = held,
                    Some(&"apply") => what.apply = held,
                    Some(&"fetch") => what.fetch = held,
                    Some(&"chunks") => what.chunks = held,
                    Some(&"compute") => what.compute = held,
                    Some(other) => return Err(format!("cannot hold {other}").into()),
                    None => {
                        *what = Held { disk: held, apply: held, fetch: held, chunks: held, compute: held }
                    }
                }
            }
            "log" => output = self.logs(&self.members(&words)?),
            "status" => {
                for id in self.members(&words)? {
                    let status = self.world.peers[&id].raft.as_ref().map_or("down".into(), show::status);
                    writeln!(output, "{}: {status}", id.0)?;
                }
            }
            "disk" => {
                let id = member()?;
                let disk = &self.world.peers[&id].disk;
                let hard = disk.durable.hard;
                let vote = hard.vote.map_or("nobody".into(), |vote| vote.0.to_string());
                let entries = disk.durable.log.iter().map(show::entry).collect::<Vec<_>>().join("  ");
                let committed = disk.durable.committed.0;
                writeln!(output, "term {} vote {vote} commit mark {committed}:  {entries}", hard.term.0)?;
            }
            "store" => {
                for id in self.members(&words)? {
                    let store = &self.world.peers[&id].store;
                    let texts = store
                        .iter()
                        .map(|(id, payload)| format!("{id} {}", String::from_utf8_lossy(payload)));
                    writeln!(output, "{}:  {}", id.0, texts.collect::<Vec<_>>().join("  ").trim_end())?;
                }
            }
            "proof" => {
                for id in self.members(&words)? {
                    match self.world.peers[&id].proof {
                        Proof::Found(index) => writeln!(output, "{}: {}", id.0, index.0)?,
                        Proof::Missing | Proof::Asked(_) => writeln!(output, "{}: no", id.0)?,
                    }
                }
            }
            "show" | "hide" => {
                let shown = command.name == "show";
                for word in &words {
                    match *word {
                        "messages" => self.world.show_messages = shown,
                        "disk" => self.world.show_disk = shown,
                        other => return Err(format!("cannot {} {other}", command.name).into()),
                    }
                }
            }
            other => return Err(format!("unknown command {other}").into()),
        }
        if !self.by_hand {
            self.world.settle();
        }
        for line in self.world.journal.drain(..) {
            writeln!(output, "{line}")?;
        }
        Ok(output)
    }
}

/// Text written into bytes.
struct Text<'a>(&'a mut Vec<u8>);

impl std::fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

impl Runner for Stage {
    type Command = Command;

    fn run(&mut self, command: &Command, _: &Context) -> Outcome {
        self.run_command(command)
    }
}

/// Runs every script of a folder; the first that differs fails with the difference.
fn run_folder(folder: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts").join(folder);
    let entries = std::fs::read_dir(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut scripts: Vec<_> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
    scripts.sort();
    assert!(!scripts.is_empty(), "no scripts in {}", path.display());
    for script in scripts {
        println!("{}", script.display());
        goldenscript::run(&mut Stage::new(), &script)
            .unwrap_or_else(|error| panic!("{}: {error}", script.display()));
    }
}

#[test]
fn elections() {
    run_folder("elections");
}

#[test]
fn replication() {
    run_folder("replication");
}

#[test]
fn conflicts() {
    run_folder("conflicts");
}

#[test]
fn reads() {
    run_folder("reads");
}

#[test]
fn transfers() {
    run_folder("transfers");
}

#[test]
fn suspicions() {
    run_folder("suspicions");
}

#[test]
fn leases() {
    run_folder("leases");
}

#[test]
fn snapshots() {
    run_folder("snapshots");
}

#[test]
fn membership() {
    run_folder("membership");
}

#[test]
fn restarts() {
    run_folder("restarts");
}

#[test]
fn tuning() {
    run_folder("tuning");
}

#[test]
fn window() {
    run_folder("window");
}
