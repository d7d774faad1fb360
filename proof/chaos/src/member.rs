//! One member as a process: started, killed, paused, frozen, watched for its end.
//!
//! Its log file spans all its runs, with a line between them. The process dies with the rig, however that ends.
//! Knows nothing of: other members, keys.

use crate::clocks::Clock;
use crate::place::Endpoint;
use kattu_e2e::Kv;
use kattu_e2e::process::signal;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Limit of the conductor's requests: a slow member is asked again.
const ASK_LIMIT: Duration = Duration::from_millis(800);

/// Whether a member belongs to the cluster, as far as the conductor knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Its place is free.
    Spare,
    /// It belongs.
    Member,
    /// It was removed, and must end by itself.
    Leaving,
}

/// One member.
pub struct Member {
    /// `n0`, `n1`, …
    pub name: String,
    /// Its addresses.
    pub endpoint: Endpoint,
    /// Its directory.
    pub data: PathBuf,
    /// Whether it belongs to the cluster.
    pub standing: Standing,
    /// Its clocks, if they may lie.
    pub clock: Option<Clock>,
    /// The conductor's own client of it.
    pub kv: Kv,
    /// The same with a longer limit, for long answers.
    pub reader: Kv,
    program: PathBuf,
    arguments: Vec<String>,
    log: PathBuf,
    child: Option<Child>,
    /// Offset in the log at which its present run begins.
    life_at: u64,
    /// Offset in the log at which its first run with this directory begins.
    anew_at: u64,
    is_stopped: bool,
    freezer: Option<Freezer>,
    last_end: Option<ExitStatus>,
}

impl Member {
    /// A member that is not started yet.
    pub fn new(
        name: String,
        endpoint: Endpoint,
        data: PathBuf,
        log: PathBuf,
        program: PathBuf,
        arguments: Vec<String>,
    ) -> Member {
        let address = format!("{}:2379", endpoint.host);
        let (kv, reader) = (Kv::of(&address).within(ASK_LIMIT), Kv::of(&address));
        Member {
            name,
            endpoint,
            data,
            standing: Standing::Member,
            clock: None,
            kv,
            reader,
            program,
            arguments,
            log,
            child: None,
            life_at: 0,
            anew_at: 0,
            is_stopped: false,
            freezer: None,
            last_end: None,
        }
    }

    /// Starts it. `wrapper` goes between the place's prefix and the program (`strace …`), `more` after its flags.
    ///
    /// # Errors
    /// It cannot be started at all.
    pub fn start(&mut self, wrapper: &[String], more: &[&str]) -> Result<(), String> {
        assert!(self.child.is_none(), "{} runs already", self.name);
        let mut log =
            File::options().create(true).append(true).open(&self.log).map_err(|it| it.to_string())?;
        writeln!(log, "--- {} starts", self.name).map_err(|error| error.to_string())?;
        self.life_at = log.metadata().map_err(|error| error.to_string())?.len();
        let program = self.program.display().to_string();
        let clock = self.clock.as_ref().map_or(Vec::new(), Clock::words);
        let words: Vec<&str> = self
            .endpoint
            .prefix
            .iter()
            .chain(wrapper)
            .chain(&clock)
            .map(String::as_str)
            .chain([program.as_str()])
            .chain(self.arguments.iter().map(String::as_str))
            .chain(more.iter().copied())
            .collect();
        let mut command = Command::new(words[0]);
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
        command.stdout(log.try_clone().map_err(|error| error.to_string())?).stderr(log);
        self.child = Some(command.spawn().map_err(|error| format!("{words:?}: {error}"))?);
        Ok(())
    }

    /// Turns it into a new member: another directory, another command line.
    pub fn begin_anew(&mut self, data: PathBuf, arguments: Vec<String>) {
        assert!(self.child.is_none(), "{} runs", self.name);
        (self.data, self.arguments, self.last_end) = (data, arguments, None);
        self.anew_at = self.log.metadata().map_or(0, |log| log.len());
    }

    /// Its process id while it runs.
    pub fn process(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// It has been started, and the rig has not killed it.
    pub fn is_started(&self) -> bool {
        self.child.is_some()
    }

    /// It is started, and neither stopped nor frozen.
    pub fn is_awake(&self) -> bool {
        self.child.is_some() && !self.is_stopped && self.freezer.is_none()
    }

    /// Its exit status, if it ended by itself.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.child.as_mut()?.try_wait().ok()??;
        self.child = None;
        self.wake();
        self.last_end = Some(status);
        Some(status)
    }

    /// Whether it has ended by itself; leaves the status to [`Member::ended`].
    pub fn has_ended(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| child.try_wait().is_ok_and(|status| status.is_some()))
    }

    /// Whether this end means that it was removed: it was told so, or no member knew it and it has no directory yet.
    pub fn was_removed(&self, status: ExitStatus) -> bool {
        status.success() || self.says().contains("no member of the cluster has this peer address")
    }

    /// Its exit status when it last ended by itself; `None` while it runs.
    pub fn last_end(&self) -> Option<ExitStatus> {
        self.last_end.filter(|_| self.child.is_none())
    }

    /// Waits until it has ended by itself; not longer than `limit`.
    pub fn wait_end(&mut self, limit: Duration) -> Option<ExitStatus> {
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
        self.wake();
        if let Some(mut child) = self.child.take() {
            let _ = child.wait();
        }
    }

    /// SIGSTOP.
    pub fn stop(&mut self) {
        if let Some(process) = self.process() {
            signal(process, "STOP");
            self.is_stopped = true;
        }
    }

    /// Freezes it with a cgroup of its own.
    ///
    /// # Errors
    /// The reason why this machine cannot.
    pub fn freeze(&mut self, most: Duration) -> Result<(), String> {
        if let Some(process) = self.process() {
            self.freezer = Some(Freezer::close(process, most)?);
        }
        Ok(())
    }

    /// Ends a stop or a freeze.
    pub fn wake(&mut self) {
        if let Some(child) = &self.child
            && self.is_stopped
        {
            let _ = Command::new("kill").args(["-s", "CONT", &child.id().to_string()]).status();
        }
        self.is_stopped = false;
        self.freezer = None;
    }

    /// Its log of the present run.
    pub fn says(&self) -> String {
        self.wrote_from(self.life_at)
    }

    /// It was ready once, in this run or an earlier one with this directory, so that the others know the directory.
    pub fn has_served(&self) -> bool {
        self.wrote_from(self.anew_at).contains("is ready to serve client requests")
    }

    /// It is new, and gave up because no member answered it for as long as it asks.
    pub fn has_asked_in_vain(&self) -> bool {
        !self.has_served() && self.says().contains("no other member answered with the member list")
    }

    fn wrote_from(&self, at: u64) -> String {
        let mut text = Vec::new();
        let read = File::open(&self.log).and_then(|mut log| {
            log.seek(SeekFrom::Start(at))?;
            log.read_to_end(&mut text)
        });
        let _ = read;
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Its log of all runs.
    pub fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Whether it answers a linearizable read.
    pub fn serves(&self) -> bool {
        self.is_awake() && self.kv.get("ready").is_ok()
    }

    /// Whether its own status says that it leads.
    pub fn leads(&self) -> bool {
        self.is_awake()
            && self.kv.status().is_ok_and(|status| {
                status.header.is_some_and(|header| header.member_id != 0 && header.member_id == status.leader)
            })
    }
}

impl Drop for Member {
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

/// A process in a frozen cgroup (version 1); thawed and removed when dropped.
struct Freezer {
    folder: PathBuf,
    guard: Option<Child>,
}

/// Mount point of the freezer, on machines that have one.
const FREEZER: &str = "/sys/fs/cgroup/freezer";

/// Whether processes can be frozen here.
///
/// # Errors
/// The reason why not.
pub fn can_freeze() -> Result<(), String> {
    let folder = Path::new(FREEZER).join(format!("kattu-chaos-{}-try", std::process::id()));
    std::fs::create_dir(&folder).map_err(|error| format!("no freezer: {error}"))?;
    let has_state = folder.join("freezer.state").exists();
    let _ = std::fs::remove_dir(&folder);
    has_state.then_some(()).ok_or_else(|| format!("no freezer at {FREEZER}"))
}

impl Freezer {
    fn close(process: u32, most: Duration) -> Result<Freezer, String> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let folder = Path::new(FREEZER).join(format!("kattu-chaos-{}-{number}", std::process::id()));
        let failed = |error: std::io::Error| format!("freezer: {error}");
        std::fs::create_dir(&folder).map_err(failed)?;
        let mut freezer = Freezer { folder, guard: None };
        // A frozen process cannot even be killed: a guard thaws it, should the rig die before.
        let thaw = format!("sleep {}; echo THAWED > freezer.state", most.as_secs() + 10);
        let mut guard = Command::new("setsid");
        guard.args(["sh", "-c", &thaw]).current_dir(&freezer.folder).stdin(Stdio::null());
        freezer.guard = Some(guard.stdout(Stdio::null()).stderr(Stdio::null()).spawn().map_err(failed)?);
        std::fs::write(freezer.folder.join("cgroup.procs"), process.to_string()).map_err(failed)?;
        std::fs::write(freezer.folder.join("freezer.state"), "FROZEN").map_err(failed)?;
        Ok(freezer)
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        let _ = std::fs::write(self.folder.join("freezer.state"), "THAWED");
        let members = std::fs::read_to_string(self.folder.join("cgroup.procs")).unwrap_or_default();
        for process in members.lines() {
            let _ = std::fs::write(Path::new(FREEZER).join("cgroup.procs"), process);
        }
        let _ = std::fs::remove_dir(&self.folder);
        if let Some(mut guard) = self.guard.take() {
            let _ = guard.kill();
            let _ = guard.wait();
        }
    }
}
