//! How long until a large member is back: one that was killed, and one that has never been there.
//!
//! Method: three members are filled with keys in transactions of 100, until a snapshot is on every disk; then a tail of
//! puts goes on top. A follower is killed with SIGKILL and started again, a few times: timed are the line that it serves
//! and its first answer to a read that asks the leader. Then a learner is added and started with nothing: timed is until it
//! has applied as much as the leader, first with nobody writing, then (another learner) under eight clients that put.
//! Memory is each process's peak. At last a follower of another cluster is killed and comes back in the midst of puts at full
//! speed, and the judge of progress looks at it. [fault-model F51]
//! Knows nothing of: snapshots, logs; only of files, processes and answers.

use crate::cluster::{Cluster, Options};
use crate::full_load::FullLoad;
use crate::grpc::Kv;
use crate::kills::Load;
use crate::process::memory_of;
use crate::until;
use kattu_proto::etcdserverpb::kv_client::KvClient;
use kattu_proto::etcdserverpb::{PutRequest, RequestOp, TxnRequest, request_op::Request};
use kattu_verify::service::{Bounds, LogIndex, NodeId, Progress, Standing};
use std::path::Path;
use std::time::{Duration, Instant};

const TOKEN: &str = "comeback";
const PUTS_PER_TXN: u64 = 100;
const FILLERS: u64 = 16;
const RESTARTS: usize = 5;
/// Puts on top of the last snapshot, in hundreds of the fill.
const TAIL_PERCENT: u64 = 5;
/// A member that is not back after so long never will be.
const BACK_MAX: Duration = Duration::from_secs(600);

/// A follower is away from the full load for so long.
const AWAY: Duration = Duration::from_secs(10);
/// … and is to be back within this.
const BACK_UNDER_LOAD_MAX: Duration = Duration::from_secs(60);
/// It has more after each of these, or more of a snapshot. [fault-model P14]
const STANDSTILL: Duration = Duration::from_secs(5);
/// Puts per second are counted over so long before it is killed.
const COUNTED: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// A follower that comes back under full load.
#[derive(Clone, Debug)]
pub struct UnderLoad {
    /// Entries that it lacked when it was started.
    pub lacked: u64,
    /// From its start until it lacked less than is put in a second.
    pub took: Duration,
    /// Puts per second before it was killed.
    pub before: f64,
    /// … and while it came back.
    pub meanwhile: f64,
    /// What does not hold.
    pub faults: Vec<String>,
}

/// What was seen.
#[derive(Clone, Debug)]
pub struct Report {
    /// Bytes of the newest snapshot of the member that was restarted.
    pub snapshot_bytes: u64,
    /// Bytes of its log.
    pub log_bytes: u64,
    /// From the start of the process to the line that it serves, each time.
    pub serving: Vec<Duration>,
    /// From the start of the process to the first read that was confirmed by the leader.
    pub first_read: Vec<Duration>,
    /// From the start of a learner with nothing to having applied what the leader had: nobody writes.
    pub learner_calm: Duration,
    /// The same under load.
    pub learner_load: Duration,
    /// Puts acknowledged to the load meanwhile, a second.
    pub load_rate: f64,
    /// Peak memory of the leader, of the restarted member and of the first learner, in bytes.
    pub peaks: [u64; 3],
    /// Keys on the learner at the end of its catch-up, and what it should have had.
    pub keys: (i64, i64),
}

impl Report {
    /// The learner has every key.
    pub fn is_whole(&self) -> bool {
        self.keys.0 == self.keys.1
    }
}

/// Fills with `keys` keys of 40 bytes with values of 256, and brings members back.
pub fn run(keys: u64, mut say: impl FnMut(&str)) -> Report {
    let mut cluster = Cluster::with(TOKEN, Options::default());
    let leader = cluster.leader();
    let address = cluster.members[leader].address();
    fill(&address, 0..keys);
    say(&format!("{keys} keys are there"));
    let back = (leader + 1) % 3;
    until("every member has made a snapshot", || {
        cluster.members.iter().all(|member| 0 < newest_snapshot(&member.data)).then_some(())
    });
    fill(&address, 0..keys * TAIL_PERCENT / 100);
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

/// Brings a follower back in the midst of puts at full speed.
pub fn under_full_load() -> UnderLoad {
    let mut cluster = Cluster::with("comeback-load", Options::default());
    let leader = cluster.leader();
    let back = (leader + 1) % 3;
    let _load = FullLoad::start(&cluster.endpoints(), 1_000_000, 256);
    let of_leader =
        |cluster: &Cluster| until("the leader tells what it has applied", || applied(cluster, leader));
    until("the load is there", || (10_000 < of_leader(&cluster)).then_some(()));
    let (at, since) = (of_leader(&cluster), Instant::now());
    std::thread::sleep(COUNTED);
    let before = (of_leader(&cluster) - at) as f64 / since.elapsed().as_secs_f64();

    let had = until("the follower tells what it has applied", || applied(&cluster, back));
    cluster.members[back].kill();
    std::thread::sleep(AWAY);
    let (begun_at, begun) = (of_leader(&cluster), Instant::now());
    cluster.members[back].spawn();
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let mut progress = Progress::new(Bounds { leaderless: u64::MAX, standstill: nanos(STANDSTILL) });
    let mut faults = Vec::new();
    let (took, last) = loop {
        std::thread::sleep(LOOK_EVERY);
        let (goal, held) = (of_leader(&cluster), applied(&cluster, back).unwrap_or(0));
        let received = files(&cluster.members[back].data, ".part").iter().map(|(_, bytes)| bytes).sum();
        let standing = Standing { reachable: true, held: LogIndex(held), received, lacks: None };
        let seen = progress.look_at_member(
            nanos(begun.elapsed()),
            NodeId(back as u64 + 1),
            standing,
            LogIndex(goal),
        );
        if let Some(violation) = seen.err().filter(|_| faults.is_empty()) {
            faults.push(violation.to_string());
        }
        if goal.saturating_sub(held) < before as u64 {
            break (begun.elapsed(), goal);
        }
        if BACK_UNDER_LOAD_MAX < begun.elapsed() {
            faults.push(format!(
                "it lacks {} entries after {BACK_UNDER_LOAD_MAX:?}",
                goal.saturating_sub(held)
            ));
            break (begun.elapsed(), goal);
        }
    };
    let meanwhile = (last - begun_at) as f64 / took.as_secs_f64();
    UnderLoad { lacked: begun_at - had, took, before, meanwhile, faults }
}

/// What a member has applied, if it answers.
fn applied(cluster: &Cluster, place: usize) -> Option<u64> {
    let status = cluster.members[place].kv().within(Duration::from_secs(1)).status().ok()?;
    Some(status.raft_applied_index)
}

fn key(number: u64) -> Vec<u8> {
    format!("comeback/{number:031}").into_bytes()
}

fn fill(address: &str, keys: std::ops::Range<u64>) {
    let per_filler = (keys.end - keys.start).div_ceil(FILLERS);
    std::thread::scope(|scope| {
        for filler in 0..FILLERS {
            let own =
                keys.start + filler * per_filler..(keys.start + (filler + 1) * per_filler).min(keys.end);
            scope.spawn(move || fill_one(address, own));
        }
    });
}

fn fill_one(address: &str, mut keys: std::ops::Range<u64>) {
    let kv = Kv::of(address).within(Duration::from_secs(30));
    while !keys.is_empty() {
        let some = keys.start..(keys.start + PUTS_PER_TXN).min(keys.end);
        keys.start = some.end;
        let put = |number: u64| RequestOp {
            request: Some(Request::RequestPut(PutRequest {
                key: key(number),
                value: format!("{number:0256}").into_bytes(),
                ..PutRequest::default()
            })),
        };
        let txn = TxnRequest { success: some.map(put).collect(), ..TxnRequest::default() };
        until("a transaction is acknowledged", || {
            kv.block_on(KvClient::new(kv.channel()).txn(txn.clone())).ok().map(drop)
        });
    }
}

/// Adds a learner, starts it with nothing; its place, and how long until it had what the leader had.
fn join(cluster: &mut Cluster, leader: usize) -> (usize, Duration) {
    let place = cluster.plan_joining(TOKEN);
    let url = cluster.members[place].peer_url();
    until("the learner is added", || cluster.members[leader].kv().member_add(&url, true).ok());
    let began = Instant::now();
    cluster.members[place].spawn();
    same_as_leader(cluster, leader, place);
    (place, began.elapsed())
}

/// Waits until a member has applied what the leader has now.
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

/// Name and size of all files with this ending, below the directory. The names of snapshots sort by index.
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
