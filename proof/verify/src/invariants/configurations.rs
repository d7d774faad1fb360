//! Configurations: a group changes its configuration in steps, each of which overlaps with the one before.
//! [Ongaro14 §4.1–4.3; replication-protocols M2–M5]
//!
//! A leader appends a configuration to its log only when
//! - the one before it is committed (M3), and so is an entry of the leader's own term (M4);
//! - it has the same voters, or is the joint one that begins a change of voters, or the one that ends it (M2).

use super::ghost::{Ghost, expect};
use super::{Checked, View};
use kattu_raft::{Entry, Membership};

const NAME: &str = "configurations";

/// An entry with a configuration is emitted to a member's disk, and is not in its log yet.
pub(super) fn appended(ghost: &mut Ghost, place: usize, view: &View, entry: &Entry) -> Checked {
    let member = ghost.at(place);
    let (id, at) = (member.id, entry.id());
    let Some(Ok((next, _))) = entry.payload().map(Membership::decode) else {
        return expect(false, NAME, || format!("{id:?} appends {at}, which says no configuration"));
    };
    if ghost.configurations.contains_key(&at) {
        return Ok(()); // judged when its leader appended it
    }
    let (before_at, before) = ghost.configuration_of(&member.log);
    expect(before_at <= view.committed, NAME, || {
        format!(
            "{id:?} appends {next:?} at {at}; the one before, at {before_at:?}, is not committed: that is {:?} [M3]",
            view.committed
        )
    })?;
    let newest = member.log.term(view.committed);
    expect(newest == Some(at.term), NAME, || {
        format!("{id:?} appends {next:?} at {at}, and the newest it has committed is of {newest:?} [M4]")
    })?;
    let is_step = match (before.is_joint(), next.is_joint()) {
        (false, false) => before.voters == next.voters,
        (false, true) => before.voters == next.outgoing,
        (true, false) => before.leave() == next,
        (true, true) => false,
    };
    expect(is_step, NAME, || format!("{id:?} goes from {before:?} to {next:?} at {at} [M2]"))?;
    ghost.configurations.insert(at, next);
    Ok(())
}
