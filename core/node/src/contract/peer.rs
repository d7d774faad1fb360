//! Messages between replicas: those of the protocol, and clients' writes on their way to the leader.
//!
//! Knows nothing of: bytes, links.

use super::Refusal;
use alloc::vec::Vec;
use kattu_raft::{EntryId, Envelope, Incarnation, Message, NodeId, SharedBytes, Term};

/// A message between replicas.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PeerMessage {
    /// A message of the protocol.
    Raft(Envelope),
    /// Writes on their way to the leader.
    Forward(Forward),
    /// The verdicts on them.
    ForwardReply(ForwardReply),
}

/// Follower → leader: client writes, batched. A copy that is repeated or late is never proposed. [B13, fault-model NT7]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Forward {
    /// The follower.
    pub from: NodeId,
    /// The leader that it is meant for.
    pub to: NodeId,
    /// The follower's run: drawn anew at every start, so that sequence numbers never repeat within it.
    pub incarnation: Incarnation,
    /// The term in which `to` leads; in any other the batch is void.
    pub term: Term,
    /// Sequence number of the first request; the others follow without gaps.
    pub first_seq: u64,
    /// The requests' commands.
    pub commands: Vec<SharedBytes>,
}

/// Leader → follower: the verdict on each forwarded request. The follower answers its client when it applies the entry
/// itself, so results are never sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ForwardReply {
    /// The leader.
    pub from: NodeId,
    /// The follower.
    pub to: NodeId,
    /// The follower's incarnation, as it was in the request.
    pub incarnation: Incarnation,
    /// The term the batch was taken in.
    pub term: Term,
    /// Sequence number of the first verdict.
    pub first_seq: u64,
    /// One per request: its place in the log, or why it was refused.
    pub verdicts: Vec<Result<EntryId, Refusal>>,
}

impl PeerMessage {
    /// The addressee.
    #[must_use]
    pub fn to(&self) -> NodeId {
        match self {
            PeerMessage::Raft(envelope) => envelope.to,
            PeerMessage::Forward(forward) => forward.to,
            PeerMessage::ForwardReply(reply) => reply.to,
        }
    }

    /// The sender.
    #[must_use]
    pub fn from(&self) -> NodeId {
        match self {
            PeerMessage::Raft(envelope) => envelope.from,
            PeerMessage::Forward(forward) => forward.from,
            PeerMessage::ForwardReply(reply) => reply.from,
        }
    }

    /// Whether it is a piece of a snapshot: no other message may wait behind it.
    #[must_use]
    pub fn is_chunk(&self) -> bool {
        matches!(self, PeerMessage::Raft(envelope) if matches!(envelope.message, Message::SnapshotChunk(_)))
    }

    /// Whether it must not wait behind entries.
    #[must_use]
    pub fn is_control(&self) -> bool {
        match self {
            PeerMessage::Raft(envelope) => match &envelope.message {
                Message::Append(append) => !append.is_bulk(),
                Message::AppendReply(_)
                | Message::StaleTerm(_)
                | Message::PreVote(_)
                | Message::PreVoteReply(_)
                | Message::Vote(_)
                | Message::VoteReply(_)
                | Message::ReadIndex(_)
                | Message::ReadIndexReply(_)
                | Message::SnapshotReply(_)
                | Message::TimeoutNow(_)
                | Message::Lost(_)
                | Message::Remind(_)
                | Message::Reminder(_) => true,
                Message::SnapshotChunk(_) => false,
            },
            PeerMessage::Forward(_) | PeerMessage::ForwardReply(_) => false,
        }
    }
}
