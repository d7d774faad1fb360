//! Messages between the peers of one group.
//!
//! One struct per message. Every message carries its *sender's current term*, checked before anything else; the
//! term a pre-candidate would use, or the terms of entries, are never used in its place. [replication-protocols O6]
//! Knows nothing of: bytes, connections.

use crate::bytes::SharedBytes;
use crate::clocks::ClockReading;
use crate::entry::Entry;
use crate::snapshot::SnapshotMeta;
use crate::types::{Duration, EntryId, GroupId, Incarnation, LogIndex, NodeId, Round, Term};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// One message with its address and its sender's term.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Envelope {
    /// The group both peers belong to.
    pub group: GroupId,
    /// Sender.
    pub from: NodeId,
    /// The sender's incarnation: acknowledgements count per node and incarnation. [fault-model NT5]
    pub incarnation: Incarnation,
    /// Addressee.
    pub to: NodeId,
    /// The sender's current term when it sent this.
    pub term: Term,
    /// The content.
    pub message: Message,
}

/// All messages of the protocol.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Message {
    /// Entries, a heartbeat, or a read round.
    Append(Append),
    /// Answer to `Append`.
    AppendReply(AppendReply),
    /// Asks whether the receiver would vote for the sender. [Ongaro14 §9.6]
    PreVote(PreVote),
    /// Answer to `PreVote`.
    PreVoteReply(PreVoteReply),
    /// Requests a vote. [Ongaro14 §3.4]
    Vote(Vote),
    /// Answer to `Vote`.
    VoteReply(VoteReply),
    /// Asks from which index on reads are linearizable. [replication-protocols Q6]
    ReadIndex(ReadIndex),
    /// Answer to `ReadIndex`.
    ReadIndexReply(ReadIndexReply),
    /// A piece of a snapshot. [replication-protocols N4]
    SnapshotChunk(SnapshotChunk),
    /// Answer to `SnapshotChunk`.
    SnapshotReply(SnapshotReply),
    /// Asks the target of a leadership transfer to campaign at once. [Ongaro14 §3.10]
    TimeoutNow(TimeoutNow),
    /// Reports to a peer that its disk has lost entries it had acknowledged. [fault-model F18, F19, ST14]
    Lost(Lost),
    /// Reports a newer term to a leader of an older one. [replication-protocols E5]
    StaleTerm(StaleTerm),
    /// Asks, at the sender's start, for what others know of its earlier state. [fault-model F19, F61]
    Remind(Remind),
    /// Answer to `Remind`; the term is the envelope's.
    Reminder(Reminder),
}

/// Leader → peer. Without entries it is a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Append {
    /// The entry right before `entries`.
    pub prev: EntryId,
    /// Consecutive entries after `prev`; may be empty.
    pub entries: Vec<Entry>,
    /// The leader's commit index.
    pub commit: LogIndex,
    /// The newest heartbeat or read round; an answer to it confirms leadership for the round.
    pub round: Round,
    /// Without entries: asks about the end of what was sent, and so travels behind that. Any other append without
    /// entries asks only about positions known to agree, and may overtake everything in flight. [replication-protocols
    /// B12]
    pub tail: bool,
}

impl Append {
    /// Whether it travels in the lane of the entries, in their order.
    #[must_use]
    pub fn is_bulk(&self) -> bool {
        !self.entries.is_empty() || self.tail
    }
}

/// Peer → leader, always: an answer of this term refreshes the leader's view of the peer and counts for `round`.
///
/// It describes the peer's whole state, not one append: how far the logs agree, whether entries are missing, how much
/// room is left.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AppendReply {
    /// The round of the message answered.
    pub round: Round,
    /// The vote hold: how long after that message, on its own clock, the peer helps no other member to be elected. Zero
    /// from a peer without leader leases. [replication-protocols L-3]
    pub vote_hold: Duration,
    /// The reading of the peer's own clock, if leases are on there and clocks are watched. [fault-model F42]
    pub clock: Option<ClockReading>,
    /// How long the peer's disk took for its newest group of records; zero if unknown. [fault-model F17]
    pub disk: Duration,
    /// The newest round of an append that travelled in the lane of the entries ([`Append::is_bulk`]). What was sent in
    /// that lane in an earlier round has arrived, or never will.
    pub bulk: Round,
    /// Highest index up to which the peer's durable log agrees with the leader's. [replication-protocols O1]
    pub upto: LogIndex,
    /// A position that an append named and the log lacks, if later appends have not filled it.
    pub gap: Option<Gap>,
    /// Bytes of entries for which the peer has room after the end of its log; [`Room::PLENTY`] unless that could hold
    /// up a leader. [replication-protocols B6; fault-model ST15]
    pub room: Room,
    /// Highest index up to which its log agrees, durable or not; `upto` unless entries are reported when they are
    /// received. (`received`)
    pub received: LogIndex,
    /// Entries after a gap that the peer keeps in memory: ascending runs beyond its log, the lowest [`RUNS_MAX`] of them.
    /// Empty without a window. [replication-protocols W2]
    pub early: Vec<Run>,
}

/// Runs of early entries that one answer names at most.
pub const RUNS_MAX: usize = 64;

/// Consecutive entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    /// Index of the first one.
    pub first: LogIndex,
    /// Index of the last one.
    pub last: LogIndex,
}

/// A position that the peer's log lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gap {
    /// The position: the one before an append's entries, or, if there was no room for all entries, the last one.
    pub prev: LogIndex,
    /// The largest position ≤ `prev` whose term is ≤ the term named with it. [replication-protocols L4]
    pub hint: EntryId,
    /// The end of the peer's log.
    pub last: LogIndex,
}

/// Bytes of entries that a peer can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Room(pub u64);

impl Room {
    /// So much room that the exact amount does not matter.
    pub const PLENTY: Room = Room(u64::MAX);
}

/// Pre-candidate → peer. Changes no durable state on either side, except that a receiver that is not sticky adopts a
/// newer term of the sender. [E2, O6]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PreVote {
    /// The term the sender would campaign in.
    pub campaign_term: Term,
    /// Its last entry.
    pub last: EntryId,
    /// The sender's pre-vote rounds in its term, this one included; 0 from a member of version 0.1, which does not
    /// count them.
    pub round: Round,
}

/// Peer → pre-candidate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PreVoteReply {
    /// The campaign term answered.
    pub campaign_term: Term,
    /// Whether a real vote would be granted now.
    pub granted: bool,
    /// The round answered: in a later round the answer may be different.
    pub round: Round,
}

/// Candidate → peer; the envelope's term is the campaign's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Vote {
    /// The candidate's last entry.
    pub last: EntryId,
    /// The old leader asked for this campaign: stickiness does not apply. [replication-protocols E3]
    pub transfer: bool,
}

/// Peer → candidate; sent only when the vote is durable.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VoteReply {
    /// Whether the vote was granted.
    pub granted: bool,
    /// The last entry of the log that it was granted for, from the request; zero in a refusal, and from a member of an
    /// older version.
    pub last: EntryId,
}

/// Follower → leader: one batch of waiting reads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReadIndex {
    /// Names the batch; meaningful to the follower only.
    pub batch: u64,
}

/// Leader → follower, after its leadership was confirmed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReadIndexReply {
    /// The batch asked for.
    pub batch: u64,
    /// Reads of the batch may be served once this index is applied; `None`: ask again later.
    pub index: Option<LogIndex>,
}

/// Leader → peer that is behind the log: one piece of a snapshot's file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SnapshotChunk {
    /// What the snapshot covers; boxed, so that it makes no other message larger.
    pub meta: Box<SnapshotMeta>,
    /// The piece's offset in the file.
    pub offset: u64,
    /// The piece.
    pub bytes: SharedBytes,
    /// Size of the whole file.
    pub total: u64,
}

impl SnapshotChunk {
    /// Whether it asks which byte is next: it carries no bytes, and lies before the end of the file.
    #[must_use]
    pub fn is_question(&self) -> bool {
        self.bytes.is_empty() && self.offset < self.total
    }
}

/// Peer → leader: progress in receiving a snapshot. Its installation shows in the match of an `AppendReply`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SnapshotReply {
    /// Which snapshot; 0.0 asks for any that the leader has, because this peer's own one is lost.
    pub last: EntryId,
    /// The first byte that is still missing.
    pub next: u64,
    /// This snapshot is not wanted: a newer one is being received.
    pub refused: bool,
}

/// Leader → transfer target: campaign at once. The envelope's term is the one that ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TimeoutNow;

/// Leader → peer whose log came back shorter than what it had acknowledged in this term. Sent with every heartbeat
/// until the entries are back. (`vote_floor.rs`)
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lost {
    /// The position it had acknowledged; the leader's base, if the leader's log is pruned further than that.
    pub upto: EntryId,
}

/// Starting member → every other voter, until that voter has answered. (`reminder.rs`)
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Remind {
    /// Names the start; meaningful to the sender only.
    pub nonce: u64,
}

/// Voter → starting member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reminder {
    /// The nonce of the `Remind`.
    pub nonce: u64,
    /// The sender's own progress in its start.
    pub standing: Standing,
    /// The end of what is committed, as far as the sender knows.
    pub committed: EntryId,
    /// The position that the receiver has acknowledged to the sender; 0.0 if the sender does not lead, or none.
    pub acknowledged: EntryId,
}

/// The progress of a voter's start. A new voter is one without an earlier run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// New, and not all other voters have answered it.
    Alone,
    /// New, and all other voters have answered it.
    HasMetAll,
    /// Takes part, or has taken part before.
    TakesPart,
}

/// Peer → leader of an older term. The envelope carries the newer term; there is nothing else to send.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StaleTerm;
