//! Switches of real members: shown, changed under load, forgotten by a restart, refused in words.

use kattu_rig::programs::{Ended, met_by, run};
use kattu_rig::{Cluster, Member, Page, kattu, until};
use serde_json::Value;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn tune(endpoints: &str, words: &[&str]) -> Ended {
    run(Command::new(kattu()).arg("tune").args(words).args(["--endpoints", endpoints]))
}

/// The settings of each member.
fn tuned(endpoints: &str) -> Vec<Value> {
    let said = tune(endpoints, &["-o", "json"]);
    let all: Value = serde_json::from_str(said.expect_ok()).expect("JSON");
    all.as_array().expect("an entry for each").iter().map(|entry| entry["settings"].clone()).collect()
}

/// Settings in turns, so that each is off and on, and log and keeper move, while clients write and read.
const TURNS: [&[&str]; 7] = [
    &["batching=off", "pipelining=off", "parallel-append=off"],
    &["apply=thread", "log-io=thread", "reads=log"],
    &["batching=on", "batch-linger=2ms", "apply-gate=on", "reads=lease"],
    &["apply=inline", "batch-entries-max=3", "inflight-msgs-max=2"],
    &["apply=thread", "log-io=inline", "reads=index", "apply-gate=off"],
    &["apply=inline", "log-io=thread", "pipelining=on", "batch-linger=0"],
    &["log-io=inline", "parallel-append=on", "batch-entries-max=4096", "inflight-msgs-max=256"],
];

/// Goal: members are tuned under load, and clients see nothing of it. Method: a client writes and reads back while all members go
/// through the turns above; every acknowledged write is read.
#[test]
fn members_are_tuned_under_load_and_clients_see_nothing_of_it() {
    let mut cluster = Cluster::start("tuning", 3);
    let endpoints = cluster.endpoints();
    cluster.members[0].kv().put_surely("first", "0");
    let at_start = tuned(&endpoints);
    assert!(at_start.iter().all(|settings| settings["batching"] == "on" && settings["reads"] == "index"));
    let stop = AtomicBool::new(false);
    let written = std::thread::scope(|scope| {
        let clients: Vec<_> = cluster
            .members
            .iter()
            .enumerate()
            .map(|(client, member)| {
                let (kv, stop) = (member.kv(), &stop);
                scope.spawn(move || {
                    let mut count = 0_u64;
                    while !stop.load(Ordering::Relaxed) {
                        count += 1;
                        let key = format!("client-{client}");
                        kv.put(key.clone(), count.to_string()).expect("it is written");
                        let read = kv.get(key).expect("it is read").expect("it is there");
                        assert_eq!(read, count.to_string().into_bytes());
                    }
                    count
                })
            })
            .collect();
        for turn in TURNS.iter().cycle().take(3 * TURNS.len()) {
            tune(&endpoints, turn).expect_ok();
            for settings in tuned(&endpoints) {
                for setting in *turn {
                    let (name, value) = setting.split_once('=').expect("a setting");
                    assert_eq!(settings[name], value, "{name}");
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
        clients.into_iter().map(|client| client.join().expect("it saw nothing")).sum::<u64>()
    });
    assert!(30 < written, "{written} writes prove nothing");
    assert_eq!(tuned(&endpoints), at_start, "the last turn turns everything back");

    // A restart goes by flags; status and metrics say what is tuned.
    let one = cluster.members[1].address();
    tune(&one, &["apply=thread", "log-io=thread"]).expect_ok();
    until("both have a thread", || {
        let on_thread = |name| cluster.members[1].metric(name) == Some(1);
        (on_thread("kattu_apply_on_thread") && on_thread("kattu_log_on_thread")).then_some(())
    });
    let status = || run(Command::new(kattu()).args(["status", "--endpoints", &one])).out;
    assert!(status().contains("is tuned: apply=thread log-io=thread"), "{}", status());
    cluster.members[1].stop("TERM");
    cluster.members[1].spawn().expect("it can be run");
    until("it serves", || cluster.members[1].serves().then_some(()));
    assert_eq!(tuned(&one), [at_start[1].clone()]);
    assert!(!status().contains("is tuned"), "{}", status());
}

/// What a leader shows of its switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shown {
    /// Some messages and some syncs have several entries.
    batches: bool,
    /// Some messages leave while others to the same member are not answered.
    pipelines: bool,
    /// Some leave before the leader's own disk has their entries.
    appends_ahead: bool,
    applies_on_thread: bool,
    logs_on_thread: bool,
    /// Reads make entries.
    reads_by_entry: bool,
    /// Reads ask the other members.
    reads_by_round: bool,
}

/// As a member begins.
const BEGINS: Shown = Shown {
    batches: true,
    pipelines: true,
    appends_ahead: true,
    applies_on_thread: false,
    logs_on_thread: false,
    reads_by_entry: false,
    reads_by_round: true,
};

/// Puts of many clients, then reads of one, as the leader has counted them; `None` if it did not lead all the time.
fn shown(leader: &Member) -> Option<Shown> {
    const READS: u64 = 200;
    let address = leader.address();
    let bench = |words: &str| {
        let words = words.split_whitespace();
        run(Command::new(kattu()).arg("bench").args(words).args(["--endpoints", &address]));
    };
    bench("put --total 100 --key-space 100");
    let page = || Page::of(&address).expect("a page");
    let (before, began) = (page(), Instant::now());
    bench("put --clients 64 --conns 4 --total 1500 --val-size 1100 --key-space 100");
    bench(&format!("range --total {READS} --key-space 100 --filled"));
    let (after, took) = (page(), began.elapsed());
    let stayed = |name| before.number(name) == after.number(name);
    if after.number("etcd_server_is_leader") != Some(1) || !stayed("kattu_term") {
        return None;
    }
    let grown = |name: &str| {
        let of = |page: &Page| page.number(name).expect(name);
        of(&after) - of(&before)
    };
    // How many of a histogram's numbers were above 1.
    let above_one = |name: &str| {
        let bucket = format!("{name}_bucket");
        let one = |page: &Page| {
            let line = page.lines(&bucket).find_map(|line| line.strip_prefix("{le=\"1\"} "));
            line.and_then(|count| count.parse::<u64>().ok()).expect("a bucket")
        };
        grown(&format!("{name}_count")) - (one(&after) - one(&before))
    };
    let (in_appends, in_syncs) = (above_one("kattu_entries_per_append"), above_one("kattu_entries_per_sync"));
    // Two members get a heartbeat each every 100 ms.
    let heartbeats = 2 * (2 + took.as_millis() as u64 / 100);
    Some(Shown {
        batches: 0 < in_appends + in_syncs,
        pipelines: 0 < above_one("kattu_appends_in_flight"),
        appends_ahead: 0 < grown("kattu_appends_ahead_total"),
        applies_on_thread: 0 < grown("kattu_apply_delivered_total"),
        logs_on_thread: 0 < grown("kattu_log_thread_groups_total"),
        reads_by_entry: READS / 2 < grown("kattu_entries_empty_total"),
        reads_by_round: heartbeats + READS / 2 < grown("kattu_appends_empty_total"),
    })
}

/// Goal: each switch changes what it says, and nothing else that can be counted. Method: with each setting in turn the leader is
/// asked much, and what it has counted is compared with how it began. Counts that chance decides are looked at again until they
/// are as expected; a switch that did nothing, or too much, never gets there.
#[test]
fn a_switch_changes_its_own_counter_and_no_other() {
    let cluster = Cluster::start("switches", 3);
    cluster.members[0].kv().put_surely("first", "0");
    let endpoints = cluster.endpoints();
    let is_as = |expected: Shown, what: &str| {
        let mut last = None;
        let is_as_expected = met_by(Instant::now() + Duration::from_secs(60), || {
            last = shown(&cluster.members[cluster.leader()]);
            (last == Some(expected)).then_some(())
        });
        assert!(is_as_expected.is_some(), "{what}: {last:?}, expected {expected:?}");
    };
    is_as(BEGINS, "as it begins");
    for (setting, back, expected) in [
        ("batching=off", "batching=on", Shown { batches: false, ..BEGINS }),
        ("batch-entries-max=1", "batch-entries-max=4096", Shown { batches: false, ..BEGINS }),
        ("pipelining=off", "pipelining=on", Shown { pipelines: false, ..BEGINS }),
        ("inflight-msgs-max=1", "inflight-msgs-max=256", Shown { pipelines: false, ..BEGINS }),
        ("parallel-append=off", "parallel-append=on", Shown { appends_ahead: false, ..BEGINS }),
        ("apply=thread", "apply=inline", Shown { applies_on_thread: true, ..BEGINS }),
        ("log-io=thread", "log-io=inline", Shown { logs_on_thread: true, ..BEGINS }),
        ("reads=log", "reads=index", Shown { reads_by_entry: true, reads_by_round: false, ..BEGINS }),
        ("reads=lease", "reads=index", Shown { reads_by_round: false, ..BEGINS }),
    ] {
        tune(&endpoints, &[setting]).expect_ok();
        is_as(expected, setting);
        tune(&endpoints, &[back]).expect_ok();
    }
    is_as(BEGINS, "with everything turned back");
}

#[test]
fn what_is_no_setting_is_refused_in_words_and_changes_nothing() {
    let cluster = Cluster::start("tuning-words", 1);
    let endpoints = cluster.endpoints();
    cluster.members[0].kv().put_surely("first", "0");
    let before = tuned(&endpoints);
    for (words, code, told) in [
        (&["batching=maybe"][..], 2, "batching=maybe: it is on or off"),
        (&["bathcing=on"], 2, "there is no setting bathcing"),
        (&["batching"], 2, "it must be NAME=VALUE"),
        (&["batching=off", "batching=on"], 2, "batching is given twice"),
        (&["batching=off", "inflight-msgs-max=0"], 2, "from 1 to 65536"),
        (&["batching=off", "apply-delay=1ms"], 1, "only a member that was started with --lab takes it"),
    ] {
        let said = tune(&endpoints, words);
        said.expect_code(code);
        assert!(said.all().contains(told), "{}", said.all());
    }
    assert_eq!(tuned(&endpoints), before);
    assert!(tune(&endpoints, &["--list"]).expect_ok().contains("parallel-append"));
}

#[test]
fn basic_raft_serves_and_a_member_without_syncs_says_so() {
    let mut cluster = Cluster::start("basic-raft", 3);
    for member in &mut cluster.members {
        member.stop("TERM");
        member.arguments_mut().extend(["--protocol=basic-raft", "--unsafe-no-fsync"].map(str::to_string));
    }
    cluster.spawn_all().expect("they can be run");
    cluster.members[0].kv().put_surely("first", "0");
    for settings in tuned(&cluster.endpoints()) {
        for name in ["batching", "pipelining", "parallel-append"] {
            assert_eq!(settings[name], "off", "{name}");
        }
        assert_eq!((&settings["apply-gate"], &settings["reads"]), (&"on".into(), &"log".into()));
    }
    let said = run(Command::new(kattu()).args(["status", "--endpoints", &cluster.endpoints()]));
    assert!(said.out.contains("--unsafe-no-fsync"), "{}", said.out);
    for member in &cluster.members {
        assert_eq!(member.metric("kattu_unsafe_no_fsync"), Some(1));
        assert!(member.log_text().contains("THIS MEMBER DOES NOT WAIT FOR ITS DISK"));
    }
    for count in 0..20 {
        cluster.members[count % 3].kv().put_surely("k", count.to_string());
        let read = cluster.members[(count + 1) % 3].kv().get("k").expect("it is read");
        assert_eq!(read, Some(count.to_string().into_bytes()));
    }
}
