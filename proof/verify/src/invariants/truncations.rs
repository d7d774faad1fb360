//! Truncations: a log is cut only where the leader of its member's term holds another entry; equal entries are never
//! cut, nor those that no leader contradicts. [replication-protocols L3, L7; Ongaro14 §3.5]

use super::Checked;
use super::ghost::{Ghost, expect};
use kattu_raft::LogIndex;

const NAME: &str = "truncations";

/// A member is about to remove its entries from here on.
pub(super) fn truncated(ghost: &Ghost, place: usize, first: LogIndex) -> Checked {
    let member = ghost.at(place);
    let (id, term) = (member.id, member.hard.term);
    let Some(reign) = ghost.reigns.get(&term) else {
        return expect(false, NAME, || {
            format!("{id:?} truncates from {first:?} in {term:?}, which nobody leads")
        });
    };
    let (own, led) = (member.log.term(first), reign.term_at(term, first));
    expect(reign.leader != id && own != Some(led), NAME, || {
        format!(
            "{id:?} truncates {own:?} at {first:?}; the leader of {term:?}, {:?}, holds {led:?}",
            reign.leader
        )
    })
}
