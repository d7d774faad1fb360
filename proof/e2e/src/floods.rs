//! Floods: clients and strangers that take all they can, and their effect on one good client.
//!
//! Method: three members share one processor, and nothing else runs on it. All clients run on the others, where the
//! good client goes before the floods (their threads are nicer): so the times show what the members do, not how long
//! a client waits for a processor. Where there is only one processor, all share it, and the report says so.
//! One good client puts keys of its own at a steady rate, to each member in turn, without waiting for earlier puts; a
//! put's time counts from the moment at which it was due. Beside it one flood after the other runs against all members.
//! During each flood the members' memory is sampled, and their log lines and processor time are counted. The flood must
//! also have stood (`floors.rs`): a server that shuts out all clients proves nothing.
//! At the end all members are killed, and every acknowledged key must be there. A large writer's key must hold the last
//! value that was acknowledged to it, or one that it sent after that, whole.
//! Before each flood all memory of the machine has been used once, so that no time includes the host's lending of it.
//! Knows nothing of: the members' defenses.

mod good_client;
mod large_writers;
mod registrations;
mod session_in_use;
mod waves;

use crate::floors::{Counting, SESSIONS_MAX};
use crate::host_memory::UsedMemory;
use crate::kills::all_keys;
use crate::processors::{on_one_core, processor_time};
use good_client::{GoodClient, PUT_LIMIT};
use kattu_rig::page::Page;
use kattu_rig::programs::{memory_of, met_by};
use kattu_rig::{Cluster, Member, Options};
use kattu_verify::service::{BoundedMemory, Held, NodeId};
use large_writers::{LargeKeys, large_key};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use waves::{Done, become_flooder, under_way};

/// A connection that is not established within this is retried.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// The good client's times are judged if there are at least so many.
const PUTS_MIN: usize = 100;
const P99_MAX: Duration = Duration::from_millis(50);
const P99_MAX_BESIDE_LARGE: Duration = Duration::from_millis(250);
/// Default client memory of a member, and how much its tables, log and allocator may grow meanwhile.
const CLIENT_BYTES: u64 = 1 << 30;
const GROWTH_BYTES: u64 = 256 << 20;
/// The same where floods hold next to nothing: connections, tables and log of the good client.
const GROWTH_BYTES_LITTLE: u64 = 128 << 20;
/// The same beside large writers: some seconds of versions not yet compacted, twice while a snapshot is made.
const GROWTH_BYTES_LARGE: u64 = 2 << 30;
/// A session that was never used, in a member's table.
const SESSION_BYTES: u64 = 200;
/// Log lines that a member may write in a minute of a flood.
const LINES_PER_MINUTE_MAX: u64 = 120;
/// Members that were killed serve again within this: they replay what the last flood has written, on one processor.
const RESTART_MAX: Duration = Duration::from_secs(180);
/// A flood begins when members hold nothing of the one before, but no later than this after it.
const LET_GO_WITHIN: Duration = Duration::from_secs(10);
/// Between two samples of the members' memory.
const SAMPLE_EVERY: Duration = Duration::from_millis(50);

/// Size of the values of large answers, and how many of them one answer has.
const BIG_BYTES: usize = 1 << 20;
const BIG_COUNT: usize = 60;

/// One way to exhaust a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flood {
    /// Connections that send nothing, and others that stop in the middle of the HTTP/2 preface.
    Idle,
    /// Requests whose last byte is never sent.
    Trickle,
    /// Large answers that are never read.
    NonReaders,
    /// All streams of a connection at once; half of them never send a request, and no answer is read.
    Streams,
    /// Writers of values near the limit, at full speed.
    LargeWriters,
    /// Garbage, half handshakes and half frames for the peer ports.
    Peers,
    /// Sessions opened at full speed, and never used.
    Registrations,
}

impl Flood {
    /// All of them, in the order in which they are run.
    pub const ALL: [Flood; 7] = [
        Flood::Idle,
        Flood::Trickle,
        Flood::NonReaders,
        Flood::Streams,
        Flood::Peers,
        Flood::LargeWriters,
        Flood::Registrations,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Flood::Idle => "idle",
            Flood::Trickle => "trickle",
            Flood::NonReaders => "non-readers",
            Flood::Streams => "streams",
            Flood::LargeWriters => "large-writers",
            Flood::Peers => "peers",
            Flood::Registrations => "registrations",
        }
    }

    fn p99_max(self) -> Duration {
        if self == Flood::LargeWriters { P99_MAX_BESIDE_LARGE } else { P99_MAX }
    }

    /// By how much a member's memory may grow, given its client memory.
    fn growth_max(self, client_bytes: u64) -> u64 {
        match self {
            Flood::Idle | Flood::NonReaders | Flood::Peers => GROWTH_BYTES_LITTLE,
            Flood::Trickle | Flood::Streams => client_bytes + GROWTH_BYTES,
            Flood::LargeWriters => client_bytes + GROWTH_BYTES_LARGE,
            Flood::Registrations => SESSIONS_MAX * SESSION_BYTES + GROWTH_BYTES_LITTLE,
        }
    }
}

/// How much, and for how long.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Which floods.
    pub floods: Vec<Flood>,
    /// How long each lasts once it stands.
    pub lasts: Duration,
    /// Share of the full strength, in percent.
    pub strength: u32,
    /// The members' client memory, if not the default.
    pub client_bytes: Option<u64>,
    /// All members on one processor.
    pub one_core: bool,
    /// Whether times are judged; false on a machine that others use.
    pub judges_times: bool,
}

/// The results of one flood.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Which one.
    pub flood: Flood,
    /// A description of what the flood did.
    pub what: String,
    /// Puts of the good client that were due.
    pub puts: usize,
    /// Those that failed.
    pub failed: usize,
    /// The 99th percentile of their times.
    pub p99: Duration,
    /// The longest.
    pub longest: Duration,
    /// The largest growth of one member's memory.
    pub grown_bytes: u64,
    /// The limit of that growth.
    pub grown_bytes_max: u64,
    /// The most log lines that one member wrote in a minute.
    pub lines_per_minute: u64,
    /// Syncs of the members' logs that took longer than a quarter of a second: the disk's part in long puts.
    pub slow_syncs: u64,
    /// Processors that the members used together; 1.0 is one whole processor.
    pub members_cpu: f64,
    /// … and that the clients used.
    pub clients_cpu: f64,
    /// Bounds that did not hold; empty if all did.
    pub faults: Vec<String>,
}

/// The results of all floods.
#[derive(Debug)]
pub struct Report {
    /// One per flood.
    pub seen: Vec<Seen>,
    /// The cost of one page of memory used before the first flood; `None` where times are not judged.
    pub page: Option<Duration>,
    /// The time from the start of all members, after they were killed, until the last of them served.
    pub restart: Duration,
    /// Members that did not serve again in time; empty if all did. If none did, losses were not looked for.
    pub faults: Vec<String>,
    /// Keys acknowledged to the good client and to large writers.
    pub acknowledged: usize,
    /// Keys that are missing after all members were killed, or hold an older value than the acknowledged one.
    pub lost: Vec<String>,
}

impl Report {
    /// Every bound held, and nothing was lost.
    pub fn is_good(&self) -> bool {
        self.lost.is_empty() && self.faults.is_empty() && self.seen.iter().all(|seen| seen.faults.is_empty())
    }
}

/// Runs all floods of a plan, one after the other.
pub fn run(plan: &Plan, mut each: impl FnMut(&Seen)) -> Report {
    if plan.one_core {
        on_one_core();
    }
    let client_flag = plan.client_bytes.map(|bytes| format!("--client-memory-bytes={bytes}"));
    let mut cluster =
        Cluster::with("floods", Options { members: 3, flags: client_flag.into_iter().collect() });
    let leader = cluster.leader();
    for number in 0..BIG_COUNT {
        cluster.members[leader].kv().put_surely(format!("big/{number:02}"), vec![7; BIG_BYTES]);
    }
    // Each flood is judged against this: memory that one leaves behind counts for the next.
    let before: Vec<u64> = cluster.members.iter().map(|member| memory_of(member.pid(), "VmRSS")).collect();
    let good = GoodClient::start(&cluster, plan.one_core);
    let mut seen = Vec::new();
    let large = LargeKeys::default();
    let memory = if plan.judges_times { UsedMemory::new() } else { None };
    let mut page = None;
    for &flood in &plan.floods {
        let now = memory.as_ref().map(UsedMemory::fill);
        page = page.or(now);
        let of_this_one = judge(plan, flood, &mut cluster, &good, &large, &before);
        each(&of_this_one);
        seen.push(of_this_one);
    }
    let acknowledged = good.stop();
    cluster.kill_all();
    let begun = Instant::now();
    cluster.spawn_all().expect("the binary can be run");
    let large = large.lock().expect("nobody panics with it");
    let acknowledged_count = acknowledged.len() + large.len();
    let restarted = restarted(&mut cluster, begun + RESTART_MAX);
    let restart = begun.elapsed();
    let mut lost = Vec::new();
    if let Some(member) = restarted.serves.map(|place| &cluster.members[place]) {
        lost.extend(acknowledged.difference(&all_keys(&member.kv())).cloned());
        let kv = member.kv().within(PUT_LIMIT);
        for (&writer, written) in large.iter() {
            let held = kattu_rig::until("a large value is read", || kv.get(large_key(writer)).ok());
            lost.extend(written.lost_from(writer, held.as_deref()));
        }
    }
    Report { seen, page, restart, faults: restarted.faults, acknowledged: acknowledged_count, lost }
}

/// Members that were killed and have started again.
struct Restarted {
    /// The place of one that serves.
    serves: Option<usize>,
    /// Why others do not.
    faults: Vec<String>,
}

/// Waits for all members, not longer than until then.
fn restarted(cluster: &mut Cluster, end: Instant) -> Restarted {
    let mut restarted = Restarted { serves: None, faults: Vec::new() };
    for (place, member) in cluster.members.iter_mut().enumerate() {
        match member.is_ready_by(end) {
            Ok(()) => _ = restarted.serves.get_or_insert(place),
            Err(why) => restarted.faults.push(format!("killed, and started again: {why}")),
        }
    }
    restarted
}

fn judge(
    plan: &Plan,
    flood: Flood,
    cluster: &mut Cluster,
    good: &GoodClient,
    large: &LargeKeys,
    before: &[u64],
) -> Seen {
    // A test that runs beside others cannot expect quick syncs: the disk is shared.
    good.wait_for_calm(if plan.judges_times { P99_MAX } else { PUT_LIMIT });
    wait_for_let_go(cluster, before);
    let lines_before: Vec<u64> = cluster.members.iter().map(lines).collect();
    let slow_syncs_before = slow_syncs(cluster);
    let pids: Vec<u32> = cluster.members.iter().map(|member| member.pid()).collect();
    let processor_before = (processor_time(&pids), processor_time(&[std::process::id()]));
    let watch = MemoryWatch::start(pids, plan.one_core);
    let begun = Instant::now();
    let one_core = plan.one_core;
    let counting = Counting::start(&cluster.members, move || become_flooder(one_core));
    let from = good.due_count();
    let Done { what, came, mut faults } = under_way(plan, flood, cluster, good, large);
    let times = good.times_since(from);
    let took = begun.elapsed();
    let peaks = watch.stop();
    faults.extend(came.broken(&counting.stop(), plan.lasts));
    let pids: Vec<u32> = cluster.members.iter().map(|member| member.pid()).collect();
    let used =
        |before: Duration, now: Duration| now.saturating_sub(before).as_secs_f64() / took.as_secs_f64();
    let members_cpu = used(processor_before.0, processor_time(&pids));
    let clients_cpu = used(processor_before.1, processor_time(&[std::process::id()]));

    let grown = before.iter().zip(&peaks).map(|(before, peak)| peak.saturating_sub(*before)).max();
    let grown_bytes = grown.unwrap_or_default();
    let grown_bytes_max = flood.growth_max(plan.client_bytes.unwrap_or(CLIENT_BYTES));
    let minutes = took.as_secs_f64().max(60.0) / 60.0; // a run of less than a minute may write a minute's lines
    let written = cluster.members.iter().zip(&lines_before).map(|(member, before)| {
        // A restarted member has begun a new log.
        lines(member).saturating_sub(*before)
    });
    let lines_per_minute = (written.max().unwrap_or_default() as f64 / minutes) as u64;
    let mut sorted: Vec<Duration> = times.iter().map(|time| time.unwrap_or(PUT_LIMIT)).collect();
    sorted.sort();
    let failed = times.iter().filter(|time| time.is_none()).count();
    let p99 = sorted.get((sorted.len() * 99).div_ceil(100).saturating_sub(1)).copied().unwrap_or(PUT_LIMIT);

    if sorted.len() < PUTS_MIN {
        faults.push(format!("only {} puts of the good client were due", sorted.len()));
    }
    if 0 < failed {
        faults.push(format!("{failed} puts of the good client failed"));
    }
    if plan.judges_times && flood.p99_max() < p99 {
        faults.push(format!("p99 of the good client's puts is {p99:.0?}, above {:.0?}", flood.p99_max()));
    }
    let mut memory = BoundedMemory::new().with(Held::Clients, grown_bytes_max);
    for (place, (before, peak)) in before.iter().zip(&peaks).enumerate() {
        let held = memory.holds(NodeId(place as u64 + 1), Held::Clients, peak.saturating_sub(*before));
        faults.extend(held.err().map(|why| why.to_string()));
    }
    if LINES_PER_MINUTE_MAX < lines_per_minute {
        faults.push(format!("a member wrote {lines_per_minute} lines a minute"));
    }
    for member in &mut cluster.members {
        if !member.is_running() {
            faults.push(format!("{} has ended", member.name));
        }
    }
    Seen {
        flood,
        what,
        puts: sorted.len(),
        failed,
        p99,
        longest: sorted.last().copied().unwrap_or_default(),
        grown_bytes,
        grown_bytes_max,
        lines_per_minute,
        slow_syncs: slow_syncs(cluster).saturating_sub(slow_syncs_before),
        members_cpu,
        clients_cpu,
        faults,
    }
}

/// Syncs of all members so far that took longer than a quarter of a second; a restarted member counts from 0.
/// Waits a bounded time until members have let go of the flood before: on a busy machine they still read what its connections
/// had sent when they were closed. Memory that stays counts for the next flood.
fn wait_for_let_go(cluster: &Cluster, before: &[u64]) {
    let has_let_go = |(member, before): (&Member, &u64)| {
        memory_of(member.pid(), "VmRSS").saturating_sub(*before) < GROWTH_BYTES_LITTLE / 2
    };
    let end = Instant::now() + LET_GO_WITHIN;
    met_by(end, || cluster.members.iter().zip(before).all(has_let_go).then_some(()));
}

fn slow_syncs(cluster: &Cluster) -> u64 {
    let of = |member: &Member| {
        let page = Page::of(&member.address())?;
        let all = page.number("etcd_disk_wal_fsync_duration_seconds_count")?;
        let quick = page
            .lines("etcd_disk_wal_fsync_duration_seconds_bucket")
            .find_map(|line| line.strip_prefix("{le=\"0.256\"} ")?.parse::<u64>().ok())?;
        Some(all.saturating_sub(quick))
    };
    cluster.members.iter().filter_map(of).sum()
}

fn lines(member: &Member) -> u64 {
    member.log_text().lines().count() as u64
}

/// Samples the memory of some processes; the result is each one's peak.
struct MemoryWatch {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Vec<u64>>,
}

impl MemoryWatch {
    fn start(processes: Vec<u32>, one_core: bool) -> MemoryWatch {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            become_flooder(one_core);
            let mut peaks = vec![0; processes.len()];
            while !stopped.load(Ordering::Relaxed) {
                for (peak, process) in peaks.iter_mut().zip(&processes) {
                    *peak = memory_of(*process, "VmRSS").max(*peak);
                }
                std::thread::sleep(SAMPLE_EVERY);
            }
            peaks
        });
        MemoryWatch { stop, thread }
    }

    fn stop(self) -> Vec<u64> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("it only reads")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_does_not_serve_again_is_a_fault_of_the_report() {
        let report = |faults| Report {
            seen: Vec::new(),
            page: None,
            restart: RESTART_MAX,
            faults,
            acknowledged: 1,
            lost: Vec::new(),
        };
        assert!(report(Vec::new()).is_good());
        assert!(!report(vec!["n1 has not said that it serves".to_string()]).is_good());
    }
}
