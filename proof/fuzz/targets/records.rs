//! Goal: bytes of a log or a frame never crash the reader of records, and are never read as another record.
//!
//! Once as they are; once with their checksums made right. Each entry that is read must be written again as the same
//! bytes, except one that calls its payload missing and still carries bytes: they are no payload.
#![no_main]

use kattu_raft::{Body, EntryId, SharedBytes};
use kattu_wire::record::{self, RecordKind, base_encode, record_verify, truncate_encode};
use kattu_wire::{record_decode, record_encode};
use libfuzzer_sys::fuzz_target;

const CRC: kattu_wire::Crc = crc32c::crc32c_append;

fuzz_target!(|input: &[u8]| {
    read_all(input);
    let mut sealed = input.to_vec();
    let mut at = 0;
    while record::HEADER_BYTES <= sealed.len() - at {
        let one = &mut sealed[at..];
        let len = u32::from_le_bytes(one[0..4].try_into().unwrap()) as usize;
        let end = len.clamp(record::HEADER_BYTES, one.len());
        let payload_crc = CRC(0, &one[record::HEADER_BYTES..end]);
        one[40..44].copy_from_slice(&payload_crc.to_le_bytes());
        let header_crc = CRC(0, &one[..44]);
        one[44..48].copy_from_slice(&header_crc.to_le_bytes());
        at += end;
    }
    read_all(&sealed);
});

fn read_all(bytes: &[u8]) {
    let bytes = SharedBytes::from(bytes.to_vec());
    let mut at = 0;
    loop {
        match record_decode(CRC, &bytes, at, 1 << 16) {
            Ok((group, entry, next)) => {
                assert!(at + record::HEADER_BYTES <= next && next <= bytes.len());
                let carried = &bytes[at + record::HEADER_BYTES..next];
                match entry.body() {
                    Body::Missing if !carried.is_empty() => assert_eq!(entry.payload(), None),
                    body => {
                        assert_eq!(carried, body.bytes());
                        assert_eq!(record_encode(CRC, group, entry.head, body), entry);
                    }
                }
                at = next;
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                let Ok(header) = record_verify(CRC, &bytes, at, 1 << 16) else {
                    return;
                };
                let payload = &bytes[at + record::HEADER_BYTES..at + header.len];
                let base = EntryId { term: header.term, index: header.index };
                let again = match header.kind {
                    RecordKind::Truncate => truncate_encode(CRC, header.group, header.index).to_vec(),
                    RecordKind::Base => base_encode(CRC, header.group, base, payload),
                    RecordKind::Entry(_) => panic!("a whole entry was refused: {error}"),
                };
                assert_eq!(again.len(), header.len);
                at += header.len;
            }
        }
    }
}
