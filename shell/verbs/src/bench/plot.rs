//! Plot: latencies as a picture, for each share of the operations how long they took at most.
//!
//! ```text
//!   time, log │               ·
//!             │          ···
//!             │ ·········
//!             └─────┬─────┬─────┬──   share: 90 %, 99 %, 99.9 %, … at equal steps
//! ```
//! Knows nothing of: files, loads.

use hdrhistogram::Histogram;
use std::fmt::Write;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
/// Around the curve.
const LEFT: f64 = 84.0;
const TOP: f64 = 48.0;
const RIGHT: f64 = 48.0;
const BOTTOM: f64 = 56.0;

/// Points of the curve for each step to the next nine.
const POINTS_PER_NINE: u32 = 40;

/// A picture of latencies in microseconds, as SVG.
pub(super) fn latencies(title: &str, latencies_us: &Histogram<u64>) -> String {
    // As many nines as there are operations for.
    let nines = f64::from(latencies_us.len().max(10).ilog10()).max(1.0);
    let (low, high) = decades(latencies_us);
    let x = |nine: f64| LEFT + nine / nines * (WIDTH - LEFT - RIGHT);
    let y = |us: f64| {
        let share = (us.max(1.0).log10() - low) / (high - low);
        HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
    };
    let mut out = String::new();
    let mut say = |text: std::fmt::Arguments<'_>| {
        let _ = out.write_fmt(text); // a String takes everything
    };
    say(format_args!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"14\">{}</text>\n",
        escaped(title)
    ));
    for decade in low as i32..=high as i32 {
        let (us, at) = (10f64.powi(decade), y(10f64.powi(decade)));
        say(format_args!(
            "<line x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n",
            WIDTH - RIGHT,
            LEFT - 8.0,
            at + 4.0,
            time(us),
        ));
    }
    for nine in 0..=nines as i32 {
        let at = x(f64::from(nine));
        say(format_args!(
            "<line x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{:.1}\" stroke=\"#ddd\"/>\n\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n",
            HEIGHT - BOTTOM,
            HEIGHT - BOTTOM + 18.0,
            share(nine),
        ));
    }
    say(format_args!(
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">share of the operations, and how long they took at most</text>\n\
         <polyline fill=\"none\" stroke=\"#1f6feb\" stroke-width=\"2\" points=\"",
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - 14.0,
    ));
    let points = nines as u32 * POINTS_PER_NINE;
    for point in 0..=points {
        let nine = f64::from(point) / f64::from(POINTS_PER_NINE);
        let us = latencies_us.value_at_quantile(1.0 - 10f64.powf(-nine)) as f64;
        say(format_args!("{:.1},{:.1} ", x(nine), y(us)));
    }
    say(format_args!("\"/>\n</svg>\n"));
    out
}

/// The powers of ten, in microseconds, between which all latencies are.
fn decades(latencies_us: &Histogram<u64>) -> (f64, f64) {
    let low = (latencies_us.min().max(1) as f64).log10().floor();
    let high = (latencies_us.max().max(1) as f64).log10().ceil();
    (low, high.max(low + 1.0))
}

/// The share of operations at a number of nines: 0 %, 90 %, 99 %, 99.9 %.
fn share(nine: i32) -> String {
    match nine {
        0 => "0 %".to_string(),
        1 => "90 %".to_string(),
        nine => {
            let decimals = usize::try_from(nine - 2).unwrap_or(0);
            format!("{:.decimals$} %", 100.0 - 10f64.powi(2 - nine))
        }
    }
}

fn time(us: f64) -> String {
    match us {
        us if us < 1e3 => format!("{us} µs"),
        us if us < 1e6 => format!("{} ms", us / 1e3),
        us => format!("{} s", us / 1e6),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_shows_each_nine_that_there_are_operations_for() {
        let mut all = Histogram::new_with_bounds(1, 1_000_000, 3).expect("bounds");
        (1..=10_000).for_each(|number| all.saturating_record(1 + number / 2));
        let picture = latencies("put <a & b>", &all);
        for part in ["0 %", "90 %", "99 %", "99.9 %", "99.99 %", "1 µs", "10 ms", "put &lt;a &amp; b>"] {
            assert!(picture.contains(part), "{part} is not in {picture}");
        }
        assert!(
            !picture.contains("99.999 %") && !picture.contains("100 ms") && picture.ends_with("</svg>\n")
        );
        let points =
            picture.split("points=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a curve");
        let heights: Vec<f64> = points
            .split_whitespace()
            .map(|point| point.split(',').nth(1).expect("x,y").parse().expect("a number"))
            .collect();
        assert_eq!(heights.len(), 161);
        assert!(heights.is_sorted_by(|before, after| before >= after), "more operations took no less time");
        assert!(latencies("none", &Histogram::new_with_bounds(1, 10, 3).expect("bounds")).contains("</svg>"));
    }
}
