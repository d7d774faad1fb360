//! Delay: a distribution of times, and how one is drawn.
//!
//! In:   a stream of random numbers.
//! Out:  times in microseconds, never negative.
//! Knows nothing of: what takes so long.

use kattu_random::Random;
use serde::{Deserialize, Serialize};

/// A distribution of times. All numbers are microseconds, except `sigma`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Delay {
    /// Always the same.
    Constant(f64),
    /// Exponential with this mean.
    Exponential(f64),
    /// Lognormal.
    Lognormal {
        /// Mean of the delay itself, not of its logarithm.
        mean: f64,
        /// Standard deviation of the natural logarithm of the delay; 0 and more.
        sigma: f64,
    },
    /// Uniform from `min` to `max`.
    Uniform {
        /// Least delay.
        min: f64,
        /// Greatest delay.
        max: f64,
    },
}

impl Delay {
    /// No time at all.
    pub const NONE: Delay = Delay::Constant(0.0);

    /// Mean in microseconds.
    #[must_use]
    pub fn mean(&self) -> f64 {
        match *self {
            Delay::Constant(mean) | Delay::Exponential(mean) | Delay::Lognormal { mean, .. } => mean,
            Delay::Uniform { min, max } => (min + max) / 2.0,
        }
    }

    /// One time in microseconds.
    pub fn draw(&self, random: &mut Random) -> f64 {
        match *self {
            Delay::Constant(mean) => mean,
            Delay::Exponential(mean) => exponential(mean, random),
            Delay::Lognormal { mean, sigma } => {
                (mean.ln() - sigma * sigma / 2.0 + sigma * normal(random)).exp()
            }
            Delay::Uniform { min, max } => min + (max - min) * unit(random),
        }
    }

    /// Whether it can be drawn: finite, not negative, `min <= max`, and a lognormal mean above 0.
    ///
    /// # Errors
    /// The reason why not.
    pub fn check(&self) -> Result<(), String> {
        let is_time = |value: f64| value.is_finite() && 0.0 <= value;
        let is_right = match *self {
            Delay::Constant(mean) | Delay::Exponential(mean) => is_time(mean),
            Delay::Lognormal { mean, sigma } => is_time(mean) && 0.0 < mean && is_time(sigma),
            Delay::Uniform { min, max } => is_time(min) && is_time(max) && min <= max,
        };
        if is_right { Ok(()) } else { Err(format!("no distribution of times: {self:?}")) }
    }
}

/// An exponential time of this mean.
pub(crate) fn exponential(mean: f64, random: &mut Random) -> f64 {
    -mean * (1.0 - unit(random)).ln()
}

/// From 0 to below 1.
fn unit(random: &mut Random) -> f64 {
    (random.number() >> 11) as f64 / (1u64 << 53) as f64
}

/// A normal variate of mean 0 and deviation 1, by Box and Muller.
fn normal(random: &mut Random) -> f64 {
    let radius = (-2.0 * (1.0 - unit(random)).ln()).sqrt();
    radius * (std::f64::consts::TAU * unit(random)).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_have_the_mean_that_the_distribution_says() {
        let all = [
            Delay::Constant(3.0),
            Delay::Exponential(3.0),
            Delay::Lognormal { mean: 3.0, sigma: 0.5 },
            Delay::Uniform { min: 1.0, max: 5.0 },
        ];
        for delay in all {
            let mut random = Random::new(5);
            let mean = (0..40_000).map(|_| delay.draw(&mut random)).sum::<f64>() / 40_000.0;
            assert!((mean - 3.0).abs() < 0.06, "{delay:?}: {mean}");
            assert_eq!(delay.check(), Ok(()));
        }
    }

    #[test]
    fn what_cannot_be_drawn_is_refused() {
        for delay in [
            Delay::Constant(-1.0),
            Delay::Exponential(f64::NAN),
            Delay::Lognormal { mean: 0.0, sigma: 1.0 },
            Delay::Uniform { min: 2.0, max: 1.0 },
        ] {
            assert!(delay.check().is_err(), "{delay:?}");
        }
    }
}
