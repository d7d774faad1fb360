//! The weather of every link: the fate of the bytes that one member sends to another.
//!
//! A link is an ordered pair of members. Both connections between two members carry bytes in both directions, so each
//! direction of a connection uses the weather of *its* pair. A member's *egress* is the sum of all that it sends, over all its
//! links: a machine has one way out, however many peers it has.
//! Knows nothing of: sockets, plans.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// The fate of bytes on their way; chances are per piece, in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weather {
    /// Nothing passes until this ends; bytes wait, as they would in TCP.
    pub is_cut: bool,
    /// Each piece is delayed by a time between these.
    pub delay: (Duration, Duration),
    /// Bytes per second; 0 for no limit.
    pub bandwidth: u32,
    /// The connection hangs for a moment.
    pub stall: u32,
    /// The connection is reset in the middle of a piece.
    pub reset: u32,
    /// One bit is flipped.
    pub corrupt: u32,
    /// A message is sent twice.
    pub duplicate: u32,
    /// A message is sent after its successor.
    pub reorder: u32,
    /// A piece is lost on its way, and comes [`SENT_AGAIN`] later: TCP sends it again.
    pub loss: u32,
    /// An append, or the answer to one, is lost for good, as a datagram is. Others come, because a stream carries them.
    pub drop: u32,
}

/// The shortest time after which TCP sends a lost segment again on Linux. [tcp(7): RTO of at least 200 ms]
pub const SENT_AGAIN: Duration = Duration::from_millis(200);

/// Changes made to pieces, by name.
pub type Counts = BTreeMap<&'static str, u64>;

/// The weather between the members of one cluster.
#[derive(Debug)]
pub struct Links {
    members: usize,
    state: Mutex<State>,
    changed: watch::Sender<u64>,
    /// Bytes that came out at the other end, by link.
    passed: Vec<AtomicU64>,
    /// Resets of all connections of a link.
    resets: Vec<watch::Sender<u64>>,
}

#[derive(Debug)]
struct State {
    weather: Vec<Weather>,
    /// The weather that each link returns to.
    usual: Vec<Weather>,
    /// The way out of each member.
    egress: Vec<Egress>,
    counts: Counts,
}

/// What one member may send in a second, over all its links, and until when that is spoken for.
#[derive(Clone, Copy, Debug)]
struct Egress {
    /// Bytes per second; 0 for no limit.
    rate: u32,
    free_at: Instant,
}

/// The lower of two limits of which 0 is none.
fn lower(one: u32, other: u32) -> u32 {
    [one, other].into_iter().filter(|limit| 0 < *limit).min().unwrap_or(0)
}

impl Links {
    /// Calm everywhere.
    pub fn new(members: usize) -> Links {
        let state = State {
            weather: vec![Weather::default(); members * members],
            usual: vec![Weather::default(); members * members],
            egress: vec![Egress { rate: 0, free_at: Instant::now() }; members],
            counts: Counts::new(),
        };
        let links = members * members;
        Links {
            members,
            state: Mutex::new(state),
            changed: watch::Sender::new(0),
            passed: (0..links).map(|_| AtomicU64::new(0)).collect(),
            resets: (0..links).map(|_| watch::Sender::new(0)).collect(),
        }
    }

    /// Bytes that have come out of the link from one member to another, over all its connections.
    pub fn passed(&self, from: usize, to: usize) -> u64 {
        self.passed[from * self.members + to].load(Ordering::Relaxed)
    }

    /// Counts bytes that came out of a link.
    pub fn pass(&self, from: usize, to: usize, bytes: usize) {
        self.passed[from * self.members + to].fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Resets every connection that carries bytes from one member to another; bytes under way on them are lost.
    pub fn reset(&self, from: usize, to: usize) {
        self.resets[from * self.members + to].send_modify(|times| *times += 1);
    }

    /// Returns when a link that is up now is reset.
    pub(crate) async fn until_reset(&self, from: usize, to: usize) {
        let mut resets = self.resets[from * self.members + to].subscribe();
        if resets.changed().await.is_err() {
            std::future::pending::<()>().await; // no reset can come any more
        }
    }

    /// The weather from one member to another.
    pub fn weather(&self, from: usize, to: usize) -> Weather {
        self.state.lock().expect("nobody panics with it").weather[from * self.members + to]
    }

    /// Changes the usual weather from one member to another, and the present one.
    pub fn set_usual(&self, from: usize, to: usize, weather: Weather) {
        self.state.lock().expect("nobody panics with it").usual[from * self.members + to] = weather;
        self.set(from, to, weather);
    }

    /// Changes the weather from one member to another. A usual limit of bandwidth stays in force, unless this weather
    /// has a lower one.
    pub fn set(&self, from: usize, to: usize, weather: Weather) {
        let mut state = self.state.lock().expect("nobody panics with it");
        let link = from * self.members + to;
        let bandwidth = lower(weather.bandwidth, state.usual[link].bandwidth);
        state.weather[link] = Weather { bandwidth, ..weather };
        drop(state);
        self.changed.send_modify(|times| *times += 1);
    }

    /// Limits all that a member sends together, in bytes per second; 0 for no limit. It stays in force whatever the weather.
    pub fn set_egress(&self, from: usize, rate: u32) {
        let mut state = self.state.lock().expect("nobody panics with it");
        // What waits at the old rate is released, or is little at the new one.
        state.egress[from] = Egress { rate, free_at: Instant::now() };
        drop(state);
        self.changed.send_modify(|times| *times += 1);
    }

    /// Reserves a member's way out for so many bytes; when the last of them is out. Reservations of all its connections
    /// follow each other in the order in which they are made.
    pub(crate) fn reserve_egress(&self, from: usize, bytes: usize) -> Instant {
        let now = Instant::now();
        let egress = &mut self.state.lock().expect("nobody panics with it").egress[from];
        if egress.rate == 0 {
            return now;
        }
        egress.free_at =
            egress.free_at.max(now) + Duration::from_secs_f64(bytes as f64 / f64::from(egress.rate));
        egress.free_at
    }

    /// The lower one of a link's bandwidth and its sender's egress, 0 for no limit.
    pub(crate) fn limit(&self, from: usize, to: usize) -> u32 {
        let state = self.state.lock().expect("nobody panics with it");
        lower(state.weather[from * self.members + to].bandwidth, state.egress[from].rate)
    }

    /// Returns all links to their usual weather.
    pub fn calm(&self) {
        let mut state = self.state.lock().expect("nobody panics with it");
        state.weather = state.usual.clone();
        drop(state);
        self.changed.send_modify(|times| *times += 1);
    }

    /// Returns as soon as bytes may pass.
    pub(crate) async fn until_open(&self, from: usize, to: usize) {
        let mut changed = self.changed.subscribe();
        while self.weather(from, to).is_cut {
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    /// Returns when a piece is due, or when its link has become faster than it was `then`: pieces queued behind a
    /// narrow link do not stay late after it.
    pub(crate) async fn until_due(&self, from: usize, to: usize, at: Instant, then: u32) {
        let mut changed = self.changed.subscribe();
        while Instant::now() < at {
            let (weather, limit) = (self.weather(from, to), self.limit(from, to));
            let is_faster = 0 < then && then < limit;
            let is_late_by_chance = !weather.delay.1.is_zero() || 0 < weather.loss;
            if (limit == 0 || is_faster) && !is_late_by_chance {
                return;
            }
            let _ = tokio::time::timeout_at(at, changed.changed()).await;
        }
    }

    /// Counts a change made to a piece.
    pub fn count(&self, what: &'static str) {
        *self.state.lock().expect("nobody panics with it").counts.entry(what).or_default() += 1;
    }

    /// The changes so far.
    pub fn counts(&self) -> Counts {
        self.state.lock().expect("nobody panics with it").counts.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_a_member_sends_shares_one_way_out() {
        let links = Links::new(3);
        let now = Instant::now();
        assert!(links.reserve_egress(0, 1 << 30) < now + Duration::from_secs(10), "no limit, no wait");
        links.set_egress(0, 1000);
        // Two links take turns: each reservation begins where the last one ends, whichever link it is for.
        let ends: Vec<Instant> = (0..4).map(|_| links.reserve_egress(0, 500)).collect();
        for (earlier, later) in ends.iter().zip(&ends[1..]) {
            assert_eq!(*later - *earlier, Duration::from_millis(500));
        }
        assert!(Duration::from_secs(2) <= ends[3] - now);
        // Another member's way out is its own.
        assert!(links.reserve_egress(1, 1 << 30) < now + Duration::from_secs(10));
    }

    #[test]
    fn the_lower_limit_of_a_link_and_of_its_senders_egress_counts() {
        let links = Links::new(2);
        assert_eq!(links.limit(0, 1), 0);
        links.set(0, 1, Weather { bandwidth: 700, ..Weather::default() });
        assert_eq!((links.limit(0, 1), links.limit(1, 0)), (700, 0));
        links.set_egress(0, 300);
        links.set_egress(1, 900);
        assert_eq!((links.limit(0, 1), links.limit(1, 0)), (300, 900));
        links.calm();
        assert_eq!(links.limit(0, 1), 300, "an egress is no weather");
    }
}
