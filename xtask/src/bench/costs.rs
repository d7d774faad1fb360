//! `docs/figures/costs.csv`: the counted costs of one put, one line for each measurement that was recorded.
//!
//! In:    the text of the file; one measurement.
//! Out:   its lines; the text with one more; the error in it, with its line number.
//! Rules: the first line names columns and units. Lines are appended, and not changed later. A cell holds no comma and
//!        no quotes. The cell of a figure that was not measured is empty.
//! Knows nothing of: clusters, valgrind, strace; how a trend is shown.

use super::counts::PerPut;
use super::report::Header;
use super::trend;
use crate::shell::{self, Failure};
use crate::stage::Tally;
use std::path::Path;

/// The file, below the root of the workspace.
pub const PATH: &str = "docs/figures/costs.csv";

/// Columns before those of the figures.
const FIRST: [&str; 3] = ["date (UTC)", "commit", "machine"];

/// `0` stands for any digit.
const DATE_FORM: &str = "0000-00-00T00:00:00Z";

/// Costs of one member per put.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Member {
    pub instructions: f64,
    pub counted: PerPut,
}

/// One thing that is counted.
struct Kind {
    name: &'static str,
    unit: &'static str,
    /// Digits after the decimal point: enough to tell one per cent, even of what a follower does.
    digits: usize,
    of: fn(&Member) -> Option<f64>,
}

const KINDS: [Kind; 9] = [
    Kind { name: "instructions", unit: "1/put", digits: 0, of: |m| Some(m.instructions) },
    Kind { name: "allocations", unit: "1/put", digits: 3, of: |m| Some(m.counted.allocations) },
    Kind { name: "allocated", unit: "bytes/put", digits: 1, of: |m| Some(m.counted.allocated_bytes) },
    Kind { name: "context switches", unit: "1/put", digits: 4, of: |m| Some(m.counted.switches) },
    Kind { name: "system calls", unit: "1/put", digits: 4, of: |m| m.counted.syscalls },
    Kind { name: "log syncs", unit: "1/put", digits: 5, of: |m| Some(m.counted.syncs) },
    Kind { name: "to the log", unit: "bytes/put", digits: 1, of: |m| Some(m.counted.log_bytes) },
    Kind { name: "to peers", unit: "bytes/put", digits: 3, of: |m| Some(m.counted.peer_bytes) },
    Kind { name: "records encoded", unit: "1/put", digits: 3, of: |m| Some(m.counted.records_encoded) },
];

const ROLES: [&str; 2] = ["leader", "follower"];

/// The column of one figure: one kind, on the leader or on a follower.
pub(super) struct Column {
    kind: &'static Kind,
    role: &'static str,
}

impl Column {
    pub fn name(&self) -> String {
        format!("{} {}", self.kind.name, self.role)
    }

    /// The name with the unit.
    pub fn head(&self) -> String {
        format!("{} ({})", self.name(), self.kind.unit)
    }

    /// The cell of a value; empty if there is none.
    pub fn cell(&self, value: Option<f64>) -> String {
        value.map(|value| format!("{value:.digits$}", digits = self.kind.digits)).unwrap_or_default()
    }
}

/// The columns of figures, in the order of the file.
pub(super) fn columns() -> Vec<Column> {
    KINDS.iter().flat_map(|kind| ROLES.map(|role| Column { kind, role })).collect()
}

/// One line of the file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Line {
    pub date: String,
    pub commit: String,
    pub machine: String,
    /// In the order of [`columns`].
    pub figures: Vec<Option<f64>>,
}

impl Line {
    pub fn new(header: &Header, leader: &Member, follower: &Member) -> Line {
        Line {
            date: header.date().to_string(),
            commit: header.commit().to_string(),
            machine: header.machine().replace([',', '"'], " ").trim().to_string(),
            figures: figures(leader, follower),
        }
    }

    /// The line as text, without its end.
    pub fn text(&self) -> String {
        let first = [&self.date, &self.commit, &self.machine].map(String::clone);
        let figures = columns().into_iter().zip(&self.figures).map(|(column, value)| column.cell(*value));
        first.into_iter().chain(figures).collect::<Vec<_>>().join(",")
    }
}

fn figures(leader: &Member, follower: &Member) -> Vec<Option<f64>> {
    KINDS.iter().flat_map(|kind| [(kind.of)(leader), (kind.of)(follower)]).collect()
}

/// The first line of the file, without its end.
fn head() -> String {
    FIRST
        .map(String::from)
        .into_iter()
        .chain(columns().iter().map(Column::head))
        .collect::<Vec<_>>()
        .join(",")
}

/// The text of the file.
pub(super) fn text() -> Result<String, Failure> {
    std::fs::read_to_string(shell::root().join(PATH))
        .map_err(|error| Failure::new(format!("{PATH}: {error}")).then(format!("git checkout {PATH}")))
}

/// The lines after the first one.
pub(super) fn parse(text: &str) -> Result<Vec<Line>, Failure> {
    let wrong = |number: usize, what: String| Failure::new(format!("{PATH}:{number}: {what}"));
    let mut lines: Vec<Line> = Vec::new();
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    if first != head() {
        return Err(wrong(1, format!("the columns are `{first}`, expected `{}`", head())));
    }
    for (number, line) in (2..).zip(rest.split_inclusive('\n')) {
        let Some(line) = line.strip_suffix('\n') else {
            return Err(wrong(number, "the last line has no end".into()));
        };
        let line = parse_line(line).map_err(|what| wrong(number, what))?;
        if let Some(before) = lines.last().filter(|before| line.date < before.date) {
            return Err(wrong(number, format!("{} is before {}, the line above it", line.date, before.date)));
        }
        lines.push(line);
    }
    Ok(lines)
}

fn parse_line(text: &str) -> Result<Line, String> {
    let columns = columns();
    let cells: Vec<&str> = text.split(',').collect();
    let count = FIRST.len() + columns.len();
    let [date, commit, machine, figures @ ..] = &cells[..] else {
        return Err(format!("{} cells, expected {count}", cells.len()));
    };
    if cells.len() != count {
        return Err(format!("{} cells, expected {count}", cells.len()));
    }
    if !is_date(date) {
        return Err(format!("the date is `{date}`, expected the form {DATE_FORM}"));
    }
    let is_digit = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    if !(7..=40).contains(&commit.len()) || !commit.chars().all(is_digit) {
        return Err(format!("the commit is `{commit}`, expected 7 to 40 digits of its id"));
    }
    if machine.is_empty() || machine.contains('"') {
        return Err(format!("the machine is `{machine}`, expected a name without quotes"));
    }
    let figure = |(column, cell): (&Column, &&str)| match (*cell, cell.parse::<f64>()) {
        ("", _) => Ok(None),
        (_, Ok(value)) if value.is_finite() && 0.0 <= value => Ok(Some(value)),
        _ => Err(format!("{} is `{cell}`, expected a number of at least 0, or nothing", column.name())),
    };
    Ok(Line {
        date: date.to_string(),
        commit: commit.to_string(),
        machine: machine.to_string(),
        figures: columns.iter().zip(figures).map(figure).collect::<Result<_, _>>()?,
    })
}

fn is_date(text: &str) -> bool {
    let fits = |(c, form): (char, char)| if form == '0' { c.is_ascii_digit() } else { c == form };
    text.len() == DATE_FORM.len() && text.chars().zip(DATE_FORM.chars()).all(fits)
}

/// The text with one more line; an error if that is not well-formed, as when a count could not be read.
pub(super) fn with_line(text: &str, line: &Line) -> Result<String, Failure> {
    let text = format!("{text}{}\n", line.text());
    parse(&text)?;
    Ok(text)
}

/// Writes the text of the file.
pub(super) fn write(text: &str) -> Result<(), Failure> {
    Ok(std::fs::write(shell::root().join(PATH), text)?)
}

/// The stage `costs` of `cargo xtask check`: the file's form; its note is the trend. A figure that has risen fails
/// nothing: the decision is the reader's.
pub fn stage(_log: &Path) -> Result<Tally, Failure> {
    Ok(Tally { note: trend::note(&parse(&text()?)?), ..Tally::one() })
}

/// Lines for tests: the same value in each column.
#[cfg(test)]
pub(super) fn sample(day: u32, value: Option<f64>) -> Line {
    Line {
        date: format!("2026-11-{day:02}T01:02:03Z"),
        commit: format!("{day:012x}"),
        machine: "2 cores of a test".into(),
        figures: vec![value; columns().len()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(lines: &[Line]) -> String {
        lines.iter().fold(format!("{}\n", head()), |text, line| text + &line.text() + "\n")
    }

    fn error(text: &str) -> String {
        parse(text).expect_err("the form is wrong").what
    }

    #[test]
    fn the_file_of_this_tree_is_well_formed() {
        parse(&text().expect("the file is there")).expect("well-formed");
    }

    #[test]
    fn lines_are_read_as_they_were_written() {
        let mut lines = vec![sample(1, Some(2.0)), sample(2, Some(0.0)), sample(2, None)];
        lines[0].figures[3] = None;
        assert_eq!(parse(&file(&lines)).expect("well-formed"), lines);
        assert_eq!(parse(&file(&[])).expect("well-formed"), []);
    }

    #[test]
    fn each_figure_stands_below_its_name() {
        let counted = |more: f64| PerPut {
            cpu_us: -1.0,
            switches: 0.4 + more,
            syscalls: Some(0.5 + more),
            syncs: 0.6 + more,
            log_bytes: 7.0 + more,
            peer_bytes: 8.0 + more,
            allocations: 2.0 + more,
            allocated_bytes: 3.0 + more,
            records_encoded: 0.9 + more,
        };
        let member = |more: f64| Member { instructions: 1000.0 + more, counted: counted(more) };
        let line = Line { figures: figures(&member(0.0), &member(10.0)), ..sample(1, None) };
        let text = line.text();
        let cells: Vec<(String, String)> = columns()
            .iter()
            .map(Column::head)
            .zip(text.split(',').skip(FIRST.len()).map(String::from))
            .collect();
        let shown: Vec<String> = cells.iter().map(|(head, cell)| format!("{head}: {cell}")).collect();
        let expected = [
            "instructions leader (1/put): 1000",
            "instructions follower (1/put): 1010",
            "allocations leader (1/put): 2.000",
            "allocations follower (1/put): 12.000",
            "allocated leader (bytes/put): 3.0",
            "allocated follower (bytes/put): 13.0",
            "context switches leader (1/put): 0.4000",
            "context switches follower (1/put): 10.4000",
            "system calls leader (1/put): 0.5000",
            "system calls follower (1/put): 10.5000",
            "log syncs leader (1/put): 0.60000",
            "log syncs follower (1/put): 10.60000",
            "to the log leader (bytes/put): 7.0",
            "to the log follower (bytes/put): 17.0",
            "to peers leader (bytes/put): 8.000",
            "to peers follower (bytes/put): 18.000",
            "records encoded leader (1/put): 0.900",
            "records encoded follower (1/put): 10.900",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn an_error_in_the_form_is_named_with_its_line() {
        let good = file(&[sample(1, Some(1.0)), sample(2, Some(1.0))]);
        let with = |from: &str, to: &str| good.replacen(from, to, 1);
        let cases = [
            (String::new(), ":1: the columns are ``"),
            (with("commit", "revision"), ":1: the columns are"),
            (with("(bytes/put)", "(kB/put)"), ":1: the columns are"),
            (format!("{good}\n"), ":4: 1 cells, expected 21"),
            (good.trim_end().to_string(), ":3: the last line has no end"),
            (good.replace('\n', "\r\n"), ":1: the columns are"),
            (with("2026-11-02T", "2026-11-02 "), ":3: the date is"),
            (with("2026-11-02T", "2026-10-02T"), ":3: 2026-10-02T01:02:03Z is before 2026-11-01T01:02:03Z"),
            (with(",000000000002,", ",none,"), ":3: the commit is `none`"),
            (with(",000000000001,", ",ABCDEF000001,"), ":2: the commit is `ABCDEF000001`"),
            (with("2 cores of a test", ""), ":2: the machine is ``"),
            (with("2 cores of a test", "\"2 cores\""), ":2: the machine is"),
            (with("2 cores of a test", "2 cores, of a test"), ":2: 22 cells, expected 21"),
            (with("test,1,", "test,NaN,"), ":2: instructions leader is `NaN`"),
            (with("test,1,", "test,-1,"), ":2: instructions leader is `-1`"),
            (with("test,1,1,", "test,1,inf,"), ":2: instructions follower is `inf`"),
            (with("test,1,", "test,"), ":2: 20 cells, expected 21"),
        ];
        for (text, expected) in cases {
            let what = error(&text);
            assert!(what.starts_with(&format!("{PATH}{expected}")), "{what}\n is not\n{expected}");
        }
    }

    #[test]
    fn a_line_is_appended_only_if_the_file_stays_well_formed() {
        let text = file(&[sample(2, Some(1.0))]);
        let more = with_line(&text, &sample(3, Some(4.0))).expect("well-formed");
        assert!(more.starts_with(&text));
        assert_eq!(parse(&more).expect("well-formed"), [sample(2, Some(1.0)), sample(3, Some(4.0))]);
        // strace printed no sum.
        assert!(with_line(&text, &sample(3, Some(f64::NAN))).is_err());
        assert!(with_line(&text, &sample(1, Some(4.0))).is_err(), "the clock went back");
    }
}
