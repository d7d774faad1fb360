//! The apply thread: runs a keeper beside the node's thread. [`kattu_member::apply`]
//!
//! Tasks and the clients that wait for them come over a channel, and reports go back over another; answers leave from here.
//! Knows nothing of: what tasks do.

use crate::asked::Reply;
use crate::delays::Delays;
use crate::metrics::Metrics;
use crate::snapshots::{Order, Orders};
use crate::watchdog::{Watchdog, Work};
use kattu_member::apply::{Apart, Batch};
use kattu_member::host::Host;
use kattu_member::progress::Progress;
use kattu_member::step::{FINISH_UNITS, LIMITS};
use kattu_node::Keeper;
use kattu_node::contract::{KeeperEffects, KeeperTask};
use kattu_raft::Instant;
use std::convert::Infallible;
use std::sync::mpsc as sync_mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use tokio::sync::mpsc;

/// A keeper's thread.
pub(crate) struct ApplyThread {
    batches: sync_mpsc::Sender<Batch<Reply>>,
    progress: mpsc::UnboundedReceiver<Progress<Reply>>,
    thread: JoinHandle<()>,
}

impl ApplyThread {
    /// Snapshot orders of the keeper go to `orders`.
    ///
    /// # Errors
    /// No thread can be had.
    pub(crate) fn start(
        keeper: Keeper,
        orders: Orders,
        watchdog: Watchdog,
        metrics: Arc<Metrics>,
        delays: Arc<Delays>,
    ) -> std::io::Result<ApplyThread> {
        ApplyThread::of(Box::new(Apart::new(keeper)), orders, watchdog, metrics, delays)
            .map_err(|(error, _)| error)
    }

    /// A thread for a keeper with what lies on its desk.
    ///
    /// # Errors
    /// No thread can be had; the desk comes back.
    pub(crate) fn of(
        apart: Box<Apart<Reply>>,
        orders: Orders,
        watchdog: Watchdog,
        metrics: Arc<Metrics>,
        delays: Arc<Delays>,
    ) -> Result<ApplyThread, (std::io::Error, Box<Apart<Reply>>)> {
        let (batches, inbox) = sync_mpsc::channel();
        let (report, progress) = mpsc::unbounded_channel();
        // If no thread can be had, the keeper must not be lost.
        let apart = Arc::new(Mutex::new(Some(apart)));
        let take = |of: &Mutex<Option<_>>| of.lock().unwrap_or_else(PoisonError::into_inner).take();
        let theirs = apart.clone();
        let work = move || {
            let apart = take(&theirs).expect("it is there until it is taken");
            Desk { apart: *apart, orders, watchdog: Watched(watchdog, delays), metrics }.run(&inbox, &report);
        };
        match std::thread::Builder::new().name("kattu-apply".into()).spawn(work) {
            Ok(thread) => Ok(ApplyThread { batches, progress, thread }),
            Err(error) => Err((error, take(&apart).expect("the thread has not taken it"))),
        }
    }

    /// Delivers tasks with their clients, or tables.
    pub(crate) fn deliver(&self, batch: Batch<Reply>) {
        self.batches.send(batch).expect("the apply thread lives as long as its queue");
    }

    /// The next report.
    pub(crate) async fn progress(&mut self) -> Progress<Reply> {
        self.progress.recv().await.expect("a panic on the apply thread aborts")
    }

    /// The next report, if there is one already.
    pub(crate) fn try_progress(&mut self) -> Option<Progress<Reply>> {
        self.progress.try_recv().ok()
    }

    /// Returns when the delivered tasks are done and answered, or as many of them as a stopping process has time for.
    pub(crate) fn finish(self) {
        let ApplyThread { batches, progress, thread } = self;
        drop(batches);
        thread.join().expect("a panic on the apply thread aborts");
        drop(progress);
    }
}

/// The keeper with what it needs to work.
struct Desk {
    apart: Apart<Reply>,
    orders: Orders,
    watchdog: Watched,
    metrics: Arc<Metrics>,
}

/// Tells the watchdog of every step.
#[derive(Clone)]
struct Watched(Watchdog, Arc<Delays>);

impl Host for Watched {
    type Stop = Infallible;

    fn now(&self) -> Instant {
        crate::clock::now()
    }

    fn deliver(&mut self, keeper: &mut Keeper, task: KeeperTask, effects: &mut KeeperEffects) {
        keeper.take_in(task, effects);
    }

    fn step(
        &mut self,
        keeper: &mut Keeper,
        slice: &mut i64,
        effects: &mut KeeperEffects,
    ) -> Result<(), Infallible> {
        self.1.over_step(keeper, |keeper| {
            keeper.step(slice, effects);
        });
        self.0.pet(Work::Keeper);
        Ok(())
    }
}

impl Desk {
    fn run(
        mut self,
        inbox: &sync_mpsc::Receiver<Batch<Reply>>,
        report: &mpsc::UnboundedSender<Progress<Reply>>,
    ) {
        let _abort = crate::AbortOnPanic;
        let mut stops = false;
        let mut left = FINISH_UNITS;
        loop {
            if !self.apart.is_busy() && !self.apart.is_returning() && !stops {
                match inbox.recv() {
                    Ok(batch) => self.take_in(batch),
                    Err(sync_mpsc::RecvError) => stops = true,
                }
            }
            loop {
                match inbox.try_recv() {
                    Ok(batch) => self.take_in(batch),
                    Err(sync_mpsc::TryRecvError::Empty) => break,
                    Err(sync_mpsc::TryRecvError::Disconnected) => {
                        stops = true;
                        break;
                    }
                }
            }
            if stops && (left <= 0 || self.apart.is_done()) {
                return;
            }
            let used = if self.apart.is_returning() { 0 } else { self.work() };
            if stops {
                left -= used;
            }
            if let Some((progress, answers)) = self.apart.report() {
                answers.for_each(|(client, outcome)| client.send(outcome));
                if report.send(progress).is_err() {
                    return; // the driver is gone
                }
            }
            if self.apart.is_returning() {
                let _ = report.send(self.apart.last_report()); // the driver may be gone
                return;
            }
            if !stops {
                self.apart.tidy();
            }
        }
    }

    fn take_in(&mut self, batch: Batch<Reply>) {
        if let Some(old) = self.apart.take_in(&mut self.watchdog, batch) {
            self.orders.give(Order::Drop(old));
        }
    }

    /// Works for a slice; returns what it used of it. Snapshot orders are given at once.
    fn work(&mut self) -> i64 {
        let mut slice = LIMITS.slice;
        let Desk { apart, watchdog, .. } = self;
        let watched = watchdog.0.clone();
        let Ok(units) = watched.over(Work::Keeper, || apart.work(watchdog, &mut slice));
        while let Some(order) = self.apart.order() {
            self.orders.work(order);
        }
        self.metrics.work_units.add(units);
        self.metrics.step_units_max.set(self.metrics.step_units_max.get().max(units));
        LIMITS.slice - slice
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asked::Asked;
    use kattu_kv::api::{Command, Put, Revision};
    use kattu_member::waiting::Waiting;
    use kattu_node::command::encode_kv;
    use kattu_node::contract::{Outcome, Reply as Answer, ReplyBody, Tickets};
    use kattu_raft::{EntryHead, EntryId, EntryKind, GroupId, LogIndex, SnapshotMeta, Stamp, Term};

    fn on_a_thread(keeper: Keeper) -> ApplyThread {
        ApplyThread::start(keeper, Orders::nowhere(), Watchdog::default(), Arc::default(), Arc::default())
            .expect("a thread")
    }

    fn asked(waiting: &mut Waiting<Reply>, count: usize, needs: LogIndex) -> (Batch<Reply>, Vec<Asked>) {
        let (tasks, answers) = (0..count)
            .map(|_| {
                let (reply, answer) = Asked::new(false);
                let ticket = waiting.enter(reply);
                (KeeperTask::Members { ticket, term: Term(7), needs }, answer)
            })
            .unzip();
        (Batch::of(tasks, waiting), answers)
    }

    fn no_members() -> Outcome {
        Outcome::Done(Answer { term: Term(7), strong: 0, body: ReplyBody::Members(Default::default()) })
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime")
    }

    #[test]
    fn a_keeper_on_its_own_thread_answers_every_client_before_the_end() {
        let mut waiting = Waiting::default();
        let thread = on_a_thread(Keeper::new(vec![]));
        let mut answers = Vec::new();
        for _ in 0..200 {
            let (batch, asked) = asked(&mut waiting, 50, LogIndex(0));
            thread.deliver(batch);
            answers.extend(asked);
        }
        thread.finish();
        for answer in answers {
            assert_eq!(runtime().block_on(answer), no_members());
        }
    }

    /// Many versions of one key, and a compaction that leaves the last.
    fn overwrites(count: u64) -> Vec<KeeperTask> {
        let put = |value: u64| {
            Command::Put(Put { key: b"k".to_vec(), value: value.to_le_bytes().to_vec(), ..Put::default() })
        };
        let commands = (1..=count).map(put).chain([Command::Compact(Revision(1 + count as i64))]);
        let apply = |(at, command): (usize, Command)| {
            let id = EntryId::new(1, 1 + at as u64);
            let head = EntryHead { id, kind: EntryKind::Command, stamp: Stamp(0) };
            let entry = kattu_wal::encoder().entry(GroupId(0), head, &encode_kv(&command));
            KeeperTask::Apply { entry, tickets: Tickets::None, term: Term(1) }
        };
        commands.enumerate().map(apply).collect()
    }

    /// Tasks that wait for a snapshot's tables are reported as done once, when they are done.
    #[test]
    fn a_keeper_on_its_own_thread_installs_a_snapshot_and_does_what_waited_for_it() {
        let mut tables = Keeper::new(vec![]);
        for task in overwrites(4) {
            tables.handle(task, &mut KeeperEffects::default());
        }
        let last = EntryId::new(1, 5);
        let mut waiting = Waiting::default();
        let mut thread = on_a_thread(Keeper::new(vec![]));
        let install = KeeperTask::Install(Box::new(SnapshotMeta { last, ..SnapshotMeta::default() }));
        thread.deliver(Batch::of(vec![install], &mut waiting));
        let (batch, answers) = asked(&mut waiting, 3, last.index);
        thread.deliver(batch);
        let (runtime, mut left) = (runtime(), 4);
        // All tasks have been looked at, and three put off.
        while 3 < left {
            left -= runtime.block_on(thread.progress()).tasks;
        }
        thread.deliver(Batch::Tables(Box::new(tables)));
        while 0 < left {
            left -= runtime.block_on(thread.progress()).tasks;
        }
        for answer in answers {
            assert_eq!(runtime.block_on(answer), no_members());
        }
        thread.finish();
    }

    #[test]
    fn a_keeper_on_its_own_thread_tidies_until_there_is_nothing_left_without_being_asked() {
        let mut waiting = Waiting::default();
        let mut thread = on_a_thread(Keeper::new(vec![]));
        let mut look = |tasks| {
            thread.deliver(Batch::of(tasks, &mut waiting));
            loop {
                match thread.try_progress() {
                    Some(progress) => break progress,
                    None => std::thread::yield_now(),
                }
            }
        };
        let nothing = || {
            vec![KeeperTask::Members {
                ticket: kattu_node::contract::Ticket(0),
                term: Term(1),
                needs: LogIndex(0),
            }]
        };
        let last = Some(LogIndex(10_001));
        let mut progress = look(overwrites(10_000));
        let mut slices = 1;
        while progress.applied != last {
            progress = look(nothing());
            slices += 1;
        }
        assert!(5 < slices, "applied in {slices} slices");
        let full = progress.store_bytes;
        while full / 1000 <= look(nothing()).store_bytes {}
        thread.finish();
    }
}
