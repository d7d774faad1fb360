//! How far clients may be ahead of their answers: the window of a connection, by the calls that are under way.
//!
//! A call that waits in front of a member, in the kernel's buffers or on its way, is served in its turn, however long ago its
//! client gave it up. A call that waits at its client is not sent any more when its time is over. So a member that has as
//! much to do as it can gives its clients no more room, and takes in no more than it answers. [fault-model F50]
//!
//! In:    calls whose requests are whole and that have no answer yet: of the connection, and of the member; how many of the
//!        connection were answered; the bytes that are still to come of bodies that have begun.
//! Out:   the window: how many bytes of bodies the client may have on their way.
//! Rules: 1. A connection has an allowance of calls under way, 512 at first. Once as many have been answered, it is
//!           halved if the member had more than [`CALLS_MAX`] under way meanwhile; a quarter is added if the member had less
//!           than half of them, and the client used half of what it might.
//!        2. Up to half of the allowance the window does not change; from there on it shuts. While the member has
//!           [`CALLS_MAX`] under way, it is shut.
//!        3. [`LEAST`] calls may be under way or on their way in any case.
//!        4. The rest of a body that has begun has room: what it may hold is judged by [`crate::budget`]. Not while the
//!           window is shut and [`LEAST`] calls are under way, though: which of its bodies a client goes on with is its
//!           own affair, so that room for the rest of one begins another, and in the end lets in all.
//! Knows nothing of: frames, what calls are, clocks.

/// Calls under way on a member at which its clients have no more room, unless told otherwise. A member whose log waits 10 ms
/// for its disk, or for the others, takes in 100,000 of them in a second; one that answers no more than 5,000 in a second
/// has its clients wait for 0.2 s.
pub const CALLS_MAX: u64 = 1024;

/// Calls that a connection may have under way at first: about what HTTP/2 begins with.
const FIRST: u64 = 512;

/// Calls that a connection may have under way whatever others ask.
pub const LEAST: u64 = 16;

/// What a call takes of the window, in bytes, as far as it is known beforehand: a small put.
const CALL_BYTES: u64 = 128;

/// The window is not opened by less than this, in bytes, nor by less than half: each time costs a frame.
const STEP_BYTES: u64 = 1 << 10;

/// What HTTP/2 begins with. [RFC 9113 §6.9.2]
const WINDOW_FIRST: u64 = 65_535;

/// The largest window that a connection is given.
const WINDOW_MAX: u64 = 16 << 20;

/// What is under way, as far as a connection's window depends on it.
#[derive(Clone, Copy, Debug)]
pub struct UnderWay {
    /// Calls of this connection.
    pub own: u64,
    /// Calls of the member.
    pub all: u64,
    /// … at which nobody has more room.
    pub all_max: u64,
    /// Calls of this connection that are not under way any more, so far.
    pub answered: u64,
    /// Bytes that are still to come of bodies that have begun.
    pub expected: u64,
}

/// The window of one connection, as it was last set.
#[derive(Debug)]
pub struct Ahead {
    window: u64,
    allowance: u64,
    /// The allowance is judged when so many have been answered, …
    judged_at: u64,
    /// … by whether the member had too many under way since the last time, and this connection half of what it might.
    was_crowded: bool,
    was_used: bool,
}

impl Default for Ahead {
    /// Of a connection that has just begun.
    fn default() -> Ahead {
        Ahead {
            window: WINDOW_FIRST,
            allowance: FIRST,
            judged_at: FIRST,
            was_crowded: false,
            was_used: false,
        }
    }
}

impl Ahead {
    /// The window from now on, if it has to be set, and whether it is larger than it was.
    pub fn follow(&mut self, under_way: UnderWay) -> Option<(u32, bool)> {
        self.judge(under_way);
        let window = self.window(under_way);
        let is_larger = self.window + STEP_BYTES.max(self.window / 2) <= window;
        if !is_larger && self.window <= window {
            return None;
        }
        self.window = window;
        Some((u32::try_from(window).expect("no more than the largest"), is_larger))
    }

    /// Rule 1.
    fn judge(&mut self, UnderWay { own, all, all_max, answered, .. }: UnderWay) {
        self.was_crowded |= all_max < all;
        self.was_used |= self.allowance / 2 <= own;
        if answered < self.judged_at {
            return;
        }
        if self.was_crowded {
            self.allowance = (self.allowance / 2).max(LEAST);
        } else if self.was_used && all < all_max / 2 {
            self.allowance = (self.allowance + self.allowance / 4).min(all_max.max(FIRST));
        }
        (self.was_crowded, self.was_used) = (false, false);
        self.judged_at = answered + self.allowance;
    }

    /// Rules 2 to 4.
    fn window(&self, UnderWay { own, all, all_max, expected, .. }: UnderWay) -> u64 {
        let calls = match self.allowance {
            _ if all_max <= all && LEAST <= own => return 0,
            _ if all_max <= all => LEAST - own,
            allowance if own <= allowance / 2 => allowance,
            allowance => 2 * allowance.saturating_sub(own),
        };
        (calls * CALL_BYTES + expected).min(WINDOW_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    const IDLE: UnderWay = UnderWay { own: 0, all: 0, all_max: CALLS_MAX, answered: 0, expected: 0 };

    #[test]
    fn a_connection_that_asks_little_keeps_the_window_that_it_began_with() {
        let mut ahead = Ahead::default();
        for answered in 0..10_000 {
            let own = answered % 250;
            let under_way = UnderWay { own, all: own, answered, ..IDLE };
            assert_eq!(ahead.follow(under_way), None, "{own} calls under way");
        }
    }

    #[test]
    fn the_rest_of_a_body_has_room_unless_calls_enough_are_under_way_in_a_crowd() {
        let crowded = UnderWay { own: LEAST, all: CALLS_MAX, ..IDLE };
        let mut ahead = Ahead::default();
        assert_eq!(ahead.follow(crowded), Some((0, false)));
        let expected = 1_400_000;
        assert_eq!(ahead.follow(UnderWay { expected, ..crowded }), None, "it would begin another one");
        let fewer = UnderWay { own: LEAST - 1, ..crowded };
        assert_eq!(ahead.follow(UnderWay { expected, ..fewer }), Some((1_400_128, true)));
        assert_eq!(ahead.follow(crowded), Some((0, false)));
        assert_eq!(ahead.follow(UnderWay { own: 0, ..crowded }), Some((2048, true)), "{LEAST} calls");
        assert_eq!(ahead.follow(UnderWay { all: 0, own: 0, ..crowded }), Some((65_536, true)));
    }

    /// Clients that ask for all they can, and a member that answers so many calls in a step, in their order.
    struct Model {
        clients: Vec<(Ahead, UnderWay)>,
        queue: VecDeque<usize>,
        /// What each may send: bytes that it was given and has not used.
        credit: Vec<u64>,
    }

    impl Model {
        fn new(clients: usize) -> Model {
            let client = |_| (Ahead::default(), IDLE);
            Model {
                clients: (0..clients).map(client).collect(),
                queue: VecDeque::new(),
                credit: vec![WINDOW_FIRST; clients],
            }
        }

        /// All send all they may, then so many are answered; then each connection has its turn.
        fn step(&mut self, answered: usize) {
            for (number, credit) in self.credit.iter_mut().enumerate() {
                let calls = std::mem::take(credit) / CALL_BYTES;
                self.clients[number].1.own += calls;
                self.queue.extend((0..calls).map(|_| number));
            }
            for number in self.queue.drain(..answered.min(self.queue.len())) {
                self.clients[number].1.own -= 1;
                self.clients[number].1.answered += 1;
            }
            let all = self.queue.len() as u64;
            for ((ahead, under_way), credit) in self.clients.iter_mut().zip(&mut self.credit) {
                under_way.all = all;
                let _ = ahead.follow(*under_way);
                // What was taken in has been given back, up to the window.
                *credit = ahead.window;
            }
        }
    }

    /// However many ask, what is under way comes down to what may be, and the member never runs dry for it.
    #[test]
    fn what_is_under_way_comes_down_to_what_may_be_whoever_asks() {
        for connections in [1, 2, 21, 60] {
            let mut model = Model::new(connections);
            for _ in 0..1000 {
                model.step(100);
            }
            for _ in 0..1000 {
                model.step(100);
                let under_way = model.queue.len() as u64;
                assert!(100 <= under_way, "{connections} clients leave the member idle: {under_way}");
                assert!(under_way <= 2 * CALLS_MAX, "{connections} clients: {under_way} under way");
            }
        }
    }

    /// What was taken away in a crowd comes back when the crowd has gone and the client asks for it.
    #[test]
    fn a_client_that_is_served_gets_more_room_again() {
        let mut ahead = Ahead::default();
        let mut answered = 0;
        for _ in 0..10 {
            answered += 1000;
            let _ = ahead.follow(UnderWay { own: 20, all: 2 * CALLS_MAX, answered, ..IDLE });
        }
        assert_eq!(ahead.allowance, LEAST);
        for _ in 0..30 {
            answered += 1000;
            let own = ahead.allowance / 2;
            let _ = ahead.follow(UnderWay { own, all: own.min(CALLS_MAX / 2 - 1), answered, ..IDLE });
        }
        assert_eq!(ahead.allowance, CALLS_MAX);
    }
}
