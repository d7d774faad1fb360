//! The verdict on a trial: what the judges say of its history, and what is kept of a trial that failed.
//!
//! Knows nothing of: faults; how judges judge.

use crate::programs::fresh_folder;
use crate::target::Target;
use crate::timeline::Timeline;
use kattu_verify::history::Record;
use kattu_verify::judges::{FinalState, judge_all, lost_writes};
use std::path::{Path, PathBuf};

/// The error that stopped a trial before its end, a panic of the rig included.
pub fn failure_of(run: impl FnOnce() -> Result<(), String>) -> Option<String> {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
        Ok(ended) => ended.err(),
        Err(_) => Some("the rig panicked; its words are above".into()),
    }
}

/// A new folder for one trial.
pub fn folder(verb: &str, target: Target, seed: u64) -> PathBuf {
    fresh_folder("chaos", &format!("{verb}-{}-{seed}-{}", target.name(), std::process::id()))
}

/// Keeps a failed trial's folder, with everything that explains it; removes that of a good one.
pub fn keep_or_remove(folder: &Path, violations: &[String], timeline: &Timeline, history: &[Record]) {
    if violations.is_empty() && std::env::var_os("KATTU_KEEP").is_none() {
        let _ = std::fs::remove_dir_all(folder);
        return;
    }
    let text = format!("{}\n{}\n", timeline.text(), violations.join("\n"));
    let _ = std::fs::write(folder.join("timeline.txt"), text);
    let written = std::fs::File::create(folder.join("history.jsonl"))
        .and_then(|file| kattu_verify::lines::write(&mut std::io::BufWriter::new(file), history));
    if let Err(error) = written {
        eprintln!("{}: the history cannot be kept: {error}", folder.display());
    }
}

/// Asks the judges. Returns the violations, the number of lost writes, and the number of judged answers.
pub fn judge(history: &[Record], last: &FinalState) -> (Vec<String>, u64, u64) {
    let mut broken = Vec::new();
    let lost = match lost_writes(history, last) {
        Ok(lost) => lost,
        Err(violation) => {
            broken.push(violation.to_string());
            Vec::new()
        }
    };
    broken.extend(lost.iter().take(10).map(|lost| format!("acknowledged and not there: {lost:?}")));
    let judged = match judge_all(history, last) {
        Ok(summary) => summary.judged,
        Err(violation) => {
            broken.push(violation.to_string());
            0
        }
    };
    (broken, lost.len() as u64, judged)
}
