//! Snapshots: the worker beside a simulated process, one step at a time in virtual time. [shell/member `snapshots`]
//!
//! Between any two steps the process may be killed; the disk may fail in any.
//! Knows nothing of: replicas, when a snapshot is due.

use crate::log::{AtOnce, GROUP};
use kattu_member::snapshots::{Done, Order, Worker as Steps};
use kattu_node::Keeper;
use kattu_raft::EntryId;
use kattu_wal::{SnapshotStore, WalError};
use std::collections::VecDeque;

pub(crate) struct Worker {
    steps: Steps,
    orders: VecDeque<Order>,
    /// Its next step is planned.
    pub(crate) planned: bool,
}

/// The tables of the snapshot that ends at `last`; in words why it has none.
pub(crate) fn thaw(store: &SnapshotStore, last: EntryId) -> Result<Result<Keeper, String>, WalError> {
    let thawed = kattu_member::snapshots::thaw(store, GROUP, last, &|| false)?;
    Ok(thawed.map(|thawed| thawed.expect("the process does not stop").0))
}

impl Worker {
    pub(crate) fn new(store: SnapshotStore) -> Worker {
        Worker { steps: Steps::new(store, GROUP), orders: VecDeque::new(), planned: false }
    }

    pub(crate) fn order(&mut self, order: Order) {
        self.orders.push_back(order);
    }

    /// Whether a snapshot is being taken, or will be at once.
    pub(crate) fn is_taking(&self) -> bool {
        self.steps.is_taking() || self.orders.iter().any(|order| matches!(order, Order::Take(..)))
    }

    pub(crate) fn has_work(&self) -> bool {
        !self.orders.is_empty() || self.steps.is_taking() || self.steps.is_untidy()
    }

    /// The errors of the steps since the last call, for the timeline.
    pub(crate) fn complaints(&mut self) -> Vec<String> {
        let notes = self.steps.take_notes();
        notes.iter().filter_map(|note| note.error().map(WalError::to_string)).collect()
    }

    /// The next step. An error is the end of the process.
    pub(crate) fn step(&mut self) -> Result<Done, WalError> {
        match self.orders.pop_front() {
            Some(order) => self.steps.carry_out(order, &mut AtOnce, &|| false),
            None if self.steps.is_taking() => self.steps.go_on(&mut AtOnce).map(|(done, _)| done),
            None => self.steps.tidy().map(|()| Done::Nothing),
        }
    }
}
