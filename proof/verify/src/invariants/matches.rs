//! Match: a leader's match of a peer never exceeds what the peer has acknowledged to it in this term (which is true,
//! see `acknowledgements.rs`). It falls only when the leader reports a loss of the peer's disk, and there was one. Only
//! real losses are reported, and a member that receives such a report votes from then on by the log it had
//! (`votes.rs`). [Ongaro14 fig. 3.1; fault-model NT5, ST14]

use super::Checked;
use super::ghost::{Ghost, expect};
use kattu_raft::message::{Envelope, Message};
use kattu_raft::{EntryId, LogIndex, NodeId, Term};

const NAME: &str = "matches";

/// A leader's match of one peer.
pub(super) fn stepped(
    ghost: &mut Ghost,
    place: usize,
    term: Term,
    peer: NodeId,
    matched: LogIndex,
    is_told_lost: bool,
) -> Checked {
    let member = ghost.at_mut(place);
    let id = member.id;
    let before = member.matched.insert(peer, matched).unwrap_or_default();
    if before == matched {
        return Ok(());
    }
    let has_lost = is_told_lost && ghost.member(peer).is_some_and(|peer| peer.has_lost);
    expect(before <= matched || has_lost, NAME, || {
        format!("{id:?} leads {term:?}: match of {peer:?} fell from {before:?} to {matched:?}")
    })?;
    let acknowledged = ghost.acknowledged.get(&(term, peer)).copied().unwrap_or_default();
    expect(matched <= acknowledged, NAME, || {
        format!("{id:?} leads {term:?}: match of {peer:?} is {matched:?}, it acknowledged {acknowledged:?}")
    })
}

/// A message is sent: the receiver of a `Lost` has lost something, and had acknowledged that much.
pub(super) fn sent(ghost: &Ghost, place: usize, envelope: &Envelope) -> Checked {
    let Message::Lost(lost) = &envelope.message else { return Ok(()) };
    let (id, peer, term) = (ghost.at(place).id, envelope.to, envelope.term);
    let acknowledged = ghost.acknowledged.get(&(term, peer)).copied().unwrap_or_default();
    let pruned = ghost.at(place).log.base().index;
    let has_lost = ghost.member(peer).is_some_and(|peer| peer.has_lost);
    expect(has_lost && lost.upto.index <= acknowledged.max(pruned), NAME, || {
        format!("{id:?} tells {peer:?} of a loss up to {}; it acknowledged {acknowledged:?}", lost.upto)
    })
}

/// A member adopts a vote floor: only if it has lost something, and only a floor beyond its log.
pub(super) fn floored(ghost: &Ghost, place: usize, vote_floor: EntryId) -> Checked {
    let member = ghost.at(place);
    let last = member.log.last();
    expect(member.has_lost && last < vote_floor, NAME, || {
        format!("{:?} has a log up to {last} and takes {vote_floor} for what it has lost", member.id)
    })
}
