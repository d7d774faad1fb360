//! Leader Append-Only: a leader neither changes nor removes an entry of its log, and adds only entries of its own term.
//! A log has no gaps, and its terms never fall. [Ongaro14 fig. 3.2]

use super::Checked;
use super::ghost::{Ghost, expect};
use kattu_raft::{Entry, LogIndex};

const NAME: &str = "leader_append_only";

/// A member appends.
pub(super) fn appended(ghost: &Ghost, place: usize, entry: &Entry) -> Checked {
    let member = ghost.at(place);
    let (id, last, new) = (member.id, member.log.last(), entry.id());
    expect(new.index == last.index.next() && last.term <= new.term, NAME, || {
        format!("{id:?} appends {new} after {last}")
    })?;
    if let Some(term) = member.leads {
        expect(new.term == term, NAME, || format!("{id:?} leads {term:?} and appends {new}"))?;
    }
    Ok(())
}

/// A member removes its entries from here on.
pub(super) fn truncated(ghost: &Ghost, place: usize, first: LogIndex) -> Checked {
    let member = ghost.at(place);
    let (id, last) = (member.id, member.log.last());
    expect(member.leads.is_none(), NAME, || {
        format!("{id:?} leads {:?} and truncates its log from {first:?}", member.leads)
    })?;
    let inside = LogIndex(0) < first && first <= last.index;
    expect(inside, NAME, || format!("{id:?} truncates from {first:?} a log that ends at {last}"))
}
