//! The apply executor: runs the keeper on the driver's thread, or on one of its own.
//!
//! Inline, an answer reaches its client without any hand-off. On its own thread, a long read does not hold up the log,
//! at the price of a wake-up there and back; tasks and the clients that wait for them cross over together, so that
//! answers do not travel back through the driver. [performance, "The floor of the etcd face"]
//!
//! Either way the keeper works in slices of [`SLICE_UNITS`]. After each slice, inline, the driver handles arrivals and
//! its timer; on its own thread, the keeper looks at its inbox and reports.
//! Knows nothing of: what tasks do.

use crate::asked::Reply;
use crate::metrics::Metrics;
use crate::snapshots::{Order, Orders};
use crate::waiting::Waiting;
use crate::watchdog::{Watchdog, Work};
use kattu_member::snapshots as steps;
use kattu_node::Keeper;
use kattu_node::compare::Health;
use kattu_node::contract::{Admitted, KeeperEffects, KeeperTask, Members, Outcome, Ticket};
use kattu_raft::LogIndex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc as sync_mpsc;
use std::thread::JoinHandle;
use tokio::sync::mpsc;

/// Units of work in one slice: as much as a thousand puts, a small part of a heartbeat interval. [kattu_kv::cost]
pub(crate) const SLICE_UNITS: i64 = 8 << 10;

/// Units of work that a stopping process still does for waiting clients: half of what one request may cost. A client
/// without an answer by then learns that the outcome is unknown.
const FINISH_UNITS: i64 = 4 << 20;

/// The progress of the keeper.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Highest index applied, if anything was.
    pub(crate) applied: Option<LogIndex>,
    /// Bytes the store holds.
    pub(crate) store_bytes: u64,
    /// A copy of the tables is held.
    pub(crate) store_pinned: bool,
    /// Whether a client on this thread was answered.
    pub(crate) answered: bool,
    /// The table of members, if it has changed.
    pub(crate) members: Option<Box<Members>>,
    /// What the tables say of alarms and digests, if that has changed.
    pub(crate) health: Option<Box<Health>>,
    /// Commands that may be proposed; from another thread with their waiting clients.
    pub(crate) admitted: Vec<(Admitted, Option<Reply>)>,
    /// Tasks done.
    tasks: usize,
}

/// Tasks that may wait for a keeper; beyond it clients are refused until it has caught up.
const TASKS_MAX: usize = 1 << 16;

pub(crate) enum Batch {
    Tasks {
        tasks: Vec<KeeperTask>,
        /// The clients that wait for the tasks' tickets, in the tasks' order.
        replies: VecDeque<(Ticket, Reply)>,
    },
    /// The tables that the keeper waits for.
    Tables(Box<Keeper>),
}

/// The keeper with what it needs to work.
pub(crate) struct Desk {
    keeper: Keeper,
    orders: Orders,
    watchdog: Watchdog,
    metrics: Arc<Metrics>,
    /// How the watchdog counts the work of this desk.
    work: Work,
    effects: KeeperEffects,
    /// Something was taken in or done that is not reported yet.
    is_news: bool,
}

/// The keeper, on one thread or the other.
pub(crate) enum ApplyExecutor {
    Inline(Box<Desk>),
    Thread {
        tasks: sync_mpsc::Sender<Batch>,
        progress: mpsc::UnboundedReceiver<Progress>,
        /// Tasks delivered and not reported done.
        waiting: usize,
        thread: JoinHandle<()>,
    },
}

impl ApplyExecutor {
    /// Snapshot orders of the keeper go to `orders`.
    pub(crate) fn inline(
        keeper: Keeper,
        orders: Orders,
        watchdog: Watchdog,
        metrics: Arc<Metrics>,
    ) -> ApplyExecutor {
        ApplyExecutor::Inline(Box::new(Desk::new(keeper, orders, watchdog, metrics, Work::Node)))
    }

    pub(crate) fn thread(
        keeper: Keeper,
        orders: Orders,
        watchdog: Watchdog,
        metrics: Arc<Metrics>,
    ) -> std::io::Result<ApplyExecutor> {
        let (tasks, inbox) = sync_mpsc::channel::<Batch>();
        let (report, progress) = mpsc::unbounded_channel();
        let desk = Desk::new(keeper, orders, watchdog, metrics, Work::Keeper);
        let thread = std::thread::Builder::new()
            .name("kattu-apply".into())
            .spawn(move || run(desk, &inbox, &report))?;
        Ok(ApplyExecutor::Thread { tasks, progress, waiting: 0, thread })
    }

    /// Delivers tasks. Inline, [`ApplyExecutor::work`] does them.
    pub(crate) fn deliver(&mut self, tasks: Vec<KeeperTask>, waiting: &mut Waiting) {
        match self {
            ApplyExecutor::Inline(desk) => desk.take_in(tasks),
            ApplyExecutor::Thread { tasks: queue, waiting: count, .. } => {
                *count += tasks.len();
                let replies = tasks
                    .iter()
                    .filter_map(ticket_of)
                    .filter_map(|ticket| Some((ticket, waiting.take(ticket)?)))
                    .collect();
                queue
                    .send(Batch::Tasks { tasks, replies })
                    .expect("the apply thread lives as long as its queue");
            }
        }
    }

    /// Inline, lets the keeper work as long as the slice lasts, takes its work off the slice, and sends its answers.
    /// Returns its progress, if there is any.
    pub(crate) fn work(&mut self, slice: &mut i64, waiting: &mut Waiting) -> Option<Progress> {
        let ApplyExecutor::Inline(desk) = self else { return None };
        desk.work(slice);
        std::mem::take(&mut desk.is_news).then(|| {
            let (mut progress, replies) = desk.told();
            progress.answered = !replies.is_empty();
            for (ticket, outcome) in replies {
                if let Some(reply) = waiting.take(ticket) {
                    reply.send(outcome);
                }
            }
            progress
        })
    }

    /// Whether an inline keeper has more to do than its slice allowed.
    pub(crate) fn is_busy(&self) -> bool {
        match self {
            ApplyExecutor::Inline(desk) => desk.is_news || desk.keeper.is_busy(),
            ApplyExecutor::Thread { .. } => false,
        }
    }

    /// The tables that the keeper waits for are here.
    pub(crate) fn bring(&mut self, tables: Box<Keeper>) {
        match self {
            ApplyExecutor::Inline(desk) => desk.replace(*tables),
            ApplyExecutor::Thread { tasks, .. } => {
                tasks.send(Batch::Tables(tables)).expect("the apply thread lives as long as its queue");
            }
        }
    }

    /// There is nothing to do: an inline keeper tidies a little. Returns whether it would go on. On its own thread a
    /// keeper tidies by itself.
    pub(crate) fn idle(&mut self) -> bool {
        match self {
            ApplyExecutor::Inline(desk) => desk.keeper.tidy(),
            ApplyExecutor::Thread { .. } => false,
        }
    }

    /// Returns the progress of a keeper on its own thread; never returns, inline.
    pub(crate) async fn progress(&mut self) -> Progress {
        match self {
            ApplyExecutor::Inline(..) => std::future::pending().await,
            ApplyExecutor::Thread { progress, waiting, .. } => {
                let progress = progress.recv().await.expect("a panic on the apply thread aborts");
                *waiting -= progress.tasks;
                progress
            }
        }
    }

    /// Progress that has been reported already.
    pub(crate) fn try_progress(&mut self) -> Option<Progress> {
        match self {
            ApplyExecutor::Inline(..) => None,
            ApplyExecutor::Thread { progress, waiting, .. } => {
                let progress = progress.try_recv().ok()?;
                *waiting -= progress.tasks;
                Some(progress)
            }
        }
    }

    /// Whether the keeper is so far behind that clients have to be refused.
    pub(crate) fn is_full(&self) -> bool {
        match self {
            ApplyExecutor::Inline(desk) => desk.keeper.waiting() >= TASKS_MAX,
            ApplyExecutor::Thread { waiting, .. } => *waiting >= TASKS_MAX,
        }
    }

    /// Returns when the delivered tasks are done and answered, or as many of them as a stopping process has time for.
    pub(crate) fn finish(mut self, waiting: &mut Waiting) {
        let _ = self.work(&mut FINISH_UNITS.clone(), waiting);
        if let ApplyExecutor::Thread { tasks, thread, progress, .. } = self {
            drop(tasks);
            thread.join().expect("a panic on the apply thread aborts");
            drop(progress);
        }
    }
}

impl Desk {
    fn new(keeper: Keeper, orders: Orders, watchdog: Watchdog, metrics: Arc<Metrics>, work: Work) -> Desk {
        Desk { keeper, orders, watchdog, metrics, work, effects: KeeperEffects::default(), is_news: false }
    }

    fn take_in(&mut self, tasks: Vec<KeeperTask>) {
        tasks.into_iter().for_each(|task| self.keeper.take_in(task, &mut self.effects));
        self.is_news = true;
    }

    /// Works until nothing is left to do, or nothing of the slice. Snapshot orders are given at once.
    fn work(&mut self, slice: &mut i64) {
        let before = *slice;
        while *slice > 0 && self.keeper.is_busy() {
            self.keeper.step(slice, &mut self.effects);
            self.order();
            self.watchdog.pet(self.work);
            self.is_news = true;
        }
        let units = before.saturating_sub(*slice).unsigned_abs();
        self.metrics.work_units.add(units);
        self.metrics.step_units_max.set(self.metrics.step_units_max.get().max(units));
    }

    fn order(&mut self) {
        if let Some((meta, frozen)) = self.effects.snapshot.take() {
            self.orders.work(steps::Order::Take(meta, Box::new(frozen)));
        }
        if let Some(meta) = self.effects.install.take() {
            self.orders.work(steps::Order::Thaw(meta));
        }
    }

    /// New tables replace the old ones; tasks that waited for them are next.
    fn replace(&mut self, tables: Keeper) {
        let old = self.keeper.replace(tables, &mut self.effects);
        self.orders.give(Order::Drop(Box::new(old)));
        self.is_news = true;
    }

    /// The progress since the last call, and the answers.
    fn told(&mut self) -> (Progress, Vec<(Ticket, Outcome)>) {
        let effects = std::mem::take(&mut self.effects);
        self.metrics.refused_for_work.add(effects.refused_for_work);
        let stats = self.keeper.store().stats();
        let progress = Progress {
            applied: effects.applied,
            store_bytes: stats.bytes,
            store_pinned: stats.pinned,
            answered: false,
            members: effects.members.map(Box::new),
            health: effects.health.map(Box::new),
            admitted: effects.admitted.into_iter().map(|admitted| (admitted, None)).collect(),
            tasks: 0,
        };
        (progress, effects.reply)
    }
}

fn ticket_of(task: &KeeperTask) -> Option<Ticket> {
    match task {
        KeeperTask::Apply { ticket, .. } => *ticket,
        KeeperTask::Read { ticket, .. }
        | KeeperTask::Members { ticket, .. }
        | KeeperTask::Pin { ticket, .. }
        | KeeperTask::Weigh { ticket, .. }
        | KeeperTask::Status { ticket, .. } => Some(*ticket),
        KeeperTask::Snapshot(_) | KeeperTask::Install(_) => None,
    }
}

/// The clients that wait for a keeper on its own thread.
#[derive(Default)]
struct Replies {
    /// In the order of their tasks, which is mostly that of the answers.
    in_order: VecDeque<(Ticket, Reply)>,
    /// Clients that others have overtaken.
    passed: BTreeMap<Ticket, Reply>,
}

impl Replies {
    fn take(&mut self, ticket: Ticket) -> Option<Reply> {
        let next = self.in_order.pop_front_if(|(waits_for, _)| *waits_for == ticket).map(|(_, reply)| reply);
        next.or_else(|| self.passed.remove(&ticket)).or_else(|| {
            self.passed.extend(self.in_order.drain(..));
            self.passed.remove(&ticket)
        })
    }
}

fn run(mut desk: Desk, inbox: &sync_mpsc::Receiver<Batch>, report: &mpsc::UnboundedSender<Progress>) {
    let _abort = crate::AbortOnPanic;
    let (mut untidy, mut stops) = (false, false);
    let mut replies = Replies::default();
    let mut left = FINISH_UNITS;
    loop {
        let before = desk.keeper.waiting();
        let mut count = 0;
        let mut take = |desk: &mut Desk, batch: Batch| match batch {
            Batch::Tasks { tasks, replies: new } => {
                count += tasks.len();
                replies.in_order.extend(new);
                desk.take_in(tasks);
            }
            Batch::Tables(tables) => desk.replace(*tables),
        };
        if !desk.keeper.is_busy() && !untidy && !stops {
            match inbox.recv() {
                Ok(batch) => take(&mut desk, batch),
                Err(sync_mpsc::RecvError) => stops = true,
            }
        }
        loop {
            match inbox.try_recv() {
                Ok(batch) => take(&mut desk, batch),
                Err(sync_mpsc::TryRecvError::Empty) => break,
                Err(sync_mpsc::TryRecvError::Disconnected) => {
                    stops = true;
                    break;
                }
            }
        }
        if stops && (left <= 0 || !desk.keeper.is_busy() && !desk.is_news) {
            return;
        }
        let (watchdog, work) = (desk.watchdog.clone(), desk.work);
        let mut slice = SLICE_UNITS;
        watchdog.over(work, || desk.work(&mut slice));
        if stops {
            left -= SLICE_UNITS - slice;
        }
        if std::mem::take(&mut desk.is_news) {
            let (mut progress, outcomes) = desk.told();
            for (ticket, outcome) in outcomes {
                if let Some(reply) = replies.take(ticket) {
                    reply.send(outcome);
                }
            }
            for (admitted, reply) in &mut progress.admitted {
                *reply = replies.take(admitted.ticket);
            }
            progress.tasks = before + count - desk.keeper.waiting();
            if report.send(progress).is_err() {
                return; // the driver is gone
            }
        }
        untidy = !stops && desk.keeper.tidy();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asked::Asked;
    use kattu_kv::api::{Command, Put};
    use kattu_node::command::encode_kv;
    use kattu_node::contract::Reply as Answer;
    use kattu_node::contract::ReplyBody;
    use kattu_raft::{EntryHead, EntryId, EntryKind, Form, GroupId, SnapshotMeta, Stamp, Term};

    fn on_a_thread(keeper: Keeper) -> ApplyExecutor {
        ApplyExecutor::thread(keeper, Orders::nowhere(), Watchdog::default(), Arc::default())
            .expect("a thread")
    }

    fn on_this_one(keeper: Keeper) -> ApplyExecutor {
        ApplyExecutor::inline(keeper, Orders::nowhere(), Watchdog::default(), Arc::default())
    }

    fn asked(waiting: &mut Waiting, count: usize) -> (Vec<KeeperTask>, Vec<Asked>) {
        (0..count)
            .map(|_| {
                let (reply, answer) = Asked::new(false);
                let ticket = waiting.enter(reply);
                (KeeperTask::Members { ticket, term: Term(7), needs: LogIndex(0) }, answer)
            })
            .unzip()
    }

    fn members_of_nobody() -> Outcome {
        Outcome::Done(Answer { term: Term(7), body: ReplyBody::Members(Default::default()) })
    }

    #[test]
    fn a_keeper_on_its_own_thread_answers_everybody_before_the_end() {
        let mut waiting = Waiting::new();
        let mut executor = on_a_thread(Keeper::new(vec![]));
        let mut answers = Vec::new();
        for _ in 0..200 {
            let (tasks, asked) = asked(&mut waiting, 50);
            executor.deliver(tasks, &mut waiting);
            answers.extend(asked);
        }
        executor.finish(&mut waiting);
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        for answer in answers {
            assert_eq!(runtime.block_on(answer), members_of_nobody());
        }
    }

    #[test]
    fn a_keeper_that_is_far_behind_is_full_until_it_has_caught_up() {
        let mut waiting = Waiting::new();
        let mut executor = on_a_thread(Keeper::new(vec![]));
        let (tasks, _asked) = asked(&mut waiting, TASKS_MAX);
        executor.deliver(tasks, &mut waiting);
        assert!(executor.is_full(), "nothing is reported yet");
        tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime")
            .block_on(executor.progress());
        assert!(!executor.is_full());
        let (tasks, _asked) = asked(&mut waiting, 1);
        executor.deliver(tasks, &mut waiting);
        while executor.try_progress().is_none() {
            std::thread::yield_now();
        }
        executor.finish(&mut waiting);
    }

    /// Many versions of one key, and a compaction that leaves the last.
    fn overwrites(count: u64) -> Vec<KeeperTask> {
        let put = |value: u64| {
            Command::Put(Put { key: b"k".to_vec(), value: value.to_le_bytes().to_vec(), ..Put::default() })
        };
        let commands = (1..=count).map(put).chain([Command::Compact(1 + count as i64)]);
        let apply = |(at, command): (usize, Command)| {
            let id = EntryId::new(1, 1 + at as u64);
            let head = EntryHead { id, kind: EntryKind::Command, form: Form::Whole, stamp: Stamp(0) };
            let entry = (crate::encoder().0)(GroupId(0), head, &encode_kv(&command));
            KeeperTask::Apply { entry, ticket: None, term: Term(1) }
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
        let mut waiting = Waiting::new();
        let mut executor = on_a_thread(Keeper::new(vec![]));
        executor.deliver(
            vec![KeeperTask::Install(SnapshotMeta { last, ..SnapshotMeta::default() })],
            &mut waiting,
        );
        let (mut tasks, answers) = asked(&mut waiting, 3);
        for task in &mut tasks {
            let KeeperTask::Members { needs, .. } = task else { unreachable!("they ask for members") };
            *needs = last.index;
        }
        executor.deliver(tasks, &mut waiting);
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        // All tasks have been looked at, and three put off.
        while !matches!(executor, ApplyExecutor::Thread { waiting: ..=3, .. }) {
            runtime.block_on(executor.progress());
        }
        executor.bring(Box::new(tables));
        while !matches!(executor, ApplyExecutor::Thread { waiting: 0, .. }) {
            runtime.block_on(executor.progress());
        }
        for answer in answers {
            assert_eq!(runtime.block_on(answer), members_of_nobody());
        }
        executor.finish(&mut waiting);
    }

    #[test]
    fn a_keeper_on_the_drivers_thread_says_that_it_would_go_on_until_all_is_tidy() {
        let mut executor = on_this_one(Keeper::new(vec![]));
        let look = |executor: &mut ApplyExecutor, tasks| {
            let waiting = &mut Waiting::new();
            executor.deliver(tasks, waiting);
            executor.work(&mut i64::MAX.clone(), waiting).expect("something was handed over").store_bytes
        };
        let full = look(&mut executor, overwrites(10_000));
        let mut moments = 1;
        while executor.idle() {
            moments += 1;
        }
        let tidy = look(&mut executor, vec![]);
        assert!(5 < moments, "a little at a time, {moments} moments");
        assert!(tidy < full / 1000, "{full} bytes have become {tidy}");
    }

    #[test]
    fn a_keeper_on_its_own_thread_tidies_until_there_is_nothing_left_without_being_asked() {
        let mut waiting = Waiting::new();
        let mut executor = on_a_thread(Keeper::new(vec![]));
        let mut look = |tasks| {
            executor.deliver(tasks, &mut waiting);
            loop {
                match executor.try_progress() {
                    Some(progress) => break progress,
                    None => std::thread::yield_now(),
                }
            }
        };
        let last = Some(LogIndex(10_001));
        let mut progress = look(overwrites(10_000));
        let mut slices = 1;
        while progress.applied != last {
            progress = look(vec![]);
            slices += 1;
        }
        assert!(5 < slices, "applied in {slices} slices");
        let full = progress.store_bytes;
        while full / 1000 <= look(vec![]).store_bytes {}
        executor.finish(&mut waiting);
    }
}
