//! Drawings: bars on a line of time, and messages between lanes, as SVG.
//!
//! Drawn in `currentColor` where a colour means nothing, as figures are.
//! Knows nothing of: what the bars and messages mean.

use crate::figures::{COLOURS, STYLE, escaped};

/// A picture that is no chart.
#[derive(Clone, Debug)]
pub struct Drawing {
    /// Its name in files.
    pub id: String,
    /// Its title.
    pub title: String,
    /// What a reader should know to read it.
    pub caption: String,
    /// The picture.
    pub svg: String,
}

/// Rows of bars, one group below the other, on one line of time.
#[derive(Clone, Debug, Default)]
pub struct Bars {
    /// The kinds of bars and marks, in the order of the legend.
    pub kinds: Vec<String>,
    /// Groups of rows.
    pub groups: Vec<Group>,
}

/// Some rows with a title.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// Its title.
    pub title: String,
    /// Rows, each with its name.
    pub rows: Vec<(String, Row)>,
}

/// One row.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// Bars: a kind, from and to, in milliseconds.
    pub bars: Vec<(usize, f64, f64)>,
    /// Marks: a letter, and when.
    pub marks: Vec<(char, f64)>,
}

const WIDTH: f64 = 860.0;
const LEFT: f64 = 96.0;
const RIGHT: f64 = 16.0;
const ROW: f64 = 22.0;
const BAR: f64 = 13.0;
const TITLE: f64 = 30.0;
const LEGEND: f64 = 34.0;
const AXIS: f64 = 34.0;
/// Milliseconds between two ticks.
const TICK: f64 = 2.0;

fn open(width: f64, height: f64, title: &str) -> String {
    format!(
        "<svg role=\"img\" aria-label=\"{}\" viewBox=\"0 0 {width:.0} {height:.0}\" xmlns=\"http://www.w3.org/2000/svg\" \
         font-family=\"sans-serif\" font-size=\"13\">{STYLE}\n",
        escaped(title)
    )
}

fn colour(kind: usize) -> String {
    let colour = COLOURS[kind % COLOURS.len()];
    format!("#{:02x}{:02x}{:02x}", colour.0, colour.1, colour.2)
}

fn text(x: f64, y: f64, more: &str, text: &str) -> String {
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" fill=\"currentColor\" {more}>{}</text>\n", escaped(text))
}

fn line(from: (f64, f64), to: (f64, f64), more: &str) -> String {
    format!(
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"currentColor\" {more}/>\n",
        from.0, from.1, to.0, to.1
    )
}

impl Bars {
    /// The picture.
    #[must_use]
    pub fn svg(&self, title: &str) -> String {
        let rows = || self.groups.iter().flat_map(|group| group.rows.iter().map(|(_, row)| row));
        let ends = rows().flat_map(|row| row.bars.iter().map(|bar| bar.2));
        let last = (ends.fold(TICK, f64::max) / TICK).ceil() * TICK;
        let x = |millis: f64| LEFT + millis / last * (WIDTH - LEFT - RIGHT);
        let height: f64 = LEGEND
            + self.groups.iter().map(|group| TITLE + ROW * group.rows.len() as f64).sum::<f64>()
            + AXIS;
        let mut svg = open(WIDTH, height, title);
        let mut at = 8.0;
        for (kind, name) in self.kinds.iter().enumerate() {
            svg += &format!(
                "<rect x=\"{at:.1}\" y=\"8\" width=\"14\" height=\"{BAR}\" fill=\"{}\"/>\n",
                colour(kind)
            );
            svg += &text(at + 19.0, 19.0, "", name);
            at += 40.0 + 6.6 * name.chars().count() as f64;
        }
        let bottom = height - AXIS + 4.0;
        let ticks = (last / TICK).round() as u32;
        for tick in 0..=ticks {
            let millis = f64::from(tick) * TICK;
            svg += &line((x(millis), LEGEND), (x(millis), bottom), "stroke-opacity=\"0.15\"");
            svg += &text(x(millis), bottom + 15.0, "text-anchor=\"middle\"", &format!("{millis}"));
        }
        svg += &text(x(last / 2.0), bottom + 29.0, "text-anchor=\"middle\"", "time, ms");
        let mut y = LEGEND;
        for group in &self.groups {
            svg += &text(8.0, y + TITLE - 9.0, "font-weight=\"600\"", &group.title);
            y += TITLE;
            for (name, row) in &group.rows {
                svg += &text(8.0, y + BAR, "", name);
                for (kind, from, to) in row.bars.iter().filter(|(_, from, to)| from < to) {
                    svg += &format!(
                        "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{BAR}\" fill=\"{}\"/>\n",
                        x(*from),
                        y + 2.0,
                        x(*to) - x(*from),
                        colour(*kind)
                    );
                }
                for (letter, millis) in &row.marks {
                    let more = "text-anchor=\"middle\" font-weight=\"600\"";
                    svg += &text(x(*millis), y + BAR + 1.0, more, &letter.to_string());
                }
                y += ROW;
            }
        }
        svg + "</svg>"
    }
}

/// Messages between lanes, time from top to bottom.
#[derive(Clone, Debug, Default)]
pub struct Lanes {
    /// The lanes, from left to right.
    pub lanes: Vec<String>,
    /// Messages, a kind each.
    pub messages: Vec<Arrow>,
    /// Stays in a lane: a kind, the lane, from and to.
    pub stays: Vec<(usize, usize, f64, f64)>,
    /// Words beside a lane, and when.
    pub notes: Vec<(usize, f64, String)>,
}

/// A message between two lanes.
#[derive(Clone, Debug)]
pub struct Arrow {
    /// Its kind, which decides the colour.
    pub kind: usize,
    /// The lane and the time, in milliseconds, at which it leaves.
    pub from: (usize, f64),
    /// Those at which it arrives.
    pub to: (usize, f64),
}

const LANE: f64 = 200.0;
const MILLI: f64 = 24.0;
const HEAD: f64 = 36.0;

impl Lanes {
    /// The picture; its line of time ends at this millisecond at least.
    #[must_use]
    pub fn svg(&self, title: &str, end: f64) -> String {
        let ends = self.messages.iter().map(|message| message.to.1);
        let last = ends.fold(end, f64::max).ceil();
        let (x, y) = (|lane: usize| 90.0 + LANE * lane as f64, |millis: f64| HEAD + millis * MILLI);
        let (width, height) = (90.0 + LANE * self.lanes.len() as f64, y(last) + 12.0);
        let mut svg = open(width, height, title);
        for millis in (0..=last as u32).step_by(2).map(f64::from) {
            svg += &line((46.0, y(millis)), (width - 8.0, y(millis)), "stroke-opacity=\"0.12\"");
            svg += &text(8.0, y(millis) + 4.0, "", &format!("{millis} ms"));
        }
        for (lane, name) in self.lanes.iter().enumerate() {
            svg += &text(x(lane), 16.0, "text-anchor=\"middle\" font-weight=\"600\"", name);
            svg += &line((x(lane), HEAD - 10.0), (x(lane), height - 6.0), "stroke-opacity=\"0.6\"");
        }
        for (kind, lane, from, to) in &self.stays {
            svg += &format!(
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"8\" height=\"{:.1}\" fill=\"{}\"/>\n",
                x(*lane) - 4.0,
                y(*from),
                y(*to) - y(*from),
                colour(*kind)
            );
        }
        for message in &self.messages {
            let (from, to) = ((x(message.from.0), y(message.from.1)), (x(message.to.0), y(message.to.1)));
            let (dx, dy) = (to.0 - from.0, to.1 - from.1);
            let long = dx.hypot(dy);
            let (ux, uy) = (dx / long, dy / long);
            let side = |sign: f64| (to.0 - 9.0 * ux + sign * 4.0 * uy, to.1 - 9.0 * uy - sign * 4.0 * ux);
            let (left, right) = (side(1.0), side(-1.0));
            let paint = colour(message.kind);
            svg += &format!(
                "<path d=\"M{:.1} {:.1} L{:.1} {:.1}\" stroke=\"{paint}\" stroke-width=\"2\" fill=\"none\"/>\
                 <path d=\"M{:.1} {:.1} L{:.1} {:.1} L{:.1} {:.1} z\" fill=\"{paint}\"/>\n",
                from.0, from.1, to.0, to.1, to.0, to.1, left.0, left.1, right.0, right.1
            );
        }
        for (lane, millis, words) in &self.notes {
            svg += &text(x(*lane) + 9.0, y(*millis) - 5.0, "font-size=\"12\"", words);
        }
        svg + "</svg>"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_they_last_and_names_are_escaped() {
        let row = Row { bars: vec![(0, 0.0, 5.0), (1, 5.0, 5.0)], marks: vec![('w', 5.0)] };
        let group = Group { title: "a < b".into(), rows: vec![("E1".into(), row)] };
        let bars = Bars { kinds: vec!["one".into(), "two".into()], groups: vec![group] };
        let svg = bars.svg("title");
        // Five of six milliseconds; two of the legend; a bar of no length is not drawn.
        assert_eq!(svg.matches("<rect").count(), 3, "{svg}");
        let wide = 5.0 / 6.0 * (WIDTH - LEFT - RIGHT);
        assert!(svg.contains(&format!("width=\"{wide:.1}\"")) && svg.contains("a &lt; b"), "{svg}");
        assert!(svg.contains(">w</text>") && svg.starts_with("<svg ") && svg.ends_with("</svg>"), "{svg}");
    }

    #[test]
    fn a_message_goes_from_lane_to_lane() {
        let arrow = Arrow { kind: 0, from: (0, 1.0), to: (1, 2.0) };
        let lanes = Lanes {
            lanes: vec!["client".into(), "leader".into()],
            messages: vec![arrow],
            stays: vec![(1, 1, 2.0, 3.0)],
            notes: vec![(1, 2.0, "has it".into())],
        };
        let svg = lanes.svg("title", 4.0);
        assert!(
            svg.contains(&format!("M90.0 {:.1} L290.0 {:.1}", HEAD + MILLI, HEAD + 2.0 * MILLI)),
            "{svg}"
        );
        assert!(svg.contains("has it") && svg.contains("4 ms"), "{svg}");
    }
}
