//! Clocks: detects that a voter's clock and its leader's run apart by more than leader leases allow.
//!
//! ```text
//!  leader   asked₁ ──┐          ┌── heard₁ ─── … ─── asked₂ ──┐          ┌── heard₂ ──▶
//!  voter             └─ shown₁ ─┘                             └─ shown₂ ─┘
//!
//!  between the two the voter's clock has run for exactly      shown₂ − shown₁,
//!  and the leader's for something between                     asked₂ − heard₁  and  heard₂ − asked₁
//! ```
//!
//! In:    heartbeats that leave; answers to them, each with a reading of the voter's own clock.
//! Out:   a proof that two clocks run apart, and by how much at least. It ends the leader's lease for its term.
//! Rules: [fault-model F42; replication-protocols L-1, L-8; docs/decisions/0008]
//!   1. Between two answers some true time T passes. A clock that is wrong by at most ρ shows between T·(1−ρ) and
//!      T·(1+ρ) for it. So while both clocks are, one shows at most (1+ρ)/(1−ρ) of the other; more is a proof that one
//!      of them is worse than leases assume, whatever the network and the processes did meanwhile.
//!   2. No clock is reported without a proof: a slow message, a stopped process or a repeated answer only widens the
//!      range that the leader's clock may have shown. Rounded nanoseconds, and ε, count in the voter's favour.
//!   3. A reading names the run of its process: a machine that was restarted counts from nothing.
//!   4. Every answer to another heartbeat is compared with two earlier ones: the tightest of this window and that of
//!      the window before. So there is always a long base line for sensitivity, and none so long that a clock which has
//!      only now begun to run apart hides behind a past in which it was right.
//!   5. A proof does not say which of the two clocks is wrong. So the leader does not trust its own either: its lease
//!      ends, for the rest of the term, and reads are confirmed by a round. (L-6, L-8)
//!
//! Limit: clocks that run apart must be observed doing so. Between an election and the first proof, which takes the
//! length of a round trip divided by the excess, leases are as wrong as the clocks.
//! Knows nothing of: clock sources, operators.

use crate::leader_lease::LeaderLease;
use crate::leading::View;
use crate::message::AppendReply;
use crate::raft::Raft;
use crate::types::{Duration, Instant, NodeId, Round};
use alloc::vec::Vec;

/// The length of a window in election timeouts. With round trips of ten milliseconds and an election timeout of a
/// second, a difference of 0.03 % remains undetected for ever.
const WINDOW: u32 = 60;

/// Heartbeats whose start is remembered. An answer that takes longer proves nothing.
const HEARTBEATS_MAX: usize = 8;

/// The rounding error of each end of a difference of two readings.
const GRAIN: u64 = 2;

/// Parts of a rate.
const ONE: u128 = 1_000_000;

/// A reading of a peer's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClockReading {
    /// The run of its process. Readings of two runs are unrelated.
    pub run: u64,
    /// The clock's reading between the arrival of the round that is answered and the departure of the answer.
    pub at: Instant,
}

/// When a leader's newest heartbeats began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Heartbeats {
    at: [(Round, Instant); HEARTBEATS_MAX],
}

impl Heartbeats {
    /// A heartbeat begins, and leaves after this.
    pub(crate) fn note(&mut self, round: Round, now: Instant) {
        self.at.rotate_right(1);
        self.at[0] = (round, now);
    }

    /// The newest of these heartbeats that began no later than this round, and when: the round's answers leave after
    /// that.
    fn began(&self, round: Round) -> Option<(Round, Instant)> {
        let known = self.at.iter().filter(|(beat, _)| Round(0) < *beat && *beat <= round);
        known.max_by_key(|(beat, _)| *beat).copied()
    }
}

/// One reading of a peer's clock, and the leader's readings before and after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Point {
    asked: Instant,
    shown: Instant,
    heard: Instant,
}

impl Point {
    fn width(&self) -> Duration {
        self.heard.since(self.asked)
    }

    /// By how many millionths at least the peer's clock gains on the leader's (loses, if negative) between the two
    /// points, if that is more than two clocks within the bound can. (1, 2)
    fn run_apart(&self, other: &Point, lease: &LeaderLease) -> Option<i32> {
        let in_order = (self.shown, self.asked) <= (other.shown, other.asked);
        let (first, second) = if in_order { (self, other) } else { (other, self) };
        let slack = u128::from(GRAIN) + lease.margin.as_nanos();
        let shown = u128::from(second.shown.0 - first.shown.0);
        let most = u128::from(second.heard.0.saturating_sub(first.asked.0)) + u128::from(GRAIN);
        let least = u128::from(second.asked.0.saturating_sub(first.heard.0)).saturating_sub(GRAIN.into());
        let rho = u128::from(lease.rho).min(ONE);
        let (at_least, at_most) = (shown.saturating_sub(slack), shown + slack);
        if at_least * (ONE - rho) > most * (ONE + rho) {
            let gains = (at_least - most) * ONE / most;
            return Some(i32::try_from(gains).unwrap_or(i32::MAX));
        }
        if at_most * (ONE + rho) < least * (ONE - rho) {
            let loses = (least - at_most) * ONE / least;
            return Some(-i32::try_from(loses).unwrap_or(i32::MAX));
        }
        None
    }
}

/// A leader's measurements of one voter's clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Gauge {
    /// The run of the process that the points are from.
    run: u64,
    /// The newest heartbeat whose answer was evaluated.
    beat: Round,
    /// When the current window began.
    since: Instant,
    /// The points that later ones are compared with: the tightest of the window before, and of this one.
    anchors: [Option<Point>; 2],
    /// By how many millionths at least the clock gains (loses) on the leader's: proven, and so for the rest of the
    /// term.
    pub(crate) apart: Option<i32>,
}

impl Gauge {
    /// Adds a point. Returns by how much the clocks run apart, if it proves that.
    fn take(&mut self, run: u64, point: Point, lease: &LeaderLease, window: Duration) -> Option<i32> {
        if self.run != run || self.anchors[1].is_none() {
            (self.run, self.since, self.anchors) = (run, point.heard, [None, Some(point)]);
            return None;
        }
        let apart = self.anchors.iter().flatten().find_map(|anchor| anchor.run_apart(&point, lease));
        if self.since + window <= point.heard {
            (self.since, self.anchors) = (point.heard, [self.anchors[1], Some(point)]);
        } else if self.anchors[1].is_some_and(|anchor| point.width() * 2 < anchor.width()) {
            self.anchors[1] = Some(point); // only then, as the base line begins anew with it
        }
        apart
    }

    /// Evaluates an answer. Returns by how much the voter's clock and the leader's run apart, if that is proven and
    /// new.
    pub(crate) fn judge(
        &mut self,
        now: Instant,
        from: NodeId,
        reply: &AppendReply,
        heartbeats: &Heartbeats,
        view: &View<'_>,
    ) -> Option<i32> {
        let lease = view.config.leadership.leader_lease.as_ref().filter(|lease| lease.watch_clocks)?;
        let reading = reply.clock?;
        if reply.round <= self.beat || self.apart.is_some() || !view.membership.is_voter(from) {
            return None;
        }
        let (beat, asked) = heartbeats.began(reply.round)?;
        if beat <= self.beat {
            return None; // its first answer was the tightest
        }
        self.beat = beat;
        let point = Point { asked, shown: reading.at, heard: now };
        self.apart = self.take(reading.run, point, lease, view.config.election_timeout * WINDOW);
        self.apart
    }
}

impl Raft {
    /// This peer's clock reading, for a leader that watches clocks.
    pub(crate) fn own_clock(&self, now: Instant) -> Option<ClockReading> {
        let watches = self.config.leadership.leader_lease.is_some_and(|lease| lease.watch_clocks);
        watches.then_some(ClockReading { run: self.read_nonce, at: now })
    }

    /// The voters whose clocks are proven to run apart from this leader's by more than leases allow, ascending, and by
    /// how many millionths at least each gains (loses, if negative) on it. While there is one, this leader has no
    /// lease.
    #[must_use]
    pub fn clocks_apart(&self) -> Vec<(NodeId, i32)> {
        let Some(leader) = self.role.leader() else { return Vec::new() };
        let apart =
            leader.peers.iter().filter_map(|(&peer, progress)| Some((peer, progress.liveness.gauge.apart?)));
        apart.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const SEC: u64 = 1_000_000_000;
    const WINDOW: Duration = Duration::from_secs(60);

    fn lease(rho: u32) -> LeaderLease {
        LeaderLease { rho, margin: Duration::ZERO, watch_clocks: true }
    }

    /// What a clock shows after so much true time.
    fn shows(time: u64, ppm: i64) -> u64 {
        (i128::from(time) * (1_000_000 + i128::from(ppm)) / 1_000_000) as u64
    }

    /// A question that leaves at this true time, takes `there` and the answer `back`, by clocks that run so.
    fn point(at: u64, there: u64, back: u64, ours: i64, theirs: i64) -> Point {
        Point {
            asked: Instant(shows(at, ours)),
            shown: Instant(7 * SEC + shows(at + there, theirs)),
            heard: Instant(shows(at + there + back, ours)),
        }
    }

    #[test]
    fn clocks_within_the_bound_are_never_reported_however_long_they_are_measured() {
        for rho in [0, 1, 500, 5_000, 100_000, 500_000] {
            let wrong = i64::from(rho);
            for (ours, theirs) in [(wrong, -wrong), (-wrong, wrong), (wrong, wrong), (0, wrong), (-wrong, 0)]
            {
                let anchor = point(3, 0, 0, ours, theirs);
                for at in [4, 5, 1_001, MS + 1, SEC, 60 * SEC + 17, 3_600 * SEC, 10_000_000 * SEC + 3] {
                    for (there, back) in [(0, 0), (1, 0), (0, 1), (MS, 3), (3, SEC)] {
                        let later = point(at, there, back, ours, theirs);
                        let found = anchor.run_apart(&later, &lease(rho));
                        assert_eq!(found, None, "{rho}: {ours} {theirs} after {at} with {there} and {back}");
                        assert_eq!(later.run_apart(&anchor, &lease(rho)), None, "in the other order");
                    }
                }
            }
        }
    }

    #[test]
    fn clocks_beyond_the_bound_are_reported_as_soon_as_the_drift_exceeds_the_round_trips() {
        for (theirs, gains) in [(30_000, true), (-30_000, false)] {
            let anchor = point(0, MS, MS, 0, theirs);
            let found = |at| anchor.run_apart(&point(at, MS, MS, 0, theirs), &lease(5_000));
            assert_eq!(found(50 * MS), None, "two round trips of two milliseconds may be all of it");
            let proven = found(10 * SEC).expect("0.3 s are more than that");
            assert!(if gains {
                (29_000..=30_000).contains(&proven)
            } else {
                (-30_000..=-29_000).contains(&proven)
            });
            let generous = LeaderLease { margin: Duration::from_secs(1), ..lease(5_000) };
            assert_eq!(anchor.run_apart(&point(10 * SEC, MS, MS, 0, theirs), &generous), None, "ε covers it");
        }
        let stands = Point { shown: Instant(500), ..point(10 * SEC, 0, 0, 0, 0) };
        let before = Point { shown: Instant(500), ..point(SEC, 0, 0, 0, 0) };
        assert_eq!(before.run_apart(&stands, &lease(5_000)), Some(-999_999), "a clock that stands still");
        let back = Point { shown: Instant(100), ..stands };
        assert!(before.run_apart(&back, &lease(5_000)).is_some(), "a clock that runs back");
    }

    #[test]
    fn an_answer_that_takes_long_proves_nothing_and_gives_way_to_a_tighter_one() {
        let mut gauge = Gauge::default();
        let lease = lease(5_000);
        let slow = point(0, 5 * SEC / 2, 5 * SEC / 2, 0, 400_000);
        assert_eq!(gauge.take(1, slow, &lease, WINDOW), None, "nothing to compare it with");
        let also_slow = point(6 * SEC, 3 * SEC / 2, 3 * SEC / 2, 0, 400_000);
        assert_eq!(gauge.take(1, also_slow, &lease, WINDOW), None);
        assert_eq!(gauge.anchors, [None, Some(slow)], "not half as wide");
        let tight = point(6 * SEC, MS, MS, 0, 400_000);
        assert_eq!(gauge.take(1, tight, &lease, WINDOW), None);
        assert_eq!(gauge.anchors, [None, Some(tight)]);
        let proof = point(7 * SEC, MS, MS, 0, 400_000);
        assert!(gauge.take(1, proof, &lease, WINDOW).is_some_and(|gains| 390_000 < gains));
    }

    #[test]
    fn another_run_begins_from_nothing() {
        let mut gauge = Gauge::default();
        let lease = lease(5_000);
        assert_eq!(gauge.take(1, point(SEC, MS, MS, 0, 0), &lease, WINDOW), None);
        let started_anew = Point { shown: Instant(3), ..point(2 * SEC, MS, MS, 0, 0) };
        assert_eq!(gauge.take(2, started_anew, &lease, WINDOW), None);
        assert_eq!(gauge.anchors, [None, Some(started_anew)]);
    }

    #[test]
    fn a_clock_that_was_right_for_years_and_begins_to_run_apart_is_found_within_two_windows() {
        let lease = lease(5_000);
        for (excess, within) in [(12_000_u64, 120), (400_000, 4)] {
            let mut gauge = Gauge::default();
            let years = 100_000_000;
            for at in (0..10).map(|n| n * 10_000_000).chain(years - 600..years) {
                assert_eq!(gauge.take(1, point(at * SEC, MS, MS, 0, 0), &lease, WINDOW), None);
            }
            let found = (1..1000).find(|&after| {
                let mut late = point((years + after) * SEC, MS, MS, 0, 0);
                late.shown.0 += after * excess * 1_000;
                gauge.take(1, late, &lease, WINDOW).is_some()
            });
            assert!(found.is_some_and(|after| after <= within), "{excess}: after {found:?} s");
        }
    }

    #[test]
    fn rounds_are_dated_by_the_heartbeat_before_them() {
        let mut heartbeats = Heartbeats::default();
        assert_eq!(heartbeats.began(Round(3)), None);
        for round in [2, 5, 6, 9] {
            heartbeats.note(Round(round), Instant(round * 10));
        }
        assert_eq!(heartbeats.began(Round(1)), None);
        assert_eq!(heartbeats.began(Round(4)), Some((Round(2), Instant(20))));
        assert_eq!(heartbeats.began(Round(8)), Some((Round(6), Instant(60))));
        assert_eq!(heartbeats.began(Round(9)), Some((Round(9), Instant(90))));
        for round in 10..10 + HEARTBEATS_MAX as u64 - 1 {
            heartbeats.note(Round(round), Instant(round * 10));
        }
        assert_eq!(heartbeats.began(Round(8)), None, "that was too long ago");
        assert_eq!(heartbeats.began(Round(9)), Some((Round(9), Instant(90))));
    }
}
