//! Serialisation: what a format for commands costs.
//!
//! Knows nothing of: how a record is encoded.

use crate::codec::{Codec, Format, Work};
use crate::experiment::{ClusterPlan, Experiment, Face, Load, Members, Point, Size, Task};
use crate::judge::{Claim, Findings, Table, at_most, bars, cell, lines, number, shown};
use crate::measured::{Measure, Measured};
use crate::published::Published;
use crate::statistics::Interval;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "serialisation",
    title: "What does a format for commands cost?",
    question: include_str!("question.md"),
    published: include_str!("published.toml"),
    is_hidden: false,
    points,
    judge,
};

const SIZES: [usize; 2] = [16, 256];
const WORKS: [Work; 2] = [Work::Encode, Work::Decode];
const FACES: [(&str, Face); 2] =
    [("etcd", Face::Etcd { connections: 4 }), ("native", Face::Native { connections: 4, pipeline: 1 })];

/// The traits in which formats differ, with a column for each format of [`TRAITS_OF`]. [the formats' own documentation]
const TRAITS: [(&str, [&str; 6]); 7] = [
    ("schema", ["in code, by version", "yes", "no", "yes", "yes", "no"]),
    ("self-describing", ["no", "no", "yes", "no", "no", "yes"]),
    ("readable by people", ["no", "no", "no", "no", "no", "yes"]),
    ("one encoding for each value", ["yes", "no", "no", "only canonical form", "no", "no"]),
    ("read where it lies", ["yes", "no", "bytes only", "yes", "yes", "no"]),
    ("fields can be added", ["with a new version", "yes", "as map entries", "yes", "yes", "yes"]),
    ("generator needed", ["no", "usual", "no", "usual", "usual", "no"]),
];
const TRAITS_OF: [&str; 6] =
    ["Kattu", "Protocol Buffers", "MessagePack", "Cap'n Proto", "FlatBuffers", "JSON"];

fn points(size: Size) -> Vec<Point> {
    let mut points = Vec::new();
    for format in Format::ALL {
        for value_bytes in SIZES {
            for work in WORKS {
                let codec = Codec { format, work, value_bytes };
                let none = ClusterPlan::of(0);
                let point = Point::of("record", none, Task::Codec(codec)).at("format", format.name());
                points.push(point.at("value", format!("{value_bytes} B")).at("work", work).takes(300));
            }
        }
    }
    for (name, face) in FACES {
        let total = if size == Size::Full { 20_000 } else { 4000 };
        let load = Load { face, ..Load::puts(total, 64).of_bytes(256) }.at(Members::Leader);
        points.push(Point::of("put", ClusterPlan::of(3), load).at("protocol", name).takes(total / 4));
    }
    points
}

fn judge(measured: &Measured, published: &Published) -> Findings {
    let mut findings = Findings::default();
    let at = |format: Format, value: &str, work: Work| {
        measured.at(&[("format", format.name()), ("value", value), ("work", &work.to_string())])
    };
    let theirs = published.table("share").value(3.0, 1).unwrap_or(0.0);
    let mut shares = Vec::new();
    for (name, _) in FACES {
        for format in Format::ALL {
            let cost = |work| at(format, "256 B", work)?.median(Measure::Nanos);
            let put = measured
                .at(&[("grid", "put"), ("protocol", name)])
                .and_then(|it| it.median(Measure::LeaderCpu));
            let Some(((encode, decode), put)) = cost(Work::Encode).zip(cost(Work::Decode)).zip(put) else {
                continue;
            };
            let of = |cost: f64, micros: f64| cost / 1e3 / micros * 100.0;
            // Both intervals at their far ends: not narrower than that of the share.
            let share = Interval {
                median: of(encode.median + decode.median, put.median),
                low: of(encode.low + decode.low, put.high),
                high: of(encode.high + decode.high, put.low),
            };
            shares.push((format, name, share, put));
        }
    }
    for (format, name, share, put) in &shares {
        if *format == Format::Kattu {
            findings.claims.push(Claim {
                says: format!("Kattu's record takes at most {theirs} % of the leader's processor time for a put ({name})"),
                source: "Zatt, section 2.2: 3 to 4 % with MessagePack in Python".into(),
                rule: format!(
                    "held if the interval of the share of one encoding and one decoding lies at {theirs} % or below, refuted if it lies above"
                ),
                because: format!("{} % of {} µs", shown(*share), shown(*put)),
                verdict: at_most(*share, theirs),
            });
        }
    }
    for other in &Format::ALL[1..] {
        for work in WORKS {
            let says = format!("Kattu's record takes no longer than {} to {work} (256 bytes)", other.name());
            let pair = (at(*other, "256 B", work), at(Format::Kattu, "256 B", work));
            findings.claims.extend(Claim::ratio_at_least(&says, "ours", pair, Measure::Nanos, 1.0));
        }
        let says = format!("Kattu's record is no larger than one of {} (256 bytes)", other.name());
        let pair = (at(*other, "256 B", Work::Encode), at(Format::Kattu, "256 B", Work::Encode));
        findings.claims.extend(Claim::ratio_at_least(&says, "ours", pair, Measure::EncodedBytes, 1.0));
    }
    for (name, _) in FACES {
        let of = shares.iter().filter(|(_, its, _, _)| *its == name);
        let parts: Vec<String> =
            of.map(|(format, _, share, _)| format!("{} {} %", format.name(), number(share.median))).collect();
        if !parts.is_empty() {
            findings.paragraphs.push(format!(
                "One encoding and one decoding of a put of 256 bytes, set against the leader's processor time for it as it is, by the \
                 {name} protocol: {}.",
                parts.join(", ")
            ));
        }
    }
    for value in SIZES.map(|size| format!("{size} B")) {
        let series = WORKS.map(|work| {
            let all = measured.all(&[("grid", "record"), ("value", &value), ("work", &work.to_string())]);
            bars(&work.to_string(), &all, "format", Measure::Nanos)
        });
        let id = format!("time-{}", value.replace(' ', ""));
        let title = format!("Time for one record, value of {value}");
        let mut figure = lines(&id, &title, "", Measure::Nanos, series.to_vec()).as_bars();
        figure.y_scale = crate::figures::Scale::Logarithmic;
        findings.figures.push(figure.with_caption("The vertical axis is logarithmic."));
    }
    let head = ["format", "value", "bytes of a record", "encode, ns", "decode, ns"];
    let mut rows = Vec::new();
    for value in SIZES.map(|size| format!("{size} B")) {
        for format in Format::ALL {
            let (encode, decode) = (at(format, &value, Work::Encode), at(format, &value, Work::Decode));
            rows.push(vec![
                format.name().to_string(),
                value.clone(),
                cell(encode, Measure::EncodedBytes),
                cell(encode, Measure::Nanos),
                cell(decode, Measure::Nanos),
            ]);
        }
    }
    findings.tables.push(Table { title: "Records".into(), head: head.map(str::to_string).to_vec(), rows });
    let mut head = vec!["trait".to_string()];
    head.extend(TRAITS_OF.map(str::to_string));
    let row = |(name, has): &(&str, [&str; 6])| {
        let mut row = vec![(*name).to_string()];
        row.extend(has.map(str::to_string));
        row
    };
    findings.tables.push(Table {
        title: "Seven traits of the published formats and ours (the traits are our choice)".into(),
        head,
        rows: TRAITS.iter().map(row).collect(),
    });
    findings
}
