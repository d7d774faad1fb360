//! Link: bandwidth that all transmissions under way share equally. [processor sharing]
//!
//! All transmissions have one size, so they end in the order in which they began. Work is counted in *virtual* nanoseconds: what
//! each transmission has received so far, as time alone on the link.
//! Knows nothing of: latencies, what is transmitted.

use crate::marking::Nanos;
use std::collections::VecDeque;

pub(crate) struct Link<T> {
    /// Nanoseconds for one transmission that is alone.
    alone: f64,
    /// What each transmission has received since the start of the run.
    virtual_now: f64,
    changed_at: Nanos,
    under_way: VecDeque<(f64, T)>,
    /// Counts changes: an end that was planned before the last one is void.
    change: u64,
}

/// The next end of a transmission, unless the link changes before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Planned {
    pub at: Nanos,
    pub change: u64,
}

impl<T> Link<T> {
    /// A link on which this many bytes take their time; no bandwidth is no limit.
    pub fn new(bytes: u64, gbps: f64) -> Link<T> {
        let alone = if gbps == 0.0 { 0.0 } else { bytes as f64 * 8.0 / gbps };
        Link { alone, virtual_now: 0.0, changed_at: 0, under_way: VecDeque::new(), change: 0 }
    }

    /// Whether a transmission takes any time.
    pub fn is_limited(&self) -> bool {
        0.0 < self.alone
    }

    /// A transmission begins.
    pub fn begin(&mut self, now: Nanos, what: T) -> Planned {
        self.pass(now);
        self.under_way.push_back((self.virtual_now + self.alone, what));
        self.plan(now)
    }

    /// The first transmission ends, if the link has not changed since this end was planned. Also says what ends next.
    pub fn end(&mut self, now: Nanos, change: u64) -> Option<(T, Option<Planned>)> {
        if change != self.change {
            return None;
        }
        self.pass(now);
        let (_, what) = self.under_way.pop_front()?;
        let next = if self.under_way.is_empty() { None } else { Some(self.plan(now)) };
        Some((what, next))
    }

    fn pass(&mut self, now: Nanos) {
        let sharing = self.under_way.len().max(1) as f64;
        self.virtual_now += (now - self.changed_at) as f64 / sharing;
        self.changed_at = now;
    }

    fn plan(&mut self, now: Nanos) -> Planned {
        self.change += 1;
        let left = self.under_way.front().map_or(0.0, |(end, _)| (end - self.virtual_now).max(0.0));
        let at = now + (left * self.under_way.len() as f64).round() as Nanos;
        Planned { at, change: self.change }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_transmissions_share_and_the_later_one_ends_later() {
        // 1250 bytes at 10 Gb/s are 1000 ns.
        let mut link = Link::new(1250, 10.0);
        let first = link.begin(0, 'a');
        assert_eq!(first.at, 1000);
        let both = link.begin(500, 'b');
        assert_eq!(both.at, 1500, "half of a is left, at half the speed");
        assert_eq!(link.end(1000, first.change), None);
        let (what, next) = link.end(1500, both.change).expect("an end");
        let next = next.expect("b is under way");
        assert_eq!((what, next.at), ('a', 2000));
        assert_eq!(link.end(2000, next.change), Some(('b', None)));
    }
}
