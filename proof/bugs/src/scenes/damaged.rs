//! A log that is damaged, mended, and opened once more: what it owed is not forgotten.
//!
//! Knows nothing of: elections.

use kattu_raft::{
    EntryHead, EntryId, EntryKind, Form, GroupId, HardState, Incarnation, LogBody, LogRecord, Lsn, NodeId,
    Stamp, Term,
};
use kattu_wal::sim::SimDisk;
use kattu_wal::{DataDir, Files, Identity, InitialMember, Wal, WalOptions};
use std::sync::Arc;

const GROUP: GroupId = GroupId(0);
const OPTIONS: WalOptions =
    WalOptions { segment_bytes: 1 << 16, reserve_bytes: 0, window_bytes: 1 << 16, block_bytes: 1 << 16 };

fn directory(disk: &SimDisk) -> DataDir {
    DataDir::open(Arc::new(disk.clone())).expect("nobody has it")
}

/// Some entries, each synced, the last one marked.
fn written(entries: u64) -> SimDisk {
    let disk = SimDisk::new();
    let mut dir = directory(&disk);
    let member = |id| InitialMember { id: NodeId(id), name: format!("n{id}"), peer_urls: Vec::new() };
    let single = Identity::single(0xC1, NodeId(1), Incarnation(7), "n1");
    dir.create(Identity { members: (1..=3).map(member).collect(), ..single }, &OPTIONS).expect("room");
    let (mut wal, _) = Wal::open(dir, OPTIONS).expect("an empty log");
    let hard = HardState { term: Term(2), vote: Some(NodeId(1)) };
    wal.append(GROUP, &[LogRecord { lsn: Lsn(1), body: LogBody::HardState(hard) }]).expect("it is well");
    for index in 1..=entries {
        let head = EntryHead {
            id: EntryId::new(2, index),
            kind: EntryKind::Command,
            form: Form::Whole,
            stamp: Stamp(index),
        };
        let entry = kattu_wire::record_encode(crc32c::crc32c_append, GROUP, head, &[index as u8; 100]);
        wal.append(GROUP, &[LogRecord { lsn: Lsn(index + 1), body: LogBody::Entry(entry) }])
            .expect("it is well");
        wal.sync().expect("it is well");
    }
    wal.mark().expect("it is well");
    disk
}

pub(super) fn a_floor_and_a_restart(seed: u64) {
    let entries = 3 + seed % 5;
    let disk = written(entries);
    let name = disk.names().expect("names").into_iter().find(|name| name.ends_with(".seg")).expect("a log");
    let mut bytes = disk.contents(&name).expect("it is there");
    let block = 4096 + 512 * (seed % entries) as usize;
    bytes[block + 150] ^= 1 << (seed % 8);
    disk.set_contents(&name, Some(bytes));
    let end = EntryId::new(2, entries);

    let (wal, recovered) = Wal::mend(directory(&disk), OPTIONS).expect("it has peers");
    let cut = &recovered[&GROUP];
    assert!(cut.last < end && cut.floor == Some(end), "damage_is_found: {cut:?}");
    drop(wal);
    let (_, again) = Wal::open(directory(&disk), OPTIONS).expect("it was mended");
    assert!(
        again[&GROUP].floor == Some(end),
        "floor_outlives_a_restart: cut after {}, it had promised {end}, the next start says {:?}",
        cut.last,
        again[&GROUP].floor
    );
}
