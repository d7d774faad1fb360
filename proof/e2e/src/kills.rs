//! Kills: leaders are killed under load; measures how long the service is unavailable, and looks for lost acknowledged
//! keys.
//!
//! Method: eight clients put unique keys as fast as they are answered. The leader is killed with SIGKILL; from then on
//! a probe goes to each survivor every 25 ms, and the first probe that is acknowledged ends the outage. The dead member
//! is restarted, serves again, and the next leader is killed. At the end every acknowledged key must be there.
//! Knows nothing of: elections; only of what a client sees.

use kattu_proto::etcdserverpb::kv_client::KvClient;
use kattu_proto::etcdserverpb::{PutRequest, RangeRequest};
use kattu_rig::grpc::{self, Kv};
use kattu_rig::{Cluster, Options};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tonic::transport::Channel;

const CLIENTS: usize = 8;
const PROBE_EVERY: Duration = Duration::from_millis(25);
/// A connection that is not established within this is retried.
const CONNECT_LIMIT: Duration = Duration::from_millis(500);
/// After this the service is considered lost.
const OUTAGE_MAX: Duration = Duration::from_secs(30);

/// The results.
#[derive(Debug)]
pub struct Report {
    /// From each kill to the first acknowledged probe.
    pub outages: Vec<Duration>,
    /// The election timeout the members ran with.
    pub election_timeout: Duration,
    /// Keys acknowledged to the load.
    pub acknowledged: usize,
    /// Acknowledged keys that are not there.
    pub lost: Vec<String>,
    /// The longest small synced write of our own during each outage: shows how busy the disk was with other work.
    pub disk_stalls: Vec<Duration>,
}

impl Report {
    /// The median outage.
    pub fn median(&self) -> Duration {
        let mut sorted = self.outages.clone();
        sorted.sort();
        sorted.get(sorted.len() / 2).copied().unwrap_or_default()
    }

    /// The longest outage.
    pub fn max(&self) -> Duration {
        self.outages.iter().max().copied().unwrap_or_default()
    }

    /// An outage in election timeouts.
    pub fn in_timeouts(&self, outage: Duration) -> f64 {
        outage.as_secs_f64() / self.election_timeout.as_secs_f64()
    }
}

/// Kills `kills` leaders of a three-member cluster whose election timeout is given.
pub fn run(
    kills: usize,
    election_timeout: Duration,
    mut each: impl FnMut(usize, Duration, Duration),
) -> Report {
    let flags = ["--heartbeat-interval", &(election_timeout.as_millis() / 10).to_string()]
        .into_iter()
        .chain(["--election-timeout", &election_timeout.as_millis().to_string()])
        .map(str::to_string)
        .collect();
    let mut cluster = Cluster::with("kills", Options { members: 3, flags });
    let load = Load::start(&cluster);
    let (mut outages, mut disk_stalls) = (Vec::new(), Vec::new());
    for kill in 0..kills {
        // Each kill happens while the load runs at full speed.
        load.wait_for_more(200);
        let leader = cluster.leader();
        let survivors: Vec<String> =
            (0..3).filter(|i| *i != leader).map(|i| cluster.members[i].address()).collect();
        cluster.members[leader].kill();
        let disk = DiskWatch::start(cluster.folder());
        let outage = outage(&survivors, kill);
        let disk_stall = disk.stop();
        each(kill, outage, disk_stall);
        outages.push(outage);
        disk_stalls.push(disk_stall);
        cluster.members[leader].start();
    }
    let acknowledged = load.stop();
    let there = all_keys(&cluster.members[0].kv());
    let lost = acknowledged.iter().filter(|key| !there.contains(*key)).cloned().collect();
    Report { outages, election_timeout, acknowledged: acknowledged.len(), lost, disk_stalls }
}

pub(crate) fn channel(address: &str) -> Channel {
    grpc::channel(address, CONNECT_LIMIT)
}

pub(crate) async fn put(channel: Channel, key: String, limit: Duration) -> bool {
    let request = PutRequest { key: key.into_bytes(), value: vec![b'x'; 64], ..PutRequest::default() };
    let mut client = KvClient::new(channel);
    matches!(tokio::time::timeout(limit, client.put(request)).await, Ok(Ok(_)))
}

/// Time from now to the first acknowledged probe.
fn outage(survivors: &[String], kill: usize) -> Duration {
    let begun = Instant::now();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let channels: Vec<Channel> = survivors.iter().map(|address| channel(address)).collect();
        let back = Arc::new(Mutex::new(None));
        let mut probe = 0;
        loop {
            for channel in &channels {
                let (channel, back, key) = (channel.clone(), back.clone(), format!("probe/{kill}/{probe}"));
                probe += 1;
                tokio::spawn(async move {
                    if put(channel, key, OUTAGE_MAX).await {
                        back.lock().expect("no probe panics").get_or_insert(begun.elapsed());
                    }
                });
            }
            tokio::time::sleep(PROBE_EVERY).await;
            if let Some(outage) = *back.lock().expect("no probe panics") {
                return outage;
            }
            assert!(
                begun.elapsed() < OUTAGE_MAX,
                "no put succeeded for {OUTAGE_MAX:?} after kill {}",
                kill + 1
            );
        }
    })
}

/// Syncs a small file again and again, to tell a slow service from a slow disk.
pub(crate) struct DiskWatch {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<Duration>>,
}

impl Drop for DiskWatch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl DiskWatch {
    /// Starts on a thread of its own, with a file in this folder.
    pub(crate) fn start(folder: &std::path::Path) -> DiskWatch {
        let path = folder.join("disk-watch");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut longest = Duration::ZERO;
            while !stopped.load(Ordering::Relaxed) {
                let begun = Instant::now();
                let written = std::fs::File::create(&path).and_then(|mut file| {
                    std::io::Write::write_all(&mut file, &[0; 4096]).and_then(|()| file.sync_data())
                });
                assert!(written.is_ok(), "{}: {written:?}", path.display());
                longest = longest.max(begun.elapsed());
                std::thread::sleep(PROBE_EVERY);
            }
            longest
        });
        DiskWatch { stop, thread: Some(thread) }
    }

    /// Stops it; returns the longest time of one write with its sync.
    pub(crate) fn stop(mut self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().expect("it runs").join().expect("the disk can be written")
    }
}

/// Clients that put unique keys, and record which were acknowledged.
pub struct Load {
    stop: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
    acknowledged: Arc<Mutex<BTreeSet<String>>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Load {
    /// Starts on a thread of its own.
    pub fn start(cluster: &Cluster) -> Load {
        let addresses = cluster.addresses();
        let stop = Arc::new(AtomicBool::new(false));
        let count = Arc::new(AtomicU64::new(0));
        let acknowledged = Arc::new(Mutex::new(BTreeSet::new()));
        let (stopped, counted, kept) = (stop.clone(), count.clone(), acknowledged.clone());
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let channels: Vec<Channel> = addresses.iter().map(|address| channel(address)).collect();
                let clients: Vec<_> = (0..CLIENTS)
                    .map(|client| {
                        let (channels, stopped, counted, kept) =
                            (channels.clone(), stopped.clone(), counted.clone(), kept.clone());
                        tokio::spawn(async move {
                            let mut at = client % channels.len();
                            for number in 0.. {
                                if stopped.load(Ordering::Relaxed) {
                                    return;
                                }
                                let key = format!("load/{client}/{number:08}");
                                if put(channels[at].clone(), key.clone(), Duration::from_secs(2)).await {
                                    kept.lock().expect("no client panics").insert(key);
                                    counted.fetch_add(1, Ordering::Relaxed);
                                } else {
                                    at = (at + 1) % channels.len();
                                    tokio::time::sleep(PROBE_EVERY).await;
                                }
                            }
                        })
                    })
                    .collect();
                for client in clients {
                    client.await.expect("no client panics");
                }
            });
        });
        Load { stop, count, acknowledged, thread: Some(thread) }
    }

    /// Puts acknowledged so far.
    pub(crate) fn acknowledged_count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Waits for so many more acknowledgements, however slowly they come; panics if they stop.
    #[track_caller]
    pub(crate) fn wait_for_more(&self, count: u64) {
        let mut seen = self.acknowledged_count();
        let goal = seen + count;
        while seen < goal {
            seen = kattu_rig::until("the load goes on", || {
                Some(self.acknowledged_count()).filter(|now| seen < *now)
            });
        }
    }

    /// Stops the clients; returns the acknowledged keys.
    pub fn stop(mut self) -> BTreeSet<String> {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the load does not panic");
        }
        std::mem::take(&mut self.acknowledged.lock().expect("no client panics"))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Every key of the load, page by page.
pub(crate) fn all_keys(kv: &Kv) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    let mut from = b"load/".to_vec();
    loop {
        let request = RangeRequest {
            key: from.clone(),
            range_end: b"load0".to_vec(),
            limit: 10_000,
            keys_only: true,
            ..RangeRequest::default()
        };
        let page = kattu_rig::until("a page of keys", || kv.range(request.clone()).ok());
        let Some(last) = page.kvs.last() else { return keys };
        from = last.key.clone();
        from.push(0);
        keys.extend(page.kvs.iter().map(|kv| String::from_utf8_lossy(&kv.key).into_owned()));
        if !page.more {
            return keys;
        }
    }
}
