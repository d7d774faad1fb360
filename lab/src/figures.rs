//! Figures: lines and bars with intervals, and cumulative distributions, as SVG.
//!
//! Everything that is not a colour of a series is drawn in `currentColor`, so that a figure can be read on a light and on a dark page. The
//! numbers that are drawn are in the attribute `data-figure` of the SVG, as JSON.
//! Knows nothing of: what the numbers mean, pages.

mod axis;

use crate::statistics::Interval;
use axis::Axis;
use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::prelude::*;
use serde_json::json;

const SIZE: (u32, u32) = (860, 380);
/// Width of the column in which series are named.
const LEGEND: u32 = 230;
/// Replaced by `currentColor` in the finished figure: no series has this colour.
const INK: RGBColor = RGBColor(1, 2, 3);
const INK_IN_SVG: &str = "#010203";
/// Readable on white and on black.
pub(crate) const COLOURS: [RGBColor; 6] = [
    RGBColor(47, 126, 216),
    RGBColor(217, 115, 13),
    RGBColor(34, 150, 103),
    RGBColor(190, 75, 160),
    RGBColor(128, 112, 235),
    RGBColor(200, 70, 70),
];
/// Figures of others.
const PUBLISHED: [RGBColor; 2] = [RGBColor(136, 142, 152), RGBColor(168, 142, 104)];
/// Most points of one distribution: more cannot be told apart.
const STEPS_MAX: usize = 200;
/// Colours of figures that are opened by themselves; a page has the same rule.
pub(crate) const STYLE: &str = "<style>svg{color-scheme:light dark;color:#222}@media (prefers-color-scheme:dark){svg{color:#ddd}}</style>";

/// A figure.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Its name in files.
    pub id: String,
    /// Its title.
    pub title: String,
    /// What a reader should know to read it.
    pub caption: String,
    /// Title of the horizontal axis, with its unit.
    pub x: String,
    /// Title of the vertical axis, with its unit.
    pub y: String,
    /// How values are placed on the horizontal axis.
    pub x_scale: Scale,
    /// How values are placed on the vertical axis.
    pub y_scale: Scale,
    /// What is drawn.
    pub kind: Kind,
    /// The data.
    pub series: Vec<Series>,
}

/// How values are placed on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal differences are equally long.
    Linear,
    /// Equal ratios are equally long.
    Logarithmic,
}

/// What is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A line through medians, with intervals.
    Lines,
    /// The same, where values below are measured, too, and not round.
    Curve,
    /// A bar for each median, grouped by the value below, with intervals.
    Bars,
    /// The share of operations that took at most so long.
    Distribution,
}

/// One line, or the bars of one colour.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// Whether it was published by others.
    pub is_published: bool,
    /// Its points, in the order of x.
    pub dots: Vec<Dot>,
}

/// One median.
#[derive(Clone, Debug, PartialEq)]
pub struct Dot {
    /// Its place; of bars the number of the group.
    pub x: f64,
    /// The name of that place.
    pub label: String,
    /// The median with its interval.
    pub y: Interval,
}

impl Series {
    /// A series of ours.
    #[must_use]
    pub fn of(name: &str, dots: Vec<Dot>) -> Series {
        Series { name: name.into(), is_published: false, dots }
    }

    /// A series of others, which has no intervals.
    #[must_use]
    pub fn published(name: &str, pairs: &[(f64, f64)]) -> Series {
        let dot = |(x, y): &(f64, f64)| Dot { x: *x, label: axis::short(*x), y: Interval::exact(*y) };
        Series { name: name.into(), is_published: true, dots: pairs.iter().map(dot).collect() }
    }

    /// The distribution of a histogram of microseconds, in milliseconds.
    #[must_use]
    pub fn distribution(name: &str, pairs: &[(u64, u64)]) -> Series {
        let total: u64 = pairs.iter().map(|(_, count)| count).sum();
        let every = (pairs.len() / STEPS_MAX).max(1);
        let mut seen = 0;
        let mut dots = Vec::new();
        for (place, (micros, count)) in pairs.iter().enumerate() {
            seen += count;
            if place % every == 0 || place + 1 == pairs.len() {
                let x = *micros as f64 / 1e3;
                let share = seen as f64 / total as f64;
                dots.push(Dot { x, label: axis::short(x), y: Interval::exact(share) });
            }
        }
        Series::of(name, dots)
    }
}

impl Figure {
    /// The same with a caption.
    #[must_use]
    pub fn with_caption(self, caption: &str) -> Figure {
        Figure { caption: caption.into(), ..self }
    }

    /// The same as bars, on a linear axis.
    #[must_use]
    pub fn as_bars(self) -> Figure {
        Figure { kind: Kind::Bars, y_scale: Scale::Linear, ..self }
    }

    /// Distributions of latencies.
    #[must_use]
    pub fn distributions(id: &str, title: &str, series: Vec<Series>) -> Figure {
        Figure {
            id: id.into(),
            title: title.into(),
            caption: "Over all repetitions together.".into(),
            x: "latency, ms".into(),
            y: "share of requests".into(),
            x_scale: Scale::Logarithmic,
            y_scale: Scale::Linear,
            kind: Kind::Distribution,
            series,
        }
    }

    /// The figure as SVG; nothing if there is nothing to draw.
    ///
    /// # Errors
    /// The library refuses.
    pub fn svg(&self) -> Result<Option<String>, String> {
        let series: Vec<&Series> = self.series.iter().filter(|series| !series.dots.is_empty()).collect();
        if series.is_empty() {
            return Ok(None);
        }
        let mut text = String::new();
        {
            let root = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
            self.draw(&root, &series).map_err(|error| format!("figure {}: {error}", self.id))?;
            root.present().map_err(|error| format!("figure {}: {error}", self.id))?;
        }
        Ok(Some(self.finish(&text)))
    }

    fn draw<'a>(&self, root: &DrawingArea<SVGBackend<'a>, Shift>, series: &[&Series]) -> Drawn<'a> {
        let (plot, legend) = root.split_horizontally(SIZE.0 - LEGEND);
        self.legend(&legend, series)?;
        let mut chart = ChartBuilder::on(&plot)
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(74)
            .build_cartesian_2d(self.x_axis(series), self.y_axis(series))?;
        let mut mesh = chart.configure_mesh();
        if self.kind == Kind::Bars {
            mesh.disable_x_mesh();
        }
        mesh.axis_style(INK.mix(0.6))
            .bold_line_style(INK.mix(0.15))
            .light_line_style(TRANSPARENT)
            .label_style(("sans-serif", 13).into_font().color(&INK))
            .axis_desc_style(("sans-serif", 14).into_font().color(&INK))
            .x_desc(self.x.as_str())
            .y_desc(self.y.as_str())
            .draw()?;
        for (place, series_here) in series.iter().enumerate() {
            let colour = colour(series, place);
            match self.kind {
                Kind::Lines | Kind::Curve => line(&mut chart, series_here, colour, true)?,
                Kind::Distribution => line(&mut chart, series_here, colour, false)?,
                Kind::Bars => {
                    bars(&mut chart, series_here, colour, place, series.len(), self.y_base(series))?
                }
            }
        }
        Ok(())
    }

    fn x_axis(&self, series: &[&Series]) -> Axis {
        let dots = series.iter().flat_map(|series| &series.dots);
        match self.kind {
            Kind::Bars => Axis::named(dots.map(|dot| (dot.x, dot.label.clone()))),
            Kind::Lines => Axis::at(self.x_scale, dots.map(|dot| dot.x)),
            Kind::Distribution | Kind::Curve => Axis::over(self.x_scale, dots.map(|dot| dot.x)),
        }
    }

    fn y_axis(&self, series: &[&Series]) -> Axis {
        if self.kind == Kind::Distribution {
            return Axis::over(Scale::Linear, [0.0, 1.0].into_iter());
        }
        let ends = series
            .iter()
            .flat_map(|series| &series.dots)
            .flat_map(|dot| [dot.y.low, dot.y.median, dot.y.high]);
        match self.y_scale {
            Scale::Linear => Axis::over(Scale::Linear, ends.chain([0.0])),
            Scale::Logarithmic => Axis::over(Scale::Logarithmic, ends.filter(|end| 0.0 < *end)),
        }
    }

    /// Where bars begin.
    fn y_base(&self, series: &[&Series]) -> f64 {
        match self.y_scale {
            Scale::Linear => 0.0,
            Scale::Logarithmic => self.y_axis(series).least(),
        }
    }

    fn legend<'a>(&self, area: &DrawingArea<SVGBackend<'a>, Shift>, series: &[&Series]) -> Drawn<'a> {
        for (place, it) in series.iter().enumerate() {
            let y = 24 + 22 * place as i32;
            let style = ShapeStyle { color: colour(series, place).to_rgba(), filled: true, stroke_width: 3 };
            area.draw(&PathElement::new([(8, y), (30, y)], style))?;
            let font = ("sans-serif", 13).into_font().color(&INK);
            area.draw(&Text::new(it.name.clone(), (38, y - 7), font))?;
        }
        Ok(())
    }

    /// Puts names, numbers and colours into what the library drew.
    fn finish(&self, text: &str) -> String {
        let data = json!({
            "id": self.id,
            "x": self.x,
            "y": self.y,
            "series": self.series.iter().map(|series| json!({
                "name": series.name,
                "published": series.is_published,
                "points": series.dots.iter().map(|dot| json!({
                    "x": dot.x, "label": dot.label, "median": dot.y.median, "low": dot.y.low, "high": dot.y.high,
                })).collect::<Vec<_>>(),
            })).collect::<Vec<_>>(),
        });
        let head = format!(
            "<svg role=\"img\" aria-label=\"{}\" data-figure=\"{}\" ",
            escaped(&self.title),
            escaped(&data.to_string())
        );
        let text = text.replacen("<svg ", &head, 1).replace(INK_IN_SVG, "currentColor");
        match text
            .split_once("<svg ")
            .and_then(|(_, rest)| rest.find('>').map(|end| text.len() - rest.len() + end + 1))
        {
            Some(end) => format!("{}{STYLE}{}", &text[..end], &text[end..]),
            None => text,
        }
    }
}

type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;
type Chart<'c, 'b> = ChartContext<'c, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;

/// Series of ours have the colours in their order; those of others are grey or brown.
fn colour(series: &[&Series], place: usize) -> RGBColor {
    let is_published = series[place].is_published;
    let before = series[..place].iter().filter(|it| it.is_published == is_published).count();
    let colours: &[RGBColor] = if is_published { &PUBLISHED } else { &COLOURS };
    colours[before % colours.len()]
}

fn line<'b>(chart: &mut Chart<'_, 'b>, series: &Series, colour: RGBColor, has_dots: bool) -> Drawn<'b> {
    let medians = series.dots.iter().map(|dot| (dot.x, dot.y.median));
    chart.draw_series(LineSeries::new(medians, colour.stroke_width(2)))?;
    if has_dots {
        let marker = |dot: &Dot| match series.is_published {
            true => Circle::new((dot.x, dot.y.median), 4, colour.stroke_width(2)),
            false => Circle::new((dot.x, dot.y.median), 4, colour.filled()),
        };
        chart.draw_series(series.dots.iter().map(marker))?;
        whiskers(chart, series.dots.iter().map(|dot| (dot.x, dot.y)), colour)?;
    }
    Ok(())
}

fn bars<'b>(
    chart: &mut Chart<'_, 'b>,
    series: &Series,
    colour: RGBColor,
    place: usize,
    of: usize,
    base: f64,
) -> Drawn<'b> {
    let width = 0.8 / of as f64;
    let left = |dot: &Dot| dot.x - 0.4 + width * place as f64;
    let bar = |dot: &Dot| {
        let style = colour.mix(0.75).filled();
        Rectangle::new([(left(dot) + 0.03 * width, base), (left(dot) + 0.97 * width, dot.y.median)], style)
    };
    chart.draw_series(series.dots.iter().map(bar))?;
    let whiskers_at = series.dots.iter().map(|dot| (left(dot) + width / 2.0, dot.y));
    whiskers(chart, whiskers_at, INK)
}

/// A line from end to end of each interval.
fn whiskers<'b>(
    chart: &mut Chart<'_, 'b>,
    intervals: impl Iterator<Item = (f64, Interval)>,
    colour: RGBColor,
) -> Drawn<'b> {
    let wide = intervals.filter(|(_, interval)| interval.low < interval.high);
    let lines = wide.map(|(x, interval)| {
        PathElement::new([(x, interval.low), (x, interval.high)], colour.mix(0.9).stroke_width(2))
    });
    chart.draw_series(lines).map(drop)
}

/// Text within an attribute or an element.
#[must_use]
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(kind: Kind) -> Figure {
        let dot = |x: f64, median: f64| Dot {
            x,
            label: format!("x is {x}"),
            y: Interval { median, low: median * 0.9, high: median * 1.2 },
        };
        Figure {
            id: "a".into(),
            title: "A \"title\" & more".into(),
            caption: String::new(),
            x: "size, bytes".into(),
            y: "time, ms".into(),
            x_scale: Scale::Linear,
            y_scale: Scale::Logarithmic,
            kind,
            series: vec![
                Series::of("ours", vec![dot(1.0, 20.0), dot(2.0, 300.0)]),
                Series::published("theirs", &[(1.0, 7.0), (2.0, 5000.0)]),
            ],
        }
    }

    #[test]
    fn a_figure_carries_its_numbers_and_takes_the_colour_of_its_page() {
        for kind in [Kind::Lines, Kind::Curve, Kind::Bars, Kind::Distribution] {
            let svg = figure(kind).svg().expect("drawn").expect("something to draw");
            assert!(svg.contains("size, bytes") && svg.contains("time, ms") && svg.contains("ours"), "{svg}");
            for once in ["viewBox=", "xmlns=", "<style>"] {
                assert_eq!(
                    svg.matches(once).count(),
                    1,
                    "{once}: a file that no browser opens, or without colours"
                );
            }
            assert!(svg.contains("currentColor") && !svg.contains(INK_IN_SVG), "{svg}");
            let (_, data) = svg.split_once("data-figure=\"").expect("data");
            let data = data[..data.find('"').expect("its end")].replace("&quot;", "\"");
            let data: serde_json::Value = serde_json::from_str(&data).expect("JSON");
            let median = &data["series"][0]["points"][1]["median"];
            assert_eq!((median, &data["series"][1]["published"]), (&json!(300.0), &json!(true)));
        }
    }

    #[test]
    fn without_points_there_is_no_figure() {
        let empty = Figure { series: vec![Series::of("ours", Vec::new())], ..figure(Kind::Lines) };
        assert_eq!(empty.svg(), Ok(None));
    }

    #[test]
    fn a_distribution_ends_at_all_operations() {
        let pairs: Vec<(u64, u64)> = (1..=1000).map(|micros| (micros * 1000, 2)).collect();
        let series = Series::distribution("all", &pairs);
        assert!(series.dots.len() <= STEPS_MAX + 1);
        let last = series.dots.last().expect("an end");
        assert_eq!((last.x, last.y.median), (1000.0, 1.0));
    }
}
