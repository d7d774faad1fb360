//! Goal: well-formed lies of peers end no process, and no state contradicts itself.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    kattu_peers::liars::story(bytes).expect("the member's own state");
});
