//! Marking: how many tokens each place holds. Every move of a token goes through here, and must have an arc in the net.
//!
//! In:   starts and ends of firings, with the tokens that they take and put.
//! Out:  counts; for each place the time average of its tokens, and the mean stay of a token, which are measured apart.
//! Rule: a firing takes along all input arcs that are not optional when it starts, and puts along all such output arcs when it
//!       ends; a token cannot be taken from an empty place. Everything else is a panic.
//! Knows nothing of: what a token means, when a transition is enabled.

use crate::net::{MASKS, Masks, Place, Scope, Transition};

/// Nanoseconds since the start of a run.
pub type Nanos = u64;

/// A token that is taken.
#[derive(Clone, Copy, Debug)]
pub struct Take {
    /// From where.
    pub place: Place,
    /// From which instance of it.
    pub at: usize,
    /// When the token came there.
    pub since: Nanos,
}

/// Tokens of one place over time, summed over its instances.
#[derive(Clone, Copy, Debug, Default)]
pub struct Occupancy {
    /// Tokens now.
    pub tokens: u64,
    /// Integral of the number of tokens since the last reset, in token nanoseconds.
    area: f64,
    changed_at: Nanos,
    /// Tokens that came since the last reset.
    pub arrivals: u64,
    /// Tokens that left since the last reset.
    pub departures: u64,
    /// Sum of the stays of those that left, by their own stamps, in nanoseconds; a stay begins at the last reset at the earliest.
    stay: f64,
}

impl Occupancy {
    fn pass(&mut self, now: Nanos) {
        self.area += self.tokens as f64 * (now - self.changed_at) as f64;
        self.changed_at = now;
    }
}

/// Little's law at one place: tokens on average, and rate times mean stay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Little {
    /// The place.
    pub place: Place,
    /// L: tokens on average over time.
    pub tokens: f64,
    /// λ·W: departures per second times the mean stay of those that departed, in tokens.
    pub rate_times_stay: f64,
    /// Tokens that departed.
    pub departures: u64,
    /// Tokens that had not departed at the end, and are missing in λ·W.
    pub still_there: u64,
}

/// The marking of a net.
#[derive(Clone, Debug)]
pub struct Marking {
    counts: Vec<u32>,
    base: [usize; Place::ALL.len()],
    occupancy: [Occupancy; Place::ALL.len()],
    inside: [u64; Transition::ALL.len()],
    fired: [u64; Transition::ALL.len()],
    /// Places along whose arcs a token has gone, by transition: taken, put.
    used: [(u32, u32); Transition::ALL.len()],
    followers: usize,
    reset_at: Nanos,
}

impl Marking {
    /// An empty net for so many clients and followers.
    #[must_use]
    pub fn new(clients: usize, followers: usize) -> Marking {
        let mut base = [0; Place::ALL.len()];
        let mut size = 0;
        for place in Place::ALL {
            base[place as usize] = size;
            size += match place.scope() {
                Scope::One => 1,
                Scope::Client => clients,
                Scope::Follower => followers,
            };
        }
        Marking {
            counts: vec![0; size],
            base,
            occupancy: [Occupancy::default(); Place::ALL.len()],
            inside: [0; Transition::ALL.len()],
            fired: [0; Transition::ALL.len()],
            used: [(0, 0); Transition::ALL.len()],
            followers,
            reset_at: 0,
        }
    }

    /// Puts initial tokens.
    pub fn begin_with(&mut self, place: Place, at: usize, tokens: u32) {
        self.counts[self.base[place as usize] + at] += tokens;
        self.occupancy[place as usize].tokens += u64::from(tokens);
    }

    /// A firing starts: it takes these tokens.
    ///
    /// # Panics
    /// If the net has no such arc, a place is empty, or an arc is left out.
    #[inline]
    pub fn start(&mut self, transition: Transition, now: Nanos, takes: &[Take]) {
        let masks = &MASKS[transition as usize].0;
        let seen = agree(transition, "input", masks, takes.iter().map(|take| take.place));
        self.used[transition as usize].0 |= seen;
        for take in takes {
            let count = &mut self.counts[self.base[take.place as usize] + take.at];
            assert!(0 < *count, "{transition:?} takes from {}, which is empty", take.place.name());
            *count -= 1;
            let occupancy = &mut self.occupancy[take.place as usize];
            occupancy.pass(now);
            occupancy.tokens -= 1;
            occupancy.departures += 1;
            occupancy.stay += (now - take.since.max(self.reset_at)) as f64;
        }
        self.inside[transition as usize] += 1;
    }

    /// A firing ends: it puts these tokens.
    ///
    /// # Panics
    /// If it did not start, the net has no such arc, or an arc is left out.
    #[inline]
    pub fn finish(&mut self, transition: Transition, now: Nanos, puts: &[(Place, usize)]) {
        let masks = &MASKS[transition as usize].1;
        let seen = agree(transition, "output", masks, puts.iter().map(|put| put.0));
        self.used[transition as usize].1 |= seen;
        let inside = &mut self.inside[transition as usize];
        assert!(0 < *inside, "{transition:?} ends and did not start");
        *inside -= 1;
        self.fired[transition as usize] += 1;
        for (place, at) in puts {
            self.counts[self.base[*place as usize] + at] += 1;
            let occupancy = &mut self.occupancy[*place as usize];
            occupancy.pass(now);
            occupancy.tokens += 1;
            occupancy.arrivals += 1;
        }
        if transition == Transition::Index {
            let count = |place: Place| puts.iter().filter(|put| put.0 == place).count();
            let entries = count(Place::LeaderLog);
            assert_eq!(
                count(Place::Queue),
                entries * self.followers,
                "one token for every follower and entry"
            );
        }
    }

    /// A firing that takes no time.
    #[inline]
    pub fn fire(&mut self, transition: Transition, now: Nanos, takes: &[Take], puts: &[(Place, usize)]) {
        self.start(transition, now, takes);
        self.finish(transition, now, puts);
    }

    /// Tokens of an instance of a place.
    #[must_use]
    pub fn tokens(&self, place: Place, at: usize) -> u32 {
        self.counts[self.base[place as usize] + at]
    }

    /// Tokens of all instances of a place.
    #[must_use]
    pub fn all_tokens(&self, place: Place) -> u64 {
        self.occupancy[place as usize].tokens
    }

    /// Firings that have started and not ended.
    #[must_use]
    pub fn inside(&self, transition: Transition) -> u64 {
        self.inside[transition as usize]
    }

    /// Firings that have ended since the start of the run.
    #[must_use]
    pub fn fired(&self, transition: Transition) -> u64 {
        self.fired[transition as usize]
    }

    /// All firings that have ended.
    #[must_use]
    pub fn fired_in_all(&self) -> u64 {
        self.fired.iter().sum()
    }

    /// Whether a token has gone from the place to the transition, and from the transition to the place.
    #[must_use]
    pub fn used(&self, transition: Transition, place: Place) -> (bool, bool) {
        let (taken, put) = self.used[transition as usize];
        (taken & place.bit() != 0, put & place.bit() != 0)
    }

    /// Statistics of places count from now on.
    pub fn reset(&mut self, now: Nanos) {
        self.reset_at = now;
        for occupancy in &mut self.occupancy {
            *occupancy = Occupancy { tokens: occupancy.tokens, changed_at: now, ..Occupancy::default() };
        }
    }

    /// Little's law at every place that tokens leave, since the last reset.
    #[must_use]
    pub fn little(&self, now: Nanos) -> Vec<Little> {
        let span = (now - self.reset_at).max(1) as f64;
        let of = |place: Place| {
            let mut occupancy = self.occupancy[place as usize];
            occupancy.pass(now);
            Little {
                place,
                tokens: occupancy.area / span,
                rate_times_stay: occupancy.stay / span,
                departures: occupancy.departures,
                still_there: occupancy.tokens,
            }
        };
        Place::ALL.into_iter().filter(|place| !place.is_sink()).map(of).collect()
    }

    /// Takes a token away without a firing, so that a test can see that a check fails.
    #[cfg(test)]
    pub(crate) fn lose(&mut self, place: Place, at: usize) {
        self.counts[self.base[place as usize] + at] -= 1;
        self.occupancy[place as usize].tokens -= 1;
    }
}

/// The places that are touched, if they agree with the arcs.
#[inline]
fn agree(transition: Transition, side: &str, masks: &Masks, places: impl Iterator<Item = Place>) -> u32 {
    let (mut seen, mut twice) = (0, 0);
    for place in places {
        let bit = place.bit();
        assert!(masks.may & bit != 0, "{transition:?} has no {side} arc with {}", place.name());
        twice |= seen & bit;
        seen |= bit;
    }
    assert!(masks.must & !seen == 0, "{transition:?} leaves out an {side} arc");
    assert!(masks.once & twice == 0, "{transition:?} moves two tokens along one {side} arc");
    seen
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    fn complaint(of: impl FnOnce(&mut Marking)) -> String {
        let mut marking = Marking::new(2, 2);
        marking.begin_with(Place::Ack, 0, 1);
        let error = catch_unwind(AssertUnwindSafe(|| of(&mut marking))).expect_err("a refusal");
        let text = error.downcast_ref::<String>().cloned();
        text.or_else(|| error.downcast_ref::<&str>().map(|text| (*text).to_string())).unwrap_or_default()
    }

    const ACK: Take = Take { place: Place::Ack, at: 0, since: 0 };

    #[test]
    fn a_move_without_an_arc_a_token_or_a_start_is_refused() {
        let said = complaint(|it| it.fire(Transition::Parse, 1, &[ACK], &[]));
        assert_eq!(said, "Parse has no input arc with ACK[c]");
        let said = complaint(|it| it.fire(Transition::Generate, 1, &[ACK], &[(Place::Parsed, 0)]));
        assert_eq!(said, "Generate has no output arc with Parsed");
        let said = complaint(|it| it.fire(Transition::Generate, 1, &[ACK], &[]));
        assert_eq!(said, "Generate leaves out an output arc");
        let said = complaint(|it| it.start(Transition::Generate, 1, &[Take { at: 1, ..ACK }]));
        assert_eq!(said, "Generate takes from ACK[c], which is empty");
        let said = complaint(|it| it.finish(Transition::SendReq, 1, &[(Place::NetCl, 0)]));
        assert_eq!(said, "SendReq ends and did not start");
        let said = complaint(|it| it.start(Transition::Generate, 1, &[ACK, ACK]));
        assert_eq!(said, "Generate moves two tokens along one input arc");
    }

    #[test]
    fn littles_law_compares_two_measurements() {
        let mut marking = Marking::new(1, 1);
        marking.begin_with(Place::Ack, 0, 1);
        marking.start(Transition::Generate, 30, &[ACK]);
        marking.finish(Transition::Generate, 40, &[(Place::ClientReq, 0)]);
        let little = marking.little(60);
        let of = |place: Place| little.iter().find(|it| it.place == place).copied().expect("a row");
        assert_eq!((of(Place::Ack).tokens, of(Place::Ack).rate_times_stay), (0.5, 0.5));
        let request = of(Place::ClientReq);
        assert_eq!((request.tokens, request.rate_times_stay, request.still_there), (20.0 / 60.0, 0.0, 1));
    }
}
