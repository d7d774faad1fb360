//! Process: one run of one member, driven as production drives it. [shell/runtime `driver`, `seat`, `room`]
//!
//! ```text
//!  take in everything → tick if due → "drained" → carry out: send → answer → apply → fetch → log → "drained" → … → sleep
//! ```
//! Carrying out goes effect by effect and can stop between any two: for a kill, for a sync that takes time, for a pause. Log
//! and keeper work inline or on threads of their own, as configured.
//! Knows nothing of: why it is killed, who its clients are.

use crate::beside::{Beside, BesideWrites, Thread};
use crate::clock::{Clock, SEC};
use crate::diverge::altered;
use crate::faults::Fault;
use crate::log::Log;
use crate::net::{id_of, load_of};
use crate::plan::{Leases, Threading};
use crate::snapshots::Worker;
use crate::world::{Event as Planned, Shared};
use kattu_member::log::{Completion, LogSpace};
use kattu_member::snapshots::{Done, Order};
use kattu_node::command::has_budget;
use kattu_node::compare::Health;
use kattu_node::contract::{
    Admitted, Doubt, Effects, Event, Forward, KeeperEffects, KeeperTask, Members, Outcome, PeerMessage,
    Refusal, Request, Space, Ticket,
};
use kattu_node::{Keeper, Node};
use kattu_raft::{Duration, Entry, EntryKind, Fetch, LogBody, LogIndex, LogRecord, Lsn, NodeId, Trace};
use kattu_verify::service::Work;
use kattu_wal::WalError;
use kattu_wal::sim::SimDisk;
use std::collections::{BTreeMap, VecDeque};

/// See [`kattu_member::log::FULL_RETRY`].
const FULL_RETRY: u64 = kattu_member::log::FULL_RETRY.as_millis() as u64 * crate::clock::MS;
/// Client calls taken into one batch.
const CALLS_PER_BATCH: usize = 4096;
/// Pieces of the log read back in one batch.
const FETCHES_PER_BATCH: usize = 1;
/// Requests that may wait in front of a replica. Production has room for 65,536; this is reached.
pub(crate) const CALLS_MAX: usize = 2048;
/// A step of a member with little CPU that takes longer is one that its peers can notice.
const LONG_STEP: u64 = crate::clock::MS;
/// Tasks that may wait for a keeper on its own thread, scaled down likewise.
const TASKS_MAX: usize = 4096;

/// A slice of production. [shell/runtime `apply_executor`]
pub(crate) const SLICE_UNITS: i64 = 8 << 10;
/// Of small slices so many take as long as it takes to wake the thread: few enough that something comes in between.
const SLICES_PER_WAKE_MAX: u64 = 256;

/// What a step of the keeper may take beyond what it was allowed: the largest value of a storm, or the way back over a few
/// changes for a count. 39 units were the most in 200 storms; a request that is not cut costs up to some thousands.
const STEP_EXCESS_MAX: u64 = 256;

/// Why a process ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It was killed between two effects.
    Fuse,
    /// Its log failed.
    Log(WalError),
    /// It would take part with an older copy of its directory, of which not everybody has reminded it who could.
    NotReminded,
    /// What must hold does not.
    Violation(crate::report::Violation),
}

impl From<WalError> for End {
    fn from(error: WalError) -> End {
        End::Log(error)
    }
}

impl From<crate::report::Violation> for End {
    fn from(violation: crate::report::Violation) -> End {
        End::Violation(violation)
    }
}

/// Where the batch stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing to carry out.
    Idle,
    Send,
    Reply,
    Apply,
    Fetch,
    Persist,
    /// At the disk.
    Syncing,
    Next,
}

#[derive(Debug)]
struct Progress {
    applied: Option<LogIndex>,
    store_bytes: u64,
    members: Option<Members>,
    health: Option<Health>,
    admitted: Vec<Admitted>,
}

/// The log's own thread.
#[derive(Default)]
struct LogThread {
    records: Vec<Vec<LogRecord>>,
    fetches: Vec<Fetch>,
    /// What was ordered and is not durable yet.
    underway: VecDeque<(Lsn, u64)>,
}

pub(crate) struct Process {
    member: usize,
    pub(crate) run: u32,
    pub(crate) node: Node,
    pub(crate) keeper: Keeper,
    log: Log,
    clock: Clock,
    log_thread: Option<LogThread>,
    disk: SimDisk,
    /// What goes on beside the log.
    pub(crate) beside: BesideWrites,
    /// Times that the log had gone over to another segment when this was last looked at.
    rotations: u64,
    /// A disk call is under way: when it began, and what it will come to.
    at_disk: Option<(u64, Completion)>,
    /// Batches waiting for a keeper on its own thread.
    keeper_queue: Option<VecDeque<Vec<KeeperTask>>>,
    keeper_tasks: usize,
    /// Its thread will look.
    keeper_planned: bool,
    /// Entries that the keeper has not applied yet.
    applying: VecDeque<Entry>,
    /// What the keeper has told that nobody has heard yet.
    kept: KeeperEffects,
    /// Units of work that a keeper on this thread may still do in this batch.
    slice_left: i64,
    inbox: VecDeque<Event>,
    calls: VecDeque<(u64, Request)>,
    completions: VecDeque<Completion>,
    progress: VecDeque<Progress>,
    worker: Worker,
    /// What the worker has done.
    done: VecDeque<Done>,
    /// Up to where an answer that leaves now is known to reach. [shell/runtime `Facts`]
    position: LogIndex,
    /// Tickets of clients that wait here, with their operations.
    waiting: BTreeMap<Ticket, u64>,
    tickets: u64,
    effects: Effects,
    scratch: Effects,
    sending: VecDeque<PeerMessage>,
    unsent: Vec<Forward>,
    replying: VecDeque<(Ticket, Outcome)>,
    fetches: VecDeque<Fetch>,
    fetches_left: usize,
    stage: Stage,
    news: bool,
    applied_in_batch: bool,
    events_in_batch: u64,
    /// What this step has done so far.
    work: Work,
    /// The thread is busy until then.
    free_at: u64,
    wake_at: u64,
    timer_at: u64,
    /// Effects that may still happen before it is killed.
    pub(crate) fuse: Option<u64>,
    space: Space,
    log_full: bool,
    store_bytes: u64,
    /// Bytes of entries that went to its log in this run.
    pub(crate) entry_bytes: u64,
    looked_at: Option<u64>,
    /// It has applied its own removal.
    pub(crate) is_gone: bool,
    /// Its memory gets the next entry wrong that can be got wrong.
    pub(crate) goes_wrong: bool,
}

impl Process {
    pub(crate) fn new(
        (member, run): (usize, u32),
        node: Node,
        keeper: Keeper,
        (log, disk): (Log, SimDisk),
        clock: Clock,
        sh: &mut Shared,
    ) -> Process {
        let thread = |place| place == Threading::Thread;
        let settings = &sh.settings;
        let worker = Worker::new(log.snapshots());
        let mut process = Process {
            worker,
            done: VecDeque::new(),
            member,
            run,
            node,
            keeper,
            log,
            clock,
            log_thread: thread(settings.log_io).then(LogThread::default),
            disk,
            beside: BesideWrites::default(),
            rotations: 0,
            at_disk: None,
            keeper_queue: thread(settings.apply).then(VecDeque::new),
            keeper_tasks: 0,
            keeper_planned: false,
            applying: VecDeque::new(),
            kept: KeeperEffects::default(),
            slice_left: 0,
            inbox: VecDeque::new(),
            calls: VecDeque::new(),
            completions: VecDeque::new(),
            progress: VecDeque::new(),
            position: LogIndex(0),
            waiting: BTreeMap::new(),
            tickets: 0,
            effects: Effects::default(),
            scratch: Effects::default(),
            sending: VecDeque::new(),
            unsent: Vec::new(),
            replying: VecDeque::new(),
            fetches: VecDeque::new(),
            fetches_left: 0,
            stage: Stage::Idle,
            news: false,
            applied_in_batch: false,
            events_in_batch: 0,
            work: Work::default(),
            free_at: 0,
            wake_at: 0,
            timer_at: 0,
            fuse: None,
            space: Space { log_bytes: 0, short: false },
            log_full: false,
            store_bytes: 0,
            entry_bytes: 0,
            looked_at: None,
            is_gone: false,
            goes_wrong: false,
        };
        process.log.prepare_next(sh.now);
        process.plan_segment(sh);
        let space = process.room_is_now(process.log.room(), sh);
        let now = clock.at(sh.now);
        let mut nothing = Effects::default();
        process.node.handle(now, Event::Space(space), &mut nothing);
        process.node.handle(now, Event::Members(process.keeper.members()), &mut nothing);
        process.node.handle(now, Event::Health(process.keeper.health()), &mut nothing);
        process
    }

    pub(crate) fn id(&self) -> NodeId {
        id_of(self.member)
    }

    /// A peer's message, or the end of a link.
    pub(crate) fn hear(&mut self, event: Event) {
        self.inbox.push_back(event);
    }

    /// A client's request; refused at the door when too many wait there. [shell/runtime `Engine::call`]
    pub(crate) fn call(&mut self, operation: u64, request: Request) -> Result<(), Refusal> {
        if self.calls.len() >= CALLS_MAX {
            return Err(Refusal::TooManyRequests);
        }
        self.calls.push_back((operation, request));
        Ok(())
    }

    /// Operations of clients that wait for an answer from this process.
    pub(crate) fn take_waiting(&mut self) -> Vec<u64> {
        let waiting = std::mem::take(&mut self.waiting).into_values();
        waiting.chain(self.calls.drain(..).map(|(operation, _)| operation)).collect()
    }

    /// What it is doing and what room its log has, for stories.
    pub(crate) fn room(&self) -> String {
        format!(
            "{} bytes{}, {:?}",
            self.space.log_bytes,
            if self.space.short { " (short)" } else { "" },
            self.stage
        )
    }

    /// A copy of the keeper that has done to its end what was under way: for whoever looks at tables between two events.
    pub(crate) fn whole_keeper(&self) -> Keeper {
        let mut copy = self.keeper.clone();
        while copy.is_in_the_middle() {
            copy.step(&mut i64::MAX.clone(), &mut KeeperEffects::default());
        }
        copy
    }

    /// Whether nothing is under way here.
    pub(crate) fn is_quiet(&self) -> bool {
        self.stage == Stage::Idle
            && self.calls.is_empty()
            && self.waiting.is_empty()
            && !self.keeper.is_busy()
    }

    /// Requests held in memory, for the check that they are bounded.
    pub(crate) fn held(&self) -> usize {
        self.calls.len() + self.node.pending()
    }

    fn has_work(&self, now: u64) -> bool {
        !self.inbox.is_empty()
            || !self.calls.is_empty()
            || !self.completions.is_empty()
            || !self.progress.is_empty()
            || !self.done.is_empty()
            || !self.fetches.is_empty()
            || self.keeper_queue.is_none() && self.keeper.is_busy()
            || self.log.has_made()
            || self.node.deadline() <= self.clock.at(now)
    }

    /// Does what can be done now, and plans when to look again.
    pub(crate) fn turn(&mut self, sh: &mut Shared) -> Result<(), End> {
        loop {
            if self.stage == Stage::Idle {
                if !self.has_work(sh.now) {
                    break;
                }
                if sh.now < self.free_at {
                    if self.wake_at != self.free_at {
                        self.wake_at = self.free_at;
                        sh.queue.plan(self.free_at, Planned::Wake { member: self.member, run: self.run });
                    }
                    return Ok(());
                }
                self.begin_batch(sh)?;
            }
            if !self.carry_out(sh)? {
                return Ok(()); // at the disk
            }
            self.end_batch(sh)?;
        }
        let at = self.clock.when(self.node.deadline(), sh.now);
        // A deadline that moved away is left alone: one early look costs less than planning always.
        if at != u64::MAX && (at < self.timer_at || self.timer_at <= sh.now) {
            self.timer_at = at;
            sh.queue.plan(at, Planned::Wake { member: self.member, run: self.run });
        }
        Ok(())
    }

    fn begin_batch(&mut self, sh: &mut Shared) -> Result<(), End> {
        self.applied_in_batch = false;
        self.events_in_batch = 0;
        self.fetches_left = FETCHES_PER_BATCH;
        self.slice_left = sh.slice;
        self.take_in(sh)?;
        if self.node.deadline() <= self.clock.at(sh.now) {
            self.handle(sh, Event::Tick)?;
        }
        if let Some(space) = self.look_at_room(sh) {
            self.handle(sh, Event::Space(space))?;
        }
        self.handle(sh, Event::Drained)?;
        self.stage = Stage::Send;
        Ok(())
    }

    fn take_in(&mut self, sh: &mut Shared) -> Result<(), End> {
        if self.log.has_made() {
            let completion = self.log.look(sh.now)?;
            self.plan_segment(sh);
            let completion = self.less_underway(completion);
            self.on_completion(sh, completion)?;
        }
        while let Some(completion) = self.completions.pop_front() {
            let completion = self.less_underway(completion);
            self.on_completion(sh, completion)?;
        }
        while let Some(progress) = self.progress.pop_front() {
            self.on_progress(sh, progress)?;
        }
        while let Some(done) = self.done.pop_front() {
            self.on_done(sh, done)?;
        }
        while let Some(event) = self.inbox.pop_front() {
            self.handle(sh, event)?;
        }
        let refuses = self.keeper_tasks + self.keeper.waiting() >= TASKS_MAX;
        for _ in 0..CALLS_PER_BATCH.min(self.calls.len()) {
            let Some((operation, request)) = self.calls.pop_front() else { break };
            if refuses {
                sh.answer(operation, Outcome::Refused(Refusal::TooManyRequests), self.position);
                continue;
            }
            self.tickets += 1;
            let ticket = Ticket(self.tickets);
            self.waiting.insert(ticket, operation);
            self.handle(sh, Event::Client { ticket, request })?;
        }
        Ok(())
    }

    /// Gives the node one event; judges what it makes of it.
    fn handle(&mut self, sh: &mut Shared, event: Event) -> Result<(), End> {
        self.events_in_batch += 1;
        sh.events += 1;
        sh.trace.mix(sh.now ^ (self.member as u64) << 56 ^ kind_of(&event) << 48);
        // A client's request counts when something is done for it: to refuse it takes next to nothing.
        let handled = match &event {
            Event::Peer(PeerMessage::Forward(forward)) => forward.commands.len() as u64,
            Event::Client { .. } => 0,
            _ => 1,
        };
        self.node.handle(self.clock.at(sh.now), event, &mut self.scratch);
        sh.observer.stepped(self.id(), &self.node, &self.scratch)?;
        if sh.settings.leases != Leases::Off {
            self.watch_lease(sh)?;
        }
        note(sh, self.id(), &self.scratch);
        if sh.older_copies.get(&self.id()).is_some_and(|copy| copy.is_over && !copy.is_reminded) {
            return Err(End::NotReminded);
        }
        self.note_taken(sh);
        let records = &self.scratch.persist;
        let sent = self.scratch.send.iter().map(load_of).sum::<u64>();
        let bytes = records.iter().map(record_bytes).sum::<u64>() + sent;
        self.work.add(Work { entries: handled + records.len() as u64, keys: 0, bytes });
        let Effects {
            persist,
            send,
            fetch,
            apply,
            reply,
            compute,
            distrust,
            trace,
            read_chunks,
            store_chunks,
        } = &mut self.scratch;
        self.effects.read_chunks.append(read_chunks);
        self.effects.store_chunks.append(store_chunks);
        self.effects.persist.append(persist);
        self.effects.send.append(send);
        self.effects.fetch.append(fetch);
        self.effects.apply.append(apply);
        self.effects.reply.append(reply);
        compute.clear();
        sh.caught.extend(distrust.drain(..).map(|(peer, _)| (id_of(self.member), peer)));
        trace.clear();
        Ok(())
    }

    /// What came from the leader and goes to the disk was worth sending.
    fn note_taken(&mut self, sh: &mut Shared) {
        let own = self.id();
        self.entry_bytes += self.scratch.persist.iter().map(record_bytes).sum::<u64>();
        let Some(leader) = self.node.raft().leader().filter(|leader| *leader != own) else { return };
        let goodput = &mut sh.service.goodput;
        for record in &self.scratch.persist {
            if let LogBody::Entry(entry) = &record.body {
                goodput.took_entry(leader, own, entry.id(), entry.len() as u64);
            }
        }
        for piece in &self.scratch.store_chunks {
            goodput.took_piece(leader, own, piece.meta.last, piece.offset, piece.bytes.len() as u64);
        }
    }

    /// A lease is over when its leader's clock says so; meanwhile nobody else leads, if clocks are as good as believed.
    fn watch_lease(&self, sh: &mut Shared) -> Result<(), End> {
        let leads = self.scratch.trace.iter().any(|trace| matches!(trace, Trace::BecameLeader(_)));
        let accuses = |trace: &&Trace| matches!(trace, Trace::ClocksApart { .. });
        sh.observer.clocks(
            self.id(),
            self.node.raft(),
            self.scratch.trace.iter().find(accuses),
            sh.settings.leases,
        )?;
        match sh.observer.lease(self.id(), self.node.raft(), &self.clock, sh.now) {
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

    /// Between two effects: whether the process lives on.
    fn lives(&mut self) -> Result<(), End> {
        match &mut self.fuse {
            Some(0) => Err(End::Fuse),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Carries out effects until none are left; `false` when the thread is at the disk meanwhile.
    fn carry_out(&mut self, sh: &mut Shared) -> Result<bool, End> {
        loop {
            match self.stage {
                Stage::Idle => return Ok(true),
                Stage::Send => {
                    self.news = false;
                    self.position = self.node.raft().committed(); // before anybody is answered
                    self.sending.extend(self.effects.send.drain(..));
                    while let Some(message) = self.sending.pop_front() {
                        self.lives()?;
                        let unsent = sh.send(self.member, message);
                        self.unsent.extend(unsent);
                    }
                    while let Some(forward) = self.unsent.pop() {
                        self.handle(sh, Event::Unsent(forward))?; // the newest first: each goes to the head
                    }
                    self.stage = Stage::Reply;
                }
                Stage::Reply => {
                    self.replying.extend(self.effects.reply.drain(..));
                    self.answer_clients(sh)?;
                    self.stage = Stage::Apply;
                }
                Stage::Apply => {
                    let goes_on = self.keeper_queue.is_none() && self.keeper.is_busy() && self.slice_left > 0;
                    if !self.effects.apply.is_empty() || goes_on {
                        self.lives()?;
                        let tasks = std::mem::take(&mut self.effects.apply);
                        self.deliver(sh, tasks)?;
                    }
                    self.stage = Stage::Fetch;
                }
                Stage::Fetch => {
                    self.order_snapshots(sh)?;
                    self.fetches.extend(self.effects.fetch.drain(..));
                    while self.fetches_left > 0
                        && let Some(fetch) = self.fetches.pop_front()
                    {
                        self.lives()?;
                        self.fetch(sh, fetch)?;
                    }
                    self.stage = Stage::Persist;
                }
                Stage::Persist => {
                    self.stage = Stage::Next;
                    if !self.effects.persist.is_empty() {
                        self.lives()?;
                        let records = std::mem::take(&mut self.effects.persist);
                        if !self.persist(sh, records)? {
                            self.stage = Stage::Syncing;
                            return Ok(false);
                        }
                    } else if self.log_thread.is_none()
                        && self.log.is_blocked()
                        && self.log.is_due(kattu_raft::Instant(sh.now))
                    {
                        // A full disk is tried again.
                        if !self.sync(sh)? {
                            self.stage = Stage::Syncing;
                            return Ok(false);
                        }
                    }
                }
                Stage::Syncing => return Ok(false),
                Stage::Next => {
                    if !self.news && self.has_no_effects() {
                        self.stage = Stage::Idle;
                        return Ok(true);
                    }
                    self.handle(sh, Event::Drained)?;
                    self.stage = Stage::Send;
                }
            }
        }
    }

    fn has_no_effects(&self) -> bool {
        let effects = &self.effects;
        effects.persist.is_empty()
            && effects.send.is_empty()
            && effects.fetch.is_empty()
            && effects.apply.is_empty()
            && effects.read_chunks.is_empty()
            && effects.store_chunks.is_empty()
            && effects.reply.is_empty()
    }

    fn end_batch(&mut self, sh: &mut Shared) -> Result<(), End> {
        if !self.applied_in_batch && self.keeper_queue.is_none() {
            self.tidy();
        }
        self.look_for_compaction(sh);
        let work = std::mem::take(&mut self.work);
        let slowness = sh.service.slowness(self.member);
        let takes =
            sh.pace.turn + sh.pace.event * self.events_in_batch + sh.service.stepped(self.member, work)?;
        if slowness > 1 && takes * slowness > LONG_STEP {
            sh.tally.add(Fault::F55);
        }
        self.free_at = sh.now + takes * slowness;
        Ok(())
    }

    /// It has its CPU back, so many times what it had: what is left of its step takes so much less.
    pub(crate) fn speed_up(&mut self, now: u64, slowness: u64) {
        self.free_at = self.free_at.min(now + self.free_at.saturating_sub(now) / slowness.max(1));
    }

    /// The keeper forgets a little.
    fn tidy(&mut self) {
        let before = self.keeper.store().versions_forgotten();
        self.keeper.tidy();
        self.work.keys += self.keeper.store().versions_forgotten() - before;
    }

    /// There is something to forget, until somebody looks again.
    fn look_for_compaction(&mut self, sh: &mut Shared) {
        if sh.service.times_writes() && self.keeper.store().stats().forgets {
            let begins = self.beside.goes_on(Beside::Compaction, sh.now, sh.now);
            sh.counts.compactions += u64::from(begins);
        }
    }

    /// Bytes of requests that wait in front of the replica, or in it for a place in the log.
    pub(crate) fn call_bytes(&self) -> u64 {
        let bytes = |request: &Request| match request {
            Request::Write(command) => command.len() as u64,
            _ => 0,
        };
        self.calls.iter().map(|(_, request)| bytes(request)).sum::<u64>() + self.node.pending_bytes() as u64
    }

    fn answer_clients(&mut self, sh: &mut Shared) -> Result<(), End> {
        while let Some((ticket, outcome)) = self.replying.pop_front() {
            self.lives()?;
            let Some(operation) = self.waiting.remove(&ticket) else {
                return Err(crate::report::Violation::new(
                    "answered_once",
                    format!("n{} answers {ticket:?}, which does not wait: {outcome:?}", self.member + 1),
                )
                .into());
            };
            // What a member says whose store is wrong is as good as nothing.
            let outcome = match outcome {
                Outcome::Done(_) if sh.diverged.is_divergent(self.id()) => Outcome::Unknown(Doubt::Stopping),
                outcome => outcome,
            };
            sh.answer(operation, outcome, self.position);
        }
        Ok(())
    }

    // ── The keeper's seat ──

    fn deliver(&mut self, sh: &mut Shared, tasks: Vec<KeeperTask>) -> Result<(), End> {
        self.applied_in_batch |= tasks.iter().any(|task| matches!(task, KeeperTask::Apply { .. }));
        match &mut self.keeper_queue {
            None => {
                self.take_in_tasks(sh, tasks);
                let mut slice = std::mem::take(&mut self.slice_left);
                let worked = self.keep(sh, &mut slice);
                self.slice_left = slice;
                worked?;
                self.answer_clients(sh)?;
                self.news = true;
                let progress = self.progress();
                self.on_progress(sh, progress)
            }
            Some(queue) => {
                self.keeper_tasks += tasks.len();
                queue.push_back(tasks);
                self.plan_keeper(sh, false);
                Ok(())
            }
        }
    }

    /// Its thread is woken, which takes its time; one that goes on with its next slice takes what its work does.
    fn plan_keeper(&mut self, sh: &mut Shared, goes_on: bool) {
        if !self.keeper_planned {
            self.keeper_planned = true;
            let slices = if goes_on { SLICE_UNITS / sh.slice.clamp(1, SLICE_UNITS) } else { 1 };
            let takes = sh.dice.below(sh.pace.apply / (slices as u64).min(SLICES_PER_WAKE_MAX) + 1);
            sh.queue.plan(sh.now + takes, Planned::Kept { member: self.member, run: self.run });
        }
    }

    /// The keeper's own thread takes in what has come, and works for a slice.
    pub(crate) fn kept(&mut self, sh: &mut Shared) -> Result<(), End> {
        self.keeper_planned = false;
        while let Some(tasks) = self.keeper_queue.as_mut().and_then(VecDeque::pop_front) {
            self.keeper_tasks -= tasks.len();
            self.take_in_tasks(sh, tasks);
        }
        // It is an owner of its own: what the node's thread does meanwhile is another step.
        let of_node = std::mem::take(&mut self.work);
        self.keep(sh, &mut sh.slice.clone())?;
        self.answer_clients(sh)?;
        self.tidy();
        let work = std::mem::replace(&mut self.work, of_node);
        sh.service.stepped(self.member, work)?;
        self.look_for_compaction(sh);
        let progress = self.progress();
        self.progress.push_back(progress);
        if self.keeper.is_busy() {
            self.plan_keeper(sh, true);
        }
        Ok(())
    }

    fn take_in_tasks(&mut self, sh: &mut Shared, tasks: Vec<KeeperTask>) {
        for task in tasks {
            let task = match task {
                KeeperTask::Apply { entry, ticket, term }
                    if self.goes_wrong
                        && !self.keeper.is_installing()
                        && let Some(altered) = altered(&entry) =>
                {
                    self.goes_wrong = false;
                    sh.diverged.begins(self.id());
                    sh.trace
                        .line(sh.now, Some(self.id().0), "store", || format!("gets {} wrong", entry.id()));
                    self.applying.push_back(entry);
                    KeeperTask::Apply { entry: altered, ticket, term }
                }
                KeeperTask::Apply { entry, ticket, term } => {
                    self.applying.push_back(entry.clone());
                    KeeperTask::Apply { entry, ticket, term }
                }
                task => task,
            };
            self.keeper.take_in(task, &mut self.kept);
        }
    }

    /// The keeper works until nothing is left to do, or of the slice.
    fn keep(&mut self, sh: &mut Shared, slice: &mut i64) -> Result<(), End> {
        while *slice > 0 && self.keeper.is_busy() {
            let (before, allowed) = (self.keeper.applied(), *slice);
            let forgotten = self.keeper.store().versions_forgotten();
            self.keeper.step(slice, &mut self.kept);
            let units = std::mem::take(&mut self.kept.units);
            self.judge_step(allowed, units)?;
            let forgotten = self.keeper.store().versions_forgotten() - forgotten;
            self.work.add(Work { keys: units + forgotten, ..Work::default() });
            sh.counts.cut += u64::from(self.keeper.is_in_the_middle());
            self.order_of_keeper(sh)?;
            if before < self.keeper.applied() && !self.keeper.is_installing() {
                let entry = self.applying.pop_front().expect("what is applied was handed over");
                assert_eq!(entry.id().index, self.keeper.applied(), "entries are applied in order");
                self.note_applied(sh, &entry)?;
            }
        }
        self.replying.extend(self.kept.reply.drain(..));
        Ok(())
    }

    /// No step takes much more than it was allowed: at the most what one small thing takes.
    fn judge_step(&self, allowed: i64, units: u64) -> Result<(), End> {
        if allowed.unsigned_abs().saturating_add(STEP_EXCESS_MAX) < units {
            let story = format!("n{}: a step of {units} units, {allowed} were allowed", self.member + 1);
            return Err(crate::report::Violation::new("bounded_step", story).into());
        }
        Ok(())
    }

    /// How far the keeper has come since it was last asked.
    fn progress(&mut self) -> Progress {
        let KeeperEffects { applied, members, health, admitted, .. } = std::mem::take(&mut self.kept);
        Progress { applied, store_bytes: self.keeper.store().stats().bytes, members, health, admitted }
    }

    fn note_applied(&mut self, sh: &mut Shared, entry: &Entry) -> Result<(), End> {
        sh.trace.mix(entry.id().index.0 ^ entry.id().term.0 << 40);
        sh.diverged.applied(self.id(), entry, &self.keeper);
        if sh.diverged.is_divergent(self.id()) {
            return Ok(sh.observer.applied_within(self.id(), entry)?);
        }
        let older = sh.older.map(id_of);
        let has_older = || self.keeper.members().list.iter().any(|info| Some(info.id) == older);
        if entry.head.kind == EntryKind::Command
            && has_budget(entry.payload())
            && self.keeper.health().level == 0
        {
            let story =
                format!("n{}: {} holds a budget before the cluster knows them", self.member + 1, entry.id());
            return Err(crate::report::Violation::new("older_versions_can_follow", story).into());
        }
        if older.is_some() && self.keeper.health().level != 0 && has_older() {
            let story =
                format!("n{} uses a feature level that an older member does not know", self.member + 1);
            return Err(crate::report::Violation::new("older_versions_can_follow", story).into());
        }
        Ok(sh.observer.applied(self.id(), entry, &self.keeper)?)
    }

    // ── The snapshot worker ──

    /// What the keeper wants of snapshots.
    fn order_of_keeper(&mut self, sh: &mut Shared) -> Result<(), End> {
        if let Some((meta, frozen)) = self.kept.snapshot.take() {
            sh.observer.tables(self.id(), &self.keeper)?;
            self.worker.order(Order::Take(meta, Box::new(frozen)));
            self.beside.goes_on(Beside::Snapshot, sh.now, sh.now);
        }
        if let Some(meta) = self.kept.install.take() {
            self.worker.order(Order::Thaw(meta));
        }
        self.plan_worker(sh);
        Ok(())
    }

    /// What the node wants of snapshots.
    fn order_snapshots(&mut self, sh: &mut Shared) -> Result<(), End> {
        for request in std::mem::take(&mut self.effects.read_chunks) {
            self.lives()?;
            self.worker.order(Order::Read(request));
        }
        for piece in std::mem::take(&mut self.effects.store_chunks) {
            self.lives()?;
            self.worker.order(Order::Store(piece));
        }
        self.plan_worker(sh);
        Ok(())
    }

    fn plan_worker(&mut self, sh: &mut Shared) {
        if !self.worker.planned && self.worker.has_work() {
            self.worker.planned = true;
            let takes = sh.dice.below(sh.settings.snapshot_step + 1);
            let at = self.beside.done_at(Thread::Snapshots).max(sh.now) + takes;
            if self.worker.is_taking() {
                self.beside.goes_on(Beside::Snapshot, sh.now, at);
            }
            sh.queue.plan(at, Planned::Worked { member: self.member, run: self.run });
        }
    }

    /// The worker does one thing.
    pub(crate) fn work_on_snapshots(&mut self, sh: &mut Shared) -> Result<(), End> {
        self.worker.planned = false;
        self.lives()?;
        let free_at = self.beside.done_at(Thread::Snapshots);
        if sh.now < free_at {
            // The disk was at something else meanwhile.
            self.worker.planned = true;
            sh.queue.plan(free_at, Planned::Worked { member: self.member, run: self.run });
            return Ok(());
        }
        let is_taking = self.worker.is_taking();
        let begun = self.begin_beside();
        let done = self.worker.step();
        self.end_beside(sh, Thread::Snapshots, begun);
        if is_taking {
            self.beside.goes_on(Beside::Snapshot, sh.now, self.beside.done_at(Thread::Snapshots));
        }
        if self.disk.is_out() {
            return Err(End::Fuse); // it has lost its power in the middle
        }
        for complaint in self.worker.complaints() {
            sh.trace.line(sh.now, Some(id_of(self.member).0), "snapshot", || complaint);
        }
        let done = done?;
        match &done {
            Done::Complete(last, _) => {
                sh.observer.snapshot(self.id(), *last)?;
                sh.counts.snapshots += 1;
                sh.trace.mix(last.index.0 ^ 1 << 61);
                let (now, last) = (sh.now, *last);
                sh.trace
                    .line(now, Some(id_of(self.member).0), "snapshot", || format!("has one up to {last}"));
            }
            Done::NoTables(last, error) => {
                let story = format!("n{}: the snapshot up to {last}: {error}", self.member + 1);
                return Err(crate::report::Violation::new("snapshots_hold_tables", story).into());
            }
            Done::Nothing | Done::Told(_) | Done::ToldLater(_) | Done::Thawed(..) => {}
        }
        if !matches!(done, Done::Nothing) {
            self.done.push_back(done);
        }
        self.plan_worker(sh);
        Ok(())
    }

    fn on_done(&mut self, sh: &mut Shared, done: Done) -> Result<(), End> {
        match done {
            Done::Nothing | Done::NoTables(..) => Ok(()),
            Done::Told(event) | Done::ToldLater(event) | Done::Complete(_, event) => self.handle(sh, event),
            Done::Thawed(meta, tables) => {
                sh.observer.tables(self.id(), &tables)?;
                sh.observer.installed(self.id(), meta.last)?;
                sh.counts.installs += 1;
                sh.trace.line(sh.now, Some(self.id().0), "snapshot", || format!("installs {}", meta.last));
                let _old = self.keeper.replace(*tables, &mut self.kept);
                if self.keeper_queue.is_some() {
                    self.plan_keeper(sh, false);
                    return Ok(());
                }
                let progress = self.progress();
                self.on_progress(sh, progress)
            }
        }
    }

    fn on_progress(&mut self, sh: &mut Shared, progress: Progress) -> Result<(), End> {
        self.store_bytes = progress.store_bytes;
        if let Some(members) = progress.members {
            self.is_gone |= members.removed.contains(&self.id());
            let (net, mut around) = sh.net();
            net.table(&mut around, self.member, &members);
            self.handle(sh, Event::Members(members))?;
        }
        for admitted in progress.admitted {
            self.handle(sh, Event::Admitted(admitted))?;
        }
        if let Some(health) = progress.health {
            self.handle(sh, Event::Health(health))?;
        }
        match progress.applied {
            Some(index) => self.handle(sh, Event::Applied { index }),
            None => Ok(()),
        }
    }

    // ── The log ──

    /// Makes records durable; `false` when this thread is at the disk meanwhile.
    fn persist(&mut self, sh: &mut Shared, records: Vec<LogRecord>) -> Result<bool, End> {
        if let Some(last) = records.last() {
            sh.trace.mix(last.lsn.0 ^ 1 << 63);
        }
        match &mut self.log_thread {
            None => {
                self.log.append(&records)?;
                self.lives()?;
                if !self.log.is_due(kattu_raft::Instant(sh.now)) {
                    let room = self.log.room();
                    self.news = true;
                    self.on_completion(sh, Completion::Room(room))?;
                    return Ok(true);
                }
                self.sync(sh)
            }
            Some(thread) => {
                let bytes = records.iter().map(record_bytes).sum();
                thread.underway.extend(records.last().map(|record| (record.lsn, bytes)));
                thread.records.push(records);
                self.start_log_thread(sh)?;
                Ok(true)
            }
        }
    }

    /// Goes to the disk; `true` if there was no room, `false` when the call is under way.
    fn sync(&mut self, sh: &mut Shared) -> Result<bool, End> {
        self.disk.begin();
        let completion = self.log.sync(sh.now)?;
        self.plan_segment(sh);
        match completion {
            Completion::Room(_) => {
                self.news = true;
                self.on_completion(sh, completion)?;
                Ok(true)
            }
            completion => {
                self.call_disk(sh, completion);
                Ok(false)
            }
        }
    }

    /// What the disk has done takes its time; before that it does what another thread has asked for, and the next segment
    /// must be there.
    fn call_disk(&mut self, sh: &mut Shared, completion: Completion) {
        let rotations = self.log.rotations();
        let has_rotated = std::mem::replace(&mut self.rotations, rotations) < rotations;
        let waits = self.wait_for_disk(sh, has_rotated);
        let spent = self.disk.spent();
        let takes = spent + waits;
        self.beside.sync(sh.now, waits, spent);
        if has_rotated {
            sh.counts.segments += 1;
            self.beside.goes_on(Beside::Segment, sh.now, sh.now + takes);
        }
        self.at_disk = Some((sh.now, completion));
        let (member, run) = (self.member, self.run);
        let limit = sh.settings.disk_stall;
        if takes > limit {
            sh.queue.plan(sh.now + limit, Planned::Watchdog { member, run });
        } else {
            sh.queue.plan(sh.now + takes, Planned::Synced { member, run });
        }
    }

    /// How long a sync of the log waits for other threads: one that has gone over to the next segment for all of that.
    fn wait_for_disk(&self, sh: &Shared, has_rotated: bool) -> u64 {
        let made_at = self.beside.done_at(Thread::Segments);
        let made = if has_rotated && self.log.is_making() { made_at.saturating_sub(sh.now) } else { 0 };
        self.beside.wait(sh.now).max(made)
    }

    /// Another thread than the log's goes to the disk: what that had done before.
    fn begin_beside(&mut self) -> u64 {
        if self.at_disk.is_none() {
            self.disk.begin();
        }
        let _ = self.disk.take_longest();
        self.disk.spent()
    }

    /// It has told the disk what to do.
    fn end_beside(&mut self, sh: &Shared, thread: Thread, begun: u64) {
        if sh.settings.one_disk {
            self.beside.at_disk(thread, sh.now, self.disk.spent() - begun, self.disk.take_longest());
        }
    }

    /// How long the disk call under way has taken, if there is one.
    pub(crate) fn at_disk_for(&self, now: u64) -> Option<u64> {
        self.at_disk.as_ref().map(|(began, _)| now - began)
    }

    fn start_log_thread(&mut self, sh: &mut Shared) -> Result<(), End> {
        let Some(thread) = &mut self.log_thread else { return Ok(()) };
        if self.at_disk.is_some() {
            return Ok(());
        }
        let mut dirty = self.log.is_blocked();
        for records in std::mem::take(&mut thread.records) {
            self.log.append(&records)?;
            dirty = true;
        }
        if dirty && self.log.is_due(kattu_raft::Instant(sh.now)) {
            self.lives()?;
            self.disk.begin();
            let completion = self.log.sync(sh.now)?;
            self.plan_segment(sh);
            match completion {
                Completion::Room(_) => {
                    self.completions.push_back(completion);
                    let retry = Planned::RetryLog { member: self.member, run: self.run };
                    sh.queue.plan(sh.now + FULL_RETRY, retry);
                }
                completion => {
                    self.call_disk(sh, completion);
                    if self.log.is_blocked() {
                        // A full disk had no room for the mark behind it.
                        let retry = Planned::RetryLog { member: self.member, run: self.run };
                        sh.queue.plan(sh.now + FULL_RETRY, retry);
                    }
                    return Ok(()); // what is to be read back may be in the block that is being written
                }
            }
        }
        let thread = self.log_thread.as_mut().expect("seen above");
        for fetch in std::mem::take(&mut thread.fetches) {
            let completion = self.log.fetch(fetch)?;
            self.completions.push_back(completion);
        }
        Ok(())
    }

    /// The disk call has ended.
    pub(crate) fn synced(&mut self, sh: &mut Shared) -> Result<(), End> {
        let Some((began, mut completion)) = self.at_disk.take() else { return Ok(()) };
        if let Completion::Persisted(lsn, room, took) = &mut completion {
            sh.observer.durable(self.id(), *lsn)?;
            // A segment that was made ready meanwhile has been told of already: what is said last must count it.
            *room = self.log.room();
            *took = took.map(|_| Duration::from_nanos(sh.now - began));
        }
        self.lives()?;
        if self.log_thread.is_some() {
            self.completions.push_back(completion);
            return self.start_log_thread(sh);
        }
        self.on_completion(sh, completion)?;
        self.news = true;
        self.stage = Stage::Next;
        Ok(())
    }

    /// The passing thread makes its segment, or has made it.
    pub(crate) fn make_segment(&mut self, sh: &mut Shared) {
        let begun = self.begin_beside();
        if self.log.make_segment() {
            self.end_beside(sh, Thread::Segments, begun);
        }
        if !self.log.is_making() {
            return;
        }
        let at = self.beside.done_at(Thread::Segments).max(sh.now);
        self.beside.goes_on(Beside::Segment, sh.now, at);
        if sh.now < at {
            sh.queue.plan(at, Planned::SegmentMade { member: self.member, run: self.run });
        } else {
            self.log.tell_of_made();
        }
    }

    /// Whether the log's own thread wants to try a full disk again.
    pub(crate) fn retry_log(&mut self, sh: &mut Shared) -> Result<(), End> {
        if self.log_thread.is_some() && self.log.is_blocked() { self.start_log_thread(sh) } else { Ok(()) }
    }

    fn plan_segment(&mut self, sh: &mut Shared) {
        if let Some(at) = self.log.ready_at.take() {
            sh.queue.plan(at, Planned::SegmentMade { member: self.member, run: self.run });
        }
    }

    fn fetch(&mut self, sh: &mut Shared, fetch: Fetch) -> Result<(), End> {
        match &mut self.log_thread {
            None => {
                let completion = self.log.fetch(fetch)?;
                self.fetches_left -= 1;
                self.news = true;
                self.on_completion(sh, completion)
            }
            Some(thread) => {
                thread.fetches.push(fetch);
                self.start_log_thread(sh)
            }
        }
    }

    fn less_underway(&mut self, completion: Completion) -> Completion {
        let Some(thread) = &mut self.log_thread else { return completion };
        // What its thread tells when a call has ended is how the log is then: a segment may have been made during the call.
        let room_now = self.log.room();
        let mut less = |lsn: Lsn, room: LogSpace| {
            while thread.underway.front().is_some_and(|&(last, _)| last <= lsn) {
                thread.underway.pop_front();
            }
            let bytes: u64 = thread.underway.iter().map(|&(_, bytes)| bytes).sum();
            LogSpace { free: room.free.saturating_sub(bytes), ..room }
        };
        match completion {
            Completion::Persisted(lsn, _, took) => Completion::Persisted(lsn, less(lsn, room_now), took),
            Completion::Room(room) => Completion::Room(less(Lsn(0), room)),
            fetched @ Completion::Fetched(..) => fetched,
        }
    }

    fn on_completion(&mut self, sh: &mut Shared, completion: Completion) -> Result<(), End> {
        match completion {
            Completion::Persisted(lsn, room, took) => {
                if let Some(took) = took {
                    // No event of the course: it takes no time.
                    self.node.handle(self.clock.at(sh.now), Event::DiskTook(took), &mut self.scratch);
                }
                let space = self.room_is_now(room, sh);
                self.handle(sh, Event::Space(space))?;
                self.handle(sh, Event::Persisted(lsn))
            }
            Completion::Room(room) => {
                let space = self.room_is_now(room, sh);
                self.handle(sh, Event::Space(space))
            }
            Completion::Fetched(fetch, entries) => self.handle(sh, Event::Fetched { fetch, entries }),
        }
    }

    // ── Room for growth ──

    fn room_is_now(&mut self, room: LogSpace, sh: &Shared) -> Space {
        self.log_full = room.full;
        self.space = Space { log_bytes: room.free, short: self.is_short(sh) };
        self.space
    }

    fn is_short(&self, sh: &Shared) -> bool {
        self.log_full || self.store_bytes >= sh.settings.quota
    }

    fn look_at_room(&mut self, sh: &Shared) -> Option<Space> {
        if self.looked_at.is_some_and(|at| sh.now < at + SEC) && self.space.short == self.is_short(sh) {
            return None;
        }
        self.looked_at = Some(sh.now);
        let short = self.is_short(sh);
        let changed = short != self.space.short;
        self.space.short = short;
        changed.then_some(self.space)
    }

    /// A clean stop: everybody is answered, the log is closed.
    pub(crate) fn finish(mut self, sh: &mut Shared) -> Result<(), End> {
        self.fuse = None;
        self.handle(sh, Event::Stop)?;
        self.replying.extend(self.effects.reply.drain(..));
        self.answer_clients(sh)?;
        let mut tasks: Vec<KeeperTask> = self.keeper_queue.take().into_iter().flatten().flatten().collect();
        tasks.append(&mut self.effects.apply);
        self.take_in_tasks(sh, tasks);
        self.keep(sh, &mut i64::MAX.clone())?;
        self.answer_clients(sh)?;
        if let Some(thread) = self.log_thread.take() {
            for records in thread.records {
                self.log.append(&records)?;
            }
        }
        match self.log.close() {
            Ok(()) | Err(WalError::NoSpace { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn record_bytes(record: &LogRecord) -> u64 {
    match &record.body {
        LogBody::Entry(entry) => entry.len() as u64,
        _ => 0,
    }
}

fn kind_of(event: &Event) -> u64 {
    match event {
        Event::Tick => 1,
        Event::Drained => 2,
        Event::Client { .. } => 3,
        Event::Peer(_) => 4,
        Event::Unsent(_) => 5,
        Event::Persisted(_) => 6,
        Event::Fetched { .. } => 7,
        Event::Applied { .. } => 8,
        Event::Space(_) => 9,
        Event::LinkClosed(..) => 10,
        Event::Stop => 11,
        Event::ChunkRead { .. } => 12,
        Event::ChunkStored(_) => 13,
        Event::SnapshotTaken { .. } => 14,
        Event::SnapshotFailed { .. } => 15,
        Event::Transfer(_) => 16,
        Event::Members(_) => 17,
        Event::Health(_) => 18,
        Event::Priority(..) => 19,
        Event::DiskTook(_) => 20,
        Event::Admitted { .. } => 21,
        Event::Knows(..) => 22,
        Event::SnapshotUnreadable { .. } => 23,
    }
}

/// Puts what a reader wants to know into the timeline.
fn note(sh: &mut Shared, id: NodeId, effects: &Effects) {
    if effects.trace.is_empty() {
        return;
    }
    for trace in &effects.trace {
        let (now, member) = (sh.now, Some(id.0));
        match trace {
            Trace::BecameLeader(term) => {
                sh.counts.elections += 1;
                sh.trace.mix(term.0 ^ 1 << 62);
                sh.trace.line(now, member, "role", || format!("leads term {}", term.0));
            }
            Trace::BecameFollower { term, leader } => sh.trace.line(now, member, "role", || match leader {
                Some(leader) => format!("follows n{} in term {}", leader.0, term.0),
                None => format!("follows nobody in term {}", term.0),
            }),
            Trace::BecamePreCandidate(term) => {
                sh.trace
                    .line(now, member, "role", || format!("asks for votes in term {}, tentatively", term.0));
            }
            Trace::BecameCandidate(term) => {
                sh.trace.line(now, member, "role", || format!("campaigns in term {}", term.0));
            }
            Trace::Truncated(id) => {
                sh.trace.line(now, member, "log", || format!("drops its entries from {id} on"));
            }
            Trace::Suspects(leader) => {
                sh.counts.suspicions += 1;
                sh.trace.line(now, member, "role", || format!("suspects n{}", leader.0));
            }
            Trace::TransferBegan(target) => {
                sh.counts.transfers += 1;
                sh.trace.line(now, member, "role", || format!("hands over to n{}", target.0));
            }
            Trace::SlowDisk { own, fastest, its } => {
                sh.counts.left += 1;
                let line =
                    || format!("leaves its slow disk: a write took {own:?}, one of n{} {its:?}", fastest.0);
                sh.trace.line(now, member, "role", line);
            }
            Trace::LeaderLeaseDenied { peer, vote_hold } => {
                sh.counts.denials += 1;
                let line = || format!("has leases, but n{} promises only {vote_hold:?}", peer.0);
                sh.trace.line(now, member, "role", line);
            }
            Trace::ClocksApart { peer, gains } => {
                sh.counts.apart += 1;
                sh.tally.add(Fault::F42);
                let line = || format!("has proof that the clock of n{} gains {gains} ppm", peer.0);
                sh.trace.line(now, member, "role", line);
            }
            Trace::SlowsClients { peer, behind } => {
                sh.trace.line(now, member, "role", || {
                    format!("slows its clients for n{}, which lacks {behind} entries", peer.0)
                });
            }
            Trace::FallsBehind { peer, behind } => {
                sh.trace.line(now, member, "role", || {
                    format!("sees n{} fall behind by {behind} entries", peer.0)
                });
            }
            Trace::LostMatch { peer, matched, last } => {
                if let Some(fault) = sh.forgot.remove(peer) {
                    sh.tally.add(fault);
                }
                sh.trace.line(now, member, "role", || {
                    format!("n{} has lost its log from {} to {}", peer.0, last.0 + 1, matched.0)
                });
            }
            Trace::TakesPart { unasked } => {
                if let Some(copy) = sh.older_copies.get_mut(&id) {
                    copy.is_reminded = *unasked == 0 && copy.are_others_as_they_were;
                    copy.is_over = true;
                }
                sh.trace.line(now, member, "role", || match unasked {
                    0 => "takes part: every other voter has answered".to_string(),
                    unasked => format!("takes part, although {unasked} have not answered"),
                });
            }
            Trace::ToldOfLoss { vote_floor, last } => {
                sh.trace.line(now, member, "role", || {
                    format!("is told that its log, which ends at {last}, went up to {vote_floor}")
                });
            }
            Trace::TransferFailed(target) => {
                sh.trace.line(now, member, "role", || format!("gives up handing over to n{}", target.0));
            }
            Trace::Pruned(base) => {
                sh.counts.prunes += 1;
                sh.trace.line(now, member, "log", || format!("prunes up to {base}"));
            }
            Trace::Installs(last) => {
                sh.trace.line(now, member, "log", || format!("installs a snapshot up to {last}"));
            }
            Trace::Configured(at) => {
                sh.trace.line(now, member, "members", || format!("is configured by {}", at.0));
            }
            Trace::Term(_) | Trace::Committed(_) => {}
        }
    }
}
