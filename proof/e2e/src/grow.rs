//! Grow: a cluster grows from one member to five and shrinks to three while clients write.
//!
//! Method: eight clients put unique keys as fast as they are answered, spread over the current members; a client
//! without an answer moves on to another member. Members are added one by one (added, started, waited for until it has
//! a vote) and removed one by one, the current leader first. For each step the longest time between two
//! acknowledgements to any client is kept. At the end every acknowledged key must be there, on every remaining member,
//! and each removed member must have ended by itself with exit code 0. The disk is watched meanwhile, to tell a slow
//! service from a slow disk.
//! Knows nothing of: how membership changes work; only of what clients and operators see.

use crate::kills::{DiskWatch, all_keys, channel, put};
use kattu_rig::until;
use kattu_rig::{Cluster, Options};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tonic::transport::Channel;

const CLIENTS: usize = 8;
/// A client without an answer for so long moves on to another member.
const PATIENCE: Duration = Duration::from_secs(2);
/// Pause of a client that was refused.
const PAUSE: Duration = Duration::from_millis(5);
/// The load goes on for so many acknowledgements after each step, so that its aftermath counts.
const AFTER_EACH_STEP: u64 = 300;
/// Name of the cluster.
const TOKEN: &str = "grow";

/// One step and its cost.
#[derive(Clone, Debug)]
pub struct Step {
    /// A description of the step.
    pub what: String,
    /// Time until it was complete.
    pub took: Duration,
    /// The longest time between two acknowledgements during it and right after.
    pub gap: Duration,
    /// The longest small synced write of our own during this step or the one before: a gap may have begun there.
    pub disk_stall: Duration,
}

/// The results.
#[derive(Debug)]
pub struct Report {
    /// Every step, in order.
    pub steps: Vec<Step>,
    /// The election timeout the members ran with.
    pub election_timeout: Duration,
    /// Keys acknowledged to the load.
    pub acknowledged: usize,
    /// Acknowledged keys that are not there.
    pub lost: Vec<String>,
}

impl Report {
    /// The longest time between two acknowledgements.
    pub fn longest_gap(&self) -> Duration {
        self.steps.iter().map(|step| step.gap).max().unwrap_or_default()
    }

    /// The longest gap after `stalls` disk stalls are subtracted from each: a stalled disk stalls every member in turn.
    pub fn longest_gap_without(&self, stalls: u32) -> Duration {
        let rest = |step: &Step| step.gap.saturating_sub(step.disk_stall * stalls);
        self.steps.iter().map(rest).max().unwrap_or_default()
    }
}

/// Grows from 1 to 5 and shrinks to 3 under load.
pub fn run(election_timeout: Duration, mut each: impl FnMut(&Step)) -> Report {
    let flags = ["--heartbeat-interval", &(election_timeout.as_millis() / 10).to_string()]
        .into_iter()
        .chain(["--election-timeout", &election_timeout.as_millis().to_string()])
        .map(str::to_string)
        .collect::<Vec<_>>();
    let mut cluster = Cluster::with(TOKEN, Options { members: 1, flags: flags.clone() });
    let load = Load::start(cluster.members[0].address());
    load.wait_for_more();
    let mut steps = Vec::new();
    let folder = cluster.folder().to_path_buf();
    let (mut disk, mut stall_before) = (DiskWatch::start(&folder), Duration::ZERO);
    let mut step = |what: String, begun: Instant| {
        let took = begun.elapsed();
        load.wait_for_more();
        // The next watch starts before this one ends, so that no stall is missed.
        let stall = std::mem::replace(&mut disk, DiskWatch::start(&folder)).stop();
        let disk_stall = stall.max(std::mem::replace(&mut stall_before, stall));
        let step = Step { what, took, gap: load.take_longest_gap(), disk_stall };
        each(&step);
        steps.push(step);
    };
    load.take_longest_gap();
    for size in 2..=5 {
        let begun = Instant::now();
        let place = cluster.plan_joining(TOKEN);
        cluster.members[place].arguments_mut().extend(flags.iter().cloned());
        let url = cluster.members[place].peer_url();
        let kv = cluster.members[0].kv();
        // A failed request may have been carried out: then the list has the member, and a retry is refused.
        let id = until("the member is added", || kv.member_add(&url, false).ok().or_else(|| kv.id_at(&url)));
        cluster.members[place].start();
        until("the new member votes", || {
            let members = kv.members().ok()?;
            members.iter().any(|member| member.id == id && !member.is_learner).then_some(())
        });
        load.also_at(cluster.members[place].address());
        step(format!("added {}, {size} members", cluster.members[place].name), begun);
    }
    for size in [4, 3] {
        let leader = cluster.leader();
        let begun = Instant::now();
        let id = own_id(&cluster, leader);
        let survivor = cluster.members.iter().enumerate().find(|(i, m)| *i != leader && m.is_started());
        let kv = survivor.expect("others run").1.kv();
        until("the leader is removed", || {
            (kv.member_remove(id).is_ok() || kv.is_listed(id) == Some(false)).then_some(())
        });
        load.no_longer_at(&cluster.members[leader].address());
        let ended = cluster.members[leader].wait_end();
        ended.expect_ok();
        step(format!("removed {}, which led, {size} members", cluster.members[leader].name), begun);
    }
    disk.stop();
    let acknowledged = load.stop();
    let mut lost = BTreeSet::new();
    for member in cluster.members.iter().filter(|member| member.is_started()) {
        let there = all_keys(&member.kv());
        lost.extend(acknowledged.iter().filter(|key| !there.contains(*key)).cloned());
    }
    Report { steps, election_timeout, acknowledged: acknowledged.len(), lost: lost.into_iter().collect() }
}

fn own_id(cluster: &Cluster, place: usize) -> u64 {
    until("the member tells its id", || {
        cluster.members[place].kv().status().ok()?.header.map(|header| header.member_id)
    })
}

/// State that the clients share.
struct Shared {
    stop: AtomicBool,
    began: Instant,
    /// The members to use, by address; each connection is made once.
    members: Mutex<BTreeMap<String, Channel>>,
    count: AtomicU64,
    /// Time of the last acknowledgement, and the longest gap so far, in nanoseconds.
    last: AtomicU64,
    longest: AtomicU64,
    acknowledged: Mutex<BTreeSet<String>>,
}

/// Clients that put unique keys.
struct Load {
    shared: Arc<Shared>,
    runtime: tokio::runtime::Handle,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Load {
    fn start(first: String) -> Load {
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            began: Instant::now(),
            members: Mutex::default(),
            count: AtomicU64::new(0),
            last: AtomicU64::new(0),
            longest: AtomicU64::new(0),
            acknowledged: Mutex::default(),
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let handle = runtime.handle().clone();
        let mut load = Load { shared: shared.clone(), runtime: handle, thread: None };
        load.also_at(first);
        load.thread = Some(std::thread::spawn(move || {
            runtime.block_on(async {
                let clients: Vec<_> =
                    (0..CLIENTS).map(|client| tokio::spawn(write_on(shared.clone(), client))).collect();
                for client in clients {
                    client.await.expect("no client panics");
                }
            });
        }));
        load
    }

    fn also_at(&self, address: String) {
        let _inside = self.runtime.enter();
        let channel = channel(&address);
        self.shared.members.lock().expect("no client panics").insert(address, channel);
    }

    fn no_longer_at(&self, address: &str) {
        self.shared.members.lock().expect("no client panics").remove(address);
    }

    /// Waits until the load has gone on for a while, however slowly; panics if it stops.
    fn wait_for_more(&self) {
        let count = || self.shared.count.load(Ordering::Relaxed);
        let mut seen = count();
        let goal = seen + AFTER_EACH_STEP;
        while seen <= goal {
            seen = until("the load goes on", || Some(count()).filter(|now| seen < *now));
        }
    }

    fn take_longest_gap(&self) -> Duration {
        Duration::from_nanos(self.shared.longest.swap(0, Ordering::Relaxed))
    }

    fn stop(mut self) -> BTreeSet<String> {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the load does not panic");
        }
        std::mem::take(&mut self.shared.acknowledged.lock().expect("no client panics"))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}

async fn write_on(shared: Arc<Shared>, client: usize) {
    let mut at = client;
    for number in 0.. {
        if shared.stop.load(Ordering::Relaxed) {
            return;
        }
        let channel = {
            let members = shared.members.lock().expect("no client panics");
            members.values().nth(at % members.len().max(1)).cloned()
        };
        let key = format!("load/{client}/{number:08}");
        let acknowledged = match channel {
            Some(channel) => put(channel, key.clone(), PATIENCE).await,
            None => false,
        };
        if acknowledged {
            let now = shared.began.elapsed().as_nanos() as u64;
            let before = shared.last.swap(now, Ordering::Relaxed);
            if before != 0 {
                shared.longest.fetch_max(now.saturating_sub(before), Ordering::Relaxed);
            }
            shared.count.fetch_add(1, Ordering::Relaxed);
            shared.acknowledged.lock().expect("no client panics").insert(key);
            // Members are used in turn, so that every one carries load.
            if number % 16 == 0 {
                at += 1;
            }
        } else {
            at += 1;
            tokio::time::sleep(PAUSE).await;
        }
    }
}
