//! Work: what carrying out one entry or one read visits in the store, counted before it is done.
//!
//! Knows nothing of: how the store carries it out, what a unit of work takes.

use kattu_kv::api::{
    Answer, Command as Change, KeyRange, Operation, Query, Range, Response, SortTarget, Txn,
};
use kattu_kv::store::{Store, VERSION_OVERHEAD_BYTES};
use kattu_node::Keeper;
use kattu_node::command::Command;
use kattu_node::contract::KeeperTask;
use kattu_verify::service::Work;

/// What a task of the keeper is about to do.
pub(crate) fn work_of(task: &KeeperTask, keeper: &Keeper) -> Work {
    let store = keeper.store();
    match task {
        KeeperTask::Apply { entry, .. } => {
            let keys = match Command::decode(entry.payload()) {
                Ok(Command::Kv(command)) => keys_of(&command, store),
                Ok(_) | Err(_) => 0,
            };
            Work { entries: 1, keys, bytes: entry.len() as u64 }
        }
        KeeperTask::Read { query, .. } => {
            let keys = match query {
                Query::Range(range) => keys_read(range, store),
                Query::Txn(txn) => keys_of_txn(txn, store),
            };
            Work { entries: 1, keys, bytes: 0 }
        }
        _ => Work { entries: 1, ..Work::default() },
    }
}

/// Versions of keys that a store has given back since it held so many bytes, at most: none takes fewer than its overhead.
pub(crate) fn forgotten(before: u64, keeper: &Keeper) -> u64 {
    before.saturating_sub(keeper.store().stats().bytes) / VERSION_OVERHEAD_BYTES
}

fn keys_of(command: &Change, store: &Store) -> u64 {
    match command {
        Change::Put(_) | Change::Compact(_) => 1,
        Change::DeleteRange(delete) => keys_in(&delete.keys, store),
        Change::Txn(txn) => keys_of_txn(txn, store),
    }
}

/// All compares, and the dearer branch.
fn keys_of_txn(txn: &Txn, store: &Store) -> u64 {
    let compares: u64 = txn.compare.iter().map(|compare| keys_in(&compare.keys, store)).sum();
    let branch = |operations: &[Operation]| -> u64 {
        let each = operations.iter().map(|operation| match operation {
            Operation::Range(range) => keys_read(range, store),
            Operation::Put(_) => 1,
            Operation::DeleteRange(delete) => keys_in(&delete.keys, store),
            Operation::Txn(nested) => keys_of_txn(nested, store),
        });
        each.sum()
    };
    compares + branch(&txn.success).max(branch(&txn.failure))
}

/// A count is kept by the index; a limit ends the walk of what stands in the order of the keys.
fn keys_read(range: &Range, store: &Store) -> u64 {
    if range.count_only {
        return 1;
    }
    let all = keys_in(&range.keys, store);
    match u64::try_from(range.limit) {
        Ok(limit @ 1..) if range.target == SortTarget::Key => all.min(limit),
        _ => all,
    }
}

fn keys_in(keys: &KeyRange, store: &Store) -> u64 {
    let range = Range { keys: keys.clone(), count_only: true, ..Range::default() };
    match store.query(&Query::Range(range)) {
        Ok(Response { answer: Answer::Range(result), .. }) => (result.count as u64).max(1),
        _ => 1,
    }
}
