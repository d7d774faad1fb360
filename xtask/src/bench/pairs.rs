//! `cargo xtask bench etcd`: etcd and Kattu in alternating pairs; or another Kattu and this one.
//!
//! Pairs alternate because the machine drifts: only runs minutes apart are compared. Within a pair each side gets a
//! fresh cluster, a warm-up, then every cell; odd pairs begin with Kattu.
//! Knows nothing of: how figures are shown.

use super::cells::{self, CELLS, Cell, Tool};
use super::cluster::{Cluster, NO_FLAGS, Program};
use super::meter::{self, Meter, Reading};
use super::report::{self, Header, Run};
use crate::commands::misused;
use crate::shell::{self, Failure};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

const QUIET_LIMIT: Duration = Duration::from_secs(30);
const IDLE: Duration = Duration::from_secs(3);

struct Options {
    pairs: usize,
    quick: bool,
    only: Option<&'static Cell>,
    side: Option<String>,
    wait_for_quiet: bool,
    tool: Tool,
    /// Another Kattu binary instead of etcd.
    against: Option<PathBuf>,
    /// More flags for this binary's members.
    flags: Vec<String>,
    /// Clients use TLS, with certificates on both sides.
    in_tls: bool,
}

fn options(words: &[&str]) -> Result<Options, Failure> {
    let mut options = Options {
        pairs: 5,
        quick: false,
        only: None,
        side: None,
        wait_for_quiet: true,
        tool: Tool::Etcd,
        against: None,
        flags: Vec::new(),
        in_tls: false,
    };
    let mut words = words.iter().copied();
    let mut pairs_given = false;
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| Failure::usage(format!("{word} needs a value")));
        match word {
            "--quick" => options.quick = true,
            "--tls" => options.in_tls = true,
            "--no-wait" => options.wait_for_quiet = false,
            "--pairs" => {
                let text = value()?;
                options.pairs =
                    text.parse().map_err(|_| Failure::usage(format!("--pairs {text}: not a number")))?;
                pairs_given = true;
            }
            "--against" => options.against = Some(value()?.into()),
            "--flag" => options.flags.push(value()?.to_string()),
            "--only" => {
                let name = value()?;
                let names: Vec<&str> = CELLS.iter().map(|cell| cell.name).collect();
                let cell = CELLS.iter().find(|cell| cell.name == name);
                options.only = Some(cell.ok_or_else(|| {
                    Failure::usage(format!("no cell `{name}`; there are {}", names.join(", ")))
                })?);
            }
            "--tool" => {
                options.tool = match value()? {
                    "etcd" => Tool::Etcd,
                    "kattu" => Tool::Kattu,
                    other => return Err(Failure::usage(format!("--tool {other}: etcd or kattu"))),
                }
            }
            "--side" => {
                let side = value()?;
                if !["etcd", "kattu"].contains(&side) {
                    return Err(Failure::usage(format!("--side {side}: etcd or kattu")));
                }
                options.side = Some(side.to_string());
            }
            _ => return Err(misused("bench etcd")),
        }
    }
    if options.quick && !pairs_given {
        options.pairs = 1;
    }
    if options.against.is_some() && options.side.is_some() {
        return Err(Failure::usage("--against compares two sides, --side runs one"));
    }
    if options.pairs == 0 {
        return Err(Failure::usage("--pairs 0 measures nothing"));
    }
    Ok(options)
}

fn program(name: &'static str, options: &Options) -> Result<Program, Failure> {
    let (program, next) = match name {
        "etcd" => {
            let path = shell::tools_dir().join("etcd36/etcd");
            (Program { name, path, words: Vec::new() }, "cargo xtask tools")
        }
        report::OTHER => {
            let path = options.against.clone().unwrap_or_default();
            (Program { name, ..Program::kattu(&path, NO_FLAGS) }, "name a Kattu binary")
        }
        _ => {
            let path = shell::kattu()?;
            (Program::kattu(&path, &options.flags), "cargo build --release")
        }
    };
    match program.path.exists() {
        true => Ok(program),
        false => Err(Failure::new(format!("{} is not there", program.path.display())).then(next)),
    }
}

/// Runs the pairs, prints the table, writes JSON to `target/bench/`.
pub fn run(words: &[&str]) -> Result<(), Failure> {
    let options = options(words)?;
    let (tool, next) = match options.tool {
        Tool::Etcd => (shell::tools_dir().join("etcd36/benchmark"), "cargo xtask tools"),
        Tool::Kattu => (shell::kattu()?, "cargo build --release"),
    };
    let etcdctl = shell::tools_dir().join("etcd36/etcdctl");
    for (path, next) in [(&tool, next), (&etcdctl, "cargo xtask tools")] {
        if !path.exists() {
            return Err(Failure::new(format!("{} is not there", path.display())).then(next));
        }
    }
    let mut sides = Vec::new();
    let base = if options.against.is_some() { report::OTHER } else { "etcd" };
    for name in [base, "kattu"] {
        if options.side.as_deref().is_none_or(|side| side == name) {
            sides.push(program(name, &options)?);
        }
    }
    let header = Header::now(options.pairs, options.quick);
    header.print();
    if options.in_tls {
        println!("clients use TLS 1.3, with certificates on both sides (ECDSA P-256)");
    }
    if options.tool == Tool::Kattu {
        println!("load: kattu bench, for both sides");
    }
    let mut runs = Vec::new();
    let mut number = 0;
    for pair in 0..options.pairs {
        if pair % 2 == 1 {
            sides.reverse();
        }
        for side in &sides {
            let bench = Bench { side, pair, tool: &tool, etcdctl: &etcdctl, options: &options };
            runs.extend(bench.side(number)?);
            number += 1;
        }
        if pair % 2 == 1 {
            sides.reverse();
        }
    }
    let missed = report::print(&runs, base);
    let path = report::save(&header, options.tool, &runs)?;
    println!("\nall runs: {}", path.strip_prefix(shell::root()).unwrap_or(&path).display());
    let worse = if options.against.is_some() { report::judge_pairs(&runs) } else { Vec::new() };
    match (&worse[..], &missed[..]) {
        ([], []) => Ok(()),
        ([], missed) => Err(Failure::new(missed.join("\n"))),
        (worse, _) => Err(Failure::new(format!("worse than the other in all pairs: {}", worse.join(", ")))),
    }
}

struct Bench<'a> {
    side: &'a Program,
    pair: usize,
    tool: &'a PathBuf,
    etcdctl: &'a PathBuf,
    options: &'a Options,
}

impl Bench<'_> {
    /// One side of one pair: a fresh cluster, idle, warm-up, every cell.
    fn side(&self, number: usize) -> Result<Vec<Run>, Failure> {
        let folder = shell::root().join("target/bench/data").join(self.side.name);
        let cluster = Cluster::start_in_tls(self.side, &folder, number, self.etcdctl, self.options.in_tls)?;
        let pids = cluster.pids();
        let idle = self.idle(&pids);
        cluster.etcdctl(&["put", cells::RANGE_KEY, &"x".repeat(256)])?;
        self.load(&cluster, self.leader(&cluster)?, &cells::WARM_UP)?;
        let mut runs = Vec::new();
        for cell in CELLS.iter().filter(|cell| self.options.only.is_none_or(|only| only.name == cell.name)) {
            let mut run = self.cell(&cluster, cell)?;
            (run.idle_rss_bytes, run.idle_cpu_share) = idle;
            run.print();
            runs.push(run);
        }
        Ok(runs)
    }

    /// An idle cluster with a leader: memory of the largest member, and CPU as a share of a core per member.
    fn idle(&self, pids: &[u32]) -> (u64, f64) {
        let meter = Meter::start(pids);
        std::thread::sleep(IDLE);
        let reading = meter.stop();
        let cpu_s: f64 = reading.used.iter().map(|used| used.user_s + used.system_s).sum();
        let rss = pids.iter().map(|pid| meter::rss_bytes(*pid)).max().unwrap_or(0);
        (rss, cpu_s / reading.wall_s / pids.len() as f64)
    }

    fn cell(&self, cluster: &Cluster, cell: &Cell) -> Result<Run, Failure> {
        let pids = cluster.pids();
        if self.options.wait_for_quiet {
            meter::wait_for_quiet(&pids, QUIET_LIMIT);
        }
        let leader = self.leader(cluster)?;
        let meter = Meter::start(&pids);
        let text = self.load(cluster, leader, cell)?;
        let reading = meter.stop();
        let tool = self.options.tool.read(&text).ok_or_else(|| {
            Failure::new(format!("{} {}: no summary in\n{text}", self.side.name, cell.name))
        })?;
        Ok(Run {
            side: self.side.name,
            cell: *cell,
            pair: self.pair,
            total: self.total(cell),
            tool,
            leader,
            is_leader_stable: cluster.leader() == Some(leader),
            rss_after_bytes: pids.iter().map(|pid| meter::rss_bytes(*pid)).collect(),
            idle_rss_bytes: 0,
            idle_cpu_share: 0.0,
            reading: Reading { ..reading },
        })
    }

    fn leader(&self, cluster: &Cluster) -> Result<usize, Failure> {
        cluster.leader().ok_or_else(|| Failure::new(format!("{}: no leader", self.side.name)))
    }

    fn total(&self, cell: &Cell) -> u64 {
        if self.options.quick { cell.total / 10 } else { cell.total }
    }

    fn load(&self, cluster: &Cluster, leader: usize, cell: &Cell) -> Result<String, Failure> {
        let mut tool = Command::new(self.tool);
        // Both send to the leader only.
        match self.options.tool {
            Tool::Etcd => tool.args(["--endpoints", &cluster.endpoints(), "--target-leader", "--precise"]),
            Tool::Kattu => tool.args(["bench", "--endpoints", cluster.endpoint(leader), "-o", "json"]),
        };
        tool.args(["--conns", &cell.conns.to_string(), "--clients", &cell.clients.to_string()])
            .args(cell.calls.words(self.options.tool))
            .args(["--total", &self.total(cell).to_string()])
            .args(cluster.client_flags())
            .stderr(Stdio::null());
        shell::output(&mut tool, Duration::from_secs(240))
            .map_err(|failure| Failure::new(format!("{} {}: {failure}", self.side.name, cell.name)))
    }
}
