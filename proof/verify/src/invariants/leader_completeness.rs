//! Leader Completeness: a new leader holds everything that was committed in earlier terms. [Ongaro14 §3.6.3]
//!
//! Commits of later terms do not count: a paused candidate may learn of its election long after the next leader began
//! to commit.

use super::Checked;
use super::ghost::{Ghost, expect};
use kattu_raft::{LogIndex, Term};

const NAME: &str = "leader_completeness";

/// A member has become leader; its log is as it was before.
pub(super) fn became_leader(ghost: &mut Ghost, place: usize, term: Term) -> Checked {
    let member = ghost.at(place);
    let committed = LogIndex(ghost.chosen_in.partition_point(|&chosen_in| chosen_in < term) as u64);
    // Entries that are known to agree are not compared again.
    for index in (member.agreed.next().0..=committed.0).map(LogIndex) {
        let (held, chosen) = (member.log.line(index), ghost.chosen.line(index));
        expect(held == chosen, NAME, || {
            format!("{:?} leads {term:?}; at {index:?} it holds {held:?}, committed is {chosen:?}", member.id)
        })?;
    }
    let agreed = &mut ghost.at_mut(place).agreed;
    *agreed = committed.max(*agreed);
    Ok(())
}
