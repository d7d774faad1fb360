//! The machine alone: three bare processes that pass on, write and sync the bytes of puts, and a bare client
//! (`shell/runtime/examples/bare.rs`); and a bare program that reads the bytes from which a member starts.
//!
//! Rule: bytes of a put as Kattu's protocols have them: a request in a session, a command in an entry with others or alone, an answer.
//! Knows nothing of: what a store does with a put.

use super::load::{self, Timing};
use super::rows::Shape;
use super::sample::{Figure, Sample};
use crate::bench::cluster::MEMBERS;
use crate::shell::{self, Failure};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

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

/// How long it takes to read what is in the data directory of a member.
pub fn read(data_dir: &Path) -> Result<Sample, Failure> {
    let mut program = Command::new(super::super::example("bare")?);
    program.arg("read").arg(data_dir);
    let begun = Instant::now();
    shell::output(&mut program, LIMIT)?;
    Ok(Sample::of(Figure::Start, begun.elapsed().as_secs_f64()))
}

/// Puts of this shape through them, with data below `folder`.
pub fn puts(timing: Timing, shape: Shape, folder: &Path) -> Result<Sample, Failure> {
    let program = super::super::example("bare")?;
    let beside = if shape.under_way() == 1 { ALONE } else { SHARED };
    let sizes = [REQUEST, beside].map(|beside| (shape.value_bytes + beside).to_string());
    let [request, append] = &sizes;
    let answer = ANSWER.to_string();
    let mut bare = Bare { processes: Vec::new(), folder: folder.to_path_buf() };
    let of = |name: &str| folder.join(name).display().to_string();
    let mut addresses = Vec::new();
    for number in 1..MEMBERS {
        let words = ["follow".to_string(), of(&number.to_string()), append.clone()];
        addresses.push(bare.begin(&program, &words)?);
    }
    let words =
        [vec!["lead".to_string(), of("0"), request.clone(), append.clone(), answer.clone()], addresses];
    let leader = bare.begin(&program, &words.concat())?;
    let pids: Vec<u32> = bare.processes.iter().map(Child::id).collect();
    timing.measure(&pids, shape, |total| {
        let under_way = (shape.under_way() / shape.conns).max(1);
        let mut tool = Command::new(&program);
        tool.args(["load", &leader, request, &answer, &shape.conns.to_string(), &under_way.to_string()]);
        tool.arg(total.to_string());
        load::of_kattu(&shell::output(&mut tool, LIMIT)?, total)
    })
}
