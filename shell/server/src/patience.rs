//! Patience: how long a connection may be silent or unread, and how often its client may ping.
//!
//! In:    now; how many frames and pings have come; whether calls are under way; the pieces of responses that wait, and
//!        the bytes that were taken.
//! Out:   whether the connection goes on, and if not, why.
//! Rules: 1. A connection without a call and without a frame for [`Limits::idle`] is closed; a ping is a frame.
//!        2. If pieces wait and none of them is taken for [`Limits::stall`], the client does not read, and is closed.
//!           So is one for which pieces wait all the time, and that takes less than rule 4 says.
//!        3. Pings that come sooner than [`Limits::ping`] after the one before, with nothing sent in between, are
//!           strikes: after the third in a row the connection is closed. A client that measures its connection by pings
//!           sends one when a part of a response has come, so the parts sent since its last ping excuse the next.
//!           [grpc-go http2_server.go: handlePing; bdp_estimator.go]
//!        4. A client must take a stream of messages at [`STREAM_BYTES_PER_S`] on average, plus [`Limits::stall`] once:
//!           its source holds memory meanwhile, perhaps a copy of all tables. Time in which nothing waits for the
//!           client does not count. While other responses wait it must take [`ANSWERS_BYTES_PER_S`] of all of them
//!           together, since they share its link. Otherwise a byte a minute would keep what all of them hold.
//!        5. A begun frame, or a call's head of several frames, must be complete within [`Limits::head`]. Body data has
//!           the deadline of its call.
//! Knows nothing of: sockets, timers, the contents of calls.

use std::num::NonZeroU64;
use std::time::Duration;
use tokio::time::Instant;

/// Strikes that are overlooked. [grpc-go http2_server.go: maxPingStrikes]
const STRIKES_MAX: u32 = 2;

/// Bytes of a stream that give its client a second more.
const STREAM_BYTES_PER_S: u64 = 256 << 10;

/// Bytes of a connection's responses that give its client a second more. Slower than any link still in use: the limit
/// is for clients that take as little as they can.
const ANSWERS_BYTES_PER_S: u64 = 16 << 10;

/// How long a response has waited for its client so far, and the rate at which the client must take it. [Rule 4]
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    bytes_per_s: u64,
    waited: Duration,
}

impl Pace {
    /// Of a stream of messages.
    pub(crate) fn of_stream() -> Pace {
        Pace { bytes_per_s: STREAM_BYTES_PER_S, waited: Duration::ZERO }
    }

    /// Of a response, or of many.
    pub(crate) fn of_answers() -> Pace {
        Pace { bytes_per_s: ANSWERS_BYTES_PER_S, waited: Duration::ZERO }
    }

    /// It has waited so much longer.
    pub fn waited(&mut self, waited: Duration) {
        self.waited = self.waited.saturating_add(waited);
    }

    /// How long it may wait now, after its client has taken so many bytes in all: at most `stall`.
    pub fn patience(&self, taken: u64, stall: Duration) -> Duration {
        let earned = Duration::from_millis(taken.saturating_mul(1000) / self.bytes_per_s);
        (stall + earned).saturating_sub(self.waited).min(stall)
    }
}

/// The deadlines of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Without a frame.
    pub idle: Duration,
    /// Without taking any byte that waits.
    pub stall: Duration,
    /// Least time between two pings.
    pub ping: Duration,
    /// From the first byte of a frame or a head to its last.
    pub head: Duration,
}

impl Limits {
    /// Between two looks: no deadline is missed by more than half of it.
    pub(crate) fn look_every(&self) -> Duration {
        self.idle.min(self.stall) / 2
    }
}

/// Why a connection does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enough {
    /// Rule 1.
    Idle,
    /// Rule 2.
    Stalled,
}

/// Counts of the pieces of a connection's responses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pieces {
    /// Those that wait for the socket or for the client's window.
    pub waiting: u64,
    /// Those that were sent.
    pub left: u64,
    /// Bytes that were sent, those of partly sent pieces included.
    pub taken: u64,
    /// How often the last waiting piece was sent.
    pub emptied: u64,
}

/// The state of one connection.
#[derive(Debug)]
pub struct Patience {
    limits: Limits,
    /// Frames so far, and since when there were so many and no call.
    frames: u64,
    quiet_since: Instant,
    /// Pieces sent so far, and since when some wait and no more were sent.
    left: u64,
    stalled_since: Option<Instant>,
    /// Since when some have waited all the time, and the bytes that had been sent then.
    slow_since: Option<(Instant, u64)>,
    /// [`Pieces::emptied`] by then.
    emptied: u64,
    pings: u64,
    last_ping: Option<Instant>,
    strikes: u32,
    /// The incomplete frame or head, and when it was first seen.
    begun: Option<(NonZeroU64, Instant)>,
}

impl Patience {
    /// For a new connection.
    pub fn new(limits: Limits, now: Instant) -> Patience {
        Patience {
            limits,
            frames: 0,
            quiet_since: now,
            left: 0,
            stalled_since: None,
            slow_since: None,
            emptied: 0,
            pings: 0,
            last_ping: None,
            strikes: 0,
            begun: None,
        }
    }

    /// Pings that have come so far.
    pub fn pings(&self) -> u64 {
        self.pings
    }

    /// Whether the pings, so many in all by now, are too many; `answered`: something was sent since the last call.
    pub(crate) fn too_many_pings(&mut self, pings: u64, answered: bool, now: Instant) -> bool {
        let new = u32::try_from(pings - self.pings).unwrap_or(u32::MAX);
        self.pings = pings;
        let too_soon = self.last_ping.is_some_and(|last| now < last + self.limits.ping);
        self.last_ping = Some(now);
        // Of pings that came together only the first can be excused by sent bytes, or be late enough.
        self.strikes = match (answered, too_soon) {
            (true, _) => new - 1,
            (false, true) => self.strikes.saturating_add(new),
            (false, false) => self.strikes.saturating_add(new - 1),
        };
        STRIKES_MAX < self.strikes
    }

    /// The deadline of this incomplete frame or head.
    pub(crate) fn whole_by(&mut self, begun: NonZeroU64, now: Instant) -> Instant {
        let (_, since) = *self.begun.take_if(|(frame, _)| *frame == begun).get_or_insert((begun, now));
        self.begun = Some((begun, since));
        since + self.limits.head
    }

    /// Checks the deadlines, every [`Limits::look_every`].
    pub fn look(&mut self, now: Instant, frames: u64, is_busy: bool, pieces: Pieces) -> Result<(), Enough> {
        let Pieces { waiting, left, taken, emptied } = pieces;
        if is_busy || frames != self.frames {
            self.frames = frames;
            self.quiet_since = now;
        }
        if waiting == 0 || left != self.left {
            self.left = left;
            self.stalled_since = (0 < waiting).then_some(now);
        } else if self.stalled_since.is_none() {
            self.stalled_since = Some(now);
        }
        if self.stalled_since.is_some_and(|since| since + self.limits.stall <= now) {
            return Err(Enough::Stalled);
        }
        if emptied != self.emptied {
            (self.emptied, self.slow_since) = (emptied, None);
        }
        if 0 < waiting {
            let (since, taken_before) = *self.slow_since.get_or_insert((now, taken));
            let mut pace = Pace::of_answers();
            pace.waited(now - since);
            if pace.patience(taken - taken_before, self.limits.stall).is_zero() {
                return Err(Enough::Stalled);
            }
        } else {
            self.slow_since = None;
        }
        if self.quiet_since + self.limits.idle <= now {
            return Err(Enough::Idle);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        idle: Duration::from_secs(600),
        stall: Duration::from_secs(60),
        ping: Duration::from_secs(5),
        head: Duration::from_secs(5),
    };

    const NONE: Pieces = Pieces { waiting: 0, left: 0, taken: 0, emptied: 0 };

    fn seconds(from: Instant, seconds: u64) -> Instant {
        from + Duration::from_secs(seconds)
    }

    #[test]
    fn silence_without_a_call_ends_a_connection_and_a_word_or_a_call_does_not() {
        let begin = Instant::now();
        let mut patience = Patience::new(LIMITS, begin);
        assert_eq!(patience.look(seconds(begin, 599), 0, false, NONE), Ok(()));
        assert_eq!(patience.look(seconds(begin, 600), 1, false, NONE), Ok(()), "a frame has come");
        assert_eq!(patience.look(seconds(begin, 1199), 1, true, NONE), Ok(()), "a call is under way");
        assert_eq!(patience.look(seconds(begin, 1798), 1, false, NONE), Ok(()));
        assert_eq!(patience.look(seconds(begin, 1799), 1, false, NONE), Err(Enough::Idle));
    }

    #[test]
    fn a_client_that_takes_nothing_is_closed_and_one_that_takes_a_little_is_not() {
        let begin = Instant::now();
        let mut patience = Patience::new(LIMITS, begin);
        for (second, (waiting, left), enough) in [
            (30, (5, 0), false),
            (60, (5, 0), false),
            (89, (4, 1), false), // one has left
            (90, (4, 1), false),
            (120, (0, 5), false), // all have
            (150, (1, 5), false),
            (180, (1, 5), false),
            (210, (1, 5), true),
        ] {
            let pieces = Pieces { waiting, left, taken: left << 30, emptied: 0 };
            let looked = patience.look(seconds(begin, second), second, true, pieces);
            assert_eq!(looked.is_err(), enough, "{second}");
        }
    }

    #[test]
    fn a_client_that_takes_a_piece_now_and_then_is_closed_and_a_slow_link_is_not() {
        const SLOW: u64 = 16 << 10;
        // Bytes a second, and the look at which it is enough, if there is one.
        for (bytes_per_s, enough_at) in [(1, Some(120)), (SLOW / 2, Some(150)), (SLOW, None), (1 << 30, None)]
        {
            let begin = Instant::now();
            let mut patience = Patience::new(LIMITS, begin);
            let enough = (30..6000).step_by(30).find(|second| {
                let pieces = Pieces { waiting: 5, left: *second, taken: second * bytes_per_s, emptied: 0 };
                patience.look(seconds(begin, *second), *second, true, pieces).is_err()
            });
            assert_eq!(enough, enough_at, "{bytes_per_s} bytes a second");
        }
        // Where all had left between two looks it has taken all, whatever the looks find.
        let begin = Instant::now();
        let mut patience = Patience::new(LIMITS, begin);
        for second in (30..6000).step_by(30) {
            let pieces = Pieces { waiting: 5, left: second, taken: second, emptied: second / 90 };
            assert_eq!(patience.look(seconds(begin, second), second, true, pieces), Ok(()), "{second}");
        }
    }

    #[test]
    fn a_frame_that_comes_a_byte_at_a_time_has_the_deadline_of_its_first() {
        let begin = Instant::now();
        let mut patience = Patience::new(LIMITS, begin);
        for (second, frame, by) in [(1, 7, 6), (3, 7, 6), (6, 7, 6), (7, 9, 12), (8, 7, 13)] {
            let begun = NonZeroU64::new(frame).expect("they are counted from 1");
            assert_eq!(patience.whole_by(begun, seconds(begin, second)), seconds(begin, by), "{second}");
        }
    }

    #[test]
    fn the_third_ping_too_soon_in_a_row_is_one_too_many() {
        let begin = Instant::now();
        // Second, pings so far, whether anything was sent since the last ones, whether that is too many.
        let table = [
            vec![(0, 1, false, false), (5, 2, false, false), (10, 3, false, false), (15, 4, false, false)],
            vec![(0, 1, false, false), (4, 2, false, false), (8, 3, false, false), (12, 4, false, true)],
            vec![(0, 1, false, false), (1, 2, false, false), (2, 3, true, false), (3, 5, false, false)],
            vec![(0, 1, true, false), (0, 2, true, false), (0, 3, true, false), (0, 4, true, false)],
            vec![(0, 3, false, false), (9, 4, false, false), (10, 5, false, true)],
            vec![(0, 4, false, true)],
            vec![(0, 4, true, true)],
        ];
        for course in table {
            let mut patience = Patience::new(LIMITS, begin);
            for (second, pings, answered, too_many) in course.clone() {
                let found = patience.too_many_pings(pings, answered, seconds(begin, second));
                assert_eq!(found, too_many, "{course:?} at {second}");
            }
        }
    }

    #[test]
    fn what_is_taken_slowly_runs_out_of_patience_and_what_is_taken_at_the_stated_rate_does_not() {
        let stall = Duration::from_secs(60);
        for (pace, bytes_per_s) in [(Pace::of_stream(), 256 << 10), (Pace::of_answers(), 16 << 10)] {
            let mut pace = pace;
            for second in 1..=80 {
                pace.waited(Duration::from_secs(1));
                let taken = bytes_per_s * u64::from(second);
                assert_eq!(
                    pace.patience(taken / 4, stall),
                    stall - Duration::from_millis(750) * second,
                    "after {second} s"
                );
                assert_eq!(pace.patience(taken, stall), stall);
            }
            let taken = bytes_per_s * 80;
            assert_eq!(pace.patience(taken / 4, stall), Duration::ZERO);
            let more = taken + (10 << 20);
            assert_eq!(
                pace.patience(more, stall),
                stall,
                "a client that was quick may stop for no longer than another"
            );
            pace.waited(Duration::from_secs(19));
            assert_eq!(pace.patience(taken, stall), Duration::from_secs(41));
            pace.waited(Duration::MAX);
            assert_eq!(
                pace.patience(u64::MAX, stall),
                Duration::ZERO,
                "no count is too large for the arithmetic"
            );
        }
    }
}
