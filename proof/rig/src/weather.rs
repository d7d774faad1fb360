//! The weather of every link: the fate of the bytes that one member sends to another.
//!
//! A link is an ordered pair of members. Both connections between two members carry bytes in both directions, so each
//! direction of a connection uses the weather of *its* pair.
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
}

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
    counts: Counts,
}

impl Links {
    /// Calm everywhere.
    pub fn new(members: usize) -> Links {
        let state = State {
            weather: vec![Weather::default(); members * members],
            usual: vec![Weather::default(); members * members],
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
        let limits = [weather.bandwidth, state.usual[link].bandwidth];
        let bandwidth = limits.into_iter().filter(|limit| 0 < *limit).min().unwrap_or(0);
        state.weather[link] = Weather { bandwidth, ..weather };
        drop(state);
        self.changed.send_modify(|times| *times += 1);
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
            let weather = self.weather(from, to);
            let is_faster = 0 < then && then < weather.bandwidth;
            if (weather.bandwidth == 0 || is_faster) && weather.delay.1.is_zero() {
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
