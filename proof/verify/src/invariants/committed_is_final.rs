//! Committed is final: no entry that a member knows to be committed leaves its log, and none that was committed in its
//! own term or an earlier one, whether it knows of the commit or not. [replication-protocols O8; Ongaro14 §3.6.3]
//!
//! Commits of later terms do not count yet: a member that still follows the leader of an earlier term (its messages
//! were long under way) may hold such an entry and have to drop it, because that leader need not have it. Every member
//! that was counted for the commit knows the later term.

use super::Checked;
use super::ghost::{Ghost, expect};
use kattu_raft::LogIndex;

const NAME: &str = "committed_is_final";

/// A member is about to remove its entries from here on.
pub(super) fn truncated(ghost: &Ghost, place: usize, first: LogIndex) -> Checked {
    let member = ghost.at(place);
    expect(member.committed < first, NAME, || {
        format!("{:?} truncates from {first:?}, its commit index is {:?}", member.id, member.committed)
    })?;
    let term = member.hard.term;
    let committed = LogIndex(ghost.chosen_in.partition_point(|&chosen_in| chosen_in <= term) as u64);
    let end = member.log.last().index.min(committed);
    for index in (first.0..=end.0).map(LogIndex) {
        let held = member.log.line(index);
        expect(held != ghost.chosen.line(index), NAME, || {
            format!("{:?} truncates {held:?} at {index:?} in {term:?}, which is committed", member.id)
        })?;
    }
    Ok(())
}
