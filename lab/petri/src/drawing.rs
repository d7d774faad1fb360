//! Drawing: the net with its tokens as SVG, from the same rows that the simulator moves tokens along.
//!
//! Colours are classes with variables, so that a page in the reader's light or dark theme decides them; [`STYLE`] has a default.
//! Every arc has an element of its own with `data-arc`, which the player moves tokens along, and tests count.
//! Knows nothing of: time.

use crate::layout::{self, Point, RADIUS, SIZE};
use crate::marking::Marking;
use crate::net::{Class, NET, Place, Row, Transition, Weight};

/// Rules for the classes of the drawing.
pub const STYLE: &str = include_str!("drawing.css");

/// Half the width and half the height of a transition.
const BAR: Point = (7.0, 15.0);
/// Most tokens that are drawn one by one.
const DOTS_MAX: u64 = 5;

/// Tokens in each place, by the number of the place.
pub type Snapshot = [u64; Place::ALL.len()];

/// The tokens of a marking, summed over clients and followers.
#[must_use]
pub fn snapshot(marking: &Marking) -> Snapshot {
    Place::ALL.map(|place| marking.all_tokens(place))
}

/// The net with these tokens. Identifiers of its elements begin with `prefix`; without a window what belongs to NB-Raft is faint,
/// and with one the waiting loop.
#[must_use]
pub fn svg(prefix: &str, tokens: &Snapshot, has_window: bool) -> String {
    let (width, height) = SIZE;
    let mut parts = vec![format!(
        "<svg class=\"petri {}\" id=\"{prefix}\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"Petri net of log \
         replication\" xmlns=\"http://www.w3.org/2000/svg\">",
        if has_window { "nb" } else { "raft" }
    )];
    parts.push(markers(prefix));
    parts.extend(layout::PANELS.iter().map(|(title, left, right)| {
        format!(
            "<rect class=\"panel\" x=\"{left}\" y=\"4\" width=\"{}\" height=\"{}\" rx=\"8\"/><text class=\"title\" x=\"{}\" \
             y=\"{}\">{title}</text>",
            right - left,
            height - 8.0,
            right - 10.0,
            height - 14.0
        )
    }));
    parts.extend(NET.iter().map(|row| arcs(prefix, row)));
    parts.extend(NET.iter().map(|row| transition(prefix, row)));
    parts.extend(Place::ALL.into_iter().map(|it| place(prefix, it, tokens[it as usize])));
    parts.push("<g class=\"moving\"></g></svg>".into());
    parts.join("\n")
}

/// An arrow head for each colour.
fn markers(prefix: &str) -> String {
    let one = |class: &str| {
        format!(
            "<marker id=\"{prefix}-{class}\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" \
             orient=\"auto\"><path class=\"head {class}\" d=\"M0 0.8 L8 4 L0 7.2 z\"/></marker>"
        )
    };
    let all = [Class::Raft, Class::NonBlocking, Class::Waiting].map(|it| one(class(it)));
    format!("<defs>{}</defs>", all.concat())
}

fn class(class: Class) -> &'static str {
    match class {
        Class::Raft => "base",
        Class::NonBlocking => "red",
        Class::Waiting => "blue",
    }
}

/// The colour of an arc: that of NB-Raft if one of its ends is.
fn arc_class(row: &Row, place: Place) -> &'static str {
    class(if place.class() == Class::NonBlocking { Class::NonBlocking } else { row.class })
}

fn arcs(prefix: &str, row: &Row) -> String {
    let inputs = row.inputs.iter().map(|arc| (arc.place, false, arc.weight));
    let outputs = row.outputs.iter().map(|arc| (arc.place, true, arc.weight));
    let one = |(place, is_output, weight): (Place, bool, Weight)| {
        let direction = if is_output { "out" } else { "in" };
        let optional = if weight == Weight::Any { " optional" } else { "" };
        let is_both = row.inputs.iter().any(|arc| arc.place == place)
            && row.outputs.iter().any(|arc| arc.place == place);
        let class = arc_class(row, place);
        format!(
            "<path class=\"arc {class}{optional}\" id=\"{prefix}-{direction}-{}-{}\" data-arc=\"{} {direction} {}\" d=\"{}\" \
             marker-end=\"url(#{prefix}-{class})\"/>",
            row.transition as u8,
            place as u8,
            row.name,
            place.name(),
            path(row.transition, place, is_output, is_both)
        )
    };
    let updates = row.updates.iter().map(|place| {
        format!(
            "<path class=\"arc update {}\" data-update=\"{} {}\" d=\"{}\"/>",
            arc_class(row, *place),
            row.name,
            place.name(),
            path(row.transition, *place, false, false)
        )
    });
    inputs.chain(outputs).map(one).chain(updates).collect::<Vec<_>>().join("\n")
}

/// The way of an arc from border to border. Of two arcs between the same ends, each is moved aside.
fn path(transition: Transition, place: Place, is_output: bool, is_both: bool) -> String {
    let centre = layout::alias(transition, place).unwrap_or(layout::place(place).0);
    let radius = if layout::alias(transition, place).is_some() { 9.0 } else { RADIUS };
    let bar = layout::transition(transition).0;
    let way = layout::way(transition, place, is_output);
    let mut points = vec![bar];
    points.extend_from_slice(way);
    points.push(centre);
    if is_both && way.is_empty() {
        let aside = if is_output { 4.5 } else { -4.5 };
        let (dx, dy) = unit(bar, centre);
        points.iter_mut().for_each(|point| *point = (point.0 - dy * aside, point.1 + dx * aside));
    }
    let (first, last) = (points[1], points[points.len() - 2]);
    points[0] = leave_bar(points[0], first);
    let end = points.len() - 1;
    points[end] = leave_circle(points[end], last, radius);
    if !is_output {
        points.reverse();
    }
    let steps: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
    format!("M{}", steps.join(" L"))
}

fn unit(from: Point, to: Point) -> Point {
    let (dx, dy) = (to.0 - from.0, to.1 - from.1);
    let length = dx.hypot(dy).max(1e-9);
    (dx / length, dy / length)
}

/// Where a line from the middle of a transition leaves it.
fn leave_bar(from: Point, to: Point) -> Point {
    let (dx, dy) = unit(from, to);
    let scale = ((BAR.0 + 1.0) / dx.abs().max(1e-9)).min((BAR.1 + 1.0) / dy.abs().max(1e-9));
    (from.0 + dx * scale, from.1 + dy * scale)
}

fn leave_circle(from: Point, to: Point, radius: f64) -> Point {
    let (dx, dy) = unit(from, to);
    (from.0 + dx * (radius + 1.5), from.1 + dy * (radius + 1.5))
}

fn transition(prefix: &str, row: &Row) -> String {
    let ((x, y), name, guard) = layout::transition(row.transition);
    let class = class(row.class);
    let timed = if row.time.is_empty() { "immediate" } else { "timed" };
    let mut text = format!(
        "<g class=\"transition {class} {timed}\" id=\"{prefix}-t-{}\"><title>{}{}{}</title><rect x=\"{}\" y=\"{}\" width=\"{}\" \
         height=\"{}\" rx=\"2\"/><text class=\"name\" x=\"{}\" y=\"{}\">{}</text>",
        row.transition as u8,
        row.name,
        if row.time.is_empty() { String::new() } else { format!(", {}", row.time) },
        if row.guard.is_empty() { String::new() } else { format!("; if {}", escaped(row.guard)) },
        x - BAR.0,
        y - BAR.1,
        2.0 * BAR.0,
        2.0 * BAR.1,
        x + name.0,
        y + name.1,
        row.name
    );
    if guard != (0.0, 0.0) {
        text += &format!(
            "<text class=\"guard\" x=\"{}\" y=\"{}\">{}</text>",
            x + guard.0,
            y + guard.1,
            escaped(row.guard)
        );
    }
    text += "</g>";
    for place in Place::ALL {
        if let Some((x, y)) = layout::alias(row.transition, place) {
            text += &format!(
                "<g class=\"alias {}\"><circle cx=\"{x}\" cy=\"{y}\" r=\"9\"/><text class=\"name\" x=\"{x}\" y=\"{}\">{}</text></g>",
                self::class(place.class()),
                y - 14.0,
                place.name()
            );
        }
    }
    text
}

fn place(prefix: &str, place: Place, tokens: u64) -> String {
    let ((x, y), name) = layout::place(place);
    format!(
        "<g class=\"place {}\" id=\"{prefix}-p-{}\" data-x=\"{x}\" data-y=\"{y}\"><circle class=\"ring\" cx=\"{x}\" cy=\"{y}\" \
         r=\"{RADIUS}\"/><text class=\"name\" x=\"{}\" y=\"{}\">{}</text><g class=\"tokens\">{}</g></g>",
        class(place.class()),
        place as u8,
        x + name.0,
        y + name.1,
        place.name(),
        dots((x, y), tokens)
    )
}

/// Tokens as dots, or their number.
fn dots((x, y): Point, tokens: u64) -> String {
    if DOTS_MAX < tokens {
        return format!("<text class=\"count\" x=\"{x}\" y=\"{}\">{tokens}</text>", y + 5.0);
    }
    let dot = |number: u64| {
        let angle = std::f64::consts::TAU * number as f64 / tokens as f64;
        let away = if tokens == 1 { 0.0 } else { 8.5 };
        format!(
            "<circle class=\"token\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\"/>",
            x + away * angle.sin(),
            y - away * angle.cos()
        )
    };
    (0..tokens).map(dot).collect()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_arc_of_the_net_is_drawn_once_and_nothing_else_is() {
        let drawn = svg("net", &[1; Place::ALL.len()], true);
        let mut found: Vec<&str> =
            drawn.split("data-arc=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        let mut expected = Vec::new();
        for row in &NET {
            let inputs = row.inputs.iter().map(|arc| (arc.place, "in"));
            let outputs = row.outputs.iter().map(|arc| (arc.place, "out"));
            let name = |(place, side): (Place, &str)| format!("{} {side} {}", row.name, place.name());
            expected.extend(inputs.chain(outputs).map(name));
        }
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected);
        let updates: usize = NET.iter().map(|row| row.updates.len()).sum();
        assert_eq!(drawn.matches("data-update=").count(), updates);
    }

    #[test]
    fn nothing_lies_on_another_thing_or_outside_the_paper() {
        let places = Place::ALL.map(|place| layout::place(place).0);
        let transitions = Transition::ALL.map(|transition| layout::transition(transition).0);
        let all: Vec<Point> = places.into_iter().chain(transitions).collect();
        for (number, (x, y)) in all.iter().enumerate() {
            assert!((20.0..SIZE.0 - 20.0).contains(x) && (20.0..SIZE.1 - 20.0).contains(y), "{x} {y}");
            for (other_x, other_y) in &all[number + 1..] {
                assert!(44.0 <= (x - other_x).hypot(y - other_y), "({x}, {y}) and ({other_x}, {other_y})");
            }
        }
    }
}
