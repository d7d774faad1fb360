//! JSON lines: a history as a file.
//!
//! Knows nothing of: the meaning of records.

use crate::history::Record;
use std::io::{self, BufRead, Write};

/// Writes records, one a line.
///
/// # Errors
/// Those of the writer.
pub fn write(out: &mut impl Write, records: &[Record]) -> io::Result<()> {
    for record in records {
        serde_json::to_writer(&mut *out, record)?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// Why a history could not be read.
#[derive(Debug)]
pub enum ReadError {
    /// The reader failed.
    Io(io::Error),
    /// A line is no record.
    Line {
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
}

impl std::fmt::Display for ReadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ReadError::Io(error) => write!(f, "{error}"),
            ReadError::Line { line, what } => write!(f, "line {line}: {what}"),
        }
    }
}

impl std::error::Error for ReadError {}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> ReadError {
        ReadError::Io(error)
    }
}

/// Reads a history. Empty lines are skipped.
///
/// # Errors
/// The first line that is no record, by its number.
pub fn read(input: impl BufRead) -> Result<Vec<Record>, ReadError> {
    let mut records = Vec::new();
    for (number, line) in input.lines().enumerate() {
        let line = line?;
        if line.trim().is_empty() {
            continue;
        }
        let record = serde_json::from_str(&line);
        records.push(record.map_err(|error| ReadError::Line { line: number + 1, what: error.to_string() })?);
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Answer, Level, Operation, Rejection, What};
    use crate::judges::testing::{
        crashed, done, get, invoke, invoke_at, put, read, refused, rejected, timed, txn, unknown,
    };

    #[test]
    fn what_is_written_is_read_back() {
        let asked = txn(vec![], vec![put("a", "\"\n\u{1f980}")], vec![Operation::Compact { revision: 3 }]);
        let answered = Answer::Txn { succeeded: true, answers: vec![Answer::Put] };
        let history = timed(&[
            invoke(1, asked),
            done(1, 2, answered),
            invoke(2, put("b", "")),
            rejected(2, Rejection::Compacted),
            invoke(3, put("b", "")),
            refused(3),
            invoke(4, put("b", "")),
            unknown(4),
            crashed(7),
            invoke(5, put("c", "")),
            done(5, 3, read(&[("a", "1", 2, 2, 1)])),
            invoke_at(6, 2, get("c"), Level::AtLeast { reader: u64::MAX }),
            invoke_at(7, 3, get("c"), Level::Bounded(250_000_000)),
        ]);
        let mut bytes = Vec::new();
        write(&mut bytes, &history).expect("memory");
        assert_eq!(bytes.iter().filter(|&&byte| byte == b'\n').count(), history.len());
        assert_eq!(read_back(&bytes).expect("what was written"), history);
    }

    fn read_back(bytes: &[u8]) -> Result<Vec<Record>, ReadError> {
        super::read(bytes)
    }

    #[test]
    fn a_client_without_a_level_writes_the_old_lines() {
        let line = |event| {
            let mut bytes = Vec::new();
            write(&mut bytes, &timed(&[event])).expect("memory");
            String::from_utf8(bytes).expect("JSON is text")
        };
        assert!(!line(invoke(1, get("a"))).contains("level"));
        let bounded = line(invoke_at(1, 1, get("a"), Level::Bounded(5)));
        assert!(bounded.trim_end().ends_with(r#","level":{"bounded":5}}"#), "{bounded}");
        let at_least = line(invoke_at(1, 1, get("a"), Level::AtLeast { reader: 7 }));
        assert!(at_least.contains(r#","level":{"at_least":{"reader":7}}}"#), "{at_least}");
        for bad in [r#"{"bounded":-1}"#, r#"{"fresh":1}"#, r#"{"at_least":7}"#] {
            assert!(
                read_back(at_least.replace(r#"{"at_least":{"reader":7}}"#, bad).as_bytes()).is_err(),
                "{bad}"
            );
        }
    }

    #[test]
    fn the_documented_lines_are_lines() {
        let page = include_str!("../../../docs/formats/histories.md");
        let lines: Vec<&str> = page.lines().filter(|line| line.starts_with("{\"at\"")).collect();
        let history = read_back(lines.join("\n").as_bytes()).expect("the example of the page");
        assert!(lines.len() > 6 && history.len() == lines.len());
        crate::judges::revision_order(&history).expect("the example is correct");
        assert!(history.iter().any(|record| matches!(record.what, What::Crashed { .. })));
    }

    #[test]
    fn a_bad_line_is_named() {
        let good = "{\"at\":1,\"client\":1,\"id\":1,\"what\":\"unknown\",\"reason\":\"\"}";
        for bad in ["{", "{\"at\":-1}", "[]", "{\"at\":1,\"client\":1,\"id\":1,\"what\":\"forgotten\"}"] {
            let text = format!("{good}\n\n{bad}\n{good}\n");
            let error = read_back(text.as_bytes()).expect_err(bad).to_string();
            assert!(error.starts_with("line 3: "), "{error}");
        }
        assert!(matches!(read_back(b"\xff\n"), Err(ReadError::Io(_))));
    }
}
