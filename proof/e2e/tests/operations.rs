//! Operators' tools: snapshots, hashes, alarms with etcd's own etcdctl; backup, restore, recover with ours.

use kattu_proto::etcdserverpb as pb;
use kattu_rig::programs::{Ended, run};
use kattu_rig::target::serve;
use kattu_rig::{Cluster, Member, Options, kattu, need, until};
use pb::alarm_request::AlarmAction;
use pb::maintenance_client::MaintenanceClient;
use serde_json::Value;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

/// By how much a restore raises the revision.
const RAISE: i64 = 1_000_000_000;

fn ours(words: &[&str]) -> Ended {
    run(Command::new(kattu()).args(words))
}

#[track_caller]
fn text(path: &Path) -> &str {
    path.to_str().expect("test folders are text")
}

fn fill(member: &Member, keys: std::ops::Range<u32>) {
    let kv = member.kv();
    for key in keys {
        kv.put_surely(format!("k{key:03}"), format!("v{key}"));
    }
}

/// The revision of a key's value.
fn written_at(member: &Member, key: &str) -> i64 {
    let kv = member.kv();
    let request = pb::RangeRequest { key: key.into(), ..pb::RangeRequest::default() };
    let found = until("a read", || kv.range(request.clone()).ok());
    found.kvs.first().expect("the key is there").mod_revision
}

/// Every key with its value, at the current revision.
#[track_caller]
fn content(member: &Member) -> String {
    let all = ours(&["get", "", "--prefix", "--endpoints", &member.address()]);
    all.expect_ok().to_string()
}

#[track_caller]
fn revision(member: &Member) -> i64 {
    member.kv().status().expect("a status").header.expect("a header").revision
}

fn alarm(member: &Member, action: AlarmAction, of: u64, kind: pb::AlarmType) -> Vec<pb::AlarmMember> {
    let kv = member.kv();
    let request = pb::AlarmRequest { action: action.into(), member_id: of, alarm: kind.into() };
    let answer = kv.block_on(async { MaintenanceClient::new(kv.channel()).alarm(request).await });
    answer.expect("an answer about alarms").into_inner().alarms
}

fn id_of(member: &Member) -> u64 {
    member.kv().status().expect("a status").header.expect("a header").member_id
}

/// `restore` or `recover` with those of the member's flags that describe it.
fn with_flags_of(member: &mut Member, words: &[&str]) -> Command {
    let mut command = Command::new(kattu());
    command.args(words);
    let arguments = member.arguments_mut().clone();
    for pair in arguments.chunks(2) {
        let known = ["--name", "--data-dir", "--initial-cluster", "--initial-cluster-token"];
        if known.contains(&pair[0].as_str()) {
            command.args(pair);
        }
    }
    command
}

fn set_flag(member: &mut Member, flag: &str, value: &str) {
    let arguments = member.arguments_mut();
    let at = arguments.iter().position(|argument| argument == flag).expect("the flag is there");
    arguments[at + 1] = value.to_string();
}

/// The script for either version of etcdctl.
fn etcdctl_works(program: &Path, name: &str) {
    // Each command is run once and must succeed: a disk that stalls must not change the leader.
    let flags = ["--election-timeout=5000", "--heartbeat-interval=500"].map(str::to_string).into();
    let cluster = Cluster::with(name, Options { members: 3, flags });
    let etcdctl = |endpoints: &str, words: &[&str]| {
        let mut command = Command::new(program);
        run(command.env("ETCDCTL_API", "3").args(["--endpoints", endpoints]).args(words))
    };
    let (all, first) = (cluster.endpoints(), cluster.members[0].address());
    fill(&cluster.members[0], 0..50);
    // Enough for a snapshot to come in many pieces.
    for large in 0..16 {
        cluster.members[0].kv().put_surely(format!("large{large}"), "x".repeat(1 << 20));
    }

    // Snapshots.
    let file = cluster.folder().join("etcdctl.db");
    let saved = etcdctl(&first, &["snapshot", "save", text(&file)]);
    saved.expect_ok();
    assert!(saved.all().contains("aved"), "{}", saved.all());
    assert_eq!(std::fs::metadata(&file).expect("the file").len() % 512, 32);
    let mut copy = Cluster::plan(&format!("{name}-copy"), Options { members: 1, flags: vec![] });
    let member = &mut copy.members[0];
    run(&mut with_flags_of(member, &["restore", text(&file)])).expect_ok();
    member.start();
    assert_eq!(content(member), content(&cluster.members[0]));

    // Hashes: every member has the same at the same revision.
    let hash = |one: &Value| (one["HashKV"]["hash"].as_u64(), one["HashKV"]["compact_revision"].as_i64());
    let hashes = until("every member has everything, and the same", || {
        let hashes = etcdctl(&all, &["endpoint", "hashkv", "-w", "json"]).json();
        let hashes: Vec<_> = hashes.as_array().expect("a list").iter().map(hash).collect();
        assert_eq!(hashes.len(), 3);
        hashes.iter().all(|one| *one == hashes[0] && one.0.is_some()).then_some(hashes)
    });
    assert_eq!(hashes[0].1, Some(-1), "as etcd says it before the first compaction");
    let late = etcdctl(&first, &["endpoint", "hashkv", "--rev=99999"]);
    assert!(late.err.contains("required revision is a future revision"), "{}", late.err);
    etcdctl(&first, &["compact", "20"]).expect_ok();
    let early = etcdctl(&first, &["endpoint", "hashkv", "--rev=19"]);
    assert!(early.err.contains("required revision has been compacted"), "{}", early.err);
    etcdctl(&first, &["endpoint", "hashkv", "--rev=20"]).expect_ok();

    // Alarms.
    assert_eq!(etcdctl(&first, &["alarm", "list"]).expect_ok(), "");
    let short = id_of(&cluster.members[1]);
    let raised = alarm(&cluster.members[0], AlarmAction::Activate, short, pb::AlarmType::Nospace);
    assert_eq!(raised, [pb::AlarmMember { member_id: short, alarm: pb::AlarmType::Nospace.into() }]);
    for member in &cluster.members {
        let listed = until("the alarm is everywhere", || {
            let listed = etcdctl(&member.address(), &["alarm", "list"]);
            listed.expect_ok().contains("alarm:NOSPACE").then_some(listed.out)
        });
        assert!(listed.contains(&format!("memberID:{short} ")), "{listed}");
        let refused = etcdctl(&member.address(), &["put", "more", "v"]);
        assert!(refused.err.contains("etcdserver: mvcc: database space exceeded"), "{}", refused.err);
    }
    if !name.ends_with("34") {
        etcdctl(&all, &["endpoint", "health"]).expect_code(1); // 3.4 does not check alarms
    }
    let disarmed = etcdctl(&first, &["alarm", "disarm"]);
    assert!(disarmed.expect_ok().contains("alarm:NOSPACE"), "{}", disarmed.out);
    assert_eq!(etcdctl(&first, &["alarm", "list"]).expect_ok(), "");
    assert_eq!(etcdctl(&first, &["put", "more", "v"]).expect_ok(), "OK\n");

    // A corrupt member serves no client; the others go on.
    let wrong = &cluster.members[2];
    alarm(&cluster.members[0], AlarmAction::Activate, id_of(wrong), pb::AlarmType::Corrupt);
    until("it refuses", || {
        let refused = etcdctl(&wrong.address(), &["get", "more", "--consistency=s"]);
        refused.err.contains("etcdserver: corrupt cluster").then_some(())
    });
    let refused = etcdctl(&wrong.address(), &["put", "more", "w"]);
    assert!(refused.err.contains("etcdserver: corrupt cluster"), "{}", refused.err);
    let refused = etcdctl(&wrong.address(), &["snapshot", "save", text(&cluster.folder().join("no.db"))]);
    assert!(refused.err.contains("corrupt cluster"), "{}", refused.err);
    // If it led, it transfers leadership: a request meanwhile may get no answer.
    let in_the_end = |endpoint: &str, words: &[&str]| {
        until(&words.join(" "), || Some(etcdctl(endpoint, words)).filter(|ended| ended.code == Some(0)))
    };
    assert_eq!(in_the_end(&first, &["put", "more", "w"]).out, "OK\n");
    etcdctl(&wrong.address(), &["endpoint", "hashkv"]).expect_ok();
    let mut asked = 0;
    let disarmed = until("the alarm is disarmed", || {
        asked += 1;
        Some(etcdctl(&wrong.address(), &["alarm", "disarm"])).filter(|ended| ended.code == Some(0))
    });
    // An unanswered request may have been carried out: then no alarm is left to disarm.
    assert!(1 < asked || disarmed.out.contains("alarm:CORRUPT"), "{}", disarmed.out);
    assert_eq!(in_the_end(&wrong.address(), &["get", "more"]).out, "more\nw\n");

    // The file is no etcd database: etcd's own tool reports that and changes nothing.
    if name.ends_with("34") {
        let before = std::fs::read(&file).expect("the file");
        assert_ne!(etcdctl(&first, &["snapshot", "status", text(&file)]).code, Some(0));
        assert_eq!(std::fs::read(&file).expect("the file"), before);
    }

    let tidied = etcdctl(&all, &["defrag"]);
    tidied.expect_ok();
    assert_eq!(tidied.all().matches("inished defragmenting").count(), 3, "{}", tidied.all());
}

#[test]
fn etcdctl_of_debian_works_for_operators() {
    etcdctl_works(&need!("etcd34/etcdctl"), "operations-34");
}

#[test]
fn etcdctl_of_3_6_works_for_operators() {
    etcdctl_works(&need!("etcd36/etcdctl"), "operations-36");
}

/// A cluster of three with some keys, and a backup.
fn backed_up(name: &str) -> (Cluster, PathBuf) {
    let cluster = Cluster::start(name, 3);
    fill(&cluster.members[1], 0..120);
    cluster.members[0].kv().put_surely("k007", "newer");
    let file = cluster.folder().join("all.bak");
    let told =
        ours(&["backup", text(&file), "-o", "json", "--endpoints", &cluster.members[0].address()]).json();
    assert_eq!(told["keys"], 120);
    assert_eq!(told["revision"].as_i64(), Some(revision(&cluster.members[0])));
    assert_eq!(told["bytes"].as_u64(), Some(std::fs::metadata(&file).expect("the backup").len()));
    (cluster, file)
}

#[test]
fn a_restored_cluster_of_three_holds_what_the_old_one_held_at_a_revision_never_used() {
    let (old, file) = backed_up("restore");
    let (wanted, before) = (content(&old.members[0]), revision(&old.members[0]));
    let filled = written_at(&old.members[0], "k119"); // the last one before k007 got another value
    let mut new = Cluster::plan("restore-new", Options { members: 3, flags: vec![] });
    for member in &mut new.members {
        let restored = run(&mut with_flags_of(member, &["restore", text(&file), "-o", "json"])).json();
        assert_eq!(restored["revision_before"].as_i64(), Some(before));
        assert_eq!(restored["revision"].as_i64(), Some(before + RAISE));
    }
    new.start_all();
    for member in &new.members {
        assert_eq!(content(member), wanted);
        until("what was before is compacted", || {
            let gone = ours(&["get", "k007", "--rev", &before.to_string(), "--endpoints", &member.address()]);
            assert_ne!(gone.code, Some(0), "{}", gone.out);
            gone.err.contains("required revision has been compacted").then_some(())
        });
    }
    assert_eq!(revision(&new.members[0]), before + RAISE);
    new.members[2].kv().put_surely("k007", "newest");
    assert_eq!(ours(&["get", "k007", "--endpoints", &new.endpoints()]).expect_ok(), "k007\nnewest\n");
    ours(&["hash", "--endpoints", &new.endpoints()]).expect_ok();
    let cluster_of = |member: &Member| member.kv().status().unwrap().header.unwrap().cluster_id;
    assert_ne!(cluster_of(&new.members[0]), cluster_of(&old.members[0]));

    // It goes on after a restart, and a backup of it works.
    new.kill_all();
    new.start_all();
    assert_eq!(ours(&["get", "k007", "--endpoints", &new.endpoints()]).expect_ok(), "k007\nnewest\n");
    let again = new.folder().join("again.bak");
    ours(&["backup", text(&again), "--endpoints", &new.endpoints()]).expect_ok();

    let mut copy = Cluster::plan("restore-kept", Options { members: 1, flags: vec![] });
    let member = &mut copy.members[0];
    run(&mut with_flags_of(member, &["restore", text(&file), "--keep-revision"])).expect_ok();
    member.start();
    assert_eq!((content(member), revision(member)), (wanted, before));
    assert_eq!(
        ours(&["get", "k007", "--rev", &filled.to_string(), "--endpoints", &member.address()]).expect_ok(),
        "k007\nv7\n",
        "history is kept, too"
    );
}

#[test]
fn what_cannot_be_restored_is_refused_and_changes_nothing() {
    let (mut old, file) = backed_up("refuse");
    let whole = std::fs::read(&file).expect("the backup");
    let mut new = Cluster::plan("refuse-new", Options { members: 1, flags: vec![] });
    let folder = new.folder().to_path_buf();
    let member = &mut new.members[0];
    let damaged = folder.join("damaged.bak");
    let mut refused = |bytes: &[u8], words: &str| {
        std::fs::write(&damaged, bytes).expect("test folders can be written");
        let refused = run(&mut with_flags_of(member, &["restore", text(&damaged)]));
        refused.expect_code(1);
        assert!(refused.err.contains(words), "{words}: {}", refused.err);
        assert!(!member.data.exists(), "nothing is left of it");
    };
    refused(&whole[..whole.len() - 100], &format!("it ends at byte {}", whole.len() - 100));
    refused(&whole[..whole.len() - 512], "it is damaged");
    refused(&whole[..10], "it ends at byte 10");
    refused(b"", "does not begin like a backup");
    refused(b"PRAGMA foreign_keys", "does not begin like a backup");
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 4;
    refused(&flipped, "byte");

    // The rest of a killed restore is reported, and no member starts with an empty directory beside it.
    let left = PathBuf::from(format!("{}.restoring", text(&member.data)));
    std::fs::create_dir(&left).expect("test folders can be written");
    let mut serve = serve();
    serve.args(member.arguments_mut().clone());
    for mut command in [with_flags_of(member, &["restore", text(&file)]), serve] {
        let unfinished = run(&mut command);
        unfinished.expect_code(4);
        assert!(unfinished.err.contains(text(&left)), "{}", unfinished.err);
        assert!(!member.data.exists() && left.exists(), "nothing has changed");
    }
    std::fs::remove_dir(&left).expect("it is empty");

    // Restores over a live directory and over a dead one are refused.
    let live = run(&mut with_flags_of(&mut old.members[0], &["restore", text(&file)]));
    live.expect_code(2);
    assert!(live.err.contains("--initial-cluster-token"), "the same cluster again: {}", live.err);
    set_flag(&mut old.members[0], "--initial-cluster-token", "another");
    let live = run(&mut with_flags_of(&mut old.members[0], &["restore", text(&file)]));
    live.expect_code(4);
    assert!(live.err.contains("is not empty"), "{}", live.err);
    set_flag(&mut old.members[0], "--initial-cluster-token", "refuse");
    assert!(old.members[0].is_running());
    old.members[0].kv().put_surely("still", "here"); // it goes on
    old.members[0].kill();
    let dead = ours(&["restore", text(&file), "--data-dir", text(&old.members[0].data)]);
    dead.expect_code(4);
    old.members[0].start();
    assert_eq!(
        ours(&["get", "still", "--endpoints", &old.members[0].address()]).expect_ok(),
        "still\nhere\n"
    );

    let again = ours(&["backup", text(&file), "--endpoints", &old.endpoints()]);
    again.expect_code(1);
    assert_eq!(std::fs::read(&file).expect("the backup"), whole, "no backup is written over");
    let (aside, another) = (folder.join("y.bak.part"), folder.join("y.bak"));
    std::fs::write(&aside, "of another backup that runs").expect("test folders can be written");
    let busy = ours(&["backup", text(&another), "--endpoints", &old.endpoints()]);
    busy.expect_code(1);
    assert!(busy.err.contains("y.bak.part exists already"), "{}", busy.err);
    assert!(aside.exists() && !another.exists(), "what somebody else writes is left alone");
    let nowhere = ours(&["backup", text(&folder.join("no/where.bak")), "--endpoints", &old.endpoints()]);
    nowhere.expect_code(1);
    assert!(nowhere.err.contains("its directory does not exist"), "{}", nowhere.err);
    let nobody =
        ours(&["backup", text(&folder.join("x.bak")), "--endpoints", "127.0.0.1:1", "--timeout", "1s"]);
    nobody.expect_code(3);
    assert!(!folder.join("x.bak").exists() && !folder.join("x.bak.part").exists());
}

#[test]
fn the_one_member_that_is_left_becomes_a_cluster_of_its_own() {
    let mut cluster = Cluster::start("recover", 3);
    fill(&cluster.members[0], 0..60);
    let leader = cluster.leader();
    let left = (leader + 1) % 3;
    until("it has heard of everything", || {
        (revision(&cluster.members[left]) == revision(&cluster.members[leader])).then_some(())
    });
    let (wanted, before) = (content(&cluster.members[left]), revision(&cluster.members[left]));
    let words = ["recover", "--i-know-that-writes-may-be-lost", "-o", "json"];

    let roll = format!("{}=http://{}:2380", cluster.members[left].name, cluster.members[left].endpoint.host);
    set_flag(&mut cluster.members[left], "--initial-cluster", &roll);
    let running = run(&mut with_flags_of(&mut cluster.members[left], &words));
    running.expect_code(4);
    assert!(running.err.contains("in use"), "{}", running.err);
    cluster.kill_all();
    let member = &mut cluster.members[left];
    let files = |dir: &Path| {
        let mut names: Vec<_> =
            std::fs::read_dir(dir).expect("a directory").map(|e| e.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let unsaid = run(&mut with_flags_of(member, &["recover"]));
    unsaid.expect_code(2);
    assert!(unsaid.err.contains("--i-know-that-writes-may-be-lost"), "{}", unsaid.err);

    let old_files = files(&member.data);
    let recovered = run(&mut with_flags_of(member, &words));
    let told = recovered.json();
    assert!(recovered.err.contains("lost"), "it is loud: {}", recovered.err);
    assert_eq!(told["revision_before"].as_i64(), Some(before));
    assert_ne!(told["cluster_id"], told["old_cluster_id"]);
    let kept = PathBuf::from(told["kept"].as_str().expect("a place"));
    assert_eq!(files(&kept), old_files, "the old directory is kept");
    member.start();
    assert_eq!(content(member), wanted);
    assert_eq!(revision(member), before + RAISE);
    member.kv().put("after", "all").expect("it takes writes alone");

    // The others are of another cluster: they find no other member, and accept nothing.
    let other = (left + 1) % 3;
    cluster.members[other].spawn().expect("it can be run");
    let refused =
        ours(&["put", "x", "y", "--timeout", "2s", "--endpoints", &cluster.members[other].address()]);
    assert_ne!(refused.code, Some(0));
    let empty = cluster.folder().join("nothing");
    std::fs::create_dir(&empty).expect("test folders can be written");
    ours(&["recover", "--i-know-that-writes-may-be-lost", "--data-dir", text(&empty)]).expect_code(4);

    // A member whose log was cut by damage reports it: a vote floor that cannot be read is unknown.
    let cut = cluster.folder().join("cut");
    let copied = std::process::Command::new("cp").arg("-a").args([&kept, &cut]).status().expect("cp");
    assert!(copied.success());
    std::fs::write(cut.join("floor-00000000"), [0; 64]).expect("test folders can be written");
    let words = ["recover", "--i-know-that-writes-may-be-lost", "--data-dir", text(&cut)];
    let loud = ours(&[&words[..], &["--initial-cluster-token", "after-the-cut"]].concat());
    loud.expect_ok();
    assert!(loud.err.contains("was damaged and cut"), "{}", loud.err);
}

/// An address whose connections end in the middle: only `bytes` of the member's answer are passed on.
fn cut_short(member: &Member, bytes: usize) -> String {
    let door = TcpListener::bind((member.endpoint.host.as_str(), 0)).expect("a free port");
    let (address, behind) = (door.local_addr().expect("an address"), member.address());
    std::thread::spawn(move || {
        for client in door.incoming() {
            let (Ok(client), Ok(member)) = (client, TcpStream::connect(&behind)) else { return };
            let copies = (client.try_clone().expect("a handle"), member.try_clone().expect("a handle"));
            let (mut asks, mut hears) = copies;
            std::thread::spawn(move || std::io::copy(&mut asks, &mut hears));
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut (&member).take(bytes as u64), &mut &client);
                let _ = client.shutdown(std::net::Shutdown::Both);
                let _ = member.shutdown(std::net::Shutdown::Both);
            });
        }
    });
    address.to_string()
}

#[test]
fn a_backup_whose_stream_is_cut_short_fails_and_leaves_no_file_that_looks_like_one() {
    let cluster = Cluster::start("cut", 1);
    let member = &cluster.members[0];
    for key in 0..40 {
        member.kv().put(format!("k{key}"), vec![b'x'; 100_000]).expect("a put");
    }
    let endpoint = cut_short(member, 1 << 20);
    let (file, folder) = (cluster.folder().join("cut.bak"), cluster.folder());
    let cut = ours(&["backup", text(&file), "--endpoints", &endpoint]);
    cut.expect_code(3);
    assert!(cut.err.contains("nothing was written"), "{}", cut.err);
    for version in ["etcd34/etcdctl", "etcd36/etcdctl"] {
        let Some(etcdctl) = kattu_rig::programs::tool(version) else { continue }; // other tests name it
        let mut command = Command::new(etcdctl);
        command.env("ETCDCTL_API", "3").args(["--endpoints", &endpoint, "snapshot", "save", text(&file)]);
        assert_ne!(run(&mut command).code, Some(0), "{version}");
        assert!(!file.exists(), "{version}");
    }
    let left: Vec<String> = std::fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("cut.bak") && !name.starts_with("cut.bak.part"))
        .collect();
    assert_eq!(left, Vec::<String>::new());
    // The member is not affected, and a whole backup works.
    let _ = std::fs::remove_file(folder.join("cut.bak.part")); // etcdctl leaves it
    ours(&["backup", text(&file), "--endpoints", &member.address()]).expect_ok();
}

#[test]
fn a_lone_member_with_a_damaged_log_says_that_a_backup_brings_it_back_and_one_does() {
    let mut cluster = Cluster::start("only-copy", 1);
    fill(&cluster.members[0], 0..120);
    let (file, wanted) = (cluster.folder().join("all.bak"), content(&cluster.members[0]));
    ours(&["backup", text(&file), "--endpoints", &cluster.endpoints()]).expect_ok();
    cluster.members[0].kill();
    let data = cluster.members[0].data.clone();
    let files = std::fs::read_dir(&data).expect("a directory").map(|entry| entry.expect("an entry").path());
    let log = files.filter(|path| path.extension().is_some_and(|it| it == "seg")).min().expect("a log");
    let mut bytes = std::fs::read(&log).expect("the log");
    // Not at the end: the entries that follow show that this is no torn tail.
    let at = bytes.windows(4).position(|it| it == b"k060").expect("every key is in the log");
    bytes[at] ^= 4;
    std::fs::write(&log, &bytes).expect("written back");
    for _ in 0..2 {
        cluster.members[0].spawn().expect("it can be run");
        let refused = cluster.members[0].wait_end();
        refused.expect_code(4);
        let name = log.file_name().expect("a name").to_string_lossy();
        for word in [&*name, "damaged at byte", "the only one of its cluster", "kattu restore", "wal inspect"]
        {
            assert!(refused.err.contains(word), "`{word}` is not said:\n{}", refused.err);
        }
        assert_eq!(std::fs::read(&log).expect("the log"), bytes, "nothing was changed");
    }
    // Do as the message says.
    ours(&["wal", "inspect", text(&data)]).expect_code(4);
    set_flag(&mut cluster.members[0], "--data-dir", text(&data.with_extension("new")));
    set_flag(&mut cluster.members[0], "--initial-cluster-token", "only-copy-again");
    run(&mut with_flags_of(&mut cluster.members[0], &["restore", text(&file)])).expect_ok();
    cluster.members[0].start();
    assert_eq!(content(&cluster.members[0]), wanted);
}

#[test]
fn members_compare_by_themselves_and_say_so() {
    let flags = vec!["--digest-interval=200".to_string()];
    let cluster = Cluster::with("compare", Options { members: 3, flags });
    fill(&cluster.members[0], 0..10);
    for member in &cluster.members {
        let metric = |name: &str| member.metric(name).expect("it answers, and the metric is there");
        until("all have agreed at a mark", || {
            let marked = metric("kattu_digest_marked_index");
            (0 < marked && metric("kattu_digest_agreed_index") == marked).then_some(())
        });
        assert_eq!(metric("kattu_digest_divergent_total"), 0);
        assert_eq!(metric("kattu_corrupt"), 0);
    }
    assert_eq!(
        ours(&["alarm", "list", "-o", "json", "--endpoints", &cluster.endpoints()]).json(),
        serde_json::json!([])
    );
    let hash = ours(&["hash", "-o", "json", "--endpoints", &cluster.endpoints()]).json();
    let hashes: Vec<_> = hash.as_array().expect("a list").iter().map(|one| one["hash"].clone()).collect();
    assert!(hashes.len() == 3 && hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
}
