//! Random numbers from a seed: the same plan for the same seed on every machine.
//!
//! SplitMix64. [Steele14 §4]
//! Knows nothing of: faults, requests.

use std::ops::Range;

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

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
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
