//! A member's clock: it may show any time, and run fast or slow.

use kattu_raft::Instant;

/// Parts of a rate.
const MILLION: u128 = 1_000_000;

/// Shows `shown` at the world's moment `since`, and runs on from there.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    since: Instant,
    shown: Instant,
    /// Parts per million of the true rate.
    rate: u128,
}

impl Clock {
    /// The world's own clock.
    pub fn right() -> Clock {
        Clock { since: Instant(0), shown: Instant(0), rate: MILLION }
    }

    /// A clock that is ahead by so many nanoseconds, and gains (or loses) this many millionths.
    pub fn wrong(now: Instant, ahead: u64, ppm: i64) -> Clock {
        Clock { since: now, shown: Instant(now.0 + ahead), rate: rate(ppm) }
    }

    /// From now on it gains or loses this many millionths.
    pub fn set_rate(&mut self, now: Instant, ppm: i64) {
        *self = Clock { since: now, shown: self.at(now), rate: rate(ppm) };
    }

    /// From now on it runs on from `shown`, as after a restart of the machine.
    pub fn show(&mut self, now: Instant, shown: Instant) {
        (self.since, self.shown) = (now, shown);
    }

    /// The reading at the world's moment `now`.
    pub fn at(&self, now: Instant) -> Instant {
        let elapsed = u128::from(now.0 - self.since.0) * self.rate / MILLION;
        Instant(self.shown.0 + u64::try_from(elapsed).expect("worlds do not last for centuries"))
    }

    /// The world's first moment at which it shows this or later.
    pub fn when(&self, shown: Instant) -> Instant {
        if shown == Instant::NEVER {
            return Instant::NEVER;
        }
        let wait = u128::from(shown.0.saturating_sub(self.shown.0)) * MILLION;
        Instant(self.since.0 + u64::try_from(wait.div_ceil(self.rate)).expect("short waits"))
    }
}

fn rate(ppm: i64) -> u128 {
    u128::try_from(1_000_000 + ppm).expect("a clock that runs forward")
}
