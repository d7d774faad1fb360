//! Goal: bytes from a peer never crash this member, and are never read as anything but what was sent.
//!
//! The input is a stream, read once as it is, and once with its checksums made right, so that the fuzzer reaches what
//! lies behind them. Each frame that is read must be written again as the same bytes.
#![no_main]

use kattu_raft::SharedBytes;
use kattu_wire::record;
use kattu_wire::{Codec, Frame, FrameWriter, frame};
use libfuzzer_sys::fuzz_target;

const CODEC: Codec = Codec::new(crc32c::crc32c_append);
const LIMIT: usize = 1 << 16;

fuzz_target!(|stream: &[u8]| {
    read_all(stream);
    let mut sealed = stream.to_vec();
    seal(&mut sealed);
    read_all(&sealed);
});

/// Reads frames off a stream as a peer link does.
fn read_all(stream: &[u8]) {
    let stream = SharedBytes::from(stream.to_vec());
    let mut at = 0;
    while let Ok(Some(len)) = CODEC.peek_len(&stream[at..], LIMIT) {
        assert!(frame::HEADER_BYTES <= len && len <= LIMIT);
        if stream.len() - at < len {
            return;
        }
        let bytes = stream.slice(at..at + len);
        match CODEC.decode(&bytes) {
            Ok(Frame::Unknown { .. }) => {}
            Ok(read) => {
                let mut writer = FrameWriter::default();
                CODEC.encode(&read, &mut writer);
                let again: Vec<u8> = writer.pieces().flatten().copied().collect();
                assert_eq!(&*bytes, &again[..], "{read:?}");
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        at += len;
    }
}

/// Makes the first frame's magic, lengths and checksums right, and those of the records behind its fields.
fn seal(bytes: &mut [u8]) {
    let len = bytes.len();
    if len < frame::HEADER_BYTES {
        return;
    }
    bytes[0..4].copy_from_slice(b"KTF\xA7");
    bytes[4] = frame::VERSION;
    bytes[6..8].fill(0);
    bytes[8..12].copy_from_slice(&(len as u32).to_le_bytes());
    let fields =
        u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize % (len - frame::HEADER_BYTES + 1);
    bytes[12..16].copy_from_slice(&(fields as u32).to_le_bytes());
    let behind = frame::HEADER_BYTES + fields;
    seal_records(&mut bytes[behind..]);
    let fields_crc = crc32c::crc32c(&bytes[frame::HEADER_BYTES..behind]);
    bytes[16..20].copy_from_slice(&fields_crc.to_le_bytes());
    let header_crc = crc32c::crc32c(&bytes[..20]);
    bytes[20..24].copy_from_slice(&header_crc.to_le_bytes());
}

fn seal_records(mut bytes: &mut [u8]) {
    while record::HEADER_BYTES <= bytes.len() {
        let len = u32::from_le_bytes(bytes[0..4].try_into().unwrap()) as usize;
        let len = len.clamp(record::HEADER_BYTES, bytes.len());
        let (one, rest) = bytes.split_at_mut(len);
        one[0..4].copy_from_slice(&(len as u32).to_le_bytes());
        one[5] = record::VERSION;
        let payload_crc = crc32c::crc32c(&one[record::HEADER_BYTES..]);
        one[40..44].copy_from_slice(&payload_crc.to_le_bytes());
        let header_crc = crc32c::crc32c(&one[..44]);
        one[44..48].copy_from_slice(&header_crc.to_le_bytes());
        bytes = rest;
    }
}
