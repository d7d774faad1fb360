//! sim: storms over simulated clusters, from seeds.
//!
//! Knows nothing of: faults, invariants.

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use kattu_output::{self as output, Ended, Format, Outcome};
use kattu_sim::campaign::{CAMPAIGN_STORMS, Sum, run_storms};
use kattu_sim::faults::{ELSEWHERE, Fault, NOT_BUILT};
use kattu_sim::{Family, Options, Plan, StormReport, run_plan, run_storm, shrink};
use serde_json::{Value, json};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Storms without `--seed` and `--storms`.
const STORMS: u64 = 100;
/// A campaign ends early once so many seeds have failed.
const VIOLATIONS_MAX: usize = 10;
/// Cluster-seconds that `--speed` runs for.
const SPEED_SECONDS: u64 = 10_000;
/// Where no progress bar can be drawn, a line for so many storms.
const LINE_EVERY: u64 = 1000;
/// Lines of a timeline that are no fault, shown before its end.
const LINES_MAX: usize = 60;

/// Arguments of sim.
#[derive(Args, Debug)]
#[command(after_help = "\
Each storm is a cluster of 1 to 9 members that run the production code in virtual time, with a configuration, a
workload and a choice of faults that its seed decides; then all faults end and the cluster must recover. A storm that
violates a guarantee is shrunk and shown as a timeline. From 300 storms on, each kind of fault must have happened; from
1000 on, at least 20 times; from 12 storms of a family on, each of its checkers must have had something to check. The
same seed takes the same course in every build.

The last line is: K storms, V violations, seeds A..B, S cluster-seconds, T s (B itself is not among them).
The exit code is 1 if a guarantee was violated, or a fault or the input of a checker was too rare.

Examples:
  kattu sim --storms 300
  kattu sim --seed 7 --hash
  kattu sim --regressions
  kattu sim --elections 1000
  kattu sim --profile slow-disk --hours 1 --seed 1 --storms 5")]
pub struct SimArgs {
    /// Seed of the first storm; the next ones follow. Drawn and printed if absent
    #[arg(long)]
    seed: Option<u64>,
    /// How many storms; 1 with a seed, 100 without
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    storms: Option<u64>,
    /// Length of every storm in simulated minutes; from 1 to 20 as the seed decides, if absent
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1440))]
    minutes: Option<u64>,
    /// Print the trace hash of one seed and nothing else
    #[arg(long, requires = "seed", conflicts_with = "storms")]
    hash: bool,
    /// Run the storms that once broke a promise, all of them
    #[arg(long, conflicts_with_all = ["seed", "storms", "minutes", "hash"])]
    regressions: bool,
    /// Measure: three members, ten requests per simulated second, all checks on, no faults
    #[arg(long, conflicts_with_all = ["seed", "storms", "minutes", "hash"])]
    speed: bool,
    /// Measure: so many elections in a cluster of five after its leader died, as a distribution
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000), conflicts_with_all = ["storms", "minutes", "hash", "speed"])]
    elections: Option<u64>,
    /// What the storms are about: all faults, how well a cluster serves with one slow follower, or a member that lies
    #[arg(long, value_enum, default_value = "storms", conflicts_with_all = ["speed", "elections", "profile"])]
    family: About,
    /// Members share settings in the cluster's configuration, and the election timeout changes all the time
    #[arg(long, conflicts_with_all = ["speed", "elections", "profile"])]
    shared_settings: bool,
    /// Some clients have sessions, in which their commands are executed once; settings are shared, too
    #[arg(long, conflicts_with_all = ["speed", "elections", "profile", "family"])]
    sessions: bool,
    /// Members are tuned while they run, each by itself; some clients have sessions, and settings are shared, too
    #[arg(long, conflicts_with_all = ["speed", "elections", "profile", "family", "sessions"])]
    tuned: bool,
    /// The cluster changes between raft and nb-raft, over one to four links to each peer; some clients have sessions, and
    /// settings are shared, too
    #[arg(long, conflicts_with_all = ["speed", "elections", "profile", "family", "sessions", "shared_settings"])]
    non_blocking: bool,
    /// The same, and clients with sessions ask for weak answers, which nb-raft gives most of the time
    #[arg(long, conflicts_with_all = ["speed", "elections", "profile", "family", "sessions", "shared_settings", "non_blocking"])]
    weak: bool,
    /// Members have no optimisation, from each start to the calm: the same storms as without this, in which they have all
    #[arg(long, conflicts_with_all = ["speed", "elections", "profile", "family", "tuned"])]
    basic_raft: bool,
    /// Run this situation instead of storms, over the seeds of `--seed` and `--storms`
    #[arg(long, value_enum, conflicts_with_all = ["hash", "speed", "elections"])]
    profile: Option<Profile>,
    /// Length of a situation in simulated hours
    #[arg(long, requires = "profile", conflicts_with = "minutes", value_parser = clap::value_parser!(u64).range(1..=24))]
    hours: Option<u64>,
    /// Format of the result
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
}

/// What storms are about.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum About {
    /// Faults of all kinds, and all answers to clients
    Storms,
    /// Links of 1 to 100 MB/s and a follower that comes back far behind: goodput, progress, memory, steps, tail of writes
    SlowLinks,
    /// A follower with little CPU, and compactions: progress, memory, steps, tail of writes
    SlowMembers,
    /// Snapshots, new segments and compactions, at one disk for each member: progress, memory, steps, tail of writes
    BusyDisks,
    /// One member sends arbitrary well-formed messages; checked instead of safety: no process ends, memory, steps
    Liars,
}

impl From<About> for Family {
    fn from(about: About) -> Family {
        match about {
            About::Storms => Family::Storms,
            About::SlowLinks => Family::SlowLinks,
            About::SlowMembers => Family::SlowMembers,
            About::BusyDisks => Family::BusyDisks,
            About::Liars => Family::Liars,
        }
    }
}

/// A situation by hand.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Profile {
    /// Three members on disks that never rest and take a tenth to a third of an election timeout for a sync: the leader
    /// must not change
    SlowDisk,
}

/// Runs storms.
pub fn run(args: &SimArgs) -> Outcome {
    if args.speed {
        return speed(args);
    }
    if args.regressions {
        return regressions();
    }
    if let Some(count) = args.elections {
        return crate::elections::run(args.seed.unwrap_or(1), count as usize, args.output);
    }
    if let Some(Profile::SlowDisk) = args.profile {
        return slow_disk(args);
    }
    let family = Family::from(args.family);
    let (seconds, shared_settings) = (args.minutes.map(|minutes| minutes * 60), args.shared_settings);
    let (sessions, tuned, non_blocking) = (args.sessions, args.tuned, args.non_blocking);
    let options = Options {
        seconds,
        family,
        shared_settings,
        sessions,
        tuned,
        non_blocking,
        weak: args.weak,
        basic_raft: args.basic_raft,
        ..Options::default()
    };
    if let (true, Some(seed)) = (args.hash, args.seed) {
        return output::print(format!("{:016x}\n", run_storm(seed, &options).hash).as_bytes());
    }
    let count = args.storms.unwrap_or(if args.seed.is_some() { 1 } else { STORMS });
    let first = match args.seed {
        Some(seed) => seed,
        None => drawn_seed(args)?,
    };
    let end = first.checked_add(count).ok_or_else(|| Ended::usage("the last seed is beyond 2^64"))?;

    let began = Instant::now();
    let bar = progress_bar(count);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut failed: Vec<StormReport> = Vec::new();
    let mut violations = 0;
    let sum = run_storms(first..end, threads, VIOLATIONS_MAX, &options, |report| {
        if report.violation.is_some() {
            violations += 1;
            failed.push(report.clone());
        }
        bar.inc(1);
        if bar.is_hidden() && args.output == Format::Table && bar.position().is_multiple_of(LINE_EVERY) {
            let line = format!("{} of {count} storms, {violations} violations\n", bar.position());
            let _ = output::print(line.as_bytes());
        }
        bar.set_message(format!("{violations} violations"));
    });
    bar.finish_and_clear();
    failed.sort_by_key(|report| report.seed);
    let shrunk = failed.first().filter(|_| args.output == Format::Table).map(|report| {
        eprintln!("{}", said_before_shrinking(report));
        shrink(report, &options)
    });
    let seconds = began.elapsed().as_secs_f64();
    let lacks = sum.lacks(family);
    match args.output {
        Format::Json => output::print_json(&as_json(&sum, first..end, seconds, &options))?,
        Format::Table => {
            print_faults(&sum, family)?;
            if let Some(shrunk) = &shrunk {
                print_timeline(&shrunk.report, shrunk.attempts)?;
            }
            print_violations(&sum, args.minutes, &options)?;
            print_last_line(&sum, first..end, seconds)?;
        }
    }
    if let [(seed, violation), ..] = &sum.violations[..] {
        return Err(Ended::failed(format!("seed {seed}: {violation}")));
    }
    if let Some(said) = sum.service.wasted(family).first() {
        return Err(Ended::failed(format!("all storms together: {said}")));
    }
    if lacks.is_empty() {
        return Ok(());
    }
    Err(Ended::failed(format!("too rare to be evidence: {}", lacks.join(", "))))
}

/// Runs the storms that once broke a promise.
fn regressions() -> Outcome {
    let all = kattu_sim::regressions::all();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (next, bar) = (AtomicUsize::new(0), progress_bar(all.len() as u64));
    let back = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(it) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Some(violation) = run_storm(it.seed, &it.options).violation {
                        let said = format!(
                            "{}\nviolation: {violation}\nreplay: kattu sim {}\n",
                            it.line,
                            it.words()
                        );
                        back.lock().expect("no storm panics with it").push(said);
                    }
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
    let back = back.into_inner().expect("no storm panics with it");
    output::print(back.concat().as_bytes())?;
    output::print(format!("{} regressions, {} violations\n", all.len(), back.len()).as_bytes())?;
    match back.is_empty() {
        true => Ok(()),
        false => Err(Ended::failed(format!("{} of {} storms fail again", back.len(), all.len()))),
    }
}

/// A new seed, printed before it is used.
fn drawn_seed(args: &SimArgs) -> Result<u64, Ended> {
    use std::hash::{BuildHasher, Hasher};
    // The standard library seeds its hashers from the operating system.
    let drawn = std::hash::RandomState::new().build_hasher().finish() >> 16;
    if args.output == Format::Table {
        output::print(format!("seed: {drawn}\n").as_bytes())?;
    }
    Ok(drawn)
}

fn progress_bar(count: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} {bar:40} {pos}/{len} storms, {eta} left");
    ProgressBar::new(count).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn print_faults(sum: &Sum, family: Family) -> Outcome {
    let of_it: Vec<Fault> = Fault::ALL.iter().copied().filter(|&fault| family.has(fault)).collect();
    let rows = of_it.iter().map(|&fault| {
        vec![fault.id().to_string(), fault.about().to_string(), sum.faults.count(fault).to_string()]
    });
    output::print_table(&["fault", "what", "times"], rows.collect())?;
    if family == Family::Liars {
        let steps = sum.service.said_of_steps();
        return output::print(format!("members: {}\n{steps}\n", sum.counts).as_bytes());
    }
    if family != Family::Storms {
        return output::print(format!("members: {}\n{}", sum.counts, sum.service).as_bytes());
    }
    let possible = of_it.len() * (of_it.len() - 1) / 2;
    let pairs = sum.faults.pairs();
    let mut text = format!("pairs of faults that met in one storm: {} of {possible}", pairs.len());
    if let (Some(rarest), true) = (pairs.iter().min_by_key(|(_, storms)| **storms), pairs.len() == possible) {
        let ((first, second), storms) = rarest;
        text += &format!("; the rarest, {} and {}, in {storms}", first.id(), second.id());
    } else if sum.storms >= CAMPAIGN_STORMS {
        let missing = of_it
            .iter()
            .enumerate()
            .flat_map(|(at, &first)| of_it[at + 1..].iter().map(move |&second| (first, second)));
        let missing = missing.filter(|pair| !pairs.contains_key(pair));
        let named: Vec<String> =
            missing.map(|(first, second)| format!("{}+{}", first.id(), second.id())).collect();
        text += &format!("; never: {}", named.join(" "));
    }
    let elsewhere: Vec<String> = ELSEWHERE.iter().map(|(id, what)| format!("{id} ({what})")).collect();
    text += &format!("\nelsewhere: {}; not built: {}\n", elsewhere.join(", "), NOT_BUILT.join(" "));
    let (done, refused, unknown) = sum.operations;
    text += &format!(
        "operations: {done} done, {refused} refused, {unknown} of unknown outcome; {} answers judged, {} parts of histories left \
         undecided; {} events, {} checks of whole clusters\n",
        sum.judged, sum.undecided, sum.events, sum.looks
    );
    text += &format!("members: {}\n{}\n", sum.counts, sum.service.said_of_steps());
    output::print(text.as_bytes())
}

/// One line: shrinking takes minutes.
fn said_before_shrinking(report: &StormReport) -> String {
    let violation = report.violation.as_ref().map(ToString::to_string).unwrap_or_default();
    let violation = violation.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("seed {} fails, and is being cut down to fewer faults: {violation}", report.seed)
}

/// All faults of the smallest storm, and what else happened last.
fn print_timeline(report: &StormReport, attempts: usize) -> Outcome {
    let mut text = format!(
        "\nseed {} cut down in {attempts} attempts to {} injected faults: {}\n",
        report.seed,
        report.injected.len(),
        report.plan
    );
    let lines = &report.timeline;
    for (at, line) in lines.iter().enumerate() {
        if line.kind == "fault" || lines.len() <= at + LINES_MAX {
            text += &format!("{line}\n");
        }
    }
    output::print(text.as_bytes())
}

/// The command that runs the storm of this seed again.
fn replay(seed: u64, options: &Options) -> String {
    ["kattu sim", &options.words(), &format!("--seed {seed}")]
        .into_iter()
        .filter(|words| !words.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

fn print_violations(sum: &Sum, minutes: Option<u64>, options: &Options) -> Outcome {
    let mut text = String::new();
    for (seed, violation) in &sum.violations {
        let length = minutes.map(|minutes| format!(" --minutes {minutes}")).unwrap_or_default();
        text += &format!("violation: {violation}\nreplay: {}{length}\n", replay(*seed, options));
    }
    output::print(text.as_bytes())
}

fn print_last_line(sum: &Sum, seeds: std::ops::Range<u64>, seconds: f64) -> Outcome {
    let line = format!(
        "{} storms, {} violations, seeds {}..{}, {} cluster-seconds, {seconds:.1} s\n",
        sum.storms,
        sum.violations.len(),
        seeds.start,
        seeds.end,
        sum.time / 1_000_000_000
    );
    output::print(line.as_bytes())
}

fn as_json(sum: &Sum, seeds: std::ops::Range<u64>, seconds: f64, options: &Options) -> Value {
    let faults: serde_json::Map<String, Value> =
        Fault::ALL.iter().map(|&fault| (fault.id().to_string(), sum.faults.count(fault).into())).collect();
    let pairs: serde_json::Map<String, Value> = sum
        .faults
        .pairs()
        .iter()
        .map(|((first, second), storms)| (format!("{}+{}", first.id(), second.id()), (*storms).into()))
        .collect();
    let violations: Vec<Value> = sum
        .violations
        .iter()
        .map(|(seed, violation)| {
            json!({
                "seed": seed,
                "property": violation.property,
                "story": violation.story,
                "replay": replay(*seed, options),
            })
        })
        .collect();
    json!({
        "family": options.family.name(),
        "storms": sum.storms,
        "violations": violations,
        "seeds": {"start": seeds.start, "end": seeds.end},
        "cluster_seconds": sum.time / 1_000_000_000,
        "seconds": seconds,
        "operations": {"done": sum.operations.0, "refused": sum.operations.1, "unknown": sum.operations.2},
        "judged": sum.judged,
        "undecided": sum.undecided,
        "faults": faults,
        "pairs": pairs,
        "elsewhere": ELSEWHERE.iter().map(|(id, _)| *id).collect::<Vec<_>>(),
        "not_built_yet": NOT_BUILT,
    })
}

fn speed(args: &SimArgs) -> Outcome {
    let began = Instant::now();
    let report = run_plan(Plan::calm(1, SPEED_SECONDS), &Options::default());
    let seconds = began.elapsed().as_secs_f64();
    if let Some(violation) = report.violation {
        return Err(Ended::failed(violation));
    }
    let simulated = report.time as f64 / 1e9;
    let requests = (report.done + report.refused + report.unknown) as f64 / simulated;
    let per_second = simulated / seconds;
    match args.output {
        Format::Json => output::print_json(&json!({
            "cluster_seconds": simulated,
            "seconds": seconds,
            "cluster_seconds_per_second": per_second,
            "requests_per_cluster_second": requests,
            "events": report.events,
        })),
        Format::Table => output::print(
            format!(
                "{simulated:.0} cluster-seconds in {seconds:.2} s on one core: {per_second:.0} per second ({} members, \
                 {requests:.1} requests and {:.0} events per cluster-second)\n",
                report.members,
                report.events as f64 / simulated
            )
            .as_bytes(),
        ),
    }
}

/// Elections on slow disks: the first one, and no other.
fn slow_disk(args: &SimArgs) -> Outcome {
    let hours = args.hours.unwrap_or(1);
    let first = args.seed.unwrap_or(1);
    let count = args.storms.unwrap_or(if args.seed.is_some() { 1 } else { 5 });
    let mut rows = Vec::new();
    let mut elected = 0;
    for seed in first..first.saturating_add(count) {
        let plan = Plan::slow_disk(seed, hours * 3600);
        let sync = plan.pace.disk.sync / 1_000_000;
        let report = run_plan(plan, &Options::default());
        if let Some(violation) = report.violation {
            return Err(Ended::failed(format!("seed {seed}: {violation}")));
        }
        let elections = report.counts.elections.saturating_sub(1);
        elected += elections;
        rows.push((seed, sync, report.done, report.time / 1_000_000_000, elections));
    }
    match args.output {
        Format::Json => {
            let of = |row: &(u64, u64, u64, u64, u64)| json!({"seed": row.0, "sync_ms": row.1, "done": row.2, "cluster_seconds": row.3, "elections": row.4});
            output::print_json(&json!(rows.iter().map(of).collect::<Vec<_>>()))?;
        }
        Format::Table => {
            let of = |row: &(u64, u64, u64, u64, u64)| {
                let sync = format!("{}–{} ms", row.1, row.1 * 8 / 5);
                vec![row.0.to_string(), sync, row.2.to_string(), row.3.to_string(), row.4.to_string()]
            };
            let titles =
                ["seed", "a sync takes", "requests done", "cluster-seconds", "elections after the first"];
            output::print_table(&titles, rows.iter().map(of).collect())?;
        }
    }
    if elected == 0 { Ok(()) } else { Err(Ended::failed(format!("{elected} elections on slow disks"))) }
}
