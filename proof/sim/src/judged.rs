//! Judged: a member's calls of its replica, under the eyes of the judges.
//!
//! In:    every event that a node handles, every step that a keeper does. [shell/member `host`]
//! Out:   the end of the process, where a judge finds something wrong; the counts of the storm; its course.
//! Knows nothing of: when a member calls its replica.

use crate::apply_thread::ApplyThread;
use crate::beside::Beside;
use crate::clock::Clock;
use crate::diverge::altered;
use crate::end::End;
use crate::faults::Fault;
use crate::net::id_of;
use crate::paths::load_of;
use crate::plan::Leases;
use crate::process::{Hands, Process};
use crate::report::Violation;
use crate::timeline;
use crate::tuned;
use crate::world::Shared;
use kattu_member::capacity::Sight;
use kattu_member::host::{Arrivals, Brought, Call, Host};
use kattu_member::log::Completion;
use kattu_member::progress::Progress;
use kattu_member::step::Stage;
use kattu_member::tuning::Tuning;
use kattu_node::bundle::Parts;
use kattu_node::command::has_budget;
use kattu_node::contract::{Effects, Event, KeeperEffects, KeeperTask, PeerMessage, Request};
use kattu_node::level::{BUNDLES, EXTENSIONS, SESSIONS};
use kattu_node::session::is_of_session;
use kattu_node::{Keeper, Node};
use kattu_raft::{Duration, Entry, EntryKind, Instant, Job, LogBody, LogRecord, Membership, NodeId, Trace};
use kattu_verify::service::Work;
use std::collections::VecDeque;

/// What a step of the keeper may take beyond what it was allowed: the largest value of a storm, or the way back over a few
/// changes for a count. 39 units were the most in 200 storms; a request that is not cut costs up to some thousands.
const STEP_EXCESS_MAX: u64 = 256;

/// What is known of a process from outside.
pub(crate) struct Eyes {
    id: NodeId,
    clock: Clock,
    /// What the node made of the event that it handles.
    scratch: Effects,
    /// Entries that the keeper has not applied yet.
    applying: VecDeque<Entry>,
    /// What this step has done so far.
    pub(crate) work: Work,
    pub(crate) events_in_batch: u64,
    /// Old versions that the keeper had forgotten when this was last looked at.
    forgotten: u64,
    /// Bytes of entries that went to its log in this run.
    pub(crate) entry_bytes: u64,
    /// Its memory gets the next entry wrong that can be got wrong.
    pub(crate) goes_wrong: bool,
}

impl Eyes {
    pub(crate) fn new(id: NodeId, clock: Clock) -> Eyes {
        Eyes {
            id,
            clock,
            scratch: Effects::default(),
            applying: VecDeque::new(),
            work: Work::default(),
            events_in_batch: 0,
            forgotten: 0,
            entry_bytes: 0,
            goes_wrong: false,
        }
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The keeper has forgotten a little since this was last looked at.
    pub(crate) fn note_forgotten(&mut self, keeper: &Keeper) {
        let forgotten = keeper.store().versions_forgotten();
        let before = std::mem::replace(&mut self.forgotten, forgotten);
        self.work.keys += forgotten.saturating_sub(before);
    }

    /// What came from the leader and goes to the disk was worth sending.
    fn note_taken(&mut self, node: &Node, sh: &mut Shared) {
        self.entry_bytes += self.scratch.persist.iter().map(record_bytes).sum::<u64>();
        let Some(leader) = node.raft().leader().filter(|leader| *leader != self.id) else { return };
        let goodput = &mut sh.service.goodput;
        for record in &self.scratch.persist {
            if let LogBody::Entry(entry) = &record.body {
                goodput.took_entry(leader, self.id, entry.id(), entry.len() as u64);
            }
        }
        for piece in &self.scratch.store_chunks {
            goodput.took_piece(leader, self.id, piece.meta.last, piece.offset, piece.bytes.len() as u64);
        }
    }

    /// A lease is over when its leader's clock says so; meanwhile nobody else leads, if clocks are as good as believed.
    fn watch_lease(&self, node: &Node, sh: &mut Shared) -> Result<(), End> {
        let leads = self.scratch.trace.iter().any(|trace| matches!(trace, Trace::BecameLeader(_)));
        let accuses = |trace: &&Trace| matches!(trace, Trace::ClocksApart { .. });
        let accused = self.scratch.trace.iter().find(accuses);
        sh.observer.clocks(self.id, node.raft(), accused, sh.settings.leases)?;
        match sh.observer.lease(self.id, node.raft(), &self.clock, sh.now) {
            Ok(began) => {
                sh.counts.leases += u64::from(began);
                if began && sh.pace.drift > 0 && sh.settings.leases == Leases::Within {
                    sh.tally.add(Fault::F41);
                }
                Ok(())
            }
            Err(_) if sh.settings.leases.are_broken() => {
                if leads {
                    sh.tally.add(Fault::F42);
                }
                Ok(())
            }
            Err(violation) => Err(violation.into()),
        }
    }

    /// No step takes much more than it was allowed: at the most what one small thing takes.
    fn judge_step(&self, allowed: i64, units: u64) -> Result<(), End> {
        if allowed.unsigned_abs().saturating_add(STEP_EXCESS_MAX) < units {
            let story = format!("n{}: a step of {units} units, {allowed} were allowed", self.id.0);
            return Err(Violation::new("bounded_step", story).into());
        }
        Ok(())
    }

    fn note_applied(&mut self, sh: &mut Shared, keeper: &Keeper, entry: &Entry) -> Result<(), End> {
        sh.trace.mix(entry.id().index.0 ^ entry.id().term.0 << 40);
        sh.diverged.applied(self.id, entry, keeper);
        if sh.diverged.is_divergent(self.id) {
            return Ok(sh.observer.applied_within(self.id, entry)?);
        }
        if entry.head.kind == EntryKind::Command && entry.payload().and_then(Parts::of).is_some() {
            sh.counts.bundles += 1;
        }
        if !sh.observer.is_blind() {
            self.judge_level(sh, keeper, entry)?; // a lie may be of any level, and stays in the log
        }
        Ok(sh.observer.applied(self.id, entry, keeper)?)
    }

    /// No entry has a form that a member of an older version could not read, before the cluster's level says so.
    fn judge_level(&self, sh: &Shared, keeper: &Keeper, entry: &Entry) -> Result<(), End> {
        let older = sh.older.map(id_of);
        let has_older = || keeper.members().list.iter().any(|info| Some(info.id) == older);
        let early = |what| {
            let story = format!("n{}: {} {what}", self.id.0, entry.id());
            Err(Violation::new("older_versions_can_follow", story).into())
        };
        if entry.head.kind == EntryKind::Command
            && entry.payload().is_some_and(has_budget)
            && keeper.health().level == 0
        {
            return early("holds a budget before the cluster knows them");
        }
        if entry.head.kind == EntryKind::Command
            && entry.payload().is_some_and(is_of_session)
            && keeper.health().level < SESSIONS
        {
            return early("is about a session before the cluster knows them");
        }
        if entry.head.kind == EntryKind::Command
            && entry.payload().and_then(Parts::of).is_some()
            && keeper.health().level < BUNDLES
        {
            return early("holds several commands before the cluster knows that");
        }
        if entry.head.kind == EntryKind::Config
            && entry.payload().is_some_and(is_extended)
            && keeper.health().level < EXTENSIONS
        {
            return early("has an extension before the cluster knows them");
        }
        if older.is_some() && keeper.health().level != 0 && has_older() {
            return early("uses a feature level that an older member does not know");
        }
        Ok(())
    }
}

impl Process {
    /// Operations of clients that wait for an answer from this process.
    pub(crate) fn take_waiting(&mut self) -> Vec<u64> {
        let mut waiting: Vec<u64> = self.member.abandon().collect();
        let hands = &mut self.hands;
        waiting.extend(hands.replying.drain(..).map(|(operation, _)| operation));
        waiting.extend(hands.calls.drain(..).map(|(operation, _)| operation));
        for progress in hands.progress.drain(..) {
            waiting.extend(progress.admitted.into_iter().filter_map(|(_, client)| client));
            waiting.extend(progress.desk.into_iter().flat_map(|mut desk| desk.abandon().collect::<Vec<_>>()));
        }
        waiting.extend(hands.apply.iter_mut().flat_map(ApplyThread::abandon));
        waiting.sort_unstable();
        waiting
    }

    /// What it is doing and what room its log has, for stories.
    pub(crate) fn room(&self) -> String {
        let space = self.member.capacity().space();
        let short = if space.short { " (short)" } else { "" };
        format!("{} bytes{short}, {:?}", space.log_bytes, self.member.stage())
    }

    /// A copy of the keeper that has done to its end what was under way: for whoever looks at tables between two events.
    pub(crate) fn whole_keeper(&self) -> Keeper {
        let mut copy = self.keeper().clone();
        while copy.is_in_the_middle() {
            copy.step(&mut i64::MAX.clone(), &mut KeeperEffects::default());
        }
        copy
    }

    /// Whether nothing is under way here.
    pub(crate) fn is_quiet(&self) -> bool {
        let hands = &self.hands;
        self.member.stage() == Stage::Idle
            && hands.calls.is_empty()
            && hands.progress.is_empty()
            && self.member.computing().is_idle()
            && self.member.waiting().is_empty()
            && !self.keeper().is_busy()
            && hands.apply.as_ref().is_none_or(|thread| thread.batches.is_empty())
    }

    /// There is something to forget, until somebody looks again.
    pub(crate) fn look_for_compaction(&mut self, sh: &mut Shared) {
        if sh.service.times_writes() && self.keeper().store().stats().forgets {
            let begins = self.hands.log.disk.beside.goes_on(Beside::Compaction, sh.now, sh.now);
            sh.counts.compactions += u64::from(begins);
        }
    }

    /// An append waits for each job that waits. So these hold no more bytes than the appends, which have a limit; one of any size
    /// passes alone.
    pub(crate) fn judge_jobs(&self, sh: &Shared) -> Result<(), Violation> {
        let waiting = self.member.computing().waiting();
        let bytes: usize = waiting.iter().map(Job::bytes).sum();
        let bytes_max = sh.settings.limits.inflight_bytes_max;
        let are_of_use = waiting.iter().all(|job| self.node().raft().awaits(job.id()));
        if !are_of_use || 1 < waiting.len() && bytes_max < bytes {
            let story = format!(
                "n{}: {} jobs of {bytes} bytes wait, at most {bytes_max}; all of use: {are_of_use}",
                self.hands.member + 1,
                waiting.len()
            );
            return Err(Violation::new("jobs_are_bounded", story));
        }
        Ok(())
    }

    /// Requests held in memory, for the check that they are bounded.
    pub(crate) fn held(&self) -> usize {
        self.hands.calls.len() + self.node().pending()
    }

    /// Bytes of requests that wait in front of the replica, or in it for a place in the log.
    pub(crate) fn call_bytes(&self) -> u64 {
        let bytes = |request: &Request| match request {
            Request::Write(command) => command.len() as u64,
            _ => 0,
        };
        let calls = self.hands.calls.iter().map(|(_, request)| bytes(request)).sum::<u64>();
        calls + self.node().pending_bytes() as u64
    }
}

/// A process at this moment of the world.
pub(crate) struct Now<'a> {
    pub(crate) hands: &'a mut Hands,
    pub(crate) sh: &'a mut Shared,
}

impl Host for Now<'_> {
    type Stop = End;

    fn now(&self) -> Instant {
        self.hands.eyes.clock.at(self.sh.now)
    }

    fn handle(
        &mut self,
        node: &mut Node,
        now: Instant,
        event: Event,
        effects: &mut Effects,
    ) -> Result<(), End> {
        let (eyes, sh) = (&mut self.hands.eyes, &mut *self.sh);
        if let Event::DiskTook(_) = event {
            // No event of the course: it takes no time.
            node.handle(now, event, effects);
            return Ok(());
        }
        eyes.events_in_batch += 1;
        sh.events += 1;
        sh.trace.mix(sh.now ^ (eyes.id.0 - 1) << 56 ^ timeline::kind_of(&event) << 48);
        // A client's request counts when something is done for it: to refuse it takes next to nothing.
        let handled = match &event {
            Event::Peer(PeerMessage::Forward(forward)) => forward.commands.len() as u64,
            Event::Client { .. } => 0,
            _ => 1,
        };
        node.handle(now, event, &mut eyes.scratch);
        sh.observer.stepped(eyes.id, node, &eyes.scratch)?;
        if sh.settings.leases != Leases::Off {
            eyes.watch_lease(node, sh)?;
        }
        timeline::note(sh, eyes.id, &eyes.scratch);
        if sh.older_copies.get(&eyes.id).is_some_and(|copy| copy.is_over && !copy.is_reminded) {
            return Err(End::NotReminded);
        }
        eyes.note_taken(node, sh);
        let records = &eyes.scratch.persist;
        let sent = eyes.scratch.send.iter().map(load_of).sum::<u64>();
        let bytes = records.iter().map(record_bytes).sum::<u64>() + sent;
        eyes.work.add(Work { entries: handled + records.len() as u64, keys: 0, bytes });
        append(effects, &mut eyes.scratch);
        Ok(())
    }

    fn deliver(&mut self, keeper: &mut Keeper, task: KeeperTask, effects: &mut KeeperEffects) {
        let (eyes, sh) = (&mut self.hands.eyes, &mut *self.sh);
        let task = match task {
            KeeperTask::Apply { entry, tickets, term } => {
                let wrong = (eyes.goes_wrong && !keeper.is_installing()).then(|| altered(&entry)).flatten();
                if wrong.is_some() {
                    eyes.goes_wrong = false;
                    sh.diverged.begins(eyes.id);
                    let line = || format!("gets {} wrong", entry.id());
                    sh.trace.line(sh.now, Some(eyes.id.0), "store", line);
                }
                eyes.applying.push_back(entry.clone());
                KeeperTask::Apply { entry: wrong.unwrap_or(entry), tickets, term }
            }
            task => task,
        };
        keeper.take_in(task, effects);
    }

    fn step(&mut self, keeper: &mut Keeper, slice: &mut i64, effects: &mut KeeperEffects) -> Result<(), End> {
        let (eyes, sh) = (&mut self.hands.eyes, &mut *self.sh);
        let (before, allowed) = (keeper.applied(), *slice);
        eyes.forgotten = keeper.store().versions_forgotten();
        keeper.step(slice, effects);
        let units = std::mem::take(&mut effects.units);
        eyes.judge_step(allowed, units)?;
        eyes.work.keys += units;
        eyes.note_forgotten(keeper);
        sh.counts.cut += u64::from(keeper.is_in_the_middle());
        if effects.snapshot.is_some() {
            sh.observer.tables(eyes.id, keeper)?;
        }
        if before < keeper.applied() && !keeper.is_installing() {
            let entry = eyes.applying.pop_front().expect("what is applied was handed over");
            assert_eq!(entry.id().index, keeper.applied(), "entries are applied in order");
            eyes.note_applied(sh, keeper, &entry)?;
        }
        Ok(())
    }
}

impl Arrivals for Now<'_> {
    type Client = u64;
    type Asker = ();

    fn completion(&mut self) -> Result<Option<Completion>, End> {
        self.hands.log.completion(self.sh, &mut self.hands.fuse)
    }

    fn progress(&mut self) -> Option<Progress<u64>> {
        self.hands.progress.pop_front()
    }

    fn brought(&mut self) -> Result<Option<Brought>, End> {
        let brought = self.hands.worker.brought.pop_front();
        if let Some(Brought::Tables(meta, tables)) = &brought {
            let (id, sh) = (self.hands.eyes.id, &mut *self.sh);
            sh.observer.tables(id, tables)?;
            sh.observer.installed(id, meta.last)?;
            sh.counts.installs += 1;
            sh.trace.line(sh.now, Some(id.0), "snapshot", || format!("installs {}", meta.last));
        }
        Ok(brought)
    }

    fn events(&mut self, into: &mut Vec<Event>) -> Instant {
        into.extend(self.hands.inbox.drain(..));
        self.now()
    }

    fn calls(&mut self, most: usize, into: &mut Vec<Call<u64, ()>>) -> Instant {
        let count = most.min(self.hands.calls.len());
        into.extend(
            self.hands.calls.drain(..count).map(|(operation, request)| Call::Ask(operation, request)),
        );
        into.extend(self.hands.settings.drain(..).map(|settings| Call::Tune(settings, ())));
        self.now()
    }

    fn is_gone(&self, _: &u64) -> bool {
        false
    }

    fn transferring(&mut self, (): (), _: bool) {
        unreachable!("storms transfer leadership by requests");
    }

    fn tuned(&mut self, (): (), tuning: Result<Tuning, &'static str>) {
        // A lease may be too short for the timing in force: that is refused with all that was given.
        self.sh.counts.tuned += u64::from(tuning.is_ok());
        let told = tuning.map_or_else(|rule| format!("is not tuned: {rule}"), tuned::words);
        self.sh.line(Some(self.hands.member), "tuning", || told);
    }

    fn sight(&self) -> Sight {
        Sight::default()
    }

    fn least_quota(&self) -> Option<u64> {
        self.sh.net.peers[self.hands.member].table.least_quota()
    }

    fn retries_log(&self) -> bool {
        self.hands.log.retries(self.sh.now)
    }

    fn record_vote_hold(&mut self, length: Duration) -> bool {
        self.sh.vote_holds.insert(self.hands.eyes.id, length);
        true
    }
}

/// What the node has made of one event goes behind the rest of the batch.
fn append(effects: &mut Effects, fresh: &mut Effects) {
    let Effects { persist, send, fetch, apply, reply, compute, distrust, trace, read_chunks, store_chunks } =
        fresh;
    effects.persist.append(persist);
    effects.send.append(send);
    effects.fetch.append(fetch);
    effects.apply.append(apply);
    effects.reply.append(reply);
    effects.compute.append(compute);
    effects.distrust.append(distrust);
    effects.trace.append(trace);
    effects.read_chunks.append(read_chunks);
    effects.store_chunks.append(store_chunks);
}

/// Whether the payload of a configuration entry says more than its members.
fn is_extended(payload: &[u8]) -> bool {
    Membership::decode(payload).is_ok_and(|(membership, _)| !membership.extensions.is_empty())
}

fn record_bytes(record: &LogRecord) -> u64 {
    match &record.body {
        LogBody::Entry(entry) => entry.len() as u64,
        _ => 0,
    }
}
