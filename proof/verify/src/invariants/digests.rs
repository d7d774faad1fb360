//! Digests: stores that have applied the same entries are the same. [fault-model P3, P9, DT1, ST13]

use super::Checked;
use super::ghost::{Ghost, expect};
use kattu_raft::LogIndex;

const NAME: &str = "digests";

/// A store's digest was taken.
pub(super) fn digest(ghost: &mut Ghost, place: usize, index: LogIndex, digest: u64) -> Checked {
    let id = ghost.at(place).id;
    let (first, by) = *ghost.digests.entry(index).or_insert((digest, id));
    expect(first == digest, NAME, || {
        format!("after {index:?} the store of {id:?} has digest {digest:016x}, that of {by:?} {first:016x}")
    })
}
