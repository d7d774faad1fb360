//! Streams: appends to one peer on several connections at once, and the order in which that peer reads them.
//!
//! ```text
//!              ┌─ bulk ─────── 0   3   4 ──▶┐
//!   appends ───┼─ stream 1 ─── 1 ──────────▶┼─▶ unordered: as they arrive, a question waits for those before it
//!              └─ stream 2 ─── 2   5 ──────▶┘    ordered: 0 1 2 3 4 5, each waits for those before it
//! ```
//! One connection loses time where a packet is lost, and one thread at each end of it is a limit; several have neither, and bring
//! appends out of order. A member whose window is open keeps what comes early ([replication-protocols §4]); for others the order
//! is restored here.
//! Rules: 1. Appends with entries, and questions about them, are spread. All other messages have one lane each.
//!        2. A stream on which nothing waits comes first, by turns; or else the one on which the fewest bytes wait.
//!        3. Each message is numbered when a stream has taken it, so numbers have no gap for as long as all connections live.
//!           It says whether it waits for those before it: in order, each does; else only a question does, so that its
//!           answer says what became of them. When a connection has ended, a new set begins, with a higher number. A process counts sets from the time of
//!           its start on, so they are higher than those of the process before, too. Where they are not, because a clock was
//!           set back, nothing waits: what belongs to an older set is read at once.
//!        4. The reader keeps what waits. When a connection has ended, what is kept goes on as it is: the rest may be
//!           lost, and a replica bears any order. So it does when too many bytes are kept.
//! Source: replication-protocols §4.9.
//! Knows nothing of: sockets, queues, what messages mean.

use kattu_node::contract::PeerMessage;
use kattu_raft::Message;
pub use kattu_wire::STREAMS_MAX;
use kattu_wire::{Lane, Order};
use std::collections::BTreeMap;

/// In which order a peer reads what is sent to it on several streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dispatch {
    /// In the order of sending.
    #[default]
    Ordered,
    /// As it arrives.
    Unordered,
}

impl Dispatch {
    /// Each with its name, for operators; the default first.
    pub const ALL: [(&str, Dispatch); 2] =
        [("ordered", Dispatch::Ordered), ("unordered", Dispatch::Unordered)];
}

/// The streams to each peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Streams {
    /// So many connections carry appends, the bulk lane included: 1 to [`STREAMS_MAX`].
    pub links_per_peer: u8,
    /// The order in which the peer reads them.
    pub dispatch: Dispatch,
}

impl Default for Streams {
    fn default() -> Streams {
        Streams { links_per_peer: 1, dispatch: Dispatch::default() }
    }
}

impl Streams {
    /// The lanes beside the bulk lane.
    pub fn further(self) -> impl Iterator<Item = Lane> {
        (1..self.links_per_peer.min(STREAMS_MAX)).map(Lane::Stream)
    }
}

/// Whether a message may take any of the streams. [Rule 1]
#[must_use]
pub fn is_spread(message: &PeerMessage) -> bool {
    matches!(message, PeerMessage::Raft(envelope) if matches!(&envelope.message, Message::Append(append) if append.is_bulk()))
}

/// Whether a message asks what became of all appends before it.
fn is_question(message: &PeerMessage) -> bool {
    matches!(message, PeerMessage::Raft(envelope) if matches!(&envelope.message, Message::Append(append) if append.tail))
}

/// Whether a lane carries appends.
#[must_use]
pub fn is_stream(lane: Lane) -> bool {
    match lane {
        Lane::Bulk | Lane::Stream(_) => true,
        Lane::Control | Lane::Snapshot => false,
    }
}

/// Spreads what is sent to one peer.
#[derive(Clone, Debug)]
pub struct Spread {
    streams: Streams,
    /// The stream whose turn it is.
    turn: usize,
    /// The next message's place.
    order: Order,
}

impl Spread {
    /// Over so many streams. The first set is above 0, and above those of earlier processes.
    #[must_use]
    pub fn new(streams: Streams, first_set: u64) -> Spread {
        Spread { streams, turn: 0, order: first_of(first_set) }
    }

    /// The stream for the next message: 0 is the bulk lane. `unsent`: the bytes that wait on a stream, if that is open. [Rule 2]
    pub fn next(&mut self, unsent: impl Fn(usize) -> Option<u64>) -> usize {
        let count = usize::from(self.streams.links_per_peer);
        if count == 1 {
            return 0;
        }
        let by_turns = (0..count).map(|ahead| (self.turn + ahead) % count);
        let open = by_turns.filter_map(|stream| Some((unsent(stream)?, stream)));
        let Some((_, stream)) = open.min_by_key(|(bytes, _)| *bytes) else { return 0 };
        self.turn = (stream + 1) % count;
        stream
    }

    /// The place of the next message, this one, if there are several streams. [Rule 3]
    #[must_use]
    pub fn order(&self, message: &PeerMessage) -> Option<Order> {
        let waits = self.streams.dispatch == Dispatch::Ordered || is_question(message);
        (1 < self.streams.links_per_peer).then_some(Order { waits, ..self.order })
    }

    /// A stream has taken the message.
    pub fn taken(&mut self) {
        self.order.number += 1;
    }

    /// A connection has ended.
    pub fn begin_set(&mut self) {
        self.order = first_of(self.order.set + 1);
    }
}

/// The place of the first message of a set.
fn first_of(set: u64) -> Order {
    Order { set, number: 0, waits: true }
}

/// Most bytes that are kept of one peer.
pub const KEPT_BYTES_MAX: usize = 32 << 20;

/// Brings what arrives from one peer, and waits for what was sent before it, into the order of sending.
#[derive(Debug)]
pub struct InOrder<T> {
    /// What is expected next.
    next: Order,
    /// A connection of this set has ended, or too many bytes were kept.
    is_over: bool,
    /// By number, with its bytes; nothing for what was read at once.
    early: BTreeMap<u64, (Option<T>, usize)>,
    bytes: usize,
}

impl<T> Default for InOrder<T> {
    fn default() -> InOrder<T> {
        InOrder { next: first_of(0), is_over: false, early: BTreeMap::new(), bytes: 0 }
    }
}

impl<T> InOrder<T> {
    /// Something of so many bytes arrives. Returns what is read now, in this order.
    pub fn arrived(&mut self, order: Order, item: T, bytes: usize) -> Vec<T> {
        let mut now = Vec::new();
        if self.next.set < order.set {
            now = self.ended();
            (self.next, self.is_over) = (first_of(order.set), false);
        }
        let is_late = order.set < self.next.set || self.is_over || order.number < self.next.number;
        if is_late || self.early.contains_key(&order.number) {
            now.push(item);
            return now;
        }
        let (bytes, waiting) = match order.waits {
            true => (bytes, Some(item)),
            false => {
                now.push(item);
                (0, None)
            }
        };
        let bytes = bytes + size_of::<T>(); // many small ones are memory, too
        self.bytes += bytes;
        self.early.insert(order.number, (waiting, bytes));
        while let Some((waiting, bytes)) = self.early.remove(&self.next.number) {
            self.bytes -= bytes;
            self.next.number += 1;
            now.extend(waiting);
        }
        if KEPT_BYTES_MAX < self.bytes {
            now.extend(self.ended());
        }
        now
    }

    /// A connection has ended. Returns what was kept, which is read now. [Rule 4]
    pub fn ended(&mut self) -> Vec<T> {
        (self.is_over, self.bytes) = (true, 0);
        std::mem::take(&mut self.early).into_values().filter_map(|(waiting, _)| waiting).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kattu_raft::message::Append;
    use kattu_raft::{
        Entry, EntryHead, EntryId, EntryKind, Envelope, GroupId, Incarnation, LogIndex, NodeId, Round, Stamp,
        Term,
    };

    fn streams(links_per_peer: u8, dispatch: Dispatch) -> Streams {
        Streams { links_per_peer, dispatch }
    }

    fn at(set: u64, number: u64) -> Order {
        Order { set, number, waits: true }
    }

    /// A place that waits for nothing.
    fn free(set: u64, number: u64) -> Order {
        Order { set, number, waits: false }
    }

    /// An append of one entry, or a question about those before it.
    fn append(is_question: bool) -> PeerMessage {
        let head = EntryHead { id: EntryId::new(1, 1), kind: EntryKind::Command, stamp: Stamp(0) };
        let entries = if is_question { Vec::new() } else { vec![Entry::new(head, b"a".to_vec().into(), 0)] };
        let message = Message::Append(Append {
            prev: EntryId::default(),
            entries,
            commit: LogIndex(0),
            round: Round(0),
            tail: is_question,
        });
        PeerMessage::Raft(Envelope {
            group: GroupId(0),
            from: NodeId(1),
            incarnation: Incarnation(1),
            to: NodeId(2),
            term: Term(1),
            message,
        })
    }

    #[test]
    fn one_link_is_the_bulk_lane_and_needs_no_order() {
        let mut spread = Spread::new(Streams::default(), 1);
        assert_eq!((spread.next(|_| None), spread.order(&append(false))), (0, None));
        assert_eq!(Streams::default().further().count(), 0);
        assert_eq!(
            streams(3, Dispatch::Ordered).further().collect::<Vec<_>>(),
            [Lane::Stream(1), Lane::Stream(2)]
        );
    }

    #[test]
    fn streams_on_which_nothing_waits_take_turns_and_the_emptiest_comes_next() {
        let mut spread = Spread::new(streams(3, Dispatch::Unordered), 1);
        let next = |spread: &mut Spread, unsent: [Option<u64>; 3]| spread.next(|stream| unsent[stream]);
        assert_eq!([0; 4].map(|_| next(&mut spread, [Some(0); 3])), [0, 1, 2, 0]);
        assert_eq!(next(&mut spread, [Some(0), None, Some(0)]), 2, "stream 1 is not open");
        assert_eq!(next(&mut spread, [Some(9), Some(7), Some(8)]), 1);
        assert_eq!(next(&mut spread, [None; 3]), 0, "the bulk lane says that it is closed");
    }

    #[test]
    fn out_of_order_only_a_question_waits_for_those_before_it() {
        let mut spread = Spread::new(streams(2, Dispatch::Unordered), 1);
        assert_eq!(spread.order(&append(false)), Some(free(1, 0)));
        spread.taken();
        assert_eq!(spread.order(&append(true)), Some(at(1, 1)));
        assert!([append(false), append(true)].iter().all(is_spread));
    }

    #[test]
    fn a_message_that_no_stream_takes_leaves_no_gap_and_the_end_of_a_connection_begins_a_set() {
        let mut spread = Spread::new(streams(2, Dispatch::Ordered), 1);
        assert_eq!(spread.order(&append(false)), Some(at(1, 0)));
        assert_eq!(spread.order(&append(false)), Some(at(1, 0)), "it was not taken");
        spread.taken();
        assert_eq!(spread.order(&append(true)), Some(at(1, 1)));
        spread.begin_set();
        assert_eq!(spread.order(&append(false)), Some(at(2, 0)));
    }

    #[test]
    fn what_comes_early_waits_for_what_was_sent_before_it() {
        let mut reader = InOrder::default();
        assert_eq!(reader.arrived(at(1, 1), 'b', 1), []);
        assert_eq!(reader.arrived(at(1, 3), 'd', 1), []);
        assert_eq!(reader.arrived(at(1, 3), 'D', 1), ['D'], "a repeat waits for nothing");
        assert_eq!(reader.arrived(at(1, 0), 'a', 1), ['a', 'b']);
        assert_eq!(reader.arrived(at(1, 0), 'a', 1), ['a'], "nor does this one");
        assert_eq!(reader.arrived(at(1, 2), 'c', 1), ['c', 'd']);
        assert_eq!(reader.bytes, 0);
    }

    #[test]
    fn what_waits_for_nothing_is_read_at_once_and_others_wait_for_it() {
        let mut reader = InOrder::default();
        assert_eq!(reader.arrived(at(1, 3), '?', 1), [], "a question");
        assert_eq!(reader.arrived(free(1, 2), 'c', 1), ['c']);
        assert_eq!(reader.arrived(free(1, 0), 'a', 1), ['a']);
        assert_eq!(reader.arrived(free(1, 2), 'C', 1), ['C'], "a repeat");
        assert_eq!(reader.arrived(free(1, 1), 'b', 1), ['b', '?']);
        assert_eq!(reader.bytes, 0);
        assert_eq!(reader.arrived(at(1, 5), '?', 1), []);
        assert_eq!(reader.ended(), ['?'], "what was before it may be lost");
    }

    #[test]
    fn when_a_connection_has_ended_nothing_waits_any_more() {
        let mut reader = InOrder::default();
        assert_eq!(reader.arrived(at(1, 2), 'c', 1), []);
        assert_eq!(reader.arrived(at(1, 1), 'b', 1), []);
        assert_eq!(reader.ended(), ['b', 'c']);
        assert_eq!(reader.arrived(at(1, 4), 'e', 1), ['e'], "of the set that is over");
        assert_eq!(reader.arrived(at(2, 1), 'g', 1), []);
        assert_eq!(reader.arrived(at(1, 3), 'd', 1), ['d'], "late");
        assert_eq!(reader.arrived(at(2, 0), 'f', 1), ['f', 'g']);
        assert_eq!(reader.arrived(at(2, 3), 'i', 1), []);
        assert_eq!(reader.arrived(at(3, 0), 'j', 1), ['i', 'j'], "the sender knew of an end first");
    }

    #[test]
    fn the_bytes_that_wait_have_a_bound() {
        let mut reader = InOrder::default();
        let own = size_of::<char>();
        assert_eq!(reader.arrived(at(1, 2), 'c', KEPT_BYTES_MAX - own), []);
        assert_eq!(reader.arrived(at(1, 3), 'd', 1), ['c', 'd']);
        assert_eq!(reader.arrived(at(1, 1), 'b', 1), ['b'], "nothing waits in this set any more");
    }
}
