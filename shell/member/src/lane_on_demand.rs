//! Lane on demand: when the lane for pieces of snapshots is dialled, and when it is closed again.
//!
//! ```text
//!             a message waits, and the pause is over             the peer lets this member in
//!   closed ───────────────────────────────────────▶ dialling ──────────────────────────────────▶ open
//!     ▲                                                │                                           │
//!     └─── a pause ◀── it failed: the message is lost ─┴── it ended, or nothing was sent for a while ─┘
//! ```
//! Rules: 1. An attempt begins when a message waits, and not before the pause after the last one is over. While it is planned or
//!           under way, further messages begin none.
//!        2. When an attempt fails, what waited is lost: the protocol sends it again, and the next attempt takes its time.
//!        3. A lane on which nothing was sent between two looks, and nothing waits, is closed. A look comes every
//!           [`SILENCE_MAX`](crate::lanes::SILENCE_MAX).
//! Source: [fault-model NT1–NT6].
//! Knows nothing of: sockets, queues, how long pauses are.

use kattu_raft::Instant;

/// The attempts to open a lane on demand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneOnDemand {
    /// An attempt is planned or under way.
    is_dialling: bool,
    /// None begins before this.
    not_before: Instant,
}

impl LaneOnDemand {
    /// A message waits for the lane. Returns when to dial, if no attempt is planned or under way. [Rule 1]
    pub fn wanted(&mut self, now: Instant) -> Option<Instant> {
        let begins = !std::mem::replace(&mut self.is_dialling, true);
        begins.then(|| self.not_before.max(now))
    }

    /// The lane is open.
    pub fn opened(&mut self) {
        self.is_dialling = false;
    }

    /// An attempt has failed, or the lane has ended, and this is the end of the pause that follows. [Rules 1, 2]
    pub fn rests_until(&mut self, end: Instant) {
        *self = LaneOnDemand { is_dialling: false, not_before: end };
    }
}

/// What is sent on an open lane between two looks at it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    sent: u64,
}

impl Usage {
    /// Of a lane that has just been opened, with so many messages given to it so far.
    #[must_use]
    pub fn since(sent: u64) -> Usage {
        Usage { sent }
    }

    /// Whether the lane is closed after a look: so many messages were given to it so far, and `waits`: some have not left.
    /// [Rule 3]
    pub fn is_over(&mut self, sent: u64, waits: bool) -> bool {
        std::mem::replace(&mut self.sent, sent) == sent && !waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_attempt_is_under_way_at_a_time() {
        let mut lane = LaneOnDemand::default();
        assert_eq!(lane.wanted(Instant(5)), Some(Instant(5)));
        assert_eq!(lane.wanted(Instant(6)), None, "it is planned, or under way");
        lane.opened();
        assert_eq!(lane.wanted(Instant(7)), Some(Instant(7)), "it has closed without a word");
    }

    #[test]
    fn an_attempt_waits_for_the_end_of_the_pause_and_for_a_message() {
        let mut lane = LaneOnDemand::default();
        assert_eq!(lane.wanted(Instant(5)), Some(Instant(5)));
        lane.rests_until(Instant(20));
        assert_eq!(lane.wanted(Instant(10)), Some(Instant(20)), "the pause goes on");
        assert_eq!(lane.wanted(Instant(25)), None);
        lane.rests_until(Instant(30));
        assert_eq!(lane.wanted(Instant(40)), Some(Instant(40)), "nothing was wanted meanwhile");
    }

    #[test]
    fn a_lane_is_closed_when_nothing_was_sent_between_two_looks_and_nothing_waits() {
        let mut usage = Usage::since(3);
        assert!(!usage.is_over(4, false), "one was sent since it was opened");
        assert!(!usage.is_over(4, true), "it has not left");
        assert!(usage.is_over(4, false));
        assert!(Usage::since(3).is_over(3, false), "what it was opened for has left");
    }
}
