//! One axis: from where to where, and which values are written beside it.
//!
//! Knows nothing of: what is drawn.

use super::Scale;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use std::ops::Range;

/// An axis, for the plotting library.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    scale: Scale,
    /// The first and the last value, in the units of the data.
    ends: (f64, f64),
    /// The values that are written, with their text.
    ticks: Vec<(f64, String)>,
}

/// Room at both ends of an axis whose values are written where the data are.
const ROOM: f64 = 0.04;

impl Axis {
    /// Written at the values themselves.
    pub(super) fn at(scale: Scale, values: impl Iterator<Item = f64>) -> Axis {
        let values = ascending(values);
        let texts = values.iter().map(|value| (*value, short(*value))).collect();
        Axis::new(scale, &values, texts).with_room()
    }

    /// Groups 0, 1, …, each with its name.
    pub(super) fn named(values: impl Iterator<Item = (f64, String)>) -> Axis {
        let mut ticks: Vec<(f64, String)> = values.collect();
        ticks.sort_by(|one, other| one.0.total_cmp(&other.0));
        ticks.dedup_by(|one, other| one.0 == other.0);
        let last = ticks.last().map_or(0.0, |(value, _)| *value);
        Axis { scale: Scale::Linear, ends: (-0.5, last + 0.5), ticks }
    }

    /// Written at round values around all of these.
    pub(super) fn over(scale: Scale, values: impl Iterator<Item = f64>) -> Axis {
        let values = ascending(values);
        let (low, high) = (values.first().copied().unwrap_or(0.0), values.last().copied().unwrap_or(1.0));
        let round = match scale {
            Scale::Linear => round_linear(low, high),
            Scale::Logarithmic => round_logarithmic(low, high),
        };
        let texts = round.iter().map(|value| (*value, short(*value))).collect();
        Axis::new(scale, &round, texts)
    }

    fn new(scale: Scale, values: &[f64], ticks: Vec<(f64, String)>) -> Axis {
        let (low, high) = (values.first().copied().unwrap_or(0.0), values.last().copied().unwrap_or(1.0));
        // An axis of one value has it in the middle.
        let ends = match (low < high, scale) {
            (true, _) => (low, high),
            (false, Scale::Linear) => (low - 1.0, low + 1.0),
            (false, Scale::Logarithmic) => (low / 2.0, low * 2.0),
        };
        Axis { scale, ends, ticks }
    }

    fn with_room(self) -> Axis {
        let (low, high) = (self.place(self.ends.0), self.place(self.ends.1));
        let room = (high - low) * ROOM;
        let back = |place: f64| match self.scale {
            Scale::Linear => place,
            Scale::Logarithmic => place.exp(),
        };
        Axis { ends: (back(low - room), back(high + room)), ..self }
    }

    /// The least value.
    pub(super) fn least(&self) -> f64 {
        self.ends.0
    }

    fn place(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => value,
            Scale::Logarithmic => value.max(f64::MIN_POSITIVE).ln(),
        }
    }
}

fn ascending(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    values
}

/// About six steps of 1, 2 or 5 times a power of ten, from at most the lower to at least the higher value.
fn round_linear(low: f64, high: f64) -> Vec<f64> {
    let width = if low < high { high - low } else { 1.0 };
    let rough = width / 5.0;
    let power = 10_f64.powf(rough.log10().floor());
    let step =
        [1.0, 2.0, 5.0, 10.0].map(|it| it * power).into_iter().find(|step| rough <= *step).unwrap_or(rough);
    let (first, last) = ((low / step).floor() as i64, (high / step).ceil() as i64);
    (first..=last.max(first + 1)).map(|number| number as f64 * step).collect()
}

/// Powers of ten around both; with the values 2 and 5 between them if there are few.
fn round_logarithmic(low: f64, high: f64) -> Vec<f64> {
    let few = high / low < 200.0;
    let steps: &[f64] = if few { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let all: Vec<f64> =
        (first..=last).flat_map(|power| steps.iter().map(move |it| it * 10_f64.powi(power))).collect();
    let from = all.iter().rposition(|it| *it <= low).unwrap_or(0);
    let to = all.iter().position(|it| high <= *it).unwrap_or(all.len() - 1);
    all[from..=to.max((from + 1).min(all.len() - 1))].to_vec()
}

/// A value in few characters.
pub(super) fn short(value: f64) -> String {
    let text = match value.abs() {
        size if 1e6 <= size => format!("{}M", value / 1e6),
        size if 1e4 <= size => format!("{}k", value / 1e3),
        _ => format!("{value:.4}"),
    };
    match text.contains('.') && !text.ends_with(['k', 'M']) {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text,
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let (low, high) = (self.place(self.ends.0), self.place(self.ends.1));
        let share = (self.place(*value) - low) / (high - low);
        limit.0 + (share * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.iter().map(|(value, _)| *value).collect()
    }

    fn range(&self) -> Range<f64> {
        self.ends.0..self.ends.1
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        let text = self.ticks.iter().find(|(at, _)| at == value).map(|(_, text)| text.clone());
        text.unwrap_or_else(|| short(*value))
    }
}

impl From<Range<f64>> for Axis {
    fn from(range: Range<f64>) -> Axis {
        Axis::over(Scale::Linear, [range.start, range.end].into_iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, text)| text.as_str()).collect()
    }

    #[test]
    fn round_values_lie_around_the_data() {
        assert_eq!(
            written(&Axis::over(Scale::Linear, [0.0, 43.0].into_iter())),
            ["0", "10", "20", "30", "40", "50"]
        );
        assert_eq!(
            written(&Axis::over(Scale::Logarithmic, [3.0, 40.0].into_iter())),
            ["2", "5", "10", "20", "50"]
        );
        let wide = Axis::over(Scale::Logarithmic, [0.3, 70_000.0].into_iter());
        assert_eq!(written(&wide), ["0.1", "1", "10", "100", "1000", "10k", "100k"]);
        for axis in
            [Axis::over(Scale::Linear, [7.0].into_iter()), Axis::at(Scale::Logarithmic, [7.0].into_iter())]
        {
            assert!(axis.ends.0 <= 7.0 && 7.0 <= axis.ends.1 && axis.ends.0 < axis.ends.1, "{axis:?}");
        }
    }

    #[test]
    fn equal_ratios_are_equally_long_on_a_logarithmic_axis() {
        let axis = Axis::over(Scale::Logarithmic, [1.0, 1000.0].into_iter());
        let at = |value: f64| axis.map(&value, (0, 300));
        assert_eq!([1.0, 10.0, 100.0, 1000.0].map(at), [0, 100, 200, 300]);
    }
}
