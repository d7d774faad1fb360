//! Bases: a log is pruned only up to a snapshot that is durable on the same disk and covers committed entries only;
//! entries beyond it that are dropped for it were never committed. [replication-protocols N1, N3; fault-model ST9]

use super::Checked;
use super::ghost::{Ghost, expect};
use kattu_raft::{EntryId, LogIndex};

const NAME: &str = "bases";

/// A member is about to emit a base: a snapshot covers everything up to here.
pub(super) fn rebased(ghost: &Ghost, place: usize, base: EntryId) -> Checked {
    let member = ghost.at(place);
    let (id, before) = (member.id, member.log.base());
    expect(before.index <= base.index, NAME, || format!("{id:?} goes back from base {before} to {base}"))?;
    is_committed(ghost, place, base)?;
    expect(base.index <= member.snapshot.index, NAME, || {
        format!("{id:?} drops its log up to {base}; its snapshots reach {}", member.snapshot)
    })?;
    if member.log.term(base.index) == Some(base.term) {
        return Ok(());
    }
    let end = member.log.last().index.min(ghost.chosen.last().index);
    for index in (base.index.next().0..=end.0).map(LogIndex) {
        let held = member.log.line(index);
        expect(held != ghost.chosen.line(index), NAME, || {
            format!("{id:?} drops {held:?} at {index:?} for a snapshot up to {base}; it is committed")
        })?;
    }
    Ok(())
}

/// A snapshot up to here is complete on a member's disk.
pub(super) fn snapshot(ghost: &mut Ghost, place: usize, last: EntryId) -> Checked {
    is_committed(ghost, place, last)?;
    let member = ghost.at_mut(place);
    if member.snapshot.index < last.index {
        member.snapshot = last;
    }
    Ok(())
}

/// A snapshot replaced a member's store.
pub(super) fn installed(ghost: &mut Ghost, place: usize, last: EntryId) -> Checked {
    is_committed(ghost, place, last)?;
    let member = ghost.at_mut(place);
    let (id, applied, base) = (member.id, member.applied, member.disk.base());
    expect(applied < last.index, NAME, || format!("{id:?} installs {last} over {applied:?}"))?;
    expect(last.index <= base.index, NAME, || {
        format!("{id:?} installs {last}, and the base on its disk is {base}")
    })?;
    member.applied = last.index;
    member.installs = false;
    Ok(())
}

fn is_committed(ghost: &Ghost, place: usize, last: EntryId) -> Checked {
    let chosen = ghost.chosen.term(last.index);
    expect(chosen == Some(last.term), NAME, || {
        format!("a snapshot of {:?} ends at {last}; committed there is {chosen:?}", ghost.at(place).id)
    })
}
