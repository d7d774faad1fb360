//! The command `kattu lab`: a program of its own, so that a build of Kattu builds no laboratory.
//!
//! Knows nothing of: what an experiment measures, how it is judged.
#![forbid(unsafe_code)]

use clap::{Args, Parser, Subcommand};
use kattu_lab::experiment::{Experiment, Size};
use kattu_lab::experiments;
use kattu_lab::overview;
use kattu_lab::petri::{self, PetriArgs};
use kattu_lab::report;
use kattu_lab::results::{Folder, Summary};
use kattu_lab::run::{self, Options, span};
use kattu_output::{Ended, Outcome};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Run experiments on clusters of real processes, and lay the results beside published figures
#[derive(Parser, Debug)]
#[command(name = "kattu lab", bin_name = "kattu lab", version)]
struct Command {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// List the experiments, and how long each takes
    List,
    /// Show what an experiment asks, how it is measured, and what is published about it
    Show {
        /// The experiment
        name: String,
    },
    /// Run experiments; one that was cut off goes on where it was
    Run(RunArgs),
    /// Run the Petri net of log replication: where the time of a request goes, in Raft and in NB-Raft
    Petri(Box<PetriArgs>),
    /// Make summary, figures and page again from the samples of earlier runs
    Report {
        /// Folders of results, or folders of such folders
        #[arg(required = true, value_name = "DIR")]
        folders: Vec<PathBuf>,
    },
}

#[derive(Args, Debug)]
#[command(after_help = "\
Each experiment gets a folder below --out: machine.json, samples.jsonl (every run with all its latencies), summary.json,
figures/*.svg and index.html. A run is made again if other programs had the processors, up to three times in all.

Examples:
  kattu lab run batching --quick
  kattu lab run batching pipelining --out results --others-max 5")]
struct RunArgs {
    /// The experiments; `all` for every one
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Three repetitions, and only the corners of each grid
    #[arg(long)]
    quick: bool,
    /// Where the folders of results go
    #[arg(long, value_name = "DIR", default_value = "lab-results")]
    out: PathBuf,
    /// Repetitions of every point, in place of 10 (with --quick 3)
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    repetitions: Option<u32>,
    /// Most that other programs may have of all processors during a run, in per cent
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=100))]
    others_max: u32,
    /// Decides the order of runs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A network namespace for each member, as root; otherwise each has a loopback address
    #[arg(long)]
    spaces: bool,
}

fn main() -> ExitCode {
    let outcome = match Command::parse().verb {
        Verb::List => list(),
        Verb::Show { name } => find(&name).and_then(show),
        Verb::Run(args) => run_all(&args),
        Verb::Petri(args) => petri::run(&args),
        Verb::Report { folders } => folders.iter().try_for_each(|folder| report_of(folder)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(ended) => ended.report(),
    }
}

fn list() -> Outcome {
    let row = |it: &&Experiment| {
        let takes = |size: Size| span(it.takes(size, size.repetitions()));
        vec![it.name.to_string(), it.title.to_string(), takes(Size::Quick), takes(Size::Full)]
    };
    let rows = experiments::ALL.iter().filter(|it| !it.is_hidden).map(row);
    kattu_output::print_table(&["experiment", "what it asks", "quick, about", "full, about"], rows.collect())
}

fn find(name: &str) -> Result<&'static Experiment, Ended> {
    experiments::ALL.iter().copied().find(|it| it.name == name).ok_or_else(|| {
        let names: Vec<&str> = experiments::ALL.iter().filter(|it| !it.is_hidden).map(|it| it.name).collect();
        Ended::usage(format!("there is no experiment {name}; there are {}", names.join(", ")))
    })
}

fn show(experiment: &Experiment) -> Outcome {
    let mut text = format!("{}\n", experiment.question.trim());
    for size in [Size::Quick, Size::Full] {
        let (points, repetitions) = ((experiment.points)(size).len(), size.repetitions());
        let takes = span(experiment.takes(size, repetitions));
        text += &format!(
            "\nA {size} run: {points} points, {repetitions} repetitions, about {takes} on an idle machine."
        );
    }
    text += "\n";
    if !experiment.published.is_empty() {
        text += &format!("\nPublished figures:\n\n{}\n", experiment.published.trim());
    }
    kattu_output::print(text.as_bytes())
}

fn run_all(args: &RunArgs) -> Outcome {
    if args.spaces && !kattu_rig::place::is_inside() {
        return enter();
    }
    if args.spaces {
        kattu_rig::place::raise_loopback().map_err(Ended::failed)?;
    }
    let chosen: Vec<&Experiment> = match args.names.iter().any(|name| name == "all") {
        true => experiments::ALL.iter().copied().filter(|it| !it.is_hidden).collect(),
        false => args.names.iter().map(|name| find(name)).collect::<Result<_, _>>()?,
    };
    let size = if args.quick { Size::Quick } else { Size::Full };
    let program = kattu()?;
    let mut failed = Vec::new();
    for experiment in chosen {
        let folder = Folder::at(&args.out.join(experiment.name));
        std::fs::create_dir_all(folder.path())?;
        let options = Options {
            program: program.clone(),
            size,
            repetitions: args.repetitions.unwrap_or(size.repetitions()),
            seed: args.seed,
            others_max: f64::from(args.others_max) / 100.0,
            spaces: args.spaces,
            command: command(experiment.name, args),
        };
        let without = run::run(experiment, &options, &folder).map_err(Ended::failed)?;
        tell(&report::write(experiment, &folder).map_err(Ended::failed)?)?;
        overview::write(&args.out).map_err(Ended::failed)?;
        failed.extend(without.into_iter().map(|it| format!("{}: {it}", experiment.name)));
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(Ended::failed(format!(
            "these runs failed in all of {} attempts; the same command tries them again:\n{}",
            run::ATTEMPTS,
            failed.join("\n")
        ))),
    }
}

/// Runs this program again where it may make namespaces.
fn enter() -> Outcome {
    let status = kattu_rig::place::enter().map_err(Ended::usage)?.status()?;
    match status.code() {
        Some(0) => Ok(()),
        Some(code) => Err(Ended::with_code(u8::try_from(code).unwrap_or(1), "")),
        None => Err(Ended::failed(format!("ended with {status}"))),
    }
}

/// The program under test: `KATTU_BIN`, or `kattu` beside this program.
fn kattu() -> Result<PathBuf, Ended> {
    let path = match std::env::var_os("KATTU_BIN") {
        Some(path) => PathBuf::from(path),
        None => std::env::current_exe()?.with_file_name("kattu"),
    };
    match path.exists() {
        true => Ok(path),
        false => Err(Ended::usage(format!(
            "{} not found: build it with `cargo build --release`, or name another one in KATTU_BIN",
            path.display()
        ))),
    }
}

/// The command line that repeats the run of one experiment.
fn command(name: &str, args: &RunArgs) -> String {
    let mut command = format!("kattu lab run {name}");
    if args.quick {
        command += " --quick";
    }
    if let Some(repetitions) = args.repetitions {
        command += &format!(" --repetitions {repetitions}");
    }
    if args.spaces {
        command += " --spaces";
    }
    format!("{command} --others-max {} --seed {}", args.others_max, args.seed)
}

fn report_of(path: &Path) -> Outcome {
    let folder = Folder::at(path);
    let Some(run) = folder.run_info().map_err(Ended::failed)? else {
        return report_of_all(path);
    };
    tell(&report::write(find(&run.experiment)?, &folder).map_err(Ended::failed)?)
}

/// Reports of all runs in the folders of `path`, and the page over them.
fn report_of_all(path: &Path) -> Outcome {
    let folders = experiments::ALL.iter().map(|it| path.join(it.name));
    for folder in folders.filter(|folder| folder.join("run.json").exists()) {
        report_of(&folder)?;
    }
    match overview::write(path).map_err(Ended::failed)? {
        Some(page) => kattu_output::print(format!("{}\n", page.display()).as_bytes()),
        None => Err(Ended::usage(format!("{}: has no run", path.display()))),
    }
}

/// The verdicts in a few lines, and where the page is.
fn tell((page, summary): &(PathBuf, Summary)) -> Outcome {
    let mut text = format!("{}: {} runs count", summary.experiment, summary.counted);
    if 0 < summary.disturbed {
        text += &format!(", {} of them beside other programs", summary.disturbed);
    }
    text += "\n";
    for claim in &summary.claims {
        text += &format!("  {:<12} {}: {}\n", claim.verdict.to_string(), claim.says, claim.because);
    }
    text += &format!("  {}\n", page.display());
    kattu_output::print(text.as_bytes())
}
