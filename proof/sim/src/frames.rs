//! Frames: the messages of members as bytes, and what arrives of them.
//!
//! Each message is a real frame: encoded where it is sent, damaged on its way if the storm says so, checked and decoded where it
//! arrives, and admitted by the caller of its connection. A frame that is damaged costs the connection, never more.
//! [fault-model NT3, F33–F37]
//! Knows nothing of: what happens on the way (`paths`), what messages mean, members' insides.

use crate::faults::Fault;
use crate::net::Net;
use crate::paths::{Around, BULK, CONTROL, Flying, Harm, KINDS, LANES, Outgoing, SNAPSHOT, load_of};
use crate::world::Event;
use kattu_member::handshake::Heard as Brings;
use kattu_member::{lanes, streams};
use kattu_node::contract::{Event as NodeEvent, Forward, PeerMessage};
use kattu_raft::{SharedBytes, Term};
use kattu_wire::{Codec, Frame, FrameWriter, Lane as LaneKind, Order};

fn lane_number(kind: LaneKind) -> usize {
    KINDS.iter().position(|known| *known == kind).unwrap_or(BULK)
}

/// What a member hears.
#[derive(Debug)]
pub(crate) enum Heard {
    /// A message.
    Message(PeerMessage),
    /// A message of several streams, and what has waited for it.
    InOrder(Vec<PeerMessage>),
    /// The connection is given up.
    Broken,
    /// Nothing.
    Nothing,
    /// A damaged frame was taken for a good one.
    Fooled(String),
}

impl Net {
    /// The bytes of a frame.
    fn bytes_of(&mut self, encode: impl FnOnce(&Codec, &mut FrameWriter)) -> SharedBytes {
        self.writer.clear();
        encode(&self.codec, &mut self.writer);
        let mut bytes = Vec::with_capacity(self.writer.len());
        self.writer.pieces().for_each(|piece| bytes.extend_from_slice(piece));
        SharedBytes::from(bytes)
    }

    /// A frame of a handshake, as it arrives.
    pub(crate) fn carried(&mut self, frame: &Frame) -> Frame {
        let bytes = self.bytes_of(|codec, writer| codec.encode(frame, writer));
        let arrived = self.decode(&bytes);
        assert_eq!(arrived.as_ref(), Ok(frame), "a frame survives its bytes");
        arrived.expect("just seen")
    }

    fn decode(&self, bytes: &SharedBytes) -> Result<Frame, String> {
        let len = self.codec.peek_len(bytes, self.frame_bytes_max).map_err(|error| error.to_string())?;
        if len != Some(bytes.len()) {
            return Err(format!("{len:?} of {} bytes", bytes.len()));
        }
        self.codec.decode(bytes).map_err(|error| error.to_string())
    }

    /// Sends one message; gives back a forward that could not leave.
    pub(crate) fn send(
        &mut self,
        around: &mut Around<'_>,
        from: usize,
        message: PeerMessage,
    ) -> Option<Forward> {
        let to = (message.to().0 - 1) as usize;
        let is_answerable = !matches!(message, PeerMessage::Forward(_)) || self.paths.is_up(to, from);
        let unsent = |lane| self.paths.unsent(from, to, lane, around.now);
        let is_up = |lane| self.paths.lane(from, to, lane).is_up;
        let kind = lanes::lane_of(&message, || unsent(BULK).0 > 0, is_up(CONTROL));
        let is_spread = kind == LaneKind::Bulk && streams::is_spread(&message);
        let (lane, order) = match is_spread {
            true => self.spread(from, to, around.now, &message),
            false => (lane_number(kind), None),
        };
        let unsent = |lane| self.paths.unsent(from, to, lane, around.now);
        let is_up = |lane| self.paths.lane(from, to, lane).is_up;
        let (is_open, is_idle) = (is_up(lane), self.paths.lane(from, to, lane).is_idle());
        let (waits, bytes_max) = unsent(lane);
        if lane == CONTROL && self.paths.path(from, to).clog.is_some() {
            around.tally.add(Fault::F37);
        }
        if !is_answerable || !lanes::takes(is_open, lane == SNAPSHOT, is_idle, waits, bytes_max) {
            around.trace.mix(3);
            return match message {
                PeerMessage::Forward(forward) => Some(forward),
                _ => None,
            };
        }
        let bytes = self.bytes_of(|codec, writer| codec.encode_message(&message, writer));
        let term = match &message {
            PeerMessage::Raft(envelope) => envelope.term,
            PeerMessage::Forward(forward) => forward.term,
            PeerMessage::ForwardReply(reply) => reply.term,
        };
        self.paths.keep(from, to, &bytes, (self.peers[from].run, self.peers[to].run), term);
        if is_spread {
            self.spread_one(from, to);
        }
        let frame = Outgoing { bytes, load: load_of(&message), order };
        if is_open {
            self.paths.send_out(around, from, to, lane, frame);
        } else {
            self.paths.lane_mut(from, to, lane).wait(frame);
            self.want(around, from, to);
        }
        None
    }

    /// A frame arrives at a living member: what it hears.
    pub(crate) fn receive(&mut self, around: &mut Around<'_>, flying: &Flying) -> Heard {
        let Some(is_late) = self.paths.arrive(around, flying) else {
            if self.paths.is_missed(flying) {
                self.miss(around, flying);
            }
            return Heard::Nothing;
        };
        let broken = if is_late { Heard::Nothing } else { Heard::Broken };
        match flying.harm {
            Harm::None => {
                match self.hear(flying.order, &flying.bytes, flying.from, flying.to, &[flying.lane]) {
                    Ok(Some((Some(order), message))) => Heard::InOrder(self.in_order(flying, order, message)),
                    Ok(Some((None, message))) => Heard::Message(message),
                    Ok(None) => Heard::Nothing,
                    Err(reason) => Heard::Fooled(format!("a good frame was refused: {reason}")),
                }
            }
            Harm::Flipped => match self.decode(&flying.bytes) {
                Err(_) => {
                    around.tally.add(Fault::F35);
                    broken
                }
                Ok(frame) => Heard::Fooled(format!("a frame with a flipped bit was taken for {frame:?}")),
            },
            Harm::CutOff => {
                around.tally.add(Fault::F34);
                match self.codec.peek_len(&flying.bytes, self.frame_bytes_max) {
                    Ok(Some(len)) if len <= flying.bytes.len() => {
                        Heard::Fooled("the beginning of a frame was taken for all of it".into())
                    }
                    Ok(_) => broken,
                    Err(error) => {
                        Heard::Fooled(format!("the beginning of a good frame was refused: {error}"))
                    }
                }
            }
        }
    }

    /// The message in these bytes, as the caller on one of these lanes may send it, with its place if it has one.
    fn hear(
        &mut self,
        order: Option<Order>,
        bytes: &SharedBytes,
        from: usize,
        to: usize,
        lanes: &[usize],
    ) -> Result<Option<(Option<Order>, PeerMessage)>, String> {
        let frame = self.decode(bytes)?;
        let order = order.map(|order| self.carried(&Frame::Order(order)));
        let at = from * self.peers.len() + to;
        let on = lanes.iter().find(|lane| self.links[at][**lane].caller.is_some());
        let Some((caller, table)) = on.and_then(|&lane| self.caller(from, to, lane)) else { return Ok(None) };
        if let Some(order) = order {
            caller.hear(order, table)?;
        }
        match caller.hear(frame, table)? {
            Brings::Event(NodeEvent::Peer(message)) => {
                self.heard += 1;
                Ok(Some((None, message)))
            }
            Brings::InOrder(order, NodeEvent::Peer(message)) => {
                self.heard += 1;
                Ok(Some((Some(order), message)))
            }
            Brings::Event(_) | Brings::InOrder(..) | Brings::Believed | Brings::Nothing => Ok(None),
        }
    }

    /// Frames of long ago, for `to`, each with its sender: only such as are of an older term than the receiver's, or of a
    /// run that has ended.
    pub(crate) fn replay(&mut self, around: &mut Around<'_>, to: usize, term: Term, count: u64) {
        for _ in 0..count {
            let from = self.paths.dice.below(self.peers.len() as u64) as usize;
            let runs = (self.peers[from].run, self.peers[to].run);
            let Some(bytes) = self.paths.old(from, to, term, runs) else { continue };
            if let Ok(Some((_, message))) = self.hear(None, &bytes, from, to, &LANES) {
                around.tally.add(Fault::F36);
                around.queue.plan(around.now, Event::Late { to, message: Box::new(message) });
            }
        }
    }
}
