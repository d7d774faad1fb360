//! Limits of one connection, derived from the calls under way: its open streams and its receive window.
//!
//! A call that waits in front of a member, in the kernel's buffers or in transit, is served in its turn, however long
//! ago its client gave it up. A call that waits at its client is not sent once its deadline has passed. So an
//! overloaded member lowers its clients' stream limits, and takes in no more than it answers. [fault-model F50]
//!
//! In:    calls under way (their requests are complete, and they have no response yet) of the member, and on how many
//!        connections; streams of the connection, and those of them that are being answered; bytes to come of begun
//!        bodies.
//! Out:   how many streams the client may have open; how many bytes of bodies it may send.
//! Rules: 1. A connection has an allowance of calls that wait for a response, [`FIRST`] at first. While the member has
//!           more than [`CALLS_MAX`] under way, a connection that is new, or that has more than its share of them, is
//!           allowed its share, and [`LEAST`] in any case. While it has less than three quarters, an allowance doubles:
//!           up to [`FIRST`] in any case, because calls of a distant client are in transit most of the time and seldom
//!           counted here; beyond it for a client that uses three quarters of it.
//!        2. Streams that are being answered come on top: a response that goes on for days takes no call's place.
//!        3. A change is sent if it lowers the limit by a quarter, if the allowance grows, or if it raises the limit of
//!           a client that uses three quarters of it.
//!        4. The window has room for the rest of every begun body: [`crate::budget`] decides what may be held.
//! Knows nothing of: frames, the contents of calls, clocks.

/// Default number of calls under way on a member above which stream limits are lowered. A member whose log takes 10 ms
/// for its disk or its quorum still serves 100,000 calls per second; one that serves only 5,000 per second keeps its
/// clients waiting for 0.2 s.
pub const CALLS_MAX: u64 = 1024;

/// First allowance of a connection. Other servers allow a few hundred streams, too.
pub const FIRST: u64 = 512;

/// Least allowance of a connection, however busy the member is.
pub const LEAST: u64 = 16;

/// The window grows by at least this many bytes, and by at least half: each growth costs a frame.
const STEP_BYTES: u64 = 1 << 10;

/// HTTP/2's first window. [RFC 9113 §6.9.2]
const WINDOW_FIRST: u64 = 65_535;

/// The largest window that a connection is given.
const WINDOW_MAX: u64 = 16 << 20;

/// The counts on which a connection's limits depend.
#[derive(Clone, Copy, Debug)]
pub struct UnderWay {
    /// Streams of this connection.
    pub open: u64,
    /// … that are being answered.
    pub answering: u64,
    /// Calls of the member.
    pub all: u64,
    /// … above which stream limits are lowered.
    pub all_max: u64,
    /// Connections that have calls under way.
    pub connections: u64,
}

/// A stream limit, and the allowance in it.
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
    /// The configured maximum of streams.
    streams_max: u32,
    window: u64,
}

impl Ahead {
    /// For a new connection, on a member with so much under way.
    pub fn new(streams_max: u32, under_way: UnderWay) -> Ahead {
        let UnderWay { all, all_max, connections, .. } = under_way;
        let allowance = if all_max < all { FIRST.min(share(all_max, connections + 1)) } else { FIRST };
        let streams = streams_max.min(allowance as u32);
        Ahead { limit: Limit { allowance, streams }, streams_max, window: WINDOW_FIRST }
    }

    /// Streams that the client may have open.
    pub fn streams(&self) -> u32 {
        self.limit.streams
    }

    /// The limit to send to the client, if it should change.
    pub fn wanted(&self, under_way: UnderWay) -> Option<Limit> {
        let UnderWay { open, answering, all, all_max, connections } = under_way;
        let Limit { allowance, streams } = self.limit;
        let asking = open.saturating_sub(answering);
        let allowed = if all_max < all {
            let share = share(all_max, connections);
            if share < asking { allowance.min(share) } else { allowance }
        } else if 4 * all < 3 * all_max {
            let is_used = 3 * allowance <= 4 * asking;
            let most = if is_used { all_max.max(FIRST) } else { FIRST };
            (2 * allowance).min(most).max(allowance)
        } else {
            allowance
        };
        let wanted = (answering + allowed).min(u64::from(self.streams_max));
        let said = u64::from(streams);
        let is_worth_it = if wanted < said {
            4 * wanted <= 3 * said
        } else {
            said < wanted && (allowance < allowed || 3 * said <= 4 * open)
        };
        let allowance = allowed;
        is_worth_it
            .then(|| Limit { allowance, streams: u32::try_from(wanted).expect("no more than the most") })
    }

    /// The limit has been sent to the client.
    pub fn set(&mut self, limit: Limit) {
        self.limit = limit;
    }

    /// Rule 4, for so many bytes that are to come: the connection's window from now on, if it has to be set, and
    /// whether it is larger than it was.
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

/// A connection's share of the calls that may be under way.
pub fn share(calls_max: u64, connections: u64) -> u64 {
    (calls_max / connections.max(1)).max(LEAST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    const STREAMS_MAX: u32 = 10_000;
    const IDLE: UnderWay = UnderWay { open: 0, answering: 0, all: 0, all_max: CALLS_MAX, connections: 1 };

    impl Ahead {
        /// Sets a wanted limit at once.
        fn follow(&mut self, under_way: UnderWay) -> u32 {
            if let Some(limit) = self.wanted(under_way) {
                self.set(limit);
            }
            self.streams()
        }
    }

    /// A connection to an idle member.
    fn first() -> Ahead {
        Ahead::new(STREAMS_MAX, IDLE)
    }

    #[test]
    fn a_connection_that_asks_little_is_told_nothing() {
        for open in 0..380 {
            assert_eq!(first().wanted(UnderWay { open, all: open, ..IDLE }), None, "{open} open");
        }
        let crowd = UnderWay { all: 5 * CALLS_MAX, connections: 5000, ..IDLE };
        for open in 0..=LEAST {
            assert_eq!(first().wanted(UnderWay { open, ..crowd }), None, "{open} open in a crowd");
        }
    }

    #[test]
    fn in_a_crowd_a_connection_has_its_share_and_no_less_than_the_least() {
        let crowd = UnderWay { open: 300, all: CALLS_MAX + 1, ..IDLE };
        for (connections, streams) in [(1, 512), (2, 512), (4, 256), (16, 64), (64, 16), (5000, 16)] {
            assert_eq!(first().follow(UnderWay { connections, ..crowd }), streams);
            let late = Ahead::new(STREAMS_MAX, UnderWay { connections: connections - 1, ..crowd });
            assert_eq!(late.streams(), streams, "one that comes in its midst");
        }
        let calm = UnderWay { all: CALLS_MAX, connections: 64, ..crowd };
        assert_eq!(first().wanted(calm), None, "as many as may be are not too many");
        assert_eq!(Ahead::new(100, IDLE).streams(), 100, "never more than there may be");
    }

    #[test]
    fn what_a_crowd_took_comes_back_and_a_connection_that_uses_it_gets_more() {
        let crowd = UnderWay { open: 17, all: 2 * CALLS_MAX, connections: 500, ..IDLE };
        for open in [0, 1, 12] {
            let mut ahead = first();
            assert_eq!(ahead.follow(crowd), 16);
            for streams in [32, 64, 128, 256, 512, 512] {
                // Calls of a distant client are seldom counted here.
                assert_eq!(ahead.follow(UnderWay { open, all: 400, ..IDLE }), streams);
            }
            assert_eq!(ahead.follow(UnderWay { open: 384, all: 400, ..IDLE }), 1024);
            assert_eq!(
                ahead.wanted(UnderWay { open: 1024, all: 400, ..IDLE }),
                None,
                "no more than the member"
            );
            assert_eq!(ahead.wanted(UnderWay { open, all: 400, ..IDLE }), None, "what was given stays");
        }
        let mut ahead = first();
        ahead.follow(crowd);
        assert_eq!(
            ahead.wanted(UnderWay { open: 16, all: 768, ..IDLE }),
            None,
            "the member has enough to do"
        );
    }

    #[test]
    fn streams_that_are_answered_for_long_take_no_calls_place() {
        for after in [IDLE, UnderWay { all: 2000, connections: 200, ..IDLE }] {
            let mut ahead = first();
            for answering in 0..9_000 {
                let streams =
                    u64::from(ahead.follow(UnderWay { open: answering + 1, answering, all: 1, ..IDLE }));
                assert!(answering + 128 <= streams, "{answering} take room from calls: {streams}");
            }
            // The room that they were given ends with them.
            assert_eq!(ahead.follow(UnderWay { open: 1, ..after }), 512);
        }
        let mut ahead = first();
        let crowd = UnderWay { open: 9_300, answering: 9_000, all: 2000, connections: 200, ..IDLE };
        assert_eq!(ahead.follow(UnderWay { open: 8_990, answering: 8_990, ..IDLE }), 9_502);
        assert_eq!(ahead.follow(crowd), 9_502, "not worth a frame");
        assert_eq!(ahead.follow(UnderWay { open: 300, answering: 0, ..crowd }), 16);
    }

    #[test]
    fn the_rest_of_a_body_has_room() {
        let mut ahead = first();
        assert_eq!(ahead.window(30_000), None, "not worth a frame");
        assert_eq!(ahead.window(1_400_000), Some((1_465_535, true)));
        assert_eq!(ahead.window(1_400_000), None);
        assert_eq!(ahead.window(0), Some((65_535, false)));
        assert_eq!(ahead.window(1 << 40), Some((16 << 20, true)));
    }

    /// One client that sends as many calls as it may.
    struct Client {
        ahead: Ahead,
        /// Streams that it may have open, as far as it knows, and those that it has.
        heard: u64,
        sent: u64,
        /// Streams that the member knows of.
        open: u64,
        /// No new limit is sent to it before this step.
        acknowledged: usize,
    }

    /// Such clients, so many steps away, and a member that answers so many calls in a step, in their order.
    struct Model {
        trip: usize,
        now: usize,
        clients: Vec<Client>,
        /// Messages in transit, with their arrival: calls, responses, limits.
        calls: VecDeque<(usize, usize)>,
        answers: VecDeque<(usize, usize)>,
        limits: VecDeque<(usize, usize, u64)>,
        queue: VecDeque<usize>,
    }

    /// Takes out the messages that have arrived by `now`.
    fn come<T>(all: &mut VecDeque<T>, now: usize, due: fn(&T) -> usize) -> Vec<T> {
        let count = all.iter().take_while(|one| due(one) <= now).count();
        all.drain(..count).collect()
    }

    impl Model {
        fn new(clients: usize, trip: usize) -> Model {
            let client = |_| {
                let ahead = first();
                Client { heard: FIRST, ahead, sent: 0, open: 0, acknowledged: 0 }
            };
            let clients = (0..clients).map(client).collect();
            let (calls, answers, limits, queue) =
                (VecDeque::new(), VecDeque::new(), VecDeque::new(), VecDeque::new());
            Model { trip, now: 0, clients, calls, answers, limits, queue }
        }

        /// All clients send what they may, then `answered` calls get responses, then each connection sets its limit.
        /// Returns the number of responses.
        fn step(&mut self, answered: usize) -> usize {
            let (now, later) = (self.now, self.now + self.trip);
            for (_, number, limit) in come(&mut self.limits, now, |limit| limit.0) {
                self.clients[number].heard = limit;
            }
            for (_, number) in come(&mut self.answers, now, |answer| answer.0) {
                self.clients[number].sent -= 1;
            }
            for (number, client) in self.clients.iter_mut().enumerate() {
                let calls = client.heard.saturating_sub(client.sent);
                client.sent += calls;
                self.calls.extend((0..calls).map(|_| (later, number)));
            }
            for (_, number) in come(&mut self.calls, now, |call| call.0) {
                self.clients[number].open += 1;
                self.queue.push_back(number);
            }
            let answered = answered.min(self.queue.len());
            for number in self.queue.drain(..answered) {
                self.clients[number].open -= 1;
                self.answers.push_back((later, number));
            }
            let connections = self.clients.iter().filter(|client| 0 < client.open).count() as u64;
            let all = self.queue.len() as u64;
            for (number, client) in
                self.clients.iter_mut().enumerate().filter(|(_, one)| one.acknowledged <= now)
            {
                let under_way = UnderWay { open: client.open, all, connections, ..IDLE };
                let Some(limit) = client.ahead.wanted(under_way) else { continue };
                client.ahead.set(limit);
                client.acknowledged = now + 2 * self.trip;
                self.limits.push_back((later, number, u64::from(limit.streams)));
            }
            self.now += 1;
            answered
        }
    }

    /// However many clients ask, the calls under way fall to the limit, and the member never idles because of it.
    #[test]
    fn what_is_under_way_comes_down_to_the_limit_whichever_connection_asks() {
        for connections in [1, 2, 21, 64, 300] {
            let mut model = Model::new(connections, 0);
            for _ in 0..2000 {
                model.step(100); // all that came before limits were lowered
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

    /// After a crowd a distant client gets its allowance back, though hardly any of its calls are ever under way here.
    #[test]
    fn a_crowd_that_has_gone_shuts_no_client_out_however_far_away_it_is() {
        for trip in [1, 5, 50] {
            let mut model = Model::new(64, trip);
            for _ in 0..2000 {
                model.step(100);
            }
            model.clients.truncate(1);
            for queue in [&mut model.calls, &mut model.answers] {
                queue.retain(|(_, number)| *number == 0);
            }
            model.limits.retain(|(_, number, _)| *number == 0);
            model.queue.retain(|number| *number == 0);
            assert!(
                model.clients[0].ahead.streams() <= 64,
                "{trip} away: {}",
                model.clients[0].ahead.streams()
            );
            for _ in 0..20 * trip {
                model.step(1000);
            }
            let answered: usize = (0..200 * trip).map(|_| model.step(1000)).sum();
            let full = FIRST as usize * 200 * trip / (2 * trip + 1);
            assert!(full * 9 / 10 <= answered, "{trip} away: {answered} of {full}");
        }
    }
}
