//! Three real members in one process: real logs, real loopback TCP; killed by dropping everything they were doing.

use kattu_kv::api::{self as kv, Answer};
use kattu_node::command::encode_kv;
use kattu_node::contract::{Consistency, Outcome, Reply, ReplyBody, Request, Status};
use kattu_raft::{Duration, Limits, NodeId};
use kattu_runtime::{Engine, Member, Place, RuntimeConfig, start};
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
    thread: JoinHandle<()>,
}

struct Cluster {
    configs: Vec<RuntimeConfig>,
    running: Vec<Option<Running>>,
    root: PathBuf,
}

impl Cluster {
    fn new(size: u8, log_io: Place, apply: Place) -> Cluster {
        Cluster::start(size, log_io, apply, Duration::from_millis(500), Duration::from_millis(50))
    }

    fn with_timeouts(size: u8, election: Duration, heartbeat: Duration) -> Cluster {
        Cluster::start(size, Place::Inline, Place::Inline, election, heartbeat)
    }

    fn start(size: u8, log_io: Place, apply: Place, election: Duration, heartbeat: Duration) -> Cluster {
        // Loopback addresses of this process and this cluster alone: fixed ports never collide.
        let number = CLUSTERS.fetch_add(1, Ordering::Relaxed);
        let pid = std::process::id();
        let address = |i: u8| {
            SocketAddr::from(([127, 1 + (pid >> 8) as u8 % 250, pid as u8, 10 * number as u8 + i], 2380))
        };
        let root = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("cluster-{pid}-{number}"));
        let members: Vec<Member> = (1..=size)
            .map(|i| Member {
                id: NodeId(i.into()),
                name: format!("n{i}"),
                peer_urls: vec![format!("http://{}", address(i))],
                peer_addresses: vec![address(i).to_string()],
            })
            .collect();
        let configs = (1..=size)
            .map(|i| RuntimeConfig {
                data_dir: root.join(format!("n{i}")),
                cluster_id: 0xC1,
                id: NodeId(i.into()),
                members: members.clone(),
                listen_peers: vec![address(i)],
                client_urls: vec![format!("http://n{i}")],
                election_timeout: election,
                heartbeat_interval: heartbeat,
                limits: Limits::default(),
                request_bytes_max: 3 << 19,
                quota_bytes: 0,
                log_io,
                apply,
                segment_bytes: 1 << 20,
                reserve_bytes: 0,
                disk_stall: Duration::from_secs(60),
            })
            .collect();
        let mut cluster = Cluster { configs, running: vec![], root };
        for i in 0..size.into() {
            cluster.running.push(Some(boot(cluster.configs[i].clone())));
        }
        cluster
    }

    fn engine(&self, i: usize) -> Engine {
        self.running[i].as_ref().expect("it runs").engine.clone()
    }

    fn kill(&mut self, i: usize) {
        let running = self.running[i].take().expect("it runs");
        running.kill.send(()).expect("its thread listens");
        running.thread.join().expect("its thread ends");
    }

    fn stop(&mut self, i: usize) {
        let running = self.running[i].take().expect("it runs");
        running.stop.send(true).expect("its loop listens");
        running.thread.join().expect("its thread ends");
    }

    fn restart(&mut self, i: usize) {
        self.running[i] = Some(boot(self.configs[i].clone()));
    }

    async fn leader(&self) -> usize {
        for _ in 0..600 {
            for i in 0..self.running.len() {
                if self.running[i].is_some() && status(&self.engine(i)).await.role == "leader" {
                    return i;
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("nobody leads");
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

fn boot(config: RuntimeConfig) -> Running {
    let (tell, told) = std::sync::mpsc::channel();
    let (stop, stopped) = watch::channel(false);
    let (kill, killed) = oneshot::channel();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, async move {
            let member = start(config).await.expect("it starts");
            tell.send(member.engine.clone()).expect("somebody waits");
            tokio::select! {
                () = member.run(stopped) => {}
                _ = killed => {}
            }
        });
    });
    Running { engine: told.recv().expect("it started"), stop, kill, thread }
}

fn put(key: &str, value: &str) -> Request {
    let put = kv::Put { key: key.into(), value: value.into(), ..kv::Put::default() };
    Request::Write(encode_kv(&kv::Command::Put(put)))
}

fn get(key: &str) -> Request {
    let keys = kv::KeyRange { start: key.into(), end: vec![] };
    Request::Read(kv::Query::Range(kv::Range { keys, ..kv::Range::default() }), Consistency::Linearizable)
}

async fn status(engine: &Engine) -> Status {
    match engine.call(Request::Status).await {
        Outcome::Done(Reply { body: ReplyBody::Status(status), .. }) => status,
        other => panic!("no status: {other:?}"),
    }
}

async fn put_until_done(engine: &Engine, key: &str, value: &str) {
    for _ in 0..100 {
        if let Outcome::Done(_) = engine.call(put(key, value)).await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("put {key} never succeeded");
}

async fn read(engine: &Engine, key: &str) -> Option<String> {
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

fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(test);
}

async fn survives_kills(log_io: Place, apply: Place) {
    let mut cluster = Cluster::new(3, log_io, apply);
    let leader = cluster.leader().await;
    for i in 0..50 {
        put_until_done(&cluster.engine(i % 3), &format!("k{i}"), "before").await;
    }
    cluster.kill(leader);
    let others: Vec<usize> = (0..3).filter(|&i| i != leader).collect();
    for i in 0..50 {
        put_until_done(&cluster.engine(others[i % 2]), &format!("m{i}"), "without").await;
    }
    for &i in &others {
        cluster.kill(i);
    }
    for i in 0..3 {
        cluster.restart(i);
    }
    for i in 0..50 {
        let engine = cluster.engine(i % 3);
        assert_eq!(read(&engine, &format!("k{i}")).await.as_deref(), Some("before"));
        assert_eq!(read(&engine, &format!("m{i}")).await.as_deref(), Some("without"));
    }
}

#[test]
fn nothing_acknowledged_is_lost_when_all_are_killed_inline() {
    run(survives_kills(Place::Inline, Place::Inline));
}

#[test]
fn nothing_acknowledged_is_lost_when_all_are_killed_with_threads() {
    run(survives_kills(Place::Thread, Place::Thread));
}

#[test]
fn many_clients_share_syncs() {
    run(async {
        let cluster = Cluster::new(3, Place::Inline, Place::Inline);
        let leader = cluster.leader().await;
        let engine = cluster.engine(leader);
        put_until_done(&engine, "first", "x").await;
        let before = engine.metrics().sync.count();
        let calls: Vec<_> = (0..500)
            .map(|i| {
                let engine = engine.clone();
                tokio::spawn(async move { engine.call(put(&format!("k{i}"), "v")).await })
            })
            .collect();
        for call in calls {
            assert!(matches!(call.await.expect("no panic"), Outcome::Done(_)));
        }
        let syncs = engine.metrics().sync.count() - before;
        assert!(syncs < 250, "500 concurrent puts took {syncs} syncs");
    });
}

#[test]
fn a_lone_write_waits_for_no_timer() {
    run(async {
        let cluster = Cluster::with_timeouts(3, Duration::from_secs(3), Duration::from_secs(1));
        let leader = cluster.leader().await;
        for engine in [cluster.engine(leader), cluster.engine((leader + 1) % 3)] {
            put_until_done(&engine, "first", "x").await;
            let began = std::time::Instant::now();
            for i in 0..30 {
                put_until_done(&engine, &format!("k{i}"), "v").await;
            }
            // Waiting for heartbeats would take 30 s; everything else is milliseconds.
            assert!(began.elapsed() < Duration::from_secs(20), "30 puts took {:?}", began.elapsed());
        }
    });
}

#[test]
fn a_single_member_serves_alone_and_after_a_clean_stop() {
    run(async {
        let mut cluster = Cluster::new(1, Place::Inline, Place::Inline);
        put_until_done(&cluster.engine(0), "a", "1").await;
        cluster.stop(0);
        cluster.restart(0);
        assert_eq!(read(&cluster.engine(0), "a").await.as_deref(), Some("1"));
    });
}
