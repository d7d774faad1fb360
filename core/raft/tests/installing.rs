//! A snapshot is handed to the store once the log's new base is durable. Until then nothing of the log is: not the entries behind
//! the snapshot, which the log still holds, nor those that it covers, which the log has dropped. [replication-protocols N3]

use kattu_raft::message::{Append, SnapshotChunk};
use kattu_raft::{
    ChunkStored, Config, Effects, Entry, EntryHead, EntryId, EntryKind, Envelope, GroupId, HardState,
    Incarnation, Instant, LogIndex, Lsn, Membership, Message, NodeId, Raft, RecordEncoder, Recovered, Round,
    SharedBytes, SnapshotMeta, Stamp, Term,
};

const LEADER: NodeId = NodeId(1);
const ME: NodeId = NodeId(2);
const NOW: Instant = Instant(1_000_000);

fn from_leader(raft: &mut Raft, message: Message, effects: &mut Effects) {
    let (group, from, incarnation, to, term) = (GroupId(0), LEADER, Incarnation(1), ME, Term(1));
    raft.step(NOW, Envelope { group, from, incarnation, to, term, message }, effects);
}

fn id(index: u64) -> EntryId {
    if index == 0 { EntryId::default() } else { EntryId::new(1, index) }
}

fn entries(indexes: std::ops::RangeInclusive<u64>) -> Vec<Entry> {
    let head = |index| EntryHead { id: id(index), kind: EntryKind::Command, stamp: Stamp(index) };
    indexes.map(|index| Entry::new(head(index), vec![7; 10].into(), 0)).collect()
}

/// A member with this log, that hears its leader.
fn member(found: Recovered) -> Raft {
    let config = Config::new(ME, [LEADER, ME, NodeId(3)], RecordEncoder::BARE);
    let mut raft = Raft::recover(config, 7, NOW, found);
    let mut effects = Effects::default();
    let (prev, commit) = (raft.last_id(), raft.last_id().index);
    let heartbeat = Append { prev, entries: vec![], commit, round: Round(1), tail: false };
    from_leader(&mut raft, Message::Append(heartbeat), &mut effects);
    if let Some(record) = effects.persist.last() {
        raft.persisted(NOW, record.lsn, &mut Effects::default());
    }
    raft
}

#[test]
fn nothing_is_delivered_between_a_snapshot_and_the_durable_base_behind_it() {
    // A log that is behind the snapshot, and begins anew; and one that goes on beyond it, but begins after snapshots that were
    // all lost, and keeps its end.
    let hard = HardState { term: Term(1), vote: None };
    let behind = Recovered {
        hard,
        term_starts: vec![id(1)],
        last: id(2),
        tail: entries(1..=2),
        lsn: Lsn(3),
        ..Recovered::default()
    };
    let lost = Recovered {
        hard,
        base: id(3),
        term_starts: vec![id(4)],
        last: id(6),
        tail: entries(4..=6),
        committed: LogIndex(6),
        lsn: Lsn(7),
        ..Recovered::default()
    };
    for (found, last, end) in [(behind, 5, 5), (lost, 5, 6)] {
        let (mut raft, mut effects) = (member(found), Effects::default());
        let delivered = raft.applied_delivered();
        let membership = Membership::new(vec![LEADER, ME, NodeId(3)], vec![]);
        let meta =
            SnapshotMeta { last: id(last), stamp: Stamp(last), membership, membership_at: LogIndex(0) };
        let (offset, bytes) = (0, SharedBytes::from(vec![7; 10]));
        let chunk = SnapshotChunk { meta: Box::new(meta.clone()), offset, bytes, total: 10 };
        from_leader(&mut raft, Message::SnapshotChunk(chunk), &mut effects);
        assert_eq!(effects.store_chunks.len(), 1);
        raft.chunk_stored(NOW, ChunkStored { last: meta.last, next: 10, complete: true }, &mut effects);
        assert_eq!(raft.last_id(), id(end));
        raft.tick(NOW, &mut effects);
        assert!(effects.install.is_none() && effects.apply.is_empty(), "{effects:?}");
        assert!(effects.fetch.is_empty(), "it is not read past the snapshot: {effects:?}");
        assert_eq!(raft.applied_delivered(), delivered);

        let base = effects.persist.last().expect("the log's new base").lsn;
        // A driver that gathers the effects of several calls has an entry of before in hand: the snapshot is not for this batch.
        let (mut gathering, mut gathered) = (raft.clone(), Effects::default());
        gathered.apply = entries(1..=1);
        gathering.persisted(NOW, base, &mut gathered);
        assert!(gathered.install.is_none() && gathered.apply.len() == 1 && gathered.fetch.is_empty());

        raft.persisted(NOW, base, &mut effects);
        assert_eq!(effects.install, Some(meta));
        let behind_it: Vec<EntryId> = effects.apply.iter().map(Entry::id).collect();
        assert_eq!(behind_it, (last + 1..=end).map(id).collect::<Vec<_>>(), "and then what follows");
    }
}
