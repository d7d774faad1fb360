//! `cargo xtask bench counts`: the cost of one put in countable things, on the leader and on a follower.
//!
//! CPU, context switches, system calls, syncs, bytes and allocations per put at 256 clients, with log I/O and apply on
//! the driver's thread and on threads of their own. Counts are steadier than seconds: on a noisy machine they show
//! whether a change costs something. A separate build counts allocations. strace counts system calls in a separate run,
//! which it slows down, so that groups are larger there than in real life. With `--native` puts come in sessions of the
//! native protocol, many under way on each connection. With a second binary, which must count
//! allocations, too, both run in turns, and the run fails if this one costs more.
//! Knows nothing of: etcd.

use super::cluster::{Cluster, MEMBERS, Program};
use super::meter::Meter;
use super::report::{self, Header, median_of};
use crate::commands::misused;
use crate::shell::{self, Failure};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The threads of log I/O and apply: a name, and the flags of a member.
pub(super) type Setting = (&'static str, [&'static str; 2]);
/// Log I/O and apply on the driver's thread.
pub(super) const INLINE: Setting = ("log inline, apply inline", ["--log-io=inline", "--apply=inline"]);
const SETTINGS: [Setting; 4] = [
    INLINE,
    ("log inline, apply thread", ["--log-io=inline", "--apply=thread"]),
    ("log thread, apply inline", ["--log-io=thread", "--apply=inline"]),
    ("log thread, apply thread", ["--log-io=thread", "--apply=thread"]),
];
/// Puts of a measurement.
pub(super) const TOTAL: u64 = 60_000;
/// Rounds when two programs are compared.
const ROUNDS: usize = 3;
pub(super) const CLIENTS: &str = "256";
pub(super) const CONNECTIONS: &str = "100";
/// With `--native`: sessions, each on a connection of its own, and puts of each under way.
const SESSIONS: &str = "8";
const PIPELINE: &str = "128";

/// Costs of one member per put.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PerPut {
    pub cpu_us: f64,
    pub switches: f64,
    /// `None` without strace.
    pub syscalls: Option<f64>,
    pub syncs: f64,
    pub log_bytes: f64,
    pub peer_bytes: f64,
    pub allocations: f64,
    pub allocated_bytes: f64,
    pub records_encoded: f64,
}

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    setting: &'static str,
    ops_per_s: f64,
    p50_us: f64,
    pub leader: PerPut,
    /// The mean of the followers.
    pub follower: PerPut,
}

struct Settings {
    total: u64,
    rounds: usize,
    /// Another Kattu binary that counts allocations.
    against: Option<PathBuf>,
    /// More flags for this binary's members.
    flags: Vec<String>,
    face: Face<'static>,
}

/// How puts come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Face<'a> {
    Etcd,
    /// In sessions of the native protocol, so many puts of each under way.
    Native {
        sessions: &'a str,
        pipeline: &'a str,
    },
}

const NATIVE: Face<'_> = Face::Native { sessions: SESSIONS, pipeline: PIPELINE };

fn settings(words: &[&str]) -> Result<Settings, Failure> {
    let mut settings =
        Settings { total: TOTAL, rounds: 0, against: None, flags: Vec::new(), face: Face::Etcd };
    let mut words = words.to_vec();
    if let Some(at) = words.iter().position(|word| *word == "--native") {
        words.remove(at);
        settings.face = NATIVE;
    }
    for pair in words.chunks(2) {
        let number = |text: &str| {
            let number = text.parse().ok().filter(|number| 0 < *number);
            number.ok_or_else(|| Failure::usage(format!("{text}: not a number of at least 1")))
        };
        match *pair {
            ["--total", text] => settings.total = number(text)?,
            ["--rounds", text] => settings.rounds = number(text)? as usize,
            ["--against", path] => settings.against = Some(path.into()),
            ["--flag", flag] => settings.flags.push(flag.to_string()),
            _ => return Err(misused("bench counts")),
        }
    }
    if settings.rounds == 0 {
        settings.rounds = if settings.against.is_some() { ROUNDS } else { 1 };
    }
    match &settings.against {
        Some(path) if !path.exists() => Err(Failure::new(format!("{} is not there", path.display()))
            .then("cargo build --release -p kattu --features count-allocations, at the other commit")),
        _ => Ok(settings),
    }
}

/// Builds, runs every setting, prints the table, writes JSON to `target/bench/counts.json`. An error if a count of this
/// binary is higher than that of the other by more than [`report::price`] allows.
pub fn run(words: &[&str]) -> Result<(), Failure> {
    let settings = settings(words)?;
    let mut programs = vec![("kattu", build()?, settings.flags.clone())];
    programs.extend(settings.against.clone().map(|path| (report::OTHER, path, Vec::new())));
    let header = Header::now(settings.rounds, false);
    header.print();
    let strace = has_strace();
    let mut runs: Vec<Vec<Row>> = vec![Vec::new(); programs.len()];
    let mut number = 0;
    for round in 0..settings.rounds {
        for setting in SETTINGS {
            for at in 0..programs.len() {
                // Odd rounds begin with the other one.
                let at = if round % 2 == 0 { at } else { programs.len() - 1 - at };
                let (name, kattu, flags) = &programs[at];
                let load = Load::of(settings.face, settings.total);
                let row = measure(kattu, flags, setting, number, load, strace)?;
                number += 1;
                println!(
                    "{name}, {}: {:.0} puts/s, p50 {:.1} ms, leader {:.1} µs, follower {:.1} µs",
                    row.setting,
                    row.ops_per_s,
                    row.p50_us / 1e3,
                    row.leader.cpu_us,
                    row.follower.cpu_us
                );
                runs[at].push(row);
            }
        }
    }
    let of_setting = |runs: &[Row], setting: &str| -> Vec<Row> {
        runs.iter().copied().filter(|row| row.setting == setting).collect()
    };
    let medians: Vec<Vec<Row>> = runs
        .iter()
        .map(|runs| SETTINGS.map(|(setting, _)| median(&of_setting(runs, setting))).to_vec())
        .collect();
    for ((name, ..), rows) in programs.iter().zip(&medians) {
        print(name, settings.face, rows);
    }
    save(&header, settings.total, &medians[0])?;
    let [this, other] = &runs[..] else { return Ok(()) };
    let mut dearer = Vec::new();
    report::print_price_head();
    for (setting, _) in SETTINGS {
        let (this, other) = (of_setting(this, setting), of_setting(other, setting));
        for (role, member) in ROLES {
            for (name, pick) in JUDGED {
                let of = |rows: &[Row]| rows.iter().map(|row| pick(member(row))).collect::<Vec<f64>>();
                dearer.extend(report::price(&format!("{setting}, {role}: {name}"), &of(&this), &of(&other)));
            }
        }
    }
    report::judge_price(&dearer)
}

type Role = (&'static str, fn(&Row) -> &PerPut);
const ROLES: [Role; 2] = [("leader", |row| &row.leader), ("follower", |row| &row.follower)];

/// Counts that do not depend on other load of the machine, or only by the size of groups.
type Count = (&'static str, fn(&PerPut) -> f64);
const JUDGED: [Count; 6] = [
    ("log syncs", |member| member.syncs),
    ("bytes to the log", |member| member.log_bytes),
    ("bytes to peers", |member| member.peer_bytes),
    ("allocations", |member| member.allocations),
    ("allocated bytes", |member| member.allocated_bytes),
    ("records encoded", |member| member.records_encoded),
];

/// Whether system calls can be counted; prints that they are not.
pub(super) fn has_strace() -> bool {
    let has_strace = Command::new("strace").arg("-V").output().is_ok_and(|out| out.status.success());
    if !has_strace {
        println!("skipped: system calls (no strace on this machine)");
    }
    has_strace
}

/// Builds the binary that counts allocations, beside the real one.
pub(super) fn build() -> Result<PathBuf, Failure> {
    let folder = shell::target().join("counts");
    let mut cargo = shell::cargo(&["build", "--release", "-p", "kattu", "--features", "count-allocations"]);
    cargo.env("CARGO_TARGET_DIR", &folder);
    println!(
        "building the binary that counts allocations (target/counts, log in {})",
        shell::log_path("counts").display()
    );
    shell::run_logged(&mut cargo, &shell::log_path("counts"), Duration::from_secs(1800))?;
    Ok(folder.join("release/kattu"))
}

/// Measures a binary that counts allocations once, in one setting, with more flags for its members. The cluster has the
/// loopback addresses of `number`.
pub(super) fn measure(
    kattu: &Path,
    flags: &[String],
    (setting, of_setting): Setting,
    number: usize,
    load: Load<'_>,
    strace: bool,
) -> Result<Row, Failure> {
    let flags = of_setting.into_iter().chain(flags.iter().map(String::as_str));
    let program = Program::kattu(kattu, flags);
    let folder = shell::target().join("bench/counts");
    let cluster =
        Cluster::start(&program, &folder, 100 + number, &shell::tools_dir().join("etcd36/etcdctl"))?;
    let leader = cluster.leader().ok_or_else(|| Failure::new("the leader went away"))?;
    let total = load.total;
    load.with_total(total / 6).run(kattu, &cluster, leader)?; // warm-up
    let pids = cluster.pids();
    let before = (0..MEMBERS).map(|i| Facts::of(&cluster, i)).collect::<Result<Vec<_>, _>>()?;
    let meter = Meter::start(&pids);
    let report = load.run(kattu, &cluster, leader)?;
    let reading = meter.stop();
    let after = (0..MEMBERS).map(|i| Facts::of(&cluster, i)).collect::<Result<Vec<_>, _>>()?;
    if cluster.leader() != Some(leader) {
        return Err(Failure::new("the leader changed during the run: the figures would be mixed")
            .then("cargo xtask bench counts   (on a quieter machine)"));
    }
    let syscalls =
        if strace { Some(syscalls(kattu, &cluster, leader, load.with_total(total / 6))?) } else { None };
    let puts = total as f64;
    let member = |i: usize| {
        let (before, after) = (&before[i], &after[i]);
        PerPut {
            cpu_us: (reading.used[i].user_s + reading.used[i].system_s) * 1e6 / puts,
            switches: reading.used[i].switches as f64 / puts,
            syscalls: syscalls.as_ref().map(|counts| counts[i]),
            syncs: (after.syncs - before.syncs) / puts,
            log_bytes: (after.log_bytes - before.log_bytes) / puts,
            peer_bytes: (after.peer_bytes - before.peer_bytes) / puts,
            allocations: (after.allocations - before.allocations) / puts,
            allocated_bytes: (after.allocated_bytes - before.allocated_bytes) / puts,
            records_encoded: (after.records_encoded - before.records_encoded) / puts,
        }
    };
    let followers: Vec<PerPut> = (0..MEMBERS).filter(|i| *i != leader).map(member).collect();
    Ok(Row {
        setting,
        ops_per_s: report["ops_per_s"].as_f64().unwrap_or(0.0),
        p50_us: report["p50_us"].as_f64().unwrap_or(0.0),
        leader: member(leader),
        follower: mean(&followers),
    })
}

fn mean(members: &[PerPut]) -> PerPut {
    let count = members.len() as f64;
    of_each(members, |figures| figures.iter().sum::<f64>() / count)
}

/// The medians of runs of one setting.
pub(super) fn median(rows: &[Row]) -> Row {
    let of = |role: fn(&Row) -> PerPut| {
        of_each(&rows.iter().map(role).collect::<Vec<_>>(), |figures| median_of(figures, |figure| *figure))
    };
    Row {
        setting: rows[0].setting,
        ops_per_s: median_of(rows, |row| row.ops_per_s),
        p50_us: median_of(rows, |row| row.p50_us),
        leader: of(|row| row.leader),
        follower: of(|row| row.follower),
    }
}

/// Combines several into one, figure by figure.
fn of_each(members: &[PerPut], one: impl Fn(&[f64]) -> f64) -> PerPut {
    let of = |pick: fn(&PerPut) -> f64| one(&members.iter().map(pick).collect::<Vec<_>>());
    let syscalls: Option<Vec<f64>> = members.iter().map(|m| m.syscalls).collect();
    PerPut {
        cpu_us: of(|m| m.cpu_us),
        switches: of(|m| m.switches),
        syscalls: syscalls.map(|counts| one(&counts)),
        syncs: of(|m| m.syncs),
        log_bytes: of(|m| m.log_bytes),
        peer_bytes: of(|m| m.peer_bytes),
        allocations: of(|m| m.allocations),
        allocated_bytes: of(|m| m.allocated_bytes),
        records_encoded: of(|m| m.records_encoded),
    }
}

/// Puts at the leader, from Kattu's own load tool.
pub(super) fn load(kattu: &Path, cluster: &Cluster, leader: usize, total: u64) -> Result<Value, Failure> {
    Load::of(Face::Etcd, total).run(kattu, cluster, leader)
}

/// Puts at the leader in sessions of the native protocol: many under way, or one after the other.
pub(super) fn native_load(
    kattu: &Path,
    cluster: &Cluster,
    leader: usize,
    total: u64,
    value_bytes: &str,
    is_alone: bool,
) -> Result<Value, Failure> {
    let face = if is_alone { Face::Native { sessions: "1", pipeline: "1" } } else { NATIVE };
    Load { value_bytes, ..Load::of(face, total) }.run(kattu, cluster, leader)
}

/// Puts of keys of eight bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load<'a> {
    /// Number of puts.
    pub total: u64,
    pub value_bytes: &'a str,
    pub clients: &'a str,
    pub conns: &'a str,
    pub face: Face<'a>,
}

impl<'a> Load<'a> {
    /// Puts of 256 bytes, as this table has them.
    pub fn of(face: Face<'a>, total: u64) -> Load<'a> {
        let (clients, conns) = match face {
            Face::Etcd => (CLIENTS, CONNECTIONS),
            Face::Native { sessions, .. } => (sessions, sessions),
        };
        Load { total, value_bytes: "256", clients, conns, face }
    }

    fn with_total(self, total: u64) -> Load<'a> {
        Load { total, ..self }
    }

    /// The tool's report, if no put failed.
    pub fn run(self, kattu: &Path, cluster: &Cluster, leader: usize) -> Result<Value, Failure> {
        let mut bench = Command::new(kattu);
        bench.args(["bench", "put", "--endpoints", cluster.endpoint(leader)]);
        bench.args(["--clients", self.clients, "--conns", self.conns, "--total", &self.total.to_string()]);
        match self.face {
            Face::Etcd => {}
            Face::Native { sessions, pipeline } => {
                bench.args(["--native", "--sessions", sessions, "--pipeline", pipeline]);
            }
        }
        bench.args(["--key-size", "8", "--val-size", self.value_bytes, "-o", "json"]);
        let text = shell::output(&mut bench, Duration::from_secs(300))?;
        let report: Value = serde_json::from_str(&text)
            .map_err(|error| Failure::new(format!("kattu bench printed {text}: {error}")))?;
        if report["errors"].as_u64() != Some(0) {
            return Err(Failure::new(format!("puts failed: {report}")));
        }
        Ok(report)
    }
}

/// System calls per put of each member, counted by strace.
fn syscalls(kattu: &Path, cluster: &Cluster, leader: usize, load: Load<'_>) -> Result<Vec<f64>, Failure> {
    let folder = shell::target().join("bench/counts");
    let mut watchers: Vec<(PathBuf, Child)> = Vec::new();
    for (i, pid) in cluster.pids().into_iter().enumerate() {
        let out = folder.join(format!("strace-{i}.txt"));
        let mut strace = Command::new("strace");
        strace.args(["-f", "-c", "-o"]).arg(&out).args(["-p", &pid.to_string()]);
        strace.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        watchers.push((out, strace.spawn()?));
    }
    for pid in cluster.pids() {
        wait_until_traced(pid)?;
    }
    let (total, loaded) = (load.total, load.run(kattu, cluster, leader));
    let mut counts = Vec::new();
    for (out, mut watcher) in watchers {
        shell::signal(&watcher.id().to_string(), "INT");
        watcher.wait()?;
        counts.push(total_calls(&std::fs::read_to_string(&out)?) / total as f64);
    }
    loaded.map(|_| counts)
}

fn wait_until_traced(pid: u32) -> Result<(), Failure> {
    for _ in 0..500 {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        if status.lines().any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0")) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(Failure::new(format!("strace could not attach to process {pid}")))
}

/// The sum that `strace -c` prints in its last line: time, seconds, usecs/call, calls, errors, "total".
fn total_calls(table: &str) -> f64 {
    let line = table.lines().rev().find(|line| line.trim_end().ends_with("total")).unwrap_or("");
    line.split_whitespace().nth(3).and_then(|count| count.parse().ok()).unwrap_or(f64::NAN)
}

/// Numbers from a member's metrics.
struct Facts {
    syncs: f64,
    log_bytes: f64,
    peer_bytes: f64,
    allocations: f64,
    allocated_bytes: f64,
    records_encoded: f64,
}

impl Facts {
    fn of(cluster: &Cluster, member: usize) -> Result<Facts, Failure> {
        let address = cluster.endpoint(member);
        let page = metrics(address)?;
        let fact = |name: &str| fact_in(&page, address, name);
        Ok(Facts {
            syncs: fact("etcd_disk_wal_fsync_duration_seconds_count")?,
            log_bytes: fact("etcd_disk_wal_write_bytes_total")?,
            peer_bytes: fact("kattu_peer_sent_bytes_total")?,
            allocations: fact("kattu_allocations_total")?,
            allocated_bytes: fact("kattu_allocated_bytes_total")?,
            records_encoded: fact("kattu_records_encoded_total")?,
        })
    }
}

/// One number from a member's metrics.
pub(super) fn fact(address: &str, name: &str) -> Result<f64, Failure> {
    fact_in(&metrics(address)?, address, name)
}

/// The numbers of a metric with labels.
pub(super) fn fact_of(address: &str, name: &str) -> Result<Vec<f64>, Failure> {
    let page = metrics(address)?;
    let of_name =
        |line: &str| line.strip_prefix(name)?.strip_prefix('{')?.split_whitespace().last()?.parse().ok();
    Ok(page.lines().filter_map(of_name).collect())
}

fn fact_in(page: &str, address: &str, name: &str) -> Result<f64, Failure> {
    let line = page.lines().find(|line| line.split_whitespace().next() == Some(name));
    let number = line.and_then(|line| line.split_whitespace().last()?.parse::<f64>().ok());
    number.ok_or_else(|| Failure::new(format!("{address} does not count {name}")))
}

/// `GET /metrics`.
fn metrics(address: &str) -> Result<String, Failure> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(socket, "GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut page = String::new();
    socket.read_to_string(&mut page)?;
    Ok(page)
}

fn print(name: &str, face: Face<'_>, rows: &[Row]) {
    let clients = match face {
        Face::Etcd => format!("{CLIENTS} clients over {CONNECTIONS} connections"),
        Face::Native { sessions, pipeline } => {
            format!("{sessions} sessions of the native protocol, {pipeline} puts of each under way")
        }
    };
    println!("\n{name}: one put of 8 + 256 bytes, {clients}; leader / follower\n");
    print!("| per put |");
    rows.iter().for_each(|row| print!(" {} |", row.setting));
    print!("\n|---|");
    rows.iter().for_each(|_| print!("---|"));
    println!();
    line(rows, "CPU, µs", 1, |m| Some(m.cpu_us));
    line(rows, "context switches", 3, |m| Some(m.switches));
    line(rows, "system calls (under strace)", 2, |m| m.syscalls);
    line(rows, "log syncs", 4, |m| Some(m.syncs));
    line(rows, "bytes to the log", 0, |m| Some(m.log_bytes));
    line(rows, "bytes to peers", 0, |m| Some(m.peer_bytes));
    line(rows, "allocations", 2, |m| Some(m.allocations));
    line(rows, "allocated bytes", 0, |m| Some(m.allocated_bytes));
    line(rows, "records encoded", 3, |m| Some(m.records_encoded));
    print!("| puts/s |");
    rows.iter().for_each(|row| print!(" {:.0} |", row.ops_per_s));
    print!("\n| p50, ms |");
    rows.iter().for_each(|row| print!(" {:.2} |", row.p50_us / 1e3));
    println!();
}

fn line(rows: &[Row], name: &str, digits: usize, pick: fn(&PerPut) -> Option<f64>) {
    let shown = |member: &PerPut| pick(member).map_or("–".to_string(), |value| format!("{value:.digits$}"));
    print!("| {name} |");
    rows.iter().for_each(|row| print!(" {} / {} |", shown(&row.leader), shown(&row.follower)));
    println!();
}

fn save(header: &Header, total: u64, rows: &[Row]) -> Result<(), Failure> {
    let member = |m: &PerPut| {
        json!({
            "cpu_us": m.cpu_us, "context_switches": m.switches, "syscalls": m.syscalls, "syncs": m.syncs,
            "log_bytes": m.log_bytes, "peer_bytes": m.peer_bytes, "allocations": m.allocations,
            "allocated_bytes": m.allocated_bytes, "records_encoded": m.records_encoded,
        })
    };
    let rows: Vec<Value> = rows
        .iter()
        .map(|row| {
            json!({
                "setting": row.setting, "ops_per_s": row.ops_per_s, "p50_us": row.p50_us,
                "leader": member(&row.leader), "follower": member(&row.follower),
            })
        })
        .collect();
    let path = shell::target().join("bench/counts.json");
    let report = json!({ "header": header.json(), "puts": total, "rows": rows });
    std::fs::write(&path, serde_json::to_string_pretty(&report).expect("plain data"))?;
    println!("\nall figures: {}", path.display());
    Ok(())
}
