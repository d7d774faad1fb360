//! Election Safety: at most one leader per term, elected by a quorum of its log's newest
//! configuration, with votes that are on disk. [Ongaro14 §3.4, fig. 3.2]

use super::ghost::{Ghost, Reign, expect};
use super::{Checked, View};
use kattu_raft::Term;

const NAME: &str = "election_safety";

/// A member has become leader; its log is as it was before.
pub(super) fn became_leader(ghost: &mut Ghost, place: usize, term: Term) -> Checked {
    let member = ghost.at(place);
    let id = member.id;
    if let Some(reign) = ghost.reigns.get(&term) {
        let other = reign.leader;
        return expect(false, NAME, || format!("{other:?} and {id:?} both became leader of {term:?}"));
    }
    let voted = ghost.ballots.get(&(term, id));
    let (_, membership) = ghost.configuration_of(&member.log);
    let has_voted = |voter| voted.is_some_and(|voted| voted.contains(&voter));
    expect(membership.has_quorum(has_voted), NAME, || {
        format!("{id:?} became leader of {term:?} with the votes of {voted:?} on disk, of {membership:?}")
    })?;
    let reign = Reign::new(id, &member.log);
    ghost.reigns.insert(term, reign);
    ghost.at_mut(place).leads = Some(term);
    ghost.at_mut(place).matched.clear();
    Ok(())
}

/// A member that leads was elected in that very term.
pub(super) fn stepped(ghost: &mut Ghost, place: usize, view: &View) -> Checked {
    if !view.leads {
        ghost.at_mut(place).leads = None;
        return Ok(());
    }
    let member = ghost.at(place);
    expect(member.leads == Some(view.term), NAME, || {
        format!("{:?} leads {:?}, but became leader of {:?}", member.id, view.term, member.leads)
    })
}
