//! Real members in one process: real logs, real loopback TCP; killed by dropping everything they were doing.
#![allow(dead_code)] // each test file uses what it needs

use kattu_kv::api::{self as kv, Answer};
use kattu_node::command::encode_kv;
use kattu_node::contract::{Consistency, Outcome, Reply, ReplyBody, Request, Status};
use kattu_node::{RequestLimits, SnapshotLimits};
use kattu_raft::{Duration, Limits, NodeId};
use kattu_runtime::streams::Streams;
use kattu_runtime::tuning::Tuning;
use kattu_runtime::{End, Engine, Member, RuntimeConfig, Threading, start};
use kattu_tls::Speaks;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use tokio::sync::{oneshot, watch};

static CLUSTERS: AtomicU32 = AtomicU32::new(1);

struct Running {
    engine: Engine,
    stop: watch::Sender<bool>,
    kill: oneshot::Sender<()>,
    thread: JoinHandle<Option<End>>,
}

pub struct Cluster {
    configs: Vec<RuntimeConfig>,
    running: Vec<Option<Running>>,
    root: PathBuf,
}

impl Cluster {
    pub fn new(size: u8, log_io: Threading, apply: Threading) -> Cluster {
        Cluster::start(size, log_io, apply, Duration::from_millis(500), Duration::from_millis(50), |_| {})
    }

    /// Small segments, a snapshot for every half a megabyte of log, and so many bytes of log behind it.
    pub fn with_snapshots(size: u8, place: Threading, keep_bytes: u64) -> Cluster {
        Cluster::start(size, place, place, Duration::from_millis(500), Duration::from_millis(50), |config| {
            config.snapshots = SnapshotLimits { log_bytes_min: 512 << 10, log_bytes_max: 0, keep_bytes };
            config.segment_bytes = 256 << 10;
            config.request_bytes_max = 32 << 10;
            config.limits.recent_bytes_max = 64 << 10;
            config.limits.recent_in_sync_bytes_max = 64 << 10;
            config.limits.snapshot_chunk_bytes_max = 64 << 10;
        })
    }

    /// One member has a higher leader priority than the others, and leaders transfer leadership to it.
    pub fn with_favourite(favourite: u64) -> Cluster {
        let (election, heartbeat) = (Duration::from_millis(500), Duration::from_millis(50));
        Cluster::start(3, Threading::Inline, Threading::Inline, election, heartbeat, |config| {
            config.transfers.to_priority = true;
            if config.id == NodeId(favourite) {
                config.leadership.priority = 200;
            }
        })
    }

    /// Members with such links, whose appends have one entry each.
    pub fn with_streams(streams: Streams) -> Cluster {
        let (election, heartbeat) = (Duration::from_millis(500), Duration::from_millis(50));
        Cluster::start(3, Threading::Inline, Threading::Inline, election, heartbeat, |config| {
            config.streams = streams;
            config.tuning.node.raft.batch_entries_max = 1;
        })
    }

    pub fn with_timeouts(size: u8, election: Duration, heartbeat: Duration) -> Cluster {
        Cluster::start(size, Threading::Inline, Threading::Inline, election, heartbeat, |_| {})
    }

    fn start(
        size: u8,
        log_io: Threading,
        apply: Threading,
        election: Duration,
        heartbeat: Duration,
        change: impl Fn(&mut RuntimeConfig),
    ) -> Cluster {
        // Loopback addresses of this process and this cluster alone: fixed ports never collide.
        let number = CLUSTERS.fetch_add(1, Ordering::Relaxed);
        let pid = std::process::id();
        let address = |i: u8| {
            SocketAddr::from(([127, 1 + (pid >> 8) as u8 % 250, pid as u8, 10 * number as u8 + i], 2380))
        };
        let root = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("cluster-{pid}-{number}"));
        let _ = std::fs::remove_dir_all(&root); // of a run that was killed and had the same process id
        let members: Vec<Member> = (1..=size)
            .map(|i| Member {
                id: NodeId(i.into()),
                name: format!("n{i}"),
                peer_urls: vec![format!("http://{}", address(i))],
            })
            .collect();
        let mut configs: Vec<RuntimeConfig> = (1..=size)
            .map(|i| RuntimeConfig {
                requests: RequestLimits::default(),
                data_dir: root.join(format!("n{i}")),
                cluster_id: 0xC1,
                id: NodeId(i.into()),
                members: members.clone(),
                join: false,
                listen_peers: vec![(address(i), Speaks::Plain)],
                peer_tls: None,
                began_as: vec![],
                client_urls: vec![format!("http://n{i}")],
                election_timeout: election,
                heartbeat_interval: heartbeat,
                timing_is_given: true,
                leadership: Default::default(),
                transfers: Default::default(),
                limits: Limits { read_apart_bytes_min: 1 << 10, ..Limits::default() },
                request_bytes_max: 3 << 19,
                quota_bytes: 0,
                unsafe_no_fsync: false,
                tuning: Tuning { log_io, apply, ..Tuning::default() },
                snapshots: SnapshotLimits::default(),
                digest_interval: Duration::ZERO,
                scrub_period: Duration::ZERO,
                snapshot_bytes_per_s: 0,
                streams: Streams::default(),
                sector_bytes: 0,
                segment_bytes: 1 << 20,
                reserve_bytes: 0,
                disk_stall: Duration::from_secs(60),
            })
            .collect();
        configs.iter_mut().for_each(change);
        let mut cluster = Cluster { configs, running: vec![], root };
        for i in 0..size.into() {
            cluster.running.push(Some(boot(cluster.configs[i].clone()).expect("it starts")));
        }
        cluster
    }

    pub fn data_dirs(&self) -> Vec<PathBuf> {
        self.configs.iter().map(|config| config.data_dir.clone()).collect()
    }

    /// The configuration that it is started with, for a test that runs it by itself while it is stopped.
    pub fn config(&self, i: usize) -> RuntimeConfig {
        assert!(self.running[i].is_none(), "it runs");
        self.configs[i].clone()
    }

    pub fn engine(&self, i: usize) -> Engine {
        self.running[i].as_ref().expect("it runs").engine.clone()
    }

    pub fn kill(&mut self, i: usize) {
        let running = self.running[i].take().expect("it runs");
        running.kill.send(()).expect("its thread listens");
        running.thread.join().expect("its thread ends");
    }

    pub fn stop(&mut self, i: usize) {
        let running = self.running[i].take().expect("it runs");
        running.stop.send(true).expect("its loop listens");
        running.thread.join().expect("its thread ends");
    }

    /// Changes the configuration of its next start.
    pub fn tell(&mut self, i: usize, change: impl FnOnce(&mut RuntimeConfig)) {
        change(&mut self.configs[i]);
    }

    pub fn restart(&mut self, i: usize) {
        self.try_restart(i).expect("it starts");
    }

    pub fn try_restart(&mut self, i: usize) -> Result<(), String> {
        self.running[i] = Some(boot(self.configs[i].clone())?);
        Ok(())
    }

    /// Begins to start it; the handle returns whether it started.
    pub fn begin_start(&self, i: usize) -> JoinHandle<Result<(), String>> {
        let config = self.configs[i].clone();
        std::thread::spawn(move || boot(config).map(|_| ()))
    }

    /// One more member, for a cluster that exists: it would ask all members so far. It has an address, and does not
    /// run.
    pub fn joiner(&mut self) -> usize {
        let mut config = self.configs.last().expect("there is a first one").clone();
        let mut address = config.listen_peers[0].0;
        let SocketAddr::V4(place) = &mut address else { panic!("a loopback address") };
        place.set_ip(std::net::Ipv4Addr::from(u32::from(*place.ip()) + 1));
        let i = self.configs.len();
        config.members.push(Member {
            id: NodeId(i as u64 + 1),
            name: format!("n{}", i + 1),
            peer_urls: vec![format!("http://{address}")],
        });
        config.id = NodeId(i as u64 + 1);
        config.join = true;
        config.cluster_id = 0; // the others tell it
        config.listen_peers = vec![(address, Speaks::Plain)];
        config.client_urls = vec![format!("http://n{}", i + 1)];
        config.data_dir = self.root.join(format!("n{}", i + 1));
        self.configs.push(config);
        self.running.push(None);
        i
    }

    /// Its peer URLs.
    pub fn peer_urls(&self, i: usize) -> Vec<String> {
        vec![format!("http://{}", self.configs[i].listen_peers[0].0)]
    }

    /// Waits for the end that a member comes to by itself.
    pub async fn end_of(&mut self, i: usize) -> Option<End> {
        let running = self.running[i].take().expect("it runs");
        for _ in 0..6000 {
            if running.thread.is_finished() {
                return running.thread.join().expect("its thread ends");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("it goes on for two minutes");
    }

    /// Empties its disk.
    pub fn wipe(&self, i: usize) {
        std::fs::remove_dir_all(&self.configs[i].data_dir).expect("it had one");
    }

    pub async fn leader(&self) -> usize {
        for _ in 0..6000 {
            for i in 0..self.running.len() {
                if self.running[i].is_some() && status(&self.engine(i)).await.role == "leader" {
                    return i;
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("there is no leader");
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for i in 0..self.running.len() {
            if self.running[i].is_some() {
                self.stop(i);
            }
        }
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.root);
        }
    }
}

fn boot(config: RuntimeConfig) -> Result<Running, String> {
    let (tell, told) = std::sync::mpsc::channel();
    let (stop, stopped) = watch::channel(false);
    let (kill, killed) = oneshot::channel();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, async move {
            let member = match start(config).await {
                Ok(member) => member,
                Err(error) => {
                    tell.send(Err(error.to_string())).expect("the test waits");
                    return None;
                }
            };
            tell.send(Ok(member.engine.clone())).expect("the test waits");
            tokio::select! {
                end = member.run(stopped) => Some(end),
                _ = killed => None,
            }
        })
    });
    let engine = told.recv().expect("it says how it went")?;
    Ok(Running { engine, stop, kill, thread })
}

pub fn put(key: &str, value: &str) -> Request {
    let put = kv::Put { key: key.into(), value: value.into(), ..kv::Put::default() };
    Request::Write(encode_kv(&kv::Command::Put(put)).into())
}

pub fn get(key: &str) -> Request {
    let keys = kv::KeyRange { start: key.into(), end: vec![] };
    Request::Read(kv::Query::Range(kv::Range { keys, ..kv::Range::default() }), Consistency::Linearizable)
}

pub async fn status(engine: &Engine) -> Status {
    match engine.call(Request::Status).await {
        Outcome::Done(Reply { body: ReplyBody::Status(status), .. }) => *status,
        other => panic!("no status: {other:?}"),
    }
}

pub async fn put_until_done(engine: &Engine, key: &str, value: &str) {
    let mut last = None;
    for _ in 0..100 {
        match engine.call(put(key, value)).await {
            Outcome::Done(_) => return,
            other => last = Some(other),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("put {key} never succeeded: {last:?}");
}

pub async fn read(engine: &Engine, key: &str) -> Option<String> {
    for _ in 0..100 {
        match engine.call(get(key)).await {
            Outcome::Done(Reply { body: ReplyBody::Kv(response), .. }) => match response.answer {
                Answer::Range(range) => {
                    return range.kvs.first().map(|kv| String::from_utf8(kv.value.to_vec()).expect("text"));
                }
                other => panic!("{other:?}"),
            },
            _ => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
    panic!("get {key} never succeeded");
}

pub fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(test);
}

pub fn compact(revision: kv::Revision) -> Request {
    Request::Write(encode_kv(&kv::Command::Compact(revision)).into())
}
