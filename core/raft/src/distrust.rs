//! Distrust: a peer's message counts only if an honest peer could have sent it.
//!
//! A message that contradicts what this peer knows for certain, or that no honest peer could send, changes nothing
//! here. It is reported to the driver, which ends the links of its sender, and then dropped. A peer's message never
//! ends a process. A contradiction in this peer's *own* state is a bug here, and still ends it.
//!
//! In:    messages whose sender belongs to the group, as far as is known.
//! Out:   [`Effects::distrust`].
//! Rules: [fault-model P11, §4; replication-protocols O6]
//!   1. A term may be ahead of this peer's by at most [`TERMS_AHEAD_MAX`]. Each term takes a campaign, and so an
//!      election timeout: with timeouts of a tenth of a second no honest member gets so far ahead within ten years.
//!      Without this bound one frame could end all elections, for no term follows the last one.
//!   2. Numbers of entries, rounds and terms lie below [`COUNT_MAX`], so that sums with them do not overflow.
//!   3. One term has one leader; a second member that claims to lead it lies, or its messages are forged.
//!   4. No honest peer acknowledges an entry that the leader does not have, answers a round that has not begun, or
//!      votes before it is asked.
//!   5. An entry that has agreed with this term's leader is not contradicted by that leader later.
//!   6. Entries follow each other, in terms that do not fall and are not of the future, and can be read.
//!
//! A lie that an honest peer could have sent is believed: this is not Byzantine fault tolerance. [fault-model §4]
//! Knows nothing of: links, keys, the authentication of peers.

use crate::contract::Effects;
use crate::entry::EntryKind;
use crate::membership::{Membership, MembershipError};
use crate::message::{
    Append, AppendReply, Envelope, Lost, Message, PreVote, ReadIndexReply, Reminder, SnapshotChunk,
    SnapshotReply, Vote,
};
use crate::raft::Raft;
use crate::types::{EntryId, LogIndex, NodeId, Round, Term};
use core::fmt;

/// Terms that a message may be ahead of its receiver. [Rule 1]
pub const TERMS_AHEAD_MAX: u64 = 1 << 32;

/// No entry, term or round has this number, or a higher one. [Rule 2]
pub const COUNT_MAX: u64 = 1 << 62;

/// Why a message cannot come from an honest peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Falsehood {
    /// Its term is too far ahead.
    TermAhead(Term),
    /// It contains a number that no entry, term or round can have.
    Count,
    /// It claims to lead a term that another member leads, or this peer.
    SecondLeader(Term),
    /// It acknowledges an entry that this leader does not have.
    BeyondLog(LogIndex),
    /// It answers a round that has not begun.
    RoundAhead(Round),
    /// It votes for a candidate that has not asked it yet.
    Unasked(Term),
    /// Its entry contradicts one that agreed with it before.
    Contradiction(EntryId),
    /// Its entries do not follow each other, are of a later term, or cannot be read.
    Entries(EntryId),
    /// Its snapshot is of a later term, has a group without members, or cannot be read.
    Snapshot(EntryId),
    /// Its entries have a configuration that this version cannot follow: no lie, but a newer version.
    Newer(MembershipError),
}

impl Falsehood {
    /// The name of the kind, for metrics.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Falsehood::TermAhead(_) => "term-ahead",
            Falsehood::Count => "count",
            Falsehood::SecondLeader(_) => "second-leader",
            Falsehood::BeyondLog(_) => "beyond-log",
            Falsehood::RoundAhead(_) => "round-ahead",
            Falsehood::Unasked(_) => "unasked",
            Falsehood::Contradiction(_) => "contradiction",
            Falsehood::Entries(_) => "entries",
            Falsehood::Snapshot(_) => "snapshot",
            Falsehood::Newer(_) => "newer-version",
        }
    }
}

impl fmt::Display for Falsehood {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Falsehood::TermAhead(term) => {
                write!(f, "its term {} is more than 2^32 ahead of this member's", term.0)
            }
            Falsehood::Count => f.write_str("it names a number that no entry, term or round can have"),
            Falsehood::SecondLeader(term) => write!(f, "it leads term {}, which has another leader", term.0),
            Falsehood::BeyondLog(index) => {
                write!(f, "it acknowledges entry {}, which its leader does not have", index.0)
            }
            Falsehood::RoundAhead(round) => write!(f, "it answers round {}, which has not begun", round.0),
            Falsehood::Unasked(term) => {
                write!(f, "it votes in term {} without a vote request", term.0)
            }
            Falsehood::Contradiction(id) => write!(f, "its entry {id} contradicts what agreed before"),
            Falsehood::Entries(id) => write!(f, "no leader could send its entries after {id}"),
            Falsehood::Snapshot(id) => write!(f, "no leader could send its snapshot up to {id}"),
            Falsehood::Newer(what) => write!(f, "{what}"),
        }
    }
}

impl Falsehood {
    /// Why entries after `prev`, of which one cannot be taken, are refused.
    pub(crate) fn of_entries(append: &Append) -> Falsehood {
        let configurations = append.entries.iter().filter(|entry| entry.head.kind == EntryKind::Config);
        let mut errors = configurations.filter_map(|entry| Membership::decode(entry.payload()?).err());
        let newer = errors.find(MembershipError::is_of_newer_version);
        newer.map_or(Falsehood::Entries(append.prev), Falsehood::Newer)
    }
}

impl Raft {
    /// Reports that a message of `peer` is ignored, and why.
    pub(crate) fn distrust(peer: NodeId, falsehood: Falsehood, effects: &mut Effects) {
        effects.distrust.push((peer, falsehood));
    }

    /// Why a message is impossible whatever this peer's role is, if it is. [Rules 1, 2]
    pub(crate) fn falsehood_of(&self, envelope: &Envelope) -> Option<Falsehood> {
        if envelope.term.0 > self.term.0.saturating_add(TERMS_AHEAD_MAX) {
            return Some(Falsehood::TermAhead(envelope.term));
        }
        let is_too_high = COUNT_MAX <= envelope.term.0 || COUNT_MAX <= highest_count(&envelope.message);
        is_too_high.then_some(Falsehood::Count)
    }
}

/// The highest number in a message that is used in sums.
fn highest_count(message: &Message) -> u64 {
    let of = |id: &EntryId| id.term.0.max(id.index.0);
    match message {
        Message::Append(Append { prev, entries, commit, round, tail: _ }) => {
            let last = entries.last().map_or(0, |entry| of(&entry.id()));
            of(prev).max(last).max(commit.0).max(round.0)
        }
        Message::AppendReply(AppendReply { round, bulk, upto, gap, received, early, .. }) => {
            let gap = gap.map_or(0, |gap| gap.prev.0.max(of(&gap.hint)).max(gap.last.0));
            let early = early.iter().map(|run| run.first.0.max(run.last.0)).max().unwrap_or(0);
            round.0.max(bulk.0).max(upto.0).max(received.0).max(gap).max(early)
        }
        Message::PreVote(PreVote { campaign_term, last, round }) => {
            campaign_term.0.max(of(last)).max(round.0)
        }
        Message::Vote(Vote { last, .. }) => of(last),
        Message::ReadIndexReply(ReadIndexReply { index, .. }) => index.map_or(0, |index| index.0),
        Message::SnapshotChunk(SnapshotChunk { meta, offset, total, .. }) => {
            of(&meta.last).max(*offset).max(*total)
        }
        Message::SnapshotReply(SnapshotReply { last, next, .. }) => of(last).max(*next),
        Message::Lost(Lost { upto }) => of(upto),
        Message::Reminder(Reminder { committed, acknowledged, standing: _, nonce: _ }) => {
            of(committed).max(of(acknowledged))
        }
        Message::PreVoteReply(_)
        | Message::VoteReply(_)
        | Message::ReadIndex(_)
        | Message::Remind(_)
        | Message::TimeoutNow(_)
        | Message::StaleTerm(_) => 0,
    }
}
