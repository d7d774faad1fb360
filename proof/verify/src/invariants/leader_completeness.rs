//! Leader Completeness: whoever becomes leader holds everything that is committed. [Ongaro14 §3.6.3]

use super::Checked;
use super::ghost::{Ghost, expect};
use kattu_raft::{LogIndex, Term};

const NAME: &str = "leader_completeness";

/// A member has become leader; its log is as it was before.
pub(super) fn became_leader(ghost: &mut Ghost, place: usize, term: Term) -> Checked {
    let member = ghost.at(place);
    let committed = ghost.chosen.last().index;
    // What is known to agree needs no second look.
    for index in (member.agreed.next().0..=committed.0).map(LogIndex) {
        let (held, chosen) = (member.log.line(index), ghost.chosen.line(index));
        expect(held == chosen, NAME, || {
            format!("{:?} leads {term:?}; at {index:?} it holds {held:?}, committed is {chosen:?}", member.id)
        })?;
    }
    ghost.at_mut(place).agreed = committed;
    Ok(())
}
