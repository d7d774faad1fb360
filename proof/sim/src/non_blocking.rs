//! Non-blocking: storms in which the cluster changes between raft and nb-raft, and appends take several streams.
//!
//! Knows nothing of: what a window does.

use crate::clock::SEC;
use crate::dice::Dice;
use crate::inject::{Change, Inject, Injection};
use crate::paths::STREAMS_HERE;
use kattu_member::streams::{Dispatch, Streams};
use kattu_raft::policy::Capacity;
use kattu_raft::{NbRaft, Protocol};

/// Adds changes of the protocol, behind all other injections.
pub(crate) fn draw(dice: &mut Dice, length: u64, injections: &mut Vec<(u32, Injection)>) {
    let gap = dice.log_within(SEC, 40 * SEC);
    let mut at = 0;
    let mut number = injections.len() as u32;
    while at < length {
        let window = Capacity {
            entries: dice.log_within(1, 10_000) as u32,
            bytes: dice.log_within(1 << 10, 64 << 20),
        };
        let protocol = if dice.one_in(4) {
            Protocol::Raft
        } else {
            Protocol::NbRaft(NbRaft { window, ..NbRaft::default() })
        };
        injections.push((number, Injection { at, what: Inject::Change(Change::Protocol(protocol)) }));
        number += 1;
        at += dice.within(gap / 4, gap * 7 / 4);
    }
    injections.sort_by_key(|(_, injection)| injection.at);
}

/// The streams to each peer. Where single frames are lost, no order can be restored: TCP loses none.
pub(crate) fn draw_streams(dice: &mut Dice, may_lose: bool) -> Streams {
    let links_per_peer = dice.within(1, u64::from(STREAMS_HERE)) as u8;
    let is_ordered = dice.one_in(3) && !may_lose;
    let dispatch = if is_ordered { Dispatch::Ordered } else { Dispatch::Unordered };
    Streams { links_per_peer, dispatch }
}
