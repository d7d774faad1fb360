//! The folder of a run: its files, and what is in them.
//!
//! ```text
//!   DIR/run.json        which experiment, its points and settings, commit, command
//!      /machine.json    the machine and its limits, measured before the first run
//!      /samples.jsonl   every run, discarded ones too: one line each, with all its latencies
//!      /summary.json    medians with intervals, and what the judge says
//!      /figures/*.svg   the figures, each with its numbers in `data-figure`
//!      /index.html      all of it as one page
//! ```
//! Version 1. A reader refuses a folder of another version. The last line of `samples.jsonl` may be torn, if the run was cut off.
//! Knows nothing of: clusters, pages, what a measure means.

use crate::judge::Claim;
use crate::machine::Machine;
use crate::statistics::Interval;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The version of the folder.
pub const VERSION: u32 = 1;

/// What is run: the same run is resumed only if all of it but `began` is equal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunInfo {
    /// Of the folder.
    pub version: u32,
    /// The experiment's name.
    pub experiment: String,
    /// `full` or `quick`.
    pub size: String,
    /// Runs of every point.
    pub repetitions: u32,
    /// Decides the order of runs, and intervals.
    pub seed: u64,
    /// Largest share of the processors that other programs may have in a run.
    pub others_max: f64,
    /// Whether each member had a network namespace of its own.
    pub spaces: bool,
    /// The commit of the source, `-dirty` if it was changed since; "unknown" outside of a clone.
    pub commit: String,
    /// The command that repeats it.
    pub command: String,
    /// When it began first, in UTC.
    pub began: String,
    /// Its points, in the order of the plan.
    pub points: Vec<PointInfo>,
}

/// One point, as the folder tells it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PointInfo {
    /// Its name: all coordinates.
    pub point: String,
    /// The coordinates.
    pub at: BTreeMap<String, String>,
    /// The load's command line, without endpoints.
    pub load: String,
    /// Members, flags, settings, links and faults, for readers.
    pub setting: String,
}

/// One run of one point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The point.
    pub point: String,
    /// Which repetition: 0 is the first.
    pub repetition: u32,
    /// Which attempt at it: 0 is the first.
    pub attempt: u32,
    /// Seconds since 1970 when the load began.
    pub at: f64,
    /// Why it does not count; nothing if it counts.
    pub discarded: Option<String>,
    /// Why it counts although the machine was busy otherwise: every attempt met that.
    pub disturbed: Option<String>,
    /// Operations that were answered.
    pub ops: u64,
    /// How long the load took, in seconds.
    pub seconds: f64,
    /// Operations that failed.
    pub errors: u64,
    /// All latencies: (microseconds, count), ascending, to 0.8 %.
    pub latencies_us: Vec<(u64, u64)>,
    /// Processor time of each member during the load, in microseconds.
    pub members_cpu_us: Vec<f64>,
    /// Processor time of the client's process with its start, in microseconds.
    pub client_cpu_us: f64,
    /// Place of the leader.
    pub leader: usize,
    /// Share of all processors that other programs had; nothing if the run was too short to tell.
    pub others: Option<f64>,
    /// How far the leader's counters went during the load.
    pub counters: BTreeMap<String, f64>,
}

/// What a run says, computed from its samples.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Summary {
    /// Of the folder.
    pub version: u32,
    /// The experiment's name.
    pub experiment: String,
    /// Medians of all points that have a run.
    pub points: Vec<PointSummary>,
    /// Runs that count.
    pub counted: usize,
    /// Of these, runs during which the machine was busy otherwise.
    pub disturbed: usize,
    /// Runs that do not count, by reason.
    pub discarded: BTreeMap<String, usize>,
    /// The judge's claims.
    pub claims: Vec<Claim>,
    /// The judge's paragraphs.
    pub paragraphs: Vec<String>,
}

/// The medians of one point.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PointSummary {
    /// Its name.
    pub point: String,
    /// Its coordinates.
    pub at: BTreeMap<String, String>,
    /// Runs that count.
    pub runs: usize,
    /// By measure.
    pub measures: BTreeMap<String, Interval>,
}

/// A folder of results.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

impl Sample {
    /// The mean time until requests, or appends, that were followed on this path reached a stage, in microseconds; nothing if none
    /// was followed.
    #[must_use]
    pub fn stage_us(&self, path: &str, stage: &str) -> Option<f64> {
        let samples = self.counters.get(&format!("{path} samples")).filter(|samples| 0.0 < **samples)?;
        self.counters.get(&format!("{path} {stage}")).map(|micros| micros / samples)
    }

    /// The mean latency of clients, in microseconds; nothing without a latency.
    #[must_use]
    pub fn latency_us(&self) -> Option<f64> {
        let count: u64 = self.latencies_us.iter().map(|(_, count)| count).sum();
        let sum: f64 = self.latencies_us.iter().map(|(micros, count)| *micros as f64 * *count as f64).sum();
        (0 < count).then(|| sum / count as f64)
    }
}

impl Folder {
    /// The folder at this path; it is made when something is written.
    #[must_use]
    pub fn at(path: &Path) -> Folder {
        Folder(path.to_path_buf())
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// What is run; nothing if nothing was run here.
    ///
    /// # Errors
    /// The file cannot be read, or is of another version.
    pub fn run_info(&self) -> Result<Option<RunInfo>, String> {
        let Some(info) = self.read::<serde_json::Value>("run.json")? else { return Ok(None) };
        if info["version"] != VERSION {
            let path = self.0.display();
            return Err(format!(
                "{path}: is of version {}, this program reads version {VERSION}",
                info["version"]
            ));
        }
        serde_json::from_value(info)
            .map(Some)
            .map_err(|error| format!("{}: {error}", self.0.join("run.json").display()))
    }

    /// The machine, if it was measured.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn machine(&self) -> Result<Option<Machine>, String> {
        self.read("machine.json")
    }

    /// What the run says, if that was computed.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn summary(&self) -> Result<Option<Summary>, String> {
        self.read("summary.json")
    }

    /// All runs, in the order in which they were made.
    ///
    /// # Errors
    /// The file cannot be read; a line before the last one is no run.
    pub fn samples(&self) -> Result<Vec<Sample>, String> {
        let path = self.0.join("samples.jsonl");
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(format!("{}: {error}", path.display())),
        };
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let lines = whole.lines().enumerate();
        lines
            .map(|(number, line)| {
                serde_json::from_str(line)
                    .map_err(|error| format!("{}:{}: {error}", path.display(), number + 1))
            })
            .collect()
    }

    /// Appends a run. A torn line before it is cut away.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add(&self, sample: &Sample) -> Result<(), String> {
        let path = self.0.join("samples.jsonl");
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        let text = std::fs::read(&path).unwrap_or_default();
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let mut file = File::options().create(true).append(true).open(&path).map_err(failed)?;
        if whole < text.len() {
            file.set_len(whole as u64).map_err(failed)?;
        }
        let line = serde_json::to_string(sample).map_err(|error| error.to_string())?;
        file.write_all(format!("{line}\n").as_bytes()).map_err(failed)
    }

    /// Writes a file of JSON for people and programs.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write_json(&self, name: &str, value: &impl Serialize) -> Result<(), String> {
        let text = serde_json::to_string_pretty(value).map_err(|error| error.to_string())?;
        self.write(name, &format!("{text}\n"))
    }

    /// Writes a file, whole or not at all.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, name: &str, text: &str) -> Result<(), String> {
        let path = self.0.join(name);
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        let new = path.with_extension("new");
        std::fs::write(&new, text).map_err(failed)?;
        std::fs::rename(&new, &path).map_err(failed)
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, String> {
        let path = self.0.join(name);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("{}: {error}", path.display())),
        };
        serde_json::from_str(&text).map(Some).map_err(|error| format!("{}: {error}", path.display()))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use kattu_rig::programs::OwnFolder;

    /// A quick run of an experiment with these points.
    pub(crate) fn run_info(experiment: &str, points: Vec<PointInfo>) -> RunInfo {
        RunInfo {
            version: VERSION,
            experiment: experiment.into(),
            size: "quick".into(),
            repetitions: 1,
            seed: 1,
            others_max: 1.0,
            spaces: false,
            commit: String::new(),
            command: String::new(),
            began: String::new(),
            points,
        }
    }

    /// A run that counts.
    pub(crate) fn sample(point: &str, repetition: u32, seconds: f64) -> Sample {
        Sample {
            point: point.into(),
            repetition,
            attempt: 0,
            at: 1.5,
            discarded: None,
            disturbed: None,
            ops: 100,
            seconds,
            errors: 0,
            latencies_us: vec![(10, 99), (2000, 1)],
            members_cpu_us: vec![2000.0, 500.0, 500.0],
            client_cpu_us: 1000.0,
            leader: 0,
            others: Some(0.02),
            counters: BTreeMap::new(),
        }
    }

    #[test]
    fn runs_are_read_back_and_a_torn_line_is_made_again() {
        let folder = OwnFolder::new("results");
        let results = Folder::at(folder.path());
        assert_eq!(results.samples(), Ok(Vec::new()));
        results.add(&sample("a", 0, 1.0)).expect("a folder");
        results.add(&sample("a", 1, 2.0)).expect("a folder");
        let path = folder.path().join("samples.jsonl");
        let text = std::fs::read_to_string(&path).expect("lines");
        std::fs::write(&path, &text[..text.len() - 7]).expect("a folder");
        assert_eq!(results.samples(), Ok(vec![sample("a", 0, 1.0)]), "the torn line is no run");
        results.add(&sample("a", 1, 3.0)).expect("a folder");
        assert_eq!(results.samples(), Ok(vec![sample("a", 0, 1.0), sample("a", 1, 3.0)]));
    }

    #[test]
    fn a_folder_of_another_version_is_refused() {
        let folder = OwnFolder::new("results");
        let results = Folder::at(folder.path());
        assert_eq!(results.run_info(), Ok(None));
        results.write("run.json", "{\"version\": 2}").expect("a folder");
        assert!(results.run_info().expect_err("another version").contains("is of version 2"));
    }
}
