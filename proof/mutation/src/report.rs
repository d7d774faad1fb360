//! Report: tables, the list of survivors, and the results as data.
//!
//! In:    every mutant that was tried, with its outcome.
//! Out:   text for people; a JSON document with every mutant; one line of docs/figures/mutation.csv.
//! Rule:  a run passes if at least [`PASSED_MIN`] of its mutants were killed or are explained.
//! Knows nothing of: how mutants are made or killed.

use crate::killers::{Ended, Outcome};
use crate::operators::Mutant;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The least share of mutants that must be killed or explained, in percent.
pub const PASSED_MIN: usize = 85;

/// The columns of docs/figures/mutation.csv.
pub const COLUMNS: &str =
    "date (UTC),commit,machine,crate,seed,mutants,killed,explained,unexplained,time (s),killed by";

/// One mutant after its trial.
#[derive(Clone, Debug)]
pub struct Tried {
    /// The mutant.
    pub mutant: Mutant,
    /// Its lines, before and after.
    pub difference: (String, String),
    /// What became of it.
    pub outcome: Outcome,
    /// The reason why no test kills it, if that is known.
    pub reason: Option<String>,
}

/// The circumstances of a run.
#[derive(Clone, Debug)]
pub struct Run {
    /// The crate, as it is named on the command line.
    pub target: &'static str,
    /// The seed of the sample.
    pub seed: u64,
    /// When it began.
    pub date: String,
    /// The commit, with `+` if the tree differs from it.
    pub commit: String,
    /// Processor, cores and memory.
    pub machine: String,
    /// Its length.
    pub seconds: u64,
    /// All mutants of the crate.
    pub possible: usize,
    /// Mutants that did not compile and were replaced.
    pub refused: usize,
}

/// Counts of a group of mutants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Tried.
    pub all: usize,
    /// Killed by a program.
    pub killed: usize,
    /// Survived, for a known reason.
    pub explained: usize,
    /// Survived.
    pub unexplained: usize,
}

impl Tried {
    fn is_killed(&self) -> bool {
        matches!(self.outcome, Outcome::Killed(..))
    }

    fn survivor(&self) -> Option<usize> {
        match self.outcome {
            Outcome::Survived(programs) => Some(programs),
            Outcome::Killed(..) => None,
        }
    }
}

impl Counts {
    /// Counts these.
    pub fn of<'a>(tried: impl IntoIterator<Item = &'a Tried>) -> Counts {
        let mut counts = Counts::default();
        for tried in tried {
            counts.all += 1;
            match (tried.is_killed(), &tried.reason) {
                (true, _) => counts.killed += 1,
                (false, Some(_)) => counts.explained += 1,
                (false, None) => counts.unexplained += 1,
            }
        }
        counts
    }

    /// Enough of them were killed or are explained.
    #[must_use]
    pub fn pass(&self) -> bool {
        PASSED_MIN * self.all <= 100 * (self.killed + self.explained)
    }

    fn cells(self) -> [String; 4] {
        [self.all, self.killed, self.explained, self.unexplained].map(|count| count.to_string())
    }
}

/// The tables, the survivors and the verdict, for people.
#[must_use]
pub fn text(run: &Run, tried: &[Tried]) -> String {
    let mut out = String::new();
    let head = ["mutants", "killed", "explained", "unexplained"];
    let group = |title: &str, key: &dyn Fn(&Tried) -> String| {
        let mut groups: BTreeMap<String, Vec<&Tried>> = BTreeMap::new();
        for tried in tried {
            groups.entry(key(tried)).or_default().push(tried);
        }
        let mut rows = vec![[&[title], &head[..]].concat().iter().map(ToString::to_string).collect()];
        rows.extend(
            groups.into_iter().map(|(name, group)| [vec![name], Counts::of(group).cells().to_vec()].concat()),
        );
        rows
    };
    let _ = writeln!(out, "{}", table(&group("file", &|tried| tried.mutant.file.clone())));
    let _ = writeln!(out, "{}", table(&group("kind", &|tried| tried.mutant.kind.name().to_string())));
    let mut rows = vec![vec!["killed by".to_string(), "mutants".to_string()]];
    rows.extend(killers(tried).into_iter().map(|(name, count)| vec![name, count.to_string()]));
    let _ = writeln!(out, "{}", table(&rows));
    for tried in tried {
        let Some(programs) = tried.survivor() else { continue };
        let Mutant { file, line, function, kind, .. } = &tried.mutant;
        let (before, after) = &tried.difference;
        let reach = if programs == 0 { " (no program reaches it)" } else { "" };
        let _ = writeln!(
            out,
            "survived: {file}:{line}: {function}: {}{reach}\n  - {before}\n  + {after}",
            kind.name()
        );
        if let Some(reason) = &tried.reason {
            let _ = writeln!(out, "  explained: {reason}");
        }
    }
    let counts = Counts::of(tried);
    let _ = write!(
        out,
        "{}: killed {}, explained {}, unexplained {} of {} mutants ({} possible, {} did not compile), seed {}, {} s; at \
         least {PASSED_MIN} % must be killed or explained: {:.1} %",
        run.target,
        counts.killed,
        counts.explained,
        counts.unexplained,
        counts.all,
        run.possible,
        run.refused,
        run.seed,
        run.seconds,
        100.0 * (counts.killed + counts.explained) as f64 / counts.all.max(1) as f64
    );
    out
}

/// Names of programs, and how many mutants each has killed; those that it did not end in time for are counted apart.
fn killers(tried: &[Tried]) -> BTreeMap<String, usize> {
    let mut killers = BTreeMap::new();
    for tried in tried {
        if let Outcome::Killed(program, ended) = &tried.outcome {
            let late = if *ended == Ended::Late { " (by time)" } else { "" };
            *killers.entry(format!("{program}{late}")).or_default() += 1;
        }
    }
    killers
}

/// Rows as columns: the first one to the left, the others to the right.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|at| {
            rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    let mut out = String::new();
    for row in rows {
        for (at, cell) in row.iter().enumerate() {
            let width = widths[at];
            let _ = if at == 0 { write!(out, "{cell:<width$}") } else { write!(out, "  {cell:>width$}") };
        }
        out.push('\n');
    }
    out
}

/// The whole run as data.
#[must_use]
pub fn document(run: &Run, tried: &[Tried]) -> Value {
    let mutants: Vec<Value> = tried
        .iter()
        .map(|tried| {
            let (killer, how) = match &tried.outcome {
                Outcome::Killed(program, Ended::Failed(how)) => (Some(program), how.clone()),
                Outcome::Killed(program, _) => (Some(program), "late".to_string()),
                Outcome::Survived(programs) => (None, format!("survived {programs} programs")),
            };
            json!({
                "file": tried.mutant.file,
                "function": tried.mutant.function,
                "line": tried.mutant.line,
                "kind": tried.mutant.kind.name(),
                "text": tried.difference.0,
                "instead": tried.difference.1,
                "killer": killer,
                "how": how,
                "reason": tried.reason,
            })
        })
        .collect();
    json!({
        "date": run.date,
        "commit": run.commit,
        "machine": run.machine,
        "crate": run.target,
        "seed": run.seed,
        "seconds": run.seconds,
        "possible": run.possible,
        "refused": run.refused,
        "mutants": mutants,
    })
}

/// The survivors that such a document names, as file, function, text and what stood instead.
#[must_use]
pub fn survivors(document: &Value) -> Vec<[String; 4]> {
    let mutants = document["mutants"].as_array().map_or(&[][..], Vec::as_slice);
    let alive = mutants.iter().filter(|mutant| mutant["killer"].is_null());
    let of = |mutant: &Value, key: &str| mutant[key].as_str().unwrap_or_default().to_string();
    alive.map(|mutant| ["file", "function", "text", "instead"].map(|key| of(mutant, key))).collect()
}

/// The run as a line of docs/figures/mutation.csv.
#[must_use]
pub fn line(run: &Run, tried: &[Tried]) -> String {
    let counts = Counts::of(tried);
    let killers: Vec<String> =
        killers(tried).into_iter().map(|(name, count)| format!("{name}={count}")).collect();
    let cells = [
        run.date.clone(),
        run.commit.clone(),
        run.machine.replace(',', ""),
        run.target.to_string(),
        run.seed.to_string(),
        counts.all.to_string(),
        counts.killed.to_string(),
        counts.explained.to_string(),
        counts.unexplained.to_string(),
        run.seconds.to_string(),
        killers.join("; "),
    ];
    cells.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operators::{self, Kind};

    const TEXT: &str = "fn f() -> Never { a < b; c == d; x && y; z || y }";

    /// Four mutants: one killed, one late, one explained, one that is not.
    fn tried() -> Vec<Tried> {
        let mutants = operators::mutants("core/a/src/a.rs", TEXT).expect("Rust");
        let killed = |ended| Outcome::Killed("tests".to_string(), ended);
        let outcomes = [
            (killed(Ended::Failed("a_test".into())), None),
            (killed(Ended::Late), None),
            (Outcome::Survived(2), Some("It is the same.".to_string())),
            (Outcome::Survived(0), None),
        ];
        let with = |(mutant, (outcome, reason)): (Mutant, (Outcome, Option<String>))| {
            let difference = mutant.difference(TEXT);
            Tried { mutant, difference, outcome, reason }
        };
        let relevant = mutants.into_iter().filter(|mutant| mutant.kind != Kind::Result);
        relevant.zip(outcomes).map(with).collect()
    }

    fn run() -> Run {
        Run {
            target: "a",
            seed: 7,
            date: "2026-01-01T00:00:00Z".into(),
            commit: "abc".into(),
            machine: "2 cores Some, Processor".into(),
            seconds: 9,
            possible: 100,
            refused: 1,
        }
    }

    #[test]
    fn the_last_line_has_the_counts() {
        let text = text(&run(), &tried());
        let last = text.lines().last().expect("lines");
        assert!(last.starts_with("a: killed 2, explained 1, unexplained 1 of 4 mutants"), "{text}");
        assert!(text.contains("tests (by time)"), "{text}");
    }

    #[test]
    fn survivors_are_shown_with_what_changed_and_why() {
        let text = text(&run(), &tried());
        assert_eq!(text.matches("survived: core/a/src/a.rs:1: f: ").count(), 2, "{text}");
        assert!(text.contains("  explained: It is the same."), "{text}");
        assert_eq!(text.matches("(no program reaches it)").count(), 1, "{text}");
    }

    #[test]
    fn the_document_names_the_survivors() {
        let tried = tried();
        let document = document(&run(), &tried);
        let named: Vec<String> = survivors(&document).into_iter().map(|[.., instead]| instead).collect();
        let alive: Vec<String> =
            tried.iter().filter(|tried| !tried.is_killed()).map(|tried| tried.difference.1.clone()).collect();
        assert_eq!(named, alive);
        assert_eq!(named.len(), 2);
    }

    #[test]
    fn a_line_has_all_columns() {
        let line = line(&run(), &tried());
        assert_eq!(line.split(',').count(), COLUMNS.split(',').count(), "{line}");
        assert!(line.ends_with("a,7,4,2,1,1,9,tests=1; tests (by time)=1"), "{line}");
    }

    #[test]
    fn eighty_five_percent_are_enough() {
        let counts =
            |killed, explained| Counts { all: 100, killed, explained, unexplained: 100 - killed - explained };
        assert!(counts(85, 0).pass() && counts(80, 5).pass());
        assert!(!counts(84, 0).pass());
    }
}
