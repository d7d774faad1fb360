//! Acknowledged writes survive the kill of any member; reads are never older than acknowledged writes.

use kattu_e2e::{kills, tree};
use kattu_proto::etcdserverpb::{PutRequest, RangeRequest};
use kattu_rig::alone::alone;
use kattu_rig::programs::{Ended, WAIT_LIMIT, memory_of, run};
use kattu_rig::{Cluster, Kv, kattu, until};
use std::collections::BTreeSet;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const FILES: usize = 2_500;

fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_string).collect()
}

/// Reads a key until a member answers; the cluster may still be electing.
fn value(clients: &[Kv], key: &str) -> Option<Vec<u8>> {
    until(&format!("an answer about {key}"), || clients.iter().find_map(|kv| kv.get(key).ok()))
}

#[test]
fn every_acknowledged_file_survives_the_leader_and_then_all_members() {
    let mut cluster = Cluster::start("import", 3);
    let (root, acked) = (cluster.folder().join("tree"), cluster.folder().join("acked"));
    let tree = tree::make(&root, 0x6b_6174_7475, FILES);
    let mut import = Command::new(kattu());
    import.arg("import").arg(&root).args([
        "--prefix",
        "site/",
        "--endpoints",
        &cluster.endpoints(),
        "--acked",
    ]);
    import.arg(&acked).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let import = std::thread::spawn(move || run(&mut import));

    // Half way: the leader dies during the import. It is looked up before, as the import goes on meanwhile.
    let leader = cluster.leader();
    let (mut seen, mut since) = (0, Instant::now());
    while seen < FILES / 2 {
        let now = lines(&acked).len();
        if seen < now {
            (seen, since) = (now, Instant::now());
        }
        assert!(since.elapsed() < WAIT_LIMIT, "the import does not come on: {seen} files");
        std::thread::sleep(Duration::from_millis(1));
    }
    cluster.members[leader].kill();
    let at_kill = lines(&acked).len();
    assert!(at_kill < FILES, "the import was over before the leader could be killed");

    // It goes on with the others; it leaves out only files that are too large, and names them.
    let ended: Ended = import.join().expect("the import ends");
    ended.expect_code(1);
    for path in &tree.oversize {
        assert!(ended.all().contains(path), "{path} is too large and is not named:\n{}", ended.all());
    }
    let acknowledged = lines(&acked);
    let distinct: BTreeSet<&String> = acknowledged.iter().collect();
    assert_eq!(acknowledged.len(), distinct.len(), "a path was acknowledged twice");
    assert_eq!(distinct, tree.files.keys().collect::<BTreeSet<_>>());

    // All members are killed and come back: every path is there, byte for byte.
    cluster.kill_all();
    cluster.start_all();
    let clients: Vec<Kv> = cluster.members.iter().map(|member| member.kv()).collect();
    for path in &acknowledged {
        let stored = value(&clients, &format!("site/{path}"));
        assert!(stored.as_ref() == Some(&tree.files[path]), "{path} is not what was imported");
    }
    for path in &tree.oversize {
        assert_eq!(value(&clients, &format!("site/{path}")), None);
    }

    // Export everything.
    let copy = cluster.folder().join("copy");
    let mut export = Command::new(kattu());
    export.args(["export", "site/"]).arg(&copy).args(["--endpoints", &cluster.endpoints()]);
    run(&mut export).expect_ok();
    for (path, contents) in &tree.files {
        assert!(
            std::fs::read(copy.join(path)).is_ok_and(|bytes| bytes == *contents),
            "{path} was exported wrongly"
        );
    }
}

/// `cargo xtask failover` runs the full number; CI takes `KATTU_KILLS` or five.
#[test]
fn the_service_is_back_soon_after_each_kill_of_a_leader() {
    let _alone = alone();
    let kills = std::env::var("KATTU_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(5);
    let report = kills::run(kills, Duration::from_secs(1), |kill, outage, stall| {
        println!("kill {}: {outage:?}, longest sync of the disk meanwhile {stall:?}", kill + 1);
    });
    assert!(report.lost.is_empty(), "acknowledged and lost: {:?}", report.lost);
    assert!(0 < report.acknowledged);
    // Between a kill and the next acknowledgement several syncs follow each other: of votes, of the new leader's first
    // entry, of the put. Their time is the disk's; a healthy disk needs next to none.
    let own = report.outages.iter().zip(&report.disk_stalls);
    let own: Vec<Duration> = own.map(|(outage, stall)| outage.saturating_sub(4 * *stall)).collect();
    let seen = format!("{:?}, stalls {:?}", report.outages, report.disk_stalls);
    let judged = kills::Report { outages: own, ..report };
    assert!(judged.in_timeouts(judged.median()) <= 2.0, "{seen}");
    assert!(judged.in_timeouts(judged.max()) <= 4.0, "{seen}");
}

/// Puts that a member's newest block may not yet mark as committed.
const BEHIND_MAX: i64 = 8;

/// Writes keys, most of them many at once, which costs fewer syncs. The last ones are put one by one: then the newest
/// blocks hold few of them, and mark almost all as committed.
fn fill(cluster: &Cluster, prefix: &str, count: usize) {
    const AT_ONCE: usize = 100;
    const ONE_BY_ONE: usize = 50;
    let kv = cluster.members[cluster.leader()].kv();
    let pair = |i: usize| (format!("{prefix}{i:05}"), format!("value {i}"));
    let at_once = |numbers: std::ops::Range<usize>| {
        kv.block_on(async {
            let mut puts = tokio::task::JoinSet::new();
            for (key, value) in numbers.map(pair) {
                let mut client = kv.client();
                let request = PutRequest { key: key.into(), value: value.into(), ..PutRequest::default() };
                puts.spawn(async move { client.put(request).await });
            }
            puts.join_all().await.into_iter().collect::<Result<Vec<_>, _>>()
        })
    };
    let single = count - ONE_BY_ONE;
    for first in (0..single).step_by(AT_ONCE) {
        until("many puts are accepted", || at_once(first..single.min(first + AT_ONCE)).ok());
    }
    for (key, value) in (single..count).map(pair) {
        kv.put_surely(key, value);
    }
}

/// Reads from a member that has just been started, as fast as it answers, until it is ready; returns the counts it
/// served meanwhile, and the first one after.
fn counts_while_starting(cluster: &mut Cluster, member: usize, prefix: &str) -> (Vec<i64>, i64) {
    let kv = cluster.members[member].kv().within(Duration::from_millis(200));
    let mut served = Vec::new();
    cluster.members[member].spawn().expect("it can be run");
    until("the restarted member serves", || {
        served.extend(kv.count(prefix, true).ok());
        cluster.members[member].log_text().contains(kattu_rig::READY).then_some(())
    });
    (served, cluster.members[member].kv().count(prefix, true).expect("it serves"))
}

#[test]
fn a_restarted_member_serves_no_read_from_an_empty_or_half_replayed_store() {
    let mut cluster = Cluster::start("restart", 3);
    const KEYS: usize = 3_000;
    fill(&cluster, "r/", KEYS);
    let follower = (cluster.leader() + 1) % 3;
    let kv = cluster.members[follower].kv();
    until("the follower has everything", || kv.count("r/", true).ok().filter(|count| *count == KEYS as i64));
    cluster.members[follower].kill();
    let (served, ready) = counts_while_starting(&mut cluster, follower, "r/");
    // As long as no leader confirms its entries, it serves those that its newest block marks as committed.
    assert!(
        served.iter().all(|count| (KEYS as i64 - BEHIND_MAX..=KEYS as i64).contains(count)),
        "served counts of {KEYS} keys: {served:?}"
    );
    // A ready member has everything that a quorum has, and no later read is older.
    assert_eq!(ready, KEYS as i64, "after {served:?}");
}

#[test]
fn a_member_that_comes_back_alone_serves_its_log_up_to_the_last_mark_or_nothing() {
    let mut cluster = Cluster::start("alone", 3);
    const KEYS: usize = 1_000;
    fill(&cluster, "r/", KEYS);
    for member in &cluster.members {
        let kv = member.kv();
        until("every member has everything", || {
            kv.count("r/", true).ok().filter(|count| *count == KEYS as i64)
        });
    }
    cluster.kill_all();
    cluster.members[0].spawn().expect("it can be run");
    let kv = cluster.members[0].kv().within(Duration::from_millis(100));
    let mut served = BTreeSet::new();
    // The port opens, and none of a hundred answers is wrong.
    let address = cluster.members[0].address();
    until("the port opens", || TcpStream::connect(&address).ok());
    for _ in 0..100 {
        served.extend(kv.count("r/", true).ok());
        assert!(kv.count("r/", false).is_err(), "a linearizable read was served without a quorum");
        std::thread::sleep(Duration::from_millis(20));
    }
    // Without a leader it may serve entries that its newest block marks as committed: all but the last few puts.
    assert!(
        served.iter().all(|count| KEYS as i64 - BEHIND_MAX <= *count),
        "served counts of {KEYS} keys: {served:?}"
    );
    // The others come back, and so does the service.
    cluster.members[1].spawn().expect("it can be run");
    cluster.members[2].spawn().expect("it can be run");
    for member in &mut cluster.members {
        member.wait_ready();
    }
    let kv = cluster.members[0].kv();
    assert_eq!(until("the cluster serves", || kv.count("r/", false).ok()), KEYS as i64);
}

#[test]
fn a_member_that_was_fed_in_large_pieces_comes_back_as_soon_as_any() {
    // A member that was away gets megabytes at a time, so its log holds far larger blocks than that of a member that
    // got every put as it came. Reading them back once took time and memory quadratic in their entries.
    let mut cluster = Cluster::start("fed", 3);
    let away = (cluster.leader() + 1) % 3;
    cluster.members[away].kill();
    let mut load = Command::new(kattu());
    load.args(["bench", "put", "--clients", "64", "--conns", "8", "--total", "60000", "--val-size", "64"]);
    let leader = cluster.leader();
    let address = cluster.members[leader].address();
    let loaded = run(load.args(["--timeout", "30s", "--endpoints", &address, "-o", "json"]));
    // With one member away, a stalled disk of another makes the leader step down, and some puts fail. There must be
    // enough for blocks of full size, a megabyte each, and few enough that no snapshot is sent instead.
    let measured: Option<serde_json::Value> = serde_json::from_str(&loaded.out).ok();
    let puts = measured.and_then(|measured| measured["ops"].as_i64());
    assert!(puts.is_some_and(|puts| 55_000 <= puts), "{loaded:?}");
    let revision = |cluster: &Cluster, i: usize| {
        let status = cluster.members[i].kv().status().ok()?;
        status.header.map(|header| header.revision)
    };
    cluster.members[away].start();
    let latest = until("the member has caught up", || {
        let theirs = revision(&cluster, leader)?;
        revision(&cluster, away).filter(|revision| *revision == theirs && puts <= Some(*revision))
    });
    cluster.members[away].kill();
    cluster.members[away].start();
    assert!(Some(latest) <= revision(&cluster, away), "{latest} before");
    let peak = memory_of(cluster.members[away].pid(), "VmHWM");
    assert!((1..500 << 20).contains(&peak), "60,000 small puts took {peak} bytes to read back");
}

#[test]
fn a_member_asked_to_stop_ends_well_and_comes_back_with_its_data() {
    let mut cluster = Cluster::start("stop", 1);
    cluster.members[0].kv().put("kept", "yes").expect("a put");
    for signal in ["TERM", "INT"] {
        assert_eq!(cluster.members[0].stop(signal), Some(0), "{signal}");
        cluster.members[0].start();
        assert_eq!(cluster.members[0].kv().get("kept").expect("a read"), Some(b"yes".to_vec()));
    }
}

#[test]
fn revisions_and_history_survive_a_kill_of_all_members() {
    let mut cluster = Cluster::start("history", 3);
    let kv = cluster.members[cluster.leader()].kv();
    // A put with an open outcome is retried and may have been carried out twice; the revision in its answer is surely
    // its own.
    let put = |i: usize| {
        let answer = until("a put is answered", || kv.put("h", i.to_string()).ok());
        answer.header.expect("a header").revision
    };
    let revisions: Vec<i64> = (0..20).map(put).collect();
    let read = |kv: &Kv, revision: i64| {
        let request = RangeRequest { key: b"h".to_vec(), revision, ..RangeRequest::default() };
        until("a read is answered", || kv.range(request.clone()).ok())
    };
    let before = read(&kv, 0);
    cluster.kill_all();
    cluster.start_all();
    let kv = cluster.members[0].kv();
    let after = read(&kv, 0);
    assert_eq!(before.kvs, after.kvs);
    let revision =
        |response: &kattu_proto::etcdserverpb::RangeResponse| response.header.as_ref().map(|h| h.revision);
    assert_eq!(revision(&before), revision(&after));
    assert_eq!(read(&kv, revisions[3]).kvs[0].value, b"3");
}
