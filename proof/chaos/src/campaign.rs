//! Campaigns of many trials: progress, failures as they come, tables, and a last line for programs.
//!
//! Knows nothing of: members, faults.

use crate::calls::{Harm, KINDS, Phase};
use crate::faults::{Fault, Skipped};
use crate::flips;
use crate::kills;
use crate::limited::Use;
use crate::rules::Rules;
use crate::storm::skipped;
use crate::trial::{self, Setting};
use crate::weak;
use indicatif::ProgressBar;
use kattu_rig::faces::Spoken;
use kattu_rig::metrics_check::Seen;
use kattu_rig::progress::bar;
use kattu_rig::target::Target;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Longer than an election and than TCP needs after a cut: worth a look, though the machine may be busy.
const SLOW: Duration = Duration::from_secs(5);

/// Settings from the command line.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Number of trials.
    pub trials: u64,
    /// The seed of the first; the others count up.
    pub seed: u64,
    /// The system under test.
    pub target: Target,
    /// About how long a storm lasts.
    pub length: Duration,
    /// Trials at once.
    pub jobs: u64,
    /// Chaos that cheats: a trial in which the judges find nothing has failed.
    pub is_control: bool,
    /// Chaos with weak clients.
    pub is_weak: bool,
    /// No trial begins after this.
    pub most: Option<Duration>,
}

#[derive(Debug, Default)]
struct Sum {
    trials: u64,
    violations: u64,
    operations: u64,
    writes: u64,
    refused: u64,
    unknown: u64,
    judged: u64,
    lost: u64,
    seen: Seen,
    spoken: Spoken,
    weak: weak::Done,
    /// Violations, one line each, to be repeated at the end of a long output.
    broken: Vec<String>,
}

impl Sum {
    fn add(&mut self, ends: kattu_rig::record::Ends, judged: u64, lost: u64, seen: Seen) {
        self.trials += 1;
        self.seen.add(seen);
        self.operations += ends.operations;
        self.writes += ends.writes;
        self.refused += ends.refused;
        self.unknown += ends.unknown;
        self.judged += judged;
        self.lost += lost;
    }

    /// Counts a trial with violations.
    fn violated(&mut self, seed: u64, violations: &[String]) {
        self.violations += 1;
        self.broken.extend(violations.iter().map(|violation| format!("seed {seed}: {}", short(violation))));
    }

    /// Prints the violations and the last line, which other programs read.
    fn end(&self, begun: Instant) -> ExitCode {
        println!("{}", self.seen.line());
        println!("{}", self.spoken.line());
        println!(
            "{} operations: {} refused, {} of unknown outcome; {} answers judged; {:.0} s",
            self.operations,
            self.refused,
            self.unknown,
            self.judged,
            begun.elapsed().as_secs_f64()
        );
        self.broken.iter().for_each(|line| println!("{line}"));
        println!(
            "{} trials, {} violations, {} acknowledged writes, {} lost",
            self.trials, self.violations, self.writes, self.lost
        );
        if self.violations + self.lost == 0 && 0 < self.trials {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}

/// Counts one trial. Where no progress bar can be drawn, prints a line now and then.
fn step(bar: &ProgressBar, sum: &Sum) {
    let message = format!("{} writes, {} violations", sum.writes, sum.violations);
    bar.inc(1);
    if bar.is_hidden() && sum.trials.is_multiple_of(10) {
        println!("{} of {} trials, {message}", sum.trials, bar.length().unwrap_or(0));
    }
    bar.set_message(message);
}

fn report(bar: &ProgressBar, verb: &str, settings: &Settings, seed: u64, violations: &[String]) {
    let target = if settings.target == Target::Etcd { " --target etcd" } else { "" };
    let weak = if settings.is_weak { " --weak" } else { "" };
    bar.suspend(|| {
        for violation in violations {
            println!("seed {seed}: {violation}");
        }
        println!("kept: target/chaos/{verb}-{}-{seed}-{}", settings.target.name(), std::process::id());
        println!("repeat: cargo xtask {verb} --trials 1 --seed {seed}{target}{weak}");
    });
}

/// Runs trials on so many threads until all are done or the time is over.
fn each(settings: &Settings, run: impl Fn(u64) + Sync) {
    let (next, begun) = (AtomicU64::new(0), Instant::now());
    std::thread::scope(|scope| {
        for _ in 0..settings.jobs {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let is_late = settings.most.is_some_and(|most| most < begun.elapsed());
                    if settings.trials <= number || is_late {
                        return;
                    }
                    run(settings.seed.wrapping_add(number));
                }
            });
        }
    });
}

/// `cargo xtask chaos`.
pub fn chaos(settings: &Settings) -> ExitCode {
    let begun = Instant::now();
    let rules = Rules::find();
    let skipped = Skipped(skipped(settings.target, &rules));
    for (faults, why) in &skipped.0 {
        for fault in faults {
            println!("SKIPPED {}: {why}", fault.name());
        }
    }
    let setting = Setting {
        target: settings.target,
        length: settings.length,
        rules,
        skipped,
        is_control: settings.is_control,
        is_weak: settings.is_weak,
    };
    let bar = bar(settings.trials);
    let total = Mutex::new((
        Sum::default(),
        BTreeMap::<Fault, u64>::new(),
        BTreeMap::<&str, u64>::new(),
        Vec::new(),
        Vec::new(),
    ));
    let caught = AtomicU64::new(0);
    each(settings, |seed| {
        let outcome = trial::run(seed, &setting);
        let mut total = total.lock().expect("nobody panics with it");
        let (sum, faults, pieces, backs, limited) = &mut *total;
        limited.extend(outcome.limited.0.then_some(outcome.limited.1));
        sum.add(outcome.ends, outcome.judged, outcome.lost, outcome.seen);
        sum.spoken.add(outcome.spoken);
        sum.weak.add(outcome.weak);
        let is_caught = outcome.is_caught(settings.is_weak);
        for (fault, count) in outcome.faults {
            *faults.entry(fault).or_default() += count;
        }
        for (what, count) in outcome.pieces {
            *pieces.entry(what).or_default() += count;
        }
        backs.extend((Duration::ZERO < outcome.back).then_some(outcome.back));
        if SLOW < outcome.back {
            bar.suspend(|| println!("seed {seed}: everybody serves {:.1?} after the faults", outcome.back));
        }
        if settings.is_control {
            caught.fetch_add(u64::from(is_caught), Ordering::Relaxed);
            let shown = outcome.violations.last().map_or("nothing is seen".to_string(), |it| short(it));
            let weak = match settings.is_weak {
                true => format!(", {} breaches of weak clients", outcome.weak_broken),
                false => String::new(),
            };
            bar.suspend(|| println!("seed {seed}: {} lost{weak}; {shown}", outcome.lost));
        } else if !outcome.violations.is_empty() {
            sum.violated(seed, &outcome.violations);
            report(&bar, "chaos", settings, seed, &outcome.violations);
        }
        step(&bar, sum);
    });
    bar.finish_and_clear();
    let (mut sum, faults, pieces, mut backs, limited) = total.into_inner().expect("nobody panics with it");
    println!("{:<5} {:<36} {:>7}", "id", "fault", "times");
    let mut all: Vec<Fault> = Fault::OF_PROCESSES.iter().chain(Fault::OF_NETWORKS).copied().collect();
    all.retain(|fault| settings.is_weak || *fault != Fault::Protocol);
    all.sort_by_key(|fault| fault.id());
    for fault in all {
        let times = match setting.skipped.has(fault) {
            true => "skipped".to_string(),
            false => faults.get(&fault).copied().unwrap_or(0).to_string(),
        };
        println!("{:<5} {:<36} {times:>7}", fault.id(), fault.name());
    }
    let pieces: Vec<String> = pieces.iter().map(|(what, count)| format!("{count} {what}")).collect();
    println!(
        "pieces on links: {}",
        if pieces.is_empty() { "none touched".into() } else { pieces.join(", ") }
    );
    backs.sort();
    if let (Some(middle), Some(longest)) = (backs.get(backs.len() / 2), backs.last()) {
        println!("everybody serves after the faults: median {middle:.2?}, longest {longest:.2?}");
    }
    println!("{}", used(&limited));
    if settings.is_weak {
        println!("{}", sum.weak.line());
        if let Some(missing) = sum.weak.lacks_evidence().filter(|_| !settings.is_control) {
            sum.violations += 1;
            sum.broken.push(missing);
        }
    }
    if settings.is_control {
        let caught = caught.into_inner();
        println!("{} trials that cheated, {caught} caught", sum.trials);
        return if caught == sum.trials { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    sum.end(begun)
}

/// A summary of all trials with limited links.
fn used(limited: &[Option<Use>]) -> String {
    let mut goodputs: Vec<f64> = limited.iter().flatten().map(Use::goodput).collect();
    goodputs.sort_by(f64::total_cmp);
    let of = |place: usize| goodputs.get(place).map_or("-".to_string(), |goodput| format!("{goodput:.2}"));
    format!(
        "{} trials with limited links, {} of them with a member that came back over one: goodput at least {}, median {}",
        limited.len(),
        goodputs.len(),
        of(0),
        of(goodputs.len() / 2)
    )
}

/// The first words of a violation.
fn short(story: &str) -> String {
    story.chars().take(240).map(|it| if it == '\n' { ' ' } else { it }).collect()
}

/// `cargo xtask kills`.
pub fn kills(settings: &Settings) -> ExitCode {
    let begun = Instant::now();
    if let Err(why) = crate::calls::can_strike() {
        println!("SKIPPED kills: {why}");
        return ExitCode::SUCCESS;
    }
    let ranges = match kills::measure(settings.target) {
        Ok(ranges) => ranges,
        Err(error) => {
            eprintln!("a run without any harm failed: {error}");
            return ExitCode::FAILURE;
        }
    };
    println!("calls of one thread, measured:");
    for kind in KINDS {
        let of = |phase| {
            ranges.get(&(phase, *kind)).map_or("-".to_string(), |(first, last)| format!("{first}..{last}"))
        };
        let columns: Vec<String> =
            Phase::ALL.iter().map(|phase| format!("{} {}", phase.name(), of(*phase))).collect();
        println!("  {:<26} {}", kind, columns.join(", "));
    }
    let bar = bar(settings.trials);
    let total = Mutex::new((
        Sum::default(),
        BTreeMap::<(&str, Harm), Cell>::new(),
        BTreeMap::<Phase, (u64, u64)>::new(),
    ));
    each(settings, |seed| {
        let outcome = kills::run(seed, settings.target, &ranges);
        let mut total = total.lock().expect("nobody panics with it");
        let (sum, cells, phases) = &mut *total;
        sum.add(outcome.ends, outcome.judged, outcome.lost, outcome.seen);
        sum.spoken.add(outcome.spoken);
        cells
            .entry((outcome.strike.kind, outcome.strike.harm))
            .or_default()
            .add(outcome.strike.n, outcome.was_met);
        let phase = phases.entry(outcome.strike.phase).or_default();
        phase.0 += u64::from(outcome.was_met);
        phase.1 += 1;
        if !outcome.violations.is_empty() {
            sum.violated(seed, &outcome.violations);
            report(&bar, "kills", settings, seed, &outcome.violations);
        }
        step(&bar, sum);
    });
    bar.finish_and_clear();
    let (sum, cells, phases) = total.into_inner().expect("nobody panics with it");
    println!("members that met their strike, of all, by n:");
    print!("{:<26} {:<20}", "call", "harm");
    BUCKETS.iter().for_each(|(name, _)| print!(" {name:>9}"));
    println!(" {:>9}", "all");
    for ((kind, harm), cell) in &cells {
        print!("{:<26} {:<20}", kind, harm.name());
        cell.0.iter().for_each(|(met, all)| {
            print!(" {:>9}", if *all == 0 { String::new() } else { format!("{met}/{all}") })
        });
        let (met, all) = cell.sum();
        println!(" {:>9}", format!("{met}/{all}"));
    }
    for (phase, (met, all)) in &phases {
        println!("{}: {met} of {all} met", phase.name());
    }
    sum.end(begun)
}

/// Columns of the table: the last n of each.
const BUCKETS: &[(&str, u64)] =
    &[("1-3", 3), ("4-15", 15), ("16-63", 63), ("64-255", 255), ("256+", u64::MAX)];

/// (met, all) per bucket.
#[derive(Debug, Default)]
struct Cell([(u64, u64); BUCKETS.len()]);

impl Cell {
    fn add(&mut self, n: u64, was_met: bool) {
        let place = BUCKETS.iter().position(|(_, last)| n <= *last).expect("the last bucket takes all");
        self.0[place].0 += u64::from(was_met);
        self.0[place].1 += 1;
    }

    fn sum(&self) -> (u64, u64) {
        self.0.iter().fold((0, 0), |(met, all), cell| (met + cell.0, all + cell.1))
    }
}

/// Flips of one trial: few enough that the judges are quick.
const FLIPS_AT_ONCE: u64 = 25;

/// Flips bits in members' files. `trials` counts flips here. The last line: `N flips, R repaired, …`.
pub fn flips(settings: &Settings) -> ExitCode {
    let begun = Instant::now();
    let (mut sum, mut all) = (Sum::default(), flips::Outcome::default());
    let bar = bar(settings.trials);
    let mut seed = settings.seed;
    let until = settings.most.map(|most| begun + most);
    while all.flips < settings.trials && settings.most.is_none_or(|most| begun.elapsed() < most) {
        let outcome = flips::run(seed, FLIPS_AT_ONCE.min(settings.trials - all.flips), until);
        sum.add(outcome.ends, outcome.judged, outcome.lost, outcome.seen);
        sum.spoken.add(outcome.spoken);
        sum.violations += outcome.violations.len() as u64;
        all.repaired += outcome.repaired;
        all.reported += outcome.reported;
        all.replaced += outcome.replaced;
        all.harmless += outcome.harmless;
        all.promises.0 += outcome.promises.0;
        all.promises.1 += outcome.promises.1;
        all.scrubbed += outcome.scrubbed;
        all.flips += outcome.flips;
        if !outcome.violations.is_empty() {
            bar.suspend(|| {
                outcome.violations.iter().for_each(|violation| println!("seed {seed}: {violation}"));
                println!("repeat: cargo xtask flips --flips {FLIPS_AT_ONCE} --seed {seed}");
            });
            if outcome.flips == 0 {
                break; // no flip was possible
            }
        }
        bar.set_position(all.flips);
        let (repaired, reported, harmless) = (all.repaired, all.reported, all.harmless);
        let message = format!("{repaired} repaired, {reported} reported, {harmless} harmless");
        if bar.is_hidden() {
            println!("{} of {} flips, {message}, {} violations", all.flips, settings.trials, sum.violations);
        }
        bar.set_message(message);
        seed += 1;
    }
    bar.finish_and_clear();
    println!("{}", sum.seen.line());
    println!("{}", sum.spoken.line());
    println!(
        "{} promises hit, {} of them waited for; {} members ended by a scrub after their start",
        all.promises.0, all.promises.1, all.scrubbed
    );
    println!(
        "{} operations: {} refused, {} of unknown outcome; {} answers judged; {} violations; {:.0} s",
        sum.operations,
        sum.refused,
        sum.unknown,
        sum.judged,
        sum.violations,
        begun.elapsed().as_secs_f64()
    );
    println!(
        "{} flips, {} repaired, {} reported ({} replaced), {} harmless, {} acknowledged writes, {} lost",
        all.flips, all.repaired, all.reported, all.replaced, all.harmless, sum.writes, sum.lost
    );
    match sum.violations + sum.lost {
        0 if 0 < all.flips => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}
