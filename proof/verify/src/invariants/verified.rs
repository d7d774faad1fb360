//! Verified: a follower's log equals its leader's up to the verified index; no mark of an older term counts.
//! [replication-protocols §1.1, L5, O7]

use super::ghost::{Ghost, expect};
use super::{Checked, View};

const NAME: &str = "verified";

/// A member handled an event.
pub(super) fn stepped(ghost: &mut Ghost, place: usize, view: &View) -> Checked {
    let Some(leader) = view.leader.filter(|_| !view.leads) else { return Ok(()) };
    let now = (view.term, view.verified);
    let member = ghost.at(place);
    if member.verified == now {
        return Ok(());
    }
    let id = member.id;
    let Some(reign) = ghost.reigns.get(&view.term).filter(|reign| reign.leader == leader) else {
        return expect(false, NAME, || {
            format!("{id:?} follows {leader:?}, who does not lead {:?}", view.term)
        });
    };
    let (mine, theirs) = (member.log.term(view.verified), reign.term_at(view.term, view.verified));
    expect(mine == Some(theirs), NAME, || {
        format!(
            "{id:?} takes its log for {leader:?}'s up to {:?}: it holds {mine:?} there, {leader:?} {theirs:?}",
            view.verified
        )
    })?;
    ghost.at_mut(place).verified = now;
    Ok(())
}
