//! Commits: the ghost record of what is committed, and how it grows. [Ongaro14 §3.6; replication-protocols O2, O3, L5]
//!
//! - A leader commits an entry only when a quorum of voters holds it, and everything before it, on their disks; by log
//!   matching the entry itself shows that. The newest entry is of the leader's own term.
//! - Others only learn what a leader has committed.
//! - Whoever counts an entry as committed holds the very entry that is (State Machine Safety, before it can show).

use super::ghost::{Ghost, Line, expect};
use super::{Checked, View};
use kattu_raft::{LogIndex, NodeId};

const NAME: &str = "commits";

/// A member's commit index may have moved.
pub(super) fn stepped(ghost: &mut Ghost, place: usize, view: &View) -> Checked {
    let before = ghost.at(place).committed;
    if before == view.committed {
        return Ok(());
    }
    let member = ghost.at(place);
    let id = member.id;
    expect(before <= view.committed, NAME, || {
        format!("{id:?}: commit went from {before:?} back to {:?}", view.committed)
    })?;
    if view.leads {
        let newest = member.log.term(view.committed);
        expect(newest == Some(view.term), NAME, || {
            format!(
                "{id:?} leads {:?} and commits up to {:?}, an entry of {newest:?}",
                view.term, view.committed
            )
        })?;
    }
    for index in (member.agreed.next().0..=view.committed.0).map(LogIndex) {
        let Some(held) = ghost.at(place).log.line(index) else {
            return expect(false, NAME, || format!("{id:?} commits {index:?}, which it does not hold"));
        };
        match ghost.chosen.line(index) {
            Some(chosen) => expect(held == chosen, NAME, || {
                format!("{id:?} commits {held:?} at {index:?}, where {chosen:?} is committed")
            })?,
            None if view.leads => {
                held_by_a_quorum(ghost, id, index, held)?;
                ghost.chosen.append(held);
                ghost.chosen_in.push(view.term);
            }
            None => expect(false, NAME, || {
                format!("{id:?} learnt of commit {index:?}, which no leader has made")
            })?,
        }
    }
    let member = ghost.at_mut(place);
    member.committed = view.committed;
    member.agreed = member.agreed.max(view.committed);
    Ok(())
}

fn held_by_a_quorum(ghost: &Ghost, leader: NodeId, index: LogIndex, line: Line) -> Checked {
    let holds =
        |voter: &&NodeId| ghost.member(**voter).is_some_and(|member| member.disk.line(index) == Some(line));
    let held = ghost.voters.iter().filter(holds).count();
    expect(ghost.voters.len() < 2 * held, NAME, || {
        format!("{leader:?} commits {index:?}, which is on the disks of {held} of {:?}", ghost.voters)
    })
}
