//! Match: a leader never believes more of a peer than the peer has acknowledged to it in this term (which is true, see
//! `acknowledgements.rs`); and its belief falls only when it says that the peer's disk has lost something, and it has.
//! [Ongaro14 fig. 3.1; fault-model NT5, ST14]

use super::Checked;
use super::ghost::{Ghost, expect};
use kattu_raft::{LogIndex, NodeId, Term};

const NAME: &str = "matches";

/// What a leader believes of one peer.
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
