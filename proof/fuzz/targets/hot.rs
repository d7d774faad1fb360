//! Goal: bytes of a client never crash what stands in front of the HTTP/2 library, and calls mean what they mean to the
//! library alone (`shell/server/src/hot/judge.rs`).
//!
//! The input is tried as it is, and as frames whose lengths are right, so that the fuzzer reaches the blocks of heads.
#![no_main]

use libfuzzer_sys::fuzz_target;

/// The kinds of frames that there are, heads and data most often. [RFC 9113 §6]
const KINDS: [u8; 16] = [1, 1, 1, 1, 0, 0, 0, 2, 3, 4, 6, 7, 8, 8, 9, 9];
/// A head in one frame; one message that ends the request.
const WHOLE_HEAD: u8 = 4;
const END_STREAM: u8 = 1;

/// Frames of which each begins with one byte for its kind, one for its flags, one for its stream, and one for its length.
fn framed(mut input: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some(([kind, flags, stream, len], rest)) = input.split_first_chunk() {
        let (payload, rest) = rest.split_at(rest.len().min(usize::from(*len)));
        input = rest;
        let is_usual = kind & 0x80 == 0;
        let kind = KINDS[usize::from(*kind) % KINDS.len()];
        let mut payload = payload.to_vec();
        let flags = match kind {
            1 if is_usual => WHOLE_HEAD,
            0 if is_usual => {
                let len = payload.len() as u32;
                payload.splice(..0, [0].into_iter().chain(len.to_be_bytes()));
                END_STREAM
            }
            _ => *flags,
        };
        bytes.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
        bytes.extend_from_slice(&[kind, flags, 0, 0, 0, *stream]);
        bytes.extend_from_slice(&payload);
    }
    bytes
}

fuzz_target!(|input: &[u8]| {
    kattu_server::judge_hot_input(input);
    kattu_server::judge_hot_input(&framed(input));
});
