//! Non-blocking: storms in which the cluster changes between raft and nb-raft, with weak answers in some, and appends take
//! several streams.
//!
//! Knows nothing of: what a window does.

use crate::clock::SEC;
use crate::dice::Dice;
use crate::inject::{Change, Inject, Injection};
use crate::paths::STREAMS_HERE;
use kattu_member::streams::{Dispatch, Streams};
use kattu_raft::policy::{Capacity, Weak};
use kattu_raft::{NbRaft, Protocol};

/// Adds changes of the protocol, behind all other injections.
pub(crate) fn draw(
    dice: &mut Dice,
    mut of_weak: Option<&mut Dice>,
    length: u64,
    injections: &mut Vec<(u32, Injection)>,
) {
    let gap = dice.log_within(SEC, 40 * SEC);
    let mut at = 0;
    let mut number = injections.len() as u32;
    while at < length {
        let window = Capacity {
            entries: dice.log_within(1, 10_000) as u32,
            bytes: dice.log_within(1 << 10, 64 << 20),
        };
        // Mostly on, so that many clients have weak answers.
        let is_raft = dice.one_in(4) && of_weak.as_deref_mut().is_none_or(|dice| dice.one_in(4));
        let protocol = if is_raft {
            Protocol::Raft
        } else {
            let (weak, budget) = of_weak.as_deref_mut().map(draw_weak).unwrap_or_default();
            Protocol::NbRaft(NbRaft { window, weak, budget })
        };
        injections.push((number, Injection { at, what: Inject::Change(Change::Protocol(protocol)) }));
        number += 1;
        at += dice.within(gap / 4, gap * 7 / 4);
    }
    injections.sort_by_key(|(_, injection)| injection.at);
}

/// When weak answers are given, and their budget.
fn draw_weak(dice: &mut Dice) -> (Weak, Capacity) {
    let budget = Capacity { entries: dice.log_within(1, 1000) as u32, bytes: dice.log_within(64, 1 << 20) };
    match dice.below(16) {
        0 => (Weak::Off, Capacity::default()),
        1..6 => (Weak::Gap, budget),
        _ => (Weak::Receipt, budget),
    }
}

/// The streams to each peer. Where single frames are lost, no order can be restored.
pub(crate) fn draw_streams(dice: &mut Dice, may_lose: bool) -> Streams {
    let links_per_peer = dice.within(1, u64::from(STREAMS_HERE)) as u8;
    let is_ordered = dice.one_in(3) && !may_lose;
    let dispatch = if is_ordered { Dispatch::Ordered } else { Dispatch::Unordered };
    Streams { links_per_peer, dispatch }
}
