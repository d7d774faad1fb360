//! Committed is final: no entry that is committed ever leaves a log that holds it, whether its member knows of the
//! commit or not. [replication-protocols O8; Ongaro14 §3.6.3]

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
    let end = member.log.last().index.min(ghost.chosen.last().index);
    for index in (first.0..=end.0).map(LogIndex) {
        let held = member.log.line(index);
        expect(held != ghost.chosen.line(index), NAME, || {
            format!("{:?} truncates {held:?} at {index:?}, which is committed", member.id)
        })?;
    }
    Ok(())
}
