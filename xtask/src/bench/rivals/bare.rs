//! The machine alone (`shell/runtime/examples/bare`): three bare processes that pass on, write, sync and keep the bytes of puts, with a
//! bare client or with etcd's tool; and a bare program that reads the bytes from which a member starts, and writes to as much memory.
//!
//! Rules: 1. Bytes of a put as Kattu's protocols have them: a request in a session, a command in an entry with others or alone, an answer.
//!        2. Key and value of each put stay in memory: the API shows older versions.
//! Knows nothing of: what a store does with a put.

use super::load::{self, Timing};
use super::rows::{Calls, Shape};
use super::sample::{Figure, Sample};
use crate::bench::cluster::MEMBERS;
use crate::shell::{self, Failure};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Of a key.
const KEY: u32 = 8;

const LIMIT: Duration = Duration::from_secs(120);

/// Bytes beside the value of a put: in a request.
const REQUEST: u32 = 55;
/// In an append, where small puts share an entry, and where each is alone.
const SHARED: u32 = 40;
const ALONE: u32 = 175;
/// Of an answer.
const ANSWER: u32 = 46;

/// The processes; dropped, they are ended and their data removed.
struct Bare {
    processes: Vec<Child>,
    folder: PathBuf,
}

impl Bare {
    /// Starts three, and returns the address of the leader. Requests and answers have so many bytes, or are calls of etcd's API.
    fn start(
        program: &Path,
        shape: Shape,
        folder: &Path,
        sizes: Option<(u32, u32)>,
    ) -> Result<(Bare, String), Failure> {
        let beside = if shape.under_way() == 1 { ALONE } else { SHARED };
        let (append, kept) =
            ((shape.value_bytes + beside).to_string(), (shape.value_bytes + KEY).to_string());
        let mut bare = Bare { processes: Vec::new(), folder: folder.to_path_buf() };
        let of = |name: usize| folder.join(name.to_string()).display().to_string();
        let mut followers = Vec::new();
        for number in 1..MEMBERS {
            let words = ["follow".to_string(), of(number), append.clone(), kept.clone()];
            followers.push(bare.begin(program, &words)?);
        }
        let mut words = match sizes {
            None => vec!["serve".to_string(), of(0), append, kept],
            Some((request, answer)) => {
                vec!["lead".to_string(), of(0), request.to_string(), append, answer.to_string(), kept]
            }
        };
        words.extend(followers);
        let leader = bare.begin(program, &words)?;
        Ok((bare, leader))
    }

    fn pids(&self) -> Vec<u32> {
        self.processes.iter().map(Child::id).collect()
    }

    /// Starts one more, and returns the address at which it listens.
    fn begin(&mut self, program: &Path, words: &[String]) -> Result<String, Failure> {
        let mut command = Command::new(program);
        command.args(words).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = command.spawn()?;
        let output = process.stdout.take().ok_or_else(|| Failure::new("it has no output"))?;
        self.processes.push(process);
        let mut address = String::new();
        BufReader::new(output).read_line(&mut address)?;
        match address.trim() {
            "" => Err(Failure::new(format!("{} {} ended at once", program.display(), words.join(" ")))),
            address => Ok(address.to_string()),
        }
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// How long it takes to read what is in the data directory of a member, and to write to so much new memory.
pub fn read(data_dir: &Path, memory: u64) -> Result<Sample, Failure> {
    let mut program = Command::new(super::super::example("bare")?);
    program.arg("read").arg(data_dir).arg(memory.to_string());
    let begun = Instant::now();
    shell::output(&mut program, LIMIT)?;
    Ok(Sample::of(Figure::Start, begun.elapsed().as_secs_f64()))
}

/// Puts of this shape through them, with data below `folder`.
pub fn puts(timing: Timing, shape: Shape, folder: &Path) -> Result<Sample, Failure> {
    let program = super::super::example("bare")?;
    let (request, answer) = (REQUEST + shape.value_bytes, ANSWER);
    let (bare, leader) = Bare::start(&program, shape, folder, Some((request, answer)))?;
    timing.measure(&bare.pids(), shape, |total| {
        let under_way = (shape.under_way() / shape.conns).max(1);
        let mut tool = Command::new(&program);
        tool.args(["load", &leader]).args([request, answer, shape.conns, under_way].map(|it| it.to_string()));
        tool.arg(total.to_string());
        load::of_kattu(&shell::output(&mut tool, LIMIT)?, total)
    })
}

/// The same, by etcd's benchmark tool.
pub fn etcd_puts(timing: Timing, tool: &Path, shape: Shape, folder: &Path) -> Result<Sample, Failure> {
    let program = super::super::example("bare")?;
    let (bare, leader) = Bare::start(&program, shape, folder, None)?;
    timing.measure(&bare.pids(), shape, |total| load::etcd(tool, &leader, shape, Calls::Put, total))
}
