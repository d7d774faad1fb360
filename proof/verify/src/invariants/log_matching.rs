//! Log Matching: two entries of one index and term are the same, and so is everything before them. [Ongaro14 §3.5]
//!
//! Judged by induction, with one look-up per new entry: the same index and term must mean the same bytes and the same
//! term right before.

use super::Checked;
use super::ghost::{Created, Ghost, Line, expect};
use kattu_raft::EntryId;

const NAME: &str = "log_matching";

/// A member is about to append.
pub(super) fn appended(ghost: &mut Ghost, place: usize, entry: EntryId, line: Line) -> Checked {
    let member = ghost.at(place);
    let (by, after) = (member.id, member.log.last().term);
    let new = Created { hash: line.hash, bytes: line.bytes, after, by };
    let first = *ghost.created.entry(entry).or_insert(new);
    expect(first.hash == new.hash, NAME, || {
        format!("entry {entry} of {by:?} has other bytes than that of {:?}", first.by)
    })?;
    expect(first.after == after, NAME, || {
        format!("entry {entry} follows {after:?} at {by:?}, and {:?} at {:?}", first.after, first.by)
    })
}
