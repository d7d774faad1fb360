//! Statistics: medians, quantiles of histograms, and bootstrap intervals.
//!
//! Rule: a number that is published here is a median of runs, with an interval in which the median lies at 95 % confidence if the
//!       runs are independent. The interval is drawn from a seed, so the same runs give the same interval.
//! Knows nothing of: what was measured.

use kattu_random::Random;
use serde::{Deserialize, Serialize};

/// Resamples of one interval: its ends then differ by less than their own width from seed to seed.
const RESAMPLES: usize = 2000;
/// Share of resamples that lie outside at each end.
const TAIL: f64 = 0.025;

/// A median with its interval, in the unit of its samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The median of the runs.
    pub median: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Interval {
    /// All three by the same function, which must not turn their order around.
    #[must_use]
    pub fn map(self, by: impl Fn(f64) -> f64) -> Interval {
        Interval { median: by(self.median), low: by(self.low), high: by(self.high) }
    }

    /// A number that was not sampled.
    #[must_use]
    pub fn exact(value: f64) -> Interval {
        Interval { median: value, low: value, high: value }
    }
}

/// The median: of an even number of samples the mean of the two in the middle.
///
/// # Panics
/// Without a sample.
#[must_use]
pub fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() % 2 {
        1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// The median of these samples with its interval; `None` without a sample.
#[must_use]
pub fn interval(samples: &[f64], seed: u64) -> Option<Interval> {
    resampled(seed, median_of(samples)?, |random| median(&resample(samples, random)))
}

/// The ratio of two medians with its interval; `None` without a sample of both, or if the second median may be 0.
#[must_use]
pub fn ratio(over: &[f64], under: &[f64], seed: u64) -> Option<Interval> {
    let (above, below) = (median_of(over)?, median_of(under)?);
    if interval(under, seed)?.low <= 0.0 {
        return None;
    }
    // A resampled median of 0 may still come, so rarely that it lies outside of the interval: as an infinite ratio.
    let draw = |random: &mut Random| median(&resample(over, random)) / median(&resample(under, random));
    resampled(seed, above / below, draw)
}

fn median_of(samples: &[f64]) -> Option<f64> {
    (!samples.is_empty()).then(|| median(samples))
}

fn resample(samples: &[f64], random: &mut Random) -> Vec<f64> {
    samples.iter().map(|_| samples[random.below(samples.len())]).collect()
}

/// The percentile interval of a statistic. [Efron 1979]
fn resampled(seed: u64, median: f64, mut draw: impl FnMut(&mut Random) -> f64) -> Option<Interval> {
    let mut random = Random::new(seed);
    let mut drawn: Vec<f64> = (0..RESAMPLES).map(|_| draw(&mut random)).collect();
    drawn.sort_by(f64::total_cmp);
    let outside = (RESAMPLES as f64 * TAIL) as usize;
    Some(Interval { median, low: drawn[outside], high: drawn[RESAMPLES - 1 - outside] })
}

/// The value below or at which this share of a histogram lies; its pairs are in ascending order. `None` if it is empty.
#[must_use]
pub fn quantile(pairs: &[(u64, u64)], share: f64) -> Option<f64> {
    let total: u64 = pairs.iter().map(|(_, count)| count).sum();
    let wanted = ((total as f64 * share).ceil() as u64).max(1);
    let mut seen = 0;
    pairs.iter().find_map(|(value, count)| {
        seen += count;
        (wanted <= seen).then_some(*value as f64)
    })
}

/// One histogram of several.
#[must_use]
pub fn together<'a>(histograms: impl IntoIterator<Item = &'a [(u64, u64)]>) -> Vec<(u64, u64)> {
    let mut counts = std::collections::BTreeMap::new();
    for (value, count) in histograms.into_iter().flatten() {
        *counts.entry(*value).or_insert(0) += count;
    }
    counts.into_iter().collect()
}

/// Significant bits of a value in [`rounded`].
const BITS: u32 = 7;

/// The same histogram, with values that are exact below 128 and to 0.8 % above: files of runs stay small.
#[must_use]
pub fn rounded(histogram: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let round = |value: u64| {
        let shift = (u64::BITS - value.leading_zeros()).saturating_sub(BITS);
        ((value >> shift) + u64::from(0 < shift && value >> (shift - 1) & 1 == 1)) << shift
    };
    let pairs: Vec<(u64, u64)> = histogram.iter().map(|(value, count)| (round(*value), *count)).collect();
    together([&pairs[..]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounded_values_are_near_and_no_count_is_lost() {
        let exact: Vec<(u64, u64)> = (0..128).map(|value| (value, 1)).collect();
        assert_eq!(rounded(&exact), exact);
        assert_eq!(
            rounded(&[(128, 1), (129, 2), (130, 4), (255, 8), (1_000_001, 16)]),
            [(128, 1), (130, 6), (256, 8), (999_424, 16)]
        );
        for value in (1..5_000_000).step_by(997) {
            let near = rounded(&[(value, 3)]);
            let [(near, 3)] = near[..] else { panic!("{near:?}") };
            assert!(near.abs_diff(value) * 128 <= value, "{value} became {near}");
        }
    }

    #[test]
    fn a_median_is_the_middle_or_the_mean_of_two() {
        for (samples, expected) in
            [(&[3.0][..], 3.0), (&[4.0, 1.0], 2.5), (&[9.0, 1.0, 5.0], 5.0), (&[4.0, 1.0, 3.0, 2.0], 2.5)]
        {
            assert_eq!(median(samples), expected);
        }
    }

    #[test]
    fn an_interval_contains_its_median_and_is_repeated_by_its_seed() {
        let samples: Vec<f64> = (1..=11).map(f64::from).collect();
        let found = interval(&samples, 7).expect("samples");
        assert_eq!(found.median, 6.0);
        assert!(found.low < 6.0 && 6.0 < found.high, "{found:?}");
        // The exact interval of order statistics at 95 % is the 2nd to the 10th sample.
        assert!((2.0..=4.0).contains(&found.low) && (8.0..=10.0).contains(&found.high), "{found:?}");
        assert_eq!(interval(&samples, 7), Some(found));
        assert_eq!(interval(&[], 7), None);
    }

    #[test]
    fn of_three_samples_the_interval_reaches_from_the_least_to_the_largest() {
        let found = interval(&[10.0, 30.0, 20.0], 1).expect("samples");
        assert_eq!((found.low, found.median, found.high), (10.0, 20.0, 30.0));
    }

    #[test]
    fn equal_samples_have_no_width_and_a_ratio_is_exact() {
        assert_eq!(interval(&[5.0; 9], 3), Some(Interval::exact(5.0)));
        assert_eq!(ratio(&[6.0; 4], &[3.0; 5], 3), Some(Interval::exact(2.0)));
        assert_eq!(ratio(&[6.0], &[0.0], 3), None);
        assert_eq!(ratio(&[6.0; 9], &[0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0], 3), None);
        let mut one_is_zero = [3.0; 10];
        one_is_zero[4] = 0.0;
        assert_eq!(ratio(&[6.0; 10], &one_is_zero, 3), Some(Interval::exact(2.0)));
    }

    #[test]
    fn quantiles_of_a_histogram_count_every_operation() {
        let pairs = [(10, 98), (20, 1), (1000, 1)];
        let at = |share| quantile(&pairs, share);
        assert_eq!(
            (at(0.5), at(0.98), at(0.99), at(0.999)),
            (Some(10.0), Some(10.0), Some(20.0), Some(1000.0))
        );
        assert_eq!((at(0.0), quantile(&[], 0.5)), (Some(10.0), None));
        assert_eq!(together([&pairs[..2], &[(20, 4)]]), [(10, 98), (20, 5)]);
    }
}
