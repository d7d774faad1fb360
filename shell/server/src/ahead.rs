//! How far clients may be ahead of their answers: calls that a connection may have open, by those that are under way.
//!
//! A call that waits in front of a member, in the kernel's buffers or on its way, is served in its turn, however long ago its
//! client gave it up. A call that waits at its client is not sent any more when its time is over. So a member that has as
//! much to do as it can lets its clients have fewer streams, and takes in no more than it answers. [fault-model F50]
//!
//! In:    calls under way (their requests are whole, and they have no answer yet) of the member, and on how many connections;
//!        streams of the connection, and those of them that are being answered; bytes to come of bodies that have begun.
//! Out:   how many streams the client may have open; how many bytes of bodies it may have on their way.
//! Rules: 1. A connection has an allowance of calls that wait for an answer, [`FIRST`] at first. While the member has more than
//!           [`CALLS_MAX`] under way, it is no more than the connection's share of them, and [`LEAST`] in any case. While it
//!           has less than three quarters, a client that uses three quarters of its allowance gets twice as much.
//!        2. Streams that are being answered are on top: an answer that goes on for days takes no call's place.
//!        3. A change is worth its frame only if it lets a client that is near its limit go on, or takes a quarter away.
//!        4. The rest of a body that has begun has room: what it may hold is judged by [`crate::budget`].
//! Knows nothing of: frames, what calls are, clocks.

/// Calls under way on a member at which its clients may have fewer, unless told otherwise. A member whose log waits 10 ms
/// for its disk, or for the others, takes in 100,000 of them in a second; one that answers no more than 5,000 in a second
/// has its clients wait for 0.2 s.
pub const CALLS_MAX: u64 = 1024;

/// Calls of a connection that may wait for an answer at first: a few hundred are what other servers let clients have.
pub const FIRST: u64 = 512;

/// … whatever others ask.
pub const LEAST: u64 = 16;

/// The window is not opened by less than this, in bytes, nor by less than half: each time costs a frame.
const STEP_BYTES: u64 = 1 << 10;

/// What HTTP/2 begins with. [RFC 9113 §6.9.2]
const WINDOW_FIRST: u64 = 65_535;

/// The largest window that a connection is given.
const WINDOW_MAX: u64 = 16 << 20;

/// What is under way, as far as a connection's limits depend on it.
#[derive(Clone, Copy, Debug)]
pub struct UnderWay {
    /// Streams of this connection.
    pub open: u64,
    /// … that are being answered.
    pub answering: u64,
    /// Calls of the member.
    pub all: u64,
    /// … at which clients may have fewer.
    pub all_max: u64,
    /// Connections that have calls under way.
    pub connections: u64,
}

/// What a client may be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    allowance: u64,
    /// Streams that it may have open.
    pub streams: u32,
}

/// The limits of one connection, as they were last set.
#[derive(Debug)]
pub struct Ahead {
    limit: Limit,
    /// The most streams there may ever be.
    streams_max: u32,
    window: u64,
}

impl Ahead {
    /// Of a connection that has just begun.
    pub fn new(streams_max: u32) -> Ahead {
        let streams = streams_max.min(FIRST as u32);
        Ahead { limit: Limit { allowance: FIRST, streams }, streams_max, window: WINDOW_FIRST }
    }

    /// Streams that the client may have open.
    pub fn streams(&self) -> u32 {
        self.limit.streams
    }

    /// What the client should be told, if anything.
    pub fn wanted(&self, under_way: UnderWay) -> Option<Limit> {
        let UnderWay { open, answering, all, all_max, connections } = under_way;
        let Limit { mut allowance, streams } = self.limit;
        let (asking, is_crowded) = (open.saturating_sub(answering), all_max < all);
        if is_crowded {
            allowance = allowance.min(all_max / connections.max(1)).max(LEAST);
        } else if 4 * all < 3 * all_max && 3 * allowance <= 4 * asking {
            allowance = (2 * allowance).min(all_max.max(FIRST));
        }
        let wanted = (answering + allowance).min(u64::from(self.streams_max));
        let said = u64::from(streams);
        let is_worth_it = if wanted < said {
            is_crowded && 4 * wanted <= 3 * said
        } else {
            said < wanted && 3 * said <= 4 * open
        };
        is_worth_it
            .then(|| Limit { allowance, streams: u32::try_from(wanted).expect("no more than the most") })
    }

    /// The client has been told.
    pub fn set(&mut self, limit: Limit) {
        self.limit = limit;
    }

    /// Rule 4, for so many bytes that are to come: the connection's window from now on, if it has to be set, and whether
    /// it is larger than it was.
    pub fn window(&mut self, expected: u64) -> Option<(u32, bool)> {
        let window = (WINDOW_FIRST + expected).min(WINDOW_MAX);
        let is_larger = self.window + STEP_BYTES.max(self.window / 2) <= window;
        if !is_larger && self.window <= window {
            return None;
        }
        self.window = window;
        Some((u32::try_from(window).expect("no more than the largest"), is_larger))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    const STREAMS_MAX: u32 = 10_000;
    const IDLE: UnderWay = UnderWay { open: 0, answering: 0, all: 0, all_max: CALLS_MAX, connections: 1 };

    impl Ahead {
        /// Told as soon as it is wanted.
        fn follow(&mut self, under_way: UnderWay) -> u32 {
            if let Some(limit) = self.wanted(under_way) {
                self.set(limit);
            }
            self.streams()
        }
    }

    #[test]
    fn a_connection_that_asks_little_is_told_nothing() {
        let ahead = Ahead::new(STREAMS_MAX);
        for open in 0..380 {
            assert_eq!(ahead.wanted(UnderWay { open, all: open, ..IDLE }), None, "{open} open");
        }
    }

    #[test]
    fn in_a_crowd_a_connection_has_its_share_and_no_less_than_the_least() {
        let crowd = UnderWay { open: 300, all: CALLS_MAX + 1, ..IDLE };
        for (connections, streams) in [(1, 512), (2, 512), (4, 256), (16, 64), (64, 16), (5000, 16)] {
            assert_eq!(Ahead::new(STREAMS_MAX).follow(UnderWay { connections, ..crowd }), streams);
        }
        let calm = UnderWay { all: CALLS_MAX, connections: 64, ..crowd };
        assert_eq!(Ahead::new(STREAMS_MAX).wanted(calm), None, "as many as may be are not too many");
        assert_eq!(Ahead::new(100).streams(), 100, "never more than there may be");
    }

    #[test]
    fn what_a_crowd_took_comes_back_when_it_is_used_whoever_else_asks() {
        let mut ahead = Ahead::new(STREAMS_MAX);
        ahead.follow(UnderWay { open: 16, all: 2 * CALLS_MAX, connections: 500, ..IDLE });
        assert_eq!(ahead.streams(), 16);
        assert_eq!(ahead.wanted(UnderWay { open: 11, ..IDLE }), None, "nobody needs more");
        let mut open = 12;
        for streams in [32, 64, 128, 256, 512, 1024] {
            assert_eq!(ahead.follow(UnderWay { open, all: 400, ..IDLE }), streams);
            open = u64::from(streams);
        }
        assert_eq!(
            ahead.wanted(UnderWay { open, all: 400, ..IDLE }),
            None,
            "one connection has no more than the member"
        );
    }

    #[test]
    fn streams_that_are_answered_for_long_take_no_calls_place() {
        let mut ahead = Ahead::new(STREAMS_MAX);
        for answering in 0..9_000 {
            let streams =
                u64::from(ahead.follow(UnderWay { open: answering + 1, answering, all: 1, ..IDLE }));
            assert!(answering + 128 <= streams, "{answering} take room from calls: {streams}");
        }
        let crowd = UnderWay { open: 9_016, answering: 9_000, all: 2000, connections: 200, ..IDLE };
        assert!(9_016 <= ahead.follow(crowd));
        assert_eq!(ahead.follow(UnderWay { open: 16, answering: 0, ..crowd }), 16);
    }

    #[test]
    fn the_rest_of_a_body_has_room() {
        let mut ahead = Ahead::new(STREAMS_MAX);
        assert_eq!(ahead.window(30_000), None, "not worth a frame");
        assert_eq!(ahead.window(1_400_000), Some((1_465_535, true)));
        assert_eq!(ahead.window(1_400_000), None);
        assert_eq!(ahead.window(0), Some((65_535, false)));
        assert_eq!(ahead.window(1 << 40), Some((16 << 20, true)));
    }

    /// Clients that ask for all they can, and a member that answers so many calls in a step, in their order.
    struct Model {
        clients: Vec<(Ahead, u64)>,
        queue: VecDeque<usize>,
    }

    impl Model {
        fn new(clients: usize) -> Model {
            Model {
                clients: (0..clients).map(|_| (Ahead::new(STREAMS_MAX), 0)).collect(),
                queue: VecDeque::new(),
            }
        }

        /// All send all they may, then so many are answered; then each connection has its turn.
        fn step(&mut self, answered: usize) {
            for (number, (ahead, open)) in self.clients.iter_mut().enumerate() {
                let calls = u64::from(ahead.streams()).saturating_sub(*open);
                *open += calls;
                self.queue.extend((0..calls).map(|_| number));
            }
            for number in self.queue.drain(..answered.min(self.queue.len())) {
                self.clients[number].1 -= 1;
            }
            let connections = self.clients.iter().filter(|(_, open)| 0 < *open).count() as u64;
            let all = self.queue.len() as u64;
            for (ahead, open) in &mut self.clients {
                ahead.follow(UnderWay { open: *open, all, connections, ..IDLE });
            }
        }
    }

    /// However many ask, what is under way comes down to what may be, and the member never runs dry for it.
    #[test]
    fn what_is_under_way_comes_down_to_what_may_be_whoever_asks() {
        for connections in [1, 2, 21, 64, 300] {
            let mut model = Model::new(connections);
            for _ in 0..2000 {
                model.step(100); // all that came before anybody knew of a crowd
            }
            for _ in 0..1000 {
                model.step(100);
                let under_way = model.queue.len() as u64;
                assert!(100 <= under_way, "{connections} clients leave the member idle: {under_way}");
                let most = (LEAST * connections as u64).max(2 * CALLS_MAX);
                assert!(under_way <= most, "{connections} clients: {under_way} under way");
            }
        }
    }
}
