//! What becomes of input does not depend on where it is cut, and no bytes bring it down.

use super::*;
use crate::budget::Budget;
use crate::hot::hpack::encode;
use crate::hot::judge::{framed, judge};
use proptest::prelude::*;
use std::sync::Arc;

fn input() -> Input {
    let mut input = Input::new(&Account::new(&Arc::new(Budget::of(64 << 20))), false);
    input.room = 100;
    input
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_head(payload.len(), kind, flags, stream, &mut out);
    out.extend_from_slice(payload);
    out
}

fn block(path: &str) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "x"),
        ("content-type", "application/grpc"),
    ] {
        encode(name.as_bytes(), value.as_bytes(), false, &mut block);
    }
    block
}

fn range() -> Vec<u8> {
    block("/etcdserverpb.KV/Range")
}

fn begun(input: &Input) -> Vec<u32> {
    input.begun.iter().map(|call| call.stream).collect()
}

const MESSAGE: [u8; 7] = [0, 0, 0, 0, 2, b'h', b'i'];

#[test]
fn whole_calls_are_hot_and_all_else_is_the_librarys() {
    let mut input = input();
    let heads = [frame(HEADERS, END_HEADERS, 1, &range()), frame(HEADERS, END_HEADERS, 3, &range())].concat();
    input.take(&heads);
    assert!(input.cold.is_empty(), "their messages are to come");
    input.take(&frame(DATA, END_STREAM, 3, &MESSAGE));
    assert_eq!((begun(&input), &input.begun[0].message[..]), (vec![3], &b"hi"[..]));
    // A call in two frames is a cold one.
    input.take(&frame(DATA, 0, 1, &MESSAGE[..6]));
    let cold = [frame(HEADERS, END_HEADERS, 1, &range()), frame(DATA, 0, 1, &MESSAGE[..6])].concat();
    assert_eq!(input.cold.bytes(), cold);
    // So are incomplete ones in front of a cold one, in their order.
    input.cold.clear();
    let other = block("/etcdserverpb.Lease/LeaseGrant");
    let next = [frame(HEADERS, END_HEADERS, 5, &range()), frame(HEADERS, END_HEADERS, 7, &other)].concat();
    input.take(&next);
    assert_eq!(input.cold.bytes(), next);
    assert!(!input.is_hot(1) && input.is_hot(3) && !input.is_hot(7));
    // And those after which nothing comes.
    input.cold.clear();
    input.take(&frame(HEADERS, END_HEADERS, 9, &range()));
    input.settle();
    assert_eq!(input.cold.bytes(), frame(HEADERS, END_HEADERS, 9, &range()));
}

#[test]
fn what_was_reset_with_its_head_is_the_librarys_to_count() {
    let mut input = input();
    let reset = [frame(HEADERS, END_HEADERS, 1, &range()), frame(RST_STREAM, 0, 1, &[0, 0, 0, 8])].concat();
    input.take(&reset);
    assert_eq!(input.cold.bytes(), reset);
    input.take(&[frame(HEADERS, END_HEADERS, 3, &range()), frame(DATA, END_STREAM, 3, &MESSAGE)].concat());
    input.cold.clear();
    let late = [frame(RST_STREAM, 0, 3, &[0, 0, 0, 8]), frame(RST_STREAM, 0, 3, &[0, 0, 0, 8])].concat();
    input.take(&late);
    assert!(input.cold.is_empty() && input.streams.is_empty());
}

/// A window that came while a frame of the library's was incomplete is lent behind that frame.
#[test]
fn the_library_is_lent_more_once_its_frame_is_complete() {
    let mut input = input();
    input.take(&frame(WINDOW_UPDATE, 0, 0, &[0, 1, 0, 0]));
    let data = frame(DATA, 0, 1, &[0; 100]);
    input.take(&data[..50]);
    input.windows.spend_lent(60_000);
    input.lend();
    assert_eq!(input.cold.len(), 50, "not into the frame");
    input.take(&data[50..]);
    assert_eq!(input.cold.bytes()[..data.len()], data);
    assert_eq!(input.cold.bytes()[data.len()..][..5], [0, 0, 4, WINDOW_UPDATE, 0]);
}

/// Bytes that wait for the library are bounded, however many a read gave.
#[test]
fn no_more_is_read_than_may_wait_for_the_library() {
    let mut input = input();
    let other = frame(HEADERS, END_HEADERS | END_STREAM, 1, &block("/x"));
    let all: Vec<u8> = (0..1_000).flat_map(|_| other.clone()).collect();
    input.take(&all);
    let mut seen = 0;
    while input.is_stopped() {
        assert!(input.cold.len() < COLD_MAX + other.len());
        seen += input.cold.len();
        input.cold.clear();
        input.take(&[]);
    }
    assert_eq!(seen + input.cold.len(), all.len());
}

/// Found by the fuzz target `hot`: a head that waits for its message becomes a cold one behind a frame of which the library
/// has a part, and not within it.
#[test]
fn a_head_is_not_settled_within_a_frame_of_the_librarys() {
    let waits = frame(HEADERS, END_HEADERS, 3, &range());
    let other = [frame(HEADERS, END_HEADERS, 1, &block("/x")), frame(DATA, 0, 1, &[7; 100])].concat();
    let mut input = input();
    input.take(&other[..other.len() - 109]);
    input.take(&[&waits[..], &other[other.len() - 109..][..50]].concat());
    input.settle();
    assert_eq!(input.cold.bytes(), &other[..other.len() - 59]);
    input.take(&other[other.len() - 59..]);
    assert_eq!(input.cold.bytes(), [other, waits].concat());
}

/// Found by the fuzz target `hot`: what is not the rest of a head that is begun is looked at when all of it has come, and of
/// two mistakes in a head the library sees another one.
#[test]
fn broken_heads_are_no_better_here() {
    let begun = frame(HEADERS, 0, 1, &range()[..9]);
    judge(&[&begun[..], &frame(HEADERS, END_HEADERS, 1, &range())[..30]].concat());
    let padded = [&[0xff; 5][..], &range()].concat();
    judge(&frame(HEADERS, 0xff, u32::MAX, &padded));
    assert!(input_of(&frame(HEADERS, 0xff, u32::MAX, &padded)).fault.is_some());
}

fn input_of(bytes: &[u8]) -> Input {
    let mut input = input();
    input.take(bytes);
    input
}

/// A frame, chosen by small numbers.
fn any_frame((kind, flags, stream, payload): (u8, u8, u32, Vec<u8>)) -> Vec<u8> {
    match kind {
        0..=3 => frame(HEADERS, END_HEADERS, stream, &range()),
        4..=6 => frame(DATA, END_STREAM, stream, &MESSAGE),
        7 => frame(HEADERS, END_HEADERS | END_STREAM, stream, &block("/")),
        8 => frame(HEADERS, 0, stream, &range()[..9]),
        9 => frame(CONTINUATION, END_HEADERS, stream, &range()[9..]),
        10 => frame(WINDOW_UPDATE, 0, stream & 1, &[0, 0, 1, 0]),
        kind => frame(kind - 11, flags, stream, &payload),
    }
}

#[test]
fn a_client_that_promises_a_response_is_told_that_none_can() {
    // The block of a promise may refer to the client's table, which the library does not have. [RFC 9113 §8.4]
    let block =
        [&[0x83, 0x86, 0x44, 22], &b"/etcdserverpb.KV/Range"[..], b"\x41\x01x\x5f\x10application/grpc"]
            .concat();
    let mut bytes = frame(HEADERS, END_HEADERS, 1, &block);
    bytes.extend(frame(DATA, END_STREAM, 1, &MESSAGE));
    bytes.extend(frame(PUSH_PROMISE, END_HEADERS, 3, &[0, 0, 0, 2, 0xbf, 0xbe]));
    judge(&bytes);
    let mut input = input();
    input.take(&bytes);
    assert_eq!(input.fault, Some(Reason::PROTOCOL_ERROR));
}

/// What the fuzzer has found, and what it begins with.
#[test]
fn the_judge_finds_nothing_in_the_seeds_of_its_fuzz_target() {
    let seeds = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proof/fuzz/seeds/hot");
    let mut count = 0;
    for seed in std::fs::read_dir(seeds).expect("the folder") {
        let seed = std::fs::read(seed.expect("a seed").path()).expect("its bytes");
        judge(&seed);
        judge(&framed(&seed));
        count += 1;
    }
    assert!(10 < count, "{count} seeds");
}

proptest! {
    #[test]
    fn it_does_not_matter_where_input_is_cut(
        frames in proptest::collection::vec(
            (0_u8..22, any::<u8>(), 0_u32..24, proptest::collection::vec(any::<u8>(), 0..12)), 0..40),
        cut in 1_usize..50,
    ) {
        let bytes: Vec<u8> = frames.into_iter().flat_map(any_frame).collect();
        let (mut whole, mut cut_up) = (input(), input());
        whole.take(&bytes);
        bytes.chunks(cut).for_each(|part| cut_up.take(part));
        whole.settle();
        cut_up.settle();
        prop_assert_eq!(whole.cold.bytes(), cut_up.cold.bytes());
        prop_assert_eq!(begun(&whole), begun(&cut_up));
        prop_assert_eq!(whole.fault, cut_up.fault);
        prop_assert_eq!((whole.owed, whole.cold_max, whole.highest), (cut_up.owed, cut_up.cold_max, cut_up.highest));
        prop_assert!(whole.partial.len() < FRAME_BYTES_MAX + HEAD_BYTES);
    }

    /// Blocks that refer to the table, and any others, among whole calls.
    #[test]
    fn the_library_sees_what_it_would_see_alone(
        frames in proptest::collection::vec(
            (0_u8..22, any::<u8>(), 0_u32..24, proptest::collection::vec(any::<u8>(), 0..12)), 0..20),
        blocks in proptest::collection::vec(0_usize..9, 0..20),
    ) {
        let mut bytes: Vec<u8> = frames.into_iter().flat_map(any_frame).collect();
        judge(&bytes);
        bytes.clear();
        let literal = range();
        for (number, block) in blocks.into_iter().enumerate() {
            let stream = 2 * number as u32 + 1;
            let first: &[u8] = &[&[0x83, 0x86, 0x44, 22], &b"/etcdserverpb.KV/Range"[..], b"\x41\x01x\x5f\x10application/grpc"].concat();
            let block = [
                first,
                &literal,
                &[0x83, 0x86, 0xc0, 0xbf, 0xbe],
                &[0x83, 0x86, 0xc1, 0xc0, 0xbf, 0x40, 1, b'x', 1, b'y'],
                &[0x83, 0x86, 0xc1, 0xc0, 0xbf],
                &[0x3f, 0x81, 0x01, 0x83, 0x86, 0xc0, 0xbf, 0xbe],
                &[0x20, 0x3f, 0xe1, 0x1f, 0x83, 0x86, 0x84],
                &[0x83, 0x86, 0x84, 0x50, 0x84, 0x10, 0x25, 0xa8, 0x4f],
                &[0xbe],
            ][block];
            bytes.extend(frame(HEADERS, END_HEADERS, stream, block));
            bytes.extend(frame(DATA, END_STREAM, stream, &MESSAGE));
        }
        judge(&bytes);
    }

    #[test]
    fn no_bytes_bring_it_down(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let mut input = input();
        input.take(&bytes);
        input.settle();
        judge(&bytes);
    }
}
