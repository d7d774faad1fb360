//! The system under test: `kattu serve`, or etcd, to check that the judges are fair.
//!
//! Knows nothing of: places, faults.

use kattu_e2e::authority::Signed;
use std::path::{Path, PathBuf};

/// The system under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Ours.
    Kattu,
    /// etcd 3.6, or the version that `KATTU_ETCD` names (a path below `target/tools`).
    Etcd,
}

/// Timeouts that keep a trial quick, and still survive a busy machine.
const HEARTBEAT_MS: &str = "50";
const ELECTION_MS: &str = "500";

impl Target {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Target::Kattu => "kattu",
            Target::Etcd => "etcd",
        }
    }

    /// The executable.
    ///
    /// # Errors
    /// How to get it.
    pub fn program(self) -> Result<PathBuf, String> {
        match self {
            Target::Kattu => Ok(kattu_e2e::kattu()),
            Target::Etcd => {
                let version = std::env::var("KATTU_ETCD").unwrap_or_else(|_| "etcd36/etcd".into());
                kattu_e2e::tool(&version)
                    .ok_or_else(|| format!("no target/tools/{version}; run `cargo xtask tools`"))
            }
        }
    }

    /// The command line of one member. `face` is its address for the other members.
    pub fn command_line(self, member: &Naming<'_>) -> Vec<String> {
        let Naming { name, host, face, data, roll, token, tls } = member;
        let scheme = if tls.is_some() { "https" } else { "http" };
        // Pages can be read without TLS: one port accepts both.
        let clients = match tls {
            Some(_) => format!("http://{host}:2379,https://{host}:2379"),
            None => format!("http://{host}:2379"),
        };
        let peers = format!("{scheme}://{host}:2380");
        let (face, data) = (format!("{scheme}://{face}:2380"), data.display().to_string());
        let mut words: Vec<&str> = match self {
            Target::Kattu => vec!["serve"],
            Target::Etcd => vec![],
        };
        words.extend(["--name", name, "--data-dir", &data]);
        words.extend(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        words.extend(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &face]);
        words.extend(["--initial-cluster", roll, "--initial-cluster-token", token]);
        words.extend(["--heartbeat-interval", HEARTBEAT_MS, "--election-timeout", ELECTION_MS]);
        match self {
            // Small segments, so that the log reaches a new one many times in a trial.
            Target::Kattu => words.extend([
                "--segment-bytes=1048576",
                "--snapshot-log-bytes=1048576",
                "--snapshot-keep-bytes=524288",
                "--max-request-bytes=262144",
                "--disk-reserve-bytes=4194304",
                // Hanging disks are a matter of the end-to-end tests (F16). Here the machine's own disk may be slow for
                // a while, and a member that does not serve because of it is noticed all the same.
                "--disk-stall-timeout=60000",
            ]),
            // Few entries between snapshots, for the same reason.
            Target::Etcd => words.extend(["--log-level", "warn", "--snapshot-count", "1000"]),
        }
        let mut words: Vec<String> = words.into_iter().map(str::to_string).collect();
        if let Some((own, ca)) = tls {
            for (flag, file) in [
                ("cert-file", &own.cert),
                ("key-file", &own.key),
                ("peer-cert-file", &own.cert),
                ("peer-key-file", &own.key),
                ("peer-trusted-ca-file", &ca.to_path_buf()),
            ] {
                words.push(format!("--{flag}={}", file.display()));
            }
        }
        words
    }

    /// Words in a member's log that no fault excuses.
    pub fn never_says(self) -> &'static [&'static str] {
        match self {
            Target::Kattu => &["panicked at"],
            Target::Etcd => &["panic:", "fatal error:"],
        }
    }
}

/// A member's name, addresses and files.
#[derive(Clone, Copy, Debug)]
pub struct Naming<'a> {
    /// `n0`, `n1`, …
    pub name: &'a str,
    /// Where it listens.
    pub host: &'a str,
    /// Its address for the other members.
    pub face: &'a str,
    /// Its directory.
    pub data: &'a Path,
    /// All members, in the format of `--initial-cluster`.
    pub roll: &'a str,
    /// Distinguishes clusters.
    pub token: &'a str,
    /// Its certificate, and the authority of all certificates; if TLS is used.
    pub tls: Option<(&'a Signed, &'a Path)>,
}
