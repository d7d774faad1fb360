//! Apply: the keeper at its desk, on the node's thread or on one of its own.
//!
//! On the node's thread, an answer reaches its client without any hand-off. On its own thread, a long read does not hold up the
//! log, at the price of a wake-up there and back; tasks and the clients that wait for them cross over together, so that answers
//! do not travel back through the node. [performance, "The floor of the etcd face"]
//!
//! Either way the keeper works in slices. After each slice, on the node's thread, arrivals and the timer are handled; on its own
//! thread, the keeper looks at its inbox and reports.
//! Knows nothing of: threads, what tasks do, how long a slice is.

use crate::host::Host;
use crate::progress::Progress;
use crate::snapshots::Order;
use crate::waiting::Waiting;
use kattu_node::Keeper;
use kattu_node::contract::{KeeperEffects, KeeperTask, Outcome, Ticket, Tickets};
use std::collections::{BTreeMap, VecDeque};

/// What goes to a keeper on another thread.
#[derive(Debug)]
pub enum Batch<C> {
    /// Tasks, in order.
    Tasks {
        /// The tasks.
        tasks: Vec<KeeperTask>,
        /// The clients that wait for the tasks' tickets, in the tasks' order.
        clients: VecDeque<(Ticket, C)>,
    },
    /// The tables that the keeper waits for.
    Tables(Box<Keeper>),
    /// The thread ends, and its last report has the desk. Nothing is delivered behind it.
    Return,
}

impl<C> Batch<C> {
    /// These tasks, with the clients that wait for them.
    pub fn of(tasks: Vec<KeeperTask>, waiting: &mut Waiting<C>) -> Batch<C> {
        let tickets = tasks.iter().flat_map(tickets_of);
        let clients = tickets.filter_map(|ticket| Some((ticket, waiting.take(ticket)?))).collect();
        Batch::Tasks { tasks, clients }
    }
}

fn tickets_of(task: &KeeperTask) -> impl Iterator<Item = Ticket> {
    const NOBODY: &Tickets = &Tickets::None;
    let (of_entry, other) = match task {
        KeeperTask::Apply { tickets, .. } => (tickets, None),
        KeeperTask::Read { ticket, .. }
        | KeeperTask::LookUp { ticket, .. }
        | KeeperTask::Members { ticket, .. }
        | KeeperTask::Pin { ticket, .. }
        | KeeperTask::Weigh { ticket, .. }
        | KeeperTask::Status { ticket, .. } => (NOBODY, Some(*ticket)),
        KeeperTask::Standing { .. } | KeeperTask::Snapshot(_) | KeeperTask::Install(_) => (NOBODY, None),
    };
    of_entry.iter().chain(other)
}

/// The keeper with what it has not told yet.
pub struct Desk {
    keeper: Keeper,
    effects: KeeperEffects,
    /// Orders for the worker of snapshots.
    orders: VecDeque<Order>,
    /// Something was taken in or done that is not told yet.
    is_news: bool,
}

impl Desk {
    /// A desk with nothing on it.
    #[must_use]
    pub fn new(keeper: Keeper) -> Desk {
        Desk { keeper, effects: KeeperEffects::default(), orders: VecDeque::new(), is_news: false }
    }

    /// The keeper.
    #[must_use]
    pub fn keeper(&self) -> &Keeper {
        &self.keeper
    }

    /// The keeper, for tests that change its limits.
    pub fn keeper_mut(&mut self) -> &mut Keeper {
        &mut self.keeper
    }

    /// Takes in tasks, in order.
    pub fn take_in<H: Host>(&mut self, host: &mut H, tasks: impl Iterator<Item = KeeperTask>) {
        for task in tasks {
            host.deliver(&mut self.keeper, task, &mut self.effects);
            self.is_news = true;
        }
    }

    /// Works until nothing is left to do, or nothing of the slice. Returns the units of work done.
    ///
    /// # Errors
    /// The process ends.
    pub fn work<H: Host>(&mut self, host: &mut H, slice: &mut i64) -> Result<u64, H::Stop> {
        let before = *slice;
        while *slice > 0 && self.keeper.is_busy() {
            host.step(&mut self.keeper, slice, &mut self.effects)?;
            if let Some((meta, frozen)) = self.effects.snapshot.take() {
                self.orders.push_back(Order::Take(meta, Box::new(frozen)));
            }
            if let Some(meta) = self.effects.install.take() {
                self.orders.push_back(Order::Thaw(meta));
            }
            self.is_news = true;
        }
        Ok(before.saturating_sub(*slice).unsigned_abs())
    }

    /// New tables replace the old ones, which are returned; tasks that waited for them are next.
    pub fn replace(&mut self, tables: Keeper) -> Keeper {
        self.is_news = true;
        self.keeper.replace(tables, &mut self.effects)
    }

    /// The next order for the worker of snapshots.
    pub fn order(&mut self) -> Option<Order> {
        self.orders.pop_front()
    }

    /// Whether there is work, or something to tell.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.is_news || self.keeper.is_busy()
    }

    /// Whether compacted versions wait to be forgotten.
    #[must_use]
    pub fn is_untidy(&self) -> bool {
        self.keeper.store().stats().forgets
    }

    /// Forgets a few compacted versions. Returns whether there are more of them.
    pub fn tidy(&mut self) -> bool {
        self.keeper.tidy()
    }

    /// How far the keeper has come since this was last called, if there is anything to tell; answers go behind `answers`.
    pub fn told<C>(&mut self, answers: &mut impl Extend<(Ticket, Outcome)>) -> Option<Progress<C>> {
        if !std::mem::take(&mut self.is_news) {
            return None;
        }
        let effects = &mut self.effects;
        answers.extend(effects.reply.drain(..));
        effects.units = 0;
        let stats = self.keeper.store().stats();
        Some(Progress {
            applied: effects.applied.take(),
            store_bytes: stats.bytes,
            store_pinned: stats.pinned,
            members: effects.members.take().map(Box::new),
            health: effects.health.take().map(Box::new),
            admitted: effects.admitted.drain(..).map(|admitted| (admitted, None)).collect(),
            standings: std::mem::take(&mut effects.standings),
            answers: Vec::new(),
            tasks: 0,
            refused_for_work: std::mem::take(&mut effects.refused_for_work),
            desk: None,
        })
    }
}

/// The clients that wait for a keeper on its own thread.
#[derive(Debug)]
struct Clients<C> {
    /// In the order of their tasks, which is mostly that of the answers.
    in_order: VecDeque<(Ticket, C)>,
    /// Clients that others have overtaken.
    passed: BTreeMap<Ticket, C>,
}

impl<C> Clients<C> {
    fn take(&mut self, ticket: Ticket) -> Option<C> {
        let next =
            self.in_order.pop_front_if(|(waits_for, _)| *waits_for == ticket).map(|(_, client)| client);
        next.or_else(|| self.passed.remove(&ticket)).or_else(|| {
            self.passed.extend(self.in_order.drain(..));
            self.passed.remove(&ticket)
        })
    }
}

/// A desk on a thread of its own, with the clients that wait there.
pub struct Apart<C> {
    desk: Desk,
    clients: Clients<C>,
    /// Tasks that are not reported done.
    unreported: usize,
    /// The keeper has something to forget.
    untidy: bool,
    is_returning: bool,
    answers: Vec<(Ticket, Outcome)>,
}

impl<C> Apart<C> {
    /// A desk with nothing on it.
    #[must_use]
    pub fn new(keeper: Keeper) -> Apart<C> {
        Apart::of(Desk::new(keeper))
    }

    /// This desk, which was on the node's thread. The clients of what lies on it wait there.
    #[must_use]
    pub fn of(desk: Desk) -> Apart<C> {
        Apart {
            unreported: desk.keeper.waiting(),
            desk,
            clients: Clients { in_order: VecDeque::new(), passed: BTreeMap::new() },
            untidy: false,
            is_returning: false,
            answers: Vec::new(),
        }
    }

    /// The desk, which goes back to the node's thread, and the clients that wait at it.
    pub fn into_desk(self) -> (Desk, impl Iterator<Item = (Ticket, C)>) {
        (self.desk, self.clients.in_order.into_iter().chain(self.clients.passed))
    }

    /// Whether the desk goes back to the node's thread: no more work is done here, and [`Apart::last_report`] is due.
    #[must_use]
    pub fn is_returning(&self) -> bool {
        self.is_returning
    }

    /// The report with which the desk goes back.
    #[must_use]
    pub fn last_report(self) -> Progress<C> {
        let stats = self.desk.keeper.store().stats();
        Progress {
            applied: None,
            store_bytes: stats.bytes,
            store_pinned: stats.pinned,
            members: None,
            health: None,
            answers: Vec::new(),
            admitted: Vec::new(),
            standings: Vec::new(),
            tasks: 0,
            refused_for_work: 0,
            desk: Some(Box::new(self)),
        }
    }

    /// The desk.
    #[must_use]
    pub fn desk(&self) -> &Desk {
        &self.desk
    }

    /// The desk, for tests that change its keeper's limits.
    pub fn desk_mut(&mut self) -> &mut Desk {
        &mut self.desk
    }

    /// Takes in what has come; returns tables that are no longer needed: to drop them takes a while.
    pub fn take_in<H: Host>(&mut self, host: &mut H, batch: Batch<C>) -> Option<Box<Keeper>> {
        match batch {
            Batch::Tasks { tasks, clients } => {
                self.unreported += tasks.len();
                self.clients.in_order.extend(clients);
                self.desk.take_in(host, tasks.into_iter());
                None
            }
            Batch::Tables(tables) => Some(Box::new(self.desk.replace(*tables))),
            Batch::Return => {
                self.is_returning = true;
                None
            }
        }
    }

    /// Whether there is work, something to tell, or something to forget: the thread need not wait for its inbox then.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.untidy || self.desk.is_busy()
    }

    /// Whether the thread may end, if nothing more comes: what is left to forget does not hold it.
    #[must_use]
    pub fn is_done(&self) -> bool {
        !self.desk.is_busy()
    }

    /// Works for one slice, and forgets a little if that leaves nothing else to do. Returns the units of work done.
    ///
    /// # Errors
    /// The process ends.
    pub fn work<H: Host>(&mut self, host: &mut H, slice: &mut i64) -> Result<u64, H::Stop> {
        self.desk.work(host, slice)
    }

    /// The next order for the worker of snapshots.
    pub fn order(&mut self) -> Option<Order> {
        self.desk.order()
    }

    /// What to report, if there is anything, and the answers of clients that wait here.
    pub fn report(&mut self) -> Option<(Progress<C>, impl Iterator<Item = (C, Outcome)>)> {
        let mut progress = self.desk.told(&mut self.answers)?;
        let waiting = self.desk.keeper.waiting();
        progress.tasks = std::mem::replace(&mut self.unreported, waiting) - waiting;
        for (admitted, client) in &mut progress.admitted {
            *client = self.clients.take(admitted.ticket);
        }
        let mut answered = Vec::new();
        for (ticket, outcome) in self.answers.drain(..) {
            match self.clients.take(ticket) {
                Some(client) => answered.push((client, outcome)),
                None => progress.answers.push((ticket, outcome)),
            }
        }
        Some((progress, answered.into_iter()))
    }

    /// The clients of a process that has ended in the middle: none of them was answered.
    pub fn abandon(&mut self) -> impl Iterator<Item = C> {
        let Clients { in_order, passed } = &mut self.clients;
        in_order.drain(..).map(|(_, client)| client).chain(std::mem::take(passed).into_values())
    }

    /// Forgets a little; afterwards [`Apart::is_busy`] says whether there is more.
    pub fn tidy(&mut self) {
        self.untidy = self.desk.tidy();
    }
}
