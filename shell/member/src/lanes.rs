//! Lanes: which of a link's connections a message takes.
//!
//! Rules: 1. Votes, heartbeats and read rounds ride on the bulk lane while nothing waits on it, so that they keep their order
//!           with entries. As soon as bytes wait there they take the control lane, if that is open: a heartbeat must not wait
//!           behind megabytes of entries.
//!        2. Pieces of snapshots have a lane of their own, which is opened when there is one to send. No entry and no heartbeat
//!           waits behind them.
//!        3. Appends may take further streams beside the bulk lane ([`crate::streams`]).
//!        4. A lane holds back a bounded number of bytes. One message always passes; more are dropped, because the protocol
//!           repeats what it needs.
//! Source: [fault-model NT1–NT6].
//! Knows nothing of: sockets, queues, what messages mean.

use kattu_node::contract::PeerMessage;
use kattu_raft::{Duration, Limits, LinkEnd};
use kattu_wire::Lane;

/// Bytes that a lane may hold back beyond one message.
pub const BYTES_MAX: usize = 32 << 20;

/// What a frame may hold beside a request or a piece of a snapshot.
const FRAME_OVERHEAD_BYTES: usize = 64 << 10;

/// Longest frame that a member accepts, if its peers have the same limits.
#[must_use]
pub fn frame_bytes_max(limits: &Limits, request_bytes_max: usize) -> usize {
    let whole = request_bytes_max.max(limits.snapshot_chunk_bytes_max);
    limits.inflight_bytes_max.max(whole + FRAME_OVERHEAD_BYTES)
}

/// A connection on which nothing arrives for so long, although something was sent, is given up; a snapshot lane on which
/// nothing is sent for so long is closed.
pub const SILENCE_MAX: Duration = Duration::from_secs(10);

/// The lane that a message takes. `bulk_waits`: bytes wait on the bulk lane; `control_is_up`: the control lane is open.
#[must_use]
pub fn lane_of(message: &PeerMessage, bulk_waits: impl FnOnce() -> bool, control_is_up: bool) -> Lane {
    if message.is_chunk() {
        Lane::Snapshot
    } else if message.is_control() && control_is_up && bulk_waits() {
        Lane::Control
    } else {
        Lane::Bulk
    }
}

/// Whether a lane takes one more message; `is_idle`: nothing waits on it. On a lane that is opened on demand one message waits
/// until it is open.
#[must_use]
pub fn takes(is_up: bool, is_on_demand: bool, is_idle: bool, unsent_bytes: u64, bytes_max: u64) -> bool {
    (is_up || is_on_demand && is_idle) && unsent_bytes <= bytes_max
}

/// Whether the replica is told that a lane has ended. What was in flight on the bulk lane or on a further stream may be lost. A
/// control lane that the peer's kernel closed is a hint that the peer's process died; everything on it is repeated anyway. A
/// snapshot lane closes when it has nothing to do, and a lost piece is sent again.
#[must_use]
pub fn end_is_told(lane: Lane, end: LinkEnd) -> bool {
    match lane {
        Lane::Bulk | Lane::Stream(_) => true,
        Lane::Control => end == LinkEnd::ByPeer,
        Lane::Snapshot => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kattu_node::contract::Forward;
    use kattu_raft::message::{SnapshotChunk, TimeoutNow};
    use kattu_raft::{
        EntryId, Envelope, GroupId, Incarnation, LogIndex, Membership, Message, NodeId, SnapshotMeta, Stamp,
        Term,
    };

    fn envelope(message: Message) -> PeerMessage {
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
    fn a_message_of_control_leaves_the_bulk_lane_only_when_bytes_wait_there_and_its_own_is_open() {
        let control = envelope(Message::TimeoutNow(TimeoutNow {}));
        assert!(control.is_control());
        assert_eq!(lane_of(&control, || true, true), Lane::Control);
        assert_eq!(lane_of(&control, || false, true), Lane::Bulk);
        assert_eq!(lane_of(&control, || true, false), Lane::Bulk);
    }

    #[test]
    fn forwarded_writes_stay_on_the_bulk_lane_and_pieces_of_snapshots_have_their_own() {
        let forward = Forward {
            from: NodeId(1),
            to: NodeId(2),
            incarnation: Incarnation(1),
            term: Term(1),
            first_seq: 1,
            commands: Vec::new(),
        };
        assert_eq!(lane_of(&PeerMessage::Forward(forward), || true, true), Lane::Bulk);
        let meta = SnapshotMeta {
            last: EntryId::default(),
            stamp: Stamp::default(),
            membership: Membership::default(),
            membership_at: LogIndex(0),
        };
        let piece = SnapshotChunk { meta: Box::new(meta), offset: 0, bytes: vec![1].into(), total: 1 };
        assert_eq!(lane_of(&envelope(Message::SnapshotChunk(piece)), || true, true), Lane::Snapshot);
    }

    #[test]
    fn a_frame_may_hold_what_one_message_may() {
        let small = Limits { inflight_bytes_max: 10, snapshot_chunk_bytes_max: 20, ..Limits::default() };
        assert_eq!(frame_bytes_max(&small, 30), 30 + FRAME_OVERHEAD_BYTES);
        assert_eq!(frame_bytes_max(&small, 5), 20 + FRAME_OVERHEAD_BYTES);
        assert_eq!(frame_bytes_max(&Limits::default(), 1 << 20), 16 << 20);
    }

    #[test]
    fn a_lane_takes_a_message_beyond_its_limit_and_one_on_demand_a_message_before_it_is_open() {
        for on_demand in [false, true] {
            assert!(takes(true, on_demand, true, 0, 10) && takes(true, on_demand, false, 10, 10));
            assert!(!takes(true, on_demand, false, 11, 10), "full");
            assert_eq!(takes(false, on_demand, true, 0, 10), on_demand);
            assert!(!takes(false, on_demand, false, 1, 10), "one waits already");
        }
    }

    #[test]
    fn the_end_of_a_lane_is_told_where_it_says_something() {
        for end in [LinkEnd::ByPeer, LinkEnd::Otherwise] {
            assert!(end_is_told(Lane::Bulk, end) && !end_is_told(Lane::Snapshot, end));
            assert!(end_is_told(Lane::Stream(1), end));
            assert_eq!(end_is_told(Lane::Control, end), end == LinkEnd::ByPeer);
        }
    }
}
