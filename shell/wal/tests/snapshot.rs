//! Goal: a snapshot is read as it was written, whatever a disk or a peer does to its bytes; and there is one or there
//! is none, never half of one. [fault-model ST9, ST10, F11–F15]

use kattu_disk::{Dice, Fault, SimDisk, Speed};
use kattu_raft::{
    ChunkRead, ChunkStored, EntryId, GroupId, LogIndex, Membership, NodeId, ReadChunk, SharedBytes,
    SnapshotMeta, Stamp, StoreChunk,
};
use kattu_wal::{Files, SnapshotStore, WalError};
use std::sync::Arc;

const GROUP: GroupId = GroupId(3);
const CLUSTER: u64 = 0xC1;

fn meta(index: u64) -> SnapshotMeta {
    let membership = Membership::new(vec![NodeId(1), NodeId(2), NodeId(3)], vec![NodeId(9)]);
    SnapshotMeta { last: EntryId::new(4, index), stamp: Stamp(77), membership, membership_at: LogIndex(5) }
}

fn chunks(index: u64) -> Vec<Vec<u8>> {
    let of = |len: u64| (0..len).map(|at| (at * 31 + index) as u8).collect();
    [40, 1, 200, index % 50 + 1].map(of).to_vec()
}

fn store(disk: &SimDisk) -> SnapshotStore {
    SnapshotStore::of(Arc::new(disk.clone()), CLUSTER).unwrap()
}

fn take(store: &SnapshotStore, index: u64) -> Result<kattu_wal::Snapshot, WalError> {
    let mut writer = store.create(GROUP, meta(index))?;
    for chunk in chunks(index) {
        writer.push(&chunk)?;
    }
    writer.finish()
}

fn name_of(index: u64) -> String {
    format!("snapshot-00000003-{index:016x}-0000000000000004.snap")
}

fn read(store: &SnapshotStore, index: u64) -> Option<Vec<Vec<u8>>> {
    let reader = store.open(GROUP, EntryId::new(4, index)).unwrap()?;
    assert_eq!(reader.snapshot().meta, meta(index));
    Some(reader.chunks().unwrap().map(|chunk| chunk.unwrap()).collect())
}

/// Streams a snapshot from one store to another, `piece` bytes at a time. Returns the last answer.
fn stream(source: &SnapshotStore, target: &SnapshotStore, index: u64, piece: usize) -> ChunkStored {
    let last = EntryId::new(4, index);
    let mut offset = 0;
    loop {
        let wanted = ReadChunk { peer: NodeId(2), last, offset, bytes_max: piece };
        let ChunkRead::Bytes { bytes, total } = source.read_chunk(GROUP, &wanted).unwrap() else {
            panic!("it is there")
        };
        let stored = target.store_chunk(GROUP, &StoreChunk { meta: meta(index), offset, bytes, total });
        let stored = stored.unwrap_or(ChunkStored { last, next: 0, complete: false }); // damaged: it begins anew
        if stored.complete || stored.next <= offset {
            return stored;
        }
        offset = stored.next;
    }
}

#[test]
fn what_is_read_is_what_was_written_here_and_at_a_peer() {
    let (disk, other) = (SimDisk::new(), SimDisk::new());
    let (here, there) = (store(&disk), store(&other));
    let taken = take(&here, 300).unwrap();
    assert_eq!((taken.name.as_str(), taken.chunks), (name_of(300).as_str(), 4));
    assert_eq!(read(&here, 300), Some(chunks(300)));
    for piece in [1, 63, 500, 1 << 20] {
        other.set_contents(&name_of(300), None);
        let there = store(&other);
        let stored = stream(&here, &there, 300, piece);
        assert!(stored.complete);
        assert_eq!(stored.next, taken.bytes);
        assert_eq!(disk.contents(&name_of(300)), other.contents(&name_of(300)), "byte for byte");
        assert_eq!(read(&there, 300), Some(chunks(300)));
    }
    assert_eq!(other.names().unwrap(), [name_of(300)], "nothing is left aside");
    // A snapshot of another group, and one that is not there.
    assert_eq!(there.get(GroupId(0), EntryId::new(4, 300)), Ok(None));
    let gone = ReadChunk { peer: NodeId(2), last: EntryId::new(4, 9), offset: 0, bytes_max: 9 };
    assert_eq!(here.read_chunk(GROUP, &gone).unwrap(), ChunkRead::Gone);
}

#[test]
fn the_empty_state_is_a_snapshot_too_and_large_chunks_pass() {
    let disk = SimDisk::new();
    let here = store(&disk);
    assert_eq!(here.create(GROUP, meta(1)).unwrap().finish().unwrap().chunks, 0);
    assert_eq!(read(&here, 1), Some(Vec::new()));
    let mut writer = here.create(GROUP, meta(2)).unwrap();
    let large: Vec<Vec<u8>> = [3 << 20, 1, 300 << 10, 70].map(|len| vec![7; len]).to_vec();
    for chunk in &large {
        writer.push(chunk).unwrap();
    }
    let bytes = writer.bytes();
    assert_eq!(writer.finish().unwrap().bytes, bytes + 56);
    let reader = here.open(GROUP, EntryId::new(4, 2)).unwrap().unwrap();
    assert!(reader.chunks().unwrap().map(|chunk| chunk.unwrap()).eq(large));
}

#[test]
fn the_first_check_passes_on_what_was_written_and_a_later_one_only_its_verdict() {
    let disk = SimDisk::new();
    let (taken, last) = (take(&store(&disk), 300).unwrap(), EntryId::new(4, 300));
    let (here, mut passed) = (store(&disk), Vec::new());
    let ended = here.get_and_read(GROUP, last, &mut |chunk| {
        passed.push(chunk);
        (passed.len() < 2).then(|| vec![7; 50]) // what is in the memory does not matter
    });
    assert!(matches!(ended, Err(WalError::Io { .. })), "half of it gives no verdict");
    assert_eq!(passed, chunks(300)[..2]);
    for expected in [chunks(300), Vec::new()] {
        let mut passed = Vec::new();
        let verdict = here.get_and_read(GROUP, last, &mut |chunk| {
            passed.push(chunk);
            Some(vec![7; 50])
        });
        assert_eq!((verdict, passed), (Ok(Some(taken.clone())), expected));
    }
}

#[test]
fn a_flipped_bit_in_any_byte_is_refused_and_never_served() {
    let disk = SimDisk::new();
    take(&store(&disk), 300).unwrap();
    let whole = disk.contents(&name_of(300)).unwrap();
    for bit in 0..whole.len() * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        disk.set_contents(&name_of(300), Some(bytes));
        let here = store(&disk);
        let error = here.get(GROUP, EntryId::new(4, 300)).unwrap_err();
        let WalError::Damaged { file, offset, what } = &error else { panic!("bit {bit}: {error}") };
        assert!(*file == name_of(300) && !what.is_empty() && *offset <= whole.len() as u64, "{error}");
        assert!(here.open(GROUP, EntryId::new(4, 300)).unwrap().is_none(), "bit {bit}: served");
        assert_eq!(here.newest(GROUP).unwrap(), (None, vec![error]));
        let wanted = ReadChunk { peer: NodeId(2), last: EntryId::new(4, 300), offset: 0, bytes_max: 9 };
        assert_eq!(here.read_chunk(GROUP, &wanted).unwrap(), ChunkRead::Gone);
    }
    for len in 0..whole.len() {
        disk.set_contents(&name_of(300), Some(whole[..len].to_vec()));
        assert!(matches!(store(&disk).newest(GROUP).unwrap(), (None, bad) if bad.len() == 1), "cut at {len}");
    }
    disk.set_contents(&name_of(300), Some([&whole[..], b"x"].concat()));
    assert!(
        store(&disk).get(GROUP, EntryId::new(4, 300)).unwrap_err().to_string().contains("follow the footer")
    );
}

#[test]
fn damage_that_comes_after_the_check_is_noticed_while_reading_and_by_the_peer() {
    let disk = SimDisk::new();
    let here = store(&disk);
    take(&here, 300).unwrap();
    let whole = disk.contents(&name_of(300)).unwrap();
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x40;
        disk.set_contents(&name_of(300), Some(bytes));
        let reader = here.open(GROUP, EntryId::new(4, 300)).unwrap().expect("it was good");
        let read = reader.chunks().and_then(|chunks| chunks.collect::<Result<Vec<_>, _>>());
        assert!(matches!(read, Err(WalError::Damaged { .. })), "byte {at}: {read:?}");
        let other = SimDisk::new();
        let there = store(&other);
        let stored = stream(&here, &there, 300, 1 << 20);
        assert_eq!(stored, ChunkStored { last: EntryId::new(4, 300), next: 0, complete: false }, "byte {at}");
        assert_eq!(other.names().unwrap(), Vec::<String>::new(), "byte {at}: something is left");
    }
}

#[test]
fn chunks_that_change_places_or_come_from_another_file_are_noticed() {
    let disk = SimDisk::new();
    let write = |store: &SnapshotStore, index: u64, chunks: &[&[u8]]| {
        let mut writer = store.create(GROUP, meta(index)).unwrap();
        chunks.iter().for_each(|chunk| writer.push(chunk).unwrap());
        writer.finish().unwrap();
    };
    write(&store(&disk), 300, &[b"left", b"more", b"tail"]);
    write(&store(&disk), 301, &[b"LEFT", b"MORE", b"TAIL"]);
    let (one, two) = (disk.contents(&name_of(300)).unwrap(), disk.contents(&name_of(301)).unwrap());
    let start = one.len() - 56 - 3 * 20;
    let place = |number: usize| start + number * 20..start + (number + 1) * 20;
    let refused = |bytes: Vec<u8>| {
        disk.set_contents(&name_of(300), Some(bytes));
        store(&disk).get(GROUP, EntryId::new(4, 300)).unwrap_err().to_string()
    };
    let swapped = [&one[..start], &one[place(1)], &one[place(0)], &one[place(2).start..]].concat();
    assert!(refused(swapped).contains("chunk 2 where chunk 1 belongs"));
    let left_out = [&one[..start], &one[place(1).start..]].concat();
    assert!(refused(left_out).contains("chunk 2 where chunk 1 belongs"));
    for number in 0..3 {
        let mut mixed = one.clone();
        mixed[place(number)].copy_from_slice(&two[place(number)]);
        assert!(refused(mixed).contains("its bytes and place give"), "{number}");
    }
    let cut = [&one[..place(2).start], &one[place(2).end..]].concat();
    assert!(refused(cut).contains("the footer says 3 chunks with 12 bytes, the file has 2 with 8"));
}

#[test]
fn foreign_files_and_files_of_tomorrow_are_refused_by_name() {
    let disk = SimDisk::new();
    let foreign = SnapshotStore::of(Arc::new(disk.clone()), 0xC2).unwrap();
    take(&foreign, 300).unwrap();
    let here = store(&disk);
    let said = here.get(GROUP, EntryId::new(4, 300)).unwrap_err().to_string();
    assert!(said.starts_with(&name_of(300)), "{said}");
    assert!(said.contains("a snapshot of cluster c2, group 3, up to 4.300; expected cluster c1"), "{said}");
    // This store must not remove it.
    for index in [301, 302, 303] {
        take(&here, index).unwrap();
    }
    assert_eq!(here.tidy(GROUP, LogIndex(u64::MAX)), Ok(1));
    let mut names = disk.names().unwrap();
    names.sort_unstable();
    assert_eq!(names, [name_of(300), name_of(302), name_of(303)]);

    // Under the name of another snapshot.
    disk.set_contents(&name_of(400), disk.contents(&name_of(303)));
    let said = store(&disk).get(GROUP, EntryId::new(4, 400)).unwrap_err().to_string();
    assert!(said.contains("up to 4.303; expected cluster c1, group 3, up to 4.400"), "{said}");

    let mut bytes = disk.contents(&name_of(303)).unwrap();
    bytes[4] = 2;
    let len = u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
    let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[..8]), &bytes[12..len]);
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
    disk.set_contents(&name_of(303), Some(bytes));
    let error = store(&disk).newest(GROUP).unwrap_err();
    assert_eq!(error, WalError::OtherFormat { file: name_of(303), found: 2, supported: 1 });
}

#[test]
fn the_newest_two_good_ones_are_kept() {
    let disk = SimDisk::new();
    let here = store(&disk);
    assert_eq!(here.tidy(GROUP, LogIndex(u64::MAX)), Ok(0));
    for index in [10, 20, 30, 40] {
        take(&here, index).unwrap();
    }
    let mut bytes = disk.contents(&name_of(40)).unwrap();
    bytes[100] ^= 1;
    disk.set_contents(&name_of(40), Some(bytes));
    let here = store(&disk);
    let reader = here.open(GROUP, EntryId::new(4, 10)).unwrap().unwrap();
    assert_eq!(here.tidy(GROUP, LogIndex(u64::MAX)), Ok(2));
    let mut names = disk.names().unwrap();
    names.sort_unstable();
    assert_eq!(names, [name_of(20), name_of(30)]);
    // A reader of a removed one can read it to its end.
    assert!(reader.chunks().unwrap().map(|chunk| chunk.unwrap()).eq(chunks(10)));
    assert!(here.open(GROUP, EntryId::new(4, 10)).unwrap().is_none());
    // While there is one good one only, a damaged one may still be examined.
    disk.set_contents(&name_of(30), Some(b"KTSN".to_vec()));
    assert_eq!(store(&disk).tidy(GROUP, LogIndex(u64::MAX)), Ok(0));
}

#[test]
fn a_removal_that_cannot_be_made_durable_is_a_failed_sync() {
    let disk = SimDisk::new();
    let here = store(&disk);
    for index in [10, 20, 30] {
        take(&here, index).unwrap();
    }
    disk.arm(Fault::NameSyncFails, 0);
    let error = here.tidy(GROUP, LogIndex(u64::MAX)).expect_err("the name may come back");
    assert!(error.is_failed_sync(), "{error}");
}

#[test]
fn one_that_waits_to_become_the_tables_is_kept_however_many_have_come_after_it() {
    let disk = SimDisk::new();
    let here = store(&disk);
    for index in [10, 20, 30, 40, 50] {
        take(&here, index).unwrap();
    }
    // The tables hold what the first one had; the next three wait.
    assert_eq!(here.tidy(GROUP, LogIndex(10)), Ok(1));
    assert!(here.open(GROUP, EntryId::new(4, 20)).unwrap().is_some());
    // Some of them have become the tables, and entries were applied since.
    assert_eq!(here.tidy(GROUP, LogIndex(35)), Ok(2));
    let mut names = disk.names().unwrap();
    names.sort_unstable();
    assert_eq!(names, [name_of(40), name_of(50)]);
    assert_eq!(here.tidy(GROUP, LogIndex(60)), Ok(0), "the newest and one to fall back to");
}

#[test]
fn a_scrub_finds_rot_and_the_damaged_file_is_not_read_any_more() {
    let disk = SimDisk::new();
    let here = store(&disk);
    for index in [10, 20] {
        take(&here, index).unwrap();
    }
    assert_eq!(here.scrub(GROUP), []);
    let mut bytes = disk.contents(&name_of(20)).unwrap();
    bytes[150] ^= 1;
    disk.set_contents(&name_of(20), Some(bytes));
    let wrong = here.scrub(GROUP);
    assert!(matches!(&wrong[..], [WalError::Damaged { file, .. }] if *file == name_of(20)), "{wrong:?}");
    assert!(here.open(GROUP, EntryId::new(4, 20)).unwrap().is_none());
    assert_eq!(here.newest(GROUP).unwrap().0.map(|newest| newest.meta.last), Some(EntryId::new(4, 10)));
    assert_eq!(here.scrub(GROUP), [], "said once");
    // The next one taken, or the same again, makes it right.
    take(&here, 20).unwrap();
    assert_eq!(read(&here, 20), Some(chunks(20)));
    disk.set_contents(&name_of(10), None);
    let missing = here.scrub(GROUP);
    assert!(missing[0].to_string().contains("the file is missing"), "{missing:?}");
}

/// The work of a worker for a peer: it rechecks a doubted snapshot, then reads.
fn serve(store: &SnapshotStore, peer: u64, index: u64, offset: u64) -> (Option<WalError>, ChunkRead) {
    let last = EntryId::new(4, index);
    let wanted = ReadChunk { peer: NodeId(peer), last, offset, bytes_max: 100 };
    (store.recheck_if_doubted(GROUP, &wanted), store.read_chunk(GROUP, &wanted).unwrap())
}

#[test]
fn a_snapshot_that_rotted_is_not_sent_once_a_peer_that_had_all_of_it_begins_anew() {
    let disk = SimDisk::new();
    let here = store(&disk);
    let total = take(&here, 300).unwrap().bytes;
    let mut bytes = disk.contents(&name_of(300)).unwrap();
    let whole = bytes.clone();
    bytes[250] ^= 0x40;
    disk.set_contents(&name_of(300), Some(bytes));
    let is_piece = |read: &ChunkRead| matches!(read, ChunkRead::Bytes { .. });
    // Before the end nothing raises a doubt: a peer that begins, one that goes on, one that lost its first piece.
    for (peer, offset) in
        [(2, 0), (2, 0), (2, 100), (2, 0), (3, 0), (2, 100), (2, total - 100), (2, total - 100)]
    {
        let (wrong, read) = serve(&here, peer, 300, offset);
        assert!(wrong.is_none() && is_piece(&read), "peer {peer}, from {offset}: {wrong:?}");
    }
    let (wrong, read) = serve(&here, 3, 300, 0);
    assert!(wrong.is_none() && is_piece(&read), "another peer, which was given no end of it: {wrong:?}");
    let (wrong, read) = serve(&here, 2, 300, 0);
    assert!(matches!(&wrong, Some(WalError::Damaged { file, .. }) if *file == name_of(300)), "{wrong:?}");
    assert_eq!(read, ChunkRead::Gone);
    assert_eq!(serve(&here, 3, 300, 100), (None, ChunkRead::Gone), "said once, and nobody goes on with it");
    // Taken again, it is given again; and a good file that is doubted stays good.
    take(&here, 300).unwrap();
    assert_eq!(disk.contents(&name_of(300)), Some(whole));
    for offset in [0, total - 100, 0, total - 100, 0] {
        let (wrong, read) = serve(&here, 2, 300, offset);
        assert!(wrong.is_none() && is_piece(&read), "from {offset}: {wrong:?}");
    }
}

#[test]
fn a_snapshot_that_cannot_be_read_any_more_is_gone_and_one_that_could_not_be_read_once_is_not() {
    let disk = SimDisk::new();
    let here = store(&disk);
    take(&here, 300).unwrap();
    let last = EntryId::new(4, 300);
    let wanted = ReadChunk { peer: NodeId(2), last, offset: 0, bytes_max: 100 };
    disk.arm(Fault::ReadFails, 0);
    assert!(matches!(here.read_chunk(GROUP, &wanted), Err(WalError::Io { .. })));
    assert_eq!(here.recheck(GROUP, last), None, "it passed");
    assert!(matches!(here.read_chunk(GROUP, &wanted), Ok(ChunkRead::Bytes { .. })));
    disk.arm(Fault::ReadFails, 0);
    assert!(matches!(here.recheck(GROUP, last), Some(WalError::Io { .. })));
    assert_eq!(here.read_chunk(GROUP, &wanted), Ok(ChunkRead::Gone));
    assert_eq!(here.recheck(GROUP, last), None, "said once");
}

#[test]
fn a_snapshot_whose_file_was_removed_can_be_taken_again() {
    let disk = SimDisk::new();
    let here = store(&disk);
    take(&here, 300).unwrap();
    disk.set_contents(&name_of(300), None);
    assert_eq!(serve(&here, 2, 300, 0), (None, ChunkRead::Gone));
    take(&here, 300).unwrap();
    assert_eq!(read(&here, 300), Some(chunks(300)));
}

#[test]
fn a_file_the_scrub_found_damaged_is_sent_to_no_peer_whatever_memory_has_of_it() {
    let disk = SimDisk::new();
    let here = store(&disk);
    for index in [10, 20] {
        take(&here, index).unwrap();
    }
    here.found_damaged("log-0000000000000001.seg", "no snapshot");
    here.found_damaged(&name_of(30), "there is none");
    here.found_damaged(&name_of(20), "checksum mismatch");
    assert!(here.open(GROUP, EntryId::new(4, 20)).unwrap().is_none());
    let error = here.get(GROUP, EntryId::new(4, 20)).unwrap_err();
    assert!(error.finding().contains("checksum mismatch"), "{error}");
    assert_eq!(read(&here, 10), Some(chunks(10)));
    take(&here, 20).unwrap();
    assert_eq!(read(&here, 20), Some(chunks(20)));
}

#[test]
fn taking_the_same_one_again_leaves_the_first_alone_unless_it_is_damaged() {
    let disk = SimDisk::new();
    let here = store(&disk);
    take(&here, 10).unwrap();
    let mut other = here.create(GROUP, meta(10)).unwrap();
    other.push(b"other bytes of the same state").unwrap();
    let reader = here.open(GROUP, EntryId::new(4, 10)).unwrap().unwrap();
    assert_eq!(other.finish().unwrap().chunks, 4, "the first one");
    assert_eq!(read(&here, 10), Some(chunks(10)));
    drop(reader);
    assert_eq!(disk.names().unwrap(), [name_of(10)]);

    disk.set_contents(&name_of(10), Some(vec![1; 500]));
    let here = store(&disk);
    assert!(here.get(GROUP, EntryId::new(4, 10)).is_err());
    take(&here, 10).unwrap();
    assert_eq!(read(&here, 10), Some(chunks(10)));
}

#[test]
fn pieces_come_late_twice_or_in_another_order_and_another_snapshot_takes_the_place_of_the_first() {
    let (disk, other) = (SimDisk::new(), SimDisk::new());
    let (here, there) = (store(&disk), store(&other));
    for index in [10, 20] {
        take(&here, index).unwrap();
    }
    let bytes = |index: u64| disk.contents(&name_of(index)).unwrap();
    let total = |index: u64| bytes(index).len() as u64;
    let send = |index: u64, range: std::ops::Range<usize>| {
        let piece = SharedBytes::from(bytes(index)[range.clone()].to_vec());
        let meta = meta(index);
        let piece = StoreChunk { meta, offset: range.start as u64, bytes: piece, total: total(index) };
        let stored = there.store_chunk(GROUP, &piece).unwrap();
        assert_eq!(stored.last, EntryId::new(4, index));
        (stored.next, stored.complete)
    };
    let end = total(20) as usize;
    assert_eq!(send(20, 5..9), (0, false), "nothing before it");
    assert_eq!(send(20, 0..9), (9, false));
    assert_eq!(send(20, 0..9), (9, false), "again");
    assert_eq!(send(20, 20..30), (9, false), "a gap");
    assert_eq!(send(20, 5..12), (9, false), "across what is there");
    assert_eq!(send(10, 0..50), (50, false), "another one");
    assert_eq!(send(20, 9..30), (0, false), "the first is forgotten");
    assert_eq!(send(20, 0..end - 1), (total(20) - 1, false));
    assert_eq!(read(&there, 20), None, "not before it is whole");
    assert_eq!(send(20, end - 1..end), (total(20), true));
    assert_eq!(send(20, 0..9), (total(20), true), "it is there");
    assert_eq!(read(&there, 20), Some(chunks(20)));
    assert_eq!(send(10, 0..50), (50, false));
    there.abandon(GROUP);
    assert_eq!(other.names().unwrap(), [name_of(20)]);

    // Bytes of another snapshot than the announced one; and no bytes.
    let lie = StoreChunk { meta: meta(30), offset: 0, bytes: SharedBytes::from(bytes(20)), total: total(20) };
    let said = there.store_chunk(GROUP, &lie).unwrap_err().finding();
    assert!(said.contains("up to 4.20; expected cluster c1, group 3, up to 4.30"), "{said}");
    let nothing = StoreChunk { meta: meta(30), offset: 0, bytes: SharedBytes::from(Vec::new()), total: 0 };
    let said = there.store_chunk(GROUP, &nothing).unwrap_err();
    assert!(matches!(&said, WalError::Damaged { file, .. } if *file == name_of(30)), "{said}");
    assert_eq!(other.names().unwrap(), [name_of(20)]);
}

#[test]
fn a_half_of_a_peers_snapshot_stays_until_the_tables_hold_as_much_and_no_longer() {
    let (disk, other) = (SimDisk::new(), SimDisk::new());
    let (here, there) = (store(&disk), store(&other));
    take(&here, 20).unwrap();
    let bytes = disk.contents(&name_of(20)).unwrap();
    let total = bytes.len() as u64;
    let send = |range: std::ops::Range<usize>| {
        let (offset, bytes) = (range.start as u64, SharedBytes::from(bytes[range].to_vec()));
        there.store_chunk(GROUP, &StoreChunk { meta: meta(20), offset, bytes, total }).unwrap().next
    };
    assert_eq!(send(0..50), 50);
    take(&there, 19).unwrap();
    assert_eq!(there.tidy(GROUP, LogIndex(19)), Ok(0));
    assert_eq!(send(50..60), 60, "it goes on");
    // The log itself has come that far: the member takes a snapshot of its own that covers as much.
    take(&there, 21).unwrap();
    assert_eq!(there.tidy(GROUP, LogIndex(21)), Ok(0), "no snapshot goes");
    let mut names = other.names().unwrap();
    names.sort_unstable();
    assert_eq!(names, [name_of(19), name_of(21)]);
    assert_eq!(send(60..70), 0, "nothing of it is left");
}

#[test]
fn a_full_or_failing_disk_leaves_nothing_behind_and_harms_nothing() {
    let (disk, other) = (SimDisk::new(), SimDisk::new());
    let (here, there) = (store(&disk), store(&other));
    take(&here, 10).unwrap();
    disk.limit_to(Some(disk.bytes() + 200));
    let error = take(&here, 20).unwrap_err();
    assert!(matches!(&error, WalError::NoSpace { file, .. } if *file == name_of(20)), "{error}");
    disk.limit_to(None);
    take(&here, 20).unwrap();
    // There is space for all of a peer's snapshot, or it is not begun.
    other.limit_to(Some(300));
    let bytes = disk.contents(&name_of(20)).unwrap();
    let piece = |len: usize| StoreChunk {
        meta: meta(20),
        offset: 0,
        bytes: SharedBytes::from(bytes[..len].to_vec()),
        total: bytes.len() as u64,
    };
    assert!(matches!(there.store_chunk(GROUP, &piece(10)), Err(WalError::NoSpace { .. })));
    other.limit_to(None);
    assert!(there.store_chunk(GROUP, &piece(bytes.len())).unwrap().complete);

    disk.fail_syncs_after(0);
    let error = take(&here, 30).unwrap_err();
    assert!(error.is_failed_sync(), "{error}");
    disk.fail_syncs_after(u64::MAX);
    disk.fail_writes_after(0);
    assert!(matches!(take(&here, 30), Err(WalError::Io { .. })));
    disk.fail_writes_after(u64::MAX);
    assert!(disk.names().unwrap().iter().all(|name| !name.ends_with(".part")), "{:?}", disk.names());
    assert_eq!(read(&here, 20), Some(chunks(20)));
    assert_eq!(read(&here, 30), None);
}

#[test]
fn a_write_that_the_disk_lost_is_noticed_before_anything_older_goes_or_at_the_next_start() {
    for seed in 0..60 {
        let disk = SimDisk::seeded(seed, Speed::INSTANT);
        let here = store(&disk.mount());
        take(&here, 10).unwrap();
        disk.begin();
        let fault = [Fault::WriteLost, Fault::WriteMisdirected][seed as usize % 2];
        disk.arm(fault, 0);
        disk.begin();
        let _ = take(&here, 20);
        disk.process_dies(u64::MAX);
        disk.drop_cache();
        let again = store(&disk.mount());
        let (newest, bad) = again.newest(GROUP).unwrap();
        match newest.map(|newest| newest.meta.last.index.0) {
            Some(20) => assert_eq!(read(&again, 20), Some(chunks(20)), "seed {seed}"),
            Some(10) => assert!(!bad.is_empty() && read(&again, 10) == Some(chunks(10)), "seed {seed}"),
            // The other file was hit as well.
            other => assert!(other.is_none() && bad.len() == 2 && seed % 2 == 1, "seed {seed}: {bad:?}"),
        }
    }
}

#[test]
fn a_power_cut_leaves_the_whole_snapshot_or_none_and_never_takes_the_one_before() {
    let mut dice = Dice::new(5);
    let run = |disk: &SimDisk| {
        let here = SnapshotStore::of(Arc::new(disk.clone()), CLUSTER).unwrap();
        let mut answered = None;
        for index in [10, 20, 30] {
            match take(&here, index) {
                Ok(_) => answered = Some(index),
                Err(_) => break,
            }
        }
        let _ = here.tidy(GROUP, LogIndex(u64::MAX));
        answered
    };
    let whole = SimDisk::new();
    assert_eq!(run(&whole), Some(30));
    let mut images = 0;
    let mut seen = [0, 0];
    for cut in 0..=whole.operations() {
        let disk = SimDisk::new();
        disk.lose_power_after(cut);
        let answered = run(&disk);
        for image in disk.crash_images(dice.roll(), 16) {
            let here = store(&image);
            let (newest, bad) = here.newest(GROUP).unwrap();
            assert_eq!(bad, [], "a power cut is no damage");
            let newest = newest.map(|newest| newest.meta.last.index.0);
            assert!(answered <= newest, "{answered:?} was answered, {newest:?} is there");
            seen[usize::from(newest.is_some())] += 1;
            if let Some(index) = newest {
                assert_eq!(read(&here, index), Some(chunks(index)));
            }
            images += 1;
        }
    }
    assert!(40 < images && seen.iter().all(|&seen| 10 < seen), "{images} {seen:?}");
}
