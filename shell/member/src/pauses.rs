//! Pauses: how long a dialer waits before it tries again.
//!
//! Rules: 1. Each pause is twice as long as the one before, up to the longest.
//!        2. A connection that lived for longer than the longest pause begins anew with the shortest. One that ends as soon as it
//!           is open does not: it would be dialled a hundred times a second.
//!        3. A refusal is followed by the longest pause: nothing changes soon.
//!        4. The longest pause is that of the election timeout in force, which may change: so each call is told.
//! Knows nothing of: clocks, chance, who is dialled.

use kattu_raft::Duration;

/// The pause before the first attempt after a connection that lived.
pub const PAUSE_MIN: Duration = Duration::from_millis(10);

/// The longest pause. A member that comes back is dialled by its peers before they hold an election without it.
#[must_use]
pub fn pause_max(election_timeout: Duration) -> Duration {
    election_timeout / 2
}

/// The pauses of one dialer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pauses {
    next: Duration,
}

impl Default for Pauses {
    fn default() -> Pauses {
        Pauses { next: PAUSE_MIN }
    }
}

impl Pauses {
    /// A connection has ended that lived for so long.
    pub fn lived(&mut self, life: Duration, max: Duration) {
        if longest(max) < life {
            self.next = PAUSE_MIN;
        }
    }

    /// The peer refused the connection.
    pub fn refused(&mut self, max: Duration) {
        self.next = longest(max);
    }

    /// The pause before the next attempt, of at most `max`. The caller spreads it over time, so that members do not dial in
    /// step.
    pub fn take(&mut self, max: Duration) -> Duration {
        let pause = self.next.min(longest(max));
        self.next = (pause * 2).min(longest(max));
        pause
    }
}

/// The longest pause is no shorter than the shortest.
fn longest(max: Duration) -> Duration {
    max.max(PAUSE_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_ends_at_once_does_not_make_the_next_attempt_sooner() {
        let max = Duration::from_millis(500);
        let mut pauses = Pauses::default();
        for expected in [10, 20, 40, 80, 160, 320, 500, 500] {
            pauses.lived(Duration::from_millis(1), max);
            assert_eq!(pauses.take(max), Duration::from_millis(expected));
        }
        pauses.lived(Duration::from_secs(60), max);
        assert_eq!(pauses.take(max), PAUSE_MIN);
        pauses.refused(max);
        assert_eq!(pauses.take(max), max);
        let none = Duration::ZERO;
        assert_eq!(Pauses::default().take(none), PAUSE_MIN, "the longest is no shorter than the shortest");
    }

    #[test]
    fn the_longest_pause_is_that_of_the_timing_in_force() {
        let (long, short) = (Duration::from_secs(5), Duration::from_millis(50));
        let mut pauses = Pauses::default();
        pauses.refused(long);
        assert_eq!(pauses.take(short), short, "it was lowered meanwhile");
        pauses.refused(short);
        assert_eq!([long; 3].map(|max| pauses.take(max)), [short, short * 2, short * 4], "and raised again");
        pauses.lived(Duration::from_secs(1), long);
        assert_eq!(pauses.take(short), short, "too short a life for the long pause");
        pauses.lived(Duration::from_secs(1), short);
        assert_eq!(pauses.take(short), PAUSE_MIN);
    }
}
