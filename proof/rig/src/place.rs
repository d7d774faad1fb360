//! Places of members: a network namespace each, or a loopback address each.
//!
//! ```text
//!   ┌ member 0 ─────────┐        ┌ hub (this process) ─────────────────────────┐
//!   │ 10.b.0.2  ════════╪═ veth ═╪═ 10.b.0.1     faces 10.b.200.j: proxies     │
//!   └───────────────────┘        │               stand-ins 10.b.201.j          │
//!   ┌ member 1 ─────────┐        │                                             │
//!   │ 10.b.1.2  ════════╪═ veth ═╪═ 10.b.1.1     clients                       │
//!   └───────────────────┘        └─────────────────────────────────────────────┘
//! ```
//! Members know each other by their *faces*, where the link proxy listens; it connects to member `i` for member `j`
//! from the stand-in of `j`. So the address pair of every packet identifies its two members, and a rule of iptables can
//! cut one direction of one link. The hub is a namespace of its own too: nothing reaches the machine's network, and all
//! of it vanishes with the processes in it.
//! Without root: loopback addresses, no rules; the proxy looks up the process that opened a connection.
//! Knows nothing of: Kattu, etcd.

use crate::programs::own_host;
use std::io::Write;
use std::net::IpAddr;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// One member's place.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Where it listens, for clients and the proxy.
    pub host: String,
    /// Its address for other members: the proxy's listener.
    pub face: String,
    /// The proxy's address for its connections, and the source address of those that it opens; `None` on loopback.
    pub stand_in: Option<(IpAddr, IpAddr)>,
    /// Words that a command line must begin with to run there.
    pub prefix: Vec<String>,
}

impl Endpoint {
    /// The address for clients, `host:2379`.
    pub fn address(&self) -> String {
        format!("{}:2379", self.host)
    }
}

/// The places of one cluster; removed when dropped.
pub struct Place {
    /// One per member.
    pub endpoints: Vec<Endpoint>,
    holders: Vec<Child>,
    hub_addresses: Vec<String>,
}

/// Set in the environment of the process that runs in the hub namespace.
pub(crate) const INSIDE: &str = "KATTU_CHAOS_INSIDE";

/// Whether this process may make namespaces and rules.
pub fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// The command that runs this program again in a network and a mount namespace of its own, if that is possible here.
///
/// # Errors
/// The reason why not.
pub fn enter() -> Result<Command, String> {
    let trial = Command::new("unshare").args(["--net", "--mount", "ip", "link", "set", "lo", "up"]).output();
    let trial = trial.map_err(|error| format!("no unshare: {error}"))?;
    if !trial.status.success() {
        return Err(format!("no network namespaces: {}", String::from_utf8_lossy(&trial.stderr).trim()));
    }
    for program in ["nsenter", "setpriv"] {
        let asked = Command::new(program).arg("--version").stdout(Stdio::null()).status();
        asked.map_err(|error| format!("no {program}: {error}"))?;
    }
    let myself = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut again = Command::new("unshare");
    again.args(["--net", "--mount", "--"]).arg(myself).args(std::env::args_os().skip(1)).env(INSIDE, "1");
    Ok(again)
}

/// Makes loopback work in the present namespace: in a new one it does not.
///
/// # Errors
/// The message of `ip`.
pub fn raise_loopback() -> Result<(), String> {
    ip(None, "link set lo up\n")
}

/// Words before a command that make it die with the rig, however that ends.
fn mortal() -> Vec<String> {
    let can = Command::new("setpriv").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    match can {
        Ok(status) if status.success() => {
            ["setpriv", "--pdeathsig", "KILL", "--"].map(str::to_string).to_vec()
        }
        _ => Vec::new(),
    }
}

impl Place {
    /// Loopback addresses: a face of its own per member if there is a proxy, else the member's own.
    pub fn loopback(members: usize, proxied: bool) -> Place {
        let endpoints = (0..members)
            .map(|_| {
                let host = own_host();
                let face = if proxied { own_host() } else { host.clone() };
                Endpoint { host, face, stand_in: None, prefix: mortal() }
            })
            .collect();
        Place { endpoints, holders: Vec::new(), hub_addresses: Vec::new() }
    }

    /// Loopback addresses for the members of a test, which may be started by a thread that they outlive: their death
    /// is not tied to it.
    pub(crate) fn of_test(members: usize) -> Place {
        let mut place = Place::loopback(members, false);
        place.endpoints.iter_mut().for_each(|endpoint| endpoint.prefix.clear());
        place
    }

    /// A namespace per member around the present one.
    ///
    /// # Errors
    /// The message of `ip` or the kernel.
    pub fn namespaces(members: usize) -> Result<Place, String> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed) % 128;
        let net = format!("10.{}", 64 + number);
        let mut place = Place { endpoints: Vec::new(), holders: Vec::new(), hub_addresses: Vec::new() };
        raise_loopback()?;
        for member in 0..members {
            let holder = place.hold()?;
            let (outside, inside) = (format!("{net}.{member}.1"), format!("{net}.{member}.2"));
            let (face, stand_in) =
                (format!("{net}.200.{}", 10 + member), format!("{net}.201.{}", 10 + member));
            let link = format!("v{number}m{member}");
            ip(
                None,
                &format!(
                    "link add name {link} type veth peer name up0 netns {holder}\n\
                     addr add {outside}/24 dev {link}\nlink set {link} up\n\
                     addr add {face}/32 dev lo\naddr add {stand_in}/32 dev lo\n"
                ),
            )?;
            place.hub_addresses.extend([face.clone(), stand_in.clone()]);
            ip(
                Some(holder),
                &format!(
                    "link set lo up\naddr add {inside}/24 dev up0\nlink set up0 up\nroute add default via {outside}\n"
                ),
            )?;
            let enter = ["nsenter".to_string(), format!("--net=/proc/{holder}/ns/net"), "--".into()];
            let address = |text: &str| text.parse::<IpAddr>().map_err(|error| error.to_string());
            place.endpoints.push(Endpoint {
                stand_in: Some((address(&stand_in)?, address(&inside)?)),
                host: inside,
                face,
                prefix: mortal().into_iter().chain(enter).collect(),
            });
        }
        Ok(place)
    }

    /// Starts a process that only keeps a namespace alive.
    fn hold(&mut self) -> Result<u32, String> {
        let mut words = mortal();
        words.extend(["unshare", "--net", "--", "sleep", "infinity"].map(str::to_string));
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().map_err(|error| format!("{words:?}: {error}"))?;
        let process = child.id();
        self.holders.push(child);
        let ours = std::fs::read_link("/proc/self/ns/net").map_err(|error| error.to_string())?;
        let end = Instant::now() + Duration::from_secs(10);
        while std::fs::read_link(format!("/proc/{process}/ns/net")).ok().is_none_or(|its| its == ours) {
            if end < Instant::now() {
                return Err("a network namespace does not come up".into());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(process)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for holder in &mut self.holders {
            // With its last process a namespace ends, and its half of the veth pair takes the other half along.
            let _ = holder.kill();
            let _ = holder.wait();
        }
        let lines: String =
            self.hub_addresses.iter().map(|it| format!("addr del {it}/32 dev lo\n")).collect();
        if !lines.is_empty() {
            let _ = ip(None, &lines);
        }
    }
}

/// Runs a batch of `ip`, in the namespace of a process if one is given.
fn ip(inside: Option<u32>, batch: &str) -> Result<(), String> {
    let mut command = match inside {
        Some(process) => {
            let mut command = Command::new("nsenter");
            command.args([&format!("--net=/proc/{process}/ns/net"), "--", "ip"]);
            command
        }
        None => Command::new("ip"),
    };
    command.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("no ip: {error}"))?;
    let written = child.stdin.take().expect("piped").write_all(batch.as_bytes());
    let ended = child.wait_with_output().map_err(|error| error.to_string())?;
    match (written, ended.status.success()) {
        (Ok(()), true) => Ok(()),
        _ => Err(format!("ip: {}\n{batch}", String::from_utf8_lossy(&ended.stderr).trim())),
    }
}
