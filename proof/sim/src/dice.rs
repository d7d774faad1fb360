//! Dice: all random numbers of a storm, from its seed.
//!
//! Every concern (network, disks, clients, …) draws from a stream of its own, so leaving out a fault or adding a client
//! shifts no other numbers. The generator is SplitMix64: one word of state, the same everywhere.
//! Knows nothing of: what the numbers decide.

use kattu_raft::Duration;
use kattu_random::{Random, mix};

/// One stream of numbers.
#[derive(Clone, Debug)]
pub struct Dice(Random);

impl Dice {
    /// The stream of a concern.
    #[must_use]
    pub fn new(seed: u64, concern: &str) -> Dice {
        let first = Random::new(seed).number();
        Dice(Random::new(concern.bytes().fold(first, |state, byte| mix(state ^ u64::from(byte)))))
    }

    /// A stream of its own for the `number`th of several alike.
    #[must_use]
    pub fn fork(&self, number: u64) -> Dice {
        Dice(Random::new(mix(self.0.state() ^ mix(number.wrapping_add(1)))))
    }

    /// A pause, made a little shorter by chance.
    pub(crate) fn jittered(&mut self, pause: Duration) -> Duration {
        let pause = pause.as_nanos() as u64;
        Duration::from_nanos(pause / 2 + self.below(pause / 2 + 1))
    }

    /// Any number.
    pub fn roll(&mut self) -> u64 {
        self.0.number()
    }

    /// A number in `0..end`; 0 if there is none.
    pub fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.roll() % end }
    }

    /// A number in `first..=last`.
    pub fn within(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last.saturating_sub(first).saturating_add(1))
    }

    /// A number in about `first..=last` whose logarithm is uniform: small ones are as likely as large ones.
    pub(crate) fn log_within(&mut self, first: u64, last: u64) -> u64 {
        let first = first.max(1);
        let doublings = u64::from((last.max(first) / first).ilog2());
        let least = first << self.below(doublings + 1);
        self.within(least, (least * 2).min(last.max(least)))
    }

    /// True once in `many` times.
    pub fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    /// True with `in_a_million` chances in a million.
    pub fn chance(&mut self, in_a_million: u32) -> bool {
        in_a_million != 0 && self.below(1_000_000) < u64::from(in_a_million)
    }

    /// One of several.
    pub fn pick<'a, T>(&mut self, several: &'a [T]) -> &'a T {
        &several[self.below(several.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_differ_by_seed_and_by_concern() {
        let first = |seed, concern| Dice::new(seed, concern).roll();
        assert_eq!(first(7, "disk"), first(7, "disk"));
        assert_ne!(first(7, "disk"), first(8, "disk"));
        assert_ne!(first(7, "disk"), first(7, "net"));
        let dice = Dice::new(7, "disk");
        assert_ne!(dice.fork(0).roll(), dice.fork(1).roll());
    }

    #[test]
    fn numbers_stay_in_their_range() {
        let mut dice = Dice::new(1, "test");
        for _ in 0..10_000 {
            assert!((3..=9).contains(&dice.within(3, 9)));
            assert!((10..=1000).contains(&dice.log_within(10, 1000)));
        }
        assert_eq!(dice.below(0), 0);
    }
}
