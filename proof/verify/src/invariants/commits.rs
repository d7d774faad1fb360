//! Commits: the ghost record of what is committed, and how it grows. [Ongaro14 §3.6; replication-protocols O2, O3, L5]
//!
//! - A leader commits an entry only when a quorum of voters (of a joint configuration, one of each set) holds it, and
//!   everything before it, on disk, or has lost it since and still votes by it [ST7]; by log matching the entry itself
//!   shows that. The newest entry is of the leader's own term.
//! - Other members only learn what a leader has committed.
//! - A member that counts an entry as committed holds the very entry that is (State Machine Safety, before it can
//!   show).

use super::ghost::{Ghost, Line, expect};
use super::{Checked, View};
use kattu_raft::{LogIndex, Membership, NodeId};

const NAME: &str = "commits";

/// A member's commit index may have moved; `before` is the configuration that was in force until now,
/// if it leads or has led until now.
pub(super) fn stepped(ghost: &mut Ghost, place: usize, view: &View, before: Option<&Membership>) -> Checked {
    let committed = ghost.at(place).committed;
    if committed == view.committed {
        return Ok(());
    }
    let member = ghost.at(place);
    let id = member.id;
    expect(committed <= view.committed, NAME, || {
        format!("{id:?}: commit went from {committed:?} back to {:?}", view.committed)
    })?;
    if before.is_some() {
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
            None if let Some(before) = before => {
                held_by_a_quorum(ghost, place, (index, held), before)?;
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

/// Held by a quorum of the configuration in force before the event, or of the one in force after it: a leader leaves a
/// joint configuration as soon as it is committed, and counts on with the next.
fn held_by_a_quorum(
    ghost: &Ghost,
    place: usize,
    (index, line): (LogIndex, Line),
    before: &Membership,
) -> Checked {
    let holds = |voter| ghost.member(voter).is_some_and(|member| member.owes(index, line));
    let (_, after) = ghost.configuration_of(&ghost.at(place).log);
    expect(before.has_quorum(holds) || after.has_quorum(holds), NAME, || {
        let held: Vec<NodeId> = after.all_voters().filter(|&voter| holds(voter)).collect();
        let leader = ghost.at(place).id;
        format!("{leader:?} commits {index:?}, which is on the disks of {held:?} of {after:?}")
    })
}
