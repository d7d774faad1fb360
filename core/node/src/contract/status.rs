//! The status of one replica: what an operator asks for first.
//!
//! Knows nothing of: metrics, pages.

use crate::alarms::Alarms;
use crate::digests::Compared;
use crate::weak::WeakCounts;
use alloc::boxed::Box;
use alloc::vec::Vec;
use kattu_kv::api as kv;
use kattu_raft::{Falsehood, LogIndex, NodeId, Protocol, Term, Timing};

/// The status of one replica.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// This replica.
    pub id: NodeId,
    /// Its current term.
    pub term: Term,
    /// The leader that it follows (itself if it leads), if any.
    pub leader: Option<NodeId>,
    /// `follower`, `pre-candidate`, `candidate` or `leader`.
    pub role: &'static str,
    /// Whether it has no vote.
    pub learner: bool,
    /// Whether it holds a leader lease now and may serve reads by its clock. [replication-protocols §9.4]
    pub has_leader_lease: bool,
    /// Whether it is a leader with leases configured that has none for the rest of its term, because a leadership
    /// transfer failed. [replication-protocols L-6]
    pub leader_lease_is_over: bool,
    /// If it is a leader with leases configured: the voters that do not grant the vote holds these need.
    /// [replication-protocols L-3]
    pub leader_lease_without: Vec<NodeId>,
    /// If it is a leader without a lease because clocks are proven to drift more than leases allow: the voters whose
    /// clocks drift from its own, and by how many millionths at least each gains on it. [fault-model F42]
    pub clocks_apart: Vec<(NodeId, i32)>,
    /// Peers that sent falsehoods since this replica started, how often, and the last one.
    pub distrusted: Vec<(NodeId, u64, Falsehood)>,
    /// Highest index on this disk.
    pub persisted: LogIndex,
    /// Highest index known committed.
    pub committed: LogIndex,
    /// Highest index visible in the store.
    pub applied: LogIndex,
    /// First index of the log.
    pub first: LogIndex,
    /// Last index of the newest snapshot; 0 if there is none.
    pub snapshot: LogIndex,
    /// Last index of the log.
    pub last: LogIndex,
    /// The store's revision.
    pub revision: kv::Revision,
    /// The store's compacted revision.
    pub compact_revision: kv::Revision,
    /// Live keys.
    pub keys: u64,
    /// Bytes of keys and values held, history included.
    pub store_bytes: u64,
    /// Bytes of keys and values of the newest versions.
    pub store_bytes_in_use: u64,
    /// Whether compacted versions are still being freed.
    pub store_forgets: bool,
    /// Whether writes that grow the store are refused.
    pub no_space: bool,
    /// Whether the replica serves before a read has confirmed its state. [fault-model ST17]
    pub serving_unconfirmed: bool,
    /// Terms in which this replica saw a leader, since it started.
    pub leader_changes: u64,
    /// Client requests waiting.
    pub pending: u64,
    /// The feature level that the cluster has reached. [`crate::level`]
    pub level: u16,
    /// The election timeout and the heartbeat interval in force here.
    pub timing: Timing,
    /// The protocol of the cluster; `None` if it was never set, which is Raft.
    pub protocol: Option<Protocol>,
    /// If it is a leader of a protocol with windows: how many entries each peer keeps in its own.
    pub windows: Vec<(NodeId, u64)>,
    /// Its weak answers.
    pub weak: WeakCounts,
    /// The alarms that are raised.
    pub alarms: Alarms,
    /// The state of the comparison of members' digests.
    pub compared: Box<Compared>,
}
