//! Tables for people.
//!
//! Knows nothing of: how the figures came about.

use crate::trial::Finding;
use kattu_mutants::{BUGS, Bug};
use std::fmt::Write;

/// All bugs: name, crate, judge, incident.
pub fn of_bugs() -> String {
    let mut text = format!("{:<36} {:<11} {:<8} {:<44} incident", "bug", "in", "by", "judge");
    for bug in BUGS.iter() {
        let judge = bug.judges[0];
        let _ = write!(
            text,
            "\n{:<36} {:<11} {:<8} {judge:<44} {}",
            bug.name,
            bug.home,
            bug.trial.name(),
            bug.incident
        );
    }
    text
}

/// The result of each: name, judge, finding, seeds needed.
pub fn of_catches(rows: &[(&'static Bug, Option<Finding>)]) -> String {
    let mut text = format!("{:<36} {:<8} {:<44} {:>6}  caught by", "bug", "by", "judge", "seeds");
    for (bug, caught) in rows {
        let seeds = caught.as_ref().map_or_else(|| "–".to_string(), |finding| (finding.seed + 1).to_string());
        let by = caught.as_ref().map_or("nobody", |finding| finding.property.as_str());
        let by: String = by.chars().take(72).collect();
        let _ =
            write!(text, "\n{:<36} {:<8} {:<44} {seeds:>6}  {by}", bug.name, bug.trial.name(), bug.judges[0]);
    }
    text
}
