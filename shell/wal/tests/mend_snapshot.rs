//! Goal: a log that is mended beside a snapshot begins anew after it, and holds nothing else that the replay had met.

mod common;

use common::{GROUPS, OPTIONS, Step, run_as};
use kattu_raft::{GroupId, Incarnation, LogIndex, NodeId};
use kattu_wal::sim::{Damage, Place, SimDisk};
use kattu_wal::{DataDir, Identity, InitialMember, Wal};
use std::sync::Arc;

const A: GroupId = GROUPS[0];

/// One of three.
fn identity() -> Identity {
    let member = |id| InitialMember { id: NodeId(id), name: format!("n{id}"), peer_urls: Vec::new() };
    let members = (1..=3).map(member).collect();
    Identity { groups: GROUPS.to_vec(), members, ..Identity::single(0xC1, NodeId(1), Incarnation(42), "n1") }
}

#[test]
fn a_mended_log_hands_out_only_what_is_after_the_snapshot_that_it_begins_anew_after() {
    let disk = SimDisk::new();
    let story = [
        Step::Hard(A, Some(2)),
        Step::Entries(A, vec![10, 10, 10]),
        Step::Sync,
        Step::Commit(A),
        Step::Sync,
        Step::Snapshot(A),
        Step::Entries(A, vec![10, 10]),
        Step::Sync,
        Step::Entries(A, vec![10]),
        Step::Sync,
        Step::Mark,
    ];
    let (_twin, outcome) = run_as(identity(), &disk, &story);
    outcome.unwrap();
    let damaged = (0..50).map(|seed| {
        let disk = disk.copy();
        disk.damage(Damage::Flip(Place::LogMiddle), seed);
        disk
    });
    let mut begun = 0;
    for disk in damaged {
        let Ok((_wal, recovered)) = Wal::mend(DataDir::open(Arc::new(disk)).unwrap(), OPTIONS) else {
            continue;
        };
        let found = &recovered[&A];
        let indexes: Vec<LogIndex> = found.tail.iter().map(|entry| entry.id().index).collect();
        let first = LogIndex(found.last.index.0 + 1 - indexes.len() as u64);
        assert!(found.base.index < first, "{indexes:?} after {}", found.base);
        let is_anew = found.snapshot.as_ref().is_some_and(|snapshot| snapshot.last == found.base);
        begun += u64::from(is_anew && found.floor.is_some() && found.base.index < found.last.index);
    }
    assert!(0 < begun, "no log of them begins anew before its end");
}
