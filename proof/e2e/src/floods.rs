//! Floods: clients and strangers that take all they can, and their effect on one good client.
//!
//! Method: three members share one processor, and nothing else runs on it. All clients run on the others, where the
//! good client goes before the floods (they are nicer by `NICER`): so the times show what the members do, not how long
//! a client waits for a processor. Where there is only one processor, all share it, and the report says so.
//! One good client puts keys of its own at a steady rate, to each member in turn, without waiting for earlier puts; a
//! put's time counts from the moment at which it was due. Beside it one flood after the other runs against all members.
//! During each flood the members' memory is sampled, and their log lines and processor time are counted. The flood must
//! also have stood (`floors.rs`): a server that shuts out all clients proves nothing.
//! At the end all members are killed, and every acknowledged key must be there. A large writer's key must hold the last
//! value that was acknowledged to it, or one that it sent after that, whole.
//! Before each flood all memory of the machine has been used once, so that no time includes the host's lending of it.
//! Knows nothing of: the members' defenses.

use crate::floors::{Came, Counting};
use crate::host_memory::UsedMemory;
use crate::kills::all_keys;
use crate::processors::{on_one_core, on_other_cores, processor_time};
use crate::raw;
use kattu_proto::etcdserverpb::kv_client::KvClient;
use kattu_proto::etcdserverpb::{CompactionRequest, PutRequest, RangeRequest};
use kattu_rig::Kv;
use kattu_rig::grpc::channel;
use kattu_rig::page::Page;
use kattu_rig::programs::memory_of;
use kattu_rig::{Cluster, Options};
use kattu_verify::service::{BoundedMemory, Held, NodeId};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::time::MissedTickBehavior;
use tonic::transport::Channel;

/// One put of the good client is due in each of these.
const EVERY: Duration = Duration::from_millis(10);
/// A put of the good client that takes longer has failed.
const PUT_LIMIT: Duration = Duration::from_secs(10);
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
/// Log lines that a member may write in a minute of a flood.
const LINES_PER_MINUTE_MAX: u64 = 120;
/// A large writer's put that takes longer has failed.
const LARGE_PUT_LIMIT: Duration = Duration::from_secs(30);
/// Between two samples of the members' memory.
const SAMPLE_EVERY: Duration = Duration::from_millis(50);
/// A member that is restarted in the middle of a flood on the peer ports serves within this.
const REJOIN_MAX: Duration = Duration::from_secs(20);

const PUT: &str = "/etcdserverpb.KV/Put";
const RANGE: &str = "/etcdserverpb.KV/Range";
/// Size of the values of large answers, and how many of them one answer has.
const BIG_BYTES: usize = 1 << 20;
const BIG_COUNT: usize = 60;
/// 1.4 MiB.
const LARGE_VALUE: usize = 1_468_006;

/// Added to the niceness of the floods' threads: about a tenth of the good client's share where both want to run.
const NICER: i32 = 10;

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
}

impl Flood {
    /// All of them, in the order in which they are run.
    pub const ALL: [Flood; 6] =
        [Flood::Idle, Flood::Trickle, Flood::NonReaders, Flood::Streams, Flood::Peers, Flood::LargeWriters];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Flood::Idle => "idle",
            Flood::Trickle => "trickle",
            Flood::NonReaders => "non-readers",
            Flood::Streams => "streams",
            Flood::LargeWriters => "large-writers",
            Flood::Peers => "peers",
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
    /// Keys acknowledged to the good client and to large writers.
    pub acknowledged: usize,
    /// Keys that are missing after all members were killed, or hold an older value than the acknowledged one.
    pub lost: Vec<String>,
}

impl Report {
    /// Every bound held, and nothing was lost.
    pub fn is_good(&self) -> bool {
        self.lost.is_empty() && self.seen.iter().all(|seen| seen.faults.is_empty())
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
    cluster.start_all();
    let there = all_keys(&cluster.members[0].kv());
    let mut lost: Vec<String> = acknowledged.difference(&there).cloned().collect();
    let large = large.lock().expect("nobody panics with it");
    let kv = cluster.members[0].kv().within(PUT_LIMIT);
    for (&writer, written) in large.iter() {
        let held = kattu_rig::until("a large value is read", || kv.get(large_key(writer)).ok());
        lost.extend(written.lost_from(writer, held.as_deref()));
    }
    Report { seen, page, acknowledged: acknowledged.len() + large.len(), lost }
}

/// By number of the large writer: the state of its key.
type LargeKeys = Mutex<BTreeMap<usize, Written>>;

/// The state of one key, whose values are numbered.
#[derive(Clone, Copy, Debug, Default)]
struct Written {
    /// The newest value that was sent.
    sent: u64,
    /// The newest that was acknowledged; 0 before the first.
    acknowledged: u64,
}

impl Written {
    /// Why the held value is a loss; `None` if it is not.
    fn lost_from(self, writer: usize, held: Option<&[u8]>) -> Option<String> {
        let Written { sent, acknowledged } = self;
        let number = held.and_then(<[u8]>::first_chunk).map_or(0, |number| u64::from_le_bytes(*number));
        let is_whole = held.is_none_or(|held| held == large_value(number));
        let is_kept = acknowledged <= number && number <= sent;
        (!is_whole || !is_kept).then(|| {
            let whole = if is_whole { "" } else { "not whole, " };
            let key = large_key(writer);
            format!("{key} holds value {number}, {whole}of {sent} sent and {acknowledged} acknowledged")
        })
    }
}

fn large_key(writer: usize) -> String {
    format!("large/{writer}")
}

/// The value with this number: 8 bytes of the number, then a filler that depends on it.
fn large_value(number: u64) -> Vec<u8> {
    let mut value = vec![number as u8; LARGE_VALUE];
    value[..8].copy_from_slice(&number.to_le_bytes());
    value
}

/// Runs this in a thread of a flood: on other processors than the members, at lower priority than the good client.
fn as_flooder<T: Send>(plan: &Plan, flood: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            become_flooder(plan.one_core);
            flood()
        });
        thread.join().expect("a flood does not panic")
    })
}

fn become_flooder(one_core: bool) {
    if one_core {
        on_other_cores();
    }
    // Affects this thread, not the process. [setpriority(2), C library/kernel differences]
    rustix::process::nice(NICER).expect("anybody may be nicer");
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

/// The course of a flood, as text and for its judge, and its errors.
struct Done {
    what: String,
    came: Came,
    faults: Vec<String>,
}

/// Runs one flood.
fn under_way(plan: &Plan, flood: Flood, cluster: &mut Cluster, good: &GoodClient, large: &LargeKeys) -> Done {
    let addresses = cluster.addresses();
    let scaled = |count: usize| (count * plan.strength as usize / 100).max(1);
    if flood == Flood::Peers {
        return peers(plan, cluster, good, scaled(2_000));
    }
    let flood = || match flood {
        Flood::Idle => idle(&addresses, scaled(2_500), plan.lasts),
        Flood::Trickle => trickle(&addresses, scaled(300), plan.lasts),
        Flood::NonReaders => non_readers(&addresses, scaled(150), plan.lasts),
        Flood::Streams => streams(&addresses, scaled(10_000) as u32, plan.lasts),
        Flood::LargeWriters => large_writers(&addresses, scaled(64), plan.lasts, large),
        Flood::Peers => unreachable!("it starts a member, and members are not nice"),
    };
    as_flooder(plan, flood)
}

/// Keeps these connections for so long and sends nothing on them; returns how many are open at the end.
fn hold(mut sockets: Vec<TcpStream>, lasts: Duration) -> usize {
    std::thread::sleep(lasts);
    sockets.iter_mut().filter_map(|socket| raw::drain(socket).then_some(())).count()
}

/// `count` connections send the preface and nothing more. As many others stop in the middle of it; each that a member
/// closes is opened again.
fn idle(addresses: &[String], count: usize, lasts: Duration) -> Done {
    let address = |number: usize| &addresses[number % addresses.len()];
    // A connection that is closed at once is not counted as standing.
    let mut sockets: Vec<TcpStream> =
        (0..count).filter_map(|number| raw::connect(address(number), 65_535).ok()).collect();
    let mut places: Vec<Option<TcpStream>> = (0..count).map(|_| None).collect();
    let end = Instant::now() + lasts;
    let is_over = || end <= Instant::now();
    let mut opened = 0;
    while !is_over() {
        opened += raw::refill(&mut places, is_over, |number| raw::half_preface(address(number)));
        std::thread::sleep(Duration::from_millis(100));
    }
    let stand = sockets.iter_mut().filter_map(|socket| raw::drain(socket).then_some(())).count();
    let what = format!(
        "{count} connections to three members that say hello, {stand} of them stand at the end; {count} in half a preface at \
         all times, {opened} in all"
    );
    let (said, stand) = (count as u64, stand as u64);
    Done { what, came: Came::Idle { said, stand, halves: said, opened }, faults: Vec::new() }
}

/// Sends all of a request but its last byte, on many streams of many connections.
fn trickle(addresses: &[String], connections: usize, lasts: Duration) -> Done {
    const STREAMS: u32 = 10;
    let request =
        PutRequest { key: b"trickle".to_vec(), value: vec![7; LARGE_VALUE], ..PutRequest::default() };
    let body = raw::message(&request);
    let most = body.len() - 1;
    let mut faults = Vec::new();
    let mut clients = Vec::new();
    for number in 0..connections {
        // All send to the same member: it must bear all of them.
        let opened = raw::Sender::connect(&addresses[0], 65_535).and_then(|mut client| {
            for stream in 0..STREAMS {
                client.send(&raw::head(stream * 2 + 1, PUT))?;
            }
            Ok((client, [0; STREAMS as usize]))
        });
        match opened {
            Ok(client) => clients.push(client),
            Err(error) => faults.push(format!("connection {number}: {error}")),
        }
    }
    // In turns, as fast as the windows open, so that all are incomplete at the same time.
    let (mut sent, mut closed) = (0_u64, 0);
    let end = Instant::now() + lasts;
    while Instant::now() < end {
        let before = sent;
        clients.retain_mut(|(client, places)| {
            for (number, place) in places.iter_mut().enumerate() {
                match client.send_some(number as u32 * 2 + 1, &body[*place..most]) {
                    Ok(count) => {
                        *place += count;
                        sent += count as u64;
                    }
                    Err(_) => {
                        closed += 1; // a member may close such a connection
                        return false;
                    }
                }
            }
            true
        });
        if sent == before {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let what = format!(
        "{connections} connections send all but the last byte of {STREAMS} puts of 1.4 MiB each to one member, {} MB in all; \
         {closed} of them were closed",
        sent / 1_000_000
    );
    let could = connections as u64 * u64::from(STREAMS) * most as u64;
    Done { what, came: Came::Trickle { sent, could }, faults }
}

fn big_range() -> RangeRequest {
    RangeRequest { key: b"big/".to_vec(), range_end: b"big0".to_vec(), ..RangeRequest::default() }
}

fn non_readers(addresses: &[String], count: usize, lasts: Duration) -> Done {
    let mut sockets = Vec::new();
    let mut refused = 0;
    for number in 0..count {
        let window = if number % 2 == 0 { raw::WINDOW_MAX } else { 65_535 };
        // All send to the same member: it must bear all of them.
        let asked = raw::connect(&addresses[0], window).and_then(|mut socket| {
            socket.write_all(&raw::call(1, RANGE, &big_range()))?;
            Ok(socket)
        });
        match asked {
            Ok(socket) => sockets.push(socket),
            Err(_) => refused += 1,
        }
    }
    let stand = hold(sockets, lasts);
    let what = format!(
        "{count} clients ask one member for 60 MiB each and read nothing; {refused} were closed at once, {stand} stand at \
         the end"
    );
    let asked = (count * BIG_COUNT * BIG_BYTES) as u64;
    Done { what, came: Came::NonReaders { asked }, faults: Vec::new() }
}

/// Half of the streams only begin; the other half request 15 KiB each, which are never read.
fn streams(addresses: &[String], count: u32, lasts: Duration) -> Done {
    const CONNECTIONS: usize = 8;
    let kv = Kv::of(&addresses[0]);
    kv.put_surely("fifteen", vec![7; 15 << 10]);
    let request = RangeRequest { key: b"fifteen".to_vec(), serializable: true, ..RangeRequest::default() };
    let body = raw::message(&request);
    let mut sockets = Vec::new();
    let (mut refused, mut opened_streams) = (0, 0);
    for _ in 0..CONNECTIONS {
        let opened = raw::connect(&addresses[0], 65_535).and_then(|mut socket| {
            for number in 0..count {
                let stream = number * 2 + 1;
                let mut bytes = raw::head(stream, RANGE);
                if number % 2 == 1 {
                    bytes.extend(raw::data(stream, &body, true));
                }
                socket.write_all(&bytes)?;
                opened_streams += 1;
            }
            Ok(socket)
        });
        match opened {
            Ok(socket) => sockets.push(socket),
            Err(_) => refused += 1,
        }
    }
    let stand = hold(sockets, lasts);
    let what = format!(
        "{CONNECTIONS} connections to one member with {count} streams each, half of them unread answers; {refused} were \
         closed while they were opened, {stand} stand at the end"
    );
    let said = CONNECTIONS as u64 * u64::from(count);
    Done { what, came: Came::Streams { said, opened: opened_streams, closed: refused }, faults: Vec::new() }
}

fn large_writers(addresses: &[String], count: usize, lasts: Duration, large: &LargeKeys) -> Done {
    let stop = Arc::new(AtomicBool::new(false));
    let done = Arc::new(AtomicU64::new(0));
    let refusals = Arc::new(Mutex::new(Vec::<String>::new()));
    let compactor = {
        // Like an operator with little memory: keeps the last hundred revisions.
        let (address, stop) = (addresses[0].clone(), stop.clone());
        std::thread::spawn(move || {
            let kv = Kv::of(&address);
            while !stop.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(500));
                let Ok(now) = kv.range(RangeRequest { key: b"none".to_vec(), ..RangeRequest::default() })
                else {
                    continue;
                };
                let revision = now.header.map_or(0, |header| header.revision) - 100;
                let mut client = kv.client();
                // Refused when there is nothing to compact.
                let _ = kv
                    .block_on(async { client.compact(CompactionRequest { revision, physical: true }).await });
            }
        })
    };
    let writers = {
        let (addresses, stop, done, refusals) =
            (addresses.to_vec(), stop.clone(), done.clone(), refusals.clone());
        let before = large.lock().expect("nobody panics with it").clone();
        std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let mut tasks = tokio::task::JoinSet::new();
                for number in 0..count {
                    let mut client =
                        KvClient::new(channel(&addresses[number % addresses.len()], CONNECT_LIMIT))
                            .max_encoding_message_size(64 << 20);
                    let (stop, done, refusals) = (stop.clone(), done.clone(), refusals.clone());
                    let mut own = before.get(&number).copied().unwrap_or_default();
                    tasks.spawn(async move {
                        while !stop.load(Ordering::Relaxed) {
                            own.sent += 1;
                            let request = PutRequest {
                                key: large_key(number).into_bytes(),
                                value: large_value(own.sent),
                                ..PutRequest::default()
                            };
                            let put = tokio::time::timeout(LARGE_PUT_LIMIT, client.put(request));
                            let told = match put.await {
                                Ok(Ok(_)) => None,
                                Ok(Err(status)) => Some(status.message().to_string()),
                                Err(_) => Some(format!("no answer within {LARGE_PUT_LIMIT:?}")),
                            };
                            match told {
                                None => {
                                    own.acknowledged = own.sent;
                                    done.fetch_add(1, Ordering::Relaxed);
                                }
                                Some(told) => {
                                    refusals.lock().expect("nobody panics with it").push(told);
                                    tokio::time::sleep(Duration::from_millis(100)).await;
                                }
                            }
                        }
                        (number, own)
                    });
                }
                tasks.join_all().await
            })
        })
    };
    std::thread::sleep(lasts);
    stop.store(true, Ordering::Relaxed);
    let written = writers.join().expect("the writers do not panic");
    let before = {
        let mut large = large.lock().expect("nobody panics with it");
        let before = large.clone();
        large.extend(written.iter().copied());
        before
    };
    let is_unheard = |(number, own): &&(usize, Written)| {
        own.acknowledged == before.get(number).map_or(0, |before| before.acknowledged)
    };
    let unheard = written.iter().filter(is_unheard).count() as u64;
    compactor.join().expect("the compactor does not panic");
    let refusals = refusals.lock().expect("nobody panics with it");
    let done = done.load(Ordering::Relaxed);
    let mut faults = Vec::new();
    if let Some(first) = refusals.first() {
        faults.push(format!("{} of {} large puts were refused: {first}", refusals.len(), done));
    }
    let what = format!("{count} writers, {done} puts of 1.4 MiB, {} refused", refusals.len());
    Done { what, came: Came::LargeWriters { puts: done, writers: count as u64, unheard }, faults }
}

/// A valid frame head that announces so many bytes of fields, without them. [docs/formats/frame.md]
fn half_frame(kind: u8, fields: u32) -> Vec<u8> {
    let mut head = b"KTF\xA7".to_vec();
    head.extend([1, kind, 0, 0]);
    head.extend((24 + fields).to_le_bytes());
    head.extend(fields.to_le_bytes());
    head.extend([0; 4]);
    let sum = crc32c::crc32c(&head);
    head.extend(sum.to_le_bytes());
    head
}

/// Strangers: some send garbage as fast as they are accepted, others stop after a frame's head. Meanwhile one follower
/// is restarted, and the others must accept its connections.
fn peers(plan: &Plan, cluster: &mut Cluster, good: &GoodClient, standing: usize) -> Done {
    let Plan { lasts, one_core, .. } = *plan;
    let stop = Arc::new(AtomicBool::new(false));
    let ports: Vec<String> =
        cluster.members.iter().map(|member| format!("{}:2380", member.endpoint.host)).collect();
    let mut threads = Vec::new();
    let nonsense = Arc::new(AtomicU64::new(0));
    for port in ports.clone() {
        let (stop, nonsense) = (stop.clone(), nonsense.clone());
        threads.push(std::thread::spawn(move || {
            become_flooder(one_core);
            while !stop.load(Ordering::Relaxed) {
                if let Ok(mut socket) = TcpStream::connect(&port) {
                    let _ = socket.set_read_timeout(Some(Duration::from_secs(1)));
                    let _ = socket.write_all(&[0xA5; 200]);
                    let _ = socket.read(&mut [0; 256]);
                    nonsense.fetch_add(1, Ordering::Relaxed);
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        }));
    }
    let begun_frames = Arc::new(AtomicU64::new(0));
    {
        let (stop, begun_frames) = (stop.clone(), begun_frames.clone());
        threads.push(std::thread::spawn(move || {
            become_flooder(one_core);
            // Always `standing` of them: each that a member closes is opened again.
            let mut sockets: Vec<Option<TcpStream>> = (0..standing).map(|_| None).collect();
            let is_over = || stop.load(Ordering::Relaxed);
            while !is_over() {
                let opened = raw::refill(&mut sockets, is_over, |number| {
                    let mut socket = TcpStream::connect(&ports[number % ports.len()])?;
                    socket.write_all(&half_frame(if number % 2 == 0 { 1 } else { 9 }, 1_000))?;
                    Ok(socket)
                });
                begun_frames.fetch_add(opened, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(100));
            }
        }));
    }
    let mut faults = Vec::new();
    std::thread::sleep(lasts / 2);
    let follower = (cluster.leader() + 1) % cluster.members.len();
    good.avoid(follower);
    cluster.members[follower].kill();
    let begun = Instant::now();
    cluster.members[follower].spawn().expect("it can be run");
    while !cluster.members[follower].log_text().contains(kattu_rig::READY) {
        if REJOIN_MAX < begun.elapsed() {
            faults.push(format!("a member that came back did not serve within {REJOIN_MAX:?}"));
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let back = begun.elapsed();
    good.avoid(NOBODY);
    std::thread::sleep(lasts / 2);
    stop.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().expect("a stranger does not panic");
    }
    let what = format!(
        "{} connections with nonsense, {} with half a frame ({standing} of them at all times); a member that came back \
         served after {:.1} s",
        nonsense.load(Ordering::Relaxed),
        begun_frames.load(Ordering::Relaxed),
        back.as_secs_f64()
    );
    let (nonsense, halves) = (nonsense.load(Ordering::Relaxed), begun_frames.load(Ordering::Relaxed));
    Done { what, came: Came::Peers { nonsense, halves, standing: standing as u64 }, faults }
}

/// Syncs of all members so far that took longer than a quarter of a second; a restarted member counts from 0.
fn slow_syncs(cluster: &Cluster) -> u64 {
    let of = |member: &kattu_rig::Member| {
        let page = Page::of(&member.address())?;
        let all = page.number("etcd_disk_wal_fsync_duration_seconds_count")?;
        let quick = page
            .lines("etcd_disk_wal_fsync_duration_seconds_bucket")
            .find_map(|line| line.strip_prefix("{le=\"0.256\"} ")?.parse::<u64>().ok())?;
        Some(all.saturating_sub(quick))
    };
    cluster.members.iter().filter_map(of).sum()
}

fn lines(member: &kattu_rig::Member) -> u64 {
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

/// The outcome of each of the good client's puts, in the order in which they were due; `None` while it is open.
#[derive(Default)]
struct Puts {
    ended: Vec<Option<Result<Duration, ()>>>,
    acknowledged: BTreeSet<String>,
}

/// One client that puts at a low, steady rate.
struct GoodClient {
    puts: Arc<Mutex<Puts>>,
    stop: Arc<AtomicBool>,
    /// The member that gets no requests, because it is about to be restarted.
    avoided: Arc<AtomicUsize>,
    thread: std::thread::JoinHandle<()>,
}

/// No member is avoided.
const NOBODY: usize = usize::MAX;

impl GoodClient {
    fn start(cluster: &Cluster, one_core: bool) -> GoodClient {
        let addresses = cluster.addresses();
        let (puts, stop) = (Arc::<Mutex<Puts>>::default(), Arc::<AtomicBool>::default());
        let avoided = Arc::new(AtomicUsize::new(NOBODY));
        let (told, stopped, avoids) = (puts.clone(), stop.clone(), avoided.clone());
        let thread = std::thread::spawn(move || {
            if one_core {
                on_other_cores();
            }
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let channels: Vec<Channel> =
                    addresses.iter().map(|address| channel(address, CONNECT_LIMIT)).collect();
                let mut tick = tokio::time::interval(EVERY);
                tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
                let mut number = 0_usize;
                while !stopped.load(Ordering::Relaxed) {
                    let due = tick.tick().await;
                    let mut member = number % channels.len();
                    if member == avoids.load(Ordering::Relaxed) {
                        member = (member + 1) % channels.len();
                    }
                    let (channel, told) = (channels[member].clone(), told.clone());
                    told.lock().expect("nobody panics with it").ended.push(None);
                    tokio::spawn(async move { one_put(channel, number, due, &told).await });
                    number += 1;
                }
                // Waits for the puts under way.
                let end = tokio::time::Instant::now() + PUT_LIMIT;
                while tokio::time::Instant::now() < end
                    && told.lock().expect("as above").ended.iter().any(Option::is_none)
                {
                    tokio::time::sleep(EVERY).await;
                }
            });
        });
        GoodClient { puts, stop, avoided, thread }
    }

    /// Sends this member nothing more, and waits for its pending answers; [`NOBODY`] ends that.
    fn avoid(&self, member: usize) {
        self.avoided.store(member, Ordering::Relaxed);
        let due = self.due_count() + 1; // one may be on its way right now
        kattu_rig::until("what was asked before is answered", || {
            let puts = self.puts();
            (due < puts.ended.len() && puts.ended[..due].iter().all(Option::is_some)).then_some(())
        });
    }

    fn puts(&self) -> std::sync::MutexGuard<'_, Puts> {
        self.puts.lock().expect("nobody panics with it")
    }

    fn due_count(&self) -> usize {
        self.puts().ended.len()
    }

    /// Waits until each of a second's puts was answered within `limit`, so that no flood pays for the one before it.
    fn wait_for_calm(&self, limit: Duration) {
        kattu_rig::until("the good client is served as ever", || {
            std::thread::sleep(Duration::from_secs(1));
            let puts = self.puts();
            let is_quick =
                |put: &Option<Result<Duration, ()>>| matches!(put, Some(Ok(time)) if *time < limit);
            let recent = puts.ended.len().checked_sub(100)?..puts.ended.len() - 10;
            puts.ended[recent].iter().all(is_quick).then_some(())
        });
    }

    /// The latency of each put due since `from`, once all have ended; `None` for a failed one.
    fn times_since(&self, from: usize) -> Vec<Option<Duration>> {
        let upto = self.due_count();
        let all = |puts: &Puts| puts.ended[from..upto].iter().copied().collect::<Option<Vec<_>>>();
        let ended = kattu_rig::until("the good client's puts have ended", || all(&self.puts()));
        ended.into_iter().map(Result::ok).collect()
    }

    fn stop(self) -> BTreeSet<String> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the client does not panic");
        std::mem::take(&mut self.puts.lock().expect("nobody panics with it").acknowledged)
    }
}

async fn one_put(channel: Channel, number: usize, due: tokio::time::Instant, told: &Mutex<Puts>) {
    let key = format!("load/{number:010}");
    let request =
        PutRequest { key: key.clone().into_bytes(), value: vec![b'x'; 100], ..PutRequest::default() };
    let mut client = KvClient::new(channel);
    let ended = tokio::time::timeout(PUT_LIMIT, client.put(request)).await;
    let mut puts = told.lock().expect("nobody panics with it");
    puts.ended[number] = Some(match ended {
        Ok(Ok(_)) => {
            puts.acknowledged.insert(key);
            Ok(due.elapsed())
        }
        _ => Err(()),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_key_holds_what_was_acknowledged_or_is_newer_and_is_whole() {
        let lost = |written: Written, held: Option<Vec<u8>>| written.lost_from(7, held.as_deref());
        let written = Written { sent: 300, acknowledged: 299 };
        assert_eq!(lost(written, Some(large_value(299))), None);
        assert_eq!(lost(written, Some(large_value(300))), None, "sent, and answered by nobody");
        let older = lost(written, Some(large_value(298))).expect("it went back");
        assert_eq!(older, "large/7 holds value 298, of 300 sent and 299 acknowledged");
        assert!(lost(written, None).is_some(), "it is gone");
        assert!(lost(written, Some(large_value(301))).is_some(), "nobody sent that");
        let mut torn = large_value(299);
        torn.pop();
        assert!(lost(written, Some(torn)).is_some_and(|said| said.contains("not whole")));
        assert_eq!(lost(Written { sent: 1, acknowledged: 0 }, None), None);
        assert_eq!(large_value(1).len() * 10, (14 << 20) - 4, "1.4 MiB");
    }
}
