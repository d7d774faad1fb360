//! Goal: bytes of a client never crash what stands in front of the HTTP/2 library, and calls mean what they mean to the
//! library alone (`shell/server/src/hot/judge.rs`).
//!
//! The input is tried as it is, and as frames whose lengths are right, so that the fuzzer reaches the blocks of heads.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    kattu_server::judge_hot_input(input);
    kattu_server::judge_hot_input(&kattu_server::hot_frames(input));
});
