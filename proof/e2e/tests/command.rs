//! The command line: output and exit codes.

use kattu_rig::programs::{self, Ended, own_folder, own_host, run, run_with_input};
use kattu_rig::{Cluster, Options, kattu, until};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

fn at(endpoints: &str, words: &[&str]) -> Command {
    let mut command = Command::new(kattu());
    command.args(words).args(["--endpoints", endpoints]);
    command
}

#[track_caller]
fn says(endpoints: &str, words: &[&str]) -> String {
    run(&mut at(endpoints, words)).expect_ok().to_string()
}

fn keys(object: &Value) -> BTreeSet<String> {
    object.as_object().map(|object| object.keys().cloned().collect()).unwrap_or_default()
}

#[test]
fn the_first_line_of_the_version_is_etcds() {
    let ended = run(Command::new(kattu()).arg("--version"));
    let mut lines = ended.expect_ok().lines();
    assert_eq!(lines.next(), Some("etcd Version: 3.7.3"));
    assert!(lines.next().is_some_and(|line| line.contains("Kattu")), "{}", ended.out);
    let ended = run(Command::new(kattu()).args(["serve", "--version"]));
    assert_eq!(ended.expect_ok().lines().next(), Some("etcd Version: 3.7.3"));
}

#[test]
fn the_verbs_of_the_store_answer_as_etcdctl_does() {
    let cluster = Cluster::start("verbs", 1);
    let e = cluster.endpoints();
    assert_eq!(says(&e, &["put", "a1", "one"]), "OK\n");
    assert_eq!(says(&e, &["put", "a2", "two"]), "OK\n");
    assert_eq!(says(&e, &["put", "a1", "uno"]), "OK\n");
    assert_eq!(says(&e, &["get", "a1"]), "a1\nuno\n");
    assert_eq!(says(&e, &["get", "missing"]), "");
    assert_eq!(says(&e, &["get", "a", "--prefix"]), "a1\nuno\na2\ntwo\n");
    assert_eq!(says(&e, &["get", "a", "--prefix", "--limit", "1"]), "a1\nuno\n");
    assert_eq!(says(&e, &["get", "a1", "--rev", "2"]), "a1\none\n");
    let sorted = says(&e, &["get", "a", "--prefix", "--sort-by", "modify", "--order", "ascend"]);
    assert_eq!(sorted, "a2\ntwo\na1\nuno\n");
    assert!(says(&e, &["get", "a", "--prefix", "--count-only"]).contains('2'));
    assert!(!says(&e, &["get", "a", "--prefix", "--keys-only"]).contains("uno"));
    assert_eq!(says(&e, &["get", "a1", "--serializable"]), "a1\nuno\n");

    let answer = run(&mut at(&e, &["get", "a1", "-o", "json"])).json();
    assert_eq!(answer["count"], json!(1));
    assert_eq!(answer["kvs"][0]["key"], json!("YTE="));
    assert_eq!(answer["kvs"][0]["value"], json!("dW5v"));
    assert_eq!(answer["kvs"][0]["version"], json!(2));

    let script = "version(\"a1\") = \"2\"\n\nput t yes\nget a2\n\nput t no\n\n";
    let answer = run_with_input(&mut at(&e, &["txn"]), script);
    assert_eq!(answer.expect_ok(), "SUCCESS\n\nOK\n\na2\ntwo\n");

    assert_eq!(says(&e, &["del", "a1"]), "1\n");
    assert_eq!(says(&e, &["del", "a", "--prefix"]), "1\n");
    assert_eq!(says(&e, &["del", "a", "--prefix"]), "0\n");
    assert!(says(&e, &["compact", "3"]).contains('3'));
    let refused = run(&mut at(&e, &["get", "a1", "--rev", "2"]));
    refused.expect_code(1);
    assert!(refused.err.contains("required revision has been compacted"), "{}", refused.err);
    let refused = run(&mut at(&e, &["compact", "3"]));
    refused.expect_code(1);
}

#[test]
fn status_and_member_list_have_the_promised_fields() {
    let cluster = Cluster::start("status", 3);
    let e = cluster.endpoints();
    let status = run(&mut at(&e, &["status", "-o", "json"])).json();
    let status = status.as_array().expect("an array");
    assert_eq!(status.len(), 3);
    let promised: BTreeSet<String> = [
        "endpoint",
        "member_id",
        "name",
        "role",
        "leader_id",
        "term",
        "revision",
        "persisted",
        "committed",
        "applied",
        "first_index",
        "last_index",
        "log_bytes",
        "version",
        "history_seconds",
        "feature_level",
        "election_timeout_ms",
        "heartbeat_interval_ms",
        "certificate_days",
        "errors",
    ]
    .map(str::to_string)
    .into();
    let is_hex = |id: &Value| {
        id.as_str().is_some_and(|id| u64::from_str_radix(id, 16).is_ok() && id.to_lowercase() == id)
    };
    for one in status {
        assert!(
            keys(one).is_superset(&promised),
            "missing: {:?}",
            promised.difference(&keys(one)).collect::<Vec<_>>()
        );
        assert!(is_hex(&one["member_id"]) && is_hex(&one["leader_id"]), "{one}");
        assert!(one["persisted"].as_u64() >= one["first_index"].as_u64(), "{one}");
        assert!(one["applied"].as_u64() <= one["committed"].as_u64(), "{one}");
        assert!(one["persisted"].as_u64() <= one["last_index"].as_u64(), "{one}");
        assert_eq!(one["errors"], json!([]), "{one}");
    }
    assert_eq!(status.iter().filter(|one| one["role"] == json!("leader")).count(), 1);

    until("every member has told its name", || {
        let members = cluster.members[0].kv().members().ok()?;
        (members.len() == 3 && members.iter().all(|member| !member.name.is_empty())).then_some(())
    });
    assert_eq!(says(&e, &["member-list", "-o", "json"]), says(&e, &["member", "list", "-o", "json"]));
    let members = run(&mut at(&e, &["member", "list", "-o", "json"])).json();
    let members = members.as_array().expect("an array");
    assert_eq!(members.len(), 3);
    for member in members {
        let promised = ["id", "name", "peer_urls", "client_urls", "learner"].map(str::to_string);
        assert_eq!(keys(member), promised.into());
        assert!(is_hex(&member["id"]), "{member}");
        assert_eq!(member["learner"], json!(false));
    }
    let names: BTreeSet<&str> = members.iter().filter_map(|member| member["name"].as_str()).collect();
    assert_eq!(names, ["n0", "n1", "n2"].into());
}

#[test]
fn a_short_bench_reports_what_its_help_says() {
    let cluster = Cluster::start("bench", 1);
    for verb in ["put", "range"] {
        let words = ["bench", verb, "--clients", "8", "--conns", "2", "--total", "500", "-o", "json"];
        let report = run(&mut at(&cluster.endpoints(), &words)).json();
        let promised = ["ops", "seconds", "ops_per_s", "p50_us", "p99_us", "p999_us", "max_us", "errors"];
        assert_eq!(keys(&report), promised.map(str::to_string).into(), "{verb}");
        assert_eq!(report["ops"], json!(500), "{verb}");
        assert_eq!(report["errors"], json!(0), "{verb}");
    }
}

#[test]
fn a_bench_of_reads_writes_its_keys_first_unless_it_is_told_that_they_are_there() {
    let cluster = Cluster::start("bench-filled", 1);
    let read = |more: &[&str]| {
        let words = ["bench", "range", "--total", "50", "--key-space", "20", "-o", "json"];
        run(&mut at(&cluster.endpoints(), &[&words, more].concat())).expect_code(0);
        let keys = says(&cluster.endpoints(), &["get", "0", "--prefix", "--keys-only"]);
        keys.lines().filter(|line| !line.is_empty()).count()
    };
    assert_eq!(read(&["--filled"]), 0);
    assert_eq!(read(&[]), 20);
}

#[test]
fn exit_codes_tell_usage_from_absence() {
    let nobody = format!("{}:2379", own_host());
    run(&mut at(&nobody, &["put"])).expect_code(2);
    run(&mut at(&nobody, &["put", "a", "b", "c"])).expect_code(2);
    run(&mut at(&nobody, &["frobnicate"])).expect_code(2);
    run(&mut at(&nobody, &["get", "a", "--limit", "many"])).expect_code(2);
    run(&mut at("no port here", &["get", "a"])).expect_code(2);
    for words in [&["get", "a"][..], &["put", "a", "b"], &["status", "-o", "json"], &["member", "list"]] {
        let ended = run(&mut at(&nobody, &[words, &["--timeout", "2s"]].concat()));
        ended.expect_code(3);
        assert!(ended.err.contains(&nobody), "{words:?} does not say who was unreachable: {}", ended.err);
    }
    run(Command::new(kattu()).args(["wal", "inspect", "/nonexistent/kattu"])).expect_code(2);
    // A directory, but not a data directory.
    let folder = own_folder("empty");
    run(Command::new(kattu()).args(["wal", "inspect"]).arg(&folder)).expect_code(4);
    let _ = std::fs::remove_dir_all(folder);
}

#[test]
fn a_put_that_may_have_happened_says_unknown() {
    // Two of three are down: the put is accepted, and can neither succeed nor be refused with certainty.
    let mut cluster = Cluster::start("unknown", 3);
    let leader = cluster.leader();
    for i in (0..3).filter(|i| *i != leader) {
        cluster.members[i].kill();
    }
    let ended = run(&mut at(&cluster.members[leader].address(), &["put", "a", "b", "--timeout", "1s"]));
    ended.expect_code(3);
    assert!(ended.err.to_lowercase().contains("unknown"), "{}", ended.err);
}

#[test]
fn inspecting_a_log_shows_its_records() {
    let mut cluster = Cluster::start("inspect", 1);
    for i in 0..5 {
        cluster.members[0].kv().put(format!("k{i}"), "v").expect("a put");
    }
    assert_eq!(cluster.members[0].stop("TERM"), Some(0));
    let inspect = |words: &[&str]| {
        let mut command = Command::new(kattu());
        command.args(["wal", "inspect"]).arg(&cluster.members[0].data).args(words);
        run(&mut command)
    };
    let text = inspect(&[]);
    assert!(5 < text.expect_ok().lines().count(), "{}", text.out);
    let lines = inspect(&["-o", "json"]);
    let records: Vec<Value> =
        lines.expect_ok().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let entries = records.iter().filter(|record| record["kind"] == json!("entry")).count();
    assert!(5 <= entries, "{}", lines.out);
    assert_eq!(records.last().map(|last| last["verdict"].clone()), Some(json!("clean")));
}

#[test]
fn inspecting_shows_the_vote_hold_and_calls_damage_to_it_damage() {
    let options = Options { members: 1, flags: vec!["--lease-reads".into()] };
    let mut cluster = Cluster::with("promised", options);
    assert_eq!(cluster.members[0].stop("TERM"), Some(0));
    let data = cluster.members[0].data.clone();
    let inspect = |words: &[&str]| run(Command::new(kattu()).args(["wal", "inspect"]).arg(&data).args(words));
    let promise = |ended: &Ended| -> Value {
        let mut lines = ended.out.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        lines.find(|record| record["kind"] == json!("promise")).expect("there are leases")
    };
    let text = inspect(&[]);
    assert!(text.expect_ok().contains("promise   vote hold 1s"), "{}", text.out);
    let whole = inspect(&["-o", "json"]);
    whole.expect_ok();
    assert_eq!(promise(&whole), json!({"kind": "promise", "milliseconds": 1000}));

    let file = data.join("promise");
    let mut bytes = std::fs::read(&file).expect("it is there");
    bytes[24] ^= 1;
    std::fs::write(&file, bytes).expect("written");
    let damaged = inspect(&["-o", "json"]);
    damaged.expect_code(4);
    assert_eq!(promise(&damaged), json!({"kind": "promise", "bad": "checksum mismatch"}));
    assert!(damaged.err.contains("promise: damaged at byte 0: checksum mismatch"), "{}", damaged.err);
    let text = inspect(&[]);
    assert!(text.expect_code(4).contains("promise   bad: checksum mismatch"), "{}", text.out);
}

/// `kattu dev` in its own folder, on its own ports.
struct Dev {
    child: std::process::Child,
    log: std::path::PathBuf,
}

impl Dev {
    fn start(folder: &std::path::Path, base_port: u16) -> Dev {
        let log = folder.join("log");
        let file = std::fs::File::create(&log).expect("a log");
        let mut command = Command::new(kattu());
        command.args(["dev", "--base-port", &base_port.to_string(), "--data-dir"]).arg(folder.join("data"));
        command.stdin(Stdio::null()).stdout(file.try_clone().expect("a handle")).stderr(file);
        let mut child = command.spawn().expect("the binary can be run");
        until("the tutorial is printed", || {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            assert!(matches!(child.try_wait(), Ok(None)), "kattu dev ended:\n{text}");
            text.contains("kattu put").then_some(())
        });
        Dev { child, log }
    }

    fn ctrl_c(mut self) -> Ended {
        programs::signal(self.child.id(), "INT");
        let status = until("kattu dev ends", || self.child.try_wait().ok().flatten());
        Ended {
            code: status.code(),
            out: std::fs::read_to_string(&self.log).unwrap_or_default(),
            err: String::new(),
        }
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port with room for members above it, probably unused: no test of this process gets the same.
fn base_port() -> u16 {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    for _ in 0..300 {
        let turn = TAKEN.fetch_add(1, Ordering::Relaxed);
        let port = 20_000 + ((std::process::id() + 31 * turn) % 10_000) as u16;
        if (0..30).all(|i| std::net::TcpListener::bind(("127.0.0.1", port + i)).is_ok()) {
            return port;
        }
    }
    panic!("no thirty free ports in a row");
}

#[test]
fn the_playground_keeps_its_data_over_ctrl_c() {
    let folder = own_folder("dev");
    let port = base_port();
    let endpoint = format!("127.0.0.1:{port}");
    let dev = Dev::start(&folder, port);
    let tutorial = std::fs::read_to_string(&dev.log).expect("the log");
    assert!(tutorial.contains(&endpoint), "{tutorial}");
    assert_eq!(says(&endpoint, &["put", "hello", "world"]), "OK\n");
    let third = format!("127.0.0.1:{}", port + 20);
    assert_eq!(says(&third, &["get", "hello"]), "hello\nworld\n");
    dev.ctrl_c().expect_ok();
    let dev = Dev::start(&folder, port);
    assert_eq!(says(&endpoint, &["get", "hello"]), "hello\nworld\n");
    dev.ctrl_c().expect_ok();
    let _ = std::fs::remove_dir_all(folder);
}

#[test]
fn the_playground_names_a_taken_port_and_the_flag() {
    let folder = own_folder("dev-port");
    let port = base_port();
    let _taken = std::net::TcpListener::bind(("127.0.0.1", port + 10)).expect("the port is free");
    let mut command = Command::new(kattu());
    command.args(["dev", "--base-port", &port.to_string(), "--data-dir"]).arg(folder.join("data"));
    let ended = run(&mut command);
    ended.expect_code(2);
    assert!(ended.err.contains(&format!("127.0.0.1:{}", port + 10)), "{}", ended.err);
    assert!(ended.err.contains("--base-port"), "{}", ended.err);
    let _ = std::fs::remove_dir_all(folder);
}
