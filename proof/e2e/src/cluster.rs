//! Clusters: members as processes that are started, killed, restarted and asked for their leader.
//!
//! Knows nothing of: keys, values.

use crate::alone::Beside;
use crate::grpc::Kv;
use crate::page::Page;
use crate::process::{self, Ended, own_folder, own_host, until};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The log line by which a member reports that it serves.
pub const READY: &str = "ready to serve client requests";
/// A member that is asked to stop ends within this.
const STOP_LIMIT: Duration = Duration::from_secs(5);
/// A member whose disk or machine stalls ends by its own deadline, shortly before [`STOP_LIMIT`], and logs these words.
/// We may see its end later than that limit, but not later than [`STOP_LIMIT_LATE`].
const STOPPED_LATE: &str = "stopping took too long";
const STOP_LIMIT_LATE: Duration = Duration::from_secs(15);

/// Options of a new cluster.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many members.
    pub members: usize,
    /// More flags for every member.
    pub flags: Vec<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options { members: 3, flags: Vec::new() }
    }
}

/// One member: its place, and its process while it runs.
pub struct Member {
    /// `n0`, `n1`, …
    pub name: String,
    /// Its loopback address.
    pub host: String,
    /// Its data directory.
    pub data: PathBuf,
    log: PathBuf,
    arguments: Vec<String>,
    program: PathBuf,
    child: Option<Child>,
}

/// Members that form a cluster. Dropped: all are killed; data is removed unless the thread panics.
pub struct Cluster {
    /// In the order of their names.
    pub members: Vec<Member>,
    folder: PathBuf,
    _beside: Beside,
}

/// The flags of one member of a cluster.
pub fn flags(name: &str, host: &str, data: &Path, initial: &str, token: &str) -> Vec<String> {
    let (clients, peers) = (format!("http://{host}:2379"), format!("http://{host}:2380"));
    let pairs = [
        ("--name", name),
        ("--data-dir", &data.display().to_string()),
        ("--listen-client-urls", &clients),
        ("--advertise-client-urls", &clients),
        ("--listen-peer-urls", &peers),
        ("--initial-advertise-peer-urls", &peers),
        ("--initial-cluster", initial),
        ("--initial-cluster-token", token),
    ];
    pairs.iter().flat_map(|(flag, value)| [flag.to_string(), value.to_string()]).collect()
}

/// `kattu serve`, or etcd itself when `KATTU_BIN` names it: the harness is tried on etcd.
pub fn serve() -> Command {
    serve_by(&process::kattu())
}

/// The same with this binary, such as another version's.
fn serve_by(program: &Path) -> Command {
    let mut command = Command::new(program);
    if program.file_name().is_none_or(|name| name != "etcd") {
        command.arg("serve");
    }
    command
}

impl Cluster {
    /// Starts `members` with default flags and waits until each serves.
    #[track_caller]
    pub fn start(what: &str, members: usize) -> Cluster {
        Cluster::with(what, Options { members, ..Options::default() })
    }

    /// Starts and waits until each serves.
    #[track_caller]
    pub fn with(what: &str, options: Options) -> Cluster {
        let mut cluster = Cluster::plan(what, options);
        cluster.start_all();
        cluster
    }

    /// Creates the folder and the members' command lines; starts no process.
    pub fn plan(what: &str, options: Options) -> Cluster {
        let beside = Beside::new();
        let folder = own_folder(what);
        let hosts: Vec<String> = (0..options.members).map(|_| own_host()).collect();
        let initial: Vec<String> =
            hosts.iter().enumerate().map(|(i, host)| format!("n{i}=http://{host}:2380")).collect();
        let initial = initial.join(",");
        let members = hosts
            .into_iter()
            .enumerate()
            .map(|(i, host)| {
                let name = format!("n{i}");
                let data = folder.join(&name);
                let mut arguments = flags(&name, &host, &data, &initial, what);
                arguments.extend(options.flags.iter().cloned());
                Member {
                    log: folder.join(format!("{name}.log")),
                    name,
                    host,
                    data,
                    arguments,
                    program: process::kattu(),
                    child: None,
                }
            })
            .collect();
        Cluster { members, folder, _beside: beside }
    }

    /// Plans one more member, neither added to the cluster nor started: its flags are those of a member that joins the
    /// running ones. Returns its place.
    pub fn plan_joining(&mut self, what: &str) -> usize {
        let name = format!("n{}", self.members.len());
        let host = own_host();
        let present = self.members.iter().filter(|member| member.child.is_some());
        let initial: Vec<String> = present
            .map(|member| (&member.name, &member.host))
            .chain([(&name, &host)])
            .map(|(name, host)| format!("{name}=http://{host}:2380"))
            .collect();
        let data = self.folder.join(&name);
        let mut arguments = flags(&name, &host, &data, &initial.join(","), what);
        arguments.extend(["--initial-cluster-state", "existing"].map(str::to_string));
        let log = self.folder.join(format!("{name}.log"));
        let program = process::kattu();
        self.members.push(Member { log, name, host, data, arguments, program, child: None });
        self.members.len() - 1
    }

    /// Starts all that do not run and waits until each serves.
    #[track_caller]
    pub fn start_all(&mut self) {
        for member in &mut self.members {
            if member.child.is_none() {
                member.spawn();
            }
        }
        for member in &mut self.members {
            member.wait_ready();
        }
    }

    /// Kills all at once with SIGKILL.
    pub fn kill_all(&mut self) {
        for member in &mut self.members {
            if let Some(child) = &mut member.child {
                // Signal all before waiting for any: they should die together.
                let _ = child.kill();
            }
        }
        for member in &mut self.members {
            member.kill();
        }
    }

    /// The client address of each member.
    pub fn addresses(&self) -> Vec<String> {
        self.members.iter().map(Member::address).collect()
    }

    /// The same as one string, separated by commas.
    pub fn endpoints(&self) -> String {
        self.addresses().join(",")
    }

    /// The cluster's folder, for files of the test.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The place of the leader, from the members' own status; waits for one.
    #[track_caller]
    pub fn leader(&self) -> usize {
        let clients: Vec<(usize, Kv)> = self
            .members
            .iter()
            .enumerate()
            .filter(|(_, member)| member.child.is_some())
            .map(|(i, member)| (i, member.kv().within(Duration::from_secs(1))))
            .collect();
        until("a member that leads", || {
            clients.iter().find_map(|(i, client)| {
                let status = client.status().ok()?;
                let id = status.header.as_ref()?.member_id;
                (id != 0 && status.leader == id).then_some(*i)
            })
        })
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for member in &mut self.members {
            member.kill();
        }
        if std::thread::panicking() {
            for member in &self.members {
                eprintln!("--- the end of {}:\n{}", member.log.display(), member.log_tail());
            }
        } else {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

impl Member {
    /// `host:2379`
    pub fn address(&self) -> String {
        format!("{}:2379", self.host)
    }

    /// Where its peers reach it.
    pub fn peer_url(&self) -> String {
        format!("http://{}:2380", self.host)
    }

    /// A client of this member alone.
    pub fn kv(&self) -> Kv {
        Kv::of(&self.address())
    }

    /// A metric without labels; `None` if the member does not answer or has no such metric. For several numbers of one
    /// moment, or for labels, read a [`Page`].
    #[must_use]
    pub fn metric(&self, name: &str) -> Option<u64> {
        Page::of(&self.address())?.number(name)
    }

    /// The process id; panics if it does not run.
    #[track_caller]
    pub fn pid(&self) -> u32 {
        self.child.as_ref().map(Child::id).expect("the member runs")
    }

    /// The process id, if the harness started it and has not ended it.
    pub fn pid_if_runs(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Starts the process and returns at once.
    #[track_caller]
    pub fn spawn(&mut self) {
        assert!(self.child.is_none(), "{} runs already", self.name);
        let log = File::create(&self.log).expect("the log can be written");
        let mut command = serve_by(&self.program);
        command.args(&self.arguments).stdin(Stdio::null());
        command.stdout(log.try_clone().expect("a second handle")).stderr(log);
        self.child = Some(command.spawn().expect("the binary can be run"));
    }

    /// Waits for the log line [`READY`]; panics if the process ends before.
    #[track_caller]
    pub fn wait_ready(&mut self) {
        let (log, name) = (self.log.clone(), self.name.clone());
        let child = self.child.as_mut().expect("the member runs");
        until(&format!("{name} says `{READY}`"), || {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            if let Ok(Some(status)) = child.try_wait() {
                panic!("{name} ended with {status}:\n{text}");
            }
            text.contains(READY).then_some(())
        });
    }

    /// Starts and waits.
    #[track_caller]
    pub fn start(&mut self) {
        self.spawn();
        self.wait_ready();
    }

    /// kill -9; does nothing if the process does not run.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Sends a signal and returns the exit code. Panics if the member needs more than 5 s, unless its own deadline
    /// ended it.
    #[track_caller]
    pub fn stop(&mut self, signal: &str) -> Option<i32> {
        let mut child = self.child.take().expect("the member runs");
        process::signal(child.id(), signal);
        let begun = Instant::now();
        loop {
            if let Some(status) = child.try_wait().expect("we may wait for our child") {
                let took = begun.elapsed();
                let in_time = took <= STOP_LIMIT || self.log_text().contains(STOPPED_LATE);
                assert!(in_time, "{} ended {took:?} after {signal}:\n{}", self.name, self.log_tail());
                return status.code();
            }
            if STOP_LIMIT_LATE < begun.elapsed() {
                let _ = child.kill();
                let _ = child.wait();
                panic!("{} runs {STOP_LIMIT_LATE:?} after {signal}:\n{}", self.name, self.log_tail());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// True while the process runs.
    pub fn is_running(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Waits until the process has ended by itself; returns its exit code and output.
    #[track_caller]
    pub fn wait_end(&mut self) -> Ended {
        let child = self.child.as_mut().expect("the member runs");
        let status = until(&format!("{} ends by itself", self.name), || child.try_wait().ok().flatten());
        self.child = None;
        Ended { code: status.code(), out: String::new(), err: self.log_text() }
    }

    /// All output since its last start.
    pub fn log_text(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn log_tail(&self) -> String {
        let text = self.log_text();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// Its next start uses this binary instead of the one under test.
    pub fn run_by(&mut self, program: &Path) {
        self.program = program.to_path_buf();
    }

    /// Its command line; a test may add flags before it starts.
    pub fn arguments_mut(&mut self) -> &mut Vec<String> {
        &mut self.arguments
    }
}
