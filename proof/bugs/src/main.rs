//! The planted bugs, one after the other, each with its seeds, its judge and its control.
//!
//! ```text
//!  kattu-bugs                 every bug: seeds from 0 on until its judge claims it; then the same seeds without a bug
//!  kattu-bugs --fast          every bug: the witness on record, with and without the bug
//!  kattu-bugs --alone         the judges of service: for each a bug that it alone sees, by its witness
//!  kattu-bugs --only NAME     one bug
//!  kattu-bugs --seed S NAME   one bug, one seed: what is found with it and without it
//!  kattu-bugs --by TRIAL NAME what else sees it: storms, service, protocol or images, seeds from 0 on, any violation
//!  kattu-bugs --control N     no bug: the first N seeds of everything that has seeds
//!  kattu-bugs --storm S       no bug: the storm of one seed, cut down, if it has a violation
//!  kattu-bugs --show NAME     the timeline of one failing storm, shrunk
//!  kattu-bugs --write         every bug, and the witnesses on record are written anew
//!  kattu-bugs --list          the table
//!  kattu-bugs --doc           docs/planted-bugs.md is written anew
//! ```
//! `cargo xtask bugs` builds this program with the bugs in it and passes its arguments on.
//! Knows nothing of: how the bugs work, how a world is simulated.
#![forbid(unsafe_code)]

mod catch;
mod document;
mod histories;
mod images;
#[cfg(all(test, kattu_planted))]
mod peers;
mod protocol;
mod round_trips;
mod scenarios;
mod service;
mod storms;
mod table;
mod trial;
mod witness;

use crate::trial::{Finding, run, search};
use kattu_mutants::{BUGS, Bug, Trial};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::time::Instant;

/// Seeds a bug gets before it counts as missed; `KATTU_SEEDS` overrides it. A storm over peers takes a millisecond.
const SEEDS_MAX: u64 = 1000;
const PROTOCOL_SEEDS_MAX: u64 = 10_000;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if !cfg!(kattu_planted) {
        eprintln!("this build knows no bugs\nnext: cargo xtask bugs {}", words.join(" "));
        return ExitCode::from(2);
    }
    catch::quietly();
    let done = match words.as_slice() {
        [] => all(&BUGS.iter().collect::<Vec<_>>(), false),
        ["--write"] => all(&BUGS.iter().collect::<Vec<_>>(), true),
        ["--fast"] => fast(),
        ["--part", first, step] => part(first, step),
        ["--alone"] => alone(),
        ["--alone-part", first, step] => alone_part(first, step),
        ["--list"] => {
            println!("{}", table::of_bugs());
            Ok(())
        }
        ["--doc"] => document::write().map_err(|error| format!("docs/planted-bugs.md: {error}")),
        ["--control", count] => clean(count),
        ["--storm", seed] => number(seed).map(|seed| {
            print!(
                "{}",
                storms::timeline("", seed).unwrap_or_else(|| format!("seed {seed} breaks no promise\n"))
            );
        }),
        ["--seed", seed, name] => find(name).and_then(|bug| one(bug, seed)),
        ["--only", name] => find(name).and_then(|bug| all(&[bug], false)),
        ["--by", trial, name] => find(name).and_then(|bug| by(bug, trial)),
        ["--show", name] => find(name).and_then(show),
        other => Err(format!("`{}` is not understood; see cargo xtask bugs --help", other.join(" "))),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn seeds_max(trial: Trial) -> u64 {
    let usual = if trial == Trial::Protocol { PROTOCOL_SEEDS_MAX } else { SEEDS_MAX };
    std::env::var("KATTU_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(usual)
}

fn find(name: &str) -> Result<&'static Bug, String> {
    let found = kattu_mutants::find(name).map(|(_, bug)| bug);
    found.ok_or_else(|| {
        format!("no planted bug is named {name}; `cargo xtask bugs --list` shows those there are")
    })
}

/// The root of the workspace whose pages and witnesses are read and written: `KATTU_ROOT` where this is built of a copy.
fn root() -> PathBuf {
    std::env::var_os("KATTU_ROOT")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")), PathBuf::from)
}

/// Runs with a bug in it.
fn with<T>(bug: &Bug, run: impl FnOnce() -> T) -> T {
    let (number, _) = kattu_mutants::find(bug.name).expect("the bug is of the table");
    kattu_plant::choose(number);
    let result = run();
    kattu_plant::choose(0);
    result
}

/// Every bug from seed 0 on, and then the same seeds without it.
fn all(bugs: &[&'static Bug], write: bool) -> Result<(), String> {
    let start = Instant::now();
    let mut rows = Vec::new();
    let mut missed = Vec::new();
    for &bug in bugs {
        let began = Instant::now();
        let (caught, beside) = with(bug, || {
            search(bug.trial, bug.name, 0, seeds_max(bug.trial), |finding| finding.is_claimed_by(bug))
        });
        let seconds = began.elapsed().as_secs_f64();
        match &caught {
            Some(finding) => {
                eprintln!(
                    "{:<36} seed {:>4}  {:>6.1} s  {}",
                    bug.name, finding.seed, seconds, finding.property
                );
            }
            None => {
                eprintln!("{:<36} MISSED     {seconds:>6.1} s", bug.name);
                missed.push(bug.name);
            }
        }
        for other in beside.iter().take(3) {
            eprintln!("    beside: seed {}: {} {}", other.seed, other.property, first_line(&other.story));
        }
        rows.push((bug, caught));
    }
    let dirty = control(&rows);
    println!("{}", table::of_catches(&rows));
    let mut needed: Vec<u64> =
        rows.iter().filter_map(|(_, caught)| Some(caught.as_ref()?.seed + 1)).collect();
    needed.sort_unstable();
    let median = needed.get(needed.len() / 2).copied().unwrap_or(0);
    println!(
        "{} bugs, {} caught, median {median} seeds, {} controls dirty, {:.0} s",
        rows.len(),
        rows.len() - missed.len(),
        dirty.len(),
        start.elapsed().as_secs_f64()
    );
    if write {
        witness::write(&rows).map_err(|error| error.to_string())?;
    }
    verdict(&missed, &dirty)?;
    if rows.len() == BUGS.len() {
        alone()?;
    }
    match silent(&rows).as_slice() {
        [] => Ok(()),
        silent => Err(format!(
            "judges that have caught nothing of what was planted for them: {}",
            silent.join(", ")
        )),
    }
}

/// The judges that bugs were planted for, and that claimed none of theirs.
fn silent(rows: &[(&'static Bug, Option<Finding>)]) -> Vec<&'static str> {
    let judges: BTreeSet<&str> = rows.iter().map(|(bug, _)| bug.judges[0]).collect();
    let claimed = |judge: &&str| {
        rows.iter().any(|(bug, caught)| {
            bug.judges[0] == *judge && caught.as_ref().is_some_and(|finding| finding.names(judge))
        })
    };
    judges.into_iter().filter(|judge| !claimed(judge)).collect()
}

/// The same seeds without a bug: each kind of trial up to the highest seed that any of its bugs needed.
fn control(rows: &[(&'static Bug, Option<Finding>)]) -> Vec<String> {
    let mut upto: BTreeMap<(Trial, &str), u64> = BTreeMap::new();
    for (bug, caught) in rows {
        let scenario = trial::setting(bug);
        let highest = caught.as_ref().map_or(0, |finding| finding.seed);
        let known = upto.entry((bug.trial, scenario)).or_default();
        *known = (*known).max(highest);
    }
    let mut dirty = Vec::new();
    for ((trial, scenario), highest) in upto {
        let (_, findings) = search(trial, scenario, 0, highest + 1, |_| false);
        eprintln!("control: {} {scenario} 0..={highest}: {} findings", trial.name(), findings.len());
        dirty.extend(findings.iter().map(|finding| {
            format!(
                "{} {scenario} seed {}: {}: {}",
                trial.name(),
                finding.seed,
                finding.property,
                finding.story
            )
        }));
    }
    dirty
}

/// One bug and one seed.
fn one(bug: &Bug, seed: &str) -> Result<(), String> {
    let seed = number(seed)?;
    let told = |finding: Option<Finding>| match finding {
        Some(finding) => format!("{}: {}", finding.property, finding.story),
        None => "nothing".to_string(),
    };
    println!("with {}: {}", bug.name, told(with(bug, || run(bug.trial, bug.name, seed))));
    println!("without: {}", told(run(bug.trial, bug.name, seed)));
    Ok(())
}

/// Searches another kind of trial for a bug: its first finding.
fn by(bug: &Bug, trial: &str) -> Result<(), String> {
    let trials = [Trial::Storms, Trial::Service, Trial::Protocol, Trial::Images];
    let trial = trials.into_iter().find(|known| known.name() == trial);
    let trial =
        trial.ok_or_else(|| "the trials with seeds are storms, service, protocol and images".to_string())?;
    let (found, _) = with(bug, || search(trial, bug.name, 0, seeds_max(trial), |_| true));
    let finding = found.ok_or_else(|| {
        format!("none of {} seeds of {} shows {}", seeds_max(trial), trial.name(), bug.name)
    })?;
    println!("{}: seed {}: {}: {}", bug.name, finding.seed, finding.property, finding.story);
    Ok(())
}

/// The first seeds without any bug.
fn clean(count: &str) -> Result<(), String> {
    let count = number(count)?;
    let mut dirty = Vec::new();
    for trial in [Trial::Protocol, Trial::Images, Trial::Storms] {
        let (_, findings) = search(trial, "", 0, count, |_| false);
        println!("{}: {count} seeds, {} findings", trial.name(), findings.len());
        dirty.extend(findings.iter().map(|finding| {
            format!("{} seed {}: {}: {}", trial.name(), finding.seed, finding.property, finding.story)
        }));
    }
    verdict(&[], &dirty)
}

fn number(word: &str) -> Result<u64, String> {
    word.parse().map_err(|_| format!("`{word}` is no number"))
}

/// Every bug by its witness, and the witness without the bug.
fn fast() -> Result<(), String> {
    let start = Instant::now();
    let (mut rows, mut missed, mut moved) = (Vec::new(), Vec::new(), Vec::new());
    let mut controls = BTreeSet::new();
    for (bug, (has_moved, caught)) in BUGS.iter().zip(on_all_cores()?) {
        if has_moved {
            moved.push(bug.name);
        }
        match &caught {
            Some(finding) => {
                let scenario = trial::setting(bug);
                controls.insert((bug.trial, scenario, finding.seed));
            }
            None => missed.push(bug.name),
        }
        rows.push((bug, caught));
    }
    let dirty = each_clean(&controls);
    println!("{}", table::of_catches(&rows));
    if !moved.is_empty() {
        println!("witnesses that moved: {}\nnext: cargo xtask bugs --write", moved.join(", "));
    }
    println!(
        "{} bugs, {} caught by witnesses, {} controls dirty, {:.0} s",
        rows.len(),
        rows.len() - missed.len(),
        dirty.len(),
        start.elapsed().as_secs_f64()
    );
    verdict(&missed, &dirty)?;
    alone()
}

/// What a bug's witness shows, and whether the search had to begin anew because the world has changed since.
type ByWitness = (bool, Option<Finding>);

/// All bugs by their witnesses.
fn on_all_cores() -> Result<Vec<ByWitness>, String> {
    let mut found: Vec<Option<ByWitness>> = vec![None; BUGS.len()];
    for line in lines_of_parts("--part")? {
        let (number, shown) = of_line(&line).ok_or_else(|| format!("no result of a bug: {line}"))?;
        found[number] = Some(shown);
    }
    let all: Option<Vec<ByWitness>> = found.into_iter().collect();
    all.ok_or_else(|| "a bug without a result".to_string())
}

/// What this program prints when each core does a part of the work. The choice of a bug belongs to a process: each core
/// has one, with every n-th piece.
fn lines_of_parts(flag: &str) -> Result<Vec<String>, String> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let this = std::env::current_exe().map_err(|error| format!("the path of this program: {error}"))?;
    let start = |first: usize| {
        let mut part = Command::new(&this);
        part.args([flag, &first.to_string(), &cores.to_string()]).stdout(Stdio::piped());
        part.spawn().map_err(|error| format!("{}: {error}", this.display()))
    };
    let mut parts = Parts(Vec::with_capacity(cores));
    for first in 0..cores {
        parts.0.push(start(first)?);
    }
    let mut lines = Vec::new();
    for part in &mut parts.0 {
        let mut text = String::new();
        let output = part.stdout.as_mut().ok_or("a part without an output")?;
        output.read_to_string(&mut text).map_err(|error| error.to_string())?;
        let status = part.wait().map_err(|error| error.to_string())?;
        if !status.success() {
            return Err(format!("a part of the bugs ended with {status}"));
        }
        lines.extend(text.lines().map(String::from));
    }
    Ok(lines)
}

/// Processes that end with this one's work.
struct Parts(Vec<Child>);

impl Drop for Parts {
    fn drop(&mut self) {
        for part in &mut self.0 {
            let _ = part.kill(); // one that has ended is left alone
            let _ = part.wait();
        }
    }
}

/// Every `step`th bug from `first` on, by its witness: a line each, for [`on_all_cores`].
fn part(first: &str, step: &str) -> Result<(), String> {
    let (first, step) = (number(first)? as usize, number(step)? as usize);
    let witnesses = witness::read()?;
    for (number, bug) in BUGS.iter().enumerate().skip(first).step_by(step.max(1)) {
        let seed = witnesses.get(bug.name).copied().unwrap_or(0);
        let claimed = |finding: &Finding| finding.is_claimed_by(bug);
        let caught = with(bug, || search(bug.trial, bug.name, seed, 1, claimed)).0;
        let has_moved = caught.is_none();
        let caught = match has_moved {
            true => with(bug, || search(bug.trial, bug.name, 0, seeds_max(bug.trial), claimed)).0,
            false => caught,
        };
        println!("{}", to_line(number, &(has_moved, caught)));
    }
    Ok(())
}

/// The number of a bug, `same` or `moved`, and, if it was caught, the seed and the properties.
fn to_line(number: usize, (has_moved, caught): &ByWitness) -> String {
    let place = if *has_moved { "moved" } else { "same" };
    let caught = caught.as_ref().map(|Finding { seed, property, .. }| format!(" {seed} {property}"));
    format!("{number} {place}{}", caught.unwrap_or_default())
}

fn of_line(line: &str) -> Option<(usize, ByWitness)> {
    let mut words = line.splitn(4, ' ');
    let number = words.next()?.parse().ok().filter(|number| *number < BUGS.len())?;
    let has_moved = match words.next()? {
        "moved" => true,
        "same" => false,
        _ => return None,
    };
    let caught = match (words.next(), words.next()) {
        (None, _) => None,
        (Some(seed), Some(property)) => {
            Some(Finding { seed: seed.parse().ok()?, property: property.into(), story: String::new() })
        }
        (Some(_), None) => return None,
    };
    Some((number, (has_moved, caught)))
}

/// Seeds tried from a bug's witness on, for one that a single judge sees.
const ALONE_SEEDS: u64 = 32;

/// Each judge of service must have a bug that it alone catches: with that judge ignored, the same storm has no
/// violation from its beginning to its end.
fn alone() -> Result<(), String> {
    let lines = lines_of_parts("--alone-part")?;
    lines.iter().for_each(|line| println!("{line}"));
    let is_seen = |judge: &&str| lines.iter().any(|line| line.starts_with(&format!("{judge} alone sees ")));
    match service::JUDGES.into_iter().all(|judge| is_seen(&judge)) {
        true => Ok(()),
        false => Err("a judge of service sees no bug alone: the lines above".to_string()),
    }
}

/// Every `step`th judge from `first` on: a line each, for [`alone`].
fn alone_part(first: &str, step: &str) -> Result<(), String> {
    let (first, step) = (number(first)? as usize, number(step)? as usize);
    let witnesses = witness::read()?;
    for judge in service::JUDGES.into_iter().skip(first).step_by(step.max(1)) {
        let of_it = BUGS.iter().filter(|bug| bug.trial == Trial::Service && bug.judges[0] == judge);
        let known = of_it.filter_map(|bug| Some((bug, witnesses.get(bug.name).copied()?)));
        let mut seeds =
            known.flat_map(|(bug, first)| (first..first + ALONE_SEEDS).map(move |seed| (bug, seed)));
        let mut others = BTreeSet::new();
        let sole = seeds.find(|&(bug, seed)| {
            let found = |silent| with(bug, || service::trial(bug.name, seed, silent));
            if let Some((property, _)) = found(Some(judge)) {
                others.insert(format!("{} by {property}", bug.name));
                return false;
            }
            found(None).is_some_and(|(property, _)| property == judge)
        });
        match sole {
            Some((bug, seed)) => println!("{judge} alone sees {} (seed {seed})", bug.name),
            None => println!("{judge} sees no bug alone: {}", Vec::from_iter(others).join(", ")),
        }
    }
    Ok(())
}

/// Runs each of these without any bug, on all threads; their findings.
fn each_clean(controls: &BTreeSet<(Trial, &str, u64)>) -> Vec<String> {
    let left = Mutex::new(controls.iter());
    let dirty = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let next = left.lock().expect("no thread panics with it").next();
                    let Some(&(trial, scenario, seed)) = next else { return };
                    let Some(broken) = run(trial, scenario, seed) else { continue };
                    let said = format!(
                        "{} {scenario} seed {seed}: {}: {}",
                        trial.name(),
                        broken.property,
                        broken.story
                    );
                    dirty.lock().expect("no thread panics with it").push(said);
                }
            });
        }
    });
    let mut dirty = dirty.into_inner().expect("no thread panicked with it");
    dirty.sort_unstable();
    dirty
}

fn verdict(missed: &[&str], dirty: &[String]) -> Result<(), String> {
    match (missed, dirty) {
        ([], []) => Ok(()),
        ([], dirty) => Err(format!("without a bug, and still:\n{}", dirty.join("\n"))),
        (missed, _) => Err(format!("no judge claimed: {}", missed.join(", "))),
    }
}

/// The shrunk timeline of the storm that shows a bug.
fn show(bug: &'static Bug) -> Result<(), String> {
    if bug.trial != Trial::Storms {
        return Err(format!("{} is found by {}, which have no timeline", bug.name, bug.trial.name()));
    }
    let seed = witness::read()?.get(bug.name).copied().unwrap_or(0);
    with(bug, || {
        let claimed = |finding: &Finding| finding.is_claimed_by(bug);
        let (near, _) = search(bug.trial, bug.name, seed, 1, claimed);
        let caught = near.or_else(|| search(bug.trial, bug.name, 0, seeds_max(bug.trial), claimed).0);
        let finding = caught.ok_or_else(|| format!("no storm shows {}", bug.name))?;
        println!("planted: {} ({})\n{}\n", bug.name, bug.incident, bug.story);
        let timeline = storms::timeline(bug.name, finding.seed);
        print!("{}", timeline.ok_or_else(|| format!("seed {} shows nothing the second time", finding.seed))?);
        Ok(())
    })
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_survives_its_line() {
        let finding = || Finding { seed: 7, property: "commits, durability".into(), story: String::new() };
        for result in [(false, Some(finding())), (true, Some(finding())), (true, None)] {
            let (number, (has_moved, caught)) = of_line(&to_line(3, &result)).expect("a line");
            let told = |caught: &Option<Finding>| caught.as_ref().map(|it| (it.seed, it.property.clone()));
            assert_eq!((number, has_moved, told(&caught)), (3, result.0, told(&result.1)));
        }
        for line in ["", "3", "3 gone", "x same", "3 same 7", "3 same x commits", "99999 same"] {
            assert!(of_line(line).is_none(), "{line}");
        }
    }
}
