//! Dice: which member is asked, and how long a pause is, by chance. It guards nothing.
//!
//! Knows nothing of: what the numbers decide.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// Numbers by chance.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    /// Different in each client and each process.
    pub(crate) fn new() -> Dice {
        Dice(RandomState::new().build_hasher().finish() | 1)
    }

    /// Below `sides`, which is not 0.
    pub(crate) fn below(&mut self, sides: usize) -> usize {
        // [Marsaglia03: xorshift]
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as usize % sides
    }

    /// From half of the time up to the whole.
    pub(crate) fn part_of(&mut self, whole: Duration) -> Duration {
        whole / 2 + whole / 2 * self.below(1025) as u32 / 1024
    }
}

/// The pause after so many failures in a row: twice as long after each, within these bounds.
pub(crate) fn pause(failures: u32) -> Duration {
    (PAUSE_MIN * 2u32.saturating_pow(failures.saturating_sub(1).min(16))).min(PAUSE_MAX)
}

/// The first pause: an election takes longer, a restarted connection less.
pub(crate) const PAUSE_MIN: Duration = Duration::from_millis(5);
/// The longest pause: a member that is back is noticed within it.
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound_and_are_never_shorter_than_half() {
        let pauses = [1, 2, 3, 9, 40].map(pause);
        assert_eq!(pauses[..3], [PAUSE_MIN, PAUSE_MIN * 2, PAUSE_MIN * 4]);
        assert_eq!(pauses[3..], [PAUSE_MAX, PAUSE_MAX]);
        let mut dice = Dice::new();
        for whole in pauses {
            let part = dice.part_of(whole);
            assert!((whole / 2..=whole).contains(&part), "{part:?} of {whole:?}");
        }
        assert!((0..1000).map(|_| dice.below(3)).any(|side| side == 2));
    }
}
