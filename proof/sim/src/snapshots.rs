//! Snapshots: the worker beside a simulated process, one step at a time in virtual time. [shell/member `snapshots`]
//!
//! Between any two steps the process may be killed; the disk may fail in any.
//! Knows nothing of: replicas, when a snapshot is due.

use crate::beside::{Beside, Thread};
use crate::disk_time::AtOnce;
use crate::end::End;
use crate::log::GROUP;
use crate::net::id_of;
use crate::process::{Hands, Process};
use crate::world::{Event as Planned, Shared};
use kattu_member::host::Brought;
use kattu_member::snapshots::{Done, End as Ends, Order, Worker as Steps};
use kattu_node::Keeper;
use kattu_raft::{EntryId, Instant};
use kattu_wal::{SnapshotStore, WalError};
use std::collections::VecDeque;

pub(crate) struct Worker {
    steps: Steps,
    /// Its next step: when it was due, and when it is planned.
    planned: Option<(Instant, u64)>,
    /// What it has brought.
    pub(crate) brought: VecDeque<Brought>,
}

/// The tables of the snapshot that ends at `last`; in words why it has none.
pub(crate) fn thaw(store: &SnapshotStore, last: EntryId) -> Result<Result<Keeper, String>, WalError> {
    let thawed = kattu_member::snapshots::thaw(store, GROUP, last, &|| false)?;
    Ok(thawed.map(|thawed| thawed.expect("the process does not stop").0))
}

impl Worker {
    pub(crate) fn new(store: SnapshotStore, bytes_per_s: u64) -> Worker {
        let steps = Steps::new(store, GROUP, bytes_per_s);
        Worker { steps, planned: None, brought: VecDeque::new() }
    }

    /// The errors of the steps since the last call, for the timeline.
    fn complaints(&mut self) -> Vec<String> {
        let notes = self.steps.take_notes();
        notes.iter().filter_map(|note| note.error().map(WalError::to_string)).collect()
    }
}

impl Hands {
    /// Gives the worker an order.
    pub(crate) fn order_snapshot(&mut self, sh: &mut Shared, order: Order) {
        if matches!(order, Order::Take(..)) {
            self.log.disk.beside.goes_on(Beside::Snapshot, sh.now, sh.now);
        }
        self.worker.steps.push(order);
        self.plan_worker(sh);
    }

    /// Plans the next step, and its end. A step that was planned for later, after a pause, is forgotten.
    fn plan_worker(&mut self, sh: &mut Shared) {
        let due = self.worker.steps.due(Instant(sh.now));
        if due == Instant::NEVER || self.worker.planned.is_some_and(|(planned, _)| planned <= due) {
            return;
        }
        let takes = sh.dice.below(sh.settings.snapshot_step + 1);
        let at = self.log.disk.beside.done_at(Thread::Snapshots).max(sh.now).max(due.0) + takes;
        if self.worker.steps.is_taking() {
            self.log.disk.beside.goes_on(Beside::Snapshot, sh.now, at);
        }
        self.plan_step(sh, due, at);
    }

    fn plan_step(&mut self, sh: &mut Shared, due: Instant, at: u64) {
        self.worker.planned = Some((due, at));
        sh.queue.plan(at, Planned::Worked { member: self.member, run: self.run });
    }

    fn work_on_snapshots(&mut self, sh: &mut Shared) -> Result<(), End> {
        let Some((due, _)) = self.worker.planned.take_if(|(_, at)| *at <= sh.now) else { return Ok(()) };
        self.fuse.burn()?;
        let free_at = self.log.disk.beside.done_at(Thread::Snapshots);
        if sh.now < free_at {
            self.plan_step(sh, due, free_at); // the disk was at something else meanwhile
            return Ok(());
        }
        let is_taking = self.worker.steps.is_taking();
        let begun = self.log.disk.begin_beside();
        let done = self.worker.steps.step(Instant(sh.now), &mut AtOnce, &|| false);
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
        let brought = match done.map_err(Ends::error)? {
            Done::Nothing => None,
            Done::Told(event) => Some(Brought::Event(event)),
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
