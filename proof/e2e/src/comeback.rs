//! Comeback: how long until a large member is back that was killed, and until a new one has caught up.
//!
//! Method: three members are filled with keys in transactions of 100, until a snapshot is on every disk; then a tail of
//! puts goes on top. A follower is killed with SIGKILL and restarted, a few times: timed are its ready line and its
//! first linearizable read. Then a learner is added and started with an empty directory: timed is until it has applied
//! as much as the leader; first without writes, then (another learner) under eight clients that put. Memory is each
//! process's peak.
//! At last a follower of another cluster is killed and restarted in the midst of puts at full speed, which go to the
//! two other members all the time; three times, for on a shared machine a single time says little. The progress judge
//! watches it. The tail judge compares put latency while it came back with put latency before it was killed. Clients
//! must have kept their share, and no put may have failed. With enough processors, the two other members have the
//! first; the clients and the follower, at lower priority, have the others: the cost of its own work to other processes
//! on its machine is not measured here. On two processors it waits for the clients most of the time, like a member on a
//! machine that is too slow. So the judge's clock stops while it waits; where it waits for more than a quarter of the
//! time, it need not come closer, only hold more. [fault-model F51, P18]
//! Knows nothing of: snapshots, logs; only of files, processes and answers.

use crate::fill::Fill;
use crate::kills::Load;
use crate::processors::{Waiting, on_one_core, on_other_cores};
use kattu_proto::etcdserverpb::PutRequest;
use kattu_proto::etcdserverpb::kv_client::KvClient;
use kattu_rig::grpc::channel;
use kattu_rig::page::Page;
use kattu_rig::programs::memory_of;
use kattu_rig::until;
use kattu_rig::{Cluster, Options};
use kattu_verify::service::{Bounds, LogIndex, NodeId, Progress, Slower, Standing, Tails, tail};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const TOKEN: &str = "comeback";
/// The keys that a member must get when it comes back.
const KEYS: Fill = Fill { key, value: |number| format!("{number:0256}").into_bytes() };
const RESTARTS: usize = 5;
/// Puts on top of the last snapshot, in percent of the fill.
const TAIL_PERCENT: u64 = 5;
/// A member that is not back after this long is lost.
const BACK_MAX: Duration = Duration::from_secs(600);

/// How long a follower is away from the full load.
const AWAY: Duration = Duration::from_secs(10);
/// It must be back within this.
const BACK_UNDER_LOAD_MAX: Duration = Duration::from_secs(60);
/// It must hold more entries, or more of a snapshot, after each of these; time that it waits for a processor does not
/// count. [fault-model P14]
const STANDSTILL: Duration = Duration::from_secs(5);
/// Puts per second are counted for so long before each kill.
const COUNTED: Duration = Duration::from_secs(5);
/// Ending of the file that a member writes while it makes a snapshot of its own.
const OWN_PART: &str = ".taken.part";
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Clients keep at least so many percent of their former rate: `--client-share-min`'s default. [docs/operations.md]
const SHARE_MIN: f64 = 80.0;
/// Restarts where times are judged: all their puts are judged together.
const TIMES: usize = 3;
/// How much longer writes may take than before: as in storms, plus a heartbeat interval and a tenth of waiting for the
/// restarted member. [fault-model P18]
const SLOWER: Slower = Slower { factor: 2.0, allowance: 120_000_000 };
/// The full load: clients for each of two members, and their connections.
const CLIENTS: usize = 128;
const CONNECTIONS: usize = 50;
const LOAD_KEYS: u64 = 1_000_000;
const LOAD_VALUE: usize = 256;
/// A put that is not answered within this has failed.
const PUT_LIMIT: Duration = Duration::from_secs(10);
/// A connection that is not established within this is retried.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Added to the restarted member's niceness: it gets about a tenth of the clients' share where both want to run.
const NICER: i32 = 10;
/// The leader has applied more than this before anything is counted.
const WARM: u64 = 10_000;

/// A follower that restarts under full load, several times.
#[derive(Clone, Debug)]
pub struct UnderLoad {
    /// Each time: the entries that it lacked at its start, and how long until it lacked fewer than are put in a second.
    pub times: Vec<(u64, Duration)>,
    /// Puts per second before it was killed, over all restarts.
    pub before: f64,
    /// … and while it came back.
    pub meanwhile: f64,
    /// Share of the time, over all restarts, that the follower waited for a processor.
    pub waited: f64,
    /// Put latencies before and while it came back; `None` if there were too few, or if they break the bound.
    pub tails: Option<Tails>,
    /// Puts that failed or were not answered.
    pub failed: u64,
    /// How often the leader began to slow down its clients.
    pub slowed: u64,
    /// Expectations that did not hold.
    pub faults: Vec<String>,
}

/// Results of the first part.
#[derive(Clone, Debug)]
pub struct Report {
    /// Bytes of the newest snapshot of the member that was restarted.
    pub snapshot_bytes: u64,
    /// Bytes of its log.
    pub log_bytes: u64,
    /// From the start of the process to its ready line, each time.
    pub serving: Vec<Duration>,
    /// From the start of the process to the first read that was confirmed by the leader.
    pub first_read: Vec<Duration>,
    /// From the start of a learner with an empty directory until it had applied as much as the leader; without writes.
    pub learner_calm: Duration,
    /// The same under load.
    pub learner_load: Duration,
    /// Puts acknowledged to that load, per second.
    pub load_rate: f64,
    /// Peak memory of the leader, of the restarted member and of the first learner, in bytes.
    pub peaks: [u64; 3],
    /// Keys on the learner at the end of its catch-up, and on the leader.
    pub keys: (i64, i64),
}

impl Report {
    /// The learner has as many keys as the leader.
    pub fn is_whole(&self) -> bool {
        self.keys.0 == self.keys.1
    }
}

/// Fills with `keys` keys of 40 bytes with values of 256, and brings members back.
pub fn run(keys: u64, mut say: impl FnMut(&str)) -> Report {
    let mut cluster = Cluster::with(TOKEN, Options::default());
    let leader = cluster.leader();
    let address = cluster.members[leader].address();
    KEYS.fill(&address, 0..keys);
    say(&format!("{keys} keys are there"));
    let back = (leader + 1) % 3;
    until("every member has made a snapshot", || {
        cluster.members.iter().all(|member| 0 < newest_snapshot(&member.data)).then_some(())
    });
    KEYS.fill(&address, 0..keys * TAIL_PERCENT / 100);
    same_as_leader(&cluster, leader, back);

    let (mut serving, mut first_read) = (Vec::new(), Vec::new());
    for _ in 0..RESTARTS {
        cluster.members[back].kill();
        let began = Instant::now();
        cluster.members[back].start();
        serving.push(began.elapsed());
        let kv = cluster.members[back].kv();
        until("the member answers a read", || kv.get(key(0)).ok().flatten());
        first_read.push(began.elapsed());
    }
    let (snapshot_bytes, log_bytes) =
        (newest_snapshot(&cluster.members[back].data), log_size(&cluster.members[back].data));
    say(&format!("a member was killed and started again {RESTARTS} times"));

    let (learner, learner_calm) = join(&mut cluster, leader);
    let count = |place: usize| cluster.members[place].kv().within(Duration::from_secs(60)).count("", true);
    let keys = (count(learner).expect("it serves"), count(leader).expect("it serves"));
    let peaks = [leader, back, learner].map(|place| memory_of(cluster.members[place].pid(), "VmHWM"));
    say("a learner has caught up");
    let load = Load::start(&cluster);
    let (acknowledged, since) = (load.acknowledged_count(), Instant::now());
    let (_, learner_load) = join(&mut cluster, leader);
    let load_rate = (load.acknowledged_count() - acknowledged) as f64 / since.elapsed().as_secs_f64();
    load.stop();
    Report {
        snapshot_bytes,
        log_bytes,
        serving,
        first_read,
        learner_calm,
        learner_load,
        load_rate,
        peaks,
        keys,
    }
}

impl UnderLoad {
    /// Rate of puts while it came back, in percent of the rate before.
    #[must_use]
    pub fn share(&self) -> f64 {
        100.0 * self.meanwhile / self.before
    }
}

/// Restarts a follower in the midst of puts at full speed. Pass false on a shared machine: then no time is judged.
pub fn under_full_load(judges_times: bool) -> UnderLoad {
    std::thread::scope(|scope| {
        let of_it = scope.spawn(move || under_full_load_on_one_core(judges_times));
        of_it.join().expect("it does not panic")
    })
}

/// Starts a member on other processors than the others', at lower priority than the clients.
fn spawn_elsewhere(cluster: &mut Cluster, place: usize) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            on_other_cores();
            // Affects this thread and its children, not the process. [setpriority(2), C library/kernel differences]
            rustix::process::nice(NICER).expect("anybody may be nicer");
            cluster.members[place].spawn().expect("it can be run");
        });
    });
}

fn under_full_load_on_one_core(judges_times: bool) -> UnderLoad {
    on_one_core();
    let mut cluster = Cluster::with("comeback-load", Options::default());
    let leader = cluster.leader();
    let back = (leader + 1) % 3;
    cluster.members[back].kill();
    spawn_elsewhere(&mut cluster, back);
    cluster.members[back].wait_ready();
    let asked = [leader, (leader + 2) % 3].map(|place| cluster.members[place].address());
    let load = Puts::start(&asked);
    let of_leader =
        |cluster: &Cluster| until("the leader tells what it has applied", || applied(cluster, leader));
    until("the load is there", || (WARM < of_leader(&cluster)).then_some(()));
    let slowed_before = slowed(&cluster, leader);
    let (mut times, mut faults, mut waited) = (Vec::new(), Vec::new(), Duration::ZERO);
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..if judges_times { TIMES } else { 1 } {
        load.take();
        std::thread::sleep(COUNTED);
        let puts = load.take();
        let puts_per_second = puts.len() as f64 / COUNTED.as_secs_f64();
        without.extend(puts);

        let had = until("the follower tells what it has applied", || applied(&cluster, back));
        cluster.members[back].kill();
        std::thread::sleep(AWAY);
        let lacked = of_leader(&cluster) - had;
        load.take();
        let begun = Instant::now();
        spawn_elsewhere(&mut cluster, back);
        let seen = comes_back(&cluster, leader, back, begun, puts_per_second, judges_times);
        with.extend(load.take());
        times.push((lacked, seen.took));
        waited += seen.waited;
        faults.extend(seen.fault);
    }
    let before = without.len() as f64 / (COUNTED * times.len() as u32).as_secs_f64();
    let took: Duration = times.iter().map(|(_, took)| *took).sum();
    let meanwhile = with.len() as f64 / took.as_secs_f64();
    let slowed = slowed(&cluster, leader).saturating_sub(slowed_before);
    let failed = load.stop();
    if failed > 0 {
        faults.push(format!("{failed} puts failed"));
    }
    let tails = match tail("a member comes back under full load", &mut with, &mut without, SLOWER) {
        Ok(Some(tails)) => Some(tails),
        Ok(None) => {
            faults.push(format!("{} and {} puts are too few to compare", without.len(), with.len()));
            None
        }
        Err(violation) => {
            faults.extend(judges_times.then(|| violation.to_string()));
            None
        }
    };
    let waited = waited.as_secs_f64() / took.as_secs_f64();
    let seen = UnderLoad { times, before, meanwhile, waited, tails, failed, slowed, faults };
    if judges_times { judge_share(seen) } else { seen }
}

fn judge_share(mut seen: UnderLoad) -> UnderLoad {
    if seen.share() < SHARE_MIN {
        let said = format!("clients kept {:.0} of 100 puts, {SHARE_MIN:.0} are theirs", seen.share());
        seen.faults.push(said);
    }
    seen
}

/// One restart of a follower.
struct CameBack {
    took: Duration,
    /// How long of that it waited for a processor.
    waited: Duration,
    /// The first expectation that did not hold.
    fault: Option<String>,
}

/// Waits until a follower is back.
fn comes_back(
    cluster: &Cluster,
    leader: usize,
    back: usize,
    begun: Instant,
    puts_per_second: f64,
    judges_times: bool,
) -> CameBack {
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let mut progress = Progress::new(Bounds { leaderless: u64::MAX, standstill: nanos(STANDSTILL) });
    let mut waiting = Waiting::of(cluster.members[back].pid());
    let mut seen = CameBack { took: begun.elapsed(), waited: Duration::ZERO, fault: None };
    loop {
        let waited = waiting.during(LOOK_EVERY);
        seen.waited += waited;
        let looked = begun.elapsed();
        let has_time_enough = waited < (looked - seen.took) / 4;
        seen.took = looked;
        let goal = until("the leader tells what it has applied", || applied(cluster, leader));
        let held = applied(cluster, back).unwrap_or(0);
        let parts = files(&cluster.members[back].data, ".part");
        // A snapshot that it makes itself brings it no closer.
        let received =
            parts.iter().filter(|(name, _)| !name.ends_with(OWN_PART)).map(|(_, bytes)| bytes).sum();
        // While a snapshot arrives, the number of lacking entries falls only with its last piece.
        let lacks = (judges_times && has_time_enough && received == 0).then(|| goal as i64 - held as i64);
        let standing = Standing { reachable: true, held: LogIndex(held), received, lacks };
        let clock = nanos(looked.saturating_sub(seen.waited));
        let judged = progress.look_at_member(clock, NodeId(back as u64 + 1), standing, LogIndex(goal));
        if let (None, Err(violation)) = (&seen.fault, judged) {
            seen.fault = Some(violation.to_string());
        }
        if goal.saturating_sub(held) < puts_per_second as u64 {
            return seen;
        }
        if BACK_UNDER_LOAD_MAX < looked {
            let lacks = goal.saturating_sub(held);
            seen.fault = Some(format!("it lacks {lacks} entries after {BACK_UNDER_LOAD_MAX:?}"));
            return seen;
        }
    }
}

/// How often a member has begun to slow down its clients.
fn slowed(cluster: &Cluster, place: usize) -> u64 {
    let of_member = || Page::of(&cluster.members[place].address())?.number("kattu_clients_slowed_total");
    until("the leader says how often it has slowed its clients", of_member)
}

/// Clients that put again as soon as they are answered, and record each put's latency.
struct Puts {
    stop: Arc<AtomicBool>,
    failed: Arc<AtomicU64>,
    /// Latencies, in nanoseconds, of the puts that ended since the last `take`.
    times: Arc<Mutex<Vec<u64>>>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Puts {
    fn start(addresses: &[String]) -> Puts {
        let (stop, failed) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let times = Arc::<Mutex<Vec<u64>>>::default();
        let number = Arc::<AtomicU64>::default();
        let threads = addresses.iter().map(|address| {
            let (address, stop, failed) = (address.clone(), stop.clone(), failed.clone());
            let (times, number) = (times.clone(), number.clone());
            std::thread::spawn(move || {
                on_other_cores();
                let runtime =
                    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
                runtime.block_on(async {
                    let channels: Vec<_> =
                        (0..CONNECTIONS).map(|_| channel(&address, CONNECT_LIMIT)).collect();
                    let mut tasks = tokio::task::JoinSet::new();
                    for client in 0..CLIENTS {
                        let mut client = KvClient::new(channels[client % CONNECTIONS].clone());
                        let (stop, failed) = (stop.clone(), failed.clone());
                        let (times, number) = (times.clone(), number.clone());
                        tasks.spawn(async move {
                            while !stop.load(Ordering::Relaxed) {
                                // Each key in turn, in a scattered order.
                                let drawn = number.fetch_add(1, Ordering::Relaxed).wrapping_mul(7919);
                                let put = PutRequest {
                                    key: format!("load/{:011}", drawn % LOAD_KEYS).into_bytes(),
                                    value: vec![b'x'; LOAD_VALUE],
                                    ..PutRequest::default()
                                };
                                let asked = Instant::now();
                                match tokio::time::timeout(PUT_LIMIT, client.put(put)).await {
                                    Ok(Ok(_)) => {
                                        let took = u64::try_from(asked.elapsed().as_nanos());
                                        let mut times = times.lock().expect("nobody panics with it");
                                        times.push(took.unwrap_or(u64::MAX));
                                    }
                                    _ => drop(failed.fetch_add(1, Ordering::Relaxed)),
                                }
                            }
                        });
                    }
                    tasks.join_all().await;
                });
            })
        });
        let threads = threads.collect();
        Puts { stop, failed, times, threads }
    }

    /// Latencies of the puts that ended since the last call.
    fn take(&self) -> Vec<u64> {
        std::mem::take(&mut self.times.lock().expect("nobody panics with it"))
    }

    /// Stops the clients; returns the number of failed puts.
    fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("clients do not panic");
        }
        self.failed.load(Ordering::Relaxed)
    }
}

/// The member's applied index, if it answers.
fn applied(cluster: &Cluster, place: usize) -> Option<u64> {
    let status = cluster.members[place].kv().within(Duration::from_secs(1)).status().ok()?;
    Some(status.raft_applied_index)
}

fn key(number: u64) -> Vec<u8> {
    format!("comeback/{number:031}").into_bytes()
}

/// Adds a learner and starts it with an empty directory; its place, and how long until it had the leader's entries.
fn join(cluster: &mut Cluster, leader: usize) -> (usize, Duration) {
    let place = cluster.plan_joining(TOKEN);
    let url = cluster.members[place].peer_url();
    until("the learner is added", || cluster.members[leader].kv().member_add(&url, true).ok());
    let began = Instant::now();
    cluster.members[place].spawn().expect("it can be run");
    same_as_leader(cluster, leader, place);
    (place, began.elapsed())
}

/// Waits until a member has applied what the leader has applied by now.
fn same_as_leader(cluster: &Cluster, leader: usize, place: usize) {
    let goal = until("the leader tells what it has applied", || applied(cluster, leader));
    let end = Instant::now() + BACK_MAX;
    while applied(cluster, place).is_none_or(|index| index < goal) {
        assert!(Instant::now() < end, "after {BACK_MAX:?} the member has not what the leader had");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn newest_snapshot(data: &Path) -> u64 {
    let sizes = files(data, ".snap");
    sizes.into_iter().max().map(|(_, bytes)| bytes).unwrap_or_default()
}

fn log_size(data: &Path) -> u64 {
    files(data, ".seg").into_iter().map(|(_, bytes)| bytes).sum()
}

/// Name and size of all files with this ending, in the folder and below. The names of snapshots sort by index.
fn files(folder: &Path, ending: &str) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    for file in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = file.file_name().to_string_lossy().into_owned();
        match file.metadata() {
            Ok(metadata) if metadata.is_dir() => found.extend(files(&file.path(), ending)),
            Ok(metadata) if name.ends_with(ending) => found.push((name, metadata.len())),
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_keep_their_share() {
        let seen = |meanwhile: f64| UnderLoad {
            times: vec![(100_000, Duration::from_secs(5))],
            before: 10_000.0,
            meanwhile,
            waited: 0.0,
            tails: None,
            failed: 0,
            slowed: 1,
            faults: Vec::new(),
        };
        assert_eq!(judge_share(seen(8000.0)).faults, Vec::<String>::new());
        assert_eq!(judge_share(seen(7940.0)).faults, ["clients kept 79 of 100 puts, 80 are theirs"]);
    }
}
