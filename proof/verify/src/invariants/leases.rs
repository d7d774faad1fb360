//! Leases exclude leaders: while a lease holds, by its leader's own clock, no member leads a later term.
//! [replication-protocols L-2 – L-7]
//!
//! The driver knows the members' clocks: it passes the end of each lease by a clock that all share. If clocks are worse
//! than they are trusted to be, this judge reports violations; the driver then counts them and goes on.

use super::Checked;
use super::ghost::{Ghost, expect};
use kattu_raft::Term;

const NAME: &str = "leases_exclude_leaders";

/// A member reports its lease (term, end), or none, at `now`. Returns whether a lease began.
pub(super) fn told(ghost: &mut Ghost, place: usize, lease: Option<(Term, u64)>, now: u64) -> bool {
    let id = ghost.at(place).id;
    let before = match lease {
        Some(lease) => ghost.leases.insert(id, lease),
        None => ghost.leases.remove(&id),
    };
    let held = before.is_some_and(|(term, until)| now < until && lease.is_some_and(|(of, _)| of == term));
    lease.is_some_and(|(_, until)| now < until) && !held
}

/// No member leads a later term than that of a lease that holds.
pub(super) fn check(ghost: &Ghost, now: u64) -> Checked {
    let Some((&newest, reign)) = ghost.reigns.last_key_value() else { return Ok(()) };
    for (holder, &(term, until)) in &ghost.leases {
        expect(until <= now || newest <= term, NAME, || {
            format!(
                "{:?} leads {newest:?} while the lease of {holder:?} in {term:?} holds for another {:.3} ms",
                reign.leader,
                (until - now) as f64 / 1e6
            )
        })?;
    }
    Ok(())
}
