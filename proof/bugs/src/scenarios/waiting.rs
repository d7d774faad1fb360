//! Tables that lag behind the snapshots that a leader sends.
//!
//! A leader whose log is short sends one snapshot after the other; each waits on the disk until the one before it is
//! installed. Meanwhile a snapshot of the member's own is complete, and old ones are removed.
//! Knows nothing of: nodes, what is in a snapshot.

use kattu_disk::{Dice, SimDisk};
use kattu_raft::{EntryId, GroupId, Membership, NodeId, SnapshotMeta, Stamp};
use kattu_wal::SnapshotStore;
use std::collections::VecDeque;
use std::sync::Arc;

const GROUP: GroupId = GroupId(0);
const CLUSTER: u64 = 0xC1;

fn comes(store: &SnapshotStore, index: u64) -> EntryId {
    let meta = SnapshotMeta {
        last: EntryId::new(1, index),
        stamp: Stamp(index),
        membership: Membership::new(vec![NodeId(1), NodeId(2)], vec![]),
        membership_at: EntryId::default().index,
    };
    let last = meta.last;
    let mut writer = store.create(GROUP, meta).expect("room");
    writer.push(&index.to_le_bytes()).expect("room");
    writer.finish().expect("a good disk");
    last
}

/// Snapshots come, are installed one by one, and those no longer needed are removed in between.
pub(super) fn tables_that_lag_behind_snapshots(seed: u64) {
    let mut dice = Dice::new(seed);
    let store = SnapshotStore::of(Arc::new(SimDisk::new()), CLUSTER).expect("an empty disk");
    let (mut newest, mut waiting) = (0, VecDeque::new());
    for _ in 0..40 {
        // Now and then nothing comes, so that the tables catch up.
        for _ in 0..dice.below(4) {
            newest += 1 + dice.below(9);
            waiting.push_back(comes(&store, newest));
        }
        for _ in 0..dice.below(4) {
            let Some(last) = waiting.pop_front() else { break };
            let found = store.open(GROUP, last).expect("a good disk");
            assert!(found.is_some(), "a_snapshot_that_waits_is_there: the one up to {last} is gone");
            store.tidy(GROUP, last.index).expect("a good disk");
        }
    }
    waiting.clear();
    comes(&store, newest + 1);
    store.tidy(GROUP, EntryId::new(1, newest + 1).index).expect("a good disk");
    let (kept, _) = store.newest(GROUP).expect("a good disk");
    assert!(kept.is_some_and(|kept| kept.meta.last.index.0 == newest + 1), "scene: the newest stays");
}
