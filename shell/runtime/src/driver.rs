//! The driver: one thread's loop around one node.
//!
//! ```text
//!  peers ─▶ inbox ─┐                         ┌─▶ links (sent before the disk is asked)
//!  clients ─▶ calls┼─▶ the whole inbox, then ┼─▶ keeper ─▶ answers
//!  timer ──────────┤   one "drained", then   ├─▶ log (one write, one sync for the batch)
//!  log, keeper,────┘   what follows from it  ├─▶ snapshot worker (beside)
//!  snapshot worker                           └─▶ back to the start
//! ```
//! Batching falls out of the loop: what arrives while one batch is carried out is the next. No timer and no lock sits
//! on the way of a request. [architecture §4]
//! Knows nothing of: etcd, how bytes are laid out.

use crate::apply_executor::{ApplyExecutor, Progress, SLICE_UNITS};
use crate::capacity::Capacity;
use crate::clock;
use crate::disk::Disk;
use crate::engine::{Call, Engine, Facts};
use crate::inbox::Inbox;
use crate::links::Links;
use crate::metrics::Metrics;
use crate::name_clash::NameClash;
use crate::peer_table::PeerTable;
use crate::report::Cause;
use crate::snapshots::{Done, Snapshots};
use crate::start::End;
use crate::waiting::Waiting;
use crate::watchdog::{Watchdog, Work};
use kattu_member::log::Completion;
use kattu_member::snapshots as steps;
use kattu_node::Node;
use kattu_node::alarms::{Alarm, Alarms};
use kattu_node::compare::Health;
use kattu_node::contract::{Admitted, Effects, Event, KeeperTask, Outcome, Refusal, Request};
use kattu_raft::{Duration, Fetch, Instant, NodeId, Trace};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use tokio::sync::{mpsc, watch};

/// Client calls taken into one batch; the rest waits for the next.
const CALLS_PER_BATCH: usize = 4096;

/// Pieces of the log read back in one batch. Between two of them other arrivals are handled, so that a member that
/// replays its log, or feeds a peer that is far behind, votes and answers meanwhile. [fault-model F53]
const FETCHES_PER_BATCH: usize = 1;

/// How often the flows to peers are published as metrics.
const FLOWS_EVERY: Duration = Duration::from_millis(100);
/// How long a member of a new cluster waits for the others before it logs that.
const WAITS_QUIETLY: Duration = Duration::from_secs(5);

/// One node with everything it is connected to.
pub(crate) struct Driver {
    pub(crate) node: Node,
    pub(crate) executor: ApplyExecutor,
    pub(crate) snapshots: Snapshots,
    pub(crate) disk: Disk,
    pub(crate) links: Links,
    pub(crate) peer_table: Rc<PeerTable>,
    pub(crate) inbox: Rc<Inbox>,
    pub(crate) calls: mpsc::Receiver<Call>,
    pub(crate) waiting: Waiting,
    pub(crate) facts: Arc<Facts>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) capacity: Capacity,
    pub(crate) watchdog: Watchdog,
    /// The alarms that have been logged.
    pub(crate) alarms: Alarms,
    /// The name clashes that have been logged.
    pub(crate) name_clash: NameClash,
    /// When the flows to peers are published next.
    pub(crate) flows_at: Instant,
    /// When this member started.
    pub(crate) started: Instant,
    /// Pieces of the log that are still to be read back.
    pub(crate) fetches: VecDeque<Fetch>,
    /// Keeps the call queue open while faces come and go.
    pub(crate) _engine: Engine,
}

impl Driver {
    /// Runs until `stop` becomes true, or this member knows that it was removed; then answers all clients and closes
    /// the log.
    pub(crate) async fn run(mut self, mut stop: watch::Receiver<bool>) -> End {
        let mut calls = Vec::new();
        let mut effects = Effects::default();
        let mut armed = Instant(0);
        let mut timer = Box::pin(tokio::time::sleep(std::time::Duration::ZERO));
        while !*stop.borrow() && !self.is_removed() {
            let untidy = self.batch(&mut calls, &mut effects).await;
            let deadline = self.node.deadline();
            if deadline < armed || armed <= clock::now() {
                // A deadline that moved away is left alone: one early wake-up costs less than moving the timer always.
                armed = deadline;
                timer.as_mut().reset(tokio::time::Instant::now() + clock::until(deadline));
            }
            tokio::select! {
                biased;
                () = self.inbox.arrived() => {}
                _ = self.calls.recv_many(&mut calls, CALLS_PER_BATCH) => {}
                completion = self.disk.completed() => {
                    let now = clock::now();
                    self.on_completion(now, completion, &mut effects);
                }
                progress = self.executor.progress() => self.on_progress(clock::now(), progress, &mut effects),
                done = self.snapshots.done() => self.on_done(clock::now(), done, &mut effects),
                () = &mut timer => {}
                () = std::future::ready(()), if untidy || !self.fetches.is_empty() || self.executor.is_busy() => {}
                told = stop.changed() => {
                    if told.is_err() {
                        break; // the sender is gone
                    }
                }
            }
            // Tasks that are ready on this thread join the batch: requests that were read together are proposed
            // together.
            tokio::task::yield_now().await;
        }
        let end = if self.is_removed() { End::Removed } else { End::Stopped };
        self.finish(&mut effects);
        end
    }

    /// Whether this member knows that it was removed. [replication-protocols M8]
    fn is_removed(&self) -> bool {
        self.node.raft().is_removed() || self.peer_table.is_removed()
    }

    /// Handles everything that has arrived, and carries out the effects. Returns whether there is work left even if
    /// nothing arrives.
    async fn batch(&mut self, calls: &mut Vec<Call>, effects: &mut Effects) -> bool {
        let _under_way = self.watchdog.begin(Work::Node);
        let mut events = Vec::new();
        let now = clock::now();
        self.links.follow();
        let applied_before = self.metrics.applied_entries.get();
        self.take_in(now, calls, &mut events, effects);
        let now = clock::now(); // not before what was just taken in
        let due = self.node.deadline();
        if due <= now {
            let late = u64::try_from(now.since(due).as_micros()).unwrap_or(u64::MAX);
            self.metrics.late_us_max.set(self.metrics.late_us_max.get().max(late));
            self.node.handle(now, Event::Tick, effects);
        }
        if let Some(space) = self.capacity.look(self.peer_table.ask(|table| table.least_quota())) {
            self.node.handle(now, Event::Space(space), effects);
        }
        self.metrics.quota_bytes.set(self.capacity.ruling_quota());
        self.node.handle(now, Event::Drained, effects);
        self.carry_out(effects).await;
        let untidy = self.metrics.applied_entries.get() == applied_before && self.executor.idle();
        self.publish_facts();
        self.metrics.batches.add(1);
        untidy
    }

    fn take_in(
        &mut self,
        now: Instant,
        calls: &mut Vec<Call>,
        events: &mut Vec<Event>,
        effects: &mut Effects,
    ) {
        while let Some(completion) = self.disk.try_completed() {
            self.on_completion(now, completion, effects);
        }
        while let Some(progress) = self.executor.try_progress() {
            self.on_progress(now, progress, effects);
        }
        while let Some(done) = self.snapshots.try_done() {
            self.on_done(now, done, effects);
        }
        self.inbox.take(events);
        self.metrics.events.add(events.len() as u64);
        let now = clock::now(); // a message's claims of time hold before it came, and after its request
        for event in events.drain(..) {
            self.node.handle(now, event, effects);
            self.watchdog.pet(Work::Node);
        }
        while calls.len() < CALLS_PER_BATCH {
            let Ok(call) = self.calls.try_recv() else { break };
            calls.push(call);
        }
        self.metrics.requests.add(calls.len() as u64);
        let refuses = self.executor.is_full();
        let now = clock::now(); // a read is judged at a moment after its call [replication-protocols L-5]
        for call in calls.drain(..) {
            let (request, reply) = match call {
                Call::Ask(request, reply) => (request, reply),
                Call::Transfer(told) => {
                    self.node.handle(now, Event::Transfer(None), effects);
                    let _ = told.send(self.node.raft().transferring().is_some());
                    continue;
                }
            };
            self.facts.taken_in(&request);
            if reply.is_closed() {
                // The caller has gone, and nothing was begun: under overload, only work that a caller still waits for
                // is of use. [fault-model F50]
                self.metrics.abandoned.add(1);
                continue;
            }
            if refuses && !matches!(request, Request::Status) {
                self.metrics.failed.add(1);
                reply.send(Outcome::Refused(Refusal::TooManyRequests));
                continue;
            }
            let ticket = self.waiting.enter(reply);
            self.node.handle(now, Event::Client { ticket, request }, effects);
            self.watchdog.pet(Work::Node);
        }
    }

    /// Carries out effects until none are left: messages first, then answers, then the disk. Results of the disk and
    /// the keeper on the way are news to the node, so the batch ends with one more "drained".
    async fn carry_out(&mut self, effects: &mut Effects) {
        let mut fetches_left = FETCHES_PER_BATCH;
        let mut slice = SLICE_UNITS;
        loop {
            // Before any answer is sent: a client that has an answer finds its position here.
            self.facts.committed.store(self.node.raft().committed().0, Ordering::Release);
            for forward in self.links.send(std::mem::take(&mut effects.send)).into_iter().rev() {
                self.node.handle(clock::now(), Event::Unsent(forward), effects); // the newest first: each goes to the head
            }
            let mut answered = self.answer(effects);
            let applied = self.apply(&mut slice, effects);
            answered |= applied == Some(true);
            let mut news = applied.is_some();
            self.trace(effects);
            self.distrust(effects);
            self.order_snapshots(effects);
            self.fetches.extend(effects.fetch.drain(..));
            if !effects.persist.is_empty() {
                if answered {
                    // The thread is about to block on the disk: let the answers leave first.
                    tokio::task::yield_now().await;
                }
                let records = std::mem::take(&mut effects.persist);
                if let Some(completion) = self.disk.persist(records) {
                    self.on_completion(clock::now(), completion, effects);
                    news = true;
                }
            }
            // After the batch's own records, so that no client waits for a lagging peer's reading; in turn, one for
            // each peer.
            while fetches_left > 0
                && let Some(fetch) = self.fetches.pop_front()
            {
                if let Some(completion) = self.disk.fetch(fetch) {
                    self.on_completion(clock::now(), completion, effects);
                    fetches_left -= 1;
                    news = true;
                }
            }
            if !news && is_empty(effects) {
                return;
            }
            self.node.handle(clock::now(), Event::Drained, effects);
        }
    }

    /// Answers clients; whether there were any.
    fn answer(&mut self, effects: &mut Effects) -> bool {
        let any = !effects.reply.is_empty();
        for (ticket, outcome) in std::mem::take(&mut effects.reply) {
            if !matches!(outcome, Outcome::Done(_)) {
                self.metrics.failed.add(1);
            }
            if let Some(reply) = self.waiting.take(ticket) {
                reply.send(outcome);
            }
        }
        any
    }

    /// Delivers tasks to the keeper, and lets it work as long as the batch's slice lasts. If it has come further,
    /// returns whether a client was answered.
    fn apply(&mut self, slice: &mut i64, effects: &mut Effects) -> Option<bool> {
        if !effects.apply.is_empty() {
            let tasks = std::mem::take(&mut effects.apply);
            let entries = tasks.iter().filter(|task| matches!(task, KeeperTask::Apply { .. })).count();
            self.metrics.applied_entries.add(entries as u64);
            self.executor.deliver(tasks, &mut self.waiting);
        }
        let progress = self.executor.work(slice, &mut self.waiting)?;
        let answered = progress.answered;
        self.on_progress(clock::now(), progress, effects);
        Some(answered)
    }

    fn on_completion(&mut self, now: Instant, completion: Completion, effects: &mut Effects) {
        match completion {
            Completion::Persisted(lsn, room, took) => {
                let space = self.capacity.log_is_now(room);
                self.node.handle(now, Event::Space(space), effects);
                if let Some(took) = took {
                    self.node.handle(now, Event::DiskTook(took), effects);
                }
                self.node.handle(now, Event::Persisted(lsn), effects);
            }
            Completion::Room(room) => {
                let space = self.capacity.log_is_now(room);
                self.node.handle(now, Event::Space(space), effects);
            }
            Completion::Fetched(fetch, entries) => {
                self.node.handle(now, Event::Fetched { fetch, entries }, effects);
            }
        }
    }

    fn on_progress(&mut self, now: Instant, progress: Progress, effects: &mut Effects) {
        self.capacity.store_is_now(progress.store_bytes, progress.store_pinned);
        if let Some(members) = progress.members {
            self.name_clash.follow(self.peer_table.id, &members);
            self.peer_table.follow((*members).clone());
            self.node.handle(now, Event::Members(*members), effects);
        }
        for (admitted, reply) in progress.admitted {
            // An apply thread returns its client with it.
            let ticket = reply.map_or(admitted.ticket, |reply| self.waiting.enter(reply));
            self.node.handle(now, Event::Admitted(Admitted { ticket, ..admitted }), effects);
        }
        if let Some(health) = progress.health {
            self.tell_of_alarms(&health);
            self.tell_of_level(health.level);
            self.node.handle(now, Event::Health(*health), effects);
        }
        if let Some(index) = progress.applied {
            self.metrics.applied.set(index.0);
            self.node.handle(now, Event::Applied { index }, effects);
        }
    }

    /// Has pieces of snapshots read and stored on the snapshot worker.
    fn order_snapshots(&mut self, effects: &mut Effects) {
        for request in effects.read_chunks.drain(..) {
            self.snapshots.orders().work(steps::Order::Read(request));
        }
        for piece in effects.store_chunks.drain(..) {
            self.metrics.snapshot_chunks_received.add(1);
            self.snapshots.orders().work(steps::Order::Store(piece));
        }
    }

    fn on_done(&mut self, now: Instant, done: Done, effects: &mut Effects) {
        match done {
            Done::Told(event) => self.node.handle(now, event, effects),
            Done::Thawed(tables) => self.executor.bring(tables),
        }
    }

    /// Logs each alarm that was raised or cleared.
    fn tell_of_alarms(&mut self, health: &Health) {
        let named = |member: NodeId| match member {
            NodeId(0) => "every member".to_string(),
            NodeId(id) => format!("member {id:x}"),
        };
        let is_new = |alarm: &Alarm| !self.alarms.contains(*alarm);
        for Alarm { member, kind } in health.alarms.iter().filter(is_new) {
            crate::report::warn(format_args!("alarm {kind} for {}", named(member)));
        }
        let is_over = |alarm: &Alarm| !health.alarms.contains(*alarm);
        for Alarm { member, kind } in self.alarms.iter().filter(is_over) {
            crate::report::info(format_args!("alarm {kind} for {} is cleared", named(member)));
        }
        self.alarms.clone_from(&health.alarms);
    }

    /// Logs a higher feature level: from here on older versions cannot follow.
    fn tell_of_level(&self, level: u16) {
        self.peer_table.with(|table| table.set_level(level));
        if self.metrics.feature_level.get() < u64::from(level) {
            self.metrics.feature_level.set(level.into());
            crate::report::info(format_args!(
                "the cluster is at feature level {level}: versions that do not know this level cannot run in it any more"
            ));
        }
    }

    fn publish_facts(&mut self) {
        self.note_refill();
        let now = clock::now();
        let raft = self.node.raft();
        if self.flows_at <= now {
            self.flows_at = now + FLOWS_EVERY;
            self.note_who_is_waited_for(now);
            self.metrics.slows_clients.set(raft.slows_clients().into());
            let mut flows = self.metrics.peer_flows.lock().unwrap_or_else(PoisonError::into_inner);
            flows.clear();
            flows.extend(raft.peer_flows());
        }
        let leader = raft.leader().unwrap_or(NodeId(0));
        self.facts.term.store(raft.term().0, Ordering::Relaxed);
        self.facts.leader.store(leader.0, Ordering::Relaxed);
        let is_alone = raft.membership().members().eq([self.peer_table.id]);
        self.facts.has_peers.store(!is_alone, Ordering::Relaxed);
        self.metrics.committed.set(raft.committed().0);
        self.metrics.pending.set(self.node.pending() as u64);
        self.metrics.snapshot_index.set(raft.snapshot().map_or(0, |snapshot| snapshot.last.index.0));
    }

    fn trace(&self, effects: &mut Effects) {
        for trace in std::mem::take(&mut effects.trace) {
            match trace {
                Trace::BecameLeader(term) => {
                    self.metrics.leader_changes.add(1);
                    crate::report::info(format_args!("leader of term {}", term.0));
                }
                Trace::BecameFollower { term, leader: Some(leader) } => {
                    self.metrics.leader_changes.add(1);
                    crate::report::info(format_args!("following member {:x} in term {}", leader.0, term.0));
                }
                Trace::SlowDisk { own, fastest, its } => {
                    self.metrics.slow_disk_left.add(1);
                    crate::report::warn(format_args!(
                        "this disk is slow: a write took {} ms, one of member {:x} {} ms; transferring leadership to that member. \
                         Check this member's disk: other writers, hardware failures",
                        own.as_millis(),
                        fastest.0,
                        its.as_micros() as f64 / 1000.0
                    ));
                }
                Trace::LeaderLeaseDenied { peer, vote_hold } => {
                    let said = match vote_hold.is_zero() {
                        true => "has no --lease-reads".to_string(),
                        false => format!("has --election-timeout {} only", vote_hold.as_millis()),
                    };
                    crate::report::warn(format_args!(
                        "--lease-reads is on here, but member {:x} {said}: its answers do not extend the leader lease, and \
                         without a majority that does, reads need a quorum round",
                        peer.0
                    ));
                }
                Trace::ClocksApart { peer, gains } => {
                    let way = if gains < 0 { "slow" } else { "fast" };
                    crate::report::warn(format_args!(
                        "the clock of member {:x} is {way} against this leader's by {} ppm or more, and two members may differ by \
                         little more than twice --clock-drift-ppm: no lease reads until another leader is elected. One of the \
                         two clocks is wrong: the other member's if only that member is reported, this member's if most are. \
                         Repair it (time service, virtual machine, hardware), then transfer leadership",
                        peer.0,
                        gains.unsigned_abs()
                    ));
                }
                Trace::SlowsClients { peer, behind } => {
                    self.metrics.slowed_clients.add(1);
                    crate::report::info(format_args!(
                        "member {:x} lags by {behind} entries and does not catch up: clients are slowed slightly for it \
                         (--client-share-min)",
                        peer.0
                    ));
                }
                Trace::FallsBehind { peer, behind } => {
                    self.metrics.falling_behind.add(1);
                    crate::report::warn(format_args!(
                        "member {:x} lags by {behind} entries and does not catch up, {}: reduce the load until it has, or check \
                         its link, its disk and its processors",
                        peer.0,
                        match self.node.raft().slows_clients() {
                            true => "although clients are slowed for it",
                            false => "and clients are not slowed for it",
                        }
                    ));
                }
                Trace::LostMatch { peer, matched, last } => {
                    self.metrics.lost_matches.add(1);
                    crate::report::warn(format_args!(
                        "member {:x} has lost entries {} to {} that it had acknowledged: sending them again; check its disk",
                        peer.0,
                        last.0 + 1,
                        matched.0
                    ));
                }
                Trace::TakesPart { unasked: 0 } => {}
                Trace::TakesPart { unasked } => crate::report::info(format_args!(
                    "takes part without an answer from {unasked} of the other voters: votes and acknowledgements of this \
                     member that only those remember are unknown to it"
                )),
                Trace::ToldOfLoss { vote_floor, last } => {
                    self.metrics.lost_log.add(1);
                    crate::report::warn(format_args!(
                        "the log ends at {last}, but its leader reports that this member had acknowledged entries up to \
                         {vote_floor}: the disk lost them in a power cut, or the data directory is an older copy. Until the log \
                         is refilled, this member votes only for logs that reach that far, and does not lead. Check the disk, \
                         and never restore a copy of a data directory: remove the member and add it as a new one"
                    ));
                }
                _ => {}
            }
        }
    }

    /// Cuts off peers that sent what no correct member sends; each may connect again and begin anew.
    fn distrust(&self, effects: &mut Effects) {
        for (peer, falsehood) in effects.distrust.drain(..) {
            self.links.distrust(peer);
            let cause = Cause { what: "protocol violations by a member", whose: peer.0 };
            crate::report::warn_of(
                cause,
                format_args!(
                    "member {:x} violated the protocol: {falsehood}. It changed nothing here, and its connections were closed. \
                     If it runs another version than this one, run the newer one on both. Otherwise it is broken, or another \
                     process uses its identity: check access to the peer ports, and replace the member",
                    peer.0
                ),
            );
        }
    }

    /// Logs which members a new cluster waits for.
    fn note_who_is_waited_for(&self, now: Instant) {
        let mut absent = self.node.raft().waits_for().peekable();
        if absent.peek().is_none() || now.since(self.started) < WAITS_QUIETLY {
            return;
        }
        let places = self.peer_table.places();
        let place = |id: NodeId| {
            let at = places.get(&id).map(|at| kattu_member::peer_address::join(at)).unwrap_or_default();
            format!("member {:x} ({at})", id.0)
        };
        let absent = absent.map(place).collect::<Vec<_>>().join(", ");
        let cause = Cause { what: "the cluster has not started yet", whose: 0 };
        if self.peer_table.ask(|table| table.was_known()) || self.node.raft().others_began() {
            return crate::report::warn_of(
                cause,
                format_args!(
                    "waits for {absent}: this directory is new, and the cluster has started without it. If this member had \
                     another directory before, {}; otherwise all members must be reached once",
                    kattu_member::handshake::LOST_PROMISES
                ),
            );
        }
        crate::report::warn_of(
            cause,
            format_args!(
                "waits for {absent}: a new cluster starts when all its initial members have met. If one of them has lost its \
                 data directory meanwhile, and no member has ever been ready to serve, nothing was written: only then empty \
                 all data directories, and start all members again"
            ),
        );
    }

    /// Logs when a log that was cut has grown back to its old end. [fault-model ST7]
    fn note_refill(&self) {
        let is_damaged = self.node.raft().is_damaged();
        if !is_damaged && self.metrics.log_damaged.get() != 0 {
            crate::report::info(format_args!("the log is whole again, up to {}", self.node.raft().last_id()));
        }
        self.metrics.log_damaged.set(u64::from(is_damaged));
    }

    fn finish(mut self, effects: &mut Effects) {
        self.node.handle(clock::now(), Event::Stop, effects);
        self.answer(effects);
        self.apply(&mut 0, effects);
        self.executor.finish(&mut self.waiting);
        drop(self.snapshots); // before another process may open the directory
        self.disk.close();
    }
}

fn is_empty(effects: &Effects) -> bool {
    effects.persist.is_empty()
        && effects.send.is_empty()
        && effects.fetch.is_empty()
        && effects.apply.is_empty()
        && effects.read_chunks.is_empty()
        && effects.store_chunks.is_empty()
        && effects.reply.is_empty()
}
