//! Load: how many requests a member has under way for all its native connections, and each connection's share of them.
//!
//! ```text
//!   answers ──▶ answered in a second × WAIT_MAX = requests that may be under way ──▶ a share for each connection
//! ```
//! A request waits behind those that came before it. A member that has more under way than it answers within [`WAIT_MAX`]
//! answers none of them sooner, and lets a client that asks for little wait for those that ask for much.
//! Knows nothing of: requests, connections' own limits.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long a request may wait behind others, about.
const WAIT_MAX: Duration = Duration::from_millis(10);

/// Requests that may be under way on any member, and on the fastest.
const ALL_MIN: u64 = 1 << 9;
const ALL_MAX: u64 = 16 << 10;

/// The least share of a connection.
const SHARE_MIN: u64 = 16;

/// The rate of answers is taken over so long at least.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What all connections of a member have under way.
#[derive(Debug)]
pub struct Load {
    requests: AtomicU64,
    /// Connections that have some.
    connections: AtomicU64,
    /// Requests that may be under way.
    most: AtomicU64,
    /// Requests answered since the last look.
    answered: AtomicU64,
    began: Instant,
    /// When the last look was, in nanoseconds since it began.
    looked_at: AtomicU64,
}

impl Default for Load {
    fn default() -> Load {
        Load {
            requests: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            most: AtomicU64::new(ALL_MIN),
            answered: AtomicU64::new(0),
            began: Instant::now(),
            looked_at: AtomicU64::new(0),
        }
    }
}

impl Load {
    /// Requests under way.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }

    /// Requests that one connection may have under way now, of so many that it may have by itself.
    pub(super) fn share(&self, own_max: usize) -> usize {
        let (most, connections) = (self.most.load(Relaxed), self.connections.load(Relaxed));
        // One alone keeps nobody waiting.
        if self.requests() < most || connections <= 1 {
            return own_max;
        }
        let share = most / connections;
        usize::try_from(share.max(SHARE_MIN)).map_or(own_max, |share| share.min(own_max))
    }

    /// A connection that had `before` requests under way has `now`.
    pub(super) fn count(&self, before: usize, now: usize) {
        match (before == 0, now == 0) {
            (true, false) => drop(self.connections.fetch_add(1, Relaxed)),
            (false, true) => drop(self.connections.fetch_sub(1, Relaxed)),
            _ => {}
        }
        if before < now {
            self.requests.fetch_add((now - before) as u64, Relaxed);
        } else if now < before {
            self.requests.fetch_sub((before - now) as u64, Relaxed);
        }
    }

    /// So many requests were answered.
    pub(super) fn answered(&self, count: usize) {
        self.answered.fetch_add(count as u64, Relaxed);
        self.look(self.began.elapsed());
    }

    /// Once in a while: how many may be under way follows from how many were answered.
    fn look(&self, now: Duration) {
        let looked_at = self.looked_at.load(Relaxed);
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let elapsed = now.saturating_sub(looked_at);
        let is_due = LOOK_EVERY.as_nanos() <= u128::from(elapsed);
        // One thread looks.
        if !is_due || self.looked_at.compare_exchange(looked_at, now, Relaxed, Relaxed).is_err() {
            return;
        }
        let answered = u128::from(self.answered.swap(0, Relaxed));
        let within = u64::try_from(answered * WAIT_MAX.as_nanos() / u128::from(elapsed)).unwrap_or(u64::MAX);
        // A pause of one client says nothing about the others: half of what was stays.
        let most = (self.most.load(Relaxed) + within.min(ALL_MAX)) / 2;
        self.most.store(most.clamp(ALL_MIN, ALL_MAX), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fast_member_has_more_under_way_and_a_slow_one_less() {
        let load = Load::default();
        let mut now = Duration::ZERO;
        let mut answers = |per_second: u64, looks: u32| {
            for _ in 0..looks {
                now += LOOK_EVERY;
                load.answered.fetch_add(per_second / 50, Relaxed);
                load.look(now);
            }
            load.most.load(Relaxed)
        };
        let fast = answers(250_000, 20);
        assert!((2_400..=2_500).contains(&fast), "{fast}");
        assert_eq!(answers(100_000_000, 40), ALL_MAX - 1, "as near as half steps come");
        assert_eq!(answers(10_000, 20), ALL_MIN);
    }

    #[test]
    fn a_look_that_is_not_due_changes_nothing() {
        let load = Load::default();
        load.answered.fetch_add(1 << 40, Relaxed);
        load.look(LOOK_EVERY - Duration::from_nanos(1));
        assert_eq!(load.most.load(Relaxed), ALL_MIN);
    }

    #[test]
    fn connections_have_shares_when_all_is_under_way() {
        let load = Load::default();
        load.count(0, 2000);
        assert_eq!(load.share(4096), 4096, "it is alone");
        load.count(2000, 500);
        load.count(0, 24);
        assert_eq!(load.share(4096), 256, "two share it");
        assert_eq!(load.share(100), 100);
        (0..1000).for_each(|_| load.count(0, 1));
        assert_eq!(load.share(4096), SHARE_MIN as usize);
        load.count(500, 0);
        load.count(24, 0);
        assert_eq!((load.requests(), load.share(4096)), (1000, SHARE_MIN as usize));
    }
}
