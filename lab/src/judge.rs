//! How a run is judged: claims with verdicts by stated rules, paragraphs with numbers from the samples, figures and tables.
//!
//! Rule: no sentence is chosen before the runs are: a verdict follows from an interval, and numbers are put into the text.
//!
//! ```text
//!   claim: "A is at least f times B"      interval of A/B = low..high at 95 %
//!     f <= low          held
//!     high < f          refuted
//!     else              not decided
//!   a finding of others that is not found here although its cause is there, or that follows from how it was measured:  artefact
//! ```
//! Knows nothing of: how anything is drawn, files.

use crate::drawings::Drawing;
use crate::figures::{Dot, Figure, Kind, Scale, Series};
use crate::measured::{At, Measure};
use crate::published::Table as PublishedTable;
use crate::statistics::Interval;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a judge says of a run.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Claims.
    pub claims: Vec<Claim>,
    /// Paragraphs.
    pub paragraphs: Vec<String>,
    /// Pictures that are no charts.
    pub drawings: Vec<Drawing>,
    /// Figures.
    pub figures: Vec<Figure>,
    /// Tables: ours beside theirs.
    pub tables: Vec<Table>,
}

/// A statement that the run can hold, refute or leave open.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// The statement.
    pub says: String,
    /// Where it stands, or "ours".
    pub source: String,
    /// The rule by which the verdict follows.
    pub rule: String,
    /// The numbers.
    pub because: String,
    /// The verdict.
    pub verdict: Verdict,
}

/// What a run says of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It is so.
    Held,
    /// It is not so.
    Refuted,
    /// It follows from how it was measured, not from the system.
    Artefact,
    /// These runs do not tell.
    NotDecided,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Held => "held",
            Verdict::Refuted => "refuted",
            Verdict::Artefact => "artefact",
            Verdict::NotDecided => "not decided",
        })
    }
}

/// A table of text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// Headings.
    pub head: Vec<String>,
    /// Rows.
    pub rows: Vec<Vec<String>>,
}

/// Whether a number is at least this large.
#[must_use]
pub fn at_least(interval: Interval, least: f64) -> Verdict {
    if least <= interval.low {
        Verdict::Held
    } else if interval.high < least {
        Verdict::Refuted
    } else {
        Verdict::NotDecided
    }
}

/// Whether a number is at most this large.
#[must_use]
pub fn at_most(interval: Interval, most: f64) -> Verdict {
    at_least(Interval { median: -interval.median, low: -interval.high, high: -interval.low }, -most)
}

/// Whether a ratio is near 1: at most this factor away from it in either direction.
#[must_use]
pub fn within(ratio: Interval, factor: f64) -> Verdict {
    match (at_least(ratio, 1.0 / factor), at_most(ratio, factor)) {
        (Verdict::Held, Verdict::Held) => Verdict::Held,
        (Verdict::Refuted, _) | (_, Verdict::Refuted) => Verdict::Refuted,
        _ => Verdict::NotDecided,
    }
}

impl Verdict {
    /// The verdict on the contrary.
    #[must_use]
    pub fn opposite(self) -> Verdict {
        match self {
            Verdict::Held => Verdict::Refuted,
            Verdict::Refuted => Verdict::Held,
            Verdict::Artefact | Verdict::NotDecided => self,
        }
    }
}

impl Claim {
    /// A claim that one point's measure is at least `least` times as large as the other's. Nothing if a point has too few
    /// runs.
    #[must_use]
    pub fn ratio_at_least(
        says: &str,
        source: &str,
        (over, under): (Option<At<'_>>, Option<At<'_>>),
        measure: Measure,
        least: f64,
    ) -> Option<Claim> {
        let (over, under) = (over?, under?);
        let ratio = over.over(&under, measure)?;
        Some(Claim {
            says: says.into(),
            source: source.into(),
            rule: format!(
                "held if the interval of the ratio ({}: `{}` over `{}`) lies at {least} or above, refuted if it lies below",
                measure.title(),
                over.point.point,
                under.point.point
            ),
            because: format!("the ratio is {}", shown(ratio)),
            verdict: at_least(ratio, least),
        })
    }

    /// A claim that a number is at most `most`. `what` it is the number of, for readers; `because` has it.
    #[must_use]
    pub fn at_most(
        says: impl Into<String>,
        source: &str,
        (what, value): (&str, Interval),
        most: f64,
        because: String,
    ) -> Claim {
        Claim {
            says: says.into(),
            source: source.into(),
            rule: format!("held if the interval of {what} lies at {most} or below, refuted if it lies above"),
            because,
            verdict: at_most(value, most),
        }
    }
}

/// So many clients, for people.
#[must_use]
pub fn clients(count: &str) -> String {
    format!("{count} client{}", if count == "1" { "" } else { "s" })
}

/// A number that was published, for people: a whole one as it is.
#[must_use]
pub fn plain(value: f64) -> String {
    match value.abs() < 1000.0 && value.fract() == 0.0 {
        true => format!("{value}"),
        false => number(value),
    }
}

/// A number for people: three digits that count.
#[must_use]
pub fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        size if 1000.0 <= size => thousands(value),
        size if 100.0 <= size => format!("{value:.0}"),
        size if 10.0 <= size => format!("{value:.1}"),
        size if 0.1 <= size => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

fn thousands(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if 0 < place && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 { format!("-{text}") } else { text }
}

/// A median with its interval, for people.
#[must_use]
pub fn shown(interval: Interval) -> String {
    match interval.low == interval.high {
        true => number(interval.median),
        false => {
            format!("{} ({} to {})", number(interval.median), number(interval.low), number(interval.high))
        }
    }
}

/// A median for people, or a dash.
#[must_use]
pub fn cell(at: Option<At<'_>>, measure: Measure) -> String {
    at.and_then(|at| at.median(measure)).map_or_else(|| "–".into(), shown)
}

/// A published number for people, or a dash.
#[must_use]
pub fn published(table: &PublishedTable, first: f64, column: usize) -> String {
    table.value(first, column).map_or_else(|| "–".into(), plain)
}

/// One line of a figure: these points by a coordinate, which is a number.
#[must_use]
pub fn line(name: &str, points: &[At<'_>], coordinate: &str, measure: Measure) -> Series {
    let dot = |at: &At<'_>| {
        let x = at.number(coordinate)?;
        Some(Dot { x, label: at.coordinate(coordinate).into(), y: at.median(measure)? })
    };
    let mut dots: Vec<Dot> = points.iter().filter_map(dot).collect();
    dots.sort_by(|one, other| one.x.total_cmp(&other.x));
    Series::of(name, dots)
}

/// One line of a figure: these points in their order, one measure against another.
#[must_use]
pub fn against(name: &str, points: &[At<'_>], across: Measure, up: Measure, label: &str) -> Series {
    let dot = |at: &At<'_>| {
        Some(Dot { x: at.median(across)?.median, label: at.coordinate(label).into(), y: at.median(up)? })
    };
    Series::of(name, points.iter().filter_map(dot).collect())
}

/// The bars of one colour: these points in their order, named by a coordinate.
#[must_use]
pub fn bars(name: &str, points: &[At<'_>], coordinate: &str, measure: Measure) -> Series {
    let dot = |(place, at): (usize, &At<'_>)| {
        Some(Dot { x: place as f64, label: at.coordinate(coordinate).into(), y: at.median(measure)? })
    };
    Series::of(name, points.iter().enumerate().filter_map(dot).collect())
}

/// A figure of lines with logarithmic axes, or as its fields are set then.
#[must_use]
pub fn lines(id: &str, title: &str, x: &str, measure: Measure, series: Vec<Series>) -> Figure {
    Figure {
        id: id.into(),
        title: title.into(),
        caption: String::new(),
        x: x.into(),
        y: measure.title().into(),
        x_scale: Scale::Logarithmic,
        y_scale: Scale::Logarithmic,
        kind: Kind::Lines,
        series,
    }
}

/// A table of measures of points: one row each, named by some coordinates.
#[must_use]
pub fn table(title: &str, points: &[At<'_>], coordinates: &[&str], measures: &[Measure]) -> Table {
    let head =
        coordinates.iter().map(ToString::to_string).chain(measures.iter().map(|it| it.title().to_string()));
    let row = |at: &At<'_>| {
        let names = coordinates.iter().map(|name| at.coordinate(name).to_string());
        names.chain(measures.iter().map(|measure| cell(Some(*at), *measure))).collect()
    };
    Table { title: title.into(), head: head.collect(), rows: points.iter().map(row).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_follows_from_the_whole_interval() {
        let interval = |low, high| Interval { median: f64::midpoint(low, high), low, high };
        assert_eq!(at_least(interval(2.0, 3.0), 2.0), Verdict::Held);
        assert_eq!(at_least(interval(1.9, 3.0), 2.0), Verdict::NotDecided);
        assert_eq!(at_least(interval(1.0, 1.9), 2.0), Verdict::Refuted);
        assert_eq!(at_most(interval(1.0, 1.1), 1.1), Verdict::Held);
        assert_eq!(at_most(interval(1.2, 1.3), 1.1), Verdict::Refuted);
        assert_eq!(at_most(interval(1.0, 1.3), 1.1), Verdict::NotDecided);
        assert_eq!(within(interval(0.95, 1.05), 1.1), Verdict::Held);
        assert_eq!(within(interval(0.85, 1.05), 1.1), Verdict::NotDecided);
        assert_eq!(within(interval(0.7, 0.8), 1.1), Verdict::Refuted);
        assert_eq!(within(interval(1.2, 1.3), 1.1).opposite(), Verdict::Held);
    }

    #[test]
    fn numbers_have_three_digits_that_count() {
        let told = [0.0, 0.01234, 0.5678, 12.345, 123.45, 1234.5, 1_234_567.0, -4321.0].map(number);
        assert_eq!(told, ["0", "0.0123", "0.57", "12.3", "123", "1,234", "1,234,567", "-4,321"]);
        assert_eq!(shown(Interval { median: 2.0, low: 1.5, high: 3.0 }), "2.00 (1.50 to 3.00)");
        assert_eq!(shown(Interval::exact(2.0)), "2.00");
        assert_eq!([64.0, 83.2, 5000.0].map(plain), ["64", "83.2", "5,000"]);
        assert_eq!(["1", "256"].map(clients), ["1 client", "256 clients"]);
    }
}
