//! The Petri net on the command line: one run, its eleven times, and a page that plays it.
//!
//! Knows nothing of: how the net is simulated.

use crate::page;
use clap::{Args, ValueEnum};
use kattu_output::{Ended, Format, Outcome};
use kattu_petri::{
    Load, Parameters, Prediction, Report, Setting, Stage, Stages, Weak, player, predict, profiles,
};
use serde::de::DeserializeOwned;
use serde_json::json;
use std::path::{Path, PathBuf};

/// Settings of a run of the net.
#[derive(Args, Debug)]
#[command(after_help = "\
The net is a model: it says what follows from the times of single steps, not what a cluster does. docs/petri.md explains it.

Examples:
  kattu lab petri --protocol raft --clients 1024
  kattu lab petri --protocol nb-raft --clients 1024 --weak gap
  kattu lab petri --protocol nb-raft --clients 1024 --ordered      # no wait, no gain
  kattu lab petri --clients 64 --dispatchers 8                     # the queue of the dispatchers
  kattu lab petri --stages stages.json --clients 64 --ordered -o json
  kattu lab petri --clients 8 --page petri.html                    # Raft and NB-Raft side by side, played")]
pub struct PetriArgs {
    /// raft, or nb-raft: with a window, and weak replies unless --weak says otherwise
    #[arg(long, value_enum, default_value = "raft")]
    protocol: Protocol,
    /// Clients, each with one request under way
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    clients: u64,
    /// Requests per second of a Poisson stream, in place of clients that wait for their reply
    #[arg(long, value_name = "PER_SECOND", conflicts_with = "clients")]
    rate: Option<f64>,
    /// Dispatchers of each follower [default: as many as clients]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    dispatchers: Option<u32>,
    /// Each follower has one stream that keeps the order
    #[arg(long)]
    ordered: bool,
    /// Members, the leader included
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(2..=33))]
    replicas: u64,
    /// Bytes of a request
    #[arg(long, value_name = "BYTES", default_value_t = 4096)]
    payload: u64,
    /// Places of the window of nb-raft
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    window: u64,
    /// When a client gets a weak reply [default: gap for nb-raft, off for raft]
    #[arg(long, value_enum)]
    weak: Option<WeakReply>,
    /// What the steps take: after a published system
    #[arg(long, value_enum, default_value = "iotdb", conflicts_with_all = ["parameters", "stages"])]
    profile: Profile,
    /// What the steps take: a JSON file as -o json prints below "parameters"
    #[arg(long, value_name = "FILE", conflicts_with = "stages")]
    parameters: Option<PathBuf>,
    /// What the steps take: a JSON file with mean stages of a Kattu cluster, see docs/petri.md
    #[arg(long, value_name = "FILE")]
    stages: Option<PathBuf>,
    /// Decides everything that is drawn: one seed is one run
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Replies that are measured, after a quarter as many that are not
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    requests: u64,
    /// Format of the output
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
    /// Also write a page that plays a small run of Raft and one of NB-Raft
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Protocol {
    Raft,
    NbRaft,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum WeakReply {
    /// Never
    Off,
    /// When a majority has appended the entry or keeps it in a window
    Gap,
    /// When a majority has received the entry
    Receipt,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Profile {
    /// Apache IoTDB
    Iotdb,
    /// Apache Ratis
    Ratis,
}

impl PetriArgs {
    fn setting(&self) -> Setting {
        let clients = usize::try_from(self.clients).unwrap_or(usize::MAX);
        let is_nb = self.protocol == Protocol::NbRaft;
        let weak = match self.weak {
            Some(WeakReply::Off) => Weak::Off,
            Some(WeakReply::Gap) => Weak::Gap,
            Some(WeakReply::Receipt) => Weak::Receipt,
            None if is_nb => Weak::Gap,
            None => Weak::Off,
        };
        let load = match self.rate {
            Some(per_second) => Load::Open { per_second },
            None => Load::Closed { clients },
        };
        let base = Setting::raft(clients);
        Setting {
            replicas: usize::try_from(self.replicas).unwrap_or(usize::MAX),
            load,
            dispatchers: self.dispatchers.unwrap_or(base.dispatchers),
            payload_bytes: self.payload,
            window: if is_nb { self.window } else { 0 },
            weak,
            ordered_stream: self.ordered,
            seed: self.seed,
            requests: self.requests,
            warm_up: self.requests / 4,
            ..base
        }
    }

    fn parameters(&self) -> Result<Parameters, Ended> {
        if let Some(path) = &self.parameters {
            return read(path);
        }
        match &self.stages {
            Some(path) => {
                let stages: Stages = read(path)?;
                Parameters::from_stages(&stages).map_err(|error| wrong(path, &error))
            }
            None => Ok(match self.profile {
                Profile::Iotdb => profiles::iotdb(),
                Profile::Ratis => profiles::ratis(),
            }),
        }
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T, Ended> {
    let text = std::fs::read_to_string(path).map_err(|error| wrong(path, &error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| wrong(path, &error.to_string()))
}

fn wrong(path: &Path, error: &str) -> Ended {
    Ended::usage(format!("{}: {error}", path.display()))
}

/// Runs the net, prints what was measured, and writes the page if one is wanted.
///
/// # Errors
/// An argument does not fit the others, a file cannot be read or written.
pub fn run(args: &PetriArgs) -> Outcome {
    let (parameters, setting) = (args.parameters()?, args.setting());
    let prediction = predict(&parameters, &setting).map_err(Ended::usage)?;
    if let Some(path) = &args.page {
        let html = page(&parameters, &setting, &prediction)?;
        std::fs::write(path, html).map_err(|error| wrong(path, &error.to_string()))?;
    }
    match args.output {
        Format::Json => kattu_output::print_json(&json!({
            "setting": setting,
            "parameters": parameters,
            "report": prediction.report,
            "transitions": prediction.transitions,
            "digest": format!("{:016x}", prediction.digest),
        })),
        Format::Table => {
            kattu_output::print_table(&HEAD, rows(&prediction.report))?;
            kattu_output::print(lines(&prediction).as_bytes())?;
            match &args.page {
                Some(path) => kattu_output::print(format!("{}\n", path.display()).as_bytes()),
                None => Ok(()),
            }
        }
    }
}

const HEAD: [&str; 6] = ["step", "time", "mean, µs", "p99, µs", "share, %", "limited by"];

fn rows(report: &Report) -> Vec<Vec<String>> {
    let row = |(time, stage): (&kattu_petri::measured::Time, Stage)| {
        vec![
            time.step.to_string(),
            time.name.to_string(),
            format!("{:.1}", time.mean_us),
            format!("{:.1}", time.p99_us),
            format!("{:.2}", time.share * 100.0),
            stage.limit().to_string(),
        ]
    };
    report.times.iter().zip(Stage::ALL).map(row).collect()
}

fn lines(prediction: &Prediction) -> String {
    let report = &prediction.report;
    let [first, second, third, fourth] = report.steps_us;
    format!(
        "steps 1 to 4: {first:.1}, {second:.1}, {third:.1}, {fourth:.1} µs\n\
         throughput: {:.0} replies/s, {:.0} applied/s; {:.1} % of the replies are weak\n\
         latency to the reply: median {:.0} µs, p99 {:.0} µs; until applied: median {:.0} µs, p99 {:.0} µs\n\
         {:.1} % of the entries came to a follower before their predecessor, {:.1} % had to wait there\n\
         {} transitions, digest {:016x}\n",
        report.accepted_per_s,
        report.strong_per_s,
        report.weak_share * 100.0,
        report.accepted.p50_us,
        report.accepted.p99_us,
        report.strong.p50_us,
        report.strong.p99_us,
        report.disorder * 100.0,
        report.waited * 100.0,
        prediction.transitions,
        prediction.digest,
    )
}

/// The page: what was measured, and the player.
fn page(parameters: &Parameters, setting: &Setting, prediction: &Prediction) -> Result<String, Ended> {
    let runs = player::compared(parameters, setting).map_err(Ended::usage)?;
    let head: String = HEAD.iter().map(|cell| format!("<th>{cell}</th>")).collect();
    let row = |row: Vec<String>| {
        let cells: String = row.iter().map(|cell| format!("<td>{}</td>", page::inline(cell))).collect();
        format!("<tr>{cells}</tr>")
    };
    let rows: String = rows(&prediction.report).into_iter().map(row).collect();
    let body = format!(
        "<style>body {{ max-width: 96rem; }}</style>\n<h1>A Petri net of log replication</h1>\n{LEGEND}\n{}\n\
         <h2>What was measured</h2>\n<p>This is the run of the command line, with {} and a window of {} places. The runs above \
         are small: two replicas, and few clients that issue quickly.</p>\n\
         <div class=\"wide\"><table><tr>{head}</tr>{rows}</table></div>\n<pre>{}</pre>\n",
        player::html(&runs),
        match setting.load {
            Load::Closed { clients } => format!("{clients} clients, {} replicas", setting.replicas),
            Load::Open { per_second } =>
                format!("{per_second} requests per second, {} replicas", setting.replicas),
        },
        setting.window,
        page::inline(&lines(prediction)),
    );
    Ok(page::document("A Petri net of log replication", &body))
}

const LEGEND: &str = "\
<p>A circle is a place, with its tokens as dots or as a number. A filled bar is a transition that takes no time; an empty bar takes \
time, and is grey while it does. A broken arrow carries a token only in some cases; a dotted line reads a token and leaves it. \
Dotted circles are places that are drawn elsewhere. Black (white on a dark page) is Raft, red is what only NB-Raft has, blue is the \
loop in which an appender waits for earlier entries. Guards are in italics.</p>
<p>Watch <code>Pending[f]</code>: in Raft an entry that comes too early stays there in the blue loop, and keeps its dispatcher. In \
NB-Raft it goes on into the window, the dispatcher is free, and <code>EarlyReturn</code> lets the client go on.</p>";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: PetriArgs,
    }

    fn args(words: &[&str]) -> PetriArgs {
        Line::try_parse_from([&["petri"], words].concat()).expect("arguments").args
    }

    #[test]
    fn arguments_become_a_setting() {
        let setting = args(&["--protocol", "nb-raft", "--clients", "8", "--ordered"]).setting();
        assert_eq!((setting.window, setting.weak, setting.dispatchers), (10_000, Weak::Gap, 8));
        assert!(setting.ordered_stream);
        let setting = args(&["--rate", "1000", "--dispatchers", "3"]).setting();
        assert_eq!((setting.load, setting.dispatchers), (Load::Open { per_second: 1000.0 }, 3));
        assert_eq!(setting.check(), Ok(()));
    }

    #[test]
    fn what_does_not_fit_together_is_refused_with_the_reason() {
        let ended = run(&args(&["--weak", "gap", "--requests", "10"])).expect_err("a refusal");
        assert_eq!(ended.message(), "weak replies need a window: protocol nb-raft");
        let ended = run(&args(&["--stages", "/nowhere/stages.json"])).expect_err("a refusal");
        assert!(ended.message().starts_with("/nowhere/stages.json: "), "{}", ended.message());
        assert!(Line::try_parse_from(["petri", "--clients", "0"]).is_err());
        assert!(Line::try_parse_from(["petri", "--replicas", "1"]).is_err());
    }

    #[test]
    fn a_page_has_the_table_and_the_player() {
        let (parameters, mut setting) = (profiles::iotdb(), args(&["--clients", "8"]).setting());
        (setting.requests, setting.warm_up) = (200, 0);
        let prediction = predict(&parameters, &setting).expect("a run");
        let page = page(&parameters, &setting, &prediction).expect("a page");
        for part in ["<!doctype html>", "t_wait(F)", "petri-player", "NB-Raft", "data-control=\"step\""] {
            assert!(page.contains(part), "{part}");
        }
        assert_eq!(rows(&prediction.report).len(), 11);
    }
}
