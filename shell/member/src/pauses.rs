//! Pauses: how long a dialer waits before it tries again.
//!
//! Rules: 1. Each pause is twice as long as the one before, up to the longest.
//!        2. A connection that lived for longer than the longest pause begins anew with the shortest. One that ends as soon as it
//!           is open does not: it would be dialled a hundred times a second.
//!        3. A refusal is followed by the longest pause: nothing changes soon.
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
    max: Duration,
}

impl Pauses {
    /// Pauses of at most `max`, or of [`PAUSE_MIN`] if that is longer.
    #[must_use]
    pub fn new(max: Duration) -> Pauses {
        Pauses { next: PAUSE_MIN, max: max.max(PAUSE_MIN) }
    }

    /// A connection has ended that lived for so long.
    pub fn lived(&mut self, life: Duration) {
        if self.max < life {
            self.next = PAUSE_MIN;
        }
    }

    /// The peer refused the connection.
    pub fn refused(&mut self) {
        self.next = self.max;
    }

    /// The pause before the next attempt. The caller spreads it over time, so that members do not dial in step.
    pub fn take(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.max);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_ends_at_once_does_not_make_the_next_attempt_sooner() {
        let max = Duration::from_millis(500);
        let mut pauses = Pauses::new(max);
        for expected in [10, 20, 40, 80, 160, 320, 500, 500] {
            pauses.lived(Duration::from_millis(1));
            assert_eq!(pauses.take(), Duration::from_millis(expected));
        }
        pauses.lived(Duration::from_secs(60));
        assert_eq!(pauses.take(), PAUSE_MIN);
        pauses.refused();
        assert_eq!(pauses.take(), max);
        assert_eq!(
            Pauses::new(Duration::ZERO).take(),
            PAUSE_MIN,
            "the longest is no shorter than the shortest"
        );
    }
}
