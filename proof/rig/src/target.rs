//! The system under test: `kattu serve`, or etcd, to check that the judges are fair.
//!
//! Knows nothing of: places, faults.

use crate::authority::Signed;
use crate::programs;
use std::path::{Path, PathBuf};
use std::process::Command;

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
    /// Which of the two this executable is.
    pub fn of(program: &Path) -> Target {
        match program.file_name() {
            Some(name) if name == "etcd" => Target::Etcd,
            _ => Target::Kattu,
        }
    }

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
            Target::Kattu => Ok(programs::kattu()),
            Target::Etcd => {
                let version = std::env::var("KATTU_ETCD").unwrap_or_else(|_| "etcd36/etcd".into());
                programs::tool(&version)
                    .ok_or_else(|| format!("no target/tools/{version}; run `cargo xtask tools`"))
            }
        }
    }

    /// The word before the flags of a server.
    pub fn verb(self) -> Option<&'static str> {
        match self {
            Target::Kattu => Some("serve"),
            Target::Etcd => None,
        }
    }

    /// Flags of all members of a trial: short timeouts and small files, so that much happens in little time.
    pub(crate) fn trial_flags(self) -> Vec<String> {
        let mut words = vec!["--heartbeat-interval", HEARTBEAT_MS, "--election-timeout", ELECTION_MS];
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
        words.into_iter().map(str::to_string).collect()
    }

    /// Words in a member's log that no fault excuses.
    pub(crate) fn never_says(self) -> &'static [&'static str] {
        match self {
            Target::Kattu => &["panicked at"],
            Target::Etcd => &["panic:", "fatal error:"],
        }
    }
}

/// `kattu serve`, or etcd itself when `KATTU_BIN` names it: the rig is tried on etcd.
pub fn serve() -> Command {
    let program = programs::kattu();
    let mut command = Command::new(&program);
    command.args(Target::of(&program).verb());
    command
}

/// A member's name, addresses and files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Naming<'a> {
    /// `n0`, `n1`, …
    pub name: &'a str,
    /// Where it listens.
    pub host: &'a str,
    /// Its address for the other members.
    pub face: &'a str,
    /// Its directory.
    pub data: &'a Path,
    /// All members, in the format of `--initial-cluster`.
    pub initial: &'a str,
    /// Distinguishes clusters.
    pub token: &'a str,
    /// Its certificate, and the authority of all certificates; if TLS is used.
    pub tls: Option<(&'a Signed, &'a Path)>,
}

impl Naming<'_> {
    /// The flags that both systems have for these.
    pub fn flags(&self) -> Vec<String> {
        let Naming { name, host, face, data, initial, token, tls } = *self;
        let scheme = if tls.is_some() { "https" } else { "http" };
        // Pages can be read without TLS: one port accepts both.
        let clients = match tls {
            Some(_) => format!("http://{host}:2379,https://{host}:2379"),
            None => format!("http://{host}:2379"),
        };
        let pairs = [
            ("--name", name),
            ("--data-dir", &data.display().to_string()),
            ("--listen-client-urls", &clients),
            ("--advertise-client-urls", &clients),
            ("--listen-peer-urls", &format!("{scheme}://{host}:2380")),
            ("--initial-advertise-peer-urls", &format!("{scheme}://{face}:2380")),
            ("--initial-cluster", initial),
            ("--initial-cluster-token", token),
        ];
        let mut words: Vec<String> =
            pairs.iter().flat_map(|(flag, value)| [flag.to_string(), value.to_string()]).collect();
        if let Some((own, ca)) = tls {
            let files = [
                ("cert-file", own.cert.as_path()),
                ("key-file", &own.key),
                ("peer-cert-file", &own.cert),
                ("peer-key-file", &own.key),
                ("peer-trusted-ca-file", ca),
            ];
            words.extend(files.map(|(flag, file)| format!("--{flag}={}", file.display())));
        }
        words
    }
}

/// The flags of one member without TLS, whose peers reach it where it listens.
pub fn flags(name: &str, host: &str, data: &Path, initial: &str, token: &str) -> Vec<String> {
    Naming { name, host, face: host, data, initial, token, tls: None }.flags()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_name_the_listener_to_itself_and_the_face_to_others() {
        let data = Path::new("/d");
        let naming = Naming {
            name: "n0",
            host: "h",
            face: "f",
            data,
            initial: "n0=http://f:2380",
            token: "t",
            tls: None,
        };
        let flags = naming.flags();
        let value = |flag: &str| {
            let at = flags.iter().position(|word| word == flag).expect("it is given");
            flags[at + 1].as_str()
        };
        assert_eq!(value("--listen-peer-urls"), "http://h:2380");
        assert_eq!(value("--initial-advertise-peer-urls"), "http://f:2380");
        assert_eq!(value("--advertise-client-urls"), "http://h:2379");
        let own = Signed { cert: "c".into(), key: "k".into(), serial: 1 };
        let in_tls = Naming { tls: Some((&own, Path::new("ca"))), ..naming }.flags();
        assert!(in_tls.contains(&"http://h:2379,https://h:2379".to_string()));
        assert!(in_tls.contains(&"--peer-trusted-ca-file=ca".to_string()));
        assert_eq!(in_tls.len(), flags.len() + 5);
    }

    #[test]
    fn an_executable_is_known_by_its_name() {
        assert_eq!(Target::of(Path::new("/tools/etcd36/etcd")), Target::Etcd);
        assert_eq!(Target::of(Path::new("/tools/etcd/kattu")), Target::Kattu);
    }
}
