//! A member that joined knows no member of its group before an entry of its log lists them. [replication-protocols N1]

use kattu_raft::message::{Append, SnapshotChunk};
use kattu_raft::{
    ChunkStored, Config, Duration, Effects, Entry, EntryHead, EntryId, EntryKind, Envelope, GroupId,
    Incarnation, Instant, LogIndex, Membership, Message, NodeId, Raft, RecordEncoder, Recovered, Round,
    SharedBytes, SnapshotMeta, Stamp, Term,
};

const LEADER: NodeId = NodeId(1);
const JOINED: NodeId = NodeId(2);
const NOW: Instant = Instant(1_000_000);

fn joined() -> Raft {
    let election_timeout = Duration::from_millis(300);
    let config = Config { election_timeout, ..Config::new(JOINED, [], RecordEncoder::BARE) };
    Raft::recover(config, 7, NOW, Recovered::default())
}

/// A message from the leader.
fn from_leader(message: Message) -> Envelope {
    Envelope {
        group: GroupId(0),
        from: LEADER,
        incarnation: Incarnation(1),
        to: JOINED,
        term: Term(1),
        message,
    }
}

/// The leader sends one entry and its commit; then the entry is durable here and delivered to the store.
fn append(raft: &mut Raft, index: u64, kind: EntryKind, payload: Vec<u8>) {
    append_into(raft, index, kind, payload, &mut Effects::default());
}

/// As [`append`]; the effects are added to `effects`.
fn append_into(raft: &mut Raft, index: u64, kind: EntryKind, payload: Vec<u8>, effects: &mut Effects) {
    let id = EntryId::new(1, index);
    let head = EntryHead { id, kind, stamp: Stamp(index) };
    let prev = raft.last_id();
    let entries = vec![Entry::new(head, payload.into(), 0)];
    let append = Append { prev, entries, commit: LogIndex(index), round: Round(index), tail: false };
    raft.step(NOW, from_leader(Message::Append(append)), effects);
    let durable = effects.persist.last().expect("an entry leaves for the disk").lsn;
    raft.persisted(NOW, durable, effects);
    raft.drained(NOW, effects);
    assert_eq!(raft.applied_delivered(), LogIndex(index));
}

#[test]
fn a_member_that_joined_takes_no_snapshot_before_its_log_has_the_membership() {
    let mut raft = joined();
    append(&mut raft, 1, EntryKind::Command, b"before anybody joined".to_vec());
    assert_eq!(raft.snapshot_meta(EntryId::new(1, 1), Stamp(1)), None, "nobody could begin with that");

    let members = Membership::new(vec![LEADER], vec![JOINED]);
    let mut payload = Vec::new();
    members.encode(&mut payload);
    append(&mut raft, 2, EntryKind::Config, payload);
    let meta = raft.snapshot_meta(EntryId::new(1, 2), Stamp(2)).expect("now it knows");
    assert_eq!((meta.membership, meta.membership_at), (members, LogIndex(2)));
}

#[test]
fn a_driver_may_gather_the_effects_of_several_calls_though_a_snapshot_comes_among_them() {
    let (mut raft, mut effects) = (joined(), Effects::default());
    append_into(&mut raft, 1, EntryKind::Command, b"a".to_vec(), &mut effects);
    assert_eq!(effects.apply.len(), 1);

    let membership = Membership::new(vec![LEADER], vec![JOINED]);
    let meta =
        SnapshotMeta { last: EntryId::new(1, 9), stamp: Stamp(9), membership, membership_at: LogIndex(2) };
    let bytes: SharedBytes = vec![7; 10].into();
    let chunk = SnapshotChunk { meta: Box::new(meta.clone()), offset: 0, bytes, total: 10 };
    raft.step(NOW, from_leader(Message::SnapshotChunk(chunk)), &mut effects);
    let stored = ChunkStored { last: meta.last, next: 10, complete: true };
    raft.chunk_stored(NOW, stored, &mut effects);
    let base = effects.persist.last().expect("the log's new base").lsn;
    raft.persisted(NOW, base, &mut effects);
    assert_eq!(effects.install, None, "it would come before the entry that is there");
    assert!(raft.deadline() <= NOW, "its turn comes with the next call");

    effects = Effects::default(); // carried out
    raft.tick(NOW, &mut effects);
    assert_eq!(effects.install, Some(meta));
    assert!(effects.apply.is_empty());
}

/// Goal: bytes received of a larger file with the same end do not block this one: the driver gets the piece, and begins
/// anew.
#[test]
fn a_piece_of_a_smaller_file_of_the_same_end_goes_to_the_store() {
    let mut raft = joined();
    let last = EntryId::new(1, 7);
    let membership = Membership::new(vec![LEADER], vec![JOINED]);
    let meta = SnapshotMeta { last, stamp: Stamp(7), membership, membership_at: LogIndex(1) };
    let piece = |offset: u64, bytes: usize, total: u64| {
        let bytes = SharedBytes::from(vec![0; bytes]);
        from_leader(Message::SnapshotChunk(SnapshotChunk {
            meta: Box::new(meta.clone()),
            offset,
            bytes,
            total,
        }))
    };
    let mut effects = Effects::default();
    raft.step(NOW, piece(0, 120, 174), &mut effects);
    assert_eq!(effects.store_chunks.len(), 1);
    raft.chunk_stored(NOW, ChunkStored { last, next: 120, complete: false }, &mut effects);

    let mut effects = Effects::default();
    raft.step(NOW, piece(0, 50, 174), &mut effects);
    assert_eq!(effects.store_chunks.len(), 0, "of the same file: it says where it stands");
    raft.step(NOW, piece(0, 50, 100), &mut effects);
    assert_eq!(effects.store_chunks.len(), 1, "of a file that has no byte 120");
}
