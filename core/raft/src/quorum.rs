//! Quorums: how many voters suffice.
//!
//! A quorum of N voters is any ⌊N/2⌋+1 of them; two quorums always share a voter, which is all that Raft's safety
//! rests on. [Ongaro14 §3.4, §3.5]
//! Knows nothing of: logs, rounds, votes.

/// Size of the smallest quorum of `voters` voters.
#[must_use]
pub fn quorum(voters: usize) -> usize {
    voters / 2 + 1
}

/// The largest value that a quorum has reached, given what each voter has reached; `None` without voters.
///
/// Counts instead of sorting: groups are small, and the hot path then allocates nothing.
#[must_use]
pub(crate) fn quorum_value<T: Ord + Copy>(reached: impl Iterator<Item = T> + Clone) -> Option<T> {
    let needed = quorum(reached.clone().count());
    reached
        .clone()
        .filter(|&candidate| reached.clone().filter(|&value| candidate <= value).count() >= needed)
        .max()
}

#[cfg(test)]
mod tests {
    use super::quorum_value;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_quorum_value_agrees_with_counting(reached in proptest::collection::vec(0u64..20, 1..9)) {
            let held_by_majority =
                |value: &u64| reached.iter().filter(|&reached| value <= reached).count() > reached.len() / 2;
            let naive = (0..20).rev().find(held_by_majority);
            prop_assert_eq!(quorum_value(reached.iter().copied()), naive);
        }
    }

    #[test]
    fn nobody_reaches_nothing() {
        assert_eq!(quorum_value(Vec::<u64>::new().into_iter()), None);
    }
}
