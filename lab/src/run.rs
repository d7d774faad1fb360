//! A run of an experiment: which point is measured when, what is discarded, and what is left to do.
//!
//! Rules: 1. A repetition visits every point once, in an order of its own that the seed decides, so that a machine that changes
//!           meanwhile changes all points alike.
//!        2. In one repetition, points share a cluster if no start of members is needed between them; each repetition has new
//!           clusters.
//!        3. A run is discarded with a reason: an operation failed, another member came to lead, or other programs had more of the
//!           processors than `others_max`. It is made again, at most [`ATTEMPTS`] times in all. The last one counts even if others
//!           had the processors, and is marked: a machine that is never quiet can still be measured, and the page says so.
//!        4. A point that fails in every attempt is left out in that repetition, and the others go on.
//!        5. A run that is in the folder is not made again; one that is missing is, when the same command is given again.
//! Knows nothing of: what is measured, medians, pages.

use crate::bench_cluster::{BenchCluster, Measurement};
use crate::experiment::{Experiment, Fault, Members, Point, START, Size, Task, groups};
use crate::machine::Machine;
use crate::results::{Folder, PointInfo, RunInfo, Sample, VERSION};
use crate::statistics::rounded;
use crate::trace;
use indicatif::{ProgressBar, ProgressStyle};
use kattu_random::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How often a run is made until one counts.
pub const ATTEMPTS: u32 = 3;

/// What the caller chose.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program under test.
    pub program: PathBuf,
    /// The size.
    pub size: Size,
    /// Repetitions of each point.
    pub repetitions: u32,
    /// Decides the order of runs, and intervals.
    pub seed: u64,
    /// Largest share of the processors that other programs may have.
    pub others_max: f64,
    /// Each member in a network namespace of its own.
    pub spaces: bool,
    /// The command line that repeats it.
    pub command: String,
}

/// Measures all that is missing in the folder; the runs that failed in every attempt, with their last reason.
///
/// # Errors
/// The folder has another run; a cluster that does not start.
pub fn run(experiment: &Experiment, options: &Options, folder: &Folder) -> Result<Vec<String>, String> {
    let points = (experiment.points)(options.size);
    let info = begin(experiment, options, &points, folder)?;
    let samples = folder.samples()?;
    let mut left = Left::of(&info, &samples);
    if left.is_empty() {
        eprintln!("{}: all {} runs are there", experiment.name, samples.len());
        return Ok(Vec::new());
    }
    let mut failed = Vec::new();
    if folder.machine()?.is_none() {
        let machine = Machine::measure(folder.path()).map_err(|error| format!("the machine: {error}"))?;
        folder.write_json("machine.json", &machine)?;
    }
    let mut clock = Clock::new(experiment.name, &points, &left);
    for repetition in 0..info.repetitions {
        for group in order(&points, info.seed, repetition) {
            let group: Vec<usize> =
                group.into_iter().filter(|&place| left.has(repetition, &points[place].key())).collect();
            let Some(&first) = group.first() else { continue };
            let members = folder.path().join("members");
            clock.start();
            let start = || match points[first].cluster.members {
                0 => Ok(None),
                _ => BenchCluster::start(&options.program, &points[first].cluster, &members, info.spaces)
                    .map(Some),
            };
            let mut cluster = start()?;
            for place in group {
                let point = &points[place];
                clock.begin(repetition, info.repetitions, point);
                failed.extend(measure(&mut cluster, &start, point, repetition, &info, folder)?);
                left.done(repetition, &point.key());
                clock.end(place, &left);
            }
        }
    }
    clock.finish();
    Ok(failed)
}

/// Measures one point until a run counts; its last reason if none does.
fn measure(
    cluster: &mut Option<BenchCluster>,
    start: &dyn Fn() -> Result<Option<BenchCluster>, String>,
    point: &Point,
    repetition: u32,
    info: &RunInfo,
    folder: &Folder,
) -> Result<Option<String>, String> {
    let mut failed = None;
    for attempt in 0..ATTEMPTS {
        let at = seconds_now();
        let is_last = attempt + 1 == ATTEMPTS;
        let measurement = match (&mut *cluster, &point.load) {
            (_, Task::Codec(codec)) => codec.measure(),
            (_, Task::Trace(way)) => trace::measure(*way),
            (Some(cluster), _) => cluster.measure(point),
            (None, _) => Err("no cluster".into()),
        };
        let mut sample = match measurement {
            Ok(measurement) => {
                let mut sample = sample_of(point, repetition, attempt, at, &measurement);
                match fault_of(&measurement, &sample) {
                    Some(fault) => sample.discarded = Some(fault),
                    None => busy(&mut sample, info.others_max, is_last),
                }
                sample
            }
            Err(error) => {
                let mut sample = empty(point, repetition, attempt, at);
                sample.discarded = Some(error);
                // The members may be in any state: the next attempt has new ones.
                *cluster = None; // these end before the others begin
                *cluster = start()?;
                sample
            }
        };
        sample.latencies_us.sort_unstable();
        folder.add(&sample)?;
        match sample.discarded {
            None => return Ok(None),
            Some(reason) => {
                failed = Some(format!("{}, repetition {}: {reason}", point.key(), repetition + 1))
            }
        }
    }
    Ok(failed)
}

/// Why a run is no measurement of its point.
fn fault_of(measurement: &Measurement, sample: &Sample) -> Option<String> {
    if 0 < sample.errors {
        // The first error stands behind the number of errors, which differs from run to run.
        let first = measurement.told.split_once("the first: ").map_or("", |(_, first)| first);
        return Some(format!("operations failed: {first}"));
    }
    if sample.ops == 0 {
        return Some("no operation was answered".into());
    }
    (!measurement.is_steady).then(|| "another member came to lead".into())
}

/// Discards a run beside which others had too much of the processors, or marks the last attempt.
fn busy(sample: &mut Sample, others_max: f64, is_last: bool) {
    let Some(others) = sample.others.filter(|others| others_max < *others) else { return };
    match is_last {
        false => {
            sample.discarded =
                Some(format!("others had more than {:.0} % of the processors", others_max * 100.0));
        }
        true => sample.disturbed = Some(format!("others had {:.0} % of the processors", others * 100.0)),
    }
}

fn empty(point: &Point, repetition: u32, attempt: u32, at: f64) -> Sample {
    Sample {
        point: point.key(),
        repetition,
        attempt,
        at,
        discarded: None,
        disturbed: None,
        ops: 0,
        seconds: 0.0,
        errors: 0,
        latencies_us: Vec::new(),
        members_cpu_us: Vec::new(),
        client_cpu_us: 0.0,
        leader: 0,
        others: None,
        counters: BTreeMap::new(),
    }
}

fn sample_of(point: &Point, repetition: u32, attempt: u32, at: f64, measurement: &Measurement) -> Sample {
    let answer = &measurement.answer;
    let pair = |pair: &serde_json::Value| Some((pair[0].as_u64()?, pair[1].as_u64()?));
    let pairs = answer["latencies_us"].as_array().into_iter().flatten();
    Sample {
        ops: answer["ops"].as_u64().unwrap_or(0),
        seconds: answer["seconds"].as_f64().unwrap_or(0.0),
        errors: answer["errors"].as_u64().unwrap_or(0),
        latencies_us: rounded(&pairs.filter_map(pair).collect::<Vec<_>>()),
        members_cpu_us: measurement.members_cpu_us.clone(),
        client_cpu_us: measurement.client_cpu_us,
        leader: measurement.leader,
        others: measurement.others,
        counters: measurement.counters.clone(),
        ..empty(point, repetition, attempt, at)
    }
}

/// The run that the folder has, which must be this one, or this one written there.
fn begin(
    experiment: &Experiment,
    options: &Options,
    points: &[Point],
    folder: &Folder,
) -> Result<RunInfo, String> {
    let info = RunInfo {
        version: VERSION,
        experiment: experiment.name.into(),
        size: options.size.to_string(),
        repetitions: options.repetitions,
        seed: options.seed,
        others_max: options.others_max,
        spaces: options.spaces,
        commit: commit(&options.program),
        command: options.command.clone(),
        began: iso(seconds_now()),
        points: points.iter().map(info_of).collect(),
    };
    let there = folder.run_info()?;
    let differs = there.as_ref().and_then(|there| difference(there, &info));
    match (there, differs) {
        (Some(there), None) => Ok(there),
        (None, _) => folder.write_json("run.json", &info).map(|()| info),
        // A run that ended before its first sample is no loss.
        (Some(_), Some(_)) if folder.samples()?.is_empty() => {
            folder.write_json("run.json", &info).map(|()| info)
        }
        (Some(_), Some(what)) => Err(format!(
            "{}: has a run with another {what}; give another folder with --out, or remove this one",
            folder.path().display()
        )),
    }
}

/// In what a run differs from the one in the folder, if it cannot be resumed as that.
fn difference(there: &RunInfo, this: &RunInfo) -> Option<&'static str> {
    let differs = [
        (there.experiment != this.experiment, "experiment"),
        (there.size != this.size, "size"),
        (there.repetitions != this.repetitions, "number of repetitions"),
        (there.seed != this.seed, "seed"),
        (there.others_max != this.others_max, "limit for other programs"),
        (there.spaces != this.spaces, "choice of namespaces"),
        (there.commit != this.commit, "commit"),
        (there.points != this.points, "plan"),
    ];
    differs.into_iter().find_map(|(is_other, what)| is_other.then_some(what))
}

fn info_of(point: &Point) -> PointInfo {
    let mut setting = vec![format!("{} members", point.cluster.members)];
    setting.extend(point.cluster.flags.iter().cloned());
    if !point.protocol.is_empty() {
        setting.push(format!("kattu protocol {}", point.protocol.join(" ")));
    }
    setting.extend(point.tuned.iter().map(|(members, setting)| match members {
        Members::All => setting.clone(),
        other => format!("{setting} ({other})"),
    }));
    if let Some((election, heartbeat)) = point.timing {
        setting.push(format!("election timeout {election} ms, heartbeat {heartbeat} ms"));
    }
    if point.cluster.has_proxy {
        setting.push(format!("links: {}", point.links));
    }
    if let Task::Bench(load) = &point.load
        && load.asked != Members::All
    {
        setting.push(format!("asked: {}", load.asked));
    }
    setting.extend(point.processors.map(|count| format!("members on {count} processor(s)")));
    setting.extend(point.faults.iter().map(Fault::to_string));
    PointInfo {
        point: point.key(),
        at: point.at.iter().map(|(name, value)| ((*name).to_string(), value.clone())).collect(),
        load: point.load.words(),
        setting: setting.join("; "),
    }
}

/// The order of one repetition: groups of points that share a cluster.
fn order(points: &[Point], seed: u64, repetition: u32) -> Vec<Vec<usize>> {
    let mut random = Random::of_numbered_part(seed, repetition.into());
    let mut groups = groups(points);
    groups.iter_mut().for_each(|group| random.shuffle(group));
    random.shuffle(&mut groups);
    groups
}

/// The runs that are missing: repetition and point.
#[derive(Debug)]
struct Left(BTreeSet<(u32, String)>);

impl Left {
    fn of(info: &RunInfo, samples: &[Sample]) -> Left {
        let all = (0..info.repetitions)
            .flat_map(|repetition| info.points.iter().map(move |point| (repetition, point.point.clone())));
        let counted = samples.iter().filter(|sample| sample.discarded.is_none());
        let counted: BTreeSet<_> = counted.map(|sample| (sample.repetition, sample.point.clone())).collect();
        Left(all.filter(|run| !counted.contains(run)).collect())
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn has(&self, repetition: u32, point: &str) -> bool {
        self.0.contains(&(repetition, point.to_string()))
    }

    fn done(&mut self, repetition: u32, point: &str) {
        self.0.remove(&(repetition, point.to_string()));
    }

    fn of_point(&self, point: &str) -> u32 {
        self.0.iter().filter(|(_, its)| its == point).count() as u32
    }
}

/// How far a run is, and how long the rest takes: for each point as long as its last run, or as the plan expects.
struct Clock<'a> {
    bar: ProgressBar,
    points: &'a [Point],
    took: Vec<Duration>,
    start: Duration,
    since: std::time::Instant,
    is_starting: bool,
    left_for: Duration,
    name: &'static str,
}

impl<'a> Clock<'a> {
    fn new(name: &'static str, points: &'a [Point], left: &Left) -> Clock<'a> {
        let bar = ProgressBar::new(left.0.len() as u64);
        let style = ProgressStyle::with_template("{prefix} {bar:30} {pos}/{len} runs, {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_prefix(name);
        bar.enable_steady_tick(Duration::from_secs(1));
        let took: Vec<Duration> = points.iter().map(|point| point.expected).collect();
        let since = std::time::Instant::now();
        let left_for = Duration::ZERO;
        let mut clock = Clock { bar, points, took, start: START, since, is_starting: false, left_for, name };
        clock.left_for = clock.rest(left);
        if clock.bar.is_hidden() {
            eprintln!("{name}: {} runs, about {} left", left.0.len(), span(clock.left_for));
        }
        clock
    }

    fn start(&mut self) {
        self.since = std::time::Instant::now();
        self.is_starting = true;
        self.say("starting members");
    }

    fn begin(&mut self, repetition: u32, of: u32, point: &Point) {
        if std::mem::take(&mut self.is_starting) {
            self.start = self.since.elapsed();
        }
        self.since = std::time::Instant::now();
        self.say(&format!("repetition {} of {of}: {}", repetition + 1, point.key()));
    }

    fn say(&self, what: &str) {
        self.bar.set_message(format!("about {} left; {what}", span(self.left_for)));
    }

    fn end(&mut self, place: usize, left: &Left) {
        self.took[place] = self.since.elapsed();
        self.left_for = self.rest(left);
        self.bar.inc(1);
        let (at, of) = (self.bar.position(), self.bar.length().unwrap_or(0));
        if self.bar.is_hidden() && at.is_multiple_of((of / 10).max(1)) {
            eprintln!("{}: {at} of {of} runs, about {} left", self.name, span(self.left_for));
        }
    }

    fn rest(&self, left: &Left) -> Duration {
        let runs =
            self.points.iter().zip(&self.took).map(|(point, took)| *took * left.of_point(&point.key()));
        let repetitions: BTreeSet<u32> = left.0.iter().map(|(repetition, _)| *repetition).collect();
        runs.sum::<Duration>() + self.start * (groups(self.points).len() * repetitions.len()) as u32
    }

    fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// A time for people.
#[must_use]
pub fn span(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..=99 => format!("{seconds} s"),
        seconds @ 100..=5999 => format!("{} min", seconds.div_ceil(60)),
        seconds => format!("{:.1} h", seconds as f64 / 3600.0),
    }
}

fn seconds_now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// Seconds since 1970 as a date and a time in UTC. [Hinnant: days to civil date]
fn iso(seconds: f64) -> String {
    let seconds = seconds as i64;
    let (days, time) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", time / 3600, time / 60 % 60)
}

/// The commit of the clone that a program stands in.
fn commit(program: &Path) -> String {
    let folder = program.parent().unwrap_or(Path::new("."));
    let mut git = std::process::Command::new("git");
    let output = git.arg("-C").arg(folder).args(["describe", "--always", "--dirty", "--exclude=*"]).output();
    let text = output.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    let text = text.map(|text| String::from_utf8_lossy(&text).trim().to_string());
    text.filter(|text| !text.is_empty()).unwrap_or_else(|| "unknown".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{ClusterPlan, Load};
    use crate::results::tests::sample;

    fn points() -> Vec<Point> {
        let point =
            |flag, number| Point::of("g", ClusterPlan::of(1).flag(flag), Load::puts(1, 1)).at("x", number);
        (0..8).map(|number| point(if number < 5 { "--a" } else { "--b" }, number)).collect()
    }

    fn info() -> RunInfo {
        RunInfo {
            version: VERSION,
            experiment: "e".into(),
            size: "quick".into(),
            repetitions: 2,
            seed: 1,
            others_max: 0.2,
            spaces: false,
            commit: "c".into(),
            command: "kattu lab run e".into(),
            began: "then".into(),
            points: points().iter().map(info_of).collect(),
        }
    }

    #[test]
    fn every_repetition_visits_every_point_once_in_an_order_of_its_own() {
        let points = points();
        let orders: Vec<Vec<usize>> = (0..6).map(|it| order(&points, 1, it).concat()).collect();
        for order in &orders {
            let mut places = order.clone();
            places.sort_unstable();
            assert_eq!(places, (0..points.len()).collect::<Vec<_>>());
        }
        assert!(orders.iter().collect::<BTreeSet<_>>().len() > 1, "{orders:?}");
        assert_eq!(orders[3], order(&points, 1, 3).concat(), "the seed decides");
        for groups in (0..6).map(|it| order(&points, 1, it)) {
            assert_eq!(groups.len(), 2, "points that share a cluster are together");
        }
    }

    #[test]
    fn a_resumed_run_makes_what_is_missing_or_was_discarded() {
        let (info, keys): (RunInfo, Vec<String>) = (info(), points().iter().map(Point::key).collect());
        let all = Left::of(&info, &[]);
        assert_eq!(all.0.len(), 16);
        let mut failed = sample(&keys[1], 0, 1.0);
        failed.discarded = Some("a reason".into());
        let mut left = Left::of(&info, &[sample(&keys[0], 0, 1.0), failed.clone()]);
        assert_eq!(
            (left.has(0, &keys[0]), left.has(1, &keys[0]), left.has(0, &keys[1])),
            (false, true, true)
        );
        assert_eq!((left.of_point(&keys[0]), left.of_point(&keys[1])), (1, 2));
        left.done(0, &keys[1]);
        assert_eq!(left.of_point(&keys[1]), 1);
        let again = Left::of(&info, &[failed, sample(&keys[1], 0, 1.0)]);
        assert!(!again.has(0, &keys[1]), "a later attempt counts");
    }

    #[test]
    fn only_the_same_run_is_resumed() {
        assert_eq!(difference(&info(), &RunInfo { began: "later".into(), ..info() }), None);
        assert_eq!(difference(&info(), &RunInfo { commit: "d".into(), ..info() }), Some("commit"));
        assert_eq!(difference(&info(), &RunInfo { points: Vec::new(), ..info() }), Some("plan"));
    }

    #[test]
    fn a_run_beside_others_is_made_again_and_the_last_attempt_counts_with_a_mark() {
        let with = |others, is_last| {
            let mut sample = sample("a", 0, 1.0);
            sample.others = others;
            busy(&mut sample, 0.2, is_last);
            (sample.discarded, sample.disturbed)
        };
        assert_eq!((with(Some(0.1), false), with(None, false)), ((None, None), (None, None)));
        assert_eq!(with(Some(0.5), false).0.as_deref(), Some("others had more than 20 % of the processors"));
        assert_eq!(with(Some(0.5), true), (None, Some("others had 50 % of the processors".into())));
    }

    #[test]
    fn times_are_told_for_people() {
        assert_eq!(iso(0.0), "1970-01-01 00:00 UTC");
        assert_eq!(iso(951_782_399.0), "2000-02-28 23:59 UTC");
        assert_eq!(iso(951_782_400.0), "2000-02-29 00:00 UTC");
        assert_eq!(iso(1_795_000_000.0), "2026-11-18 11:06 UTC");
        let told = [5, 150, 7200].map(|seconds| span(Duration::from_secs(seconds)));
        assert_eq!(told, ["5 s", "3 min", "2.0 h"]);
    }
}
