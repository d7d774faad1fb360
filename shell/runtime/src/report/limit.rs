//! The limit of lines per cause: the first ones are logged, the others counted.
//!
//! In:    a cause and a moment.
//! Out:   whether its line is logged; and, once a period is over, how many were not.
//! Rules: a cause has [`ONE`] or [`MANY`] lines in each [`PERIOD`]; a period begins with a logged line. The remembered
//!        causes are bounded: beyond that all further strangers count as one.
//! Knows nothing of: what a line says.

use super::{Cause, Level};
use kattu_raft::Duration;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// How long lines of a cause count together.
pub(super) const PERIOD: Duration = Duration::from_secs(10);
/// Lines in a period of a cause that others can trigger.
pub(super) const ONE: u32 = 1;
/// Lines in a period of one place in the code: a start logs several.
pub(super) const MANY: u32 = 20;
/// Causes remembered, at most: about 100 bytes each.
const CAUSES_MAX: usize = 256;
/// The source of a cause when there are too many sources.
const MANY_OTHERS: u64 = u64::MAX;

/// Lines by cause.
#[derive(Debug, Default)]
pub(super) struct Limit(Mutex<BTreeMap<Cause, Tally>>);

#[derive(Clone, Copy, Debug)]
struct Tally {
    since: Instant,
    said: u32,
    held_back: u64,
    level: Level,
}

/// What becomes of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admitted {
    /// It is logged; so many of its cause were held back before.
    Said { more: u64 },
    /// It is counted.
    HeldBack,
}

/// What was held back of a cause in a period that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct More {
    pub cause: Cause,
    pub level: Level,
    pub lines: u64,
}

impl Limit {
    fn tallies(&self) -> MutexGuard<'_, BTreeMap<Cause, Tally>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner) // a count is never half changed
    }

    /// Whether a line is logged at `now`: `most` lines of its cause are, in a period.
    pub fn admit(&self, cause: Cause, level: Level, most: u32, now: Instant) -> Admitted {
        let mut tallies = self.tallies();
        let is_new = !tallies.contains_key(&cause);
        let cause = match is_new && CAUSES_MAX <= tallies.len() {
            true => Cause { whose: MANY_OTHERS, ..cause },
            false => cause,
        };
        let fresh = Tally { since: now, said: 0, held_back: 0, level };
        let tally = tallies.entry(cause).or_insert(fresh);
        let mut more = 0;
        if PERIOD <= now.saturating_duration_since(tally.since) {
            more = std::mem::replace(tally, fresh).held_back;
        }
        if tally.said < most {
            tally.said += 1;
            return Admitted::Said { more };
        }
        tally.held_back += 1;
        Admitted::HeldBack
    }

    /// What was held back in periods that are over at `now`, and is not logged yet. Quiet causes are forgotten.
    pub fn sweep(&self, now: Instant) -> Vec<More> {
        let mut said = Vec::new();
        self.tallies().retain(|&cause, tally| {
            let is_over = PERIOD <= now.saturating_duration_since(tally.since);
            if is_over && 0 < tally.held_back {
                said.push(More { cause, level: tally.level, lines: tally.held_back });
                // That report was a line: the next lines of this cause wait for the end of the next period.
                *tally = Tally { since: now, said: u32::MAX, held_back: 0, level: tally.level };
                return true;
            }
            !is_over
        });
        said
    }

    /// Whether a sweep may find something later.
    pub(crate) fn is_active(&self) -> bool {
        !self.tallies().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSED: Cause = Cause::of("a connection refused");

    #[test]
    fn of_a_flood_one_line_is_said_in_a_period_and_how_many_more_there_were() {
        let (limit, start) = (Limit::default(), Instant::now());
        let at = |millis: u64| start + Duration::from_millis(millis);
        let admit = |millis| limit.admit(REFUSED, Level::Warn, ONE, at(millis));
        assert_eq!(admit(0), Admitted::Said { more: 0 });
        assert!((1..=500).all(|n| admit(n) == Admitted::HeldBack));
        assert_eq!(limit.sweep(at(9_999)), [], "the period is not over");
        assert_eq!(admit(10_000), Admitted::Said { more: 500 });
        assert!((1..=7).all(|n| admit(10_000 + n) == Admitted::HeldBack));
        let more = More { cause: REFUSED, level: Level::Warn, lines: 7 };
        assert_eq!(limit.sweep(at(20_000)), [more], "also when no line of it comes any more");
        assert_eq!(admit(20_001), Admitted::HeldBack, "the count was this period's line");
        assert_eq!(limit.sweep(at(30_000)), [More { lines: 1, ..more }]);
        assert_eq!(limit.sweep(at(40_000)), []);
        assert!(!limit.is_active(), "nothing is kept of what is quiet");
        assert_eq!(admit(40_001), Admitted::Said { more: 0 });
    }

    #[test]
    fn causes_do_not_hide_each_other_and_strangers_do_not_fill_memory() {
        let (limit, now) = (Limit::default(), Instant::now());
        let mut said = 0;
        for stranger in 1..=100_000 {
            let cause = Cause { what: "garbage", whose: stranger };
            said += u32::from(limit.admit(cause, Level::Warn, ONE, now) != Admitted::HeldBack);
        }
        assert_eq!(said as usize, CAUSES_MAX + 1);
        assert_eq!(limit.tallies().len(), CAUSES_MAX + 1);
        assert_eq!(limit.admit(REFUSED, Level::Warn, ONE, now), Admitted::Said { more: 0 });
        let many: u32 = (0..100)
            .map(|_| u32::from(limit.admit(Cause::of("x.rs"), Level::Info, MANY, now) != Admitted::HeldBack))
            .sum();
        assert_eq!(many, MANY);
    }
}
