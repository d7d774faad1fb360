//! `cargo xtask bench instructions`: the number of instructions of one put, on the leader and on a follower.
//!
//! Three members run under valgrind's callgrind, which counts every instruction of the process outside the kernel. One
//! cluster gets few puts, another many; the difference of their instructions, divided by that of their puts, is the
//! cost of one put, without starts, elections and stops. With a second binary, both run in turns and are compared.
//! Counts hardly depend on other load of the machine; groups do (valgrind makes members slow, and so groups large), so
//! the figure is for comparing, not for adding up.
//! Knows nothing of: times.

use super::cluster::{Cluster, MEMBERS, Program};
use super::counts::load;
use super::report::{self, Header, median_of};
use crate::commands::misused;
use crate::shell::{self, Failure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Puts of a long run.
pub(super) const TOTAL: u64 = 10_000;
/// Divisor: the puts of a short run.
const SHORT_PART: u64 = 5;

struct Settings {
    total: u64,
    rounds: u64,
    programs: Vec<PathBuf>,
}

/// Instructions per put of the leader, and of a follower.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cost {
    pub leader: f64,
    pub follower: f64,
}

/// Runs every binary so many times in turns, prints a line for each run and the medians.
pub fn run(words: &[&str]) -> Result<(), Failure> {
    let settings = settings(words)?;
    find_valgrind()?;
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

/// An error if this machine cannot count instructions.
pub(super) fn find_valgrind() -> Result<(), Failure> {
    let asked = Command::new("valgrind").arg("--version").output();
    if !asked.is_ok_and(|out| out.status.success()) {
        return Err(Failure::new("no valgrind on this machine: it counts the instructions")
            .then("install the package valgrind"));
    }
    Ok(())
}

/// Instructions of each role, and of all members, which is the cost of a put.
type Share = (&'static str, fn(&Cost) -> f64);
const JUDGED: [Share; 3] = [
    ("leader", |cost| cost.leader),
    ("follower", |cost| cost.follower),
    ("all members", |cost| cost.leader + (MEMBERS - 1) as f64 * cost.follower),
];

fn settings(words: &[&str]) -> Result<Settings, Failure> {
    let mut settings = Settings { total: TOTAL, rounds: 3, programs: vec![shell::kattu()?] };
    for pair in words.chunks(2) {
        let number = |text: &str, least: u64| {
            let number = text.parse().ok().filter(|number| least <= *number);
            number.ok_or_else(|| Failure::usage(format!("{text}: not a number of at least {least}")))
        };
        match *pair {
            ["--total", text] => settings.total = number(text, 100)?,
            ["--rounds", text] => settings.rounds = number(text, 1)?,
            ["--against", path] => settings.programs.push(path.into()),
            _ => return Err(misused("bench instructions")),
        }
    }
    match settings.programs.iter().find(|program| !program.exists()) {
        Some(path) => {
            Err(Failure::new(format!("{} is not there", path.display())).then("cargo build --release"))
        }
        None => Ok(settings),
    }
}

/// Measures a binary once. The clusters have the loopback addresses of `number` and of the number after it.
pub(super) fn measure(kattu: &Path, total: u64, number: usize) -> Result<Cost, Failure> {
    let short = total / SHORT_PART;
    let few = instructions(kattu, short, number)?;
    let many = instructions(kattu, total, number + 1)?;
    let each = |many: f64, few: f64| (many - few) / (total - short) as f64;
    Ok(Cost { leader: each(many.leader, few.leader), follower: each(many.follower, few.follower) })
}

/// Instructions of the members from their start to their end, with so many puts in between.
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
            .ok_or_else(|| Failure::new(format!("callgrind printed no count for n{i}:\n{log}")))?;
        match i == leader {
            true => cost.leader = count,
            false => cost.follower += count / (MEMBERS - 1) as f64,
        }
    }
    Ok(cost)
}

/// The number in callgrind's last line: `==7== Collected : 123`.
fn collected(log: &str) -> Option<f64> {
    let line = log.lines().rev().find_map(|line| line.split_once("Collected :"))?;
    line.1.trim().parse().ok()
}

/// The medians of several measurements.
pub(super) fn medians(costs: &[Cost]) -> Cost {
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
