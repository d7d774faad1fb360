//! Clocks: virtual time, and each member's own view of it.
//!
//! The world counts nanoseconds from 0. A member's monotonic clock begins anywhere (it counts from a boot of its own)
//! and runs a little fast or slow. Its wall clock is off by any amount and may jump, which must not affect the code
//! under test. [fault-model TM1, TM2, F40]
//! Knows nothing of: members, events.

use kattu_raft::Instant;

/// One microsecond of the world.
pub const US: u64 = 1_000;
/// One millisecond of the world.
pub const MS: u64 = 1_000_000;
/// One second of the world.
pub const SEC: u64 = 1_000_000_000;

/// One member's clock, for one run of its process.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    offset: u64,
    /// How much faster than the world's it runs, in millionths; slower if negative.
    rate: i64,
}

impl Clock {
    /// A clock that shows `offset` at the world's 0 and gains `rate` millionths.
    #[must_use]
    pub fn new(offset: u64, rate: i64) -> Clock {
        assert!(rate.abs() < 500_000, "a clock that gains {rate} millionths is no clock");
        Clock { offset, rate }
    }

    /// The time that it shows.
    #[must_use]
    pub fn at(&self, now: u64) -> Instant {
        let gained = (now / 1_000_000) as i64 * self.rate + (now % 1_000_000) as i64 * self.rate / 1_000_000;
        Instant((self.offset + now).saturating_add_signed(gained))
    }

    /// The first moment of the world, not before `now`, at which it shows at least `instant`.
    #[must_use]
    pub fn when(&self, instant: Instant, now: u64) -> u64 {
        let wait = instant.0.saturating_sub(self.at(now).0);
        if wait > 86_400 * SEC {
            return u64::MAX; // as good as never
        }
        let mut then =
            now + (u128::from(wait) * 1_000_000 / (1_000_000 + i128::from(self.rate)) as u128) as u64;
        while self.at(then) < instant {
            then += 1;
        }
        then
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_due_on_the_members_own_clock() {
        for rate in [-20_000, -1, 0, 7, 20_000] {
            let clock = Clock::new(77 * SEC, rate);
            for now in [0, 1, 999_999, 1_000_000, 123_456_789_123] {
                for wait in [0, 1, 999, MS, 5 * SEC + 1] {
                    let deadline = Instant(clock.at(now).0 + wait);
                    let then = clock.when(deadline, now);
                    assert!(now <= then && deadline <= clock.at(then), "{rate} {now} {wait}");
                    assert!(clock.at(then).0 - deadline.0 <= 2, "{rate} {now} {wait}: late");
                }
            }
        }
    }

    #[test]
    fn a_clock_never_runs_back() {
        let clock = Clock::new(5, -20_000);
        let mut last = clock.at(0);
        for now in (0..10_000_000).step_by(997) {
            assert!(last <= clock.at(now));
            last = clock.at(now);
        }
    }
}
