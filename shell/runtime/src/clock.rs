//! The one clock: monotonic, and running on through suspend. [fault-model TM1]
//!
//! Knows nothing of: wall time.

use kattu_raft::{Duration, Instant};
use rustix::time::{ClockId, clock_gettime};

/// The moment now, in nanoseconds since boot.
#[must_use]
pub fn now() -> Instant {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    Instant(seconds * 1_000_000_000 + nanos)
}

/// How long until `deadline`; a day at most, so that timers need no "never".
#[must_use]
pub fn until(deadline: Instant) -> Duration {
    deadline.since(now()).min(Duration::from_secs(86_400))
}
