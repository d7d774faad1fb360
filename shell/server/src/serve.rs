//! One member from start to stop: ports, data directory, replica, faces, and an orderly end.
//!
//! ```text
//!  start   1 ports for clients and metrics (a taken one must not leave a half-started member)
//!          2 the replica: ports for peers, data directory, log
//!          3 faces, compactor                        early clients are served from here on
//!          4 a linearizable read succeeds            "ready to serve client requests"
//!  stop    5 a leader transfers leadership, within one election timeout
//!          6 faces: no new calls; those under way may finish
//!          7 the replica: waiting requests are answered, the log is closed
//! ```
//! Everything runs on the calling thread, except for work to which the configuration gives its own threads.
//! Knows nothing of: flag syntax, the meaning of requests, signals of other verbs.

use crate::budget::Budget;
use crate::compactor;
use crate::config::urls::Url;
use crate::config::{Listen, ServeConfig, TlsSource};
use crate::face::{FaceConfig, GRPC_OVERHEAD_BYTES, KATTU_VERSION};
use crate::listen::{serve_clients, serve_metrics};
use crate::tls::{self, Doorway};
use kattu_kv::api::{KeyRange, Query, Range};
use kattu_node::contract::{Consistency, Outcome, Request};
use kattu_node::{RequestLimits, SnapshotLimits};
use kattu_raft::{Duration, Limits};
use kattu_runtime::{End, Engine, RuntimeConfig, StartError, report};
use kattu_tls::{FileError, ServerTls, Speaks, TlsFiles};
use kattu_wal::WalError;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinSet, LocalSet};

/// The flag that names the certificate for clients, …
const TLS_FLAG: &str = "cert-file";
/// … and for members.
const PEER_TLS_FLAG: &str = "peer-cert-file";
/// Pause between two checks whether the member can serve.
const READY_PAUSE: Duration = Duration::from_millis(10);
/// A leadership transfer takes a few milliseconds, or fails.
const TRANSFER_DEADLINE: Duration = Duration::from_secs(1);
/// Longest time from the end of the faces to the end of the replica.
const CLOSE_DEADLINE: Duration = Duration::from_secs(2);
/// After a signal the process ends within this time in any case: the log survives a kill.
const SIGNAL_DEADLINE: Duration = Duration::from_millis(4500);
const _: () = assert!(SIGNAL_DEADLINE.as_millis() < 5000, "the documentation guarantees five seconds");

/// Why a member did not run, or did not end well.
#[derive(Debug)]
pub enum ServeError {
    /// The configuration cannot work.
    Config(String),
    /// An address cannot be listened on.
    Port {
        /// The address.
        address: SocketAddr,
        /// The flag that named it.
        flag: &'static str,
        /// The system's error.
        error: io::Error,
    },
    /// The data directory is damaged, another member's, or in use.
    Data(WalError),
    /// The making of the data directory was begun and never finished.
    Unfinished(String),
    /// Something else.
    Failed(String),
}

impl ServeError {
    /// The exit code that the command's contract gives it.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            ServeError::Failed(_) => 1,
            ServeError::Config(_) | ServeError::Port { .. } => 2,
            ServeError::Data(_) | ServeError::Unfinished(_) => 4,
        }
    }
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServeError::Config(what) | ServeError::Failed(what) | ServeError::Unfinished(what) => {
                f.write_str(what)
            }
            ServeError::Port { address, flag, error } if error.kind() == io::ErrorKind::AddrInUse => {
                write!(f, "{address} is in use by another process; stop that one or change {flag}")
            }
            ServeError::Port { address, flag, error } => {
                write!(f, "cannot listen on {address}: {error}; change {flag}")
            }
            ServeError::Data(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ServeError {}

/// Turns true at the first SIGTERM or SIGINT. A separate thread waits for the signal, so that a member that is busy
/// reading its log stops, too. The thread also ends the process if stopping takes too long.
///
/// # Errors
/// If the system gives no thread or no signal handler.
pub fn stop_on_signal() -> io::Result<watch::Receiver<bool>> {
    use tokio::signal::unix::{SignalKind, signal};
    let (sender, stop) = watch::channel(false);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut terminate, mut interrupt, mut hangup) = {
        let _inside = runtime.enter();
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?, signal(SignalKind::hangup())?)
    };
    std::thread::Builder::new().name("signals".to_string()).spawn(move || {
        runtime.block_on(async {
            // SIGHUP reloads certificate files. It never ends a member, not even one without such files.
            let hung_up = async {
                while hangup.recv().await.is_some() {
                    report::info(format_args!("SIGHUP: reloading certificates, if there are any"));
                }
                std::future::pending::<()>().await;
            };
            tokio::select! {
                _ = terminate.recv() => report::info(format_args!("SIGTERM: stopping")),
                _ = interrupt.recv() => report::info(format_args!("SIGINT: stopping")),
                () = hung_up => {}
            }
            let _ = sender.send(true);
            tokio::time::sleep(SIGNAL_DEADLINE).await;
            report::last_words(format_args!("stopping took too long; ending now"));
            std::process::exit(0);
        });
    })?;
    Ok(stop)
}

/// Runs one member on this thread until `stop` turns true. `on_ready` is called once a linearizable read has succeeded.
/// It is boxed, so that the whole server is compiled once, in this crate: a generic function would be compiled, with
/// all tasks that it spawns, in every crate that calls it and for every closure.
///
/// # Errors
/// Why it cannot run, as a text for the operator.
pub fn run(
    config: ServeConfig,
    stop: watch::Receiver<bool>,
    on_ready: Box<dyn FnOnce()>,
) -> Result<(), ServeError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| ServeError::Failed(format!("cannot start the event loop: {error}")))?;
    LocalSet::new().block_on(&runtime, member(config, stop, on_ready))
}

async fn member(
    config: ServeConfig,
    stop: watch::Receiver<bool>,
    on_ready: Box<dyn FnOnce()>,
) -> Result<(), ServeError> {
    let client_tls = client_tls(&config)?;
    let peer_tls = peer_tls(&config)?;
    let client_doors = bind(&config.listen_clients, client_tls.as_ref(), "--listen-client-urls").await?;
    let metrics_doors = bind(&config.listen_metrics, client_tls.as_ref(), "--listen-metrics-urls").await?;
    report::info(format_args!("version {KATTU_VERSION}, data in {}", config.data_dir.display()));
    let running =
        kattu_runtime::start(runtime_config(&config, peer_tls.clone())).await.map_err(start_error)?;
    let engine = running.engine.clone();
    let (member, cluster) = (engine.member_id(), engine.cluster_id());
    report::info(format_args!("member {} ({:x}) of cluster {cluster:x}", config.name, member.0));

    // The replica outlives the faces, so that calls under way can finish; both outlive the signal.
    let (close, closing) = watch::channel(false);
    let (close_faces, faces_closing) = watch::channel(false);
    let face = face_config(&config, client_tls.clone(), peer_tls.clone());
    let mut faces = JoinSet::new();
    let mut face_threads = Vec::new();
    if config.client_threads == 0 {
        for door in client_doors {
            faces.spawn_local(serve_clients(door, engine.clone(), face.clone(), faces_closing.clone()));
        }
    } else {
        face_threads =
            start_face_threads(config.client_threads, client_doors, &engine, &face, &faces_closing)?;
    }
    for door in metrics_doors {
        faces.spawn_local(serve_metrics(door, engine.clone(), face.clone(), faces_closing.clone()));
    }
    for (tls, flag) in [(client_tls, TLS_FLAG), (peer_tls, PEER_TLS_FLAG)] {
        if let Some(tls) = tls {
            faces.spawn_local(tls::keep(tls, flag, faces_closing.clone()));
        }
    }
    faces.spawn_local(compactor::run(engine.clone(), config.retention, config.history, face, faces_closing));
    let ready = tokio::task::spawn_local(tell_when_ready(engine.clone(), announcement(&config), on_ready));

    let mut replica = tokio::task::spawn_local(running.run(closing));
    let mut stopped = stop;
    tokio::select! {
        _ = stopped.wait_for(|stop| *stop) => {}
        ended = &mut replica => match ended {
            Ok(End::Removed) => {
                ready.abort();
                let _ = close_faces.send(true);
                let _ = tokio::time::timeout(CLOSE_DEADLINE, faces.join_all()).await;
                report::info(format_args!(
                    "{} ({:x}) was removed from cluster {cluster:x} and stops; its data directory cannot be used again",
                    config.name, member.0
                ));
                return Ok(());
            }
            Ok(End::Stopped) => return Err(ServeError::Failed("the member stopped unexpectedly".to_string())),
            Err(error) => return Err(ServeError::Failed(format!("the member failed: {error}"))),
        },
    }
    ready.abort();
    // A leader transfers leadership while it still serves, so that clients do not wait for an election.
    if let Some(leader) = engine.transfer(config.election_timeout.min(TRANSFER_DEADLINE)).await {
        report::info(format_args!("{} transferred leadership to member {:x}", config.name, leader.0));
    }
    let _ = close_faces.send(true);
    while faces.join_next().await.is_some() {}
    for thread in face_threads {
        let _ = thread.await;
    }
    let _ = close.send(true);
    match tokio::time::timeout(CLOSE_DEADLINE, replica).await {
        Ok(Ok(_)) => report::info(format_args!("{} stopped", config.name)),
        Ok(Err(error)) => return Err(ServeError::Failed(format!("stopping failed: {error}"))),
        Err(_) => report::warn(format_args!(
            "{} did not close its log in time; the next start repairs it",
            config.name
        )),
    }
    Ok(())
}

async fn bind(
    places: &[Listen],
    tls: Option<&Arc<ServerTls>>,
    flag: &'static str,
) -> Result<Vec<Doorway>, ServeError> {
    let mut doors = Vec::new();
    for &Listen { at: address, plain, tls: has_tls } in places {
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|error| ServeError::Port { address, flag, error })?;
        let speaks = Speaks::as_asked(plain, tls.filter(|_| has_tls));
        doors.push(Doorway { listener, speaks });
    }
    Ok(doors)
}

/// TLS for clients, if it is configured.
fn client_tls(config: &ServeConfig) -> Result<Option<Arc<ServerTls>>, ServeError> {
    let Some(source) = &config.client_tls else { return Ok(None) };
    let tls = load_tls(source, "client", TLS_FLAG)?;
    warn_of_other_hosts(&tls, TLS_FLAG, &config.advertise_client_urls, "clients", "--advertise-client-urls");
    Ok(Some(tls))
}

/// TLS between members, if it is configured.
fn peer_tls(config: &ServeConfig) -> Result<Option<Arc<ServerTls>>, ServeError> {
    let Some(source) = &config.peer_tls else { return Ok(None) };
    let tls = load_tls(source, "peer", PEER_TLS_FLAG)?;
    let own = config.members.iter().find(|member| member.id == config.id);
    let urls = own.map_or(&[][..], |own| &own.peer_urls);
    warn_of_other_hosts(&tls, PEER_TLS_FLAG, urls, "the other members", "--initial-cluster");
    Ok(Some(tls))
}

fn load_tls(source: &TlsSource, stem: &str, flag: &str) -> Result<Arc<ServerTls>, ServeError> {
    let wrong = |error: FileError| ServeError::Config(format!("--{flag}: {error}"));
    let files = match source {
        TlsSource::Files(files) => files.clone(),
        TlsSource::SelfSigned { dir, hosts, days, rest } => {
            let made = kattu_tls::ensure_self_signed(dir, stem, hosts, *days).map_err(wrong)?;
            TlsFiles { cert: made.cert, key: made.key, ..(**rest).clone() }
        }
    };
    let tls = ServerTls::load(files).map_err(wrong)?;
    let leaf = tls.current().leaf().clone();
    report::info(format_args!("--{flag}: {}, for {}", tls::good_for(&leaf), leaf.names.join(", ")));
    Ok(Arc::new(tls))
}

fn warn_of_other_hosts(tls: &ServerTls, flag: &str, urls: &[String], who: &str, where_said: &str) {
    for url in urls.iter().filter_map(|url| Url::parse(url).ok()) {
        if url.is_tls() && !tls.current().is_for(&url.host()) {
            report::warn(format_args!(
                "--{flag}: the certificate is not for {}, where {who} reach this member ({where_said}): they will refuse it",
                url.host()
            ));
        }
    }
}

fn start_error(error: StartError) -> ServeError {
    match error {
        StartError::Data(error) => ServeError::Data(error),
        StartError::Listen { address, error } => {
            ServeError::Port { address, flag: "--listen-peer-urls", error }
        }
        StartError::Config(rule) => ServeError::Config(rule.to_string()),
        StartError::Join(what) => ServeError::Config(what),
        StartError::Unfinished { .. } => ServeError::Unfinished(error.to_string()),
        StartError::Thread(_) | StartError::Timer(_) | StartError::Snapshot(_) => {
            ServeError::Failed(error.to_string())
        }
    }
}

/// From so many bytes on, an append's payloads are read on a thread of their own. [docs/decisions/0062]
const READ_APART_BYTES_MIN: usize = 256 << 10;

pub(crate) fn runtime_config(config: &ServeConfig, peer_tls: Option<Arc<ServerTls>>) -> RuntimeConfig {
    RuntimeConfig {
        data_dir: config.data_dir.clone(),
        cluster_id: config.cluster_id,
        began_as: config.began_as.clone(),
        id: config.id,
        members: config.members.clone(),
        join: config.join,
        listen_peers: (config.listen_peers.iter())
            .map(|it| (it.at, Speaks::as_asked(it.plain, peer_tls.as_ref().filter(|_| it.tls))))
            .collect(),
        peer_tls,
        client_urls: config.advertise_client_urls.clone(),
        election_timeout: config.election_timeout,
        heartbeat_interval: config.heartbeat_interval,
        timing_is_given: config.timing_is_given,
        leadership: config.leadership,
        transfers: config.transfers,
        limits: Limits {
            snapshot_bytes_per_s: config.snapshot_bytes_per_s,
            client_share_min: config.client_share_min,
            read_apart_bytes_min: READ_APART_BYTES_MIN,
            ..Limits::default()
        },
        request_bytes_max: config.request_bytes_max,
        requests: requests(config),
        quota_bytes: quota(config),
        unsafe_no_fsync: config.unsafe_no_fsync,
        tuning: config.tuning,
        snapshots: SnapshotLimits {
            log_bytes_min: config.snapshot_log_bytes.min(SnapshotLimits::default().log_bytes_min),
            log_bytes_max: config.snapshot_log_bytes,
            keep_bytes: config.snapshot_keep_bytes,
        },
        digest_interval: config.digest_interval,
        scrub_period: config.scrub_period,
        snapshot_bytes_per_s: config.snapshot_bytes_per_s,
        streams: config.streams,
        segment_bytes: config.segment_bytes,
        sector_bytes: config.sector_bytes,
        reserve_bytes: config.reserve_bytes,
        disk_stall: config.disk_stall,
    }
}

/// Limits of one request. The store gathers no more for a response than a call may hold.
fn requests(config: &ServeConfig) -> RequestLimits {
    let call_max = usize::try_from(budget(config).call_max()).unwrap_or(usize::MAX);
    let answer_bytes_max = RequestLimits::default().answer_bytes_max.min(call_max);
    RequestLimits { work_max: config.request_work_max, answer_bytes_max }
}

/// The budget of bytes held for clients.
fn budget(config: &ServeConfig) -> Budget {
    let message_bytes = (config.request_bytes_max + GRPC_OVERHEAD_BYTES) as u64;
    Budget::with_room_for(config.client_memory_bytes, message_bytes).with_calls_max(config.client_calls_max)
}

/// The quota of the store, in bytes.
fn quota(config: &ServeConfig) -> u64 {
    match config.quota_bytes {
        0 => kattu_runtime::default_quota(),
        given => given,
    }
}

fn face_config(
    config: &ServeConfig,
    tls: Option<Arc<ServerTls>>,
    peer_tls: Option<Arc<ServerTls>>,
) -> Arc<FaceConfig> {
    Arc::new(FaceConfig {
        name: config.name.clone(),
        request_bytes_max: config.request_bytes_max,
        max_txn_ops: config.max_txn_ops,
        quota_bytes: quota(config),
        read_consistency: config.read_consistency,
        max_concurrent_streams: config.max_concurrent_streams,
        ping_interval_min: config.ping_interval_min,
        header_deadline: config.patience.header,
        body_deadline: config.patience.body,
        stall_deadline: config.patience.stall,
        idle_deadline: config.patience.idle,
        budget: Arc::new(budget(config)),
        lab: config.lab,
        unsafe_no_fsync: config.unsafe_no_fsync,
        tls,
        peer_tls,
        ..FaceConfig::default()
    })
}

/// Threads that accept from all listeners, each with an event loop of its own; an idle one takes the next connection.
fn start_face_threads(
    count: usize,
    doors: Vec<Doorway>,
    engine: &Engine,
    face: &Arc<FaceConfig>,
    stop: &watch::Receiver<bool>,
) -> Result<Vec<tokio::sync::oneshot::Receiver<()>>, ServeError> {
    let failed = |error: io::Error| ServeError::Failed(format!("cannot start a thread for clients: {error}"));
    let doors: Vec<(std::net::TcpListener, Speaks)> = doors
        .into_iter()
        .map(|door| Ok((door.listener.into_std()?, door.speaks)))
        .collect::<Result<_, _>>()
        .map_err(failed)?;
    let mut threads = Vec::new();
    for number in 0..count {
        let doors: Vec<(std::net::TcpListener, Speaks)> = doors
            .iter()
            .map(|(listener, speaks)| Ok((listener.try_clone()?, speaks.clone())))
            .collect::<Result<_, _>>()
            .map_err(failed)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (engine, face, stop) = (engine.clone(), face.clone(), stop.clone());
        let (ended, end) = tokio::sync::oneshot::channel();
        let name = format!("clients-{number}");
        let work = move || {
            LocalSet::new().block_on(&runtime, async move {
                let mut faces = JoinSet::new();
                for (listener, speaks) in doors {
                    match TcpListener::from_std(listener) {
                        Ok(listener) => {
                            faces.spawn_local(serve_clients(
                                Doorway { listener, speaks },
                                engine.clone(),
                                face.clone(),
                                stop.clone(),
                            ));
                        }
                        Err(error) => {
                            report::warn(format_args!("a thread cannot listen for clients: {error}"))
                        }
                    }
                }
                while faces.join_next().await.is_some() {}
            });
            let _ = ended.send(());
        };
        std::thread::Builder::new().name(name).spawn(work).map_err(failed)?;
        threads.push(end);
    }
    Ok(threads)
}

/// The line that scripts wait for.
fn announcement(config: &ServeConfig) -> String {
    let places: Vec<String> = config.listen_clients.iter().map(Listen::to_string).collect();
    format!("{} is ready to serve client requests on {}", config.name, places.join(", "))
}

/// Repeats a linearizable read until it succeeds: then there is a leader, a quorum, and a store that has caught up.
async fn tell_when_ready(engine: Engine, line: String, on_ready: Box<dyn FnOnce()>) {
    let keys = KeyRange { start: vec![0], end: vec![0] };
    let query = Query::Range(Range { keys, count_only: true, ..Range::default() });
    loop {
        let read = Request::Read(query.clone(), Consistency::Linearizable);
        if let Outcome::Done(_) = engine.call(read).await {
            report::info(format_args!("{line}"));
            return on_ready();
        }
        tokio::time::sleep(READY_PAUSE).await;
    }
}
