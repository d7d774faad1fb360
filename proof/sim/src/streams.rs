//! Streams: what is sent on several connections to one peer, and what waits at that peer for what was sent before.
//! [shell/member `streams`]
//!
//! Knows nothing of: which of the connections are open (`net`), what happens on the way (`paths`).

use crate::net::Net;
use crate::paths::{Around, BULK, Flying, Harm, KINDS, LANES, Outgoing, STREAM};
use crate::world::Event;
use kattu_member::streams::{self, InOrder, Spread, Streams};
use kattu_node::contract::PeerMessage;
use kattu_raft::LinkEnd;
use kattu_wire::Order;

/// The lane of a stream; the first one is the bulk lane.
fn lane_of(stream: usize) -> usize {
    if stream == 0 { BULK } else { STREAM + stream - 1 }
}

/// The streams between all members.
pub(crate) struct Streamed {
    streams: Streams,
    spreads: Vec<Spread>,
    readers: Vec<InOrder<PeerMessage>>,
    /// Single frames may be lost: then no message has a place, because others would wait for one that is lost.
    may_lose: bool,
}

impl Streamed {
    pub(crate) fn new(streams: Streams, members: usize, may_lose: bool) -> Streamed {
        let ways = members * members;
        Streamed {
            streams,
            spreads: vec![Spread::new(streams, 1); ways],
            readers: (0..ways).map(|_| InOrder::default()).collect(),
            may_lose,
        }
    }
}

impl Net {
    /// The lanes that members have.
    pub(crate) fn lanes(&self) -> &'static [usize] {
        &LANES[..STREAM + self.streamed.streams.further().count()]
    }

    /// The lane for an append, and its place if it has one.
    pub(crate) fn spread(
        &mut self,
        from: usize,
        to: usize,
        now: u64,
        message: &PeerMessage,
    ) -> (usize, Option<Order>) {
        let at = self.at(from, to);
        let (spread, paths) = (&mut self.streamed.spreads[at], &self.paths);
        let stream = spread.next(|stream| {
            let lane = lane_of(stream);
            paths.lane(from, to, lane).is_up.then(|| paths.unsent(from, to, lane, now).0)
        });
        (lane_of(stream), spread.order(message).filter(|_| !self.streamed.may_lose))
    }

    /// Its lane has taken it.
    pub(crate) fn spread_one(&mut self, from: usize, to: usize) {
        let at = self.at(from, to);
        self.streamed.spreads[at].taken();
    }

    /// A message arrives that has a place. Returns what is read now.
    pub(crate) fn in_order(
        &mut self,
        flying: &Flying,
        order: Order,
        message: PeerMessage,
    ) -> Vec<PeerMessage> {
        let at = self.at(flying.from, flying.to);
        self.streamed.readers[at].arrived(order, message, flying.bytes.len())
    }

    /// A frame is lost for which others wait: TCP sends it again behind the cut. One that was damaged costs the connection.
    pub(crate) fn miss(&mut self, around: &mut Around<'_>, flying: &Flying) {
        let Flying { from, to, lane, ref bytes, order, harm, .. } = *flying;
        match harm {
            Harm::None => {
                let again = Outgoing { bytes: bytes.clone(), load: 0, order };
                self.paths.send_out(around, from, to, lane, again);
            }
            Harm::Flipped | Harm::CutOff => self.close(around, from, to, lane, LinkEnd::Otherwise),
        }
    }

    /// A connection ends, at both ends.
    pub(crate) fn stream_ended(&mut self, around: &mut Around<'_>, from: usize, to: usize, lane: usize) {
        if streams::is_stream(KINDS[lane]) {
            let at = self.at(from, to);
            self.streamed.spreads[at].begin_set();
            let early = self.streamed.readers[at].ended();
            self.read_late(around, to, early);
        }
    }

    /// The stream whose connection is reset, by turns.
    pub(crate) fn lane_to_reset(&self, from: usize, to: usize) -> usize {
        let connections = self.paths.lane(from, to, BULK).connection as usize;
        lane_of(connections % (1 + self.streamed.streams.further().count()))
    }

    fn read_late(&self, around: &mut Around<'_>, to: usize, early: Vec<PeerMessage>) {
        for message in early {
            around.queue.plan(around.now + self.frame, Event::Late { to, message: Box::new(message) });
        }
    }

    /// A member's process has ended: nothing waits in it any more, and the next one begins anew.
    pub(crate) fn forget_streams(&mut self, around: &mut Around<'_>, member: usize) {
        for peer in (0..self.peers.len()).filter(|&peer| peer != member) {
            let (out, back) = (self.at(member, peer), self.at(peer, member));
            let early = self.streamed.readers[out].ended();
            self.read_late(around, peer, early);
            self.streamed.spreads[out] = Spread::new(self.streamed.streams, around.now + 1);
            self.streamed.readers[back] = InOrder::default();
        }
    }
}
