//! Drivers around libraries (proof/rivals): three processes that are members, with the clients in the leader's process.
//!
//! ```text
//! to a driver    put 256 5 256 100000          clients, seconds, bytes, keys
//! from it        ANSWER {"ops":…,"errors":…,"seconds":…,"p50_us":…,"p99_us":…}
//! ```
//! No client's bytes cross a socket here, and the clients' CPU is within that of the servers.
//! Knows nothing of: the libraries.

use super::sample::Report;
use crate::bench::cluster::{self, MEMBERS};
use crate::shell::Failure;
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const START_LIMIT: Duration = Duration::from_secs(40);
const ANSWER_LIMIT: Duration = Duration::from_secs(300);
/// A leader that leads for so long is taken for the leader.
const SETTLED: Duration = Duration::from_secs(1);

/// Three members; dropped, they are killed and their data removed.
pub struct Embedded {
    members: Vec<Member>,
    folder: PathBuf,
}

struct Member {
    child: Child,
    lines: ChildStdin,
    answers: Receiver<String>,
}

impl Embedded {
    /// Starts them on fresh data below `folder`.
    pub fn start(driver: &Path, flags: &[&str], folder: &Path, number: usize) -> Result<Embedded, Failure> {
        if folder.exists() {
            std::fs::remove_dir_all(folder)?;
        }
        std::fs::create_dir_all(folder)?;
        let addresses: Vec<String> =
            cluster::hosts(number).iter().map(|host| format!("{host}:2380")).collect();
        let mut embedded = Embedded { members: Vec::new(), folder: folder.to_path_buf() };
        for i in 0..MEMBERS {
            let mut child = Command::new(driver)
                .args(["-id", &(i + 1).to_string(), "-addrs", &addresses.join(","), "-dir"])
                .arg(folder.join(format!("n{i}")))
                .args(flags)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(File::create(folder.join(format!("n{i}.log")))?)
                .spawn()?;
            let (lines, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
            let (sender, answers) = channel();
            std::thread::spawn(move || {
                // Other lines are the library's own.
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    if let Some(answer) = line.strip_prefix("ANSWER ") {
                        let _ = sender.send(answer.to_string()); // nobody waits for it any more
                    }
                }
            });
            embedded.members.push(Member { child, lines, answers });
        }
        Ok(embedded)
    }

    /// Their processes.
    pub fn pids(&self) -> Vec<u32> {
        self.members.iter().map(|member| member.child.id()).collect()
    }

    /// The place of the member that leads now and a second later.
    pub fn leader(&mut self) -> Result<usize, Failure> {
        let end = Instant::now() + START_LIMIT;
        let mut before = None;
        while Instant::now() < end {
            let mut leaders = Vec::new();
            for i in 0..MEMBERS {
                if self.ask(i, "led")? == Value::Bool(true) {
                    leaders.push(i);
                }
            }
            match (leaders[..].first(), before) {
                (Some(now), Some(before)) if leaders.len() == 1 && *now == before => return Ok(before),
                (now, _) => before = now.copied().filter(|_| leaders.len() == 1),
            }
            std::thread::sleep(SETTLED);
        }
        Err(Failure::new(format!("no leader after {START_LIMIT:?}; logs in {}", self.folder.display())))
    }

    /// Runs a load at this member.
    pub fn load(&mut self, member: usize, line: &str) -> Result<Report, Failure> {
        let answer = self.ask(member, line)?;
        read(&answer).ok_or_else(|| Failure::new(format!("`{line}` was answered {answer}")))
    }

    fn ask(&mut self, member: usize, line: &str) -> Result<Value, Failure> {
        let ended = || Failure::new(format!("member {member} did not answer `{line}`"));
        let asked = &mut self.members[member];
        writeln!(asked.lines, "{line}").map_err(|_| ended())?;
        let answer = asked.answers.recv_timeout(ANSWER_LIMIT).map_err(|_| ended())?;
        serde_json::from_str(&answer).map_err(|error| Failure::new(format!("`{answer}`: {error}")))
    }
}

fn read(answer: &Value) -> Option<Report> {
    let figure = |name: &str| answer[name].as_f64();
    let ops = answer["ops"].as_u64().filter(|ops| 0 < *ops)?;
    Some(Report {
        ops,
        ops_per_s: ops as f64 / figure("seconds")?,
        p50_us: figure("p50_us")?,
        p99_us: figure("p99_us")?,
        errors: answer["errors"].as_u64()?,
    })
}

impl Drop for Embedded {
    fn drop(&mut self) {
        for (i, member) in self.members.iter_mut().enumerate() {
            // The measurement is over; logs are kept, data is not.
            let _ = member.child.kill();
            let _ = member.child.wait();
            let _ = std::fs::remove_dir_all(self.folder.join(format!("n{i}")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_rate_of_a_load_is_that_of_what_succeeded() {
        let answer = json!({"ops": 300, "errors": 7, "seconds": 1.5, "p50_us": 400.5, "p99_us": 900});
        let report = Report { ops: 300, ops_per_s: 200.0, p50_us: 400.5, p99_us: 900.0, errors: 7 };
        assert_eq!(read(&answer), Some(report));
    }

    #[test]
    fn a_refusal_and_a_load_without_success_are_no_figures() {
        assert_eq!(read(&json!({"refused": "unknown verb"})), None);
        assert_eq!(read(&json!({"ops": 0, "errors": 9, "seconds": 1.0, "p50_us": 0, "p99_us": 0})), None);
    }

    #[test]
    fn a_program_that_answers_nothing_is_told() {
        let folder = std::env::temp_dir().join(format!("kattu-embedded-{}", std::process::id()));
        let mut members = Embedded::start(Path::new("true"), &[], &folder, 7).expect("`true` starts");
        let told = members.leader().expect_err("it has ended").to_string();
        assert!(told.contains("did not answer `led`"), "{told}");
        drop(members);
        std::fs::remove_dir_all(folder).expect("its logs");
    }
}
