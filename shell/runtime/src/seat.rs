//! Where the keeper sits: on the driver's thread, or on one of its own.
//!
//! Inline, an answer reaches its client without any hand-off. On its own thread, a long read does not hold up the log,
//! at the price of a wake-up there and back; tasks and the clients that wait for them cross over together, so that
//! answers do not travel back through the driver. [performance, "The floor of the etcd face"]
//! Knows nothing of: what tasks do.

use crate::snapshots::{Order, Orders};
use crate::waiting::{Reply, Waiting};
use crate::watchdog::{Watch, Work};
use kattu_node::Keeper;
use kattu_node::compare::Health;
use kattu_node::contract::{KeeperEffects, KeeperTask, Members, Outcome, Ticket};
use kattu_raft::LogIndex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc as sync_mpsc;
use std::thread::JoinHandle;
use tokio::sync::mpsc;

/// How far the keeper has come.
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
    /// Tasks done.
    tasks: usize,
}

/// Tasks that may wait for a keeper on its own thread; beyond it clients are refused until it has caught up.
const TASKS_MAX: usize = 1 << 16;

pub(crate) enum Batch {
    Tasks {
        tasks: Vec<KeeperTask>,
        /// Who waits for the tasks' tickets, in the tasks' order.
        replies: VecDeque<(Ticket, Reply)>,
    },
    /// The tables that the keeper waits for.
    Tables(Box<Keeper>),
}

/// The keeper's seat.
pub(crate) enum Seat {
    Inline(Box<Keeper>, Orders),
    Thread {
        tasks: sync_mpsc::Sender<Batch>,
        progress: mpsc::UnboundedReceiver<Progress>,
        /// Tasks handed over and not reported done.
        waiting: usize,
        thread: JoinHandle<()>,
    },
}

impl Seat {
    /// What the keeper wants of snapshots goes to `orders`.
    pub(crate) fn inline(keeper: Keeper, orders: Orders) -> Seat {
        Seat::Inline(Box::new(keeper), orders)
    }

    pub(crate) fn thread(keeper: Keeper, orders: Orders, watch: Watch) -> std::io::Result<Seat> {
        let (tasks, inbox) = sync_mpsc::channel::<Batch>();
        let (report, progress) = mpsc::unbounded_channel();
        let thread = std::thread::Builder::new()
            .name("kattu-apply".into())
            .spawn(move || run(keeper, &orders, &inbox, &report, &watch))?;
        Ok(Seat::Thread { tasks, progress, waiting: 0, thread })
    }

    /// Hands over tasks. Inline, they are done on return and the progress is given back.
    pub(crate) fn hand_over(&mut self, tasks: Vec<KeeperTask>, waiting: &mut Waiting) -> Option<Progress> {
        match self {
            Seat::Inline(keeper, orders) => {
                let mut effects = KeeperEffects::default();
                tasks.into_iter().for_each(|task| carry_out(keeper, task, orders, &mut effects));
                Some(told(keeper, effects, waiting))
            }
            Seat::Thread { tasks: queue, waiting: count, .. } => {
                *count += tasks.len();
                let replies = tasks
                    .iter()
                    .filter_map(ticket_of)
                    .filter_map(|ticket| Some((ticket, waiting.take(ticket)?)))
                    .collect();
                queue
                    .send(Batch::Tasks { tasks, replies })
                    .expect("the apply thread lives as long as its queue");
                None
            }
        }
    }

    /// The tables that the keeper waits for are here. Inline, the progress is given back.
    pub(crate) fn bring(&mut self, tables: Box<Keeper>, waiting: &mut Waiting) -> Option<Progress> {
        match self {
            Seat::Inline(keeper, orders) => {
                let mut effects = KeeperEffects::default();
                replace(keeper, *tables, orders, &mut effects);
                Some(told(keeper, effects, waiting))
            }
            Seat::Thread { tasks, .. } => {
                tasks.send(Batch::Tables(tables)).expect("the apply thread lives as long as its queue");
                None
            }
        }
    }

    /// Nothing is to be done: a keeper on this thread tidies a little. Returns whether it would go on. One on its own
    /// thread does so by itself.
    pub(crate) fn idle(&mut self) -> bool {
        match self {
            Seat::Inline(keeper, _) => keeper.tidy(),
            Seat::Thread { .. } => false,
        }
    }

    /// Comes back with the progress of a keeper on its own thread; never, inline.
    pub(crate) async fn progress(&mut self) -> Progress {
        match self {
            Seat::Inline(..) => std::future::pending().await,
            Seat::Thread { progress, waiting, .. } => {
                let progress = progress.recv().await.expect("a panic on the apply thread aborts");
                *waiting -= progress.tasks;
                progress
            }
        }
    }

    /// The progress that has been reported already.
    pub(crate) fn try_progress(&mut self) -> Option<Progress> {
        match self {
            Seat::Inline(..) => None,
            Seat::Thread { progress, waiting, .. } => {
                let progress = progress.try_recv().ok()?;
                *waiting -= progress.tasks;
                Some(progress)
            }
        }
    }

    /// Whether a keeper on its own thread is so far behind that clients are to be refused.
    pub(crate) fn is_full(&self) -> bool {
        match self {
            Seat::Inline(..) => false,
            Seat::Thread { waiting, .. } => *waiting >= TASKS_MAX,
        }
    }

    /// Comes back when everything handed over is done and answered.
    pub(crate) fn finish(self) {
        match self {
            Seat::Inline(..) => {}
            Seat::Thread { tasks, thread, progress, .. } => {
                drop(tasks);
                thread.join().expect("a panic on the apply thread aborts");
                drop(progress);
            }
        }
    }
}

fn ticket_of(task: &KeeperTask) -> Option<Ticket> {
    match task {
        KeeperTask::Apply { ticket, .. } => *ticket,
        KeeperTask::Read { ticket, .. }
        | KeeperTask::Members { ticket, .. }
        | KeeperTask::Pin { ticket, .. }
        | KeeperTask::Status { ticket, .. } => Some(*ticket),
        KeeperTask::Snapshot(_) | KeeperTask::Install(_) => None,
    }
}

/// Carries out one task; what it wants of snapshots is ordered at once.
fn carry_out(keeper: &mut Keeper, task: KeeperTask, orders: &Orders, effects: &mut KeeperEffects) {
    keeper.handle(task, effects);
    order(orders, effects);
}

fn order(orders: &Orders, effects: &mut KeeperEffects) {
    if let Some((meta, frozen)) = effects.snapshot.take() {
        orders.give(Order::Take(meta, Box::new(frozen)));
    }
    if let Some(meta) = effects.install.take() {
        orders.give(Order::Thaw(meta));
    }
}

/// New tables take the place of the old ones, and what waited for them goes on.
fn replace(keeper: &mut Keeper, tables: Keeper, orders: &Orders, effects: &mut KeeperEffects) {
    let old = keeper.replace(tables, effects);
    orders.give(Order::Drop(Box::new(old)));
    order(orders, effects);
}

/// Answers clients of this thread, and says how far the keeper has come.
fn told(keeper: &Keeper, effects: KeeperEffects, waiting: &mut Waiting) -> Progress {
    let answered = !effects.reply.is_empty();
    for (ticket, outcome) in effects.reply {
        if let Some(reply) = waiting.take(ticket) {
            let _ = reply.send(outcome); // the client may have gone
        }
    }
    let kattu_kv::store::Stats { bytes: store_bytes, pinned: store_pinned, .. } = keeper.store().stats();
    let (members, health) = (effects.members.map(Box::new), effects.health.map(Box::new));
    Progress { applied: effects.applied, store_bytes, store_pinned, answered, members, health, tasks: 0 }
}

fn run(
    mut keeper: Keeper,
    orders: &Orders,
    inbox: &sync_mpsc::Receiver<Batch>,
    report: &mpsc::UnboundedSender<Progress>,
    watch: &Watch,
) {
    let _abort = crate::AbortOnPanic;
    let mut untidy = false;
    // Who waits for what waits for a snapshot.
    let mut held = BTreeMap::new();
    loop {
        let batch = match inbox.try_recv() {
            Ok(batch) => batch,
            Err(sync_mpsc::TryRecvError::Empty) if untidy => {
                untidy = keeper.tidy();
                continue;
            }
            Err(_) => match inbox.recv() {
                Ok(batch) => batch,
                Err(sync_mpsc::RecvError) => return,
            },
        };
        let mut effects = KeeperEffects::default();
        let (mut count, mut waiting) = (0, VecDeque::new());
        watch.over(Work::Keeper, || match batch {
            Batch::Tasks { tasks, replies } => {
                (count, waiting) = (tasks.len(), replies);
                tasks.into_iter().for_each(|task| carry_out(&mut keeper, task, orders, &mut effects));
            }
            Batch::Tables(tables) => replace(&mut keeper, *tables, orders, &mut effects),
        });
        if keeper.is_installing() || !held.is_empty() {
            held.extend(waiting.drain(..));
        }
        answer(effects.reply, waiting, &mut held);
        let kattu_kv::store::Stats { bytes: store_bytes, pinned: store_pinned, .. } = keeper.store().stats();
        let (members, health) = (effects.members.map(Box::new), effects.health.map(Box::new));
        let applied = effects.applied;
        let progress =
            Progress { applied, store_bytes, store_pinned, answered: false, members, health, tasks: count };
        if report.send(progress).is_err() {
            return; // the driver is gone
        }
        untidy = keeper.tidy();
    }
}

/// Answers come in the order of the tasks, and so do those who wait, unless some were held; some tasks have nobody
/// waiting any more.
fn answer(
    outcomes: Vec<(Ticket, Outcome)>,
    mut replies: VecDeque<(Ticket, Reply)>,
    held: &mut BTreeMap<Ticket, Reply>,
) {
    for (ticket, outcome) in outcomes {
        let next = replies.pop_front_if(|(waits_for, _)| *waits_for == ticket).map(|(_, reply)| reply);
        if let Some(reply) = next.or_else(|| held.remove(&ticket)) {
            let _ = reply.send(outcome); // the client may have gone
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kattu_kv::api::{Command, Put};
    use kattu_node::command::encode_kv;
    use kattu_node::contract::Reply as Answer;
    use kattu_node::contract::ReplyBody;
    use kattu_raft::{EntryHead, EntryId, EntryKind, Form, GroupId, Stamp, Term};
    use tokio::sync::oneshot;

    fn asked(waiting: &mut Waiting, count: usize) -> (Vec<KeeperTask>, Vec<oneshot::Receiver<Outcome>>) {
        (0..count)
            .map(|_| {
                let (reply, answer) = oneshot::channel();
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
        let mut seat =
            Seat::thread(Keeper::new(vec![]), Orders::nowhere(), Watch::default()).expect("a thread");
        let mut answers = Vec::new();
        for _ in 0..200 {
            let (tasks, asked) = asked(&mut waiting, 50);
            assert!(seat.hand_over(tasks, &mut waiting).is_none());
            answers.extend(asked);
        }
        seat.finish();
        for mut answer in answers {
            assert_eq!(answer.try_recv(), Ok(members_of_nobody()));
        }
    }

    #[test]
    fn a_keeper_that_is_far_behind_is_full_until_it_has_caught_up() {
        let mut waiting = Waiting::new();
        let mut seat =
            Seat::thread(Keeper::new(vec![]), Orders::nowhere(), Watch::default()).expect("a thread");
        let (tasks, _asked) = asked(&mut waiting, TASKS_MAX);
        seat.hand_over(tasks, &mut waiting);
        assert!(seat.is_full(), "nothing is reported yet");
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(seat.progress());
        assert!(!seat.is_full());
        let (tasks, _asked) = asked(&mut waiting, 1);
        seat.hand_over(tasks, &mut waiting);
        while seat.try_progress().is_none() {
            std::thread::yield_now();
        }
        seat.finish();
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

    #[test]
    fn a_keeper_on_the_drivers_thread_says_that_it_would_go_on_until_all_is_tidy() {
        let mut seat = Seat::inline(Keeper::new(vec![]), Orders::nowhere());
        let full = seat.hand_over(overwrites(10_000), &mut Waiting::new()).expect("inline").store_bytes;
        let mut moments = 1;
        while seat.idle() {
            moments += 1;
        }
        let tidy = seat.hand_over(vec![], &mut Waiting::new()).expect("inline").store_bytes;
        assert!(5 < moments, "a little at a time, {moments} moments");
        assert!(tidy < full / 1000, "{full} bytes have become {tidy}");
    }

    #[test]
    fn a_keeper_on_its_own_thread_tidies_until_there_is_nothing_left_without_being_asked() {
        let mut waiting = Waiting::new();
        let mut seat =
            Seat::thread(Keeper::new(vec![]), Orders::nowhere(), Watch::default()).expect("a thread");
        let mut look = |tasks| {
            seat.hand_over(tasks, &mut waiting);
            loop {
                match seat.try_progress() {
                    Some(progress) => break progress.store_bytes,
                    None => std::thread::yield_now(),
                }
            }
        };
        let full = look(overwrites(10_000));
        while full / 1000 <= look(vec![]) {}
        seat.finish();
    }
}
