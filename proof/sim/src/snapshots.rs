//! Snapshots: the worker beside a simulated process, one step at a time in virtual time. [shell/member `snapshots`]
//!
//! Between any two steps the process may be killed; the disk may fail in any.
//! Knows nothing of: replicas, when a snapshot is due.

use crate::beside::{Beside, Thread};
use crate::log::{AtOnce, GROUP};
use crate::net::id_of;
use crate::process::{End, Hands, Process};
use crate::world::{Event as Planned, Shared};
use kattu_member::host::Brought;
use kattu_member::snapshots::{Done, Order, Worker as Steps};
use kattu_node::Keeper;
use kattu_raft::EntryId;
use kattu_wal::{SnapshotStore, WalError};
use std::collections::VecDeque;

pub(crate) struct Worker {
    steps: Steps,
    orders: VecDeque<Order>,
    /// Its next step is planned.
    planned: bool,
    /// What it has brought.
    pub(crate) brought: VecDeque<Brought>,
}

/// The tables of the snapshot that ends at `last`; in words why it has none.
pub(crate) fn thaw(store: &SnapshotStore, last: EntryId) -> Result<Result<Keeper, String>, WalError> {
    let thawed = kattu_member::snapshots::thaw(store, GROUP, last, &|| false)?;
    Ok(thawed.map(|thawed| thawed.expect("the process does not stop").0))
}

impl Worker {
    pub(crate) fn new(store: SnapshotStore) -> Worker {
        let steps = Steps::new(store, GROUP);
        Worker { steps, orders: VecDeque::new(), planned: false, brought: VecDeque::new() }
    }

    /// Whether a snapshot is being taken, or will be at once.
    fn is_taking(&self) -> bool {
        self.steps.is_taking() || self.orders.iter().any(|order| matches!(order, Order::Take(..)))
    }

    fn has_work(&self) -> bool {
        !self.orders.is_empty() || self.steps.is_taking() || self.steps.is_untidy()
    }

    /// The errors of the steps since the last call, for the timeline.
    fn complaints(&mut self) -> Vec<String> {
        let notes = self.steps.take_notes();
        notes.iter().filter_map(|note| note.error().map(WalError::to_string)).collect()
    }

    /// The next step. An error is the end of the process.
    fn step(&mut self) -> Result<Done, WalError> {
        match self.orders.pop_front() {
            Some(order) => self.steps.carry_out(order, &mut AtOnce, &|| false),
            None if self.steps.is_taking() => self.steps.go_on(&mut AtOnce).map(|(done, _)| done),
            None => self.steps.tidy().map(|()| Done::Nothing),
        }
    }
}

impl Hands {
    /// Gives the worker an order.
    pub(crate) fn order_snapshot(&mut self, sh: &mut Shared, order: Order) {
        if matches!(order, Order::Take(..)) {
            self.log.disk.beside.goes_on(Beside::Snapshot, sh.now, sh.now);
        }
        self.worker.orders.push_back(order);
        self.plan_worker(sh);
    }

    fn plan_worker(&mut self, sh: &mut Shared) {
        if !self.worker.planned && self.worker.has_work() {
            self.worker.planned = true;
            let takes = sh.dice.below(sh.settings.snapshot_step + 1);
            let at = self.log.disk.beside.done_at(Thread::Snapshots).max(sh.now) + takes;
            if self.worker.is_taking() {
                self.log.disk.beside.goes_on(Beside::Snapshot, sh.now, at);
            }
            sh.queue.plan(at, Planned::Worked { member: self.member, run: self.run });
        }
    }

    fn work_on_snapshots(&mut self, sh: &mut Shared) -> Result<(), End> {
        self.worker.planned = false;
        self.fuse.burn()?;
        let free_at = self.log.disk.beside.done_at(Thread::Snapshots);
        if sh.now < free_at {
            // The disk was at something else meanwhile.
            self.worker.planned = true;
            sh.queue.plan(free_at, Planned::Worked { member: self.member, run: self.run });
            return Ok(());
        }
        let is_taking = self.worker.is_taking();
        let begun = self.log.disk.begin_beside();
        let done = self.worker.step();
        self.log.disk.end_beside(sh, Thread::Snapshots, begun);
        if is_taking {
            let until = self.log.disk.beside.done_at(Thread::Snapshots);
            self.log.disk.beside.goes_on(Beside::Snapshot, sh.now, until);
        }
        if self.log.disk.is_out() {
            return Err(End::Fuse); // it has lost its power in the middle
        }
        let (now, id) = (sh.now, id_of(self.member));
        for complaint in self.worker.complaints() {
            sh.trace.line(now, Some(id.0), "snapshot", || complaint);
        }
        let brought = match done? {
            Done::Nothing => None,
            Done::Told(event) | Done::ToldLater(event) => Some(Brought::Event(event)),
            Done::Complete(last, event) => {
                sh.observer.snapshot(id, last)?;
                sh.counts.snapshots += 1;
                sh.trace.mix(last.index.0 ^ 1 << 61);
                sh.trace.line(now, Some(id.0), "snapshot", || format!("has one up to {last}"));
                Some(Brought::Event(event))
            }
            Done::NoTables(last, error) => {
                let story = format!("n{}: the snapshot up to {last}: {error}", self.member + 1);
                return Err(crate::report::Violation::new("snapshots_hold_tables", story).into());
            }
            Done::Thawed(meta, tables) => Some(Brought::Tables(meta, tables)),
        };
        self.worker.brought.extend(brought);
        self.plan_worker(sh);
        Ok(())
    }
}

impl Process {
    /// The worker does one thing.
    pub(crate) fn work_on_snapshots(&mut self, sh: &mut Shared) -> Result<(), End> {
        self.hands.work_on_snapshots(sh)
    }
}
