//! The driver: one thread's loop around one member.
//!
//! ```text
//!  peers ─▶ inbox ─┐                          ┌─▶ links (sent before the disk is asked)
//!  clients ─▶ calls┼─▶ what has arrived, then ┼─▶ answers
//!  timer ──────────┤   the member's steps     ├─▶ log (one write, one sync for the batch)
//!  log, keeper,────┘   until it is idle       ├─▶ keeper, snapshots and jobs on threads of their own
//!  snapshot worker                            └─▶ back to the start
//! ```
//! The member decides ([`kattu_member::member`]); the driver waits, and does each step with tokio, threads and files. No timer and
//! no lock sits on the way of a request. [architecture §4]
//! Knows nothing of: etcd, how bytes are laid out, what follows from what.

use crate::apply_thread::ApplyThread;
use crate::asked::Reply;
use crate::clock;
use crate::computing::Computing;
use crate::delays::Delays;
use crate::disk::Disk;
use crate::engine::{Asker, Call, Engine, Facts};
use crate::inbox::Inbox;
use crate::links::Links;
use crate::lookout::Lookout;
use crate::metrics::Metrics;
use crate::name_clash::NameClash;
use crate::operator;
use crate::peer_table::PeerTable;
use crate::settings::{Promise, note_timing};
use crate::snapshots::{Order, Snapshots};
use crate::timer::Timer;
use crate::watchdog::{Watchdog, Work};
use kattu_member::apply::Batch;
use kattu_member::capacity::Sight;
use kattu_member::host::{Arrivals, Brought, Host};
use kattu_member::log::Completion;
use kattu_member::member::Member;
use kattu_member::progress::Progress;
use kattu_member::step::{Counts, LIMITS, Note, Step};
use kattu_member::tuning::{Threading, Tuning};
use kattu_node::contract::{Effects, Event, KeeperEffects, Members, PeerMessage};
use kattu_node::{Keeper, Node};
use kattu_raft::{Duration, Instant, NodeId, Raft, Timing};
use std::convert::Infallible;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use tokio::sync::{mpsc, watch};

/// Why a member ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It was told to stop.
    Stopped,
    /// Others removed it from its cluster, which is final.
    Removed,
}

/// How often the flows to peers are published as metrics.
const FLOWS_EVERY: Duration = Duration::from_millis(100);

/// One member with everything it is connected to.
pub(crate) struct Driver {
    pub(crate) member: Member<Reply, Asker>,
    pub(crate) hands: Hands,
    pub(crate) links: Links,
    pub(crate) facts: Arc<Facts>,
    /// The name clashes that have been logged.
    pub(crate) name_clash: NameClash,
    /// When the flows to peers are published next.
    pub(crate) flows_at: Instant,
    /// What the metrics have of the member's counts.
    pub(crate) counted: Counts,
    /// When this member started.
    pub(crate) started: Instant,
    /// Wakes the loop when something is due.
    pub(crate) timer: Timer,
    /// Keeps the call queue open while faces come and go.
    pub(crate) _engine: Engine,
}

/// Where arrivals come from, and steps go to.
pub(crate) struct Hands {
    pub(crate) disk: Disk,
    /// The keeper's thread, if it has one.
    pub(crate) apply: Option<ApplyThread>,
    pub(crate) snapshots: Snapshots,
    pub(crate) computing: Computing,
    pub(crate) inbox: Rc<Inbox>,
    pub(crate) calls: mpsc::Receiver<Call>,
    pub(crate) peer_table: Rc<PeerTable>,
    pub(crate) lookout: Lookout,
    pub(crate) promise: Promise,
    pub(crate) clerk: Clerk,
    /// What the loop was woken for.
    pub(crate) woken_for: WokenFor,
}

/// Results that the loop received while it slept, for the next batch.
#[derive(Default)]
pub(crate) struct WokenFor {
    completion: Option<Completion>,
    progress: Option<Progress<Reply>>,
    brought: Option<Brought>,
    calls: Vec<Call>,
}

/// Counts and watches over what the node and a keeper on this thread do.
pub(crate) struct Clerk {
    pub(crate) facts: Arc<Facts>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) watchdog: Watchdog,
    pub(crate) delays: Arc<Delays>,
}

impl Host for Hands {
    type Stop = Infallible;

    fn now(&self) -> Instant {
        clock::now()
    }

    fn handle(
        &mut self,
        node: &mut Node,
        now: Instant,
        event: Event,
        effects: &mut Effects,
    ) -> Result<(), Infallible> {
        node.handle(now, event, effects);
        self.clerk.watchdog.pet(Work::Node);
        Ok(())
    }

    fn step(
        &mut self,
        keeper: &mut Keeper,
        slice: &mut i64,
        effects: &mut KeeperEffects,
    ) -> Result<(), Infallible> {
        self.clerk.delays.over_step(keeper, |keeper| {
            keeper.step(slice, effects);
        });
        self.clerk.watchdog.pet(Work::Node);
        Ok(())
    }
}

impl Arrivals for Hands {
    type Client = Reply;
    type Asker = Asker;

    fn completion(&mut self) -> Result<Option<Completion>, Infallible> {
        Ok(self.woken_for.completion.take().or_else(|| self.disk.try_completed()))
    }

    fn progress(&mut self) -> Option<Progress<Reply>> {
        let progress = self.woken_for.progress.take().or_else(|| self.apply.as_mut()?.try_progress())?;
        if progress.desk.is_some()
            && let Some(thread) = self.apply.take()
        {
            thread.finish(); // it has ended
        }
        Some(progress)
    }

    fn brought(&mut self) -> Result<Option<Brought>, Infallible> {
        Ok(self.woken_for.brought.take().or_else(|| self.snapshots.try_done()))
    }

    fn events(&mut self, into: &mut Vec<Event>) -> Instant {
        self.inbox.take(into);
        clock::now()
    }

    fn calls(&mut self, most: usize, into: &mut Vec<Call>) -> Instant {
        into.append(&mut self.woken_for.calls);
        while into.len() < most {
            let Ok(call) = self.calls.try_recv() else { break };
            into.push(call);
        }
        for call in into.iter() {
            if let Call::Ask(_, request) = call {
                self.clerk.facts.taken_in(request);
            }
        }
        clock::now()
    }

    fn sends(&self, raft: &Raft, messages: &[PeerMessage]) {
        self.clerk.metrics.sends(raft, messages);
    }

    fn received(&self, client: &Reply) -> Option<Instant> {
        client.received()
    }

    fn is_gone(&self, client: &Reply) -> bool {
        client.is_closed()
    }

    fn transferring(&mut self, asker: Asker, has_begun: bool) {
        if let Asker::Transfer(asker) = asker {
            let _ = asker.send(has_begun); // the caller may have gone
        }
    }

    fn tuned(&mut self, asker: Asker, tuning: Result<Tuning, &'static str>) {
        if let Asker::Tune(asker) = asker {
            let _ = asker.send(tuning); // the caller may have gone
        }
    }

    fn sight(&self) -> Sight {
        self.lookout.last()
    }

    fn least_quota(&self) -> Option<u64> {
        self.peer_table.ask(|table| table.least_quota())
    }

    fn retries_log(&self) -> bool {
        self.disk.retries()
    }

    fn record_vote_hold(&mut self, length: Duration) -> bool {
        self.promise.record(clock::now(), length)
    }
}

impl Driver {
    /// Runs until `stop` becomes true, or this member knows that it was removed; then answers all clients and closes
    /// the log.
    pub(crate) async fn run(mut self, mut stop: watch::Receiver<bool>) -> End {
        let mut armed = Instant(0);
        while !*stop.borrow() && !self.is_removed() {
            self.batch().await;
            let deadline = self.member.deadline();
            if deadline < armed || armed <= clock::now() {
                // A deadline that moved away is left alone: one early wake-up costs less than moving the timer always.
                armed = deadline;
                self.timer.set(deadline);
            }
            let hands = &mut self.hands;
            let woken_for = &mut hands.woken_for;
            tokio::select! {
                biased;
                () = hands.inbox.arrived() => {}
                _ = hands.calls.recv_many(&mut woken_for.calls, LIMITS.calls) => {}
                completion = hands.disk.completed() => woken_for.completion = Some(completion),
                progress = of(&mut hands.apply) => woken_for.progress = Some(progress),
                brought = hands.snapshots.done() => woken_for.brought = Some(brought),
                () = self.timer.rung() => armed = Instant::NEVER, // it may have rung early: it is set again
                () = std::future::ready(()), if self.member.is_busy() => {}
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
        self.finish().await;
        end
    }

    /// Whether this member knows that it was removed. [replication-protocols M8]
    fn is_removed(&self) -> bool {
        self.member.node().raft().is_removed() || self.hands.peer_table.is_removed()
    }

    /// Handles everything that has arrived, and carries out what follows.
    async fn batch(&mut self) {
        let watchdog = self.hands.clerk.watchdog.clone();
        let _under_way = watchdog.begin(Work::Node);
        self.links.follow();
        let Ok(()) = self.member.begin(&mut self.hands);
        self.carry_out().await;
        self.publish();
    }

    /// Carries out the member's steps until it is idle.
    async fn carry_out(&mut self) {
        loop {
            let Ok(step) = self.member.next(&mut self.hands);
            match step {
                Step::Idle => return,
                Step::Send(committed, messages) => {
                    self.facts.committed.store(committed.0, Ordering::Release);
                    let unsent = self.links.send(messages);
                    let Ok(()) = self.member.unsent(&mut self.hands, unsent);
                }
                Step::Answer(client, outcome) => client.send(outcome),
                Step::Tell(ticket, outcome) => {
                    if let Some(client) = self.member.client(ticket) {
                        client.tell(outcome);
                    }
                }
                Step::Unclaimed(..) => {}
                Step::Deliver(batch) => {
                    self.hands.clerk.metrics.apply_delivered.add(1);
                    let apply = self.hands.apply.as_ref().expect("only a keeper on a thread is delivered to");
                    apply.deliver(batch);
                }
                Step::Members(members) => self.follow(*members),
                Step::Timing(timing) => self.go_by(timing),
                Step::Tune(tuning) => self.tune(&tuning),
                Step::Part(apart) => {
                    let Clerk { watchdog, metrics, delays, .. } = &self.hands.clerk;
                    let orders = self.hands.snapshots.orders();
                    match ApplyThread::of(apart, orders, watchdog.clone(), metrics.clone(), delays.clone()) {
                        Ok(thread) => self.hands.apply = Some(thread),
                        Err((error, apart)) => {
                            operator::tell_no_thread_for_apply(&error);
                            let Ok(()) = self.member.stays(&mut self.hands, *apart);
                        }
                    }
                }
                Step::Recall => {
                    let apply = self.hands.apply.as_ref().expect("the keeper is apart");
                    apply.deliver(Batch::Return);
                }
                Step::Distrust(peer, falsehood) => {
                    self.links.distrust(peer);
                    operator::tell_distrust(peer, falsehood);
                }
                Step::Note(note) => self.note(note),
                Step::Order(order) => {
                    if let kattu_member::snapshots::Order::Store(_) = order {
                        self.hands.clerk.metrics.snapshot_chunks_received.add(1);
                    }
                    self.hands.snapshots.orders().work(order);
                }
                Step::Compute(job) => self.hands.computing.give(job),
                Step::Drop(tables) => self.hands.snapshots.orders().give(Order::Drop(tables)),
                Step::Persist { records, answered } => {
                    if answered {
                        // The thread is about to block on the disk: let the answers leave first.
                        tokio::task::yield_now().await;
                    }
                    self.hands.clerk.metrics.persists(records, self.hands.disk.is_on_thread());
                    if let Some(completion) = self.hands.disk.persist(records) {
                        let Ok(()) = self.member.completed(&mut self.hands, completion);
                    }
                }
                Step::Fetch(fetch) => {
                    if let Some(completion) = self.hands.disk.fetch(fetch) {
                        let Ok(()) = self.member.completed(&mut self.hands, completion);
                    }
                }
            }
        }
    }

    /// Counts what was followed to its end, and asks the door for the next requests to follow.
    fn publish_stages(&mut self, now: Instant) {
        let wants = self.member.wants_stamps(now);
        self.facts.wants_write.store(wants.write, Ordering::Relaxed);
        self.facts.wants_read.store(wants.read, Ordering::Relaxed);
        for sample in self.member.samples() {
            self.hands.clerk.metrics.stages.record(&sample);
        }
    }

    /// The table of members has changed.
    fn follow(&mut self, members: Members) {
        self.name_clash.follow(self.hands.peer_table.id, &members);
        let urls =
            members.list.iter().filter_map(|member| Some((member.id, member.client_urls.first()?.clone())));
        *self.facts.client_urls.lock().unwrap_or_else(PoisonError::into_inner) = urls.collect();
        self.hands.peer_table.follow(members);
    }

    /// Another timing is in force.
    fn go_by(&mut self, timing: Timing) {
        note_timing(timing, self.member.node().raft());
        self.hands.disk.follow(timing.heartbeat_interval);
        self.hands.promise.follow(timing);
        self.links.go_by(timing);
    }

    /// Another tuning is in force.
    fn tune(&mut self, tuning: &Tuning) {
        let hands = &mut self.hands;
        hands.clerk.delays.set(tuning.delays);
        hands.disk.tune(tuning.log_io, tuning.node.raft.batch_entries(), self.member.node().raft().timing());
        publish_tuning(&hands.clerk.metrics, tuning);
    }

    fn note(&self, note: Note) {
        if let Note::Level(level) = note {
            self.hands.peer_table.with(|table| table.set_level(level));
        }
        operator::tell(note, self.member.node().raft().slows_clients(), &self.hands.clerk.metrics);
    }

    fn publish(&mut self) {
        let now = clock::now();
        self.publish_stages(now);
        let metrics = &self.hands.clerk.metrics;
        let raft = self.member.node().raft();
        if self.flows_at <= now {
            self.flows_at = now + FLOWS_EVERY;
            operator::tell_absent(self.member.node(), &self.hands.peer_table, now.since(self.started));
            metrics.slows_clients.set(raft.slows_clients().into());
            let mut flows = metrics.peer_flows.lock().unwrap_or_else(PoisonError::into_inner);
            flows.clear();
            flows.extend(raft.peer_flows());
        }
        let leader = raft.leader().unwrap_or(NodeId(0));
        self.facts.term.store(raft.term().0, Ordering::Relaxed);
        self.facts.leader.store(leader.0, Ordering::Relaxed);
        let is_alone = raft.membership().members().eq([self.hands.peer_table.id]);
        self.facts.has_peers.store(!is_alone, Ordering::Relaxed);
        metrics.committed.set(raft.committed().0);
        metrics.pending.set(self.member.node().pending() as u64);
        let weak = self.member.node().weak_counts();
        metrics.weak_outstanding.set(weak.outstanding.entries.into());
        metrics.weak_outstanding_bytes.set(weak.outstanding.bytes);
        metrics.weak_answers.set(weak.given);
        metrics.weak_lost.set(weak.lost);
        metrics.snapshot_index.set(raft.snapshot().map_or(0, |snapshot| snapshot.last.index.0));
        metrics.log_damaged.set(u64::from(raft.is_damaged()));
        let capacity = self.member.capacity();
        metrics.quota_bytes.set(capacity.ruling_quota());
        self.hands.lookout.tell(capacity.is_pinned(), raft.committed());
        let counts = *self.member.counts();
        let waiting = self.member.tasks_waiting();
        if 0 < waiting {
            metrics.tasks_waiting.observe(waiting);
        }
        metrics.count(&counts, &std::mem::replace(&mut self.counted, counts));
    }

    async fn finish(mut self) {
        while self.member.awaits_desk() {
            let progress = of(&mut self.hands.apply).await;
            self.hands.woken_for.progress = Some(progress);
            self.batch().await;
        }
        let Ok(()) = self.member.stop(&mut self.hands);
        self.carry_out().await;
        let Hands { disk, apply, snapshots, .. } = self.hands;
        if let Some(apply) = apply {
            apply.finish();
        }
        drop(snapshots); // before another process may open the directory
        disk.close();
    }
}

/// Shows the tuning to those who watch this member.
pub(crate) fn publish_tuning(metrics: &Metrics, tuning: &Tuning) {
    metrics.apply_on_thread.set(u64::from(tuning.apply == Threading::Thread));
    *metrics.tuning.lock().unwrap_or_else(PoisonError::into_inner) = Some(*tuning);
}

/// The next report of a keeper on its thread; a keeper on this one makes none.
async fn of(apply: &mut Option<ApplyThread>) -> Progress<Reply> {
    match apply {
        Some(apply) => apply.progress().await,
        None => std::future::pending().await,
    }
}
