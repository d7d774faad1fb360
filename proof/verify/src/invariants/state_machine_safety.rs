//! State Machine Safety: every entry that a store applies is the one committed at its index, once and in order.
//! [Ongaro14 §3.6.3; fault-model ST4]

use super::Checked;
use super::ghost::{Ghost, Line, expect};
use kattu_raft::Entry;

const NAME: &str = "state_machine_safety";

/// A member's store applies an entry.
pub(super) fn applied(ghost: &mut Ghost, place: usize, entry: &Entry) -> Checked {
    let member = ghost.at(place);
    let (id, new, before) = (member.id, entry.id(), member.applied);
    expect(new.index == before.next(), NAME, || format!("{id:?} applies {new} after index {}", before.0))?;
    let (line, chosen) = (Line::of(entry), ghost.chosen.line(new.index));
    expect(chosen == Some(line), NAME, || {
        format!("{id:?} applies {new} ({line:?}); committed is {chosen:?}")
    })?;
    ghost.at_mut(place).applied = new.index;
    Ok(())
}
