//! Mutation testing: small mistakes made all over a crate by its syntax; the tests of the crate must find them.
//!
//! ```text
//!  source ──▶ operators ──▶ sample ──▶ render ──▶ build ──▶ killers ──▶ report
//!             all mutants   by a seed  one copy   once      one process a mutant
//! ```
//! | File | One idea |
//! |---|---|
//! | `operators.rs` | every mutant of a file |
//! | `sample.rs` | which are tried, by a seed |
//! | `render.rs` | all of them in one text, with a choice at run time |
//! | `build.rs` | the copy of the workspace; what does not compile is dropped |
//! | `targets.rs` | the crates, and what may kill their mutants |
//! | `killers.rs` | programs with one mutant chosen, within limits |
//! | `explained.rs` | survivors that no test can kill, as data |
//! | `report.rs` | tables, data, the verdict |
//!
//! Exit code 1: too many mutants have survived without an explanation. 2: invalid arguments.
//! Knows nothing of: the product's code. The mistakes that are planted by hand are in `proof/bugs/mutants`.
#![forbid(unsafe_code)]

mod build;
mod explained;
mod killers;
mod operators;
mod render;
mod report;
mod sample;
mod targets;

use build::{Built, Place};
use explained::Explained;
use indicatif::{ProgressBar, ProgressStyle};
use killers::{Killer, Outcome};
use operators::Mutant;
use report::{Counts, Run, Tried};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use targets::{TARGETS, Target};

const USAGE: &str = "\
mutate [--crate raft|kv|member] [--count N] [--seed N] [--survivors] [--own] [--list] [--record]

  (nothing)       150 mutants of each crate
  --crate NAME    of this crate only
  --count N       so many of each crate
  --seed N        another sample (1)
  --survivors     only those that survived the last run
  --own           only the tests of the crate itself
  --list          prints the sample, tries nothing
  --record        appends the result to docs/figures/mutation.csv; a tree with changes is refused
";

/// Mutants between two lines about the progress, where there is no bar.
const TOLD_EACH: u64 = 25;

const CSV: &str = "docs/figures/mutation.csv";

struct Wanted {
    targets: Vec<&'static Target>,
    count: usize,
    seed: u64,
    survivors: bool,
    own: bool,
    list: bool,
    record: bool,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let wanted = match wanted(&words) {
        Ok(Some(wanted)) => wanted,
        Ok(None) => return ExitCode::SUCCESS,
        Err(complaint) => {
            eprintln!("{complaint}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&wanted) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn wanted(words: &[String]) -> Result<Option<Wanted>, String> {
    let mut wanted = Wanted {
        targets: Vec::new(),
        count: 150,
        seed: 1,
        survivors: false,
        own: false,
        list: false,
        record: false,
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} wants a value"));
        match word.as_str() {
            "--help" | "-h" => {
                print!("{USAGE}");
                return Ok(None);
            }
            "--crate" => {
                let name = value()?;
                wanted.targets.push(targets::find(name).ok_or_else(|| format!("no crate `{name}`"))?);
            }
            "--count" => {
                let number = value()?;
                let count = number.parse().ok().filter(|count| 0 < *count);
                wanted.count =
                    count.ok_or_else(|| format!("--count wants a number above 0, not `{number}`"))?;
            }
            "--seed" => {
                let number = value()?;
                wanted.seed = number.parse().map_err(|_| format!("--seed wants a number, not `{number}`"))?;
            }
            "--survivors" => wanted.survivors = true,
            "--own" => wanted.own = true,
            "--list" => wanted.list = true,
            "--record" => wanted.record = true,
            other => return Err(format!("mutate does not know `{other}`")),
        }
    }
    if wanted.record && (wanted.survivors || wanted.own || wanted.list) {
        return Err("--record is for whole runs".to_string());
    }
    if wanted.targets.is_empty() {
        wanted.targets.extend(TARGETS);
    }
    Ok(Some(wanted))
}

/// Tries all wanted crates; whether each of them passes.
fn run(wanted: &Wanted) -> Result<bool, String> {
    let root = std::env::current_dir().map_err(|error| error.to_string())?;
    let explained = std::fs::read_to_string(explained::path()).map_err(|error| error.to_string())?;
    let explained = explained::parse(&explained)?;
    explained::check(&root, &explained)?;
    if wanted.record && is_changed() {
        return Err("the tree differs from its commit: commit the changes, or leave --record out".to_string());
    }
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir));
    let place = Place { root, folder: target.join("mutation") };
    let mut is_passed = true;
    for target in &wanted.targets {
        is_passed &= run_target(wanted, &place, target, &explained)?;
    }
    Ok(is_passed)
}

fn run_target(
    wanted: &Wanted,
    place: &Place,
    target: &'static Target,
    explained: &[Explained],
) -> Result<bool, String> {
    let began = Instant::now();
    let date = printed("date", &["-u", "+%Y-%m-%dT%H:%M:%SZ"]);
    let all = all_mutants(&place.root, target)?;
    let possible = all.len();
    let mut ordered = sample::ordered(all, wanted.seed);
    let document = place.folder.join(format!("{}.json", target.name));
    if wanted.survivors {
        ordered = survivors(&place.root, &document, ordered)?;
    }
    let tell = |line: &str| eprintln!("{}: {line}", target.name);
    let (mutants, refused) = place.compiling(target, &ordered, wanted.count, &tell)?;
    let differences: Vec<(String, String)> = mutants
        .iter()
        .map(|mutant| text_of(&place.root, &mutant.file).map(|text| mutant.difference(&text)))
        .collect::<Result<_, _>>()?;
    if wanted.list {
        for (mutant, (before, after)) in mutants.iter().zip(&differences) {
            let Mutant { file, line, function, kind, .. } = mutant;
            println!("{file}:{line}: {function}: {}\n  - {before}\n  + {after}", kind.name());
        }
        return Ok(true);
    }
    let outcomes = outcomes(wanted, place, target, mutants.len())?;
    let mut tried = Vec::new();
    for ((mutant, difference), outcome) in mutants.into_iter().zip(differences).zip(outcomes) {
        let text = text_of(&place.root, &mutant.file)?;
        let is_alive = matches!(outcome, Outcome::Survived(_));
        let reason = explained.iter().find(|explained| is_alive && explained.fits(&mutant, &text));
        let reason = reason.map(|explained| explained.reason().to_string());
        tried.push(Tried { mutant, difference, outcome, reason });
    }
    let run = Run {
        target: target.name,
        seed: wanted.seed,
        date,
        commit: commit(),
        machine: machine(),
        seconds: began.elapsed().as_secs(),
        possible,
        refused,
    };
    println!("{}", report::text(&run, &tried));
    if !wanted.survivors {
        let text = format!("{:#}\n", report::document(&run, &tried));
        std::fs::write(&document, text).map_err(|error| format!("{}: {error}", document.display()))?;
        println!("every mutant is in {}", document.display());
    }
    if wanted.record {
        record(&place.root, &report::line(&run, &tried))?;
    }
    Ok(Counts::of(&tried).pass())
}

/// All mutants of a crate, file by file.
fn all_mutants(root: &Path, target: &Target) -> Result<Vec<Mutant>, String> {
    let mut files = Vec::new();
    rust_files(root, &root.join(target.source), &mut files)
        .map_err(|error| format!("{}: {error}", target.source))?;
    files.sort();
    let mut mutants = Vec::new();
    for file in files {
        let is_test = file.ends_with("tests.rs") || file.contains("/tests/");
        if !is_test && target.left_out.iter().all(|(left_out, _)| *left_out != file) {
            mutants.extend(operators::mutants(&file, &text_of(root, &file)?)?);
        }
    }
    Ok(mutants)
}

/// The Rust files of a folder and the folders in it, by their paths from the root.
fn rust_files(root: &Path, folder: &Path, files: &mut Vec<String>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            rust_files(root, &path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path.strip_prefix(root).unwrap_or(&path).display().to_string());
        }
    }
    Ok(())
}

fn text_of(root: &Path, file: &str) -> Result<String, String> {
    std::fs::read_to_string(root.join(file)).map_err(|error| format!("{file}: {error}"))
}

/// Those that survived the run of this document.
fn survivors(root: &Path, document: &PathBuf, mutants: Vec<Mutant>) -> Result<Vec<Mutant>, String> {
    let text = std::fs::read_to_string(document)
        .map_err(|error| format!("{}: {error}; --survivors needs a run before it", document.display()))?;
    let document = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let mut alive = report::survivors(&document);
    let mut found = Vec::new();
    for mutant in mutants {
        let (before, after) = mutant.difference(&text_of(root, &mutant.file)?);
        let key = [mutant.file.clone(), mutant.function.clone(), before, after];
        if let Some(at) = alive.iter().position(|alive| *alive == key) {
            alive.swap_remove(at);
            found.push(mutant);
        }
    }
    Ok(found)
}

/// Tries to kill mutants 1 to `count`: those that are alive meet the programs of one step after the other.
fn outcomes(wanted: &Wanted, place: &Place, target: &Target, count: usize) -> Result<Vec<Outcome>, String> {
    let mut outcomes = vec![Outcome::Survived(0); count];
    let steps = if wanted.own { &target.programs[..1] } else { target.programs };
    for program in steps {
        let alive: Vec<usize> =
            (1..=count).filter(|number| matches!(outcomes[number - 1], Outcome::Survived(_))).collect();
        eprintln!("{}: {} alive; building {}", target.name, alive.len(), program.name());
        let killers = controls(target, &place.programs(program)?, place)?;
        for (number, outcome) in alive.iter().zip(attacks(target, &killers, &alive)?) {
            let before = &mut outcomes[number - 1];
            *before = match (&*before, outcome) {
                (Outcome::Survived(some), Outcome::Survived(more)) => Outcome::Survived(some + more),
                (_, outcome) => outcome,
            };
        }
    }
    Ok(outcomes)
}

/// Runs every program without a mutant.
fn controls(target: &Target, programs: &[Built], place: &Place) -> Result<Vec<Killer>, String> {
    let bar = bar(
        programs.len(),
        &format!("{}: {{bar:40}} {{pos}}/{{len}} programs without a mutant", target.name),
    );
    let killers = on_all_cores(programs.len(), &bar, |number| {
        let reached = place.folder.join(format!("reached-{}-{number}", target.name));
        killers::control(&programs[number], &reached)
    })?;
    bar.finish_and_clear();
    for Killer { built, time, reached } in &killers {
        eprintln!(
            "{}: {:>6.1} s  reaches {:>4}  {}",
            target.name,
            time.as_secs_f64(),
            reached.len(),
            built.name
        );
    }
    Ok(killers)
}

/// Tries to kill these mutants.
fn attacks(target: &Target, killers: &[Killer], mutants: &[usize]) -> Result<Vec<Outcome>, String> {
    let bar = bar(
        mutants.len(),
        &format!("{}: {{bar:40}} {{pos}}/{{len}} mutants, {{msg}} killed, {{elapsed}}", target.name),
    );
    let killed = AtomicUsize::new(0);
    let outcomes = on_all_cores(mutants.len(), &bar, |place| {
        let outcome = killers::attack(killers, mutants[place])?;
        let more = usize::from(matches!(outcome, Outcome::Killed(..)));
        let killed = killed.fetch_add(more, Ordering::Relaxed) + more;
        bar.set_message(killed.to_string());
        // Without a terminal there is no bar.
        let tried = bar.position() + 1;
        if bar.is_hidden() && tried.is_multiple_of(TOLD_EACH) {
            eprintln!("{}: {tried} of {} tried, {killed} killed", target.name, mutants.len());
        }
        Ok(outcome)
    })?;
    bar.finish_and_clear();
    Ok(outcomes)
}

/// Works on numbers below `count`, as many at a time as there are cores.
fn on_all_cores<T: Send>(
    count: usize,
    bar: &ProgressBar,
    work: impl Fn(usize) -> Result<T, String> + Sync,
) -> Result<Vec<T>, String> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if count <= number {
                        return;
                    }
                    let result = work(number);
                    if result.is_err() {
                        // The others end what they have begun.
                        next.store(count, Ordering::Relaxed);
                    }
                    done.lock().expect("no worker panics").push((number, result));
                    bar.inc(1);
                }
            });
        }
    });
    let mut done = done.into_inner().expect("no worker panics");
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, result)| result).collect()
}

fn bar(length: usize, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).expect("a template");
    ProgressBar::new(length as u64).with_style(style)
}

/// Appends a line to the figures.
fn record(root: &Path, line: &str) -> Result<(), String> {
    let path = root.join(CSV);
    let old = std::fs::read_to_string(&path).unwrap_or_else(|_| format!("{}\n", report::COLUMNS));
    std::fs::write(&path, format!("{old}{line}\n")).map_err(|error| format!("{CSV}: {error}"))?;
    println!("appended to {CSV}");
    Ok(())
}

fn printed(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim_end().to_string()).unwrap_or_default()
}

fn git(words: &[&str]) -> String {
    printed("git", words)
}

/// Whether the tree differs from its commit. The table of results does not count: one crate after the other adds to it.
fn is_changed() -> bool {
    git(&["status", "--porcelain", "--untracked-files=no"]).lines().any(|line| !line.ends_with(CSV))
}

fn commit() -> String {
    format!("{}{}", git(&["rev-parse", "--short=12", "HEAD"]), if is_changed() { "+" } else { "" })
}

fn machine() -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let processor = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{cores} cores {}", processor.map_or("", |(_, name)| name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Option<Wanted>, String> {
        wanted(&line.split_whitespace().map(str::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn the_command_line_chooses_crates_and_the_sample() {
        let all = read("").expect("valid").expect("a run");
        assert_eq!((all.targets.len(), all.count, all.seed), (TARGETS.len(), 150, 1));
        let one = read("--crate kv --count 9 --seed 3 --record").expect("valid").expect("a run");
        assert_eq!((one.targets[0].name, one.count, one.seed, one.record), ("kv", 9, 3, true));
        for wrong in ["--crate wal", "--count 0", "--seed x", "--count", "now", "--record --list"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_crate_is_there_with_all_its_files() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for target in TARGETS {
            let manifest = text_of(&root, &target.source.replace("src", "Cargo.toml")).expect("a crate");
            assert!(manifest.contains(&format!("name = \"{}\"", target.package)));
            assert!(target.left_out.iter().all(|(file, _)| root.join(file).is_file()), "{}", target.name);
            assert!(150 <= all_mutants(&root, target).expect("Rust").len(), "{}", target.name);
        }
    }

    #[test]
    fn work_is_done_once_and_in_order() {
        let bar = ProgressBar::hidden();
        assert_eq!(on_all_cores(5, &bar, Ok), Ok(vec![0, 1, 2, 3, 4]));
        let failed =
            on_all_cores(5, &bar, |number| if number == 2 { Err("two".to_string()) } else { Ok(number) });
        assert_eq!(failed, Err("two".to_string()));
    }
}
