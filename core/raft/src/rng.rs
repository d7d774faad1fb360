//! Randomness, from a seed: the only source of chance a peer has.
//!
//! SplitMix64: a counter and a mixing function, one word of state, so that a peer's state stays small to hash.
//! Knows nothing of: timers, nonces.

use crate::types::Duration;

/// A seeded sequence of numbers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rng {
    state: u64,
}

impl Rng {
    /// A sequence of its own for every pair of `seed` and `stream`.
    pub(crate) fn new(seed: u64, stream: u64) -> Rng {
        Rng { state: mix(seed ^ mix(stream)) }
    }

    /// The next number, uniform over all of `u64`.
    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// A duration, uniform in `start..end` to within the bias of a 64-bit modulus; `start` when the range is empty.
    pub(crate) fn duration(&mut self, start: Duration, end: Duration) -> Duration {
        let width = u64::try_from(end.saturating_sub(start).as_nanos()).unwrap_or(u64::MAX);
        match width {
            0 => start,
            _ => start + Duration::from_nanos(self.next() % width),
        }
    }
}

/// Spreads the bits of a counter over the whole word.
fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
