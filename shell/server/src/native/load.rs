//! Load: how many requests a member has under way for all its native connections, and each connection's share of them.
//!
//! ```text
//!   answered in a second × (shortest time to an answer + WAIT_MAX) = requests that may be under way ──▶ a share for each
//! ```
//! A request waits behind those that came before it. A member that has more under way than it can answer answers none of them
//! sooner, and lets a client that asks for little wait for those that ask for much.
//!
//! In:    answers, and how many requests are under way.
//! Out:   each connection's share.
//! Rules: 1. How long a request takes follows from how many are under way and how many are answered (Little's law). The
//!           shortest such time is what the disk and the peers take; the rest is waiting.
//!        2. Waiting that never ends looks like a slow disk. So once in [`PROBE_EVERY`] the least is under way for a moment,
//!           and the shortest time is taken anew.
//! Knows nothing of: requests, connections' own limits.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// How long a request may wait behind others, about.
const WAIT_MAX: u64 = 8_000_000;

/// Requests that may be under way on any member, and on the fastest.
const ALL_MIN: u64 = 1 << 8;
const ALL_MAX: u64 = 16 << 10;

/// The least share of a connection.
const SHARE_MIN: u64 = 16;

/// The rate of answers is taken over so long at least, in nanoseconds.
const LOOK_EVERY: u64 = 20_000_000;

/// From one probe to the next, in nanoseconds.
const PROBE_EVERY: u64 = 10_000_000_000;

/// A probe lasts for so many looks, and so many times as long as a request takes.
const PROBE_FOR: u64 = 3;

/// What all connections of a member have under way. Times are in nanoseconds since it began.
#[derive(Debug)]
pub struct Load {
    requests: AtomicU64,
    /// Connections that have some.
    connections: AtomicU64,
    /// Requests that may be under way.
    most: AtomicU64,
    /// Requests answered since the last look, and the sum of how many were under way with each.
    answered: AtomicU64,
    beside: AtomicU64,
    began: Instant,
    looked_at: AtomicU64,
    /// The shortest time to an answer since the last probe began.
    shortest: AtomicU64,
    probed_at: AtomicU64,
    probes_until: AtomicU64,
}

impl Default for Load {
    fn default() -> Load {
        Load {
            requests: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            most: AtomicU64::new(ALL_MIN),
            answered: AtomicU64::new(0),
            beside: AtomicU64::new(0),
            began: Instant::now(),
            looked_at: AtomicU64::new(0),
            shortest: AtomicU64::new(u64::MAX),
            probed_at: AtomicU64::new(0),
            probes_until: AtomicU64::new(0),
        }
    }
}

impl Load {
    /// Requests under way.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }

    /// Requests that may be under way.
    #[must_use]
    pub fn requests_max(&self) -> u64 {
        self.most.load(Relaxed)
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
        let count = count as u64;
        self.answered.fetch_add(count, Relaxed);
        self.beside.fetch_add(count.saturating_mul(self.requests()), Relaxed);
        self.look(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }

    /// Once in a while: how many may be under way follows from how many were answered, and how soon.
    fn look(&self, now: u64) {
        let looked_at = self.looked_at.load(Relaxed);
        let elapsed = now.saturating_sub(looked_at);
        // One thread looks.
        if elapsed < LOOK_EVERY || self.looked_at.compare_exchange(looked_at, now, Relaxed, Relaxed).is_err()
        {
            return;
        }
        let (answered, beside) = (self.answered.swap(0, Relaxed), self.beside.swap(0, Relaxed));
        let Some(under_way) = beside.checked_div(answered) else { return };
        let times = |count: u64, span: u64| u128::from(count) * u128::from(span);
        let whole = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
        let takes = whole(times(under_way, elapsed) / u128::from(answered));
        if PROBE_EVERY <= now.saturating_sub(self.probed_at.load(Relaxed)) {
            self.probed_at.store(now, Relaxed);
            self.shortest.store(u64::MAX, Relaxed);
            let lasts = PROBE_FOR.saturating_mul(takes.max(LOOK_EVERY));
            self.probes_until.store(now.saturating_add(lasts), Relaxed);
            return self.most.store(ALL_MIN, Relaxed);
        }
        let shortest = self.shortest.load(Relaxed).min(takes);
        self.shortest.store(shortest, Relaxed);
        if now < self.probes_until.load(Relaxed) {
            return;
        }
        let within = whole(times(answered, shortest.saturating_add(WAIT_MAX)) / u128::from(elapsed));
        // A pause of one client says nothing about the others: half of what was stays.
        let most = (self.most.load(Relaxed) + within.min(ALL_MAX)) / 2;
        self.most.store(most.clamp(ALL_MIN, ALL_MAX), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A member that answers so many requests a second at most, each in so many milliseconds at least, and whose clients
    /// would have so many under way: what may be under way after some seconds, each look of the last one.
    fn of_member(most_per_s: u64, takes_ms: u64, offered: u64) -> Vec<u64> {
        let load = Load::default();
        let mut looks = Vec::new();
        for look in 1..=250 {
            let under_way = offered.min(load.requests_max());
            load.requests.store(under_way, Relaxed);
            let per_s = most_per_s.min(under_way * 1000 / takes_ms);
            load.answered.store(per_s / 50, Relaxed);
            load.beside.store(per_s / 50 * under_way, Relaxed);
            load.look(look * LOOK_EVERY);
            looks.push(load.requests_max());
        }
        looks.split_off(200)
    }

    #[test]
    fn a_fast_member_has_more_under_way_and_a_slow_one_less() {
        let fast = of_member(250_000, 2, 1 << 20);
        assert!(fast.iter().all(|most| (2_400..=2_600).contains(most)), "{fast:?}");
        let slow = of_member(67_000, 1, 1 << 20);
        assert!(slow.iter().all(|most| (512..=1_000).contains(most)), "{slow:?}");
        let slowest = of_member(5_000, 1, 1 << 20);
        assert!(slowest.iter().all(|most| (ALL_MIN..=300).contains(most)), "{slowest:?}");
    }

    #[test]
    fn a_member_whose_answers_take_long_is_not_slow() {
        let far = of_member(200_000, 50, 1 << 20);
        assert!(far.iter().all(|most| (10_000..=12_000).contains(most)), "{far:?}");
    }

    #[test]
    fn waiting_that_never_ends_is_found_out() {
        let load = Load::default();
        load.shortest.store(500_000_000, Relaxed); // it was a slow disk
        let mut most = Vec::new();
        for look in 1..=1100 {
            let under_way = load.requests_max();
            load.answered.store(100_000 / 50, Relaxed);
            load.beside.store(100_000 / 50 * under_way, Relaxed);
            load.look(look * LOOK_EVERY);
            most.push(load.requests_max());
        }
        assert!((900..=1_200).contains(&most[700]) && (900..=1_200).contains(&most[1099]), "{most:?}");
        let probes = most.iter().filter(|most| **most == ALL_MIN).count();
        assert!(probes <= 2 * (PROBE_FOR as usize + 1), "{probes}");
    }

    #[test]
    fn a_look_that_is_not_due_or_has_seen_nothing_changes_nothing() {
        let load = Load::default();
        load.answered.store(1 << 40, Relaxed);
        load.look(LOOK_EVERY - 1);
        assert_eq!((load.requests_max(), load.answered.load(Relaxed)), (ALL_MIN, 1 << 40));
        load.answered.store(0, Relaxed);
        load.look(LOOK_EVERY);
        assert_eq!(load.requests_max(), ALL_MIN);
    }

    #[test]
    fn connections_have_shares_when_all_is_under_way() {
        let load = Load::default();
        load.most.store(1024, Relaxed);
        load.count(0, 2000);
        assert_eq!(load.share(4096), 4096, "it is alone");
        load.count(2000, 1000);
        assert_eq!(load.share(4096), 4096, "there is room");
        load.count(0, 24);
        assert_eq!(load.share(4096), 512, "two share it");
        assert_eq!(load.share(100), 100);
        (0..1000).for_each(|_| load.count(0, 1));
        assert_eq!(load.share(4096), SHARE_MIN as usize);
        load.count(1000, 0);
        load.count(24, 0);
        assert_eq!((load.requests(), load.share(4096)), (1000, 4096));
    }
}
