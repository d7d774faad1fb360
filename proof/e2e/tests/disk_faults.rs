//! Disk faults: full disks, failing syncs, members killed at the n-th system call; with the unmodified binary, driven
//! from outside. Every acknowledged key is there afterwards. [fault-model F10–F12, ST3, ST15]

use kattu_proto::etcdserverpb::maintenance_client::MaintenanceClient;
use kattu_proto::etcdserverpb::{AlarmRequest, AlarmType, DeleteRangeRequest, RangeRequest};
use kattu_rig::disk::{Fault, Injected, Rig, SmallDisk, inject_into, injecting};
use kattu_rig::target::serve;
use kattu_rig::{Cluster, Kv, Member, Options, need_rig, until, until_within};
use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const DISK_MIB: u64 = 200;
const WRITERS: usize = 4;
/// About sixty of these fill a segment of 1 MiB.
const VALUE_BYTES: usize = 16 << 10;
const FULL: &str = "etcdserver: mvcc: database space exceeded";

const FAILED: &str = "the log failed, stopping";

/// Small segments, so that the next one is often allocated; short election timeouts, so that tests are quick.
fn options(members: usize, log_io: &str) -> Options {
    let flags = [
        "--segment-bytes=1048576",
        "--max-request-bytes=262144",
        "--disk-reserve-bytes=4194304",
        "--heartbeat-interval=50",
        "--election-timeout=500",
    ];
    let log_io = format!("--log-io={log_io}");
    Options { members, flags: flags.into_iter().map(str::to_string).chain([log_io]).collect() }
}

/// Long election timeouts: the leader stays the leader also on a busy machine.
fn patient(mut options: Options) -> Options {
    for flag in &mut options.flags {
        match flag.as_str() {
            "--heartbeat-interval=50" => *flag = "--heartbeat-interval=200".into(),
            "--election-timeout=500" => *flag = "--election-timeout=4000".into(),
            _ => {}
        }
    }
    options
}

/// Moves a member that has not started yet onto a disk.
fn settle_on(member: &mut Member, disk: &SmallDisk) {
    member.data = disk.path().join("data");
    let data = member.data.display().to_string();
    let arguments = member.arguments_mut();
    let place = arguments.iter().position(|argument| argument == "--data-dir").expect("it has one");
    arguments[place + 1] = data;
}

/// A cluster with a small disk for each member. The cluster is declared last, so that it ends first.
fn on_small_disks(what: &str, options: Options) -> (Vec<SmallDisk>, Cluster) {
    let mut planned = Cluster::plan(what, options);
    let disks: Vec<SmallDisk> = planned
        .members
        .iter_mut()
        .map(|member| {
            let disk = SmallDisk::make(&format!("{what}-{}", member.name), DISK_MIB).expect("a small disk");
            settle_on(member, &disk);
            disk
        })
        .collect();
    let mut cluster = planned;
    cluster.start_all();
    (disks, cluster)
}

/// The value of a key: each differs, so that a swapped value is detected.
fn value_of(key: &str, bytes: usize) -> Vec<u8> {
    let mut value = key.as_bytes().repeat(bytes / key.len() + 1);
    value.truncate(bytes);
    value
}

/// Clients that put unique keys as fast as they are answered, and record the answers.
struct Writers {
    stop: Arc<AtomicBool>,
    /// Pause of each after every answer, in milliseconds.
    rest_ms: Arc<AtomicU64>,
    acknowledged: Arc<AtomicU64>,
    heard: Arc<Mutex<Heard>>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

#[derive(Default)]
struct Heard {
    acknowledged: BTreeSet<String>,
    refused: BTreeSet<String>,
}

impl Writers {
    fn start(addresses: &[String], prefix: &str, bytes: usize) -> Writers {
        let stop = Arc::new(AtomicBool::new(false));
        let rest_ms = Arc::new(AtomicU64::new(0));
        let count = Arc::new(AtomicU64::new(0));
        let heard = Arc::new(Mutex::new(Heard::default()));
        let threads = (0..WRITERS)
            .map(|writer| {
                let (stop, count, heard) = (stop.clone(), count.clone(), heard.clone());
                let rest_ms = rest_ms.clone();
                let (addresses, prefix) = (addresses.to_vec(), format!("{prefix}{writer}/"));
                std::thread::spawn(move || {
                    // A single member is waited for, whatever delays it.
                    let limit = Duration::from_secs(if addresses.len() == 1 { 12 } else { 3 });
                    let clients: Vec<Kv> =
                        addresses.iter().map(|address| Kv::of(address).within(limit)).collect();
                    let mut at = writer % clients.len();
                    for number in 0.. {
                        if stop.load(Ordering::Relaxed) {
                            return;
                        }
                        let key = format!("{prefix}{number:06}");
                        match clients[at].put(key.clone(), value_of(&key, bytes)) {
                            Ok(_) => {
                                count.fetch_add(1, Ordering::Relaxed);
                                heard.lock().expect("no writer panics").acknowledged.insert(key);
                                std::thread::sleep(Duration::from_millis(rest_ms.load(Ordering::Relaxed)));
                            }
                            Err(status) => {
                                let said = status.message().to_string();
                                heard.lock().expect("no writer panics").refused.insert(said);
                                at = (at + 1) % clients.len();
                                std::thread::sleep(Duration::from_millis(5)); // no storm of refusals
                            }
                        }
                    }
                })
            })
            .collect();
        Writers { stop, rest_ms, acknowledged: count, heard, threads }
    }

    fn on(members: &[Member], prefix: &str) -> Writers {
        let addresses: Vec<String> = members.iter().map(Member::address).collect();
        Writers::start(&addresses, prefix, VALUE_BYTES)
    }

    /// From now on they leave some of the machine to other work.
    fn rest(&self, after_each: Duration) {
        self.rest_ms.store(after_each.as_millis() as u64, Ordering::Relaxed);
    }

    fn count(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    #[track_caller]
    fn until_more(&self, more: u64) {
        let goal = self.count() + more;
        while self.count() < goal {
            let before = self.count();
            until("writes are acknowledged", || (before < self.count()).then_some(()));
        }
    }

    #[track_caller]
    fn until_refused(&self, text: &str) {
        until(&format!("a writer hears `{text}`"), || {
            self.heard.lock().expect("no writer panics").refused.contains(text).then_some(())
        });
    }

    fn stop(mut self) -> Heard {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().expect("no writer panics");
        }
        std::mem::take(&mut self.heard.lock().expect("no writer panics"))
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Every acknowledged key holds its own value.
#[track_caller]
fn assert_kept(kv: &Kv, acknowledged: &BTreeSet<String>, bytes: usize) {
    let mut missing = acknowledged.clone();
    let (Some(first), Some(last)) = (acknowledged.first(), acknowledged.last()) else { return };
    let mut from = first.clone().into_bytes();
    loop {
        let request = RangeRequest {
            key: from,
            range_end: format!("{last}\0").into_bytes(),
            limit: 500,
            ..RangeRequest::default()
        };
        let page = until("a page of keys", || kv.range(request.clone()).ok());
        for pair in &page.kvs {
            let key = String::from_utf8(pair.key.clone()).expect("our keys are text");
            assert!(pair.value == value_of(&key, bytes), "{key} holds another value");
            missing.remove(&key);
        }
        match page.kvs.last() {
            Some(last) if page.more => from = [&last.key[..], b"\0"].concat(),
            _ => break,
        }
    }
    assert!(missing.is_empty(), "acknowledged and lost: {missing:?}");
}

/// Members that raise NOSPACE, according to this one.
fn alarms(kv: &Kv) -> Vec<(u64, i32)> {
    let mut client = MaintenanceClient::new(kv.channel());
    let answer = kv.block_on(async { client.alarm(AlarmRequest::default()).await }).expect("the alarms");
    answer.into_inner().alarms.iter().map(|alarm| (alarm.member_id, alarm.alarm)).collect()
}

fn delete(kv: &Kv, key: &str) -> Result<i64, tonic::Status> {
    let request = DeleteRangeRequest { key: key.into(), ..DeleteRangeRequest::default() };
    let mut client = kv.client();
    kv.block_on(async { client.delete_range(request).await }).map(|answer| answer.into_inner().deleted)
}

/// Deletes go into allocated log space; when it is used up, they are refused or wait. Returns that error.
fn delete_until_no_more_goes(kv: Kv) -> tonic::Status {
    let kv = kv.within(Duration::from_secs(2));
    let long = "x".repeat(32 << 10);
    until("a delete that finds no room", || (0..100).find_map(|_| delete(&kv, &long).err()))
}

/// Every interface of a member reports NOSPACE, and it refuses requests that make the store grow.
#[track_caller]
fn assert_says_full(member: &Member) {
    let kv = member.kv();
    let refused = kv.put("one/more", "x").expect_err("a put was accepted on a full disk");
    assert_eq!((refused.code(), refused.message()), (tonic::Code::ResourceExhausted, FULL));
    assert_eq!(member.metric("kattu_no_space"), Some(1));
    let status = kv.status().expect("status is served");
    let id = status.header.as_ref().expect("a header").member_id;
    assert_eq!(alarms(&kv), [(id, AlarmType::Nospace as i32)]);
    assert!(status.errors.iter().any(|error| error.contains("NOSPACE")), "{:?}", status.errors);
}

#[track_caller]
fn assert_says_room(member: &Member) {
    let kv = member.kv();
    until("a put succeeds again", || kv.put("one/more", "x").ok());
    until("no alarm is left", || alarms(&kv).is_empty().then_some(()));
    assert_eq!(member.metric("kattu_no_space"), Some(0));
    assert_eq!(kv.status().expect("status is served").errors, Vec::<String>::new());
}

fn a_full_disk_of_a_single_member(log_io: &str) {
    let (disks, mut cluster) = on_small_disks(&format!("full-{log_io}"), options(1, log_io));
    let kv = cluster.members[0].kv();
    for i in 0..100 {
        kv.put(format!("victim/{i}"), "x").expect("a put");
    }
    let pid = cluster.members[0].pid();

    let writers = Writers::on(&cluster.members, "w/");
    writers.until_more(200);
    disks[0].fill(0);
    writers.until_refused(FULL);
    let mut heard = writers.stop();
    assert!(heard.refused.iter().all(|text| text == FULL), "{:?}", heard.refused);

    assert_says_full(&cluster.members[0]);
    assert_kept(&kv, &heard.acknowledged, VALUE_BYTES);
    for i in 0..100 {
        assert_eq!(delete(&kv, &format!("victim/{i}")).expect("deletes need next to no room"), 1);
    }
    assert_eq!(kv.count("victim/", false).expect("a read"), 0);
    let last = delete_until_no_more_goes(cluster.members[0].kv());
    println!("the last delete heard {last}");
    assert_says_full(&cluster.members[0]);
    assert_eq!(cluster.members[0].pid(), pid);

    // A restart while the disk is full: everything is there, and growth is still refused.
    cluster.members[0].kill();
    cluster.members[0].start();
    let kv = cluster.members[0].kv();
    assert_kept(&kv, &heard.acknowledged, VALUE_BYTES);
    assert_eq!(kv.count("victim/", false).expect("a read"), 0);
    until("the restarted member sees that its disk is full", || kv.put("one/more", "x").err());
    assert_says_full(&cluster.members[0]);
    let restarted = cluster.members[0].pid();
    assert_ne!(pid, restarted);

    disks[0].relieve();
    assert_says_room(&cluster.members[0]);
    let writers = Writers::on(&cluster.members, "x/");
    writers.until_more(200);
    let more = writers.stop();
    assert_eq!(more.refused, BTreeSet::new());
    heard.acknowledged.extend(more.acknowledged);
    assert_eq!(cluster.members[0].pid(), restarted, "it went on without a restart");

    cluster.members[0].kill();
    cluster.members[0].start();
    let kv = cluster.members[0].kv();
    assert_kept(&kv, &heard.acknowledged, VALUE_BYTES);
    assert_eq!(kv.count("victim/", false).expect("a read"), 0);
}

#[test]
fn a_full_disk_refuses_growth_serves_reads_and_deletes_and_recovers_log_inline() {
    need_rig!(Rig::Loop);
    a_full_disk_of_a_single_member("inline");
}

#[test]
fn a_full_disk_refuses_growth_serves_reads_and_deletes_and_recovers_log_on_a_thread() {
    need_rig!(Rig::Loop);
    a_full_disk_of_a_single_member("thread");
}

/// Another process takes every byte that the log frees: the log cannot even create the segment that its reserve is for.
fn a_disk_whose_last_byte_is_taken(log_io: &str) {
    let (disks, mut cluster) = on_small_disks(&format!("hoard-{log_io}"), options(1, log_io));
    let writers = Writers::on(&cluster.members, "w/");
    writers.until_more(100);
    let ballast = disks[0].fill_and_hold();
    until("growth is refused", || (cluster.members[0].metric("kattu_no_space") == Some(1)).then_some(()));
    writers.until_refused(FULL);
    let pid = cluster.members[0].pid();
    assert!(cluster.members[0].is_running());
    // Reads need no disk space.
    let kept = writers.heard.lock().expect("no writer panics").acknowledged.clone();
    assert_kept(&cluster.members[0].kv(), &kept, VALUE_BYTES);

    drop(ballast);
    disks[0].relieve();
    writers.until_more(100);
    let heard = writers.stop();
    assert_says_room(&cluster.members[0]);
    assert_eq!(cluster.members[0].pid(), pid);
    cluster.members[0].kill();
    cluster.members[0].start();
    assert_kept(&cluster.members[0].kv(), &heard.acknowledged, VALUE_BYTES);
}

#[test]
fn a_disk_whose_last_byte_is_taken_stops_no_member_and_costs_nothing_acknowledged() {
    need_rig!(Rig::Loop);
    for log_io in ["inline", "thread"] {
        a_disk_whose_last_byte_is_taken(log_io);
    }
}

#[test]
fn a_disk_without_room_for_another_file_refuses_growth_and_keeps_no_member_from_starting() {
    need_rig!(Rig::Loop);
    let (disks, mut cluster) = on_small_disks("names", options(1, "inline"));
    let writers = Writers::on(&cluster.members, "w/");
    writers.until_more(50);
    disks[0].fill_names();
    writers.until_refused(FULL);
    let heard = writers.stop();
    assert_says_full(&cluster.members[0]);
    cluster.members[0].kill();
    // Names freed by its own leftovers are taken, too.
    disks[0].fill_names();
    cluster.members[0].start();
    assert_kept(&cluster.members[0].kv(), &heard.acknowledged, VALUE_BYTES);
    disks[0].relieve();
    assert_says_room(&cluster.members[0]);
}

#[test]
fn growth_is_refused_below_five_percent_of_a_small_disk_and_allowed_above() {
    need_rig!(Rig::Loop);
    let (disks, cluster) = on_small_disks("watermark", options(1, "inline"));
    let kv = cluster.members[0].kv();
    let (_, size) = disks[0].free_and_size();
    disks[0].fill(size / 20 + (4 << 20));
    for i in 0..20 {
        kv.put("above", format!("{i}")).expect("there is more than the watermark");
    }
    disks[0].fill(size / 20 - (1 << 20));
    until("the watermark is seen", || kv.put("below", "x").err());
    assert_says_full(&cluster.members[0]);
    let (free, _) = disks[0].free_and_size();
    assert!(5 << 20 < free, "there is room for segments: the watermark is what refuses");
    disks[0].relieve();
    assert_says_room(&cluster.members[0]);
}

#[test]
fn a_full_disk_of_the_leader_and_then_of_a_follower_loses_nothing() {
    need_rig!(Rig::Loop);
    let (disks, mut cluster) = on_small_disks("full-three", patient(options(3, "inline")));
    let mut acknowledged = BTreeSet::new();

    // The leader's disk is full: every member refuses growth, everything else goes on.
    let leader = cluster.leader();
    let writers = Writers::on(&cluster.members, "w/");
    writers.until_more(200);
    disks[leader].fill(0);
    writers.until_refused(FULL);
    let heard = writers.stop();
    let other = cluster.members[(leader + 1) % 3].kv();
    assert_eq!(cluster.leader(), leader, "a full disk is no reason to step down");
    assert_says_full(&cluster.members[leader]);
    assert_eq!(other.put("one/more", "x").expect_err("refused through a follower too").message(), FULL);
    assert_kept(&other, &heard.acknowledged, VALUE_BYTES);
    disks[leader].relieve();
    assert_says_room(&cluster.members[leader]);
    acknowledged.extend(heard.acknowledged);

    // A follower's disk is full: the others go on, through that follower, too.
    let follower = (cluster.leader() + 1) % 3;
    let pid = cluster.members[follower].pid();
    disks[follower].fill(0);
    let writers = Writers::on(&cluster.members, "x/");
    until("the follower says that it is full", || {
        (cluster.members[follower].metric("kattu_no_space") == Some(1)).then_some(())
    });
    // More than its open segments and its reserve can hold.
    writers.until_more((12 << 20) / VALUE_BYTES as u64);
    let heard = writers.stop();
    assert!(!heard.refused.contains(FULL), "a full follower refused for all: {:?}", heard.refused);
    assert_eq!(cluster.members[follower].pid(), pid);
    assert!(cluster.members[follower].is_running());
    acknowledged.extend(heard.acknowledged);

    // Its disk has space again: it catches up, so that it and one other are a quorum.
    disks[follower].relieve();
    let third = (0..3).find(|i| *i != follower && *i != cluster.leader()).expect("one of three");
    cluster.members[third].kill();
    let kv = cluster.members[follower].kv();
    until("a write that needs the follower", || kv.put("needs/it", "x").ok());
    assert_kept(&kv, &acknowledged, VALUE_BYTES);
    cluster.kill_all();
    cluster.start_all();
    for member in &cluster.members {
        assert_kept(&member.kv(), &acknowledged, VALUE_BYTES);
    }
}

/// The leader of three meets a failing call under load, and logs why it ends.
fn a_failing_call_on_the_leader(log_io: &str, fault: &Fault, says: &str) {
    let name = format!("fail-{}-{log_io}", fault.calls);
    let mut options = options(3, log_io);
    if fault.what.starts_with("delay") {
        // Longer than a healthy disk may take.
        options.flags.push("--disk-stall-timeout=5000".into());
    }
    let mut cluster = Cluster::with(&name, options);
    let writers = Writers::on(&cluster.members, "w/");
    writers.until_more(50);
    // A load that takes the whole machine may keep a restarted member behind for as long as it lasts.
    writers.rest(Duration::from_millis(10));
    let leader = cluster.leader();
    let trace = cluster.folder().join("trace");
    let attached = inject_into(cluster.members[leader].pid(), fault, &trace);
    let ended = cluster.members[leader].wait_end();
    drop(attached);
    let traced = std::fs::read_to_string(&trace).expect("a trace");
    // strace reports a hanging call only when it returns.
    let met = traced.contains("(INJECTED)") || fault.what.starts_with("delay");
    assert!(met, "{fault:?} was never met:\n{traced}");
    assert_eq!(ended.code, None, "it aborts: nothing is known about what the disk holds\n{}", ended.err);
    assert!(ended.err.contains(says), "{fault:?}:\n{}", ended.err);
    // The others go on, and the member comes back.
    writers.until_more(50);
    cluster.members[leader].start();
    writers.until_more(50);
    let heard = writers.stop();
    assert_kept(&cluster.members[leader].kv(), &heard.acknowledged, VALUE_BYTES);
}

fn fault(calls: &'static str, what: &'static str, when: &str) -> Fault {
    Fault { calls, what, when: when.into(), file: None }
}

#[test]
fn a_leader_whose_sync_or_write_fails_stops_and_the_others_go_on() {
    need_rig!(Rig::Inject);
    a_failing_call_on_the_leader("inline", &fault("fdatasync", "error=EIO", "7"), FAILED);
    a_failing_call_on_the_leader("thread", &fault("fdatasync", "error=EIO", "7"), FAILED);
    a_failing_call_on_the_leader("inline", &fault("pwrite64", "error=EIO", "5"), FAILED);
}

/// A member that aborts meanwhile is gone when strace releases the call.
fn a_leader_whose_disk_hangs(log_io: &str) {
    let hangs = fault("fdatasync", "delay_enter=12000000", "7");
    a_failing_call_on_the_leader(log_io, &hangs, "a disk call has not returned for");
}

#[test]
fn a_leader_whose_disk_hangs_ends_and_the_others_go_on_log_inline() {
    need_rig!(Rig::Inject);
    a_leader_whose_disk_hangs("inline");
}

#[test]
fn a_leader_whose_disk_hangs_ends_and_the_others_go_on_log_on_a_thread() {
    need_rig!(Rig::Inject);
    a_leader_whose_disk_hangs("thread");
}

/// The leader of three gets a disk that is slow, but not so slow that its followers miss it.
fn a_leader_with_a_slow_disk(log_io: &str) {
    let mut options = options(3, log_io);
    options.flags.retain(|flag| !flag.starts_with("--heartbeat") && !flag.starts_with("--election"));
    options.flags.push("--leave-slow-disk=true".into());
    let mut cluster = Cluster::with(&format!("slow-{log_io}"), options);
    let writers = Writers::on(&cluster.members, "w/");
    writers.until_more(50);
    let slow = cluster.leader();
    let pid = cluster.members[slow].pid();
    let trace = cluster.folder().join("trace");
    let attached = inject_into(pid, &fault("fdatasync,fsync", "delay_exit=200000", "1+"), &trace);
    // After the ten election timeouts for which it stays leader in any case.
    until_within(Duration::from_secs(120), "the leader says that its disk is slow", || {
        cluster.members[slow].log_text().contains("this disk is slow: a write took").then_some(())
    });
    until("another member leads", || (cluster.leader() != slow).then_some(()));
    // It is as slow as before, but no write waits for it any more.
    writers.until_more(100);
    until("its office does not stay with it", || (cluster.leader() != slow).then_some(()));
    // After a transfer, a leader with a slow disk stays for a while before it tries again.
    let left = cluster.members[slow].metric("kattu_slow_disk_left_total");
    assert!((Some(1)..=Some(3)).contains(&left), "it takes its office back again and again: {left:?}");
    assert!(cluster.members[slow].is_running(), "{}", cluster.members[slow].log_text());
    assert_eq!(cluster.members[slow].pid(), pid);
    drop(attached);
    let traced = std::fs::read_to_string(&trace).expect("a trace");
    assert!(traced.contains("(DELAYED)"), "its disk was never slow:\n{traced}");
    let heard = writers.stop();
    for member in &cluster.members {
        assert_kept(&member.kv(), &heard.acknowledged, VALUE_BYTES);
    }
}

#[test]
fn a_leader_with_a_slow_disk_transfers_to_a_faster_member_and_nothing_is_lost_log_inline() {
    need_rig!(Rig::Inject);
    a_leader_with_a_slow_disk("inline");
}

#[test]
fn a_leader_with_a_slow_disk_transfers_to_a_faster_member_and_nothing_is_lost_log_on_a_thread() {
    need_rig!(Rig::Inject);
    a_leader_with_a_slow_disk("thread");
}

/// Syncs of the leader take three heartbeats, and it stays the leader: the other disks are enough to commit. Its own
/// clients are answered when their write is on its own disk, too; clients of the followers do not wait for that.
#[test]
fn a_leader_whose_syncs_outlast_a_heartbeat_commits_on_two_others_disks() {
    need_rig!(Rig::Inject);
    const SYNC: Duration = Duration::from_millis(300);
    const PUTS: usize = 200;
    let flags = ["--leave-slow-disk=false", "--election-timeout=5000"].map(str::to_string);
    let cluster = Cluster::with("slow-syncs", Options { members: 3, flags: flags.into() });
    let leader = cluster.leader();
    let kv = cluster.members[(leader + 1) % 3].kv();
    (0..50).for_each(|number| kv.put_surely(format!("before/{number}"), "x"));
    let trace = cluster.folder().join("trace");
    let delay: &'static str = Box::leak(format!("delay_exit={}", SYNC.as_micros()).into_boxed_str());
    let attached = inject_into(cluster.members[leader].pid(), &fault("fdatasync", delay, "1+"), &trace);
    let mut took: Vec<Duration> = (0..PUTS)
        .map(|number| {
            let begun = std::time::Instant::now();
            kv.put(format!("k/{number:06}"), "x").expect("a put while the leader's disk is slow");
            begun.elapsed()
        })
        .collect();
    took.sort_unstable();
    let (median, most) = (took[PUTS / 2], took[PUTS - 1]);
    println!("puts under a leader whose syncs take {SYNC:?}: p50 {median:?}, max {most:?}");
    assert!(median < SYNC / 3, "p50 {median:?} follows the leader's disk");
    assert_eq!(cluster.leader(), leader, "it leads on");
    let member = &cluster.members[leader];
    assert_eq!(member.metric("kattu_log_on_thread"), Some(1), "{}", member.log_text());
    drop(attached);
    let traced = std::fs::read_to_string(&trace).expect("a trace");
    assert!(traced.contains("(DELAYED)"), "its disk was never slow:\n{traced}");
    // Its disk is well again: the log moves back to the node's thread, and no entry was lost on the way.
    until("the log is on the node's thread again", || {
        kv.put("well", "x").ok()?;
        (member.metric("kattu_log_on_thread") == Some(0)).then_some(())
    });
    for member in &cluster.members {
        assert_eq!(member.kv().count("k/", false).expect("a read"), PUTS as i64);
    }
}

#[test]
fn a_leader_that_cannot_make_the_name_of_a_segment_durable_stops_and_the_others_go_on() {
    need_rig!(Rig::Inject);
    // While a member runs, it calls `fsync` only for that.
    a_failing_call_on_the_leader("inline", &fault("fsync", "error=EIO", "1"), FAILED);
}

#[test]
fn a_directory_without_room_for_another_name_is_a_full_disk_and_no_reason_to_stop() {
    need_rig!(Rig::Inject);
    let mut cluster = Cluster::with("no-names", options(1, "inline"));
    let writers = Writers::on(&cluster.members, "w/");
    writers.until_more(50);
    let pid = cluster.members[0].pid();
    let trace = cluster.folder().join("trace");
    let attached = inject_into(pid, &fault("rename", "error=ENOSPC", "1+"), &trace);
    writers.until_refused(FULL);
    assert_says_full(&cluster.members[0]);
    let last = delete_until_no_more_goes(cluster.members[0].kv());
    println!("the last delete heard {last}");
    assert!(cluster.members[0].is_running());
    drop(attached);
    assert_says_room(&cluster.members[0]);
    writers.until_more(100);
    let heard = writers.stop();
    assert_eq!(cluster.members[0].pid(), pid);
    assert!(cluster.members[0].is_running());
    cluster.members[0].kill();
    cluster.members[0].start();
    assert_kept(&cluster.members[0].kv(), &heard.acknowledged, VALUE_BYTES);
}

#[test]
fn a_follower_without_room_for_another_name_waits_and_catches_up() {
    need_rig!(Rig::Inject);
    let mut cluster = Cluster::with("no-names-three", patient(options(3, "inline")));
    let writers = Writers::on(&cluster.members, "w/");
    writers.until_more(50);
    let leader = cluster.leader();
    let (follower, third) = ((leader + 1) % 3, (leader + 2) % 3);
    let trace = cluster.folder().join("trace");
    let attached =
        inject_into(cluster.members[follower].pid(), &fault("rename", "error=ENOSPC", "1+"), &trace);
    // More than its open segments can hold.
    writers.until_more((4 << 20) / VALUE_BYTES as u64);
    assert!(cluster.members[follower].is_running(), "{}", cluster.members[follower].log_text());
    drop(attached);
    let heard = writers.stop();
    cluster.members[third].kill();
    let kv = cluster.members[follower].kv();
    until("a write that needs the follower", || kv.put("needs/it", "x").ok());
    cluster.kill_all();
    cluster.start_all();
    assert_kept(&cluster.members[follower].kv(), &heard.acknowledged, VALUE_BYTES);
}

/// Starts a single member with a fault injected.
fn start_faulty(cluster: &mut Cluster, fault: &Fault) -> Injected {
    let folder = cluster.folder().to_path_buf();
    let log = File::create(folder.join("faulty.log")).expect("a log");
    let mut command = serve();
    command.args(cluster.members[0].arguments_mut().iter());
    injecting(fault, &folder.join("trace"), &command, log)
}

/// Puts one value after the other until the process has ended or `most` were acknowledged; returns the acknowledged
/// keys.
fn put_while_it_lives(kv: &Kv, child: &mut Injected, most: usize) -> BTreeSet<String> {
    let mut acknowledged = BTreeSet::new();
    for number in 0.. {
        if most <= acknowledged.len() || child.ended().is_some() {
            break;
        }
        let key = format!("k/{number:06}");
        if kv.put(key.clone(), value_of(&key, VALUE_BYTES)).is_ok() {
            acknowledged.insert(key);
        } else {
            std::thread::sleep(Duration::from_millis(5)); // it is starting or dying
        }
    }
    acknowledged
}

#[test]
fn nothing_is_acknowledged_once_a_sync_has_failed() {
    need_rig!(Rig::Inject);
    const FAILS_AT: usize = 40;
    for log_io in ["inline", "thread"] {
        let mut cluster = Cluster::plan(&format!("fsync-{log_io}"), options(1, log_io));
        // All syncs from that one on, in every thread: a member that ignored the failure would go on acknowledging.
        let mut child = start_faulty(&mut cluster, &fault("fdatasync", "error=EIO", &format!("{FAILS_AT}+")));
        let kv = cluster.members[0].kv().within(Duration::from_secs(3));
        let acknowledged = put_while_it_lives(&kv, &mut child, usize::MAX);
        let status = child.wait();
        assert_eq!(status.signal(), Some(6), "it aborts");
        // Puts come one at a time, so each that is acknowledged had a sync of its own that worked.
        assert!(!acknowledged.is_empty() && acknowledged.len() < FAILS_AT, "{}", acknowledged.len());
        cluster.members[0].start();
        assert_kept(&cluster.members[0].kv(), &acknowledged, VALUE_BYTES);
    }
}

/// The sync of a small file beside the log fails, at the first start of a member.
fn a_failing_sync_of(name: &str) {
    let mut options = options(3, "inline");
    options.flags.push("--lease-reads".into()); // so that a vote hold is recorded, too
    let mut cluster = Cluster::plan(&format!("beside-{name}"), options);
    for member in &mut cluster.members[1..] {
        member.spawn().expect("a process");
    }
    let file = Some(cluster.members[0].data.join(format!("{name}.tmp")));
    let mut child = start_faulty(&mut cluster, &Fault { file, ..fault("fdatasync", "error=EIO", "1") });
    let status = until(&format!("the member whose sync of `{name}` failed ends"), || child.ended());
    let log = std::fs::read_to_string(cluster.folder().join("faulty.log")).expect("a log");
    assert!(!status.success() && log.contains(&format!("cannot sync {name}: ")), "{status}\n{log}");
    cluster.members[0].start();
    cluster.members[0].kv().put_surely("k", "x");
}

#[test]
fn a_member_whose_sync_of_a_file_beside_the_log_fails_stops_and_starts_again() {
    need_rig!(Rig::Inject);
    for name in ["lives", "promise"] {
        a_failing_sync_of(name);
    }
}

/// Kills a member at the n-th call of one kind, while it creates its directory or under load; returns whether it got
/// that far.
fn trial(calls: &'static str, when: u64, log_io: &str) -> bool {
    let mut cluster = Cluster::plan(&format!("nth-{calls}-{when}"), options(1, log_io));
    let mut child = start_faulty(&mut cluster, &fault(calls, "signal=SIGKILL", &when.to_string()));
    let kv = cluster.members[0].kv().within(Duration::from_secs(3));
    // Enough puts for three segments.
    let acknowledged = put_while_it_lives(&kv, &mut child, 200);
    let met = child.ended().is_some();
    drop(child);
    cluster.members[0].start();
    let kv = cluster.members[0].kv();
    assert_kept(&kv, &acknowledged, VALUE_BYTES);
    kv.put("after", format!("{calls} {when}")).expect("it takes writes again");
    // Once more: the changes made by recovery are recovered from, too.
    cluster.members[0].kill();
    cluster.members[0].start();
    let kv = cluster.members[0].kv();
    assert_kept(&kv, &acknowledged, VALUE_BYTES);
    assert!(kv.get("after").expect("a read").is_some());
    met
}

#[test]
fn a_new_member_whose_disk_fails_ends_with_an_error_and_starts_when_the_disk_is_well() {
    need_rig!(Rig::Inject);
    let kinds = [("pwrite64", 3), ("fdatasync", 4), ("fsync", 3), ("rename", 2), ("fallocate", 2)];
    for (number, (calls, most)) in kinds.into_iter().enumerate() {
        for when in 1..=most {
            let what = if (number + when) % 2 == 0 { "error=EIO" } else { "error=ENOSPC" };
            let mut cluster = Cluster::plan("new-fails", options(1, "inline"));
            let mut child = start_faulty(&mut cluster, &fault(calls, what, &when.to_string()));
            let ended = until("the member ends", || child.ended());
            let said = std::fs::read_to_string(cluster.folder().join("faulty.log")).unwrap_or_default();
            let shown = format!("{calls} {when} {what}: {ended:?}\n{said}");
            assert!(!ended.success(), "{shown}");
            assert!(!said.contains("panicked"), "{shown}");
            let advice = ["check the disk", "free disk space", "--data-dir"];
            assert!(advice.iter().any(|words| said.contains(words)), "{shown}");
            cluster.members[0].start();
            let kv = cluster.members[0].kv();
            kv.put("works", "yes").expect("the directory is as good as new");
        }
    }
}

/// Trials of one run; `E2E_TRIALS` overrides the default.
fn trials_wanted(default: u64) -> u64 {
    std::env::var("E2E_TRIALS").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn a_member_killed_at_any_call_to_its_disk_comes_back_with_everything_acknowledged() {
    need_rig!(Rig::Inject);
    // (call, its least number while 200 values are put)
    let kinds = [
        ("pwrite64", 250),
        ("fdatasync", 200),
        ("fsync", 6),
        ("rename", 5),
        ("fallocate", 5),
        ("unlink", 1),
        ("ftruncate", 2),
        ("openat", 40),
    ];
    let (mut met, mut all) = (0, 0);
    for round in 0..trials_wanted(24) {
        let (calls, most) = kinds[(round % kinds.len() as u64) as usize];
        let turn = round / kinds.len() as u64;
        // First the early calls, then later and later ones under load.
        let when = 1 + (turn * turn * 7 + round) % most;
        let log_io = if round % 2 == 0 { "inline" } else { "thread" };
        all += 1;
        met += u32::from(trial(calls, when, log_io));
    }
    println!("{met} of {all} members met their fault");
    assert!(all <= 2 * met, "most trials killed nobody: {met} of {all}");
}
