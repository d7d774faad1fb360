//! Goal: no file crashes the reader of snapshots; an accepted one is read to its end, its chunks are as large as they
//! say, and a peer that is sent its bytes has the same snapshot.
//!
//! Once as it is; once with names, numbers, checksums and the digest made right.
#![no_main]

use kattu_raft::{ChunkRead, EntryId, GroupId, NodeId, ReadChunk, StoreChunk};
use kattu_wal::SnapshotStore;
use kattu_disk::SimDisk;
use libfuzzer_sys::fuzz_target;
use sha2::{Digest, Sha256};
use std::sync::Arc;

const CLUSTER: u64 = 0xC1;
const NAME: &str = "snapshot-00000000-0000000000000003-0000000000000001.snap";
const HEADER: usize = 64;
const CHUNK: usize = 16;
const FOOTER: usize = 56;

fuzz_target!(|input: &[u8]| {
    check(input);
    let mut sealed = input.to_vec();
    if seal(&mut sealed).is_some() {
        check(&sealed);
    }
});

fn check(bytes: &[u8]) {
    let disk = SimDisk::new();
    disk.set_contents(NAME, Some(bytes.to_vec()));
    let store = SnapshotStore::of(Arc::new(disk), CLUSTER).expect("names are listed");
    let last = EntryId::new(1, 3);
    let snapshot = match store.get(GroupId(0), last) {
        Ok(snapshot) => snapshot.expect("it is there"),
        Err(error) => {
            assert!(error.to_string().contains(NAME));
            return;
        }
    };
    let reader = store.open(GroupId(0), last).expect("it can be read").expect("it is good");
    let chunks: Vec<Vec<u8>> = reader.chunks().expect("checked").map(|chunk| chunk.expect("checked")).collect();
    assert_eq!(chunks.len() as u64, snapshot.chunks);
    let laid_out: usize = chunks.iter().map(|chunk| CHUNK + chunk.len()).sum();
    assert!(HEADER + laid_out + FOOTER <= bytes.len());

    let other = SnapshotStore::of(Arc::new(SimDisk::new()), CLUSTER).expect("names are listed");
    let wanted = ReadChunk { peer: NodeId(2), last, offset: 0, bytes_max: usize::MAX };
    let Ok(ChunkRead::Bytes { bytes: all, total }) = store.read_chunk(GroupId(0), &wanted) else {
        panic!("a good snapshot is served")
    };
    assert_eq!(&all[..], bytes);
    let piece = StoreChunk { meta: snapshot.meta.clone(), offset: 0, bytes: all, total };
    assert!(other.store_chunk(GroupId(0), &piece).expect("there is room").complete);
    assert_eq!(other.get(GroupId(0), last), Ok(Some(snapshot)));
}

/// Makes everything right except what only the input can give: lengths, the membership, the chunks' bytes.
fn seal(bytes: &mut [u8]) -> Option<()> {
    let room = bytes.len().checked_sub(HEADER + FOOTER)?;
    let header = HEADER + u32::from_le_bytes(bytes[12..16].try_into().ok()?) as usize % (room + 1);
    bytes[0..4].copy_from_slice(b"KTSN");
    bytes[4..8].copy_from_slice(&1_u32.to_le_bytes());
    bytes[12..16].copy_from_slice(&(header as u32).to_le_bytes());
    bytes[16..24].copy_from_slice(&CLUSTER.to_le_bytes());
    bytes[24..32].fill(0);
    bytes[32..40].copy_from_slice(&1_u64.to_le_bytes());
    bytes[40..48].copy_from_slice(&3_u64.to_le_bytes());
    let mut crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[..8]), &bytes[12..header]);
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());

    let footer = bytes.len() - FOOTER;
    let (mut at, mut chunks, mut content) = (header, 0_u64, 0_u64);
    while at < footer {
        let room = (footer - at).checked_sub(CHUNK).filter(|room| 0 < *room)?;
        let len = (u32::from_le_bytes(bytes[at..at + 4].try_into().ok()?) as usize).clamp(1, room);
        // Nothing may be left that is too short for another chunk.
        let len = if room - len <= CHUNK { room } else { len };
        chunks += 1;
        content += len as u64;
        bytes[at..at + 4].copy_from_slice(&(len as u32).to_le_bytes());
        bytes[at + 8..at + 16].copy_from_slice(&chunks.to_le_bytes());
        crc = crc32c::crc32c_append(crc, &bytes[at..at + 4]);
        crc = crc32c::crc32c_append(crc, &bytes[at + 8..at + CHUNK + len]);
        bytes[at + 4..at + 8].copy_from_slice(&crc.to_le_bytes());
        at += CHUNK + len;
    }
    let digest = Sha256::digest(&bytes[..footer]);
    bytes[footer..footer + 4].fill(0);
    bytes[footer + 8..footer + 16].copy_from_slice(&chunks.to_le_bytes());
    bytes[footer + 16..footer + 24].copy_from_slice(&content.to_le_bytes());
    bytes[footer + 24..].copy_from_slice(&digest);
    crc = crc32c::crc32c_append(crc, &bytes[footer..footer + 4]);
    crc = crc32c::crc32c_append(crc, &bytes[footer + 8..]);
    bytes[footer + 4..footer + 8].copy_from_slice(&crc.to_le_bytes());
    Some(())
}
