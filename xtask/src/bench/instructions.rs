//! `cargo xtask bench instructions`: how many instructions one put takes, on the leader and on a follower.
//!
//! Three members run under valgrind's callgrind, which counts every instruction of the process outside the kernel. Few puts
//! and many are put to clusters of their own; what the second takes more than the first, by what it puts more, is the cost
//! of one put, without starts, elections and stops. A second program may be named: both take turns, and are compared.
//! Counts hardly depend on what else the machine does; groups do (valgrind makes members slow, and so groups large), so
//! that the figure is for comparing, not for adding up.
//! Knows nothing of: times.

use super::cluster::{Cluster, MEMBERS, Program};
use super::counts::load;
use super::report::{self, Header, median_of};
use crate::shell::{self, Failure};
use std::path::{Path, PathBuf};

const USAGE: &str = "cargo xtask bench instructions [--total PUTS] [--rounds N] [--against PATH]";
/// The part of the puts that a short run has.
const SHORT_PART: u64 = 5;

struct Settings {
    total: u64,
    rounds: u64,
    programs: Vec<PathBuf>,
}

/// Instructions of the leader, and of a follower.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cost {
    leader: f64,
    follower: f64,
}

/// Runs every program so many times in turns, prints a line for each run and the medians.
pub fn run(words: &[&str]) -> Result<(), Failure> {
    let settings = settings(words)?;
    Header::now(settings.rounds as usize, false).print();
    println!("\n| program | round | instructions per put, leader | follower |\n|---|---|---|---|");
    let mut costs = vec![Vec::new(); settings.programs.len()];
    for round in 0..settings.rounds {
        for (program, costs) in settings.programs.iter().zip(&mut costs) {
            let cost = measure(program, settings.total, (2 * round) as usize)?;
            println!("| {} | {round} | {:.0} | {:.0} |", program.display(), cost.leader, cost.follower);
            costs.push(cost);
        }
    }
    let medians: Vec<Cost> = costs.iter().map(|costs| medians(costs)).collect();
    println!();
    for (program, cost) in settings.programs.iter().zip(&medians) {
        println!("{}: median {:.0} / {:.0}", program.display(), cost.leader, cost.follower);
    }
    let [this, other] = &costs[..] else { return Ok(()) };
    let mut dearer = Vec::new();
    report::print_price_head();
    for (name, pick) in JUDGED {
        let of = |costs: &[Cost]| costs.iter().map(pick).collect::<Vec<f64>>();
        dearer.extend(report::price(name, &of(this), &of(other)));
    }
    report::judge_price(&dearer)
}

/// Whose instructions: of each role, and of all members, which is what a put costs.
type Share = (&'static str, fn(&Cost) -> f64);
const JUDGED: [Share; 3] = [
    ("leader", |cost| cost.leader),
    ("follower", |cost| cost.follower),
    ("all members", |cost| cost.leader + (MEMBERS - 1) as f64 * cost.follower),
];

fn settings(words: &[&str]) -> Result<Settings, Failure> {
    let mut settings =
        Settings { total: 10_000, rounds: 3, programs: vec![shell::target().join("release/kattu")] };
    for pair in words.chunks(2) {
        let number = |text: &str, least: u64| {
            let number = text.parse().ok().filter(|number| least <= *number);
            number.ok_or_else(|| Failure::usage(format!("{text}: a number from {least} on is wanted")))
        };
        match *pair {
            ["--total", text] => settings.total = number(text, 100)?,
            ["--rounds", text] => settings.rounds = number(text, 1)?,
            ["--against", path] => settings.programs.push(path.into()),
            _ => return Err(Failure::usage(USAGE)),
        }
    }
    match settings.programs.iter().find(|program| !program.exists()) {
        Some(path) => {
            Err(Failure::new(format!("{} is not there", path.display())).then("cargo build --release"))
        }
        None => Ok(settings),
    }
}

fn measure(kattu: &Path, total: u64, number: usize) -> Result<Cost, Failure> {
    let short = total / SHORT_PART;
    let few = instructions(kattu, short, number)?;
    let many = instructions(kattu, total, number + 1)?;
    let each = |many: f64, few: f64| (many - few) / (total - short) as f64;
    Ok(Cost { leader: each(many.leader, few.leader), follower: each(many.follower, few.follower) })
}

/// What members did from their start to their end, with so many puts between.
fn instructions(kattu: &Path, total: u64, number: usize) -> Result<Cost, Failure> {
    let words = ["--tool=callgrind", "--callgrind-out-file=/dev/null", &kattu.to_string_lossy(), "serve"];
    let words = words.map(ToString::to_string).to_vec();
    let program = Program { name: "kattu", path: "valgrind".into(), words };
    let folder = shell::target().join("bench/instructions");
    let etcdctl = shell::tools_dir().join("etcd36/etcdctl");
    let mut cluster = Cluster::start(&program, &folder, 150 + number, &etcdctl)?;
    let leader = cluster.leader().ok_or_else(|| Failure::new("the leader went away"))?;
    load(kattu, &cluster, leader, total)?;
    if cluster.leader() != Some(leader) {
        return Err(Failure::new("the leader changed during the run: the figures would be mixed"));
    }
    cluster.stop()?;
    let mut cost = Cost { leader: 0.0, follower: 0.0 };
    for i in 0..MEMBERS {
        let log = std::fs::read_to_string(folder.join(format!("n{i}.log")))?;
        let count = collected(&log)
            .ok_or_else(|| Failure::new(format!("callgrind does not say what n{i} did:\n{log}")))?;
        match i == leader {
            true => cost.leader = count,
            false => cost.follower += count / (MEMBERS - 1) as f64,
        }
    }
    Ok(cost)
}

/// The number in callgrind's last words: `==7== Collected : 123`.
fn collected(log: &str) -> Option<f64> {
    let line = log.lines().rev().find_map(|line| line.split_once("Collected :"))?;
    line.1.trim().parse().ok()
}

fn medians(costs: &[Cost]) -> Cost {
    Cost { leader: median_of(costs, |cost| cost.leader), follower: median_of(costs, |cost| cost.follower) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_read_from_the_last_words() {
        let log =
            "==9== Events    : Ir\n{\"level\":\"info\"}\n==9== Collected : 271828\n==9== \n==9== I   refs:";
        assert_eq!(collected(log), Some(271_828.0));
        assert_eq!(collected("nothing"), None);
    }

    #[test]
    fn a_median_is_of_each_role() {
        let costs = [(1.0, 9.0), (2.0, 8.0), (9.0, 7.0)].map(|(leader, follower)| Cost { leader, follower });
        assert_eq!(medians(&costs), Cost { leader: 2.0, follower: 8.0 });
    }
}
