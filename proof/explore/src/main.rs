//! `explore`: visits every world of the requested scopes and reports how many there are.
//!
//! Exit code 1: a guarantee is violated, or there are fewer worlds than were pinned. 2: invalid arguments.
//! Knows nothing of: the search.

use kattu_explore::scope::{self, Mark, SCOPES, Scope, When};
use kattu_explore::{Report, explore_and_tell};
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "\
explore [--scope NAME]... [--states N] [--plant BUG] [--list]

  (nothing)       the scopes of every commit, judged by their pinned numbers of states
  --scope NAME    this scope only; may be repeated
  --states N      a campaign: all scopes in turn until N states were seen; fewer are a failure
  --plant BUG     with this bug in every member (`cargo xtask explore` builds what knows bugs)
  --list          the scopes
";

struct Wanted {
    scopes: Vec<&'static Scope>,
    states: Option<u64>,
    bug: Option<String>,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match wanted(&words) {
        Ok(Some(wanted)) => run(&wanted),
        Ok(None) => ExitCode::SUCCESS,
        Err(complaint) => {
            eprintln!("{complaint}\n\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn wanted(words: &[String]) -> Result<Option<Wanted>, String> {
    let mut wanted = Wanted { scopes: Vec::new(), states: None, bug: None };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} wants a value"));
        match word.as_str() {
            "--help" | "-h" => {
                print!("{USAGE}");
                return Ok(None);
            }
            "--list" => {
                for scope in SCOPES {
                    println!("{:<18} {:>9}  {}", scope.name, scope.pinned, scope.about);
                }
                return Ok(None);
            }
            "--scope" => {
                let name = value()?;
                let scope = scope::find(name).ok_or_else(|| format!("no scope `{name}`; see --list"))?;
                wanted.scopes.push(scope);
            }
            "--states" => {
                let number = value()?;
                let states = number.parse().ok().filter(|states| *states > 0);
                wanted.states =
                    Some(states.ok_or_else(|| format!("--states wants a number above 0, not `{number}`"))?);
            }
            "--plant" => {
                let name = value()?;
                plant(name)?;
                wanted.bug = Some(name.clone());
            }
            other => return Err(format!("explore does not know `{other}`")),
        }
    }
    if wanted.scopes.is_empty() {
        let all = wanted.states.is_some();
        wanted.scopes.extend(SCOPES.iter().filter(|scope| all || scope.when == When::Always));
    }
    Ok(Some(wanted))
}

#[cfg(kattu_planted)]
fn plant(name: &str) -> Result<(), String> {
    let (number, _) = kattu_mutants::find(name).ok_or(format!("no planted bug is named {name}"))?;
    kattu_plant::choose(number);
    Ok(())
}

#[cfg(not(kattu_planted))]
fn plant(_: &str) -> Result<(), String> {
    Err("this build knows no bugs; run it by `cargo xtask explore --plant`".into())
}

fn run(wanted: &Wanted) -> ExitCode {
    println!(
        "{:<18} {:>10} {:>10} {:>11} {:>6} {:>8} {:>9} {:>10} {:>8}",
        "scope", "states", "pinned", "transitions", "depth", "members", "core runs", "states/s", "seconds"
    );
    let (mut states, mut depth, mut violations, mut failures) = (0, 0, 0, 0);
    let mut took = Duration::ZERO;
    for scope in &wanted.scopes {
        if wanted.states.is_some_and(|enough| enough <= states) {
            break;
        }
        match explore_and_tell(scope, |states, depth| show(scope, states, depth)) {
            Ok(report) => {
                states += report.states;
                depth = depth.max(report.depth);
                took += report.took;
                failures += u64::from(!told(scope, &report));
            }
            Err(broken) => {
                violations += 1;
                states += broken.states;
                depth = depth.max(broken.timeline.len());
                took += broken.took;
                clear();
                println!("{:<18} {:>10} states until\n\n{broken}", scope.name, broken.states);
                println!("replay: {}\n", replay(scope, wanted.bug.as_deref()));
            }
        }
    }
    if let Some(target) = wanted.states.filter(|target| states < *target && violations == 0) {
        println!("these scopes have {states} states, {target} were asked for");
        failures += 1;
    }
    let seconds = took.as_secs_f64();
    println!(
        "{states} states, {violations} violations, depth {depth}, {:.0} states/s, {seconds:.1} s",
        states as f64 / seconds.max(0.001)
    );
    ExitCode::from(u8::from(violations + failures > 0))
}

fn replay(scope: &Scope, bug: Option<&str>) -> String {
    match bug {
        None => format!("cargo xtask explore --scope {}", scope.name),
        Some(bug) => format!("cargo xtask explore --plant {bug} --scope {}", scope.name),
    }
}

/// Prints a scope's line; false if it shows less than it must.
fn told(scope: &Scope, report: &Report) -> bool {
    clear();
    let seconds = report.took.as_secs_f64();
    println!(
        "{:<18} {:>10} {:>10} {:>11} {:>6} {:>8} {:>9} {:>10.0} {:>8.1}",
        scope.name,
        report.states,
        scope.pinned,
        report.transitions,
        report.depth,
        report.members,
        report.core_runs,
        report.states as f64 / seconds.max(0.001),
        seconds,
    );
    let missing: Vec<&Mark> = scope.must_see.iter().filter(|mark| !report.seen.contains(mark)).collect();
    if !report.sights.is_empty() {
        let counts = report.sights.iter().map(|(sight, worlds)| format!("{} in {worlds}", sight.name()));
        println!("  {}", counts.collect::<Vec<_>>().join(", "));
    }
    if !report.counts.is_empty() {
        let named = |(mark, times): &(Mark, u64)| Some(format!("{times} {}", mark.counted()?));
        println!("  {}", report.counts.iter().filter_map(named).collect::<Vec<_>>().join(", "));
    }
    if !missing.is_empty() {
        println!("  never happened: {missing:?}");
    }
    if report.states < scope.pinned {
        println!("  fewer states than the {} pinned: behaviour was lost", scope.pinned);
    } else if report.states > scope.pinned {
        println!("  more states than pinned: understand why, then pin {} in scope.rs", report.states);
    }
    missing.is_empty() && scope.pinned <= report.states
}

fn show(scope: &Scope, states: u64, depth: usize) {
    if std::io::stderr().is_terminal() {
        eprint!("\r{:<18} {states:>10} states, depth {depth} ", scope.name);
        // Progress output is optional.
        let _ = std::io::stderr().flush();
    }
}

fn clear() {
    if std::io::stderr().is_terminal() {
        eprint!("\r{:60}\r", "");
    }
}
