//! Marks: applied ≤ delivered ≤ min(committed, persisted) ≤ last; only `persisted` moves back, with a truncation; terms
//! never fall; and everything counted as persisted is on the disk. [replication-protocols B9, ST2]

use super::ghost::{Ghost, expect};
use super::{Checked, View};
use kattu_raft::LogIndex;

const NAME: &str = "marks";

/// A member handled an event. Its commit index is judged in `commits.rs`.
pub(super) fn stepped(ghost: &mut Ghost, place: usize, view: &View) -> Checked {
    let member = ghost.at(place);
    let id = member.id;
    expect(member.term <= view.term, NAME, || {
        format!("{id:?}: from {:?} back to {:?}", member.term, view.term)
    })?;
    expect(member.delivered <= view.delivered, NAME, || {
        format!("{id:?}: handed out {:?}, now {:?}", member.delivered, view.delivered)
    })?;
    expect(member.persisted <= view.persisted, NAME, || {
        format!(
            "{id:?}: persisted {:?}, now {:?}, and nothing was truncated",
            member.persisted, view.persisted
        )
    })?;
    let last = member.log.last();
    let ordered = member.applied <= view.delivered
        && view.delivered <= view.committed.min(view.persisted)
        && view.committed.max(view.persisted) <= last.index;
    expect(ordered, NAME, || {
        format!("{id:?}: applied {:?}, {view:?}, the log ends at {last}", member.applied)
    })?;
    for index in (member.persisted.next().0..=view.persisted.0).map(LogIndex) {
        let (disk, log) = (member.disk.line(index), member.log.line(index));
        expect(disk == log, NAME, || {
            format!("{id:?} counts {index:?} as persisted; its disk holds {disk:?}, its log {log:?}")
        })?;
    }
    let member = ghost.at_mut(place);
    (member.term, member.delivered, member.persisted) = (view.term, view.delivered, view.persisted);
    Ok(())
}
