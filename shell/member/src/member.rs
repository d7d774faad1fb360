//! Member: how a node's batch is taken in and carried out, one step at a time.
//!
//! ```text
//!   take in:   log ─▶ keeper ─▶ snapshots ─▶ peers ─▶ clients ─▶ timer ─▶ capacity ─▶ "drained"
//!   carry out: Send ─▶ Answer ─▶ apply ─▶ Answer ─▶ Order ─▶ Compute ─▶ Persist ─▶ Fetch ─▶ "drained" ─▶ Send … ─▶ Idle
//! ```
//! Batching falls out of it: what comes while one batch is carried out is the next. The executor asks for a step, does it, and
//! reports its result ([`Member::completed`], [`Member::unsent`]) before it asks for the next. So the same member runs in one go
//! on a thread, and can be stopped between any two steps by a simulated disk or a kill.
//!
//! Rules: 1. Messages leave before answers, and answers before the thread blocks on the disk.
//!        2. Where the log is known to be committed is published before any answer leaves: a client that has an answer finds its
//!           position here.
//!        3. Results on the way are news for the node, so the batch ends with one more "drained".
//!        4. Entries are read back behind the batch's own records, so that no client waits for a peer that lags; between two pieces
//!           other arrivals are handled, so that a member that replays its log votes and answers meanwhile. [fault-model F53]
//!        5. One sync covers at most as many entries as one message, so that batching is one setting. The rest waits for the next
//!           batch, so that a member with many small syncs before it is deaf for the length of one only.
//! Knows nothing of: threads, sockets, files, how a step is done.

use crate::apply::{Apart, Batch, Desk};
use crate::artefacts::{HeldBack, early_answer};
use crate::capacity::Capacity;
use crate::computing::Computing;
use crate::host::{Arrivals, Brought, Call, Host};
use crate::log::{Completion, LogSpace};
use crate::progress::Progress;
use crate::snapshots::Order;
use crate::stages::{Sample, Stages, Wants};
use crate::step::{Counts, FINISH_UNITS, Limits, Note, Placed, Stage, Step};
use crate::tuning::{Setting, Threading, Tuning};
use crate::waiting::Waiting;
use kattu_node::alarms::Alarms;
use kattu_node::compare::Health;
use kattu_node::contract::{
    Admitted, Effects, Event, Forward, KeeperTask, Members, Outcome, Refusal, Request, TASKS_KEPT, Ticket,
};
use kattu_node::{Keeper, Node};
use kattu_raft::{Duration, Fetch, Instant, LogBody, LogRecord, Timing};
use std::collections::VecDeque;

/// How long a keeper that has applied something waits for more before it forgets what a compaction has left.
const TIDIES_AFTER: Duration = Duration::from_millis(10);

/// Where the keeper is.
enum ApplyExecutor {
    /// On the node's thread.
    Here(Box<Desk>),
    /// On its own. Tasks delivered and not reported done are counted.
    Apart { delivered: usize },
    /// On its way from its own thread back to the node's; what comes for it meanwhile waits here.
    Returning { delivered: usize, held: Vec<KeeperTask> },
    /// Between the two, only inside a move.
    Nowhere,
}

/// A node with what it decides together with its log, its keeper and its clients.
pub struct Member<C, A> {
    node: Node,
    executor: ApplyExecutor,
    capacity: Capacity,
    waiting: Waiting<C>,
    limits: Limits,
    stage: Stage,
    effects: Effects,
    /// Answers on their way out.
    answers: VecDeque<(Ticket, Outcome)>,
    /// Pieces of the log that are still to be read back.
    fetches: VecDeque<Fetch>,
    fetches_left: usize,
    computing: Computing,
    /// Units of work that the keeper on this thread may still do in this batch.
    slice: i64,
    /// A result has come in this round. [Rule 3]
    news: bool,
    /// A client was answered in this round.
    answered: bool,
    /// Entries were given to the keeper in this batch.
    applied: bool,
    /// The keeper on this thread has something to forget, and nothing else to do.
    untidy: bool,
    /// When it forgets a little if nothing has come until then.
    tidies_at: Option<Instant>,
    stops: bool,
    alarms: Alarms,
    level: u16,
    was_damaged: bool,
    /// The timing that the executor goes by.
    timing: Timing,
    tuning: Tuning,
    /// The tuning that the executor goes by.
    tuned: Tuning,
    /// Records on their way to one sync. [Rule 5]
    syncing: Vec<LogRecord>,
    /// Records that go into later ones, in order. While there are some, all others go behind them.
    unsynced: VecDeque<LogRecord>,
    members: Option<Box<Members>>,
    notes: VecDeque<Note>,
    /// Pieces of snapshots to be read and stored.
    orders: VecDeque<Order>,
    /// Tables for the keeper on its thread, or such as are no longer needed.
    tables: VecDeque<Tables>,
    counts: Counts,
    stages: Stages,
    held_back: HeldBack,
    events: Vec<Event>,
    calls: Vec<Call<C, A>>,
}

/// Tables on their way.
enum Tables {
    Bring(Box<Keeper>),
    Drop(Box<Keeper>),
}

impl<C, A> Member<C, A> {
    /// A member that starts with this node, log space and capacity. The keeper sits on this thread, or works apart from it, and then
    /// only its tables' members and health are needed.
    #[must_use]
    pub fn start(
        now: Instant,
        mut node: Node,
        keeper: Placed,
        mut capacity: Capacity,
        room: LogSpace,
        limits: Limits,
    ) -> Member<C, A> {
        let (executor, members, health) = match keeper {
            Placed::Here(keeper) => {
                let (members, health) = (keeper.members(), keeper.health());
                (ApplyExecutor::Here(Box::new(Desk::new(*keeper))), members, health)
            }
            Placed::Apart(members, health) => (ApplyExecutor::Apart { delivered: 0 }, members, health),
        };
        let apply = match &executor {
            ApplyExecutor::Here(_) => Threading::Inline,
            ApplyExecutor::Apart { .. } | ApplyExecutor::Returning { .. } | ApplyExecutor::Nowhere => {
                Threading::Thread
            }
        };
        let tuning = Tuning { apply, ..Tuning::of(node.tuning()) };
        let space = capacity.log_is_now(room);
        let (was_damaged, timing) = (node.raft().is_damaged(), node.raft().timing());
        let mut effects = Effects::default();
        let level = health.level;
        for event in [Event::Space(space), Event::Members(members), Event::Health(health)] {
            node.handle(now, event, &mut effects);
        }
        Member {
            node,
            executor,
            capacity,
            waiting: Waiting::default(),
            limits,
            stage: Stage::Idle,
            effects,
            answers: VecDeque::new(),
            fetches: VecDeque::new(),
            fetches_left: 0,
            computing: Computing::default(),
            slice: 0,
            news: false,
            answered: false,
            applied: false,
            untidy: false,
            tidies_at: None,
            stops: false,
            alarms: Alarms::default(),
            level,
            was_damaged,
            timing,
            tuning,
            tuned: tuning,
            syncing: Vec::new(),
            unsynced: VecDeque::new(),
            members: None,
            notes: VecDeque::new(),
            orders: VecDeque::new(),
            tables: VecDeque::new(),
            counts: Counts::default(),
            stages: Stages::default(),
            held_back: HeldBack::default(),
            events: Vec::new(),
            calls: Vec::new(),
        }
    }

    /// The same member, which goes by this tuning in all that its node and its keeper do not decide.
    #[must_use]
    pub fn with_tuning(mut self, tuning: &Tuning) -> Member<C, A> {
        self.tuning = Tuning { node: self.tuning.node, apply: self.tuning.apply, ..*tuning };
        self.tuned = self.tuning;
        self
    }

    /// The node.
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The desk of a keeper on this thread.
    #[must_use]
    pub fn desk(&self) -> Option<&Desk> {
        match &self.executor {
            ApplyExecutor::Here(desk) => Some(desk),
            ApplyExecutor::Apart { .. } | ApplyExecutor::Returning { .. } | ApplyExecutor::Nowhere => None,
        }
    }

    /// The same, for tests that change its keeper's limits.
    pub fn desk_mut(&mut self) -> Option<&mut Desk> {
        match &mut self.executor {
            ApplyExecutor::Here(desk) => Some(desk),
            ApplyExecutor::Apart { .. } | ApplyExecutor::Returning { .. } | ApplyExecutor::Nowhere => None,
        }
    }

    /// Whether the keeper is on its way back from its thread: its last report is waited for.
    #[must_use]
    pub fn awaits_desk(&self) -> bool {
        matches!(self.executor, ApplyExecutor::Returning { .. })
    }

    /// The tuning that this member goes by.
    #[must_use]
    pub fn tuning(&self) -> &Tuning {
        &self.tuning
    }

    /// What limits growth here.
    #[must_use]
    pub fn capacity(&self) -> &Capacity {
        &self.capacity
    }

    /// Its jobs that are not done.
    #[must_use]
    pub fn computing(&self) -> &Computing {
        &self.computing
    }

    /// Where the batch stands.
    #[must_use]
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// The clients that wait here.
    #[must_use]
    pub fn waiting(&self) -> &Waiting<C> {
        &self.waiting
    }

    /// The clients of a member whose process has ended in the middle: none of them was answered.
    pub fn abandon(&mut self) -> impl Iterator<Item = C> {
        let not_taken = self.calls.drain(..).filter_map(|call| match call {
            Call::Ask(client, _) => Some(client),
            Call::Transfer(_) | Call::Tune(..) => None,
        });
        self.waiting.drain().chain(not_taken)
    }

    /// Other limits from now on, for tests that scale them.
    pub fn limit(&mut self, limits: Limits, quota: u64) {
        self.limits = limits;
        self.capacity.limit(quota);
    }

    /// What is counted since the start.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Which requests the door may stamp for [`Arrivals::received`] now.
    pub fn wants_stamps(&mut self, now: Instant) -> Wants {
        self.stages.wants(now)
    }

    /// What was followed to its end since the last call.
    pub fn samples(&mut self) -> impl Iterator<Item = Sample> {
        self.stages.samples()
    }

    /// When there is something to do at the latest, even if nothing arrives.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        let deadline = self.node.deadline();
        self.tidies_at.map_or(deadline, |at| at.min(deadline))
    }

    /// Whether there is something to do now, even if nothing arrives.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.untidy
            || !self.fetches.is_empty()
            || !self.unsynced.is_empty()
            || self.desk().is_some_and(Desk::is_busy)
    }

    /// Takes in all that has arrived: a batch begins. Only in [`Stage::Idle`].
    ///
    /// # Errors
    /// The host ends the process.
    pub fn begin<H: Arrivals<Client = C, Asker = A>>(&mut self, host: &mut H) -> Result<(), H::Stop> {
        debug_assert_eq!(self.stage, Stage::Idle, "one batch at a time");
        self.counts.batches += 1;
        self.applied = false;
        self.held_back.begin(self.tuning.artefacts.apply_entries_max);
        while let Some(completion) = host.completion()? {
            self.completed(host, completion)?;
        }
        while let Some(progress) = host.progress() {
            self.progressed(host, progress)?;
        }
        while let Some(brought) = host.brought()? {
            self.brought(host, brought)?;
        }
        self.take_events(host)?;
        self.take_calls(host)?;
        let now = host.now(); // not before what was just taken in
        let due = self.node.deadline();
        if due <= now {
            self.counts.late_max = self.counts.late_max.max(now.since(due));
            self.handle(host, now, Event::Tick)?;
        }
        if let Some(space) = self.capacity.look(host.sight(), host.least_quota()) {
            self.handle(host, now, Event::Space(space))?;
        }
        if let Some(length) = self.node.raft().vote_hold_to_record(now)
            && host.record_vote_hold(length)
        {
            self.handle(host, now, Event::VoteHoldRecorded(length))?;
        }
        self.drained(host, now)?;
        (self.fetches_left, self.slice) = (self.limits.fetches, self.limits.slice);
        self.stage = Stage::Send;
        Ok(())
    }

    /// All that has come was handled.
    fn drained<H: Host>(&mut self, host: &mut H, now: Instant) -> Result<(), H::Stop> {
        self.handle(host, now, Event::Drained)?;
        if !self.stages.is_idle() {
            self.stages.drained(&self.node, &self.effects.persist, host.now());
        }
        Ok(())
    }

    fn take_events<H: Arrivals<Client = C, Asker = A>>(&mut self, host: &mut H) -> Result<(), H::Stop> {
        let mut events = std::mem::take(&mut self.events);
        let now = host.events(&mut events);
        self.counts.events += events.len() as u64;
        let taken = events.drain(..).try_for_each(|event| {
            if let Event::Computed(done) = &event {
                self.computing.done(done.id());
            }
            self.stages.arrives(&event, now);
            self.handle(host, now, event)
        });
        self.events = events;
        taken
    }

    fn take_calls<H: Arrivals<Client = C, Asker = A>>(&mut self, host: &mut H) -> Result<(), H::Stop> {
        let now = host.calls(self.limits.calls, &mut self.calls);
        let requests = |call: &Call<C, A>| match call {
            Call::Ask(_, Request::LookUp(keys, _)) => keys.len() as u64,
            Call::Ask(..) => 1,
            Call::Transfer(_) | Call::Tune(..) => 0,
        };
        self.counts.requests += self.calls.iter().map(requests).sum::<u64>();
        let refuses = self.is_full();
        self.calls.reverse();
        while let Some(call) = self.calls.pop() {
            self.take_call(host, now, refuses, call)?;
        }
        Ok(())
    }

    fn take_call<H: Arrivals<Client = C, Asker = A>>(
        &mut self,
        host: &mut H,
        now: Instant,
        refuses: bool,
        call: Call<C, A>,
    ) -> Result<(), H::Stop> {
        let (client, request) = match call {
            Call::Ask(client, request) => (client, request),
            Call::Transfer(asker) => {
                self.handle(host, now, Event::Transfer(None))?;
                host.transferring(asker, self.node.raft().transferring().is_some());
                return Ok(());
            }
            Call::Tune(settings, asker) => {
                let tuned = self.tune(host, now, &settings)?;
                host.tuned(asker, tuned);
                return Ok(());
            }
        };
        if host.is_gone(&client) {
            // Nothing was begun: under overload, only work that a caller still waits for is of use. [fault-model F50]
            self.counts.abandoned += 1;
            return Ok(());
        }
        let received = host.received(&client);
        let ticket = self.waiting.enter(client);
        if refuses && !matches!(request, Request::Status) {
            self.effects.reply.push((ticket, Outcome::Refused(Refusal::TooManyRequests)));
            return Ok(());
        }
        if let Some(received) = received {
            self.stages.taken(ticket, &request, received, now);
        }
        let answers_early = self.tuning.artefacts.early_answers && self.node.raft().is_leader();
        let early = answers_early.then(|| early_answer(&request, self.node.raft().term())).flatten();
        self.handle(host, now, Event::Client { ticket, request })?;
        self.effects.reply.extend(early.map(|outcome| (ticket, outcome)));
        Ok(())
    }

    /// Goes by these settings from now on, or by none of them.
    fn tune<H: Host>(
        &mut self,
        host: &mut H,
        now: Instant,
        settings: &[Setting],
    ) -> Result<Result<Tuning, &'static str>, H::Stop> {
        let tuning = self.tuning.with(settings);
        if let Err(rule) = self.node.check_tuning(&tuning.node) {
            return Ok(Err(rule));
        }
        if tuning.node != self.tuning.node {
            self.handle(host, now, Event::Tune(Box::new(tuning.node)))?;
        }
        self.tuning = tuning;
        Ok(Ok(tuning))
    }

    /// Tasks that the keeper has not done.
    #[must_use]
    pub fn tasks_waiting(&self) -> usize {
        let of_keeper = match &self.executor {
            ApplyExecutor::Here(desk) => desk.keeper().waiting(),
            ApplyExecutor::Apart { delivered } => *delivered,
            ApplyExecutor::Returning { delivered, held } => delivered + held.len(),
            ApplyExecutor::Nowhere => unreachable!("only inside a move"),
        };
        of_keeper + self.held_back.len()
    }

    /// Whether the keeper is so far behind that clients have to be refused.
    fn is_full(&self) -> bool {
        self.limits.tasks <= self.tasks_waiting()
    }

    /// The next step of the batch.
    ///
    /// # Errors
    /// The host ends the process.
    pub fn next<H: Arrivals<Client = C, Asker = A>>(&mut self, host: &mut H) -> Result<Step<'_, C>, H::Stop> {
        loop {
            match self.stage {
                Stage::Idle | Stage::Stopped => return Ok(Step::Idle),
                Stage::Send => {
                    (self.news, self.answered) = (false, false);
                    self.stage = Stage::Answer;
                    let committed = self.node.raft().committed();
                    self.stages.sends(committed, &self.effects.send);
                    host.sends(self.node.raft(), &self.effects.send);
                    return Ok(Step::Send(committed, &mut self.effects.send));
                }
                Stage::Answer => {
                    if self.stages.has_sent() {
                        self.stages.sent(host.now());
                    }
                    if self.answers.is_empty() {
                        self.answers.extend(self.effects.reply.drain(..));
                    }
                    if let Some(step) = self.answer(host) {
                        return Ok(step);
                    }
                    self.stage = Stage::Apply;
                }
                Stage::Apply => {
                    self.stage = Stage::Tell;
                    if let Some(batch) = self.apply(host)? {
                        return Ok(Step::Deliver(batch));
                    }
                }
                Stage::Tell => {
                    if let Some(step) = self.answer(host) {
                        return Ok(step);
                    }
                    if self.stops {
                        self.stage = Stage::Stopped;
                        continue;
                    }
                    if let Some(step) = self.tell() {
                        return Ok(step);
                    }
                    self.stage = Stage::Order;
                }
                Stage::Order => {
                    if let Some(order) = self.order() {
                        return Ok(Step::Order(order));
                    }
                    self.fetches.extend(self.effects.fetch.drain(..));
                    self.stage = Stage::Compute;
                }
                Stage::Compute => {
                    let raft = self.node.raft();
                    if let Some(job) = self.computing.next(&mut self.effects.compute, |job| raft.awaits(job))
                    {
                        return Ok(Step::Compute(job));
                    }
                    self.stage = Stage::Persist;
                }
                Stage::Persist => {
                    self.stage = Stage::Fetch;
                    if !self.effects.persist.is_empty() || !self.unsynced.is_empty() || host.retries_log() {
                        let answered = self.answered;
                        return Ok(Step::Persist { records: self.records_for_one_sync(), answered });
                    }
                }
                Stage::Fetch => {
                    if 0 < self.fetches_left
                        && let Some(fetch) = self.fetches.pop_front()
                    {
                        return Ok(Step::Fetch(fetch));
                    }
                    self.stage = Stage::Next;
                }
                Stage::Next => {
                    if !self.unsynced.is_empty() || (!self.news && is_empty(&self.effects)) {
                        self.end(host.now());
                        return Ok(Step::Idle);
                    }
                    self.drained(host, host.now())?;
                    self.stage = Stage::Send;
                }
            }
        }
    }

    /// The batch is over. A keeper that had nothing to apply forgets a little; one that had does so when nothing has come for a
    /// while: a member that is its whole cluster has no other timer that would wake it.
    fn end(&mut self, now: Instant) {
        self.stage = Stage::Idle;
        let ApplyExecutor::Here(desk) = &mut self.executor else { return };
        self.untidy = !self.applied && desk.tidy();
        self.tidies_at = (self.applied && desk.is_untidy()).then(|| now + TIDIES_AFTER);
    }

    /// The next answer on its way out.
    fn answer<H: Host>(&mut self, host: &H) -> Option<Step<'static, C>> {
        let (ticket, outcome) = self.answers.pop_front()?;
        if !outcome.is_final() {
            return Some(Step::Tell(ticket, outcome));
        }
        if self.stages.follows(ticket) {
            self.stages.answered(ticket, &outcome, host.now());
        }
        self.answered = true;
        if !matches!(outcome, Outcome::Done(_)) {
            self.counts.failed += 1;
        }
        Some(match self.waiting.take(ticket) {
            Some(client) => Step::Answer(client, outcome),
            None => Step::Unclaimed(ticket, outcome),
        })
    }

    /// The client that waits here under this ticket.
    #[must_use]
    pub fn client(&self, ticket: Ticket) -> Option<&C> {
        self.waiting.get(ticket)
    }

    /// Gives the keeper its tasks. One on this thread works as long as the slice lasts.
    fn apply<H: Host>(&mut self, host: &mut H) -> Result<Option<Batch<C>>, H::Stop> {
        let counts = self.tuning.artefacts.apply_entries_max != 0 && !self.stops;
        if counts || 0 < self.held_back.len() {
            self.held_back.pass(&mut self.effects.apply, counts);
        }
        let is_entry = |task: &KeeperTask| matches!(task, KeeperTask::Apply { .. });
        let entries = self.effects.apply.iter().filter(|task| is_entry(task)).count() as u64;
        self.counts.applied_entries += entries;
        self.applied |= 0 < entries;
        if self.stages.awaits_task() {
            self.stages.given(&self.effects.apply, host.now());
        }
        match &mut self.executor {
            ApplyExecutor::Here(desk) => {
                desk.take_in(host, self.effects.apply.drain(..));
                self.effects.apply.shrink_to(TASKS_KEPT); // at a start, the whole log was here
                let units = desk.work(host, &mut self.slice)?;
                self.counts.work_units += units;
                self.counts.slice_units_max = self.counts.slice_units_max.max(units);
                if let Some(progress) = desk.told(&mut self.answers) {
                    self.progressed(host, progress)?;
                }
                Ok(None)
            }
            ApplyExecutor::Apart { delivered } => {
                if self.effects.apply.is_empty() {
                    return Ok(None);
                }
                let tasks = std::mem::take(&mut self.effects.apply);
                *delivered += tasks.len();
                Ok(Some(Batch::of(tasks, &mut self.waiting)))
            }
            ApplyExecutor::Returning { held, .. } => {
                held.append(&mut self.effects.apply);
                Ok(None)
            }
            ApplyExecutor::Nowhere => unreachable!("only inside a move"),
        }
    }

    /// The records of the batch, or as many of them as go into one sync. [Rule 5]
    fn records_for_one_sync(&mut self) -> &mut Vec<LogRecord> {
        let most = self.tuning.node.raft.batch_entries();
        let records = &mut self.effects.persist;
        if self.unsynced.is_empty() && records.len() <= most {
            return records;
        }
        self.unsynced.extend(records.drain(..));
        let is_entry = |record: &LogRecord| matches!(record.body, LogBody::Entry(_));
        let entries = self.unsynced.iter().enumerate().filter(|(_, record)| is_entry(record));
        let end = entries.map(|(place, _)| place).nth(most).unwrap_or(self.unsynced.len());
        self.syncing.clear();
        self.syncing.extend(self.unsynced.drain(..end));
        &mut self.syncing
    }

    /// Where the keeper is to be, if it is elsewhere.
    fn move_keeper(&mut self) -> Option<Step<'static, C>> {
        match (&mut self.executor, self.tuning.apply) {
            (ApplyExecutor::Here(_), Threading::Thread) => {
                let here = std::mem::replace(&mut self.executor, ApplyExecutor::Nowhere);
                let ApplyExecutor::Here(desk) = here else { unreachable!("just seen") };
                self.executor = ApplyExecutor::Apart { delivered: desk.keeper().waiting() };
                (self.untidy, self.tidies_at) = (false, None);
                Some(Step::Part(Box::new(Apart::of(*desk))))
            }
            (ApplyExecutor::Apart { delivered }, Threading::Inline) => {
                self.executor = ApplyExecutor::Returning { delivered: *delivered, held: Vec::new() };
                Some(Step::Recall)
            }
            (ApplyExecutor::Here(_), Threading::Inline)
            | (ApplyExecutor::Apart { .. }, Threading::Thread)
            | (ApplyExecutor::Returning { .. } | ApplyExecutor::Nowhere, _) => None,
        }
    }

    /// There is no thread for the keeper: it stays on the node's.
    ///
    /// # Errors
    /// The host ends the process.
    pub fn stays<H: Host>(&mut self, host: &mut H, apart: Apart<C>) -> Result<(), H::Stop> {
        (self.tuning.apply, self.tuned.apply) = (Threading::Inline, Threading::Inline);
        self.take_back(host, apart);
        Ok(())
    }

    /// The keeper is on the node's thread again. What came for it meanwhile goes behind what it has.
    fn take_back<H: Host>(&mut self, host: &mut H, apart: Apart<C>) {
        let (mut desk, clients) = apart.into_desk();
        clients.for_each(|(ticket, client)| self.waiting.put_back(ticket, client));
        if let ApplyExecutor::Returning { held, .. } =
            std::mem::replace(&mut self.executor, ApplyExecutor::Nowhere)
        {
            desk.take_in(host, held.into_iter());
        }
        let tables = std::mem::take(&mut self.tables).into_iter().map(|tables| match tables {
            Tables::Bring(brought) => Tables::Drop(Box::new(desk.replace(*brought))),
            unneeded @ Tables::Drop(_) => unneeded,
        });
        self.tables = tables.collect();
        self.executor = ApplyExecutor::Here(Box::new(desk));
    }

    fn tell(&mut self) -> Option<Step<'static, C>> {
        if let Some(members) = self.members.take() {
            return Some(Step::Members(members));
        }
        let timing = self.node.raft().timing();
        if std::mem::replace(&mut self.timing, timing) != timing {
            return Some(Step::Timing(timing));
        }
        if self.tuned != self.tuning {
            self.tuned = self.tuning;
            return Some(Step::Tune(Box::new(self.tuning)));
        }
        if let Some(step) = self.move_keeper() {
            return Some(step);
        }
        if !self.awaits_desk()
            && let Some(tables) = self.tables.pop_front()
        {
            return Some(match tables {
                Tables::Bring(tables) => Step::Deliver(Batch::Tables(tables)),
                Tables::Drop(tables) => Step::Drop(tables),
            });
        }
        if let Some((peer, falsehood)) = self.effects.distrust.pop() {
            return Some(Step::Distrust(peer, falsehood));
        }
        if !self.effects.trace.is_empty() {
            self.notes.extend(self.effects.trace.drain(..).map(Note::Trace));
        }
        let is_damaged = self.node.raft().is_damaged();
        if std::mem::replace(&mut self.was_damaged, is_damaged) && !is_damaged {
            self.notes.push_back(Note::Whole(self.node.raft().last_id()));
        }
        self.notes.pop_front().map(Step::Note)
    }

    /// The next order for the worker of snapshots.
    fn order(&mut self) -> Option<Order> {
        if let ApplyExecutor::Here(desk) = &mut self.executor
            && let Some(order) = desk.order()
        {
            return Some(order);
        }
        if self.orders.is_empty() {
            self.orders.extend(self.effects.read_chunks.drain(..).map(Order::Read));
            self.orders.extend(self.effects.store_chunks.drain(..).map(Order::Store));
        }
        self.orders.pop_front()
    }

    /// The log has done something.
    ///
    /// # Errors
    /// The host ends the process.
    pub fn completed<H: Host>(&mut self, host: &mut H, completion: Completion) -> Result<(), H::Stop> {
        self.news = true;
        let now = host.now();
        match completion {
            Completion::Persisted(lsn, room, took) => {
                let space = self.capacity.log_is_now(room);
                self.handle(host, now, Event::Space(space))?;
                if let Some(took) = took {
                    self.handle(host, now, Event::DiskTook(took))?;
                }
                self.stages.stored(lsn, now);
                self.handle(host, now, Event::Persisted(lsn))
            }
            Completion::Room(room) => {
                let space = self.capacity.log_is_now(room);
                self.handle(host, now, Event::Space(space))
            }
            Completion::Fetched(fetch, entries) => {
                if self.stage == Stage::Fetch {
                    self.fetches_left = self.fetches_left.saturating_sub(1);
                }
                self.handle(host, now, Event::Fetched { fetch, entries })
            }
        }
    }

    /// These forwarded writes could not leave, in the order in which they were to. The newest is handled first, because
    /// each goes to the head of the queue.
    ///
    /// # Errors
    /// The host ends the process.
    pub fn unsent<H: Host>(&mut self, host: &mut H, forwards: Vec<Forward>) -> Result<(), H::Stop> {
        for forward in forwards.into_iter().rev() {
            self.handle(host, host.now(), Event::Unsent(forward))?;
        }
        Ok(())
    }

    fn progressed<H: Host>(&mut self, host: &mut H, progress: Progress<C>) -> Result<(), H::Stop> {
        self.news = true;
        if let ApplyExecutor::Apart { delivered } | ApplyExecutor::Returning { delivered, .. } =
            &mut self.executor
        {
            *delivered -= progress.tasks;
        }
        self.answers.extend(progress.answers);
        if let Some(apart) = progress.desk {
            self.take_back(host, *apart);
        }
        self.counts.refused_for_work += progress.refused_for_work;
        self.capacity.store_is_now(progress.store_bytes, progress.store_pinned);
        let now = host.now();
        if let Some(members) = progress.members {
            self.handle(host, now, Event::Members((*members).clone()))?;
            self.members = Some(members);
        }
        for (admitted, client) in progress.admitted {
            // A keeper on another thread returns its client with it.
            let ticket = client.map_or(admitted.ticket, |client| self.waiting.enter(client));
            self.handle(host, now, Event::Admitted(Admitted { ticket, ..admitted }))?;
        }
        for standing in progress.standings {
            self.handle(host, now, Event::Standing(standing))?;
        }
        if let Some(health) = progress.health {
            self.note_health(&health);
            self.handle(host, now, Event::Health(*health))?;
        }
        match progress.applied {
            Some(index) => {
                self.stages.applied(index, now);
                self.handle(host, now, Event::Applied { index })
            }
            None => Ok(()),
        }
    }

    /// Notes each alarm that was raised or cleared, and another feature level: from there on older versions cannot follow.
    fn note_health(&mut self, health: &Health) {
        let raised = health.alarms.iter().filter(|alarm| !self.alarms.contains(*alarm)).map(Note::Raised);
        self.notes.extend(raised);
        let cleared = self.alarms.iter().filter(|alarm| !health.alarms.contains(*alarm)).map(Note::Cleared);
        self.notes.extend(cleared);
        self.alarms.clone_from(&health.alarms);
        if std::mem::replace(&mut self.level, health.level) != health.level {
            self.notes.push_back(Note::Level(health.level));
        }
    }

    fn brought<H: Host>(&mut self, host: &mut H, brought: Brought) -> Result<(), H::Stop> {
        match brought {
            Brought::Event(event) => self.handle(host, host.now(), event),
            Brought::Tables(_, tables) => {
                self.tables.push_back(match &mut self.executor {
                    ApplyExecutor::Here(desk) => Tables::Drop(Box::new(desk.replace(*tables))),
                    ApplyExecutor::Apart { .. } | ApplyExecutor::Returning { .. } => Tables::Bring(tables),
                    ApplyExecutor::Nowhere => unreachable!("only inside a move"),
                });
                Ok(())
            }
        }
    }

    /// The process is about to stop: [`Member::next`] answers all clients that can be answered. Only in [`Stage::Idle`].
    ///
    /// # Errors
    /// The host ends the process.
    pub fn stop<H: Host>(&mut self, host: &mut H) -> Result<(), H::Stop> {
        self.handle(host, host.now(), Event::Stop)?;
        (self.slice, self.stops) = (FINISH_UNITS, true);
        self.stage = Stage::Answer;
        Ok(())
    }

    fn handle<H: Host>(&mut self, host: &mut H, now: Instant, event: Event) -> Result<(), H::Stop> {
        host.handle(&mut self.node, now, event, &mut self.effects)
    }
}

fn is_empty(effects: &Effects) -> bool {
    effects.persist.is_empty()
        && effects.send.is_empty()
        && effects.fetch.is_empty()
        && effects.apply.is_empty()
        && effects.read_chunks.is_empty()
        && effects.store_chunks.is_empty()
        && effects.compute.is_empty()
        && effects.reply.is_empty()
}
