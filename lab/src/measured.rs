//! Measures: what is computed from the runs of a point, and its medians.
//!
//! Knows nothing of: how runs are made, which points there are.

use crate::results::{PointInfo, PointSummary, RunInfo, Sample};
use crate::statistics::{self, Interval, quantile};
use std::collections::BTreeMap;

/// One number of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Measure {
    /// How long the load took.
    Millis,
    /// Operations in a second.
    OpsPerS,
    /// The median latency.
    P50,
    /// The latency that 1 % of operations exceed.
    P99,
    /// Processor time of all members for one operation.
    MembersCpu,
    /// Processor time of the leader for one operation.
    LeaderCpu,
    /// Processor time of the client for one operation.
    ClientCpu,
    /// Syncs of the leader's log for one operation.
    Syncs,
    /// Entries for one operation.
    Entries,
    /// Messages from the leader to its peers for one operation.
    Messages,
    /// Mean time until a survivor named the new leader.
    LeaderKnown,
    /// New terms for one election, or in a minute where none should be.
    Terms,
    /// Nanoseconds of one operation that takes less than a microsecond.
    Nanos,
    /// Bytes of one encoded record.
    EncodedBytes,
    /// Entries that the leader had not applied when the last answer came.
    Behind,
    /// Time from the first request until the leader has applied all.
    Applied,
    /// Mean time from a read's receipt until it is known how it is confirmed.
    ReadRouted,
    /// Mean time from a read's receipt until it is proven that it misses nothing.
    ReadConfirmed,
    /// Mean time from a read's receipt to its answer.
    ReadAnswered,
    /// Requests in a second after which clients went on: because a quorum had received them, or because they were done.
    Accepted,
    /// The median time until clients went on.
    AcceptedP50,
    /// The time until clients went on that 1 % of requests exceed.
    AcceptedP99,
    /// Requests that clients went on after and that were not done in the end, as far as is known.
    Lost,
    /// The part of requests that clients went on after and that were not done in the end, in millionths.
    LostPart,
    /// Entries that came before their predecessors and joined a log from a window, for one operation.
    Early,
}

/// How far the highest term went: counted where leaders are killed or watched.
pub const TERMS: &str = "terms";
/// Microseconds until a survivor named the new leader, over all elections together.
pub const LEADER_KNOWN_US: &str = "leader_known_us";
/// Bytes of all encoded records together.
pub const ENCODED_BYTES: &str = "encoded_bytes";

/// Entries that the leader had not applied when the last answer came.
pub const BEHIND: &str = "entries_behind";
/// Microseconds from the first request until the leader had applied all.
pub const APPLIED_US: &str = "applied_us";

/// Of weak writes: those that clients went on after in a second, and how long that took; those that were lost.
pub const ACCEPTED_PER_S: &str = "accepted_per_s";
/// Microseconds.
pub const ACCEPTED_P50_US: &str = "accepted_p50_us";
/// Microseconds.
pub const ACCEPTED_P99_US: &str = "accepted_p99_us";
/// Writes.
pub const LOST: &str = "lost";
/// Syncs of the logs of all followers together.
pub const FOLLOWERS_SYNCS: &str = "followers' syncs";
/// Processors that members and clients share.
pub const PROCESSORS: &str = "processors";
/// Entries that came early, at all followers together.
pub const EARLY: &str = "kattu_window_entries_total";

/// Runs that a comparison needs: the interval of fewer says nothing.
pub const RUNS_MIN: usize = 3;

/// Metrics of the leader of which every run keeps how far they went.
pub const COUNTERS: [&str; 3] =
    ["etcd_disk_wal_fsync_duration_seconds_count", "kattu_log_last_index", "kattu_peer_sent_messages_total"];

impl Measure {
    /// All of them.
    pub const ALL: [Measure; 25] = [
        Measure::Millis,
        Measure::OpsPerS,
        Measure::P50,
        Measure::P99,
        Measure::MembersCpu,
        Measure::LeaderCpu,
        Measure::ClientCpu,
        Measure::Syncs,
        Measure::Entries,
        Measure::Messages,
        Measure::LeaderKnown,
        Measure::Terms,
        Measure::Nanos,
        Measure::EncodedBytes,
        Measure::Behind,
        Measure::Applied,
        Measure::ReadRouted,
        Measure::ReadConfirmed,
        Measure::ReadAnswered,
        Measure::Accepted,
        Measure::AcceptedP50,
        Measure::AcceptedP99,
        Measure::Lost,
        Measure::LostPart,
        Measure::Early,
    ];

    /// Its name in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Measure::Millis => "millis",
            Measure::OpsPerS => "ops_per_s",
            Measure::P50 => "p50_ms",
            Measure::P99 => "p99_ms",
            Measure::MembersCpu => "members_cpu_us_per_op",
            Measure::LeaderCpu => "leader_cpu_us_per_op",
            Measure::ClientCpu => "client_cpu_us_per_op",
            Measure::Syncs => "leader_syncs_per_op",
            Measure::Entries => "entries_per_op",
            Measure::Messages => "leader_messages_per_op",
            Measure::LeaderKnown => "leader_known_ms",
            Measure::Terms => "terms",
            Measure::Nanos => "nanos_per_op",
            Measure::EncodedBytes => "encoded_bytes",
            Measure::Behind => "entries_behind",
            Measure::Applied => "applied_ms",
            Measure::ReadRouted => "read_routed_us",
            Measure::ReadConfirmed => "read_confirmed_us",
            Measure::ReadAnswered => "read_answered_us",
            Measure::Accepted => "accepted_per_s",
            Measure::AcceptedP50 => "accepted_p50_ms",
            Measure::AcceptedP99 => "accepted_p99_ms",
            Measure::Lost => "lost",
            Measure::LostPart => "lost_per_million",
            Measure::Early => "early_per_op",
        }
    }

    /// Its title on an axis or in a table, with its unit.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Measure::Millis => "time for all requests, ms",
            Measure::OpsPerS => "throughput, requests/s",
            Measure::P50 => "median latency, ms",
            Measure::P99 => "99th percentile latency, ms",
            Measure::MembersCpu => "processor time of all members, µs per request",
            Measure::LeaderCpu => "processor time of the leader, µs per request",
            Measure::ClientCpu => "processor time of the client, µs per request",
            Measure::Syncs => "syncs of the leader's log per request",
            Measure::Entries => "log entries per request",
            Measure::Messages => "messages of the leader per request",
            Measure::LeaderKnown => "mean time until the leader is known, ms",
            Measure::Terms => "new terms per election, or per minute without one",
            Measure::Nanos => "time for a record, ns",
            Measure::EncodedBytes => "bytes of a record",
            Measure::Behind => "entries not applied at the last answer",
            Measure::Applied => "time until all requests are applied, ms",
            Measure::ReadRouted => "mean time of a read until it is routed, µs",
            Measure::ReadConfirmed => "mean time of a read until it is confirmed, µs",
            Measure::ReadAnswered => "mean time of a read until it is answered, µs",
            Measure::Accepted => "clients go on, requests/s",
            Measure::AcceptedP50 => "median time until a client goes on, ms",
            Measure::AcceptedP99 => "99th percentile of the time until a client goes on, ms",
            Measure::Lost => "requests lost after clients went on",
            Measure::LostPart => "lost of a million requests after which clients went on",
            Measure::Early => "entries from windows per request, both followers together",
        }
    }

    /// Its value in a run, if the run has it.
    #[must_use]
    pub fn of(self, sample: &Sample) -> Option<f64> {
        let ops = sample.ops as f64;
        let millis = |share| quantile(&sample.latencies_us, share).map(|micros| micros / 1e3);
        let counter = |name: &str| sample.counters.get(name).map(|went| went / ops);
        let stage = |name: &str| sample.stage_us("read", name);
        let micros_of = |name: &str| sample.counters.get(name).map(|micros| micros / 1e3);
        let has_elections = sample.counters.contains_key(LEADER_KNOWN_US);
        match self {
            Measure::Millis => Some(sample.seconds * 1e3),
            Measure::OpsPerS => (0.0 < sample.seconds).then(|| ops / sample.seconds),
            Measure::P50 => millis(0.5),
            Measure::P99 => millis(0.99),
            Measure::MembersCpu if sample.members_cpu_us.is_empty() => None,
            Measure::MembersCpu => Some(sample.members_cpu_us.iter().sum::<f64>() / ops),
            Measure::LeaderCpu => sample.members_cpu_us.get(sample.leader).map(|micros| micros / ops),
            Measure::ClientCpu if sample.members_cpu_us.is_empty() => None,
            Measure::ClientCpu => Some(sample.client_cpu_us / ops),
            Measure::Syncs => counter(COUNTERS[0]),
            Measure::Entries => counter(COUNTERS[1]),
            Measure::Messages => counter(COUNTERS[2]),
            Measure::LeaderKnown => counter(LEADER_KNOWN_US).map(|micros| micros / 1e3),
            Measure::Terms if has_elections => counter(TERMS),
            Measure::Terms => sample.counters.get(TERMS).map(|terms| terms / sample.seconds * 60.0),
            Measure::Nanos => counter(ENCODED_BYTES).map(|_| sample.seconds * 1e9 / ops),
            Measure::EncodedBytes => counter(ENCODED_BYTES),
            Measure::Behind => sample.counters.get(BEHIND).copied(),
            Measure::Applied => sample.counters.get(APPLIED_US).map(|micros| micros / 1e3),
            Measure::ReadRouted => stage("routed"),
            Measure::ReadConfirmed => stage("confirmed"),
            Measure::ReadAnswered => stage("answered"),
            Measure::Accepted => sample.counters.get(ACCEPTED_PER_S).copied(),
            Measure::AcceptedP50 => micros_of(ACCEPTED_P50_US),
            Measure::AcceptedP99 => micros_of(ACCEPTED_P99_US),
            Measure::Lost => sample.counters.get(LOST).copied(),
            Measure::LostPart => counter(LOST).map(|part| part * 1e6),
            Measure::Early => counter(EARLY),
        }
    }
}

/// All runs that count, by point.
#[derive(Clone, Debug)]
pub struct Measured {
    seed: u64,
    points: Vec<(PointInfo, Vec<Sample>)>,
}

/// The runs of one point.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    seed: u64,
    /// The point.
    pub point: &'a PointInfo,
    /// Its runs that count.
    pub runs: &'a [Sample],
}

impl Measured {
    /// Those of these samples that count.
    #[must_use]
    pub fn of(run: &RunInfo, samples: &[Sample]) -> Measured {
        let counted = |point: &PointInfo| {
            let its =
                samples.iter().filter(|sample| sample.discarded.is_none() && sample.point == point.point);
            (point.clone(), its.cloned().collect())
        };
        Measured { seed: run.seed, points: run.points.iter().map(counted).collect() }
    }

    /// The points that have these coordinates and a run, in the order of the plan.
    #[must_use]
    pub fn all(&self, at: &[(&str, &str)]) -> Vec<At<'_>> {
        let has = |point: &PointInfo| {
            at.iter().all(|(name, value)| point.at.get(*name).is_some_and(|its| its == value))
        };
        let found = self.points.iter().filter(|(point, runs)| has(point) && !runs.is_empty());
        found.map(|(point, runs)| At { seed: self.seed, point, runs }).collect()
    }

    /// The first point that has these coordinates and a run.
    #[must_use]
    pub fn at(&self, at: &[(&str, &str)]) -> Option<At<'_>> {
        self.all(at).first().copied()
    }

    /// The medians of all points.
    #[must_use]
    pub fn summaries(&self) -> Vec<PointSummary> {
        let summary = |at: At<'_>| PointSummary {
            point: at.point.point.clone(),
            at: at.point.at.clone(),
            runs: at.runs.len(),
            measures: Measure::ALL
                .iter()
                .filter_map(|measure| Some((measure.name().to_string(), at.median(*measure)?)))
                .collect::<BTreeMap<_, _>>(),
        };
        self.all(&[]).into_iter().map(summary).collect()
    }
}

impl At<'_> {
    /// The seed of intervals.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    fn values(&self, measure: Measure) -> Vec<f64> {
        self.runs.iter().filter_map(|run| measure.of(run)).collect()
    }

    /// The median over all runs.
    #[must_use]
    pub fn median(&self, measure: Measure) -> Option<Interval> {
        statistics::interval(&self.values(measure), self.seed)
    }

    /// How many times as large the median here is as there; nothing if one of them has fewer than [`RUNS_MIN`] runs.
    #[must_use]
    pub fn over(&self, other: &At<'_>, measure: Measure) -> Option<Interval> {
        let (here, there) = (self.values(measure), other.values(measure));
        let are_enough = RUNS_MIN <= here.len().min(there.len());
        are_enough.then(|| statistics::ratio(&here, &there, self.seed)).flatten()
    }

    /// The value of a coordinate.
    #[must_use]
    pub fn coordinate(&self, name: &str) -> &str {
        self.point.at.get(name).map_or("", String::as_str)
    }

    /// The value of a coordinate as a number: its first digits, such as 10 of `10 ms`.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<f64> {
        self.coordinate(name).split(' ').next()?.parse().ok()
    }

    /// All latencies of all runs.
    #[must_use]
    pub fn latencies(&self) -> Vec<(u64, u64)> {
        statistics::together(self.runs.iter().map(|run| run.latencies_us.as_slice()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::sample;

    #[test]
    fn two_runs_are_not_compared() {
        let point = |name: &str| PointInfo {
            point: name.into(),
            at: BTreeMap::new(),
            load: String::new(),
            setting: String::new(),
        };
        let runs = [2.0, 2.0, 4.0].map(|seconds| sample("a", 0, seconds));
        let (a, b) = (point("a"), point("b"));
        let here = |runs| At { seed: 1, point: &a, runs };
        let other = [1.0; 3].map(|seconds| sample("b", 0, seconds));
        let there = At { seed: 1, point: &b, runs: &other };
        let ratio = here(&runs).over(&there, Measure::Millis).expect("three runs of each");
        assert_eq!((ratio.low, ratio.median, ratio.high), (2.0, 2.0, 4.0));
        assert_eq!(here(&runs[..2]).over(&there, Measure::Millis), None);
    }

    #[test]
    fn a_run_has_all_measures_and_processor_time_is_per_operation() {
        let mut run = sample("a", 0, 0.5);
        run.counters.insert(COUNTERS[0].into(), 20.0);
        let value = |measure: Measure| measure.of(&run);
        assert_eq!((value(Measure::Millis), value(Measure::OpsPerS)), (Some(500.0), Some(200.0)));
        assert_eq!((value(Measure::P50), value(Measure::P99)), (Some(0.01), Some(0.01)));
        assert_eq!((value(Measure::MembersCpu), value(Measure::LeaderCpu)), (Some(30.0), Some(20.0)));
        assert_eq!((value(Measure::ClientCpu), value(Measure::Syncs)), (Some(10.0), Some(0.2)));
        assert_eq!(value(Measure::Entries), None, "it was not counted");
    }
}
