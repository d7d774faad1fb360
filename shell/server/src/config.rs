//! One member's configuration: read from flags, environment and file, and checked before anything starts.
//!
//! ```text
//!  sources (flag > KATTU_* > ETCD_* > file) ── flags (what exists) ── urls, membership (values) ── ServeConfig
//! ```
//! Every error names the flag, the variable, or the file and line to fix. Nothing here opens a socket or a directory;
//! the configuration file is read through a function.
//! Knows nothing of: threads, sockets, the log.

pub mod flags;
mod membership;
mod presets;
mod reader;
mod sources;
mod tls;
pub mod urls;
mod values;

pub use tls::TlsSource;
pub use values::parse_duration;

use crate::ahead::CALLS_MAX;
use crate::compactor::Retention;
use crate::history::Budget;
use kattu_node::TransferConfig;
use kattu_node::contract::Consistency;
use kattu_raft::{Duration, LeadershipConfig, NodeId};
use kattu_runtime::report::LogOptions;
use kattu_runtime::streams::Streams;
use kattu_runtime::tuning::Tuning;
use kattu_runtime::{Began, Member};
use membership::Names;
use reader::Reader;
use sources::Asked;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use urls::Url;
use values::{
    client_memory, client_patience, duration, leadership, log, quota, read_consistency, retention, sector,
    streams, transfers, tuning,
};

/// Largest value of `--max-request-bytes`. [fault-model §10]
pub const REQUEST_BYTES_LIMIT: u64 = 64 << 20;
/// Longest election timeout; beyond it a lost leader would look like an outage. [etcd embed]
pub(crate) const ELECTION_TIMEOUT_MAX: u64 = 50_000;

/// Why a configuration cannot work; the text names what to fix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError(pub(crate) String);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConfigError {}

/// One member's configuration.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// Its name.
    pub name: String,
    /// Where its log and identity are.
    pub data_dir: PathBuf,
    /// Where it listens for clients.
    pub listen_clients: Vec<Listen>,
    /// TLS for clients, if a listener uses it.
    pub client_tls: Option<TlsSource>,
    /// Where clients reach it.
    pub advertise_client_urls: Vec<String>,
    /// Where it listens for the other members.
    pub listen_peers: Vec<Listen>,
    /// TLS between members, if it is used.
    pub peer_tls: Option<TlsSource>,
    /// Additional listeners for metrics and health.
    pub listen_metrics: Vec<Listen>,
    /// All members, itself included, ascending by id.
    pub members: Vec<Member>,
    /// This member's id.
    pub id: NodeId,
    /// The cluster's id.
    pub cluster_id: u64,
    /// Ids that a directory may hold from before the cluster moved to TLS, or away from it.
    pub began_as: Vec<Began>,
    /// Whether the cluster runs already: with an empty directory this member joins it.
    pub join: bool,
    /// Time between heartbeats that a new cluster begins with.
    pub heartbeat_interval: Duration,
    /// Minimum election timeout that a new cluster begins with.
    pub election_timeout: Duration,
    /// Whether the operator named one of these two.
    pub timing_is_given: bool,
    /// Election priority, speed of failover, trust in clocks.
    pub leadership: LeadershipConfig,
    /// When this member, as leader, transfers leadership by itself.
    pub transfers: TransferConfig,
    /// Level of reads whose request names none.
    pub read_consistency: Consistency,
    /// Largest request, in bytes as it goes into the log.
    pub request_bytes_max: usize,
    /// Most operations of a transaction.
    pub max_txn_ops: usize,
    /// How many bytes of history auto-compaction keeps.
    pub history: Budget,
    /// Most work of one request, in units. [`kattu_kv::cost`]
    pub request_work_max: u64,
    /// What auto-compaction keeps.
    pub retention: Retention,
    /// Bytes the store may hold; 0 for the quota that fits the machine.
    pub quota_bytes: u64,
    /// What can be tuned while the member runs, as it starts.
    pub tuning: Tuning,
    /// Whether experiments may add delays.
    pub lab: bool,
    /// Whether the disk is not waited for.
    pub unsafe_no_fsync: bool,
    /// Bytes that may be held for clients; 0 for a share of the memory.
    pub client_memory_bytes: u64,
    /// Calls under way above which clients' stream limits are lowered.
    pub client_calls_max: u64,
    /// Calls at once on one connection.
    pub max_concurrent_streams: u32,
    /// Least time between two pings of a client.
    pub ping_interval_min: Duration,
    /// Deadlines for clients.
    pub patience: ClientPatience,
    /// Threads that serve clients; 0: the node's thread.
    pub client_threads: usize,
    /// Bytes of log that make a snapshot due.
    pub snapshot_log_bytes: u64,
    /// Bytes of log kept behind a snapshot.
    pub snapshot_keep_bytes: u64,
    /// Bytes per second at which a snapshot is written, or sent to one member; 0: no limit.
    pub snapshot_bytes_per_s: u64,
    /// The connections that carry entries to each peer.
    pub streams: Streams,
    /// Least percentage of the clients' earlier write rate that is admitted while a returning member does not catch up.
    pub client_share_min: u8,
    /// Time between two comparisons of the members' digests; zero: off.
    pub digest_interval: Duration,
    /// Time between two scrubs (reads of all files to find damage); zero: off.
    pub scrub_period: Duration,
    /// Size of one file of the log.
    pub segment_bytes: u64,
    /// Size to which blocks of the log are padded; 0: the unit that the disk writes atomically.
    pub sector_bytes: usize,
    /// Disk space kept free.
    pub reserve_bytes: u64,
    /// A disk call that takes longer ends the process.
    pub disk_stall: Duration,
    /// Level, format and outputs of log lines.
    pub log: LogOptions,
}

/// An address to listen on, with its protocols: `http://`, `https://`, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The address.
    pub at: SocketAddr,
    /// Without TLS.
    pub plain: bool,
    /// With TLS.
    pub tls: bool,
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.plain, self.tls) {
            (true, true) => write!(f, "{} (with TLS and without)", self.at),
            (_, false) => write!(f, "{}", self.at),
            (false, true) => write!(f, "{} (TLS)", self.at),
        }
    }
}

/// Deadlines for a client. [`crate::FaceConfig`] explains each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientPatience {
    /// Until its protocol is known; for a complete head.
    pub header: Duration,
    /// For a complete body, whatever its size.
    pub body: Duration,
    /// Without taking any byte that waits for it.
    pub stall: Duration,
    /// Without a frame while no call is under way.
    pub idle: Duration,
}

/// What the command line of `kattu serve` asks for.
#[derive(Debug)]
pub enum Command {
    /// Run a member; with warnings for the operator.
    Serve(Box<ServeConfig>, Vec<String>),
    /// Show [`flags::help`].
    Help,
    /// Show versions.
    Version,
}

/// Reads the process's own environment and files.
///
/// # Errors
/// The first setting that is wrong.
pub fn load(args: &[String]) -> Result<Command, ConfigError> {
    // A variable that is not UTF-8 cannot be a setting of `serve`.
    let variables: Vec<(String, String)> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    load_from(args, &variables, &|path| std::fs::read_to_string(path))
}

/// Reads the sources given.
///
/// # Errors
/// The first setting that is wrong.
pub fn load_from(
    args: &[String],
    variables: &[(String, String)],
    read_file: &dyn Fn(&Path) -> std::io::Result<String>,
) -> Result<Command, ConfigError> {
    let settings = match sources::gather(args, variables, read_file)? {
        Asked::Settings(settings) => settings,
        Asked::Help => return Ok(Command::Help),
        Asked::Version => return Ok(Command::Version),
    };
    let (settings, mut warnings) = sources::judge(settings)?;
    let config = build(&Reader(&settings), &mut warnings)?;
    warnings.extend(config.advice());
    Ok(Command::Serve(Box::new(config), warnings))
}

impl ServeConfig {
    /// Warnings about a configuration that works.
    fn advice(&self) -> Vec<String> {
        let mut lines = Vec::new();
        // [fault-model SE1]
        let all = self.listen_clients.iter().chain(&self.listen_metrics).chain(&self.listen_peers);
        let open = open_places(all.filter(|it| it.plain).map(|it| it.at));
        if !open.is_empty() {
            lines.push(format!(
                "{open} can be reached by other machines, and neither TLS nor authentication protects it"
            ));
        }
        let asks_clients = self.client_tls.as_ref().is_some_and(TlsSource::asks_clients);
        let open =
            open_places(self.listen_clients.iter().filter(|it| it.tls && !asks_clients).map(|it| it.at));
        if !open.is_empty() {
            lines.push(format!(
                "{open} can be reached by other machines, and any client that connects can read and write; to require \
                 client certificates, set --client-cert-auth and --trusted-ca-file"
            ));
        }
        if self.leadership.leader_lease.is_some() {
            lines.push(
                "--lease-reads: reads are linearizable only if all members have this setting and no clock drifts more \
                 than --clock-drift-ppm; a dead leader is replaced only after --election-timeout"
                    .to_string(),
            );
        }
        if self.unsafe_no_fsync {
            lines.push(
                "--unsafe-no-fsync: THIS MEMBER DOES NOT WAIT FOR ITS DISK. A power cut loses writes that it acknowledged, and \
                 votes that it cast, so that the cluster may lose acknowledged writes and read old values. For experiments only"
                    .to_string(),
            );
        }
        if self.read_consistency != Consistency::Linearizable {
            lines.push(
                "--read-consistency: a read that names no level may miss the last writes; etcd's clients do not expect \
                 that"
                    .to_string(),
            );
        }
        if self.request_bytes_max > 10 << 20 {
            lines.push(format!(
                "--max-request-bytes {} is above 10 MiB: large requests delay small ones",
                self.request_bytes_max
            ));
        }
        lines
    }
}

/// The addresses that other machines can reach, as text.
fn open_places(places: impl Iterator<Item = SocketAddr>) -> String {
    let open: Vec<String> = places.filter(|at| !at.ip().is_loopback()).map(|at| at.to_string()).collect();
    open.join(", ")
}

fn build(given: &Reader<'_>, warnings: &mut Vec<String>) -> Result<ServeConfig, ConfigError> {
    let name = given.text("name").unwrap_or("default").to_string();
    if name.is_empty() || name.contains(['=', ',']) || name.chars().any(char::is_control) {
        return Err(
            given.wrong("name", "a name needs at least one character, and no '=', ',' or line breaks")
        );
    }
    let data_dir =
        PathBuf::from(given.text("data-dir").map_or_else(|| format!("{name}.kattu"), str::to_string));
    if data_dir.as_os_str().is_empty() {
        return Err(given.wrong("data-dir", "expected a directory, got an empty value"));
    }
    let listen_clients = given.urls("listen-client-urls")?;
    let listen_peers = given.urls("listen-peer-urls")?;
    let listen_metrics = given.urls("listen-metrics-urls")?;
    let told: Vec<Url> = listen_clients.iter().chain(&listen_metrics).flatten().cloned().collect();
    let of_clients: Vec<Url> = listen_clients.iter().flatten().cloned().collect();
    let client_tls = tls::for_clients(given, &of_clients, &told, &data_dir, warnings)?;
    let join = given.one_of("initial-cluster-state", &[("new", false), ("existing", true)])?;
    let members = members(given, &name, listen_peers.as_deref(), join)?;
    let of_peers = listen_peers.clone().unwrap_or_else(|| vec![default_url(2380)]);
    let peer_tls = tls::for_members(given, &of_peers, &members.own_urls, &members.urls, &data_dir, warnings)?;

    let heartbeat = given.number("heartbeat-interval", 100, 1, ELECTION_TIMEOUT_MAX)?;
    let election = given.number("election-timeout", 1000, 1, ELECTION_TIMEOUT_MAX)?;
    if election < heartbeat * 5 {
        let what =
            format!("{election} ms must be at least 5 times the heartbeat interval, which is {heartbeat} ms");
        return Err(given.wrong("election-timeout", what));
    }
    let (leadership, lease) = leadership(given)?;
    let request_bytes_max = given.number("max-request-bytes", 1536 << 10, 1 << 10, REQUEST_BYTES_LIMIT)?;
    let segment_bytes = given.number("segment-bytes", 16 << 20, 1 << 20, 4 << 30)?;
    Ok(ServeConfig {
        advertise_client_urls: advertised_clients(given, listen_clients.as_deref())?,
        listen_clients: given.listen("listen-client-urls", listen_clients, Some(2379))?,
        client_tls,
        listen_peers: given.listen("listen-peer-urls", listen_peers, Some(2380))?,
        peer_tls,
        listen_metrics: given.listen("listen-metrics-urls", listen_metrics, None)?,
        id: members.own,
        cluster_id: members.cluster_id,
        began_as: members.before,
        members: members.all,
        join,
        heartbeat_interval: Duration::from_millis(heartbeat),
        election_timeout: Duration::from_millis(election),
        timing_is_given: ["election-timeout", "heartbeat-interval"]
            .iter()
            .any(|flag| given.text(flag).is_some()),
        leadership,
        tuning: tuning(given, leadership.leader_lease, lease, request_bytes_max)?,
        lab: given.switch("lab")?,
        unsafe_no_fsync: given.switch("unsafe-no-fsync")?,
        transfers: transfers(given)?,
        read_consistency: read_consistency(given)?,
        request_bytes_max: request_bytes_max as usize,
        max_txn_ops: given.number("max-txn-ops", 128, 1, 1 << 20)? as usize,
        history: Budget {
            bytes: given.number("history-bytes", 0, 0, 1 << 50)?,
            age_min: Duration::from_millis(given.number("history-min", 300_000, 0, 31_536_000_000)?),
        },
        request_work_max: given.number("request-work-max", 8 << 20, 1 << 10, 1 << 40)?,
        retention: retention(given)?,
        quota_bytes: quota(given)?,
        client_memory_bytes: client_memory(given, request_bytes_max)?,
        client_calls_max: given.number("client-calls-max", CALLS_MAX, 64, 1 << 20)?,
        max_concurrent_streams: given.number("max-concurrent-streams", 10_000, 1, u64::from(u32::MAX))?
            as u32,
        ping_interval_min: duration(given, "grpc-keepalive-min-time", "5s", Duration::ZERO)?,
        patience: client_patience(given)?,
        client_threads: given.number("client-threads", 0, 0, 256)? as usize,
        snapshot_log_bytes: given.number("snapshot-log-bytes", 512 << 20, 1 << 20, 1 << 40)?,
        snapshot_keep_bytes: given.number("snapshot-keep-bytes", 64 << 20, 0, 1 << 40)?,
        snapshot_bytes_per_s: given.number("snapshot-bytes-per-second", 64 << 20, 0, 1 << 40)?,
        streams: streams(given)?,
        client_share_min: given.number("client-share-min", 80, 1, 100)? as u8,
        segment_bytes,
        sector_bytes: sector(given)?,
        scrub_period: Duration::from_millis(given.number("scrub-period", 86_400_000, 0, 31_536_000_000)?),
        digest_interval: Duration::from_millis(given.number("digest-interval", 60_000, 0, 86_400_000)?),
        reserve_bytes: given.number("disk-reserve-bytes", 64 << 20, 0, 1 << 40)?,
        disk_stall: Duration::from_millis(given.number("disk-stall-timeout", 10_000, 100, 3_600_000)?),
        log: log(given)?,
        name,
        data_dir,
    })
}

struct Members {
    own: NodeId,
    /// Peer URLs of this member.
    own_urls: Vec<Url>,
    all: Vec<Member>,
    /// Peer URLs of all members.
    urls: Vec<Url>,
    cluster_id: u64,
    /// [`membership::names_before`]
    before: Vec<Began>,
}

/// The member list, and this member's place in it. Its URLs in the list must be those that it advertises.
fn members(
    given: &Reader<'_>,
    name: &str,
    listen: Option<&[Url]>,
    runs_already: bool,
) -> Result<Members, ConfigError> {
    let names = if runs_already { Names::MayBeMissing } else { Names::Needed };
    let advertised = given.urls("initial-advertise-peer-urls")?;
    if let Some(url) = advertised.iter().flatten().find(|url| !url.is_reachable()) {
        return Err(given.wrong(
            "initial-advertise-peer-urls",
            format!("{url}: other members cannot reach this address"),
        ));
    }
    let roll = match given.setting("initial-cluster") {
        Some(setting) => membership::parse_roll(&setting.text, names).map_err(|what| setting.wrong(what))?,
        None => {
            let reachable = |urls: &&[Url]| urls.iter().all(Url::is_reachable);
            let own = match (&advertised, listen) {
                (Some(urls), _) => urls.clone(),
                (None, None) => vec![default_url(2380)],
                (None, Some(urls)) if reachable(&urls) => urls.to_vec(),
                (None, Some(_)) => {
                    let what = "is needed because other members cannot reach a wildcard address or port 0 in --listen-peer-urls";
                    return Err(given.wrong("initial-advertise-peer-urls", what));
                }
            };
            membership::Roll::from([(name.to_string(), own)])
        }
    };
    let Some(listed) = roll.get(name) else {
        let names: Vec<&str> = roll.keys().map(String::as_str).collect();
        let what = format!("this member is called {name:?} (--name), but the list has {}", names.join(", "));
        return Err(given.wrong("initial-cluster", what));
    };
    if let Some(advertised) = &advertised {
        let all_in =
            |some: &[Url], others: &[Url]| some.iter().all(|url| others.iter().any(|o| o.same_place(url)));
        if !all_in(advertised, listed) || !all_in(listed, advertised) {
            let what = format!(
                "{} does not match --initial-cluster, where {name} has {}",
                join(advertised),
                join(listed)
            );
            return Err(given.wrong("initial-advertise-peer-urls", what));
        }
    }
    let own_url = listed[0].to_string();
    let token = given.text("initial-cluster-token").unwrap_or("etcd-cluster");
    let (all, cluster_id) =
        membership::identify(token, &roll).map_err(|what| given.wrong("initial-cluster-token", what))?;
    let own = all.iter().find(|member| member.peer_urls.contains(&own_url)).expect("it was just listed");
    let urls = roll.values().flatten().cloned().collect();
    let before = membership::names_before(token, &roll, name);
    Ok(Members { own: own.id, own_urls: listed.clone(), urls, cluster_id, before, all })
}

fn advertised_clients(given: &Reader<'_>, listen: Option<&[Url]>) -> Result<Vec<String>, ConfigError> {
    let urls = match (given.urls("advertise-client-urls")?, listen) {
        (Some(urls), _) => urls,
        (None, None) => vec![default_url(2379)],
        (None, Some(urls)) => urls.to_vec(),
    };
    if urls.iter().all(Url::is_reachable) {
        return Ok(urls.iter().map(Url::to_string).collect());
    }
    let what = format!("is needed with a host and a port that clients can reach; got {}", join(&urls));
    Err(given.wrong("advertise-client-urls", what))
}

fn default_url(port: u16) -> Url {
    Url::parse(&format!("http://localhost:{port}")).expect("it is a URL")
}

fn join(urls: &[Url]) -> String {
    urls.iter().map(Url::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
