//! Three servers on loopback, with etcd's flags: either side of a pair.
//!
//! Every cluster gets loopback addresses of its own, so a stray server of another run is never measured by mistake.
//! Knows nothing of: etcd, Kattu; both are a program with etcd's flags.

use super::tls::Certificates;
use crate::shell::{self, Failure};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Members of a cluster.
pub const MEMBERS: usize = 3;
const START_LIMIT: Duration = Duration::from_secs(30);
const STOP_LIMIT: Duration = Duration::from_secs(120);

/// No flags beside those of every member of a cluster.
pub const NO_FLAGS: [&str; 0] = [];

/// A program with etcd's flags.
#[derive(Clone, Debug)]
pub struct Program {
    /// `etcd` or `kattu`.
    pub name: &'static str,
    /// The executable.
    pub path: PathBuf,
    /// Words before the flags of a cluster.
    pub words: Vec<String>,
}

impl Program {
    /// A Kattu, with more flags than those of every member of a cluster.
    pub fn kattu<S: ToString>(path: &Path, flags: impl IntoIterator<Item = S>) -> Program {
        let flags = flags.into_iter().map(|flag| flag.to_string());
        let words = std::iter::once("serve".to_string()).chain(flags).collect();
        Program { name: "kattu", path: path.to_path_buf(), words }
    }
}

/// An error if the tool by which members are asked is missing.
pub fn find_tool(etcdctl: &Path) -> Result<(), Failure> {
    if etcdctl.exists() {
        return Ok(());
    }
    let missing = format!("no {}: the members are asked for their leader with it", etcdctl.display());
    Err(Failure::new(missing).then("cargo xtask tools"))
}

/// A running cluster; dropped, it is stopped and its data removed.
pub struct Cluster {
    children: Vec<Child>,
    /// Each starts one member.
    commands: Vec<Command>,
    /// With `https://` if TLS is used.
    client_addresses: Vec<String>,
    folder: PathBuf,
    etcdctl: PathBuf,
    certificates: Option<Certificates>,
}

impl Cluster {
    /// Starts members on fresh data below `folder` and waits for a leader.
    pub fn start(
        program: &Program,
        folder: &Path,
        number: usize,
        etcdctl: &Path,
    ) -> Result<Cluster, Failure> {
        Cluster::start_in_tls(program, folder, number, etcdctl, false)
    }

    /// The same; with `in_tls`, TLS with certificates on both sides, for clients and between members.
    pub fn start_in_tls(
        program: &Program,
        folder: &Path,
        number: usize,
        etcdctl: &Path,
        in_tls: bool,
    ) -> Result<Cluster, Failure> {
        find_tool(etcdctl)?;
        if folder.exists() {
            std::fs::remove_dir_all(folder)?;
        }
        std::fs::create_dir_all(folder)?;
        let hosts = hosts(number);
        let certificates = if in_tls { Some(Certificates::new(&hosts)?) } else { None };
        let scheme = if in_tls { "https://" } else { "" };
        let client_addresses = hosts.iter().map(|host| format!("{scheme}{host}:2379")).collect::<Vec<_>>();
        let scheme = if in_tls { "https" } else { "http" };
        let initial: Vec<String> =
            hosts.iter().enumerate().map(|(i, host)| format!("n{i}={scheme}://{host}:2380")).collect();
        let mut cluster = Cluster {
            children: Vec::new(),
            commands: Vec::new(),
            client_addresses,
            folder: folder.to_path_buf(),
            etcdctl: etcdctl.to_path_buf(),
            certificates,
        };
        for (i, host) in hosts.iter().enumerate() {
            let log = File::create(folder.join(format!("n{i}.log")))?;
            let mut command = Command::new(&program.path);
            command
                .args(&program.words)
                .args(["--name", &format!("n{i}"), "--data-dir"])
                .arg(folder.join(format!("n{i}")))
                .args(["--listen-client-urls", &format!("{scheme}://{host}:2379")])
                .args(["--advertise-client-urls", &format!("{scheme}://{host}:2379")])
                .args(cluster.certificates.iter().flat_map(Certificates::of_server))
                .args(cluster.certificates.iter().flat_map(Certificates::of_peer))
                .args(["--listen-peer-urls", &format!("{scheme}://{host}:2380")])
                .args(["--initial-advertise-peer-urls", &format!("{scheme}://{host}:2380")])
                .args(["--initial-cluster", &initial.join(",")])
                .args(["--initial-cluster-token", "bench", "--log-level", "warn"])
                .args(["--quota-backend-bytes", "8589934592"])
                .stdin(Stdio::null())
                .stdout(log.try_clone()?)
                .stderr(log);
            cluster.children.push(command.spawn()?);
            cluster.commands.push(command);
        }
        let end = Instant::now() + START_LIMIT;
        while cluster.leader().is_none() {
            if let Some(i) =
                cluster.children.iter_mut().position(|child| matches!(child.try_wait(), Ok(Some(_))))
            {
                let log = std::fs::read_to_string(folder.join(format!("n{i}.log"))).unwrap_or_default();
                return Err(Failure::new(format!("{} n{i} ended at once:\n{log}", program.name)));
            }
            if end < Instant::now() {
                let log = std::fs::read_to_string(folder.join("n0.log")).unwrap_or_default();
                return Err(Failure::new(format!(
                    "{}: no leader after {START_LIMIT:?}:\n{log}",
                    program.name
                )));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(cluster)
    }

    /// Process ids, in member order.
    pub fn pids(&self) -> Vec<u32> {
        self.children.iter().map(Child::id).collect()
    }

    /// The client addresses, comma-separated.
    pub fn endpoints(&self) -> String {
        self.client_addresses.join(",")
    }

    /// One member's client address.
    pub fn endpoint(&self, member: usize) -> &str {
        &self.client_addresses[member]
    }

    /// The same without a scheme.
    pub fn address(&self, member: usize) -> &str {
        let endpoint = self.endpoint(member);
        endpoint.strip_prefix("https://").unwrap_or(endpoint)
    }

    /// The certificates, if TLS is used.
    pub fn certificates(&self) -> Option<&Certificates> {
        self.certificates.as_ref()
    }

    /// Flags of clients beside the endpoints.
    pub fn client_flags(&self) -> Vec<String> {
        self.certificates.iter().flat_map(Certificates::of_client).collect()
    }

    /// The place of the leader, by `Maintenance.Status`.
    pub fn leader(&self) -> Option<usize> {
        let mut ask = Command::new(&self.etcdctl);
        ask.args(self.client_flags());
        ask.env("ETCDCTL_API", "3").args([
            "--endpoints",
            &self.endpoints(),
            "endpoint",
            "status",
            "-w",
            "json",
        ]);
        // etcdctl fails when one member is silent, and still prints the others.
        let text = ask.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?.stdout;
        let answers: serde_json::Value = serde_json::from_slice(&text).ok()?;
        answers.as_array()?.iter().find_map(|answer| {
            let status = &answer["Status"];
            let leader = status["leader"].as_u64().filter(|leader| *leader != 0)?;
            if status["header"]["member_id"].as_u64() != Some(leader) {
                return None;
            }
            let endpoint = answer["Endpoint"].as_str()?;
            self.client_addresses.iter().position(|address| endpoint.ends_with(address.as_str()))
        })
    }

    /// Stops all members cleanly.
    pub fn stop(&mut self) -> Result<(), Failure> {
        for child in &self.children {
            shell::signal(&child.id().to_string(), "TERM");
        }
        let end = Instant::now() + STOP_LIMIT;
        while self.children.iter_mut().any(|child| matches!(child.try_wait(), Ok(None))) {
            if end < Instant::now() {
                return Err(Failure::new(format!("a member has not stopped after {STOP_LIMIT:?}")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// The data directory of a member.
    pub fn data_dir(&self, member: usize) -> PathBuf {
        self.folder.join(format!("n{member}"))
    }

    /// Stops one member cleanly and starts it again on its data; returns the time at which it was started.
    pub fn restart(&mut self, member: usize) -> Result<Instant, Failure> {
        shell::signal(&self.children[member].id().to_string(), "TERM");
        self.children[member].wait()?;
        let begun = Instant::now();
        self.children[member] = self.commands[member].spawn()?;
        Ok(begun)
    }

    /// Runs etcdctl against all members.
    pub fn etcdctl(&self, words: &[&str]) -> Result<String, Failure> {
        let mut ask = Command::new(&self.etcdctl);
        ask.env("ETCDCTL_API", "3").args(["--endpoints", &self.endpoints()]).args(words);
        ask.args(self.client_flags());
        shell::output(&mut ask, Duration::from_secs(20))
    }
}

/// Loopback addresses of a cluster of this process, by its number.
pub fn hosts(number: usize) -> Vec<String> {
    let process = std::process::id();
    let (high, low) = ((process >> 8) & 0x3f, process & 0xff);
    (0..MEMBERS)
        .map(|member| format!("127.{}.{low}.{}", 64 + high, 1 + (number * MEMBERS + member) % 250))
        .collect()
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in &mut self.children {
            // SIGKILL: the measurement is over, and no data is kept.
            let _ = child.kill();
            let _ = child.wait();
        }
        for i in 0..MEMBERS {
            // Logs are kept, data is not.
            let _ = std::fs::remove_dir_all(self.folder.join(format!("n{i}")));
        }
    }
}
