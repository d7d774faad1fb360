//! Random numbers from a seed, for all proofs: the same plan for the same seed on every machine.
//!
//! SplitMix64: one word of state, a counter and a mixing function. [Steele et al. 2014]
//! Knows nothing of: what the numbers decide.
#![no_std]
#![forbid(unsafe_code)]

use core::ops::Range;

/// Spreads the bits of a number over the whole word.
pub fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// A stream of numbers decided by its seed.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of this seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// A separate stream for one part of a seed's decisions: more numbers drawn in one part change no other part.
    pub fn of_part(seed: u64, part: &str) -> Random {
        let salt = part.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let mut random = Random(seed ^ salt);
        random.number();
        random
    }

    /// A separate stream for the `number`th of several parts that are alike.
    pub fn of_numbered_part(seed: u64, number: u64) -> Random {
        let mut random = Random(seed ^ number.wrapping_mul(0xd134_2543_de82_ef95));
        random.number();
        random
    }

    /// Its state: the stream of this seed goes on as this one.
    pub fn state(&self) -> u64 {
        self.0
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// One of the numbers of a range; its start if it is empty.
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.number() % range.end.saturating_sub(range.start).max(1)
    }

    /// An index into a list of `len`.
    pub fn below(&mut self, len: usize) -> usize {
        (self.number() % len.max(1) as u64) as usize
    }

    /// True with this chance, in thousandths.
    pub fn per_mille(&mut self, times: u32) -> bool {
        self.number() % 1000 < u64::from(times)
    }

    /// True once in `times`, on average.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// True with this chance, in hundredths.
    pub fn per_cent(&mut self, times: u64) -> bool {
        self.number() % 100 < times
    }

    /// One of several.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// Shuffles a list.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            list.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_numbers_and_they_are_those_of_splitmix64() {
        // The first outputs for the seed 1234567, as of the authors' own program.
        let mut random = Random::new(1_234_567);
        let first = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!([(); 3].map(|()| random.number()), first);
    }

    #[test]
    fn parts_of_a_seed_have_streams_of_their_own() {
        let first = |seed, part| Random::of_part(seed, part).number();
        assert_eq!(first(7, "flags"), first(7, "flags"));
        assert_ne!(first(7, "flags"), first(8, "flags"));
        assert_ne!(first(7, "flags"), first(7, "tls"));
        assert_ne!(Random::of_numbered_part(7, 0).number(), Random::of_numbered_part(7, 1).number());
    }

    #[test]
    fn numbers_stay_in_their_range() {
        let mut random = Random::new(1);
        for _ in 0..10_000 {
            assert!((3..9).contains(&random.within(3..9)));
            assert!(random.below(5) < 5);
        }
        assert_eq!((random.within(4..4), random.below(0)), (4, 0));
        assert!(!random.per_mille(0) && random.per_mille(1000) && random.one_in(1));
        let mut list = [0, 1, 2, 3, 4, 5, 6, 7];
        random.shuffle(&mut list);
        assert_ne!(list, [0, 1, 2, 3, 4, 5, 6, 7]);
        list.sort_unstable();
        assert_eq!(list, [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}
