//! `cargo xtask bench stages`: where the processor time and the waiting time of a put go, stage by stage, as a table and a picture.
//!
//! ```text
//!   three members, puts in sessions of the native protocol
//!     ├─ many under way: `perf` samples each member's threads; the kernel's time of processes says what a sample weighs
//!     └─ one under way:  the client's median, the log's syncs and the followers' round trips, from the members' counters
//! ```
//! A sample belongs to the system call that it is in, else to the crate of its function. Copies, checksums and closures that are
//! functions of the core library are a stage of their own: who asked for them, samples do not tell. Of a member under load nearly
//! all reads and writes are those of sockets; the few of other files are counted as such.
//! Knows nothing of: what stages should cost.

use super::cluster::{Cluster, MEMBERS, NO_FLAGS, Program};
use super::counts::{fact, fact_of, native_load};
use super::digest::{has_perf, watch};
use super::meter::Meter;
use super::report::Header;
use crate::shell::{self, Failure};
use serde_json::Value;
use std::fmt::Write;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

/// A stage, with its colour in the picture.
struct Stage {
    name: &'static str,
    colour: &'static str,
    /// Beginnings of the functions that it is.
    functions: &'static [&'static str],
}

/// In the order of the picture. The first one with a function's beginning has its samples.
const STAGES: [Stage; 10] = [
    Stage {
        name: "the client's face: frames, requests, answers",
        colour: "#1f6feb",
        functions: &["kattu_server::", "kattu_native::", "kattu_tls::", "<kattu_server::", "<kattu_native::"],
    },
    Stage {
        name: "apply: sessions, store",
        colour: "#2da44e",
        functions: &[
            "kattu_kv::",
            "<kattu_kv::",
            "kattu_node::keeper::",
            "kattu_node::session::",
            "kattu_node::command::",
        ],
    },
    Stage {
        name: "consensus",
        colour: "#8250df",
        functions: &["kattu_raft::", "<kattu_raft::", "kattu_node::"],
    },
    Stage {
        name: "log: records",
        colour: "#bf8700",
        functions: &["kattu_wal::", "<kattu_wal::", "kattu_wire::", "<kattu_wire::"],
    },
    Stage {
        name: "driver: queues, links, tasks",
        colour: "#57606a",
        functions: &[
            "kattu_runtime::",
            "<kattu_runtime::",
            "kattu_member::",
            "<kattu_member::",
            "tokio::",
            "<tokio::",
        ],
    },
    Stage {
        name: "copies, comparisons, checksums",
        colour: "#bc4c00",
        functions: &["__mem", "crc32c::", "core::slice::", "core::ops::function"],
    },
    Stage {
        name: "memory: allocator, page faults",
        colour: "#cf222e",
        functions: &["mi_", "_mi_", "alloc::", "<alloc::", "malloc", "free", "page_fault"],
    },
    Stage {
        name: "sockets",
        colour: "#0a7ea4",
        functions: &["send", "recv", "read", "write", "tcp_", "sock_"],
    },
    Stage {
        name: "disk: write and sync",
        colour: "#953800",
        functions: &["pwrite", "fdatasync", "fsync", "fallocate"],
    },
    Stage { name: "waiting, switching, other", colour: "#afb8c1", functions: &[] },
];
const MEMORY: usize = 6;
const OTHER: usize = STAGES.len() - 1;

/// The stage of a sample, whose functions begin with the innermost one.
fn stage_of(functions: &[&str]) -> usize {
    if functions.iter().any(|function| function.contains("page_fault")) {
        return MEMORY;
    }
    let calls = functions.iter().find_map(|function| function.strip_prefix("__x64_sys_"));
    if calls.is_none() && functions.iter().any(|function| function.starts_with("entry_SYSCALL")) {
        return OTHER;
    }
    let Some(name) = calls.or_else(|| functions.first().copied()) else { return OTHER };
    let is_here = |stage: &Stage| stage.functions.iter().any(|beginning| name.starts_with(beginning));
    STAGES.iter().position(is_here).unwrap_or(OTHER)
}

/// Samples of each stage.
type Samples = [u64; STAGES.len()];

/// Reads what `perf script` prints: a line for the thread, one for each function from the innermost on, and an empty line.
fn count(text: &str) -> Samples {
    let mut samples = [0; STAGES.len()];
    for sample in text.split("\n\n") {
        let functions: Vec<&str> = sample
            .lines()
            .skip_while(|line| !line.starts_with(char::is_whitespace))
            .filter_map(|line| line.trim().split_once(' ').map(|(_, function)| function))
            .collect();
        if !functions.is_empty() {
            samples[stage_of(&functions)] += 1;
        }
    }
    samples
}

/// A member's processor time of a put in each stage, in microseconds.
type Costs = [f64; STAGES.len()];

/// Where a put waits that is alone, in milliseconds.
struct Waits {
    /// From the client's request to its answer; the median.
    put: f64,
    /// From the leader's append to the faster follower's acknowledgement: that member's sync is part of it.
    round_trip: f64,
    /// A sync of a follower's log; the mean.
    sync: f64,
}

/// Builds, loads, prints the table and draws the picture.
pub fn run(words: &[&str]) -> Result<(), Failure> {
    let (total, value, plot) = settings(words)?;
    has_perf()?;
    let kattu = shell::kattu()?;
    let header = Header::now(1, false);
    header.print();
    let folder = shell::target().join("bench/stages");
    let program = Program::kattu(&kattu, NO_FLAGS);
    let cluster = Cluster::start(&program, &folder, 130, &shell::tools_dir().join("etcd36/etcdctl"))?;
    let leader = cluster.leader().ok_or_else(|| Failure::new("the leader went away"))?;
    let waits = alone(&kattu, &cluster, leader, &value)?;
    native_load(&kattu, &cluster, leader, total / 4, &value, false)?; // warm-up
    let file = |member: usize| folder.join(format!("n{member}.perf"));
    let meter = Meter::start(&cluster.pids());
    let watchers: Vec<Child> = (cluster.pids().into_iter().enumerate())
        .map(|(member, pid)| watch(pid, &file(member), true))
        .collect::<Result<_, _>>()?;
    let loaded = native_load(&kattu, &cluster, leader, total, &value, false);
    for mut watcher in watchers {
        shell::signal(&watcher.id().to_string(), "INT");
        watcher.wait()?;
    }
    let (reading, report) = (meter.stop(), loaded?);
    if cluster.leader() != Some(leader) {
        return Err(Failure::new("the leader changed during the run: the figures would be mixed")
            .then("cargo xtask bench stages   (on a quieter machine)"));
    }
    let costs: Vec<Costs> = (0..MEMBERS)
        .map(|member| {
            let samples = read(&file(member))?;
            let used = reading.used[member];
            let all = samples.iter().sum::<u64>().max(1) as f64;
            let of_put = (used.user_s + used.system_s) * 1e6 / total as f64;
            Ok(samples.map(|count| count as f64 / all * of_put))
        })
        .collect::<Result<_, Failure>>()?;
    let followers: Vec<&Costs> = (0..MEMBERS).filter(|i| *i != leader).map(|i| &costs[i]).collect();
    let mut follower = Costs::default();
    for (at, cost) in follower.iter_mut().enumerate() {
        *cost = followers.iter().map(|costs| costs[at]).sum::<f64>() / followers.len() as f64;
    }
    let rate = report["ops_per_s"].as_f64().unwrap_or_default();
    print(total, &value, rate, &costs[leader], &follower, &waits);
    if let Some(plot) = plot {
        let title = format!(
            "A put of 8 + {value} bytes: three members, {} cores, commit {}, {}",
            header.cores(),
            header.commit(),
            header.date()
        );
        std::fs::write(&plot, picture(&title, &costs[leader], &follower, &waits))?;
        println!("\npicture: {plot}");
    }
    Ok(())
}

/// Number of puts, bytes of a value, and where the picture goes.
fn settings(words: &[&str]) -> Result<(u64, String, Option<String>), Failure> {
    let (mut total, mut value, mut plot) = (1_500_000, "16".to_string(), None);
    for pair in words.chunks(2) {
        let number =
            |text: &str| text.parse::<u64>().map_err(|_| Failure::usage(format!("{text}: not a number")));
        match *pair {
            ["--total", text] => total = number(text)?.max(1000),
            ["--val-size", text] => value = number(text)?.to_string(),
            ["--plot", path] => plot = Some(path.to_string()),
            _ => return Err(crate::commands::misused("bench stages")),
        }
    }
    Ok((total, value, plot))
}

/// One put after the other.
fn alone(kattu: &Path, cluster: &Cluster, leader: usize, value: &str) -> Result<Waits, Failure> {
    const PUTS: u64 = 3000;
    let syncs = |member: usize| -> Result<(f64, f64), Failure> {
        let of = |name: &str| fact(cluster.endpoint(member), name);
        Ok((
            of("etcd_disk_wal_fsync_duration_seconds_sum")?,
            of("etcd_disk_wal_fsync_duration_seconds_count")?,
        ))
    };
    let follower = (leader + 1) % MEMBERS;
    let before = syncs(follower)?;
    let report: Value = native_load(kattu, cluster, leader, PUTS, value, true)?;
    let after = syncs(follower)?;
    let round_trips = fact_of(cluster.endpoint(leader), "kattu_peer_round_trip_seconds")?;
    let fastest = round_trips.into_iter().fold(f64::INFINITY, f64::min);
    Ok(Waits {
        put: report["p50_us"].as_f64().unwrap_or(f64::NAN) / 1e3,
        round_trip: fastest * 1e3,
        sync: (after.0 - before.0) / (after.1 - before.1).max(1.0) * 1e3,
    })
}

/// Counts the samples of one member.
fn read(file: &Path) -> Result<Samples, Failure> {
    let mut script = Command::new("perf");
    script.args(["script", "--fields", "comm,ip,sym", "--input"]).arg(file);
    let samples = count(&shell::output(&mut script, Duration::from_secs(600))?);
    let all: u64 = samples.iter().sum();
    // Without names of functions nothing could be told apart.
    if all < 100 || all / 2 < samples[OTHER] {
        let (file, other) = (file.display(), samples[OTHER]);
        return Err(Failure::new(format!("{file}: {all} samples, {other} of them of no known stage")));
    }
    Ok(samples)
}

fn print(total: u64, value: &str, rate: f64, leader: &Costs, follower: &Costs, waits: &Waits) {
    println!("\n{total} puts of 8 + {value} bytes in sessions of the native protocol, {rate:.0} a second\n");
    println!("| processor time of a put, µs | leader | a follower |\n|---|---|---|");
    for (at, stage) in STAGES.iter().enumerate() {
        println!("| {} | {:.2} | {:.2} |", stage.name, leader[at], follower[at]);
    }
    let sum = |costs: &Costs| costs.iter().sum::<f64>();
    println!("| all | {:.2} | {:.2} |", sum(leader), sum(follower));
    println!("\n| time of a put that is alone, ms | |\n|---|---|");
    println!("| from its request to its answer, median | {:.3} |", waits.put);
    println!("| from the append to the faster follower's acknowledgement | {:.3} |", waits.round_trip);
    println!("| of that, the sync of a follower's log, mean | {:.3} |", waits.sync);
}

const WIDTH: f64 = 860.0;
const LEFT: f64 = 110.0;
const BAR: f64 = 34.0;
/// Of a line of what the colours mean.
const LINE: f64 = 20.0;

/// A part of a bar: its name, its colour, how much it is.
type Part<'a> = (&'a str, &'a str, f64);

/// A bar with its name in front of it and its sum behind it; `longest` would fill the width. Parts that are wide enough show
/// their figures, all show them to a pointer.
fn bar(out: &mut String, name: &str, top: f64, longest: f64, unit: &str, parts: &[Part<'_>]) {
    let scale = (WIDTH - LEFT - 80.0) / longest.max(0.001);
    let (text_y, mut x) = (top + 22.0, LEFT);
    let mut say = |text: std::fmt::Arguments<'_>| {
        let _ = out.write_fmt(text); // a String takes everything
    };
    say(format_args!("<text x=\"{:.0}\" y=\"{text_y:.0}\" text-anchor=\"end\">{name}</text>\n", LEFT - 10.0));
    for (part, colour, size) in parts {
        let width = size * scale;
        say(format_args!(
            "<rect x=\"{x:.1}\" y=\"{top:.0}\" width=\"{width:.1}\" height=\"{BAR}\" fill=\"{colour}\"><title>{part}: {size:.2} {unit}</title></rect>\n"
        ));
        if 30.0 < width {
            say(format_args!(
                "<text x=\"{:.1}\" y=\"{text_y:.0}\" fill=\"white\" text-anchor=\"middle\">{size:.2}</text>\n",
                x + width / 2.0
            ));
        }
        x += width;
    }
    let sum: f64 = parts.iter().map(|(.., size)| size).sum();
    say(format_args!("<text x=\"{:.1}\" y=\"{text_y:.0}\">{sum:.2}</text>\n", x + 8.0));
}

/// What the colours of a bar mean, a line each.
fn legend<'a>(out: &mut String, top: f64, lines: impl Iterator<Item = (&'a str, String)>) {
    for (at, (colour, text)) in lines.enumerate() {
        let y = top + LINE * at as f64;
        let _ = writeln!(
            out,
            "<rect x=\"{LEFT}\" y=\"{y:.0}\" width=\"14\" height=\"14\" fill=\"{colour}\"/>\n\
             <text x=\"{:.0}\" y=\"{:.0}\">{text}</text>",
            LEFT + 22.0,
            y + 12.0
        ); // a String takes everything
    }
}

/// The picture: a bar for each role, one for the time of a put that is alone, and what the colours mean.
fn picture(title: &str, leader: &Costs, follower: &Costs, waits: &Waits) -> String {
    let of_role = |costs: &Costs| -> Vec<Part<'static>> {
        STAGES.iter().zip(costs).map(|(stage, cost)| (stage.name, stage.colour, *cost)).collect()
    };
    let longest = [leader, follower].map(|costs| costs.iter().sum::<f64>()).into_iter().fold(0.0, f64::max);
    let sync = waits.sync.min(waits.round_trip);
    let waiting: [Part<'static>; 3] = [
        ("the sync of a follower's log", "#953800", sync),
        ("the rest of the round trip to the faster follower", "#0a7ea4", waits.round_trip - sync),
        ("client, leader, apply", "#1f6feb", (waits.put - waits.round_trip).max(0.0)),
    ];
    let stages_top = 66.0 + 2.0 * (BAR + 8.0) + 8.0;
    let waiting_top = stages_top + LINE * STAGES.len() as f64 + 44.0;
    let height = waiting_top + BAR + 24.0 + LINE * waiting.len() as f64;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n\
         <text x=\"20\" y=\"28\" font-size=\"15\">{title}</text>\n\
         <text x=\"20\" y=\"54\" fill=\"#57606a\">Processor time, µs, with many puts under way</text>\n\
         <text x=\"20\" y=\"{:.0}\" fill=\"#57606a\">Time, ms, of a put that is alone</text>\n",
        waiting_top - 12.0
    );
    bar(&mut out, "leader", 66.0, longest, "µs", &of_role(leader));
    bar(&mut out, "a follower", 66.0 + BAR + 8.0, longest, "µs", &of_role(follower));
    let of_stage = |(at, stage): (usize, &Stage)| {
        let costs = format!("{:.2} µs at the leader, {:.2} µs at a follower", leader[at], follower[at]);
        (stage.colour, format!("{}: {costs}", stage.name))
    };
    legend(&mut out, stages_top, STAGES.iter().enumerate().map(of_stage));
    let whole = waiting.iter().map(|(.., ms)| ms).sum();
    bar(&mut out, "one put", waiting_top, whole, "ms", &waiting);
    let of_wait = |(name, colour, ms): &Part<'static>| (*colour, format!("{name}: {ms:.2} ms"));
    legend(&mut out, waiting_top + BAR + 12.0, waiting.iter().map(of_wait));
    out.push_str("</svg>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(functions: &[&str]) -> &'static str {
        STAGES[stage_of(functions)].name
    }

    #[test]
    fn a_sample_belongs_to_its_system_call_else_to_its_function() {
        assert_eq!(named(&["kattu_kv::store::Store::apply_put", "kattu_node::x"]), "apply: sessions, store");
        assert_eq!(named(&["kattu_node::keeper::Keeper::step"]), "apply: sessions, store");
        assert_eq!(named(&["kattu_node::node::Node::handle"]), "consensus");
        assert_eq!(named(&["tcp_ack", "__x64_sys_sendto", "entry_SYSCALL_64_after_hwframe"]), "sockets");
        assert_eq!(named(&["iowrite16", "__x64_sys_fdatasync", "entry_SYSCALL_64"]), "disk: write and sync");
        assert_eq!(named(&["schedule", "__x64_sys_epoll_wait"]), "waiting, switching, other");
        assert_eq!(named(&["entry_SYSCALL_64_after_hwframe"]), "waiting, switching, other");
        assert_eq!(named(&["clear_page", "asm_exc_page_fault", "kattu_kv::x"]), STAGES[MEMORY].name);
        assert_eq!(named(&["__memmove_avx_unaligned_erms"]), "copies, comparisons, checksums");
        assert_eq!(named(&["what is this"]), "waiting, switching, other");
        assert_eq!(named(&[]), "waiting, switching, other");
    }

    #[test]
    fn samples_are_counted_once_each() {
        let text = "kattu \n\t   55d0 kattu_kv::a\n\t   55d1 kattu_kv::b\n\nkattu-segment \n\tffff x\n\tffff __x64_sys_pwritev2\n\n";
        let samples = count(text);
        assert_eq!(samples.iter().sum::<u64>(), 2);
        assert_eq!((samples[1], samples[8]), (1, 1));
    }

    #[test]
    fn the_picture_has_every_stage_and_its_figures() {
        let (mut leader, follower) = (Costs::default(), Costs::default());
        leader[1] = 1.25;
        let waits = Waits { put: 0.5, round_trip: 0.4, sync: 0.3 };
        let picture = picture("a put", &leader, &follower, &waits);
        for stage in &STAGES {
            assert!(picture.contains(stage.name) && picture.contains(stage.colour), "{}", stage.name);
        }
        assert!(picture.contains("1.25 µs at the leader") && picture.ends_with("</svg>\n"));
    }
}
