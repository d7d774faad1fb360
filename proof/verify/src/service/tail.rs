//! Tail: during other work, the slowest writes are not much slower than without it.
//!
//! In:    how long writes took during other work (a follower lags, a snapshot is taken, segments rotate, a compaction
//!        runs) and without it.
//! Out:   both p99s; a violation if the p99 with it is above its bound, which depends on the other.
//! Rule:  p99 with ≤ factor × p99 without + allowance. Fewer than [`LEAST`] writes have no meaningful p99: then the
//!        result is `None`.
//! Knows nothing of: the kind of other work.

use super::Violation;

/// The p99 of fewer writes is little more than the slowest of them.
pub const LEAST: usize = 200;

/// How much slower writes may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slower {
    /// A factor.
    pub factor: f64,
    /// Plus this many nanoseconds.
    pub allowance: u64,
}

/// What was compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tails {
    /// p50 and p99 without, in nanoseconds.
    pub without: (u64, u64),
    /// p50 and p99 with.
    pub with: (u64, u64),
}

/// The time that `per_mille` of these do not exceed; 0 if there are none.
#[must_use]
pub fn percentile(times: &mut [u64], per_mille: usize) -> u64 {
    times.sort_unstable();
    let rank = (times.len() * per_mille).div_ceil(1000).max(1);
    times.get(rank - 1).copied().unwrap_or(0)
}

/// Compares both; `None` if one side has too few writes.
///
/// # Errors
/// If the p99 with is above its bound.
pub fn tail(
    what: &str,
    with: &mut [u64],
    without: &mut [u64],
    slower: Slower,
) -> Result<Option<Tails>, Violation> {
    if with.len() < LEAST || without.len() < LEAST {
        return Ok(None);
    }
    let tails = Tails {
        without: (percentile(without, 500), percentile(without, 990)),
        with: (percentile(with, 500), percentile(with, 990)),
    };
    let bound = slower.factor * tails.without.1 as f64 + slower.allowance as f64;
    if tails.with.1 as f64 <= bound {
        return Ok(Some(tails));
    }
    let ms = |time: u64| time as f64 / 1e6;
    let story = format!(
        "while {what}, the p99 of {} writes is {:.3} ms; without it, of {} writes, {:.3} ms: at most {:.3} ms is promised",
        with.len(),
        ms(tails.with.1),
        without.len(),
        ms(tails.without.1),
        bound / 1e6
    );
    Err(Violation { property: "tail", story, operations: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_were_measured() {
        let mut times: Vec<u64> = (1..=1000).rev().collect();
        assert_eq!([500, 990, 1000].map(|rank| percentile(&mut times, rank)), [500, 990, 1000]);
        assert_eq!(percentile(&mut [7], 990), 7);
        assert_eq!(percentile(&mut [], 990), 0);
    }

    #[test]
    fn the_slowest_hundredth_decides_and_the_slowest_thousandth_does_not() {
        let slower = Slower { factor: 2.0, allowance: 10 };
        let mut without = vec![100; 1000];
        let mut with = vec![120; 1000];
        with[0] = 1_000_000;
        let tails = tail("x", &mut with, &mut without, slower).expect("one in a thousand").expect("judged");
        assert_eq!(tails, Tails { without: (100, 100), with: (120, 120) });
        with[980..].fill(211);
        let violation =
            tail("a snapshot is taken", &mut with, &mut without, slower).expect_err("2 × 100 + 10");
        assert_eq!(violation.property, "tail");
        assert!(
            violation.story.starts_with("while a snapshot is taken, the p99 of 1000 writes"),
            "{violation}"
        );
        with[980..].fill(210);
        assert!(tail("x", &mut with, &mut without, slower).is_ok());
    }

    #[test]
    fn too_few_writes_are_not_judged() {
        let slower = Slower { factor: 1.0, allowance: 0 };
        assert_eq!(tail("x", &mut [9; 199], &mut [1; 1000], slower), Ok(None));
        assert_eq!(tail("x", &mut [9; 1000], &mut [1; 199], slower), Ok(None));
        assert!(tail("x", &mut [9; 200], &mut [1; 200], slower).is_err());
    }
}
