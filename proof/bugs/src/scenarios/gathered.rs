//! A driver that gathers the effects of several calls before it carries them out.
//!
//! Knows nothing of: stores, disks.

use kattu_peers::config;
use kattu_raft::message::{Append, SnapshotChunk};
use kattu_raft::{
    ChunkStored, Effects, Entry, EntryHead, EntryId, EntryKind, Envelope, GroupId, Incarnation, Instant,
    LogIndex, Membership, Message, NodeId, Raft, Recovered, Round, SharedBytes, SnapshotMeta, Stamp, Term,
};

const NOW: Instant = Instant(1_000_000);
const LEADER: NodeId = NodeId(1);
const FOLLOWER: NodeId = NodeId(2);

fn says(raft: &mut Raft, message: Message, effects: &mut Effects) {
    let (group, incarnation, term) = (GroupId(0), Incarnation(1), Term(1));
    let envelope = Envelope { group, from: LEADER, incarnation, to: FOLLOWER, term, message };
    raft.step(NOW, envelope, effects);
    if let Some(record) = effects.persist.last() {
        raft.persisted(NOW, record.lsn, effects);
    }
}

/// Some entries are delivered to the store, and a snapshot that covers more comes in, all in one batch of effects.
pub(super) fn a_snapshot_behind_entries(seed: u64) {
    let mut raft = Raft::recover(config(FOLLOWER.0, 2, 0), seed, NOW, Recovered::default());
    let mut effects = Effects::default();
    let count = 1 + seed % 5;
    let entry = |index| {
        let head = EntryHead { id: EntryId::new(1, index), kind: EntryKind::Command, stamp: Stamp(index) };
        Entry::new(head, vec![1; 8].into(), 8)
    };
    let entries = (1..=count).map(entry).collect();
    let append =
        Append { prev: EntryId::default(), entries, commit: LogIndex(count), round: Round(1), tail: false };
    says(&mut raft, Message::Append(append), &mut effects);
    assert_eq!(effects.apply.len() as u64, count, "scene: they are handed out");
    let meta = SnapshotMeta {
        last: EntryId::new(1, count + 5),
        stamp: Stamp(count + 5),
        membership: Membership::new(vec![LEADER, FOLLOWER], vec![]),
        membership_at: LogIndex(0),
    };
    let bytes: SharedBytes = vec![7; 10].into();
    says(
        &mut raft,
        Message::SnapshotChunk(SnapshotChunk { meta: Box::new(meta.clone()), offset: 0, bytes, total: 10 }),
        &mut effects,
    );
    raft.chunk_stored(NOW, ChunkStored { last: meta.last, next: 10, complete: true }, &mut effects);
    let base = effects.persist.last().expect("the log's new base").lsn;
    raft.persisted(NOW, base, &mut effects);
    // The order of one batch: what is installed, then entries.
    let mut delivered = Vec::new();
    for _ in 0..2 {
        delivered.extend(effects.install.take().map(|meta| meta.last.index));
        delivered.extend(effects.apply.drain(..).map(|entry| entry.id().index));
        raft.tick(NOW, &mut effects);
    }
    assert!(
        delivered.is_sorted() && delivered.last() == Some(&meta.last.index),
        "a_store_never_goes_back: it is handed {delivered:?}"
    );
}
