//! TLS for either side of a pair, with the same certificates; and `cargo xtask bench handshakes`.
//!
//! Knows nothing of: requests, answers.

use super::cluster::{Cluster, NO_FLAGS, Program};
use super::meter::Meter;
use crate::commands::misused;
use crate::rigs::{self, Purpose};
use crate::shell::{self, Failure};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Connections opened at the same time.
const CLIENTS: &str = "16";
const SECONDS: &str = "10";

/// Certificates in a folder.
#[derive(Clone, Debug)]
pub struct Certificates(PathBuf);

impl Certificates {
    /// New certificates for these hosts.
    pub fn new(hosts: &[String]) -> Result<Certificates, Failure> {
        let folder = shell::root().join("target/bench/certificates");
        let mut words = vec![folder.display().to_string()];
        words.extend_from_slice(hosts);
        words.push("127.0.0.1".to_string()); // etcd checks a member's certificate against the address of its connection
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        rigs::in_foreground("certificates", &words)?;
        Ok(Certificates(folder))
    }

    fn at(&self, name: &str) -> String {
        self.0.join(format!("bench.{name}")).display().to_string()
    }

    /// Flags of a server; every client must present a certificate, too.
    pub fn of_server(&self) -> [String; 7] {
        let flags =
            ["--cert-file", "--key-file", "--trusted-ca-file", "--client-cert-auth"].map(str::to_string);
        let [cert, key, ca, asks] = flags;
        [cert, self.at("server.crt"), key, self.at("server.key"), ca, self.at("ca.crt"), asks]
    }

    /// The same between members.
    pub fn of_peer(&self) -> [String; 7] {
        self.of_server().map(|word| match word.strip_prefix("--") {
            Some(flag) => format!("--peer-{flag}"),
            None => word,
        })
    }

    /// Flags of etcd's tools, and ours.
    pub fn of_client(&self) -> [String; 6] {
        let [ca, cert, key] = ["--cacert", "--cert", "--key"].map(str::to_string);
        [ca, self.at("ca.crt"), cert, self.at("client.crt"), key, self.at("client.key")]
    }

    /// Their folder.
    pub fn folder(&self) -> &Path {
        &self.0
    }
}

/// `cargo xtask bench handshakes`: handshakes per second, and the server's cost of one.
pub fn handshakes(words: &[&str]) -> Result<(), Failure> {
    let pairs = match words {
        [] => 3,
        ["--pairs", text] => {
            text.parse::<usize>().map_err(|_| Failure::usage(format!("--pairs {text}: not a number")))?
        }
        _ => return Err(misused("bench handshakes")),
    };
    let etcdctl = shell::tools_dir().join("etcd36/etcdctl");
    let etcd = Program { name: "etcd", path: shell::tools_dir().join("etcd36/etcd"), words: Vec::new() };
    let kattu = Program::kattu(&shell::kattu()?, NO_FLAGS);
    for path in [&etcd.path, &kattu.path] {
        if !path.exists() {
            return Err(Failure::new(format!("{} is not there", path.display())).then("cargo xtask tools"));
        }
    }
    println!(
        "{CLIENTS} clients for {SECONDS} s, certificates on both sides (ECDSA P-256), no session is resumed"
    );
    println!("| pair | server | handshakes/s | server CPU, ms each |\n|---|---|---:|---:|");
    for pair in 0..pairs {
        let mut sides = [&etcd, &kattu];
        if pair % 2 == 1 {
            sides.reverse();
        }
        for side in sides {
            let folder = shell::root().join("target/bench/data").join(side.name);
            let number = 230 + 2 * pair;
            let cluster = Cluster::start_in_tls(side, &folder, number, &etcdctl, true)?;
            let certificates = cluster.certificates().expect("it was started with them");
            let meter = Meter::start(&cluster.pids());
            let mut shake = rigs::program("handshakes", &[], Purpose::Measure);
            shake.arg(cluster.address(0)).arg(certificates.folder()).args([CLIENTS, SECONDS]);
            let text = shell::output(&mut shake, Duration::from_secs(60))?;
            let reading = meter.stop();
            let told: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
            let (Some(count), Some(0)) = (told["handshakes"].as_u64(), told["failed"].as_u64()) else {
                return Err(Failure::new(format!("{}: handshakes failed: {text}", side.name)));
            };
            let cpu_s: f64 = reading.used.iter().map(|used| used.user_s + used.system_s).sum();
            let each = cpu_s * 1e3 / count.max(1) as f64;
            println!("| {} | {} | {} | {each:.3} |", pair + 1, side.name, told["per_s"]);
        }
    }
    Ok(())
}
