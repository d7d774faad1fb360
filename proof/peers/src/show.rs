//! Short texts for messages, records and events.

use kattu_raft::message::{Message, Room};
use kattu_raft::{
    Entry, EntryKind, Envelope, Fetch, FetchFor, LogBody, LogRecord, Membership, NodeId, Raft, ReadChunk,
    StoreChunk, Trace,
};

fn who(id: Option<NodeId>) -> String {
    id.map_or("nobody".into(), |id| id.0.to_string())
}

/// An entry: its position and what it is.
pub fn entry(entry: &Entry) -> String {
    let Some(payload) = entry.payload() else {
        return format!("{} {:?}", entry.id(), entry.body().form());
    };
    match entry.head.kind {
        EntryKind::Noop => format!("{} noop", entry.id()),
        EntryKind::Command => format!("{} {}", entry.id(), String::from_utf8_lossy(payload)),
        EntryKind::Config => {
            let members = Membership::decode(payload).map(|(read, _)| membership(&read));
            format!("{} ({})", entry.id(), members.unwrap_or_else(|error| error.to_string()))
        }
    }
}

/// A message with its sender, its receiver and its term.
pub fn envelope(envelope: &Envelope) -> String {
    let Envelope { from, to, term, message, .. } = envelope;
    let text = match message {
        Message::Append(append) => {
            let ids: Vec<String> = append.entries.iter().map(|entry| entry.id().to_string()).collect();
            let entries = match (ids.first(), ids.last()) {
                (Some(first), Some(last)) if ids.len() > 3 => {
                    format!("{first}..{last} ({} entries)", ids.len())
                }
                _ => ids.join(" "),
            };
            let (prev, commit, round) = (append.prev, append.commit.0, append.round.0);
            let what = if append.tail { "question".into() } else { format!("append [{entries}]") };
            format!("{what} after {prev}, commit {commit}, round {round}")
        }
        Message::AppendReply(reply) => {
            let round = reply.round.0;
            let mut text = format!("match {}", reply.upto.0);
            if let Some(gap) = reply.gap {
                text += &format!(", gap at {}, hint {}, last {}", gap.prev.0, gap.hint, gap.last.0);
            }
            if !reply.early.is_empty() {
                let runs: Vec<String> =
                    reply.early.iter().map(|run| format!("{}..{}", run.first.0, run.last.0)).collect();
                text += &format!(", keeps {}", runs.join(" "));
            }
            if reply.room != Room::PLENTY {
                text += &format!(", room {}", reply.room.0);
            }
            text += &format!(", round {round}");
            if reply.gap.is_some() && reply.bulk != reply.round {
                text += &format!(" (entries: {})", reply.bulk.0);
            }
            text
        }
        Message::StaleTerm(_) => "stale term".into(),
        Message::PreVote(vote) => format!("pre-vote for term {}, last {}", vote.campaign_term.0, vote.last),
        Message::PreVoteReply(reply) => {
            format!("pre-vote {}", if reply.granted { "granted" } else { "refused" })
        }
        Message::Vote(vote) if vote.transfer => format!("vote, last {}, as the leader wants", vote.last),
        Message::Vote(vote) => format!("vote, last {}", vote.last),
        Message::VoteReply(reply) => format!("vote {}", if reply.granted { "granted" } else { "refused" }),
        Message::ReadIndex(_) => "read index?".into(),
        Message::ReadIndexReply(reply) => match reply.index {
            Some(index) => format!("read index {}", index.0),
            None => "read index unknown".into(),
        },
        Message::SnapshotChunk(chunk) => {
            let end = chunk.offset + chunk.bytes.len() as u64;
            format!("snapshot {} bytes {}..{end} of {}", chunk.meta.last, chunk.offset, chunk.total)
        }
        Message::SnapshotReply(reply) => {
            let refused = if reply.refused { ", refused" } else { "" };
            format!("snapshot {} next {}{refused}", reply.last, reply.next)
        }
        Message::TimeoutNow(_) => "campaign now".into(),
        Message::Remind(_) => "what have I promised?".to_string(),
        Message::Reminder(reminder) => {
            format!(
                "it is committed up to {}, and you hold up to {}",
                reminder.committed, reminder.acknowledged
            )
        }
        Message::Lost(lost) => format!("you have lost what you had up to {}", lost.upto),
    };
    format!("{}→{} t{} {text}", from.0, to.0, term.0)
}

/// A record of the log.
pub fn record(record: &LogRecord) -> String {
    let text = match &record.body {
        LogBody::HardState(hard) => format!("term {} vote {}", hard.term.0, who(hard.vote)),
        LogBody::Truncate(first) => format!("truncate from {}", first.0),
        LogBody::Entry(written) => format!("entry {}", entry(written)),
        LogBody::Commit(index) => format!("commit mark {}", index.0),
        LogBody::Base(base) => format!("base {base}"),
        LogBody::VoteFloor(vote_floor) => format!("floor {vote_floor}"),
    };
    format!("#{} {text}", record.lsn.0)
}

/// A request for a piece of a snapshot.
pub fn read_chunk(request: &ReadChunk) -> String {
    let ReadChunk { peer, last, offset, bytes_max } = request;
    format!("snapshot {last} from byte {offset} for {}, at most {bytes_max} bytes", peer.0)
}

/// A piece of a snapshot that is to be stored.
pub fn store_chunk(chunk: &StoreChunk) -> String {
    let end = chunk.offset + chunk.bytes.len() as u64;
    format!("snapshot {} bytes {}..{end} of {}", chunk.meta.last, chunk.offset, chunk.total)
}

/// The voters and the learners, of both halves while it is joint.
pub fn membership(membership: &Membership) -> String {
    let list = |ids: &[NodeId]| ids.iter().map(|id| id.0.to_string()).collect::<Vec<_>>().join(" ");
    let Membership { voters, outgoing, learners, learners_next, extensions } = membership;
    let mut text = format!("voters {}", list(voters));
    for (name, ids) in [("outgoing", outgoing), ("learners", learners), ("learners next", learners_next)] {
        if !ids.is_empty() {
            text += &format!(", {name} {}", list(ids));
        }
    }
    if let Some(timing) = &extensions.timing {
        text += &format!(", election timeout {:?}", timing.election_timeout);
    }
    if membership.is_empty() { "nobody".into() } else { text }
}

/// A read of the log.
pub fn fetch(fetch: &Fetch) -> String {
    let purpose = match fetch.purpose {
        FetchFor::Peer(peer) => format!("for {}", peer.0),
        FetchFor::Apply => "to apply".into(),
    };
    format!("{}..={} {purpose}, at most {} bytes", fetch.first.0, fetch.last.0, fetch.bytes_max)
}

/// An event of the protocol.
pub fn trace(trace: &Trace) -> String {
    match trace {
        Trace::Term(term) => format!("term {}", term.0),
        Trace::BecameLeader(term) => format!("leads term {}", term.0),
        Trace::BecameFollower { term, leader: None } => format!("follows nobody in term {}", term.0),
        Trace::BecameFollower { term, leader: Some(leader) } => {
            format!("follows {} in term {}", leader.0, term.0)
        }
        Trace::BecamePreCandidate(term) => format!("asks for pre-votes in term {}", term.0),
        Trace::BecameCandidate(term) => format!("campaigns in term {}", term.0),
        Trace::Committed(index) => format!("commits {}", index.0),
        Trace::Truncated(from) => format!("truncates from {from}"),
        Trace::Pruned(base) => format!("prunes up to {base}"),
        Trace::Installs(last) => format!("installs a snapshot up to {last}"),
        Trace::Configured(at) => format!("is configured by {}", at.0),
        Trace::Suspects(leader) => format!("suspects {}", leader.0),
        Trace::TransferBegan(target) => format!("hands over to {}", target.0),
        Trace::SlowDisk { own, fastest, its } => {
            format!("took {own:?} for a write, {} took {its:?}", fastest.0)
        }
        Trace::LeaderLeaseDenied { peer, vote_hold } => {
            format!("has no vote hold of {} but {vote_hold:?}", peer.0)
        }
        Trace::ClocksApart { peer, gains } => {
            format!("proves that the clock of {} gains {gains} ppm", peer.0)
        }
        Trace::SlowsClients { peer, behind } => {
            format!("slows its clients for {}, which lacks {behind} entries", peer.0)
        }
        Trace::FallsBehind { peer, behind } => format!("sees {} fall behind by {behind} entries", peer.0),
        Trace::LostMatch { peer, matched, last } => {
            format!("{} has lost its log from {} to {}", peer.0, last.0 + 1, matched.0)
        }
        Trace::GapClosed { first, last } => format!("takes {} to {} from its window", first.0, last.0),
        Trace::GapSentAgain { peer, first, last } => {
            format!("sends {} the entries {} to {} again", peer.0, first.0, last.0)
        }
        Trace::DroppedUnread(count) => format!("drops {count} unread"),
        Trace::TakesPart { unasked } => format!("takes part, {unasked} have not answered"),
        Trace::ToldOfLoss { vote_floor, last } => {
            format!("is told that its log, which ends at {last}, went up to {vote_floor}")
        }
        Trace::TransferFailed(target) => format!("gives up handing over to {}", target.0),
    }
}

/// Role, term, log and commit of a peer.
pub fn status(raft: &Raft) -> String {
    format!(
        "{} term {} leader {} last {} persisted {} committed {} applied {}",
        raft.role_name(),
        raft.term().0,
        who(raft.leader()),
        raft.last_id(),
        raft.persisted_index().0,
        raft.committed().0,
        raft.applied_delivered().0
    )
}
