//! Goal: no segment crashes the reader of blocks; an accepted block lies within the segment and holds whole records.
//!
//! Once as it is; once with place, lengths and checksums made right.
#![no_main]

use kattu_wal::block::{Block, BlockHeader, HEADER_BYTES, ROW_BYTES};
use kattu_wire::record;
use libfuzzer_sys::fuzz_target;

const FILE: u64 = 7;
const GENERATION: u64 = 1;

fuzz_target!(|input: &[u8]| {
    check(input);
    let mut sealed = input.to_vec();
    seal(&mut sealed);
    check(&sealed);
});

fn check(segment: &[u8]) {
    for at in (0..segment.len()).step_by(512) {
        match Block::parse(segment, at, FILE, GENERATION) {
            Ok(block) => {
                assert!(at + block.header.len <= segment.len());
                assert_eq!(block.groups.len(), block.header.groups as usize);
                assert_eq!(block.records.len(), block.header.records as usize);
                let mut next = at + HEADER_BYTES;
                for (range, header) in &block.records {
                    assert_eq!((range.start, range.len()), (next, header.len));
                    next = range.end;
                }
                assert_eq!(next, at + HEADER_BYTES + block.header.body);
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

/// Turns the input into one block: its own records, table and flags, everything else made right.
fn seal(bytes: &mut [u8]) {
    if bytes.len() < HEADER_BYTES {
        return;
    }
    let room = bytes.len() - HEADER_BYTES;
    let groups = u32::from_le_bytes(bytes[24..28].try_into().unwrap()) as usize % (room / ROW_BYTES + 1);
    let body = room - groups * ROW_BYTES;
    let (mut at, end, mut records, mut crc) = (HEADER_BYTES, HEADER_BYTES + body, 0, 0);
    while record::HEADER_BYTES <= end - at {
        let one = &mut bytes[at..end];
        let len = u32::from_le_bytes(one[0..4].try_into().unwrap()) as usize;
        let len = len.clamp(record::HEADER_BYTES, one.len());
        one[0..4].copy_from_slice(&(len as u32).to_le_bytes());
        one[5] = record::VERSION;
        let payload_crc = crc32c::crc32c(&one[record::HEADER_BYTES..len]);
        one[40..44].copy_from_slice(&payload_crc.to_le_bytes());
        let header_crc = crc32c::crc32c(&one[..44]);
        one[44..48].copy_from_slice(&header_crc.to_le_bytes());
        crc = crc32c::crc32c_append(crc, &header_crc.to_le_bytes());
        records += 1;
        at += len;
    }
    crc = crc32c::crc32c_append(crc, &bytes[end..]);
    let flags = u16::from_le_bytes([bytes[6], bytes[7]]);
    let header = BlockHeader {
        flags,
        sector: 512,
        chain: 0,
        len: bytes.len(),
        records,
        groups: groups as u32,
        body,
        file_id: FILE,
        generation: GENERATION,
        offset: 0,
        number: 1,
        synced: kattu_wal::Position::default(),
    };
    header.put(bytes, crc);
}
