//! Stages: how long the requests that were followed took to each of their stages, as histograms.
//!
//! Recorded by the node's thread, read by whoever shows them: at most a few thousand records a second, so a lock costs nothing.
//! Knows nothing of: what a stage is, how it is shown.

use hdrhistogram::Histogram;
use kattu_member::stages::{LASTS_MAX, Path, Sample};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Figures that a recorded time keeps.
const FIGURES: u8 = 2;
/// The longest time, in nanoseconds: no sample lasts longer.
const TIME_MAX_NS: u64 = LASTS_MAX.as_nanos() as u64;

/// Nanoseconds from the receipt of a request, or the arrival of an append, by path and place of the stage; the end is the last.
type Times = BTreeMap<(Path, usize), Histogram<u64>>;

/// The times of all that was followed since the start.
#[derive(Debug, Default)]
pub struct StageTimes(Mutex<Times>);

/// One stage, as it was so far.
#[derive(Debug)]
pub struct StageTime {
    /// Of what.
    pub path: Path,
    /// Its name.
    pub stage: &'static str,
    /// Nanoseconds since the beginning.
    pub times: Histogram<u64>,
}

impl StageTimes {
    /// Records one that was followed.
    pub(crate) fn record(&self, sample: &Sample) {
        let mut times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let stages = sample.path.stages().len();
        let reached = sample.at[..stages].iter().copied().chain([Some(sample.end)]);
        for (stage, at) in reached.enumerate() {
            let Some(at) = at else { continue };
            let of_stage = times
                .entry((sample.path, stage))
                .or_insert_with(|| Histogram::new_with_bounds(1, TIME_MAX_NS, FIGURES).expect("few figures"));
            of_stage.saturating_record(u64::try_from(at.as_nanos()).unwrap_or(u64::MAX));
        }
    }

    /// All stages that were reached, by path and in order.
    pub fn all(&self) -> Vec<StageTime> {
        let times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let stage = |(&(path, stage), times): (&(Path, usize), &Histogram<u64>)| StageTime {
            path,
            stage: path.stages().get(stage).copied().unwrap_or(path.end()),
            times: times.clone(),
        };
        times.iter().map(stage).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kattu_member::stages::STAGES_MAX;
    use kattu_raft::Duration;

    #[test]
    fn each_stage_that_was_reached_has_its_times_and_the_end_is_the_last() {
        let times = StageTimes::default();
        let at = |micros| Some(Duration::from_micros(micros));
        let mut sample =
            Sample { path: Path::Write, at: [None; STAGES_MAX], end: Duration::from_micros(700) };
        sample.at = [at(1), at(2), None, at(400), at(500), at(500), at(600)];
        times.record(&sample);
        times.record(&Sample {
            path: Path::Append,
            at: [at(1), at(2), None, None, None, None, None],
            ..sample
        });
        let all = times.all();
        let names: Vec<_> = all.iter().map(|stage| (stage.path.name(), stage.stage)).collect();
        let of_write = ["taken", "proposed", "stored", "replicated", "committed", "applied", "answered"];
        let of_append = ["appendable", "stored", "acknowledged"];
        let expected: Vec<_> = of_write
            .map(|stage| ("write", stage))
            .into_iter()
            .chain(of_append.map(|stage| ("append", stage)))
            .collect();
        assert_eq!(names, expected);
        assert!(all.iter().all(|stage| stage.times.len() == 1));
        assert!(all[6].times.equivalent(all[6].times.max(), 700_000));
    }
}
