//! Wait: how long an entry waits for its predecessors, in closed form and by Monte Carlo. (check P1)
//!
//! Poisson sends at rate λ, independent exponential delays of mean d, unlimited dispatchers, no window. With a = λ·d:
//!
//! ```text
//!   t_wait = d · ( Ein(a) + (1 − e^(−a))/a − 1 )     Ein(a) = ∫₀¹ (1 − e^(−au))/u du
//! ```
//! An entry that is sent at 0 and arrives at t waits until the last predecessor is there. By the arrival theorem, the predecessors
//! that arrive after s ≥ t are Poisson with mean λ·∫_s^∞ e^(−x/d) dx, and the integral over s and t gives the formula.
//! Knows nothing of: the net.

use crate::delay::Delay;
use kattu_random::Random;

/// Mean t_wait in units of d.
///
/// # Panics
/// If `a` is not above 0.
#[must_use]
pub fn closed_form(a: f64) -> f64 {
    assert!(0.0 < a, "a = {a}");
    entire_exponential_integral(a) + (1.0 - (-a).exp()) / a - 1.0
}

/// Ein(a), by Simpson's rule.
fn entire_exponential_integral(a: f64) -> f64 {
    let steps = 20_000;
    let value = |place: usize| {
        let u = place as f64 / steps as f64;
        if place == 0 { a } else { -(-a * u).exp_m1() / u }
    };
    let weight = |place: usize| match place {
        0 => 1.0,
        place if place == steps => 1.0,
        place if place % 2 == 1 => 4.0,
        _ => 2.0,
    };
    (0..=steps).map(|place| weight(place) * value(place)).sum::<f64>() / (3 * steps) as f64
}

/// Mean t_wait in the unit of the delay, of so many entries: one is sent every 1/λ on average, and takes `delay`. An entry is
/// appendable when all before it have arrived.
#[must_use]
pub fn monte_carlo(per_unit: f64, delay: Delay, entries: u64, seed: u64) -> f64 {
    let mut random = Random::new(seed);
    let (mut sent, mut last, mut sum) = (0.0, 0.0, 0.0_f64);
    let gap = Delay::Exponential(1.0 / per_unit);
    for _ in 0..entries {
        sent += gap.draw(&mut random);
        let arrived: f64 = sent + delay.draw(&mut random);
        sum += (last - arrived).max(0.0);
        last = last.max(arrived);
    }
    sum / entries as f64
}
