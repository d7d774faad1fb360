//! Votes: one per member and term, never forgotten, only for a log at least as complete as the voter's, and sent only
//! when durable. Only the appended log counts. [Ongaro14 §3.4, §3.6.1; replication-protocols O4]

use super::Checked;
use super::ghost::{Ghost, expect};
use kattu_raft::message::{Envelope, Message};
use kattu_raft::{HardState, SPENT};

const NAME: &str = "votes";

/// Term and vote are emitted to the disk.
pub(super) fn recorded(ghost: &mut Ghost, place: usize, hard: HardState) -> Checked {
    let member = ghost.at(place);
    // Entries that its disk has lost still count for its votes. [ST7]
    let (id, last) = (member.id, member.promised());
    expect(member.hard.term <= hard.term, NAME, || {
        format!("{id:?} went from {:?} back to {:?}", member.hard.term, hard.term)
    })?;
    // A vote that was lost in a crash before it was durable was never sent, and may be cast again. The ghost remembers
    // all others, also those that the member has forgotten.
    let in_this_life = member.hard.vote.filter(|_| member.hard.term == hard.term);
    let before = in_this_life.or_else(|| ghost.votes.get(&(hard.term, id)).copied());
    // A member that has forgotten its vote may record only that there may have been one.
    let is_spent = hard.vote == Some(SPENT) && in_this_life.is_none();
    expect(before.is_none() || before == hard.vote || is_spent, NAME, || {
        format!("{id:?} votes for {:?} in {:?}; it had voted for {before:?}", hard.vote, hard.term)
    })?;
    let Some(candidate) = hard.vote.filter(|vote| *vote != SPENT) else { return Ok(()) };
    if candidate == id {
        expect(member.log.last() == last, NAME, || {
            format!("{id:?} campaigns with a log up to {}; it had promised to keep {last}", member.log.last())
        })?;
        ghost.campaigns.entry((hard.term, id)).or_default().insert(last);
        return Ok(());
    }
    let campaign = ghost.campaigns.get(&(hard.term, candidate));
    expect(campaign.is_some_and(|logs| logs.last().is_some_and(|log| last <= *log)), NAME, || {
        format!(
            "{id:?}, whose log ends at {last}, votes in {:?} for {candidate:?}, whose log ends at {campaign:?}",
            hard.term
        )
    })
}

/// Term and vote are on the disk.
pub(super) fn durable(ghost: &mut Ghost, place: usize, hard: HardState) {
    if let Some(candidate) = hard.vote.filter(|vote| *vote != SPENT) {
        let id = ghost.at(place).id;
        ghost.votes.insert((hard.term, id), candidate);
        ghost.ballots.entry((hard.term, candidate)).or_default().insert(id);
    }
}

/// A message is sent.
pub(super) fn sent(ghost: &Ghost, place: usize, envelope: &Envelope) -> Checked {
    let member = ghost.at(place);
    let (id, term, disk) = (member.id, envelope.term, member.disk_hard);
    let vote = match &envelope.message {
        Message::VoteReply(reply) if reply.granted => envelope.to,
        Message::Vote(request) => {
            let campaign = ghost.campaigns.get(&(term, id));
            expect(campaign.is_some_and(|logs| logs.contains(&request.last)), NAME, || {
                format!("{id:?} campaigns in {term:?} with {}; its log ended at {campaign:?}", request.last)
            })?;
            id
        }
        _ => return Ok(()),
    };
    expect(disk == HardState { term, vote: Some(vote) }, NAME, || {
        format!("{id:?} tells of its vote for {vote:?} in {term:?}; its disk holds {disk:?}")
    })
}
