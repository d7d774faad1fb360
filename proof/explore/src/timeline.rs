//! The timeline of a counterexample: one line per event, what happened and what it led to.
//!
//! Knows nothing of: the search.

use crate::choice::{Choice, named_event};
use crate::member::{Event, StepResult};
use crate::position::{Position, command_name};
use crate::scope::Scope;
use crate::tables::Tables;
use crate::world::World;
use kattu_raft::canonical::Moment;
use kattu_raft::message::Message;
use kattu_raft::{Envelope, NodeId, Trace};
use std::fmt;

/// One event.
#[derive(Clone, Debug)]
pub struct Line {
    /// Where: a member, the network, all clocks.
    pub whom: String,
    /// What happened.
    pub event: String,
    /// What it led to.
    pub effect: String,
}

/// Describes the way from the first world on.
#[must_use]
pub fn tell(first: &World, way: &[Choice], scope: &Scope, tables: &mut Tables<'_>) -> Vec<Line> {
    let mut world = first.clone();
    let mut lines = Vec::new();
    for choice in way {
        lines.push(line(&world, *choice, scope, tables));
        // Only the last choice can fail, and no line follows it.
        let _ = world.go(*choice, scope, tables);
    }
    lines
}

fn line(world: &World, choice: Choice, scope: &Scope, tables: &Tables<'_>) -> Line {
    let Some((n, event)) = named_event(&world.left, choice, scope, tables) else {
        return match choice {
            Choice::Lose(message) => {
                let lost = format!("loses {}", envelope(tables.message_at(message)));
                Line { whom: "network".into(), event: lost, effect: String::new() }
            }
            Choice::Pass(way) => passed(world, way, scope, tables),
            Choice::Deliver(_) | Choice::Copy(_) | Choice::At(..) => unreachable!("it happens to a member"),
        };
    };
    let copied = if matches!(choice, Choice::Copy(_)) { " (and once more)" } else { "" };
    let text = format!("{}{copied}", told(&event));
    let effect = match tables.member_at(world.members[n]).after(&event, scope) {
        Ok((_, result)) => consequence(&result),
        Err(broken) => format!("!! {broken}"),
    };
    Line { whom: format!("member {}", n + 1), event: text, effect }
}

/// A step of time.
fn passed(world: &World, way: u8, scope: &Scope, tables: &Tables<'_>) -> Line {
    let rates = scope.clocks.map_or(&[][..], |clocks| &clocks.ways[usize::from(way) - 1]);
    let shown: Vec<String> = rates.iter().map(|rate| rate.shows().as_nanos().to_string()).collect();
    let ended = |(n, member): (usize, &u32)| {
        let after = tables.member_at(*member).after(&Event::Pass(*rates.get(n)?), scope);
        after.is_ok_and(|(_, result)| result.lease.ended).then(|| format!("the lease of {} is over", n + 1))
    };
    let effects: Vec<String> = world.members.iter().enumerate().filter_map(ended).collect();
    let event = format!("show {} ns more", shown.join(", "));
    Line { whom: "clocks".into(), event, effect: effects.join("; ") }
}

/// Writes the lines in aligned columns.
///
/// # Errors
/// Those of the writer.
pub fn write(f: &mut fmt::Formatter<'_>, lines: &[Line]) -> fmt::Result {
    let width = lines.iter().map(|line| line.event.chars().count()).max().unwrap_or(0);
    for (n, Line { whom, event, effect }) in lines.iter().enumerate() {
        writeln!(f, "{:>4}  {whom:<8}  {event:<width$}  {effect}", n + 1)?;
    }
    Ok(())
}

fn who(id: Option<NodeId>) -> String {
    id.map_or("nobody".into(), |id| id.0.to_string())
}

fn told(event: &Event) -> String {
    match event {
        Event::Deliver(message) => format!("gets {}", envelope(message)),
        Event::Fire(moment) => match moment {
            Moment::CommitNotice => "commit notice is due".into(),
            Moment::Heartbeat => "heartbeat is due".into(),
            Moment::AskAgain => "asks again about reads".into(),
            Moment::CommitMark => "commit mark is due".into(),
            Moment::LeaderSilent => "has not heard its leader for long".into(),
            Moment::QuorumCheck => "has not heard a quorum for long".into(),
            Moment::Deliver => "hands out what is committed".into(),
            Moment::Election => "election timeout".into(),
            Moment::Suspicion => "asks what others think of its leader".into(),
            Moment::TransferEnds => "handing over has taken too long".into(),
            Moment::LeaseEnds => "lease is over".into(),
            Moment::Stream => "goes on with a snapshot".into(),
            Moment::Question => "asks what became of its entries".into(),
            Moment::VoteHoldEnds => "promise to a leader is over".into(),
        },
        Event::Sync(1) => "disk has done a record".into(),
        Event::Sync(records) => format!("disk has done {records} records"),
        Event::Crash(surviving) => format!("crashes, {surviving} unsynced survive"),
        Event::Restart => "starts again".into(),
        Event::Propose(command) => format!("client writes \"{}\"", command_name(*command)),
        Event::Read(batch) => format!("client reads, read {batch}"),
        Event::Drain => "nothing more for now".into(),
        Event::Change(number) => format!("operator wants change {number}"),
        Event::Close(peer) => format!("its link to {} is closed by the other end", peer.0),
        Event::Transfer(to) => format!("operator wants {} to lead", to.0),
        Event::Snapshot => "takes a snapshot".into(),
        Event::Pass(_) => "time passes".into(),
    }
}

fn consequence(result: &StepResult) -> String {
    let mut parts: Vec<String> = result.trace.iter().filter_map(trace).collect();
    parts.extend(result.commits.iter().map(|place| format!("commits {place}")));
    parts.extend(result.received.iter().map(|id| format!("reports {id} as received")));
    for verdict in &result.verdicts {
        parts.push(match verdict.index {
            Some(index) => format!("read {} is served from {}", verdict.upto.0, index.0),
            None => format!("read {} fails", verdict.upto.0),
        });
    }
    if result.lease.read {
        parts.push("by its lease".into());
    }
    parts.extend(result.sends.iter().map(|message| format!("sends {}", envelope(message))));
    parts.join("; ")
}

fn trace(event: &Trace) -> Option<String> {
    match event {
        Trace::Term(term) => Some(format!("term {}", term.0)),
        Trace::BecameLeader(term) => Some(format!("leads term {}", term.0)),
        Trace::BecameFollower { leader, .. } => Some(format!("follows {}", who(*leader))),
        Trace::BecamePreCandidate(_) => Some("asks for pre-votes".into()),
        Trace::BecameCandidate(_) => Some("campaigns".into()),
        Trace::Truncated(from) => Some(format!("truncates from {from}")),
        Trace::Suspects(leader) => Some(format!("suspects {}", leader.0)),
        Trace::TransferBegan(target) => Some(format!("hands over to {}", target.0)),
        Trace::SlowDisk { own, fastest, its } => {
            Some(format!("took {own:?} for a write, {} took {its:?}", fastest.0))
        }
        Trace::LeaderLeaseDenied { peer, vote_hold } => {
            Some(format!("has no promise of {} but {vote_hold:?}", peer.0))
        }
        Trace::ClocksApart { peer, gains } => {
            Some(format!("proves that {} gains {gains} millionths", peer.0))
        }
        Trace::SlowsClients { peer, .. } => Some(format!("slows its clients for {}", peer.0)),
        Trace::FallsBehind { peer, .. } => Some(format!("sees {} fall behind", peer.0)),
        Trace::LostMatch { peer, matched, last } => {
            Some(format!("notices that {} has lost its log from {} to {}", peer.0, last.0 + 1, matched.0))
        }
        Trace::TakesPart { .. } => Some("takes part".to_string()),
        Trace::GapClosed { first, last } => Some(format!("takes {} to {} from its window", first.0, last.0)),
        Trace::GapSentAgain { peer, first, last } => {
            Some(format!("sends {} the entries {} to {} again", peer.0, first.0, last.0))
        }
        Trace::DroppedUnread(count) => Some(format!("drops {count} appends unread")),
        Trace::ToldOfLoss { vote_floor, .. } => Some(format!("is told that its log went up to {vote_floor}")),
        Trace::TransferFailed(target) => Some(format!("gives up handing over to {}", target.0)),
        Trace::Pruned(base) => Some(format!("prunes up to {base}")),
        Trace::Installs(last) => Some(format!("installs a snapshot up to {last}")),
        Trace::Configured(at) => Some(format!("is configured by {}", at.0)),
        Trace::Committed(_) => None,
    }
}

/// A message in few words.
#[must_use]
pub fn envelope(envelope: &Envelope) -> String {
    let Envelope { from, to, term, message, .. } = envelope;
    let text = match message {
        Message::Append(append) => {
            let entries: Vec<String> =
                append.entries.iter().map(|entry| Position::of(entry).to_string()).collect();
            let entries = entries.join(" ");
            let what = if append.tail { "question".into() } else { format!("append [{entries}]") };
            format!("{what} after {}, commit {}", append.prev, append.commit.0)
        }
        Message::AppendReply(reply) => {
            let mut text = format!("match {}", reply.upto.0);
            if reply.upto < reply.received {
                text += &format!(", received {}", reply.received.0);
            }
            text.extend(reply.early.iter().map(|run| format!(", keeps {} to {}", run.first.0, run.last.0)));
            if let Some(gap) = &reply.gap {
                text += &format!(", gap at {}, hint {}", gap.prev.0, gap.hint);
            }
            text
        }
        Message::StaleTerm(_) => "stale term".into(),
        Message::PreVote(vote) => format!("pre-vote? log to {}", vote.last),
        Message::PreVoteReply(reply) if reply.granted => "pre-vote: yes".into(),
        Message::PreVoteReply(_) => "pre-vote: no".into(),
        Message::Vote(vote) => format!("vote? log to {}", vote.last),
        Message::VoteReply(reply) if reply.granted => "vote: yes".into(),
        Message::VoteReply(_) => "vote: no".into(),
        Message::ReadIndex(_) => "read from where?".into(),
        Message::ReadIndexReply(reply) => match reply.index {
            Some(index) => format!("read from {}", index.0),
            None => "read: not now".into(),
        },
        Message::SnapshotChunk(chunk) if chunk.is_question() => {
            format!("snapshot to {}: which byte is next?", chunk.meta.last)
        }
        Message::SnapshotChunk(chunk) => {
            format!("snapshot to {}, from byte {}", chunk.meta.last, chunk.offset)
        }
        Message::SnapshotReply(reply) => format!("snapshot: from byte {}?", reply.next),
        Message::TimeoutNow(_) => "campaign now".into(),
        Message::Remind(_) => "what have I promised?".to_string(),
        Message::Reminder(reminder) => {
            format!(
                "it is committed up to {}, and you hold up to {}",
                reminder.committed, reminder.acknowledged
            )
        }
        Message::Lost(lost) => format!("lost up to {}", lost.upto),
    };
    format!("{}→{} t{} {text}", from.0, to.0, term.0)
}
