//! `cargo xtask bench replay`: how fast a member restarts from its log, and how much memory it has then.
//!
//! One member is filled, stopped cleanly, and restarted several times; timed is from the start of the process to its
//! ready line. An empty member's start is timed, too, and subtracted. Memory is what belongs to the process alone
//! (`RssAnon`): the longer the kernel frees it, the later others notice that a killed leader is gone.
//! Knows nothing of: the format of the log.

use super::report::Header;
use super::{alternate, meter};
use crate::shell::{self, Failure};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const READY: &str = "ready to serve client requests";
const STARTS: usize = 5;

/// Fills, stops, starts, prints.
pub fn run(words: &[&str]) -> Result<(), Failure> {
    let (against, words) = alternate::take(words, "bench replay")?;
    let total = super::number_behind("--total", &words, 500_000, "bench replay")?;
    let kattu = shell::kattu()?;
    let folder = shell::target().join("bench/replay");
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    std::fs::create_dir_all(&folder)?;
    let process = std::process::id();
    let host = format!("127.{}.{}.9", 64 + ((process >> 8) & 0x3f), process & 0xff);
    if let Some(against) = against {
        // Each program fills a directory of its own, once; then their starts alternate.
        let mut filled = BTreeMap::new();
        against.compare(&kattu, |program| {
            let name = format!("of-{}", if program == kattu { "this" } else { "other" });
            let member = Member { kattu: program, folder: &folder.join(name), host: &host };
            if !filled.contains_key(program) {
                std::fs::create_dir_all(member.folder)?;
                let empty = member.median_start()?;
                member.fill(total)?;
                filled.insert(program.to_path_buf(), empty.took);
            }
            let full = member.median_start()?;
            let replay = full.took.saturating_sub(filled[program]);
            Ok(vec![
                ("replay, s".into(), replay.as_secs_f64()),
                ("memory after it, MB".into(), full.memory as f64 / 1e6),
            ])
        })?;
        return Ok(std::fs::remove_dir_all(&folder)?);
    }
    Header::now(1, false).print();
    let member = Member { kattu: &kattu, folder: &folder, host: &host };
    let empty = member.median_start()?;
    member.fill(total)?;
    let full = member.median_start()?;

    let log_bytes: u64 = std::fs::read_dir(folder.join("n0"))?
        .flatten()
        .filter(|file| file.file_name().to_string_lossy().ends_with(".seg"))
        .filter_map(|file| file.metadata().ok())
        .map(|metadata| metadata.len())
        .sum();
    let replay = (full.took.saturating_sub(empty.took)).as_secs_f64();
    println!(
        "\n| puts of 8 + 256 bytes | log, MB | start of an empty member, s | start, s | puts/s | MB/s | memory after it, MB |"
    );
    println!("|---|---|---|---|---|---|---|");
    println!(
        "| {total} | {:.0} | {:.3} | {:.3} | {:.0} | {:.0} | {:.1} |",
        log_bytes as f64 / 1e6,
        empty.took.as_secs_f64(),
        full.took.as_secs_f64(),
        total as f64 / replay,
        log_bytes as f64 / 1e6 / replay,
        full.memory as f64 / 1e6
    );
    println!("\nmedians of {STARTS} starts, page cache warm");
    Ok(std::fs::remove_dir_all(&folder)?)
}

/// What a start took, until the ready line.
struct Start {
    took: Duration,
    /// Bytes of anonymous memory then.
    memory: u64,
}

struct Member<'a> {
    kattu: &'a Path,
    folder: &'a Path,
    host: &'a str,
}

impl Member<'_> {
    fn start(&self) -> Result<(Child, Start), Failure> {
        let began = Instant::now();
        let url = |port: u16| format!("http://{}:{port}", self.host);
        let mut child = Command::new(self.kattu)
            .args(["serve", "--name", "n0", "--data-dir"])
            .arg(self.folder.join("n0"))
            .args(["--listen-client-urls", &url(2379), "--advertise-client-urls", &url(2379)])
            .args(["--listen-peer-urls", &url(2380), "--initial-advertise-peer-urls", &url(2380)])
            .args(["--initial-cluster", &format!("n0={}", url(2380))])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let ready = lines.by_ref().map_while(Result::ok).any(|line| line.contains(READY));
        let took = began.elapsed();
        if !ready {
            child.wait()?;
            return Err(Failure::new("the member ended before it served"));
        }
        let memory = meter::anonymous_bytes(child.id());
        // The rest of its output goes to a file, so that it never blocks on a full pipe.
        let mut rest = File::create(self.folder.join("n0.log"))?;
        std::thread::spawn(move || {
            use std::io::Write;
            for line in lines.map_while(Result::ok) {
                let _ = writeln!(rest, "{line}"); // the log is not needed
            }
        });
        Ok((child, Start { took, memory }))
    }

    /// Starts the member, writes so many puts, stops it.
    fn fill(&self, total: u64) -> Result<(), Failure> {
        let (child, _) = self.start()?;
        let mut bench = Command::new(self.kattu);
        let endpoint = format!("{}:2379", self.host);
        bench.args(["bench", "put", "--endpoints", &endpoint, "--clients", "256", "--conns", "32"]);
        bench.args(["--total", &total.to_string(), "--key-size", "8", "--val-size", "256", "-o", "json"]);
        let filled = shell::output(&mut bench, Duration::from_secs(600)).map(|_| ());
        stop(child)?;
        filled
    }

    /// The medians of both.
    fn median_start(&self) -> Result<Start, Failure> {
        let (mut times, mut memories) = (Vec::new(), Vec::new());
        for _ in 0..STARTS {
            let (child, Start { took, memory }) = self.start()?;
            stop(child)?;
            times.push(took);
            memories.push(memory);
        }
        times.sort_unstable();
        memories.sort_unstable();
        Ok(Start { took: times[STARTS / 2], memory: memories[STARTS / 2] })
    }
}

fn stop(mut child: Child) -> Result<(), Failure> {
    shell::signal(&child.id().to_string(), "TERM");
    child.wait()?;
    Ok(())
}
