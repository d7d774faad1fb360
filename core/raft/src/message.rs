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
    /// What it says.
    pub message: Message,
}

/// All messages of the protocol.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Message {
    /// Entries, a heartbeat, or a read round.
    Append(Append),
    /// Answer to `Append`.
    AppendReply(AppendReply),
    /// "Would you vote for me?" [Ongaro14 §9.6]
    PreVote(PreVote),
    /// Answer to `PreVote`.
    PreVoteReply(PreVoteReply),
    /// "Vote for me." [Ongaro14 §3.4]
    Vote(Vote),
    /// Answer to `Vote`.
    VoteReply(VoteReply),
    /// "From which index on may I serve linearizable reads?" [replication-protocols Q6]
    ReadIndex(ReadIndex),
    /// Answer to `ReadIndex`.
    ReadIndexReply(ReadIndexReply),
    /// A piece of a snapshot. [replication-protocols N4]
    SnapshotChunk(SnapshotChunk),
    /// Answer to `SnapshotChunk`.
    SnapshotReply(SnapshotReply),
    /// "Campaign now: I hand over to you." [Ongaro14 §3.10]
    TimeoutNow(TimeoutNow),
    /// "Your disk has lost something: you had acknowledged more." [fault-model F18, F19, ST14]
    Lost(Lost),
    /// "You are of an older term than I am." [replication-protocols E5]
    StaleTerm(StaleTerm),
    /// "I have just started: what have I promised?" [fault-model F19, F61]
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
    /// Without entries: it asks about the end of what was sent, and so travels behind that. Any other append without entries
    /// asks only about what is known to agree, and may overtake whatever is under way. [replication-protocols B12]
    pub tail: bool,
}

impl Append {
    /// Whether it travels on the way of the entries, in their order.
    #[must_use]
    pub fn is_bulk(&self) -> bool {
        !self.entries.is_empty() || self.tail
    }
}

/// Peer → leader, always: an answer of this term refreshes the leader's view of the peer and counts for `round`.
///
/// What it says it says of the peer's state, not of one append, and all of it at once: how far the logs agree, whether
/// something is missing, how much more there is room for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AppendReply {
    /// The round of the message answered.
    pub round: Round,
    /// How long after it took that message the peer helps nobody to replace the leader, on its own clock; zero from one
    /// without leases. [replication-protocols L-3]
    pub vote_hold: Duration,
    /// What the peer's own clock shows, if leases are on there and clocks are watched. [fault-model F42]
    pub clock: Option<ClockReading>,
    /// How long the peer's disk took for its newest group of records; zero if nobody told. [fault-model F17]
    pub disk: Duration,
    /// The newest round of an append that travelled on the way of the entries ([`Append::is_bulk`]). Whatever was sent on
    /// that way in an earlier round has arrived, or never will.
    pub bulk: Round,
    /// Highest index up to which the peer's durable log agrees with the leader's. [replication-protocols O1]
    pub upto: LogIndex,
    /// What an append named and the log does not hold, if nothing has filled it since.
    pub gap: Option<Gap>,
    /// Bytes of entries for which the peer has room after the end of its log; [`Room::PLENTY`] unless that could hold up a
    /// leader. [replication-protocols B6; fault-model ST15]
    pub room: Room,
}

/// "I do not hold what you named."
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gap {
    /// The position that was named and is not held: the one before an append's entries, or, of entries for which there was
    /// no room, the last one.
    pub prev: LogIndex,
    /// The largest position ≤ `prev` whose term is ≤ the term named with it. [replication-protocols L4]
    pub hint: EntryId,
    /// Where the log ends.
    pub last: LogIndex,
}

/// Bytes of entries that a peer can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Room(pub u64);

impl Room {
    /// So much that nobody needs to know how much.
    pub const PLENTY: Room = Room(u64::MAX);
}

/// Pre-candidate → peer. Changes no durable state on either side, but that a receiver that is not sticky takes over a newer
/// term of its sender. [E2, O6]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PreVote {
    /// The term the sender would campaign in.
    pub campaign_term: Term,
    /// Its last entry.
    pub last: EntryId,
    /// The sender's rounds of such questions in its term, this one included; 0 from one of version 0.1, which does not
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
    /// The round answered: in a later one this may not be true any more.
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
    /// Whether the vote was given.
    pub granted: bool,
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
    /// What the snapshot covers.
    pub meta: SnapshotMeta,
    /// Where in the file the piece belongs.
    pub offset: u64,
    /// The piece.
    pub bytes: SharedBytes,
    /// Size of the whole file.
    pub total: u64,
}

impl SnapshotChunk {
    /// Whether it asks which byte is next: it brings none, before the end of the file.
    #[must_use]
    pub fn is_question(&self) -> bool {
        self.bytes.is_empty() && self.offset < self.total
    }
}

/// Peer → leader: how far it has come with a snapshot. That it is installed shows in an `AppendReply`, a match.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SnapshotReply {
    /// Which snapshot; 0.0 asks for whichever the leader has, because this peer's own one is lost.
    pub last: EntryId,
    /// The first byte that is still missing.
    pub next: u64,
    /// This snapshot is not wanted: a newer one is coming in.
    pub refused: bool,
}

/// Leader → the peer that shall lead: campaign at once. The envelope's term is the one that ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TimeoutNow;

/// Leader → peer whose log came back shorter than what it had acknowledged in this term: with every heartbeat until the log
/// is there again. (`vote_floor.rs`)
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lost {
    /// What it had acknowledged; where the leader's log is pruned further than that, the leader's base.
    pub upto: EntryId,
}

/// Whoever has just started → every other voter, until that has answered. (`reminder.rs`)
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Remind {
    /// Names the start; of no meaning to others.
    pub nonce: u64,
}

/// Voter → whoever asked it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reminder {
    /// That of the question.
    pub nonce: u64,
    /// How far the sender has come itself.
    pub standing: Standing,
    /// What is committed as far as the sender knows.
    pub committed: EntryId,
    /// What the one that asks has acknowledged to the sender, if that leads; 0.0 if it does not, or nothing.
    pub acknowledged: EntryId,
}

/// How far a voter has come that may have no past.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// It has no past, and has not met all others.
    Alone,
    /// It has no past, and has met all others.
    HasMetAll,
    /// It takes part, or has before.
    TakesPart,
}

/// Peer → whoever leads an older term; the envelope carries the newer one, which is all there is to say.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StaleTerm;
