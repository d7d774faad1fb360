//! Intruders: callers that do not belong, and strangers that answer at a member's address, beside the handshakes of members; and
//! frames on a member's own connection that may not come there. [fault-model NT1, NT2, SE2]
//!
//! Rules: 1. None of them is heard: only members are, each for itself.
//!        2. None of them leaves a trace: all else in a storm is as without them.
//! Knows nothing of: what happens on the way, replicas.

use crate::dice::Dice;
use crate::log::GROUP;
use crate::net::{CLUSTER, Net, id_of};
use crate::operator::is_host_of;
use crate::paths::{Around, KINDS, LANES};
use kattu_member::handshake::{self, Door, First, Heard};
use kattu_node::contract::PeerMessage;
use kattu_node::level;
use kattu_raft::message::TimeoutNow;
use kattu_raft::{Envelope, GroupId, Incarnation, Message, NodeId, Term};
use kattu_wire::{Conflict, Frame, Hello, Join, PROTOCOL_MAX, PROTOCOL_PROOFS, Refused, Removed, Welcome};

/// One for so many handshakes.
const ONE_IN: u64 = 8;
/// A secret that no challenge has.
const WRONG_PROOF: u64 = 0x5EC0_4D06;

impl Net {
    /// Now and then an intruder comes to `to` while `by` calls it.
    pub(crate) fn intrude(&mut self, around: &Around<'_>, by: usize, to: usize) {
        let Some(dice) = self.intruders.as_mut() else { return };
        if !dice.one_in(ONE_IN) {
            return;
        }
        let kind = dice.below(12);
        let hello = match handshake::hello(&self.peers[by].table, id_of(to), KINDS[0]) {
            Frame::Hello(hello) => hello,
            other => unreachable!("{other:?}"),
        };
        let knows = self.peers[to].table.knows(id_of(by));
        let newer = PROTOCOL_MAX + 1;
        match kind {
            0 => self.is_refused(around, to, Frame::Hello(Hello { cluster: CLUSTER ^ 1, ..hello })),
            1 => {
                let speaks = Hello { protocol_min: newer, protocol_max: newer, ..hello };
                self.is_refused(around, to, Frame::Hello(speaks));
            }
            2 => {
                let join = Join { protocol_min: newer, protocol_max: newer, peer_urls: Vec::new() };
                self.is_refused(around, to, Frame::Join(join));
            }
            3 => self.is_refused(around, to, Frame::Level(1)),
            4 => self.is_refused(around, to, Frame::Hello(Hello { from: id_of(to), ..hello })),
            5 | 6 if knows => self.proves_nothing(around, to, &hello, kind == 5),
            7 if knows => self.shows_the_certificate_of_another(around, to, hello),
            8 if knows && level::PROOFS <= self.peers[to].table.level() => {
                let speaks = Hello { protocol_max: PROTOCOL_PROOFS - 1, ..hello };
                self.is_refused(around, to, Frame::Hello(speaks));
            }
            9 | 10 => self.answers_for_another(by, to),
            _ => self.says_on_its_own_connection(by, to),
        }
    }

    fn is_refused(&mut self, around: &Around<'_>, to: usize, frame: Frame) {
        let frame = self.carried(&frame);
        let shown = format!("{frame:?}");
        if let First::Member(..) | First::Newcomer(_) =
            self.door(around).first(frame, &mut self.peers[to].table)
        {
            self.was_heard(to, &shown);
        }
    }

    /// In a member's name, with a message before the proof, or with a wrong one.
    fn proves_nothing(&mut self, around: &Around<'_>, to: usize, hello: &Hello, speaks: bool) {
        let first = self.door(around).first(Frame::Hello(hello.clone()), &mut self.peers[to].table);
        let First::Member(_, mut caller) = first else { return };
        let frame = if speaks { timeout_now(hello.from, to, GROUP) } else { Frame::Proof(WRONG_PROOF) };
        let table = &mut self.peers[to].table;
        let heard = caller.hear(frame.clone(), table);
        if let Some(number) = caller.asked() {
            table.proofs.forget_asked(number);
        }
        if heard.is_ok() {
            self.was_heard(to, &format!("{frame:?}"));
        }
    }

    /// In a member's name, with a certificate that is valid, and for a host of none of them.
    fn shows_the_certificate_of_another(&mut self, around: &Around<'_>, to: usize, hello: Hello) {
        let other = self.peers.len() + 1;
        let is_for = |host: &str| is_host_of(other, host);
        let door = Door { signed: Some(&is_for), ..self.door(around) };
        if let First::Member(..) = door.first(Frame::Hello(hello), &mut self.peers[to].table) {
            self.was_heard(to, "a member's name with the certificate of another host");
        }
    }

    /// On a connection of `by` that is open comes what may not: a message in another member's name, or of a group that is not
    /// there, or another handshake.
    fn says_on_its_own_connection(&mut self, by: usize, to: usize) {
        let Some(lane) = LANES.into_iter().find(|&lane| self.paths.lane(by, to, lane).is_up) else { return };
        let hello = handshake::hello(&self.peers[by].table, id_of(to), KINDS[0]);
        let other = NodeId(self.peers.len() as u64 + 1);
        let frames = [timeout_now(other, to, GROUP), timeout_now(id_of(by), to, GroupId(GROUP.0 + 1)), hello];
        for frame in frames {
            let Some((caller, table)) = self.caller(by, to, lane) else { return };
            if let Ok(Heard::Event(_) | Heard::Believed) = caller.hear(frame.clone(), table) {
                self.was_heard(to, &format!("{frame:?}"));
            }
        }
    }

    /// At the address of `to` answers a program that is not `to`.
    fn answers_for_another(&mut self, by: usize, to: usize) {
        let (to, cluster, member) = (id_of(to), CLUSTER ^ 1, id_of(by));
        let other = NodeId(self.peers.len() as u64 + 1);
        let welcome = Welcome { protocol: PROTOCOL_MAX, from: to, incarnation: Incarnation(1), proof: 0 };
        let answers = [
            Frame::Welcome(Welcome { from: other, ..welcome }),
            Frame::Welcome(Welcome { protocol: PROTOCOL_MAX + 1, ..welcome }),
            Frame::Refused(Refused { reason: String::new() }),
            Frame::Removed(Removed { cluster, member }),
            Frame::Conflict(Conflict { cluster, member }),
            Frame::Level(1),
        ];
        for answer in answers {
            let answer = self.carried(&answer);
            let shown = format!("{answer:?}");
            let table = &mut self.peers[by].table;
            let before = (table.is_removed(), table.was_known());
            let is_welcome = handshake::answered(answer.clone(), to, table).is_ok();
            let is_list = handshake::members_are_told(answer).is_ok();
            if is_welcome || is_list || before != (table.is_removed(), table.was_known()) {
                self.was_heard(by, &shown);
            }
        }
    }

    fn was_heard(&mut self, to: usize, what: &str) {
        let story = format!("n{} hears a program that does not belong: {what}", to + 1);
        self.broken = Some(("only_members_are_heard", story));
    }
}

/// Those of a storm.
pub(crate) fn of_storm(seed: u64) -> Dice {
    Dice::new(seed, "intruders")
}

fn timeout_now(from: NodeId, to: usize, group: GroupId) -> Frame {
    let (to, incarnation, message) = (id_of(to), Incarnation(1), Message::TimeoutNow(TimeoutNow));
    Frame::Message(PeerMessage::Raft(Envelope { group, from, incarnation, to, term: Term(1), message }))
}
