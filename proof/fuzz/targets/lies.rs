//! Goal: well-formed lies of peers end no process, and no state contradicts itself.

#![no_main]

#[path = "../../../core/raft/tests/liars/mod.rs"]
mod liars;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    liars::story(bytes).expect("the member's own state");
});
