//! Weak answers: only the leader gives them, for entries of its own term, within the budget in force, once; and each has one
//! end. [replication-protocols W5; fault-model WK4, WK5, WK8] What a quorum has received is judged in [WK2], on peers.

use super::ghost::{Ghost, expect};
use super::{Checked, View};
use kattu_node::contract::{Doubt, Effects, KeeperTask, Outcome, Refusal, Ticket};
use kattu_raft::EntryId;

const NAME: &str = "weak_answers";

/// A member has answered clients; `view` is its state after that.
pub(super) fn stepped(ghost: &mut Ghost, place: usize, view: &View, effects: &Effects) -> Checked {
    for (ticket, outcome) in &effects.reply {
        match outcome {
            Outcome::Received(id) => given(ghost, place, view, *ticket, *id)?,
            outcome => ended(ghost, place, view, *ticket, outcome)?,
        }
    }
    for task in &effects.apply {
        let KeeperTask::Apply { entry, tickets, .. } = task else { continue };
        for ticket in tickets.iter() {
            let id = entry.id();
            let was = ghost.at_mut(place).weak.remove(&ticket);
            expect(was.is_none_or(|was| was == id), NAME, || {
                format!("{ticket:?} was told that {was:?} is received, and gets the answer of {id}")
            })?;
        }
    }
    Ok(())
}

fn given(ghost: &mut Ghost, place: usize, view: &View, ticket: Ticket, id: EntryId) -> Checked {
    let member = ghost.at_mut(place);
    let (by, holds) = (member.id, member.log.line(id.index).is_some_and(|line| line.term == id.term));
    expect(view.leads && id.term == view.term && holds, NAME, || {
        format!(
            "{by:?} tells that {id} is received: it leads: {}, in {:?}, and holds it: {holds}",
            view.leads, view.term
        )
    })?;
    let before = member.weak.insert(ticket, id);
    expect(before.is_none(), NAME, || format!("{by:?} tells {ticket:?} twice that its entry is received"))?;
    let outstanding = member.weak.values().filter(|id| view.committed < id.index);
    let bytes = |id: &EntryId| member.log.line(id.index).map_or(0, |line| u64::from(line.bytes));
    let (entries, bytes) = outstanding.fold((0, 0), |sum, id| (sum.0 + 1, sum.1 + bytes(id)));
    let fits = view.weak_budget.is_some_and(|budget| entries <= budget.entries && bytes <= budget.bytes);
    expect(fits, NAME, || {
        let allowed = view.weak_budget;
        format!("{by:?} has {entries} weak answers of {bytes} bytes outstanding, allowed are {allowed:?}")
    })
}

fn ended(ghost: &mut Ghost, place: usize, view: &View, ticket: Ticket, outcome: &Outcome) -> Checked {
    let Some(id) = ghost.at_mut(place).weak.remove(&ticket) else { return Ok(()) };
    let by = ghost.at(place).id;
    let is_true = match outcome {
        // Another entry is committed in its place.
        Outcome::Refused(Refusal::Overwritten) => {
            ghost.chosen.line(id.index).is_some_and(|line| line.term != id.term)
        }
        Outcome::Unknown(Doubt::LeaderChanged) => !view.leads || id.term != view.term,
        Outcome::Unknown(Doubt::TimedOut | Doubt::Stopping) => true,
        Outcome::Received(_) | Outcome::Done(_) | Outcome::Refused(_) | Outcome::Unknown(_) => false,
    };
    expect(is_true, NAME, || format!("{by:?} ends the weak answer for {id} with {outcome:?}"))
}
