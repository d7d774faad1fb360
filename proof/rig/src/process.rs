//! One process: started, killed, paused, frozen, watched for its end.
//!
//! Its log file spans all its runs, with a line between them.
//! Knows nothing of: the program's flags, other processes.

use crate::freezer::Freezer;
use crate::programs::signal;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Lines of a log that explain an end.
const TAIL_LINES: usize = 8;

/// A process that may run many times. Dropped, it is killed.
pub struct Process {
    name: String,
    log: PathBuf,
    child: Option<Child>,
    /// Offset in the log at which its present run begins.
    run_at: u64,
    is_paused: bool,
    freezer: Option<Freezer>,
    last_end: Option<ExitStatus>,
}

impl Process {
    /// A process that is not started yet.
    pub fn new(name: &str, log: PathBuf) -> Process {
        Process {
            name: name.to_string(),
            log,
            child: None,
            run_at: 0,
            is_paused: false,
            freezer: None,
            last_end: None,
        }
    }

    /// Starts it with this command line and returns at once.
    ///
    /// # Errors
    /// It cannot be started at all.
    pub fn spawn(&mut self, words: &[String]) -> Result<(), String> {
        assert!(self.child.is_none(), "{} runs already", self.name);
        let failed = |error: std::io::Error| format!("{}: {error}", self.log.display());
        let mut log = File::options().create(true).append(true).open(&self.log).map_err(failed)?;
        writeln!(log, "--- {} starts", self.name).map_err(failed)?;
        self.run_at = log.metadata().map_err(failed)?.len();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null());
        // Variables meant for the rig would be taken for the member's settings, or refused as such.
        let ours = std::env::vars_os().map(|(name, _)| name);
        ours.filter(|name| {
            let name = name.to_string_lossy();
            name.starts_with("KATTU_") || name.starts_with("ETCD_")
        })
        .for_each(|name| {
            command.env_remove(name);
        });
        command.stdout(log.try_clone().map_err(failed)?).stderr(log);
        self.child = Some(command.spawn().map_err(|error| format!("{words:?}: {error}"))?);
        Ok(())
    }

    /// Its id, if the rig started it and has not seen its end.
    pub fn id(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// It has been started, and the rig has not seen its end.
    pub fn is_started(&self) -> bool {
        self.child.is_some()
    }

    /// It is started, and neither paused nor frozen.
    pub(crate) fn is_awake(&self) -> bool {
        self.child.is_some() && !self.is_paused && self.freezer.is_none()
    }

    /// It is started, and has not ended by itself.
    pub fn is_running(&mut self) -> bool {
        self.is_started() && !self.has_ended()
    }

    /// Whether it has ended by itself; leaves the status to [`Process::ended`].
    pub fn has_ended(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| child.try_wait().is_ok_and(|status| status.is_some()))
    }

    /// Its exit status, if it ended by itself.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.child.as_mut()?.try_wait().ok()??;
        self.child = None;
        self.resume();
        self.last_end = Some(status);
        Some(status)
    }

    /// Its exit status when it last ended by itself; `None` while it runs.
    pub fn last_end(&self) -> Option<ExitStatus> {
        self.last_end.filter(|_| self.child.is_none())
    }

    /// Forgets how it last ended.
    pub(crate) fn forget_end(&mut self) {
        self.last_end = None;
    }

    /// Waits until it has ended by itself; not longer than `limit`.
    pub fn end_within(&mut self, limit: Duration) -> Option<ExitStatus> {
        let end = Instant::now() + limit;
        while Instant::now() < end {
            if let Some(status) = self.ended() {
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        None
    }

    /// kill -9 without waiting for the end: several should die together.
    pub fn strike(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
        }
    }

    /// kill -9; does nothing if it does not run.
    pub fn kill(&mut self) {
        self.strike();
        // A frozen process dies when it is thawed.
        self.resume();
        if let Some(mut child) = self.child.take() {
            let _ = child.wait();
        }
    }

    /// SIGSTOP.
    pub fn pause(&mut self) {
        if let Some(id) = self.id() {
            signal(id, "STOP");
            self.is_paused = true;
        }
    }

    /// Freezes it with a cgroup of its own.
    ///
    /// # Errors
    /// The reason why this machine cannot.
    pub fn freeze(&mut self, most: Duration) -> Result<(), String> {
        if let Some(id) = self.id() {
            self.freezer = Some(Freezer::close(id, most)?);
        }
        Ok(())
    }

    /// Ends a pause or a freeze.
    pub fn resume(&mut self) {
        if let Some(child) = &self.child
            && self.is_paused
        {
            let _ = Command::new("kill").args(["-s", "CONT", &child.id().to_string()]).status();
        }
        self.is_paused = false;
        self.freezer = None;
    }

    /// The file of its log.
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// Its log of the present run.
    pub fn log_text(&self) -> String {
        self.log_from(self.run_at)
    }

    /// Its log from this offset on.
    pub(crate) fn log_from(&self, at: u64) -> String {
        let mut text = Vec::new();
        let _ = File::open(&self.log).and_then(|mut log| {
            log.seek(SeekFrom::Start(at))?;
            log.read_to_end(&mut text)
        });
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Bytes of its log so far.
    pub fn log_bytes(&self) -> u64 {
        self.log.metadata().map_or(0, |log| log.len())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// An exit status for readers.
pub fn shown(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("signal {signal}"),
        (_, Some(code)) => format!("exit code {code}"),
        _ => "no code".into(),
    }
}

/// The last lines of a text, joined into one.
pub fn tail(text: &str) -> String {
    last_lines(text, TAIL_LINES).join(" | ")
}

/// The last lines of a text.
pub fn last_lines(text: &str, count: usize) -> Vec<&str> {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::{own_folder, until};

    fn shell(script: &str) -> Vec<String> {
        ["sh", "-c", script].map(str::to_string).to_vec()
    }

    #[test]
    fn a_log_is_told_apart_by_runs_and_an_end_is_seen_once() {
        let folder = own_folder("process");
        let mut process = Process::new("it", folder.join("log"));
        process.spawn(&shell("echo first; exit 3")).expect("a shell");
        let status = process.end_within(Duration::from_secs(20)).expect("it ends");
        assert_eq!((status.code(), shown(status)), (Some(3), "exit code 3".to_string()));
        assert_eq!((process.ended(), process.last_end()), (None, Some(status)));
        process.spawn(&shell("echo second; sleep 1000")).expect("a shell");
        until("it writes", || (process.log_text() == "second\n").then_some(()));
        assert_eq!(process.log_from(0), "--- it starts\nfirst\n--- it starts\nsecond\n");
        assert_eq!((process.is_started(), process.has_ended(), process.last_end()), (true, false, None));
        process.pause();
        assert!(process.is_started() && !process.is_awake());
        process.kill();
        assert_eq!((process.is_started(), process.id()), (false, None));
        std::fs::remove_dir_all(folder).expect("it is ours");
    }

    #[test]
    fn a_tail_is_the_last_lines_as_one() {
        assert_eq!(tail("1\n2\n3\n4\n5\n6\n7\n8\n9\n"), "2 | 3 | 4 | 5 | 6 | 7 | 8 | 9");
        assert_eq!(tail(""), "");
    }
}
