//! Leases exclude leaders: while a lease holds, by its leader's own clock, nobody leads a later term.
//! [replication-protocols L-2 – L-7]
//!
//! The members' clocks are the driver's affair: it says when, by a clock that all share, a lease will be over. Where
//! clocks are worse than they are trusted to be, this is how it shows that they were: the driver then counts what it is
//! told here and goes on.

use super::Checked;
use super::ghost::{Ghost, expect};
use kattu_raft::Term;

const NAME: &str = "leases_exclude_leaders";

/// A member holds a lease of its term until then, or none; it is `now`. Whether it had none before.
pub(super) fn told(ghost: &mut Ghost, place: usize, lease: Option<(Term, u64)>, now: u64) -> bool {
    let id = ghost.at(place).id;
    let before = match lease {
        Some(lease) => ghost.leases.insert(id, lease),
        None => ghost.leases.remove(&id),
    };
    let held = before.is_some_and(|(term, until)| now < until && lease.is_some_and(|(of, _)| of == term));
    lease.is_some_and(|(_, until)| now < until) && !held
}

/// Nobody leads a later term than that of any lease that holds.
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
